//! Nest 2: k outermost, which leaves the innermost loop to go along rows of B and C.

use super::{Number, Rows, RowsMut};

/// C += A·B, one column of A times one row of B after the other. All of C is read and written for each k.
pub fn kij<T: Number>([m, n, depth]: [usize; 3], a: Rows<T>, b: Rows<T>, mut c: RowsMut<T>) {
    for k in 0..depth {
        for i in 0..m {
            let (a, b, c) = (a[[i, k]], &b.row(k)[..n], &mut c.row(i)[..n]);
            for j in 0..n {
                c[j] += a * b[j];
            }
        }
    }
}
