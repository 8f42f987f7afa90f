//! Layers: which crate may depend on which, which module may import which, where unsafe code may
//! stand, and that no files import each other in a loop. Rules as tables, and a scan of the sources
//! against them.

mod imports;
mod loops;

use std::fs;
use std::path::{Path, PathBuf};

use crate::{Outcome, root};

/// The crates, bottom first, and what of the workspace each may depend on. What only tests need is
/// not counted.
const CRATES: [(&str, &[&str]); 10] = [
    ("tegula-core", &[]),
    ("tegula-ir", &["tegula-core"]),
    ("tegula-interp", &["tegula-core", "tegula-ir"]),
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
        ],
    ),
];

/// What modules must not name of their crate and of crates below: the module, the names, and the
/// parts of the module that may.
const FORBIDDEN: [(&str, &[&str], &[&str]); 6] = [
    // Printers do not know each other.
    ("tegula-ir/ptx", &["cpp"], &[]),
    ("tegula-ir/cpp", &["ptx"], &[]),
    // Kernels do not know what chooses them; their families and the registry do.
    (
        "tegula-kernels",
        &["plan"],
        &["tegula-kernels/plan", "tegula-kernels/lib", "tegula-kernels/family", "tegula-kernels/registry"],
    ),
    // The driver does not know what a kernel computes; one file binds kernels to it.
    ("tegula/cuda", &["gemm", "tegula_kernels"], &["tegula/cuda/product"]),
    ("tegula/cache", &["gemm", "exec"], &[]),
    // Statistics know no device.
    ("tegula-bench/stats", &["cpu", "gpu", "tegula"], &[]),
];

/// Files and folders that may hold unsafe code: the driver's calls, vectorized kernels, host memory
/// behind a view (no slice, since elements between a view's own may be borrowed elsewhere), and
/// views of other crates' matrices.
const UNSAFE: [&str; 10] = [
    "tegula/cuda",
    "tegula-bench/cublaslt",
    "tegula-bench/peer",
    "tegula-bench/repeat",
    "tegula-cpu",
    "tegula-core/convert",
    "tegula-core/lanes",
    "tegula-core/matrix/view",
    "tegula-cli/output",
    "tegula-files/map",
];

/// A source file: where it is, its name (`crate/module/file`), and its text without comments.
struct Source {
    krate: &'static str,
    /// The path in the crate's `src`, without the extension.
    path: String,
    code: String,
}

impl Source {
    fn name(&self) -> String {
        format!("{}/{}", self.krate, self.path)
    }
}

/// Checks every source of the crates.
pub fn run() -> Outcome {
    let mut broken = Vec::new();
    for (krate, may) in CRATES {
        let folder = root().join("crates").join(krate);
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).map_err(|e| format!("{krate}: {e}"))?;
        broken.extend(
            dependencies(&manifest)
                .filter(|name| !may.contains(&name.as_str()))
                .map(|name| format!("{krate} must not depend on {name}")),
        );
        let sources = sources(krate, &folder.join("src"))?;
        broken.extend(sources.iter().flat_map(check));
        broken.extend(
            loops::find(&sources).iter().map(|files| format!("{krate}: a loop of imports: {}", files.join(", "))),
        );
    }
    if broken.is_empty() { Ok(()) } else { Err(broken.join("\n")) }
}

/// The crates of the workspace that a manifest's `[dependencies]` name.
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

/// The source without comments and without its module of tests.
fn code(text: &str) -> String {
    let text = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

/// The rules that a source breaks.
fn check(source: &Source) -> Vec<String> {
    let name = source.name();
    let within = |part: &&str| Path::new(&name).starts_with(part);
    let rules = FORBIDDEN.iter().filter(|(module, _, may)| within(module) && !may.iter().any(within));
    let forbidden = rules.flat_map(|(_, names, _)| names.iter());
    let paths = imports::of(&source.path, &source.code);
    let words: Vec<&str> = words(&source.code).collect();
    let mut broken: Vec<String> = forbidden
        .filter(|name| {
            paths.iter().any(|path| path.first().is_some_and(|first| first == *name))
                || words.contains(*name) && name.starts_with("tegula")
        })
        .map(|wrong| format!("{name} must not import {wrong}"))
        .collect();
    let may = UNSAFE.iter().any(within);
    if !may && words.contains(&"unsafe") {
        broken.push(format!("{name} must not hold unsafe code"));
    }
    if !may && source.path != "lib" && source.code.contains("allow(unsafe_code") {
        broken.push(format!("{name} must not allow unsafe code"));
    }
    broken.sort();
    broken.dedup();
    broken
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

    fn broken(krate: &'static str, path: &str, code: &str) -> Vec<String> {
        check(&source(krate, path, code))
    }

    #[test]
    fn sources_keep_the_rules() {
        run().expect("the rules hold");
    }

    #[test]
    fn dependencies_of_a_manifest_are_those_of_its_section() {
        let manifest = "[features]\ncuda = [\"tegula/cuda\"]\n\n[dependencies]\nserde.workspace = true\n\
                        tegula-ir.workspace = true\ntegula = { workspace = true }\n\n[dev-dependencies]\ntegula-bench = 1\n";
        assert_eq!(dependencies(manifest).collect::<Vec<_>>(), ["tegula-ir", "tegula"]);
    }

    #[test]
    fn a_forbidden_import_is_found() {
        let wrong = broken("tegula-ir", "ptx/emit", "use crate::cpp::print;");
        assert_eq!(wrong, ["tegula-ir/ptx/emit must not import cpp"]);
        let wrong = broken("tegula", "cuda/launch", "fn f() { tegula_kernels::Variant::all() }");
        assert_eq!(wrong, ["tegula/cuda/launch must not import tegula_kernels"]);
        let wrong = broken("tegula-kernels", "tiled", "use crate::plan::Recipe;");
        assert_eq!(wrong, ["tegula-kernels/tiled must not import plan"]);
        assert!(broken("tegula-kernels", "plan/cost", "use crate::plan::Recipe;").is_empty());
        assert!(broken("tegula", "cuda/product", "use tegula_kernels::Variant;").is_empty());
        assert!(broken("tegula-ir", "ptx/emit", "/// See [`crate::cpp`].\nuse crate::ops::Op;").is_empty());
    }

    #[test]
    fn unsafe_code_is_found_outside_its_modules() {
        assert_eq!(
            broken("tegula-ir", "check", "fn f() { unsafe { g() } }"),
            ["tegula-ir/check must not hold unsafe code"]
        );
        assert_eq!(broken("tegula", "gemm", "#![allow(unsafe_code)]"), ["tegula/gemm must not allow unsafe code"]);
        assert!(broken("tegula-cpu", "pack", "fn f() { unsafe { g() } }").is_empty());
        assert!(broken("tegula-core", "matrix/view", "fn f() { unsafe { g() } }").is_empty());
        assert!(!broken("tegula-core", "matrix/layout", "fn f() { unsafe { g() } }").is_empty());
        assert!(broken("tegula", "lib", "#![deny(unsafe_code)]").is_empty());
    }
}
