//! Nest 1: the definition of the matrix product.

use super::{Number, Rows, RowsMut};

/// C += A·B, one element of C at a time; each row of C reads all of B by columns.
pub fn ijk<T: Number>([m, n, depth]: [usize; 3], a: Rows<T>, b: Rows<T>, mut c: RowsMut<T>) {
    for i in 0..m {
        for j in 0..n {
            let mut sum = c[[i, j]];
            for k in 0..depth {
                sum += a[[i, k]] * b[[k, j]];
            }
            c[[i, j]] = sum;
        }
    }
}
