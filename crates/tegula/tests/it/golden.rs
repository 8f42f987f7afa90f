//! Golden PTX of kernels, and CUDA C++ of some, compared byte for byte. `cargo xtask bless`
//! rewrites the files; review them as a diff.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tegula_ir::{Kernel, check, cpp, ptx};

use crate::effort::bless;
use crate::kernels::{GOLDEN_CUDA, golden_kernels};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// The golden files of a kernel, with its printed text.
fn texts(name: &str, kernel: Kernel) -> Vec<(String, String)> {
    let checked = check(kernel).expect("a golden kernel is valid");
    let mut texts = vec![(format!("{name}.ptx"), ptx::print(&checked).expect("a golden kernel prints").text)];
    if GOLDEN_CUDA.contains(&name) {
        texts.push((format!("{name}.cu"), cpp::print(&checked).expect("a golden kernel prints").text));
    }
    texts
}

#[test]
fn printed_kernels_equal_their_golden_files() {
    for (file, text) in golden_kernels().into_iter().flat_map(|(name, kernel)| texts(&name, kernel)) {
        if bless() {
            fs::write(folder().join(&file), &text).expect("the folder can be written");
        }
        let golden = fs::read_to_string(folder().join(&file)).unwrap_or_default();
        let differs = golden.lines().zip(text.lines()).position(|(a, b)| a != b);
        assert!(
            golden == text,
            "{file}: the output differs from line {differs:?} on; if intended, run `cargo xtask bless`"
        );
    }
}

#[test]
fn printing_a_kernel_twice_gives_equal_text() {
    for ((name, first), (_, second)) in golden_kernels().into_iter().zip(golden_kernels()) {
        assert_eq!(texts(&name, first), texts(&name, second), "{name}");
    }
}

#[test]
fn every_golden_file_has_a_kernel() {
    let kernels: BTreeSet<String> =
        golden_kernels().into_iter().flat_map(|(name, kernel)| texts(&name, kernel)).map(|(file, _)| file).collect();
    let entries = fs::read_dir(folder()).expect("the golden folder exists");
    let files: BTreeSet<String> =
        entries.map(|e| e.expect("readable").file_name().into_string().expect("UTF-8")).collect();
    if bless() {
        let stale = files.difference(&kernels);
        return stale.for_each(|file| fs::remove_file(folder().join(file)).expect("a golden file"));
    }
    assert_eq!(files, kernels);
}
