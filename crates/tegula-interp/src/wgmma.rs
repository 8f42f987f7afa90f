//! The matrix instruction of a warpgroup, one warp at a time.
//!
//! Each warp has 16 rows of A and of the accumulators, and reads all of B.
//!
//! The seed selects when operands in shared memory are read and products accumulated: when the
//! instruction is issued, or when it is awaited. Until then its accumulators are in flight, and its
//! operands must not change.

use std::collections::BTreeSet;

use tegula_core::diagnostic::FindingKind;
use tegula_core::element::Type;
use tegula_ir::Wgmma;

use super::agent::AsyncAgent;
use super::block::BlockState;
use super::lanes::Reg;
use super::observe::{Computation, EventKind};
use super::pending_wgmma::{OperandElements, PendingWgmma};
use super::program::{ElementAddress, LoweredLeftOperand, LoweredSharedOperand, WgmmaInstruction};
use super::race::{Access, ClockView};
use super::tensor;
use super::warp::WarpContext;

impl OperandElements {
    fn read(&self, block: &BlockState) -> Vec<u64> {
        match self {
            OperandElements::Shared(array, indices) => {
                let words = &block.shared.arrays[*array];
                indices.iter().map(|&index| words[index as usize]).collect()
            }
            OperandElements::Registers(bits) => bits.clone(),
        }
    }
}

const K: u32 = Wgmma::K;

impl WarpContext<'_, '_> {
    /// Issues a matrix instruction.
    pub fn wgmma(&mut self, pc: usize, multiply: &WgmmaInstruction) {
        if !self.check_participants(pc, u32::MAX) {
            return;
        }
        let WgmmaInstruction { wgmma, a, b, ref accumulators, accumulate } = *multiply;
        let first_row = self.warp.index % 4 * 16;
        let a = match a {
            LoweredLeftOperand::Shared(operand) => self.shared_operand(pc, operand, first_row..first_row + 16),
            LoweredLeftOperand::Registers(registers) => Some(self.register_operand(registers)),
        };
        let (Some(a), Some(b)) = (a, self.shared_operand(pc, b, 0..wgmma.n)) else { return };
        self.check_wgmma_fence(pc, accumulators);
        let site = self.site();
        let queue = &mut self.block.hopper.wgmma_queues[self.warp.index as usize];
        let group = queue.groups.start(site);
        for &reg in accumulators {
            queue.writer_groups[reg as usize] = group;
        }
        let lane = self.machine.agents.lane(AsyncAgent::Wgmma(self.warp.index));
        let agent = Access { clock: group, site: site.0, lane };
        let now = self.now(0, None);
        for elements in [&a, &b] {
            if let OperandElements::Shared(array, indices) = elements {
                let granule = self.machine.granules[*array];
                let mut cells: Vec<_> = indices.iter().map(|&index| index as usize / granule).collect();
                cells.dedup();
                cells.sort_unstable();
                cells.dedup();
                self.read_by_agent(*array, cells.into_iter(), now, agent);
            }
        }
        self.observe_wgmma(wgmma, [&a, &b]);
        let accumulate = self.warp.registers.predicates[accumulate as usize];
        let product = PendingWgmma { wgmma, a, b, accumulators: accumulators.clone(), accumulate, group };
        self.block.hopper.wgmma_queues[self.warp.index as usize].pending.push_back(product);
        if self.observer.is_some() || self.block.random(2) == 0 {
            self.accumulate_groups(u32::MAX);
        }
    }

    /// Passes the tiles that an instruction reads to the observer.
    fn observe_wgmma(&mut self, wgmma: Wgmma, operands: [&OperandElements; 2]) {
        if self.observer.is_none() {
            return;
        }
        let machine = self.machine;
        let mut tiles = Vec::new();
        for operand in operands {
            if let OperandElements::Shared(array, indices) = operand {
                let all: BTreeSet<_> = indices.iter().map(|&i| machine.tile_ref(*array, i as usize).index).collect();
                tiles.extend(all.into_iter().map(|tile| machine.shared_ref((*array, tile))));
            }
        }
        self.observe(EventKind::Wgmma { wgmma, tiles: &tiles });
    }

    /// Operand A from four registers with two elements each.
    fn register_operand(&self, registers: [Reg; 4]) -> OperandElements {
        let mut a = vec![0; 16 * K as usize];
        for (register, reg) in (0..).zip(registers) {
            for (lane, bits) in (0..).zip(self.warp.registers.u32s(reg)) {
                for part in 0..2 {
                    let (row, col) = Wgmma::a(lane, register, part);
                    a[(row * K + col) as usize] = u64::from(bits >> (16 * part) & 0xffff);
                }
            }
        }
        OperandElements::Registers(a)
    }

    /// Resolves the elements of rows (columns) of an operand in shared memory.
    fn shared_operand(
        &mut self,
        pc: usize,
        LoweredSharedOperand { at, k_major }: LoweredSharedOperand,
        lines: std::ops::Range<u32>,
    ) -> Option<OperandElements> {
        let ElementAddress::Shared { array, index, offset, .. } = at else { return None };
        let indices = self.warp.registers.u32s(index);
        let threads = [self.warp.index * 32];
        if indices.iter().any(|&index| index != indices[0]) {
            let message = "the lanes of a warp pass different operands to one matrix instruction".into();
            self.report(FindingKind::DivergentWarp, pc, &threads, None, message);
            return None;
        }
        let first = indices[0].wrapping_add(offset);
        let shared = &self.machine.kernel.shared()[array.index()];
        let ([rows, row], name, len) = ([shared.dims[1], shared.dims[2]], shared.name.clone(), shared.len());
        // The swizzle permutes chunks among eight rows, so an operand starts at the first of them.
        let (line, place) = (first / row, first % row);
        if line % 8 != 0 || (k_major && (place % 8 != 0 || place + K > row)) || (!k_major && place != 0) {
            let message = format!(
                "an operand begins in row {line} of {name} at element {place}; it must begin in a row that is a multiple of 8, {}",
                if k_major { "at a multiple of 8 with 16 elements left" } else { "at element 0" }
            );
            self.report(FindingKind::Misaligned, pc, &threads, None, message);
            return None;
        }
        let index = |i: u32, p: u32| match k_major {
            true => u64::from(first) + u64::from(i) * u64::from(row) + u64::from(p),
            false => {
                let tile = u64::from(i / row) * u64::from(rows) * u64::from(row);
                u64::from(first) + tile + u64::from(p * row + i % row)
            }
        };
        let highest = index(lines.end - 1, K - 1);
        if highest >= len {
            let message =
                format!("an operand extends to element {highest} of shared array {name}, which has {len} elements");
            self.report(FindingKind::OutOfBounds, pc, &threads, None, message);
            return None;
        }
        let elements = lines.flat_map(|i| (0..K).map(move |p| index(i, p) as u32));
        Some(OperandElements::Shared(array.index(), elements.collect()))
    }

    fn check_wgmma_fence(&mut self, pc: usize, accumulators: &[Reg]) {
        let queue = &self.block.hopper.wgmma_queues[self.warp.index as usize];
        if accumulators.iter().all(|&reg| queue.fenced[reg as usize]) || !self.machine.config.races {
            return;
        }
        let message =
            "accumulates into registers that were accessed otherwise, or never used; call `wgmma_fence` first".into();
        self.report(FindingKind::MissingFence, pc, &[self.warp.index * 32], None, message);
    }

    pub fn wgmma_fence(&mut self, pc: usize) {
        if self.check_participants(pc, u32::MAX) {
            self.block.hopper.wgmma_queues[self.warp.index as usize].fenced.fill(true);
        }
    }

    pub fn wgmma_commit_group(&mut self, pc: usize) {
        if self.check_participants(pc, u32::MAX) {
            self.block.hopper.wgmma_queues[self.warp.index as usize].groups.commit();
            self.observe(EventKind::WgmmaCommitGroup);
        }
    }

    /// Waits for groups: accumulators are valid, and the operands are free after a synchronization.
    pub fn wgmma_wait_group(&mut self, pc: usize, pending: u32) {
        if !self.check_participants(pc, u32::MAX) {
            return;
        }
        self.observe(EventKind::WgmmaWaitGroup(pending));
        let warp = self.warp.index;
        let done = self.block.hopper.wgmma_queues[warp as usize].groups.wait(pending);
        self.accumulate_groups(done);
        if self.machine.config.races && done > 0 {
            let agent = self.machine.agents.lane(AsyncAgent::Wgmma(warp));
            let view = ClockView::of_agent(self.block.linear as u32, agent, done);
            self.block.clocks.acquire_lanes(warp, self.warp.mask, &view);
        }
    }

    /// Executes the pending instructions of all groups up to this one.
    fn accumulate_groups(&mut self, group: u32) {
        let warp = self.warp.index as usize;
        while let Some(product) =
            self.block.hopper.wgmma_queues[warp].pending.pop_front_if(|product| product.group <= group)
        {
            self.accumulate(&product);
        }
    }

    fn accumulate(&mut self, product: &PendingWgmma) {
        let PendingWgmma { wgmma, a, b, accumulators, accumulate, .. } = product;
        let vectors = &mut self.warp.registers.vectors;
        let n = wgmma.n as usize;
        let mut matrix = vec![0; 16 * n];
        let place = |lane: u32, register: u32| {
            let (row, col) = wgmma.accumulator(lane, register);
            row as usize * n + col as usize
        };
        for (register, &reg) in (0..).zip(accumulators) {
            for lane in (0..32).filter(|lane| accumulate >> lane & 1 == 1) {
                matrix[place(lane, register)] = vectors[reg as usize].0[lane as usize];
            }
        }
        let (a, b) = (a.read(self.block), b.read(self.block));
        tensor::warpgroup(wgmma.ty, &a, &b, &mut matrix);
        for (register, &reg) in (0..).zip(accumulators) {
            for lane in 0..32 {
                vectors[reg as usize].0[lane as usize] = matrix[place(lane, register)];
            }
        }
        for &reg in accumulators {
            self.observe_result(Computation::Warpgroup(*wgmma), Type::F32, reg, &[]);
        }
    }

    /// Records another use of an accumulator than accumulation.
    pub fn use_accumulator(&mut self, reg: Reg) {
        let queue = &mut self.block.hopper.wgmma_queues[self.warp.index as usize];
        queue.fenced[reg as usize] = false;
        if self.machine.config.races && !queue.groups.is_done(queue.writer_groups[reg as usize]) {
            let message =
                "accesses an accumulator of a matrix instruction in flight; call `wgmma_wait_group` first".into();
            let pc = self.warp.pc;
            self.report(FindingKind::InFlight, pc, &[self.warp.index * 32], None, message);
        }
    }
}
