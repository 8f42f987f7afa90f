//! Clusters: blocks that run together, and their operations on each other's shared memory.
//!
//! An operation on another block is delivered at a time that the seed selects. It carries the clock
//! view of its sender. So a use before the other block's mbarrier initialization is found on every
//! run, and so is a use after its end.

use std::sync::Arc;

use tegula_core::diagnostic::FindingKind;
use tegula_ir::SiteId;

use super::block::BlockState;
use super::machine::Machine;
use super::partial_outcome::PartialOutcome;
use super::path::State;
use super::race::{Access, ClockView, OrderSource};
use super::remote::{ExitDependency, RemoteEffect, RemoteOp};
use super::report::Diagnostic;
use super::shadow::GlobalShadow;
use super::warp::WarpContext;

/// The blocks of a cluster, and the remote operations in transit.
pub(super) struct Cluster {
    pub blocks: Vec<BlockState>,
    in_transit: Vec<RemoteOp>,
}

impl RemoteOp {
    /// Creates a remote operation; the sender releases its clock view.
    pub fn new(block: &mut BlockState, to: u32, (thread, site): (u16, SiteId), effect: RemoteEffect) -> Self {
        let issue = Access { clock: block.clocks.clock(thread), site: site.0, lane: thread };
        RemoteOp { to, issuing_block: block.linear as u32, issue, view: block.clocks.release(thread), effect }
    }
}

impl Cluster {
    pub fn is_done(&self) -> bool {
        let is_idle = |block: &BlockState| block.hopper.in_flight.is_empty() && block.hopper.outgoing.is_empty();
        let done = |block: &BlockState| block.warps.iter().all(|w| w.state == State::Done) && is_idle(block);
        self.in_transit.is_empty() && self.blocks.iter().all(done)
    }
}

impl Machine<'_> {
    pub fn start_cluster(&self, first: u64) -> Cluster {
        let blocks = first..first + u64::from(self.kernel.cluster());
        Cluster { blocks: blocks.map(|block| self.start_block(block)).collect(), in_transit: Vec::new() }
    }

    /// Rank of a block in its cluster.
    pub fn rank(&self, block: &BlockState) -> u32 {
        block.id[0] % self.kernel.cluster()
    }

    /// Delivers remote operations, and completes the cluster barrier once all warps have arrived.
    ///
    /// Without other progress, one operation must be delivered. Returns false if none is left.
    pub fn deliver_in_transit(
        &self,
        cluster: &mut Cluster,
        global: &mut GlobalShadow,
        partial: &mut PartialOutcome,
        progress: bool,
    ) -> bool {
        let Cluster { blocks, in_transit } = cluster;
        for block in &mut *blocks {
            in_transit.append(&mut block.hopper.outgoing);
        }
        let mut delivered = complete_cluster_barrier(blocks);
        let mut at = 0;
        while at < in_transit.len() {
            if blocks[0].random(2) == 0 {
                self.deliver((blocks, global), in_transit.swap_remove(at), partial);
                delivered = true;
            } else {
                at += 1;
            }
        }
        if progress || delivered {
            return true;
        }
        if !in_transit.is_empty() {
            let at = blocks[0].random(in_transit.len() as u64) as usize;
            self.deliver((blocks, global), in_transit.swap_remove(at), partial);
            return true;
        }
        let count = blocks.len() as u64;
        let first = blocks[0].random(count) as usize;
        let (before, after) = blocks.split_at_mut(first);
        after.iter_mut().chain(before).any(|block| self.land_one(block, partial))
    }

    fn deliver(
        &self,
        (blocks, global): (&mut [BlockState], &mut GlobalShadow),
        remote_op: RemoteOp,
        partial: &mut PartialOutcome,
    ) {
        let RemoteOp { to, issuing_block, issue, view, effect } = remote_op;
        let Some(block) = blocks.get_mut(to as usize) else { return };
        let (source, site) = (OrderSource::Sender(&view), SiteId(issue.site));
        let diagnostics = match effect {
            RemoteEffect::Arrival { barrier, expect } => {
                let usability_error = self.check_mbarrier(block, barrier, &source, (site, issue.lane));
                let wrong = self.arrive(block, barrier, expect, &view, (site, issue.lane));
                let dependency = ExitDependency { issuing_block, issue, block: issuing_block, access: issue };
                block.hopper.exit_dependencies.insert((issuing_block, issue.lane), dependency);
                usability_error.or(wrong).into_iter().collect()
            }
            RemoteEffect::AsyncWrite(write) => {
                self.start_async_write((block, global), write, &source, (issuing_block, issue))
            }
        };
        diagnostics.into_iter().for_each(|diagnostic| self.record(partial, issuing_block, diagnostic));
    }

    /// Reports work that is unfinished when the block ends, with the responsible block.
    ///
    /// These are the block's own asynchronous operations, and accesses by other blocks that may
    /// come after its end.
    pub fn unfinished_at_exit(&self, block: &BlockState) -> Vec<(u32, Diagnostic)> {
        if !self.config.races {
            return Vec::new();
        }
        let unawaited = |thread: usize, site, message: &str| Diagnostic {
            kind: FindingKind::InFlight,
            sites: vec![site],
            lanes: vec![thread as u16],
            element: None,
            message: message.into(),
        };
        let stores = block.hopper.stores.iter().enumerate().filter_map(|(thread, stores)| {
            let message = "the block ends while a bulk store may still read shared memory; commit it, and call `bulk_wait_group_read`";
            stores.groups.unfinished().map(|site| unawaited(thread, site, message))
        });
        let products = block.hopper.wgmma_queues.iter().enumerate().filter_map(|(warp, queue)| {
            let message =
                "the block ends while a matrix instruction may still read shared memory; commit it, and call `wgmma_wait_group`";
            queue.groups.unfinished().map(|site| unawaited(32 * warp, site, message))
        });
        let view = block.clocks.view_of_all();
        let unobserved = block
            .hopper
            .exit_dependencies
            .values()
            .filter(|dependency| !view.covers(dependency.block, &dependency.access));
        let exit_dependencies = unobserved.map(|dependency| {
            let (kind, message) = if u64::from(dependency.issuing_block) == block.linear {
                (FindingKind::InFlight, "starts a bulk copy that no thread waits for before the block ends".into())
            } else {
                let message = format!(
                    "accesses shared memory of block {:?}, which may have ended; synchronize the cluster at the end",
                    block.id
                );
                (FindingKind::EndedBlock, message)
            };
            let (sites, lanes) = (vec![SiteId(dependency.issue.site)], vec![dependency.issue.lane]);
            (dependency.issuing_block, Diagnostic { kind, sites, lanes, element: None, message })
        });
        let waited = block.hopper.launch_awaited.as_ref().is_none_or(|waited| waited.contains(&true));
        let early = (!waited).then(|| {
            let message = "ends without waiting for the preceding launches; a wait for this launch would not cover them; call `griddep_wait`";
            Diagnostic { kind: FindingKind::EarlyAccess, ..unawaited(0, SiteId(0), message) }
        });
        let own = stores.chain(products).chain(early).map(|diagnostic| (block.linear as u32, diagnostic));
        own.chain(exit_dependencies).collect()
    }
}

/// Completes the cluster barrier if all warps have arrived.
fn complete_cluster_barrier(blocks: &mut [BlockState]) -> bool {
    if !blocks.iter().all(|block| block.hopper.cluster_barrier.arrived as usize == block.warps.len()) {
        return false;
    }
    let mut all = ClockView::default();
    blocks.iter().for_each(|block| all.join(&block.hopper.cluster_barrier.released));
    let all = Arc::new(all);
    for block in blocks {
        let cluster_barrier = &mut block.hopper.cluster_barrier;
        cluster_barrier.arrived = 0;
        cluster_barrier.released = ClockView::default();
        cluster_barrier.completed += 1;
        cluster_barrier.published = all.clone();
    }
    true
}

impl WarpContext<'_, '_> {
    /// Reports a rank beyond the cluster; true if the rank is valid.
    pub fn in_cluster(&mut self, lane: usize, rank: u32) -> bool {
        let blocks = self.machine.kernel.cluster();
        if rank < blocks {
            return true;
        }
        let message = format!("addresses block {rank} of a cluster of {blocks} blocks");
        let (pc, thread) = (self.warp.pc, self.thread(lane));
        self.report(FindingKind::OutOfBounds, pc, &[thread.into()], None, message);
        false
    }

    pub fn cluster_arrive(&mut self) {
        let warp = self.warp.index;
        let view = self.block.clocks.release_lanes(warp, self.warp.mask);
        let cluster_barrier = &mut self.block.hopper.cluster_barrier;
        let arrivals = cluster_barrier.warp_arrivals.entry(warp).or_default();
        let again = *arrivals > cluster_barrier.completed;
        *arrivals += 1;
        cluster_barrier.arrived += 1;
        cluster_barrier.released.join(&view);
        if again {
            self.report_arrival_mismatch("arrives at the barrier of the cluster again without waiting there");
        }
    }

    /// Whether the cluster barrier that the warp arrived at is complete.
    pub fn cluster_wait(&mut self) -> bool {
        let warp = self.warp.index;
        let cluster_barrier = &self.block.hopper.cluster_barrier;
        match cluster_barrier.warp_arrivals.get(&warp) {
            Some(&arrivals) if arrivals > cluster_barrier.completed => {
                self.warp.state = State::Cluster;
                return false;
            }
            Some(_) => {}
            None => self.report_arrival_mismatch("waits at the barrier of the cluster without arriving there"),
        }
        if self.machine.config.races {
            let published = self.block.hopper.cluster_barrier.published.clone();
            self.block.clocks.acquire_lanes(warp, self.warp.mask, &published);
        }
        true
    }

    fn report_arrival_mismatch(&mut self, message: &str) {
        let (pc, thread) = (self.warp.pc, self.warp.index * 32);
        self.report(FindingKind::ArrivalMismatch, pc, &[thread], None, message.into());
    }
}
