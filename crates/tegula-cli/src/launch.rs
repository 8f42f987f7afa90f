//! The launches of a product, with checked kernels and memory, for `check` and `explain`.

use tegula::element::{Element, Scalar};
use tegula::epilogue::{Epilogue, EpilogueOperands};
use tegula::interpret::LaunchMemory;
use tegula::{Layout, Result, Shape, View};
use tegula_interp::Arg;
use tegula_ir::{self as ir, Checked, Kernel};
use tegula_kernels::GemmVariant;
use tegula_kernels::plan::{Launch, Launches, Operands};

use crate::kernel::Problem;

/// The launches of a product and their checked kernels.
pub struct CheckedLaunches {
    launches: Launches,
    kernels: Vec<Checked<Kernel>>,
}

impl CheckedLaunches {
    /// Builds and checks the kernels, for row-major matrices.
    pub fn of(problem: &Problem) -> Result<CheckedLaunches> {
        let &Problem { recipe, m, n, k, .. } = problem;
        let layout = |rows, cols| Layout::row_major(Shape::new(rows, cols));
        let layouts = [layout(m, k)?, layout(k, n)?, layout(m, n)?];
        let launches = recipe.launches(&Operands::aligned(recipe.kernel.ty(), layouts, Epilogue::NONE))?;
        let checked = |launch: &Launch| ir::check(launch.kernel.build()?);
        let kernels = launches.launches.iter().map(checked).collect::<Result<_>>()?;
        Ok(CheckedLaunches { launches, kernels })
    }

    /// The GEMM kernel.
    pub fn gemm(&self) -> &Checked<Kernel> {
        &self.kernels[self.launches.gemm_index]
    }

    /// Memory for the product of row-major A and B.
    pub fn memory<T: Element>(&self, a: View<'_, T>, b: View<'_, T>) -> Result<LaunchMemory> {
        let c = Layout::row_major(Shape::new(a.shape().rows, b.shape().cols))?;
        let scalars = [<T::Acc as Scalar>::ONE, <T::Acc as Scalar>::ZERO];
        LaunchMemory::new(&self.launches, [a, b], c, None, scalars, EpilogueOperands::default())
    }

    /// The kernels in launch order, each with its arguments.
    pub fn each<'a>(&'a self, memory: &'a LaunchMemory) -> impl Iterator<Item = (&'a Checked<Kernel>, Vec<Arg<'a>>)> {
        self.kernels.iter().zip(self.launches.launches.iter().map(|launch| memory.arguments(launch)))
    }

    /// The packing kernels, which run before the GEMM kernel.
    pub fn packing<'a>(
        &'a self,
        memory: &'a LaunchMemory,
    ) -> impl Iterator<Item = (&'a Checked<Kernel>, Vec<Arg<'a>>)> {
        self.each(memory).take(self.launches.gemm_index)
    }

    /// The arguments of the GEMM kernel.
    pub fn gemm_arguments<'a>(&'a self, memory: &'a LaunchMemory) -> Vec<Arg<'a>> {
        memory.arguments(self.launches.gemm())
    }
}
