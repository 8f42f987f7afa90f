//! GPU kernels for matrix products, and the plan that chooses among them.
//!
//! A [`GemmKernel`] is a GEMM kernel with its configuration. A [`HelperKernel`] packs operands
//! before it, or reduces partial sums after it. A [`Variant`] is either, and builds a
//! [`tegula_ir::Kernel`]. Extents and addresses are launch arguments: one built kernel serves every
//! problem.
//!
//! Kernels belong to families ([`KernelFamily`]), which the [`registry`] lists.
//!
//! In the functions that build kernels, `k` is the kernel's [`Builder`](tegula_ir::Builder), by
//! convention, and never the extent k of a product.

/// Instantiates a kernel function for an element type with plain arithmetic.
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
mod epilogue;
mod family;
mod fix_up;
mod fragment_layout;
mod fragment_reduction;
mod group_ends;
mod helper;
mod hopper;
mod limbs;
mod mma;
mod naive;
mod name;
mod name_fields;
mod orders;
mod pack;
mod plain;
pub mod plan;
mod product;
mod register;
pub mod registry;
mod split_k_reduction;
mod stage;
mod tiled;
mod variant;
mod vector;
mod warp_tile;

pub use blocked::{Blocked, Blocking, MathInstruction, Schedule};
pub use family::{GemmVariant, KernelFamily};
pub use fix_up::FixUp;
pub use fragment_layout::FragmentLayout;
pub use fragment_reduction::FragmentReduction;
pub use group_ends::GroupEnds;
pub use helper::HelperKernel;
pub use hopper::{Hopper, Pipeline};
pub use name::{KernelName, NameSyntax};
pub use name_fields::upgrade_legacy_name;
pub use pack::{Pack, PackBoth, Packing};
pub use plain::{Barriers, Edges, INJECTED_BUGS, Mapping, PRESETS, Plain, PlainKind};
pub use registry::GemmKernel;
pub use split_k_reduction::{ReductionSchedule, SplitKReduction};
pub use variant::Variant;
pub use vector::Vector;
pub use warp_tile::WarpTile;

/// The source files of kernels and their text, to which the lines of a kernel's operations
/// ([`tegula_ir::Site`]) refer: those of families, and those that they share.
pub fn sources() -> impl Iterator<Item = (&'static str, &'static str)> {
    let families = registry::FAMILIES.iter().flat_map(|family| family.sources).copied();
    families.chain(SHARED.iter().copied())
}

const SHARED: &[(&str, &str)] = family::sources! { "product.rs" "epilogue.rs" "stage.rs" };
