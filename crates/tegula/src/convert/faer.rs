//! Conversions of owned matrices to `faer`.

use faer::{Mat, MatRef};

use crate::element::Scalar;
use crate::error::{Error, Result};
use crate::matrix::Matrix;

impl<'a, T: Scalar> TryFrom<&'a Matrix<T>> for MatRef<'a, T> {
    type Error = Error;
    fn try_from(matrix: &'a Matrix<T>) -> Result<Self> {
        matrix.view().try_into()
    }
}

/// Copies, since a `Mat` is column-major.
impl<T: Scalar> TryFrom<&Matrix<T>> for Mat<T> {
    type Error = Error;
    fn try_from(matrix: &Matrix<T>) -> Result<Self> {
        let from = MatRef::try_from(matrix)?;
        Ok(Mat::from_fn(from.nrows(), from.ncols(), |row, col| *from.get(row, col)))
    }
}

#[cfg(test)]
mod tests {
    use faer::MatMut;

    use super::*;
    use crate::matrix::Shape;

    #[test]
    fn matrices_convert_to_faer() {
        let mut m = Matrix::from_fn(3, 2, |r, c| (10 * r + c) as i32).unwrap();
        assert_eq!(Mat::try_from(&m).unwrap(), MatRef::try_from(&m).unwrap());
        let mut part = MatMut::try_from(m.view_mut().flip_rows().cols(1..).unwrap()).unwrap();
        part[(2, 0)] = 7;
        assert_eq!(m.as_slice(), [0, 7, 10, 11, 20, 21]);
        let batch = Matrix::<i32>::zeros_of_shape(Shape { batches: 2, rows: 1, cols: 1 }).unwrap();
        assert!(matches!(MatRef::try_from(&batch), Err(Error::Shape(_))));
    }
}
