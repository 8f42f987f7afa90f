//! Packing for the bf16 instructions of AVX-512, and rounding to bf16.
//!
//! VDPBF16PS multiplies two bf16 of A by two of B per 32-bit lane (Intel SDM, volume 2). So a
//! packed value is a pair of neighbors along k. VCVTNE2PS2BF16 rounds two vectors of f32 to the
//! nearest bf16, ties to even.

use std::arch::x86_64::*;
use std::ops::Range;
use std::slice::{from_raw_parts, from_raw_parts_mut};

use half::bf16;

use super::micro_kernel::CpuElement;
use super::pack::{Packing, pack, pack_lane_major};
use super::pack_source::PackSource;
use super::vectors::{first32, prefetch_panels};

/// Steps of k in one packed value.
pub const K_PACK: usize = 2;
/// Lanes of a vector of pairs, or of f32.
const LANES: usize = 16;
/// bf16 in a vector.
const WORDS: usize = 2 * LANES;

/// Pairs of bf16, in the bits of an accumulator.
struct Pairs;

impl Packing<bf16> for Pairs {
    const K_PACK: usize = K_PACK;
    #[inline(always)]
    fn pack(element: bf16, next: bf16) -> f32 {
        f32::from_bits(u32::from(next.to_bits()) << 16 | u32::from(element.to_bits()))
    }
    #[inline(always)]
    fn pack_slice(from: &[bf16], to: &mut [f32]) {
        from.chunks_exact(K_PACK).zip(to).for_each(|(from, to)| *to = Self::pack(from[0], from[1]));
    }
}

/// Packs rows of A, lane-major.
///
/// # Safety
/// As for [`super::micro_kernel::PackFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub unsafe fn pack_rows(from: PackSource<bf16>, lanes: Range<usize>, k: Range<usize>, stride: usize, to: *mut f32) {
    // SAFETY: the caller's promise.
    unsafe { pack_lane_major::<bf16, Pairs>(from, lanes, k, stride, to) }
}

/// Packs columns of B: step after step, `stride` values apart. Values between steps are
/// unspecified.
///
/// # Safety
/// As for [`super::micro_kernel::PackFn`].
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub unsafe fn pack_panel(from: PackSource<bf16>, lanes: Range<usize>, k: Range<usize>, stride: usize, to: *mut f32) {
    prefetch_panels(from, lanes.clone(), k.clone());
    if from.strides()[0] != 1 {
        // SAFETY: the caller's promise.
        return unsafe { pack::<bf16, Pairs>(from, lanes, k, stride, to) };
    }
    from.assert_contains(&lanes, &k);
    for at in k.clone().step_by(K_PACK) {
        let to = to.wrapping_add((at - k.start) / K_PACK * stride);
        for lane in lanes.clone().step_by(WORDS) {
            let count = WORDS.min(lanes.end - lane);
            // SAFETY: the caller's promise: these elements are in the matrix, and `to` holds whole
            // vectors of all steps. Masked elements are not accessed.
            unsafe {
                let row = |k: usize| _mm512_maskz_loadu_epi16(first32(count), from.at(lane, k).cast());
                let next = if at + 1 < k.end { row(at + 1) } else { _mm512_setzero_si512() };
                let [low, high] = in_order(interleave([row(at), next]));
                let to = to.wrapping_add(lane - lanes.start);
                _mm512_storeu_si512(to.cast(), low);
                if count > LANES {
                    _mm512_storeu_si512(to.wrapping_add(LANES).cast(), high);
                }
            }
        }
    }
}

/// Pairs of words along k, of two rows. Each vector has every other four columns.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub fn interleave([even, odd]: [__m512i; 2]) -> [__m512i; 2] {
    [_mm512_unpacklo_epi16(even, odd), _mm512_unpackhi_epi16(even, odd)]
}

/// Restores the order of columns after [`interleave`].
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
pub fn in_order([low, high]: [__m512i; 2]) -> [__m512i; 2] {
    [
        _mm512_permutex2var_epi64(low, _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11), high),
        _mm512_permutex2var_epi64(low, _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15), high),
    ]
}

/// Whether a lane is subnormal: its exponent is zero, and its mantissa is not.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512vl")]
fn has_subnormal(x: __m512) -> bool {
    let bits = _mm512_castps_si512(x);
    let small = _mm512_testn_epi32_mask(bits, _mm512_set1_epi32(0x7F80_0000));
    _mm512_mask_test_epi32_mask(small, bits, _mm512_set1_epi32(0x007F_FFFF)) != 0
}

/// Rounds accumulators to bf16. The instruction would round subnormal numbers to zeros.
///
/// # Safety
/// As for [`super::micro_kernel::NarrowFn`]. The CPU has AVX-512 with bf16.
#[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512bf16")]
pub unsafe fn narrow(from: *const f32, width: usize, to: *mut bf16, row: isize, [rows, cols]: [usize; 2]) {
    for i in 0..rows {
        let (from, to) = (from.wrapping_add(i * width), to.wrapping_offset(i as isize * row));
        for col in (0..cols).step_by(WORDS) {
            let (from, to, count) = (from.wrapping_add(col), to.wrapping_add(col), WORDS.min(cols - col));
            let mask = first32(count);
            // SAFETY: the caller's promise; masked elements are not accessed. A vector of bf16 is a
            // vector of bits.
            unsafe {
                let low = _mm512_maskz_loadu_ps(mask as u16, from);
                let high = _mm512_maskz_loadu_ps((mask >> LANES) as u16, from.wrapping_add(LANES));
                if has_subnormal(low) || has_subnormal(high) {
                    let (from, to) = (from_raw_parts(from, count), from_raw_parts_mut(to, count));
                    bf16::narrow_slice(from, to);
                    continue;
                }
                let both = std::mem::transmute::<__m512bh, __m512i>(_mm512_cvtne2ps_pbh(high, low));
                match count {
                    WORDS => _mm512_storeu_si512(to.cast(), both),
                    _ => _mm512_mask_storeu_epi16(to.cast(), mask, both),
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use tegula_core::matrix::{Layout, Shape};

    use super::*;
    use crate::Isa;

    /// Numbers of all magnitudes, with subnormal ones, ties, infinities and NaN.
    fn sums() -> impl Iterator<Item = f32> {
        let bits = (0..0xFFFF_FFFF).step_by(0x0000_3F80).chain([0, 0x7F80_0000, 0x7FC0_0001]);
        bits.map(f32::from_bits)
    }

    #[test]
    fn rounding_is_that_of_single_elements() {
        if !Isa::Avx512Bf16.is_available() {
            return eprintln!("skipped: this CPU has no bf16 instructions");
        }
        let from: Vec<f32> = sums().collect();
        for width in [1, 15, 16, 17, 31, 32, 33, 70, from.len()] {
            let (rows, stride) = (from.len() / width, width as isize + 1);
            let mut to = vec![bf16::ONE; rows * (width + 1)];
            // SAFETY: the CPU has the instructions, and both slices have these rows.
            unsafe { narrow(from.as_ptr(), width, to.as_mut_ptr(), stride, [rows, width]) };
            for (from, to) in from.chunks_exact(width).zip(to.chunks_exact(width + 1)) {
                let mut want = vec![bf16::ONE; width + 1];
                <bf16 as CpuElement>::narrow_slice(from, &mut want[..width]);
                let bits = |values: &[bf16]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                assert_eq!(bits(to), bits(&want), "{width} columns");
            }
        }
    }

    #[test]
    fn panels_are_those_of_any_strides() {
        if !Isa::Avx512Bf16.is_available() {
            return eprintln!("skipped: this CPU has no bf16 instructions");
        }
        let (rows, cols) = (9, 150);
        let b: Vec<bf16> = (0..rows * cols).map(|i| bf16::from_bits(i as u16)).collect();
        let layout = Layout { shape: Shape::new(cols, rows), offset: 0, strides: [0, 1, cols as isize] };
        // SAFETY: the source is read while `b` lives.
        let source = unsafe { PackSource::rows(b.as_ptr(), layout) };
        for lanes in [0..1, 3..19, 0..16, 5..37, 20..84, 1..150] {
            for k in [0..1, 0..9, 2..8] {
                let stride = lanes.len().next_multiple_of(LANES);
                let groups = k.len().div_ceil(K_PACK);
                let (mut fast, mut plain) = (vec![0f32; stride * groups + LANES], vec![0f32; stride * groups]);
                // SAFETY: these elements are in the matrix, and both panels hold whole vectors.
                unsafe {
                    pack_panel(source, lanes.clone(), k.clone(), stride, fast.as_mut_ptr());
                    pack::<bf16, Pairs>(source, lanes.clone(), k.clone(), stride, plain.as_mut_ptr());
                }
                assert_eq!(fast[stride * groups..], [0.0; LANES], "{lanes:?} {k:?}");
                for (fast, plain) in fast.chunks(stride).zip(plain.chunks(stride)) {
                    let bits = |values: &[f32]| values[..lanes.len()].iter().map(|x| x.to_bits()).collect::<Vec<_>>();
                    assert_eq!(bits(fast), bits(plain), "{lanes:?} {k:?}");
                }
            }
        }
    }
}
