//! `mma.sync` kernels for f64, with a `cp.async` pipeline.
//!
//! * **16-byte shared loads.** A lane loads two elements adjacent along k, or two adjacent rows or
//!   columns. The order of k is arbitrary if A and B agree, and the order of columns if C is stored
//!   accordingly. So a lane that has k and k + 4 in the PTX manual, k < 4, has 2k and 2k + 1 here.
//!   The columns of two adjacent fragments are interleaved.
//! * **Consecutive operand registers.** The registers of an instruction's left operand are ordered
//!   row by row, those of its right operand k by k. So the left operand is best contiguous along
//!   its rows, and the right one along k. If these are B and A, the kernel computes the transpose
//!   of C.
//! * **No bank conflicts.** An XOR swizzle permutes 16-byte chunks within 128 bytes by their row.
//! * **Software pipelining.** The next fragments are loaded before the current ones are multiplied,
//!   also across the barrier of a k-step.
//! * **Early copies.** Copies are issued between the first `mma.sync` of a k-step, which hide them.
//!   They are short: an address is incremented, and one predicate guards both bounds.

use tegula_core::error::{Error, Result};
use tegula_ir::prelude::*;

use super::blocked::{Blocked, Blocking};
use super::epilogue::for_each_subtile;
use super::product::{IS_A, Product};

/// How an operand is staged in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Staging {
    /// Whether the tile is contiguous along k; otherwise along rows of A (columns of B).
    along_k: bool,
    /// Whether pairs of elements are copied at once: they are contiguous and aligned to 16 bytes.
    pairs: bool,
}

/// Whether the blocking is valid: tiles of whole warps, and whole rounds of copies.
///
/// A round is one copy by each thread. It covers whole lines of a tile, or a line is whole rounds.
fn is_valid(blocking: &Blocking) -> bool {
    let Blocking { block: [bm, bn, bk], warp: [wm, wn], slices, .. } = *blocking;
    let threads = blocking.threads();
    let rounds = |outer: u32, width: u32| {
        let round = threads * width;
        let lines = round.is_multiple_of(outer) && (round / outer).is_power_of_two() || outer.is_multiple_of(round);
        lines && (outer * LINE).is_multiple_of(round) && round.is_multiple_of(2 * LINE)
    };
    let warps = [(bm, wm), (bn, wn)].iter().all(|(block, warp)| warp % ROWS == 0 && block % warp == 0);
    let rounds = [bm, bn].iter().all(|&outer| rounds(outer, 1) && rounds(outer, 2));
    warps && rounds && bk % LINE == 0 && slices == 1
}

/// Rows of a fragment of the left operand: those of one [`Mma`], or of two with 8 rows.
const ROWS: u32 = 16;
/// Columns of an [`Mma`]: half a fragment of the right operand.
const COLS: u32 = 8;
/// Elements along k that the lanes cover with one 16-byte load each.
const DEPTH: u32 = 8;
/// Elements of 128 bytes.
const LINE: u32 = 16;
/// The multiply-adds from which a k-step is large, for [`multiply`].
const LARGE: u32 = 128 * 64 * 32;

/// Builds the kernel for an f64 instruction.
pub(super) fn build(variant: &Blocked, mma: Mma) -> Result<Kernel> {
    let Blocking { block: [bm, bn, bk], warp: [wm, wn], stages, blocks, .. } = variant.blocking;
    if !is_valid(&variant.blocking) {
        return Err(Error::KernelOption(format!("the tiles of {variant} do not divide evenly among its threads")));
    }
    let blocking = variant.blocking;
    Ok(kernel(&variant.to_string(), Block::d1(blocking.threads()), |k| {
        let (transposed, pairs, orders) = (variant.transposed(), variant.aligned_16, variant.orders);
        let product = Product::<f64>::for_blocked(k, variant);
        k.min_blocks(blocks);
        let depth = product.depth();
        let [(m, _), (n, _)] = product.operand_extents();
        let staging = |order: Order2d, along_k: Order2d, pairs: bool| Staging {
            along_k: order == along_k || order == Order2d::Strided,
            pairs: pairs && order != Order2d::Strided,
        };
        let a_staging = staging(orders[0], Order2d::RowMajor, pairs[0]);
        let b_staging = staging(orders[1], Order2d::ColMajor, pairs[1]);
        let a_stages = k.shared::<f64>("tile_a", [stages * bk * bm]);
        let b_stages = k.shared::<f64>("tile_b", [stages * bk * bn]);
        let warps = bn / wn;
        let (warp_row, warp_col) = (k.warp() / warps * wm, k.warp() % warps * wn);
        product.for_each_tile([bm, bn], depth.div_ceil(bk), |product, [tile_row, tile_col], range| {
            let (row, col) = (tile_row * bm, tile_col * bn);
            let operand =
                |staging, global, buffer, outer, span, extent, first, origin, is_a, transposed| StagedOperand {
                    k,
                    blocking,
                    staging,
                    global,
                    buffer,
                    outer,
                    span,
                    extent,
                    first,
                    depth,
                    origin,
                    is_a,
                    transposed,
                };
            let a = operand(a_staging, product.a, a_stages, bm, wm, m, row, warp_row, IS_A, transposed[0]);
            let b = operand(b_staging, product.b, b_stages, bn, wn, n, col, warp_col, !IS_A, transposed[1]);
            let (left, right) = if a_staging.along_k && !b_staging.along_k { (&b, &a) } else { (&a, &b) };
            let accumulators = multiply(k, blocking, mma, left, right, range);
            store(product, pairs[2], [left, right], accumulators, [row + warp_row, col + warp_col]);
        });
    }))
}

/// An operand: its source, its stages in shared memory, and a warp's part of its tile.
struct StagedOperand<'k> {
    k: &'k Builder,
    blocking: Blocking,
    staging: Staging,
    global: Global<'k, f64>,
    buffer: Shared<'k, f64>,
    /// Rows of A (columns of B) of a tile.
    outer: u32,
    /// Rows of A (columns of B) of the warp's part.
    span: u32,
    /// Rows of A (columns of B) of the operand.
    extent: Val<'k, u32>,
    /// The first row (column) of the tile in the operand.
    first: Val<'k, u32>,
    depth: Val<'k, u32>,
    /// The first row (column) of the warp's part in the tile.
    origin: Val<'k, u32>,
    /// Whether this is A.
    is_a: bool,
    /// Whether the operand is passed transposed.
    transposed: bool,
}

impl<'k> StagedOperand<'k> {
    /// Asynchronous copies of a thread per tile.
    fn copies(&self) -> u32 {
        self.outer * self.blocking.block[2] / self.round()
    }

    /// Elements of a round of copies: one by each thread.
    fn round(&self) -> u32 {
        self.blocking.threads() * self.width()
    }

    fn width(&self) -> u32 {
        if self.staging.pairs { 2 } else { 1 }
    }

    /// Elements of a line of the tile: 16 along k, or all rows (columns) of one k.
    fn line(&self) -> u32 {
        if self.staging.along_k { LINE } else { self.outer }
    }

    /// The thread's first element of a tile: row (column), k.
    fn start(&self) -> [Val<'k, u32>; 2] {
        let thread = self.k.thread_x() * self.width();
        let (line, element) = (thread / self.line(), thread % self.line());
        if self.staging.along_k { [line, element] } else { [element, line] }
    }

    /// The offset of the thread's copy number `index`: row (column), k.
    fn copy_offset(&self, index: u32) -> [u32; 2] {
        let (line, element) = (index * self.round() / self.line(), index * self.round() % self.line());
        if self.staging.along_k { [line % self.outer, line / self.outer * LINE] } else { [element, line] }
    }

    /// A cursor over the tiles from k-step `first` on.
    fn cursor(&self, first: Val<'k, u32>) -> TileCursor<'k> {
        let [outer, p] = self.start();
        let p = first * self.blocking.block[2] + p;
        let mut lines: Vec<Line<'k>> = Vec::new();
        for [offset, _] in (0..self.copies()).map(|index| self.copy_offset(index)) {
            if lines.iter().all(|line| line.offset != offset) {
                let outer = self.first + outer + offset;
                let limit = outer.lt(self.extent).select(self.depth, 0u32);
                lines.push(Line { offset, limit, cursor: self.global.cursor(self.coordinates(outer, p)) });
            }
        }
        TileCursor { lines, p: self.k.var(p) }
    }

    /// Advances to the next tile.
    fn advance(&self, tiles: &TileCursor<'k>) {
        let [.., bk] = self.blocking.block;
        let [rows, cols] = if self.is_a != self.transposed { [0, bk] } else { [bk, 0] };
        tiles.lines.iter().for_each(|line| line.cursor.advance(rows, cols));
        tiles.p.set(tiles.p.get() + bk);
    }

    /// Issues the thread's copy number `index` of the cursor's tile to a stage. Out-of-bounds
    /// elements are zero-filled.
    ///
    /// A tile contiguous along k is stored in slabs of 16 k, each row by row; odd rows exchange
    /// their halves of 8 k. Any other tile is stored k by k; its 16-byte chunks are permuted within
    /// each eight.
    fn copy(&self, tiles: &TileCursor<'k>, stage: Val<'k, u32>, index: u32) {
        let ([outer, p], [outer_offset, k_offset], line) = (self.start(), self.copy_offset(index), self.line());
        let (row, element) = if self.staging.along_k { (outer, p) } else { (p, outer) };
        let (line_offset, element_offset) = (index * self.round() / line * line, index * self.round() % line);
        let swizzled = if self.staging.along_k {
            element ^ (row % 2 * DEPTH)
        } else {
            (element + element_offset) ^ ((row / 2 % 4 * 4) ^ (line_offset / line / 2 % 4 * 4))
        };
        let to = stage * (self.blocking.block[2] * self.outer) + (row * line + swizzled) + line_offset;
        let from = self.coordinates(self.k.constant(0), self.k.constant(k_offset));
        for line in tiles.lines.iter().filter(|line| line.offset == outer_offset) {
            let valid = Builder::guard((tiles.p.get() + k_offset).lt(line.limit));
            self.buffer.copy_async((to,), line.cursor, from, self.width(), valid);
        }
    }

    /// The matrix coordinates of a row of A (column of B) and a k.
    fn coordinates(&self, outer: Val<'k, u32>, p: Val<'k, u32>) -> (Val<'k, u32>, Val<'k, u32>) {
        if self.is_a != self.transposed { (outer, p) } else { (p, outer) }
    }

    /// Loads the lane's elements of 16 rows of A (columns of B) in `count` groups of 8 k from group
    /// `group` on: for each of the lane's two rows, the elements along k.
    fn load(&self, stage: Val<'k, u32>, fragment: u32, group: u32, count: u32) -> [Vec<Val<'k, f64>>; 2] {
        let [.., bk] = self.blocking.block;
        let lane = self.k.lane();
        let (g, t, base) = (lane / 4, lane % 4, stage * (bk * self.outer));
        let mut pair = [Vec::new(), Vec::new()];
        for group in group..group + count {
            if self.staging.along_k {
                let half = if group % 2 == 0 { g % 2 * DEPTH } else { ((g % 2) ^ 1) * DEPTH };
                let lane_part = base + ((self.origin + g) * LINE + (half + t * 2));
                for (i, row) in pair.iter_mut().enumerate() {
                    let fixed = group / 2 * self.outer * LINE + (fragment * ROWS + i as u32 * 8) * LINE;
                    row.extend(self.buffer.load_vec::<2>((lane_part + fixed,)));
                }
            } else {
                let lane_part = base + (t * 2 * self.outer + self.origin + ((g ^ (t * 2)) * 2));
                for p in 0..2 {
                    let fixed = (group * DEPTH + p) * self.outer + fragment * ROWS;
                    let [x, y] = self.buffer.load_vec::<2>((lane_part + fixed,));
                    pair[0].push(x);
                    pair[1].push(y);
                }
            }
        }
        pair
    }
}

/// The sources of a thread's copies of a tile.
struct TileCursor<'k> {
    lines: Vec<Line<'k>>,
    /// The k of the thread's first copy.
    p: Var<'k, u32>,
}

/// A row of A (column of B) of a thread's copies.
struct Line<'k> {
    /// Its distance from the first.
    offset: u32,
    cursor: Cursor<'k, f64>,
    /// Its extent along k; 0 if out of bounds.
    limit: Val<'k, u32>,
}

/// The producer side of the pipeline: the thread's copies of both operands.
struct StageCopies<'s, 'k> {
    operands: [(&'s StagedOperand<'k>, TileCursor<'k>); 2],
}

impl<'k> StageCopies<'_, 'k> {
    /// Copies of a thread per k-step.
    fn copies(&self) -> u32 {
        self.operands.iter().map(|(operand, _)| operand.copies()).sum()
    }

    /// Issues copy number `index` of the cursors' tiles to a stage.
    fn copy(&self, stage: Val<'k, u32>, index: u32) {
        let [(a, a_tiles), (b, b_tiles)] = &self.operands;
        match index.checked_sub(a.copies()) {
            None => a.copy(a_tiles, stage, index),
            Some(index) => b.copy(b_tiles, stage, index),
        }
    }

    /// Issues the copy under a condition, if one is given.
    fn copy_if(&self, condition: Option<Pred<'k>>, stage: Val<'k, u32>, index: u32) {
        match condition {
            Some(condition) => self.operands[0].0.k.when(condition, || self.copy(stage, index)),
            None => self.copy(stage, index),
        }
    }

    /// Issues all copies of a stage as a commit group.
    fn fill(&self, stage: u32) {
        let k = self.operands[0].0.k;
        (0..self.copies()).for_each(|index| self.copy(k.constant(stage), index));
        k.copy_async_commit();
    }

    /// Advances to the next tiles.
    fn advance(&self) {
        self.operands.iter().for_each(|(operand, tiles)| operand.advance(tiles));
    }
}

/// The registers of a lane's fragment: its elements of 16 rows of the left operand, or of 16
/// columns
/// of the right one.
#[derive(Clone, Copy)]
struct Fragment<'k>(Array<'k, f64>);

impl<'k> Fragment<'k> {
    fn new(k: &'k Builder, count: u32) -> Self {
        Fragment(k.array(2 * count))
    }

    fn set(self, values: &[Vec<Val<'k, f64>>; 2]) {
        for (i, &value) in (0..).zip(values.iter().flatten()) {
            self.0.at(i).set(value);
        }
    }

    fn get(self) -> [Vec<Val<'k, f64>>; 2] {
        let half = self.0.len() / 2;
        [0, half].map(|first| (first..first + half).map(|i| self.0.at(i).get()).collect())
    }
}

/// The main loop. Returns the warp's accumulators, row by row in blocks of 16 rows of the left
/// operand by 8 columns of the right one.
///
/// The first fragments of the next slab of k are loaded while the last rows of this one are
/// multiplied. An instruction takes long enough on the Tensor Cores to hide everything issued
/// between two of them.
///
/// `a` and `b` are the left and the right operand. The range is the first k-step and their number.
fn multiply<'k>(
    k: &'k Builder,
    blocking: Blocking,
    mma: Mma,
    a: &StagedOperand<'k>,
    b: &StagedOperand<'k>,
    [first, steps]: [Val<'k, u32>; 2],
) -> Array<'k, f64> {
    let Blocking { block: [.., bk], stages, .. } = blocking;
    let groups = mma.shape()[2].div_ceil(DEPTH);
    let (slabs, fragments_m, fragments_n) = (bk / (DEPTH * groups), a.span / ROWS, b.span / ROWS);
    let accumulators = k.array::<f64>(fragments_m * fragments_n * 2 * 4);
    (0..accumulators.len()).for_each(|i| accumulators.at(i).set(0.0));
    let producer = StageCopies { operands: [(a, a.cursor(first)), (b, b.cursor(first))] };
    let copies = producer.copies();
    for stage in 0..stages - 1 {
        producer.fill(stage);
        producer.advance();
    }
    // The prologue fills all stages, which hides the latency of a short k. Large k-steps leave the
    // last stage to the loop, and copy beyond the last k-step, zero-filled. They are for a long k,
    // where a condition in each step costs more.
    let is_large = a.outer * b.outer * bk >= LARGE;
    if !is_large {
        producer.fill(stages - 1);
    }
    k.copy_async_wait(stages - if is_large { 2 } else { 1 });
    k.barrier();
    let next_a = Fragment::new(k, 2 * groups);
    let next_b: Vec<_> = (0..fragments_n).map(|_| Fragment::new(k, 2 * groups)).collect();
    let zero = k.constant(0);
    next_a.set(&a.load(zero, 0, 0, groups));
    (0..).zip(&next_b).for_each(|(j, next)| next.set(&b.load(zero, j, 0, groups)));
    // Copies are spread over the first half of the products before the barrier; otherwise ptxas
    // gathers them at the end of the step. Without products before the barrier, the copies come
    // first.
    let half = ((slabs * fragments_m - 1) * fragments_n).div_ceil(2);
    let copies_before = |slot: u32| (slot.min(half) * copies).checked_div(half).unwrap_or(copies);
    let (full, free) = (k.var(0u32), k.var(stages - 1));
    k.for_each(0, steps, |step| {
        let has_more = (!is_large).then(|| step.gt(0u32) & (step + (stages - 1)).lt(steps));
        let (current, empty) = (full.get(), free.get());
        let next_stage = (current + 1).lt(stages).select(current + 1, 0u32);
        (0..copies_before(0)).for_each(|index| producer.copy_if(has_more, empty, index));
        for (slab, i) in (0..slabs).flat_map(|slab| (0..fragments_m).map(move |i| (slab, i))) {
            let last_rows = i + 1 == fragments_m;
            let (of_a, last) = (next_a.get(), last_rows && slab + 1 == slabs);
            if last {
                // The copies must have read their addresses before these change. So late after the
                // last copy, no instruction waits for that.
                producer.advance();
                // All threads have loaded the last fragments of this stage, and the next stage has
                // arrived.
                k.copy_async_commit();
                k.copy_async_wait(stages - 2);
                k.barrier();
            }
            let (from, next_slab) = if last { (next_stage, 0) } else { (current, slab + u32::from(last_rows)) };
            next_a.set(&a.load(from, if last_rows { 0 } else { i + 1 }, next_slab * groups, groups));
            for j in 0..fragments_n {
                for (half, of_b) in (0..).zip(next_b[j as usize].get()) {
                    multiply_fragments(
                        k,
                        mma,
                        &of_a,
                        &of_b,
                        accumulators.slice(((i * fragments_n + j) * 2 + half) * 4, 4),
                    );
                }
                if last_rows {
                    next_b[j as usize].set(&b.load(from, j, next_slab * groups, groups));
                }
                let slot = (slab * fragments_m + i) * fragments_n + j;
                (copies_before(slot)..copies_before(slot + 1))
                    .for_each(|index| producer.copy_if(has_more, empty, index));
            }
        }
        full.set(next_stage);
        free.set(current);
    });
    accumulators
}

/// Multiplies 16 rows by 8 columns.
fn multiply_fragments<'k>(
    k: &'k Builder,
    mma: Mma,
    [upper, lower]: &[Vec<Val<'k, f64>>; 2],
    b: &[Val<'k, f64>],
    accumulators: Array<'k, f64>,
) {
    let [m, _, depth] = mma.shape();
    // The lane's elements along the instruction's k.
    let lane_k = (depth / 4) as usize;
    for p in (0..b.len()).step_by(lane_k) {
        let b = &b[p..p + lane_k];
        if m == 8 {
            k.mma(mma, &upper[p..p + lane_k], b, accumulators.slice(0, 2));
            k.mma(mma, &lower[p..p + lane_k], b, accumulators.slice(2, 2));
        } else {
            let a: Vec<_> = (p..p + lane_k).flat_map(|p| [upper[p], lower[p]]).collect();
            k.mma(mma, &a, b, accumulators);
        }
    }
}

/// Stores the lane's accumulators: four pairs of adjacent columns in each 16×16 of the warp's part.
fn store<'k>(
    product: &Product<'k, f64>,
    aligned: bool,
    [left, right]: [&StagedOperand<'k>; 2],
    accumulators: Array<'k, f64>,
    [row, col]: [Val<'k, u32>; 2],
) {
    let fragments_m = left.span / ROWS;
    if !product.has_long_epilogue() {
        return store_fragments(product, aligned, [left, right], accumulators, [row, col], fragments_m);
    }
    for_each_subtile(product.k, accumulators, fragments_m, |i, accumulators| {
        let at = if left.is_a { [row + i * ROWS, col] } else { [row, col + i * ROWS] };
        store_fragments(product, aligned, [left, right], accumulators, at, 1);
    });
}

/// Stores `fragments_m` times 16 rows of the left operand.
fn store_fragments<'k>(
    product: &Product<'k, f64>,
    aligned: bool,
    [left, right]: [&StagedOperand<'k>; 2],
    accumulators: Array<'k, f64>,
    [row, col]: [Val<'k, u32>; 2],
    fragments_m: u32,
) {
    let lane = product.k.lane();
    let (g, t, fragments_n) = (lane / 4, lane % 4, right.span / ROWS);
    product.store_pairs(aligned, |store| {
        let blocks = (0..fragments_m).flat_map(|i| (0..fragments_n).map(move |j| (i, j)));
        for (i, j, pair) in blocks.flat_map(|(i, j)| (0..4).map(move |pair| (i, j, pair))) {
            // Upper or lower row of the left operand, first or second fragment of the right one,
            // first or second column.
            let value = |lower: u32, fragment: u32, column: u32| {
                accumulators.at(((i * fragments_n + j) * 2 + fragment) * 4 + lower * 2 + column).get()
            };
            let (lower, right_half) = (pair / 2, pair % 2);
            if !left.is_a {
                // The left operand is B, whose columns are contiguous.
                let (row, col) = (row + (j * ROWS + lower * COLS + right_half) + t * 2, col + i * ROWS + g * 2);
                store(row, col, [0, 1].map(|column| value(column, lower, right_half)));
                continue;
            }
            // Rows and columns that are loaded in pairs are interleaved.
            let row =
                if left.staging.along_k { row + (i * ROWS + lower * 8) + g } else { row + (i * ROWS + lower) + g * 2 };
            if right.staging.along_k {
                store(
                    row,
                    col + (j * ROWS + right_half * COLS) + t * 2,
                    [0, 1].map(|column| value(lower, right_half, column)),
                );
            } else {
                store(
                    row,
                    col + (j * ROWS + right_half * 2) + t * 4,
                    [0, 1].map(|fragment| value(lower, fragment, right_half)),
                );
            }
        }
    });
}
