//! The recorder: it builds the trace of a block while the block runs.

use std::collections::HashMap;

use rustc_hash::FxHashMap;

use crate::address::Location;
use crate::launch::Diagnostic;
use crate::trace::{Event, Step, Sync, Trace, TraceFilter};

/// A request of the current instruction, without its values.
#[derive(Debug)]
pub(crate) struct Noted {
    pub locations: [Location; 32],
    pub lanes: u32,
    pub bytes: u32,
}

/// The current step: that of the last instruction.
#[derive(Debug)]
struct Current {
    warp: u32,
    line: u32,
    /// Positions of its instructions.
    pcs: Vec<u32>,
}

/// The recorder of one block.
#[derive(Debug)]
pub(crate) struct Recorder {
    pub filter: TraceFilter,
    /// The number of the block.
    pub block: u64,
    pub trace: Trace,
    /// Requests of the current instruction.
    pub requests: Vec<Noted>,
    /// Findings outside of any instruction; `record::finish` assigns them to events.
    pub unplaced: Vec<Diagnostic>,
    /// Findings of steps that are not recorded.
    pub outside: Vec<Diagnostic>,
    /// For each site, the numbers of its line and of the line of its step.
    pub lines: FxHashMap<u32, [u32; 2]>,
    current: Option<Current>,
    accesses: usize,
    /// The event of the last arrival at each barrier: indices of the step and of the event in it.
    arrivals: HashMap<u32, (usize, usize)>,
    /// For each warp with a partial barrier: position of the barrier, and mask of waiting lanes.
    waiting: FxHashMap<u32, (u32, u32)>,
}

impl Recorder {
    pub fn new(filter: TraceFilter, block: u64, trace: Trace) -> Self {
        Recorder {
            filter,
            block,
            trace,
            requests: Vec::new(),
            unplaced: Vec::new(),
            outside: Vec::new(),
            lines: FxHashMap::default(),
            current: None,
            accesses: 0,
            arrivals: HashMap::new(),
            waiting: FxHashMap::default(),
        }
    }

    /// Whether this wait at a partial barrier is already recorded; marks it as recorded.
    pub fn waits_again(&mut self, warp: u32, at: (u32, u32)) -> bool {
        self.waiting.insert(warp, at) == Some(at)
    }

    /// Adds an instruction to the current step, or begins a step with it. Returns whether the step
    /// is to be recorded.
    pub fn begin(&mut self, warp: u32, line: u32, pc: u32) -> bool {
        match &mut self.current {
            Some(current) if current.warp == warp && current.line == line && !current.pcs.contains(&pc) => {
                current.pcs.push(pc);
            }
            current => {
                *current = Some(Current { warp, line, pcs: vec![pc] });
                self.trace.total += 1;
            }
        }
        let number = self.trace.total - 1;
        self.trace.full |= self.accesses > self.filter.accesses;
        (self.filter.steps[0]..self.filter.steps[1]).contains(&number) && !self.trace.full
    }

    /// Whether no step has been recorded.
    pub fn is_empty(&self) -> bool {
        self.trace.steps.is_empty()
    }

    /// Records an event of the current step.
    pub fn add(&mut self, event: Event) {
        let Some(current) = &self.current else { return };
        let number = self.trace.total - 1;
        let (warp, line) = (current.warp, current.line);
        if !matches!(event.sync, Some(Sync::Barrier { .. })) {
            self.waiting.remove(&warp);
        }
        self.accesses += event.requests.iter().map(|request| request.offsets.len()).sum::<usize>();
        let steps = &mut self.trace.steps;
        if steps.last().is_none_or(|last| last.number != number) {
            steps.push(Step { number, warp, line, events: Vec::new() });
        }
        let at = steps.len() - 1;
        if let Some(Sync::Barrier { id, .. }) = event.sync {
            self.arrivals.insert(id, (at, steps[at].events.len()));
        }
        steps[at].events.push(event);
    }

    /// Marks the last arrival at a barrier as the one that completes it.
    pub fn complete(&mut self, id: u32) {
        self.waiting.clear();
        let Some((step, event)) = self.arrivals.remove(&id) else { return };
        if let Some(Sync::Barrier { completes, .. }) = &mut self.trace.steps[step].events[event].sync {
            *completes = true;
        }
    }
}
