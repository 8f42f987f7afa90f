//! Tiled matrix multiplication.
#![deny(unsafe_code)]
pub mod element;
pub mod error;
pub mod interp;
pub mod ir;
pub mod kernels;
pub mod matrix;
pub mod ptx;

pub use error::{Error, Result};
pub use matrix::{Layout, Matrix, Shape, View, ViewMut};
