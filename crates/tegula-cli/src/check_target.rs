//! The target of `check`: a kernel, an exercise, or all exercises.

use std::ffi::OsStr;

use clap::builder::{PossibleValue, TypedValueParser};
use clap::{Arg, Command, Error};
use tegula_exercises::{EXERCISES, Exercise};

use crate::kernel::{KernelArg, KernelParser, unknown_value};

/// The target of a check.
#[derive(Clone, Debug)]
pub enum CheckTarget {
    /// A kernel of the library.
    Kernel(KernelArg),
    /// An exercise.
    Exercise(&'static Exercise),
    /// All exercises.
    Exercises,
}

impl CheckTarget {
    /// The name in messages.
    pub fn text(&self) -> &str {
        match self {
            CheckTarget::Kernel(named) => named.text(),
            CheckTarget::Exercise(exercise) => exercise.name,
            CheckTarget::Exercises => ALL,
        }
    }
}

const ALL: &str = "exercises";

/// A parser of [`CheckTarget`]s.
#[derive(Clone, Debug)]
pub struct CheckTargetParser;

impl TypedValueParser for CheckTargetParser {
    type Value = CheckTarget;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<CheckTarget, Error> {
        if value.eq_ignore_ascii_case(ALL) {
            return Ok(CheckTarget::Exercises);
        }
        let exercise = EXERCISES.iter().find(|exercise| value.eq_ignore_ascii_case(exercise.name));
        let exercise = exercise.map(CheckTarget::Exercise);
        let target = exercise.or_else(|| KernelArg::parse(value).map(CheckTarget::Kernel));
        target.ok_or_else(|| unknown_value(self, command, arg, value))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(KernelParser::PRODUCTS.possible_values()?.chain(exercises())))
    }
}

fn exercises() -> impl Iterator<Item = PossibleValue> {
    let each = EXERCISES.iter().map(|exercise| PossibleValue::new(exercise.name).help(exercise.title));
    std::iter::once(PossibleValue::new(ALL).help("All exercises: kernels with a bug to correct")).chain(each)
}
