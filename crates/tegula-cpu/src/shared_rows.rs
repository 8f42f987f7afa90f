//! The rows of a small product, shared by threads that spin.
//!
//! Such a product takes some microseconds, as long as a plan and its phases. So it has neither:
//! each thread multiplies some of the rows as a product of their own. The bits of a row do not
//! depend on the other rows.

use std::sync::atomic::{AtomicUsize, Ordering};

use super::micro_kernel::{CpuElement, MicroKernel};
use super::problem::{cycles, work};
use super::thread_pool::{self, parallel_phases};
use super::unpacked::UnpackedProduct;
use super::workers;

/// A product of p² times so many cycles of multiplications justifies p threads.
///
/// Of c cycles each of p threads has c/p, and each thread adds about 500 to a job (as in `grid`).
/// The sum is least where c is 500·p². Twice that is a little slower and keeps fewer processors
/// busy. Less under Miri, which looks for races.
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
    let is_large = work(product.sizes) >= 4 * CYCLES_PER_THREAD * 2 * kernel.vector_len;
    match is_large.then(|| threads(kernel, product.sizes)) {
        Some(threads @ 2..) => {
            share(product, threads, multiply);
            true
        }
        _ => false,
    }
}

/// Threads that are to share the rows of a small product.
#[inline(never)]
fn threads<T: CpuElement>(kernel: &MicroKernel<T>, sizes: [usize; 3]) -> usize {
    let justified = (cycles(kernel, sizes) / CYCLES_PER_THREAD).isqrt().min(sizes[0]);
    // The threads of a pool may sleep, or multiply other products.
    if justified < 2 || rayon::current_thread_index().is_some() || !is_only_caller() {
        return 1;
    }
    let available = thread_pool::available(!cfg!(miri));
    // Now instead of later, since the product takes less time than workers spin.
    workers::job_ended();
    available.min(justified)
}

/// Whether the last product that asked was of this thread. Otherwise several callers multiply small
/// products at once, and each needs its processor.
fn is_only_caller() -> bool {
    static LAST: AtomicUsize = AtomicUsize::new(0);
    thread_local!(static CALLER: u8 = const { 0 });
    let caller = CALLER.with(|caller| std::ptr::from_ref(caller).addr());
    let is_same = LAST.load(Ordering::Relaxed) == caller;
    if !is_same {
        LAST.store(caller, Ordering::Relaxed);
    }
    is_same
}

/// Multiplies by so many threads.
///
/// Not inlined, or products of one thread would save the registers that it needs.
#[inline(never)]
fn share<T: CpuElement>(product: &UnpackedProduct<T>, threads: usize, multiply: impl Fn(&UnpackedProduct<T>) + Sync) {
    let m = product.sizes[0];
    let at = |chunk: usize| chunk * m / threads;
    let chunk = |_, _, chunk| multiply(&product.rows(at(chunk)..at(chunk + 1)));
    parallel_phases(threads, thread_pool::workers(), 1, |_| threads, chunk);
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use half::bf16;
    use tegula_core::element::Scalar;

    use super::*;
    use crate::unpacked::BReads;

    /// Each row of C gets the number that its row of A begins with, once.
    fn check<T: CpuElement>(number: impl Fn(usize) -> T, copied: impl Fn(T, T::Out) -> T::Out + Sync) {
        let strides = [3, 5];
        // Miri takes seconds for a job.
        for m in if cfg!(miri) { 3..=3 } else { 1..=20 } {
            let a: Vec<T> = (0..m * strides[0]).map(|i| number(i / strides[0])).collect();
            for threads in if cfg!(miri) { 2..=4 } else { 2..=9 } {
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

    /// The micro-kernels of every instruction set compute the same bits from some of the rows.
    #[test]
    fn shared_rows_have_the_bits_of_the_whole() {
        fn one<T: CpuElement>(values: impl Fn(usize) -> T) {
            let sizes @ [m, n, k] = if cfg!(miri) { [7, 17, 5] } else { [61, 64, 63] };
            let (a, b): (Vec<_>, Vec<_>) = ((0..m * k).map(&values).collect(), (0..k * n).map(&values).collect());
            for isa in crate::Isa::ALL.into_iter().filter(|isa| isa.is_available()) {
                let kernel = T::micro_kernel(isa);
                if kernel.select_unpacked.is_none() {
                    continue;
                }
                let of = |threads: Option<usize>| {
                    let mut c = vec![T::Acc::ZERO; m * n];
                    let product = UnpackedProduct {
                        sizes,
                        alpha: T::Acc::ONE,
                        a: a.as_ptr(),
                        a_strides: [k as isize, 1],
                        b: b.as_ptr(),
                        b_strides: [1, n as isize],
                        beta: T::Acc::ZERO,
                        c: c.as_mut_ptr(),
                        c_row_stride: n as isize,
                        b_reads: BReads::Direct,
                    };
                    // SAFETY: the CPU has the instruction set; A, B and C have these sizes.
                    let run = |rows: &UnpackedProduct<T>| unsafe { rows.run(kernel) };
                    match threads {
                        Some(threads) => share(&product, threads, run),
                        None => run(&product),
                    }
                    c.into_iter().map(Scalar::to_bits).collect::<Vec<_>>()
                };
                let whole = of(None);
                for threads in if cfg!(miri) { 2..=2 } else { 2..=5 } {
                    assert!(of(Some(threads)) == whole, "{isa} {}, {threads} threads", T::TYPE);
                }
            }
        }
        one(|i| (i * 37 % 101) as f32 / 64.0 - 0.7);
        one(|i| (i * 37 % 101) as f64 / 64.0 - 0.7);
        one(|i| (i * 37 % 101) as i32);
        one(|i| (i * 37 % 101) as i8);
    }

    /// The first product of a caller has one thread, and products in a row have several, unless
    /// other tests use the threads.
    #[test]
    #[cfg_attr(miri, ignore = "measures time")]
    fn products_in_a_row_are_shared() {
        let kernel = f32::micro_kernel(crate::Isa::Portable);
        let of_caller = || {
            assert_eq!(threads(kernel, [64; 3]), 1, "the first");
            let start = Instant::now();
            while threads(kernel, [64; 3]) == 1 {
                assert!(start.elapsed() < Duration::from_secs(20), "no product is shared");
            }
        };
        if tegula_core::threads::count() > 1 {
            std::thread::spawn(of_caller).join().unwrap();
        }
    }

    /// Nothing is shared within a pool: its other threads may be busy.
    #[test]
    #[cfg_attr(miri, ignore = "a pool takes long")]
    fn products_in_a_pool_are_not_shared() {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(3).build().unwrap();
        let kernel = f32::micro_kernel(crate::Isa::Portable);
        for _ in 0..10 {
            assert_eq!(pool.install(|| threads(kernel, [64; 3])), 1);
        }
    }
}
