//! `tegula check exercise-1`, …: a kernel that somebody is mending, at one size after the other.

use std::collections::BTreeMap;

use tegula::element::Type;
use tegula::{Accuracy, Error, Layout, Matrix, Result, Shape};
use tegula_exercises::{Bound, Exercise};
use tegula_interp::{self as interp, Buffer};
use tegula_ir::{self as ir, Checked, Kernel};

use super::{Random, compare, gather, refused};
use crate::effort::Effort;
use crate::report::check::{CheckReport, Counters, Finding, Goal, Severity};

/// Checks an exercise at its sizes, up to the first at which something is wrong, of which the report is.
pub fn run(exercise: &Exercise, effort: Effort) -> Result<CheckReport> {
    let [first, further @ ..] = exercise.sizes;
    let mut report = at(exercise, first, effort)?;
    for sizes in further {
        if report.ok {
            report = at(exercise, sizes, effort)?;
        }
    }
    report.goal = Some(Goal { text: exercise.to_string(), met: report.ok, file: exercise.file });
    Ok(report)
}

fn at(exercise: &Exercise, sizes: [usize; 3], effort: Effort) -> Result<CheckReport> {
    let (findings, counters) = match ir::check((exercise.build)()) {
        Ok(kernel) => over_seeds(exercise, &kernel, sizes, effort)?,
        Err(Error::Refused { faults, .. }) => refused(&faults),
        Err(error) => return Err(error),
    };
    Ok(CheckReport::new(exercise.name.into(), sizes, effort.seeds, findings, counters))
}

fn over_seeds(
    exercise: &Exercise,
    kernel: &Checked<Kernel>,
    sizes: [usize; 3],
    effort: Effort,
) -> Result<(Vec<Finding>, Counters)> {
    let (mut findings, mut counters) = (Vec::new(), Counters::default());
    for seed in 0..u64::from(effort.seeds) {
        match once(exercise, kernel, sizes, seed, effort) {
            Ok((found, counted)) => {
                found.into_iter().for_each(|finding| gather(&mut findings, finding));
                counters = counted;
            }
            // The kernel's parameters are the learner's to change, too.
            Err(Error::Launch { why, .. }) => {
                let fault = ir::Fault { kind: ir::FaultKind::Launch, message: why, source: None };
                return Ok(refused(&[fault]));
            }
            Err(error) => return Err(error),
        }
    }
    findings.sort_by_key(|finding| finding.severity);
    Ok((findings, counters))
}

/// One run on random matrices. What lines cost is held against the bound where all else is right.
fn once(
    exercise: &Exercise,
    kernel: &Checked<Kernel>,
    [m, n, k]: [usize; 3],
    seed: u64,
    effort: Effort,
) -> Result<(Vec<Finding>, Counters)> {
    let mut random = Random(seed);
    let a = Matrix::from_fn(m, k, |_, _| random.number::<f32>())?;
    let b = Matrix::from_fn(k, n, |_, _| random.number::<f32>())?;
    let input = |matrix: &Matrix<f32>| Buffer::of_slice(matrix.as_slice(), matrix.layout());
    let (input_a, input_b) = (input(&a)?, input(&b)?);
    let c = Buffer::output(Type::F32, Layout::row_major(Shape::new(m, n))?)?;
    let args = [(&input_a).into(), (&input_b).into(), (&c).into()];
    let outcome = interp::run(kernel, &args, &effort.config(seed))?;
    let mut findings: Vec<Finding> = outcome.findings.iter().map(Finding::from).collect();
    findings.extend(compare(a.view(), b.view(), &c, Accuracy::Full)?);
    if let Some(bound) = exercise.bound
        && findings.iter().all(|finding| finding.severity == Severity::Note)
    {
        findings.extend(beyond(bound, &outcome));
    }
    Ok((findings, outcome.counters.into()))
}

/// A finding for each line of the source that costs more than it may.
fn beyond(bound: Bound, outcome: &interp::Outcome) -> Vec<Finding> {
    let mut lines = BTreeMap::<_, interp::Counters>::new();
    for (site, counters) in &outcome.lines {
        *lines.entry((site.location.file(), site.location.line())).or_default() += *counters;
    }
    let costly = lines.iter().filter_map(|(&(file, line), counters)| {
        let cost = bound.exceeded(counters)?;
        Some(Finding::of_cost(bound.kind(), format!("{file}:{line}"), cost))
    });
    costly.collect()
}

#[cfg(test)]
#[path = "../../../../exercises/solutions/mod.rs"]
mod solutions;

#[cfg(test)]
mod tests {
    use tegula_exercises::EXERCISES;

    use super::solutions::SOLUTIONS;
    use super::*;

    /// The kinds of error that each exercise shows, and at which of its sizes.
    const SHOWN: [(&[&str], usize); 8] = [
        (&["wrong-result"], 0),
        (&["out-of-bounds"], 2),
        (&["race", "uninitialised", "wrong-result"], 0),
        (&["race", "wrong-result"], 1),
        (&["wrong-result"], 2),
        (&["uncoalesced"], 0),
        (&["bank-conflict"], 0),
        (&["in-flight", "wrong-result"], 0),
    ];

    #[test]
    fn each_exercise_is_wrong_in_its_own_way() {
        for (exercise, (kinds, at)) in EXERCISES.iter().zip(SHOWN) {
            let report = run(exercise, Effort::default()).unwrap();
            let mut found: Vec<_> = report.findings.iter().map(|finding| finding.kind.as_str()).collect();
            found.dedup();
            assert_eq!(found, kinds, "{}: {:?}", exercise.name, report.findings);
            assert_eq!([report.m, report.n, report.k], exercise.sizes[at], "{}", exercise.name);
            assert!(!report.ok && report.goal.is_some_and(|goal| !goal.met), "{}", exercise.name);
            let sources = report.findings.iter().flat_map(|finding| &finding.source);
            assert!(sources.into_iter().all(|source| source.starts_with(exercise.file)), "{:?}", report.findings);
        }
    }

    #[test]
    fn each_solution_is_right_at_all_sizes() {
        for (exercise, build) in EXERCISES.iter().zip(SOLUTIONS) {
            let report = run(&Exercise { build, ..*exercise }, Effort { seeds: 2, ..Effort::default() }).unwrap();
            assert!(report.ok && report.findings.is_empty(), "{}: {:?}", exercise.name, report.findings);
            assert_eq!([report.m, report.n, report.k], exercise.sizes[2]);
            assert!(report.goal.is_some_and(|goal| goal.met));
        }
    }

    /// What costs too much is told of the lines that do it, and of no other.
    #[test]
    fn costs_are_told_line_by_line() {
        let lines = |exercise: &Exercise| {
            let source = std::fs::read_to_string(root().join(exercise.file)).unwrap();
            let line = |place: &str| source.lines().nth(place.rsplit_once(':')?.1.parse::<usize>().ok()? - 1);
            let findings = run(exercise, Effort::default()).unwrap().findings;
            findings.iter().map(|finding| line(&finding.source[0]).unwrap().trim().to_owned()).collect::<Vec<_>>()
        };
        let scattered = lines(&EXERCISES[5]);
        assert_eq!(scattered.len(), 3, "{scattered:?}");
        assert!(
            scattered.iter().zip(["a.load_or", "b.load_or", "c.store"]).all(|(line, access)| line.contains(access))
        );
        let one_bank = lines(&EXERCISES[6]);
        assert_eq!(one_bank.len(), 1, "{one_bank:?}");
        assert!(one_bank[0].starts_with("tile_a.store"), "{one_bank:?}");
    }

    /// A learner's kernel may be anything that compiles.
    #[test]
    fn whatever_a_learner_writes_has_a_report() {
        use tegula_ir::prelude::*;
        let kinds = |build: fn() -> Kernel| {
            let report = run(&Exercise { build, ..EXERCISES[0] }, Effort::default()).unwrap();
            assert!(!report.ok);
            report.findings.into_iter().map(|finding| finding.kind).collect::<Vec<_>>()
        };
        let nothing = || {
            kernel("nothing", Block::d1(32), |k| {
                let _ = (k.input::<f32>("a"), k.input::<f32>("b"), k.output::<f32>("c"));
                k.grid([k.constant(1), k.constant(1), k.constant(1)]);
            })
        };
        assert_eq!(kinds(nothing), ["unwritten"]);
        assert_eq!(kinds(|| kernel("nowhere", Block::d1(32), |_| ())), ["launch"]);
        let one_matrix = || {
            kernel("one_matrix", Block::d1(32), |k| {
                k.input::<f32>("a");
                k.grid([k.constant(1), k.constant(1), k.constant(1)]);
            })
        };
        assert_eq!(kinds(one_matrix), ["launch"]);
    }

    #[test]
    fn files_are_there() {
        assert!(EXERCISES.iter().all(|exercise| root().join(exercise.file).is_file()));
    }

    fn root() -> std::path::PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
    }
}
