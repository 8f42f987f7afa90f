//! Interleaved sampling of two or more benchmarks.
//!
//! Interleaved benchmarks run at the same clocks, temperatures and background load. Their ratio is
//! therefore more reliable than either time.
//!
//! Each round gives every benchmark one slot. Slots of short calls take a few milliseconds. Long
//! calls, and calls at the power limit, get long slots: with short ones a power-limited kernel
//! would use the power budget that the other one saves. The first samples of a long slot, while
//! clocks settle, are warm-up and dropped. Clocks at the power limit also oscillate: a second of
//! load comes before the first long slot, and every other round of candidates has reverse order.
//!
//! The module depends on a clock and calls only, not on devices or products.

use std::time::Instant;

use super::stats::median;
use crate::element::Type;
use crate::error::Result;

/// Seconds per sample of short calls. Events resolve half a microsecond.
const SAMPLE_SECONDS: f64 = 1e-3;
/// Seconds per slot of short calls.
const SLOT_SECONDS: f64 = 5e-3;
/// Calls of at least this many seconds are long.
const LONG_CALL: f64 = 5e-3;
/// Seconds per long slot, and seconds of its warm-up.
const LONG_SLOT_SECONDS: (f64, f64) = (0.2, 0.05);
/// Seconds of warm-up before the first sample: clocks rise from idle.
const WARM_UP_SECONDS: f64 = 0.1;
/// Seconds of load before slots at the power limit. From idle, an H200 is fast for 0.8 seconds,
/// then up to 30 % slower for 0.4 seconds. Smaller dips follow every 0.9 seconds.
const SETTLING_SECONDS: f64 = 1.3;
/// Maximum number of samples of that load, where the clock of the benchmark does not advance.
const MAX_SETTLING_SAMPLES: usize = 2000;
/// Minimum number of rounds, regardless of time.
const MIN_ROUNDS: usize = 3;
/// Maximum number of calls per sample; shorter calls cannot be resolved.
const MAX_CALLS: usize = 1 << 14;
/// Seconds per sample when candidates are screened.
const SCREEN_SECONDS: f64 = 3e-4;
/// Candidates that are timed interleaved after screening.
const FINALISTS: usize = 4;
/// A finalist whose median exceeds the least by this factor after a round is not timed again. After
/// the first round, which a disturbance may distort, the factor is the larger one.
const CLEARLY_SLOWER: [f64; 2] = [1.05, 1.02];

/// Operations per call from which a GPU may reach its power limit: 2048³ multiply-adds.
const POWER_LIMITED_FLOPS: f64 = 2.0 * 2048.0 * 2048.0 * 2048.0;

/// Whether calls of this many operations and seconds may reach the power limit of a GPU.
///
/// Short calls may as well, at a high rate: in bf16, 512×896×4864 at 364 TFLOP/s takes 700 W on an
/// H200.
pub fn may_be_power_limited(ty: Type, flops: f64, call: f64) -> bool {
    let rate = match ty.size() {
        size @ 1..=2 => 500e12 / size as f64,
        _ => 25e12,
    };
    // A clock that does not advance says nothing about the rate.
    flops >= POWER_LIMITED_FLOPS || call > 0.0 && flops / call >= rate
}

/// A repeatable call with a clock.
pub trait Timed {
    /// Takes consecutive samples of `calls` calls each and returns the seconds per call of each.
    ///
    /// Calls run back to back without synchronization in between. An uncounted sample comes first.
    ///
    /// # Errors
    /// Errors of the calls and the clock.
    fn time(&mut self, samples: usize, calls: usize) -> Result<Vec<f64>>;
}

/// Numbers of calls and samples per slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SamplingPlan {
    /// Calls per sample.
    pub calls_per_sample: usize,
    /// Samples per slot, warm-up included.
    pub samples_per_slot: usize,
    /// Samples at the start of a slot that are dropped.
    pub warm_up_samples: usize,
    /// Whether slots are long, see the module documentation.
    pub long_slots: bool,
}

impl SamplingPlan {
    /// Plans samples of calls of `call` seconds that rotate through `sets` sets of inputs.
    ///
    /// `power_limited` calls may reach the power limit of the device.
    pub fn new(call: f64, sets: usize, power_limited: bool) -> SamplingPlan {
        let call = call.max(1e-9);
        let sets = sets.max(1);
        let calls = (SAMPLE_SECONDS / call).ceil() as usize;
        let calls_per_sample = calls.clamp(1, MAX_CALLS).next_multiple_of(sets);
        let sample = call * calls_per_sample as f64;
        let count = |seconds: f64| (seconds / sample).ceil() as usize;
        if call < LONG_CALL && !power_limited {
            let samples_per_slot = count(SLOT_SECONDS).max(1);
            return SamplingPlan { calls_per_sample, samples_per_slot, warm_up_samples: 0, long_slots: false };
        }
        // `Timed::time` takes one more, uncounted sample first.
        let (slot, warm_up) = LONG_SLOT_SECONDS;
        let warm_up_samples = count(warm_up).saturating_sub(1);
        let samples_per_slot = (count(slot) - 1).max(warm_up_samples + 2);
        SamplingPlan { calls_per_sample, samples_per_slot, warm_up_samples, long_slots: true }
    }

    /// The plan with slots of at most `seconds` where calls of `call` seconds are long, but of one
    /// counted sample at least.
    ///
    /// For devices where a slot does not change the clocks of the next one.
    pub fn with_slots_of(self, call: f64, seconds: f64) -> SamplingPlan {
        let (slot, warm_up) = LONG_SLOT_SECONDS;
        if !self.long_slots || seconds >= slot {
            return self;
        }
        let sample = call.max(1e-9) * self.calls_per_sample as f64;
        let count = |seconds: f64| (seconds / sample) as usize;
        let warm_up_samples = count(warm_up / slot * seconds).saturating_sub(1);
        let samples_per_slot = count(seconds).saturating_sub(1).max(warm_up_samples + 1);
        SamplingPlan { warm_up_samples, samples_per_slot, ..self }
    }

    /// Plans slots of one or two samples, for many candidates to be ranked within a second.
    pub fn brief(call: f64, sets: usize) -> SamplingPlan {
        let SamplingPlan { calls_per_sample, .. } = SamplingPlan::new(call, sets, false);
        let sample = call.max(1e-9) * calls_per_sample as f64;
        let samples_per_slot = (SLOT_SECONDS / (2.0 * sample)).ceil().max(1.0) as usize;
        SamplingPlan { calls_per_sample, samples_per_slot, warm_up_samples: 0, long_slots: false }
    }

    /// Seconds of a slot for calls of `call` seconds, with the uncounted sample of [`Timed::time`].
    pub fn slot_seconds(self, call: f64) -> f64 {
        (self.samples_per_slot + 1) as f64 * self.calls_per_sample as f64 * call
    }

    /// Samples of [`settle`] for calls of `call` seconds.
    fn settling_samples(self, call: f64) -> usize {
        let sample = call.max(1e-9) * self.calls_per_sample as f64;
        ((SETTLING_SECONDS / sample).ceil() as usize).clamp(2, MAX_SETTLING_SAMPLES)
    }

    /// Seconds of [`settle`] for calls of `call` seconds.
    pub(super) fn settling_seconds(self, call: f64) -> f64 {
        (self.settling_samples(call) * self.calls_per_sample) as f64 * call
    }

    /// Runs one slot; returns its samples without warm-up, and its total seconds.
    fn run_slot(self, benchmark: &mut dyn Timed) -> Result<(Vec<f64>, f64)> {
        let start = Instant::now();
        let mut samples = benchmark.time(self.samples_per_slot, self.calls_per_sample)?;
        let counted = self.calls_per_sample as f64 * samples.iter().sum::<f64>();
        // Warm-up, probes of the clock rate and discarded samples are time that the user waits for
        // as well.
        let seconds = if counted > 0.0 { counted.max(start.elapsed().as_secs_f64()) } else { counted };
        samples.drain(..self.warm_up_samples.min(samples.len()));
        Ok((samples, seconds))
    }
}

/// Estimates the seconds per call for [`SamplingPlan::new`], with warm-up.
///
/// # Errors
/// Errors of the benchmark.
pub fn estimate_call_time(benchmark: &mut dyn Timed) -> Result<f64> {
    let (mut calls, mut elapsed_total) = (1, 0.0);
    loop {
        let call = median(&benchmark.time(3, calls)?);
        let sample = call * calls as f64;
        elapsed_total += 3.0 * sample;
        // The bound on `calls` terminates the loop if the clock does not advance.
        if sample < SAMPLE_SECONDS && calls < MAX_CALLS {
            calls = (4 * calls).min(MAX_CALLS);
            continue;
        }
        if sample > 0.0 && elapsed_total < WARM_UP_SECONDS {
            benchmark.time(((WARM_UP_SECONDS - elapsed_total) / sample) as usize + 1, calls)?;
        }
        return Ok(call);
    }
}

/// Runs a benchmark of `call` seconds until the clocks of a device at its power limit have settled.
///
/// A benchmark that fails is logged only; its slots will fail as well.
pub fn settle(benchmark: &mut dyn Timed, call: f64, plan: SamplingPlan) {
    // `Timed::time` takes one more, uncounted sample.
    let samples = plan.settling_samples(call) - 1;
    if let Err(error) = benchmark.time(samples, plan.calls_per_sample) {
        tracing::debug!(%error, "benchmark failed while clocks settle");
    }
}

/// Seconds per call of Tegula and the peer library.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InterleavedTimes {
    /// Tegula's samples, separately for its two slots per round.
    pub ours: [Vec<f64>; 2],
    /// The peer library's samples; empty without one.
    pub peer: Vec<f64>,
    /// Number of rounds.
    pub rounds: usize,
}

/// Interleaves Tegula and a peer library for `seconds`, in the order Tegula, peer, Tegula.
///
/// The two slots of Tegula swap from round to round.
///
/// # Errors
/// Errors of the benchmarks.
pub fn interleave(
    ours: &mut dyn Timed,
    mut peer: Option<&mut (dyn Timed + '_)>,
    plan: SamplingPlan,
    seconds: f64,
) -> Result<InterleavedTimes> {
    let (mut times, mut elapsed_total) = (InterleavedTimes::default(), 0.0);
    while times.rounds < MIN_ROUNDS || elapsed_total < seconds {
        let first = times.rounds % 2;
        for slot in [Some(first), None, Some(1 - first)] {
            let (samples, elapsed) = match (slot, &mut peer) {
                (Some(_), _) => plan.run_slot(ours)?,
                (None, Some(peer)) => plan.run_slot(*peer)?,
                (None, None) => continue,
            };
            slot.map_or(&mut times.peer, |slot| &mut times.ours[slot]).extend(samples);
            elapsed_total += elapsed;
        }
        times.rounds += 1;
        // A clock that does not advance never reaches `seconds`.
        if elapsed_total <= 0.0 && times.rounds >= MIN_ROUNDS {
            break;
        }
    }
    Ok(times)
}

/// The candidates as [`Timed`], so that the functions below are compiled once for all of them.
pub(super) fn timed<T: Timed>(candidates: &mut [T]) -> Vec<&mut dyn Timed> {
    candidates.iter_mut().map(|candidate| candidate as _).collect()
}

/// Ranks candidates with estimated seconds per call, fastest first.
///
/// All are screened, then the fastest few are timed interleaved, for up to three rounds; in long
/// slots, clocks settle first. Those that are clearly slower after a round are not timed again. All
/// finalists come first. Candidates that fail are dropped.
pub fn rank_candidates<T: Timed>(candidates: &mut [T], plan: SamplingPlan) -> Vec<(usize, f64)> {
    rank(&mut timed(candidates), plan)
}

fn rank(candidates: &mut [&mut dyn Timed], plan: SamplingPlan) -> Vec<(usize, f64)> {
    let mut screened = screen_all(candidates, &|| true);
    if let (Some(&(first, call)), true) = (screened.first(), plan.long_slots) {
        settle(&mut *candidates[first], call, plan);
    }
    if screened.len() < 2 {
        return screened;
    }
    let others = screened.split_off(screened.len().min(FINALISTS));
    let mut finalists: Vec<_> = screened.into_iter().map(|(index, _)| (index, Vec::new())).collect();
    let mut slower = Vec::new();
    for round in 0..MIN_ROUNDS {
        time_slots(candidates, &mut finalists, plan, round);
        let best = finalists.iter().map(|(_, times)| median(times)).fold(f64::INFINITY, f64::min);
        let is_slower = |finalist: &mut (usize, Vec<f64>)| median(&finalist.1) > CLEARLY_SLOWER[round.min(1)] * best;
        slower.extend(finalists.extract_if(.., is_slower));
        if finalists.len() < 2 {
            break;
        }
    }
    let mut ranking = medians(finalists);
    sort_by_time(&mut ranking);
    let mut slower = medians(slower);
    sort_by_time(&mut slower);
    ranking.extend(slower);
    ranking.extend(others);
    ranking
}

/// Ranks candidates as [`rank_candidates`], but times all of them interleaved.
///
/// For few candidates, where background load could distort a screening.
pub fn rank_interleaved<T: Timed>(candidates: &mut [T], plan: SamplingPlan) -> Vec<(usize, f64)> {
    let all: Vec<_> = (0..candidates.len()).collect();
    rank_by_interleaving(&mut timed(candidates), &all, plan)
}

/// Sorts the result of [`interleave_candidates`] after the minimum of rounds, fastest first.
fn rank_by_interleaving(
    candidates: &mut [&mut dyn Timed],
    selected: &[usize],
    plan: SamplingPlan,
) -> Vec<(usize, f64)> {
    let mut ranking = interleave_selected(candidates, selected, plan, MIN_ROUNDS, 0.0);
    sort_by_time(&mut ranking);
    ranking
}

/// Sorts candidates by their seconds per call, fastest first.
pub(super) fn sort_by_time(candidates: &mut [(usize, f64)]) {
    candidates.sort_by(|a, b| a.1.total_cmp(&b.1));
}

/// Estimates seconds per call of each candidate from a few samples, fastest first.
///
/// Candidates that fail are dropped, and so are all but the first once `has_time` is false.
pub fn screen_candidates<T: Timed>(candidates: &mut [T], has_time: impl Fn() -> bool) -> Vec<(usize, f64)> {
    screen_all(&mut timed(candidates), &has_time)
}

/// [`screen_candidates`].
pub(super) fn screen_all(candidates: &mut [&mut dyn Timed], has_time: &dyn Fn() -> bool) -> Vec<(usize, f64)> {
    let mut times: Vec<(usize, f64)> = Vec::new();
    for (index, candidate) in candidates.iter_mut().enumerate() {
        if index > 0 && !has_time() {
            break;
        }
        let best = times.iter().map(|(_, call)| *call).fold(f64::INFINITY, f64::min);
        match screen(&mut **candidate, best) {
            Ok(call) => times.push((index, call)),
            Err(error) => tracing::debug!(index, %error, "candidate failed"),
        }
    }
    sort_by_time(&mut times);
    times
}

/// Times `selected` candidates interleaved and returns the median seconds per call of each.
///
/// Runs for `seconds`, and for at least `min_rounds`. Candidates without a sample are dropped.
pub fn interleave_candidates<T: Timed>(
    candidates: &mut [T],
    selected: &[usize],
    plan: SamplingPlan,
    min_rounds: usize,
    seconds: f64,
) -> Vec<(usize, f64)> {
    interleave_selected(&mut timed(candidates), selected, plan, min_rounds, seconds)
}

/// [`interleave_candidates`].
pub(super) fn interleave_selected(
    candidates: &mut [&mut dyn Timed],
    selected: &[usize],
    plan: SamplingPlan,
    min_rounds: usize,
    seconds: f64,
) -> Vec<(usize, f64)> {
    let mut times: Vec<_> = selected.iter().map(|&index| (index, Vec::new())).collect();
    let (mut rounds, mut elapsed_total) = (0, 0.0);
    while rounds < min_rounds || elapsed_total < seconds {
        let elapsed = time_slots(candidates, &mut times, plan, rounds);
        elapsed_total += elapsed;
        rounds += 1;
        // A clock that does not advance never reaches `seconds`.
        if elapsed <= 0.0 && rounds >= min_rounds {
            break;
        }
    }
    medians(times)
}

/// Times one slot of each of these candidates, adds the samples, and returns the seconds taken.
///
/// Odd rounds have the reverse order.
fn time_slots(
    candidates: &mut [&mut dyn Timed],
    times: &mut [(usize, Vec<f64>)],
    plan: SamplingPlan,
    round: usize,
) -> f64 {
    let mut elapsed_total = 0.0;
    let mut order: Vec<_> = times.iter_mut().collect();
    if !round.is_multiple_of(2) {
        order.reverse();
    }
    for (index, times) in order {
        match plan.run_slot(&mut *candidates[*index]) {
            Ok((samples, elapsed)) => {
                times.extend(samples);
                elapsed_total += elapsed;
            }
            Err(error) => tracing::debug!(index, %error, "candidate failed"),
        }
    }
    elapsed_total
}

/// The median of each candidate that has samples.
fn medians(times: Vec<(usize, Vec<f64>)>) -> Vec<(usize, f64)> {
    let medians = times.into_iter().map(|(index, times)| (index, median(&times)));
    medians.filter(|(_, call)| !call.is_nan()).collect()
}

/// Estimates the seconds per call; a candidate far slower than `best` gets one call only.
fn screen(candidate: &mut dyn Timed, best: f64) -> Result<f64> {
    let first_call = median(&candidate.time(1, 1)?);
    // One call is also enough if it is long compared with the resolution of the clock.
    if first_call > 3.0 * best + 5e-5 || first_call >= SAMPLE_SECONDS {
        return Ok(first_call);
    }
    let calls = ((SCREEN_SECONDS / first_call.max(1e-9)).ceil() as usize).clamp(1, MAX_CALLS);
    Ok(median(&candidate.time(3, calls)?))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::super::stats::noise_floor;
    use super::*;
    use crate::error::Error;

    /// A fake device with a clock, and a log of benchmark names and call counts.
    #[derive(Default)]
    struct Device {
        log: RefCell<Vec<(char, usize)>>,
        now: RefCell<f64>,
    }

    struct Benchmark<'d, F: FnMut(f64) -> f64> {
        name: char,
        device: &'d Device,
        call: F,
    }

    impl Device {
        /// A benchmark; `call` maps the current time to the seconds per call.
        fn benchmark<F: FnMut(f64) -> f64>(&self, name: char, call: F) -> Benchmark<'_, F> {
            Benchmark { name, device: self, call }
        }

        fn order(&self) -> String {
            self.log.borrow().iter().map(|(name, _)| *name).collect()
        }
    }

    impl<F: FnMut(f64) -> f64> Timed for Benchmark<'_, F> {
        fn time(&mut self, samples: usize, calls: usize) -> Result<Vec<f64>> {
            self.device.log.borrow_mut().push((self.name, samples * calls));
            let mut sample = || {
                let call = (self.call)(*self.device.now.borrow());
                *self.device.now.borrow_mut() += call * calls as f64;
                call
            };
            if sample().is_nan() {
                return Err(Error::Launch { kernel: "fake".into(), why: "fails".into() });
            }
            Ok((0..samples).map(|_| sample()).collect())
        }
    }

    #[test]
    fn sampling_plan_short_calls_fill_a_sample_and_rotate_sets() {
        let plan = SamplingPlan::new(2e-6, 300, false);
        assert_eq!(
            plan,
            SamplingPlan { calls_per_sample: 600, samples_per_slot: 5, warm_up_samples: 0, long_slots: false }
        );
        // One call per sample is enough if it is long compared with the resolution of events.
        assert_eq!(
            SamplingPlan::new(3e-3, 1, false),
            SamplingPlan { calls_per_sample: 1, samples_per_slot: 2, warm_up_samples: 0, long_slots: false }
        );
        assert_eq!(SamplingPlan::new(0.0, 1, false).calls_per_sample, MAX_CALLS);
    }

    #[test]
    fn large_and_fast_calls_may_be_power_limited() {
        let of = |ty, [m, n, k]: [f64; 3], call| may_be_power_limited(ty, 2.0 * m * n * k, call);
        assert!(of(Type::BF16, [512.0, 896.0, 4864.0], 12.3e-6));
        assert!(of(Type::BF16, [2048.0; 3], 1.0) && of(Type::F32, [512.0; 3], 8e-6));
        // Limited by memory, and by launches.
        assert!(!of(Type::BF16, [16.0, 4096.0, 4096.0], 10.7e-6) && !of(Type::F32, [64.0; 3], 4e-6));
        assert!(!of(Type::I8, [512.0, 896.0, 4864.0], 12.3e-6) && !of(Type::F32, [64.0; 3], 0.0));
    }

    #[test]
    fn sampling_plan_long_calls_get_long_slots_with_warm_up() {
        for (call, power_limited) in
            [(5e-3, false), (8e-3, true), (2e-4, true), (0.03, false), (0.07, true), (3.0, false)]
        {
            let plan = SamplingPlan::new(call, 1, power_limited);
            let sample = call * plan.calls_per_sample as f64;
            // The uncounted sample of `Timed::time` comes first.
            let (start, whole) =
                ((plan.warm_up_samples + 1) as f64 * sample, (plan.samples_per_slot + 1) as f64 * sample);
            assert!(plan.long_slots && start >= 0.05 - 1e-9 && whole >= 0.2 - 1e-9, "{call}: {plan:?}");
            assert!(plan.samples_per_slot >= plan.warm_up_samples + 2, "{call}: {plan:?}");
        }
        assert!(!SamplingPlan::new(1e-3, 1, false).long_slots);
    }

    #[test]
    fn long_slots_are_shortened_to_one_sample_at_least() {
        for (call, seconds, counted) in [(5e-3, 0.06, 9), (0.012, 0.06, 4), (0.012, 0.0, 1), (3.0, 0.06, 1)] {
            let plan = SamplingPlan::new(call, 1, false).with_slots_of(call, seconds);
            let whole = (plan.samples_per_slot + 1) as f64 * call;
            assert!(whole <= seconds + 1e-9 || plan.samples_per_slot == 1, "{call}: {plan:?}");
            assert_eq!(plan.samples_per_slot - plan.warm_up_samples, counted, "{call}: {plan:?}");
        }
        for (call, seconds) in [(1e-3, 0.0), (8e-3, 0.2), (8e-3, f64::MAX)] {
            let plan = SamplingPlan::new(call, 1, false);
            assert_eq!(plan.with_slots_of(call, seconds), plan);
        }
    }

    #[test]
    fn interleave_runs_ours_before_and_after_the_peer() {
        let device = Device::default();
        let (mut ours, mut peer) = (device.benchmark('o', |_| 1e-3), device.benchmark('p', |_| 2e-3));
        let plan = SamplingPlan::new(1e-3, 1, false);
        let times = interleave(&mut ours, Some(&mut peer), plan, 0.0).unwrap();
        assert_eq!((device.order().as_str(), times.rounds), ("opoopoopo", 3));
        assert_eq!((median(&times.peer) / median(&times.ours[0]), times.ours[0].len()), (2.0, times.ours[1].len()));
        let device = Device::default();
        let alone = interleave(&mut device.benchmark('o', |_| 1e-3), None, plan, 0.5).unwrap();
        assert!(alone.peer.is_empty() && alone.rounds >= 49, "{} rounds", alone.rounds);
    }

    #[test]
    fn interleave_common_drift_keeps_the_ratio() {
        // The device slows down to half its speed over the run.
        let slower = |now: f64| 1.0 + now;
        let device = Device::default();
        let (mut ours, mut peer) =
            (device.benchmark('o', |now| 1e-3 * slower(now)), device.benchmark('p', |now| 1.2e-3 * slower(now)));
        let times = interleave(&mut ours, Some(&mut peer), SamplingPlan::new(1e-3, 1, false), 1.0).unwrap();
        let both = times.ours.concat();
        let ratio = median(&times.peer) / median(&both);
        assert!((ratio - 1.2).abs() < 0.02, "{ratio}");
        // Neither slot of ours is always the later one.
        let noise_floor = noise_floor(&times.ours[0], &times.ours[1]);
        assert!(noise_floor < 0.004, "{noise_floor}");
    }

    #[test]
    fn interleave_settling_samples_are_dropped() {
        // For 40 ms after a switch of benchmarks every call takes twice as long.
        let device = Device::default();
        let settling = RefCell::new((' ', 0.0));
        let call = |name: char, base: f64| {
            let settling = &settling;
            move |now: f64| {
                let mut last = settling.borrow_mut();
                if last.0 != name {
                    *last = (name, now);
                }
                if now - last.1 < 0.04 { 2.0 * base } else { base }
            }
        };
        let (mut ours, mut peer) = (device.benchmark('o', call('o', 8e-3)), device.benchmark('p', call('p', 1e-2)));
        let times = interleave(&mut ours, Some(&mut peer), SamplingPlan::new(8e-3, 1, true), 1.0).unwrap();
        assert!(times.ours.concat().iter().all(|&call| call == 8e-3), "{times:?}");
        assert!(times.peer.iter().all(|&call| call == 1e-2), "{times:?}");
    }

    #[test]
    fn estimate_call_time_warms_up() {
        let device = Device::default();
        // Clocks rise in the first 80 ms.
        let call = estimate_call_time(&mut device.benchmark('o', |now| if now < 0.001 { 9e-6 } else { 3e-6 })).unwrap();
        assert_eq!(call, 3e-6);
        assert!(*device.now.borrow() >= WARM_UP_SECONDS);
        assert_eq!(estimate_call_time(&mut device.benchmark('o', |_| 0.0)).unwrap(), 0.0);
    }

    #[test]
    fn sampling_plan_brief_has_few_samples() {
        for (call, sets, calls, samples) in [(2e-6, 300, 600, 3), (3e-3, 1, 1, 1), (0.2, 2, 2, 1), (1e-3, 1, 1, 3)] {
            let plan = SamplingPlan::brief(call, sets);
            assert_eq!(
                plan,
                SamplingPlan {
                    calls_per_sample: calls,
                    samples_per_slot: samples,
                    warm_up_samples: 0,
                    long_slots: false
                },
                "{call}"
            );
        }
    }

    #[test]
    fn interleave_candidates_runs_until_the_time_is_over() {
        fn benchmarks<'d>(device: &'d Device, calls: &[(char, f64)]) -> Vec<Benchmark<'d, impl FnMut(f64) -> f64>> {
            calls.iter().map(|&(name, call)| device.benchmark(name, move |_| call)).collect()
        }
        let device = Device::default();
        let mut all = benchmarks(&device, &[('a', 2e-3), ('b', 1e-3), ('c', f64::NAN), ('d', 3e-3)]);
        let plan = SamplingPlan::brief(1e-3, 1);
        assert_eq!(interleave_candidates(&mut all, &[3, 2, 0], plan, 3, 0.0), [(3, 3e-3), (0, 2e-3)]);
        assert_eq!(device.order(), "dcaacddca");
        let device = Device::default();
        interleave_candidates(&mut benchmarks(&device, &[('a', 2e-3), ('b', 1e-3)]), &[0, 1], plan, 3, 0.5);
        // A round has 9 counted milliseconds.
        assert_eq!(device.order(), "abba".repeat(28));
        // A clock that does not advance ends the loop.
        assert_eq!(interleave_candidates(&mut benchmarks(&device, &[('x', 0.0)]), &[0], plan, 3, 1.0), [(0, 0.0)]);
    }

    #[test]
    fn rank_candidates_waits_until_the_clocks_have_settled() {
        // The clocks fall for a while after 0.5 seconds.
        let calls = [('a', 5.3e-3), ('b', 5.2e-3), ('c', 5.1e-3), ('d', 5e-3)];
        let device = Device::default();
        let slow = |now: f64| if (0.5..0.8).contains(&now) { 1.1 } else { 1.0 };
        let mut candidates: Vec<_> =
            calls.iter().map(|&(name, call)| device.benchmark(name, move |now| call * slow(now))).collect();
        let ranking = rank_candidates(&mut candidates, SamplingPlan::new(5e-3, 1, true));
        assert_eq!(ranking, [(3, 5e-3), (2, 5.1e-3), (1, 5.2e-3), (0, 5.3e-3)]);
    }

    #[test]
    fn rank_candidates_times_clearly_slower_finalists_once() {
        let device = Device::default();
        let calls = [('a', 1.1e-3), ('b', 1e-3), ('c', 1.03e-3)];
        let mut candidates: Vec<_> = calls.iter().map(|&(name, call)| device.benchmark(name, move |_| call)).collect();
        let ranking = rank_candidates(&mut candidates, SamplingPlan::new(1e-3, 1, false));
        assert_eq!(ranking, [(1, 1e-3), (2, 1.03e-3), (0, 1.1e-3)]);
        // After the screening, all have a slot in order of their times; `a` is left out of the
        // second round, in reverse order, and after it `c`, so that `b` needs no third.
        assert!(device.order().ends_with("bcacb"), "{}", device.order());
    }

    #[test]
    fn rank_candidates_finds_the_fastest_among_noise_and_failures() {
        let device = Device::default();
        // The third is fastest when screened and slower later; the fifth fails.
        let calls_made = RefCell::new(0);
        let calls = [5e-5, 3e-5, 2e-5, 9e-3, f64::NAN, 2.8e-5];
        let mut candidates: Vec<_> = calls
            .iter()
            .enumerate()
            .map(|(i, &call)| {
                let calls_made = &calls_made;
                device.benchmark((b'a' + i as u8) as char, move |_| {
                    if i == 2 {
                        *calls_made.borrow_mut() += 1;
                        return if *calls_made.borrow() > 6 { 4e-5 } else { call };
                    }
                    call
                })
            })
            .collect();
        let ranking: Vec<_> = rank_candidates(&mut candidates, SamplingPlan::new(3e-5, 1, false))
            .into_iter()
            .map(|(which, _)| which)
            .collect();
        assert_eq!(ranking, [5, 1, 2, 0, 3], "finalists, then the others, without the failed one");
        let order = device.order();
        assert!("abcdef".chars().all(|name| order.contains(name)), "{order}");
        assert_eq!(order.matches('d').count(), 1, "too slow, so screened with one call: {order}");
        // Interleaved ranking does not depend on the first, unrepresentative calls.
        let mut calls = [0, 0];
        let [slow, slow_at_first] = &mut calls;
        let first = |seen: &mut i32, first: f64, later: f64| {
            *seen += 1;
            if *seen < 3 { first } else { later }
        };
        let mut two: [Box<dyn FnMut(f64) -> f64>; 2] =
            [Box::new(|_| first(slow, 2e-3, 2e-3)), Box::new(|_| first(slow_at_first, 8e-2, 1e-3))];
        let mut two: Vec<_> = two.iter_mut().map(|call| device.benchmark('t', call)).collect();
        let order = rank_interleaved(&mut two, SamplingPlan::brief(1e-3, 1));
        assert_eq!(order, [(1, 1e-3), (0, 2e-3)]);
        assert!(rank_interleaved(&mut [device.benchmark('x', |_| f64::NAN)], SamplingPlan::brief(1e-3, 1)).is_empty());
        assert!(
            rank_candidates(&mut [device.benchmark('x', |_| f64::NAN)], SamplingPlan::new(1e-3, 1, false)).is_empty()
        );
        assert_eq!(
            rank_candidates(&mut [device.benchmark('x', |_| 1e-3)], SamplingPlan::new(1e-3, 1, false)),
            [(0, 1e-3)]
        );
    }
}
