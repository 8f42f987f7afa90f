//! Shadow memory: the last accesses to each element, and the releases at it.
//!
//! [`BlockClocks::track_all_readers`] selects one of two modes:
//!
//! * `false`: only barriers of the block and synchronizations of whole warps order accesses. Then
//!   three readers of an element suffice: the latest, the latest other lane of its warp, and the
//!   latest of another warp. A later writer that races with any reader races with one of these.
//! * `true`: finer synchronization orders single lanes, such as atomics, mbarriers, or a warp
//!   synchronization of some lanes. The [`History`] of an element records every reader.
//!
//! An [`Access`] with clock 0 stands for "none": the clocks of lanes and agents start at 1.

use rustc_hash::FxHashMap;
use tegula_ir::Scope;

use super::history::History;
use super::race::{Access, BlockClocks, CurrentAccess, FIRST_AGENT, Fences, OrderSource, Race};
use super::release::ElementReleases;

/// A proxy of the PTX memory model: one of the separate paths by which accesses reach memory.
///
/// Accesses through different proxies need a proxy fence between them, besides happens-before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// The path of ordinary loads and stores of threads.
    Generic,
    /// The path of the TMA and of `wgmma`.
    Async,
}

/// A memory-ordering bug found at the access of an asynchronous agent.
#[derive(Clone, Copy, Debug)]
pub enum Hazard {
    /// A read of an uninitialized element.
    Uninitialized,
    /// An earlier access, which does not happen before this one.
    Race(Race),
    /// An earlier write by a thread that executed no proxy fence after it.
    MissingProxyFence(Access),
}

impl Hazard {
    /// The key for deduplication: the kind of the hazard, and the site of the earlier access.
    pub fn dedup_key(&self) -> (u8, u32) {
        match self {
            Hazard::Uninitialized => (0, 0),
            Hazard::Race(race) => (1, race.earlier.site),
            Hazard::MissingProxyFence(write) => (2, write.site),
        }
    }
}

/// Shadow state of one element of shared memory.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cell {
    /// The last weak or asynchronous write; clock 0 if none.
    pub write: Access,
    /// The three readers, clock 0 for none; unused with `track_all_readers`.
    reads: [Access; 3],
    /// Whether the element was ever written, by any kind of access.
    pub written: bool,
    /// Lane + 1 of an asynchronous copy in flight to the element; 0 if none.
    pub in_flight: u16,
}

/// Weak writes merged with the last one, by memory and index.
///
/// They wrote the same value in the same instruction from other lanes.
#[derive(Debug, Default)]
pub struct SameValueWrites(FxHashMap<(u32, u64), Vec<(u32, Access)>>);

impl SameValueWrites {
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

    /// Returns one of these writes that does not happen before the source.
    pub fn unordered(&self, clocks: &mut BlockClocks, at: (u32, u64), source: &OrderSource<'_>) -> Option<Race> {
        unordered(clocks, source, self.of(at).iter().copied())
    }
}

/// Returns the first write that does not happen before the source.
fn unordered(
    clocks: &mut BlockClocks,
    source: &OrderSource<'_>,
    mut writes: impl Iterator<Item = (u32, Access)>,
) -> Option<Race> {
    let (block, earlier) = writes.find(|(block, access)| !clocks.precedes_across(source, *block, access))?;
    Some(Race { block, earlier, earlier_writes: true })
}

/// Returns the first write by a thread that lacks a proxy fence before an asynchronous access.
///
/// The writes happen before the access, but their lanes did not fence between the write and the
/// synchronization. This applies to asynchronous reads and writes. Reads by threads need no proxy
/// fence. Between a generic read and an asynchronous write, happens-before is enough, such as that
/// of an mbarrier. All of CUTLASS's pipelines release their stages in this way.
fn unfenced(
    (clocks, fences): (&mut BlockClocks, &Fences),
    source: &OrderSource<'_>,
    mut writes: impl Iterator<Item = (u32, Access)>,
    proxy: Proxy,
) -> Option<Hazard> {
    if proxy == Proxy::Generic {
        return None;
    }
    let is_unfenced = |(block, write): &(u32, Access)| {
        write.lane < FIRST_AGENT && !fences.fence_precedes(clocks, source, *block, write)
    };
    writes.find(is_unfenced).map(|(_, write)| Hazard::MissingProxyFence(write))
}

/// Shadow memory of a block's shared arrays.
#[derive(Debug)]
pub struct SharedShadow {
    pub cells: Vec<Vec<Cell>>,
    /// Access histories, in kernels with finer synchronization.
    histories: FxHashMap<(u32, u32), History>,
    /// Releases at each element.
    releases: FxHashMap<(u32, u32), ElementReleases>,
    pub same_value_writes: SameValueWrites,
    /// Proxy fences.
    pub fences: Fences,
}

impl SharedShadow {
    pub fn new(lengths: impl Iterator<Item = u64>) -> Self {
        let cells = lengths.map(|n| vec![Cell::default(); n as usize]).collect();
        SharedShadow {
            cells,
            histories: FxHashMap::default(),
            releases: FxHashMap::default(),
            same_value_writes: SameValueWrites::default(),
            fences: Fences::default(),
        }
    }

    pub fn cell(&mut self, array: usize, index: usize) -> &mut Cell {
        &mut self.cells[array][index]
    }

    /// Records a read on the fast path, and returns whether it applies.
    ///
    /// It applies to an element written before the block's last barrier, without a copy in flight.
    /// Nearly every read is of this kind. If it does not apply, nothing is recorded.
    #[inline]
    pub fn read_fast_path(
        &mut self,
        clocks: &mut BlockClocks,
        array: usize,
        index: usize,
        now: &CurrentAccess,
    ) -> bool {
        let cell = &mut self.cells[array][index];
        let write = &cell.write;
        if write.clock == 0 || write.clock >= clocks.barrier_epoch || cell.in_flight != 0 || clocks.track_all_readers {
            return false;
        }
        // The last barrier ordered this write before the read, unless an earlier barrier or the
        // order of one lane had done so.
        clocks.barrier_needed |= write.clock >= clocks.previous_epoch && write.lane != now.lane;
        record_reader(&mut cell.reads, now.access());
        true
    }

    /// Records a read; returns the write that it races with.
    #[inline]
    pub fn read(&mut self, clocks: &mut BlockClocks, array: usize, index: usize, now: &CurrentAccess) -> Option<Race> {
        if clocks.track_all_readers {
            return self.access_history(clocks, array, index, now, false);
        }
        let cell = &mut self.cells[array][index];
        let write = cell.write;
        record_reader(&mut cell.reads, now.access());
        if write.clock == 0 || clocks.happens_before(&write, now) {
            return None;
        }
        Some(Race { block: clocks.block, earlier: write, earlier_writes: true })
    }

    /// Records a write; returns an access that it races with.
    #[inline]
    pub fn write(&mut self, clocks: &mut BlockClocks, array: usize, index: usize, now: &CurrentAccess) -> Option<Race> {
        self.cells[array][index].written = true;
        if clocks.track_all_readers {
            return self.access_history(clocks, array, index, now, true);
        }
        let race = self.find_race(clocks, (array, index), now, true);
        let cell = &mut self.cells[array][index];
        *cell = Cell { write: now.access(), reads: Default::default(), ..*cell };
        race
    }

    /// Returns an access that an access now would race with.
    #[inline]
    pub fn find_race(
        &self,
        clocks: &mut BlockClocks,
        (array, index): (usize, usize),
        now: &CurrentAccess,
        writes: bool,
    ) -> Option<Race> {
        let (block, Cell { write, reads, .. }) = (clocks.block, self.cells[array][index]);
        if clocks.track_all_readers {
            return self.find_race_among(clocks, (array, index), now, writes, |_, _| true);
        }
        let races =
            |clocks: &mut BlockClocks, access: &Access| access.clock != 0 && !clocks.happens_before(access, now);
        if races(clocks, &write) {
            return Some(Race { block, earlier: write, earlier_writes: true });
        }
        let reader = reads.into_iter().filter(|_| writes).find(|read| races(clocks, read));
        reader.map(|earlier| Race { block, earlier, earlier_writes: false })
    }

    /// Returns an access of the same warp that an access now would race with.
    ///
    /// Every reader must be recorded.
    pub fn find_race_in_warp(
        &self,
        clocks: &mut BlockClocks,
        (array, index): (usize, usize),
        now: &CurrentAccess,
        writes: bool,
    ) -> Option<Race> {
        debug_assert!(clocks.track_all_readers);
        let own_block = clocks.block;
        let is_of_warp = |block: u32, lane: u16| block == own_block && lane / 32 == now.lane / 32;
        self.find_race_among(clocks, (array, index), now, writes, is_of_warp)
    }

    /// As [`find_race`](Self::find_race), among the accesses for which a condition on block and
    /// lane holds, where every reader is recorded.
    fn find_race_among(
        &self,
        clocks: &mut BlockClocks,
        (array, index): (usize, usize),
        now: &CurrentAccess,
        writes: bool,
        condition: impl Fn(u32, u16) -> bool + Copy,
    ) -> Option<Race> {
        let write = self.cells[array][index].write;
        let write = (write.clock != 0).then_some((clocks.block, write));
        let history = self.histories.get(&(array as u32, index as u32));
        history.unwrap_or(&History::default()).find_race_among(write, clocks, now, writes, condition)
    }

    fn access_history(
        &mut self,
        clocks: &mut BlockClocks,
        array: usize,
        index: usize,
        now: &CurrentAccess,
        writes: bool,
    ) -> Option<Race> {
        if writes && now.scope.is_none() && !self.releases.is_empty() {
            self.releases.get_mut(&(array as u32, index as u32)).into_iter().for_each(ElementReleases::clear);
        }
        let write = &mut self.cells[array][index].write;
        let history = self.histories.entry((array as u32, index as u32)).or_default();
        let mut last = (write.clock != 0).then_some((clocks.block, *write));
        let race = history.access(&mut last, clocks, now, writes);
        *write = last.map_or_else(Access::default, |(_, access)| access);
        race
    }

    /// Records a read by an agent through the asynchronous proxy; returns its hazard.
    pub fn read_by_agent(
        &mut self,
        clocks: &mut BlockClocks,
        (array, index): (usize, usize),
        source: &OrderSource<'_>,
        agent: Access,
    ) -> Option<Hazard> {
        let Cell { write, written, .. } = self.cells[array][index];
        let history = self.histories.entry((array as u32, index as u32)).or_default();
        history.reads.insert((clocks.block, agent.lane), agent);
        if !written {
            return Some(Hazard::Uninitialized);
        }
        let last = (write.clock != 0).then_some((clocks.block, write));
        let same_value = self.same_value_writes.of((array as u32, index as u64));
        let writes = || history.strong_writes().chain(last).chain(same_value.iter().copied());
        let race = unordered(clocks, source, writes().chain(history.overwritten_writes())).map(Hazard::Race);
        race.or_else(|| unfenced((clocks, &self.fences), source, writes(), Proxy::Async))
    }

    /// Records a write by an agent; returns its hazard.
    pub fn write_by_agent(
        &mut self,
        clocks: &mut BlockClocks,
        (array, index): (usize, usize),
        source: &OrderSource<'_>,
        (agent, proxy): (Access, Proxy),
    ) -> Option<Hazard> {
        let block = clocks.block;
        self.releases.get_mut(&(array as u32, index as u32)).into_iter().for_each(ElementReleases::clear);
        let same_value = self.same_value_writes.take((array as u32, index as u64));
        let cell = &mut self.cells[array][index];
        let before = std::mem::replace(&mut cell.write, agent);
        cell.written = true;
        let history = self.histories.entry((array as u32, index as u32)).or_default();
        let last = (before.clock != 0).then_some((block, before));
        let weak_writes = || last.into_iter().chain(same_value.iter().copied());
        let writes = || history.strong_writes().chain(weak_writes());
        let race = unordered(clocks, source, writes().chain(history.overwritten_writes())).or_else(|| {
            let mut reads = history.reads.values().copied().chain(history.strong_reads());
            let read = reads.find(|read| !clocks.precedes(source, read))?;
            Some(Race { block, earlier: read, earlier_writes: false })
        });
        let hazard = race.map(Hazard::Race);
        let hazard = hazard.or_else(|| unfenced((clocks, &self.fences), source, writes(), proxy));
        history.overwrite(weak_writes(), block, agent.lane);
        hazard
    }

    /// Records that a `wait_until` of a thread for an element has ended.
    pub fn record_wait(&mut self, block: u32, (array, index): (u32, u32), now: &CurrentAccess, scope: Scope) {
        self.histories.entry((array, index)).or_default().record_wait(block, now, scope);
    }

    pub fn releases(&mut self, array: u32, index: u32) -> &mut ElementReleases {
        self.releases.entry((array, index)).or_default()
    }
}

/// Keeps the latest reader, the latest other lane of its warp, and the latest of another warp.
#[inline]
fn record_reader(reads: &mut [Access; 3], read: Access) {
    let [latest, latest_same_warp, latest_other_warp] = *reads;
    if latest.lane == read.lane || latest.clock == 0 {
        reads[0] = read;
    } else if latest.lane / 32 == read.lane / 32 {
        *reads = [read, latest, latest_other_warp];
    } else {
        let same_warp = |a: Access| a.clock != 0 && a.lane / 32 == read.lane / 32 && a.lane != read.lane;
        let latest_same_warp =
            [latest_other_warp, latest_same_warp].into_iter().find(|&a| same_warp(a)).unwrap_or_default();
        *reads = [read, latest_same_warp, latest];
    }
}

/// Shadow memory of the elements of global memory that a launch may write.
#[derive(Debug, Default)]
pub struct GlobalShadow {
    cells: FxHashMap<(u32, u64), GlobalCell>,
    pub same_value_writes: SameValueWrites,
    /// Proxy fences.
    pub fences: Fences,
}

#[derive(Debug, Default)]
struct GlobalCell {
    write: Option<(u32, Access)>,
    history: History,
    releases: ElementReleases,
}

impl GlobalShadow {
    /// Records a read or a write; returns an access that it races with.
    pub fn access(
        &mut self,
        clocks: &mut BlockClocks,
        param: u32,
        index: u64,
        now: &CurrentAccess,
        writes: bool,
    ) -> Option<Race> {
        let GlobalCell { write, history, releases } = self.cells.entry((param, index)).or_default();
        if writes && now.scope.is_none() {
            releases.clear();
        }
        history.access(write, clocks, now, writes)
    }

    /// Returns an access that a weak write would race with.
    pub fn find_race(&self, clocks: &mut BlockClocks, param: u32, index: u64, now: &CurrentAccess) -> Option<Race> {
        let GlobalCell { write, history, .. } = self.cells.get(&(param, index))?;
        history.find_race(*write, clocks, now, true)
    }

    /// Records a write by an agent through the asynchronous proxy; returns its hazard.
    pub fn write_by_agent(
        &mut self,
        clocks: &mut BlockClocks,
        at: (u32, u64),
        now: &CurrentAccess,
        agent: Access,
    ) -> Option<Hazard> {
        let (source, same_value) = (OrderSource::Thread(*now), self.same_value_writes.take(at));
        let GlobalCell { write, history, releases } = self.cells.entry(at).or_default();
        releases.clear();
        let last = write.replace((clocks.block, agent));
        let race = history.find_race(last, clocks, now, true);
        let race = race.or_else(|| unordered(clocks, &source, same_value.iter().copied()));
        let weak_writes = || last.into_iter().chain(same_value.iter().copied());
        let writes = history.strong_writes().chain(weak_writes());
        let hazard = race.map(Hazard::Race);
        let hazard = hazard.or_else(|| unfenced((clocks, &self.fences), &source, writes, Proxy::Async));
        history.overwrite(weak_writes(), clocks.block, agent.lane);
        hazard
    }

    /// Records a read by an agent; returns its hazard.
    pub fn read_by_agent(
        &mut self,
        clocks: &mut BlockClocks,
        at: (u32, u64),
        source: &OrderSource<'_>,
        (agent, proxy): (Access, Proxy),
    ) -> Option<Hazard> {
        let GlobalCell { write, history, .. } = self.cells.entry(at).or_default();
        history.reads.insert((clocks.block, agent.lane), agent);
        let same_value = self.same_value_writes.of(at);
        let writes = || history.strong_writes().chain(*write).chain(same_value.iter().copied());
        let race = unordered(clocks, source, writes().chain(history.overwritten_writes())).map(Hazard::Race);
        race.or_else(|| unfenced((clocks, &self.fences), source, writes(), proxy))
    }

    /// Returns the last write of an element in this launch if all its writes happen before `now`.
    pub fn last_ordered_write(&self, clocks: &mut BlockClocks, at: (u32, u64), now: CurrentAccess) -> Option<Access> {
        let GlobalCell { write, history, .. } = self.cells.get(&at)?;
        let writes = || history.strong_writes().chain(*write).chain(self.same_value_writes.of(at).iter().copied());
        let (_, last) = writes().next()?;
        unordered(clocks, &OrderSource::Thread(now), writes().chain(history.overwritten_writes()))
            .is_none()
            .then_some(last)
    }

    /// Records that a `wait_until` of a thread for an element has ended.
    pub fn record_wait(&mut self, block: u32, (param, index): (u32, u64), now: &CurrentAccess, scope: Scope) {
        self.cells.entry((param, index)).or_default().history.record_wait(block, now, scope);
    }

    pub fn releases(&mut self, param: u32, index: u64) -> &mut ElementReleases {
        &mut self.cells.entry((param, index)).or_default().releases
    }
}

#[cfg(test)]
mod tests {
    use tegula_ir::SiteId;

    use super::*;

    fn now(clocks: &BlockClocks, lane: u16) -> CurrentAccess {
        CurrentAccess { lane, clock: clocks.clock(lane), site: SiteId(0), scope: None }
    }

    fn shared_read(c: &mut BlockClocks, s: &mut SharedShadow, index: usize, lane: u16) -> Option<Race> {
        let now = now(c, lane);
        s.read(c, 0, index, &now)
    }

    fn shared_write(c: &mut BlockClocks, s: &mut SharedShadow, index: usize, lane: u16) -> Option<Race> {
        let now = now(c, lane);
        s.write(c, 0, index, &now)
    }

    fn global_read(c: &mut BlockClocks, s: &mut GlobalShadow, index: u64, lane: u16) -> Option<Race> {
        let now = now(c, lane);
        s.access(c, 0, index, &now, false)
    }

    fn global_write(c: &mut BlockClocks, s: &mut GlobalShadow, index: u64, lane: u16) -> Option<Race> {
        let now = now(c, lane);
        s.access(c, 0, index, &now, true)
    }

    fn new_shadow(track_all_readers: bool) -> (BlockClocks, SharedShadow) {
        (BlockClocks::new(0, 64, track_all_readers), SharedShadow::new([4].into_iter()))
    }

    #[test]
    fn shared_accesses_of_two_lanes_race_until_a_barrier() {
        for track_all_readers in [false, true] {
            let (mut c, mut s) = new_shadow(track_all_readers);
            assert!(shared_write(&mut c, &mut s, 0, 3).is_none());
            assert!(shared_read(&mut c, &mut s, 0, 3).is_none());
            assert!(shared_read(&mut c, &mut s, 0, 4).is_some(), "lanes of one warp race too");
            c.barrier();
            assert!(shared_read(&mut c, &mut s, 0, 40).is_none());
            assert!(c.barrier_needed);
            assert!(shared_write(&mut c, &mut s, 0, 40).is_none(), "lane 40 alone has read since the barrier");
            assert!(shared_write(&mut c, &mut s, 0, 41).is_some());
        }
    }

    #[test]
    fn shared_write_races_if_another_lane_has_read() {
        // A writer races exactly if another lane read in the same epoch.
        for readers in [vec![1, 2, 40], vec![40, 1, 2], vec![1, 40, 2], vec![1, 40, 1], vec![5], vec![33, 1, 34, 2]] {
            for writer in [1u16, 2, 5, 33, 34, 40] {
                for track_all_readers in [false, true] {
                    let (mut c, mut s) = new_shadow(track_all_readers);
                    shared_write(&mut c, &mut s, 0, 0);
                    c.barrier();
                    for &reader in &readers {
                        assert!(shared_read(&mut c, &mut s, 0, reader).is_none());
                    }
                    let races = shared_write(&mut c, &mut s, 0, writer).is_some();
                    assert_eq!(races, readers.iter().any(|&r| r != writer), "{readers:?} {writer}");
                }
            }
        }
    }

    #[test]
    fn sync_warp_orders_only_its_lanes() {
        let (mut c, mut s) = new_shadow(false);
        shared_write(&mut c, &mut s, 0, 3);
        shared_write(&mut c, &mut s, 1, 3);
        c.sync_warp(0, u32::MAX);
        assert!(shared_read(&mut c, &mut s, 0, 9).is_none());
        assert!(shared_read(&mut c, &mut s, 1, 40).is_some());
        let (mut c, mut s) = new_shadow(true);
        shared_write(&mut c, &mut s, 0, 3);
        c.sync_warp(0, 0b1100);
        assert!(shared_read(&mut c, &mut s, 0, 2).is_none());
        assert!(shared_read(&mut c, &mut s, 0, 4).is_some());
    }

    #[test]
    fn release_orders_only_the_acquiring_lane() {
        let mut shadow = GlobalShadow::default();
        let (mut a, mut b) = (BlockClocks::new(0, 32, true), BlockClocks::new(1, 32, true));
        assert!(global_write(&mut a, &mut shadow, 7, 5).is_none());
        shadow.releases(0, 0).store(&mut a, 5, true, Scope::Device, false);
        assert!(global_write(&mut a, &mut shadow, 8, 5).is_none());
        shadow.releases(0, 0).load(&mut b, 1, true, Scope::Device);
        assert!(global_read(&mut b, &mut shadow, 7, 1).is_none());
        assert!(global_read(&mut b, &mut shadow, 8, 1).is_some(), "written after the release");
        assert!(global_read(&mut b, &mut shadow, 7, 2).is_some(), "another lane acquired nothing");
        let mut c = BlockClocks::new(2, 32, true);
        shadow.releases(0, 0).load(&mut c, 0, true, Scope::Block);
        assert!(global_read(&mut c, &mut shadow, 7, 0).is_some(), "a block's scope does not reach another block");
    }

    #[test]
    fn fence_scope_limits_acquires_of_relaxed_reads() {
        // Block 0 releases to the device; a relaxed atomic operation of block 1 continues the
        // release.
        for (fence, races) in [(Scope::Device, false), (Scope::Block, true)] {
            let mut shadow = GlobalShadow::default();
            let (mut a, mut b) = (BlockClocks::new(0, 32, true), BlockClocks::new(1, 32, true));
            assert!(global_write(&mut a, &mut shadow, 7, 5).is_none());
            shadow.releases(0, 0).store(&mut a, 5, true, Scope::Device, false);
            shadow.releases(0, 0).load(&mut b, 0, false, Scope::Device);
            shadow.releases(0, 0).store(&mut b, 0, false, Scope::Device, true);
            shadow.releases(0, 0).load(&mut b, 1, false, Scope::Block);
            b.fence(1, fence);
            assert_eq!(global_read(&mut b, &mut shadow, 7, 1).is_some(), races, "{fence:?}");
        }
    }

    #[test]
    fn acquire_after_relaxed_read_acquires_its_release() {
        for (scope, races) in [(Scope::Device, false), (Scope::Block, true)] {
            let mut shadow = GlobalShadow::default();
            let (mut a, mut b) = (BlockClocks::new(0, 32, true), BlockClocks::new(1, 32, true));
            assert!(global_write(&mut a, &mut shadow, 7, 5).is_none());
            shadow.releases(0, 0).store(&mut a, 5, true, Scope::Device, false);
            shadow.releases(0, 0).load(&mut b, 1, false, Scope::Device);
            // Another thread's relaxed store is not part of the release sequence.
            shadow.releases(0, 0).store(&mut b, 3, false, Scope::Device, false);
            shadow.releases(0, 0).load(&mut b, 1, true, scope);
            assert_eq!(global_read(&mut b, &mut shadow, 7, 1).is_some(), races, "{scope:?}");
            shadow.releases(0, 1).load(&mut b, 2, true, Scope::Device);
            assert!(global_read(&mut b, &mut shadow, 7, 2).is_some(), "another element, another lane");
        }
    }
}
