//! How much the tests try: by default what a change is held to each time, and everything where `TEGULA_FULL` is 1.

/// Whether everything is asked for.
pub fn full() -> bool {
    std::env::var("TEGULA_FULL").is_ok_and(|full| full == "1")
}

/// The seeds of schedules that a kernel runs with: the first number of them by default, the second in the full run.
pub fn seeds(quick: u64, everything: u64) -> u64 {
    if full() { everything } else { quick }
}

/// The first of a list by default, the whole list in the full run.
pub fn some<T>(all: &[T]) -> &[T] {
    if full() { all } else { &all[..1] }
}

/// Whether a test of the full run goes on; it says so if not.
pub fn is_asked() -> bool {
    if !full() {
        println!("skipped: only where TEGULA_FULL is 1");
    }
    full()
}

/// Whether kept texts are rewritten, as `cargo xtask bless` asks.
pub fn bless() -> bool {
    std::env::var("TEGULA_BLESS").is_ok_and(|bless| bless == "1")
}
