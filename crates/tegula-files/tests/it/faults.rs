//! Fault injection: file conversions whose n-th system call fails, for every n until no call fails.
//!
//! Each run ends with one line and exit code 1, with the old file unchanged, or with the complete
//! new file. A run that is killed before a call leaves one of these and at most a temporary file,
//! which the next run removes.
//!
//! `faults/calls.c`, compiled here, interposes functions of the C library. The crate `rustix` would
//! call the kernel directly, so these tests enable its feature `use-libc`. Without a C compiler the
//! tests are skipped; `TEGULA_REQUIRE_CXX=1` makes that a failure. `CXX` selects a compiler.
#![cfg(target_os = "linux")]

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::{env, fs};

use crate::common::{convert, floats, names, npy, one_line, scratch};

const OLD: &[u8] = b"the file that was existing";
/// More calls than a conversion makes.
const MAX_CALLS: usize = 2000;

/// Output file before a conversion.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Existing {
    Nothing,
    /// A file with content [`OLD`] and non-default permissions.
    File,
    /// A link to such a file.
    Link,
}

/// A conversion in its own directory.
struct Conversion {
    folder: tempfile::TempDir,
    shim: PathBuf,
    input: &'static str,
    output: &'static str,
    existing: Existing,
    tmpfile: bool,
    /// Expected output.
    expected: Vec<u8>,
}

/// Builds the library; `None` if no compiler is found and none is required.
fn shim(folder: &Path) -> Option<PathBuf> {
    let compiler = env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let (source, shim) = (Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/faults/calls.c"), folder.join("calls.so"));
    let mut command = Command::new(&compiler);
    command.args("-x c -std=gnu11 -O1 -Wall -Werror -shared -fPIC -o".split(' ')).arg(&shim).arg(source);
    match command.status() {
        Ok(status) => {
            assert!(status.success(), "{command:?}: {status}");
            Some(shim)
        }
        Err(message) => {
            let required = env::var("TEGULA_REQUIRE_CXX").is_ok_and(|required| required == "1");
            assert!(!required, "{} does not run, which TEGULA_REQUIRE_CXX=1 asks for: {message}", compiler.display());
            eprintln!("skipped: {} does not run", compiler.display());
            None
        }
    }
}

impl Conversion {
    fn new(shim: &Path, [input, output]: [&'static str; 2], existing: Existing, tmpfile: bool) -> Self {
        let folder = scratch();
        let a = npy("'<f4'", "(20, 30)", &floats(600));
        fs::write(folder.path().join("in.npy"), a).unwrap();
        if input != "in.npy" {
            let mut command = Command::new(convert());
            assert!(command.args(["in.npy", input]).current_dir(folder.path()).status().unwrap().success());
            fs::remove_file(folder.path().join("in.npy")).unwrap();
        }
        let mut new = Conversion { folder, shim: shim.into(), input, output, existing, tmpfile, expected: Vec::new() };
        new.reset();
        new.succeeds();
        new.expected = fs::read(new.path(output)).unwrap();
        new
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Restores the initial files and removes all others.
    fn reset(&self) {
        for name in names(self.folder.path()).iter().filter(|name| *name != self.input) {
            fs::remove_file(self.path(name)).unwrap();
        }
        let file = match self.existing {
            Existing::Nothing => return,
            Existing::File => self.output,
            Existing::Link => {
                symlink("file", self.path(self.output)).unwrap();
                "file"
            }
        };
        fs::write(self.path(file), OLD).unwrap();
        fs::set_permissions(self.path(file), fs::Permissions::from_mode(0o640)).unwrap();
    }

    fn command(&self) -> Command {
        let mut command = Command::new(convert());
        command.args([self.input, self.output]).current_dir(self.folder.path()).env("LD_PRELOAD", &self.shim);
        if !self.tmpfile {
            command.env("FAULT_NO_TMPFILE", "1");
        }
        command
    }

    fn succeeds(&self) {
        let output = self.command().output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }

    /// Runs with a fault at call n. Returns the name of the failed call as well, if any.
    fn fault(&self, n: usize, kind: &str, errno: i32, calls: &str) -> (Output, Option<String>) {
        // Outside the directory, whose names are checked.
        let report = self.shim.with_file_name("report");
        let _ = fs::remove_file(&report);
        let mut command = self.command();
        command.env("FAULT_AT", n.to_string()).env("FAULT_KIND", kind).env("FAULT_ERRNO", errno.to_string());
        command.env("FAULT_REPORT", &report);
        if !calls.is_empty() {
            command.env("FAULT_CALLS", calls);
        }
        (command.output().unwrap(), fs::read_to_string(report).ok())
    }

    /// Whether the output is the complete new file.
    ///
    /// Panics if it is neither the old nor the new one.
    fn is_new(&self, at: &str) -> bool {
        if self.existing == Existing::Link {
            assert!(self.path(self.output).is_symlink(), "{at}: the link is gone");
        }
        let found = fs::read(self.path(self.output)).ok();
        if self.existing != Existing::Nothing {
            let mode = fs::metadata(self.path(self.output)).unwrap().permissions().mode();
            assert_eq!(mode & 0o777, 0o640, "{at}: wrong permissions");
        }
        let new = found.as_ref() == Some(&self.expected);
        let old = if self.existing == Existing::Nothing { found.is_none() } else { found.as_deref() == Some(OLD) };
        assert!(new || old, "{at}: neither the old file nor the new one");
        new
    }

    /// Names other than the input, the output and its link target.
    fn left(&self) -> Vec<String> {
        let known = [self.input, self.output, "file"];
        names(self.folder.path()).into_iter().filter(|name| !known.contains(&&name[..])).collect()
    }

    /// Checks that a temporary file has a recognized name and that the next run removes it.
    fn next_run_removes_drafts(&self, at: &str) {
        let (left, base) = (self.left(), if self.existing == Existing::Link { "file" } else { self.output });
        let recognized = |name: &String| name.starts_with(&format!(".{base}.tegula-")) && name.ends_with(".tmp");
        assert!(left.len() <= 1 && left.iter().all(recognized), "{at}: {left:?}");
        self.succeeds();
        assert!(self.left().is_empty() && self.is_new(at), "{at}: {:?}", self.left());
    }
}

/// Conversions from and to each format, over no file, a file and a link.
///
/// Each with and without unnamed files.
fn for_each_conversion(mut work: impl FnMut(&Conversion)) {
    let folder = scratch();
    let Some(shim) = shim(folder.path()) else { return };
    let formats = [
        ["in.npy", "out.npy"],
        ["in.npz", "out.safetensors"],
        ["in.safetensors", "out.csv"],
        ["in.csv", "out.mtx"],
        ["in.mtx", "out.npz"],
    ];
    for (i, files) in formats.into_iter().enumerate() {
        for existing in [Existing::Nothing, Existing::File, Existing::Link] {
            // The writer does not depend on the output format.
            for tmpfile in [true, false] {
                if i == 0 || existing == Existing::Nothing && tmpfile {
                    work(&Conversion::new(&shim, files, existing, tmpfile));
                }
            }
        }
    }
}

const EIO: i32 = 5;
const ENOMEM: i32 = 12;
const EMFILE: i32 = 24;
const ENOSPC: i32 = 28;
const EINTR: i32 = 4;

#[test]
fn files_failed_call_leaves_the_old_file() {
    let mut seen = BTreeMap::<String, [usize; 2]>::new();
    for_each_conversion(|conversion| {
        for errno in [EIO, ENOSPC, ENOMEM, EMFILE] {
            for n in 1..MAX_CALLS {
                conversion.reset();
                let (output, failed) = conversion.fault(n, "error", errno, "");
                let Some(failed) = failed else {
                    assert!(output.status.success());
                    break;
                };
                let at = format!(
                    "{} to {} over {:?}, call {n}, {failed}, error {errno}",
                    conversion.input, conversion.output, conversion.existing
                );
                let new = conversion.is_new(&at);
                let counts = seen.entry(failed.clone()).or_default();
                if output.status.success() {
                    assert!(new, "{at}: success without a file");
                    counts[0] += 1;
                } else {
                    let stderr = one_line(&output);
                    // After publication only the directory is synced, whose errors are ignored.
                    assert!(!new, "{at}: {stderr}");
                    assert!(stderr.contains(conversion.input) || stderr.contains(conversion.output), "{at}: {stderr}");
                    counts[1] += 1;
                }
                if !conversion.left().is_empty() {
                    assert!(failed.starts_with("unlink"), "{at}: {:?} is left", conversion.left());
                    conversion.next_run_removes_drafts(&at);
                }
            }
        }
    });
    println!("calls that failed, and of them without and with an error: {seen:?}");
    for call in ["open", "read", "write", "fsync", "linkat", "mmap", "rename", "statx", "fchmod"] {
        assert!(seen.contains_key(call) || seen.is_empty(), "{call} never failed");
    }
}

#[test]
fn files_killed_process_leaves_the_old_or_the_new_file() {
    let mut left = BTreeMap::<String, usize>::new();
    let mut runs = 0;
    for_each_conversion(|conversion| {
        for n in 1..MAX_CALLS {
            conversion.reset();
            let (output, failed) = conversion.fault(n, "kill", EIO, "");
            let Some(failed) = failed else { break };
            let at = format!("{} over {:?}, killed at call {n}, {failed}", conversion.output, conversion.existing);
            assert_eq!(output.status.signal(), Some(9), "{at}");
            conversion.is_new(&at);
            runs += 1;
            if !conversion.left().is_empty() {
                *left.entry(failed).or_default() += 1;
            }
            conversion.next_run_removes_drafts(&at);
        }
    });
    println!("{runs} runs killed; a temporary file was left before {left:?}");
    assert!(runs == 0 || left.contains_key("rename"), "the moment before the last step never came: {left:?}");
}

#[test]
fn files_short_and_interrupted_calls_are_retried() {
    let mut runs = 0;
    for_each_conversion(|conversion| {
        for (kind, calls) in [("short", "read write"), ("error", "open read write fsync flock")] {
            for n in 1..MAX_CALLS {
                conversion.reset();
                let (output, failed) = conversion.fault(n, kind, EINTR, calls);
                let Some(failed) = failed else { break };
                let at = format!("{} to {}, {kind} {failed}, call {n}", conversion.input, conversion.output);
                assert!(output.status.success(), "{at}: {}", String::from_utf8_lossy(&output.stderr));
                assert!(conversion.is_new(&at) && conversion.left().is_empty(), "{at}");
                runs += 1;
            }
        }
    });
    println!("{runs} calls");
}
