//! All that a kernel's source needs.

pub use tegula_core::element::{Arith, Element, Scalar, Type, bf16, f16};

pub use super::build::FULL_WARP;
pub use super::check::{Checked, check};
pub use super::hopper::build::{Barriers, Tensor};
pub use super::hopper::{Factor, Swizzle, Tiles, Wgmma};
pub use super::layout::Order2d;
pub use super::mma::Mma;
pub use super::ops::{Access, AtomicOp, Compare, Guard, Kernel, Order, Scope, Shuffle};
pub use super::recorder::{Block, Builder, kernel};
pub use super::types::{Array, Coord, Cursor, Elements, Global, IntoVal, Pred, Shared, Val, Var};
