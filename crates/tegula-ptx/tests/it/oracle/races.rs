//! The oracle: the races of a program by the memory consistency model of the PTX ISA.
//!
//! The source is version 9.0, chapter 8. An execution is a graph of events. Its edges are program
//! order, barriers, and release patterns that acquire patterns observe; *base causality order* is
//! its transitive closure. A write also precedes what follows a read that observed it, but what
//! precedes the write gains no order from that. Two overlapping accesses race if one of them is a
//! write, neither precedes the other, and they are not morally strong. Accesses that overlap in
//! part
//! are never morally strong.
//!
//! What a read observes depends on the execution, unless the thread waits for the value. So two
//! sets of races are computed: those that exist whatever is observed, and those that exist if
//! nothing else is observed. They differ in few programs.

use std::collections::{BTreeMap, BTreeSet};

use super::execute::{Access, Execution, execute};
use super::graph::{Closure, Edge};
use super::memory::{ArrayOf, Location};
use super::program::{Op, Program};

/// Two steps, in order.
pub type Pair = (usize, usize);

/// A race of two threads; a copy in flight counts as an access of its thread.
#[derive(Clone, Copy, Debug)]
pub struct Witness {
    pub threads: [usize; 2],
    pub copies: [bool; 2],
}

/// The races of a program.
#[derive(Clone, Debug, Default)]
pub struct Races {
    /// Races in every execution.
    pub certain: BTreeSet<Pair>,
    /// Races in some execution.
    pub possible: BTreeMap<Pair, Witness>,
}

/// What a race-free program computes.
#[derive(Clone, Debug)]
pub struct Results {
    /// Steps whose loaded values are the same in every execution.
    pub observable: Vec<bool>,
    /// Loaded values of each thread, with their steps.
    pub loaded: Vec<Vec<(usize, u64)>>,
    /// Bytes of global memory, `None` if they depend on the execution.
    pub data: Vec<Option<u8>>,
}

/// The races on some schedules; `None` if threads wait for ever on one of them.
pub fn races(program: &Program, schedules: impl IntoIterator<Item = u64>) -> Option<Races> {
    let mut all: Option<Races> = None;
    // Lanes that waited may go on separately.
    let waits = |op: Op| matches!(op, Op::Wait { .. } | Op::Lock { .. } | Op::WaitMbarrier { .. });
    let first_wait = program.steps().position(|step| waits(step.op)).unwrap_or(usize::MAX);
    for schedule in schedules {
        let found = races_of(&execute(program, schedule)?, first_wait);
        all = Some(match all {
            None => found,
            Some(mut all) => {
                all.certain.retain(|pair| found.certain.contains(pair));
                found.possible.into_iter().for_each(|(pair, witness)| _ = all.possible.entry(pair).or_insert(witness));
                all
            }
        });
    }
    all
}

/// Whether two accesses conflict and are not morally strong.
fn conflict(one: &Access, other: &Access) -> bool {
    let morally_strong = || {
        let reach = one.strong.zip(other.strong).is_some_and(|(one, other)| one.reach_each_other(other));
        reach && one.location == other.location
    };
    one.event != other.event && one.location.overlaps(other.location) && !morally_strong()
}

/// Whether two lanes of a warp store one value with one instruction, if they execute it together.
fn same_store(one: &Access, other: &Access) -> bool {
    let instruction = |access: &Access| (access.warp, access.step, access.iteration, access.location);
    one.stored.is_some() && one.stored == other.stored && instruction(one) == instruction(other)
}

/// Writes, and the reads that observed them.
struct Order {
    closure: Closure,
    observers: BTreeMap<usize, Vec<usize>>,
}

impl Order {
    fn new(execution: &Execution, edges: Edge) -> Self {
        let mut observers: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for &(write, read, _) in execution.observations.iter().filter(|(.., edge)| *edge <= edges) {
            observers.entry(write).or_default().push(read);
        }
        Order { closure: execution.graph.closure(edges), observers }
    }

    fn precedes(&self, from: usize, to: usize) -> bool {
        let observed = || {
            let observers = self.observers.get(&from).into_iter().flatten();
            observers.into_iter().any(|&read| self.closure.precedes(read, to))
        };
        from < to && (self.closure.precedes(from, to) || observed())
    }

    fn ordered(&self, one: &Access, other: &Access) -> bool {
        self.precedes(one.event, other.event) || self.precedes(other.event, one.event)
    }
}

/// Calls a function for each pair of overlapping accesses, one of which writes.
fn for_each_pair(accesses: &[Access], mut visit: impl FnMut(&Access, &Access)) {
    let mut by_array: BTreeMap<ArrayOf, Vec<&Access>> = BTreeMap::new();
    for access in accesses {
        by_array.entry(access.location.array).or_default().push(access);
    }
    for of_array in by_array.values() {
        for (at, &one) in of_array.iter().enumerate().filter(|(_, access)| access.writes) {
            // Pairs of writes are visited once.
            let others = of_array.iter().enumerate().filter(|(other, access)| !access.writes || *other > at);
            others.filter(|(_, other)| one.location.overlaps(other.location)).for_each(|(_, other)| visit(one, other));
        }
    }
}

fn races_of(execution: &Execution, first_wait: usize) -> Races {
    let (strict, loose) = (Order::new(execution, Edge::Lock), Order::new(execution, Edge::Possible));
    let mut races = Races::default();
    for_each_pair(&execution.accesses, |one, other| {
        let (one, other) = if one.step <= other.step { (one, other) } else { (other, one) };
        let pair = (one.step, other.step);
        if races.certain.contains(&pair) || !conflict(one, other) || strict.ordered(one, other) {
            return;
        }
        let (is_same_store, together) = (same_store(one, other), one.step < first_wait);
        if is_same_store && together {
            return;
        }
        let witness = Witness { threads: [one.thread, other.thread], copies: [one.is_copy, other.is_copy] };
        races.possible.entry(pair).or_insert(witness);
        let is_early = one.is_early || other.is_early;
        if !is_same_store && !is_early && !loose.ordered(one, other) {
            races.certain.insert(pair);
        }
    });
    races
}

/// The results of a race-free program.
pub fn results(program: &Program, schedule: u64) -> Option<Results> {
    let execution = execute(program, schedule)?;
    let order = Order::new(&execution, Edge::Certain);
    let steps: Vec<_> = program.steps().collect();
    let mut observable: Vec<bool> = steps
        .iter()
        .map(|step| step.if_last.is_none() && matches!(step.op, Op::Load { .. } | Op::Atomic { .. }))
        .collect();
    let mut vague: BTreeMap<ArrayOf, BTreeSet<usize>> = BTreeMap::new();
    let mut forget = |location: Location| vague.entry(location.array).or_default().extend(location.bytes());
    // Which thread is the last depends on the execution.
    for access in execution.accesses.iter().filter(|access| access.writes && steps[access.step].if_last.is_some()) {
        forget(access.location);
    }
    for_each_pair(&execution.accesses, |one, other| {
        if one.event == other.event || order.ordered(one, other) {
            return;
        }
        for access in [one, other] {
            if access.reads {
                observable[access.step] = false;
            }
            if one.writes && other.writes {
                forget(access.location);
            }
        }
    });
    // An atomic operation or a copy spreads what it read, in the order of any execution.
    let is_vague = |vague: &BTreeMap<ArrayOf, BTreeSet<usize>>, location: Location| {
        vague.get(&location.array).is_some_and(|bytes| location.bytes().any(|at| bytes.contains(&at)))
    };
    loop {
        let known: usize = vague.values().map(BTreeSet::len).sum();
        let mut copied = None;
        for access in &execution.accesses {
            let spreads = match steps[access.step].op {
                Op::Atomic { .. } => access.writes && is_vague(&vague, access.location),
                Op::Copy { .. } if access.reads => {
                    copied = is_vague(&vague, access.location).then_some(access.event);
                    false
                }
                _ => access.writes && copied == Some(access.event),
            };
            if spreads {
                vague.entry(access.location.array).or_default().extend(access.location.bytes());
            }
        }
        if vague.values().map(BTreeSet::len).sum::<usize>() == known {
            break;
        }
    }
    for access in execution.accesses.iter().filter(|access| access.reads && is_vague(&vague, access.location)) {
        observable[access.step] = false;
    }
    let array = super::execute::array_of(super::program::Array::GlobalData, 0);
    let bytes = execution.memory.bytes(array).iter().enumerate();
    let known = |at: &usize| vague.get(&array).is_none_or(|vague| !vague.contains(at));
    let data = bytes.map(|(at, &byte)| known(&at).then_some(byte)).collect();
    Some(Results { observable, loaded: execution.loaded, data })
}
