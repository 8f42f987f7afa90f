//! `mma.sync` kernels for f64, with a `cp.async` pipeline.
//!
//! * **16-byte shared loads.** A lane loads two elements adjacent along k, or two adjacent rows or
//!   columns. The order of k is arbitrary if A and B agree, and the order of columns if C is stored
//!   accordingly. So a lane that has k and k + 4 in the PTX manual, k < 4, has 2k and 2k + 1 here.
//!   The columns of two adjacent fragments are interleaved.
//! * **Consecutive operand registers.** The registers of an instruction's left operand are ordered
//!   row by row, those of its right operand k by k. So the left operand is best contiguous along
//!   its rows, and the right one along k. If these are B and A, the kernel computes the transpose
//!   of C. If both are contiguous along k, large tiles of A are stored interleaved: beside an
//!   element of row r is that of row r + 8.
//! * **No bank conflicts.** An XOR swizzle permutes 16-byte chunks within 128 bytes by their row.
//! * **Software pipelining.** The next fragments are loaded before the current ones are multiplied,
//!   also across the barrier of a k-step.
//! * **Early copies.** Copies are issued between the first `mma.sync` of a k-step, which hide them.
//!   They are short: an address is incremented, and one predicate guards both bounds.
//! * **Sliced-K.** For each product, a warp reads 1/rows + 1/columns elements of shared memory.
//!   Where a block's tile is small, groups of warps multiply all of it, each a part of a k-step's
//!   depth.

use std::ops::{Add, Div, Mul, Rem};

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
    /// Whether a tile contiguous along k is stored with rows r and r + 8 interleaved, as the left
    /// operand needs them. It is copied element by element.
    interleaved: bool,
}

impl Staging {
    /// Elements of a copy.
    fn width(self) -> u32 {
        if self.pairs { 2 } else { 1 }
    }
}

/// How A and B are staged.
fn stagings(variant: &Blocked) -> [Staging; 2] {
    let staging = |operand: usize, along_k: Order2d| {
        let order = variant.orders[operand];
        Staging {
            along_k: order == along_k || order == Order2d::Strided,
            pairs: variant.aligned_16[operand] && order != Order2d::Strided,
            interleaved: false,
        }
    };
    let [a, b] = [staging(0, Order2d::RowMajor), staging(1, Order2d::ColMajor)];
    if a.along_k && b.along_k && is_interleaved(&variant.blocking) {
        return [Staging { pairs: false, interleaved: true, ..a }, b];
    }
    [a, b]
}

/// Whether the tile is so large that A is interleaved, if it and B are contiguous along k.
pub(super) fn is_interleaved(blocking: &Blocking) -> bool {
    let [rows, cols, _] = blocking.block;
    rows * cols >= INTERLEAVED
}

/// Whether the blocking is valid: tiles of whole warps, and whole rounds of copies.
///
/// A round is one copy by each thread. It covers whole lines of a tile, or a line is whole rounds.
fn is_valid(blocking: &Blocking, stagings: [Staging; 2]) -> bool {
    let Blocking { block: [bm, bn, bk], warp: [wm, wn], stages, slices, .. } = *blocking;
    let rounds = |outer: u32, staging: Staging| {
        let round = blocking.threads() * staging.width();
        let lines = round / LINE;
        let whole = match staging {
            Staging { interleaved: true, .. } => lines.is_power_of_two() && lines >= 4 && outer.is_multiple_of(lines),
            Staging { along_k: true, .. } => lines > 0 && outer.is_multiple_of(lines),
            _ => round.is_multiple_of(outer) && (round / outer).is_power_of_two() || outer.is_multiple_of(round),
        };
        whole && (outer * LINE).is_multiple_of(round) && round.is_multiple_of(2 * LINE)
    };
    let warps = [(bm, wm), (bn, wn)].iter().all(|(block, warp)| warp % ROWS == 0 && block % warp == 0);
    let rounds = [bm, bn].into_iter().zip(stagings).all(|(outer, staging)| rounds(outer, staging));
    // The stages of the longer operand hold the sums of all slices but one.
    let slices = slices > 0 && bk % (LINE * slices) == 0 && (slices - 1) * bm.min(bn) <= stages * bk;
    warps && rounds && slices
}

/// Rows of a fragment of the left operand: those of one [`Mma`], or of two with 8 rows.
const ROWS: u32 = 16;
/// Columns of an [`Mma`]: half a fragment of the right operand.
const COLS: u32 = 8;
/// Elements along k that the lanes cover with one 16-byte load each.
const DEPTH: u32 = 8;
/// Elements of 128 bytes.
const LINE: u32 = 16;
/// The elements of a tile of C from which A is interleaved. Copies of single elements take longer,
/// since they pass through the L1 cache. In smaller tiles that costs more than the moves between
/// registers.
const INTERLEAVED: u32 = 64 * 64;
/// The multiply-adds from which a k-step is large, for [`multiply`].
const LARGE: u32 = 128 * 64 * 32;

/// Builds the kernel for an f64 instruction.
pub(super) fn build(variant: &Blocked, mma: Mma) -> Result<Kernel> {
    let Blocking { block: [bm, bn, bk], warp: [wm, wn], stages, slices, blocks, .. } = variant.blocking;
    let [a_staging, b_staging] = stagings(variant);
    if !is_valid(&variant.blocking, [a_staging, b_staging]) {
        return Err(Error::KernelOption(format!(
            "the tiles of {variant} do not divide evenly among its threads in these layouts; sides that are no power of \
             two need A and B contiguous along k"
        )));
    }
    let blocking = variant.blocking;
    Ok(kernel(&variant.to_string(), Block::d1(blocking.threads()), |k| {
        let (transposed, pairs) = (variant.transposed(), variant.aligned_16);
        let product = Product::<f64>::for_blocked(k, variant);
        k.min_blocks(blocks);
        let depth = product.depth();
        let [(m, _), (n, _)] = product.operand_extents();
        let a_stages = k.shared::<f64>("tile_a", [stages * bk * bm]);
        let b_stages = k.shared::<f64>("tile_b", [stages * bk * bn]);
        let (warps, cols) = (blocking.threads() / 32 / slices, bn / wn);
        let (slice, warp) = if slices > 1 { (k.warp() / warps, k.warp() % warps) } else { (k.constant(0), k.warp()) };
        let (warp_row, warp_col) = (warp / cols * wm, warp % cols * wn);
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
                    slice,
                    is_a,
                    transposed,
                };
            let a = operand(a_staging, product.a, a_stages, bm, wm, m, row, warp_row, IS_A, transposed[0]);
            let b = operand(b_staging, product.b, b_stages, bn, wn, n, col, warp_col, !IS_A, transposed[1]);
            let (left, right) = if a_staging.along_k && !b_staging.along_k { (&b, &a) } else { (&a, &b) };
            let accumulators = multiply(k, blocking, mma, left, right, range);
            let store = || store(product, pairs[2], [left, right], accumulators, [row + warp_row, col + warp_col]);
            if slices == 1 {
                return store();
            }
            add_slices(k, blocking, accumulators, slice, if bm < bn { b_stages } else { a_stages });
            k.when(slice.eq(0u32), store);
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
    /// The warp's slice of the depth of a k-step.
    slice: Val<'k, u32>,
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
        self.blocking.threads() * self.staging.width()
    }

    /// Elements of a line of the tile: 16 along k, or all rows (columns) of one k.
    fn line(&self) -> u32 {
        if self.staging.along_k { LINE } else { self.outer }
    }

    /// The thread's first element of a tile: its line, and its number there.
    fn start(&self) -> [Val<'k, u32>; 2] {
        let thread = self.k.thread_x() * self.staging.width();
        if self.staging.interleaved {
            // Each half of a warp writes 128 contiguous bytes: 8 k of two lines.
            let [pair, within] = [thread / (2 * LINE), thread % (2 * LINE)];
            return [pair * 2 + within / DEPTH % 2, within / LINE * DEPTH + within % DEPTH];
        }
        [thread / self.line(), thread % self.line()]
    }

    /// The row (column) and k of the thread's first element of a tile.
    fn start_coordinates(&self) -> [Val<'k, u32>; 2] {
        let [line, element] = self.start();
        match self.staging {
            Staging { along_k: false, .. } => [element, line],
            Staging { interleaved: false, .. } => [line, element],
            _ => [interleaved_row(line), element],
        }
    }

    /// The offset of the thread's copy number `index`: row (column), k.
    fn copy_offset(&self, index: u32) -> [u32; 2] {
        let (line, element) = (index * self.round() / self.line(), index * self.round() % self.line());
        let (row, k) = (line % self.outer, line / self.outer * LINE);
        match self.staging {
            Staging { along_k: false, .. } => [element, line],
            Staging { interleaved: false, .. } => [row, k],
            _ => [interleaved_row(row), k],
        }
    }

    /// A cursor over the tiles from k-step `first` on.
    fn cursor(&self, first: Val<'k, u32>) -> TileCursor<'k> {
        let [outer, p] = self.start_coordinates();
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

    /// Where the thread's first copy of a tile goes in a stage; the stage, if the tile is not
    /// contiguous along k.
    fn start_of(&self, stage: Val<'k, u32>) -> Val<'k, u32> {
        let ([row, element], start) = (self.start(), stage * (self.blocking.block[2] * self.outer));
        match self.staging {
            Staging { along_k: false, .. } => start,
            Staging { interleaved: false, .. } => start + (row * LINE + (element ^ (row % 2 * DEPTH))),
            _ => start + (row / 2 * (2 * LINE) + ((element ^ (row / 2 % 2)) * 2 + row % 2)),
        }
    }

    /// Issues the thread's copy number `index` of the cursor's tile. `start` is where its first one
    /// goes. Out-of-bounds elements are zero-filled.
    ///
    /// A tile contiguous along k is stored in slabs of 16 k, each row by row; odd rows exchange
    /// their halves of 8 k. If it is interleaved, the elements of two lines alternate; odd pairs of
    /// lines exchange adjacent k. Any other tile is stored k by k; its 16-byte chunks are permuted
    /// within each eight.
    fn copy(&self, tiles: &TileCursor<'k>, start: Val<'k, u32>, index: u32) {
        let ([outer_offset, k_offset], line) = (self.copy_offset(index), self.line());
        let (line_offset, element_offset) = (index * self.round() / line * line, index * self.round() % line);
        let within = || {
            let [row, element] = self.start();
            row * line + ((element + element_offset) ^ ((row / 2 % 4 * 4) ^ (line_offset / line / 2 % 4 * 4)))
        };
        let to = if self.staging.along_k { start + line_offset } else { start + within() + line_offset };
        let from = self.coordinates(self.k.constant(0), self.k.constant(k_offset));
        for line in tiles.lines.iter().filter(|line| line.offset == outer_offset) {
            let valid = Builder::guard((tiles.p.get() + k_offset).lt(line.limit));
            self.buffer.copy_async((to,), line.cursor, from, self.staging.width(), valid);
        }
    }

    /// The matrix coordinates of a row of A (column of B) and a k.
    fn coordinates(&self, outer: Val<'k, u32>, p: Val<'k, u32>) -> (Val<'k, u32>, Val<'k, u32>) {
        if self.is_a != self.transposed { (outer, p) } else { (p, outer) }
    }

    /// Loads the lane's elements of 16 rows of A (columns of B) in `count` groups of 8 k from group
    /// `group` on: for each of the lane's two rows, the elements along k.
    fn load(&self, stage: Val<'k, u32>, fragment: u32, group: u32, count: u32) -> [Vec<Val<'k, f64>>; 2] {
        let Blocking { block: [.., bk], slices, .. } = self.blocking;
        let lane = self.k.lane();
        let (g, t, mut base) = (lane / 4, lane % 4, stage * (bk * self.outer));
        if slices > 1 {
            base = base + self.slice * (bk / slices * self.outer);
        }
        let mut pair = [Vec::new(), Vec::new()];
        for group in group..group + count {
            if self.staging.interleaved {
                for p in 0..2 {
                    let lane_part = base + (self.origin * LINE + g * (2 * LINE) + (t * 4 + ((g % 2) ^ p) * 2));
                    let fixed = (group / 2 * self.outer + fragment * ROWS) * LINE + group % 2 * LINE;
                    let [x, y] = self.buffer.load_vec::<2>((lane_part + fixed,));
                    pair[0].push(x);
                    pair[1].push(y);
                }
            } else if self.staging.along_k {
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

/// The row of a line of an interleaved tile: 0, 8, 1, 9, …
fn interleaved_row<T>(line: T) -> T
where
    T: Copy + Add<Output = T> + Mul<u32, Output = T> + Div<u32, Output = T> + Rem<u32, Output = T>,
{
    line / ROWS * ROWS + line % 2 * (ROWS / 2) + line % ROWS / 2
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

    /// Where the thread's copies of both tiles begin in a stage.
    fn starts(&self, stage: Val<'k, u32>) -> [Val<'k, u32>; 2] {
        [0, 1].map(|i| self.operands[i].0.start_of(stage))
    }

    /// Issues copy number `index` of the cursors' tiles.
    fn copy(&self, starts: [Val<'k, u32>; 2], index: u32) {
        let [(a, a_tiles), (b, b_tiles)] = &self.operands;
        match index.checked_sub(a.copies()) {
            None => a.copy(a_tiles, starts[0], index),
            Some(index) => b.copy(b_tiles, starts[1], index),
        }
    }

    /// Issues the copy under a condition, if one is given.
    fn copy_if(&self, condition: Option<Pred<'k>>, starts: [Val<'k, u32>; 2], index: u32) {
        match condition {
            Some(condition) => self.operands[0].0.k.when(condition, || self.copy(starts, index)),
            None => self.copy(starts, index),
        }
    }

    /// Issues all copies of a stage as a commit group.
    fn fill(&self, stage: u32) {
        let k = self.operands[0].0.k;
        let starts = self.starts(k.constant(stage));
        (0..self.copies()).for_each(|index| self.copy(starts, index));
        k.copy_async_commit();
    }

    /// Advances to the next tiles.
    fn advance(&self) {
        self.operands.iter().for_each(|(operand, tiles)| operand.advance(tiles));
    }
}

/// The registers of a lane's fragment: its elements of 16 rows of the left operand, or of 16
/// columns of the right one.
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

/// Adds the accumulators of the other slices, in order, to those of the first, through the stages.
fn add_slices<'k>(
    k: &'k Builder,
    blocking: Blocking,
    accumulators: Array<'k, f64>,
    slice: Val<'k, u32>,
    sums: Shared<'k, f64>,
) {
    let (threads, count) = (blocking.threads() / blocking.slices, accumulators.len());
    // A lane's pair is beside those of the other lanes.
    let first = k.thread_x() % threads * 2;
    let pairs = || (0..count).step_by(2);
    // Neither copies nor loads of the last steps may still use the stages.
    k.copy_async_commit();
    k.copy_async_wait(0);
    k.barrier();
    k.when(slice.gt(0u32), || {
        let first = first + (slice - 1) * (count * threads);
        for i in pairs() {
            sums.store_vec((first + i * threads,), [i, i + 1].map(|i| accumulators.at(i).get()));
        }
    });
    k.barrier();
    k.when(slice.eq(0u32), || {
        for (slice, i) in (0..blocking.slices - 1).flat_map(|slice| pairs().map(move |i| (slice, i))) {
            let pair = sums.load_vec::<2>((first + (slice * count + i) * threads,));
            (i..).zip(pair).for_each(|(i, value)| accumulators.at(i).set(accumulators.at(i).get() + value));
        }
    });
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
    let Blocking { block: [.., bk], stages, slices, .. } = blocking;
    let groups = mma.shape()[2].div_ceil(DEPTH);
    let (slabs, fragments_m, fragments_n) = (bk / slices / (DEPTH * groups), a.span / ROWS, b.span / ROWS);
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
        // Under a condition, ptxas would compute them for each copy.
        let starts = has_more.map(|_| producer.starts(empty));
        let copy = |index| producer.copy_if(has_more, starts.unwrap_or_else(|| producer.starts(empty)), index);
        let next_stage = (current + 1).lt(stages).select(current + 1, 0u32);
        (0..copies_before(0)).for_each(copy);
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
                (copies_before(slot)..copies_before(slot + 1)).for_each(copy);
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
