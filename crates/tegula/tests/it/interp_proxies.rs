//! What threads and the asynchronous proxy do to the same memory.

use tegula_interp::{Arg, Config, Kind, run};
use tegula_ir::prelude::*;

use super::interp_ops::{blocks, each_seed, empty, errors, finds, row_of};

/// How a thread's writes are made visible to the asynchronous proxy.
#[derive(Clone, Copy, PartialEq)]
enum Fenced {
    No,
    Yes,
    ByOneWriter,
    AfterTheBarrier,
}

/// Copies a tile of `x` to shared memory and reads it.
fn copied<'k>(k: &'k Builder, x: Tensor<'k, f32>, tile: Shared<'k, f32>, barriers: Barriers<'k>) -> Val<'k, f32> {
    k.when(k.thread_x().eq(0), || {
        barriers.expect(0, 256);
        tile.copy_tile_to((0, 0), x, (0, 0), (barriers, k.constant(0u32)), None);
    });
    barriers.wait(0, 0);
    tile.load((0u32, k.thread_x() / 8 % 8, k.thread_x() % 8))
}

const TILES: Tiles = Tiles { rows: 8, cols: 8, swizzle: Swizzle::None };

/// A tile in shared memory and a barrier that has begun.
fn tile_and_barrier(k: &Builder) -> (Shared<'_, f32>, Barriers<'_>) {
    let (tile, barriers) = (k.tiles::<f32>("tile", 1, [8, 8], Swizzle::None), k.barriers("ready", 1));
    k.when(k.thread_x().eq(0), || {
        barriers.init(0, 1);
        k.fence_init();
    });
    (tile, barriers)
}

#[test]
fn tile_copied_over_what_a_thread_wrote_needs_a_proxy_fence() {
    let kernel = |fenced: Fenced| {
        blocks(1, 64, |k| {
            let (x, y) = (k.tensor::<f32>("x", Access::Read, Order2d::RowMajor, TILES), k.output::<f32>("y"));
            let (tile, barriers) = tile_and_barrier(k);
            let t = k.thread_x();
            tile.store((0u32, t / 8, t % 8), 0f32);
            if fenced == Fenced::Yes {
                k.fence_proxy();
            }
            k.barrier();
            if fenced == Fenced::AfterTheBarrier {
                k.fence_proxy();
            }
            y.store((0, t), copied(k, x, tile, barriers));
        })
    };
    let args = || vec![row_of(&[1f32; 64]), empty::<f32>(64)];
    finds(Kind::MissingProxyFence, &kernel(Fenced::No), args);
    finds(Kind::MissingProxyFence, &kernel(Fenced::AfterTheBarrier), args);
    each_seed(&kernel(Fenced::Yes), args, |outcome, _| assert_eq!(outcome.error(), None));
}

#[test]
fn tile_stored_by_equal_writers_needs_a_proxy_fence_of_each() {
    let kernel = |fenced: Fenced| {
        blocks(1, 32, |k| {
            let c = k.tensor::<f32>("c", Access::Write, Order2d::RowMajor, TILES);
            let (tile, t) = (k.tiles::<f32>("tile", 1, [8, 8], Swizzle::None), k.thread_x());
            k.when(t.lt(2), || k.for_each(0, 64, |i| tile.store((0u32, i / 8, i % 8), 0f32)));
            let who = if fenced == Fenced::ByOneWriter { t.eq(0) } else { t.lt(2) };
            k.when(who, || k.fence_proxy());
            k.barrier();
            k.when(t.eq(0), || {
                tile.store_tile(0u32, c, (0u32, 0u32));
                k.commit_stores();
                k.await_stores(0);
            });
        })
    };
    let args = || vec![row_of(&[0f32; 64])];
    finds(Kind::MissingProxyFence, &kernel(Fenced::ByOneWriter), args);
    each_seed(&kernel(Fenced::Yes), args, |outcome, _| assert_eq!(outcome.error(), None));
}

#[test]
fn tile_copied_by_one_block_and_stored_by_another_is_a_race() {
    for cluster in [1, 2] {
        let kernel = blocks(4, 64, |k| {
            k.cluster(cluster);
            let (x, y) = (k.tensor::<f32>("x", Access::Read, Order2d::RowMajor, TILES), k.output::<f32>("y"));
            let (tile, barriers) = tile_and_barrier(k);
            k.barrier();
            k.when(k.block_x().eq(0), || _ = copied(k, x, tile, barriers));
            k.when(k.block_x().eq(3), || y.store((0, k.thread_x()), 1f32));
        });
        for seed in 0..8 {
            let (one, other) = (row_of(&[7f32; 64]), row_of(&[0f32; 64]));
            let config = Config { seed, ..Config::default() };
            let outcome = run(&kernel, &[Arg::from(&one), Arg::from(&one)], &config).unwrap();
            assert!(outcome.error().is_some_and(|f| f.kind == Kind::Race), "{:?}", outcome.findings);
            assert_eq!(run(&kernel, &[Arg::from(&one), Arg::from(&other)], &config).unwrap().error(), None);
        }
    }
}

/// The kinds of what is found, on some seeds, where the first two parameters are one matrix.
fn in_place(kernel: &Checked<Kernel>) -> Vec<Kind> {
    let found = (0..8).flat_map(|seed| {
        let (x, flag, y) = (row_of(&[0f32; 64]), row_of(&[0u32]), empty::<f32>(64));
        let config = Config { seed, ..Config::default() };
        let outcome = run(kernel, &[&x, &x, &flag, &y].map(Arg::from), &config).unwrap();
        let kinds: Vec<_> = errors(&outcome).iter().map(|finding| finding.kind).collect();
        kinds
    });
    let mut kinds: Vec<_> = found.collect();
    kinds.sort_unstable();
    kinds.dedup();
    kinds
}

#[test]
fn tile_copied_from_what_the_launch_wrote_needs_a_proxy_fence_of_global_memory() {
    // Block 0 writes the matrix, and the last block copies a tile of it.
    let kernel = |count: u32, fenced: Fenced, global: bool| {
        blocks(count, 64, |k| {
            let x = k.tensor::<f32>("x", Access::Read, Order2d::RowMajor, TILES);
            let written = k.output::<f32>("written");
            let flag = k.matrix::<u32>("flag", Access::ReadWrite, Order2d::Strided, 1);
            let (y, t) = (k.output::<f32>("y"), k.thread_x());
            let (tile, barriers) = tile_and_barrier(k);
            k.when(k.block_x().eq(0), || {
                written.store((0, t), 1f32);
                if fenced == Fenced::Yes {
                    if global { k.fence_proxy_global() } else { k.fence_proxy() }
                }
            });
            k.barrier();
            k.when(k.block_x().eq(0) & t.eq(0), || {
                flag.store_ordered((0, 0), 1u32, Order::Release, Scope::Device);
            });
            k.when(k.block_x().eq(count - 1), || {
                flag.wait_until((0, 0), Compare::Eq, 1u32, Scope::Device);
                y.store((0, t), copied(k, x, tile, barriers));
            });
        })
    };
    for count in [1, 2] {
        assert_eq!(in_place(&kernel(count, Fenced::No, true)), [Kind::MissingProxyFence]);
        assert_eq!(in_place(&kernel(count, Fenced::Yes, false)), [Kind::MissingProxyFence]);
        assert_eq!(in_place(&kernel(count, Fenced::Yes, true)), []);
    }
}

#[test]
fn read_only_parameter_that_was_written_before_is_a_stale_read() {
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
    let found = |kernel: &Checked<Kernel>| {
        let (x, z) = (row_of(&[0u32; 64]), empty::<u32>(64));
        let outcome = run(kernel, &[Arg::from(&x), Arg::from(&x), Arg::from(&z)], &Config::default()).unwrap();
        outcome.error().map(|finding| (finding.kind, finding.message.clone()))
    };
    let (kind, message) = found(&kernel(false, Access::Read)).unwrap();
    assert_eq!(kind, Kind::StaleRead, "{message}");
    assert!(message.contains("reads x[0, ") && message.contains("`Access::ReadWrite`"), "{message}");
    assert_eq!(found(&kernel(true, Access::Read)), None);
    assert_eq!(found(&kernel(false, Access::ReadWrite)), None);
}
