//! Runs the CPU's tests, and a product of files, for aarch64: `cargo xtask aarch64`.
//!
//! QEMU runs the programs on any machine, and Debian's cross linker links them. Where one of them or the target's standard
//! library is missing this is skipped, unless `TEGULA_REQUIRE_AARCH64` is 1.

use std::process::Command;

use crate::memory::{answers, skip};
use crate::platforms::is_installed;
use crate::{Outcome, passes};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64-static";

/// Random products of each type: the emulator makes them some twenty times slower.
const CASES: &str = "25";

/// Runs both.
pub fn run() -> Outcome {
    let there =
        is_installed(TARGET) && [LINKER, EMULATOR].iter().all(|tool| answers(Command::new(tool).arg("--version")));
    if !there {
        let how = format!("rustup target add {TARGET}; apt-get install gcc-aarch64-linux-gnu qemu-user-static");
        return skip("aarch64", "TEGULA_REQUIRE_AARCH64", &how);
    }
    let mut test = cargo("test");
    // What is left out is of sizes that take hours, or loads other libraries.
    test.args(["--package", "tegula-cpu", "--package", "tegula-core", "--lib"])
        .args(["--", "--skip", "sizes_past_every_block"])
        .env("TEGULA_CASES", CASES);
    passes(&mut test, "the CPU product on aarch64")?;
    let mut mul = cargo("run");
    mul.args(["--package", "tegula-cli", "--", "mul"]).args([
        "examples/digits.npy",
        "examples/digits.npy",
        "--tb",
        "--verify",
        "--device",
        "cpu",
    ]);
    passes(&mut mul, "mul on aarch64")
}

fn cargo(command: &str) -> Command {
    let mut cargo = Command::new("cargo");
    cargo
        .args([command, "--target", TARGET])
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER", LINKER)
        .env("CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER", format!("{EMULATOR} -L /usr/aarch64-linux-gnu"));
    cargo
}
