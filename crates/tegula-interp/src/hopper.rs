//! What only Hopper has, as a warp runs it. The meaning of each operation is where its state is: `barrier`,
//! `copy`, `wgmma`, `cluster`, `matrix`; here are what a block keeps for them, and the registers that
//! warps hand to each other.

use tegula_core::diagnostic::{Kind, Space};
use tegula_ir::{Holds, Kernel};

use super::agent::Agents;
use super::barrier::Barrier;
use super::cluster::{Letter, Meeting, Visits};
use super::copy::{Coming, Stores};
use super::path::State;
use super::program::{Act, At, Program};
use super::race::{AGENT, Fences, Now, lanes_of};
use super::report::Mistake;
use super::warp::Run;
use super::wgmma::Multiplying;

/// What a block keeps for these operations. Empty in kernels without.
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
    /// Of each thread of a kernel that may start early: whether it has waited for the launches before.
    pub waited: Option<Vec<bool>>,
    /// Copies to each part of an array so far.
    copies: Vec<u32>,
    pool: Pool,
}

/// Registers of a block: how many a thread of each warp has, and how many nobody has.
#[derive(Debug, Default)]
struct Pool {
    of_warps: Vec<u32>,
    free: u32,
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
}

impl Run<'_, '_> {
    /// Runs an operation. False where the warp waits.
    pub fn act(&mut self, pc: usize, act: &Act) -> bool {
        match *act {
            Act::InitBarrier { barrier, arrivals } => self.begin_barrier(barrier, arrivals),
            Act::FenceInit => {
                self.lanes().for_each(|lane| self.block.engine.begun.add(&mut self.block.clocks, lane));
            }
            Act::Arrive { barrier, block, expect } => self.arrive_at(barrier, block, expect),
            Act::Await { barrier, parity } => return self.await_barrier(barrier, parity),
            Act::CopyTile { matrix, at, to, barrier, blocks } => self.copy_tile(matrix, at, to, barrier, blocks),
            Act::Send { to, ref values, block, barrier } => self.send(to, values, block, barrier),
            Act::StoreTile { matrix, at, from } => self.store_tile(matrix, at, from),
            Act::CommitStores => self.commit_stores(),
            Act::AwaitStores { pending, read } => self.await_stores(pending, read),
            Act::FenceProxy { global } => self.fence_proxy(global),
            Act::Wgmma(ref multiply) => self.wgmma(pc, multiply),
            Act::WgmmaFence => self.wgmma_fence(pc),
            Act::WgmmaCommit => self.wgmma_commit(pc),
            Act::WgmmaWait { pending } => self.wgmma_wait(pc, pending),
            Act::StoreMatrix { ty, to, ref values, transposed } => self.store_matrix(pc, ty, values, to, transposed),
            Act::SetRegisters { count, more } => return self.set_registers(pc, count, more),
            Act::ClusterArrive => self.cluster_arrive(),
            Act::ClusterWait => return self.cluster_wait(),
            Act::AwaitLaunches => self.await_launches(),
            Act::Nothing => {}
        }
        true
    }

    /// The elements that the lanes mean, those from `end` on reported and left out.
    pub fn elements_at(&mut self, at: At, end: usize) -> Vec<(usize, usize)> {
        let At::Shared { array, index, offset, .. } = at else { return Vec::new() };
        let indices = self.warp.registers.u32s(index);
        let elements = lanes_of(0, self.warp.mask).map(|lane| {
            let lane = usize::from(lane);
            (lane, indices[lane].wrapping_add(offset) as usize)
        });
        let (inside, outside): (Vec<_>, Vec<_>) = elements.partition(|&(_, index)| index < end);
        if let Some(&(lane, index)) = outside.first() {
            let len = self.machine.kernel.shared()[array.index()].len();
            self.outside_array(array.index(), index as u64, len, lane);
        }
        inside
    }

    fn fence_proxy(&mut self, global: bool) {
        let fences = if global { &mut self.global.fences } else { &mut self.block.shadow.fences };
        lanes_of(self.warp.index, self.warp.mask).for_each(|lane| fences.add(&mut self.block.clocks, lane));
    }

    fn await_launches(&mut self) {
        let lanes = self.lanes();
        if let Some(waited) = &mut self.block.engine.waited {
            lanes.for_each(|lane| waited[usize::from(lane)] = true);
        }
    }

    /// A thread reads or writes an element of a matrix: the launches before must have ended.
    pub fn check_early(&mut self, param: usize, index: usize, now: Now) {
        let waited = self.block.engine.waited.as_ref().is_none_or(|waited| waited[usize::from(now.lane)]);
        if waited {
            return;
        }
        let (element, text) = self.machine.element(Space::Global, param, index);
        let message = format!("uses {text}, which a launch before this one may still use; call `await_launches` first");
        let (sites, lanes) = (vec![now.site], vec![now.lane]);
        self.mistake(Mistake { kind: Kind::EarlyAccess, sites, lanes, element: Some(element), message });
    }

    fn set_registers(&mut self, pc: usize, count: u32, more: bool) -> bool {
        let (warp, pool) = (self.warp.index as usize, &mut self.block.engine.pool);
        let had = pool.of_warps[warp];
        if more != (count > had) && count != had {
            let (verb, than) = if more { ("takes", "more") } else { ("gives back down to", "fewer") };
            let message = format!("{verb} {count} registers a thread, no {than} than the {had} that it has");
            self.report(Kind::RegisterBudget, pc, &[self.warp.index * 32], None, message);
            return true;
        }
        let needed = 32 * count.saturating_sub(had);
        if needed > pool.free {
            self.warp.state = State::Registers;
            return false;
        }
        pool.free += 32 * had.saturating_sub(count);
        pool.free -= needed;
        pool.of_warps[warp] = count;
        true
    }
}

impl Engine {
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
