//! `.mtx` and `.csv` files against SciPy and NumPy.
//!
//! `TEGULA_PYTHON` is a Python interpreter with both. Without them the test is skipped;
//! `TEGULA_REQUIRE_NUMPY=1` makes that a failure. `TEGULA_MTX_DIR` is a directory of `.mtx` files
//! that both read as well.

use std::env;
use std::process::Command;

use crate::common;

#[test]
fn text_files_agree_with_scipy_and_numpy() {
    let python = env::var("TEGULA_PYTHON").unwrap_or_else(|_| "python3".into());
    let has_scipy =
        Command::new(&python).args(["-c", "import numpy, scipy"]).output().is_ok_and(|output| output.status.success());
    if !has_scipy {
        let required = env::var("TEGULA_REQUIRE_NUMPY").is_ok_and(|required| required == "1");
        assert!(!required, "{python} has no NumPy and SciPy, which TEGULA_REQUIRE_NUMPY=1 asks for");
        eprintln!("skipped: {python} has no NumPy and SciPy; set TEGULA_PYTHON to one that has");
        return;
    }
    let folder = env::var_os("TEGULA_MTX_DIR");
    if folder.is_none() {
        eprintln!("skipped: real .mtx files; set TEGULA_MTX_DIR to a folder of them");
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/text_round_trip.py");
    let count = if env::var("TEGULA_FULL").is_ok_and(|full| full == "1") { "200" } else { "60" };
    let output = Command::new(&python).arg(script).arg(common::convert()).arg(count).args(folder).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{stdout}");
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains(&format!("{count} matrices agree")), "{stdout}");
}
