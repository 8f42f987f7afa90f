//! The observer that makes a trace.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::panic::Location;

use serde::{Deserialize, Serialize};
use tegula_core::element::Type;
use tegula_interp::{self as interp, Arg, Buffer, Computation, Config, Observer, Place, Severity, Space, What};
use tegula_ir::{Checked, Holds, Kernel, ParamKind, Site};

use super::order::{Moments, acts};
use super::{
    Array, Deed, Does, Doing, Event, Finding, Header, Line, MatrixOf, Moment, Operation, Spot, Trace, VERSION,
};
use crate::error::{Error, Result};
use crate::number::shown;

/// Numbers of single threads that a trace holds unless it is told otherwise: some hundred megabytes in memory.
pub const MOST: usize = 1 << 22;

/// Elements of a matrix whose values before the launch are kept.
const KEPT: usize = 1 << 16;

/// What to record. Everything by default.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// These blocks, along x, y, z; only they run.
    pub blocks: Option<Vec<[u32; 3]>>,
    /// These warps of each block.
    pub warps: Option<Vec<u32>>,
    /// Steps of the slide from the first up to, but without, the second; and what happens before and after the slide.
    pub steps: Option<[u32; 2]>,
}

/// Runs a kernel and writes down what it does, at most `most` numbers of single threads.
///
/// # Errors
/// [`Error::TooLong`] where more happens, [`Error::Kernel`] where the arguments do not fit. What the kernel does wrong is in the trace.
pub fn record(
    kernel: &Checked<Kernel>,
    args: &[Arg<'_>],
    config: &Config,
    sample: &Sample,
    most: usize,
) -> Result<Trace> {
    let config = Config { blocks: sample.blocks.clone(), counters: true, ..config.clone() };
    let mut recorder = Recorder::new(kernel, args, sample, most);
    let outcome = interp::observe(kernel, args, &config, &mut recorder)?;
    if recorder.room == 0 {
        return Err(Error::TooLong { most });
    }
    Ok(recorder.finish(outcome))
}

/// Where numbers of a warp's registers, or of an array's elements, came from.
type Origins = HashMap<u32, [u64; 32]>;

struct Recorder<'a> {
    sample: &'a Sample,
    /// Whether the kernel has barriers that count.
    counts: bool,
    /// Numbers of single threads that still fit; once there is no room, nothing more is written.
    room: usize,
    header: Header,
    /// For each parameter that is a matrix, its position among the matrices.
    matrix: Vec<Option<usize>>,
    sites: HashMap<Line, u32>,
    operations: HashMap<Operation, u32>,
    moments: Moments,
    events: Vec<Event>,
    /// Findings and the moments at which they came up.
    found: Vec<(interp::Finding, Option<u32>)>,
    registers: HashMap<([u32; 3], u32), Origins>,
    shared: HashMap<([u32; 3], usize), HashMap<u64, u64>>,
    /// What an asynchronous copy has just read.
    copied: [u64; 32],
    /// Where the last event was, and which it was of those there.
    last: Option<(At, u32)>,
}

/// A warp at an instruction.
#[derive(Clone, Debug, PartialEq)]
struct At {
    block: [u32; 3],
    warp: u32,
    path: Vec<u32>,
}

impl<'a> Recorder<'a> {
    fn new(kernel: &Checked<Kernel>, args: &[Arg<'_>], sample: &'a Sample, most: usize) -> Self {
        let mut header = Header {
            version: VERSION,
            kernel: kernel.name().into(),
            notes: kernel.notes().to_vec(),
            block: kernel.block(),
            cluster: kernel.cluster(),
            sample: sample.clone(),
            ..Header::default()
        };
        let mut matrix = Vec::new();
        let mut first = 1;
        for (param, arg) in kernel.params().iter().zip(args) {
            matrix.push(None);
            match (*arg, &param.kind) {
                (Arg::Matrix(buffer), ParamKind::Matrix { access, .. }) => {
                    matrix.pop();
                    matrix.push(Some(header.matrices.len()));
                    let written = *access != tegula_ir::Access::Read;
                    let of = matrix_of(&param.name, buffer, written, first);
                    first += of.shape.iter().product::<u64>();
                    header.matrices.push(of);
                }
                (Arg::Scalar { ty, bits }, _) => {
                    header.scalars.push((param.name.clone(), ty, shown(ty, bits)));
                }
                _ => {}
            }
        }
        header.shared = kernel
            .shared()
            .iter()
            .map(|array| Array { name: array.name.clone(), ty: array.ty, dims: array.dims.clone(), start: array.start })
            .collect();
        Recorder {
            sample,
            counts: kernel.shared().iter().any(|array| array.holds == Holds::Barriers),
            room: most.saturating_add(1),
            header,
            matrix,
            sites: HashMap::new(),
            operations: HashMap::new(),
            moments: Moments::default(),
            events: Vec::new(),
            found: Vec::new(),
            registers: HashMap::new(),
            shared: HashMap::new(),
            copied: [0; 32],
            last: None,
        }
    }

    fn finish(mut self, outcome: interp::Outcome) -> Trace {
        let (moments, places) = self.moments.sorted();
        for event in &mut self.events {
            event.moment = places[event.moment as usize];
        }
        self.events.sort_by_key(|event| (event.moment, event.block[2], event.block[1], event.block[0], event.warp));
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
                let moment = self.found.iter().find(|(other, _)| same(other)).and_then(|(_, moment)| *moment);
                // What is known of a whole launch only is shown where its line first runs.
                let runs =
                    || moments.iter().position(|moment| is_at(&self.header, moment, finding)).map(|at| at as u32);
                finding_of(finding, moment.map(|moment| places[moment as usize]).or_else(runs))
            })
            .collect();
        let acts = acts(&moments, &self.header.operations);
        let header =
            Header { grid: outcome.grid, moments, acts, counters: outcome.counters, lines, findings, ..self.header };
        Trace { header, events: self.events }
    }

    /// The number of the moment of an event that does so.
    fn moment(&mut self, event: &interp::Event<'_>, does: Does, memory: usize, ty: Option<Type>, name: &str) -> u32 {
        let path: Vec<u32> = event.loops.iter().flat_map(|&(at, times)| [at, times]).chain([event.operation]).collect();
        let place = At { block: event.block, warp: event.warp, path };
        let part = match &self.last {
            Some((last, part)) if *last == place => part + 1,
            _ => 0,
        };
        let mut path = place.path.clone();
        path.push(part);
        self.last = Some((place, part));
        let site = site_number(&mut self.header.sites, &mut self.sites, event.site);
        let operation = Operation { does, site, memory: memory as u32, ty, name: name.into() };
        let operations = &mut self.header.operations;
        let number = *self.operations.entry(operation).or_insert_with_key(|operation| {
            operations.push(operation.clone());
            operations.len() as u32 - 1
        });
        let moment = self.moments.at(&path, || Moment { operation: number, step: event.step });
        // Findings are told of before the access they are about.
        for (_, found) in self.found.iter_mut().rev().take_while(|(_, found)| found.is_none()) {
            *found = Some(moment);
        }
        moment
    }

    /// Whether what this warp does now is recorded.
    fn is_chosen(&self, event: &interp::Event<'_>) -> bool {
        let Sample { warps, steps, .. } = self.sample;
        warps.as_ref().is_none_or(|warps| warps.contains(&event.warp))
            && steps.is_none_or(|[from, to]| event.step.is_none_or(|step| (from..to).contains(&step)))
    }

    fn push(&mut self, event: Event) {
        let numbers = event.elements.len() + event.from.len() + event.other.len() + event.bits.len() + 1;
        self.room = self.room.saturating_sub(numbers);
        if self.room > 0 {
            self.events.push(event);
        }
    }

    fn registers_of(&mut self, event: &interp::Event<'_>) -> &mut Origins {
        self.registers.entry((event.block, event.warp)).or_default()
    }

    /// Where the numbers of a register came from.
    fn origin(&mut self, event: &interp::Event<'_>, register: u32) -> [u64; 32] {
        self.registers_of(event).get(&register).copied().unwrap_or_default()
    }

    /// Notes where the numbers that were put into a register came from, in the lanes that took part.
    fn put(&mut self, event: &interp::Event<'_>, register: u32, origins: [u64; 32]) {
        let lanes = event.lanes;
        let registers = self.registers_of(event);
        let held = registers.entry(register).or_default();
        (0..32).filter(|lane| lanes >> lane & 1 == 1).for_each(|lane| held[lane] = origins[lane]);
        if *held == [0; 32] {
            registers.remove(&register);
        }
    }

    fn access(&mut self, event: &interp::Event<'_>) {
        let What::Access { write, space, memory, register, elements, bits, request, .. } = event.what else { return };
        let lanes = mask(elements);
        let each = |of: &dyn Fn(usize, u64) -> u64| -> Vec<u64> {
            elements.iter().enumerate().filter_map(|(lane, element)| element.map(|e| of(lane, e))).collect()
        };
        let (does, memory, ty, origins) = match space {
            Space::Global => {
                let Some(memory) = self.matrix[memory] else { return };
                let MatrixOf { first, ty, .. } = self.header.matrices[memory];
                let origins = elements.map(|element| element.map_or(0, |element| first + element));
                (if write { Does::GlobalStore } else { Does::GlobalLoad }, memory, ty, origins)
            }
            Space::Shared => {
                let origins =
                    if write { register.map_or(self.copied, |register| self.origin(event, register)) } else { [0; 32] };
                let origins = self.through_shared((event.block, memory), write, elements, origins);
                let does = if write { Does::SharedStore } else { Does::SharedLoad };
                (does, memory, self.header.shared[memory].ty, origins)
            }
        };
        if !write {
            match register {
                Some(register) => self.put(event, register, origins),
                None => self.copied = origins,
            }
        }
        if !self.is_chosen(event) {
            return;
        }
        let moment = self.moment(event, does, memory, Some(ty), "");
        let request = request.unwrap_or_default();
        self.push(Event {
            moment,
            block: event.block,
            warp: event.warp,
            lanes,
            passes: request.passes as u32,
            conflicts: request.conflicts as u32,
            elements: each(&|_, element| element),
            from: if space == Space::Shared { each(&|lane, _| origins[lane]) } else { Vec::new() },
            other: Vec::new(),
            bits: each(&|lane, _| bits[lane] & ones(ty)),
        });
    }

    /// Notes where numbers came from that are written to shared memory, or tells where those came from that are read.
    fn through_shared(
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
        let What::Compute { how, ty, into, from, bits } = event.what else { return };
        if ty == Type::Pred {
            return;
        }
        let factors = match (how, from) {
            (Computation::MulAdd, [a, b, _]) => [self.origin(event, *a), self.origin(event, *b)],
            _ => [[0; 32]; 2],
        };
        let origins = match (how, from) {
            (Computation::Move | Computation::Convert, [a]) => self.origin(event, *a),
            _ => [0; 32],
        };
        self.put(event, into, origins);
        // Numbers of type u32 and u64 are indices.
        let (does, name) = match how {
            _ if matches!(ty, Type::U32 | Type::U64) => return,
            Computation::MulAdd => (Does::MulAdd, "fma".into()),
            Computation::Matrix(mma) => (Does::Matrix, mma.to_string()),
            Computation::Warpgroup(wgmma) => (Does::Matrix, wgmma.to_string()),
            Computation::Unary(op) => (Does::Arithmetic, format!("{op:?}").to_lowercase()),
            Computation::Binary(op) => (Does::Arithmetic, format!("{op:?}").to_lowercase()),
            Computation::Move | Computation::Convert | Computation::Other => return,
        };
        if !self.is_chosen(event) {
            return;
        }
        let moment = self.moment(event, does, 0, Some(ty), &name);
        let each = |of: &[u64; 32]| -> Vec<u64> {
            (0..32).filter(|lane| event.lanes >> lane & 1 == 1).map(|lane| of[lane]).collect()
        };
        let factors = factors.map(|factor| if does == Does::MulAdd { each(&factor) } else { Vec::new() });
        let [from, other] = factors;
        let (block, warp, lanes) = (event.block, event.warp, event.lanes);
        self.push(Event { moment, block, warp, lanes, from, other, bits: each(bits), ..Event::default() });
    }

    /// Writes down what a warp does to a pipeline.
    fn deed(&mut self, event: &interp::Event<'_>) {
        let does = match event.what {
            What::Begin { barrier, arrivals } => Doing::Begin { barrier: spot(barrier), arrivals },
            What::Arrive { barrier, block, bytes } => Doing::Arrive { barrier: spot(barrier), block, bytes },
            What::Await { barrier, parity } => Doing::Await { barrier: spot(barrier), parity },
            What::CopyTile { to, bytes, barrier, blocks, .. } => {
                Doing::Copy { tile: spot(to), bytes, barrier: spot(barrier), blocks }
            }
            What::Multiply { tiles, .. } => Doing::Multiply { tiles: tiles.iter().copied().map(spot).collect() },
            What::CommitProducts => Doing::CommitProducts,
            What::AwaitProducts(pending) => Doing::AwaitProducts(pending),
            What::Send { block, barrier, bytes } => Doing::Send { block, barrier: spot(barrier), bytes },
            What::StoreTile { from, .. } => Doing::Store { tile: spot(from) },
            What::CommitStores => Doing::CommitStores,
            What::AwaitStores(pending) => Doing::AwaitStores(pending),
            What::Barrier { id, threads, waits } => Doing::Meet { id, threads, waits },
            What::Access { .. } | What::Compute { .. } | What::Wait(_) | What::Found(_) => return,
        };
        self.room = self.room.saturating_sub(1);
        if self.room > 0 {
            let turn = event.loops.last().map(|&(_, times)| times);
            self.header.deeds.push(Deed { block: event.block, warp: event.warp, turn, does });
        }
    }

    fn wait(&mut self, event: &interp::Event<'_>, does: Does, which: u32) {
        if self.is_chosen(event) {
            let moment = self.moment(event, does, which as usize, None, "");
            let (block, warp, lanes) = (event.block, event.warp, event.lanes);
            self.push(Event { moment, block, warp, lanes, ..Event::default() });
        }
    }
}

impl Observer for Recorder<'_> {
    fn event(&mut self, event: &interp::Event<'_>) -> ControlFlow<()> {
        match event.what {
            What::Access { .. } => self.access(event),
            What::Compute { .. } => self.compute(event),
            What::Barrier { id, .. } => self.wait(event, Does::Barrier, id),
            What::Wait(pending) => self.wait(event, Does::Wait, pending),
            What::Found(finding) => self.found.push((finding.clone(), None)),
            _ => {}
        }
        if self.counts {
            self.deed(event);
        }
        if self.room == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

fn spot(place: Place<'_>) -> Spot {
    [place.memory as u32, place.index as u32]
}

/// The bits that a type has: registers hold short integers extended.
fn ones(ty: Type) -> u64 {
    u64::MAX >> (64 - 8 * ty.size())
}

/// One bit for each lane with an element.
fn mask(elements: &[Option<u64>; 32]) -> u32 {
    elements.iter().rev().fold(0, |mask, element| mask << 1 | u32::from(element.is_some()))
}

fn matrix_of(name: &str, buffer: &Buffer, written: bool, first: u64) -> MatrixOf {
    let layout = buffer.layout();
    let tegula_core::Shape { batches, rows, cols } = layout.shape;
    let positions = (0..batches).flat_map(|b| (0..rows).flat_map(move |r| (0..cols).map(move |c| (b, r, c))));
    let before = if batches * rows * cols <= KEPT {
        positions.map(|(b, r, c)| buffer.bits(b, r, c)).collect::<Option<Vec<u64>>>().unwrap_or_default()
    } else {
        Vec::new()
    };
    MatrixOf {
        name: name.into(),
        ty: buffer.ty(),
        shape: [batches, rows, cols].map(|extent| extent as u64),
        strides: layout.strides.map(|stride| stride as i64),
        written,
        first,
        before,
    }
}

/// The number of a line; one that is new gets the next.
fn site_number(sites: &mut Vec<Line>, known: &mut HashMap<Line, u32>, site: Site) -> u32 {
    let at = site.location;
    let line = Line { file: at.file().into(), line: at.line(), column: at.column(), copy: site.iteration };
    *known.entry(line).or_insert_with_key(|line| {
        sites.push(line.clone());
        sites.len() as u32 - 1
    })
}

/// Whether the operation of a moment stands where a finding about no thread is.
fn is_at(header: &Header, moment: &Moment, finding: &interp::Finding) -> bool {
    let site = &header.sites[header.operations[moment.operation as usize].site as usize];
    let at = |place: &Location<'_>| (site.file.as_str(), site.line) == (place.file(), place.line());
    finding.threads.is_empty() && finding.source.first().is_some_and(|place| at(place))
}

fn finding_of(finding: &interp::Finding, moment: Option<u32>) -> Finding {
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
        moment,
    }
}
