//! The matrix instructions of a warp: `mma.sync`, `wmma`, `ldmatrix`, `stmatrix` and `movmatrix`.
//!
//! They know neither registers nor memory: lanes in, lanes out. What accesses memory gives the
//! offsets of its accesses, and takes or gives their words.
//!
//! | file | contents |
//! |---|---|
//! | `element` | types of elements |
//! | `modifiers` | modifiers of an instruction, in any order |
//! | `fragment` | which lane and register holds an element of a matrix |
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
