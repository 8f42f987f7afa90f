//! The layout of split-K partial sums in the order of `wgmma` accumulators.

use tegula_core::matrix::Shape;
use tegula_ir::prelude::*;

/// The layout of split-K partial sums in the order of `wgmma` accumulators.
///
/// A row of the matrix holds the rows of C of one warpgroup, tile after tile. A tile consists of
/// fragments of 64×8, one slab of 64 rows after the other. Each thread has four accumulators of a
/// fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FragmentLayout {
    /// Rows of C of a warpgroup: a multiple of 64.
    pub rows: u32,
    /// Columns of a tile: a multiple of 8.
    pub cols: u32,
}

impl FragmentLayout {
    /// The shape of `batches` such matrices for a C of `rows` by `cols`, which whole tiles cover.
    pub(crate) fn shape(&self, batches: usize, rows: usize, cols: usize) -> Shape {
        Shape { batches, rows: rows.div_ceil(self.rows as usize), cols: cols.saturating_mul(self.rows as usize) }
    }

    /// Rows and columns of the C that a matrix of partial sums covers.
    pub(super) fn extents<'k, S: Scalar>(&self, partial_sums: Global<'k, S>) -> (Val<'k, u32>, Val<'k, u32>) {
        (partial_sums.rows() * self.rows, partial_sums.cols() / self.rows)
    }

    /// The coordinates of a thread's four accumulators from number `first` on, of the warpgroup's
    /// tile whose first row and column of C are given.
    pub(super) fn coordinates<'k>(
        &self,
        thread: Val<'k, u32>,
        [row, col]: [Val<'k, u32>; 2],
        first: u32,
    ) -> (Val<'k, u32>, Val<'k, u32>) {
        (row / self.rows, col * self.rows + first * Wgmma::THREADS + thread % Wgmma::THREADS * 4)
    }
}
