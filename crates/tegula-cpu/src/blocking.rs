//! The blocking of a product: MC, NC, KC, packing, and macro tiles for how many threads. Sizes,
//! strides and the CPU decide, never values.
//!
//! Only [`BlockingPlan::slices`] and [`BlockingPlan::update_steps`] affect the bits of the result.
//! Both are parts of its [`Accumulation`], and independent of the number of threads.

use std::ops::Range;

use super::accumulation::{Accumulation, MIN_SKINNY_WORK, STREAMED_COLS, slice_len};
use super::caches::Caches;
use super::grid::{C_L2, Grid};
use super::micro_kernel::{CpuElement, FirstRows, MicroKernel};
use super::problem::{BlockingProblem, grid_problem, justified_threads, work};
use super::unpacked::BReads;

/// Chunks per thread of a product with few rows, macro tiles of all slices, that are enough; and
/// the number on many threads, where slices alone are fewer.
const ENOUGH_CHUNKS: usize = 4;
const SLICED_CHUNKS: usize = 8;
/// Least columns of a macro tile for each row of A, where threads have several macro tiles each,
/// and columns of B are contiguous along k.
const ALONG_K_COLS_PER_ROW: usize = 8;
/// Most bytes of A that a thread packs there, in sizes of the L2 cache. Longer rows are read again
/// from memory for every vector of columns.
const ALONG_K_L2: usize = 4;
/// Updates of C for each panel that the first rows pack: all but the first find the micro-tile of C
/// in the L1 cache, and rows of A are read in longer pieces.
const UPDATES_PER_PANEL: usize = 2;
/// Largest MC and NC where a block needs a workspace; a multiple of MR and NR of every
/// micro-kernel.
const MAX_BLOCK: usize = 3840;
/// Macro tiles per thread of an unpacked product: enough that no thread waits long for the last.
const TILES_PER_THREAD: usize = 2;

/// The blocking of a product.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockingPlan {
    /// KC: steps of k that are packed at once.
    pub kc: usize,
    /// Steps of k between two updates of C: KC, or a part of it.
    pub update_steps: usize,
    /// Whether A and B are packed.
    ///
    /// Packed A implies packed B and a single slice: a product without packed B reads both operands
    /// unpacked, and only a product with unpacked A is sliced.
    pub packed: [bool; 2],
    /// Whether each macro tile packs its rows of A for itself, a KC step at a time. Few rows
    /// [along k](Self::along_k) do so where A is not packed.
    pub own_a: bool,
    /// Split-K slices, whose partial sums are added in order.
    pub slices: usize,
    /// Whether C itself holds the accumulators.
    pub in_place: bool,
    /// Whether MR rows at a time accumulate over all of k in a row strip: scratch of the worker for
    /// MR rows of its macro tile, which are then stored to C. Where a micro-kernel can round them
    /// and nothing else is to be done, they go from registers to C.
    pub row_strips: bool,
    /// MC and NC: rows and columns of a block of C.
    pub block: [usize; 2],
    /// Macro tiles of a block, along its rows and along its columns, and the threads that share
    /// them.
    pub grid: Grid,
    /// KC steps of a round: A that is packed first and B that is shared are packed for these steps
    /// at once, before the macro tiles multiply them.
    pub round_steps: usize,
    /// Whether B was packed before the call, and is read in that form.
    pub prepacked: bool,
    /// The micro-tile with which the first rows of a macro tile pack B, panel after panel.
    pub first_rows: Option<FirstRows>,
    /// How unpacked B is read.
    pub b_reads: BReads,
    /// Whether rows are few, and columns of B contiguous along k: the micro-kernels transpose B
    /// themselves. Each macro tile packs A for itself, unless A is packed first.
    pub along_k: bool,
    /// The rows and the columns of a macro tile are multiples of these.
    pub row_multiple: usize,
    pub col_multiple: usize,
}

impl BlockingPlan {
    /// Chooses the blocking of a product with a given accumulation.
    pub fn new<T: CpuElement>(
        kernel: &MicroKernel<T>,
        problem: &BlockingProblem<T::Acc>,
        accumulation: Accumulation,
    ) -> BlockingPlan {
        let BlockingProblem { sizes: [m, n, k], prepacked, .. } = *problem;
        let Accumulation {
            kc,
            slices,
            in_place,
            packed: packed @ [a_packed, b_packed],
            skinny,
            b_reads,
            first_rows,
            ..
        } = accumulation;
        let ([_, nr], justified, unpacked) = (kernel.tile, justified_threads::<T>(problem), !b_packed);
        let limited = |len: usize, needed: bool| if needed { len.min(MAX_BLOCK) } else { len };
        let few_rows = kernel.along_k.is_some_and(|along_k| m <= along_k.max_rows);
        let of_a = if a_packed { 0 } else { m.saturating_mul(slice_len(k, slices, kc)) };
        let fits = of_a.saturating_mul(size_of::<T>()) <= ALONG_K_L2 * Caches::detect().l2;
        // Threads share the columns alone.
        let enough_cols = n.div_ceil(kernel.vector_len).saturating_mul(slices) >= justified;
        let along_k = few_rows && b_packed && !prepacked && problem.b[1] == 1 && fits && enough_cols;
        // Otherwise C is accumulated in strips of a few rows.
        let first_rows = first_rows.filter(|_| b_packed && !along_k && (in_place || k > kc));
        let row_strips = !in_place && !unpacked && !along_k && slices == 1 && k <= kc;
        let whole = !in_place && !row_strips;
        let block = [limited(m, a_packed || whole), limited(n, whole && !(skinny && slices > 1))];
        let prepacked = prepacked && !unpacked;
        // Columns of macro tiles of a slice. Few rows have several chunks for each thread; other
        // slices are longer.
        let parts_of_slice = match () {
            _ if skinny && slices > 1 && justified > 1 => {
                // Two threads gain nothing from more chunks.
                let lacks_chunks = justified > 2 && slices < ENOUGH_CHUNKS * justified;
                let each = if lacks_chunks { SLICED_CHUNKS } else { ENOUGH_CHUNKS };
                (each * justified).min(work(problem.sizes) / MIN_SKINNY_WORK).max(justified).div_ceil(slices)
            }
            _ if slices >= justified => 1,
            _ => justified,
        };
        let of_grid = grid_problem(kernel, problem, block, [kc, slices], packed);
        let mut grid = match () {
            _ if along_k => grid_along_k(kernel, block, parts_of_slice),
            // All rows of a macro tile, so that the height of micro-tiles depends on m alone.
            _ if matches!(b_reads, BReads::WholeColumns(_)) => {
                unpacked_grid(kernel, [block[0].min(kernel.tile[0]), block[1]], parts_of_slice, skinny)
            }
            _ if unpacked && (skinny || slices > 1) => unpacked_grid(kernel, block, parts_of_slice, skinny),
            _ if first_rows.is_some() && skinny => {
                grid_of_columns(kernel, block, parts_of_slice, true, C_L2 * Caches::detect().l2)
            }
            _ => Grid::choose(&of_grid),
        };
        // Slices are shared as well.
        if slices > 1 {
            grid.threads = justified.min(slices * grid.tiles[0] * grid.tiles[1]);
        }
        // If all macro tiles are several NR wide, only the last has a partial micro-tile.
        let (update_steps, kc) = (kc, if first_rows.is_some() { UPDATES_PER_PANEL * kc } else { kc });
        let nr = first_rows.map_or(nr, |first| first.tile[1] * kernel.vector_len);
        let wide = block[1] >= 4 * nr * grid.tiles[1] && !along_k;
        let col_multiple = if prepacked || !unpacked && wide { nr } else { kernel.vector_len };
        // Rows that no other macro tile needs: their thread packs them, and no other waits.
        let own_a = of_grid.pack_a && grid.tiles[1] == 1 && !along_k;
        let mut plan = BlockingPlan {
            kc,
            update_steps,
            packed,
            own_a,
            slices,
            in_place,
            row_strips,
            block,
            grid,
            round_steps: k.div_ceil(kc),
            row_multiple: if skinny { kernel.tile[0] } else { of_grid.tile[0] },
            col_multiple,
            prepacked,
            first_rows,
            b_reads,
            along_k,
        };
        if plan.packs_first() {
            let lanes = if plan.packs_a_first() { block[0] } else { 0 } + if grid.shared_b { block[1] } else { 0 };
            let step_bytes = lanes.saturating_mul(kernel.k_groups(kc) * size_of::<T::Acc>());
            // What one round packs stays in half of the L2 caches.
            let budget = if grid.threads > 1 { grid.threads * Caches::detect().l2 / 2 } else { 0 };
            let rounds = plan.round_steps.div_ceil((budget / step_bytes.max(1)).max(1));
            plan.round_steps = plan.round_steps.div_ceil(rounds);
        }
        plan
    }

    /// Whether operands are packed in a phase of its own, before macro tiles multiply them.
    pub fn packs_first(&self) -> bool {
        self.packs_a_first() || self.grid.shared_b
    }

    /// Whether A is packed in that phase.
    pub fn packs_a_first(&self) -> bool {
        self.packed[0] && !self.own_a
    }

    /// Steps of k in each slice; the last may have fewer.
    pub fn slice_len(&self, k: usize) -> usize {
        slice_len(k, self.slices, self.update_steps)
    }

    /// Number of MC×NC blocks of C.
    pub fn block_count(&self, [m, n]: [usize; 2]) -> usize {
        m.div_ceil(self.block[0]) * n.div_ceil(self.block[1])
    }

    /// Row and column ranges of an MC×NC block of C, rows outermost.
    pub fn block_at(&self, [m, n]: [usize; 2], index: usize) -> (Range<usize>, Range<usize>) {
        let ([rows, cols], block_cols) = (self.block, n.div_ceil(self.block[1]));
        let (row, col) = (index / block_cols * rows, index % block_cols * cols);
        (row..m.min(row + rows), col..n.min(col + cols))
    }

    /// Extents of the workspaces for packed A, shared panels of B, packed panels of each thread,
    /// and accumulators. Only the allocator multiplies them.
    pub fn workspace_extents<T: CpuElement>(&self, kernel: &MicroKernel<T>, [m, n, k]: [usize; 3]) -> [[usize; 3]; 4] {
        let k_groups = kernel.k_groups(k.min(self.kc));
        let [rows, cols] = [m.min(self.block[0]), n.min(self.block[1])];
        let of_a =
            if self.packs_a_first() { [self.packed_rows(kernel, rows), k_groups, self.round_steps] } else { [0; 3] };
        let of_b =
            if self.grid.shared_b { [self.packed_cols(kernel, cols), k_groups, self.round_steps] } else { [0; 3] };
        let lanes = self.packed_lanes_per_worker(kernel, [rows, cols]);
        let of_workers = match () {
            _ if self.along_k => [self.values_along_k(kernel, [m, n, k]), 1, self.grid.threads],
            _ if self.packed[1] => [lanes, k_groups, self.grid.threads],
            _ => [0; 3],
        };
        let accumulators = match () {
            _ if self.in_place => [0; 3],
            _ if self.row_strips => [kernel.tile[0], self.widest_tile(kernel, cols), self.grid.threads],
            _ => [rows, cols, self.slices],
        };
        [of_a, of_b, of_workers, accumulators]
    }

    /// Values that a worker packs where B is contiguous along k: a vector of columns of a KC step,
    /// and unpacked rows of A.
    pub fn values_along_k<T: CpuElement>(&self, kernel: &MicroKernel<T>, [m, _, k]: [usize; 3]) -> usize {
        let (steps, k_groups) = (self.slice_len(k) / self.kc, kernel.k_groups(self.kc.min(k)));
        let rows = if self.packed[0] { 0 } else { m.min(self.block[0]) };
        rows.saturating_mul(steps).saturating_add(kernel.vector_len).saturating_mul(k_groups)
    }

    /// Rows of packed A for rows of a block.
    pub fn packed_rows<T: CpuElement>(&self, kernel: &MicroKernel<T>, rows: usize) -> usize {
        if kernel.padded_a { rows.next_multiple_of(kernel.tile[0]) } else { rows }
    }

    /// Columns of packed B for columns of a block: whole vectors.
    pub fn packed_cols<T: CpuElement>(&self, kernel: &MicroKernel<T>, cols: usize) -> usize {
        cols.next_multiple_of(kernel.vector_len)
    }

    /// Lanes that a worker packs for itself: the columns of its macro tile, unless they are shared,
    /// and its rows, unless they are packed first or read unpacked.
    ///
    /// For a micro-kernel that reads padded A, an unpacked operand adds the current and the next MR
    /// rows.
    pub fn packed_lanes_per_worker<T: CpuElement>(&self, kernel: &MicroKernel<T>, [rows, cols]: [usize; 2]) -> usize {
        let of_a = match self.packed[0] {
            // Whole vectors, so that the panels of the next worker begin at one.
            true if self.own_a => self.tallest_tile(rows).next_multiple_of(kernel.vector_len),
            false if kernel.padded_a => 2 * kernel.tile[0],
            _ => 0,
        };
        self.packed_cols_per_worker(kernel, cols) + of_a
    }

    /// Rows of the tallest macro tile of a block of `rows` rows.
    fn tallest_tile(&self, rows: usize) -> usize {
        (rows.div_ceil(self.row_multiple).div_ceil(self.grid.tiles[0]) * self.row_multiple).min(rows)
    }

    /// Columns of B that a worker packs for itself.
    pub fn packed_cols_per_worker<T: CpuElement>(&self, kernel: &MicroKernel<T>, cols: usize) -> usize {
        match self.first_rows {
            _ if self.prepacked || self.grid.shared_b => 0,
            // One panel at a time.
            Some(first) => self.widest_tile(kernel, cols).min(first.tile[1] * kernel.vector_len),
            None => self.widest_tile(kernel, cols),
        }
    }

    /// Columns of the widest macro tile of a block of `cols` columns, in whole vectors.
    pub fn widest_tile<T: CpuElement>(&self, kernel: &MicroKernel<T>, cols: usize) -> usize {
        (cols.div_ceil(self.col_multiple).div_ceil(self.grid.tiles[1]) * self.col_multiple)
            .min(cols.next_multiple_of(kernel.vector_len))
    }
}

/// The grid of a product with few rows, where columns of B are contiguous along k: threads share
/// the columns.
fn grid_along_k<T: CpuElement>(kernel: &MicroKernel<T>, [rows, cols]: [usize; 2], threads: usize) -> Grid {
    // A macro tile may pack A for itself: a small part of the time of its columns.
    let each = if threads > 1 { (cols / (threads * ALONG_K_COLS_PER_ROW * rows)).clamp(1, ENOUGH_CHUNKS) } else { 1 };
    let tiles = (each * threads).min(cols.div_ceil(kernel.vector_len)).max(1);
    Grid { threads: threads.min(tiles), tiles: [1, tiles], shared_b: false }
}

/// The grid of a product that reads A and B unpacked.
fn unpacked_grid<T: CpuElement>(kernel: &MicroKernel<T>, block: [usize; 2], threads: usize, skinny: bool) -> Grid {
    // The accumulators of few rows, which every step of k adds to, stay in the L2 cache.
    let most = if skinny { Caches::detect().l2 / 8 } else { usize::MAX };
    grid_of_columns(kernel, block, threads, skinny, most)
}

/// A grid where threads share the columns, and rows only where columns are too few. A macro tile of
/// a product with few rows has at most so many bytes of accumulators.
fn grid_of_columns<T: CpuElement>(
    kernel: &MicroKernel<T>,
    block: [usize; 2],
    threads: usize,
    skinny: bool,
    most_bytes: usize,
) -> Grid {
    let units = [block[0].div_ceil(kernel.tile[0]), block[1].div_ceil(kernel.vector_len)];
    let tiles = match threads {
        1 => 1,
        // Long pieces of the rows of B touch fewer pages.
        _ if skinny => threads,
        _ => TILES_PER_THREAD * threads,
    };
    let min_units = STREAMED_COLS.div_ceil(kernel.vector_len);
    // The same number of macro tiles for every thread.
    let cols = tiles.min(units[1] / min_units) / threads * threads;
    // With fewer columns, as many macro tiles as threads, as far as whole vectors allow.
    let cols = if cols > 0 { cols } else { units[1].div_ceil(units[1].div_ceil(threads)) };
    let bytes = block[0].saturating_mul(block[1]).saturating_mul(size_of::<T::Acc>());
    let pieces = bytes.div_ceil(most_bytes);
    let cols = if pieces > cols { pieces.next_multiple_of(cols).min(units[1]) } else { cols };
    let rows = if cols < threads { (tiles / cols).clamp(1, units[0]) } else { 1 };
    Grid { threads, tiles: [rows, cols], shared_b: false }
}

/// Splits a range into chunks of `size`; the last may be smaller.
pub fn chunks(range: Range<usize>, size: usize) -> impl Iterator<Item = Range<usize>> {
    range.clone().step_by(size).map(move |start| start..range.end.min(start + size))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_share_few_rows_of_any_width() {
        let kernel = f32::micro_kernel(crate::Isa::chosen(tegula_core::element::Type::F32).unwrap());
        for threads in [1, 2, 3, 7, 16, 64] {
            for n in (STREAMED_COLS..20_000).step_by(61) {
                let units = n.div_ceil(kernel.vector_len);
                let Grid { tiles: [rows, cols], .. } = unpacked_grid(kernel, [32, n], threads, true);
                assert!(cols <= units && (rows == 1 || rows * cols <= threads), "{n}: {rows}×{cols} tiles");
                let Grid { tiles: [rows, cols], .. } = unpacked_grid(kernel, [3, n], threads, true);
                assert_eq!(rows, 1, "{n}, {threads} threads");
                // No thread has twice the columns of an even share, or at most two vectors.
                let most = units.div_ceil(cols);
                assert!(most <= (2 * units / threads).max(2), "{n}, {threads} threads: {cols} tiles");
            }
        }
    }

    /// The first rows pack at little cost, and panels of other cores are read slowly.
    #[test]
    fn threads_that_pack_with_their_first_rows_share_no_panels() {
        for isa in crate::Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
            let kernel = f32::micro_kernel(isa);
            for (size, threads) in [(512, 2), (1000, 4), (1024, 16), (2048, 64)] {
                let problem = BlockingProblem {
                    sizes: [size; 3],
                    scalars: [1.0, 0.0],
                    a: [size as isize, 1],
                    b: [1, size as isize],
                    c_col: 1,
                    prepacked: false,
                    threads,
                    batch_invariant: false,
                };
                let plan = BlockingPlan::new(kernel, &problem, Accumulation::new(kernel, &problem));
                let packs = plan.packed[1] && kernel.first_rows.is_some();
                assert_eq!(plan.first_rows.is_some(), packs, "{isa} {size}");
                assert!(!(packs && plan.grid.shared_b), "{isa} {size}");
                assert_eq!(plan.grid.threads, threads, "{isa} {size}");
            }
        }
    }
}
