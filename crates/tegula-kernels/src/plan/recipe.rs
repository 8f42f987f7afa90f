//! A recipe: the kernel of a product, its split, packing and transposition.

use std::str::FromStr;

use smallvec::{SmallVec, smallvec};
use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Error, Result};

use crate::blocked::Schedule;
use crate::fragment_layout::FragmentLayout;

/// A configuration of a product by kernels. [`Recipe`](super::Recipe) is that of any family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecipeOf<K> {
    /// The GEMM kernel.
    pub kernel: K,
    /// Whether the kernel computes Cᵀ = Bᵀ·Aᵀ.
    pub swapped: bool,
    /// How the work is split beyond tiles.
    pub split: Split,
    /// Whether the kernel's left and right operands are packed first.
    pub packed: [bool; 2],
    /// The epilogue, by the rows and columns of C itself. `with_epilogue` sets that of the kernel.
    pub epilogue: Epilogue,
}

/// A legal recipe and its predicted time. [`Candidate`](super::Candidate) is that of any family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CandidateOf<K> {
    /// The recipe, legalized for the layouts of the problem.
    pub recipe: RecipeOf<K>,
    /// The predicted microseconds; `None` if the cost model does not cover the kernel.
    pub microseconds: Option<f64>,
}

/// How the work is split beyond tiles. Partial sums go to a workspace, and the
/// [`Launches`](super::Launches) reduce them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// Not at all.
    Whole,
    /// Split-K with this number of ranges of k.
    SplitK(u32),
    /// Stream-K with this number of thread blocks.
    StreamK(u32),
}

/// How partial sums of split work are reduced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SplitReduction {
    /// Without a reduction: the work is not split, and the kernel takes A, B and C.
    None,
    /// The kernel takes A, B and a workspace; a second kernel adds the partial sums to C.
    SplitK,
    /// As `SplitK`, and the second kernel also takes the layout of the partial sums.
    Fragments(FragmentLayout),
    /// The kernel takes A, B, C and a workspace; a second kernel, which also takes the number of
    /// k-steps, adds the partial sums of split tiles.
    FixUp {
        /// Steps along k of a tile.
        steps: u32,
    },
    /// The kernel takes A, B, C, a workspace, and this number of zeroed flags. Its blocks signal
    /// through them that a partial sum is stored, and reset them to zero.
    InKernel(usize),
}

impl SplitReduction {
    /// The scalar arguments of the second kernel. `scalar` makes an argument of a `u32`.
    pub fn scalar_arguments<A>(self, [alpha, beta]: [A; 2], scalar: impl Fn(u32) -> A) -> SmallVec<[A; 4]> {
        match self {
            SplitReduction::FixUp { steps } => smallvec![beta, scalar(steps)],
            SplitReduction::Fragments(FragmentLayout { rows, cols }) => {
                smallvec![alpha, beta, scalar(rows), scalar(cols)]
            }
            SplitReduction::None | SplitReduction::SplitK | SplitReduction::InKernel(_) => smallvec![alpha, beta],
        }
    }
}

impl Split {
    /// Split-K with this number of ranges; one is [`Whole`](Self::Whole).
    pub const fn split_k(splits: u32) -> Self {
        if splits > 1 { Split::SplitK(splits) } else { Split::Whole }
    }

    pub(crate) const fn schedule(self) -> Schedule {
        match self {
            Split::Whole => Schedule::DataParallel,
            Split::SplitK(_) => Schedule::SplitK,
            Split::StreamK(_) => Schedule::StreamK,
        }
    }
}

impl FromStr for Split {
    type Err = Error;

    /// Parses `splitk4` and `streamk132`, or in short `4` and `w132`.
    fn from_str(text: &str) -> Result<Self> {
        let count = |mark: &str| text.strip_prefix(mark)?.parse().ok().filter(|&count: &u32| count > 0);
        let split_k = || count("splitk").or_else(|| count("")).map(Split::split_k);
        let split = split_k().or_else(|| count("streamk").or_else(|| count("w")).map(Split::StreamK));
        split.ok_or_else(|| {
            Error::KernelOption(format!(
                "unrecognized option {text:?} of a kernel; expected splitk4, streamk132, swapped, packa, packb or packab"
            ))
        })
    }
}

impl<K> CandidateOf<K> {
    /// The predicted microseconds; infinite if unknown.
    pub(crate) fn time(&self) -> f64 {
        self.microseconds.unwrap_or(f64::INFINITY)
    }
}

impl<K> RecipeOf<K> {
    /// The product by a kernel, without a split or an epilogue.
    pub const fn new(kernel: K) -> Self {
        let (split, epilogue) = (Split::Whole, Epilogue::NONE);
        RecipeOf { kernel, swapped: false, split, packed: [false; 2], epilogue }
    }

    /// The same recipe with another kernel.
    pub(crate) fn map<L>(self, to: impl FnOnce(K) -> L) -> RecipeOf<L> {
        let RecipeOf { kernel, swapped, split, packed, epilogue } = self;
        RecipeOf { kernel: to(kernel), swapped, split, packed, epilogue }
    }

    /// The epilogue as passed to the kernels, which may compute the transpose.
    pub(crate) fn passed_epilogue(&self) -> Epilogue {
        if self.swapped { self.epilogue.transposed() } else { self.epilogue }
    }

    /// Whether A and B are packed.
    pub fn packed_operands(&self) -> [bool; 2] {
        let [left, right] = self.packed;
        if self.swapped { [right, left] } else { [left, right] }
    }
}
