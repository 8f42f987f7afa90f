//! Which module may import which: the rules as a table, and a scan of the sources against it.

use std::fs;
use std::path::Path;

use crate::{Outcome, root};

/// A module of the library, and what of the library it may import. A name with `::` allows that path only.
const RULES: [(&str, &[&str]); 29] = [
    ("element", &[]),
    ("error", &["element", "ir::Fault", "interp::Finding"]),
    ("matrix", &["element", "error", "host"]),
    ("host", &["element", "error"]),
    ("progress", &[]),
    ("threads", &[]),
    ("epilogue", &["element", "error", "matrix"]),
    ("convert", &["element", "error", "matrix"]),
    (
        "nd",
        &[
            "element",
            "epilogue",
            "error",
            "exec",
            "gemm",
            "host",
            "ir::launch::MAX_EXTENT",
            "matrix",
            "oracle",
            "plan",
            "progress",
        ],
    ),
    ("nests", &["element", "error", "host", "matrix"]),
    ("ir", &["element", "error", "matrix"]),
    ("ptx", &["element", "error", "matrix", "ir"]),
    ("cpp", &["element", "error", "ir"]),
    ("interp", &["element", "error", "host", "matrix", "ir", "cpu::lanes", "progress", "threads"]),
    ("kernels", &["element", "epilogue", "error", "matrix", "ir"]),
    // Of the engines it knows only what packs B for one.
    (
        "gemm",
        &[
            "cpu::Panels",
            "cpu::prepack",
            "element",
            "epilogue",
            "error",
            "exec",
            "host",
            "ir::Order2d",
            "matrix",
            "plan",
            "progress",
        ],
    ),
    ("oracle", &["cpu::lanes", "element", "epilogue", "error", "host", "matrix", "progress", "threads"]),
    ("plan", &["element", "epilogue", "error", "matrix", "ir", "kernels"]),
    // What tuning leaves behind; the only file that the library reads.
    ("cache", &["cuda::DeviceInfo", "plan"]),
    ("cuda", &["element", "epilogue", "error", "matrix", "progress", "ptx::Image"]),
    // The one file of cuda that knows kernels: it binds their parameters and argues why the launch is sound.
    ("cuda/product", &["cuda", "element", "error", "gemm", "ir", "kernels", "matrix", "plan", "progress", "ptx"]),
    ("cpu", &["element", "epilogue", "error", "host", "matrix", "oracle", "progress", "threads"]),
    // What is pure of benchmarks knows no device.
    ("bench/stats", &[]),
    ("bench/rounds", &["error"]),
    ("bench/tune", &["bench", "element", "error", "plan"]),
    ("bench/data", &["element", "error", "host", "matrix", "threads"]),
    ("bench/accuracy", &["element", "epilogue", "error", "matrix", "oracle"]),
    (
        "bench",
        &[
            "cpu", "cuda", "element", "epilogue", "error", "exec", "gemm", "host", "matrix", "oracle", "plan",
            "progress", "threads",
        ],
    ),
    ("trace", &["element", "error", "matrix", "ir", "interp"]),
];

/// Files and folders that may hold unsafe code: the driver's calls, the processor's kernels, host memory behind a view, which is no
/// slice since the elements between a view's own may be borrowed elsewhere, and the making of such views of other crates' matrices.
const UNSAFE: [&str; 4] = ["cuda", "cpu", "matrix/view", "convert"];

/// Checks every source of the library.
pub fn run() -> Outcome {
    let source = root().join("crates/tegula/src");
    let mut broken = Vec::new();
    visit(&source, &source, &mut broken)?;
    if broken.is_empty() { Ok(()) } else { Err(broken.join("\n")) }
}

fn visit(source: &Path, folder: &Path, broken: &mut Vec<String>) -> Outcome {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    let mut paths = fs::read_dir(folder)
        .and_then(|entries| entries.map(|e| e.map(|e| e.path())).collect::<Result<Vec<_>, _>>())
        .map_err(failed)?;
    paths.sort();
    for path in paths {
        if path.is_dir() {
            visit(source, &path, broken)?;
        } else if path.extension().is_some_and(|e| e == "rs") {
            let text = fs::read_to_string(&path).map_err(failed)?;
            let within = path.strip_prefix(source).unwrap_or(&path);
            broken.extend(check(within, &text).into_iter().map(|why| format!("{}: {why}", within.display())));
        }
    }
    Ok(())
}

/// A source's path without its extension.
fn name(path: &Path) -> String {
    path.with_extension("").to_string_lossy().replace('\\', "/")
}

/// The module that a file belongs to: one with rules of its own, or the top one.
fn module(path: &Path) -> String {
    let whole = name(path);
    if RULES.iter().any(|(name, _)| *name == whole) {
        return whole;
    }
    whole.split('/').next().unwrap_or_default().into()
}

/// The rules that a source breaks.
fn check(path: impl AsRef<Path>, text: &str) -> Vec<String> {
    let (name, module, code) = (name(path.as_ref()), module(path.as_ref()), code(text));
    let mut broken: Vec<String> = imports(&code)
        .into_iter()
        .filter(|path| !allowed(&module, path))
        .map(|path| format!("{module} must not import {path}"))
        .collect();
    let may = UNSAFE.iter().any(|part| Path::new(&name).starts_with(part));
    if !may && words(&code).any(|word| word == "unsafe") {
        broken.push(format!("{name} must not hold unsafe code"));
    }
    if !may && code.contains("allow(unsafe_code") {
        broken.push(format!("{name} must not allow unsafe code"));
    }
    broken.sort();
    broken.dedup();
    broken
}

/// The source without comments.
fn code(text: &str) -> String {
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or_default());
    lines.collect::<Vec<_>>().join("\n")
}

fn words(code: &str) -> impl Iterator<Item = &str> {
    code.split(|c: char| !c.is_alphanumeric() && c != '_')
}

/// Modules without a rule (the crate's root, `exec`) join the others and may import all. What comes straight from the
/// crate's root, such as its `Result`, is in everybody's reach.
fn allowed(module: &str, path: &str) -> bool {
    let first = path.split("::").next().unwrap_or_default();
    let Some((_, may)) = RULES.iter().find(|(name, _)| *name == module) else { return true };
    let root = first.starts_with(|c: char| c.is_uppercase());
    root || first == module || may.iter().any(|m| path == *m || path.starts_with(&format!("{m}::")))
}

/// The paths after `crate::`, groups in braces written out.
fn imports(code: &str) -> Vec<String> {
    code.match_indices("crate::").flat_map(|(at, prefix)| paths("", &code[at + prefix.len()..])).collect()
}

/// The paths that a text begins with: one, or one for each entry of a group.
fn paths(prefix: &str, text: &str) -> Vec<String> {
    let end = text.find(|c: char| !c.is_alphanumeric() && c != '_' && c != ':').unwrap_or(text.len());
    let (path, rest) = text.split_at(end);
    let path = format!("{prefix}{path}");
    match rest.strip_prefix('{') {
        Some(group) => entries(group).iter().flat_map(|entry| paths(&path, entry.trim())).collect(),
        None => vec![path.trim_end_matches(':').into()],
    }
}

/// The entries of a group up to its closing brace.
fn entries(group: &str) -> Vec<&str> {
    let (mut depth, mut start, mut entries) = (0, 0, Vec::new());
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth > 0 => depth -= 1,
            ',' | '}' if depth == 0 => {
                entries.push(&group[start..at]);
                start = at + 1;
                if c == '}' {
                    break;
                }
            }
            _ => {}
        }
    }
    entries.retain(|entry| !entry.trim().is_empty());
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sources_keep_the_rules() {
        run().expect("the rules hold");
    }

    #[test]
    fn a_wrong_import_is_found() {
        assert_eq!(check("ptx", "use crate::interp::Finding;"), ["ptx must not import interp::Finding"]);
        assert_eq!(check("cpp/text.rs", "use crate::kernels::Plain;"), ["cpp must not import kernels::Plain"]);
        assert_eq!(check("kernels", "let x = crate::ptx::print(k);"), ["kernels must not import ptx::print"]);
        assert_eq!(check("plan", "use crate::{element::Type, cuda::Device};"), ["plan must not import cuda::Device"]);
        assert_eq!(check("cuda", "use crate::ptx::{Image, print};"), ["cuda must not import ptx::print"]);
        assert_eq!(
            check("interp", "use crate::{\n    cpu::{lanes, kernel},\n};"),
            ["interp must not import cpu::kernel"]
        );
    }

    #[test]
    fn a_right_import_is_not() {
        assert!(check("ptx", "use crate::ir::{Op, launch::Field};\nuse crate::Result;").is_empty());
        assert!(check("ptx", "/// See [`crate::interp`].\nfn f() {}").is_empty());
        assert!(check("interp", "use crate::cpu::lanes::fma;").is_empty());
        assert!(check("exec", "use crate::cuda::Device;").is_empty());
    }

    #[test]
    fn unsafe_code_is_found_outside_its_modules() {
        assert_eq!(check("ir", "fn f() { unsafe { g() } }"), ["ir must not hold unsafe code"]);
        assert_eq!(check("plan", "#![allow(unsafe_code)]"), ["plan must not allow unsafe code"]);
        assert_eq!(check("matrix/layout.rs", "fn f() { unsafe { g() } }"), ["matrix/layout must not hold unsafe code"]);
        assert!(check("cpu", "fn f() { unsafe { g() } }").is_empty());
        assert!(check("cpu/pack.rs", "fn f() { unsafe { g() } }").is_empty());
        assert!(check("matrix/view.rs", "fn f() { unsafe { g() } }").is_empty());
        assert!(check("lib", "#![deny(unsafe_code)]").is_empty());
    }
}
