//! The copies of a tile of A or B to shared memory: their assignment to threads, and their
//! addresses.

use tegula_ir::prelude::*;

/// The stages of an operand in shared memory: `stages` tiles of `depth` rows, one for each k.
///
/// A row holds the tile's elements along `mn`: axis m of A, axis n of B.
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
    /// The coordinates of the thread's first element in a tile.
    k: Val<'k, u32>,
    mn: Val<'k, u32>,
    /// The thread's lines. A line is its copies at one `mn`, for all `k_offsets`.
    ///
    /// For each: its offset from `mn` in the tile, and its coordinate in the matrix.
    lines: Vec<(u32, Val<'k, u32>)>,
    /// The offsets from `k` of the copies of every line.
    k_offsets: Vec<u32>,
}

/// The source of the next tile, for each line, and its stage.
pub(super) struct TileCursor<'k, T> {
    cursors: Vec<Cursor<'k, T>>,
    stage: StageOffset<'k>,
}

/// The shape of an operand's tiles, and the number of threads that copy them.
#[derive(Clone, Copy)]
pub(super) struct TileShape {
    /// Elements along m for A, along n for B.
    pub mn: u32,
    /// Elements along k.
    pub depth: u32,
    /// Tiles in shared memory.
    pub stages: u32,
    /// Threads of the block.
    pub threads: u32,
}

impl TileShape {
    /// The number of copiers, and the units that they copy along `mn` and along k.
    ///
    /// For a source contiguous along k, a copier is a warp, and a unit 8 elements along `mn` × 4
    /// along k. Else a copier is a thread, and a unit `width` elements at one k.
    fn work_units(&self, along_k: bool, width: u32) -> [u32; 3] {
        if along_k {
            [self.threads / 32, self.mn / 8, self.depth / 4]
        } else {
            [self.threads, self.mn / width, self.depth]
        }
    }

    /// Whether the tile divides evenly among the copiers, for any source order.
    pub fn divides_evenly(&self, width: u32) -> bool {
        [(true, 1), (false, 1), (false, width)].into_iter().all(|(along_k, width)| {
            let [copiers, mn_units, k_units] = self.work_units(along_k, width);
            let whole = self.mn.is_multiple_of(8 * width) && self.depth.is_multiple_of(4);
            let rows = copiers.is_multiple_of(mn_units) && k_units.is_multiple_of(copiers / mn_units);
            whole && (rows || mn_units.is_multiple_of(copiers))
        })
    }
}

impl<'k, T: Element> StageBuffers<'k, T> {
    /// Declares the stages.
    ///
    /// A source contiguous along k is transposed element by element. A warp copies 8 elements along
    /// `mn` × 4 along k: 4 k of 8 bytes are a sector, of 4 bytes half of one. Rows are padded
    /// against bank conflicts.
    pub fn new(k: &'k Builder, name: &str, shape: TileShape, along_k: bool) -> Self {
        let elements = k.shared(name, [shape.stages * shape.depth * Self::row_len(shape, along_k)]);
        StageBuffers { elements, shape, along_k }
    }

    fn row_len(shape: TileShape, along_k: bool) -> u32 {
        shape.mn + if along_k { 8 } else { 0 }
    }

    /// The distance of adjacent rows (adjacent k), in elements.
    pub fn pitch(&self) -> u32 {
        Self::row_len(self.shape, self.along_k)
    }

    /// The offset of a stage and the following ones, for a thread with this offset in each.
    pub fn offset(&self, stage: u32, within: Val<'k, u32>) -> StageOffset<'k> {
        let stage_len = self.shape.depth * self.pitch();
        let at = self.elements.builder().var(within + stage * stage_len);
        StageOffset { at, start: within, stage_len, total_len: self.shape.stages * stage_len }
    }

    /// Loads 16 bytes: 4 elements of 4 bytes, or 2 of 8. Smaller elements are not supported.
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

/// Wraps an out-of-bounds coordinate of `width` elements around to the beginning of an axis.
///
/// Clamping would send many lanes to the last sector, and copies of one sector to shared memory are
/// serialized. A coordinate that is still out of bounds is clamped. Requires `extent >= width`. For
/// aligned copies, `at` and `extent` are multiples of `width`.
pub(super) fn wrap_around<'k>(at: Val<'k, u32>, extent: Val<'k, u32>, width: u32) -> Val<'k, u32> {
    at.lt(extent).select(at, at - extent).min(extent - width)
}

impl<'k, T: Element> TileCopy<'k, T> {
    /// Assigns copies to a thread.
    ///
    /// `first` is the coordinate along `mn` of the block's tile, in a matrix of `extent`.
    /// Out-of-bounds coordinates along `mn` wrap around: their accumulators are never stored, and
    /// the loop needs no guard.
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
        let (copier, mn_unit, k_unit) = if along_k { (thread / 32, 8, 4) } else { (thread, width, 1) };
        let [copiers, mn_units, k_units] = shape.work_units(along_k, width);
        // Copiers cover `mn`: several rows of units at a time, or a part of one row.
        let (mn_index, k_index, lines, k_index_step) = match copiers.is_multiple_of(mn_units) {
            true => (copier % mn_units, copier / mn_units, 1, copiers / mn_units),
            false => (copier, source.builder().constant(0), mn_units / copiers, 1),
        };
        let (k, mn) = match along_k {
            true => (k_index * k_unit + thread % k_unit, mn_index * mn_unit + thread % 32 / k_unit),
            false => (k_index, mn_index * mn_unit),
        };
        let lines =
            (0..lines).map(|i| i * copiers * mn_unit).map(|i| (i, wrap_around(first + (mn + i), extent, width)));
        let k_offsets = (0..k_units).step_by(k_index_step as usize).map(|index| index * k_unit);
        TileCopy { source, buffers, width, k, mn, lines: lines.collect(), k_offsets: k_offsets.collect() }
    }

    /// Issues the copies of the tile whose first k is `from` to the first stage.
    ///
    /// Elements are zero-filled where `valid` is false for their k, relative to the tile.
    pub fn copy_first(&self, from: Val<'k, u32>, valid: impl Fn(Val<'k, u32>) -> Pred<'k>) {
        for &(mn, line) in &self.lines {
            for &k_offset in &self.k_offsets {
                let k = self.k + k_offset;
                let to = self.within() + (k_offset * self.buffers.pitch() + mn);
                let from = self.at(from + k, line);
                self.buffers.elements.copy_async((to,), self.source, from, self.width, Builder::guard(valid(k)));
            }
        }
    }

    /// A cursor over the tiles, from the one whose first k is `from`. It goes to the second stage.
    pub fn cursor(&self, from: Val<'k, u32>) -> TileCursor<'k, T> {
        let cursors = self.lines.iter().map(|&(_, line)| self.source.cursor(self.at(from + self.k, line)));
        TileCursor { cursors: cursors.collect(), stage: self.buffers.offset(1, self.within()) }
    }

    /// Issues the copies of the cursor's tile. All elements are zero-filled unless `valid`.
    pub fn copy(&self, tile: &TileCursor<'k, T>, valid: Pred<'k>) {
        let k = self.source.builder();
        for (&(mn, _), &cursor) in self.lines.iter().zip(&tile.cursors) {
            for &k_offset in &self.k_offsets {
                let to = tile.stage.at() + (k_offset * self.buffers.pitch() + mn);
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
        self.k * self.buffers.pitch() + self.mn
    }

    /// The coordinates (row, col) of an element in the source.
    fn at(&self, k: Val<'k, u32>, mn: Val<'k, u32>) -> (Val<'k, u32>, Val<'k, u32>) {
        if self.buffers.along_k { (mn, k) } else { (k, mn) }
    }
}
