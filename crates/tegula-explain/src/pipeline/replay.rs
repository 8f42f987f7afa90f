//! Replays the pipeline operations of a cluster on the logical clock of [`Costs`].
//!
//! Each warp runs its operations in order, and continues from a wait once its condition holds. The
//! earliest operation is always next, so mbarriers see arrivals in the order of their times.

use std::collections::BTreeMap;

use super::Costs;
use crate::trace::{Header, PipelineEvent, PipelineOp, SharedSlot};

/// A tile or mbarrier of a block, by the block's rank in its cluster.
type ClusterSlot = (u32, SharedSlot);

/// The intervals of all operations.
#[derive(Debug, Default)]
pub(super) struct Replay {
    /// The rank of the block in its cluster.
    pub block: u32,
    /// Block and warp of each warp with pipeline operations.
    pub warps: Vec<(u32, u32)>,
    pub issues: Vec<Interval>,
    pub fills: Vec<StageFill>,
    pub products: Vec<Interval>,
    pub sends: Vec<Interval>,
    pub stores: Vec<Interval>,
    pub waits: Vec<WaitInterval>,
    pub deadlocked: bool,
}

/// An operation of a warp on tiles, with its columns and k-step.
#[derive(Clone, Debug)]
pub(super) struct Interval {
    pub warp: usize,
    pub columns: [u32; 2],
    pub step: u32,
    pub tiles: Vec<SharedSlot>,
}

/// The copies that one phase of an mbarrier counts.
#[derive(Clone, Debug)]
pub(super) struct StageFill {
    pub block: u32,
    pub barrier: SharedSlot,
    phase: usize,
    pub step: u32,
    pub tiles: Vec<SharedSlot>,
    /// From the first issue to the last arrival; the end is `u32::MAX` if copies never arrive.
    pub columns: [u32; 2],
    /// The mbarrier phase whose end releases the tiles.
    release: Option<(SharedSlot, usize)>,
    /// The column of the release.
    pub released: Option<u32>,
}

/// A wait for an mbarrier phase, or for stores.
#[derive(Clone, Debug)]
pub(super) struct WaitInterval {
    pub warp: usize,
    pub barrier: Option<SharedSlot>,
    /// The columns in which the warp has no products pending either.
    pub columns: [u32; 2],
    pub causes: Vec<Cause>,
}

/// The event that completes an mbarrier phase or ends a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cause {
    Copies,
    Stores,
    PartialSums,
    Warp(usize),
}

#[derive(Debug, Default)]
struct Mbarrier {
    arrivals: u32,
    pending: u32,
    /// Expected bytes that have not arrived.
    bytes: i64,
    /// Column and causes of each completed phase.
    completed: Vec<(u32, Vec<Cause>)>,
    /// Column and causes of the latest arrival.
    last: (u32, Vec<Cause>),
}

impl Mbarrier {
    fn update(&mut self, at: u32, cause: Cause, arrivals: u32, bytes: i64) {
        let Some(pending) = self.pending.checked_sub(arrivals) else { return };
        (self.pending, self.bytes) = (pending, self.bytes.saturating_add(bytes));
        if self.last.0 != at {
            self.last = (at, Vec::new());
        }
        if !self.last.1.contains(&cause) {
            self.last.1.push(cause);
        }
        if self.pending == 0 && self.bytes == 0 && self.arrivals > 0 {
            self.pending = self.arrivals;
            self.completed.push(std::mem::take(&mut self.last));
        }
    }

    /// Whether the phase of this parity is complete; it is the current one or its predecessor.
    fn is_complete(&self, parity: u32) -> bool {
        self.completed.len() as u32 & 1 != parity & 1
    }
}

/// A barrier of a block: threads that have arrived, and the column of each completion.
#[derive(Debug, Default)]
struct BlockBarrier {
    arrived: u32,
    completed: Vec<u32>,
}

/// The state of a warp.
#[derive(Debug, Default)]
struct Warp<'t> {
    block: u32,
    events: Vec<&'t PipelineEvent>,
    next: usize,
    time: u32,
    /// The columns at which each group of products and of stores completes.
    products: Vec<u32>,
    stores: Vec<u32>,
    /// Operand tiles of the open `wgmma` group.
    open_tiles: Vec<SharedSlot>,
    /// The column at which the last store completes.
    stored: u32,
    /// The mbarrier phase of the last wait.
    waited: Option<(SharedSlot, usize)>,
    /// The block barrier at which the warp waits, and the number of its completion.
    waiting_at: Option<(u32, usize)>,
}

impl<'t> Warp<'t> {
    fn next(&self) -> Option<&'t PipelineEvent> {
        self.events.get(self.next).copied()
    }

    /// The first column, from `start` on, without a pending product.
    fn idle_from(&self, start: u32) -> u32 {
        start.max(self.products.last().copied().unwrap_or(0))
    }
}

/// The column at which all but the latest `pending` groups are complete.
fn completion(groups: &[u32], pending: u32) -> u32 {
    let done = groups.len().saturating_sub(pending as usize);
    groups[..done].last().copied().unwrap_or(0)
}

/// Bytes in flight, with their arrival column and mbarrier.
#[derive(Debug)]
struct Transfer {
    at: u32,
    barrier: ClusterSlot,
    bytes: u32,
    cause: Cause,
}

struct Simulator<'t> {
    costs: Costs,
    cluster: u32,
    warps: Vec<Warp<'t>>,
    barriers: BTreeMap<ClusterSlot, Mbarrier>,
    block_barriers: BTreeMap<(u32, u32), BlockBarrier>,
    transfers: Vec<Transfer>,
    replay: Replay,
}

/// Replays the cluster of a block; `None` if it issues no TMA loads.
pub(super) fn run(header: &Header, block: [u32; 3], costs: Costs) -> Option<Replay> {
    let cluster = header.cluster.clamp(1, 32);
    let group = |[x, y, z]: [u32; 3]| [x / cluster, y, z];
    let mut warps: BTreeMap<(u32, u32), Warp<'_>> = BTreeMap::new();
    let mut barriers: BTreeMap<ClusterSlot, Mbarrier> = BTreeMap::new();
    for event in header.pipeline.iter().filter(|event| group(event.block) == group(block)) {
        let rank = event.block[0] % cluster;
        // Initialized barriers are visible: the block synchronizes before their first use.
        if let PipelineOp::Init { barrier, arrivals } = event.op {
            barriers.insert((rank, barrier), Mbarrier { arrivals, pending: arrivals, ..Mbarrier::default() });
        }
        warps.entry((rank, event.warp)).or_insert_with(|| Warp { block: rank, ..Warp::default() }).events.push(event);
    }
    if !warps.values().any(|warp| warp.events.iter().any(|event| matches!(event.op, PipelineOp::TmaLoad { .. }))) {
        return None;
    }
    let replay = Replay { block: block[0] % cluster, warps: warps.keys().copied().collect(), ..Replay::default() };
    let warps = warps.into_values().collect();
    let (block_barriers, transfers) = (BTreeMap::new(), Vec::new());
    let mut simulator = Simulator { costs, cluster, warps, barriers, block_barriers, transfers, replay };
    while simulator.step() {}
    Some(simulator.finish())
}

impl<'t> Simulator<'t> {
    /// Runs the next operation or transfer; false at the end.
    fn step(&mut self) -> bool {
        let warp = (0..self.warps.len()).filter_map(|warp| Some((self.ready(warp)?, warp))).min();
        let transfer = (0..self.transfers.len()).map(|transfer| (self.transfers[transfer].at, transfer)).min();
        match (warp, transfer) {
            (Some((now, _)), Some((at, transfer))) if at <= now => self.complete_transfer(transfer),
            (None, Some((_, transfer))) => self.complete_transfer(transfer),
            (Some((now, warp)), _) => self.execute(warp, now),
            (None, None) => return false,
        }
        true
    }

    fn complete_transfer(&mut self, transfer: usize) {
        let Transfer { at, barrier, bytes, cause } = self.transfers.remove(transfer);
        if let Some(barrier) = self.barriers.get_mut(&barrier) {
            barrier.update(at, cause, 0, -i64::from(bytes));
        }
    }

    /// The column at which a warp continues; `None` while it waits, and at its end.
    fn ready(&self, warp: usize) -> Option<u32> {
        let Warp { block, time, waiting_at, .. } = self.warps[warp];
        if let Some((id, number)) = waiting_at {
            return Some(time.max(*self.block_barriers.get(&(block, id))?.completed.get(number)?));
        }
        match self.warps[warp].next()?.op {
            PipelineOp::Wait { barrier, parity } => {
                let barrier = self.barriers.get(&(block, barrier)).filter(|barrier| barrier.is_complete(parity))?;
                Some(time.max(barrier.completed.last().map_or(0, |(at, _)| *at)))
            }
            _ => Some(time),
        }
    }

    /// Continues a warp: from a block barrier, or with its next operation.
    fn execute(&mut self, number: usize, now: u32) {
        let Costs { issue, copy, multiply, store, send } = self.costs;
        let warp = &mut self.warps[number];
        let start = std::mem::replace(&mut warp.time, now);
        if warp.waiting_at.take().is_some() {
            return;
        }
        let Some(event) = warp.next() else { return };
        warp.next += 1;
        let (step, block) = (event.iteration.unwrap_or(0), warp.block);
        let interval = |length, tiles| Interval { warp: number, columns: [now, now + length], step, tiles };
        match event.op {
            PipelineOp::Init { .. } => {}
            PipelineOp::Arrive { barrier, block, bytes } => {
                if let Some(barrier) = self.barriers.get_mut(&(block, barrier)) {
                    barrier.update(now, Cause::Warp(number), 1, bytes.into());
                }
            }
            PipelineOp::Wait { barrier, .. } => self.end_wait(number, barrier, start),
            PipelineOp::TmaLoad { tile, bytes, barrier, blocks } => {
                for to in (0..self.cluster).filter(|to| blocks >> to & 1 == 1) {
                    self.transfers.push(Transfer {
                        at: now + copy,
                        barrier: (to, barrier),
                        bytes,
                        cause: Cause::Copies,
                    });
                    self.fill(number, (to, barrier), tile, step);
                }
                let warp = &mut self.warps[number];
                if !matches!(warp.next().map(|event| &event.op), Some(PipelineOp::TmaLoad { .. })) {
                    warp.time += issue;
                    warp.waited = None;
                    self.replay.issues.push(interval(issue, vec![tile]));
                }
            }
            PipelineOp::Wgmma { ref tiles } => warp.open_tiles.extend(tiles),
            PipelineOp::WgmmaCommit => {
                let from = now.max(warp.products.last().copied().unwrap_or(0));
                let tiles = std::mem::take(&mut warp.open_tiles);
                let to = if tiles.is_empty() { from } else { from + multiply };
                warp.products.push(to);
                if !tiles.is_empty() {
                    self.replay.products.push(Interval { columns: [from, to], ..interval(0, tiles) });
                }
            }
            PipelineOp::WgmmaWait(pending) => warp.time = now.max(completion(&warp.products, pending)),
            PipelineOp::DsmemStore { block, barrier, bytes } => {
                self.transfers.push(Transfer {
                    at: now + send,
                    barrier: (block, barrier),
                    bytes,
                    cause: Cause::PartialSums,
                });
                if !matches!(warp.next().map(|event| &event.op), Some(PipelineOp::DsmemStore { .. })) {
                    warp.time += send;
                    self.replay.sends.push(interval(send, Vec::new()));
                }
            }
            PipelineOp::TmaStore { tile } => {
                // Stores of a warp run one after the other.
                let from = now.max(warp.stored);
                warp.stored = from + store;
                self.replay.stores.push(Interval { columns: [from, warp.stored], ..interval(0, vec![tile]) });
            }
            PipelineOp::TmaStoreCommit => warp.stores.push(warp.stored),
            PipelineOp::TmaStoreWait(pending) => {
                let to = now.max(completion(&warp.stores, pending));
                warp.time = to;
                if to > now {
                    let columns = [warp.idle_from(now).min(to), to];
                    self.replay.waits.push(WaitInterval {
                        warp: number,
                        barrier: None,
                        columns,
                        causes: vec![Cause::Stores],
                    });
                }
            }
            PipelineOp::BlockBarrier { id, threads, waits } => {
                let barrier = self.block_barriers.entry((block, id)).or_default();
                if waits {
                    warp.waiting_at = Some((id, barrier.completed.len()));
                }
                barrier.arrived += 32;
                if barrier.arrived >= threads {
                    barrier.arrived = 0;
                    barrier.completed.push(now);
                }
            }
        }
    }

    /// Ends a wait for an mbarrier phase that began at column `start`.
    fn end_wait(&mut self, number: usize, slot: SharedSlot, start: u32) {
        let warp = &mut self.warps[number];
        let Some(barrier) = self.barriers.get(&(warp.block, slot)) else { return };
        let causes = barrier.completed.last().map_or_else(Vec::new, |(_, causes)| causes.clone());
        warp.waited = Some((slot, barrier.completed.len()));
        let columns = [warp.idle_from(start).min(warp.time), warp.time];
        self.replay.waits.push(WaitInterval { warp: number, barrier: Some(slot), columns, causes });
    }

    /// Adds a tile to the fill of its mbarrier phase.
    fn fill(&mut self, number: usize, (block, slot): ClusterSlot, tile: SharedSlot, step: u32) {
        let (now, phase) =
            (self.warps[number].time, self.barriers.get(&(block, slot)).map_or(0, |b| b.completed.len()));
        let same = |fill: &&mut StageFill| (fill.block, fill.barrier, fill.phase) == (block, slot, phase);
        let release = self.warps[number].waited.filter(|_| self.warps[number].block == block);
        if let Some(fill) = self.replay.fills.iter_mut().rev().find(same) {
            fill.tiles.push(tile);
            fill.release = fill.release.or(release);
            return;
        }
        let (tiles, columns) = (vec![tile], [now, u32::MAX]);
        self.replay.fills.push(StageFill {
            block,
            barrier: slot,
            phase,
            step,
            tiles,
            columns,
            release,
            released: None,
        });
    }

    fn finish(mut self) -> Replay {
        let completed = |block, (slot, phase): (SharedSlot, usize)| {
            Some(self.barriers.get(&(block, slot))?.completed.get(phase)?.0)
        };
        for fill in &mut self.replay.fills {
            fill.columns[1] = completed(fill.block, (fill.barrier, fill.phase)).unwrap_or(u32::MAX);
            fill.released = fill.release.and_then(|release| completed(fill.block, release));
        }
        self.replay.deadlocked = self.warps.iter().any(|warp| warp.waiting_at.is_some() || warp.next().is_some());
        self.replay
    }
}
