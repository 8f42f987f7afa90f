//! The input of a plan, and how much work a product is.

use super::caches::Caches;
use super::grid::GridProblem;
use super::micro_kernel::{CpuElement, FirstRows, MicroKernel};

/// Multiply-adds that justify another thread where no cost model decides; fewer under Miri, which
/// looks for races.
const WORK_PER_THREAD: usize = if cfg!(miri) { 1 << 7 } else { 1 << 18 };
/// Bytes of B that do so too: reading them from an L3 cache takes about as long.
const BYTES_PER_THREAD: usize = 1 << 20;
/// Least columns and steps of k where the first rows pack B: several panels, one of which is
/// prefetched during another, and few updates of C.
const FIRST_ROWS_COLS: usize = 128;
const FIRST_ROWS_STEPS: usize = 128;
/// Packed values that a core with AMX multiplies in a cycle.
const AMX_RATE: usize = 256;

/// The input of [`Accumulation::new`](crate::accumulation::Accumulation::new) and
/// [`BlockingPlan::new`](crate::blocking::BlockingPlan::new).
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

/// Threads that the work of a product justifies.
pub fn justified_threads<T: CpuElement>(problem: &BlockingProblem<T::Acc>) -> usize {
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

/// The micro-tile with which the first rows may pack B: its columns are adjacent in memory, and the
/// product is large.
pub fn first_rows<T: CpuElement>(kernel: &MicroKernel<T>, problem: &BlockingProblem<T::Acc>) -> Option<FirstRows> {
    let BlockingProblem { sizes: [m, n, k], b, prepacked, .. } = *problem;
    let is_large = |min_rows| m >= min_rows && n >= FIRST_ROWS_COLS && k >= FIRST_ROWS_STEPS;
    kernel.first_rows.filter(|first| b[0] == 1 && !prepacked && is_large(first.min_rows))
}

/// The input of the search for a grid of C, or of a block of it.
pub fn grid_problem<T: CpuElement>(
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
