//! Packs and compiles all crates as crates.io would get them: `cargo xtask packages`.
//!
//! Cargo takes a package for the same as an earlier one of that version in the same target folder,
//! whatever its content. So each commit has a folder of its own.

use std::process::Command;

use crate::{Outcome, passes, root};

/// Packs and compiles.
pub fn run() -> Outcome {
    let mut head = Command::new("git");
    let output = head.args(["rev-parse", "HEAD"]).current_dir(root()).output().map_err(|e| format!("git: {e}"))?;
    let commit = String::from_utf8_lossy(&output.stdout).trim().to_owned();
    if !output.status.success() || commit.is_empty() {
        return Err("git: no commit to pack".into());
    }
    let folder = root().join("target/packages").join(commit);
    let mut publish = Command::new("cargo");
    publish.args(["publish", "--workspace", "--dry-run", "--target-dir"]).arg(&folder);
    passes(&mut publish, "the packages")?;
    std::fs::remove_dir_all(&folder).map_err(|error| format!("{}: {error}", folder.display()))
}
