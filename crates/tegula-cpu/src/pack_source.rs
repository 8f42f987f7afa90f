//! An operand as packing reads it.

use std::marker::PhantomData;
use std::ops::Range;

use tegula_core::element::Scalar;
use tegula_core::matrix::{Layout, Shape};

/// A or B as packing reads it: lanes along k. A lane is a row of A or a column of B.
#[derive(Clone, Copy)]
pub struct PackSource<'a, T> {
    start: *const T,
    lanes: usize,
    steps: usize,
    /// Batch stride in elements.
    batch: isize,
    /// Stride between lanes in elements.
    lane: isize,
    /// Stride along k in elements.
    step: isize,
    borrowed: PhantomData<&'a T>,
}

// SAFETY: it represents a shared borrow of its elements.
unsafe impl<T: Sync> Send for PackSource<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for PackSource<'_, T> {}

impl<T: Scalar> PackSource<'_, T> {
    /// The first matrix of a batch, its rows as lanes; `memory` is position 0 of its layout.
    ///
    /// # Safety
    /// Every element of the layout is borrowed to be read for the lifetime of the source.
    pub unsafe fn rows(memory: *const T, layout: Layout) -> Self {
        let ([batch, lane, step], Shape { rows: lanes, cols: steps, .. }) = (layout.strides, layout.shape);
        let start = memory.wrapping_add(layout.offset);
        PackSource { start, lanes, steps, batch, lane, step, borrowed: PhantomData }
    }

    /// The matrix `batch` of the batch.
    pub fn batch(self, batch: usize) -> Self {
        // The strides of an empty matrix are unbounded.
        PackSource { start: self.start.wrapping_offset((batch as isize).wrapping_mul(self.batch)), ..self }
    }

    /// Strides in elements: between lanes, and along k.
    pub fn strides(&self) -> [isize; 2] {
        [self.lane, self.step]
    }

    /// Asserts that lanes and steps are in the matrix.
    pub fn assert_contains(&self, lanes: &Range<usize>, k: &Range<usize>) {
        assert!(
            lanes.end <= self.lanes && k.end <= self.steps,
            "{lanes:?} and {k:?} of {} and {}",
            self.lanes,
            self.steps
        );
    }

    /// The address of an element. It may be read if it is in the matrix.
    pub fn at(&self, lane: usize, k: usize) -> *const T {
        self.start.wrapping_offset(lane as isize * self.lane + k as isize * self.step)
    }
}
