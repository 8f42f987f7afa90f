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
        let [to_batch, lane, step] = layout.strides;
        Source { memory, start: layout.offset as isize + batch as isize * to_batch, lane, step }
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

fn fill_panel<T: Operand>(from: Source<T>, lanes: Range<usize>, k: Range<usize>, width: usize, to: &mut [T::Acc]) {
    if lanes.len() < width {
        to.fill(T::Acc::ZERO);
    }
    if from.lane == 1 {
        fill_by_step(from, lanes, k, width, to);
    } else {
        fill_by_lane(from, lanes, k, width, to);
    }
}

/// Where the lanes of a step are neighbours in memory.
fn fill_by_step<T: Operand>(from: Source<T>, lanes: Range<usize>, k: Range<usize>, width: usize, to: &mut [T::Acc]) {
    let read = |k| &from.memory[from.at(lanes.start, k)..][..lanes.len()];
    for (first, to) in k.clone().step_by(T::DEPTH).zip(to.chunks_exact_mut(width)) {
        let values = read(first);
        if T::DEPTH == 2 && first + 1 < k.end {
            to.iter_mut().zip(values).zip(read(first + 1)).for_each(|((to, &x), &next)| *to = x.pack(next));
        } else {
            to.iter_mut().zip(values).for_each(|(to, &x)| *to = x.pack(T::ZERO));
        }
    }
}

/// Where they are not: lane after lane.
fn fill_by_lane<T: Operand>(from: Source<T>, lanes: Range<usize>, k: Range<usize>, width: usize, to: &mut [T::Acc]) {
    for (index, lane) in lanes.enumerate() {
        let to = to.iter_mut().skip(index).step_by(width);
        if from.step == 1 {
            let values = &from.memory[from.at(lane, k.start)..][..k.len()];
            let pack = |pair: &[T]| pair[0].pack(pair.get(1).copied().unwrap_or(T::ZERO));
            to.zip(values.chunks(T::DEPTH)).for_each(|(to, pair)| *to = pack(pair));
        } else {
            let read = |k| from.memory[from.at(lane, k)];
            let next = |first| if T::DEPTH == 2 && first + 1 < k.end { read(first + 1) } else { T::ZERO };
            to.zip(k.clone().step_by(T::DEPTH)).for_each(|(to, first)| *to = read(first).pack(next(first)));
        }
    }
}
