//! The oracle: computes the races of a program by the memory consistency model of the PTX ISA. The
//! source is version 8.7, chapter 8.
//!
//! The terms are the model's. Two operations are *morally strong* if one precedes the other in
//! program order. They also are if both are strong, use one proxy, overlap completely, and have
//! scopes that include each other's thread. A *release pattern* on a location is a release on it,
//! or a release or fence followed by a strong write to it. It *synchronizes with* an acquire
//! pattern that observes the write, or a read-modify-write that observed it. The first operation of
//! the release pattern and the last of the acquire pattern must be morally strong. *Causality
//! order* is the transitive closure of program order and synchronization. An observed write
//! precedes what follows the read that observed it; what precedes the write gains no order from
//! that. Only waits count here, since what other reads observe depends on the schedule. Two
//! conflicting accesses race if they are not in causality order and not morally strong.
//!
//! Each thread and each asynchronous operation is an agent. An agent has a full vector clock, with
//! an entry per agent, and a set of observed writes. Nothing is discarded: each new access is
//! compared with all earlier accesses to its element. Threads run one step at a time, in an order
//! given by a seed; for a program with deterministic synchronization any order is valid.

mod asynchronous;
mod clock;
mod memory;
mod sync;

use std::collections::{BTreeMap, BTreeSet};

use clock::{ClockView, Strength, strong};
use tegula_ir::{MemoryOrder, Scope};

use super::program::{Array, Op, Program, TILE};
use crate::product::Random;

/// Rules of the model that can be switched off while the interpreter lacks them; see [`super`].
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The source of an asynchronous copy is read until the wait for the copy, not at its start.
    pub copy_reads_until_wait: bool,
    /// A write observed by a wait precedes what follows the wait, with or without a release.
    pub observation_orders: bool,
    /// A release and a later strong write by the same thread to the same location form a release
    /// pattern.
    pub release_patterns_extend: bool,
    /// An arrival at an mbarrier of another block releases, although it is printed with block
    /// scope.
    pub remote_arrivals_release: bool,
    /// A TMA store writes its destination until the wait for the store, not at its start.
    pub tma_store_writes_until_wait: bool,
}

impl Rules {
    /// All rules as the memory model has them.
    pub const ALL: Self = Rules {
        copy_reads_until_wait: true,
        observation_orders: true,
        release_patterns_extend: true,
        remote_arrivals_release: false,
        tma_store_writes_until_wait: true,
    };
}

/// An element of memory: the block (0 for global memory), the array and the position.
pub type Element = (u32, Array, u32);

/// The thread and step of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccessSite {
    pub block: u32,
    pub thread: u32,
    pub step: usize,
}

/// Pairs of accesses by element; each pair is sorted.
pub type Pairs = BTreeMap<Element, BTreeSet<[AccessSite; 2]>>;

/// The errors of a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Races {
    pub races: Pairs,
    /// Writes by threads and accesses by the asynchronous proxy that are ordered, but lack a proxy
    /// fence.
    pub unfenced: Pairs,
    /// Whether a block may end while an asynchronous operation still uses its shared memory.
    pub block_ended_early: bool,
}

/// The agent of an access, its time on that agent's clock, and the properties that decide moral
/// strength.
#[derive(Clone, Copy, Debug)]
struct Accessor {
    agent: usize,
    time: u32,
    site: AccessSite,
    strength: Strength,
    proxy: Proxy,
}

#[derive(Clone, Debug)]
struct Access {
    id: usize,
    agent: usize,
    time: u32,
    site: AccessSite,
    execution: Option<usize>,
    writes: bool,
    strength: Strength,
    proxy: Proxy,
}

/// The proxy of an access.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Proxy {
    Generic,
    Async,
}

/// A strong write that a read of the location observes, with the release patterns that it ends.
#[derive(Clone, Debug)]
struct StrongWrite {
    id: usize,
    strength: Strength,
    patterns: Vec<(Strength, ClockView)>,
}

#[derive(Default)]
struct Location {
    value: u32,
    accesses: Vec<Access>,
    /// The last write, preceded by the chain of writes that it observed.
    chain: Vec<StrongWrite>,
    /// Releases of each thread on this location.
    released: BTreeMap<usize, Vec<(Strength, ClockView)>>,
}

/// One use of a synchronization point, by threads that arrive there.
#[derive(Default)]
struct SyncInstance {
    arrived: usize,
    complete: bool,
    view: ClockView,
}

/// An mbarrier: arrivals of the current phase, and the joined clocks of each completed phase.
#[derive(Default)]
struct Mbarrier {
    arrived: u32,
    /// Expected bytes that have not arrived.
    bytes: i64,
    completed_phases: Vec<ClockView>,
    view: ClockView,
}

struct Thread {
    block: u32,
    thread: u32,
    ops: Vec<(usize, Op)>,
    next: usize,
    view: ClockView,
    fences: Vec<(Strength, ClockView)>,
    /// Release patterns observed by strong reads, with their element. Later operations may acquire
    /// them.
    observed: Vec<(Element, Strength, ClockView)>,
    /// Agents of asynchronous copies since the last commit, and of each committed group.
    copies: Vec<usize>,
    groups: Vec<Vec<usize>>,
    /// The same for TMA stores: the agent that reads shared memory, and the agent that writes.
    stores: Vec<[usize; 2]>,
    store_groups: Vec<Vec<[usize; 2]>>,
    /// The same for the `wgmma` of its warp.
    wgmmas: Vec<usize>,
    wgmma_groups: Vec<Vec<usize>>,
    /// Times of its proxy fences.
    proxy_fences: Vec<u32>,
    /// Visits to each synchronization point, and the one where the thread waits.
    visits: BTreeMap<SyncPoint, usize>,
    waiting_at: Option<(SyncPoint, usize)>,
}

/// A synchronization point of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum SyncPoint {
    Barrier {
        block: u32,
    },
    NamedBarrier {
        block: u32,
        id: u32,
    },
    Warp {
        block: u32,
        warp: u32,
        step: usize,
    },
    Cluster {
        cluster: u32,
    },
    /// The lanes of a warp start `wgmma` together.
    Wgmma {
        block: u32,
        warp: u32,
        step: usize,
    },
}

struct Machine<'a> {
    program: &'a Program,
    rules: Rules,
    threads: Vec<Thread>,
    memory: BTreeMap<Element, Location>,
    syncs: BTreeMap<(SyncPoint, usize), SyncInstance>,
    mbarriers: BTreeMap<(u32, u32), Mbarrier>,
    agents: usize,
    accesses: usize,
    /// Agents of `wgmma`, by the synchronization of their warp.
    wgmmas: BTreeMap<(SyncPoint, usize), usize>,
    /// Agents that write shared memory of a block, whose threads must wait for them.
    shared_writers: Vec<(u32, usize)>,
    /// For a plain store, the number of its earlier executions by the thread.
    execution: Option<usize>,
    races: Races,
}

/// Computes the races of a program on the schedule of a seed. Returns `None` for a deadlock.
pub fn races(program: &Program, rules: Rules, seed: u64) -> Option<Races> {
    let all = (0..program.blocks).flat_map(|block| (0..program.threads).map(move |thread| (block, thread)));
    let threads: Vec<_> = all
        .map(|(block, thread)| Thread {
            block,
            thread,
            ops: program.thread_ops(block, thread),
            next: 0,
            view: ClockView::default(),
            fences: Vec::new(),
            observed: Vec::new(),
            copies: Vec::new(),
            groups: Vec::new(),
            stores: Vec::new(),
            store_groups: Vec::new(),
            wgmmas: Vec::new(),
            wgmma_groups: Vec::new(),
            proxy_fences: Vec::new(),
            visits: BTreeMap::new(),
            waiting_at: None,
        })
        .collect();
    let mut machine = Machine {
        program,
        rules,
        agents: threads.len(),
        threads,
        memory: BTreeMap::new(),
        syncs: BTreeMap::new(),
        mbarriers: BTreeMap::new(),
        accesses: 0,
        wgmmas: BTreeMap::new(),
        shared_writers: Vec::new(),
        execution: None,
        races: Races::default(),
    };
    let random = &mut Random(seed);
    // Some threads, warps or blocks are much slower, so that later ones may arrive first.
    let group_size = [1, 32, 1024][random.below(3)];
    let paces: Vec<_> = (0..machine.threads.len()).map(|_| [1, 1, 3, 20, 400][random.below(5)]).collect();
    let pace = |t: &Thread| paces[((t.block * 1024 + t.thread) / group_size) as usize % paces.len()];
    let pace: Vec<_> = machine.threads.iter().map(pace).collect();
    // Optionally one thread changes its flag only when no other thread can progress. Few threads
    // change flags, and their order matters.
    let changes_flag = |(_, op): &(usize, Op)| match op {
        Op::Atomic { .. } => true,
        Op::Write { order, .. } => *order != MemoryOrder::Weak,
        _ => false,
    };
    let all = 0..machine.threads.len();
    let flag_writers: Vec<usize> = all.filter(|&thread| machine.threads[thread].ops.iter().any(changes_flag)).collect();
    let held_back =
        (!flag_writers.is_empty() && random.chance(2)).then(|| flag_writers[random.below(flag_writers.len())]);
    let is_held_back = |machine: &Machine<'_>, thread: usize| {
        let Thread { ops, next, .. } = &machine.threads[thread];
        Some(thread) == held_back && ops.get(*next).is_some_and(changes_flag)
    };
    let mut running: Vec<usize> = (0..machine.threads.len()).collect();
    while !running.is_empty() {
        let start = random.below(running.len());
        running.rotate_left(start);
        let mut progressed = false;
        for &thread in &running {
            for _ in 0..if random.chance(pace[thread]) { 1 + random.below(8) } else { 0 } {
                progressed |= !is_held_back(&machine, thread) && machine.step(thread);
            }
        }
        if !progressed {
            progressed = running.iter().fold(false, |progressed, &thread| {
                progressed | (!is_held_back(&machine, thread) && machine.step(thread))
            });
        }
        if !progressed && !held_back.is_some_and(|thread| machine.step(thread)) {
            return None;
        }
        running.retain(|&thread| machine.threads[thread].next < machine.threads[thread].ops.len());
    }
    // The last write is undetermined where several race.
    let Races { races, unfenced, block_ended_early } = &mut machine.races;
    let is_ordered_after = |thread: &Thread, agent: usize| thread.view.clock.get(agent).is_some_and(|&time| time > 0);
    *block_ended_early = machine.threads.iter().any(|thread| {
        let mut stores = thread.store_groups.iter().flatten().chain(&thread.stores);
        let mut wgmmas = thread.wgmma_groups.iter().flatten().chain(&thread.wgmmas);
        stores.any(|[reads, _]| !is_ordered_after(thread, *reads))
            || wgmmas.any(|&agent| !is_ordered_after(thread, agent))
    }) || machine.shared_writers.iter().any(|&(block, agent)| {
        !machine.threads.iter().any(|thread| thread.block == block && is_ordered_after(thread, agent))
    });
    unfenced.retain(|element, _| !races.contains_key(element));
    Some(machine.races)
}

impl Machine<'_> {
    /// Executes the next step of a thread. Returns whether it progressed.
    fn step(&mut self, tid: usize) -> bool {
        let thread = &self.threads[tid];
        let Some(&(step, op)) = thread.ops.get(thread.next) else { return false };
        let (block, warp) = (thread.block, thread.thread / 32);
        let site = AccessSite { block, thread: thread.thread, step };
        let lane = thread.thread % 32;
        let before = thread.ops[..thread.next].iter().filter(|(earlier, _)| *earlier == step).count();
        self.execution = matches!(op, Op::Write { .. }).then_some(before);
        let progressed = match op {
            Op::Init => self.init(tid, site),
            Op::Read { at, order, scope } => {
                self.access(tid, site, at, lane, false, strong(order, scope));
                if order != MemoryOrder::Weak {
                    self.observe(tid, (at.array, at.start(lane)), scope, order == MemoryOrder::Acquire, false);
                }
                true
            }
            Op::Write { at, value, order, scope } => self.write(tid, site, at, lane, value, order, scope),
            Op::Atomic { at, op, value, order, scope } => self.atomic(tid, site, at, lane, (op, value), order, scope),
            Op::WaitFlag { at, compare, values, scope } => {
                let value = values[at.start(lane) as usize];
                self.wait(tid, site, at, lane, (compare, value), scope)
            }
            Op::Fence(scope) => {
                let strength = self.strength(tid, Some(scope));
                let thread = &mut self.threads[tid];
                let acquired = thread.observed.iter().filter(|(_, first, _)| first.morally_strong(strength));
                acquired.for_each(|(_, _, view)| thread.view.join(view));
                thread.fences.push((strength, thread.view.clone()));
                true
            }
            Op::CopyAsync { to, from } => self.copy_async(tid, site, to, from, lane),
            Op::CommitCopies => {
                let group = std::mem::take(&mut self.threads[tid].copies);
                self.threads[tid].groups.push(group);
                true
            }
            Op::WaitCopies(pending) => {
                let thread = &mut self.threads[tid];
                let done = thread.groups.len().saturating_sub(pending as usize);
                thread.groups.drain(..done).flatten().for_each(|agent| thread.view.include(agent));
                true
            }
            Op::Barrier => {
                let count = self.program.threads as usize;
                self.synchronize(tid, SyncPoint::Barrier { block }, count, true)
            }
            Op::NamedBarrier { id, warps, waits } => {
                let count = (0..self.program.threads).filter(|t| warps >> (t / 32) & 1 == 1).count();
                self.synchronize(tid, SyncPoint::NamedBarrier { block, id }, count, waits)
            }
            Op::SyncWarp => {
                let mask = self.program.steps().nth(step).map_or(0, |step| step.threads.lanes);
                let count = (mask & self.program.lanes(warp)).count_ones() as usize;
                self.synchronize(tid, SyncPoint::Warp { block, warp, step }, count, true)
            }
            // Lanes exchange values, which orders no memory.
            Op::Vote | Op::Shuffle => true,
            Op::Arrive { mbarrier, rank } => {
                let target = rank.map_or(block, |rank| block / self.program.cluster * self.program.cluster + rank);
                let publishes = target == block || self.rules.remote_arrivals_release;
                let view = if publishes { self.threads[tid].view.clone() } else { ClockView::default() };
                self.count((target, mbarrier), &view, 1, 0);
                true
            }
            Op::ArriveExpectTx { mbarrier } => {
                let view = self.threads[tid].view.clone();
                self.count((block, mbarrier), &view, 1, TILE.into());
                true
            }
            Op::TmaLoad { tile, mbarrier, multicast } => self.tma_load(tid, site, tile, mbarrier, multicast),
            Op::TmaStore { tile, row } => self.tma_store(tid, site, tile, row),
            Op::Wgmma { shared } => self.wgmma(tid, site, shared),
            Op::CommitWgmma => {
                let group = std::mem::take(&mut self.threads[tid].wgmmas);
                self.threads[tid].wgmma_groups.push(group);
                true
            }
            Op::WaitWgmma(pending) => {
                let thread = &mut self.threads[tid];
                let done = thread.wgmma_groups.len().saturating_sub(pending as usize);
                thread.wgmma_groups[..done].iter().flatten().for_each(|&agent| thread.view.include(agent));
                true
            }
            Op::StoreAsync { to, mbarrier, rank } => self.store_async(tid, site, to, lane, mbarrier, rank),
            // The lane that addresses a row accesses it.
            Op::Matrix { at, count, store } => {
                if lane < 8 * count && store {
                    self.write(tid, site, at, lane, 1, MemoryOrder::Weak, Scope::Block);
                } else if lane < 8 * count {
                    self.access(tid, site, at, lane, false, None);
                }
                true
            }
            Op::CommitStores => {
                let group = std::mem::take(&mut self.threads[tid].stores);
                self.threads[tid].store_groups.push(group);
                true
            }
            Op::WaitStores { pending, read } => {
                let thread = &mut self.threads[tid];
                let done = thread.store_groups.len().saturating_sub(pending as usize);
                for [reads, writes] in thread.store_groups[..done].iter().flatten() {
                    thread.view.include(*reads);
                    if !read {
                        thread.view.include(*writes);
                    }
                }
                true
            }
            Op::FenceProxy => {
                let time = self.threads[tid].view.tick(tid);
                self.threads[tid].proxy_fences.push(time);
                true
            }
            Op::ClusterArrive => {
                let cluster = block / self.program.cluster;
                let count = (self.program.threads * self.program.cluster) as usize;
                self.synchronize(tid, SyncPoint::Cluster { cluster }, count, false)
            }
            Op::ClusterWait => {
                let point = SyncPoint::Cluster { cluster: block / self.program.cluster };
                let visits = self.threads[tid].visits.get(&point).copied().unwrap_or(0);
                let sync = self.syncs.get(&(point, visits)).filter(|sync| sync.complete);
                if let Some(sync) = sync {
                    self.threads[tid].view.join(&sync.view);
                }
                sync.is_some()
            }
            Op::WaitMbarrier { mbarrier, parity } => {
                let barrier = self.mbarriers.entry((block, mbarrier)).or_default();
                let complete = barrier.completed_phases.len() % 2 != parity as usize;
                if let Some(view) = barrier.completed_phases.last().filter(|_| complete) {
                    self.threads[tid].view.join(view);
                }
                complete
            }
        };
        let thread = &mut self.threads[tid];
        if progressed {
            thread.view.tick(tid);
            thread.next += 1;
        }
        progressed
    }
}
