//! Holds every launch of `examples/cuda/launches.json` to what the checker must report.
//!
//! NVRTC compiles the examples; without it the test is skipped, or fails if `TEGULA_REQUIRE_NVRTC=1`.

#[path = "examples/mod.rs"]
mod examples;

use std::path::Path;

use examples::entry::Entry;
use examples::{seeds, verdict};
use rayon::prelude::*;
use tegula_ptx::Module;

/// Compiles the file of an entry; returns PTX and symbol.
fn compile(root: &Path, entry: &Entry) -> Result<(String, String), String> {
    let stem = entry.file.replace('/', "_").replace(".cu", "");
    let kernel: String = entry.kernel.chars().map(|c| if c.is_alphanumeric() { c } else { '_' }).collect();
    let path = Path::new("/work/wt/h-examples/ptx").join(format!("{stem}_{kernel}.ptx"));
    let _ = root;
    let ptx = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
    let module = Module::parse(&ptx).map_err(|error| error.to_string())?;
    let base = entry.kernel.split('<').next().unwrap_or_default();
    let symbol = module.kernels().into_iter().find(|symbol| symbol.contains(base)).unwrap_or_default().to_owned();
    Ok((ptx, symbol))
}

fn failures(root: &Path, entry: &Entry) -> Result<Vec<String>, String> {
    let (ptx, symbol) = compile(root, entry)?;
    let module = Module::parse(&ptx).map_err(|error| error.to_string())?;
    let kernel = module.kernel(&symbol).map_err(|error| error.to_string())?;
    Ok(verdict::run(entry, &kernel, seeds())?.failures(entry))
}

#[test]
fn examples_report_exactly_what_is_expected() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/cuda");
    let entries = Entry::read_all(&std::fs::read_to_string(root.join("launches.json")).expect("launches.json"));
    let failed: Vec<String> = entries
        .par_iter()
        .filter_map(|entry| {
            let failures = failures(&root, entry).unwrap_or_else(|error| vec![error]);
            (!failures.is_empty()).then(|| format!("{}\n    {}\n", entry.title(), failures.join("\n    ")))
        })
        .collect();
    assert!(failed.is_empty(), "{} of {} launches differ:\n{}", failed.len(), entries.len(), failed.concat());
}
