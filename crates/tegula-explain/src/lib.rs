//! What a kernel does, thread by thread, and what it costs.
//!
//! The interpreter runs the kernels that run on the GPU; [`trace`] writes down what it saw, and everything shown to people is made from
//! that alone, so no picture can drift from the code.

pub mod assembled;
pub mod formula;
pub mod guide;
pub mod nests;
pub mod number;
pub mod page;
pub mod pipeline;
pub mod product;
pub mod profile;
pub mod sass;
pub mod scene;
#[cfg(not(target_family = "wasm"))]
pub mod serve;
mod svg;
pub mod trace;

mod error;

pub use error::{Error, Result};
