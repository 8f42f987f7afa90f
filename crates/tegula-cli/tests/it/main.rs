//! The program `tegula`, run as a user runs it. `snapshots.rs` beside this folder keeps its output.

mod bench;
mod check;
mod check_file;
mod cli;
mod driver;
mod explain;
mod explain_file;
mod numpy;
mod output;
mod terminal;
mod tune;

/// Whether the full run is requested (`TEGULA_FULL=1`).
fn full() -> bool {
    std::env::var("TEGULA_FULL").is_ok_and(|full| full == "1")
}
