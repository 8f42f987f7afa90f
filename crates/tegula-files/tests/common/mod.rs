//! What several tests use.
#![allow(dead_code, reason = "no test uses all of it")]

use std::path::{Path, PathBuf};
use std::process::Output;

/// The example `convert`, which `cargo test` builds with the tests.
pub fn convert() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("examples/convert");
    assert!(path.exists(), "{} is not there; build it with the tests: cargo test -p tegula-files", path.display());
    path
}

/// A folder to write in: in memory where there is such a place, since what is tested is not the disk.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// A `.npy` file, made here without the crate's help.
pub fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let dict = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}");
    let text = format!("{dict:<117}\n");
    let len = u16::try_from(text.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &len[..], text.as_bytes(), data].concat()
}

/// A `.safetensors` file of a header and data.
pub fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// The numbers 1, 2, … as f32.
pub fn floats(count: usize) -> Vec<u8> {
    (1..=count).flat_map(|x| (x as f32).to_le_bytes()).collect()
}

/// The names in a folder, in order.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// The one line of a program that failed, and nothing else.
pub fn one_line(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(output.stdout.is_empty());
    assert!(said.starts_with("error: ") && said.ends_with('\n') && said.lines().count() == 1, "{said:?}");
    assert!(!said.contains("os error") && !said.contains(".tegula-"), "{said}");
    assert!(!said.trim_end().contains(char::is_control), "{said:?}");
    said
}
