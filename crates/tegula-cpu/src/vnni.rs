//! Bytes as VNNI multiplies them: four of A, signed, by four of B, unsigned, to a lane of 32 bits (Intel SDM, volume 2, VPDPBUSD).
//!
//! A is read as it lies. B, which is packed anyway, is made unsigned then: 128 more. That adds 128 times the sum of A's row to every sum of the row, so
//! each starts from as much less. All is mod 2³², so nothing is lost. Steps of k that are not there are zeros in A, whatever they are in B.

use std::arch::x86_64::*;
use std::ops::Range;

use super::kernel::STARTS;
use super::source::Source;

/// Steps of k in one packed value.
pub const DEPTH: usize = 4;
/// Lanes of a vector.
const LANES: usize = 16;
/// What makes a signed byte 128 more, unsigned.
const SIGN: u8 = 0x80;

/// -128 times the sum of each row of A.
///
/// # Safety
/// As [`super::kernel::Starts`] asks, for no more than [`STARTS`] rows.
#[target_feature(enable = "avx512f,avx512vnni")]
pub unsafe fn starts(a: *const i32, row: isize, rows: usize, steps: usize) -> [i32; STARTS] {
    let times = _mm512_set1_epi8(SIGN as i8);
    let mut starts = [0; STARTS];
    for (i, start) in starts.iter_mut().enumerate().take(rows) {
        let a = a.wrapping_byte_offset(i as isize * row);
        let mut sum = _mm512_setzero_si512();
        for step in (0..steps).step_by(LANES) {
            let there = u16::MAX >> (LANES - LANES.min(steps - step));
            // SAFETY: the caller's promise; what is masked off is not read.
            sum = _mm512_dpbusd_epi32(sum, times, unsafe { _mm512_maskz_loadu_epi32(there, a.wrapping_add(step)) });
        }
        *start = _mm512_reduce_add_epi32(sum).wrapping_neg();
    }
    starts
}

/// Packs rows of A, bytes as they are, each `width` values after the one before. Steps that are not there are zeros up to a whole value.
///
/// # Safety
/// As [`super::kernel::Pack`] asks.
#[target_feature(enable = "avx512f,avx512bw")]
pub unsafe fn pack_rows(from: Source<i8>, lanes: Range<usize>, k: Range<usize>, width: usize, to: *mut i32) {
    from.contains(&lanes, &k);
    let row = |i: usize| to.wrapping_add(i * width).cast::<i8>();
    let [lane, step] = from.strides();
    // Where columns lie together, eight of eight bytes at a time.
    let turned = if lane == 1 && lanes.len() == 8 { k.len() / 8 * 8 } else { 0 };
    for at in (0..turned).step_by(8) {
        // SAFETY: the caller's promise: these elements are in the matrix, and there is room for all steps.
        unsafe {
            let column = |i| from.at(lanes.start, k.start + at + i).cast::<u64>().read_unaligned();
            let rows = turn([0, 1, 2, 3, 4, 5, 6, 7].map(column));
            (0..8).for_each(|i| row(i).add(at).cast::<u64>().write_unaligned(rows[i]));
        }
    }
    for i in 0..lanes.len() {
        // SAFETY: as above; whole values have room for the zeros.
        unsafe {
            let at = |done: usize| from.at(lanes.start + i, k.start + done);
            if step == 1 {
                row(i).copy_from_nonoverlapping(at(0), k.len());
            } else {
                (turned..k.len()).for_each(|done| row(i).add(done).write(at(done).read()));
            }
            row(i).add(k.len()).write_bytes(0, k.len().next_multiple_of(DEPTH) - k.len());
        }
    }
}

/// Eight columns of eight bytes as eight rows.
#[inline]
#[target_feature(enable = "avx512f,avx512bw")]
fn turn(columns: [u64; 8]) -> [u64; 8] {
    // The bytes of two columns side by side, then those pairs row by row.
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

/// Where four pairs of each of eight rows come from, of four times eight.
const fn rows_of_pairs() -> [u16; 32] {
    let mut order = [0; 32];
    let mut i = 0;
    while i < 32 {
        order[i] = (i % 4 * 8 + i / 4) as u16;
        i += 1;
    }
    order
}

/// Packs columns of B, 128 more each: step after step, `width` values after the one before, four bytes along k to a value. What lies between, and bytes of
/// steps that are not there, is anything.
///
/// # Safety
/// As [`super::kernel::Pack`] asks.
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub unsafe fn pack_panel(from: Source<i8>, lanes: Range<usize>, k: Range<usize>, width: usize, to: *mut i32) {
    from.contains(&lanes, &k);
    for lane in lanes.clone().step_by(LANES) {
        let vector = lane..lanes.end.min(lane + LANES);
        let mut at = k.start;
        while at < k.end {
            let (vector, to) = (vector.clone(), to.wrapping_add((at - k.start) / DEPTH * width + lane - lanes.start));
            // SAFETY: the caller's promise: these elements are in the matrix, and there is room for whole vectors of all steps.
            unsafe {
                at += match from.strides() {
                    [1, _] => pack_step(from, vector, at..k.end, to),
                    [_, 1] => pack_four(from, vector, at..k.end, width, to),
                    _ => pack_any(from, vector, at..k.end.min(at + DEPTH), to),
                };
            }
        }
    }
}

/// A step of up to 16 columns that lie side by side; returns how far it goes in k.
///
/// # Safety
/// These elements are in the matrix, there are some, and there is room for a whole vector.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn pack_step(from: Source<i8>, lanes: Range<usize>, k: Range<usize>, to: *mut i32) -> usize {
    // Four columns of each row together, then these four by four.
    let columns = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    let order = _mm512_broadcast_i32x4(_mm_setr_epi8(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15));
    // SAFETY: the caller's promise; for rows that are not there the last one does as well.
    unsafe {
        let rows = four([0, 1, 2, 3].map(|d| from.at(lanes.start, (k.start + d).min(k.end - 1))), lanes.len());
        let step = _mm512_shuffle_epi8(_mm512_permutexvar_epi32(columns, rows), order);
        _mm512_storeu_si512(to.cast(), unsigned(step));
    }
    DEPTH
}

/// Up to four steps of up to 16 columns that lie along k; returns how far four go.
///
/// # Safety
/// As [`pack_step`], for each step.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn pack_four(from: Source<i8>, lanes: Range<usize>, k: Range<usize>, width: usize, to: *mut i32) -> usize {
    // SAFETY: the caller's promise; for columns that are not there the last one does as well.
    unsafe {
        let at = |i: usize| from.at((lanes.start + i).min(lanes.end - 1), k.start);
        // Every fourth column, four values of each.
        let columns = [0, 1, 2, 3].map(|i| four([0, 4, 8, 12].map(|more| at(i + more)), k.len().min(LANES)));
        let low = [0, 2].map(|i| _mm512_unpacklo_epi32(columns[i], columns[i + 1]));
        let high = [0, 2].map(|i| _mm512_unpackhi_epi32(columns[i], columns[i + 1]));
        let steps = [
            _mm512_unpacklo_epi64(low[0], low[1]),
            _mm512_unpackhi_epi64(low[0], low[1]),
            _mm512_unpacklo_epi64(high[0], high[1]),
            _mm512_unpackhi_epi64(high[0], high[1]),
        ];
        for (i, step) in steps.into_iter().enumerate().take(k.len().div_ceil(DEPTH)) {
            _mm512_storeu_si512(to.add(i * width).cast(), unsigned(step));
        }
    }
    4 * DEPTH
}

/// A step of up to 16 columns, wherever they lie; returns how far it goes in k.
///
/// # Safety
/// As [`pack_step`].
unsafe fn pack_any(from: Source<i8>, lanes: Range<usize>, k: Range<usize>, to: *mut i32) -> usize {
    for (i, lane) in lanes.enumerate() {
        let mut bytes = [SIGN; DEPTH];
        // SAFETY: the caller's promise.
        bytes.iter_mut().zip(k.clone()).for_each(|(to, k)| *to = unsafe { from.at(lane, k).read() } as u8 ^ SIGN);
        // SAFETY: as above.
        unsafe { to.add(i).write(i32::from_ne_bytes(bytes)) };
    }
    DEPTH
}

/// Four times 16 bytes as one vector, of which so many are there, the same of each.
///
/// # Safety
/// Those can be read.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
unsafe fn four(from: [*const i8; 4], there: usize) -> __m512i {
    // SAFETY: the caller's promise; what is masked off is not read.
    let [first, second, third, fourth] = unsafe {
        if there == LANES {
            from.map(|from| _mm_loadu_epi8(from))
        } else {
            from.map(|from| _mm_maskz_loadu_epi8(u16::MAX >> (LANES - there), from))
        }
    };
    let vector = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(first), second);
    _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(vector, third), fourth)
}

/// Signed bytes, 128 more each.
#[inline]
#[target_feature(enable = "avx512f")]
fn unsigned(bytes: __m512i) -> __m512i {
    _mm512_xor_si512(bytes, _mm512_set1_epi8(SIGN as i8))
}
