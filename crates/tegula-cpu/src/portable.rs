//! The micro-kernel in plain Rust, for any machine. The compiler turns the inner loop into whatever vectors the target has.

use tegula_core::element::Scalar;

use super::kernel::{Factors, Operand, Sum, Tiles};
use super::pack::{pack, pack_rows};

/// Elements that are multiplied together, which the compiler makes vectors of.
const LANES: usize = 8;
/// Rows of a tile.
const ROWS: usize = 4;

/// Tiles of a vector's width.
pub const fn tiles<T: Operand>() -> Tiles<T> {
    Tiles::of_vectors(LANES, [ROWS, 0, 0, 0, 0, 0, 0, 0], [ROWS, LANES], 256, [pack_rows, pack], |_| run::<T>)
}

/// # Safety
/// As [`super::kernel::Tile`] asks.
unsafe fn run<T: Operand>(
    [rows, cols, steps]: [usize; 3],
    alpha: T::Acc,
    factors: Factors<T::Acc>,
    beta: T::Acc,
    c: *mut T::Acc,
    row: isize,
) {
    // SAFETY: the caller's promise.
    let sums = unsafe {
        match (rows, cols) {
            (ROWS, LANES) => sum::<T, ROWS>(LANES, steps, factors),
            _ => (0..rows).fold([[T::Acc::ZERO; LANES]; ROWS], |mut sums, i| {
                let a = factors.a.wrapping_byte_offset(i as isize * factors.a_row);
                sums[i] = sum::<T, 1>(cols, steps, Factors { a, ..factors })[0];
                sums
            }),
        }
    };
    for (i, sums) in sums.iter().enumerate().take(rows) {
        for (col, &sum) in sums.iter().enumerate().take(cols) {
            // SAFETY: the caller says that C has these rows and columns, readable unless beta is 0.
            unsafe {
                let c = c.offset(i as isize * row).add(col);
                let sum = alpha.times(sum);
                c.write(if beta == T::Acc::ZERO { sum } else { sum.plus(beta.times(c.read())) });
            }
        }
    }
}

/// # Safety
/// As [`super::kernel::Tile`] asks, for `R` rows.
#[inline(always)]
unsafe fn sum<T: Operand, const R: usize>(
    cols: usize,
    steps: usize,
    Factors { mut a, a_row, a_step, mut b, b_step, .. }: Factors<T::Acc>,
) -> [[T::Acc; LANES]; R] {
    let mut sums = [[T::Acc::ZERO; LANES]; R];
    for _ in 0..steps {
        for (i, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the caller says that A has these rows and B these columns, and both so many steps.
            let a = unsafe { *a.byte_offset(i as isize * a_row) };
            for (j, sum) in sums.iter_mut().enumerate().take(cols) {
                // SAFETY: as above.
                *sum = T::step(a, unsafe { *b.add(j) }, *sum);
            }
        }
        (a, b) = (a.wrapping_offset(a_step), b.wrapping_offset(b_step));
    }
    sums
}
