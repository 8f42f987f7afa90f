//! Runs libFuzzer on the targets of `fuzz/`: `cargo xtask fuzz [SECONDS]`, by default 60 each.
//!
//! The targets are built with coverage instrumentation for libFuzzer, which stable Rust passes on
//! to LLVM. They start from `fuzz/corpus`. New inputs stay in `target/fuzz`, inputs that fail go to
//! `fuzz/artifacts`. Without a C++ compiler for libFuzzer the task is skipped, unless
//! `TEGULA_REQUIRE_FUZZ` is 1.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::{env, thread};

use crate::{Outcome, root};

/// Number of concurrent targets.
const CONCURRENCY: usize = 2;

/// Compiler options that count edges and trace comparisons for libFuzzer.
const COVERAGE: [&str; 5] = [
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
];

/// Time limit per input in seconds.
const TIMEOUT: u32 = 10;
/// Memory limit per target in MiB.
const MEMORY: u32 = 512;
/// Length limit of generated inputs in bytes.
const MAX_LENGTH: u32 = 512;

/// Builds all targets and runs each for some seconds.
pub fn run(seconds: &str) -> Outcome {
    let seconds: u32 = seconds.parse().map_err(|_| "usage: cargo xtask fuzz [SECONDS]")?;
    if !has_compiler() {
        return skip();
    }
    let host = host()?;
    build(&host)?;
    let programs = root().join("target/fuzz").join(&host).join("fuzz");
    let waiting = Mutex::new(targets()?);
    let failures = Mutex::new(Vec::new());
    let next = || waiting.lock().unwrap_or_else(|e| e.into_inner()).pop();
    let work = || {
        while let Some(target) = next() {
            if let Err(why) = search(&programs, &target, seconds) {
                failures.lock().unwrap_or_else(|e| e.into_inner()).push(why);
            }
        }
    };
    thread::scope(|scope| (0..CONCURRENCY).for_each(|_| drop(scope.spawn(work))));
    let failures = failures.into_inner().unwrap_or_else(|e| e.into_inner());
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

/// Whether the C++ compiler for libFuzzer is available.
fn has_compiler() -> bool {
    let compiler = env::var_os("CXX").unwrap_or_else(|| "c++".into());
    Command::new(compiler).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn skip() -> Outcome {
    if env::var("TEGULA_REQUIRE_FUZZ").is_ok_and(|v| v == "1") {
        return Err("C++ compiler not found: install g++ or set CXX".into());
    }
    println!("skipped: C++ compiler not found");
    Ok(())
}

/// Target triple of the host. Naming it keeps the instrumentation out of build scripts.
fn host() -> Result<String, String> {
    let output = Command::new("rustc").arg("-vV").output().map_err(|e| format!("rustc: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    let host = text.lines().find_map(|line| line.strip_prefix("host: "));
    host.map(str::to_string).ok_or_else(|| "rustc -vV reports no host".into())
}

fn build(host: &str) -> Outcome {
    let status = Command::new("cargo")
        .args(["build", "--package", "tegula-fuzz", "--bins", "--features", "libfuzzer", "--profile", "fuzz"])
        .args(["--target", host, "--target-dir", "target/fuzz"])
        .env("RUSTFLAGS", COVERAGE.join(" "))
        .current_dir(root())
        .status()
        .map_err(|e| format!("cargo: {e}"))?;
    if status.success() { Ok(()) } else { Err("building the fuzz targets failed".into()) }
}

/// Names of the targets, from the corpora.
fn targets() -> Result<Vec<String>, String> {
    let folder = root().join("fuzz/corpus");
    let entries = fs::read_dir(&folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut names: Vec<_> = entries.iter().map(|entry| entry.file_name().to_string_lossy().into_owned()).collect();
    names.sort_unstable_by(|a, b| b.cmp(a));
    Ok(names)
}

/// Runs one target; an error includes the command to reproduce it.
fn search(programs: &Path, target: &str, seconds: u32) -> Outcome {
    let root = root();
    let program = programs.join(target);
    let artifacts = folder(root.join("fuzz/artifacts").join(target))?;
    let found = folder(root.join("target/fuzz/found").join(target))?;
    let log = root.join("target/fuzz").join(target).with_extension("log");
    let failed = |e: std::io::Error| format!("{}: {e}", program.display());
    let output = File::create(&log).map_err(failed)?;
    let mut command = Command::new(&program);
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-timeout={TIMEOUT}"))
        .arg(format!("-rss_limit_mb={MEMORY}"))
        .arg(format!("-max_len={MAX_LENGTH}"))
        // All lengths from the start: corpus inputs are long, and a truncated header is useless.
        .arg("-len_control=0")
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg("-print_final_stats=1");
    let dictionary = root.join("fuzz/dictionaries").join(target);
    if dictionary.exists() {
        command.arg(format!("-dict={}", dictionary.display()));
    }
    command.arg(found).arg(root.join("fuzz/corpus").join(target));
    let errors = output.try_clone().map_err(failed)?;
    let status = command.stdin(Stdio::null()).stdout(output).stderr(errors).status().map_err(failed)?;
    let text = String::from_utf8_lossy(&fs::read(&log).map_err(failed)?).into_owned();
    if status.success() {
        println!("{target}: {}", summary(&text));
        return Ok(());
    }
    let written = text.lines().find_map(|line| line.split_once("Test unit written to ")).map(|(_, path)| path);
    let command_line = written.map_or(format!("see {}", log.display()), |path| format!("{} {path}", program.display()));
    Err(format!("{target} failed: {}\n    reproduce: {command_line}", reason(&text)))
}

fn folder(path: PathBuf) -> Result<PathBuf, String> {
    fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    Ok(path)
}

/// Number of executed inputs and covered edges.
fn summary(log: &str) -> String {
    let tried = log.lines().rev().find_map(|line| line.strip_prefix("stat::number_of_executed_units:")).unwrap_or("?");
    let edges = log.lines().rev().find_map(|line| line.split_once(" cov: ")?.1.split(' ').next()).unwrap_or("?");
    format!("{} inputs, {edges} edges", tried.trim())
}

/// Panic message, or libFuzzer's error.
fn reason(log: &str) -> String {
    let mut lines = log.lines();
    match lines.find(|line| line.contains("panicked at ") || line.contains("ERROR: libFuzzer")) {
        Some(line) if line.contains("panicked at ") => format!("{line} {}", lines.next().unwrap_or_default()),
        Some(line) => line.into(),
        None => "no reason reported".into(),
    }
}
