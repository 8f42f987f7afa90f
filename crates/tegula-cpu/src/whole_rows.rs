//! Micro-kernels for very few rows of A, which read whole rows of B.
//!
//! Such a product waits for memory. The processor fetches ahead by itself along a few contiguous
//! streams, faster than prefetches of the pieces that micro-tiles read. So some rows of B are read
//! side by side, from the first column to the last, and C, which stays in a cache, is read and
//! written in between.

use std::arch::x86_64::*;

use super::caches::LINE;
use super::micro_kernel::{MicroKernelFn, MicroOperands};
use super::vectors::*;

/// Rows of B that are read side by side. Four are slower beside C, and for 16 the processor does
/// not fetch ahead.
const STREAMS: usize = 8;

/// Defines the micro-kernels of one type.
///
/// `$select` selects one by the rows of A. `$load` and `$store` take a mask of the first lanes,
/// `$whole_load` and `$whole_store` access whole vectors.
macro_rules! whole_rows {
    ($select:ident: $features:literal, $t:ty as $vector:ty, $mask:ident, $splat:ident, $mul:ident, $step:ident, $whole_load:ident, $whole_store:ident, $load:expr, $store:expr) => {
        /// The micro-kernel for these rows, of any number of columns, where alpha is 1.
        pub fn $select([rows, _]: [usize; 2]) -> MicroKernelFn<$t> {
            const LANES: usize = size_of::<$vector>() / size_of::<$t>();

            /// Multiplies `S` steps of k by `V` vectors of columns, or by the first lanes of one.
            ///
            /// # Safety
            /// B has these steps and columns, C these columns and `R` rows, `row` elements apart.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn tile<const R: usize, const S: usize, const V: usize>(
                a: &[[$t; S]; R],
                operands: &MicroOperands<$t>,
                b: *const $t,
                lanes: Option<usize>,
                beta: $t,
                c: *mut $t,
                row: isize,
            ) {
                let mut sums = [[$splat(0 as $t); V]; R];
                if beta != 0 as $t {
                    for i in 0..R {
                        for v in 0..V {
                            let c = c.wrapping_offset(i as isize * row).wrapping_add(v * LANES);
                            // SAFETY: the caller's promise.
                            let c = unsafe { lanes.map_or_else(|| $whole_load(c), |lanes| $load(c, $mask(lanes))) };
                            sums[i][v] = $mul($splat(beta), c);
                        }
                    }
                }
                for s in 0..S {
                    for v in 0..V {
                        let b = b.wrapping_offset(s as isize * operands.b_k_stride).wrapping_add(v * LANES);
                        if operands.b_ahead > 0 {
                            prefetch_ahead(b, operands.b_ahead);
                        }
                        // SAFETY: the caller's promise.
                        let b = unsafe { lanes.map_or_else(|| $whole_load(b), |lanes| $load(b, $mask(lanes))) };
                        for i in 0..R {
                            sums[i][v] = $step($splat(a[i][s]), b, sums[i][v]);
                        }
                    }
                }
                for i in 0..R {
                    for v in 0..V {
                        let c = c.wrapping_offset(i as isize * row).wrapping_add(v * LANES);
                        // SAFETY: the caller's promise.
                        unsafe {
                            match lanes {
                                None => $whole_store(c, sums[i][v]),
                                Some(lanes) => $store(c, $mask(lanes), sums[i][v]),
                            }
                        }
                    }
                }
            }

            /// Multiplies `S` steps of k by all columns.
            ///
            /// # Safety
            /// As for `micro_kernel`.
            #[target_feature(enable = $features)]
            unsafe fn streams<const R: usize, const S: usize>(
                cols: usize,
                operands: &MicroOperands<$t>,
                [a, b]: [*const $t; 2],
                beta: $t,
                c: *mut $t,
                row: isize,
            ) {
                let MicroOperands { a_row_stride, a_k_stride, b_k_stride, .. } = *operands;
                let mut values = [[0 as $t; S]; R];
                for i in 0..R {
                    for s in 0..S {
                        let a =
                            a.wrapping_byte_offset(i as isize * a_row_stride).wrapping_offset(s as isize * a_k_stride);
                        // SAFETY: the caller's promise: A has these rows and steps.
                        values[i][s] = unsafe { *a };
                    }
                }
                // Whole vectors begin at cache lines, where those of all rows can.
                let to_line = b.align_offset(LINE);
                let aligned = b_k_stride.wrapping_mul(size_of::<$t>() as isize) % LINE as isize == 0;
                let head = if aligned && to_line < cols { to_line } else { 0 };
                let mut col = 0;
                macro_rules! tile {
                    ($vectors:literal, $lanes:expr) => {
                        // SAFETY: the caller's promise: B and C have these columns.
                        unsafe {
                            let (b, c) = (b.wrapping_add(col), c.wrapping_add(col));
                            tile::<R, S, $vectors>(&values, operands, b, $lanes, beta, c, row);
                        }
                    };
                }
                while col < head {
                    let lanes = LANES.min(head - col);
                    tile!(1, Some(lanes));
                    col += lanes;
                }
                while cols - col >= 4 * LANES {
                    tile!(4, None);
                    col += 4 * LANES;
                }
                while cols - col >= LANES {
                    tile!(1, None);
                    col += LANES;
                }
                if col < cols {
                    tile!(1, Some(cols - col));
                }
            }

            /// # Safety
            /// As for [`super::micro_kernel::MicroKernelFn`], for `R` rows.
            #[target_feature(enable = $features)]
            unsafe fn micro_kernel<const R: usize>(
                [_, cols, k]: [usize; 3],
                _: $t,
                operands: &MicroOperands<$t>,
                mut beta: $t,
                c: *mut $t,
                row: isize,
            ) {
                let (mut a, mut b, mut left) = (operands.a, operands.b, k);
                macro_rules! streams {
                    ($streams:expr) => {
                        // SAFETY: the caller's promise: A and B have these steps of k.
                        unsafe { streams::<R, { $streams }>(cols, operands, [a, b], beta, c, row) };
                        let steps = $streams as isize;
                        a = a.wrapping_offset(steps * operands.a_k_stride);
                        b = b.wrapping_offset(steps * operands.b_k_stride);
                        (beta, left) = (1 as $t, left - $streams);
                    };
                }
                while left >= STREAMS {
                    streams!(STREAMS);
                }
                if left >= STREAMS / 2 {
                    streams!(STREAMS / 2);
                }
                while left > 0 {
                    streams!(1);
                }
            }

            match rows {
                1 => micro_kernel::<1>,
                2 => micro_kernel::<2>,
                3 => micro_kernel::<3>,
                4 => micro_kernel::<4>,
                _ => unreachable!("few rows"),
            }
        }
    };
}

whole_rows! {
    f32_512: "avx512f,avx512bw,avx512vl", f32 as __m512, first16, _mm512_set1_ps, _mm512_mul_ps, _mm512_fmadd_ps, _mm512_loadu_ps, _mm512_storeu_ps,
    |from, mask| _mm512_maskz_loadu_ps(mask, from), |to, mask, sum| _mm512_mask_storeu_ps(to, mask, sum)
}
whole_rows! {
    f64_512: "avx512f,avx512bw,avx512vl", f64 as __m512d, first8, _mm512_set1_pd, _mm512_mul_pd, _mm512_fmadd_pd, _mm512_loadu_pd, _mm512_storeu_pd,
    |from, mask| _mm512_maskz_loadu_pd(mask, from), |to, mask, sum| _mm512_mask_storeu_pd(to, mask, sum)
}
whole_rows! {
    f32_256: "avx2,fma", f32 as __m256, words, _mm256_set1_ps, _mm256_mul_ps, _mm256_fmadd_ps, _mm256_loadu_ps, _mm256_storeu_ps,
    |from, mask| _mm256_maskload_ps(from, mask), |to, mask, sum| _mm256_maskstore_ps(to, mask, sum)
}
whole_rows! {
    f64_256: "avx2,fma", f64 as __m256d, longs, _mm256_set1_pd, _mm256_mul_pd, _mm256_fmadd_pd, _mm256_loadu_pd, _mm256_storeu_pd,
    |from, mask| _mm256_maskload_pd(from, mask), |to, mask, sum| _mm256_maskstore_pd(to, mask, sum)
}
