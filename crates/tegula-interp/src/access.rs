//! Loads, stores, atomic operations and asynchronous copies: which element each lane means, whether it may have it, what it
//! costs, and the value.

use rustc_hash::FxHashMap;
use tegula_core::diagnostic::{Kind, Space};
use tegula_core::element::Type;
use tegula_core::matrix::Shape;
use tegula_ir::{AtomicOp, Compare, Holds, Order, Scope, SharedArray, SiteId, Swizzle};

use super::agent::Agent;
use super::asynchronous::Flight;
use super::count::{
    Passes, SECTOR, atomic_sectors, atomic_wavefronts, bytes, load_wavefronts, sectors, sectors_past_the_cache,
    wavefronts,
};
use super::lanes::{Reg, bits_of, mask};
use super::launch::Arg;
use super::memory::Buffer;
use super::observe::{Request, What};
use super::owners::Use;
use super::program::{At, Coordinate, Only, WIDEST};
use super::race::{AGENT, Access, Conflict, Does, Eyes, Knowledge, Now, lanes_of};
use super::report::Mistake;
use super::semantics;
use super::semantics::register_bits;
use super::shadow::{Equals, Proxy};
use super::warp::Run;

/// What the lanes of one access mean, after guards and bounds.
pub(super) struct Target {
    place: Which,
    /// First element of each lane, by its position in the matrix or array.
    first: [usize; 32],
    /// For each element of the access, the lanes that take part.
    lanes: [u32; WIDEST],
}

#[derive(Clone, Copy)]
enum Which {
    Global(usize),
    Shared(usize),
}

impl Run<'_, '_> {
    pub fn load(&mut self, ty: Type, dst: &[Reg], at: At, only: Only, fill: Reg, (order, scope): (Order, Scope)) {
        let target = self.target(ty, at, only, dst.len() as u32);
        self.tally(ty, at, &target, dst.len() as u32, load_wavefronts);
        for (e, &dst) in dst.iter().enumerate() {
            let mut bits = match target.lanes[e] {
                u32::MAX => [0; 32],
                _ => self.warp.registers.bits(ty, fill),
            };
            self.check_lanes(&target, e, Does::Read, ordered(order, scope));
            if order == Order::Weak {
                self.check_read_only(&target, e);
            }
            self.fetch_lanes(&target, e, &mut bits);
            if order != Order::Weak {
                for lane in bits_of(target.lanes[e]) {
                    self.acquire(target.place, target.first[lane] + e, lane, order, scope);
                }
            }
            self.warp.registers.put_bits(ty, dst, &bits);
            self.observe_access(&target, e, Does::Read, Some(dst), &bits);
        }
    }

    pub fn store(&mut self, ty: Type, values: &[Reg], at: At, only: Only, (order, scope): (Order, Scope)) {
        let mut target = self.target(ty, at, only, values.len() as u32);
        self.tally(ty, at, &target, values.len() as u32, wavefronts);
        for (e, &value) in values.iter().enumerate() {
            let bits = self.warp.registers.bits(ty, value);
            if order == Order::Weak {
                let equal = self.merge_equal_stores(&mut target, e, &bits);
                self.check_lanes(&target, e, Does::Write, None);
                for (index, access) in equal {
                    let (block, at) = (self.block.linear as u32, self.memory_of(target.place, index));
                    self.equals(target.place).add(at, block, access);
                }
                self.put_lanes(&target, e, &bits);
            } else {
                for lane in self.one_by_one(target.lanes[e]) {
                    let index = target.first[lane] + e;
                    self.check(target.place, index, lane, Does::Write, Some(scope));
                    self.release(target.place, index, lane, order, scope, false);
                    self.put(target.place, index, bits[lane]);
                }
            }
            self.observe_access(&target, e, Does::Write, Some(value), &bits);
        }
    }

    /// Lanes that store the same value to one element in one instruction do not race with each other: one of them stores, the others are
    /// left out and given, with what they mean.
    fn merge_equal_stores(&mut self, target: &mut Target, e: usize, bits: &[u64; 32]) -> Vec<(usize, Access)> {
        let lanes = target.lanes[e];
        let mut elements = bits_of(lanes).map(|lane| target.first[lane]);
        if !self.machine.config.races || elements.by_ref().is_sorted_by(|a, b| a < b) {
            return Vec::new();
        }
        let mut first: FxHashMap<usize, (usize, bool)> = FxHashMap::default();
        for lane in bits_of(lanes) {
            let (of, same) = first.entry(target.first[lane]).or_insert((lane, true));
            *same &= bits[*of] == bits[lane];
        }
        let merged = mask(|lane| {
            let stores = lanes >> lane & 1 == 1;
            stores && first.get(&target.first[lane]).is_some_and(|&(of, same)| same && of != lane)
        });
        if merged != 0 {
            let lane = merged.trailing_zeros() as usize;
            let (element, text) = self.element(target.place, target.first[lane] + e);
            let message = format!("several lanes store the same value to {text} in one instruction; one would do");
            let (pc, thread) = (self.warp.pc, self.thread(lane));
            self.report(Kind::EqualStores, pc, &[thread.into()], Some(element), message);
            target.lanes[e] &= !merged;
        }
        let others = bits_of(merged).map(|lane| {
            let (index, now) = (target.first[lane] + e, self.now(lane, None));
            let conflict = self.would_race(target.place, index, &now);
            if let Some(conflict) = conflict.or_else(|| self.unordered_equal(target.place, index, now)) {
                self.race(target.place, index, now, Does::Write, conflict);
            }
            (index, now.access())
        });
        others.collect()
    }

    /// The lanes of one atomic instruction or ordered store, in the order in which they access
    /// memory.
    fn one_by_one(&mut self, lanes: u32) -> Vec<usize> {
        let mut order: Vec<_> = bits_of(lanes).collect();
        self.block.vary(&mut order);
        order
    }

    fn equals(&mut self, place: Which) -> &mut Equals {
        match place {
            Which::Shared(_) => &mut self.block.shadow.equals,
            Which::Global(_) => &mut self.global.equals,
        }
    }

    /// A write that was merged with the last one and is unordered with an access now.
    fn unordered_equal(&mut self, place: Which, index: usize, now: Now) -> Option<Conflict> {
        let (at, clocks) = (self.memory_of(place, index), &mut self.block.clocks);
        let equals = match place {
            Which::Shared(_) => &self.block.shadow.equals,
            Which::Global(_) => &self.global.equals,
        };
        equals.unordered(clocks, at, &Eyes::Thread(now))
    }

    /// An access that a plain write would race with.
    fn would_race(&mut self, place: Which, index: usize, now: &Now) -> Option<Conflict> {
        let clocks = &mut self.block.clocks;
        match place {
            Which::Shared(array) => self.block.shadow.would_race(clocks, array, index, now),
            Which::Global(param) => {
                self.global.would_race(clocks, self.machine.memory[param] as u32, index as u64, now)
            }
        }
    }

    /// An access races with each write that was made together with the last one and is in no order with it.
    fn check_equals(&mut self, place: Which, index: usize, now: Now, does: Does) {
        let conflict = self.unordered_equal(place, index, now);
        if does == Does::Write && now.ordered.is_none() {
            let at = self.memory_of(place, index);
            self.equals(place).clear(at);
        }
        if let Some(conflict) = conflict {
            self.race(place, index, now, does, conflict);
        }
    }

    /// By what an element is remembered: its array or memory, and its index.
    fn memory_of(&self, place: Which, index: usize) -> (u32, u64) {
        let memory = match place {
            Which::Shared(array) => array,
            Which::Global(param) => self.machine.memory[param],
        };
        (memory as u32, index as u64)
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
        self.tally_by(ty, at, &target, 1, atomic_wavefronts(op, ty), |addresses, _| atomic_sectors(addresses));
        let (values, expected) = (self.warp.registers.bits(ty, value), self.warp.registers.bits(ty, expected));
        let (mut old, mut new) = ([0; 32], [0; 32]);
        for lane in self.one_by_one(target.lanes[0]) {
            let index = target.first[lane];
            self.check(target.place, index, lane, Does::Read, Some(scope));
            self.acquire(target.place, index, lane, order, scope);
            old[lane] = self.fetch(target.place, index);
            new[lane] = semantics::atomic(op, ty, old[lane], values[lane], expected[lane]);
            // A comparison that fails is a read: it neither writes nor releases.
            if matches!(op, AtomicOp::CompareExchange { .. }) && old[lane] != expected[lane] {
                continue;
            }
            self.check(target.place, index, lane, Does::Write, Some(scope));
            self.release(target.place, index, lane, order, scope, true);
            self.put(target.place, index, new[lane]);
        }
        self.warp.registers.put_bits(ty, dst, &old);
        self.observe_access(&target, 0, Does::Write, None, &new);
    }

    /// Whether every lane sees what it waits for; then all of them acquire it.
    pub fn wait_until(&mut self, ty: Type, at: At, how: Compare, value: Reg, scope: Scope) -> bool {
        let target = self.target(ty, at, Only::Always, 1);
        let values = self.warp.registers.bits(ty, value);
        let place = target.place;
        let waits = |run: &Self, lane: usize| {
            let bits = extended(ty, run.fetch(place, target.first[lane]));
            !semantics::compare(how, ty, bits, values[lane])
        };
        let waiting = mask(|lane| target.lanes[0] >> lane & 1 == 1 && waits(self, lane));
        if waiting != 0 {
            self.warp.satisfied = self.warp.mask & !waiting;
            return false;
        }
        if let Some(some) = self.block.some_of(target.lanes[0]) {
            self.warp.satisfied = some;
            return false;
        }
        self.tally(ty, at, &target, 1, load_wavefronts);
        for lane in bits_of(target.lanes[0]) {
            let index = target.first[lane];
            self.check(place, index, lane, Does::Read, Some(scope));
            if self.machine.config.races {
                let (now, block, (memory, at)) =
                    (self.now(lane, Some(scope)), self.block.linear as u32, self.memory_of(place, index));
                match place {
                    Which::Shared(_) => self.block.shadow.waited(block, (memory, at as u32), &now, scope),
                    Which::Global(_) => self.global.waited(block, (memory, at), &now, scope),
                }
            }
            self.acquire(place, index, lane, Order::Acquire, scope);
        }
        true
    }

    pub fn copy_async(&mut self, ty: Type, to: At, from: At, width: u32, only: Only) {
        let source = self.target(ty, from, only, width);
        let target = self.target(ty, to, Only::Always, width);
        self.tally(ty, from, &source, width, wavefronts);
        self.tally_past_the_cache(ty, from, &source, &target, width);
        let reading = self.request;
        self.tally_shared_write(ty, &target, width);
        let writing = self.request;
        let Which::Shared(array) = target.place else { return };
        let site = self.machine.program.sites[self.warp.pc];
        for e in 0..width as usize {
            let mut copied = [0; 32];
            for lane in bits_of(target.lanes[e]) {
                let bits = if source.lanes[e] >> lane & 1 == 1 {
                    let index = source.first[lane] + e;
                    self.check(source.place, index, lane, Does::Read, None);
                    self.read_until_waited(source.place, index, lane);
                    self.fetch(source.place, index)
                } else {
                    0
                };
                let index = target.first[lane] + e;
                self.check(target.place, index, lane, Does::Write, None);
                let thread = (self.warp.index * 32) as u16 + lane as u16;
                if self.block.random(2) == 0 {
                    self.block.shared.arrays[array][index] = bits;
                }
                if self.machine.config.races {
                    self.block.shadow.cell(array, index).in_flight = thread + 1;
                }
                let flight = Flight { array: array as u32, index: index as u32, bits, site };
                self.block.flights.start(thread, flight);
                copied[lane] = bits;
            }
            for (target, does, request) in [(&source, Does::Read, reading), (&target, Does::Write, writing)] {
                self.request = request.filter(|_| e == 0);
                self.observe_access(target, e, does, None, &copied);
            }
        }
    }

    /// An asynchronous copy reads its source until its thread has waited for it.
    fn read_until_waited(&mut self, source: Which, index: usize, lane: usize) {
        let (Which::Global(param), true) = (source, self.machine.config.races) else { return };
        if matches!(self.machine.args[param], Arg::Matrix(buffer) if buffer.is_writable()) {
            let (thread, site, now) = (self.thread(lane), self.site(), self.now(lane, None));
            let clock = self.block.flights.read(thread, site);
            let agent = Access { clock, site: site.0, lane: self.machine.agents.lane(Agent::Copies(thread)) };
            let at = (self.machine.memory[param] as u32, index as u64);
            // That nothing races with the start of the copy was checked for its thread.
            self.global.read_by_agent(&mut self.block.clocks, at, &Eyes::Thread(now), (agent, Proxy::Generic));
        }
    }

    /// The lanes wait for their copies: these are written now, by the lanes, as far as others are concerned.
    pub fn land(&mut self, pending: u32) {
        for lane in lanes_of(self.warp.index, self.warp.mask) {
            if let Some(done) = self.block.flights.read_until(lane, pending) {
                let agent = self.machine.agents.lane(Agent::Copies(lane));
                let known = Knowledge::of_agent(self.block.linear as u32, agent, done);
                self.block.clocks.acquire(lane, &known);
            }
            for flight in self.block.flights.wait(lane, pending) {
                let (array, index) = (flight.array as usize, flight.index as usize);
                self.block.shared.arrays[array][index] = flight.bits;
                if self.machine.config.races {
                    let clock = self.block.clocks.clock(lane);
                    let cell = self.block.shadow.cell(array, index);
                    cell.in_flight = 0;
                    cell.write = Access { clock, site: flight.site.index() as u32, lane };
                }
            }
        }
    }

    /// Which elements the lanes mean: guards applied, what lies outside reported and left out.
    fn target(&mut self, ty: Type, at: At, only: Only, width: u32) -> Target {
        self.located(ty, at, self.guarded(only, width), width)
    }

    /// [`Run::target`] of the lanes that access each of their elements.
    pub fn located(&mut self, ty: Type, at: At, lanes: [u32; WIDEST], width: u32) -> Target {
        match at {
            At::Shared { array, index, offset, axes } => {
                let indices = self.warp.registers.u32s(index);
                // Indices are 32-bit and wrap, as they do in registers.
                let first = std::array::from_fn(|lane| indices[lane].wrapping_add(offset) as usize);
                let target = Target { place: Which::Shared(array.index()), first, lanes };
                let highest = first.into_iter().fold(0, usize::max);
                let target = self.in_axes(array.index(), axes, target, width);
                self.in_array(array.index(), target, highest as u64, width)
            }
            At::Global { param, batch, row, col } => {
                let coordinates = [batch, row, col].map(|r| self.warp.registers.u32s(r));
                self.in_matrix(ty, param.index(), coordinates, lanes, width)
            }
        }
    }

    /// The lanes that access each of their elements, by mask and guard.
    fn guarded(&self, only: Only, width: u32) -> [u32; WIDEST] {
        let first_lanes = |mask: u32| std::array::from_fn(|e| if e < width as usize { mask } else { 0 });
        match only {
            Only::Always => first_lanes(self.warp.mask),
            Only::If(predicate) => first_lanes(self.warp.mask & self.warp.registers.predicates[predicate as usize]),
            Only::First(count) => {
                let count = self.warp.registers.u32s(count);
                std::array::from_fn(|e| {
                    if e < width as usize { self.warp.mask & mask(|lane| count[lane] > e as u32) } else { 0 }
                })
            }
        }
    }

    /// Leaves out what lies outside along an axis, and reports it: an index past the end of a row is no element of the next one.
    fn in_axes(&mut self, array: usize, axes: u32, mut target: Target, width: u32) -> Target {
        let machine = self.machine;
        for &Coordinate { axis, last, value, fixed, extent } in &machine.program.axes[axes as usize] {
            let coordinates = self.warp.registers.u32s(value);
            let at: [u64; 32] = std::array::from_fn(|lane| u64::from(coordinates[lane]) + u64::from(fixed));
            let further = if last { u64::from(width) - 1 } else { 0 };
            if at.iter().all(|&at| at + further < u64::from(extent)) {
                continue;
            }
            for (e, lanes) in target.lanes.iter_mut().enumerate().take(width as usize) {
                let along = if last { e as u64 } else { 0 };
                let outside = mask(|lane| at[lane] + along >= u64::from(extent)) & *lanes;
                if outside != 0 {
                    *lanes &= !outside;
                    let lane = outside.trailing_zeros() as usize;
                    self.outside_axis(array, (axis, at[lane] + along, extent), target.first[lane] + e, lane);
                }
            }
        }
        target
    }

    /// `highest` is the largest first element of any lane, also of those that do not take part.
    fn in_array(&mut self, array: usize, mut target: Target, highest: u64, width: u32) -> Target {
        let len = self.block.shared.arrays[array].len() as u64;
        let elements = if highest + u64::from(width) <= len { 0 } else { width as usize };
        for e in 0..elements {
            let outside = mask(|lane| (target.first[lane] + e) as u64 >= len) & target.lanes[e];
            if outside != 0 {
                let lane = outside.trailing_zeros() as usize;
                self.outside_array(array, (target.first[lane] + e) as u64, len, lane);
                target.lanes[e] &= !outside;
            }
        }
        if width > 1 {
            let odd = mask(|lane| !target.first[lane].is_multiple_of(width as usize)) & target.lanes[0];
            self.misaligned(odd, width);
        }
        target
    }

    fn in_matrix(
        &mut self,
        ty: Type,
        param: usize,
        [batches, rows, cols]: [[u32; 32]; 3],
        mut lanes: [u32; WIDEST],
        width: u32,
    ) -> Target {
        let place = Which::Global(param);
        let Arg::Matrix(buffer) = self.machine.args[param] else {
            return Target { place, first: [0; 32], lanes: [0; WIDEST] };
        };
        let Shape { batches: all, rows: high, cols: wide } = buffer.layout().shape;
        // Positions of coordinates outside may wrap; they are not used.
        let first = std::array::from_fn(|lane| {
            let row = (batches[lane] as usize).wrapping_mul(high).wrapping_add(rows[lane] as usize);
            row.wrapping_mul(wide).wrapping_add(cols[lane] as usize)
        });
        // Mostly no lane is outside, not even one that takes no part; only otherwise they are looked at one by one.
        let most = |lanes: &[u32; 32]| lanes.iter().fold(0, |most, &x| most.max(x)) as usize;
        let inside = most(&batches) < all && most(&rows) < high && most(&cols) + width as usize <= wide;
        let row_outside =
            if inside { 0 } else { mask(|lane| batches[lane] as usize >= all || rows[lane] as usize >= high) };
        for (e, lanes) in lanes.iter_mut().enumerate().take(if inside { 0 } else { width as usize }) {
            let outside = (row_outside | mask(|lane| cols[lane] as usize + e >= wide)) & *lanes;
            if outside != 0 {
                let lane = outside.trailing_zeros() as usize;
                let at = [batches[lane].into(), rows[lane].into(), u64::from(cols[lane]) + e as u64];
                self.outside_matrix(param, buffer, at, lane);
                *lanes &= !outside;
            }
        }
        if width > 1 {
            let unit = u64::from(bytes(ty, width));
            let odd = mask(|lane| {
                let [b, r, c] = [batches[lane], rows[lane], cols[lane]].map(u64::from);
                !buffer.address(param, b, r, c).is_multiple_of(unit)
            });
            self.misaligned(odd & lanes[0], width);
        }
        Target { place, first, lanes }
    }

    /// The values that the lanes read as their element number `e`.
    pub fn fetch_lanes(&self, target: &Target, e: usize, bits: &mut [u64; 32]) {
        let lanes = target.lanes[e];
        match target.place {
            Which::Shared(array) => {
                let words = &self.block.shared.arrays[array][..];
                if lanes == u32::MAX {
                    for lane in 0..32 {
                        bits[lane] = words[target.first[lane] + e];
                    }
                } else {
                    bits_of(lanes).for_each(|lane| bits[lane] = words[target.first[lane] + e]);
                }
            }
            Which::Global(param) => {
                if let Arg::Matrix(buffer) = self.machine.args[param] {
                    buffer.gather(&target.first, e, lanes, bits);
                    if buffer.ty().size() == 1 {
                        bits_of(lanes).for_each(|lane| bits[lane] = extended(buffer.ty(), bits[lane]));
                    }
                }
            }
        }
    }

    /// As [`Run::check`], for the element number `e` of all lanes that access one.
    pub fn check_lanes(&mut self, target: &Target, e: usize, does: Does, ordered: Option<Scope>) {
        let lanes = target.lanes[e];
        if !self.machine.config.races || lanes == 0 {
            return;
        }
        match target.place {
            Which::Global(param) => {
                if matches!(self.machine.args[param], Arg::Matrix(buffer) if !buffer.is_writable()) {
                    return;
                }
            }
            Which::Shared(array) if does == Does::Read => return self.check_shared_reads(array, target, e, ordered),
            Which::Shared(_) => {}
        }
        for lane in bits_of(lanes) {
            self.check(target.place, target.first[lane] + e, lane, does, ordered);
        }
    }

    /// A plain load of a parameter that is only read goes through the read-only path, which need
    /// not see what the launch wrote before, in whatever order.
    fn check_read_only(&mut self, target: &Target, e: usize) {
        let Which::Global(param) = target.place else { return };
        if !self.machine.read_only[param] {
            return;
        }
        for lane in bits_of(target.lanes[e]) {
            let (index, now) = (target.first[lane] + e, self.now(lane, None));
            let at = self.memory_of(target.place, index);
            if let Some(write) = self.global.written(&mut self.block.clocks, at, now) {
                self.stale(param, index, now, write);
            }
        }
    }

    fn stale(&mut self, param: usize, index: usize, now: Now, write: Access) {
        let (element, text) = self.element(Which::Global(param), index);
        let message = format!(
            "reads {text} through the read-only path, where what {} wrote in this launch may never come; bind the matrix to one parameter only, and declare it `Access::ReadWrite`",
            self.machine.who(write.lane)
        );
        let (sites, lanes) = (vec![now.site, SiteId(write.site)], vec![now.lane, write.lane]);
        self.mistake(Mistake { kind: Kind::StaleRead, sites, lanes, element: Some(element), message });
    }

    /// The commonest check of all, with short cuts for what is surely in order.
    fn check_shared_reads(&mut self, array: usize, target: &Target, e: usize, ordered: Option<Scope>) {
        let mut lanes = target.lanes[e];
        let index = target.first[lanes.trailing_zeros() as usize] + e;
        if lanes.count_ones() > 2 && bits_of(lanes).all(|lane| target.first[lane] + e == index) {
            // All lanes read one element: if that is in order for two of them, it is for all, and two readers are remembered.
            let last = 1 << (31 - lanes.leading_zeros());
            let pair = last | 1 << (31 - (lanes & !last).leading_zeros());
            if bits_of(pair).all(|lane| self.read_settled(array, index, lane, ordered)) {
                return;
            }
            lanes &= !pair;
            bits_of(pair).for_each(|lane| self.check(target.place, index, lane, Does::Read, ordered));
        }
        for lane in bits_of(lanes) {
            let index = target.first[lane] + e;
            if !self.read_settled(array, index, lane, ordered) {
                self.check(target.place, index, lane, Does::Read, ordered);
            }
        }
    }

    #[inline]
    fn read_settled(&mut self, array: usize, index: usize, lane: usize, ordered: Option<Scope>) -> bool {
        let now = self.now(lane, ordered);
        self.block.shadow.read_settled(&mut self.block.clocks, array, index, &now)
    }

    /// A lane's access as it is remembered.
    #[inline]
    pub fn now(&self, lane: usize, ordered: Option<Scope>) -> Now {
        let thread = self.thread(lane);
        Now { lane: thread, clock: self.block.clocks.clock(thread), site: self.site(), ordered }
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
        self.changed = self.changed || self.fetch(place, index) != bits;
        match place {
            Which::Shared(array) => self.block.shared.arrays[array][index] = bits,
            Which::Global(param) => {
                if let Arg::Matrix(buffer) = self.machine.args[param] {
                    buffer.store(index, bits);
                }
            }
        }
    }

    /// Stores the lanes' element number `e`.
    pub fn put_lanes(&mut self, target: &Target, e: usize, bits: &[u64; 32]) {
        bits_of(target.lanes[e]).for_each(|lane| self.put(target.place, target.first[lane] + e, bits[lane]));
    }

    /// Whether the lane may access the element now: initialised, landed, and ordered after what others did with it.
    #[inline]
    fn check(&mut self, place: Which, index: usize, lane: usize, does: Does, ordered: Option<Scope>) {
        if !self.machine.config.races {
            return;
        }
        let now = self.now(lane, ordered);
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
        let (in_flight, empty) = (cell.in_flight, !cell.written);
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
        self.check_equals(place, index, now, does);
    }

    pub fn check_global(&mut self, param: usize, index: usize, now: Now, does: Does) {
        self.check_early(param, index, now);
        let Arg::Matrix(buffer) = self.machine.args[param] else { return };
        if !buffer.is_writable() {
            return;
        }
        let place = Which::Global(param);
        if does == Does::Read && !buffer.is_initialised(index) {
            self.uninitialised(place, index, now);
        }
        let clocks = &mut self.block.clocks;
        let memory = self.machine.memory[param] as u32;
        let within = self.global.access(clocks, memory, index as u64, &now, does == Does::Write);
        self.machine.own(param, index, self.block.linear, now.lane, now.site, does == Does::Write);
        if let Some(conflict) = within {
            self.race(place, index, now, does, conflict);
        }
        self.check_equals(place, index, now, does);
    }

    fn acquire(&mut self, place: Which, index: usize, lane: usize, order: Order, scope: Scope) {
        if !self.machine.config.races {
            return;
        }
        let thread = (self.warp.index * 32) as u16 + lane as u16;
        let acquires = matches!(order, Order::Acquire | Order::AcqRel);
        let (memory, site) = (&self.machine.memory, self.site());
        let clocks = &mut self.block.clocks;
        let published = match place {
            Which::Shared(array) => self.block.shadow.published(array as u32, index as u32),
            Which::Global(param) => self.global.published(memory[param] as u32, index as u64),
        };
        let missed = published.load(clocks, thread, acquires, scope);
        clocks.missed.extend(missed.map(|block| (block, site)));
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
                let published = self.global.published(self.machine.memory[param] as u32, index as u64);
                published.store(clocks, thread, releases, scope, both);
            }
        }
    }
}

/// Whom an access speaks to, where it is not a plain one.
fn ordered(order: Order, scope: Scope) -> Option<Scope> {
    (order != Order::Weak).then_some(scope)
}

/// An element as registers hold it: 8-bit integers extended.
fn extended(ty: Type, bits: u64) -> u64 {
    if ty.size() == 8 { bits } else { u64::from(register_bits(ty, bits)) }
}

/// Counts sectors of an access to global memory by its addresses and bytes a lane.
type Sectors = fn(&[u64], u64) -> u64;

/// Counting.
impl Run<'_, '_> {
    /// `how` counts the wavefronts of an access to shared memory.
    pub fn tally(&mut self, ty: Type, at: At, target: &Target, width: u32, how: Passes) {
        self.tally_by(ty, at, target, width, how, sectors);
    }

    /// The same, with another count of sectors.
    fn tally_by(&mut self, ty: Type, at: At, target: &Target, width: u32, how: Passes, sectors: Sectors) {
        if !self.machine.config.counters {
            return;
        }
        let (passes, conflicts) = match target.place {
            Which::Shared(_) => self.shared_passes(ty, target, width, how),
            Which::Global(param) => (self.global_sectors(ty, at, param, target, sectors), 0),
        };
        self.request = Some(Request { width, passes, conflicts });
        let tally = &mut self.gathered.tallies[self.warp.pc];
        tally.elements += target.lanes.iter().map(|l| u64::from(l.count_ones())).sum::<u64>();
        tally.requests += u64::from(target.lanes[0] != 0);
        tally.passes += passes;
        tally.conflicts += conflicts;
    }

    fn tally_shared_write(&mut self, ty: Type, target: &Target, width: u32) {
        if self.machine.config.counters {
            let (passes, conflicts) = self.shared_passes(ty, target, width, wavefronts);
            let tally = &mut self.gathered.tallies[self.warp.pc];
            tally.written += passes;
            tally.conflicts += conflicts;
            self.request = Some(Request { width, passes, conflicts });
        }
    }

    /// Copies of 16 bytes a lane go past the first cache, and are counted by where they go as well ([`sectors_past_the_cache`]).
    fn tally_past_the_cache(&mut self, ty: Type, from: At, source: &Target, target: &Target, width: u32) {
        let size = ty.size() as u64;
        if !self.machine.config.counters || size * u64::from(width) != 16 {
            return;
        }
        let (Which::Global(param), Which::Shared(array)) = (source.place, target.place) else { return };
        let Some(read) = self.global_addresses(from, param) else { return };
        let start = u64::from(self.machine.kernel.shared()[array].start);
        let written = std::array::from_fn(|lane| start + target.first[lane] as u64 * size);
        let sectors = sectors_past_the_cache(&read, &written, source.lanes[0]);
        let Some(request) = &mut self.request else { return };
        self.gathered.tallies[self.warp.pc].passes += sectors - request.passes;
        request.passes = sectors;
    }

    fn shared_passes(&mut self, ty: Type, target: &Target, width: u32, how: Passes) -> (u64, u64) {
        let Which::Shared(array) = target.place else { return (0, 0) };
        let SharedArray { start, holds, .. } = self.machine.kernel.shared()[array];
        let size = ty.size() as u32;
        let lanes = target.lanes[0];
        // Elements are kept in order; of tiles, memory has their pieces elsewhere.
        let swizzle = if let Holds::Tiles(swizzle) = holds { swizzle } else { Swizzle::None };
        let addresses = std::array::from_fn(|lane| {
            u64::from(start) + u64::from(swizzle.place((target.first[lane] as u32).wrapping_mul(size)))
        });
        let pattern = &mut self.gathered.patterns[self.warp.pc][0];
        pattern.cost(&addresses, lanes, 4, || how(&addresses, lanes, size * width))
    }

    fn global_sectors(&mut self, ty: Type, at: At, param: usize, target: &Target, sectors: Sectors) -> u64 {
        let Some(addresses) = self.global_addresses(at, param) else { return 0 };
        let lanes = target.lanes[0];
        let count = || {
            let mut touched = [0; 32];
            let taking_part = bits_of(lanes).map(|lane| addresses[lane]);
            let len = touched.iter_mut().zip(taking_part).map(|(to, address)| *to = address).count();
            let widest = target.lanes.iter().filter(|&&lanes| lanes != 0).count().max(1);
            (sectors(&touched[..len], u64::from(bytes(ty, widest as u32))), 0)
        };
        if target.lanes[1..].iter().any(|&l| l != 0 && l != lanes) {
            // A vector that some lanes read in part: not the pattern of the first elements alone.
            return count().0;
        }
        self.gathered.patterns[self.warp.pc][1].cost(&addresses, lanes, SECTOR, count).0
    }

    /// Where the lanes' elements of a matrix in global memory are.
    fn global_addresses(&self, at: At, param: usize) -> Option<[u64; 32]> {
        let (Arg::Matrix(buffer), At::Global { batch, row, col, .. }) = (self.machine.args[param], at) else {
            return None;
        };
        let [batches, rows, cols] = [batch, row, col].map(|r| self.warp.registers.u32s(r));
        Some(std::array::from_fn(|lane| {
            let [b, r, c] = [batches[lane], rows[lane], cols[lane]].map(u64::from);
            buffer.address(param, b, r, c)
        }))
    }

    pub fn observe_access(&mut self, target: &Target, e: usize, does: Does, register: Option<Reg>, bits: &[u64; 32]) {
        let request = self.request.take();
        if self.observer.is_none() {
            return;
        }
        let elements =
            std::array::from_fn(|lane| (target.lanes[e] >> lane & 1 == 1).then(|| (target.first[lane] + e) as u64));
        let kernel = self.machine.kernel;
        let (space, memory, name) = match target.place {
            Which::Shared(array) => (Space::Shared, array, kernel.shared()[array].name.as_str()),
            Which::Global(param) => (Space::Global, param, kernel.params()[param].name.as_str()),
        };
        let write = does == Does::Write;
        self.observe(What::Access { write, space, name, memory, register, elements: &elements, bits, request });
    }
}

/// Reporting.
impl Run<'_, '_> {
    /// The space, name and coordinates of an element, and how messages write it.
    fn element(&self, place: Which, index: usize) -> ((Space, String, Vec<u64>), String) {
        match place {
            Which::Shared(array) => self.machine.element(Space::Shared, array, index),
            Which::Global(param) => self.machine.element(Space::Global, param, index),
        }
    }

    fn outside_axis(&mut self, array: usize, (axis, at, extent): (usize, u64, u32), index: usize, lane: usize) {
        let array = &self.machine.kernel.shared()[array];
        let name = array.name.clone();
        let message =
            format!("coordinate {at} along axis {axis} of shared array {name} {:?}, which has {extent}", array.dims);
        let (pc, thread) = (self.warp.pc, self.warp.index * 32 + lane as u32);
        self.report(Kind::OutOfBounds, pc, &[thread], Some((Space::Shared, name, vec![index as u64])), message);
    }

    pub fn outside_array(&mut self, array: usize, index: u64, len: u64, lane: usize) {
        let name = self.machine.kernel.shared()[array].name.clone();
        let message = format!("element {index} of shared array {name}, which has {len}");
        let thread = self.warp.index * 32 + lane as u32;
        let pc = self.warp.pc;
        self.report(Kind::OutOfBounds, pc, &[thread], Some((Space::Shared, name, vec![index])), message);
    }

    fn outside_matrix(&mut self, param: usize, buffer: &Buffer, [b, r, c]: [u64; 3], lane: usize) {
        let name = self.machine.kernel.params()[param].name.clone();
        let shape = buffer.layout().shape;
        let batch = if shape.batches == 1 && b == 0 { String::new() } else { format!(" of matrix {b}") };
        let message = format!("element ({r}, {c}){batch} of {name}, which is {shape}");
        let thread = self.warp.index * 32 + lane as u32;
        let pc = self.warp.pc;
        self.report(Kind::OutOfBounds, pc, &[thread], Some((Space::Global, name, vec![r, c])), message);
    }

    fn misaligned(&mut self, lanes: u32, width: u32) {
        if lanes == 0 {
            return;
        }
        let lane = lanes.trailing_zeros();
        let message = format!("{width} elements at once from an element that is no multiple of {width}");
        let thread = self.warp.index * 32 + lane;
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

    /// A write of a matrix that races.
    pub fn race_at(&mut self, param: usize, index: usize, now: Now, conflict: Conflict) {
        self.race(Which::Global(param), index, now, Does::Write, conflict);
    }

    fn race(&mut self, place: Which, index: usize, now: Now, does: Does, conflict: Conflict) {
        let machine = self.machine;
        let Conflict { block, earlier, earlier_writes } = conflict;
        if earlier.lane >= AGENT {
            let (space, memory) = match place {
                Which::Shared(array) => (Space::Shared, array),
                Which::Global(param) => (Space::Global, param),
            };
            return self.mistake(machine.conflict(space, memory, index, (now.site, now.lane, does), conflict));
        }
        let here = self.block.linear;
        let one = Use { block: here as u32, lane: now.lane, site: now.site, writes: does == Does::Write };
        let other = Use { block, lane: earlier.lane, site: SiteId(earlier.site), writes: earlier_writes };
        let sites = [one, other].map(|u| machine.kernel.site(u.site));
        let (element, _) = self.element(place, index);
        let missed = self.block.clocks.missed.get(&block).copied();
        self.found(Kind::Race, &sites, || machine.race(element, one, other, missed));
    }
}
