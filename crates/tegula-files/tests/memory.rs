//! Memory-mapped elements are not copied.
//!
//! The only test of its process, since threads share the memory counter.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::io::Write;

use tegula_files::{AnyArray, ArrayPath, ReadOptions, read};

#[allow(dead_code, reason = "this test needs one of the helpers")]
#[path = "it/common/mod.rs"]
mod common;

/// Anonymous memory of the process in KiB.
fn anonymous() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn read_mapped_array_allocates_no_elements() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npy");
    let mut file = File::create(&path).unwrap();
    file.write_all(&common::npy("'<f4'", "(8192, 8192)", &[])).unwrap();
    file.set_len(128 + (256 << 20)).unwrap();

    let before = anonymous();
    let AnyArray::F32(array) =
        read(&ArrayPath::parse(&path), &ReadOptions { memory_limit: 0, ..ReadOptions::default() }).unwrap()
    else {
        panic!("f4 is f32")
    };
    let sum: f64 = array.data.iter().map(|&x| f64::from(x)).sum();
    let grown = anonymous().saturating_sub(before);
    assert_eq!((sum, array.data.len()), (0.0, 8192 * 8192));
    assert!(array.data.is_mapped() && grown < 16 << 10, "{grown} KiB more");
}
