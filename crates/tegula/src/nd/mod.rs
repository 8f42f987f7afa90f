//! Arrays of any number of dimensions, multiplied as `numpy.matmul` does it.
//!
//! The last two axes are matrices and those before them a stack. Stacks broadcast: aligned at the last axis, extents must agree, be 1, or
//! be missing. An operand of one axis is a vector, of which the result has no axis; an operand of none is refused.
//!
//! | A | B | C |
//! |---|---|---|
//! | m×k | k×n | m×n |
//! | 5×m×k | k×n | 5×m×n |
//! | 7×1×m×k | 5×k×n | 7×5×m×n |
//! | k | k | a number: no axis |
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
//! - `layout`: where the elements lie;
//! - `array`: owned arrays and views;
//! - `products`: an N-dimensional product as products of matrices, numbers in and numbers out;
//! - `gemm`: the problem; `finish`: what is done last.
//!
//! It knows layouts and products, not engines.

mod finish;
mod gemm;
mod products;

pub use finish::NdFinish;
pub use gemm::{NdGemm, matmul};
pub use products::product_shape;
#[doc(hidden)]
pub use products::{Products, matrix_axes};
pub use tegula_core::nd::{NdArray, NdLayout, NdView, NdViewMut, display, len};
