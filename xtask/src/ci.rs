//! Checks of a change: sections in order, each a command that can be run by hand.
//!
//! The quick run is for every change. The full run is for changes of kernels, the interpreter or a
//! printer. It covers all seeds, shapes and assemblies. It also searches for inputs that break a
//! reader or a product, and for memory errors.

use std::process::Command;
use std::time::Instant;

use crate::{Outcome, passes};

const QUICK: [(&str, &str); 9] = [
    ("format", "fmt --all --check"),
    ("layers", "xtask layers"),
    ("words", "xtask words"),
    ("results", "xtask results --check"),
    ("lints", "clippy --workspace --all-targets -- -D warnings"),
    ("platforms", "xtask platforms"),
    ("tests", "test --workspace"),
    ("long tests", "test --workspace --lib --bins --tests -- --ignored"),
    // With the features of the tests.
    (
        "documentation",
        "doc --workspace --no-deps --lib --features tegula-explain/guide,tegula/interp,tegula/ndarray,tegula/ndarray-016",
    ),
];

const FULL: [(&str, &str); 6] = [
    ("memory", "xtask memory"),
    ("hand-off", "xtask loom"),
    ("sanitizers", "xtask sanitize"),
    ("aarch64", "xtask aarch64"),
    ("packages", "xtask packages"),
    ("fuzz", "xtask fuzz 60"),
];

/// Optional dependencies that are slow to build. The full run has them in all that it compiles.
const FULL_FEATURES: &str = "tegula/faer,tegula-bench/peers";

/// Runs the sections until one fails.
pub fn run(full: bool) -> Outcome {
    let sections = QUICK.iter().chain(if full { &FULL[..] } else { &[] });
    sections.into_iter().try_for_each(|(name, command)| section(name, command, full))
}

fn section(name: &str, command: &str, full: bool) -> Outcome {
    let command = if full { with_full_features(command) } else { command.into() };
    println!("== {name}: cargo {command}");
    let start = Instant::now();
    let mut cargo = Command::new("cargo");
    cargo.args(command.split(' ')).env("RUSTDOCFLAGS", "-D warnings");
    if full {
        cargo.env("TEGULA_FULL", "1");
    }
    passes(&mut cargo, &format!("{name} (cargo {command})"))?;
    println!("== {name}: passed in {:.0?}", start.elapsed());
    Ok(())
}

/// The command with [`FULL_FEATURES`], if it compiles the workspace.
fn with_full_features(command: &str) -> String {
    match command.split_once(' ') {
        Some((subcommand @ ("clippy" | "test" | "doc"), rest)) => {
            format!("{subcommand} --features {FULL_FEATURES} {rest}")
        }
        _ => command.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn section_whose_command_fails_is_an_error() {
        let failed = section("packages", "publish --workspace --dry-run --no-such-flag", true);
        let expected = "failed: packages (cargo publish --workspace --dry-run --no-such-flag)";
        assert_eq!(failed, Err(expected.into()));
    }

    #[test]
    fn full_features_are_those_of_commands_that_compile() {
        assert_eq!(with_full_features("test --workspace"), format!("test --features {FULL_FEATURES} --workspace"));
        assert_eq!(with_full_features("xtask words"), "xtask words");
    }
}
