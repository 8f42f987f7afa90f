//! Atomic replacement under signals, limits and full devices.
//!
//! The old or the complete new file remains, and no other file.
#![cfg(target_os = "linux")]

use std::env;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use crate::common::{self, names, npy, one_line, scratch};

/// Bytes of the array.
const SIZE: u64 = 64 << 20;
const OLD: &[u8] = b"the file that was there";

/// Creates a sparse file of SIZE bytes with a nonzero last byte.
fn put_input(folder: &Path) {
    let mut file = File::create(folder.join("in.npy")).unwrap();
    file.write_all(&npy("'|i1'", &format!("({SIZE},)"), &[])).unwrap();
    file.set_len(128 + SIZE - 1).unwrap();
    File::options().append(true).open(folder.join("in.npy")).unwrap().write_all(b"!").unwrap();
}

/// Whether the output is the complete new file.
///
/// Panics if it is neither the old nor the new one, or if other files exist.
fn is_new(folder: &Path, output: &str, old: Option<&[u8]>) -> bool {
    let expected = if folder.join(output).exists() { vec!["in.npy", output] } else { vec!["in.npy"] };
    assert_eq!(names(folder), expected);
    let Ok(mut file) = File::open(folder.join(output)) else {
        assert!(old.is_none(), "the old file is gone");
        return false;
    };
    let mut start = vec![0; OLD.len()];
    file.read_exact(&mut start).unwrap();
    if old.is_some_and(|old| old == start) {
        assert_eq!(file.metadata().unwrap().len(), OLD.len() as u64);
        return false;
    }
    assert_eq!(file.metadata().unwrap().len(), 128 + SIZE, "the new file is incomplete");
    let (mut found, mut given) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    let mut input = File::open(folder.join("in.npy")).unwrap();
    file.seek(SeekFrom::Start(128)).unwrap();
    input.seek(SeekFrom::Start(128)).unwrap();
    for _ in 0..SIZE >> 20 {
        file.read_exact(&mut found).unwrap();
        input.read_exact(&mut given).unwrap();
        assert!(found == given, "the new file is incomplete");
    }
    true
}

/// Converts, with an optional signal after `wait`.
///
/// The output initially has content `old`, or does not exist.
fn convert_until(
    folder: &Path,
    wait: Duration,
    signal: Option<Signal>,
    old: Option<&[u8]>,
) -> (ExitStatus, bool, Duration) {
    match old {
        Some(old) => fs::write(folder.join("out.npy"), old).unwrap(),
        None => fs::remove_file(folder.join("out.npy")).unwrap_or_default(),
    }
    let start = Instant::now();
    let mut child = Command::new(common::convert());
    let mut child = child.args(["in.npy", "out.npy"]).current_dir(folder).spawn().unwrap();
    if let Some(signal) = signal {
        sleep(wait);
        // The process may have exited already.
        let _ = kill_process(Pid::from_child(&child), signal);
    }
    let status = child.wait().unwrap();
    let duration = start.elapsed();
    (status, is_new(folder, "out.npy", old), duration)
}

/// Sends a signal at twenty moments of a write.
fn signal_at_any_moment(signal: Signal) {
    let folder = scratch();
    put_input(folder.path());
    let (status, new, duration) = convert_until(folder.path(), Duration::ZERO, None, Some(OLD));
    assert!(status.success() && new);
    let mut replaced = 0;
    for step in 0..20 {
        let old = (step % 3 > 0).then_some(OLD);
        let (status, new, _) = convert_until(folder.path(), duration * step / 20, Some(signal), old);
        // A signal before publication leaves the old file; a later one still terminates the program
        // as usual.
        match status.signal() {
            Some(by) => assert_eq!(by, signal.as_raw()),
            None => assert!(status.success() && new, "{status}"),
        }
        replaced += u32::from(new);
    }
    println!("{signal:?}: {replaced} of 20 files were complete before it came");
}

#[test]
fn write_killed_leaves_the_old_or_the_new_file() {
    signal_at_any_moment(Signal::KILL);
}

#[test]
fn write_after_sigint_leaves_the_old_or_the_new_file() {
    signal_at_any_moment(Signal::INT);
}

#[test]
fn write_after_sigterm_leaves_the_old_or_the_new_file() {
    signal_at_any_moment(Signal::TERM);
}

#[test]
fn write_keeps_sighup_ignored() {
    let folder = scratch();
    put_input(folder.path());
    let mut shell = Command::new("sh");
    shell.args(["-c", "trap '' HUP; \"$0\" in.npy out.npy & sleep 0.02; kill -HUP $!; wait $!"]);
    assert!(shell.arg(common::convert()).current_dir(folder.path()).status().unwrap().success());
    assert!(is_new(folder.path(), "out.npy", None));
}

#[test]
fn write_beyond_the_file_size_limit_is_an_error() {
    let folder = scratch();
    put_input(folder.path());
    fs::write(folder.path().join("out.npy"), OLD).unwrap();
    for step in 0..20u64 {
        // Blocks of 512 or 1024 bytes; prime steps place the limits anywhere in a page.
        let limit = (SIZE / 1024 * step / 20).next_multiple_of(7);
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("ulimit -f {limit}; exec \"$0\" in.npy out.npy")]);
        let stderr = one_line(&shell.arg(common::convert()).current_dir(folder.path()).output().unwrap());
        assert_eq!(
            stderr,
            format!(
                "error: out.npy: cannot be written: the limit on the size of files is too low; {SIZE} bytes are needed\n"
            )
        );
        assert!(!is_new(folder.path(), "out.npy", Some(OLD)));
    }
}

/// Whether a private file system can be mounted.
///
/// Otherwise the test is skipped, unless TEGULA_REQUIRE_TMPFS=1.
fn can_mount(folder: &Path) -> bool {
    let mut shell = Command::new("unshare");
    shell.args(["-Ur", "-m", "mount", "-t", "tmpfs", "none"]).arg(folder);
    let can = shell.output().is_ok_and(|output| output.status.success());
    let required = env::var("TEGULA_REQUIRE_TMPFS").is_ok_and(|required| required == "1");
    assert!(can || !required, "no tmpfs can be mounted here, which TEGULA_REQUIRE_TMPFS=1 asks for");
    if !can {
        eprintln!("skipped: no tmpfs can be mounted here (unshare -Ur -m mount -t tmpfs)");
    }
    can
}

#[test]
fn write_to_a_full_device_is_an_error() {
    const DATA: usize = 1 << 20;
    let folder = scratch();
    fs::create_dir(folder.path().join("small")).unwrap();
    if !can_mount(&folder.path().join("small")) {
        return;
    }
    fs::write(folder.path().join("in.npy"), npy("'|i1'", &format!("({DATA},)"), &vec![7; DATA])).unwrap();
    // Copies the old file and the list of names to the outer directory.
    let script = "mount -t tmpfs -o size=$1k none small && printf old > small/keep && cd small || exit 9
        \"$0\" ../in.npy out.npz; code=$?; ls -A > ../names; cat keep > ../kept; test ! -e out.npz || cp out.npz ..; exit $code";
    let (mut early, mut late, mut complete) = (0, 0, 0);
    // One page holds the other file. With exactly the size of the data, the headers do not fit.
    let steps = (0..15).map(|step| 8 + DATA / 1024 * step / 15 / 4 * 4).chain([1020, 1024, 1028, 1032, 1036]);
    for size in steps {
        let mut shell = Command::new("unshare");
        shell.args(["-Ur", "-m", "sh", "-c", script]).arg(common::convert()).arg(size.to_string());
        let output = shell.current_dir(folder.path()).output().unwrap();
        let found = fs::read_to_string(folder.path().join("names")).unwrap();
        assert_eq!(fs::read(folder.path().join("kept")).unwrap(), b"old");
        if output.status.success() {
            assert_eq!(found, "keep\nout.npz\n");
            let content = fs::read(folder.path().join("out.npz")).unwrap();
            assert!(content.windows(4096).any(|window| window == [7; 4096]) && content.len() > DATA);
            complete += 1;
            continue;
        }
        let stderr = one_line(&output);
        assert_eq!(found, "keep\n", "{stderr}");
        let start =
            "error: out.npz: cannot be written: no space left on the device holding '.'; 1048576 bytes are needed";
        assert!(stderr.starts_with(start), "{stderr}");
        *(if stderr.contains("are free") { &mut early } else { &mut late }) += 1;
    }
    assert!(early > 0 && late > 0 && complete > 0, "{early} rejected early, {late} late, {complete} written");
}
