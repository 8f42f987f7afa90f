//! Runs the model of the hand-off between the threads of a CPU product: `cargo xtask loom`.
//!
//! Loom tries the interleavings of some threads, up to three preemptions. It is a dependency of the
//! tests with `--cfg tegula_loom` only.

use std::process::{Command, Stdio};

use crate::{Outcome, root};

/// Tests of the model.
const TESTS: &str = "3 passed";

/// Runs the model.
pub fn run() -> Outcome {
    let mut test = Command::new("cargo");
    test.args(["test", "--package", "tegula-cpu", "--lib", "hand_off_model"])
        .env_remove("CARGO_ENCODED_RUSTFLAGS")
        .env("RUSTFLAGS", "--cfg tegula_loom")
        .env("CARGO_TARGET_DIR", root().join("target/loom"))
        .current_dir(root())
        .stderr(Stdio::inherit());
    let output = test.output().map_err(|error| format!("cargo: {error}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    println!("{text}");
    // A filter that matches no test passes as well.
    match output.status.success() && text.contains(TESTS) {
        true => Ok(()),
        false => Err(format!("failed: the model of the hand-off; expected {TESTS}")),
    }
}
