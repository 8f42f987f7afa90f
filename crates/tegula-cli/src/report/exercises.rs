//! The report of `tegula check exercises`.

use std::io::{self, Write};

use serde::Serialize;
use tegula_exercises::EXERCISES;

use super::check::CheckReport;

/// The object of `--json`.
#[derive(Debug, Serialize)]
pub struct Exercises {
    /// Whether all are done.
    pub ok: bool,
    /// The report of each.
    pub exercises: Vec<CheckReport>,
}

impl Exercises {
    /// Collects the reports of all exercises.
    pub fn new(exercises: Vec<CheckReport>) -> Exercises {
        Exercises { ok: exercises.iter().all(|report| report.ok), exercises }
    }

    /// The verdict, such as `3 of 8 exercises are not done yet`.
    pub fn verdict(&self) -> String {
        let open = self.exercises.iter().filter(|report| !report.ok).count();
        format!("{open} of {} exercises are not done yet", self.exercises.len())
    }
}

/// Prints a line for each exercise: done, or the first error.
pub fn print(out: &mut impl Write, exercises: &Exercises) -> io::Result<()> {
    EXERCISES.iter().zip(&exercises.exercises).try_for_each(|(exercise, report)| {
        let (name, title, file) = (exercise.name, exercise.title, exercise.file);
        match report.findings.first().filter(|_| !report.ok) {
            None => writeln!(out, "{name}  done     {title}"),
            Some(finding) => {
                let place = finding.source.first().map_or(file, String::as_str);
                writeln!(out, "{name}  not yet  {title:<14} {} ({place})", finding.kind)
            }
        }
    })
}
