//! Tiled matrix multiplication, C = act(αAB + βC + bias), for any shape and strides.
//!
//! ```
//! use tegula::Matrix;
//!
//! let a = Matrix::from_vec(2, 3, vec![1f32, 2., 3., 4., 5., 6.])?;
//! let b = Matrix::from_vec(3, 2, vec![1f32, 0., 0., 1., 1., 1.])?;
//! let c = &a * &b; // on a GPU if present; `matmul(&a, &b)?` returns errors instead of panicking
//! assert_eq!(c[[1, 0]], 10.);
//! assert_eq!(c.as_slice(), [4., 5., 10., 11.]);
//! # Ok::<(), tegula::Error>(())
//! ```
//!
//! * [`matmul`] and [`Gemm`]: products of matrices and batches; [`Gemm::explain`] describes the
//!   plan, [`Gemm::progress`] reports progress.
//! * [`Grouped`]: grouped GEMM, groups of rows with a matrix B each, as in expert layers.
//! * [`nd`]: products of arrays of any number of axes, with the semantics of `numpy.matmul`.
//! * [`Matrix`], [`View`], [`ViewMut`]: owned matrices with `*` and `[[row, col]]`, and strided
//!   views of host or GPU memory.
//! * [`Device`]: CPU, interpreter or GPU; [`cuda`]: GPUs, their memory, streams and graphs.
//! * [`element`], [`epilogue`]: element types, bias and activations.
//! * [`Error`]: errors, each with its remedy.
//!
//! | feature | |
//! |---|---|
//! | `cuda` (default) | NVIDIA GPUs; the driver is loaded when it is first used |
//! | `interp` | `Device::interp`: GPU kernels run without a GPU, with checks for races and bounds |
//! | `faer`, `ndarray`, `ndarray-016` | views of those crates' matrices, see [`convert`] |
//!
//! The library logs through `tracing`. Level debug: the chosen plan and instruction set, copies and
//! their rate. Level info: kernels that the driver loaded, and tuned problems. Level warn: unusable
//! tuning caches (see [`cache`]), and failed searches. Level error: a kernel with a wrong result,
//! which a search found and does not use.
//!
//! The kernels of `tegula-kernels` are written in the language of `tegula-ir`; `tegula-interp` runs
//! them without a GPU. `tegula-bench` times products beside peer libraries. `ARCHITECTURE.md` in
//! the repository is the map.
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
#[doc(hidden)]
pub mod tune;

pub use device::Device;
pub use gemm::{Gemm, Grouped, Prepacked, Report, matmul};
pub use matrix::Matrix;
pub use tegula_core::element::Accuracy;
pub use tegula_core::{
    Error, Layout, Phase, Progress, Result, Shape, View, ViewMut, element, epilogue, error, progress,
};

/// Compiles and runs the examples of the README.
#[cfg(all(doctest, feature = "cuda"))]
#[doc = include_str!("../../../README.md")]
struct Readme;

/// Compiles and runs the examples of `docs/library.md`.
#[cfg(all(doctest, feature = "cuda"))]
#[doc = include_str!("../../../docs/library.md")]
struct LibraryGuide;
