//! Upper bounds of `u32` values, whatever the data, from extents, block sizes and constants.

use tegula_core::element::Type;

use super::launch::{GRID_YZ_LIMIT, MAX_EXTENT};
use super::ops::{Binary, Inst, Kernel, Op, Operand, SpecialRegister};

/// An upper bound of each value of a kernel.
#[derive(Debug)]
pub struct Bounds(Vec<u64>);

impl Bounds {
    /// Computes the bounds of all values of a kernel.
    pub fn of(kernel: &Kernel) -> Self {
        let mut bounds = Bounds(vec![u64::from(u32::MAX); kernel.values.len()]);
        bounds.region(kernel, kernel.body());
        bounds
    }

    /// The upper bound of a `u32` operand.
    pub fn max(&self, operand: Operand) -> u64 {
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
        let unbounded = u64::from(u32::MAX);
        // A value that may have wrapped is unbounded.
        let within = |max: u64| if max <= unbounded { max } else { unbounded };
        match op {
            Op::SpecialRegister(SpecialRegister::ThreadX) => x.saturating_sub(1),
            Op::SpecialRegister(SpecialRegister::ThreadY) => y.saturating_sub(1),
            Op::SpecialRegister(SpecialRegister::ThreadZ) => z.saturating_sub(1),
            Op::SpecialRegister(SpecialRegister::Lane) => 31,
            Op::SpecialRegister(SpecialRegister::Warp) => u64::from(kernel.threads().saturating_sub(1) / 32),
            Op::SpecialRegister(SpecialRegister::Warpgroup) => u64::from(kernel.threads().saturating_sub(1) / 128),
            Op::SpecialRegister(SpecialRegister::ClusterRank) => u64::from(kernel.cluster().saturating_sub(1)),
            Op::SpecialRegister(SpecialRegister::BlockX | SpecialRegister::GridX) => (1 << 31) - 1,
            Op::SpecialRegister(
                SpecialRegister::BlockY | SpecialRegister::BlockZ | SpecialRegister::GridY | SpecialRegister::GridZ,
            ) => GRID_YZ_LIMIT.into(),
            Op::Extent(..) => MAX_EXTENT as u64,
            Op::Binary(op, a, b) => {
                let (max_a, max_b) = (self.max(*a), self.max(*b));
                match (op, b) {
                    (Binary::Add, _) => within(max_a.saturating_add(max_b)),
                    (Binary::Mul, _) => within(max_a.saturating_mul(max_b)),
                    (Binary::Shl, Operand::Const(_, count)) if *count < 32 => within(max_a << count),
                    (Binary::Shr, Operand::Const(_, count)) if *count < 32 => max_a >> count,
                    (Binary::Div, Operand::Const(_, by)) if *by > 0 => max_a / by,
                    (Binary::Rem, Operand::Const(_, by)) if *by > 0 => max_a.min(by - 1),
                    (Binary::And | Binary::Min, _) => max_a.min(max_b),
                    (Binary::Max, _) => max_a.max(max_b),
                    _ => unbounded,
                }
            }
            Op::Select(_, yes, no) => self.max(*yes).max(self.max(*no)),
            Op::For { end, .. } => self.max(*end).saturating_sub(1),
            Op::Uniform(_, a) => self.max(*a),
            _ => unbounded,
        }
    }
}
