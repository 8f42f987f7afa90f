//! All that must hold before a change is taken: sections in order, each a command as a person would type it.

use std::process::Command;
use std::time::Instant;

use crate::{Outcome, root};

/// The sections by name, with their commands. `CONVERSIONS` are the library's features that nothing else turns on.
const SECTIONS: [(&str, &str); 8] = [
    ("format", "fmt --all --check"),
    ("layers", "xtask layers"),
    ("lints", "clippy --workspace --all-targets CONVERSIONS -- -D warnings"),
    ("tests", "test --workspace CONVERSIONS"),
    ("documentation", "doc --workspace --no-deps --lib CONVERSIONS"),
    ("assembly", "xtask assemble"),
    ("memory", "xtask memory"),
    ("fuzz", "xtask fuzz 60"),
];

const CONVERSIONS: &str = "--features tegula/ndarray,tegula/ndarray-016,tegula/faer,tegula/peers";

/// Runs the sections up to the first that fails.
pub fn run() -> Outcome {
    SECTIONS.iter().try_for_each(|(name, command)| section(name, &command.replace("CONVERSIONS", CONVERSIONS)))?;
    let long = std::env::var("TEGULA_SANITIZE").is_ok_and(|v| v == "1");
    if long { section("sanitizers", "xtask sanitize") } else { Ok(()) }
}

fn section(name: &str, command: &str) -> Outcome {
    println!("== {name}: cargo {command}");
    let start = Instant::now();
    let status = Command::new("cargo")
        .args(command.split(' '))
        .env("RUSTDOCFLAGS", "-D warnings")
        .current_dir(root())
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    if !status.success() {
        return Err(format!("failed: {name} (cargo {command})"));
    }
    println!("== {name}: passed in {:.0?}", start.elapsed());
    Ok(())
}
