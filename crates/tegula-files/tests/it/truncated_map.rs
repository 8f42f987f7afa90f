//! A memory-mapped input that is truncated while it is read ends the program with one line.
#![cfg(target_os = "linux")]

use std::env;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use tegula_files::{AnyArray, ArrayPath, ReadOptions, WriteOptions, read, write};

use crate::common;

const ROLE: &str = "TEGULA_TEST_SHRINKING";

/// In the child process: maps the file, truncates it, and reads or writes the missing part.
fn shrink(path: &Path, role: &str) {
    let AnyArray::F32(array) = read(&ArrayPath::parse(path), &ReadOptions::default()).unwrap() else {
        panic!("f4 is f32")
    };
    File::options().write(true).open(path).unwrap().set_len(4096).unwrap();
    if role == "read" {
        println!("{}", array.data.iter().sum::<f32>());
        return;
    }
    let output = ArrayPath::parse(path.with_file_name("out.npy"));
    let rejected = write(&output, &[1 << 20], &array.data, &WriteOptions::default()).unwrap_err();
    eprintln!("error: {rejected}");
    std::process::exit(1);
}

#[test]
fn read_of_a_truncated_map_is_an_error_on_one_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npy");
    if let Some(role) = env::var_os(ROLE) {
        let path = env::var_os("TEGULA_TEST_PATH").unwrap();
        return shrink(Path::new(&path), &role.to_string_lossy());
    }
    for role in ["read", "write"] {
        fs::write(&path, common::npy("'<f4'", "(1048576,)", &vec![0; 4 << 20])).unwrap();
        let mut again = Command::new(env::current_exe().unwrap());
        again.args(["--exact", "truncated_map::read_of_a_truncated_map_is_an_error_on_one_line", "--nocapture"]);
        let output = again.env(ROLE, role).env("TEGULA_TEST_PATH", &path).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{stderr}");
        assert!(
            stderr.starts_with("error: ") && stderr.ends_with("an input file shrank while it was read\n"),
            "{stderr}"
        );
        assert_eq!((stderr.lines().count(), common::names(folder.path())), (1, vec!["a.npy".to_string()]));
    }
}
