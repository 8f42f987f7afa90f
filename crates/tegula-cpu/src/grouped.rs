//! Micro-kernels that read A and B unpacked, where a lane takes several steps of k.
//!
//! Dot-product instructions multiply two bf16 or four bytes per 32-bit lane and add them to its
//! accumulator: VDPBF16PS and VPDPBUSD (Intel SDM, volume 2). Packing B would bring those steps
//! together in memory. For few rows it takes longer than the product, so these micro-kernels load
//! as many rows of B as a lane has steps, and interleave them in registers. The columns are then
//! out of order in the accumulators; the store to C restores their order. Blocking and threads are
//! not known here.

use std::arch::x86_64::*;

use bytemuck::{Pod, bytes_of};
use half::bf16;

use super::micro_kernel::{MicroKernelFn, MicroOperands};
use super::vectors::{
    PREFETCH_STEPS, RowStrides, align_frame, array, first16, first32, first64, for_rows, from_registers,
    prefetch_ahead, prefetch_c, rounded_to_bf16, step_bf16, wide_step_bytes,
};
use super::vnni::{self, in_order, interleave};

/// Lanes of a vector.
const LANES: usize = 16;

/// Defines the micro-kernels of one type.
///
/// `$select` selects one by the rows and columns of a micro-tile. A unit has `$width` vectors of
/// accumulators, of 16 columns each. `$load` loads elements of a row of B for a unit, as far as
/// `$mask` says, and `$interleave` brings `$group` of those rows together. `$dot` multiplies two
/// vectors and adds a third. Accumulators of a row of A begin with `$start`, and `$in_order` brings
/// their columns in order. Where elements of C, of type `$c`, are narrower, `$store_rounded` stores
/// the accumulators of a unit, and alpha and beta have no use.
macro_rules! grouped {
    ($select:ident: $features:literal, $s:ty, $t:ty as $vector:ty => $c:ty, group $group:literal, width $width:literal, $mask:ident, $load:expr, $interleave:ident, $in_order:ident, $start:ident, $splat:ident, $dot:ident, $mul:ident, $add:ident, $cast:ident, $bits:ident, $store_rounded:ident;
     $($units:literal: $($rows:literal)+;)+) => {
        fn $select([rows, cols]: [usize; 2]) -> MicroKernelFn<$t> {
            const GROUP: usize = $group;
            const COLS: usize = $width * LANES;

            /// # Safety
            /// As for [`super::micro_kernel::MicroKernelFn`], for `R` rows and `U` units of
            /// columns. The last unit is partial unless `WHOLE`.
            #[target_feature(enable = $features)]
            unsafe fn micro_kernel<const R: usize, const U: usize, const WHOLE: bool>([_, cols, k]: [usize; 3], alpha: $t, operands: &MicroOperands<$t>, beta: $t, c: *mut $t, row: isize) {
                align_frame!();
                let (mut a, mut b, c) = (operands.a.cast::<$s>(), operands.b.cast::<$s>(), c.cast::<$c>());
                let MicroOperands { a_row_stride, a_k_stride, b_k_stride, b_ahead, .. } = *operands;
                let cols_of = |u: usize| if WHOLE || u + 1 < U { COLS } else { cols - (U - 1) * COLS };
                if k >= PREFETCH_STEPS {
                    prefetch_c(c.cast(), R, row.wrapping_mul(size_of::<$c>() as isize), cols * size_of::<$c>());
                }
                let (a_rows, b_rows) = (RowStrides::of(a_row_stride), RowStrides::of(b_k_stride.wrapping_mul(size_of::<$s>() as isize)));
                let mut accumulators = [[[$splat(0 as $t); $width]; U]; R];
                // SAFETY: the caller's promise: A has these rows and steps.
                let start: [$t; R] = unsafe { $start(|i| a_rows.at(a, i), a_k_stride, k) };
                for_rows!(i in R, {
                    accumulators[i] = [[$splat(start[i]); $width]; U];
                });
                // `steps` steps of k, at most a group; `$lane` is the lane of row `i` of A.
                macro_rules! step {
                    ($steps:expr, $lane:expr) => {
                        for u in 0..U {
                            let mut rows = [_mm512_setzero_si512(); GROUP];
                            for j in 0..$steps {
                                let row = b_rows.at(b, j).wrapping_add(u * COLS);
                                // SAFETY: the caller's promise: B has these columns and steps.
                                rows[j] = unsafe { $load(row, $mask(cols_of(u))) };
                                if b_ahead > 0 {
                                    prefetch_ahead(row, b_ahead);
                                }
                            }
                            let b = $interleave(rows);
                            for_rows!(i in R, {
                                let a = _mm512_set1_epi32($lane(i));
                                for v in 0..$width {
                                    accumulators[i][u][v] = $dot(a, b[v], accumulators[i][u][v]);
                                }
                            });
                        }
                    };
                }
                let whole = k / GROUP;
                if a_k_stride == 1 {
                    // SAFETY: the caller's promise: a row of A has these steps.
                    let lane = |a: *const $s, i: usize| unsafe { a_rows.at(a, i).cast::<i32>().read_unaligned() };
                    for _ in 0..whole {
                        step!(GROUP, |i| lane(a, i));
                        (a, b) = (a.wrapping_add(GROUP), b_rows.at(b, GROUP));
                    }
                } else {
                    for _ in 0..whole {
                        // SAFETY: as above.
                        let lanes = array!([0; R], |i| unsafe { lane_of(a_rows.at(a, i), a_k_stride, GROUP) });
                        step!(GROUP, |i: usize| lanes[i]);
                        (a, b) = (a.wrapping_offset(a_k_stride.wrapping_mul(GROUP as isize)), b_rows.at(b, GROUP));
                    }
                }
                let left = k % GROUP;
                if left > 0 {
                    // SAFETY: as above, for fewer steps.
                    let lanes = array!([0; R], |i| unsafe { lane_of(a_rows.at(a, i), a_k_stride, left) });
                    step!(left, |i: usize| lanes[i]);
                }
                let (scale, keep) = ($splat(alpha), $splat(beta));
                let accumulators = array!([accumulators[0]; R], |i| from_registers(&accumulators[i], $splat(0 as $t)));
                for i in 0..R {
                    for u in 0..U {
                        let mut sums = accumulators[i][u];
                        let c = c.wrapping_offset(i as isize * row).wrapping_add(u * COLS);
                        if size_of::<$c>() < size_of::<$t>() {
                            // SAFETY: the caller's promise: C has these rows and columns.
                            unsafe { $store_rounded(sums, c.cast(), $mask(cols_of(u))) };
                            continue;
                        }
                        if alpha != 1 as $t {
                            sums = array!([scale; $width], |v| $mul(scale, sums[v]));
                        }
                        let sums = $in_order(array!([_mm512_setzero_si512(); $width], |v| $bits(sums[v])));
                        for v in 0..$width {
                            let left = cols_of(u).saturating_sub(v * LANES).min(LANES);
                            let c = c.wrapping_add(v * LANES);
                            let mut sum = $cast(sums[v]);
                            // SAFETY: as above, and it can be read unless beta is 0.
                            unsafe {
                                if beta != 0 as $t {
                                    let before = _mm512_maskz_loadu_epi32(first16(left), c.cast());
                                    sum = $add(sum, $mul(keep, $cast(before)));
                                }
                                _mm512_mask_storeu_epi32(c.cast(), first16(left), $bits(sum));
                            }
                        }
                    }
                }
            }

            if cols.is_multiple_of(COLS) {
                match (cols / COLS, rows) {
                    $($(($units, $rows) => micro_kernel::<$rows, $units, true>,)+)+
                    _ => unreachable!("micro-tiles fit the registers"),
                }
            } else {
                match (cols.div_ceil(COLS), rows) {
                    $($(($units, $rows) => micro_kernel::<$rows, $units, false>,)+)+
                    _ => unreachable!("micro-tiles fit the registers"),
                }
            }
        }
    };
}

/// The micro-kernels on unpacked bf16.
pub fn bf16_pairs([rows, cols]: [usize; 2]) -> MicroKernelFn<f32> {
    if cols <= LANES { one_vector_of_bf16([rows, cols]) } else { vectors_of_bf16([rows, cols]) }
}

/// The same, with accumulators rounded in registers.
pub fn rounded_bf16_pairs([rows, cols]: [usize; 2]) -> MicroKernelFn<f32> {
    if cols <= LANES { one_rounded_vector_of_bf16([rows, cols]) } else { rounded_vectors_of_bf16([rows, cols]) }
}

/// The micro-kernels on unpacked bytes.
pub fn bytes([rows, cols]: [usize; 2]) -> MicroKernelFn<i32> {
    if cols <= LANES { one_vector_of_bytes([rows, cols]) } else { vectors_of_bytes([rows, cols]) }
}

/// Most rows of a micro-tile by its width in vectors.
pub const BF16_ROWS: [usize; 8] = [12, 12, 6, 6, 4, 4, 3, 3];
pub const BYTES_ROWS: [usize; 8] = [12, 6, 6, 6, 3, 3, 3, 3];

// At most 24 of 32 registers hold accumulators.
grouped! {
    one_vector_of_bf16: "avx512f,avx512bw,avx512vl,avx512bf16", bf16, f32 as __m512 => f32, group 2, width 1, first16,
    |from: *const bf16, mask| _mm512_zextsi256_si512(_mm256_maskz_loadu_epi16(mask, from.cast())),
    pair_of_vector, same_order, no_start, _mm512_set1_ps, dot_bf16, _mm512_mul_ps, _mm512_add_ps, _mm512_castsi512_ps, _mm512_castps_si512, not_narrower;
    1: 1 2 3 4 5 6 7 8 9 10 11 12;
}
grouped! {
    vectors_of_bf16: "avx512f,avx512bw,avx512vl,avx512bf16", bf16, f32 as __m512 => f32, group 2, width 2, first32,
    |from: *const bf16, mask| _mm512_maskz_loadu_epi16(mask, from.cast()),
    interleave_words, two_in_order, no_start, _mm512_set1_ps, dot_bf16, _mm512_mul_ps, _mm512_add_ps, _mm512_castsi512_ps, _mm512_castps_si512, not_narrower;
    1: 1 2 3 4 5 6 7 8 9 10 11 12; 2: 1 2 3 4 5 6; 3: 1 2 3 4; 4: 1 2 3;
}
// VCVTNEPS2BF16 reads subnormal accumulators as 0, but VDPBF16PS has written none.
grouped! {
    one_rounded_vector_of_bf16: "avx512f,avx512bw,avx512vl,avx512bf16", bf16, f32 as __m512 => bf16, group 2, width 1, first16,
    |from: *const bf16, mask| _mm512_zextsi256_si512(_mm256_maskz_loadu_epi16(mask, from.cast())),
    pair_of_vector, same_order, no_start, _mm512_set1_ps, dot_bf16, _mm512_mul_ps, _mm512_add_ps, _mm512_castsi512_ps, _mm512_castps_si512, store_rounded_vector;
    1: 1 2 3 4 5 6 7 8 9 10 11 12;
}
grouped! {
    rounded_vectors_of_bf16: "avx512f,avx512bw,avx512vl,avx512bf16", bf16, f32 as __m512 => bf16, group 2, width 2, first32,
    |from: *const bf16, mask| _mm512_maskz_loadu_epi16(mask, from.cast()),
    interleave_words, two_in_order, no_start, _mm512_set1_ps, dot_bf16, _mm512_mul_ps, _mm512_add_ps, _mm512_castsi512_ps, _mm512_castps_si512, store_rounded_pair;
    1: 1 2 3 4 5 6 7 8 9 10 11 12; 2: 1 2 3 4 5 6; 3: 1 2 3 4; 4: 1 2 3;
}
grouped! {
    one_vector_of_bytes: "avx512f,avx512bw,avx512vl,avx512vnni", i8, i32 as __m512i => i32, group 4, width 1, first16,
    |from: *const i8, mask| _mm512_zextsi128_si512(_mm_maskz_loadu_epi8(mask, from)),
    four_of_vector, same_order, compensation, _mm512_set1_epi32, wide_step_bytes, _mm512_mullo_epi32, _mm512_add_epi32, same, same, not_narrower;
    1: 1 2 3 4 5 6 7 8 9 10 11 12;
}
grouped! {
    vectors_of_bytes: "avx512f,avx512bw,avx512vl,avx512vnni", i8, i32 as __m512i => i32, group 4, width 4, first64,
    |from: *const i8, mask| _mm512_maskz_loadu_epi8(mask, from),
    interleave, in_order, compensation, _mm512_set1_epi32, wide_step_bytes, _mm512_mullo_epi32, _mm512_add_epi32, same, same, not_narrower;
    1: 1 2 3 4 5 6; 2: 1 2 3;
}

/// The lane of `steps` elements of A, zero from there on.
///
/// # Safety
/// The elements can be read.
#[inline(always)]
unsafe fn lane_of<S: Pod>(a: *const S, stride: isize, steps: usize) -> i32 {
    let mut lane = [0; 4];
    for (j, bytes) in lane.chunks_exact_mut(size_of::<S>()).enumerate().take(steps) {
        // SAFETY: the caller's promise.
        bytes.copy_from_slice(bytes_of(unsafe { &*a.wrapping_offset(stride.wrapping_mul(j as isize)) }));
    }
    i32::from_ne_bytes(lane)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
fn dot_bf16(a: __m512i, b: __m512i, sum: __m512) -> __m512 {
    step_bf16(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), sum)
}

/// The initial accumulators of rows of bf16.
///
/// # Safety
/// None; the signature is that of [`compensation`].
#[inline(always)]
unsafe fn no_start<const R: usize>(_: impl Fn(usize) -> *const bf16, _: isize, _: usize) -> [f32; R] {
    [0.0; R]
}

/// The initial accumulators of rows of bytes: their [compensation](vnni::compensation).
///
/// # Safety
/// The `k` elements of each row can be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
unsafe fn compensation<const R: usize>(row: impl Fn(usize) -> *const i8, stride: isize, k: usize) -> [i32; R] {
    if stride == 1 {
        // SAFETY: the caller's promise.
        return array!([0; R], |i| unsafe { vnni::compensation_of_row(row(i), k, 0) });
    }
    // Rows may share cache lines: all rows of a step, then the next.
    let mut sums = [0i32; R];
    for at in 0..k {
        for (i, sum) in sums.iter_mut().enumerate() {
            // SAFETY: as above.
            *sum += i32::from(unsafe { *row(i).wrapping_offset(stride.wrapping_mul(at as isize)) });
        }
    }
    array!([0; R], |i| sums[i].wrapping_mul(vnni::COMPENSATION))
}

/// Pairs of words along k, for the first 16 columns of each row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn pair_of_vector([even, odd]: [__m512i; 2]) -> [__m512i; 1] {
    let words = |row| _mm512_cvtepu16_epi32(_mm512_castsi512_si256(row));
    [_mm512_or_si512(words(even), _mm512_slli_epi32::<16>(words(odd)))]
}

/// Groups of four unsigned bytes along k, for the first 16 columns of each row.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn four_of_vector([first, second, third, fourth]: [__m512i; 4]) -> [__m512i; 1] {
    let rows = _mm512_inserti32x4::<1>(first, _mm512_castsi512_si128(second));
    let rows = _mm512_inserti32x4::<2>(rows, _mm512_castsi512_si128(third));
    let rows = _mm512_inserti32x4::<3>(rows, _mm512_castsi512_si128(fourth));
    // Group four columns of each row, then transpose each 4×4 block.
    let columns = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    [vnni::unsigned(_mm512_shuffle_epi8(_mm512_permutexvar_epi32(columns, rows), order))]
}

/// Pairs of words along k. Each vector has every other four columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn interleave_words([even, odd]: [__m512i; 2]) -> [__m512i; 2] {
    [_mm512_unpacklo_epi16(even, odd), _mm512_unpackhi_epi16(even, odd)]
}

/// Stores 16 accumulators as bf16.
///
/// # Safety
/// The elements of the mask can be written.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn store_rounded_vector([sums]: [__m512; 1], c: *mut i16, mask: __mmask16) {
    // SAFETY: the caller's promise.
    unsafe { _mm256_mask_storeu_epi16(c, mask, rounded_to_bf16(sums)) };
}

/// Stores 32 accumulators as bf16, in the order of columns before [`interleave_words`].
///
/// # Safety
/// The elements of the mask can be written.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
unsafe fn store_rounded_pair([low, high]: [__m512; 2], c: *mut i16, mask: __mmask32) {
    // SAFETY: both are vectors of 64 bytes.
    let rounded = unsafe { std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low)) };
    let in_order = _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 4, 1, 5, 2, 6, 3, 7), rounded);
    // SAFETY: the caller's promise.
    unsafe { _mm512_mask_storeu_epi16(c, mask, in_order) };
}

/// Stands for `$store_rounded` where C holds the accumulators, and is never called.
///
/// # Safety
/// None.
unsafe fn not_narrower<S, M, const N: usize>(_: [S; N], _: *mut i16, _: M) {}

#[inline]
fn same_order(sums: [__m512i; 1]) -> [__m512i; 1] {
    sums
}

#[inline]
fn same(vector: __m512i) -> __m512i {
    vector
}

/// Restores the order of columns after [`interleave_words`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn two_in_order([low, high]: [__m512i; 2]) -> [__m512i; 2] {
    [
        _mm512_permutex2var_epi64(low, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high),
        _mm512_permutex2var_epi64(low, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), high),
    ]
}
