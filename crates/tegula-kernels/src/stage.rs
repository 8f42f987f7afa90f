//! The copies of a tile of A or B to shared memory: their assignment to threads, and their
//! addresses.

use tegula_ir::prelude::*;

/// The stages of an operand in shared memory: `stages` tiles, each with a row for each k and a
/// column for each row of A (column of B). The latter axis, m or n, is called outer.
#[derive(Clone, Copy)]
pub(super) struct StageBuffers<'k, T: Element> {
    elements: Shared<'k, T>,
    pub shape: TileShape,
    /// Whether the source is contiguous along k.
    along_k: bool,
}

/// The current stage, as an element offset: an addition per step is cheaper than a multiplication.
pub(super) struct StageOffset<'k> {
    at: Var<'k, u32>,
    /// The thread's offset in a stage.
    start: Val<'k, u32>,
    /// Elements of a stage, and of all stages.
    stage_len: u32,
    total_len: u32,
}

/// A thread's copies of an operand's tiles: sources and destinations.
pub(super) struct TileCopy<'k, T: Element> {
    source: Global<'k, T>,
    buffers: StageBuffers<'k, T>,
    /// Elements of a copy.
    width: u32,
    /// The thread's first element in a tile.
    k: Val<'k, u32>,
    outer: Val<'k, u32>,
    /// The outer offset of each of its lines in the tile, and their outer coordinate in the matrix.
    lines: Vec<(u32, Val<'k, u32>)>,
    /// The offsets along k of its copies on every line.
    k_offsets: Vec<u32>,
}

/// The source of the next tile, for each line, and its stage.
pub(super) struct TileCursor<'k, T> {
    cursors: Vec<Cursor<'k, T>>,
    stage: StageOffset<'k>,
}

/// The shape of the tiles, and the threads that copy them.
#[derive(Clone, Copy)]
pub(super) struct TileShape {
    pub outer: u32,
    pub depth: u32,
    pub stages: u32,
    pub threads: u32,
}

impl TileShape {
    /// The number of workers, and the units of work along outer and k. A worker is a warp, which
    /// copies 8 outer × 4 k, or a thread, which copies `width` elements of one k.
    fn work_units(&self, along_k: bool, width: u32) -> [u32; 3] {
        if along_k {
            [self.threads / 32, self.outer / 8, self.depth / 4]
        } else {
            [self.threads, self.outer / width, self.depth]
        }
    }

    /// Whether the tile divides evenly among the workers, for any source order.
    pub fn divides_evenly(&self, width: u32) -> bool {
        [(true, 1), (false, 1), (false, width)].into_iter().all(|(along_k, width)| {
            let [workers, outer_units, k_units] = self.work_units(along_k, width);
            let whole = self.outer.is_multiple_of(8 * width) && self.depth.is_multiple_of(4);
            let rows = workers.is_multiple_of(outer_units) && k_units.is_multiple_of(workers / outer_units);
            whole && (rows || outer_units.is_multiple_of(workers))
        })
    }
}

impl<'k, T: Element> StageBuffers<'k, T> {
    /// Declares the stages. A source contiguous along k is transposed element by element: a warp
    /// copies 8 outer × 4 k, which are whole sectors, and rows are padded against bank conflicts.
    pub fn new(k: &'k Builder, name: &str, shape: TileShape, along_k: bool) -> Self {
        let elements = k.shared(name, [shape.stages * shape.depth * Self::row(shape, along_k)]);
        StageBuffers { elements, shape, along_k }
    }

    fn row(shape: TileShape, along_k: bool) -> u32 {
        shape.outer + if along_k { 8 } else { 0 }
    }

    /// The distance of adjacent k, in elements.
    pub fn pitch(&self) -> u32 {
        Self::row(self.shape, self.along_k)
    }

    /// The offset of a stage and the following ones, for a thread with this offset in each.
    pub fn offset(&self, stage: u32, within: Val<'k, u32>) -> StageOffset<'k> {
        let stage_len = self.shape.depth * self.pitch();
        let at = self.elements.builder().var(within + stage * stage_len);
        StageOffset { at, start: within, stage_len, total_len: self.shape.stages * stage_len }
    }

    /// Loads 16 bytes of elements.
    pub fn load_vector(&self, at: Val<'k, u32>) -> Vec<Val<'k, T>> {
        match 16 / size_of::<T>() {
            4 => self.elements.load_vec::<4>((at,)).to_vec(),
            _ => self.elements.load_vec::<2>((at,)).to_vec(),
        }
    }
}

impl<'k> StageOffset<'k> {
    /// The thread's offset in the current stage.
    pub fn at(&self) -> Val<'k, u32> {
        self.at.get()
    }

    /// Advances to the next stage; the last is followed by the first.
    pub fn advance(&self) {
        let next = self.at.get() + self.stage_len;
        self.at.set(next.eq(self.start + self.total_len).select(self.start, next));
    }
}

/// Wraps an out-of-bounds coordinate of `width` elements around to the beginning of an axis of
/// `extent` elements. Clamped lanes would serialize: a sector is copied to shared memory once at a
/// time.
pub(super) fn wrap_around<'k>(at: Val<'k, u32>, extent: Val<'k, u32>, width: u32) -> Val<'k, u32> {
    at.lt(extent).select(at, at - extent).min(extent - width)
}

impl<'k, T: Element> TileCopy<'k, T> {
    /// Assigns copies to a thread. `first`: the outer coordinate of the block's tile, of `extent`.
    /// Out-of-bounds coordinates wrap around: their accumulators are never stored, and the loop
    /// needs no guard.
    pub fn new(
        source: Global<'k, T>,
        buffers: StageBuffers<'k, T>,
        width: u32,
        thread: Val<'k, u32>,
        [first, extent]: [Val<'k, u32>; 2],
    ) -> Self {
        let StageBuffers { shape, along_k, .. } = buffers;
        // A source contiguous along k is transposed, one element at a time.
        let width = if along_k { 1 } else { width };
        let (worker, outer_unit, k_unit) = if along_k { (thread / 32, 8, 4) } else { (thread, width, 1) };
        let [workers, outer_units, k_units] = shape.work_units(along_k, width);
        // Workers cover the outer axis: several rows of units at a time, or a part of a row.
        let (column, row, lines, step) = match workers.is_multiple_of(outer_units) {
            true => (worker % outer_units, worker / outer_units, 1, workers / outer_units),
            false => (worker, source.builder().constant(0), outer_units / workers, 1),
        };
        let (k, outer) = match along_k {
            true => (row * k_unit + thread % k_unit, column * outer_unit + thread % 32 / k_unit),
            false => (row, column * outer_unit),
        };
        let lines =
            (0..lines).map(|i| i * workers * outer_unit).map(|i| (i, wrap_around(first + (outer + i), extent, width)));
        let k_offsets = (0..k_units).step_by(step as usize).map(|row| row * k_unit);
        TileCopy { source, buffers, width, k, outer, lines: lines.collect(), k_offsets: k_offsets.collect() }
    }

    /// Issues the copies of the tile whose first k is `from` to the first stage. `valid`: whether a
    /// k of the tile is in bounds; others are zero-filled.
    pub fn copy_first(&self, from: Val<'k, u32>, valid: impl Fn(Val<'k, u32>) -> Pred<'k>) {
        for &(outer, line) in &self.lines {
            for &k_offset in &self.k_offsets {
                let k = self.k + k_offset;
                let to = self.within() + (k_offset * self.buffers.pitch() + outer);
                let from = self.at(from + k, line);
                self.buffers.elements.copy_async((to,), self.source, from, self.width, Builder::guard(valid(k)));
            }
        }
    }

    /// A cursor over the tiles from the one whose first k is `from`, which goes to the second
    /// stage.
    pub fn cursor(&self, from: Val<'k, u32>) -> TileCursor<'k, T> {
        let cursors = self.lines.iter().map(|&(_, line)| self.source.cursor(self.at(from + self.k, line)));
        TileCursor { cursors: cursors.collect(), stage: self.buffers.offset(1, self.within()) }
    }

    /// Issues the copies of the cursor's tile, if `valid`.
    pub fn copy(&self, tile: &TileCursor<'k, T>, valid: Pred<'k>) {
        let k = self.source.builder();
        for (&(outer, _), &cursor) in self.lines.iter().zip(&tile.cursors) {
            for &k_offset in &self.k_offsets {
                let to = tile.stage.at() + (k_offset * self.buffers.pitch() + outer);
                let from = self.at(k.constant(k_offset), k.constant(0));
                self.buffers.elements.copy_async((to,), cursor, from, self.width, Builder::guard(valid));
            }
        }
    }

    /// Advances to the next tile and stage.
    pub fn advance(&self, tile: &TileCursor<'k, T>) {
        let depth = self.buffers.shape.depth;
        for cursor in &tile.cursors {
            if self.buffers.along_k { cursor.advance(0, depth) } else { cursor.advance(depth, 0) }
        }
        tile.stage.advance();
    }

    /// The thread's offset in a stage.
    fn within(&self) -> Val<'k, u32> {
        self.k * self.buffers.pitch() + self.outer
    }

    fn at(&self, k: Val<'k, u32>, outer: Val<'k, u32>) -> (Val<'k, u32>, Val<'k, u32>) {
        if self.buffers.along_k { (outer, k) } else { (k, outer) }
    }
}
