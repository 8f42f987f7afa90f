//! The micro-kernel in plain Rust, for any machine. The compiler turns the inner loop into whatever vectors the target has.

use super::kernel::{Kernel, Operand, Sum};
use crate::element::Scalar;

/// The portable kernel with an MR×NR tile.
pub const fn kernel<T: Operand, const MR: usize, const NR: usize>() -> Kernel<T::Acc> {
    Kernel { mr: MR, nr: NR, mc: 32 * MR, kc: 256, nc: 4096, run: run::<T, MR, NR> }
}

/// # Safety
/// As [`super::kernel::Micro`] asks.
unsafe fn run<T: Operand, const MR: usize, const NR: usize>(
    steps: usize,
    alpha: T::Acc,
    a: *const T::Acc,
    b: *const T::Acc,
    beta: T::Acc,
    c: *mut T::Acc,
    stride: isize,
) {
    let mut sums = [[T::Acc::ZERO; NR]; MR];
    // SAFETY: the caller says that A holds MR values for each step and B holds NR. Arrays need no more alignment than elements.
    let (a, b) = unsafe {
        (
            std::slice::from_raw_parts(a.cast::<[T::Acc; MR]>(), steps),
            std::slice::from_raw_parts(b.cast::<[T::Acc; NR]>(), steps),
        )
    };
    for (a, b) in a.iter().zip(b) {
        for (a, sums) in a.iter().zip(&mut sums) {
            for (b, sum) in b.iter().zip(sums) {
                *sum = T::step(*a, *b, *sum);
            }
        }
    }
    for (row, sums) in sums.iter().enumerate() {
        for (col, &sum) in sums.iter().enumerate() {
            // SAFETY: the caller says that C has MR rows of NR adjacent elements, readable unless beta is 0.
            unsafe {
                let c = c.offset(row as isize * stride).add(col);
                let sum = alpha.times(sum);
                c.write(if beta == T::Acc::ZERO { sum } else { sum.plus(beta.times(c.read())) });
            }
        }
    }
}
