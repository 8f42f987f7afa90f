//! The check of an exercise in the interpreter: at one size after another, up to the first with an
//! error.
//!
//! It depends on the interpreter alone, so that a try rebuilds this crate and nothing else.

use std::collections::BTreeMap;
use std::panic::Location;

use tegula_core::element::Type;
use tegula_core::error::{Error, Result};
use tegula_core::matrix::{Layout, Shape};
use tegula_interp::{self as interp, Buffer, Config, Counters};
use tegula_ir::{self as ir, Checked, Fault, FaultKind, Kernel};

use crate::Exercise;

/// A finding of a check.
#[derive(Clone, Debug)]
pub enum Finding {
    /// What the interpreter reports, such as a race.
    Run(Box<interp::Finding>),
    /// What the validation of the kernel or of its launch reports.
    Refused(Fault),
    /// Elements of C that are wrong or were never written.
    Result {
        /// `wrong-result` or `unwritten`.
        kind: &'static str,
        /// Row and column of the first of them.
        index: [usize; 2],
        /// The description.
        message: String,
    },
    /// A source line that costs more than the exercise allows.
    Cost {
        /// `uncoalesced` or `bank-conflict`.
        kind: &'static str,
        /// The line, as `file:line`.
        line: String,
        /// The description.
        message: String,
    },
}

impl Finding {
    /// Its kind: `race`, `out-of-bounds`, `wrong-result`, …
    pub fn kind(&self) -> &str {
        match self {
            Finding::Run(finding) => finding.kind.name(),
            Finding::Refused(fault) => fault.kind.name(),
            Finding::Result { kind, .. } | Finding::Cost { kind, .. } => kind,
        }
    }

    /// Whether it is an error rather than a note.
    pub fn is_error(&self) -> bool {
        match self {
            Finding::Run(finding) => finding.severity() == interp::Severity::Error,
            _ => true,
        }
    }

    /// The source lines it names, as `file:line`.
    pub fn source(&self) -> Vec<String> {
        let line = |at: &&Location<'_>| format!("{}:{}", at.file(), at.line());
        match self {
            Finding::Run(finding) => finding.source.iter().map(|at| line(&&**at)).collect(),
            Finding::Refused(fault) => fault.source.iter().map(|at| line(&&**at)).collect(),
            Finding::Result { .. } => Vec::new(),
            Finding::Cost { line, .. } => vec![line.clone()],
        }
    }

    /// The description, with the source lines in it.
    pub fn message(&self) -> String {
        match self {
            Finding::Run(finding) => finding.message.clone(),
            Finding::Refused(fault) => match self.source().first() {
                Some(line) => format!("{} ({line})", fault.message),
                None => fault.message.clone(),
            },
            Finding::Result { message, .. } => message.clone(),
            Finding::Cost { line, message, .. } => format!("{message} ({line})"),
        }
    }

    fn times(&self) -> u64 {
        match self {
            Finding::Run(finding) => finding.times,
            _ => 1,
        }
    }
}

/// The result of a check.
#[derive(Clone, Debug)]
pub struct Report {
    /// m, n and k: those with an error, else the last ones.
    pub sizes: [usize; 3],
    /// Findings over all seeds, errors first, each with how often it occurred.
    pub findings: Vec<(Finding, u64)>,
    /// Totals over the grid; zeros where the kernel was refused.
    pub counters: Counters,
}

impl Report {
    /// Whether no finding is an error.
    pub fn ok(&self) -> bool {
        self.findings.iter().all(|(finding, _)| !finding.is_error())
    }
}

/// Checks an exercise at its sizes, each with `seeds` random inputs and warp orders. A warp that
/// executes more than `steps` instructions is reported.
///
/// # Errors
/// Where memory for the matrices is missing. Mistakes of the kernel are in the report.
pub fn check(exercise: &Exercise, seeds: u32, steps: u64) -> Result<Report> {
    let [first, further @ ..] = exercise.sizes;
    let mut report = check_at(exercise, first, seeds, steps)?;
    for sizes in further {
        if report.ok() {
            report = check_at(exercise, sizes, seeds, steps)?;
        }
    }
    Ok(report)
}

fn check_at(exercise: &Exercise, sizes: [usize; 3], seeds: u32, steps: u64) -> Result<Report> {
    let mut report = Report { sizes, findings: Vec::new(), counters: Counters::default() };
    let refused = |faults: Vec<Fault>| faults.into_iter().map(|fault| (Finding::Refused(fault), 1)).collect();
    let kernel = match ir::check((exercise.build)()) {
        Ok(kernel) => kernel,
        Err(Error::InvalidKernel { faults, .. }) => return Ok(Report { findings: refused(faults.to_vec()), ..report }),
        Err(error) => return Err(error),
    };
    for seed in 0..u64::from(seeds) {
        match run(exercise, &kernel, sizes, Config { seed, steps, ..Config::default() }) {
            Ok((findings, counters)) => {
                findings.into_iter().for_each(|finding| gather(&mut report.findings, finding));
                report.counters = counters;
            }
            // Parameters and the grid may be what is wrong in the kernel.
            Err(Error::Launch { why, .. }) => {
                let fault = Fault { kind: FaultKind::Launch, message: why, source: None };
                return Ok(Report { findings: refused(vec![fault]), counters: Counters::default(), ..report });
            }
            Err(error) => return Err(error),
        }
    }
    report.findings.sort_by_key(|(finding, _)| !finding.is_error());
    Ok(report)
}

/// Adds a finding. Findings of one kind at the same lines are counted and kept once.
fn gather(findings: &mut Vec<(Finding, u64)>, finding: Finding) {
    let same = |known: &Finding| known.kind() == finding.kind() && known.source() == finding.source();
    match findings.iter_mut().find(|(known, _)| same(known)) {
        Some((_, times)) => *times += finding.times(),
        None => {
            let times = finding.times();
            findings.push((finding, times));
        }
    }
}

/// Runs the kernel once on random matrices. Costs are compared with the bound where nothing else is
/// wrong.
fn run(
    exercise: &Exercise,
    kernel: &Checked<Kernel>,
    [m, n, k]: [usize; 3],
    config: Config,
) -> Result<(Vec<Finding>, Counters)> {
    let mut random = Random(config.seed);
    let mut matrix = |rows: usize, cols: usize| (0..rows * cols).map(|_| random.number()).collect::<Vec<f32>>();
    let (a, b) = (matrix(m, k), matrix(k, n));
    let layout = |rows, cols| Layout::row_major(Shape::new(rows, cols));
    let (input_a, input_b) = (Buffer::from_slice(&a, layout(m, k)?)?, Buffer::from_slice(&b, layout(k, n)?)?);
    let c = Buffer::output(Type::F32, layout(m, n)?)?;
    let outcome = interp::run(kernel, &[(&input_a).into(), (&input_b).into(), (&c).into()], &config)?;
    let mut findings: Vec<Finding> =
        outcome.findings.iter().map(|finding| Finding::Run(Box::new(finding.clone()))).collect();
    findings.extend(compare(&a, &b, &c, [m, n, k])?);
    if !findings.iter().any(Finding::is_error) {
        findings.extend(costly_lines(exercise, &outcome));
    }
    Ok((findings, outcome.counters))
}

/// Elements of C named in a message.
const NAMED: usize = 4;

/// Unit roundoff of f32.
const ROUNDOFF: f64 = 1.0 / (1 << 24) as f64;

/// The elements of C that were never written, and those whose error is above the bound of the plain
/// loop, (k + 2)·u·|A|·|B| (Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., §3.1).
fn compare(a: &[f32], b: &[f32], c: &Buffer, [m, n, k]: [usize; 3]) -> Result<Vec<Finding>> {
    let result = c.to_vec::<f32>()?;
    let bound = k as f64 + 2.0;
    let (mut unwritten, mut wrong) = (Vec::new(), Vec::new());
    for (row, col) in (0..m).flat_map(|row| (0..n).map(move |col| (row, col))) {
        let products = (0..k).map(|p| f64::from(a[row * k + p]) * f64::from(b[p * n + col]));
        let (exact, size) = products.fold((0.0, 0.0), |(sum, size), product| (sum + product, size + product.abs()));
        let got = result[row * n + col];
        let error = (f64::from(got) - exact).abs();
        // NaN is not within the bound.
        let correct = error <= bound * ROUNDOFF * size;
        if !c.written(0, row, col) {
            unwritten.push((row, col));
        } else if !correct {
            wrong.push((row, col, got, exact, error / (ROUNDOFF * size)));
        }
    }
    let (mut findings, all) = (Vec::new(), m * n);
    if let Some(&(row, col)) = unwritten.first() {
        let named: Vec<_> = unwritten.iter().take(NAMED).map(|at| format!("{at:?}")).collect();
        let more = if unwritten.len() > NAMED { ", …" } else { "" };
        let message =
            format!("{} of {all} elements of c are never written: {}{more}", unwritten.len(), named.join(", "));
        findings.push(Finding::Result { kind: "unwritten", index: [row, col], message });
    }
    if let Some(&(row, col, got, exact, r)) = wrong.first() {
        let r = if r.is_finite() { format!(", r = {r:.3e}, above the bound {bound}") } else { String::new() };
        let message = format!(
            "{} of {all} elements of c are wrong: the first, ({row}, {col}), is {got:?} and should be {:?}{r}",
            wrong.len(),
            exact as f32
        );
        findings.push(Finding::Result { kind: "wrong-result", index: [row, col], message });
    }
    Ok(findings)
}

/// A finding for each source line above the exercise's bound.
fn costly_lines(exercise: &Exercise, outcome: &interp::Outcome) -> Vec<Finding> {
    let Some(bound) = exercise.bound else { return Vec::new() };
    let mut lines = BTreeMap::<_, Counters>::new();
    for (site, counters) in &outcome.lines {
        *lines.entry((site.location.file(), site.location.line())).or_default() += *counters;
    }
    let costly = lines.iter().filter_map(|(&(file, line), counters)| {
        let message = bound.exceeded(counters)?;
        Some(Finding::Cost { kind: bound.kind(), line: format!("{file}:{line}"), message })
    });
    costly.collect()
}

/// Random numbers, the same on every machine: SplitMix64 (Steele, Lea and Flood, Fast splittable
/// pseudorandom number generators, OOPSLA 2014).
struct Random(u64);

impl Random {
    /// A number from -1 up to 1, a multiple of 2⁻²³.
    fn number(&mut self) -> f32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let x = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((x ^ (x >> 31)) >> 40) as f32 / (1 << 23) as f32 - 1.0
    }
}

#[cfg(test)]
#[path = "../solutions/mod.rs"]
mod solutions;

#[cfg(test)]
mod tests {
    use super::solutions::SOLUTIONS;
    use super::*;
    use crate::EXERCISES;

    /// The kinds of error of each exercise, and at which of its sizes they occur.
    const EXPECTED: [(&[&str], usize); 8] = [
        (&["wrong-result"], 0),
        (&["out-of-bounds"], 2),
        (&["race", "uninitialised", "wrong-result"], 0),
        (&["race", "wrong-result"], 1),
        (&["wrong-result"], 2),
        (&["uncoalesced"], 0),
        (&["bank-conflict"], 0),
        (&["in-flight", "wrong-result"], 0),
    ];

    fn checked(exercise: &Exercise, seeds: u32) -> Report {
        check(exercise, seeds, Config::default().steps).unwrap()
    }

    #[test]
    fn each_exercise_has_its_own_error() {
        for (exercise, (kinds, at)) in EXERCISES.iter().zip(EXPECTED) {
            let report = checked(exercise, 1);
            let mut found: Vec<_> = report.findings.iter().map(|(finding, _)| finding.kind()).collect();
            found.dedup();
            assert_eq!(found, kinds, "{}: {:?}", exercise.name, report.findings);
            assert_eq!(report.sizes, exercise.sizes[at], "{}", exercise.name);
            assert!(!report.ok(), "{}", exercise.name);
            let sources: Vec<_> = report.findings.iter().flat_map(|(finding, _)| finding.source()).collect();
            assert!(sources.iter().all(|source| source.starts_with(exercise.file)), "{:?}", report.findings);
        }
    }

    #[test]
    fn each_solution_is_correct_at_all_sizes() {
        for (exercise, build) in EXERCISES.iter().zip(SOLUTIONS) {
            let report = checked(&Exercise { build, ..*exercise }, 2);
            assert!(report.findings.is_empty(), "{}: {:?}", exercise.name, report.findings);
            assert_eq!(report.sizes, exercise.sizes[2]);
        }
    }

    #[test]
    fn costs_are_reported_line_by_line() {
        let lines = |exercise: &Exercise| {
            let source = std::fs::read_to_string(root().join(exercise.file)).unwrap();
            let line = |place: &str| source.lines().nth(place.rsplit_once(':')?.1.parse::<usize>().ok()? - 1);
            let findings = checked(exercise, 1).findings;
            findings.iter().map(|(found, _)| line(&found.source()[0]).unwrap().trim().to_owned()).collect::<Vec<_>>()
        };
        let scattered = lines(&EXERCISES[5]);
        assert_eq!(scattered.len(), 3, "{scattered:?}");
        assert!(
            scattered.iter().zip(["a.load_or", "b.load_or", "c.store"]).all(|(line, access)| line.contains(access))
        );
        let one_bank = lines(&EXERCISES[6]);
        assert_eq!(one_bank.len(), 1, "{one_bank:?}");
        assert!(one_bank[0].starts_with("tile_a.store"), "{one_bank:?}");
    }

    #[test]
    fn every_kernel_that_compiles_has_a_report() {
        use tegula_ir::prelude::*;
        let kinds = |build: fn() -> Kernel| {
            let report = checked(&Exercise { build, ..EXERCISES[0] }, 1);
            assert!(!report.ok());
            report.findings.iter().map(|(finding, _)| finding.kind().to_owned()).collect::<Vec<_>>()
        };
        let nothing = || {
            kernel("nothing", Block::d1(32), |k| {
                let _ = (k.input::<f32>("a"), k.input::<f32>("b"), k.output::<f32>("c"));
                k.grid([k.constant(1), k.constant(1), k.constant(1)]);
            })
        };
        assert_eq!(kinds(nothing), ["unwritten"]);
        assert_eq!(kinds(|| kernel("nowhere", Block::d1(32), |_| ())), ["launch"]);
        let one_matrix = || {
            kernel("one_matrix", Block::d1(32), |k| {
                k.input::<f32>("a");
                k.grid([k.constant(1), k.constant(1), k.constant(1)]);
            })
        };
        assert_eq!(kinds(one_matrix), ["launch"]);
    }

    #[test]
    fn exercise_files_exist() {
        assert!(EXERCISES.iter().all(|exercise| root().join(exercise.file).is_file()));
    }

    fn root() -> std::path::PathBuf {
        std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
    }
}
