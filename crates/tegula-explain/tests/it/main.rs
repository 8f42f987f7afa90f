//! Integration tests: traces, counts, timelines, guide and server.

mod assembled;
mod devices;
mod guide;
mod launch;
mod memory_state;
mod pipeline;
mod serve;
mod tiles;
mod trace;

/// Whether the full run is requested (`TEGULA_FULL=1`).
fn full() -> bool {
    std::env::var("TEGULA_FULL").is_ok_and(|full| full == "1")
}
