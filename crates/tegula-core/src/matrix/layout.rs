//! Where elements lie: offsets and strides, and the layouts of parts of a matrix. Numbers only; no memory is touched here.

use smallvec::SmallVec;

use super::Shape;
use crate::element::Type;
use crate::error::{Error, Result};

/// Where each element of a matrix lies: element (b, r, c) is `offset + b·strides[0] + r·strides[1] + c·strides[2]` elements
/// from the start of its memory. Strides may be negative; in inputs they may be zero (broadcast).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Extents.
    pub shape: Shape,
    /// Where element (0, 0, 0) lies, in elements.
    pub offset: usize,
    /// Distances between batches, rows and columns, in elements.
    pub strides: [isize; 3],
}

impl Layout {
    /// The address of element (0, 0, 0) in memory that starts at `start`; an empty matrix may have any.
    pub fn origin(&self, ty: Type, start: u64) -> u64 {
        start.wrapping_add((self.offset as u64).wrapping_mul(ty.size() as u64))
    }

    /// Row after row, batch after batch, with no gap.
    ///
    /// # Errors
    /// [`Error::Shape`] where the elements cannot be addressed.
    pub fn row_major(shape: Shape) -> Result<Self> {
        shape.len()?;
        // An empty matrix may have huge extents on its other axes; its strides are never used.
        let stride = |x: Option<usize>| x.and_then(|x| isize::try_from(x).ok()).unwrap_or(0);
        let batch = stride(shape.rows.checked_mul(shape.cols));
        Ok(Layout { shape, offset: 0, strides: [batch, stride(Some(shape.cols)), 1] })
    }

    /// The same elements with rows and columns exchanged.
    #[must_use]
    pub fn transposed(self) -> Self {
        let [batch, row, col] = self.strides;
        Layout {
            shape: Shape { rows: self.shape.cols, cols: self.shape.rows, ..self.shape },
            strides: [batch, col, row],
            ..self
        }
    }

    /// Position of an element, from the start of the memory. Only meaningful within the shape of a checked layout.
    pub fn at(&self, batch: usize, row: usize, col: usize) -> usize {
        let [b, r, c] = self.strides;
        (self.offset as isize + batch as isize * b + row as isize * r + col as isize * c) as usize
    }

    /// Extents along the axes: batches, rows, columns.
    pub fn extents(&self) -> [usize; 3] {
        [self.shape.batches, self.shape.rows, self.shape.cols]
    }

    fn with(self, axis: usize, extent: usize, stride: isize) -> Self {
        let Shape { batches, rows, cols } = self.shape;
        let (mut extents, mut strides) = ([batches, rows, cols], self.strides);
        (extents[axis], strides[axis]) = (extent, stride);
        let [batches, rows, cols] = extents;
        Layout { shape: Shape { batches, rows, cols }, strides, ..self }
    }

    /// Of the places along an axis (0 batches, 1 rows, 2 columns) those at `first`, `first + step`, …, `count` of them: a part of
    /// the same elements, distinct ones where they were and `step` is not 0.
    ///
    /// # Errors
    /// [`Error::Layout`] where the axis ends before.
    pub(super) fn select(self, axis: usize, first: usize, step: isize, count: usize) -> Result<Self> {
        let (extent, stride) = (self.extents()[axis], self.strides[axis]);
        let last = count.saturating_sub(1) as i128 * step as i128 + first as i128;
        let inside = |place: i128| (0..extent as i128).contains(&place);
        if count > 0 && !(inside(first as i128) && inside(last)) || first > extent {
            let axis = ["batches", "rows", "columns"][axis];
            let end = last + i128::from(count > 0);
            return Err(Error::Layout(format!("{axis} {first} to {end} are not all in a matrix of {}", self.shape)));
        }
        // The stride along an axis of one place is never used and may be anything; so may the offset of an empty matrix.
        let part = self.with(axis, count, if count > 1 { stride.wrapping_mul(step) } else { stride });
        let moved = if part.shape.is_empty() { 0 } else { first as isize * stride };
        Ok(Layout { offset: self.offset.wrapping_add_signed(moved), ..part })
    }

    /// The same elements in opposite order along an axis.
    pub(super) fn flipped(self, axis: usize) -> Self {
        let extent = self.extents()[axis];
        self.select(axis, extent.saturating_sub(1), -1, extent).unwrap_or(self)
    }

    /// The matrix repeated to a larger shape: an axis of one place becomes any number of the same, with stride 0.
    ///
    /// # Errors
    /// [`Error::Shape`] where an axis has several places and another number of them is asked for, or there are more elements than can be
    /// addressed.
    pub(super) fn broadcast(self, shape: Shape) -> Result<Self> {
        if self.shape == shape {
            return Ok(self);
        }
        shape.len()?;
        let to = Layout { shape, ..self }.extents();
        (0..3).try_fold(self, |layout, axis| match (layout.extents()[axis], to[axis]) {
            (from, to) if from == to => Ok(layout),
            (1, to) => Ok(layout.with(axis, to, 0)),
            _ => Err(Error::Shape(format!("{} cannot be repeated to {shape}: only an axis of 1 can be", self.shape))),
        })
    }

    /// First and last position used, or `None` for an empty matrix.
    ///
    /// # Errors
    /// [`Error::Layout`] where a position overflows or lies before the start of the memory.
    pub fn span(&self) -> Result<Option<(usize, usize)>> {
        if self.shape.is_empty() {
            return Ok(None);
        }
        span(self.offset, self.axes()).map(Some).ok_or_else(|| {
            Error::Layout(format!(
                "a {} view at offset {} with strides {:?} reaches outside the address space of its memory",
                self.shape, self.offset, self.strides
            ))
        })
    }

    /// Checks that every element lies within `len` elements of memory, and that their number can be addressed.
    ///
    /// # Errors
    /// [`Error::Layout`] naming the first position that does not, [`Error::Shape`] where there are too many elements.
    pub fn check(&self, len: usize) -> Result<()> {
        self.shape.len()?;
        match self.span()? {
            Some((_, last)) if last >= len => Err(Error::Layout(format!(
                "a {} view at offset {} with strides {:?} needs {} elements, the memory holds {len}",
                self.shape,
                self.offset,
                self.strides,
                last + 1
            ))),
            _ => Ok(()),
        }
    }

    /// Checks that no two coordinates share an element, as an output needs.
    ///
    /// The test is sufficient, not necessary: axes sorted by stride must each step over everything the smaller ones reach.
    /// It accepts every layout that arises from slicing, transposing and reversing a dense matrix.
    ///
    /// # Errors
    /// [`Error::Layout`] where two coordinates share an element or may do so.
    pub fn check_distinct(&self) -> Result<()> {
        if self.shape.is_empty() || distinct(self.axes()) {
            return Ok(());
        }
        Err(Error::Layout(format!(
            "an output of {} with strides {:?} has elements that share memory; give each its own",
            self.shape, self.strides
        )))
    }

    fn axes(&self) -> impl Iterator<Item = (usize, isize)> {
        self.extents().into_iter().zip(self.strides)
    }
}

/// First and last position of a layout that is not empty, from its extents and strides; `None` where one overflows or lies before the
/// start of the memory.
pub fn span(offset: usize, axes: impl Iterator<Item = (usize, isize)>) -> Option<(usize, usize)> {
    let (mut low, mut high) = (offset as i128, offset as i128);
    for (extent, stride) in axes {
        let reach = (extent as i128 - 1) * stride as i128;
        // Far beyond any address already, so that sums may as well stop at the end.
        if reach < 0 { low = low.saturating_add(reach) } else { high = high.saturating_add(reach) }
    }
    Some((usize::try_from(low).ok()?, isize::try_from(high).ok()? as usize))
}

/// Whether axes sorted by stride each step over everything that the smaller ones reach.
pub fn distinct(axes: impl Iterator<Item = (usize, isize)>) -> bool {
    // Three axes but for arrays of N dimensions.
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
    fn places_are_selected_within_the_axis() {
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
    fn what_is_never_used_may_be_anything() {
        let one = layout([1, 1, 3], 7, [isize::MIN, isize::MAX, 2]);
        assert_eq!(one.flipped(1).flipped(0).select(2, 1, 1, 2).unwrap().offset, 9);
        let none = layout([0, 3, 3], usize::MAX, [isize::MAX, 3, 1]);
        assert_eq!(none.flipped(1).select(2, 2, 1, 1).unwrap().offset, usize::MAX);
        assert_eq!(none.flipped(0), none);
    }

    #[test]
    fn only_an_axis_of_one_is_repeated() {
        let row = layout([1, 1, 3], 2, [9, 9, 1]);
        let shape = Shape { batches: 4, rows: 5, cols: 3 };
        assert_eq!(row.broadcast(shape).unwrap(), layout([4, 5, 3], 2, [0, 0, 1]));
        assert_eq!(row.broadcast(Shape::new(1, 3)).unwrap(), row);
        assert!(matches!(row.broadcast(Shape::new(1, 6)), Err(Error::Shape(_))));
        assert_eq!(row.broadcast(Shape::new(0, 3)).unwrap().shape, Shape::new(0, 3));
    }
}
