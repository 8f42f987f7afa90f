//! Barriers, and loops around them.

use super::Maker;
use crate::oracle_races::program::{Does, Node, Step, Threads};

impl Maker {
    /// The blocks of the cluster meet.
    pub(super) fn cluster(&mut self, apart: bool) {
        if self.cluster == 1 {
            return;
        }
        self.push(Threads::ALL, Does::ClusterArrive);
        if apart {
            self.access();
        }
        self.push(Threads::ALL, Does::ClusterWait);
    }

    pub(super) fn sync_warp(&mut self) -> Step {
        let one = self.thread();
        let lanes = match self.random.below(3) {
            0 => u32::MAX,
            1 => 1 | 2 | one.lanes,
            // Lane 0 is in every warp.
            _ => 1 | self.random.next() as u32,
        };
        let warps = if self.random.chance(2) { u32::MAX } else { one.warps };
        let blocks = if self.random.chance(2) { u32::MAX } else { one.blocks };
        Step { by: Threads { blocks, warps, lanes }, does: Does::SyncWarp }
    }

    pub(super) fn named(&mut self) {
        if self.named == 15 {
            return;
        }
        self.named += 1;
        let all = (1 << self.warps()) - 1;
        let one = self.thread();
        let blocks = if self.random.chance(2) { u32::MAX } else { one.blocks };
        let waits = one.warps | self.random.next() as u32 & all;
        let arrives = self.random.next() as u32 & all & !waits;
        let step = |warps, wait| Step {
            by: Threads { blocks, warps, lanes: u32::MAX },
            does: Does::Named { id: self.named, warps: waits | arrives, waits: wait },
        };
        let (arrive, wait) = (step(arrives, false), step(waits, true));
        if arrives != 0 {
            self.nodes.push(Node::Step(arrive));
            self.later.push(vec![wait]);
        } else {
            self.nodes.push(Node::Step(wait));
        }
    }

    pub(super) fn repeated(&mut self) {
        let mut body = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            let step = match self.random.below(8) {
                0..4 => self.data_step(),
                4 => Step { by: Threads::ALL, does: Does::Barrier },
                5 => self.sync_warp(),
                6 if self.named < 15 => {
                    self.named += 1;
                    let warps = self.thread().warps | self.random.next() as u32 & ((1 << self.warps()) - 1);
                    let by = Threads { blocks: u32::MAX, warps, lanes: u32::MAX };
                    Step { by, does: Does::Named { id: self.named, warps, waits: true } }
                }
                _ => Step { by: self.some(), does: Does::Fence(self.scope()) },
            };
            body.push(step);
        }
        self.nodes.push(Node::Loop(2 + self.random.below(2) as u32, body));
    }
}
