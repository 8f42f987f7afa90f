//! Random arrays, converted by `convert`, against NumPy and safetensors.
//!
//! `TEGULA_PYTHON` is a Python interpreter with both. Without them the test is skipped;
//! `TEGULA_REQUIRE_NUMPY=1` makes that a failure.

use std::env;
use std::process::Command;

use crate::common;

#[test]
fn files_agree_with_python() {
    let python = env::var("TEGULA_PYTHON").unwrap_or_else(|_| "python3".into());
    let imports = "import numpy, scipy, safetensors.numpy, ml_dtypes";
    let available = Command::new(&python).args(["-c", imports]).output().is_ok_and(|output| output.status.success());
    if !available {
        let required = env::var("TEGULA_REQUIRE_NUMPY").is_ok_and(|required| required == "1");
        assert!(!required, "{python} cannot '{imports}', which TEGULA_REQUIRE_NUMPY=1 asks for");
        eprintln!("skipped: {python} cannot '{imports}'; set TEGULA_PYTHON to one that can");
        return;
    }
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/round_trip.py");
    let output = Command::new(&python).arg(script).arg(common::convert()).output().unwrap();
    let (stdout, stderr) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{stdout}{stderr}");
    assert!(stdout.contains("200 arrays agree"), "{stdout}");
}
