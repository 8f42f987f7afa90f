//! What a family of GEMM kernels defines: the names and sources of its kernels, how a recipe uses
//! one, and which of them may compute a product.

mod blocked;
mod hopper;
mod plain;
mod vector;

use std::fmt;

use tegula_core::element::{Accuracy, Type};
use tegula_core::epilogue::Epilogue;
use tegula_core::error::Result;
use tegula_core::matrix::Shape;
use tegula_ir::{Kernel, Order2d};

use crate::helper::HelperKernel;
use crate::name::KernelName;
use crate::pack::{Pack, Packing};
use crate::plan::device::GpuDescription;
use crate::plan::problem::{Lie, Problem};
use crate::plan::recipe::{CandidateOf, Meeting, RecipeOf, Split};
use crate::sum::{Adding, Sum};

/// A configuration of a GEMM kernel, as recipes use it.
pub trait GemmVariant: Copy + PartialEq + fmt::Display {
    /// Builds the kernel: parameters `a`, `b`, `c`, then `bias` if there is one, `alpha`, `beta`;
    /// of split work as its [`Meeting`] says.
    ///
    /// # Errors
    /// [`Error::KernelOption`](tegula_core::Error::KernelOption) for a configuration or a type that
    /// the kernel cannot have.
    fn build(&self) -> Result<Kernel>;

    /// Element type of A and B.
    fn ty(&self) -> Type;

    /// Rows and columns of a tile of C.
    fn tile(&self) -> [u32; 2];

    /// The same with an epilogue.
    #[must_use]
    fn with_epilogue(self, epilogue: Epilogue) -> Self;

    /// The m, n and k of a small problem that uses all of the kernel: a tile, and enough steps
    /// along k to fill its pipeline.
    fn check_size(&self) -> [u32; 3];

    /// Whether a recipe may split the work so, pack these operands, or compute the transpose.
    fn supports(&self, split: Split, packed: [bool; 2], swapped: bool) -> bool;

    /// The recipe for operands A, B and C with these layouts.
    #[must_use]
    fn fit(recipe: RecipeOf<Self>, lies: [Lie; 3]) -> RecipeOf<Self>;

    /// How exact its products are.
    fn accuracy(&self) -> Accuracy {
        Accuracy::Full
    }

    /// Whether the kernel takes its left and right operand transposed.
    fn transposed_operands(&self) -> [bool; 2] {
        [false; 2]
    }

    /// How elements of packed operands are converted.
    fn packing(&self) -> Packing {
        Packing::Same
    }

    /// Rows of packed operands have a multiple of so many columns.
    fn packed_columns(&self) -> usize {
        Pack { ty: self.ty(), from: Order2d::RowMajor, packing: self.packing() }.unit()
    }

    /// The shape of the workspace for split work, for a C as the kernel takes it.
    fn workspace(&self, split: Split, c: Shape) -> Option<Shape> {
        match split {
            Split::Whole => None,
            Split::Parts(parts) => Some(Shape { batches: c.batches.saturating_mul(parts as usize), ..c }),
            Split::Workers(workers) => {
                let [rows, cols] = self.tile().map(|extent| extent as usize);
                Some(Shape { batches: 2 * workers as usize, rows, cols })
            }
        }
    }

    /// How split work meets again, for products of that k.
    fn meeting(&self, split: Split, _k: usize) -> Meeting {
        match split {
            Split::Whole => Meeting::None,
            Split::Parts(_) | Split::Workers(_) => Meeting::Sum,
        }
    }

    /// The kernel that adds split work, if there is one, for a C with so many elements.
    fn second(&self, split: Split, order: Order2d, elements: usize, epilogue: Epilogue) -> Option<HelperKernel> {
        let Split::Parts(parts) = split else { return None };
        Some(HelperKernel::Sum(Sum { ty: self.ty(), order, adding: Adding::of(parts, elements), epilogue }))
    }
}

/// A family of GEMM kernels. The [registry](crate::registry) lists all; the command line, plans,
/// tuning and the tests iterate over it.
pub trait KernelFamily: GemmVariant {
    /// The names of its kernels, or what they begin with.
    const NAMES: &'static [KernelName];

    /// The files in which its kernels are written, and their text.
    const SOURCES: &'static [(&'static str, &'static str)];

    /// The kernel of a name that begins with one of [`NAMES`](Self::NAMES), for row-major matrices.
    ///
    /// # Errors
    /// [`Error::KernelOption`](tegula_core::Error::KernelOption) that says what a name looks like.
    fn named(name: &str, ty: Type) -> Result<Self>;

    /// The recipes that may compute a product, with the predicted times that are known; of those
    /// without one the most promising come first.
    fn candidates(problem: &Problem, gpu: &GpuDescription) -> Vec<CandidateOf<Self>>;

    /// A recipe that a plan takes whatever other candidates cost: one without a predicted time for
    /// a problem that no other family suits as well.
    fn preferred(_problem: &Problem, _gpu: &GpuDescription) -> Option<RecipeOf<Self>> {
        None
    }

    /// The names of kernels that plans choose from for large products of elements of a type, in any
    /// layout and to any accuracy.
    fn listed(ty: Type) -> Vec<String>;

    /// The configurations that are assembled for every architecture, and must not spill: all that
    /// plans choose from, and those by name alone that differ from them.
    fn assembled() -> Vec<Self>;

    /// Whether a configuration is one of those whose speed is measured, and which is assembled for
    /// the newest GPU as well.
    fn is_measured(&self) -> bool {
        true
    }
}

/// Reads the kernels' own sources, for [`KernelFamily::SOURCES`].
macro_rules! sources {
    ($($file:literal)*) => { &[$(($file, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/", $file)))),*] };
}
pub(crate) use sources;

/// Orders of A and B, and whether rows are aligned to 16 bytes: aligned ones first.
fn layouts() -> impl Iterator<Item = (Order2d, Order2d, bool)> {
    let orders = [Order2d::RowMajor, Order2d::ColMajor];
    let both = move |vectors| orders.into_iter().flat_map(move |a| orders.map(|b| (a, b, vectors)));
    [true, false].into_iter().flat_map(both)
}

/// A large product of operands with such layouts, C row-major.
fn large(ty: Type, accuracy: Accuracy, (a, b, vectors): (Order2d, Order2d, bool)) -> Problem {
    let lies = [(a, vectors), (b, vectors), (Order2d::RowMajor, vectors)].map(|(order, v)| Lie::new(order, v));
    Problem { ty, accuracy, m: 8192, n: 8192, k: 8192, batches: 1, lies }
}

/// Adds what is not there yet.
fn add_new<T: PartialEq>(all: &mut Vec<T>, new: impl IntoIterator<Item = T>) {
    for item in new {
        if !all.contains(&item) {
            all.push(item);
        }
    }
}
