//! Conversions from and to matrices of other crates, each behind a feature.
//!
//! The features are `ndarray` (0.17), `ndarray-016` and `faer`.
//!
//! No conversion copies elements unless the table says so. A view keeps the layout of the other
//! crate's matrix, reversed and broadcast axes included, and is a valid operand.
//!
//! | from | to | |
//! |---|---|---|
//! | `ArrayView2`, `ArrayView3`, `&Array2`, `&Array3` | [`View`](crate::View) | `From` |
//! | `ArrayViewMut2`, `ArrayViewMut3`, `&mut Array2`, `&mut Array3` | [`ViewMut`](crate::ViewMut) | `From` |
//! | [`Matrix`](crate::Matrix), `&Matrix`, `&mut Matrix` | `Array2`, `Array3` and their views | `TryFrom` |
//! | `Array2`, `Array3` in standard layout | [`Matrix`](crate::Matrix) | `TryFrom` |
//! | faer's `MatRef`, `&Mat` | [`View`](crate::View) | `From` |
//! | faer's `MatMut`, `&mut Mat` | [`ViewMut`](crate::ViewMut) | `From` |
//! | [`View`](crate::View), `&Matrix` | faer's `MatRef` | `TryFrom` |
//! | [`ViewMut`](crate::ViewMut) | faer's `MatMut` | `TryFrom` |
//! | `&Matrix` | faer's `Mat` | `TryFrom`, copies: a `Mat` is column-major |
//!
//! The last axis of an array is the columns, the second-last the rows, the first of three the
//! batch. `TryFrom` refuses a batch where one matrix is required, and GPU memory.
//!
//! ```
//! # #[cfg(feature = "ndarray")] {
//! use ndarray::{Array2, array, s};
//! use tegula::{Gemm, matmul};
//!
//! let a = array![[1f32, 2., 3.], [4., 5., 6.]];
//! let c: Array2<f32> = matmul(&a, a.t().slice(s![.., ..;-1]))?.try_into()?;
//! assert_eq!(c, array![[32., 14.], [77., 32.]]);
//!
//! // Only one column of the array is written.
//! let mut wide = Array2::<f32>::ones((2, 3));
//! let ones = Array2::<f32>::ones((3, 1));
//! Gemm::new((&a).into(), (&ones).into(), wide.slice_mut(s![.., 1..2]).into()).run()?;
//! assert_eq!(wide, array![[1., 6., 1.], [1., 15., 1.]]);
//! # }
//! # Ok::<(), tegula::Error>(())
//! ```
//!
//! ```
//! # #[cfg(feature = "faer")] {
//! use faer::{Mat, mat};
//! use tegula::Gemm;
//!
//! let a = mat![[1f64, 2.], [3., 4.]];
//! let mut c = Mat::<f64>::zeros(2, 2);
//! Gemm::new((&a).into(), a.transpose().into(), (&mut c).into()).run()?;
//! assert_eq!(c, mat![[5., 11.], [11., 25.]]);
//! # }
//! # Ok::<(), tegula::Error>(())
//! ```

#[cfg(feature = "faer")]
mod faer;
#[cfg(any(feature = "ndarray", feature = "ndarray-016"))]
mod ndarray;
