//! The state that the instructions of a running warp read and write.

use tegula_interp::rules::{CurrentAccess, GlobalShadow};
use tegula_ir::{Scope, SiteId};

use crate::alu::Lanes;
use crate::block::Block;
use crate::machine::Machine;
use crate::partial::Partial;
use crate::path::{State, Warp};
use crate::program::Reg;

/// A running warp, with its machine, block, shadow memory and counts.
pub(crate) struct Run<'r, 'm> {
    pub machine: &'r Machine<'m>,
    pub block: &'r mut Block,
    pub global: &'r mut GlobalShadow,
    pub partial: &'r mut Partial,
    pub warp: &'r mut Warp,
    /// Position and lanes of the running path.
    pub pc: u32,
    pub mask: u32,
    /// Lanes that execute the instruction: lanes of the path whose guard is true.
    pub active: u32,
    /// Whether anything but registers changed since the last snapshot of a loop.
    pub changed: bool,
    /// Whether anything but registers changed earlier, since the path began to run.
    pub progressed: bool,
    /// Results of the last arithmetic instruction.
    pub values: [Lanes; 2],
}

/// The control flow after an instruction.
pub(crate) enum Flow {
    Next,
    Jump(u32),
    /// The path waits at this instruction.
    Wait(State),
    /// All lanes of the path have exited or are in other paths.
    Ended,
    /// The instruction has set the position of the path, as calls, returns and splits do.
    Continue,
}

/// Iterates over the lanes of a mask.
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> {
    (0..32).filter(move |lane| mask >> lane & 1 == 1)
}

/// The mask of the lanes for which a condition holds.
pub(crate) fn lanes_where(condition: impl Fn(usize) -> bool) -> u32 {
    (0..32).fold(0, |mask, lane| mask | u32::from(condition(lane)) << lane)
}

impl<'r, 'm> Run<'r, 'm> {
    pub fn new(
        machine: &'r Machine<'m>,
        block: &'r mut Block,
        global: &'r mut GlobalShadow,
        partial: &'r mut Partial,
        warp: &'r mut Warp,
    ) -> Self {
        Run {
            machine,
            block,
            global,
            partial,
            warp,
            pc: 0,
            mask: 0,
            active: 0,
            changed: false,
            progressed: false,
            values: [[0; 32]; 2],
        }
    }

    /// Writes the active lanes of a register.
    #[inline]
    pub fn put(&mut self, dst: Reg, value: &Lanes) {
        let register = &mut self.warp.registers[dst as usize];
        if self.active == u32::MAX {
            *register = *value;
        } else {
            for lane in 0..32 {
                register[lane] = if self.active >> lane & 1 == 1 { value[lane] } else { register[lane] };
            }
        }
    }

    pub fn register(&self, reg: Reg) -> &Lanes {
        &self.warp.registers[reg as usize]
    }

    /// The index of a lane's thread in the block.
    pub fn thread(&self, lane: usize) -> u16 {
        (self.warp.index * 32) as u16 + lane as u16
    }

    pub fn site(&self) -> u32 {
        self.machine.program.code[self.pc as usize].site
    }

    /// The access of a lane at the current instruction, as the race detector needs it.
    #[inline]
    pub fn now(&self, lane: usize, scope: Option<Scope>) -> CurrentAccess {
        let thread = self.thread(lane);
        CurrentAccess { lane: thread, clock: self.block.clocks.clock(thread), site: SiteId(self.site()), scope }
    }
}
