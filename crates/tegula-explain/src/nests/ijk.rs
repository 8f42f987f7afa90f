//! Nest 1: the sum as it is defined.

use super::{Number, Rows, RowsMut};

/// C += A·B, one element of C after the other. B is read down its columns, all of it for each row of C.
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
