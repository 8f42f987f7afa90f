//! Random programs whose synchronization does not depend on the schedule.
//!
//! Flags are of two kinds: a *chain*, whose n-th change is made by a thread that has waited for the (n − 1)-th, and a *counter*, which
//! threads increment in any order. Whoever else waits, waits for the last change, so all releases are observed, whatever comes first.
//! What threads wait for stands earlier in the program, so no program waits for ever. A named barrier is used once, or in loops by warps
//! that all wait; a barrier in shared memory goes on to its next phase when all that arrive have waited for the last.

use tegula_ir::{AtomicOp, Order, Scope};

use super::build::MOST_STEPS;
use super::program::{Array, At, CELLS, Does, FLAGS, MBARRIERS, Node, Program, Step, Threads};
use crate::product::Random;

const SIZES: [u32; 12] = [1, 2, 7, 31, 32, 32, 33, 48, 64, 64, 95, 96];
const SCOPES: [Scope; 5] = [Scope::Block, Scope::Block, Scope::Device, Scope::Device, Scope::System];

struct Maker {
    random: Random,
    blocks: u32,
    cluster: u32,
    threads: u32,
    nodes: Vec<Node>,
    /// Steps that have to come some time later.
    later: Vec<Vec<Step>>,
    flags: Vec<Array>,
    flags_left: Vec<(Array, u32)>,
    mbarriers_left: u32,
    named: u32,
}

/// The program of a seed.
pub fn program(seed: u64) -> Program {
    let mut random = Random(seed);
    let blocks = [1, 1, 1, 2, 2, 3][random.below(6)];
    let cluster = if blocks == 2 && random.chance(2) { 2 } else { 1 };
    let threads = SIZES[random.below(SIZES.len())];
    let mut flags_left: Vec<_> =
        [Array::SharedFlags, Array::GlobalFlags].into_iter().flat_map(|a| (0..FLAGS).map(move |i| (a, i))).collect();
    if blocks > 1 {
        flags_left.rotate_left(FLAGS as usize);
    }
    let mut maker = Maker {
        random,
        blocks,
        cluster,
        threads,
        nodes: Vec::new(),
        later: Vec::new(),
        flags: Vec::new(),
        flags_left,
        mbarriers_left: MBARRIERS,
        named: 0,
    };
    let first = Threads { blocks: u32::MAX, warps: 1, lanes: 1 };
    maker.push(first, Does::Init);
    maker.push(Threads::ALL, Does::Barrier);
    if cluster > 1 {
        maker.cluster(false);
    }
    for _ in 0..3 + maker.random.below(12) {
        maker.item();
        if maker.random.chance(3) {
            maker.come_later();
        }
    }
    while !maker.later.is_empty() {
        maker.come_later();
        if maker.random.chance(2) {
            maker.access();
        }
    }
    let mut program = Program { blocks, cluster, threads, nodes: maker.nodes };
    while program.steps().count() > MOST_STEPS - 2 {
        program.nodes.pop();
    }
    if cluster > 1 {
        // A block's shared memory is there for the other until both end.
        let meet = [Does::ClusterArrive, Does::ClusterWait];
        let waits = program.steps().filter(|step| meet.contains(&step.does)).count() % 2;
        program.nodes.extend(meet[waits..].iter().map(|&does| Node::Step(Step { by: Threads::ALL, does })));
    }
    program
}

impl Maker {
    fn push(&mut self, by: Threads, does: Does) {
        self.nodes.push(Node::Step(Step { by, does }));
    }

    fn of<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.random.below(choices.len())]
    }

    fn scope(&mut self) -> Scope {
        self.of(&SCOPES)
    }

    fn warps(&self) -> u32 {
        self.threads.div_ceil(32)
    }

    /// One thread of one block.
    fn thread(&mut self) -> Threads {
        let thread = match self.random.chance(3) {
            true => self.random.below(self.threads as usize) as u32,
            // Few, so that they meet again.
            false => self.random.below(2) as u32 * 32 + self.random.below(2) as u32,
        };
        let thread = thread % self.threads;
        Threads {
            blocks: 1 << self.random.below(self.blocks as usize),
            warps: 1 << (thread / 32),
            lanes: 1 << (thread % 32),
        }
    }

    fn some(&mut self) -> Threads {
        let one = self.thread();
        match self.random.below(8) {
            0 => Threads::ALL,
            1 => Threads { lanes: u32::MAX, ..one },
            2 => Threads { warps: u32::MAX, ..one },
            3 => Threads { blocks: u32::MAX, ..one },
            4 => Threads { lanes: one.lanes | 1 << self.random.below(4), ..one },
            _ => one,
        }
    }

    fn cells(&mut self, array: Array, vectors: bool) -> At {
        let width = if vectors { self.of(&[1, 1, 1, 2, 4]) } else { 1 };
        let stride = self.of(&[0, 0, 0, 0, 1, 1, 2, 3]);
        let range = if self.random.chance(4) { CELLS } else { 3 };
        At { array, first: self.random.below((range.div_ceil(width)) as usize) as u32, stride, width }
    }

    fn data(&mut self, vectors: bool) -> At {
        let array = self.of(&[Array::SharedData, Array::GlobalData]);
        self.cells(array, vectors)
    }

    fn item(&mut self) {
        match self.random.below(36) {
            0..9 => self.access(),
            9 | 10 => {
                self.push(Threads::ALL, Does::Barrier);
                // All meetings before are over, so their barriers may be used again.
                let is_named = |step: &Step| matches!(step.does, Does::Named { .. });
                if !self.later.iter().flatten().any(is_named) {
                    self.named = 0;
                }
            }
            11 | 12 => {
                let step = self.sync_warp();
                self.nodes.push(Node::Step(step));
            }
            13..15 => self.named(),
            15..18 => self.flag(),
            18..21 => self.copies(),
            21 | 22 => {
                let (by, scope) = (self.some(), self.scope());
                self.push(by, Does::Fence(scope));
            }
            23 => {
                let by = self.sync_warp().by;
                let does = self.of(&[Does::Vote, Does::Shuffle]);
                self.push(by, does);
            }
            24 | 25 => self.repeated(),
            26 | 27 => self.copy_tile(),
            28 | 29 => self.store_tile(),
            30..32 => {
                let by = self.some();
                self.push(by, Does::FenceProxy);
            }
            32 | 33 if self.cluster > 1 => {
                if self.random.chance(2) {
                    self.cluster(true)
                } else {
                    self.remote()
                }
            }
            32..34 => self.tile_access(),
            _ => self.mbarrier(),
        }
    }

    fn access(&mut self) {
        let step = self.data_step();
        self.nodes.push(Node::Step(step));
    }

    /// An access to data, by any order that nobody waits for; rarely a look at a flag.
    fn data_step(&mut self) -> Step {
        let scope = self.scope();
        let by = if self.random.chance(3) { self.some() } else { self.thread() };
        if self.random.chance(12) && !self.flags.is_empty() {
            let array = self.flags[self.random.below(self.flags.len())];
            let at = At::cell(array, self.random.below(FLAGS as usize) as u32);
            let (order, scope) = (self.of(&[Order::Weak, Order::Relaxed]), self.scope());
            return Step { by, does: Does::Read { at, order, scope } };
        }
        let does = match self.random.below(10) {
            0..4 => Does::Read { at: self.data(true), order: Order::Weak, scope },
            4..7 => Does::Write { at: self.data(true), value: 1, order: Order::Weak, scope },
            7 => Does::Read { at: self.data(false), order: Order::Relaxed, scope },
            8 => {
                let order = self.of(&[Order::Relaxed, Order::Release]);
                Does::Write { at: self.data(false), value: 1, order, scope }
            }
            _ => {
                let order = self.of(&[Order::Relaxed, Order::Release]);
                let op = self.of(&[AtomicOp::Add, AtomicOp::Max, AtomicOp::Exchange]);
                Does::Atomic { at: self.data(false), op, value: 1, order, scope }
            }
        };
        Step { by, does }
    }

    fn tile_access(&mut self) {
        let at = At { array: Array::Tiles, ..self.cells(Array::SharedData, false) };
        let array = if self.random.chance(3) { Array::Stored } else { at.array };
        let (by, at, order, scope) = (self.some(), At { array, ..at }, Order::Weak, Scope::Block);
        let write = self.random.chance(2);
        self.push(by, if write { Does::Write { at, value: 1, order, scope } } else { Does::Read { at, order, scope } });
        if write && self.random.chance(2) {
            self.push(by, Does::FenceProxy);
        }
    }

    /// A tile on its way, and threads that wait for it.
    fn copy_tile(&mut self) {
        if self.mbarriers_left == 0 {
            return;
        }
        self.mbarriers_left -= 1;
        let (mbarrier, tile) = (self.mbarriers_left, self.random.below(2) as u32);
        let one = self.thread();
        self.push(one, Does::Expect { mbarrier });
        // To one block: a copy to several is one operation to the oracle, and one of each block to the interpreter, as the
        // hardware's barriers have it.
        self.push(one, Does::CopyTile { tile, mbarrier, multicast: false });
        if self.random.chance(3) {
            self.tile_access();
        }
        let by = Threads { blocks: one.blocks, ..self.some() };
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

    fn store_tile(&mut self) {
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

    /// The blocks of the cluster meet.
    fn cluster(&mut self, apart: bool) {
        self.push(Threads::ALL, Does::ClusterArrive);
        if apart {
            self.access();
        }
        self.push(Threads::ALL, Does::ClusterWait);
    }

    /// Threads of both blocks arrive at a barrier of the first.
    fn remote(&mut self) {
        if self.mbarriers_left == 0 {
            return;
        }
        self.mbarriers_left -= 1;
        let (mbarrier, by) = (self.mbarriers_left, self.some());
        self.push(by, Does::Arrive { mbarrier, rank: Some(0) });
        let by = Threads { blocks: 1, ..self.some() };
        self.later.push(vec![Step { by, does: Does::Await { mbarrier, parity: 0 } }]);
    }

    fn sync_warp(&mut self) -> Step {
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

    fn named(&mut self) {
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

    /// A flag that some set, and others wait for.
    fn flag(&mut self) {
        if self.flags_left.is_empty() {
            return;
        }
        let (array, index) = self.flags_left.remove(0);
        self.flags.push(array);
        let at = At::cell(array, index);
        let counter = self.random.chance(2);
        let changes = 1 + self.random.below(3) as u32;
        // Shared memory is of one block.
        let block = 1 << self.random.below(self.blocks as usize);
        let same = array.is_shared();
        let place = |by: Threads, same| if same { Threads { blocks: block, ..by } } else { by };
        // What the flag is for, often.
        let (message, cell) = (!self.random.chance(3), self.data(false));
        for change in 0..changes {
            let (one, scope) = (self.thread(), self.scope());
            let by = place(one, same);
            if message && change == 0 {
                self.push(by, Does::Write { at: cell, value: 1, order: Order::Weak, scope });
            }
            if self.random.chance(3) {
                let scope = self.scope();
                self.push(by, Does::Fence(scope));
            }
            if counter {
                let order = self.of(&[Order::Relaxed, Order::Release, Order::Release]);
                self.push(by, Does::Atomic { at, op: AtomicOp::Add, value: 1, order, scope });
            } else {
                if change > 0 {
                    let scope = self.scope();
                    self.push(by, Does::Wait { at, value: change, scope });
                }
                if self.random.chance(2) {
                    let order = self.of(&[Order::Relaxed, Order::Release, Order::Acquire, Order::AcqRel]);
                    self.push(by, Does::Atomic { at, op: AtomicOp::Add, value: 1, order, scope });
                } else {
                    let order = self.of(&[Order::Relaxed, Order::Release, Order::Release]);
                    self.push(by, Does::Write { at, value: change + 1, order, scope });
                }
            }
            if self.random.chance(3) {
                self.access();
            }
        }
        let (some, scope) = (self.some(), self.scope());
        let by = place(some, array.is_shared());
        let mut steps = vec![Step { by, does: Does::Wait { at, value: changes, scope } }];
        if message {
            let by = if self.random.chance(4) { self.some() } else { by };
            steps.push(Step { by, does: Does::Read { at: cell, order: Order::Weak, scope } });
        }
        self.later.push(steps);
    }

    fn copies(&mut self) {
        let by = self.some();
        let (to, from) = (self.cells(Array::SharedData, true), self.cells(Array::GlobalData, true));
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

    fn repeated(&mut self) {
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

    fn mbarrier(&mut self) {
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

    fn come_later(&mut self) {
        if self.later.is_empty() {
            return;
        }
        let at = self.random.below(self.later.len());
        let steps = self.later.remove(at);
        self.nodes.extend(steps.into_iter().map(Node::Step));
    }
}
