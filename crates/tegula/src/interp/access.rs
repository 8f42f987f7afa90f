//! Loads, stores, atomic operations and asynchronous copies: which element each lane means, whether it may have it, what it
//! costs, and the value.

use super::asynchronous::Flight;
use super::count::{bytes, sectors, wavefronts};
use super::finding::{Finding, Kind, Space};
use super::lower::{At, Only, Reg, register_bits};
use super::race::{Access, Conflict, Now, lanes_of};
use super::warp::Run;
use super::{Arg, Buffer, What, semantics};
use crate::element::Type;
use crate::ir::{AtomicOp, Compare, Order, Scope, SiteId};

/// What the lanes of one access mean, after guards and bounds.
struct Target {
    place: Which,
    /// First element of each lane, by its position in the matrix or array; only lanes with a `count` use it.
    first: [usize; 32],
    /// Elements each lane accesses.
    count: [u8; 32],
}

#[derive(Clone, Copy)]
enum Which {
    Global(usize),
    Shared(usize),
}

/// What an access does to an element.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Does {
    Read,
    Write,
}

impl Run<'_, '_> {
    pub fn load(&mut self, ty: Type, dst: &[Reg], at: At, only: Only, fill: Reg, (order, scope): (Order, Scope)) {
        let target = self.target(ty, at, only, dst.len() as u32);
        self.tally(ty, at, &target, dst.len() as u32);
        let fill = self.warp.registers.bits(ty, fill);
        for (e, &dst) in dst.iter().enumerate() {
            let mut bits = fill;
            match target.place {
                Which::Shared(array) if !self.machine.config.races => {
                    for lane in active(&target, e) {
                        bits[lane] = self.block.shared.arrays[array][target.first[lane] + e];
                    }
                }
                _ => {
                    for lane in active(&target, e) {
                        let index = target.first[lane] + e;
                        self.check(target.place, index, lane, Does::Read, order != Order::Weak);
                        bits[lane] = self.fetch(target.place, index);
                        if order != Order::Weak {
                            self.acquire(target.place, index, lane, order, scope);
                        }
                    }
                }
            }
            self.warp.registers.put_bits(ty, dst, &bits);
            self.observe_access(&target, e, false, &bits);
        }
    }

    pub fn store(&mut self, ty: Type, values: &[Reg], at: At, only: Only, (order, scope): (Order, Scope)) {
        let target = self.target(ty, at, only, values.len() as u32);
        self.tally(ty, at, &target, values.len() as u32);
        for (e, &value) in values.iter().enumerate() {
            let bits = self.warp.registers.bits(ty, value);
            for lane in active(&target, e) {
                let index = target.first[lane] + e;
                self.check(target.place, index, lane, Does::Write, order != Order::Weak);
                if order != Order::Weak {
                    self.release(target.place, index, lane, order, scope, false);
                }
                self.put(target.place, index, bits[lane]);
            }
            self.observe_access(&target, e, true, &bits);
        }
    }

    pub fn atomic(
        &mut self,
        op: AtomicOp,
        ty: Type,
        [dst, value, expected]: [Reg; 3],
        at: At,
        (order, scope): (Order, Scope),
    ) {
        let target = self.target(ty, at, Only::Always, 1);
        self.tally(ty, at, &target, 1);
        let (values, expected) = (self.warp.registers.bits(ty, value), self.warp.registers.bits(ty, expected));
        let (mut old, mut new) = ([0; 32], [0; 32]);
        for lane in active(&target, 0) {
            let index = target.first[lane];
            self.check(target.place, index, lane, Does::Read, true);
            self.acquire(target.place, index, lane, order, scope);
            old[lane] = self.fetch(target.place, index);
            new[lane] = semantics::atomic(op, ty, old[lane], values[lane], expected[lane]);
            self.check(target.place, index, lane, Does::Write, true);
            self.release(target.place, index, lane, order, scope, true);
            self.put(target.place, index, new[lane]);
        }
        self.warp.registers.put_bits(ty, dst, &old);
        self.observe_access(&target, 0, true, &new);
    }

    /// Whether every lane sees what it waits for; then all of them acquire it.
    pub fn wait_until(&mut self, pc: usize, ty: Type, at: At, how: Compare, value: Reg, scope: Scope) -> bool {
        let target = self.target(ty, at, Only::Always, 1);
        let values = self.warp.registers.bits(ty, value);
        let place = target.place;
        let waits = |run: &Self, lane: usize| {
            let bits = extended(ty, run.fetch(place, target.first[lane]));
            !semantics::compare(how, ty, bits, values[lane])
        };
        if active(&target, 0).any(|lane| waits(self, lane)) {
            // A poll that must be repeated is one wait, however often the interpreter looks.
            if let Some(tally) = self.gathered.tallies.get_mut(pc).filter(|_| self.machine.config.counters) {
                tally.warps -= 1;
                tally.lanes -= u64::from(self.warp.mask.count_ones());
            }
            return false;
        }
        self.tally(ty, at, &target, 1);
        for lane in active(&target, 0) {
            let index = target.first[lane];
            self.check(place, index, lane, Does::Read, true);
            self.acquire(place, index, lane, Order::Acquire, scope);
        }
        true
    }

    pub fn copy_async(&mut self, ty: Type, to: At, from: At, width: u32, only: Only) {
        let source = self.target(ty, from, only, width);
        let target = self.target(ty, to, Only::Always, width);
        self.tally(ty, from, &source, width);
        self.tally_shared_write(ty, &target, width);
        let Which::Shared(array) = target.place else { return };
        let site = self.machine.program.sites[self.warp.pc];
        for e in 0..width as usize {
            for lane in active(&target, e) {
                let bits = if usize::from(source.count[lane]) > e {
                    let index = source.first[lane] + e;
                    self.check(source.place, index, lane, Does::Read, false);
                    self.fetch(source.place, index)
                } else {
                    0
                };
                let index = target.first[lane] + e;
                self.check(target.place, index, lane, Does::Write, false);
                let thread = (self.warp.index * 32) as u16 + lane as u16;
                if self.block.random(2) == 0 {
                    self.block.shared.arrays[array][index] = bits;
                }
                if self.machine.config.races {
                    self.block.shadow.cell(array, index).in_flight = thread + 1;
                }
                let flight = Flight { array: array as u32, index: index as u32, bits, site };
                self.block.flights.start(thread, flight);
            }
        }
    }

    /// The lanes wait for their copies: these are written now, by the lanes, as far as others are concerned.
    pub fn land(&mut self, pending: u32) {
        for lane in lanes_of(self.warp.index, self.warp.mask) {
            for flight in self.block.flights.wait(lane, pending) {
                let (array, index) = (flight.array as usize, flight.index as usize);
                self.block.shared.arrays[array][index] = flight.bits;
                if self.machine.config.races {
                    let clock = self.block.clocks.clock(lane);
                    let cell = self.block.shadow.cell(array, index);
                    cell.in_flight = 0;
                    cell.write = Access { clock, site: flight.site.index() as u32, lane, ordered: false };
                }
            }
        }
    }

    /// Which elements the lanes mean: guards applied, what lies outside reported and left out.
    fn target(&mut self, ty: Type, at: At, only: Only, width: u32) -> Target {
        let mut count = self.counts(only, width);
        let mut first = [0; 32];
        let place = match at {
            At::Shared { array, index, offset } => {
                let len = self.machine.kernel.shared()[array.index()].len();
                let indices = self.warp.registers.u32s(index);
                for lane in 0..32 {
                    let start = u64::from(indices[lane]) + u64::from(offset);
                    first[lane] = start as usize;
                    if count[lane] > 0 && start + u64::from(count[lane]) > len {
                        self.outside_array(array.index(), start, len, lane);
                        count[lane] = 0;
                    }
                    if width > 1 && count[lane] > 0 && start % u64::from(width) != 0 {
                        self.misaligned(lane, width);
                    }
                }
                Which::Shared(array.index())
            }
            At::Global { param, batch, row, col } => {
                let Arg::Matrix(buffer) = self.machine.args[param.index()] else {
                    return Target { place: Which::Global(param.index()), first, count: [0; 32] };
                };
                let [batches, rows, cols] = [batch, row, col].map(|r| self.warp.registers.u32s(r));
                for lane in 0..32 {
                    if count[lane] == 0 {
                        continue;
                    }
                    let [b, r, c] = [batches[lane], rows[lane], cols[lane]].map(u64::from);
                    let last = buffer.index(b, r, c + u64::from(count[lane]) - 1);
                    match (buffer.index(b, r, c), last) {
                        (Some(start), Some(_)) => first[lane] = start,
                        _ => {
                            self.outside_matrix(param.index(), buffer, [b, r, c], count[lane], lane);
                            count[lane] = 0;
                        }
                    }
                    if width > 1 && count[lane] > 0 {
                        let address = buffer.address(param.index(), b, r, c);
                        if !address.is_multiple_of(u64::from(bytes(ty, width))) {
                            self.misaligned(lane, width);
                        }
                    }
                }
                Which::Global(param.index())
            }
        };
        Target { place, first, count }
    }

    /// How many elements each lane accesses, by mask and guard.
    fn counts(&self, only: Only, width: u32) -> [u8; 32] {
        let lanes = match only {
            Only::If(predicate) => self.warp.mask & self.warp.registers.predicates[predicate as usize],
            _ => self.warp.mask,
        };
        let mut count = [0; 32];
        match only {
            Only::First(first) => {
                let first = self.warp.registers.u32s(first);
                for lane in 0..32 {
                    count[lane] = if lanes >> lane & 1 == 1 { first[lane].min(width) as u8 } else { 0 };
                }
            }
            _ => {
                for (lane, count) in count.iter_mut().enumerate() {
                    *count = if lanes >> lane & 1 == 1 { width as u8 } else { 0 };
                }
            }
        }
        count
    }

    fn fetch(&self, place: Which, index: usize) -> u64 {
        match place {
            Which::Shared(array) => self.block.shared.arrays[array][index],
            Which::Global(param) => match self.machine.args[param] {
                Arg::Matrix(buffer) => extended(buffer.ty(), buffer.load(index)),
                Arg::Scalar { .. } => 0,
            },
        }
    }

    fn put(&mut self, place: Which, index: usize, bits: u64) {
        match place {
            Which::Shared(array) => self.block.shared.arrays[array][index] = bits,
            Which::Global(param) => {
                if let Arg::Matrix(buffer) = self.machine.args[param] {
                    buffer.store(index, bits);
                }
            }
        }
    }

    /// Whether the lane may access the element now: initialised, landed, and ordered after what others did with it.
    #[inline]
    fn check(&mut self, place: Which, index: usize, lane: usize, does: Does, ordered: bool) {
        if !self.machine.config.races {
            return;
        }
        let thread = (self.warp.index * 32) as u16 + lane as u16;
        let site = self.machine.program.sites[self.warp.pc];
        let now = Now { lane: thread, clock: self.block.clocks.clock(thread), site, ordered };
        match place {
            Which::Shared(array) => self.check_shared(array, index, now, does),
            Which::Global(param) => self.check_global(param, index, now, does),
        }
    }

    #[inline]
    fn check_shared(&mut self, array: usize, index: usize, now: Now, does: Does) {
        let place = Which::Shared(array);
        let (clocks, shadow) = (&mut self.block.clocks, &mut self.block.shadow);
        let cell = shadow.cell(array, index);
        let (in_flight, empty) = (cell.in_flight, cell.write.clock == 0);
        let conflict = match does {
            Does::Read => shadow.read(clocks, array, index, &now),
            Does::Write => shadow.write(clocks, array, index, &now),
        };
        if in_flight != 0 {
            self.in_flight(place, index, now, in_flight - 1);
        } else if empty && does == Does::Read {
            self.uninitialised(place, index, now);
        }
        if let Some(conflict) = conflict {
            self.race(place, index, now, does, conflict);
        }
    }

    fn check_global(&mut self, param: usize, index: usize, now: Now, does: Does) {
        let Arg::Matrix(buffer) = self.machine.args[param] else { return };
        if !buffer.is_writable() {
            return;
        }
        let place = Which::Global(param);
        if does == Does::Read && !buffer.is_initialised(index) {
            self.uninitialised(place, index, now);
        }
        let clocks = &mut self.block.clocks;
        let within = match does {
            Does::Read => self.global.read(clocks, param as u32, index as u64, &now),
            Does::Write => self.global.write(clocks, param as u32, index as u64, &now),
        };
        let site = now.site.index() as u32;
        let across = self.machine.own(param, index, self.block.linear, now.lane, site, does == Does::Write);
        let across = across.map(|[block, lane, site, wrote]| Conflict {
            block,
            earlier: Access { clock: 1, site, lane: lane as u16, ordered: false },
            earlier_writes: wrote == 1,
        });
        if let Some(conflict) = within.or(across) {
            self.race(place, index, now, does, conflict);
        }
    }

    fn acquire(&mut self, place: Which, index: usize, lane: usize, order: Order, scope: Scope) {
        if !self.machine.config.races {
            return;
        }
        let thread = (self.warp.index * 32) as u16 + lane as u16;
        let acquires = matches!(order, Order::Acquire | Order::AcqRel);
        let clocks = &mut self.block.clocks;
        match place {
            Which::Shared(array) => {
                self.block.shadow.published(array as u32, index as u32).load(clocks, thread, acquires, scope);
            }
            Which::Global(param) => {
                self.global.published(param as u32, index as u64).load(clocks, thread, acquires, scope);
            }
        }
    }

    fn release(&mut self, place: Which, index: usize, lane: usize, order: Order, scope: Scope, both: bool) {
        if !self.machine.config.races {
            return;
        }
        let thread = (self.warp.index * 32) as u16 + lane as u16;
        let releases = matches!(order, Order::Release | Order::AcqRel);
        let clocks = &mut self.block.clocks;
        match place {
            Which::Shared(array) => {
                let published = self.block.shadow.published(array as u32, index as u32);
                published.store(clocks, thread, releases, scope, both);
            }
            Which::Global(param) => {
                let published = self.global.published(param as u32, index as u64);
                published.store(clocks, thread, releases, scope, both);
            }
        }
    }
}

/// The lanes that access their element number `e`.
fn active(target: &Target, e: usize) -> impl Iterator<Item = usize> + use<> {
    let mut lanes = 0u32;
    for lane in 0..32 {
        lanes |= u32::from(usize::from(target.count[lane]) > e) << lane;
    }
    (0..32).filter(move |lane| lanes >> lane & 1 == 1)
}

/// An element as registers hold it: 8-bit integers extended.
fn extended(ty: Type, bits: u64) -> u64 {
    if ty.size() == 8 { bits } else { u64::from(register_bits(ty, bits)) }
}

/// Counting.
impl Run<'_, '_> {
    fn tally(&mut self, ty: Type, at: At, target: &Target, width: u32) {
        if !self.machine.config.counters {
            return;
        }
        let (passes, conflicts) = match target.place {
            Which::Shared(_) => self.shared_passes(ty, target, width),
            Which::Global(param) => (self.global_sectors(ty, at, param, target), 0),
        };
        let tally = &mut self.gathered.tallies[self.warp.pc];
        tally.elements += target.count.iter().map(|&c| u64::from(c)).sum::<u64>();
        tally.requests += u64::from(target.count.iter().any(|&c| c > 0));
        tally.passes += passes;
        tally.conflicts += conflicts;
    }

    fn tally_shared_write(&mut self, ty: Type, target: &Target, width: u32) {
        if self.machine.config.counters {
            let (passes, conflicts) = self.shared_passes(ty, target, width);
            let tally = &mut self.gathered.tallies[self.warp.pc];
            tally.written += passes;
            tally.conflicts += conflicts;
        }
    }

    fn shared_passes(&self, ty: Type, target: &Target, width: u32) -> (u64, u64) {
        let Which::Shared(array) = target.place else { return (0, 0) };
        let start = self.machine.kernel.shared()[array].start;
        let size = ty.size() as u32;
        let addresses: [Option<u32>; 32] =
            std::array::from_fn(|lane| (target.count[lane] > 0).then(|| start + target.first[lane] as u32 * size));
        wavefronts(&addresses, size * width)
    }

    fn global_sectors(&self, ty: Type, at: At, param: usize, target: &Target) -> u64 {
        let (Arg::Matrix(buffer), At::Global { batch, row, col, .. }) = (self.machine.args[param], at) else {
            return 0;
        };
        let [batches, rows, cols] = [batch, row, col].map(|r| self.warp.registers.u32s(r));
        let mut addresses = [0; 32];
        let (mut len, mut widest) = (0, 0);
        for lane in 0..32 {
            if target.count[lane] > 0 {
                let [b, r, c] = [batches[lane], rows[lane], cols[lane]].map(u64::from);
                addresses[len] = buffer.address(param, b, r, c);
                len += 1;
                widest = widest.max(u32::from(target.count[lane]));
            }
        }
        sectors(&addresses[..len], u64::from(bytes(ty, widest.max(1))))
    }

    fn observe_access(&mut self, target: &Target, e: usize, write: bool, bits: &[u64; 32]) {
        if self.observer.is_none() {
            return;
        }
        let elements =
            std::array::from_fn(|lane| (usize::from(target.count[lane]) > e).then(|| (target.first[lane] + e) as u64));
        let kernel = self.machine.kernel;
        let (space, name) = match target.place {
            Which::Shared(array) => (Space::Shared, kernel.shared()[array].name.as_str()),
            Which::Global(param) => (Space::Global, kernel.params()[param].name.as_str()),
        };
        self.observe(What::Access { write, space, name, elements: &elements, bits });
    }
}

/// Reporting.
impl Run<'_, '_> {
    /// The space, name and coordinates of an element, and how messages write it.
    fn element(&self, place: Which, index: usize) -> ((Space, String, Vec<u64>), String) {
        let kernel = self.machine.kernel;
        let (space, name, at) = match place {
            Which::Shared(array) => {
                let array = &kernel.shared()[array];
                (Space::Shared, array.name.clone(), array.coordinates(index as u64))
            }
            Which::Global(param) => {
                let at = match self.machine.args[param] {
                    Arg::Matrix(buffer) => buffer.coordinates(index),
                    Arg::Scalar { .. } => Vec::new(),
                };
                (Space::Global, kernel.params()[param].name.clone(), at)
            }
        };
        let text = format!("{name}{at:?}");
        ((space, name, at), text)
    }

    fn outside_array(&mut self, array: usize, index: u64, len: u64, lane: usize) {
        let name = self.machine.kernel.shared()[array].name.clone();
        let message = format!("element {index} of shared array {name}, which has {len}");
        let thread = self.warp.index * 32 + lane as u32;
        let pc = self.warp.pc;
        self.report(Kind::OutOfBounds, pc, &[thread], Some((Space::Shared, name, vec![index])), message);
    }

    fn outside_matrix(&mut self, param: usize, buffer: &Buffer, [b, r, c]: [u64; 3], count: u8, lane: usize) {
        let name = self.machine.kernel.params()[param].name.clone();
        let shape = buffer.layout().shape;
        let what = if count > 1 { format!("{count} elements from ({r}, {c})") } else { format!("({r}, {c})") };
        let batch = if shape.batches == 1 && b == 0 { String::new() } else { format!(" of matrix {b}") };
        let message = format!("element {what}{batch} of {name}, which is {shape}");
        let thread = self.warp.index * 32 + lane as u32;
        let pc = self.warp.pc;
        self.report(Kind::OutOfBounds, pc, &[thread], Some((Space::Global, name, vec![r, c])), message);
    }

    fn misaligned(&mut self, lane: usize, width: u32) {
        let message = format!("{width} elements at once from an element that is no multiple of {width}");
        let thread = self.warp.index * 32 + lane as u32;
        let pc = self.warp.pc;
        self.report(Kind::Misaligned, pc, &[thread], None, message);
    }

    fn uninitialised(&mut self, place: Which, index: usize, now: Now) {
        let (element, text) = self.element(place, index);
        let pc = self.warp.pc;
        let message = format!("reads {text}, which nobody has written");
        self.report(Kind::Uninitialised, pc, &[now.lane.into()], Some(element), message);
    }

    fn in_flight(&mut self, place: Which, index: usize, now: Now, copier: u16) {
        let (element, text) = self.element(place, index);
        let pc = self.warp.pc;
        let owner = self.machine.thread(copier.into());
        let message = format!("uses {text} while a copy of thread {owner:?} is on its way there; wait for it first");
        self.report(Kind::InFlight, pc, &[now.lane.into(), copier.into()], Some(element), message);
    }

    fn race(&mut self, place: Which, index: usize, now: Now, does: Does, conflict: Conflict) {
        let machine = self.machine;
        let Conflict { block, earlier, earlier_writes } = conflict;
        let ((space, name, at), text) = self.element(place, index);
        let (site, other) = (machine.kernel.site(now.site), machine.kernel.site(SiteId(earlier.site)));
        let here = self.block.id;
        self.gathered.findings.add(Kind::Race, &[site, other], self.block.linear, || {
            let threads = vec![machine.thread(now.lane.into()), machine.thread(earlier.lane.into())];
            let verb = |writes| if writes { "writes" } else { "reads" };
            let elsewhere = if u64::from(block) == self.block.linear {
                String::new()
            } else {
                format!(" of block {:?}", machine.block_id(block))
            };
            Finding {
                kind: Kind::Race,
                message: format!(
                    "block {here:?}: thread {:?} {} {text} ({}:{}) and thread {:?}{elsewhere} {} it ({}:{}) in no order",
                    threads[0],
                    verb(does == Does::Write),
                    site.location.file(),
                    site.location.line(),
                    threads[1],
                    verb(earlier_writes),
                    other.location.file(),
                    other.location.line(),
                ),
                block: here,
                threads,
                space: Some(space),
                name,
                index: at,
                source: vec![site.location, other.location],
                times: 1,
            }
        });
    }
}
