//! Bulk tensor copies (TMA), and stores to the shared memory of other blocks of a cluster.
//!
//! The seed selects when a copy reads and writes: at once, or as late as the waits allow. The
//! result of a correct kernel does not depend on it.

use tegula_core::diagnostic::{FindingKind, Space};
use tegula_core::matrix::Shape;
use tegula_ir::{Order2d, ParamKind, SiteId, Tiles};

use super::agent::{AsyncAgent, copy_unit_elements, tile_elements};
use super::block::BlockState;
use super::bulk::{AsyncWrite, InFlightWrite, StoreAsync, TmaLoad, TmaStore};
use super::lanes::{Reg, active_lanes};
use super::launch::Arg;
use super::machine::Machine;
use super::memory::Buffer;
use super::observe::{EventKind, SharedRef};
use super::partial_outcome::PartialOutcome;
use super::program::ElementAddress;
use super::race::{Access, AccessKind, ClockView, OrderSource};
use super::remote::{ExitDependency, RemoteEffect, RemoteOp};
use super::report::Diagnostic;
use super::shadow::{GlobalShadow, Hazard, Proxy};
use super::warp::WarpContext;

/// Alignment in bytes of the first element of a stored line.
const STORE_ALIGNMENT: u32 = 16;

/// The tiling and storage order of a matrix.
struct TensorMap {
    tiles: Tiles,
    order: Order2d,
}

impl TensorMap {
    /// Index of an element of a tile in its matrix; `None` out of bounds. Coordinates are signed.
    fn index(&self, buffer: &Buffer, [batch, row, col]: [u32; 3], element: usize) -> Option<usize> {
        let [_, length] = self.tiles.lines(self.order).map(|extent| extent as usize);
        let [line, position] = [element / length, element % length].map(|offset| offset as i64);
        let (down, right) = if self.order == Order2d::ColMajor { (position, line) } else { (line, position) };
        let at = |start: u32, offset: i64| u64::try_from(i64::from(start as i32) + offset).ok();
        buffer.index(at(batch, 0)?, at(row, down)?, at(col, right)?)
    }
}

/// Keeps the first hazard of each kind and source line.
fn push_hazard(hazards: &mut Vec<(usize, Hazard)>, index: usize, hazard: Option<Hazard>) {
    let new = hazard.filter(|hazard| !hazards.iter().any(|(_, other)| other.dedup_key() == hazard.dedup_key()));
    hazards.extend(new.map(|hazard| (index, hazard)));
}

impl Machine<'_> {
    fn tensor_map(&self, param: usize) -> Option<(&Buffer, TensorMap)> {
        match (self.args[param], &self.kernel.params()[param].kind) {
            (Arg::Matrix(buffer), &ParamKind::Matrix { tiles: Some(tiles), order, .. }) => {
                let Shape { rows, cols, .. } = buffer.layout().shape;
                Some((buffer, TensorMap { tiles: tiles.of_matrix(order, [rows, cols]), order }))
            }
            _ => None,
        }
    }

    /// The tile of an element, as events name it.
    pub fn tile_ref(&self, array: usize, first: usize) -> SharedRef<'_> {
        self.shared_ref((array, first / tile_elements(&self.kernel.shared()[array]) as usize))
    }

    /// Elements of a tile of a matrix as declared, between the first elements of two tiles.
    fn declared_elements(&self, matrix: usize) -> u32 {
        match self.kernel.params()[matrix].kind {
            ParamKind::Matrix { tiles: Some(tiles), .. } => tiles.elements(),
            _ => 0,
        }
    }

    /// Elements of a copy (TMA box) of a matrix.
    fn box_elements(&self, matrix: usize) -> u32 {
        self.tensor_map(matrix).map_or(0, |(_, map)| map.tiles.elements())
    }

    /// Range of the shadow cells of elements of an array.
    fn cells(&self, array: usize, first: usize, elements: usize) -> std::ops::Range<usize> {
        let granule = self.granules[array];
        first / granule..(first + elements).div_ceil(granule)
    }

    /// Starts an asynchronous write to a block for a thread of its cluster. Until the write
    /// completes, uses of its destination are races.
    pub fn start_async_write(
        &self,
        (block, global): (&mut BlockState, &mut GlobalShadow),
        write: AsyncWrite,
        source: &OrderSource<'_>,
        (issuing_block, issue): (u32, Access),
    ) -> Vec<Diagnostic> {
        let (array, first, barrier) = write.destination();
        let site = SiteId(issue.site);
        let count = match write {
            AsyncWrite::TmaLoad(tile) => self.box_elements(tile.matrix) as usize,
            AsyncWrite::StoreAsync(store) => store.count,
        };
        let unit = first as u32 / copy_unit_elements(&self.kernel.shared()[array]);
        let lane = self.agents.lane(AsyncAgent::BulkCopy { array, unit });
        let writes = Access { clock: block.hopper.next_copy_clock(lane), site: issue.site, lane };
        let mut diagnostics: Vec<_> =
            self.check_mbarrier(block, barrier, source, (site, issue.lane)).into_iter().collect();
        if self.config.races {
            let (granule, by) = (self.granules[array], (site, issue.lane, AccessKind::Write));
            let proxy = if matches!(write, AsyncWrite::TmaLoad(_)) { Proxy::Async } else { Proxy::Generic };
            let (mut races, mut other_hazards) = (Vec::new(), Vec::new());
            for cell in self.cells(array, first, count) {
                let agent = (writes, proxy);
                match block.shadow.write_by_agent(&mut block.clocks, (array, cell), source, agent) {
                    Some(Hazard::Race(race)) => races.push((cell * granule, race)),
                    hazard => push_hazard(&mut other_hazards, cell * granule, hazard),
                }
            }
            let worst = races.iter().find(|(_, race)| race.earlier_writes).or(races.first());
            let worst = worst.map(|&(index, race)| (index, Hazard::Race(race)));
            let hazards = worst.into_iter().chain(other_hazards);
            diagnostics.extend(
                hazards.map(|(index, hazard)| self.hazard_diagnostic((Space::Shared, array, index), by, hazard)),
            );
            if let AsyncWrite::TmaLoad(tile) = write {
                diagnostics.extend(self.read_tile((block, global), tile, source, writes, (issuing_block, issue)));
            }
            let here = block.linear as u32;
            block
                .hopper
                .exit_dependencies
                .insert((here, lane), ExitDependency { issuing_block, issue, block: here, access: writes });
        }
        let phase = block.hopper.mbarriers[barrier.0][barrier.1].phase();
        block.hopper.in_flight.push(InFlightWrite { write, writes, phase, issuing_block, issue });
        diagnostics
    }

    /// Records that a copy reads its tile until its mbarrier is awaited; returns the bugs in that.
    fn read_tile(
        &self,
        (block, global): (&mut BlockState, &mut GlobalShadow),
        TmaLoad { matrix, at, .. }: TmaLoad,
        source: &OrderSource<'_>,
        agent: Access,
        (issuing_block, issue): (u32, Access),
    ) -> Vec<Diagnostic> {
        let Some((buffer, map)) = self.tensor_map(matrix).filter(|(buffer, _)| buffer.is_writable()) else {
            return Vec::new();
        };
        let (memory, site) = (self.allocations[matrix] as u32, SiteId(issue.site));
        let mut hazards = Vec::new();
        for index in (0..map.tiles.elements() as usize).filter_map(|element| map.index(buffer, at, element)) {
            self.record_access(matrix, index, issuing_block.into(), issue.lane, site, false);
            let (element, agent) = ((memory, index as u64), (agent, Proxy::Async));
            push_hazard(&mut hazards, index, global.read_by_agent(&mut block.clocks, element, source, agent));
        }
        let by = (site, issue.lane, AccessKind::Read);
        let diagnostic = |(index, hazard)| self.hazard_diagnostic((Space::Global, matrix, index), by, hazard);
        hazards.into_iter().map(diagnostic).collect()
    }

    /// Describes a hazard of an agent's access.
    fn hazard_diagnostic(
        &self,
        (space, memory, index): (Space, usize, usize),
        (site, lane, access_kind): (SiteId, u16, AccessKind),
        hazard: Hazard,
    ) -> Diagnostic {
        let (element, text) = self.element(space, memory, index);
        let verb = if access_kind == AccessKind::Write { "writes" } else { "reads" };
        match hazard {
            Hazard::Race(race) => self.race_diagnostic(space, memory, index, (site, lane, access_kind), race),
            Hazard::Uninitialized => Diagnostic {
                kind: FindingKind::Uninitialized,
                sites: vec![site],
                lanes: vec![lane],
                element: Some(element),
                message: format!("{verb} {text}, which is uninitialized"),
            },
            Hazard::MissingProxyFence(write) => Diagnostic {
                kind: FindingKind::MissingProxyFence,
                sites: vec![site, SiteId(write.site)],
                lanes: vec![lane, write.lane],
                element: Some(element),
                message: format!(
                    "{verb} {text} through the asynchronous proxy, which need not observe the write by {}; each writer must call `{}` before the threads synchronize",
                    self.describe_lane(write.lane),
                    if space == Space::Global { "fence_proxy_async_global" } else { "fence_proxy_async" }
                ),
            },
        }
    }

    /// Completes one asynchronous write in flight to a block; false if there are none.
    pub fn land_one(&self, block: &mut BlockState, partial: &mut PartialOutcome) -> bool {
        if block.hopper.in_flight.is_empty() {
            return false;
        }
        let which = block.random(block.hopper.in_flight.len() as u64) as usize;
        let in_flight = block.hopper.in_flight.swap_remove(which);
        if let Some(diagnostic) = self.land(block, in_flight) {
            self.record(partial, in_flight.issuing_block, diagnostic);
        }
        true
    }

    fn land(&self, block: &mut BlockState, in_flight: InFlightWrite) -> Option<Diagnostic> {
        let InFlightWrite { write, writes, phase, issue, .. } = in_flight;
        let (array, first, barrier) = write.destination();
        let slots = block.shared.arrays[array][first..].iter_mut();
        let bytes = match write {
            AsyncWrite::TmaLoad(TmaLoad { matrix, at, .. }) => {
                let (buffer, map) = self.tensor_map(matrix)?;
                let elements = map.tiles.elements();
                for (element, slot) in slots.enumerate().take(elements as usize) {
                    *slot = map.index(buffer, at, element).map_or(0, |index| buffer.load(index));
                }
                elements * buffer.ty().size() as u32
            }
            AsyncWrite::StoreAsync(StoreAsync { bits, count, .. }) => {
                slots.zip(bits).take(count).for_each(|(slot, bits)| *slot = bits.into());
                4 * count as u32
            }
        };
        let counter = &mut block.hopper.mbarriers[barrier.0][barrier.1];
        let now = counter.phase();
        let view = ClockView::of_agent(block.linear as u32, writes.lane, writes.clock);
        counter.complete_tx(bytes, &view);
        (now != phase).then(|| Diagnostic {
            kind: FindingKind::TransactionCount,
            sites: vec![SiteId(issue.site)],
            lanes: vec![issue.lane],
            element: None,
            message: format!(
                "starts a copy in phase {phase} of barrier {}, which completes without it: its bytes count in phase {now}; expect all bytes of a phase",
                self.mbarrier_name(barrier)
            ),
        })
    }

    /// Performs a thread's pending stores up to a group.
    fn complete_stores(&self, block: &mut BlockState, thread: usize, done: u32) {
        let Some(stores) = block.hopper.stores.get_mut(thread) else { return };
        for (_, store) in stores.pending.extract_if(.., |(group, _)| *group <= done) {
            self.store_now(&block.shared.arrays, store);
        }
    }

    /// Performs all pending stores, after the end of the block.
    pub fn complete_all_stores(&self, block: &mut BlockState) {
        (0..block.hopper.stores.len()).for_each(|thread| self.complete_stores(block, thread, u32::MAX));
    }

    fn store_now(&self, arrays: &[Vec<u64>], TmaStore { matrix, at, src_array, src_first }: TmaStore) {
        let Some((buffer, map)) = self.tensor_map(matrix) else { return };
        for (element, &bits) in arrays[src_array][src_first..].iter().enumerate().take(map.tiles.elements() as usize) {
            if let Some(index) = map.index(buffer, at, element) {
                buffer.store(index, bits);
            }
        }
    }
}

impl WarpContext<'_, '_> {
    /// Resolves the tiles of the lanes: coordinates in the matrix, first element in the array.
    fn tiles_at(&mut self, matrix: usize, at: [Reg; 3], shared: ElementAddress) -> Vec<(usize, [u32; 3], usize)> {
        let ElementAddress::Shared { array, .. } = shared else { return Vec::new() };
        let at = at.map(|reg| self.warp.registers.u32s(reg));
        let len = self.machine.kernel.shared()[array.index()].len() as usize;
        let size = (self.machine.declared_elements(matrix) as usize).max(1);
        let tiles = self.elements_at(shared, len + 1 - size);
        let (aligned, report_misaligned): (Vec<_>, Vec<_>) =
            tiles.into_iter().partition(|(_, first)| first % size == 0);
        if let Some(&(lane, first)) = report_misaligned.first() {
            let message = format!("copies a tile at element {first}, which is not the first of a tile");
            let (pc, thread) = (self.warp.pc, self.thread(lane));
            self.report(FindingKind::Misaligned, pc, &[thread.into()], None, message);
        }
        aligned.into_iter().map(|(lane, first)| (lane, at.map(|at| at[lane]), first)).collect()
    }

    pub fn tma_load(
        &mut self,
        matrix: usize,
        at: [Reg; 3],
        to: ElementAddress,
        barrier: ElementAddress,
        blocks: Option<Reg>,
    ) {
        let ElementAddress::Shared { array, .. } = to else { return };
        let array = array.index();
        let own = self.machine.rank(self.block);
        let barriers = self.mbarriers_at(barrier);
        let masks = blocks.map(|reg| self.warp.registers.u32s(reg));
        for (lane, at, first) in self.tiles_at(matrix, at, to) {
            let Some(&(_, barrier)) = barriers.iter().find(|(of, _)| *of == lane) else { continue };
            let tile = AsyncWrite::TmaLoad(TmaLoad { matrix, at, array, first, barrier });
            let (machine, blocks) = (self.machine, masks.map_or(1 << own, |masks| masks[lane]));
            self.observe(EventKind::TmaLoad {
                matrix: &machine.kernel.params()[matrix].name,
                to: machine.tile_ref(array, first),
                bytes: machine.box_elements(matrix) * machine.kernel.shared()[array].ty.size() as u32,
                barrier: machine.shared_ref(barrier),
                blocks,
            });
            if machine.config.races {
                let now = self.now(lane, None);
                self.check_launch_dependency(matrix, 0, now);
            }
            for rank in active_lanes(blocks) {
                self.start_async_write(lane, tile, rank as u32);
            }
        }
    }

    /// Starts an asynchronous write of a lane to a block of its cluster.
    fn start_async_write(&mut self, lane: usize, write: AsyncWrite, rank: u32) {
        let (thread, site) = (self.thread(lane), self.site());
        if rank != self.machine.rank(self.block) {
            if self.in_cluster(lane, rank) {
                let remote_op = RemoteOp::new(self.block, rank, (thread, site), RemoteEffect::AsyncWrite(write));
                self.block.hopper.outgoing.push(remote_op);
            }
            return;
        }
        let now = self.now(lane, None);
        let issue = Access { clock: now.clock, site: site.0, lane: thread };
        let issuing_block = self.block.linear as u32;
        let diagnostics = self.machine.start_async_write(
            (self.block, self.global),
            write,
            &OrderSource::Thread(now),
            (issuing_block, issue),
        );
        diagnostics.into_iter().for_each(|diagnostic| self.report_diagnostic(diagnostic));
        if self.block.random(2) == 0 {
            self.machine.land_one(self.block, self.partial);
        }
    }

    pub fn store_async(&mut self, to: ElementAddress, values: &[Reg], block: Reg, barrier: ElementAddress) {
        let ElementAddress::Shared { array, .. } = to else { return };
        let (array, count) = (array.index(), values.len());
        let ranks = self.warp.registers.u32s(block);
        let mut bits = [[0; 32]; 4];
        bits.iter_mut().zip(values).for_each(|(bits, &reg)| *bits = self.warp.registers.u32s(reg));
        let barriers = self.mbarriers_at(barrier);
        let end = self.machine.kernel.shared()[array].len() as usize + 1 - count;
        let mut sent = Vec::new();
        for (lane, first) in self.elements_at(to, end) {
            let Some(&(_, barrier)) = barriers.iter().find(|(of, _)| *of == lane) else { continue };
            if first % count != 0 {
                let message = format!("stores {count} values at element {first}, which is not a multiple of {count}");
                let (pc, thread) = (self.warp.pc, self.thread(lane));
                self.report(FindingKind::Misaligned, pc, &[thread.into()], None, message);
                continue;
            }
            sent.push((lane, StoreAsync { array, first, bits: bits.map(|bits| bits[lane]), count, barrier }));
        }
        let machine = self.machine;
        for alike in sent.chunk_by(|(one, a), (other, b)| (ranks[*one], a.barrier) == (ranks[*other], b.barrier)) {
            let (lane, StoreAsync { barrier, .. }) = alike[0];
            let bytes = (4 * count * alike.len()) as u32;
            self.observe(EventKind::StoreAsync { block: ranks[lane], barrier: machine.shared_ref(barrier), bytes });
        }
        for (lane, store) in sent {
            self.start_async_write(lane, AsyncWrite::StoreAsync(store), ranks[lane]);
        }
    }

    pub fn tma_store(&mut self, matrix: usize, at: [Reg; 3], from: ElementAddress) {
        let ElementAddress::Shared { array, .. } = from else { return };
        let (machine, array, site) = (self.machine, array.index(), self.site());
        let Some((buffer, map)) = machine.tensor_map(matrix) else { return };
        for (lane, at, first) in self.tiles_at(matrix, at, from) {
            let thread = self.thread(lane);
            // Loads may start anywhere. A misaligned store is an illegal instruction on an H200.
            let start = at[if map.order == Order2d::ColMajor { 1 } else { 2 }];
            let unit = STORE_ALIGNMENT / machine.kernel.shared()[array].ty.size() as u32;
            if !start.is_multiple_of(unit) {
                let message = format!(
                    "stores a tile whose lines begin at element {start}; TMA stores begin at multiples of {unit} elements (16 bytes)"
                );
                let pc = self.warp.pc;
                self.report(FindingKind::Misaligned, pc, &[thread.into()], None, message);
                continue;
            }
            let (name, from) = (&machine.kernel.params()[matrix].name, machine.tile_ref(array, first));
            self.observe(EventKind::TmaStore { matrix: name, from });
            let group = self.block.hopper.stores[usize::from(thread)].groups.start(site);
            let agent = Access { clock: group, site: site.0, lane: machine.agents.lane(AsyncAgent::StoreRead(thread)) };
            let now = self.now(lane, None);
            let elements = map.tiles.elements() as usize;
            self.read_by_agent(array, machine.cells(array, first, elements), now, agent);
            for element in 0..elements {
                if let (true, Some(index)) = (machine.config.races, map.index(buffer, at, element)) {
                    self.track_store_write(matrix, index, now, group);
                }
            }
            let store = TmaStore { matrix, at, src_array: array, src_first: first };
            if self.observer.is_some() || self.block.random(2) == 0 {
                machine.store_now(&self.block.shared.arrays, store);
            } else {
                self.block.hopper.stores[usize::from(thread)].pending.push((group, store));
            }
        }
    }

    /// Records reads of shadow cells by an agent that the lane started.
    pub fn read_by_agent(
        &mut self,
        array: usize,
        cells: impl Iterator<Item = usize>,
        now: super::race::CurrentAccess,
        agent: Access,
    ) {
        if !self.machine.config.races {
            return;
        }
        let mut hazards = Vec::new();
        for cell in cells {
            let hazard = self.block.shadow.read_by_agent(
                &mut self.block.clocks,
                (array, cell),
                &OrderSource::Thread(now),
                agent,
            );
            push_hazard(&mut hazards, cell * self.machine.granules[array], hazard);
        }
        for (index, hazard) in hazards {
            let by = (now.site, now.lane, AccessKind::Read);
            self.report_diagnostic(self.machine.hazard_diagnostic((Space::Shared, array, index), by, hazard));
        }
    }

    /// Records that a bulk store writes until its thread waits for it.
    fn track_store_write(&mut self, matrix: usize, index: usize, now: super::race::CurrentAccess, group: u32) {
        let machine = self.machine;
        self.check_launch_dependency(matrix, index, now);
        machine.record_access(matrix, index, self.block.linear, now.lane, now.site, true);
        let agent =
            Access { clock: group, site: now.site.0, lane: machine.agents.lane(AsyncAgent::StoreWrite(now.lane)) };
        let at = (machine.allocations[matrix] as u32, index as u64);
        match self.global.write_by_agent(&mut self.block.clocks, at, &now, agent) {
            Some(Hazard::Race(race)) => self.report_write_race(matrix, index, now, race),
            Some(hazard) => {
                let by = (now.site, now.lane, AccessKind::Write);
                self.report_diagnostic(machine.hazard_diagnostic((Space::Global, matrix, index), by, hazard));
            }
            None => {}
        }
    }

    pub fn bulk_commit_group(&mut self) {
        self.active_threads().for_each(|lane| self.block.hopper.stores[usize::from(lane)].groups.commit());
        self.observe(EventKind::BulkCommitGroup);
    }

    /// Waits for the lanes' bulk stores, or only for their reads, and acquires the agents' clocks.
    pub fn bulk_wait_group(&mut self, pending: u32, read: bool) {
        self.observe(EventKind::BulkWaitGroup(pending));
        for lane in self.active_threads() {
            let done = self.block.hopper.stores[usize::from(lane)].groups.wait(pending);
            self.machine.complete_stores(self.block, usize::from(lane), done);
            if self.machine.config.races && done > 0 {
                let agents = [AsyncAgent::StoreRead(lane), AsyncAgent::StoreWrite(lane)];
                for &agent in &agents[..if read { 1 } else { 2 }] {
                    let view = ClockView::of_agent(self.block.linear as u32, self.machine.agents.lane(agent), done);
                    self.block.clocks.acquire(lane, &view);
                }
            }
        }
    }
}
