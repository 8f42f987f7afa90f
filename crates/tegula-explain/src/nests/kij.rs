//! Nest 2: k outermost; the innermost loop runs along rows of B and C.

use super::{Number, Rows, RowsMut};

/// C += A·B as outer products of a column of A and a row of B; each k reads and writes all of C.
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
