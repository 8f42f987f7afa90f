//! Views of other crates' matrices, and back, each behind the feature of the crate's name:
//! `ndarray` (0.17), `ndarray-016` and `faer`. Nothing is copied; reversed and repeated axes stay
//! as they are. `tegula::convert` lists these conversions and those of owned matrices.
#![allow(unsafe_code)]

#[cfg(feature = "faer")]
mod faer;
#[cfg(any(feature = "ndarray", feature = "ndarray-016"))]
mod ndarray;
