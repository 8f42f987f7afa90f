//! Shared foundation of Tegula's crates: element types, layouts, views, errors, epilogues, threads.
//!
//! Programs depend on the crate `tegula`, which re-exports the public part of this crate.
#![deny(unsafe_code)]

mod available;
pub mod convert;
pub mod diagnostic;
pub mod element;
pub mod epilogue;
pub mod error;
#[allow(unsafe_code)]
mod fork;
pub mod host;
#[allow(unsafe_code)]
pub mod lanes;
pub mod matrix;
pub mod nd;
pub mod progress;
pub mod real;
pub mod threads;

pub use element::Accuracy;
pub use error::{Error, Result};
pub use matrix::{Layout, Shape, View, ViewMut};
pub use progress::{Phase, Progress};
