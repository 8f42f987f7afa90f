//! Races that a fixed order of lanes, blocks or accesses would hide.

use tegula_interp::{Arg, Buffer, Config, FindingKind, run};
use tegula_ir::prelude::*;

use super::interp_ops::{assert_finds, blocks, empty, errors, for_each_seed, row_of};

/// Seeds with shuffled orders; seed 0 has the natural order.
const SEEDS: std::ops::Range<u64> = 1..33;

/// Checks that some seed finds a race.
#[track_caller]
fn some_seed_races(kernel: &Checked<Kernel>, args: impl Fn() -> Vec<Buffer>) {
    let races = |seed| {
        let (buffers, config) = (args(), Config { seed, ..Config::default() });
        let outcome = run(kernel, &buffers.iter().map(Arg::from).collect::<Vec<_>>(), &config).unwrap();
        errors(&outcome).iter().any(|finding| finding.kind == FindingKind::Race)
    };
    assert!(SEEDS.into_iter().any(races), "no seed finds a race");
}

/// Checks that no seed finds an error.
#[track_caller]
fn every_seed_is_clean(kernel: &Checked<Kernel>, args: impl Fn() -> Vec<Buffer>) {
    for seed in 0..SEEDS.end {
        let (buffers, config) = (args(), Config { seed, ..Config::default() });
        let outcome = run(kernel, &buffers.iter().map(Arg::from).collect::<Vec<_>>(), &config).unwrap();
        assert_eq!(outcome.error(), None, "seed {seed}");
    }
}

fn read_write<'k>(k: &'k Builder, name: &str) -> Global<'k, u32> {
    k.matrix(name, Access::ReadWrite, Order2d::Strided, 1)
}

#[test]
fn unordered_lanes_of_one_atomic_race() {
    let kernel = |checked: bool| {
        blocks(1, 32, |k| {
            let (y, flag, data) = (k.output::<u32>("y"), k.shared::<u32>("flag", [1]), k.shared::<u32>("data", [1]));
            k.when(k.lane().eq(0), || flag.store((0u32,), 0u32));
            k.barrier();
            k.when(k.lane().eq(0), || data.store((0u32,), 7u32));
            k.when(k.lane().lt(2), || {
                let before = flag.atomic(AtomicOp::Add, (0u32,), 1u32, MemoryOrder::AcqRel, Scope::Block);
                let second = k.lane().eq(1);
                k.when(if checked { second & before.eq(1) } else { second }, || {
                    y.store((0, 0), data.load((0u32,)));
                });
            });
        })
    };
    let args = || vec![empty::<u32>(1)];
    some_seed_races(&kernel(false), args);
    every_seed_is_clean(&kernel(true), args);
}

#[test]
fn unordered_lanes_of_one_release_race() {
    // Both lanes set the flag; which of the two writes the other warp observes is undefined.
    let kernel = blocks(1, 64, |k| {
        let (y, flag, data) = (k.output::<u32>("y"), k.shared::<u32>("flag", [1]), k.shared::<u32>("data", [2]));
        k.when(k.thread_x().eq(0), || flag.store((0u32,), 0u32));
        k.barrier();
        k.when(k.thread_x().lt(2), || {
            data.store((k.lane(),), 7u32);
            flag.store_ordered((0u32,), 1u32, MemoryOrder::Release, Scope::Block);
        });
        k.when(k.thread_x().eq(32), || {
            flag.wait_until((0u32,), Compare::Eq, 1u32, Scope::Block);
            y.store((0, 0), data.load((1u32,)));
        });
    });
    some_seed_races(&kernel, || vec![empty::<u32>(1)]);
}

#[test]
fn unordered_atomics_of_two_blocks_race() {
    for cluster in [1, 2] {
        let kernel = |checked: bool| {
            blocks(2, 32, |k| {
                k.cluster(cluster);
                let (x, y) = (read_write(k, "x"), k.output::<u32>("y"));
                k.when(k.lane().eq(0), || {
                    k.when(k.block_x().eq(0), || x.store((0, 0), 7u32));
                    let before = x.atomic(AtomicOp::Add, (0, 1), 1u32, MemoryOrder::AcqRel, Scope::Device);
                    let second = k.block_x().eq(1);
                    k.when(if checked { second & before.eq(1) } else { second }, || y.store((0, 0), x.load((0, 0))));
                });
            })
        };
        let args = || vec![row_of(&[0u32; 2]), empty::<u32>(1)];
        some_seed_races(&kernel(false), args);
        every_seed_is_clean(&kernel(true), args);
    }
}

#[test]
fn lanes_of_one_wait_may_continue_at_different_times() {
    // Lane 0 waits for 1. Flag 0 need not be 2 when lane 1 continues.
    let kernel = |expected: u32| {
        blocks(1, 96, |k| {
            let (y, flags, data) = (k.output::<u32>("y"), k.shared::<u32>("flags", [4]), k.shared::<u32>("data", [1]));
            let set = |at: u32, value: u32| flags.store_ordered((at,), value, MemoryOrder::Release, Scope::Block);
            let wait = |at: u32| flags.wait_until((at,), Compare::Ge, 1u32, Scope::Block);
            k.when(k.thread_x().lt(4), || flags.store((k.thread_x(),), 0u32));
            k.barrier();
            k.when(k.thread_x().lt(2), || {
                let value = (k.lane().eq(0)).select(expected, 1u32);
                flags.wait_until((k.lane(),), Compare::Ge, value, Scope::Block);
                k.when(k.lane().eq(0), || y.store((0, 0), data.load((0u32,))));
            });
            k.when(k.thread_x().eq(32), || {
                set(0, 1);
                set(2, 1);
                wait(3);
                data.store((0u32,), 7u32);
                set(0, 2);
                set(1, 1);
            });
            k.when(k.thread_x().eq(64), || {
                wait(2);
                set(3, 1);
            });
        })
    };
    let args = || vec![empty::<u32>(1)];
    some_seed_races(&kernel(1), args);
    every_seed_is_clean(&kernel(2), args);
}

#[test]
fn equal_stores_race_with_equal_stores_of_another_instruction() {
    // Lane 0 is ordered with lanes 1 and 2, which are unordered with each other.
    let kernel = |whole: bool| {
        blocks(1, 32, |k| {
            let s = k.shared::<u32>("s", [1]);
            let in_lanes = |lanes: u32, body: &dyn Fn()| k.when(((k.constant(lanes) >> k.lane()) & 1).eq(1), body);
            in_lanes(0b011, &|| s.store((0u32,), 7u32));
            in_lanes(0b101, &|| k.sync_warp(0b101));
            in_lanes(0b011, &|| k.sync_warp(0b011));
            if whole {
                k.sync_warp(FULL_WARP);
            }
            in_lanes(0b110, &|| s.store((0u32,), 7u32));
        })
    };
    assert_finds(FindingKind::Race, &kernel(false), Vec::new);
    for_each_seed(&kernel(true), Vec::new, |outcome, _| assert_eq!(outcome.error(), None));
}

#[test]
fn acquire_release_atomic_publishes_what_it_acquired() {
    // The relaxed store ends the chain of the first release and continues the atomic operation's
    // own.
    let kernel = |order: MemoryOrder| {
        blocks(1, 96, |k| {
            let (x, y, t) = (read_write(k, "x"), k.output::<u32>("y"), k.thread_x());
            k.when(t.eq(0), || {
                x.store((0, 0), 7u32);
                x.store_ordered((0, 1), 1u32, MemoryOrder::Release, Scope::Block);
            });
            k.when(t.eq(32), || {
                let polls = k.var(0u32);
                let load = || x.load_ordered((0, 1), MemoryOrder::Relaxed, Scope::Block);
                k.while_loop(|| load().ne(1), || polls.set(polls.get() + 1));
                x.atomic(AtomicOp::Add, (0, 1), 1u32, order, Scope::Block);
                x.store_ordered((0, 1), 3u32, MemoryOrder::Relaxed, Scope::Block);
            });
            k.when(t.eq(64), || {
                x.wait_until((0, 1), Compare::Eq, 3u32, Scope::Block);
                y.store((0, 0), x.load((0, 0)));
            });
        })
    };
    let args = || vec![row_of(&[0u32; 2]), empty::<u32>(1)];
    assert_finds(FindingKind::Race, &kernel(MemoryOrder::Release), args);
    for_each_seed(&kernel(MemoryOrder::AcqRel), args, |outcome, _| assert_eq!(outcome.error(), None));
}
