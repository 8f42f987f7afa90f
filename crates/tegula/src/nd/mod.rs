//! Products of arrays of any number of axes, with the semantics of `numpy.matmul`.
//!
//! The last two axes are matrices, the axes before them a stack. Stacks broadcast: aligned at the
//! last axis, extents must be equal, 1, or missing. An operand of one axis is a vector, and the
//! result lacks that axis. An operand of no axis is refused.
//!
//! | A | B | C |
//! |---|---|---|
//! | m×k | k×n | m×n |
//! | 5×m×k | k×n | 5×m×n |
//! | 7×1×m×k | 5×k×n | 7×5×m×n |
//! | k | k | a scalar: no axis |
//! | m×k | k | m |
//! | k | 5×k×n | 5×n |
//!
//! ```
//! use tegula::nd::{NdArray, matmul};
//!
//! let a = NdArray::from_vec(&[2, 1, 2], vec![1i32, 2, 3, 4])?; // a stack of two rows
//! let b = NdArray::from_vec(&[2], vec![10, 1])?; // a vector
//! let c = matmul(&a, &b)?;
//! assert_eq!((c.shape(), c.as_slice()), ([2, 1].as_slice(), [12, 34].as_slice()));
//! # Ok::<(), tegula::Error>(())
//! ```
//!
//! - `products`: lowering of a product to batched products of matrices, from layouts to layouts;
//! - `gemm`: the product; `epilogue`: bias and activation.
//!
//! Arrays, views and their layouts are in `tegula_core::nd`. This module depends on layouts and
//! products, not on engines.

mod epilogue;
mod gemm;
mod products;

pub use epilogue::NdEpilogueOperands;
pub use gemm::{NdGemm, matmul};
pub use products::product_shape;
#[doc(hidden)]
pub use products::{Products, matrix_axes};
pub use tegula_core::nd::{NdArray, NdLayout, NdView, NdViewMut, display, len};
