//! Few rows, where columns of B are contiguous along k: the bits are those of packed operands.

use super::*;
use crate::micro_kernel::{AlongK, CpuElement, MicroKernel, MicroOperands};
use crate::pack_source::PackSource;

/// The sums of a micro-tile by [`AlongK`], and the panel that it packs, are those of packed B.
#[test]
#[cfg_attr(miri, ignore = "has no vector instructions")]
fn sums_along_k_are_those_of_packed_columns() {
    fn one<T: CpuElement>(tested: &mut usize) {
        for isa in instruction_sets() {
            let kernel = T::micro_kernel(isa);
            let Some(along_k) = kernel.along_k else { continue };
            *tested += 1;
            for (turn, k) in [1, 3, 4, 7, 15, 16, 17, 32, 61, 64, 150].into_iter().enumerate() {
                // Columns at the same place of their cache lines, and elsewhere.
                for (spacing, shift) in [(0, turn), (256, turn * 7 % 64), (256, 0)] {
                    let rows = 1 + (turn * 5 + shift) % along_k.tile_rows;
                    for cols in [kernel.vector_len, 1 + turn % kernel.vector_len] {
                        check_tile(kernel, &along_k, [rows, cols, k], spacing.max(k), shift, isa);
                    }
                }
            }
        }
    }
    let mut tested = 0;
    for_every_type!(one, &mut tested);
    assert!(tested > 0 || !Isa::Avx2.is_available());
}

fn check_tile<T: CpuElement>(
    kernel: &MicroKernel<T>,
    along_k: &AlongK<T::Acc>,
    [rows, cols, k]: [usize; 3],
    col_stride: usize,
    shift: usize,
    isa: Isa,
) {
    let random = &mut Random(29);
    let (a, b) = (random.vec::<T>(rows * k), random.vec::<T>(shift + cols * col_stride));
    let (groups, width) = (kernel.k_groups(k), kernel.vector_len);
    let mut packed_a = vec![T::Acc::ZERO; rows * groups];
    let mut panels = [(); 2].map(|()| vec![T::Acc::ZERO; groups * width]);
    let before: Vec<T::Acc> = random.vec(rows * cols);
    let mut sums = [(); 3].map(|()| before.clone());
    let layout = |rows, row| Layout { shape: Shape::new(rows, k), strides: [0, row as isize, 1], offset: 0 };
    let [alpha, beta] = [random.scalar(), random.scalar()];
    // SAFETY: the CPU has the instruction set. Rows of A and columns of B are in the matrices;
    // panels and sums have their size.
    unsafe {
        let a = PackSource::rows(a.as_ptr(), layout(rows, k));
        let from = PackSource::rows(b.as_ptr().add(shift), layout(cols, col_stride));
        (kernel.pack[0])(a, 0..rows, 0..k, groups, packed_a.as_mut_ptr());
        (kernel.pack[1])(from, 0..cols, 0..k, width, panels[0].as_mut_ptr());
        let row_bytes = (groups * size_of::<T::Acc>()) as isize;
        let compensation = kernel.compensation.map(|f| f(packed_a.as_ptr(), row_bytes, rows, groups));
        let packed = MicroOperands {
            compensation: compensation.as_ref().map_or(std::ptr::null(), |rows| rows.as_ptr()),
            ..MicroOperands::new(packed_a.as_ptr(), [row_bytes, 1], panels[0].as_ptr(), width as isize)
        };
        let unpacked = MicroOperands {
            b: b.as_ptr().add(shift).cast(),
            b_col_stride: (col_stride * size_of::<T>()) as isize,
            b_ahead: 256,
            ..packed
        };
        let packs = MicroOperands { b_panel: panels[1].as_mut_ptr(), ..unpacked };
        let ways = [(packed, groups, kernel.select_packed), (unpacked, k, along_k.select), (packs, k, along_k.select)];
        for ((operands, steps, select), c) in ways.iter().zip(&mut sums) {
            select([rows, cols])([rows, cols, *steps], alpha, operands, beta, c.as_mut_ptr(), cols as isize);
        }
    }
    let bits = |values: &[T::Acc]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let name = format!("{isa} {} {rows}×{cols}×{k}, columns {col_stride} apart from {shift} on", T::TYPE);
    assert_eq!(bits(&sums[1]), bits(&sums[0]), "{name}");
    assert_eq!(bits(&sums[2]), bits(&sums[0]), "{name}, packed");
    for (at, group) in panels[1].chunks(width).enumerate() {
        // Bytes out of bounds may have any value.
        let whole = (at + 1) * kernel.k_pack <= k;
        let want = &panels[0][at * width..][..cols];
        assert!(!whole || bits(&group[..cols]) == bits(want), "{name}, group {at} of the panel");
    }
}

/// Several KC steps, and rows in several micro-tiles: the bits of a row are those in a product of
/// many rows, which packs B before.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn bits_of_few_rows_are_those_of_many() {
    fn one<T: CpuElement>() {
        // More rows than any micro-kernel along k takes, and so many columns that KC is not
        // doubled.
        let [most, n, k] = [70, 150, 1100];
        let random = &mut Random(31);
        let (a, b, before) = (random.vec::<T>(most * k), random.vec::<T>(n * k), random.vec::<T::Out>(most * n));
        let b = View::strided(&b, Layout::row_major(Shape::new(n, k)).unwrap().transposed()).unwrap();
        // AMX multiplies some numbers of rows in another order.
        for isa in instruction_sets().into_iter().filter(|&isa| isa != Isa::Amx) {
            for (alpha, beta) in [(T::Acc::ONE, T::Acc::ZERO), (random.scalar(), random.scalar())] {
                let product = |m: usize, batch_invariant: bool| {
                    let (mut c, a) = (before[..m * n].to_vec(), View::new(&a[..m * k], m, k).unwrap());
                    let view = ViewMut::new(&mut c, m, n).unwrap();
                    gemm_with_options::<T>(
                        isa,
                        alpha,
                        a,
                        b,
                        beta,
                        view,
                        EpilogueOperands::default(),
                        None,
                        None,
                        batch_invariant,
                    )
                    .unwrap();
                    c.into_iter().map(Scalar::to_bits).collect::<Vec<_>>()
                };
                let many = [false, true].map(|batch_invariant| product(most, batch_invariant));
                for m in [1, 2, 5, 6, 7, 9, 12, 13, 16, 17, 32, 64] {
                    assert!(product(m, true) == many[1][..m * n], "{isa} {} {m} rows, batch-invariant", T::TYPE);
                    let kernel = T::micro_kernel(isa);
                    let dot_products = kernel.whole_columns.is_some_and(|whole| m <= whole.cached_rows);
                    // Many rows of a narrower type take all of k in one step, unless
                    // batch-invariant.
                    let is_narrower = size_of::<T::Out>() < size_of::<T::Acc>();
                    let is_few = kernel.along_k.is_some_and(|along_k| m <= along_k.max_rows);
                    let is_few = usize::from(is_narrower && is_few);
                    assert!(dot_products || product(m, false) == many[is_few][..m * n], "{isa} {} {m} rows", T::TYPE);
                }
            }
        }
    }
    for_every_type!(one);
}
