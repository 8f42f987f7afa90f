//! The layout of sums of tiles that a second pass adds.

use tegula_core::matrix::Shape;
use tegula_ir::prelude::*;

/// How sums of tiles lie that others add: a row for as many rows of C as a warpgroup has, in it tile after tile, and of a tile its pieces, 64×8, of 64
/// rows after the other. Of a piece each thread has four sums, as the instruction leaves them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Fragments {
    /// Rows of a warpgroup: a multiple of 64.
    pub rows: u32,
    /// Columns of a tile: a multiple of 8.
    pub cols: u32,
}

impl Fragments {
    /// The shape of so many such matrices with room for a C of so many rows and columns, which tiles cover.
    pub(crate) fn shape(&self, batches: usize, rows: usize, cols: usize) -> Shape {
        Shape { batches, rows: rows.div_ceil(self.rows as usize), cols: cols.saturating_mul(self.rows as usize) }
    }

    /// Rows and columns of the C that such a matrix has room for.
    pub(super) fn extents<'k, S: Scalar>(&self, sums: Global<'k, S>) -> (Val<'k, u32>, Val<'k, u32>) {
        (sums.rows() * self.rows, sums.cols() / self.rows)
    }

    /// Where a thread's four sums lie whose first has such a number, of the warpgroup's tile that begins there in C.
    pub(super) fn place<'k>(
        &self,
        thread: Val<'k, u32>,
        [row, col]: [Val<'k, u32>; 2],
        first: u32,
    ) -> (Val<'k, u32>, Val<'k, u32>) {
        (row / self.rows, col * self.rows + first * Wgmma::THREADS + thread % Wgmma::THREADS * 4)
    }
}
