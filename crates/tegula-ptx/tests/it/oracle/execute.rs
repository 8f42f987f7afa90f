//! Executes a program on one schedule, and records its events, accesses and their order.

use std::collections::{BTreeMap, VecDeque};

use super::graph::{Edge, Graph};
use super::memory::{ArrayOf, Location, Memory, Strong, Write};
use super::program::{Array, AtomicKind, FenceKind, Op, Program, Scope, Step, Strength, Target, Value};
use super::random::{Random, mix};

/// An access to memory.
#[derive(Clone, Copy, Debug)]
pub struct Access {
    pub event: usize,
    pub thread: usize,
    /// The warp, by block and number.
    pub warp: (u32, u32),
    pub step: usize,
    pub iteration: u32,
    pub location: Location,
    pub reads: bool,
    pub writes: bool,
    /// Whether an asynchronous copy makes it.
    pub is_copy: bool,
    pub strong: Option<Strong>,
    /// Value of a weak store, which lanes of a warp may store together.
    pub stored: Option<u64>,
    /// Whether only some executions have it: a load of a loop that waits, before the last one.
    pub is_early: bool,
}

/// What one execution did.
#[derive(Debug)]
pub struct Execution {
    pub graph: Graph,
    pub accesses: Vec<Access>,
    /// Events of a write and of a read that observed it.
    pub observations: Vec<(usize, usize, Edge)>,
    pub memory: Memory,
    /// The loaded values of each thread, with their steps.
    pub loaded: Vec<Vec<(usize, u64)>>,
}

/// What threads synchronize at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Point {
    Block(u32),
    Named(u32, u32),
    Warp(u32, u32, u32),
}

/// The threads at a point.
#[derive(Debug, Default)]
struct Arrivals {
    /// Thread, event and whether it waits.
    threads: Vec<(usize, usize, bool)>,
    /// The threads, one bit each.
    arrived: u128,
    /// Warps that take part in a named barrier.
    warps: u32,
}

#[derive(Debug, Default)]
struct Mbarrier {
    arrived: Vec<usize>,
    /// The completion of each phase.
    phases: Vec<usize>,
}

#[derive(Debug, Default)]
struct Thread {
    block: u32,
    number: u32,
    steps: Vec<(usize, u32)>,
    next: usize,
    last: Option<usize>,
    ended: bool,
    waits: bool,
    /// Fences that release, the last of each scope.
    fences: BTreeMap<Scope, usize>,
    /// Release operations on each location, with their scopes.
    released: Vec<(Location, usize, Scope)>,
    /// Release patterns that were observed, by the location of the read.
    observed: Vec<(Location, usize, Strong, Edge)>,
    /// Copies: all, those of the open group, and those of the committed groups.
    copies: Vec<usize>,
    open: Vec<usize>,
    groups: VecDeque<Vec<usize>>,
    last_of: Vec<u32>,
}

/// What became of a step.
enum Ran {
    Blocked,
    Done,
    /// The thread waits at a point, or passed it.
    Arrived,
}

struct Machine {
    steps: Vec<Step>,
    threads: Vec<Thread>,
    points: BTreeMap<Point, Arrivals>,
    mbarriers: BTreeMap<(u32, u32), Mbarrier>,
    /// The threads of a block, one bit each, and those that have ended.
    existing: u128,
    ended: Vec<u128>,
    execution: Execution,
}

/// The value that a thread of a store or an atomic operation writes.
pub fn stored(value: Value, step: usize, thread: usize) -> u64 {
    match value {
        Value::Const(value) => value.into(),
        Value::PerStep => constant(step),
        Value::PerThread => (thread as u64).wrapping_mul(FACTOR).wrapping_add(constant(step)),
    }
}

/// Values of threads differ by this.
pub const FACTOR: u64 = 0x0101_0101_0307_0b11;

/// The constant part of the values of a step.
pub fn constant(step: usize) -> u64 {
    mix(step as u64 + 1) >> 2
}

/// The value that no element has.
pub const UNUSED: u32 = 0x7711_3355;

/// The schedule on which all threads advance together: a thread at the earliest step of the program
/// runs next. Random schedules hardly ever keep the threads of a block together.
pub const TOGETHER: u64 = u64::MAX;

/// The schedule on which the first warp that need not wait runs next, each lane by one step.
pub const BY_WARP: u64 = u64::MAX - 1;

/// Executes a program; `None` if threads wait for ever.
pub fn execute(program: &Program, schedule: u64) -> Option<Execution> {
    let mut machine = Machine::new(program);
    if schedule == TOGETHER {
        return machine.run_together(program);
    }
    if schedule == BY_WARP {
        return machine.run_by_warp();
    }
    let mut random = Random(mix(schedule));
    let mut order: Vec<usize> = (0..machine.threads.len()).collect();
    // Late threads run when no other can.
    let mut late = machine.late_threads(&mut random);
    loop {
        random.shuffle(&mut order);
        let mut progress = false;
        for &thread in order.iter().filter(|&&thread| !late[thread]) {
            // Some run far ahead, others lag behind.
            for _ in 0..[1, 2, 4, 32][random.below(4)] {
                if !machine.run_step(thread) {
                    break;
                }
                progress = true;
            }
        }
        if machine.threads.iter().all(|thread| thread.ended) {
            return Some(machine.execution);
        }
        if !progress {
            // One of the late threads comes.
            let next = order.iter().find(|&&thread| late[thread])?;
            late[*next] = false;
        }
    }
}

impl Machine {
    fn new(program: &Program) -> Self {
        let all = (0..program.blocks).flat_map(|block| (0..program.threads).map(move |number| (block, number)));
        let threads: Vec<Thread> = all
            .map(|(block, number)| {
                let steps = program.thread_steps(block, number);
                let ended = steps.is_empty();
                Thread { block, number, steps, ended, ..Thread::default() }
            })
            .collect();
        let execution = Execution {
            graph: Graph::default(),
            accesses: Vec::new(),
            observations: Vec::new(),
            memory: Memory::new(program.blocks),
            loaded: vec![Vec::new(); threads.len()],
        };
        let (steps, points, mbarriers) = (program.steps().copied().collect(), BTreeMap::new(), BTreeMap::new());
        let mut ended = vec![0; program.blocks as usize];
        threads
            .iter()
            .filter(|thread| thread.ended)
            .for_each(|thread| ended[thread.block as usize] |= 1 << thread.number);
        let existing = (1 << program.threads) - 1;
        Machine { existing, ended, steps, threads, points, mbarriers, execution }
    }

    /// Executes the program with all threads together; `None` if threads wait for ever.
    fn run_together(mut self, program: &Program) -> Option<Execution> {
        // The order of steps in the program with its loops unrolled.
        let key = |(at, iteration): (usize, u32)| {
            let (node, inside) = program.position(at);
            (node, iteration, inside)
        };
        loop {
            let waiting = |thread: &Thread| thread.ended || thread.waits;
            let threads = self.threads.iter().enumerate().filter(|(_, thread)| !waiting(thread));
            let mut order: Vec<_> = threads.map(|(at, thread)| (key(thread.steps[thread.next]), at)).collect();
            order.sort_unstable();
            if !order.into_iter().any(|(_, thread)| self.run_step(thread)) {
                return self.threads.iter().all(|thread| thread.ended).then_some(self.execution);
            }
        }
    }

    /// Executes the program warp by warp; `None` if threads wait for ever.
    fn run_by_warp(mut self) -> Option<Execution> {
        let warp = |thread: &Thread| (thread.block, thread.number / 32);
        let mut warps: Vec<Vec<usize>> = Vec::new();
        for (at, thread) in self.threads.iter().enumerate() {
            match warps.last_mut() {
                Some(lanes) if warp(&self.threads[lanes[0]]) == warp(thread) => lanes.push(at),
                _ => warps.push(vec![at]),
            }
        }
        while warps.iter().any(|lanes| lanes.iter().filter(|&&thread| self.run_step(thread)).count() > 0) {}
        self.threads.iter().all(|thread| thread.ended).then_some(self.execution)
    }

    /// Some of the threads, some of those of a step, or none.
    fn late_threads(&self, random: &mut Random) -> Vec<bool> {
        let step = self.steps.get(random.below(self.steps.len().max(1)));
        let of_step = step.filter(|_| random.chance(2)).map(|step| step.threads);
        let one_of = random.choose(&[0, 2, 3, 8]);
        let is_late = |thread: &Thread| {
            let may_be = of_step.is_none_or(|threads| threads.contains(thread.block, thread.number));
            may_be && one_of > 0 && random.chance(one_of)
        };
        self.threads.iter().map(is_late).collect()
    }

    /// Executes the next step of a thread; false if it must wait or has ended.
    fn run_step(&mut self, thread: usize) -> bool {
        let state = &self.threads[thread];
        if state.ended || state.waits {
            return false;
        }
        let (at, iteration) = state.steps[state.next];
        let step = self.steps[at];
        let skipped = step.if_last.is_some_and(|flag| !state.last_of.contains(&flag));
        match if skipped { Ran::Done } else { self.run_op(thread, (at, iteration), step.op) } {
            Ran::Blocked => return false,
            Ran::Done => self.advance(thread),
            Ran::Arrived => {}
        }
        true
    }

    fn advance(&mut self, thread: usize) {
        let state = &mut self.threads[thread];
        state.next += 1;
        if state.next == state.steps.len() && !state.ended {
            self.end(thread);
        }
    }

    fn end(&mut self, thread: usize) {
        self.threads[thread].ended = true;
        let Thread { block, number, .. } = self.threads[thread];
        self.ended[block as usize] |= 1 << number;
        let of_block = |point: &Point| match *point {
            Point::Block(of) | Point::Named(of, _) | Point::Warp(of, ..) => of == block,
        };
        let points: Vec<Point> = self.points.keys().copied().filter(of_block).collect();
        points.into_iter().for_each(|point| self.complete(point));
    }

    /// A new event of a thread.
    fn event(&mut self, thread: usize) -> usize {
        let event = self.execution.graph.event(self.threads[thread].last);
        self.threads[thread].last = Some(event);
        event
    }

    fn location(&self, thread: usize, place: Target, bytes: u32) -> Location {
        let Thread { block, number, .. } = self.threads[thread];
        Location { array: array_of(place.array, block), start: place.offset(number, bytes), len: bytes }
    }

    fn strong(&self, thread: usize, strength: Strength) -> Option<Strong> {
        strength.strong().map(|scope| Strong { thread, block: self.threads[thread].block, scope })
    }

    fn run_op(&mut self, thread: usize, at: (usize, u32), op: Op) -> Ran {
        match op {
            Op::Load { at: place, width, vector, strength } => {
                let event = self.event(thread);
                for location in self.elements(thread, place, width, vector) {
                    self.read(thread, (event, at), location, strength, Edge::Possible);
                    let value = self.execution.memory.load(location);
                    self.execution.loaded[thread].push((at.0, value));
                }
            }
            Op::Store { at: place, width, vector, strength, value } => {
                let event = self.event(thread);
                let value = stored(value, at.0, thread);
                for (element, location) in self.elements(thread, place, width, vector).into_iter().enumerate() {
                    let value = value.wrapping_add(element as u64);
                    self.write(thread, (event, at), location, strength, value, Vec::new());
                }
            }
            Op::Atomic { at: place, width, kind, strength, value, returns } => {
                let (event, location) = (self.event(thread), self.location(thread, place, width));
                let value = stored(value, at.0, thread);
                let old =
                    self.atomic(thread, (event, at), location, strength, (kind, value), (returns, Edge::Possible));
                if returns {
                    self.execution.loaded[thread].push((at.0, old));
                }
            }
            Op::Fence { kind, scope } => self.fence(thread, kind, scope),
            Op::Barrier { .. } => {
                let point = Point::Block(self.threads[thread].block);
                return self.arrive(thread, point, 0, true);
            }
            Op::Named { id, warps, waits } => {
                let point = Point::Named(self.threads[thread].block, id);
                return self.arrive(thread, point, warps, waits);
            }
            Op::WarpSync { mask } => {
                let Thread { block, number, .. } = self.threads[thread];
                return self.arrive(thread, Point::Warp(block, number / 32, mask), 0, true);
            }
            Op::Shuffle | Op::Vote => {}
            Op::Copy { to, from, bytes, read } => self.copy(thread, at, (to, from), (bytes, read)),
            Op::Commit => self.threads[thread].commit(),
            Op::WaitCopies(pending) => {
                let event = self.event(thread);
                for copy in self.threads[thread].wait(pending) {
                    self.execution.graph.add_edge(copy, event, Edge::Certain);
                }
            }
            Op::Wait { flag, value, strength } => {
                let location = self.location(thread, flag, 4);
                if self.execution.memory.load(location) < u64::from(value) {
                    return Ran::Blocked;
                }
                self.poll(thread, at, location, strength);
                let event = self.event(thread);
                self.read(thread, (event, at), location, strength, Edge::Certain);
            }
            Op::Lock { flag, strength } => {
                let location = self.location(thread, flag, 4);
                if self.execution.memory.load(location) != 0 {
                    return Ran::Blocked;
                }
                let event = self.event(thread);
                self.atomic(thread, (event, at), location, strength, (AtomicKind::Exch, 1), (true, Edge::Lock));
            }
            Op::Ticket { flag, count, strength } => {
                let (event, location) = (self.event(thread), self.location(thread, flag, 4));
                let is_last = self.execution.memory.load(location) + 1 == u64::from(count);
                let edge = if is_last { Edge::Certain } else { Edge::Possible };
                self.atomic(thread, (event, at), location, strength, (AtomicKind::Add, 1), (true, edge));
                if is_last {
                    self.threads[thread].last_of.push(flag.first);
                }
            }
            Op::Arrive { mbarrier, count } => {
                let event = self.event(thread);
                self.arrive_on(thread, mbarrier, count, event);
            }
            Op::CopyArrive { mbarrier, count } => {
                // It follows the copies of the thread, and none of its other operations.
                let event = self.execution.graph.event(self.threads[thread].copies.iter().copied());
                self.arrive_on(thread, mbarrier, count, event);
            }
            Op::WaitMbarrier { mbarrier, phase } => {
                let key = (self.threads[thread].block, mbarrier);
                let phases = self.mbarriers.get(&key).map_or(&[][..], |known| &known.phases);
                // The test is for a parity: it holds if the last phase that completed has it.
                // The phase before the first counts as completed, and orders nothing.
                if phases.len() % 2 == phase as usize % 2 {
                    return Ran::Blocked;
                }
                let done = phases.last().copied();
                let event = self.event(thread);
                done.into_iter().for_each(|done| self.execution.graph.add_edge(done, event, Edge::Certain));
            }
            Op::Exit => {
                let state = &mut self.threads[thread];
                state.next = state.steps.len() - 1;
            }
        }
        Ran::Done
    }

    fn elements(&self, thread: usize, place: Target, width: u32, vector: u32) -> Vec<Location> {
        let all = self.location(thread, place, width * vector);
        (0..vector).map(|element| Location { start: all.start + element * width, len: width, ..all }).collect()
    }

    fn record(&mut self, thread: usize, (event, at): (usize, (usize, u32)), location: Location, kind: (bool, bool)) {
        let ((step, iteration), (reads, writes)) = (at, kind);
        let is_copy = matches!(self.steps[step].op, Op::Copy { .. });
        let Thread { block, number, .. } = self.threads[thread];
        let (warp, strong, stored) = ((block, number / 32), None, None);
        let access = Access {
            event,
            thread,
            warp,
            step,
            iteration,
            location,
            reads,
            writes,
            is_copy,
            strong,
            stored,
            is_early: false,
        };
        self.execution.accesses.push(access);
    }

    fn read(
        &mut self,
        thread: usize,
        event: (usize, (usize, u32)),
        location: Location,
        strength: Strength,
        edge: Edge,
    ) {
        let strong = self.strong(thread, strength);
        self.record(thread, event, location, (true, false));
        self.execution.accesses.last_mut().expect("the access").strong = strong;
        self.observe(thread, event.0, location, strength, edge);
    }

    /// Records what a strong read observes, and synchronizes it if it acquires.
    fn observe(
        &mut self,
        thread: usize,
        event: usize,
        location: Location,
        strength: Strength,
        edge: Edge,
    ) -> Vec<usize> {
        let Some(strong) = self.strong(thread, strength) else { return Vec::new() };
        let writes = self.execution.memory.observed(location, strong);
        self.observe_writes(thread, event, location, (strength, strong), &writes, edge);
        writes
    }

    /// A load of a loop that waits, before the load that ends the wait: it may observe any write.
    fn poll(&mut self, thread: usize, at: (usize, u32), location: Location, strength: Strength) {
        let strong = self.strong(thread, strength);
        let event = self.event(thread);
        self.record(thread, (event, at), location, (true, false));
        let access = self.execution.accesses.last_mut().expect("the access");
        (access.strong, access.is_early) = (strong, true);
        let Some(strong) = strong else { return };
        let writes = self.execution.memory.observable(location, strong);
        self.observe_writes(thread, event, location, (strength, strong), &writes, Edge::Possible);
    }

    fn observe_writes(
        &mut self,
        thread: usize,
        event: usize,
        location: Location,
        (strength, strong): (Strength, Strong),
        writes: &[usize],
        edge: Edge,
    ) {
        let Execution { memory, observations, graph, .. } = &mut self.execution;
        let state = &mut self.threads[thread];
        for &write in writes {
            let write = &memory.writes[write];
            if write.event != event {
                observations.push((write.event, event, edge));
            }
            state.observed.extend(write.patterns.iter().map(|&(first, by)| (location, first, by, edge)));
        }
        if strength.order.acquires() {
            for &(at, first, by, edge) in &state.observed {
                if at == location && first < event && by.reach_each_other(strong) {
                    graph.add_edge(first, event, edge);
                }
            }
        }
    }

    fn write(
        &mut self,
        thread: usize,
        event: (usize, (usize, u32)),
        location: Location,
        strength: Strength,
        value: u64,
        observed: Vec<usize>,
    ) {
        let strong = self.strong(thread, strength);
        self.record(thread, event, location, (false, true));
        let access = self.execution.accesses.last_mut().expect("the access");
        access.strong = strong;
        access.stored = strong.is_none().then_some(value << (64 - 8 * location.len));
        self.put(thread, event.0, location, strength, value, observed);
    }

    /// Stores a value, with the release patterns that end here.
    fn put(
        &mut self,
        thread: usize,
        event: usize,
        location: Location,
        strength: Strength,
        value: u64,
        observed: Vec<usize>,
    ) {
        let strong = self.strong(thread, strength);
        let state = &mut self.threads[thread];
        let mut patterns = Vec::new();
        if let Some(strong) = strong {
            if strength.order.releases() {
                state.released.push((location, event, strong.scope));
            }
            let released = state.released.iter().filter(|(at, ..)| *at == location);
            let fences = state.fences.iter().map(|(&scope, &event)| (event, scope));
            let all = released.map(|&(_, event, scope)| (event, scope)).chain(fences);
            patterns.extend(all.map(|(event, scope)| (event, Strong { scope, ..strong })));
        }
        let write = Write { event, location, strong, patterns, observed };
        self.execution.memory.store(write, &value.to_le_bytes()[..location.len as usize]);
    }

    fn atomic(
        &mut self,
        thread: usize,
        event: (usize, (usize, u32)),
        location: Location,
        strength: Strength,
        (kind, value): (AtomicKind, u64),
        (returns, edge): (bool, Edge),
    ) -> u64 {
        let old = self.execution.memory.load(location);
        let mask = if location.len == 8 { u64::MAX } else { (1 << (8 * location.len)) - 1 };
        let value = value & mask;
        let new = match kind {
            AtomicKind::Add => Some(old.wrapping_add(value) & mask),
            AtomicKind::And => Some(old & value),
            AtomicKind::Or => Some(old | value),
            AtomicKind::Xor => Some(old ^ value),
            AtomicKind::Max => Some(old.max(value)),
            AtomicKind::Min => Some(old.min(value)),
            AtomicKind::Exch => Some(value),
            // A failed comparison is a read.
            AtomicKind::FailingCas => (old == u64::from(UNUSED)).then_some(value),
        };
        let strong = self.strong(thread, strength);
        self.record(thread, event, location, (returns, new.is_some()));
        self.execution.accesses.last_mut().expect("the access").strong = strong;
        // The read of a reduction forms no acquire pattern, but continues what it observes.
        let observed = match (returns, strong) {
            (true, _) => self.observe(thread, event.0, location, strength, edge),
            (false, Some(strong)) => self.execution.memory.observed(location, strong),
            (false, None) => Vec::new(),
        };
        if let Some(new) = new {
            self.put(thread, event.0, location, strength, new, observed);
        }
        old
    }

    fn fence(&mut self, thread: usize, kind: FenceKind, scope: Scope) {
        let event = self.event(thread);
        let block = self.threads[thread].block;
        let state = &mut self.threads[thread];
        if kind != FenceKind::Release {
            let own = Strong { thread, block, scope };
            for &(_, first, _, edge) in state.observed.iter().filter(|(.., by, _)| by.reach_each_other(own)) {
                self.execution.graph.add_edge(first, event, edge);
            }
        }
        if kind != FenceKind::Acquire {
            state.fences.insert(scope, event);
        }
    }

    fn copy(&mut self, thread: usize, at: (usize, u32), (to, from): (Target, Target), (bytes, read): (u32, u32)) {
        let issue = self.event(thread);
        let copy = self.execution.graph.event([issue]);
        let (target, mut source) = (self.location(thread, to, bytes), self.location(thread, from, bytes));
        source.len = read;
        let mut copied = [0; 16];
        copied[..read as usize]
            .copy_from_slice(&self.execution.memory.bytes(source.array)[source.start as usize..][..read as usize]);
        if read > 0 {
            self.record(thread, (copy, at), source, (true, false));
        }
        self.record(thread, (copy, at), target, (false, true));
        let write = Write { event: copy, location: target, strong: None, patterns: Vec::new(), observed: Vec::new() };
        self.execution.memory.store(write, &copied[..bytes as usize]);
        let state = &mut self.threads[thread];
        state.copies.push(copy);
        state.open.push(copy);
    }

    fn arrive_on(&mut self, thread: usize, mbarrier: u32, count: u32, event: usize) {
        let key = (self.threads[thread].block, mbarrier);
        let known = self.mbarriers.entry(key).or_default();
        known.arrived.push(event);
        if known.arrived.len() == count as usize {
            let arrived = std::mem::take(&mut known.arrived);
            let before = known.phases.last().copied();
            let done = self.execution.graph.event(arrived.into_iter().chain(before));
            known.phases.push(done);
        }
    }

    fn arrive(&mut self, thread: usize, point: Point, warps: u32, waits: bool) -> Ran {
        let event = self.event(thread);
        let arrivals = self.points.entry(point).or_default();
        arrivals.threads.push((thread, event, waits));
        arrivals.arrived |= 1 << self.threads[thread].number;
        arrivals.warps = warps;
        self.threads[thread].waits = waits;
        self.complete(point);
        if waits { Ran::Arrived } else { Ran::Done }
    }

    /// Completes a point at which all its threads that have not ended arrived.
    fn complete(&mut self, point: Point) {
        let Some(arrivals) = self.points.get(&point) else { return };
        let of_warp = |warp: u32, lanes: u32| u128::from(lanes) << (32 * warp);
        let (block, threads) = match point {
            Point::Block(block) => (block, u128::MAX),
            Point::Named(block, _) => {
                let warps = (0..4).filter(|warp| arrivals.warps >> warp & 1 == 1);
                (block, warps.fold(0, |threads, warp| threads | of_warp(warp, u32::MAX)))
            }
            Point::Warp(block, warp, mask) => (block, of_warp(warp, mask)),
        };
        let missing = threads & !arrivals.arrived & self.existing;
        // A barrier with a count needs an arrival of each warp: ended threads do not arrive.
        let absent = |warp: u32| {
            let of_warp = of_warp(warp, u32::MAX) & self.existing;
            arrivals.warps >> warp & 1 == 1 && of_warp != 0 && of_warp & arrivals.arrived == 0
        };
        if missing & !self.ended[block as usize] != 0 || (0..4).any(absent) {
            return;
        }
        let arrivals = self.points.remove(&point).expect("the arrivals");
        let done = self.execution.graph.event(arrivals.threads.iter().map(|&(_, event, _)| event));
        // A thread that has ended counts as arrived at a barrier of the block. For other
        // barriers the ISA does not say whether its accesses are ordered.
        let edge = if matches!(point, Point::Block(_)) { Edge::Certain } else { Edge::Possible };
        let ended = self.threads.iter().filter(|thread| thread.block == block && missing >> thread.number & 1 == 1);
        for last in ended.filter_map(|thread| thread.last) {
            self.execution.graph.add_edge(last, done, edge);
        }
        for (thread, ..) in arrivals.threads.into_iter().filter(|(.., waits)| *waits) {
            self.threads[thread].last = Some(done);
            self.threads[thread].waits = false;
            self.advance(thread);
        }
    }
}

impl Thread {
    fn commit(&mut self) {
        let open = std::mem::take(&mut self.open);
        self.groups.push_back(open);
    }

    /// The copies that are complete once at most `pending` groups are in flight.
    fn wait(&mut self, pending: Option<u32>) -> Vec<usize> {
        if pending.is_none() {
            self.commit();
        }
        let done = self.groups.len().saturating_sub(pending.unwrap_or(0) as usize);
        self.groups.drain(..done).flatten().collect()
    }
}

pub fn array_of(array: Array, block: u32) -> ArrayOf {
    (if array.is_shared() { block } else { 0 }, array)
}
