//! Packing: copies of parts of A and B in the order in which a micro-kernel reads them.
//!
//! A panel is a few rows of A, or columns of B: its lanes. Within it lies step after step of k, each with one value for every lane.

use std::ops::Range;

use super::kernel::Operand;
use super::source::Source;

/// Packs rows: `lanes` of a source for the given range of k, each lane `width` values after the one before. What lies between is left alone.
///
/// # Safety
/// As [`pack`].
#[inline(always)]
pub unsafe fn pack_rows<T: Operand>(
    from: Source<T>,
    lanes: Range<usize>,
    k: Range<usize>,
    width: usize,
    to: *mut T::Acc,
) {
    from.contains(&lanes, &k);
    let whole = k.len() / T::DEPTH;
    for (i, lane) in lanes.enumerate() {
        let to = to.wrapping_add(i * width);
        // SAFETY: the caller's promise: these are elements of the matrix, and there is room for all steps.
        unsafe {
            if from.strides()[1] == 1 {
                let row = std::slice::from_raw_parts(from.at(lane, k.start), whole * T::DEPTH);
                T::pack_all(row, std::slice::from_raw_parts_mut(to, whole));
            } else {
                for step in 0..whole {
                    let read = |d| from.at(lane, k.start + step * T::DEPTH + d).read();
                    to.add(step).write(read(0).pack(read(T::DEPTH - 1)));
                }
            }
            if !k.len().is_multiple_of(T::DEPTH) {
                to.add(whole).write(from.at(lane, k.end - 1).read().pack(T::ZERO));
            }
        }
    }
}

/// Packs a panel: `lanes` of a source, for the given range of k, each step `width` values after the one before. What lies between is left alone.
///
/// # Safety
/// The lanes and steps are in the matrix. `to` has room for all steps, and is ours alone.
#[inline(always)]
pub unsafe fn pack<T: Operand>(from: Source<T>, lanes: Range<usize>, k: Range<usize>, width: usize, to: *mut T::Acc) {
    from.contains(&lanes, &k);
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

/// A panel from any strides.
///
/// # Safety
/// As [`pack`].
unsafe fn pack_any<T: Operand>(from: Source<T>, lanes: Range<usize>, k: Range<usize>, width: usize, to: *mut T::Acc) {
    for (step, first) in k.clone().step_by(T::DEPTH).enumerate() {
        // SAFETY: the caller's promise.
        let read = |lane, k| unsafe { from.at(lane, k).read() };
        let next = |lane| if T::DEPTH == 2 && first + 1 < k.end { read(lane, first + 1) } else { T::ZERO };
        for (i, lane) in lanes.clone().enumerate() {
            // SAFETY: as above.
            unsafe { to.add(step * width + i).write(read(lane, first).pack(next(lane))) };
        }
    }
}

/// A panel where the lanes of a step are neighbours in memory.
///
/// # Safety
/// As [`pack`].
#[inline(always)]
unsafe fn pack_steps<T: Operand>(from: Source<T>, lanes: Range<usize>, k: Range<usize>, width: usize, to: *mut T::Acc) {
    for (step, first) in k.clone().step_by(T::DEPTH).enumerate() {
        // SAFETY: the caller's promise: these are elements of the matrix, and there is room for them.
        let (row, to) = unsafe {
            let row = |k| std::slice::from_raw_parts(from.at(lanes.start, k), lanes.len());
            (row, std::slice::from_raw_parts_mut(to.add(step * width), lanes.len()))
        };
        if T::DEPTH == 1 {
            T::pack_all(row(first), to);
        } else if first + 1 < k.end {
            to.iter_mut().zip(row(first)).zip(row(first + 1)).for_each(|((to, x), next)| *to = x.pack(*next));
        } else {
            to.iter_mut().zip(row(first)).for_each(|(to, x)| *to = x.pack(T::ZERO));
        }
    }
}

/// A panel of `W` lanes where the steps of a lane are neighbours in memory.
///
/// # Safety
/// As [`pack`].
unsafe fn pack_lanes<T: Operand, const W: usize>(
    from: Source<T>,
    lane: usize,
    k: Range<usize>,
    width: usize,
    to: *mut T::Acc,
) {
    // SAFETY: the caller's promise: each lane is `k.len()` neighbours, all of the matrix.
    let row = |i| unsafe { std::slice::from_raw_parts(from.at(lane + i, k.start), k.len()) };
    let lanes: [&[T]; W] = std::array::from_fn(row);
    for step in 0..k.len().div_ceil(T::DEPTH) {
        let first = step * T::DEPTH;
        let next = |lane: &[T]| if T::DEPTH == 2 && first + 1 < k.len() { lane[first + 1] } else { T::ZERO };
        let values: [T::Acc; W] = std::array::from_fn(|i| lanes[i][first].pack(next(lanes[i])));
        // SAFETY: there is room for all steps.
        unsafe { to.add(step * width).cast::<[T::Acc; W]>().write(values) };
    }
}
