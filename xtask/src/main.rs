//! Repository tasks. It has no dependencies, so it builds at once; tasks that need the library run one
//! of its tests.

mod aarch64;
mod ci;
mod fuzz;
mod layers;
mod library;
mod memory;
mod platforms;
mod sanitize;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What a chore comes to: nothing, or why it failed.
type Outcome = Result<(), String>;

const USAGE: &str = "usage: cargo xtask CHORE
  ci [--full]       what a change is held to; with --full everything
  bless             rewrites kept texts, and what ptxas says of kernels
  assemble [PART]   assembles all kernels, or those with this in their names
  layers            holds imports against the layers
  fuzz [SECONDS]    searches for inputs that break a fuzz target
  platforms         checks the crates for other platforms
  aarch64           runs CPU tests and a product of files under QEMU
  memory            runs CPU tests under Miri and Valgrind
  sanitize          runs CPU tests under the address and the thread sanitizer
  cuda FOLDER       writes what checks kernels in CUDA C++ with nvcc and a GPU";

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
        ["fuzz"] => fuzz::run("60"),
        ["fuzz", seconds] => fuzz::run(seconds),
        ["platforms"] => platforms::run(),
        ["aarch64"] => aarch64::run(),
        ["memory"] => memory::run(),
        ["sanitize"] => sanitize::run(),
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

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Runs a command in the root.
///
/// # Errors
/// It does not start or does not succeed; `what` is its name in the message.
fn passes(command: &mut Command, what: &str) -> Outcome {
    let status = command.current_dir(root()).status().map_err(|e| format!("{what}: {e}"))?;
    if status.success() { Ok(()) } else { Err(format!("failed: {what}")) }
}
