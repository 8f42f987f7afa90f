//! Packing: copies of parts of A and B in the order in which a micro-kernel reads them.
//!
//! A packed panel has a few rows of A, or columns of B, as its lanes. It holds step after step of
//! k, each with one value per lane.

use std::ops::Range;

use super::micro_kernel::CpuElement;
use super::pack_source::PackSource;

/// Packs `lanes` of an operand for a range of k, lane after lane, `width` values apart. Values
/// between lanes keep what they held.
///
/// # Safety
/// As for [`pack`].
#[inline(always)]
pub unsafe fn pack_rows<T: CpuElement>(
    from: PackSource<T>,
    lanes: Range<usize>,
    k: Range<usize>,
    width: usize,
    to: *mut T::Acc,
) {
    from.assert_contains(&lanes, &k);
    let whole = k.len() / T::K_PACK;
    for (i, lane) in lanes.enumerate() {
        let to = to.wrapping_add(i * width);
        // SAFETY: the caller's promise: these elements are in the matrix, and `to` holds all steps.
        unsafe {
            if from.strides()[1] == 1 {
                let row = std::slice::from_raw_parts(from.at(lane, k.start), whole * T::K_PACK);
                T::pack_slice(row, std::slice::from_raw_parts_mut(to, whole));
            } else {
                for step in 0..whole {
                    let read = |d| from.at(lane, k.start + step * T::K_PACK + d).read();
                    to.add(step).write(read(0).pack(read(T::K_PACK - 1)));
                }
            }
            if !k.len().is_multiple_of(T::K_PACK) {
                to.add(whole).write(from.at(lane, k.end - 1).read().pack(T::ZERO));
            }
        }
    }
}

/// Packs a panel: `lanes` of an operand for a range of k, step after step, `width` values apart.
/// Values between steps keep what they held.
///
/// # Safety
/// The lanes and steps are in the matrix. `to` holds all steps, and is not aliased.
#[inline(always)]
pub unsafe fn pack<T: CpuElement>(
    from: PackSource<T>,
    lanes: Range<usize>,
    k: Range<usize>,
    width: usize,
    to: *mut T::Acc,
) {
    from.assert_contains(&lanes, &k);
    let [lane, step] = from.strides();
    // SAFETY: the caller's promise.
    unsafe {
        match lanes.len() {
            _ if lane == 1 => pack_steps(from, lanes, k, width, to),
            4 if step == 1 => pack_lanes::<T, 4>(from, lanes.start, k, width, to),
            8 if step == 1 => pack_lanes::<T, 8>(from, lanes.start, k, width, to),
            16 if step == 1 => pack_lanes::<T, 16>(from, lanes.start, k, width, to),
            24 if step == 1 => pack_lanes::<T, 24>(from, lanes.start, k, width, to),
            48 if step == 1 => pack_lanes::<T, 48>(from, lanes.start, k, width, to),
            _ => pack_any(from, lanes, k, width, to),
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
    width: usize,
    to: *mut T::Acc,
) {
    for (step, first) in k.clone().step_by(T::K_PACK).enumerate() {
        // SAFETY: the caller's promise.
        let read = |lane, k| unsafe { from.at(lane, k).read() };
        let next = |lane| if T::K_PACK == 2 && first + 1 < k.end { read(lane, first + 1) } else { T::ZERO };
        for (i, lane) in lanes.clone().enumerate() {
            // SAFETY: as above.
            unsafe { to.add(step * width + i).write(read(lane, first).pack(next(lane))) };
        }
    }
}

/// Packs a panel from an operand whose lanes are adjacent in memory.
///
/// # Safety
/// As for [`pack`].
#[inline(always)]
unsafe fn pack_steps<T: CpuElement>(
    from: PackSource<T>,
    lanes: Range<usize>,
    k: Range<usize>,
    width: usize,
    to: *mut T::Acc,
) {
    for (step, first) in k.clone().step_by(T::K_PACK).enumerate() {
        // SAFETY: the caller's promise: these elements are in the matrix, and `to` holds all steps.
        let (row, to) = unsafe {
            let row = |k| std::slice::from_raw_parts(from.at(lanes.start, k), lanes.len());
            (row, std::slice::from_raw_parts_mut(to.add(step * width), lanes.len()))
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

/// Packs a panel of `W` lanes from an operand that is contiguous along k.
///
/// # Safety
/// As for [`pack`].
unsafe fn pack_lanes<T: CpuElement, const W: usize>(
    from: PackSource<T>,
    lane: usize,
    k: Range<usize>,
    width: usize,
    to: *mut T::Acc,
) {
    // SAFETY: the caller's promise: each lane is `k.len()` adjacent elements of the matrix.
    let row = |i| unsafe { std::slice::from_raw_parts(from.at(lane + i, k.start), k.len()) };
    let lanes: [&[T]; W] = std::array::from_fn(row);
    for step in 0..k.len().div_ceil(T::K_PACK) {
        let first = step * T::K_PACK;
        let next = |lane: &[T]| if T::K_PACK == 2 && first + 1 < k.len() { lane[first + 1] } else { T::ZERO };
        let values: [T::Acc; W] = std::array::from_fn(|i| lanes[i][first].pack(next(lanes[i])));
        // SAFETY: `to` holds all steps.
        unsafe { to.add(step * width).cast::<[T::Acc; W]>().write(values) };
    }
}
