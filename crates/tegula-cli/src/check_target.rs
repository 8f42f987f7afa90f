//! The target of `check`: a kernel, an exercise, all exercises, or a file.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Arg, Command, Error};
use tegula_exercises::{EXERCISES, Exercise};

use crate::kernel::{KernelArg, KernelParser};

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

/// A parser of [`CheckTarget`]s.
#[derive(Clone, Debug)]
pub struct CheckTargetParser;

impl TypedValueParser for CheckTargetParser {
    type Value = CheckTarget;

    fn parse_ref(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<CheckTarget, Error> {
        let path = Path::new(value);
        let is_source = |extension: &OsStr| EXTENSIONS.iter().any(|source| extension.eq_ignore_ascii_case(source));
        if path.extension().is_some_and(is_source) {
            return Ok(CheckTarget::File(path.into()));
        }
        match self.parse_name(command, arg, value) {
            Err(_) if path.exists() => Ok(CheckTarget::File(path.into())),
            found => found,
        }
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(KernelParser::PRODUCTS.possible_values()?.chain(exercises())))
    }
}

impl CheckTargetParser {
    /// Parses the name of a kernel or of an exercise.
    fn parse_name(&self, command: &Command, arg: Option<&Arg>, value: &OsStr) -> Result<CheckTarget, Error> {
        if !value.to_string_lossy().to_ascii_lowercase().starts_with("exercise") {
            return KernelParser::PRODUCTS.parse_ref(command, arg, value).map(CheckTarget::Kernel);
        }
        let name = PossibleValuesParser::new(exercises()).parse_ref(command, arg, value)?;
        let exercise = EXERCISES.iter().find(|exercise| exercise.name.eq_ignore_ascii_case(&name));
        Ok(exercise.map_or(CheckTarget::Exercises, CheckTarget::Exercise))
    }
}

fn exercises() -> impl Iterator<Item = PossibleValue> {
    let each = EXERCISES.iter().map(|exercise| PossibleValue::new(exercise.name).help(exercise.title));
    std::iter::once(PossibleValue::new(ALL).help("All exercises: kernels with a bug to correct")).chain(each)
}
