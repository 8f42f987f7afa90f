//! The blocking of a product: MC, NC, KC, packing, and macro tiles for how many threads. Sizes,
//! strides and the CPU decide, never values.
//!
//! Only [`BlockingPlan::slices`] and [`BlockingPlan::update_steps`] affect the bits of the result.
//! Both are parts of its [`Accumulation`], and independent of the number of threads.

use std::ops::Range;

use tegula_core::element::Scalar;

use super::caches::{Caches, LINE};
use super::grid::{C_L2, CONFLICT_BYTES, Grid, GridProblem, PAGE};
use super::micro_kernel::{CpuElement, FirstRows, MicroKernel, WHOLE_ROWS, columns_side_by_side};
use super::scratch::MAX_FREE_BYTES;
use super::unpacked::BReads;

/// Row stride of B in bytes up to which its rows are as close as in a packed panel. On one thread
/// packing still pays for a long k.
const DENSE_STRIDE: usize = 256;
/// Columns of C up to which reading A takes most of the time.
const LONG_KC_COLS: usize = 128;
/// Where C is narrower than its accumulators, k of up to so many times KC is one step. On a Zen 4
/// products of bf16 of 256 rows and more take 2 to 7 percent less time, and those of fewer rows up
/// to 2.5 more.
const WHOLE_KC: usize = 4;
/// KC where B is streamed from memory: few enough steps to read its rows side by side.
const STREAMED_KC: usize = 32;
/// The same where the next rows are prefetched: more steps update C less often.
const PREFETCHED_KC: usize = 192;
/// Rows up to which AMX uses a shorter KC.
const SHORT_KC_ROWS: usize = 128;
/// The shorter KC in k units: few enough that packing reads along the rows of B.
const SHORT_KC_UNITS: usize = 8;
/// Least columns of a macro tile of a product with few rows.
const STREAMED_COLS: usize = 256;
/// Multiply-adds that justify another thread where no cost model decides; fewer under Miri, which
/// looks for races.
const WORK_PER_THREAD: usize = if cfg!(miri) { 1 << 7 } else { 1 << 18 };
/// Bytes of B that do so too: reading them from an L3 cache takes about as long.
const BYTES_PER_THREAD: usize = 1 << 20;
/// Least steps of k in a split-K slice.
const MIN_SLICE_STEPS: usize = 2048;
/// Most split-K slices.
const MAX_SLICES: usize = 16;
/// Most elements of C for which a long k is split into slices.
const SLICED_ELEMENTS: usize = 256 * 256;
/// The same where columns of B are read whole.
const SLICED_COLUMNS: usize = 256;
/// Most slices of few rows: enough that fast threads take more of them.
const MAX_SKINNY_SLICES: usize = 64;
/// Bytes of a row of B that a slice of few rows reads at once. Threads that share the columns
/// instead would read pieces of a few cache lines, each from another page, which the processor
/// does not fetch ahead.
const SLICED_ROW: usize = 4096;
/// Least steps of k of such a slice, and for each row of A: adding the slices takes a small part of
/// the time of reading B.
const MIN_SKINNY_STEPS: usize = 128;
const SKINNY_STEPS_PER_ROW: usize = 16;
/// Chunks per thread of such a product, macro tiles of all slices, that are enough; and the number
/// on many threads, where slices alone are fewer.
const ENOUGH_CHUNKS: usize = 4;
const SLICED_CHUNKS: usize = 8;
/// Least multiply-adds of such a slice, and of such a chunk.
const MIN_SKINNY_WORK: usize = 1 << 19;
/// Least columns of a macro tile for each row of A, where threads have several macro tiles each,
/// and columns of B are contiguous along k.
const ALONG_K_COLS_PER_ROW: usize = 8;
/// Most bytes of A that a thread packs there, in sizes of the L2 cache. Longer rows are read again
/// from memory for every vector of columns.
const ALONG_K_L2: usize = 4;
/// Least columns and steps of k where the first rows pack B: several panels, one of which is
/// prefetched during another, and few updates of C.
const FIRST_ROWS_COLS: usize = 128;
const FIRST_ROWS_STEPS: usize = 128;
/// Updates of C for each panel that the first rows pack: all but the first find the micro-tile of C
/// in the L1 cache, and rows of A are read in longer pieces.
const UPDATES_PER_PANEL: usize = 2;
/// Multiply-adds below which several threads read both operands unpacked, if rows of B are less
/// than a page and not half a page apart: these stay in the cache of each thread. Rows that are
/// half a page apart fall into few sets of the L1 cache.
const CACHED_WORK: usize = 1 << 26;
/// Columns from which several rows of A read whole rows of B.
const WHOLE_ROWS_COLS: usize = 1024;
/// Largest MC and NC where a block needs a workspace; a multiple of MR and NR of every
/// micro-kernel.
const MAX_BLOCK: usize = 3840;
/// Macro tiles per thread of an unpacked product: enough that no thread waits long for the last.
const TILES_PER_THREAD: usize = 2;
/// Packed values that a core with AMX multiplies in a cycle.
const AMX_RATE: usize = 256;

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
    /// MR rows of its macro tile, which are then stored to C.
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

/// The input of [`Accumulation::new`] and [`BlockingPlan::new`].
#[derive(Clone, Copy)]
pub struct BlockingProblem<S> {
    /// m, n and k, all nonzero.
    pub sizes: [usize; 3],
    /// alpha and beta.
    pub scalars: [S; 2],
    /// Strides of A in elements: along its rows, and along k.
    pub a: [isize; 2],
    /// Strides of B in elements: along its columns, and along k.
    pub b: [isize; 2],
    /// Column stride of C in elements.
    pub c_col: isize,
    /// Whether all of B was packed before the call.
    pub prepacked: bool,
    /// Available threads.
    pub threads: usize,
    /// Whether the bits of a row must not depend on other rows, or on strides.
    pub batch_invariant: bool,
}

/// How the sums of a product accumulate: all that decides its bits, and whether it needs a plan.
/// What is packed may depend on the number of threads; KC, slices and `in_place` never do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Accumulation {
    /// [`BlockingPlan::update_steps`].
    pub kc: usize,
    /// [`BlockingPlan::slices`].
    slices: usize,
    /// [`BlockingPlan::in_place`].
    in_place: bool,
    /// [`BlockingPlan::packed`].
    packed: [bool; 2],
    /// Whether C has few rows, so that B is read once.
    skinny: bool,
    /// [`BlockingPlan::b_reads`].
    pub b_reads: BReads,
    /// The micro-tile with which the first rows of a macro tile may pack B.
    first_rows: Option<FirstRows>,
    /// Whether one thread computes the product in place from unpacked operands, without blocks,
    /// workspaces or tasks: they take longer than a product of a microsecond.
    pub unblocked: bool,
}

/// Largest m, n and k of a small product: one step of k, one slice, too little work for a plan for
/// several threads, and rows of B in the L1 cache at any stride.
pub const SMALL_EXTENT: usize = 64;

/// Whether a small product, if the columns of B are contiguous, reads it unpacked. The micro-kernel
/// and the sizes decide, as in [`Accumulation::new`].
#[inline]
pub fn is_small_unpacked<T: CpuElement>(kernel: &MicroKernel<T>, sizes @ [m, ..]: [usize; 3]) -> bool {
    kernel.select_unpacked.is_some() && work(sizes) < kernel.unpacked_work(m)
}

/// Steps of k in each of `slices` slices, a multiple of KC; the last slice may have fewer.
fn slice_len(k: usize, slices: usize, kc: usize) -> usize {
    k.div_ceil(slices).next_multiple_of(kc)
}

/// The slices of a product with few rows: a power of two.
fn skinny_slices<T: CpuElement>(sizes @ [m, n, k]: [usize; 3]) -> usize {
    let bytes = |rows: usize, size: usize| rows.saturating_mul(n).saturating_mul(size);
    let most = [
        MAX_SKINNY_SLICES / (bytes(1, size_of::<T>()) / SLICED_ROW).max(1),
        k / MIN_SKINNY_STEPS.max(SKINNY_STEPS_PER_ROW * m),
        work(sizes) / MIN_SKINNY_WORK,
        // A thread keeps a buffer of so many for the next product.
        MAX_FREE_BYTES / bytes(m, size_of::<T::Acc>()),
    ];
    1 << most.into_iter().fold(MAX_SKINNY_SLICES, usize::min).max(1).ilog2()
}

/// The micro-tile with which the first rows may pack B: its columns are adjacent in memory, and the
/// product is large.
fn first_rows<T: CpuElement>(kernel: &MicroKernel<T>, problem: &BlockingProblem<T::Acc>) -> Option<FirstRows> {
    let BlockingProblem { sizes: [m, n, k], b, prepacked, .. } = *problem;
    let is_large = |min_rows| m >= min_rows && n >= FIRST_ROWS_COLS && k >= FIRST_ROWS_STEPS;
    kernel.first_rows.filter(|first| b[0] == 1 && !prepacked && is_large(first.min_rows))
}

/// Whether few rows of A, and columns of B, are contiguous along k, so that the micro-kernels read
/// them whole.
#[inline]
pub fn reads_whole_columns<T: CpuElement>(
    kernel: &MicroKernel<T>,
    sizes @ [_, n, k]: [usize; 3],
    a_strides: [isize; 2],
    b_strides: [isize; 2],
) -> bool {
    // Short columns of a small product are transposed on the stack before lanes would be added.
    let is_long = n > SMALL_EXTENT || k >= 2 * kernel.vector_len;
    b_strides[1] == 1
        && (b_strides[0] != 1 || n == 1)
        && a_strides[1] == 1
        && kernel.whole_columns.is_some_and(|whole| is_long && whole.suits::<T>(sizes))
}

/// The slices of a product by [whole columns](BReads::WholeColumns): threads share the columns, and
/// only few columns are sliced.
fn column_slices(sizes @ [m, n, k]: [usize; 3]) -> usize {
    match m.saturating_mul(n) {
        ..=SLICED_COLUMNS => (k / MIN_SLICE_STEPS).min(work(sizes) / MIN_SKINNY_WORK).clamp(1, MAX_SLICES),
        _ => 1,
    }
}

/// Threads that the work of a product justifies.
fn justified_threads<T: CpuElement>(problem: &BlockingProblem<T::Acc>) -> usize {
    problem.threads.min(work_units::<T>(problem.sizes)).max(1)
}

/// How often the time of a product justifies another thread. Few rows take as long as reading B.
pub fn work_units<T: CpuElement>(sizes: [usize; 3]) -> usize {
    (work(sizes) / WORK_PER_THREAD).max(units_of_b::<T>(sizes))
}

/// How often the time of reading B does so.
pub fn units_of_b<T: CpuElement>([_, n, k]: [usize; 3]) -> usize {
    n.saturating_mul(k).saturating_mul(size_of::<T>()) / BYTES_PER_THREAD
}

/// The input of the search for a grid of C, or of a block of it.
fn grid_problem<T: CpuElement>(
    kernel: &MicroKernel<T>,
    problem: &BlockingProblem<T::Acc>,
    [rows, cols]: [usize; 2],
    [kc, slices]: [usize; 2],
    [packs_a, packs_b]: [bool; 2],
) -> GridProblem {
    let first_rows = first_rows(kernel, problem).filter(|_| packs_b);
    let tile = match (packs_b, first_rows) {
        (true, None) => kernel.tile,
        (true, Some(first)) => [first.tile[0], first.tile[1] * kernel.vector_len],
        (false, _) => {
            let vectors = kernel.unpacked_vectors(problem.sizes[0], false);
            [kernel.max_rows[vectors - 1], vectors * kernel.vector_len]
        }
    };
    let prepacked = problem.prepacked && packs_b;
    GridProblem {
        sizes: [rows, cols, kernel.k_groups(problem.sizes[2].div_ceil(slices))],
        tile,
        col_unit: if prepacked { kernel.tile[1] } else { kernel.vector_len },
        kc: kernel.k_groups(kc),
        value_bytes: size_of::<T::Acc>(),
        rate: rate(kernel),
        pack_a: packs_a && !kernel.padded_a,
        pack_b: packs_b && !prepacked,
        may_share: slices == 1 && first_rows.is_none(),
        first_rows_pack: first_rows.is_some(),
        b_row_bytes: if packs_b { 0 } else { problem.b[1].unsigned_abs().saturating_mul(size_of::<T>()) },
        l2: Caches::detect().l2,
        sharing: Caches::detect().sharing,
        threads: problem.threads.div_ceil(slices),
    }
}

/// Packed values that a core multiplies in a cycle.
fn rate<T: CpuElement>(kernel: &MicroKernel<T>) -> usize {
    if kernel.padded_a { AMX_RATE } else { 2 * kernel.vector_len }
}

/// Cycles of the multiplications of a product on one core.
pub fn cycles<T: CpuElement>(kernel: &MicroKernel<T>, [m, n, k]: [usize; 3]) -> usize {
    work([m, n, kernel.k_groups(k)]) / rate(kernel)
}

/// The multiply-adds of a product.
pub fn work([m, n, k]: [usize; 3]) -> usize {
    m.saturating_mul(n).saturating_mul(k)
}

impl Accumulation {
    /// Chooses the accumulation of a product.
    #[inline(always)]
    pub fn new<T: CpuElement>(kernel: &MicroKernel<T>, problem: &BlockingProblem<T::Acc>) -> Accumulation {
        let BlockingProblem { sizes: [m, n, k], scalars: [alpha, beta], a, b, c_col, prepacked, .. } = *problem;
        let [_, nr] = kernel.tile;

        let conflicts = |stride: isize| stride.unsigned_abs().saturating_mul(size_of::<T>()) >= CONFLICT_BYTES;
        let b_row_bytes = b[1].unsigned_abs().saturating_mul(size_of::<T>());
        let within = |stride: usize| b_row_bytes <= stride;
        let half_pages = b_row_bytes.is_multiple_of(PAGE / 2);
        let b_readable = kernel.select_unpacked.is_some() && (b[0] == 1 || n == 1);
        let small = work(problem.sizes) < kernel.unpacked_work(m) && (!conflicts(b[1]) || k <= 64);
        let skinny = m <= kernel.skinny_rows && n >= STREAMED_COLS;
        let narrow = n <= kernel.vector_len / 2 || m == 1;
        // Only floats round. The unpacked micro-kernels beside AMX round in another order than it.
        let fixed = problem.batch_invariant && !T::Acc::TYPE.is_int();
        // Rows of A contiguous along k are read unpacked. Distant columns would touch another page
        // at every k.
        let a_along_k = || a[1] == 1 && (kernel.padded_a || k.is_multiple_of(kernel.k_pack));
        let a_readable = kernel.direct_a && (a_along_k() || kernel.k_pack == 1 && (!conflicts(a[1]) || n <= 2 * nr));
        // Few rows of a strided A are read unpacked, since packed A is not sliced.
        let first_rows = first_rows(kernel, problem).filter(|_| a_readable || !skinny);
        // Unpacked on any number of threads: KC and slices depend on it, and so do the bits. Panels
        // of bytes, which have no bits to lose, are better than interleaving rows of B.
        let streamed = skinny && first_rows.is_none() && !(prepacked && kernel.compensation.is_some());
        let whole_columns = !fixed && reads_whole_columns(kernel, problem.sizes, a, b);
        let by_rows = b_readable && (streamed || narrow || small && !prepacked) && !(fixed && kernel.padded_a);
        let always_unpacked = whole_columns || by_rows;
        // Micro-tiles of several rows are as fast where rows of B are short.
        let has_long_rows = m == 1 || n >= WHOLE_ROWS_COLS;
        let b_reads = match kernel.whole_rows {
            _ if whole_columns => BReads::WholeColumns(columns_side_by_side::<T>(problem.sizes)),
            _ if !(always_unpacked && skinny) => BReads::Direct,
            Some(_) if m <= WHOLE_ROWS && has_long_rows && !fixed => BReads::WholeRows,
            _ if Caches::detect().need_prefetch => BReads::Prefetched,
            _ => BReads::Direct,
        };
        let prefetched = b_reads == BReads::Prefetched;
        let is_narrowed = size_of::<T::Out>() < size_of::<T::Acc>();
        // A panel of B as long as k is to leave room in the L2 cache.
        let whole_k = is_narrowed
            && k <= WHOLE_KC * kernel.kc
            && nr * kernel.k_groups(k) * size_of::<T::Acc>() <= Caches::detect().l2 / 2
            && kernel.along_k.is_none_or(|along_k| m > along_k.max_rows)
            && !(always_unpacked || prepacked || kernel.padded_a);
        let kc = match () {
            _ if fixed => kernel.kc,
            _ if whole_columns => k.div_ceil(column_slices(problem.sizes)).next_multiple_of(LINE),
            _ if prefetched && kernel.first_rows.is_some() => PREFETCHED_KC,
            _ if prefetched && (m > 1 || kernel.compensation.is_some()) => 4 * STREAMED_KC,
            _ if always_unpacked && skinny => STREAMED_KC,
            _ if !always_unpacked && !prepacked && kernel.padded_a && m <= SHORT_KC_ROWS => {
                SHORT_KC_UNITS * kernel.k_unit * kernel.k_pack
            }
            // Rows of A are better read in long pieces.
            _ if !prepacked && !kernel.padded_a && n <= LONG_KC_COLS => 2 * kernel.kc,
            // In one step, sums go from registers to the narrower elements of C, in several through
            // memory.
            _ if whole_k => WHOLE_KC * kernel.kc,
            _ => kernel.kc,
        };

        let long_k = k >= 2 * MIN_SLICE_STEPS && m.saturating_mul(n) <= SLICED_ELEMENTS;
        let slices = match () {
            _ if fixed || !(always_unpacked || a_readable) => 1,
            _ if whole_columns => column_slices(problem.sizes),
            _ if (always_unpacked || first_rows.is_some()) && skinny => skinny_slices::<T>(problem.sizes),
            _ if long_k => (k / MIN_SLICE_STEPS).min(MAX_SLICES),
            _ => 1,
        };
        // Rounded up to whole KC steps, fewer slices may cover k; none may be empty.
        let slices = if slices > 1 { k.div_ceil(slice_len(k, slices, kc)) } else { 1 };
        // Unpacked for speed alone. Elements that packing would group take longer unpacked.
        let is_empty = alpha == T::Acc::ZERO || k == 0;
        let decided = always_unpacked || prepacked || first_rows.is_some() && skinny;
        let readable = kernel.k_pack == 1 && a_readable && b_readable && !(decided || is_empty);
        let cycles =
            |packs_b| Grid::best_cycles(&grid_problem(kernel, problem, [m, n], [kc, slices], [false, packs_b]));
        let one_pass = || m <= kernel.max_rows[kernel.unpacked_vectors(m, false) - 1];
        let cached = readable
            && match justified_threads::<T>(problem) {
                // Packing takes as long as multiplying some tens of rows. Several passes read rows
                // of B on pages of their own slowly.
                1 if m <= kernel.skinny_rows && first_rows.is_none() => within(PAGE) || one_pass(),
                1 => within(DENSE_STRIDE) && k <= 2 * kernel.kc,
                _ if within(PAGE) && !half_pages && work(problem.sizes) < CACHED_WORK => true,
                _ => cycles(false) < cycles(true),
            };
        let unpacked = always_unpacked || cached;
        let exact = alpha == T::Acc::ONE && beta == T::Acc::ZERO || T::Acc::TYPE.is_int();
        // A float accumulator over several KC steps is scaled once, when complete: alpha times a
        // partial sum might overflow where the whole does not.
        let in_place =
            slices == 1 && <T::Out as Scalar>::TYPE == T::Acc::TYPE && (exact || k <= kc) && (c_col == 1 || n == 1);
        let unblocked = unpacked && in_place && justified_threads::<T>(problem) == 1;
        let packed = [!(unpacked || a_readable), !unpacked];
        Accumulation { kc, slices, in_place, packed, skinny, b_reads, first_rows, unblocked }
    }
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

    /// Few rows on one thread read B unpacked, unless several passes read pages of their own.
    #[test]
    fn few_rows_of_any_length_are_not_packed() {
        fn check<T: CpuElement>(sizes: [usize; 3], b_row: usize, packed: bool) {
            for isa in [crate::Isa::Avx2, crate::Isa::Avx512].into_iter().filter(|isa| isa.is_available()) {
                let problem = BlockingProblem {
                    sizes,
                    scalars: [T::Acc::ONE, T::Acc::ZERO],
                    a: [sizes[2] as isize, 1],
                    b: [1, b_row as isize],
                    c_col: 1,
                    prepacked: false,
                    threads: 1,
                    batch_invariant: false,
                };
                let accumulation = Accumulation::new(T::micro_kernel(isa), &problem);
                assert_eq!(accumulation.packed, [false, packed], "{isa} {sizes:?} {b_row}");
            }
        }
        check::<f64>([16, 200, 300], 200, false);
        check::<f64>([33, 100, 5000], 100, false);
        check::<f32>([16, 200, 10_000], 200, false);
        check::<f32>([2, 200, 10_000], 100_000, false);
        check::<f32>([33, 200, 10_000], 100_000, true);
        check::<f64>([200, 200, 300], 200, true);
    }

    /// All of k in one step only where that keeps sums out of memory.
    #[test]
    fn narrowed_products_accumulate_all_of_k() {
        fn kc<T: CpuElement>(sizes @ [_, n, k]: [usize; 3], [prepacked, batch_invariant]: [bool; 2]) -> usize {
            let (a, b, scalars) = ([k as isize, 1], [1, n as isize], [T::Acc::ONE, T::Acc::ZERO]);
            let problem = BlockingProblem { sizes, scalars, a, b, c_col: 1, prepacked, threads: 2, batch_invariant };
            Accumulation::new(T::micro_kernel(crate::Isa::Portable), &problem).kc
        }
        let short = half::bf16::micro_kernel(crate::Isa::Portable).kc;
        let of_bf16 = |m, k| kc::<half::bf16>([m, 600, k], [false; 2]);
        assert!(of_bf16(600, 2 * short) >= 2 * short);
        assert_eq!(of_bf16(600, WHOLE_KC * short + 1), short, "too long");
        for fixed in [[true, false], [false, true]] {
            assert_eq!(kc::<half::bf16>([600, 600, 2 * short], fixed), short, "{fixed:?}");
        }
        let of_f32 = f32::micro_kernel(crate::Isa::Portable).kc;
        assert_eq!(kc::<f32>([600, 600, 2 * of_f32], [false; 2]), of_f32, "C holds the sums");
    }

    /// The number of threads decides what is packed, but not KC or slices.
    #[test]
    fn threads_decide_packing_alone() {
        fn check<T: CpuElement>(sizes: [usize; 3], packs_on_16: Option<bool>) {
            let [_, n, k] = sizes;
            for isa in crate::Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                let kernel = T::micro_kernel(isa);
                let accumulation = |threads| {
                    let (a, b) = ([k as isize, 1], [1, n as isize]);
                    let scalars = [T::Acc::ONE, T::Acc::ZERO];
                    let common = BlockingProblem {
                        sizes,
                        scalars,
                        a,
                        b,
                        c_col: 1,
                        prepacked: false,
                        threads,
                        batch_invariant: false,
                    };
                    Accumulation::new(kernel, &common)
                };
                let (alone, of_16) = (accumulation(1), accumulation(16));
                assert_eq!((alone.kc, alone.slices, alone.in_place), (of_16.kc, of_16.slices, of_16.in_place), "{isa}");
                // Elements that packing groups are always packed.
                let readable = kernel.k_pack == 1 && kernel.direct_a && kernel.select_unpacked.is_some();
                let packs_on_16 = if readable { packs_on_16 } else { Some(true) };
                assert!(alone.packed[1], "{isa} {} {sizes:?}", T::TYPE);
                assert_eq!(packs_on_16.unwrap_or(of_16.packed[1]), of_16.packed[1], "{isa} {} {sizes:?}", T::TYPE);
            }
        }
        // In the caches; as the model decides; so many rows that packing is little work.
        for (sizes, packs_on_16) in [([320; 3], Some(false)), ([512; 3], None), ([4096, 4096, 64], Some(true))] {
            check::<f32>(sizes, packs_on_16);
            check::<f64>(sizes, packs_on_16);
            check::<i8>(sizes, packs_on_16);
            check::<half::bf16>(sizes, packs_on_16);
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

    #[test]
    fn few_rows_are_sliced_if_that_is_worthwhile() {
        let slices = skinny_slices::<f32>;
        assert_eq!([[7, 768, 3072], [4, 576, 7168], [32, 896, 4864]].map(slices), [16, 16, 8]);
        // Long rows of B are shared along the columns.
        assert_eq!([[1, 6144, 4096], [16, 16384, 4096], [8, 65536, 4096]].map(slices), [8, 4, 1]);
        // Little work, and more rows to add than steps to multiply.
        assert_eq!([[3, 300, 512], [32, 512, 1024], [1, 256, 300]].map(slices), [1, 2, 1]);
        assert_eq!([[32, 4096, usize::MAX >> 40], [1, usize::MAX >> 8, 200]].map(slices), [8, 1]);
    }

    /// The workspace of an empty slice would stay uninitialized.
    #[test]
    fn slices_of_any_k_are_not_empty() {
        for (n, k) in (1..200_000).step_by(397).chain([20_000]).flat_map(|k| [(8, k), (600, k)]) {
            for isa in crate::Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                let kernel = f32::micro_kernel(isa);
                let problem = BlockingProblem {
                    sizes: [8, n, k],
                    scalars: [1.0, 0.0],
                    a: [k as isize, 1],
                    b: [1, n as isize],
                    c_col: 1,
                    prepacked: false,
                    threads: 2,
                    batch_invariant: false,
                };
                let Accumulation { slices, kc, .. } = Accumulation::new(kernel, &problem);
                let each = slice_len(k, slices, kc);
                assert!((slices - 1) * each < k && k <= slices * each, "{isa} {k}: {slices} slices of {each}");
            }
        }
    }
}
