//! Launches of kernels that are written down in JSON, with what the checker must report.

pub mod entry;
pub mod formula;
pub mod verdict;

/// Seeds of a launch: 4, or 64 with `TEGULA_FULL=1`.
pub fn seeds() -> u64 {
    if std::env::var_os("TEGULA_FULL").is_some_and(|value| value == "1") { 64 } else { 4 }
}
