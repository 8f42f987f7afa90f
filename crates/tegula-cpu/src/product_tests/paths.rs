//! Products of every path, on any number of threads: their bits are the same.

use super::*;
use crate::way::{Question, Way};

/// Batches, sizes m, n and k, and whether A, B and C are transposed.
type Case = (usize, [usize; 3], [bool; 3]);

/// Whole tiles over and over, B transposed, few rows, one row, one column, slices of a long k, a short k, columns of A that are far apart, transposed C,
/// several blocks, and many small products. Those of 16-bit types are summed in strips, or beside C.
const CASES: [Case; 11] = [
    (1, [331, 331, 331], [false, false, false]),
    (1, [331, 329, 200], [false, true, false]),
    (1, [7, 1031, 700], [false, false, false]),
    (1, [1, 2049, 2100], [false, false, false]),
    (1, [2049, 1, 2100], [false, false, false]),
    (1, [40, 50, 9001], [false, true, false]),
    (1, [701, 703, 9], [false, false, false]),
    (1, [700, 331, 40], [true, false, false]),
    (1, [300, 310, 70], [false, false, true]),
    (1, [5, 4001, 300], [false, true, false]),
    (40, [41, 43, 37], [false, false, false]),
];

/// How A, B and C lie, and how many elements they are.
fn layouts((batches, [m, n, k], transposed): Case) -> [(Layout, usize); 3] {
    let shapes = [(m, k), (k, n), (m, n)].map(|(rows, cols)| Shape { batches, rows, cols });
    std::array::from_fn(|i| Style { transposed: transposed[i], ..Style::default() }.layout(shapes[i]))
}

/// Bits, not just bounds: the same sums in the same order.
#[test]
#[cfg_attr(miri, ignore = "takes hours")]
fn the_number_of_threads_changes_nothing() {
    fn one<T: Element>(case: Case) {
        let (random, [(a, a_len), (b, b_len), (c, c_len)]) = (&mut Random(3), layouts(case));
        let (a_data, b_data, before) = (random.vec::<T>(a_len), random.vec::<T>(b_len), random.vec::<T::Out>(c_len));
        let (a, b) = (View::strided(&a_data, a).unwrap(), View::strided(&b_data, b).unwrap());
        let (alpha, beta) = (random.scalar(), random.scalar());
        for isa in instruction_sets() {
            for beta in [T::Acc::ZERO, beta] {
                let product = || {
                    let mut after = before.clone();
                    let c = ViewMut::strided(&mut after, c).unwrap();
                    gemm_told::<T>(isa, alpha, a, b, beta, c, Finish::default(), None, None).unwrap();
                    after.into_iter().map(Scalar::to_bits).collect::<Vec<_>>()
                };
                let on =
                    |threads| rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap().install(product);
                let alone = on(1);
                assert!([2, 3, 7].into_iter().all(|threads| on(threads) == alone), "{isa} {} {case:?}", T::TYPE);
                // By a caller outside the pool, whose threads come and go.
                assert!(product() == alone, "{isa} {} {case:?} from outside", T::TYPE);
            }
        }
    }
    for case in CASES {
        for_every_type!(one, case);
    }
}

/// Else the test above says less than it seems to.
#[test]
fn every_way_is_among_the_cases() {
    fn one<T: Operand>(case: Case, ways: &mut Vec<Way>) {
        let (_, sizes, _) = case;
        let [a, b, c] = layouts(case).map(|(layout, _)| layout.strides);
        let [alpha, beta] = [T::Acc::ONE, T::Acc::ZERO];
        for isa in instruction_sets().into_iter().filter(|_| c[2] == 1) {
            for (factors, threads) in [([alpha, beta], 1), ([alpha, alpha], 1), ([alpha, alpha], 4)] {
                let asked =
                    Question { sizes, factors, a: [a[1], a[2]], b: [b[2], b[1]], c_col: c[2], panels: false, threads };
                ways.push(Way::of::<T>(&T::tiles(isa), &asked));
            }
        }
    }
    let mut ways = Vec::new();
    for case in CASES {
        for_every_type!(one, case, &mut ways);
    }
    let some = |name: &str, is_one: fn(&Way) -> bool| assert!(ways.iter().any(is_one), "none is {name}");
    some("plain", Way::is_plain);
    some("unpacked on threads", |way| way.packed == [false; 2] && way.threads > 1);
    some("with B packed", |way| way.packed == [false, true]);
    some("with A and B packed", |way| way.packed == [true; 2]);
    some("sliced", |way| way.slices > 1);
    some("of strips", |way| way.strips);
    some("summed in C", |way| way.in_place && way.packed[1]);
    some("summed beside C", |way| !way.in_place && !way.strips);
    some("cut downwards", |way| way.cut[0] > 1);
    some("cut sideways", |way| way.cut[1] > 1);
    some("of several blocks", |way| way.block[1] < 4001 && way.block[1] > 3000);
}
