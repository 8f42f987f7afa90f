//! Clusters: blocks that run together, and what they do to each other's shared memory.
//!
//! What a block does to another one travels as a letter, which comes when the seed says so. The letter tells what its sender knew, and
//! so it is found on every run whether the other block surely had begun its barrier by then, and whether it surely will not have ended.

use std::sync::Arc;

use tegula_core::diagnostic::Kind;
use tegula_ir::SiteId;

use super::block::Running;
use super::gathered::Gathered;
use super::machine::Machine;
use super::path::State;
use super::race::{Access, Eyes, Knowledge};
use super::remote::{Brings, Letter, Visit};
use super::report::Mistake;
use super::shadow::GlobalShadow;
use super::warp::Run;

/// The blocks of a cluster, and what is on its way between them.
pub(super) struct Group {
    pub blocks: Vec<Running>,
    letters: Vec<Letter>,
}

impl Letter {
    /// The sender publishes what it knows.
    pub fn new(block: &mut Running, to: u32, (thread, site): (u16, SiteId), brings: Brings) -> Self {
        let sender = Access { clock: block.clocks.clock(thread), site: site.0, lane: thread };
        Letter { to, from: block.linear as u32, sender, known: block.clocks.release(thread), brings }
    }
}

impl Group {
    pub fn is_done(&self) -> bool {
        let nothing_comes = |block: &Running| block.engine.coming.is_empty() && block.engine.outbox.is_empty();
        let done = |block: &Running| block.warps.iter().all(|w| w.state == State::Done) && nothing_comes(block);
        self.letters.is_empty() && self.blocks.iter().all(done)
    }
}

impl Machine<'_> {
    pub fn start_group(&self, first: u64) -> Group {
        let blocks = first..first + u64::from(self.kernel.cluster());
        Group { blocks: blocks.map(|block| self.start(block)).collect(), letters: Vec::new() }
    }

    /// A block's position in its cluster.
    pub fn rank(&self, block: &Running) -> u32 {
        block.id[0] % self.kernel.cluster()
    }

    /// Brings letters, and ends a meeting to which all have come. Where nobody else could go on, something must come. False where
    /// nothing does.
    pub fn exchange(
        &self,
        group: &mut Group,
        global: &mut GlobalShadow,
        gathered: &mut Gathered,
        progress: bool,
    ) -> bool {
        let Group { blocks, letters } = group;
        for block in &mut *blocks {
            letters.append(&mut block.engine.outbox);
        }
        let mut came = meet(blocks);
        let mut at = 0;
        while at < letters.len() {
            if blocks[0].random(2) == 0 {
                self.deliver((blocks, global), letters.swap_remove(at), gathered);
                came = true;
            } else {
                at += 1;
            }
        }
        if progress || came {
            return true;
        }
        if !letters.is_empty() {
            let at = blocks[0].random(letters.len() as u64) as usize;
            self.deliver((blocks, global), letters.swap_remove(at), gathered);
            return true;
        }
        let count = blocks.len() as u64;
        let first = blocks[0].random(count) as usize;
        let (before, after) = blocks.split_at_mut(first);
        after.iter_mut().chain(before).any(|block| self.land_one(block, gathered))
    }

    fn deliver(&self, (blocks, global): (&mut [Running], &mut GlobalShadow), letter: Letter, gathered: &mut Gathered) {
        let Letter { to, from, sender, known, brings } = letter;
        let Some(block) = blocks.get_mut(to as usize) else { return };
        let (eyes, site) = (Eyes::Sender(&known), SiteId(sender.site));
        let mistakes = match brings {
            Brings::Arrival { which, expect } => {
                let unready = self.ready(block, which, &eyes, (site, sender.lane));
                let wrong = self.arrive(block, which, expect, &known, (site, sender.lane));
                let visit = Visit { from, sender, block: from, access: sender };
                block.engine.visits.insert((from, sender.lane), visit);
                unready.or(wrong).into_iter().collect()
            }
            Brings::Cargo(cargo) => self.start_copy((block, global), cargo, &eyes, (from, sender)),
        };
        mistakes.into_iter().for_each(|mistake| self.note(gathered, from, mistake));
    }

    /// What the block never came to know of: work of its own, and others who came when it may have ended.
    /// With the block whose mistake it is.
    pub fn left_behind(&self, block: &Running) -> Vec<(u32, Mistake)> {
        if !self.config.races {
            return Vec::new();
        }
        let unawaited = |thread: usize, site, message: &str| Mistake {
            kind: Kind::InFlight,
            sites: vec![site],
            lanes: vec![thread as u16],
            element: None,
            message: message.into(),
        };
        let stores = block.engine.stores.iter().enumerate().filter_map(|(thread, stores)| {
            let message = "shared memory is given up while a store of a tile may still read it; commit it, and call `await_reads`";
            stores.groups.unfinished().map(|site| unawaited(thread, site, message))
        });
        let products = block.engine.multiplying.iter().enumerate().filter_map(|(warp, multiplying)| {
            let message =
                "the block ends while a multiplication may still read shared memory; commit it, and call `wgmma_wait`";
            multiplying.groups.unfinished().map(|site| unawaited(32 * warp, site, message))
        });
        let known = block.clocks.of_all();
        let unseen = block.engine.visits.values().filter(|visit| !known.covers(visit.block, &visit.access));
        let visits = unseen.map(|visit| {
            let (kind, message) = if u64::from(visit.from) == block.linear {
                (Kind::InFlight, "starts a copy of a tile that nobody waits for before the block ends".into())
            } else {
                let message = format!(
                    "comes to shared memory of block {:?}, which may have ended by then; let the cluster meet at the end",
                    block.id
                );
                (Kind::EndedBlock, message)
            };
            let (sites, lanes) = (vec![SiteId(visit.sender.site)], vec![visit.sender.lane]);
            (visit.from, Mistake { kind, sites, lanes, element: None, message })
        });
        let waited = block.engine.waited.as_ref().is_none_or(|waited| waited.contains(&true));
        let early = (!waited).then(|| {
            let message = "ends and never waited for the launches before; whoever waits for this one would not wait for those; call `await_launches`";
            Mistake { kind: Kind::EarlyAccess, ..unawaited(0, SiteId(0), message) }
        });
        let own = stores.chain(products).chain(early).map(|mistake| (block.linear as u32, mistake));
        own.chain(visits).collect()
    }
}

/// Ends a meeting to which all warps have come.
fn meet(blocks: &mut [Running]) -> bool {
    if !blocks.iter().all(|block| block.engine.meeting.came as usize == block.warps.len()) {
        return false;
    }
    let mut all = Knowledge::default();
    blocks.iter().for_each(|block| all.join(&block.engine.meeting.gathered));
    let all = Arc::new(all);
    for block in blocks {
        let meeting = &mut block.engine.meeting;
        meeting.came = 0;
        meeting.gathered = Knowledge::default();
        meeting.over += 1;
        meeting.published = all.clone();
    }
    true
}

impl Run<'_, '_> {
    /// Whether there is such a block in the cluster.
    pub fn in_cluster(&mut self, lane: usize, rank: u32) -> bool {
        let blocks = self.machine.kernel.cluster();
        if rank < blocks {
            return true;
        }
        let message = format!("means block {rank} of a cluster of {blocks}");
        let (pc, thread) = (self.warp.pc, self.thread(lane));
        self.report(Kind::OutOfBounds, pc, &[thread.into()], None, message);
        false
    }

    pub fn cluster_arrive(&mut self) {
        let warp = self.warp.index;
        let known = self.block.clocks.release_lanes(warp, self.warp.mask);
        let meeting = &mut self.block.engine.meeting;
        let times = meeting.of_warps.entry(warp).or_default();
        let again = *times > meeting.over;
        *times += 1;
        meeting.came += 1;
        meeting.gathered.join(&known);
        if again {
            self.mismatch("comes to the barrier of the cluster again before it has waited there");
        }
    }

    /// Whether the meeting is over to which the warp came.
    pub fn cluster_wait(&mut self) -> bool {
        let warp = self.warp.index;
        let meeting = &self.block.engine.meeting;
        match meeting.of_warps.get(&warp) {
            Some(&times) if times > meeting.over => {
                self.warp.state = State::Cluster;
                return false;
            }
            Some(_) => {}
            None => self.mismatch("waits at the barrier of the cluster, to which it has not come"),
        }
        if self.machine.config.races {
            let published = self.block.engine.meeting.published.clone();
            self.block.clocks.acquire_lanes(warp, self.warp.mask, &published);
        }
        true
    }

    fn mismatch(&mut self, message: &str) {
        let (pc, thread) = (self.warp.pc, self.warp.index * 32);
        self.report(Kind::ArrivalMismatch, pc, &[thread], None, message.into());
    }
}
