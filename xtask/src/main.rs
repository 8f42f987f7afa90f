//! Repository tasks.
//!
//! The crate has no dependencies, so it builds at once. Tasks that need the library run one of its
//! tests.

mod aarch64;
mod ci;
mod fuzz;
mod json;
mod layers;
mod library;
mod loom;
mod memory;
mod packages;
mod platforms;
mod results;
mod sanitize;
mod words;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// Result of a task, with an error message.
type Outcome = Result<(), String>;

const USAGE: &str = "usage: cargo xtask TASK
  ci [--full]       checks a change; with --full, runs all checks
  bless             rewrites expected outputs, and ptxas reports of kernels
  assemble [PART]   assembles all kernels, or those with PART in their names
  layers            checks imports against the layering rules
  results [--check] rewrites the result tables in Markdown from benchmarks/*.json, or checks them
  fuzz [SECONDS]    searches for inputs that break a fuzz target
  platforms         checks the crates for other platforms
  aarch64           runs CPU tests and a product of files under QEMU
  packages          packs and compiles all crates as crates.io would get them
  memory            runs CPU tests under Miri and Valgrind
  loom              checks interleavings of the hand-off between CPU threads
  sanitize          runs CPU tests under the address and the thread sanitizer
  words             checks names, phrases and line lengths against docs/glossary.md
  cuda FOLDER       writes a check of kernels in CUDA C++ for nvcc and a GPU";

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let outcome = match args[..] {
        ["ci"] => ci::run(false),
        ["ci", "--full"] => ci::run(true),
        ["bless"] => library::bless(),
        ["assemble"] => library::assemble(""),
        ["assemble", part] => library::assemble(part),
        ["layers"] => layers::run(),
        ["results"] => results::run(false),
        ["results", "--check"] => results::run(true),
        ["fuzz"] => fuzz::run("60"),
        ["fuzz", seconds] => fuzz::run(seconds),
        ["platforms"] => platforms::run(),
        ["aarch64"] => aarch64::run(),
        ["packages"] => packages::run(),
        ["memory"] => memory::run(),
        ["loom"] => loom::run(),
        ["sanitize"] => sanitize::run(),
        ["words"] => words::run(),
        ["cuda", folder] => library::cuda(folder),
        _ => Err(USAGE.into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// Root directory of the repository.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Runs a command in the root directory.
///
/// # Errors
/// If it does not start or fails; `what` is its name in the message.
fn passes(command: &mut Command, what: &str) -> Outcome {
    let status = command.current_dir(root()).status().map_err(|e| format!("{what}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("failed: {what}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_that_fails_or_is_missing_is_an_error() {
        assert_eq!(passes(Command::new("cargo").arg("--version"), "version"), Ok(()));
        let failed = passes(Command::new("cargo").arg("--no-such-flag"), "aarch64");
        assert_eq!(failed, Err("failed: aarch64".into()));
        let missing = passes(&mut Command::new("no-such-program"), "aarch64").unwrap_err();
        assert!(missing.starts_with("aarch64: "), "{missing}");
    }
}
