//! Packing: copies of A and B in the order in which a micro-kernel reads them.
//!
//! A becomes panels of MR rows and B panels of NR columns. Within a panel lies step after step of k, each with one value for
//! every row (or column): the panel's lanes. Lanes past the matrix are zeros; they reach no element of C that is kept.

use std::marker::PhantomData;
use std::ops::Range;

use rayon::prelude::*;

use super::kernel::Operand;
use crate::element::Scalar;
use crate::error::Result;
use crate::host;
use crate::matrix::{Layout, Shape};

/// 64 bytes on a cache line of their own.
#[derive(Clone, Copy, bytemuck::Pod, bytemuck::Zeroable)]
#[repr(C, align(64))]
struct Line([u8; 64]);

/// Memory for packed values, so aligned that no vector of them straddles two cache lines more than its panel's width makes it.
pub struct Buffer(Vec<Line>);

impl Buffer {
    /// Room for `len` values, all zero.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) where the host has no room.
    pub fn new<S: Scalar>(what: &str, len: usize) -> Result<Self> {
        let lines = Self::lines::<S>(len);
        let mut memory = host::room(lines, || what.into())?;
        memory.resize(lines, Line([0; 64]));
        Ok(Buffer(memory))
    }

    /// Bytes that room for `len` values takes.
    pub fn bytes<S: Scalar>(len: usize) -> u128 {
        Self::lines::<S>(len) as u128 * size_of::<Line>() as u128
    }

    fn lines<S: Scalar>(len: usize) -> usize {
        len.div_ceil(size_of::<Line>() / size_of::<S>())
    }

    /// The values.
    pub fn values<S: bytemuck::Pod>(&mut self) -> &mut [S] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// One of the two inputs as its packing sees it: a lane is a row of A or a column of B.
#[derive(Clone, Copy)]
pub struct Source<'a, T> {
    start: *const T,
    lanes: usize,
    depth: usize,
    /// From one matrix to the next, in elements.
    batch: isize,
    /// From one lane to the next, in elements.
    lane: isize,
    /// From one k to the next, in elements.
    step: isize,
    borrowed: PhantomData<&'a T>,
}

// SAFETY: it stands for a shared borrow of its elements.
unsafe impl<T: Sync> Send for Source<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for Source<'_, T> {}

impl<T: Scalar> Source<'_, T> {
    /// The rows of the first matrix of a batch; `memory` is position 0 of its layout.
    ///
    /// # Safety
    /// Every element of the layout is borrowed to be read for the lifetime of the source.
    pub unsafe fn rows(memory: *const T, layout: Layout) -> Self {
        let ([batch, lane, step], Shape { rows: lanes, cols: depth, .. }) = (layout.strides, layout.shape);
        let start = memory.wrapping_add(layout.offset);
        Source { start, lanes, depth, batch, lane, step, borrowed: PhantomData }
    }

    /// Another matrix of the batch.
    pub fn batch(self, batch: usize) -> Self {
        // Nothing bounds the strides of an empty matrix.
        Source { start: self.start.wrapping_offset((batch as isize).wrapping_mul(self.batch)), ..self }
    }

    /// The address of an element.
    fn at(&self, lane: usize, k: usize) -> *const T {
        self.start.wrapping_offset(lane as isize * self.lane + k as isize * self.step)
    }
}

/// Packs `lanes` of a source, for the given range of k, in panels `width` wide.
pub fn pack<T: Operand>(
    from: Source<T>,
    lanes: Range<usize>,
    k: Range<usize>,
    width: usize,
    parallel: bool,
    to: &mut [T::Acc],
) {
    assert!(lanes.end <= from.lanes && k.end <= from.depth, "only elements of the matrix are read");
    let panel = width * k.len().div_ceil(T::DEPTH);
    let to = &mut to[..lanes.len().div_ceil(width) * panel];
    let fill = |(index, to): (usize, &mut [T::Acc])| {
        let first = lanes.start + index * width;
        // SAFETY: these lanes and steps are in the matrix.
        unsafe { fill_panel(from, first..lanes.end.min(first + width), k.clone(), width, to) };
    };
    if parallel {
        to.par_chunks_mut(panel).enumerate().with_min_len(4).for_each(fill);
    } else {
        to.chunks_mut(panel).enumerate().for_each(fill);
    }
}

/// Whole panels have a width that the compiler knows.
///
/// # Safety
/// The lanes and the range of k are in the matrix, as for all below.
unsafe fn fill_panel<T: Operand>(
    from: Source<T>,
    lanes: Range<usize>,
    k: Range<usize>,
    width: usize,
    to: &mut [T::Acc],
) {
    // SAFETY: the caller's promise; a whole panel is `width` lanes.
    unsafe {
        match width {
            _ if lanes.len() < width || (from.lane != 1 && from.step != 1) => fill_any(from, lanes, k, width, to),
            4 => fill_whole::<T, 4>(from, lanes.start, k, to),
            6 => fill_whole::<T, 6>(from, lanes.start, k, to),
            8 => fill_whole::<T, 8>(from, lanes.start, k, to),
            16 => fill_whole::<T, 16>(from, lanes.start, k, to),
            24 => fill_whole::<T, 24>(from, lanes.start, k, to),
            48 => fill_whole::<T, 48>(from, lanes.start, k, to),
            _ => fill_any(from, lanes, k, width, to),
        }
    }
}

/// A panel of any width, perhaps not filled, from any strides.
///
/// # Safety
/// As [`fill_panel`].
unsafe fn fill_any<T: Operand>(from: Source<T>, lanes: Range<usize>, k: Range<usize>, width: usize, to: &mut [T::Acc]) {
    for (first, to) in k.clone().step_by(T::DEPTH).zip(to.chunks_exact_mut(width)) {
        // SAFETY: the caller's promise.
        let read = |lane, k| unsafe { from.at(lane, k).read() };
        let next = |lane| if T::DEPTH == 2 && first + 1 < k.end { read(lane, first + 1) } else { T::ZERO };
        let (used, unused) = to.split_at_mut(lanes.len());
        used.iter_mut().zip(lanes.clone()).for_each(|(to, lane)| *to = read(lane, first).pack(next(lane)));
        unused.fill(T::Acc::ZERO);
    }
}

/// A whole panel, where the lanes of a step or the steps of a lane are neighbours in memory.
///
/// # Safety
/// As [`fill_panel`], for `W` lanes.
unsafe fn fill_whole<T: Operand, const W: usize>(from: Source<T>, lane: usize, k: Range<usize>, to: &mut [T::Acc]) {
    let to = to.as_chunks_mut::<W>().0;
    if from.lane == 1 {
        // SAFETY: the caller's promise: these are W elements of the matrix.
        let read = |k: usize| unsafe { from.at(lane, k).cast::<[T; W]>().read() };
        for (first, to) in k.clone().step_by(T::DEPTH).zip(to) {
            let values = read(first);
            let next = if T::DEPTH == 2 && first + 1 < k.end { read(first + 1) } else { [T::ZERO; W] };
            *to = std::array::from_fn(|i| values[i].pack(next[i]));
        }
    } else {
        // SAFETY: the caller's promise: each lane is `k.len()` neighbours, all of the matrix.
        let row = |i| unsafe { std::slice::from_raw_parts(from.at(lane + i, k.start), k.len()) };
        let lanes: [&[T]; W] = std::array::from_fn(row);
        for (step, to) in to.iter_mut().enumerate() {
            let first = step * T::DEPTH;
            let next = |lane: &[T]| if T::DEPTH == 2 && first + 1 < k.len() { lane[first + 1] } else { T::ZERO };
            *to = std::array::from_fn(|i| lanes[i][first].pack(next(lanes[i])));
        }
    }
}
