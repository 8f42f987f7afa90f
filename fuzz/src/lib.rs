//! What must hold for whatever bytes Tegula is given: no panic, no memory beyond what was granted, refusals of one line, and the
//! properties that each target checks.
//!
//! `cargo xtask fuzz` lets libFuzzer search for bytes that break them, guided by what code they reach; `cargo test` runs what is
//! kept in `corpus/`. A finding that was repaired goes there under a name that says what it was. The rest of `corpus/` was made
//! by hand or, where a name is part of a hash, by libFuzzer: it reaches much of the code with few bytes. `words/` has what is
//! hard to guess.
#![deny(unsafe_code)]

mod broadcast;
mod files;
mod gemm;
mod text;

pub use broadcast::broadcast;
pub use files::{npy, npz, place, safetensors};
pub use gemm::gemm;
use peak_alloc::PeakAlloc;
pub use text::{csv, mtx};

/// What is run on each input.
pub type Target = fn(&[u8]);

/// Every target by the name of its binary and its corpus.
pub const TARGETS: [(&str, Target); 8] = [
    ("broadcast", broadcast),
    ("csv", csv),
    ("gemm", gemm),
    ("mtx", mtx),
    ("npy", npy),
    ("npz", npz),
    ("place", place),
    ("safetensors", safetensors),
];

/// Bytes that readers may use for an array.
const ROOM: u64 = 1 << 20;

/// Bytes that they may use in all: what they do not count are buffers of fixed size and the vector that a smaller type is copied
/// to.
const LIMIT: usize = 8 << 20;

#[global_allocator]
static MEMORY: PeakAlloc = PeakAlloc;

/// Does some work and checks that it took no more memory than [`LIMIT`], used or not.
fn bounded<R>(work: impl FnOnce() -> R) -> R {
    // Threads are started once.
    tegula_core::threads::count();
    MEMORY.reset_peak_usage();
    let before = MEMORY.current_usage();
    let result = work();
    let taken = MEMORY.peak_usage().saturating_sub(before);
    assert!(taken <= LIMIT, "{taken} bytes were allocated at once");
    result
}

/// Checks that a refusal can be shown on one line.
fn check_refusal(why: &str) {
    assert!(!why.is_empty() && why.len() < 2000 && !why.contains(char::is_control), "{why:?}");
}
