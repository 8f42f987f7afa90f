//! Random problems, compared with the oracle; `TEGULA_CASES` is their number per element type.

use proptest::prelude::*;
use proptest::sample::select;
use tegula_core::element::Accuracy;
use tegula_core::epilogue::BiasShape;

use super::*;

/// The choice of alpha or beta: 0, 1 or random.
#[derive(Clone, Copy, Debug)]
enum ScalarChoice {
    Zero,
    One,
    Any,
}

impl ScalarChoice {
    fn value<S: Scalar>(self, random: &mut Random) -> S {
        match self {
            ScalarChoice::Zero => S::ZERO,
            ScalarChoice::One => S::ONE,
            ScalarChoice::Any => random.scalar(),
        }
    }
}

#[derive(Clone, Debug)]
struct Case {
    batches: usize,
    /// m, n and k.
    sizes: [usize; 3],
    /// Layout styles of A, B, C and the bias.
    styles: [Style; 4],
    scalars: [ScalarChoice; 2],
    bias: Option<BiasShape>,
    /// Ignored where the element type does not support it.
    activation: Activation,
    seed: u64,
}

fn style() -> impl Strategy<Value = Style> {
    let (broadcast, repeated) = (prop::bool::weighted(0.1), prop::bool::weighted(0.2));
    let shift = prop_oneof![Just(0), 1..17usize];
    (any::<bool>(), any::<[bool; 2]>(), 0..3usize, shift, broadcast, repeated).prop_map(
        |(transposed, reversed, spacing, shift, broadcast, repeated)| Style {
            transposed,
            reversed,
            spacing,
            shift,
            broadcast,
            repeated,
        },
    )
}

/// A multiple of vectors or micro-tiles, minus 1, 0 or plus 1.
fn edge() -> impl Strategy<Value = usize> {
    let whole = select(vec![4, 6, 8, 12, 16, 24, 32, 36, 48, 64, 72, 96, 128usize]);
    (whole, 0..3usize).prop_map(|(whole, more)| whole + more - 1)
}

/// m, n and k: small sizes, and sizes that reach every blocking plan now and then.
fn sizes() -> BoxedStrategy<[usize; 3]> {
    if cfg!(miri) {
        // The same plans at sizes that Miri can run.
        return prop_oneof![
            3 => prop::array::uniform3(0..11usize),
            1 => (1..3usize, 256..259usize, 1..3usize).prop_map(<[_; 3]>::from),
            1 => (Just(1), Just(1), 4096..4099usize).prop_map(<[_; 3]>::from),
            1 => (1..6usize, 1..3usize, 255..259usize).prop_map(<[_; 3]>::from),
        ]
        .boxed();
    }
    prop_oneof![
        8 => prop::array::uniform3(0..=130usize),
        3 => prop::array::uniform3(0..=20usize),
        4 => prop::array::uniform3(edge()),
        // Few rows of C, then one row, one column, and many rows.
        2 => (1..=36usize, 250..=600usize, 1..=130usize).prop_map(<[_; 3]>::from),
        1 => (1..=4usize, 250..=400usize, 257..=1100usize).prop_map(<[_; 3]>::from),
        2 => (Just(1), 0..=700usize, 0..=700usize).prop_map(<[_; 3]>::from),
        2 => (0..=700usize, Just(1), 0..=700usize).prop_map(<[_; 3]>::from),
        1 => (257..=700usize, 1..=130usize, 1..=60usize).prop_map(<[_; 3]>::from),
        // Several KC steps, and several slices.
        2 => (1..=70usize, 1..=70usize, 250..=1100usize).prop_map(<[_; 3]>::from),
        2 => (1..=20usize, 1..=20usize, 4090..=9000usize).prop_map(<[_; 3]>::from),
        // Several blocks of rows or columns.
        1 => (3836..=3900usize, 1..=9usize, 1..=9usize).prop_map(<[_; 3]>::from),
        1 => (1..=9usize, 3836..=3900usize, 1..=9usize).prop_map(<[_; 3]>::from),
    ]
    .boxed()
}

/// Batches: none, a default, or many small ones, which run in parallel.
fn batches_and_sizes() -> impl Strategy<Value = (usize, [usize; 3])> {
    let (many, small) = if cfg!(miri) { (1..3usize, 0..6usize) } else { (8..41, 16..49) };
    prop_oneof![
        16 => (Just(1), sizes()),
        3 => (0..4usize, sizes()),
        1 => (many, prop::array::uniform3(small)),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    let scalar = || prop_oneof![Just(ScalarChoice::Zero), Just(ScalarChoice::One), Just(ScalarChoice::Any)];
    let bias = prop_oneof![2 => Just(None), 1 => Just(Some(BiasShape::Row)), 1 => Just(Some(BiasShape::Column))];
    let activation = prop_oneof![3 => Just(Activation::None), 2 => select(Activation::ALL.to_vec())];
    (batches_and_sizes(), [style(), style(), style(), style()], [scalar(), scalar()], bias, activation, any::<u64>())
        .prop_map(|((batches, sizes), styles, scalars, bias, activation, seed)| Case {
            batches,
            sizes,
            styles,
            scalars,
            bias,
            activation,
            seed,
        })
}

/// Multiplies by every instruction set and compares with the oracle. Memory between the elements of
/// C must stay unchanged.
fn try_case<T: Element>(case: &Case) -> Result<(), TestCaseError> {
    let Case { batches, sizes: [m, n, k], styles, .. } = *case;
    let random = &mut Random(case.seed);
    let shape = |rows, cols| Shape { batches, rows, cols };
    let c_style = Style { broadcast: false, repeated: false, ..styles[2] };
    let [(a, a_len), (b, b_len), (c, c_len)] =
        [styles[0].layout(shape(m, k)), styles[1].layout(shape(k, n)), c_style.layout(shape(m, n))];
    let (a_data, b_data, before) = (random.vec::<T>(a_len), random.vec::<T>(b_len), random.vec::<T::Out>(c_len));
    let (a, b) = (View::strided(&a_data, a).unwrap(), View::strided(&b_data, b).unwrap());
    let (alpha, beta): (T::Acc, T::Acc) = (case.scalars[0].value(random), case.scalars[1].value(random));
    let bias_shape = |along| if along == BiasShape::Row { shape(1, n) } else { shape(m, 1) };
    let (bias, bias_len) = styles[3].layout(case.bias.map_or(shape(0, 0), bias_shape));
    let bias_data = random.vec::<T::Out>(bias_len);
    let bias = case.bias.map(|_| View::strided(&bias_data, bias).unwrap());
    let supported = case.activation.gate().is_none() || T::TYPE.is_float();
    let activation = if supported { case.activation } else { Activation::None };
    let epilogue = EpilogueOperands { bias, activation }.broadcast_to(shape(m, n), T::TYPE).unwrap();
    let bound = oracle::bound_with_epilogue::<T>(Accuracy::Full, k, epilogue.epilogue());
    let c0 = View::strided(&before, c).unwrap();
    let mut gap = vec![true; c_len];
    (0..batches).for_each(|x| (0..m).for_each(|i| (0..n).for_each(|j| gap[c.at(x, i, j)] = false)));
    for isa in instruction_sets() {
        let mut after = before.clone();
        gemm_with_options::<T>(
            isa,
            alpha,
            a,
            b,
            beta,
            ViewMut::strided(&mut after, c).unwrap(),
            epilogue,
            None,
            None,
            false,
        )
        .unwrap();
        let result = View::strided(&after, c).unwrap();
        let report = oracle::check_with_epilogue::<T>(alpha, a, b, beta, Some(c0), epilogue, result, &|_| ()).unwrap();
        prop_assert!(report.within(bound), "{} {}: {:?}", isa, T::TYPE, report);
        let unchanged = (0..c_len).filter(|&at| gap[at]).all(|at| after[at] == before[at]);
        prop_assert!(unchanged, "{} {} wrote between elements of C", isa, T::TYPE);
    }
    Ok(())
}

/// The number of cases set by `TEGULA_CASES`, by default 64. Miri is too slow to shrink failures.
fn config() -> ProptestConfig {
    let requested = std::env::var("TEGULA_CASES").ok();
    let (default, shrinks) = if cfg!(miri) { (3, 0) } else { (64, u32::MAX) };
    let cases = requested.map_or(default, |count| count.parse().expect("TEGULA_CASES is a number"));
    ProptestConfig { cases, failure_persistence: None, max_shrink_iters: shrinks, ..ProptestConfig::default() }
}

/// Integers are exact: their bound is 0.
#[test]
fn random_products_of_every_type_are_within_the_bound() {
    for ty in Type::OPERANDS {
        with_operand_type!(ty, T => proptest!(config(), |(case in case())| try_case::<T>(&case)?), _ => {});
    }
}

/// Sizes beyond one block in each direction, several KC steps, partial micro-tiles.
#[test]
#[cfg_attr(miri, ignore = "takes hours")]
fn sizes_beyond_one_block_are_within_the_bound() {
    fn check(sizes: [usize; 3], [a, b, c]: [Style; 3]) {
        let (styles, scalars) = ([a, b, c, c], [ScalarChoice::Any, ScalarChoice::Any]);
        let case = Case { batches: 1, sizes, styles, scalars, bias: None, activation: Activation::None, seed: 7 };
        try_case::<f64>(&case).unwrap();
        try_case::<f32>(&case).unwrap();
        try_case::<bf16>(&case).unwrap();
        try_case::<f16>(&case).unwrap();
        try_case::<i32>(&case).unwrap();
        try_case::<i8>(&case).unwrap();
    }
    let transposed_style = Style { transposed: true, ..Style::default() };
    check([4001, 5, 7], [Style::default(); 3]);
    check([3, 4201, 33], [transposed_style; 3]);
    check([37, 51, 1501], [transposed_style, Style::default(), Style { spacing: 2, ..transposed_style }]);
    check([150, 200, 700], [Style::default(), transposed_style, transposed_style]);
    // Sums of all k before C is narrowed.
    check([520, 523, 1001], [Style::default(); 3]);
    check([523, 520, 601], [transposed_style, transposed_style, Style::default()]);
}
