//! A trace with derived data: the roles of matrices, values, names of elements, and the points to
//! step through.

use std::collections::{HashMap, HashSet};

use tegula_explain::formula::{Element, Stored, Term, stored, terms};
use tegula_explain::number::format_value;
use tegula_explain::trace::{OperationKind, Phase, PipelineEvent, PipelineOp, Trace};

/// Maximum events whose values are measured for the widest number.
const MAX_MEASURED: usize = 1 << 16;

/// Maximum characters of a number.
const MAX_NUMBER_WIDTH: usize = 9;

/// A trace to describe.
pub struct TraceView {
    pub trace: Trace,
    /// Recorded blocks.
    pub blocks: Vec<[u32; 3]>,
    /// Indices of A, B and C among the matrices.
    pub roles: [Option<usize>; 3],
    /// Points to step through: the start, after each tick, and each phase without ticks.
    pub points: Vec<TracePoint>,
    /// Loaded values by element, for matrices that the trace does not contain.
    read: HashMap<u64, u64>,
    /// Maximum characters of a number, and of a name.
    pub widths: [usize; 2],
}

/// A point of the trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracePoint {
    /// Index of the phase; `None` before the first.
    pub phase: Option<usize>,
    /// Completed ticks.
    pub done: u32,
    /// The tick just completed, if the phase has any.
    pub tick: Option<u32>,
}

impl TraceView {
    pub fn new(trace: Trace) -> TraceView {
        let find = |written: bool, nth: usize| {
            let fit = trace.header.matrices.iter().enumerate().filter(move |(_, matrix)| matrix.written == written);
            fit.map(|(at, _)| at).nth(nth)
        };
        let roles = [find(false, 0), find(false, 1), find(true, 0)];
        let mut view = TraceView {
            blocks: trace.blocks(),
            roles,
            points: points(&trace),
            read: HashMap::new(),
            widths: [1; 2],
            trace,
        };
        if view.trace.header.matrices.iter().any(|matrix| matrix.initial.is_empty() && !matrix.written) {
            view.read = view.numbers_read();
        }
        view.widths = [view.longest_number(), view.longest_name()];
        view
    }

    fn numbers_read(&self) -> HashMap<u64, u64> {
        let header = &self.trace.header;
        let loads = self.trace.events.iter().map(|event| (header.operation(event.tick), event));
        loads
            .filter(|(operation, _)| operation.kind == OperationKind::GlobalLoad)
            .flat_map(|(operation, event)| {
                let first = header.matrices[operation.memory as usize].first_origin;
                event.elements.iter().map(move |element| first + element).zip(event.bits.iter().copied())
            })
            .collect()
    }

    fn longest_number(&self) -> usize {
        let header = &self.trace.header;
        if self.trace.events.len() > MAX_MEASURED {
            return MAX_NUMBER_WIDTH;
        }
        let events = self.trace.events.iter().filter_map(|event| Some((header.operation(event.tick).ty?, &event.bits)));
        let before = header.matrices.iter().map(|matrix| (matrix.ty, &matrix.initial));
        let lengths =
            events.chain(before).flat_map(|(ty, bits)| bits.iter().map(move |&bits| format_value(ty, bits).len()));
        lengths.max().unwrap_or(1)
    }

    /// Maximum characters of a value of A, B or C before the launch; [`MAX_NUMBER_WIDTH`] where
    /// unknown.
    pub fn longest_of(&self, role: usize) -> usize {
        let Some(matrix) = self.roles[role].map(|matrix| &self.trace.header.matrices[matrix]) else {
            return MAX_NUMBER_WIDTH;
        };
        if matrix.initial.is_empty() || matrix.initial.len() > MAX_MEASURED {
            return MAX_NUMBER_WIDTH;
        }
        matrix.initial.iter().map(|&bits| format_value(matrix.ty, bits).len()).max().unwrap_or(1)
    }

    fn longest_name(&self) -> usize {
        let last = |(matrix, of): (usize, &tegula_explain::trace::MatrixInfo)| {
            self.name(Element { matrix, at: of.shape.map(|extent| extent.saturating_sub(1)) }).chars().count()
        };
        self.trace.header.matrices.iter().enumerate().map(last).max().unwrap_or(1)
    }

    pub fn phase(&self, point: TracePoint) -> Option<&Phase> {
        self.trace.header.phases.get(point.phase?)
    }

    /// Recorded steps along k.
    pub fn steps(&self) -> u32 {
        self.trace.header.phases.iter().filter_map(|phase| phase.step).max().map_or(0, |step| step + 1)
    }

    /// Tiles that a block stores from shared memory by TMA.
    pub fn tiles_stored(&self, block: [u32; 3]) -> usize {
        let stored = |event: &&PipelineEvent| event.block == block && matches!(event.op, PipelineOp::TmaStore { .. });
        self.trace.header.pipeline.iter().filter(stored).count()
    }

    /// Name of an element: `a01`, or `a[0,12]` in larger matrices.
    pub fn name(&self, Element { matrix, at: [batch, row, col] }: Element) -> String {
        let of = &self.trace.header.matrices[matrix];
        let [batches, rows, cols] = of.shape;
        match batches > 1 {
            true => format!("{}[{batch},{row},{col}]", of.name),
            false if rows <= 10 && cols <= 10 => format!("{}{row}{col}", of.name),
            false => format!("{}[{row},{col}]", of.name),
        }
    }

    /// Name of a matrix in formulas: `A`.
    pub fn matrix_name(&self, matrix: usize) -> String {
        self.trace.header.matrices[matrix].name.to_uppercase()
    }

    /// Value of an element before the launch, where it is known.
    pub fn number(&self, matrix: usize, position: u64) -> Option<String> {
        let of = &self.trace.header.matrices[matrix];
        let kept = usize::try_from(position).ok().and_then(|position| of.initial.get(position));
        let bits = kept.or_else(|| self.read.get(&(of.first_origin + position)))?;
        Some(format_value(of.ty, *bits))
    }

    pub fn position(&self, Element { matrix, at: [batch, row, col] }: Element) -> u64 {
        let [_, rows, cols] = self.trace.header.matrices[matrix].shape;
        (batch * rows + row) * cols + col
    }

    /// Elements as rows and columns: `A[0..2, 0..2]`.
    pub fn range(&self, matrix: usize, elements: &HashSet<u64>) -> String {
        let at = || elements.iter().map(|&element| self.trace.header.coordinates(matrix, element));
        let range = |axis: usize| {
            let (from, to) = (at().map(|at| at[axis]).min(), at().map(|at| at[axis]).max());
            let (from, to) = (from.unwrap_or(0), to.unwrap_or(0));
            if from == to { from.to_string() } else { format!("{from}..{}", to + 1) }
        };
        let name = self.matrix_name(matrix);
        if self.trace.header.matrices[matrix].shape[0] > 1 {
            format!("{name}[{}, {}, {}]", range(0), range(1), range(2))
        } else {
            format!("{name}[{}, {}]", range(1), range(2))
        }
    }

    /// The first element that a thread writes, and the products that make it up.
    pub fn sum_of(&self, block: [u32; 3], thread: [u32; 3]) -> (Option<Stored>, Vec<Term>) {
        let (elements, terms) = (stored(&self.trace, block, thread), terms(&self.trace, block, thread));
        let first = elements.first().cloned();
        let many = elements.len() > 1;
        let of_first = |term: &Term| match (&first, term.operands) {
            // A thread with many accumulators: the products of this row and column.
            (Some(Stored { element, .. }), [Some(a), Some(b)]) if many => {
                (a.at[1], b.at[2]) == (element.at[1], element.at[2])
            }
            _ => !many,
        };
        let terms = terms.into_iter().filter(of_first).collect();
        (first, terms)
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.trace.header.block.iter().product()
    }

    /// A value of a tick's type as a text.
    pub fn shown(&self, tick: u32, bits: u64) -> String {
        self.trace.header.operation(tick).ty.map_or_else(String::new, |ty| format_value(ty, bits))
    }
}

fn points(trace: &Trace) -> Vec<TracePoint> {
    let mut points = vec![TracePoint { phase: None, done: 0, tick: None }];
    for (at, phase) in trace.header.phases.iter().enumerate() {
        let [from, to] = phase.ticks;
        if from == to {
            points.push(TracePoint { phase: Some(at), done: from, tick: None });
        }
        points.extend((from..to).map(|tick| TracePoint { phase: Some(at), done: tick + 1, tick: Some(tick) }));
    }
    points
}
