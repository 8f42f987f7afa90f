//! Where the elements of an N-dimensional array lie. It knows numbers, not memory.

use crate::error::{Error, Result};
use crate::host;
use crate::matrix::{distinct, span};

/// Where each element of an N-dimensional array lies: element (i₀, i₁, …) is `offset + i₀·strides[0] + i₁·strides[1] + …` elements
/// from the start of its memory. Strides may be negative; in inputs they may be zero (broadcast).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct NdLayout {
    /// Extents, outermost first; none for a single number.
    pub shape: Vec<usize>,
    /// Where the first element lies, in elements.
    pub offset: usize,
    /// Distances along each axis, in elements.
    pub strides: Vec<isize>,
}

impl NdLayout {
    /// The last axis runs fastest, with no gap: C order.
    ///
    /// # Errors
    /// [`Error::Shape`] where the elements cannot be addressed.
    pub fn row_major(shape: &[usize]) -> Result<Self> {
        len(shape)?;
        let mut strides = vec![0; shape.len()];
        let mut step = Some(1usize);
        for (axis, &extent) in shape.iter().enumerate().rev() {
            // An empty array may have huge extents on its other axes; its strides are never used.
            strides[axis] = step.and_then(|x| isize::try_from(x).ok()).unwrap_or(0);
            step = step.and_then(|x| x.checked_mul(extent));
        }
        Ok(NdLayout { shape: shape.to_vec(), offset: 0, strides })
    }

    /// The first axis runs fastest, with no gap: Fortran order.
    ///
    /// # Errors
    /// As [`row_major`](Self::row_major).
    pub fn column_major(shape: &[usize]) -> Result<Self> {
        let backwards: Vec<usize> = shape.iter().rev().copied().collect();
        let mut layout = Self::row_major(&backwards)?;
        layout.shape.reverse();
        layout.strides.reverse();
        Ok(layout)
    }

    /// The same elements with the last two axes exchanged; with fewer than two axes, nothing changes.
    #[must_use]
    pub fn transposed(mut self) -> Self {
        if let ([.., m, n], [.., down, along]) = (&mut *self.shape, &mut *self.strides) {
            std::mem::swap(m, n);
            std::mem::swap(down, along);
        }
        self
    }

    /// The array repeated to a larger shape: aligned at the last axis, extents agree, are 1 or are missing; what is repeated has stride 0.
    /// `None` where they do not.
    pub fn broadcast(&self, shape: &[usize]) -> Option<Self> {
        let missing = shape.len().checked_sub(self.shape.len())?;
        let stride = |(axis, &extent): (usize, &usize)| match axis.checked_sub(missing) {
            None => Some(0),
            // A step along an axis of one place means nothing.
            Some(own) if self.shape[own] == extent && extent != 1 => Some(self.strides[own]),
            Some(own) => (self.shape[own] == 1).then_some(0),
        };
        let strides = shape.iter().enumerate().map(stride).collect::<Option<_>>()?;
        Some(NdLayout { shape: shape.to_vec(), strides, offset: self.offset })
    }

    /// Position of an element, from the start of the memory; `None` outside the shape. Only meaningful for a checked layout.
    pub fn at(&self, index: &[usize]) -> Option<usize> {
        let inside = index.len() == self.shape.len() && index.iter().zip(&self.shape).all(|(i, extent)| i < extent);
        let moves = index.iter().zip(&self.strides).map(|(&i, &stride)| (i as isize).wrapping_mul(stride));
        inside.then(|| moves.fold(self.offset, usize::wrapping_add_signed))
    }

    /// First and last position used, or `None` for an empty array.
    ///
    /// # Errors
    /// [`Error::Layout`] where there is not one stride an axis, or a position overflows or lies before the start of the memory.
    pub fn span(&self) -> Result<Option<(usize, usize)>> {
        if self.shape.len() != self.strides.len() {
            let (axes, strides) = (self.shape.len(), self.strides.len());
            return Err(Error::Layout(format!("{axes} axes need as many strides, there are {strides}")));
        }
        if self.is_empty() {
            return Ok(None);
        }
        span(self.offset, self.axes()).map(Some).ok_or_else(|| {
            Error::Layout(format!("{} reaches outside the address space of its memory", self.described()))
        })
    }

    /// Checks that every element lies within `len` elements of memory, and that their number can be addressed.
    ///
    /// # Errors
    /// [`Error::Layout`] saying how many there would have to be, [`Error::Shape`] where there are too many.
    pub fn check(&self, len: usize) -> Result<()> {
        self.len()?;
        match self.span()? {
            Some((_, last)) if last >= len => {
                let needed = last + 1;
                Err(Error::Layout(format!("{} needs {needed} elements, the memory holds {len}", self.described())))
            }
            _ => Ok(()),
        }
    }

    /// Checks that no two indices share an element, as an output needs: see [`Layout::check_distinct`](crate::Layout::check_distinct).
    ///
    /// # Errors
    /// [`Error::Layout`] where two indices share an element or may do so.
    pub fn check_distinct(&self) -> Result<()> {
        if self.is_empty() || distinct(self.axes()) {
            return Ok(());
        }
        Err(Error::Layout(format!(
            "an output of {} with strides {:?} has elements that share memory; give each its own",
            display(&self.shape),
            self.strides
        )))
    }

    fn axes(&self) -> impl Iterator<Item = (usize, isize)> {
        self.shape.iter().copied().zip(self.strides.iter().copied())
    }

    fn described(&self) -> String {
        format!("a {} view at offset {} with strides {:?}", display(&self.shape), self.offset, self.strides)
    }

    /// The index of the element at a position, if there is one and no two elements share memory.
    #[doc(hidden)]
    pub fn index(&self, position: usize) -> Option<Vec<usize>> {
        let mut axes: Vec<usize> = (0..self.shape.len()).collect();
        axes.sort_by_key(|&axis| std::cmp::Reverse(self.strides[axis].unsigned_abs()));
        // From the position of the lowest element, each axis goes as far as it can, the longest steps first.
        let mut rest = position.checked_sub(self.span().ok()??.0)?;
        let mut index = vec![0; self.shape.len()];
        for axis in axes.into_iter().filter(|&axis| self.shape[axis] > 1) {
            let (step, last) = (self.strides[axis].unsigned_abs(), self.shape[axis] - 1);
            let place = (rest / step.max(1)).min(last);
            rest -= place * step;
            index[axis] = if self.strides[axis] < 0 { last - place } else { place };
        }
        (rest == 0).then_some(index)
    }

    /// Number of elements.
    ///
    /// # Errors
    /// [`Error::Shape`] where the number cannot be addressed.
    pub fn len(&self) -> Result<usize> {
        len(&self.shape)
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.shape.contains(&0)
    }
}

/// Number of elements of a shape: 1 where it has no axis, 0 where an extent is 0, however large the others are.
///
/// # Errors
/// [`Error::Shape`] where the number cannot be addressed.
pub fn len(shape: &[usize]) -> Result<usize> {
    host::count(shape)
        .ok_or_else(|| Error::Shape(format!("an array of {} has more elements than can be addressed", display(shape))))
}

/// A shape as messages name it: `2×3×4`, and `()` for a single number.
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
    fn positions_have_indices() {
        let layout = NdLayout { shape: vec![2, 3, 1, 4], offset: 20, strides: vec![100, -4, 7, 1] };
        for index in [[0, 0, 0, 0], [1, 2, 0, 3], [0, 2, 0, 1], [1, 0, 0, 2]] {
            let position = layout.at(&index).unwrap();
            assert_eq!(layout.index(position), Some(index.to_vec()));
        }
        assert_eq!((layout.index(11), layout.index(24)), (None, None));
    }

    #[test]
    fn dense_layouts_have_no_gap() {
        let c = NdLayout::row_major(&[2, 3, 4]).unwrap();
        assert_eq!((c.strides.as_slice(), c.len().unwrap()), (&[12isize, 4, 1][..], 24));
        assert_eq!(NdLayout::column_major(&[2, 3, 4]).unwrap().strides, [1, 2, 6]);
        assert_eq!(NdLayout::row_major(&[]).unwrap().len().unwrap(), 1);
        assert_eq!(NdLayout::row_major(&[usize::MAX, 0, usize::MAX]).unwrap().len().unwrap(), 0);
        assert!(NdLayout::row_major(&[1 << 40, 1 << 40]).is_err());
    }

    #[test]
    fn layouts_are_checked_against_their_memory() {
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
