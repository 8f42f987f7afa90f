//! The loops around the micro-kernels, written once for all types.
//!
//! They follow Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication" (2008),
//! with A and B exchanged, since here the rows of B are vectors.
//!
//! The numbers of the loops are those of the BLIS loops with the same purpose. The nest differs:
//! LOOP 5 splits m as well as n, LOOP 3 runs over macro tiles, and LOOP 4 is inside LOOP 3.
//! Unpacked products have loops of their own, without numbers, and so have those that pack B with
//! their first rows ([`first_rows`]): most large f32 and f64 products with AVX-512, and few rows
//! where columns of B are contiguous along k.
//!
//! C is split into MC×NC blocks (LOOP 5), and a block into macro tiles, which threads share (LOOP
//! 3). Where it pays, the threads first pack B, and A if needed, for a round of KC steps, and all
//! read the same panels. A macro tile takes step after step of KC (LOOP 4), and packs its columns
//! of B itself unless they are shared, and its rows of A if they must be packed and no other macro
//! tile needs them. Then each micro-panel of A, MR rows packed or not (LOOP 2),
//! passes by all panels of B (LOOP 1). For few rows, and for operands that stay in the caches, B is
//! not packed either, and those that one thread multiplies in place skip all of these loops.

mod first_rows;

use std::ops::Range;
use std::ptr::null;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use tegula_core::element::Scalar;
use tegula_core::error::Result;
use tegula_core::progress::ProgressMeter;

use super::blocking::{BlockingPlan, chunks};
use super::epilogue::MatrixEpilogue;
use super::grid::Grid;
use super::matrix_ptr::MatrixPtr;
use super::micro_kernel::{Accumulate, CpuElement, MicroKernel, MicroOperands, OverlappedPacking};
use super::pack_source::PackSource;
use super::packed_b::panel_offset;
use super::scratch::{ScratchBuffer, SharedPtr};
use super::thread_pool::{self, parallel_phases};
use super::unpacked::UnpackedProduct;

/// A product of two matrices: C ← act(alpha·A·B + beta·C + bias).
pub struct Product<'a, T: CpuElement> {
    /// m, n and k, all nonzero.
    pub sizes: [usize; 3],
    /// Scales A·B; nonzero.
    pub alpha: T::Acc,
    /// Rows of A.
    pub a: PackSource<'a, T>,
    /// Columns of B.
    pub b: PackSource<'a, T>,
    /// All panels of B, if packed before the call.
    pub packed_b: Option<SharedPtr<T::Acc>>,
    /// Scales C; where it is 0, C is not read.
    pub beta: T::Acc,
    /// C.
    pub c: MatrixPtr<T::Out>,
    /// Bias and activation.
    pub epilogue: MatrixEpilogue<T::Out>,
    /// Counts multiply-adds.
    pub meter: Option<&'a ProgressMeter<'a>>,
}

impl<T: CpuElement> Product<'_, T> {
    /// Adds the multiply-adds of a part to the progress.
    fn count_work(&self, [rows, cols, steps]: [usize; 3]) {
        if let Some(meter) = self.meter {
            meter.add(rows as u64 * cols as u64 * steps as u64);
        }
    }

    /// Multiplies.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](tegula_core::Error::OutOfMemory) where packed A, packed B or the
    /// accumulators do not fit in memory.
    ///
    /// # Safety
    /// The CPU has the instruction set of the micro-kernel, and the plan is one for this product.
    /// No other thread accesses C meanwhile, and C is initialized where `beta` is not 0. The bias
    /// has the rows and columns of C and can be read.
    pub unsafe fn run(&self, kernel: &MicroKernel<T>, plan: &BlockingPlan) -> Result<()> {
        let [m, n, _] = self.sizes;
        let block = |(rows, cols), scratch| CBlock { product: self, kernel, plan, rows, cols, scratch };
        let extents = plan.workspace_extents::<T>(kernel, self.sizes);
        let mut a = ScratchBuffer::new("a packed block of A", &extents[0])?;
        let mut b = ScratchBuffer::new("shared panels of B", &extents[1])?;
        let mut of_workers = ScratchBuffer::new("packed panels of threads", &extents[2])?;
        let mut accumulators = ScratchBuffer::new("accumulators of a block of C", &extents[3])?;
        let scratch = [a.start_mut(), b.start_mut(), of_workers.start_mut(), accumulators.start_mut()];
        let phases = Phases { plan, sizes: self.sizes };
        let at = |phase| {
            let (index, phase) = phases.at(phase);
            (block(plan.block_at([m, n], index), scratch), phase)
        };
        parallel_phases(
            plan.grid.threads,
            thread_pool::workers(),
            plan.block_count([m, n]) * phases.per_block(),
            |phase| {
                let (block, phase) = at(phase);
                block.chunks(&phase)
            },
            |worker, phase, chunk| {
                let (block, phase) = at(phase);
                match phase {
                    Phase::Pack(round) => block.pack_chunk(&round, chunk),
                    Phase::Multiply(round) => {
                        // SAFETY, of all macro-kernels: the caller's promise. Chunks of a phase
                        // write disjoint memory, and read results of earlier phases, which are
                        // complete. Each slice has its own accumulators.
                        if let Some(along_k) = kernel.along_k.filter(|_| plan.along_k) {
                            for columns in block.vectors_along_k(along_k, worker, &round, chunk) {
                                // SAFETY: see above.
                                unsafe { block.macro_kernel_first_rows(&columns) };
                            }
                            return;
                        }
                        // LOOP 4.
                        for step in block.kc_steps(&round, chunk) {
                            match (plan.packed[1], plan.first_rows) {
                                // SAFETY: see above.
                                (false, _) => unsafe { block.macro_kernel_unpacked(&step) },
                                // SAFETY: see above.
                                (true, None) => unsafe { block.macro_kernel(worker, &step) },
                                (true, Some(first)) => {
                                    for columns in block.panels(first, worker, &step) {
                                        // SAFETY: see above.
                                        unsafe { block.macro_kernel_first_rows(&columns) };
                                    }
                                }
                            }
                        }
                    }
                    // SAFETY: as above; all slices are complete.
                    Phase::AddSlices => unsafe { block.add_slices(chunk) },
                }
            },
        );
        Ok(())
    }
}

/// A phase of a block of C. Its chunks run in parallel.
enum Phase {
    /// Packs A or B or both for a range of k.
    Pack(Range<usize>),
    /// Multiplies the macro tiles for a range of k.
    Multiply(Range<usize>),
    /// Adds the partial sums of all slices.
    AddSlices,
}

/// The phases of all blocks of C, in order.
#[derive(Clone, Copy)]
struct Phases<'a> {
    plan: &'a BlockingPlan,
    sizes: [usize; 3],
}

impl Phases<'_> {
    /// Steps of k of a round.
    fn round_len(&self) -> usize {
        self.plan.round_steps.saturating_mul(self.plan.kc)
    }

    fn per_block(&self) -> usize {
        match self.plan.packs_first() {
            true => 2 * self.sizes[2].div_ceil(self.round_len()),
            false => 1 + usize::from(self.plan.slices > 1),
        }
    }

    /// The block of a phase, and the phase of the block.
    fn at(&self, phase: usize) -> (usize, Phase) {
        let (block, phase, k) = (phase / self.per_block(), phase % self.per_block(), self.sizes[2]);
        let round = |i: usize| i * self.round_len()..k.min((i + 1).saturating_mul(self.round_len()));
        let phase = match (self.plan.packs_first(), phase % 2) {
            (true, 0) => Phase::Pack(round(phase / 2)),
            (true, _) => Phase::Multiply(round(phase / 2)),
            (false, 0) => Phase::Multiply(0..k),
            (false, _) => Phase::AddSlices,
        };
        (block, phase)
    }
}

/// A block of C, accumulated over all of k before the next block begins.
struct CBlock<'a, 'b, T: CpuElement> {
    product: &'a Product<'b, T>,
    kernel: &'a MicroKernel<T>,
    plan: &'a BlockingPlan,
    rows: Range<usize>,
    cols: Range<usize>,
    /// Packed A, shared panels of B, packed panels of each worker, and accumulators.
    scratch: [SharedPtr<T::Acc>; 4],
}

/// The chunks of a phase that packs: of each KC step, pieces of the rows of A, and pieces along k
/// of each column of macro tiles of B.
struct PackChunks {
    steps: usize,
    a_pieces: usize,
    col_tiles: usize,
    k_pieces: usize,
}

/// One KC step of a macro tile: rows and columns of the block, and a range of k.
#[derive(Clone)]
struct KcStep<S> {
    rows: Range<usize>,
    cols: Range<usize>,
    k_range: Range<usize>,
    /// k groups of the round before this step, in packed A and in shared panels of B.
    k_groups_before: usize,
    /// alpha and beta of this step.
    scale: [S; 2],
    /// The accumulators of the block: C, or scratch.
    accumulators: MatrixPtr<S>,
    /// Whether they are complete after this step.
    last: bool,
}

impl<T: CpuElement> CBlock<'_, '_, T> {
    /// The number of chunks of a phase.
    fn chunks(&self, phase: &Phase) -> usize {
        let BlockingPlan { grid: Grid { tiles, .. }, slices, .. } = *self.plan;
        match phase {
            Phase::Pack(round) => {
                let PackChunks { steps, a_pieces, col_tiles, k_pieces } = self.pack_chunks(round);
                (a_pieces + col_tiles * k_pieces) * steps
            }
            Phase::Multiply(_) => tiles[0] * tiles[1] * slices,
            Phase::AddSlices => self.add_chunks().into_iter().product(),
        }
    }

    /// The KC steps of a chunk that multiplies: a slice of a round, for a macro tile.
    fn kc_steps(&self, round: &Range<usize>, chunk: usize) -> impl Iterator<Item = KcStep<T::Acc>> {
        let BlockingPlan { slices, kc, .. } = *self.plan;
        let (slice, region) = (chunk % slices, self.macro_tile(chunk / slices));
        let len = if slices > 1 { self.plan.slice_len(round.end) } else { round.len() };
        let start = round.start + slice * len;
        // The grid is that of a whole block; the last block may have fewer rows and columns than
        // macro tiles.
        let end = if region.0.is_empty() || region.1.is_empty() { start } else { round.end.min(start + len) };
        let steps = chunks(start..end, kc).enumerate();
        steps.map(move |(i, k_range)| self.kc_step(slice, region.clone(), k_range, i * self.kernel.k_groups(kc)))
    }

    /// The chunks of the phase that adds slices: along rows and along columns.
    fn add_chunks(&self) -> [usize; 2] {
        let wanted = ADD_CHUNKS * self.plan.grid.threads;
        let rows = self.rows.len().min(wanted);
        [rows, wanted.div_ceil(rows).min(self.cols.len().div_ceil(EPILOGUE_CHUNK))]
    }

    /// Adds the partial sums of all slices in order, for a chunk of the block, and stores it to C.
    ///
    /// # Safety
    /// As for [`Product::run`], for these elements. The slices are complete.
    unsafe fn add_slices(&self, chunk: usize) {
        let ([row_chunks, col_chunks], width) = (self.add_chunks(), self.cols.len());
        let rows = nth_chunk(0..self.rows.len(), row_chunks, 1, chunk / col_chunks);
        let cols = nth_chunk(0..width, col_chunks, self.kernel.vector_len, chunk % col_chunks);
        for row in rows.clone() {
            let partial_sums = |slice: usize| self.scratch[3].at((slice * self.rows.len() + row) * width + cols.start);
            for slice in 1..self.plan.slices {
                // SAFETY: each slice has its own accumulators, and no other chunk uses these
                // elements.
                let (sums, others) = unsafe {
                    (from_raw_parts_mut(partial_sums(0), cols.len()), from_raw_parts(partial_sums(slice), cols.len()))
                };
                for (sum, other) in sums.iter_mut().zip(others) {
                    *sum = sum.plus(*other);
                }
            }
        }
        let sums = self.scratch[3].at(rows.start * width + cols.start);
        // SAFETY: the caller's promise.
        unsafe { self.epilogue_to_c(rows, cols, sums, width) };
    }

    /// The rows and columns of a macro tile in the block.
    fn macro_tile(&self, tile: usize) -> (Range<usize>, Range<usize>) {
        let [row_tiles, _] = self.plan.grid.tiles;
        let rows = nth_chunk(0..self.rows.len(), row_tiles, self.plan.row_multiple, tile % row_tiles);
        (rows, self.tile_cols(tile / row_tiles))
    }

    /// The columns of a column of macro tiles in the block.
    fn tile_cols(&self, col: usize) -> Range<usize> {
        nth_chunk(0..self.cols.len(), self.plan.grid.tiles[1], self.plan.col_multiple, col)
    }

    /// The chunks of a phase that packs a round.
    fn pack_chunks(&self, round: &Range<usize>) -> PackChunks {
        let BlockingPlan { grid: Grid { threads, tiles: [_, col_tiles], shared_b }, kc, .. } = *self.plan;
        let steps = round.len().div_ceil(kc);
        let a_pieces =
            if self.plan.packs_a_first() { self.rows.len().div_ceil(MICRO_PANELS * self.kernel.tile[0]) } else { 0 };
        // Few pieces along k: an operand that is contiguous along k is read in longer runs.
        let pieces = (PACK_CHUNKS * threads).div_ceil(col_tiles * steps).min(kc / self.pack_unit()).max(1);
        PackChunks { steps, a_pieces, col_tiles: if shared_b { col_tiles } else { 0 }, k_pieces: pieces }
    }

    /// Steps of k of B that are packed across all panels, before the next.
    fn pack_unit(&self) -> usize {
        self.kernel.k_pack * self.kernel.k_unit.next_multiple_of(8)
    }

    /// Packs a chunk of A or of B for a round.
    fn pack_chunk(&self, round: &Range<usize>, chunk: usize) {
        let PackChunks { steps, a_pieces, k_pieces, .. } = self.pack_chunks(round);
        let (kc, mr) = (self.plan.kc, self.kernel.tile[0]);
        let step_at = |step: usize| {
            let start = round.start + step * kc;
            (start..round.end.min(start + kc), step * self.kernel.k_groups(kc))
        };
        if chunk < a_pieces * steps {
            let (k_range, k_groups_before) = step_at(chunk / a_pieces);
            let k_groups = self.kernel.k_groups(k_range.len());
            let first = chunk % a_pieces * MICRO_PANELS * mr;
            for rows in chunks(first..self.rows.len().min(first + MICRO_PANELS * mr), mr) {
                let rows_of_a = self.rows.start + rows.start..self.rows.start + rows.end;
                let to = self.packed_a(&rows, k_groups_before, k_groups);
                // SAFETY: these rows are in the matrix. The scratch holds all of them, and
                // micro-panels are disjoint.
                unsafe { (self.kernel.pack[0])(self.product.a, rows_of_a, k_range.clone(), k_groups, to) };
            }
        } else {
            // The pieces of a column of macro tiles are consecutive chunks, so that few threads
            // pack them: the threads that prefer the macro tiles of this column.
            let chunk = chunk - a_pieces * steps;
            let (k_range, k_groups_before) = step_at(chunk / k_pieces % steps);
            let cols = self.tile_cols(chunk / k_pieces / steps);
            let piece = nth_chunk(k_range.clone(), k_pieces, self.pack_unit(), chunk % k_pieces);
            let to = self.shared_panel(&cols, k_groups_before, self.kernel.k_groups(k_range.len()));
            self.pack_b(&cols, k_range, piece, to);
        }
    }

    /// The micro-panel of these rows in packed A, in a step of `k_groups`.
    fn packed_a(&self, rows: &Range<usize>, k_groups_before: usize, k_groups: usize) -> *mut T::Acc {
        let all_rows = self.plan.packed_rows(self.kernel, self.rows.len());
        self.scratch[0].at(k_groups_before * all_rows + rows.start * k_groups)
    }

    /// The panel of these columns in shared B, in a step of `k_groups`.
    fn shared_panel(&self, cols: &Range<usize>, k_groups_before: usize, k_groups: usize) -> *mut T::Acc {
        let all_cols = self.plan.packed_cols(self.kernel, self.cols.len());
        self.scratch[1].at(k_groups_before * all_cols + cols.start * k_groups)
    }

    /// The step of a macro tile for a range of k.
    fn kc_step(
        &self,
        slice: usize,
        (rows, cols): (Range<usize>, Range<usize>),
        k_range: Range<usize>,
        k_groups_before: usize,
    ) -> KcStep<T::Acc> {
        let Product { sizes: [.., k], alpha, beta, .. } = *self.product;
        let BlockingPlan { in_place, slices, .. } = *self.plan;
        let first = k_range.start == slice * self.plan.slice_len(k);
        let width = self.cols.len();
        let (alpha, beta, accumulators) = if in_place {
            (alpha, beta, self.product.c.submatrix(self.rows.start, self.cols.start).cast())
        } else {
            let start = self.scratch[3].at(slice * self.rows.len() * width);
            (T::Acc::ONE, T::Acc::ZERO, MatrixPtr { start, batch_stride: 0, row_stride: width as isize, col_stride: 1 })
        };
        let last = k_range.end == k && slices == 1;
        let scale = [alpha, if first { beta } else { T::Acc::ONE }];
        KcStep { rows, cols, k_range, k_groups_before, scale, accumulators, last }
    }

    /// Applies the epilogue to complete accumulators, in C or in scratch.
    ///
    /// # Safety
    /// As for [`Product::run`], for these rows and columns.
    unsafe fn epilogue(&self, rows: Range<usize>, cols: Range<usize>, accumulators: MatrixPtr<T::Acc>) {
        // SAFETY: the caller's promise.
        unsafe {
            if self.plan.in_place {
                self.block_epilogue().apply_in_place::<T>(rows, cols, accumulators);
            } else {
                let first = accumulators.at(rows.start, cols.start);
                self.epilogue_to_c(rows, cols, first, accumulators.row_stride as usize);
            }
        }
    }

    /// The packed panels of a worker: of B, and behind them those of A: all rows of its macro tile,
    /// or two micro-panels, the current and the next.
    fn worker_panels(&self, worker: usize) -> [*mut T::Acc; 2] {
        let [m, n, k] = self.product.sizes;
        let [rows, cols] = [m.min(self.plan.block[0]), n.min(self.plan.block[1])];
        let k_groups = self.kernel.k_groups(self.plan.kc.min(k));
        let of_b = self.scratch[2].at(worker * self.plan.packed_lanes_per_worker(self.kernel, [rows, cols]) * k_groups);
        [of_b, of_b.wrapping_add(self.plan.packed_cols_per_worker(self.kernel, cols) * k_groups)]
    }

    /// The macro-kernel: packs B, then multiplies each micro-panel of A by all panels of B.
    ///
    /// # Safety
    /// As for [`Product::run`], for this step.
    unsafe fn macro_kernel(&self, worker: usize, step: &KcStep<T::Acc>) {
        let &KcStep { ref rows, ref cols, ref k_range, k_groups_before, scale: [alpha, beta], accumulators: c, last } =
            step;
        let (&MicroKernel { vector_len, tile: [mr, nr], select_packed, select_rounded, .. }, product) =
            (self.kernel, self.product);
        let k_groups = self.kernel.k_groups(k_range.len());
        let [b_panels, a_panels] = self.worker_panels(worker);
        let packed_b = product.packed_b.filter(|_| self.plan.prepacked);
        let panel = |of: &Range<usize>| match packed_b {
            Some(all) => {
                all.at(panel_offset(self.kernel, product.sizes[1], k_range.start, self.cols.start + of.start, k_groups))
            }
            None if self.plan.grid.shared_b => self.shared_panel(of, k_groups_before, k_groups),
            None => b_panels.wrapping_add((of.start - cols.start) * k_groups),
        };
        if packed_b.is_none() && !self.plan.grid.shared_b {
            self.pack_b(cols, k_range.clone(), k_range.clone(), b_panels);
        }
        if self.plan.own_a {
            self.pack_own_a(step, a_panels);
        }
        (self.kernel.setup)();
        let tiles_per_row = cols.len().div_ceil(nr);
        let mut rows_already_packed = 0;
        let rounded = select_rounded.filter(|_| self.plan.row_strips && self.needs_only_rounding());
        let value_bytes = if rounded.is_some() { size_of::<T::Out>() } else { size_of::<T::Acc>() };
        // LOOP 2.
        for (i, tile_rows) in chunks(rows.clone(), mr).enumerate() {
            let a_panel = |i: usize| a_panels.wrapping_add(if self.plan.own_a { i } else { i % 2 } * mr * k_groups);
            let (a, a_row_stride, a_k_stride) =
                self.micro_panel(tile_rows.clone(), step, rows_already_packed, a_panel(i));
            // SAFETY: these rows are in A, or in packed A.
            let compensation =
                self.kernel.compensation.map(|f| unsafe { f(a, a_row_stride, tile_rows.len(), k_groups) });
            let next = (tile_rows.end..rows.end.min(tile_rows.end + mr), a_panel(i + 1));
            rows_already_packed = 0;
            let (c_rows, c_row_stride) = self.destination(worker, &tile_rows, step, rounded.is_some());
            // LOOP 1.
            for tile_cols in chunks(cols.clone(), nr) {
                let mut overlap =
                    self.overlapped_packing(&next.0, k_range.clone(), rows_already_packed, tiles_per_row, next.1);
                rows_already_packed += overlap.rows;
                let c_tile = c_rows.wrapping_byte_add((tile_cols.start - cols.start) * value_bytes);
                (overlap.prefetch, overlap.prefetch_row) = if last && !self.plan.in_place {
                    let row = product.c.row_stride.wrapping_mul(size_of::<T::Out>() as isize);
                    (self.c_at(&tile_rows, &tile_cols).cast(), row)
                } else {
                    (c_tile.cast(), c_row_stride.wrapping_mul(value_bytes as isize))
                };
                let b_k_stride =
                    if tile_cols.len() == nr { nr } else { tile_cols.len().next_multiple_of(vector_len) } as isize;
                let compensation = compensation.as_ref().map_or(null(), |rows| rows.as_ptr());
                let b = panel(&tile_cols);
                let operands = MicroOperands::new(a, [a_row_stride, a_k_stride], b, b_k_stride);
                let operands = MicroOperands { compensation, overlap: &overlap, ..operands };
                let sizes = [tile_rows.len(), tile_cols.len()];
                let micro_kernel = rounded.unwrap_or(select_packed)(sizes);
                // SAFETY: the micro-tile is in C or in scratch. Its operands are in A or packed A,
                // and in the panel.
                unsafe { micro_kernel([sizes[0], sizes[1], k_groups], alpha, &operands, beta, c_tile, c_row_stride) };
            }
            if last && rounded.is_none() {
                // SAFETY: the caller's promise. The accumulators are complete, and still in the L1
                // cache.
                unsafe {
                    match self.plan.row_strips {
                        true => self.epilogue_to_c(tile_rows, cols.clone(), c_rows, c_row_stride as usize),
                        false => self.epilogue(tile_rows, cols.clone(), c),
                    }
                }
            }
        }
        (self.kernel.teardown)();
        product.count_work([rows.len(), cols.len(), k_range.len()]);
    }

    /// Where a step stores micro-tiles of some rows, from their first column on, and the row
    /// stride: in C if they are rounded, in the row strip of the worker, or among the accumulators.
    fn destination(
        &self,
        worker: usize,
        rows: &Range<usize>,
        step: &KcStep<T::Acc>,
        is_rounded: bool,
    ) -> (*mut T::Acc, isize) {
        if is_rounded {
            (self.c_at(rows, &step.cols).cast(), self.product.c.row_stride)
        } else if self.plan.row_strips {
            let width = self.plan.widest_tile(self.kernel, self.cols.len());
            (self.scratch[3].at(worker * self.kernel.tile[0] * width), width as isize)
        } else {
            (step.accumulators.at(rows.start, step.cols.start), step.accumulators.row_stride)
        }
    }

    /// The first of some rows and columns of the block, in C.
    fn c_at(&self, rows: &Range<usize>, cols: &Range<usize>) -> *mut T::Out {
        self.product.c.at(self.rows.start + rows.start, self.cols.start + cols.start)
    }

    /// Packs the rows of A of a KC step for the macro tile alone, a micro-panel at a time.
    fn pack_own_a(&self, step: &KcStep<T::Acc>, a_panel: *mut T::Acc) {
        let (k_groups, mr) = (self.kernel.k_groups(step.k_range.len()), self.kernel.tile[0]);
        for rows in chunks(step.rows.clone(), mr) {
            let to = a_panel.wrapping_add((rows.start - step.rows.start) * k_groups);
            let from = self.rows.start + rows.start..self.rows.start + rows.end;
            // SAFETY: these rows are in the matrix, and the scratch of a worker holds them.
            unsafe { (self.kernel.pack[0])(self.product.a, from, step.k_range.clone(), k_groups, to) };
        }
    }

    /// Packs columns of B for a piece of a KC step. `to` holds the panels of the whole step.
    fn pack_b(&self, cols: &Range<usize>, k_range: Range<usize>, piece: Range<usize>, to: *mut T::Acc) {
        let MicroKernel { vector_len, tile: [_, nr], k_pack, .. } = *self.kernel;
        let k_groups = self.kernel.k_groups(k_range.len());
        // A few rows of B at a time, across all panels: neighbors in memory are read together.
        // Where columns are contiguous along k, each is read as a whole.
        let along_k = self.product.b.strides()[1] == 1 && !self.kernel.padded_a;
        let unit = if along_k { piece.len().max(1) } else { self.pack_unit() };
        for k in chunks(piece, unit) {
            let done = (k.start - k_range.start) / k_pack;
            for of in chunks(cols.clone(), nr) {
                let from = self.cols.start + of.start..self.cols.start + of.end;
                let width = of.len().next_multiple_of(vector_len);
                let to = to.wrapping_add((of.start - cols.start) * k_groups + done * width);
                // SAFETY: these columns are in the matrix. The scratch holds them, and the panels
                // and pieces of other threads are disjoint.
                unsafe { self.kernel.pack_b(self.product.b, from, k.clone(), width, to) };
            }
        }
    }

    /// A micro-panel of A for a KC step: its address, and its strides along rows and along k.
    ///
    /// Rows that the macro tile has packed for itself are at `dest`. For a micro-kernel that reads
    /// padded A, unpacked rows are packed there first, except for the `rows_already_packed` of
    /// [`OverlappedPacking`].
    fn micro_panel(
        &self,
        rows: Range<usize>,
        step: &KcStep<T::Acc>,
        rows_already_packed: usize,
        dest: *mut T::Acc,
    ) -> (*const T::Acc, isize, isize) {
        let k_range = step.k_range.clone();
        let MicroKernel { padded_a, pack: [pack, _], .. } = *self.kernel;
        let (a, k_groups) = (self.product.a, self.kernel.k_groups(k_range.len()));
        let [row_stride, k_stride] = a.strides();
        let rows_of_a = self.rows.start + rows.start..self.rows.start + rows.end;
        let packed_row_stride = (k_groups * size_of::<T::Acc>()) as isize;
        if self.plan.own_a {
            (dest, packed_row_stride, 1)
        } else if self.plan.packed[0] {
            (self.packed_a(&rows, step.k_groups_before, k_groups), packed_row_stride, 1)
        } else if !padded_a {
            let first = a.at(rows_of_a.start, k_range.start).cast();
            (first, row_stride.wrapping_mul(size_of::<T>() as isize), k_stride)
        } else {
            if rows_already_packed < rows_of_a.len() {
                let to = dest.wrapping_add(rows_already_packed * self.kernel.k_unit);
                // SAFETY: these rows are in the matrix, and the scratch of a worker holds them.
                unsafe { pack(a, rows_of_a.start + rows_already_packed..rows_of_a.end, k_range, k_groups, to) };
            }
            (dest, packed_row_stride, 1)
        }
    }

    /// The rows of the next micro-panel to pack to `dest` during one of `tiles` micro-tiles.
    ///
    /// None if all are packed, if the micro-panel is not full, or if the micro-kernel does not read
    /// padded A. Otherwise A is contiguous along k.
    fn overlapped_packing(
        &self,
        rows: &Range<usize>,
        k_range: Range<usize>,
        rows_already_packed: usize,
        tiles: usize,
        dest: *mut T::Acc,
    ) -> OverlappedPacking {
        let (MicroKernel { padded_a, tile: [mr, _], k_unit, .. }, a) = (self.kernel, self.product.a);
        if !padded_a || self.plan.packed[0] || rows.len() < *mr || rows_already_packed == *mr {
            return OverlappedPacking::NONE;
        }
        let group_bytes = k_unit * size_of::<T::Acc>();
        let tail_bytes = (k_range.len() * size_of::<T>() - 1) % group_bytes + 1;
        OverlappedPacking {
            source: a.at(self.rows.start + rows.start + rows_already_packed, k_range.start).cast(),
            source_row: a.strides()[0].wrapping_mul(size_of::<T>() as isize),
            rows: mr.div_ceil(tiles).next_power_of_two().clamp(4, *mr),
            dest: dest.wrapping_add(rows_already_packed * k_unit).cast(),
            tail_mask: u64::MAX >> (group_bytes - tail_bytes),
            ..OverlappedPacking::NONE
        }
    }

    /// The macro-kernel without packing B.
    ///
    /// # Safety
    /// As for [`Product::run`], for this step.
    unsafe fn macro_kernel_unpacked(&self, step: &KcStep<T::Acc>) {
        let &KcStep { ref rows, ref cols, ref k_range, scale: [alpha, beta], accumulators: c, last, .. } = step;
        let (a, b, sizes) = (self.product.a, self.product.b, [rows.len(), cols.len(), k_range.len()]);
        let (a_strides, b_strides, c_row_stride) = (a.strides(), b.strides(), c.row_stride());
        let a = a.at(self.rows.start + rows.start, k_range.start);
        let (b, first) = (b.at(self.cols.start + cols.start, k_range.start), c.at(rows.start, cols.start));
        let b_reads = self.plan.b_reads;
        let part = UnpackedProduct { sizes, alpha, a, a_strides, b, b_strides, beta, c: first, c_row_stride, b_reads };
        // All of k: these micro-kernels do not read partial sums of earlier steps, which are in
        // scratch.
        if last && sizes[2] == self.product.sizes[2] && self.needs_only_rounding() {
            let c_row_stride = self.product.c.row_stride;
            let part = UnpackedProduct { c: self.c_at(rows, cols).cast(), c_row_stride, ..part };
            // SAFETY: the part is in C, and its operands are in A and B.
            if unsafe { part.run_rounded(self.kernel) } {
                return self.product.count_work(sizes);
            }
        }
        // SAFETY: the part is in C or in scratch, and its operands are in A and B, whose elements
        // need no packing.
        unsafe { part.run(self.kernel) };
        if last {
            // SAFETY: the caller's promise; after the last step the accumulators are complete.
            unsafe { self.epilogue(rows.clone(), cols.clone(), c) };
        }
        self.product.count_work(sizes);
    }

    /// Whether complete accumulators are only rounded to the type of C, and its rows contiguous.
    fn needs_only_rounding(&self) -> bool {
        let Product { alpha, beta, c, epilogue, .. } = self.product;
        *alpha == T::Acc::ONE && *beta == T::Acc::ZERO && epilogue.is_none() && c.col_stride == 1
    }

    fn block_epilogue(&self) -> MatrixEpilogue<T::Out> {
        self.product.epilogue.submatrix(self.rows.start, self.cols.start)
    }

    /// Stores complete accumulators to C: scaled, with the epilogue, and rounded once where C is
    /// narrower.
    ///
    /// `width` is the row stride of the accumulators.
    ///
    /// # Safety
    /// As for [`Product::run`].
    unsafe fn epilogue_to_c(&self, rows: Range<usize>, cols: Range<usize>, accumulators: *const T::Acc, width: usize) {
        let Product { alpha, beta, c, .. } = *self.product;
        let c = c.submatrix(self.rows.start, self.cols.start);
        let epilogue = self.block_epilogue();
        if self.needs_only_rounding() {
            let to = c.at(rows.start, cols.start);
            // SAFETY: the caller's promise; rows are disjoint, and the accumulators are complete.
            return unsafe { (self.kernel.narrow)(accumulators, width, to, c.row_stride, [rows.len(), cols.len()]) };
        }
        for (i, row) in rows.enumerate() {
            let accumulators = accumulators.wrapping_add(i * width);
            // SAFETY: as above.
            unsafe {
                let accumulator = |col: usize| alpha.times(accumulators.wrapping_add(col).read());
                store_row::<T>(accumulator, cols.clone(), beta, epilogue, c, row);
            }
        }
    }
}

/// `C ← act(beta·C + bias)` for an m×n matrix: the product where k or alpha is 0.
///
/// # Safety
/// As for [`Product::run`].
pub unsafe fn scale_c<T: CpuElement>(
    m: usize,
    n: usize,
    beta: T::Acc,
    epilogue: MatrixEpilogue<T::Out>,
    c: MatrixPtr<T::Out>,
) {
    for row in 0..m {
        // SAFETY: the caller's promise.
        unsafe { store_row::<T>(|_| T::Acc::ZERO, 0..n, beta, epilogue, c, row) };
    }
}

/// Micro-panels of A that are packed at a time.
const MICRO_PANELS: usize = 8;
/// Chunks of packing per thread: enough that no thread waits long for the last.
const PACK_CHUNKS: usize = 2;
/// Chunks per thread that add slices.
const ADD_CHUNKS: usize = 2;
/// Elements that the epilogue processes at a time.
const EPILOGUE_CHUNK: usize = 64;

/// `c ← act(accumulator + beta·c + bias)` for columns of a row. Where `beta` is 0, `c` is not read.
///
/// # Safety
/// As for [`Product::run`], for these elements.
unsafe fn store_row<T: CpuElement>(
    accumulator: impl Fn(usize) -> T::Acc,
    cols: Range<usize>,
    beta: T::Acc,
    epilogue: MatrixEpilogue<T::Out>,
    c: MatrixPtr<T::Out>,
    row: usize,
) {
    let mut values = [T::Acc::ZERO; EPILOGUE_CHUNK];
    for chunk in chunks(cols.clone(), EPILOGUE_CHUNK) {
        let values = &mut values[..chunk.len()];
        for (value, col) in values.iter_mut().zip(chunk.clone()) {
            // SAFETY: the caller's promise.
            *value = unsafe { add_scaled::<T>(accumulator(col - cols.start), beta, c.at(row, col)) };
        }
        // SAFETY: the bias has the columns of C.
        unsafe { epilogue.apply::<T>(row, chunk.start, values) };
        let mut narrow = [<T::Out as Scalar>::ZERO; EPILOGUE_CHUNK];
        let narrow = &mut narrow[..chunk.len()];
        T::narrow_slice(values, narrow);
        for (&value, col) in narrow.iter().zip(chunk) {
            // SAFETY: the caller's promise.
            unsafe { c.at(row, col).write(value) };
        }
    }
}

/// `accumulator + beta·c`. Where `beta` is 0, `c` is not read.
///
/// # Safety
/// `c` is not aliased, and initialized where `beta` is not 0.
unsafe fn add_scaled<T: CpuElement>(accumulator: T::Acc, beta: T::Acc, c: *const T::Out) -> T::Acc {
    // SAFETY: the caller's promise.
    if beta == T::Acc::ZERO { accumulator } else { accumulator.plus(beta.times(T::widen_out(unsafe { c.read() }))) }
}

/// The chunk `i` of a range in `count` chunks, as even as multiples of `unit` allow.
fn nth_chunk(range: Range<usize>, count: usize, unit: usize, i: usize) -> Range<usize> {
    let units = range.len().div_ceil(unit);
    let at = |i: usize| range.end.min(range.start + units * i / count * unit);
    at(i)..at(i + 1)
}
