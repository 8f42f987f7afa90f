//! Owned matrices, and strided views of matrices in host or GPU memory.

mod operators;

use std::fmt;
use std::ops::{Index, IndexMut};

use tegula_core::host;
pub use tegula_core::matrix::*;
use tegula_core::nd::NdView;

use crate::element::Scalar;
use crate::error::{Error, Result};

/// An owned matrix, row-major on the host.
///
/// A matrix has rows and columns, and `matrix[[row, col]]` is an element. `&a * &b` is the product,
/// as [`matmul`](crate::matmul) computes it.
///
/// ```
/// use tegula::Matrix;
///
/// let a = Matrix::from_vec(2, 3, vec![1i32, 2, 3, 4, 5, 6])?;
/// let mut b = Matrix::from_fn(3, 2, |row, col| (row + col) as i32)?;
/// b[[0, 0]] = 10;
/// let c = &a * &b;
/// assert_eq!((c.rows(), c.cols(), c[[0, 0]]), (2, 2, 18));
/// assert_eq!(c.to_string(), "[[18, 14],\n [57, 32]]");
/// # Ok::<(), tegula::Error>(())
/// ```
///
/// A batch of matrices of one shape is a `Matrix` as well. Its constructors take a [`Shape`], and
/// `batch[[i, row, col]]` is an element of matrix `i`.
///
/// ```
/// use tegula::{Matrix, Shape};
///
/// let shape = Shape { batches: 3, rows: 2, cols: 2 };
/// let a = Matrix::from_shape_fn(shape, |i, row, col| (100 * i + 10 * row + col) as f32)?;
/// let one = Matrix::from_vec(2, 2, vec![0f32, 1., 1., 0.])?;
/// let c = &a * &one; // one matrix B for the whole batch
/// assert_eq!((c.shape(), c[[2, 0, 1]]), (shape, 200.0));
/// # Ok::<(), tegula::Error>(())
/// ```
///
/// Operators cannot return an error, so they panic: `[]` where the index is out of range, and `*`
/// where `matmul` returns an error. All methods return the [`Error`].
#[derive(Clone, PartialEq)]
pub struct Matrix<T> {
    shape: Shape,
    data: Vec<T>,
}

impl<T: Scalar> Matrix<T> {
    /// A `rows`×`cols` matrix from its elements, row after row.
    ///
    /// # Errors
    /// [`Error::Layout`] where their number is not `rows`·`cols`.
    pub fn from_vec(rows: usize, cols: usize, data: Vec<T>) -> Result<Self> {
        Self::from_shape_vec(Shape::new(rows, cols), data)
    }

    /// A `rows`×`cols` matrix whose element (row, col) is `f(row, col)`.
    ///
    /// # Errors
    /// [`Error::Shape`] where the elements cannot be addressed, [`Error::OutOfMemory`] where they
    /// do not fit in memory.
    pub fn from_fn(rows: usize, cols: usize, mut f: impl FnMut(usize, usize) -> T) -> Result<Self> {
        Self::from_shape_fn(Shape::new(rows, cols), |_, row, col| f(row, col))
    }

    /// A `rows`×`cols` matrix of zeros.
    ///
    /// # Errors
    /// [`Error::Shape`] where the elements cannot be addressed, [`Error::OutOfMemory`] where they
    /// do not fit in memory.
    pub fn zeros(rows: usize, cols: usize) -> Result<Self> {
        Self::zeros_of_shape(Shape::new(rows, cols))
    }

    /// A batch of matrices from their elements, matrix after matrix, row after row.
    ///
    /// # Errors
    /// [`Error::Layout`] where their number does not fit the shape.
    pub fn from_shape_vec(shape: Shape, data: Vec<T>) -> Result<Self> {
        let len = shape.len()?;
        if len != data.len() {
            let why = format!("a {shape} matrix has {len} elements, the vector has {}", data.len());
            return Err(Error::Layout(why));
        }
        Ok(Matrix { shape, data })
    }

    /// A batch of matrices whose element (batch, row, col) is `f(batch, row, col)`.
    ///
    /// # Errors
    /// As [`Matrix::from_fn`].
    pub fn from_shape_fn(shape: Shape, mut f: impl FnMut(usize, usize, usize) -> T) -> Result<Self> {
        let mut matrix = Self::zeros_of_shape(shape)?;
        let mut next = matrix.data.iter_mut();
        // An empty shape may have any number of rows, too many to iterate.
        for batch in 0..if shape.is_empty() { 0 } else { shape.batches } {
            for row in 0..shape.rows {
                for (col, element) in next.by_ref().take(shape.cols).enumerate() {
                    *element = f(batch, row, col);
                }
            }
        }
        Ok(matrix)
    }

    /// A batch of matrices of zeros.
    ///
    /// # Errors
    /// As [`Matrix::zeros`].
    pub fn zeros_of_shape(shape: Shape) -> Result<Self> {
        let len = shape.len()?;
        let mut data = host::try_vec(&[len], || format!("a {shape} matrix of {}", T::TYPE))?;
        data.resize(len, T::ZERO);
        Ok(Matrix { shape, data })
    }

    /// A copy of the matrices of a view on the host.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where they do not fit in memory, [`Error::Layout`] where the view is
    /// in GPU memory.
    pub fn from_view(view: View<'_, T>) -> Result<Self> {
        let mut matrix = Self::zeros_of_shape(view.shape())?;
        view.copy_to_slice(0, &mut matrix.data)?;
        Ok(matrix)
    }

    /// Number of rows; of a batch, of each matrix.
    pub fn rows(&self) -> usize {
        self.shape.rows
    }

    /// Number of columns; of a batch, of each matrix.
    pub fn cols(&self) -> usize {
        self.shape.cols
    }

    /// Number of matrices in the batch: 1 for a single matrix.
    pub fn batches(&self) -> usize {
        self.shape.batches
    }

    /// The shape: batch, rows and columns.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The row-major layout of the elements.
    pub fn layout(&self) -> Layout {
        Layout::row_major(self.shape).expect("the shape was checked when the matrix was made")
    }

    /// A row of a single matrix; `None` out of range and for a batch.
    pub fn row(&self, row: usize) -> Option<&[T]> {
        if self.shape.batches == 1 { self.view().row(0, row) } else { None }
    }

    /// A read-only view of one matrix of a batch.
    ///
    /// # Errors
    /// [`Error::Layout`] where the batch has fewer matrices.
    pub fn matrix(&self, batch: usize) -> Result<View<'_, T>> {
        self.view().batches(batch..=batch)
    }

    /// The elements, matrix after matrix, row after row.
    pub fn as_slice(&self) -> &[T] {
        &self.data
    }

    /// The mutable elements, in the same order.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.data
    }

    /// The elements, without a copy.
    pub fn into_vec(self) -> Vec<T> {
        self.data
    }

    /// A read-only view.
    #[inline]
    pub fn view(&self) -> View<'_, T> {
        View::row_major(&self.data, self.shape).expect("the data is as long as the shape says")
    }

    /// A mutable view.
    #[inline]
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut::row_major(&mut self.data, self.shape).expect("the data is as long as the shape says")
    }

    #[track_caller]
    fn position(&self, batch: usize, row: usize, col: usize) -> usize {
        let Shape { batches, rows, cols } = self.shape;
        if batch < batches && row < rows && col < cols {
            return (batch * rows + row) * cols + col;
        }
        let index = if batches == 1 { format!("[{row}, {col}]") } else { format!("[{batch}, {row}, {col}]") };
        panic!("index {index} is out of range for a {} matrix", self.shape)
    }

    #[track_caller]
    fn position_of_one(&self, row: usize, col: usize) -> usize {
        if self.shape.batches != 1 {
            panic!("index [{row}, {col}] needs a batch: the matrix is {}; use [batch, row, col]", self.shape);
        }
        self.position(0, row, col)
    }
}

/// `matrix[[row, col]]`, for a single matrix.
///
/// # Panics
/// Where the index is out of range, and for a batch.
impl<T: Scalar> Index<[usize; 2]> for Matrix<T> {
    type Output = T;

    #[track_caller]
    fn index(&self, [row, col]: [usize; 2]) -> &T {
        &self.data[self.position_of_one(row, col)]
    }
}

impl<T: Scalar> IndexMut<[usize; 2]> for Matrix<T> {
    #[track_caller]
    fn index_mut(&mut self, [row, col]: [usize; 2]) -> &mut T {
        let position = self.position_of_one(row, col);
        &mut self.data[position]
    }
}

/// `matrix[(row, col)]`, for a single matrix.
///
/// # Panics
/// Where the index is out of range, and for a batch.
impl<T: Scalar> Index<(usize, usize)> for Matrix<T> {
    type Output = T;

    #[track_caller]
    fn index(&self, (row, col): (usize, usize)) -> &T {
        &self[[row, col]]
    }
}

impl<T: Scalar> IndexMut<(usize, usize)> for Matrix<T> {
    #[track_caller]
    fn index_mut(&mut self, (row, col): (usize, usize)) -> &mut T {
        &mut self[[row, col]]
    }
}

/// `batch[[i, row, col]]`; a single matrix is a batch of one.
///
/// # Panics
/// Where the index is out of range.
impl<T: Scalar> Index<[usize; 3]> for Matrix<T> {
    type Output = T;

    #[track_caller]
    fn index(&self, [batch, row, col]: [usize; 3]) -> &T {
        &self.data[self.position(batch, row, col)]
    }
}

impl<T: Scalar> IndexMut<[usize; 3]> for Matrix<T> {
    #[track_caller]
    fn index_mut(&mut self, [batch, row, col]: [usize; 3]) -> &mut T {
        let position = self.position(batch, row, col);
        &mut self.data[position]
    }
}

/// The shape, and the elements as [`Display`](fmt::Display) shows them.
impl<T: Scalar> fmt::Debug for Matrix<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matrix {} of {}: ", self.shape, T::TYPE)?;
        // `{:#?}` would put each element on a line.
        self.show(f, |element| format!("{element:?}"))
    }
}

/// Rows in brackets, columns aligned: `[[1, 2],\n [3, 4]]`.
///
/// An axis longer than 12 shows only its ends. A precision, as in `{:.3}`, applies to each element.
impl<T: Scalar + fmt::Display> fmt::Display for Matrix<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match f.precision() {
            Some(digits) => self.show(f, |element| format!("{element:.digits$}")),
            None => self.show(f, ToString::to_string),
        }
    }
}

/// Indices shown at each end of an axis that is too long to show.
const EDGE: usize = 6;

impl<T: Scalar> Matrix<T> {
    fn show(&self, f: &mut fmt::Formatter<'_>, element: impl Fn(&T) -> String) -> fmt::Result {
        let Shape { batches, rows, cols } = self.shape;
        let text = |batch, row, col: Option<usize>| match col {
            Some(col) => element(&self[[batch, row, col]]),
            None => "…".into(),
        };
        let indices = || {
            shown_indices(batches)
                .flat_map(|b| shown_indices(rows).flat_map(move |r| shown_indices(cols).map(move |c| (b, r, c))))
        };
        let widths = indices().filter_map(|(b, r, c)| Some(text(b?, r?, c).chars().count()));
        let width = if self.shape.is_empty() { 0 } else { widths.max().unwrap_or(0) };
        let line = |f: &mut fmt::Formatter<'_>, batch, row| {
            write_bracketed(f, cols, ", ", |f, col| write!(f, "{:>width$}", text(batch, row, col)))
        };
        let one = |f: &mut fmt::Formatter<'_>, batch, between: &str| {
            write_bracketed(f, rows, between, |f, row| match row {
                Some(row) => line(f, batch, row),
                None => f.write_str("…"),
            })
        };
        if batches == 1 {
            return one(f, 0, ",\n ");
        }
        write_bracketed(f, batches, ",\n\n ", |f, batch| match batch {
            Some(batch) => one(f, batch, ",\n  "),
            None => f.write_str("…"),
        })
    }
}

/// The indices of an axis to show, with `None` for omitted ones.
fn shown_indices(extent: usize) -> impl Iterator<Item = Option<usize>> {
    let all = extent <= 2 * EDGE;
    let (first, last) = if all { (extent, extent) } else { (EDGE, extent - EDGE) };
    (0..first).map(Some).chain((!all).then_some(None)).chain((last..extent).map(Some))
}

fn write_bracketed(
    f: &mut fmt::Formatter<'_>,
    extent: usize,
    between: &str,
    mut item: impl FnMut(&mut fmt::Formatter<'_>, Option<usize>) -> fmt::Result,
) -> fmt::Result {
    f.write_str("[")?;
    for (number, index) in shown_indices(extent).enumerate() {
        if number > 0 {
            f.write_str(between)?;
        }
        item(f, index)?;
    }
    f.write_str("]")
}

/// Lets `&matrix` be passed as a view.
impl<'a, T: Scalar> From<&'a Matrix<T>> for View<'a, T> {
    fn from(matrix: &'a Matrix<T>) -> Self {
        matrix.view()
    }
}

/// Lets `&matrix` be passed as a view of an array.
impl<'a, T: Scalar> From<&'a Matrix<T>> for NdView<'a, T> {
    fn from(matrix: &'a Matrix<T>) -> Self {
        matrix.view().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counting(batches: usize, rows: usize, cols: usize) -> Matrix<i32> {
        Matrix::from_shape_fn(Shape { batches, rows, cols }, |b, r, c| (100 * b + 10 * r + c) as i32).unwrap()
    }

    #[test]
    fn matrix_of_one_batch_is_indexed_by_row_and_col() {
        let mut m = Matrix::from_fn(3, 4, |row, col| (10 * row + col) as i32).unwrap();
        assert_eq!((m.rows(), m.cols(), m.batches()), (3, 4, 1));
        assert_eq!((m[[2, 1]], m[(1, 3)], m[[0, 2, 3]]), (21, 13, 23));
        m[[0, 1]] = -1;
        m[(2, 3)] = -2;
        m[[0, 1, 0]] = -3;
        assert_eq!(m.as_slice(), [0, -1, 2, 3, -3, 11, 12, 13, 20, 21, 22, -2]);
        assert_eq!((m.row(1), m.row(3)), (Some(&[-3, 11, 12, 13][..]), None));
        assert_eq!(Matrix::<f32>::zeros(2, 3).unwrap().as_slice(), [0.0; 6]);
    }

    #[test]
    fn batch_is_indexed_by_batch_row_and_col() {
        let mut m = counting(3, 2, 5);
        assert_eq!((m[[2, 1, 4]], m.batches(), m.row(0)), (214, 3, None));
        m[[1, 0, 3]] = 7;
        assert_eq!(m.as_slice()[13], 7);
        let last = Matrix::from_view(m.matrix(2).unwrap()).unwrap();
        assert_eq!((last.shape(), last[[1, 4]]), (Shape::new(2, 5), 214));
        assert!(matches!(m.matrix(3), Err(Error::Layout(_))));
        assert!(matches!(m.matrix(usize::MAX), Err(Error::Layout(_))));
    }

    #[test]
    fn index_out_of_range_panics_with_index_and_shape() {
        let message = |f: &dyn Fn() -> i32| {
            let panic = std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).unwrap_err();
            panic.downcast_ref::<String>().cloned().unwrap()
        };
        let (one, batch) = (counting(1, 2, 3), counting(4, 2, 3));
        // (0, 3) would be an element of the next row.
        assert_eq!(message(&|| one[[0, 3]]), "index [0, 3] is out of range for a 2×3 matrix");
        assert_eq!(message(&|| one[(2, 0)]), "index [2, 0] is out of range for a 2×3 matrix");
        assert_eq!(message(&|| one[[1, 0, 0]]), "index [0, 0] is out of range for a 2×3 matrix");
        assert_eq!(message(&|| batch[[3, 2, 0]]), "index [3, 2, 0] is out of range for a 4×2×3 matrix");
        assert_eq!(
            message(&|| batch[[usize::MAX, 0, 0]]).split(" is").nth(1),
            Some(" out of range for a 4×2×3 matrix")
        );
        let needs = "index [0, 1] needs a batch: the matrix is 4×2×3; use [batch, row, col]";
        assert_eq!(message(&|| batch[[0, 1]]), needs);
        let mut write = counting(1, 2, 3);
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| write[[0, 3]] = 1)).is_err());
        assert_eq!(write, one);
    }

    #[test]
    fn wrong_lengths_are_refused() {
        let error = Matrix::from_vec(2, 3, vec![0i32; 5]).unwrap_err().to_string();
        assert_eq!(error, "a 2×3 matrix has 6 elements, the vector has 5");
        assert!(matches!(Matrix::<i32>::zeros(usize::MAX, 2), Err(Error::Shape(_))));
    }

    #[test]
    fn display_aligns_columns_and_leaves_out_the_middle() {
        assert_eq!(Matrix::from_vec(2, 2, vec![1, -20, 300, 4]).unwrap().to_string(), "[[  1, -20],\n [300,   4]]");
        let third = Matrix::from_vec(1, 1, vec![1.0f64 / 3.0]).unwrap();
        assert_eq!(
            (format!("{third:.2}"), format!("{third:?}")),
            ("[[0.33]]".into(), { "Matrix 1×1 of f64: [[0.3333333333333333]]".to_string() })
        );
        assert_eq!(counting(2, 1, 2).to_string(), "[[[  0,   1]],\n\n [[100, 101]]]");
        let wide = Matrix::from_fn(13, 13, |_, _| 7i32).unwrap().to_string();
        assert_eq!(wide.lines().next(), Some("[[7, 7, 7, 7, 7, 7, …, 7, 7, 7, 7, 7, 7],"));
        assert_eq!((wide.lines().count(), wide.lines().nth(6)), (13, Some(" …,")));
        assert_eq!(Matrix::<i32>::zeros(0, 3).unwrap().to_string(), "[]");
        // Rows without columns may have any number.
        assert_eq!(Matrix::<i32>::zeros(usize::MAX, 0).unwrap().to_string().lines().count(), 13);
    }
}
