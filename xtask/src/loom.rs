//! Runs the model of the hand-off between the threads of a CPU product: `cargo xtask loom`.
//!
//! Loom tries all interleavings of some threads, up to three preemptions. It is a dependency of the
//! tests with `--cfg tegula_loom` only.

use std::process::Command;

use crate::{Outcome, passes, root};

/// Runs the model.
pub fn run() -> Outcome {
    let mut test = Command::new("cargo");
    test.args(["test", "--package", "tegula-cpu", "--lib", "hand_off_model"])
        .env("RUSTFLAGS", "--cfg tegula_loom")
        .env("CARGO_TARGET_DIR", root().join("target/loom"));
    passes(&mut test, "the model of the hand-off")
}
