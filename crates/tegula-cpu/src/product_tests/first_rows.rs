//! First rows that pack B while they multiply it: the bits are those of B that is packed before.

use super::*;
use crate::micro_kernel::{CpuElement, FirstRows, MicroKernel, MicroOperands, PrefetchedRows};
use crate::pack_source::PackSource;

/// The sums of a micro-tile that packs B, and the panel, are those of packed B.
#[test]
#[cfg_attr(miri, ignore = "has no vector instructions")]
fn a_micro_tile_packs_what_it_multiplies() {
    fn one<T: CpuElement>(tested: &mut usize) {
        for isa in instruction_sets() {
            let kernel = T::micro_kernel(isa);
            let Some(FirstRows { tile: [most_rows, vectors], .. }) = kernel.first_rows else { continue };
            *tested += 1;
            for (turn, k) in [1, 2, 3, 15, 16, 17, 40, 129].into_iter().enumerate() {
                for width in 1..=vectors {
                    let rows = 1 + (turn + width) % most_rows;
                    for cols in [width * kernel.vector_len, (width - 1) * kernel.vector_len + 1] {
                        check_tile(kernel, [rows, cols, k], isa);
                    }
                }
            }
        }
    }
    let mut tested = 0;
    for_every_type!(one, &mut tested);
    assert!(tested > 0 || !Isa::Avx512.is_available());
}

fn check_tile<T: CpuElement>(kernel: &MicroKernel<T>, [rows, cols, k]: [usize; 3], isa: Isa) {
    let random = &mut Random(37);
    let row = cols + 5;
    let (a, b): (Vec<T>, Vec<T>) = (random.vec(rows * k), random.vec(k * row));
    let width = cols.next_multiple_of(kernel.vector_len);
    let mut panels = [(); 2].map(|()| random.vec::<T::Acc>(k * width));
    let before: Vec<T::Acc> = random.vec(rows * cols);
    let mut sums = [(); 2].map(|()| before.clone());
    let [alpha, beta] = [random.scalar(), random.scalar()];
    // SAFETY: the CPU has the instruction set. Rows of A and columns of B are in the matrices;
    // panels and sums have their size. Prefetches access nothing.
    unsafe {
        let layout = Layout { shape: Shape::new(cols, k), strides: [0, 1, row as isize], offset: 0 };
        (kernel.pack[1])(PackSource::rows(b.as_ptr(), layout), 0..cols, 0..k, width, panels[0].as_mut_ptr());
        let a_strides = [(k * size_of::<T>()) as isize, 1];
        let packed = MicroOperands::new(a.as_ptr().cast(), a_strides, panels[0].as_ptr(), width as isize);
        let prefetch = PrefetchedRows { first: b.as_ptr().cast(), stride: 64, lines: 2, count: 3, to_l2: false };
        let packs = MicroOperands {
            b_panel: panels[1].as_mut_ptr(),
            prefetch: &prefetch,
            ..MicroOperands::new(a.as_ptr().cast(), a_strides, b.as_ptr().cast(), row as isize)
        };
        for (operands, c) in [packed, packs].iter().zip(&mut sums) {
            (kernel.select_packed)([rows, cols])([rows, cols, k], alpha, operands, beta, c.as_mut_ptr(), cols as isize);
        }
    }
    let bits = |values: &[T::Acc]| values.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    let name = format!("{isa} {} {rows}×{cols}×{k}", T::TYPE);
    assert_eq!(bits(&sums[1]), bits(&sums[0]), "{name}");
    for (got, want) in panels[1].chunks(width).zip(panels[0].chunks(width)) {
        assert_eq!(bits(&got[..cols]), bits(&want[..cols]), "{name}, the panel");
    }
}

/// Several KC steps, panels, and passes: the bits are those for a B of contiguous columns, which is
/// packed before.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn bits_are_those_of_columns_packed_before() {
    fn one<T: Element>() {
        let [most, n, k] = [200, 150, 1100];
        let random = &mut Random(41);
        let (a, b, before) = (random.vec::<T>(most * k), random.vec::<T>(n * k), random.vec::<T::Out>(most * n));
        let b = View::new(&b, k, n).unwrap();
        let columns: Vec<T> = (0..n).flat_map(|col| (0..k).map(move |p| b.get(0, p, col).unwrap())).collect();
        let columns = View::strided(&columns, Layout::row_major(Shape::new(n, k)).unwrap().transposed()).unwrap();
        for isa in instruction_sets() {
            for (alpha, beta) in [(T::Acc::ONE, T::Acc::ZERO), (random.scalar(), random.scalar())] {
                // More rows than micro-kernels for columns along k take.
                for m in [65, 66, 128, most] {
                    let product = |b| {
                        let (mut c, a) = (before[..m * n].to_vec(), View::new(&a[..m * k], m, k).unwrap());
                        let c_view = ViewMut::new(&mut c, m, n).unwrap();
                        let none = EpilogueOperands::default();
                        // Several threads would read both operands unpacked.
                        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
                        let multiply =
                            || gemm_with_options::<T>(isa, alpha, a, b, beta, c_view, none, None, None, false);
                        one.install(multiply).unwrap();
                        c.into_iter().map(Scalar::to_bits).collect::<Vec<_>>()
                    };
                    assert!(product(b) == product(columns), "{isa} {} {m} rows", T::TYPE);
                }
            }
        }
    }
    for_every_type!(one);
}
