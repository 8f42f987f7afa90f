//! Divergent lanes progress regardless of the waits, and kernels without progress are found.

use tegula_interp::{Config, FindingKind, run};
use tegula_ir::prelude::*;

use super::interp_ops::{assert_finds, assert_result, blocks, empty, errors, for_each_seed, values};

/// A kernel of one warp with zeroed flags in shared memory, and a result per lane.
fn with_flag(build: impl for<'k> FnOnce(&'k Builder, Shared<'k, u32>, Global<'k, u32>)) -> Checked<Kernel> {
    blocks(1, 32, |k| {
        let (y, flag) = (k.output::<u32>("y"), k.shared::<u32>("flag", [33]));
        flag.store((k.lane(),), 0u32);
        k.when(k.lane().eq(0), || flag.store((32u32,), 0u32));
        k.barrier();
        build(k, flag, y);
    })
}

fn set<'k>(flag: Shared<'k, u32>, at: impl IntoVal<'k, u32>) {
    flag.store_ordered((at,), 1u32, MemoryOrder::Release, Scope::Block);
}

fn wait<'k>(flag: Shared<'k, u32>, at: impl IntoVal<'k, u32>) {
    flag.wait_until((at,), Compare::Eq, 1u32, Scope::Block);
}

#[test]
fn branch_waiting_for_the_other_branch_progresses() {
    for first_waits in [true, false] {
        let kernel = with_flag(|k, flag, y| {
            let waits = if first_waits { k.lane().eq(0) } else { k.lane().ne(0) };
            k.if_else(waits, || wait(flag, 0), || k.when(k.lane().lt(2), || set(flag, 0)));
            y.store((0, k.lane()), k.lane());
        });
        assert_result(&kernel, || vec![empty::<u32>(32)], &(0..32).collect::<Vec<u32>>());
    }
}

#[test]
fn lanes_at_the_end_of_a_branch_continue_while_others_wait_for_them() {
    let kernel = with_flag(|k, flag, y| {
        k.when(k.lane().ne(5), || {
            wait(flag, 0);
            y.store((0, k.lane()), 7u32);
        });
        k.when(k.lane().eq(5), || {
            y.store((0, k.lane()), 8u32);
            set(flag, 0);
        });
    });
    let expected: Vec<u32> = (0..32).map(|lane| if lane == 5 { 8 } else { 7 }).collect();
    assert_result(&kernel, || vec![empty::<u32>(32)], &expected);
}

#[test]
fn lanes_continue_before_lanes_that_wait_for_them() {
    let kernel = with_flag(|k, flag, y| {
        k.when(k.lane().eq(0), || set(flag, 0));
        k.sync_warp(FULL_WARP);
        wait(flag, k.lane());
        set(flag, k.lane() + 1);
        y.store((0, k.lane()), flag.load_ordered((k.lane() + 1,), MemoryOrder::Relaxed, Scope::Block));
    });
    assert_result(&kernel, || vec![empty::<u32>(32)], &[1u32; 32]);
}

/// Lanes of one warp take a spin lock in any order, and each increments a counter.
#[test]
fn spin_lock_within_a_warp_admits_every_lane() {
    let kernel = blocks(1, 32, |k| {
        let (y, lock, count) = (k.output::<u32>("y"), k.shared::<u32>("lock", [1]), k.shared::<u32>("count", [1]));
        k.when(k.lane().eq(0), || {
            lock.store((0u32,), 0u32);
            count.store((0u32,), 0u32);
        });
        k.barrier();
        let free = AtomicOp::CompareExchange { expected: k.constant(0u32).id() };
        k.while_loop(|| lock.atomic(free, (0u32,), 1u32, MemoryOrder::AcqRel, Scope::Block).ne(0), || ());
        count.store((0u32,), count.load((0u32,)) + 1);
        lock.atomic(AtomicOp::Swap, (0u32,), 0u32, MemoryOrder::AcqRel, Scope::Block);
        k.barrier();
        y.store((0, k.lane()), count.load((0u32,)));
    });
    assert_result(&kernel, || vec![empty::<u32>(32)], &[32u32; 32]);
}

#[test]
fn lanes_of_two_branches_synchronize_at_sync_warp() {
    let kernel = blocks(1, 32, |k| {
        let (y, s) = (k.output::<u32>("y"), k.shared::<u32>("s", [32]));
        let other = || s.load((k.lane() ^ 16,));
        let exchange = |mask| {
            s.store((k.lane(),), k.lane());
            k.sync_warp(mask);
            y.store((0, k.lane()), other());
        };
        // All lanes except the last of each half.
        let mask = 0x7fff_7fff;
        k.when((k.lane() & 15).ne(15), || {
            k.if_else(k.lane().lt(16), || exchange(mask), || exchange(mask));
        });
        k.when((k.lane() & 15).eq(15), || y.store((0, k.lane()), 0u32));
    });
    let expected: Vec<u32> = (0..32).map(|lane| if lane % 16 == 15 { 0 } else { lane ^ 16 }).collect();
    assert_result(&kernel, || vec![empty::<u32>(32)], &expected);
}

#[test]
fn manual_polling_loop_ends_after_the_store_of_another_warp() {
    let kernel = blocks(1, 64, |k| {
        let (y, flag) = (k.output::<u32>("y"), k.shared::<u32>("flag", [1]));
        k.when(k.thread_x().eq(0), || flag.store((0u32,), 0u32));
        k.barrier();
        k.if_else(
            k.warp().eq(0),
            || {
                let polls = k.var(0u32);
                let load = || flag.load_ordered((0u32,), MemoryOrder::Acquire, Scope::Block);
                k.while_loop(|| load().ne(1), || polls.set(polls.get() + 1));
            },
            || k.when(k.lane().eq(3), || set(flag, 0)),
        );
        y.store((0, k.thread_x()), 1u32);
    });
    assert_result(&kernel, || vec![empty::<u32>(64)], &[1u32; 64]);
}

#[test]
fn blocks_that_poll_for_each_other_end() {
    let kernel = blocks(3, 32, |k| {
        let (y, flags) = (k.output::<u32>("y"), k.matrix::<u32>("flags", Access::ReadWrite, Order2d::Strided, 1));
        let last = k.block_x().eq(2);
        let next = (k.block_x() + 1).min(2);
        k.when(!last, || {
            let load = || flags.load_ordered((0, next), MemoryOrder::Acquire, Scope::Device);
            k.while_loop(|| load().eq(0), || ());
        });
        k.when(k.lane().eq(0), || {
            y.store((0, k.block_x()), k.block_x());
            flags.store_ordered((0, k.block_x()), 1u32, MemoryOrder::Release, Scope::Device);
        });
    });
    let args = || vec![empty::<u32>(3), super::interp_ops::row_of(&[0u32; 3])];
    for_each_seed(&kernel, args, |outcome, buffers| {
        assert_eq!(outcome.error(), None);
        assert_eq!(values::<u32>(&buffers[0]), [0, 1, 2]);
    });
}

#[test]
fn endless_loops_are_found_with_their_line() {
    let line = line!() + 2;
    let forever = blocks(1, 64, |k| {
        k.while_loop(|| k.constant(0u32).eq(k.thread_x() - k.thread_x()), || ());
    });
    for_each_seed(&forever, Vec::new, |outcome, _| {
        let found = errors(outcome);
        assert_eq!(
            found.iter().map(|f| f.kind).collect::<Vec<_>>(),
            [FindingKind::NoProgress],
            "{:?}",
            outcome.findings
        );
        assert_eq!((found[0].source[0].file(), found[0].source[0].line()), (file!(), line));
    });
    let polling = with_flag(|k, flag, _| {
        k.while_loop(|| flag.load_ordered((0u32,), MemoryOrder::Acquire, Scope::Block).ne(1), || ());
    });
    assert_finds(FindingKind::NoProgress, &polling, || vec![empty::<u32>(32)]);
}

#[test]
fn loop_over_the_step_limit_is_found() {
    let counting = blocks(2, 32, |k| {
        let count = k.var(0u32);
        k.while_loop(|| (count.get() | 1).ne(0), || count.set(count.get() + 1));
    });
    let config = Config { steps: 200_000, ..Config::default() };
    let outcome = run(&counting, &[], &config).unwrap();
    assert_eq!(errors(&outcome).iter().map(|f| f.kind).collect::<Vec<_>>(), [FindingKind::NoProgress]);
    assert!(outcome.findings[0].message.contains("200000 instructions"), "{}", outcome.findings[0].message);
}
