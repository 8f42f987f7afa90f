//! Values that a kernel asserts to be uniform: a GPU trusts that, here it is verified.

use tegula_core::diagnostic::Kind;
use tegula_core::element::Type;
use tegula_ir::Uniform;

use super::block::Assertions;
use super::lanes;
use super::lanes::Reg;
use super::observe::Computation;
use super::warp::Run;

impl Run<'_, '_> {
    pub fn assert_uniform(&mut self, pc: usize, scope: Uniform, ty: Type, dst: Reg, a: Reg) {
        let bits = self.warp.registers.bits(ty, a);
        self.warp.registers.copy(ty, dst, a, u32::MAX);
        self.computed(Computation::Move, ty, dst, &[a]);
        let lane = |lane: u32| self.warp.index * 32 + lane;
        let first = self.warp.mask.trailing_zeros() % 32;
        let value = bits[first as usize];
        let odd = lanes::mask(|lane| bits[lane] != value) & self.warp.mask;
        let met = if odd != 0 {
            Some((lane(odd.trailing_zeros()), bits[odd.trailing_zeros() as usize], lane(first), value))
        } else if scope <= Uniform::Block {
            let (thread, warps) = (lane(first), self.block.warps.len());
            let Assertions { times, values } = &mut self.block.assertions;
            let time = times.entry((pc, self.warp.index)).or_default();
            *time += 1;
            let (other, met, missing) = values.entry((pc, *time)).or_insert((value, thread, warps));
            *missing -= 1;
            let differs = (*other != value).then_some((thread, value, *met, *other));
            if *missing == 0 {
                values.remove(&(pc, *time));
            }
            differs
        } else {
            None
        };
        if let Some((thread, value, other, theirs)) = met {
            let other_thread = self.machine.thread(other);
            let message = format!(
                "asserts that a value is uniform: its bits are {value:#x} here and {theirs:#x} in thread {other_thread:?}"
            );
            self.report(Kind::NotUniform, pc, &[thread, other], None, message);
        }
    }
}
