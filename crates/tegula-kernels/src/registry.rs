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
use crate::plan::problem::{Lie, Problem};
use crate::plan::recipe::{CandidateOf, Meeting, RecipeOf, Split};
use crate::vector::Vector;

/// A family, as the command line and tests see it.
#[derive(Clone, Copy, Debug)]
pub struct FamilyEntry {
    /// The names of its kernels, or what they begin with.
    pub names: &'static [KernelName],
    /// The files in which its kernels are written, and their text.
    pub sources: &'static [(&'static str, &'static str)],
    /// As [`KernelFamily::listed`].
    pub listed: fn(Type) -> Vec<String>,
    /// As [`KernelFamily::assembled`].
    pub assembled: fn() -> Vec<GemmKernel>,
}

/// Defines [`GemmKernel`] with a variant for each family, and what it passes on to them.
macro_rules! registry {
    ($($Family:ident),*) => {
        /// A kernel that multiplies, of one of the families of the registry.
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
            /// The kernel of that name, for row-major matrices: a [name](KernelFamily::NAMES) of a
            /// family, and its parameters.
            ///
            /// # Errors
            /// [`Error::KernelOption`](tegula_core::Error::KernelOption) that says what names there
            /// are.
            pub fn named(name: &str, ty: Type) -> Result<Self> {
                $(if $Family::NAMES.iter().any(|known| known.matches(name)) {
                    return <$Family as KernelFamily>::named(name, ty).map(GemmKernel::$Family);
                })*
                <Plain as KernelFamily>::named(name, ty).map(GemmKernel::Plain)
            }

            /// The recipes of all families that may compute a product, with the predicted times that
            /// are known.
            pub(crate) fn candidates(problem: &Problem, gpu: &GpuDescription) -> Vec<CandidateOf<Self>> {
                let mut all = Vec::new();
                $(all.extend(<$Family as KernelFamily>::candidates(problem, gpu).into_iter().map(|CandidateOf { recipe, microseconds }| {
                    CandidateOf { recipe: recipe.map(GemmKernel::$Family), microseconds }
                }));)*
                all
            }

            /// The first recipe that a family prefers to those with predicted times.
            pub(crate) fn preferred(problem: &Problem, gpu: &GpuDescription) -> Option<RecipeOf<Self>> {
                $(if let Some(recipe) = $Family::preferred(problem, gpu) {
                    return Some(recipe.map(GemmKernel::$Family));
                })*
                None
            }

            /// Whether it is one of those whose speed is measured.
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

            fn fit(recipe: RecipeOf<Self>, lies: [Lie; 3]) -> RecipeOf<Self> {
                match recipe.kernel {
                    $(GemmKernel::$Family(kernel) => {
                        $Family::fit(recipe.map(|_| kernel), lies).map(GemmKernel::$Family)
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

            fn meeting(&self, split: Split, k: usize) -> Meeting {
                match self { $(GemmKernel::$Family(kernel) => kernel.meeting(split, k)),* }
            }

            fn second(&self, split: Split, order: Order2d, elements: usize, epilogue: Epilogue) -> Option<HelperKernel> {
                match self { $(GemmKernel::$Family(kernel) => kernel.second(split, order, elements, epilogue)),* }
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

registry!(Plain, Vector, Blocked, Hopper);

impl From<GemmKernel> for RecipeOf<GemmKernel> {
    fn from(kernel: GemmKernel) -> Self {
        RecipeOf::new(kernel)
    }
}
