//! Rows on the processor, by the system's clock.
//!
//! One set of inputs, so small products find them in the cache, as most do there. A sample counts if a loop of multiply-adds runs at full speed before and after it
//! ([`cpu::at_full_speed`]); else it is taken again, as long as there is patience.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tegula::element::Element;
use tegula::error::Result;
use tegula::matrix::Matrix;
use tegula::{Device, Gemm, Report};
use tegula_core::threads;
use tegula_cpu as cpu;

use super::accuracy::Sampled;
use super::{Case, Inputs, Measured, Rival, Settings, Side, Timed, contest, ranked_by_turns};
use crate::peer;

/// How often a sample is taken again before it counts as it is.
const TRIES: usize = 200;
/// How many times the time for the turns of a row each side may spend on samples that do not count: where others have a processor all the time, all would be such.
const PATIENCE: f64 = 5.0;
/// How long others wait for their threads, which spin after a call and may share a processor with ours, and how long a side then works before it counts, while the
/// system finds places for its threads.
const SETTLE: [Duration; 2] = [Duration::from_millis(60), Duration::from_millis(25)];

/// Calls, timed on the host.
struct Calls<'a> {
    call: Box<dyn FnMut() -> Result<()> + 'a>,
    /// Samples that did not count.
    discarded: &'a Cell<usize>,
    /// Seconds that may still be spent on such samples.
    patience: f64,
    /// Whether a peer ran just before, whose threads may still spin.
    settles: bool,
}

impl<'a> Calls<'a> {
    fn new(
        call: impl FnMut() -> Result<()> + 'a,
        settings: &Settings,
        discarded: &'a Cell<usize>,
        settles: bool,
    ) -> Calls<'a> {
        Calls { call: Box::new(call), discarded, patience: PATIENCE * settings.seconds, settles }
    }
}

impl Timed for Calls<'_> {
    fn time(&mut self, samples: usize, calls: usize) -> Result<Vec<f64>> {
        if threads::count() > 1 {
            let [rest, warm] = SETTLE;
            if self.settles {
                std::thread::sleep(rest);
            }
            let start = Instant::now();
            while start.elapsed() < warm {
                (self.call)()?;
            }
        }
        (self.call)()?;
        let sample = |_| {
            for _ in 0..TRIES {
                if self.patience <= 0.0 {
                    break;
                }
                let before = cpu::at_full_speed();
                // The probe has been in the cache.
                (self.call)()?;
                let start = Instant::now();
                (0..calls).try_for_each(|_| (self.call)())?;
                let seconds = start.elapsed().as_secs_f64() / calls.max(1) as f64;
                if before && cpu::at_full_speed() {
                    return Ok(seconds);
                }
                self.discarded.set(self.discarded.get() + 1);
                self.patience -= start.elapsed().as_secs_f64();
            }
            let start = Instant::now();
            (0..calls).try_for_each(|_| (self.call)())?;
            Ok(start.elapsed().as_secs_f64() / calls.max(1) as f64)
        };
        (0..samples).map(sample).collect()
    }
}

/// A row.
pub fn measure<T: Element>(
    device: &Device,
    inputs: &Inputs<T>,
    settings: &Settings,
    peers: &[peer::Peer],
) -> Result<Measured> {
    let case = &inputs.case;
    let multiply = |c: &mut Matrix<T::Out>| -> Result<Report> {
        let product = Gemm::new(inputs.a(), inputs.b(), c.view_mut()).alpha(case.alpha).beta(case.beta);
        let product = product.accuracy(case.accuracy).on(device).epilogue(inputs.finish());
        match &settings.plan {
            Some(plan) => device.run(plan, product),
            None => product.run(),
        }
    };
    let (before, discarded) = (inputs.c_before()?, Cell::new(0));
    let mut c = Matrix::from_view(before.view())?;
    let report = multiply(&mut c)?;
    let rows = Sampled::of(c.shape(), case.k, settings.seed);
    let r = rows.r(inputs, c.view())?;
    let mut ours =
        Calls::new(|| multiply(&mut c).map(drop), settings, &discarded, !peers.is_empty() && case.epilogue.is_none());

    let mut ready = if case.epilogue.is_none() { ready(inputs, peers)? } else { Vec::new() };
    ready.iter_mut().for_each(|ready| ready.set(&before));
    let mut candidates: Vec<_> =
        ready.iter_mut().map(|ready| Calls::new(|| ready.run(), settings, &discarded, true)).collect();
    let contest = contest(&mut ours, &mut candidates, ranked_by_turns, 1, false, settings.seconds)?;
    drop(candidates);
    let rival = match (contest.best(), contest.calls().1) {
        (Some(best), Some(call)) => {
            // As ours, by a product that does not feed on others.
            ready[best].set(&before);
            ready[best].run()?;
            let side = Side { call, r: rows.r(inputs, ready[best].c()?.view())? };
            let others = contest.ranked[1..].iter().map(|&(which, call)| (ready[which].name().into(), call)).collect();
            Some(Rival { name: ready[best].name().into(), candidates: ready.len(), side, others })
        }
        _ => None,
    };
    let measured = contest.measured(report.kernel.into(), r, rival, rows.count(), 1);
    Ok(Measured { discarded: discarded.get(), threads: Some(threads::count()), ..measured })
}

/// All ways in which libraries make a product, on as many threads as ours.
fn ready<'a, T: Element>(inputs: &'a Inputs<T>, peers: &'a [peer::Peer]) -> Result<Vec<peer::Ready<'a, T>>> {
    let Case { alpha, beta, .. } = inputs.case;
    let mut all = Vec::new();
    for peer in peers {
        peer.set_threads(threads::count());
        all.extend(peer.ready(alpha, inputs.a(), inputs.b(), beta)?);
    }
    Ok(all)
}
