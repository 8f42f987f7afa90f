//! Generates flags that threads change and wait for.

use tegula::element::Type;
use tegula_ir::{AtomicOp, Compare, MemoryOrder, Operand};

use super::Generator;
use crate::oracle_races::program::{Array, ElementRange, FLAGS, Op, Step, Threads};

/// A flag that has its final value.
#[derive(Clone, Copy)]
pub struct SettledFlag {
    array: Array,
    index: u32,
    value: u32,
    /// Blocks of a flag in shared memory.
    blocks: u32,
}

/// An atomic operation that stores the value where the element equals `expected`.
pub fn compare_exchange(expected: u32) -> AtomicOp {
    AtomicOp::CompareExchange { expected: Operand::Const(Type::U32, expected.into()) }
}

/// A value that no element has.
pub const UNUSED_VALUE: u32 = 77;

impl Generator {
    /// A flag that some threads set, and other threads wait for.
    pub(super) fn flag(&mut self) {
        if self.flags_left.is_empty() {
            return;
        }
        let (array, index) = self.flags_left.remove(0);
        let at = ElementRange::cell(array, index);
        let counter = self.random.chance(2);
        let changes = 1 + self.random.below(3) as u32;
        // Shared memory belongs to one block.
        let blocks = if array.is_shared() { 1 << self.random.below(self.blocks as usize) } else { u32::MAX };
        let in_blocks = |threads: Threads| Threads { blocks: threads.blocks & blocks, ..threads };
        let bits = counter && self.random.chance(3);
        let value = if bits { (1 << changes) - 1 } else { changes };
        // Usually the flag publishes data.
        let (message, cell) = (!self.random.chance(3), self.data_elements(false));
        for change in 0..changes {
            let (thread, scope) = (self.random_thread(), self.scope());
            let threads = Threads { blocks: if array.is_shared() { blocks } else { thread.blocks }, ..thread };
            if message && change == 0 {
                self.push(threads, Op::Write { at: cell, value: 1, order: MemoryOrder::Weak, scope });
            }
            if self.random.chance(3) {
                let scope = self.scope();
                self.push(threads, Op::Fence(scope));
            }
            if counter {
                let order = self.choose(&[MemoryOrder::Relaxed, MemoryOrder::Release, MemoryOrder::Release]);
                let op = self.choose(&[AtomicOp::Or, AtomicOp::Xor, AtomicOp::Add]);
                let (op, value) = if bits { (op, 1 << change) } else { (AtomicOp::Add, 1) };
                self.push(threads, Op::Atomic { at, op, value, order, scope });
            } else {
                if change > 0 {
                    let (scope, compare) = (self.scope(), self.choose(&[Compare::Ge, Compare::Eq]));
                    self.push(threads, Op::WaitFlag { at, compare, values: [change; FLAGS as usize], scope });
                }
                if self.random.chance(6) {
                    self.unchanging_update(threads, at);
                }
                self.next_value(threads, at, change);
            }
            if self.random.chance(3) {
                self.access();
            }
        }
        self.settled.push(SettledFlag { array, index, value, blocks });
        let (threads, scope) = (self.random_threads(), self.scope());
        let threads = Threads { blocks: if array.is_shared() { blocks } else { threads.blocks }, ..threads };
        let threads = in_blocks(threads);
        let (compare, values) = match self.random.below(4) {
            0 => (Compare::Eq, value),
            1 => (Compare::Gt, value - 1),
            2 if value == 1 => (Compare::Ne, 0),
            _ => (Compare::Ge, value),
        };
        let mut steps =
            vec![Step { threads, op: Op::WaitFlag { at, compare, values: [values; FLAGS as usize], scope } }];
        if self.random.chance(4) {
            // Observes the same write as the wait, with another scope.
            let (order, scope) = (self.choose(&[MemoryOrder::Acquire, MemoryOrder::Relaxed]), self.scope());
            steps.push(Step { threads, op: Op::Read { at, order, scope } });
        }
        if message {
            let threads = if self.random.chance(4) { self.random_threads() } else { threads };
            steps.push(Step { threads, op: Op::Read { at: cell, order: MemoryOrder::Weak, scope } });
        }
        self.deferred.push(steps);
    }

    /// Writes the next value of a flag. Only this thread changes it at this point.
    fn next_value(&mut self, threads: Threads, at: ElementRange, old: u32) {
        let (value, scope) = (old + 1, self.scope());
        if self.random.chance(2) {
            let orders = [
                MemoryOrder::Relaxed,
                MemoryOrder::Release,
                MemoryOrder::Release,
                MemoryOrder::Release,
                MemoryOrder::Weak,
            ];
            let kinds = if self.random.chance(4) { 5 } else { 4 };
            let order = self.choose(&orders[..kinds]);
            self.push(threads, Op::Write { at, value, order, scope });
            return;
        }
        let order =
            self.choose(&[MemoryOrder::Relaxed, MemoryOrder::Release, MemoryOrder::Acquire, MemoryOrder::AcqRel]);
        let (op, value) = self.choose(&[
            (AtomicOp::Add, 1),
            (AtomicOp::Max, value),
            (AtomicOp::Swap, value),
            (AtomicOp::Xor, old ^ value),
            (compare_exchange(old), value),
            (compare_exchange(old), value),
        ]);
        self.push(threads, Op::Atomic { at, op, value, order, scope });
    }

    /// An atomic operation that leaves the value of a flag unchanged.
    fn unchanging_update(&mut self, threads: Threads, at: ElementRange) {
        let (scope, order) = (
            self.scope(),
            self.choose(&[MemoryOrder::Relaxed, MemoryOrder::Release, MemoryOrder::Acquire, MemoryOrder::AcqRel]),
        );
        let (op, value) = self.choose(&[
            (AtomicOp::And, u32::MAX),
            (AtomicOp::Min, u32::MAX),
            (AtomicOp::Or, 0),
            (compare_exchange(UNUSED_VALUE), 5),
            (compare_exchange(UNUSED_VALUE), 5),
        ]);
        self.push(threads, Op::Atomic { at, op, value, order, scope });
    }

    /// A read of a flag by a thread that need not observe any write.
    pub(super) fn flag_read(&mut self) {
        if self.settled.is_empty() {
            return;
        }
        let flag = self.settled[self.random.below(self.settled.len())];
        let at = ElementRange::cell(flag.array, flag.index);
        let (threads, scope) = (self.random_threads(), self.scope());
        let order = self.choose(&[MemoryOrder::Weak, MemoryOrder::Relaxed, MemoryOrder::Acquire]);
        let op = match self.random.below(4) {
            0 => Op::Atomic { at, op: compare_exchange(UNUSED_VALUE), value: 5, order: MemoryOrder::Acquire, scope },
            _ => Op::Read { at, order, scope },
        };
        self.push(threads, op);
    }

    /// A wait of each lane for a flag of its own.
    pub(super) fn flag_per_lane(&mut self) {
        let Some(&SettledFlag { array, blocks, .. }) = self.settled.last() else { return };
        let same_array = |flag: &&SettledFlag| flag.array == array && flag.blocks == blocks;
        let mut values = [0; FLAGS as usize];
        let mut settled = 0;
        for flag in self.settled.iter().filter(same_array) {
            values[flag.index as usize] = flag.value;
            settled |= 1 << flag.index;
        }
        let at = ElementRange { stride: 1, ..ElementRange::cell(array, self.random.below(FLAGS as usize) as u32) };
        let lanes = (0..6).filter(|&lane| settled >> at.start(lane) & 1 == 1).fold(0, |lanes, lane| lanes | 1 << lane);
        let (thread, scope) = (self.random_thread(), self.scope());
        let threads = Threads { blocks: if array.is_shared() { blocks } else { thread.blocks }, lanes, ..thread };
        let compare = self.choose(&[Compare::Ge, Compare::Eq]);
        self.deferred.push(vec![Step { threads, op: Op::WaitFlag { at, compare, values, scope } }]);
    }
}
