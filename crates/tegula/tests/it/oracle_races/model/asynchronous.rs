//! Executes asynchronous operations: copies, tiles, and the mbarriers that count their bytes.

use std::collections::BTreeSet;

use super::clock::ClockView;
use super::{AccessSite, Accessor, Machine, Proxy, SyncPoint};
use crate::oracle_races::program::{Array, B_ROWS, ElementRange, TILE};

impl Machine<'_> {
    /// Creates the agent of an asynchronous operation, whose clock starts as a copy of the
    /// thread's.
    pub(super) fn fork(&mut self, tid: usize, site: AccessSite, proxy: Proxy) -> (Accessor, ClockView) {
        let agent = self.agents;
        self.agents += 1;
        let mut view = self.threads[tid].view.clone();
        let time = view.tick(agent);
        (Accessor { agent, time, site, strength: self.strength(tid, None), proxy }, view)
    }

    pub(super) fn copy_async(
        &mut self,
        tid: usize,
        site: AccessSite,
        to: ElementRange,
        from: ElementRange,
        lane: u32,
    ) -> bool {
        let (accessor, view) = self.fork(tid, site, Proxy::Generic);
        let source = from.array.storage();
        if self.rules.copy_reads_until_wait {
            from.elements(lane).for_each(|index| self.record(&accessor, &view, (0, source, index), false));
        } else {
            self.access(tid, site, from, lane, false, None);
        }
        // Elements excluded by the guard become zero.
        for (index, element) in to.elements(lane).zip(from.start(lane)..) {
            let copied = from.elements(lane).contains(&element);
            let value = if copied { self.location(tid, source, element).1.value } else { 0 };
            self.record(&accessor, &view, (site.block, to.array, index), true);
            self.weak_write((site.block, to.array, index), value);
        }
        self.threads[tid].copies.push(accessor.agent);
        true
    }

    /// Adds arrivals, bytes and a clock to the current phase of an mbarrier.
    pub(super) fn count(&mut self, (block, mbarrier): (u32, u32), view: &ClockView, arrivals: u32, bytes: i64) {
        let count = self.program.arrivals(mbarrier);
        let barrier = self.mbarriers.entry((block, mbarrier)).or_default();
        barrier.view.join(view);
        (barrier.arrived, barrier.bytes) = (barrier.arrived + arrivals, barrier.bytes + bytes);
        if barrier.arrived == count && barrier.bytes == 0 {
            barrier.arrived = 0;
            barrier.completed_phases.push(std::mem::take(&mut barrier.view));
        }
    }

    /// A wait for the mbarrier that counts the bytes orders the writes of the copy, whatever their
    /// proxy.
    pub(super) fn tma_load(&mut self, tid: usize, site: AccessSite, tile: u32, mbarrier: u32, multicast: bool) -> bool {
        let cluster = self.program.cluster;
        let first = site.block / cluster * cluster;
        let blocks = if multicast { first..first + cluster } else { site.block..site.block + 1 };
        for block in blocks {
            // Each block's bytes count at its own mbarrier, which orders no writes to another
            // block.
            let (accessor, view) = self.fork(tid, site, Proxy::Async);
            let mut done = ClockView::default();
            done.include(accessor.agent);
            self.shared_writers.push((block, accessor.agent));
            for index in tile * TILE..(tile + 1) * TILE {
                self.record(&accessor, &view, (block, Array::Tiles, index), true);
                self.weak_write((block, Array::Tiles, index), 0);
            }
            self.count((block, mbarrier), &done, 0, -i64::from(TILE));
        }
        true
    }

    /// An asynchronous store to shared memory of a block in the cluster.
    pub(super) fn store_async(
        &mut self,
        tid: usize,
        site: AccessSite,
        to: ElementRange,
        lane: u32,
        mbarrier: u32,
        rank: u32,
    ) -> bool {
        let block = site.block / self.program.cluster * self.program.cluster + rank;
        let (accessor, view) = self.fork(tid, site, Proxy::Generic);
        let mut done = ClockView::default();
        done.include(accessor.agent);
        self.shared_writers.push((block, accessor.agent));
        for index in to.elements(lane) {
            self.record(&accessor, &view, (block, to.array, index), true);
            self.weak_write((block, to.array, index), 1);
        }
        self.count((block, mbarrier), &done, 0, -i64::from(to.width));
        true
    }

    /// A warp's part of a `wgmma`, which starts when all its lanes have arrived. Its order is that
    /// of the first lane.
    pub(super) fn wgmma(&mut self, tid: usize, site: AccessSite, shared: bool) -> bool {
        let (block, warp) = (site.block, site.thread / 32);
        let point = SyncPoint::Wgmma { block, warp, step: site.step };
        if !self.synchronize(tid, point, 32, true) {
            return false;
        }
        let nth = self.threads[tid].visits[&point];
        let lead = tid - site.thread as usize % 32;
        let agent = match self.wgmmas.get(&(point, nth)) {
            Some(&agent) => agent,
            None => {
                let (accessor, view) = self.fork(lead, AccessSite { thread: warp * 32, ..site }, Proxy::Async);
                let a = if shared { warp % 4 * 16..warp % 4 * 16 + 16 } else { 0..0 };
                // Rows of both operands are read once.
                let rows: BTreeSet<_> = a.chain(0..B_ROWS).collect();
                rows.into_iter().for_each(|row| self.record(&accessor, &view, (block, Array::Operands, row), false));
                self.wgmmas.insert((point, nth), accessor.agent);
                accessor.agent
            }
        };
        self.threads[tid].wgmmas.push(agent);
        true
    }

    pub(super) fn tma_store(&mut self, tid: usize, site: AccessSite, tile: u32, row: u32) -> bool {
        let (reads, view) = self.fork(tid, site, Proxy::Async);
        for index in tile * TILE..(tile + 1) * TILE {
            self.record(&reads, &view, (site.block, Array::Tiles, index), false);
        }
        let (mut writes, mut view) = self.fork(tid, site, Proxy::Async);
        if !self.rules.tma_store_writes_until_wait {
            let time = self.threads[tid].view.tick(tid);
            (writes.agent, writes.time, view) = (tid, time, self.threads[tid].view.clone());
        }
        for (index, from) in (row * TILE..(row + 1) * TILE).zip(tile * TILE..) {
            let value = self.location(tid, Array::Tiles, from).1.value;
            self.record(&writes, &view, (0, Array::Stored, index), true);
            self.weak_write((0, Array::Stored, index), value);
        }
        self.threads[tid].stores.push([reads.agent, if writes.agent == tid { reads.agent } else { writes.agent }]);
        true
    }
}
