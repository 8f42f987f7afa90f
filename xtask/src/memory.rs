//! Checks the CPU product for memory errors: `cargo xtask memory`.
//!
//! Miri interprets the portable kernels, packing and threads, and checks each memory access.
//! Valgrind also checks the AVX2 kernels, on larger products. Neither supports AVX-512, which the
//! guard pages of the library's tests cover. Without Miri, a component of nightly Rust, or
//! Valgrind, its half is skipped, unless `TEGULA_REQUIRE_MIRI` or `TEGULA_REQUIRE_VALGRIND` is 1.

use std::env;
use std::process::{Command, Stdio};

use crate::{Outcome, passes};

/// Flags for rayon, and three CPUs for more interleavings.
///
/// Rayon's threads never end, and its lists of threads are sound under tree borrows only.
const MIRI_FLAGS: &str = "-Zmiri-tree-borrows -Zmiri-permissive-provenance -Zmiri-ignore-leaks -Zmiri-num-cpus=3";

/// Random products per type: Valgrind is some forty times slower.
const CASES: &str = "25";

/// Runs both.
pub fn run() -> Outcome {
    miri()?;
    valgrind()
}

fn miri() -> Outcome {
    let cargo = || {
        let mut rustup = Command::new("rustup");
        rustup.args(["run", "nightly", "cargo", "miri"]);
        rustup
    };
    if !is_available(cargo().arg("--version")) {
        return skip("Miri", "TEGULA_REQUIRE_MIRI", "rustup toolchain install nightly --component miri,rust-src");
    }
    let mut test = cargo();
    // One test at a time: a caller that finds the thread pool busy uses a rayon scope, which Miri
    // rejects.
    test.args(["test", "--package", "tegula-cpu", "--package", "tegula-core", "--lib", "--", "--test-threads=1"])
        .args(["product_tests", "thread_pool", "shared_rows", "packed_b", "matrix::view"])
        .env("MIRIFLAGS", MIRI_FLAGS);
    passes(&mut test, "the CPU product under Miri")
}

fn valgrind() -> Outcome {
    if !is_available(Command::new("valgrind").arg("--version")) {
        return skip("Valgrind", "TEGULA_REQUIRE_VALGRIND", "apt-get install valgrind");
    }
    let mut test = Command::new("cargo");
    // Tests of sizes that take hours are skipped.
    test.args(["test", "--workspace", "--lib", "--", "--test-threads=1", "product_tests"])
        .args(["--skip", "sizes_beyond_one_block", "--skip", "fence", "--skip", "independent_of_the_number_of_threads"])
        // Which plans the cases cover depends on the caches, and Valgrind reports others.
        .args(["--skip", "cases_cover_every_blocking_plan"])
        .env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", "valgrind --quiet --error-exitcode=1")
        .env("TEGULA_CASES", CASES);
    passes(&mut test, "the CPU product under Valgrind")
}

/// Whether a program can be run.
pub fn is_available(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Reports a skipped part, or an error if it is required.
pub fn skip(name: &str, required_by: &str, how: &str) -> Outcome {
    if env::var(required_by).is_ok_and(|v| v == "1") {
        return Err(format!("{name} not found: {how}"));
    }
    println!("skipped: {name} not found");
    Ok(())
}
