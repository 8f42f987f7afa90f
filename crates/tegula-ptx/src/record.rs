//! Records the instructions of a warp for the trace of its block.

use crate::access::Target;
use crate::address::Location;
use crate::ast::ScalarType;
use crate::launch::Diagnostic;
use crate::machine::Machine;
use crate::partial::{InstructionCounts, Partial, counters};
use crate::path::State;
use crate::program::{MbarrierOp, Op};
use crate::recorder::{Noted, Recorder};
use crate::report;
use crate::run::{Flow, Run, lanes};
use crate::trace::{Event, Memory, Request, RequestKind, Space, Sync, Trace, TraceFilter};

/// Creates the recorder for the block that the filter selects.
pub(crate) fn start(machine: &Machine<'_>, filter: &TraceFilter) -> Recorder {
    let [x, y, _] = machine.launch.grid.map(u64::from);
    let [bx, by, bz] = filter.block.map(u64::from);
    let trace = Trace { block: filter.block, memories: memories(machine), ..Trace::default() };
    Recorder::new(filter.clone(), bx + x * (by + y * bz), trace)
}

/// All memories: allocations, symbols of shared memory, unnamed shared memory, local memory.
fn memories(machine: &Machine<'_>) -> Vec<Memory> {
    let shared_bytes = u64::from(machine.shared_bytes);
    let global = machine.allocations.iter().map(|known| Memory {
        name: known.name.clone(),
        space: if known.constant { Space::Constant } else { Space::Global },
        ty: known.ty,
        shape: known.shape.clone(),
        offset: 0,
        bytes: known.storage.len,
    });
    let shared = machine.program.shared.iter().skip(1).map(|symbol| {
        let offset = u64::from(symbol.offset);
        let bytes = symbol.bytes.map_or(shared_bytes.saturating_sub(offset), u64::from);
        let shape = vec![bytes / u64::from(symbol.ty.size().max(1))];
        Memory { name: symbol.name.clone(), space: Space::Shared, ty: symbol.ty, shape, offset, bytes }
    });
    let unnamed = |name: &str, space, bytes| Memory {
        name: name.into(),
        space,
        ty: ScalarType::B8,
        shape: vec![bytes],
        offset: 0,
        bytes,
    };
    let rest = [unnamed("shared memory", Space::Shared, shared_bytes), unnamed("local memory", Space::Local, 0)];
    global.chain(shared).chain(rest).collect()
}

impl Machine<'_> {
    /// The number of the memory at a location, and the offset in it.
    fn memory(&self, location: Location) -> Option<(u32, u64)> {
        let (allocations, symbols) = (self.allocations.len(), self.program.shared.len().max(1));
        let (number, offset) = match location {
            Location::Global { allocation, offset } => (allocation as usize, offset as u64),
            Location::Shared { symbol, offset } => match self.program.shared_symbol(symbol, offset) {
                Some(symbol) => (allocations + symbol - 1, u64::from(offset - self.program.shared[symbol].offset)),
                None => (allocations + symbols - 1, u64::from(offset)),
            },
            Location::Local { offset } => (allocations + symbols, offset as u64),
            Location::Param { .. } | Location::Nowhere(_) => return None,
        };
        Some((number as u32, offset))
    }

    /// The name of the element of a memory at an offset, as in diagnostics.
    fn element_of(&self, memory: u32, offset: u64) -> String {
        match (memory as usize).checked_sub(self.allocations.len()) {
            None => self.element(memory as usize, offset as i64),
            Some(symbol) => {
                let first = self.program.shared.get(symbol + 1).map_or(0, |symbol| symbol.offset);
                self.shared_element(symbol as u32 + 1, first + offset as u32)
            }
        }
    }
}

impl Partial {
    /// The recorder, if this block is traced.
    pub fn recorder_of(&mut self, block: u64) -> Option<&mut Recorder> {
        self.recorder.as_deref_mut().filter(|recorder| recorder.block == block)
    }
}

impl Run<'_, '_> {
    /// Stores a request of the current instruction, if the block is traced.
    pub fn note_request(&mut self, target: &Target, bytes: u32) {
        let is_parameter = |lane: usize| matches!(target.locations[lane], Location::Param { .. });
        if let Some(recorder) = self.partial.recorder_of(self.block.linear)
            && !lanes(target.lanes).all(is_parameter)
        {
            recorder.requests.push(Noted { locations: target.locations, lanes: target.lanes, bytes });
        }
    }

    /// Prepares the recording of an instruction; returns its counts so far if the block is traced.
    #[inline]
    pub fn begin_record(&mut self) -> Option<InstructionCounts> {
        self.partial.recorder.as_ref()?;
        let partial = &mut *self.partial;
        let recorder = partial.recorder_of(self.block.linear)?;
        recorder.requests.clear();
        if let Some((_, recent)) = &mut partial.findings.recorded {
            let unplaced = std::mem::take(recent);
            self.partial.recorder.iter_mut().for_each(|recorder| recorder.unplaced.extend_from_slice(&unplaced));
        }
        Some(self.partial.counts[self.pc as usize])
    }

    /// Records an instruction that accesses memory, synchronizes, or has a finding.
    ///
    /// `active` are the lanes with a true guard, `path` all lanes of the path. At a barrier, lanes
    /// of other paths can have joined the path.
    pub fn record(&mut self, (pc, active, path): (u32, u32, u32), before: &InstructionCounts, flow: &Flow) {
        let instruction = &self.machine.program.code[pc as usize];
        let mask = if matches!(instruction.op, Op::Barrier(_)) { path } else { active };
        let counts = self.partial.counts[pc as usize].since(before);
        let waits = match flow {
            Flow::Wait(State::PartialBarrier(_)) => true,
            Flow::Wait(State::Converge | State::Spinning) => return,
            _ => false,
        };
        let findings = self.partial.findings.recorded.as_mut().map(|(_, recent)| std::mem::take(recent));
        let findings = findings.unwrap_or_default();
        let sync = self.sync_of(&instruction.op, mask, flow);
        let Some(recorder) = self.partial.recorder_of(self.block.linear) else { return };
        if recorder.requests.is_empty() && sync.is_none() && findings.is_empty()
            || waits && recorder.waits_again(self.warp.index, (pc, mask)) && findings.is_empty()
        {
            return;
        }
        let [line, step] = match recorder.lines.get(&instruction.site) {
            Some(known) => *known,
            None => {
                let site = self.machine.program.sites[instruction.site as usize];
                let line = report::line(self.machine.program, site);
                let step = line.in_file(&recorder.filter.file).clone();
                let numbers = [line, step].map(|line| number(&mut recorder.trace.lines, line));
                recorder.lines.insert(instruction.site, numbers);
                numbers
            }
        };
        if !recorder.begin(self.warp.index, step, pc) {
            recorder.outside.extend(findings);
            return;
        }
        let (noted, first) = (std::mem::take(&mut recorder.requests), recorder.is_empty());
        if first {
            let shared = self.initialized_shared();
            self.partial.recorder.iter_mut().for_each(|recorder| recorder.trace.shared.clone_from(&shared));
        }
        let requests = self.requests(&instruction.op, &noted);
        let counts = InstructionCounts { warps: counts.warps + u64::from(!waits), ..counts };
        let ptx_line = self.machine.program.sites[instruction.site as usize].ptx_line;
        // Arithmetic is not recorded, so a count of thread instructions would be incomplete.
        let counters = tegula_interp::Counters { lane_instructions: 0, ..counters(&instruction.op, &counts) };
        let event = Event { ptx_line, line, lanes: mask, requests, sync, findings, counters };
        self.partial.recorder.iter_mut().for_each(|recorder| recorder.add(event.clone()));
    }

    fn sync_of(&self, op: &Op, mask: u32, flow: &Flow) -> Option<Sync> {
        let first = mask.trailing_zeros() as usize % 32;
        match op {
            _ if mask == 0 => None,
            Op::Barrier(barrier) => {
                let id = self.register(barrier.id)[first] as u32;
                let id = match flow {
                    Flow::Wait(State::Barrier(id) | State::PartialBarrier(id)) => *id,
                    _ => (id < 16).then_some(id)?,
                };
                let (arrived, expected) = self.block.arrivals(id);
                Some(Sync::Barrier { id, threads: [arrived, expected], completes: false })
            }
            Op::WarpSync { mask } => Some(Sync::Warp { mask: self.register(*mask)[first] as u32 }),
            Op::CopyAsyncWait { .. } => Some(Sync::Copies),
            Op::Mbarrier { op: MbarrierOp::Init | MbarrierOp::Arrive { .. }, .. } => Some(Sync::Mbarrier),
            _ => None,
        }
    }

    /// The initialized bytes of shared memory.
    fn initialized_shared(&mut self) -> Vec<(u32, u8)> {
        let granule = self.machine.program.granules[0] as usize;
        if !self.machine.config.checks || granule == 0 {
            return Vec::new();
        }
        let (shared, shadow) = (&self.block.shared, &mut self.block.shadow);
        let of_cell = |cell: usize| {
            let bytes = cell * granule..shared.len().min((cell + 1) * granule);
            bytes.map(|at| (at as u32, shared[at])).collect::<Vec<_>>()
        };
        let cells = (0..shared.len().div_ceil(granule)).filter(|&cell| shadow.cell(0, cell).written);
        cells.flat_map(of_cell).collect()
    }

    /// The requests of an instruction, one for each memory, with their values.
    fn requests(&self, op: &Op, noted: &[Noted]) -> Vec<Request> {
        let (kind, ty) = match op {
            Op::Load(transfer) => (RequestKind::Load, transfer.ty),
            Op::Store(transfer) => (RequestKind::Store, transfer.ty),
            Op::Atomic(atomic) => (RequestKind::Atomic, atomic.ty),
            Op::WmmaLoad { .. } => (RequestKind::Load, ScalarType::B32),
            Op::LdMatrix { .. } => (RequestKind::Load, ScalarType::B16),
            Op::StMatrix { .. } => (RequestKind::Store, ScalarType::B16),
            _ => (RequestKind::Store, ScalarType::B32),
        };
        let mut requests: Vec<Request> = Vec::new();
        for Noted { locations, lanes: active, bytes } in noted {
            let first = requests.len();
            for lane in lanes(*active) {
                let Some((memory, offset)) = self.machine.memory(locations[lane]) else { continue };
                let kind = match (op, locations[lane]) {
                    (Op::CopyAsync { .. }, Location::Shared { .. }) => RequestKind::CopyTo,
                    (Op::CopyAsync { .. }, _) => RequestKind::CopyFrom,
                    _ => kind,
                };
                let data = match requests[..first].iter().find(|request| request.kind == RequestKind::CopyFrom) {
                    // The value is written later: it is that of the source, or zero without one.
                    Some(source) if kind == RequestKind::CopyTo => {
                        let of_lane = source.accesses().find(|(of, ..)| *of == lane as u32);
                        of_lane.map_or_else(|| vec![0; *bytes as usize], |(_, _, data)| data.to_vec())
                    }
                    None if kind == RequestKind::CopyTo => vec![0; *bytes as usize],
                    _ => self.bytes_at(locations[lane], lane, *bytes),
                };
                let known = requests[first..].iter_mut().find(|request| request.memory == memory);
                let request = match known {
                    Some(known) => known,
                    None => {
                        let new = Request {
                            kind,
                            memory,
                            ty,
                            bytes: *bytes,
                            lanes: 0,
                            offsets: Vec::new(),
                            data: Vec::new(),
                        };
                        requests.push(new);
                        let last = requests.len() - 1;
                        &mut requests[last]
                    }
                };
                request.lanes |= 1 << lane;
                request.offsets.push(offset);
                request.data.extend(data);
            }
        }
        requests
    }

    /// Bytes at a location; zeros if out of bounds.
    fn bytes_at(&self, location: Location, lane: usize, bytes: u32) -> Vec<u8> {
        if !self.is_in_bounds(location, bytes) {
            return vec![0; bytes as usize];
        }
        let target = Target { locations: [location; 32], lanes: 1 };
        let size = bytes.min(4);
        let pieces = (0..bytes).step_by(size as usize);
        let piece = |at| {
            let bits = self.fetch(self.elements(&target, at).locations[0], lane, size);
            bits.to_le_bytes().into_iter().take(size as usize)
        };
        pieces.flat_map(piece).collect()
    }
}

/// The index of an item in a list; appends the item if it is new.
fn number<T: PartialEq>(list: &mut Vec<T>, item: T) -> u32 {
    let at = list.iter().position(|known| *known == item).unwrap_or_else(|| {
        list.push(item);
        list.len() - 1
    });
    at as u32
}

/// Completes the trace of a launch: assigns the remaining diagnostics to events.
pub(crate) fn finish(machine: &Machine<'_>, recorder: Recorder, diagnostics: &[Diagnostic]) -> Trace {
    let Recorder { mut trace, unplaced, outside, .. } = recorder;
    // Some races with other blocks are found only after the traced block has ended.
    for diagnostic in unplaced.iter().chain(diagnostics) {
        let known = |known: &Diagnostic| known.kind == diagnostic.kind && known.lines == diagnostic.lines;
        if trace.steps.iter().flat_map(|step| step.findings()).chain(&outside).any(known) {
            continue;
        }
        if let Some((step, event)) = place(machine, &trace, diagnostic) {
            trace.steps[step].events[event].findings.push(diagnostic.clone());
        }
    }
    trace
}

/// The event of a diagnostic: the first access to its element; without an element, for an error,
/// the last event of its first line.
fn place(machine: &Machine<'_>, trace: &Trace, diagnostic: &Diagnostic) -> Option<(usize, usize)> {
    let mut events = trace.steps.iter().enumerate().flat_map(|(step, of)| {
        let events = of.events.iter().enumerate();
        events.map(move |(at, event)| ((step, at), event))
    });
    match &diagnostic.element {
        Some(element) => {
            let accesses = |event: &Event| {
                event.requests.iter().any(|request| {
                    request.offsets.iter().any(|&offset| machine.element_of(request.memory, offset) == *element)
                })
            };
            let mut of_lines = events.filter(|(_, event)| diagnostic.lines.contains(trace.line(event.line)));
            of_lines.find(|(_, event)| accesses(event)).map(|(place, _)| place)
        }
        None if diagnostic.severity() == tegula_core::diagnostic::Severity::Error => {
            let line = diagnostic.lines.first()?;
            events.rfind(|(_, event)| trace.line(event.line) == line).map(|(place, _)| place)
        }
        None => None,
    }
}
