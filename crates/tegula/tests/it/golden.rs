//! The PTX of kept kernels, and of some the CUDA C++, byte for byte. `cargo xtask bless` rewrites the files; review them as a diff.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tegula_ir::{Kernel, check, cpp, ptx};

use crate::effort::bless;
use crate::kernels::{KEPT_AS_CUDA, kept};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// The kept files of a kernel, with what it prints.
fn texts(name: &str, kernel: Kernel) -> Vec<(String, String)> {
    let checked = check(kernel).expect("a kept kernel passes");
    let mut texts = vec![(format!("{name}.ptx"), ptx::print(&checked).expect("a kept kernel prints").text)];
    if KEPT_AS_CUDA.contains(&name) {
        texts.push((format!("{name}.cu"), cpp::print(&checked).expect("a kept kernel prints").text));
    }
    texts
}

#[test]
fn kernels_print_as_kept() {
    for (file, text) in kept().into_iter().flat_map(|(name, kernel)| texts(&name, kernel)) {
        if bless() {
            fs::write(folder().join(&file), &text).expect("the folder can be written");
        }
        let golden = fs::read_to_string(folder().join(&file)).unwrap_or_default();
        let differs = golden.lines().zip(text.lines()).position(|(a, b)| a != b);
        assert!(
            golden == text,
            "{file} prints otherwise from line {differs:?} on; if that is meant, `cargo xtask bless`"
        );
    }
}

#[test]
fn kernels_print_the_same_twice() {
    for ((name, first), (_, second)) in kept().into_iter().zip(kept()) {
        assert_eq!(texts(&name, first), texts(&name, second), "{name}");
    }
}

#[test]
fn every_kept_file_has_a_kernel() {
    let kernels: BTreeSet<String> =
        kept().into_iter().flat_map(|(name, kernel)| texts(&name, kernel)).map(|(file, _)| file).collect();
    let entries = fs::read_dir(folder()).expect("the folder is there");
    let files: BTreeSet<String> =
        entries.map(|e| e.expect("readable").file_name().into_string().expect("UTF-8")).collect();
    if bless() {
        let stale = files.difference(&kernels);
        return stale.for_each(|file| fs::remove_file(folder().join(file)).expect("a kept file"));
    }
    assert_eq!(files, kernels);
}
