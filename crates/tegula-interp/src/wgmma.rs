//! The matrix instruction of a warpgroup, a warp at a time: each has 16 rows of A and of the sums, and reads all of B.
//!
//! Factors in shared memory are read, and products added, when the instruction is started or when it is waited for, as the seed
//! decides. Until then its sums are on their way, and what it reads must stay.

use std::collections::BTreeSet;

use tegula_core::diagnostic::Kind;
use tegula_core::element::Type;
use tegula_ir::Wgmma;

use super::agent::Agent;
use super::block::Running;
use super::lanes::Reg;
use super::observe::{Computation, What};
use super::product::{Elements, Product};
use super::program::{At, Factor, Left, Multiply};
use super::race::{Access, Knowledge};
use super::tensor;
use super::warp::Run;

impl Elements {
    fn read(&self, block: &Running) -> Vec<u64> {
        match self {
            Elements::Shared(array, indices) => {
                let words = &block.shared.arrays[*array];
                indices.iter().map(|&index| words[index as usize]).collect()
            }
            Elements::Registers(bits) => bits.clone(),
        }
    }
}

const K: u32 = Wgmma::K;

impl Run<'_, '_> {
    /// Starts a multiplication.
    pub fn wgmma(&mut self, pc: usize, multiply: &Multiply) {
        if !self.all_of(pc, u32::MAX) {
            return;
        }
        let Multiply { wgmma, a, b, ref sums, add } = *multiply;
        let first_row = self.warp.index % 4 * 16;
        let a = match a {
            Left::Shared(factor) => self.factor(pc, factor, first_row..first_row + 16),
            Left::Registers(registers) => Some(self.left(registers)),
        };
        let (Some(a), Some(b)) = (a, self.factor(pc, b, 0..wgmma.n)) else { return };
        self.must_be_fenced(pc, sums);
        let site = self.site();
        let multiplying = &mut self.block.engine.multiplying[self.warp.index as usize];
        let group = multiplying.groups.start(site);
        for &reg in sums {
            multiplying.adds[reg as usize] = group;
        }
        let lane = self.machine.agents.lane(Agent::Warp(self.warp.index));
        let agent = Access { clock: group, site: site.0, lane };
        let now = self.now(0, None);
        for elements in [&a, &b] {
            if let Elements::Shared(array, indices) = elements {
                let granule = self.machine.granules[*array];
                let mut cells: Vec<_> = indices.iter().map(|&index| index as usize / granule).collect();
                cells.dedup();
                cells.sort_unstable();
                cells.dedup();
                self.read_by_agent(*array, cells.into_iter(), now, agent);
            }
        }
        self.observe_factors(wgmma, [&a, &b]);
        let add = self.warp.registers.predicates[add as usize];
        let product = Product { wgmma, a, b, sums: sums.clone(), add, group };
        self.block.engine.multiplying[self.warp.index as usize].late.push_back(product);
        if self.observer.is_some() || self.block.random(2) == 0 {
            self.add_products(u32::MAX);
        }
    }

    /// Tells an observer which tiles a multiplication reads.
    fn observe_factors(&mut self, wgmma: Wgmma, factors: [&Elements; 2]) {
        if self.observer.is_none() {
            return;
        }
        let machine = self.machine;
        let mut tiles = Vec::new();
        for factor in factors {
            if let Elements::Shared(array, indices) = factor {
                let all: BTreeSet<_> = indices.iter().map(|&i| machine.tile(*array, i as usize).index).collect();
                tiles.extend(all.into_iter().map(|tile| machine.place((*array, tile))));
            }
        }
        self.observe(What::Multiply { wgmma, tiles: &tiles });
    }

    /// Four registers with two numbers each.
    fn left(&self, registers: [Reg; 4]) -> Elements {
        let mut a = vec![0; 16 * K as usize];
        for (register, reg) in (0..).zip(registers) {
            for (lane, bits) in (0..).zip(self.warp.registers.u32s(reg)) {
                for part in 0..2 {
                    let (row, col) = Wgmma::a(lane, register, part);
                    a[(row * K + col) as usize] = u64::from(bits >> (16 * part) & 0xffff);
                }
            }
        }
        Elements::Registers(a)
    }

    /// Where rows (columns) of a factor are.
    fn factor(&mut self, pc: usize, Factor { at, along_k }: Factor, lines: std::ops::Range<u32>) -> Option<Elements> {
        let At::Shared { array, index, offset, .. } = at else { return None };
        let indices = self.warp.registers.u32s(index);
        let threads = [self.warp.index * 32];
        if indices.iter().any(|&index| index != indices[0]) {
            let message = "the lanes of a warp mean different factors of one multiplication".into();
            self.report(Kind::DivergentWarp, pc, &threads, None, message);
            return None;
        }
        let first = indices[0].wrapping_add(offset);
        let shared = &self.machine.kernel.shared()[array.index()];
        let ([rows, row], name, len) = ([shared.dims[1], shared.dims[2]], shared.name.clone(), shared.len());
        // Pieces change places among eight rows: a factor begins with the first of them.
        let (line, place) = (first / row, first % row);
        if line % 8 != 0 || (along_k && (place % 8 != 0 || place + K > row)) || (!along_k && place != 0) {
            let message = format!(
                "a factor begins in row {line} of {name} at element {place}: rows begin at multiples of 8, and elements {}",
                if along_k { "at multiples of 8 with 16 to go" } else { "at 0" }
            );
            self.report(Kind::Misaligned, pc, &threads, None, message);
            return None;
        }
        let index = |i: u32, p: u32| match along_k {
            true => u64::from(first) + u64::from(i) * u64::from(row) + u64::from(p),
            false => {
                let tile = u64::from(i / row) * u64::from(rows) * u64::from(row);
                u64::from(first) + tile + u64::from(p * row + i % row)
            }
        };
        let highest = index(lines.end - 1, K - 1);
        if highest >= len {
            let message = format!("a factor goes on to element {highest} of shared array {name}, which has {len}");
            self.report(Kind::OutOfBounds, pc, &threads, None, message);
            return None;
        }
        let elements = lines.flat_map(|i| (0..K).map(move |p| index(i, p) as u32));
        Some(Elements::Shared(array.index(), elements.collect()))
    }

    fn must_be_fenced(&mut self, pc: usize, sums: &[Reg]) {
        let multiplying = &self.block.engine.multiplying[self.warp.index as usize];
        if sums.iter().all(|&reg| multiplying.fenced[reg as usize]) || !self.machine.config.races {
            return;
        }
        let message =
            "multiplies into sums that were used otherwise, or never before; call `wgmma_fence` in between".into();
        self.report(Kind::MissingFence, pc, &[self.warp.index * 32], None, message);
    }

    pub fn wgmma_fence(&mut self, pc: usize) {
        if self.all_of(pc, u32::MAX) {
            self.block.engine.multiplying[self.warp.index as usize].fenced.fill(true);
        }
    }

    pub fn wgmma_commit(&mut self, pc: usize) {
        if self.all_of(pc, u32::MAX) {
            self.block.engine.multiplying[self.warp.index as usize].groups.commit();
            self.observe(What::CommitProducts);
        }
    }

    /// Waits: sums have come, and what was read is free, for all who come to know of it.
    pub fn wgmma_wait(&mut self, pc: usize, pending: u32) {
        if !self.all_of(pc, u32::MAX) {
            return;
        }
        self.observe(What::AwaitProducts(pending));
        let warp = self.warp.index;
        let done = self.block.engine.multiplying[warp as usize].groups.wait(pending);
        self.add_products(done);
        if self.machine.config.races && done > 0 {
            let agent = self.machine.agents.lane(Agent::Warp(warp));
            let known = Knowledge::of_agent(self.block.linear as u32, agent, done);
            self.block.clocks.acquire_lanes(warp, self.warp.mask, &known);
        }
    }

    /// Adds the products of all groups up to this one.
    fn add_products(&mut self, group: u32) {
        let warp = self.warp.index as usize;
        while let Some(product) =
            self.block.engine.multiplying[warp].late.pop_front_if(|product| product.group <= group)
        {
            self.add_product(&product);
        }
    }

    fn add_product(&mut self, product: &Product) {
        let Product { wgmma, a, b, sums, add, .. } = product;
        let lines = &mut self.warp.registers.lines;
        let n = wgmma.n as usize;
        let mut matrix = vec![0; 16 * n];
        let place = |lane: u32, register: u32| {
            let (row, col) = wgmma.sum(lane, register);
            row as usize * n + col as usize
        };
        for (register, &reg) in (0..).zip(sums) {
            for lane in (0..32).filter(|lane| add >> lane & 1 == 1) {
                matrix[place(lane, register)] = lines[reg as usize].0[lane as usize];
            }
        }
        let (a, b) = (a.read(self.block), b.read(self.block));
        tensor::warpgroup(wgmma.ty, &a, &b, &mut matrix);
        for (register, &reg) in (0..).zip(sums) {
            for lane in 0..32 {
                lines[reg as usize].0[lane as usize] = matrix[place(lane, register)];
            }
        }
        for &reg in sums {
            self.computed(Computation::Warpgroup(*wgmma), Type::F32, reg, &[]);
        }
    }

    /// A sum is read or written otherwise than by multiplying.
    pub fn use_sum(&mut self, reg: Reg) {
        let multiplying = &mut self.block.engine.multiplying[self.warp.index as usize];
        multiplying.fenced[reg as usize] = false;
        if self.machine.config.races && !multiplying.groups.is_done(multiplying.adds[reg as usize]) {
            let message = "uses a sum of a multiplication that was not waited for; call `wgmma_wait` first".into();
            let pc = self.warp.pc;
            self.report(Kind::InFlight, pc, &[self.warp.index * 32], None, message);
        }
    }
}
