//! Measurements on a GPU, by events.

use tegula::cuda::Gpu;
use tegula::element::Element;
use tegula::epilogue::EpilogueOperands;
use tegula::error::Result;
use tegula::tune::graph_timer::GraphTimer;
use tegula::tune::interleave::{may_be_power_limited, rank_candidates};
use tegula::tune::operand_sets::{OperandSets, sets_beyond_cache};
use tegula::{Device, Gemm};

use super::accuracy::SampledRows;
use super::{BenchReport, DEFAULT_PLAN, Inputs, Measurement, Peer, PeerKind, PeerMeasurement, Settings, search_peers};
use crate::cublaslt::Candidates;

/// Measures a case on a GPU against the candidates of cublasLt.
pub fn measure<T: Element>(gpu: &Gpu, inputs: &Inputs<T>, settings: &Settings, peer: &Peer) -> Result<BenchReport> {
    let (case, device) = (&inputs.case, Device::from(gpu.clone()));
    let sets = sets_beyond_cache(case.bytes().into_iter().fold(0, u128::saturating_add), gpu.info().l2_bytes);
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
        let power_limited = |call| may_be_power_limited(T::TYPE, case.flops(), call);
        let search =
            search_peers(&mut ours, &mut timers, rank_candidates, sets, power_limited, settings.seconds, f64::MAX)?;
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
