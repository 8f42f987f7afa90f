//! Generates barriers, and loops around them.

use super::Generator;
use crate::oracle_races::program::{Node, Op, Step, Threads};

impl Generator {
    /// A barrier of the cluster, optionally with an access between arrival and wait.
    pub(super) fn cluster_barrier(&mut self, access_between: bool) {
        if self.cluster == 1 {
            return;
        }
        self.push(Threads::ALL, Op::ClusterArrive);
        if access_between {
            self.access();
        }
        self.push(Threads::ALL, Op::ClusterWait);
    }

    pub(super) fn sync_warp(&mut self) -> Step {
        let thread = self.random_thread();
        let lanes = match self.random.below(3) {
            0 => u32::MAX,
            1 => 1 | 2 | thread.lanes,
            // Lane 0 exists in every warp.
            _ => 1 | self.random.next() as u32,
        };
        let warps = if self.random.chance(2) { u32::MAX } else { thread.warps };
        let blocks = if self.random.chance(2) { u32::MAX } else { thread.blocks };
        Step { threads: Threads { blocks, warps, lanes }, op: Op::SyncWarp }
    }

    pub(super) fn named_barrier(&mut self) {
        if self.named_barriers == 15 {
            return;
        }
        self.named_barriers += 1;
        let all = (1 << self.warps()) - 1;
        let thread = self.random_thread();
        let blocks = if self.random.chance(2) { u32::MAX } else { thread.blocks };
        let waits = thread.warps | self.random.next() as u32 & all;
        let arrives = self.random.next() as u32 & all & !waits;
        let step = |warps, wait| Step {
            threads: Threads { blocks, warps, lanes: u32::MAX },
            op: Op::NamedBarrier { id: self.named_barriers, warps: waits | arrives, waits: wait },
        };
        let (arrive, wait) = (step(arrives, false), step(waits, true));
        if arrives != 0 {
            self.nodes.push(Node::Step(arrive));
            self.deferred.push(vec![wait]);
        } else {
            self.nodes.push(Node::Step(wait));
        }
    }

    pub(super) fn loop_node(&mut self) {
        let mut body = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            let step = match self.random.below(8) {
                0..4 => self.data_access(),
                4 => Step { threads: Threads::ALL, op: Op::Barrier },
                5 => self.sync_warp(),
                6 if self.named_barriers < 15 => {
                    self.named_barriers += 1;
                    let warps = self.random_thread().warps | self.random.next() as u32 & ((1 << self.warps()) - 1);
                    let threads = Threads { blocks: u32::MAX, warps, lanes: u32::MAX };
                    Step { threads, op: Op::NamedBarrier { id: self.named_barriers, warps, waits: true } }
                }
                _ => Step { threads: self.random_threads(), op: Op::Fence(self.scope()) },
            };
            body.push(step);
        }
        self.nodes.push(Node::Loop(2 + self.random.below(2) as u32, body));
    }
}
