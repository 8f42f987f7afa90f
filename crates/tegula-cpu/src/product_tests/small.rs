//! Small products: their bits are those of a chain of multiply-adds in order of k, by `gemm_small`
//! and otherwise, whether operands are packed or not, whatever their layout. Dot products of whole
//! columns alone have other bits.

use tegula_core::epilogue::BiasShape;

use super::*;
use crate::accumulation::{Accumulation, SMALL_EXTENT, is_small_unpacked, reads_whole_columns};
use crate::blocking::BlockingPlan;
use crate::host_gemm::is_transposed;
use crate::micro_kernel::Accumulate;
use crate::problem::BlockingProblem;

/// Extents around vectors and micro-tiles of every instruction set.
const EXTENTS: [usize; 14] = [1, 2, 3, 5, 6, 7, 8, 9, 12, 13, 16, 17, 33, 40];

/// Layouts of A, B and C. A product with a spaced or transposed B packs it, and for a transposed C
/// the rows of A are the vectors.
fn styles() -> [[Style; 3]; 6] {
    let plain = Style::default();
    let [transposed, spaced] = [Style { transposed: true, ..plain }, Style { spacing: 2, ..plain }];
    let unaligned = Style { shift: 3, ..plain };
    let reversed = Style { reversed: [true, true], ..plain };
    [
        [plain, plain, plain],
        [transposed, unaligned, unaligned],
        [plain, transposed, plain],
        [plain, spaced, spaced],
        [reversed, Style { reversed: [true, false], ..plain }, plain],
        [transposed, transposed, transposed],
    ]
}

/// The scalars, the bias and the activation of a product.
#[derive(Clone, Copy, Debug)]
struct Form {
    scaled: [bool; 2],
    bias: Option<BiasShape>,
    activation: Activation,
}

const FORMS: [Form; 4] = [
    Form { scaled: [false; 2], bias: None, activation: Activation::None },
    Form { scaled: [true, false], bias: Some(BiasShape::Row), activation: Activation::None },
    Form { scaled: [true; 2], bias: Some(BiasShape::Column), activation: Activation::Relu },
    Form { scaled: [false, true], bias: None, activation: Activation::Silu },
];

/// Dense values of A, B, C and the bias, row after row; alpha and beta.
struct Values<T: Element> {
    sizes: [usize; 3],
    form: Form,
    a: Vec<T>,
    b: Vec<T>,
    c: Vec<T::Out>,
    bias: Vec<T::Out>,
    alpha: T::Acc,
    beta: T::Acc,
}

impl<T: CpuElement> Values<T> {
    fn new(sizes @ [m, n, k]: [usize; 3], form: Form, random: &mut Random) -> Self {
        let bias = random.vec(form.bias.map_or(0, |along| if along == BiasShape::Row { n } else { m }));
        let (alpha, beta) = (random.scalar(), random.scalar());
        let [alpha, beta] =
            [if form.scaled[0] { alpha } else { T::Acc::ONE }, if form.scaled[1] { beta } else { T::Acc::ZERO }];
        let supported = form.activation.gate().is_none() || T::TYPE.is_float();
        let activation = if supported { form.activation } else { Activation::None };
        let (form, a, b, c) = (Form { activation, ..form }, random.vec(m * k), random.vec(k * n), random.vec(m * n));
        Values { sizes, form, a, b, c, bias, alpha, beta }
    }

    /// The bits of the product with these layouts, in row-major order.
    fn bits(&self, isa: Isa, styles: [Style; 3], batch_invariant: bool) -> Vec<u64> {
        let [m, n, k] = self.sizes;
        let (a_data, a) = placed(&self.a, Shape::new(m, k), styles[0]);
        let (b_data, b) = placed(&self.b, Shape::new(k, n), styles[1]);
        let (mut c_data, c) = placed(&self.c, Shape::new(m, n), styles[2]);
        let (a, b) = (View::strided(&a_data, a).unwrap(), View::strided(&b_data, b).unwrap());
        let bias = self.form.bias.map(|along| match along {
            BiasShape::Row => View::new(&self.bias, 1, n).unwrap(),
            BiasShape::Column => View::new(&self.bias, m, 1).unwrap(),
        });
        let epilogue = EpilogueOperands { bias, activation: self.form.activation };
        let view = ViewMut::strided(&mut c_data, c).unwrap();
        let (alpha, beta) = (self.alpha, self.beta);
        gemm_with_options::<T>(isa, alpha, a, b, beta, view, epilogue, None, None, batch_invariant).unwrap();
        (0..m * n).map(|at| c_data[c.at(0, at / n, at % n)].to_bits()).collect()
    }

    /// Whether the product may read whole columns, unless it is batch-invariant.
    fn has_dot_products(&self, isa: Isa, styles: [Style; 3]) -> bool {
        let [m, n, k] = self.sizes;
        let [a, b, c] =
            [(0, m, k), (1, k, n), (2, m, n)].map(|(i, rows, cols)| styles[i].layout(Shape::new(rows, cols)).0);
        let ([_, a_row, a_col], [_, b_row, b_col]) = (a.strides, b.strides);
        let (sizes, a, b) = match is_transposed(&a, &c) {
            true => ([n, m, k], [b_col, b_row], [a_row, a_col]),
            false => (self.sizes, [a_row, a_col], [b_col, b_row]),
        };
        reads_whole_columns(T::micro_kernel(isa), sizes, a, b)
    }

    /// [`bits`](Self::bits) by `gemm_small`; `None` where it refuses.
    fn short_bits(&self, isa: Isa, styles: [Style; 3]) -> Option<Vec<u64>> {
        let [m, n, k] = self.sizes;
        let (a_data, a) = placed(&self.a, Shape::new(m, k), styles[0]);
        let (b_data, b) = placed(&self.b, Shape::new(k, n), styles[1]);
        let (mut c_data, c) = placed(&self.c, Shape::new(m, n), styles[2]);
        let before = c_data.clone();
        let (a, b) = (View::strided(&a_data, a).unwrap(), View::strided(&b_data, b).unwrap());
        let view = &mut ViewMut::strided(&mut c_data, c).unwrap();
        let taken = gemm_small::<T>(isa, self.alpha, &a, &b, self.beta, view);
        let mut gap = vec![true; c_data.len()];
        (0..m * n).for_each(|at| gap[c.at(0, at / n, at % n)] = false);
        let unchanged = (0..gap.len()).all(|at| taken && !gap[at] || c_data[at] == before[at]);
        assert!(unchanged, "{isa} {} {:?} {styles:?}: taken {taken}", T::TYPE, self.sizes);
        taken.then(|| (0..m * n).map(|at| c_data[c.at(0, at / n, at % n)].to_bits()).collect())
    }

    /// The bits of a chain of multiply-adds in order of k, `None` for a gate.
    fn chain(&self, multiply_add: impl Fn(T::Acc, T::Acc, T::Acc) -> T::Acc) -> Option<Vec<u64>> {
        self.chain_by(|i| i, multiply_add)
    }

    /// [`chain`](Self::chain), where step `i` of an even number of steps is the one at `order(i)`.
    fn chain_by(
        &self,
        order: impl Fn(usize) -> usize,
        multiply_add: impl Fn(T::Acc, T::Acc, T::Acc) -> T::Acc,
    ) -> Option<Vec<u64>> {
        let Values { sizes: [m, n, k], form, .. } = *self;
        let element = |i: usize, j: usize| {
            let steps = (0..k.next_multiple_of(2)).map(&order).filter(|&p| p < k);
            let sum = steps
                .fold(T::Acc::ZERO, |sum, p| multiply_add(self.a[i * k + p].widen(), self.b[p * n + j].widen(), sum));
            let sum = if form.scaled[0] { self.alpha.times(sum) } else { sum };
            let before = T::widen_out(self.c[i * n + j]);
            let sum = if form.scaled[1] { sum.plus(self.beta.times(before)) } else { sum };
            let sum = match form.bias {
                Some(BiasShape::Row) => sum.plus(T::widen_out(self.bias[j])),
                Some(BiasShape::Column) => sum.plus(T::widen_out(self.bias[i])),
                None => sum,
            };
            let cut = form.activation == Activation::Relu && sum < T::Acc::ZERO;
            T::narrow(if cut { T::Acc::ZERO } else { sum }).to_bits()
        };
        form.activation.gate().is_none().then(|| (0..m * n).map(|at| element(at / n, at % n)).collect())
    }
}

/// Memory of a style that holds these values, and its layout.
fn placed<S: Scalar>(values: &[S], shape: Shape, style: Style) -> (Vec<S>, Layout) {
    let (layout, len) = style.layout(shape);
    let mut data = vec![S::ONE; len];
    for (at, &value) in values.iter().enumerate() {
        data[layout.at(0, at / shape.cols, at % shape.cols)] = value;
    }
    (data, layout)
}

/// m, n and k of the test; all of them in the full run, two in Miri, which takes seconds for each
/// product.
fn sizes() -> impl Iterator<Item = [usize; 3]> {
    let all = EXTENTS.into_iter().flat_map(|m| EXTENTS.into_iter().flat_map(move |n| EXTENTS.map(|k| [m, n, k])));
    let stride = if full() { 1 } else { 13 };
    let miri = [[3, 5, 7], [6, 17, 2]].into_iter().take(if cfg!(miri) { 2 } else { 0 });
    all.step_by(stride).take(if cfg!(miri) { 0 } else { usize::MAX }).chain(miri)
}

/// A fused multiply-add, or a product and a sum in plain Rust.
fn float_chain<T: CpuElement<Acc: Float>>(values: &Values<T>, isa: Isa) -> Option<Vec<u64>> {
    let fused = T::micro_kernel_isa(isa) != Isa::Portable;
    values.chain(|a, b, sum| if fused { a.fused(b, sum) } else { a.times(b).plus(sum) })
}

trait Float: Sized {
    fn fused(self, b: Self, sum: Self) -> Self;
}

impl Float for f32 {
    fn fused(self, b: f32, sum: f32) -> f32 {
        self.mul_add(b, sum)
    }
}

impl Float for f64 {
    fn fused(self, b: f64, sum: f64) -> f64 {
        self.mul_add(b, sum)
    }
}

fn check<T: CpuElement>(chain: impl Fn(&Values<T>, Isa) -> Option<Vec<u64>>) {
    let random = &mut Random(17);
    let (mut turn, mut short) = (0, 0);
    // AMX adds pairs of bf16 in an order of its own.
    let isas = instruction_sets().into_iter().filter(|&isa| T::TYPE != Type::BF16 || isa != Isa::Amx);
    let isas: Vec<_> = isas.collect();
    for size in sizes() {
        for &isa in &isas {
            let form = FORMS[turn % FORMS.len()];
            let values = Values::<T>::new(size, form, random);
            let mut want = chain(&values, isa);
            for styles in styles() {
                turn += 1;
                let batch_invariant = turn % 3 == 0;
                let batch_invariant = batch_invariant || values.has_dot_products(isa, styles);
                let bits = values.bits(isa, styles, batch_invariant);
                let want = want.get_or_insert_with(|| bits.clone());
                assert!(bits == *want, "{isa} {} {size:?} {form:?} {styles:?} {batch_invariant}", T::TYPE);
                let plain = values.form.bias.is_none() && values.form.activation == Activation::None;
                if let Some(bits) = plain.then(|| values.short_bits(isa, styles)).flatten() {
                    let of_dot_products = values.has_dot_products(isa, styles).then(|| values.bits(isa, styles, false));
                    let want = of_dot_products.as_ref().unwrap_or(want);
                    assert!(bits == *want, "gemm_small: {isa} {} {size:?} {form:?} {styles:?}", T::TYPE);
                    short += 1;
                }
            }
        }
    }
    let expected = isas.iter().any(|&isa| is_small_unpacked(T::micro_kernel(isa), [1; 3]));
    assert_eq!(short > 0, expected, "{}: {short} by gemm_small", T::TYPE);
}

/// `gemm_small` does not ask for an accumulation, which would be unblocked, or be unpacked where
/// elements of C are narrower.
#[test]
fn small_unpacked_products_are_unblocked() {
    fn one<T: CpuElement>() {
        for isa in instruction_sets() {
            let kernel = T::micro_kernel(isa);
            for [m, n, k] in sizes().chain([[SMALL_EXTENT; 3]]) {
                for (b_row, batch_invariant) in [(n, false), (100_000, true)] {
                    let problem = BlockingProblem {
                        sizes: [m, n, k],
                        scalars: [T::Acc::ONE; 2],
                        a: [1, m as isize],
                        b: [1, b_row as isize],
                        c_col: 1,
                        prepacked: false,
                        // Miri multiplies small products on several threads, to test them.
                        threads: if cfg!(miri) { 1 } else { 64 },
                        batch_invariant,
                    };
                    let accumulation = Accumulation::new(kernel, &problem);
                    let (kc, in_place) = (accumulation.kc, <T::Out as Scalar>::TYPE == T::Acc::TYPE);
                    let as_expected = match in_place {
                        true => accumulation.unblocked,
                        false => {
                            let plan = BlockingPlan::new(kernel, &problem, accumulation);
                            plan.packed == [false; 2] && plan.slices == 1
                        }
                    };
                    let small = is_small_unpacked(kernel, [m, n, k]);
                    assert!(!small || as_expected && k <= kc, "{isa} {} {m} {n} {k}", T::TYPE);
                }
            }
        }
    }
    for_every_type!(one);
}

/// `gemm_small` leaves products alone that are not small.
#[test]
fn products_that_are_not_small_are_left_alone() {
    let data = vec![1f32; 65 * 65];
    for (a, b, c) in [
        ([65, 2], [2, 2], [65, 2]),
        ([2, 65], [65, 2], [2, 2]),
        ([2, 2], [2, 65], [2, 65]),
        ([2, 3], [2, 3], [2, 3]),
        ([2, 3], [3, 4], [4, 2]),
        ([2, 0], [0, 2], [2, 2]),
    ] {
        let view = |[rows, cols]: [usize; 2]| View::new(&data[..rows * cols], rows, cols).unwrap();
        let mut before = vec![7f32; c[0] * c[1]];
        let mut c = ViewMut::new(&mut before, c[0], c[1]).unwrap();
        for isa in instruction_sets() {
            assert!(!gemm_small::<f32>(isa, 1.0, &view(a), &view(b), 0.0, &mut c), "{a:?} {b:?}");
        }
        assert!(before.iter().all(|&x| x == 7.0));
    }
    let (one, mut c) = (View::new(&data[..4], 2, 2).unwrap(), [7f32; 4]);
    assert!(!gemm_small::<f32>(Isa::Portable, 0.0, &one, &one, 0.0, &mut ViewMut::new(&mut c, 2, 2).unwrap()));
    let batch = Shape { batches: 2, rows: 1, cols: 2 };
    let two = View::row_major(&data[..4], batch).unwrap();
    let mut view = ViewMut::row_major(&mut c, batch).unwrap();
    assert!(!gemm_small::<f32>(Isa::Portable, 1.0, &two, &one, 0.0, &mut view));
    assert_eq!(c, [7.0; 4]);
}

/// No stride of a single row is used, so that it may overflow.
#[test]
fn a_single_row_has_any_stride() {
    fn one<T: CpuElement>() {
        let (a, b) = (vec![T::ONE; 70], vec![T::ONE; 70 * 3]);
        for (k, isa) in [8, 64, 70].into_iter().flat_map(|k| instruction_sets().into_iter().map(move |isa| (k, isa))) {
            let row = |cols| Layout { shape: Shape::new(1, cols), offset: 0, strides: [0, isize::MAX, 1] };
            let mut values = [T::Out::ZERO; 3];
            let a = View::strided(&a[..k], row(k)).unwrap();
            let (b, c) = (View::new(&b[..3 * k], k, 3).unwrap(), ViewMut::strided(&mut values, row(3)).unwrap());
            let (one, zero, none) = (T::Acc::ONE, T::Acc::ZERO, EpilogueOperands::default());
            gemm_with_options::<T>(isa, one, a, b, zero, c, none, None, None, false).unwrap();
            let sum = T::narrow((0..k).fold(zero, |sum, _| sum.plus(one)));
            assert_eq!(values.map(Scalar::to_bits), [sum.to_bits(); 3], "{isa} {} {k}", T::TYPE);
        }
    }
    for_every_type!(one);
}

#[test]
fn small_products_of_floats_add_in_order() {
    check::<f32>(float_chain);
    check::<f64>(float_chain);
    // Every product of 16-bit floats is exact in f32, fused or not.
    check::<f16>(|values, _| values.chain(|a, b, sum| a * b + sum));
    check::<bf16>(|values, isa| {
        let pairs = bf16::micro_kernel_isa(isa) == Isa::Avx512Bf16;
        values.chain_by(|i| if pairs { i ^ 1 } else { i }, |a, b, sum| a * b + sum)
    });
}

#[test]
fn small_products_of_integers_are_exact() {
    check::<i32>(|values, _| values.chain(|a, b, sum| a.wrapping_mul(b).wrapping_add(sum)));
    check::<i8>(|values, _| values.chain(|a, b, sum| a.wrapping_mul(b).wrapping_add(sum)));
}

/// In a row of calls the first has one thread, and others share their rows.
#[test]
#[cfg_attr(miri, ignore = "large products")]
fn products_in_a_row_have_the_same_bits() {
    fn one<T: CpuElement>() {
        let (random, plain) = (&mut Random(23), Style::default());
        let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        for (sizes, b) in
            [([64, 64, 64], plain), ([61, 59, 64], plain), ([64, 63, 64], Style { transposed: true, ..plain })]
        {
            let values = Values::<T>::new(sizes, FORMS[0], random);
            for isa in instruction_sets() {
                let bits = || values.short_bits(isa, [plain, b, plain]);
                let alone = pool.install(bits);
                for call in 0..30 {
                    assert!(bits() == alone, "{isa} {} {sizes:?}, call {call}", T::TYPE);
                }
            }
        }
    }
    for_every_type!(one);
}

/// Each product of a batch, on however many threads, has the bits of the product alone.
#[test]
#[cfg_attr(miri, ignore = "starts many threads")]
fn small_products_of_a_batch_are_those_alone() {
    let (batches, [m, n, k], random) = (300, [17, 24, 33], &mut Random(19));
    let (a, b) = (random.vec::<f32>(batches * m * k), random.vec::<f32>(batches * k * n));
    let shape = |rows, cols| Shape { batches, rows, cols };
    for isa in instruction_sets() {
        let mut alone = vec![0f32; batches * m * n];
        for ((a, b), c) in a.chunks(m * k).zip(b.chunks(k * n)).zip(alone.chunks_mut(m * n)) {
            let (a, b, c) = (View::new(a, m, k), View::new(b, k, n), ViewMut::new(c, m, n));
            let (a, b, c) = (a.unwrap(), b.unwrap(), c.unwrap());
            gemm_with_options::<f32>(isa, 0.5, a, b, 0.0, c, EpilogueOperands::default(), None, None, false).unwrap();
        }
        for threads in [1, 2, 7, 64] {
            let mut together = vec![1f32; batches * m * n];
            let (a, b) = (View::row_major(&a, shape(m, k)).unwrap(), View::row_major(&b, shape(k, n)).unwrap());
            let c = ViewMut::row_major(&mut together, shape(m, n)).unwrap();
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let options = EpilogueOperands::default();
            pool.install(|| gemm_with_options::<f32>(isa, 0.5, a, b, 0.0, c, options, None, None, false)).unwrap();
            assert!(together == alone, "{isa}, {threads} threads");
        }
    }
}
