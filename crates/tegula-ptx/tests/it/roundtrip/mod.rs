//! Tegula's kernels, printed as PTX and read back: the same outputs to the bit, the same findings
//! and the same counters as in the interpreter of kernels.
//!
//! `TEGULA_FULL=1` runs all kernels and shapes; a quick selection runs by default.

mod bugs;
mod engines;
mod helpers;
mod memory;
mod mutations;
mod products;

/// Whether the full run is requested.
pub fn full() -> bool {
    std::env::var("TEGULA_FULL").is_ok_and(|full| full == "1")
}
