//! Runs the CPU's tests under LLVM's sanitizers: `cargo xtask sanitize`.
//!
//! The address sanitizer sees what Valgrind does, and AVX-512 and AMX as well; the thread sanitizer sees races between the threads of a product. Both are
//! options of nightly Rust; the standard library is built again with them, which needs its source. Where they are missing this is skipped, unless
//! `TEGULA_REQUIRE_SANITIZERS` is 1.

use std::env;
use std::process::{Command, Stdio};

use crate::{Outcome, passes, root};

/// Where the sanitizers are known to work.
const TARGET: &str = "x86_64-unknown-linux-gnu";

/// Random products of each type.
const CASES: &str = "25";

/// Runs both, if they are there.
pub fn run() -> Outcome {
    if !is_there() {
        if env::var("TEGULA_REQUIRE_SANITIZERS").is_ok_and(|v| v == "1") {
            return Err("no sanitizers: rustup toolchain install nightly --component rust-src".into());
        }
        println!("skipped: no nightly toolchain with rust-src");
        return Ok(());
    }
    ["address", "thread"].into_iter().try_for_each(under)
}

/// Whether there is a nightly toolchain with the source of the standard library.
fn is_there() -> bool {
    let mut sysroot = Command::new("rustup");
    sysroot.args(["run", "nightly", "rustc", "--print", "sysroot"]).stderr(Stdio::null());
    let Ok(output) = sysroot.output() else { return false };
    let sysroot = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    output.status.success() && std::path::Path::new(&sysroot).join("lib/rustlib/src/rust/library/std").exists()
}

fn under(sanitizer: &str) -> Outcome {
    println!("== {sanitizer} sanitizer");
    let mut test = Command::new("rustup");
    // What is left out loads other libraries, or is of sizes that take hours.
    test.args(["run", "nightly", "cargo", "test", "-Zbuild-std", "--target", TARGET])
        .args(["--package", "tegula-cpu", "--package", "tegula-core", "--package", "tegula-bench", "--lib"])
        .args(["--", "--skip", "sizes_past_every_block", "--skip", "peer"])
        .env("RUSTFLAGS", format!("-Zsanitizer={sanitizer}"))
        .env("CARGO_TARGET_DIR", root().join("target/sanitize").join(sanitizer))
        .env("TSAN_OPTIONS", "halt_on_error=1")
        .env("TEGULA_CASES", CASES);
    passes(&mut test, &format!("the CPU product under the {sanitizer} sanitizer"))
}
