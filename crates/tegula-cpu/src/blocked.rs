//! The loops around the micro-kernels, written once for all types (as Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008, with
//! the places of A and B exchanged, since here it is B whose rows are vectors).
//!
//! C is cut into parts, a task each. A part goes through k in runs of KC: its columns of B are packed for the second-level cache, and each few rows of A, as they lie or packed,
//! pass by all of them. Where the factors are small or few, B is not packed either.

use std::ops::Range;
use std::ptr::null;

use tegula_core::element::Scalar;
use tegula_core::error::Result;
use tegula_core::progress::Meter;

use super::buffer::{Buffer, Shared};
use super::crew::share;
use super::epilogue::Ending;
use super::grid::Grid;
use super::kernel::{Factors, Later, Operand, Sum, Tiles};
use super::panels::place;
use super::source::Source;
use super::way::{Way, blocks, slice_of};

/// One product of two matrices: C ← act(alpha·A·B + beta·C + bias).
pub struct Product<'a, T: Operand> {
    /// m, n and k, none of them 0.
    pub sizes: [usize; 3],
    /// Scales the product; not 0.
    pub alpha: T::Acc,
    /// Rows of A.
    pub a: Source<'a, T>,
    /// Columns of B.
    pub b: Source<'a, T>,
    /// All of B packed before, if it was.
    pub panels: Option<Shared<T::Acc>>,
    /// Scales C; where it is 0, C is not read.
    pub beta: T::Acc,
    /// C.
    pub c: Grid<T::Out>,
    /// What happens to sums last.
    pub ending: Ending<T::Out>,
    /// Counts multiply-adds.
    pub meter: Option<&'a Meter<'a>>,
}

impl<T: Operand> Product<'_, T> {
    /// Multiplies.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](tegula_core::Error::OutOfMemory) where there is no room to pack A or B, or to sum C in.
    ///
    /// # Safety
    /// The machine has the tiles' instruction set, and the way is one for this product. Every element of C lies in memory that nobody else uses meanwhile, and is
    /// initialised where `beta` is not 0. The bias has the rows and columns of C and may be read.
    pub unsafe fn run(&self, tiles: &Tiles<T>, way: &Way) -> Result<()> {
        let [m, n, k] = self.sizes;
        let block = |rows, cols, rooms| Block { product: self, tiles, way, rows, cols, rooms };
        if way.is_plain() {
            // A product of a microsecond should not wait for what it does not need.
            let block = block(0..m, 0..n, [Shared::NOWHERE; 3]);
            for depth in blocks(0..k, way.kc) {
                // SAFETY: the caller's promise; nothing is packed, and the sums are made in C.
                unsafe { block.add_as_it_lies(&block.part(0, (0..m, 0..n), depth)) };
            }
            return Ok(());
        }
        let [of_a, of_b, of_c] = way.room::<T>(tiles, self.sizes);
        let mut a = Buffer::new("a packed block of A", &of_a)?;
        let mut b = Buffer::new("packed parts of B", &of_b)?;
        let mut sums = Buffer::new("a block of sums", &of_c)?;
        let rooms = [a.start(), b.start(), sums.start()];
        let (parts, each) = (way.cut[0] * way.cut[1], slice_of(k, way.slices, way.kc));
        for (rows, cols) in way.blocks([m, n]) {
            let block = block(rows, cols, rooms);
            if way.packed[0] {
                for depth in blocks(0..k, way.kc) {
                    block.pack_a(depth.clone());
                    // SAFETY: the caller's promise; parts are disjoint. Where A is packed, so is B.
                    share(way.threads, parts, |worker, i| unsafe {
                        block.add_packed(worker, &block.part(0, block.nth(i), depth.clone()))
                    });
                }
            } else {
                share(way.threads, parts * way.slices, |worker, i| {
                    let (slice, place) = (i % way.slices, block.nth(i / way.slices));
                    for depth in blocks((slice * each).min(k)..((slice + 1) * each).min(k), way.kc) {
                        let part = block.part(slice, place.clone(), depth);
                        // SAFETY: as above; each slice has sums of its own.
                        unsafe {
                            if way.packed[1] { block.add_packed(worker, &part) } else { block.add_as_it_lies(&part) }
                        };
                    }
                });
            }
            if way.slices > 1 {
                let (rows, cols) = (block.rows.len(), block.cols.len());
                // SAFETY: the caller's promise; and all slices are complete.
                share(way.threads, rows, |_, row| unsafe {
                    block.round(row..row + 1, 0..cols, rooms[2].at(row * cols), cols)
                });
            }
        }
        Ok(())
    }
}

/// A part of C that is summed over all of k before the next one is begun.
struct Block<'a, 'b, T: Operand> {
    product: &'a Product<'b, T>,
    tiles: &'a Tiles<T>,
    way: &'a Way,
    rows: Range<usize>,
    cols: Range<usize>,
    /// Packed A, packed B of each worker, and sums.
    rooms: [Shared<T::Acc>; 3],
}

/// Rows and columns of a block, and the run of k that is accumulated into them.
struct Part<S> {
    rows: Range<usize>,
    cols: Range<usize>,
    depth: Range<usize>,
    /// alpha and beta for these sums.
    scale: [S; 2],
    /// Where the sums of the block are: in C, or beside it.
    sums: Grid<S>,
    /// Whether they are complete then.
    last: bool,
}

impl<T: Operand> Block<'_, '_, T> {
    /// The rows and columns of a part.
    fn nth(&self, i: usize) -> (Range<usize>, Range<usize>) {
        let (Way { cut: [high, wide], across, .. }, Tiles { block: [mr, _], .. }) = (*self.way, self.tiles);
        (piece(0..self.rows.len(), high, *mr, i % high), piece(0..self.cols.len(), wide, across, i / high))
    }

    /// Packs the rows of the block for a run of k.
    fn pack_a(&self, depth: Range<usize>) {
        /// Panels of a task.
        const PANELS: usize = 8;
        let (mr, steps) = (self.tiles.block[0], self.tiles.steps(depth.len()));
        let tasks: Vec<_> = blocks(0..self.rows.len(), PANELS * mr).collect();
        share(self.way.threads, tasks.len(), |_, task| {
            for rows in blocks(tasks[task].clone(), mr) {
                let lanes = self.rows.start + rows.start..self.rows.start + rows.end;
                let to = self.rooms[0].at(rows.start * steps);
                // SAFETY: these rows are in the matrix; there is room for all of them, and each panel has a place of its own.
                unsafe { (self.tiles.pack[0])(self.product.a, lanes, depth.clone(), steps, to) };
            }
        });
    }

    /// A run of k for these rows and columns.
    fn part(&self, slice: usize, (rows, cols): (Range<usize>, Range<usize>), depth: Range<usize>) -> Part<T::Acc> {
        let Product { sizes: [.., k], alpha, beta, .. } = *self.product;
        let Way { in_place, slices, kc, .. } = *self.way;
        let first = depth.start == slice * slice_of(k, slices, kc);
        let width = self.cols.len();
        let (alpha, beta, sums) = if in_place {
            let Grid { start, batch, row, .. } = self.product.c.from(self.rows.start, self.cols.start);
            (alpha, beta, Grid { start: start.cast(), batch, row, col: 1 })
        } else {
            let start = self.rooms[2].at(slice * self.rows.len() * width);
            (T::Acc::ONE, T::Acc::ZERO, Grid { start, batch: 0, row: width as isize, col: 1 })
        };
        let last = depth.end == k && slices == 1;
        Part { rows, cols, depth, scale: [alpha, if first { beta } else { T::Acc::ONE }], sums, last }
    }

    /// Adds a part's multiply-adds to the progress.
    fn count(&self, Part { rows, cols, depth, .. }: &Part<T::Acc>) {
        if let Some(meter) = self.product.meter {
            meter.add(rows.len() as u64 * cols.len() as u64 * depth.len() as u64);
        }
    }

    /// What happens to complete sums, which are in C or beside it.
    ///
    /// # Safety
    /// As [`Product::run`], for these rows and columns.
    unsafe fn end(&self, rows: Range<usize>, cols: Range<usize>, sums: Grid<T::Acc>) {
        // SAFETY: the caller's promise.
        unsafe {
            if self.way.in_place {
                self.finish(rows, cols, sums);
            } else {
                let first = sums.at(rows.start, cols.start);
                self.round(rows, cols, first, sums.row as usize);
            }
        }
    }

    /// Accumulates a part with B packed: a row of tiles for each few rows of A.
    ///
    /// # Safety
    /// As [`Product::run`], for this part.
    unsafe fn add_packed(&self, worker: usize, part: &Part<T::Acc>) {
        let &Part { ref rows, ref cols, ref depth, scale: [alpha, beta], sums: c, last } = part;
        let (&Tiles { lanes, block: [mr, nr], run, .. }, product) = (self.tiles, self.product);
        let steps = self.tiles.steps(depth.len());
        let (most_cols, most_steps) =
            (product.sizes[1].min(self.way.block[1]), self.tiles.steps(self.way.kc.min(product.sizes[2])));
        let b = self.rooms[1].at(worker * self.way.lanes_of_worker(self.tiles, most_cols) * most_steps);
        let of_b = if self.way.panels { 0 } else { self.way.widest(self.tiles, most_cols) };
        let strips = b.wrapping_add(of_b * most_steps);
        let panels = product.panels.filter(|_| self.way.panels);
        let panel = |of: &Range<usize>| match panels {
            Some(all) => all.at(place(self.tiles, product.sizes[1], depth.start, self.cols.start + of.start, steps)),
            None => b.wrapping_add((of.start - cols.start) * steps),
        };
        if panels.is_none() {
            self.pack_part(cols, depth.clone(), b);
        }
        (self.tiles.enter)();
        let tiles_of_row = cols.len().div_ceil(nr);
        let mut ahead = 0;
        for (i, of_rows) in blocks(rows.clone(), mr).enumerate() {
            let room = |i: usize| strips.wrapping_add(i % 2 * mr * steps);
            let (a, a_row, a_step) = self.strip(of_rows.clone(), depth.clone(), ahead, room(i));
            // SAFETY: these rows are in A, or in what was packed of it.
            let starts = self.tiles.starts.map(|starts| unsafe { starts(a, a_row, of_rows.len(), steps) });
            let next = (of_rows.end..rows.end.min(of_rows.end + mr), room(i + 1));
            ahead = 0;
            let c = if self.way.strips {
                let wide = self.way.widest(self.tiles, self.cols.len());
                let start = self.rooms[2].at(worker * mr * wide).wrapping_sub(of_rows.start * wide + cols.start);
                Grid { start, row: wide as isize, ..c }
            } else {
                c
            };
            for of in blocks(cols.clone(), nr) {
                let mut later = self.later(&next.0, depth.clone(), ahead, tiles_of_row, next.1);
                ahead += later.rows;
                (later.soon, later.soon_row) = if last && !self.way.in_place {
                    let written = product.c.from(self.rows.start, self.cols.start);
                    (
                        written.at(of_rows.start, of.start).cast(),
                        written.row().wrapping_mul(size_of::<T::Out>() as isize),
                    )
                } else {
                    (c.at(of_rows.start, of.start).cast(), c.row().wrapping_mul(size_of::<T::Acc>() as isize))
                };
                let b_step = if of.len() == nr { nr } else { of.len().next_multiple_of(lanes) } as isize;
                let starts = starts.as_ref().map_or(null(), |starts| starts.as_ptr());
                let factors = Factors { a, a_row, a_step, b: panel(&of), b_step, starts, later };
                let (tile, to) = (run([of_rows.len(), of.len()]), c.at(of_rows.start, of.start));
                // SAFETY: the tile lies in C, and its factors in A, or what was packed of it, and in the panel.
                unsafe { tile([of_rows.len(), of.len(), steps], alpha, factors, beta, to, c.row()) };
            }
            if last {
                // SAFETY: the caller's promise; they are complete, and still near.
                unsafe { self.end(of_rows, cols.clone(), c) };
            }
        }
        (self.tiles.leave)();
        self.count(part);
    }

    /// Packs columns of B for a run of k.
    fn pack_part(&self, cols: &Range<usize>, depth: Range<usize>, to: *mut T::Acc) {
        let Tiles { lanes, block: [_, nr], depth: deep, unit, pack: [_, pack], .. } = *self.tiles;
        let steps = self.tiles.steps(depth.len());
        // A few rows of B at a time, across all panels: neighbours in memory are read together.
        for k in blocks(depth.clone(), deep * unit.next_multiple_of(8)) {
            let done = (k.start - depth.start) / deep;
            for of in blocks(cols.clone(), nr) {
                let from = self.cols.start + of.start..self.cols.start + of.end;
                let width = of.len().next_multiple_of(lanes);
                let to = to.wrapping_add((of.start - cols.start) * steps + done * width);
                // SAFETY: these columns are in the matrix; each worker has room for a part, and each panel a place in it.
                unsafe { pack(self.product.b, from, k.clone(), width, to) };
            }
        }
    }

    /// A few rows of A for a run of k, as [`Factors`] has them: where they are, and how far it is to the next row and to the next k. Where tiles take whole rows that are not
    /// packed yet they are now, in a room of their own, but for those `ahead`, which have been.
    fn strip(
        &self,
        rows: Range<usize>,
        depth: Range<usize>,
        ahead: usize,
        room: *mut T::Acc,
    ) -> (*const T::Acc, isize, isize) {
        let Tiles { whole, pack: [pack, _], .. } = *self.tiles;
        let (a, steps) = (self.product.a, self.tiles.steps(depth.len()));
        let [row, step] = a.strides();
        let lanes = self.rows.start + rows.start..self.rows.start + rows.end;
        let packed_row = (steps * size_of::<T::Acc>()) as isize;
        match () {
            _ if self.way.packed[0] => (self.rooms[0].at(rows.start * steps), packed_row, 1),
            _ if !whole => (a.at(lanes.start, depth.start).cast(), row.wrapping_mul(size_of::<T>() as isize), step),
            _ => {
                if ahead < lanes.len() {
                    let to = room.wrapping_add(ahead * self.tiles.unit);
                    // SAFETY: these rows are in the matrix, and each worker has room for them.
                    unsafe { pack(a, lanes.start + ahead..lanes.end, depth, steps, to) };
                }
                (room, packed_row, 1)
            }
        }
    }

    /// The rows of the next strip, of which some have been packed, that are packed with one of so many tiles. Only a whole one, that lies along k.
    fn later(&self, rows: &Range<usize>, depth: Range<usize>, done: usize, tiles: usize, room: *mut T::Acc) -> Later {
        let (Tiles { whole, block: [mr, _], unit, .. }, a) = (self.tiles, self.product.a);
        if !whole || self.way.packed[0] || rows.len() < *mr || done == *mr {
            return Later::NONE;
        }
        let line = unit * size_of::<T::Acc>();
        let bytes = (depth.len() * size_of::<T>() - 1) % line + 1;
        Later {
            from: a.at(self.rows.start + rows.start + done, depth.start).cast(),
            row: a.strides()[0].wrapping_mul(size_of::<T>() as isize),
            rows: mr.div_ceil(tiles).next_power_of_two().clamp(4, *mr),
            to: room.wrapping_add(done * unit).cast(),
            last: u64::MAX >> (line - bytes),
            ..Later::NONE
        }
    }

    /// Accumulates a part without packing B. Tiles are as high as their width allows, one below the
    /// other, so that their columns of B stay in the L1 cache.
    ///
    /// # Safety
    /// As [`Product::run`], for this part.
    unsafe fn add_as_it_lies(&self, part: &Part<T::Acc>) {
        let &Part { ref rows, ref cols, ref depth, scale: [alpha, beta], sums: c, last } = part;
        let (&Tiles { lanes, rows: heights, run, lying, .. }, product) = (self.tiles, self.product);
        let run = lying.unwrap_or(run);
        // As wide as can be while as high as need be.
        let most = rows.len().min(ENOUGH);
        let widest = heights.iter().rposition(|&high| high >= most).map_or(1, |at| at + 1);
        let ([a_row, a_step], [_, b_step]) = (product.a.strides(), product.b.strides());
        let a_row = a_row.wrapping_mul(size_of::<T>() as isize);
        for cols in even(cols.clone(), widest * lanes, lanes) {
            for rows in even(rows.clone(), heights[cols.len().div_ceil(lanes) - 1], 1) {
                let a = product.a.at(self.rows.start + rows.start, depth.start).cast();
                let b = product.b.at(self.cols.start + cols.start, depth.start).cast();
                let factors = Factors { a, a_row, a_step, b, b_step, starts: null(), later: Later::NONE };
                let (tile, to) = (run([rows.len(), cols.len()]), c.at(rows.start, cols.start));
                // SAFETY: the tile lies in C, and its factors in A and B, which hold values as they are summed.
                unsafe { tile([rows.len(), cols.len(), depth.len()], alpha, factors, beta, to, c.row()) };
            }
        }
        if last {
            // SAFETY: the caller's promise; after the last run the sums are complete.
            unsafe { self.end(rows.clone(), cols.clone(), c) };
        }
        self.count(part);
    }

    fn ending(&self) -> Ending<T::Out> {
        self.product.ending.from(self.rows.start, self.cols.start)
    }

    /// Finishes complete sums where they lie.
    ///
    /// # Safety
    /// As [`Product::run`], for a C of sums side by side.
    unsafe fn finish(&self, rows: Range<usize>, cols: Range<usize>, c: Grid<T::Acc>) {
        let ending = self.ending();
        if ending.is_none() {
            return;
        }
        for row in rows {
            // SAFETY: the caller's promise.
            unsafe {
                ending.apply::<T>(row, cols.start, std::slice::from_raw_parts_mut(c.at(row, cols.start), cols.len()))
            };
        }
    }

    /// Writes complete sums to C, scaled, finished, and rounded once where C is narrower. Their rows are `width` apart; slices are added in order.
    ///
    /// # Safety
    /// As [`Product::run`].
    unsafe fn round(&self, rows: Range<usize>, cols: Range<usize>, sums: *const T::Acc, width: usize) {
        let Product { alpha, beta, c, .. } = *self.product;
        let c = c.from(self.rows.start, self.cols.start);
        let (ending, slices, plane) = (self.ending(), self.way.slices, self.rows.len() * width);
        let as_they_are = slices == 1 && alpha == T::Acc::ONE && beta == T::Acc::ZERO && ending.is_none() && c.col == 1;
        if as_they_are {
            let to = c.at(rows.start, cols.start);
            // SAFETY: the caller's promise; each row has its own elements, and the sums are complete.
            return unsafe { (self.tiles.narrow)(sums, width, to, c.row, [rows.len(), cols.len()]) };
        }
        for (i, row) in rows.enumerate() {
            let sums = sums.wrapping_add(i * width);
            // SAFETY: as above.
            unsafe {
                let of = |slice: usize, col: usize| sums.wrapping_add(slice * plane + col).read();
                let sum = |col: usize| alpha.times((1..slices).fold(of(0, col), |sum, slice| sum.plus(of(slice, col))));
                put::<T>(sum, cols.clone(), beta, ending, c, row);
            }
        }
    }
}

/// `C ← act(beta·C + bias)` for an m×n matrix: what is left where k or alpha is 0.
///
/// # Safety
/// As [`Product::run`].
pub unsafe fn scale_all<T: Operand>(m: usize, n: usize, beta: T::Acc, ending: Ending<T::Out>, c: Grid<T::Out>) {
    for row in 0..m {
        // SAFETY: the caller's promise.
        unsafe { put::<T>(|_| T::Acc::ZERO, 0..n, beta, ending, c, row) };
    }
}

/// Rows with which a tile is high enough for any number of them: the wider it is, the fewer loads of A.
const ENOUGH: usize = 6;
/// Sums that are finished at once.
const PIECE: usize = 64;

/// `c ← act(sum + beta·c + bias)` for columns of a row, not reading `c` where `beta` is 0.
///
/// # Safety
/// As [`Product::run`], for these elements.
unsafe fn put<T: Operand>(
    sum: impl Fn(usize) -> T::Acc,
    cols: Range<usize>,
    beta: T::Acc,
    ending: Ending<T::Out>,
    c: Grid<T::Out>,
    row: usize,
) {
    let mut values = [T::Acc::ZERO; PIECE];
    for piece in blocks(cols.clone(), PIECE) {
        let values = &mut values[..piece.len()];
        for (value, col) in values.iter_mut().zip(piece.clone()) {
            // SAFETY: the caller's promise.
            *value = unsafe { scaled::<T>(sum(col - cols.start), beta, c.at(row, col)) };
        }
        // SAFETY: the bias has the columns of C.
        unsafe { ending.apply::<T>(row, piece.start, values) };
        let mut narrow = [<T::Out as Scalar>::ZERO; PIECE];
        let narrow = &mut narrow[..piece.len()];
        T::narrow_all(values, narrow);
        for (&value, col) in narrow.iter().zip(piece) {
            // SAFETY: the caller's promise.
            unsafe { c.at(row, col).write(value) };
        }
    }
}

/// `sum + beta·c`, not reading `c` where `beta` is 0.
///
/// # Safety
/// `c` is ours alone, and initialised where `beta` is not 0.
unsafe fn scaled<T: Operand>(sum: T::Acc, beta: T::Acc, c: *const T::Out) -> T::Acc {
    // SAFETY: the caller's promise.
    if beta == T::Acc::ZERO { sum } else { sum.plus(beta.times(T::widen_out(unsafe { c.read() }))) }
}

/// A range in pieces of at most `size`, as few as there can be and as even, each but the last a multiple of `unit`.
fn even(range: Range<usize>, size: usize, unit: usize) -> impl Iterator<Item = Range<usize>> {
    let pieces = range.len().div_ceil(size).max(1);
    let units = range.len().div_ceil(unit);
    // No division for each piece: a few of them take longer than a tile.
    let (least, more) = (units / pieces, units % pieces);
    let mut end = range.start;
    (0..pieces).map(move |i| {
        let start = end;
        end = range.end.min(start + (least + usize::from(i < more)) * unit);
        start..end
    })
}

/// The piece `i` of a range in so many, as even as units are.
fn piece(range: Range<usize>, pieces: usize, unit: usize, i: usize) -> Range<usize> {
    let units = range.len().div_ceil(unit);
    let at = |i: usize| range.end.min(range.start + units * i / pieces * unit);
    at(i)..at(i + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_even_and_all_there() {
        for (len, size, unit) in
            [(64, 64, 16), (100, 64, 16), (1, 64, 16), (13, 6, 1), (65, 64, 16), (509, 64, 16), (7, 8, 1)]
        {
            let pieces: Vec<Range<usize>> = even(5..5 + len, size, unit).collect();
            assert_eq!(pieces.len(), len.div_ceil(size));
            assert!(pieces.iter().all(|piece| !piece.is_empty() && piece.len() <= size), "{pieces:?}");
            assert_eq!((pieces[0].start, pieces[pieces.len() - 1].end), (5, 5 + len));
            assert!(pieces.windows(2).all(|two| two[0].end == two[1].start && two[0].len() % unit == 0), "{pieces:?}");
        }
    }
}
