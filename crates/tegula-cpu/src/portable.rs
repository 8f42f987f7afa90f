//! The micro-kernel in plain Rust, for any CPU. The compiler vectorizes the inner loop for the
//! target.

use tegula_core::element::Scalar;

use super::micro_kernel::{Accumulate, CpuElement, MicroKernel, MicroOperands};
use super::pack::{pack, pack_lane_major};

/// NR: columns of a micro-tile, which the compiler vectorizes.
const LANES: usize = 8;
/// MR: rows of a micro-tile.
const ROWS: usize = 4;

/// The portable micro-kernel of an element type.
pub const fn micro_kernel<T: CpuElement>() -> MicroKernel<T> {
    MicroKernel::of_vectors(
        LANES,
        [ROWS, 0, 0, 0, 0, 0, 0, 0],
        [ROWS, LANES],
        256,
        [pack_lane_major::<T, T>, pack::<T, T>],
        |_| micro_kernel_4x8::<T>,
    )
}

/// # Safety
/// As for [`super::micro_kernel::MicroKernelFn`].
unsafe fn micro_kernel_4x8<T: CpuElement>(
    [rows, cols, k_groups]: [usize; 3],
    alpha: T::Acc,
    operands: &MicroOperands<T::Acc>,
    beta: T::Acc,
    c: *mut T::Acc,
    row: isize,
) {
    // SAFETY: the caller's promise.
    let sums = unsafe {
        match (rows, cols) {
            (ROWS, LANES) => accumulate::<T, ROWS>(LANES, k_groups, *operands),
            _ => (0..rows).fold([[T::Acc::ZERO; LANES]; ROWS], |mut sums, i| {
                let a = operands.a.wrapping_byte_offset(i as isize * operands.a_row_stride);
                sums[i] = accumulate::<T, 1>(cols, k_groups, MicroOperands { a, ..*operands })[0];
                sums
            }),
        }
    };
    for (i, sums) in sums.iter().enumerate().take(rows) {
        for (col, &sum) in sums.iter().enumerate().take(cols) {
            // SAFETY: the caller's promise: C has these rows and columns, and can be read unless
            // beta is 0.
            unsafe {
                let c = c.offset(i as isize * row).add(col);
                let sum = alpha.times(sum);
                c.write(if beta == T::Acc::ZERO { sum } else { sum.plus(beta.times(c.read())) });
            }
        }
    }
}

/// Accumulates `R` rows of a micro-tile.
///
/// # Safety
/// As for [`super::micro_kernel::MicroKernelFn`], for `R` rows.
#[inline(always)]
unsafe fn accumulate<T: CpuElement, const R: usize>(
    cols: usize,
    k_groups: usize,
    MicroOperands { mut a, a_row_stride, a_k_stride, mut b, b_k_stride, .. }: MicroOperands<T::Acc>,
) -> [[T::Acc; LANES]; R] {
    let mut sums = [[T::Acc::ZERO; LANES]; R];
    for _ in 0..k_groups {
        for (i, sums) in sums.iter_mut().enumerate() {
            // SAFETY: the caller's promise: A has these rows and B these columns, and both these
            // steps.
            let a = unsafe { *a.byte_offset(i as isize * a_row_stride) };
            for (j, sum) in sums.iter_mut().enumerate().take(cols) {
                // SAFETY: as above.
                *sum = T::multiply_add(a, unsafe { *b.add(j) }, *sum);
            }
        }
        (a, b) = (a.wrapping_offset(a_k_stride), b.wrapping_offset(b_k_stride));
    }
    sums
}
