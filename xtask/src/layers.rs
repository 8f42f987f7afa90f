//! Layering rules: dependencies of crates, imports of modules, unsafe code, import cycles.
//!
//! The rules are tables; the sources are scanned against them.

mod cycles;
mod imports;

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Outcome, root};

/// Crates, bottom first, and the workspace crates that each may depend on, except for tests.
const CRATES: [(&str, &[&str]); 12] = [
    ("tegula-core", &[]),
    ("tegula-ir", &["tegula-core"]),
    ("tegula-interp", &["tegula-core", "tegula-ir"]),
    ("tegula-cuda-source", &[]),
    ("tegula-ptx", &["tegula-core", "tegula-cuda-source", "tegula-interp", "tegula-ir"]),
    ("tegula-kernels", &["tegula-core", "tegula-ir"]),
    ("tegula-cpu", &["tegula-core"]),
    ("tegula", &["tegula-core", "tegula-cpu", "tegula-interp", "tegula-ir", "tegula-kernels"]),
    ("tegula-bench", &["tegula", "tegula-core", "tegula-cpu", "tegula-ir", "tegula-kernels"]),
    ("tegula-files", &["tegula-core"]),
    ("tegula-explain", &["tegula-core", "tegula-interp", "tegula-ir", "tegula-kernels"]),
    (
        "tegula-cli",
        &[
            "tegula",
            "tegula-bench",
            "tegula-core",
            "tegula-cpu",
            "tegula-exercises",
            "tegula-explain",
            "tegula-files",
            "tegula-interp",
            "tegula-ir",
            "tegula-kernels",
            "tegula-ptx",
        ],
    ),
];

/// Forbidden imports: the module, the names, and submodules that are exempt.
const FORBIDDEN: [(&str, &[&str], &[&str]); 8] = [
    // Printers do not depend on each other.
    ("tegula-ir/ptx", &["cpp"], &[]),
    ("tegula-ir/cpp", &["ptx"], &[]),
    // Kernels do not depend on the planner; kernel families and the registry do.
    (
        "tegula-kernels",
        &["plan"],
        &["tegula-kernels/plan", "tegula-kernels/lib", "tegula-kernels/family", "tegula-kernels/registry"],
    ),
    // The driver layer does not depend on kernels; one file binds kernels to it.
    ("tegula/cuda", &["gemm", "tegula_kernels"], &["tegula/cuda/product"]),
    ("tegula/cache", &["gemm", "exec"], &[]),
    // Statistics do not depend on devices.
    ("tegula/tune/stats", &["cuda", "device", "gemm", "exec"], &[]),
    // The search ranks anything with a clock.
    ("tegula/tune/interleave", &["cuda", "device", "gemm", "exec"], &[]),
    ("tegula/tune/search", &["cuda", "device", "gemm", "exec"], &[]),
];

/// Files and directories that may contain unsafe code.
///
/// These are calls of the driver and of NVRTC, launches of foreign kernels, vectorized kernels,
/// host memory behind a view, views of other crates' matrices, and a handler of forks. A view is
/// not a slice: elements between its own may be borrowed elsewhere.
const UNSAFE: [&str; 13] = [
    "tegula/cuda",
    "tegula-bench/cublaslt",
    "tegula-bench/peer",
    "tegula/tune/graph_timer",
    "tegula-cpu",
    "tegula-core/convert",
    "tegula-core/fork",
    "tegula-core/lanes",
    "tegula-core/matrix/view",
    "tegula-cli/check_file/compare",
    "tegula-cli/output",
    "tegula-files/file_map",
    "tegula-cuda-source/nvrtc",
];

/// A source file without comments and tests.
struct Source {
    krate: &'static str,
    /// Path in the crate's `src`, without extension.
    path: String,
    code: String,
}

impl Source {
    fn name(&self) -> String {
        format!("{}/{}", self.krate, self.path)
    }
}

/// Checks all sources.
pub fn run() -> Outcome {
    let mut violations = Vec::new();
    for (krate, may) in CRATES {
        let folder = root().join("crates").join(krate);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).map_err(|e| format!("{krate}: {e}"))?;
        violations.extend(
            dependencies(&manifest)
                .filter(|name| !may.contains(&name.as_str()))
                .map(|name| format!("{krate} must not depend on {name}")),
        );
        let sources = sources(krate, &folder.join("src"))?;
        violations.extend(sources.iter().flat_map(check));
        violations
            .extend(cycles::find(&sources).iter().map(|files| format!("{krate}: import cycle: {}", files.join(", "))));
    }
    if violations.is_empty() { Ok(()) } else { Err(violations.join("\n")) }
}

/// Workspace crates in the `[dependencies]` section of a manifest.
fn dependencies(manifest: &str) -> impl Iterator<Item = String> {
    let lines = manifest.lines().skip_while(|line| *line != "[dependencies]").skip(1);
    let lines = lines.take_while(|line| !line.starts_with('['));
    let names = lines.filter_map(|line| line.split(['.', ' ', '=']).next());
    names.filter(|name| name.starts_with("tegula")).map(String::from)
}

/// The sources of a crate, tests left out.
fn sources(krate: &'static str, folder: &Path) -> Result<Vec<Source>, String> {
    let mut sources = Vec::new();
    for path in files(folder)? {
        let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let within = path.strip_prefix(folder).unwrap_or(&path).with_extension("");
        let path = within.to_string_lossy().replace('\\', "/");
        if !path.split('/').any(|part| part.ends_with("tests")) {
            sources.push(Source { krate, path, code: code(&text) });
        }
    }
    Ok(sources)
}

fn files(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let entries =
        fs::read_dir(folder).and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect::<Result<Vec<_>, _>>());
    let mut paths = entries.map_err(failed)?;
    paths.sort();
    let mut all = Vec::new();
    for path in paths {
        if path.is_dir() {
            all.extend(files(&path)?);
        } else if path.extension().is_some_and(|e| e == "rs") {
            all.push(path);
        }
    }
    Ok(all)
}

/// Removes comments and the test module of a source.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// Rules that a source violates.
fn check(source: &Source) -> Vec<String> {
    let name = source.name();
    let within = |part: &&str| Path::new(&name).starts_with(part);
    let rules = FORBIDDEN.iter().filter(|(module, _, may)| within(module) && !may.iter().any(within));
    let forbidden = rules.flat_map(|(_, names, _)| names.iter());
    let paths = imports::of(&source.path, &source.code);
    let words: Vec<&str> = words(&source.code).collect();
    let mut violations: Vec<String> = forbidden
        .filter(|name| {
            paths.iter().any(|path| path.first().is_some_and(|first| first == *name))
                || words.contains(*name) && name.starts_with("tegula")
        })
        .map(|wrong| format!("{name} must not import {wrong}"))
        .collect();
    let may = UNSAFE.iter().any(within);
    if !may && words.contains(&"unsafe") {
        violations.push(format!("{name} must not contain unsafe code"));
    }
    if !may && source.path != "lib" && source.code.contains("allow(unsafe_code") {
        violations.push(format!("{name} must not allow unsafe code"));
    }
    violations.sort();
    violations.dedup();
    violations
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(krate: &'static str, path: &str, code: &str) -> Source {
        Source { krate, path: path.into(), code: super::code(code) }
    }

    fn violations(krate: &'static str, path: &str, code: &str) -> Vec<String> {
        check(&source(krate, path, code))
    }

    #[test]
    fn sources_follow_the_rules() {
        run().expect("no violations");
    }

    #[test]
    fn dependencies_are_read_from_their_section() {
        let manifest = "[features]\ncuda = [\"tegula/cuda\"]\n\n[dependencies]\nserde.workspace = true\n\
                        tegula-ir.workspace = true\ntegula = { workspace = true }\n\n[dev-dependencies]\ntegula-bench = 1\n";
        assert_eq!(dependencies(manifest).collect::<Vec<_>>(), ["tegula-ir", "tegula"]);
    }

    #[test]
    fn check_finds_forbidden_imports() {
        let wrong = violations("tegula-ir", "ptx/emit", "use crate::cpp::print;");
        assert_eq!(wrong, ["tegula-ir/ptx/emit must not import cpp"]);
        let wrong = violations("tegula", "cuda/launch", "fn f() { tegula_kernels::Variant::all() }");
        assert_eq!(wrong, ["tegula/cuda/launch must not import tegula_kernels"]);
        let wrong = violations("tegula-kernels", "tiled", "use crate::plan::Recipe;");
        assert_eq!(wrong, ["tegula-kernels/tiled must not import plan"]);
        assert!(violations("tegula-kernels", "plan/cost", "use crate::plan::Recipe;").is_empty());
        assert!(violations("tegula", "cuda/product", "use tegula_kernels::Variant;").is_empty());
        assert!(violations("tegula-ir", "ptx/emit", "/// See [`crate::cpp`].\nuse crate::ops::Op;").is_empty());
    }

    #[test]
    fn check_finds_unsafe_code() {
        assert_eq!(
            violations("tegula-ir", "check", "fn f() { unsafe { g() } }"),
            ["tegula-ir/check must not contain unsafe code"]
        );
        assert_eq!(violations("tegula", "gemm", "#![allow(unsafe_code)]"), ["tegula/gemm must not allow unsafe code"]);
        assert!(violations("tegula-cpu", "pack", "fn f() { unsafe { g() } }").is_empty());
        assert!(violations("tegula-core", "matrix/view", "fn f() { unsafe { g() } }").is_empty());
        assert!(!violations("tegula-core", "matrix/layout", "fn f() { unsafe { g() } }").is_empty());
        assert!(violations("tegula", "lib", "#![deny(unsafe_code)]").is_empty());
    }
}
