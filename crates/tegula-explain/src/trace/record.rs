//! The observer that records a trace.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::panic::Location;

use serde::{Deserialize, Serialize};
use tegula_core::element::Type;
use tegula_interp::{
    self as interp, Arg, Buffer, Computation, Config, EventKind, Observer, Severity, SharedRef, Space,
};
use tegula_ir::{ArrayContents, Checked, Kernel, ParamKind, Site};

use super::order::{Ticks, phases};
use super::{
    Event, Finding, Header, MatrixInfo, Operation, OperationKind, PipelineEvent, PipelineOp, SharedArray, SharedSlot,
    SourceLine, Tick, Trace, VERSION,
};
use crate::error::{Error, Result};
use crate::number::format_value;

/// The default limit of a trace, in per-thread values: a few hundred megabytes of memory.
pub const MAX_VALUES: usize = 1 << 22;

/// The largest matrix whose initial values a trace keeps, in elements.
const MAX_INITIAL: usize = 1 << 16;

/// The part of a launch to record; everything by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TraceFilter {
    /// Blocks to run and record, along x, y, z.
    pub blocks: Option<Vec<[u32; 3]>>,
    /// Warps to record, in each block.
    pub warps: Option<Vec<u32>>,
    /// The half-open range of k-steps to record; ticks before and after the loop are always
    /// recorded.
    pub steps: Option<[u32; 2]>,
}

/// Runs a kernel in the interpreter and records at most `limit` per-thread values.
///
/// Errors of the kernel itself become findings of the trace.
///
/// # Errors
/// [`Error::TraceTooLarge`] above the limit, [`Error::Kernel`] if the arguments do not fit the
/// parameters.
pub fn record(
    kernel: &Checked<Kernel>,
    args: &[Arg<'_>],
    config: &Config,
    filter: &TraceFilter,
    limit: usize,
) -> Result<Trace> {
    let config = Config { blocks: filter.blocks.clone(), counters: true, ..config.clone() };
    let mut recorder = Recorder::new(kernel, args, filter, limit);
    let outcome = interp::observe(kernel, args, &config, &mut recorder)?;
    if recorder.remaining == 0 {
        return Err(Error::TraceTooLarge { limit });
    }
    Ok(recorder.finish(outcome))
}

/// Register provenance of a warp: for each register, an origin per lane.
type Origins = HashMap<u32, [u64; 32]>;

struct Recorder<'a> {
    filter: &'a TraceFilter,
    /// Whether the kernel has mbarriers.
    has_pipeline: bool,
    /// Per-thread values that still fit; at 0 recording has stopped.
    remaining: usize,
    header: Header,
    /// For each matrix parameter, its position in the header's matrices.
    matrices: Vec<Option<usize>>,
    sites: HashMap<SourceLine, u32>,
    operations: HashMap<Operation, u32>,
    ticks: Ticks,
    events: Vec<Event>,
    /// Findings, each with the tick of its first occurrence.
    findings: Vec<(interp::Finding, Option<u32>)>,
    /// Register provenance by block and warp.
    registers: HashMap<([u32; 3], u32), Origins>,
    /// Provenance of shared elements by block and array.
    shared: HashMap<([u32; 3], usize), HashMap<u64, u64>>,
    /// Origins of the elements that the asynchronous copy at hand has read.
    copied: [u64; 32],
    /// Position of the last event, and its number among the events at that position.
    last: Option<(Position, u32)>,
}

/// A warp's position in the program.
#[derive(Clone, Debug, PartialEq)]
struct Position {
    block: [u32; 3],
    warp: u32,
    path: Vec<u32>,
}

impl<'a> Recorder<'a> {
    fn new(kernel: &Checked<Kernel>, args: &[Arg<'_>], filter: &'a TraceFilter, limit: usize) -> Self {
        let mut header = Header {
            version: VERSION,
            kernel: kernel.name().into(),
            notes: kernel.notes().to_vec(),
            block: kernel.block(),
            cluster: kernel.cluster(),
            filter: filter.clone(),
            ..Header::default()
        };
        let mut matrices = Vec::new();
        let mut first_origin = 1;
        for (param, arg) in kernel.params().iter().zip(args) {
            matrices.push(None);
            match (*arg, &param.kind) {
                (Arg::Matrix(buffer), ParamKind::Matrix { access, .. }) => {
                    matrices.pop();
                    matrices.push(Some(header.matrices.len()));
                    let written = *access != tegula_ir::Access::Read;
                    let of = matrix_info(&param.name, buffer, written, first_origin);
                    first_origin += of.shape.iter().product::<u64>();
                    header.matrices.push(of);
                }
                (Arg::Scalar { ty, bits }, _) => {
                    header.scalars.push((param.name.clone(), ty, format_value(ty, bits)));
                }
                _ => {}
            }
        }
        header.shared = kernel
            .shared()
            .iter()
            .map(|array| SharedArray {
                name: array.name.clone(),
                ty: array.ty,
                dims: array.dims.clone(),
                start: array.start,
            })
            .collect();
        Recorder {
            filter,
            has_pipeline: kernel.shared().iter().any(|array| array.contents == ArrayContents::Mbarriers),
            remaining: limit.saturating_add(1),
            header,
            matrices,
            sites: HashMap::new(),
            operations: HashMap::new(),
            ticks: Ticks::default(),
            events: Vec::new(),
            findings: Vec::new(),
            registers: HashMap::new(),
            shared: HashMap::new(),
            copied: [0; 32],
            last: None,
        }
    }

    fn finish(mut self, outcome: interp::Outcome) -> Trace {
        let (ticks, positions) = self.ticks.sorted();
        for event in &mut self.events {
            event.tick = positions[event.tick as usize];
        }
        self.events.sort_by_key(|event| (event.tick, event.block[2], event.block[1], event.block[0], event.warp));
        let lines = outcome
            .lines
            .iter()
            .map(|&(site, counters)| (site_number(&mut self.header.sites, &mut self.sites, site), counters))
            .collect();
        let findings = outcome
            .findings
            .iter()
            .map(|finding| {
                let same = |other: &interp::Finding| (other.kind, &other.source) == (finding.kind, &finding.source);
                let tick = self.findings.iter().find(|(other, _)| same(other)).and_then(|(_, tick)| *tick);
                // A finding about the whole launch is shown at the first tick of its line.
                let first_run = || ticks.iter().position(|tick| is_at(&self.header, tick, finding)).map(|at| at as u32);
                finding_of(finding, tick.map(|tick| positions[tick as usize]).or_else(first_run))
            })
            .collect();
        let phases = phases(&ticks, &self.header.operations);
        let header =
            Header { grid: outcome.grid, ticks, phases, counters: outcome.counters, lines, findings, ..self.header };
        Trace { header, events: self.events }
    }

    /// The number of the event's tick; a new tick and its operation are added to the header.
    fn tick(
        &mut self,
        event: &interp::Event<'_>,
        kind: OperationKind,
        memory: usize,
        ty: Option<Type>,
        name: &str,
    ) -> u32 {
        let path: Vec<u32> = event.loops.iter().flat_map(|&(at, times)| [at, times]).chain([event.operation]).collect();
        let position = Position { block: event.block, warp: event.warp, path };
        let part = match &self.last {
            Some((last, part)) if *last == position => part + 1,
            _ => 0,
        };
        let mut path = position.path.clone();
        path.push(part);
        self.last = Some((position, part));
        let site = site_number(&mut self.header.sites, &mut self.sites, event.site);
        let operation = Operation { kind, site, memory: memory as u32, ty, name: name.into() };
        let operations = &mut self.header.operations;
        let number = *self.operations.entry(operation).or_insert_with_key(|operation| {
            operations.push(operation.clone());
            operations.len() as u32 - 1
        });
        let tick = self.ticks.at(&path, || Tick { operation: number, step: event.step });
        // The interpreter reports a finding before the access that it is about.
        for (_, found) in self.findings.iter_mut().rev().take_while(|(_, found)| found.is_none()) {
            *found = Some(tick);
        }
        tick
    }

    /// Whether the filter selects the event.
    fn is_selected(&self, event: &interp::Event<'_>) -> bool {
        let TraceFilter { warps, steps, .. } = self.filter;
        warps.as_ref().is_none_or(|warps| warps.contains(&event.warp))
            && steps.is_none_or(|[from, to]| event.step.is_none_or(|step| (from..to).contains(&step)))
    }

    fn push(&mut self, event: Event) {
        let values = event.elements.len() + event.origins.len() + event.origins_b.len() + event.bits.len() + 1;
        self.remaining = self.remaining.saturating_sub(values);
        if self.remaining > 0 {
            self.events.push(event);
        }
    }

    fn registers_of(&mut self, event: &interp::Event<'_>) -> &mut Origins {
        self.registers.entry((event.block, event.warp)).or_default()
    }

    /// The origins of a register's values, by lane.
    fn origin(&mut self, event: &interp::Event<'_>, register: u32) -> [u64; 32] {
        self.registers_of(event).get(&register).copied().unwrap_or_default()
    }

    /// Sets the origins of a register's values in the active lanes.
    fn set_origins(&mut self, event: &interp::Event<'_>, register: u32, origins: [u64; 32]) {
        let lanes = event.lanes;
        let registers = self.registers_of(event);
        let origin_of = registers.entry(register).or_default();
        (0..32).filter(|lane| lanes >> lane & 1 == 1).for_each(|lane| origin_of[lane] = origins[lane]);
        if *origin_of == [0; 32] {
            registers.remove(&register);
        }
    }

    fn access(&mut self, event: &interp::Event<'_>) {
        let EventKind::Access { write, space, memory, register, elements, bits, request, .. } = event.kind else {
            return;
        };
        let lanes = lane_mask(elements);
        let each = |of: &dyn Fn(usize, u64) -> u64| -> Vec<u64> {
            elements.iter().enumerate().filter_map(|(lane, element)| element.map(|e| of(lane, e))).collect()
        };
        let (kind, memory, ty, origins) = match space {
            Space::Global => {
                let Some(memory) = self.matrices[memory] else { return };
                let MatrixInfo { first_origin, ty, .. } = self.header.matrices[memory];
                let origins = elements.map(|element| element.map_or(0, |element| first_origin + element));
                (if write { OperationKind::GlobalStore } else { OperationKind::GlobalLoad }, memory, ty, origins)
            }
            Space::Shared => {
                let origins =
                    if write { register.map_or(self.copied, |register| self.origin(event, register)) } else { [0; 32] };
                let origins = self.shared_origins((event.block, memory), write, elements, origins);
                let kind = if write { OperationKind::SharedStore } else { OperationKind::SharedLoad };
                (kind, memory, self.header.shared[memory].ty, origins)
            }
        };
        if !write {
            match register {
                Some(register) => self.set_origins(event, register, origins),
                None => self.copied = origins,
            }
        }
        if !self.is_selected(event) {
            return;
        }
        let tick = self.tick(event, kind, memory, Some(ty), "");
        let request = request.unwrap_or_default();
        self.push(Event {
            tick,
            block: event.block,
            warp: event.warp,
            lanes,
            transactions: request.transactions as u32,
            conflicts: request.conflicts as u32,
            elements: each(&|_, element| element),
            origins: if space == Space::Shared { each(&|lane, _| origins[lane]) } else { Vec::new() },
            origins_b: Vec::new(),
            bits: each(&|lane, _| bits[lane] & type_mask(ty)),
        });
    }

    /// Stores the origins of values written to shared memory, or loads those of values read from
    /// it.
    fn shared_origins(
        &mut self,
        array: ([u32; 3], usize),
        write: bool,
        elements: &[Option<u64>; 32],
        mut origins: [u64; 32],
    ) -> [u64; 32] {
        let array = self.shared.entry(array).or_default();
        for (origin, element) in origins.iter_mut().zip(elements) {
            match (element, write) {
                (Some(element), true) => _ = array.insert(*element, *origin),
                (Some(element), false) => *origin = array.get(element).copied().unwrap_or(0),
                (None, _) => *origin = 0,
            }
        }
        origins
    }

    fn compute(&mut self, event: &interp::Event<'_>) {
        let EventKind::Compute { op: how, ty, dst: into, src: from, bits } = event.kind else { return };
        if ty == Type::Pred {
            return;
        }
        let operands = match (how, from) {
            (Computation::MulAdd, [a, b, _]) => [self.origin(event, *a), self.origin(event, *b)],
            _ => [[0; 32]; 2],
        };
        let origins = match (how, from) {
            (Computation::Move | Computation::Convert, [a]) => self.origin(event, *a),
            _ => [0; 32],
        };
        self.set_origins(event, into, origins);
        // Values of type u32 and u64 are indices.
        let (kind, name) = match how {
            _ if matches!(ty, Type::U32 | Type::U64) => return,
            Computation::MulAdd => (OperationKind::MulAdd, "fma".into()),
            Computation::Matrix(mma) => (OperationKind::Matrix, mma.to_string()),
            Computation::Warpgroup(wgmma) => (OperationKind::Matrix, wgmma.to_string()),
            Computation::Unary(op) => (OperationKind::Arithmetic, format!("{op:?}").to_lowercase()),
            Computation::Binary(op) => (OperationKind::Arithmetic, format!("{op:?}").to_lowercase()),
            Computation::Move | Computation::Convert | Computation::Other => return,
        };
        if !self.is_selected(event) {
            return;
        }
        let tick = self.tick(event, kind, 0, Some(ty), &name);
        let each = |of: &[u64; 32]| -> Vec<u64> {
            (0..32).filter(|lane| event.lanes >> lane & 1 == 1).map(|lane| of[lane]).collect()
        };
        let operands = operands.map(|operand| if kind == OperationKind::MulAdd { each(&operand) } else { Vec::new() });
        let [origins, origins_b] = operands;
        let (block, warp, lanes) = (event.block, event.warp, event.lanes);
        self.push(Event { tick, block, warp, lanes, origins, origins_b, bits: each(bits), ..Event::default() });
    }

    /// Records a pipeline operation.
    fn pipeline_event(&mut self, event: &interp::Event<'_>) {
        let op = match event.kind {
            EventKind::MbarrierInit { barrier, arrivals } => PipelineOp::Init { barrier: slot(barrier), arrivals },
            EventKind::MbarrierArrive { barrier, block, bytes } => {
                PipelineOp::Arrive { barrier: slot(barrier), block, bytes }
            }
            EventKind::MbarrierWait { barrier, parity } => PipelineOp::Wait { barrier: slot(barrier), parity },
            EventKind::TmaLoad { to, bytes, barrier, blocks, .. } => {
                PipelineOp::TmaLoad { tile: slot(to), bytes, barrier: slot(barrier), blocks }
            }
            EventKind::Wgmma { tiles, .. } => PipelineOp::Wgmma { tiles: tiles.iter().copied().map(slot).collect() },
            EventKind::WgmmaCommitGroup => PipelineOp::WgmmaCommit,
            EventKind::WgmmaWaitGroup(pending) => PipelineOp::WgmmaWait(pending),
            EventKind::StoreAsync { block, barrier, bytes } => {
                PipelineOp::DsmemStore { block, barrier: slot(barrier), bytes }
            }
            EventKind::TmaStore { from, .. } => PipelineOp::TmaStore { tile: slot(from) },
            EventKind::BulkCommitGroup => PipelineOp::TmaStoreCommit,
            EventKind::BulkWaitGroup(pending) => PipelineOp::TmaStoreWait(pending),
            EventKind::Barrier { id, threads, waits } => PipelineOp::BlockBarrier { id, threads, waits },
            EventKind::Access { .. }
            | EventKind::Compute { .. }
            | EventKind::CopyAsyncWait(_)
            | EventKind::Finding(_) => return,
        };
        self.remaining = self.remaining.saturating_sub(1);
        if self.remaining > 0 {
            let iteration = event.loops.last().map(|&(_, times)| times);
            self.header.pipeline.push(PipelineEvent { block: event.block, warp: event.warp, iteration, op });
        }
    }

    fn wait(&mut self, event: &interp::Event<'_>, kind: OperationKind, number: u32) {
        if self.is_selected(event) {
            let tick = self.tick(event, kind, number as usize, None, "");
            let (block, warp, lanes) = (event.block, event.warp, event.lanes);
            self.push(Event { tick, block, warp, lanes, ..Event::default() });
        }
    }
}

impl Observer for Recorder<'_> {
    fn event(&mut self, event: &interp::Event<'_>) -> ControlFlow<()> {
        match event.kind {
            EventKind::Access { .. } => self.access(event),
            EventKind::Compute { .. } => self.compute(event),
            EventKind::Barrier { id, .. } => self.wait(event, OperationKind::Barrier, id),
            EventKind::CopyAsyncWait(pending) => self.wait(event, OperationKind::Wait, pending),
            EventKind::Finding(finding) => self.findings.push((finding.clone(), None)),
            _ => {}
        }
        if self.has_pipeline {
            self.pipeline_event(event);
        }
        if self.remaining == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn slot(of: SharedRef<'_>) -> SharedSlot {
    [of.memory as u32, of.index as u32]
}

/// The value bits of a type: registers hold short integers extended.
fn type_mask(ty: Type) -> u64 {
    u64::MAX >> (64 - 8 * ty.size())
}

/// The active lanes: one bit for each lane with an element.
fn lane_mask(elements: &[Option<u64>; 32]) -> u32 {
    elements.iter().rev().fold(0, |mask, element| mask << 1 | u32::from(element.is_some()))
}

fn matrix_info(name: &str, buffer: &Buffer, written: bool, first_origin: u64) -> MatrixInfo {
    let layout = buffer.layout();
    let tegula_core::Shape { batches, rows, cols } = layout.shape;
    let positions = (0..batches).flat_map(|b| (0..rows).flat_map(move |r| (0..cols).map(move |c| (b, r, c))));
    let initial = if batches * rows * cols <= MAX_INITIAL {
        positions.map(|(b, r, c)| buffer.bits(b, r, c)).collect::<Option<Vec<u64>>>().unwrap_or_default()
    } else {
        Vec::new()
    };
    MatrixInfo {
        name: name.into(),
        ty: buffer.ty(),
        shape: [batches, rows, cols].map(|extent| extent as u64),
        strides: layout.strides.map(|stride| stride as i64),
        written,
        first_origin,
        initial,
    }
}

/// The number of a source line; a new line is appended.
fn site_number(sites: &mut Vec<SourceLine>, known: &mut HashMap<SourceLine, u32>, site: Site) -> u32 {
    let at = site.location;
    let line = SourceLine { file: at.file().into(), line: at.line(), column: at.column(), copy: site.iteration };
    *known.entry(line).or_insert_with_key(|line| {
        sites.push(line.clone());
        sites.len() as u32 - 1
    })
}

/// Whether a tick is at the line of a finding that names no thread.
fn is_at(header: &Header, tick: &Tick, finding: &interp::Finding) -> bool {
    let site = &header.sites[header.operations[tick.operation as usize].site as usize];
    let matches = |at: &Location<'_>| (site.file.as_str(), site.line) == (at.file(), at.line());
    finding.threads.is_empty() && finding.source.first().is_some_and(|at| matches(at))
}

fn finding_of(finding: &interp::Finding, tick: Option<u32>) -> Finding {
    Finding {
        kind: finding.kind.name().into(),
        error: finding.severity() == Severity::Error,
        message: finding.message.clone(),
        block: finding.block,
        threads: finding.threads.clone(),
        space: finding.space.map(|space| space.name().into()),
        name: finding.name.clone(),
        index: finding.index.clone(),
        lines: finding.source.iter().map(|at| (at.file().into(), at.line())).collect(),
        times: finding.times,
        tick,
    }
}
