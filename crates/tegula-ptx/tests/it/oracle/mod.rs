//! Compares the checker with an independent oracle, on random kernels in PTX.
//!
//! `program` is a kernel as plain data, `generate` creates random programs, `emit` writes them as
//! PTX. `execute` and `races` are the oracle: they compute the races by the memory consistency
//! model
//! of the PTX ISA, from an explicit graph of events and its transitive closure. They share no code
//! with the checker.
//!
//! `order` inserts orders into a program until it has no race, and `weaken` removes one. The
//! checker
//! must be silent and compute the right values in the first, and report a race in the second if the
//! removed order was needed.
//!
//! `TEGULA_CASES` sets the number of random programs, `TEGULA_SEED` the first seed. A seed gives
//! the
//! same program on every machine.

mod compare;
mod emit;
mod execute;
mod generate;
mod graph;
mod litmus;
mod memory;
mod order;
mod program;
mod races;
mod random;
mod shrink;
mod weaken;

use compare::{SCHEDULES, Verdict, schedules, verdict, waits_for_ever};
use execute::{BY_WARP, TOGETHER};
use program::Program;
use rayon::prelude::*;

/// Programs of each kind in a quick run, and in a full run.
const QUICK_PROGRAMS: u64 = 150;
const FULL_PROGRAMS: u64 = 10_000;

/// Schedules of the oracle for a program that not every run reports.
const MANY_SCHEDULES: u64 = 400;

/// Unneeded orders that are removed from a program.
const UNNEEDED: usize = 1;

/// Programs that wait for ever, of those with an order less.
const WAITING: usize = 1;

fn number(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}

/// What the programs of some seeds showed.
#[derive(Debug, Default)]
struct Count {
    race_free: u64,
    unneeded: u64,
    racing: u64,
    waiting: u64,
    undecided: u64,
    /// Runs that did not report a race which another seed reports.
    missed: u64,
    /// Programs of such runs that race on each of many schedules of the oracle.
    silent: Vec<(u64, Program, &'static str)>,
    /// Differences: the seed, the program, and what differs.
    differ: Vec<(u64, Program, &'static str)>,
}

impl Count {
    fn add(mut self, other: Count) -> Count {
        self.differ.extend(other.differ);
        self.silent.extend(other.silent);
        Count {
            race_free: self.race_free + other.race_free,
            unneeded: self.unneeded + other.unneeded,
            racing: self.racing + other.racing,
            waiting: self.waiting + other.waiting,
            undecided: self.undecided + other.undecided,
            missed: self.missed + other.missed,
            silent: self.silent,
            differ: self.differ,
        }
    }

    fn check(&mut self, program: &Program, seed: u64) {
        match verdict(program, seed) {
            Verdict::Agree { missed } => {
                self.missed += missed;
                if missed > 0 && races_always(program, seed) {
                    self.silent.push((seed, program.clone(), "silent on a seed"));
                }
            }
            Verdict::Undecided => self.undecided += 1,
            Verdict::Disagree(what, _) => self.differ.push((seed, program.clone(), what)),
        }
    }
}

/// Whether a program has a race on each of many schedules, whatever its threads observe.
///
/// Two of them keep the lanes of a warp together, as the checker does.
fn races_always(program: &Program, seed: u64) -> bool {
    let schedules = schedules(seed, MANY_SCHEDULES).chain([TOGETHER, BY_WARP]);
    races::races(program, schedules).is_some_and(|found| !found.certain.is_empty())
}

/// Shrinks a program on which checker and oracle differ, and describes it.
fn explain(seed: u64, program: &Program, what: &'static str) -> String {
    if std::env::var("TEGULA_WHOLE").is_ok()
        && let Verdict::Disagree(_, why) = verdict(program, seed)
    {
        return format!("seed {seed}: {what}: {why}\n{program}");
    }
    let differs = |program: &Program| match verdict(program, seed) {
        Verdict::Disagree(what, why) => Some((what, why)),
        _ => None,
    };
    let small = shrink::shrink(program.clone(), |smaller| differs(smaller).is_some_and(|(same, _)| same == what));
    let why = differs(&small).map_or(String::new(), |(_, why)| why);
    format!("seed {seed}: {what}: {why}\n{small}")
}

/// Checks a race-free program, and the same program with a needed order removed.
fn check_seed(seed: u64) -> Count {
    let mut count = Count::default();
    let (program, mut generator) = generate::program(seed);
    let Some(program) = order::without_races(program, &mut generator, seed) else { return count };
    count.race_free += 1;
    count.check(&program, seed);
    let mut weakened = weaken::weakened(&program);
    generator.random.shuffle(&mut weakened);
    let (mut unneeded, mut waiting) = (0, 0);
    for weaker in weakened {
        let Some(found) = races::races(&weaker, schedules(seed, SCHEDULES)) else {
            if waiting < WAITING && waits_for_ever(&weaker, seed) {
                waiting += 1;
                count.waiting += 1;
                count.check(&weaker, seed);
            }
            continue;
        };
        match (found.certain.is_empty(), found.possible.is_empty()) {
            (true, true) if unneeded < UNNEEDED => {
                unneeded += 1;
                count.unneeded += 1;
                count.check(&weaker, seed);
            }
            (false, _) => {
                count.racing += 1;
                count.check(&weaker, seed);
                break;
            }
            _ => {}
        }
    }
    count
}

#[test]
fn random_programs_race_where_the_memory_model_says_so() {
    let full = std::env::var("TEGULA_FULL").is_ok_and(|full| full == "1");
    let first = number("TEGULA_SEED", 0);
    let programs = number("TEGULA_CASES", if full { FULL_PROGRAMS } else { QUICK_PROGRAMS });
    let mut seeds = first..;
    let mut total = Count::default();
    while total.race_free < programs || total.racing < programs {
        let batch: Vec<u64> = seeds.by_ref().take(programs.min(64) as usize).collect();
        total = total.add(batch.into_par_iter().map(check_seed).reduce(Count::default, Count::add));
    }
    let Count { race_free, unneeded, racing, waiting, undecided, missed, silent, differ } = total;
    println!(
        "{race_free} programs without a race, {unneeded} with an order less, {racing} with a race, \
         {waiting} that wait for ever; {undecided} undecided, {missed} runs without a report"
    );
    differ.iter().chain(&silent).for_each(|(seed, _, what)| println!("seed {seed}: {what}"));
    for (seed, program, _) in silent.iter().take(number("TEGULA_SHOW", 1) as usize) {
        let found = races::races(program, schedules(*seed, MANY_SCHEDULES));
        println!("seed {seed}: the oracle has {:?}\n{program}", found.map(|found| found.certain));
    }
    let only = std::env::var("TEGULA_ONLY").unwrap_or_default();
    let shown: Vec<_> =
        differ.iter().filter(|(seed, _, what)| what.contains(&only) || seed.to_string() == only).collect();
    let mut seen = std::collections::BTreeSet::new();
    for (seed, program, what) in shown {
        if seen.len() < number("TEGULA_SHOW", 1) as usize && seen.insert(*seed) {
            println!("{}", explain(*seed, program, what));
        }
    }
    assert!(differ.is_empty() && silent.is_empty());
    assert!(programs < 100 || undecided * 20 < programs, "{undecided} programs are undecided");
}

#[test]
#[ignore = "prints the program of TEGULA_SEED"]
fn show() {
    let seed = number("TEGULA_SEED", 0);
    let (program, mut generator) = generate::program(seed);
    let program = order::without_races(program, &mut generator, seed).unwrap();
    println!("{program}");
    let emitted = emit::emit(&program, &[]);
    println!("{}", compare::numbered(&emitted.text));
    for seed in 0..3 {
        let start = std::time::Instant::now();
        let outcome = compare::run(&emitted, &program, seed);
        println!("seed {seed} {:?}", start.elapsed());
        println!("{:#?}", outcome.map(|(outcome, _)| (outcome.diagnostics, outcome.thread_instructions)));
    }
}
