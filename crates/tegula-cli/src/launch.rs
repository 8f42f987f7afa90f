//! The kernels of a product and the memory they work on: what `check` and `explain` run.

use std::ops::Range;

use tegula::element::{Element, Scalar};
use tegula::{Layout, Matrix, Result, Shape, View};
use tegula_interp::{Arg, Buffer};
use tegula_ir::{self as ir, Checked, Kernel, Order2d};
use tegula_kernels::Variant;
use tegula_kernels::plan::{Lie, Meeting};

use crate::kernel::Problem;

/// The kernels of a product.
pub struct Passes {
    /// Those that pack A and B, and which of the two each packs.
    pub packs: Vec<(Checked<Kernel>, Range<usize>)>,
    /// The one that multiplies.
    pub first: Checked<Kernel>,
    /// The one that adds what was split.
    pub second: Option<Checked<Kernel>>,
}

impl Passes {
    /// Builds and checks them.
    pub fn of(problem: &Problem) -> Result<Passes> {
        let Problem { recipe, m, n, k, .. } = problem;
        let row_major = Lie::new(Order2d::RowMajor, false);
        let lies = recipe.inputs([row_major; 2], Lie::transposed);
        let second = recipe.second(row_major, m.saturating_mul(*n));
        let checked = |variant: Variant| ir::check(variant.build()?);
        let transposed = |shape: Shape| Shape { rows: shape.cols, cols: shape.rows, ..shape };
        let [a, b] = recipe.inputs([Shape::new(*m, *k), Shape::new(*k, *n)], transposed);
        let to = [recipe.packed(0, a)?, recipe.packed(1, b)?].map(|to| to.map(|layout| layout.shape));
        let packs = recipe.packs(lies, to).map(|(pack, which)| Ok((checked(pack)?, which)));
        Ok(Passes {
            packs: packs.collect::<Result<_>>()?,
            first: checked(recipe.kernel)?,
            second: second.map(checked).transpose()?,
        })
    }
}

/// The memory of a product C = A·B.
pub struct Memory {
    inputs: [Buffer; 2],
    packed: [Option<Buffer>; 2],
    /// What is split is added up in here; and the flags of blocks that tell each other.
    parts: Option<Buffer>,
    flags: Option<Buffer>,
    /// C.
    pub c: Buffer,
    /// Alpha and beta: 1 and 0.
    factors: [Arg<'static>; 2],
    /// How what was split meets.
    meeting: Meeting,
}

impl Memory {
    /// Of row-major A and B.
    pub fn new<T: Element>(problem: &Problem, a: View<'_, T>, b: View<'_, T>) -> Result<Memory> {
        let &Problem { recipe, m, n, k, .. } = problem;
        let [input_a, input_b] = recipe.inputs([a, b], View::t);
        let inputs = [Buffer::input(input_a)?, Buffer::input(input_b)?];
        let pack = |which: usize| -> Result<Option<Buffer>> {
            let to = recipe.packed(which, inputs[which].layout().shape)?;
            to.map(|to| Buffer::output(T::TYPE, to)).transpose()
        };
        let packed = [pack(0)?, pack(1)?];
        let shape = Shape::new(m, n);
        let c = Buffer::output(<T::Out as Scalar>::TYPE, Layout::row_major(shape)?)?;
        let parts =
            recipe.workspace(shape).map(|shape| Buffer::output(<T::Acc as Scalar>::TYPE, Layout::row_major(shape)?));
        let factors = [Arg::scalar(<T::Acc as Scalar>::ONE), Arg::scalar(<T::Acc as Scalar>::ZERO)];
        let meeting = recipe.meeting(k);
        let flags = match meeting {
            Meeting::Flags(count) => Some(Buffer::in_out(Matrix::<u32>::zeros(Shape::new(1, count))?.view())?),
            _ => None,
        };
        Ok(Memory { parts: parts.transpose()?, flags, inputs, packed, c, factors, meeting })
    }

    /// What the kernels that pack take, each after its kernel.
    pub fn packing<'a>(
        &'a self,
        passes: &'a Passes,
    ) -> impl Iterator<Item = (&'a Checked<Kernel>, Vec<Arg<'a>>)> + use<'a> {
        passes.packs.iter().map(|(kernel, which)| {
            let pairs = self.inputs[which.clone()].iter().zip(&self.packed[which.clone()]);
            (kernel, pairs.flat_map(|(from, to)| std::iter::once(from).chain(to)).map(Arg::from).collect())
        })
    }

    /// What the kernel that multiplies takes.
    pub fn first(&self) -> Vec<Arg<'_>> {
        let [a, b] = [0, 1].map(|which| Arg::from(self.packed[which].as_ref().unwrap_or(&self.inputs[which])));
        let (c, [alpha, beta]) = (Arg::from(&self.c), self.factors);
        let parts = self.parts.as_ref().map(Arg::from);
        match self.meeting {
            Meeting::Sum | Meeting::Reduce(_) => [a, b].into_iter().chain(parts).collect(),
            _ => {
                let flags = self.flags.as_ref().map(Arg::from);
                [a, b, c].into_iter().chain(parts).chain(flags).chain([alpha, beta]).collect()
            }
        }
    }

    /// What the kernel that adds takes; nothing where there is none.
    pub fn second(&self) -> Vec<Arg<'_>> {
        let given = [self.parts.as_ref().map(Arg::from), Some(Arg::from(&self.c))];
        given.into_iter().flatten().chain(self.meeting.numbers(self.factors, Arg::scalar)).collect()
    }
}
