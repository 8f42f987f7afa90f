//! Micro-kernels that read columns of B contiguous along k, unpacked.
//!
//! Packing such columns transposes them in memory. For few rows it takes longer than the product,
//! so these micro-kernels transpose square blocks in registers, and multiply all rows of the
//! micro-tile by them at once. They add in the order of the micro-kernels for packed operands. For
//! further rows they also store the blocks, which are then a packed panel in the L1 cache. Without
//! rows they pack B for large products.
//!
//! A block has as many columns as a vector has lanes. Reading more columns at a time, each on a
//! page of its own, costs more than micro-tiles of one vector lose.

use std::arch::x86_64::*;

use half::{bf16, f16};

use super::micro_kernel::{MicroKernelFn, MicroOperands};
use super::transpose::*;
use super::vectors::*;
use super::vnni::unsigned;

/// Defines the micro-kernels of one type.
///
/// `$select` selects one by the rows and columns of a micro-tile. `$e` is the type of the elements
/// of B, `$s` that of packed values, which A has, and `$t` that of the accumulators. `$load` loads
/// a range of elements of a column as the packed values of a vector, `$group` elements each.
/// `$transposed` transposes a block: as many vectors as a vector has lanes, at first `$zero`; `$at`
/// lists their indices. The other parameters are those of `select!` in `x86`.
macro_rules! along_k {
    ($select:ident: $features:literal, $e:ty, $s:ty, $broadcast:expr, $t:ty as $vector:ty, $mask:ident, $compensated:literal, group $group:literal, $load:expr, $transposed:ident, $zero:expr, $load_c:expr, $store:expr;
     $splat:ident, $mul:ident, $add:ident, $step:ident; $($rows:literal)+; $($at:literal)+) => {
        /// The micro-kernel for these rows and columns.
        pub fn $select([rows, cols]: [usize; 2]) -> MicroKernelFn<$t> {
            const LANES: usize = size_of::<$vector>() / size_of::<$t>();
            /// Elements of a column in a block.
            const STEPS: usize = $group * LANES;

            /// # Safety
            /// As for [`super::micro_kernel::MicroKernelFn`], for `R` rows or none, and a whole
            /// vector of columns if `WHOLE`.
            #[target_feature(enable = $features)]
            unsafe fn micro_kernel<const R: usize, const WHOLE: bool>([_, cols, k]: [usize; 3], alpha: $t, operands: &MicroOperands<$t>, beta: $t, c: *mut $t, row: isize) {
                let MicroOperands { a_row_stride, b_ahead, b_col_stride, b_panel, .. } = *operands;
                let a_rows = RowStrides::of(a_row_stride);
                let mask = |_| $mask(if WHOLE { LANES } else { cols });
                let mut accumulators = [[$splat(0 as $t); 1]; R];
                if $compensated {
                    for i in 0..R {
                        // SAFETY: the compensation has a value for every row.
                        accumulators[i] = [$splat(unsafe { *operands.compensation.add(i) })];
                    }
                }
                // Bytes from a column to the next; the last one repeats.
                let to_next = |i: usize| if WHOLE || i + 1 < cols { b_col_stride } else { 0 };
                // Steps of the first block before the first one of the columns.
                let first = steps_from_block(operands.b.cast::<$e>(), b_col_stride, STEPS, $group);
                let mut a = operands.a.cast::<$s>().wrapping_sub(first / $group);
                let mut b = operands.b.cast::<$e>().wrapping_sub(first);
                let panel_stride = operands.b_k_stride as usize;
                let mut panel = b_panel.wrapping_sub(first / $group * panel_stride);
                let mut left = first + k;
                // A block of columns whose steps $from to $to are multiplied.
                macro_rules! block {
                    ($from:expr, $to:expr) => {
                        let mut columns = [$zero; LANES];
                        let mut column = b;
                        for i in 0..LANES {
                            // SAFETY: the caller's promise: B has these columns and steps; masked
                            // ones are not read.
                            columns[i] = unsafe { $load(column, $from, $to) };
                            column = column.wrapping_byte_offset(to_next(i));
                        }
                        if b_ahead > 0 {
                            column = b.wrapping_byte_add(b_ahead);
                            for i in 0..LANES {
                                _mm_prefetch::<_MM_HINT_T0>(column.cast());
                                column = column.wrapping_byte_offset(to_next(i));
                            }
                        }
                        let values = $transposed(columns);
                        if !b_panel.is_null() {
                            $(if $at * $group >= $from && $at * $group < $to {
                                // SAFETY: the caller's promise: the panel holds whole groups.
                                unsafe { panel.wrapping_add($at * panel_stride).cast::<$vector>().write_unaligned(values[$at]) };
                            })+
                        }
                        // Unrolled, so that the values stay in registers.
                        $(if $at * $group >= $from && $at * $group < $to {
                            for i in 0..R {
                                // SAFETY: the caller's promise: A has these rows and steps.
                                let a = unsafe { $broadcast(*a_rows.at(a, i).wrapping_add($at)) };
                                accumulators[i][0] = $step(a, values[$at], accumulators[i][0]);
                            }
                        })+
                    };
                }
                macro_rules! advance {
                    () => {
                        (a, b, left) = (a.wrapping_add(LANES), b.wrapping_add(STEPS), left.saturating_sub(STEPS));
                        panel = panel.wrapping_add(LANES * panel_stride);
                    };
                }
                if first > 0 {
                    block!(first, left.min(STEPS));
                    advance!();
                }
                while left >= STEPS {
                    block!(0, STEPS);
                    advance!();
                }
                if left > 0 {
                    block!(0, left);
                }
                // SAFETY: the caller's promise: C has these rows and columns, and can be read
                // unless beta is 0.
                unsafe { update_c!(accumulators: [R, 1], alpha, beta, c, row, mask, $t, LANES, $splat, $mul, $add, $load_c, $store) }
            }

            match (cols == LANES, rows) {
                $((true, $rows) => micro_kernel::<$rows, true>,
                (false, $rows) => micro_kernel::<$rows, false>,)+
                _ => unreachable!("micro-tiles fit the registers"),
            }
        }
    };
}

along_k! {
    f32_512: "avx512f,avx512bw,avx512vl", f32, f32, _mm512_set1_ps, f32 as __m512, first16, false, group 1,
    |column: *const f32, from, to| _mm512_maskz_loadu_epi32(first16(to) ^ first16(from), column.cast()), transposed_f32, _mm512_setzero_si512(),
    |from, mask| _mm512_maskz_loadu_ps(mask, from), |to, mask, sum| _mm512_mask_storeu_ps(to, mask, sum);
    _mm512_set1_ps, _mm512_mul_ps, _mm512_add_ps, _mm512_fmadd_ps; 0 1 2 3 4 5 6 7 8 9 10 11 12; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
}
along_k! {
    f64_512: "avx512f,avx512bw,avx512vl", f64, f64, _mm512_set1_pd, f64 as __m512d, first8, false, group 1,
    |column: *const f64, from, to| _mm512_maskz_loadu_pd(first8(to) ^ first8(from), column), transposed_f64, _mm512_setzero_pd(),
    |from, mask| _mm512_maskz_loadu_pd(mask, from), |to, mask, sum| _mm512_mask_storeu_pd(to, mask, sum);
    _mm512_set1_pd, _mm512_mul_pd, _mm512_add_pd, _mm512_fmadd_pd; 0 1 2 3 4 5 6 7 8 9 10 11 12; 0 1 2 3 4 5 6 7
}
along_k! {
    i32_512: "avx512f,avx512bw,avx512vl", i32, i32, _mm512_set1_epi32, i32 as __m512i, first16, false, group 1,
    |column: *const i32, from, to| _mm512_maskz_loadu_epi32(first16(to) ^ first16(from), column), transposed, _mm512_setzero_si512(),
    |from, mask| _mm512_maskz_loadu_epi32(mask, from), |to, mask, sum| _mm512_mask_storeu_epi32(to, mask, sum);
    _mm512_set1_epi32, _mm512_mullo_epi32, _mm512_add_epi32, wide_step_i32; 0 1 2 3 4 5 6 7 8 9 10 11 12; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
}
// Two bf16 per lane.
along_k! {
    bf16_pairs: "avx512f,avx512bw,avx512vl,avx512bf16", bf16, [u8; 4], |x| _mm512_castsi512_ps(_mm512_set1_epi32(i32::from_ne_bytes(x))), f32 as __m512, first16, false, group 2,
    |column: *const bf16, from, to| _mm512_maskz_loadu_epi16(first32(to) ^ first32(from), column.cast()), transposed_f32, _mm512_setzero_si512(),
    |from, mask| _mm512_maskz_loadu_ps(mask, from), |to, mask, sum| _mm512_mask_storeu_ps(to, mask, sum);
    _mm512_set1_ps, _mm512_mul_ps, _mm512_add_ps, step_bf16; 0 1 2 3 4 5 6 7 8 9 10 11 12; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
}
// Widened by the load.
along_k! {
    bf16_512: "avx512f,avx512bw,avx512vl", bf16, f32, _mm512_set1_ps, f32 as __m512, first16, false, group 1,
    |column: *const bf16, from, to| _mm512_slli_epi32::<16>(_mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(first16(to) ^ first16(from), column.cast()))), transposed_f32, _mm512_setzero_si512(),
    |from, mask| _mm512_maskz_loadu_ps(mask, from), |to, mask, sum| _mm512_mask_storeu_ps(to, mask, sum);
    _mm512_set1_ps, _mm512_mul_ps, _mm512_add_ps, _mm512_fmadd_ps; 0 1 2 3 4 5 6 7 8 9 10 11 12; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
}
along_k! {
    f16_512: "avx512f,avx512bw,avx512vl,f16c", f16, f32, _mm512_set1_ps, f32 as __m512, first16, false, group 1,
    |column: *const f16, from, to| _mm512_castps_si512(_mm512_cvtph_ps(_mm256_maskz_loadu_epi16(first16(to) ^ first16(from), column.cast()))), transposed_f32, _mm512_setzero_si512(),
    |from, mask| _mm512_maskz_loadu_ps(mask, from), |to, mask, sum| _mm512_mask_storeu_ps(to, mask, sum);
    _mm512_set1_ps, _mm512_mul_ps, _mm512_add_ps, _mm512_fmadd_ps; 0 1 2 3 4 5 6 7 8 9 10 11 12; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
}
// Four bytes per lane, those of B unsigned.
along_k! {
    bytes: "avx512f,avx512bw,avx512vl,avx512vnni", i8, [u8; 4], |x| _mm512_set1_epi32(i32::from_ne_bytes(x)), i32 as __m512i, first16, true, group 4,
    |column: *const i8, from, to| unsigned(_mm512_maskz_loadu_epi8(first64(to) ^ first64(from), column)), transposed, _mm512_setzero_si512(),
    |from, mask| _mm512_maskz_loadu_epi32(mask, from), |to, mask, sum| _mm512_mask_storeu_epi32(to, mask, sum);
    _mm512_set1_epi32, _mm512_mullo_epi32, _mm512_add_epi32, wide_step_bytes; 0 1 2 3 4 5 6 7 8; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15
}
along_k! {
    f32_256: "avx2,fma", f32, f32, _mm256_set1_ps, f32 as __m256, words, false, group 1,
    |column: *const f32, from, to| _mm256_maskload_ps(column, _mm256_xor_si256(words(to), words(from))), transposed_f32_256, _mm256_setzero_ps(),
    |from, mask| _mm256_maskload_ps(from, mask), |to, mask, sum| _mm256_maskstore_ps(to, mask, sum);
    _mm256_set1_ps, _mm256_mul_ps, _mm256_add_ps, _mm256_fmadd_ps; 0 1 2 3 4 5 6; 0 1 2 3 4 5 6 7
}
along_k! {
    f64_256: "avx2,fma", f64, f64, _mm256_set1_pd, f64 as __m256d, longs, false, group 1,
    |column: *const f64, from, to| _mm256_maskload_pd(column, _mm256_xor_si256(longs(to), longs(from))), transposed_f64_256, _mm256_setzero_pd(),
    |from, mask| _mm256_maskload_pd(from, mask), |to, mask, sum| _mm256_maskstore_pd(to, mask, sum);
    _mm256_set1_pd, _mm256_mul_pd, _mm256_add_pd, _mm256_fmadd_pd; 0 1 2 3 4 5 6; 0 1 2 3
}

/// Elements of a column from the start of its block in memory to its first step, if that is the
/// same for all columns and a number of whole groups; else 0. So whole blocks straddle no lines.
/// `col_stride` is in bytes, `block` and `group` are in elements.
fn steps_from_block<T>(b: *const T, col_stride: isize, block: usize, group: usize) -> usize {
    let (before, group_bytes) = (b as usize % (block * size_of::<T>()), group * size_of::<T>());
    let same = col_stride % (block * size_of::<T>()) as isize == 0 && before.is_multiple_of(group_bytes);
    if same { before / size_of::<T>() } else { 0 }
}
