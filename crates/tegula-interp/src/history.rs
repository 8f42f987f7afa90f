//! The accesses to one element of memory that a later access may race with.

use std::collections::BTreeMap;

use tegula_ir::Scope;

use super::race::{Access, Clocks, Conflict, Now};
use super::release::Writer;

/// Who used an element since its last plain write, each lane's latest use of every kind.
///
/// Plain accesses follow one another or race, so a plain write makes what came before it
/// superfluous. Ordered accesses do not race with each other, so none makes another superfluous:
/// each may be the one that a later plain access races with, and what came before the first of them
/// may race with the second.
#[derive(Debug, Default)]
pub(super) struct History {
    pub reads: BTreeMap<(u32, u16), Access>,
    /// Ordered accesses: those that speak to their block alone …
    narrow: Used,
    /// … and those that speak to the device.
    wide: Used,
    /// Ordered writes in their order: how many there were, since which they are atomic, one
    /// observing the last, and which was each lane's last.
    writes: u32,
    chain: u32,
    written: BTreeMap<(Writer, u16), u32>,
    /// Writer of the last ordered write.
    last: Option<Writer>,
    /// Of each lane, its last waits.
    observers: BTreeMap<(u32, u16), Vec<Observer>>,
}

/// Each lane's last ordered accesses, by block, lane and kind.
type Used = BTreeMap<(u32, u16, Use), Access>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    Read,
    /// A read before the last one that is not half of an atomic operation. To observe that
    /// operation is not to observe this read.
    EarlierRead,
    Write,
}

/// Whether a lane's last read is the read half of its last atomic operation, with which it comes.
fn is_half(used: &Used, block: u32, lane: u16, read: &Access) -> bool {
    used.get(&(block, lane, Use::Write)) == Some(read)
}

fn keep(used: &mut Used, block: u32, now: &Now, writes: bool) {
    if writes {
        used.insert((block, now.lane, Use::Write), now.access());
    } else if let Some(earlier) = used.insert((block, now.lane, Use::Read), now.access())
        && !is_half(used, block, now.lane, &earlier)
    {
        used.insert((block, now.lane, Use::EarlierRead), earlier);
    }
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
    /// Each lane's last ordered writes since the last plain one, with the block.
    pub fn ordered_writes(&self) -> impl Iterator<Item = (u32, Access)> {
        let used = self.narrow.iter().chain(&self.wide);
        used.filter(|((.., usage), _)| *usage == Use::Write).map(|(&(block, ..), &access)| (block, access))
    }

    /// Each lane's last ordered reads since the last plain write.
    pub fn ordered_reads(&self) -> impl Iterator<Item = Access> {
        let used = self.narrow.iter().chain(&self.wide);
        used.filter(|((.., usage), _)| *usage != Use::Write).map(|(_, &access)| access)
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
        if let Some(scope) = now.ordered.filter(|_| writes) {
            self.number(block, now, scope);
        }
        match now.ordered {
            None if writes => {
                *self = History::default();
                *write = Some((block, now.access()));
            }
            None => {
                self.reads.insert((block, lane), now.access());
            }
            Some(Scope::Block) => keep(&mut self.narrow, block, now, writes),
            Some(Scope::Device | Scope::System) => keep(&mut self.wide, block, now, writes),
        }
        conflict
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

    /// Numbers an ordered write. That of an atomic operation observes the last, which its read
    /// half, just before at the same clock, read.
    fn number(&mut self, block: u32, now: &Now, scope: Scope) {
        let read = |used: &Used| used.get(&(block, now.lane, Use::Read)) == Some(&now.access());
        let observes = self.last.is_none_or(|last| last.is_strong_with(block, scope));
        if !observes || !read(&self.narrow) && !read(&self.wide) {
            self.chain = self.writes;
        }
        let by = Writer::new(block, scope);
        self.last = Some(by);
        self.written.insert((by, now.lane), self.writes);
        self.writes += 1;
    }

    /// Whether an access comes after a wait that observed a lane's last ordered write of this
    /// reach.
    fn observed(&self, by: Writer, lane: u16, clocks: &mut Clocks, now: &Now) -> bool {
        let Some(number) = self.written.get(&(by, lane)) else { return false };
        self.observers.iter().any(|(&(of, _), waits)| {
            let before = |access: &Access, clocks: &mut Clocks| clocks.ordered_across(of, access, now);
            waits.iter().any(|wait| wait.observed.contains(number) && before(&wait.access, clocks))
        })
    }

    pub fn conflict(
        &self,
        write: Option<(u32, Access)>,
        clocks: &mut Clocks,
        now: &Now,
        writes: bool,
    ) -> Option<Conflict> {
        let mine = clocks.block;
        // Ordered accesses come with their scope.
        let mut race = |block, access: Access, earlier_writes, scope: Option<Scope>| {
            let by = scope.filter(|_| earlier_writes).map(|scope| Writer::new(block, scope));
            let race = (writes || earlier_writes)
                && !clocks.ordered_across(block, &access, now)
                && !by.is_some_and(|by| self.observed(by, access.lane, clocks, now));
            race.then_some(Conflict { block, earlier: access, earlier_writes })
        };
        if let Some((block, access)) = write
            && let Some(conflict) = race(block, access, true, None)
        {
            return Some(conflict);
        }
        if writes
            && let Some(conflict) = self.reads.iter().find_map(|(&(block, _), &read)| race(block, read, false, None))
        {
            return Some(conflict);
        }
        // Two ordered accesses race where one of them does not speak to the other's block.
        let mut reach = |used: &Used, scope: Scope, understood: bool| {
            let strangers = used.iter().filter(|&(&(block, lane, usage), access)| {
                (!understood || block != mine) && (usage != Use::Read || !is_half(used, block, lane, access))
            });
            strangers
                .map(|(&(block, _, usage), &access)| race(block, access, usage == Use::Write, Some(scope)))
                .find_map(|conflict| conflict)
        };
        let narrow = reach(&self.narrow, Scope::Block, now.ordered.is_some());
        match now.ordered {
            Some(Scope::Device | Scope::System) => narrow,
            ordered => narrow.or_else(|| reach(&self.wide, Scope::Device, ordered.is_some())),
        }
    }
}
