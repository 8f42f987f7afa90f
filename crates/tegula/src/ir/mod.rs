//! The kernel language: one description that is printed as PTX and run by the interpreter.
//!
//! A kernel is built by [`kernel()`], checked by [`check()`], and only then used: [`Checked`] is what every engine takes.
//!
//! * **Threads.** A grid of blocks of at most 1024 threads; 32 consecutive threads (x fastest) are a warp. Each thread computes
//!   with its own registers. Control flow is structured: `for`, `if`, `while`.
//! * **Values and variables.** A [`Val`] is the result of one operation and never changes; a [`Var`] is a register that does.
//!   Types are those of [`crate::element::Type`]; there are no implicit conversions.
//! * **Global memory** is matrices ([`Global`]), indexed by coordinates: reading past a row is an error even where the address
//!   exists. Extents are below 2³¹, strides are 64-bit, so matrices of more than 2³² elements work.
//! * **Shared memory** is arrays ([`Shared`]), one arena a block, uninitialised when the block starts.
//! * **Order.** Two accesses to one element, one of them a write, from two threads, need something that orders them: a barrier, a
//!   warp synchronisation, or a release that an acquire saw. Without it they race, whatever the schedule does; also within a warp.
//! * **Floating point.** Addition, multiplication and multiply-add round once to nearest even and keep subnormals. Matrix
//!   instructions ([`Mma`]) do as the hardware does; the interpreter says what that is.
//!
//! ```
//! use tegula::ir::prelude::*;
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
//! # Ok::<(), tegula::Error>(())
//! ```

pub(crate) mod bounds;
mod build;
mod check;
mod fold;
mod hopper;
pub mod launch;
mod mma;
pub mod ops;
mod types;
mod uniform;

use std::fmt;
use std::panic::Location;

pub use build::{Block, Builder, FULL_WARP, GRID_YZ_LIMIT, kernel};
pub use check::{Checked, MAX_PARAMETER_BYTES, MAX_SHARED_BYTES, MAX_THREADS, check};
pub use hopper::{Barriers, Factor, Hopper, LeftFactor, Swizzle, Tensor, Tiles, Wgmma};
pub use mma::Mma;
pub use ops::*;
pub use types::{Array, Bits, Coord, Cursor, Elements, Float, Global, Integer, IntoVal, Pred, Shared, Val, Var};
pub use uniform::Uniform;

/// All that a kernel's source needs.
pub mod prelude {
    pub use super::{
        Access, Array, AtomicOp, Barriers, Block, Builder, Checked, Compare, Coord, Cursor, Elements, FULL_WARP,
        Factor, Global, Guard, IntoVal, Kernel, Mma, Order, Order2d, Pred, Scope, Shared, Shuffle, Swizzle, Tensor,
        Tiles, Val, Var, Wgmma, check, kernel,
    };
    pub use crate::element::{Arith, Element, Scalar, Type, bf16, f16};
}

/// Why a kernel is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FaultKind {
    /// Types, sizes or coordinates that do not fit.
    Type,
    /// An access that is wider than its memory's alignment, or of a width the hardware lacks.
    Width,
    /// A barrier in control flow on which the threads that should meet there do not agree.
    DivergentBarrier,
    /// A warp-wide operation in control flow on which the lanes of the warp do not agree.
    DivergentWarp,
    /// A variable that may be read before it is set.
    Uninitialised,
    /// A value used outside the loop or branch that computes it.
    Scope,
    /// More shared memory than a block can have.
    SharedMemory,
    /// A block, grid or parameter list that cannot be launched.
    Launch,
}

impl FaultKind {
    /// The name in reports: `divergent-barrier`, …
    pub const fn name(self) -> &'static str {
        match self {
            FaultKind::Type => "type",
            FaultKind::Width => "width",
            FaultKind::DivergentBarrier => "divergent-barrier",
            FaultKind::DivergentWarp => "divergent-warp",
            FaultKind::Uninitialised => "uninitialised",
            FaultKind::Scope => "scope",
            FaultKind::SharedMemory => "shared-memory",
            FaultKind::Launch => "launch",
        }
    }
}

/// Something in a kernel's description that is wrong whatever the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind.
    pub kind: FaultKind,
    /// What it is, and what to do.
    pub message: String,
    /// Where it was written, if it was written anywhere.
    pub source: Option<&'static Location<'static>>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.message)?;
        match self.source {
            Some(at) => write!(f, " ({}:{})", at.file(), at.line()),
            None => Ok(()),
        }
    }
}
