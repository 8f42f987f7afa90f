//! What is remembered of each element of memory: its last accesses, and the releases published
//! there.
//!
//! Three readers an element are enough to remember while only barriers and whole-warp
//! synchronisation order things: the latest, the latest other lane of its warp, and the latest of
//! another warp. A later writer that races with any reader races with one of these. Kernels with
//! finer synchronisation keep every reader.

use rustc_hash::FxHashMap;
use tegula_ir::Scope;

use super::history::History;
use super::race::{AGENT, Access, Clocks, Conflict, Eyes, Fences, Now};
use super::release::Published;

/// The path by which an agent accesses memory: that of ordinary accesses, or past their caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Proxy {
    Generic,
    Async,
}

/// What is wrong with an agent's access.
#[derive(Clone, Copy, Debug)]
pub(super) enum Hazard {
    /// Nobody wrote what it reads.
    Unwritten,
    /// An access that is in no order with it.
    Conflict(Conflict),
    /// A write by a thread, without a proxy fence after it.
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

/// For elements, by memory and index, the plain writes that other lanes made together with the last
/// one: of the same value, in the same instruction.
#[derive(Debug, Default)]
pub(super) struct Equals(FxHashMap<(u32, u64), Vec<(u32, Access)>>);

impl Equals {
    pub fn add(&mut self, at: (u32, u64), block: u32, access: Access) {
        self.0.entry(at).or_default().push((block, access));
    }

    pub fn clear(&mut self, at: (u32, u64)) {
        self.take(at);
    }

    fn of(&self, at: (u32, u64)) -> &[(u32, Access)] {
        if self.0.is_empty() { &[] } else { self.0.get(&at).map_or(&[], |writes| writes) }
    }

    fn take(&mut self, at: (u32, u64)) -> Vec<(u32, Access)> {
        if self.0.is_empty() { Vec::new() } else { self.0.remove(&at).unwrap_or_default() }
    }

    /// One of them that is in no order with what somebody does or did.
    pub fn unordered(&self, clocks: &mut Clocks, at: (u32, u64), eyes: &Eyes<'_>) -> Option<Conflict> {
        unordered(clocks, eyes, self.of(at).iter().copied())
    }
}

/// The first of some writes that is in no order with what somebody does or did.
fn unordered(
    clocks: &mut Clocks,
    eyes: &Eyes<'_>,
    mut writes: impl Iterator<Item = (u32, Access)>,
) -> Option<Conflict> {
    let (block, earlier) = writes.find(|(block, access)| !clocks.seen_across(eyes, *block, access))?;
    Some(Conflict { block, earlier, earlier_writes: true })
}

/// The first of some ordered writes by threads that an access by a proxy may come before, since
/// their lanes did not fence between the write and the synchronization.
///
/// This holds for an access that reads and for one that writes. What threads read is no part of it:
/// between a generic read and a write by the asynchronous proxy, order is enough, such as that of
/// an mbarrier. All of CUTLASS's pipelines free their stages so.
fn unfenced(
    (clocks, fences): (&mut Clocks, &Fences),
    eyes: &Eyes<'_>,
    mut writes: impl Iterator<Item = (u32, Access)>,
    proxy: Proxy,
) -> Option<Hazard> {
    if proxy == Proxy::Generic {
        return None;
    }
    let behind = |(block, write): &(u32, Access)| write.lane < AGENT && !fences.is_after(clocks, eyes, *block, write);
    writes.find(behind).map(|(_, write)| Hazard::BehindCaches(write))
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
    /// Fences between the proxies.
    pub fences: Fences,
}

impl SharedShadow {
    pub fn new(lengths: impl Iterator<Item = u64>) -> Self {
        let cells = lengths.map(|n| vec![Cell::default(); n as usize]).collect();
        SharedShadow {
            cells,
            histories: FxHashMap::default(),
            published: FxHashMap::default(),
            equals: Equals::default(),
            fences: Fences::default(),
        }
    }

    pub fn cell(&mut self, array: usize, index: usize) -> &mut Cell {
        &mut self.cells[array][index]
    }

    /// Notes a read of an element that was written before the block's last barrier and has no copy
    /// on its way, which is what nearly every read is. False where it is not so; then nothing is
    /// noted.
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

    /// An agent reads past the caches, as somebody started it to; what is wrong with that.
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
        let last = (write.clock != 0).then_some((clocks.block, write));
        let equal = self.equals.of((array as u32, index as u64));
        let writes = || history.ordered_writes().chain(last).chain(equal.iter().copied());
        let conflict = unordered(clocks, eyes, writes().chain(history.replaced_writes())).map(Hazard::Conflict);
        conflict.or_else(|| unfenced((clocks, &self.fences), eyes, writes(), Proxy::Async))
    }

    /// An agent writes, as somebody started it to; what is wrong with that.
    pub fn write_by_agent(
        &mut self,
        clocks: &mut Clocks,
        (array, index): (usize, usize),
        eyes: &Eyes<'_>,
        (agent, proxy): (Access, Proxy),
    ) -> Option<Hazard> {
        let block = clocks.block;
        self.published.get_mut(&(array as u32, index as u32)).into_iter().for_each(Published::clear);
        let equal = self.equals.take((array as u32, index as u64));
        let cell = &mut self.cells[array][index];
        let before = std::mem::replace(&mut cell.write, agent);
        cell.written = true;
        let history = self.histories.entry((array as u32, index as u32)).or_default();
        let last = (before.clock != 0).then_some((block, before));
        let plain = || last.into_iter().chain(equal.iter().copied());
        let writes = || history.ordered_writes().chain(plain());
        let conflict = unordered(clocks, eyes, writes().chain(history.replaced_writes())).or_else(|| {
            let mut reads = history.reads.values().copied().chain(history.ordered_reads());
            let read = reads.find(|read| !clocks.seen_by(eyes, read))?;
            Some(Conflict { block, earlier: read, earlier_writes: false })
        });
        let hazard = conflict.map(Hazard::Conflict);
        let hazard = hazard.or_else(|| unfenced((clocks, &self.fences), eyes, writes(), proxy));
        history.replace(plain(), block, agent.lane);
        hazard
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

/// What is remembered of the elements of global memory that a launch touches, where it may write.
#[derive(Debug, Default)]
pub(super) struct GlobalShadow {
    cells: FxHashMap<(u32, u64), GlobalCell>,
    pub equals: Equals,
    /// Fences between the proxies.
    pub fences: Fences,
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

    /// An agent writes an element past the caches, as a thread started it to; what is wrong with
    /// that.
    pub fn write_by_agent(&mut self, clocks: &mut Clocks, at: (u32, u64), now: &Now, agent: Access) -> Option<Hazard> {
        let (eyes, equal) = (Eyes::Thread(*now), self.equals.take(at));
        let GlobalCell { write, history, published } = self.cells.entry(at).or_default();
        published.clear();
        let last = write.replace((clocks.block, agent));
        let conflict = history.conflict(last, clocks, now, true);
        let conflict = conflict.or_else(|| unordered(clocks, &eyes, equal.iter().copied()));
        let plain = || last.into_iter().chain(equal.iter().copied());
        let writes = history.ordered_writes().chain(plain());
        let hazard = conflict.map(Hazard::Conflict);
        let hazard = hazard.or_else(|| unfenced((clocks, &self.fences), &eyes, writes, Proxy::Async));
        history.replace(plain(), clocks.block, agent.lane);
        hazard
    }

    /// An agent reads an element, as a thread started it to; what is wrong with that.
    pub fn read_by_agent(
        &mut self,
        clocks: &mut Clocks,
        at: (u32, u64),
        eyes: &Eyes<'_>,
        (agent, proxy): (Access, Proxy),
    ) -> Option<Hazard> {
        let GlobalCell { write, history, .. } = self.cells.entry(at).or_default();
        history.reads.insert((clocks.block, agent.lane), agent);
        let equal = self.equals.of(at);
        let writes = || history.ordered_writes().chain(*write).chain(equal.iter().copied());
        let conflict = unordered(clocks, eyes, writes().chain(history.replaced_writes())).map(Hazard::Conflict);
        conflict.or_else(|| unfenced((clocks, &self.fences), eyes, writes(), proxy))
    }

    /// The last write of an element in this launch, where all are in order with what a thread does.
    pub fn written(&self, clocks: &mut Clocks, at: (u32, u64), now: Now) -> Option<Access> {
        let GlobalCell { write, history, .. } = self.cells.get(&at)?;
        let writes = || history.ordered_writes().chain(*write).chain(self.equals.of(at).iter().copied());
        let (_, last) = writes().next()?;
        unordered(clocks, &Eyes::Thread(now), writes().chain(history.replaced_writes())).is_none().then_some(last)
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
    use tegula_ir::SiteId;

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
        // Whoever writes, with any set of readers of the same epoch, races exactly if another lane
        // read.
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

    #[test]
    fn the_scope_of_a_fence_decides_what_a_relaxed_read_acquires() {
        // Block 0 releases to the device, and block 1 continues that by a relaxed atomic operation.
        for (fence, races) in [(Scope::Device, false), (Scope::Block, true)] {
            let mut shadow = GlobalShadow::default();
            let (mut a, mut b) = (Clocks::new(0, 32, true), Clocks::new(1, 32, true));
            assert!(g_write(&mut a, &mut shadow, 7, 5).is_none());
            shadow.published(0, 0).store(&mut a, 5, true, Scope::Device, false);
            shadow.published(0, 0).load(&mut b, 0, false, Scope::Device);
            shadow.published(0, 0).store(&mut b, 0, false, Scope::Device, true);
            shadow.published(0, 0).load(&mut b, 1, false, Scope::Block);
            b.fence(1, fence);
            assert_eq!(g_read(&mut b, &mut shadow, 7, 1).is_some(), races, "{fence:?}");
        }
    }

    #[test]
    fn a_read_before_an_acquire_of_the_same_element_belongs_to_it() {
        for (scope, races) in [(Scope::Device, false), (Scope::Block, true)] {
            let mut shadow = GlobalShadow::default();
            let (mut a, mut b) = (Clocks::new(0, 32, true), Clocks::new(1, 32, true));
            assert!(g_write(&mut a, &mut shadow, 7, 5).is_none());
            shadow.published(0, 0).store(&mut a, 5, true, Scope::Device, false);
            shadow.published(0, 0).load(&mut b, 1, false, Scope::Device);
            // Another thread's relaxed store is no part of the release sequence.
            shadow.published(0, 0).store(&mut b, 3, false, Scope::Device, false);
            shadow.published(0, 0).load(&mut b, 1, true, scope);
            assert_eq!(g_read(&mut b, &mut shadow, 7, 1).is_some(), races, "{scope:?}");
            shadow.published(0, 1).load(&mut b, 2, true, Scope::Device);
            assert!(g_read(&mut b, &mut shadow, 7, 2).is_some(), "another element, another lane");
        }
    }
}
