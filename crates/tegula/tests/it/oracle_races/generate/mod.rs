//! Random programs whose synchronization does not depend on the schedule.
//!
//! Flags are of two kinds: a *chain*, whose n-th change is made by a thread that has waited for the (n − 1)-th, and a *counter*, which
//! threads increment in any order. Whoever else waits, waits for the last change, so all releases are observed, whatever comes first.
//! What threads wait for stands earlier in the program, so no program waits for ever. A named barrier is used once, or in loops by warps
//! that all wait; a barrier in shared memory goes on to its next phase when all that arrive have waited for the last.

mod asynchronous;
mod flags;
mod meet;

pub use flags::compare_exchange;
use flags::{Done, NOTHING};
use tegula_ir::{AtomicOp, Order, Scope};

use super::build::MOST_STEPS;
use super::program::{Array, At, CELLS, Does, FLAGS, MBARRIERS, Node, Part, Program, Step, Threads, WARPGROUP};
use crate::product::Random;

const SIZES: [u32; 25] =
    [1, 2, 7, 31, 32, 32, 33, 48, 64, 64, 95, 96, 1, 2, 7, 31, 32, 32, 33, 48, 64, 64, 95, 96, WARPGROUP];
const SCOPES: [Scope; 5] = [Scope::Block, Scope::Block, Scope::Device, Scope::Device, Scope::System];

struct Maker {
    random: Random,
    blocks: u32,
    cluster: u32,
    threads: u32,
    nodes: Vec<Node>,
    /// Steps that have to come some time later.
    later: Vec<Vec<Step>>,
    /// Flags that have their last value once all steps so far are done.
    done: Vec<Done>,
    flags_left: Vec<(Array, u32)>,
    mbarriers_left: u32,
    inbox_left: u32,
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
        done: Vec::new(),
        flags_left,
        mbarriers_left: MBARRIERS,
        inbox_left: 2,
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

/// Appends steps to a program.
type Item = fn(&mut Maker);

/// What a program is made of, and how often.
const ITEMS: [(usize, Item); 21] = [
    (9, Maker::access),
    (2, Maker::barrier),
    (2, |maker| {
        let step = maker.sync_warp();
        maker.nodes.push(Node::Step(step));
    }),
    (2, Maker::named),
    (3, Maker::flag),
    (1, Maker::each_its_flag),
    (1, Maker::look),
    (3, Maker::copies),
    (2, |maker| {
        let (by, scope) = (maker.some(), maker.scope());
        maker.push(by, Does::Fence(scope));
    }),
    (1, |maker| {
        let by = maker.sync_warp().by;
        let does = maker.of(&[Does::Vote, Does::Shuffle]);
        maker.push(by, does);
    }),
    (2, Maker::repeated),
    (2, Maker::copy_tile),
    (2, Maker::store_tile),
    (2, |maker| {
        let by = maker.some();
        maker.push(by, Does::FenceProxy);
    }),
    (1, |maker| maker.cluster(true)),
    (1, Maker::remote),
    (2, Maker::tile_access),
    (2, Maker::mbarrier),
    (1, Maker::send),
    (1, Maker::matrix),
    (3, Maker::multiply),
];

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

    fn item(&mut self) {
        let mut at = self.random.below(ITEMS.iter().map(|(weight, _)| weight).sum());
        let chosen = ITEMS.iter().find(|(weight, _)| at.checked_sub(*weight).map(|rest| at = rest).is_none());
        chosen.expect("less than all weights").1(self);
    }

    /// Elements of data, as far as a guard lets them, where there may be one.
    fn cells(&mut self, array: Array, weak: bool) -> At {
        let width = if weak { self.of(&[1, 1, 1, 2, 4]) } else { 1 };
        let stride = self.of(&[0, 0, 0, 0, 1, 1, 2, 3]);
        let range = if self.random.chance(4) { CELLS } else { 3 };
        let first = self.random.below((range.div_ceil(width)) as usize) as u32;
        let part = match self.random.below(8) {
            0 if weak => Part::If(self.random.next() as u32),
            1 if weak => Part::First(self.random.below(4) as u32),
            _ => Part::All,
        };
        At { array, first, stride, width, part }
    }

    fn data(&mut self, weak: bool) -> At {
        let arrays = [Array::SharedData, Array::SharedData, Array::GlobalData, Array::GlobalData, Array::Alias];
        let array = self.of(&arrays);
        self.cells(array, weak)
    }

    fn barrier(&mut self) {
        self.push(Threads::ALL, Does::Barrier);
        // All meetings before are over, so their barriers may be used again.
        let is_named = |step: &Step| matches!(step.does, Does::Named { .. });
        if !self.later.iter().flatten().any(is_named) {
            self.named = 0;
        }
    }

    /// An access to data, by any order that nobody waits for.
    fn data_step(&mut self) -> Step {
        let array = self.data(false).array;
        self.access_to(array)
    }

    fn access_to(&mut self, array: Array) -> Step {
        let scope = self.scope();
        let by = if self.random.chance(3) { self.some() } else { self.thread() };
        let at = self.cells(array, false);
        let does = match self.random.below(10) {
            0..4 => Does::Read { at: self.cells(array, true), order: Order::Weak, scope },
            4..7 => Does::Write { at: self.cells(array, true), value: 1, order: Order::Weak, scope },
            7 => Does::Read { at, order: self.of(&[Order::Relaxed, Order::Relaxed, Order::Acquire]), scope },
            8 => Does::Write { at, value: 1, order: self.of(&[Order::Relaxed, Order::Release]), scope },
            _ => {
                let order = self.of(&[Order::Relaxed, Order::Release]);
                let op = self.of(&[
                    AtomicOp::Add,
                    AtomicOp::Min,
                    AtomicOp::Max,
                    AtomicOp::And,
                    AtomicOp::Or,
                    AtomicOp::Xor,
                    AtomicOp::Exchange,
                    compare_exchange(NOTHING),
                ]);
                Does::Atomic { at, op, value: 1, order, scope }
            }
        };
        Step { by, does }
    }

    fn access(&mut self) {
        let step = self.data_step();
        self.nodes.push(Node::Step(step));
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
