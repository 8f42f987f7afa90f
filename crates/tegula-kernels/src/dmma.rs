//! f64 on matrix units: tiles in shared memory, filled asynchronously a few steps ahead, multiplied by whole warps.
//!
//! * **Every load from shared memory is 16 bytes wide.** Where k runs along the tile, a lane takes two neighbours along k; where rows
//!   or columns do, two of those. An instruction does not care which k is which as long as A and B agree, nor which column is
//!   which as long as C is stored accordingly: within each 8 of k the lane that the manual gives k and k + 4 gets 2k and 2k + 1,
//!   and the columns of two neighbouring fragments are dealt out in turn.
//! * **What is loaded at once is multiplied at once.** The registers of an instruction's operand follow each other, those of its left one
//!   row by row, those of its right one k by k. So the left operand is best one whose rows lie side by side, and the right one
//!   best lies along k: where that is B and A, the kernel computes the transpose of C.
//! * **No two lanes of a quarter warp want one bank.** Pieces of 16 bytes change places within 128 bytes, depending on the row.
//! * **A warp always has something to multiply.** Fragments are loaded one ahead, also across the one barrier of a step.
//! * **Copies begin early in a step**, between its products, by running addresses and a predicate: cheap enough to hide there.

use tegula_core::error::{Error, Result};
use tegula_ir::prelude::*;

use super::blocked::{Blocked, Blocking};
use super::epilogue::in_rounds;
use super::product::Product;

/// How an operand gets into shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Staging {
    /// Whether k is the axis along which the tile lies, or rows of A (columns of B) are.
    along_k: bool,
    /// Whether pairs of elements can be copied at once: they lie side by side, aligned to 16 bytes.
    pairs: bool,
}

/// Whether the parts fit together: whole warps, and rounds of copies that begin at whole lines of a tile, or end there.
fn fits(blocking: &Blocking) -> bool {
    let Blocking { block: [bm, bn, bk], warp: [wm, wn], slices, .. } = *blocking;
    let threads = blocking.threads();
    let rounds = |outer: u32, width: u32| {
        let round = threads * width;
        let lines = round.is_multiple_of(outer) && (round / outer).is_power_of_two() || outer.is_multiple_of(round);
        lines && (outer * LINE).is_multiple_of(round) && round.is_multiple_of(2 * LINE)
    };
    let parts = [(bm, wm), (bn, wn)].iter().all(|(all, part)| part % ROWS == 0 && all % part == 0);
    let rounds = [bm, bn].iter().all(|&outer| rounds(outer, 1) && rounds(outer, 2));
    parts && rounds && bk % LINE == 0 && slices == 1
}

/// Rows of a warp tile that the sums of one [`Mma`] go through, or two of the small one.
const ROWS: u32 = 16;
/// Columns of a fragment of B.
const COLS: u32 = 8;
/// How far along k the lanes go with one load of 16 bytes each.
const DEPTH: u32 = 8;
/// Elements of 128 bytes.
const LINE: u32 = 16;
/// Products of two elements in a step that is large.
const LARGE: u32 = 128 * 64 * 32;

/// Builds the kernel, with one of the instructions of f64.
pub(super) fn build(variant: &Blocked, mma: Mma) -> Result<Kernel> {
    let Blocking { block: [bm, bn, bk], warp: [wm, wn], stages, blocks, .. } = variant.blocking;
    if !fits(&variant.blocking) {
        return Err(Error::KernelOption(format!("the tiles of {variant} are not shared out evenly")));
    }
    let blocking = variant.blocking;
    Ok(kernel(&variant.to_string(), Block::d1(blocking.threads()), |k| {
        let (turned, pairs, orders) = (variant.turned(), variant.vectors, variant.orders);
        let product = Product::<f64>::of_blocks(k, variant);
        k.min_blocks(blocks);
        let depth = product.depth();
        let [(m, _), (n, _)] = product.sides();
        let staging = |order: Order2d, along_k: Order2d, pairs: bool| Staging {
            along_k: order == along_k || order == Order2d::Strided,
            pairs: pairs && order != Order2d::Strided,
        };
        let of_a = staging(orders[0], Order2d::RowMajor, pairs[0]);
        let of_b = staging(orders[1], Order2d::ColMajor, pairs[1]);
        let room_a = k.shared::<f64>("tile_a", [stages * bk * bm]);
        let room_b = k.shared::<f64>("tile_b", [stages * bk * bn]);
        let warps = bn / wn;
        let (warp_row, warp_col) = (k.warp() / warps * wm, k.warp() % warps * wn);
        product.for_tiles([bm, bn], depth.div_ceil(bk), |product, [tile_row, tile_col], share| {
            let (row, col) = (tile_row * bm, tile_col * bn);
            let side = |staging, global, room, outer, span, extent, first, part, rows, turned| Side {
                k,
                blocking,
                staging,
                global,
                room,
                outer,
                span,
                extent,
                first,
                depth,
                part,
                rows,
                turned,
            };
            let a = side(of_a, product.a, room_a, bm, wm, m, row, warp_row, true, turned[0]);
            let b = side(of_b, product.b, room_b, bn, wn, n, col, warp_col, false, turned[1]);
            let (left, right) = if of_a.along_k && !of_b.along_k { (&b, &a) } else { (&a, &b) };
            let sums = multiply(k, blocking, mma, left, right, share);
            store(product, pairs[2], [left, right], sums, [row + warp_row, col + warp_col]);
        });
    }))
}

/// One operand: where it comes from, where it is staged, and which part of it a warp multiplies.
struct Side<'k> {
    k: &'k Builder,
    blocking: Blocking,
    staging: Staging,
    global: Global<'k, f64>,
    room: Shared<'k, f64>,
    /// Rows of A (columns of B) of a tile.
    outer: u32,
    /// Those of a warp's part.
    span: u32,
    /// Those of the whole operand.
    extent: Val<'k, u32>,
    /// Where the tile begins in the operand.
    first: Val<'k, u32>,
    depth: Val<'k, u32>,
    /// Where the warp's part begins in the tile.
    part: Val<'k, u32>,
    /// Whether this is A.
    rows: bool,
    /// Whether it was passed transposed.
    turned: bool,
}

impl<'k> Side<'k> {
    /// How many copies a thread makes of a tile.
    fn copies(&self) -> u32 {
        self.outer * self.blocking.block[2] / self.round()
    }

    /// Elements that the threads copy at once.
    fn round(&self) -> u32 {
        self.blocking.threads() * self.width()
    }

    fn width(&self) -> u32 {
        if self.staging.pairs { 2 } else { 1 }
    }

    /// Elements of a line of the tile: 16 along k, or one k of all rows (columns).
    fn line(&self) -> u32 {
        if self.staging.along_k { LINE } else { self.outer }
    }

    /// The thread's first element of a tile, (row or column, k).
    fn start(&self) -> [Val<'k, u32>; 2] {
        let thread = self.k.thread_x() * self.width();
        let (across, along) = (thread / self.line(), thread % self.line());
        if self.staging.along_k { [across, along] } else { [along, across] }
    }

    /// How much further the thread's copy number `which` is.
    fn further(&self, which: u32) -> [u32; 2] {
        let (across, along) = (which * self.round() / self.line(), which * self.round() % self.line());
        if self.staging.along_k { [across % self.outer, across / self.outer * LINE] } else { [along, across] }
    }

    /// A walk along the tiles from the one that is `first` steps along k.
    fn walk(&self, first: Val<'k, u32>) -> Walk<'k> {
        let [outer, p] = self.start();
        let p = first * self.blocking.block[2] + p;
        let mut lines: Vec<Line<'k>> = Vec::new();
        for [aside, _] in (0..self.copies()).map(|which| self.further(which)) {
            if lines.iter().all(|line| line.aside != aside) {
                let outer = self.first + outer + aside;
                let limit = outer.lt(self.extent).select(self.depth, 0u32);
                lines.push(Line { aside, limit, cursor: self.global.cursor(self.place(outer, p)) });
            }
        }
        Walk { lines, p: self.k.var(p) }
    }

    /// To the next tile.
    fn advance(&self, walk: &Walk<'k>) {
        let [.., bk] = self.blocking.block;
        let [rows, cols] = if self.rows != self.turned { [0, bk] } else { [bk, 0] };
        walk.lines.iter().for_each(|line| line.cursor.advance(rows, cols));
        walk.p.set(walk.p.get() + bk);
    }

    /// Starts the thread's copy number `which` of the tile that the walk has reached, to a stage. Beyond the edges there are zeros.
    ///
    /// Along k, the tile lies as rows of 16 k, 16 after 16; the pieces of odd rows have their halves exchanged. Otherwise it lies k
    /// after k, and pieces change places within eight of them.
    fn copy(&self, walk: &Walk<'k>, stage: Val<'k, u32>, which: u32) {
        let ([outer, p], [aside, deeper], line) = (self.start(), self.further(which), self.line());
        let (across, along) = if self.staging.along_k { (outer, p) } else { (p, outer) };
        let (more, behind) = (which * self.round() / line * line, which * self.round() % line);
        let moved = if self.staging.along_k {
            along ^ (across % 2 * DEPTH)
        } else {
            (along + behind) ^ ((across / 2 % 4 * 4) ^ (more / line / 2 % 4 * 4))
        };
        let to = stage * (self.blocking.block[2] * self.outer) + (across * line + moved) + more;
        let from = self.place(self.k.constant(0), self.k.constant(deeper));
        for line in walk.lines.iter().filter(|line| line.aside == aside) {
            let valid = Builder::guard((walk.p.get() + deeper).lt(line.limit));
            self.room.copy_async((to,), line.cursor, from, self.width(), valid);
        }
    }

    /// Coordinates of an element from its row of A (column of B) and its k.
    fn place(&self, outer: Val<'k, u32>, p: Val<'k, u32>) -> (Val<'k, u32>, Val<'k, u32>) {
        if self.rows != self.turned { (outer, p) } else { (p, outer) }
    }

    /// The lane's elements of `count` eights of k from number `eight` on, of 16 rows of A (columns of B): for each of the two rows
    /// that are the lane's, those along k.
    fn load(&self, stage: Val<'k, u32>, fragment: u32, eight: u32, count: u32) -> [Vec<Val<'k, f64>>; 2] {
        let [.., bk] = self.blocking.block;
        let lane = self.k.lane();
        let (g, t, base) = (lane / 4, lane % 4, stage * (bk * self.outer));
        let mut pair = [Vec::new(), Vec::new()];
        for eight in eight..eight + count {
            if self.staging.along_k {
                let half = if eight % 2 == 0 { g % 2 * DEPTH } else { ((g % 2) ^ 1) * DEPTH };
                let lane_part = base + ((self.part + g) * LINE + (half + t * 2));
                for (i, row) in pair.iter_mut().enumerate() {
                    let fixed = eight / 2 * self.outer * LINE + (fragment * ROWS + i as u32 * 8) * LINE;
                    row.extend(self.room.load_vec::<2>((lane_part + fixed,)));
                }
            } else {
                let lane_part = base + (t * 2 * self.outer + self.part + ((g ^ (t * 2)) * 2));
                for p in 0..2 {
                    let fixed = (eight * DEPTH + p) * self.outer + fragment * ROWS;
                    let [x, y] = self.room.load_vec::<2>((lane_part + fixed,));
                    pair[0].push(x);
                    pair[1].push(y);
                }
            }
        }
        pair
    }
}

/// Where a thread's copies of a tile come from.
struct Walk<'k> {
    lines: Vec<Line<'k>>,
    /// Where the thread's first copy is along k.
    p: Var<'k, u32>,
}

/// A row of A (column of B) that a thread copies parts of.
struct Line<'k> {
    /// How much further it is than the first.
    aside: u32,
    cursor: Cursor<'k, f64>,
    /// As much of k as it has: nothing beyond the edge.
    limit: Val<'k, u32>,
}

/// What fills the stages: the thread's copies of tiles of A, and of B.
struct Feed<'s, 'k> {
    sides: [(&'s Side<'k>, Walk<'k>); 2],
}

impl<'k> Feed<'_, 'k> {
    /// How many copies a thread makes of the two tiles of a step.
    fn copies(&self) -> u32 {
        self.sides.iter().map(|(side, _)| side.copies()).sum()
    }

    /// Starts copy number `which` of the tiles that have been reached, to a stage.
    fn copy(&self, stage: Val<'k, u32>, which: u32) {
        let [(a, of_a), (b, of_b)] = &self.sides;
        match which.checked_sub(a.copies()) {
            None => a.copy(of_a, stage, which),
            Some(which) => b.copy(of_b, stage, which),
        }
    }

    /// The same, in steps that ask whether there is more to copy only where there is.
    fn copy_if(&self, there: Option<Pred<'k>>, stage: Val<'k, u32>, which: u32) {
        match there {
            Some(there) => self.sides[0].0.k.when(there, || self.copy(stage, which)),
            None => self.copy(stage, which),
        }
    }

    /// Starts all of them, as a group.
    fn fill(&self, stage: u32) {
        let k = self.sides[0].0.k;
        (0..self.copies()).for_each(|which| self.copy(k.constant(stage), which));
        k.copy_async_commit();
    }

    /// To the next tiles.
    fn advance(&self) {
        self.sides.iter().for_each(|(side, walk)| side.advance(walk));
    }
}

/// Variables that hold what the lane multiplies next.
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

/// The warp's sums, 16 rows of the left operand by 8 columns of the right one after each other, all of a row of them first.
///
/// What the next slab of k begins with is loaded while the last rows of this one are multiplied: the matrix units take long enough
/// for an instruction that everything else fits in between, as long as it stands there.
///
/// `first` and `steps` say which steps along k.
fn multiply<'k>(
    k: &'k Builder,
    blocking: Blocking,
    mma: Mma,
    a: &Side<'k>,
    b: &Side<'k>,
    [first, steps]: [Val<'k, u32>; 2],
) -> Array<'k, f64> {
    let Blocking { block: [.., bk], stages, .. } = blocking;
    let eights = mma.shape()[2].div_ceil(DEPTH);
    let (slabs, high, wide) = (bk / (DEPTH * eights), a.span / ROWS, b.span / ROWS);
    let sums = k.array::<f64>(high * wide * 2 * 4);
    (0..sums.len()).for_each(|i| sums.at(i).set(0.0));
    let feed = Feed { sides: [(a, a.walk(first)), (b, b.walk(first))] };
    let copies = feed.copies();
    for stage in 0..stages - 1 {
        feed.fill(stage);
        feed.advance();
    }
    // All stages begin to fill at once, which is what a short k waits for. Large steps leave the last to the loop and copy beyond the last step, too:
    // they are for a long k, and to ask in each of them whether there is more to copy costs more.
    let large = a.outer * b.outer * bk >= LARGE;
    if !large {
        feed.fill(stages - 1);
    }
    k.copy_async_wait(stages - if large { 2 } else { 1 });
    k.barrier();
    let next_a = Fragment::new(k, 2 * eights);
    let next_b: Vec<_> = (0..wide).map(|_| Fragment::new(k, 2 * eights)).collect();
    let zero = k.constant(0);
    next_a.set(&a.load(zero, 0, 0, eights));
    (0..).zip(&next_b).for_each(|(j, next)| next.set(&b.load(zero, j, 0, eights)));
    // Copies begin among the products of the first half of what comes before the barrier, or the compiler gathers them at the end of the
    // step. Where nothing comes before it, they come first.
    let half = ((slabs * high - 1) * wide).div_ceil(2);
    let part = |place: u32| (place.min(half) * copies).checked_div(half).unwrap_or(copies);
    let (full, free) = (k.var(0u32), k.var(stages - 1));
    k.for_each(0, steps, |step| {
        let there = (!large).then(|| step.gt(0u32) & (step + (stages - 1)).lt(steps));
        let (now, empty) = (full.get(), free.get());
        let after = (now + 1).lt(stages).select(now + 1, 0u32);
        (0..part(0)).for_each(|which| feed.copy_if(there, empty, which));
        for (slab, i) in (0..slabs).flat_map(|slab| (0..high).map(move |i| (slab, i))) {
            let (of_a, last_rows, last) = (next_a.get(), i + 1 == high, i + 1 == high && slab + 1 == slabs);
            if last {
                // Long after the last copies began: an address must not change until they have read it.
                feed.advance();
                // Everyone has loaded the last of this stage, and the next has come.
                k.copy_async_commit();
                k.copy_async_wait(stages - 2);
                k.barrier();
            }
            let (from, ahead) = if last { (after, 0) } else { (now, slab + u32::from(last_rows)) };
            next_a.set(&a.load(from, if last_rows { 0 } else { i + 1 }, ahead * eights, eights));
            for j in 0..wide {
                for (half, of_b) in (0..).zip(next_b[j as usize].get()) {
                    multiply_fragments(k, mma, &of_a, &of_b, sums.part(((i * wide + j) * 2 + half) * 4, 4));
                }
                if last_rows {
                    next_b[j as usize].set(&b.load(from, j, ahead * eights, eights));
                }
                let place = (slab * high + i) * wide + j;
                (part(place)..part(place + 1)).for_each(|which| feed.copy_if(there, empty, which));
            }
        }
        full.set(after);
        free.set(now);
    });
    sums
}

/// 16 rows times 8 columns.
fn multiply_fragments<'k>(
    k: &'k Builder,
    mma: Mma,
    [upper, lower]: &[Vec<Val<'k, f64>>; 2],
    b: &[Val<'k, f64>],
    sums: Array<'k, f64>,
) {
    let [m, _, depth] = mma.shape();
    // The lane's share of the instruction's k.
    let share = (depth / 4) as usize;
    for p in (0..b.len()).step_by(share) {
        let b = &b[p..p + share];
        if m == 8 {
            k.mma(mma, &upper[p..p + share], b, sums.part(0, 2));
            k.mma(mma, &lower[p..p + share], b, sums.part(2, 2));
        } else {
            let a: Vec<_> = (p..p + share).flat_map(|p| [upper[p], lower[p]]).collect();
            k.mma(mma, &a, b, sums);
        }
    }
}

/// Stores what the lane has: in each 16×16 of the warp's part, four pairs of neighbours in rows of C.
fn store<'k>(
    product: &Product<'k, f64>,
    aligned: bool,
    [left, right]: [&Side<'k>; 2],
    sums: Array<'k, f64>,
    [row, col]: [Val<'k, u32>; 2],
) {
    let high = left.span / ROWS;
    if !product.ends_long() {
        return store_rows(product, aligned, [left, right], sums, [row, col], high);
    }
    in_rounds(product.k, sums, high, |i, sums| {
        let at = if left.rows { [row + i * ROWS, col] } else { [row, col + i * ROWS] };
        store_rows(product, aligned, [left, right], sums, at, 1);
    });
}

/// Of so many times 16 rows of the left operand.
fn store_rows<'k>(
    product: &Product<'k, f64>,
    aligned: bool,
    [left, right]: [&Side<'k>; 2],
    sums: Array<'k, f64>,
    [row, col]: [Val<'k, u32>; 2],
    high: u32,
) {
    let lane = product.k.lane();
    let (g, t, wide) = (lane / 4, lane % 4, right.span / ROWS);
    product.store_runs(aligned, |store| {
        for (i, j, pair) in (0..high).flat_map(|i| (0..wide).flat_map(move |j| (0..4).map(move |pair| (i, j, pair)))) {
            // Of the left operand's upper or lower row, of the right one's first or second fragment, of its first or second column.
            let sum = |lower: u32, fragment: u32, column: u32| {
                sums.at(((i * wide + j) * 2 + fragment) * 4 + lower * 2 + column).get()
            };
            let (one, other) = (pair / 2, pair % 2);
            if !left.rows {
                // The left operand is B, whose columns lie side by side.
                let (row, col) = (row + (j * ROWS + one * COLS + other) + t * 2, col + i * ROWS + g * 2);
                store(row, col, [0, 1].map(|lower| sum(lower, one, other)));
                continue;
            }
            // Rows and columns that were loaded in pairs were dealt out in turn.
            let row =
                if left.staging.along_k { row + (i * ROWS + one * 8) + g } else { row + (i * ROWS + one) + g * 2 };
            if right.staging.along_k {
                store(row, col + (j * ROWS + other * COLS) + t * 2, [0, 1].map(|column| sum(one, other, column)));
            } else {
                store(row, col + (j * ROWS + other * 2) + t * 4, [0, 1].map(|fragment| sum(one, fragment, other)));
            }
        }
    });
}
