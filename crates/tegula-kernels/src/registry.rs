//! The registry of kernel families. A new family is a file that implements
//! [`KernelFamily`], and a name in the list at the end of this file.

use std::fmt;

use tegula_core::element::{Accuracy, Type};
use tegula_core::epilogue::Epilogue;
use tegula_core::error::Result;
use tegula_core::matrix::Shape;
use tegula_ir::{Kernel, Order2d};

use crate::blocked::Blocked;
use crate::family::{GemmVariant, KernelFamily};
use crate::helper::HelperKernel;
use crate::hopper::Hopper;
use crate::name::KernelName;
use crate::pack::Packing;
use crate::plain::Plain;
use crate::plan::device::GpuDescription;
use crate::plan::problem::{OperandLayout, Problem};
use crate::plan::recipe::{CandidateOf, RecipeOf, Split, SplitReduction};
use crate::vector::Vector;
use crate::warp_tile::WarpTile;

/// A family, for the command line and tests.
#[derive(Clone, Copy, Debug)]
pub struct FamilyEntry {
    /// The names of its kernels, or their prefixes.
    pub names: &'static [KernelName],
    /// The source files of its kernels, and their text.
    pub sources: &'static [(&'static str, &'static str)],
    /// As [`KernelFamily::listed`].
    pub listed: fn(Type) -> Vec<String>,
    /// As [`KernelFamily::assembled`].
    pub assembled: fn() -> Vec<GemmKernel>,
}

/// Defines [`GemmKernel`] with a variant for each family, and its dispatch to them.
macro_rules! registry {
    ($($Family:ident),*) => {
        /// A GEMM kernel of one of the families of the registry.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum GemmKernel {
            $(
                #[doc = concat!("Of the family [`", stringify!($Family), "`].")]
                $Family($Family),
            )*
        }

        /// All families.
        pub const FAMILIES: &[FamilyEntry] = &[$(FamilyEntry {
            names: $Family::NAMES,
            sources: $Family::SOURCES,
            listed: $Family::listed,
            assembled: || $Family::assembled().into_iter().map(GemmKernel::$Family).collect(),
        }),*];

        impl GemmKernel {
            /// Parses a name, for row-major matrices: a [name](KernelFamily::NAMES) of a family,
            /// and its parameters.
            ///
            /// # Errors
            /// [`Error::KernelOption`](tegula_core::Error::KernelOption) with the known names.
            pub fn named(name: &str, ty: Type) -> Result<Self> {
                $(if $Family::NAMES.iter().any(|known| known.matches(name)) {
                    return <$Family as KernelFamily>::named(name, ty).map(GemmKernel::$Family);
                })*
                <Plain as KernelFamily>::named(name, ty).map(GemmKernel::Plain)
            }

            /// The candidates of all families for a product.
            pub(crate) fn candidates(problem: &Problem, gpu: &GpuDescription) -> Vec<CandidateOf<Self>> {
                let mut all = Vec::new();
                $(all.extend(<$Family as KernelFamily>::candidates(problem, gpu).into_iter().map(of_any_family));)*
                all
            }

            /// The first candidate of all families with the least predicted time.
            pub(crate) fn fastest(problem: &Problem, gpu: &GpuDescription) -> Option<CandidateOf<Self>> {
                let of_families = [$(<$Family as KernelFamily>::fastest(problem, gpu).map(of_any_family)),*];
                of_families.into_iter().flatten().min_by(|a, b| a.time().total_cmp(&b.time()))
            }

            /// The candidates of all families that divide k into this number of ranges.
            pub(crate) fn candidates_in_ranges(
                problem: &Problem,
                gpu: &GpuDescription,
                ranges: u32,
            ) -> Vec<CandidateOf<Self>> {
                let mut all = Vec::new();
                $(
                    let candidates = <$Family as KernelFamily>::candidates_in_ranges(problem, gpu, ranges).into_iter();
                    all.extend(candidates.map(of_any_family));
                )*
                all
            }

            /// Whether the speed of this configuration is measured.
            pub fn is_measured(&self) -> bool {
                match self { $(GemmKernel::$Family(kernel) => kernel.is_measured()),* }
            }
        }

        impl GemmVariant for GemmKernel {
            fn build(&self) -> Result<Kernel> {
                match self { $(GemmKernel::$Family(kernel) => GemmVariant::build(kernel)),* }
            }

            fn ty(&self) -> Type {
                match self { $(GemmKernel::$Family(kernel) => kernel.ty()),* }
            }

            fn tile(&self) -> [u32; 2] {
                match self { $(GemmKernel::$Family(kernel) => kernel.tile()),* }
            }

            fn with_epilogue(self, epilogue: Epilogue) -> Self {
                match self { $(GemmKernel::$Family(kernel) => kernel.with_epilogue(epilogue).into()),* }
            }

            fn check_size(&self) -> [u32; 3] {
                match self { $(GemmKernel::$Family(kernel) => kernel.check_size()),* }
            }

            fn supports(&self, split: Split, packed: [bool; 2], swapped: bool) -> bool {
                match self { $(GemmKernel::$Family(kernel) => kernel.supports(split, packed, swapped)),* }
            }

            fn legalize(recipe: RecipeOf<Self>, layouts: [OperandLayout; 3]) -> RecipeOf<Self> {
                match recipe.kernel {
                    $(GemmKernel::$Family(kernel) => {
                        $Family::legalize(recipe.map(|_| kernel), layouts).map(GemmKernel::$Family)
                    }),*
                }
            }

            fn accuracy(&self) -> Accuracy {
                match self { $(GemmKernel::$Family(kernel) => kernel.accuracy()),* }
            }

            fn transposed_operands(&self) -> [bool; 2] {
                match self { $(GemmKernel::$Family(kernel) => kernel.transposed_operands()),* }
            }

            fn packing(&self) -> Packing {
                match self { $(GemmKernel::$Family(kernel) => kernel.packing()),* }
            }

            fn packed_columns(&self) -> usize {
                match self { $(GemmKernel::$Family(kernel) => kernel.packed_columns()),* }
            }

            fn workspace(&self, split: Split, c: Shape) -> Option<Shape> {
                match self { $(GemmKernel::$Family(kernel) => kernel.workspace(split, c)),* }
            }

            fn split_reduction(&self, split: Split, k: usize) -> SplitReduction {
                match self { $(GemmKernel::$Family(kernel) => kernel.split_reduction(split, k)),* }
            }

            fn reduction_kernel(
                &self,
                split: Split,
                order: Order2d,
                elements: usize,
                epilogue: Epilogue,
            ) -> Option<HelperKernel> {
                match self {
                    $(GemmKernel::$Family(kernel) => {
                        kernel.reduction_kernel(split, order, elements, epilogue)
                    }),*
                }
            }
        }

        impl fmt::Display for GemmKernel {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self { $(GemmKernel::$Family(kernel) => kernel.fmt(f)),* }
            }
        }

        $(impl From<$Family> for GemmKernel {
            fn from(kernel: $Family) -> Self {
                GemmKernel::$Family(kernel)
            }
        }

        impl From<$Family> for RecipeOf<GemmKernel> {
            fn from(kernel: $Family) -> Self {
                RecipeOf::new(kernel.into())
            }
        })*
    };
}

registry!(Plain, Vector, WarpTile, Blocked, Hopper);

/// A candidate of a family as one among those of all families.
fn of_any_family<K: Into<GemmKernel>>(candidate: CandidateOf<K>) -> CandidateOf<GemmKernel> {
    CandidateOf { recipe: candidate.recipe.map(K::into), microseconds: candidate.microseconds }
}

impl From<GemmKernel> for RecipeOf<GemmKernel> {
    fn from(kernel: GemmKernel) -> Self {
        RecipeOf::new(kernel)
    }
}
