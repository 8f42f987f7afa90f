//! A matrix in memory that several threads write.

use tegula_core::matrix::Layout;

/// Where the elements of a matrix lie that several threads write, each its own elements.
#[derive(Clone, Copy)]
pub struct Grid<S> {
    /// The first element.
    pub start: *mut S,
    /// From one matrix to the next, in elements.
    pub batch: isize,
    /// From one row to the next, in elements.
    pub row: isize,
    /// From one column to the next, in elements.
    pub col: isize,
}

// SAFETY: a grid is an address. Those who write through it write disjoint elements; `Grid::at` says so.
unsafe impl<S: Send> Send for Grid<S> {}
// SAFETY: as above.
unsafe impl<S: Send> Sync for Grid<S> {}

impl<S: Copy> Grid<S> {
    /// The first matrix of a batch; `memory` is position 0 of its layout.
    pub fn new(memory: *mut S, layout: Layout) -> Self {
        let [batch, row, col] = layout.strides;
        Grid { start: memory.wrapping_add(layout.offset), batch, row, col }
    }

    /// Another matrix of the batch.
    pub fn batch(self, batch: usize) -> Self {
        Grid { start: self.start.wrapping_offset(batch as isize * self.batch), ..self }
    }

    /// The address of an element. It may be read and written if it lies in the matrix and no other thread uses it meanwhile.
    pub fn at(self, row: usize, col: usize) -> *mut S {
        self.start.wrapping_offset(row as isize * self.row + col as isize * self.col)
    }

    /// From one row to the next, in elements.
    pub fn row(self) -> isize {
        self.row
    }

    /// From one column to the next, in elements.
    pub fn col(self) -> isize {
        self.col
    }

    /// The part from an element on.
    pub fn from(self, row: usize, col: usize) -> Self {
        Grid { start: self.at(row, col), ..self }
    }
}
