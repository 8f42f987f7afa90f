//! Arrays of any number of dimensions, as `numpy.matmul` takes them: stacks of matrices in the last two, vectors where there is one.
//!
//! It knows layouts and products, not engines.

use crate::error::{Error, Result};

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
    if shape.contains(&0) {
        return Ok(0);
    }
    let len = shape.iter().try_fold(1usize, |len, &extent| len.checked_mul(extent));
    len.filter(|&x| isize::try_from(x).is_ok())
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
    fn dense_layouts_have_no_gap() {
        let c = NdLayout::row_major(&[2, 3, 4]).unwrap();
        assert_eq!((c.strides.as_slice(), c.len().unwrap()), (&[12isize, 4, 1][..], 24));
        assert_eq!(NdLayout::column_major(&[2, 3, 4]).unwrap().strides, [1, 2, 6]);
        assert_eq!(NdLayout::row_major(&[]).unwrap().len().unwrap(), 1);
        assert_eq!(NdLayout::row_major(&[usize::MAX, 0, usize::MAX]).unwrap().len().unwrap(), 0);
        assert!(NdLayout::row_major(&[1 << 40, 1 << 40]).is_err());
    }
}
