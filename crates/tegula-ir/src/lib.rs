//! The kernel language: a typed, structured IR, printed as PTX and run by the interpreter.
//!
//! [`kernel()`] builds a kernel, [`check()`] checks it, and every engine takes a [`Checked`]
//! kernel.
//!
//! * **Threads.** A grid of blocks of at most 1024 threads; 32 consecutive threads (x fastest) form
//!   a warp. Each thread has its own registers. Control flow is structured: `for`, `if`, `while`.
//! * **Values and variables.** A [`Val`] is the immutable result of one operation; a [`Var`] is a
//!   mutable register. Types are those of [`tegula_core::element::Type`], without implicit
//!   conversions.
//! * **Global memory** consists of matrices ([`Global`]), indexed by coordinates. An access beyond
//!   the end of a row is an error even where the address is valid. Extents are below 2³¹. Strides
//!   have 64 bits, so a matrix can have more than 2³² elements.
//! * **Shared memory** consists of arrays ([`Shared`]) in one arena for each block, uninitialized
//!   when the block starts.
//! * **Memory model.** Two accesses to one element by two threads, one of them a write, must be
//!   ordered: by a barrier, a warp synchronization, or a release observed by an acquire. Otherwise
//!   they are a data race under any schedule, also within a warp.
//! * **Floating point.** Addition, multiplication and multiply-add round once, to nearest even, and
//!   keep subnormals. Matrix instructions ([`Mma`]) compute as the hardware does; the interpreter
//!   defines their result.
//!
//! ```
//! use tegula_ir::prelude::*;
//!
//! /// y = 2·x for a single row, one element for each thread.
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
mod uniformity;

pub use build::FULL_WARP;
pub use check::{Checked, MAX_PARAMETER_BYTES, MAX_SHARED_BYTES, MAX_THREADS, check};
pub use hopper::build::{Mbarriers, Tensor};
pub use hopper::{HopperOp, LeftOperand, SharedOperand, Swizzle, Tiles, Wgmma};
pub use launch::GRID_YZ_LIMIT;
pub use mma::Mma;
pub use ops::*;
pub use recorder::{Block, Builder, kernel};
pub use tegula_core::diagnostic::{Fault, FaultKind};
pub use types::{Array, Bits, Coord, Cursor, Elements, Float, Global, Integer, IntoVal, Pred, Shared, Val, Var};
pub use uniform::Uniform;
