//! `tegula mul` against NumPy, on random shapes. Needs Python with NumPy: `TEGULA_PYTHON` names the
//! interpreter.
//!
//! Without NumPy the tests are skipped; `TEGULA_REQUIRE_NUMPY=1` makes that a failure.
//! `TEGULA_REAL_DATA` is the folder of real data, listed in `real_data.py`. Without it that test is
//! skipped; `TEGULA_REQUIRE_REAL_DATA=1` makes that a failure.

use std::env;
use std::path::Path;
use std::process::Command;

/// The Python interpreter; `None` without a module, if none is required.
fn python(modules: &str) -> Option<String> {
    let python = env::var("TEGULA_PYTHON").unwrap_or_else(|_| "python3".into());
    let import = format!("import {modules}");
    if Command::new(&python).args(["-c", &import]).output().is_ok_and(|output| output.status.success()) {
        return Some(python);
    }
    assert!(
        !required("TEGULA_REQUIRE_NUMPY"),
        "{python} lacks one of {modules}, which TEGULA_REQUIRE_NUMPY=1 asks for"
    );
    eprintln!("skipped: {python} lacks one of {modules}; set TEGULA_PYTHON to one that has them");
    None
}

fn required(variable: &str) -> bool {
    env::var(variable).is_ok_and(|required| required == "1")
}

/// Runs a script of this folder, whose last line must be `last`.
fn run(python: &str, script: &str, arguments: &[&str], last: &str) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(script);
    let output = Command::new(python).arg(script).arg(env!("CARGO_BIN_EXE_tegula")).args(arguments).output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{said}");
    assert!(output.status.success() && said.contains(last), "{said}{complained}");
}

#[test]
fn products_agree_with_numpy() {
    let Some(python) = python("numpy") else { return };
    run(&python, "numpy_agree.py", &[], "40 products agree");
}

#[test]
fn arrays_of_any_number_of_axes_agree_with_numpy() {
    let Some(python) = python("numpy") else { return };
    run(&python, "numpy_stacks.py", &[], "200 stacks agree");
}

#[test]
fn real_data_agree() {
    let Some(python) = python("numpy, scipy, safetensors") else { return };
    let Ok(folder) = env::var("TEGULA_REAL_DATA") else {
        assert!(!required("TEGULA_REQUIRE_REAL_DATA"), "TEGULA_REAL_DATA names no folder");
        eprintln!("skipped: set TEGULA_REAL_DATA to a folder with real data");
        return;
    };
    run(&python, "real_data.py", &[&folder], "real data agree");
}
