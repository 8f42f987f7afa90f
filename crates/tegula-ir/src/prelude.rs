//! The imports of a kernel's source.

pub use tegula_core::element::{Arith, Element, Scalar, Type, bf16, f16};

pub use super::build::FULL_WARP;
pub use super::check::{Checked, check};
pub use super::hopper::build::{Mbarriers, Tensor};
pub use super::hopper::{SharedOperand, Swizzle, Tiles, Wgmma};
pub use super::layout::Order2d;
pub use super::mma::Mma;
pub use super::ops::{Access, AtomicOp, Compare, Guard, Kernel, MemoryOrder, Scope, Shuffle};
pub use super::recorder::{Block, Builder, kernel};
pub use super::types::{Array, Coord, Cursor, Elements, Global, IntoVal, Pred, Shared, Val, Var};
