//! Asynchronous copies, tiles, and the barriers that count their bytes.

use tegula_ir::{Order, Scope};

use super::Maker;
use crate::oracle_races::program::{Array, At, CELLS, Does, Node, Step, TILE, Threads, WARPGROUP};

impl Maker {
    pub(super) fn tile_access(&mut self) {
        let array = if self.random.chance(3) { Array::Stored } else { Array::Tiles };
        let step = self.access_to(array);
        self.nodes.push(Node::Step(step));
        let (by, write) = (step.by, !matches!(step.does, Does::Read { .. }));
        if write && self.random.chance(2) {
            self.push(by, Does::FenceProxy);
        }
    }

    /// A tile on its way, and threads that wait for it.
    pub(super) fn copy_tile(&mut self) {
        if self.mbarriers_left == 0 {
            return;
        }
        self.mbarriers_left -= 1;
        let (mbarrier, tile) = (self.mbarriers_left, self.random.below(2) as u32);
        let one = self.thread();
        let multicast = self.cluster > 1 && self.random.chance(2);
        let expects = if multicast { Threads { blocks: u32::MAX, ..one } } else { one };
        self.push(expects, Does::Expect { mbarrier });
        self.push(one, Does::CopyTile { tile, mbarrier, multicast });
        if self.random.chance(3) {
            self.tile_access();
        }
        let by = Threads { blocks: expects.blocks, ..self.some() };
        let at = At::cell(Array::Tiles, 4 * tile + self.random.below(4) as u32);
        let (order, scope) = (Order::Weak, Scope::Block);
        let does = if self.random.chance(3) {
            Does::Write { at, value: 1, order, scope }
        } else {
            Does::Read { at, order, scope }
        };
        let user = if self.random.chance(4) { self.some() } else { by };
        self.later.push(vec![Step { by, does: Does::Await { mbarrier, parity: 0 } }, Step { by: user, does }]);
    }

    /// Words for a block of the cluster, and threads there that wait for them.
    pub(super) fn send(&mut self) {
        if self.mbarriers_left == 0 || self.inbox_left == 0 || self.cluster == 1 {
            return;
        }
        self.mbarriers_left -= 1;
        // Of each first index of the array nothing is used before all of it has come.
        self.inbox_left -= 1;
        let (mbarrier, part, rank) = (self.mbarriers_left, self.inbox_left, self.random.below(2) as u32);
        let blocks = 1 << rank;
        let expects = Threads { blocks, ..self.thread() };
        self.push(expects, Does::Expect { mbarrier });
        let width = if self.threads < 4 { 4 } else { self.of(&[1, 2, 4]) };
        let lanes = TILE / width;
        let to = At { first: part * lanes, stride: 1, width, ..At::cell(Array::Inbox, 0) };
        let by = Threads { warps: 1, lanes: (1 << lanes) - 1, ..self.thread() };
        self.push(by, Does::Send { to, mbarrier, rank });
        let wait = Step { by: Threads { blocks, ..self.some() }, does: Does::Await { mbarrier, parity: 0 } };
        let user = Step { by: Threads { blocks, ..self.some() }, ..self.access_to(Array::Inbox) };
        if self.random.chance(4) {
            self.nodes.push(Node::Step(user));
        }
        let by = if self.random.chance(3) { user.by } else { wait.by };
        self.later.push(vec![wait, Step { by, ..user }]);
    }

    /// Matrices that whole warps load or store, and accesses to their rows.
    pub(super) fn matrix(&mut self) {
        if !self.threads.is_multiple_of(32) {
            return;
        }
        let by = Threads { lanes: u32::MAX, ..self.some() };
        let (count, store) = (self.of(&[1, 1, 2, 4]), self.random.chance(2));
        let first = self.random.below(3) as u32;
        let at = At { first, stride: 1, width: TILE, ..At::cell(Array::Rows, 0) };
        self.push(by, Does::Matrix { at, count, store });
        let step = self.access_to(Array::Rows);
        if self.random.chance(2) {
            self.nodes.push(Node::Step(step));
        } else {
            self.later.push(vec![step]);
        }
    }

    /// Warpgroups that multiply, and accesses to rows of what they read.
    pub(super) fn multiply(&mut self) {
        if self.threads != WARPGROUP {
            return;
        }
        let row = |maker: &mut Self| At::cell(Array::Factors, maker.random.below(20) as u32);
        let (order, scope) = (Order::Weak, Scope::Block);
        if self.random.chance(2) {
            let (by, at) = (self.thread(), row(self));
            self.push(by, Does::Write { at, value: 1, order, scope });
            for does in [Does::FenceProxy, Does::Barrier] {
                if !self.random.chance(4) {
                    let by = if does == Does::Barrier { Threads::ALL } else { by };
                    self.push(by, does);
                }
            }
        }
        let by = Threads { warps: u32::MAX, lanes: u32::MAX, ..self.some() };
        let shared = self.random.chance(2);
        self.push(by, Does::Multiply { shared });
        if !self.random.chance(5) {
            self.push(by, Does::CommitProducts);
        }
        let wait = Step { by, does: Does::AwaitProducts(self.of(&[0, 0, 1])) };
        let (user, at) = (self.some(), row(self));
        let write = self.random.chance(2);
        let does = if write { Does::Write { at, value: 1, order, scope } } else { Does::Read { at, order, scope } };
        self.later.push(vec![wait, Step { by: user, does }]);
    }

    pub(super) fn store_tile(&mut self) {
        let by = self.thread();
        let (tile, row) = (self.random.below(2) as u32, self.random.below(2) as u32);
        self.push(by, Does::StoreTile { tile, row });
        if !self.random.chance(5) {
            self.push(by, Does::CommitStores);
        }
        if !self.random.chance(4) {
            let (pending, read) = (self.of(&[0, 0, 1]), self.random.chance(2));
            self.later.push(vec![Step { by, does: Does::AwaitStores { pending, read } }]);
        }
    }

    pub(super) fn copies(&mut self) {
        let by = self.some();
        let source = self.of(&[Array::GlobalData, Array::GlobalData, Array::Alias]);
        let (to, from) = (self.cells(Array::SharedData, true).unguarded(), self.cells(source, true));
        self.push(by, Does::Copy { to, from: At { first: from.first % (CELLS / to.width), width: to.width, ..from } });
        if !self.random.chance(5) {
            self.push(by, Does::Commit);
        }
        if !self.random.chance(4) {
            let by = if self.random.chance(4) { self.some() } else { by };
            let pending = [0, 0, 1][self.random.below(3)];
            self.later.push(vec![Step { by, does: Does::AwaitCopies(pending) }]);
        }
    }

    pub(super) fn mbarrier(&mut self) {
        if self.mbarriers_left == 0 {
            return;
        }
        self.mbarriers_left -= 1;
        let mbarrier = self.mbarriers_left;
        let arrives = Threads { blocks: u32::MAX, ..self.some() };
        let rounds = 1 + self.random.below(3) as u32;
        let waits = if rounds == 1 { self.some() } else { arrives };
        for round in 0..rounds {
            self.push(arrives, Does::Arrive { mbarrier, rank: None });
            if self.random.chance(2) {
                self.access();
            }
            let wait = Step { by: waits, does: Does::Await { mbarrier, parity: round % 2 } };
            if round + 1 == rounds {
                self.later.push(vec![wait]);
            } else {
                self.nodes.push(Node::Step(wait));
                if self.random.chance(2) {
                    self.access();
                }
            }
        }
    }

    /// Threads of both blocks arrive at a barrier of the first.
    pub(super) fn remote(&mut self) {
        if self.mbarriers_left == 0 || self.cluster == 1 {
            return;
        }
        self.mbarriers_left -= 1;
        let (mbarrier, by) = (self.mbarriers_left, self.some());
        self.push(by, Does::Arrive { mbarrier, rank: Some(0) });
        let by = Threads { blocks: 1, ..self.some() };
        self.later.push(vec![Step { by, does: Does::Await { mbarrier, parity: 0 } }]);
    }
}
