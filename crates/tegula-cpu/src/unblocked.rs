//! Small products without a plan: the choice among their loops.

use std::mem::MaybeUninit;

use tegula_core::element::Scalar;
use tegula_core::matrix::{Layout, Shape};

use super::accumulation::{SMALL_EXTENT, is_small_unpacked, reads_whole_columns};
use super::isa::Isa;
use super::micro_kernel::{CpuElement, MicroKernel, WHOLE_COLUMNS};
use super::pack_source::PackSource;
use super::shared_rows;
use super::unpacked::{BReads, UnpackedProduct};

/// Rows of accumulators that are rounded together: they leave room for A and B in the L1 cache, and
/// most micro-tiles fill them.
const ROUNDED_ROWS: usize = 24;

/// Multiplies a small product; false, and nothing is done, where it needs a plan.
///
/// The `c` of the product is that of its elements, which hold the accumulators or are narrower.
///
/// # Safety
/// The CPU has the instruction set. m, n and k are at most [`SMALL_EXTENT`]. The columns of B may
/// have any stride. Otherwise as for [`UnpackedProduct::run`].
pub unsafe fn multiply_small<T: CpuElement>(isa: Isa, product: &UnpackedProduct<T>) -> bool {
    let kernel = T::micro_kernel(isa);
    let UnpackedProduct { sizes, a_strides, b_strides, beta, .. } = *product;
    let in_place = <T::Out as Scalar>::TYPE == T::Acc::TYPE;
    if !in_place && beta != T::Acc::ZERO {
        return false;
    }
    if reads_whole_columns(kernel, sizes, a_strides, b_strides) {
        let product = &UnpackedProduct { b_reads: BReads::WholeColumns(WHOLE_COLUMNS), ..*product };
        // SAFETY: the caller's promise.
        unsafe { if in_place { product.run(kernel) } else { multiply_rounded(kernel, product) } };
        return true;
    }
    let is_plain = in_place && b_strides[0] == 1;
    let readable = b_strides[0] == 1 || b_strides[1] == 1 && kernel.k_pack == 1 && in_place;
    if !(readable && is_small_unpacked(kernel, sizes)) {
        return false;
    }
    // SAFETY: the caller's promise. `shared_rows` passes disjoint rows of this product, and returns
    // when all are multiplied.
    if shared_rows::multiply(kernel, product, |rows| unsafe { multiply_rows(kernel, rows) }) {
        return true;
    }
    // SAFETY: the caller's promise.
    unsafe { if is_plain { product.run(kernel) } else { multiply_rows(kernel, product) } };
    true
}

/// Multiplies all rows of a product, or some of them.
///
/// Not inlined: the most frequent products call [`UnpackedProduct::run`] themselves. The product by
/// reference: a copy would load vectors of fields that were just stored one by one, which waits for
/// the stores.
///
/// # Safety
/// As for [`multiply_small`], which has chosen a product without whole columns.
#[inline(never)]
unsafe fn multiply_rows<T: CpuElement>(kernel: &MicroKernel<T>, product: &UnpackedProduct<T>) {
    let in_place = <T::Out as Scalar>::TYPE == T::Acc::TYPE;
    // SAFETY: the caller's promise.
    unsafe {
        match () {
            _ if product.b_strides[0] != 1 => multiply_transposed(kernel, product),
            _ if in_place => product.run(kernel),
            _ if product.run_rounded(kernel) => (),
            _ => multiply_rounded(kernel, product),
        }
    }
}

/// Multiplies a small product with columns of B contiguous along k: B is transposed on the stack.
///
/// Not inlined, or all small products would touch the pages of that stack.
///
/// # Safety
/// As for [`multiply_small`]. C holds the accumulators.
#[inline(never)]
unsafe fn multiply_transposed<T: CpuElement>(kernel: &MicroKernel<T>, product: &UnpackedProduct<T>) {
    let UnpackedProduct { sizes: [_, n, k], b, b_strides, .. } = *product;
    let mut rows = SmallMatrix::<T::Acc, { SMALL_EXTENT * SMALL_EXTENT }>::uninit();
    let (stride, rows) = (n.next_multiple_of(kernel.vector_len), rows.start());
    let layout = Layout { shape: Shape::new(n, k), strides: [0, b_strides[0], 1], offset: 0 };
    // SAFETY: the caller's promise. The rows are at most as long as the matrix is wide, since
    // vectors divide it. Packed values of one step are elements.
    unsafe {
        kernel.pack_b(PackSource::rows(b, layout), 0..n, 0..k, stride, rows);
        UnpackedProduct { b: rows.cast(), b_strides: [1, stride as isize], ..*product }.run(kernel);
    }
}

/// Multiplies a small product with elements of C narrower than accumulators. Some rows of these
/// are on the stack, and are rounded before the next ones.
///
/// # Safety
/// As for [`multiply_small`]; beta is 0.
#[inline(never)]
unsafe fn multiply_rounded<T: CpuElement>(kernel: &MicroKernel<T>, product: &UnpackedProduct<T>) {
    let UnpackedProduct { sizes: [m, n, k], a, a_strides, c, c_row_stride, .. } = *product;
    let mut sums = SmallMatrix::<T::Acc, { ROUNDED_ROWS * SMALL_EXTENT }>::uninit();
    let (stride, sums) = (n.next_multiple_of(kernel.vector_len), sums.start());
    let mut strip = UnpackedProduct { c: sums, c_row_stride: stride as isize, ..*product };
    for row in (0..m).step_by(ROUNDED_ROWS) {
        let rows = ROUNDED_ROWS.min(m - row);
        strip.sizes = [rows, n, k];
        strip.a = a.wrapping_offset(a_strides[0].wrapping_mul(row as isize));
        let to = c.cast::<T::Out>().wrapping_offset(c_row_stride.wrapping_mul(row as isize));
        // SAFETY: the caller's promise; the sums are initialized before they are rounded.
        unsafe {
            strip.run(kernel);
            (kernel.narrow)(sums, stride, to, c_row_stride, [rows, n]);
        }
    }
}

/// A matrix of at most `N` elements on the stack; rows of whole vectors begin at cache lines.
#[repr(align(64))]
struct SmallMatrix<S, const N: usize>([MaybeUninit<S>; N]);

impl<S, const N: usize> SmallMatrix<S, N> {
    #[inline(always)]
    fn uninit() -> Self {
        SmallMatrix([const { MaybeUninit::uninit() }; N])
    }

    fn start(&mut self) -> *mut S {
        self.0.as_mut_ptr().cast()
    }
}
