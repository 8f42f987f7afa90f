//! `cargo exercise`: checks exercises without the rest of the program, so that a try takes seconds.

use std::io::{self, Write};
use std::process::ExitCode;

use tegula_exercises::check::{Finding, check};
use tegula_exercises::{EXERCISES, Exercise, next};
use tegula_interp::Config;

const USAGE: &str = "usage: cargo exercise [NUMBER | exercise-NUMBER] [SEEDS]";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (name, seeds) = match words.as_slice() {
        [] => (None, Ok(1)),
        [name] => (Some(name), Ok(1)),
        [name, seeds] => (Some(name), seeds.parse()),
        _ => return usage(),
    };
    let Ok(seeds @ 1..) = seeds else { return usage() };
    let exercises: Vec<&Exercise> = match name {
        None => EXERCISES.iter().collect(),
        Some(name) => {
            let is_meant = |exercise: &&Exercise| {
                exercise.name.eq_ignore_ascii_case(name) || exercise.name.strip_prefix("exercise-") == Some(name)
            };
            EXERCISES.iter().filter(is_meant).collect()
        }
    };
    if exercises.is_empty() {
        return usage();
    }
    let results: io::Result<Vec<bool>> =
        exercises.iter().map(|exercise| run(exercise, seeds, name.is_none())).collect();
    match results {
        Ok(results) if results.iter().all(|ok| *ok) => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(why) => {
            eprintln!("error: {why}");
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    let all: Vec<_> = EXERCISES.iter().map(|exercise| exercise.name).collect();
    eprintln!("{USAGE}\nexercises: {}", all.join(", "));
    ExitCode::from(2)
}

/// Checks an exercise and prints the report, `short` in a line.
fn run(exercise: &Exercise, seeds: u32, short: bool) -> io::Result<bool> {
    let Exercise { name, title, file, .. } = exercise;
    let mut out = io::stdout().lock();
    let report = check(exercise, seeds, Config::default().steps).map_err(io::Error::other)?;
    let errors = report.findings.iter().filter(|(finding, _)| finding.is_error()).count();
    let first = report.findings.first().map(|(finding, _)| finding);
    match first.filter(|_| errors > 0) {
        None if short => writeln!(out, "{name}  done     {title}")?,
        Some(finding) if short => {
            let place = finding.source().into_iter().next().unwrap_or_else(|| (*file).to_owned());
            writeln!(out, "{name}  not yet  {title:<14} {} ({place})", finding.kind())?;
        }
        None => {
            writeln!(out, "{name}, {title}: done\n  goal: {exercise}: met")?;
            writeln!(out, "  next: {}", next(exercise))?;
        }
        Some(_) => {
            let [m, n, k] = report.sizes;
            let count = if errors == 1 { "1 error".to_owned() } else { format!("{errors} errors") };
            writeln!(out, "{name}, {title}, at m×n×k = {m}×{n}×{k}: {count}")?;
            for (finding, times) in &report.findings {
                print(&mut out, finding, *times)?;
            }
            writeln!(out, "  goal: {exercise}: not yet; edit {file}")?;
        }
    }
    Ok(errors == 0)
}

fn print(out: &mut impl Write, finding: &Finding, times: u64) -> io::Result<()> {
    let severity = if finding.is_error() { "error" } else { "note" };
    let times = if times == 1 { String::new() } else { format!("; {times} times") };
    writeln!(out, "  {severity}: {}: {}{times}", finding.kind(), finding.message())
}
