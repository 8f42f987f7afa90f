//! The calibration of a GPU: products are timed on it, and its description is fitted to the times.

use std::time::Instant;

use tegula_core::matrix::{Layout, Shape};
use tegula_ir::Order2d;
use tegula_kernels::plan::calibration::{Calibration, MeasuredTime, calibrate as fit, problems, recipes};
use tegula_kernels::plan::{GpuDescription, Plan, Problem, Recipe, TuningTable};

use super::graph_timer::GraphTimer;
use super::interleave::{SamplingPlan, Timed, estimate_call_time, may_be_power_limited};
use super::scratch::{Scratch, ScratchLayout};
use super::stats::median;
use crate::cuda::Gpu;
use crate::device::{Device, reported_description};
use crate::element::{Element, Type, bf16};
use crate::error::{Error, Result};
use crate::gemm::Gemm;

/// A calibration of a GPU.
#[derive(Clone, Debug)]
pub struct GpuCalibration {
    /// The description by the properties that the driver reports, with which the search began.
    pub reported: GpuDescription,
    /// The description that was found, and its errors.
    pub found: Calibration,
    /// The times that it was found by.
    pub times: Vec<MeasuredTime>,
}

/// Measures the description of a GPU, within about `seconds`.
///
/// Kernels that differ in what limits them are timed on random matrices: those of few rows by the
/// bandwidth of memory, others by the clock, large ones by the power limit. Products that do not
/// fit in memory, and kernels that fail, are left out.
///
/// # Errors
/// [`Error::Launch`] where too few kernels ran to find a description; errors of the driver.
pub fn calibrate(gpu: &Gpu, seconds: f64) -> Result<GpuCalibration> {
    let start = Instant::now();
    let reported = reported_description(gpu.info());
    // The cost model chooses, whatever was tuned before.
    let device = Device::from(gpu.clone()).with_tuning(TuningTable::default());
    let mut times = Vec::new();
    let mut failure = None;
    for problem in problems() {
        if start.elapsed().as_secs_f64() > seconds {
            break;
        }
        let mut timed = |recipe: Recipe, call: Result<f64>| match call {
            Ok(call) => times.push(MeasuredTime { problem, recipe, microseconds: 1e6 * call }),
            Err(error) => {
                tracing::debug!(recipe = recipe.name(), %error, "left out of the calibration");
                failure = Some(error);
            }
        };
        let all = recipes(&problem, &reported);
        match problem.ty {
            Type::BF16 => time::<bf16>(&device, gpu, &problem, &all, &mut timed),
            Type::F32 => time::<f32>(&device, gpu, &problem, &all, &mut timed),
            Type::F64 => time::<f64>(&device, gpu, &problem, &all, &mut timed),
            // Only the types of the calibration's products: each instance takes time to compile.
            ty => failure = Some(Error::no_kernels(ty)),
        }
    }
    match (fit(reported, &times), failure) {
        (Some(found), _) => Ok(GpuCalibration { reported, found, times }),
        (None, Some(failure)) => Err(failure),
        (None, None) => Err(Error::Launch {
            kernel: "calibration".into(),
            why: format!("{} kernels were timed, too few for three properties; allow more seconds", times.len()),
        }),
    }
}

/// Passes the seconds of a call of each recipe, on random matrices, to `timed`.
fn time<T: Element>(
    device: &Device,
    gpu: &Gpu,
    problem: &Problem,
    recipes: &[Recipe],
    timed: &mut dyn FnMut(Recipe, Result<f64>),
) {
    let scratch = match scratch::<T>(gpu, problem) {
        Ok(scratch) => scratch,
        Err(error) => return recipes.first().map_or((), |recipe| timed(*recipe, Err(error))),
    };
    for recipe in recipes {
        let plan = Plan::Gpu(*recipe);
        let mut timer = GraphTimer::new(&scratch.sets, |a, b, c| device.run(&plan, Gemm::new(a, b, c)).map(drop));
        timed(*recipe, call_seconds(&mut timer, scratch.sets.count(), problem));
    }
}

/// Random row-major and column-major matrices for a problem.
fn scratch<T: Element>(gpu: &Gpu, problem: &Problem) -> Result<Scratch<T>> {
    let Problem { m, n, k, layouts, .. } = *problem;
    let layout = |i: usize, [rows, cols]: [usize; 2]| {
        let is_transposed = layouts[i].order == Order2d::ColMajor;
        let [stored_rows, stored_cols] = if is_transposed { [cols, rows] } else { [rows, cols] };
        let layout = Layout::row_major(Shape { batches: 1, rows: stored_rows, cols: stored_cols })?;
        ScratchLayout::aligned(if is_transposed { layout.transposed() } else { layout })
    };
    Scratch::new(gpu, [layout(0, [m, k])?, layout(1, [k, n])?, layout(2, [m, n])?], 1)
}

/// The median seconds of a call. Calls that may reach the power limit run for longer.
fn call_seconds(timer: &mut dyn Timed, sets: usize, problem: &Problem) -> Result<f64> {
    let call = estimate_call_time(timer)?;
    let SamplingPlan { calls_per_sample, samples_per_slot, warm_up_samples, .. } =
        SamplingPlan::new(call, sets, may_be_power_limited(problem.ty, problem.flops(), call));
    let samples = timer.time(samples_per_slot, calls_per_sample)?;
    Ok(median(samples.get(warm_up_samples..).unwrap_or(&samples)))
}
