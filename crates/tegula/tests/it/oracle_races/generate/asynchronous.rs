//! Generates asynchronous copies, tiles, and the mbarriers that count their bytes.

use tegula_ir::{MemoryOrder, Scope};

use super::Generator;
use crate::oracle_races::program::{Array, CELLS, ElementRange, Node, Op, Step, TILE, Threads, WARPGROUP};

impl Generator {
    pub(super) fn tile_access(&mut self) {
        let array = if self.random.chance(3) { Array::Stored } else { Array::Tiles };
        let step = self.access_to(array);
        self.nodes.push(Node::Step(step));
        let (threads, write) = (step.threads, !matches!(step.op, Op::Read { .. }));
        if write && self.random.chance(2) {
            self.push(threads, Op::FenceProxy);
        }
    }

    /// A TMA load of a tile, and threads that wait for it.
    pub(super) fn tma_load(&mut self) {
        if self.mbarriers_left == 0 {
            return;
        }
        self.mbarriers_left -= 1;
        let (mbarrier, tile) = (self.mbarriers_left, self.random.below(2) as u32);
        let thread = self.random_thread();
        let multicast = self.cluster > 1 && self.random.chance(2);
        let expects = if multicast { Threads { blocks: u32::MAX, ..thread } } else { thread };
        self.push(expects, Op::ArriveExpectTx { mbarrier });
        self.push(thread, Op::TmaLoad { tile, mbarrier, multicast });
        if self.random.chance(3) {
            self.tile_access();
        }
        let threads = Threads { blocks: expects.blocks, ..self.random_threads() };
        let at = ElementRange::cell(Array::Tiles, 4 * tile + self.random.below(4) as u32);
        let (order, scope) = (MemoryOrder::Weak, Scope::Block);
        let op = if self.random.chance(3) {
            Op::Write { at, value: 1, order, scope }
        } else {
            Op::Read { at, order, scope }
        };
        let user = if self.random.chance(4) { self.random_threads() } else { threads };
        self.deferred
            .push(vec![Step { threads, op: Op::WaitMbarrier { mbarrier, parity: 0 } }, Step { threads: user, op }]);
    }

    /// An asynchronous store to a block of the cluster, and threads there that wait for it.
    pub(super) fn store_async(&mut self) {
        if self.mbarriers_left == 0 || self.dsmem_halves_left == 0 || self.cluster == 1 {
            return;
        }
        self.mbarriers_left -= 1;
        // Each half of the array has its own mbarrier; nothing of it is used before all its bytes
        // arrived.
        self.dsmem_halves_left -= 1;
        let (mbarrier, half, rank) = (self.mbarriers_left, self.dsmem_halves_left, self.random.below(2) as u32);
        let blocks = 1 << rank;
        let expects = Threads { blocks, ..self.random_thread() };
        self.push(expects, Op::ArriveExpectTx { mbarrier });
        let width = if self.threads < 4 { 4 } else { self.choose(&[1, 2, 4]) };
        let lanes = TILE / width;
        let to = ElementRange { first: half * lanes, stride: 1, width, ..ElementRange::cell(Array::Dsmem, 0) };
        let threads = Threads { warps: 1, lanes: (1 << lanes) - 1, ..self.random_thread() };
        self.push(threads, Op::StoreAsync { to, mbarrier, rank });
        let wait =
            Step { threads: Threads { blocks, ..self.random_threads() }, op: Op::WaitMbarrier { mbarrier, parity: 0 } };
        let user = Step { threads: Threads { blocks, ..self.random_threads() }, ..self.access_to(Array::Dsmem) };
        if self.random.chance(4) {
            self.nodes.push(Node::Step(user));
        }
        let threads = if self.random.chance(3) { user.threads } else { wait.threads };
        self.deferred.push(vec![wait, Step { threads, ..user }]);
    }

    /// A matrix load or store by whole warps, and accesses to its rows.
    pub(super) fn matrix_access(&mut self) {
        if !self.threads.is_multiple_of(32) {
            return;
        }
        let threads = Threads { lanes: u32::MAX, ..self.random_threads() };
        let (count, store) = (self.choose(&[1, 1, 2, 4]), self.random.chance(2));
        let first = self.random.below(3) as u32;
        let at = ElementRange { first, stride: 1, width: TILE, ..ElementRange::cell(Array::Rows, 0) };
        self.push(threads, Op::Matrix { at, count, store });
        let step = self.access_to(Array::Rows);
        if self.random.chance(2) {
            self.nodes.push(Node::Step(step));
        } else {
            self.deferred.push(vec![step]);
        }
    }

    /// A `wgmma`, and accesses to rows of its operands.
    pub(super) fn wgmma(&mut self) {
        if self.threads != WARPGROUP {
            return;
        }
        let row = |generator: &mut Self| ElementRange::cell(Array::Operands, generator.random.below(20) as u32);
        let (order, scope) = (MemoryOrder::Weak, Scope::Block);
        if self.random.chance(2) {
            let (threads, at) = (self.random_thread(), row(self));
            self.push(threads, Op::Write { at, value: 1, order, scope });
            for op in [Op::FenceProxy, Op::Barrier] {
                if !self.random.chance(4) {
                    let threads = if op == Op::Barrier { Threads::ALL } else { threads };
                    self.push(threads, op);
                }
            }
        }
        let threads = Threads { warps: u32::MAX, lanes: u32::MAX, ..self.random_threads() };
        let shared = self.random.chance(2);
        self.push(threads, Op::Wgmma { shared });
        if !self.random.chance(5) {
            self.push(threads, Op::CommitWgmma);
        }
        let wait = Step { threads, op: Op::WaitWgmma(self.choose(&[0, 0, 1])) };
        let (user, at) = (self.random_threads(), row(self));
        let write = self.random.chance(2);
        let op = if write { Op::Write { at, value: 1, order, scope } } else { Op::Read { at, order, scope } };
        self.deferred.push(vec![wait, Step { threads: user, op }]);
    }

    pub(super) fn tma_store(&mut self) {
        let threads = self.random_thread();
        let (tile, row) = (self.random.below(2) as u32, self.random.below(2) as u32);
        self.push(threads, Op::TmaStore { tile, row });
        if !self.random.chance(5) {
            self.push(threads, Op::CommitStores);
        }
        if !self.random.chance(4) {
            let (pending, read) = (self.choose(&[0, 0, 1]), self.random.chance(2));
            self.deferred.push(vec![Step { threads, op: Op::WaitStores { pending, read } }]);
        }
    }

    pub(super) fn copy_async(&mut self) {
        let threads = self.random_threads();
        let source = self.choose(&[Array::GlobalData, Array::GlobalData, Array::Alias]);
        let (to, from) = (self.elements(Array::SharedData, true).unguarded(), self.elements(source, true));
        self.push(
            threads,
            Op::CopyAsync {
                to,
                from: ElementRange { first: from.first % (CELLS / to.width), width: to.width, ..from },
            },
        );
        if !self.random.chance(5) {
            self.push(threads, Op::CommitCopies);
        }
        if !self.random.chance(4) {
            let threads = if self.random.chance(4) { self.random_threads() } else { threads };
            let pending = [0, 0, 1][self.random.below(3)];
            self.deferred.push(vec![Step { threads, op: Op::WaitCopies(pending) }]);
        }
    }

    pub(super) fn mbarrier(&mut self) {
        if self.mbarriers_left == 0 {
            return;
        }
        self.mbarriers_left -= 1;
        let mbarrier = self.mbarriers_left;
        let arrives = Threads { blocks: u32::MAX, ..self.random_threads() };
        let rounds = 1 + self.random.below(3) as u32;
        let waits = if rounds == 1 { self.random_threads() } else { arrives };
        for round in 0..rounds {
            self.push(arrives, Op::Arrive { mbarrier, rank: None });
            if self.random.chance(2) {
                self.access();
            }
            let wait = Step { threads: waits, op: Op::WaitMbarrier { mbarrier, parity: round % 2 } };
            if round + 1 == rounds {
                self.deferred.push(vec![wait]);
            } else {
                self.nodes.push(Node::Step(wait));
                if self.random.chance(2) {
                    self.access();
                }
            }
        }
    }

    /// Threads of both blocks arrive at an mbarrier of the first block.
    pub(super) fn remote_arrival(&mut self) {
        if self.mbarriers_left == 0 || self.cluster == 1 {
            return;
        }
        self.mbarriers_left -= 1;
        let (mbarrier, threads) = (self.mbarriers_left, self.random_threads());
        self.push(threads, Op::Arrive { mbarrier, rank: Some(0) });
        let threads = Threads { blocks: 1, ..self.random_threads() };
        self.deferred.push(vec![Step { threads, op: Op::WaitMbarrier { mbarrier, parity: 0 } }]);
    }
}
