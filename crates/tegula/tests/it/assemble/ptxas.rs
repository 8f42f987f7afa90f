//! Runs NVIDIA's assembler and other CUDA tools.
//!
//! The assembler is the program that `TEGULA_PTXAS` names, or `ptxas` on the path. Without it a
//! test is skipped, or fails if `TEGULA_REQUIRE_PTXAS` is 1.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// Version of the rules for accepting a kernel; increment it for a stricter rule.
pub const RULES: u32 = 1;
/// Time limit of an assembly.
const LIMIT: Duration = Duration::from_secs(300);
/// GPUs before sm_90 have fewer resident threads or blocks than a kernel requests. The request is
/// ignored there without harm.
const TOO_FEW_RESIDENT: &str = "minnctapersm will be ignored";

/// A PTX text to assemble for a GPU.
#[derive(Debug)]
pub struct Job {
    pub name: String,
    pub text: String,
    pub target: String,
}

/// Resources of an assembled kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resources {
    /// Registers per thread.
    pub registers: u32,
    /// Static shared memory per block, in bytes.
    pub shared_bytes: u32,
}

/// The target of a text.
pub fn target(text: &str) -> String {
    text.lines().find_map(|line| line.strip_prefix(".target ")).unwrap_or_default().into()
}

/// Finds a program of the CUDA toolkit, or prints that the test is skipped.
///
/// # Panics
/// Panics if it is not found and required.
pub fn tool(name: &str) -> Option<PathBuf> {
    let found = match env::var_os("TEGULA_PTXAS") {
        Some(ptxas) => Some(Path::new(&ptxas).with_file_name(name)).filter(|path| path.is_file()),
        None => env::var_os("PATH")
            .and_then(|path| env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file())),
    };
    if found.is_none() {
        let required = env::var("TEGULA_REQUIRE_PTXAS").is_ok_and(|required| required == "1");
        assert!(
            !required,
            "{name}: not found; set TEGULA_PTXAS to the path of ptxas (PyPI has ptxas in nvidia-cuda-nvcc, and nvdisasm in \
             nvidia-cuda-nvdisasm)"
        );
        println!("skipped: {name} not found");
    }
    found
}

/// The version that an assembler prints.
pub fn version(ptxas: &Path) -> String {
    let output = Command::new(ptxas).arg("--version").output().expect("ptxas runs");
    let text = String::from_utf8_lossy(&output.stdout);
    text.lines().find_map(|line| line.split_once(", V")).expect("a version").1.trim().into()
}

/// Assembler options of a job.
pub fn options(job: &Job) -> [String; 2] {
    ["-v".into(), format!("-arch={}", job.target)]
}

/// Path of a file of a job.
pub fn file(folder: &Path, job: &Job, extension: &str) -> PathBuf {
    folder.join(format!("{}.{}.{extension}", job.name, job.target))
}

/// Assembles one text. Writes its machine code to the folder, as a `cubin`.
///
/// # Errors
/// If the assembler fails, the kernel spills or has a stack frame, or a warning means that it is
/// slow or wrong.
pub fn assemble(ptxas: &Path, folder: &Path, job: &Job) -> Result<Resources, String> {
    let path = file(folder, job, "ptx");
    fs::write(&path, &job.text).map_err(|e| format!("{}: {e}", path.display()))?;
    let mut command = Command::new(ptxas);
    command.args(options(job)).arg(&path).arg("-o").arg(file(folder, job, "cubin"));
    let (success, log) = output(&mut command, &file(folder, job, "log"))?;
    let failed = |why: &str| format!("{} for {}: {why}\n{log}", job.name, job.target);
    if !success {
        return Err(failed("the assembler failed"));
    }
    if let Some(why) = defect(&log) {
        return Err(failed(why));
    }
    resources(&log).ok_or_else(|| failed("the assembler names no registers"))
}

/// Runs a program with the time limit. Returns whether it succeeded, and its output.
pub fn output(command: &mut Command, log: &Path) -> Result<(bool, String), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", log.display());
    let file = fs::File::create(log).map_err(failed)?;
    let errors = file.try_clone().map_err(failed)?;
    let mut child = command.stdout(file).stderr(errors).stdin(Stdio::null()).spawn().map_err(failed)?;
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().map_err(failed)? {
            break status;
        }
        if start.elapsed() > LIMIT {
            let _ = child.kill().and_then(|()| child.wait());
            return Err(format!("{}: took longer than {LIMIT:?}", log.display()));
        }
        thread::sleep(Duration::from_millis(3));
    };
    Ok((status.success(), fs::read_to_string(log).map_err(failed)?))
}

/// The defect of an assembled kernel, if any. Some warnings are printed as information, with a
/// number.
fn defect(log: &str) -> Option<&'static str> {
    let some = |bytes: &str| log.match_indices(bytes).any(|(at, _)| !log[..at].ends_with(" 0"));
    let coded = (7508..=7520).any(|code| log.contains(&format!("C{code}")));
    if some(" bytes stack frame") {
        Some("it has a stack frame")
    } else if some(" bytes spill stores") || some(" bytes spill loads") {
        Some("it spills registers")
    } else {
        let warned = log.lines().any(|line| line.contains("warning") && !line.ends_with(TOO_FEW_RESIDENT));
        (coded || warned).then_some("the assembler warns")
    }
}

/// Parses the line `ptxas info : Used 24 registers, used 1 barriers, 2048 bytes smem`.
fn resources(log: &str) -> Option<Resources> {
    let used = log.lines().find_map(|line| line.split_once(" : Used "))?.1;
    let number =
        |unit: &str| used.split(", ").find_map(|part| part.strip_suffix(unit)?.rsplit(' ').next()?.parse().ok());
    Some(Resources { registers: number(" registers")?, shared_bytes: number(" bytes smem").unwrap_or(0) })
}

const CLEAN: &str =
    "ptxas info    : Function properties for k\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n";

#[test]
fn defect_of_a_clean_log_is_none() {
    assert_eq!(defect(CLEAN), None);
}

#[test]
fn defect_finds_spills_stack_frames_and_warnings() {
    let first_zero =
        |what: &str, count: &str| CLEAN.replace(&format!("0 bytes {what}"), &format!("{count} bytes {what}"));
    assert_eq!(defect(&first_zero("stack", "10")), Some("it has a stack frame"));
    assert_eq!(defect(&first_zero("spill stores", "20")), Some("it spills registers"));
    assert_eq!(defect(&first_zero("spill loads", "8")), Some("it spills registers"));
    let warned = format!("{CLEAN}ptxas info    : (C7510) Potential Performance Loss: wgmma is serialized\n");
    assert_eq!(defect(&warned), Some("the assembler warns"));
    let ignored =
        format!("{CLEAN}ptxas warning : Value of threads per SM for entry k is out of range. .{TOO_FEW_RESIDENT}\n");
    assert_eq!(defect(&ignored), None);
    assert_eq!(defect(&format!("{ignored}ptxas warning : something else\n")), Some("the assembler warns"));
}

#[test]
fn resources_reads_registers_and_shared_bytes() {
    let line = |text: &str| resources(&format!("{CLEAN}ptxas info    : Used {text}\n"));
    let takes = |registers, shared_bytes| Some(Resources { registers, shared_bytes });
    assert_eq!(line("24 registers, used 1 barriers, 2048 bytes smem, 416 bytes cmem[0]"), takes(24, 2048));
    assert_eq!(line("168 registers"), takes(168, 0));
    assert_eq!(line("no barriers"), None);
}

/// A text with `count` live values.
fn text_with_live_values(limit: &str, count: usize, extra: &str) -> Job {
    let lines = |line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
    let text = format!(
        ".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p)\n.maxntid 32, 1, 1\n{limit}\n{{\n\
         .reg .b64 %rd<2>;\n.reg .f32 %f<{}>;\nld.param.u64 %rd0, [p];\ncvta.to.global.u64 %rd0, %rd0;\n{}bar.sync 0;\n{}{extra}ret;\n}}\n",
        count + 1,
        lines(&|i| format!("ld.global.f32 %f{i}, [%rd0+{}];\n", 4 * i)),
        lines(&|i| format!("st.global.f32 [%rd0+{}], %f{i};\n", 4 * (count - 1 - i))),
    );
    Job { name: format!("test_{count}_{}", extra.len()), text, target: "sm_75".into() }
}

fn try_assemble(job: &Job) -> Option<Result<Resources, String>> {
    let ptxas = tool("ptxas")?;
    let folder = tempfile::tempdir().expect("a folder");
    Some(assemble(&ptxas, folder.path(), job))
}

#[test]
fn assemble_accepts_a_valid_text() {
    if let Some(try_assemble) = try_assemble(&text_with_live_values("", 8, "")) {
        assert!(try_assemble.expect("valid").registers >= 8);
    }
}

#[test]
fn assemble_of_an_invalid_instruction_is_an_error() {
    if let Some(try_assemble) = try_assemble(&text_with_live_values("", 8, "add.rn.f33 %f0, %f0, %f0;\n")) {
        assert!(try_assemble.expect_err("invalid").contains("the assembler failed"));
    }
}

#[test]
fn assemble_of_a_spilling_kernel_is_an_error() {
    if let Some(try_assemble) = try_assemble(&text_with_live_values(".maxnreg 24", 64, "")) {
        let why = try_assemble.expect_err("invalid");
        assert!(why.contains("stack frame") || why.contains("spills"), "{why}");
    }
}
