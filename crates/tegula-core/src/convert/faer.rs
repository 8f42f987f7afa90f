//! Conversions from and to views of `faer`, which have a row and a column stride.

use std::ptr::NonNull;

use faer::{Mat, MatMut, MatRef, Stride};

use crate::element::Scalar;
use crate::error::{Error, Result};
use crate::matrix::{Layout, Memory, MemoryMut, Shape, View, ViewMut};

impl<'a, T: Scalar, R: Stride, C: Stride> From<MatRef<'a, T, usize, usize, R, C>> for View<'a, T> {
    fn from(mat: MatRef<'a, T, usize, usize, R, C>) -> Self {
        let strides = [0, mat.row_stride().element_stride(), mat.col_stride().element_stride()];
        // SAFETY: the elements are in one allocation, initialized, and borrowed for reading for
        // `'a`.
        unsafe { View::from_raw_parts(mat.as_ptr(), Shape::new(mat.nrows(), mat.ncols()), strides) }
    }
}

impl<'a, T: Scalar, R: Stride, C: Stride> From<MatMut<'a, T, usize, usize, R, C>> for ViewMut<'a, T> {
    fn from(mat: MatMut<'a, T, usize, usize, R, C>) -> Self {
        let strides = [0, mat.row_stride().element_stride(), mat.col_stride().element_stride()];
        // SAFETY: the elements are in one allocation, initialized, distinct, and mutably borrowed
        // for `'a` by this view, which is consumed.
        unsafe { ViewMut::from_raw_parts(mat.as_ptr_mut(), Shape::new(mat.nrows(), mat.ncols()), strides) }
    }
}

impl<'a, T: Scalar> From<&'a Mat<T>> for View<'a, T> {
    fn from(mat: &'a Mat<T>) -> Self {
        mat.as_ref().into()
    }
}

impl<'a, T: Scalar> From<&'a mut Mat<T>> for ViewMut<'a, T> {
    fn from(mat: &'a mut Mat<T>) -> Self {
        mat.as_mut().into()
    }
}

impl<'a, T: Scalar> TryFrom<View<'a, T>> for MatRef<'a, T> {
    type Error = Error;
    fn try_from(view: View<'a, T>) -> Result<Self> {
        let Memory::Host(memory) = view.memory() else { return Err(on_gpu()) };
        let layout = view.layout();
        let (start, Shape { rows, cols, .. }, [_, row, col]) = parts(memory.as_ptr().cast_mut(), &layout)?;
        // SAFETY: the elements of the view, from (0, 0) on, are borrowed for reading for `'a`.
        Ok(unsafe { MatRef::from_raw_parts(start, rows, cols, row, col) })
    }
}

impl<'a, T: Scalar> TryFrom<ViewMut<'a, T>> for MatMut<'a, T> {
    type Error = Error;
    fn try_from(view: ViewMut<'a, T>) -> Result<Self> {
        let layout = view.layout();
        let MemoryMut::Host(mut memory) = view.into_memory() else { return Err(on_gpu()) };
        let (start, Shape { rows, cols, .. }, [_, row, col]) = parts(memory.as_mut_ptr(), &layout)?;
        // SAFETY: the elements of the view, from (0, 0) on, are distinct and mutably borrowed for
        // `'a` by this view, which is consumed.
        Ok(unsafe { MatMut::from_raw_parts_mut(start, rows, cols, row, col) })
    }
}

/// The address of element (0, 0) of a single matrix, its shape, and its strides.
fn parts<T>(memory: *mut T, layout: &Layout) -> Result<(*mut T, Shape, [isize; 3])> {
    let Layout { shape, offset, strides } = *layout;
    if shape.batches != 1 {
        return Err(Error::Shape(format!("{shape} is a batch; faer takes one matrix: select it with `batches`")));
    }
    let start = if shape.is_empty() { NonNull::dangling().as_ptr() } else { memory.wrapping_add(offset) };
    Ok((start, shape, strides))
}

fn on_gpu() -> Error {
    Error::Layout("faer takes a matrix on the host, but this matrix is on a GPU; download it".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting() -> Mat<i32> {
        Mat::from_fn(4, 5, |r, c| (10 * r + c) as i32)
    }

    #[test]
    fn view_of_a_faer_matrix_has_the_same_elements() {
        let mat = counting();
        for part in [
            mat.as_ref(),
            mat.transpose(),
            mat.subrows(1, 2).reverse_rows(),
            mat.subcols(2, 3).reverse_rows_and_cols(),
            mat.subcols(5, 0),
        ] {
            let view = View::from(part);
            assert_eq!((view.shape().rows, view.shape().cols), part.shape());
            for (row, col) in (0..part.nrows()).flat_map(|row| (0..part.ncols()).map(move |col| (row, col))) {
                assert_eq!(view.get(0, row, col), Some(part[(row, col)]));
            }
            assert_eq!(MatRef::try_from(view).unwrap(), part);
        }
        assert_eq!(View::from(&mat).shape(), Shape::new(4, 5));
    }

    #[test]
    fn interleaved_mutable_views_write_disjoint_elements() {
        let mut mat = counting();
        let (above, below) = mat.as_mut().split_at_row_mut(1);
        let (mut above, mut below) = (ViewMut::from(above), ViewMut::from(below));
        std::thread::scope(|scope| {
            scope.spawn(|| above.copy_from_slice(0, &[-1; 5]).unwrap());
            scope.spawn(|| below.copy_from_slice(10, &[-2; 5]).unwrap());
        });
        let expected = |r, c| [-1, 10 + c, 20 + c, -2][r];
        assert_eq!(mat, Mat::from_fn(4, 5, |r, c| expected(r, c as i32)));
        *ViewMut::from(&mut mat).get_mut(0, 3, 2).unwrap() = 0;
        assert_eq!(mat[(3, 2)], 0);
    }

    #[test]
    fn view_converts_to_a_faer_matrix() {
        let mut data = [0, 1, 10, 11, 20, 21];
        let view = ViewMut::new(&mut data, 3, 2).unwrap();
        let mut part = MatMut::try_from(view.flip_rows().cols(1..).unwrap()).unwrap();
        part[(2, 0)] = 7;
        assert_eq!(data, [0, 7, 10, 11, 20, 21]);
        let batch = Layout::row_major(Shape { batches: 2, rows: 3, cols: 1 }).unwrap();
        assert!(matches!(MatRef::try_from(View::strided(&data, batch).unwrap()), Err(Error::Shape(_))));
    }
}
