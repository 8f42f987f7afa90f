//! The order of accumulation of a recipe, as data: all that decides the bits of an element of C
//! beyond its row of A, its column of B and the epilogue. Recipes of equal order compute equal
//! bits.
//!
//! An element of C is a sum over k. A recipe divides k into ranges (split-K, also within a cluster)
//! and each range among lanes (groups of warps, or threads along k). A lane adds its products one
//! after the other, or as many at once as an instruction does. Then the sums of the lanes are added
//! in order, and those of the ranges.
//!
//! Tiles, warps, stages, multicast, swapped operands, storage orders and packing leave the sum
//! alone. Two things are less obvious:
//!
//! * A kernel whose k-steps do not divide k fills up with zeros. Adding a zero product changes
//!   nothing but a sum of −0, which becomes +0; a sum of fused multiply-adds may be −0 by
//!   underflow. Zeros before the first product change nothing: sums start at +0. Tensor Cores of
//!   16-bit types have no sum of −0.
//! * Kernels of an order apply an epilogue by the same operations, since only `wgmma` pipelines
//!   reduce in a second kernel (`FragmentReduction`) as well as in a cluster.
//!
//! The interpreter's tests compare the bits of recipes of equal order (`it/batch_invariant`).

use smallvec::SmallVec;
use tegula_core::element::Type;
use tegula_ir::Mma;

use super::legalize::Recipe;
use super::recipe::{RecipeOf, Split};
use crate::blocked::{Blocked, MathInstruction};
use crate::family::GemmVariant;
use crate::hopper::Hopper;
use crate::pack::Pack;
use crate::plain::PlainKind;
use crate::registry::GemmKernel;

/// The most ranges of k whose sums are added one after the other for every m. More are added by
/// several threads, if C has few elements.
pub const MAX_RANGES: u32 = 8;

/// An order of accumulation for products of an extent along k.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Order {
    /// How products are added to a sum.
    pub addition: Addition,
    /// The ends of the ranges of k but for the last, whose sums are added one after the other.
    pub range_ends: SmallVec<[usize; MAX_RANGES as usize - 1]>,
    /// The lanes among which each range is divided, if any.
    pub lanes: Option<Lanes>,
}

/// How products are added to a sum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Addition {
    /// In any order, since integers wrap.
    Exact,
    /// By fused multiply-adds in the order of k. `padded`: products of zeros follow.
    FusedMultiplyAdd {
        /// Whether products of zeros follow the last.
        padded: bool,
    },
    /// The same, in the order 0, 2, 4, 6, 1, 3, 5, 7 within each eight k: lanes of `mma` of f64
    /// load two elements adjacent along k.
    PairsOfEight {
        /// Whether products of zeros follow the last.
        padded: bool,
    },
    /// By Tensor Cores, this number of products at once, in the order of k.
    Blocks(u32),
}

/// The division of a range of k among lanes: each takes a run in turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lanes {
    /// The number of lanes.
    pub count: u32,
    /// Consecutive k of a run.
    pub run: u32,
    /// The first k counts as this position within the runs of all lanes.
    pub start: u32,
    /// Whether the sums of lanes are added to zero, not to the first.
    pub from_zero: bool,
}

impl Order {
    /// The number of ranges of k.
    pub fn ranges(&self) -> u32 {
        self.range_ends.len() as u32 + 1
    }
}

impl Recipe {
    /// The order of accumulation of a product of extent `k`, for all extents m and n and every
    /// batch. `None` if it depends on more than k: with stream-K, or many ranges of k.
    pub fn order(&self, k: usize) -> Option<Order> {
        if self.kernel.ty().is_int() {
            return Some(Order { addition: Addition::Exact, range_ends: SmallVec::new(), lanes: None });
        }
        let splits = match self.split {
            Split::Whole => 1,
            Split::SplitK(splits) if splits <= MAX_RANGES => splits,
            Split::SplitK(_) | Split::StreamK(_) => return None,
        };
        match self.kernel {
            GemmKernel::Hopper(kernel) => hopper(&kernel, splits, k),
            GemmKernel::Blocked(kernel) => Some(blocked(&self.map(|_| kernel), splits, k)),
            GemmKernel::Vector(kernel) => {
                let (run, count) = (kernel.run(), kernel.threads_k);
                let steps = Steps { depth: k, step: kernel.step() as usize, short_first: true };
                let lanes = Lanes { count, run, start: steps.lane_start(run * count), from_zero: true };
                let addition = Addition::FusedMultiplyAdd { padded: false };
                Some(Order { addition, range_ends: steps.range_ends(splits), lanes: Some(lanes) })
            }
            // The order of f64 is that of no other kernel.
            GemmKernel::WarpTile(kernel) if kernel.ty == Type::F64 => None,
            GemmKernel::WarpTile(_) => {
                let addition = Addition::Blocks(crate::warp_tile::SLAB);
                Some(Order { addition, range_ends: SmallVec::new(), lanes: None })
            }
            GemmKernel::Plain(kernel) => {
                let padded = kernel.kind == PlainKind::Tiled && !k.is_multiple_of(kernel.tile as usize);
                let addition = Addition::FusedMultiplyAdd { padded };
                Some(Order { addition, range_ends: SmallVec::new(), lanes: None })
            }
        }
    }
}

/// The order of a `wgmma` pipeline. Ranges of blocks in a cluster are those of split-K; nested in
/// those they have none.
fn hopper(kernel: &Hopper, splits: u32, k: usize) -> Option<Order> {
    let cluster_k = kernel.pipeline.cluster_k;
    if splits > 1 && cluster_k > 1 {
        return None;
    }
    let steps = Steps { depth: k, step: kernel.pipeline.tile[2] as usize, short_first: false };
    let addition = Addition::Blocks(tegula_ir::Wgmma::K);
    Some(Order { addition, range_ends: steps.range_ends(splits * cluster_k), lanes: None })
}

fn blocked(recipe: &RecipeOf<Blocked>, splits: u32, k: usize) -> Order {
    let kernel = &recipe.kernel;
    let step = kernel.blocking.block[2] as usize;
    // The extent along k that the kernel sees: padded only if both operands are packed.
    let pack = Pack { ty: kernel.ty, from: kernel.orders[0], packing: kernel.packing() };
    let depth = if recipe.packed == [true; 2] { k.next_multiple_of(pack.unit()) } else { k };
    let padded = !k.is_multiple_of(step);
    let (addition, short_first) = match kernel.instruction {
        MathInstruction::Fma => (Addition::FusedMultiplyAdd { padded: depth > k }, true),
        MathInstruction::Dmma(_) => (Addition::PairsOfEight { padded }, false),
        MathInstruction::Mma(mma) => (Addition::Blocks(block(mma)), false),
        // Integers only.
        MathInstruction::Limbs => (Addition::Exact, false),
    };
    let steps = Steps { depth, step, short_first };
    let run = kernel.blocking.block[2] / kernel.blocking.slices;
    let lanes = (kernel.blocking.slices > 1).then(|| {
        let count = kernel.blocking.slices;
        Lanes { count, run, start: steps.lane_start(run * count), from_zero: false }
    });
    Order { addition, range_ends: steps.range_ends(splits), lanes }
}

/// The products that a matrix instruction adds at once: all of its 32 bytes along k.
fn block(mma: Mma) -> u32 {
    mma.shape()[2]
}

/// The k-steps of a kernel.
struct Steps {
    /// The extent along k.
    depth: usize,
    /// k of a step.
    step: usize,
    /// Whether the first step is short, not the last, if they do not divide k.
    short_first: bool,
}

impl Steps {
    /// The positions of the first step that precede k = 0.
    fn missing(&self) -> usize {
        if self.short_first { self.depth.next_multiple_of(self.step) - self.depth } else { 0 }
    }

    /// The ends of the ranges of k-steps but for the last, as
    /// [`Product::split_k_range`](crate::product::Product::split_k_range) computes them.
    fn range_ends(&self, ranges: u32) -> SmallVec<[usize; MAX_RANGES as usize - 1]> {
        let (steps, ranges) = (self.depth.div_ceil(self.step), ranges as usize);
        let (each, remainder) = (steps / ranges, steps % ranges);
        let end = |range: usize| ((range * each + range.min(remainder)) * self.step).saturating_sub(self.missing());
        (1..ranges).map(|range| end(range).min(self.depth)).collect()
    }

    /// The position of k = 0 in a period of lanes. Ranges begin with whole steps, which are whole
    /// periods.
    fn lane_start(&self, period: u32) -> u32 {
        (self.missing() % period as usize) as u32
    }
}
