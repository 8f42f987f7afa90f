//! The macro-kernel that packs B with its first rows: they multiply unpacked B, and store it for
//! the rows below.
//!
//! A panel of B is packed, read by all rows of the macro tile, and overwritten by the next: B is
//! read once from memory, while multiplications run, and packed B never leaves the caches.

use std::ops::Range;
use std::ptr::{null, null_mut};

use tegula_core::element::Scalar;

use super::super::blocking::chunks;
use super::super::caches::LINE;
use super::super::micro_kernel::{
    AlongK, CpuElement, FirstRows, MicroKernel, MicroOperands, PrefetchedRows, STEPS_PER_PREFETCH, SelectFn,
    bytes_ahead,
};
use super::{CBlock, KcStep, nth_chunk};

/// Some columns of a KC step of a macro tile. Micro-tiles of some height pass by them, one below
/// the other.
pub(super) struct Columns<S> {
    step: KcStep<S>,
    cols: Range<usize>,
    /// Rows of a micro-tile.
    height: usize,
    /// The panel to which the first pass packs B.
    panel: *mut S,
    /// The columns of the panel, whole vectors.
    width: usize,
    /// Selects the micro-kernel of the first pass.
    select: SelectFn<S>,
    /// The rows of A of this step, if they were packed for the macro tile alone.
    own_a: Option<*mut S>,
    /// Whether columns of B are contiguous along k.
    along_k: bool,
}

impl<T: CpuElement> CBlock<'_, '_, T> {
    /// The panels of a KC step of a macro tile, where columns of B are adjacent in memory.
    pub(super) fn panels(
        &self,
        first: FirstRows,
        worker: usize,
        step: &KcStep<T::Acc>,
    ) -> impl Iterator<Item = Columns<T::Acc>> {
        let &MicroKernel { vector_len, max_rows, select_packed, .. } = self.kernel;
        let [panel, a_panel] = self.worker_panels(worker);
        if self.plan.own_a {
            self.pack_own_a(step, a_panel);
        }
        chunks(step.cols.clone(), first.tile[1] * vector_len).map(move |cols| Columns {
            step: step.clone(),
            // Narrow micro-tiles have as many more rows as registers allow.
            height: first.tile[0].max(max_rows[cols.len().div_ceil(vector_len) - 1]),
            panel,
            width: cols.len().next_multiple_of(vector_len),
            // These elements need no packing, so it reads unpacked B as well, and stores whole
            // vectors.
            select: select_packed,
            own_a: self.plan.own_a.then_some(a_panel),
            along_k: false,
            cols,
        })
    }

    /// The vectors of columns of a macro tile of few rows, where columns of B are contiguous along
    /// k, each with all KC steps of a round: few columns are read fastest. Packs A, unless that is
    /// done.
    pub(super) fn vectors_along_k(
        &self,
        along_k: AlongK<T::Acc>,
        worker: usize,
        round: &Range<usize>,
        chunk: usize,
    ) -> impl Iterator<Item = Columns<T::Acc>> {
        let (vector_len, sizes) = (self.kernel.vector_len, self.product.sizes);
        let (rows, cols) = self.macro_tile(chunk / self.plan.slices);
        let (count, height) = (rows.len(), along_k.height(rows.len()));
        let panel = self.scratch[2].at(worker * self.plan.values_along_k(self.kernel, sizes));
        let a_panel = panel.wrapping_add(vector_len * self.kernel.k_groups(self.plan.kc.min(sizes[2])));
        let own_a = move |step: &KcStep<T::Acc>| a_panel.wrapping_add(count * step.k_groups_before);
        if !self.plan.packed[0] {
            self.kc_steps(round, chunk).for_each(|step| self.pack_own_a(&step, own_a(&step)));
        }
        chunks(cols, vector_len).flat_map(move |cols| {
            self.kc_steps(round, chunk).map(move |step| Columns {
                own_a: (!self.plan.packed[0]).then(|| own_a(&step)),
                step,
                cols: cols.clone(),
                height,
                panel,
                width: vector_len,
                select: along_k.select,
                along_k: true,
            })
        })
    }

    /// Multiplies some columns of a KC step of a macro tile. The first pass reads B unpacked, and
    /// packs it for the passes below.
    ///
    /// # Safety
    /// As for [`Product::run`](super::Product::run), for these columns.
    pub(super) unsafe fn macro_kernel_first_rows(&self, columns: &Columns<T::Acc>) {
        let (&MicroKernel { select_packed, compensation, .. }, product) = (self.kernel, self.product);
        let &Columns { ref step, ref cols, height, panel, width, select, .. } = columns;
        let &KcStep { ref rows, ref k_range, scale: [alpha, beta], accumulators: c, .. } = step;
        let k_groups = self.kernel.k_groups(k_range.len());
        let passes = rows.len().div_ceil(height);
        for pass in 0..passes {
            // Of equal height: one of a row or two would take longer than its part.
            let tile_rows = nth_chunk(rows.clone(), passes, 1, pass);
            let (a, a_row_stride, a_k_stride) = match columns.own_a {
                Some(a_panel) => {
                    let row_stride = (k_groups * size_of::<T::Acc>()) as isize;
                    (a_panel.wrapping_add((tile_rows.start - rows.start) * k_groups).cast_const(), row_stride, 1)
                }
                None => self.micro_panel(tile_rows.clone(), step, 0, null_mut()),
            };
            // SAFETY: these rows are in A, or in packed A.
            let compensation = compensation.map(|f| unsafe { f(a, a_row_stride, tile_rows.len(), k_groups) });
            let mut operands = MicroOperands::new(a, [a_row_stride, a_k_stride], panel, width as isize);
            operands.compensation = compensation.as_ref().map_or(null(), |rows| rows.as_ptr());
            let mut sizes = [tile_rows.len(), cols.len(), k_groups];
            let mut micro_kernel = select_packed([sizes[0], sizes[1]]);
            if pass == 0 {
                let [col_stride, k_stride] = product.b.strides();
                operands.b = product.b.at(self.cols.start + cols.start, k_range.start).cast();
                operands.b_panel = if tile_rows == *rows { null_mut() } else { panel };
                match columns.along_k {
                    true => {
                        operands.b_col_stride = col_stride.wrapping_mul(size_of::<T>() as isize);
                        operands.b_ahead = bytes_ahead();
                    }
                    false => operands.b_k_stride = k_stride,
                }
                sizes[2] = k_range.len();
                micro_kernel = select([sizes[0], sizes[1]]);
            }
            let prefetch = match columns.along_k {
                true => PrefetchedRows::NONE,
                false => self.rows_to_prefetch(columns, pass, passes),
            };
            let (to, mut beta) = (c.at(tile_rows.start, cols.start), beta);
            for part in chunks(0..sizes[2], self.plan.update_steps) {
                let sizes = [sizes[0], sizes[1], part.len()];
                let prefetch = &prefetch.at_step(part.start);
                let operands = MicroOperands { prefetch, ..operands.at_step(part.start, width) };
                // SAFETY: the micro-tile is in C or in scratch. Its operands are in A or packed A,
                // and in B or in the panel, which the first pass has packed.
                unsafe { micro_kernel(sizes, alpha, &operands, beta, to, c.row_stride()) };
                beta = T::Acc::ONE;
            }
        }
        if step.last {
            // SAFETY: the caller's promise. The accumulators are complete, and still in a cache.
            unsafe { self.epilogue(rows.clone(), cols.clone(), c) };
        }
        product.count_work([rows.len(), cols.len(), k_range.len()]);
    }

    /// What a pass prefetches: its part of the next panel, to the right of these columns or in the
    /// next step of k.
    ///
    /// The first of several passes waits for its own rows of B, and prefetches nothing.
    fn rows_to_prefetch(&self, columns: &Columns<T::Acc>, pass: usize, passes: usize) -> PrefetchedRows {
        let (b, Columns { step, cols, .. }, [.., k]) = (self.product.b, columns, self.product.sizes);
        let Some(part) = pass.checked_sub(usize::from(passes > 1)) else { return PrefetchedRows::NONE };
        let (col, k_range) = match cols.end < step.cols.end {
            true => (cols.end, step.k_range.clone()),
            false => (step.cols.start, step.k_range.end..k.min(step.k_range.end + step.k_range.len())),
        };
        // The next panel may be wider than this one.
        let width = self.plan.packed_cols_per_worker(self.kernel, self.product.sizes[1]);
        let count = STEPS_PER_PREFETCH.div_ceil((passes - 1).max(1));
        let start = k_range.start + part * count * step.k_range.len() / STEPS_PER_PREFETCH;
        if start >= k_range.end {
            return PrefetchedRows::NONE;
        }
        PrefetchedRows {
            first: b.at(self.cols.start + col, start).cast(),
            stride: b.strides()[1].wrapping_mul(size_of::<T>() as isize),
            lines: (width.min(step.cols.end - col) * size_of::<T>()).div_ceil(LINE),
            count,
            to_l2: false,
        }
    }
}
