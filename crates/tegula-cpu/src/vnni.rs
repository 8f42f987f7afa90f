//! Packing for VNNI, which multiplies four signed bytes of A by four unsigned bytes of B per lane.
//!
//! The instruction is VPDPBUSD (Intel SDM, volume 2), with 32-bit lanes.
//!
//! A is read unpacked. Packing B makes it unsigned by adding 128. That adds 128 times the sum of a
//! row of A to every accumulator of the row. So accumulators start from a compensation of -128
//! times that sum. Arithmetic is mod 2³², so the result is exact. Steps out of bounds are zeros in
//! A, and any value in B.

use std::arch::x86_64::*;
use std::ops::Range;

use super::caches::Caches;
use super::micro_kernel::COMPENSATED_ROWS;
use super::pack_source::PackSource;
use super::vectors::{PANELS_AHEAD, array, panels_need_prefetch, prefetch_ahead};

/// Steps of k in one packed value.
pub const K_PACK: usize = 4;
/// Lanes of a vector.
const LANES: usize = 16;
/// The sign bit: flipping it converts a signed byte to unsigned, plus 128.
pub const SIGN: u8 = 0x80;

/// What the sum of a row of A is multiplied by to compensate for B plus 128.
pub const COMPENSATION: i32 = -128;

/// Computes the compensation: -128 times the sum of each row of A.
///
/// # Safety
/// As for [`super::micro_kernel::CompensationFn`], for at most [`COMPENSATED_ROWS`] rows.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub unsafe fn compensation(a: *const i32, row: isize, rows: usize, k_groups: usize) -> [i32; COMPENSATED_ROWS] {
    // This reads A first, so it prefetches the rows of the next micro-panel.
    let ahead = if Caches::detect().need_prefetch { row.wrapping_mul(COMPENSATED_ROWS as isize) } else { 0 };
    let mut compensation = [0; COMPENSATED_ROWS];
    for (i, value) in compensation.iter_mut().enumerate().take(rows) {
        let a = a.wrapping_byte_offset(i as isize * row).cast();
        // SAFETY: the caller's promise.
        *value = unsafe { compensation_of_row(a, k_groups * K_PACK, ahead) };
    }
    compensation
}

/// The compensation of a row of `len` bytes. Prefetches what is `ahead` bytes after it, unless 0.
///
/// # Safety
/// They can be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni")]
pub unsafe fn compensation_of_row(a: *const i8, len: usize, ahead: isize) -> i32 {
    const BYTES: usize = LANES * K_PACK;
    let times = _mm512_set1_epi8(SIGN as i8);
    // Two sums, since an addition takes several cycles.
    let mut sums = [_mm512_setzero_si512(); 2];
    for two in (0..len).step_by(2 * BYTES) {
        for (sum, at) in sums.iter_mut().zip([two, two + BYTES]) {
            if ahead != 0 {
                prefetch_ahead(a.wrapping_add(at), ahead as usize);
            }
            let mask = u64::MAX.unbounded_shr(BYTES.saturating_sub(len.saturating_sub(at)) as u32);
            // SAFETY: the caller's promise; masked lanes are not read.
            *sum = _mm512_dpbusd_epi32(*sum, times, unsafe { _mm512_maskz_loadu_epi8(mask, a.wrapping_add(at)) });
        }
    }
    _mm512_reduce_add_epi32(_mm512_add_epi32(sums[0], sums[1])).wrapping_neg()
}

/// Packs rows of A unconverted, `stride` values apart. Steps out of bounds are zeros, up to a whole
/// value.
///
/// # Safety
/// As for [`super::micro_kernel::PackFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub unsafe fn pack_lane_major(from: PackSource<i8>, lanes: Range<usize>, k: Range<usize>, stride: usize, to: *mut i32) {
    from.assert_contains(&lanes, &k);
    let row = |i: usize| to.wrapping_add(i * stride).cast::<i8>();
    let [lane, step] = from.strides();
    // Contiguous columns are transposed in 8×8 blocks of bytes.
    let transposed = if lane == 1 && lanes.len() == 8 { k.len() / 8 * 8 } else { 0 };
    for at in (0..transposed).step_by(8) {
        // SAFETY: the caller's promise: these elements are in the matrix, and `to` holds all steps.
        unsafe {
            let column = |i| from.at(lanes.start, k.start + at + i).cast::<u64>().read_unaligned();
            let rows = transpose(array!([0; 8], |i| column(i)));
            for (i, &bytes) in rows.iter().enumerate() {
                row(i).add(at).cast::<u64>().write_unaligned(bytes);
            }
        }
    }
    for i in 0..lanes.len() {
        // SAFETY: as above; whole values include the zeros.
        unsafe {
            let at = |done: usize| from.at(lanes.start + i, k.start + done);
            if step == 1 {
                row(i).copy_from_nonoverlapping(at(0), k.len());
            } else {
                for done in transposed..k.len() {
                    row(i).add(done).write(at(done).read());
                }
            }
            row(i).add(k.len()).write_bytes(0, k.len().next_multiple_of(K_PACK) - k.len());
        }
    }
}

/// Transposes an 8×8 block of bytes, columns to rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn transpose(columns: [u64; 8]) -> [u64; 8] {
    // Interleave the bytes of two columns, then gather those pairs row by row.
    let pairs = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 8, 1, 9, 2, 10, 3, 11, 4, 12, 5, 13, 6, 14, 7, 15));
    let order: [u16; 32] = const { rows_of_pairs() };
    // SAFETY: both are 64 bytes.
    let (columns, order) = unsafe {
        (std::mem::transmute::<[u64; 8], __m512i>(columns), std::mem::transmute::<[u16; 32], __m512i>(order))
    };
    let rows = _mm512_permutexvar_epi16(order, _mm512_shuffle_epi8(columns, pairs));
    // SAFETY: as above.
    unsafe { std::mem::transmute::<__m512i, [u64; 8]>(rows) }
}

/// The permutation that gathers the four byte pairs of each of eight rows, from four groups of
/// eight.
const fn rows_of_pairs() -> [u16; 32] {
    let mut order = [0; 32];
    let mut i = 0;
    while i < 32 {
        order[i] = (i % 4 * 8 + i / 4) as u16;
        i += 1;
    }
    order
}

/// Packs columns of B, plus 128: step after step, `stride` values apart, four bytes along k per
/// value. Values between steps, and bytes out of bounds, are unspecified.
///
/// # Safety
/// As for [`super::micro_kernel::PackFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub unsafe fn pack_panel(from: PackSource<i8>, lanes: Range<usize>, k: Range<usize>, stride: usize, to: *mut i32) {
    from.assert_contains(&lanes, &k);
    // Whole vectors of elements where columns are adjacent.
    let adjacent = from.strides()[0] == 1;
    for lane in lanes.clone().step_by(if adjacent { LANES * K_PACK } else { LANES }) {
        let to = to.wrapping_add(lane - lanes.start);
        // SAFETY: the caller's promise: these elements are in the matrix, and `to` holds whole
        // vectors of all steps.
        unsafe {
            match adjacent {
                true => pack_rows(from, lane..lanes.end.min(lane + LANES * K_PACK), k.clone(), stride, to),
                false => pack_any(from, lane..lanes.end.min(lane + LANES), k.clone(), stride, to),
            }
        }
    }
}

/// Packs up to 64 adjacent columns.
///
/// # Safety
/// These elements are in the matrix, at least one, and `to` holds whole vectors of all steps.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn pack_rows(from: PackSource<i8>, lanes: Range<usize>, k: Range<usize>, stride: usize, to: *mut i32) {
    let mask = u64::MAX >> (LANES * K_PACK - lanes.len());
    let prefetches = panels_need_prefetch(from);
    for at in k.clone().step_by(K_PACK) {
        let to = to.wrapping_add((at - k.start) / K_PACK * stride);
        // Rows out of bounds repeat the last one.
        let row = |d: usize| from.at(lanes.start, (at + d).min(k.end - 1));
        if prefetches {
            for d in 0..K_PACK {
                prefetch_ahead(row(d), PANELS_AHEAD);
            }
        }
        // SAFETY: the caller's promise; masked bytes are not read.
        let row = |d| unsafe { _mm512_maskz_loadu_epi8(mask, row(d)) };
        let rows = [row(0), row(1), row(2), row(3)];
        for (i, step) in in_order(interleave(rows)).into_iter().enumerate().take(lanes.len().div_ceil(LANES)) {
            // SAFETY: as above.
            unsafe { _mm512_storeu_si512(to.wrapping_add(i * LANES).cast(), step) };
        }
    }
}

/// Groups of four unsigned bytes along k, of four rows. Vector `v` has the columns `4v` to `4v + 3`
/// of each 16.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub fn interleave([first, second, third, fourth]: [__m512i; 4]) -> [__m512i; 4] {
    let [low, high] = [_mm512_unpacklo_epi8(first, second), _mm512_unpackhi_epi8(first, second)];
    let [next_low, next_high] = [_mm512_unpacklo_epi8(third, fourth), _mm512_unpackhi_epi8(third, fourth)];
    [
        unsigned(_mm512_unpacklo_epi16(low, next_low)),
        unsigned(_mm512_unpackhi_epi16(low, next_low)),
        unsigned(_mm512_unpacklo_epi16(high, next_high)),
        unsigned(_mm512_unpackhi_epi16(high, next_high)),
    ]
}

/// Restores the order of columns after [`interleave`]: a transposition of 4×4 quarters of vectors.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub fn in_order([first, second, third, fourth]: [__m512i; 4]) -> [__m512i; 4] {
    let low = [_mm512_shuffle_i32x4::<0x44>(first, second), _mm512_shuffle_i32x4::<0x44>(third, fourth)];
    let high = [_mm512_shuffle_i32x4::<0xEE>(first, second), _mm512_shuffle_i32x4::<0xEE>(third, fourth)];
    [
        _mm512_shuffle_i32x4::<0x88>(low[0], low[1]),
        _mm512_shuffle_i32x4::<0xDD>(low[0], low[1]),
        _mm512_shuffle_i32x4::<0x88>(high[0], high[1]),
        _mm512_shuffle_i32x4::<0xDD>(high[0], high[1]),
    ]
}

/// Packs up to 16 columns of any strides.
///
/// # Safety
/// As for [`pack_rows`].
unsafe fn pack_any(from: PackSource<i8>, lanes: Range<usize>, k: Range<usize>, stride: usize, to: *mut i32) {
    for (group, at) in k.clone().step_by(K_PACK).enumerate() {
        for (i, lane) in lanes.clone().enumerate() {
            let (mut bytes, steps) = ([SIGN; K_PACK], at..k.end.min(at + K_PACK));
            // SAFETY: the caller's promise.
            bytes.iter_mut().zip(steps).for_each(|(to, k)| *to = unsafe { from.at(lane, k).read() } as u8 ^ SIGN);
            // SAFETY: as above.
            unsafe { to.add(group * stride + i).write(i32::from_ne_bytes(bytes)) };
        }
    }
}

/// Converts signed bytes to unsigned, plus 128.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub fn unsigned(bytes: __m512i) -> __m512i {
    _mm512_xor_si512(bytes, _mm512_set1_epi8(SIGN as i8))
}
