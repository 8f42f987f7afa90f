//! Holds every launch of `examples/cuda/launches.json` to what the checker must report.
//!
//! NVRTC compiles the examples; without it the test is skipped, or fails if
//! `TEGULA_REQUIRE_NVRTC=1`.

use std::path::Path;

use crate::examples::entry::Entry;
use crate::examples::{self, seeds, verdict};
use rayon::prelude::*;
use tegula_ptx::cuda::{self, CompileOptions};
use tegula_ptx::{Kernel, Module};

/// Compiles the file of an entry.
fn compile(root: &Path, entry: &Entry) -> Result<Kernel, String> {
    let path = root.join(&entry.file);
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let options = CompileOptions { kernel: Some(entry.kernel.clone()), ..CompileOptions::default() };
    let compiled = cuda::compile(&path, &text, &options).map_err(|error| error.to_string())?;
    let source = cuda::choose(&path, &compiled.kernels, Some(&entry.kernel)).map_err(|error| error.to_string())?;
    let names = entry.args.iter().filter_map(|arg| arg.split('=').next());
    if !source.params.iter().map(|param| param.name.as_str()).eq(names.take(source.params.len())) {
        return Err(format!("parameters are {:?}", source.params));
    }
    let module = Module::parse(&compiled.ptx).map_err(|error| error.to_string())?;
    module.kernel(source.symbol.as_deref().unwrap_or_default()).map_err(|error| error.to_string())
}

fn failures(root: &Path, entry: &Entry) -> Result<Vec<String>, String> {
    let kernel = compile(root, entry)?;
    Ok(verdict::run(entry, &kernel, seeds())?.failures(entry))
}

#[test]
fn examples_report_exactly_what_is_expected() {
    if !examples::has_compiler() {
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cuda");
    let text = std::fs::read_to_string(root.join("launches.json")).expect("launches.json");
    let entries: Vec<Entry> = serde_json::from_str(&text).expect("launches.json");
    let failed: Vec<String> = entries
        .par_iter()
        .filter_map(|entry| {
            let failures = failures(&root, entry).unwrap_or_else(|error| vec![error]);
            (!failures.is_empty()).then(|| format!("{}\n    {}\n", entry.title(), failures.join("\n    ")))
        })
        .collect();
    assert!(failed.is_empty(), "{} of {} launches differ:\n{}", failed.len(), entries.len(), failed.concat());
}
