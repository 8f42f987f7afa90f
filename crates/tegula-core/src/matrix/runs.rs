//! Decomposition of row-major element ranges into runs of constant stride, for copies.
//!
//! It computes positions only; no memory is accessed here.

use super::{Layout, Shape};

/// Elements at a constant stride.
#[derive(Debug, PartialEq)]
pub(super) struct Run {
    /// The position of the first element.
    pub position: usize,
    pub stride: isize,
    pub len: usize,
}

impl Run {
    /// The position of element `i` of the run.
    pub fn at(&self, i: usize) -> usize {
        self.position.wrapping_add_signed(self.stride * i as isize)
    }
}

/// The runs of the `len` elements from number `start` on, in row-major order.
///
/// The range must be within the matrix.
pub(super) fn runs(layout: &Layout, start: usize, len: usize) -> impl Iterator<Item = Run> {
    let layout = flattened(layout);
    let Shape { rows, cols, .. } = layout.shape;
    let (mut next, end) = (start, start + len);
    std::iter::from_fn(move || {
        let remaining = end.checked_sub(next).filter(|&left| left > 0)?;
        let (row, col) = (next / cols, next % cols);
        let len = remaining.min(cols - col);
        next += len;
        Some(Run { position: layout.at(row / rows, row % rows, col), stride: layout.strides[2], len })
    })
}

/// The same element sequence with the fewest and longest rows: contiguous axes are merged.
///
/// The number of elements must fit in a `usize`.
pub(super) fn flattened(layout: &Layout) -> Layout {
    // The extents of an empty matrix can be arbitrarily large.
    if layout.shape.is_empty() {
        return *layout;
    }
    let (mut axes, mut outer) = ([(1, 0isize); 3], 2);
    let nontrivial = layout.extents().into_iter().zip(layout.strides).rev().filter(|&(extent, _)| extent != 1);
    for (extent, stride) in nontrivial {
        let (inner, inner_stride) = axes[outer];
        let merges = isize::try_from(inner).is_ok_and(|inner| inner_stride.checked_mul(inner) == Some(stride));
        match inner {
            1 => axes[outer] = (extent, stride),
            _ if merges => axes[outer].0 *= extent,
            _ => {
                outer -= 1;
                axes[outer] = (extent, stride);
            }
        }
    }
    let [batches, rows, cols] = axes.map(|(extent, _)| extent);
    Layout { shape: Shape { batches, rows, cols }, strides: axes.map(|(_, stride)| stride), ..*layout }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contiguous_rows_are_one_run() {
        let shape = Shape { batches: 2, rows: 3, cols: 4 };
        let layout = |shape, offset, strides| Layout { shape, offset, strides };
        let dense = Layout::row_major(shape).unwrap();
        assert_eq!(runs(&dense, 5, 17).collect::<Vec<_>>(), [Run { position: 5, stride: 1, len: 17 }]);
        let reversed = layout(shape, 23, [-12, -4, -1]);
        assert_eq!(runs(&reversed, 0, 24).collect::<Vec<_>>(), [Run { position: 23, stride: -1, len: 24 }]);
        let columns = layout(Shape { batches: 4, rows: 3, cols: 1 }, 2, [12, 4, 99]);
        assert_eq!(runs(&columns, 1, 10).collect::<Vec<_>>(), [Run { position: 6, stride: 4, len: 10 }]);
        let padded = layout(shape, 0, [20, 5, 1]);
        assert_eq!(runs(&padded, 0, 24).count(), 6);
        let broadcast = layout(Shape::new(1000, 1000), 0, [0, 0, 0]);
        assert_eq!(runs(&broadcast, 0, 1_000_000).count(), 1);
        assert_eq!(runs(&layout(Shape::new(0, 4), 0, [0, 4, 1]), 0, 0).count(), 0);
    }
}
