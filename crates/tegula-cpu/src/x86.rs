//! Micro-kernels for x86-64 with the vector intrinsics of `std::arch`.
//!
//! All share one loop: a micro-tile of C accumulates in registers. Each step of k loads a row of B
//! and multiplies it by each value of a column of A. They differ in the vector type, the
//! micro-tiles that fit its registers, and the multiply-add instruction.

use std::arch::x86_64::*;
use std::ops::Range;

use half::{bf16, f16};

use super::micro_kernel::{
    self, AlongK, CpuElement, FirstRows, MicroKernel, MicroKernelFn, MicroOperands, PACKING_VECTORS, SelectFn,
    WholeColumns,
};
use super::pack::{Packing, Pairs, pack, pack_lane_major};
use super::pack_source::PackSource;
use super::vectors::*;
use super::{along_k, grouped, vnni, whole_columns, whole_rows};

/// Defines the micro-kernels of one type.
///
/// `$select` selects one by the rows and columns of a micro-tile.
///
/// `$s` is the type of packed elements, `$t` that of the accumulators. `$broadcast` broadcasts an
/// element of A, `$widen` loads adjacent elements of B; `$load` and `$store` are for C, with
/// elements of type `$c`. All three take a mask of the first lanes. A masked load costs about as
/// much as a multiplication, so where `$unmasked` holds, whole vectors have their own
/// micro-kernels. Accumulators start from [`MicroOperands::compensation`] where `$compensated`
/// holds, else from 0. Where `$packs_b` holds, B is prefetched as [`MicroOperands::b_ahead`] and
/// [`MicroOperands::prefetch`] say, and up to [`PACKING_VECTORS`] vectors are packed to
/// [`MicroOperands::b_panel`]. `$step` multiplies two vectors and adds a third.
macro_rules! select {
    ($select:ident: $features:literal, $s:ty, $broadcast:expr, $t:ty as $vector:ty => $c:ty, $mask:ident, $compensated:literal, $unmasked:literal, $packs_b:literal, $widen:expr, $load:expr, $store:expr;
     $splat:ident, $mul:ident, $add:ident, $step:ident; $($vectors:literal: $($rows:literal)+;)+) => {
        fn $select([rows, cols]: [usize; 2]) -> MicroKernelFn<$t> {
            const LANES: usize = size_of::<$vector>() / size_of::<$t>();
            const { assert!(!$packs_b || size_of::<$c>() == size_of::<$s>(), "C and panels are stored alike") };

            /// # Safety
            /// As for [`super::micro_kernel::MicroKernelFn`], for `R` rows and `V` vectors of
            /// columns. The last vector is partial unless `WHOLE`.
            #[target_feature(enable = $features)]
            unsafe fn micro_kernel<const R: usize, const V: usize, const WHOLE: bool>([_, cols, k_groups]: [usize; 3], alpha: $t, operands: &MicroOperands<$t>, beta: $t, c: *mut $t, row: isize) {
                let (mut a, mut b) = (operands.a.cast::<$s>(), operands.b.cast::<$s>());
                let MicroOperands { a_row_stride, a_k_stride, b_k_stride, b_ahead, mut b_panel, prefetch, .. } = *operands;
                let (mut prefetch, c) = (*prefetch, c.cast::<$c>());
                let last = $mask(cols - (V - 1) * LANES);
                let mask = |v: usize| if WHOLE || v + 1 < V { $mask(LANES) } else { last };
                if k_groups >= PREFETCH_STEPS {
                    prefetch_c(c.cast(), R, row.wrapping_mul(size_of::<$c>() as isize), cols * size_of::<$c>());
                }
                let mut accumulators = [[$splat(0 as $t); V]; R];
                if $compensated {
                    for i in 0..R {
                        // SAFETY: the compensation has a value for every row.
                        accumulators[i] = [$splat(unsafe { *operands.compensation.add(i) }); V];
                    }
                }
                let (a_rows, b_rows) = (RowStrides::of(a_row_stride), RowStrides::of(b_k_stride.wrapping_mul(size_of::<$s>() as isize)));
                // The step of k `steps` steps on; values of A are contiguous where `steps` is not
                // 0.
                macro_rules! step {
                    ($steps:expr, $packs:literal) => {
                        // SAFETY: the caller's promise: A has these rows, B these columns, and both
                        // these steps. A panel has whole vectors.
                        unsafe {
                            let mut b_row = [$splat(0 as $t); V];
                            for v in 0..V {
                                let from = b_rows.at(b, $steps).add(v * LANES);
                                b_row[v] = $widen(from, mask(v));
                                if $packs_b && b_ahead > 0 {
                                    prefetch_to_l2(from, b_ahead);
                                }
                                if $packs {
                                    $store(b_panel.add(($steps * V + v) * LANES).cast(), $mask(LANES), b_row[v]);
                                }
                            }
                            for_rows!(i in R, {
                                let a = $broadcast(*a_rows.at(a, i).add($steps));
                                for v in 0..V {
                                    accumulators[i][v] = $step(a, b_row[v], accumulators[i][v]);
                                }
                            });
                        }
                    };
                }
                macro_rules! steps {
                    ($count:expr, $packs:literal) => {
                        let mut left = $count;
                        if a_k_stride == 1 {
                            while left >= 2 {
                                step!(0, $packs);
                                step!(1, $packs);
                                (a, b, left) = (a.wrapping_add(2), b_rows.at(b, 2), left - 2);
                                if $packs {
                                    b_panel = b_panel.wrapping_add(2 * V * LANES);
                                }
                            }
                        }
                        for _ in 0..left {
                            step!(0, $packs);
                            (a, b) = (a.wrapping_offset(a_k_stride), b_rows.at(b, 1));
                            if $packs {
                                b_panel = b_panel.wrapping_add(V * LANES);
                            }
                        }
                    };
                }
                let mut left = k_groups;
                while left > 0 {
                    let count = if $packs_b { prefetch_rows(&mut prefetch, left) } else { left };
                    if $packs_b && V <= PACKING_VECTORS && !b_panel.is_null() {
                        steps!(count, true);
                    } else {
                        steps!(count, false);
                    }
                    left -= count;
                }
                // SAFETY: the caller's promise: C has these rows and columns, and can be read
                // unless beta is 0.
                unsafe { update_c!(accumulators: [R, V], alpha, beta, c, row, mask, $t, LANES, $splat, $mul, $add, $load, $store) }
            }

            if $unmasked && cols.is_multiple_of(LANES) {
                match (cols / LANES, rows) {
                    $($(($vectors, $rows) => micro_kernel::<$rows, $vectors, true>,)+)+
                    _ => unreachable!("micro-tiles fit the registers"),
                }
            } else {
                match (cols.div_ceil(LANES), rows) {
                    $($(($vectors, $rows) => micro_kernel::<$rows, $vectors, false>,)+)+
                    _ => unreachable!("micro-tiles fit the registers"),
                }
            }
        }
    };
}

/// Defines the constructor of a [`MicroKernel`] from its selector.
macro_rules! micro_kernels {
    ($(#[$doc:meta])* $name:ident: $features:literal, $t:ty as $vector:ty, $select:ident, unpacked $unpacked:ident, rows $max_rows:expr, tile $high:literal x $wide:literal, kc $kc:literal, along_k $along_k:expr, first_rows $first_rows:expr, whole_rows $whole_rows:expr, whole_columns $whole_columns:expr) => {
        $(#[$doc])*
        pub const fn $name<T: CpuElement<Acc = $t>>() -> MicroKernel<T> {
            const LANES: usize = size_of::<$vector>() / size_of::<$t>();

            /// [`pack_lane_major`], compiled for these instructions.
            ///
            /// # Safety
            /// As for [`super::micro_kernel::PackFn`].
            #[target_feature(enable = $features)]
            unsafe fn rows<T: CpuElement<Acc = $t>>(from: PackSource<T>, lanes: Range<usize>, k: Range<usize>, stride: usize, to: *mut $t) {
                // SAFETY: the caller's promise.
                unsafe { pack_lane_major::<T, T>(from, lanes, k, stride, to) }
            }

            /// [`pack`], compiled for these instructions.
            ///
            /// # Safety
            /// As for [`super::micro_kernel::PackFn`].
            #[target_feature(enable = $features)]
            unsafe fn panel<T: CpuElement<Acc = $t>>(from: PackSource<T>, lanes: Range<usize>, k: Range<usize>, stride: usize, to: *mut $t) {
                // SAFETY: the caller's promise.
                unsafe { pack::<T, T>(from, lanes, k, stride, to) }
            }

            /// # Safety
            /// As for [`super::micro_kernel::NarrowFn`].
            #[target_feature(enable = $features)]
            unsafe fn narrow<T: CpuElement<Acc = $t>>(from: *const $t, width: usize, to: *mut T::Out, row: isize, sizes: [usize; 2]) {
                // SAFETY: the caller's promise.
                unsafe { micro_kernel::narrow::<T>(from, width, to, row, sizes) }
            }

            // Only this type has its own accumulators as packed values.
            let same = T::K_PACK == 1 && size_of::<T>() == size_of::<$t>();
            let along_k: Option<AlongK<$t>> = if same { $along_k } else { None };
            let first_rows: Option<FirstRows> = if same { $first_rows } else { None };
            let whole_rows: Option<SelectFn<$t>> = if same { $whole_rows } else { None };
            let whole_columns: Option<WholeColumns<$t>> = if same { $whole_columns } else { None };
            let select_unpacked: Option<SelectFn<$t>> = if same { Some($unpacked) } else { None };
            MicroKernel { narrow: narrow::<T>, select_unpacked, along_k, first_rows, whole_rows, whole_columns, ..MicroKernel::of_vectors(LANES, $max_rows, [$high, $wide * LANES], $kc, [rows, panel], $select) }
        }
    };
}

/// `sum + a·b` of 32-bit integers, wrapping.
#[inline]
#[target_feature(enable = "avx2")]
fn step_i32(a: __m256i, b: __m256i, sum: __m256i) -> __m256i {
    _mm256_add_epi32(sum, _mm256_mullo_epi32(a, b))
}

/// `sum + a₀·b₀ + a₁·b₁` of the 16-bit halves of each 32-bit lane.
#[inline]
#[target_feature(enable = "avx2")]
fn step_i8(a: __m256i, b: __m256i, sum: __m256i) -> __m256i {
    _mm256_add_epi32(sum, _mm256_madd_epi16(a, b))
}

/// As [`step_i8`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn wide_step_i8(a: __m512i, b: __m512i, sum: __m512i) -> __m512i {
    _mm512_add_epi32(sum, _mm512_madd_epi16(a, b))
}

// At most 24 of 32 registers hold accumulators.
select! {
    packed_512_f32: "avx512f,avx512bw,avx512vl", f32, _mm512_set1_ps, f32 as __m512 => f32, first16, false, true, true,
    |from, mask| _mm512_maskz_loadu_ps(mask, from),
    |from, mask| _mm512_maskz_loadu_ps(mask, from), |to, mask, sum| _mm512_mask_storeu_ps(to, mask, sum);
    _mm512_set1_ps, _mm512_mul_ps, _mm512_add_ps, _mm512_fmadd_ps;
    1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; 2: 1 2 3 4 5 6 7 8 9 10 11 12; 3: 1 2 3 4 5 6 7 8; 4: 1 2 3 4 5 6; 5: 1 2 3; 6: 1 2 3; 7: 1 2 3; 8: 1 2 3;
}
select! {
    packed_512_f64: "avx512f,avx512bw,avx512vl", f64, _mm512_set1_pd, f64 as __m512d => f64, first8, false, true, true,
    |from, mask| _mm512_maskz_loadu_pd(mask, from),
    |from, mask| _mm512_maskz_loadu_pd(mask, from), |to, mask, sum| _mm512_mask_storeu_pd(to, mask, sum);
    _mm512_set1_pd, _mm512_mul_pd, _mm512_add_pd, _mm512_fmadd_pd;
    1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; 2: 1 2 3 4 5 6 7 8 9 10 11 12; 3: 1 2 3 4 5 6 7 8; 4: 1 2 3 4 5 6; 5: 1 2 3; 6: 1 2 3; 7: 1 2 3; 8: 1 2 3;
}
select! {
    half_512_f32: "avx512f,avx512bw,avx512vl", f32, _mm256_set1_ps, f32 as __m256 => f32, first8, false, true, false,
    |from, mask| _mm256_maskz_loadu_ps(mask, from),
    |from, mask| _mm256_maskz_loadu_ps(mask, from), |to, mask, sum| _mm256_mask_storeu_ps(to, mask, sum);
    _mm256_set1_ps, _mm256_mul_ps, _mm256_add_ps, _mm256_fmadd_ps;
    1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16;
}
select! {
    half_512_f64: "avx512f,avx512bw,avx512vl", f64, _mm256_set1_pd, f64 as __m256d => f64, first8, false, true, false,
    |from, mask| _mm256_maskz_loadu_pd(mask, from),
    |from, mask| _mm256_maskz_loadu_pd(mask, from), |to, mask, sum| _mm256_mask_storeu_pd(to, mask, sum);
    _mm256_set1_pd, _mm256_mul_pd, _mm256_add_pd, _mm256_fmadd_pd;
    1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16;
}

/// [`packed_512_f32`], with half vectors where these hold all columns: CPUs that execute 512 bits
/// in two halves take half the time.
fn unpacked_512_f32([rows, cols]: [usize; 2]) -> MicroKernelFn<f32> {
    if cols <= 8 { half_512_f32([rows, cols]) } else { packed_512_f32([rows, cols]) }
}

/// As [`unpacked_512_f32`].
fn unpacked_512_f64([rows, cols]: [usize; 2]) -> MicroKernelFn<f64> {
    if cols <= 4 { half_512_f64([rows, cols]) } else { packed_512_f64([rows, cols]) }
}

select! {
    packed_512_i32: "avx512f,avx512bw,avx512vl", i32, _mm512_set1_epi32, i32 as __m512i => i32, first16, false, false, false,
    |from, mask| _mm512_maskz_loadu_epi32(mask, from),
    |from, mask| _mm512_maskz_loadu_epi32(mask, from), |to, mask, sum| _mm512_mask_storeu_epi32(to, mask, sum);
    _mm512_set1_epi32, _mm512_mullo_epi32, _mm512_add_epi32, wide_step_i32;
    1: 1 2 3 4 5 6 7 8 9 10 11 12; 2: 1 2 3 4 5 6 7 8 9 10 11 12; 3: 1 2 3 4 5 6 7 8; 4: 1 2 3 4 5 6; 5: 1 2 3; 6: 1 2 3; 7: 1 2 3; 8: 1 2 3;
}
select! {
    packed_512_i8: "avx512f,avx512bw,avx512vl", i32, _mm512_set1_epi32, i32 as __m512i => i32, first16, false, true, false,
    |from, mask| _mm512_maskz_loadu_epi32(mask, from),
    |from, mask| _mm512_maskz_loadu_epi32(mask, from), |to, mask, sum| _mm512_mask_storeu_epi32(to, mask, sum);
    _mm512_set1_epi32, _mm512_mullo_epi32, _mm512_add_epi32, wide_step_i8;
    1: 1 2 3 4 5 6 7 8; 2: 1 2 3 4 5 6 7 8; 3: 1 2 3 4 5 6 7 8;
}
// Widened by the load.
select! {
    unpacked_bf16_one_vector: "avx512f,avx512bw,avx512vl", bf16, |x: bf16| widened(_mm256_set1_epi16(x.to_bits() as i16)), f32 as __m512 => f32, first16, false, true, false,
    |from: *const bf16, mask| widened(_mm256_maskz_loadu_epi16(mask, from.cast())),
    |from, mask| _mm512_maskz_loadu_ps(mask, from), |to, mask, sum| _mm512_mask_storeu_ps(to, mask, sum);
    _mm512_set1_ps, _mm512_mul_ps, _mm512_add_ps, _mm512_fmadd_ps;
    1: 1 2 3 4 5 6 7 8 9 10 11 12;
}
select! {
    unpacked_bf16_pairs: "avx512f,avx512bw,avx512vl", bf16, |x: bf16| [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(_mm512_set1_epi16(x.to_bits() as i16))); 2], f32 as [__m512; 2] => f32, first32, false, true, false,
    |from: *const bf16, mask| even_and_odd(_mm512_maskz_loadu_epi16(mask, from.cast())),
    |from, mask| load_pair(from, mask), |to, mask, sum| store_pair(to, mask, sum);
    set_pair, mul_pair, add_pair, fmadd_pair;
    1: 1 2 3 4 5 6 7 8 9 10 11 12; 2: 1 2 3 4 5 6; 3: 1 2 3 4; 4: 1 2 3;
}
select! {
    unpacked_f16: "avx512f,avx512bw,avx512vl,f16c", f16, |x: f16| _mm512_cvtph_ps(_mm256_set1_epi16(x.to_bits() as i16)), f32 as __m512 => f32, first16, false, true, false,
    |from: *const f16, mask| _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from.cast())),
    |from, mask| _mm512_maskz_loadu_ps(mask, from), |to, mask, sum| _mm512_mask_storeu_ps(to, mask, sum);
    _mm512_set1_ps, _mm512_mul_ps, _mm512_add_ps, _mm512_fmadd_ps;
    1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; 2: 1 2 3 4 5 6 7 8 9 10 11 12; 3: 1 2 3 4 5 6 7 8; 4: 1 2 3 4 5 6; 5: 1 2 3; 6: 1 2 3; 7: 1 2 3; 8: 1 2 3;
}
select! {
    rounded_unpacked_f16: "avx512f,avx512bw,avx512vl,f16c", f16, |x: f16| _mm512_cvtph_ps(_mm256_set1_epi16(x.to_bits() as i16)), f32 as __m512 => f16, first16, false, true, false,
    |from: *const f16, mask| _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from.cast())),
    |from: *const f16, mask| _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from.cast())),
    |to: *mut f16, mask, sum| _mm256_mask_storeu_epi16(to.cast(), mask, _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(sum));
    _mm512_set1_ps, _mm512_mul_ps, _mm512_add_ps, _mm512_fmadd_ps;
    1: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16; 2: 1 2 3 4 5 6 7 8 9 10 11 12; 3: 1 2 3 4 5 6 7 8; 4: 1 2 3 4 5 6; 5: 1 2 3; 6: 1 2 3; 7: 1 2 3; 8: 1 2 3;
}
// The upper half of each lane of A is 0, so only the first of each pair is multiplied.
select! {
    unpacked_i8: "avx512f,avx512bw,avx512vl", i8, |x: i8| _mm512_set1_epi32(i32::from(x) & 0xFFFF), i32 as __m512i => i32, first16, false, false, false,
    |from: *const i8, mask| _mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(mask, from)),
    |from, mask| _mm512_maskz_loadu_epi32(mask, from), |to, mask, sum| _mm512_mask_storeu_epi32(to, mask, sum);
    _mm512_set1_epi32, _mm512_mullo_epi32, _mm512_add_epi32, wide_step_i8;
    1: 1 2 3 4 5 6 7 8 9 10 11 12; 2: 1 2 3 4 5 6 7 8 9 10 11 12; 3: 1 2 3 4 5 6 7 8; 4: 1 2 3 4 5 6; 5: 1 2 3; 6: 1 2 3; 7: 1 2 3; 8: 1 2 3;
}
// Four bytes per lane, those of B unsigned: `vnni` packs them so, and computes the compensation.
select! {
    packed_512_bytes: "avx512f,avx512bw,avx512vl,avx512vnni", [u8; 4], |x| _mm512_set1_epi32(i32::from_ne_bytes(x)), i32 as __m512i => i32, first16, true, true, false,
    |from: *const [u8; 4], mask| _mm512_maskz_loadu_epi32(mask, from.cast()),
    |from, mask| _mm512_maskz_loadu_epi32(mask, from), |to, mask, sum| _mm512_mask_storeu_epi32(to, mask, sum);
    _mm512_set1_epi32, _mm512_mullo_epi32, _mm512_add_epi32, wide_step_bytes;
    1: 1 2 3 4 5 6 7 8; 2: 1 2 3 4 5 6 7 8; 3: 1 2 3 4 5 6 7 8;
}
// Two bf16 per lane.
select! {
    packed_512_bf16: "avx512f,avx512bw,avx512vl,avx512bf16", [u8; 4], |x| _mm512_castsi512_ps(_mm512_set1_epi32(i32::from_ne_bytes(x))), f32 as __m512 => f32, first16, false, true, false,
    |from: *const [u8; 4], mask| _mm512_maskz_loadu_ps(mask, from.cast()),
    |from, mask| _mm512_maskz_loadu_ps(mask, from), |to, mask, sum| _mm512_mask_storeu_ps(to, mask, sum);
    _mm512_set1_ps, _mm512_mul_ps, _mm512_add_ps, step_bf16;
    1: 1 2 3 4 5 6 7 8 9 10 11 12; 2: 1 2 3 4 5 6 7 8; 3: 1 2 3 4 5 6 7 8; 4: 1 2 3 4 5 6;
}
// VCVTNEPS2BF16 reads subnormal accumulators as 0, but VDPBF16PS has written none.
select! {
    rounded_512_bf16: "avx512f,avx512bw,avx512vl,avx512bf16", [u8; 4], |x| _mm512_castsi512_ps(_mm512_set1_epi32(i32::from_ne_bytes(x))), f32 as __m512 => bf16, first16, false, true, false,
    |from: *const [u8; 4], mask| _mm512_maskz_loadu_ps(mask, from.cast()),
    |from: *const bf16, mask| widened(_mm256_maskz_loadu_epi16(mask, from.cast())),
    |to: *mut bf16, mask, sum| _mm256_mask_storeu_epi16(to.cast(), mask, rounded_to_bf16(sum));
    _mm512_set1_ps, _mm512_mul_ps, _mm512_add_ps, step_bf16;
    1: 1 2 3 4 5 6; 2: 1 2 3 4 5 6; 3: 1 2 3 4 5 6; 4: 1 2 3 4 5 6;
}
select! {
    rounded_512_f16: "avx512f,avx512bw,avx512vl,f16c", f32, _mm512_set1_ps, f32 as __m512 => f16, first16, false, true, false,
    |from, mask| _mm512_maskz_loadu_ps(mask, from),
    |from: *const f16, mask| _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(mask, from.cast())),
    |to: *mut f16, mask, sum| _mm256_mask_storeu_epi16(to.cast(), mask, _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(sum));
    _mm512_set1_ps, _mm512_mul_ps, _mm512_add_ps, _mm512_fmadd_ps;
    1: 1 2 3 4 5 6 7 8; 2: 1 2 3 4 5 6 7 8; 3: 1 2 3 4 5 6 7 8;
}
// At most 12 of 16 registers hold accumulators.
select! {
    packed_256_f32: "avx2,fma", f32, _mm256_set1_ps, f32 as __m256 => f32, words, false, true, false,
    |from, mask| _mm256_maskload_ps(from, mask),
    |from, mask| _mm256_maskload_ps(from, mask), |to, mask, sum| _mm256_maskstore_ps(to, mask, sum);
    _mm256_set1_ps, _mm256_mul_ps, _mm256_add_ps, _mm256_fmadd_ps;
    1: 1 2 3 4 5 6 7 8; 2: 1 2 3 4 5 6; 3: 1 2 3 4; 4: 1 2;
}
select! {
    packed_256_f64: "avx2,fma", f64, _mm256_set1_pd, f64 as __m256d => f64, longs, false, true, false,
    |from, mask| _mm256_maskload_pd(from, mask),
    |from, mask| _mm256_maskload_pd(from, mask), |to, mask, sum| _mm256_maskstore_pd(to, mask, sum);
    _mm256_set1_pd, _mm256_mul_pd, _mm256_add_pd, _mm256_fmadd_pd;
    1: 1 2 3 4 5 6 7 8; 2: 1 2 3 4 5 6; 3: 1 2 3 4; 4: 1 2;
}
select! {
    packed_256_i32: "avx2", i32, _mm256_set1_epi32, i32 as __m256i => i32, words, false, false, false,
    |from, mask| _mm256_maskload_epi32(from, mask),
    |from, mask| _mm256_maskload_epi32(from, mask), |to, mask, sum| _mm256_maskstore_epi32(to, mask, sum);
    _mm256_set1_epi32, _mm256_mullo_epi32, _mm256_add_epi32, step_i32;
    1: 1 2 3 4 5 6 7 8; 2: 1 2 3 4 5 6; 3: 1 2 3 4; 4: 1 2;
}
select! {
    packed_256_i8: "avx2", i32, _mm256_set1_epi32, i32 as __m256i => i32, words, false, true, false,
    |from, mask| _mm256_maskload_epi32(from, mask),
    |from, mask| _mm256_maskload_epi32(from, mask), |to, mask, sum| _mm256_maskstore_epi32(to, mask, sum);
    _mm256_set1_epi32, _mm256_mullo_epi32, _mm256_add_epi32, step_i8;
    1: 1 2 3 4 5 6; 2: 1 2 3 4 5 6;
}

micro_kernels! {
    /// f32 with AVX-512, and 16-bit floats widened to it.
    avx512_f32: "avx512f,avx512bw,avx512vl", f32 as __m512, packed_512_f32, unpacked unpacked_512_f32, rows [16, 12, 8, 6, 3, 3, 3, 3], tile 8 x 3, kc 256, along_k Some(AlongK { max_rows: 64, tile_rows: 12, full_rows: 8, select: along_k::f32_512 }), first_rows Some(FirstRows { tile: [6, 4], min_rows: 56 }), whole_rows Some(whole_rows::f32_512), whole_columns Some(WholeColumns { tile_rows: 4, max_rows: 4, cached_rows: 16, select: whole_columns::f32_512 })
}
micro_kernels! {
    /// f64 with AVX-512.
    avx512_f64: "avx512f,avx512bw,avx512vl", f64 as __m512d, packed_512_f64, unpacked unpacked_512_f64, rows [16, 12, 8, 6, 3, 3, 3, 3], tile 8 x 3, kc 256, along_k Some(AlongK { max_rows: 32, tile_rows: 12, full_rows: 8, select: along_k::f64_512 }), first_rows Some(FirstRows { tile: [6, 4], min_rows: 56 }), whole_rows Some(whole_rows::f64_512), whole_columns Some(WholeColumns { tile_rows: 4, max_rows: 4, cached_rows: 16, select: whole_columns::f64_512 })
}
micro_kernels! {
    /// i32 with AVX-512.
    avx512_i32: "avx512f,avx512bw,avx512vl", i32 as __m512i, packed_512_i32, unpacked packed_512_i32, rows [12, 12, 8, 6, 3, 3, 3, 3], tile 8 x 3, kc 512, along_k Some(AlongK { max_rows: 64, tile_rows: 12, full_rows: 8, select: along_k::i32_512 }), first_rows None, whole_rows None, whole_columns Some(WholeColumns { tile_rows: 4, max_rows: 4, cached_rows: 16, select: whole_columns::i32_512 })
}
micro_kernels! {
    /// Pairs of i8 with AVX-512.
    avx512_i8: "avx512f,avx512bw,avx512vl", i32 as __m512i, packed_512_i8, unpacked packed_512_i8, rows [12, 12, 8, 6, 3, 3, 3, 3], tile 8 x 3, kc 384, along_k None, first_rows None, whole_rows None, whole_columns None
}
micro_kernels! {
    /// f32 with AVX2, and 16-bit floats widened to it.
    avx2_f32: "avx2,fma", f32 as __m256, packed_256_f32, unpacked packed_256_f32, rows [8, 6, 4, 2, 0, 0, 0, 0], tile 6 x 2, kc 256, along_k Some(AlongK { max_rows: 16, tile_rows: 6, full_rows: 6, select: along_k::f32_256 }), first_rows None, whole_rows Some(whole_rows::f32_256), whole_columns Some(WholeColumns::single(2, whole_columns::f32_256))
}
micro_kernels! {
    /// f64 with AVX2.
    avx2_f64: "avx2,fma", f64 as __m256d, packed_256_f64, unpacked packed_256_f64, rows [8, 6, 4, 2, 0, 0, 0, 0], tile 6 x 2, kc 256, along_k Some(AlongK { max_rows: 6, tile_rows: 6, full_rows: 6, select: along_k::f64_256 }), first_rows None, whole_rows Some(whole_rows::f64_256), whole_columns Some(WholeColumns::single(2, whole_columns::f64_256))
}
micro_kernels! {
    /// i32 with AVX2.
    avx2_i32: "avx2", i32 as __m256i, packed_256_i32, unpacked packed_256_i32, rows [8, 6, 4, 2, 0, 0, 0, 0], tile 6 x 2, kc 256, along_k None, first_rows None, whole_rows None, whole_columns None
}
micro_kernels! {
    /// Pairs of i8 with AVX2.
    avx2_i8: "avx2", i32 as __m256i, packed_256_i8, unpacked packed_256_i8, rows [8, 6, 4, 2, 0, 0, 0, 0], tile 6 x 2, kc 256, along_k None, first_rows None, whole_rows None, whole_columns None
}

/// bf16 with AVX-512.
pub const fn avx512_bf16() -> MicroKernel<bf16> {
    MicroKernel {
        select_unpacked: Some(unpacked_bf16),
        along_k: Some(AlongK { max_rows: 64, tile_rows: 12, full_rows: 8, select: along_k::bf16_512 }),
        whole_columns: Some(WholeColumns {
            tile_rows: 4,
            max_rows: 20,
            cached_rows: 20,
            select: whole_columns::bf16_512,
        }),
        max_rows: [12, 12, 6, 6, 4, 4, 3, 3],
        kc: 512,
        ..avx512_f32()
    }
}

/// The micro-kernels on unpacked bf16.
///
/// More than one vector is processed as pairs, even columns apart from odd ones: each is then
/// widened by one simple instruction. The store restores the order of the columns.
fn unpacked_bf16([rows, cols]: [usize; 2]) -> MicroKernelFn<f32> {
    if cols <= 16 { unpacked_bf16_one_vector([rows, cols]) } else { unpacked_bf16_pairs([rows, cols]) }
}

/// Widens 32 bf16 to f32: even columns, and odd columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn even_and_odd(from: __m512i) -> [__m512; 2] {
    let odd = _mm512_and_si512(from, _mm512_set1_epi32(0xFFFF_0000_u32 as i32));
    [_mm512_castsi512_ps(_mm512_slli_epi32::<16>(from)), _mm512_castsi512_ps(odd)]
}

/// The permutation from even and odd columns to columns in order. Indices from 16 on are of the
/// second vector.
const IN_ORDER: [[i32; 16]; 2] = [
    [0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23],
    [8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31],
];
/// The inverse permutation.
const EVEN_AND_ODD: [[i32; 16]; 2] = [
    [0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30],
    [1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31],
];

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn permuted(pair: [__m512; 2], order: &[[i32; 16]; 2]) -> [__m512; 2] {
    // SAFETY: the array has the 16 indices of a vector.
    let order = |v: usize| unsafe { _mm512_loadu_epi32(order[v].as_ptr()) };
    array!([pair[0]; 2], |v| _mm512_permutex2var_ps(pair[0], order(v), pair[1]))
}

/// # Safety
/// The lanes of the mask can be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn load_pair(from: *const f32, mask: __mmask32) -> [__m512; 2] {
    // SAFETY: the caller's promise.
    let [low, high] = unsafe {
        [
            _mm512_maskz_loadu_ps(mask as __mmask16, from),
            _mm512_maskz_loadu_ps((mask >> 16) as __mmask16, from.wrapping_add(16)),
        ]
    };
    permuted([low, high], &EVEN_AND_ODD)
}

/// # Safety
/// The lanes of the mask can be written.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn store_pair(to: *mut f32, mask: __mmask32, sums: [__m512; 2]) {
    let [low, high] = permuted(sums, &IN_ORDER);
    // SAFETY: the caller's promise.
    unsafe {
        _mm512_mask_storeu_ps(to, mask as __mmask16, low);
        _mm512_mask_storeu_ps(to.wrapping_add(16), (mask >> 16) as __mmask16, high);
    }
}

/// Defines an operation of `select!` on a pair of vectors.
macro_rules! pairs {
    ($($name:ident($($x:ident),*) = $one:ident;)*) => {$(
        #[inline]
        #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
        fn $name($($x: [__m512; 2]),*) -> [__m512; 2] {
            array!([_mm512_setzero_ps(); 2], |i| $one($($x[i]),*))
        }
    )*};
}

pairs! {
    mul_pair(x, y) = _mm512_mul_ps;
    add_pair(x, y) = _mm512_add_ps;
    fmadd_pair(x, y, z) = _mm512_fmadd_ps;
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn set_pair(x: f32) -> [__m512; 2] {
    [_mm512_set1_ps(x); 2]
}

/// Pairs of bf16 with AVX-512 and its bf16 instructions.
pub const fn avx512bf16() -> MicroKernel<bf16> {
    /// # Safety
    /// As for [`super::micro_kernel::PackFn`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn rows(from: PackSource<bf16>, lanes: Range<usize>, k: Range<usize>, stride: usize, to: *mut f32) {
        // SAFETY: the caller's promise.
        unsafe { pack_lane_major::<bf16, Pairs>(from, lanes, k, stride, to) }
    }

    /// # Safety
    /// As for [`super::micro_kernel::PackFn`].
    #[target_feature(enable = "avx512f,avx512bw,avx512vl")]
    unsafe fn panel(from: PackSource<bf16>, lanes: Range<usize>, k: Range<usize>, stride: usize, to: *mut f32) {
        prefetch_panels(from, lanes.clone(), k.clone());
        // SAFETY: the caller's promise.
        unsafe { pack::<bf16, Pairs>(from, lanes, k, stride, to) }
    }

    MicroKernel {
        max_rows: grouped::BF16_ROWS,
        // Most layers have multiples of 64 columns, which leave no narrow micro-tile.
        tile: [6, 4 * 16],
        kc: 512,
        k_pack: Pairs::K_PACK,
        small_work: 3 << 17,
        skinny_rows: 32,
        direct_a: true,
        pack: [rows, panel],
        select_packed: packed_512_bf16,
        select_rounded: Some(rounded_512_bf16),
        select_unpacked_rounded: Some(grouped::rounded_bf16_pairs),
        select_unpacked: Some(grouped::bf16_pairs),
        along_k: Some(AlongK { max_rows: 32, tile_rows: 12, full_rows: 12, select: along_k::bf16_pairs }),
        whole_columns: Some(WholeColumns {
            tile_rows: 4,
            max_rows: 40,
            cached_rows: 40,
            select: whole_columns::bf16_pairs,
        }),
        ..avx512_f32()
    }
}

/// f16 with AVX-512.
pub const fn avx512_f16() -> MicroKernel<f16> {
    MicroKernel {
        select_unpacked: Some(unpacked_f16),
        select_rounded: Some(rounded_512_f16),
        select_unpacked_rounded: Some(rounded_unpacked_f16),
        along_k: Some(AlongK { max_rows: 64, tile_rows: 12, full_rows: 8, select: along_k::f16_512 }),
        whole_columns: Some(WholeColumns {
            tile_rows: 4,
            max_rows: 20,
            cached_rows: 20,
            select: whole_columns::f16_512,
        }),
        kc: 512,
        ..avx512_f32()
    }
}

/// i8 with AVX-512.
pub const fn avx512_bytes() -> MicroKernel<i8> {
    MicroKernel {
        select_unpacked: Some(unpacked_i8),
        whole_columns: Some(WholeColumns::single(4, whole_columns::bytes_512)),
        ..avx512_i8()
    }
}

/// i8 with VNNI, four per lane. It multiplies so fast that packing pays, but for few rows and the
/// smallest products.
pub const fn vnni_bytes() -> MicroKernel<i8> {
    MicroKernel {
        max_rows: grouped::BYTES_ROWS,
        kc: 1024,
        k_pack: vnni::K_PACK,
        small_work: 1 << 15,
        skinny_rows: 12,
        direct_a: true,
        compensation: Some(vnni::compensation),
        pack: [vnni::pack_lane_major, vnni::pack_panel],
        select_packed: packed_512_bytes,
        select_unpacked: Some(grouped::bytes),
        along_k: Some(AlongK { max_rows: 16, tile_rows: 8, full_rows: 8, select: along_k::bytes }),
        whole_columns: Some(WholeColumns::single(4, whole_columns::bytes_vnni)),
        ..avx512_bytes()
    }
}
