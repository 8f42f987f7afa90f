//! Assembles every printed kernel with NVIDIA's own assembler and reads what it says.
//!
//! A kernel fails on an error, a spill, a stack frame, or a warning that means a slow or wrong kernel. The assembler is a program
//! named by `TEGULA_PTXAS`, or `ptxas` on the path; without one this is skipped, unless `TEGULA_REQUIRE_PTXAS` is 1.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tegula::element::Type;
use tegula::ir::Kernel;
use tegula::kernels::{Blocked, Hopper, Plain, Variant};

use crate::{Outcome, kernels, root, variants};

/// The longest an assembly may take.
const LIMIT: Duration = Duration::from_secs(300);
/// The GPU that kernels are measured on.
const MEASURED: &str = "sm_90";

/// A text to assemble for a GPU.
struct Job {
    name: String,
    text: String,
    target: String,
}

/// Assembles everything, or the kernels whose names have the text in them.
pub fn run(part: Option<&str>) -> Outcome {
    let Some(ptxas) = tool("ptxas") else { return skip("ptxas") };
    let folder = root().join("target/assemble");
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    let mut jobs = jobs()?;
    jobs.retain(|job| part.is_none_or(|part| job.name.contains(part)));
    println!("assembling {} kernels", jobs.len());
    let mut failures = assemble_all(&ptxas, &folder, &jobs);
    failures.extend(inspect(&ptxas, &folder).err());
    failures.extend(inspect_matrix_units(&ptxas, &folder).err());
    failures.extend(inspect_pipeline(&ptxas, &folder).err());
    if failures.is_empty() { Ok(()) } else { Err(failures.join("\n")) }
}

fn skip(tool: &str) -> Outcome {
    if env::var("TEGULA_REQUIRE_PTXAS").is_ok_and(|v| v == "1") {
        return Err(format!(
            "no {tool}: set TEGULA_PTXAS to the path of ptxas (the PyPI packages nvidia-cuda-nvcc and \
            nvidia-cuda-nvdisasm have it and nvdisasm)"
        ));
    }
    println!("skipped: no {tool}");
    Ok(())
}

/// A program of the CUDA tools: beside the one that `TEGULA_PTXAS` names, or on the path.
fn tool(name: &str) -> Option<PathBuf> {
    if let Some(ptxas) = env::var_os("TEGULA_PTXAS") {
        return Some(Path::new(&ptxas).with_file_name(name)).filter(|path| path.is_file());
    }
    env::split_paths(&env::var_os("PATH")?).map(|folder| folder.join(name)).find(|path| path.is_file())
}

/// Every text for the GPU it asks for, and what is measured for the GPU it is measured on.
fn jobs() -> Result<Vec<Job>, String> {
    let mut jobs = Vec::new();
    let mut add = |name: String, text: String, measured: bool| {
        let target = target(&text);
        if measured && target != MEASURED {
            jobs.push(Job { name: name.clone(), text: text.clone(), target: MEASURED.into() });
        }
        jobs.push(Job { name, text, target });
    };
    for (name, kernel) in kernels::kept() {
        add(name, variants::print(kernel)?.text, true);
    }
    for variant in variants::all() {
        let text = print(variant.build())?;
        let overlapping = print(variant.build_overlapping())?;
        if text != overlapping {
            add(format!("{}.overlapping", variant.name()), overlapping, true);
        }
        add(variant.name(), text, variants::measured(&variant));
    }
    Ok(jobs)
}

fn print(kernel: tegula::Result<Kernel>) -> Result<String, String> {
    Ok(variants::print(kernel.map_err(|e| e.to_string())?)?.text)
}

/// The GPU that a text asks for.
fn target(text: &str) -> String {
    text.lines().find_map(|line| line.strip_prefix(".target ")).unwrap_or_default().into()
}

/// The failures, in the order of the jobs.
fn assemble_all(ptxas: &Path, folder: &Path, jobs: &[Job]) -> Vec<String> {
    let (next, failures) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let work = || {
        while let Some((i, job)) = take(&next, jobs) {
            if let Err(why) = assemble(ptxas, folder, job) {
                failures.lock().unwrap_or_else(|e| e.into_inner()).push((i, why));
            }
        }
    };
    let workers = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| (0..workers).for_each(|_| drop(scope.spawn(work))));
    let mut failures = failures.into_inner().unwrap_or_else(|e| e.into_inner());
    failures.sort();
    failures.into_iter().map(|(_, why)| why).collect()
}

fn take<'a>(next: &AtomicUsize, jobs: &'a [Job]) -> Option<(usize, &'a Job)> {
    let i = next.fetch_add(1, Ordering::Relaxed);
    Some((i, jobs.get(i)?))
}

/// Assembles one text and gives what the assembler said.
fn assemble(ptxas: &Path, folder: &Path, job: &Job) -> Result<String, String> {
    let file = folder.join(format!("{}.{}.ptx", job.name, job.target));
    fs::write(&file, &job.text).map_err(|e| format!("{}: {e}", file.display()))?;
    let mut command = Command::new(ptxas);
    command.arg("-v").arg(format!("-arch={}", job.target)).arg(&file).arg("-o").arg(file.with_extension("cubin"));
    let (success, log) = output(&mut command, &file.with_extension("log"))?;
    let failed = |why: &str| format!("{} for {}: {why}\n{log}", job.name, job.target);
    if !success {
        return Err(failed("the assembler failed"));
    }
    match complaint(&log) {
        Some(why) => Err(failed(why)),
        None => Ok(log),
    }
}

/// Runs a program to its end or to the time limit; whether it succeeded, and what it wrote.
fn output(command: &mut Command, log: &Path) -> Result<(bool, String), String> {
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

/// What is wrong with a kernel that did assemble. Some warnings are printed as information, by number alone.
fn complaint(log: &str) -> Option<&'static str> {
    let some = |bytes: &str| log.match_indices(bytes).any(|(at, _)| !log[..at].ends_with(" 0"));
    let coded = (7508..=7520).any(|code| log.contains(&format!("C{code}")));
    if some(" bytes stack frame") {
        Some("it has a stack frame")
    } else if some(" bytes spill stores") || some(" bytes spill loads") {
        Some("it spills registers")
    } else {
        let warned = log.lines().any(|line| line.contains("warning") && !line.ends_with(TOO_FEW_THREADS));
        (coded || warned).then_some("the assembler warns")
    }
}

/// Older multiprocessors hold fewer threads than a kernel asks for; there the wish is passed over and nothing is lost.
const TOO_FEW_THREADS: &str = "is out of range. .minnctapersm will be ignored";

/// The inner loop of the tiled kernel reads shared memory four elements at once and multiplies and adds in one instruction.
fn inspect(ptxas: &Path, folder: &Path) -> Outcome {
    let Some(nvdisasm) = tool("nvdisasm") else { return skip("nvdisasm") };
    let variant = Plain::named("K6").map_err(|e| e.to_string())?;
    let job = Job { name: "inspected".into(), text: print(Variant::from(variant).build())?, target: MEASURED.into() };
    assemble(ptxas, folder, &job)?;
    let cubin = folder.join(format!("inspected.{MEASURED}.cubin"));
    let (success, listing) = output(Command::new(nvdisasm).arg("-c").arg(cubin), &folder.join("inspected.sass"))?;
    let count = |what: &str| listing.matches(what).count();
    let counts = format!("{} FFMA, {} LDS.128, {} FMUL+FADD", count("FFMA"), count("LDS.128"), count("FADD"));
    println!("tiled f32 32 on {MEASURED}: {counts}");
    if success && count("FFMA") >= 32 && count("LDS.128") >= 8 && count("FADD") == 0 {
        return Ok(());
    }
    Err(format!("the tiled kernel is not assembled as meant: {counts}"))
}

/// The f64 kernel multiplies by the large instruction, loads 16 bytes at a time, and moves nothing that is multiplied from register to register
/// between; addresses of copies may move to neighbouring registers.
fn inspect_matrix_units(ptxas: &Path, folder: &Path) -> Outcome {
    let Some(nvdisasm) = tool("nvdisasm") else { return skip("nvdisasm") };
    let named = Blocked::named("dmma16x16_128x128x16_32x64_16x16_4_1_1", Type::F64);
    let kernel =
        named.and_then(|blocked| Blocked { vectors: [true; 3], ..blocked }.build()).map_err(|e| e.to_string())?;
    let job = Job { name: "inspected_f64".into(), text: variants::print(kernel)?.text, target: MEASURED.into() };
    assemble(ptxas, folder, &job)?;
    let cubin = folder.join(format!("inspected_f64.{MEASURED}.cubin"));
    let (success, listing) = output(Command::new(nvdisasm).arg("-c").arg(cubin), &folder.join("inspected_f64.sass"))?;
    // From the first product to the last.
    let bounds = listing.find("DMMA").zip(listing.rfind("DMMA"));
    let products = bounds.map_or("", |(first, last)| &listing[first..last + 4]);
    let count = |what: &str| products.matches(what).count();
    let (large, wide, moves) = (count("DMMA"), count("LDS.128"), fragment_moves(products));
    let narrow = count("LDS.") - wide;
    let counts = format!("{large} DMMA, {wide} LDS.128, {narrow} narrower, {moves} MOV to them");
    println!("f64 on matrix units on {MEASURED}: {counts}");
    if success
        && large == listing.matches("DMMA.16x8x16").count()
        && large == 16
        && wide <= 24
        && narrow == 0
        && moves == 0
    {
        return Ok(());
    }
    Err(format!("the f64 kernel on matrix units is not assembled as meant: {counts}"))
}

/// The kernel on matrix units of warpgroups multiplies with all of a tile's columns at once, has tiles copied to both blocks of a cluster and stored, and
/// moves registers from the warps that copy to those that multiply.
fn inspect_pipeline(ptxas: &Path, folder: &Path) -> Outcome {
    let Some(nvdisasm) = tool("nvdisasm") else { return skip("nvdisasm") };
    let kernel = Hopper::named("hopper_128x256x64_2_4_2", Type::BF16).and_then(|hopper| hopper.build());
    let text = variants::print(kernel.map_err(|e| e.to_string())?)?.text;
    let job = Job { name: "inspected_bf16".into(), target: target(&text), text };
    assemble(ptxas, folder, &job)?;
    let cubin = folder.join(format!("inspected_bf16.{}.cubin", job.target));
    let (success, listing) = output(Command::new(nvdisasm).arg("-c").arg(cubin), &folder.join("inspected_bf16.sass"))?;
    let wanted = [
        ("HGMMA.64x256x16", 4),
        ("UTMALDG.3D.MULTICAST", 2),
        ("UTMALDG.3D ", 1),
        ("UTMASTG.3D", 5),
        ("USETMAXREG", 2),
        ("STSM.16.M88.4", 20),
    ];
    let counts = wanted.map(|(what, _)| format!("{} {what}", listing.matches(what).count())).join(", ");
    println!("bf16 by warpgroups on {}: {counts}", job.target);
    if success && wanted.iter().all(|(what, count)| listing.matches(what).count() == *count) {
        return Ok(());
    }
    Err(format!("the kernel by warpgroups is not assembled as meant: {counts}"))
}

/// Moves to a register that a product takes next.
fn fragment_moves(listing: &str) -> usize {
    let lines: Vec<&str> = listing.lines().collect();
    let moved =
        |line: &str| -> Option<u32> { line.split("MOV").nth(1)?.split_once(" R")?.1.split_once(',')?.0.parse().ok() };
    let to_product = |(i, register): (usize, u32)| {
        let next = lines[i + 1..].iter().find_map(|line| match operands(line) {
            Some(operands) => operands.iter().any(|all| all.contains(&register)).then_some(true),
            None => names(line, register).then_some(false),
        });
        next == Some(true)
    };
    let moves = lines.iter().enumerate().filter_map(|(i, line)| Some((i, moved(line)?)));
    moves.filter(|&one| to_product(one)).count()
}

/// The registers of a product: of its sums, of A and B, and of the sums before.
fn operands(line: &str) -> Option<Vec<std::ops::Range<u32>>> {
    let (shape, operands) = line.split_once("DMMA.16x8x")?.1.split_once(' ')?;
    let depth: u32 = shape.parse().ok()?;
    let numbers = operands.split(|c: char| !c.is_ascii_digit()).filter_map(|number| number.parse::<u32>().ok());
    Some(numbers.zip([8, depth, depth / 2, 8]).map(|(first, count)| first..first + count).collect())
}

/// Whether an instruction names a register, or a pair whose second it is.
fn names(line: &str, register: u32) -> bool {
    let mut tokens = line.split(|c: char| !c.is_ascii_alphanumeric() && c != '.');
    let (alone, pair) = (format!("R{register}"), format!("R{}.64", register.wrapping_sub(1)));
    tokens.any(|token| token == pair || token.split('.').next() == Some(alone.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_of_what_is_multiplied_are_told_from_moves_of_addresses() {
        let product = "DMMA.16x8x16 R64, R32, R80, R64 ;";
        let listing = |middle: &str| format!("{product}\n{middle}\n{product}");
        for (middle, moves) in [
            ("IMAD.MOV.U32 R47, RZ, RZ, R2 ;", 1),
            ("@P0 MOV R87, R2 ;\nIADD3 R5, R6, R7, RZ ;", 1),
            ("IMAD.MOV.U32 R48, RZ, RZ, R2 ;", 0),
            (
                "IMAD.MOV.U32 R33, RZ, RZ, R2 ;\nLDGSTS.E.BYPASS.128 [R19], desc[UR4][R32.64], !P0 ;\nLDS.128 R32, [R9] ;",
                0,
            ),
        ] {
            assert_eq!(fragment_moves(&listing(middle)), moves, "{middle}");
        }
    }

    const CLEAN: &str = "ptxas info    : Function properties for k\n    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads\n";

    #[test]
    fn a_clean_log_passes() {
        assert_eq!(complaint(CLEAN), None);
    }

    #[test]
    fn spills_frames_and_warnings_are_seen() {
        assert_eq!(complaint(&CLEAN.replace("0 bytes stack", "10 bytes stack")), Some("it has a stack frame"));
        assert_eq!(
            complaint(&CLEAN.replace("0 bytes spill stores", "20 bytes spill stores")),
            Some("it spills registers")
        );
        assert_eq!(
            complaint(&CLEAN.replace("0 bytes spill loads", "8 bytes spill loads")),
            Some("it spills registers")
        );
        let warned = format!("{CLEAN}ptxas info    : (C7510) Potential Performance Loss: wgmma is serialized\n");
        assert_eq!(complaint(&warned), Some("the assembler warns"));
        let ignored = format!("{CLEAN}ptxas warning : Value of threads per SM for entry k {TOO_FEW_THREADS}\n");
        assert_eq!(complaint(&ignored), None);
        assert_eq!(complaint(&format!("{ignored}ptxas warning : something else\n")), Some("the assembler warns"));
    }

    /// A text with `count` values that are all needed at the end.
    fn crowded(limit: &str, count: usize, extra: &str) -> Job {
        let lines = |line: &dyn Fn(usize) -> String| (0..count).map(line).collect::<String>();
        let text = format!(
            ".version 6.4\n.target sm_75\n.address_size 64\n.visible .entry k(.param .u64 p)\n.maxntid 32, 1, 1\n{limit}\n{{\n\
             .reg .b64 %rd<2>;\n.reg .f32 %f<{}>;\nld.param.u64 %rd0, [p];\ncvta.to.global.u64 %rd0, %rd0;\n{}bar.sync 0;\n{}{extra}ret;\n}}\n",
            count + 1,
            lines(&|i| format!("ld.global.f32 %f{i}, [%rd0+{}];\n", 4 * i)),
            lines(&|i| format!("st.global.f32 [%rd0+{}], %f{i};\n", 4 * (count - 1 - i))),
        );
        Job { name: format!("planted_{count}_{}", extra.len()), text, target: "sm_75".into() }
    }

    fn verdict(job: &Job) -> Option<Result<String, String>> {
        let Some(ptxas) = tool("ptxas") else {
            skip("ptxas").expect("ptxas is required");
            return None;
        };
        let folder = env::temp_dir().join(format!("tegula-assemble-{}", std::process::id()));
        fs::create_dir_all(&folder).expect("a folder");
        Some(assemble(&ptxas, &folder, job))
    }

    #[test]
    fn the_gate_passes_a_sound_text() {
        if let Some(verdict) = verdict(&crowded("", 8, "")) {
            verdict.expect("sound");
        }
    }

    #[test]
    fn the_gate_stops_a_bad_instruction() {
        if let Some(verdict) = verdict(&crowded("", 8, "add.rn.f33 %f0, %f0, %f0;\n")) {
            assert!(verdict.expect_err("planted").contains("the assembler failed"));
        }
    }

    #[test]
    fn the_gate_stops_a_kernel_that_spills() {
        if let Some(verdict) = verdict(&crowded(".maxnreg 24", 64, "")) {
            let why = verdict.expect_err("planted");
            assert!(why.contains("stack frame") || why.contains("spills"), "{why}");
        }
    }
}
