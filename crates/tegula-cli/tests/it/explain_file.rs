//! `tegula explain` on `.ptx` and `.cu` files: text, JSON, limits, outputs, and one-line errors.

use std::fs;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// Reverses 64 elements through shared memory: `y[63 - i] = x[i]`.
const REVERSE: &str = include_str!("../reverse.ptx");

/// A column of a tile in one bank, and a race without the barrier.
const TRANSPOSE: &str = "
constexpr int TILE = 32;
__global__ void transpose(const float* in, float* out) {
    __shared__ float tile[TILE][TILE];
    for (int y = threadIdx.y; y < TILE; y += 8) {
        tile[y][threadIdx.x] = in[y * TILE + threadIdx.x];
    }
#ifndef RACE
    __syncthreads();
#endif
    for (int y = threadIdx.y; y < TILE; y += 8) {
        out[y * TILE + threadIdx.x] = tile[threadIdx.x][y];
    }
}
";

const REVERSE_LINE: &str = "reverse.ptx --grid 1 --block 64 --arg x=range:f32[64] --arg y=out:f32[64]";

fn folder() -> TempDir {
    let folder = TempDir::new().unwrap();
    fs::write(folder.path().join("reverse.ptx"), REVERSE).unwrap();
    fs::write(folder.path().join("race.ptx"), REVERSE.replace("bar.sync 0;", "")).unwrap();
    fs::write(folder.path().join("transpose.cu"), TRANSPOSE).unwrap();
    folder
}

fn run(folder: &TempDir, command: &str, line: &str) -> Output {
    let mut tegula = Command::new(env!("CARGO_BIN_EXE_tegula"));
    tegula.arg(command).args(line.split_whitespace()).current_dir(folder.path()).env_remove("TEGULA_LOG");
    tegula.output().unwrap()
}

fn text(folder: &TempDir, line: &str) -> String {
    let output = run(folder, "explain", line);
    assert!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn json(folder: &TempDir, line: &str) -> Value {
    serde_json::from_str(&text(folder, &format!("{line} --json"))).unwrap()
}

fn steps(explained: &Value) -> &[Value] {
    explained["trace"]["steps"].as_array().unwrap()
}

#[test]
fn steps_are_printed_as_text() {
    let said = text(&folder(), REVERSE_LINE);
    for expected in [
        "reverse (reverse.ptx)\n  1 block of 64 threads\n  shared memory of a block: tile 64 f32\n",
        "  step 1, warp 0, line 20: st.shared.f32 [%r4], %f1;\n      ################################  all 32 lanes\n",
        "loads   x[0] to x[31], 32 elements = 0, 1 … 31: 4 sectors, coalesced",
        "stores  tile[32] to tile[63], 32 elements = 32, 33 … 63: 1 wavefront, no bank conflict",
        "waits at the barrier: 32 of 64 threads have arrived",
        "waits at the barrier, which completes: all 64 threads have arrived",
        "global load sectors                    8",
    ] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
}

#[test]
fn json_has_the_report_of_check_and_the_steps() {
    let folder = folder();
    let explained = json(&folder, REVERSE_LINE);
    let checked = run(&folder, "check", &format!("{REVERSE_LINE} --json"));
    let checked: Value = serde_json::from_slice(&checked.stdout).unwrap();
    for (name, value) in checked.as_object().unwrap() {
        // Advice on lines to improve is of check.
        assert!(name == "improvements" || explained[name] == *value, "{name}");
    }
    assert_eq!((steps(&explained).len(), &explained["trace"]["total"]), (10, &10.into()));
    for counter in ["global_load_sectors", "global_store_requests", "shared_load_wavefronts", "barriers"] {
        let sum: u64 = steps(&explained).iter().map(|step| step["counters"][counter].as_u64().unwrap()).sum();
        assert_eq!(checked["counters"][counter], sum, "{counter}");
    }
    let request = &steps(&explained)[1]["requests"][0];
    assert_eq!((&request["kind"], &request["elements"][3]), (&"store".into(), &"tile[3]".into()));
    assert_eq!(request["values"][3][0], "3");
}

#[test]
fn race_is_at_its_step_and_the_exit_code_is_0() {
    let line = REVERSE_LINE.replace("reverse.ptx", "race.ptx");
    let explained = json(&folder(), &line);
    let found = |step: &&Value| !step["findings"].as_array().unwrap().is_empty();
    let step = steps(&explained).iter().filter(found).find(|step| step["findings"][0]["kind"] == "race").unwrap();
    assert_eq!((&step["warp"], &step["line"]), (&1.into(), &20.into()));
    let said = text(&folder(), &line);
    assert!(said.contains("st.shared.f32 [%r4], %f1;") && said.contains("line 24 of the PTX"), "{said}");
}

#[test]
fn part_of_the_steps_is_recorded() {
    let folder = folder();
    let said = text(&folder, &format!("{REVERSE_LINE} --from 2 --to 4"));
    assert!(said.contains("recorded: steps 2 to 4 of 10; others with --from STEP --to STEP"), "{said}");
    assert!(said.contains("  step 3, warp 1") && !said.contains("  step 4,"), "{said}");
    let one = json(&folder, &format!("{REVERSE_LINE} --warps 1"));
    assert!(steps(&one).iter().all(|step| step["warp"] == 1) && steps(&one).len() == 5);
}

#[test]
fn results_are_compared_and_written() {
    let folder = folder();
    let said = text(&folder, &format!("{REVERSE_LINE} -o y=y.npy --expect y=x"));
    assert!(said.contains("error: wrong-result"), "{said}");
    assert!(folder.path().join("y.npy").exists());
}

#[test]
fn errors_are_one_line() {
    let folder = folder();
    let cases = [
        ("missing.ptx --grid 1 --block 1", 1, "missing.ptx: file not found"),
        ("reverse.ptx --grid 1 --block 64 --arg x=f32[64]", 1, "y"),
        (&format!("{REVERSE_LINE} --blocks 0,1"), 1, "--blocks 0,1,0: the grid has 1,1,1 blocks"),
        (&format!("{REVERSE_LINE} --warps 2"), 1, "--warps 2: a block has 2 warps, from 0"),
        (&format!("{REVERSE_LINE} --from 9 --to 3"), 2, "--from 9 --to 3 selects no steps"),
        (&format!("{REVERSE_LINE} --compare cuda:0"), 2, "--compare applies to check"),
        (&format!("{REVERSE_LINE} --m 4"), 2, "--m"),
    ];
    for (line, code, says) in cases {
        let output = run(&folder, "explain", line);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), said.lines().count()), (Some(code), 1), "{line}: {said}");
        assert!(said.starts_with("error: ") && said.contains(says) && output.stdout.is_empty(), "{line}: {said}");
    }
}

#[test]
fn program_is_compiled_and_explained() {
    let folder = folder();
    let line = "transpose.cu --grid 1 --block 32,8 --arg in=range:f32[32,32] --arg out=out:f32[32,32]";
    let output = run(&folder, "explain", line);
    if String::from_utf8_lossy(&output.stderr).contains("no CUDA compiler found") {
        assert!(std::env::var("TEGULA_REQUIRE_NVRTC").is_ok_and(|set| set == "1").eq(&false), "NVRTC is required");
        eprintln!("skipped: no NVRTC, nvcc or clang here to compile CUDA C++");
        return;
    }
    let said = text(&folder, line);
    assert!(said.contains("shared memory of a block: tile 32×32 f32"), "{said}");
    assert!(said.contains("line 12: out[y * TILE + threadIdx.x] = tile[threadIdx.x][y];"), "{said}");
    assert!(said.contains("bank conflicts") && said.contains("from tile[0][") || said.contains("tile[0][0]"), "{said}");
    let race = json(&folder, &format!("{line} -D RACE"));
    let found = steps(&race).iter().flat_map(|step| step["findings"].as_array().unwrap());
    let places: Vec<&Value> = found.filter(|finding| finding["kind"] == "race").map(|race| &race["source"]).collect();
    let lines = ["transpose.cu:6", "transpose.cu:12"];
    assert!(!places.is_empty() && places.iter().all(|of| lines.iter().all(|line| of.to_string().contains(line))));
}
