//! The interface of a family of GEMM kernels: names, sources, recipes and candidates.

mod blocked;
mod hopper;
mod plain;
mod vector;
mod warp_tile;

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
use crate::plan::problem::{OperandLayout, Problem};
use crate::plan::recipe::{CandidateOf, RecipeOf, Split, SplitReduction};
use crate::split_k_reduction::{ReductionSchedule, SplitKReduction};

/// A configuration of a GEMM kernel, for recipes.
pub trait GemmVariant: Copy + PartialEq + fmt::Display {
    /// Builds the kernel: parameters `a`, `b`, `c`, then `bias` if any, `alpha`, `beta`. For split
    /// work the parameters are those of its [`SplitReduction`].
    ///
    /// # Errors
    /// [`Error::KernelOption`](tegula_core::Error::KernelOption) for an invalid configuration, or
    /// an unsupported type.
    fn build(&self) -> Result<Kernel>;

    /// Element type of A and B.
    fn ty(&self) -> Type;

    /// Rows and columns of a tile of C.
    fn tile(&self) -> [u32; 2];

    /// Sets the epilogue.
    #[must_use]
    fn with_epilogue(self, epilogue: Epilogue) -> Self;

    /// The m, n and k of a small problem that covers the kernel: a tile, and enough k-steps to fill
    /// its pipeline.
    fn check_size(&self) -> [u32; 3];

    /// Whether the kernel supports a split, packed operands and the transposed product.
    fn supports(&self, split: Split, packed: [bool; 2], swapped: bool) -> bool;

    /// Adapts a recipe to the layouts of A, B and C.
    #[must_use]
    fn legalize(recipe: RecipeOf<Self>, layouts: [OperandLayout; 3]) -> RecipeOf<Self>;

    /// The accuracy of its products.
    fn accuracy(&self) -> Accuracy {
        Accuracy::Full
    }

    /// Whether the left and the right operand are passed transposed.
    fn transposed_operands(&self) -> [bool; 2] {
        [false; 2]
    }

    /// The conversion of packed elements.
    fn packing(&self) -> Packing {
        Packing::Same
    }

    /// The unit to which the columns of packed operands are padded.
    fn packed_columns(&self) -> usize {
        Pack { ty: self.ty(), from: Order2d::RowMajor, packing: self.packing() }.unit()
    }

    /// The shape of the workspace of split work, for a C as passed to the kernel.
    fn workspace(&self, split: Split, c: Shape) -> Option<Shape> {
        match split {
            Split::Whole => None,
            Split::SplitK(splits) => Some(Shape { batches: c.batches.saturating_mul(splits as usize), ..c }),
            Split::StreamK(workers) => {
                let [rows, cols] = self.tile().map(|extent| extent as usize);
                Some(Shape { batches: 2 * workers as usize, rows, cols })
            }
        }
    }

    /// The reduction of split work, for products of extent `k`.
    fn split_reduction(&self, split: Split, _k: usize) -> SplitReduction {
        match split {
            Split::Whole => SplitReduction::None,
            Split::SplitK(_) | Split::StreamK(_) => SplitReduction::SplitK,
        }
    }

    /// The kernel that reduces split work, if any, for a C of `elements` elements.
    fn reduction_kernel(
        &self,
        split: Split,
        order: Order2d,
        elements: usize,
        epilogue: Epilogue,
    ) -> Option<HelperKernel> {
        let Split::SplitK(splits) = split else { return None };
        let schedule = ReductionSchedule::of(splits, elements);
        Some(HelperKernel::SplitKReduction(SplitKReduction { ty: self.ty(), order, schedule, epilogue }))
    }
}

/// A family of GEMM kernels. The [registry](crate::registry) lists all; the command line, plans,
/// tuning and the tests iterate over it.
pub trait KernelFamily: GemmVariant {
    /// The names of its kernels, or their prefixes.
    const NAMES: &'static [KernelName];

    /// The source files of its kernels, and their text.
    const SOURCES: &'static [(&'static str, &'static str)];

    /// Parses a name that begins with one of [`NAMES`](Self::NAMES), for row-major matrices.
    ///
    /// # Errors
    /// [`Error::KernelOption`](tegula_core::Error::KernelOption) with the syntax of names.
    fn named(name: &str, ty: Type) -> Result<Self>;

    /// The candidates for a product. Those without a predicted time are ordered by promise.
    fn candidates(problem: &Problem, gpu: &GpuDescription) -> Vec<CandidateOf<Self>>;

    /// The first candidate with the least predicted time.
    fn fastest(problem: &Problem, gpu: &GpuDescription) -> Option<CandidateOf<Self>> {
        let all = Self::candidates(problem, gpu).into_iter();
        all.min_by(|a, b| a.time().total_cmp(&b.time()))
    }

    /// The candidates that divide k into this number of ranges, for every m: their order of
    /// accumulation may be that of others. None of a family that plans do not use in that way.
    fn candidates_in_ranges(_problem: &Problem, _gpu: &GpuDescription, _ranges: u32) -> Vec<CandidateOf<Self>> {
        Vec::new()
    }

    /// The names of candidate kernels for large products of an element type, in any layout and
    /// accuracy.
    fn listed(ty: Type) -> Vec<String>;

    /// The configurations that tests assemble for every architecture, and which must not spill: all
    /// candidates of plans, and the other kinds of configurations, which are selected by name only.
    fn assembled() -> Vec<Self>;

    /// Whether the speed of a configuration is measured; it is also assembled for the newest GPU.
    fn is_measured(&self) -> bool {
        true
    }
}

/// Includes source files of kernels, for [`KernelFamily::SOURCES`].
macro_rules! sources {
    ($($file:literal)*) => { &[$(($file, include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/", $file)))),*] };
}
pub(crate) use sources;

/// Orders of A and B, and whether they are aligned to 16 bytes, the aligned ones first.
fn layouts() -> impl Iterator<Item = (Order2d, Order2d, bool)> {
    let orders = [Order2d::RowMajor, Order2d::ColMajor];
    let both = move |aligned_16| orders.into_iter().flat_map(move |a| orders.map(|b| (a, b, aligned_16)));
    [true, false].into_iter().flat_map(both)
}

/// A large problem with these layouts of A and B, and a row-major C.
fn large_problem(ty: Type, accuracy: Accuracy, (a, b, aligned_16): (Order2d, Order2d, bool)) -> Problem {
    let layouts = [(a, aligned_16), (b, aligned_16), (Order2d::RowMajor, aligned_16)]
        .map(|(order, v)| OperandLayout::new(order, v));
    Problem { ty, accuracy, m: 8192, n: 8192, k: 8192, batches: 1, layouts }
}

/// Appends the items that are not present yet.
fn add_new<T: PartialEq>(all: &mut Vec<T>, new: impl IntoIterator<Item = T>) {
    for item in new {
        if !all.contains(&item) {
            all.push(item);
        }
    }
}
