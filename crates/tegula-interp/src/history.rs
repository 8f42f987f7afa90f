//! Access history of an element: the accesses that a later access may race with.

use std::collections::BTreeMap;

use tegula_ir::Scope;

use super::race::{Access, BlockClocks, CurrentAccess, Race};
use super::release::Writer;

/// Accesses to an element since its last weak write by a thread: each lane's latest of every kind.
///
/// A weak access happens after the earlier ones or races with them, so a weak write by a thread
/// replaces the history before it. An asynchronous write does not: a wait for its completion covers
/// that write, but not the clock view of its issuer. Strong accesses do not race with each other,
/// so none replaces another. A later weak access may race with each of them, and an access before
/// the first of them may race with the second.
#[derive(Debug, Default)]
pub struct History {
    pub reads: BTreeMap<(u32, u16), Access>,
    /// Weak writes that an asynchronous write overwrote, the last of each lane.
    overwritten: Vec<(u32, Access)>,
    /// Strong reads with the scope of the block.
    block_reads: Reads,
    /// Strong reads with the scope of the device.
    device_reads: Reads,
    /// Number of strong writes.
    ///
    /// Strong writes are numbered in order. `atomic_chain` is the first of the current chain of
    /// atomic operations, of which each observes the one before it. `overwritten_before` is the
    /// first that no asynchronous write overwrote.
    write_count: u32,
    atomic_chain: u32,
    overwritten_before: u32,
    written: BTreeMap<(Writer, u16), Vec<StrongWrite>>,
    /// Writer of the last strong write.
    last: Option<Writer>,
    /// The recent waits of each lane.
    recent_waits: BTreeMap<(u32, u16), Vec<ObservedWrites>>,
}

/// Each lane's recent strong reads, by block, lane and slot.
type Reads = BTreeMap<(u32, u16, ReadSlot), Access>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum ReadSlot {
    Last,
    /// The last earlier read that is not half of an atomic operation.
    ///
    /// An observation of that operation is not one of this read.
    Earlier,
}

/// A strong write, with its number.
#[derive(Clone, Copy, Debug)]
struct StrongWrite {
    number: u32,
    access: Access,
}

/// A wait, and the numbers of the strong writes that it observed.
///
/// The last of them is morally strong with the wait, each other one with the atomic operation that
/// read it. These writes happen before the accesses after the wait; the earlier accesses of their
/// threads need not.
#[derive(Clone, Debug)]
struct ObservedWrites {
    observed: std::ops::Range<u32>,
    access: Access,
}

/// Number of waits recorded for each lane; evicting one may cause a false positive.
const MAX_WAITS: usize = 8;

impl History {
    /// Strong writes that no other write overwrote, with the block; the last of each lane first.
    pub fn strong_writes(&self) -> impl Iterator<Item = (u32, Access)> {
        self.lane_writes(|write| write.number >= self.overwritten_before)
    }

    /// Writes that asynchronous writes overwrote, with the block.
    ///
    /// They stay relevant: a wait for the completion of the asynchronous write does not cover them.
    pub fn overwritten_writes(&self) -> impl Iterator<Item = (u32, Access)> {
        self.overwritten.iter().copied().chain(self.lane_writes(|write| write.number < self.overwritten_before))
    }

    fn lane_writes(&self, condition: impl Fn(&StrongWrite) -> bool) -> impl Iterator<Item = (u32, Access)> {
        let all = self.written.iter().flat_map(|(&(by, _), writes)| writes.iter().rev().map(move |write| (by, write)));
        all.filter(move |(_, write)| condition(write)).map(|(by, write)| (by.block, write.access))
    }

    /// Strong reads since the last weak write by a thread.
    pub fn strong_reads(&self) -> impl Iterator<Item = Access> {
        self.block_reads.values().chain(self.device_reads.values()).copied()
    }

    /// Marks weak and strong writes as overwritten by an asynchronous write of an agent.
    ///
    /// Any view that covers the new write covers the agent's earlier ones.
    pub fn overwrite(&mut self, writes: impl Iterator<Item = (u32, Access)>, block: u32, agent: u16) {
        for (of, write) in writes {
            self.overwritten.retain(|(other, old)| (*other, old.lane) != (of, write.lane));
            self.overwritten.push((of, write));
        }
        self.overwritten.retain(|(of, write)| (*of, write.lane) != (block, agent));
        (self.atomic_chain, self.overwritten_before, self.last) = (self.write_count, self.write_count, None);
    }

    /// Records an access, given the last weak write; returns an access that it races with.
    pub fn access(
        &mut self,
        write: &mut Option<(u32, Access)>,
        clocks: &mut BlockClocks,
        now: &CurrentAccess,
        writes: bool,
    ) -> Option<Race> {
        let race = self.find_race(*write, clocks, now, writes);
        let (block, lane) = (clocks.block, now.lane);
        match now.scope {
            None if writes => {
                *self = History::default();
                *write = Some((block, now.access()));
            }
            None => {
                self.reads.insert((block, lane), now.access());
            }
            Some(scope) if writes => self.strong_write(block, now, scope),
            Some(scope) => self.strong_read(block, now, scope),
        }
        race
    }

    fn strong_read(&mut self, block: u32, now: &CurrentAccess, scope: Scope) {
        let by = Writer::new(block, scope);
        let reads = if by.device_scope { &mut self.device_reads } else { &mut self.block_reads };
        if let Some(earlier) = reads.insert((block, now.lane, ReadSlot::Last), now.access())
            && !is_read_half(&self.written, by, now.lane, &earlier)
        {
            reads.insert((block, now.lane, ReadSlot::Earlier), earlier);
        }
    }

    /// Numbers and records a strong write.
    ///
    /// The write half of an atomic operation observes the last write. Its read half read that write
    /// just before, at the same clock.
    ///
    /// An earlier write of the lane is dropped in two cases. Within a chain of atomic operations,
    /// every observer of the new write also observes the earlier one. Before a write that no wait
    /// observed and none will, a race with the one is a race with the other.
    fn strong_write(&mut self, block: u32, now: &CurrentAccess, scope: Scope) {
        let read = |reads: &Reads| reads.get(&(block, now.lane, ReadSlot::Last)) == Some(&now.access());
        let observes = self.last.is_none_or(|last| last.is_morally_strong_with(block, scope));
        if !observes || !read(&self.block_reads) && !read(&self.device_reads) {
            self.atomic_chain = self.write_count;
        }
        let by = Writer::new(block, scope);
        self.last = Some(by);
        let chain = self.atomic_chain;
        let earlier = self.written.entry((by, now.lane)).or_default();
        earlier.retain(|write| write.number < chain);
        let observed = |write: &StrongWrite| {
            self.recent_waits.values().flatten().any(|wait| wait.observed.contains(&write.number))
        };
        if let Some(unobserved) = earlier.iter().rposition(|write| !observed(write)) {
            earlier.drain(..unobserved);
        }
        earlier.push(StrongWrite { number: self.write_count, access: now.access() });
        self.write_count += 1;
    }

    /// Records an ended wait, which observed the last strong write and the atomic chain before it.
    ///
    /// Observations of other reads depend on the schedule and are not recorded.
    pub fn record_wait(&mut self, block: u32, now: &CurrentAccess, scope: Scope) {
        if self.last.is_some_and(|last| !last.is_morally_strong_with(block, scope)) {
            return;
        }
        let observed = self.atomic_chain..self.write_count;
        let recent_waits = self.recent_waits.entry((block, now.lane)).or_default();
        let holds = |old: &ObservedWrites| old.observed.start <= observed.start && old.observed.end >= observed.end;
        if recent_waits.iter().any(holds) {
            return;
        }
        if recent_waits.len() == MAX_WAITS {
            // Evict a wait whose writes the new one observed too; otherwise the oldest.
            let evicted = recent_waits.iter().position(|old| old.observed.start >= observed.start);
            recent_waits.remove(evicted.unwrap_or(0));
        }
        recent_waits.push(ObservedWrites { observed, access: now.access() });
    }

    /// Whether an access happens after a wait that observed this strong write.
    fn observed(&self, number: u32, clocks: &mut BlockClocks, now: &CurrentAccess) -> bool {
        self.recent_waits.iter().any(|(&(of, _), waits)| {
            let before = |access: &Access, clocks: &mut BlockClocks| clocks.happens_before_across(of, access, now);
            waits.iter().any(|wait| wait.observed.contains(&number) && before(&wait.access, clocks))
        })
    }

    /// Returns an access that a new access would race with.
    pub fn find_race(
        &self,
        write: Option<(u32, Access)>,
        clocks: &mut BlockClocks,
        now: &CurrentAccess,
        writes: bool,
    ) -> Option<Race> {
        self.find_race_among(write, clocks, now, writes, |_, _| true)
    }

    /// As [`History::find_race`], among the accesses for which a condition on block and lane holds.
    pub fn find_race_among(
        &self,
        write: Option<(u32, Access)>,
        clocks: &mut BlockClocks,
        now: &CurrentAccess,
        writes: bool,
        condition: impl Fn(u32, u16) -> bool + Copy,
    ) -> Option<Race> {
        let unordered = |clocks: &mut BlockClocks, (block, access): (u32, Access), earlier_writes: bool| {
            let race = (writes || earlier_writes)
                && condition(block, access.lane)
                && !clocks.happens_before_across(block, &access, now);
            race.then_some(Race { block, earlier: access, earlier_writes })
        };
        let mut weak_writes = write.into_iter().chain(self.overwritten.iter().copied());
        if let Some(race) = weak_writes.find_map(|write| unordered(clocks, write, true)) {
            return Some(race);
        }
        let mut reads = self.reads.iter().map(|(&(block, _), &read)| (block, read));
        if writes && let Some(race) = reads.find_map(|read| unordered(clocks, read, false)) {
            return Some(race);
        }
        // Two strong accesses race if the scope of one excludes the other's block.
        let reaches: &[bool] = match now.scope {
            Some(Scope::Device | Scope::System) => &[false],
            Some(Scope::Block) | None => &[false, true],
        };
        reaches.iter().find_map(|&device_scope| self.find_strong_race(device_scope, clocks, now, writes, condition))
    }

    /// As [`History::find_race_among`], for the strong accesses of one scope.
    fn find_strong_race(
        &self,
        device_scope: bool,
        clocks: &mut BlockClocks,
        now: &CurrentAccess,
        writes: bool,
        condition: impl Fn(u32, u16) -> bool,
    ) -> Option<Race> {
        let own_block = clocks.block;
        let can_race = |block: u32, lane: u16| (now.scope.is_none() || block != own_block) && condition(block, lane);
        for (&(by, lane), written) in &self.written {
            if by.device_scope != device_scope || !can_race(by.block, lane) {
                continue;
            }
            let mut latest_first = written.iter().rev();
            let race = latest_first.find(|StrongWrite { number, access }| {
                !clocks.happens_before_across(by.block, access, now) && !self.observed(*number, clocks, now)
            });
            if let Some(StrongWrite { access, .. }) = race {
                return Some(Race { block: by.block, earlier: *access, earlier_writes: true });
            }
        }
        let reads = if device_scope { &self.device_reads } else { &self.block_reads };
        let (&(block, ..), read) = reads.iter().filter(|_| writes).find(|&(&(block, lane, usage), read)| {
            let half =
                || usage == ReadSlot::Last && is_read_half(&self.written, Writer { block, device_scope }, lane, read);
            can_race(block, lane) && !half() && !clocks.happens_before_across(block, read, now)
        })?;
        Some(Race { block, earlier: *read, earlier_writes: false })
    }
}

/// Whether a lane's last read is the read half of its last atomic operation.
fn is_read_half(written: &BTreeMap<(Writer, u16), Vec<StrongWrite>>, by: Writer, lane: u16, read: &Access) -> bool {
    written.get(&(by, lane)).and_then(|writes| writes.last()).is_some_and(|last| last.access == *read)
}
