//! Snapshots of each command's output, without what depends on the machine or the time. `cargo
//! xtask bless` rewrites the files; review them as a diff.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

/// A 2×3 `.npy` file of f32 or i32: 1 2 3 / 4 5 6.
fn two_by_three(descr: &str, bytes: [[u8; 4]; 6]) -> Vec<u8> {
    let dict = format!("{{'descr': '{descr}', 'fortran_order': False, 'shape': (2, 3), }}\n");
    [b"\x93NUMPY\x01\x00", &(dict.len() as u16).to_le_bytes()[..], dict.as_bytes(), bytes.as_flattened()].concat()
}

/// A temporary directory with a few files.
fn place() -> TempDir {
    let place = TempDir::new().unwrap();
    let floats = [1.0f32, 2.0, 3.0, 4.0, 5.0, 6.0].map(f32::to_le_bytes);
    let empty = b"\x93NUMPY\x01\x00\x3c\x00{'descr': '<f4', 'fortran_order': False, 'shape': (2, 0), } \n";
    fs::write(place.path().join("a.npy"), two_by_three("<f4", floats)).unwrap();
    fs::write(place.path().join("ints.npy"), two_by_three("<i4", [1i32, 2, 3, 4, 5, 6].map(i32::to_le_bytes))).unwrap();
    fs::write(place.path().join("empty.npy"), empty).unwrap();
    fs::write(place.path().join("text.npy"), "not an array").unwrap();
    place
}

/// The transcript of a command: standard output, standard error behind `2>`, and a nonzero exit
/// code.
fn said(place: &Path, line: &str) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tegula"));
    command.args(line.split_whitespace()).current_dir(place).env("HOME", place);
    for variable in [
        "CUDA_CACHE_PATH",
        "CUDA_CACHE_DISABLE",
        "TEGULA_CACHE_DIR",
        "XDG_CACHE_HOME",
        "TEGULA_CPU",
        "TEGULA_LOG",
        "COLUMNS",
        "CLICOLOR_FORCE",
    ] {
        command.env_remove(variable);
    }
    let output = command.output().unwrap();
    let (out, err) = (String::from_utf8(output.stdout).unwrap(), String::from_utf8(output.stderr).unwrap());
    let err: String = err.lines().map(|line| format!("2> {line}\n")).collect();
    let code = output.status.code().unwrap();
    let code = if code == 0 { String::new() } else { format!("exit code {code}\n") };
    format!("{}\n{out}{err}{code}", format!("$ tegula {line}").trim_end())
}

/// Compares the transcripts of commands with a snapshot.
fn agree(name: &str, lines: &[&str], mask: fn(&str) -> Option<String>) {
    let place = place();
    let transcripts: Vec<String> = lines
        .iter()
        .map(|line| said(place.path(), line).lines().filter_map(mask).map(|line| line + "\n").collect())
        .collect();
    let (text, file) = (transcripts.join("\n"), file(name));
    if blessing() {
        fs::write(&file, &text).unwrap();
    }
    let kept = fs::read_to_string(&file).unwrap_or_default();
    let differs = kept.lines().zip(text.lines()).find(|(kept, now)| kept != now);
    assert!(kept == text, "{name} differs: {differs:#?}; if intended, run `cargo xtask bless`\n{text}");
}

/// Whether snapshots are rewritten instead of compared.
fn blessing() -> bool {
    std::env::var("TEGULA_BLESS").is_ok_and(|bless| bless == "1")
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name).with_extension("txt")
}

fn plain(line: &str) -> Option<String> {
    Some(line.replace(env!("CARGO_PKG_VERSION"), "VERSION"))
}

/// Masks the numbers after `key`.
fn without_numbers(line: &str, key: &str) -> String {
    let mut parts = line.split(key);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |text, part| {
        let rest = part.trim_start_matches(|c: char| c.is_ascii_digit() || "-.e".contains(c));
        let number = if rest.len() < part.len() { "N" } else { "" };
        text + key + number + rest
    })
}

/// Masks line numbers of kernel sources.
fn sources(line: &str) -> Option<String> {
    Some(without_numbers(line, ".rs:"))
}

/// Masks device, kernel, time and speed of a product.
fn figures(line: &str) -> Option<String> {
    let line = ["\"seconds\":", "\"gflops\":"].iter().fold(line.to_owned(), |line, key| without_numbers(&line, key));
    let speed = [" GFLOP/s", " MFLOP/s"].iter().find_map(|unit| line.split_once(unit));
    let Some((head, tail)) = speed else { return Some(line.clone()) };
    let (head, _) = head.rsplit_once("), ").unwrap_or((head, ""));
    Some(format!("{head}), TIME, SPEED GFLOP/s{tail}"))
}

/// Keeps the devices that every machine has.
fn devices(line: &str) -> Option<String> {
    (!line.starts_with("cuda")).then(|| titles(line)).flatten()
}

/// Keeps commands, and the first word of every other line, which do not depend on GPUs.
fn titles(line: &str) -> Option<String> {
    let title = line.split(' ').next().filter(|title| !title.is_empty() && !title.starts_with("cuda:"))?;
    Some(if title == "$" { line.into() } else { format!("{title} …") })
}

#[test]
fn help() {
    let commands = ["mul", "check", "explain", "bench", "tune", "kernels", "devices", "doctor", "completions", "man"];
    let lines = commands.map(|command| format!("{command} --help"));
    let first = ["", "--help", "--version", "explain k.cu --help"];
    let lines: Vec<_> = first.into_iter().chain(lines.iter().map(String::as_str)).collect();
    agree("help", &lines, plain);
}

#[test]
fn errors() {
    let lines = [
        "chek",
        "--quite",
        "-q",
        "devices -q -v",
        "check",
        "check tild",
        "check K7",
        "check exercise-9",
        "check exercise-1 --tile 8",
        "check hopper_64x64x64_consumers1_stages2:s --dtype bf16",
        "check hopper_64x64x64_consumers1_stages2_cluster1x3 --dtype bf16",
        "check tiled --tiel 3",
        "check tiled --tile 0",
        "check tiled --tile -3",
        "check tiled --tile x",
        "check tiled --tile 99999999999",
        "check tiled --tile 33",
        "check tiled --m -1",
        "check tiled --seeds 0",
        "check tiled --plant mising-first-barrier",
        "check tiled --plant no-guards --plant floor-launch",
        "explain --kernel K7",
        "explain --tile 33",
        "explain text.npy",
        "explain none.trace",
        "explain a.npy a.npy",
        "explain a.npy ints.npy --tb",
        "explain a.npy a.npy --m 3",
        "explain a.npy --json",
        "explain --m 64 --n 64 --k 99999999 --blocks 0,0",
        "explain --block 2,0",
        "explain --steps 3",
        "explain --trace none/t.trace",
        "kernels --tile 64",
        "kernels --ptx",
        "kernels mma_64x64x32_warp32x32_thread16x8_stages3 --cuda",
        "kernels tiled --dtype f31",
        "man chek",
        "completions tcsh",
        "mul a.npy",
        "mul none.npy a.npy",
        "mul text.npy a.npy",
        "mul a.npy a.npy",
        "mul a.npy ints.npy --tb",
        "mul a.npy a.npy --device cuda:x",
        "mul a.npy a.npy --alpha x",
        "mul a.npy a.npy --tb --beta 1e300",
        "mul ints.npy ints.npy --tb --alpha 1e300",
        "bench --m 1:2",
        "bench --m 9:1:1",
        "bench --m 1,2,3 --n 1,2",
        "bench --layout nx",
        "bench --vs abacus",
        "bench --device interp",
        "bench --m 4 --device cpu --vs cublaslt",
        "bench --m 4 --json none/r.json",
        "tune --device cpu",
        "tune --from 8",
        "tune --random 0",
        "tune --random 4 --m 8",
        "tune --random 4 --from 9 --to 8",
        "tune --m 4 --json none/t.json",
    ];
    agree("errors", &lines, plain);
}

#[test]
fn checks() {
    let lines = [
        "check K5",
        "check K5 --metrics",
        "check K4",
        "check K4 --m 33 --n 33 --k 33 --dtype i32",
        "check tiled --tile 4 --m 8 --n 8 --k 8 --dtype i32 --plant missing-first-barrier",
        "check tiled --tile 4 --m 9 --n 9 --k 9 --dtype i32 --plant no-guards --seeds 2",
        "check K5 --json",
        "check tiled --tile 33 --json",
        "check K6 --m 0",
        "check exercise-6",
        "check exercise-7",
        "check exercises",
    ];
    agree("check", &lines, sources);
}

#[test]
fn explanations() {
    let lines = [
        "explain",
        "explain a.npy a.npy --tb --thread 1,1",
        "explain --kernel naive --m 2 --n 2 --k 3",
        "explain --kernel K5 --block 1,0",
        "explain --m 20 --n 4 --k 20 --tile 2 --plant missing-second-barrier --block 0,9 --thread 1,1",
        "explain --kernel hopper_128x64x64_consumers2_stages4 --dtype bf16",
        "explain --json",
    ];
    agree("explain", &lines, sources);
}

#[test]
fn kernels() {
    agree("kernels", &["kernels", "kernels k3 --tile 32", "kernels naive --dtype bf16"], plain);
}

#[test]
fn products() {
    let lines = [
        "mul a.npy a.npy --tb --device interp",
        "mul a.npy a.npy --tb --device interp --quiet",
        "mul ints.npy ints.npy --ta --device interp --verify",
        "mul a.npy a.npy --tb --device interp --verify --json",
        "mul a.npy a.npy --tb --device interp -o c.npy",
        "mul empty.npy empty.npy --tb --device cpu --verify",
        "mul empty.npy empty.npy --ta --device interp --json",
    ];
    agree("mul", &lines, figures);
}

#[test]
fn devices_and_doctor() {
    agree("devices", &["devices"], devices);
    agree("doctor", &["doctor"], titles);
}

#[test]
fn doctor_reports_cache_and_variables() {
    let place = place();
    let doctor = |cache: Option<&str>, cpu: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tegula"));
        command
            .args(["doctor", "--json"])
            .env("HOME", place.path())
            .env("TEGULA_CPU", cpu)
            .env_remove("CUDA_CACHE_PATH")
            .env_remove("CUDA_CACHE_DISABLE");
        match cache {
            Some("") => command.env("CUDA_CACHE_DISABLE", "1"),
            Some(cache) => command.env("CUDA_CACHE_PATH", cache),
            None => &mut command,
        };
        let output = command.output().unwrap();
        let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
        (object, output.status.code().unwrap())
    };
    let (here, code) = doctor(None, "portable");
    assert_eq!((code, &here["ready"], &here["cache"]["variable"]), (0, &true.into(), &"HOME".into()), "{here}");
    let directory = place.path().join(".nv/ComputeCache");
    assert_eq!((here["cache"]["directory"].as_str(), &here["cache"]["writable"]), (directory.to_str(), &true.into()));
    assert!(here["cpu"]["kernels"][0].as_str().unwrap().starts_with("portable "), "{here}");
    let (here, _) = doctor(Some(""), "");
    assert_eq!((&here["cache"]["variable"], &here["cache"]["directory"]), (&"CUDA_CACHE_DISABLE".into(), &().into()));
    let (here, _) = doctor(Some("/dev/null/no"), "");
    assert_eq!(here["cache"]["writable"], false, "{here}");
    assert!(here["cache"]["advice"].as_str().unwrap().contains("set CUDA_CACHE_PATH"), "{here}");
    let (here, code) = doctor(None, "abacus");
    assert!(here["cpu"]["advice"].as_str().unwrap().ends_with("unset TEGULA_CPU"), "{here}");
    // Without a GPU nothing is left to multiply on.
    assert_eq!(code == 0, here["ready"].as_bool().unwrap());
    assert_eq!(here["ready"], !here["gpus"].as_array().unwrap().is_empty());
}

/// A quota of one processor leaves one thread. Needs permission to create a control group.
#[test]
#[cfg(target_os = "linux")]
fn doctor_reports_the_quota_of_the_control_group() {
    use std::path::Path;
    let processors = std::thread::available_parallelism().unwrap().get();
    let name = format!("tegula-test-{}", std::process::id());
    let [v2, v1] = ["/sys/fs/cgroup", "/sys/fs/cgroup/cpu"].map(|root| Path::new(root).join(&name));
    // Only a root that is a control group itself makes a directory one.
    let group = [(v2, "cpu.max", "100000 100000"), (v1, "cpu.cfs_quota_us", "100000")].into_iter().find(
        |(group, file, quota)| {
            let created = std::fs::create_dir(group).is_ok();
            let limited = created && group.join(file).exists() && std::fs::write(group.join(file), quota).is_ok();
            if created && !limited {
                std::fs::remove_dir(group).unwrap();
            }
            limited
        },
    );
    let Some((group, ..)) = group.filter(|_| processors > 1) else {
        println!("skipped: no permission to create a control group, or one processor");
        return;
    };
    let script = "echo $$ > \"$0/cgroup.procs\" && exec \"$1\" doctor --json";
    let mut command = Command::new("sh");
    command.args(["-c", script]).arg(&group).arg(env!("CARGO_BIN_EXE_tegula"));
    for variable in ["TEGULA_NUM_THREADS", "RAYON_NUM_THREADS", "OMP_NUM_THREADS"] {
        command.env_remove(variable);
    }
    let output = command.output().unwrap();
    std::fs::remove_dir(&group).unwrap();
    let object: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(object["cpu"]["threads"], 1, "{object}");
    assert_eq!(object["cpu"]["limited_by"], "the CPU quota of the control group", "{object}");
}

/// Each script has a line that identifies its shell and program.
#[test]
fn shell_completions() {
    let place = place();
    for (shell, says) in [
        ("bash", "complete -F _tegula -o nosort -o bashdefault -o default tegula"),
        ("zsh", "#compdef tegula"),
        ("fish", "complete -c tegula -n \"__fish_tegula_using_subcommand check\" -l seeds"),
        ("powershell", "Register-ArgumentCompleter -Native -CommandName 'tegula'"),
        ("elvish", "set edit:completion:arg-completer[tegula]"),
    ] {
        let script = said(place.path(), &format!("completions {shell}"));
        assert!(script.contains(says), "{shell}: {script}");
        for command in
            ["mul", "check", "explain", "bench", "tune", "kernels", "devices", "doctor", "completions", "man"]
        {
            assert!(script.contains(command), "{shell}: {command}");
        }
        parses(shell, script.split_once('\n').unwrap().1);
    }
}

/// Parses the script by its shell, where installed.
fn parses(shell: &str, script: &str) {
    let place = TempDir::new().unwrap();
    let file = place.path().join("script");
    fs::write(&file, script).unwrap();
    let known = ["bash", "zsh", "fish"].contains(&shell);
    match Command::new(shell).arg("-n").arg(&file).output() {
        Ok(output) if known => assert!(output.status.success(), "{shell}: {}", String::from_utf8_lossy(&output.stderr)),
        _ => eprintln!("skipped: no {shell} here to read its script"),
    }
}

#[test]
fn pages() {
    agree("man", &["man", "man check", "man explain-file"], plain);
}

#[test]
fn every_snapshot_has_a_test() {
    let files = fs::read_dir(file("help").parent().unwrap()).unwrap();
    let mut names: Vec<_> = files.map(|file| file.unwrap().path().file_stem().unwrap().to_owned()).collect();
    names.sort();
    assert!(
        blessing() || names == ["check", "devices", "doctor", "errors", "explain", "help", "kernels", "man", "mul"],
        "{names:?}"
    );
}
