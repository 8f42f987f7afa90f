//! Conversions from array views of `ndarray`, for the two versions in use.

/// The conversions for one version of `ndarray`.
macro_rules! conversions {
    ($ndarray:ident as $module:ident) => {
        mod $module {
            use ::$ndarray::{ArrayBase, ArrayView2, ArrayView3, ArrayViewMut2, ArrayViewMut3, Data, DataMut, Ix2, Ix3};

            use crate::element::Scalar;
            use crate::matrix::{Shape, View, ViewMut};

            impl<'a, T: Scalar> From<ArrayView2<'a, T>> for View<'a, T> {
                fn from(array: ArrayView2<'a, T>) -> Self {
                    let (rows, cols) = array.dim();
                    let strides = [0, array.strides()[0], array.strides()[1]];
                    // SAFETY: the elements are in one allocation, initialized, and borrowed for
                    // reading for `'a`.
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
                    // SAFETY: the elements are in one allocation, initialized, distinct, and
                    // mutably borrowed for `'a` by this view, which is consumed.
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

            #[cfg(test)]
            mod tests {
                use super::*;
                use ::$ndarray::{Array, Array3, Axis, arr2, s};

                fn counting() -> Array3<i32> {
                    Array::from_shape_fn((2, 4, 5), |(b, r, c)| (100 * b + 10 * r + c) as i32)
                }

                fn check<'a>(view: View<'a, i32>, array: ArrayView3<'a, i32>) {
                    assert_eq!(
                        view.shape(),
                        Shape { batches: array.dim().0, rows: array.dim().1, cols: array.dim().2 }
                    );
                    let elements: Vec<i32> = array.iter().copied().collect();
                    let mut seen = vec![-1; elements.len()];
                    view.copy_to_slice(0, &mut seen).unwrap();
                    assert_eq!(seen, elements);
                }

                #[test]
                fn view_of_an_array_has_the_same_elements() {
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
                    let reversed = a.slice(s![1, ..;-1, ..;-3]);
                    check(reversed.into(), reversed.insert_axis(Axis(0)));
                }

                #[test]
        fn interleaved_mutable_views_are_written_by_two_threads() {
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
            }
        }
    };
}

#[cfg(feature = "ndarray")]
conversions!(ndarray as current);
#[cfg(feature = "ndarray-016")]
conversions!(ndarray_016 as older);
