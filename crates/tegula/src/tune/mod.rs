//! The search for the fastest kernel of a product, and the measurement that it is made of.
//!
//! - `stats`, `interleave`: statistics of samples and their order, for anything with a clock;
//! - `data`: random inputs;
//! - `search`: shortlist, screening and confirmation of candidates, for anything with a clock;
//! - `operand_sets`, `graph_timer`: operands that stay on a GPU, and calls timed by events;
//! - `scratch`, `verify`, `gpu`: the search on a GPU, on random matrices, and a check of results;
//! - `autotune`: a search at the first run of a problem;
//! - `calibrate`: the properties of a GPU that its cost models need.
//!
//! `tegula-bench` and the command line measure with the same parts.

#[cfg(feature = "cuda")]
pub(crate) mod autotune;
#[cfg(feature = "cuda")]
mod calibrate;
pub mod data;
#[cfg(feature = "cuda")]
mod gpu;
#[cfg(feature = "cuda")]
pub mod graph_timer;
pub mod interleave;
#[cfg(feature = "cuda")]
pub mod operand_sets;
#[cfg(feature = "cuda")]
pub mod scratch;
pub mod search;
pub mod stats;
#[cfg(feature = "cuda")]
mod verify;

#[cfg(feature = "cuda")]
pub use calibrate::{GpuCalibration, calibrate};
#[cfg(feature = "cuda")]
pub use gpu::tune;
