//! Extent of the tests: a quick selection by default, everything if `TEGULA_FULL` is 1.

/// Whether the full run is requested.
pub fn full() -> bool {
    std::env::var("TEGULA_FULL").is_ok_and(|full| full == "1")
}

/// Number of schedule seeds of a kernel: `quick` by default, `all_seeds` in the full run.
pub fn seeds(quick: u64, all_seeds: u64) -> u64 {
    if full() { all_seeds } else { quick }
}

/// The first item of a list by default, the whole list in the full run.
pub fn some<T>(all: &[T]) -> &[T] {
    if full() { all } else { &all[..1] }
}

/// Whether a test of the full run should run; prints that it is skipped otherwise.
pub fn is_full_run() -> bool {
    if !full() {
        println!("skipped: runs only if TEGULA_FULL is 1");
    }
    full()
}

/// Whether golden files are rewritten, as by `cargo xtask bless`.
pub fn bless() -> bool {
    std::env::var("TEGULA_BLESS").is_ok_and(|bless| bless == "1")
}
