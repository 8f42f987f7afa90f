//! Hopper's operations in a warp: dispatch, `setmaxnreg`, and `griddepcontrol`.
//!
//! The other operations are implemented in `arrive`, `copy`, `wgmma`, `cluster` and `matrix`.

use tegula_core::diagnostic::{FindingKind, Space};

use super::path::State;
use super::program::{ElementAddress, LoweredOp};
use super::race::{CurrentAccess, threads_of};
use super::report::Diagnostic;
use super::warp::WarpContext;

impl WarpContext<'_, '_> {
    /// Executes an operation; false if the warp must wait.
    pub fn execute_hopper(&mut self, pc: usize, op: &LoweredOp) -> bool {
        match *op {
            LoweredOp::MbarrierInit { barrier, arrivals } => self.mbarrier_init(barrier, arrivals),
            LoweredOp::FenceMbarrierInit => {
                self.active_threads().for_each(|lane| self.block.hopper.init_fences.add(&mut self.block.clocks, lane));
            }
            LoweredOp::MbarrierArrive { barrier, block, expect } => self.mbarrier_arrive(barrier, block, expect),
            LoweredOp::MbarrierWait { barrier, parity } => return self.mbarrier_wait(barrier, parity),
            LoweredOp::TmaLoad { matrix, at, to, barrier, blocks } => self.tma_load(matrix, at, to, barrier, blocks),
            LoweredOp::StoreAsync { to, ref values, block, barrier } => self.store_async(to, values, block, barrier),
            LoweredOp::TmaStore { matrix, at, from } => self.tma_store(matrix, at, from),
            LoweredOp::BulkCommitGroup => self.bulk_commit_group(),
            LoweredOp::BulkWaitGroup { pending, read } => self.bulk_wait_group(pending, read),
            LoweredOp::FenceProxyAsync { global } => self.fence_proxy_async(global),
            LoweredOp::Wgmma(ref multiply) => self.wgmma(pc, multiply),
            LoweredOp::WgmmaFence => self.wgmma_fence(pc),
            LoweredOp::WgmmaCommitGroup => self.wgmma_commit_group(pc),
            LoweredOp::WgmmaWaitGroup { pending } => self.wgmma_wait_group(pc, pending),
            LoweredOp::StoreMatrix { ty, to, ref values, transposed } => {
                self.store_matrix(pc, ty, values, to, transposed)
            }
            LoweredOp::SetMaxRegisters { count, increase } => return self.set_max_registers(pc, count, increase),
            LoweredOp::ClusterArrive => self.cluster_arrive(),
            LoweredOp::ClusterWait => return self.cluster_wait(),
            LoweredOp::GriddepWait => self.griddep_wait(),
            LoweredOp::Nop => {}
        }
        true
    }

    /// Resolves the elements of the lanes; those from `end` on are reported and dropped.
    pub fn elements_at(&mut self, at: ElementAddress, end: usize) -> Vec<(usize, usize)> {
        let ElementAddress::Shared { array, index, offset, .. } = at else { return Vec::new() };
        let indices = self.warp.registers.u32s(index);
        let elements = threads_of(0, self.warp.mask).map(|lane| {
            let lane = usize::from(lane);
            (lane, indices[lane].wrapping_add(offset) as usize)
        });
        let (in_bounds, out_of_bounds): (Vec<_>, Vec<_>) = elements.partition(|&(_, index)| index < end);
        if let Some(&(lane, index)) = out_of_bounds.first() {
            let len = self.machine.kernel.shared()[array.index()].len();
            self.report_array_bounds(array.index(), index as u64, len, lane);
        }
        in_bounds
    }

    fn fence_proxy_async(&mut self, global: bool) {
        let fences = if global { &mut self.global.fences } else { &mut self.block.shadow.fences };
        threads_of(self.warp.index, self.warp.mask).for_each(|lane| fences.add(&mut self.block.clocks, lane));
    }

    fn griddep_wait(&mut self) {
        let lanes = self.active_threads();
        if let Some(waited) = &mut self.block.hopper.launch_awaited {
            lanes.for_each(|lane| waited[usize::from(lane)] = true);
        }
    }

    /// Reports an access to a matrix before the wait for the preceding launches.
    pub fn check_launch_dependency(&mut self, param: usize, index: usize, now: CurrentAccess) {
        let waited = self.block.hopper.launch_awaited.as_ref().is_none_or(|waited| waited[usize::from(now.lane)]);
        if waited {
            return;
        }
        let (element, text) = self.machine.element(Space::Global, param, index);
        let message = format!("accesses {text}, which a preceding launch may still access; call `griddep_wait` first");
        let (sites, lanes) = (vec![now.site], vec![now.lane]);
        self.report_diagnostic(Diagnostic {
            kind: FindingKind::EarlyAccess,
            sites,
            lanes,
            element: Some(element),
            message,
        });
    }

    fn set_max_registers(&mut self, pc: usize, count: u32, increase: bool) -> bool {
        let (warp, pool) = (self.warp.index as usize, &mut self.block.hopper.register_pool);
        let had = pool.per_warp[warp];
        if increase != (count > had) && count != had {
            let (verb, than) = if increase { ("increases to", "more") } else { ("decreases to", "fewer") };
            let message = format!("{verb} {count} registers a thread, which is not {than} than the current {had}");
            self.report(FindingKind::RegisterBudget, pc, &[self.warp.index * 32], None, message);
            return true;
        }
        let needed = 32 * count.saturating_sub(had);
        if needed > pool.free {
            self.warp.state = State::Registers;
            return false;
        }
        pool.free += 32 * had.saturating_sub(count);
        pool.free -= needed;
        pool.per_warp[warp] = count;
        true
    }
}
