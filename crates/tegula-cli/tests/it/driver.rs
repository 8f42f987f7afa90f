//! Errors of drivers that cannot be used, and of one that fails at its n-th call, for every n.
//!
//! The driver is that of the library's tests (`tegula/tests/fake_driver/cuda.c`), compiled here.
//! Without a C compiler its tests are skipped; `TEGULA_REQUIRE_CXX=1` makes that a failure. `CXX`
//! names another compiler.
#![cfg(all(feature = "cuda", target_os = "linux", target_pointer_width = "64"))]

use std::path::Path;
use std::process::{Command, Output};
use std::{env, fs};

use tempfile::TempDir;

use crate::full;

/// Runs a command with a folder first in the library path, and as the cache.
fn run(folder: &Path, line: &str, variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tegula"));
    command.args(line.split_whitespace()).current_dir(folder).env("LD_LIBRARY_PATH", folder);
    command.env("TEGULA_CACHE_DIR", folder.join("cache")).env("CUDA_CACHE_PATH", folder.join("cache"));
    command.envs(variables.iter().copied()).output().unwrap()
}

/// The fake driver in a temporary folder; `None` without a compiler, if none is required.
fn fake() -> Option<TempDir> {
    let folder = TempDir::new().unwrap();
    let compiler = env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tegula/tests/fake_driver/cuda.c");
    let mut command = Command::new(&compiler);
    command.args("-x c -O1 -shared -fPIC -pthread -o".split(' ')).arg(folder.path().join("libcuda.so.1")).arg(source);
    match command.status() {
        Ok(status) => {
            assert!(status.success(), "{command:?}: {status}");
            fs::write(folder.path().join("a.csv"), "1,2\n3,4\n").unwrap();
            Some(folder)
        }
        Err(why) => {
            let required = env::var("TEGULA_REQUIRE_CXX").is_ok_and(|required| required == "1");
            assert!(!required, "{} does not run, which TEGULA_REQUIRE_CXX=1 asks for: {why}", compiler.display());
            eprintln!("skipped: {} does not run", compiler.display());
            None
        }
    }
}

fn devices(folder: &Path) -> String {
    let Output { status, stdout, stderr } = run(folder, "devices", &[]);
    assert!(status.success(), "{status}: {}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

#[test]
fn driver_library_that_is_none_has_the_loaders_reason() {
    let folder = TempDir::new().unwrap();
    let library = folder.path().join("libcuda.so.1");
    for (content, reason) in [
        (&b"no library at all, but long enough to have a header: ................"[..], "invalid ELF header"),
        (b"", "file too short"),
        (b"\x7fELF", "file too short"),
    ] {
        fs::write(&library, content).unwrap();
        let said = devices(folder.path());
        assert!(said.contains(reason) && said.contains("libcuda.so.1"), "{said}");
        assert!(!said.contains("not found"), "{said}");
    }
}

#[test]
fn driver_library_cut_short_is_refused_at_any_length() {
    let folder = TempDir::new().unwrap();
    let library = folder.path().join("libcuda.so.1");
    // Any ELF file does: the loader would die of it before it looks for a symbol. What debuggers
    // read comes after the segments.
    let whole = fs::read(env!("CARGO_BIN_EXE_tegula")).unwrap();
    for part in [1, 2, 5, 10] {
        fs::write(&library, &whole[..whole.len() * part / 100]).unwrap();
        let said = devices(folder.path());
        assert!(said.contains("libcuda.so.1 is truncated: it has "), "{part} %: {said}");
    }
    let Some(fake) = fake() else { return };
    let whole = fs::read(fake.path().join("libcuda.so.1")).unwrap();
    // From below the headers up to the whole file; all of it works.
    for length in (0..whole.len()).step_by(whole.len() / 50) {
        fs::write(&library, &whole[..length]).unwrap();
        devices(folder.path());
    }
    fs::write(&library, &whole).unwrap();
    assert!(devices(folder.path()).contains("cuda:0   Fake GPU"));
}

#[test]
#[ignore = "long; .ci/run runs it"]
fn driver_failing_at_any_call_of_a_command_is_one_line_or_a_success() {
    let Some(folder) = fake() else { return };
    for (line, least) in [("devices", 15), ("doctor", 60), ("mul a.csv a.csv --device cuda:0 -o c.npy", 60)] {
        for (first, code) in [(1, "999"), (2, "2")] {
            // In the quick run each error covers every second call.
            let (first, step) = if full() { (1, 1) } else { (first, 2) };
            for n in (first..).step_by(step) {
                let number = n.to_string();
                let variables =
                    [("FAKE_CUDA_FAIL_AT", &number[..]), ("FAKE_CUDA_FAIL_CODE", code), ("FAKE_CUDA_REPORT", "report")];
                let Output { status, stderr, .. } = run(folder.path(), line, &variables);
                let (said, report) =
                    (String::from_utf8(stderr).unwrap(), fs::read_to_string(folder.path().join("report")));
                let report = report.unwrap_or_else(|_| panic!("{line}, call {n}: {status}, no report: {said}"));
                let at = format!("{line}, call {n}, error {code}, report {report:?}");
                // Some go on without the GPU, or without what the call was for.
                match status.code() {
                    Some(0) => {}
                    Some(1) => {
                        let errors = said.lines().filter(|line| line.starts_with("error: ")).count();
                        assert_eq!((errors, said.lines().count()), (1, 1), "{at}: {said}");
                    }
                    _ => panic!("{at}: {status}: {said}"),
                }
                let [calls, _, failed] = report.split_whitespace().collect::<Vec<_>>()[..] else { panic!("{at}") };
                if failed == "-" {
                    assert!(status.success() && n > least, "{at}: {said}");
                    println!("{line}: {calls} calls");
                    break;
                }
            }
        }
    }
}

/// Kernels do nothing on the fake device.
#[test]
fn tune_kernel_with_a_wrong_result_is_an_error_and_not_kept() {
    let Some(folder) = fake() else { return };
    let Output { status, stdout, stderr } = run(folder.path(), "tune --m 64 --dtype f32", &[]);
    let (table, said) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(table.contains("element (0, 0, 0) is NaN; the CPU computes"), "{table}");
    assert!(status.code() == Some(1) && said.contains("1 of 1 rows could not be measured"), "{said}");
    let mut files = fs::read_dir(folder.path().join("cache")).unwrap().map(|entry| entry.unwrap().path());
    assert!(files.all(|path| path.extension().is_some_and(|extension| extension == "lock")));
}
