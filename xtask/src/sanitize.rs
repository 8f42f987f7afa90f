//! Runs the CPU tests under LLVM's sanitizers: `cargo xtask sanitize`.
//!
//! The address sanitizer finds the errors that Valgrind finds, also in AVX-512 and AMX code. The
//! thread sanitizer finds data races between threads. Both are options of nightly Rust and rebuild
//! the standard library, which requires its source. The task is skipped without them, unless
//! `TEGULA_REQUIRE_SANITIZERS` is 1.

use std::env;
use std::process::{Command, Stdio};

use crate::{Outcome, passes, root};

/// Target for which the sanitizers are known to work.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Random products per type.
const CASES: &str = "25";

/// Runs both, if available.
pub fn run() -> Outcome {
    if !is_installed() {
        if env::var("TEGULA_REQUIRE_SANITIZERS").is_ok_and(|v| v == "1") {
            return Err("sanitizers not found: rustup toolchain install nightly --component rust-src".into());
        }
        println!("skipped: nightly toolchain with rust-src not found");
        return Ok(());
    }
    ["address", "thread"].into_iter().try_for_each(under)
}

/// Whether a nightly toolchain with the source of the standard library is installed.
fn is_installed() -> bool {
    let mut sysroot = Command::new("rustup");
    sysroot.args(["run", "nightly", "rustc", "--print", "sysroot"]).stderr(Stdio::null());
    let Ok(output) = sysroot.output() else { return false };
    let sysroot = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success() && std::path::Path::new(&sysroot).join("lib/rustlib/src/rust/library/std").exists()
}

fn under(sanitizer: &str) -> Outcome {
    println!("== {sanitizer} sanitizer");
    let mut test = Command::new("rustup");
    // Tests that load other libraries, and tests of sizes that take hours, are skipped.
    test.args(["run", "nightly", "cargo", "test", "-Zbuild-std", "--target", TARGET])
        .args(["--package", "tegula-cpu", "--package", "tegula-core", "--package", "tegula-bench", "--lib"])
        .args(["--", "--skip", "sizes_beyond_one_block", "--skip", "peer"])
        .env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"))
        .env("CARGO_TARGET_DIR", root().join("target/sanitize").join(sanitizer))
        .env("TSAN_OPTIONS", "halt_on_error=1")
        .env("TEGULA_CASES", CASES);
    passes(&mut test, &format!("the CPU product under the {sanitizer} sanitizer"))
}
