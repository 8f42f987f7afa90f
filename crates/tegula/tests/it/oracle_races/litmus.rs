//! The small programs by which memory models are told apart. What races in each is said here by hand; interpreter and oracle must both
//! say so, on many schedules.

use std::collections::BTreeSet;

use Array::{Alias, GlobalData, GlobalFlags, SharedData, SharedFlags, Stored, Tiles};
use Order::{AcqRel, Acquire, Relaxed, Release, Weak};
use Scope::{Block, Device};
use tegula_ir::{AtomicOp, Compare, Order, Scope};

use super::generate::compare_exchange;
use super::model::{self, Pairs, Rules};
use super::program::{Array, At, Does, Node, Part, Program, Step, Threads};
use super::{Found, KNOWN, interpret};

const SCHEDULES: u64 = 24;

/// A program, and the elements that race in it.
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
fn by(block: u32, thread: u32) -> Threads {
    Threads { blocks: 1 << block, warps: 1 << (thread / 32), lanes: 1 << (thread % 32) }
}

fn warp(warp: u32) -> Threads {
    Threads { warps: 1 << warp, ..Threads::ALL }
}

impl Litmus {
    fn of(name: &'static str, blocks: u32, threads: u32, steps: &[(Threads, Does)]) -> Self {
        let steps = steps.iter().map(|&(by, does)| Step { by, does }).collect();
        Litmus { name, blocks, threads, steps, race: &[], unfenced: &[], cluster: 1 }
    }

    fn races_at(self, race: &'static [(Array, u32)]) -> Self {
        Litmus { race, ..self }
    }

    fn unfenced_at(self, unfenced: &'static [(Array, u32)]) -> Self {
        Litmus { unfenced, ..self }
    }

    /// Of two blocks in a cluster.
    fn of_cluster(name: &'static str, threads: u32, steps: &[(Threads, Does)]) -> Self {
        Litmus { cluster: 2, ..Litmus::of(name, 2, threads, steps) }
    }

    fn check(self) {
        let known = KNOWN.iter().find(|(name, _)| *name == self.name);
        if let Some((name, why)) = known {
            println!("the oracle alone: {name}: {why}");
        }
        let first = [(by(0, 0), Does::Init), (Threads::ALL, Does::Barrier)];
        let first = first.map(|(by, does)| Step { by: Threads { blocks: u32::MAX, ..by }, does });
        // No block begins before barriers of the other, or ends before it is reached for the last time.
        let meet = [Does::ClusterArrive, Does::ClusterWait].map(|does| Step { by: Threads::ALL, does });
        let meet = if self.cluster > 1 { &meet[..] } else { &[] };
        let nodes = [&first, meet, &self.steps[..], meet].concat().into_iter().map(Node::Step).collect();
        let program = Program { blocks: self.blocks, cluster: self.cluster, threads: self.threads, nodes };
        for seed in 0..SCHEDULES {
            let all =
                model::races(&program, Rules::ALL, seed).unwrap_or_else(|| panic!("{} waits for ever", self.name));
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
            let elements = |found: &[Found]| {
                let all: BTreeSet<_> = found.iter().map(|race| (race.element.1, race.element.2)).collect();
                all.into_iter().collect::<Vec<_>>()
            };
            let says = format!("{}: the interpreter, seed {seed}: {found:#?}\n{program}", self.name);
            let races = elements(&found.races);
            // Of a tile only the first element is named.
            let is_tile = self.race.len() > 1 && self.race.iter().all(|&(array, _)| array == Tiles);
            assert_eq!(
                if is_tile { self.race.iter().take(races.len()).copied().collect() } else { self.race.to_vec() },
                races,
                "{says}"
            );
            assert_eq!(races.is_empty(), self.race.is_empty(), "{says}");
            assert_eq!(elements(&found.unfenced), self.unfenced, "{says}");
        }
    }
}

fn load(array: Array, index: u32) -> Does {
    Does::Read { at: At::cell(array, index), order: Weak, scope: Block }
}

fn store(array: Array, index: u32) -> Does {
    Does::Write { at: At::cell(array, index), value: 1, order: Weak, scope: Block }
}

fn set(array: Array, index: u32, value: u32, order: Order, scope: Scope) -> Does {
    Does::Write { at: At::cell(array, index), value, order, scope }
}

fn get(array: Array, index: u32, order: Order, scope: Scope) -> Does {
    Does::Read { at: At::cell(array, index), order, scope }
}

fn add(array: Array, index: u32, order: Order, scope: Scope) -> Does {
    Does::Atomic { at: At::cell(array, index), op: AtomicOp::Add, value: 1, order, scope }
}

fn wait(array: Array, index: u32, value: u32, scope: Scope) -> Does {
    Does::Wait { at: At::cell(array, index), compare: Compare::Ge, values: [value; 3], scope }
}

fn copy(to: u32, from: u32) -> Does {
    Does::Copy { to: At::cell(SharedData, to), from: At::cell(GlobalData, from) }
}

/// Data at 0 and a flag from thread 0 of block 0 to the first thread of block 1, or of the next warp.
fn message(name: &'static str, blocks: u32, publish: &[Does], acquire: &[Does]) -> Litmus {
    let to = if blocks == 2 { by(1, 0) } else { by(0, 32) };
    let steps: Vec<_> = [store(GlobalData, 0)]
        .iter()
        .chain(publish)
        .map(|&does| (by(0, 0), does))
        .chain(acquire.iter().chain(&[load(GlobalData, 0)]).map(|&does| (to, does)))
        .collect();
    Litmus::of(name, blocks, 64, &steps)
}

#[test]
fn message_passing_with_release_and_acquire_is_ordered() {
    for blocks in [1, 2] {
        let publish = [set(GlobalFlags, 0, 1, Release, Device)];
        message("message", blocks, &publish, &[wait(GlobalFlags, 0, 1, Device)]).check();
        let publish = [add(GlobalFlags, 0, AcqRel, Device)];
        message("message by atomic", blocks, &publish, &[wait(GlobalFlags, 0, 1, Scope::System)]).check();
    }
    let publish = [set(GlobalFlags, 0, 1, Release, Block)];
    message("message in a block", 1, &publish, &[wait(GlobalFlags, 0, 1, Block)]).check();
    let steps = [
        (by(0, 3), store(SharedData, 1)),
        (by(0, 3), set(SharedFlags, 1, 1, Release, Block)),
        (by(0, 40), wait(SharedFlags, 1, 1, Block)),
        (by(0, 40), store(SharedData, 1)),
    ];
    Litmus::of("message in shared memory", 1, 64, &steps).check();
}

#[test]
fn message_passing_by_a_relaxed_store_races() {
    for blocks in [1, 2] {
        let publish = [set(GlobalFlags, 0, 1, Relaxed, Device)];
        let acquire = [wait(GlobalFlags, 0, 1, Device)];
        message("relaxed message", blocks, &publish, &acquire).races_at(&[(GlobalData, 0)]).check();
        let publish = [add(GlobalFlags, 0, Acquire, Device)];
        message("acquiring message", blocks, &publish, &acquire).races_at(&[(GlobalData, 0)]).check();
    }
}

#[test]
fn message_passing_by_a_fence_is_ordered() {
    for blocks in [1, 2] {
        let publish = [Does::Fence(Device), set(GlobalFlags, 0, 1, Relaxed, Device)];
        message("fence", blocks, &publish, &[wait(GlobalFlags, 0, 1, Device)]).check();
        let publish = [Does::Fence(Device), add(GlobalFlags, 0, Relaxed, Device)];
        message("fence and atomic", blocks, &publish, &[wait(GlobalFlags, 0, 1, Device)]).check();
    }
}

#[test]
fn message_passing_by_a_fence_after_the_flag_races() {
    let publish = [set(GlobalFlags, 0, 1, Relaxed, Device), Does::Fence(Device)];
    message("late fence", 2, &publish, &[wait(GlobalFlags, 0, 1, Device)]).races_at(&[(GlobalData, 0)]).check();
}

#[test]
fn message_passing_by_a_fence_of_a_block_races_between_blocks() {
    let publish = [Does::Fence(Block), set(GlobalFlags, 0, 1, Relaxed, Device)];
    message("fence of a block", 2, &publish, &[wait(GlobalFlags, 0, 1, Device)]).races_at(&[(GlobalData, 0)]).check();
    message("fence of a block", 1, &publish, &[wait(GlobalFlags, 0, 1, Device)]).check();
}

#[test]
fn message_passing_by_scopes_too_narrow_races_at_data_and_flag() {
    for (release, acquire) in [(Block, Device), (Device, Block), (Block, Block)] {
        let publish = [set(GlobalFlags, 0, 1, Release, release)];
        let narrow = message("narrow scope", 2, &publish, &[wait(GlobalFlags, 0, 1, acquire)]);
        narrow.races_at(&[(GlobalData, 0), (GlobalFlags, 0)]).check();
        let publish = [set(GlobalFlags, 0, 1, Release, release)];
        message("scope wide enough", 1, &publish, &[wait(GlobalFlags, 0, 1, acquire)]).check();
    }
}

#[test]
fn causality_passes_through_a_third_thread() {
    for (blocks, second, third) in [(3, by(1, 0), by(2, 0)), (2, by(0, 40), by(1, 0)), (1, by(0, 1), by(0, 33))] {
        let steps = [
            (by(0, 0), store(GlobalData, 0)),
            (by(0, 0), set(GlobalFlags, 0, 1, Release, Device)),
            (second, wait(GlobalFlags, 0, 1, Device)),
            (second, set(GlobalFlags, 1, 1, Release, Device)),
            (third, wait(GlobalFlags, 1, 1, Device)),
            (third, store(GlobalData, 0)),
        ];
        Litmus::of("two hops", blocks, 64, &steps).check();
        let mut relaxed = steps;
        relaxed[3].1 = set(GlobalFlags, 1, 1, Relaxed, Device);
        Litmus::of("second hop relaxed", blocks, 64, &relaxed).races_at(&[(GlobalData, 0)]).check();
    }
}

/// A barrier or a narrow release passes on what came from another block.
#[test]
fn causality_crosses_scopes() {
    let steps = |hop: &[(Threads, Does)]| {
        let first = [
            (by(1, 7), store(GlobalData, 0)),
            (by(1, 7), set(GlobalFlags, 0, 1, Release, Device)),
            (by(0, 0), wait(GlobalFlags, 0, 1, Device)),
        ];
        [&first, hop, &[(by(0, 33), load(GlobalData, 0))]].concat()
    };
    let all = Threads { blocks: 1, ..Threads::ALL };
    Litmus::of("by a barrier", 2, 64, &steps(&[(all, Does::Barrier)])).check();
    let narrow = [(by(0, 0), set(SharedFlags, 0, 1, Release, Block)), (by(0, 33), wait(SharedFlags, 0, 1, Block))];
    Litmus::of("by a narrow release", 2, 64, &steps(&narrow)).check();
    Litmus::of("by nothing", 2, 64, &steps(&[])).races_at(&[(GlobalData, 0)]).check();
}

#[test]
fn release_sequences_go_through_atomics() {
    let steps = |second: Does| {
        [
            (by(0, 0), store(GlobalData, 0)),
            (by(0, 0), set(GlobalFlags, 0, 1, Release, Device)),
            (by(1, 0), wait(GlobalFlags, 0, 1, Device)),
            (by(1, 0), second),
            (by(2, 0), wait(GlobalFlags, 0, 2, Device)),
            (by(2, 0), load(GlobalData, 0)),
        ]
    };
    Litmus::of("relaxed atomic", 3, 1, &steps(add(GlobalFlags, 0, Relaxed, Device))).check();
    Litmus::of("acquiring atomic", 3, 1, &steps(add(GlobalFlags, 0, Acquire, Device))).check();
    Litmus::of("release in between", 3, 1, &steps(set(GlobalFlags, 0, 2, Release, Device))).check();
    let broken = steps(set(GlobalFlags, 0, 2, Relaxed, Device));
    Litmus::of("relaxed store", 3, 1, &broken).races_at(&[(GlobalData, 0)]).check();
}

#[test]
fn release_sequences_end_at_an_atomic_of_a_block() {
    let steps = [
        (by(0, 0), store(GlobalData, 0)),
        (by(0, 0), set(GlobalFlags, 0, 1, Release, Device)),
        (by(1, 0), wait(GlobalFlags, 0, 1, Device)),
        (by(1, 0), add(GlobalFlags, 0, Relaxed, Block)),
        (by(1, 1), wait(GlobalFlags, 0, 2, Device)),
        (by(1, 1), load(GlobalData, 0)),
    ];
    // The atomic operation and the release are not morally strong, so it does not observe it; nor does it race, coming after it.
    Litmus::of("atomic of a block", 2, 2, &steps).races_at(&[(GlobalData, 0)]).check();
}

/// Of the releases that a flag counts, an acquire sees those that its scope reaches.
#[test]
fn acquires_of_a_block_see_releases_of_that_block() {
    let steps = |last: Threads, cell| {
        [
            (by(0, 0), store(GlobalData, 0)),
            (by(1, 0), store(GlobalData, 1)),
            (by(0, 0), add(GlobalFlags, 0, Release, Device)),
            (by(1, 0), add(GlobalFlags, 0, Release, Device)),
            (last, wait(GlobalFlags, 0, 2, Block)),
            (last, load(GlobalData, cell)),
        ]
    };
    let race = &[(GlobalData, 0), (GlobalFlags, 0)];
    Litmus::of("release out of scope", 2, 2, &steps(by(1, 1), 0)).races_at(race).check();
    let fence = [
        (by(0, 0), store(GlobalData, 0)),
        (by(1, 0), add(GlobalFlags, 0, Release, Device)),
        (by(0, 0), add(GlobalFlags, 0, Release, Device)),
        (by(1, 1), add(GlobalFlags, 0, Relaxed, Device)),
        (by(1, 1), Does::Fence(Block)),
        (by(1, 1), load(GlobalData, 0)),
    ];
    Litmus::of("release out of scope of the fence", 2, 2, &fence).races_at(&[(GlobalData, 0)]).check();
}

/// A release goes on through the thread's own strong writes to the same flag.
#[test]
fn release_patterns_include_a_later_relaxed_store() {
    let publish = [set(GlobalFlags, 0, 1, Release, Device), set(GlobalFlags, 0, 2, Relaxed, Device)];
    message("release, then relaxed", 2, &publish, &[wait(GlobalFlags, 0, 2, Device)]).check();
    let publish = [set(GlobalFlags, 0, 1, Release, Device), set(GlobalFlags, 1, 1, Relaxed, Device)];
    let elsewhere = message("release elsewhere", 2, &publish, &[wait(GlobalFlags, 1, 1, Device)]);
    elsewhere.races_at(&[(GlobalData, 0)]).check();
}

#[test]
fn counters_publish_for_all_who_incremented() {
    let steps = |order| {
        [
            (
                warp(0),
                Does::Write { at: At { stride: 1, ..At::cell(GlobalData, 0) }, value: 1, order: Weak, scope: Block },
            ),
            (by(0, 8), Does::Fence(Device)),
            (Threads { lanes: 1 << 3 | 1 << 5, ..warp(0) }, add(GlobalFlags, 2, order, Device)),
            (by(0, 32), wait(GlobalFlags, 2, 2, Device)),
            (by(0, 32), load(GlobalData, 3)),
            (by(0, 32), load(GlobalData, 5)),
        ]
    };
    let lanes = Threads { lanes: 0xff, ..warp(0) };
    let eight = |order| {
        let mut steps = steps(order);
        steps[0].0 = lanes;
        steps
    };
    Litmus::of("released counter", 1, 64, &eight(Release)).check();
    Litmus::of("relaxed counter", 1, 64, &eight(Relaxed)).races_at(&[(GlobalData, 3), (GlobalData, 5)]).check();
}

/// Two writers, two readers that disagree on the order of writes: allowed, and no race; but it orders nothing either.
#[test]
fn independent_reads_of_independent_writes_do_not_race() {
    let steps = [
        (by(0, 0), set(GlobalData, 0, 1, Relaxed, Device)),
        (by(1, 0), set(GlobalData, 1, 1, Relaxed, Device)),
        (by(0, 32), get(GlobalData, 0, Acquire, Device)),
        (by(0, 32), get(GlobalData, 1, Acquire, Device)),
        (by(1, 32), get(GlobalData, 1, Acquire, Device)),
        (by(1, 32), get(GlobalData, 0, Acquire, Device)),
    ];
    Litmus::of("independent reads", 2, 64, &steps).check();
    let mut weak = steps;
    weak[5].1 = load(GlobalData, 0);
    Litmus::of("one of them weak", 2, 64, &weak).races_at(&[(GlobalData, 0)]).check();
}

#[test]
fn atomics_of_narrow_scopes_race() {
    for (scopes, race) in [([Device, Device], false), ([Block, Device], true), ([Block, Block], true)] {
        let steps =
            [(by(0, 0), add(GlobalData, 4, Relaxed, scopes[0])), (by(1, 0), add(GlobalData, 4, Relaxed, scopes[1]))];
        let race: &[_] = if race { &[(GlobalData, 4)] } else { &[] };
        Litmus::of("atomics", 2, 1, &steps).races_at(race).check();
    }
    for last in [get(GlobalData, 4, Relaxed, Block), add(GlobalData, 4, Relaxed, Block)] {
        let steps = [
            (by(0, 0), add(GlobalData, 4, Relaxed, Device)),
            (by(1, 0), add(GlobalData, 4, Relaxed, Device)),
            (by(1, 1), last),
        ];
        Litmus::of("narrow after wide", 2, 2, &steps).races_at(&[(GlobalData, 4)]).check();
    }
    let weak = [(by(0, 0), add(GlobalData, 4, AcqRel, Device)), (by(1, 0), load(GlobalData, 4))];
    Litmus::of("atomic and weak", 2, 1, &weak).races_at(&[(GlobalData, 4)]).check();
}

/// A fence acquires what a relaxed read observed, if its own scope reaches the release.
#[test]
fn fences_of_a_block_acquire_nothing_from_another_block() {
    let steps = [
        (by(0, 0), store(GlobalData, 0)),
        (by(0, 0), add(GlobalFlags, 0, Release, Device)),
        (by(1, 0), add(GlobalFlags, 0, Relaxed, Device)),
        (by(1, 0), Does::Fence(Block)),
        (by(1, 0), load(GlobalData, 0)),
    ];
    Litmus::of("fence of a block after an atomic", 2, 1, &steps).races_at(&[(GlobalData, 0)]).check();
}

/// The value itself is ordered by being seen, whether or not anything was released.
#[test]
fn observed_writes_precede_what_follows() {
    let steps = [
        (by(0, 0), set(GlobalFlags, 0, 1, Relaxed, Device)),
        (by(1, 0), wait(GlobalFlags, 0, 1, Device)),
        (by(1, 0), set(GlobalFlags, 0, 0, Weak, Device)),
    ];
    Litmus::of("observed", 2, 1, &steps).check();
}

#[test]
fn barriers_order_blocks_but_no_others() {
    let steps = |last| [(by(0, 0), store(GlobalData, 0)), (Threads::ALL, Does::Barrier), (last, load(GlobalData, 0))];
    Litmus::of("barrier", 2, 64, &steps(by(0, 63))).check();
    Litmus::of("barrier of another block", 2, 64, &steps(by(1, 0))).races_at(&[(GlobalData, 0)]).check();
    let named = |waits| {
        [
            (by(0, 0), store(SharedData, 0)),
            (warp(0), Does::Named { id: 1, warps: 3, waits }),
            (warp(1), Does::Named { id: 1, warps: 3, waits: true }),
            (by(0, 32), store(SharedData, 0)),
            (by(0, 64), load(SharedData, 1)),
        ]
    };
    Litmus::of("named barrier", 1, 96, &named(true)).check();
    Litmus::of("arrival", 1, 96, &named(false)).check();
    let back = [
        (warp(0), Does::Named { id: 1, warps: 3, waits: false }),
        (by(0, 32), store(SharedData, 0)),
        (warp(1), Does::Named { id: 1, warps: 3, waits: true }),
        (by(0, 0), load(SharedData, 0)),
    ];
    Litmus::of("arrival learns nothing", 1, 64, &back).races_at(&[(SharedData, 0)]).check();
}

#[test]
fn warps_are_ordered_by_synchronization_alone() {
    let steps = |does: Does, lanes| {
        [(by(0, 0), store(SharedData, 0)), (Threads { lanes, ..warp(0) }, does), (by(0, 5), load(SharedData, 0))]
    };
    Litmus::of("warp", 1, 32, &steps(Does::SyncWarp, u32::MAX)).check();
    Litmus::of("both lanes", 1, 32, &steps(Does::SyncWarp, 0x21)).check();
    for (name, does, lanes) in [
        ("one lane", Does::SyncWarp, 0x22),
        ("vote", Does::Vote, u32::MAX),
        ("shuffle", Does::Shuffle, u32::MAX),
        ("fence", Does::Fence(Device), u32::MAX),
    ] {
        Litmus::of(name, 1, 32, &steps(does, lanes)).races_at(&[(SharedData, 0)]).check();
    }
}

#[test]
fn copies_are_ordered_by_waiting_and_then_a_barrier() {
    let all = Threads::ALL;
    let steps = |wait: Does, last| {
        [
            (by(0, 0), copy(0, 0)),
            (by(0, 0), Does::Commit),
            (by(0, 0), copy(1, 0)),
            (by(0, 0), Does::Commit),
            (by(0, 0), wait),
            (all, Does::Barrier),
            (last, load(SharedData, 0)),
        ]
    };
    Litmus::of("all groups", 1, 64, &steps(Does::AwaitCopies(0), by(0, 40))).check();
    Litmus::of("first group", 1, 64, &steps(Does::AwaitCopies(1), by(0, 40))).check();
    Litmus::of("no group", 1, 64, &steps(Does::AwaitCopies(2), by(0, 40))).races_at(&[(SharedData, 0)]).check();
    Litmus::of("no group, the same thread", 1, 64, &steps(Does::AwaitCopies(2), by(0, 0)))
        .races_at(&[(SharedData, 0)])
        .check();
    let mut without = steps(Does::AwaitCopies(0), by(0, 40));
    without.swap(4, 5);
    Litmus::of("barrier before the wait", 1, 64, &without).races_at(&[(SharedData, 0)]).check();
}

#[test]
fn copies_read_their_source_until_they_are_waited_for() {
    for writer in [by(0, 0), by(0, 1)] {
        let steps = |swap: bool| {
            let mut steps = [
                (by(0, 0), copy(0, 2)),
                (by(0, 0), Does::Commit),
                (Threads::ALL, Does::SyncWarp),
                (writer, store(GlobalData, 2)),
                (by(0, 0), Does::AwaitCopies(0)),
            ];
            if swap {
                steps.swap(2, 4);
                steps.swap(3, 4);
            }
            steps
        };
        Litmus::of("source overwritten", 1, 32, &steps(false)).races_at(&[(GlobalData, 2)]).check();
        let mut right = steps(false);
        right[2..].rotate_right(1);
        Litmus::of("source overwritten after the wait", 1, 32, &right).check();
    }
}

#[test]
fn copies_that_meet_race() {
    let steps =
        [(by(0, 0), copy(3, 0)), (by(0, 0), copy(3, 1)), (by(0, 0), Does::Commit), (by(0, 0), Does::AwaitCopies(0))];
    Litmus::of("two copies", 1, 1, &steps).races_at(&[(SharedData, 3)]).check();
}

#[test]
fn mbarriers_publish_what_came_before_arrivals() {
    let two = Threads { lanes: 3, ..warp(0) };
    let steps = |last| {
        [
            (by(0, 1), store(SharedData, 0)),
            (two, Does::Arrive { mbarrier: 0, rank: None }),
            (by(0, 1), store(SharedData, 1)),
            (by(0, 33), Does::Await { mbarrier: 0, parity: 0 }),
            (by(0, 33), load(SharedData, last)),
        ]
    };
    Litmus::of("phase", 1, 64, &steps(0)).check();
    Litmus::of("after the arrival", 1, 64, &steps(1)).races_at(&[(SharedData, 1)]).check();
}

fn copy_tile(multicast: bool) -> Does {
    Does::CopyTile { tile: 0, mbarrier: 0, multicast }
}

const EXPECT: Does = Does::Expect { mbarrier: 0 };
const AWAIT: Does = Does::Await { mbarrier: 0, parity: 0 };

#[test]
fn tiles_are_there_when_their_bytes_were_counted() {
    let steps =
        |use_it: Does| [(by(0, 0), EXPECT), (by(0, 0), copy_tile(false)), (by(0, 33), AWAIT), (by(0, 33), use_it)];
    Litmus::of("tile", 1, 64, &steps(load(Tiles, 3))).check();
    Litmus::of("tile overwritten", 1, 64, &steps(store(Tiles, 3))).check();
    for use_it in [load(Tiles, 3), store(Tiles, 3)] {
        let mut early = steps(use_it);
        early.swap(2, 3);
        Litmus::of("tile used early", 1, 64, &early).races_at(&[(Tiles, 3)]).check();
    }
    let mut other = steps(load(Tiles, 4));
    other.swap(2, 3);
    Litmus::of("another tile", 1, 64, &other).check();
}

/// What threads read before a copy began needs order, and no fence between the proxies.
#[test]
fn tiles_are_copied_again_after_they_were_read() {
    let steps = [
        (by(0, 40), load(Tiles, 0)),
        (Threads::ALL, Does::Barrier),
        (by(0, 0), EXPECT),
        (by(0, 0), copy_tile(false)),
        (Threads::ALL, AWAIT),
    ];
    Litmus::of("tile read before", 1, 64, &steps).check();
    Litmus::of("tile read in no order", 1, 64, &[&steps[..1], &steps[2..]].concat()).races_at(&[(Tiles, 0)]).check();
}

#[test]
fn stores_of_tiles_need_a_fence_between_proxies() {
    let steps = [
        (by(0, 40), store(Tiles, 2)),
        (by(0, 40), Does::FenceProxy),
        (Threads::ALL, Does::Barrier),
        (by(0, 0), Does::StoreTile { tile: 0, row: 1 }),
        (by(0, 0), Does::CommitStores),
        (by(0, 0), Does::AwaitStores { pending: 0, read: false }),
        (Threads::ALL, Does::Barrier),
        (by(0, 33), load(Stored, 6)),
        (by(0, 33), store(Tiles, 2)),
    ];
    let with = |at: usize, does: Does| {
        let mut steps = steps;
        steps[at].1 = does;
        steps
    };
    let without = |at: usize| [&steps[..at], &steps[at + 1..]].concat();
    Litmus::of("tile stored", 1, 64, &steps).check();
    Litmus::of("tile stored without a fence", 1, 64, &without(1)).unfenced_at(&[(Tiles, 2)]).check();
    let reads = with(5, Does::AwaitStores { pending: 0, read: true });
    Litmus::of("tile read, but not stored", 1, 64, &reads).races_at(&[(Stored, 6)]).check();
    for (name, at) in [("tile not waited for", 5), ("tile not committed", 4)] {
        let mut steps = without(at);
        steps.remove(6);
        Litmus::of(name, 1, 64, &steps).races_at(&[(Tiles, 2)]).check();
    }
    for (name, at) in [("stored tile not waited for", 5), ("stored tile not committed", 4)] {
        let mut steps = without(at);
        steps.pop();
        Litmus::of(name, 1, 64, &steps).races_at(&[(Stored, 6)]).check();
    }
    Litmus::of("tile in no order", 1, 64, &without(2)).races_at(&[(Tiles, 2)]).check();
}

#[test]
fn clusters_are_ordered_by_their_barrier() {
    let all = Threads::ALL;
    let steps = |last: Does| {
        [
            (by(1, 7), store(GlobalData, 0)),
            (all, Does::ClusterArrive),
            (by(1, 7), store(GlobalData, 1)),
            (all, Does::ClusterWait),
            (by(0, 3), last),
        ]
    };
    Litmus::of_cluster("cluster", 32, &steps(load(GlobalData, 0))).check();
    Litmus::of_cluster("after the arrival", 32, &steps(load(GlobalData, 1))).races_at(&[(GlobalData, 1)]).check();
}

#[test]
fn multicast_tiles_are_there_when_each_block_has_counted() {
    let both = Threads { blocks: 3, ..by(0, 0) };
    let steps =
        [(both, EXPECT), (by(0, 0), copy_tile(true)), (by(1, 5), AWAIT), (by(1, 5), load(Tiles, 1)), (by(0, 0), AWAIT)];
    Litmus::of_cluster("multicast", 32, &steps).check();
    let mut early = steps;
    early.swap(2, 3);
    Litmus::of_cluster("multicast used early", 32, &early).races_at(&[(Tiles, 1)]).check();
}

#[test]
fn multicast_tiles_race_with_a_store_of_the_other_block() {
    let both = Threads { blocks: 3, ..by(0, 0) };
    let steps = [
        (by(1, 32), Does::StoreTile { tile: 0, row: 0 }),
        (by(1, 32), Does::CommitStores),
        (both, EXPECT),
        (by(0, 0), copy_tile(true)),
        (both, AWAIT),
        (by(1, 32), Does::AwaitStores { pending: 0, read: true }),
    ];
    let race = &[(Tiles, 0), (Tiles, 1), (Tiles, 2), (Tiles, 3)];
    Litmus::of_cluster("multicast to what is stored", 64, &steps).races_at(race).check();
}

/// An arrival at another block's barrier is printed with the default scope, a block's, so it is no release to that block.
#[test]
fn arrivals_at_another_block_count_but_publish_nothing() {
    let arrive = Does::Arrive { mbarrier: 0, rank: Some(0) };
    let steps =
        [(by(1, 0), store(GlobalData, 0)), (by(1, 0), arrive), (by(0, 5), AWAIT), (by(0, 5), load(GlobalData, 0))];
    Litmus::of_cluster("remote arrival", 32, &steps).races_at(&[(GlobalData, 0)]).check();
    let own = Does::Arrive { mbarrier: 0, rank: Some(1) };
    let steps = [(by(1, 0), store(GlobalData, 0)), (by(1, 0), own), (by(1, 5), AWAIT), (by(1, 5), load(GlobalData, 0))];
    Litmus::of_cluster("own block's barrier", 32, &steps).check();
}

/// A relaxed read and a later acquire at its location are an acquire pattern, whatever that acquire observes.
#[test]
fn acquire_patterns_include_an_earlier_relaxed_read() {
    let acquire = [
        wait(GlobalFlags, 0, 1, Block),
        add(GlobalFlags, 0, Relaxed, Device),
        set(GlobalFlags, 0, 3, Relaxed, Device),
        get(GlobalFlags, 0, Acquire, Device),
    ];
    let publish = [set(GlobalFlags, 0, 1, Release, Device)];
    // The wait alone is too narrow, and a race with the flag.
    let narrow = message("relaxed read, then acquire", 2, &publish, &acquire);
    narrow.races_at(&[(GlobalFlags, 0)]).check();
}

/// A comparison that fails reads, and releases nothing.
#[test]
fn failed_compare_exchange_publishes_nothing() {
    let exchange = |expected, order| Does::Atomic {
        at: At::cell(GlobalFlags, 0),
        op: compare_exchange(expected),
        value: 2,
        order,
        scope: Device,
    };
    let flag = |expected| {
        [
            (by(0, 0), set(GlobalFlags, 0, 1, Relaxed, Device)),
            (by(1, 0), wait(GlobalFlags, 0, 1, Device)),
            (by(1, 0), store(GlobalData, 0)),
            (by(1, 0), exchange(expected, Release)),
            (by(1, 0), set(GlobalFlags, 1, 1, Relaxed, Device)),
            (by(2, 0), wait(GlobalFlags, 1, 1, Device)),
            (by(2, 0), wait(GlobalFlags, 0, 1, Device)),
            (by(2, 0), load(GlobalData, 0)),
        ]
    };
    Litmus::of("failed comparison", 3, 1, &flag(7)).races_at(&[(GlobalData, 0)]).check();
    let mut successful = flag(1);
    successful[6].1 = wait(GlobalFlags, 0, 2, Device);
    Litmus::of("comparison", 3, 1, &successful).check();
    let acquire = [exchange(7, Acquire)];
    let publish = [set(GlobalFlags, 0, 1, Release, Device)];
    let waits = [wait(GlobalFlags, 0, 1, Block), acquire[0]];
    message("failed comparison that acquires", 2, &publish, &waits).races_at(&[(GlobalFlags, 0)]).check();
}

/// Two parameters that are bound to one buffer are one memory.
#[test]
fn parameters_of_one_buffer_race() {
    let steps = [(by(0, 0), store(GlobalData, 3)), (by(0, 1), load(Alias, 3)), (by(0, 1), load(Alias, 2))];
    Litmus::of("two parameters", 1, 32, &steps).races_at(&[(GlobalData, 3)]).check();
}

/// What a guard leaves out is not accessed; a copy writes zero there.
#[test]
fn guarded_elements_are_not_accessed() {
    let at = |array, part| At { array, first: 0, stride: 0, width: 2, part };
    let read = |part| Does::Read { at: at(GlobalData, part), order: Weak, scope: Block };
    for (part, race) in [(Part::If(1), true), (Part::If(2), false), (Part::First(2), true), (Part::First(1), false)] {
        let steps = [(by(0, 0), read(part)), (by(0, 1), store(GlobalData, 1))];
        let race: &[_] = if race { &[(GlobalData, 1)] } else { &[] };
        Litmus::of("guarded read", 1, 32, &steps).races_at(race).check();
    }
    let copy = Does::Copy { to: at(SharedData, Part::All), from: at(GlobalData, Part::If(2)) };
    let steps = [(by(0, 0), copy), (by(0, 0), Does::Commit), (by(0, 0), Does::AwaitCopies(0))];
    let user = |does| [&steps[..], &[(by(0, 1), does)]].concat();
    Litmus::of("source left out", 1, 32, &user(store(GlobalData, 1))).check();
    Litmus::of("zeros", 1, 32, &user(load(SharedData, 1))).races_at(&[(SharedData, 1)]).check();
}

/// Each block's barrier counts the bytes that come to that block, and says nothing of the others'.
#[test]
fn multicast_tiles_are_there_for_each_block_by_its_own_barrier() {
    let both = Threads { blocks: 3, ..by(0, 0) };
    let steps = [
        (both, EXPECT),
        (by(0, 0), copy_tile(true)),
        (by(0, 0), AWAIT),
        (by(0, 0), set(GlobalFlags, 0, 1, Release, Device)),
        (by(1, 5), wait(GlobalFlags, 0, 1, Device)),
        (by(1, 5), load(Tiles, 1)),
        (by(1, 0), AWAIT),
    ];
    Litmus::of_cluster("waited for by the other block", 32, &steps).races_at(&[(Tiles, 1)]).check();
}

/// What a thread wrote is fenced from the copy that overwrites it; what it read is ordered by the barrier.
#[test]
fn tiles_that_overwrite_stores_need_a_fence_between_proxies() {
    let steps = [
        (by(0, 40), store(Tiles, 0)),
        (by(0, 40), Does::FenceProxy),
        (Threads::ALL, Does::Barrier),
        (by(0, 0), EXPECT),
        (by(0, 0), copy_tile(false)),
        (Threads::ALL, AWAIT),
    ];
    Litmus::of("tile over what was fenced", 1, 64, &steps).check();
    let unfenced = [&steps[..1], &steps[2..]].concat();
    Litmus::of("tile over what a thread wrote", 1, 64, &unfenced).unfenced_at(&[(Tiles, 0)]).check();
}
