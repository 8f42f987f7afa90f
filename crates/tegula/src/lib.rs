//! Tiled matrix multiplication: C = act(αAB + βC + bias) for the number types people use, any shape, any strides.
//!
//! ```
//! use tegula::{Matrix, matmul};
//!
//! let a = Matrix::from_vec(2, 3, vec![1f32, 2., 3., 4., 5., 6.])?;
//! let b = Matrix::from_vec(3, 2, vec![1f32, 0., 0., 1., 1., 1.])?;
//! let c = matmul(&a, &b)?; // on a GPU if there is one
//! assert_eq!(c.as_slice(), [4., 5., 10., 11.]);
//! # Ok::<(), tegula::Error>(())
//! ```
//!
//! [`matmul`] and [`Gemm`] multiply matrices and batches of them, [`Grouped`] groups of rows by a matrix each, [`nd`] arrays of any number of
//! axes as `numpy.matmul` does. A product
//! can be asked what it would do ([`Gemm::explain`]) and tells how far it has come ([`Gemm::progress`]); through `tracing` the library
//! says, at level debug, which plan and instruction set it chose, what it copied and how fast, and where a kernel came from; a kernel that
//! had to be assembled is told at level info, and at level warn winners of `tegula tune` that cannot be used (see [`cache`]). How large products may be is in [`plan::limits`].
//!
//! [`ir`] is the language that GPU kernels are described in, [`ptx`] prints it, [`interp`]
//! runs it on any machine and finds what is wrong with it, [`cuda`] runs it on a GPU. [`nests`] explains tiling before all that. `ARCHITECTURE.md` in the repository has
//! the map.
#![deny(unsafe_code)]

pub mod cache;
#[cfg(feature = "cuda")]
pub mod cuda;
mod device;
mod exec;
mod gemm;
#[cfg(feature = "interp")]
#[doc(hidden)]
pub mod interpret;
pub mod nd;

pub use device::Device;
pub use gemm::{Gemm, Grouped, Prepacked, Report, matmul};
pub use tegula_core::element::Accuracy;
pub use tegula_core::{
    Error, Layout, Matrix, Phase, Progress, Result, Shape, View, ViewMut, convert, element, epilogue, error, matrix,
    progress,
};

/// The README's examples compile.
#[cfg(all(doctest, feature = "cuda"))]
#[doc = include_str!("../../../README.md")]
struct Readme;
