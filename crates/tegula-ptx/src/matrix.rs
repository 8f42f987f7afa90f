//! The matrix instructions of a warp: `mma.sync`, `wmma`, `ldmatrix`, `stmatrix` and `movmatrix`.
//!
//! The modules have no state: they compute output lanes from input lanes. An instruction that
//! accesses memory returns the offsets of its accesses; the caller loads or stores the words.
//!
//! | file | contents |
//! |---|---|
//! | `element` | types of elements |
//! | `modifiers` | modifiers of an instruction, in any order |
//! | `fragment` | the mapping of matrix elements to lanes and registers |
//! | `product` | C + A·B, with the arithmetic of the Tensor Cores |
//! | `round` | rounding to half precision |
//! | `mma` | `mma.sync` |
//! | `wmma` | `wmma.load`, `wmma.mma` and `wmma.store` |
//! | `rows` | `ldmatrix`, `stmatrix` and `movmatrix` |

mod element;
mod fragment;
#[cfg(test)]
mod hardware_tests;
mod mma;
mod modifiers;
mod product;
mod round;
mod rows;
mod wmma;

pub use mma::{Mma, Registers};
pub use rows::{LdMatrix, StMatrix, decode_movmatrix, movmatrix};
pub use wmma::{Access, Wmma, WmmaTransfer};
