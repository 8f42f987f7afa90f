//! Traces, cost counts and visualizations of tiled kernels, by thread.
//!
//! The interpreter runs the kernels that run on the GPU, and [`trace`] records each of their
//! operations. Text, figures and pages are derived from traces alone, so none can drift from the
//! code.

pub mod assembled;
pub mod formula;
#[cfg(feature = "guide")]
pub mod guide;
pub mod memory_state;
pub mod nests;
pub mod number;
pub mod page;
pub mod pipeline;
pub mod profile;
pub mod sample_launch;
pub mod sass;
#[cfg(not(target_family = "wasm"))]
pub mod serve;
// Only the guide needs all of it.
#[cfg_attr(not(feature = "guide"), allow(dead_code))]
mod svg;
pub mod trace;

mod error;

pub use error::{Error, Result};
