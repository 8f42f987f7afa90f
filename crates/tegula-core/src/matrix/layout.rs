//! Layouts of matrices: shape, offset and strides, and their slices. No memory is accessed here.

use smallvec::SmallVec;

use super::Shape;
use crate::element::Type;
use crate::error::{Error, Result};

/// The layout of a batch of matrices.
///
/// Element (b, r, c) is at position `offset + b·strides[0] + r·strides[1] + c·strides[2]`, in
/// elements from the start of the memory. Strides can be negative, and for inputs zero (broadcast).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Extents.
    pub shape: Shape,
    /// The position of element (0, 0, 0), in elements.
    pub offset: usize,
    /// The strides of batches, rows and columns, in elements.
    pub strides: [isize; 3],
}

impl Layout {
    /// The address of element (0, 0, 0) in memory at address `start`; unspecified for an empty
    /// matrix.
    pub fn origin(&self, ty: Type, start: u64) -> u64 {
        start.wrapping_add((self.offset as u64).wrapping_mul(ty.size() as u64))
    }

    /// A contiguous row-major layout.
    ///
    /// # Errors
    /// [`Error::Shape`] where the elements cannot be addressed.
    pub fn row_major(shape: Shape) -> Result<Self> {
        shape.len()?;
        Ok(Self::row_major_addressable(shape))
    }

    /// The contiguous row-major layout of a shape whose elements can be addressed.
    #[inline]
    pub(super) fn row_major_addressable(shape: Shape) -> Self {
        // An empty matrix can have huge extents on its other axes; its strides are not used.
        let stride = |x: Option<usize>| x.and_then(|x| isize::try_from(x).ok()).unwrap_or(0);
        let batch = stride(shape.rows.checked_mul(shape.cols));
        Layout { shape, offset: 0, strides: [batch, stride(Some(shape.cols)), 1] }
    }

    /// The layout with rows and columns swapped.
    #[must_use]
    #[inline]
    pub fn transposed(self) -> Self {
        let [batch, row, col] = self.strides;
        Layout {
            shape: Shape { rows: self.shape.cols, cols: self.shape.rows, ..self.shape },
            strides: [batch, col, row],
            ..self
        }
    }

    /// The position of an element. Valid only within the shape of a checked layout.
    pub fn at(&self, batch: usize, row: usize, col: usize) -> usize {
        let [b, r, c] = self.strides;
        (self.offset as isize + batch as isize * b + row as isize * r + col as isize * c) as usize
    }

    /// The extents of the axes: batches, rows, columns.
    pub fn extents(&self) -> [usize; 3] {
        [self.shape.batches, self.shape.rows, self.shape.cols]
    }

    fn with_axis(self, axis: usize, extent: usize, stride: isize) -> Self {
        let Shape { batches, rows, cols } = self.shape;
        let (mut extents, mut strides) = ([batches, rows, cols], self.strides);
        (extents[axis], strides[axis]) = (extent, stride);
        let [batches, rows, cols] = extents;
        Layout { shape: Shape { batches, rows, cols }, strides, ..self }
    }

    /// The layout of `count` indices `first`, `first + step`, … of an axis (0 batch, 1 row, 2
    /// column).
    ///
    /// Distinct elements stay distinct unless `step` is 0.
    ///
    /// # Errors
    /// [`Error::Layout`] for an index beyond the axis.
    pub(super) fn select(self, axis: usize, first: usize, step: isize, count: usize) -> Result<Self> {
        let (extent, stride) = (self.extents()[axis], self.strides[axis]);
        let last = count.saturating_sub(1) as i128 * step as i128 + first as i128;
        let in_bounds = |index: i128| (0..extent as i128).contains(&index);
        if count > 0 && !(in_bounds(first as i128) && in_bounds(last)) || first > extent {
            let axis = ["batches", "rows", "columns"][axis];
            let end = last + i128::from(count > 0);
            return Err(Error::Layout(format!("{axis} {first}..{end} exceed a matrix of shape {}", self.shape)));
        }
        // The stride of an axis with extent 1 and the offset of an empty matrix are not used; any
        // value is valid.
        let part = self.with_axis(axis, count, if count > 1 { stride.wrapping_mul(step) } else { stride });
        let distance = if part.shape.is_empty() { 0 } else { first as isize * stride };
        Ok(Layout { offset: self.offset.wrapping_add_signed(distance), ..part })
    }

    /// The layout with an axis reversed.
    pub(super) fn flipped(self, axis: usize) -> Self {
        let extent = self.extents()[axis];
        self.select(axis, extent.saturating_sub(1), -1, extent).unwrap_or(self)
    }

    /// The layout broadcast to a larger shape: an axis of extent 1 is repeated, with stride 0.
    ///
    /// # Errors
    /// [`Error::Shape`] where extents other than 1 differ, or the elements cannot be addressed.
    pub(super) fn broadcast(self, shape: Shape) -> Result<Self> {
        if self.shape == shape {
            return Ok(self);
        }
        shape.len()?;
        let to = Layout { shape, ..self }.extents();
        (0..3).try_fold(self, |layout, axis| match (layout.extents()[axis], to[axis]) {
            (from, to) if from == to => Ok(layout),
            (1, to) => Ok(layout.with_axis(axis, to, 0)),
            _ => Err(Error::Shape(format!("cannot broadcast {} to {shape}: extents must be equal or 1", self.shape))),
        })
    }

    /// The first and last position in use; `None` for an empty matrix.
    ///
    /// # Errors
    /// [`Error::Layout`] where a position overflows or is negative.
    pub fn span(&self) -> Result<Option<(usize, usize)>> {
        if self.shape.is_empty() {
            return Ok(None);
        }
        span(self.offset, self.axes()).map(Some).ok_or_else(|| {
            Error::Layout(format!(
                "a {} view at offset {} with strides {:?} has a position that is negative or overflows",
                self.shape, self.offset, self.strides
            ))
        })
    }

    /// Checks that all elements fit in `len` elements of memory, and that they can be addressed.
    ///
    /// # Errors
    /// [`Error::Layout`] with the required length, [`Error::Shape`] where there are too many
    /// elements.
    pub fn check(&self, len: usize) -> Result<()> {
        self.shape.len()?;
        match self.span()? {
            Some((_, last)) if last >= len => Err(Error::Layout(format!(
                "a {} view at offset {} with strides {:?} needs {} elements; the memory has {len}",
                self.shape,
                self.offset,
                self.strides,
                last + 1
            ))),
            _ => Ok(()),
        }
    }

    /// Checks that no two coordinates share an element, as an output requires.
    ///
    /// The test is sufficient, not necessary: sorted by stride, each axis must step over the range
    /// of all smaller axes. It accepts every layout that results from slicing, transposing and
    /// reversing a dense matrix.
    ///
    /// # Errors
    /// [`Error::Layout`] where two coordinates share an element or may do so.
    pub fn check_distinct(&self) -> Result<()> {
        if self.shape.is_empty() || distinct(self.axes()) {
            return Ok(());
        }
        Err(Error::Layout(format!(
            "an output of shape {} with strides {:?} has overlapping elements; an output needs distinct elements",
            self.shape, self.strides
        )))
    }

    fn axes(&self) -> impl Iterator<Item = (usize, isize)> {
        self.extents().into_iter().zip(self.strides)
    }
}

/// The first and last position of a layout that is not empty, from its extents and strides.
///
/// `None` where a position overflows or is negative.
pub fn span(offset: usize, axes: impl Iterator<Item = (usize, isize)>) -> Option<(usize, usize)> {
    let (mut low, mut high) = (offset as i128, offset as i128);
    for (extent, stride) in axes {
        let reach = (extent as i128 - 1) * stride as i128;
        // Saturation is safe: the value is beyond any address already.
        if reach < 0 { low = low.saturating_add(reach) } else { high = high.saturating_add(reach) }
    }
    Some((usize::try_from(low).ok()?, isize::try_from(high).ok()? as usize))
}

/// Whether, sorted by stride, each axis steps over the range of all smaller axes.
pub fn distinct(axes: impl Iterator<Item = (usize, isize)>) -> bool {
    // Three axes, except for N-dimensional arrays.
    let mut axes: SmallVec<[_; 3]> = axes
        .filter(|&(extent, _)| extent > 1)
        .map(|(extent, stride)| (stride.unsigned_abs() as u128, extent as u128))
        .collect();
    axes.sort_unstable();
    let mut reach = 0u128;
    axes.into_iter().all(|(stride, extent)| {
        let steps_over = stride > reach;
        reach = reach.saturating_add(stride * (extent - 1));
        steps_over
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(shape: [usize; 3], offset: usize, strides: [isize; 3]) -> Layout {
        let [batches, rows, cols] = shape;
        Layout { shape: Shape { batches, rows, cols }, offset, strides }
    }

    #[test]
    fn select_beyond_the_axis_is_rejected() {
        let dense = Layout::row_major(Shape::new(5, 4)).unwrap();
        assert_eq!(dense.select(1, 1, 2, 2).unwrap(), layout([1, 2, 4], 4, [20, 8, 1]));
        assert_eq!(dense.select(2, 3, -1, 4).unwrap(), layout([1, 5, 4], 3, [20, 4, -1]));
        assert_eq!(dense.select(2, 4, 1, 0).unwrap().shape, Shape::new(5, 0));
        for (first, step, count) in
            [(1, 2, 3), (5, 1, 1), (6, 1, 0), (0, -1, 2), (0, isize::MAX, 2), (0, 1, usize::MAX)]
        {
            assert!(matches!(dense.select(1, first, step, count), Err(Error::Layout(_))), "{first} {step} {count}");
        }
    }

    #[test]
    fn unused_strides_and_offsets_can_be_arbitrary() {
        let one = layout([1, 1, 3], 7, [isize::MIN, isize::MAX, 2]);
        assert_eq!(one.flipped(1).flipped(0).select(2, 1, 1, 2).unwrap().offset, 9);
        let none = layout([0, 3, 3], usize::MAX, [isize::MAX, 3, 1]);
        assert_eq!(none.flipped(1).select(2, 2, 1, 1).unwrap().offset, usize::MAX);
        assert_eq!(none.flipped(0), none);
    }

    #[test]
    fn only_an_axis_of_extent_one_is_broadcast() {
        let row = layout([1, 1, 3], 2, [9, 9, 1]);
        let shape = Shape { batches: 4, rows: 5, cols: 3 };
        assert_eq!(row.broadcast(shape).unwrap(), layout([4, 5, 3], 2, [0, 0, 1]));
        assert_eq!(row.broadcast(Shape::new(1, 3)).unwrap(), row);
        assert!(matches!(row.broadcast(Shape::new(1, 6)), Err(Error::Shape(_))));
        assert_eq!(row.broadcast(Shape::new(0, 3)).unwrap().shape, Shape::new(0, 3));
    }
}
