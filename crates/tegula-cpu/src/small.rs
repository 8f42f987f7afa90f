//! Small products, straight to the micro-kernels: no plan, no workspace, no thread.

use tegula_core::element::{Element, Scalar, with_operand_type};
use tegula_core::matrix::{Memory, MemoryMut, View, ViewMut};

use super::blocking::SMALL_EXTENT;
use super::compiled::Compiled;
use super::isa::Isa;
use super::same_elements;
use super::unpacked::{BReads, UnpackedProduct};

/// [`gemm`](crate::gemm) of a small product, directly by the micro-kernels.
///
/// Returns false, and does nothing, where [`gemm_with_options`](crate::gemm_with_options) is
/// needed, which computes the same bits. The CPU must have the instruction set. Small are single
/// matrices on the host, with m, n and k of at most 64, and contiguous rows of B and C, or
/// contiguous columns of A and C.
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
    let Some(c_start) = same_elements::<T::Out, U::Acc>(c_memory.as_mut_ptr()) else { return false };
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
    let (a_start, b_start) = (a_start.wrapping_add(a.offset), b_start.wrapping_add(b.offset));
    let ([_, a_row, a_col], [_, b_row, b_col], [_, c_row, c_col]) = (a.strides, b.strides, c.strides);
    let c = c_start.wrapping_add(c.offset);
    let product = if b_col == 1 && c_col == 1 {
        let (a_strides, b_k_stride, c_row_stride) = ([a_row, a_col], b_row, c_row);
        UnpackedProduct {
            sizes,
            alpha,
            a: a_start,
            a_strides,
            b: b_start,
            b_k_stride,
            beta,
            c,
            c_row_stride,
            b_reads: BReads::Direct,
        }
    } else if a_row == 1 && c_row == 1 {
        // The transposed product.
        let (sizes, a_strides, b_k_stride, c_row_stride) = ([n, m, k], [b_col, b_row], a_col, c_col);
        UnpackedProduct {
            sizes,
            alpha,
            a: b_start,
            a_strides,
            b: a_start,
            b_k_stride,
            beta,
            c,
            c_row_stride,
            b_reads: BReads::Direct,
        }
    } else {
        return false;
    };
    // SAFETY: A and B are borrowed to read. C is borrowed to write, and its elements are distinct.
    // Their shapes match.
    unsafe { U::multiply_small(isa, &product) }
}
