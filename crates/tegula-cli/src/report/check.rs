//! The report of `tegula check`: findings and counters.

use std::io::{self, Write};
use std::panic::Location;

use serde::Serialize;
use tegula_exercises::check as exercise;
use tegula_explain::assembled::SharedCounters;
use tegula_interp as interp;
use tegula_ir::{Fault, FaultKind};

use tegula_kernels::{Barriers, Edges, GemmKernel};

use crate::args::CheckArgs;
use crate::kernel::{KernelArg, Problem};

/// The object of `--json`.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    pub kernel: String,
    pub m: usize,
    pub n: usize,
    pub k: usize,
    pub seeds: u32,
    /// Whether no finding is an error.
    pub ok: bool,
    pub findings: Vec<Finding>,
    /// Zeros where validation refused the kernel.
    pub counters: Counters,
    /// With `--assembled`, for a kernel without errors.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub assembled: Option<Assembled>,
    /// For exercises only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<Goal>,
    /// For a kernel that is correct at these sizes and wrong at others.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub caveat: Option<Caveat>,
}

/// The sizes at which a kernel without errors is wrong.
#[derive(Clone, Debug, Serialize)]
pub struct Caveat {
    /// The sizes at which it is correct.
    pub text: String,
    /// A check that shows the error.
    pub command: String,
}

impl Caveat {
    /// The sizes at which a kernel is wrong, where a check at the problem's own sizes cannot show
    /// it.
    pub fn of(args: &CheckArgs, kernel: &KernelArg, problem: &Problem) -> Option<Caveat> {
        let GemmKernel::Plain(plain) = &problem.recipe.kernel else { return None };
        let tile = plain.tile as usize;
        let [m, n, k] = [problem.m, problem.n, problem.k];
        let whole = [m, n, k].iter().all(|size| size.is_multiple_of(tile));
        let (text, sizes) = match (plain.edges, plain.barriers) {
            (Edges::Floor | Edges::Unguarded, _) if whole && tile > 1 => {
                (format!("correct only where m, n and k are multiples of {tile}"), [m + 1, n + 1, k + 1])
            }
            (_, Barriers::NoSecond) if k <= tile => {
                (format!("correct only where k is at most {tile}, a single step"), [m.max(2), n.max(2), tile + 1])
            }
            _ => return None,
        };
        let [m, n, k] = sizes;
        let command = format!("tegula check {}{} --m {m} --n {n} --k {k}", kernel.text(), args.options.text());
        Some(Caveat { text, command })
    }
}

/// Shared memory costs of a product's kernels as assembled.
#[derive(Clone, Debug, Serialize)]
pub struct Assembled {
    pub gpu: String,
    pub shared_load_requests: u64,
    pub shared_load_wavefronts: u64,
    pub shared_load_conflicts: u64,
    pub shared_store_requests: u64,
    pub shared_store_wavefronts: u64,
    pub shared_store_conflicts: u64,
}

impl Assembled {
    pub fn new(gpu: &str, shared: SharedCounters) -> Assembled {
        let SharedCounters {
            load_requests,
            load_wavefronts,
            load_conflicts,
            store_requests,
            store_wavefronts,
            store_conflicts,
        } = shared;
        Assembled {
            gpu: gpu.into(),
            shared_load_requests: load_requests,
            shared_load_wavefronts: load_wavefronts,
            shared_load_conflicts: load_conflicts,
            shared_store_requests: store_requests,
            shared_store_wavefronts: store_wavefronts,
            shared_store_conflicts: store_conflicts,
        }
    }
}

/// The goal of an exercise.
#[derive(Clone, Debug, Serialize)]
pub struct Goal {
    pub text: String,
    pub met: bool,
    /// The file to correct.
    pub file: &'static str,
    /// The next exercise, where the goal is met.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The kernel is wrong.
    Error,
    /// The kernel is correct, and slower than necessary.
    Note,
}

/// A finding. Fields that do not apply are empty.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// `race`, `out-of-bounds`, `wrong-result`, …
    pub kind: String,
    /// x, y, z.
    pub block: Option<[u32; 3]>,
    /// x, y, z of each thread involved.
    pub threads: Vec<[u32; 3]>,
    /// The memory: `global` or `shared`.
    pub space: Option<&'static str>,
    /// The matrix or shared array.
    pub name: Option<String>,
    /// The element: coordinates, outermost first.
    pub index: Option<Vec<u64>>,
    /// `file:line` of each access.
    pub source: Vec<String>,
    /// The description, with all of the above that applies.
    pub message: String,
    /// Occurrences, over all blocks and seeds.
    pub times: u64,
    /// The unit of `times`.
    pub counted: &'static str,
}

impl Finding {
    /// A finding on elements of C, the first at `index`.
    pub fn of_result(kind: &str, index: [usize; 2], message: String) -> Finding {
        Finding {
            severity: Severity::Error,
            kind: kind.into(),
            block: None,
            threads: Vec::new(),
            space: Some(interp::Space::Global.name()),
            name: Some("c".into()),
            index: Some(index.map(|i| i as u64).to_vec()),
            source: Vec::new(),
            message,
            times: 1,
            counted: "seeds",
        }
    }

    /// A source line that costs more than its exercise allows.
    fn of_cost(kind: &str, line: &str, message: String) -> Finding {
        Finding {
            severity: Severity::Error,
            kind: kind.into(),
            block: None,
            threads: Vec::new(),
            space: None,
            name: None,
            index: None,
            message,
            source: vec![line.into()],
            times: 1,
            counted: "seeds",
        }
    }
}

impl From<&exercise::Finding> for Finding {
    fn from(finding: &exercise::Finding) -> Finding {
        match finding {
            exercise::Finding::Run(run) => Finding::from(&**run),
            exercise::Finding::Refused(fault) => Finding::from(fault),
            exercise::Finding::Result { kind, index, message } => Finding::of_result(kind, *index, message.clone()),
            exercise::Finding::Cost { kind, line, .. } => Finding::of_cost(kind, line, finding.message()),
        }
    }
}

impl From<&interp::Finding> for Finding {
    fn from(finding: &interp::Finding) -> Finding {
        Finding {
            severity: match finding.severity() {
                interp::Severity::Error => Severity::Error,
                interp::Severity::Note => Severity::Note,
            },
            kind: finding.kind.name().into(),
            // A redundant barrier is so in every block.
            block: (!finding.threads.is_empty()).then_some(finding.block),
            threads: finding.threads.clone(),
            space: finding.space.map(interp::Space::name),
            name: finding.space.map(|_| finding.name.clone()),
            index: finding.space.map(|_| finding.index.clone()),
            source: finding.source.iter().map(|at| line(at)).collect(),
            message: finding.message.clone(),
            times: finding.times,
            counted: finding.kind.count_unit(),
        }
    }
}

impl From<&Fault> for Finding {
    fn from(fault: &Fault) -> Finding {
        Finding {
            severity: Severity::Error,
            kind: fault.kind.name().into(),
            block: None,
            threads: Vec::new(),
            space: None,
            name: None,
            index: None,
            source: fault.source.iter().map(|at| line(at)).collect(),
            message: match fault.source {
                Some(at) => format!("{} ({})", fault.message, line(at)),
                None => fault.message.clone(),
            },
            times: 1,
            counted: "places in the kernel",
        }
    }
}

fn line(at: &Location<'_>) -> String {
    format!("{}:{}", at.file(), at.line())
}

/// Totals over the grid; barriers are counted once per warp.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counters {
    pub global_load_requests: u64,
    pub global_load_sectors: u64,
    pub global_store_requests: u64,
    pub global_store_sectors: u64,
    pub shared_load_wavefronts: u64,
    pub shared_store_wavefronts: u64,
    pub shared_bank_conflicts: u64,
    pub fma: u64,
    pub barriers: u64,
}

impl From<interp::Counters> for Counters {
    fn from(counters: interp::Counters) -> Counters {
        Counters {
            global_load_requests: counters.global_load_requests,
            global_load_sectors: counters.global_load_sectors,
            global_store_requests: counters.global_store_requests,
            global_store_sectors: counters.global_store_sectors,
            shared_load_wavefronts: counters.shared_load_wavefronts,
            shared_store_wavefronts: counters.shared_store_wavefronts,
            shared_bank_conflicts: counters.shared_bank_conflicts,
            fma: counters.fma,
            barriers: counters.barriers,
        }
    }
}

impl CheckReport {
    /// A report, ok if no finding is an error.
    pub fn new(
        kernel: String,
        [m, n, k]: [usize; 3],
        seeds: u32,
        findings: Vec<Finding>,
        counters: Counters,
    ) -> CheckReport {
        let ok = findings.iter().all(|finding| finding.severity == Severity::Note);
        CheckReport { kernel, m, n, k, seeds, ok, findings, counters, assembled: None, goal: None, caveat: None }
    }

    /// The report of a kernel that cannot be built.
    pub fn refused(args: &CheckArgs, why: &str) -> CheckReport {
        let fault = Fault { kind: FaultKind::Launch, message: why.into(), source: None };
        CheckReport {
            kernel: args.kernel.text().into(),
            m: args.m.unwrap_or_default(),
            n: args.n.unwrap_or_default(),
            k: args.k.unwrap_or_default(),
            seeds: args.interpreter.seeds,
            ok: false,
            findings: vec![Finding::from(&fault)],
            counters: Counters::default(),
            assembled: None,
            goal: None,
            caveat: None,
        }
    }

    /// The verdict, such as `no errors, 1 note`.
    pub fn verdict(&self) -> String {
        verdict(&self.findings)
    }
}

/// The verdict of findings, such as `no errors, 1 note`.
pub fn verdict(findings: &[Finding]) -> String {
    let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
    let errors = match count(Severity::Error) {
        0 => "no errors".into(),
        1 => "1 error".into(),
        errors => format!("{errors} errors"),
    };
    match count(Severity::Note) {
        0 => errors,
        1 => format!("{errors}, 1 note"),
        notes => format!("{errors}, {notes} notes"),
    }
}

impl Counters {
    fn rows(&self) -> [(&'static str, u64, &'static str); 9] {
        [
            ("global load requests", self.global_load_requests, ""),
            ("global load sectors", self.global_load_sectors, ""),
            ("global store requests", self.global_store_requests, ""),
            ("global store sectors", self.global_store_sectors, ""),
            ("shared load wavefronts", self.shared_load_wavefronts, ""),
            ("shared store wavefronts", self.shared_store_wavefronts, ""),
            ("shared bank conflicts", self.shared_bank_conflicts, "extra wavefronts"),
            ("fma", self.fma, ""),
            ("barriers", self.barriers, "once per warp"),
        ]
    }
}

/// Prints a report as text; with `metrics` each counter has its Nsight Compute metric beside it.
pub fn print(out: &mut impl Write, report: &CheckReport, metrics: bool) -> io::Result<()> {
    let CheckReport { kernel, m, n, k, seeds, .. } = report;
    let seeds = if *seeds == 1 { String::new() } else { format!(", {seeds} seeds") };
    let here = if report.caveat.is_some() { " at these sizes" } else { "" };
    writeln!(out, "{kernel}, {m}×{n} = {m}×{k} · {k}×{n}{seeds}: {}{here}", report.verdict())?;
    report.findings.iter().try_for_each(|finding| print_finding(out, finding))?;
    report
        .caveat
        .iter()
        .try_for_each(|Caveat { text, command }| writeln!(out, "  note: {text}; '{command}' shows the error"))?;
    print_counters(out, &report.counters, metrics)?;
    report.assembled.iter().try_for_each(|assembled| print_assembled(out, assembled))?;
    report.goal.iter().try_for_each(|goal| print_goal(out, goal))
}

/// Prints a finding on a line.
pub fn print_finding(out: &mut impl Write, finding: &Finding) -> io::Result<()> {
    let Finding { kind, message, times, counted, .. } = finding;
    let severity = if finding.severity == Severity::Error { "error" } else { "note" };
    let times = if *times == 1 { String::new() } else { format!("; {} {counted} in all", grouped(*times)) };
    writeln!(out, "  {severity}: {kind}: {message}{times}")
}

/// Prints the counters, one a line; with `metrics` each has its Nsight Compute metric beside it.
pub fn print_counters(out: &mut impl Write, counters: &Counters, metrics: bool) -> io::Result<()> {
    counters.rows().into_iter().try_for_each(|(name, count, note)| {
        let metric = interp::METRICS.iter().find(|(field, _)| *field == name.replace(' ', "_"));
        let note = match metric {
            Some((_, metric)) if metrics && name == "fma" => format!("{metric} (f64: dfma)"),
            Some((_, metric)) if metrics => (*metric).to_owned(),
            _ => note.to_owned(),
        };
        writeln!(out, "{}", format!("  {name:<24} {:>15}  {note}", grouped(count)).trim_end())
    })
}

fn print_assembled(out: &mut impl Write, assembled: &Assembled) -> io::Result<()> {
    let rows = [
        ("shared load wavefronts", assembled.shared_load_wavefronts),
        ("shared store wavefronts", assembled.shared_store_wavefronts),
        ("shared bank conflicts", assembled.shared_load_conflicts + assembled.shared_store_conflicts),
    ];
    rows.into_iter().try_for_each(|(name, count)| {
        writeln!(out, "  {name:<24} {:>15}  as assembled for {}", grouped(count), assembled.gpu)
    })
}

fn print_goal(out: &mut impl Write, Goal { text, met, file, next }: &Goal) -> io::Result<()> {
    let state = if *met { "met".into() } else { format!("not yet; edit {file}") };
    writeln!(out, "  goal: {text}: {state}")?;
    next.iter().try_for_each(|next| writeln!(out, "  next: {next}"))
}

/// A count with thousands separators: 1234567 as `1,234,567`.
pub fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let first = digits.len() % 3;
    let rest = digits.as_bytes()[first..].chunks(3).map(|group| String::from_utf8_lossy(group).into_owned());
    let head = (first > 0).then(|| digits[..first].to_owned());
    head.into_iter().chain(rest).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn race() -> Finding {
        Finding {
            kind: "race".into(),
            block: Some([1, 0, 0]),
            threads: vec![[0, 0, 0], [1, 0, 0]],
            space: Some("shared"),
            name: Some("tile_a".into()),
            source: vec!["tiled.rs:20".into(), "tiled.rs:24".into()],
            counted: "pairs of accesses",
            ..Finding::of_result("race", [0, 1], "block [1, 0, 0]: two threads in no order".into())
        }
    }

    fn report(findings: Vec<Finding>, counters: Counters) -> CheckReport {
        CheckReport::new("tiled".into(), [4, 5, 6], 3, findings, counters)
    }

    fn printed(report: &CheckReport) -> String {
        let mut out = Vec::new();
        print(&mut out, report, false).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn findings_and_counters_are_printed() {
        let text = printed(&report(vec![race(), Finding { times: 1200, ..race() }], Counters::default()));
        assert!(
            text.starts_with("tiled, 4×5 = 4×6 · 6×5, 3 seeds: 2 errors\n  error: race: block [1, 0, 0]: two"),
            "{text}"
        );
        assert!(text.contains("in no order; 1,200 pairs of accesses in all\n"), "{text}");
        assert!(text.contains("  barriers                               0  once per warp\n"), "{text}");
    }

    #[test]
    fn note_is_not_an_error() {
        let report = report(vec![Finding { severity: Severity::Note, ..race() }], Counters::default());
        assert!(report.ok);
        assert_eq!(report.verdict(), "no errors, 1 note");
        assert!(printed(&report).contains("  note: race"));
    }

    #[test]
    fn json_has_documented_names() {
        let value = report(vec![race()], Counters { fma: 7, ..Counters::default() });
        let value = serde_json::to_value(value).unwrap();
        assert_eq!(value["ok"], false);
        assert_eq!(value["findings"][0]["severity"], "error");
        assert_eq!(value["findings"][0]["threads"][1][0], 1);
        assert_eq!(value["counters"]["fma"], 7);
    }

    #[test]
    fn counts_have_thousands_separators() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
