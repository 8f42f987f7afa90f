//! Generates random programs whose synchronization does not depend on the schedule.
//!
//! Two kinds of flags exist. Each change of a *chain* is by a thread that waited for the previous
//! change. A *counter* is incremented by threads in any order. All other waits are for the last
//! change, so all releases are observed on every schedule. Every wait is for an earlier step of the
//! program, so every program terminates. A named barrier is used once, or in loops by warps that
//! all wait. An mbarrier advances to its next phase after all arriving threads waited for the last
//! phase.

mod asynchronous;
mod barriers;
mod flags;

pub use flags::compare_exchange;
use flags::{SettledFlag, UNUSED_VALUE};
use tegula_ir::{AtomicOp, MemoryOrder, Scope};

use super::build::MAX_STEPS;
use super::program::{
    AccessGuard, Array, CELLS, ElementRange, FLAGS, MBARRIERS, Node, Op, Program, Step, Threads, WARPGROUP,
};
use crate::product::Random;

const BLOCK_SIZES: [u32; 25] =
    [1, 2, 7, 31, 32, 32, 33, 48, 64, 64, 95, 96, 1, 2, 7, 31, 32, 32, 33, 48, 64, 64, 95, 96, WARPGROUP];
const SCOPES: [Scope; 5] = [Scope::Block, Scope::Block, Scope::Device, Scope::Device, Scope::System];

struct Generator {
    random: Random,
    blocks: u32,
    cluster: u32,
    threads: u32,
    nodes: Vec<Node>,
    /// Steps to emit later, in groups.
    deferred: Vec<Vec<Step>>,
    /// Flags that have their final value after the steps so far.
    settled: Vec<SettledFlag>,
    flags_left: Vec<(Array, u32)>,
    mbarriers_left: u32,
    dsmem_halves_left: u32,
    named_barriers: u32,
}

/// Generates the program of a seed.
pub fn program(seed: u64) -> Program {
    let mut random = Random(seed);
    let blocks = [1, 1, 1, 2, 2, 3][random.below(6)];
    let cluster = if blocks == 2 && random.chance(2) { 2 } else { 1 };
    let threads = BLOCK_SIZES[random.below(BLOCK_SIZES.len())];
    let mut flags_left: Vec<_> =
        [Array::SharedFlags, Array::GlobalFlags].into_iter().flat_map(|a| (0..FLAGS).map(move |i| (a, i))).collect();
    if blocks > 1 {
        flags_left.rotate_left(FLAGS as usize);
    }
    let mut generator = Generator {
        random,
        blocks,
        cluster,
        threads,
        nodes: Vec::new(),
        deferred: Vec::new(),
        settled: Vec::new(),
        flags_left,
        mbarriers_left: MBARRIERS,
        dsmem_halves_left: 2,
        named_barriers: 0,
    };
    let first = Threads { blocks: u32::MAX, warps: 1, lanes: 1 };
    generator.push(first, Op::Init);
    generator.push(Threads::ALL, Op::Barrier);
    if cluster > 1 {
        generator.cluster_barrier(false);
    }
    for _ in 0..3 + generator.random.below(12) {
        generator.random_item();
        if generator.random.chance(3) {
            generator.emit_deferred();
        }
    }
    while !generator.deferred.is_empty() {
        generator.emit_deferred();
        if generator.random.chance(2) {
            generator.access();
        }
    }
    let mut program = Program { blocks, cluster, threads, nodes: generator.nodes };
    while program.steps().count() > MAX_STEPS - 2 {
        program.nodes.pop();
    }
    if cluster > 1 {
        // A block's shared memory stays valid for the other block until both end.
        let cluster_sync = [Op::ClusterArrive, Op::ClusterWait];
        let waits = program.steps().filter(|step| cluster_sync.contains(&step.op)).count() % 2;
        program.nodes.extend(cluster_sync[waits..].iter().map(|&op| Node::Step(Step { threads: Threads::ALL, op })));
    }
    program
}

/// Appends steps to a program.
type Item = fn(&mut Generator);

/// The items of programs, with their weights.
const ITEMS: [(usize, Item); 21] = [
    (9, Generator::access),
    (2, Generator::barrier),
    (2, |generator| {
        let step = generator.sync_warp();
        generator.nodes.push(Node::Step(step));
    }),
    (2, Generator::named_barrier),
    (3, Generator::flag),
    (1, Generator::flag_per_lane),
    (1, Generator::flag_read),
    (3, Generator::copy_async),
    (2, |generator| {
        let (threads, scope) = (generator.random_threads(), generator.scope());
        generator.push(threads, Op::Fence(scope));
    }),
    (1, |generator| {
        let threads = generator.sync_warp().threads;
        let op = generator.choose(&[Op::Vote, Op::Shuffle]);
        generator.push(threads, op);
    }),
    (2, Generator::loop_node),
    (2, Generator::tma_load),
    (2, Generator::tma_store),
    (2, |generator| {
        let threads = generator.random_threads();
        generator.push(threads, Op::FenceProxy);
    }),
    (1, |generator| generator.cluster_barrier(true)),
    (1, Generator::remote_arrival),
    (2, Generator::tile_access),
    (2, Generator::mbarrier),
    (1, Generator::store_async),
    (1, Generator::matrix_access),
    (3, Generator::wgmma),
];

impl Generator {
    fn push(&mut self, threads: Threads, op: Op) {
        self.nodes.push(Node::Step(Step { threads, op }));
    }

    fn choose<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.random.below(choices.len())]
    }

    fn scope(&mut self) -> Scope {
        self.choose(&SCOPES)
    }

    fn warps(&self) -> u32 {
        self.threads.div_ceil(32)
    }

    /// Returns one thread of one block.
    fn random_thread(&mut self) -> Threads {
        let thread = match self.random.chance(3) {
            true => self.random.below(self.threads as usize) as u32,
            // A small set, so that several steps have the same thread.
            false => self.random.below(2) as u32 * 32 + self.random.below(2) as u32,
        };
        let thread = thread % self.threads;
        Threads {
            blocks: 1 << self.random.below(self.blocks as usize),
            warps: 1 << (thread / 32),
            lanes: 1 << (thread % 32),
        }
    }

    fn random_threads(&mut self) -> Threads {
        let thread = self.random_thread();
        match self.random.below(8) {
            0 => Threads::ALL,
            1 => Threads { lanes: u32::MAX, ..thread },
            2 => Threads { warps: u32::MAX, ..thread },
            3 => Threads { blocks: u32::MAX, ..thread },
            4 => Threads { lanes: thread.lanes | 1 << self.random.below(4), ..thread },
            _ => thread,
        }
    }

    fn random_item(&mut self) {
        let mut at = self.random.below(ITEMS.iter().map(|(weight, _)| weight).sum());
        let chosen = ITEMS.iter().find(|(weight, _)| at.checked_sub(*weight).map(|rest| at = rest).is_none());
        chosen.expect("the number is less than the sum of the weights").1(self);
    }

    /// Returns random elements of an array; weak accesses may be vectors and guarded.
    fn elements(&mut self, array: Array, weak: bool) -> ElementRange {
        let width = if weak { self.choose(&[1, 1, 1, 2, 4]) } else { 1 };
        let stride = self.choose(&[0, 0, 0, 0, 1, 1, 2, 3]);
        let range = if self.random.chance(4) { CELLS } else { 3 };
        let first = self.random.below((range.div_ceil(width)) as usize) as u32;
        let guard = match self.random.below(8) {
            0 if weak => AccessGuard::If(self.random.next() as u32),
            1 if weak => AccessGuard::First(self.random.below(4) as u32),
            _ => AccessGuard::All,
        };
        ElementRange { array, first, stride, width, guard }
    }

    fn data_elements(&mut self, weak: bool) -> ElementRange {
        let arrays = [Array::SharedData, Array::SharedData, Array::GlobalData, Array::GlobalData, Array::Alias];
        let array = self.choose(&arrays);
        self.elements(array, weak)
    }

    fn barrier(&mut self) {
        self.push(Threads::ALL, Op::Barrier);
        // All earlier named barriers are complete, so their ids may be reused.
        let is_named = |step: &Step| matches!(step.op, Op::NamedBarrier { .. });
        if !self.deferred.iter().flatten().any(is_named) {
            self.named_barriers = 0;
        }
    }

    /// An access to data, with any memory order; no thread waits for it.
    fn data_access(&mut self) -> Step {
        let array = self.data_elements(false).array;
        self.access_to(array)
    }

    fn access_to(&mut self, array: Array) -> Step {
        let scope = self.scope();
        let threads = if self.random.chance(3) { self.random_threads() } else { self.random_thread() };
        let at = self.elements(array, false);
        let op = match self.random.below(10) {
            0..4 => Op::Read { at: self.elements(array, true), order: MemoryOrder::Weak, scope },
            4..7 => Op::Write { at: self.elements(array, true), value: 1, order: MemoryOrder::Weak, scope },
            7 => Op::Read {
                at,
                order: self.choose(&[MemoryOrder::Relaxed, MemoryOrder::Relaxed, MemoryOrder::Acquire]),
                scope,
            },
            8 => Op::Write { at, value: 1, order: self.choose(&[MemoryOrder::Relaxed, MemoryOrder::Release]), scope },
            _ => {
                let order = self.choose(&[MemoryOrder::Relaxed, MemoryOrder::Release]);
                let op = self.choose(&[
                    AtomicOp::Add,
                    AtomicOp::Min,
                    AtomicOp::Max,
                    AtomicOp::And,
                    AtomicOp::Or,
                    AtomicOp::Xor,
                    AtomicOp::Swap,
                    compare_exchange(UNUSED_VALUE),
                ]);
                Op::Atomic { at, op, value: 1, order, scope }
            }
        };
        Step { threads, op }
    }

    fn access(&mut self) {
        let step = self.data_access();
        self.nodes.push(Node::Step(step));
    }

    fn emit_deferred(&mut self) {
        if self.deferred.is_empty() {
            return;
        }
        let at = self.random.below(self.deferred.len());
        let steps = self.deferred.remove(at);
        self.nodes.extend(steps.into_iter().map(Node::Step));
    }
}
