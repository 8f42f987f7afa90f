//! `tegula check exercise-1`, …: the report of an exercise's check.

use tegula::Result;
use tegula_exercises::{self as exercises, Exercise};

use crate::interpreter_options::InterpreterOptions;
use crate::report::check::{CheckReport, Finding, Goal};

/// Checks an exercise at its sizes. The report is that of the first size with an error, else of the
/// last one.
pub fn run(exercise: &Exercise, interpreter: InterpreterOptions) -> Result<CheckReport> {
    let report = exercises::check::check(exercise, interpreter.seeds, interpreter.steps)?;
    let findings = report.findings.iter().map(|(finding, times)| Finding { times: *times, ..Finding::from(finding) });
    let (findings, counters) = (findings.collect(), report.counters.into());
    let mut checked = CheckReport::new(exercise.name.into(), report.sizes, interpreter.seeds, findings, counters);
    let next = checked.ok.then(|| exercises::next(exercise));
    checked.goal = Some(Goal { text: exercise.to_string(), met: checked.ok, file: exercise.file, next });
    Ok(checked)
}
