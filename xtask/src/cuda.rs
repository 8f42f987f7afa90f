//! Writes a folder that checks the kernels in CUDA C++ on a machine with a GPU and nvcc, which needs nothing else: their texts, inputs, the
//! bits that the interpreter says must come out, and `driver.cu`, whose first lines say how to compile and run it.

use std::ffi::OsStr;
use std::path::Path;

use crate::{Outcome, cases};

/// Writes the folder.
pub fn run(folder: Option<&OsStr>) -> Outcome {
    let Some(folder) = folder.map(Path::new) else { return Err("usage: cargo xtask cuda FOLDER".into()) };
    let products = cases::large();
    cases::write(folder, &products).map_err(|e| format!("{}: {e}", folder.display()))?;
    println!(
        "{} products; where there is a GPU: cd {} && nvcc -std=c++17 -arch=native driver.cu -o run && ./run",
        products.len(),
        folder.display()
    );
    Ok(())
}
