//! Small products, straight to the micro-kernels: no plan and no workspace.

use tegula_core::element::{Element, Scalar, with_operand_type};
use tegula_core::matrix::{Memory, MemoryMut, View, ViewMut};

use super::accumulation::SMALL_EXTENT;
use super::compiled::Compiled;
use super::host_gemm::is_transposed;
use super::isa::Isa;
use super::same_elements;
use super::unpacked::{BReads, UnpackedProduct};

/// [`gemm`](crate::gemm) of a small product, directly by the micro-kernels.
///
/// Returns false, and does nothing, where [`gemm_with_options`](crate::gemm_with_options) is
/// needed, which computes the same bits. The CPU must have the instruction set. Small are single
/// matrices on the host, with m, n and k of at most 64, contiguous rows of C, and contiguous rows
/// or columns of B; or a transposed product of such.
#[inline]
pub fn gemm_small<T: Element>(
    isa: Isa,
    alpha: T::Acc,
    a: &View<T>,
    b: &View<T>,
    beta: T::Acc,
    c: &mut ViewMut<T::Out>,
) -> bool {
    with_operand_type!(T::TYPE, U => small_as::<T, U>(isa, alpha, a, b, beta, c), _ => false)
}

#[inline]
fn small_as<T: Element, U: Compiled>(
    isa: Isa,
    alpha: T::Acc,
    a: &View<T>,
    b: &View<T>,
    beta: T::Acc,
    c: &mut ViewMut<T::Out>,
) -> bool {
    let (Memory::Host(a_memory), Memory::Host(b_memory)) = (a.memory(), b.memory()) else { return false };
    let MemoryMut::Host(mut c_memory) = c.reborrow().into_memory() else { return false };
    // Options, since a `Result` would go through memory.
    let Some(a_start) = same_elements::<T, U>(a_memory.as_ptr().cast_mut()) else { return false };
    let Some(b_start) = same_elements::<T, U>(b_memory.as_ptr().cast_mut()) else { return false };
    let Some(c_start) = same_elements::<T::Out, U::Out>(c_memory.as_mut_ptr()) else { return false };
    let (Ok(alpha), Ok(beta)) = (bytemuck::try_cast(alpha), bytemuck::try_cast(beta)) else { return false };
    let (a, b, c) = (a.layout(), b.layout(), c.layout());
    let sizes @ [m, n, k] = [c.shape.rows, c.shape.cols, a.shape.cols];
    let same = a.shape.rows == m && b.shape.rows == k && b.shape.cols == n;
    // Zero wraps to a large number.
    let small = |size: usize| size.wrapping_sub(1) < SMALL_EXTENT;
    let single = a.shape.batches == 1 && b.shape.batches == 1 && c.shape.batches == 1;
    if !(same && single && small(m) && small(n) && small(k)) || alpha == U::Acc::ZERO {
        return false;
    }
    let transposed = is_transposed(&a, &c);
    let ([_, a_row, a_col], [_, b_row, b_col], [_, c_row, c_col]) = (a.strides, b.strides, c.strides);
    let (a, b) = (a_start.wrapping_add(a.offset), b_start.wrapping_add(b.offset));
    let (rows, columns) = ((a, [a_row, a_col]), (b, [b_col, b_row]));
    let (sizes, (a, a_strides), (b, b_strides), [c_row_stride, c_col_stride]) = match transposed {
        false => (sizes, rows, columns, [c_row, c_col]),
        true => ([n, m, k], columns, rows, [c_col, c_row]),
    };
    if c_col_stride != 1 {
        return false;
    }
    let (c, b_reads) = (c_start.wrapping_add(c.offset).cast(), BReads::Direct);
    let product = UnpackedProduct { sizes, alpha, a, a_strides, b, b_strides, beta, c, c_row_stride, b_reads };
    // SAFETY: A and B are borrowed to read. C is borrowed to write, and its elements are distinct.
    // Their shapes match.
    unsafe { U::multiply_small()(isa, &product) }
}
