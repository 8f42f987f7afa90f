//! Accesses of threads and the asynchronous proxy to the same memory.

use tegula_interp::{Arg, Config, FindingKind, run};
use tegula_ir::prelude::*;

use super::interp_ops::{assert_finds, blocks, empty, errors, for_each_seed, row_of};

/// Placement of the proxy fence after a thread's writes.
#[derive(Clone, Copy, PartialEq)]
enum FencePlacement {
    None,
    Correct,
    ByOneWriter,
    AfterTheBarrier,
}

/// Loads a tile of `x` to shared memory by TMA, and returns one element per thread.
fn load_tile<'k>(k: &'k Builder, x: Tensor<'k, f32>, tile: Shared<'k, f32>, barriers: Mbarriers<'k>) -> Val<'k, f32> {
    k.when(k.thread_x().eq(0), || {
        barriers.arrive_expect_tx(0, 256);
        tile.tma_load_multicast((0, 0), x, (0, 0), (barriers, k.constant(0u32)), None);
    });
    barriers.wait(0, 0);
    tile.load((0u32, k.thread_x() / 8 % 8, k.thread_x() % 8))
}

const TILES: Tiles = Tiles { rows: 8, cols: 8, swizzle: Swizzle::None, clipped: false };

/// A tile in shared memory and an initialized mbarrier.
fn tile_and_barrier(k: &Builder) -> (Shared<'_, f32>, Mbarriers<'_>) {
    let (tile, barriers) = (k.tiles::<f32>("tile", 1, [8, 8], Swizzle::None), k.mbarriers("ready", 1));
    k.when(k.thread_x().eq(0), || {
        barriers.init(0, 1);
        k.fence_mbarrier_init();
    });
    (tile, barriers)
}

#[test]
fn tma_load_over_a_written_tile_needs_a_proxy_fence() {
    let kernel = |fence: FencePlacement| {
        blocks(1, 64, |k| {
            let (x, y) = (k.tensor::<f32>("x", Access::Read, Order2d::RowMajor, TILES), k.output::<f32>("y"));
            let (tile, barriers) = tile_and_barrier(k);
            let t = k.thread_x();
            tile.store((0u32, t / 8, t % 8), 0f32);
            if fence == FencePlacement::Correct {
                k.fence_proxy_async();
            }
            k.barrier();
            if fence == FencePlacement::AfterTheBarrier {
                k.fence_proxy_async();
            }
            y.store((0, t), load_tile(k, x, tile, barriers));
        })
    };
    let args = || vec![row_of(&[1f32; 64]), empty::<f32>(64)];
    assert_finds(FindingKind::MissingProxyFence, &kernel(FencePlacement::None), args);
    assert_finds(FindingKind::MissingProxyFence, &kernel(FencePlacement::AfterTheBarrier), args);
    for_each_seed(&kernel(FencePlacement::Correct), args, |outcome, _| assert_eq!(outcome.error(), None));
}

#[test]
fn tma_store_of_equal_writes_needs_a_proxy_fence_per_writer() {
    let kernel = |fence: FencePlacement| {
        blocks(1, 32, |k| {
            let c = k.tensor::<f32>("c", Access::Write, Order2d::RowMajor, TILES);
            let (tile, t) = (k.tiles::<f32>("tile", 1, [8, 8], Swizzle::None), k.thread_x());
            k.when(t.lt(2), || k.for_each(0, 64, |i| tile.store((0u32, i / 8, i % 8), 0f32)));
            let fencing_threads = if fence == FencePlacement::ByOneWriter { t.eq(0) } else { t.lt(2) };
            k.when(fencing_threads, || k.fence_proxy_async());
            k.barrier();
            k.when(t.eq(0), || {
                tile.tma_store(0u32, c, (0u32, 0u32));
                k.bulk_commit_group();
                k.bulk_wait_group(0);
            });
        })
    };
    let args = || vec![row_of(&[0f32; 64])];
    assert_finds(FindingKind::MissingProxyFence, &kernel(FencePlacement::ByOneWriter), args);
    for_each_seed(&kernel(FencePlacement::Correct), args, |outcome, _| assert_eq!(outcome.error(), None));
}

#[test]
fn tile_loaded_by_one_block_and_written_by_another_is_a_race() {
    for cluster in [1, 2] {
        let kernel = blocks(4, 64, |k| {
            k.cluster(cluster);
            let (x, y) = (k.tensor::<f32>("x", Access::Read, Order2d::RowMajor, TILES), k.output::<f32>("y"));
            let (tile, barriers) = tile_and_barrier(k);
            k.barrier();
            k.when(k.block_x().eq(0), || _ = load_tile(k, x, tile, barriers));
            k.when(k.block_x().eq(3), || y.store((0, k.thread_x()), 1f32));
        });
        for seed in 0..8 {
            let (buffer, other) = (row_of(&[7f32; 64]), row_of(&[0f32; 64]));
            let config = Config { seed, ..Config::default() };
            let outcome = run(&kernel, &[Arg::from(&buffer), Arg::from(&buffer)], &config).unwrap();
            assert!(outcome.error().is_some_and(|f| f.kind == FindingKind::Race), "{:?}", outcome.findings);
            assert_eq!(run(&kernel, &[Arg::from(&buffer), Arg::from(&other)], &config).unwrap().error(), None);
        }
    }
}

/// Kinds of findings on several seeds, with the first two parameters bound to one matrix.
fn aliased_findings(kernel: &Checked<Kernel>) -> Vec<FindingKind> {
    let finding = (0..8).flat_map(|seed| {
        let (x, flag, y) = (row_of(&[0f32; 64]), row_of(&[0u32]), empty::<f32>(64));
        let config = Config { seed, ..Config::default() };
        let outcome = run(kernel, &[&x, &x, &flag, &y].map(Arg::from), &config).unwrap();
        let kinds: Vec<_> = errors(&outcome).iter().map(|finding| finding.kind).collect();
        kinds
    });
    let mut kinds: Vec<_> = finding.collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[test]
fn tma_load_of_written_global_memory_needs_a_global_proxy_fence() {
    // Block 0 writes the matrix, and the last block copies a tile of it.
    let kernel = |count: u32, fence: FencePlacement, global: bool| {
        blocks(count, 64, |k| {
            let x = k.tensor::<f32>("x", Access::Read, Order2d::RowMajor, TILES);
            let written = k.output::<f32>("written");
            let flag = k.matrix::<u32>("flag", Access::ReadWrite, Order2d::Strided, 1);
            let (y, t) = (k.output::<f32>("y"), k.thread_x());
            let (tile, barriers) = tile_and_barrier(k);
            k.when(k.block_x().eq(0), || {
                written.store((0, t), 1f32);
                if fence == FencePlacement::Correct {
                    if global { k.fence_proxy_async_global() } else { k.fence_proxy_async() }
                }
            });
            k.barrier();
            k.when(k.block_x().eq(0) & t.eq(0), || {
                flag.store_ordered((0, 0), 1u32, MemoryOrder::Release, Scope::Device);
            });
            k.when(k.block_x().eq(count - 1), || {
                flag.wait_until((0, 0), Compare::Eq, 1u32, Scope::Device);
                y.store((0, t), load_tile(k, x, tile, barriers));
            });
        })
    };
    for count in [1, 2] {
        assert_eq!(aliased_findings(&kernel(count, FencePlacement::None, true)), [FindingKind::MissingProxyFence]);
        assert_eq!(aliased_findings(&kernel(count, FencePlacement::Correct, false)), [FindingKind::MissingProxyFence]);
        assert_eq!(aliased_findings(&kernel(count, FencePlacement::Correct, true)), []);
    }
}

#[test]
fn read_of_a_written_read_only_parameter_is_a_stale_read() {
    let kernel = |reads_first: bool, access: Access| {
        blocks(1, 64, |k| {
            let x = k.matrix::<u32>("x", access, Order2d::Strided, 1);
            let (y, z, t) = (k.output::<u32>("y"), k.output::<u32>("z"), k.thread_x());
            if reads_first {
                let value = x.load((0, t));
                k.barrier();
                y.store((0, t ^ 1), value + 1);
            } else {
                y.store((0, t), 1u32);
                k.barrier();
                z.store((0, t), x.load((0, t ^ 1)));
            }
        })
    };
    let finding = |kernel: &Checked<Kernel>| {
        let (x, z) = (row_of(&[0u32; 64]), empty::<u32>(64));
        let outcome = run(kernel, &[Arg::from(&x), Arg::from(&x), Arg::from(&z)], &Config::default()).unwrap();
        outcome.error().map(|finding| (finding.kind, finding.message.clone()))
    };
    let (kind, message) = finding(&kernel(false, Access::Read)).unwrap();
    assert_eq!(kind, FindingKind::StaleRead, "{message}");
    assert!(message.contains("reads x[0, ") && message.contains("`Access::ReadWrite`"), "{message}");
    assert_eq!(finding(&kernel(true, Access::Read)), None);
    assert_eq!(finding(&kernel(false, Access::ReadWrite)), None);
}
