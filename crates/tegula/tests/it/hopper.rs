//! Hopper features in the interpreter: a warp-specialized product, with one producer and two
//! consumer warpgroups, alone and in clusters, is correct without findings on every seed. Each
//! injected bug is found on every seed.

use tegula::element::{Type, bf16};
use tegula::interpret;
use tegula::{Layout, Matrix, Shape};
use tegula_interp::{Arg, Buffer, Config, Finding, FindingKind, Outcome, Severity, run};
use tegula_ir::prelude::*;

use crate::effort::seeds;
use crate::product::Random;

const M: u32 = 128;
const N: u32 = 64;
const K: u32 = 64;
/// Schedule seeds of the full run.
const SEEDS: u64 = 32;

/// A bug to inject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Bug {
    None,
    /// Consumers wait for the previous phase.
    WaitsOnePhaseEarly,
    ExpectsFewerBytes,
    ExpectsOneTileOfTwo,
    ExpectsMoreBytes,
    NoProxyFence,
    MisalignedTmaStore,
    ProxyFenceAfterBarrier,
    NoWgmmaWait,
    NoWgmmaFence,
    ReleasesStageEarly,
    NoFirstClusterBarrier,
    NoLastClusterBarrier,
    TooManyRegisters,
    InitWithFewerArrivals,
    InitWithMoreArrivals,
    NoInitFence,
    NoBlockBarrier,
    NoBulkReadWait,
    NoBulkReadWaitAtEnd,
    NoBulkCommit,
    NoEmptyBarrierWait,
    InitializesTwice,
    NoGriddepWaitInProducer,
    /// Bugs of clusters.
    LoadsOneHalfTwice,
    NoMulticast,
    ReleasesOwnBlockOnly,
}

#[derive(Clone, Copy, Debug)]
struct Gemm {
    stages: u32,
    /// Blocks of a cluster, which share tiles of B by multicast.
    cluster: u32,
    bug: Bug,
    /// Whether `stmatrix` stores the accumulators.
    store_matrix: bool,
}

const PLAIN: Gemm = Gemm { stages: 2, cluster: 1, bug: Bug::None, store_matrix: false };
const CLUSTER: Gemm = Gemm { cluster: 2, stages: 3, store_matrix: true, ..PLAIN };

impl Gemm {
    /// C = A·Bᵀ: A is m×k, B is n×k, C is m×n. One warpgroup is the producer, two consumers compute
    /// 64 rows each. The blocks of a cluster compute vertically adjacent tiles of C, and each
    /// multicasts its half of B's tile.
    fn build(self) -> Kernel {
        let Gemm { stages, cluster, bug, store_matrix } = self;
        let is = |other| bug == other;
        kernel("hopper", Block::d1(384), |k| {
            k.min_blocks(1);
            k.cluster(cluster);
            let tiles = |rows, cols| Tiles { rows, cols, swizzle: Swizzle::B128, clipped: false };
            let a = k.tensor::<bf16>("a", Access::Read, Order2d::RowMajor, tiles(M, K));
            let b = k.tensor::<bf16>("b", Access::Read, Order2d::RowMajor, tiles(N / cluster, K));
            let c = k.tensor::<bf16>("c", Access::Write, Order2d::RowMajor, tiles(64, N));
            let (tile_rows, tile_cols) = (c.rows().div_ceil(M * cluster), c.cols().div_ceil(N));
            let k_tiles = a.cols().div_ceil(K);
            k.grid([k.constant(2 * cluster), k.constant(1), k.constant(1)]);
            let a_tiles = k.tiles::<bf16>("a_tiles", stages, [M, K], Swizzle::B128);
            let b_tiles = k.tiles::<bf16>("b_tiles", stages, [N, K], Swizzle::B128);
            let c_tiles = k.tiles::<bf16>("c_tiles", 2, [64, N], Swizzle::B128);
            let (full, empty) = (k.mbarriers("full", stages), k.mbarriers("empty", stages));
            let rank = k.cluster_rank();

            k.when(k.thread_x().eq(0), || {
                let consumers = 8 * cluster;
                let arrivals = match bug {
                    Bug::InitWithFewerArrivals => consumers - 1,
                    Bug::InitWithMoreArrivals => consumers + 1,
                    Bug::ReleasesOwnBlockOnly => 8,
                    _ => consumers,
                };
                for stage in 0..stages {
                    full.init(stage, 1);
                    empty.init(stage, arrivals);
                }
                if !is(Bug::NoInitFence) {
                    k.fence_mbarrier_init();
                }
            });
            if is(Bug::InitializesTwice) {
                k.when(k.thread_x().eq(32), || full.init(0, 1));
            }
            if !is(Bug::NoBlockBarrier) {
                k.barrier();
            }
            if cluster > 1 && !is(Bug::NoFirstClusterBarrier) {
                k.cluster_arrive();
                k.cluster_wait();
            }

            k.griddep_launch_dependents();
            match bug {
                Bug::NoGriddepWaitInProducer => k.when(k.thread_x().ge(128), || k.griddep_wait()),
                _ => k.griddep_wait(),
            }

            let group = k.warpgroup();
            k.if_else(
                group.eq(0),
                || {
                    k.setmaxnreg_dec(40);
                    k.when(k.thread_x().eq(0), || {
                        let (stage, phase) = (k.var(0u32), k.var(0u32));
                        for_each_tile(k, [tile_rows, tile_cols], cluster, |row, col| {
                            k.for_each(0, k_tiles, |k_tile| {
                                let index = stage.get();
                                if !is(Bug::NoEmptyBarrierWait) {
                                    empty.wait(index, phase.get() ^ 1);
                                }
                                let bytes = 2 * (M + N) * K;
                                full.arrive_expect_tx(
                                    index,
                                    match bug {
                                        Bug::ExpectsFewerBytes => bytes - 256,
                                        Bug::ExpectsOneTileOfTwo => 2 * M * K,
                                        Bug::ExpectsMoreBytes => bytes + 256,
                                        _ => bytes,
                                    },
                                );
                                let barrier = (full, index);
                                a_tiles.tma_load(index, a, (row, k_tile * K), barrier);
                                let half = N / cluster;
                                let blocks = match bug {
                                    Bug::NoMulticast => k.constant(1u32) << rank,
                                    _ => k.constant((1 << cluster) - 1),
                                };
                                let first = if is(Bug::LoadsOneHalfTwice) { k.constant(0) } else { rank * half };
                                let (to, at) = ((index, first), (col + first, k_tile * K));
                                b_tiles.tma_load_multicast(to, b, at, barrier, (cluster > 1).then_some(blocks));
                                advance(k, stage, phase, stages);
                            });
                        });
                    });
                },
                || {
                    k.setmaxnreg_inc(if is(Bug::TooManyRegisters) { 240 } else { 232 });
                    let (stage, phase) = (k.var(0u32), k.var(0u32));
                    let accumulators = k.array::<f32>(N / 2);
                    let first = group - 1;
                    let lane = k.thread_x() % 128;
                    for_each_tile(k, [tile_rows, tile_cols], cluster, |row, col| {
                        (0..accumulators.len()).for_each(|i| accumulators.at(i).set(0.0));
                        k.for_each(0, k_tiles, |k_tile| {
                            let index = stage.get();
                            full.wait(index, if is(Bug::WaitsOnePhaseEarly) { phase.get() ^ 1 } else { phase.get() });
                            if !is(Bug::NoWgmmaFence) {
                                k.wgmma_fence();
                            }
                            for inner in (0..K).step_by(16) {
                                let a_operand = a_tiles.wgmma_operand((index, first * 64, inner), true);
                                let b_operand = b_tiles.wgmma_operand((index, 0, inner), true);
                                let add = k_tile.ne(0) | k.constant(inner != 0);
                                k.wgmma(Wgmma { ty: Type::BF16, n: N }, a_operand, b_operand, accumulators, add);
                            }
                            k.wgmma_commit_group();
                            let release = || {
                                if cluster == 1 || is(Bug::ReleasesOwnBlockOnly) {
                                    k.when(k.is_first_lane(), || empty.arrive(index));
                                } else {
                                    k.when(k.lane().lt(cluster), || empty.arrive_remote(index, k.lane()));
                                }
                            };
                            if is(Bug::ReleasesStageEarly) {
                                release();
                            }
                            if !is(Bug::NoWgmmaWait) {
                                k.wgmma_wait_group(0);
                            }
                            if !is(Bug::ReleasesStageEarly) {
                                release();
                            }
                            advance(k, stage, phase, stages);
                        });
                        k.when(lane.eq(0), || {
                            if !is(Bug::NoBulkReadWait) {
                                k.bulk_wait_group_read(0);
                            }
                        });
                        for named in [1, 2] {
                            k.when(group.eq(named), || k.named_barrier(named, 128));
                        }
                        store_accumulators(k, c_tiles, accumulators, first, store_matrix);
                        if !matches!(bug, Bug::NoProxyFence | Bug::ProxyFenceAfterBarrier) {
                            k.fence_proxy_async();
                        }
                        for named in [1, 2] {
                            k.when(group.eq(named), || k.named_barrier(named, 128));
                        }
                        if is(Bug::ProxyFenceAfterBarrier) {
                            k.fence_proxy_async();
                        }
                        k.when(lane.eq(0), || {
                            let misalignment = u32::from(is(Bug::MisalignedTmaStore));
                            c_tiles.tma_store(first, c, (row + first * 64, col + misalignment));
                            if !is(Bug::NoBulkCommit) {
                                k.bulk_commit_group();
                            }
                        });
                    });
                    k.when(lane.eq(0), || {
                        if !is(Bug::NoBulkReadWaitAtEnd) {
                            k.bulk_wait_group_read(0);
                        }
                    });
                },
            );
            if cluster > 1 && !is(Bug::NoLastClusterBarrier) {
                k.cluster_arrive();
                k.cluster_wait();
            }
        })
    }
}

/// Loops over the tiles of C of the block, with the first row and column of each.
fn for_each_tile<'k>(
    k: &'k Builder,
    [tile_rows, tile_cols]: [Val<'k, u32>; 2],
    cluster: u32,
    body: impl FnOnce(Val<'k, u32>, Val<'k, u32>),
) {
    k.for_step(k.cluster_x(), tile_rows * tile_cols, 2, |tile| {
        body((tile / tile_cols * cluster + k.cluster_rank()) * M, tile % tile_cols * N);
    });
}

fn advance<'k>(k: &'k Builder, stage: Var<'k, u32>, phase: Var<'k, u32>, stages: u32) {
    let next = stage.get() + 1;
    phase.set(phase.get() ^ next.eq(stages).select(1u32, 0u32));
    stage.set(next.eq(stages).select(k.constant(0u32), next));
}

/// Stores the rounded accumulators of the warpgroup to its tile.
fn store_accumulators<'k>(
    k: &'k Builder,
    c_tiles: Shared<'k, bf16>,
    accumulators: Array<'k, f32>,
    tile: Val<'k, u32>,
    store_matrix: bool,
) {
    let (lane, warp) = (k.lane(), k.warp() % 4);
    if !store_matrix {
        for i in 0..accumulators.len() {
            // Layout of `Wgmma::accumulator`.
            let row = warp * 16 + lane / 4 + 8 * (i % 4 / 2);
            let col = lane % 4 * 2 + (i / 4 * 8 + i % 2);
            c_tiles.store((tile, row, col), accumulators.at(i).get().to::<bf16>());
        }
        return;
    }
    let pair = |i: u32| {
        let [low, high] = [i, i + 1].map(|i| accumulators.at(i).get().to::<bf16>());
        pack(low, high)
    };
    for i in (0..accumulators.len()).step_by(8) {
        let matrices = [pair(i), pair(i + 2), pair(i + 4), pair(i + 6)];
        let (row, col) = (warp * 16 + lane % 16, lane / 16 * 8 + i / 4 * 8);
        c_tiles.store_matrix((tile, row, col), matrices, false);
    }
}

/// Packs two numbers in a register: a bf16 is the upper half of an f32.
fn pack<'k>(low: Val<'k, bf16>, high: Val<'k, bf16>) -> Val<'k, u32> {
    (low.to::<f32>().bitcast::<u32>() >> 16) | high.to::<f32>().bitcast::<u32>()
}

struct Operands {
    a: Matrix<bf16>,
    b: Matrix<bf16>,
    c: Vec<bf16>,
}

impl Operands {
    /// Random small multiples of 1/8, so that sums are exact.
    fn new([m, n, k]: [usize; 3]) -> Self {
        let mut random = Random((m << 20 | n << 10 | k) as u64);
        let mut eighths = |len: usize| (0..len).map(|_| random.below(17) as f32 / 8.0 - 1.0).collect::<Vec<_>>();
        let (a, b) = (eighths(m * k), eighths(n * k));
        let dot = |(x, y): (&[f32], &[f32])| x.iter().zip(y).map(|(x, y)| x * y).sum::<f32>();
        let pairs = a.chunks(k).flat_map(|x| b.chunks(k).map(move |y| (x, y)));
        let c = pairs.map(|pair| bf16::from_f32(dot(pair))).collect();
        let matrix = |rows, values: Vec<f32>| {
            Matrix::from_vec(rows, k, values.into_iter().map(bf16::from_f32).collect()).unwrap()
        };
        Operands { a: matrix(m, a), b: matrix(n, b), c }
    }

    fn run(&self, kernel: &Checked<Kernel>, config: &Config) -> (Outcome, Matrix<bf16>) {
        let (m, n) = (self.a.shape().rows, self.b.shape().rows);
        let (a, b) = (interpret::input(self.a.view()).unwrap(), interpret::input(self.b.view()).unwrap());
        let c = Buffer::output(Type::BF16, Layout::row_major(Shape::new(m, n)).unwrap()).unwrap();
        let outcome = run(kernel, &[Arg::from(&a), Arg::from(&b), Arg::from(&c)], config).unwrap();
        (outcome, interpret::to_matrix(&c).unwrap())
    }
}

fn errors(outcome: &Outcome) -> Vec<&Finding> {
    outcome.findings.iter().filter(|f| f.severity() == Severity::Error).collect()
}

fn messages(outcome: &Outcome) -> String {
    errors(outcome).iter().map(|f| format!("\n{f}")).collect()
}

fn assert_clean(gemm: Gemm, sizes: [usize; 3], max_seeds: u64) {
    let (kernel, operands) = (check(gemm.build()).unwrap(), Operands::new(sizes));
    for seed in 0..seeds(1, max_seeds) {
        let (outcome, c) = operands.run(&kernel, &Config { seed, parallel: seed % 2 == 0, ..Config::default() });
        assert!(outcome.findings.is_empty(), "seed {seed}: {:#?}", outcome.findings);
        assert_eq!(c.into_vec(), operands.c, "seed {seed}");
    }
}

/// Checks that every seed finds an error of one of the kinds, and some seed one of the first kind.
fn assert_finds(gemm: Gemm, kinds: &[FindingKind], message: &str) {
    let (kernel, operands) = (check(gemm.build()).unwrap(), Operands::new([256, 128, 256]));
    let (mut first, mut has_message, mut last) = (false, false, String::new());
    for seed in 0..seeds(3, SEEDS) {
        let outcome = operands.run(&kernel, &Config { seed, counters: false, ..Config::default() }).0;
        let found = errors(&outcome);
        assert!(found.iter().any(|f| kinds.contains(&f.kind)), "{gemm:?}, seed {seed}: {}", messages(&outcome));
        first |= found.iter().any(|f| f.kind == kinds[0]);
        has_message |= found.iter().any(|f| f.message.contains(message));
        last = messages(&outcome);
    }
    assert!(first && has_message, "{gemm:?}: {last}");
}

#[test]
fn products_are_correct_without_findings() {
    assert_clean(PLAIN, [256, 128, 256], SEEDS);
    assert_clean(PLAIN, [128, 64, 64], SEEDS);
}

#[test]
fn ragged_products_are_correct_without_findings() {
    assert_clean(Gemm { stages: 3, store_matrix: true, ..PLAIN }, [200, 72, 136], SEEDS);
    assert_clean(PLAIN, [1, 8, 8], SEEDS);
    assert_clean(PLAIN, [129, 136, 8], SEEDS);
}

#[test]
fn cluster_products_are_correct_without_findings() {
    assert_clean(CLUSTER, [512, 128, 256], SEEDS);
    assert_clean(CLUSTER, [300, 72, 200], SEEDS);
}

#[test]
fn findings_and_counters_do_not_depend_on_parallelism() {
    let (kernel, operands) = (check(CLUSTER.build()).unwrap(), Operands::new([300, 72, 200]));
    let of = |parallel| {
        let (outcome, c) = operands.run(&kernel, &Config { parallel, ..Config::default() });
        (outcome.findings, outcome.counters, c)
    };
    assert_eq!(of(true), of(false));
}

#[test]
fn multiply_adds_are_counted() {
    let (kernel, operands) = (check(PLAIN.build()).unwrap(), Operands::new([256, 128, 256]));
    let outcome = operands.run(&kernel, &Config::default()).0;
    assert_eq!(outcome.counters.fma, 256 * 128 * 256);
    assert_eq!(outcome.counters.flops, 2 * 256 * 128 * 256);
}

macro_rules! bug_tests {
    ($($name:ident: $gemm:expr, $bug:ident, $kinds:expr, $message:expr;)*) => {$(
        #[test]
        fn $name() {
            assert_finds(Gemm { bug: Bug::$bug, ..$gemm }, &$kinds, $message);
        }
    )*};
}

bug_tests! {
    consumer_waiting_one_phase_early_is_found: PLAIN, WaitsOnePhaseEarly, [FindingKind::InFlight, FindingKind::Uninitialized, FindingKind::Deadlock], "is in flight; wait for its barrier first";
    producer_expecting_fewer_bytes_is_found: PLAIN, ExpectsFewerBytes, [FindingKind::Deadlock], "256 bytes more than expected";
    producer_expecting_one_of_two_tiles_is_found: PLAIN, ExpectsOneTileOfTwo, [FindingKind::TransactionCount, FindingKind::InFlight], "expect all bytes of a phase";
    producer_expecting_more_bytes_is_found: PLAIN, ExpectsMoreBytes, [FindingKind::Deadlock], "barrier full[0]: phase 0, 1 of 1 arrivals, 256 bytes are still expected";
    misaligned_tma_store_is_found: PLAIN, MisalignedTmaStore, [FindingKind::Misaligned], "multiples of 8 elements";
    tma_store_without_a_proxy_fence_is_found: PLAIN, NoProxyFence, [FindingKind::MissingProxyFence], "fence_proxy_async";
    proxy_fence_after_the_barrier_is_found: PLAIN, ProxyFenceAfterBarrier, [FindingKind::MissingProxyFence], "fence_proxy_async";
    accumulator_read_before_the_wgmma_wait_is_found: PLAIN, NoWgmmaWait, [FindingKind::InFlight], "call `wgmma_wait_group` first";
    wgmma_without_a_fence_is_found: PLAIN, NoWgmmaFence, [FindingKind::MissingFence], "wgmma_fence";
    stage_released_before_the_wgmma_wait_is_found: PLAIN, ReleasesStageEarly, [FindingKind::Race], "until `wgmma_wait_group`";
    stage_of_a_cluster_released_before_the_wgmma_wait_is_found: CLUSTER, ReleasesStageEarly, [FindingKind::Race], "until `wgmma_wait_group`";
    missing_first_cluster_barrier_is_found: CLUSTER, NoFirstClusterBarrier, [FindingKind::UnreadyBarrier], "synchronize the block (or the cluster)";
    missing_last_cluster_barrier_is_found: CLUSTER, NoLastClusterBarrier, [FindingKind::EndedBlock], "synchronize the cluster at the end";
    setmaxnreg_over_the_budget_is_found: PLAIN, TooManyRegisters, [FindingKind::RegisterBudget], "asks for 240 a thread and has 168";
    mbarrier_with_more_arrivals_than_initialized_is_found: PLAIN, InitWithFewerArrivals, [FindingKind::Race, FindingKind::InFlight, FindingKind::Deadlock], "";
    mbarrier_with_fewer_arrivals_than_initialized_is_found: PLAIN, InitWithMoreArrivals, [FindingKind::Deadlock], "barrier empty[0]: phase 0, 8 of 9 arrivals";
    mbarrier_init_without_a_fence_is_found: PLAIN, NoInitFence, [FindingKind::UnreadyBarrier], "not followed by `fence_mbarrier_init`";
    mbarrier_init_without_a_block_barrier_is_found: PLAIN, NoBlockBarrier, [FindingKind::UnreadyBarrier], "";
    mbarrier_initialized_twice_is_found: PLAIN, InitializesTwice, [FindingKind::UnreadyBarrier], "unordered with its initialization";
    tile_overwritten_before_the_bulk_read_wait_is_found: PLAIN, NoBulkReadWait, [FindingKind::Race], "until `bulk_wait_group_read`";
    block_end_before_the_bulk_read_wait_is_found: PLAIN, NoBulkReadWaitAtEnd, [FindingKind::InFlight], "a bulk store may still read shared memory";
    block_end_with_an_uncommitted_store_is_found: PLAIN, NoBulkCommit, [FindingKind::InFlight], "a bulk store may still read shared memory";
    access_before_griddep_wait_is_found: PLAIN, NoGriddepWaitInProducer, [FindingKind::EarlyAccess], "call `griddep_wait` first";
    multicast_of_one_half_twice_is_found: CLUSTER, LoadsOneHalfTwice, [FindingKind::InFlight, FindingKind::Uninitialized], "a bulk copy to tile 0 of b_tiles is in flight";
    load_without_multicast_is_found: CLUSTER, NoMulticast, [FindingKind::Deadlock], "4096 bytes are still expected";
    stage_released_in_one_block_of_the_cluster_is_found: CLUSTER, ReleasesOwnBlockOnly, [FindingKind::InFlight], "is in flight";
    producer_without_an_empty_barrier_wait_is_found: PLAIN, NoEmptyBarrierWait, [FindingKind::InFlight, FindingKind::ArrivalMismatch], "";
}

/// One `wgmma`, 64×16 by 16×128. A is in registers, or in shared memory with a row per k, as B,
/// whose rows are split in two.
fn wgmma_kernel(registers: bool) -> Kernel {
    kernel("wgmma", Block::d1(128), |k| {
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        let tiles = Tiles { rows: 16, cols: 64, swizzle: Swizzle::B128, clipped: false };
        let a = k.tensor::<f16>("a", Access::Read, Order2d::RowMajor, tiles);
        let b = k.tensor::<f16>("b", Access::Read, Order2d::RowMajor, tiles);
        let c = k.output::<f32>("c");
        let (a_tile, b_tiles) = (
            k.tiles::<f16>("a_tile", 1, [16, 64], Swizzle::B128),
            k.tiles::<f16>("b_tiles", 2, [16, 64], Swizzle::B128),
        );
        let full = k.mbarriers("full", 1);
        k.when(k.thread_x().eq(0), || {
            full.init(0, 1);
            k.fence_mbarrier_init();
        });
        k.barrier();
        k.when(k.thread_x().eq(0), || {
            full.arrive_expect_tx(0, 3 * 2 * 16 * 64);
            let barrier = (full, k.constant(0));
            a_tile.tma_load(0, a, (0, 0), barrier);
            (0..2).for_each(|half| b_tiles.tma_load(half, b, (0, 64 * half), barrier));
        });
        full.wait(0, 0);
        let accumulators = k.array::<f32>(64);
        let b_operand = b_tiles.wgmma_operand((0, 0, 0), false);
        let wgmma = Wgmma { ty: Type::F16, n: 128 };
        if registers {
            let half = |register: u32, half: u32| {
                // Layout of `Wgmma::a`.
                let row = k.warp() * 16 + k.lane() / 4 + 8 * (register % 2);
                let col = k.lane() % 4 * 2 + (8 * (register / 2) + half);
                bits(k, a_tile.load((0, col, row)))
            };
            let a_operand: [_; 4] = std::array::from_fn(|register| {
                let register = register as u32;
                half(register, 0) | half(register, 1) << 16
            });
            k.wgmma_fence();
            k.wgmma(wgmma, a_operand, b_operand, accumulators, false);
        } else {
            k.wgmma_fence();
            k.wgmma(wgmma, a_tile.wgmma_operand((0, 0, 0), false), b_operand, accumulators, false);
        }
        k.wgmma_commit_group();
        k.wgmma_wait_group(0);
        for i in 0..accumulators.len() {
            let row = k.warp() * 16 + k.lane() / 4 + 8 * (i % 4 / 2);
            c.store((row, k.lane() % 4 * 2 + (i / 4 * 8 + i % 2)), accumulators.at(i).get());
        }
    })
}

/// The f16 bits of a small integer, which converts exactly.
fn bits<'k>(k: &'k Builder, x: Val<'k, f16>) -> Val<'k, u32> {
    let single = x.to::<f32>().bitcast::<u32>();
    let (sign, exponent) = ((single >> 16) & 0x8000, ((single >> 23) & 0xff) - 112);
    single.ne(0).select(sign | exponent << 10 | ((single >> 13) & 0x3ff), k.constant(0u32))
}

#[test]
fn wgmma_operands_of_any_layout_are_correct() {
    let whole = |row: usize, col: usize| ((row * 7 + col * 5) % 9 + 1) as f64;
    let a = Matrix::from_fn(16, 64, |p, i| f16::from_f64(whole(p, i))).unwrap();
    let b = Matrix::from_fn(16, 128, |p, j| f16::from_f64(-whole(j, p))).unwrap();
    for registers in [false, true] {
        let kernel = check(wgmma_kernel(registers)).unwrap();
        for seed in 0..8 {
            let (a, b) = (interpret::input(a.view()).unwrap(), interpret::input(b.view()).unwrap());
            let c = Buffer::output(Type::F32, Layout::row_major(Shape::new(64, 128)).unwrap()).unwrap();
            let config = Config { seed, ..Config::default() };
            let outcome = run(&kernel, &[Arg::from(&a), Arg::from(&b), Arg::from(&c)], &config).unwrap();
            assert!(errors(&outcome).is_empty(), "{}", messages(&outcome));
            let c = c.to_vec::<f32>().unwrap();
            for (at, &c) in c.iter().enumerate() {
                let terms = (0..16).map(|p| -whole(p, at / 128) * whole(at % 128, p));
                assert_eq!(f64::from(c), terms.sum::<f64>(), "{registers} {at}");
            }
        }
    }
}

#[test]
fn stored_matrices_equal_loaded_matrices() {
    for transposed in [false, true] {
        let kernel = kernel("stored", Block::d1(32), |k| {
            k.grid([k.constant(1), k.constant(1), k.constant(1)]);
            let (x, y) = (k.input::<u32>("x"), k.output::<u32>("y"));
            let tile = k.shared::<bf16>("tile", [32, 8]);
            let values: [_; 4] = std::array::from_fn(|i| x.load((i as u32, k.lane())));
            tile.store_matrix((k.lane(), 0), values, transposed);
            k.sync_warp(FULL_WARP);
            let loaded = tile.load_matrix::<4>((k.lane(), 0), transposed);
            (0..).zip(loaded).for_each(|(i, value)| y.store((i, k.lane()), value));
        });
        let kernel = check(kernel).unwrap();
        let x = Matrix::from_fn(4, 32, |i, lane| (i << 20 | lane << 8 | (lane ^ i)) as u32).unwrap();
        let y = Buffer::output(Type::U32, Layout::row_major(Shape::new(4, 32)).unwrap()).unwrap();
        let input = interpret::input(x.view()).unwrap();
        let outcome = run(&kernel, &[Arg::from(&input), Arg::from(&y)], &Config::default()).unwrap();
        assert!(errors(&outcome).is_empty(), "{}", messages(&outcome));
        let y = y.to_vec::<u32>().unwrap();
        assert_eq!(y, x.into_vec(), "{transposed}");
    }
}

/// TMA loads of `rows` rows each, to all rows of a tile of 64.
fn tma_load_kernel(rows: u32, [cols, of]: [u32; 2], [swizzle, in_array]: [Swizzle; 2], first: u32) -> Kernel {
    kernel("tma_load", Block::d1(64), |k| {
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        let a = k.tensor::<bf16>("a", Access::Read, Order2d::RowMajor, Tiles { rows, cols, swizzle, clipped: false });
        let (tiles, full) = (k.tiles::<bf16>("tiles", 2, [64, of], in_array), k.mbarriers("full", 1));
        let c = k.output::<bf16>("c");
        k.when(k.thread_x().eq(0), || {
            full.init(0, 1);
            k.fence_mbarrier_init();
            full.arrive_expect_tx(0, 2 * 64 * of);
            for row in (first..64).step_by(rows as usize) {
                tiles.tma_load_multicast((1, row), a, (row, 0u32), (full, k.constant(0)), None);
            }
        });
        k.barrier();
        full.wait(0, 0);
        (0..of).for_each(|col| c.store((k.thread_x(), col), tiles.load((1, k.thread_x(), col))));
    })
}

#[test]
fn shared_array_unlike_the_tiles_is_an_error() {
    let (wide, narrow) = (Swizzle::B128, Swizzle::B64);
    for (rows, cols, swizzles) in [
        (64, [32, 32], [narrow, wide]),
        (64, [32, 64], [narrow, narrow]),
        // Neither all rows nor a part aligned to the swizzle.
        (128, [64, 64], [wide, wide]),
        (48, [64, 64], [wide, wide]),
        (4, [64, 64], [wide, wide]),
        (8, [32, 32], [wide, wide]),
    ] {
        let message = check(tma_load_kernel(rows, cols, swizzles, 0)).unwrap_err().to_string();
        assert!(message.contains("unlike the array tiles"), "{rows} {cols:?}: {message}");
    }
}

#[test]
fn tile_loaded_by_parts_is_complete() {
    let a = Matrix::from_fn(64, 64, |i, j| bf16::from_f64((i % 16 * 16 + j % 16) as f64)).unwrap();
    let layout = Layout::row_major(a.shape()).unwrap();
    for (rows, first, is_correct) in [(64, 0, true), (32, 0, true), (8, 0, true), (32, 16, false), (32, 32, false)] {
        let kernel = check(tma_load_kernel(rows, [64; 2], [Swizzle::B128; 2], first)).unwrap();
        for seed in 0..8 {
            let (from, c) = (interpret::input(a.view()).unwrap(), Buffer::output(Type::BF16, layout).unwrap());
            let config = Config { seed, ..Config::default() };
            let outcome = run(&kernel, &[Arg::from(&from), Arg::from(&c)], &config).unwrap();
            assert_eq!(errors(&outcome).is_empty(), is_correct, "{rows} from {first}: {}", messages(&outcome));
            if is_correct {
                assert_eq!(c.to_vec::<bf16>().unwrap(), a.clone().into_vec(), "{rows}");
            }
        }
    }
}

/// Two blocks that exchange four values per thread through DSMEM, twice.
fn dsmem_kernel(bug: &str) -> Kernel {
    kernel("dsmem", Block::d1(32), |k| {
        let is = |other| bug == other;
        let zero = k.constant(0u32);
        k.cluster(2);
        k.grid([k.constant(2), k.constant(1), k.constant(1)]);
        let c = k.matrix::<f32>("c", Access::Write, Order2d::RowMajor, 4);
        let dsmem = k.dsmem_buffer::<f32>("dsmem", [1, 128]);
        let (full, read) = (k.mbarriers("full", 1), k.mbarriers("read", 1));
        k.when(k.thread_x().eq(0), || {
            full.init(0, 1);
            read.init(0, 1);
            k.fence_mbarrier_init();
        });
        if !is("no first cluster barrier") {
            k.cluster_arrive();
            k.cluster_wait();
        }
        let (rank, first) = (k.cluster_rank(), k.thread_x() * 4);
        let peer = rank ^ 1;
        k.for_each(0, 2, |round| {
            k.when(k.thread_x().eq(0), || full.arrive_expect_tx(0, if is("expects fewer bytes") { 496 } else { 512 }));
            if !is("sends before the previous value is read") {
                read.wait(0, round ^ 1);
            }
            let values: [_; 4] = std::array::from_fn(|i| (rank * 1000 + round * 200 + first + i as u32).to::<f32>());
            dsmem.store_async((0u32, first), values, peer, (full, zero));
            if !is("reads before arrival") {
                full.wait(0, round);
            }
            c.store_vec((rank * 2 + round, first), dsmem.load_vec::<4>((0u32, first)));
            k.sync_warp(FULL_WARP);
            k.when(k.thread_x().eq(0), || read.arrive_remote(0, peer));
        });
        if !is("no last cluster barrier") {
            k.cluster_arrive();
            k.cluster_wait();
        }
    })
}

fn run_dsmem(bug: &str, seed: u64) -> (Outcome, Vec<f32>) {
    let kernel = check(dsmem_kernel(bug)).unwrap();
    let c = Buffer::output(Type::F32, Layout::row_major(Shape::new(4, 128)).unwrap()).unwrap();
    let outcome = run(&kernel, &[Arg::from(&c)], &Config { seed, ..Config::default() }).unwrap();
    (outcome, c.to_vec::<f32>().unwrap())
}

#[test]
fn values_stored_to_dsmem_arrive() {
    for seed in 0..seeds(1, SEEDS) {
        let (outcome, c) = run_dsmem("none", seed);
        assert!(errors(&outcome).is_empty(), "seed {seed}: {}", messages(&outcome));
        for (at, value) in c.into_iter().enumerate() {
            let (rank, round, tile) = (at / 256, at / 128 % 2, at % 128);
            assert_eq!(value, ((1 - rank) * 1000 + round * 200 + tile) as f32, "seed {seed}");
        }
    }
}

#[test]
fn dsmem_bugs_are_found() {
    for (bug, kinds) in [
        ("no first cluster barrier", vec![FindingKind::UnreadyBarrier]),
        ("expects fewer bytes", vec![FindingKind::Deadlock, FindingKind::TransactionCount, FindingKind::InFlight]),
        (
            "sends before the previous value is read",
            vec![FindingKind::Race, FindingKind::InFlight, FindingKind::TransactionCount],
        ),
        ("reads before arrival", vec![FindingKind::InFlight, FindingKind::Uninitialized, FindingKind::Race]),
        ("no last cluster barrier", vec![FindingKind::EndedBlock]),
    ] {
        for seed in 0..seeds(1, SEEDS) {
            let (outcome, _) = run_dsmem(bug, seed);
            let found = errors(&outcome);
            assert!(found.iter().any(|f| kinds.contains(&f.kind)), "{bug}, seed {seed}: {}", messages(&outcome));
        }
    }
}

#[test]
fn block_without_griddep_wait_is_found() {
    let kernel = kernel("early", Block::d1(32), |k| {
        k.grid([k.constant(2), k.constant(1), k.constant(1)]);
        k.when(k.block_x().eq(1), || k.griddep_wait());
    });
    let outcome = run(&check(kernel).unwrap(), &[], &Config::default()).unwrap();
    let found: Vec<_> = errors(&outcome).iter().map(|f| (f.kind, f.block)).collect();
    assert_eq!(found, [(FindingKind::EarlyAccess, [0, 0, 0])], "{}", messages(&outcome));
}
