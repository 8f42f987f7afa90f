//! Rows on a GPU, by its events.

use tegula::cuda::Gpu;
use tegula::element::Element;
use tegula::epilogue::Finish;
use tegula::error::{Error, Result};
use tegula::{Device, Gemm};
use tegula_kernels::plan::{Plan, choose, legal};

use super::accuracy::Sampled;
use super::tune::{Effort, Tuning, shortlist};
use super::{Inputs, Kind, Measured, Peer, Rival, Settings, Side, Timed, contest, ranked};
use crate::cublaslt::Products;
use crate::repeat::{Operands, Repeat};

/// Sets of inputs together have so many times the size of the L2 cache.
const CACHES: u128 = 2;
/// Most sets: those of the smallest products need not fill the cache, since they wait for launches and not for memory.
const MOST_SETS: u128 = 4096;
/// Operations of a call from which on a GPU may reach its limit of power: 2048³ multiply-adds.
const HUNGRY: f64 = 2.0 * 2048.0 * 2048.0 * 2048.0;

impl<T: Element> Timed for Repeat<'_, T> {
    fn time(&mut self, samples: usize, calls: usize) -> Result<Vec<f64>> {
        Repeat::time(self, samples, calls)
    }
}

/// A row.
pub fn measure<T: Element>(gpu: &Gpu, inputs: &Inputs<T>, settings: &Settings, peer: &Peer) -> Result<Measured> {
    let (case, device) = (&inputs.case, Device::from(gpu.clone()));
    let sets = sets(case.bytes().into_iter().fold(0, u128::saturating_add), gpu.info().l2_bytes);
    let before = inputs.c_before()?;
    let operands = Operands::upload(gpu, [inputs.a.view(), inputs.b.view()], case.transposed, before.view(), sets)?;
    let operands = operands.biased(inputs.finish().bias)?;
    let rows = Sampled::of(before.shape(), case.k, settings.seed);
    let judge = |side: &mut Repeat<'_, T>| {
        operands.set_c(before.view())?;
        side.once()?;
        rows.r(inputs, operands.c()?.view())
    };

    let mut kernel = String::new();
    let (r, contest, rival) = {
        let mut ours = Repeat::new(&operands, |a, b, c| {
            let product = Gemm::new(a, b, c).alpha(case.alpha).beta(case.beta).accuracy(case.accuracy).on(&device);
            let product = product.epilogue(Finish { bias: operands.bias(), activation: case.epilogue.activation });
            let report = match &settings.plan {
                Some(plan) => device.run(plan, product),
                None => product.run(),
            }?;
            kernel = report.kernel.into();
            Ok(())
        });
        let r = judge(&mut ours)?;
        let theirs = match &peer.0 {
            Kind::CublasLt(lt) => lt.products(&operands, case.accuracy, case.epilogue.activation)?,
            _ => Products::none(),
        };
        let candidate = |which| {
            let (theirs, [alpha, beta]) = (&theirs, [case.alpha, case.beta]);
            Repeat::new(&operands, move |a, b, c| theirs.queue(which, alpha, [a, b], beta, c))
        };
        let mut candidates: Vec<Repeat<'_, T>> = (0..theirs.len()).map(candidate).collect();
        let contest = contest(&mut ours, &mut candidates, ranked, sets, case.flops() >= HUNGRY, settings.seconds)?;
        let rival = match (contest.best(), contest.calls().1) {
            (Some(best), Some(call)) => {
                let side = Side { call, r: judge(&mut candidates[best])? };
                Some(Rival { name: theirs.name(best), candidates: theirs.len(), side, others: Vec::new() })
            }
            _ => None,
        };
        (r, contest, rival)
    };
    Ok(contest.measured(kernel, r, rival, rows.count(), sets))
}

/// The fastest recipe.
pub fn tune<T: Element>(gpu: &Gpu, inputs: &Inputs<T>, effort: &Effort) -> Result<Tuning> {
    let (case, device) = (&inputs.case, Device::from(gpu.clone()));
    let (caps, before) = (device.caps(), inputs.c_before()?);
    let sets = sets(case.bytes().into_iter().fold(0, u128::saturating_add), gpu.info().l2_bytes);
    let operands = Operands::upload(gpu, [inputs.a.view(), inputs.b.view()], case.transposed, before.view(), sets)?;
    let mut met = None;
    Repeat::new(&operands, |a, b, c| Gemm::new(a, b, c).problem(&caps).map(|problem| met = Some(problem))).once()?;
    let unsupported = || Error::Unsupported { what: "a product by kernels".into(), ty: T::TYPE, device: device.name() };
    let problem = met.ok_or_else(unsupported)?;
    let Plan::Gpu(chosen) = choose(&problem, &caps)? else { return Err(unsupported()) };
    let legal = legal(&problem, &caps);
    let (timed, [chosen, winner]) =
        super::tune::contest(&shortlist(&legal, chosen, effort.all), sets, effort.seconds, |recipe| {
            let (device, plan) = (&device, Plan::Gpu(recipe));
            let mut repeat = Repeat::new(&operands, move |a, b, c| {
                let product = Gemm::new(a, b, c).alpha(case.alpha).beta(case.beta).on(device);
                device.run(&plan, product).map(drop)
            });
            repeat.once().map(|()| repeat)
        })?;
    Ok(Tuning { problem, legal: legal.len(), timed, chosen, winner })
}

/// Sets of inputs of so many bytes that a cache does not hold together.
fn sets(bytes: u128, cache: u32) -> usize {
    (CACHES * u128::from(cache)).div_ceil(bytes.max(1)).clamp(1, MOST_SETS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_products_go_round_more_sets_than_the_cache_holds() {
        let l2 = 60 << 20;
        assert_eq!((sets(3 << 30, l2), sets(120 << 20, l2), sets(48 << 20, l2)), (1, 1, 3));
        assert_eq!((sets(48 << 10, l2), sets(12, l2), sets(0, l2)), (2560, 4096, 4096));
    }
}
