//! Executes accesses of threads: their races, releases and observations.

use tegula_ir::{AtomicOp, Compare, MemoryOrder, Operand, Scope};

use super::clock::{ClockView, Strength, strong};
use super::{Access, AccessSite, Accessor, Element, Location, Machine, Proxy, StrongWrite};
use crate::oracle_races::program::{Array, ElementRange};

impl Machine<'_> {
    pub(super) fn strength(&self, thread: usize, scope: Option<Scope>) -> Strength {
        Strength { thread, block: self.threads[thread].block, scope }
    }

    pub(super) fn location(&mut self, tid: usize, array: Array, index: u32) -> (Element, &mut Location) {
        let array = array.storage();
        let block = if array.is_shared() { self.threads[tid].block } else { 0 };
        let element = (block, array, index);
        (element, self.memory.entry(element).or_default())
    }

    /// Initializes all shared memory of the block, as thread 0 alone does before a barrier.
    pub(super) fn init(&mut self, tid: usize, site: AccessSite) -> bool {
        let uses_wgmma = self.program.uses_wgmma();
        let shared =
            Array::ALL.into_iter().filter(|array| array.is_shared() && (*array != Array::Operands || uses_wgmma));
        for array in shared {
            for index in 0..array.len() {
                self.access(tid, site, ElementRange::cell(array, index), 0, true, None);
            }
        }
        let time = self.threads[tid].view.tick(tid);
        self.threads[tid].proxy_fences.push(time);
        true
    }

    /// Records an access of a thread to each of the elements. Returns the id of the last.
    pub(super) fn access(
        &mut self,
        tid: usize,
        site: AccessSite,
        at: ElementRange,
        lane: u32,
        writes: bool,
        scope: Option<Scope>,
    ) -> usize {
        let strength = self.strength(tid, scope);
        let time = self.threads[tid].view.tick(tid);
        let view = self.threads[tid].view.clone();
        let accessor = Accessor { agent: tid, time, site, strength, proxy: Proxy::Generic };
        for index in at.elements(lane) {
            let (element, _) = self.location(tid, at.array, index);
            self.record(&accessor, &view, element, writes);
        }
        self.accesses
    }

    /// Compares an access with all earlier ones to its element, and records it.
    pub(super) fn record(&mut self, accessor: &Accessor, view: &ClockView, element: Element, writes: bool) {
        self.accesses += 1;
        let Accessor { agent, time, site, strength, proxy } = *accessor;
        let location = self.memory.entry(element).or_default();
        // Lanes of a warp that store one value with one instruction act as one lane.
        let execution = self.execution;
        let same_store = |other: &Access| {
            let weak = strength.scope.is_none() && other.strength.scope.is_none();
            let warp = |site: AccessSite| (site.block, site.thread / 32, site.step);
            weak && execution.is_some() && execution == other.execution && warp(site) == warp(other.site)
        };
        let races = |other: &&Access| {
            let both_strong = strength.scope.is_some() && other.strength.scope.is_some() && proxy == other.proxy;
            (writes || other.writes)
                && !view.contains(other)
                // An agent never writes an element twice with one instruction.
                && other.agent != agent
                && !(both_strong && strength.morally_strong(other.strength))
                && !(writes && other.writes && same_store(other))
        };
        let pair = |other: &Access| if other.site < site { [other.site, site] } else { [site, other.site] };
        let racing: Vec<_> = location.accesses.iter().filter(races).map(pair).collect();
        // The asynchronous proxy accesses the last write, which its thread must have fenced.
        let last = location.accesses.iter().rev().find(|other| other.writes);
        let unfenced = last.filter(|last| proxy == Proxy::Async && last.proxy == Proxy::Generic).filter(|last| {
            let seen = view.clock.get(last.agent).copied().unwrap_or(0);
            // The proxy fence of these programs covers shared memory alone.
            let fences = self.threads[last.agent].proxy_fences.iter().filter(|_| element.1.is_shared());
            view.contains(last) && !fences.into_iter().any(|&fence| fence > last.time && fence <= seen)
        });
        let unfenced = unfenced.map(pair);
        location.accesses.push(Access { id: self.accesses, agent, time, site, execution, writes, strength, proxy });
        if !racing.is_empty() {
            self.races.races.entry(element).or_default().extend(racing);
        }
        if let Some(pair) = unfenced {
            self.races.unfenced.entry(element).or_default().insert(pair);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "the parameters of a store")]
    pub(super) fn write(
        &mut self,
        tid: usize,
        site: AccessSite,
        at: ElementRange,
        lane: u32,
        value: u32,
        order: MemoryOrder,
        scope: Scope,
    ) -> bool {
        let id = self.access(tid, site, at, lane, true, strong(order, scope));
        for index in at.elements(lane) {
            let write = (order != MemoryOrder::Weak).then(|| self.publish(tid, id, (at.array, index), order, scope));
            let (_, location) = self.location(tid, at.array, index);
            location.value = value;
            location.chain = write.into_iter().collect();
        }
        true
    }

    /// A failed comparison is a read, which releases nothing.
    #[allow(clippy::too_many_arguments, reason = "the parameters of an atomic operation")]
    pub(super) fn atomic(
        &mut self,
        tid: usize,
        site: AccessSite,
        at: ElementRange,
        lane: u32,
        (op, value): (AtomicOp, u32),
        order: MemoryOrder,
        scope: Scope,
    ) -> bool {
        let index = at.start(lane);
        let (_, location) = self.location(tid, at.array, index);
        let new = computed(op, location.value, value);
        let id = self.access(tid, site, at, lane, new.is_some(), strong(order, scope));
        let acquires = matches!(order, MemoryOrder::Acquire | MemoryOrder::AcqRel);
        self.observe(tid, (at.array, index), scope, acquires, false);
        let Some(new) = new else { return true };
        let write = self.publish(tid, id, (at.array, index), order, scope);
        let (_, location) = self.location(tid, at.array, index);
        if !location.chain.last().is_some_and(|last| last.strength.morally_strong(write.strength)) {
            location.chain.clear();
        }
        location.value = new;
        location.chain.push(write);
        true
    }

    /// A weak write, which ends the chain of observed writes.
    pub(super) fn weak_write(&mut self, element: Element, value: u32) {
        let location = self.memory.entry(element).or_default();
        location.value = value;
        location.chain.clear();
    }

    /// Creates a strong write with the release patterns that it ends.
    pub(super) fn publish(
        &mut self,
        tid: usize,
        id: usize,
        (array, index): (Array, u32),
        order: MemoryOrder,
        scope: Scope,
    ) -> StrongWrite {
        let strength = self.strength(tid, Some(scope));
        let (view, fences) = (self.threads[tid].view.clone(), self.threads[tid].fences.clone());
        let extends = self.rules.release_patterns_extend;
        let (_, location) = self.location(tid, array, index);
        let released = location.released.entry(tid).or_default();
        if matches!(order, MemoryOrder::Release | MemoryOrder::AcqRel) {
            released.push((strength, view));
        }
        let patterns = fences.into_iter().chain(released.iter().cloned()).collect();
        if !extends {
            released.clear();
        }
        StrongWrite { id, strength, patterns }
    }

    /// A strong read: records the writes that it observes and, if it acquires, joins the clocks of
    /// their releases.
    pub(super) fn observe(
        &mut self,
        tid: usize,
        (array, index): (Array, u32),
        scope: Scope,
        acquires: bool,
        waits: bool,
    ) {
        let strength = self.strength(tid, Some(scope));
        let (element, location) = self.location(tid, array, index);
        if location.chain.last().is_some_and(|last| last.strength.morally_strong(strength)) {
            let chain = location.chain.clone();
            let thread = &mut self.threads[tid];
            // What a read observes without waiting depends on the schedule.
            if self.rules.observation_orders && waits {
                thread.view.observed.extend(chain.iter().map(|write| write.id));
            }
            let patterns = chain.into_iter().flat_map(|write| write.patterns);
            thread.observed.extend(patterns.map(|(first, view)| (element, first, view)));
        }
        let thread = &mut self.threads[tid];
        let observed = &thread.observed;
        let acquired = observed.iter().filter(|(at, first, _)| *at == element && first.morally_strong(strength));
        acquired.filter(|_| acquires).for_each(|(_, _, view)| thread.view.join(view));
    }

    pub(super) fn wait(
        &mut self,
        tid: usize,
        site: AccessSite,
        at: ElementRange,
        lane: u32,
        (compare, value): (Compare, u32),
        scope: Scope,
    ) -> bool {
        let index = at.start(lane);
        let found = self.location(tid, at.array, index).1.value;
        let holds = match compare {
            Compare::Eq => found == value,
            Compare::Ne => found != value,
            Compare::Lt => found < value,
            Compare::Le => found <= value,
            Compare::Gt => found > value,
            Compare::Ge => found >= value,
        };
        if !holds {
            return false;
        }
        self.access(tid, site, at, lane, false, Some(scope));
        self.observe(tid, (at.array, index), scope, true, true);
        true
    }
}

/// The value that an atomic operation writes, if it writes.
fn computed(op: AtomicOp, old: u32, value: u32) -> Option<u32> {
    Some(match op {
        AtomicOp::Add => old.wrapping_add(value),
        AtomicOp::Min => old.min(value),
        AtomicOp::Max => old.max(value),
        AtomicOp::And => old & value,
        AtomicOp::Or => old | value,
        AtomicOp::Xor => old ^ value,
        AtomicOp::Swap => value,
        AtomicOp::CompareExchange { expected: Operand::Const(_, bits) } => {
            return (u64::from(old) == bits).then_some(value);
        }
        AtomicOp::CompareExchange { expected } => unreachable!("programs expect constants, not {expected:?}"),
    })
}
