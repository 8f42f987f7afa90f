//! What lies in a file is not copied. Alone in its process, since all threads share the count of its memory.
#![cfg(target_os = "linux")]

use std::fs::{self, File};
use std::io::Write;

use tegula_files::{AnyArray, Place, Reading, read};

mod common;

/// KiB of memory that is not part of a file.
fn anonymous() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_mapped_array_takes_no_memory_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npy");
    let mut file = File::create(&path).unwrap();
    file.write_all(&common::npy("'<f4'", "(8192, 8192)", &[])).unwrap();
    file.set_len(128 + (256 << 20)).unwrap();

    let before = anonymous();
    let AnyArray::F32(array) = read(&Place::parse(&path), &Reading { room: 0, ..Reading::default() }).unwrap() else {
        panic!("f4 is f32")
    };
    let sum: f64 = array.data.iter().map(|&x| f64::from(x)).sum();
    let grown = anonymous().saturating_sub(before);
    assert_eq!((sum, array.data.len()), (0.0, 8192 * 8192));
    assert!(array.data.is_mapped() && grown < 16 << 10, "{grown} KiB more");
}
