//! Helpers of the tests.

use std::path::{Path, PathBuf};
use std::process::Output;

/// Path of the example `convert`, which `cargo test` builds with the tests.
pub fn convert() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("examples/convert");
    assert!(path.exists(), "{} not found; build it with the tests: cargo test -p tegula-files", path.display());
    path
}

/// Temporary directory, in memory if possible: the tests do not test the disk.
pub fn scratch() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap()
}

/// Builds a `.npy` file, independently of the crate.
pub fn npy(descr: &str, shape: &str, data: &[u8]) -> Vec<u8> {
    let dict = format!("{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}");
    let text = format!("{dict:<117}\n");
    let len = u16::try_from(text.len()).unwrap().to_le_bytes();
    [b"\x93NUMPY\x01\x00", &len[..], text.as_bytes(), data].concat()
}

/// Builds a `.safetensors` file from a header and data.
pub fn safetensors(header: &str, data: &[u8]) -> Vec<u8> {
    [&(header.len() as u64).to_le_bytes(), header.as_bytes(), data].concat()
}

/// The f32 numbers 1 to `count`, as bytes.
pub fn floats(count: usize) -> Vec<u8> {
    (1..=count).flat_map(|x| (x as f32).to_le_bytes()).collect()
}

/// Sorted names in a directory.
pub fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// Standard error of a failed program, checked to be a single line.
pub fn one_line(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    assert!(output.stdout.is_empty());
    assert!(stderr.starts_with("error: ") && stderr.ends_with('\n') && stderr.lines().count() == 1, "{stderr:?}");
    assert!(!stderr.contains("os error") && !stderr.contains(".tegula-"), "{stderr}");
    assert!(!stderr.trim_end().contains(char::is_control), "{stderr:?}");
    stderr
}
