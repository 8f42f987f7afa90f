//! What several tests use.

use std::path::PathBuf;

/// The example `convert`, which `cargo test` builds with the tests.
pub fn convert() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("examples/convert");
    assert!(path.exists(), "{} is not there; build it with the tests: cargo test -p tegula-files", path.display());
    path
}
