//! The report of `tegula check` on a file: findings, source lines with their costs, advice.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Write};
use std::ops::RangeInclusive;
use std::path::Path;

use serde::Serialize;
use tegula_interp as interp;
use tegula_ptx::{Diagnostic, Outcome, SourceLine};

use super::costs::{Improvement, LineCosts, per};
use super::symbol::readable;
use crate::report::check::{Counters, Finding, Severity, grouped, print_counters, print_finding, verdict};

/// Number of source lines shown before and after a line with costs.
const CONTEXT: u32 = 2;

/// The object of `--json`.
#[derive(Clone, Debug, Serialize)]
pub struct FileReport {
    pub file: String,
    pub kernel: String,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
    /// The line of the launch in the host code that provides grid and block.
    pub launch_line: Option<u32>,
    pub seeds: u32,
    /// Whether no finding is an error.
    pub ok: bool,
    pub findings: Vec<Finding>,
    pub counters: Counters,
    pub thread_instructions: u64,
    /// Whether all blocks ran to their end.
    pub completed: bool,
    /// The compiler of a `.cu` file.
    pub compiler: Option<String>,
    /// The first instruction whose result can differ from the hardware's in its last bits.
    pub approximate: Option<String>,
    /// A buffer whose bits depend on the seed.
    pub seed_dependent: Option<SeedDependent>,
    /// Text that the kernel printed.
    pub output: String,
    pub lines: Vec<Line>,
    pub improvements: Vec<Improvement>,
    /// The device of `--compare`.
    pub compared: Option<Compared>,
}

/// A buffer whose bits depend on the schedule.
#[derive(Clone, Debug, Serialize)]
pub struct SeedDependent {
    pub name: String,
    pub seed: u64,
}

/// The cost of a source line.
#[derive(Clone, Debug, Serialize)]
pub struct Line {
    /// Empty for a line of the PTX text.
    pub file: String,
    pub line: u32,
    /// `file:line` of the call, for inlined code.
    pub inlined_at: Option<String>,
    #[serde(flatten)]
    pub counters: interp::Counters,
}

/// The comparison with a GPU.
#[derive(Clone, Debug, Serialize)]
pub struct Compared {
    /// Such as `cuda:0`.
    pub device: String,
    pub name: String,
    /// How results were compared: `bits`, `approximate`, or `atomic-order`.
    pub by: &'static str,
    /// Descriptions of the changes of the PTX, with reasons.
    pub changes: Vec<String>,
    pub buffers: Vec<ComparedBuffer>,
}

/// A buffer on the GPU and in the interpreter.
#[derive(Clone, Debug, Serialize)]
pub struct ComparedBuffer {
    pub name: String,
    pub elements: usize,
    /// Elements with other bits, but within the bound.
    pub within: usize,
    pub different: usize,
    /// The first element that differs, with both values.
    pub first: Option<String>,
}

impl FileReport {
    /// The verdict, such as `no errors, 1 note`.
    pub fn verdict(&self) -> String {
        verdict(&self.findings)
    }

    /// Adds findings; errors come first.
    pub fn add(&mut self, findings: Vec<Finding>) {
        self.findings.extend(findings);
        self.findings.sort_by_key(|finding| finding.severity);
        self.ok = self.findings.iter().all(|finding| finding.severity == Severity::Note);
    }
}

/// The lines of an outcome for the report.
pub fn lines(outcome: &Outcome) -> Vec<Line> {
    let each = |(line, counters): &(SourceLine, interp::Counters)| Line {
        file: line.file.clone(),
        line: line.line,
        inlined_at: line.inlined_at.as_deref().map(place_text),
        counters: *counters,
    };
    outcome.lines.iter().map(each).collect()
}

/// `file:line`.
fn place_text(line: &SourceLine) -> String {
    format!("{}:{}", line.file, line.line)
}

/// A finding of a diagnostic. `globals` are the names of buffers and variables.
pub fn finding(diagnostic: &Diagnostic, globals: &[&str]) -> Finding {
    let (name, index) = diagnostic.element.as_deref().and_then(element).unzip();
    let space = name.as_deref().map(|name| match globals.contains(&name) {
        true => interp::Space::Global.name(),
        false => interp::Space::Shared.name(),
    });
    Finding {
        severity: match diagnostic.severity() {
            interp::Severity::Error => Severity::Error,
            interp::Severity::Note => Severity::Note,
        },
        kind: diagnostic.kind.name().into(),
        block: (!diagnostic.threads.is_empty()).then_some(diagnostic.block),
        threads: diagnostic.threads.clone(),
        space,
        name: name.map(|name| readable(&name)),
        index: index.filter(|index| !index.is_empty()),
        source: diagnostic.lines.iter().map(place_text).collect(),
        message: readable(&diagnostic.message),
        times: diagnostic.times,
        counted: diagnostic.kind.count_unit(),
    }
}

/// The name and the index of an element such as `C[3][7]`.
fn element(text: &str) -> Option<(String, Vec<u64>)> {
    let end = text.find(['[', ' ']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    // Memory without a name: local memory, parameters, an address.
    if ["local", "the", "address"].contains(&name) {
        return None;
    }
    let indices =
        rest.split(['[', ']']).map_while(|part| if part.is_empty() { Some(None) } else { part.parse().ok().map(Some) });
    Some((name.into(), indices.flatten().collect()))
}

/// The texts of source files.
pub struct Sources {
    /// The name of the file to check, in the report.
    given: String,
    /// Its name in the PTX.
    main: String,
    files: BTreeMap<String, Option<Vec<String>>>,
}

impl Sources {
    /// The sources of a kernel. `given` is the file on the command line, `main` its name in the
    /// PTX, which is empty without source lines.
    pub fn new(given: &str, main: &str) -> Self {
        Sources { given: given.into(), main: main.into(), files: BTreeMap::new() }
    }

    /// Sets the text of a file; the empty name is that of the PTX.
    pub fn set(&mut self, file: &str, text: &str) {
        self.files.insert(file.into(), Some(split(text)));
    }

    /// The lines of a file, if it can be read.
    pub fn lines(&mut self, file: &str) -> Option<&[String]> {
        if !self.files.contains_key(file) {
            let text = fs::read(file).ok().map(|bytes| split(&String::from_utf8_lossy(&bytes)));
            self.files.insert(file.into(), text);
        }
        self.files.get(file)?.as_deref()
    }

    fn line(&mut self, file: &str, line: u32) -> Option<&str> {
        self.lines(file)?.get((line as usize).checked_sub(1)?).map(String::as_str)
    }

    /// The name of a file in the report.
    pub fn name<'a>(&'a self, file: &'a str) -> &'a str {
        if file.is_empty() { &self.given } else { file }
    }
}

/// The lines of a text with spaces for tabs, and without control characters.
fn split(text: &str) -> Vec<String> {
    let clean = |line: &str| {
        let line = line.replace('\t', "    ");
        line.chars().map(|c| if c.is_control() { '?' } else { c }).collect::<String>().trim_end().to_owned()
    };
    text.lines().map(clean).collect()
}

/// Prints a report as text. With `metrics` it has the totals with their Nsight Compute metrics.
pub fn print(
    out: &mut impl Write,
    report: &FileReport,
    costs: &LineCosts,
    sources: &mut Sources,
    metrics: bool,
) -> io::Result<()> {
    let FileReport { file, kernel, grid, block, shared, seeds, compiler, .. } = report;
    let shared = if *shared == 0 {
        String::new()
    } else {
        format!(", {} bytes of dynamic shared memory", grouped((*shared).into()))
    };
    let seeds = if *seeds == 1 { String::new() } else { format!(", {seeds} seeds") };
    let from = report.launch_line.map_or(String::new(), |line| format!(" as in line {line}"));
    let compiler = compiler.as_ref().map_or(String::new(), |compiler| format!(", compiled by {compiler}"));
    writeln!(
        out,
        "{kernel}, grid {}, block {}{from}{shared}{seeds} ({file}{compiler}): {}",
        extents(*grid),
        extents(*block),
        report.verdict()
    )?;
    for finding in &report.findings {
        // The source lines follow, so the file is removed from the message.
        let message = match sources.main.as_str() {
            "" => finding.message.clone(),
            main => finding.message.replace(&format!("({main}:"), "(line "),
        };
        print_finding(out, &Finding { message, ..finding.clone() })?;
        print_source(out, finding, sources)?;
    }
    if let Some(SeedDependent { name, seed }) = &report.seed_dependent {
        writeln!(out, "  note: the bits of {name} depend on the order of threads: seed {seed} and seed 0 differ")?;
    }
    if let Some(instruction) = &report.approximate {
        writeln!(out, "  note: results of {instruction} can differ from the GPU's in their last bits")?;
    }
    if !report.output.is_empty() {
        writeln!(out, "printed by the kernel:")?;
        report.output.lines().try_for_each(|line| writeln!(out, "  {}", crate::failure::one_line(line)))?;
    }
    report.compared.iter().try_for_each(|compared| print_compared(out, compared))?;
    print_costs(out, costs, sources)?;
    print_improvements(out, report, sources)?;
    if metrics { print_counters(out, &report.counters, true) } else { Ok(()) }
}

/// Prints extents without trailing ones: `2×3`.
fn extents([x, y, z]: [u32; 3]) -> String {
    match (y, z) {
        (1, 1) => format!("{x}"),
        (_, 1) => format!("{x}×{y}"),
        _ => format!("{x}×{y}×{z}"),
    }
}

/// Prints the source lines of a finding.
fn print_source(out: &mut impl Write, finding: &Finding, sources: &mut Sources) -> io::Result<()> {
    let mut printed: Vec<&str> = Vec::new();
    let places: Vec<_> = finding.source.iter().filter_map(|place| Some((place, place.rsplit_once(':')?))).collect();
    let name = |sources: &Sources, file: &str, line: &str| {
        let path = Path::new(sources.name(file));
        format!("{}:{line}", path.file_name().unwrap_or(path.as_os_str()).to_string_lossy())
    };
    let width = places.iter().map(|(_, (file, line))| name(sources, file, line).chars().count()).max().unwrap_or(0);
    for (place, (file, line)) in places {
        if printed.contains(&place.as_str()) {
            continue;
        }
        printed.push(place);
        let name = name(sources, file, line);
        let number = line.parse().unwrap_or(0);
        if let Some(text) = sources.line(file, number) {
            writeln!(out, "    {name:>width$} | {text}")?;
        }
    }
    Ok(())
}

fn print_compared(out: &mut impl Write, compared: &Compared) -> io::Result<()> {
    let by = match compared.by {
        "bits" => "all bits",
        "atomic-order" => "atomic sums within the error of their order, other floats within 1e-5",
        _ => "values within 1e-5",
    };
    writeln!(out, "compared with {} ({}), {by}:", compared.device, compared.name)?;
    for change in &compared.changes {
        writeln!(out, "  {change}")?;
    }
    compared.buffers.iter().try_for_each(|buffer| {
        let ComparedBuffer { name, elements, within, different, first } = buffer;
        let [elements, within, different] = [*elements, *within, *different].map(|count| grouped(count as u64));
        match first {
            Some(first) => writeln!(out, "  {name}: {different} of {elements} elements differ; {first}"),
            None if buffer.within == 0 => writeln!(out, "  {name}: {elements} elements are equal"),
            None => {
                writeln!(out, "  {name}: {within} of {elements} elements differ within the bound, others are equal")
            }
        }
    })
}

/// A column of the table of costs.
struct Column {
    head: [&'static str; 2],
    value: fn(&interp::Counters) -> String,
}

fn count(count: u64) -> String {
    if count == 0 { String::new() } else { grouped(count) }
}

fn ratio(of: u64, requests: u64) -> String {
    if requests == 0 { String::new() } else { format!("{:.1}", per(of, requests)) }
}

const fn shared_requests(c: &interp::Counters) -> u64 {
    c.shared_load_requests + c.shared_store_requests + c.shared_copy_requests
}

const COLUMNS: [Column; 6] = [
    Column { head: ["global", "requests"], value: |c| count(c.global_load_requests + c.global_store_requests) },
    Column {
        head: ["sectors", "/request"],
        value: |c| {
            ratio(c.global_load_sectors + c.global_store_sectors, c.global_load_requests + c.global_store_requests)
        },
    },
    Column { head: ["shared", "requests"], value: |c| count(shared_requests(c)) },
    Column {
        head: ["wavefronts", "/request"],
        value: |c| {
            ratio(c.shared_load_wavefronts + c.shared_store_wavefronts + c.shared_copy_wavefronts, shared_requests(c))
        },
    },
    Column { head: ["bank", "conflicts"], value: |c| count(c.shared_bank_conflicts) },
    Column { head: ["thread", "instructions"], value: |c| count(c.lane_instructions) },
];

/// Prints each line with costs, and the lines around it.
fn print_costs(out: &mut impl Write, costs: &LineCosts, sources: &mut Sources) -> io::Result<()> {
    let mut total = interp::Counters::default();
    costs.lines.values().for_each(|counters| total += *counters);
    if costs.lines.is_empty() {
        return Ok(());
    }
    // Columns without numbers are omitted.
    let columns: Vec<&Column> = COLUMNS.iter().filter(|column| !(column.value)(&total).is_empty()).collect();
    let cells = |counters: &interp::Counters| columns.iter().map(|column| (column.value)(counters)).collect::<Vec<_>>();
    let all = costs.lines.values().chain([&total]).map(cells);
    let mut widths: Vec<usize> = columns.iter().map(|column| column.head[0].len().max(column.head[1].len())).collect();
    all.for_each(|cells| widths.iter_mut().zip(cells).for_each(|(width, cell)| *width = cell.len().max(*width)));
    let last = costs.lines.keys().map(|(_, line)| line + CONTEXT).max().unwrap_or(0);
    let number = last.to_string().len().max("total".len());
    let row = |first: &str, cells: Vec<String>| {
        let cells: Vec<_> = cells.iter().zip(&widths).map(|(cell, width)| format!("{cell:>width$}")).collect();
        format!("{first:>number$}  {}", cells.join("  "))
    };
    for part in [0, 1] {
        let first = if part == 1 { "line" } else { "" };
        writeln!(
            out,
            "{}",
            row(first, columns.iter().map(|column| column.head[part].to_owned()).collect()).trim_end()
        )?;
    }
    for file in files(costs, &sources.main) {
        let of_file: BTreeMap<u32, &interp::Counters> = costs
            .lines
            .iter()
            .filter(|((known, _), _)| *known == file)
            .map(|((_, line), counters)| (*line, counters))
            .collect();
        writeln!(out, "{}", sources.name(&file))?;
        let mut gap = false;
        for range in ranges(of_file.keys().copied(), sources.lines(&file).map_or(0, <[String]>::len) as u32) {
            if std::mem::replace(&mut gap, true) {
                writeln!(out, "{:>number$}", "...")?;
            }
            for line in range {
                let counters =
                    of_file.get(&line).map_or_else(|| vec![String::new(); columns.len()], |counters| cells(counters));
                let text = sources.line(&file, line).unwrap_or("");
                writeln!(out, "{}", format!("{} | {text}", row(&line.to_string(), counters)).trim_end())?;
            }
        }
    }
    writeln!(out, "{}", row("total", cells(&total)))
}

/// The files with costs; the checked file is the first.
fn files(costs: &LineCosts, main: &str) -> Vec<String> {
    let mut files: Vec<String> = costs.lines.keys().map(|(file, _)| file.clone()).collect();
    files.dedup();
    files.sort_by_key(|file| file != main);
    files
}

/// The ranges of lines to show: lines with costs, and the lines around them.
fn ranges(lines: impl Iterator<Item = u32>, last: u32) -> Vec<RangeInclusive<u32>> {
    let mut ranges: Vec<RangeInclusive<u32>> = Vec::new();
    for line in lines {
        let (from, to) = match last {
            // The file cannot be read.
            0 => (line, line),
            last => (line.saturating_sub(CONTEXT).max(1), line.saturating_add(CONTEXT).min(last).max(line)),
        };
        match ranges.last_mut() {
            // A gap of one line is filled, since its mark would need a line too.
            Some(range) if from <= range.end() + 2 && last > 0 => *range = *range.start()..=to,
            _ => ranges.push(from..=to),
        }
    }
    ranges
}

fn print_improvements(out: &mut impl Write, report: &FileReport, sources: &mut Sources) -> io::Result<()> {
    if report.improvements.is_empty() {
        return Ok(());
    }
    writeln!(out, "improve first:")?;
    for (number, improvement) in report.improvements.iter().enumerate() {
        let Improvement { file, line, message, .. } = improvement;
        let place =
            if *file == sources.main { format!("line {line}") } else { format!("{}:{line}", sources.name(file)) };
        writeln!(out, "  {}. {place}: {message}", number + 1)?;
        if let Some(text) = sources.line(file, *line) {
            writeln!(out, "       {}", text.trim_start())?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_have_names_and_indices() {
        assert_eq!(element("C[3][7]"), Some(("C".into(), vec![3, 7])));
        assert_eq!(element("C[-1]"), Some(("C".into(), vec![])));
        assert_eq!(element("tile at byte 64 (word 16)"), Some(("tile".into(), vec![])));
        assert_eq!(element("local memory at byte 8"), None);
        assert_eq!(element("address 0x0"), None);
    }

    #[test]
    fn ranges_join_near_lines() {
        assert_eq!(ranges([3, 5, 12].into_iter(), 13), [1..=7, 10..=13]);
        assert_eq!(ranges([3, 9].into_iter(), 100), [1..=11]);
        assert_eq!(ranges([3, 10].into_iter(), 100), [1..=5, 8..=12]);
        assert_eq!(ranges([3, 4].into_iter(), 0), [3..=3, 4..=4]);
    }

    #[test]
    fn source_lines_have_no_control_characters() {
        assert_eq!(split("\tint a;\x1b[31m \r\nb"), ["    int a;?[31m", "b"]);
    }
}
