//! Tuning at the first run of a problem, for devices that ask for it.

use std::sync::{Mutex, TryLockError};
use std::time::Duration;

use tegula_kernels::plan::{Problem, TunedEntry};

use super::gpu::tune;
use super::scratch::ScratchLayout;
use super::search::{TuneEffort, TuneReport};
use crate::cache::{self, TuningCache};
use crate::cuda::{BesideCaptures, Gpu};
use crate::device::Device;
use crate::element::{Element, Scalar};
use crate::error::Result;
use crate::gemm::Gemm;
use crate::matrix::{DeviceMemory, Memory, View};

/// One search at a time: two would measure each other. Nothing waits for it, since a search waits
/// for Rayon's threads, which may meet this lock in products of the program.
static SEARCH: Mutex<()> = Mutex::new(());

/// Measures the problem of a checked product where the device asks for it and nothing is known of
/// it. Errors are logged: the product has a plan in any case.
pub(crate) fn autotune<T: Element>(device: &Device, problem: &Problem, product: &Gemm<'_, T>) {
    let Some((gpu, budget)) = device.autotuned() else { return };
    let entries = cache::measured(gpu.info());
    let is_settled = || entries.read().is_settled(problem);
    let is_empty = [problem.m, problem.n, problem.k, problem.batches].contains(&0);
    if is_settled() || is_empty || product.batch_invariant || is_captured(gpu, product) {
        return;
    }
    let _one = match SEARCH.try_lock() {
        Ok(lock) => lock,
        Err(TryLockError::Poisoned(lock)) => lock.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    // Another thread may have ended its search since.
    if is_settled() {
        return;
    }
    match search(gpu, budget, product) {
        Ok(report) if report.problem != *problem => {
            tracing::error!(?problem, measured = ?report.problem, "another problem was measured; please report this");
            entries.record(*problem, None);
        }
        Ok(TuneReport { fastest, model_choice, timed, .. }) => {
            let (recipe, seconds) = (fastest.recipe.name(), fastest.seconds);
            tracing::info!(?problem, recipe, seconds, instead_of = model_choice.seconds, timed = timed.len(), "tuned");
            let entry = TunedEntry { recipe, microseconds: 1e6 * seconds };
            entries.record(*problem, Some(entry.clone()));
            let kept = TuningCache::open(cache::key(gpu.info())).and_then(|(cache, warning)| {
                if let Some(warning) = warning {
                    tracing::warn!("{warning}");
                }
                cache.keep(*problem, entry)
            });
            if let Err(error) = kept {
                tracing::warn!(%error, "the tuned entry is lost when the program ends");
            }
        }
        Err(error) => {
            tracing::warn!(?problem, %error, "the kernels cannot be measured; the cost model chooses");
            entries.record(*problem, None);
        }
    }
}

/// Whether the product becomes part of a capture, which forbids to allocate and to wait.
///
/// Its stream is being captured, or a home stream of its matrices, which is ordered before it.
fn is_captured<T: Element>(gpu: &Gpu, product: &Gemm<'_, T>) -> bool {
    let memory = [on_gpu(product.a), on_gpu(product.b), on_gpu(product.c.as_view())];
    let bias = product.epilogue.bias.and_then(on_gpu);
    let memory: Vec<_> = memory.into_iter().chain([bias]).flatten().collect();
    !matches!(gpu.is_capturing_any(&memory), Ok(false))
}

/// The memory of a matrix on a GPU.
fn on_gpu<T: Scalar>(view: View<'_, T>) -> Option<DeviceMemory<'_>> {
    match view.memory() {
        Memory::Device(memory) => Some(memory),
        Memory::Host(_) => None,
    }
}

/// Searches on matrices like those of the product, and by another handle: other threads may use the
/// stream of this one.
fn search<T: Element>(gpu: &Gpu, budget: Duration, product: &Gemm<'_, T>) -> Result<TuneReport> {
    let operands =
        [ScratchLayout::of(product.a)?, ScratchLayout::of(product.b)?, ScratchLayout::of(product.c.as_view())?];
    let _beside = BesideCaptures::begin()?;
    // Work before the product would slow down the first kernels.
    gpu.synchronize()?;
    let effort = TuneEffort { seconds: budget.as_secs_f64(), ..TuneEffort::default() };
    tune::<T>(&Gpu::open(gpu.ordinal())?, operands, product.accuracy, &effort)
}
