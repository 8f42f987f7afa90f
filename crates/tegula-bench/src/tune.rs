//! Autotuner: shortlists, screens and times kernel configurations.
//!
//! The shortlist is by predicted time, screening by few samples, and finalists are timed
//! interleaved. The module depends on predicted times and a clock, not on a device. It keeps no
//! results.
#![cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only GPUs have kernel configurations"))]

use tegula::error::{Error, Result};
use tegula_kernels::plan::{Candidate, Problem, Recipe};

use super::interleave::{SamplingPlan, Timed, estimate_call_time, interleave_candidates, screen_candidates};

/// Predicted time, in units of the best one, above which configurations are skipped.
const MAX_PREDICTED_RATIO: f64 = 2.0;
/// Maximum number of configurations without a predicted time.
///
/// These are tile shapes of a kernel, each with a few splits.
const MAX_UNPREDICTED: usize = 24;
/// Configurations that are timed interleaved, the cost model's choice included.
const FINALISTS: usize = 6;

/// Effort of a search.
#[derive(Clone, Copy, Debug)]
pub struct TuneEffort {
    /// Seed of the random inputs.
    pub seed: u64,
    /// Seconds of interleaved sampling; long calls exceed it to complete the minimum of rounds.
    pub seconds: f64,
    /// Whether to time all legal configurations, regardless of predicted time.
    pub all: bool,
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

/// Selects the configurations to time, the cost model's choice first.
pub(super) fn shortlist(legal: &[Candidate], model_choice: Recipe, all: bool) -> Vec<Recipe> {
    let best = legal.iter().filter_map(|candidate| candidate.microseconds).fold(f64::INFINITY, f64::min);
    let mut unpredicted = 0;
    let selected = |candidate: &&Candidate| match candidate.microseconds {
        Some(time) => all || time <= MAX_PREDICTED_RATIO * best,
        None => {
            unpredicted += 1;
            all || unpredicted <= MAX_UNPREDICTED
        }
    };
    let others = legal.iter().filter(selected).map(|candidate| candidate.recipe);
    std::iter::once(model_choice).chain(others.filter(|recipe| *recipe != model_choice)).collect()
}

/// Times a shortlist of configurations that rotate through `sets` sets of inputs.
///
/// `prepare` builds the kernel of a configuration; configurations that fail are dropped. Returns
/// all timed configurations with their screening times. Then the interleaved times of the first of
/// the shortlist and of the fastest.
///
/// # Errors
/// Errors of the first of the shortlist, which is the baseline.
pub(super) fn time_shortlist<T: Timed>(
    shortlist: &[Recipe],
    sets: usize,
    seconds: f64,
    mut prepare: impl FnMut(Recipe) -> Result<T>,
) -> Result<(Vec<CandidateTime>, [CandidateTime; 2])> {
    // Build all before timing the first: clocks of an idle GPU fall while the driver assembles.
    let (mut recipes, mut benchmarks) = (Vec::new(), Vec::new());
    for &recipe in shortlist {
        match prepare(recipe) {
            Ok(benchmark) => {
                recipes.push(recipe);
                benchmarks.push(benchmark);
            }
            Err(error) if recipes.is_empty() => return Err(error),
            Err(error) => tracing::debug!(recipe = recipe.name(), %error, "candidate failed"),
        }
    }
    let no_times = || Error::Launch { kernel: "of tegula tune".into(), why: "it returned no times".into() };
    let plan = SamplingPlan::brief(estimate_call_time(benchmarks.first_mut().ok_or_else(no_times)?)?, sets);
    let screened = screen_candidates(&mut benchmarks);
    let mut finalists: Vec<_> = screened.iter().take(FINALISTS).map(|(index, _)| *index).collect();
    if !finalists.contains(&0) {
        finalists.truncate(FINALISTS - 1);
        finalists.push(0);
    }
    let times = interleave_candidates(&mut benchmarks, &finalists, plan, seconds);
    let candidate = |(index, seconds): (usize, f64)| CandidateTime { recipe: recipes[index], seconds };
    let first = times.iter().copied().find(|(index, _)| *index == 0).ok_or_else(no_times)?;
    let fastest = times.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(first);
    Ok((screened.into_iter().map(candidate).collect(), [candidate(first), candidate(fastest)]))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use tegula::element::Type;
    use tegula_kernels::plan::{Caps, GpuDescription, Plan, choose, legal};

    use super::*;

    const CAPS: Caps = Caps::Gpu(GpuDescription::H200);

    fn problem([m, n, k]: [usize; 3]) -> Problem {
        let (accuracy, layouts) = Default::default();
        Problem { ty: Type::F32, accuracy, m, n, k, batches: 1, layouts }
    }

    fn model_choice(problem: &Problem) -> Recipe {
        match choose(problem, &CAPS).unwrap() {
            Plan::Gpu(recipe) => recipe,
            Plan::Cpu => panic!("expected a GPU plan"),
        }
    }

    /// A configuration with a known time per call, NaN if calls fail, and a shared log.
    struct Fake {
        call: f64,
        recipe: Recipe,
        log: Rc<RefCell<Log>>,
    }

    impl Timed for Fake {
        fn time(&mut self, samples: usize, calls: usize) -> Result<Vec<f64>> {
            self.log.borrow_mut().push((self.recipe, calls));
            match self.call.is_nan() {
                true => Err(Error::Launch { kernel: self.recipe.name(), why: "fails".into() }),
                false => Ok(vec![self.call; samples]),
            }
        }
    }

    type Log = Vec<(Recipe, usize)>;
    type Outcome = Result<(Vec<CandidateTime>, [CandidateTime; 2])>;

    /// Times fake configurations of `times` milliseconds: NaN fails when timed, 0 when prepared.
    fn time_fakes(times: &[f64], sets: usize) -> (Outcome, Vec<Recipe>, Log) {
        let all = legal(&problem([512, 512, 512]), &CAPS);
        let recipes: Vec<_> = all.iter().map(|candidate| candidate.recipe).take(times.len()).collect();
        assert_eq!(recipes.len(), times.len());
        let log = Rc::<RefCell<Log>>::default();
        let outcome = time_shortlist(&recipes, sets, 0.0, |recipe| {
            let call = 1e-3 * times[recipes.iter().position(|known| *known == recipe).unwrap()];
            match call == 0.0 {
                true => Err(Error::KernelOption("spills".into())),
                false => Ok(Fake { call, recipe, log: log.clone() }),
            }
        });
        let log = log.take();
        (outcome, recipes, log)
    }

    /// Candidates with fake predicted times in microseconds.
    fn predicted(times: &[Option<f64>]) -> Vec<Candidate> {
        let all = legal(&problem([512, 512, 4096]), &CAPS).into_iter().zip(times);
        let candidates: Vec<_> =
            all.map(|(candidate, &microseconds)| Candidate { microseconds, ..candidate }).collect();
        assert_eq!(candidates.len(), times.len());
        candidates
    }

    #[test]
    fn shortlist_starts_with_the_model_choice_and_skips_slow_predictions() {
        let all = predicted(&[3.0, 8.1, 1.0, 2.0, 2.1, 9.0].map(Some));
        let recipes = |indices: &[usize]| indices.iter().map(|&index| all[index].recipe).collect::<Vec<_>>();
        assert_eq!(shortlist(&all, all[2].recipe, false), recipes(&[2, 3]));
        assert_eq!(shortlist(&all, all[2].recipe, true), recipes(&[2, 0, 1, 3, 4, 5]));
        assert_eq!(shortlist(&all, all[1].recipe, false), recipes(&[1, 2, 3]), "the model choice is always included");
    }

    #[test]
    fn shortlist_limits_unpredicted_candidates() {
        let times: Vec<_> = std::iter::repeat_n(None, MAX_UNPREDICTED + 3).chain([1.0, 2.5].map(Some)).collect();
        let all = predicted(&times);
        let short = shortlist(&all, all[0].recipe, false);
        let expected: Vec<_> =
            all[..MAX_UNPREDICTED].iter().chain([&all[MAX_UNPREDICTED + 3]]).map(|one| one.recipe).collect();
        assert_eq!(short, expected);
        assert_eq!(shortlist(&all, all[0].recipe, true).len(), all.len());
        // A row times a matrix: the model choice is the first legal candidate.
        let row = problem([1, 8192, 8192]);
        assert!(legal(&row, &CAPS).len() > FINALISTS && legal(&row, &CAPS)[0].recipe == model_choice(&row));
    }

    #[test]
    fn time_shortlist_finds_the_fastest_and_times_the_model_choice() {
        // The model choice is the slowest of nine when screened.
        let times = [9.0, 2.0, 3.0, 4.0, 1.5, 5.0, 6.0, 7.0, 8.0];
        let (outcome, recipes, log) = time_fakes(&times, 1);
        let (timed, [model_choice, fastest]) = outcome.unwrap();
        assert_eq!((timed.len(), model_choice), (9, CandidateTime { recipe: recipes[0], seconds: 1e-3 * 9.0 }));
        assert!(timed.is_sorted_by_key(|candidate| candidate.seconds) && timed[0] == fastest, "{timed:?}");
        assert_eq!(fastest, CandidateTime { recipe: recipes[4], seconds: 1e-3 * 1.5 });
        let report = TuneReport { problem: problem([512; 3]), legal: 9, timed, model_choice, fastest };
        assert!((report.model_efficiency() - 1.5 / 9.0).abs() < 1e-12);
        // The last rounds: the five fastest and the model choice, interleaved.
        let order: Vec<_> =
            log.iter().map(|(recipe, _)| recipes.iter().position(|known| known == recipe).unwrap()).collect();
        assert!(order.ends_with(&[4, 1, 2, 3, 5, 0, 4, 1, 2, 3, 5, 0]), "{order:?}");
    }

    #[test]
    fn time_shortlist_calls_rotate_through_all_sets() {
        let (_, _, log) = time_fakes(&[0.01, 0.02], 300);
        let last: Vec<_> = log.iter().rev().take(6).map(|(_, calls)| *calls).collect();
        assert_eq!(last, [300; 6]);
    }

    #[test]
    fn time_shortlist_drops_failed_candidates_but_not_the_model_choice() {
        let (outcome, recipes, _) = time_fakes(&[3.0, 0.0, f64::NAN, 2.0], 1);
        let (timed, [model_choice, fastest]) = outcome.unwrap();
        assert_eq!((timed.len(), model_choice.recipe, fastest.recipe), (2, recipes[0], recipes[3]));
        assert!(time_fakes(&[0.0, 1.0], 1).0.unwrap_err().to_string().contains("spills"));
        assert!(time_fakes(&[f64::NAN, 1.0], 1).0.unwrap_err().to_string().contains("fails"));
        let (alone, recipes, _) = time_fakes(&[1.0], 1);
        assert_eq!(alone.unwrap().1, [CandidateTime { recipe: recipes[0], seconds: 1e-3 }; 2]);
    }
}
