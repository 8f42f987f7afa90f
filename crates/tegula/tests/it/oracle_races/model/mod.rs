//! The oracle: which accesses of a program race, by the memory consistency model of the PTX ISA (version 8.7, chapter 8).
//!
//! The words are the model's. Two operations are *morally strong* where one precedes the other in program order, or both are strong,
//! go by one proxy, overlap completely, and have scopes that include each other's thread. A *release pattern* on a location is a
//! release on it, or that, or a fence, followed by a strong write to it; it *synchronizes with* an acquire pattern that observes the
//! write, or a read-modify-write that observed it, if the first operation of the one and the last of the other are morally strong.
//! *Causality order* is program order and synchronization, transitively; a write that was observed precedes what follows the read that
//! observed it, which says nothing of what came before the write. Only waits count here: what other reads observe is up to the schedule. Two conflicting accesses race if they are not in causality order
//! and not morally strong.
//!
//! Each thread and each asynchronous operation is an agent. What an agent knows is a whole vector clock, an entry for each agent, and
//! single writes that were observed; nothing is forgotten, and each new access is compared with all before it at its element. Threads
//! run one step at a time, in an order that a seed chooses; of a program whose synchronization is deterministic any will do.

mod asynchronous;
mod clock;
mod meet;
mod memory;

use std::collections::{BTreeMap, BTreeSet};

use clock::{Known, Strength, strong};
use tegula_ir::{Order, Scope};

use super::program::{Array, Does, Program, TILE};
use crate::product::Random;

/// Rules that differ as long as the interpreter lacks them; see [`super`].
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// The source of an asynchronous copy is read until the copy was waited for, not when it starts.
    pub copies_read_late: bool,
    /// A write that was waited for precedes what follows the wait, whether anything was released or not.
    pub observation_orders: bool,
    /// A release, and a later strong write by the same thread to the same location, are a release pattern.
    pub releases_go_on: bool,
    /// An arrival at a barrier of another block, which is printed with the scope of a block, publishes all the same.
    pub remote_arrivals_publish: bool,
    /// A tile that is stored is written until the store was waited for, not when it starts.
    pub tiles_are_stored_late: bool,
}

impl Rules {
    /// The memory model.
    pub const ALL: Self = Rules {
        copies_read_late: true,
        observation_orders: true,
        releases_go_on: true,
        remote_arrivals_publish: false,
        tiles_are_stored_late: true,
    };
}

/// An element of memory: the block (0 for global memory), the array and the position.
pub type Element = (u32, Array, u32);

/// A thread at a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Party {
    pub block: u32,
    pub thread: u32,
    pub step: usize,
}

/// Accesses by element; of each pair, the lesser first.
pub type Pairs = BTreeMap<Element, BTreeSet<[Party; 2]>>;

/// What is wrong with a program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Races {
    pub races: Pairs,
    /// Writes by threads and accesses by the asynchronous proxy that are in order, but without a fence between the proxies.
    pub unfenced: Pairs,
    /// Whether a block may end while an asynchronous operation still uses its shared memory.
    pub given_up: bool,
}

/// Whoever accesses memory, and when and how.
#[derive(Clone, Copy, Debug)]
struct Agent {
    number: usize,
    time: u32,
    party: Party,
    strength: Strength,
    proxy: Proxy,
}

#[derive(Clone, Debug)]
struct Access {
    id: usize,
    agent: usize,
    time: u32,
    party: Party,
    round: Option<usize>,
    writes: bool,
    strength: Strength,
    proxy: Proxy,
}

/// By which way an access goes to memory.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Proxy {
    Generic,
    Async,
}

/// A strong write that a read of the location observes, with the release patterns that it ends.
#[derive(Clone, Debug)]
struct Published {
    id: usize,
    by: Strength,
    patterns: Vec<(Strength, Known)>,
}

#[derive(Default)]
struct Location {
    value: u32,
    accesses: Vec<Access>,
    /// The last write, and those that it observed one after the other.
    chain: Vec<Published>,
    /// Releases of each thread on this location.
    released: BTreeMap<usize, Vec<(Strength, Known)>>,
}

/// Threads that come to one place.
#[derive(Default)]
struct Meeting {
    came: usize,
    full: bool,
    known: Known,
}

/// A barrier that counts: arrivals of the phase that goes on, and what those of each phase knew.
#[derive(Default)]
struct Mbarrier {
    arrived: u32,
    /// Bytes that were announced and have not come.
    bytes: i64,
    ended: Vec<Known>,
    known: Known,
}

struct Thread {
    block: u32,
    thread: u32,
    todo: Vec<(usize, Does)>,
    next: usize,
    known: Known,
    fences: Vec<(Strength, Known)>,
    /// Release patterns that strong reads observed, and where: what comes later may acquire them.
    observed: Vec<(Element, Strength, Known)>,
    /// Agents of asynchronous copies since the last commit, and of each group.
    copies: Vec<usize>,
    groups: Vec<Vec<usize>>,
    /// The same of stores of tiles: agents that read shared memory, and agents that write.
    stores: Vec<[usize; 2]>,
    store_groups: Vec<Vec<[usize; 2]>>,
    /// The same of multiplications of its warp.
    products: Vec<usize>,
    product_groups: Vec<Vec<usize>>,
    /// When it fenced one proxy from the other.
    proxy_fences: Vec<u32>,
    /// How often it came to each place, and whether it is there.
    visits: BTreeMap<Place, usize>,
    waits_at: Option<(Place, usize)>,
}

/// Where threads meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Barrier {
        block: u32,
    },
    Named {
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
    /// Lanes of a warp multiply together.
    Multiply {
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
    meetings: BTreeMap<(Place, usize), Meeting>,
    mbarriers: BTreeMap<(u32, u32), Mbarrier>,
    agents: usize,
    accesses: usize,
    /// Agents that multiply, by the meeting of their warp.
    products: BTreeMap<(Place, usize), usize>,
    /// Agents that write to shared memory, of each block, and that some thread of it has to wait for.
    arrivals: Vec<(u32, usize)>,
    /// Of a plain store, how often its thread has come to it before.
    round: Option<usize>,
    races: Races,
}

/// The races of a program, threads taking turns as the seed says; `None` where they wait for ever.
pub fn races(program: &Program, rules: Rules, seed: u64) -> Option<Races> {
    let all = (0..program.blocks).flat_map(|block| (0..program.threads).map(move |thread| (block, thread)));
    let threads: Vec<_> = all
        .map(|(block, thread)| Thread {
            block,
            thread,
            todo: program.of_thread(block, thread),
            next: 0,
            known: Known::default(),
            fences: Vec::new(),
            observed: Vec::new(),
            copies: Vec::new(),
            groups: Vec::new(),
            stores: Vec::new(),
            store_groups: Vec::new(),
            products: Vec::new(),
            product_groups: Vec::new(),
            proxy_fences: Vec::new(),
            visits: BTreeMap::new(),
            waits_at: None,
        })
        .collect();
    let mut machine = Machine {
        program,
        rules,
        agents: threads.len(),
        threads,
        memory: BTreeMap::new(),
        meetings: BTreeMap::new(),
        mbarriers: BTreeMap::new(),
        accesses: 0,
        products: BTreeMap::new(),
        arrivals: Vec::new(),
        round: None,
        races: Races::default(),
    };
    let random = &mut Random(seed);
    // Some threads, warps or blocks are much slower than others, so that the last may come first.
    let together = [1, 32, 1024][random.below(3)];
    let paces: Vec<_> = (0..machine.threads.len()).map(|_| [1, 1, 3, 20, 400][random.below(5)]).collect();
    let pace = |t: &Thread| paces[((t.block * 1024 + t.thread) / together) as usize % paces.len()];
    let pace: Vec<_> = machine.threads.iter().map(pace).collect();
    // One thread may change its flag only when no other thread can go on: few change one, and their order matters.
    let changes = |(_, does): &(usize, Does)| match does {
        Does::Atomic { .. } => true,
        Does::Write { order, .. } => *order != Order::Weak,
        _ => false,
    };
    let all = 0..machine.threads.len();
    let changers: Vec<usize> = all.filter(|&thread| machine.threads[thread].todo.iter().any(changes)).collect();
    let last = (!changers.is_empty() && random.chance(2)).then(|| changers[random.below(changers.len())]);
    let is_held = |machine: &Machine<'_>, thread: usize| {
        let Thread { todo, next, .. } = &machine.threads[thread];
        Some(thread) == last && todo.get(*next).is_some_and(changes)
    };
    let mut left: Vec<usize> = (0..machine.threads.len()).collect();
    while !left.is_empty() {
        let start = random.below(left.len());
        left.rotate_left(start);
        let mut moved = false;
        for &thread in &left {
            for _ in 0..if random.chance(pace[thread]) { 1 + random.below(8) } else { 0 } {
                moved |= !is_held(&machine, thread) && machine.step(thread);
            }
        }
        if !moved {
            moved =
                left.iter().fold(false, |moved, &thread| moved | (!is_held(&machine, thread) && machine.step(thread)));
        }
        if !moved && !last.is_some_and(|last| machine.step(last)) {
            return None;
        }
        left.retain(|&thread| machine.threads[thread].next < machine.threads[thread].todo.len());
    }
    // Which write is the last is uncertain where several race.
    let Races { races, unfenced, given_up } = &mut machine.races;
    let knows = |thread: &Thread, agent: usize| thread.known.clock.get(agent).is_some_and(|&time| time > 0);
    *given_up = machine.threads.iter().any(|thread| {
        let mut stores = thread.store_groups.iter().flatten().chain(&thread.stores);
        let mut products = thread.product_groups.iter().flatten().chain(&thread.products);
        stores.any(|[reads, _]| !knows(thread, *reads)) || products.any(|&agent| !knows(thread, agent))
    }) || machine
        .arrivals
        .iter()
        .any(|&(block, agent)| !machine.threads.iter().any(|thread| thread.block == block && knows(thread, agent)));
    unfenced.retain(|element, _| !races.contains_key(element));
    Some(machine.races)
}

impl Machine<'_> {
    /// Does a thread's next step, if it can.
    fn step(&mut self, me: usize) -> bool {
        let thread = &self.threads[me];
        let Some(&(step, does)) = thread.todo.get(thread.next) else { return false };
        let (block, warp) = (thread.block, thread.thread / 32);
        let party = Party { block, thread: thread.thread, step };
        let lane = thread.thread % 32;
        let before = thread.todo[..thread.next].iter().filter(|(earlier, _)| *earlier == step).count();
        self.round = matches!(does, Does::Write { .. }).then_some(before);
        let goes_on = match does {
            Does::Init => self.init(me, party),
            Does::Read { at, order, scope } => {
                self.access(me, party, at, lane, false, strong(order, scope));
                if order != Order::Weak {
                    self.observe(me, (at.array, at.start(lane)), scope, order == Order::Acquire, false);
                }
                true
            }
            Does::Write { at, value, order, scope } => self.write(me, party, at, lane, value, order, scope),
            Does::Atomic { at, op, value, order, scope } => self.atomic(me, party, at, lane, (op, value), order, scope),
            Does::Wait { at, compare, values, scope } => {
                let value = values[at.start(lane) as usize];
                self.wait(me, party, at, lane, (compare, value), scope)
            }
            Does::Fence(scope) => {
                let by = self.strength(me, Some(scope));
                let thread = &mut self.threads[me];
                let learned = thread.observed.iter().filter(|(_, first, _)| first.morally_strong(by));
                learned.for_each(|(_, _, known)| thread.known.join(known));
                thread.fences.push((by, thread.known.clone()));
                true
            }
            Does::Copy { to, from } => self.copy(me, party, to, from, lane),
            Does::Commit => {
                let group = std::mem::take(&mut self.threads[me].copies);
                self.threads[me].groups.push(group);
                true
            }
            Does::AwaitCopies(pending) => {
                let thread = &mut self.threads[me];
                let done = thread.groups.len().saturating_sub(pending as usize);
                thread.groups.drain(..done).flatten().for_each(|agent| thread.known.learn(agent));
                true
            }
            Does::Barrier => {
                let count = self.program.threads as usize;
                self.meet(me, Place::Barrier { block }, count, true)
            }
            Does::Named { id, warps, waits } => {
                let count = (0..self.program.threads).filter(|t| warps >> (t / 32) & 1 == 1).count();
                self.meet(me, Place::Named { block, id }, count, waits)
            }
            Does::SyncWarp => {
                let by = self.program.steps().nth(step).map_or(0, |step| step.by.lanes);
                let count = (by & self.program.lanes(warp)).count_ones() as usize;
                self.meet(me, Place::Warp { block, warp, step }, count, true)
            }
            // Values go from lane to lane; memory has no order from that.
            Does::Vote | Does::Shuffle => true,
            Does::Arrive { mbarrier, rank } => {
                let of = rank.map_or(block, |rank| block / self.program.cluster * self.program.cluster + rank);
                let publishes = of == block || self.rules.remote_arrivals_publish;
                let known = if publishes { self.threads[me].known.clone() } else { Known::default() };
                self.count((of, mbarrier), &known, 1, 0);
                true
            }
            Does::Expect { mbarrier } => {
                let known = self.threads[me].known.clone();
                self.count((block, mbarrier), &known, 1, TILE.into());
                true
            }
            Does::CopyTile { tile, mbarrier, multicast } => self.copy_tile(me, party, tile, mbarrier, multicast),
            Does::StoreTile { tile, row } => self.store_tile(me, party, tile, row),
            Does::Multiply { shared } => self.multiply(me, party, shared),
            Does::CommitProducts => {
                let group = std::mem::take(&mut self.threads[me].products);
                self.threads[me].product_groups.push(group);
                true
            }
            Does::AwaitProducts(pending) => {
                let thread = &mut self.threads[me];
                let done = thread.product_groups.len().saturating_sub(pending as usize);
                thread.product_groups[..done].iter().flatten().for_each(|&agent| thread.known.learn(agent));
                true
            }
            Does::Send { to, mbarrier, rank } => self.send(me, party, to, lane, mbarrier, rank),
            // The row is of the lane that gives it.
            Does::Matrix { at, count, store } => {
                if lane < 8 * count && store {
                    self.write(me, party, at, lane, 1, Order::Weak, Scope::Block);
                } else if lane < 8 * count {
                    self.access(me, party, at, lane, false, None);
                }
                true
            }
            Does::CommitStores => {
                let group = std::mem::take(&mut self.threads[me].stores);
                self.threads[me].store_groups.push(group);
                true
            }
            Does::AwaitStores { pending, read } => {
                let thread = &mut self.threads[me];
                let done = thread.store_groups.len().saturating_sub(pending as usize);
                for [reads, writes] in thread.store_groups[..done].iter().flatten() {
                    thread.known.learn(*reads);
                    if !read {
                        thread.known.learn(*writes);
                    }
                }
                true
            }
            Does::FenceProxy => {
                let time = self.threads[me].known.tick(me);
                self.threads[me].proxy_fences.push(time);
                true
            }
            Does::ClusterArrive => {
                let cluster = block / self.program.cluster;
                let count = (self.program.threads * self.program.cluster) as usize;
                self.meet(me, Place::Cluster { cluster }, count, false)
            }
            Does::ClusterWait => {
                let place = Place::Cluster { cluster: block / self.program.cluster };
                let visits = self.threads[me].visits.get(&place).copied().unwrap_or(0);
                let meeting = self.meetings.get(&(place, visits)).filter(|meeting| meeting.full);
                if let Some(meeting) = meeting {
                    self.threads[me].known.join(&meeting.known);
                }
                meeting.is_some()
            }
            Does::Await { mbarrier, parity } => {
                let barrier = self.mbarriers.entry((block, mbarrier)).or_default();
                let ended = barrier.ended.len() % 2 != parity as usize;
                if let Some(known) = barrier.ended.last().filter(|_| ended) {
                    self.threads[me].known.join(known);
                }
                ended
            }
        };
        let thread = &mut self.threads[me];
        if goes_on {
            thread.known.tick(me);
            thread.next += 1;
        }
        goes_on
    }
}
