//! How large `u32` values can be, whatever the data: what follows from extents, block sizes and constants.

use tegula_core::element::Type;

use super::launch::{GRID_YZ_LIMIT, MAX_EXTENT};
use super::ops::{Binary, Inst, Kernel, Op, Operand, Special};

/// An upper bound of each value of a kernel.
#[derive(Debug)]
pub struct Bounds(Vec<u64>);

impl Bounds {
    /// The bounds of all values of a kernel.
    pub fn of(kernel: &Kernel) -> Self {
        let mut bounds = Bounds(vec![u64::from(u32::MAX); kernel.values.len()]);
        bounds.region(kernel, kernel.body());
        bounds
    }

    /// The largest that a `u32` can be.
    pub fn most(&self, operand: Operand) -> u64 {
        match operand {
            Operand::Const(_, bits) => bits,
            Operand::Val(value) => self.0[value.index()],
        }
    }

    fn region(&mut self, kernel: &Kernel, insts: &[Inst]) {
        for inst in insts {
            for result in inst.results.iter().filter(|&&result| kernel.value_type(result) == Type::U32) {
                self.0[result.index()] = self.of_op(kernel, &inst.op).min(u64::from(u32::MAX));
            }
            inst.op.bodies().for_each(|body| self.region(kernel, body));
        }
    }

    fn of_op(&self, kernel: &Kernel, op: &Op) -> u64 {
        let [x, y, z] = kernel.block().map(u64::from);
        let any = u64::from(u32::MAX);
        // What may have wrapped can be anything.
        let within = |most: u64| if most <= any { most } else { any };
        match op {
            Op::Special(Special::ThreadX) => x.saturating_sub(1),
            Op::Special(Special::ThreadY) => y.saturating_sub(1),
            Op::Special(Special::ThreadZ) => z.saturating_sub(1),
            Op::Special(Special::Lane) => 31,
            Op::Special(Special::Warp) => u64::from(kernel.threads().saturating_sub(1) / 32),
            Op::Special(Special::Warpgroup) => u64::from(kernel.threads().saturating_sub(1) / 128),
            Op::Special(Special::ClusterRank) => u64::from(kernel.cluster().saturating_sub(1)),
            Op::Special(Special::BlockX | Special::GridX) => (1 << 31) - 1,
            Op::Special(Special::BlockY | Special::BlockZ | Special::GridY | Special::GridZ) => GRID_YZ_LIMIT.into(),
            Op::Extent(..) => MAX_EXTENT as u64,
            Op::Binary(op, a, b) => {
                let (most_a, most_b) = (self.most(*a), self.most(*b));
                match (op, b) {
                    (Binary::Add, _) => within(most_a.saturating_add(most_b)),
                    (Binary::Mul, _) => within(most_a.saturating_mul(most_b)),
                    (Binary::Shl, Operand::Const(_, count)) if *count < 32 => within(most_a << count),
                    (Binary::Shr, Operand::Const(_, count)) if *count < 32 => most_a >> count,
                    (Binary::Div, Operand::Const(_, by)) if *by > 0 => most_a / by,
                    (Binary::Rem, Operand::Const(_, by)) if *by > 0 => most_a.min(by - 1),
                    (Binary::And | Binary::Min, _) => most_a.min(most_b),
                    (Binary::Max, _) => most_a.max(most_b),
                    _ => any,
                }
            }
            Op::Select(_, yes, no) => self.most(*yes).max(self.most(*no)),
            Op::For { end, .. } => self.most(*end).saturating_sub(1),
            Op::Uniform(_, a) => self.most(*a),
            _ => any,
        }
    }
}
