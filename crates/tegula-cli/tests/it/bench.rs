//! `tegula bench` on the CPU with tiny products. Times are not verified.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use tempfile::TempDir;

/// A temporary directory, in which the program runs.
struct TestDir(TempDir);

impl TestDir {
    fn new() -> TestDir {
        TestDir(TempDir::new().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tegula"));
        command.current_dir(self.0.path()).args(line.split_whitespace()).env_remove("TEGULA_CUBLASLT");
        command
    }

    /// Runs a command that must succeed; returns standard output.
    fn done(&self, line: &str) -> String {
        let output = self.command(line).output().unwrap();
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs a command that must fail with one line on standard error, and returns that line. Rows
    /// may be printed before if `measured`.
    fn fails(&self, line: &str, code: i32, measured: bool) -> String {
        let Output { status, stderr, stdout } = self.command(line).output().unwrap();
        let said = text(&stderr);
        assert_eq!(status.code(), Some(code), "{line}: {said}");
        assert!(measured || stdout.is_empty(), "{line}: {}", text(&stdout));
        assert!(said.starts_with("error: ") && said.lines().count() == 1, "{line}: {said}");
        said
    }

    fn json(&self, name: &str) -> Value {
        serde_json::from_slice(&fs::read(self.path(name)).unwrap()).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn every_type_layout_and_shape_has_a_row() {
    let place = TestDir::new();
    let said = place.done(
        "bench --m 3,8 --n 5 --k 7,1 --batch 2 --dtype f64,f32,f16,bf16,i32,i8 --layout nn,tt --alpha 2 --beta 1 \
         --device cpu --time 0 --json r.json --csv r.csv --html r.html",
    );
    assert_eq!(said.lines().count(), 2 + 24, "{said}");
    let report = place.json("r.json");
    assert_eq!((&report["driver"], &report["peer"], &report["seed"]), (&Value::Null, &Value::Null, &1.into()));
    assert_eq!(report["version"], env!("CARGO_PKG_VERSION"));
    assert!(report["machine"].as_str().unwrap().ends_with("(cpu)") && report["copy_gbs"].as_f64().unwrap() > 0.0);
    let command = report["command"].as_str().unwrap();
    assert!(command.starts_with("tegula bench --m 3,8 --n 5 --k 7,1 --batch 2 --dtype f64,f32,"), "{command}");
    assert!(!command.contains("r.json"), "{command}");
    let rows = report["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 24);
    for row in rows {
        let number = |name: &str| row[name].as_f64().unwrap_or_else(|| panic!("{name}: {row}"));
        assert!(
            number("tflops") > 0.0 && number("p20_us") <= number("us") && number("us") <= number("p80_us"),
            "{row}"
        );
        assert!(number("r") <= number("bound") && number("spread") >= 0.0 && number("rounds") >= 3.0, "{row}");
        assert_eq!(
            (&row["ok"], &row["error"], &row["ratio"], &row["candidates"]),
            (&true.into(), &Value::Null, &Value::Null, &0.into())
        );
        assert_eq!(number("rows_checked"), 2.0 * number("m"), "small results are compared whole");
        if row["dtype"].as_str().unwrap().starts_with('i') {
            assert_eq!(number("r"), 0.0, "integers are exact: {row}");
        }
    }
    assert_eq!([&rows[0]["layout"], &rows[2]["layout"], &rows[23]["dtype"]], ["nn", "tt", "i8"]);
    let table = text(&fs::read(place.path("r.csv")).unwrap());
    assert_eq!(
        (table.lines().count(), table.starts_with("dtype,layout,m,n,k,batch,epilogue,kernel,tflops,")),
        (25, true)
    );
    let page = text(&fs::read(place.path("r.html")).unwrap());
    assert!(page.contains("<svg") && !page.contains("http"), "it loads nothing");
    assert_eq!(place.names(), ["r.csv", "r.html", "r.json"]);
}

#[test]
fn epilogue_is_timed_verified_and_reported() {
    let place = TestDir::new();
    let measured = |options: &str| {
        place.done(&format!(
            "bench --m 5 --n 9 --k 7 --batch 2 --device cpu --time 0 --json r.json --csv r.csv {options}"
        ));
        place.json("r.json")["rows"].as_array().unwrap().clone()
    };
    // Sums of 16-bit numbers have a more exact type.
    let bounds = [14.0, 14.0, 6.0 + 4.0 * 9.0 / 8192.0, 6.0 + 4.0 * 9.0 / 65536.0];
    let rows = measured("--epilogue bias+gelu --dtype f64,f32,f16,bf16 --layout tn --beta 0.5");
    assert_eq!(rows.len(), bounds.len());
    for (row, bound) in rows.iter().zip(bounds) {
        assert_eq!((&row["epilogue"], &row["bound"], &row["ok"]), (&"bias+gelu".into(), &bound.into(), &true.into()));
        assert_eq!(row["gelu_form"], "tanh");
        assert!(
            row["command"].as_str().unwrap().contains(" --device cpu --beta 0.5 --epilogue bias+gelu --seed"),
            "{row}"
        );
        assert_eq!(row["rows_checked"], 10);
    }
    let table = text(&fs::read(place.path("r.csv")).unwrap());
    assert!(
        table.starts_with("dtype,layout,m,n,k,batch,epilogue,kernel,") && table.contains(",2,bias+gelu,"),
        "{table}"
    );
    for (row, bound) in measured("--epilogue bias+relu --dtype i32,i8").iter().zip([10.0; 2]) {
        assert_eq!((&row["r"], &row["bound"], &row["ok"]), (&0.0.into(), &bound.into(), &true.into()));
    }
    let plain = &measured("")[0];
    assert_eq!(plain["epilogue"], "none");
    assert!(!plain["command"].as_str().unwrap().contains("--epilogue"), "{plain}");
}

#[test]
fn row_command_measures_that_row() {
    let place = TestDir::new();
    fs::write(place.path("shapes.txt"), "4 5 6 # small\n7x8x9x2\n").unwrap();
    place.done("bench --shapes shapes.txt --layout tn --seed 9 --device cpu --time 0 --json all.json");
    let row = place.json("all.json")["rows"][1].clone();
    let command = row["command"].as_str().unwrap();
    let usual = "tegula bench --m 7 --n 8 --k 9 --batch 2 --dtype f32 --layout tn --device cpu --seed 9 --time 0";
    assert_eq!(command, usual);
    place.done(&format!("{} --json one.json", command.strip_prefix("tegula ").unwrap()));
    let again = &place.json("one.json")["rows"][0];
    for same in ["m", "n", "k", "batch", "layout", "dtype", "kernel", "r"] {
        assert_eq!(again[same], row[same], "{same}");
    }
}

#[test]
fn resume_measures_only_the_missing_rows() {
    let place = TestDir::new();
    let line = |sizes: &str| format!("bench --m {sizes} --n 5 --k 7 --device cpu --time 0 --json r.json");
    place.done(&(line("3,4") + " --resume"));
    let mut report = place.json("r.json");
    // Times that no run measures, and a row that failed.
    report["rows"][0]["us"] = 123456789.0.into();
    report["rows"][1]["kernel"] = Value::Null;
    fs::write(place.path("r.json"), report.to_string()).unwrap();
    place.done(&(line("3,4,6") + " --resume"));
    let report = place.json("r.json");
    let rows = report["rows"].as_array().unwrap();
    let micros: Vec<_> = rows.iter().map(|row| row["us"].as_f64().unwrap()).collect();
    assert_eq!((micros.len(), micros[0]), (3, 123456789.0), "the first row is kept");
    assert!(rows[1]["kernel"].is_string() && micros[1] < 1e8 && micros[2] < 1e8, "the others are measured: {report}");
    assert!(!report["command"].as_str().unwrap().contains("resume"));
    place.done(&line("3,4,6"));
    assert_ne!(place.json("r.json")["rows"][0]["us"], 123456789.0, "without --resume all are measured");
}

/// The run is killed while it measures the failed row, which would take a minute.
#[test]
fn resume_keeps_rows_behind_a_failed_one_when_killed() {
    let place = TestDir::new();
    let line = |time| format!("bench --m 3,4,6 --n 5 --k 7 --device cpu --time {time} --json r.json --resume");
    place.done(&line(0));
    let mut report = place.json("r.json");
    report["rows"][1]["kernel"] = Value::Null;
    let before = report.to_string().replace("--time 0", "--time 60");
    fs::write(place.path("r.json"), &before).unwrap();
    let mut child = place.command(&line(60)).stdout(Stdio::null()).spawn().unwrap();
    while fs::read_to_string(place.path("r.json")).unwrap() == before && child.try_wait().unwrap().is_none() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    child.kill().unwrap();
    child.wait().unwrap();
    let rows = place.json("r.json")["rows"].as_array().unwrap().clone();
    let sizes: Vec<_> = rows.iter().map(|row| row["m"].as_u64().unwrap()).collect();
    assert_eq!(sizes, [3, 6], "both rows that were kept");
}

#[test]
fn resume_refuses_what_it_would_lose_or_mix() {
    let place = TestDir::new();
    let line = "bench --m 3,4 --n 5 --k 7 --device cpu --time 0 --json r.json";
    place.done(line);
    let kept = fs::read_to_string(place.path("r.json")).unwrap();
    let fewer = "bench --m 3 --n 5 --k 7 --device cpu --time 0 --json r.json --resume";
    assert!(place.fails(fewer, 1, false).contains("--resume: r.json: it has a row that this run would not measure"));
    assert_eq!(fs::read_to_string(place.path("r.json")).unwrap(), kept);
    let mut other = place.json("r.json");
    other["machine"] = "an abacus".into();
    let mut threads = place.json("r.json");
    threads["rows"][1]["threads"] = 4097.into();
    for (text, says) in [
        (other.to_string(), "its machine is an abacus"),
        (threads.to_string(), "it has rows of another number of threads"),
        (kept[..99].into(), "not a report of bench"),
    ] {
        fs::write(place.path("r.json"), &text).unwrap();
        assert!(place.fails(&format!("{line} --resume"), 1, false).contains(says));
        assert_eq!(fs::read_to_string(place.path("r.json")).unwrap(), text);
    }
}

#[test]
fn invalid_options_are_refused_before_measuring() {
    let place = TestDir::new();
    fs::write(place.path("bad.txt"), "1 2 3\n4 5\n").unwrap();
    fs::create_dir(place.path("folder")).unwrap();
    for (line, code, says) in [
        ("bench --m 1:2", 2, "neither a size nor a range START:END:STEP"),
        ("bench --m 9:1:1", 2, "START exceeds END"),
        ("bench --m 1,2,3 --n 1,2", 2, "--n has 2 sizes and --m has 3"),
        ("bench --dtype f31", 2, "f31"),
        ("bench --layout nx", 2, "nx"),
        ("bench --vs abacus", 2, "abacus"),
        ("bench --time -1", 2, "give seconds from 0"),
        ("bench --device interp", 2, "--device interp cannot be timed"),
        (
            "bench --epilogue bias+tanh",
            2,
            "[possible values: none, relu, gelu, silu, bias, bias+relu, bias+gelu, bias+silu]",
        ),
        (
            "bench --dtype f32,i8 --epilogue bias+silu",
            2,
            "--epilogue bias+silu: the activation silu is not available for i8",
        ),
        ("bench --dtype i32 --alpha 0.5", 2, "--alpha 0.5: not a value of i32"),
        ("bench --shapes bad.txt", 1, "bad.txt:2: '4 5': not a shape"),
        ("bench --shapes none.txt", 1, "none.txt: cannot be read"),
        ("bench --m 4 --json folder", 1, "folder: cannot be written: it is a directory"),
        ("bench --m 4 --html none/r.html", 1, "its directory does not exist"),
        ("bench --m 4 --device cpu --vs cublaslt", 1, "cublasLt is not available: it runs on GPUs, not on cpu"),
        ("bench --m 4 --device cpu --kernel tiled", 1, "--kernel needs a GPU"),
        ("bench --m 4 --device cpu --threads 0", 2, "not a whole number of at least 1"),
        ("bench --m 4 --device cpu --threads -1", 2, "not a whole number of at least 1"),
        ("bench --m 4 --device cpu --threads 1,2", 2, "not a whole number of at least 1"),
        ("bench --m 4 --device cpu --threads 123456789", 1, "--threads 123456789: the maximum is"),
        ("bench --m 4 --device cpu --vs mkl,abacus", 2, "abacus"),
        ("bench --m 4 --device cpu --vs mkl,cublaslt", 2, "--vs cublaslt excludes other peers"),
        ("bench --m 4 --device cpu --resume", 2, "--json"),
        ("bench --m 4 --device cpu --json - --resume", 2, "--resume needs a file"),
        ("bench --m 4 --device cpu --vs none,mkl", 2, "--vs none excludes other peers"),
    ] {
        let said = place.fails(line, code, false);
        assert!(said.contains(says), "{line}: {said}");
    }
    let shapes = place.fails("bench --shapes bad.txt --m 4", 2, false);
    assert!(shapes.contains("cannot be used with"), "{shapes}");
    assert_eq!(place.names(), ["bad.txt", "folder"]);
}

#[test]
#[ignore = "long; .ci/run runs it"]
fn row_out_of_memory_is_reported_and_others_run() {
    let place = TestDir::new();
    // No machine has the memory for the second.
    let said = place.fails("bench --m 4,8000000 --n 4,8000000 --k 4 --device cpu --time 0 --json r.json", 1, true);
    assert_eq!(said, "error: 1 of 2 rows could not be measured\n");
    let rows = place.json("r.json")["rows"].clone();
    assert_eq!((&rows[0]["error"], &rows[0]["ok"]), (&Value::Null, &true.into()));
    let why = rows[1]["error"].as_str().unwrap();
    assert!(why.starts_with("out of memory: ") && rows[1]["tflops"].is_null(), "{why}");
}

/// However the program ends, the files hold the rows so far.
#[test]
fn killed_run_leaves_whole_files() {
    let place = TestDir::new();
    let line = "bench --m 2:900:1 --n 2 --k 2 --device cpu --time 0 --json r.json --html r.html";
    let mut child = place.command(line).stdout(Stdio::piped()).spawn().unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines();
    let shown = lines.take(2 + 5).filter(|line| line.is_ok()).count();
    child.kill().unwrap();
    child.wait().unwrap();
    let rows = place.json("r.json")["rows"].as_array().unwrap().len();
    assert!(shown == 7 && (4..899).contains(&rows), "{shown} lines, {rows} rows");
    assert!(text(&fs::read(place.path("r.html")).unwrap()).ends_with("</html>\n"));
    let left = place.names().into_iter().filter(|name| !name.contains(".tegula-")).collect::<Vec<_>>();
    assert_eq!(left, ["r.html", "r.json"]);
}

/// With `-v` the log has a line per row, with its command.
#[test]
fn log_has_each_row() {
    let place = TestDir::new();
    let output = place.command("bench -v --m 4 --device cpu --time 0").output().unwrap();
    let said = text(&output.stderr);
    assert!(said.contains("1 of 1: f32 nn 4×4×4") && said.contains("tegula bench --m 4 --n 4 --k 4"), "{said}");
}

/// A GPU without the library, and a file that is not a library.
#[test]
fn missing_cublaslt_is_a_one_line_error() {
    let place = TestDir::new();
    let output =
        place.command("bench --m 4 --device cuda:0 --vs cublaslt").env("TEGULA_CUBLASLT", "/no/lib.so").output();
    let Output { status, stderr, .. } = output.unwrap();
    let said = text(&stderr);
    assert_eq!((status.code(), said.lines().count()), (Some(1), 1), "{said}");
    let either = said.contains("no NVIDIA driver") || said.contains("or leave out --vs");
    assert!(either, "{said}");
}

/// A missing library is an error among several, too.
#[test]
fn missing_cpu_library_is_a_one_line_error() {
    let place = TestDir::new();
    for vs in ["mkl", "mkl,openblas", "onednn"] {
        let mut command = place.command(&format!("bench --m 4 --device cpu --vs {vs}"));
        let output = command.env("TEGULA_MKL", "/no/lib.so").env("TEGULA_ONEDNN", "/no/lib.so").output().unwrap();
        let said = text(&output.stderr);
        assert_eq!((output.status.code(), said.lines().count()), (Some(1), 1), "{said}");
        let variable = if vs == "onednn" { "TEGULA_ONEDNN" } else { "TEGULA_MKL" };
        assert!(said.contains(&format!("set {variable} to")) && output.stdout.is_empty(), "{said}");
    }
}

/// The peer crates exist in builds with their feature only.
#[test]
fn peer_crates_are_measured_or_name_their_feature() {
    let place = TestDir::new();
    let line = "bench --m 20 --dtype f32,i8 --device cpu --threads 1 --vs gemm,matrixmultiply --time 0 --json r.json";
    let output = place.command(line).output().unwrap();
    let said = text(&output.stderr);
    if said.contains("does not include it") {
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.ends_with("build with '--features peers'\n"), "{said}");
        return;
    }
    assert!(output.status.success(), "{said}");
    let report = place.json("r.json");
    assert_eq!(report["peer"], "gemm, matrixmultiply");
    let (row, without) = (&report["rows"][0], &report["rows"][1]);
    assert_eq!((&row["candidates"], row["others"].as_array().unwrap().len()), (&2.into(), 1), "{row}");
    let two = [&row["peer"], &row["others"][0]["peer"]].map(|name| name.as_str().unwrap());
    assert!(two.contains(&"gemm") && two.contains(&"matrixmultiply"), "{row}");
    assert!(row["ratio"].as_f64().is_some_and(|ratio| ratio > 0.0) && row["peer_r"].as_f64() <= row["bound"].as_f64());
    assert_eq!((&without["peer"], &without["others"]), (&Value::Null, &Value::Array(Vec::new())), "{without}");
}

#[test]
fn rows_report_their_threads() {
    let place = TestDir::new();
    for threads in [1, 2] {
        let said = place.done(&format!("bench --m 8,200 --device cpu --threads {threads} --time 0 --json r.json"));
        let heading = if threads == 1 { "(cpu), 1 thread; Tegula" } else { "(cpu), 2 threads; Tegula" };
        assert!(said.contains(heading), "{said}");
        for row in place.json("r.json")["rows"].as_array().unwrap() {
            assert_eq!((&row["threads"], &row["ok"]), (&threads.into(), &true.into()), "{row}");
            assert!(row["discarded"].is_u64() && row["command"].as_str().unwrap().contains(" --threads "), "{row}");
        }
    }
}

#[test]
fn row_reports_tf32() {
    let place = TestDir::new();
    let said = place.done("bench --m 8 --accuracy tf32 --device cpu --time 0 --json r.json");
    assert!(said.contains("\ntf32 nn"), "{said}");
    let row = &place.json("r.json")["rows"][0];
    assert_eq!(row["dtype"], "tf32");
    let command = row["command"].as_str().unwrap();
    assert!(command.contains("--dtype f32 ") && command.contains(" --accuracy tf32 "), "{command}");
    assert_eq!(row["bound"], 2.0 + 4.0 * 10.0 / 8192.0);
    // The processor multiplies in full, which is far below a unit of tf32.
    assert!(row["r"].as_f64().unwrap() < 0.01, "{row}");
    let said = place.fails("bench --m 8 --accuracy tf32 --dtype f32,f64 --device cpu", 2, false);
    assert!(said.contains("--dtype has f64"), "{said}");
}

/// `--time` includes warm-up and discarded samples; input generation and the reference add little.
#[test]
fn time_spent_is_within_twice_the_time_asked_for() {
    let place = TestDir::new();
    let start = std::time::Instant::now();
    place.done("bench --device cpu --m 256 --time 2");
    let spent = start.elapsed().as_secs_f64();
    assert!(spent < 4.0, "{spent} s");
}
