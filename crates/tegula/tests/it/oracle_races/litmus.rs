//! Litmus tests of the memory model. The races of each are listed by hand. Interpreter and oracle
//! must both report them, on many schedules.

use std::collections::BTreeSet;

use Array::{Alias, GlobalData, GlobalFlags, SharedData, SharedFlags, Stored, Tiles};
use MemoryOrder::{AcqRel, Acquire, Relaxed, Release, Weak};
use Scope::{Block, Device};
use tegula_ir::{AtomicOp, Compare, MemoryOrder, Scope};

use super::generate::compare_exchange;
use super::model::{self, Pairs, Rules};
use super::program::{AccessGuard, Array, ElementRange, Node, Op, Program, Step, Threads};
use super::{KNOWN_DIFFERENCES, ReportedRace, interpret};

const SCHEDULES: u64 = 24;

/// A program, and its racing elements.
struct Litmus {
    name: &'static str,
    blocks: u32,
    threads: u32,
    steps: Vec<Step>,
    race: &'static [(Array, u32)],
    unfenced: &'static [(Array, u32)],
    cluster: u32,
}

/// One thread.
fn thread(block: u32, thread: u32) -> Threads {
    Threads { blocks: 1 << block, warps: 1 << (thread / 32), lanes: 1 << (thread % 32) }
}

fn warp(warp: u32) -> Threads {
    Threads { warps: 1 << warp, ..Threads::ALL }
}

impl Litmus {
    fn new(name: &'static str, blocks: u32, threads: u32, steps: &[(Threads, Op)]) -> Self {
        let steps = steps.iter().map(|&(threads, op)| Step { threads, op }).collect();
        Litmus { name, blocks, threads, steps, race: &[], unfenced: &[], cluster: 1 }
    }

    fn races_at(self, race: &'static [(Array, u32)]) -> Self {
        Litmus { race, ..self }
    }

    fn unfenced_at(self, unfenced: &'static [(Array, u32)]) -> Self {
        Litmus { unfenced, ..self }
    }

    /// A program for two blocks in a cluster.
    fn in_cluster(name: &'static str, threads: u32, steps: &[(Threads, Op)]) -> Self {
        Litmus { cluster: 2, ..Litmus::new(name, 2, threads, steps) }
    }

    fn check(self) {
        let known = KNOWN_DIFFERENCES.iter().find(|(name, _)| *name == self.name);
        if let Some((name, why)) = known {
            println!("compared with the oracle only: {name}: {why}");
        }
        let first = [(thread(0, 0), Op::Init), (Threads::ALL, Op::Barrier)];
        let first = first.map(|(threads, op)| Step { threads: Threads { blocks: u32::MAX, ..threads }, op });
        // No block starts before the mbarriers of the other are initialized, or ends before the
        // last remote access.
        let cluster_sync = [Op::ClusterArrive, Op::ClusterWait].map(|op| Step { threads: Threads::ALL, op });
        let cluster_sync = if self.cluster > 1 { &cluster_sync[..] } else { &[] };
        let nodes =
            [&first, cluster_sync, &self.steps[..], cluster_sync].concat().into_iter().map(Node::Step).collect();
        let program = Program { blocks: self.blocks, cluster: self.cluster, threads: self.threads, nodes };
        for seed in 0..SCHEDULES {
            let all = model::races(&program, Rules::ALL, seed).unwrap_or_else(|| panic!("{} deadlocks", self.name));
            let elements = |pairs: &Pairs| {
                let all: BTreeSet<_> = pairs.keys().map(|&(_, array, index)| (array, index)).collect();
                all.into_iter().collect::<Vec<_>>()
            };
            let oracle = elements(&all.races);
            assert_eq!(oracle, self.race, "{}: the oracle, schedule {seed}\n{program}", self.name);
            assert_eq!(elements(&all.unfenced), self.unfenced, "{}: the oracle, schedule {seed}\n{program}", self.name);
            if known.is_some() {
                continue;
            }
            let found = interpret(&program, seed).unwrap();
            assert!(found.others.is_empty(), "{}: {:#?}", self.name, found.others);
            let elements = |found: &[ReportedRace]| {
                let all: BTreeSet<_> = found.iter().map(|race| (race.element.1, race.element.2)).collect();
                all.into_iter().collect::<Vec<_>>()
            };
            let context = format!("{}: the interpreter, seed {seed}: {found:#?}\n{program}", self.name);
            let races = elements(&found.races);
            // For a tile, the finding names the first element alone.
            let is_tile = self.race.len() > 1 && self.race.iter().all(|&(array, _)| array == Tiles);
            assert_eq!(
                if is_tile { self.race.iter().take(races.len()).copied().collect() } else { self.race.to_vec() },
                races,
                "{context}"
            );
            assert_eq!(races.is_empty(), self.race.is_empty(), "{context}");
            assert_eq!(elements(&found.unfenced), self.unfenced, "{context}");
        }
    }
}

fn load(array: Array, index: u32) -> Op {
    Op::Read { at: ElementRange::cell(array, index), order: Weak, scope: Block }
}

fn store(array: Array, index: u32) -> Op {
    Op::Write { at: ElementRange::cell(array, index), value: 1, order: Weak, scope: Block }
}

fn store_ordered(array: Array, index: u32, value: u32, order: MemoryOrder, scope: Scope) -> Op {
    Op::Write { at: ElementRange::cell(array, index), value, order, scope }
}

fn load_ordered(array: Array, index: u32, order: MemoryOrder, scope: Scope) -> Op {
    Op::Read { at: ElementRange::cell(array, index), order, scope }
}

fn atomic_add(array: Array, index: u32, order: MemoryOrder, scope: Scope) -> Op {
    Op::Atomic { at: ElementRange::cell(array, index), op: AtomicOp::Add, value: 1, order, scope }
}

fn wait_flag(array: Array, index: u32, value: u32, scope: Scope) -> Op {
    Op::WaitFlag { at: ElementRange::cell(array, index), compare: Compare::Ge, values: [value; 3], scope }
}

fn copy_async(to: u32, from: u32) -> Op {
    Op::CopyAsync { to: ElementRange::cell(SharedData, to), from: ElementRange::cell(GlobalData, from) }
}

/// Message passing: thread 0 of block 0 writes data element 0 and publishes it. The reader is the
/// first thread of block 1, or of the next warp.
fn message(name: &'static str, blocks: u32, publish: &[Op], acquire: &[Op]) -> Litmus {
    let to = if blocks == 2 { thread(1, 0) } else { thread(0, 32) };
    let steps: Vec<_> = [store(GlobalData, 0)]
        .iter()
        .chain(publish)
        .map(|&op| (thread(0, 0), op))
        .chain(acquire.iter().chain(&[load(GlobalData, 0)]).map(|&op| (to, op)))
        .collect();
    Litmus::new(name, blocks, 64, &steps)
}

#[test]
fn message_passing_with_release_and_acquire_is_ordered() {
    for blocks in [1, 2] {
        let publish = [store_ordered(GlobalFlags, 0, 1, Release, Device)];
        message("message", blocks, &publish, &[wait_flag(GlobalFlags, 0, 1, Device)]).check();
        let publish = [atomic_add(GlobalFlags, 0, AcqRel, Device)];
        message("message by atomic", blocks, &publish, &[wait_flag(GlobalFlags, 0, 1, Scope::System)]).check();
    }
    let publish = [store_ordered(GlobalFlags, 0, 1, Release, Block)];
    message("message in a block", 1, &publish, &[wait_flag(GlobalFlags, 0, 1, Block)]).check();
    let steps = [
        (thread(0, 3), store(SharedData, 1)),
        (thread(0, 3), store_ordered(SharedFlags, 1, 1, Release, Block)),
        (thread(0, 40), wait_flag(SharedFlags, 1, 1, Block)),
        (thread(0, 40), store(SharedData, 1)),
    ];
    Litmus::new("message in shared memory", 1, 64, &steps).check();
}

#[test]
fn message_passing_by_a_relaxed_store_races() {
    for blocks in [1, 2] {
        let publish = [store_ordered(GlobalFlags, 0, 1, Relaxed, Device)];
        let acquire = [wait_flag(GlobalFlags, 0, 1, Device)];
        message("relaxed message", blocks, &publish, &acquire).races_at(&[(GlobalData, 0)]).check();
        let publish = [atomic_add(GlobalFlags, 0, Acquire, Device)];
        message("acquiring message", blocks, &publish, &acquire).races_at(&[(GlobalData, 0)]).check();
    }
}

#[test]
fn message_passing_by_a_fence_is_ordered() {
    for blocks in [1, 2] {
        let publish = [Op::Fence(Device), store_ordered(GlobalFlags, 0, 1, Relaxed, Device)];
        message("fence", blocks, &publish, &[wait_flag(GlobalFlags, 0, 1, Device)]).check();
        let publish = [Op::Fence(Device), atomic_add(GlobalFlags, 0, Relaxed, Device)];
        message("fence and atomic", blocks, &publish, &[wait_flag(GlobalFlags, 0, 1, Device)]).check();
    }
}

#[test]
fn message_passing_by_a_fence_after_the_flag_races() {
    let publish = [store_ordered(GlobalFlags, 0, 1, Relaxed, Device), Op::Fence(Device)];
    message("late fence", 2, &publish, &[wait_flag(GlobalFlags, 0, 1, Device)]).races_at(&[(GlobalData, 0)]).check();
}

#[test]
fn message_passing_by_a_block_scope_fence_races_between_blocks() {
    let publish = [Op::Fence(Block), store_ordered(GlobalFlags, 0, 1, Relaxed, Device)];
    message("fence of block scope", 2, &publish, &[wait_flag(GlobalFlags, 0, 1, Device)])
        .races_at(&[(GlobalData, 0)])
        .check();
    message("fence of block scope", 1, &publish, &[wait_flag(GlobalFlags, 0, 1, Device)]).check();
}

#[test]
fn message_passing_with_narrow_scopes_races_at_data_and_flag() {
    for (release, acquire) in [(Block, Device), (Device, Block), (Block, Block)] {
        let publish = [store_ordered(GlobalFlags, 0, 1, Release, release)];
        let narrow = message("narrow scope", 2, &publish, &[wait_flag(GlobalFlags, 0, 1, acquire)]);
        narrow.races_at(&[(GlobalData, 0), (GlobalFlags, 0)]).check();
        let publish = [store_ordered(GlobalFlags, 0, 1, Release, release)];
        message("scope wide enough", 1, &publish, &[wait_flag(GlobalFlags, 0, 1, acquire)]).check();
    }
}

#[test]
fn causality_passes_through_a_third_thread() {
    for (blocks, second, third) in
        [(3, thread(1, 0), thread(2, 0)), (2, thread(0, 40), thread(1, 0)), (1, thread(0, 1), thread(0, 33))]
    {
        let steps = [
            (thread(0, 0), store(GlobalData, 0)),
            (thread(0, 0), store_ordered(GlobalFlags, 0, 1, Release, Device)),
            (second, wait_flag(GlobalFlags, 0, 1, Device)),
            (second, store_ordered(GlobalFlags, 1, 1, Release, Device)),
            (third, wait_flag(GlobalFlags, 1, 1, Device)),
            (third, store(GlobalData, 0)),
        ];
        Litmus::new("two hops", blocks, 64, &steps).check();
        let mut relaxed = steps;
        relaxed[3].1 = store_ordered(GlobalFlags, 1, 1, Relaxed, Device);
        Litmus::new("second hop relaxed", blocks, 64, &relaxed).races_at(&[(GlobalData, 0)]).check();
    }
}

/// A barrier or a narrow release also publishes accesses acquired from another block.
#[test]
fn causality_crosses_scopes() {
    let steps = |hop: &[(Threads, Op)]| {
        let first = [
            (thread(1, 7), store(GlobalData, 0)),
            (thread(1, 7), store_ordered(GlobalFlags, 0, 1, Release, Device)),
            (thread(0, 0), wait_flag(GlobalFlags, 0, 1, Device)),
        ];
        [&first, hop, &[(thread(0, 33), load(GlobalData, 0))]].concat()
    };
    let all = Threads { blocks: 1, ..Threads::ALL };
    Litmus::new("by a barrier", 2, 64, &steps(&[(all, Op::Barrier)])).check();
    let narrow = [
        (thread(0, 0), store_ordered(SharedFlags, 0, 1, Release, Block)),
        (thread(0, 33), wait_flag(SharedFlags, 0, 1, Block)),
    ];
    Litmus::new("by a narrow release", 2, 64, &steps(&narrow)).check();
    Litmus::new("without a hop", 2, 64, &steps(&[])).races_at(&[(GlobalData, 0)]).check();
}

#[test]
fn release_sequences_continue_through_atomics() {
    let steps = |second: Op| {
        [
            (thread(0, 0), store(GlobalData, 0)),
            (thread(0, 0), store_ordered(GlobalFlags, 0, 1, Release, Device)),
            (thread(1, 0), wait_flag(GlobalFlags, 0, 1, Device)),
            (thread(1, 0), second),
            (thread(2, 0), wait_flag(GlobalFlags, 0, 2, Device)),
            (thread(2, 0), load(GlobalData, 0)),
        ]
    };
    Litmus::new("relaxed atomic", 3, 1, &steps(atomic_add(GlobalFlags, 0, Relaxed, Device))).check();
    Litmus::new("acquiring atomic", 3, 1, &steps(atomic_add(GlobalFlags, 0, Acquire, Device))).check();
    Litmus::new("release in between", 3, 1, &steps(store_ordered(GlobalFlags, 0, 2, Release, Device))).check();
    let broken = steps(store_ordered(GlobalFlags, 0, 2, Relaxed, Device));
    Litmus::new("relaxed store", 3, 1, &broken).races_at(&[(GlobalData, 0)]).check();
}

#[test]
fn release_sequences_end_at_an_atomic_of_block_scope() {
    let steps = [
        (thread(0, 0), store(GlobalData, 0)),
        (thread(0, 0), store_ordered(GlobalFlags, 0, 1, Release, Device)),
        (thread(1, 0), wait_flag(GlobalFlags, 0, 1, Device)),
        (thread(1, 0), atomic_add(GlobalFlags, 0, Relaxed, Block)),
        (thread(1, 1), wait_flag(GlobalFlags, 0, 2, Device)),
        (thread(1, 1), load(GlobalData, 0)),
    ];
    // The atomic operation and the release are not morally strong, so the atomic does not observe
    // the release. It does not race either, since it is ordered after it.
    Litmus::new("atomic of block scope", 2, 2, &steps).races_at(&[(GlobalData, 0)]).check();
}

/// Of the releases to a counter, an acquire observes those within its scope.
#[test]
fn acquires_of_block_scope_see_releases_of_that_block() {
    let steps = |last: Threads, cell| {
        [
            (thread(0, 0), store(GlobalData, 0)),
            (thread(1, 0), store(GlobalData, 1)),
            (thread(0, 0), atomic_add(GlobalFlags, 0, Release, Device)),
            (thread(1, 0), atomic_add(GlobalFlags, 0, Release, Device)),
            (last, wait_flag(GlobalFlags, 0, 2, Block)),
            (last, load(GlobalData, cell)),
        ]
    };
    let race = &[(GlobalData, 0), (GlobalFlags, 0)];
    Litmus::new("release out of scope", 2, 2, &steps(thread(1, 1), 0)).races_at(race).check();
    let fence = [
        (thread(0, 0), store(GlobalData, 0)),
        (thread(1, 0), atomic_add(GlobalFlags, 0, Release, Device)),
        (thread(0, 0), atomic_add(GlobalFlags, 0, Release, Device)),
        (thread(1, 1), atomic_add(GlobalFlags, 0, Relaxed, Device)),
        (thread(1, 1), Op::Fence(Block)),
        (thread(1, 1), load(GlobalData, 0)),
    ];
    Litmus::new("release out of scope of the fence", 2, 2, &fence).races_at(&[(GlobalData, 0)]).check();
}

/// A release pattern includes the thread's own later strong writes to the same flag.
#[test]
fn release_patterns_include_a_later_relaxed_store() {
    let publish =
        [store_ordered(GlobalFlags, 0, 1, Release, Device), store_ordered(GlobalFlags, 0, 2, Relaxed, Device)];
    message("release, then relaxed", 2, &publish, &[wait_flag(GlobalFlags, 0, 2, Device)]).check();
    let publish =
        [store_ordered(GlobalFlags, 0, 1, Release, Device), store_ordered(GlobalFlags, 1, 1, Relaxed, Device)];
    let elsewhere = message("release of another flag", 2, &publish, &[wait_flag(GlobalFlags, 1, 1, Device)]);
    elsewhere.races_at(&[(GlobalData, 0)]).check();
}

#[test]
fn counter_increments_publish_for_each_incrementing_thread() {
    let steps = |order| {
        [
            (
                warp(0),
                Op::Write {
                    at: ElementRange { stride: 1, ..ElementRange::cell(GlobalData, 0) },
                    value: 1,
                    order: Weak,
                    scope: Block,
                },
            ),
            (thread(0, 8), Op::Fence(Device)),
            (Threads { lanes: 1 << 3 | 1 << 5, ..warp(0) }, atomic_add(GlobalFlags, 2, order, Device)),
            (thread(0, 32), wait_flag(GlobalFlags, 2, 2, Device)),
            (thread(0, 32), load(GlobalData, 3)),
            (thread(0, 32), load(GlobalData, 5)),
        ]
    };
    let lanes = Threads { lanes: 0xff, ..warp(0) };
    let eight = |order| {
        let mut steps = steps(order);
        steps[0].0 = lanes;
        steps
    };
    Litmus::new("released counter", 1, 64, &eight(Release)).check();
    Litmus::new("relaxed counter", 1, 64, &eight(Relaxed)).races_at(&[(GlobalData, 3), (GlobalData, 5)]).check();
}

/// Two readers may disagree on the order of two independent writes. That is no race, and it orders
/// no other access.
#[test]
fn independent_reads_of_independent_writes_do_not_race() {
    let steps = [
        (thread(0, 0), store_ordered(GlobalData, 0, 1, Relaxed, Device)),
        (thread(1, 0), store_ordered(GlobalData, 1, 1, Relaxed, Device)),
        (thread(0, 32), load_ordered(GlobalData, 0, Acquire, Device)),
        (thread(0, 32), load_ordered(GlobalData, 1, Acquire, Device)),
        (thread(1, 32), load_ordered(GlobalData, 1, Acquire, Device)),
        (thread(1, 32), load_ordered(GlobalData, 0, Acquire, Device)),
    ];
    Litmus::new("independent reads", 2, 64, &steps).check();
    let mut weak = steps;
    weak[5].1 = load(GlobalData, 0);
    Litmus::new("one of them weak", 2, 64, &weak).races_at(&[(GlobalData, 0)]).check();
}

#[test]
fn atomics_of_narrow_scopes_race() {
    for (scopes, race) in [([Device, Device], false), ([Block, Device], true), ([Block, Block], true)] {
        let steps = [
            (thread(0, 0), atomic_add(GlobalData, 4, Relaxed, scopes[0])),
            (thread(1, 0), atomic_add(GlobalData, 4, Relaxed, scopes[1])),
        ];
        let race: &[_] = if race { &[(GlobalData, 4)] } else { &[] };
        Litmus::new("atomics", 2, 1, &steps).races_at(race).check();
    }
    for last in [load_ordered(GlobalData, 4, Relaxed, Block), atomic_add(GlobalData, 4, Relaxed, Block)] {
        let steps = [
            (thread(0, 0), atomic_add(GlobalData, 4, Relaxed, Device)),
            (thread(1, 0), atomic_add(GlobalData, 4, Relaxed, Device)),
            (thread(1, 1), last),
        ];
        Litmus::new("narrow after wide", 2, 2, &steps).races_at(&[(GlobalData, 4)]).check();
    }
    let weak = [(thread(0, 0), atomic_add(GlobalData, 4, AcqRel, Device)), (thread(1, 0), load(GlobalData, 4))];
    Litmus::new("atomic and weak", 2, 1, &weak).races_at(&[(GlobalData, 4)]).check();
}

/// A fence acquires the release that a relaxed read observed, if its scope includes the releasing
/// thread.
#[test]
fn fences_of_block_scope_acquire_nothing_from_another_block() {
    let steps = [
        (thread(0, 0), store(GlobalData, 0)),
        (thread(0, 0), atomic_add(GlobalFlags, 0, Release, Device)),
        (thread(1, 0), atomic_add(GlobalFlags, 0, Relaxed, Device)),
        (thread(1, 0), Op::Fence(Block)),
        (thread(1, 0), load(GlobalData, 0)),
    ];
    Litmus::new("fence of block scope after an atomic", 2, 1, &steps).races_at(&[(GlobalData, 0)]).check();
}

/// An observed write is ordered before its observer, with or without a release.
#[test]
fn observed_writes_precede_later_accesses_of_the_observer() {
    let steps = [
        (thread(0, 0), store_ordered(GlobalFlags, 0, 1, Relaxed, Device)),
        (thread(1, 0), wait_flag(GlobalFlags, 0, 1, Device)),
        (thread(1, 0), store_ordered(GlobalFlags, 0, 0, Weak, Device)),
    ];
    Litmus::new("observed", 2, 1, &steps).check();
}

#[test]
fn barriers_order_the_threads_of_their_block_alone() {
    let steps = |last| [(thread(0, 0), store(GlobalData, 0)), (Threads::ALL, Op::Barrier), (last, load(GlobalData, 0))];
    Litmus::new("barrier", 2, 64, &steps(thread(0, 63))).check();
    Litmus::new("barrier of another block", 2, 64, &steps(thread(1, 0))).races_at(&[(GlobalData, 0)]).check();
    let named = |waits| {
        [
            (thread(0, 0), store(SharedData, 0)),
            (warp(0), Op::NamedBarrier { id: 1, warps: 3, waits }),
            (warp(1), Op::NamedBarrier { id: 1, warps: 3, waits: true }),
            (thread(0, 32), store(SharedData, 0)),
            (thread(0, 64), load(SharedData, 1)),
        ]
    };
    Litmus::new("named barrier", 1, 96, &named(true)).check();
    Litmus::new("arrival", 1, 96, &named(false)).check();
    let back = [
        (warp(0), Op::NamedBarrier { id: 1, warps: 3, waits: false }),
        (thread(0, 32), store(SharedData, 0)),
        (warp(1), Op::NamedBarrier { id: 1, warps: 3, waits: true }),
        (thread(0, 0), load(SharedData, 0)),
    ];
    Litmus::new("arrival without a wait", 1, 64, &back).races_at(&[(SharedData, 0)]).check();
}

#[test]
fn lanes_of_a_warp_are_ordered_by_synchronization_alone() {
    let steps = |op: Op, lanes| {
        [(thread(0, 0), store(SharedData, 0)), (Threads { lanes, ..warp(0) }, op), (thread(0, 5), load(SharedData, 0))]
    };
    Litmus::new("warp", 1, 32, &steps(Op::SyncWarp, u32::MAX)).check();
    Litmus::new("both lanes", 1, 32, &steps(Op::SyncWarp, 0x21)).check();
    for (name, op, lanes) in [
        ("one lane", Op::SyncWarp, 0x22),
        ("vote", Op::Vote, u32::MAX),
        ("shuffle", Op::Shuffle, u32::MAX),
        ("fence", Op::Fence(Device), u32::MAX),
    ] {
        Litmus::new(name, 1, 32, &steps(op, lanes)).races_at(&[(SharedData, 0)]).check();
    }
}

#[test]
fn copies_are_ordered_by_a_wait_followed_by_a_barrier() {
    let all = Threads::ALL;
    let steps = |wait: Op, last| {
        [
            (thread(0, 0), copy_async(0, 0)),
            (thread(0, 0), Op::CommitCopies),
            (thread(0, 0), copy_async(1, 0)),
            (thread(0, 0), Op::CommitCopies),
            (thread(0, 0), wait),
            (all, Op::Barrier),
            (last, load(SharedData, 0)),
        ]
    };
    Litmus::new("all groups", 1, 64, &steps(Op::WaitCopies(0), thread(0, 40))).check();
    Litmus::new("first group", 1, 64, &steps(Op::WaitCopies(1), thread(0, 40))).check();
    Litmus::new("no group", 1, 64, &steps(Op::WaitCopies(2), thread(0, 40))).races_at(&[(SharedData, 0)]).check();
    Litmus::new("no group, the same thread", 1, 64, &steps(Op::WaitCopies(2), thread(0, 0)))
        .races_at(&[(SharedData, 0)])
        .check();
    let mut without = steps(Op::WaitCopies(0), thread(0, 40));
    without.swap(4, 5);
    Litmus::new("barrier before the wait", 1, 64, &without).races_at(&[(SharedData, 0)]).check();
}

#[test]
fn copies_read_their_source_until_the_wait() {
    for writer in [thread(0, 0), thread(0, 1)] {
        let steps = |swap: bool| {
            let mut steps = [
                (thread(0, 0), copy_async(0, 2)),
                (thread(0, 0), Op::CommitCopies),
                (Threads::ALL, Op::SyncWarp),
                (writer, store(GlobalData, 2)),
                (thread(0, 0), Op::WaitCopies(0)),
            ];
            if swap {
                steps.swap(2, 4);
                steps.swap(3, 4);
            }
            steps
        };
        Litmus::new("source overwritten", 1, 32, &steps(false)).races_at(&[(GlobalData, 2)]).check();
        let mut right = steps(false);
        right[2..].rotate_right(1);
        Litmus::new("source overwritten after the wait", 1, 32, &right).check();
    }
}

#[test]
fn copies_to_one_element_race() {
    let steps = [
        (thread(0, 0), copy_async(3, 0)),
        (thread(0, 0), copy_async(3, 1)),
        (thread(0, 0), Op::CommitCopies),
        (thread(0, 0), Op::WaitCopies(0)),
    ];
    Litmus::new("two copies", 1, 1, &steps).races_at(&[(SharedData, 3)]).check();
}

#[test]
fn mbarriers_publish_accesses_before_arrivals() {
    let two = Threads { lanes: 3, ..warp(0) };
    let steps = |last| {
        [
            (thread(0, 1), store(SharedData, 0)),
            (two, Op::Arrive { mbarrier: 0, rank: None }),
            (thread(0, 1), store(SharedData, 1)),
            (thread(0, 33), Op::WaitMbarrier { mbarrier: 0, parity: 0 }),
            (thread(0, 33), load(SharedData, last)),
        ]
    };
    Litmus::new("phase", 1, 64, &steps(0)).check();
    Litmus::new("after the arrival", 1, 64, &steps(1)).races_at(&[(SharedData, 1)]).check();
}

fn tma_load(multicast: bool) -> Op {
    Op::TmaLoad { tile: 0, mbarrier: 0, multicast }
}

const ARRIVE_EXPECT_TX: Op = Op::ArriveExpectTx { mbarrier: 0 };
const WAIT_MBARRIER: Op = Op::WaitMbarrier { mbarrier: 0, parity: 0 };

#[test]
fn tma_loads_are_complete_after_the_wait_for_their_mbarrier() {
    let steps = |user: Op| {
        [
            (thread(0, 0), ARRIVE_EXPECT_TX),
            (thread(0, 0), tma_load(false)),
            (thread(0, 33), WAIT_MBARRIER),
            (thread(0, 33), user),
        ]
    };
    Litmus::new("tile", 1, 64, &steps(load(Tiles, 3))).check();
    Litmus::new("tile overwritten", 1, 64, &steps(store(Tiles, 3))).check();
    for user in [load(Tiles, 3), store(Tiles, 3)] {
        let mut early = steps(user);
        early.swap(2, 3);
        Litmus::new("tile used early", 1, 64, &early).races_at(&[(Tiles, 3)]).check();
    }
    let mut other = steps(load(Tiles, 4));
    other.swap(2, 3);
    Litmus::new("another tile", 1, 64, &other).check();
}

/// Reads before a TMA load need order, and no proxy fence.
#[test]
fn tma_loads_over_a_read_tile_need_order_and_no_proxy_fence() {
    let steps = [
        (thread(0, 40), load(Tiles, 0)),
        (Threads::ALL, Op::Barrier),
        (thread(0, 0), ARRIVE_EXPECT_TX),
        (thread(0, 0), tma_load(false)),
        (Threads::ALL, WAIT_MBARRIER),
    ];
    Litmus::new("tile read before", 1, 64, &steps).check();
    Litmus::new("tile read in no order", 1, 64, &[&steps[..1], &steps[2..]].concat()).races_at(&[(Tiles, 0)]).check();
}

#[test]
fn tma_stores_of_a_written_tile_need_a_proxy_fence() {
    let steps = [
        (thread(0, 40), store(Tiles, 2)),
        (thread(0, 40), Op::FenceProxy),
        (Threads::ALL, Op::Barrier),
        (thread(0, 0), Op::TmaStore { tile: 0, row: 1 }),
        (thread(0, 0), Op::CommitStores),
        (thread(0, 0), Op::WaitStores { pending: 0, read: false }),
        (Threads::ALL, Op::Barrier),
        (thread(0, 33), load(Stored, 6)),
        (thread(0, 33), store(Tiles, 2)),
    ];
    let with = |at: usize, op: Op| {
        let mut steps = steps;
        steps[at].1 = op;
        steps
    };
    let without = |at: usize| [&steps[..at], &steps[at + 1..]].concat();
    Litmus::new("tile stored", 1, 64, &steps).check();
    Litmus::new("tile stored without a fence", 1, 64, &without(1)).unfenced_at(&[(Tiles, 2)]).check();
    let reads = with(5, Op::WaitStores { pending: 0, read: true });
    Litmus::new("tile read, but not stored", 1, 64, &reads).races_at(&[(Stored, 6)]).check();
    for (name, at) in [("tile not waited for", 5), ("tile not committed", 4)] {
        let mut steps = without(at);
        steps.remove(6);
        Litmus::new(name, 1, 64, &steps).races_at(&[(Tiles, 2)]).check();
    }
    for (name, at) in [("stored tile not waited for", 5), ("stored tile not committed", 4)] {
        let mut steps = without(at);
        steps.pop();
        Litmus::new(name, 1, 64, &steps).races_at(&[(Stored, 6)]).check();
    }
    Litmus::new("tile in no order", 1, 64, &without(2)).races_at(&[(Tiles, 2)]).check();
}

#[test]
fn cluster_barriers_order_accesses_before_the_arrival() {
    let all = Threads::ALL;
    let steps = |last: Op| {
        [
            (thread(1, 7), store(GlobalData, 0)),
            (all, Op::ClusterArrive),
            (thread(1, 7), store(GlobalData, 1)),
            (all, Op::ClusterWait),
            (thread(0, 3), last),
        ]
    };
    Litmus::in_cluster("cluster", 32, &steps(load(GlobalData, 0))).check();
    Litmus::in_cluster("after the arrival", 32, &steps(load(GlobalData, 1))).races_at(&[(GlobalData, 1)]).check();
}

#[test]
fn multicast_loads_are_complete_after_each_blocks_wait() {
    let both = Threads { blocks: 3, ..thread(0, 0) };
    let steps = [
        (both, ARRIVE_EXPECT_TX),
        (thread(0, 0), tma_load(true)),
        (thread(1, 5), WAIT_MBARRIER),
        (thread(1, 5), load(Tiles, 1)),
        (thread(0, 0), WAIT_MBARRIER),
    ];
    Litmus::in_cluster("multicast", 32, &steps).check();
    let mut early = steps;
    early.swap(2, 3);
    Litmus::in_cluster("multicast used early", 32, &early).races_at(&[(Tiles, 1)]).check();
}

#[test]
fn multicast_loads_race_with_a_tma_store_of_the_other_block() {
    let both = Threads { blocks: 3, ..thread(0, 0) };
    let steps = [
        (thread(1, 32), Op::TmaStore { tile: 0, row: 0 }),
        (thread(1, 32), Op::CommitStores),
        (both, ARRIVE_EXPECT_TX),
        (thread(0, 0), tma_load(true)),
        (both, WAIT_MBARRIER),
        (thread(1, 32), Op::WaitStores { pending: 0, read: true }),
    ];
    let race = &[(Tiles, 0), (Tiles, 1), (Tiles, 2), (Tiles, 3)];
    Litmus::in_cluster("multicast to what is stored", 64, &steps).races_at(race).check();
}

/// An arrival at another block's mbarrier is printed with the default scope, a block's, so it does
/// not release to that block.
#[test]
fn remote_arrivals_count_and_publish_nothing() {
    let arrive = Op::Arrive { mbarrier: 0, rank: Some(0) };
    let steps = [
        (thread(1, 0), store(GlobalData, 0)),
        (thread(1, 0), arrive),
        (thread(0, 5), WAIT_MBARRIER),
        (thread(0, 5), load(GlobalData, 0)),
    ];
    Litmus::in_cluster("remote arrival", 32, &steps).races_at(&[(GlobalData, 0)]).check();
    let own = Op::Arrive { mbarrier: 0, rank: Some(1) };
    let steps = [
        (thread(1, 0), store(GlobalData, 0)),
        (thread(1, 0), own),
        (thread(1, 5), WAIT_MBARRIER),
        (thread(1, 5), load(GlobalData, 0)),
    ];
    Litmus::in_cluster("own block's barrier", 32, &steps).check();
}

/// A relaxed read and a later acquire at its location form an acquire pattern, whatever that
/// acquire observes.
#[test]
fn acquire_patterns_include_an_earlier_relaxed_read() {
    let acquire = [
        wait_flag(GlobalFlags, 0, 1, Block),
        atomic_add(GlobalFlags, 0, Relaxed, Device),
        store_ordered(GlobalFlags, 0, 3, Relaxed, Device),
        load_ordered(GlobalFlags, 0, Acquire, Device),
    ];
    let publish = [store_ordered(GlobalFlags, 0, 1, Release, Device)];
    // The scope of the wait alone is too narrow, so it races with the flag.
    let narrow = message("relaxed read, then acquire", 2, &publish, &acquire);
    narrow.races_at(&[(GlobalFlags, 0)]).check();
}

/// A failed comparison is a read, which releases nothing.
#[test]
fn failed_compare_exchange_publishes_nothing() {
    let exchange = |expected, order| Op::Atomic {
        at: ElementRange::cell(GlobalFlags, 0),
        op: compare_exchange(expected),
        value: 2,
        order,
        scope: Device,
    };
    let flag = |expected| {
        [
            (thread(0, 0), store_ordered(GlobalFlags, 0, 1, Relaxed, Device)),
            (thread(1, 0), wait_flag(GlobalFlags, 0, 1, Device)),
            (thread(1, 0), store(GlobalData, 0)),
            (thread(1, 0), exchange(expected, Release)),
            (thread(1, 0), store_ordered(GlobalFlags, 1, 1, Relaxed, Device)),
            (thread(2, 0), wait_flag(GlobalFlags, 1, 1, Device)),
            (thread(2, 0), wait_flag(GlobalFlags, 0, 1, Device)),
            (thread(2, 0), load(GlobalData, 0)),
        ]
    };
    Litmus::new("failed comparison", 3, 1, &flag(7)).races_at(&[(GlobalData, 0)]).check();
    let mut successful = flag(1);
    successful[6].1 = wait_flag(GlobalFlags, 0, 2, Device);
    Litmus::new("comparison", 3, 1, &successful).check();
    let acquire = [exchange(7, Acquire)];
    let publish = [store_ordered(GlobalFlags, 0, 1, Release, Device)];
    let waits = [wait_flag(GlobalFlags, 0, 1, Block), acquire[0]];
    message("failed comparison that acquires", 2, &publish, &waits).races_at(&[(GlobalFlags, 0)]).check();
}

/// Two parameters bound to one buffer are one memory.
#[test]
fn parameters_bound_to_one_buffer_race() {
    let steps = [(thread(0, 0), store(GlobalData, 3)), (thread(0, 1), load(Alias, 3)), (thread(0, 1), load(Alias, 2))];
    Litmus::new("two parameters", 1, 32, &steps).races_at(&[(GlobalData, 3)]).check();
}

/// Elements excluded by a guard are not accessed; a copy writes zeros there.
#[test]
fn guarded_elements_are_not_accessed() {
    let at = |array, guard| ElementRange { array, first: 0, stride: 0, width: 2, guard };
    let read = |guard| Op::Read { at: at(GlobalData, guard), order: Weak, scope: Block };
    for (guard, race) in [
        (AccessGuard::If(1), true),
        (AccessGuard::If(2), false),
        (AccessGuard::First(2), true),
        (AccessGuard::First(1), false),
    ] {
        let steps = [(thread(0, 0), read(guard)), (thread(0, 1), store(GlobalData, 1))];
        let race: &[_] = if race { &[(GlobalData, 1)] } else { &[] };
        Litmus::new("guarded read", 1, 32, &steps).races_at(race).check();
    }
    let guarded_copy = Op::CopyAsync { to: at(SharedData, AccessGuard::All), from: at(GlobalData, AccessGuard::If(2)) };
    let steps = [(thread(0, 0), guarded_copy), (thread(0, 0), Op::CommitCopies), (thread(0, 0), Op::WaitCopies(0))];
    let user = |op| [&steps[..], &[(thread(0, 1), op)]].concat();
    Litmus::new("source left out", 1, 32, &user(store(GlobalData, 1))).check();
    Litmus::new("zeros", 1, 32, &user(load(SharedData, 1))).races_at(&[(SharedData, 1)]).check();
}

/// Each block's mbarrier counts the bytes written to that block alone.
#[test]
fn multicast_loads_are_ordered_by_each_blocks_own_mbarrier() {
    let both = Threads { blocks: 3, ..thread(0, 0) };
    let steps = [
        (both, ARRIVE_EXPECT_TX),
        (thread(0, 0), tma_load(true)),
        (thread(0, 0), WAIT_MBARRIER),
        (thread(0, 0), store_ordered(GlobalFlags, 0, 1, Release, Device)),
        (thread(1, 5), wait_flag(GlobalFlags, 0, 1, Device)),
        (thread(1, 5), load(Tiles, 1)),
        (thread(1, 0), WAIT_MBARRIER),
    ];
    Litmus::in_cluster("waited for by the other block", 32, &steps).races_at(&[(Tiles, 1)]).check();
}

/// A proxy fence must separate a write from the TMA load that overwrites it; the barrier orders
/// reads.
#[test]
fn tma_loads_over_a_written_tile_need_a_proxy_fence() {
    let steps = [
        (thread(0, 40), store(Tiles, 0)),
        (thread(0, 40), Op::FenceProxy),
        (Threads::ALL, Op::Barrier),
        (thread(0, 0), ARRIVE_EXPECT_TX),
        (thread(0, 0), tma_load(false)),
        (Threads::ALL, WAIT_MBARRIER),
    ];
    Litmus::new("tile over what was fenced", 1, 64, &steps).check();
    let unfenced = [&steps[..1], &steps[2..]].concat();
    Litmus::new("tile over what a thread wrote", 1, 64, &unfenced).unfenced_at(&[(Tiles, 0)]).check();
}
