//! Nest 4: nest 3 with all tile loops outside all loops inside a tile.

use super::{Number, Rows, RowsMut};

/// C += A·B as products of tiles; the working set of a step is three tiles.
pub fn tiled<T: Number>(tile: usize, [m, n, depth]: [usize; 3], a: Rows<T>, b: Rows<T>, mut c: RowsMut<T>) {
    for i in (0..m).step_by(tile) {
        for j in (0..n).step_by(tile) {
            for k in (0..depth).step_by(tile) {
                for i0 in 0..tile.min(m - i) {
                    for j0 in 0..tile.min(n - j) {
                        let mut sum = c[[i + i0, j + j0]];
                        for k0 in 0..tile.min(depth - k) {
                            sum += a[[i + i0, k + k0]] * b[[k + k0, j + j0]];
                        }
                        c[[i + i0, j + j0]] = sum;
                    }
                }
            }
        }
    }
}
