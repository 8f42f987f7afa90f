//! Measurements on a GPU, by events.

use tegula::cuda::Gpu;
use tegula::element::Element;
use tegula::epilogue::EpilogueOperands;
use tegula::error::{Error, Result};
use tegula::{Device, Gemm};
use tegula_kernels::plan::{Plan, choose, legal};

use super::accuracy::SampledRows;
use super::tune::{TuneEffort, TuneReport, shortlist, time_shortlist};
use super::{
    BenchReport, DEFAULT_PLAN, Inputs, Measurement, Peer, PeerKind, PeerMeasurement, Settings, Timed, rank_candidates,
    search_peers,
};
use crate::cublaslt::Candidates;
use crate::graph_timer::{GraphTimer, OperandSets};

/// Total size of the input sets in units of the L2 cache.
const L2_MULTIPLE: u128 = 2;
/// Maximum number of input sets. The smallest products are bound by launches, not by memory.
const MAX_SETS: u128 = 4096;
/// Operations per call from which a GPU may reach its power limit: 2048³ multiply-adds.
const POWER_LIMITED_FLOPS: f64 = 2.0 * 2048.0 * 2048.0 * 2048.0;

impl<T: Element> Timed for GraphTimer<'_, T> {
    fn time(&mut self, samples: usize, calls: usize) -> Result<Vec<f64>> {
        GraphTimer::time(self, samples, calls)
    }
}

/// Measures a case on a GPU against the candidates of cublasLt.
pub fn measure<T: Element>(gpu: &Gpu, inputs: &Inputs<T>, settings: &Settings, peer: &Peer) -> Result<BenchReport> {
    let (case, device) = (&inputs.case, Device::from(gpu.clone()));
    let sets = sets(case.bytes().into_iter().fold(0, u128::saturating_add), gpu.info().l2_bytes);
    let before = inputs.c_before()?;
    let operands = OperandSets::upload(gpu, [inputs.a.view(), inputs.b.view()], case.transposed, before.view(), sets)?;
    let operands = operands.with_bias(inputs.epilogue_operands().bias)?;
    let rows = SampledRows::new(before.shape(), case.k, settings.seed);
    let check = |timer: &mut GraphTimer<'_, T>| {
        operands.set_c(before.view())?;
        timer.run_once()?;
        rows.r(inputs, operands.c()?.view())
    };

    let mut kernel = String::new();
    let (r, search, peer) = {
        let mut ours = GraphTimer::new(&operands, |a, b, c| {
            let product = Gemm::new(a, b, c).alpha(case.alpha).beta(case.beta).accuracy(case.accuracy).on(&device);
            let activation = case.epilogue.activation;
            let product = product.epilogue(EpilogueOperands { bias: operands.bias(), activation });
            let product = if settings.batch_invariant { product.batch_invariant() } else { product };
            let report = match &settings.plan {
                Some(plan) => device.run(plan, product),
                None => product.run(),
            }?;
            kernel = report.kernel.into();
            Ok(())
        });
        let r = check(&mut ours)?;
        let candidates = match &peer.0 {
            PeerKind::CublasLt(lt) => lt.candidates(&operands, case.accuracy, case.epilogue.activation)?,
            _ => Candidates::none(),
        };
        let default = || {
            GraphTimer::new(&operands, |a, b, c| {
                let product = Gemm::new(a, b, c).alpha(case.alpha).beta(case.beta).accuracy(case.accuracy).on(&device);
                let activation = case.epilogue.activation;
                product.epilogue(EpilogueOperands { bias: operands.bias(), activation }).run().map(drop)
            })
        };
        let timer = |index| {
            let (candidates, [alpha, beta]) = (&candidates, [case.alpha, case.beta]);
            GraphTimer::new(&operands, move |a, b, c| candidates.queue(index, alpha, [a, b], beta, c))
        };
        let mut timers: Vec<GraphTimer<'_, T>> = match &peer.0 {
            PeerKind::Default => vec![default()],
            _ => (0..candidates.len()).map(timer).collect(),
        };
        let power_limited = case.flops() >= POWER_LIMITED_FLOPS;
        let search = search_peers(&mut ours, &mut timers, rank_candidates, sets, power_limited, settings.seconds)?;
        let peer = match (search.fastest(), search.call_times().1) {
            (Some(fastest), Some(time)) => Some(PeerMeasurement {
                name: if let PeerKind::Default = peer.0 { DEFAULT_PLAN.into() } else { candidates.name(fastest) },
                candidates: timers.len(),
                measurement: Measurement { time, r: check(&mut timers[fastest])? },
                other_candidates: Vec::new(),
            }),
            _ => None,
        };
        (r, search, peer)
    };
    Ok(search.report(kernel, r, peer, rows.count(), sets))
}

/// Tunes a case: times the shortlisted configurations and returns the fastest.
pub fn tune<T: Element>(gpu: &Gpu, inputs: &Inputs<T>, effort: &TuneEffort) -> Result<TuneReport> {
    let (case, device) = (&inputs.case, Device::from(gpu.clone()));
    let (caps, before) = (device.caps(), inputs.c_before()?);
    let sets = sets(case.bytes().into_iter().fold(0, u128::saturating_add), gpu.info().l2_bytes);
    let operands = OperandSets::upload(gpu, [inputs.a.view(), inputs.b.view()], case.transposed, before.view(), sets)?;
    let mut problem = None;
    GraphTimer::new(&operands, |a, b, c| Gemm::new(a, b, c).problem(&caps).map(|found| problem = Some(found)))
        .run_once()?;
    let unsupported = || Error::Unsupported { what: "a product by kernels".into(), ty: T::TYPE, device: device.name() };
    let problem = problem.ok_or_else(unsupported)?;
    let Plan::Gpu(model_choice) = choose(&problem, &caps)? else { return Err(unsupported()) };
    let legal = legal(&problem, &caps);
    let shortlist = shortlist(&legal, model_choice, effort.all);
    let (timed, [model_choice, fastest]) = time_shortlist(&shortlist, sets, effort.seconds, |recipe| {
        let (device, plan) = (&device, Plan::Gpu(recipe));
        let mut timer = GraphTimer::new(&operands, move |a, b, c| {
            let product = Gemm::new(a, b, c).alpha(case.alpha).beta(case.beta).on(device);
            device.run(&plan, product).map(drop)
        });
        timer.run_once().map(|()| timer)
    })?;
    Ok(TuneReport { problem, legal: legal.len(), timed, model_choice, fastest })
}

/// Number of input sets of `bytes` each that exceed a cache of `cache` bytes together.
fn sets(bytes: u128, cache: u32) -> usize {
    (L2_MULTIPLE * u128::from(cache)).div_ceil(bytes.max(1)).clamp(1, MAX_SETS) as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_exceed_the_cache() {
        let l2 = 60 << 20;
        assert_eq!((sets(3 << 30, l2), sets(120 << 20, l2), sets(48 << 20, l2)), (1, 1, 3));
        assert_eq!((sets(48 << 10, l2), sets(12, l2), sets(0, l2)), (2560, 4096, 4096));
    }
}
