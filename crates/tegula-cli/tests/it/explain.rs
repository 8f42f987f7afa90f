//! `tegula explain` without a terminal: counts, text, trace files, pages and errors.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

use crate::full;

fn explain(place: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tegula"));
    command.arg("explain").args(line.split_whitespace()).current_dir(place).env_remove("TEGULA_LOG");
    without_toolkit(&mut command).output().unwrap()
}

/// In the quick run a page has no machine code: the tools take most of its time, and the tests of
/// `tegula-explain` use them.
fn without_toolkit(command: &mut Command) -> &mut Command {
    match full() {
        true => command,
        false => command.env_remove("TEGULA_PTXAS").env_remove("CUDA_HOME"),
    }
}

/// The output of a command that must succeed.
fn output_of(place: &Path, line: &str) -> String {
    let output = explain(place, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn figures(line: &str) -> Value {
    serde_json::from_str(&output_of(Path::new("."), &format!("{line} --json"))).unwrap()
}

/// The one-line error of a command, and the exit code.
fn refused(place: &Path, line: &str) -> (String, i32) {
    let output = explain(place, line);
    let (err, out) = (String::from_utf8(output.stderr).unwrap(), String::from_utf8(output.stdout).unwrap());
    assert_eq!((err.lines().count(), out.as_str()), (1, ""), "{line}: {err}");
    (err, output.status.code().unwrap())
}

/// A matrix of f32 as a file.
fn matrix(path: &Path, [rows, cols]: [usize; 2], numbers: &[f32]) {
    let dict = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {cols}), }}\n");
    let mut bytes = [b"\x93NUMPY\x01\x00", &(dict.len() as u16).to_le_bytes()[..], dict.as_bytes()].concat();
    numbers.iter().for_each(|number| bytes.extend(number.to_le_bytes()));
    fs::write(path, bytes).unwrap();
}

#[test]
fn tiling_halves_loads_per_thread() {
    let (naive, tiled) = (figures("--kernel naive"), figures("--kernel tiled"));
    assert_eq!((&naive["per_thread"]["global_loads"], &tiled["per_thread"]["global_loads"]), (&8.into(), &4.into()));
    assert_eq!(tiled["per_thread"]["shared_loads"], 8);
    assert_eq!((&tiled["grid"], &tiled["block"]), (&serde_json::json!([2, 2, 1]), &serde_json::json!([2, 2, 1])));
    assert_eq!((&tiled["steps"], &tiled["barriers_per_block"]), (&2.into(), &4.into()));
    assert_eq!((&naive["steps"], &naive["barriers_per_block"]), (&4.into(), &0.into()));
    let wasteful = figures("--kernel K5");
    assert_eq!((&wasteful["barriers_per_block"], &wasteful["findings"][0]["severity"]), (&6.into(), &"note".into()));
}

#[test]
fn counters_equal_those_of_check() {
    let sizes = "--m 33 --n 20 --k 17 --dtype i32";
    let explained = figures(&format!("--kernel K3 {sizes}"));
    let checked = Command::new(env!("CARGO_BIN_EXE_tegula"))
        .args(format!("check K3 {sizes} --json").split(' '))
        .output()
        .unwrap();
    let checked: Value = serde_json::from_slice(&checked.stdout).unwrap();
    assert_eq!(explained["counters"], checked["counters"]);
    assert_eq!(explained["kernel"], checked["kernel"]);
    assert_eq!([&explained["m"], &explained["n"], &explained["k"]], [33, 20, 17].map(Value::from).each_ref());
    assert_eq!((&explained["steps"], &explained["per_thread"]["global_loads"]), (&2.into(), &4.into()));
}

#[test]
fn trace_file_prints_the_same_text() {
    let place = TempDir::new().unwrap();
    let line = "--m 5 --n 3 --k 7 --dtype f64";
    let story = output_of(place.path(), line);
    assert_eq!(output_of(place.path(), &format!("{line} --trace t.trace")), "");
    assert_eq!(output_of(place.path(), "t.trace"), story);
    let other = output_of(place.path(), "t.trace --block 1,2 --thread 0,0");
    assert!(other.contains("thread 0,0 of block 1,2 writes c42"), "{other}");
    // A refused trace keeps the file.
    let before = fs::read(place.path().join("t.trace")).unwrap();
    let (why, code) = refused(place.path(), "--m 64 --n 64 --k 99999 --blocks 0,0 --trace t.trace");
    assert!(why.contains("--steps 0:4") && code == 1, "{why}");
    assert_eq!(fs::read(place.path().join("t.trace")).unwrap(), before);
}

#[test]
fn one_block_of_many_can_be_recorded() {
    let place = TempDir::new().unwrap();
    let line = "--m 1024 --n 1024 --k 1024 --tile 32 --blocks 5,7 --steps 0:2 --trace block.trace";
    output_of(place.path(), line);
    let story = output_of(place.path(), "block.trace --thread 3,4");
    assert!(story.contains("recorded: blocks 5,7, steps 0..2"), "{story}");
    assert!(story.contains("A[224..256, 0..32] → tile_a, B[0..32, 160..192] → tile_b"), "{story}");
    assert!(story.contains("thread 3,4 of block 5,7 writes c[228,163]"), "{story}");
    assert!(story.lines().all(|line| line.chars().count() <= 110), "{story}");
}

#[test]
fn files_are_multiplied() {
    let place = TempDir::new().unwrap();
    matrix(&place.path().join("a.npy"), [2, 3], &[0.5, -1., 2., 3., 4., 5.]);
    let story = output_of(place.path(), "a.npy a.npy --tb --thread 1,0");
    assert!(story.contains("c01 = a00·b01 + a01·b11 + a02·b21 + 0·0 = 0.5·3 + -1·4 + 2·5 + 0·0 = 7.5"), "{story}");
    let (why, code) = refused(place.path(), "a.npy a.npy");
    assert!(why.contains("add --tb") && code == 1, "{why}");
    assert!(
        output_of(place.path(), "a.npy a.npy --ta --dtype i32").contains("c00 = a00·b00 + a01·b10 = 0·0 + 3·3 = 9")
    );
}

#[test]
fn injected_bugs_are_reported_with_their_phase() {
    let place = Path::new(".");
    let race = output_of(place, "--plant missing-first-barrier");
    assert!(race.contains("error: race (step 0, multiply)"), "{race}");
    let ragged = output_of(place, "--kernel K4 --tile 2 --m 5 --n 5 --k 4");
    assert!(ragged.contains("error: unwritten: 9 of 25 elements of C are never written"), "{ragged}");
    let wasteful = output_of(place, "--kernel K5");
    assert!(wasteful.contains("for nothing") && wasteful.contains("note: redundant-barrier"), "{wasteful}");
}

#[test]
fn blocked_kernels_are_explained() {
    let place = Path::new(".");
    for (kernel, product) in [
        ("mma_64x64x32_warp32x32_thread16x8_stages3", "Tensor Cores"),
        ("register_128x128x8_warp64x64_thread8x16_stages4_blocks2", "writes c[0,0]"),
        ("mma_64x64x32_warp32x32_thread16x8_stages3:2", "Tensor Cores"),
    ] {
        let output = explain(place, &format!("--kernel {kernel} --k 64"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains(product), "{kernel}: {err}{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
    }
}

#[test]
fn invalid_requests_are_one_line_errors() {
    let place = TempDir::new().unwrap();
    fs::write(place.path().join("no.trace"), "tegula trace 1\nbut then something else").unwrap();
    fs::write(place.path().join("text"), "1 2 3 4 5 6 7 8 9").unwrap();
    for (line, says, code) in [
        ("no.trace", "no.trace: invalid trace", 1),
        ("text", "the first line is not", 1),
        ("none.trace", "file not found", 1),
        ("text text", "text", 1),
        ("--kernel K9", "K9", 2),
        ("--tile 33", "33", 1),
        ("--block 2,0", "block 2,0 is out of range: the grid has 2×2 blocks", 1),
        ("--thread 2,0", "thread 2,0 is out of range", 1),
        ("--blocks 9,9", "--blocks 9,9: the grid has", 1),
        ("--m 0", "nothing was recorded", 1),
        ("--trace none/t.trace", "its directory does not exist", 1),
        ("no.trace --json", "a trace file allows --block, --thread and --plain only", 2),
        ("--m 64 --n 64 --k 99999999 --blocks 0,0", "would take hours", 1),
        ("--m 64 --n 64 --k 99999 --blocks 0,0", "per-thread values", 1),
        ("--steps 7:9", "", 0),
    ] {
        if code == 0 {
            output_of(place.path(), line);
            continue;
        }
        let (why, found) = refused(place.path(), line);
        assert!(why.starts_with("error: ") && why.contains(says) && found == code, "{line}: {found}: {why}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn full_disk_is_a_one_line_error() {
    let (why, code) = refused(Path::new("."), "--trace /dev/full");
    assert!(why.contains("no space left") && code == 1, "{why}");
    let line = "explain --json > /dev/full";
    let output = Command::new("sh")
        .args(["-c", &format!("\"$T\" {line}")])
        .env("T", env!("CARGO_BIN_EXE_tegula"))
        .output()
        .unwrap();
    let why = String::from_utf8(output.stderr).unwrap();
    assert!(why.contains("standard output cannot be written") && output.status.code() == Some(1), "{why}");
}

#[test]
fn page_is_replaced_atomically() {
    let folder = TempDir::new().unwrap();
    let page = folder.path().join("page.html");
    assert_eq!(output_of(folder.path(), "--html page.html --kernel naive --dtype i32"), "");
    let whole = fs::read_to_string(&page).unwrap();
    assert!(whole.starts_with("<!doctype html>") && whole.trim_end().ends_with("</html>"));
    let refusals = [
        (
            "--html page.html --kernel register_64x64x16_warp32x32_thread8x4_stages3_blocks2",
            1,
            "a page shows naive, tiled and K1 to K6",
        ),
        ("--html page.html --m 65", 1, "a page shows products of 1 to 64"),
        ("--html page.html --tile 33", 1, "tile 33"),
        ("--html nowhere/page.html", 1, "nowhere"),
        ("--serve --kernel mma", 1, "a page shows naive, tiled and K1 to K6"),
    ];
    for (line, code, why) in refusals {
        let (said, exit) = refused(folder.path(), line);
        assert!(exit == code && said.contains(why), "{line}: {exit} {said}");
    }
    assert_eq!(fs::read_to_string(&page).unwrap(), whole, "what was there is kept");
}

#[test]
fn pipeline_has_a_timeline() {
    let place = TempDir::new().unwrap();
    // Two blocks of a cluster: the second one's half of B comes from both.
    let line = "--kernel hopper_64x128x64_consumers1_stages2_cluster2x1 --dtype bf16 --m 128 --block 1,0";
    let story = output_of(place.path(), line);
    assert!(story.contains("pipeline of block 1,0") && story.contains("\nwaits\n"), "{story}");
    assert!(story.contains("TMA stores C") && !story.contains("unwritten"), "{story}");
    assert!(story.lines().all(|line| line.chars().count() <= 110), "{story}");
    output_of(
        place.path(),
        "--kernel hopper_64x128x64_consumers1_stages2_cluster2x1 --dtype bf16 --m 128 --trace t.trace",
    );
    assert_eq!(output_of(place.path(), "t.trace --block 1,0"), story);
    assert_eq!(output_of(place.path(), &format!("{line} --html page.html")), "");
    let page = fs::read_to_string(place.path().join("page.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("block 1,0") && page.contains("<svg "));
    // A long timeline shows its start and end.
    let long = output_of(place.path(), "--kernel hopper_64x64x64_consumers1_stages3 --k 4096");
    let row = long.lines().find(|line| line.trim_start().starts_with("consumer ") && line.contains(" … ")).unwrap();
    assert!(row.contains("×0 ") && row.contains("×63"), "{row}");
    // Element-wise stores are traced.
    let plain = output_of(place.path(), "--kernel hopper_64x64x64_consumers1_stages2 --m 61 --n 59 --k 200");
    assert!(plain.contains("pipeline of block 0,0") && !plain.contains("unwritten"), "{plain}");
    // DSMEM reductions are in the timeline.
    let shared = output_of(place.path(), "--kernel hopper_64x64x64_consumers1_stages2_clusterk2 --k 192 --block 1,0");
    let row = shared.lines().find(|line| line.trim_start().starts_with("consumer ")).unwrap();
    assert!(row.contains("×0 ×0 <0 <0 .") && shared.contains("for partial sums of other blocks"), "{shared}");
    assert!(!shared.contains("deadlock") && !shared.contains("unwritten"), "{shared}");
    let (why, code) = refused(place.path(), "--kernel hopper_64x64x64_consumers1_stages2 --k 0 --html none.html");
    assert!(why.contains("nothing to multiply") && code == 1, "{why}");
}

#[test]
fn page_is_served_locally() {
    let mut server = without_toolkit(&mut Command::new(env!("CARGO_BIN_EXE_tegula")))
        .args(["explain", "--serve", "--tile", "4", "--dtype", "f64"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let host = line.trim().strip_prefix("http://").and_then(|rest| rest.strip_suffix('/')).unwrap().to_string();
    assert!(host.starts_with("127.0.0.1:"), "{line}");
    let mut stream = TcpStream::connect(&host).unwrap();
    write!(stream, "GET / HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("<!doctype html>"));
    // The port is taken now.
    let output = explain(Path::new("."), &format!("--serve {}", host.rsplit(':').next().unwrap()));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.code() == Some(1) && said.contains("cannot be used"), "{said}");
    assert!(said.starts_with("starting the server"), "it says so before the first product is traced: {said}");
    server.kill().unwrap();
    server.wait().unwrap();
}

/// The digits of the README, 1797×64, times their transpose: 113×113 blocks.
#[test]
fn product_too_large_for_a_trace_is_sampled_by_one_block() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples");
    let output = explain(&examples, "digits.npy digits.npy --tb");
    let (text, note) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    assert!(output.status.success() && text.contains("recorded: blocks 0,0"), "{note}{text}");
    assert_eq!(note.lines().count(), 1, "{note}");
    assert!(
        note.contains("113×113 blocks is too large: tracing block 0,0 only; choose others with --blocks"),
        "{note}"
    );
    let other = output_of(&examples, "digits.npy digits.npy --tb --block 3,2 --thread 1,0");
    assert!(other.contains("thread 1,0 of block 3,2 writes c[32,49]"), "{other}");
}

#[test]
fn page_written_names_the_file_to_open() {
    let folder = TempDir::new().unwrap();
    for kernel in ["naive", "hopper_64x64x64_consumers1_stages2"] {
        let output = explain(folder.path(), &format!("--html page.html --kernel {kernel}"));
        let note = String::from_utf8(output.stderr).unwrap();
        assert!(
            note.starts_with("wrote /") && note.ends_with("/page.html; open it in a browser\n"),
            "{kernel}: {note}"
        );
    }
    let quiet = explain(folder.path(), "--html page.html --kernel naive --quiet");
    assert!(quiet.status.success() && quiet.stderr.is_empty());
}
