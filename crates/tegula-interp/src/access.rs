//! Loads, stores, atomic operations and `cp.async` copies: addressing, checks, costs, values.

use rustc_hash::FxHashMap;
use tegula_core::diagnostic::{FindingKind, Space};
use tegula_core::element::Type;
use tegula_core::matrix::Shape;
use tegula_ir::{ArrayContents, AtomicOp, Compare, MemoryOrder, Scope, SharedArray, SiteId, Swizzle};

use super::access_summary::RacingAccess;
use super::agent::AsyncAgent;
use super::count::{
    SECTOR_BYTES, WavefrontCount, atomic_sectors, atomic_wavefronts, bytes, l1_bypass_sectors, load_wavefronts,
    sectors, wavefronts,
};
use super::lanes::{Reg, active_lanes, lanes_where};
use super::launch::Arg;
use super::memory::Buffer;
use super::observe::{EventKind, Request};
use super::pending_copies::PendingCopy;
use super::program::{CheckedCoordinate, ElementAddress, GuardRegister, MAX_WIDTH};
use super::race::{Access, AccessKind, ClockView, CurrentAccess, FIRST_AGENT, OrderSource, Race, threads_of};
use super::report::Diagnostic;
use super::semantics;
use super::semantics::register_bits;
use super::shadow::{Proxy, SameValueWrites};
use super::warp::WarpContext;

/// The elements that the lanes of an access address, after guards and bounds checks.
pub(super) struct Target {
    object: MemoryObject,
    /// First element of each lane, as an index into the matrix or array.
    first: [usize; 32],
    /// For each element of the access, the mask of the active lanes.
    lanes: [u32; MAX_WIDTH],
}

#[derive(Clone, Copy)]
enum MemoryObject {
    Global(usize),
    Shared(usize),
}

impl WarpContext<'_, '_> {
    pub fn load(
        &mut self,
        ty: Type,
        dst: &[Reg],
        at: ElementAddress,
        guard: GuardRegister,
        fill: Reg,
        (order, scope): (MemoryOrder, Scope),
    ) {
        let target = self.resolve_guarded(ty, at, guard, dst.len() as u32);
        self.count_access(ty, at, &target, dst.len() as u32, load_wavefronts);
        for (e, &dst) in dst.iter().enumerate() {
            let mut bits = match target.lanes[e] {
                u32::MAX => [0; 32],
                _ => self.warp.registers.bits(ty, fill),
            };
            self.check_lanes(&target, e, AccessKind::Read, strong_scope(order, scope));
            if order == MemoryOrder::Weak {
                self.check_read_only(&target, e);
            }
            self.fetch_lanes(&target, e, &mut bits);
            if order != MemoryOrder::Weak {
                for lane in active_lanes(target.lanes[e]) {
                    self.acquire(target.object, target.first[lane] + e, lane, order, scope);
                }
            }
            self.warp.registers.put_bits(ty, dst, &bits);
            self.observe_access(&target, e, AccessKind::Read, Some(dst), &bits);
        }
    }

    pub fn store(
        &mut self,
        ty: Type,
        values: &[Reg],
        at: ElementAddress,
        guard: GuardRegister,
        (order, scope): (MemoryOrder, Scope),
    ) {
        let mut target = self.resolve_guarded(ty, at, guard, values.len() as u32);
        self.count_access(ty, at, &target, values.len() as u32, wavefronts);
        for (e, &value) in values.iter().enumerate() {
            let bits = self.warp.registers.bits(ty, value);
            if order == MemoryOrder::Weak {
                let merged = self.merge_same_value_writes(&mut target, e, &bits);
                self.check_lanes(&target, e, AccessKind::Write, None);
                for (index, access) in merged {
                    let (block, at) = (self.block.linear as u32, self.shadow_key(target.object, index));
                    self.same_value_writes(target.object).add(at, block, access);
                }
                self.put_lanes(&target, e, &bits);
            } else {
                for lane in self.atomic_order(target.lanes[e]) {
                    let index = target.first[lane] + e;
                    self.check(target.object, index, lane, AccessKind::Write, Some(scope));
                    self.release(target.object, index, lane, order, scope, false);
                    self.put(target.object, index, bits[lane]);
                }
            }
            self.observe_access(&target, e, AccessKind::Write, Some(value), &bits);
        }
    }

    /// Merges stores of the same value to one element in one instruction.
    ///
    /// These do not race with each other. One lane stores; the accesses of the other lanes are
    /// returned, with their elements.
    fn merge_same_value_writes(&mut self, target: &mut Target, e: usize, bits: &[u64; 32]) -> Vec<(usize, Access)> {
        let lanes = target.lanes[e];
        let mut elements = active_lanes(lanes).map(|lane| target.first[lane]);
        if !self.machine.config.races || elements.by_ref().is_sorted_by(|a, b| a < b) {
            return Vec::new();
        }
        let mut first: FxHashMap<usize, (usize, bool)> = FxHashMap::default();
        for lane in active_lanes(lanes) {
            let (of, same) = first.entry(target.first[lane]).or_insert((lane, true));
            *same &= bits[*of] == bits[lane];
        }
        let merged = lanes_where(|lane| {
            let stores = lanes >> lane & 1 == 1;
            stores && first.get(&target.first[lane]).is_some_and(|&(of, same)| same && of != lane)
        });
        if merged != 0 {
            let lane = merged.trailing_zeros() as usize;
            let (element, text) = self.element(target.object, target.first[lane] + e);
            let message =
                format!("several lanes store the same value to {text} in one instruction; one store is enough");
            let (pc, thread) = (self.warp.pc, self.thread(lane));
            self.report(FindingKind::EqualStores, pc, &[thread.into()], Some(element), message);
            target.lanes[e] &= !merged;
        }
        let merged_accesses = active_lanes(merged).map(|lane| {
            let (index, now) = (target.first[lane] + e, self.now(lane, None));
            let race = self.find_race(target.object, index, &now);
            if let Some(race) = race.or_else(|| self.unordered_same_value_write(target.object, index, now)) {
                self.report_race(target.object, index, now, AccessKind::Write, race);
            }
            (index, now.access())
        });
        merged_accesses.collect()
    }

    /// The lanes of an atomic instruction or strong store, in the order of their accesses.
    fn atomic_order(&mut self, lanes: u32) -> Vec<usize> {
        let mut order: Vec<_> = active_lanes(lanes).collect();
        self.block.permute(&mut order);
        order
    }

    fn same_value_writes(&mut self, object: MemoryObject) -> &mut SameValueWrites {
        match object {
            MemoryObject::Shared(_) => &mut self.block.shadow.same_value_writes,
            MemoryObject::Global(_) => &mut self.global.same_value_writes,
        }
    }

    /// Returns a write merged with the last one that does not happen before the current access.
    fn unordered_same_value_write(&mut self, object: MemoryObject, index: usize, now: CurrentAccess) -> Option<Race> {
        let (at, clocks) = (self.shadow_key(object, index), &mut self.block.clocks);
        let same_value_writes = match object {
            MemoryObject::Shared(_) => &self.block.shadow.same_value_writes,
            MemoryObject::Global(_) => &self.global.same_value_writes,
        };
        same_value_writes.unordered(clocks, at, &OrderSource::Thread(now))
    }

    /// Returns an access that a weak write would race with.
    fn find_race(&mut self, object: MemoryObject, index: usize, now: &CurrentAccess) -> Option<Race> {
        let clocks = &mut self.block.clocks;
        match object {
            MemoryObject::Shared(array) => self.block.shadow.find_race(clocks, (array, index), now, true),
            MemoryObject::Global(param) => {
                self.global.find_race(clocks, self.machine.allocations[param] as u32, index as u64, now)
            }
        }
    }

    /// Reports a race with a write merged with the last one.
    fn check_same_value_writes(
        &mut self,
        object: MemoryObject,
        index: usize,
        now: CurrentAccess,
        access_kind: AccessKind,
    ) {
        let race = self.unordered_same_value_write(object, index, now);
        if access_kind == AccessKind::Write && now.scope.is_none() {
            let at = self.shadow_key(object, index);
            self.same_value_writes(object).clear(at);
        }
        if let Some(race) = race {
            self.report_race(object, index, now, access_kind, race);
        }
    }

    /// Key of an element in shadow memory: its array or allocation, and its index.
    fn shadow_key(&self, object: MemoryObject, index: usize) -> (u32, u64) {
        let memory = match object {
            MemoryObject::Shared(array) => array,
            MemoryObject::Global(param) => self.machine.allocations[param],
        };
        (memory as u32, index as u64)
    }

    pub fn atomic(
        &mut self,
        op: AtomicOp,
        ty: Type,
        [dst, value, expected]: [Reg; 3],
        at: ElementAddress,
        (order, scope): (MemoryOrder, Scope),
    ) {
        let target = self.resolve_guarded(ty, at, GuardRegister::Always, 1);
        self.count_access_by(ty, at, &target, 1, atomic_wavefronts(op, ty), |addresses, _| atomic_sectors(addresses));
        let (values, expected) = (self.warp.registers.bits(ty, value), self.warp.registers.bits(ty, expected));
        let (mut old, mut new) = ([0; 32], [0; 32]);
        for lane in self.atomic_order(target.lanes[0]) {
            let index = target.first[lane];
            self.check(target.object, index, lane, AccessKind::Read, Some(scope));
            self.acquire(target.object, index, lane, order, scope);
            old[lane] = self.fetch(target.object, index);
            new[lane] = semantics::atomic(op, ty, old[lane], values[lane], expected[lane]);
            // A failed comparison is a read: it neither writes nor releases.
            if matches!(op, AtomicOp::CompareExchange { .. }) && old[lane] != expected[lane] {
                continue;
            }
            self.check(target.object, index, lane, AccessKind::Write, Some(scope));
            self.release(target.object, index, lane, order, scope, true);
            self.put(target.object, index, new[lane]);
        }
        self.warp.registers.put_bits(ty, dst, &old);
        self.observe_access(&target, 0, AccessKind::Write, None, &new);
    }

    /// Whether the condition holds in every lane; if so, all lanes acquire.
    pub fn wait_until(&mut self, ty: Type, at: ElementAddress, cmp: Compare, value: Reg, scope: Scope) -> bool {
        let target = self.resolve_guarded(ty, at, GuardRegister::Always, 1);
        let values = self.warp.registers.bits(ty, value);
        let object = target.object;
        let waits = |run: &Self, lane: usize| {
            let bits = extended(ty, run.fetch(object, target.first[lane]));
            !semantics::compare(cmp, ty, bits, values[lane])
        };
        let waiting = lanes_where(|lane| target.lanes[0] >> lane & 1 == 1 && waits(self, lane));
        if waiting != 0 {
            self.warp.satisfied = self.warp.mask & !waiting;
            return false;
        }
        if let Some(some) = self.block.random_subset(target.lanes[0]) {
            self.warp.satisfied = some;
            return false;
        }
        self.count_access(ty, at, &target, 1, load_wavefronts);
        for lane in active_lanes(target.lanes[0]) {
            let index = target.first[lane];
            self.check(object, index, lane, AccessKind::Read, Some(scope));
            if self.machine.config.races {
                let (now, block, (memory, at)) =
                    (self.now(lane, Some(scope)), self.block.linear as u32, self.shadow_key(object, index));
                match object {
                    MemoryObject::Shared(_) => self.block.shadow.record_wait(block, (memory, at as u32), &now, scope),
                    MemoryObject::Global(_) => self.global.record_wait(block, (memory, at), &now, scope),
                }
            }
            self.acquire(object, index, lane, MemoryOrder::Acquire, scope);
        }
        true
    }

    pub fn copy_async(&mut self, ty: Type, to: ElementAddress, from: ElementAddress, width: u32, guard: GuardRegister) {
        let source = self.resolve_guarded(ty, from, guard, width);
        let target = self.resolve_guarded(ty, to, GuardRegister::Always, width);
        self.count_access(ty, from, &source, width, wavefronts);
        self.count_l1_bypass(ty, from, &source, &target, width);
        let reading = self.request;
        self.count_shared_write(ty, &target, width);
        let writing = self.request;
        let MemoryObject::Shared(array) = target.object else { return };
        let site = self.machine.program.sites[self.warp.pc];
        for e in 0..width as usize {
            let mut copied = [0; 32];
            for lane in active_lanes(target.lanes[e]) {
                let bits = if source.lanes[e] >> lane & 1 == 1 {
                    let index = source.first[lane] + e;
                    self.check(source.object, index, lane, AccessKind::Read, None);
                    self.track_copy_read(source.object, index, lane);
                    self.fetch(source.object, index)
                } else {
                    0
                };
                let index = target.first[lane] + e;
                self.check(target.object, index, lane, AccessKind::Write, None);
                let thread = (self.warp.index * 32) as u16 + lane as u16;
                if self.block.random(2) == 0 {
                    self.block.shared.arrays[array][index] = bits;
                }
                if self.machine.config.races {
                    self.block.shadow.cell(array, index).in_flight = thread + 1;
                }
                let copy = PendingCopy { array: array as u32, index: index as u32, bits, site };
                self.block.pending_copies.start(thread, copy);
                copied[lane] = bits;
            }
            for (target, access_kind, request) in
                [(&source, AccessKind::Read, reading), (&target, AccessKind::Write, writing)]
            {
                self.request = request.filter(|_| e == 0);
                self.observe_access(target, e, access_kind, None, &copied);
            }
        }
    }

    /// Records that a `cp.async` copy reads its source until its thread waits for it.
    fn track_copy_read(&mut self, source: MemoryObject, index: usize, lane: usize) {
        let (MemoryObject::Global(param), true) = (source, self.machine.config.races) else { return };
        if matches!(self.machine.args[param], Arg::Matrix(buffer) if buffer.is_writable()) {
            let (thread, site, now) = (self.thread(lane), self.site(), self.now(lane, None));
            let clock = self.block.pending_copies.start_read(thread, site);
            let agent = Access { clock, site: site.0, lane: self.machine.agents.lane(AsyncAgent::CopyAsync(thread)) };
            let at = (self.machine.allocations[param] as u32, index as u64);
            // The check of the issuing thread covers races with the start of the copy.
            self.global.read_by_agent(&mut self.block.clocks, at, &OrderSource::Thread(now), (agent, Proxy::Generic));
        }
    }

    /// Completes `cp.async` copies of the lanes; from here on, the lanes count as the writers.
    pub fn wait_copies(&mut self, pending: u32) {
        for lane in threads_of(self.warp.index, self.warp.mask) {
            if let Some(done) = self.block.pending_copies.complete_reads(lane, pending) {
                let agent = self.machine.agents.lane(AsyncAgent::CopyAsync(lane));
                let view = ClockView::of_agent(self.block.linear as u32, agent, done);
                self.block.clocks.acquire(lane, &view);
            }
            for copy in self.block.pending_copies.wait(lane, pending) {
                let (array, index) = (copy.array as usize, copy.index as usize);
                self.block.shared.arrays[array][index] = copy.bits;
                if self.machine.config.races {
                    let clock = self.block.clocks.clock(lane);
                    let cell = self.block.shadow.cell(array, index);
                    cell.in_flight = 0;
                    cell.write = Access { clock, site: copy.site.index() as u32, lane };
                }
            }
        }
    }

    /// Resolves the elements of the lanes: applies guards, reports and drops those out of bounds.
    fn resolve_guarded(&mut self, ty: Type, at: ElementAddress, guard: GuardRegister, width: u32) -> Target {
        self.resolve(ty, at, self.guarded_lanes(guard, width), width)
    }

    /// Resolves the elements of an access as [`WarpContext::resolve_guarded`], given the active
    /// lanes.
    pub fn resolve(&mut self, ty: Type, at: ElementAddress, lanes: [u32; MAX_WIDTH], width: u32) -> Target {
        match at {
            ElementAddress::Shared { array, index, offset, axes } => {
                let indices = self.warp.registers.u32s(index);
                // Indices are 32-bit and wrap, as they do in registers.
                let first = std::array::from_fn(|lane| indices[lane].wrapping_add(offset) as usize);
                let target = Target { object: MemoryObject::Shared(array.index()), first, lanes };
                let highest = first.into_iter().fold(0, usize::max);
                let target = self.check_axes(array.index(), axes, target, width);
                self.check_array_bounds(array.index(), target, highest as u64, width)
            }
            ElementAddress::Global { param, batch, row, col } => {
                let coordinates = [batch, row, col].map(|r| self.warp.registers.u32s(r));
                self.check_matrix_bounds(ty, param.index(), coordinates, lanes, width)
            }
        }
    }

    /// Mask of the active lanes of each element, by path and guard.
    fn guarded_lanes(&self, guard: GuardRegister, width: u32) -> [u32; MAX_WIDTH] {
        let first_lanes = |mask: u32| std::array::from_fn(|e| if e < width as usize { mask } else { 0 });
        match guard {
            GuardRegister::Always => first_lanes(self.warp.mask),
            GuardRegister::If(predicate) => {
                first_lanes(self.warp.mask & self.warp.registers.predicates[predicate as usize])
            }
            GuardRegister::First(count) => {
                let count = self.warp.registers.u32s(count);
                std::array::from_fn(|e| {
                    if e < width as usize { self.warp.mask & lanes_where(|lane| count[lane] > e as u32) } else { 0 }
                })
            }
        }
    }

    /// Reports and drops coordinates beyond their extent.
    ///
    /// An index past the end of a row is not an element of the next row.
    fn check_axes(&mut self, array: usize, axes: u32, mut target: Target, width: u32) -> Target {
        let machine = self.machine;
        for &CheckedCoordinate { axis, last, value, fixed, extent } in &machine.program.axes[axes as usize] {
            let coordinates = self.warp.registers.u32s(value);
            let at: [u64; 32] = std::array::from_fn(|lane| u64::from(coordinates[lane]) + u64::from(fixed));
            let extra = if last { u64::from(width) - 1 } else { 0 };
            if at.iter().all(|&at| at + extra < u64::from(extent)) {
                continue;
            }
            for (e, lanes) in target.lanes.iter_mut().enumerate().take(width as usize) {
                let along = if last { e as u64 } else { 0 };
                let out_of_bounds = lanes_where(|lane| at[lane] + along >= u64::from(extent)) & *lanes;
                if out_of_bounds != 0 {
                    *lanes &= !out_of_bounds;
                    let lane = out_of_bounds.trailing_zeros() as usize;
                    self.report_axis_bounds(array, (axis, at[lane] + along, extent), target.first[lane] + e, lane);
                }
            }
        }
        target
    }

    /// Reports and drops elements beyond the array.
    ///
    /// `highest` is the largest first element of any lane, inactive lanes included.
    fn check_array_bounds(&mut self, array: usize, mut target: Target, highest: u64, width: u32) -> Target {
        let len = self.block.shared.arrays[array].len() as u64;
        let elements = if highest + u64::from(width) <= len { 0 } else { width as usize };
        for e in 0..elements {
            let out_of_bounds = lanes_where(|lane| (target.first[lane] + e) as u64 >= len) & target.lanes[e];
            if out_of_bounds != 0 {
                let lane = out_of_bounds.trailing_zeros() as usize;
                self.report_array_bounds(array, (target.first[lane] + e) as u64, len, lane);
                target.lanes[e] &= !out_of_bounds;
            }
        }
        if width > 1 {
            let misaligned = lanes_where(|lane| !target.first[lane].is_multiple_of(width as usize)) & target.lanes[0];
            self.report_misaligned(misaligned, width);
        }
        target
    }

    fn check_matrix_bounds(
        &mut self,
        ty: Type,
        param: usize,
        [batches, rows, cols]: [[u32; 32]; 3],
        mut lanes: [u32; MAX_WIDTH],
        width: u32,
    ) -> Target {
        let object = MemoryObject::Global(param);
        let Arg::Matrix(buffer) = self.machine.args[param] else {
            return Target { object, first: [0; 32], lanes: [0; MAX_WIDTH] };
        };
        let Shape { batches: all, rows: high, cols: wide } = buffer.layout().shape;
        // Indices of coordinates out of bounds may wrap; they are unused.
        let first = std::array::from_fn(|lane| {
            let row = (batches[lane] as usize).wrapping_mul(high).wrapping_add(rows[lane] as usize);
            row.wrapping_mul(wide).wrapping_add(cols[lane] as usize)
        });
        // Usually every lane is in bounds, inactive lanes included; only otherwise check lane by
        // lane.
        let max_of = |lanes: &[u32; 32]| lanes.iter().fold(0, |max, &x| max.max(x)) as usize;
        let in_bounds = max_of(&batches) < all && max_of(&rows) < high && max_of(&cols) + width as usize <= wide;
        let row_out_of_bounds = if in_bounds {
            0
        } else {
            lanes_where(|lane| batches[lane] as usize >= all || rows[lane] as usize >= high)
        };
        for (e, lanes) in lanes.iter_mut().enumerate().take(if in_bounds { 0 } else { width as usize }) {
            let out_of_bounds = (row_out_of_bounds | lanes_where(|lane| cols[lane] as usize + e >= wide)) & *lanes;
            if out_of_bounds != 0 {
                let lane = out_of_bounds.trailing_zeros() as usize;
                let at = [batches[lane].into(), rows[lane].into(), u64::from(cols[lane]) + e as u64];
                self.report_matrix_bounds(param, buffer, at, lane);
                *lanes &= !out_of_bounds;
            }
        }
        if width > 1 {
            let unit = u64::from(bytes(ty, width));
            let misaligned = lanes_where(|lane| {
                let [b, r, c] = [batches[lane], rows[lane], cols[lane]].map(u64::from);
                !buffer.address(param, b, r, c).is_multiple_of(unit)
            });
            self.report_misaligned(misaligned & lanes[0], width);
        }
        Target { object, first, lanes }
    }

    /// Loads element `e` of each active lane.
    pub fn fetch_lanes(&self, target: &Target, e: usize, bits: &mut [u64; 32]) {
        let lanes = target.lanes[e];
        match target.object {
            MemoryObject::Shared(array) => {
                let words = &self.block.shared.arrays[array][..];
                if lanes == u32::MAX {
                    for lane in 0..32 {
                        bits[lane] = words[target.first[lane] + e];
                    }
                } else {
                    active_lanes(lanes).for_each(|lane| bits[lane] = words[target.first[lane] + e]);
                }
            }
            MemoryObject::Global(param) => {
                if let Arg::Matrix(buffer) = self.machine.args[param] {
                    buffer.gather(&target.first, e, lanes, bits);
                    if buffer.ty().size() == 1 {
                        active_lanes(lanes).for_each(|lane| bits[lane] = extended(buffer.ty(), bits[lane]));
                    }
                }
            }
        }
    }

    /// Checks element `e` of all active lanes, as [`WarpContext::check`].
    pub fn check_lanes(&mut self, target: &Target, e: usize, access_kind: AccessKind, scope: Option<Scope>) {
        let lanes = target.lanes[e];
        if !self.machine.config.races || lanes == 0 {
            return;
        }
        match target.object {
            MemoryObject::Global(param) => {
                if matches!(self.machine.args[param], Arg::Matrix(buffer) if !buffer.is_writable()) {
                    return;
                }
            }
            MemoryObject::Shared(array) if access_kind == AccessKind::Read => {
                return self.check_shared_reads(array, target, e, scope);
            }
            MemoryObject::Shared(_) => {}
        }
        for lane in active_lanes(lanes) {
            self.check(target.object, target.first[lane] + e, lane, access_kind, scope);
        }
    }

    /// Checks weak loads of a read-only parameter.
    ///
    /// They use the read-only path, which need not observe earlier writes of the launch, even
    /// ordered ones.
    fn check_read_only(&mut self, target: &Target, e: usize) {
        let MemoryObject::Global(param) = target.object else { return };
        if !self.machine.read_only[param] {
            return;
        }
        for lane in active_lanes(target.lanes[e]) {
            let (index, now) = (target.first[lane] + e, self.now(lane, None));
            let at = self.shadow_key(target.object, index);
            if let Some(write) = self.global.last_ordered_write(&mut self.block.clocks, at, now) {
                self.report_stale_read(param, index, now, write);
            }
        }
    }

    fn report_stale_read(&mut self, param: usize, index: usize, now: CurrentAccess, write: Access) {
        let (element, text) = self.element(MemoryObject::Global(param), index);
        let message = format!(
            "reads {text} through the read-only path, which need not observe the write by {} in this launch; bind the matrix to one parameter, and declare it `Access::ReadWrite`",
            self.machine.describe_lane(write.lane)
        );
        let (sites, lanes) = (vec![now.site, SiteId(write.site)], vec![now.lane, write.lane]);
        self.report_diagnostic(Diagnostic {
            kind: FindingKind::StaleRead,
            sites,
            lanes,
            element: Some(element),
            message,
        });
    }

    /// Checks reads of shared memory, the most frequent check, with fast paths.
    fn check_shared_reads(&mut self, array: usize, target: &Target, e: usize, scope: Option<Scope>) {
        let mut lanes = target.lanes[e];
        let index = target.first[lanes.trailing_zeros() as usize] + e;
        if lanes.count_ones() > 2 && active_lanes(lanes).all(|lane| target.first[lane] + e == index) {
            // All lanes read one element. Shadow memory records two readers; if two are ordered,
            // all are.
            let last = 1 << (31 - lanes.leading_zeros());
            let pair = last | 1 << (31 - (lanes & !last).leading_zeros());
            if active_lanes(pair).all(|lane| self.read_fast_path(array, index, lane, scope)) {
                return;
            }
            lanes &= !pair;
            active_lanes(pair).for_each(|lane| self.check(target.object, index, lane, AccessKind::Read, scope));
        }
        for lane in active_lanes(lanes) {
            let index = target.first[lane] + e;
            if !self.read_fast_path(array, index, lane, scope) {
                self.check(target.object, index, lane, AccessKind::Read, scope);
            }
        }
    }

    #[inline]
    fn read_fast_path(&mut self, array: usize, index: usize, lane: usize, scope: Option<Scope>) -> bool {
        let now = self.now(lane, scope);
        self.block.shadow.read_fast_path(&mut self.block.clocks, array, index, &now)
    }

    /// The access of a lane at the current instruction.
    #[inline]
    pub fn now(&self, lane: usize, scope: Option<Scope>) -> CurrentAccess {
        let thread = self.thread(lane);
        CurrentAccess { lane: thread, clock: self.block.clocks.clock(thread), site: self.site(), scope }
    }

    fn fetch(&self, object: MemoryObject, index: usize) -> u64 {
        match object {
            MemoryObject::Shared(array) => self.block.shared.arrays[array][index],
            MemoryObject::Global(param) => match self.machine.args[param] {
                Arg::Matrix(buffer) => extended(buffer.ty(), buffer.load(index)),
                Arg::Scalar { .. } => 0,
            },
        }
    }

    fn put(&mut self, object: MemoryObject, index: usize, bits: u64) {
        self.changed = self.changed || self.fetch(object, index) != bits;
        match object {
            MemoryObject::Shared(array) => self.block.shared.arrays[array][index] = bits,
            MemoryObject::Global(param) => {
                if let Arg::Matrix(buffer) = self.machine.args[param] {
                    buffer.store(index, bits);
                }
            }
        }
    }

    /// Stores element `e` of each active lane.
    pub fn put_lanes(&mut self, target: &Target, e: usize, bits: &[u64; 32]) {
        active_lanes(target.lanes[e]).for_each(|lane| self.put(target.object, target.first[lane] + e, bits[lane]));
    }

    /// Checks an access: initialized, no copy in flight, ordered after conflicting accesses.
    #[inline]
    fn check(
        &mut self,
        object: MemoryObject,
        index: usize,
        lane: usize,
        access_kind: AccessKind,
        scope: Option<Scope>,
    ) {
        if !self.machine.config.races {
            return;
        }
        let now = self.now(lane, scope);
        match object {
            MemoryObject::Shared(array) => self.check_shared(array, index, now, access_kind),
            MemoryObject::Global(param) => self.check_global(param, index, now, access_kind),
        }
    }

    #[inline]
    fn check_shared(&mut self, array: usize, index: usize, now: CurrentAccess, access_kind: AccessKind) {
        let object = MemoryObject::Shared(array);
        let (clocks, shadow) = (&mut self.block.clocks, &mut self.block.shadow);
        let cell = shadow.cell(array, index);
        let (in_flight, empty) = (cell.in_flight, !cell.written);
        let race = match access_kind {
            AccessKind::Read => shadow.read(clocks, array, index, &now),
            AccessKind::Write => shadow.write(clocks, array, index, &now),
        };
        if in_flight != 0 {
            self.report_in_flight(object, index, now, in_flight - 1);
        } else if empty && access_kind == AccessKind::Read {
            self.report_uninitialized(object, index, now);
        }
        if let Some(race) = race {
            self.report_race(object, index, now, access_kind, race);
        }
        self.check_same_value_writes(object, index, now, access_kind);
    }

    pub fn check_global(&mut self, param: usize, index: usize, now: CurrentAccess, access_kind: AccessKind) {
        self.check_launch_dependency(param, index, now);
        let Arg::Matrix(buffer) = self.machine.args[param] else { return };
        if !buffer.is_writable() {
            return;
        }
        let object = MemoryObject::Global(param);
        if access_kind == AccessKind::Read && !buffer.is_initialized(index) {
            self.report_uninitialized(object, index, now);
        }
        let clocks = &mut self.block.clocks;
        let memory = self.machine.allocations[param] as u32;
        let within = self.global.access(clocks, memory, index as u64, &now, access_kind == AccessKind::Write);
        self.machine.record_access(
            param,
            index,
            self.block.linear,
            now.lane,
            now.site,
            access_kind == AccessKind::Write,
        );
        if let Some(race) = within {
            self.report_race(object, index, now, access_kind, race);
        }
        self.check_same_value_writes(object, index, now, access_kind);
    }

    fn acquire(&mut self, object: MemoryObject, index: usize, lane: usize, order: MemoryOrder, scope: Scope) {
        if !self.machine.config.races {
            return;
        }
        let thread = (self.warp.index * 32) as u16 + lane as u16;
        let acquires = matches!(order, MemoryOrder::Acquire | MemoryOrder::AcqRel);
        let (allocations, site) = (&self.machine.allocations, self.site());
        let clocks = &mut self.block.clocks;
        let element = match object {
            MemoryObject::Shared(array) => self.block.shadow.releases(array as u32, index as u32),
            MemoryObject::Global(param) => self.global.releases(allocations[param] as u32, index as u64),
        };
        let missed = element.load(clocks, thread, acquires, scope);
        clocks.missed_releases.extend(missed.map(|block| (block, site)));
    }

    fn release(
        &mut self,
        object: MemoryObject,
        index: usize,
        lane: usize,
        order: MemoryOrder,
        scope: Scope,
        read_modify_write: bool,
    ) {
        if !self.machine.config.races {
            return;
        }
        let thread = (self.warp.index * 32) as u16 + lane as u16;
        let releases = matches!(order, MemoryOrder::Release | MemoryOrder::AcqRel);
        let clocks = &mut self.block.clocks;
        match object {
            MemoryObject::Shared(array) => {
                let element = self.block.shadow.releases(array as u32, index as u32);
                element.store(clocks, thread, releases, scope, read_modify_write);
            }
            MemoryObject::Global(param) => {
                let element = self.global.releases(self.machine.allocations[param] as u32, index as u64);
                element.store(clocks, thread, releases, scope, read_modify_write);
            }
        }
    }
}

/// Scope of a strong access; `None` for a weak one.
fn strong_scope(order: MemoryOrder, scope: Scope) -> Option<Scope> {
    (order != MemoryOrder::Weak).then_some(scope)
}

/// An element as a register holds it: 8-bit integers are extended.
fn extended(ty: Type, bits: u64) -> u64 {
    if ty.size() == 8 { bits } else { u64::from(register_bits(ty, bits)) }
}

/// Counts the sectors of a global-memory access from addresses and bytes a lane.
type SectorCount = fn(&[u64], u64) -> u64;

/// Cost counters.
impl WarpContext<'_, '_> {
    /// Counts an access; `count` is the wavefront rule for shared memory.
    pub fn count_access(&mut self, ty: Type, at: ElementAddress, target: &Target, width: u32, count: WavefrontCount) {
        self.count_access_by(ty, at, target, width, count, sectors);
    }

    /// Counts an access with another rule for sectors.
    fn count_access_by(
        &mut self,
        ty: Type,
        at: ElementAddress,
        target: &Target,
        width: u32,
        count: WavefrontCount,
        sectors: SectorCount,
    ) {
        if !self.machine.config.counters {
            return;
        }
        let (passes, conflicts) = match target.object {
            MemoryObject::Shared(_) => self.shared_cost(ty, target, width, count),
            MemoryObject::Global(param) => (self.global_sectors(ty, at, param, target, sectors), 0),
        };
        self.request = Some(Request { width, transactions: passes, conflicts });
        let counts = &mut self.partial.instruction_counts[self.warp.pc];
        counts.elements += target.lanes.iter().map(|l| u64::from(l.count_ones())).sum::<u64>();
        counts.requests += u64::from(target.lanes[0] != 0);
        counts.transactions += passes;
        counts.conflicts += conflicts;
    }

    fn count_shared_write(&mut self, ty: Type, target: &Target, width: u32) {
        if self.machine.config.counters {
            let (passes, conflicts) = self.shared_cost(ty, target, width, wavefronts);
            let counts = &mut self.partial.instruction_counts[self.warp.pc];
            counts.write_wavefronts += passes;
            counts.conflicts += conflicts;
            self.request = Some(Request { width, transactions: passes, conflicts });
        }
    }

    /// Counts the sectors of copies of 16 bytes a lane, which bypass L1 ([`l1_bypass_sectors`]).
    fn count_l1_bypass(&mut self, ty: Type, from: ElementAddress, source: &Target, target: &Target, width: u32) {
        let size = ty.size() as u64;
        if !self.machine.config.counters || size * u64::from(width) != 16 {
            return;
        }
        let (MemoryObject::Global(param), MemoryObject::Shared(array)) = (source.object, target.object) else { return };
        let Some(read) = self.global_addresses(from, param) else { return };
        let start = u64::from(self.machine.kernel.shared()[array].start);
        let written = std::array::from_fn(|lane| start + target.first[lane] as u64 * size);
        let sectors = l1_bypass_sectors(&read, &written, source.lanes[0]);
        let Some(request) = &mut self.request else { return };
        self.partial.instruction_counts[self.warp.pc].transactions += sectors - request.transactions;
        request.transactions = sectors;
    }

    fn shared_cost(&mut self, ty: Type, target: &Target, width: u32, count: WavefrontCount) -> (u64, u64) {
        let MemoryObject::Shared(array) = target.object else { return (0, 0) };
        let SharedArray { start, contents, .. } = self.machine.kernel.shared()[array];
        let size = ty.size() as u32;
        let lanes = target.lanes[0];
        // The interpreter stores elements in logical order; tiles in memory are swizzled.
        let swizzle = if let ArrayContents::Tiles(swizzle) = contents { swizzle } else { Swizzle::None };
        let addresses = std::array::from_fn(|lane| {
            u64::from(start) + u64::from(swizzle.permute((target.first[lane] as u32).wrapping_mul(size)))
        });
        let cache = &mut self.partial.request_caches[self.warp.pc][0];
        cache.cost(&addresses, lanes, 4, || count(&addresses, lanes, size * width))
    }

    fn global_sectors(
        &mut self,
        ty: Type,
        at: ElementAddress,
        param: usize,
        target: &Target,
        sectors: SectorCount,
    ) -> u64 {
        let Some(addresses) = self.global_addresses(at, param) else { return 0 };
        let lanes = target.lanes[0];
        let count = || {
            let mut touched = [0; 32];
            let active_addresses = active_lanes(lanes).map(|lane| addresses[lane]);
            let len = touched.iter_mut().zip(active_addresses).map(|(to, address)| *to = address).count();
            let widest = target.lanes.iter().filter(|&&lanes| lanes != 0).count().max(1);
            (sectors(&touched[..len], u64::from(bytes(ty, widest as u32))), 0)
        };
        if target.lanes[1..].iter().any(|&l| l != 0 && l != lanes) {
            // Some lanes read only part of a vector: the pattern of the first elements is not
            // enough.
            return count().0;
        }
        self.partial.request_caches[self.warp.pc][1].cost(&addresses, lanes, SECTOR_BYTES, count).0
    }

    /// Modeled addresses of the lanes' elements in a matrix.
    fn global_addresses(&self, at: ElementAddress, param: usize) -> Option<[u64; 32]> {
        let (Arg::Matrix(buffer), ElementAddress::Global { batch, row, col, .. }) = (self.machine.args[param], at)
        else {
            return None;
        };
        let [batches, rows, cols] = [batch, row, col].map(|r| self.warp.registers.u32s(r));
        Some(std::array::from_fn(|lane| {
            let [b, r, c] = [batches[lane], rows[lane], cols[lane]].map(u64::from);
            buffer.address(param, b, r, c)
        }))
    }

    pub fn observe_access(
        &mut self,
        target: &Target,
        e: usize,
        access_kind: AccessKind,
        register: Option<Reg>,
        bits: &[u64; 32],
    ) {
        let request = self.request.take();
        if self.observer.is_none() {
            return;
        }
        let elements =
            std::array::from_fn(|lane| (target.lanes[e] >> lane & 1 == 1).then(|| (target.first[lane] + e) as u64));
        let kernel = self.machine.kernel;
        let (space, memory, name) = match target.object {
            MemoryObject::Shared(array) => (Space::Shared, array, kernel.shared()[array].name.as_str()),
            MemoryObject::Global(param) => (Space::Global, param, kernel.params()[param].name.as_str()),
        };
        let write = access_kind == AccessKind::Write;
        self.observe(EventKind::Access { write, space, name, memory, register, elements: &elements, bits, request });
    }
}

/// Diagnostics.
impl WarpContext<'_, '_> {
    /// The space, name and coordinates of an element, and its text for messages.
    fn element(&self, object: MemoryObject, index: usize) -> ((Space, String, Vec<u64>), String) {
        match object {
            MemoryObject::Shared(array) => self.machine.element(Space::Shared, array, index),
            MemoryObject::Global(param) => self.machine.element(Space::Global, param, index),
        }
    }

    fn report_axis_bounds(&mut self, array: usize, (axis, at, extent): (usize, u64, u32), index: usize, lane: usize) {
        let array = &self.machine.kernel.shared()[array];
        let name = array.name.clone();
        let message = format!(
            "coordinate {at} along axis {axis} of shared array {name} {:?}, whose extent is {extent}",
            array.dims
        );
        let (pc, thread) = (self.warp.pc, self.warp.index * 32 + lane as u32);
        self.report(FindingKind::OutOfBounds, pc, &[thread], Some((Space::Shared, name, vec![index as u64])), message);
    }

    pub fn report_array_bounds(&mut self, array: usize, index: u64, len: u64, lane: usize) {
        let name = self.machine.kernel.shared()[array].name.clone();
        let message = format!("element {index} of shared array {name}, which has {len} elements");
        let thread = self.warp.index * 32 + lane as u32;
        let pc = self.warp.pc;
        self.report(FindingKind::OutOfBounds, pc, &[thread], Some((Space::Shared, name, vec![index])), message);
    }

    fn report_matrix_bounds(&mut self, param: usize, buffer: &Buffer, [b, r, c]: [u64; 3], lane: usize) {
        let name = self.machine.kernel.params()[param].name.clone();
        let shape = buffer.layout().shape;
        let batch = if shape.batches == 1 && b == 0 { String::new() } else { format!(" of matrix {b}") };
        let message = format!("element ({r}, {c}){batch} of {name}, which is {shape}");
        let thread = self.warp.index * 32 + lane as u32;
        let pc = self.warp.pc;
        self.report(FindingKind::OutOfBounds, pc, &[thread], Some((Space::Global, name, vec![r, c])), message);
    }

    fn report_misaligned(&mut self, lanes: u32, width: u32) {
        if lanes == 0 {
            return;
        }
        let lane = lanes.trailing_zeros();
        let message = format!("vector access of {width} elements, whose first element is not at a multiple of {width}");
        let thread = self.warp.index * 32 + lane;
        let pc = self.warp.pc;
        self.report(FindingKind::Misaligned, pc, &[thread], None, message);
    }

    fn report_uninitialized(&mut self, object: MemoryObject, index: usize, now: CurrentAccess) {
        let (element, text) = self.element(object, index);
        let pc = self.warp.pc;
        let message = format!("reads {text}, which is uninitialized");
        self.report(FindingKind::Uninitialized, pc, &[now.lane.into()], Some(element), message);
    }

    fn report_in_flight(&mut self, object: MemoryObject, index: usize, now: CurrentAccess, copier: u16) {
        let (element, text) = self.element(object, index);
        let pc = self.warp.pc;
        let owner = self.machine.thread(copier.into());
        let message = format!(
            "accesses {text} while a `cp.async` copy of thread {owner:?} to it is in flight; wait for the copy first"
        );
        self.report(FindingKind::InFlight, pc, &[now.lane.into(), copier.into()], Some(element), message);
    }

    /// Reports a race of a write to a matrix.
    pub fn report_write_race(&mut self, param: usize, index: usize, now: CurrentAccess, race: Race) {
        self.report_race(MemoryObject::Global(param), index, now, AccessKind::Write, race);
    }

    fn report_race(
        &mut self,
        object: MemoryObject,
        index: usize,
        now: CurrentAccess,
        access_kind: AccessKind,
        race: Race,
    ) {
        let machine = self.machine;
        let Race { block, earlier, earlier_writes } = race;
        if earlier.lane >= FIRST_AGENT {
            let (space, memory) = match object {
                MemoryObject::Shared(array) => (Space::Shared, array),
                MemoryObject::Global(param) => (Space::Global, param),
            };
            return self.report_diagnostic(machine.race_diagnostic(
                space,
                memory,
                index,
                (now.site, now.lane, access_kind),
                race,
            ));
        }
        let here = self.block.linear;
        let one = RacingAccess {
            block: here as u32,
            lane: now.lane,
            site: now.site,
            writes: access_kind == AccessKind::Write,
        };
        let other = RacingAccess { block, lane: earlier.lane, site: SiteId(earlier.site), writes: earlier_writes };
        let sites = [one, other].map(|u| machine.kernel.site(u.site));
        let (element, _) = self.element(object, index);
        let missed = self.block.clocks.missed_releases.get(&block).copied();
        self.record_finding(FindingKind::Race, &sites, || machine.race_finding(element, one, other, missed));
    }
}
