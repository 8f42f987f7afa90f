//! Checks kernels of published packages, which `fetch_foreign.py` fetches: `foreign.json` lists
//! them.
//!
//! Runs only if `TEGULA_FOREIGN` names the folder of the fetched files.

#[path = "it/examples/mod.rs"]
mod examples;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use examples::entry::Entry;
use examples::{seeds, verdict};
use rayon::prelude::*;
use serde::Deserialize;
use tegula_ptx::cuda::{self, CompileOptions};
use tegula_ptx::{Kernel, Module};

/// A kernel of a package.
#[derive(Debug, Deserialize)]
struct Foreign {
    #[serde(flatten)]
    entry: Entry,
    package: String,
    version: String,
    /// Options of the compiler: `-D…`.
    #[serde(default)]
    options: Vec<String>,
}

/// What `fetch_foreign.py` says of a kernel.
#[derive(Debug, Deserialize)]
struct Fetched {
    file: Option<String>,
    #[serde(default)]
    includes: Vec<PathBuf>,
    error: Option<String>,
}

/// What happened to a kernel.
enum Report {
    /// Not fetched, compiled, lowered or launched, and why.
    Fails(String),
    /// Ran; what was reported.
    Ran(Vec<String>, Vec<String>),
}

impl Foreign {
    fn kernel(&self, folder: &Path, fetched: &Fetched) -> Result<Kernel, String> {
        let Some(file) = &fetched.file else { return Err(fetched.error.clone().unwrap_or_default()) };
        let path = folder.join(file);
        let text = std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))?;
        if file.ends_with(".ptx") {
            let module = Module::parse(&text).map_err(|error| error.to_string())?;
            // Numba's names are mangled.
            let named = |symbol: &&str| *symbol == self.entry.kernel || symbol.contains(&self.entry.kernel);
            let symbol = module.kernels().into_iter().find(named).unwrap_or(&self.entry.kernel).to_owned();
            return module.kernel(&symbol).map_err(|error| error.to_string());
        }
        let options = CompileOptions {
            kernel: Some(self.entry.kernel.clone()),
            includes: fetched.includes.iter().map(|include| folder.join(include)).collect(),
            defines: self.options.iter().filter_map(|option| option.strip_prefix("-D")).map(String::from).collect(),
            ..CompileOptions::default()
        };
        let compiled = cuda::compile(&path, &text, &options).map_err(|error| error.to_string())?;
        let kernel =
            cuda::choose(&path, &compiled.kernels, Some(&self.entry.kernel)).map_err(|error| error.to_string())?;
        let module = Module::parse(&compiled.ptx).map_err(|error| error.to_string())?;
        module.kernel(kernel.symbol.as_deref().unwrap_or_default()).map_err(|error| error.to_string())
    }

    fn run(&self, folder: &Path, fetched: &Fetched) -> Report {
        let verdict = self.kernel(folder, fetched).and_then(|kernel| verdict::run(&self.entry, &kernel, seeds()));
        match verdict {
            Err(error) => Report::Fails(error),
            Ok(verdict) => {
                let reported = verdict.observed(&self.entry.file).into_iter();
                let reported = reported.map(|observed| format!("{}: {}", observed.kind, observed.text)).collect();
                Report::Ran(reported, verdict.failures(&self.entry))
            }
        }
    }
}

#[test]
fn foreign_kernels_run_and_report_what_is_expected() {
    let Some(folder) = std::env::var_os("TEGULA_FOREIGN").map(PathBuf::from) else {
        println!("skipped: set TEGULA_FOREIGN to a folder made by tests/fetch_foreign.py");
        return;
    };
    if !examples::has_compiler() {
        return;
    }
    let kernels: Vec<Foreign> = serde_json::from_str(include_str!("foreign.json")).expect("foreign.json");
    let status = std::fs::read_to_string(folder.join("status.json")).expect("status.json");
    let status: BTreeMap<String, Fetched> = serde_json::from_str(&status).expect("status.json");
    let ran: Vec<(&Foreign, Report)> = kernels
        .par_iter()
        .filter_map(|kernel| Some((kernel, kernel.run(&folder, status.get(&kernel.entry.file)?))))
        .collect();
    let mut wrong = Vec::new();
    let mut count = 0;
    for (kernel, result) in &ran {
        let name = format!("{} {}: {}", kernel.package, kernel.version, kernel.entry.title());
        match result {
            Report::Fails(reason) => println!("{name}: cannot run: {}", reason.lines().next().unwrap_or_default()),
            Report::Ran(reported, failures) => {
                count += 1;
                println!("{name}: {}", if reported.is_empty() { "clean".into() } else { reported.join("\n    ") });
                wrong.extend(failures.iter().map(|failure| format!("{name}: {failure}\n")));
            }
        }
    }
    println!("{count} of {} run", ran.len());
    assert!(wrong.is_empty(), "reports differ:\n{}", wrong.concat());
}
