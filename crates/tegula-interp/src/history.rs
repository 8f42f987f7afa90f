//! The accesses to one element of memory that a later access may race with.

use std::collections::BTreeMap;

use tegula_ir::Scope;

use super::race::{Access, Clocks, Conflict, Now};
use super::release::Writer;

/// Who used an element since its last plain write by a thread, each lane's latest use of every kind.
///
/// Plain accesses follow one another or race, so a plain write by a thread makes what came before
/// it superfluous. An asynchronous write does not: who waits for its completion knows that write,
/// and not what its issuer knew. Ordered accesses do not race with each other, so none makes
/// another superfluous: each may be the one that a later plain access races with, and what came
/// before the first of them may race with the second.
#[derive(Debug, Default)]
pub(super) struct History {
    pub reads: BTreeMap<(u32, u16), Access>,
    /// Plain writes that an asynchronous write replaced, the last of each lane.
    replaced: Vec<(u32, Access)>,
    /// Ordered reads by accesses that speak to their block alone …
    narrow: Reads,
    /// … and by those that speak to the device.
    wide: Reads,
    /// Ordered writes in their order: how many there were, since which they are atomic, one
    /// observing the last, and before which an asynchronous write replaced them.
    writes: u32,
    chain: u32,
    overwritten: u32,
    written: BTreeMap<(Writer, u16), Vec<OrderedWrite>>,
    /// Writer of the last ordered write.
    last: Option<Writer>,
    /// Of each lane, its last waits.
    observers: BTreeMap<(u32, u16), Vec<Observer>>,
}

/// Each lane's last ordered reads, by block, lane and kind.
type Reads = BTreeMap<(u32, u16, Read), Access>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Read {
    Last,
    /// The last one before it that is not half of an atomic operation. To observe that operation
    /// is not to observe this read.
    Earlier,
}

/// An ordered write, with its number.
#[derive(Clone, Copy, Debug)]
struct OrderedWrite {
    number: u32,
    access: Access,
}

/// A wait, and the numbers of the ordered writes that it observed. The last is morally strong with
/// the wait, each of the others with the atomic operation that read it. These writes precede what
/// follows the wait; what their threads did before them does not.
#[derive(Clone, Debug)]
struct Observer {
    observed: std::ops::Range<u32>,
    access: Access,
}

/// Waits for an element that are remembered of each lane; of one that is forgotten, a race too many
/// may be reported.
const OBSERVERS: usize = 8;

impl History {
    /// The ordered writes that no other write replaced, with the block; of a lane the last first.
    pub fn ordered_writes(&self) -> impl Iterator<Item = (u32, Access)> {
        self.lane_writes(|write| write.number >= self.overwritten)
    }

    /// The writes that asynchronous ones replaced, with the block.
    pub fn replaced_writes(&self) -> impl Iterator<Item = (u32, Access)> {
        self.replaced.iter().copied().chain(self.lane_writes(|write| write.number < self.overwritten))
    }

    fn lane_writes(&self, is_meant: impl Fn(&OrderedWrite) -> bool) -> impl Iterator<Item = (u32, Access)> {
        let all = self.written.iter().flat_map(|(&(by, _), writes)| writes.iter().rev().map(move |write| (by, write)));
        all.filter(move |(_, write)| is_meant(write)).map(|(by, write)| (by.block, write.access))
    }

    /// Ordered reads since the last plain write by a thread.
    pub fn ordered_reads(&self) -> impl Iterator<Item = Access> {
        self.narrow.values().chain(self.wide.values()).copied()
    }

    /// An agent of a block replaces plain writes, and what ordered writes wrote. Its own earlier
    /// writes are known to whoever knows the new one.
    pub fn replace(&mut self, writes: impl Iterator<Item = (u32, Access)>, block: u32, agent: u16) {
        for (of, write) in writes {
            self.replaced.retain(|(other, old)| (*other, old.lane) != (of, write.lane));
            self.replaced.push((of, write));
        }
        self.replaced.retain(|(of, write)| (*of, write.lane) != (block, agent));
        (self.chain, self.overwritten, self.last) = (self.writes, self.writes, None);
    }

    /// An access, with the last plain write; an access it races with, if there is one.
    pub fn access(
        &mut self,
        write: &mut Option<(u32, Access)>,
        clocks: &mut Clocks,
        now: &Now,
        writes: bool,
    ) -> Option<Conflict> {
        let conflict = self.conflict(*write, clocks, now, writes);
        let (block, lane) = (clocks.block, now.lane);
        match now.ordered {
            None if writes => {
                *self = History::default();
                *write = Some((block, now.access()));
            }
            None => {
                self.reads.insert((block, lane), now.access());
            }
            Some(scope) if writes => self.ordered_write(block, now, scope),
            Some(scope) => self.ordered_read(block, now, scope),
        }
        conflict
    }

    fn ordered_read(&mut self, block: u32, now: &Now, scope: Scope) {
        let by = Writer::new(block, scope);
        let reads = if by.wide { &mut self.wide } else { &mut self.narrow };
        if let Some(earlier) = reads.insert((block, now.lane, Read::Last), now.access())
            && !is_half(&self.written, by, now.lane, &earlier)
        {
            reads.insert((block, now.lane, Read::Earlier), earlier);
        }
    }

    /// Numbers an ordered write and keeps it. That of an atomic operation observes the last, which
    /// its read half, just before at the same clock, read.
    ///
    /// A lane's earlier write is dropped where whoever observes the new one observes it too, which
    /// holds within a chain of atomic operations; and before one that no wait observed and none
    /// will, since who races with the one races with the other.
    fn ordered_write(&mut self, block: u32, now: &Now, scope: Scope) {
        let read = |reads: &Reads| reads.get(&(block, now.lane, Read::Last)) == Some(&now.access());
        let observes = self.last.is_none_or(|last| last.is_strong_with(block, scope));
        if !observes || !read(&self.narrow) && !read(&self.wide) {
            self.chain = self.writes;
        }
        let by = Writer::new(block, scope);
        self.last = Some(by);
        let chain = self.chain;
        let earlier = self.written.entry((by, now.lane)).or_default();
        earlier.retain(|write| write.number < chain);
        let observed =
            |write: &OrderedWrite| self.observers.values().flatten().any(|wait| wait.observed.contains(&write.number));
        if let Some(unobserved) = earlier.iter().rposition(|write| !observed(write)) {
            earlier.drain(..unobserved);
        }
        earlier.push(OrderedWrite { number: self.writes, access: now.access() });
        self.writes += 1;
    }

    /// A thread that waited has observed the last ordered write and, where that is atomic, those
    /// before it. What other reads observe is up to the schedule.
    pub fn waited(&mut self, block: u32, now: &Now, scope: Scope) {
        if self.last.is_some_and(|last| !last.is_strong_with(block, scope)) {
            return;
        }
        let observed = self.chain..self.writes;
        let observers = self.observers.entry((block, now.lane)).or_default();
        let holds = |old: &Observer| old.observed.start <= observed.start && old.observed.end >= observed.end;
        if observers.iter().any(holds) {
            return;
        }
        if observers.len() == OBSERVERS {
            // Evict a wait whose writes the new one observed too, before the oldest.
            let forgotten = observers.iter().position(|old| old.observed.start >= observed.start);
            observers.remove(forgotten.unwrap_or(0));
        }
        observers.push(Observer { observed, access: now.access() });
    }

    /// Whether an access comes after a wait that observed an ordered write.
    fn observed(&self, number: u32, clocks: &mut Clocks, now: &Now) -> bool {
        self.observers.iter().any(|(&(of, _), waits)| {
            let before = |access: &Access, clocks: &mut Clocks| clocks.ordered_across(of, access, now);
            waits.iter().any(|wait| wait.observed.contains(&number) && before(&wait.access, clocks))
        })
    }

    /// An access that a new one would race with, if there is one.
    pub fn conflict(
        &self,
        write: Option<(u32, Access)>,
        clocks: &mut Clocks,
        now: &Now,
        writes: bool,
    ) -> Option<Conflict> {
        let unordered = |clocks: &mut Clocks, (block, access): (u32, Access), earlier_writes: bool| {
            let race = (writes || earlier_writes) && !clocks.ordered_across(block, &access, now);
            race.then_some(Conflict { block, earlier: access, earlier_writes })
        };
        let mut plain = write.into_iter().chain(self.replaced.iter().copied());
        if let Some(conflict) = plain.find_map(|write| unordered(clocks, write, true)) {
            return Some(conflict);
        }
        let mut reads = self.reads.iter().map(|(&(block, _), &read)| (block, read));
        if writes && let Some(conflict) = reads.find_map(|read| unordered(clocks, read, false)) {
            return Some(conflict);
        }
        // Two ordered accesses race where one of them does not speak to the other's block.
        let reaches: &[bool] = match now.ordered {
            Some(Scope::Device | Scope::System) => &[false],
            Some(Scope::Block) | None => &[false, true],
        };
        reaches.iter().find_map(|&wide| self.conflict_with_ordered(wide, clocks, now, writes))
    }

    /// As [`History::conflict`], with the ordered accesses of one reach.
    fn conflict_with_ordered(&self, wide: bool, clocks: &mut Clocks, now: &Now, writes: bool) -> Option<Conflict> {
        let mine = clocks.block;
        let is_stranger = |block: u32| now.ordered.is_none() || block != mine;
        for (&(by, _), written) in &self.written {
            if by.wide != wide || !is_stranger(by.block) {
                continue;
            }
            let mut latest_first = written.iter().rev();
            let race = latest_first.find(|OrderedWrite { number, access }| {
                !clocks.ordered_across(by.block, access, now) && !self.observed(*number, clocks, now)
            });
            if let Some(OrderedWrite { access, .. }) = race {
                return Some(Conflict { block: by.block, earlier: *access, earlier_writes: true });
            }
        }
        let reads = if wide { &self.wide } else { &self.narrow };
        let (&(block, ..), read) = reads.iter().filter(|_| writes).find(|&(&(block, lane, usage), read)| {
            let half = || usage == Read::Last && is_half(&self.written, Writer { block, wide }, lane, read);
            is_stranger(block) && !half() && !clocks.ordered_across(block, read, now)
        })?;
        Some(Conflict { block, earlier: *read, earlier_writes: false })
    }
}

/// Whether a lane's last read is the read half of its last atomic operation, with which it comes.
fn is_half(written: &BTreeMap<(Writer, u16), Vec<OrderedWrite>>, by: Writer, lane: u16, read: &Access) -> bool {
    written.get(&(by, lane)).and_then(|writes| writes.last()).is_some_and(|last| last.access == *read)
}
