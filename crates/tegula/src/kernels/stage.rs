//! A tile of A or B on its way to shared memory: who copies which of its elements, and from where.

use crate::ir::prelude::*;

/// The stages of one operand: an array of `stages` tiles, each with a row for each k and a column for each row of A or column of B.
/// Call that side, m or n, the outer one.
pub(super) struct Stage<'k, T: Element> {
    source: Global<'k, T>,
    /// Whether the source's rows run along k.
    along_k: bool,
    /// Elements that are copied at once.
    width: u32,
    depth: u32,
    tile: Shared<'k, T>,
    cells: Vec<Cell<'k>>,
}

/// What a thread copies in one of its turns.
struct Cell<'k> {
    /// Position in the tile.
    k: Val<'k, u32>,
    outer: Val<'k, u32>,
    /// Position in the matrix.
    from: Val<'k, u32>,
}

/// The shape of a tile and of the block that copies it.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub outer: u32,
    pub depth: u32,
    pub stages: u32,
    pub threads: u32,
}

impl<'k, T: Element> Stage<'k, T> {
    /// A source that lies along k is turned on its way, element by element: a warp copies 8 outer × 4 k, which are whole sectors, and rows are
    /// padded so that those elements meet different banks.
    pub fn array(k: &'k Builder, name: &str, span: Span, along_k: bool) -> Shared<'k, T> {
        let pad = if along_k { 8 } else { 0 };
        k.shared(name, [span.stages * span.depth, span.outer + pad])
    }

    /// `first` is where the block's tile begins along the outer side, of which there are `extent`. Beyond the edge, elements at the edge are
    /// copied again: sums of them are never stored, and the loop needs no guard.
    pub fn new(
        source: Global<'k, T>,
        tile: Shared<'k, T>,
        along_k: bool,
        width: u32,
        span: Span,
        thread: Val<'k, u32>,
        [first, extent]: [Val<'k, u32>; 2],
    ) -> Self {
        // The unit of a turn: a warp's patch of 8 outer × 4 k, or `width` elements of one k.
        let (worker, workers, across, down, unit) = if along_k {
            (thread / 32, span.threads / 32, span.outer / 8, span.depth / 4, 8)
        } else {
            (thread, span.threads, span.outer / width, span.depth, width)
        };
        let lane = thread % 32;
        let cells = turns(source.builder(), worker, workers, across, down).into_iter().map(|(over, row)| {
            let (k, outer) =
                if along_k { (row * 4 + lane % 4, over * unit + lane / 4) } else { (row, over * unit) };
            Cell { k, outer, from: (first + outer).min(extent - width) }
        });
        Stage { source, along_k, width, depth: span.depth, tile, cells: cells.collect() }
    }

    /// How many turns a thread takes to copy a tile.
    pub fn turns(&self) -> usize {
        self.cells.len()
    }

    /// Starts the copies of one turn, of the tile whose first k is `from`, to a stage. `valid` says for a k of the tile whether it is there;
    /// elsewhere zeros are written.
    pub fn copy(&self, turn: usize, stage: Val<'k, u32>, from: Val<'k, u32>, valid: impl Fn(Val<'k, u32>) -> Pred<'k>) {
        let cell = &self.cells[turn];
        let k = from + cell.k;
        let source = if self.along_k { (cell.from, k) } else { (k, cell.from) };
        let guard = Builder::guard(valid(cell.k));
        self.tile.copy_async((stage * self.depth + cell.k, cell.outer), self.source, source, self.width, guard);
    }
}

/// Which cells of an `across` × `down` grid a worker takes: (column, row) of each turn. Neighbours along a row go to neighbouring workers.
fn turns<'k>(k: &'k Builder, worker: Val<'k, u32>, workers: u32, across: u32, down: u32) -> Vec<(Val<'k, u32>, Val<'k, u32>)> {
    if workers.is_multiple_of(across) {
        let rows = workers / across;
        return (0..down.div_ceil(rows)).map(|i| (worker % across, worker / across + i * rows)).collect();
    }
    let each = across / workers;
    (0..down * each).map(|i| (worker + i % each * workers, k.constant(i / each))).collect()
}
