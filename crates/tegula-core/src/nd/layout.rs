//! Layouts of N-dimensional arrays: shape, offset and strides. No memory is accessed here.

use crate::error::{Error, Result};
use crate::host;
use crate::matrix::{distinct, span};

/// The layout of an N-dimensional array.
///
/// Element (i₀, i₁, …) is at position `offset + i₀·strides[0] + i₁·strides[1] + …`, in elements
/// from the start of the memory. Strides can be negative, and for inputs zero (broadcast).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NdLayout {
    /// Extents, outermost first; empty for a scalar.
    pub shape: Vec<usize>,
    /// The position of the first element, in elements.
    pub offset: usize,
    /// The strides of the axes, in elements.
    pub strides: Vec<isize>,
}

impl NdLayout {
    /// A contiguous layout in C order: the last axis is the fastest.
    ///
    /// # Errors
    /// [`Error::Shape`] where the elements cannot be addressed.
    pub fn row_major(shape: &[usize]) -> Result<Self> {
        len(shape)?;
        let mut strides = vec![0; shape.len()];
        let mut step = Some(1usize);
        for (axis, &extent) in shape.iter().enumerate().rev() {
            // An empty array can have huge extents on its other axes; its strides are not used.
            strides[axis] = step.and_then(|x| isize::try_from(x).ok()).unwrap_or(0);
            step = step.and_then(|x| x.checked_mul(extent));
        }
        Ok(NdLayout { shape: shape.to_vec(), offset: 0, strides })
    }

    /// A contiguous layout in Fortran order: the first axis is the fastest.
    ///
    /// # Errors
    /// As for [`row_major`](Self::row_major).
    pub fn column_major(shape: &[usize]) -> Result<Self> {
        let reversed: Vec<usize> = shape.iter().rev().copied().collect();
        let mut layout = Self::row_major(&reversed)?;
        layout.shape.reverse();
        layout.strides.reverse();
        Ok(layout)
    }

    /// The layout with the last two axes swapped; unchanged with fewer than two axes.
    #[must_use]
    pub fn transposed(mut self) -> Self {
        if let ([.., m, n], [.., row, col]) = (&mut *self.shape, &mut *self.strides) {
            std::mem::swap(m, n);
            std::mem::swap(row, col);
        }
        self
    }

    /// The layout broadcast to a larger shape, as in NumPy; `None` where the shapes are
    /// incompatible.
    ///
    /// The axes are aligned at the last one. Extents must be equal, 1 or missing; a broadcast axis
    /// has stride 0.
    pub fn broadcast(&self, shape: &[usize]) -> Option<Self> {
        let missing = shape.len().checked_sub(self.shape.len())?;
        let stride = |(axis, &extent): (usize, &usize)| match axis.checked_sub(missing) {
            None => Some(0),
            // The stride of an axis with extent 1 is not used.
            Some(own) if self.shape[own] == extent && extent != 1 => Some(self.strides[own]),
            Some(own) => (self.shape[own] == 1).then_some(0),
        };
        let strides = shape.iter().enumerate().map(stride).collect::<Option<_>>()?;
        Some(NdLayout { shape: shape.to_vec(), strides, offset: self.offset })
    }

    /// The position of an element; `None` out of bounds. Valid only for a checked layout.
    pub fn at(&self, index: &[usize]) -> Option<usize> {
        let in_bounds = index.len() == self.shape.len() && index.iter().zip(&self.shape).all(|(i, extent)| i < extent);
        let steps = index.iter().zip(&self.strides).map(|(&i, &stride)| (i as isize).wrapping_mul(stride));
        in_bounds.then(|| steps.fold(self.offset, usize::wrapping_add_signed))
    }

    /// The first and last position in use; `None` for an empty array.
    ///
    /// # Errors
    /// [`Error::Layout`] where the numbers of axes and strides differ, or a position overflows or
    /// is negative.
    pub fn span(&self) -> Result<Option<(usize, usize)>> {
        if self.shape.len() != self.strides.len() {
            let (axes, strides) = (self.shape.len(), self.strides.len());
            return Err(Error::Layout(format!("a layout of {axes} axes needs {axes} strides, but has {strides}")));
        }
        if self.is_empty() {
            return Ok(None);
        }
        span(self.offset, self.axes()).map(Some).ok_or_else(|| {
            Error::Layout(format!("{} has a position that is negative or overflows", self.description()))
        })
    }

    /// Checks that all elements fit in `len` elements of memory, and that they can be addressed.
    ///
    /// # Errors
    /// [`Error::Layout`] with the required length, [`Error::Shape`] where there are too many
    /// elements.
    pub fn check(&self, len: usize) -> Result<()> {
        self.len()?;
        match self.span()? {
            Some((_, last)) if last >= len => {
                let needed = last + 1;
                Err(Error::Layout(format!("{} needs {needed} elements; the memory has {len}", self.description())))
            }
            _ => Ok(()),
        }
    }

    /// Checks that no two indices share an element, as an output requires.
    ///
    /// See [`Layout::check_distinct`](crate::Layout::check_distinct).
    ///
    /// # Errors
    /// [`Error::Layout`] where two indices share an element or may do so.
    pub fn check_distinct(&self) -> Result<()> {
        if self.is_empty() || distinct(self.axes()) {
            return Ok(());
        }
        Err(Error::Layout(format!(
            "an output of shape {} with strides {:?} has overlapping elements; an output needs distinct elements",
            display(&self.shape),
            self.strides
        )))
    }

    fn axes(&self) -> impl Iterator<Item = (usize, isize)> {
        self.shape.iter().copied().zip(self.strides.iter().copied())
    }

    fn description(&self) -> String {
        format!("a {} view at offset {} with strides {:?}", display(&self.shape), self.offset, self.strides)
    }

    /// The index of the element at a position, if one exists; for layouts without overlaps.
    #[doc(hidden)]
    pub fn index(&self, position: usize) -> Option<Vec<usize>> {
        let mut axes: Vec<usize> = (0..self.shape.len()).collect();
        axes.sort_by_key(|&axis| std::cmp::Reverse(self.strides[axis].unsigned_abs()));
        // From the position of the lowest element, each axis takes as many steps as possible, the
        // longest steps first.
        let mut rest = position.checked_sub(self.span().ok()??.0)?;
        let mut index = vec![0; self.shape.len()];
        for axis in axes.into_iter().filter(|&axis| self.shape[axis] > 1) {
            let (step, last) = (self.strides[axis].unsigned_abs(), self.shape[axis] - 1);
            let coordinate = (rest / step.max(1)).min(last);
            rest -= coordinate * step;
            index[axis] = if self.strides[axis] < 0 { last - coordinate } else { coordinate };
        }
        (rest == 0).then_some(index)
    }

    /// The number of elements.
    ///
    /// # Errors
    /// [`Error::Shape`] where the number cannot be addressed.
    pub fn len(&self) -> Result<usize> {
        len(&self.shape)
    }

    /// Whether the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }
}

/// The number of elements of a shape: 1 without axes, 0 where one extent is 0.
///
/// # Errors
/// [`Error::Shape`] where the number cannot be addressed.
pub fn len(shape: &[usize]) -> Result<usize> {
    host::count(shape).ok_or_else(|| {
        Error::Shape(format!("an array of shape {} has more elements than can be addressed (2⁶³ − 1)", display(shape)))
    })
}

/// A shape as in messages: `2×3×4`, and `()` for a scalar.
pub fn display(shape: &[usize]) -> String {
    if shape.is_empty() {
        return "()".into();
    }
    shape.iter().map(usize::to_string).collect::<Vec<_>>().join("×")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn index_is_the_inverse_of_at() {
        let layout = NdLayout { shape: vec![2, 3, 1, 4], offset: 20, strides: vec![100, -4, 7, 1] };
        for index in [[0, 0, 0, 0], [1, 2, 0, 3], [0, 2, 0, 1], [1, 0, 0, 2]] {
            let position = layout.at(&index).unwrap();
            assert_eq!(layout.index(position), Some(index.to_vec()));
        }
        assert_eq!((layout.index(11), layout.index(24)), (None, None));
    }

    #[test]
    fn contiguous_layouts_have_packed_strides() {
        let c = NdLayout::row_major(&[2, 3, 4]).unwrap();
        assert_eq!((c.strides.as_slice(), c.len().unwrap()), (&[12isize, 4, 1][..], 24));
        assert_eq!(NdLayout::column_major(&[2, 3, 4]).unwrap().strides, [1, 2, 6]);
        assert_eq!(NdLayout::row_major(&[]).unwrap().len().unwrap(), 1);
        assert_eq!(NdLayout::row_major(&[usize::MAX, 0, usize::MAX]).unwrap().len().unwrap(), 0);
        assert!(NdLayout::row_major(&[1 << 40, 1 << 40]).is_err());
    }

    #[test]
    fn layout_beyond_its_memory_is_rejected() {
        let layout = |offset, strides: &[isize]| NdLayout { shape: vec![2, 3, 4], offset, strides: strides.to_vec() };
        assert!(layout(0, &[12, 4, 1]).check(24).is_ok());
        assert!(layout(1, &[12, 4, 1]).check(24).is_err());
        assert!(layout(23, &[-12, -4, -1]).check(24).is_ok());
        assert!(layout(22, &[-12, -4, -1]).check(24).is_err());
        assert!(layout(0, &[isize::MAX, isize::MAX, 1]).check(24).is_err());
        assert!(layout(0, &[4, 1]).check(24).is_err());
        assert!(layout(0, &[0, 0, 0]).check(1).is_ok());
        assert!(layout(0, &[0, 4, 1]).check_distinct().is_err());
        assert!(layout(0, &[1, 2, 6]).check_distinct().is_ok());
    }
}
