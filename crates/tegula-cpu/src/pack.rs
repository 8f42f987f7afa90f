//! Packing: copies of parts of A and B in the order in which a micro-kernel reads them.
//!
//! The lanes of an operand are the rows of A, or the columns of B. A packed value holds the
//! `K_PACK` elements of a lane at one k group: 1 or 2 adjacent k, in the size of an accumulator.
//! See [`CpuElement`].
//!
//! A packed panel has two orders. Micro-panels of A are lane-major: all k groups of a lane, then
//! those of the next lane. Panels of B are group-major: all lanes of a k group, then those of the
//! next group.

use std::ops::Range;

#[cfg(target_arch = "x86_64")]
use half::bf16;

use super::micro_kernel::CpuElement;
use super::pack_source::PackSource;

/// What a packed value is made of. Each element type packs as [`CpuElement`] says.
pub trait Packing<T: CpuElement> {
    /// Adjacent k in one packed value: 1 or 2.
    const K_PACK: usize;
    /// Packs an element, and for a `K_PACK` of 2 the one at the next k.
    fn pack(element: T, next: T) -> T::Acc;
    /// Packs neighbors along k, `K_PACK` to a value.
    fn pack_slice(from: &[T], to: &mut [T::Acc]);
}

impl<T: CpuElement> Packing<T> for T {
    const K_PACK: usize = T::K_PACK;
    #[inline(always)]
    fn pack(element: T, next: T) -> T::Acc {
        CpuElement::pack(element, next)
    }
    #[inline(always)]
    fn pack_slice(from: &[T], to: &mut [T::Acc]) {
        <T as CpuElement>::pack_slice(from, to);
    }
}

/// Pairs of bf16, in the bits of an accumulator.
#[cfg(target_arch = "x86_64")]
pub struct Pairs;

#[cfg(target_arch = "x86_64")]
impl Packing<bf16> for Pairs {
    const K_PACK: usize = 2;
    #[inline(always)]
    fn pack(element: bf16, next: bf16) -> f32 {
        f32::from_bits(u32::from(next.to_bits()) << 16 | u32::from(element.to_bits()))
    }
    #[inline(always)]
    fn pack_slice(from: &[bf16], to: &mut [f32]) {
        from.chunks_exact(2).zip(to).for_each(|(from, to)| *to = Self::pack(from[0], from[1]));
    }
}

/// Packs `lanes` of an operand for a range of k, lane-major: lanes are `stride` values apart.
///
/// A last group past the end of `k` is completed with zero. Padding between lanes is not written.
///
/// # Safety
/// The lanes and k are in the matrix. `to` holds all lanes at this stride, and is not aliased.
#[inline(always)]
pub unsafe fn pack_lane_major<T: CpuElement, P: Packing<T>>(
    from: PackSource<T>,
    lanes: Range<usize>,
    k: Range<usize>,
    stride: usize,
    to: *mut T::Acc,
) {
    from.assert_contains(&lanes, &k);
    let whole_groups = k.len() / P::K_PACK;
    for (i, lane) in lanes.enumerate() {
        let to = to.wrapping_add(i * stride);
        // SAFETY: the caller's promise: these elements are in the matrix, and `to` holds all lanes.
        unsafe {
            if from.strides()[1] == 1 {
                let row = std::slice::from_raw_parts(from.at(lane, k.start), whole_groups * P::K_PACK);
                P::pack_slice(row, std::slice::from_raw_parts_mut(to, whole_groups));
            } else {
                for group in 0..whole_groups {
                    let read = |d| from.at(lane, k.start + group * P::K_PACK + d).read();
                    to.add(group).write(P::pack(read(0), read(P::K_PACK - 1)));
                }
            }
            if !k.len().is_multiple_of(P::K_PACK) {
                to.add(whole_groups).write(P::pack(from.at(lane, k.end - 1).read(), T::ZERO));
            }
        }
    }
}

/// Packs `lanes` of an operand for a range of k, group-major: k groups are `stride` values apart.
///
/// A last group past the end of `k` is completed with zero. Padding between groups is not written.
///
/// # Safety
/// The lanes and k are in the matrix. `to` holds all k groups at this stride, and is not aliased.
#[inline(always)]
pub unsafe fn pack<T: CpuElement, P: Packing<T>>(
    from: PackSource<T>,
    lanes: Range<usize>,
    k: Range<usize>,
    stride: usize,
    to: *mut T::Acc,
) {
    from.assert_contains(&lanes, &k);
    let [lane_stride, k_stride] = from.strides();
    // SAFETY: the caller's promise.
    unsafe {
        match lanes.len() {
            _ if lane_stride == 1 => pack_from_lane_contiguous::<T, P>(from, lanes, k, stride, to),
            4 if k_stride == 1 => pack_from_k_contiguous::<T, P, 4>(from, lanes.start, k, stride, to),
            8 if k_stride == 1 => pack_from_k_contiguous::<T, P, 8>(from, lanes.start, k, stride, to),
            16 if k_stride == 1 => pack_from_k_contiguous::<T, P, 16>(from, lanes.start, k, stride, to),
            24 if k_stride == 1 => pack_from_k_contiguous::<T, P, 24>(from, lanes.start, k, stride, to),
            48 if k_stride == 1 => pack_from_k_contiguous::<T, P, 48>(from, lanes.start, k, stride, to),
            _ => pack_any::<T, P>(from, lanes, k, stride, to),
        }
    }
}

/// Packs a panel from an operand of any strides.
///
/// # Safety
/// As for [`pack`].
unsafe fn pack_any<T: CpuElement, P: Packing<T>>(
    from: PackSource<T>,
    lanes: Range<usize>,
    k: Range<usize>,
    stride: usize,
    to: *mut T::Acc,
) {
    for (group, first) in k.clone().step_by(P::K_PACK).enumerate() {
        // SAFETY: the caller's promise.
        let read = |lane, k| unsafe { from.at(lane, k).read() };
        let next = |lane| if P::K_PACK == 2 && first + 1 < k.end { read(lane, first + 1) } else { T::ZERO };
        for (i, lane) in lanes.clone().enumerate() {
            // SAFETY: the caller's promise: `to` holds all k groups.
            unsafe { to.add(group * stride + i).write(P::pack(read(lane, first), next(lane))) };
        }
    }
}

/// Packs a panel from an operand whose lanes are adjacent in memory.
///
/// # Safety
/// As for [`pack`].
#[inline(always)]
unsafe fn pack_from_lane_contiguous<T: CpuElement, P: Packing<T>>(
    from: PackSource<T>,
    lanes: Range<usize>,
    k: Range<usize>,
    stride: usize,
    to: *mut T::Acc,
) {
    for (group, first) in k.clone().step_by(P::K_PACK).enumerate() {
        // SAFETY: the caller's promise: these elements are in the matrix; `to` holds all groups.
        let (row, to) = unsafe {
            let row = |k| std::slice::from_raw_parts(from.at(lanes.start, k), lanes.len());
            (row, std::slice::from_raw_parts_mut(to.add(group * stride), lanes.len()))
        };
        if P::K_PACK == 1 {
            P::pack_slice(row(first), to);
        } else if first + 1 < k.end {
            to.iter_mut().zip(row(first)).zip(row(first + 1)).for_each(|((to, x), next)| *to = P::pack(*x, *next));
        } else {
            to.iter_mut().zip(row(first)).for_each(|(to, x)| *to = P::pack(*x, T::ZERO));
        }
    }
}

/// Packs a panel of `LANES` lanes from an operand that is contiguous along k.
///
/// # Safety
/// As for [`pack`].
unsafe fn pack_from_k_contiguous<T: CpuElement, P: Packing<T>, const LANES: usize>(
    from: PackSource<T>,
    lane: usize,
    k: Range<usize>,
    stride: usize,
    to: *mut T::Acc,
) {
    // SAFETY: the caller's promise: each lane is `k.len()` adjacent elements of the matrix.
    let row = |i| unsafe { std::slice::from_raw_parts(from.at(lane + i, k.start), k.len()) };
    let lanes: [&[T]; LANES] = std::array::from_fn(row);
    for group in 0..k.len().div_ceil(P::K_PACK) {
        let first = group * P::K_PACK;
        let next = |lane: &[T]| if P::K_PACK == 2 && first + 1 < k.len() { lane[first + 1] } else { T::ZERO };
        let values: [T::Acc; LANES] = std::array::from_fn(|i| P::pack(lanes[i][first], next(lanes[i])));
        // SAFETY: the caller's promise: `to` holds all k groups.
        unsafe { to.add(group * stride).cast::<[T::Acc; LANES]>().write(values) };
    }
}
