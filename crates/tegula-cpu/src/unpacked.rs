//! The loops of products from unpacked operands.

use std::ops::Range;

use tegula_core::element::Scalar;

use super::caches::LINE;
use super::epilogue::MatrixEpilogue;
use super::matrix_ptr::MatrixPtr;
use super::micro_kernel::{
    CpuElement, MicroKernel, MicroOperands, PrefetchedRows, STEPS_PER_PREFETCH, SelectFn, VECTORS, WHOLE_COLUMNS,
    WholeColumns, whole_columns_ahead, whole_rows_ahead,
};

/// C ← alpha·A·B + beta·C, where the micro-kernels read A and B themselves. C holds the
/// accumulators, or is narrower for [`UnpackedProduct::run_rounded`] and
/// [`multiply_small`](super::unblocked::multiply_small).
#[derive(Clone, Copy)]
pub struct UnpackedProduct<T: CpuElement> {
    /// m, n and k, all nonzero.
    pub sizes: [usize; 3],
    pub alpha: T::Acc,
    /// The first element of A, and its strides along rows and along k.
    pub a: *const T,
    pub a_strides: [isize; 2],
    /// The first element of B, and its strides along columns and along k. Columns are contiguous,
    /// unless `b_reads` says otherwise.
    pub b: *const T,
    pub b_strides: [isize; 2],
    pub beta: T::Acc,
    /// The first element of C, and its row stride in elements. Columns are contiguous.
    pub c: *mut T::Acc,
    pub c_row_stride: isize,
    pub b_reads: BReads,
}

/// How B is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BReads {
    /// By micro-tiles, from a cache, or from memory where the CPU needs no prefetches.
    Direct,
    /// By micro-tiles, from memory, with prefetches.
    Prefetched,
    /// By [`MicroKernel::whole_rows`], from memory.
    WholeRows,
    /// By [`MicroKernel::whole_columns`], so many columns side by side: columns of B and rows of A
    /// are contiguous along k.
    WholeColumns(usize),
}

// SAFETY: it holds addresses and sizes. Threads multiply disjoint rows of it, so that none accesses
// the C of another.
unsafe impl<T: CpuElement> Sync for UnpackedProduct<T> {}

impl<T: CpuElement> UnpackedProduct<T> {
    /// The product of some rows, where C has elements of type `T::Out`.
    pub fn rows(&self, rows: Range<usize>) -> Self {
        let below = |stride: isize| stride.wrapping_mul(rows.start as isize);
        UnpackedProduct {
            sizes: [rows.len(), self.sizes[1], self.sizes[2]],
            a: self.a.wrapping_offset(below(self.a_strides[0])),
            c: self.c.cast::<T::Out>().wrapping_offset(below(self.c_row_stride)).cast(),
            ..*self
        }
    }

    /// Multiplies in steps of `kc`, then applies an epilogue. `done` is called with the length of
    /// each step.
    ///
    /// # Safety
    /// As for [`run`](Self::run), for all steps. The bias has the rows and columns of C, and can be
    /// read.
    pub unsafe fn run_in_steps(
        mut self,
        kernel: &MicroKernel<T>,
        kc: usize,
        epilogue: &MatrixEpilogue<T::Out>,
        done: impl Fn(usize),
    ) {
        let ([m, n, k], a, b) = (self.sizes, self.a, self.b);
        let mut start = 0;
        while start < k {
            self.sizes[2] = kc.min(k - start);
            self.a = a.wrapping_offset((start as isize).wrapping_mul(self.a_strides[1]));
            self.b = b.wrapping_offset((start as isize).wrapping_mul(self.b_strides[1]));
            // SAFETY: the caller's promise.
            unsafe { self.run(kernel) };
            done(self.sizes[2]);
            self.beta = T::Acc::ONE;
            start += self.sizes[2];
        }
        let c = MatrixPtr { start: self.c, batch_stride: 0, row_stride: self.c_row_stride, col_stride: 1 };
        // SAFETY: the caller's promise; the accumulators are complete.
        unsafe { epilogue.apply_in_place::<T>(0..m, 0..n, c) };
    }

    /// Multiplies. Micro-tiles are as high as their width allows, one below the other, so that
    /// their columns of B stay in the L1 cache.
    ///
    /// # Safety
    /// The CPU has the instruction set of the micro-kernel, which reads unpacked operands. They
    /// have these rows, columns and steps. No other thread accesses C meanwhile, and C is
    /// initialized where `beta` is not 0.
    #[inline(always)]
    pub unsafe fn run(&self, kernel: &MicroKernel<T>) {
        let UnpackedProduct { sizes: [m, n, _], alpha, a_strides: [a_row, a_k_stride], beta, c_row_stride, .. } = *self;
        let select = kernel.select_unpacked.unwrap_or(kernel.select_packed);
        let [b_col_stride, b_k_stride] = self.b_strides;
        let a_row_stride = a_row.wrapping_mul(size_of::<T>() as isize);
        let mut operands = MicroOperands::new(self.a.cast(), [a_row_stride, a_k_stride], self.b.cast(), b_k_stride);
        if let (BReads::WholeColumns(side_by_side), Some(whole)) = (self.b_reads, kernel.whole_columns) {
            operands.b_col_stride = b_col_stride.wrapping_mul(size_of::<T>() as isize);
            // SAFETY: the caller's promise; rows and columns are contiguous along k.
            return unsafe { self.run_whole_columns(&whole, side_by_side, operands) };
        }
        if let Some(select) = kernel.whole_rows.filter(|_| self.b_reads == BReads::WholeRows && alpha == T::Acc::ONE) {
            operands.b_ahead = whole_rows_ahead(m);
            // SAFETY: the caller's promise; the rows are few.
            return unsafe { select([m, n])(self.sizes, alpha, &operands, beta, self.c, c_row_stride) };
        }
        let widest = kernel.vectors_of(n).min(VECTORS);
        if n <= widest * kernel.vector_len && m <= kernel.max_rows[widest - 1] {
            // SAFETY: the caller's promise; C is one micro-tile.
            return unsafe { select([m, n])(self.sizes, alpha, &operands, beta, self.c, c_row_stride) };
        }
        // SAFETY: the caller's promise.
        unsafe { self.run_micro_tiles::<T::Acc>(kernel, select, operands) }
    }

    /// Multiplies by [`MicroKernel::select_unpacked_rounded`], where C has elements of type
    /// `T::Out`. False, and nothing is done, where there is none, or where more is to be done than
    /// to round.
    ///
    /// # Safety
    /// As for [`run`](Self::run).
    pub unsafe fn run_rounded(&self, kernel: &MicroKernel<T>) -> bool {
        let is_plain = self.alpha == T::Acc::ONE && self.beta == T::Acc::ZERO && self.b_reads == BReads::Direct;
        let Some(select) = kernel.select_unpacked_rounded.filter(|_| is_plain) else { return false };
        let (a_row_stride, b_k_stride) = (self.a_strides[0].wrapping_mul(size_of::<T>() as isize), self.b_strides[1]);
        let operands = MicroOperands::new(self.a.cast(), [a_row_stride, self.a_strides[1]], self.b.cast(), b_k_stride);
        // SAFETY: the caller's promise.
        unsafe { self.run_micro_tiles::<T::Out>(kernel, select, operands) }
        true
    }

    /// Multiplies by micro-tiles, of micro-kernels that write elements of type `C`.
    ///
    /// Not inlined, or products of a single micro-tile would save the registers that it needs.
    ///
    /// # Safety
    /// As for [`run`](Self::run). The operands are those of the product.
    #[inline(never)]
    unsafe fn run_micro_tiles<C>(
        &self,
        kernel: &MicroKernel<T>,
        select: SelectFn<T::Acc>,
        mut operands: MicroOperands<T::Acc>,
    ) {
        let UnpackedProduct { sizes: [m, n, k], alpha, beta, c_row_stride, .. } = *self;
        let MicroKernel { vector_len, max_rows, .. } = kernel;
        let widest = kernel.vectors_of(n).min(VECTORS);
        let prefetched = self.b_reads == BReads::Prefetched;
        let widest = widest.min(kernel.unpacked_vectors(m, prefetched));
        let (mut widths, mut col) = (EvenChunks::new(n, widest * vector_len, *vector_len), 0);
        // Selecting takes as long as some steps of k.
        let mut selected = [1, 1];
        let mut micro_kernel = select(selected);
        while col < n {
            let cols = widths.next(n - col);
            let max_rows = max_rows[kernel.vectors_of(cols) - 1];
            let (mut heights, mut row) = (EvenChunks::new(m, max_rows, 1), 0);
            operands.b = self.b.wrapping_add(col).cast();
            // Two chunks of columns ahead, about as long as memory takes.
            let ahead = if prefetched && col + 2 * cols < n { 2 * cols * size_of::<T>() } else { 0 };
            // A division takes longer than a small micro-tile.
            let (passes, mut pass) = (if ahead > 0 { m.div_ceil(max_rows) } else { 0 }, 0);
            let by_rows = passes > 2 && kernel.first_rows.is_some();
            while row < m {
                let rows = heights.next(m - row);
                let below = (row as isize).wrapping_mul(operands.a_row_stride);
                operands.a = self.a.wrapping_byte_offset(below).cast();
                let below = (row as isize).wrapping_mul(c_row_stride);
                let c = self.c.cast::<C>().wrapping_offset(below).wrapping_add(col).cast();
                if [rows, cols] != selected {
                    (selected, micro_kernel) = ([rows, cols], select([rows, cols]));
                }
                let sizes = [rows, cols, k];
                // SAFETY: the caller's promise; the micro-tile is in C.
                let multiply = |operands| unsafe { micro_kernel(sizes, alpha, operands, beta, c, c_row_stride) };
                if by_rows {
                    let prefetch = &self.rows_to_prefetch(col + 2 * cols, cols, [pass, passes]);
                    multiply(&MicroOperands { prefetch, ..operands });
                } else {
                    operands.b_ahead = if pass == 0 { ahead } else { 0 };
                    multiply(&operands);
                }
                (row, pass) = (row + rows, pass + 1);
            }
            operands.b_ahead = 0;
            col += cols;
        }
    }

    /// Multiplies by whole columns, some of which all rows pass while they are in the L1 cache.
    ///
    /// # Safety
    /// As for [`run`](Self::run). The operands are those of the product, contiguous along k.
    unsafe fn run_whole_columns(
        &self,
        whole: &WholeColumns<T::Acc>,
        side_by_side: usize,
        mut operands: MicroOperands<T::Acc>,
    ) {
        let UnpackedProduct { sizes: [m, n, k], alpha, beta, c_row_stride, .. } = *self;
        operands.b_ahead = whole_columns_ahead(m);
        if m <= whole.tile_rows {
            // SAFETY: the caller's promise; C is one micro-tile.
            return unsafe {
                (whole.select)([m, side_by_side])(self.sizes, alpha, &operands, beta, self.c, c_row_stride)
            };
        }
        let mut col = 0;
        while col < n {
            let cols = WHOLE_COLUMNS.min(n - col);
            let (mut heights, mut row) = (EvenChunks::new(m, whole.tile_rows, 1), 0);
            operands.b = self.b.cast::<T::Acc>().wrapping_byte_offset(operands.b_col_stride.wrapping_mul(col as isize));
            operands.b_ahead = whole_columns_ahead(m);
            while row < m {
                let rows = heights.next(m - row);
                let below = operands.a_row_stride.wrapping_mul(row as isize);
                operands.a = self.a.cast::<T::Acc>().wrapping_byte_offset(below);
                let c = self.c.wrapping_offset((row as isize).wrapping_mul(c_row_stride)).wrapping_add(col);
                // SAFETY: the caller's promise; the micro-tile is in C.
                unsafe {
                    (whole.select)([rows, WHOLE_COLUMNS])([rows, cols, k], alpha, &operands, beta, c, c_row_stride)
                };
                (operands.b_ahead, row) = (0, row + rows);
            }
            col += cols;
        }
    }

    /// The part of a chunk of columns of B that one of several passes prefetches.
    fn rows_to_prefetch(&self, col: usize, cols: usize, [pass, passes]: [usize; 2]) -> PrefetchedRows {
        let (rows, stride) = (self.sizes[2].div_ceil(passes), self.b_strides[1].wrapping_mul(size_of::<T>() as isize));
        let first = self.b.wrapping_add(col).cast::<u8>().wrapping_offset(stride.wrapping_mul((pass * rows) as isize));
        // Rows that begin within a cache line end in one more.
        let lines = (first as usize % LINE + cols * size_of::<T>()).div_ceil(LINE);
        PrefetchedRows { first, stride, lines, count: STEPS_PER_PREFETCH.div_ceil(passes), to_l2: true }
    }
}

/// The fewest chunks of at most a size, as even as possible. Each but the last is a multiple of a
/// unit.
struct EvenChunks {
    unit: usize,
    /// Length of a chunk, but for the first ones.
    len: usize,
    /// How many chunks are one unit longer.
    longer: usize,
}

impl EvenChunks {
    #[inline(always)]
    fn new(len: usize, size: usize, unit: usize) -> EvenChunks {
        // Divisions take longer than a small micro-tile: none for one or two chunks, and none per
        // chunk.
        let units = match unit {
            1 => len,
            _ => len.div_ceil(unit),
        };
        match len {
            _ if len <= size => EvenChunks { unit, len, longer: 0 },
            _ if len <= 2 * size => EvenChunks { unit, len: units / 2 * unit, longer: units % 2 },
            _ => {
                let count = len.div_ceil(size);
                EvenChunks { unit, len: units / count * unit, longer: units % count }
            }
        }
    }

    /// The length of the next chunk, where `left` is the length from there on.
    #[inline(always)]
    fn next(&mut self, left: usize) -> usize {
        let len = if self.longer > 0 { self.len + self.unit } else { self.len };
        self.longer = self.longer.saturating_sub(1);
        len.min(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn even_chunks_cover_the_range() {
        for (len, size, unit) in
            [(64, 64, 16), (100, 64, 16), (1, 64, 16), (13, 6, 1), (65, 64, 16), (509, 64, 16), (7, 8, 1)]
        {
            let (mut chunks, mut left, mut lengths) = (EvenChunks::new(len, size, unit), len, Vec::new());
            while left > 0 {
                let next = chunks.next(left);
                assert!((1..=size).contains(&next), "{len} {size} {unit}: {lengths:?}, {next}");
                assert!(left == next || next.is_multiple_of(unit), "{len} {size} {unit}: {lengths:?}, {next}");
                lengths.push(next);
                left -= next;
            }
            assert_eq!(lengths.len(), len.div_ceil(size));
            let (shortest, longest) = (lengths.iter().min().unwrap(), lengths.iter().max().unwrap());
            assert!(longest - shortest < 2 * unit, "{lengths:?}");
        }
    }
}
