//! The blocked loops around a micro-kernel, written once for every type and machine.
//!
//! A block of C, NC columns wide and a few MC rows high, stays put while k goes by in runs of KC. For each run, A and B are
//! packed and shared by all threads; then the threads take parts of the block. So every element of C sees the same additions
//! in the same order whatever the number of threads.

use std::ops::Range;

use rayon::prelude::*;

use super::epilogue::Ending;
use super::kernel::{Kernel, MAX_TILE, Operand, Sum};
use super::pack::{Buffer, Source, pack};
use crate::element::{Element, Scalar};
use crate::error::Result;
use crate::matrix::Layout;
use crate::progress::Meter;

/// Blocks of MC rows in a block of C: so many that packing B again for the next block costs little.
const ROW_BLOCKS: usize = 16;

/// Parts of a block of C for each thread: so many that none waits long for the last.
const PARTS: usize = 4;

/// Where the elements of a matrix lie that several threads write, each its own elements.
#[derive(Clone, Copy)]
pub struct Grid<S> {
    start: *mut S,
    batch: isize,
    row: isize,
    col: isize,
}

// SAFETY: a grid is an address. Those who write through it write disjoint elements; `Grid::at` says so.
unsafe impl<S: Send> Send for Grid<S> {}
// SAFETY: as above.
unsafe impl<S: Send> Sync for Grid<S> {}

impl<S: Copy> Grid<S> {
    /// The first matrix of a batch; `memory` is position 0 of its layout.
    pub fn new(memory: *mut S, layout: Layout) -> Self {
        let [batch, row, col] = layout.strides;
        Grid { start: memory.wrapping_add(layout.offset), batch, row, col }
    }

    /// Another matrix of the batch.
    pub fn batch(self, batch: usize) -> Self {
        Grid { start: self.start.wrapping_offset(batch as isize * self.batch), ..self }
    }

    /// The address of an element. It may be read and written if it lies in the matrix and no other thread uses it meanwhile.
    pub fn at(self, row: usize, col: usize) -> *mut S {
        self.start.wrapping_offset(row as isize * self.row + col as isize * self.col)
    }

    /// The part from an element on.
    pub fn from(self, row: usize, col: usize) -> Self {
        Grid { start: self.at(row, col), ..self }
    }
}

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
    /// Scales C; where it is 0, C is not read.
    pub beta: T::Acc,
    /// C.
    pub c: Grid<T::Out>,
    /// What happens to sums last.
    pub ending: Ending<T::Out>,
    /// Whether to use the thread pool.
    pub parallel: bool,
    /// Counts multiply-adds.
    pub meter: Option<&'a Meter<'a>>,
}

impl<T: Operand> Product<'_, T> {
    /// Multiplies.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) where there is no room to pack A or B, or to sum C in.
    ///
    /// # Safety
    /// The machine has the kernel's instruction set. Every element of C lies in memory that nobody else uses meanwhile, and is
    /// initialised where `beta` is not 0. The bias has the rows and columns of C and may be read.
    pub unsafe fn run(&self, kernel: &Kernel<T::Acc>) -> Result<()> {
        let [m, n, _] = self.sizes;
        let [height, width] = block_size(self.sizes, kernel);
        let [of_a, of_b, of_c] = lengths::<T>(self.sizes, kernel, self.direct(kernel.kc).is_some());
        let mut a = Buffer::new::<T::Acc>("a packed block of A", of_a)?;
        let mut b = Buffer::new::<T::Acc>("a packed block of B", of_b)?;
        let mut sums = Buffer::new::<T::Acc>("a block of sums", of_c)?;
        for rows in blocks(0..m, height) {
            for cols in blocks(0..n, width) {
                let block = Block { product: self, kernel, rows: rows.clone(), cols };
                // SAFETY: the caller's promise, for a part of C.
                unsafe { block.run(a.values(), b.values(), sums.values()) };
            }
        }
        Ok(())
    }

    /// C as the micro-kernel can write it, if it can.
    fn direct(&self, kc: usize) -> Option<Grid<T::Acc>> {
        let Grid { start, batch, row, col } = self.c;
        let direct = is_direct::<T>(self.sizes, self.alpha, self.beta, col, kc);
        direct.then_some(Grid { start: start.cast(), batch, row, col: 1 })
    }
}

/// Whether the micro-kernel can write C: where it has the type of the sums and its rows, `col` from one element to the next, lie together.
///
/// A float sum of several runs of `kc` is scaled as a whole, when it is complete: a part of it times alpha might overflow
/// where the whole does not.
pub fn is_direct<T: Operand>([_, n, k]: [usize; 3], alpha: T::Acc, beta: T::Acc, col: isize, kc: usize) -> bool {
    let same = <T::Out as Scalar>::TYPE == <T::Acc as Scalar>::TYPE;
    let plain = alpha == T::Acc::ONE && beta == T::Acc::ZERO;
    let whole = plain || k <= kc || <T::Acc as Scalar>::TYPE.is_int();
    same && whole && (col == 1 || n == 1)
}

/// Rows and columns of a block of C.
fn block_size<S>([m, n, _]: [usize; 3], kernel: &Kernel<S>) -> [usize; 2] {
    [m.min(kernel.mc * ROW_BLOCKS), n.min(kernel.nc)]
}

/// Packed values of a block of A and of B, and sums of a block of C where they are not made in C itself.
pub fn lengths<T: Operand>(sizes: [usize; 3], kernel: &Kernel<T::Acc>, direct: bool) -> [usize; 3] {
    let [height, width] = block_size(sizes, kernel);
    let steps = sizes[2].min(kernel.kc).div_ceil(T::DEPTH);
    let sums = if direct { 0 } else { height * width };
    [height.next_multiple_of(kernel.mr) * steps, width.next_multiple_of(kernel.nr) * steps, sums]
}

/// A part of C that is summed over all of k before the next one is begun.
struct Block<'a, 'b, T: Operand> {
    product: &'a Product<'b, T>,
    kernel: &'a Kernel<T::Acc>,
    rows: Range<usize>,
    cols: Range<usize>,
}

impl<T: Operand> Block<'_, '_, T> {
    /// # Safety
    /// As [`Product::run`].
    unsafe fn run(&self, a: &mut [T::Acc], b: &mut [T::Acc], sums: &mut [T::Acc]) {
        let Product { alpha, beta, .. } = *self.product;
        let Some(c) = self.product.direct(self.kernel.kc) else {
            let c = Grid { start: sums.as_mut_ptr(), batch: 0, row: self.cols.len() as isize, col: 1 };
            // SAFETY: `sums` has room for the block, and it is ours alone.
            unsafe { self.sum(a, b, T::Acc::ONE, T::Acc::ZERO, c) };
            // SAFETY: the caller's promise; and the sums are complete.
            return unsafe { self.round(sums) };
        };
        let c = c.from(self.rows.start, self.cols.start);
        // SAFETY: the caller's promise; C is of the type of the sums, as `direct` found.
        unsafe { self.sum(a, b, alpha, beta, c) };
        if !self.ending().is_none() {
            // SAFETY: as above; and the sums are complete.
            unsafe { self.finish(c) };
        }
    }

    fn ending(&self) -> Ending<T::Out> {
        self.product.ending.from(self.rows.start, self.cols.start)
    }

    /// Finishes complete sums where they lie.
    ///
    /// # Safety
    /// As [`Product::run`], for a C of sums side by side.
    unsafe fn finish(&self, c: Grid<T::Acc>) {
        let (ending, cols) = (self.ending(), self.cols.len());
        let row = |row: usize| {
            // SAFETY: the caller's promise; each row has its own elements.
            unsafe { ending.apply::<T>(row, 0, std::slice::from_raw_parts_mut(c.at(row, 0), cols)) };
        };
        if self.product.parallel {
            (0..self.rows.len()).into_par_iter().with_min_len(4).for_each(row);
        } else {
            (0..self.rows.len()).for_each(row);
        }
    }

    /// `c ← alpha·A·B + beta·c` for a block that begins at `c`.
    ///
    /// # Safety
    /// The block lies in memory that nobody else uses meanwhile, and is initialised where `beta` is not 0.
    unsafe fn sum(&self, a: &mut [T::Acc], b: &mut [T::Acc], alpha: T::Acc, beta: T::Acc, c: Grid<T::Acc>) {
        let Product { sizes: [.., k], parallel, meter, .. } = *self.product;
        for depth in blocks(0..k, self.kernel.kc) {
            let beta = if depth.start == 0 { beta } else { T::Acc::ONE };
            pack(self.product.a, self.rows.clone(), depth.clone(), self.kernel.mr, parallel, a);
            pack(self.product.b, self.cols.clone(), depth.clone(), self.kernel.nr, parallel, b);
            let steps = depth.len().div_ceil(T::DEPTH);
            let panels = Panels { kernel: self.kernel, steps, alpha, a: &*a, b: &*b, beta, c };
            let part = |(rows, cols)| {
                // SAFETY: the caller's promise; parts are disjoint.
                unsafe { panels.multiply(rows, cols) }
            };
            if parallel {
                self.parts().into_par_iter().with_max_len(1).for_each(part);
            } else {
                self.parts().into_iter().for_each(part);
            }
            if let Some(meter) = meter {
                meter.add((self.rows.len() * self.cols.len()) as u64 * depth.len() as u64);
            }
        }
    }

    /// The block cut for the threads: MC rows each, and columns in whole panels.
    fn parts(&self) -> Vec<(Range<usize>, Range<usize>)> {
        let Kernel { mc, nr, .. } = *self.kernel;
        let rows = self.rows.len().div_ceil(mc);
        let wanted = if self.product.parallel { (PARTS * rayon::current_num_threads()).div_ceil(rows) } else { 1 };
        let width = self.cols.len().div_ceil(nr).div_ceil(wanted) * nr;
        let cols = || blocks(0..self.cols.len(), width);
        blocks(0..self.rows.len(), mc).flat_map(|rows| cols().map(move |cols| (rows.clone(), cols))).collect()
    }

    /// Writes complete sums to C, scaled, finished, and rounded once where C is narrower.
    ///
    /// # Safety
    /// As [`Product::run`].
    unsafe fn round(&self, sums: &[T::Acc]) {
        let Product { alpha, beta, c, .. } = *self.product;
        let c = c.from(self.rows.start, self.cols.start);
        let ending = self.ending();
        let row = |(row, sums): (usize, &[T::Acc])| {
            // SAFETY: the caller's promise; each row has its own elements.
            unsafe { put::<T>(|col| alpha.times(sums[col]), sums.len(), beta, ending, c, row) };
        };
        let rows = sums.chunks(self.cols.len()).take(self.rows.len());
        if self.product.parallel {
            sums.par_chunks(self.cols.len()).take(self.rows.len()).enumerate().with_min_len(4).for_each(row);
        } else {
            rows.enumerate().for_each(row);
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
        unsafe { put::<T>(|_| T::Acc::ZERO, n, beta, ending, c, row) };
    }
}

/// Sums that are finished at once.
const PIECE: usize = 64;

/// `c ← act(sum + beta·c + bias)` for the first columns of a row, not reading `c` where `beta` is 0.
///
/// # Safety
/// As [`Product::run`], for these elements.
unsafe fn put<T: Operand>(
    sum: impl Fn(usize) -> T::Acc,
    cols: usize,
    beta: T::Acc,
    ending: Ending<T::Out>,
    c: Grid<T::Out>,
    row: usize,
) {
    let mut values = [T::Acc::ZERO; PIECE];
    for cols in blocks(0..cols, PIECE) {
        let values = &mut values[..cols.len()];
        for (value, col) in values.iter_mut().zip(cols.clone()) {
            // SAFETY: the caller's promise.
            *value = unsafe { scaled::<T>(sum(col), beta, c.at(row, col)) };
        }
        // SAFETY: the bias has the columns of C.
        unsafe { ending.apply::<T>(row, cols.start, values) };
        for (&value, col) in values.iter().zip(cols) {
            // SAFETY: the caller's promise.
            unsafe { c.at(row, col).write(<T as Element>::narrow(value)) };
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

/// Packed panels of A and B, and the block of C that they are to be multiplied into.
struct Panels<'a, S> {
    kernel: &'a Kernel<S>,
    steps: usize,
    alpha: S,
    a: &'a [S],
    b: &'a [S],
    beta: S,
    c: Grid<S>,
}

impl<S: Sum> Panels<'_, S> {
    /// Multiplies one part of the block. Its rows begin at a multiple of MR, its columns at a multiple of NR.
    ///
    /// A panel of B stays in the first-level cache while the panels of A go by, which stay in the second.
    ///
    /// # Safety
    /// The machine has the instruction set, and that part of C is ours alone, initialised where `beta` is not 0.
    unsafe fn multiply(&self, rows: Range<usize>, cols: Range<usize>) {
        let Kernel { mr, nr, .. } = *self.kernel;
        for cols in blocks(cols, nr) {
            let b = &self.b[cols.start * self.steps..][..nr * self.steps];
            for rows in blocks(rows.clone(), mr) {
                let a = &self.a[rows.start * self.steps..][..mr * self.steps];
                let c = self.c.from(rows.start, cols.start);
                // SAFETY: the panels are whole and so is the tile, or `partial_tile` makes it so; the rest the caller promises.
                unsafe {
                    if rows.len() == mr && cols.len() == nr {
                        (self.kernel.run)(self.steps, self.alpha, a.as_ptr(), b.as_ptr(), self.beta, c.start, c.row);
                    } else {
                        self.partial_tile(a, b, c, rows.len(), cols.len());
                    }
                }
            }
        }
    }

    /// A tile that hangs over the edge of C is made in a whole one beside it.
    ///
    /// # Safety
    /// As [`Panels::multiply`], for the `height`×`width` elements at `c`.
    unsafe fn partial_tile(&self, a: &[S], b: &[S], c: Grid<S>, height: usize, width: usize) {
        let mut tile = [S::ZERO; MAX_TILE];
        let nr = self.kernel.nr;
        let inside = || (0..height).flat_map(|row| (0..width).map(move |col| (row, col)));
        if self.beta != S::ZERO {
            // SAFETY: the caller's promise.
            inside().for_each(|(row, col)| tile[row * nr + col] = unsafe { c.at(row, col).read() });
        }
        // SAFETY: MR·NR is at most MAX_TILE, and the panels are whole.
        unsafe {
            (self.kernel.run)(
                self.steps,
                self.alpha,
                a.as_ptr(),
                b.as_ptr(),
                self.beta,
                tile.as_mut_ptr(),
                nr as isize,
            );
        }
        // SAFETY: the caller's promise.
        inside().for_each(|(row, col)| unsafe { c.at(row, col).write(tile[row * nr + col]) });
    }
}

/// A range cut into pieces of `size`, the last perhaps smaller.
fn blocks(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(size).map(move |start| start..range.end.min(start + size))
}
