//! `tegula mul` against NumPy, on random shapes. Needs Python with NumPy: `TEGULA_PYTHON` names the interpreter.
//!
//! Without NumPy the test says that it was skipped; `TEGULA_REQUIRE_NUMPY=1` makes that a failure.

use std::env;
use std::process::Command;

#[test]
fn products_agree_with_numpy() {
    let python = env::var("TEGULA_PYTHON").unwrap_or_else(|_| "python3".into());
    let has_numpy =
        Command::new(&python).args(["-c", "import numpy"]).output().is_ok_and(|output| output.status.success());
    if !has_numpy {
        let required = env::var("TEGULA_REQUIRE_NUMPY").is_ok_and(|required| required == "1");
        assert!(!required, "{python} has no NumPy, which TEGULA_REQUIRE_NUMPY=1 asks for");
        eprintln!("skipped: {python} has no NumPy; set TEGULA_PYTHON to one that has");
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/numpy_agree.py");
    let output = Command::new(&python).args([script, env!("CARGO_BIN_EXE_tegula")]).output().unwrap();
    let (said, complained) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{said}");
    assert!(output.status.success(), "{said}{complained}");
    assert!(said.contains("40 products agree"), "{said}");
}
