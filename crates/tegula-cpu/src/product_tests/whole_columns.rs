//! Few rows of A that read whole columns of B.

use super::*;
use crate::micro_kernel::{Accumulate, CpuElement, MicroOperands, STREAMED_COLUMNS, WHOLE_COLUMNS};

/// Elements of C are exact, for values of which every sum is exact in any order. Nothing beside
/// them is written, and nothing beside the operands, which NaNs surround, is used.
#[test]
#[cfg_attr(miri, ignore = "has no vector instructions")]
fn dot_products_of_whole_columns_are_exact() {
    fn one<T: CpuElement>(tested: &mut usize) {
        for isa in instruction_sets() {
            let Some(whole) = T::micro_kernel(isa).whole_columns else { continue };
            let random = &mut Random(47);
            for (turn, k) in
                [1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 127, 128, 129, 200].into_iter().enumerate()
            {
                for (rows, cols) in
                    (1..=whole.tile_rows).flat_map(|rows| [1, 3, 4, 5, 8, 11, 13].map(|cols| (rows, cols)))
                {
                    *tested += 1;
                    // Distances that are multiples of a cache line, and others.
                    let [a_row, b_col] = if turn % 2 == 0 { [256; 2] } else { [k + 3, k + turn % 5] };
                    let mut small = |row: usize, rows: usize| -> Vec<T> {
                        let mut value = |at: usize| (at % row < k).then(|| (random.bits() % 17) as f64 - 8.0);
                        (0..row * rows).map(|at| element(value(at).unwrap_or(f64::NAN))).collect()
                    };
                    let (a, b) = (small(a_row, rows), small(b_col, cols));
                    let row = cols + turn % 3;
                    let before: Vec<T::Acc> = (0..rows * row).map(|at| element((at % 9) as f64 - 4.0)).collect();
                    let [alpha, beta] = [[1.0, 0.0], [1.0, 1.0], [2.0, -3.0]][turn % 3].map(element::<T::Acc>);
                    let mut after = before.clone();
                    let bytes = |elements: usize| (elements * size_of::<T>()) as isize;
                    let operands = MicroOperands {
                        b_col_stride: bytes(b_col),
                        b_ahead: if turn % 4 == 0 { 0 } else { 1024 },
                        ..MicroOperands::new(a.as_ptr().cast(), [bytes(a_row), 1], b.as_ptr().cast(), 1)
                    };
                    let (sizes, c, stride) = ([rows, cols, k], after.as_mut_ptr(), row as isize);
                    let side_by_side = [WHOLE_COLUMNS, STREAMED_COLUMNS][turn / 2 % 2];
                    // SAFETY: the CPU has the instruction set, and the matrices have these sizes.
                    unsafe { (whole.select)([rows, side_by_side])(sizes, alpha, &operands, beta, c, stride) };
                    for (at, (&got, &before)) in after.iter().zip(&before).enumerate() {
                        let (i, j) = (at / row, at % row);
                        let product = |p: usize| a[i * a_row + p].widen().times(b[j * b_col + p].widen());
                        let sum = || (0..k).map(product).fold(T::Acc::ZERO, T::Acc::plus);
                        let scaled = || alpha.times(sum()).plus(beta.times(before));
                        let want = if j < cols { scaled() } else { before };
                        assert!(got == want, "{isa} {} {rows}×{cols}×{k}, {i} {j}: {got:?}, not {want:?}", T::TYPE);
                    }
                }
            }
        }
    }
    let mut tested = 0;
    for_every_type!(one, &mut tested);
    assert!(tested > 0 || !Isa::Avx2.is_available());
}

fn element<S: Scalar>(value: f64) -> S {
    S::from_bits(S::TYPE.round(value))
}

/// The bits of a column are the same beside other columns, which threads share, and by
/// `gemm_small`.
#[test]
#[cfg_attr(miri, ignore = "has no vector instructions")]
fn columns_have_the_same_bits_beside_others() {
    fn one<T: CpuElement>() {
        let random = &mut Random(53);
        for (isa, k) in instruction_sets().into_iter().flat_map(|isa| [9, 60, 64, 65, 300].map(|k| (isa, k))) {
            let (kernel, n) = (T::micro_kernel(isa), 23);
            let rows = kernel.whole_columns.map_or(0, |whole| whole.cached_rows);
            let (a, b): (Vec<T>, Vec<T>) = (random.vec(rows * k), random.vec(n * k));
            for rows in 1..=rows {
                let product = |cols: std::ops::Range<usize>, short: bool| {
                    let mut c = vec![T::Out::ZERO; rows * cols.len()];
                    let a = View::new(&a[..rows * k], rows, k).unwrap();
                    let columns = Layout::row_major(Shape::new(cols.len(), k)).unwrap().transposed();
                    let b = View::strided(&b[cols.start * k..cols.end * k], columns).unwrap();
                    let mut view = ViewMut::new(&mut c, rows, cols.len()).unwrap();
                    let (one, zero, none) = (T::Acc::ONE, T::Acc::ZERO, EpilogueOperands::default());
                    if !(short && gemm_small::<T>(isa, one, &a, &b, zero, &mut view)) {
                        gemm_with_options::<T>(isa, one, a, b, zero, view, none, None, None, false).unwrap();
                    }
                    c.into_iter().map(Scalar::to_bits).collect::<Vec<_>>()
                };
                let all = product(0..n, false);
                assert!(product(0..n, true) == all, "{isa} {} {rows} rows, k = {k}, gemm_small", T::TYPE);
                for cols in [0..2, 2..6, 3..10, 21..23] {
                    let want: Vec<_> = all.chunks(n).flat_map(|row| &row[cols.clone()]).copied().collect();
                    // A single column would be a row of the transposed product.
                    assert!(product(cols.clone(), true) == want, "{isa} {} {rows} rows, k = {k}, {cols:?}", T::TYPE);
                }
            }
        }
    }
    for_every_type!(one);
}
