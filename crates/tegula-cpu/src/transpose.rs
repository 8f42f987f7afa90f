//! Transpositions of square blocks in registers.

use std::arch::x86_64::*;

use super::vnni::in_order;

/// Lanes of a vector of 32-bit values.
const LANES: usize = 16;

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

/// Transposes 16×16 f32, loaded as bits.
#[inline]
#[target_feature(enable = "avx512f")]
pub fn transposed_f32(rows: [__m512i; 16]) -> [__m512; 16] {
    transposed(rows).map(|row| _mm512_castsi512_ps(row))
}

/// Transposes 8×8 f64.
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

/// Transposes 8×8 f32.
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

/// Transposes 4×4 f64.
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
