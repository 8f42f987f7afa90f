//! `tegula check --assembled`: what a product costs in shared memory as the assembler wrote its kernels.

use tegula::Matrix;
use tegula::element::{Element, with_operand_type};
use tegula_explain::Error;
use tegula_explain::assembled::{Shared, shared};
use tegula_explain::sass::Tools;
use tegula_ir::ptx;
use tegula_kernels::GemmVariant;

use crate::kernel::Problem;
use crate::launch::Passes;
use crate::report::check::Assembled;

/// The assembler for a GPU such as `sm_90`.
pub struct Assembler {
    tools: Tools,
    gpu: String,
}

impl Assembler {
    /// The one that is installed.
    pub fn find(gpu: &str) -> Result<Assembler, Error> {
        Ok(Assembler { tools: Tools::find().ok_or(Error::NoTools)?, gpu: gpu.into() })
    }

    /// Counts over all kernels of a product.
    pub fn count(&self, problem: &Problem) -> Result<Assembled, Error> {
        let ty = problem.recipe.kernel.ty();
        let shared =
            with_operand_type!(ty, T => self.of::<T>(problem), ty => Err(tegula::Error::no_kernels(ty).into()))?;
        Ok(Assembled::new(&self.gpu, shared))
    }

    fn of<T: Element>(&self, problem: &Problem) -> Result<Shared, Error> {
        let passes = Passes::of(problem)?;
        // What numbers are multiplied makes no difference.
        let zeros = |rows, cols| Matrix::<T>::zeros(rows, cols);
        let (a, b) = (zeros(problem.m, problem.k)?, zeros(problem.k, problem.n)?);
        let memory = passes.memory(a.view(), b.view())?;
        let mut total = Shared::default();
        for (kernel, args) in passes.each(&memory) {
            let image = ptx::print(kernel)?;
            total += shared(kernel, &args, &image, &self.tools.disassemble(&image, &self.gpu)?)?;
        }
        Ok(total)
    }
}
