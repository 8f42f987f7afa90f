//! State of a block for the operations that only Hopper has.

use tegula_ir::{ArrayContents, Kernel};

use super::agent::AsyncAgents;
use super::barrier::{ClusterBarrier, Mbarrier};
use super::bulk::{InFlightWrite, ThreadStores};
use super::pending_wgmma::WgmmaQueue;
use super::program::Program;
use super::race::{FIRST_AGENT, Fences};
use super::remote::{ExitDependencies, RemoteOp};

/// State of a block for Hopper's operations. Empty in kernels without them.
#[derive(Default)]
pub(super) struct HopperState {
    /// The mbarriers of each shared array.
    pub mbarriers: Vec<Vec<Mbarrier>>,
    /// Fences after mbarrier initialization.
    pub init_fences: Fences,
    pub in_flight: Vec<InFlightWrite>,
    pub outgoing: Vec<RemoteOp>,
    pub exit_dependencies: ExitDependencies,
    pub cluster_barrier: ClusterBarrier,
    /// For each thread.
    pub stores: Vec<ThreadStores>,
    /// For each warp.
    pub wgmma_queues: Vec<WgmmaQueue>,
    /// Whether each thread waited for the preceding launches, if the kernel may overlap with them.
    pub launch_awaited: Option<Vec<bool>>,
    /// For each copy unit, the number of copies to it.
    copy_clocks: Vec<u32>,
    pub register_pool: RegisterPool,
}

/// Registers of a block: those of a thread of each warp, and the free ones.
#[derive(Debug, Default)]
pub(super) struct RegisterPool {
    pub per_warp: Vec<u32>,
    pub free: u32,
}

/// Registers of an SM.
const REGISTERS: u32 = 65_536;

/// Registers per thread at launch of a kernel with one block per SM.
fn registers_at_launch(threads: u32) -> u32 {
    (REGISTERS / threads.max(1) / 8 * 8).min(256)
}

impl HopperState {
    pub fn new(kernel: &Kernel, program: &Program, agents: &AsyncAgents) -> Self {
        let threads = kernel.threads();
        let warps = threads.div_ceil(32);
        let barriers = kernel.shared().iter().map(|array| match array.contents {
            ArrayContents::Mbarriers => vec![Mbarrier::default(); array.len() as usize],
            _ => Vec::new(),
        });
        HopperState {
            mbarriers: barriers.collect(),
            stores: (0..threads).map(|_| ThreadStores::default()).collect(),
            wgmma_queues: (0..warps).map(|_| WgmmaQueue::new(program.vectors.len())).collect(),
            launch_awaited: kernel.uses_griddep_wait().then(|| vec![false; threads as usize]),
            copy_clocks: vec![0; agents.copy_units() as usize],
            register_pool: RegisterPool { per_warp: vec![registers_at_launch(threads); warps as usize], free: 0 },
            ..HopperState::default()
        }
    }

    /// Counts another copy to a unit; returns its clock.
    pub fn next_copy_clock(&mut self, unit: u16) -> u32 {
        let copy_clocks = &mut self.copy_clocks[usize::from(unit - FIRST_AGENT)];
        *copy_clocks += 1;
        *copy_clocks
    }

    /// Describes a warp that waits for registers.
    pub fn register_wait(&self, warp: u32, count: u32) -> String {
        let RegisterPool { per_warp, free } = &self.register_pool;
        let had = per_warp[warp as usize];
        let all: u32 = free + per_warp.iter().map(|count| 32 * count).sum::<u32>();
        format!(
            "for registers: warpgroup {} asks for {count} a thread and has {had}; each warp needs {} more, and {free} of the block's {all} are free",
            warp / 4,
            32 * count.saturating_sub(had)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_at_launch_match_driver() {
        assert_eq!([128, 256, 384, 512, 1024].map(registers_at_launch), [256, 256, 168, 128, 64]);
    }
}
