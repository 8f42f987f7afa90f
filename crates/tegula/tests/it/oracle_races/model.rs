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

use std::collections::{BTreeMap, BTreeSet};

use tegula_ir::{Order, Scope};

use super::program::{Array, At, Does, Program, TILE};
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
    /// Writes by threads and later accesses by the asynchronous proxy that are in order, but
    /// without a fence between the proxies.
    pub unfenced: Pairs,
    /// Whether a block may end while a store of a tile still reads its shared memory.
    pub given_up: bool,
}

/// What an agent knows to have happened.
#[derive(Clone, Debug, Default)]
struct Known {
    clock: Vec<u32>,
    observed: BTreeSet<usize>,
}

impl Known {
    fn join(&mut self, other: &Known) {
        self.clock.resize(self.clock.len().max(other.clock.len()), 0);
        self.clock.iter_mut().zip(&other.clock).for_each(|(mine, theirs)| *mine = (*mine).max(*theirs));
        self.observed.extend(&other.observed);
    }

    fn tick(&mut self, agent: usize) -> u32 {
        self.clock.resize(self.clock.len().max(agent + 1), 0);
        self.clock[agent] += 1;
        self.clock[agent]
    }

    /// All that an asynchronous operation did, which is done at one time.
    fn learn(&mut self, agent: usize) {
        self.clock.resize(self.clock.len().max(agent + 1), 0);
        self.clock[agent] = 1;
    }

    fn has(&self, access: &Access) -> bool {
        self.clock.get(access.agent).is_some_and(|&time| time >= access.time) || self.observed.contains(&access.id)
    }
}

/// A thread and, for a strong operation, its scope.
#[derive(Clone, Copy, Debug)]
struct Strength {
    thread: usize,
    block: u32,
    scope: Option<Scope>,
}

impl Strength {
    fn morally_strong(self, other: Self) -> bool {
        let includes = |a: Self, b: Self| match a.scope {
            None => false,
            Some(Scope::Block) => a.block == b.block,
            Some(Scope::Device | Scope::System) => true,
        };
        self.thread == other.thread || includes(self, other) && includes(other, self)
    }
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
    /// When it fenced one proxy from the other.
    proxy_fences: Vec<u32>,
    /// How often it came to each place, and whether it is there.
    visits: BTreeMap<Place, usize>,
    waits_at: Option<(Place, usize)>,
}

/// Where threads meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    Barrier { block: u32 },
    Named { block: u32, id: u32 },
    Warp { block: u32, warp: u32, step: usize },
    Cluster { cluster: u32 },
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
    *given_up = machine.threads.iter().any(|thread| {
        let mut stores = thread.store_groups.iter().flatten().chain(&thread.stores);
        stores.any(|[reads, _]| thread.known.clock.get(*reads).is_none_or(|&time| time == 0))
    });
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
                    self.observe(me, (at.array, at.elements(lane).start), scope, order == Order::Acquire, false);
                }
                true
            }
            Does::Write { at, value, order, scope } => self.write(me, party, at, lane, value, order, scope),
            Does::Atomic { at, value, order, scope, .. } => self.atomic(me, party, at, lane, value, order, scope),
            Does::Wait { at, value, scope } => self.wait(me, party, at, lane, value, scope),
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

    fn strength(&self, thread: usize, scope: Option<Scope>) -> Strength {
        Strength { thread, block: self.threads[thread].block, scope }
    }

    fn location(&mut self, me: usize, array: Array, index: u32) -> (Element, &mut Location) {
        let block = if array.is_shared() { self.threads[me].block } else { 0 };
        let element = (block, array, index);
        (element, self.memory.entry(element).or_default())
    }

    /// Begins all that the block shares, as thread 0 alone does before a barrier.
    fn init(&mut self, me: usize, party: Party) -> bool {
        for array in [Array::SharedData, Array::SharedFlags, Array::Tiles] {
            for index in 0..array.len() {
                self.access(me, party, At::cell(array, index), 0, true, None);
            }
        }
        let time = self.threads[me].known.tick(me);
        self.threads[me].proxy_fences.push(time);
        true
    }

    /// An access of a thread to each of the elements. Gives the number of the last.
    fn access(&mut self, me: usize, party: Party, at: At, lane: u32, writes: bool, scope: Option<Scope>) -> usize {
        let strength = self.strength(me, scope);
        let time = self.threads[me].known.tick(me);
        let known = self.threads[me].known.clone();
        let by = Agent { number: me, time, party, strength, proxy: Proxy::Generic };
        for index in at.elements(lane) {
            let (element, _) = self.location(me, at.array, index);
            self.note(&by, &known, element, writes);
        }
        self.accesses
    }

    /// Compares an access with all before it, and keeps it.
    fn note(&mut self, by: &Agent, known: &Known, element: Element, writes: bool) {
        self.accesses += 1;
        let Agent { number: agent, time, party, strength, proxy } = *by;
        let location = self.memory.entry(element).or_default();
        // Lanes of a warp that store one value in one instruction do what one of them does.
        let round = self.round;
        let together = |other: &Access| {
            let weak = strength.scope.is_none() && other.strength.scope.is_none();
            let warp = |party: Party| (party.block, party.thread / 32, party.step);
            weak && round.is_some() && round == other.round && warp(party) == warp(other.party)
        };
        let races = |other: &&Access| {
            let both_strong = strength.scope.is_some() && other.strength.scope.is_some() && proxy == other.proxy;
            (writes || other.writes)
                && !known.has(other)
                // By one agent only where one instruction writes an element twice, which none does.
                && other.agent != agent
                && !(both_strong && strength.morally_strong(other.strength))
                && !(writes && other.writes && together(other))
        };
        let pair = |other: &Access| if other.party < party { [other.party, party] } else { [party, other.party] };
        let met: Vec<_> = location.accesses.iter().filter(races).map(pair).collect();
        // The asynchronous proxy reads or overwrites the last write, whose thread has fenced shared
        // memory.
        let last = location.accesses.iter().rev().find(|other| other.writes);
        let unfenced = last.filter(|last| proxy == Proxy::Async && last.proxy == Proxy::Generic).filter(|last| {
            let seen = known.clock.get(last.agent).copied().unwrap_or(0);
            let fences = self.threads[last.agent].proxy_fences.iter().filter(|_| element.1.is_shared());
            known.has(last) && !fences.into_iter().any(|&fence| fence > last.time && fence <= seen)
        });
        let unfenced = unfenced.map(pair);
        location.accesses.push(Access { id: self.accesses, agent, time, party, round, writes, strength, proxy });
        if !met.is_empty() {
            self.races.races.entry(element).or_default().extend(met);
        }
        if let Some(pair) = unfenced {
            self.races.unfenced.entry(element).or_default().insert(pair);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "all that there is to a store")]
    fn write(&mut self, me: usize, party: Party, at: At, lane: u32, value: u32, order: Order, scope: Scope) -> bool {
        let id = self.access(me, party, at, lane, true, strong(order, scope));
        for index in at.elements(lane) {
            let published = (order != Order::Weak).then(|| self.publish(me, id, (at.array, index), order, scope));
            let (_, location) = self.location(me, at.array, index);
            location.value = value;
            location.chain = published.into_iter().collect();
        }
        true
    }

    #[allow(clippy::too_many_arguments, reason = "all that there is to an atomic operation")]
    fn atomic(&mut self, me: usize, party: Party, at: At, lane: u32, value: u32, order: Order, scope: Scope) -> bool {
        let id = self.access(me, party, at, lane, true, strong(order, scope));
        let index = at.elements(lane).start;
        let acquires = matches!(order, Order::Acquire | Order::AcqRel);
        self.observe(me, (at.array, index), scope, acquires, false);
        let published = self.publish(me, id, (at.array, index), order, scope);
        let (_, location) = self.location(me, at.array, index);
        if !location.chain.last().is_some_and(|last| last.by.morally_strong(published.by)) {
            location.chain.clear();
        }
        location.value = location.value.wrapping_add(value);
        location.chain.push(published);
        true
    }

    /// A strong write, with the release patterns that it ends.
    fn publish(&mut self, me: usize, id: usize, (array, index): (Array, u32), order: Order, scope: Scope) -> Published {
        let by = self.strength(me, Some(scope));
        let (known, fences) = (self.threads[me].known.clone(), self.threads[me].fences.clone());
        let goes_on = self.rules.releases_go_on;
        let (_, location) = self.location(me, array, index);
        let released = location.released.entry(me).or_default();
        if matches!(order, Order::Release | Order::AcqRel) {
            released.push((by, known));
        }
        let patterns = fences.into_iter().chain(released.iter().cloned()).collect();
        if !goes_on {
            released.clear();
        }
        Published { id, by, patterns }
    }

    /// What a strong read learns of the writes that it observes, and, if it acquires, of what came before.
    fn observe(&mut self, me: usize, (array, index): (Array, u32), scope: Scope, acquires: bool, waits: bool) {
        let by = self.strength(me, Some(scope));
        let (element, location) = self.location(me, array, index);
        if location.chain.last().is_some_and(|last| last.by.morally_strong(by)) {
            let chain = location.chain.clone();
            let thread = &mut self.threads[me];
            // What a read observes that does not wait depends on the schedule.
            if self.rules.observation_orders && waits {
                thread.known.observed.extend(chain.iter().map(|write| write.id));
            }
            let patterns = chain.into_iter().flat_map(|write| write.patterns);
            thread.observed.extend(patterns.map(|(first, known)| (element, first, known)));
        }
        let thread = &mut self.threads[me];
        let learned = thread.observed.iter().filter(|(at, first, _)| *at == element && first.morally_strong(by));
        learned.filter(|_| acquires).for_each(|(_, _, known)| thread.known.join(known));
    }

    fn wait(&mut self, me: usize, party: Party, at: At, lane: u32, value: u32, scope: Scope) -> bool {
        let index = at.elements(lane).start;
        if self.location(me, at.array, index).1.value < value {
            return false;
        }
        self.access(me, party, at, lane, false, Some(scope));
        self.observe(me, (at.array, index), scope, true, true);
        true
    }

    /// Somebody who works beside a thread, and knows what that knew.
    fn fork(&mut self, me: usize, party: Party, proxy: Proxy) -> (Agent, Known) {
        let number = self.agents;
        self.agents += 1;
        let mut known = self.threads[me].known.clone();
        let time = known.tick(number);
        (Agent { number, time, party, strength: self.strength(me, None), proxy }, known)
    }

    fn copy(&mut self, me: usize, party: Party, to: At, from: At, lane: u32) -> bool {
        let (by, known) = self.fork(me, party, Proxy::Generic);
        if self.rules.copies_read_late {
            from.elements(lane).for_each(|index| self.note(&by, &known, (0, from.array, index), false));
        } else {
            self.access(me, party, from, lane, false, None);
        }
        to.elements(lane).for_each(|index| self.note(&by, &known, (party.block, to.array, index), true));
        self.threads[me].copies.push(by.number);
        true
    }

    /// Arrivals and bytes at a barrier, and what comes with them.
    fn count(&mut self, (block, mbarrier): (u32, u32), known: &Known, arrivals: u32, bytes: i64) {
        let count = self.program.arrivals(mbarrier);
        let barrier = self.mbarriers.entry((block, mbarrier)).or_default();
        barrier.known.join(known);
        (barrier.arrived, barrier.bytes) = (barrier.arrived + arrivals, barrier.bytes + bytes);
        if barrier.arrived == count && barrier.bytes == 0 {
            barrier.arrived = 0;
            barrier.ended.push(std::mem::take(&mut barrier.known));
        }
    }

    /// Where the bytes are counted, what the copy wrote is known, whatever its proxy.
    fn copy_tile(&mut self, me: usize, party: Party, tile: u32, mbarrier: u32, multicast: bool) -> bool {
        let cluster = self.program.cluster;
        let first = party.block / cluster * cluster;
        let blocks = if multicast { first..first + cluster } else { party.block..party.block + 1 };
        let (by, known) = self.fork(me, party, Proxy::Async);
        let mut done = Known::default();
        done.learn(by.number);
        for block in blocks {
            for index in tile * TILE..(tile + 1) * TILE {
                self.note(&by, &known, (block, Array::Tiles, index), true);
            }
            self.count((block, mbarrier), &done, 0, -i64::from(TILE));
        }
        true
    }

    fn store_tile(&mut self, me: usize, party: Party, tile: u32, row: u32) -> bool {
        let (reads, known) = self.fork(me, party, Proxy::Async);
        for index in tile * TILE..(tile + 1) * TILE {
            self.note(&reads, &known, (party.block, Array::Tiles, index), false);
        }
        let (mut writes, mut known) = self.fork(me, party, Proxy::Async);
        if !self.rules.tiles_are_stored_late {
            let time = self.threads[me].known.tick(me);
            (writes.number, writes.time, known) = (me, time, self.threads[me].known.clone());
        }
        for index in row * TILE..(row + 1) * TILE {
            self.note(&writes, &known, (0, Array::Stored, index), true);
        }
        self.threads[me].stores.push([reads.number, if writes.number == me { reads.number } else { writes.number }]);
        true
    }

    /// Comes to a place where so many threads meet. Gives whether the thread goes on.
    fn meet(&mut self, me: usize, place: Place, count: usize, waits: bool) -> bool {
        let thread = &mut self.threads[me];
        let at = match thread.waits_at {
            Some(at) => at,
            None => {
                let at = match place {
                    // Whoever meets there next is of the next meeting.
                    Place::Named { .. } => {
                        (place, self.meetings.range((place, 0)..=(place, usize::MAX)).filter(|(_, m)| m.full).count())
                    }
                    _ => {
                        let visits = thread.visits.entry(place).or_default();
                        *visits += 1;
                        (place, *visits)
                    }
                };
                let meeting = self.meetings.entry(at).or_default();
                meeting.came += 1;
                meeting.full = meeting.came == count;
                meeting.known.join(&thread.known);
                thread.waits_at = waits.then_some(at);
                at
            }
        };
        if !waits {
            return true;
        }
        let meeting = &self.meetings[&at];
        if meeting.full {
            thread.known.join(&meeting.known);
            thread.waits_at = None;
        }
        meeting.full
    }
}

fn strong(order: Order, scope: Scope) -> Option<Scope> {
    (order != Order::Weak).then_some(scope)
}
