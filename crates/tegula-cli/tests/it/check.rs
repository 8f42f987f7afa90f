//! `tegula check`: injected bugs are found, correct kernels have no errors, and costs are counted.

use std::process::Command;

use serde_json::Value;

/// The object of a check with `--json`, and its exit code.
fn check(line: &str) -> (Value, i32) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tegula"));
    let output = command.arg("check").args(line.split_whitespace()).arg("--json").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let complained = String::from_utf8_lossy(&output.stderr);
    // A second object fails here.
    let report = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{line}: {error}: {said}{complained}"));
    (report, output.status.code().unwrap())
}

/// The kinds of errors and of notes.
fn kinds(report: &Value) -> (Vec<&str>, Vec<&str>) {
    let of = |severity: &str| {
        let findings = report["findings"].as_array().unwrap().iter();
        let mut kinds: Vec<_> =
            findings.filter(|f| f["severity"] == severity).map(|f| f["kind"].as_str().unwrap()).collect();
        kinds.dedup();
        kinds
    };
    (of("error"), of("note"))
}

/// The first finding of a kind in a check that must fail.
fn error(line: &str, kind: &str) -> Value {
    let (report, code) = check(line);
    assert_eq!((code, &report["ok"]), (1, &false.into()), "{line}: {report}");
    let found = report["findings"].as_array().unwrap().iter().find(|finding| finding["kind"] == kind);
    let found = found.unwrap_or_else(|| panic!("{line}: no {kind} in {report}")).clone();
    assert_eq!(found["severity"], "error");
    found
}

/// The report of a check that must pass.
fn sound(line: &str) -> Value {
    let (report, code) = check(line);
    assert_eq!((code, &report["ok"]), (0, &true.into()), "{line}: {report}");
    report
}

fn counter(report: &Value, name: &str) -> u64 {
    report["counters"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {report}"))
}

/// A race names both threads, the shared element and both lines.
fn assert_race_is_complete(race: &Value) {
    assert_eq!(race["space"], "shared", "{race}");
    assert!(["tile_a", "tile_b"].contains(&race["name"].as_str().unwrap()), "{race}");
    assert_eq!(race["index"].as_array().unwrap().len(), 2, "{race}");
    assert_eq!(race["block"].as_array().unwrap().len(), 3, "{race}");
    assert_eq!(race["threads"].as_array().unwrap().len(), 2, "{race}");
    assert_ne!(race["threads"][0], race["threads"][1], "{race}");
    let source = race["source"].as_array().unwrap();
    assert_eq!(source.len(), 2, "{race}");
    let message = race["message"].as_str().unwrap();
    for line in source {
        let line = line.as_str().unwrap();
        assert!(line.contains("tiled.rs:") && message.contains(line), "{race}");
    }
    assert!(message.contains("block [") && message.contains("thread [") && message.contains("tile_"), "{race}");
}

#[test]
fn missing_first_barrier_is_a_race() {
    for (tile, mapping, ty) in [(2, "x-col", "f32"), (4, "x-row", "f64"), (8, "x-row", "i32"), (16, "x-col", "f16")] {
        let k = 2 * tile;
        let line = format!(
            "tiled --tile {tile} --mapping {mapping} --dtype {ty} --m {k} --n {k} --k {k} --plant missing-first-barrier"
        );
        assert_race_is_complete(&error(&line, "race"));
    }
}

#[test]
fn missing_second_barrier_is_a_race_with_two_steps() {
    for tile in [2, 8, 32] {
        let with = |k| format!("tiled --tile {tile} --m 33 --n 7 --k {k} --plant missing-second-barrier --seeds 2");
        assert_race_is_complete(&error(&with(tile + 1), "race"));
        sound(&with(tile));
        sound(&with(1));
    }
}

#[test]
fn floor_launch_leaves_elements_wrong_and_unwritten() {
    for line in ["K4 --m 33 --n 33 --k 33", "tiled --m 33 --n 33 --k 33 --plant floor-launch"] {
        let unwritten = error(line, "unwritten");
        assert_eq!((&unwritten["space"], &unwritten["name"]), (&"global".into(), &"c".into()));
        assert_eq!(unwritten["index"], serde_json::json!([0, 32]));
        let message = unwritten["message"].as_str().unwrap();
        assert_eq!(message, "65 of 1089 elements of c are never written: (0, 32), (1, 32), (2, 32), (3, 32), …");
        let wrong = error(line, "wrong-result");
        assert_eq!(wrong["index"], serde_json::json!([0, 0]));
        let message = wrong["message"].as_str().unwrap();
        // A missing float product near 0 may be within the bound.
        let wrong: u32 = message.split(' ').next().unwrap().parse().unwrap();
        assert!((1000..=1024).contains(&wrong) && message.contains("of 1089 elements of c are wrong"), "{message}");
    }
    let exact = error("K4 --m 33 --n 33 --k 33 --dtype i32", "wrong-result");
    assert!(exact["message"].as_str().unwrap().starts_with("1024 of 1089"), "{exact}");
    // Written rows are correct where k is a multiple of the tile.
    let (report, _) = check("K4 --m 33 --n 32 --k 32");
    assert_eq!(kinds(&report).0, ["unwritten"], "{report}");
}

#[test]
fn no_guards_are_out_of_bounds() {
    let found = error("tiled --m 33 --n 33 --k 33 --plant no-guards", "out-of-bounds");
    assert_eq!(found["space"], "global");
    assert!(["a", "b", "c"].contains(&found["name"].as_str().unwrap()), "{found}");
    assert!(found["message"].as_str().unwrap().contains("which is 33×33"), "{found}");
    sound("tiled --m 32 --n 48 --k 64 --plant no-guards");
}

#[test]
fn extra_barrier_is_a_note() {
    for line in ["K5", "tiled --plant extra-barrier"] {
        let report = sound(line);
        assert_eq!(kinds(&report), (vec![], vec!["redundant-barrier"]), "{line}: {report}");
        // Unrolled copies of a line are one finding.
        assert_eq!(report["findings"].as_array().unwrap().len(), 1, "{report}");
        let note = &report["findings"][0];
        assert!(note["space"].is_null() && note["block"].is_null(), "{note}");
        assert!(note["source"][0].as_str().unwrap().contains("tiled.rs:"), "{note}");
    }
}

#[test]
fn presets_have_no_findings() {
    for line in [
        "K1",
        "K2",
        "K3",
        "K4",
        "K6",
        "naive --mapping x-row --m 3 --n 50 --k 7",
        "K6 --m 0",
        "K6 --k 0",
        "K6 --dtype i8",
    ] {
        assert_eq!(kinds(&sound(&format!("{line} --seeds 2"))), (vec![], vec![]), "{line}");
    }
    sound("K2 --m 33 --n 1 --k 65");
}

#[test]
fn x_row_mapping_costs_sectors_and_conflicts() {
    let (k3, k6) = (sound("K3"), sound("K6"));
    let sectors = |report| counter(report, "global_load_sectors") / counter(report, "global_load_requests");
    // Two half-warps of 16 rows: 16 sectors for A and for B; against 32 neighbors in a row: 4.
    assert_eq!((sectors(&k3), sectors(&k6)), (16, 4));
    assert_eq!(counter(&k6, "shared_bank_conflicts"), 0);
    assert!(counter(&k3, "shared_bank_conflicts") > 0);
}

#[test]
fn four_by_four_with_tiles_of_two() {
    let (k5, tiled) = (sound("K5"), sound("tiled --tile 2 --m 4 --n 4 --k 4"));
    // 4 blocks of one warp, two steps each: a barrier after the loads, and one after each product
    // or after both.
    assert_eq!((counter(&k5, "barriers"), counter(&tiled, "barriers")), (4 * 6, 4 * 4));
    for report in [&k5, &tiled] {
        assert_eq!(counter(report, "global_load_requests"), 4 * 2 * 2);
        assert_eq!(counter(report, "global_store_requests"), 4);
        assert_eq!(counter(report, "fma"), 4 * 4 * 4);
        assert_eq!((&report["m"], &report["n"], &report["k"]), (&4.into(), &4.into(), &4.into()));
    }
}

#[test]
fn text_report_is_short() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tegula"));
    let output = command.args(["check", "tiled", "--tile", "2", "--plant", "missing-first-barrier"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(said.starts_with("tiled_f32_2_no_first_barrier, 64×64 = 64×64 · 64×64: "), "{said}");
    assert!(said.contains("\n  error: race: block ["), "{said}");
    assert!(said.contains("\n  barriers "), "{said}");
    let complained = String::from_utf8(output.stderr).unwrap();
    assert_eq!(complained.lines().count(), 1, "{complained}");
    assert!(complained.starts_with("error: kernel tiled_f32_2_no_first_barrier: "), "{complained}");
}

#[test]
fn kernel_that_cannot_be_built_has_a_json_object() {
    let out = Command::new(env!("CARGO_BIN_EXE_tegula")).args(["check", "tiled", "--tile", "33", "--json"]).output();
    let out = out.unwrap();
    assert_eq!(out.status.code(), Some(1));
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&report["ok"], &report["findings"][0]["severity"]), (&Value::from(false), &Value::from("error")));
    assert!(report["counters"]["fma"].is_u64());
    assert_eq!(String::from_utf8(out.stderr).unwrap().lines().count(), 1);
}

#[test]
fn excluding_bugs_are_refused() {
    for plants in [["missing-first-barrier", "missing-second-barrier"], ["no-guards", "floor-launch"]] {
        let mut tegula = Command::new(env!("CARGO_BIN_EXE_tegula"));
        let out = tegula.args(["check", "tiled", "--plant", plants[0], "--plant", plants[1]]).output().unwrap();
        assert_eq!(out.status.code(), Some(1));
        assert!(String::from_utf8(out.stderr).unwrap().contains(plants[1]));
    }
}

#[test]
fn blocked_and_split_kernels_have_no_errors() {
    for kernel in [
        "register_32x32x8_warp32x16_thread4x4_stages2",
        "mma_64x64x32_warp32x32_thread16x8_stages3:2 --dtype bf16",
        "limbs_64x32x32_warp32x16_thread16x8_stages3:w3 --m 80 --n 72",
        "vector_4x4_threads8x4_load8:2",
    ] {
        let (report, code) = check(&format!("{kernel} --k 200"));
        assert_eq!((report["ok"].as_bool(), code), (Some(true), 0), "{kernel}: {report}");
        assert!(report["counters"]["global_load_requests"].as_u64() > Some(0), "{kernel}: {report}");
    }
    assert_eq!(check("register_32x32x8_warp32x16_thread4x4_stages2:0").1, 1);
}

#[test]
fn exercise_report_has_goal_and_file() {
    let (report, code) = check("Exercise-3 --seeds 2");
    assert_eq!((code, &report["ok"], &report["kernel"]), (1, &false.into(), &"exercise-3".into()), "{report}");
    assert_eq!(kinds(&report), (vec!["race", "uninitialised", "wrong-result"], vec![]));
    for source in report["findings"][0]["source"].as_array().unwrap() {
        assert!(source.as_str().unwrap().starts_with("exercises/src/e3_too_early.rs:"), "{report}");
    }
    let goal = &report["goal"];
    assert_eq!((&goal["met"], &goal["file"]), (&false.into(), &"exercises/src/e3_too_early.rs".into()), "{goal}");
    assert!(goal["text"].as_str().unwrap().contains("16×16×32"), "{goal}");
    // Only exercises have goals.
    assert!(sound("K6")["goal"].is_null());
}

#[test]
fn all_exercises_have_a_line_each() {
    let (report, code) = check("exercises");
    let exercises = report["exercises"].as_array().unwrap();
    assert_eq!((code, &report["ok"], exercises.len()), (1, &false.into(), 8), "{report}");
    assert!(exercises.iter().all(|exercise| exercise["goal"]["met"] == false), "{report}");
    let output = Command::new(env!("CARGO_BIN_EXE_tegula")).args(["check", "exercises"]).output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    assert_eq!(said.lines().count(), 8, "{said}");
    assert!(said.lines().all(|line| line.contains("  not yet  ") && line.contains("(exercises/src/e")), "{said}");
}

/// Needs a CUDA toolkit; without one the error comes before any work.
#[test]
fn shared_memory_is_counted_as_assembled() {
    let run = |line: &str, without: bool| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tegula"));
        command.args(line.split(' '));
        if without {
            command.env("PATH", "").env("CUDA_HOME", "/none").env("TEGULA_PTXAS", "/none/ptxas");
        }
        command.output().unwrap()
    };
    if !std::path::Path::new("/usr/local/cuda/bin/ptxas").exists() {
        let none = run("check K6 --assembled", true);
        assert!(none.status.code() == Some(1) && none.stdout.is_empty());
    }
    let exercise = run("check exercise-1 --assembled", false);
    assert_eq!(exercise.status.code(), Some(2));
    let required = std::env::var("TEGULA_REQUIRE_PTXAS").is_ok_and(|required| required == "1");
    if !run("kernels K6 --sass", false).status.success() && !required {
        return println!("skipped: no ptxas and nvdisasm");
    }
    assert!(sound("K6")["assembled"].is_null(), "only with --assembled");
    let report = sound("K6 --assembled");
    // 4 blocks of 32 warps, 2 steps: 64 loads of a number; or 8 of four, two wavefronts each, and
    // 32 of one.
    assert_eq!(counter(&report, "shared_load_wavefronts"), 4 * 32 * 2 * 64);
    assert_eq!(report["assembled"]["shared_load_wavefronts"], 4 * 32 * 2 * (8 * 2 + 32));
    assert_eq!(report["assembled"]["gpu"], "sm_90");
    // Three kernels, of which one multiplies.
    let packed = sound("limbs_64x32x32_warp32x16_thread16x8_stages3:2 --assembled=sm_80");
    assert!(packed["assembled"]["shared_load_requests"].as_u64() > Some(0) && packed["assembled"]["gpu"] == "sm_80");
    let printed = String::from_utf8(run("check K6 --assembled", false).stdout).unwrap();
    assert!(printed.contains("shared load wavefronts            12,288  as assembled for sm_90"), "{printed}");
    assert!(check("tiled --plant missing-first-barrier --assembled").0["assembled"].is_null());
}

/// The text of a command and its exit code.
fn printed(line: &str) -> (String, i32) {
    let output = Command::new(env!("CARGO_BIN_EXE_tegula")).args(line.split_whitespace()).output().unwrap();
    (String::from_utf8(output.stdout).unwrap(), output.status.code().unwrap())
}

#[test]
fn family_name_runs_its_default_configuration() {
    for (family, kernel) in [
        ("vector", "vector_"),
        ("warp", "warp_f16_"),
        ("register", "register_"),
        ("dmma", "dmma16x"),
        ("mma", "mma_f16_"),
        ("tf32", "tf32"),
        ("limbs", "limbs_"),
        ("hopper", "hopper_"),
    ] {
        let report = sound(family);
        let name = report["kernel"].as_str().unwrap();
        assert!(name.starts_with(kernel) && kinds(&report).0.is_empty(), "{family}: {report}");
    }
    let bf16 = sound("mma --dtype bf16");
    assert!(bf16["kernel"].as_str().unwrap().starts_with("mma_bf16_"), "{bf16}");
    let (listed, code) = printed("kernels mma");
    assert!(code == 0 && listed.matches("  (default)\n").count() == 1, "{listed}");
    let (ptx, code) = printed("kernels mma --ptx");
    assert!(code == 0 && ptx.contains(".entry mma_f16_"), "{ptx}");
    let (help, _) = printed("check --help");
    assert!(help.contains("- register:") && !help.contains("- pack:"), "helpers compute no product: {help}");
}

#[test]
fn kernel_correct_at_some_sizes_only_names_a_size_that_fails() {
    for (line, says) in [
        ("check K4", "correct only where m, n and k are multiples of 16"),
        ("check K4 --tile 8 --dtype i32", "correct only where m, n and k are multiples of 8"),
        ("check tiled --inject no-guards", "correct only where m, n and k are multiples of 16"),
        ("check tiled --plant missing-second-barrier --k 16", "correct only where k is at most 16, a single step"),
    ] {
        let (text, code) = printed(line);
        assert!(code == 0 && text.contains(": no errors at these sizes\n") && text.contains(says), "{line}: {text}");
        let command = text.split('\'').nth(1).unwrap();
        let (text, code) = printed(command.strip_prefix("tegula ").unwrap());
        assert!(code == 1 && !text.contains("correct only"), "{command}: {text}");
    }
    let caveat = &sound("K4")["caveat"];
    assert_eq!(caveat["command"], "tegula check K4 --m 65 --n 65 --k 65");
    assert!(sound("K6")["caveat"].is_null());
}

#[test]
fn metrics_are_printed_on_request_only() {
    let (text, _) = printed("check K5");
    assert!(!text.contains("l1tex__") && text.contains("  barriers "), "{text}");
    let (text, _) = printed("check K5 --metrics");
    assert!(text.contains("l1tex__t_requests_pipe_lsu_mem_global_op_ld.sum") && text.contains("(f64: dfma)"), "{text}");
}

#[test]
fn inject_is_an_alias_of_plant() {
    let [inject, plant] = ["--inject", "--plant"].map(|flag| check(&format!("tiled {flag} missing-first-barrier")));
    assert_eq!((&inject, inject.1), (&plant, 1));
}
