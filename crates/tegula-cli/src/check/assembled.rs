//! `tegula check --assembled`: shared memory costs of a product's kernels as assembled.

use tegula::Matrix;
use tegula::element::{Element, with_operand_type};
use tegula_explain::Error;
use tegula_explain::assembled::{SharedCounters, shared_counters};
use tegula_explain::sass::Tools;
use tegula_ir::ptx;
use tegula_kernels::GemmVariant;

use crate::kernel::Problem;
use crate::launch::CheckedLaunches;
use crate::report::check::Assembled;

/// The assembler for a GPU such as `sm_90`.
pub struct Assembler {
    tools: Tools,
    gpu: String,
}

impl Assembler {
    /// Finds the installed assembler.
    pub fn find(gpu: &str) -> Result<Assembler, Error> {
        Ok(Assembler { tools: Tools::find().ok_or(Error::ToolsNotFound)?, gpu: gpu.into() })
    }

    /// Counts requests and wavefronts over all kernels of a product.
    pub fn count(&self, problem: &Problem) -> Result<Assembled, Error> {
        let ty = problem.recipe.kernel.ty();
        let shared =
            with_operand_type!(ty, T => self.of::<T>(problem), ty => Err(tegula::Error::no_kernels(ty).into()))?;
        Ok(Assembled::new(&self.gpu, shared))
    }

    fn of<T: Element>(&self, problem: &Problem) -> Result<SharedCounters, Error> {
        let launches = CheckedLaunches::of(problem)?;
        // The values of A and B do not matter.
        let zeros = |rows, cols| Matrix::<T>::zeros(rows, cols);
        let (a, b) = (zeros(problem.m, problem.k)?, zeros(problem.k, problem.n)?);
        let memory = launches.memory(a.view(), b.view())?;
        let mut total = SharedCounters::default();
        for (kernel, args) in launches.each(&memory) {
            let image = ptx::print(kernel)?;
            total += shared_counters(kernel, &args, &image, &self.tools.disassemble(&image, &self.gpu)?)?;
        }
        Ok(total)
    }
}
