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

/// The shape of the tiles and of the block that copies them.
#[derive(Clone, Copy)]
pub(super) struct Span {
    pub outer: u32,
    pub depth: u32,
    pub stages: u32,
    pub threads: u32,
}

impl Span {
    /// Who copies, how many there are, and the columns and rows of what they share out: a warp takes a patch of 8 outer × 4 k, a thread
    /// `width` elements of one k.
    fn shares(&self, along_k: bool, width: u32) -> [u32; 3] {
        if along_k {
            [self.threads / 32, self.outer / 8, self.depth / 4]
        } else {
            [self.threads, self.outer / width, self.depth]
        }
    }

    /// Whether the tile can be shared out evenly, whichever way the source lies.
    pub fn even(&self, width: u32) -> bool {
        [(true, 1), (false, 1), (false, width)].into_iter().all(|(along_k, width)| {
            let [workers, across, down] = self.shares(along_k, width);
            let whole = self.outer.is_multiple_of(8 * width) && self.depth.is_multiple_of(4);
            let rows = workers.is_multiple_of(across) && down.is_multiple_of(workers / across);
            whole && (rows || across.is_multiple_of(workers))
        })
    }
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
        let (worker, unit) = if along_k { (thread / 32, 8) } else { (thread, width) };
        let lane = thread % 32;
        let cells = turns(source.builder(), worker, span.shares(along_k, width)).into_iter().map(|(over, row)| {
            let (k, outer) = if along_k { (row * 4 + lane % 4, over * unit + lane / 4) } else { (row, over * unit) };
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
fn turns<'k>(
    k: &'k Builder,
    worker: Val<'k, u32>,
    [workers, across, down]: [u32; 3],
) -> Vec<(Val<'k, u32>, Val<'k, u32>)> {
    if workers.is_multiple_of(across) {
        let rows = workers / across;
        return (0..down / rows).map(|i| (worker % across, worker / across + i * rows)).collect();
    }
    let each = across / workers;
    (0..down * each).map(|i| (worker + i % each * workers, k.constant(i / each))).collect()
}
