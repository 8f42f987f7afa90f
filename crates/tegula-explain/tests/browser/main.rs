//! The page in a real browser: Chromium without a window.
//!
//! Where there is none, the tests say so and pass; TEGULA_REQUIRE_BROWSER=1 makes that a failure. TEGULA_SCREENSHOTS=FOLDER keeps a picture
//! of every view.

mod chromium;
mod looks;
mod served;
mod works;

/// Whether everything is asked for, and not only what each change is held to.
fn full() -> bool {
    std::env::var("TEGULA_FULL").is_ok_and(|full| full == "1")
}
