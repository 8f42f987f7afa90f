//! Packing: copies of A and B in the order in which a micro-kernel reads them.
//!
//! A becomes panels of MR rows and B panels of NR columns. Within a panel lies step after step of k, each with one value for
//! every row (or column): the panel's lanes. Lanes past the matrix are zeros; they reach no element of C that is kept.

use std::ops::Range;

use rayon::prelude::*;

use super::kernel::Operand;
use crate::element::Scalar;
use crate::error::{Error, Result};
use crate::matrix::Layout;

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
    /// [`Error::OutOfMemory`] where the host has no room.
    pub fn new<S: Scalar>(what: &str, len: usize) -> Result<Self> {
        let lines = len.div_ceil(size_of::<Line>() / size_of::<S>());
        let mut memory = Vec::new();
        memory.try_reserve_exact(lines).map_err(|_| Error::OutOfMemory {
            what: what.into(),
            bytes: len as u128 * size_of::<S>() as u128,
            device: "the host".into(),
        })?;
        memory.resize(lines, Line([0; 64]));
        Ok(Buffer(memory))
    }

    /// The values.
    pub fn values<S: bytemuck::Pod>(&mut self) -> &mut [S] {
        bytemuck::cast_slice_mut(&mut self.0)
    }
}

/// One of the two inputs as its packing sees it: a lane is a row of A or a column of B.
#[derive(Clone, Copy)]
pub struct Source<'a, T> {
    memory: &'a [T],
    start: isize,
    /// From one lane to the next, in elements.
    lane: isize,
    /// From one k to the next, in elements.
    step: isize,
}

impl<'a, T: Scalar> Source<'a, T> {
    /// The rows of one matrix of a batch.
    pub fn rows(memory: &'a [T], layout: Layout, batch: usize) -> Self {
        // Nothing bounds where an empty matrix claims to lie.
        let [start, to_batch, lane, step] = match (layout.shape.is_empty(), layout.strides) {
            (true, _) => [0; 4],
            (false, [batch, row, col]) => [layout.offset as isize, batch, row, col],
        };
        Source { memory, start: start + batch as isize * to_batch, lane, step }
    }

    /// The columns of one matrix of a batch.
    pub fn cols(memory: &'a [T], layout: Layout, batch: usize) -> Self {
        Self::rows(memory, layout.transposed(), batch)
    }

    fn at(&self, lane: usize, k: usize) -> usize {
        (self.start + lane as isize * self.lane + k as isize * self.step) as usize
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
    let panel = width * k.len().div_ceil(T::DEPTH);
    let to = &mut to[..lanes.len().div_ceil(width) * panel];
    let fill = |(index, to): (usize, &mut [T::Acc])| {
        let first = lanes.start + index * width;
        fill_panel(from, first..lanes.end.min(first + width), k.clone(), width, to);
    };
    if parallel {
        to.par_chunks_mut(panel).enumerate().with_min_len(4).for_each(fill);
    } else {
        to.chunks_mut(panel).enumerate().for_each(fill);
    }
}

/// Whole panels have a width that the compiler knows.
fn fill_panel<T: Operand>(from: Source<T>, lanes: Range<usize>, k: Range<usize>, width: usize, to: &mut [T::Acc]) {
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

/// A panel of any width, perhaps not filled, from any strides.
fn fill_any<T: Operand>(from: Source<T>, lanes: Range<usize>, k: Range<usize>, width: usize, to: &mut [T::Acc]) {
    for (first, to) in k.clone().step_by(T::DEPTH).zip(to.chunks_exact_mut(width)) {
        let read = |lane, k| from.memory[from.at(lane, k)];
        let next = |lane| if T::DEPTH == 2 && first + 1 < k.end { read(lane, first + 1) } else { T::ZERO };
        let (used, unused) = to.split_at_mut(lanes.len());
        used.iter_mut().zip(lanes.clone()).for_each(|(to, lane)| *to = read(lane, first).pack(next(lane)));
        unused.fill(T::Acc::ZERO);
    }
}

/// A whole panel, where the lanes of a step or the steps of a lane are neighbours in memory.
fn fill_whole<T: Operand, const W: usize>(from: Source<T>, lane: usize, k: Range<usize>, to: &mut [T::Acc]) {
    let to = to.as_chunks_mut::<W>().0;
    if from.lane == 1 {
        let read = |k: usize| from.memory[from.at(lane, k)..].first_chunk::<W>();
        for (first, to) in k.clone().step_by(T::DEPTH).zip(to) {
            let Some(values) = read(first) else { return };
            let next = if T::DEPTH == 2 && first + 1 < k.end { read(first + 1) } else { None };
            *to = std::array::from_fn(|i| values[i].pack(next.map_or(T::ZERO, |next| next[i])));
        }
    } else {
        let lanes: [&[T]; W] = std::array::from_fn(|i| &from.memory[from.at(lane + i, k.start)..][..k.len()]);
        for (step, to) in to.iter_mut().enumerate() {
            let first = step * T::DEPTH;
            let next = |lane: &[T]| if T::DEPTH == 2 && first + 1 < k.len() { lane[first + 1] } else { T::ZERO };
            *to = std::array::from_fn(|i| lanes[i][first].pack(next(lanes[i])));
        }
    }
}
