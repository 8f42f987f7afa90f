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

use super::micro_kernel::CpuElement;
use super::pack_source::PackSource;

/// Packs `lanes` of an operand for a range of k, lane-major: lanes are `stride` values apart.
///
/// A last group past the end of `k` is completed with zero. Padding between lanes is not written.
///
/// # Safety
/// The lanes and k are in the matrix. `to` holds all lanes at this stride, and is not aliased.
#[inline(always)]
pub unsafe fn pack_lane_major<T: CpuElement>(
    from: PackSource<T>,
    lanes: Range<usize>,
    k: Range<usize>,
    stride: usize,
    to: *mut T::Acc,
) {
    from.assert_contains(&lanes, &k);
    let whole_groups = k.len() / T::K_PACK;
    for (i, lane) in lanes.enumerate() {
        let to = to.wrapping_add(i * stride);
        // SAFETY: the caller's promise: these elements are in the matrix, and `to` holds all lanes.
        unsafe {
            if from.strides()[1] == 1 {
                let row = std::slice::from_raw_parts(from.at(lane, k.start), whole_groups * T::K_PACK);
                T::pack_slice(row, std::slice::from_raw_parts_mut(to, whole_groups));
            } else {
                for group in 0..whole_groups {
                    let read = |d| from.at(lane, k.start + group * T::K_PACK + d).read();
                    to.add(group).write(read(0).pack(read(T::K_PACK - 1)));
                }
            }
            if !k.len().is_multiple_of(T::K_PACK) {
                to.add(whole_groups).write(from.at(lane, k.end - 1).read().pack(T::ZERO));
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
pub unsafe fn pack<T: CpuElement>(
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
            _ if lane_stride == 1 => pack_from_lane_contiguous(from, lanes, k, stride, to),
            4 if k_stride == 1 => pack_from_k_contiguous::<T, 4>(from, lanes.start, k, stride, to),
            8 if k_stride == 1 => pack_from_k_contiguous::<T, 8>(from, lanes.start, k, stride, to),
            16 if k_stride == 1 => pack_from_k_contiguous::<T, 16>(from, lanes.start, k, stride, to),
            24 if k_stride == 1 => pack_from_k_contiguous::<T, 24>(from, lanes.start, k, stride, to),
            48 if k_stride == 1 => pack_from_k_contiguous::<T, 48>(from, lanes.start, k, stride, to),
            _ => pack_any(from, lanes, k, stride, to),
        }
    }
}

/// Packs a panel from an operand of any strides.
///
/// # Safety
/// As for [`pack`].
unsafe fn pack_any<T: CpuElement>(
    from: PackSource<T>,
    lanes: Range<usize>,
    k: Range<usize>,
    stride: usize,
    to: *mut T::Acc,
) {
    for (group, first) in k.clone().step_by(T::K_PACK).enumerate() {
        // SAFETY: the caller's promise.
        let read = |lane, k| unsafe { from.at(lane, k).read() };
        let next = |lane| if T::K_PACK == 2 && first + 1 < k.end { read(lane, first + 1) } else { T::ZERO };
        for (i, lane) in lanes.clone().enumerate() {
            // SAFETY: the caller's promise: `to` holds all k groups.
            unsafe { to.add(group * stride + i).write(read(lane, first).pack(next(lane))) };
        }
    }
}

/// Packs a panel from an operand whose lanes are adjacent in memory.
///
/// # Safety
/// As for [`pack`].
#[inline(always)]
unsafe fn pack_from_lane_contiguous<T: CpuElement>(
    from: PackSource<T>,
    lanes: Range<usize>,
    k: Range<usize>,
    stride: usize,
    to: *mut T::Acc,
) {
    for (group, first) in k.clone().step_by(T::K_PACK).enumerate() {
        // SAFETY: the caller's promise: these elements are in the matrix; `to` holds all groups.
        let (row, to) = unsafe {
            let row = |k| std::slice::from_raw_parts(from.at(lanes.start, k), lanes.len());
            (row, std::slice::from_raw_parts_mut(to.add(group * stride), lanes.len()))
        };
        if T::K_PACK == 1 {
            T::pack_slice(row(first), to);
        } else if first + 1 < k.end {
            to.iter_mut().zip(row(first)).zip(row(first + 1)).for_each(|((to, x), next)| *to = x.pack(*next));
        } else {
            to.iter_mut().zip(row(first)).for_each(|(to, x)| *to = x.pack(T::ZERO));
        }
    }
}

/// Packs a panel of `LANES` lanes from an operand that is contiguous along k.
///
/// # Safety
/// As for [`pack`].
unsafe fn pack_from_k_contiguous<T: CpuElement, const LANES: usize>(
    from: PackSource<T>,
    lane: usize,
    k: Range<usize>,
    stride: usize,
    to: *mut T::Acc,
) {
    // SAFETY: the caller's promise: each lane is `k.len()` adjacent elements of the matrix.
    let row = |i| unsafe { std::slice::from_raw_parts(from.at(lane + i, k.start), k.len()) };
    let lanes: [&[T]; LANES] = std::array::from_fn(row);
    for group in 0..k.len().div_ceil(T::K_PACK) {
        let first = group * T::K_PACK;
        let next = |lane: &[T]| if T::K_PACK == 2 && first + 1 < k.len() { lane[first + 1] } else { T::ZERO };
        let values: [T::Acc; LANES] = std::array::from_fn(|i| lanes[i][first].pack(next(lanes[i])));
        // SAFETY: the caller's promise: `to` holds all k groups.
        unsafe { to.add(group * stride).cast::<[T::Acc; LANES]>().write(values) };
    }
}
