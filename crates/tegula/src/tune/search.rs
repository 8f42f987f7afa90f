//! Autotuner: shortlists, screens and times kernel configurations.
//!
//! The shortlist is by predicted time, screening by few samples, and finalists are timed
//! interleaved. The module depends on predicted times and a clock, not on a device. It keeps no
//! results.
#![cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only GPUs have kernel configurations"))]

use std::collections::HashSet;

use tegula_kernels::GemmVariant;
use tegula_kernels::plan::{Candidate, Problem, Recipe};
use tegula_kernels::registry::GemmKernel;

use super::interleave::{
    SamplingPlan, Timed, estimate_call_time, interleave_selected, screen_all, settle, sort_by_time,
};
use super::stats::median;
use crate::error::{Error, Result};

/// Configurations that are timed interleaved, the cost model's choice included.
const FINALISTS: usize = 6;
/// Seconds for which they are timed, if the effort has as many left.
const CONFIRMATION_SECONDS: f64 = 0.2;
/// Configurations that are timed at the power limit, at most, if the effort has time for
/// [`FINALISTS`] of them. The ranking differs from that of short runs.
const SUSTAINED_FINALISTS: usize = 16;
/// The time of a short run, relative to the least, up to which the best of a kind may be the
/// fastest at the power limit.
const SUSTAINED_NEAR: f64 = 1.25;
/// Rounds at the power limit, the second in reverse order.
const SUSTAINED_ROUNDS: usize = 2;
/// Share of the time after which no further configuration is assembled.
pub(super) const ASSEMBLY_SHARE: f64 = 0.5;

/// Effort of a search.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TuneEffort {
    /// Seed of the random inputs.
    pub seed: u64,
    /// Maximum number of configurations, the best predicted ones.
    pub candidates: usize,
    /// Seconds in all: of assembly, inputs, screening and confirmation.
    ///
    /// At least the cost model's choice is timed. A kernel that takes long to assemble, or a call
    /// of more than a tenth of the time, exceeds them.
    pub seconds: f64,
}

impl Default for TuneEffort {
    fn default() -> Self {
        TuneEffort { seed: 1, candidates: 16, seconds: 1.0 }
    }
}

impl TuneEffort {
    /// All legal configurations, for as long as it takes.
    pub const fn all(seed: u64) -> Self {
        TuneEffort { seed, candidates: usize::MAX, seconds: f64::INFINITY }
    }
}

/// Result of a search.
#[derive(Clone, Debug, PartialEq)]
pub struct TuneReport {
    /// The problem that was planned.
    pub problem: Problem,
    /// Number of legal configurations.
    pub legal: usize,
    /// Timed configurations with their screening times, fastest first.
    pub timed: Vec<CandidateTime>,
    /// The cost model's choice.
    pub model_choice: CandidateTime,
    /// The fastest configuration, possibly the same.
    pub fastest: CandidateTime,
    /// The last times of the fastest configurations and the cost model's choice, fastest first.
    pub finalists: Vec<CandidateTime>,
}

/// A kernel configuration and its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CandidateTime {
    /// The kernel configuration.
    pub recipe: Recipe,
    /// Median seconds per call.
    pub seconds: f64,
}

impl TuneReport {
    /// Speed of the cost model's choice relative to the fastest configuration, at most 1.
    pub fn model_efficiency(&self) -> f64 {
        self.fastest.seconds / self.model_choice.seconds
    }
}

/// The time of a search, by a clock that returns the seconds since its begin.
#[derive(Clone, Copy)]
pub(super) struct Budget<'c> {
    pub seconds: f64,
    pub elapsed: &'c dyn Fn() -> f64,
}

impl Budget<'_> {
    fn remaining(&self) -> f64 {
        self.seconds - (self.elapsed)()
    }
}

/// Selects the configurations to time: the cost model's choice, then those of least predicted time.
/// Those without a predicted time follow, in their order.
pub(super) fn shortlist(legal: &[Candidate], model_choice: Recipe, count: usize) -> Vec<Recipe> {
    let mut others: Vec<&Candidate> = legal.iter().filter(|candidate| candidate.recipe != model_choice).collect();
    let time = |candidate: &Candidate| candidate.microseconds.unwrap_or(f64::INFINITY);
    others.sort_by(|a, b| time(a).total_cmp(&time(b)));
    let others = others.into_iter().map(|candidate| candidate.recipe);
    std::iter::once(model_choice).chain(others).take(count.max(1)).collect()
}

/// Times of a shortlist.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ShortlistTimes {
    /// All timed configurations with their screening times, fastest first.
    pub screened: Vec<CandidateTime>,
    /// The interleaved time of the first of the shortlist.
    pub first: CandidateTime,
    /// The interleaved times of the finalists, fastest first.
    pub finalists: Vec<CandidateTime>,
}

/// Times configurations that rotate through `sets` sets of inputs: a benchmark for each recipe.
///
/// Configurations that fail are dropped, and so are the last ones where the time does not suffice.
/// Where calls of this many seconds may be `power_limited` and the time suffices, clocks settle,
/// and the finalists are timed in long slots, in two rounds.
///
/// # Errors
/// Errors of the first, which is the baseline.
pub(super) fn time_shortlist(
    recipes: &[Recipe],
    benchmarks: &mut [&mut dyn Timed],
    sets: usize,
    power_limited: &dyn Fn(f64) -> bool,
    budget: Budget<'_>,
) -> Result<ShortlistTimes> {
    let no_candidates = || Error::KernelOption("no kernel was given to time".into());
    let call = estimate_call_time(&mut **benchmarks.first_mut().ok_or_else(no_candidates)?)?;
    let plan = SamplingPlan::brief(call, sets);
    // One round of the first and another remains for the confirmation.
    let slot = plan.slot_seconds(call);
    let screened = screen_all(benchmarks, &|| budget.remaining() > 2.0 * slot);
    let best = screened.first().map_or(call, |(_, call)| *call);
    let sustained = SamplingPlan::new(best, sets, true);
    let diverse = kinds_first(&screened, recipes);
    let count = sustained_count(&diverse, call, sustained, budget.remaining());
    let is_sustained = power_limited(best) && count >= FINALISTS.min(screened.len()).max(1);
    let (plan, ranking, count, rounds) = if is_sustained {
        settle(&mut *benchmarks[screened[0].0], best, sustained);
        (sustained, &diverse, count, SUSTAINED_ROUNDS)
    } else {
        (plan, &screened, FINALISTS.min((budget.remaining() / slot).max(2.0) as usize), 1)
    };
    let mut finalists: Vec<_> = ranking.iter().take(count).map(|(index, _)| *index).collect();
    if !finalists.contains(&0) {
        finalists.pop();
        finalists.push(0);
    }
    let seconds = budget.remaining().min(CONFIRMATION_SECONDS);
    let mut times = interleave_selected(benchmarks, &finalists, plan, rounds, seconds);
    let candidate = |(index, seconds): (usize, f64)| CandidateTime { recipe: recipes[index], seconds };
    let first = match times.iter().copied().find(|(index, _)| *index == 0) {
        Some(first) => first,
        // It failed; this attempt returns its error, unless that was a single one.
        None => (0, median(&benchmarks[0].time(1, 1)?)),
    };
    if !times.contains(&first) {
        times.push(first);
    }
    sort_by_time(&mut times);
    Ok(ShortlistTimes {
        screened: screened.into_iter().map(candidate).collect(),
        first: candidate(first),
        finalists: times.into_iter().map(candidate).collect(),
    })
}

/// Screened candidates in the order in which they are timed at the power limit: first the fastest
/// of each kind that is near the fastest of all, then the others.
///
/// Kinds differ in power, so the fastest of short runs, which may be all of one kind, can lose.
fn kinds_first(screened: &[(usize, f64)], recipes: &[Recipe]) -> Vec<(usize, f64)> {
    let near = screened.first().map_or(0.0, |(_, call)| SUSTAINED_NEAR * call);
    let mut kinds = HashSet::new();
    let is_first = |(index, call): &(usize, f64)| *call <= near && kinds.insert(kind(&recipes[*index]));
    let (mut order, others): (Vec<_>, Vec<_>) = screened.iter().copied().partition(is_first);
    order.extend(others);
    order
}

/// The kind of a configuration: its tile in steps of 64, and whether a pipeline multicasts and is
/// ping-pong.
fn kind(recipe: &Recipe) -> ([u32; 2], [bool; 2]) {
    let schedule = match recipe.kernel {
        GemmKernel::Hopper(kernel) => [kernel.pipeline.multicast_blocks() > 1, kernel.pipeline.ping_pong],
        _ => [false; 2],
    };
    (recipe.kernel.tile().map(|extent| extent.div_ceil(64)), schedule)
}

/// The number of screened candidates, in their order, that long slots can time within some seconds,
/// with the first of the shortlist (number 0). Its calls take about `first_call` seconds.
fn sustained_count(screened: &[(usize, f64)], first_call: f64, plan: SamplingPlan, seconds: f64) -> usize {
    let slots = |call| SUSTAINED_ROUNDS as f64 * plan.slot_seconds(call);
    let best = screened.iter().map(|(_, call)| *call).fold(first_call, f64::min);
    let mut left = seconds - plan.settling_seconds(best) - slots(first_call);
    let fits = |(index, call): &&(usize, f64)| {
        left -= if *index == 0 { 0.0 } else { slots(*call) };
        left >= 0.0
    };
    screened.iter().take(SUSTAINED_FINALISTS).take_while(fits).count()
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use tegula_kernels::plan::{Caps, GpuDescription, legal};

    use super::super::interleave::timed;
    use super::*;
    use crate::element::Type;

    const CAPS: Caps = Caps::Gpu(GpuDescription::H200);

    fn problem([m, n, k]: [usize; 3]) -> Problem {
        let (accuracy, layouts) = Default::default();
        Problem { ty: Type::F32, accuracy, m, n, k, batches: 1, layouts }
    }

    /// A fake GPU with a clock and a log of the configurations that were timed, with their calls.
    #[derive(Default)]
    struct FakeGpu {
        now: Cell<f64>,
        log: RefCell<Vec<(usize, usize)>>,
    }

    /// A configuration with a known time per call, NaN if calls fail.
    struct Fake<'g> {
        gpu: &'g FakeGpu,
        number: usize,
        call: f64,
    }

    impl Timed for Fake<'_> {
        fn time(&mut self, samples: usize, calls: usize) -> Result<Vec<f64>> {
            self.gpu.log.borrow_mut().push((self.number, calls));
            if self.call.is_nan() {
                return Err(Error::Launch { kernel: self.number.to_string(), why: "fails".into() });
            }
            self.gpu.now.set(self.gpu.now.get() + self.call * ((samples + 1) * calls) as f64);
            Ok(vec![self.call; samples])
        }
    }

    impl FakeGpu {
        /// Times configurations of these milliseconds per call; NaN fails.
        fn time(&self, times: &[f64], sets: usize, seconds: f64) -> Result<ShortlistTimes> {
            let benchmarks = times.iter().enumerate();
            let mut benchmarks: Vec<_> =
                benchmarks.map(|(number, call)| Fake { gpu: self, number, call: 1e-3 * call }).collect();
            let budget = Budget { seconds, elapsed: &|| self.now.get() };
            time_shortlist(&recipes(times.len()), &mut timed(&mut benchmarks), sets, &|_| false, budget)
        }

        /// The configurations in the order in which they were timed.
        fn order(&self) -> Vec<usize> {
            self.log.borrow().iter().map(|(number, _)| *number).collect()
        }
    }

    fn recipes(count: usize) -> Vec<Recipe> {
        let all = legal(&problem([512, 512, 512]), &CAPS);
        let recipes: Vec<_> = all.iter().map(|candidate| candidate.recipe).take(count).collect();
        assert_eq!(recipes.len(), count);
        recipes
    }

    fn number(recipe: Recipe) -> usize {
        recipes(40).into_iter().position(|known| known == recipe).unwrap()
    }

    /// Number and milliseconds per call.
    fn pair(CandidateTime { recipe, seconds }: CandidateTime) -> (usize, f64) {
        (number(recipe), (1e6 * seconds).round() / 1e3)
    }

    #[test]
    fn shortlist_is_the_model_choice_and_the_least_predicted_times() {
        let times = [Some(3.0), None, Some(1.0), Some(2.0), None, Some(9.0)];
        let all: Vec<_> = recipes(6)
            .into_iter()
            .zip(times)
            .map(|(recipe, microseconds)| Candidate { recipe, microseconds })
            .collect();
        let short = |choice: usize, count| -> Vec<usize> {
            shortlist(&all, all[choice].recipe, count).into_iter().map(number).collect()
        };
        assert_eq!(short(2, usize::MAX), [2, 3, 0, 5, 1, 4]);
        assert_eq!(short(1, 3), [1, 2, 3], "the model choice is always included");
        assert_eq!(short(5, 0), [5]);
    }

    #[test]
    fn time_shortlist_finds_the_fastest_and_times_the_model_choice() {
        // The model choice is the slowest of nine when screened.
        let gpu = FakeGpu::default();
        let times = gpu.time(&[9.0, 2.0, 3.0, 4.0, 1.5, 5.0, 6.0, 7.0, 8.0], 1, f64::INFINITY).unwrap();
        assert_eq!((times.screened.len(), pair(times.screened[0]), pair(times.first)), (9, (4, 1.5), (0, 9.0)));
        let finalists: Vec<_> = times.finalists.iter().copied().map(pair).collect();
        assert_eq!(finalists, [(4, 1.5), (1, 2.0), (2, 3.0), (3, 4.0), (5, 5.0), (0, 9.0)]);
        let (problem, timed) = (problem([512; 3]), times.screened);
        let (model_choice, fastest, finalists) = (times.first, times.finalists[0], times.finalists);
        let report = TuneReport { problem, legal: 9, timed, model_choice, fastest, finalists };
        assert!((report.model_efficiency() - 1.5 / 9.0).abs() < 1e-12);
        // The last rounds: the five fastest and the model choice, interleaved, in both orders.
        assert!(gpu.order().ends_with(&[0, 5, 3, 2, 1, 4, 4, 1, 2, 3, 5, 0]), "{:?}", gpu.order());
    }

    #[test]
    fn time_shortlist_ends_within_its_time() {
        // Milliseconds per call, and the seconds that have passed before.
        for (call, before) in [(0.01, 0.1), (0.01, 0.6), (1.0, 0.5), (20.0, 0.0), (20.0, 0.5), (80.0, 0.01)] {
            let gpu = FakeGpu::default();
            gpu.now.set(before);
            let calls: Vec<f64> = (0..16).map(|i| call * (1.0 - 0.01 * f64::from(i))).collect();
            let times = gpu.time(&calls, 1, 1.0).unwrap();
            // A round of two and a warm-up are the least. Uncounted samples pass no real time here,
            // so the confirmation can take twice as long.
            let end = f64::max(1.0, before + 8e-3 * call) + 4e-3 * call + CONFIRMATION_SECONDS;
            assert!(gpu.now.get() <= end, "{call}, {before}: {} s", gpu.now.get());
            assert!(call >= 20.0 || times.screened.len() == 16, "{call}, {before}: {}", times.screened.len());
            // The last that was timed is the fastest.
            assert_eq!(pair(times.finalists[0]).0, times.screened.len() - 1, "{call}, {before}");
        }
    }

    #[test]
    fn time_shortlist_without_time_times_the_model_choice() {
        let gpu = FakeGpu::default();
        let times = gpu.time(&[2.0, 1.0, 1.0], 1, 0.0).unwrap();
        assert_eq!(times.screened.into_iter().map(pair).collect::<Vec<_>>(), [(0, 2.0)]);
        assert_eq!((pair(times.first), times.finalists), ((0, 2.0), vec![times.first]));
    }

    #[test]
    fn time_shortlist_runs_finalists_at_the_power_limit_if_there_is_time() {
        for (seconds, limited, is_sustained) in [(1.0, true, false), (9.0, true, true), (9.0, false, false)] {
            let gpu = FakeGpu::default();
            let mut benchmarks: Vec<_> = (0..20).map(|number| Fake { gpu: &gpu, number, call: 1e-3 }).collect();
            let budget = Budget { seconds, elapsed: &|| gpu.now.get() };
            let power_limited = |call: f64| limited && call < 2e-3;
            let all = recipes(benchmarks.len());
            let times = time_shortlist(&all, &mut timed(&mut benchmarks), 1, &power_limited, budget).unwrap();
            let expected = if is_sustained { SUSTAINED_FINALISTS } else { FINALISTS };
            assert_eq!(times.finalists.len(), expected, "{seconds} s, {limited}");
            assert_eq!(gpu.now.get() > 0.2 * SUSTAINED_FINALISTS as f64, is_sustained, "{} s", gpu.now.get());
        }
        // Slots of slow candidates are longer: six of the 16 fit.
        let screened: Vec<_> = (0..16).map(|i| (i, if i < 4 { 1e-3 } else { 5e-3 })).collect();
        let plan = SamplingPlan::new(1e-3, 1, true);
        assert_eq!(sustained_count(&screened, 1e-3, plan, 8.0), 6);
        assert_eq!(sustained_count(&screened, 1e-3, plan, 0.1), 0);
    }

    /// Many configurations of a kind are faster in short runs than those of others.
    #[test]
    fn time_shortlist_times_the_fastest_of_each_near_kind_at_the_power_limit() {
        let problem = Problem { ty: Type::BF16, ..problem([4096; 3]) };
        let all = legal(&problem, &CAPS).into_iter().map(|candidate| candidate.recipe);
        let (same, others): (Vec<_>, Vec<_>) = all.partition(|recipe| kind(recipe) == ([2, 2], [true, false]));
        let other = |wanted| *others.iter().find(|recipe| kind(recipe) == wanted).unwrap();
        let (near, slow) = (other(([2, 4], [false; 2])), other(([1, 1], [false; 2])));
        let all: Vec<_> = same[..20].iter().copied().chain([near, slow]).collect();
        let gpu = FakeGpu::default();
        let times = (0..20).map(|i| 1.0 + 1e-3 * f64::from(i)).chain([1.2, 1.4]).enumerate();
        let mut benchmarks: Vec<_> = times.map(|(number, ms)| Fake { gpu: &gpu, number, call: 1e-3 * ms }).collect();
        let budget = Budget { seconds: 20.0, elapsed: &|| gpu.now.get() };
        let times = time_shortlist(&all, &mut timed(&mut benchmarks), 1, &|_| true, budget).unwrap();
        let finalists: Vec<_> = times.finalists.iter().map(|one| one.recipe).collect();
        assert_eq!(finalists[..SUSTAINED_FINALISTS - 1], all[..SUSTAINED_FINALISTS - 1]);
        assert_eq!(finalists[SUSTAINED_FINALISTS - 1..], [near]);
    }

    /// The choice of the cost model, the first, is slow. Times per call are long or very long.
    #[test]
    fn time_shortlist_settles_clocks_and_runs_two_rounds_within_its_time() {
        for (first, seconds) in [(3e-3, 9.0), (0.3, 20.0)] {
            let gpu = FakeGpu::default();
            let call = |number: usize| if number == 0 { first } else { first / 3.0 };
            let mut benchmarks: Vec<_> = (0..20).map(|number| Fake { gpu: &gpu, number, call: call(number) }).collect();
            let budget = Budget { seconds, elapsed: &|| gpu.now.get() };
            let all = recipes(benchmarks.len());
            let times = time_shortlist(&all, &mut timed(&mut benchmarks), 1, &|_| true, budget).unwrap();
            assert!(gpu.now.get() <= seconds, "{first}: {} of {seconds} s", gpu.now.get());
            // After the screening, which ends with number 19: the load, and a slot in each round.
            let order = gpu.order();
            let screened = order.iter().rposition(|number| *number == 19).unwrap() + 1;
            assert_eq!(order.len() - screened, 1 + SUSTAINED_ROUNDS * times.finalists.len(), "{order:?}");
        }
    }

    #[test]
    fn time_shortlist_calls_rotate_through_all_sets() {
        let gpu = FakeGpu::default();
        gpu.time(&[0.01, 0.02], 300, 1.0).unwrap();
        let last: Vec<_> = gpu.log.borrow().iter().rev().take(6).map(|(_, calls)| *calls).collect();
        assert_eq!(last, [300; 6]);
    }

    #[test]
    fn time_shortlist_drops_failed_candidates_but_not_the_model_choice() {
        let time = |times: &[f64]| FakeGpu::default().time(times, 1, 1.0);
        let times = time(&[3.0, f64::NAN, 2.0]).unwrap();
        assert_eq!((times.screened.len(), pair(times.first).0, pair(times.finalists[0]).0), (2, 0, 2));
        assert!(time(&[f64::NAN, 1.0]).unwrap_err().to_string().contains("fails"));
        let alone = time(&[1.0]).unwrap();
        assert_eq!((alone.finalists.len(), alone.finalists[0]), (1, alone.first));
    }
}
