//! Micro-kernels for very few rows of A, contiguous along k as the columns of B are: dot products.
//!
//! Such a product waits for memory, and the processor fetches ahead along a few contiguous streams
//! only: half as fast along 16 columns that are a multiple of a page apart. So a few columns are
//! read side by side, from the first step of k to the last: eight from memory, four from a cache.
//! The lanes of an accumulator hold steps of k, and are added at the end.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::micro_kernel::{Accumulate, MicroKernelFn, MicroOperands, STREAMED_COLUMNS, WHOLE_COLUMNS};
use super::vectors::*;
use super::vnni;

/// Vectors of a column in an iteration.
const TURN: usize = 4;
/// Vectors that are summed together.
const FOUR: usize = 4;

/// Defines the micro-kernels of one type.
///
/// `$select` selects one by the rows of A, and the columns of B that are read side by side. `$e` is
/// the type of elements, `$t` that of accumulators, which the lanes of `$vector` hold, at first
/// `$zero`. `$compensation` is what to add to all dot products of a row, if anything. `$whole_load`
/// loads `$lanes` elements, and `$load` the first of them. `$step` multiplies a vector of A and one
/// of B, and adds the products to accumulators. `$sums` adds the lanes of each of four vectors. By
/// rows: the accumulators of a dot product, enough to hide the latency of `$step`, for
/// [`WHOLE_COLUMNS`] and for [`STREAMED_COLUMNS`].
macro_rules! whole_columns {
    ($select:ident: $features:literal, $e:ty, lanes $lanes:literal, $t:ty as $vector:ty, $whole_load:expr, $load:expr, $zero:expr, $compensation:expr, $step:expr, $add:expr, $sums:expr; $($rows:literal: $accumulators:literal),+; $($streamed_rows:literal: $streamed:literal),+) => {
        /// The micro-kernel for these rows, and any number of columns.
        pub fn $select([rows, side_by_side]: [usize; 2]) -> MicroKernelFn<$t> {
            const STEPS: usize = TURN * $lanes;

            /// The dot products of `R` rows and `C` columns, of `S` accumulators each.
            ///
            /// # Safety
            /// A has these rows and steps, and B, from `b` on, these columns and steps.
            #[inline]
            #[target_feature(enable = $features)]
            unsafe fn dot_products<const R: usize, const C: usize, const S: usize>(
                operands: &MicroOperands<$t>,
                mut b: *const $e,
                mut left: usize,
            ) -> [[$t; C]; R] {
                let rows = RowStrides::of(operands.a_row_stride);
                let cols = RowStrides::of(operands.b_col_stride);
                let mut a = operands.a.cast::<$e>();
                let mut sums: [[[$vector; S]; C]; R] = [[[$zero; S]; C]; R];
                while left >= STEPS {
                    for v in 0..TURN {
                        // SAFETY: the caller's promise.
                        let a = array!([$zero; R], |i| unsafe { $whole_load(rows.at(a, i).wrapping_add(v * $lanes)) });
                        for j in 0..C {
                            let b = cols.at(b, j).wrapping_add(v * $lanes);
                            if R > 1 {
                                prefetch_ahead(b, operands.b_ahead);
                            }
                            // SAFETY: as above.
                            let b = unsafe { $whole_load(b) };
                            for i in 0..R {
                                sums[i][j][v % S] = $step(a[i], b, sums[i][j][v % S]);
                            }
                        }
                    }
                    (a, b, left) = (a.wrapping_add(STEPS), b.wrapping_add(STEPS), left - STEPS);
                }
                for v in 0..TURN {
                    let lanes = left.saturating_sub(v * $lanes).min($lanes);
                    if lanes == 0 {
                        break;
                    }
                    // SAFETY: the caller's promise; only these lanes are read.
                    let a = array!([$zero; R], |i| unsafe { $load(rows.at(a, i).wrapping_add(v * $lanes), lanes) });
                    for j in 0..C {
                        // SAFETY: as above.
                        let b = unsafe { $load(cols.at(b, j).wrapping_add(v * $lanes), lanes) };
                        for i in 0..R {
                            sums[i][j][v % S] = $step(a[i], b, sums[i][j][v % S]);
                        }
                    }
                }
                let sums = array!([sums[0]; R], |i| from_registers(&sums[i], $zero));
                let mut products = [[0 as $t; C]; R];
                for i in 0..R {
                    let mut columns = [$zero; C];
                    for j in 0..C {
                        columns[j] = sums[i][j][0];
                        for other in 1..S {
                            columns[j] = $add(columns[j], sums[i][j][other]);
                        }
                    }
                    for first in (0..C).step_by(FOUR) {
                        // A column's sum does not depend on the columns beside it.
                        let four = array!([$zero; FOUR], |j| if first + j < C { columns[first + j] } else { $zero });
                        let four = $sums(four);
                        for j in 0..FOUR.min(C - first) {
                            products[i][first + j] = four[j];
                        }
                    }
                }
                products
            }

            /// # Safety
            /// As for [`super::micro_kernel::MicroKernelFn`], for `R` rows.
            #[target_feature(enable = $features)]
            unsafe fn micro_kernel<const R: usize, const C: usize, const S: usize>(
                [_, cols, k]: [usize; 3],
                alpha: $t,
                operands: &MicroOperands<$t>,
                beta: $t,
                c: *mut $t,
                row: isize,
            ) {
                let (mut b, mut col) = (operands.b.cast::<$e>(), 0);
                let rows = RowStrides::of(operands.a_row_stride);
                let compensation: [Option<$t>; R] =
                    array!([None; R], |i| $compensation(rows.at(operands.a.cast::<$e>(), i), k));
                macro_rules! columns {
                    ($count:expr) => {
                        // SAFETY: the caller's promise: A and B have these columns and steps.
                        let sums = unsafe { dot_products::<R, { $count }, S>(operands, b, k) };
                        for i in 0..R {
                            for j in 0..$count {
                                let c = c.wrapping_offset(i as isize * row).wrapping_add(col + j);
                                let sum = match compensation[i] {
                                    Some(compensation) => sums[i][j].plus(compensation),
                                    None => sums[i][j],
                                };
                                let sum = alpha.times(sum);
                                // SAFETY: the caller's promise: C has these rows and columns, and
                                // can be read unless beta is 0.
                                unsafe { *c = if beta == 0 as $t { sum } else { sum.plus(beta.times(*c)) } };
                            }
                        }
                        b = b.wrapping_byte_offset(operands.b_col_stride.wrapping_mul($count as isize));
                        col += $count;
                    };
                }
                while cols - col >= C {
                    columns!(C);
                }
                while cols - col >= WHOLE_COLUMNS {
                    columns!(WHOLE_COLUMNS);
                }
                while col < cols {
                    columns!(1);
                }
            }

            match (rows, side_by_side) {
                $(($streamed_rows, STREAMED_COLUMNS) => micro_kernel::<$streamed_rows, STREAMED_COLUMNS, $streamed>,)+
                $(($rows, _) => micro_kernel::<$rows, WHOLE_COLUMNS, $accumulators>,)+
                _ => unreachable!("few rows"),
            }
        }
    };
}

whole_columns! {
    f32_512: "avx512f,avx512bw,avx512vl", f32, lanes 16, f32 as __m512,
    |from| _mm512_loadu_ps(from), |from, lanes| _mm512_maskz_loadu_ps(first16(lanes), from),
    _mm512_setzero_ps(), |_, _| None, _mm512_fmadd_ps, _mm512_add_ps, sums_512_f32; 1: 4, 2: 2, 3: 1, 4: 1; 1: 2, 2: 1, 3: 1
}
whole_columns! {
    f64_512: "avx512f,avx512bw,avx512vl", f64, lanes 8, f64 as __m512d,
    |from| _mm512_loadu_pd(from), |from, lanes| _mm512_maskz_loadu_pd(first8(lanes), from),
    _mm512_setzero_pd(), |_, _| None, _mm512_fmadd_pd, _mm512_add_pd, sums_512_f64; 1: 4, 2: 2, 3: 1, 4: 1; 1: 2, 2: 1, 3: 1
}
whole_columns! {
    i32_512: "avx512f,avx512bw,avx512vl", i32, lanes 16, i32 as __m512i,
    |from: *const i32| _mm512_loadu_epi32(from), |from, lanes| _mm512_maskz_loadu_epi32(first16(lanes), from),
    _mm512_setzero_si512(), |_, _| None, wide_step_i32, _mm512_add_epi32, sums_512_i32; 1: 4, 2: 2, 3: 1, 4: 1; 1: 2, 2: 1, 3: 1
}
// Two bf16 per lane.
whole_columns! {
    bf16_pairs: "avx512f,avx512bw,avx512vl,avx512bf16", bf16, lanes 32, f32 as __m512,
    |from: *const bf16| _mm512_castsi512_ps(_mm512_loadu_epi16(from.cast())), |from: *const bf16, lanes| _mm512_castsi512_ps(_mm512_maskz_loadu_epi16(first32(lanes), from.cast())),
    _mm512_setzero_ps(), |_, _| None, step_bf16, _mm512_add_ps, sums_512_f32; 1: 4, 2: 2, 3: 1, 4: 1; 1: 2, 2: 1, 3: 1
}
// Widened by the loads.
whole_columns! {
    bf16_512: "avx512f,avx512bw,avx512vl", bf16, lanes 16, f32 as __m512,
    |from: *const bf16| widened(_mm256_loadu_epi16(from.cast())), |from: *const bf16, lanes| widened(_mm256_maskz_loadu_epi16(first16(lanes), from.cast())),
    _mm512_setzero_ps(), |_, _| None, _mm512_fmadd_ps, _mm512_add_ps, sums_512_f32; 1: 4, 2: 2, 3: 1, 4: 1; 1: 2, 2: 1, 3: 1
}
whole_columns! {
    f16_512: "avx512f,avx512bw,avx512vl,f16c", f16, lanes 16, f32 as __m512,
    |from: *const f16| _mm512_cvtph_ps(_mm256_loadu_epi16(from.cast())), |from: *const f16, lanes| _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first16(lanes), from.cast())),
    _mm512_setzero_ps(), |_, _| None, _mm512_fmadd_ps, _mm512_add_ps, sums_512_f32; 1: 4, 2: 2, 3: 1, 4: 1; 1: 2, 2: 1, 3: 1
}
// Widened to 16 bits, two per lane.
whole_columns! {
    bytes_512: "avx512f,avx512bw,avx512vl", i8, lanes 32, i32 as __m512i,
    |from: *const i8| _mm512_cvtepi8_epi16(_mm256_loadu_epi8(from)), |from, lanes| _mm512_cvtepi8_epi16(_mm256_maskz_loadu_epi8(first32(lanes), from)),
    _mm512_setzero_si512(), |_, _| None, |a, b, sum| _mm512_add_epi32(sum, _mm512_madd_epi16(a, b)), _mm512_add_epi32, sums_512_i32; 1: 4, 2: 2, 3: 1, 4: 1; 1: 2, 2: 1, 3: 1
}
// Four per lane. Those of B plus 128 are unsigned, and rows start from their compensation for it.
whole_columns! {
    bytes_vnni: "avx512f,avx512bw,avx512vl,avx512vnni", i8, lanes 64, i32 as __m512i,
    |from: *const i8| _mm512_loadu_epi8(from), |from, lanes| _mm512_maskz_loadu_epi8(first64(lanes), from),
    _mm512_setzero_si512(), |row, k| {
        // SAFETY: the micro-kernel's caller promises that A has this row and these steps.
        Some(unsafe { vnni::compensation_of_row(row, k, 0) })
    },
    |a, b, sum| wide_step_bytes(a, _mm512_xor_si512(b, _mm512_set1_epi8(vnni::SIGN as i8)), sum), _mm512_add_epi32, sums_512_i32; 1: 4, 2: 2, 3: 1, 4: 1; 1: 2, 2: 1, 3: 1
}
whole_columns! {
    f32_256: "avx2,fma", f32, lanes 8, f32 as __m256,
    |from| _mm256_loadu_ps(from), |from, lanes| _mm256_maskload_ps(from, words(lanes)),
    _mm256_setzero_ps(), |_, _| None, _mm256_fmadd_ps, _mm256_add_ps, sums_f32; 1: 2, 2: 1; 1: 1
}
whole_columns! {
    f64_256: "avx2,fma", f64, lanes 4, f64 as __m256d,
    |from| _mm256_loadu_pd(from), |from, lanes| _mm256_maskload_pd(from, longs(lanes)),
    _mm256_setzero_pd(), |_, _| None, _mm256_fmadd_pd, _mm256_add_pd, sums_f64; 1: 2, 2: 1; 1: 1
}

/// The sums of the lanes of four vectors: these are added in pairs, so that half as many additions
/// are needed as for each alone.
#[inline]
#[target_feature(enable = "avx2")]
fn sums_f32(lanes: [__m256; FOUR]) -> [f32; FOUR] {
    let pair = |x, y| _mm256_add_ps(_mm256_unpacklo_ps(x, y), _mm256_unpackhi_ps(x, y));
    let [x, y] = [pair(lanes[0], lanes[1]), pair(lanes[2], lanes[3])];
    let eights = _mm256_add_ps(_mm256_shuffle_ps::<0b0100_0100>(x, y), _mm256_shuffle_ps::<0b1110_1110>(x, y));
    let fours = _mm_add_ps(_mm256_castps256_ps128(eights), _mm256_extractf128_ps::<1>(eights));
    // SAFETY: both are four floats.
    unsafe { std::mem::transmute::<__m128, [f32; FOUR]>(fours) }
}

/// As [`sums_f32`].
#[inline]
#[target_feature(enable = "avx2")]
fn sums_f64(lanes: [__m256d; FOUR]) -> [f64; FOUR] {
    let pair = |x, y| _mm256_add_pd(_mm256_unpacklo_pd(x, y), _mm256_unpackhi_pd(x, y));
    let [x, y] = [pair(lanes[0], lanes[1]), pair(lanes[2], lanes[3])];
    let fours = _mm256_add_pd(_mm256_permute2f128_pd::<0x20>(x, y), _mm256_permute2f128_pd::<0x31>(x, y));
    // SAFETY: both are four floats.
    unsafe { std::mem::transmute::<__m256d, [f64; FOUR]>(fours) }
}

/// As [`sums_f32`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn sums_512_f32(lanes: [__m512; FOUR]) -> [f32; FOUR] {
    // An extraction of 256 bits of floats would need AVX-512 DQ.
    let high = |x| _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(x)));
    sums_f32(array!([_mm256_setzero_ps(); FOUR], |i| _mm256_add_ps(_mm512_castps512_ps256(lanes[i]), high(lanes[i]))))
}

/// As [`sums_f32`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn sums_512_f64(lanes: [__m512d; FOUR]) -> [f64; FOUR] {
    let high = |x| _mm512_extractf64x4_pd::<1>(x);
    sums_f64(array!([_mm256_setzero_pd(); FOUR], |i| _mm256_add_pd(_mm512_castpd512_pd256(lanes[i]), high(lanes[i]))))
}

/// As [`sums_f32`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn sums_512_i32(lanes: [__m512i; FOUR]) -> [i32; FOUR] {
    array!([0; FOUR], |i| _mm512_reduce_add_epi32(lanes[i]))
}
