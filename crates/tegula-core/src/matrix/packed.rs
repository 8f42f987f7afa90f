//! How a matrix is copied to other memory, such as a GPU's: each element once, without gaps, and in an order near the one it has.

use super::{Layout, View, ViewMut};
use crate::element::Scalar;
use crate::error::Result;

/// A copy without gaps: what is read and where it lies then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packed {
    /// What is read, row after row and matrix after matrix: the matrix, or where its rows are closer than its columns the transposed
    /// one, with one place left of each axis of stride 0.
    pub from: Layout,
    /// Where each element of the matrix lies in the copy; along an axis that was repeated it still is, with stride 0.
    pub to: Layout,
}

impl Layout {
    /// How a matrix that lies so is copied to memory of its own. What is row-major stays so, and so does what is column-major, so that
    /// either is copied in large pieces; rows and columns that run backwards are turned round; what is repeated is copied once.
    ///
    /// ```
    /// use tegula_core::{Layout, Shape};
    ///
    /// // Columns of 4, one every 10 elements.
    /// let columns = Layout { shape: Shape::new(4, 3), offset: 7, strides: [0, 1, 10] };
    /// let packed = columns.packed()?;
    /// assert_eq!(packed.to, Layout { offset: 0, strides: [12, 1, 4], ..columns });
    /// // One row for all.
    /// let row = Layout { shape: Shape::new(1000, 3), offset: 0, strides: [0, 0, 1] };
    /// let packed = row.packed()?;
    /// assert_eq!((packed.from.shape, packed.to.strides), (Shape::new(1, 3), [3, 0, 1]));
    /// # Ok::<(), tegula_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) where there are more elements than can be addressed.
    pub fn packed(&self) -> Result<Packed> {
        let repeated = |layout: &Layout, axis: usize| layout.extents()[axis] > 1 && layout.strides[axis] == 0;
        let once = (0..3).try_fold(*self, |layout, axis| match repeated(&layout, axis) {
            true => layout.select(axis, 0, 1, 1),
            false => Ok(layout),
        })?;
        let [_, row, col] = once.strides.map(isize::unsigned_abs);
        if once.shape.rows > 1 && once.shape.cols > 1 && row < col {
            let from = once.transposed();
            return Ok(Packed { from, to: Layout::row_major(from.shape)?.transposed().broadcast(self.shape)? });
        }
        Ok(Packed { from: once, to: Layout::row_major(once.shape)?.broadcast(self.shape)? })
    }
}

impl<T: Scalar> View<'_, T> {
    /// What to copy, row after row, to memory of its own, and the layout of the copy; see [`Layout::packed`].
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) where there are more elements than can be addressed.
    pub fn packed(self) -> Result<(Self, Layout)> {
        let Packed { from, to } = self.layout().packed()?;
        Ok((self.part(from), to))
    }
}

impl<T: Scalar> ViewMut<'_, T> {
    /// Where to copy back to, row after row, and the layout of the copy; see [`Layout::packed`].
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) where there are more elements than can be addressed.
    pub fn packed(self) -> Result<(Self, Layout)> {
        let Packed { from, to } = self.layout().packed()?;
        Ok((self.part(from), to))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Shape;

    fn layout(shape: [usize; 3], offset: usize, strides: [isize; 3]) -> Layout {
        let [batches, rows, cols] = shape;
        Layout { shape: Shape { batches, rows, cols }, offset, strides }
    }

    fn elements(view: View<'_, i32>) -> Vec<i32> {
        let mut all = vec![-1; view.shape().len().unwrap()];
        view.copy_to_slice(0, &mut all).unwrap();
        all
    }

    fn packed(shape: [usize; 3], strides: [isize; 3]) -> ([usize; 3], [isize; 3], usize) {
        let Packed { from, to } = layout(shape, 50, strides).packed().unwrap();
        assert_eq!(to.extents(), shape);
        assert_eq!(to.offset, 0);
        to.check(from.shape.len().unwrap()).unwrap();
        (from.extents(), to.strides, from.shape.len().unwrap())
    }

    #[test]
    fn rows_stay_rows_and_columns_stay_columns() {
        assert_eq!(packed([2, 3, 4], [12, 4, 1]), ([2, 3, 4], [12, 4, 1], 24));
        assert_eq!(packed([2, 3, 4], [90, 10, 2]), ([2, 3, 4], [12, 4, 1], 24));
        assert_eq!(packed([2, 3, 4], [12, 1, 3]), ([2, 4, 3], [12, 1, 3], 24));
        assert_eq!(packed([2, 3, 4], [1, 2, 6]), ([2, 4, 3], [12, 1, 3], 24));
        assert_eq!(packed([1, 3, 4], [0, -1, -9]), ([1, 4, 3], [12, 1, 3], 12));
        assert_eq!(packed([1, 3, 4], [0, -4, 1]), ([1, 3, 4], [12, 4, 1], 12));
    }

    #[test]
    fn what_is_repeated_is_stored_once() {
        assert_eq!(packed([5, 3, 4], [0, 4, 1]), ([1, 3, 4], [0, 4, 1], 12));
        assert_eq!(packed([5, 3, 4], [0, 1, 3]), ([1, 4, 3], [0, 1, 3], 12));
        assert_eq!(packed([5, 3, 4], [4, 0, 1]), ([5, 1, 4], [4, 0, 1], 20));
        assert_eq!(packed([5, 3, 4], [3, 1, 0]), ([5, 3, 1], [3, 1, 0], 15));
        assert_eq!(packed([5, 3, 4], [0, 0, 0]), ([1, 1, 1], [0, 0, 0], 1));
        // One place is not a repetition, whatever its stride.
        assert_eq!(packed([1, 1, 4], [0, 0, 1]), ([1, 1, 4], [4, 4, 1], 4));
        assert_eq!(packed([0, 3, 4], [0, 0, 1]).2, 0);
        let vast = layout([1, 1 << 31, 1 << 31], 0, [0, 0, 0]);
        assert!(layout([1, 1 << 62, 1 << 62], 0, [0, 0, 0]).packed().is_err());
        assert_eq!(vast.packed().unwrap().from.shape, Shape::new(1, 1));
        assert!(layout([1 << 40, 1 << 40, 1], 0, [1, 1, 1]).packed().is_err());
    }

    #[test]
    fn a_copy_holds_the_same_elements() {
        let memory: Vec<i32> = (0..200).collect();
        for strides in
            [[40, 10, 2], [40, 2, 10], [-40, -10, 2], [0, 3, -11], [40, 0, 7], [1, 40, 0], [0, 0, 0], [1, 1, 1]]
        {
            let back = |(stride, extent): (isize, isize)| (-stride * (extent - 1)).max(0) as usize;
            let below = strides.into_iter().zip([2, 3, 4]).map(back).sum();
            let view = View::strided(&memory, layout([2, 3, 4], below, strides)).unwrap();
            let (from, to) = view.packed().unwrap();
            let copy = elements(from);
            let there = View::strided(&copy, to).unwrap();
            assert_eq!((there.shape(), elements(there)), (view.shape(), elements(view)), "{strides:?}");
        }
        let mut c = [0; 12];
        let (mut into, to) = ViewMut::new(&mut c, 3, 4).unwrap().t().packed().unwrap();
        into.copy_from_slice(0, &memory[..12]).unwrap();
        assert_eq!((&c[..], to.strides), (&memory[..12], [12, 1, 4]));
    }
}
