//! The rows of a small product, shared by threads that spin.
//!
//! Such a product takes some microseconds, as long as a plan and its phases. So it has neither:
//! each thread multiplies some of the rows as a product of their own. The bits of a row do not
//! depend on the other rows.

use super::blocking::work;
use super::micro_kernel::{CpuElement, MicroKernel};
use super::thread_pool::{self, parallel_phases};
use super::unpacked::UnpackedProduct;

/// Cycles of multiplications for which p² of them justify p threads.
///
/// Of c cycles each of p threads has c/p, and each thread adds about 500 to a job (measured on 16
/// cores, `benchmarks/NOTES.md`). The sum is least where c is 500·p². Twice that is a little slower
/// and keeps fewer processors busy. Less under Miri, which looks for races.
const CYCLES_PER_THREAD: usize = if cfg!(miri) { 16 } else { 1 << 10 };

/// Threads that are to share the rows of a small product.
#[inline]
pub fn threads<T: CpuElement>(kernel: &MicroKernel<T>, sizes @ [m, n, k]: [usize; 3]) -> usize {
    let per_cycle = 2 * kernel.vector_len;
    // Most small products have even fewer multiply-adds, before these are grouped.
    if work(sizes) < 4 * CYCLES_PER_THREAD * per_cycle {
        return 1;
    }
    let cycles = work([m, n, kernel.k_groups(k)]) / per_cycle;
    match (cycles / CYCLES_PER_THREAD).isqrt() {
        // The threads of a pool may sleep, or multiply other products.
        2.. if rayon::current_thread_index().is_some() => 1,
        justified @ 2.. => thread_pool::available(true).min(justified),
        _ => 1,
    }
}

/// Multiplies the rows of a product, a range of them on each thread, by `multiply`.
///
/// Not inlined, or products of one thread would save the registers that it needs.
#[inline(never)]
pub fn multiply<T: CpuElement>(
    product: &UnpackedProduct<T>,
    threads: usize,
    multiply: impl Fn(&UnpackedProduct<T>) + Sync,
) {
    let m = product.sizes[0];
    let at = |chunk: usize| chunk * m / threads;
    let chunk = |_, _, chunk| multiply(&product.rows(at(chunk)..at(chunk + 1)));
    parallel_phases(threads, thread_pool::workers(), 1, |_| threads, chunk);
}
