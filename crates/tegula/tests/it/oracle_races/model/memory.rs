//! Accesses of threads: which race, what they publish, and what they observe.

use tegula_ir::{AtomicOp, Compare, Operand, Order, Scope};

use super::clock::{Known, Strength, strong};
use super::{Access, Agent, Element, Location, Machine, Party, Proxy, Published};
use crate::oracle_races::program::{Array, At};

impl Machine<'_> {
    pub(super) fn strength(&self, thread: usize, scope: Option<Scope>) -> Strength {
        Strength { thread, block: self.threads[thread].block, scope }
    }

    pub(super) fn location(&mut self, me: usize, array: Array, index: u32) -> (Element, &mut Location) {
        let array = array.memory();
        let block = if array.is_shared() { self.threads[me].block } else { 0 };
        let element = (block, array, index);
        (element, self.memory.entry(element).or_default())
    }

    /// Begins all that the block shares, as thread 0 alone does before a barrier.
    pub(super) fn init(&mut self, me: usize, party: Party) -> bool {
        let multiplies = self.program.multiplies();
        let shared =
            Array::ALL.into_iter().filter(|array| array.is_shared() && (*array != Array::Factors || multiplies));
        for array in shared {
            for index in 0..array.len() {
                self.access(me, party, At::cell(array, index), 0, true, None);
            }
        }
        let time = self.threads[me].known.tick(me);
        self.threads[me].proxy_fences.push(time);
        true
    }

    /// An access of a thread to each of the elements. Gives the number of the last.
    pub(super) fn access(
        &mut self,
        me: usize,
        party: Party,
        at: At,
        lane: u32,
        writes: bool,
        scope: Option<Scope>,
    ) -> usize {
        let strength = self.strength(me, scope);
        let time = self.threads[me].known.tick(me);
        let known = self.threads[me].known.clone();
        let by = Agent { number: me, time, party, strength, proxy: Proxy::Generic };
        for index in at.elements(lane) {
            let (element, _) = self.location(me, at.array, index);
            self.note(&by, &known, element, writes);
        }
        self.accesses
    }

    /// Compares an access with all before it, and keeps it.
    pub(super) fn note(&mut self, by: &Agent, known: &Known, element: Element, writes: bool) {
        self.accesses += 1;
        let Agent { number: agent, time, party, strength, proxy } = *by;
        let location = self.memory.entry(element).or_default();
        // Lanes of a warp that store one value in one instruction do what one of them does.
        let round = self.round;
        let together = |other: &Access| {
            let weak = strength.scope.is_none() && other.strength.scope.is_none();
            let warp = |party: Party| (party.block, party.thread / 32, party.step);
            weak && round.is_some() && round == other.round && warp(party) == warp(other.party)
        };
        let races = |other: &&Access| {
            let both_strong = strength.scope.is_some() && other.strength.scope.is_some() && proxy == other.proxy;
            (writes || other.writes)
                && !known.has(other)
                // By one agent only where one instruction writes an element twice, which none does.
                && other.agent != agent
                && !(both_strong && strength.morally_strong(other.strength))
                && !(writes && other.writes && together(other))
        };
        let pair = |other: &Access| if other.party < party { [other.party, party] } else { [party, other.party] };
        let met: Vec<_> = location.accesses.iter().filter(races).map(pair).collect();
        // What the asynchronous proxy uses is the last write, which its thread has fenced.
        let last = location.accesses.iter().rev().find(|other| other.writes);
        let unfenced = last.filter(|last| proxy == Proxy::Async && last.proxy == Proxy::Generic).filter(|last| {
            let seen = known.clock.get(last.agent).copied().unwrap_or(0);
            // The fence of programs is of shared memory alone.
            let fences = self.threads[last.agent].proxy_fences.iter().filter(|_| element.1.is_shared());
            known.has(last) && !fences.into_iter().any(|&fence| fence > last.time && fence <= seen)
        });
        let unfenced = unfenced.map(pair);
        location.accesses.push(Access { id: self.accesses, agent, time, party, round, writes, strength, proxy });
        if !met.is_empty() {
            self.races.races.entry(element).or_default().extend(met);
        }
        if let Some(pair) = unfenced {
            self.races.unfenced.entry(element).or_default().insert(pair);
        }
    }

    #[allow(clippy::too_many_arguments, reason = "all that there is to a store")]
    pub(super) fn write(
        &mut self,
        me: usize,
        party: Party,
        at: At,
        lane: u32,
        value: u32,
        order: Order,
        scope: Scope,
    ) -> bool {
        let id = self.access(me, party, at, lane, true, strong(order, scope));
        for index in at.elements(lane) {
            let published = (order != Order::Weak).then(|| self.publish(me, id, (at.array, index), order, scope));
            let (_, location) = self.location(me, at.array, index);
            location.value = value;
            location.chain = published.into_iter().collect();
        }
        true
    }

    /// A comparison that fails is a read, which releases nothing.
    #[allow(clippy::too_many_arguments, reason = "all that there is to an atomic operation")]
    pub(super) fn atomic(
        &mut self,
        me: usize,
        party: Party,
        at: At,
        lane: u32,
        (op, value): (AtomicOp, u32),
        order: Order,
        scope: Scope,
    ) -> bool {
        let index = at.start(lane);
        let (_, location) = self.location(me, at.array, index);
        let new = computed(op, location.value, value);
        let id = self.access(me, party, at, lane, new.is_some(), strong(order, scope));
        let acquires = matches!(order, Order::Acquire | Order::AcqRel);
        self.observe(me, (at.array, index), scope, acquires, false);
        let Some(new) = new else { return true };
        let published = self.publish(me, id, (at.array, index), order, scope);
        let (_, location) = self.location(me, at.array, index);
        if !location.chain.last().is_some_and(|last| last.by.morally_strong(published.by)) {
            location.chain.clear();
        }
        location.value = new;
        location.chain.push(published);
        true
    }

    /// A write that is no strong one.
    pub(super) fn put(&mut self, element: Element, value: u32) {
        let location = self.memory.entry(element).or_default();
        location.value = value;
        location.chain.clear();
    }

    /// A strong write, with the release patterns that it ends.
    pub(super) fn publish(
        &mut self,
        me: usize,
        id: usize,
        (array, index): (Array, u32),
        order: Order,
        scope: Scope,
    ) -> Published {
        let by = self.strength(me, Some(scope));
        let (known, fences) = (self.threads[me].known.clone(), self.threads[me].fences.clone());
        let goes_on = self.rules.releases_go_on;
        let (_, location) = self.location(me, array, index);
        let released = location.released.entry(me).or_default();
        if matches!(order, Order::Release | Order::AcqRel) {
            released.push((by, known));
        }
        let patterns = fences.into_iter().chain(released.iter().cloned()).collect();
        if !goes_on {
            released.clear();
        }
        Published { id, by, patterns }
    }

    /// What a strong read learns of the writes that it observes, and, if it acquires, of what came before.
    pub(super) fn observe(
        &mut self,
        me: usize,
        (array, index): (Array, u32),
        scope: Scope,
        acquires: bool,
        waits: bool,
    ) {
        let by = self.strength(me, Some(scope));
        let (element, location) = self.location(me, array, index);
        if location.chain.last().is_some_and(|last| last.by.morally_strong(by)) {
            let chain = location.chain.clone();
            let thread = &mut self.threads[me];
            // What a read observes that does not wait depends on the schedule.
            if self.rules.observation_orders && waits {
                thread.known.observed.extend(chain.iter().map(|write| write.id));
            }
            let patterns = chain.into_iter().flat_map(|write| write.patterns);
            thread.observed.extend(patterns.map(|(first, known)| (element, first, known)));
        }
        let thread = &mut self.threads[me];
        let observed = &thread.observed;
        let learned = observed.iter().filter(|(at, first, _)| *at == element && first.morally_strong(by));
        learned.filter(|_| acquires).for_each(|(_, _, known)| thread.known.join(known));
    }

    pub(super) fn wait(
        &mut self,
        me: usize,
        party: Party,
        at: At,
        lane: u32,
        (how, value): (Compare, u32),
        scope: Scope,
    ) -> bool {
        let index = at.start(lane);
        let found = self.location(me, at.array, index).1.value;
        let holds = match how {
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
        self.access(me, party, at, lane, false, Some(scope));
        self.observe(me, (at.array, index), scope, true, true);
        true
    }
}

/// What an atomic operation writes, if it writes.
fn computed(op: AtomicOp, old: u32, value: u32) -> Option<u32> {
    Some(match op {
        AtomicOp::Add => old.wrapping_add(value),
        AtomicOp::Min => old.min(value),
        AtomicOp::Max => old.max(value),
        AtomicOp::And => old & value,
        AtomicOp::Or => old | value,
        AtomicOp::Xor => old ^ value,
        AtomicOp::Exchange => value,
        AtomicOp::CompareExchange { expected: Operand::Const(_, bits) } => {
            return (u64::from(old) == bits).then_some(value);
        }
        AtomicOp::CompareExchange { expected } => unreachable!("programs expect constants, not {expected:?}"),
    })
}
