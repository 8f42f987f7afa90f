//! Properties of Tegula for arbitrary bytes, and inputs to check them.
//!
//! The properties are: no panic, no memory beyond the limit, error messages of one line, and those
//! that each target checks. `cargo xtask fuzz` runs libFuzzer, guided by code coverage; `cargo
//! test` runs the inputs in `corpus/`.
//!
//! Inputs of fixed bugs are kept in `corpus/` under descriptive names. The others were written by
//! hand or, if the name is part of a hash, found by libFuzzer: they cover much of the code with few
//! bytes. `dictionaries/` has tokens that are hard to find.
#![deny(unsafe_code)]

mod broadcast;
mod files;
mod gemm;
mod ptx;
mod text;

pub use broadcast::broadcast;
pub use files::{array_path, npy, npz, safetensors};
pub use gemm::gemm;
use peak_alloc::PeakAlloc;
pub use ptx::ptx;
pub use text::{csv, mtx};

/// Function that checks an input.
pub type Target = fn(&[u8]);

/// All targets by the name of their binary and corpus.
pub const TARGETS: [(&str, Target); 9] = [
    ("array_path", array_path),
    ("broadcast", broadcast),
    ("csv", csv),
    ("gemm", gemm),
    ("mtx", mtx),
    ("npy", npy),
    ("npz", npz),
    ("ptx", ptx),
    ("safetensors", safetensors),
];

/// Memory limit of readers for an array, in bytes.
const MEMORY_LIMIT: u64 = 1 << 20;

/// Limit of all allocations in bytes.
///
/// Readers do not count buffers of fixed size and the vector for a smaller type.
const TOTAL_LIMIT: usize = 8 << 20;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Runs `work` and checks that its allocations stay below [`TOTAL_LIMIT`].
fn bounded<R>(work: impl FnOnce() -> R) -> R {
    // Start the threads before measuring.
    tegula_core::threads::count();
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let result = work();
    let taken = MEMORY.peak_usage().saturating_sub(before);
    assert!(taken <= TOTAL_LIMIT, "{taken} bytes were allocated at once");
    result
}

/// Checks that an error message is short and on one line.
fn check_error_message(message: &str) {
    assert!(!message.is_empty() && message.len() < 2000 && !message.contains(char::is_control), "{message:?}");
}
