//! A trace with what is needed to tell of it: which matrix is which, the numbers in them, names of elements, moments to stop at.

use std::collections::{HashMap, HashSet};

use tegula_explain::formula::{Element, Stored, Term, stored, terms};
use tegula_explain::number::shown;
use tegula_explain::trace::{Act, Deed, Does, Doing, Trace};

/// Events up to which numbers are looked at one by one to find the longest.
const LOOKED_AT: usize = 1 << 16;

/// The most characters that a number takes.
const LONGEST: usize = 9;

/// A trace to be told of.
pub struct Stage {
    pub trace: Trace,
    /// Blocks that something is known of.
    pub blocks: Vec<[u32; 3]>,
    /// Which matrices are A, B and C, where there are such.
    pub roles: [Option<usize>; 3],
    /// Where one may stop: the beginning, then after each moment, and at each act without any.
    pub stops: Vec<Stop>,
    /// Numbers that were read, by what stands for their element; for matrices that the trace does not keep.
    read: HashMap<u64, u64>,
    /// The most characters of a number, and of a name.
    pub widths: [usize; 2],
}

/// A place to stop at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stop {
    /// The act, `None` before the first.
    pub act: Option<usize>,
    /// Moments that are over.
    pub done: u32,
    /// The moment that has just been, if the act has any.
    pub moment: Option<u32>,
}

impl Stage {
    pub fn new(trace: Trace) -> Stage {
        let find = |written: bool, nth: usize| {
            let fit = trace.header.matrices.iter().enumerate().filter(move |(_, matrix)| matrix.written == written);
            fit.map(|(at, _)| at).nth(nth)
        };
        let roles = [find(false, 0), find(false, 1), find(true, 0)];
        let mut stage =
            Stage { blocks: trace.blocks(), roles, stops: stops(&trace), read: HashMap::new(), widths: [1; 2], trace };
        if stage.trace.header.matrices.iter().any(|matrix| matrix.before.is_empty() && !matrix.written) {
            stage.read = stage.numbers_read();
        }
        stage.widths = [stage.longest_number(), stage.longest_name()];
        stage
    }

    fn numbers_read(&self) -> HashMap<u64, u64> {
        let header = &self.trace.header;
        let loads = self.trace.events.iter().map(|event| (header.operation(event.moment), event));
        loads
            .filter(|(operation, _)| operation.does == Does::GlobalLoad)
            .flat_map(|(operation, event)| {
                let first = header.matrices[operation.memory as usize].first;
                event.elements.iter().map(move |element| first + element).zip(event.bits.iter().copied())
            })
            .collect()
    }

    fn longest_number(&self) -> usize {
        let header = &self.trace.header;
        if self.trace.events.len() > LOOKED_AT {
            return LONGEST;
        }
        let events =
            self.trace.events.iter().filter_map(|event| Some((header.operation(event.moment).ty?, &event.bits)));
        let before = header.matrices.iter().map(|matrix| (matrix.ty, &matrix.before));
        let lengths = events.chain(before).flat_map(|(ty, bits)| bits.iter().map(move |&bits| shown(ty, bits).len()));
        lengths.max().unwrap_or(1)
    }

    fn longest_name(&self) -> usize {
        let last = |(matrix, of): (usize, &tegula_explain::trace::MatrixOf)| {
            self.name(Element { matrix, at: of.shape.map(|extent| extent.saturating_sub(1)) }).chars().count()
        };
        self.trace.header.matrices.iter().enumerate().map(last).max().unwrap_or(1)
    }

    pub fn act(&self, stop: Stop) -> Option<&Act> {
        self.trace.header.acts.get(stop.act?)
    }

    /// Steps of the slide that were recorded.
    pub fn steps(&self) -> u32 {
        self.trace.header.acts.iter().filter_map(|act| act.step).max().map_or(0, |step| step + 1)
    }

    /// Tiles of shared memory that a block has had stored.
    pub fn tiles_stored(&self, block: [u32; 3]) -> usize {
        let stored = |deed: &&Deed| deed.block == block && matches!(deed.does, Doing::Store { .. });
        self.trace.header.deeds.iter().filter(stored).count()
    }

    /// `a01`, or with larger matrices `a[0,12]`.
    pub fn name(&self, Element { matrix, at: [batch, row, col] }: Element) -> String {
        let of = &self.trace.header.matrices[matrix];
        let [batches, rows, cols] = of.shape;
        match batches > 1 {
            true => format!("{}[{batch},{row},{col}]", of.name),
            false if rows <= 10 && cols <= 10 => format!("{}{row}{col}", of.name),
            false => format!("{}[{row},{col}]", of.name),
        }
    }

    /// The name as it is in formulas of mathematics: `A`.
    pub fn matrix_name(&self, matrix: usize) -> String {
        self.trace.header.matrices[matrix].name.to_uppercase()
    }

    /// The number that an element had before the launch, where it is known.
    pub fn number(&self, matrix: usize, position: u64) -> Option<String> {
        let of = &self.trace.header.matrices[matrix];
        let kept = usize::try_from(position).ok().and_then(|position| of.before.get(position));
        let bits = kept.or_else(|| self.read.get(&(of.first + position)))?;
        Some(shown(of.ty, *bits))
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

    /// What a thread writes, and the products that make up the first element of it.
    pub fn sum_of(&self, block: [u32; 3], thread: [u32; 3]) -> (Option<Stored>, Vec<Term>) {
        let (elements, terms) = (stored(&self.trace, block, thread), terms(&self.trace, block, thread));
        let first = elements.first().cloned();
        let many = elements.len() > 1;
        let of_first = |term: &Term| match (&first, term.factors) {
            // Of a thread that has many sums those of this row and this column.
            (Some(Stored { element, .. }), [Some(a), Some(b)]) if many => {
                (a.at[1], b.at[2]) == (element.at[1], element.at[2])
            }
            _ => !many,
        };
        let terms = terms.into_iter().filter(of_first).collect();
        (first, terms)
    }

    /// Threads of a block along x, y, z as a number.
    pub fn threads(&self) -> u32 {
        self.trace.header.block.iter().product()
    }

    /// A number of a type.
    pub fn shown(&self, moment: u32, bits: u64) -> String {
        self.trace.header.operation(moment).ty.map_or_else(String::new, |ty| shown(ty, bits))
    }
}

fn stops(trace: &Trace) -> Vec<Stop> {
    let mut stops = vec![Stop { act: None, done: 0, moment: None }];
    for (at, act) in trace.header.acts.iter().enumerate() {
        let [from, to] = act.moments;
        if from == to {
            stops.push(Stop { act: Some(at), done: from, moment: None });
        }
        stops.extend((from..to).map(|moment| Stop { act: Some(at), done: moment + 1, moment: Some(moment) }));
    }
    stops
}
