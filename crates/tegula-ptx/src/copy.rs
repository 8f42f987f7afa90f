//! `cp.async` copies in flight from global to shared memory.
//!
//! The seed selects when a copy writes its destination: at its issue, or when its thread waits.
//! The result of a correct kernel does not depend on this choice. Until the thread has waited, the
//! destination is in flight, and any access to it is an error. So is a write to the source.

use tegula_interp::rules::{
    Access, ClockView, FIRST_AGENT, OrderSource, Proxy, l1_bypass_sectors, sectors, threads_of, wavefronts,
};
use tegula_ir::SiteId;

use crate::access::{Kind, Target};
use crate::address::{Location, allocation_address};
use crate::pending_copies::PendingCopy;
use crate::program::{Address, Reg};
use crate::run::{Run, lanes, lanes_where};

impl Run<'_, '_> {
    /// Issues one copy per active lane.
    pub fn copy_async(
        &mut self,
        frame: u32,
        (to, from): (&Address, &Address),
        bytes: u32,
        (source_bytes, ignore): (Option<Reg>, Option<(Reg, bool)>),
        bypass: bool,
    ) {
        let limits = source_bytes.map(|reg| *self.register(reg));
        let ignored = ignore.map_or(0, |(reg, negated)| {
            let values = self.register(reg);
            lanes_where(|lane| (values[lane] != 0) != negated)
        });
        // The hardware reads only `source_bytes` bytes; the rest of the destination is zero.
        let len = |lane: usize| {
            let read = limits.map_or(bytes, |limits| limits[lane].min(u64::from(bytes)) as u32);
            if ignored >> lane & 1 == 1 { 0 } else { read }
        };
        let (to_addresses, from_addresses) = (self.addresses(frame, to), self.addresses(frame, from));
        let target = self.resolve(to.space, &to_addresses, bytes, true);
        let source = self.resolve_source(from, &from_addresses, bytes, &len);
        self.count_copy((&source, &target), bytes, &len, bypass);
        let site = self.site();
        for lane in lanes(target.lanes) {
            let Location::Shared { offset, .. } = target.locations[lane] else { continue };
            let mut copied = [0; 16];
            let read = if source.lanes >> lane & 1 == 1 { len(lane) } else { 0 };
            let piece = self.machine.program.granules[1].min(4);
            for at in (0..read).step_by(piece as usize) {
                let size = piece.min(read - at);
                let location = self.elements(&source, at).locations[lane];
                self.check(location, lane, size, Kind::READ);
                self.track_read(location, lane);
                let bits = self.fetch(location, lane, size).to_le_bytes();
                copied[at as usize..][..size as usize].copy_from_slice(&bits[..size as usize]);
            }
            let clock = self.block.copies[usize::from(self.thread(lane))].issued + 1;
            self.start_copy(lane, PendingCopy { offset, bytes: copied, len: bytes, site, clock });
        }
    }

    /// Resolves the sources of copies. The address of a lane that reads no bytes is not checked.
    fn resolve_source(
        &mut self,
        from: &Address,
        addresses: &[u64; 32],
        bytes: u32,
        len: &impl Fn(usize) -> u32,
    ) -> Target {
        let active = self.active;
        self.active = active & lanes_where(|lane| len(lane) == bytes);
        let mut source = self.resolve(from.space, addresses, bytes, false);
        // A partial read must be in bounds only for the bytes that it reads.
        for lane in lanes(active & lanes_where(|lane| len(lane) != bytes && len(lane) > 0)) {
            self.active = 1 << lane;
            let size = if len(lane).is_power_of_two() { len(lane) } else { 1 };
            let part = self.resolve(from.space, addresses, size, false);
            source.locations[lane] = part.locations[lane];
            source.lanes |= part.lanes;
        }
        self.active = active;
        source
    }

    fn start_copy(&mut self, lane: usize, copy: PendingCopy) {
        let thread = self.thread(lane);
        let granule = self.machine.program.granules[0];
        let location = Location::Shared { symbol: 0, offset: copy.offset };
        for at in (0..copy.len).step_by(granule as usize) {
            let Location::Shared { offset, .. } = location else { return };
            let piece = Location::Shared { symbol: 0, offset: offset + at };
            self.check(piece, lane, granule, Kind::WRITE);
            if self.machine.config.checks {
                self.block.shadow.cell(0, ((offset + at) / granule) as usize).in_flight = thread + 1;
            }
        }
        if self.block.random(2) == 0 {
            self.land(&copy);
        }
        if self.machine.copies_arrive && self.machine.config.checks {
            let view = self.block.clocks.release(thread);
            self.block.copies[usize::from(thread)].view.join(&view);
        }
        self.block.copies[usize::from(thread)].issue(copy);
    }

    fn land(&mut self, copy: &PendingCopy) {
        let range = copy.offset as usize..(copy.offset + copy.len) as usize;
        self.block.shared[range].copy_from_slice(&copy.bytes[..copy.len as usize]);
    }

    /// Records that a copy reads its source until its thread has waited.
    fn track_read(&mut self, location: Location, lane: usize) {
        let Location::Global { allocation, offset } = location else { return };
        if !self.machine.config.checks || !self.machine.allocations[allocation as usize].tracked {
            return;
        }
        let (thread, now) = (self.thread(lane), self.now(lane, None));
        let clock = self.block.copies[usize::from(thread)].issued + 1;
        let agent = Access { clock, site: self.site(), lane: FIRST_AGENT + thread };
        let at = (allocation, offset as u64 / u64::from(self.machine.program.granules[1]));
        // The check of the issuing thread covers races with the start of the copy.
        self.global.read_by_agent(&mut self.block.clocks, at, &OrderSource::Thread(now), (agent, Proxy::Generic));
    }

    pub fn commit_copies(&mut self) {
        threads_of(self.warp.index, self.active).for_each(|thread| self.block.copies[usize::from(thread)].commit());
    }

    /// The copies of a thread that an arrival at an mbarrier tracks, and their clock view.
    ///
    /// The copies are ordered after the operations of the thread before their issue, but not after
    /// later ones.
    pub fn arriving_copies(&self, thread: u16) -> (Vec<(u16, u32)>, ClockView) {
        let copies = &self.block.copies[usize::from(thread)];
        let mut view = ClockView::of_agent(self.block.linear as u32, FIRST_AGENT + thread, copies.issued);
        view.join(&copies.view);
        (copies.in_flight().map(|copy| (thread, copy.clock)).collect(), view)
    }

    /// Completes copies that an mbarrier tracked.
    pub fn complete_copies(&mut self, copies: &[(u16, u32)]) {
        for &(thread, clock) in copies {
            if let Some(copy) = self.block.copies[usize::from(thread)].take(clock) {
                self.land(&copy);
                self.record_copy(thread, &copy);
            }
        }
    }

    /// Records that a copy has written its destination.
    ///
    /// The writer is the thread that waited. In programs in which other threads can wait for the
    /// copy, at an mbarrier, the writer is the agent of the copy.
    fn record_copy(&mut self, thread: u16, copy: &PendingCopy) {
        if !self.machine.config.checks {
            return;
        }
        let (clock, lane) = match self.machine.copies_arrive {
            true => (copy.clock, FIRST_AGENT + thread),
            false => (self.block.clocks.clock(thread), thread),
        };
        let granule = self.machine.program.granules[0];
        for at in (copy.offset..copy.offset + copy.len).step_by(granule as usize) {
            let cell = self.block.shadow.cell(0, (at / granule) as usize);
            cell.in_flight = 0;
            cell.write = Access { clock, site: SiteId(copy.site).0, lane };
        }
    }

    /// Completes copies of the active lanes, which become the writers of the destinations.
    pub fn wait_copies(&mut self, pending: Option<u32>) {
        for thread in threads_of(self.warp.index, self.active) {
            let done = self.block.copies[usize::from(thread)].wait(pending);
            for copy in &done {
                self.land(copy);
            }
            if !self.machine.config.checks {
                continue;
            }
            let completed = self.block.copies[usize::from(thread)].completed;
            let view = ClockView::of_agent(self.block.linear as u32, FIRST_AGENT + thread, completed);
            self.block.clocks.acquire(thread, &view);
            done.iter().for_each(|copy| self.record_copy(thread, copy));
        }
    }

    fn count_copy(
        &mut self,
        (source, target): (&Target, &Target),
        bytes: u32,
        len: &impl Fn(usize) -> u32,
        bypass: bool,
    ) {
        if !self.machine.config.counters {
            return;
        }
        // A copy has no register type, so elements are counted in units of 4 bytes.
        let elements = |bytes: u32| (bytes / 4).max(1);
        self.count(source, bytes, elements(bytes), (wavefronts, sectors));
        self.count(target, bytes, elements(bytes), (wavefronts, sectors));
        let of_lane =
            |lane: usize, bytes: u32| self.elements_of_buffer(source.locations[lane], bytes).unwrap_or(elements(bytes));
        let partial = lanes(source.lanes).filter(|&lane| len(lane) < bytes);
        let missing: u32 = partial.map(|lane| of_lane(lane, bytes) - of_lane(lane, len(lane))).sum();
        let counts = &mut self.partial.counts[self.pc as usize];
        counts.elements = counts.elements.saturating_sub(missing.into());
        if bypass && bytes == 16 {
            let address = |location: Location| match location {
                Location::Global { allocation, offset } => allocation_address(allocation).wrapping_add_signed(offset),
                Location::Shared { offset, .. } => u64::from(offset),
                _ => 0,
            };
            let (read, written) = (source.locations.map(address), target.locations.map(address));
            let counted = {
                let mut touched: Vec<u64> = lanes(source.lanes).map(|lane| read[lane]).collect();
                touched.dedup();
                sectors(&touched, 16)
            };
            let bypassing = l1_bypass_sectors(&read, &written, source.lanes);
            let counts = &mut self.partial.counts[self.pc as usize];
            counts.transactions = (counts.transactions + bypassing).saturating_sub(counted);
        }
    }
}
