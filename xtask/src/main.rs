//! Chores of the repository: `cargo xtask ci | bless | assemble [PART OF A NAME] | layers | fuzz [SECONDS] | memory | sanitize | cuda FOLDER`.

mod assemble;
mod ci;
mod cuda;
mod fuzz;
mod layers;
mod memory;
mod sanitize;
mod variants;

/// Products for kernels in CUDA C++, from there as well.
#[path = "../../crates/tegula/tests/it/cases.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod cases;
/// The kernels whose text is kept, from the library's own tests.
#[path = "../../crates/tegula/tests/it/kernels.rs"]
mod kernels;
#[path = "../../crates/tegula/tests/it/product.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod product;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

/// What a chore comes to: nothing, or why it failed.
type Outcome = Result<(), String>;

fn main() -> ExitCode {
    let chore = std::env::args().nth(1).unwrap_or_default();
    let outcome = match chore.as_str() {
        "ci" => ci::run(),
        "bless" => bless(),
        "assemble" => assemble::run(std::env::args().nth(2).as_deref()),
        "layers" => layers::run(),
        "fuzz" => fuzz::run(std::env::args().nth(2).as_deref()),
        "memory" => memory::run(),
        "sanitize" => sanitize::run(),
        "cuda" => cuda::run(std::env::args_os().nth(2).as_deref()),
        _ => Err("usage: cargo xtask ci | bless | assemble [PART OF A NAME] | layers | fuzz [SECONDS] | memory | sanitize | cuda FOLDER".into()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("{why}");
            ExitCode::FAILURE
        }
    }
}

/// The repository's root.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().map(Path::to_path_buf).unwrap_or_default()
}

/// Rewrites the kept texts: of kernels, and of what the command line prints.
fn bless() -> Outcome {
    bless_kernels()?;
    ["--package tegula-cli --test snapshots", "--package tegula-explain --test it guide"].iter().try_for_each(|tests| {
        let mut test = Command::new("cargo");
        test.arg("test").args(tests.split(' ')).env("TEGULA_BLESS", "1").current_dir(root());
        let status = test.status().map_err(|why| format!("cargo: {why}"))?;
        if status.success() { Ok(()) } else { Err(format!("what 'cargo test {tests}' keeps could not be rewritten")) }
    })
}

fn bless_kernels() -> Outcome {
    let folder = root().join("crates/tegula/tests/golden");
    let failed = |why: std::io::Error| format!("{}: {why}", folder.display());
    if folder.exists() {
        fs::remove_dir_all(&folder).map_err(failed)?;
    }
    fs::create_dir_all(&folder).map_err(failed)?;
    for (name, kernel) in kernels::kept() {
        if kernels::KEPT_AS_CUDA.contains(&name.as_str()) {
            let source = variants::print_cuda(kernel.clone())?;
            fs::write(folder.join(&name).with_extension("cu"), source.text).map_err(failed)?;
        }
        let image = variants::print(kernel)?;
        fs::write(folder.join(name).with_extension("ptx"), image.text).map_err(failed)?;
    }
    Ok(())
}
