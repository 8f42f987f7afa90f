//! The kernel language: one description that is printed as PTX and run by the interpreter.
//!
//! A kernel is built by [`kernel()`], checked by [`check()`], and only then used: [`Checked`] is what every engine takes.
//!
//! * **Threads.** A grid of blocks of at most 1024 threads; 32 consecutive threads (x fastest) are a warp. Each thread computes
//!   with its own registers. Control flow is structured: `for`, `if`, `while`.
//! * **Values and variables.** A [`Val`] is the result of one operation and never changes; a [`Var`] is a register that does.
//!   Types are those of [`tegula_core::element::Type`]; there are no implicit conversions.
//! * **Global memory** is matrices ([`Global`]), indexed by coordinates: reading past a row is an error even where the address
//!   exists. Extents are below 2³¹, strides are 64-bit, so matrices of more than 2³² elements work.
//! * **Shared memory** is arrays ([`Shared`]), one arena a block, uninitialised when the block starts.
//! * **Order.** Two accesses to one element, one of them a write, from two threads, need something that orders them: a barrier, a
//!   warp synchronisation, or a release that an acquire saw. Without it they race, whatever the schedule does; also within a warp.
//! * **Floating point.** Addition, multiplication and multiply-add round once to nearest even and keep subnormals. Matrix
//!   instructions ([`Mma`]) do as the hardware does; the interpreter says what that is.
//!
//! ```
//! use tegula_ir::prelude::*;
//!
//! /// y = 2·x, one thread an element of a single row.
//! let double = kernel("double", Block::d1(128), |k| {
//!     let (x, y) = (k.input::<f32>("x"), k.output::<f32>("y"));
//!     k.grid([x.cols().div_ceil(128), k.constant(1), k.constant(1)]);
//!     let i = k.block_x() * 128 + k.thread_x();
//!     k.when(i.lt(x.cols()), || y.store((0, i), x.load((0, i)) * 2.0));
//! });
//! let checked = check(double)?;
//! assert_eq!(checked.threads(), 128);
//! # Ok::<(), tegula_core::Error>(())
//! ```

pub mod bounds;
mod build;
mod check;
pub mod cpp;
mod fold;
mod hopper;
mod infer;
pub mod launch;
mod layout;
mod mma;
mod operand;
pub mod ops;
pub mod prelude;
pub mod ptx;
mod real;
mod recorder;
mod types;
mod uniform;

pub use build::FULL_WARP;
pub use check::{Checked, MAX_PARAMETER_BYTES, MAX_SHARED_BYTES, MAX_THREADS, check};
pub use hopper::build::{Barriers, Tensor};
pub use hopper::{Factor, Hopper, LeftFactor, Swizzle, Tiles, Wgmma};
pub use launch::GRID_YZ_LIMIT;
pub use mma::Mma;
pub use ops::*;
pub use recorder::{Block, Builder, kernel};
pub use tegula_core::diagnostic::{Fault, FaultKind};
pub use types::{Array, Bits, Coord, Cursor, Elements, Float, Global, Integer, IntoVal, Pred, Shared, Val, Var};
pub use uniform::Uniform;
