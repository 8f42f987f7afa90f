//! An input of a product as its packing reads it.

use std::marker::PhantomData;
use std::ops::Range;

use tegula_core::element::Scalar;
use tegula_core::matrix::{Layout, Shape};

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

    /// From one lane to the next, and from one k to the next, in elements.
    pub fn strides(&self) -> [isize; 2] {
        [self.lane, self.step]
    }

    /// Only elements of the matrix are read.
    pub fn contains(&self, lanes: &Range<usize>, k: &Range<usize>) {
        assert!(
            lanes.end <= self.lanes && k.end <= self.depth,
            "{lanes:?} and {k:?} of {} and {}",
            self.lanes,
            self.depth
        );
    }

    /// The address of an element. It may be read if it lies in the matrix.
    pub fn at(&self, lane: usize, k: usize) -> *const T {
        self.start.wrapping_offset(lane as isize * self.lane + k as isize * self.step)
    }
}
