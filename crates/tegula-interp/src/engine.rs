//! What a block keeps for the operations that only Hopper has.

use tegula_ir::{Holds, Kernel};

use super::agent::Agents;
use super::barrier::{Barrier, Meeting};
use super::bulk::{Coming, Stores};
use super::product::Multiplying;
use super::program::Program;
use super::race::{AGENT, Fences};
use super::remote::{Letter, Visits};

/// What a block keeps for Hopper's operations. Empty in kernels without them.
#[derive(Default)]
pub(super) struct Engine {
    /// Of each array, its barriers.
    pub barriers: Vec<Vec<Barrier>>,
    /// Fences after barriers were begun.
    pub begun: Fences,
    pub coming: Vec<Coming>,
    pub outbox: Vec<Letter>,
    pub visits: Visits,
    pub meeting: Meeting,
    /// Of each thread.
    pub stores: Vec<Stores>,
    /// Of each warp.
    pub multiplying: Vec<Multiplying>,
    /// Of each thread of a kernel that may start early: whether it has waited for the launches
    /// before.
    pub waited: Option<Vec<bool>>,
    /// Copies to each part of an array so far.
    copies: Vec<u32>,
    pub pool: Pool,
}

/// Registers of a block: how many a thread of each warp has, and how many nobody has.
#[derive(Debug, Default)]
pub(super) struct Pool {
    pub of_warps: Vec<u32>,
    pub free: u32,
}

/// Registers of a multiprocessor.
const REGISTERS: u32 = 65_536;

/// Registers a thread that a kernel starts with which takes a multiprocessor for a block.
fn registers_at_launch(threads: u32) -> u32 {
    (REGISTERS / threads.max(1) / 8 * 8).min(256)
}

impl Engine {
    pub fn new(kernel: &Kernel, program: &Program, agents: &Agents) -> Self {
        let threads = kernel.threads();
        let warps = threads.div_ceil(32);
        let barriers = kernel.shared().iter().map(|array| match array.holds {
            Holds::Barriers => vec![Barrier::default(); array.len() as usize],
            _ => Vec::new(),
        });
        Engine {
            barriers: barriers.collect(),
            stores: (0..threads).map(|_| Stores::default()).collect(),
            multiplying: (0..warps).map(|_| Multiplying::new(program.lines.len())).collect(),
            waited: kernel.starts_early().then(|| vec![false; threads as usize]),
            copies: vec![0; agents.parts() as usize],
            pool: Pool { of_warps: vec![registers_at_launch(threads); warps as usize], free: 0 },
            ..Engine::default()
        }
    }

    /// Another copy to a part; its clock.
    pub fn tick(&mut self, part: u16) -> u32 {
        let copies = &mut self.copies[usize::from(part - AGENT)];
        *copies += 1;
        *copies
    }

    /// What a warp waits for that wants more registers.
    pub fn wanted(&self, warp: u32, count: u32) -> String {
        let Pool { of_warps, free } = &self.pool;
        let had = of_warps[warp as usize];
        let all: u32 = free + of_warps.iter().map(|count| 32 * count).sum::<u32>();
        format!(
            "for registers: warpgroup {} asks for {count} a thread and has {had}, each warp for {} more; {free} of the block's {all} are free",
            warp / 4,
            32 * count.saturating_sub(had)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_at_launch_are_those_of_the_driver() {
        assert_eq!([128, 256, 384, 512, 1024].map(registers_at_launch), [256, 256, 168, 128, 64]);
    }
}
