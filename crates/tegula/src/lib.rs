//! Tiled matrix multiplication.
#![deny(unsafe_code)]
pub mod cpu;
pub mod element;
pub mod error;
pub mod interp;
pub mod ir;
pub mod matrix;
pub mod oracle;

pub use error::{Error, Result};
pub use matrix::{Layout, Matrix, Shape, View, ViewMut};
