//! A strided matrix in memory that several threads write.

use tegula_core::matrix::Layout;

/// Address and strides of a matrix that several threads write, each disjoint elements.
#[derive(Clone, Copy)]
pub struct MatrixPtr<S> {
    /// The first element.
    pub start: *mut S,
    /// Batch stride in elements.
    pub batch_stride: isize,
    /// Row stride in elements.
    pub row_stride: isize,
    /// Column stride in elements.
    pub col_stride: isize,
}

// SAFETY: it is a pointer. Threads that write through it write disjoint elements, as
// `MatrixPtr::at` requires.
unsafe impl<S: Send> Send for MatrixPtr<S> {}
// SAFETY: as above.
unsafe impl<S: Send> Sync for MatrixPtr<S> {}

impl<S: Copy> MatrixPtr<S> {
    /// The first matrix of a batch; `memory` is position 0 of its layout.
    pub fn new(memory: *mut S, layout: Layout) -> Self {
        let [batch_stride, row_stride, col_stride] = layout.strides;
        MatrixPtr { start: memory.wrapping_add(layout.offset), batch_stride, row_stride, col_stride }
    }

    /// The same matrix with elements of another type of the same size.
    pub fn cast<U>(self) -> MatrixPtr<U> {
        let MatrixPtr { start, batch_stride, row_stride, col_stride } = self;
        MatrixPtr { start: start.cast(), batch_stride, row_stride, col_stride }
    }

    /// The transposed matrix.
    pub fn transposed(self) -> Self {
        MatrixPtr { row_stride: self.col_stride, col_stride: self.row_stride, ..self }
    }

    /// The matrix `batch` of the batch.
    pub fn batch(self, batch: usize) -> Self {
        MatrixPtr { start: self.start.wrapping_offset(batch as isize * self.batch_stride), ..self }
    }

    /// The address of an element. It may be accessed if it is in the matrix and no other thread
    /// accesses it meanwhile.
    pub fn at(self, row: usize, col: usize) -> *mut S {
        self.start.wrapping_offset(row as isize * self.row_stride + col as isize * self.col_stride)
    }

    /// Row stride in elements.
    pub fn row_stride(self) -> isize {
        self.row_stride
    }

    /// Column stride in elements.
    pub fn col_stride(self) -> isize {
        self.col_stride
    }

    /// The submatrix whose first element is (row, col).
    pub fn submatrix(self, row: usize, col: usize) -> Self {
        MatrixPtr { start: self.at(row, col), ..self }
    }
}
