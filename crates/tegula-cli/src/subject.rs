//! What a check is of: a kernel by name, an exercise, or all exercises.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Command, Error};
use tegula_exercises::{EXERCISES, Exercise};

use crate::kernel::{Named, Names};

/// What is to be checked.
#[derive(Clone, Debug)]
pub enum Subject {
    /// A kernel of the library.
    Kernel(Named),
    /// A kernel that is to be mended.
    Exercise(&'static Exercise),
    /// Each of them.
    Exercises,
}

impl Subject {
    /// The name in messages.
    pub fn text(&self) -> &str {
        match self {
            Subject::Kernel(named) => named.text(),
            Subject::Exercise(exercise) => exercise.name,
            Subject::Exercises => ALL,
        }
    }
}

const ALL: &str = "exercises";

/// The names that a [`Subject`] can have.
#[derive(Clone, Debug)]
pub struct Subjects;

impl TypedValueParser for Subjects {
    type Value = Subject;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<Subject, Error> {
        if !value.to_string_lossy().to_ascii_lowercase().starts_with("exercise") {
            return Names.parse_ref(command, arg, value).map(Subject::Kernel);
        }
        let name = PossibleValuesParser::new(exercises()).parse_ref(command, arg, value)?;
        let exercise = EXERCISES.iter().find(|exercise| exercise.name.eq_ignore_ascii_case(&name));
        Ok(exercise.map_or(Subject::Exercises, Subject::Exercise))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(Names.possible_values()?.chain(exercises())))
    }
}

fn exercises() -> impl Iterator<Item = PossibleValue> {
    let each = EXERCISES.iter().map(|exercise| PossibleValue::new(exercise.name).help(exercise.title));
    std::iter::once(PossibleValue::new(ALL).help("Which exercises are done: kernels with a mistake to mend"))
        .chain(each)
}
