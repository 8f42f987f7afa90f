//! Runs the CPU tests and a product of files for aarch64: `cargo xtask aarch64`.
//!
//! QEMU runs the programs on any host, linked by Debian's cross linker. The task is skipped if one
//! of them or the target's standard library is missing, unless `TEGULA_REQUIRE_AARCH64` is 1.

use std::process::Command;

use crate::memory::{is_available, skip};
use crate::platforms::is_installed;
use crate::{Outcome, passes};

const TARGET: &str = "aarch64-unknown-linux-gnu";
const LINKER: &str = "aarch64-linux-gnu-gcc";
const EMULATOR: &str = "qemu-aarch64-static";

/// Random products per type: the emulator is some twenty times slower.
const CASES: &str = "25";

/// Runs both.
pub fn run() -> Outcome {
    let available =
        is_installed(TARGET) && [LINKER, EMULATOR].iter().all(|tool| is_available(Command::new(tool).arg("--version")));
    if !available {
        let how = format!("rustup target add {TARGET}; apt-get install gcc-aarch64-linux-gnu qemu-user-static");
        return skip("aarch64", "TEGULA_REQUIRE_AARCH64", &how);
    }
    let mut test = cargo("test");
    // Tests of sizes that take hours, and tests that load other libraries, are skipped.
    test.args(["--package", "tegula-cpu", "--package", "tegula-core", "--lib"])
        .args(["--", "--skip", "sizes_beyond_one_block"])
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
