//! Flags that threads change and wait for.

use tegula::element::Type;
use tegula_ir::{AtomicOp, Compare, Operand, Order};

use super::Maker;
use crate::oracle_races::program::{Array, At, Does, FLAGS, Step, Threads};

/// A flag that is not changed any more.
#[derive(Clone, Copy)]
pub struct Done {
    array: Array,
    index: u32,
    value: u32,
    /// Of a flag in shared memory.
    blocks: u32,
}

/// Stores the value where the element equals `expected`.
pub fn compare_exchange(expected: u32) -> AtomicOp {
    AtomicOp::CompareExchange { expected: Operand::Const(Type::U32, expected.into()) }
}

/// What no element is.
pub const NOTHING: u32 = 77;

impl Maker {
    /// A flag that some set, and others wait for.
    pub(super) fn flag(&mut self) {
        if self.flags_left.is_empty() {
            return;
        }
        let (array, index) = self.flags_left.remove(0);
        let at = At::cell(array, index);
        let counter = self.random.chance(2);
        let changes = 1 + self.random.below(3) as u32;
        // Shared memory is of one block.
        let blocks = if array.is_shared() { 1 << self.random.below(self.blocks as usize) } else { u32::MAX };
        let place = |by: Threads| Threads { blocks: by.blocks & blocks, ..by };
        let bits = counter && self.random.chance(3);
        let value = if bits { (1 << changes) - 1 } else { changes };
        // What the flag is for, often.
        let (message, cell) = (!self.random.chance(3), self.data(false));
        for change in 0..changes {
            let (one, scope) = (self.thread(), self.scope());
            let by = Threads { blocks: if array.is_shared() { blocks } else { one.blocks }, ..one };
            if message && change == 0 {
                self.push(by, Does::Write { at: cell, value: 1, order: Order::Weak, scope });
            }
            if self.random.chance(3) {
                let scope = self.scope();
                self.push(by, Does::Fence(scope));
            }
            if counter {
                let order = self.of(&[Order::Relaxed, Order::Release, Order::Release]);
                let op = self.of(&[AtomicOp::Or, AtomicOp::Xor, AtomicOp::Add]);
                let (op, value) = if bits { (op, 1 << change) } else { (AtomicOp::Add, 1) };
                self.push(by, Does::Atomic { at, op, value, order, scope });
            } else {
                if change > 0 {
                    let (scope, compare) = (self.scope(), self.of(&[Compare::Ge, Compare::Eq]));
                    self.push(by, Does::Wait { at, compare, values: [change; FLAGS as usize], scope });
                }
                if self.random.chance(6) {
                    self.keep(by, at);
                }
                self.change(by, at, change);
            }
            if self.random.chance(3) {
                self.access();
            }
        }
        self.done.push(Done { array, index, value, blocks });
        let (some, scope) = (self.some(), self.scope());
        let some = Threads { blocks: if array.is_shared() { blocks } else { some.blocks }, ..some };
        let by = place(some);
        let (compare, values) = match self.random.below(4) {
            0 => (Compare::Eq, value),
            1 => (Compare::Gt, value - 1),
            2 if value == 1 => (Compare::Ne, 0),
            _ => (Compare::Ge, value),
        };
        let mut steps = vec![Step { by, does: Does::Wait { at, compare, values: [values; FLAGS as usize], scope } }];
        if self.random.chance(4) {
            // Observes what the wait did, by another scope.
            let (order, scope) = (self.of(&[Order::Acquire, Order::Relaxed]), self.scope());
            steps.push(Step { by, does: Does::Read { at, order, scope } });
        }
        if message {
            let by = if self.random.chance(4) { self.some() } else { by };
            steps.push(Step { by, does: Does::Read { at: cell, order: Order::Weak, scope } });
        }
        self.later.push(steps);
    }

    /// The next value of a flag, by the only thread that changes it now.
    fn change(&mut self, by: Threads, at: At, old: u32) {
        let (value, scope) = (old + 1, self.scope());
        if self.random.chance(2) {
            let orders = [Order::Relaxed, Order::Release, Order::Release, Order::Release, Order::Weak];
            let kinds = if self.random.chance(4) { 5 } else { 4 };
            let order = self.of(&orders[..kinds]);
            self.push(by, Does::Write { at, value, order, scope });
            return;
        }
        let order = self.of(&[Order::Relaxed, Order::Release, Order::Acquire, Order::AcqRel]);
        let (op, value) = self.of(&[
            (AtomicOp::Add, 1),
            (AtomicOp::Max, value),
            (AtomicOp::Exchange, value),
            (AtomicOp::Xor, old ^ value),
            (compare_exchange(old), value),
            (compare_exchange(old), value),
        ]);
        self.push(by, Does::Atomic { at, op, value, order, scope });
    }

    /// An atomic operation that leaves a flag as it is.
    fn keep(&mut self, by: Threads, at: At) {
        let (scope, order) = (self.scope(), self.of(&[Order::Relaxed, Order::Release, Order::Acquire, Order::AcqRel]));
        let (op, value) = self.of(&[
            (AtomicOp::And, u32::MAX),
            (AtomicOp::Min, u32::MAX),
            (AtomicOp::Or, 0),
            (compare_exchange(NOTHING), 5),
            (compare_exchange(NOTHING), 5),
        ]);
        self.push(by, Does::Atomic { at, op, value, order, scope });
    }

    /// A look at a flag by a thread that need not see anything.
    pub(super) fn look(&mut self) {
        if self.done.is_empty() {
            return;
        }
        let flag = self.done[self.random.below(self.done.len())];
        let at = At::cell(flag.array, flag.index);
        let (by, scope) = (self.some(), self.scope());
        let order = self.of(&[Order::Weak, Order::Relaxed, Order::Acquire]);
        let does = match self.random.below(4) {
            0 => Does::Atomic { at, op: compare_exchange(NOTHING), value: 5, order: Order::Acquire, scope },
            _ => Does::Read { at, order, scope },
        };
        self.push(by, does);
    }

    /// Lanes that wait for a flag each.
    pub(super) fn each_its_flag(&mut self) {
        let Some(&Done { array, blocks, .. }) = self.done.last() else { return };
        let of_array = |done: &&Done| done.array == array && done.blocks == blocks;
        let mut values = [0; FLAGS as usize];
        let mut known = 0;
        for done in self.done.iter().filter(of_array) {
            values[done.index as usize] = done.value;
            known |= 1 << done.index;
        }
        let at = At { stride: 1, ..At::cell(array, self.random.below(FLAGS as usize) as u32) };
        let lanes = (0..6).filter(|&lane| known >> at.start(lane) & 1 == 1).fold(0, |lanes, lane| lanes | 1 << lane);
        let (one, scope) = (self.thread(), self.scope());
        let by = Threads { blocks: if array.is_shared() { blocks } else { one.blocks }, lanes, ..one };
        let compare = self.of(&[Compare::Ge, Compare::Eq]);
        self.later.push(vec![Step { by, does: Does::Wait { at, compare, values, scope } }]);
    }
}
