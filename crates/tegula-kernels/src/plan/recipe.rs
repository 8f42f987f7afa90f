//! How kernels make a product: which kernel, of which of the matrices, in how many parts.

use std::str::FromStr;

use smallvec::{SmallVec, smallvec};
use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Error, Result};

use crate::blocked::Schedule;
use crate::fragments::Fragments;

/// A product as launches of kernels. [`Recipe`](super::Recipe) is that of any family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RecipeOf<K> {
    /// The kernel that multiplies.
    pub kernel: K,
    /// Whether it makes Cᵀ = Bᵀ·Aᵀ.
    pub swapped: bool,
    /// How the work is split beyond tiles.
    pub split: Split,
    /// Whether the left and the right factor, as the kernel takes them, are copied first to where
    /// it takes them fastest.
    pub packed: [bool; 2],
    /// What happens to sums on their way to C, by the rows and columns of C itself; `finished`
    /// tells the kernels.
    pub epilogue: Epilogue,
}

/// A recipe that may make a product. [`Candidate`](super::Candidate) is that of any family.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CandidateOf<K> {
    /// The recipe, for matrices that lie as the problem says.
    pub recipe: RecipeOf<K>,
    /// The microseconds that it should take; `None` where the cost model does not know such
    /// kernels.
    pub microseconds: Option<f64>,
}

/// How the work is split. What is split goes to a workspace; [`Launches`](super::Launches) add it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Split {
    /// Not at all.
    Whole,
    /// The sums along k are made in so many parts.
    Parts(u32),
    /// So many blocks share the tiles evenly.
    Workers(u32),
}

/// How what was split meets again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// Nothing was split: the kernel takes A, B and C.
    None,
    /// The kernel takes A, B and parts; a second one adds these to C.
    Sum,
    /// The same, and the second one is told how parts lie.
    Reduce(Fragments),
    /// The kernel takes A, B, C and parts; a second one, which is told the steps of a tile, adds
    /// those of tiles that were shared.
    Mend {
        /// Steps along k of a tile.
        steps: u32,
    },
    /// The kernel takes A, B, C, parts, and so many flags that are zero, by which its blocks tell
    /// each other that a part is there. It leaves zeros.
    Flags(usize),
}

impl Meeting {
    /// The numbers that the second kernel takes, of alpha, beta and what makes an argument of a
    /// number.
    pub fn numbers<A>(self, [alpha, beta]: [A; 2], of: impl Fn(u32) -> A) -> SmallVec<[A; 4]> {
        match self {
            Meeting::Mend { steps } => smallvec![beta, of(steps)],
            Meeting::Reduce(Fragments { rows, cols }) => smallvec![alpha, beta, of(rows), of(cols)],
            Meeting::None | Meeting::Sum | Meeting::Flags(_) => smallvec![alpha, beta],
        }
    }
}

impl Split {
    /// So many parts; one is the whole.
    pub const fn parts(parts: u32) -> Self {
        if parts > 1 { Split::Parts(parts) } else { Split::Whole }
    }

    pub(crate) const fn schedule(self) -> Schedule {
        match self {
            Split::Whole => Schedule::Tiles,
            Split::Parts(_) => Schedule::Parts,
            Split::Workers(_) => Schedule::Balanced,
        }
    }
}

impl FromStr for Split {
    type Err = Error;

    /// A number of parts, or `w` and one of workers.
    fn from_str(text: &str) -> Result<Self> {
        let (kind, number): (fn(u32) -> Split, _) = match text.strip_prefix('w') {
            Some(workers) => (Split::Workers, workers),
            None => (Split::parts, text),
        };
        let number = number.parse().ok().filter(|&number| number > 0);
        number
            .map(kind)
            .ok_or_else(|| Error::KernelOption(format!("{text:?} is neither a number of parts nor of workers")))
    }
}

impl<K> RecipeOf<K> {
    /// The whole product by a kernel, without an epilogue.
    pub const fn new(kernel: K) -> Self {
        let (split, epilogue) = (Split::Whole, Epilogue::NONE);
        RecipeOf { kernel, swapped: false, split, packed: [false; 2], epilogue }
    }

    /// The same recipe with another kernel.
    pub(crate) fn map<L>(self, to: impl FnOnce(K) -> L) -> RecipeOf<L> {
        let RecipeOf { kernel, swapped, split, packed, epilogue } = self;
        RecipeOf { kernel: to(kernel), swapped, split, packed, epilogue }
    }

    /// The epilogue as kernels take it, which may make the transpose.
    pub(crate) fn passed_epilogue(&self) -> Epilogue {
        if self.swapped { self.epilogue.transposed() } else { self.epilogue }
    }

    /// Whether A and B are packed.
    pub fn packed_operands(&self) -> [bool; 2] {
        let [left, right] = self.packed;
        if self.swapped { [right, left] } else { [left, right] }
    }
}
