//! Tiled matrix multiplication: C = act(αAB + βC + bias) for the number types people use, any shape, any strides.
//!
//! ```
//! use tegula::Matrix;
//!
//! let a = Matrix::from_vec(2, 3, vec![1f32, 2., 3., 4., 5., 6.])?;
//! let b = Matrix::from_vec(3, 2, vec![1f32, 0., 0., 1., 1., 1.])?;
//! let c = &a * &b; // on a GPU if there is one; `matmul(&a, &b)?` is the same with an error
//! assert_eq!(c[[1, 0]], 10.);
//! assert_eq!(c.as_slice(), [4., 5., 10., 11.]);
//! # Ok::<(), tegula::Error>(())
//! ```
//!
//! * [`matmul`] and [`Gemm`]: products of matrices and batches; [`Gemm::explain`] says what a product
//!   would do, [`Gemm::progress`] how far it has come.
//! * [`Grouped`]: groups of rows by a matrix each, as expert layers need them.
//! * [`nd`]: products of arrays of any number of axes, as `numpy.matmul` computes them.
//! * [`Matrix`], [`View`], [`ViewMut`]: owned matrices with `*` and `[[row, col]]`, and strided views
//!   of memory on the host or a GPU.
//! * [`Device`]: where products are computed; [`cuda`]: GPUs, their memory, streams and graphs.
//! * [`element`], [`epilogue`]: element types, bias and activations.
//! * [`Error`]: what can go wrong, and what to do about it.
//!
//! | feature | |
//! |---|---|
//! | `cuda` (default) | NVIDIA GPUs; the driver is loaded when it is first used |
//! | `interp` | `Device::interp`: GPU kernels without a GPU, checked for races and bounds |
//! | `faer`, `ndarray`, `ndarray-016` | views of those crates' matrices, see [`convert`] |
//!
//! Through `tracing` the library logs at level debug which plan and instruction set it chose, what it
//! copied and how fast, and where a kernel came from; at level info kernels that had to be assembled;
//! at level warn tuned entries that cannot be used (see [`cache`]).
//!
//! Kernels are written in the language of `tegula-ir`, run without a GPU by `tegula-interp`, and live
//! in `tegula-kernels`; `tegula-bench` times products beside peer libraries. `ARCHITECTURE.md` in the
//! repository has the map.
#![deny(unsafe_code)]

pub mod cache;
pub mod convert;
#[cfg(feature = "cuda")]
pub mod cuda;
mod device;
mod exec;
mod gemm;
#[cfg(feature = "interp")]
#[doc(hidden)]
pub mod interpret;
pub mod matrix;
pub mod nd;

pub use device::Device;
pub use gemm::{Gemm, Grouped, Prepacked, Report, matmul};
pub use matrix::Matrix;
pub use tegula_core::element::Accuracy;
pub use tegula_core::{
    Error, Layout, Phase, Progress, Result, Shape, View, ViewMut, element, epilogue, error, progress,
};

/// The README's examples compile.
#[cfg(all(doctest, feature = "cuda"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
