//! Transpositions of square blocks in registers.

use std::arch::x86_64::*;

use super::vectors::array;
use super::vnni::in_order;

/// Lanes of a vector of 32-bit values.
const LANES: usize = 16;

/// Transposes 16×16 values of 32 bits.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub fn transposed(rows: [__m512i; LANES]) -> [__m512i; LANES] {
    let mut fours = [_mm512_setzero_si512(); LANES];
    for i in (0..LANES).step_by(4) {
        let low = |j: usize| _mm512_unpacklo_epi32(rows[j], rows[j + 1]);
        let high = |j: usize| _mm512_unpackhi_epi32(rows[j], rows[j + 1]);
        fours[i] = _mm512_unpacklo_epi64(low(i), low(i + 2));
        fours[i + 1] = _mm512_unpackhi_epi64(low(i), low(i + 2));
        fours[i + 2] = _mm512_unpacklo_epi64(high(i), high(i + 2));
        fours[i + 3] = _mm512_unpackhi_epi64(high(i), high(i + 2));
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
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub fn transposed_f32(rows: [__m512i; 16]) -> [__m512; 16] {
    let columns = transposed(rows);
    array!([_mm512_setzero_ps(); LANES], |i| _mm512_castsi512_ps(columns[i]))
}

/// Transposes 8×8 f64.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub fn transposed_f64(rows: [__m512d; 8]) -> [__m512d; 8] {
    let low = |i: usize| _mm512_castpd_si512(_mm512_unpacklo_pd(rows[i], rows[i + 1]));
    let high = |i: usize| _mm512_castpd_si512(_mm512_unpackhi_pd(rows[i], rows[i + 1]));
    // Quarter `q` of `low(i)` has the value `2q` of the rows `i` and `i + 1`, and that of `high(i)`
    // the value `2q + 1`.
    let even = in_order([low(0), low(2), low(4), low(6)]);
    let odd = in_order([high(0), high(2), high(4), high(6)]);
    array!([rows[0]; 8], |i| _mm512_castsi512_pd(if i % 2 == 0 { even[i / 2] } else { odd[i / 2] }))
}

/// Transposes 8×8 f32.
#[inline]
#[target_feature(enable = "avx2")]
pub fn transposed_f32_256(rows: [__m256; 8]) -> [__m256; 8] {
    let mut fours = rows;
    for i in [0, 4] {
        let low = |j: usize| _mm256_castps_pd(_mm256_unpacklo_ps(rows[j], rows[j + 1]));
        let high = |j: usize| _mm256_castps_pd(_mm256_unpackhi_ps(rows[j], rows[j + 1]));
        fours[i] = _mm256_castpd_ps(_mm256_unpacklo_pd(low(i), low(i + 2)));
        fours[i + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low(i), low(i + 2)));
        fours[i + 2] = _mm256_castpd_ps(_mm256_unpacklo_pd(high(i), high(i + 2)));
        fours[i + 3] = _mm256_castpd_ps(_mm256_unpackhi_pd(high(i), high(i + 2)));
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
    let low = |i: usize| _mm256_unpacklo_pd(rows[i], rows[i + 1]);
    let high = |i: usize| _mm256_unpackhi_pd(rows[i], rows[i + 1]);
    [
        _mm256_permute2f128_pd::<0x20>(low(0), low(2)),
        _mm256_permute2f128_pd::<0x20>(high(0), high(2)),
        _mm256_permute2f128_pd::<0x31>(low(0), low(2)),
        _mm256_permute2f128_pd::<0x31>(high(0), high(2)),
    ]
}
