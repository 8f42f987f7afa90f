//! `tegula explain` as programs use it: facts of the tiling articles as figures, traces that are kept, and what is refused.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

fn explain(place: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tegula"));
    command.arg("explain").args(line.split_whitespace()).current_dir(place).env_remove("TEGULA_LOG");
    command.output().unwrap()
}

/// What a line prints, if all is well.
fn told(place: &Path, line: &str) -> String {
    let output = explain(place, line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn figures(line: &str) -> Value {
    serde_json::from_str(&told(Path::new("."), &format!("{line} --json"))).unwrap()
}

/// The line that refuses, and the exit code.
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
fn tiling_halves_the_reads_of_a_thread() {
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
fn counters_are_those_of_check() {
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
fn a_kept_trace_tells_the_same_story() {
    let place = TempDir::new().unwrap();
    let line = "--m 5 --n 3 --k 7 --dtype f64";
    let story = told(place.path(), line);
    assert_eq!(told(place.path(), &format!("{line} --trace t.trace")), "");
    assert_eq!(told(place.path(), "t.trace"), story);
    let other = told(place.path(), "t.trace --block 1,2 --thread 0,0");
    assert!(other.contains("thread 0,0 of block 1,2 writes c42"), "{other}");
    // Written whole or not at all: what is there stays.
    let before = fs::read(place.path().join("t.trace")).unwrap();
    let (why, code) = refused(place.path(), "--m 4096 --n 4096 --k 4096 --tile 32 --trace t.trace");
    assert!(why.contains("--blocks 0,0") && code == 1, "{why}");
    assert_eq!(fs::read(place.path().join("t.trace")).unwrap(), before);
}

#[test]
fn one_block_of_many_can_be_kept() {
    let place = TempDir::new().unwrap();
    let line = "--m 1024 --n 1024 --k 1024 --tile 32 --blocks 5,7 --steps 0:2 --trace block.trace";
    told(place.path(), line);
    let story = told(place.path(), "block.trace --thread 3,4");
    assert!(story.contains("recorded: blocks 5,7, steps 0..2"), "{story}");
    assert!(story.contains("A[224..256, 0..32] → tile_a, B[0..32, 160..192] → tile_b"), "{story}");
    assert!(story.contains("thread 3,4 of block 5,7 writes c[228,163]"), "{story}");
    assert!(story.lines().all(|line| line.chars().count() <= 110), "{story}");
}

#[test]
fn the_user_s_own_numbers_are_multiplied() {
    let place = TempDir::new().unwrap();
    matrix(&place.path().join("a.npy"), [2, 3], &[0.5, -1., 2., 3., 4., 5.]);
    let story = told(place.path(), "a.npy a.npy --tb --thread 1,0");
    assert!(story.contains("c01 = a00·b01 + a01·b11 + a02·b21 + 0·0 = 0.5·3 + -1·4 + 2·5 + 0·0 = 7.5"), "{story}");
    let (why, code) = refused(place.path(), "a.npy a.npy");
    assert!(why.contains("--tb would make them fit") && code == 1, "{why}");
    assert!(told(place.path(), "a.npy a.npy --ta --dtype i32").contains("c00 = a00·b00 + a01·b10 = 0·0 + 3·3 = 9"));
}

#[test]
fn mistakes_play_and_are_told_where_they_happen() {
    let place = Path::new(".");
    let race = told(place, "--plant missing-first-barrier");
    assert!(race.contains("error: race (step 0, multiply)"), "{race}");
    let ragged = told(place, "--kernel K4 --tile 2 --m 5 --n 5 --k 4");
    assert!(ragged.contains("error: unwritten: 9 of 25 elements of C are never written"), "{ragged}");
    let wasteful = told(place, "--kernel K5");
    assert!(wasteful.contains("for nothing") && wasteful.contains("note: redundant-barrier"), "{wasteful}");
}

#[test]
fn other_kernels_are_explained_as_far_as_they_are_followed() {
    let place = Path::new(".");
    for (kernel, product) in [
        ("mma_64x64x32_32x32_16x8_3_1_1", "matrix"),
        ("register_128x128x8_64x64_8x16_4_1_2", "writes c[0,0]"),
        ("mma_64x64x32_32x32_16x8_3_1_1:2", "matrix"),
    ] {
        let output = explain(place, &format!("--kernel {kernel} --k 64"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let err = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && text.contains(product), "{kernel}: {err}{text}");
        assert!(text.lines().all(|line| line.chars().count() <= 110), "{text}");
    }
}

#[test]
fn what_cannot_be_explained_is_refused_in_a_line() {
    let place = TempDir::new().unwrap();
    fs::write(place.path().join("no.trace"), "tegula trace 1\nbut then something else").unwrap();
    fs::write(place.path().join("text"), "1 2 3 4 5 6 7 8 9").unwrap();
    for (line, says, code) in [
        ("no.trace", "no.trace: this is no trace that can be read", 1),
        ("text", "it does not begin with", 1),
        ("none.trace", "there is no such file", 1),
        ("text text", "text", 1),
        ("--kernel K9", "K9", 2),
        ("--tile 33", "33", 1),
        ("--block 2,0", "block 2,0 is not there: the grid has 2×2 blocks", 1),
        ("--thread 2,0", "thread 2,0 is not there", 1),
        ("--blocks 9,9", "--blocks 9,9 is not there", 1),
        ("--m 0", "nothing was recorded", 1),
        ("--trace none/t.trace", "its directory does not exist", 1),
        ("no.trace --json", "a trace is played as it was recorded", 2),
        ("--m 2000 --n 2000 --k 2000", "would take hours", 1),
        ("--m 400 --n 400 --k 400", "numbers of single threads", 1),
        ("--steps 7:9", "", 0),
    ] {
        if code == 0 {
            told(place.path(), line);
            continue;
        }
        let (why, found) = refused(place.path(), line);
        assert!(why.starts_with("error: ") && why.contains(says) && found == code, "{line}: {found}: {why}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn a_full_disk_is_told_in_a_line() {
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
fn a_page_is_written_whole_or_not_at_all() {
    let folder = TempDir::new().unwrap();
    let page = folder.path().join("page.html");
    assert_eq!(told(folder.path(), "--html page.html --kernel naive --dtype i32"), "");
    let whole = fs::read_to_string(&page).unwrap();
    assert!(whole.starts_with("<!doctype html>") && whole.trim_end().ends_with("</html>"));
    let refusals = [
        ("--html page.html --kernel register_64x64x16_32x32_8x4_3_1_2", 1, "a page shows naive, tiled and K1 to K6"),
        ("--html page.html --m 65", 1, "a page shows products of 1 to 64"),
        ("--html page.html --tile 33", 1, "tile 33"),
        ("--html nowhere/page.html", 1, "nowhere"),
        ("--serve --kernel mma", 1, "is no blocking"),
    ];
    for (line, code, why) in refusals {
        let (said, exit) = refused(folder.path(), line);
        assert!(exit == code && said.contains(why), "{line}: {exit} {said}");
    }
    assert_eq!(fs::read_to_string(&page).unwrap(), whole, "what was there is kept");
}

#[test]
fn a_pipeline_has_a_timeline() {
    let place = TempDir::new().unwrap();
    // Two blocks of a cluster: the second one's half of B comes from both.
    let line = "--kernel hopper_64x128x64_1_2_2 --dtype bf16 --m 128 --block 1,0";
    let story = told(place.path(), line);
    assert!(story.contains("pipeline of block 1,0") && story.contains("who waited for whom"), "{story}");
    assert!(story.contains("the copy engine stores C") && !story.contains("unwritten"), "{story}");
    assert!(story.lines().all(|line| line.chars().count() <= 110), "{story}");
    told(place.path(), "--kernel hopper_64x128x64_1_2_2 --dtype bf16 --m 128 --trace t.trace");
    assert_eq!(told(place.path(), "t.trace --block 1,0"), story);
    assert_eq!(told(place.path(), &format!("{line} --html page.html")), "");
    let page = fs::read_to_string(place.path().join("page.html")).unwrap();
    assert!(page.starts_with("<!doctype html>") && page.contains("block 1,0") && page.contains("<svg "));
    // Of a long one the beginning and the end.
    let long = told(place.path(), "--kernel hopper_64x64x64_1_3_1 --k 4096");
    let row = long.lines().find(|line| line.trim_start().starts_with("consumer ") && line.contains(" … ")).unwrap();
    assert!(row.contains("×0 ") && row.contains("×63"), "{row}");
    // Whoever stores element by element is seen to write all of C.
    let plain = told(place.path(), "--kernel hopper_64x64x64_1_2_1 --m 61 --n 59 --k 200");
    assert!(plain.contains("pipeline of block 0,0") && !plain.contains("unwritten"), "{plain}");
    // Blocks that share k say when sums go from one to the other.
    let shared = told(place.path(), "--kernel hopper_64x64x64_1_2_1_k2 --k 192 --block 1,0");
    let row = shared.lines().find(|line| line.trim_start().starts_with("consumer ")).unwrap();
    assert!(row.contains("×0 ×0 <0 <0 .") && shared.contains("for the other blocks' sums"), "{shared}");
    assert!(!shared.contains("for ever") && !shared.contains("unwritten"), "{shared}");
    let (why, code) = refused(place.path(), "--kernel hopper_64x64x64_1_2_1 --k 0 --html none.html");
    assert!(why.contains("there is nothing to multiply") && code == 1, "{why}");
}

#[test]
fn a_page_is_given_out_on_this_machine() {
    let mut server = Command::new(env!("CARGO_BIN_EXE_tegula"))
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
    let (said, exit) = refused(Path::new("."), &format!("--serve {}", host.rsplit(':').next().unwrap()));
    assert!(exit == 1 && said.contains("cannot be used"), "{said}");
    server.kill().unwrap();
    server.wait().unwrap();
}
