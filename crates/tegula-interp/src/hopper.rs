//! What only Hopper has, as a warp runs it: the dispatch of its operations, and the registers that
//! warps hand to each other. The meaning of the other operations is in `arrive`, `copy`, `wgmma`,
//! `cluster` and `matrix`.

use tegula_core::diagnostic::{Kind, Space};

use super::path::State;
use super::program::{Act, At};
use super::race::{Now, lanes_of};
use super::report::Mistake;
use super::warp::Run;

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
