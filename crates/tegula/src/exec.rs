//! Running a product: the plan is chosen, and a device executes it.

use std::ops::Range;

use tegula_core::progress::{Meter, Phase};
use tegula_cpu::{Isa, Panels};
use tegula_kernels::Hopper;
#[cfg(any(feature = "cuda", feature = "interp"))]
use tegula_kernels::plan::explain::Engine;
use tegula_kernels::plan::explain::Given;
use tegula_kernels::plan::{Caps, Explanation, Plan, chosen};

#[cfg(feature = "cuda")]
use crate::cuda::Method;
use crate::device::{Device, Kind, gpu_of};
use crate::element::{Accuracy, Element, Scalar};
use crate::epilogue::Finish;
use crate::error::Result;
use crate::gemm::{Gemm, Report, finish, inputs, problem};
#[cfg(feature = "interp")]
use crate::interpret;
use crate::matrix::View;

impl<T: Element> Gemm<'_, T> {
    /// Computes.
    ///
    /// On a GPU with C in its memory, the work is queued and not waited for.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) where the shapes make no product or the bias is no row
    /// or column of C, [`Error::Aliased`](crate::Error::Aliased) where C shares memory of a GPU
    /// with A, B or the bias, [`Error::Unsupported`](crate::Error::Unsupported) for GELU and
    /// SiLU of integers, and what the device says. C is as it was where the error is found before
    /// the work begins.
    pub fn run(mut self) -> Result<Report> {
        let device = match &self.device {
            Some(device) => device.clone(),
            None => Device::holding(self.a, self.b, self.c.as_view(), self.finish.bias)?,
        };
        self.check()?;
        let (product, caps) = (self, device.caps());
        if caps == Caps::Cpu {
            // Nothing to choose, and a small product is done before it were chosen.
            tracing::debug!(device = %device.name(), plan = ?Plan::Cpu, "plan chosen");
            let meter = product.audience.meter(Phase::Multiply, product.work());
            let Gemm { alpha, a, b, beta, c, finish, panels, .. } = product;
            tegula_cpu::gemm_told::<T>(Isa::chosen(T::TYPE)?, alpha, a, b, beta, c, finish, panels, meter.as_ref())?;
            meter.iter().for_each(Meter::finish);
            return Ok(Report { device: device.label(), kernel: tegula_cpu::kernel_name::<T>()? });
        }
        let problem = product.problem(&caps)?;
        let plan = chosen(&problem, &caps, device.tuned())?;
        tracing::debug!(device = %device.name(), ?problem, ?plan, "plan chosen");
        device.execute(&plan, product)
    }

    /// What [`run`](Self::run) would do, without doing any of it: the device, the kernel, how each
    /// operand is taken, and the memory it needs. It refuses what `run` refuses before the work
    /// begins, but for a lack of memory.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn explain(&self) -> Result<Explanation> {
        let (inputs, factors) = ([self.a, self.b], [self.alpha, self.beta]);
        explain(self.device.as_ref(), self.accuracy, inputs, self.c.as_view(), factors, self.finish, self.panels)
    }
}

/// What [`Gemm::run`] would do with A and B, C, alpha and beta, with what is done last, and B
/// packed before.
pub(crate) fn explain<T: Element>(
    device: Option<&Device>,
    accuracy: Accuracy,
    [a, b]: [View<'_, T>; 2],
    c: View<'_, T::Out>,
    [alpha, beta]: [T::Acc; 2],
    last: Finish<'_, T::Out>,
    panels: Option<&Panels>,
) -> Result<Explanation> {
    let device = match device {
        Some(device) => device.clone(),
        None => Device::holding(a, b, c, last.bias)?,
    };
    let (alpha, a, b) = inputs(alpha, a, b, c)?;
    let last = finish::<T>(last, c)?;
    let (caps, tuned) = (device.caps(), device.tuned());
    let problem = problem(accuracy, a, b, c, &caps)?;
    let explanation = device.explain(&tuned.choose(&problem, &caps)?, [a, b], c, [alpha, beta], last, panels)?;
    Ok(Explanation { tuned: tuned.winner(&problem, &caps).is_some(), ..explanation })
}

impl Device {
    /// Makes a product by a plan that was chosen for it; [`Gemm::run`] chooses one.
    ///
    /// # Errors
    /// As [`Gemm::run`].
    pub fn run<T: Element>(&self, plan: &Plan, mut product: Gemm<'_, T>) -> Result<Report> {
        // The engines rely on what `Gemm::run` checks as well.
        product.check()?;
        self.execute(plan, product)
    }

    /// What [`run`](Self::run) would do by this plan, for operands as it gets them: A and B, C,
    /// alpha and beta, what is done last.
    pub(crate) fn explain<T: Element>(
        &self,
        plan: &Plan,
        [a, b]: [View<'_, T>; 2],
        c: View<'_, T::Out>,
        [alpha, beta]: [T::Acc; 2],
        last: Finish<'_, T::Out>,
        panels: Option<&Panels>,
    ) -> Result<Explanation> {
        let out = <T::Out as Scalar>::TYPE;
        let given = Given {
            layouts: [a.layout(), b.layout(), c.layout()],
            types: [T::TYPE, T::TYPE, out],
            gpus: [gpu_of(&a.memory()), gpu_of(&b.memory()), gpu_of(&c.memory())],
            reads_c: beta != T::Acc::ZERO,
            bias: last.bias.map(|bias| (bias.layout(), gpu_of(&bias.memory()))),
            epilogue: last.epilogue(),
        };
        given.refuse_other_gpus(self.ordinal(), &self.name())?;
        match (&self.0, plan) {
            (Kind::Cpu, Plan::Cpu) => {
                let space = tegula_cpu::workspace::<T>(alpha, a.layout(), b.layout(), beta, c.layout(), panels)?;
                Ok(given.on_cpu(tegula_cpu::kernel_name::<T>()?.into(), space.in_place, space.bytes))
            }
            #[cfg(feature = "interp")]
            (Kind::Interp, Plan::Gpu(recipe)) => {
                let host_bytes =
                    interpret::copies::<T>(a.shape(), b.shape(), c.shape(), last.bias.map(|bias| bias.shape()))?;
                let facts = interpret::device();
                given.by_kernel(recipe, Engine { device: self.name(), gpu: None, facts, host_bytes })
            }
            #[cfg(feature = "cuda")]
            (Kind::Cuda(gpu), Plan::Gpu(recipe)) => {
                let facts = tegula_ir::launch::DeviceFacts { multiprocessors: gpu.info().multiprocessors };
                let copies = given.gpus.contains(&None) || matches!(given.bias, Some((_, None)));
                let host_bytes = if copies { crate::cuda::STAGING_BYTES as u128 } else { 0 };
                given.by_kernel(recipe, Engine { device: self.name(), gpu: Some(gpu.ordinal()), facts, host_bytes })
            }
            _ => Err(self.other_plan(T::TYPE)),
        }
    }

    /// [`run`](Self::run) for a product that is checked.
    pub(crate) fn execute<T: Element>(&self, plan: &Plan, product: Gemm<'_, T>) -> Result<Report> {
        #[cfg(any(feature = "cuda", feature = "interp"))]
        let report = |kernel: String| Ok(Report { device: self.label(), kernel: kernel.into() });
        match (&self.0, plan) {
            (Kind::Cpu, Plan::Cpu) => Gemm { device: Some(self.clone()), ..product }.run(),
            #[cfg(feature = "interp")]
            (Kind::Interp, Plan::Gpu(recipe)) => {
                let meter = product.audience.meter(Phase::Multiply, product.work());
                let name = recipe.finished(product.finish.epilogue()).name();
                if !product.c.shape().is_empty() {
                    interpret::run(recipe, product, meter.as_ref())?;
                }
                meter.iter().for_each(Meter::finish);
                report(name)
            }
            #[cfg(feature = "cuda")]
            (Kind::Cuda(_), Plan::Gpu(recipe)) if product.c.shape().is_empty() => {
                report(recipe.finished(product.finish.epilogue()).name())
            }
            #[cfg(feature = "cuda")]
            (Kind::Cuda(gpu), Plan::Gpu(recipe)) => report(gpu.multiply(Method::Recipe(recipe), product)?),
            _ => Err(self.other_plan(T::TYPE)),
        }
    }

    /// A product of groups, those rows of A and C with a matrix B each, by the kernel that was
    /// chosen for it.
    pub(crate) fn run_groups<T: Element>(
        &self,
        kernel: Hopper,
        product: Gemm<'_, T>,
        rows: &[Range<usize>],
    ) -> Result<Report> {
        match &self.0 {
            #[cfg(feature = "cuda")]
            Kind::Cuda(gpu) => {
                let kernel = gpu.multiply(Method::Groups(kernel, rows), product)?.into();
                Ok(Report { device: self.label(), kernel })
            }
            _ => {
                let _ = (kernel, product, rows);
                Err(self.other_plan(T::TYPE))
            }
        }
    }
}
