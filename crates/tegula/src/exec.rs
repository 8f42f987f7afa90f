//! Execution of a product: chooses the plan, and runs it on a device.

use std::ops::Range;

use tegula_core::progress::ProgressMeter;
use tegula_cpu::{Isa, PackedB};
use tegula_kernels::Hopper;
#[cfg(any(feature = "cuda", feature = "interp"))]
use tegula_kernels::plan::explain::Engine;
use tegula_kernels::plan::explain::ProblemOperands;
use tegula_kernels::plan::{Explanation, Plan, choose_cached, keeps_order};

#[cfg(feature = "cuda")]
use crate::cuda::GpuPlan;
use crate::device::{Backend, Device, gpu_of};
use crate::element::{Accuracy, Element, Scalar};
use crate::epilogue::EpilogueOperands;
use crate::error::{Error, Result};
use crate::gemm::{Gemm, Report, epilogue_operands, input_operands, problem};
#[cfg(feature = "interp")]
use crate::interpret;
use crate::matrix::View;
#[cfg(feature = "cuda")]
use crate::tune::autotune::autotune;

impl<T: Element> Gemm<'_, T> {
    /// Computes the product.
    ///
    /// On a GPU with C in its memory, the call queues the work and returns without waiting.
    ///
    /// # Errors
    /// - [`Error::Shape`](crate::Error::Shape) where the shapes do not match, or the bias is
    ///   neither a row nor a column of C.
    /// - [`Error::Aliased`](crate::Error::Aliased) where C overlaps A, B or the bias in GPU memory.
    /// - [`Error::Unsupported`](crate::Error::Unsupported) for GELU and SiLU of integers.
    /// - Errors of the device.
    ///
    /// C is unchanged where the error is found before the work begins.
    pub fn run(mut self) -> Result<Report> {
        let found;
        let device = match &self.device {
            Some(device) => device,
            None => {
                found = Device::for_operands(self.a, self.b, self.c.as_view(), self.epilogue.bias)?;
                &found
            }
        };
        if matches!(device.backend(), Backend::Cpu) {
            // One plan only, and choosing would take longer than a small product.
            tracing::debug!(device = %device.name(), plan = ?Plan::Cpu, "plan chosen");
            let kernel = tegula_cpu::kernel_name::<T>()?;
            // Built where it is returned: otherwise it is copied as a vector just after its words
            // are stored, which takes a tenth of a product of 8×8×8.
            let report = |kernel| Report { device: Device::CPU_NAME.into(), kernel };
            let isa = Isa::chosen(T::TYPE)?;
            let Gemm { alpha, beta, .. } = self;
            if self.is_plain() && tegula_cpu::gemm_small(isa, alpha, &self.a, &self.b, beta, &mut self.c) {
                return Ok(report(kernel));
            }
            self.check()?;
            let meter = self.meter();
            let Gemm { alpha, a, b, beta, c, epilogue, packed_b, batch_invariant, .. } = self;
            tegula_cpu::gemm_with_options::<T>(
                isa,
                alpha,
                a,
                b,
                beta,
                c,
                epilogue,
                packed_b,
                meter.as_ref(),
                batch_invariant,
            )?;
            meter.iter().for_each(ProgressMeter::finish);
            return Ok(report(kernel));
        }
        let device = device.clone();
        self.check()?;
        let product = self;
        let caps = device.caps();
        let problem = product.problem(&caps)?;
        #[cfg(feature = "cuda")]
        autotune(&device, &problem, &product);
        let plan = device.with_tuned(|tuned| choose_cached(&problem, &caps, tuned, product.batch_invariant))?;
        tracing::debug!(device = %device.name(), ?problem, ?plan, "plan chosen");
        device.execute(&plan, product)
    }

    /// Explains what [`run`](Self::run) would do, without running it.
    ///
    /// The explanation has the device, the kernel, the handling of each operand, and the memory
    /// needed.
    ///
    /// # Errors
    /// The errors of [`run`](Self::run) that are found before the work begins, except for a lack of
    /// memory.
    pub fn explain(&self) -> Result<Explanation> {
        let (inputs, scalars) = ([self.a, self.b], [self.alpha, self.beta]);
        let mode = (self.accuracy, self.batch_invariant);
        explain(self.device.as_ref(), mode, inputs, self.c.as_view(), scalars, self.epilogue, self.packed_b)
    }
}

/// Explains what [`Gemm::run`] would do with these operands, scalars, epilogue and packed B, with
/// this accuracy, batch-invariant or not.
pub(crate) fn explain<T: Element>(
    device: Option<&Device>,
    (accuracy, batch_invariant): (Accuracy, bool),
    [mut a, mut b]: [View<'_, T>; 2],
    c: View<'_, T::Out>,
    [mut alpha, beta]: [T::Acc; 2],
    mut epilogue: EpilogueOperands<'_, T::Out>,
    packed_b: Option<&PackedB>,
) -> Result<Explanation> {
    let device = match device {
        Some(device) => device.clone(),
        None => Device::for_operands(a, b, c, epilogue.bias)?,
    };
    input_operands(&mut alpha, &mut a, &mut b, c)?;
    epilogue_operands::<T>(&mut epilogue, c)?;
    let caps = device.caps();
    let problem = problem(accuracy, a, b, c, &caps)?;
    let (plan, recipe) = device.with_tuned(|tuned| {
        choose_cached(&problem, &caps, tuned, batch_invariant).map(|plan| (plan, tuned.recipe(&problem, &caps)))
    })?;
    let explanation = device.explain(&plan, [a, b], c, [alpha, beta], epilogue, packed_b)?;
    let tuned = recipe.is_some_and(|recipe| plan == Plan::Gpu(recipe));
    Ok(Explanation { tuned, ..explanation })
}

impl Device {
    /// Computes a product by a plan that was chosen for it; [`Gemm::run`] chooses one.
    ///
    /// # Errors
    /// As for [`Gemm::run`].
    pub fn run<T: Element>(&self, plan: &Plan, mut product: Gemm<'_, T>) -> Result<Report> {
        // The engines rely on the same checks as in `Gemm::run`.
        product.check()?;
        let caps = self.caps();
        if product.batch_invariant
            && let Plan::Gpu(recipe) = plan
            && !keeps_order(recipe, &product.problem(&caps)?, &caps)
        {
            let what = format!("batch invariance by {}", recipe.name());
            return Err(Error::Unsupported { what, ty: T::TYPE, device: self.name() });
        }
        self.execute(plan, product)
    }

    /// Explains what [`run`](Self::run) would do by this plan, with operands that are checked.
    pub(crate) fn explain<T: Element>(
        &self,
        plan: &Plan,
        [a, b]: [View<'_, T>; 2],
        c: View<'_, T::Out>,
        [alpha, beta]: [T::Acc; 2],
        epilogue: EpilogueOperands<'_, T::Out>,
        packed_b: Option<&PackedB>,
    ) -> Result<Explanation> {
        let out = <T::Out as Scalar>::TYPE;
        let operands = ProblemOperands {
            layouts: [a.layout(), b.layout(), c.layout()],
            types: [T::TYPE, T::TYPE, out],
            gpus: [gpu_of(&a.memory()), gpu_of(&b.memory()), gpu_of(&c.memory())],
            reads_c: beta != T::Acc::ZERO,
            bias: epilogue.bias.map(|bias| (bias.layout(), gpu_of(&bias.memory()))),
            epilogue: epilogue.epilogue(),
        };
        operands.check_device(self.ordinal(), &self.name())?;
        match (self.backend(), plan) {
            (Backend::Cpu, Plan::Cpu) => {
                let space = tegula_cpu::workspace::<T>(alpha, a.layout(), b.layout(), beta, c.layout(), packed_b)?;
                Ok(operands.explain_cpu(tegula_cpu::kernel_name::<T>()?.into(), space.in_place, space.bytes))
            }
            #[cfg(feature = "interp")]
            (Backend::Interp, Plan::Gpu(recipe)) => {
                let host_bytes = interpret::copy_bytes::<T>(
                    a.shape(),
                    b.shape(),
                    c.shape(),
                    epilogue.bias.map(|bias| bias.shape()),
                )?;
                let facts = interpret::device();
                operands.explain_kernel(recipe, Engine { device: self.name(), gpu: None, facts, host_bytes })
            }
            #[cfg(feature = "cuda")]
            (Backend::Cuda(gpu), Plan::Gpu(recipe)) => {
                let facts = tegula_ir::launch::DeviceProperties { multiprocessors: gpu.info().multiprocessors };
                let copies = operands.gpus.contains(&None) || matches!(operands.bias, Some((_, None)));
                let host_bytes = if copies { crate::cuda::STAGING_BYTES as u128 } else { 0 };
                operands
                    .explain_kernel(recipe, Engine { device: self.name(), gpu: Some(gpu.ordinal()), facts, host_bytes })
            }
            _ => Err(self.wrong_device_plan(T::TYPE)),
        }
    }

    /// [`run`](Self::run) without the checks.
    pub(crate) fn execute<T: Element>(&self, plan: &Plan, product: Gemm<'_, T>) -> Result<Report> {
        #[cfg(any(feature = "cuda", feature = "interp"))]
        let report = |kernel: String| Ok(Report { device: self.label(), kernel: kernel.into() });
        match (self.backend(), plan) {
            (Backend::Cpu, Plan::Cpu) => Gemm { device: Some(self.clone()), ..product }.run(),
            #[cfg(feature = "interp")]
            (Backend::Interp, Plan::Gpu(recipe)) => {
                let meter = product.meter();
                let name = recipe.with_epilogue(product.epilogue.epilogue()).name();
                if !product.c.shape().is_empty() {
                    interpret::run(recipe, product, meter.as_ref())?;
                }
                meter.iter().for_each(ProgressMeter::finish);
                report(name)
            }
            #[cfg(feature = "cuda")]
            (Backend::Cuda(_), Plan::Gpu(recipe)) if product.c.shape().is_empty() => {
                report(recipe.with_epilogue(product.epilogue.epilogue()).name())
            }
            #[cfg(feature = "cuda")]
            (Backend::Cuda(gpu), Plan::Gpu(recipe)) => report(gpu.multiply(GpuPlan::Recipe(recipe), product)?),
            _ => Err(self.wrong_device_plan(T::TYPE)),
        }
    }

    /// Computes a grouped product by a kernel that was chosen for it.
    ///
    /// Each range of `rows` of A and C has its own matrix B.
    pub(crate) fn run_groups<T: Element>(
        &self,
        kernel: Hopper,
        product: Gemm<'_, T>,
        rows: &[Range<usize>],
    ) -> Result<Report> {
        match self.backend() {
            #[cfg(feature = "cuda")]
            Backend::Cuda(gpu) => {
                let kernel = gpu.multiply(GpuPlan::Groups(kernel, rows), product)?.into();
                Ok(Report { device: self.label(), kernel })
            }
            _ => {
                let _ = (kernel, product, rows);
                Err(self.wrong_device_plan(T::TYPE))
            }
        }
    }
}
