//! Which of the recipes for a product is fastest: those that the cost model thinks hopeless are left out, the others meet in two rounds.
//!
//! It knows recipes by what they are predicted to take and by a clock, not what runs them; nothing is kept here.
#![cfg_attr(not(feature = "cuda"), allow(dead_code, reason = "only on GPUs there are recipes"))]

use tegula::error::{Error, Result};
use tegula_kernels::plan::{Candidate, Problem, Recipe};

use super::rounds::{Pace, Timed, compare, glances, pilot};

/// Recipes that are predicted to take so many times as long as the best are not timed.
const HOPELESS: f64 = 2.0;
/// Most recipes of which nothing is predicted: some shapes of a kernel, each with a few splits.
const UNKNOWN: usize = 24;
/// Recipes that get the closer look, the cost model's choice among them.
const FINALISTS: usize = 6;

/// How to look for a winner.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Where the inputs come from.
    pub seed: u64,
    /// Seconds in which the finalists take turns; long calls take what they need for a few rounds.
    pub seconds: f64,
    /// Whether recipes are timed that the cost model thinks hopeless.
    pub all: bool,
}

/// What came of it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tuning {
    /// The problem as a plan meets it.
    pub problem: Problem,
    /// How many recipes there are.
    pub legal: usize,
    /// Those that were timed, as they looked at a glance, the fastest first.
    pub timed: Vec<Timing>,
    /// The cost model's choice.
    pub chosen: Timing,
    /// The fastest, which may be the same.
    pub winner: Timing,
}

/// A recipe and its time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timing {
    /// The recipe.
    pub recipe: Recipe,
    /// The median seconds of a call.
    pub seconds: f64,
}

impl Tuning {
    /// The speed of the cost model's choice by the winner's: 1 where it is the winner.
    pub fn ratio(&self) -> f64 {
        self.winner.seconds / self.chosen.seconds
    }
}

/// The recipes that are worth timing; the cost model's choice is the first.
pub(super) fn shortlist(legal: &[Candidate], chosen: Recipe, all: bool) -> Vec<Recipe> {
    let best = legal.iter().filter_map(|candidate| candidate.microseconds).fold(f64::INFINITY, f64::min);
    let mut unknown = 0;
    let worth = |candidate: &&Candidate| match candidate.microseconds {
        Some(time) => all || time <= HOPELESS * best,
        None => {
            unknown += 1;
            all || unknown <= UNKNOWN
        }
    };
    let others = legal.iter().filter(worth).map(|candidate| candidate.recipe).filter(|recipe| *recipe != chosen);
    std::iter::once(chosen).chain(others).collect()
}

/// Times the recipes of a shortlist, which go round `sets` sets of inputs. `open` makes a recipe ready; one that cannot be is out. Gives all that
/// were timed, as they looked at a glance, and then the first of the list, and the fastest.
///
/// # Errors
/// What the first of the list says: without its time there is nothing to compare with.
pub(super) fn contest<T: Timed>(
    shortlist: &[Recipe],
    sets: usize,
    seconds: f64,
    mut open: impl FnMut(Recipe) -> Result<T>,
) -> Result<(Vec<Timing>, [Timing; 2])> {
    // All are ready before the first is timed: while the driver assembles, the GPU rests and its clocks fall.
    let (mut recipes, mut sides) = (Vec::new(), Vec::new());
    for &recipe in shortlist {
        match open(recipe) {
            Ok(side) => {
                recipes.push(recipe);
                sides.push(side);
            }
            Err(why) if recipes.is_empty() => return Err(why),
            Err(why) => tracing::debug!(recipe = recipe.name(), %why, "a candidate is out"),
        }
    }
    let silent = || Error::Launch { kernel: "of tegula tune".into(), why: "it gave no times".into() };
    let pace = Pace::brief(pilot(sides.first_mut().ok_or_else(silent)?)?, sets);
    let glances = glances(&mut sides);
    let mut few: Vec<_> = glances.iter().take(FINALISTS).map(|(index, _)| *index).collect();
    if !few.contains(&0) {
        few.truncate(FINALISTS - 1);
        few.push(0);
    }
    let calls = compare(&mut sides, &few, pace, seconds);
    let timing = |(index, seconds): (usize, f64)| Timing { recipe: recipes[index], seconds };
    let chosen = calls.iter().copied().find(|(index, _)| *index == 0).ok_or_else(silent)?;
    let fastest = calls.iter().copied().min_by(|a, b| a.1.total_cmp(&b.1)).unwrap_or(chosen);
    Ok((glances.into_iter().map(timing).collect(), [timing(chosen), timing(fastest)]))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use tegula::element::Type;
    use tegula_kernels::plan::{Caps, Plan, choose, legal};

    use super::*;

    const CAPS: Caps = Caps::Gpu { compute: (9, 0), multiprocessors: 132 };

    fn problem([m, n, k]: [usize; 3]) -> Problem {
        let (accuracy, lies) = Default::default();
        Problem { ty: Type::F32, accuracy, m, n, k, batches: 1, lies }
    }

    fn chosen(problem: &Problem) -> Recipe {
        match choose(problem, &CAPS).unwrap() {
            Plan::Gpu(recipe) => recipe,
            Plan::Cpu => panic!("a GPU runs kernels"),
        }
    }

    /// A recipe whose calls take known times by a clock that all share, NaN where they fail.
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
    type Outcome = Result<(Vec<Timing>, [Timing; 2])>;

    /// A contest among recipes, the nth of which takes `times[n]` milliseconds; NaN fails when timed, 0 cannot be made ready.
    fn held(times: &[f64], sets: usize) -> (Outcome, Vec<Recipe>, Log) {
        let all = legal(&problem([512, 512, 512]), &CAPS);
        let recipes: Vec<_> = all.iter().map(|candidate| candidate.recipe).take(times.len()).collect();
        assert_eq!(recipes.len(), times.len());
        let log = Rc::<RefCell<Log>>::default();
        let outcome = contest(&recipes, sets, 0.0, |recipe| {
            let call = 1e-3 * times[recipes.iter().position(|known| *known == recipe).unwrap()];
            match call == 0.0 {
                true => Err(Error::KernelOption("spills".into())),
                false => Ok(Fake { call, recipe, log: log.clone() }),
            }
        });
        let log = log.take();
        (outcome, recipes, log)
    }

    /// Recipes with the microseconds that they are made up to take.
    fn predicted(times: &[Option<f64>]) -> Vec<Candidate> {
        let all = legal(&problem([512, 512, 4096]), &CAPS).into_iter().zip(times);
        let made_up: Vec<_> = all.map(|(candidate, &microseconds)| Candidate { microseconds, ..candidate }).collect();
        assert_eq!(made_up.len(), times.len());
        made_up
    }

    #[test]
    fn the_choice_leads_a_list_without_what_is_hopeless() {
        let all = predicted(&[3.0, 8.1, 1.0, 2.0, 2.1, 9.0].map(Some));
        let recipes = |places: &[usize]| places.iter().map(|&place| all[place].recipe).collect::<Vec<_>>();
        assert_eq!(shortlist(&all, all[2].recipe, false), recipes(&[2, 3]));
        assert_eq!(shortlist(&all, all[2].recipe, true), recipes(&[2, 0, 1, 3, 4, 5]));
        assert_eq!(shortlist(&all, all[1].recipe, false), recipes(&[1, 2, 3]), "the choice is on it whatever it is");
    }

    #[test]
    fn of_what_is_not_predicted_the_likeliest_are_timed() {
        let times: Vec<_> = std::iter::repeat_n(None, UNKNOWN + 3).chain([1.0, 2.5].map(Some)).collect();
        let all = predicted(&times);
        let short = shortlist(&all, all[0].recipe, false);
        let expected: Vec<_> = all[..UNKNOWN].iter().chain([&all[UNKNOWN + 3]]).map(|one| one.recipe).collect();
        assert_eq!(short, expected);
        assert_eq!(shortlist(&all, all[0].recipe, true).len(), all.len());
        // The real thing: a row times a matrix, of which the choice is the likeliest.
        let row = problem([1, 8192, 8192]);
        assert!(legal(&row, &CAPS).len() > FINALISTS && legal(&row, &CAPS)[0].recipe == chosen(&row));
    }

    #[test]
    fn the_fastest_wins_and_the_choice_is_timed_beside_it() {
        // The choice is the slowest of nine, and no finalist of its own.
        let times = [9.0, 2.0, 3.0, 4.0, 1.5, 5.0, 6.0, 7.0, 8.0];
        let (outcome, recipes, log) = held(&times, 1);
        let (timed, [chosen, winner]) = outcome.unwrap();
        assert_eq!((timed.len(), chosen), (9, Timing { recipe: recipes[0], seconds: 1e-3 * 9.0 }));
        assert!(timed.is_sorted_by_key(|timing| timing.seconds) && timed[0] == winner, "{timed:?}");
        assert_eq!(winner, Timing { recipe: recipes[4], seconds: 1e-3 * 1.5 });
        let tuning = Tuning { problem: problem([512; 3]), legal: 9, timed, chosen, winner };
        assert!((tuning.ratio() - 1.5 / 9.0).abs() < 1e-12);
        // The last round: the five best and the choice, in turns.
        let places: Vec<_> =
            log.iter().map(|(recipe, _)| recipes.iter().position(|known| known == recipe).unwrap()).collect();
        assert!(places.ends_with(&[4, 1, 2, 3, 5, 0, 4, 1, 2, 3, 5, 0]), "{places:?}");
    }

    #[test]
    fn calls_of_the_last_round_go_round_all_sets() {
        let (_, _, log) = held(&[0.01, 0.02], 300);
        let last: Vec<_> = log.iter().rev().take(6).map(|(_, calls)| *calls).collect();
        assert_eq!(last, [300; 6]);
    }

    #[test]
    fn a_candidate_that_fails_is_out_and_the_choice_must_not() {
        let (outcome, recipes, _) = held(&[3.0, 0.0, f64::NAN, 2.0], 1);
        let (timed, [chosen, winner]) = outcome.unwrap();
        assert_eq!((timed.len(), chosen.recipe, winner.recipe), (2, recipes[0], recipes[3]));
        assert!(held(&[0.0, 1.0], 1).0.unwrap_err().to_string().contains("spills"));
        assert!(held(&[f64::NAN, 1.0], 1).0.unwrap_err().to_string().contains("fails"));
        let (alone, recipes, _) = held(&[1.0], 1);
        assert_eq!(alone.unwrap().1, [Timing { recipe: recipes[0], seconds: 1e-3 }; 2]);
    }
}
