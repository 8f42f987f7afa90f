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

/// Multiplies a product on several threads, each of which calls `multiply` for some of the rows.
/// False, and nothing is done, where one thread is to multiply them all.
#[inline(always)]
pub fn multiply<T: CpuElement>(
    kernel: &MicroKernel<T>,
    product: &UnpackedProduct<T>,
    multiply: impl Fn(&UnpackedProduct<T>) + Sync,
) -> bool {
    // Most small products have even fewer multiply-adds, before these are grouped along k.
    let is_large = work(product.sizes) >= 4 * CYCLES_PER_THREAD * per_cycle(kernel);
    match is_large.then(|| threads(kernel, product.sizes)) {
        Some(threads @ 2..) => {
            share(product, threads, multiply);
            true
        }
        _ => false,
    }
}

/// Packed values that a core multiplies in a cycle.
fn per_cycle<T: CpuElement>(kernel: &MicroKernel<T>) -> usize {
    2 * kernel.vector_len
}

/// Threads that are to share the rows of a small product.
#[inline(never)]
fn threads<T: CpuElement>(kernel: &MicroKernel<T>, [m, n, k]: [usize; 3]) -> usize {
    let cycles = work([m, n, kernel.k_groups(k)]) / per_cycle(kernel);
    let justified = (cycles / CYCLES_PER_THREAD).isqrt();
    // The threads of a pool may sleep, or multiply other products.
    if justified < 2 || rayon::current_thread_index().is_some() {
        return 1;
    }
    thread_pool::available(true).min(justified)
}

/// Multiplies by so many threads.
///
/// Not inlined, or products of one thread would save the registers that it needs.
#[inline(never)]
pub fn share<T: CpuElement>(
    product: &UnpackedProduct<T>,
    threads: usize,
    multiply: impl Fn(&UnpackedProduct<T>) + Sync,
) {
    let m = product.sizes[0];
    let at = |chunk: usize| chunk * m / threads;
    let chunk = |_, _, chunk| multiply(&product.rows(at(chunk)..at(chunk + 1)));
    parallel_phases(threads, thread_pool::workers(), 1, |_| threads, chunk);
}

#[cfg(test)]
mod tests {
    use half::bf16;
    use tegula_core::element::Scalar;

    use super::*;
    use crate::unpacked::BReads;

    /// Each row of C gets the number that its row of A begins with, once.
    fn check<T: CpuElement>(number: impl Fn(usize) -> T, copied: impl Fn(T, T::Out) -> T::Out + Sync) {
        let strides = [3, 5];
        for m in 1..=20 {
            let a: Vec<T> = (0..m * strides[0]).map(|i| number(i / strides[0])).collect();
            for threads in 2..=9 {
                let mut c = vec![T::Out::ZERO; m * strides[1]];
                let product = UnpackedProduct {
                    sizes: [m, 1, 1],
                    alpha: T::Acc::ONE,
                    a: a.as_ptr(),
                    a_strides: [strides[0] as isize, 1],
                    b: a.as_ptr(),
                    b_strides: [1, 1],
                    beta: T::Acc::ZERO,
                    c: c.as_mut_ptr().cast(),
                    c_row_stride: strides[1] as isize,
                    b_reads: BReads::Direct,
                };
                share(&product, threads, |rows: &UnpackedProduct<T>| {
                    for row in 0..rows.sizes[0] {
                        // SAFETY: rows of the product, which no other thread has.
                        unsafe {
                            let to = rows.c.cast::<T::Out>().add(row * strides[1]);
                            *to = copied(*rows.a.add(row * strides[0]), *to);
                        }
                    }
                });
                for (i, &value) in c.iter().enumerate() {
                    let of_row = copied(number(i / strides[1]), T::Out::ZERO);
                    let expected = if i % strides[1] == 0 { of_row } else { T::Out::ZERO };
                    assert_eq!(value.to_bits(), expected.to_bits(), "{m} rows, {threads} threads, {i}");
                }
            }
        }
    }

    #[test]
    fn each_row_is_multiplied_once() {
        check(|row| row as f32 + 1.0, |from, before| before + from);
        check(|row| bf16::from_f32(row as f32 + 1.0), |from, before| before + from);
        check(|row| row as i8 + 1, |from, before| before + i32::from(from));
    }

    /// Nothing is shared within a pool, whose other threads may be busy.
    #[test]
    fn products_in_a_pool_are_not_shared() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let kernel = f32::micro_kernel(crate::Isa::Portable);
        for _ in 0..10 {
            assert_eq!(pool.install(|| threads(kernel, [64; 3])), 1);
        }
    }
}
