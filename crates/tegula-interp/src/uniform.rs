//! Uniformity assertions: a GPU relies on them, the interpreter verifies them.

use tegula_core::diagnostic::FindingKind;
use tegula_core::element::Type;
use tegula_ir::Uniform;

use super::block::Assertions;
use super::lanes;
use super::lanes::Reg;
use super::observe::Computation;
use super::warp::WarpContext;

impl WarpContext<'_, '_> {
    pub fn assert_uniform(&mut self, pc: usize, scope: Uniform, ty: Type, dst: Reg, a: Reg) {
        let bits = self.warp.registers.bits(ty, a);
        self.warp.registers.copy(ty, dst, a, u32::MAX);
        self.observe_result(Computation::Move, ty, dst, &[a]);
        let lane = |lane: u32| self.warp.index * 32 + lane;
        let first = self.warp.mask.trailing_zeros() % 32;
        let value = bits[first as usize];
        let differing = lanes::lanes_where(|lane| bits[lane] != value) & self.warp.mask;
        let mismatch = if differing != 0 {
            Some((lane(differing.trailing_zeros()), bits[differing.trailing_zeros() as usize], lane(first), value))
        } else if scope <= Uniform::Block {
            let (thread, warps) = (lane(first), self.block.warps.len());
            let Assertions { occurrences, values } = &mut self.block.assertions;
            let occurrence = occurrences.entry((pc, self.warp.index)).or_default();
            *occurrence += 1;
            let (other, other_thread, missing) = values.entry((pc, *occurrence)).or_insert((value, thread, warps));
            *missing -= 1;
            let differs = (*other != value).then_some((thread, value, *other_thread, *other));
            if *missing == 0 {
                values.remove(&(pc, *occurrence));
            }
            differs
        } else {
            None
        };
        if let Some((thread, value, other, other_value)) = mismatch {
            let other_thread = self.machine.thread(other);
            let message = format!(
                "asserts that a value is uniform: its bits are {value:#x} here and {other_value:#x} in thread {other_thread:?}"
            );
            self.report(FindingKind::NotUniform, pc, &[thread, other], None, message);
        }
    }
}
