//! Looks for wrong accesses to memory in the CPU product: `cargo xtask memory`.
//!
//! Miri interprets the portable kernels, the packing and the threads, and knows which memory each pointer may touch, and when; Valgrind watches
//! those of AVX2 too, on larger products. Neither knows AVX-512: there the guard pages of the library's tests say it. Where there is no Miri, which
//! is a component of nightly Rust, or no Valgrind, that half is skipped, unless `TEGULA_REQUIRE_MIRI` or `TEGULA_REQUIRE_VALGRIND` is 1.

use std::env;
use std::process::{Command, Stdio};

use crate::{Outcome, passes};

/// Rayon's threads never end, and its lists of them are sound only by the newer rules for pointers. Three processors make more orders of events than one.
const MIRI_FLAGS: &str = "-Zmiri-tree-borrows -Zmiri-permissive-provenance -Zmiri-ignore-leaks -Zmiri-num-cpus=3";

/// Random products of each type for Valgrind, which makes them some forty times slower.
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
    if !answers(cargo().arg("--version")) {
        return skip("Miri", "TEGULA_REQUIRE_MIRI", "rustup toolchain install nightly --component miri,rust-src");
    }
    let mut test = cargo();
    // One at a time: a caller that finds the crew at work takes a scope of rayon, which Miri rejects.
    test.args(["test", "--package", "tegula-cpu", "--package", "tegula-core", "--lib", "--", "--test-threads=1"])
        .args(["product_tests", "crew", "panels", "matrix::view"])
        .env("MIRIFLAGS", MIRI_FLAGS);
    passes(&mut test, "the CPU product under Miri")
}

fn valgrind() -> Outcome {
    if !answers(Command::new("valgrind").arg("--version")) {
        return skip("Valgrind", "TEGULA_REQUIRE_VALGRIND", "apt-get install valgrind");
    }
    let mut test = Command::new("cargo");
    // What is left out is of sizes that take hours.
    test.args(["test", "--workspace", "--lib", "--", "--test-threads=1", "product_tests"])
        .args(["--skip", "sizes_past_every_block", "--skip", "fence", "--skip", "the_number_of_threads"])
        .env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER", "valgrind --quiet --error-exitcode=1")
        .env("TEGULA_CASES", CASES);
    passes(&mut test, "the CPU product under Valgrind")
}

/// Whether a program is there.
pub fn answers(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

/// Says that a part is skipped, or why that is an error.
pub fn skip(name: &str, required_by: &str, how: &str) -> Outcome {
    if env::var(required_by).is_ok_and(|v| v == "1") {
        return Err(format!("no {name}: {how}"));
    }
    println!("skipped: no {name}");
    Ok(())
}
