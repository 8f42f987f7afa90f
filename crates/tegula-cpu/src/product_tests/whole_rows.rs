//! Few rows of A that read whole rows of B.

use super::*;
use crate::micro_kernel::{Accumulate, CpuElement, MicroOperands, WHOLE_ROWS};

/// All columns of C are the sums in order of k, at any alignment of B, and nothing beside them is
/// written.
#[test]
#[cfg_attr(miri, ignore = "has no vector instructions")]
fn whole_rows_add_in_the_order_of_k() {
    fn one<T: CpuElement>(tested: &mut usize) {
        for isa in instruction_sets() {
            let Some(select) = T::micro_kernel(isa).whole_rows else { continue };
            let random = &mut Random(43);
            for (turn, k) in [1, 3, 4, 7, 8, 9, 12, 16, 29].into_iter().enumerate() {
                for (rows, cols) in (1..=WHOLE_ROWS).flat_map(|rows| [1, 15, 16, 64, 65, 200, 323].map(|n| (rows, n))) {
                    *tested += 1;
                    // Distances of rows that are multiples of a cache line, and others.
                    let (row, skipped) = (if turn % 2 == 0 { 384 } else { 331 }, turn % 5);
                    let (a, b): (Vec<T::Acc>, Vec<T::Acc>) = (random.vec(rows * k), random.vec(skipped + k * row));
                    let before: Vec<T::Acc> = random.vec(rows * row);
                    let beta = if turn % 3 == 0 { T::Acc::ZERO } else { random.scalar() };
                    let mut after = before.clone();
                    // A is contiguous along its rows for some, and along k for others.
                    let [a_row, a_k] = if rows % 2 == 0 { [k, 1] } else { [1, rows] };
                    let a_strides = [(a_row * size_of::<T::Acc>()) as isize, a_k as isize];
                    let operands = MicroOperands::new(a.as_ptr(), a_strides, b[skipped..].as_ptr(), row as isize);
                    // SAFETY: the CPU has the instruction set, and the matrices have these sizes.
                    unsafe {
                        select([rows, cols])(
                            [rows, cols, k],
                            T::Acc::ONE,
                            &operands,
                            beta,
                            after.as_mut_ptr(),
                            row as isize,
                        );
                    }
                    for (at, (&got, &before)) in after.iter().zip(&before).enumerate() {
                        let (i, j) = (at / row, at % row);
                        let start = if beta == T::Acc::ZERO { T::Acc::ZERO } else { beta.times(before) };
                        let product =
                            |sum: T::Acc, p: usize| fused(a[i * a_row + p * a_k], b[skipped + p * row + j], sum);
                        let want = if j < cols { (0..k).fold(start, product) } else { before };
                        assert_eq!(got.to_bits(), want.to_bits(), "{isa} {} {rows}×{cols}×{k}, {i} {j}", T::TYPE);
                    }
                }
            }
        }
    }
    let mut tested = 0;
    for_every_type!(one, &mut tested);
    assert!(tested > 0 || !Isa::Avx2.is_available());
}

/// `a * b + sum`, rounded once.
fn fused<S: bytemuck::Pod>(a: S, b: S, sum: S) -> S {
    use bytemuck::cast;
    match size_of::<S>() {
        4 => cast(f32::mul_add(cast(a), cast(b), cast(sum))),
        _ => cast(f64::mul_add(cast(a), cast(b), cast(sum))),
    }
}
