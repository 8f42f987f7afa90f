//! Products of every blocking: the bits of the result are independent of the number of threads.

use super::*;
use crate::accumulation::Accumulation;
use crate::blocking::BlockingPlan;
use crate::caches::Caches;
use crate::problem::BlockingProblem;
use crate::unpacked::BReads;

/// Batches, sizes m, n and k, and whether A, B and C are transposed.
type Case = (usize, [usize; 3], [bool; 3]);

/// Cases for every blocking plan.
///
/// In order: many full micro-tiles, B transposed, few rows, one row, one column, slices of a long
/// k. Then a short k, distant columns of A, transposed C, several blocks, several rounds of
/// packing, many small products, slices of rows that are not quite few, three rows, and dot
/// products, whole, sliced, and of several micro-tiles of rows. Last, distant columns of A with
/// several steps of k. Accumulators of 16-bit types are in strips, or in a workspace.
const CASES: [Case; 18] = [
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
    (1, [250, 1500, 1100], [true, false, false]),
    (40, [41, 43, 37], [false, false, false]),
    (1, [60, 260, 3000], [false, false, false]),
    (1, [3, 1031, 700], [false, false, false]),
    (1, [2, 1031, 2100], [false, true, false]),
    (1, [2, 120, 9001], [false, true, false]),
    (1, [13, 70, 1300], [false, true, false]),
    (1, [520, 260, 1100], [true, false, false]),
];

/// Layouts of A, B and C, and their lengths in elements.
fn layouts((batches, [m, n, k], transposed): Case) -> [(Layout, usize); 3] {
    let shapes = [(m, k), (k, n), (m, n)].map(|(rows, cols)| Shape { batches, rows, cols });
    std::array::from_fn(|i| Style { transposed: transposed[i], ..Style::default() }.layout(shapes[i]))
}

/// Bits, not just error bounds: products are added in the same order.
#[test]
#[ignore = "long; .ci/run runs it"]
#[cfg_attr(miri, ignore = "takes hours")]
fn bits_are_independent_of_the_number_of_threads() {
    fn one<T: Element>(case: Case, pools: &[rayon::ThreadPool], turn: &mut usize) {
        let (random, [(a, a_len), (b, b_len), (c, c_len)]) = (&mut Random(3), layouts(case));
        let (a_data, b_data, before) = (random.vec::<T>(a_len), random.vec::<T>(b_len), random.vec::<T::Out>(c_len));
        let (a, b) = (View::strided(&a_data, a).unwrap(), View::strided(&b_data, b).unwrap());
        let (alpha, beta) = (random.scalar(), random.scalar());
        for isa in instruction_sets() {
            *turn += 1;
            for (_, beta) in [T::Acc::ZERO, beta].into_iter().enumerate().filter(|(i, _)| full() || *i == *turn % 2) {
                let product = || {
                    let mut after = before.clone();
                    let c = ViewMut::strided(&mut after, c).unwrap();
                    gemm_with_options::<T>(isa, alpha, a, b, beta, c, EpilogueOperands::default(), None, None, false)
                        .unwrap();
                    after.into_iter().map(Scalar::to_bits).collect::<Vec<_>>()
                };
                let alone = pools[0].install(product);
                // The larger pools, and a caller outside any pool, whose workers spin and park.
                let quick = *turn % pools.len();
                for at in if full() { 0..pools.len() } else { quick..quick + 1 } {
                    let other = if at == 0 { product() } else { pools[at].install(product) };
                    let threads = if at == 0 { "outside".into() } else { pools[at].current_num_threads().to_string() };
                    assert!(other == alone, "{isa} {} {case:?}, threads: {threads}", T::TYPE);
                }
            }
        }
    }
    let counts: &[usize] = if full() { &[1, 2, 3, 7, 16, 64] } else { &[1, 3, 16] };
    let pool = |threads: &usize| rayon::ThreadPoolBuilder::new().num_threads(*threads).build().unwrap();
    let pools: Vec<_> = counts.iter().map(pool).collect();
    // The quick run compares with one of them in turn, with one beta in turn, so that each case,
    // type and instruction set meets others. The full run adds the other pairs.
    for (mut turn, case) in CASES.into_iter().enumerate() {
        for_every_type!(one, case, &pools, &mut turn);
    }
}

/// The test above relies on these cases.
#[test]
fn cases_cover_every_blocking_plan() {
    fn one<T: CpuElement>(case: Case, plans: &mut Vec<BlockingPlan>, unblocked: &mut Vec<bool>) {
        let (_, sizes, _) = case;
        let [a, b, c] = layouts(case).map(|(layout, _)| layout.strides);
        let [alpha, beta] = [T::Acc::ONE, T::Acc::ZERO];
        for isa in instruction_sets().into_iter().filter(|_| c[2] == 1) {
            for (scalars, threads) in [([alpha, beta], 1), ([alpha, alpha], 1), ([alpha, alpha], 4)] {
                let problem = BlockingProblem {
                    batch_invariant: false,
                    sizes,
                    scalars,
                    a: [a[1], a[2]],
                    b: [b[2], b[1]],
                    c_col: c[2],
                    prepacked: false,
                    threads,
                };
                let kernel = T::micro_kernel(isa);
                let accumulation = Accumulation::new(kernel, &problem);
                match accumulation.unblocked {
                    true => unblocked.push(sizes[2] > accumulation.kc),
                    false => plans.push(BlockingPlan::new(kernel, &problem, accumulation)),
                }
            }
        }
    }
    let (mut plans, mut unblocked) = (Vec::new(), Vec::new());
    for case in CASES {
        for_every_type!(one, case, &mut plans, &mut unblocked);
    }
    assert!(unblocked.contains(&true) && unblocked.contains(&false), "unblocked, of several steps and of one");
    let covered =
        |name: &str, is_one: fn(&BlockingPlan) -> bool| assert!(plans.iter().any(is_one), "no case is {name}");
    covered("unpacked and parallel", |plan| plan.packed == [false; 2] && plan.grid.threads > 1);
    covered("with B packed", |plan| plan.packed == [false, true]);
    covered("with A and B packed", |plan| plan.packed == [true; 2]);
    covered("with A packed by each macro tile", |plan| plan.own_a && plan.grid.threads > 1);
    covered("with A packed by each macro tile, of several steps", |plan| plan.own_a && plan.round_steps > 1);
    covered("with A packed before", |plan| plan.packs_a_first());
    covered("sliced", |plan| plan.slices > 1);
    covered("in strips", |plan| plan.row_strips);
    covered("in place", |plan| plan.in_place && plan.packed[1]);
    covered("in a workspace", |plan| !plan.in_place && !plan.row_strips);
    covered("split along rows", |plan| plan.grid.tiles[0] > 1);
    covered("split along columns", |plan| plan.grid.tiles[1] > 1);
    covered("with shared panels of B", |plan| plan.packed == [false, true] && plan.grid.shared_b);
    covered("of several rounds", |plan| {
        plan.round_steps * plan.kc < 1100 && plan.grid.shared_b && plan.packs_a_first()
    });
    covered("unpacked with prefetches, or the CPU needs none", |plan| {
        plan.b_reads == BReads::Prefetched || !Caches::detect().need_prefetch
    });
    covered("along k", |plan| plan.along_k);
    covered("along k and sliced", |plan| plan.along_k && plan.slices > 1);
    if Isa::Avx2.is_available() {
        covered("unpacked by whole rows", |plan| plan.b_reads == BReads::WholeRows);
        covered("unpacked by whole columns", |plan| {
            matches!(plan.b_reads, BReads::WholeColumns(_)) && plan.slices == 1
        });
        covered("sliced, by whole columns", |plan| matches!(plan.b_reads, BReads::WholeColumns(_)) && plan.slices > 1);
    }
    if Isa::Avx512.is_available() {
        covered("packed by first rows", |plan| plan.first_rows.is_some() && plan.slices == 1);
        covered("packed by first rows, and A by macro tiles", |plan| plan.first_rows.is_some() && plan.own_a);
        covered("packed by first rows and sliced", |plan| plan.first_rows.is_some() && plan.slices > 1);
    }
    covered("of several blocks", |plan| plan.block[1] < 4001 && plan.block[1] > 3000);
}

/// Threads do not pack long rows of A each for itself.
#[test]
fn workspaces_of_long_rows_fit_in_memory() {
    fn one<T: CpuElement>() {
        let (sizes @ [_, _, k], one) = ([16, 4096, 1 << 20], T::Acc::ONE);
        for (isa, batch_invariant) in instruction_sets().into_iter().flat_map(|isa| [(isa, false), (isa, true)]) {
            let problem = BlockingProblem {
                batch_invariant,
                sizes,
                scalars: [one, T::Acc::ZERO],
                a: [k as isize, 1],
                b: [k as isize, 1],
                c_col: 1,
                prepacked: false,
                threads: 128,
            };
            let kernel = T::micro_kernel(isa);
            let plan = BlockingPlan::new(kernel, &problem, Accumulation::new(kernel, &problem));
            let values: usize =
                plan.workspace_extents(kernel, sizes).iter().map(|extents| extents.iter().product::<usize>()).sum();
            assert!(values < 1 << 28, "{isa} {}: {values} values", T::TYPE);
        }
    }
    for_every_type!(one);
}
