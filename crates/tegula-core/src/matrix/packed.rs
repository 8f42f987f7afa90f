//! Dense copies of strided matrices, for example for a GPU.
//!
//! Each element is copied once, in an order close to that of the source.

use super::{Layout, View, ViewMut};
use crate::element::Scalar;
use crate::error::Result;

/// A dense copy of a strided matrix: the layout to read, and the layout of the copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Packed {
    /// The layout to read in row-major order.
    ///
    /// It is the matrix, or its transpose where the row stride is smaller than the column stride.
    /// Axes with stride 0 have extent 1.
    pub from: Layout,
    /// The layout of the matrix in the copy. Broadcast axes keep stride 0.
    pub to: Layout,
}

impl Layout {
    /// The dense copy of a matrix with this layout.
    ///
    /// Row-major and column-major matrices keep their order, so that both are copied in large
    /// pieces. Axes with negative strides are reversed. Broadcast axes are copied once.
    ///
    /// ```
    /// use tegula_core::{Layout, Shape};
    ///
    /// // Columns of 4, one every 10 elements.
    /// let columns = Layout { shape: Shape::new(4, 3), offset: 7, strides: [0, 1, 10] };
    /// let packed = columns.packed()?;
    /// assert_eq!(packed.to, Layout { offset: 0, strides: [12, 1, 4], ..columns });
    /// // One row, broadcast to 1000 rows.
    /// let row = Layout { shape: Shape::new(1000, 3), offset: 0, strides: [0, 0, 1] };
    /// let packed = row.packed()?;
    /// assert_eq!((packed.from.shape, packed.to.strides), (Shape::new(1, 3), [3, 0, 1]));
    /// # Ok::<(), tegula_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) where the elements cannot be addressed.
    pub fn packed(&self) -> Result<Packed> {
        let is_broadcast = |layout: &Layout, axis: usize| layout.extents()[axis] > 1 && layout.strides[axis] == 0;
        let once = (0..3).try_fold(*self, |layout, axis| match is_broadcast(&layout, axis) {
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
    /// The view to read in row-major order, and the layout of the copy; see [`Layout::packed`].
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) where the elements cannot be addressed.
    pub fn packed(self) -> Result<(Self, Layout)> {
        let Packed { from, to } = self.layout().packed()?;
        Ok((self.with_layout(from), to))
    }
}

impl<T: Scalar> ViewMut<'_, T> {
    /// The view to write in row-major order, and the layout of the copy; see [`Layout::packed`].
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) where the elements cannot be addressed.
    pub fn packed(self) -> Result<(Self, Layout)> {
        let Packed { from, to } = self.layout().packed()?;
        Ok((self.with_layout(from), to))
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
    fn packed_copy_keeps_the_storage_order() {
        assert_eq!(packed([2, 3, 4], [12, 4, 1]), ([2, 3, 4], [12, 4, 1], 24));
        assert_eq!(packed([2, 3, 4], [90, 10, 2]), ([2, 3, 4], [12, 4, 1], 24));
        assert_eq!(packed([2, 3, 4], [12, 1, 3]), ([2, 4, 3], [12, 1, 3], 24));
        assert_eq!(packed([2, 3, 4], [1, 2, 6]), ([2, 4, 3], [12, 1, 3], 24));
        assert_eq!(packed([1, 3, 4], [0, -1, -9]), ([1, 4, 3], [12, 1, 3], 12));
        assert_eq!(packed([1, 3, 4], [0, -4, 1]), ([1, 3, 4], [12, 4, 1], 12));
    }

    #[test]
    fn broadcast_axes_are_stored_once() {
        assert_eq!(packed([5, 3, 4], [0, 4, 1]), ([1, 3, 4], [0, 4, 1], 12));
        assert_eq!(packed([5, 3, 4], [0, 1, 3]), ([1, 4, 3], [0, 1, 3], 12));
        assert_eq!(packed([5, 3, 4], [4, 0, 1]), ([5, 1, 4], [4, 0, 1], 20));
        assert_eq!(packed([5, 3, 4], [3, 1, 0]), ([5, 3, 1], [3, 1, 0], 15));
        assert_eq!(packed([5, 3, 4], [0, 0, 0]), ([1, 1, 1], [0, 0, 0], 1));
        // An axis of extent 1 is not broadcast, whatever its stride.
        assert_eq!(packed([1, 1, 4], [0, 0, 1]), ([1, 1, 4], [4, 4, 1], 4));
        assert_eq!(packed([0, 3, 4], [0, 0, 1]).2, 0);
        let vast = layout([1, 1 << 31, 1 << 31], 0, [0, 0, 0]);
        assert!(layout([1, 1 << 62, 1 << 62], 0, [0, 0, 0]).packed().is_err());
        assert_eq!(vast.packed().unwrap().from.shape, Shape::new(1, 1));
        assert!(layout([1 << 40, 1 << 40, 1], 0, [1, 1, 1]).packed().is_err());
    }

    #[test]
    fn packed_copy_has_the_same_elements() {
        let memory: Vec<i32> = (0..200).collect();
        for strides in
            [[40, 10, 2], [40, 2, 10], [-40, -10, 2], [0, 3, -11], [40, 0, 7], [1, 40, 0], [0, 0, 0], [1, 1, 1]]
        {
            let reach = |(stride, extent): (isize, isize)| (-stride * (extent - 1)).max(0) as usize;
            let below = strides.into_iter().zip([2, 3, 4]).map(reach).sum();
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
