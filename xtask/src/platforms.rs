//! Checks that the crates compile for other platforms: `cargo xtask platforms`.
//!
//! `rustup target add` installs the standard library of a target. Targets without it are skipped,
//! unless `TEGULA_REQUIRE_TARGETS` is 1.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::{Outcome, passes};

const WORKSPACE: &str = "--workspace";
/// Crates of a browser page, and the library without GPUs.
const BROWSER: &str =
    "-p tegula-ir -p tegula-interp -p tegula-ptx -p tegula-kernels -p tegula-explain -p tegula --no-default-features";

/// Targets, and the crates that are checked for each.
const TARGETS: [(&str, &str); 4] = [
    ("aarch64-unknown-linux-gnu", WORKSPACE),
    ("aarch64-apple-darwin", WORKSPACE),
    ("x86_64-pc-windows-gnu", WORKSPACE),
    ("wasm32-unknown-unknown", BROWSER),
];

/// Checks all targets.
pub fn run() -> Outcome {
    let required = env::var("TEGULA_REQUIRE_TARGETS").is_ok_and(|v| v == "1");
    for (target, crates) in TARGETS {
        if !is_installed(target) {
            if required {
                return Err(format!("standard library for {target} not found: rustup target add {target}"));
            }
            println!("skipped: standard library for {target} not found");
            continue;
        }
        let mut check = Command::new("cargo");
        check.args(["check", "--target", target]).args(crates.split(' '));
        passes(&mut check, &format!("the check for {target}"))?;
    }
    Ok(())
}

/// Whether the target's standard library is installed.
pub fn is_installed(target: &str) -> bool {
    let folder = Command::new("rustc").args(["--print", "target-libdir", "--target", target]).output();
    folder.is_ok_and(|output| Path::new(String::from_utf8_lossy(&output.stdout).trim()).exists())
}
