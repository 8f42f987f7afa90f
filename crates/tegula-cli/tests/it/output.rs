//! Reports on standard output, and a closed standard output.
#![cfg(unix)]

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

use crate::full;

fn place() -> TempDir {
    let place = TempDir::new().unwrap();
    fs::write(place.path().join("a.csv"), "1,2\n3,4\n").unwrap();
    place
}

/// Runs a shell command, with `tegula` as the program.
fn shell(place: &Path, line: &str) -> Output {
    let line = line.replace("tegula ", &format!("'{}' ", env!("CARGO_BIN_EXE_tegula")));
    Command::new("sh").args(["-c", &line]).current_dir(place).output().unwrap()
}

/// Standard output and error of a command that must succeed and leave no file.
fn done(place: &Path, line: &str) -> (Vec<u8>, String) {
    let Output { status, stdout, stderr } = shell(place, line);
    let said = String::from_utf8(stderr).unwrap();
    assert!(status.success(), "{line}: {said}");
    assert_eq!(fs::read_dir(place).unwrap().count(), 1, "{line}: a file was made");
    (stdout, said)
}

#[test]
fn output_reports_named_minus_are_alone_on_standard_output() {
    let place = place();
    let place = place.path();
    let (json, said) = done(place, "tegula bench --m 8 --time 0 --device cpu --json -");
    let report: Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(report["rows"][0]["m"], 8);
    assert!(said.contains("TFLOP/s") && said.contains("f32  nn"), "the table goes beside: {said}");
    let (_, said) = done(place, "tegula bench --quiet --m 8 --time 0 --device cpu --json -");
    assert_eq!(said, "");
    let (csv, _) = done(place, "tegula bench --m 8,9 --time 0 --device cpu --csv -");
    let csv = String::from_utf8(csv).unwrap();
    assert!(csv.lines().count() == 3 && csv.starts_with("dtype,"), "{csv}");
    let (page, _) = done(place, "tegula bench --m 8 --time 0 --device cpu --html -");
    assert!(page.to_ascii_lowercase().starts_with(b"<!doctype html>"));
    let (page, _) = done(place, "tegula explain --kernel hopper_64x64x64_consumers1_stages2 --dtype f16 --html -");
    assert!(page.starts_with(b"<!doctype html>"));
    let (trace, _) = done(place, "tegula explain --trace -");
    fs::write(place.join("a.csv"), &trace).unwrap();
    let (text, _) = done(place, "tegula explain a.csv --plain");
    assert!(!text.is_empty());
}

#[test]
fn output_two_reports_on_standard_output_are_refused() {
    let place = place();
    for (line, options) in [
        ("tegula bench --m 8 --json - --csv -", "--json and --csv"),
        ("tegula bench --m 8 --csv - --html -", "--csv and --html"),
        ("tegula explain --json --trace -", "--json and --trace"),
        ("tegula mul a.csv a.csv --json -o -", "--json and -o"),
    ] {
        let Output { status, stdout, stderr } = shell(place.path(), line);
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!((status.code(), stdout.len()), (Some(2), 0), "{line}: {said}");
        assert!(said.contains(&format!("{options} cannot both write to standard output")), "{line}: {said}");
    }
}

#[test]
#[ignore = "long; .ci/run runs it"]
fn output_closed_or_read_only_is_an_error() {
    let place = place();
    for (i, lost) in [
        "mul a.csv a.csv -o -",
        "mul a.csv a.csv",
        "mul a.csv a.csv --json -o c.npy",
        "bench --m 8 --time 0 --device cpu",
        "bench --m 8 --time 0 --device cpu --json -",
        "check K6",
        "explain",
        "explain --trace -",
        "explain --serve",
        "kernels",
        "devices",
        "doctor --json",
        "completions bash",
        "man",
        "--version",
        "--help",
    ]
    .into_iter()
    .enumerate()
    {
        // Each way with some of the commands, and in the full run with all.
        let ways = [">&-", "1</dev/null", ">&- <&-"].into_iter().enumerate();
        for (_, closed) in ways.filter(|(way, _)| full() || *way == i % 3) {
            let line = format!("tegula {lost} {closed}");
            let Output { status, stderr, .. } = shell(place.path(), &line);
            let said = String::from_utf8(stderr).unwrap();
            assert_eq!(status.code(), Some(1), "{line}: {said}");
            let expected = "error: standard output: cannot be written: it is closed, or open only for reading";
            assert_eq!(said.lines().last(), Some(expected), "{line}");
            assert_eq!(fs::read_dir(place.path()).unwrap().count(), 1, "{line}: a file was made");
        }
    }
    // What writes nothing there loses nothing, and the null device is as good as any other.
    for (line, count) in [
        ("tegula mul a.csv a.csv -o c.npy >&-", 2),
        ("tegula mul a.csv a.csv -o - >/dev/null", 2),
        ("tegula mul a.csv a.csv -o - 1<>/dev/null", 2),
        ("tegula mul a.csv a.csv -o - 2>&- | wc -c", 2),
    ] {
        let Output { status, stderr, .. } = shell(place.path(), line);
        assert!(status.success(), "{line}: {}", String::from_utf8_lossy(&stderr));
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), count, "{line}");
    }
}
