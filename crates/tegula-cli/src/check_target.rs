//! The target of `check`: a kernel, an exercise, all exercises, or a file.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

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
    /// CUDA C++ or PTX.
    File(PathBuf),
}

impl CheckTarget {
    /// The name in messages.
    pub fn text(&self) -> &str {
        match self {
            CheckTarget::Kernel(named) => named.text(),
            CheckTarget::Exercise(exercise) => exercise.name,
            CheckTarget::Exercises => ALL,
            CheckTarget::File(path) => path.to_str().unwrap_or("the file"),
        }
    }
}

const ALL: &str = "exercises";

/// Extensions of CUDA C++ and PTX.
const EXTENSIONS: [&str; 4] = ["cu", "cuh", "cpp", "ptx"];

/// Whether a path has an extension of CUDA C++ or PTX.
pub fn is_source_file(path: &Path) -> bool {
    let is_source = |extension: &OsStr| EXTENSIONS.iter().any(|source| extension.eq_ignore_ascii_case(source));
    path.extension().is_some_and(is_source)
}

/// A parser of [`CheckTarget`]s.
#[derive(Clone, Debug)]
pub struct CheckTargetParser;

impl TypedValueParser for CheckTargetParser {
    type Value = CheckTarget;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<CheckTarget, Error> {
        let path = Path::new(value);
        if is_source_file(path) {
            return Ok(CheckTarget::File(path.into()));
        }
        let target = named(value).or_else(|| path.exists().then(|| CheckTarget::File(path.into())));
        target.ok_or_else(|| unknown_value(self, command, arg, value))
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(KernelParser::PRODUCTS.possible_values()?.chain(exercises())))
    }
}

/// The kernel, exercise or exercises of a name.
fn named(value: &OsStr) -> Option<CheckTarget> {
    if value.eq_ignore_ascii_case(ALL) {
        return Some(CheckTarget::Exercises);
    }
    let exercise = EXERCISES.iter().find(|exercise| value.eq_ignore_ascii_case(exercise.name));
    exercise.map(CheckTarget::Exercise).or_else(|| KernelArg::parse(value).map(CheckTarget::Kernel))
}

fn exercises() -> impl Iterator<Item = PossibleValue> {
    let each = EXERCISES.iter().map(|exercise| PossibleValue::new(exercise.name).help(exercise.title));
    std::iter::once(PossibleValue::new(ALL).help("All exercises: kernels with a bug to correct")).chain(each)
}
