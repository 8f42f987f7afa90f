//! What only Hopper has, in the interpreter: a product by warps of which one copies tiles and eight multiply, alone and in clusters, is right
//! and clean on every seed; and each mistake planted in it is found on every seed.

use tegula::element::{Type, bf16};
use tegula::interpret;
use tegula::{Layout, Matrix, Shape};
use tegula_interp::{Arg, Buffer, Config, Finding, Kind, Outcome, Severity, run};
use tegula_ir::prelude::*;

use crate::effort::seeds;
use crate::product::Random;

const M: u32 = 128;
const N: u32 = 64;
const K: u32 = 64;
/// Seeds of schedules, in the full run.
const SEEDS: u64 = 32;

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Plant {
    None,
    /// Consumers do not wait for the first phase.
    WaitsEarly,
    ExpectsLess,
    ExpectsOneTile,
    ExpectsMore,
    NoProxyFence,
    StoresAskew,
    ProxyFenceAfterBarrier,
    NoWgmmaWait,
    NoWgmmaFence,
    ReleasesEarly,
    NoMeetingFirst,
    NoMeetingLast,
    TooManyRegisters,
    MoreArrivals,
    FewerArrivals,
    NoFenceInit,
    NoBlockBarrier,
    NoAwaitReads,
    NoAwaitReadsAtEnd,
    NoCommit,
    NoWaitForEmpty,
    BeginsTwice,
    UsesEarly,
    /// Of what a cluster shares.
    CopiesOneHalf,
    CopiesToItself,
    ReleasesToItself,
}

#[derive(Clone, Copy, Debug)]
struct Gemm {
    stages: u32,
    /// Blocks along x that share tiles of B.
    cluster: u32,
    plant: Plant,
    /// Stores of eight rows of matrices, or plain ones.
    store_matrix: bool,
}

const PLAIN: Gemm = Gemm { stages: 2, cluster: 1, plant: Plant::None, store_matrix: false };
const CLUSTER: Gemm = Gemm { cluster: 2, stages: 3, store_matrix: true, ..PLAIN };

impl Gemm {
    /// C = A·Bᵀ: A is m×k, B is n×k, C is m×n. One warpgroup copies, two multiply 64 rows each. In a cluster, its blocks make tiles of C
    /// below each other, and each copies its half of B's tile to all.
    fn build(self) -> Kernel {
        let Gemm { stages, cluster, plant, store_matrix } = self;
        let is = |other| plant == other;
        kernel("hopper", Block::d1(384), |k| {
            k.min_blocks(1);
            k.cluster(cluster);
            let tiles = |rows, cols| Tiles { rows, cols, swizzle: Swizzle::B128 };
            let a = k.tensor::<bf16>("a", Access::Read, Order2d::RowMajor, tiles(M, K));
            let b = k.tensor::<bf16>("b", Access::Read, Order2d::RowMajor, tiles(N / cluster, K));
            let c = k.tensor::<bf16>("c", Access::Write, Order2d::RowMajor, tiles(64, N));
            let (down, right) = (c.rows().div_ceil(M * cluster), c.cols().div_ceil(N));
            let slides = a.cols().div_ceil(K);
            k.grid([k.constant(2 * cluster), k.constant(1), k.constant(1)]);
            let a_tiles = k.tiles::<bf16>("a_tiles", stages, [M, K], Swizzle::B128);
            let b_tiles = k.tiles::<bf16>("b_tiles", stages, [N, K], Swizzle::B128);
            let c_tiles = k.tiles::<bf16>("c_tiles", 2, [64, N], Swizzle::B128);
            let (full, empty) = (k.barriers("full", stages), k.barriers("empty", stages));
            let rank = k.cluster_rank();

            k.when(k.thread_x().eq(0), || {
                let consumers = 8 * cluster;
                let arrivals = match plant {
                    Plant::MoreArrivals => consumers - 1,
                    Plant::FewerArrivals => consumers + 1,
                    Plant::ReleasesToItself => 8,
                    _ => consumers,
                };
                for stage in 0..stages {
                    full.init(stage, 1);
                    empty.init(stage, arrivals);
                }
                if !is(Plant::NoFenceInit) {
                    k.fence_init();
                }
            });
            if is(Plant::BeginsTwice) {
                k.when(k.thread_x().eq(32), || full.init(0, 1));
            }
            if !is(Plant::NoBlockBarrier) {
                k.barrier();
            }
            if cluster > 1 && !is(Plant::NoMeetingFirst) {
                k.cluster_arrive();
                k.cluster_wait();
            }

            k.allow_next();
            match plant {
                Plant::UsesEarly => k.when(k.thread_x().ge(128), || k.await_launches()),
                _ => k.await_launches(),
            }

            let group = k.warpgroup();
            k.if_else(
                group.eq(0),
                || {
                    k.give_registers(40);
                    k.when(k.thread_x().eq(0), || {
                        let (stage, phase) = (k.var(0u32), k.var(0u32));
                        each_tile(k, [down, right], cluster, |row, col| {
                            k.for_each(0, slides, |slide| {
                                let which = stage.get();
                                if !is(Plant::NoWaitForEmpty) {
                                    empty.wait(which, phase.get() ^ 1);
                                }
                                let bytes = 2 * (M + N) * K;
                                full.expect(
                                    which,
                                    match plant {
                                        Plant::ExpectsLess => bytes - 256,
                                        Plant::ExpectsOneTile => 2 * M * K,
                                        Plant::ExpectsMore => bytes + 256,
                                        _ => bytes,
                                    },
                                );
                                let barrier = (full, which);
                                a_tiles.copy_tile(which, a, (row, slide * K), barrier);
                                let part = N / cluster;
                                let blocks = match plant {
                                    Plant::CopiesToItself => k.constant(1u32) << rank,
                                    _ => k.constant((1 << cluster) - 1),
                                };
                                let first = if is(Plant::CopiesOneHalf) { k.constant(0) } else { rank * part };
                                let (to, at) = ((which, first), (col + first, slide * K));
                                b_tiles.copy_tile_to(to, b, at, barrier, (cluster > 1).then_some(blocks));
                                advance(k, stage, phase, stages);
                            });
                        });
                    });
                },
                || {
                    k.take_registers(if is(Plant::TooManyRegisters) { 240 } else { 232 });
                    let (stage, phase) = (k.var(0u32), k.var(0u32));
                    let sums = k.array::<f32>(N / 2);
                    let first = group - 1;
                    let lane = k.thread_x() % 128;
                    each_tile(k, [down, right], cluster, |row, col| {
                        (0..sums.len()).for_each(|i| sums.at(i).set(0.0));
                        k.for_each(0, slides, |slide| {
                            let which = stage.get();
                            full.wait(which, if is(Plant::WaitsEarly) { phase.get() ^ 1 } else { phase.get() });
                            if !is(Plant::NoWgmmaFence) {
                                k.wgmma_fence();
                            }
                            for inner in (0..K).step_by(16) {
                                let left = a_tiles.factor((which, first * 64, inner), true);
                                let right = b_tiles.factor((which, 0, inner), true);
                                let add = slide.ne(0) | k.constant(inner != 0);
                                k.wgmma(Wgmma { ty: Type::BF16, n: N }, left, right, sums, add);
                            }
                            k.wgmma_commit();
                            let release = || {
                                if cluster == 1 || is(Plant::ReleasesToItself) {
                                    k.when(k.is_first_lane(), || empty.arrive(which));
                                } else {
                                    k.when(k.lane().lt(cluster), || empty.arrive_at(which, k.lane()));
                                }
                            };
                            if is(Plant::ReleasesEarly) {
                                release();
                            }
                            if !is(Plant::NoWgmmaWait) {
                                k.wgmma_wait(0);
                            }
                            if !is(Plant::ReleasesEarly) {
                                release();
                            }
                            advance(k, stage, phase, stages);
                        });
                        k.when(lane.eq(0), || {
                            if !is(Plant::NoAwaitReads) {
                                k.await_reads(0);
                            }
                        });
                        for named in [1, 2] {
                            k.when(group.eq(named), || k.named_barrier(named, 128));
                        }
                        store_sums(k, c_tiles, sums, first, store_matrix);
                        if !matches!(plant, Plant::NoProxyFence | Plant::ProxyFenceAfterBarrier) {
                            k.fence_proxy();
                        }
                        for named in [1, 2] {
                            k.when(group.eq(named), || k.named_barrier(named, 128));
                        }
                        if is(Plant::ProxyFenceAfterBarrier) {
                            k.fence_proxy();
                        }
                        k.when(lane.eq(0), || {
                            let askew = u32::from(is(Plant::StoresAskew));
                            c_tiles.store_tile(first, c, (row + first * 64, col + askew));
                            if !is(Plant::NoCommit) {
                                k.commit_stores();
                            }
                        });
                    });
                    k.when(lane.eq(0), || {
                        if !is(Plant::NoAwaitReadsAtEnd) {
                            k.await_reads(0);
                        }
                    });
                },
            );
            if cluster > 1 && !is(Plant::NoMeetingLast) {
                k.cluster_arrive();
                k.cluster_wait();
            }
        })
    }
}

/// The tiles of C that the block makes: where each begins.
fn each_tile<'k>(
    k: &'k Builder,
    [down, right]: [Val<'k, u32>; 2],
    cluster: u32,
    body: impl FnOnce(Val<'k, u32>, Val<'k, u32>),
) {
    k.for_step(k.cluster_x(), down * right, 2, |tile| {
        body((tile / right * cluster + k.cluster_rank()) * M, tile % right * N);
    });
}

fn advance<'k>(k: &'k Builder, stage: Var<'k, u32>, phase: Var<'k, u32>, stages: u32) {
    let next = stage.get() + 1;
    phase.set(phase.get() ^ next.eq(stages).select(1u32, 0u32));
    stage.set(next.eq(stages).select(k.constant(0u32), next));
}

/// The warpgroup's sums, rounded, to its tile.
fn store_sums<'k>(
    k: &'k Builder,
    c_tiles: Shared<'k, bf16>,
    sums: Array<'k, f32>,
    tile: Val<'k, u32>,
    store_matrix: bool,
) {
    let (lane, warp) = (k.lane(), k.warp() % 4);
    if !store_matrix {
        for i in 0..sums.len() {
            // As `Wgmma::sum` has it.
            let row = warp * 16 + lane / 4 + 8 * (i % 4 / 2);
            let col = lane % 4 * 2 + (i / 4 * 8 + i % 2);
            c_tiles.store((tile, row, col), sums.at(i).get().to::<bf16>());
        }
        return;
    }
    let pair = |i: u32| {
        let [low, high] = [i, i + 1].map(|i| sums.at(i).get().to::<bf16>());
        pack(low, high)
    };
    for i in (0..sums.len()).step_by(8) {
        let matrices = [pair(i), pair(i + 2), pair(i + 4), pair(i + 6)];
        let (row, col) = (warp * 16 + lane % 16, lane / 16 * 8 + i / 4 * 8);
        c_tiles.store_matrix((tile, row, col), matrices, false);
    }
}

/// Two numbers in a register: a bf16 is the upper half of an f32.
fn pack<'k>(low: Val<'k, bf16>, high: Val<'k, bf16>) -> Val<'k, u32> {
    (low.to::<f32>().bitcast::<u32>() >> 16) | high.to::<f32>().bitcast::<u32>()
}

struct Sides {
    a: Matrix<bf16>,
    b: Matrix<bf16>,
    c: Vec<bf16>,
}

impl Sides {
    /// Numbers are eighths and few, so sums are exact.
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
        Sides { a: matrix(m, a), b: matrix(n, b), c }
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

fn clean(gemm: Gemm, sizes: [usize; 3], most: u64) {
    let (kernel, sides) = (check(gemm.build()).unwrap(), Sides::new(sizes));
    for seed in 0..seeds(2, most) {
        let (outcome, c) = sides.run(&kernel, &Config { seed, parallel: seed % 2 == 0, ..Config::default() });
        assert!(outcome.findings.is_empty(), "seed {seed}: {:#?}", outcome.findings);
        assert_eq!(c.into_vec(), sides.c, "seed {seed}");
    }
}

/// Every seed finds an error of one of the kinds, and one of the first kind at least once.
fn finds(gemm: Gemm, kinds: &[Kind], says: &str) {
    let (kernel, sides) = (check(gemm.build()).unwrap(), Sides::new([256, 128, 256]));
    let (mut first, mut said, mut last) = (false, false, String::new());
    for seed in 0..seeds(6, SEEDS) {
        let outcome = sides.run(&kernel, &Config { seed, counters: false, ..Config::default() }).0;
        let found = errors(&outcome);
        assert!(found.iter().any(|f| kinds.contains(&f.kind)), "{gemm:?}, seed {seed}: {}", messages(&outcome));
        first |= found.iter().any(|f| f.kind == kinds[0]);
        said |= found.iter().any(|f| f.message.contains(says));
        last = messages(&outcome);
    }
    assert!(first && said, "{gemm:?}: {last}");
}

#[test]
fn products_are_right_and_clean() {
    clean(PLAIN, [256, 128, 256], SEEDS);
    clean(PLAIN, [128, 64, 64], SEEDS);
}

#[test]
fn products_with_edges_are_right_and_clean() {
    clean(Gemm { stages: 3, store_matrix: true, ..PLAIN }, [200, 72, 136], SEEDS);
    clean(PLAIN, [1, 8, 8], SEEDS);
    clean(PLAIN, [129, 136, 8], SEEDS);
}

#[test]
fn products_of_clusters_are_right_and_clean() {
    clean(CLUSTER, [512, 128, 256], SEEDS);
    clean(CLUSTER, [300, 72, 200], SEEDS);
}

#[test]
fn findings_and_counts_do_not_depend_on_cores() {
    let (kernel, sides) = (check(CLUSTER.build()).unwrap(), Sides::new([300, 72, 200]));
    let of = |parallel| {
        let (outcome, c) = sides.run(&kernel, &Config { parallel, ..Config::default() });
        (outcome.findings, outcome.counters, c)
    };
    assert_eq!(of(true), of(false));
}

#[test]
fn products_are_counted() {
    let (kernel, sides) = (check(PLAIN.build()).unwrap(), Sides::new([256, 128, 256]));
    let outcome = sides.run(&kernel, &Config::default()).0;
    assert_eq!(outcome.counters.fma, 256 * 128 * 256);
    assert_eq!(outcome.counters.flops, 2 * 256 * 128 * 256);
}

macro_rules! plants {
    ($($name:ident: $gemm:expr, $plant:ident, $kinds:expr, $says:expr;)*) => {$(
        #[test]
        fn $name() {
            finds(Gemm { plant: Plant::$plant, ..$gemm }, &$kinds, $says);
        }
    )*};
}

plants! {
    waits_one_phase_early: PLAIN, WaitsEarly, [Kind::InFlight, Kind::Uninitialised, Kind::Deadlock], "is on its way; wait for its barrier first";
    expects_too_little: PLAIN, ExpectsLess, [Kind::Deadlock], "256 bytes more than were announced";
    expects_one_tile_of_two: PLAIN, ExpectsOneTile, [Kind::TransactionCount, Kind::InFlight], "announce all bytes of a phase";
    expects_too_much: PLAIN, ExpectsMore, [Kind::Deadlock], "barrier full[0]: phase 0, 1 of 1 arrivals came, 256 bytes are still expected";
    stores_from_where_the_copy_engine_cannot: PLAIN, StoresAskew, [Kind::Misaligned], "multiples of 8 elements";
    stores_without_a_fence: PLAIN, NoProxyFence, [Kind::MissingProxyFence], "fence_proxy";
    stores_with_a_fence_too_late: PLAIN, ProxyFenceAfterBarrier, [Kind::MissingProxyFence], "fence_proxy";
    reads_sums_before_they_come: PLAIN, NoWgmmaWait, [Kind::InFlight], "call `wgmma_wait` first";
    multiplies_into_unfenced_sums: PLAIN, NoWgmmaFence, [Kind::MissingFence], "wgmma_fence";
    releases_what_is_still_read: PLAIN, ReleasesEarly, [Kind::Race], "until `wgmma_wait`";
    releases_what_is_still_read_in_a_cluster: CLUSTER, ReleasesEarly, [Kind::Race], "until `wgmma_wait`";
    does_not_meet_first: CLUSTER, NoMeetingFirst, [Kind::UnreadyBarrier], "synchronise the block (the cluster";
    does_not_meet_last: CLUSTER, NoMeetingLast, [Kind::EndedBlock], "let the cluster meet at the end";
    takes_too_many_registers: PLAIN, TooManyRegisters, [Kind::RegisterBudget], "asks for 240 a thread and has 168";
    arrives_more_often: PLAIN, MoreArrivals, [Kind::Race, Kind::InFlight, Kind::Deadlock], "";
    arrives_less_often: PLAIN, FewerArrivals, [Kind::Deadlock], "barrier empty[0]: phase 0, 8 of 9 arrivals came";
    begins_without_a_fence: PLAIN, NoFenceInit, [Kind::UnreadyBarrier], "no `fence_init`";
    begins_without_a_barrier: PLAIN, NoBlockBarrier, [Kind::UnreadyBarrier], "";
    begins_twice: PLAIN, BeginsTwice, [Kind::UnreadyBarrier], "begins as well";
    stores_over_what_is_read: PLAIN, NoAwaitReads, [Kind::Race], "until `await_reads`";
    ends_while_it_is_read: PLAIN, NoAwaitReadsAtEnd, [Kind::InFlight], "shared memory is given up";
    ends_with_an_open_group: PLAIN, NoCommit, [Kind::InFlight], "shared memory is given up";
    uses_a_matrix_early: PLAIN, UsesEarly, [Kind::EarlyAccess], "call `await_launches` first";
    copies_one_half_twice: CLUSTER, CopiesOneHalf, [Kind::InFlight, Kind::Uninitialised], "a copy to tile 0 of b_tiles is on its way";
    copies_its_half_to_itself: CLUSTER, CopiesToItself, [Kind::Deadlock], "4096 bytes are still expected";
    releases_to_itself_alone: CLUSTER, ReleasesToItself, [Kind::InFlight], "is on its way";
    does_not_wait_for_room: PLAIN, NoWaitForEmpty, [Kind::InFlight, Kind::ArrivalMismatch], "";
}

/// One multiplication, 64×16 by 16×128: A from registers, or from shared memory a row for each k, as B, whose rows are cut in two.
fn multiplied(registers: bool) -> Kernel {
    kernel("multiplied", Block::d1(128), |k| {
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        let tiles = Tiles { rows: 16, cols: 64, swizzle: Swizzle::B128 };
        let a = k.tensor::<f16>("a", Access::Read, Order2d::RowMajor, tiles);
        let b = k.tensor::<f16>("b", Access::Read, Order2d::RowMajor, tiles);
        let c = k.output::<f32>("c");
        let (a_tile, b_tiles) = (
            k.tiles::<f16>("a_tile", 1, [16, 64], Swizzle::B128),
            k.tiles::<f16>("b_tiles", 2, [16, 64], Swizzle::B128),
        );
        let full = k.barriers("full", 1);
        k.when(k.thread_x().eq(0), || {
            full.init(0, 1);
            k.fence_init();
        });
        k.barrier();
        k.when(k.thread_x().eq(0), || {
            full.expect(0, 3 * 2 * 16 * 64);
            let barrier = (full, k.constant(0));
            a_tile.copy_tile(0, a, (0, 0), barrier);
            (0..2).for_each(|half| b_tiles.copy_tile(half, b, (0, 64 * half), barrier));
        });
        full.wait(0, 0);
        let sums = k.array::<f32>(64);
        let right = b_tiles.factor((0, 0, 0), false);
        let wgmma = Wgmma { ty: Type::F16, n: 128 };
        if registers {
            let half = |register: u32, part: u32| {
                // As `Wgmma::a` has it.
                let row = k.warp() * 16 + k.lane() / 4 + 8 * (register % 2);
                let col = k.lane() % 4 * 2 + (8 * (register / 2) + part);
                bits(k, a_tile.load((0, col, row)))
            };
            let left: [_; 4] = std::array::from_fn(|register| {
                let register = register as u32;
                half(register, 0) | half(register, 1) << 16
            });
            k.wgmma_fence();
            k.wgmma(wgmma, left, right, sums, false);
        } else {
            k.wgmma_fence();
            k.wgmma(wgmma, a_tile.factor((0, 0, 0), false), right, sums, false);
        }
        k.wgmma_commit();
        k.wgmma_wait(0);
        for i in 0..sums.len() {
            let row = k.warp() * 16 + k.lane() / 4 + 8 * (i % 4 / 2);
            c.store((row, k.lane() % 4 * 2 + (i / 4 * 8 + i % 2)), sums.at(i).get());
        }
    })
}

/// The bits of a small whole number, which goes to and fro exactly.
fn bits<'k>(k: &'k Builder, x: Val<'k, f16>) -> Val<'k, u32> {
    let single = x.to::<f32>().bitcast::<u32>();
    let (sign, exponent) = ((single >> 16) & 0x8000, ((single >> 23) & 0xff) - 112);
    single.ne(0).select(sign | exponent << 10 | ((single >> 13) & 0x3ff), k.constant(0u32))
}

#[test]
fn factors_lie_any_way() {
    let whole = |row: usize, col: usize| ((row * 7 + col * 5) % 9 + 1) as f64;
    let a = Matrix::from_fn(16, 64, |p, i| f16::from_f64(whole(p, i))).unwrap();
    let b = Matrix::from_fn(16, 128, |p, j| f16::from_f64(-whole(j, p))).unwrap();
    for registers in [false, true] {
        let kernel = check(multiplied(registers)).unwrap();
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
fn matrices_are_stored_as_they_are_loaded() {
    for transposed in [false, true] {
        let kernel = kernel("stored", Block::d1(32), |k| {
            k.grid([k.constant(1), k.constant(1), k.constant(1)]);
            let (x, y) = (k.input::<u32>("x"), k.output::<u32>("y"));
            let place = k.shared::<bf16>("place", [32, 8]);
            let values: [_; 4] = std::array::from_fn(|i| x.load((i as u32, k.lane())));
            place.store_matrix((k.lane(), 0), values, transposed);
            k.sync_warp(FULL_WARP);
            let loaded = place.load_matrix::<4>((k.lane(), 0), transposed);
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

/// Copies of so many rows, to all rows of a tile of 64.
fn copied(rows: u32, [cols, of]: [u32; 2], [swizzle, in_array]: [Swizzle; 2], first: u32) -> Kernel {
    kernel("copied", Block::d1(64), |k| {
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        let a = k.tensor::<bf16>("a", Access::Read, Order2d::RowMajor, Tiles { rows, cols, swizzle });
        let (tiles, full) = (k.tiles::<bf16>("tiles", 2, [64, of], in_array), k.barriers("full", 1));
        let c = k.output::<bf16>("c");
        k.when(k.thread_x().eq(0), || {
            full.init(0, 1);
            k.fence_init();
            full.expect(0, 2 * 64 * of);
            for row in (first..64).step_by(rows as usize) {
                tiles.copy_tile_to((1, row), a, (row, 0u32), (full, k.constant(0)), None);
            }
        });
        k.barrier();
        full.wait(0, 0);
        (0..of).for_each(|col| c.store((k.thread_x(), col), tiles.load((1, k.thread_x(), col))));
    })
}

#[test]
fn an_array_must_be_as_the_tiles_are() {
    let (wide, narrow) = (Swizzle::B128, Swizzle::B64);
    for (rows, cols, swizzles) in [
        (64, [32, 32], [narrow, wide]),
        (64, [32, 64], [narrow, narrow]),
        // Neither all rows nor a part that begins where the swizzle does.
        (128, [64, 64], [wide, wide]),
        (48, [64, 64], [wide, wide]),
        (4, [64, 64], [wide, wide]),
        (8, [32, 32], [wide, wide]),
    ] {
        let refused = check(copied(rows, cols, swizzles, 0)).unwrap_err().to_string();
        assert!(refused.contains("not as tiles has them"), "{rows} {cols:?}: {refused}");
    }
}

#[test]
fn a_tile_is_copied_by_parts() {
    let a = Matrix::from_fn(64, 64, |i, j| bf16::from_f64((i % 16 * 16 + j % 16) as f64)).unwrap();
    let layout = Layout::row_major(a.shape()).unwrap();
    for (rows, first, right) in [(64, 0, true), (32, 0, true), (8, 0, true), (32, 16, false), (32, 32, false)] {
        let kernel = check(copied(rows, [64; 2], [Swizzle::B128; 2], first)).unwrap();
        for seed in 0..8 {
            let (from, c) = (interpret::input(a.view()).unwrap(), Buffer::output(Type::BF16, layout).unwrap());
            let config = Config { seed, ..Config::default() };
            let outcome = run(&kernel, &[Arg::from(&from), Arg::from(&c)], &config).unwrap();
            assert_eq!(errors(&outcome).is_empty(), right, "{rows} from {first}: {}", messages(&outcome));
            if right {
                assert_eq!(c.to_vec::<bf16>().unwrap(), a.clone().into_vec(), "{rows}");
            }
        }
    }
}

/// Two blocks that send each other four numbers of each thread, twice.
fn exchanged(mistake: &str) -> Kernel {
    kernel("exchanged", Block::d1(32), |k| {
        let is = |other| mistake == other;
        let zero = k.constant(0u32);
        k.cluster(2);
        k.grid([k.constant(2), k.constant(1), k.constant(1)]);
        let c = k.matrix::<f32>("c", Access::Write, Order2d::RowMajor, 4);
        let inbox = k.inbox::<f32>("inbox", [1, 128]);
        let (came, read) = (k.barriers("came", 1), k.barriers("read", 1));
        k.when(k.thread_x().eq(0), || {
            came.init(0, 1);
            read.init(0, 1);
            k.fence_init();
        });
        if !is("does not meet first") {
            k.cluster_arrive();
            k.cluster_wait();
        }
        let (rank, first) = (k.cluster_rank(), k.thread_x() * 4);
        let other = rank ^ 1;
        k.for_each(0, 2, |round| {
            k.when(k.thread_x().eq(0), || came.expect(0, if is("expects less") { 496 } else { 512 }));
            if !is("sends before it is read") {
                read.wait(0, round ^ 1);
            }
            let values: [_; 4] = std::array::from_fn(|i| (rank * 1000 + round * 200 + first + i as u32).to::<f32>());
            inbox.send((0u32, first), values, other, (came, zero));
            if !is("reads before it has come") {
                came.wait(0, round);
            }
            c.store_vec((rank * 2 + round, first), inbox.load_vec::<4>((0u32, first)));
            k.sync_warp(FULL_WARP);
            k.when(k.thread_x().eq(0), || read.arrive_at(0, other));
        });
        if !is("does not meet last") {
            k.cluster_arrive();
            k.cluster_wait();
        }
    })
}

fn exchange(mistake: &str, seed: u64) -> (Outcome, Vec<f32>) {
    let kernel = check(exchanged(mistake)).unwrap();
    let c = Buffer::output(Type::F32, Layout::row_major(Shape::new(4, 128)).unwrap()).unwrap();
    let outcome = run(&kernel, &[Arg::from(&c)], &Config { seed, ..Config::default() }).unwrap();
    (outcome, c.to_vec::<f32>().unwrap())
}

#[test]
fn what_is_sent_comes() {
    for seed in 0..seeds(2, SEEDS) {
        let (outcome, c) = exchange("none", seed);
        assert!(errors(&outcome).is_empty(), "seed {seed}: {}", messages(&outcome));
        for (at, value) in c.into_iter().enumerate() {
            let (rank, round, place) = (at / 256, at / 128 % 2, at % 128);
            assert_eq!(value, ((1 - rank) * 1000 + round * 200 + place) as f32, "seed {seed}");
        }
    }
}

#[test]
fn what_is_sent_amiss_is_found() {
    for (mistake, kinds) in [
        ("does not meet first", vec![Kind::UnreadyBarrier]),
        ("expects less", vec![Kind::Deadlock, Kind::TransactionCount, Kind::InFlight]),
        ("sends before it is read", vec![Kind::Race, Kind::InFlight, Kind::TransactionCount]),
        ("reads before it has come", vec![Kind::InFlight, Kind::Uninitialised, Kind::Race]),
        ("does not meet last", vec![Kind::EndedBlock]),
    ] {
        for seed in 0..seeds(2, SEEDS) {
            let (outcome, _) = exchange(mistake, seed);
            let found = errors(&outcome);
            assert!(found.iter().any(|f| kinds.contains(&f.kind)), "{mistake}, seed {seed}: {}", messages(&outcome));
        }
    }
}

#[test]
fn a_block_that_never_waits_for_the_launches_before_is_found() {
    let kernel = kernel("early", Block::d1(32), |k| {
        k.grid([k.constant(2), k.constant(1), k.constant(1)]);
        k.when(k.block_x().eq(1), || k.await_launches());
    });
    let outcome = run(&check(kernel).unwrap(), &[], &Config::default()).unwrap();
    let found: Vec<_> = errors(&outcome).iter().map(|f| (f.kind, f.block)).collect();
    assert_eq!(found, [(Kind::EarlyAccess, [0, 0, 0])], "{}", messages(&outcome));
}
