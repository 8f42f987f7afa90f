//! Packing of columns of B that are contiguous along k, by transposing blocks in registers; and the
//! transpositions, which the micro-kernels of `along_k` share.
//!
//! A block is 16 lanes of 64 bytes, each a cache line or two, read once. Reading step after step
//! instead would return to each line as often as it has steps, and lines of rows a power of two
//! apart evict each other.

use std::arch::x86_64::*;
use std::ops::Range;

use tegula_core::element::Scalar;

use super::pack_source::PackSource;
use super::vnni::in_order;

/// Lanes of a vector, and packed values of a lane in a block.
const LANES: usize = 16;
/// Bytes of a vector.
const BYTES: usize = 64;
/// Bytes of a packed value.
const VALUE: usize = 4;

/// Packs lanes that are contiguous along k to 32-bit values, group-major: groups are `stride`
/// values apart. A value is as many elements as it has room for; missing ones are zeros. Padding to
/// whole vectors is unspecified.
///
/// # Safety
/// As for [`super::micro_kernel::PackFn`], and `to` holds whole vectors of each group.
#[target_feature(enable = "avx512f,avx512bw")]
pub unsafe fn pack_words<T: Scalar>(
    from: PackSource<T>,
    lanes: Range<usize>,
    k: Range<usize>,
    stride: usize,
    to: *mut u32,
) {
    from.assert_contains(&lanes, &k);
    assert_eq!(from.strides()[1], 1, "lanes are not contiguous along k");
    for lane in lanes.clone().step_by(LANES) {
        for at in k.clone().step_by(BYTES / size_of::<T>()) {
            let bytes = BYTES.min((k.end - at) * size_of::<T>());
            let mask = u64::MAX >> (BYTES - bytes);
            let mut rows = [_mm512_setzero_si512(); LANES];
            for (i, row) in rows.iter_mut().enumerate().take(lanes.end - lane) {
                // SAFETY: the caller's promise; masked bytes are not read.
                *row = unsafe { _mm512_maskz_loadu_epi8(mask, from.at(lane + i, at).cast()) };
            }
            let groups = transposed(rows);
            let to = to.wrapping_add((at - k.start) * size_of::<T>() / VALUE * stride + lane - lanes.start);
            for (i, &group) in groups.iter().enumerate().take(bytes.div_ceil(VALUE)) {
                // SAFETY: the caller's promise.
                unsafe { _mm512_storeu_si512(to.wrapping_add(i * stride).cast(), group) };
            }
        }
    }
}

/// Transposes 16×16 values of 32 bits.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn transposed(rows: [__m512i; LANES]) -> [__m512i; LANES] {
    let mut fours = [_mm512_setzero_si512(); LANES];
    for i in (0..LANES).step_by(4) {
        let low = [0, 2].map(|j| _mm512_unpacklo_epi32(rows[i + j], rows[i + j + 1]));
        let high = [0, 2].map(|j| _mm512_unpackhi_epi32(rows[i + j], rows[i + j + 1]));
        fours[i] = _mm512_unpacklo_epi64(low[0], low[1]);
        fours[i + 1] = _mm512_unpackhi_epi64(low[0], low[1]);
        fours[i + 2] = _mm512_unpacklo_epi64(high[0], high[1]);
        fours[i + 3] = _mm512_unpackhi_epi64(high[0], high[1]);
    }
    // Quarter `q` of `fours[4i + j]` has the values `4q + j` of the rows from `4i` on.
    let mut columns = rows;
    for j in 0..4 {
        let quarters = in_order([fours[j], fours[4 + j], fours[8 + j], fours[12 + j]]);
        for (q, &quarter) in quarters.iter().enumerate() {
            columns[4 * q + j] = quarter;
        }
    }
    columns
}

/// Transposes 16×16 floats, loaded as bits.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn transposed_f32(rows: [__m512i; 16]) -> [__m512; 16] {
    transposed(rows).map(|row| _mm512_castsi512_ps(row))
}

/// Transposes 8×8 floats.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn transposed_f64(rows: [__m512d; 8]) -> [__m512d; 8] {
    let pair = |i: usize| [_mm512_unpacklo_pd(rows[i], rows[i + 1]), _mm512_unpackhi_pd(rows[i], rows[i + 1])];
    let pairs = [pair(0), pair(2), pair(4), pair(6)];
    // Quarter `q` of `pairs[i][j]` has the values `2q + j` of the rows `2i` and `2i + 1`.
    let quarters = |j: usize| in_order(pairs.map(|pair| _mm512_castpd_si512(pair[j])));
    let [even, odd] = [quarters(0), quarters(1)].map(|of| of.map(|row| _mm512_castsi512_pd(row)));
    [even[0], odd[0], even[1], odd[1], even[2], odd[2], even[3], odd[3]]
}

/// Transposes 8×8 floats.
#[inline]
#[target_feature(enable = "avx2")]
pub fn transposed_f32_256(rows: [__m256; 8]) -> [__m256; 8] {
    let mut fours = rows;
    for i in [0, 4] {
        let [low, next_low] = [0, 2].map(|j| _mm256_castps_pd(_mm256_unpacklo_ps(rows[i + j], rows[i + j + 1])));
        let [high, next_high] = [0, 2].map(|j| _mm256_castps_pd(_mm256_unpackhi_ps(rows[i + j], rows[i + j + 1])));
        fours[i] = _mm256_castpd_ps(_mm256_unpacklo_pd(low, next_low));
        fours[i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low, next_low));
        fours[i + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(high, next_high));
        fours[i + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(high, next_high));
    }
    // Half `h` of `fours[4i + j]` has the values `4h + j` of the rows from `4i` on.
    let mut columns = fours;
    for j in 0..4 {
        columns[j] = _mm256_permute2f128_ps::<0x20>(fours[j], fours[4 + j]);
        columns[4 + j] = _mm256_permute2f128_ps::<0x31>(fours[j], fours[4 + j]);
    }
    columns
}

/// Transposes 4×4 floats.
#[inline]
#[target_feature(enable = "avx2")]
pub fn transposed_f64_256(rows: [__m256d; 4]) -> [__m256d; 4] {
    let [low, next_low] = [0, 2].map(|i| _mm256_unpacklo_pd(rows[i], rows[i + 1]));
    let [high, next_high] = [0, 2].map(|i| _mm256_unpackhi_pd(rows[i], rows[i + 1]));
    [
        _mm256_permute2f128_pd::<0x20>(low, next_low),
        _mm256_permute2f128_pd::<0x20>(high, next_high),
        _mm256_permute2f128_pd::<0x31>(low, next_low),
        _mm256_permute2f128_pd::<0x31>(high, next_high),
    ]
}

#[cfg(test)]
mod tests {
    use half::bf16;
    use tegula_core::matrix::{Layout, Shape};

    use super::*;
    use crate::micro_kernel::CpuElement;
    use crate::pack::{Packing, Pairs, pack};

    /// Transposed blocks have the values that packing one step after the other has.
    fn check<T: CpuElement, P: Packing<T>>(number: impl Fn(usize) -> T) {
        const COLS: usize = 53;
        const K: usize = 101;
        let columns: Vec<T> = (0..COLS * K).map(number).collect();
        // SAFETY: the elements outlive the source.
        let from = unsafe { PackSource::rows(columns.as_ptr(), Layout::row_major(Shape::new(COLS, K)).unwrap()) };
        for lanes in [0..1, 3..19, 5..53, 36..53, 7..40] {
            for k in [0..1, 0..16, 3..35, 1..100, 0..101] {
                let (groups, width) = (k.len().div_ceil(P::K_PACK), lanes.len().next_multiple_of(LANES));
                let (mut words, mut plain) = (vec![0u32; groups * width], vec![T::Acc::ZERO; groups * width]);
                // SAFETY: lanes and steps are in the matrix, both have whole vectors of all groups,
                // and the CPU has the instructions.
                unsafe {
                    pack_words(from, lanes.clone(), k.clone(), width, words.as_mut_ptr());
                    pack::<T, P>(from, lanes.clone(), k.clone(), width, plain.as_mut_ptr());
                }
                for group in 0..groups {
                    let row = group * width..group * width + lanes.len();
                    let plain: Vec<_> = plain[row.clone()].iter().map(|x| x.to_bits()).collect();
                    let words: Vec<_> = words[row].iter().map(|&x| u64::from(x)).collect();
                    assert_eq!(words, plain, "{} {lanes:?} {k:?} group {group}", T::TYPE);
                }
            }
        }
    }

    #[test]
    fn transposed_panels_are_those_of_single_steps() {
        if !is_x86_feature_detected!("avx512bw") {
            return eprintln!("skipped: transposed panels (this CPU has no AVX-512)");
        }
        check::<f32, f32>(|i| i as f32);
        check::<bf16, Pairs>(|i| bf16::from_bits(i as u16));
    }
}
