//! Tasks that are tests of the library.
//!
//! They build the same way as `cargo test --workspace`, so nothing is built twice.

use std::path::absolute;
use std::process::Command;

use crate::{Outcome, passes};

/// Rewrites expected outputs of kernels, the command line and the guide, and ptxas reports.
pub fn bless() -> Outcome {
    let library = ["--test", "it", "--", "--include-ignored", "golden::", "kernels_assemble"];
    let command_line = ["--test", "snapshots"];
    let pictures = ["--test", "it", "--", "guide", "readme_picture"];
    [&library[..], &command_line, &pictures].into_iter().try_for_each(|tests| {
        passes(
            test().args(tests).envs([("TEGULA_BLESS", "1"), ("TEGULA_REQUIRE_PTXAS", "1")]),
            &format!("tests {}", tests.join(" ")),
        )
    })
}

/// Assembles all kernels, or those with `part` in their names.
pub fn assemble(part: &str) -> Outcome {
    let mut command = test();
    command.args(["--test", "it", "--", "--include-ignored", "assemble::"]);
    command.envs([("TEGULA_FULL", "1"), ("TEGULA_REQUIRE_PTXAS", "1"), ("TEGULA_ASSEMBLE", part)]);
    passes(&mut command, "assembly")
}

/// Writes a directory with the kernels in CUDA C++.
pub fn cuda(folder: &str) -> Outcome {
    let folder = absolute(folder).map_err(|e| format!("{folder}: {e}"))?;
    let mut command = test();
    command.args(["--test", "it", "--", "folder_for_nvcc"]).env("TEGULA_CUDA_FOLDER", &folder);
    passes(&mut command, "cuda")?;
    println!(
        "on a machine with a GPU: cd {} && nvcc -std=c++17 -arch=native driver.cu -o run && ./run",
        folder.display()
    );
    Ok(())
}

fn test() -> Command {
    let mut command = Command::new("cargo");
    command.args(["test", "--workspace"]);
    command
}
