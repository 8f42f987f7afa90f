//! Generates random programs.
//!
//! Each wait of a step depends only on steps before it in the list, or is a barrier that all its
//! threads reach. So programs end.

use super::program::{
    Array, AtomicKind, FLAGS, FenceKind, Guard, MBARRIERS, Node, Op, Order, Program, Scope, Step, Strength, Target,
    Threads, Value,
};
use super::random::{Random, mix};

/// Largest number of threads that increment a counter or take a lock.
const MAX_COUNT: usize = 12;

pub struct Generator {
    pub random: Random,
    pub blocks: u32,
    pub threads: u32,
    nodes: Vec<Node>,
    /// Steps that come later.
    deferred: Vec<Vec<Step>>,
    pub flags_left: Vec<u32>,
    pub named_left: u32,
    mbarriers_left: u32,
}

/// A random program, which may race, and the generator for its further parts.
pub fn program(seed: u64) -> (Program, Generator) {
    let mut random = Random(mix(seed ^ 0x0bad_cafe));
    let blocks = random.choose(&[1, 1, 1, 2, 2, 3]);
    let threads = random.choose(&[8, 32, 33, 40, 40, 48, 64, 64, 66, 70, 96]);
    let mut generator = Generator {
        random,
        blocks,
        threads,
        nodes: Vec::new(),
        deferred: Vec::new(),
        flags_left: (0..FLAGS).collect(),
        named_left: 15,
        mbarriers_left: MBARRIERS,
    };
    for _ in 0..3 + generator.random.below(9) {
        generator.part();
        if generator.random.chance(3) {
            generator.emit_deferred();
        }
    }
    while !generator.deferred.is_empty() {
        generator.emit_deferred();
        if generator.random.chance(3) {
            generator.access();
        }
    }
    let nodes = std::mem::take(&mut generator.nodes);
    (Program { blocks, threads, nodes }, generator)
}

impl Generator {
    fn part(&mut self) {
        match self.random.below(24) {
            0..8 => self.access(),
            8 => self.barrier(),
            9 => self.named_barrier(),
            10 | 11 => {
                let step = self.warp_sync();
                self.nodes.push(Node::Step(step));
            }
            12 => self.exchange(),
            13..16 => self.message(),
            16 | 17 => self.copy(),
            18 => self.lock(),
            19 => self.last_arrival(),
            20 => self.loop_node(),
            21 => self.mbarrier(),
            22 => {
                let (threads, fence) = (self.some_threads(), self.fence());
                self.push(threads, fence);
            }
            _ if self.random.chance(4) => {
                let threads = self.some_threads();
                self.push(threads, Op::Exit);
            }
            _ => self.access(),
        }
    }

    pub fn warps(&self) -> u32 {
        self.threads.div_ceil(32)
    }

    pub fn step(&mut self, threads: Threads, op: Op) -> Step {
        let guard = self.random.choose(&[Guard::Predicate, Guard::Branch, Guard::Branch, Guard::Same, Guard::Else]);
        Step { threads, if_last: None, guard, op }
    }

    fn push(&mut self, threads: Threads, op: Op) {
        let step = self.step(threads, op);
        self.nodes.push(Node::Step(step));
    }

    pub fn one_thread(&mut self) -> Threads {
        let (block, warp) = (self.random.below(self.blocks as usize) as u32, self.random.below(self.warps() as usize));
        // The last warp may have few lanes.
        let lanes = (self.threads - 32 * warp as u32).min(32);
        let lane = self.random.choose(&[0, 0, 1, 2, 5, 7, 16, 31]) % lanes;
        Threads { blocks: 1 << block, warps: 1 << warp, lanes: 1 << lane }
    }

    pub fn some_threads(&mut self) -> Threads {
        let one = self.one_thread();
        let all_warps = (1 << self.warps()) - 1;
        match self.random.below(8) {
            0..3 => one,
            3 => Threads { lanes: one.lanes | self.one_thread().lanes, ..one },
            4 => Threads { lanes: u32::MAX, ..one },
            5 => Threads { lanes: self.random.next() as u32 & 0xff | one.lanes, ..one },
            6 => Threads { warps: all_warps, ..one },
            _ if self.random.chance(2) => Threads { blocks: u32::MAX, ..one },
            _ => Threads { warps: all_warps, lanes: u32::MAX, ..one },
        }
    }

    /// At most a few threads.
    fn few_threads(&mut self) -> Threads {
        let threads = self.some_threads();
        let count = self.members(threads);
        if count > MAX_COUNT { Threads { lanes: 1 << self.random.below(3) | 1, ..threads } } else { threads }
    }

    pub fn members(&self, threads: Threads) -> usize {
        Program { blocks: self.blocks, threads: self.threads, nodes: Vec::new() }.members(threads).len()
    }

    pub fn scope(&mut self) -> Scope {
        self.random.choose(&[Scope::Device, Scope::Device, Scope::System, Scope::Block])
    }

    /// A scope that includes all threads that may use a flag.
    pub fn wide_scope(&mut self, array: Array) -> Scope {
        let narrow = self.blocks == 1 || array.is_shared();
        let scopes = [Scope::Device, Scope::System, Scope::Block];
        self.random.choose(if narrow { &scopes } else { &scopes[..2] })
    }

    pub fn fence(&mut self) -> Op {
        let scope = self.scope();
        Op::Fence { kind: self.fence_kind(), scope }
    }

    pub fn fence_kind(&mut self) -> FenceKind {
        self.random.choose(&[
            FenceKind::AcqRel,
            FenceKind::AcqRel,
            FenceKind::Sc,
            FenceKind::Membar,
            FenceKind::Membar,
            FenceKind::Acquire,
            FenceKind::Release,
        ])
    }

    fn place(&mut self, array: Array) -> Target {
        let first = self.random.below(16) as u32;
        let stride = self.random.choose(&[0, 1, 1, 1, 2]);
        let (by_thread, generic) = (self.random.chance(3), self.random.chance(6));
        Target { array, first, stride, by_thread, generic }
    }

    /// An access to data.
    pub fn access_op(&mut self, array: Array) -> Op {
        let mut at = self.place(array);
        let width = self.random.choose(&[1, 1, 2, 4, 4, 4, 8]);
        let strong = self.random.chance(4);
        let (scope, relaxed) = (self.scope(), Strength::new(Order::Relaxed, Scope::Device));
        match self.random.below(10) {
            0 | 1 if strong || self.random.chance(2) => {
                let width = self.random.choose(&[4, 4, 8]);
                let kind = self.random.choose(&[
                    AtomicKind::Add,
                    AtomicKind::Add,
                    AtomicKind::And,
                    AtomicKind::Or,
                    AtomicKind::Xor,
                    AtomicKind::Max,
                    AtomicKind::Min,
                    AtomicKind::Exch,
                    AtomicKind::FailingCas,
                ]);
                let returns = matches!(kind, AtomicKind::Exch | AtomicKind::FailingCas) || self.random.chance(2);
                let order = match returns {
                    true => self.random.choose(&[Order::Relaxed, Order::Relaxed, Order::Acquire, Order::AcqRel]),
                    false => self.random.choose(&[Order::Relaxed, Order::Release]),
                };
                at.first %= 4;
                let (strength, value) = (Strength::new(order, scope), Value::PerThread);
                Op::Atomic { at, width, kind, strength, value, returns }
            }
            0..6 => {
                let vector = self.vector(width);
                let volatile = !at.array.is_shared() && !at.generic && self.random.chance(3);
                let strength = match (strong, volatile) {
                    (true, true) => Strength::new(Order::Volatile, Scope::System),
                    (true, false) => Strength { scope, ..relaxed },
                    _ => Strength::WEAK,
                };
                Op::Load { at, width, vector, strength }
            }
            _ => {
                let vector = self.vector(width);
                let volatile = !at.array.is_shared() && !at.generic && self.random.chance(3);
                let strength = match (strong, volatile) {
                    (true, true) => Strength::new(Order::Volatile, Scope::System),
                    (true, false) => Strength::new(self.random.choose(&[Order::Relaxed, Order::Release]), scope),
                    _ => Strength::WEAK,
                };
                let value = if self.random.chance(4) { Value::PerStep } else { Value::PerThread };
                let vector = if strength.order == Order::Release { 1 } else { vector };
                Op::Store { at, width, vector, strength, value }
            }
        }
    }

    fn vector(&mut self, width: u32) -> u32 {
        let vector = self.random.choose(&[1, 1, 1, 2, 4]);
        if vector * width > 16 { 1 } else { vector }
    }

    pub fn data_array(&mut self) -> Array {
        self.random.choose(&[Array::SharedData, Array::SharedData, Array::GlobalData])
    }

    fn data_access(&mut self) -> Step {
        let array = self.data_array();
        let array = if self.random.chance(30) { Array::Input } else { array };
        let (threads, op) = (self.some_threads(), self.access_op(array));
        self.step(threads, op)
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

    pub fn block_barrier(&mut self) -> Step {
        Step {
            threads: Threads::ALL,
            if_last: None,
            guard: Guard::Branch,
            op: Op::Barrier { split: self.random.chance(4) },
        }
    }

    fn barrier(&mut self) {
        let step = self.block_barrier();
        self.nodes.push(Node::Step(step));
    }

    /// A named barrier of at least one warp.
    pub fn named(&mut self, blocks: u32, warps: u32) -> Option<Step> {
        self.named_left = self.named_left.checked_sub(1)?;
        let threads = Threads { blocks, warps, lanes: u32::MAX };
        Some(Step::new(threads, Op::Named { id: 15 - self.named_left, warps, waits: true }))
    }

    fn named_barrier(&mut self) {
        let (all, one) = ((1 << self.warps()) - 1, self.one_thread());
        let waits = one.warps | self.random.next() as u32 & all;
        let arrives = self.random.next() as u32 & all & !waits;
        let blocks = if self.random.chance(2) { u32::MAX } else { one.blocks };
        let Some(mut wait) = self.named(blocks, waits | arrives) else { return };
        wait.threads.warps = waits;
        if arrives == 0 {
            self.nodes.push(Node::Step(wait));
            return;
        }
        let Op::Named { id, warps, .. } = wait.op else { return };
        let threads = Threads { warps: arrives, ..wait.threads };
        self.nodes.push(Node::Step(Step::new(threads, Op::Named { id, warps, waits: false })));
        self.deferred.push(vec![wait]);
    }

    pub fn warp_sync(&mut self) -> Step {
        let one = self.one_thread();
        let mask = match self.random.below(3) {
            0 => u32::MAX,
            1 => one.lanes | self.one_thread().lanes,
            _ => one.lanes | self.random.next() as u32,
        };
        let blocks = if self.random.chance(2) { u32::MAX } else { one.blocks };
        let warps = if self.random.chance(2) { u32::MAX } else { one.warps };
        self.step(Threads { blocks, warps, lanes: mask }, Op::WarpSync { mask })
    }

    /// Shuffles and votes, which order nothing.
    fn exchange(&mut self) {
        let threads = Threads { warps: u32::MAX, ..self.some_threads() };
        let op = self.random.choose(&[Op::Shuffle, Op::Vote]);
        self.push(threads, op);
    }

    pub fn flag(&mut self, shared: bool) -> Option<Target> {
        let index = self.flags_left.pop()?;
        let array = if shared { Array::SharedFlags } else { Array::GlobalFlags };
        Some(Target { generic: self.random.chance(6), ..Target::unit(array, index) })
    }

    /// The steps by which threads publish what they did: they set or increment a flag.
    pub fn publish(&mut self, threads: Threads, flag: Target, value: Option<u32>) -> Vec<Step> {
        let (scope, at) = (self.wide_scope(flag.array), flag);
        let fenced = self.random.chance(2);
        let order = if fenced { Order::Relaxed } else { Order::Release };
        let kind = self.random.choose(&[FenceKind::AcqRel, FenceKind::Sc, FenceKind::Membar, FenceKind::Release]);
        let fence = fenced.then(|| self.step(threads, Op::Fence { kind, scope }));
        let volatile = fenced && flag.array == Array::GlobalFlags && self.random.chance(3);
        let set = match value {
            Some(value) => {
                let order = if volatile { Order::Volatile } else { order };
                let (strength, value) = (Strength::new(order, scope), Value::Const(value));
                Op::Store { at, width: 4, vector: 1, strength, value }
            }
            None => {
                let returns = self.random.chance(2);
                let order = if !fenced && returns && self.random.chance(2) { Order::AcqRel } else { order };
                let (kind, strength, value) = (AtomicKind::Add, Strength::new(order, scope), Value::Const(1));
                Op::Atomic { at, width: 4, kind, strength, value, returns }
            }
        };
        let set = self.step(threads, set);
        fence.into_iter().chain([set]).collect()
    }

    /// The steps by which threads wait for a flag, and acquire.
    pub fn await_flag(&mut self, threads: Threads, flag: Target, value: u32) -> Vec<Step> {
        let scope = self.wide_scope(flag.array);
        let fenced = self.random.chance(2);
        let volatile = fenced && flag.array == Array::GlobalFlags && self.random.chance(3);
        let order = match (fenced, volatile) {
            (true, true) => Order::Volatile,
            (true, false) => Order::Relaxed,
            _ => Order::Acquire,
        };
        let kind = self.random.choose(&[FenceKind::AcqRel, FenceKind::Sc, FenceKind::Membar, FenceKind::Acquire]);
        let fence = fenced.then(|| self.step(threads, Op::Fence { kind, scope }));
        let wait = self.step(threads, Op::Wait { flag, value, strength: Strength::new(order, scope) });
        [wait].into_iter().chain(fence).collect()
    }

    /// Data that some threads write and publish, and others wait for.
    fn message(&mut self) {
        let shared = self.random.chance(3);
        let Some(flag) = self.flag(shared) else { return };
        let (counter, mut writers) = (self.random.chance(2), self.few_threads());
        let mut readers = self.some_threads();
        if shared {
            readers.blocks = writers.blocks;
        }
        if !counter {
            writers = Threads { blocks: writers.blocks, ..self.one_thread() };
            if !shared {
                writers.blocks &= writers.blocks.wrapping_neg();
            }
        }
        let array = self.data_array();
        let array = if shared || self.blocks == 1 { array } else { Array::GlobalData };
        let at = self.place(array);
        let width = self.random.choose(&[1, 2, 4, 8]);
        let (strength, value) = (Strength::WEAK, Value::PerThread);
        if !self.random.chance(4) {
            self.push(writers, Op::Store { at, width, vector: 1, strength, value });
        }
        let first = self.publish(writers, flag, (!counter).then_some(1));
        self.nodes.extend(first.into_iter().map(Node::Step));
        let of_block = if shared {
            Threads { blocks: writers.blocks & writers.blocks.wrapping_neg(), ..writers }
        } else {
            writers
        };
        let mut value = if counter { self.members(of_block) as u32 } else { 1 };
        if self.random.chance(4) {
            // Another thread waits, and goes on with the flag.
            let next = Threads { blocks: writers.blocks, ..self.one_thread() };
            let next = if shared { next } else { Threads { blocks: next.blocks & next.blocks.wrapping_neg(), ..next } };
            let wait = self.await_flag(next, flag, value);
            self.nodes.extend(wait.into_iter().map(Node::Step));
            value += 1;
            let set = (!self.random.chance(2)).then_some(value);
            let steps = self.publish(next, flag, set);
            self.nodes.extend(steps.into_iter().map(Node::Step));
        }
        let mut steps = self.await_flag(readers, flag, value);
        let place = if self.random.chance(2) { at } else { Target { stride: 0, ..at } };
        let op = match self.random.below(3) {
            0 => Op::Store { at: place, width, vector: 1, strength: Strength::WEAK, value: Value::PerThread },
            _ => Op::Load { at: place, width, vector: 1, strength: Strength::WEAK },
        };
        steps.push(self.step(readers, op));
        if self.random.chance(6) {
            // The flag again, weakly.
            let at = Target { generic: false, ..flag };
            steps.push(self.step(readers, Op::Load { at, width: 4, vector: 1, strength: Strength::WEAK }));
        }
        self.deferred.push(steps);
    }

    fn copy(&mut self) {
        let threads = self.some_threads();
        let bytes = self.random.choose(&[4, 4, 8, 16]);
        let source = self.random.choose(&[Array::Input, Array::GlobalData]);
        let (to, from) = (self.place(Array::SharedData), self.place(source));
        let from = Target { generic: false, ..from };
        let to = Target { generic: false, ..to };
        let read = if self.random.chance(5) { self.random.below(bytes as usize + 1) as u32 } else { bytes };
        self.push(threads, Op::Copy { to, from, bytes, read });
        if !self.random.chance(5) {
            self.push(threads, Op::Commit);
        }
        if self.random.chance(3) {
            self.access();
        }
        if self.random.chance(4) && self.copy_arrival(threads) {
            return;
        }
        let pending = self.random.choose(&[None, Some(0), Some(0), Some(1)]);
        let wait = self.step(threads, Op::WaitCopies(pending));
        self.deferred.push(vec![wait]);
    }

    /// Lets copies arrive at an mbarrier.
    fn copy_arrival(&mut self, threads: Threads) -> bool {
        let of_block = Threads { blocks: 1, ..threads };
        let count = self.members(of_block) as u32;
        let Some(left) = self.mbarriers_left.checked_sub(1).filter(|_| count > 0) else { return false };
        self.mbarriers_left = left;
        // All blocks have the same number of arrivals.
        let threads = Threads { blocks: u32::MAX, ..threads };
        self.push(threads, Op::CopyArrive { mbarrier: left, count });
        let waits = self.some_threads();
        let wait = self.step(waits, Op::WaitMbarrier { mbarrier: left, phase: 0 });
        let (array, threads) = (Array::SharedData, waits);
        let op = self.access_op(array);
        let access = self.step(threads, op);
        self.deferred.push(vec![wait, access]);
        true
    }

    fn mbarrier(&mut self) {
        let arrives = Threads { blocks: u32::MAX, ..self.some_threads() };
        let count = self.members(Threads { blocks: 1, ..arrives }) as u32;
        let Some(mbarrier) = self.mbarriers_left.checked_sub(1) else { return };
        self.mbarriers_left = mbarrier;
        let rounds = 1 + self.random.below(3) as u32;
        let waits = if rounds == 1 { self.some_threads() } else { arrives };
        for phase in 0..rounds {
            self.push(arrives, Op::Arrive { mbarrier, count });
            if self.random.chance(2) {
                self.access();
            }
            let wait = self.step(waits, Op::WaitMbarrier { mbarrier, phase });
            if phase + 1 == rounds {
                self.deferred.push(vec![wait]);
            } else {
                self.nodes.push(Node::Step(wait));
            }
        }
    }

    /// The steps that take and release a lock around others.
    pub fn locked(&mut self, flag: Target, threads: Threads, inside: &[Op]) -> Vec<Step> {
        let scope = self.wide_scope(flag.array);
        let order = self.random.choose(&[Order::Acquire, Order::AcqRel, Order::Relaxed]);
        let mut steps = vec![self.step(threads, Op::Lock { flag, strength: Strength::new(order, scope) })];
        if order == Order::Relaxed {
            let kind = self.random.choose(&[FenceKind::AcqRel, FenceKind::Sc, FenceKind::Membar, FenceKind::Acquire]);
            steps.push(self.step(threads, Op::Fence { kind, scope }));
        }
        steps.extend(inside.iter().map(|&op| self.step(threads, op)));
        let order = self.random.choose(&[Order::Release, Order::Relaxed]);
        if order == Order::Relaxed {
            let kind = self.random.choose(&[FenceKind::AcqRel, FenceKind::Sc, FenceKind::Membar, FenceKind::Release]);
            steps.push(self.step(threads, Op::Fence { kind, scope }));
        }
        let (at, strength, value) = (flag, Strength::new(order, scope), Value::Const(0));
        let open = match self.random.chance(2) {
            true => Op::Store { at, width: 4, vector: 1, strength, value },
            false => Op::Atomic { at, width: 4, kind: AtomicKind::Exch, strength, value, returns: true },
        };
        steps.push(self.step(threads, open));
        // A branch inside of the section would let other lanes in.
        steps
    }

    fn lock(&mut self) {
        let mut threads = self.few_threads();
        let shared = self.random.chance(3);
        if shared {
            threads.blocks &= threads.blocks.wrapping_neg();
        }
        let Some(flag) = self.flag(shared) else { return };
        let array = if shared { self.data_array() } else { Array::GlobalData };
        let at = Target { stride: 0, ..self.place(array) };
        let width = self.random.choose(&[1, 4, 8]);
        let load = Op::Load { at, width, vector: 1, strength: Strength::WEAK };
        let value = self.random.choose(&[Value::PerStep, Value::PerThread]);
        let store = Op::Store { at, width, vector: 1, strength: Strength::WEAK, value };
        let steps = self.locked(flag, threads, &[load, store]);
        self.nodes.extend(steps.into_iter().map(Node::Step));
    }

    /// Threads store their parts; the last of them reads all.
    fn last_arrival(&mut self) {
        let mut threads = self.few_threads();
        let shared = self.random.chance(3);
        if shared {
            threads.blocks &= threads.blocks.wrapping_neg();
        }
        let Some(flag) = self.flag(shared) else { return };
        let array = if shared { Array::SharedData } else { Array::GlobalData };
        let (count, scope) = (self.members(threads) as u32, self.wide_scope(flag.array));
        let at = Target { stride: 1, ..self.place(array) };
        let (width, strength) = (self.random.choose(&[1, 2, 4]), Strength::WEAK);
        self.push(threads, Op::Store { at, width, vector: 1, strength, value: Value::PerThread });
        let fenced = self.random.chance(2);
        let kind = self.random.choose(&[FenceKind::AcqRel, FenceKind::Sc, FenceKind::Membar]);
        let order = if fenced { Order::Relaxed } else { Order::AcqRel };
        if fenced {
            self.push(threads, Op::Fence { kind, scope });
        }
        self.push(threads, Op::Ticket { flag, count, strength: Strength::new(order, scope) });
        if fenced {
            self.push(threads, Op::Fence { kind, scope });
        }
        let op = match self.random.below(4) {
            0 => Op::Store { at: Target { stride: 0, ..at }, width, vector: 1, strength, value: Value::PerStep },
            _ => Op::Load { at: Target { stride: 0, ..at }, width, vector: 1, strength },
        };
        let step = Step { if_last: Some(flag.first), ..self.step(threads, op) };
        self.nodes.push(Node::Step(step));
    }

    fn loop_node(&mut self) {
        let mut body = Vec::new();
        for _ in 0..1 + self.random.below(4) {
            let step = match self.random.below(8) {
                0..4 => self.data_access(),
                4 | 5 => self.block_barrier(),
                6 => self.warp_sync(),
                _ => {
                    let warps = self.one_thread().warps | self.random.next() as u32 & ((1 << self.warps()) - 1);
                    match self.named(u32::MAX, warps) {
                        Some(step) => step,
                        None => self.data_access(),
                    }
                }
            };
            body.push(step);
        }
        self.nodes.push(Node::Loop(2 + self.random.below(2) as u32, body));
    }
}
