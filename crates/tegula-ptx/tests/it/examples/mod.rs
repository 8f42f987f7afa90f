//! Launches of kernels that are written down in JSON, with what the checker must report.

use std::path::Path;

use tegula_ptx::cuda::{self, CompileError, CompileOptions};

pub mod entry;
pub mod formula;
pub mod verdict;

/// Seeds of a launch: 4, or 64 with `TEGULA_FULL=1`.
pub fn seeds() -> u64 {
    if std::env::var_os("TEGULA_FULL").is_some_and(|value| value == "1") { 64 } else { 4 }
}

/// Whether CUDA C++ can be compiled; if not, says so, and fails if `TEGULA_REQUIRE_NVRTC=1`.
pub fn has_compiler() -> bool {
    let probe = "__global__ void probe() {}";
    match cuda::compile(Path::new("probe.cu"), probe, &CompileOptions::default()) {
        Err(CompileError::NoCompiler) => {
            let required = std::env::var_os("TEGULA_REQUIRE_NVRTC").is_some_and(|value| value == "1");
            assert!(!required, "{}", CompileError::NoCompiler);
            println!("skipped: {}", CompileError::NoCompiler);
            false
        }
        Err(error) => panic!("{error}"),
        Ok(_) => true,
    }
}
