//! Which accesses are ordered, and which race.
//!
//! Every lane has a clock that advances whenever it synchronises. An access is remembered as (lane, clock); it happened before a
//! later one exactly if the later lane *knows* that clock: from its own past, from the last barrier of its block, from the last
//! synchronisation of its warp, or from something it acquired. Two accesses to one element, at least one of them a write, that
//! are not ordered so are a race, whatever order the interpreter happened to run them in. (The scheme is that of
//! Flanagan and Freund, "FastTrack: efficient and precise dynamic race detection", PLDI 2009, with barriers as wholesale
//! synchronisation instead of clock vectors for every lane.)
//!
//! Three readers an element are enough to remember while only barriers and whole-warp synchronisation order things: the latest,
//! the latest other lane of its warp, and the latest of another warp. A later writer that races with any reader races with one
//! of these. Kernels with finer synchronisation keep every reader.
//!
//! What works beside the threads (copies of tiles, matrix instructions of warpgroups) are *agents*: lanes of their own, whose clocks
//! go up with what they are given to do. An agent's access is remembered when its work is started, and known to nobody until
//! somebody waits for it. So an early use is found whatever the schedule, and so is a release that comes before the wait.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tegula_ir::{Scope, SiteId};

use super::release::{Published, Writer};

/// An access that happened: by which lane of its block, at which clock, where in the source. Clock 0: none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Access {
    pub clock: u32,
    pub site: u32,
    pub lane: u16,
}

/// Lanes from here on are agents.
pub(super) const AGENT: u16 = 0x8000;

/// The lane that looks back.
#[derive(Clone, Copy, Debug)]
pub(super) struct Now {
    pub lane: u16,
    pub clock: u32,
    pub site: SiteId,
    /// Whom the access speaks to, where it is one that may race with others of its kind.
    pub ordered: Option<Scope>,
}

/// Whose knowledge decides what came before.
#[derive(Clone, Copy, Debug)]
pub(super) enum Eyes<'a> {
    /// A thread of the block, now.
    Thread(Now),
    /// A thread of the cluster, when it sent something.
    Sender(&'a Knowledge),
}

impl Now {
    pub fn access(self) -> Access {
        Access { clock: self.clock, site: self.site.0, lane: self.lane }
    }
}

/// What a lane knows beyond its own block's barriers: for whole blocks and for single lanes, up to which clock. Both sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Knowledge {
    /// Everything the threads of a block did before this clock.
    blocks: Vec<(u32, u32)>,
    /// Everything a lane did up to and including this clock.
    lanes: Vec<((u32, u16), u32)>,
}

impl Knowledge {
    /// What an agent did.
    pub fn of_agent(block: u32, agent: u16, clock: u32) -> Self {
        Knowledge { blocks: Vec::new(), lanes: vec![((block, agent), clock)] }
    }

    pub fn join(&mut self, other: &Knowledge) {
        join(&mut self.blocks, &other.blocks);
        join(&mut self.lanes, &other.lanes);
    }

    pub fn covers(&self, block: u32, access: &Access) -> bool {
        access.lane < AGENT && known(&self.blocks, block).is_some_and(|clock| access.clock < clock)
            || known(&self.lanes, (block, access.lane)).is_some_and(|clock| access.clock <= clock)
    }
}

/// The later clock of each.
fn join<K: Copy + Ord>(mine: &mut Vec<(K, u32)>, other: &[(K, u32)]) {
    if mine.is_empty() || other.is_empty() {
        mine.extend(other);
        return;
    }
    let mut joined = Vec::with_capacity(mine.len() + other.len());
    let (mut a, mut b) = (mine.iter().copied().peekable(), other.iter().copied().peekable());
    while let (Some(&(key, clock)), Some(&(further, theirs))) = (a.peek(), b.peek()) {
        if key <= further {
            a.next();
        }
        if further <= key {
            b.next();
        }
        joined.push(match key.cmp(&further) {
            std::cmp::Ordering::Less => (key, clock),
            std::cmp::Ordering::Equal => (key, clock.max(theirs)),
            std::cmp::Ordering::Greater => (further, theirs),
        });
    }
    joined.extend(a);
    joined.extend(b);
    *mine = joined;
}

fn known<K: Copy + Ord>(clocks: &[(K, u32)], key: K) -> Option<u32> {
    clocks.binary_search_by_key(&key, |&(key, _)| key).ok().map(|at| clocks[at].1)
}

/// When each lane fenced. What it did before is behind the fence for whoever knows of the fence.
#[derive(Debug, Default)]
pub(super) struct Fences(FxHashMap<u16, Vec<u32>>);

impl Fences {
    /// The first fence of an access's lane after it.
    fn after(&self, access: &Access) -> Option<Access> {
        let clocks = self.0.get(&access.lane)?;
        let clock = *clocks.get(clocks.partition_point(|&clock| clock < access.clock))?;
        Some(Access { clock, ..*access })
    }
}

/// Something for the block alone, and something for the whole device.
#[derive(Clone, Debug)]
pub(super) struct ByReach<T> {
    pub block: Option<T>,
    pub device: Option<T>,
}

impl<T> Default for ByReach<T> {
    fn default() -> Self {
        ByReach { block: None, device: None }
    }
}

/// The clocks of one block.
#[derive(Debug)]
pub(super) struct Clocks {
    pub block: u32,
    clocks: Vec<u32>,
    /// All lanes of the block know everything before this clock …
    base: u32,
    /// … and knew everything before that one one barrier earlier.
    previous: u32,
    /// All lanes of a warp know everything their warp did before this clock.
    warps: Vec<u32>,
    /// What else each lane knows.
    known: Vec<Option<Arc<Knowledge>>>,
    /// What each lane's last fences published, and what it read since that a fence would make known.
    pub fenced: Vec<ByReach<Arc<Knowledge>>>,
    pub seen: Vec<ByReach<Knowledge>>,
    /// Fences for what goes past the caches, and for barriers that were begun.
    proxies: Fences,
    begins: Fences,
    /// Whether the last barrier ordered anything.
    pub barrier_needed: bool,
    /// Whether reads must all be remembered.
    pub every_reader: bool,
    /// Blocks whose releases were read in vain, since a scope was too narrow, and where.
    pub missed: BTreeMap<u32, SiteId>,
}

impl Clocks {
    pub fn new(block: u32, threads: u32, every_reader: bool) -> Self {
        let n = threads as usize;
        Clocks {
            block,
            clocks: vec![1; n],
            base: 1,
            previous: 1,
            warps: vec![1; n.div_ceil(32)],
            known: vec![None; n],
            fenced: vec![ByReach::default(); n],
            seen: vec![ByReach::default(); n],
            proxies: Fences::default(),
            begins: Fences::default(),
            barrier_needed: false,
            every_reader,
            missed: BTreeMap::new(),
        }
    }

    pub fn clock(&self, lane: u16) -> u32 {
        self.clocks[usize::from(lane)]
    }

    /// Whether an access of this block happened before what `now` does.
    #[inline]
    fn ordered(&mut self, access: &Access, now: &Now) -> bool {
        if access.lane == now.lane {
            return true;
        }
        let known = |clocks: &Self| {
            clocks.known[usize::from(now.lane)].as_ref().is_some_and(|k| k.covers(clocks.block, access))
        };
        if access.lane >= AGENT {
            // Any barrier may be the one that made it known.
            let known = known(self);
            self.barrier_needed |= known;
            return known;
        }
        if access.clock < self.base {
            self.barrier_needed |= access.clock >= self.previous;
            return true;
        }
        let warp = usize::from(now.lane / 32);
        if usize::from(access.lane / 32) == warp && access.clock < self.warps[warp] {
            return true;
        }
        known(self)
    }

    /// Whether an access of this block happened before what somebody does or did.
    pub fn seen_by(&mut self, eyes: &Eyes<'_>, access: &Access) -> bool {
        match eyes {
            Eyes::Thread(now) => self.ordered(access, now),
            Eyes::Sender(known) => known.covers(self.block, access),
        }
    }

    /// As [`Clocks::seen_by`], of an access of any block.
    pub fn seen_across(&mut self, eyes: &Eyes<'_>, block: u32, access: &Access) -> bool {
        match eyes {
            Eyes::Thread(now) => self.ordered_across(block, access, now),
            Eyes::Sender(known) => known.covers(block, access),
        }
    }

    /// Whether what goes past the caches sees an access that happened before.
    fn past_caches(&mut self, eyes: &Eyes<'_>, access: &Access) -> bool {
        access.lane >= AGENT || self.proxies.after(access).is_some_and(|fence| self.seen_by(eyes, &fence))
    }

    /// Whether others see a barrier that was begun before.
    pub fn sees_begun(&mut self, eyes: &Eyes<'_>, begun: &Access) -> bool {
        self.begins.after(begun).is_some_and(|fence| self.seen_by(eyes, &fence))
    }

    /// What the lane wrote is seen past the caches.
    pub fn fence_proxy(&mut self, lane: u16) {
        let clock = &mut self.clocks[usize::from(lane)];
        self.proxies.0.entry(lane).or_default().push(*clock);
        *clock += 1;
    }

    /// Barriers that the lane began are seen.
    pub fn fence_begun(&mut self, lane: u16) {
        let clock = &mut self.clocks[usize::from(lane)];
        self.begins.0.entry(lane).or_default().push(*clock);
        *clock += 1;
    }

    /// Whether an access of any block happened before what `now` does.
    fn ordered_across(&mut self, block: u32, access: &Access, now: &Now) -> bool {
        if block == self.block {
            return self.ordered(access, now);
        }
        self.known[usize::from(now.lane)].as_ref().is_some_and(|k| k.covers(block, access))
    }

    /// All threads of the block have met.
    pub fn barrier(&mut self) {
        let next = self.clocks.iter().max().copied().unwrap_or(0) + 1;
        self.previous = self.base;
        self.base = next;
        self.clocks.fill(next);
        self.warps.fill(next);
        self.barrier_needed = false;
        if self.known.iter().any(Option::is_some) {
            let mut all = self.different(0..self.known.len());
            all.lanes.retain(|&((block, lane), _)| block != self.block || lane >= AGENT);
            self.known.fill(Some(Arc::new(all)));
        }
    }

    /// Lanes of a warp have met.
    pub fn sync_warp(&mut self, warp: u32, mask: u32, existing: u32) {
        let lanes = || lanes_of(warp, mask & existing);
        let next = lanes().map(|l| self.clock(l)).max().unwrap_or(0) + 1;
        let whole = mask & existing == existing;
        if !whole || lanes().any(|l| self.known[usize::from(l)].is_some()) {
            let all = Arc::new(self.of_lanes(warp, mask & existing));
            lanes().for_each(|l| self.known[usize::from(l)] = Some(all.clone()));
        }
        lanes().for_each(|l| self.clocks[usize::from(l)] = next);
        if whole {
            self.warps[warp as usize] = next;
        }
    }

    /// All that lanes know from elsewhere. Mostly neighbours know the same, and it is looked at once.
    fn different(&self, lanes: impl Iterator<Item = usize>) -> Knowledge {
        let (mut all, mut last) = (Knowledge::default(), None);
        for known in lanes.filter_map(|lane| self.known[lane].as_ref()) {
            if !last.is_some_and(|last| Arc::ptr_eq(last, known)) {
                all.join(known);
                last = Some(known);
            }
        }
        all
    }

    /// All that lanes of a warp know and have done.
    fn of_lanes(&self, warp: u32, mask: u32) -> Knowledge {
        let mut all = self.different(lanes_of(warp, mask).map(usize::from));
        join(&mut all.blocks, &[(self.block, self.base)]);
        let before = self.warps[warp as usize];
        let in_warp = if before > self.base { u32::MAX } else { mask };
        let own = lanes_of(warp, in_warp).map(|l| {
            let did = mask >> (l % 32) & 1 == 1;
            ((self.block, l), if did { self.clock(l) } else { before - 1 })
        });
        join(&mut all.lanes, &own.collect::<Vec<_>>());
        all
    }

    /// Everything that all lanes of the block know.
    pub fn of_all(&self) -> Knowledge {
        self.different(0..self.known.len())
    }

    /// A lane publishes what it knows; what it does from now on is not part of that.
    pub fn release(&mut self, lane: u16) -> Knowledge {
        self.release_lanes(u32::from(lane / 32), 1 << (lane % 32))
    }

    /// Lanes of a warp publish what they know.
    pub fn release_lanes(&mut self, warp: u32, mask: u32) -> Knowledge {
        let knowledge = self.of_lanes(warp, mask);
        lanes_of(warp, mask).for_each(|lane| self.clocks[usize::from(lane)] += 1);
        knowledge
    }

    pub fn acquire(&mut self, lane: u16, what: &Knowledge) {
        self.acquire_lanes(u32::from(lane / 32), 1 << (lane % 32), what);
    }

    pub fn acquire_lanes(&mut self, warp: u32, mask: u32, what: &Knowledge) {
        let mut last: Option<(Option<Arc<Knowledge>>, Arc<Knowledge>)> = None;
        for lane in lanes_of(warp, mask) {
            let known = &mut self.known[usize::from(lane)];
            let same = |before: &Option<Arc<Knowledge>>| match (before, &*known) {
                (Some(before), Some(known)) => Arc::ptr_eq(before, known),
                (before, known) => before.is_none() && known.is_none(),
            };
            let all = match &last {
                Some((before, all)) if same(before) => all.clone(),
                _ => {
                    let mut all = known.as_deref().cloned().unwrap_or_default();
                    all.join(what);
                    Arc::new(all)
                }
            };
            last = Some((known.replace(all.clone()), all));
        }
    }

    /// A fence: later relaxed stores publish what the lane knows now; earlier relaxed loads make known what they saw. One for
    /// the block says nothing to other blocks and makes nothing known of them.
    pub fn fence(&mut self, lane: u16, scope: Scope) {
        let seen = &mut self.seen[usize::from(lane)];
        let of_others = if scope == Scope::Block { None } else { seen.device.take() };
        for seen in seen.block.take().into_iter().chain(of_others) {
            self.acquire(lane, &seen);
        }
        let known = Arc::new(self.release(lane));
        let fenced = &mut self.fenced[usize::from(lane)];
        if scope != Scope::Block {
            fenced.device = Some(known.clone());
        }
        fenced.block = Some(known);
    }
}

/// The lanes of a mask, as positions in the block.
pub(super) fn lanes_of(warp: u32, mask: u32) -> impl Iterator<Item = u16> {
    (0..32u32).filter(move |l| mask >> l & 1 == 1).map(move |l| (warp * 32 + l) as u16)
}

/// An earlier access that a new one races with.
#[derive(Clone, Copy, Debug)]
pub(super) struct Conflict {
    pub block: u32,
    pub earlier: Access,
    pub earlier_writes: bool,
}

/// What is wrong with an agent's read.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hazard {
    /// Nobody wrote what it reads.
    Unwritten,
    /// A write that is in no order with it.
    Conflict(Conflict),
    /// A write by a thread, without a fence after it.
    BehindCaches(Access),
}

impl Hazard {
    /// What kind it is, and the line of the earlier access.
    pub fn line(&self) -> (u8, u32) {
        match self {
            Hazard::Unwritten => (0, 0),
            Hazard::Conflict(conflict) => (1, conflict.earlier.site),
            Hazard::BehindCaches(write) => (2, write.site),
        }
    }
}

/// What is remembered of one element of shared memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cell {
    pub write: Access,
    reads: [Access; 3],
    /// Whether it was ever written, plainly or not.
    pub written: bool,
    /// Lane + 1 whose asynchronous copy is on its way here.
    pub in_flight: u16,
}

/// For elements, by memory and index, the plain writes that other lanes made together with the last one: of the same value, in the same instruction.
#[derive(Debug, Default)]
pub(super) struct Equals(FxHashMap<(u32, u64), Vec<(u32, Access)>>);

impl Equals {
    pub fn add(&mut self, at: (u32, u64), block: u32, access: Access) {
        self.0.entry(at).or_default().push((block, access));
    }

    pub fn clear(&mut self, at: (u32, u64)) {
        if !self.0.is_empty() {
            self.0.remove(&at);
        }
    }

    /// One of them that is in no order with what somebody does or did.
    pub fn unordered(&self, clocks: &mut Clocks, at: (u32, u64), eyes: &Eyes<'_>) -> Option<Conflict> {
        if self.0.is_empty() {
            return None;
        }
        let mut writes = self.0.get(&at)?.iter();
        let &(block, earlier) = writes.find(|(block, access)| !clocks.seen_across(eyes, *block, access))?;
        Some(Conflict { block, earlier, earlier_writes: true })
    }
}

/// What is remembered of the arrays of a block's shared memory.
#[derive(Debug)]
pub(super) struct SharedShadow {
    pub cells: Vec<Vec<Cell>>,
    /// Who else used an element, in kernels with finer synchronisation.
    histories: FxHashMap<(u32, u32), History>,
    /// What releases have published at an element.
    published: FxHashMap<(u32, u32), Published>,
    pub equals: Equals,
}

impl SharedShadow {
    pub fn new(lengths: impl Iterator<Item = u64>) -> Self {
        let cells = lengths.map(|n| vec![Cell::default(); n as usize]).collect();
        SharedShadow {
            cells,
            histories: FxHashMap::default(),
            published: FxHashMap::default(),
            equals: Equals::default(),
        }
    }

    pub fn cell(&mut self, array: usize, index: usize) -> &mut Cell {
        &mut self.cells[array][index]
    }

    /// Notes a read of an element that was written before the block's last barrier and has no copy on its way, which is what
    /// nearly every read is. False where it is not so; then nothing is noted.
    #[inline]
    pub fn read_settled(&mut self, clocks: &mut Clocks, array: usize, index: usize, now: &Now) -> bool {
        let cell = &mut self.cells[array][index];
        let write = &cell.write;
        if write.clock == 0 || write.clock >= clocks.base || cell.in_flight != 0 || clocks.every_reader {
            return false;
        }
        clocks.barrier_needed |= write.clock >= clocks.previous && write.lane != now.lane;
        remember(&mut cell.reads, now.access());
        true
    }

    /// A read; the write it races with, if there is one.
    #[inline]
    pub fn read(&mut self, clocks: &mut Clocks, array: usize, index: usize, now: &Now) -> Option<Conflict> {
        if clocks.every_reader {
            return self.remembered(clocks, array, index, now, false);
        }
        let cell = &mut self.cells[array][index];
        let write = cell.write;
        remember(&mut cell.reads, now.access());
        if write.clock == 0 || clocks.ordered(&write, now) {
            return None;
        }
        Some(Conflict { block: clocks.block, earlier: write, earlier_writes: true })
    }

    /// A write; an access it races with, if there is one.
    #[inline]
    pub fn write(&mut self, clocks: &mut Clocks, array: usize, index: usize, now: &Now) -> Option<Conflict> {
        self.cells[array][index].written = true;
        if clocks.every_reader {
            return self.remembered(clocks, array, index, now, true);
        }
        let conflict = self.would_race(clocks, array, index, now);
        let cell = &mut self.cells[array][index];
        *cell = Cell { write: now.access(), reads: Default::default(), ..*cell };
        conflict
    }

    /// An access that a plain write would race with, if there is one.
    #[inline]
    pub fn would_race(&self, clocks: &mut Clocks, array: usize, index: usize, now: &Now) -> Option<Conflict> {
        let (block, Cell { write, reads, .. }) = (clocks.block, self.cells[array][index]);
        if clocks.every_reader {
            let write = (write.clock != 0).then_some((block, write));
            let history = self.histories.get(&(array as u32, index as u32));
            return history.unwrap_or(&History::default()).conflict(write, clocks, now, true);
        }
        let races = |clocks: &mut Clocks, access: &Access| access.clock != 0 && !clocks.ordered(access, now);
        if races(clocks, &write) {
            return Some(Conflict { block, earlier: write, earlier_writes: true });
        }
        let reader = reads.into_iter().find(|read| races(clocks, read));
        reader.map(|earlier| Conflict { block, earlier, earlier_writes: false })
    }

    fn remembered(
        &mut self,
        clocks: &mut Clocks,
        array: usize,
        index: usize,
        now: &Now,
        writes: bool,
    ) -> Option<Conflict> {
        if writes && now.ordered.is_none() && !self.published.is_empty() {
            self.published.get_mut(&(array as u32, index as u32)).into_iter().for_each(Published::clear);
        }
        let write = &mut self.cells[array][index].write;
        let history = self.histories.entry((array as u32, index as u32)).or_default();
        let mut last = (write.clock != 0).then_some((clocks.block, *write));
        let conflict = history.access(&mut last, clocks, now, writes);
        *write = last.map_or_else(Access::default, |(_, access)| access);
        conflict
    }

    /// An agent reads, as somebody started it to; what is wrong with that.
    pub fn read_by_agent(
        &mut self,
        clocks: &mut Clocks,
        (array, index): (usize, usize),
        eyes: &Eyes<'_>,
        agent: Access,
    ) -> Option<Hazard> {
        let Cell { write, written, .. } = self.cells[array][index];
        let history = self.histories.entry((array as u32, index as u32)).or_default();
        history.reads.insert((clocks.block, agent.lane), agent);
        if !written {
            return Some(Hazard::Unwritten);
        }
        let block = clocks.block;
        let conflict = |earlier| Hazard::Conflict(Conflict { block, earlier, earlier_writes: true });
        for (_, write) in history.ordered_writes() {
            if !clocks.seen_by(eyes, &write) {
                return Some(conflict(write));
            }
            if !clocks.past_caches(eyes, &write) {
                return Some(Hazard::BehindCaches(write));
            }
        }
        if write.clock == 0 {
            return None;
        }
        if !clocks.seen_by(eyes, &write) {
            return Some(conflict(write));
        }
        if let Some(conflict) = self.equals.unordered(clocks, (array as u32, index as u64), eyes) {
            return Some(Hazard::Conflict(conflict));
        }
        (!clocks.past_caches(eyes, &write)).then_some(Hazard::BehindCaches(write))
    }

    /// An agent writes, as somebody started it to; an access that this races with, if there is one.
    pub fn write_by_agent(
        &mut self,
        clocks: &mut Clocks,
        (array, index): (usize, usize),
        eyes: &Eyes<'_>,
        agent: Access,
    ) -> Option<Conflict> {
        let block = clocks.block;
        let at = (array as u32, index as u64);
        self.published.get_mut(&(array as u32, index as u32)).into_iter().for_each(Published::clear);
        let equal = self.equals.unordered(clocks, at, eyes);
        self.equals.clear(at);
        let cell = &mut self.cells[array][index];
        let before = std::mem::replace(&mut cell.write, agent);
        cell.written = true;
        let history = std::mem::take(self.histories.entry((array as u32, index as u32)).or_default());
        let conflict = |earlier, earlier_writes| Some(Conflict { block, earlier, earlier_writes });
        if before.clock != 0 && !clocks.seen_by(eyes, &before) {
            return conflict(before, true);
        }
        let ordered =
            history.narrow.iter().chain(&history.wide).map(|(&(.., usage), &access)| (access, usage == Use::Write));
        let mut others = history.reads.values().map(|&read| (read, false)).chain(ordered);
        let other = others.find(|(access, _)| !clocks.seen_by(eyes, access));
        other.and_then(|(access, wrote)| conflict(access, wrote)).or(equal)
    }

    /// A thread has waited for an element.
    pub fn waited(&mut self, block: u32, (array, index): (u32, u32), now: &Now, scope: Scope) {
        self.histories.entry((array, index)).or_default().waited(block, now, scope);
    }

    pub fn published(&mut self, array: u32, index: u32) -> &mut Published {
        self.published.entry((array, index)).or_default()
    }
}

/// Keeps the latest reader, the latest other lane of its warp, and the latest of another warp.
#[inline]
fn remember(reads: &mut [Access; 3], read: Access) {
    let [latest, neighbour, stranger] = *reads;
    if latest.lane == read.lane || latest.clock == 0 {
        reads[0] = read;
    } else if latest.lane / 32 == read.lane / 32 {
        *reads = [read, latest, stranger];
    } else {
        let same_warp = |a: Access| a.clock != 0 && a.lane / 32 == read.lane / 32 && a.lane != read.lane;
        let neighbour = [stranger, neighbour].into_iter().find(|&a| same_warp(a)).unwrap_or_default();
        *reads = [read, neighbour, latest];
    }
}

/// Who used an element since its last plain write, each lane's latest use of every kind.
///
/// Plain accesses follow one another or race, so a plain write makes what came before it superfluous. Ordered accesses do not
/// race with each other, so none makes another superfluous: each may be the one that a later plain access races with, and what
/// came before the first of them may race with the second.
#[derive(Debug, Default)]
struct History {
    reads: BTreeMap<(u32, u16), Access>,
    /// Ordered accesses: those that speak to their block alone …
    narrow: Used,
    /// … and those that speak to the device.
    wide: Used,
    /// Ordered writes in their order: how many there were, since which they are atomic, one observing the last, and which was each lane's last.
    writes: u32,
    chain: u32,
    written: BTreeMap<(Writer, u16), u32>,
    /// Writer of the last ordered write.
    last: Option<Writer>,
    /// Of each lane, its last waits.
    observers: BTreeMap<(u32, u16), Vec<Observer>>,
}

/// Each lane's last ordered accesses, by block, lane and kind.
type Used = BTreeMap<(u32, u16, Use), Access>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    Read,
    /// A read before the last one that is not half of an atomic operation. To observe that operation is
    /// not to observe this read.
    EarlierRead,
    Write,
}

/// Whether a lane's last read is the read half of its last atomic operation, with which it comes.
fn is_half(used: &Used, block: u32, lane: u16, read: &Access) -> bool {
    used.get(&(block, lane, Use::Write)) == Some(read)
}

fn keep(used: &mut Used, block: u32, now: &Now, writes: bool) {
    if writes {
        used.insert((block, now.lane, Use::Write), now.access());
    } else if let Some(earlier) = used.insert((block, now.lane, Use::Read), now.access())
        && !is_half(used, block, now.lane, &earlier)
    {
        used.insert((block, now.lane, Use::EarlierRead), earlier);
    }
}

/// A wait, and the numbers of the ordered writes that it observed. The last is morally strong with the
/// wait, each of the others with the atomic operation that read it. These writes precede what follows
/// the wait; what their threads did before them does not.
#[derive(Clone, Debug)]
struct Observer {
    observed: std::ops::Range<u32>,
    access: Access,
}

/// Waits for an element that are remembered of each lane; of one that is forgotten, a race too many may be reported.
const OBSERVERS: usize = 8;

impl History {
    /// Each lane's last ordered writes since the last plain one, with the block.
    fn ordered_writes(&self) -> impl Iterator<Item = (u32, Access)> {
        let used = self.narrow.iter().chain(&self.wide);
        used.filter(|((.., usage), _)| *usage == Use::Write).map(|(&(block, ..), &access)| (block, access))
    }

    /// An access, with the last plain write; an access it races with, if there is one.
    fn access(
        &mut self,
        write: &mut Option<(u32, Access)>,
        clocks: &mut Clocks,
        now: &Now,
        writes: bool,
    ) -> Option<Conflict> {
        let conflict = self.conflict(*write, clocks, now, writes);
        let (block, lane) = (clocks.block, now.lane);
        if let Some(scope) = now.ordered.filter(|_| writes) {
            self.number(block, now, scope);
        }
        match now.ordered {
            None if writes => {
                *self = History::default();
                *write = Some((block, now.access()));
            }
            None => {
                self.reads.insert((block, lane), now.access());
            }
            Some(Scope::Block) => keep(&mut self.narrow, block, now, writes),
            Some(Scope::Device | Scope::System) => keep(&mut self.wide, block, now, writes),
        }
        conflict
    }

    /// A thread that waited has observed the last ordered write and, where that is atomic, those before it. What other reads observe is up to the schedule.
    fn waited(&mut self, block: u32, now: &Now, scope: Scope) {
        if self.last.is_some_and(|last| !last.is_strong_with(block, scope)) {
            return;
        }
        let observed = self.chain..self.writes;
        let observers = self.observers.entry((block, now.lane)).or_default();
        let holds = |old: &Observer| old.observed.start <= observed.start && old.observed.end >= observed.end;
        if observers.iter().any(holds) {
            return;
        }
        if observers.len() == OBSERVERS {
            // Evict a wait whose writes the new one observed too, before the oldest.
            let forgotten = observers.iter().position(|old| old.observed.start >= observed.start);
            observers.remove(forgotten.unwrap_or(0));
        }
        observers.push(Observer { observed, access: now.access() });
    }

    /// Numbers an ordered write. That of an atomic operation observes the last, which its read half, just before at the same clock, read.
    fn number(&mut self, block: u32, now: &Now, scope: Scope) {
        let read = |used: &Used| used.get(&(block, now.lane, Use::Read)) == Some(&now.access());
        let observes = self.last.is_none_or(|last| last.is_strong_with(block, scope));
        if !observes || !read(&self.narrow) && !read(&self.wide) {
            self.chain = self.writes;
        }
        let by = Writer::new(block, scope);
        self.last = Some(by);
        self.written.insert((by, now.lane), self.writes);
        self.writes += 1;
    }

    /// Whether an access comes after a wait that observed a lane's last ordered write of this reach.
    fn observed(&self, by: Writer, lane: u16, clocks: &mut Clocks, now: &Now) -> bool {
        let Some(number) = self.written.get(&(by, lane)) else { return false };
        self.observers.iter().any(|(&(of, _), waits)| {
            let before = |access: &Access, clocks: &mut Clocks| clocks.ordered_across(of, access, now);
            waits.iter().any(|wait| wait.observed.contains(number) && before(&wait.access, clocks))
        })
    }

    fn conflict(&self, write: Option<(u32, Access)>, clocks: &mut Clocks, now: &Now, writes: bool) -> Option<Conflict> {
        let mine = clocks.block;
        // Ordered accesses come with their scope.
        let mut race = |block, access: Access, earlier_writes, scope: Option<Scope>| {
            let by = scope.filter(|_| earlier_writes).map(|scope| Writer::new(block, scope));
            let race = (writes || earlier_writes)
                && !clocks.ordered_across(block, &access, now)
                && !by.is_some_and(|by| self.observed(by, access.lane, clocks, now));
            race.then_some(Conflict { block, earlier: access, earlier_writes })
        };
        if let Some((block, access)) = write
            && let Some(conflict) = race(block, access, true, None)
        {
            return Some(conflict);
        }
        if writes
            && let Some(conflict) = self.reads.iter().find_map(|(&(block, _), &read)| race(block, read, false, None))
        {
            return Some(conflict);
        }
        // Two ordered accesses race where one of them does not speak to the other's block.
        let mut reach = |used: &Used, scope: Scope, understood: bool| {
            let strangers = used.iter().filter(|&(&(block, lane, usage), access)| {
                (!understood || block != mine) && (usage != Use::Read || !is_half(used, block, lane, access))
            });
            strangers
                .map(|(&(block, _, usage), &access)| race(block, access, usage == Use::Write, Some(scope)))
                .find_map(|conflict| conflict)
        };
        let narrow = reach(&self.narrow, Scope::Block, now.ordered.is_some());
        match now.ordered {
            Some(Scope::Device | Scope::System) => narrow,
            ordered => narrow.or_else(|| reach(&self.wide, Scope::Device, ordered.is_some())),
        }
    }
}

/// What is remembered of the elements of global memory that a launch touches, where it may write.
#[derive(Debug, Default)]
pub(super) struct GlobalShadow {
    cells: FxHashMap<(u32, u64), GlobalCell>,
    pub equals: Equals,
}

#[derive(Debug, Default)]
struct GlobalCell {
    write: Option<(u32, Access)>,
    history: History,
    published: Published,
}

impl GlobalShadow {
    /// A read or a write; an access it races with, if there is one.
    pub fn access(&mut self, clocks: &mut Clocks, param: u32, index: u64, now: &Now, writes: bool) -> Option<Conflict> {
        let GlobalCell { write, history, published } = self.cells.entry((param, index)).or_default();
        if writes && now.ordered.is_none() {
            published.clear();
        }
        history.access(write, clocks, now, writes)
    }

    /// An access that a plain write would race with, if there is one.
    pub fn would_race(&self, clocks: &mut Clocks, param: u32, index: u64, now: &Now) -> Option<Conflict> {
        let GlobalCell { write, history, .. } = self.cells.get(&(param, index))?;
        history.conflict(*write, clocks, now, true)
    }

    /// An agent writes an element, as a thread started it to; an access that this races with, if there is one.
    pub fn write_by_agent(
        &mut self,
        clocks: &mut Clocks,
        (param, index): (u32, u64),
        now: &Now,
        agent: Access,
    ) -> Option<Conflict> {
        let cell = self.cells.entry((param, index)).or_default();
        let conflict = cell.history.conflict(cell.write, clocks, now, true);
        let conflict = conflict.or_else(|| self.equals.unordered(clocks, (param, index), &Eyes::Thread(*now)));
        self.equals.clear((param, index));
        *cell = GlobalCell { write: Some((clocks.block, agent)), ..GlobalCell::default() };
        conflict
    }

    /// An agent reads an element, as a thread started it to; a write that this races with, if there is one.
    pub fn read_by_agent(
        &mut self,
        clocks: &mut Clocks,
        (param, index): (u32, u64),
        eyes: &Eyes<'_>,
        agent: Access,
    ) -> Option<Conflict> {
        let GlobalCell { write, history, .. } = self.cells.entry((param, index)).or_default();
        history.reads.insert((clocks.block, agent.lane), agent);
        for (block, earlier) in history.ordered_writes().chain(*write) {
            if !clocks.seen_across(eyes, block, &earlier) {
                return Some(Conflict { block, earlier, earlier_writes: true });
            }
        }
        self.equals.unordered(clocks, (param, index), eyes)
    }

    /// A thread has waited for an element.
    pub fn waited(&mut self, block: u32, (param, index): (u32, u64), now: &Now, scope: Scope) {
        self.cells.entry((param, index)).or_default().history.waited(block, now, scope);
    }

    pub fn published(&mut self, param: u32, index: u64) -> &mut Published {
        &mut self.cells.entry((param, index)).or_default().published
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now(clocks: &Clocks, lane: u16) -> Now {
        Now { lane, clock: clocks.clock(lane), site: SiteId(0), ordered: None }
    }

    fn s_read(c: &mut Clocks, s: &mut SharedShadow, index: usize, lane: u16) -> Option<Conflict> {
        let now = now(c, lane);
        s.read(c, 0, index, &now)
    }

    fn s_write(c: &mut Clocks, s: &mut SharedShadow, index: usize, lane: u16) -> Option<Conflict> {
        let now = now(c, lane);
        s.write(c, 0, index, &now)
    }

    fn g_read(c: &mut Clocks, s: &mut GlobalShadow, index: u64, lane: u16) -> Option<Conflict> {
        let now = now(c, lane);
        s.access(c, 0, index, &now, false)
    }

    fn g_write(c: &mut Clocks, s: &mut GlobalShadow, index: u64, lane: u16) -> Option<Conflict> {
        let now = now(c, lane);
        s.access(c, 0, index, &now, true)
    }

    fn fresh(every: bool) -> (Clocks, SharedShadow) {
        (Clocks::new(0, 64, every), SharedShadow::new([4].into_iter()))
    }

    #[test]
    fn a_barrier_orders_and_nothing_else_does() {
        for every in [false, true] {
            let (mut c, mut s) = fresh(every);
            assert!(s_write(&mut c, &mut s, 0, 3).is_none());
            assert!(s_read(&mut c, &mut s, 0, 3).is_none());
            assert!(s_read(&mut c, &mut s, 0, 4).is_some(), "lanes of one warp race too");
            c.barrier();
            assert!(s_read(&mut c, &mut s, 0, 40).is_none());
            assert!(c.barrier_needed);
            assert!(s_write(&mut c, &mut s, 0, 40).is_none(), "lane 40 alone has read since the barrier");
            assert!(s_write(&mut c, &mut s, 0, 41).is_some());
        }
    }

    #[test]
    fn any_reader_may_be_the_one_that_races() {
        // Whoever writes, with any set of readers of the same epoch, races exactly if another lane read.
        for readers in [vec![1, 2, 40], vec![40, 1, 2], vec![1, 40, 2], vec![1, 40, 1], vec![5], vec![33, 1, 34, 2]] {
            for writer in [1u16, 2, 5, 33, 34, 40] {
                for every in [false, true] {
                    let (mut c, mut s) = fresh(every);
                    s_write(&mut c, &mut s, 0, 0);
                    c.barrier();
                    for &reader in &readers {
                        assert!(s_read(&mut c, &mut s, 0, reader).is_none());
                    }
                    let races = s_write(&mut c, &mut s, 0, writer).is_some();
                    assert_eq!(races, readers.iter().any(|&r| r != writer), "{readers:?} {writer}");
                }
            }
        }
    }

    #[test]
    fn a_warp_synchronisation_orders_its_warp_alone() {
        let (mut c, mut s) = fresh(false);
        s_write(&mut c, &mut s, 0, 3);
        s_write(&mut c, &mut s, 1, 3);
        c.sync_warp(0, u32::MAX, u32::MAX);
        assert!(s_read(&mut c, &mut s, 0, 9).is_none());
        assert!(s_read(&mut c, &mut s, 1, 40).is_some());
        let (mut c, mut s) = fresh(true);
        s_write(&mut c, &mut s, 0, 3);
        c.sync_warp(0, 0b1100, u32::MAX);
        assert!(s_read(&mut c, &mut s, 0, 2).is_none());
        assert!(s_read(&mut c, &mut s, 0, 4).is_some());
    }

    #[test]
    fn a_release_reaches_who_acquires_it() {
        let mut shadow = GlobalShadow::default();
        let (mut a, mut b) = (Clocks::new(0, 32, true), Clocks::new(1, 32, true));
        assert!(g_write(&mut a, &mut shadow, 7, 5).is_none());
        shadow.published(0, 0).store(&mut a, 5, true, Scope::Device, false);
        assert!(g_write(&mut a, &mut shadow, 8, 5).is_none());
        shadow.published(0, 0).load(&mut b, 1, true, Scope::Device);
        assert!(g_read(&mut b, &mut shadow, 7, 1).is_none());
        assert!(g_read(&mut b, &mut shadow, 8, 1).is_some(), "written after the release");
        assert!(g_read(&mut b, &mut shadow, 7, 2).is_some(), "another lane acquired nothing");
        let mut c = Clocks::new(2, 32, true);
        shadow.published(0, 0).load(&mut c, 0, true, Scope::Block);
        assert!(g_read(&mut c, &mut shadow, 7, 0).is_some(), "a block's scope does not reach another block");
    }
}
