//! Tests of the page in headless Chromium.
//!
//! Without Chromium the tests are skipped; `TEGULA_REQUIRE_BROWSER=1` makes that a failure.
//! `TEGULA_SCREENSHOTS=FOLDER` writes a screenshot of every view.

mod chromium;
mod looks;
mod served;
mod works;

/// Whether the full run is requested (`TEGULA_FULL=1`).
fn full() -> bool {
    std::env::var("TEGULA_FULL").is_ok_and(|full| full == "1")
}
