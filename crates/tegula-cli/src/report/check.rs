//! What a check of a kernel found, and what the kernel costs.

use std::io::{self, Write};

use serde::Serialize;

/// With `--json`, the object.
#[derive(Clone, Debug, Serialize)]
pub struct CheckReport {
    pub kernel: String,
    /// No finding is an error.
    pub ok: bool,
    pub findings: Vec<Finding>,
    /// Absent where the kernel was refused before it ran.
    pub counters: Option<Counters>,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The kernel is wrong.
    Error,
    /// The kernel is right, and worse than it needs to be.
    #[allow(dead_code, reason = "made by the interpreter once it is connected")]
    Note,
}

/// One thing found. What does not apply is empty.
#[derive(Clone, Debug, Serialize)]
pub struct Finding {
    pub severity: Severity,
    /// `race`, `out-of-bounds`, `wrong-result`, …
    pub kind: String,
    /// x, y, z.
    pub block: Option<[u32; 3]>,
    /// x, y, z of each thread that takes part.
    pub threads: Vec<[u32; 3]>,
    /// The memory: `global c`, `shared tile_a`, …
    pub space: Option<String>,
    /// The element in it: coordinates, outermost first.
    pub index: Option<Vec<u64>>,
    /// `file:line` of each access.
    pub source: Vec<String>,
    pub message: String,
}

/// Totals over the grid; barriers are counted once a warp.
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

impl CheckReport {
    /// A report, sound if no finding is an error.
    #[allow(dead_code, reason = "made by the interpreter once it is connected")]
    pub fn new(kernel: String, findings: Vec<Finding>, counters: Option<Counters>) -> CheckReport {
        let ok = findings.iter().all(|finding| finding.severity == Severity::Note);
        CheckReport { kernel, ok, findings, counters }
    }

    /// How many findings are errors.
    pub fn errors(&self) -> usize {
        self.findings.iter().filter(|finding| finding.severity == Severity::Error).count()
    }
}

impl Counters {
    fn rows(&self) -> [(&'static str, u64, &'static str); 9] {
        [
            ("global load requests", self.global_load_requests, ""),
            ("global load sectors", self.global_load_sectors, "32 bytes each"),
            ("global store requests", self.global_store_requests, ""),
            ("global store sectors", self.global_store_sectors, "32 bytes each"),
            ("shared load wavefronts", self.shared_load_wavefronts, ""),
            ("shared store wavefronts", self.shared_store_wavefronts, ""),
            ("shared bank conflicts", self.shared_bank_conflicts, "extra wavefronts"),
            ("fma", self.fma, "each 2 flops"),
            ("barriers", self.barriers, "once a warp"),
        ]
    }
}

/// Prints a report for people.
pub fn print(out: &mut impl Write, report: &CheckReport) -> io::Result<()> {
    writeln!(out, "{}: {}", report.kernel, if report.ok { "no errors found" } else { "wrong" })?;
    report.findings.iter().try_for_each(|finding| print_finding(out, finding))?;
    report.counters.iter().try_for_each(|counters| print_counters(out, counters))
}

fn print_finding(out: &mut impl Write, finding: &Finding) -> io::Result<()> {
    let severity = if finding.severity == Severity::Error { "error" } else { "note" };
    writeln!(out, "  {severity}: {}: {}", finding.kind, finding.message)?;
    let place = place(finding);
    if !place.is_empty() {
        writeln!(out, "    {place}")?;
    }
    finding.source.iter().try_for_each(|source| writeln!(out, "    at {source}"))
}

/// `block (0, 0, 0), threads (1, 0, 0) and (0, 0, 0), shared tile_a [0, 1]`.
fn place(finding: &Finding) -> String {
    let triple = |[x, y, z]: [u32; 3]| format!("({x}, {y}, {z})");
    let block = finding.block.map(|block| format!("block {}", triple(block)));
    let threads: Vec<_> = finding.threads.iter().map(|&thread| triple(thread)).collect();
    let threads = match threads.len() {
        0 => None,
        1 => Some(format!("thread {}", threads[0])),
        _ => Some(format!("threads {}", threads.join(" and "))),
    };
    let index = finding.index.as_ref().map(|index| format!(" {index:?}")).unwrap_or_default();
    let space = finding.space.as_ref().map(|space| format!("{space}{index}"));
    [block, threads, space].into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn print_counters(out: &mut impl Write, counters: &Counters) -> io::Result<()> {
    counters.rows().into_iter().try_for_each(|(name, count, unit)| {
        let line = format!("  {name:<24} {:>15}  {unit}", grouped(count));
        writeln!(out, "{}", line.trim_end())
    })
}

/// 1234567 as `1,234,567`.
fn grouped(count: u64) -> String {
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
            severity: Severity::Error,
            kind: "race".into(),
            block: Some([1, 0, 0]),
            threads: vec![[0, 0, 0], [1, 0, 0]],
            space: Some("shared tile_a".into()),
            index: Some(vec![0, 1]),
            source: vec!["tiled.rs:20".into(), "tiled.rs:24".into()],
            message: "a store and a load of the same element, not ordered by a barrier".into(),
        }
    }

    fn printed(report: &CheckReport) -> String {
        let mut out = Vec::new();
        print(&mut out, report).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn an_error_names_block_threads_element_and_lines() {
        let text = printed(&CheckReport::new("tiled".into(), vec![race()], Some(Counters::default())));
        assert!(text.starts_with("tiled: wrong\n  error: race: a store and a load"));
        assert!(text.contains("    block (1, 0, 0), threads (0, 0, 0) and (1, 0, 0), shared tile_a [0, 1]\n"));
        assert!(text.contains("    at tiled.rs:20\n    at tiled.rs:24\n"));
    }

    #[test]
    fn a_note_is_no_error() {
        let report = CheckReport::new("K5".into(), vec![Finding { severity: Severity::Note, ..race() }], None);
        assert!(report.ok);
        assert_eq!(report.errors(), 0);
        assert!(printed(&report).contains("  note: race"));
    }

    #[test]
    fn json_has_the_promised_names() {
        let counters = Some(Counters { fma: 7, ..Counters::default() });
        let value = serde_json::to_value(CheckReport::new("tiled".into(), vec![race()], counters)).unwrap();
        assert_eq!(value["ok"], false);
        assert_eq!(value["findings"][0]["severity"], "error");
        assert_eq!(value["findings"][0]["threads"][1][0], 1);
        assert_eq!(value["counters"]["fma"], 7);
        let refused = serde_json::to_value(CheckReport::new("tiled".into(), vec![race()], None)).unwrap();
        assert!(refused["counters"].is_null());
    }

    #[test]
    fn counts_are_grouped() {
        assert_eq!([0, 999, 1000, 1_234_567].map(grouped), ["0", "999", "1,000", "1,234,567"]);
    }
}
