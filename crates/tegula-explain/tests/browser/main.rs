//! The page in a real browser: Chromium without a window.
//!
//! Where there is none, the tests say so and pass; TEGULA_REQUIRE_BROWSER=1 makes that a failure. TEGULA_SCREENSHOTS=FOLDER keeps a picture
//! of every view.

mod chromium;
mod looks;
mod served;
mod works;
