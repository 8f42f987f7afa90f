//! The search for the fastest kernel of a product on a GPU.

use std::time::Instant;

use tegula_core::epilogue::Epilogue;
use tegula_kernels::plan::{Operands, Plan, Recipe, choose, legal};

use super::graph_timer::GraphTimer;
use super::interleave::{may_be_power_limited, timed};
use super::scratch::{Scratch, ScratchLayout};
use super::search::{ASSEMBLY_SHARE, Budget, TuneEffort, TuneReport, shortlist, time_shortlist};
use super::verify::verify;
use crate::cuda::Gpu;
use crate::device::Device;
use crate::element::{Accuracy, Element};
use crate::error::{Error, Result};
use crate::gemm::Gemm;

/// Searches for the fastest kernel configuration of a product on a GPU.
///
/// The configurations with the least predicted times are screened with a few samples. The fastest
/// of them and the cost model's choice are then timed interleaved. All run on random matrices in
/// scratch memory, with the layouts of `operands`. The fastest whose result is right is returned;
/// a wrong result is logged.
///
/// # Errors
/// [`Error::Shape`] for an empty product, [`Error::OutOfMemory`], errors of the driver, and
/// [`Error::Launch`] where no finalist's result is right.
pub fn tune<T: Element>(
    gpu: &Gpu,
    operands: [ScratchLayout; 3],
    accuracy: Accuracy,
    effort: &TuneEffort,
) -> Result<TuneReport> {
    if operands.iter().any(|operand| operand.shape().is_empty()) {
        return Err(Error::Shape("an empty product has no run time; use sizes of at least 1".into()));
    }
    let start = Instant::now();
    let budget = Budget { seconds: effort.seconds, elapsed: &|| start.elapsed().as_secs_f64() };
    // The cost model chooses, whatever was tuned before.
    let device = Device::from(gpu.clone()).with_tuning(crate::cache::tuned(gpu.info()).without_entries());
    let caps = device.caps();
    let scratch = Scratch::<T>::new(gpu, operands, effort.seed)?;
    let sets = &scratch.sets;
    let problem = sets.with_set(0, |a, b, c| Gemm::new(a, b, c).accuracy(accuracy).problem(&caps))?;
    let Plan::Gpu(model_choice) = choose(&problem, &caps)? else {
        return Err(Error::Unsupported { what: "a product by kernels".into(), ty: T::TYPE, device: device.name() });
    };
    let legal = legal(&problem, &caps);
    let mut shortlist = shortlist(&legal, model_choice, effort.candidates);
    let of_sets = Operands { layouts: sets.layouts(), operand_layouts: problem.layouts, epilogue: Epilogue::NONE };
    let has_time = || start.elapsed().as_secs_f64() < ASSEMBLY_SHARE * effort.seconds;
    load(gpu, &mut shortlist, &of_sets, has_time)?;
    let timer = |recipe| {
        let (device, plan) = (&device, Plan::Gpu(recipe));
        GraphTimer::new(sets, move |a, b, c| device.run(&plan, Gemm::new(a, b, c).accuracy(accuracy)).map(drop))
    };
    let mut timers: Vec<_> = shortlist.iter().map(|recipe| timer(*recipe)).collect();
    let power_limited = |call| may_be_power_limited(problem.ty, problem.flops(), call);
    let times = time_shortlist(&shortlist, &mut timed(&mut timers), sets.count(), &power_limited, budget)?;
    drop(timers);
    let mut wrong = None;
    for finalist in &times.finalists {
        let kernel = finalist.recipe.name();
        match verify(&scratch, accuracy, &kernel, || timer(finalist.recipe).run_once()) {
            Ok(()) => {
                let (timed, model_choice, fastest) = (times.screened, times.first, *finalist);
                let finalists = times.finalists;
                return Ok(TuneReport { problem, legal: legal.len(), timed, model_choice, fastest, finalists });
            }
            Err(error @ Error::Launch { .. }) => {
                tracing::error!(?problem, %error, "a kernel's result is wrong; please report this");
                wrong = Some(error);
            }
            Err(error) => return Err(error),
        }
    }
    Err(wrong.unwrap_or_else(|| Error::Launch { kernel: model_choice.name(), why: "it was not timed".into() }))
}

/// Loads the kernels of a shortlist, in its order, while there is time.
///
/// The driver assembles a new kernel for a tenth of a second or more, one after the other whatever
/// the number of threads that ask. Recipes whose kernels are not loaded are removed.
///
/// # Errors
/// Errors of the first recipe.
fn load(gpu: &Gpu, shortlist: &mut Vec<Recipe>, operands: &Operands, has_time: impl Fn() -> bool) -> Result<()> {
    let mut loaded = Vec::new();
    for recipe in &*shortlist {
        if !loaded.is_empty() && !has_time() {
            break;
        }
        match gpu.load_kernels(recipe, operands) {
            Ok(()) => loaded.push(*recipe),
            Err(error) if loaded.is_empty() => return Err(error),
            Err(error) => tracing::debug!(recipe = recipe.name(), %error, "candidate failed"),
        }
    }
    *shortlist = loaded;
    Ok(())
}
