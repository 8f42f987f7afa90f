//! `tegula tune`. Without a GPU the error is tested and the rest is skipped; `TEGULA_REQUIRE_GPU=1`
//! makes that a failure.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

/// Runs a command in a directory, with its folder `cache` as the tuning cache.
fn run(place: &Path, line: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tegula"));
    command.current_dir(place).args(line.split_whitespace()).env("TEGULA_CACHE_DIR", place.join("cache"));
    command.output().unwrap()
}

/// Runs a command that must succeed; returns standard output and standard error.
fn done(place: &Path, line: &str) -> (String, String) {
    let Output { status, stdout, stderr } = run(place, line);
    let (out, err) = (String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap());
    assert!(status.success(), "{line}: {out}{err}");
    (out, err)
}

/// A temporary directory; `None` without a GPU, if none is required.
fn place() -> Option<TempDir> {
    let place = TempDir::new().unwrap();
    let Output { status, stderr, .. } = run(place.path(), "tune --m 32 --dry-run --time 0");
    if status.success() {
        return Some(place);
    }
    let why = String::from_utf8(stderr).unwrap();
    assert!(std::env::var_os("TEGULA_REQUIRE_GPU").is_none_or(|required| required != "1"), "no GPU: {why}");
    eprintln!("skipped: {why}");
    None
}

/// The only cache file.
fn file(place: &Path) -> PathBuf {
    let paths = fs::read_dir(place.join("cache")).unwrap().map(|entry| entry.unwrap().path());
    let mut files = paths.filter(|path| path.extension().is_some_and(|extension| extension == "json"));
    let (first, second) = (files.next().unwrap(), files.next());
    assert!(second.is_none(), "{second:?}");
    first
}

fn json(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

#[test]
fn missing_gpu_is_a_one_line_error() {
    let place = TempDir::new().unwrap();
    // No machine has so many.
    for line in ["tune --m 64 --device cuda:99 --json t.json", "tune --random 2 --device cuda:99"] {
        let Output { status, stdout, stderr } = run(place.path(), line);
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!((status.code(), said.lines().count(), stdout.len()), (Some(1), 1, 0), "{line}: {said}");
        let either = ["error: no GPU to tune: no NVIDIA driver: ", "error: cuda:99 not found"];
        assert!(either.iter().any(|start| said.starts_with(start)), "{said}");
        assert_eq!(fs::read_dir(place.path()).unwrap().count(), 0);
    }
}

#[test]
fn invalid_options_are_refused_first() {
    let place = TempDir::new().unwrap();
    for (line, code, says) in [
        ("tune --device cpu", 2, "--device cpu: only GPUs are tuned"),
        ("tune --device interp", 2, "--device interp: only GPUs are tuned"),
        ("tune --to 8", 2, "--random"),
        ("tune --random 2 --shapes s.txt", 2, "cannot be used with"),
        ("tune --random 2 --from 100 --to 99", 2, "--from 100 exceeds --to 99"),
        ("tune --random 1000000000000000000", 2, "the maximum is 100000"),
        ("tune --m 1,2,3 --n 1,2", 2, "--n has 2 sizes and --m has 3"),
        ("tune --time x", 2, "give seconds"),
        ("tune --candidates 0", 2, "--candidates"),
        ("tune --all --time 2", 2, "cannot be used with"),
        ("tune --candidates 3 --all", 2, "cannot be used with"),
        ("tune --shapes none.txt", 1, "none.txt: cannot be read"),
        ("tune --m 4 --json none/t.json", 1, "its directory does not exist"),
    ] {
        let Output { status, stdout, stderr } = run(place.path(), line);
        let said = String::from_utf8(stderr).unwrap();
        assert_eq!((status.code(), said.lines().count(), stdout.len()), (Some(code), 1, 0), "{line}: {said}");
        assert!(said.starts_with("error: ") && said.contains(says), "{line}: {said}");
    }
}

#[test]
fn tuned_entries_are_saved_extended_and_used() {
    let Some(place) = place() else { return };
    let place = place.path();
    let (table, said) = done(place, "tune --m 96,200 --n 100 --k 64 --time 0.01 --json t.json");
    let verdict = table.lines().last().unwrap();
    assert!(verdict.starts_with("the cost model's choice is within 5 % of the best on "), "{table}");
    assert!(table.lines().count() == 5 && verdict.contains(" of 2 products ("), "{table}");
    let kept = file(place);
    assert!(said.contains(kept.to_str().unwrap()), "{said}");
    let report = json(&place.join("t.json"));
    let rows = report["rows"].as_array().unwrap();
    for (row, winner) in rows.iter().zip(json(&kept)["winners"].as_array().unwrap()) {
        assert_eq!((&row["winner"], &row["m"], &row["error"]), (&winner["recipe"], &winner["m"], &Value::Null));
        assert!(row["ratio"].as_f64().unwrap() <= 1.0 && row["timed"].as_u64() <= row["candidates"].as_u64(), "{row}");
    }
    let row = |count: usize| vec!["1"; count].join(",") + "\n";
    fs::write(place.join("a.csv"), row(64).repeat(96)).unwrap();
    fs::write(place.join("b.csv"), row(100).repeat(64)).unwrap();
    let plan = |extra: &str| done(place, &format!("mul a.csv b.csv --cast f32 --explain-plan{extra}")).0;
    let winner = json(&kept)["winners"][0]["recipe"].as_str().unwrap().to_owned();
    assert!(plan("").contains(&format!("kernel: {winner}, tuned by tegula tune")), "{}", plan(""));
    assert_eq!(serde_json::from_str::<Value>(&plan(" --json")).unwrap()["tuned"], true);
    let (product, _) = done(place, "mul a.csv b.csv --cast f32 --verify --json");
    let product: Value = serde_json::from_str(&product).unwrap();
    assert_eq!((product["kernel"].as_str(), &product["ok"]), (Some(winner.as_str()), &true.into()));
    let (doctor, _) = done(place, "doctor");
    assert!(doctor.contains("2 tuned entries in "), "{doctor}");
    // A dry run leaves the file alone; another run adds to it.
    let before = fs::read(&kept).unwrap();
    done(place, "tune --m 33 --time 0 --dry-run");
    assert_eq!(fs::read(&kept).unwrap(), before);
    done(place, "tune --m 33 --time 0");
    assert_eq!(json(&kept)["winners"].as_array().unwrap().len(), 3);
}

#[test]
fn corrupt_cache_is_reported_and_replaced() {
    let Some(place) = place() else { return };
    let place = place.path();
    done(place, "tune --m 40 --time 0");
    let kept = file(place);
    let whole = fs::read_to_string(&kept).unwrap();
    for (there, says) in [
        (whole[..whole.len() / 2].to_owned(), "is corrupt"),
        (whole.replace("\"gpu\": \"", "\"gpu\": \"Old "), "is stale"),
    ] {
        fs::write(&kept, there).unwrap();
        fs::write(place.join("a.csv"), "1,2\n3,4\n").unwrap();
        let (plan, said) = done(place, "mul a.csv a.csv --explain-plan");
        assert!(plan.contains("kernel: ") && !plan.contains("tune") && said.is_empty(), "{plan}{said}");
        let (doctor, _) = done(place, "doctor");
        assert!(doctor.contains(says) && doctor.contains("run tegula tune again"), "{doctor}");
        let (_, said) = done(place, "tune --m 41 --time 0");
        assert!(said.lines().next().unwrap().contains(says) && said.contains("; it will be replaced"), "{said}");
        assert_eq!(json(&kept)["winners"].as_array().unwrap().len(), 1);
    }
}
