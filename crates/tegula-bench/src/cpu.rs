//! Measurements on the CPU, by the system clock.
//!
//! A case has one set of inputs, so small products are cache-resident, as in most applications. A
//! sample counts if a loop of multiply-adds runs at full speed before and after it
//! ([`cpu::at_full_speed`]). Otherwise it is discarded and repeated, within a time limit.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tegula::element::Element;
use tegula::error::Result;
use tegula::matrix::Matrix;
use tegula::tune::interleave::{Timed, rank_interleaved};
use tegula::{Accuracy, Device, Gemm, Report};
use tegula_core::threads;
use tegula_cpu as cpu;

use super::accuracy::SampledRows;
use super::{BenchReport, Case, ExcludedPeer, Inputs, Measurement, PeerMeasurement, Settings, search_peers};
use crate::peer::{PeerLibrary, PreparedProduct};

/// Attempts per sample; the last one counts in any case.
const MAX_ATTEMPTS: usize = 200;
/// Time limit of discarded samples, in units of the time of a measurement.
///
/// Under constant background load all samples would be discarded.
const DISCARD_LIMIT: f64 = 0.5;
/// Longest wait before a slot until the threads of the other library are idle.
///
/// They spin after a call and would share cores with the library that is measured: those of
/// OpenBLAS for 2²⁸ cycles, an eighth of a second.
const SPIN_DOWN_LIMIT: Duration = Duration::from_millis(500);
/// Time over which the process has to be idle, and where its use of processors is unknown the wait.
const IDLE_WINDOW: Duration = Duration::from_millis(if cfg!(target_os = "linux") { 4 } else { 150 });
/// Time over which the processors of a peer's call are counted.
const CHECK_TIME: Duration = Duration::from_millis(20);
/// Processors per thread beyond which a peer uses more threads than it was told to.
const PROCESSOR_TOLERANCE: f64 = 1.1;
/// Warm-up of a slot, while the system assigns threads to cores.
const WARM_UP: Duration = Duration::from_millis(25);

/// A call timed on the host.
struct HostTimer<'a> {
    call: Box<dyn FnMut() -> Result<()> + 'a>,
    /// Count of discarded samples.
    discarded: &'a Cell<usize>,
    /// Seconds left for samples that are discarded.
    discard_budget: f64,
    warm_up: Duration,
    /// Whether threads of a peer library may still spin when a slot begins.
    waits_for_spin_down: bool,
}

impl<'a> HostTimer<'a> {
    fn new(
        call: Box<dyn FnMut() -> Result<()> + 'a>,
        settings: &Settings,
        discarded: &'a Cell<usize>,
        waits_for_spin_down: bool,
    ) -> HostTimer<'a> {
        let discard_budget = DISCARD_LIMIT * settings.seconds;
        // A measurement without time needs no steady clock.
        let warm_up = if settings.seconds > 0.0 { WARM_UP } else { Duration::ZERO };
        HostTimer { call, discarded, discard_budget, warm_up, waits_for_spin_down }
    }
}

impl Timed for HostTimer<'_> {
    fn time(&mut self, samples: usize, calls: usize) -> Result<Vec<f64>> {
        if threads::count() > 1 {
            if self.waits_for_spin_down {
                wait_until_idle(processor_time, std::thread::sleep);
            }
            let start = Instant::now();
            while start.elapsed() < self.warm_up {
                (self.call)()?;
            }
        }
        (self.call)()?;
        let sample = |_| {
            for _ in 0..MAX_ATTEMPTS {
                if self.discard_budget <= 0.0 {
                    break;
                }
                let before = cpu::at_full_speed();
                // The probe evicted operands from the cache.
                (self.call)()?;
                let start = Instant::now();
                (0..calls).try_for_each(|_| (self.call)())?;
                let seconds = start.elapsed().as_secs_f64() / calls.max(1) as f64;
                if before && cpu::at_full_speed() {
                    return Ok(seconds);
                }
                self.discarded.set(self.discarded.get() + 1);
                self.discard_budget -= start.elapsed().as_secs_f64();
            }
            let start = Instant::now();
            (0..calls).try_for_each(|_| (self.call)())?;
            Ok(start.elapsed().as_secs_f64() / calls.max(1) as f64)
        };
        (0..samples).map(sample).collect()
    }
}

/// Waits until the process uses less than a quarter of a processor, but not forever.
fn wait_until_idle(used: impl Fn() -> Duration, sleep: impl Fn(Duration)) {
    for _ in 0..SPIN_DOWN_LIMIT.as_millis() / IDLE_WINDOW.as_millis() {
        let before = used();
        sleep(IDLE_WINDOW);
        if used().saturating_sub(before) < IDLE_WINDOW / 4 {
            return;
        }
    }
}

/// Processor time that the process has used; zero where it is unknown.
fn processor_time() -> Duration {
    #[cfg(target_os = "linux")]
    {
        let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
        Duration::try_from(time).unwrap_or_default()
    }
    #[cfg(not(target_os = "linux"))]
    Duration::ZERO
}

/// Measures a case on the CPU against the peer libraries.
pub fn measure<T: Element>(
    device: &Device,
    inputs: &Inputs<T>,
    settings: &Settings,
    peers: &[PeerLibrary],
) -> Result<BenchReport> {
    let case = &inputs.case;
    let (a, b, epilogue) = (inputs.a(), inputs.b(), inputs.epilogue_operands());
    let multiply = |c: &mut Matrix<T::Out>| -> Result<Report> {
        let product = Gemm::new(a, b, c.view_mut()).alpha(case.alpha).beta(case.beta).accuracy(case.accuracy);
        let product = product.on(device).epilogue(epilogue);
        match (&settings.plan, settings.batch_invariant) {
            (None, false) => product.run(),
            (None, true) => product.batch_invariant().run(),
            (Some(plan), false) => device.run(plan, product),
            (Some(plan), true) => device.run(plan, product.batch_invariant()),
        }
    };
    let (before, discarded) = (inputs.c_before()?, Cell::new(0));
    let mut c = Matrix::from_view(before.view())?;
    let report = multiply(&mut c)?;
    let rows = SampledRows::new(c.shape(), case.k, settings.seed);
    let r = on_all_processors(|| rows.r(inputs, c.view()))?;
    let waits_for_spin_down = !peers.is_empty() && case.epilogue.is_none();
    // A small product takes no longer than some copies of its operands, so the call is as short as
    // in a program: it sets no option that the case does not need, and drops its report.
    let is_plain = settings.plan.is_none() && !settings.batch_invariant && case.epilogue.is_none();
    let timed: Box<dyn FnMut() -> Result<()>> = match is_plain && case.accuracy == Accuracy::Full {
        true => Box::new(|| match Gemm::new(a, b, c.view_mut()).alpha(case.alpha).beta(case.beta).on(device).run() {
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        }),
        false => Box::new(|| multiply(&mut c).map(drop)),
    };
    let mut ours = HostTimer::new(timed, settings, &discarded, waits_for_spin_down);

    let mut prepared = if case.epilogue.is_none() { prepare(inputs, peers)? } else { Vec::new() };
    prepared.iter_mut().for_each(|product| product.set_c(&before));
    let mut excluded = Vec::new();
    let mut obedient = Vec::new();
    for mut product in prepared {
        // One that fails is dropped when it is timed.
        let processors = processors_used(|| product.run()).unwrap_or(0.0);
        if exceeds(processors, threads::count()) {
            excluded.push(ExcludedPeer { name: product.name().into(), processors });
        } else {
            obedient.push(product);
        }
    }
    let mut prepared = obedient;
    let mut candidates: Vec<_> = prepared
        .iter_mut()
        .map(|product| HostTimer::new(Box::new(|| product.run()), settings, &discarded, true))
        .collect();
    // Long slots only where there is time for them.
    let seconds = settings.seconds;
    let search = search_peers(&mut ours, &mut candidates, rank_interleaved, 1, |_| false, seconds, seconds)?;
    drop(candidates);
    let peer = match (search.fastest(), search.call_times().1) {
        (Some(fastest), Some(time)) => {
            // Check one call on the initial C, as for Tegula.
            prepared[fastest].set_c(&before);
            prepared[fastest].run()?;
            let result = prepared[fastest].c()?;
            let measurement = Measurement { time, r: on_all_processors(|| rows.r(inputs, result.view()))? };
            let others = search.ranking[1..].iter().map(|&(which, call)| (prepared[which].name().into(), call));
            Some(PeerMeasurement {
                name: prepared[fastest].name().into(),
                candidates: prepared.len(),
                measurement,
                other_candidates: others.collect(),
            })
        }
        _ => None,
    };
    let report = search.report(report.kernel.into(), r, peer, rows.count(), 1);
    Ok(BenchReport { discarded: discarded.get(), threads: Some(threads::count()), excluded, ..report })
}

/// Computes a reference on all processors, however many threads are measured.
fn on_all_processors<R: Send>(reference: impl FnOnce() -> R + Send) -> R {
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    if processors <= threads::count() {
        return reference();
    }
    match rayon::ThreadPoolBuilder::new().num_threads(processors).build() {
        Ok(pool) => pool.install(reference),
        // The system refuses more threads.
        Err(_) => reference(),
    }
}

/// The processors that a call keeps busy, over at least [`CHECK_TIME`]. Zero where it is unknown.
fn processors_used(mut call: impl FnMut() -> Result<()>) -> Result<f64> {
    call()?;
    wait_until_idle(processor_time, std::thread::sleep);
    let (start, before) = (Instant::now(), processor_time());
    while start.elapsed() < CHECK_TIME {
        call()?;
    }
    Ok(processor_time().saturating_sub(before).as_secs_f64() / start.elapsed().as_secs_f64())
}

/// Whether a call that keeps so many processors busy runs on more than `threads` threads.
fn exceeds(processors: f64, threads: usize) -> bool {
    processors > PROCESSOR_TOLERANCE * threads as f64
}

/// Prepares a case with all functions of the peer libraries, on Tegula's number of threads.
fn prepare<'a, T: Element>(inputs: &'a Inputs<T>, peers: &'a [PeerLibrary]) -> Result<Vec<PreparedProduct<'a, T>>> {
    let Case { alpha, beta, .. } = inputs.case;
    let mut all = Vec::new();
    for peer in peers {
        peer.set_threads(threads::count());
        all.extend(peer.prepare(alpha, inputs.a(), inputs.b(), beta)?);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How long the wait lasts where one thread of a fake process spins for `spin`.
    fn waited(spin: Duration) -> Duration {
        let now = Cell::new(Duration::ZERO);
        wait_until_idle(|| now.get().min(spin), |time| now.set(now.get() + time));
        now.get()
    }

    #[test]
    fn wait_lasts_until_other_threads_are_idle() {
        assert_eq!(waited(Duration::ZERO), IDLE_WINDOW);
        let spin = Duration::from_millis(320);
        assert!((spin..=spin + 2 * IDLE_WINDOW).contains(&waited(spin)), "{:?}", waited(spin));
        assert!((SPIN_DOWN_LIMIT / 2..=SPIN_DOWN_LIMIT).contains(&waited(Duration::MAX)), "a thread that never stops");
    }

    /// Spinning threads count as processors, however many the machine has.
    #[test]
    fn peer_on_too_many_threads_is_recognized() {
        assert!(!exceeds(1.05, 1) && !exceeds(2.19, 2) && !exceeds(0.0, 1));
        assert!(exceeds(1.9, 1) && exceeds(4.0, 2));
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn processor_time_advances_with_work() {
        let before = processor_time();
        while processor_time() == before {
            std::hint::spin_loop();
        }
        assert!(processor_time() > before);
    }
}
