//! The kernels: one idea a file, and what all of them share.
//!
//! A [`GemmKernel`] names a kernel that multiplies and its configuration, a [`HelperKernel`] one
//! that packs operands before it or adds split work after it; a [`Variant`] is either. Building it
//! makes a [`tegula_ir::Kernel`]. Sizes and addresses are no part of it: one built kernel serves
//! every problem.
//!
//! Kernels come in families ([`KernelFamily`]), which the [`registry`] lists.

/// A kernel function for the element type of that tag, where plain arithmetic has it.
macro_rules! of_type {
    ($ty:expr, $kernel:ident($variant:expr)) => {
        tegula_core::element::with_operand_type!(
            $ty,
            T => Ok($kernel::<T>($variant)),
            ty => Err(Error::no_kernels(ty))
        )
    };
}

mod blocked;
mod dispatch;
mod dmma;
mod ends;
mod epilogue;
mod family;
mod fragments;
mod helper;
mod hopper;
mod limbs;
mod mend;
mod mma;
mod naive;
mod name;
mod orders;
mod pack;
mod plain;
pub mod plan;
mod product;
mod reduce;
mod register;
pub mod registry;
mod stage;
mod sum;
mod tiled;
mod variant;
mod vector;

pub use blocked::{Blocked, Blocking, Core, Schedule};
pub use ends::Ends;
pub use family::{GemmVariant, KernelFamily};
pub use fragments::Fragments;
pub use helper::HelperKernel;
pub use hopper::{Hopper, Pipeline};
pub use mend::Mend;
pub use name::{Form, KernelName};
pub use pack::{Pack, PackBoth, Packing};
pub use plain::{Barriers, Edges, Family, Mapping, PLANTS, PRESETS, Plain};
pub use reduce::Reduce;
pub use registry::GemmKernel;
pub use sum::{Adding, Sum};
pub use variant::Variant;
pub use vector::Vector;

/// The files in which kernels are written, and their text: where the lines of a kernel's operations
/// ([`tegula_ir::Site`]) lie. Those of families, and those that they share.
pub fn sources() -> impl Iterator<Item = (&'static str, &'static str)> {
    let families = registry::FAMILIES.iter().flat_map(|family| family.sources).copied();
    families.chain(SHARED.iter().copied())
}

const SHARED: &[(&str, &str)] = family::sources! { "product.rs" "epilogue.rs" "stage.rs" };
