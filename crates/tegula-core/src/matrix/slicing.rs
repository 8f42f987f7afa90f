//! Slices of matrices: ranges, steps and reversed axes. Each is another layout over the same
//! memory.

use std::ops::{Bound, RangeBounds};

use super::{View, ViewMut};
use crate::element::Scalar;
use crate::error::{Error, Result};

macro_rules! slicing {
    ($view:ident) => {
        impl<T: Scalar> $view<'_, T> {
            /// A range of the batch.
            ///
            /// # Errors
            /// [`Error::Layout`] where the range exceeds the batch.
            pub fn batches(self, range: impl RangeBounds<usize>) -> Result<Self> {
                self.range(0, range)
            }

            /// A range of rows of each matrix, such as `view.rows(2..)`.
            ///
            /// # Errors
            /// [`Error::Layout`] where the range exceeds the rows.
            pub fn rows(self, range: impl RangeBounds<usize>) -> Result<Self> {
                self.range(1, range)
            }

            /// A range of columns of each matrix.
            ///
            /// # Errors
            /// [`Error::Layout`] where the range exceeds the columns.
            pub fn cols(self, range: impl RangeBounds<usize>) -> Result<Self> {
                self.range(2, range)
            }

            /// Every `rows`-th row and every `cols`-th column, starting with the first.
            ///
            /// # Errors
            /// [`Error::Layout`] where a step is 0.
            pub fn step_by(self, rows: usize, cols: usize) -> Result<Self> {
                self.step_axis(1, rows)?.step_axis(2, cols)
            }

            /// The rows in reversed order.
            #[must_use]
            pub fn flip_rows(self) -> Self {
                self.flipped(1)
            }

            /// The columns in reversed order.
            #[must_use]
            pub fn flip_cols(self) -> Self {
                self.flipped(2)
            }

            fn range(self, axis: usize, range: impl RangeBounds<usize>) -> Result<Self> {
                let (first, end) = bounds(range, self.layout().extents()[axis])?;
                self.select(axis, first, 1, end - first)
            }

            fn step_axis(self, axis: usize, step: usize) -> Result<Self> {
                let extent = self.layout().extents()[axis];
                if step == 0 {
                    return Err(Error::Layout("the step of rows or columns is 0; it must be at least 1".into()));
                }
                // A step beyond isize::MAX selects at most one index, so the step is not used.
                self.select(axis, 0, isize::try_from(step).unwrap_or(1), extent.div_ceil(step))
            }
        }
    };
}

slicing!(View);
slicing!(ViewMut);

/// Splits into disjoint halves, which can be written at the same time, also by two threads.
impl<T: Scalar> ViewMut<'_, T> {
    /// The matrices before number `at`, and the others.
    ///
    /// # Errors
    /// [`Error::Layout`] where the batch has fewer than `at` matrices.
    pub fn split_batches(self, at: usize) -> Result<(Self, Self)> {
        self.split(0, at)
    }

    /// The rows above row `at`, and the others.
    ///
    /// # Errors
    /// [`Error::Layout`] where the matrices have fewer than `at` rows.
    pub fn split_rows(self, at: usize) -> Result<(Self, Self)> {
        self.split(1, at)
    }

    /// The columns left of column `at`, and the others.
    ///
    /// # Errors
    /// [`Error::Layout`] where the matrices have fewer than `at` columns.
    pub fn split_cols(self, at: usize) -> Result<(Self, Self)> {
        self.split(2, at)
    }
}

/// The first index of a range, and the index after its last.
fn bounds(range: impl RangeBounds<usize>, extent: usize) -> Result<(usize, usize)> {
    let first = match range.start_bound() {
        Bound::Included(&first) => Some(first),
        Bound::Excluded(&before) => before.checked_add(1),
        Bound::Unbounded => Some(0),
    };
    let end = match range.end_bound() {
        Bound::Included(&last) => last.checked_add(1),
        Bound::Excluded(&end) => Some(end),
        Bound::Unbounded => Some(extent),
    };
    match (first, end) {
        (Some(first), Some(end)) if first <= end && end <= extent => Ok((first, end)),
        _ => Err(Error::Layout(format!(
            "the range from {:?} to {:?} exceeds 0..{extent}",
            range.start_bound(),
            range.end_bound()
        ))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::{Layout, Shape};

    fn layout() -> Layout {
        Layout::row_major(Shape { batches: 2, rows: 3, cols: 4 }).unwrap()
    }

    /// Two 3×4 matrices whose element (b, r, c) is 100·b + 10·r + c.
    fn counting() -> Vec<i32> {
        (0..24).map(|i| 100 * (i / 12) + 10 * (i / 4 % 3) + i % 4).collect()
    }

    fn elements(view: View<'_, i32>) -> Vec<i32> {
        let mut all = vec![-1; view.shape().len().unwrap()];
        view.copy_to_slice(0, &mut all).unwrap();
        all
    }

    #[test]
    fn slices_have_the_selected_elements() {
        let data = counting();
        let m = View::strided(&data, layout()).unwrap();
        let part = m.batches(1..).unwrap().rows(1..=2).unwrap().cols(..3).unwrap();
        assert_eq!(elements(part), [110, 111, 112, 120, 121, 122]);
        let odd = part.cols(1..).unwrap().flip_rows().flip_cols().t();
        assert_eq!(elements(odd), [122, 112, 121, 111]);
        let thin = m.batches(..1).unwrap().step_by(2, 3).unwrap();
        assert_eq!(elements(thin), [0, 3, 20, 23]);
        let one = m.batches(..1).unwrap().step_by(usize::MAX, 3).unwrap();
        assert_eq!(elements(one), [0, 3]);
    }

    #[test]
    fn slices_out_of_bounds_are_rejected() {
        let (data, mut output) = (counting(), counting());
        let m = View::strided(&data, layout()).unwrap();
        let mut c = ViewMut::strided(&mut output, layout()).unwrap();
        let reversed = std::ops::Range { start: 2, end: 1 };
        for rejected in
            [m.rows(2..4), m.rows(4..), m.rows(reversed), m.cols(..=usize::MAX), m.batches(3..3), m.step_by(0, 1)]
        {
            assert!(matches!(rejected, Err(Error::Layout(_))), "{rejected:?}");
        }
        assert!(c.reborrow().step_by(1, 0).is_err());
        assert!(c.reborrow().split_batches(3).is_err());
        assert_eq!(c.reborrow().rows(3..).unwrap().shape().rows, 0);
    }
}
