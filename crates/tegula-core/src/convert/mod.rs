//! Conversions between views and the views of other matrix crates, without copies.
//!
//! Each is behind the feature of the crate's name: `ndarray` (0.17), `ndarray-016` and `faer`.
//! Negative and zero strides are kept. `tegula::convert` lists these conversions and those of owned
//! matrices.
#![allow(unsafe_code)]

#[cfg(feature = "faer")]
mod faer;
#[cfg(any(feature = "ndarray", feature = "ndarray-016"))]
mod ndarray;
