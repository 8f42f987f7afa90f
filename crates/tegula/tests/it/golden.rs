//! The PTX of kept kernels, byte for byte. `cargo xtask bless` rewrites the files; review them as a diff.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tegula::ir::check;
use tegula::ptx;

use crate::kernels::kept;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

#[test]
fn kernels_print_as_kept() {
    for (name, kernel) in kept() {
        let text = ptx::print(&check(kernel).expect("a kept kernel passes")).expect("a kept kernel prints").text;
        let golden = fs::read_to_string(folder().join(&name).with_extension("ptx")).unwrap_or_default();
        let differs = golden.lines().zip(text.lines()).position(|(a, b)| a != b);
        assert!(
            golden == text,
            "{name} prints otherwise from line {differs:?} on; if that is meant, `cargo xtask bless`"
        );
    }
}

#[test]
fn kernels_print_the_same_twice() {
    for ((name, first), (_, second)) in kept().into_iter().zip(kept()) {
        let print = |kernel| ptx::print(&check(kernel).expect("passes")).expect("prints");
        assert_eq!(print(first), print(second), "{name}");
    }
}

#[test]
fn every_kept_file_has_a_kernel() {
    let kernels: BTreeSet<String> = kept().into_iter().map(|(name, _)| name + ".ptx").collect();
    let entries = fs::read_dir(folder()).expect("the folder is there");
    let files: BTreeSet<String> =
        entries.map(|e| e.expect("readable").file_name().into_string().expect("UTF-8")).collect();
    assert_eq!(files, kernels);
}
