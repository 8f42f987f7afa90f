//! Runs a program in the checker, and compares with the oracle.

use tegula_core::diagnostic::{FindingKind, Severity};
use tegula_ptx::ast::ScalarType;
use tegula_ptx::{Argument, Buffer, Config, Diagnostic, Launch, Module, Outcome};

use super::emit::{Emitted, add_to_sum, emit};
use super::execute::{BY_WARP, TOGETHER, execute};
use super::memory::initial;
use super::program::{Array, DATA_BYTES, FLAGS, Program};
use super::races::{Races, Results, races, results};

/// Seeds of the checker for each program, and those that are tried before a race counts as missed.
const SEEDS: u64 = 3;
const ALL_SEEDS: u64 = 16;
/// Schedules of the oracle: at first, and before a difference is reported.
pub const SCHEDULES: u64 = 2;
const ALL_SCHEDULES: u64 = 400;
/// Schedules that must wait for ever before a program counts as one that does.
const WAITING_SCHEDULES: u64 = 24;

/// Result of comparing a program.
#[derive(Debug)]
pub enum Verdict {
    /// Checker and oracle agree.
    Agree {
        /// Seeds on which a race was not reported.
        missed: u64,
    },
    /// Races depend on the schedule, or threads wait for ever on some schedules.
    Undecided,
    /// They differ: a short and a long description.
    Disagree(&'static str, String),
}

pub fn schedules(program_seed: u64, count: u64) -> impl Iterator<Item = u64> {
    (0..count).map(move |n| program_seed.wrapping_mul(977).wrapping_add(n))
}

/// Whether threads wait for ever on every schedule.
pub fn waits_for_ever(program: &Program, seed: u64) -> bool {
    waits_on(program, schedules(seed, WAITING_SCHEDULES))
}

fn waits_on(program: &Program, schedules: impl Iterator<Item = u64>) -> bool {
    // A thread that tests a phase of an mbarrier late, after the next one, waits for ever.
    // The lanes of a warp test it together, and do not.
    [TOGETHER].into_iter().chain(schedules).all(|schedule| execute(program, schedule).is_none())
}

/// Threads that wait for ever must be reported on each seed.
fn reports_wait(program: &Program) -> Verdict {
    let emitted = emit(program, &[]);
    for run_seed in 0..SEEDS {
        match run(&emitted, program, run_seed) {
            Err(message) => return Verdict::Disagree("refused", format!("{message}\n{}", numbered(&emitted.text))),
            Ok((outcome, _)) if outcome.error().is_none() => {
                return Verdict::Disagree("waits for ever", format!("seed {run_seed}\n{}", numbered(&emitted.text)));
            }
            Ok(_) => {}
        }
    }
    Verdict::Agree { missed: 0 }
}

pub fn verdict(program: &Program, seed: u64) -> Verdict {
    let Some(expected) = races(program, schedules(seed, SCHEDULES)) else {
        return match reports_wait(program) {
            _ if !waits_for_ever(program, seed) => Verdict::Undecided,
            // Confirm with all schedules.
            Verdict::Disagree(..) if !waits_on(program, schedules(seed, ALL_SCHEDULES)) => Verdict::Undecided,
            verdict => verdict,
        };
    };
    match compare(program, seed, &expected) {
        Verdict::Disagree(..) => {
            // Confirm with all schedules.
            let all = schedules(seed, ALL_SCHEDULES).chain([BY_WARP]);
            let Some(expected) = races(program, all) else { return Verdict::Undecided };
            compare(program, seed, &expected)
        }
        verdict => verdict,
    }
}

fn compare(program: &Program, seed: u64, expected: &Races) -> Verdict {
    if expected.certain.is_empty() != expected.possible.is_empty() {
        return Verdict::Undecided;
    }
    let results = expected.possible.is_empty().then(|| results(program, seed)).flatten();
    let observable = results.as_ref().map_or(Vec::new(), |results| results.observable.clone());
    let emitted = emit(program, &observable);
    let (mut found, mut missed) = (false, 0);
    for run_seed in 0..ALL_SEEDS {
        let (outcome, buffers) = match run(&emitted, program, run_seed) {
            Ok(outcome) => outcome,
            Err(message) => return Verdict::Disagree("refused", format!("{message}\n{}", numbered(&emitted.text))),
        };
        for diagnostic in outcome.diagnostics.iter().filter(|found| found.severity() == Severity::Error) {
            if let Err(what) = expects(expected, &emitted, diagnostic) {
                let why = format!("seed {run_seed}: {diagnostic}\nthe oracle has {:?}", expected.possible.keys());
                return Verdict::Disagree(what, format!("{why}\n{}", numbered(&emitted.text)));
            }
        }
        let reported = outcome.error().is_some();
        found |= reported;
        missed += u64::from(!reported);
        if let Some(results) = &results
            && let Err(why) = compare_results(results, &buffers)
        {
            return Verdict::Disagree("value", format!("seed {run_seed}: {why}\n{}", numbered(&emitted.text)));
        }
        if run_seed + 1 >= SEEDS && (found || expected.possible.is_empty()) {
            break;
        }
    }
    match expected.certain.is_empty() {
        true => Verdict::Agree { missed: 0 },
        false if found => Verdict::Agree { missed },
        false => {
            let why = format!("the oracle has {:?}\n{}", expected.certain, numbered(&emitted.text));
            Verdict::Disagree("not found", why)
        }
    }
}

/// Whether the oracle has a reported race.
fn expects(expected: &Races, emitted: &Emitted, found: &Diagnostic) -> Result<(), &'static str> {
    let steps: Vec<usize> = found.lines.iter().filter_map(|line| emitted.lines.get(&line.line).copied()).collect();
    let known = match (found.kind, &steps[..]) {
        (FindingKind::Race, &[one, other]) => expected.possible.contains_key(&(one.min(other), one.max(other))),
        (FindingKind::InFlight, &[one, other]) => expected.possible.contains_key(&(one.min(other), one.max(other))),
        _ => return Err(found.kind.name()),
    };
    if known { Ok(()) } else { Err("false alarm") }
}

/// Compares the sums of loaded values, and the data buffer.
fn compare_results(results: &Results, [data, sums]: &[Vec<u8>; 2]) -> Result<(), String> {
    for (thread, (loaded, sum)) in results.loaded.iter().zip(sums.chunks_exact(8)).enumerate() {
        let values = loaded.iter().filter(|(step, _)| results.observable[*step]);
        let expected = values.fold(0, |sum, &(_, value)| add_to_sum(sum, value));
        let sum = u64::from_le_bytes(sum.try_into().expect("8 bytes"));
        if sum != expected {
            return Err(format!("thread {thread} has sum {sum:#x}, not {expected:#x}, of {loaded:x?}"));
        }
    }
    let bytes = data.iter().zip(&results.data).enumerate();
    match bytes.into_iter().find(|(_, (found, expected))| expected.is_some_and(|expected| expected != **found)) {
        Some((at, (found, expected))) => Err(format!("data[{at}] is {found:#x}, not {expected:x?}")),
        None => Ok(()),
    }
}

/// Runs a program; returns the data buffer and the sums too.
pub fn run(emitted: &Emitted, program: &Program, seed: u64) -> Result<(Outcome, [Vec<u8>; 2]), String> {
    let module = Module::parse(&emitted.text).map_err(|error| error.to_string())?;
    let kernel = module.kernel("kernel").map_err(|error| error.to_string())?;
    let filled = |name: &str, array: Array, bytes: u32| {
        let bytes: Vec<u8> = (0..bytes).map(|at| initial(array, at)).collect();
        Buffer::new(name, ScalarType::U8, [bytes.len() as u64], bytes)
    };
    let threads = u64::from(program.blocks * program.threads);
    let mut buffers = [
        filled("data", Array::GlobalData, DATA_BYTES),
        filled("flags", Array::GlobalFlags, 4 * FLAGS),
        filled("input", Array::Input, DATA_BYTES),
        Buffer::uninitialized("sums", ScalarType::U64, [threads]),
    ];
    let arguments = (0..4).map(Argument::buffer).collect();
    let launch = Launch::new([program.blocks, 1, 1], [program.threads, 1, 1], arguments);
    let config = Config { seed, counters: false, parallel: false, steps: 1 << 16, ..Config::default() };
    let outcome = kernel.run(&launch, &mut buffers, &config).map_err(|error| error.to_string())?;
    let [data, _, _, sums] = buffers;
    Ok((outcome, [data.bytes, sums.bytes]))
}

pub fn numbered(text: &str) -> String {
    text.lines().enumerate().map(|(at, line)| format!("{:>4} {line}\n", at + 1)).collect()
}
