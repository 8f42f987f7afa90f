//! `ndarray`, in the two versions that are in use.

/// The conversions of one version.
macro_rules! conversions {
    ($ndarray:ident as $module:ident) => {
        mod $module {
            use ::$ndarray::{Array2, Array3, ArrayBase, ArrayView2, ArrayView3, ArrayViewMut2, ArrayViewMut3};
            use ::$ndarray::{Data, DataMut, Ix2, Ix3, ShapeError};

            use crate::element::Scalar;
            use crate::error::{Error, Result};
            use crate::matrix::{Matrix, Shape, View, ViewMut};

            impl<'a, T: Scalar> From<ArrayView2<'a, T>> for View<'a, T> {
                fn from(array: ArrayView2<'a, T>) -> Self {
                    let (rows, cols) = array.dim();
                    let strides = [0, array.strides()[0], array.strides()[1]];
                    // SAFETY: the array's elements lie in one allocation, initialised and borrowed to be read for `'a`.
                    unsafe { View::from_raw_parts(array.as_ptr(), Shape::new(rows, cols), strides) }
                }
            }

            impl<'a, T: Scalar> From<ArrayView3<'a, T>> for View<'a, T> {
                fn from(array: ArrayView3<'a, T>) -> Self {
                    let (batches, rows, cols) = array.dim();
                    let strides = [0, 1, 2].map(|axis| array.strides()[axis]);
                    // SAFETY: as above.
                    unsafe { View::from_raw_parts(array.as_ptr(), Shape { batches, rows, cols }, strides) }
                }
            }

            impl<'a, T: Scalar> From<ArrayViewMut2<'a, T>> for ViewMut<'a, T> {
                fn from(mut array: ArrayViewMut2<'a, T>) -> Self {
                    let (rows, cols) = array.dim();
                    let strides = [0, array.strides()[0], array.strides()[1]];
                    // SAFETY: the array's elements lie in one allocation, initialised, distinct, and borrowed for `'a` by this
                    // view alone, which ends here.
                    unsafe { ViewMut::from_raw_parts(array.as_mut_ptr(), Shape::new(rows, cols), strides) }
                }
            }

            impl<'a, T: Scalar> From<ArrayViewMut3<'a, T>> for ViewMut<'a, T> {
                fn from(mut array: ArrayViewMut3<'a, T>) -> Self {
                    let (batches, rows, cols) = array.dim();
                    let strides = [0, 1, 2].map(|axis| array.strides()[axis]);
                    // SAFETY: as above.
                    unsafe { ViewMut::from_raw_parts(array.as_mut_ptr(), Shape { batches, rows, cols }, strides) }
                }
            }

            impl<'a, T: Scalar, S: Data<Elem = T>> From<&'a ArrayBase<S, Ix2>> for View<'a, T> {
                fn from(array: &'a ArrayBase<S, Ix2>) -> Self {
                    array.view().into()
                }
            }

            impl<'a, T: Scalar, S: Data<Elem = T>> From<&'a ArrayBase<S, Ix3>> for View<'a, T> {
                fn from(array: &'a ArrayBase<S, Ix3>) -> Self {
                    array.view().into()
                }
            }

            impl<'a, T: Scalar, S: DataMut<Elem = T>> From<&'a mut ArrayBase<S, Ix2>> for ViewMut<'a, T> {
                fn from(array: &'a mut ArrayBase<S, Ix2>) -> Self {
                    array.view_mut().into()
                }
            }

            impl<'a, T: Scalar, S: DataMut<Elem = T>> From<&'a mut ArrayBase<S, Ix3>> for ViewMut<'a, T> {
                fn from(array: &'a mut ArrayBase<S, Ix3>) -> Self {
                    array.view_mut().into()
                }
            }

            /// The memory is handed over.
            impl<T: Scalar> TryFrom<Matrix<T>> for Array3<T> {
                type Error = Error;
                fn try_from(matrix: Matrix<T>) -> Result<Self> {
                    let shape = matrix.shape();
                    Array3::from_shape_vec(three(shape), matrix.into_vec()).map_err(|e| refused(shape, e))
                }
            }

            /// The memory is handed over.
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

            /// The memory is handed over. (Of an array that was sliced in place, the elements are moved to its start.)
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

            /// The memory is handed over. (Of an array that was sliced in place, the elements are moved to its start.)
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
                    _ => Err(Error::Shape(format!("{shape} is a batch; it makes an array of three axes, not of two"))),
                }
            }

            fn standard(shape: Shape, is_standard: bool) -> Result<()> {
                if is_standard {
                    return Ok(());
                }
                let why = "is not laid out row after row; take a view of it, or `as_standard_layout().into_owned()`";
                Err(Error::Layout(format!("the {shape} array {why}")))
            }

            fn refused(shape: Shape, why: ShapeError) -> Error {
                Error::Shape(format!("{shape} is no array: {why}"))
            }

            #[cfg(test)]
            mod tests {
                use super::*;
                use ::$ndarray::{Array, Axis, arr2, s};

                fn counting() -> Array3<i32> {
                    Array::from_shape_fn((2, 4, 5), |(b, r, c)| (100 * b + 10 * r + c) as i32)
                }

                fn check<'a>(view: View<'a, i32>, array: ArrayView3<'a, i32>) {
                    assert_eq!(
                        view.shape(),
                        Shape { batches: array.dim().0, rows: array.dim().1, cols: array.dim().2 }
                    );
                    let elements: Vec<i32> = array.iter().copied().collect();
                    assert_eq!(Matrix::from_view(view).unwrap().as_slice(), elements);
                }

                #[test]
                fn views_see_what_the_array_sees() {
            let a = counting();
                    check((&a).into(), a.view());
                    for view in [
                        a.slice(s![..;-1, 1..;2, ..;-2]),
                        a.slice(s![1..1, .., ..]),
                        a.view().reversed_axes(),
                        a.view().permuted_axes([1, 0, 2]),
                        a.slice(s![.., 1..2, ..]).broadcast((2, 7, 5)).unwrap().reborrow(),
                    ] {
                        check(view.into(), view);
                    }
                    let row = a.slice(s![1, 2, 1..4]);
                    let repeated = row.broadcast((6, 3)).unwrap();
                    let view = View::from(repeated);
                    assert_eq!(view.layout().strides, [0, 0, 1]);
                    check(view, repeated.insert_axis(Axis(0)));
                    check((&a.index_axis(Axis(0), 1)).into(), a.slice(s![1..2, .., ..]));
                    let backwards = a.slice(s![1, ..;-1, ..;-3]);
                    check(backwards.into(), backwards.insert_axis(Axis(0)));
                }

                #[test]
        fn interleaved_parts_are_written_on_two_threads() {
                    let mut a = counting();
                    {
                        let (even, odd) = a.multi_slice_mut((s![.., .., ..;2], s![0, ..;-1, 1..;2]));
                        let (mut even, mut odd) = (ViewMut::from(even), ViewMut::from(odd));
                        std::thread::scope(|scope| {
                            scope.spawn(|| even.copy_from_slice(0, &[-1; 24]).unwrap());
                            scope.spawn(|| odd.copy_from_slice(0, &[1, 2, 3, 4, 5, 6, 7, 8]).unwrap());
                        });
                    }
                    let first = arr2(&[[-1, 7, -1, 8, -1], [-1, 5, -1, 6, -1], [-1, 3, -1, 4, -1], [-1, 1, -1, 2, -1]]);
                    assert_eq!(a.index_axis(Axis(0), 0), first);
                    assert_eq!(a[[1, 2, 3]], 123);
                    *ViewMut::from(&mut a).get_mut(1, 0, 4).unwrap() = 9;
                    assert_eq!(a[[1, 0, 4]], 9);
                }

                #[test]
                fn owned_ones_keep_their_memory() {
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
                    let turned = inside.reversed_axes();
                    assert!(matches!(Matrix::try_from(turned.clone()), Err(Error::Layout(_))));
                    assert_eq!(View::from(&turned).layout().strides, [0, 1, 5]);

                    let vast = Matrix::<i32>::zeros(Shape { batches: 0, rows: usize::MAX, cols: 2 }).unwrap();
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
