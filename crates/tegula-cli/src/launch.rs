//! The launches of a product and their memory: what `check` and `explain` run.

use tegula::element::{Element, Scalar};
use tegula::epilogue::{Epilogue, Finish};
use tegula::interpret::Memory;
use tegula::{Layout, Result, Shape, View};
use tegula_interp::Arg;
use tegula_ir::{self as ir, Checked, Kernel};
use tegula_kernels::GemmVariant;
use tegula_kernels::plan::{Launch, Launches, Operands};

use crate::kernel::Problem;

/// The launches of a product, with their kernels.
pub struct Passes {
    launches: Launches,
    kernels: Vec<Checked<Kernel>>,
}

impl Passes {
    /// Builds and checks the kernels, for row-major matrices.
    pub fn of(problem: &Problem) -> Result<Passes> {
        let &Problem { recipe, m, n, k, .. } = problem;
        let layout = |rows, cols| Layout::row_major(Shape::new(rows, cols));
        let layouts = [layout(m, k)?, layout(k, n)?, layout(m, n)?];
        let launches = recipe.launches(&Operands::aligned(recipe.kernel.ty(), layouts, Epilogue::NONE))?;
        let checked = |launch: &Launch| ir::check(launch.kernel.build()?);
        let kernels = launches.launches.iter().map(checked).collect::<Result<_>>()?;
        Ok(Passes { launches, kernels })
    }

    /// The kernel that multiplies.
    pub fn main(&self) -> &Checked<Kernel> {
        &self.kernels[self.launches.multiply]
    }

    /// The memory of the product of row-major A and B.
    pub fn memory<T: Element>(&self, a: View<'_, T>, b: View<'_, T>) -> Result<Memory> {
        let c = Layout::row_major(Shape::new(a.shape().rows, b.shape().cols))?;
        let scalars = [<T::Acc as Scalar>::ONE, <T::Acc as Scalar>::ZERO];
        Memory::new(&self.launches, [a, b], c, None, scalars, Finish::default())
    }

    /// The kernels in order, each with its arguments.
    pub fn each<'a>(&'a self, memory: &'a Memory) -> impl Iterator<Item = (&'a Checked<Kernel>, Vec<Arg<'a>>)> {
        self.kernels.iter().zip(self.launches.launches.iter().map(|launch| memory.arguments(launch)))
    }

    /// The kernels before the one that multiplies, which pack A and B.
    pub fn packing<'a>(&'a self, memory: &'a Memory) -> impl Iterator<Item = (&'a Checked<Kernel>, Vec<Arg<'a>>)> {
        self.each(memory).take(self.launches.multiply)
    }

    /// The arguments of the kernel that multiplies.
    pub fn main_arguments<'a>(&'a self, memory: &'a Memory) -> Vec<Arg<'a>> {
        memory.arguments(self.launches.main())
    }
}
