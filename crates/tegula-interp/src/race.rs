//! Vector clocks: the happens-before order of accesses, and data races.
//!
//! Every lane has a scalar clock, which advances with each synchronization. An access is recorded
//! as an epoch: (lane, clock). It happens before a later access if the clock view of the later lane
//! covers its epoch. That view consists of the lane's own past, the last barrier of its block, the
//! last synchronization of its warp, and its acquires. Two accesses to one element, at least one of
//! them a write, race if neither happens before the other, whatever order they ran in.
//!
//! The scheme is that of Flanagan and Freund, "FastTrack: efficient and precise dynamic race
//! detection", PLDI 2009. A barrier advances one epoch for the whole block, instead of a vector
//! clock for every lane.
//!
//! Asynchronous work (bulk copies, warpgroup matrix instructions, stores) belongs to *agents*:
//! additional lanes whose clocks count their operations. An agent's access is recorded when the
//! operation is issued. No clock view covers it until a thread waits for its completion. So with
//! every schedule, a use before the wait is found, and so is the release of a buffer before it.

use std::collections::BTreeMap;
use std::sync::Arc;

use rustc_hash::FxHashMap;
use tegula_ir::{Scope, SiteId};

/// The epoch of an access: lane and clock, with the source location.
///
/// Clock 0, the default, stands for "no access": lanes and agents start at clock 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    pub clock: u32,
    pub site: u32,
    pub lane: u16,
}

/// Whether an access reads or writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    Read,
    Write,
}

/// The first lane number of an asynchronous agent.
pub const FIRST_AGENT: u16 = 0x8000;

/// An access at the current instruction, for comparison with earlier ones.
#[derive(Clone, Copy, Debug)]
pub struct CurrentAccess {
    pub lane: u16,
    pub clock: u32,
    pub site: SiteId,
    /// Scope of a strong access, which may be concurrent with other strong ones; `None` if weak.
    pub scope: Option<Scope>,
}

/// The later side of a comparison: the clock view that says which accesses happen before it.
#[derive(Clone, Copy, Debug)]
pub enum OrderSource<'a> {
    /// That of a thread of the block, at the current instruction.
    Thread(CurrentAccess),
    /// That of a thread of the cluster, when it issued a remote operation.
    Sender(&'a ClockView),
}

impl CurrentAccess {
    pub fn access(self) -> Access {
        Access { clock: self.clock, site: self.site.0, lane: self.lane }
    }
}

/// Clocks acquired by a lane, beyond the barriers of its own block. Both lists are sorted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClockView {
    /// For each block, a clock: all accesses of its threads before that clock are covered.
    blocks: Vec<(u32, u32)>,
    /// For each lane of a block, a clock: its accesses up to and including it are covered.
    lanes: Vec<((u32, u16), u32)>,
}

impl ClockView {
    /// The operations of an agent, up to and including a clock.
    pub fn of_agent(block: u32, agent: u16, clock: u32) -> Self {
        ClockView { blocks: Vec::new(), lanes: vec![((block, agent), clock)] }
    }

    pub fn join(&mut self, other: &ClockView) {
        join(&mut self.blocks, &other.blocks);
        join(&mut self.lanes, &other.lanes);
    }

    pub fn covers(&self, block: u32, access: &Access) -> bool {
        access.lane < FIRST_AGENT && lookup(&self.blocks, block).is_some_and(|clock| access.clock < clock)
            || lookup(&self.lanes, (block, access.lane)).is_some_and(|clock| access.clock <= clock)
    }
}

/// Joins sorted clocks: the maximum for each key.
fn join<K: Copy + Ord>(own: &mut Vec<(K, u32)>, other: &[(K, u32)]) {
    if own.is_empty() || other.is_empty() {
        own.extend(other);
        return;
    }
    if join_known(own, other) {
        return;
    }
    let mut joined = Vec::with_capacity(own.len() + other.len());
    let (mut a, mut b) = (own.iter().copied().peekable(), other.iter().copied().peekable());
    while let (Some(&(key, clock)), Some(&(other_key, other_clock))) = (a.peek(), b.peek()) {
        if key <= other_key {
            a.next();
        }
        if other_key <= key {
            b.next();
        }
        joined.push(match key.cmp(&other_key) {
            std::cmp::Ordering::Less => (key, clock),
            std::cmp::Ordering::Equal => (key, clock.max(other_clock)),
            std::cmp::Ordering::Greater => (other_key, other_clock),
        });
    }
    joined.extend(a);
    joined.extend(b);
    *own = joined;
}

/// Joins clocks in place, up to the first key that `own` lacks. Returns whether it has all keys, as
/// between lanes that synchronize again.
fn join_known<K: Copy + Ord>(own: &mut [(K, u32)], other: &[(K, u32)]) -> bool {
    let mut own = own.iter_mut();
    other.iter().all(|&(key, clock)| match own.find(|(own_key, _)| *own_key >= key) {
        Some((own_key, own_clock)) if *own_key == key => {
            *own_clock = clock.max(*own_clock);
            true
        }
        _ => false,
    })
}

fn lookup<K: Copy + Ord>(clocks: &[(K, u32)], key: K) -> Option<u32> {
    clocks.binary_search_by_key(&key, |&(key, _)| key).ok().map(|at| clocks[at].1)
}

/// The clocks of each lane's fences, by block and lane.
///
/// A fence orders the earlier accesses of its lane before every access that it precedes.
#[derive(Debug, Default)]
pub struct Fences(FxHashMap<(u32, u16), Vec<u32>>);

impl Fences {
    /// Records a fence of a lane.
    pub fn add(&mut self, clocks: &mut BlockClocks, lane: u16) {
        let clock = &mut clocks.clocks[usize::from(lane)];
        self.0.entry((clocks.block, lane)).or_default().push(*clock);
        *clock += 1;
    }

    /// Whether the lane of an access fenced after it, and that fence happens before the source.
    pub fn fence_precedes(
        &self,
        clocks: &mut BlockClocks,
        source: &OrderSource<'_>,
        block: u32,
        access: &Access,
    ) -> bool {
        let Some(fences) = self.0.get(&(block, access.lane)) else { return false };
        let first = fences.get(fences.partition_point(|&clock| clock < access.clock));
        first.is_some_and(|&clock| clocks.precedes_across(source, block, &Access { clock, ..*access }))
    }
}

/// A value for the scope of the block, and a value for the scope of the device.
#[derive(Clone, Debug)]
pub struct ByScope<T> {
    pub block: Option<T>,
    pub device: Option<T>,
}

impl<T> Default for ByScope<T> {
    fn default() -> Self {
        ByScope { block: None, device: None }
    }
}

/// The clocks of one block.
#[derive(Debug)]
pub struct BlockClocks {
    pub block: u32,
    clocks: Vec<u32>,
    /// The epoch of the last barrier: every lane's view covers all earlier clocks.
    pub barrier_epoch: u32,
    /// The epoch of the barrier before the last.
    pub previous_epoch: u32,
    /// For each warp, the epoch of its last full synchronization.
    warp_epochs: Vec<u32>,
    /// Clock view that each lane acquired, beyond barriers.
    acquired: Vec<Option<Arc<ClockView>>>,
    /// For each lane: the views released by its last fences, and the views that a later fence
    /// acquires.
    pub fence_views: Vec<ByScope<Arc<ClockView>>>,
    pub pending_acquires: Vec<ByScope<ClockView>>,
    /// Whether the last barrier ordered any pair of accesses.
    pub barrier_needed: bool,
    /// Whether shadow memory must record every reader: accesses are ordered by more than barriers
    /// of the block and synchronizations of whole warps.
    pub track_all_readers: bool,
    /// Blocks whose releases were observed with too narrow a scope, and the source locations.
    pub missed_releases: BTreeMap<u32, SiteId>,
}

impl BlockClocks {
    pub fn new(block: u32, threads: u32, track_all_readers: bool) -> Self {
        let n = threads as usize;
        BlockClocks {
            block,
            clocks: vec![1; n],
            barrier_epoch: 1,
            previous_epoch: 1,
            warp_epochs: vec![1; n.div_ceil(32)],
            acquired: vec![None; n],
            fence_views: vec![ByScope::default(); n],
            pending_acquires: vec![ByScope::default(); n],
            barrier_needed: false,
            track_all_readers,
            missed_releases: BTreeMap::new(),
        }
    }

    pub fn clock(&self, lane: u16) -> u32 {
        self.clocks[usize::from(lane)]
    }

    /// Whether an access of this block happens before `now`.
    #[inline]
    pub fn happens_before(&mut self, access: &Access, now: &CurrentAccess) -> bool {
        if access.lane == now.lane {
            return true;
        }
        let is_acquired = |clocks: &Self| {
            clocks.acquired[usize::from(now.lane)].as_ref().is_some_and(|view| view.covers(clocks.block, access))
        };
        if access.lane >= FIRST_AGENT {
            // The view may have come through the last barrier, so that one counts as needed.
            let acquired = is_acquired(self);
            self.barrier_needed |= acquired;
            return acquired;
        }
        if access.clock < self.barrier_epoch {
            self.barrier_needed |= access.clock >= self.previous_epoch;
            return true;
        }
        let warp = usize::from(now.lane / 32);
        if usize::from(access.lane / 32) == warp && access.clock < self.warp_epochs[warp] {
            return true;
        }
        is_acquired(self)
    }

    /// Whether an access of this block happens before the source.
    pub fn precedes(&mut self, source: &OrderSource<'_>, access: &Access) -> bool {
        match source {
            OrderSource::Thread(now) => self.happens_before(access, now),
            OrderSource::Sender(view) => view.covers(self.block, access),
        }
    }

    /// Whether an access of any block happens before the source.
    pub fn precedes_across(&mut self, source: &OrderSource<'_>, block: u32, access: &Access) -> bool {
        match source {
            OrderSource::Thread(now) => self.happens_before_across(block, access, now),
            OrderSource::Sender(view) => view.covers(block, access),
        }
    }

    /// Whether an access of any block happens before `now`.
    pub fn happens_before_across(&mut self, block: u32, access: &Access, now: &CurrentAccess) -> bool {
        if block == self.block {
            return self.happens_before(access, now);
        }
        self.acquired[usize::from(now.lane)].as_ref().is_some_and(|view| view.covers(block, access))
    }

    /// Synchronizes all threads of the block.
    pub fn barrier(&mut self) {
        let next = self.clocks.iter().max().copied().unwrap_or(0) + 1;
        self.previous_epoch = self.barrier_epoch;
        self.barrier_epoch = next;
        self.clocks.fill(next);
        self.warp_epochs.fill(next);
        self.barrier_needed = false;
        if self.acquired.iter().any(Option::is_some) {
            let mut all = self.joined_views(0..self.acquired.len());
            // The barrier's epoch covers the threads of the block.
            all.lanes.retain(|&((block, lane), _)| block != self.block || lane >= FIRST_AGENT);
            self.acquired.fill(Some(Arc::new(all)));
        }
    }

    /// Synchronizes the lanes of a mask. Those of them that have exited count as arrived.
    pub fn sync_warp(&mut self, warp: u32, mask: u32) {
        let in_block = u32::MAX >> (32 - (self.clocks.len() as u32 - 32 * warp).min(32));
        let mask = mask & in_block;
        let lanes = || threads_of(warp, mask);
        let next = lanes().map(|l| self.clock(l)).max().unwrap_or(0) + 1;
        // Exited lanes outside of the mask are not ordered, so it must have all lanes of the block.
        let whole = mask == in_block;
        if !whole || lanes().any(|l| self.acquired[usize::from(l)].is_some()) {
            let all = Arc::new(self.view_of_lanes(warp, mask));
            lanes().for_each(|l| self.acquired[usize::from(l)] = Some(all.clone()));
        }
        lanes().for_each(|l| self.clocks[usize::from(l)] = next);
        if whole {
            self.warp_epochs[warp as usize] = next;
        }
    }

    /// Joins the acquired views of lanes. Neighbors mostly share one view, which is joined once.
    fn joined_views(&self, lanes: impl Iterator<Item = usize>) -> ClockView {
        let (mut all, mut last) = (ClockView::default(), None);
        for view in lanes.filter_map(|lane| self.acquired[lane].as_ref()) {
            if !last.is_some_and(|last| Arc::ptr_eq(last, view)) {
                all.join(view);
                last = Some(view);
            }
        }
        all
    }

    /// The clock view of lanes of a warp: their own accesses and their acquired views.
    fn view_of_lanes(&self, warp: u32, mask: u32) -> ClockView {
        let mut all = self.joined_views(threads_of(warp, mask).map(usize::from));
        join(&mut all.blocks, &[(self.block, self.barrier_epoch)]);
        // Other lanes of the warp are covered up to its last full synchronization.
        let warp_epoch = self.warp_epochs[warp as usize];
        let covered = if warp_epoch > self.barrier_epoch { u32::MAX } else { mask };
        let own = threads_of(warp, covered).map(|l| {
            let is_in_mask = mask >> (l % 32) & 1 == 1;
            ((self.block, l), if is_in_mask { self.clock(l) } else { warp_epoch - 1 })
        });
        join(&mut all.lanes, &own.collect::<Vec<_>>());
        all
    }

    /// The joined acquired view of all lanes of the block.
    pub fn view_of_all(&self) -> ClockView {
        self.joined_views(0..self.acquired.len())
    }

    /// Releases the clock view of a lane. Its later accesses are not part of the view.
    pub fn release(&mut self, lane: u16) -> ClockView {
        self.release_lanes(u32::from(lane / 32), 1 << (lane % 32))
    }

    /// Releases the joined clock view of lanes of a warp.
    pub fn release_lanes(&mut self, warp: u32, mask: u32) -> ClockView {
        let view = self.view_of_lanes(warp, mask);
        threads_of(warp, mask).for_each(|lane| self.clocks[usize::from(lane)] += 1);
        view
    }

    pub fn acquire(&mut self, lane: u16, view: &ClockView) {
        self.acquire_lanes(u32::from(lane / 32), 1 << (lane % 32), view);
    }

    pub fn acquire_lanes(&mut self, warp: u32, mask: u32, view: &ClockView) {
        let mut last: Option<(Option<Arc<ClockView>>, Arc<ClockView>)> = None;
        for lane in threads_of(warp, mask) {
            let acquired = &mut self.acquired[usize::from(lane)];
            let same = |before: &Option<Arc<ClockView>>| match (before, &*acquired) {
                (Some(before), Some(acquired)) => Arc::ptr_eq(before, acquired),
                (before, acquired) => before.is_none() && acquired.is_none(),
            };
            let all = match &last {
                Some((before, all)) if same(before) => all.clone(),
                _ => {
                    let mut all = acquired.as_deref().cloned().unwrap_or_default();
                    all.join(view);
                    Arc::new(all)
                }
            };
            last = Some((acquired.replace(all.clone()), all));
        }
    }

    /// Executes a fence: later relaxed stores release, and earlier relaxed loads acquire.
    ///
    /// A fence with the scope of the block neither releases to other blocks nor acquires from them.
    pub fn fence(&mut self, lane: u16, scope: Scope) {
        let pending = &mut self.pending_acquires[usize::from(lane)];
        let of_device = if scope == Scope::Block { None } else { pending.device.take() };
        for pending in pending.block.take().into_iter().chain(of_device) {
            self.acquire(lane, &pending);
        }
        let view = Arc::new(self.release(lane));
        let fenced = &mut self.fence_views[usize::from(lane)];
        if scope != Scope::Block {
            fenced.device = Some(view.clone());
        }
        fenced.block = Some(view);
    }
}

/// The threads of a mask of lanes, as indices in the block.
pub fn threads_of(warp: u32, mask: u32) -> impl Iterator<Item = u16> {
    (0..32u32).filter(move |l| mask >> l & 1 == 1).map(move |l| (warp * 32 + l) as u16)
}

/// An earlier access that a new access races with.
#[derive(Clone, Copy, Debug)]
pub struct Race {
    pub block: u32,
    pub earlier: Access,
    pub earlier_writes: bool,
}
