//! Loads, stores and atomic operations: addresses, checks, costs, values.

use rustc_hash::FxHashMap;
use tegula_core::diagnostic::FindingKind;
use tegula_interp::rules::{
    Access, AccessKind, BlockClocks, CurrentAccess, OrderSource, Race, SameValueWrites, SharedShadow, WavefrontCount,
    atomic_sectors, atomic_wavefronts, load_wavefronts, sectors, wavefronts,
};
use tegula_ir::{AtomicOp, MemoryOrder, Operand, Scope};

use crate::address::{Location, allocation_address, locate, shared_address};
use crate::alu::Lanes;
use crate::ast::{ScalarType, StateSpace};
use crate::atomic;
use crate::program::{Address, Atomic, AtomicKind, Reg, SINK, Transfer};
use crate::report::{self, Report};
use crate::run::{Run, lanes, lanes_where};

/// Counts the sectors of a request, from the addresses of the lanes and the bytes of each lane.
pub(crate) type SectorCount = fn(&[u64], u64) -> u64;

/// The kind of an access to memory, for the race detector.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub access: AccessKind,
    /// Scope of a strong access; `None` for a weak access.
    pub scope: Option<Scope>,
    /// See [`Transfer::lockstep`].
    pub lockstep: bool,
}

impl Kind {
    pub const READ: Kind = Kind { access: AccessKind::Read, scope: None, lockstep: false };
    pub const WRITE: Kind = Kind { access: AccessKind::Write, scope: None, lockstep: false };

    pub fn writes(self) -> bool {
        self.access == AccessKind::Write
    }
}

/// The memory locations of an access, after the checks of bounds and alignment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Target {
    pub locations: [Location; 32],
    /// Lanes whose access is in bounds and aligned.
    pub lanes: u32,
}

/// Index of shared memory in [`SharedShadow`], which has one array.
const SHARED: usize = 0;

impl Run<'_, '_> {
    /// The address of each lane.
    pub fn addresses(&self, frame: u32, address: &Address) -> Lanes {
        let base = self.register(address.base);
        let fixed = if address.frame { address.offset + i64::from(frame) } else { address.offset };
        let narrow =
            address.narrow && matches!(address.space, Some(StateSpace::Shared | StateSpace::Local | StateSpace::Param));
        std::array::from_fn(|lane| {
            let sum = base[lane].wrapping_add_signed(fixed);
            if narrow { sum & 0xffff_ffff } else { sum }
        })
    }

    /// Resolves the addresses of the active lanes. Reports invalid ones, and removes their lanes.
    pub fn resolve(&mut self, space: Option<StateSpace>, addresses: &Lanes, bytes: u32, writes: bool) -> Target {
        if let Some(target) = self.resolve_together(space, addresses, bytes) {
            return target;
        }
        let count = self.machine.allocations.len() as u32;
        let mut target = Target { locations: [Location::Nowhere(0); 32], lanes: self.active };
        for lane in lanes(self.active) {
            let location = locate(space, addresses[lane], count);
            target.locations[lane] = location;
            if !self.is_in_bounds(location, bytes) {
                target.lanes &= !(1 << lane);
                self.report_bounds(lane, location, addresses[lane], bytes, writes);
            } else if !addresses[lane].is_multiple_of(u64::from(bytes)) {
                target.lanes &= !(1 << lane);
                let message = format!(
                    "accesses {bytes} bytes at {}, whose address is not a multiple of {bytes}",
                    self.describe(location)
                );
                self.report(Report::new(FindingKind::Misaligned, message).lanes(1 << lane));
            }
        }
        target
    }

    /// Resolves addresses that are all in one symbol of shared memory or in one allocation, the
    /// most frequent case. `None` if one of them is elsewhere or not aligned.
    fn resolve_together(&self, space: Option<StateSpace>, addresses: &Lanes, bytes: u32) -> Option<Target> {
        let first = lanes(self.active).next()?;
        let active = self.active;
        let together = |low: u64, high: u64| {
            let end = high.checked_sub(u64::from(bytes)).filter(|&end| end >= low)?;
            let misfit = |lane: usize, address: u64| {
                u64::from(active >> lane & 1 == 1)
                    & u64::from(address < low || address > end || address & u64::from(bytes - 1) != 0)
            };
            let misfits = (0..32).fold(0, |all, lane| all | misfit(lane, addresses[lane]));
            (misfits == 0).then_some(())
        };
        let locations = match locate(space, addresses[first], self.machine.allocations.len() as u32) {
            Location::Shared { symbol, .. } if space == Some(StateSpace::Shared) => {
                let known = self.machine.program.shared.get(symbol as usize)?;
                let end = known.bytes.map_or(self.machine.shared_bytes, |bytes| known.offset + bytes);
                let base = shared_address(symbol, 0);
                together(base + u64::from(known.offset), base + u64::from(end.min(self.machine.shared_bytes)))?;
                addresses.map(|address| Location::Shared { symbol, offset: address.wrapping_sub(base) as u32 })
            }
            Location::Global { allocation, .. } => {
                let base = allocation_address(allocation);
                together(base, base + self.machine.allocations[allocation as usize].storage.len)?;
                addresses.map(|address| Location::Global { allocation, offset: address.wrapping_sub(base) as i64 })
            }
            _ => return None,
        };
        Some(Target { locations, lanes: active })
    }

    pub fn is_in_bounds(&self, location: Location, bytes: u32) -> bool {
        let within = |offset: i64, len: u64| offset >= 0 && offset as u64 + u64::from(bytes) <= len;
        match location {
            Location::Global { allocation, offset } => {
                within(offset, self.machine.allocations[allocation as usize].storage.len)
            }
            Location::Shared { symbol, offset } => {
                let end = u64::from(offset) + u64::from(bytes);
                let of_symbol = |symbol: &crate::program::SharedSymbol| {
                    offset >= symbol.offset && symbol.bytes.is_none_or(|bytes| end <= u64::from(symbol.offset + bytes))
                };
                end <= u64::from(self.machine.shared_bytes)
                    && self.machine.program.shared.get(symbol as usize).is_some_and(of_symbol)
            }
            Location::Local { offset } => within(offset, self.warp.local[0].len() as u64),
            Location::Param { offset } => within(offset, self.machine.params.len() as u64),
            Location::Nowhere(_) => false,
        }
    }

    fn report_bounds(&mut self, lane: usize, location: Location, address: u64, bytes: u32, writes: bool) {
        let verb = if writes { "writes" } else { "reads" };
        let machine = self.machine;
        let place = match location {
            Location::Global { allocation, offset } => {
                let known = &machine.allocations[allocation as usize];
                let elements: u64 = known.storage.len / u64::from(known.ty.size().max(1));
                let (_, distance) =
                    report::nearest(machine, allocation_address(allocation).wrapping_add_signed(offset))
                        .unwrap_or_default();
                format!("{}, {distance}, which has {elements} elements", machine.element(allocation as usize, offset))
            }
            Location::Shared { symbol, offset } => {
                let known = machine.program.shared.get(symbol as usize);
                let size =
                    known.map_or(0, |known| known.bytes.unwrap_or(machine.shared_bytes.saturating_sub(known.offset)));
                format!("{}, which has {size} bytes", machine.shared_element(symbol, offset))
            }
            Location::Nowhere(address) => match report::nearest(machine, address) {
                _ if address < 1 << 32 => format!("address {address:#x}, probably from a null pointer"),
                Some((_, distance)) => format!("address {address:#x}, {distance}"),
                None => format!("address {address:#x}"),
            },
            other => self.describe(other),
        };
        let _ = address;
        let element = self.describe(location);
        let message = format!("{verb} {bytes} bytes out of bounds: {place}");
        self.report(Report::new(FindingKind::OutOfBounds, message).lanes(1 << lane).element(element));
    }

    pub fn load(&mut self, frame: u32, transfer: &Transfer) {
        let (size, count) = (transfer.ty.size(), transfer.registers.len() as u32);
        let addresses = self.addresses(frame, &transfer.address);
        let target = self.resolve(transfer.address.space, &addresses, size * count, false);
        self.count(&target, size * count, count, (load_wavefronts, sectors));
        let kind = Kind { scope: strong(transfer.order, transfer.scope), lockstep: transfer.lockstep, ..Kind::READ };
        for (e, &dst) in transfer.registers.iter().enumerate() {
            let at = self.elements(&target, e as u32 * size);
            self.check_lanes(&at, size, kind);
            if transfer.read_only {
                self.check_read_only(&at, size);
            }
            if kind.scope.is_some() {
                lanes(at.lanes)
                    .for_each(|lane| self.acquire((at.locations[lane], size), lane, transfer.order, transfer.scope));
            }
            let mut values = [0; 32];
            lanes(at.lanes).for_each(|lane| values[lane] = self.fetch(at.locations[lane], lane, size));
            if transfer.ty.is_signed() && size < 8 {
                let (shift, mask) = (64 - 8 * size, u64::MAX >> (64 - transfer.register_bits));
                values = values.map(|value| ((value << shift) as i64 >> shift) as u64 & mask);
            }
            self.put(dst, &values);
        }
    }

    pub fn store(&mut self, frame: u32, transfer: &Transfer) {
        let (size, count) = (transfer.ty.size(), transfer.registers.len() as u32);
        let addresses = self.addresses(frame, &transfer.address);
        let target = self.resolve(transfer.address.space, &addresses, size * count, true);
        self.count(&target, size * count, count, (wavefronts, sectors));
        let scope = strong(transfer.order, transfer.scope);
        let kind = Kind { scope, lockstep: transfer.lockstep, ..Kind::WRITE };
        for (e, &src) in transfer.registers.iter().enumerate() {
            let mut at = self.elements(&target, e as u32 * size);
            let values = *self.register(src);
            if scope.is_none() {
                self.store_weak(&mut at, size, &values);
                continue;
            }
            for lane in self.order(at.lanes) {
                self.check(at.locations[lane], lane, size, kind);
                self.release(at.locations[lane], lane, (transfer.order, transfer.scope), false);
                self.put_memory(at.locations[lane], lane, size, values[lane]);
            }
        }
    }

    /// Stores one element of each lane by a weak write.
    pub fn store_weak(&mut self, at: &mut Target, size: u32, values: &Lanes) {
        let merged = self.merge_same_values(at, size, values);
        self.check_lanes(at, size, Kind::WRITE);
        for (location, access) in merged {
            let block = self.block.linear as u32;
            for key in self.shadow_keys(location, size) {
                self.same_value_writes(location).add(key, block, access);
            }
        }
        for lane in lanes(at.lanes) {
            self.put_memory(at.locations[lane], lane, size, values[lane]);
        }
    }

    /// The target of an element of a vector access, `bytes` after the first element.
    pub fn elements(&self, target: &Target, bytes: u32) -> Target {
        let locations = target.locations.map(|location| match location {
            Location::Global { allocation, offset } => {
                Location::Global { allocation, offset: offset + i64::from(bytes) }
            }
            Location::Shared { symbol, offset } => Location::Shared { symbol, offset: offset + bytes },
            Location::Local { offset } => Location::Local { offset: offset + i64::from(bytes) },
            Location::Param { offset } => Location::Param { offset: offset + i64::from(bytes) },
            other => other,
        });
        Target { locations, lanes: target.lanes }
    }

    /// The lanes of an atomic instruction or strong store, in the order of their accesses.
    fn order(&mut self, mask: u32) -> Vec<usize> {
        let mut order: Vec<usize> = lanes(mask).collect();
        self.block.permute(&mut order);
        order
    }

    /// Merges the stores of one instruction that write the same value to the same element.
    ///
    /// They do not race with each other. One lane stores; the accesses of the others are returned.
    fn merge_same_values(&mut self, at: &mut Target, size: u32, values: &Lanes) -> Vec<(Location, Access)> {
        if !self.machine.config.checks || at.lanes.count_ones() < 2 {
            return Vec::new();
        }
        let key = |location: Location| match location {
            Location::Global { allocation, offset } => Some((1 + u64::from(allocation), offset as u64)),
            Location::Shared { offset, .. } => Some((0, u64::from(offset))),
            _ => None,
        };
        // Fast path: ascending addresses are distinct.
        let keys: [Option<(u64, u64)>; 32] = at.locations.map(key);
        if lanes(at.lanes).map(|lane| keys[lane]).is_sorted_by(|a, b| a < b) {
            return Vec::new();
        }
        let value_mask = if size == 8 { u64::MAX } else { (1 << (8 * size)) - 1 };
        let mut first: FxHashMap<(u64, u64), (usize, bool)> = FxHashMap::default();
        for lane in lanes(at.lanes) {
            let Some(key) = keys[lane] else { continue };
            let (of, same) = first.entry(key).or_insert((lane, true));
            *same &= (values[*of] ^ values[lane]) & value_mask == 0;
        }
        let merged = at.lanes
            & lanes_where(|lane| {
                keys[lane].and_then(|key| first.get(&key)).is_some_and(|&(of, same)| same && of != lane)
            });
        if merged == 0 {
            return Vec::new();
        }
        let lane = merged.trailing_zeros() as usize;
        let text = self.describe(at.locations[lane]);
        let message = format!("stores to {text} the same value as other lanes in one instruction; one store is enough");
        self.report(Report::new(FindingKind::EqualStores, message).lanes(1 << lane).element(text));
        at.lanes &= !merged;
        let mut accesses = Vec::new();
        for lane in lanes(merged) {
            let (location, now) = (at.locations[lane], self.now(lane, None));
            if !self.is_tracked(location) {
                continue;
            }
            for (memory, index) in self.shadow_keys(location, size) {
                let clocks = &mut self.block.clocks;
                let race = match location {
                    Location::Shared { .. } => {
                        self.block.shadow.find_race(clocks, (SHARED, index as usize), &now, true)
                    }
                    _ => self.global.find_race(clocks, memory, index, &now),
                };
                if let Some(race) = race.or_else(|| self.unordered_same_value(location, (memory, index), &now)) {
                    self.report_race(location, now, true, race);
                }
            }
            accesses.push((location, now.access()));
        }
        accesses
    }

    fn unordered_same_value(&mut self, location: Location, key: (u32, u64), now: &CurrentAccess) -> Option<Race> {
        let clocks = &mut self.block.clocks;
        let writes = match location {
            Location::Shared { .. } => &self.block.shadow.same_value_writes,
            _ => &self.global.same_value_writes,
        };
        writes.unordered(clocks, key, &OrderSource::Thread(*now))
    }

    fn same_value_writes(&mut self, location: Location) -> &mut SameValueWrites {
        match location {
            Location::Shared { .. } => &mut self.block.shadow.same_value_writes,
            _ => &mut self.global.same_value_writes,
        }
    }

    /// The shadow cells of an element: its memory, and the indices of its cells.
    pub fn shadow_keys(&self, location: Location, size: u32) -> impl Iterator<Item = (u32, u64)> + use<> {
        let [shared, global] = self.machine.program.granules.map(u64::from);
        let (memory, offset, granule) = match location {
            Location::Shared { offset, .. } => (SHARED as u32, u64::from(offset), shared),
            Location::Global { allocation, offset } => (allocation, offset as u64, global),
            _ => (0, 0, 1),
        };
        (offset / granule..(offset + u64::from(size)).div_ceil(granule)).map(move |index| (memory, index))
    }

    /// Whether the race detector tracks accesses to a location.
    fn is_tracked(&self, location: Location) -> bool {
        match location {
            Location::Shared { .. } => true,
            Location::Global { allocation, .. } => self.machine.allocations[allocation as usize].tracked,
            _ => false,
        }
    }

    /// Checks an access to one element by each lane: initialized, no copy in flight, no race.
    pub fn check_lanes(&mut self, at: &Target, size: u32, kind: Kind) {
        if !self.machine.config.checks {
            return;
        }
        let mut mask = at.lanes;
        if !kind.writes() && kind.scope.is_none() {
            mask = self.check_reads_fast(at, size);
        }
        for lane in lanes(mask) {
            self.check(at.locations[lane], lane, size, kind);
        }
    }

    /// Checks reads of shared memory on a fast path; returns the lanes that need the full check.
    fn check_reads_fast(&mut self, at: &Target, size: u32) -> u32 {
        let granule = self.machine.program.granules[0];
        let mut rest = at.lanes;
        let Some(first) = lanes(at.lanes).next() else { return 0 };
        // If all lanes read one element, only the first and the last are checked: shadow memory
        // records two readers of a warp, and a write that is ordered with two of them is ordered
        // with all.
        let mut mask = at.lanes;
        let last = 31 - at.lanes.leading_zeros();
        if mask.count_ones() > 2 && lanes(mask).all(|lane| at.locations[lane] == at.locations[first]) {
            mask = 1 << first | 1 << last;
        }
        for lane in lanes(mask) {
            let Location::Shared { offset, .. } = at.locations[lane] else { return at.lanes };
            let now = self.now(lane, None);
            let mut cells = offset / granule..(offset + size).div_ceil(granule);
            let (shadow, clocks) = (&mut self.block.shadow, &mut self.block.clocks);
            if cells.all(|cell| shadow.read_fast_path(clocks, SHARED, cell as usize, &now)) {
                rest &= !(1 << lane);
            } else if mask != at.lanes {
                return at.lanes;
            }
        }
        if mask != at.lanes { 0 } else { rest }
    }

    /// Checks an access of a lane, and records it in shadow memory.
    pub fn check(&mut self, location: Location, lane: usize, size: u32, kind: Kind) {
        if !self.machine.config.checks {
            return;
        }
        match location {
            Location::Shared { .. } => self.check_shared(location, lane, size, kind),
            Location::Global { allocation, offset } => self.check_global((allocation, offset as u64), lane, size, kind),
            Location::Local { offset }
                if !kind.writes() && !self.warp.local[lane].is_initialized(offset as usize, size) =>
            {
                self.report_uninitialized(location, lane);
            }
            _ => {}
        }
        if kind.scope.is_some() && self.machine.mixes_sizes && self.is_tracked(location) {
            self.check_sizes(location, lane, size, kind);
        }
    }

    fn check_shared(&mut self, location: Location, lane: usize, size: u32, kind: Kind) {
        let now = self.now(lane, kind.scope);
        let (mut empty, mut in_flight, mut race) = (false, None, None);
        let granule = self.machine.program.granules[0];
        for (_, index) in self.shadow_keys(location, size) {
            let (clocks, shadow) = (&mut self.block.clocks, &mut self.block.shadow);
            if kind.lockstep {
                race = race.or_else(|| same_warp_race(shadow, clocks, index as usize, now, kind.writes()));
            }
            let cell = shadow.cell(SHARED, index as usize);
            empty |= !cell.written;
            if cell.in_flight != 0 && in_flight.is_none() {
                in_flight = Some((cell.in_flight - 1, index as u32 * granule));
            }
            let found = if kind.writes() {
                shadow.write(clocks, SHARED, index as usize, &now)
            } else {
                shadow.read(clocks, SHARED, index as usize, &now)
            };
            race = race.or(found).or_else(|| self.unordered_same_value(location, (SHARED as u32, index), &now));
            if kind.writes() && kind.scope.is_none() {
                self.block.shadow.same_value_writes.clear((SHARED as u32, index));
            }
        }
        if let Some((copier, offset)) = in_flight {
            let text = self.describe(location);
            let site = self.block.copies[usize::from(copier)].site(offset);
            let copier = self.machine.describe_thread(copier);
            let message = format!(
                "accesses {text} while the asynchronous copy of {copier} to it is in flight; wait for the copy first"
            );
            self.report_with(Report::new(FindingKind::InFlight, message).lanes(1 << lane).element(text), site);
        } else if empty && !kind.writes() {
            self.report_uninitialized(location, lane);
        }
        if let Some(race) = race {
            self.report_race(location, now, kind.writes(), race);
        }
    }

    fn check_global(&mut self, (allocation, offset): (u32, u64), lane: usize, size: u32, kind: Kind) {
        let location = Location::Global { allocation, offset: offset as i64 };
        let known = &self.machine.allocations[allocation as usize];
        if !kind.writes() && !known.storage.is_initialized(offset, size) {
            self.report_uninitialized(location, lane);
        }
        if !known.tracked {
            if kind.writes() {
                self.write_untracked(allocation);
            }
            return;
        }
        let now = self.now(lane, kind.scope);
        let mut race = None;
        for (memory, index) in self.shadow_keys(location, size) {
            let found = self.global.access(&mut self.block.clocks, memory, index, &now, kind.writes());
            race = race.or(found).or_else(|| self.unordered_same_value(location, (memory, index), &now));
            if kind.writes() && kind.scope.is_none() {
                self.global.same_value_writes.clear((memory, index));
            }
            if let Some(summary) = &self.machine.allocations[allocation as usize].summary {
                summary.record(index as usize, self.block.linear, now.lane, now.site, kind.writes());
            }
        }
        if let Some(race) = race {
            self.report_race(location, now, kind.writes(), race);
        }
    }

    /// Ends the run, so that it is repeated with this allocation tracked.
    fn write_untracked(&mut self, allocation: u32) {
        let machine = self.machine;
        let number = allocation as usize + 1;
        machine.untracked_write.store(number, std::sync::atomic::Ordering::Relaxed);
        self.partial.stopped = true;
    }

    /// Reports a read-only load (`ld.global.nc`) of an element that the same launch writes.
    fn check_read_only(&mut self, at: &Target, size: u32) {
        for lane in lanes(at.lanes) {
            let location = at.locations[lane];
            let tracked = matches!(location, Location::Global { .. }) && self.is_tracked(location);
            if !self.machine.config.checks || !tracked {
                continue;
            }
            let now = self.now(lane, None);
            for key in self.shadow_keys(location, size) {
                if let Some(write) = self.global.last_ordered_write(&mut self.block.clocks, key, now) {
                    let text = self.describe(location);
                    let message = format!(
                        "reads {text} through the read-only path, which need not observe the write by {} in this launch; do not declare the pointer `const __restrict__`",
                        self.machine.describe_thread(write.lane)
                    );
                    let report = Report::new(FindingKind::StaleRead, message).lanes(1 << lane).element(text);
                    self.report_with(report, Some(write.site));
                }
            }
        }
    }

    fn report_uninitialized(&mut self, location: Location, lane: usize) {
        let text = self.describe(location);
        let message = format!("reads {text}, which is uninitialized");
        self.report(Report::new(FindingKind::Uninitialized, message).lanes(1 << lane).element(text));
    }

    /// Loads the element of a lane.
    #[inline]
    pub fn fetch(&self, location: Location, lane: usize, size: u32) -> u64 {
        match location {
            Location::Global { allocation, offset } => {
                self.machine.allocations[allocation as usize].storage.load(offset as u64, size)
            }
            Location::Shared { offset, .. } => read_bytes(&self.block.shared, offset as usize, size),
            Location::Local { offset } => self.warp.local[lane].load(offset as usize, size),
            Location::Param { offset } => read_bytes(&self.machine.params, offset as usize, size),
            Location::Nowhere(_) => 0,
        }
    }

    /// Stores the element of a lane.
    pub fn put_memory(&mut self, location: Location, lane: usize, size: u32, bits: u64) {
        let changes = match location {
            Location::Global { allocation, offset } => {
                let known = &self.machine.allocations[allocation as usize];
                if known.constant {
                    let message = format!("writes {}, which is constant", self.describe(location));
                    self.report(Report::new(FindingKind::OutOfBounds, message).lanes(1 << lane));
                    return;
                }
                known.storage.store(offset as u64, size, bits)
            }
            Location::Shared { offset, .. } => {
                let range = offset as usize..(offset + size) as usize;
                let (new, old) = (bits.to_le_bytes(), &mut self.block.shared[range]);
                let changes = *old != new[..size as usize];
                old.copy_from_slice(&new[..size as usize]);
                changes
            }
            Location::Local { offset } => {
                // Local memory is private to the thread, but a loop that changes it makes progress.
                self.warp.local[lane].store(offset as usize, size, bits)
            }
            Location::Param { .. } | Location::Nowhere(_) => false,
        };
        self.changed |= changes;
    }

    fn acquire(&mut self, (location, size): (Location, u32), lane: usize, order: MemoryOrder, scope: Scope) {
        if !self.machine.config.checks || !self.is_tracked(location) {
            return;
        }
        let (thread, now) = (self.thread(lane), self.now(lane, Some(scope)));
        let block = self.block.linear as u32;
        // Later accesses of the thread usually depend on the value that it has observed.
        for (memory, index) in self.shadow_keys(location, size) {
            match location {
                Location::Shared { .. } => self.block.shadow.record_wait(block, (memory, index as u32), &now, scope),
                _ => self.global.record_wait(block, (memory, index), &now, scope),
            }
        }
        let Some((memory, index)) = self.shadow_keys(location, 1).next() else { return };
        let clocks = &mut self.block.clocks;
        let element = match location {
            Location::Shared { .. } => self.block.shadow.releases(memory, index as u32),
            _ => self.global.releases(memory, index),
        };
        let missed = element.load(clocks, thread, acquires(order), scope);
        clocks.missed_releases.extend(missed.map(|block| (block, now.site)));
    }

    fn release(&mut self, location: Location, lane: usize, (order, scope): (MemoryOrder, Scope), modifies: bool) {
        if !self.machine.config.checks || !self.is_tracked(location) {
            return;
        }
        let releases = matches!(order, MemoryOrder::Release | MemoryOrder::AcqRel);
        let thread = self.thread(lane);
        let Some((memory, index)) = self.shadow_keys(location, 1).next() else { return };
        let clocks = &mut self.block.clocks;
        let element = match location {
            Location::Shared { .. } => self.block.shadow.releases(memory, index as u32),
            _ => self.global.releases(memory, index),
        };
        element.store(clocks, thread, releases, scope, modifies);
    }

    pub fn atomic(&mut self, frame: u32, atomic: &Atomic) {
        let (size, count) = (atomic.ty.size(), atomic.values.len() as u32);
        let addresses = self.addresses(frame, &atomic.address);
        let target = self.resolve(atomic.address.space, &addresses, size * count, true);
        let wavefronts = atomic_wavefronts(modeled(atomic.kind), modeled_type(atomic.ty));
        self.count(&target, size * count, count, (wavefronts, |addresses, _| atomic_sectors(addresses)));
        let order = self.order(target.lanes);
        // The read of a reduction forms no acquire pattern (PTX ISA, "Release and Acquire
        // Patterns").
        let observes = acquires(atomic.order) || atomic.dst.iter().any(|&dst| dst != SINK);
        for (e, (&dst, &value)) in atomic.dst.iter().zip(&atomic.values).enumerate() {
            let at = self.elements(&target, e as u32 * size);
            let (values, swaps) = (*self.register(value), *self.register(atomic.swap));
            let mut old = [0; 32];
            for &lane in &order {
                let location = at.locations[lane];
                let kind = |access| Kind { access, scope: Some(atomic.scope), lockstep: false };
                self.check(location, lane, size, kind(AccessKind::Read));
                if observes {
                    self.acquire((location, size), lane, atomic.order, atomic.scope);
                }
                old[lane] = self.fetch(location, lane, size);
                // A failed compare-and-swap is a read: it neither writes nor releases.
                let Some(new) = atomic::update(atomic.kind, atomic.ty, old[lane], values[lane], swaps[lane]) else {
                    continue;
                };
                if atomic.kind == AtomicKind::Add && atomic.ty.is_float() {
                    let at = match location {
                        Location::Global { allocation, offset } => Some((allocation, offset as u64)),
                        _ => None,
                    };
                    self.partial.atomic_sums.add(atomic.ty, at, old[lane], values[lane]);
                }
                self.check(location, lane, size, kind(AccessKind::Write));
                self.release(location, lane, (atomic.order, atomic.scope), true);
                self.put_memory(location, lane, size, new);
            }
            self.put(dst, &old);
        }
    }

    /// Counts the costs of one request.
    pub fn count(
        &mut self,
        target: &Target,
        bytes: u32,
        elements: u32,
        (wavefronts, sectors): (WavefrontCount, SectorCount),
    ) {
        if !self.machine.config.counters || target.lanes == 0 {
            return;
        }
        self.note_request(target, bytes);
        let pc = self.pc as usize;
        let (mut shared, mut global) = (0u32, 0u32);
        let mut addresses = [0u64; 32];
        for lane in lanes(target.lanes) {
            match target.locations[lane] {
                Location::Shared { offset, .. } => {
                    shared |= 1 << lane;
                    addresses[lane] = u64::from(offset);
                }
                Location::Global { allocation, offset } if !self.machine.allocations[allocation as usize].constant => {
                    global |= 1 << lane;
                    addresses[lane] = allocation_address(allocation).wrapping_add_signed(offset);
                }
                _ => {}
            }
        }
        let of_buffer = match target.locations.get(global.trailing_zeros() as usize) {
            Some(location) => self.elements_of_buffer(*location, bytes).unwrap_or(elements),
            None => 0,
        };
        let (counts, caches) = (&mut self.partial.counts[pc], &mut self.partial.caches[pc]);
        if shared != 0 {
            let (total, conflicts) =
                caches[0].cost(&addresses, shared, 4, || wavefronts(&addresses, shared, bytes.clamp(1, 16)));
            counts.shared_requests += 1;
            counts.shared_transactions += total;
            counts.conflicts += conflicts;
            counts.shared_elements += u64::from(shared.count_ones() * elements);
        }
        if global != 0 {
            let count = || {
                let mut touched = [0; 32];
                let active = lanes(global).map(|lane| addresses[lane]);
                let len = touched.iter_mut().zip(active).map(|(to, address)| *to = address).count();
                (sectors(&touched[..len], u64::from(bytes)), 0)
            };
            let (total, _) = caches[1].cost(&addresses, global, tegula_interp::SECTOR_BYTES, count);
            counts.requests += 1;
            counts.transactions += total;
            counts.elements += u64::from(global.count_ones() * of_buffer);
        }
    }

    /// The number of buffer elements in `bytes` bytes; `None` if the element type is bytes.
    pub fn elements_of_buffer(&self, location: Location, bytes: u32) -> Option<u32> {
        let Location::Global { allocation, .. } = location else { return None };
        let ty = self.machine.allocations[allocation as usize].ty;
        (ty != ScalarType::B8).then(|| (bytes / ty.size().max(1)).max(1))
    }

    /// The bits of a slot of a call: a register, or memory of the frame.
    pub fn slot_bits(&self, frame: u32, slot: crate::program::Slot, lane: usize) -> u64 {
        match slot {
            crate::program::Slot::Register(reg) => self.register(reg)[lane],
            crate::program::Slot::Frame(offset, bytes) => {
                self.warp.local[lane].load((frame + offset) as usize, bytes.min(8))
            }
        }
    }

    /// The lanes of a register as 32-bit values.
    pub fn u32s(&self, reg: Reg) -> [u32; 32] {
        self.register(reg).map(|value| value as u32)
    }
}

/// Finds an access of another lane of the warp that is unordered with a volatile access to shared
/// memory.
///
/// In PTX both are strong and do not race. But such code expects the lanes of a warp to run in
/// lockstep, which is not guaranteed since Volta.
fn same_warp_race(
    shadow: &SharedShadow,
    clocks: &mut BlockClocks,
    index: usize,
    now: CurrentAccess,
    writes: bool,
) -> Option<Race> {
    shadow.find_race_in_warp(clocks, (SHARED, index), &CurrentAccess { scope: None, ..now }, writes)
}

/// Reads 1, 2, 4 or 8 bytes in bounds.
#[inline]
fn read_bytes(bytes: &[u8], offset: usize, size: u32) -> u64 {
    fn array<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
        std::array::from_fn(|at| bytes[offset + at])
    }
    match size {
        4 => u64::from(u32::from_le_bytes(array(bytes, offset))),
        8 => u64::from_le_bytes(array(bytes, offset)),
        2 => u64::from(u16::from_le_bytes(array(bytes, offset))),
        _ => u64::from(bytes[offset]),
    }
}

/// Scope of a strong access; `None` for a weak one.
fn strong(order: MemoryOrder, scope: Scope) -> Option<Scope> {
    (order != MemoryOrder::Weak).then_some(scope)
}

fn acquires(order: MemoryOrder) -> bool {
    matches!(order, MemoryOrder::Acquire | MemoryOrder::AcqRel)
}

/// The atomic operation of `tegula-ir` that has the same cost.
fn modeled(kind: AtomicKind) -> AtomicOp {
    match kind {
        AtomicKind::Cas => AtomicOp::CompareExchange { expected: Operand::Const(tegula_core::element::Type::U32, 0) },
        AtomicKind::Exch => AtomicOp::Swap,
        _ => AtomicOp::Add,
    }
}

fn modeled_type(ty: ScalarType) -> tegula_core::element::Type {
    use tegula_core::element::Type;
    match (ty.is_float(), ty.size()) {
        (true, 8) => Type::F64,
        (true, _) => Type::F32,
        (false, 8) => Type::U64,
        (false, _) => Type::U32,
    }
}
