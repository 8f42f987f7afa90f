//! Small products without a plan: the choice among their loops.

use std::mem::MaybeUninit;

use tegula_core::element::Scalar;
use tegula_core::matrix::{Layout, Shape};

use super::blocking::{SMALL_EXTENT, is_small_unpacked, reads_whole_columns};
use super::isa::Isa;
use super::micro_kernel::{CpuElement, WHOLE_COLUMNS};
use super::pack_source::PackSource;
use super::unpacked::{BReads, UnpackedProduct};

/// Multiplies a small product; false, and nothing is done, where it needs a plan.
///
/// # Safety
/// The CPU has the instruction set. m, n and k are at most [`SMALL_EXTENT`]. The columns of B may
/// have any stride. Otherwise as for [`UnpackedProduct::run`].
pub unsafe fn multiply_small<T: CpuElement>(isa: Isa, product: &UnpackedProduct<T>) -> bool {
    let kernel = T::micro_kernel(isa);
    let UnpackedProduct { sizes: sizes @ [_, n, k], a_strides, b, b_strides, .. } = *product;
    let run = |product: UnpackedProduct<T>| {
        // SAFETY: the caller's promise.
        unsafe { product.run(kernel) };
        true
    };
    if <T::Out as Scalar>::TYPE != T::Acc::TYPE {
        return false;
    }
    if reads_whole_columns(kernel, sizes, a_strides, b_strides) {
        return run(UnpackedProduct { b_reads: BReads::WholeColumns(WHOLE_COLUMNS), ..*product });
    }
    if !is_small_unpacked(kernel, sizes) {
        return false;
    }
    if b_strides[0] == 1 {
        return run(*product);
    }
    if b_strides[1] != 1 || kernel.k_pack != 1 {
        return false;
    }
    // Transposed on the stack.
    let mut rows = Aligned([const { MaybeUninit::<T::Acc>::uninit() }; SMALL_EXTENT * SMALL_EXTENT]);
    let (stride, rows) = (n.next_multiple_of(kernel.vector_len), rows.0.as_mut_ptr().cast::<T::Acc>());
    let layout = Layout { shape: Shape::new(n, k), strides: [0, b_strides[0], 1], offset: 0 };
    // SAFETY: the caller's promise for B. The rows are at most as long as the array is wide, since
    // vectors divide it.
    unsafe { kernel.pack_b(PackSource::rows(b, layout), 0..n, 0..k, stride, rows) };
    // Values of one step are elements.
    run(UnpackedProduct { b: rows.cast(), b_strides: [1, stride as isize], ..*product })
}

/// Rows that begin at cache lines.
#[repr(align(64))]
struct Aligned<T>(T);
