//! An input that gets shorter while it is read ends the program in one line.
#![cfg(target_os = "linux")]

use std::env;
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

use tegula_files::{AnyArray, Place, Reading, Writing, read, write};

mod common;

const ROLE: &str = "TEGULA_TEST_SHRINKING";

/// In the other process: maps the file, shortens it, and reads or writes what is no longer there.
fn shrink(path: &Path, role: &str) {
    let AnyArray::F32(array) = read(&Place::parse(path), &Reading::default()).unwrap() else { panic!("f4 is f32") };
    File::options().write(true).open(path).unwrap().set_len(4096).unwrap();
    if role == "read" {
        println!("{}", array.data.iter().sum::<f32>());
        return;
    }
    let output = Place::parse(path.with_file_name("out.npy"));
    let refused = write(&output, &[1 << 20], &array.data, &Writing::default()).unwrap_err();
    eprintln!("error: {refused}");
    std::process::exit(1);
}

#[test]
fn a_file_that_shrinks_is_told_of() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.npy");
    if let Some(role) = env::var_os(ROLE) {
        let path = env::var_os("TEGULA_TEST_PATH").unwrap();
        return shrink(Path::new(&path), &role.to_string_lossy());
    }
    for role in ["read", "write"] {
        fs::write(&path, common::npy("'<f4'", "(1048576,)", &vec![0; 4 << 20])).unwrap();
        let mut again = Command::new(env::current_exe().unwrap());
        again.args(["--exact", "a_file_that_shrinks_is_told_of", "--nocapture"]);
        let output = again.env(ROLE, role).env("TEGULA_TEST_PATH", &path).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.starts_with("error: ") && said.ends_with("an input file shrank while it was read\n"), "{said}");
        assert_eq!((said.lines().count(), common::names(folder.path())), (1, vec!["a.npy".to_string()]));
    }
}
