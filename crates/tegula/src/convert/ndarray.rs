//! Conversions of owned matrices from and to arrays of two versions of `ndarray`.

/// Implements the conversions for one version.
macro_rules! conversions {
    ($ndarray:ident as $module:ident) => {
        mod $module {
            use ::$ndarray::{Array2, Array3, ArrayView2, ArrayView3, ArrayViewMut2, ArrayViewMut3, ShapeError};

            use crate::element::Scalar;
            use crate::error::{Error, Result};
            use crate::matrix::{Matrix, Shape};

            /// Reuses the memory.
            impl<T: Scalar> TryFrom<Matrix<T>> for Array3<T> {
                type Error = Error;
                fn try_from(matrix: Matrix<T>) -> Result<Self> {
                    let shape = matrix.shape();
                    Array3::from_shape_vec(three(shape), matrix.into_vec()).map_err(|e| refused(shape, e))
                }
            }

            /// Reuses the memory.
            impl<T: Scalar> TryFrom<Matrix<T>> for Array2<T> {
                type Error = Error;
                fn try_from(matrix: Matrix<T>) -> Result<Self> {
                    let shape = matrix.shape();
                    Array2::from_shape_vec(two(shape)?, matrix.into_vec()).map_err(|e| refused(shape, e))
                }
            }

            impl<'a, T: Scalar> TryFrom<&'a Matrix<T>> for ArrayView3<'a, T> {
                type Error = Error;
                fn try_from(matrix: &'a Matrix<T>) -> Result<Self> {
                    let shape = matrix.shape();
                    ArrayView3::from_shape(three(shape), matrix.as_slice()).map_err(|e| refused(shape, e))
                }
            }

            impl<'a, T: Scalar> TryFrom<&'a Matrix<T>> for ArrayView2<'a, T> {
                type Error = Error;
                fn try_from(matrix: &'a Matrix<T>) -> Result<Self> {
                    let shape = matrix.shape();
                    ArrayView2::from_shape(two(shape)?, matrix.as_slice()).map_err(|e| refused(shape, e))
                }
            }

            impl<'a, T: Scalar> TryFrom<&'a mut Matrix<T>> for ArrayViewMut3<'a, T> {
                type Error = Error;
                fn try_from(matrix: &'a mut Matrix<T>) -> Result<Self> {
                    let shape = matrix.shape();
                    ArrayViewMut3::from_shape(three(shape), matrix.as_mut_slice()).map_err(|e| refused(shape, e))
                }
            }

            impl<'a, T: Scalar> TryFrom<&'a mut Matrix<T>> for ArrayViewMut2<'a, T> {
                type Error = Error;
                fn try_from(matrix: &'a mut Matrix<T>) -> Result<Self> {
                    let shape = matrix.shape();
                    ArrayViewMut2::from_shape(two(shape)?, matrix.as_mut_slice()).map_err(|e| refused(shape, e))
                }
            }

            /// Reuses the memory. Elements of an array that was sliced in place move to its start.
            impl<T: Scalar> TryFrom<Array3<T>> for Matrix<T> {
                type Error = Error;
                fn try_from(array: Array3<T>) -> Result<Self> {
                    let (batches, rows, cols) = array.dim();
                    let shape = Shape { batches, rows, cols };
                    standard(shape, array.is_standard_layout())?;
                    let (mut data, start) = array.into_raw_vec_and_offset();
                    data.drain(..start.unwrap_or(0));
                    data.truncate(shape.len()?);
                    Matrix::from_shape_vec(shape, data)
                }
            }

            /// Reuses the memory. Elements of an array that was sliced in place move to its start.
            impl<T: Scalar> TryFrom<Array2<T>> for Matrix<T> {
                type Error = Error;
                fn try_from(array: Array2<T>) -> Result<Self> {
                    // A new axis at the front keeps the standard layout.
                    array.insert_axis(::$ndarray::Axis(0)).try_into()
                }
            }

            fn three(shape: Shape) -> (usize, usize, usize) {
                (shape.batches, shape.rows, shape.cols)
            }

            fn two(shape: Shape) -> Result<(usize, usize)> {
                match shape.batches {
                    1 => Ok((shape.rows, shape.cols)),
                    _ => Err(Error::Shape(format!("{shape} is a batch; convert it to an array of three axes"))),
                }
            }

            fn standard(shape: Shape, is_standard: bool) -> Result<()> {
                if is_standard {
                    return Ok(());
                }
                let why = "is not in standard layout; use a view, or `as_standard_layout().into_owned()`";
                Err(Error::Layout(format!("the {shape} array {why}")))
            }

            fn refused(shape: Shape, why: ShapeError) -> Error {
                Error::Shape(format!("{shape} does not convert to an array: {why}"))
            }

            #[cfg(test)]
            mod tests {
                use super::*;
                use crate::matrix::View;
                use ::$ndarray::{Array, Axis, s};

                fn counting() -> Array3<i32> {
                    Array::from_shape_fn((2, 4, 5), |(b, r, c)| (100 * b + 10 * r + c) as i32)
                }

                #[test]
                fn owned_conversions_reuse_memory() {
                    let a = counting();
                    let address = a.as_ptr();
                    let mut m = Matrix::try_from(a.clone()).unwrap();
                    assert_eq!(m.as_slice(), a.as_slice().unwrap());
                    assert_eq!(ArrayView3::try_from(&m).unwrap(), a);
                    ArrayViewMut3::try_from(&mut m).unwrap()[[1, 3, 4]] = 7;
                    assert_eq!(m.view().get(1, 3, 4), Some(7));
                    assert!(matches!(ArrayView2::try_from(&m), Err(Error::Shape(_))));
                    assert!(matches!(ArrayViewMut2::try_from(&mut m), Err(Error::Shape(_))));
                    assert!(matches!(Array2::try_from(m), Err(Error::Shape(_))));

                    let part = a.slice_move(s![1.., 1..3, ..]).index_axis_move(Axis(0), 0);
                    let inside = part.clone();
                    let moved = Matrix::try_from(part).unwrap();
                    assert_eq!((moved.as_slice(), moved.as_slice().as_ptr()), (inside.as_slice().unwrap(), address));
                    assert_eq!(Array2::try_from(moved).unwrap(), inside);
                    let transposed = inside.reversed_axes();
                    assert!(matches!(Matrix::try_from(transposed.clone()), Err(Error::Layout(_))));
                    assert_eq!(View::from(&transposed).layout().strides, [0, 1, 5]);

                    let vast = Matrix::<i32>::zeros_of_shape(Shape { batches: 0, rows: usize::MAX, cols: 2 }).unwrap();
                    assert!(matches!(Array3::try_from(vast), Err(Error::Shape(_))));
                    let none = Matrix::try_from(Array2::<i32>::zeros((0, 3))).unwrap();
                    assert_eq!(none.shape(), Shape::new(0, 3));
                }
            }
        }
    };
}

#[cfg(feature = "ndarray")]
conversions!(ndarray as current);
#[cfg(feature = "ndarray-016")]
conversions!(ndarray_016 as older);
