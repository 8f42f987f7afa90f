//! The steps of a block as text.

use std::io::{self, Write};

use tegula_ptx::SourceLine;
use tegula_ptx::trace::Step;

use super::super::text::{WIDTH, launch, wrapped};
use super::describe::{active, describe, lane_mask};
use super::view::FileView;
use crate::check_file::element;
use crate::failure::one_line;
use crate::report::check::{Finding, Severity, grouped, print_counters};

/// Prints the steps, then the cost of the launch and its findings.
pub fn print(out: &mut impl Write, view: &FileView) -> io::Result<()> {
    for line in head(view).iter().flat_map(|line| wrapped(line, WIDTH)) {
        writeln!(out, "{}", one_line(&line))?;
    }
    writeln!(out, "\nblock {}", at(view.trace.block, view.report.grid))?;
    for step in view.shown_steps().into_iter().map(|at| &view.trace.steps[at]) {
        print_step(out, view, step)?;
    }
    writeln!(out, "\ncost of all blocks")?;
    print_counters(out, &view.report.counters, false)?;
    for finding in &view.report.findings {
        let times = if finding.times > 1 {
            format!("; {} {} in all", grouped(finding.times), finding.counted)
        } else {
            String::new()
        };
        print_finding(out, view, finding, "  ", &times)?;
    }
    Ok(())
}

/// Coordinates as text, without axes whose extents are 1.
pub fn at([x, y, z]: [u32; 3], extents: [u32; 3]) -> String {
    match extents {
        [_, 1, 1] => x.to_string(),
        [_, _, 1] => format!("{x},{y}"),
        _ => format!("{x},{y},{z}"),
    }
}

/// The title, such as `reduce_tree (reduce.cu)`.
pub fn title(view: &FileView) -> String {
    format!("{} ({})", view.report.kernel, view.report.file)
}

fn head(view: &FileView) -> Vec<String> {
    let report = &view.report;
    let compiler = report.compiler.as_ref().map_or(String::new(), |compiler| format!(", compiled by {compiler}"));
    let mut lines = vec![format!("{}{compiler}", title(view)), format!("  {}", launch(report.grid, report.block))];
    for &array in &view.arrays {
        let memory = &view.memories[array as usize];
        let extents: Vec<String> = memory.shape.iter().map(u64::to_string).collect();
        let ty = element::name(memory.ty);
        lines.push(format!("  shared memory of a block: {} {} {ty}", memory.name, extents.join("×")));
    }
    lines.extend(recorded(view).map(|recorded| format!("  {recorded}")));
    lines
}

/// A text about the recorded steps and how to see the other ones; `None` if all are recorded.
pub fn recorded(view: &FileView) -> Option<String> {
    let (steps, total) = (&view.trace.steps, view.trace.total);
    if steps.len() as u64 == total {
        return (total == 0).then(|| "no step: this block accesses no memory".into());
    }
    let total = grouped(total);
    let (Some(first), Some(last)) = (steps.first(), steps.last()) else {
        return Some(format!("recorded: none of {total} steps; give a smaller --from"));
    };
    let [from, to] = [first.number, last.number + 1].map(grouped);
    let limit = if view.trace.full { ", the limit of memory" } else { "" };
    Some(format!("recorded: steps {from} to {to} of {total}{limit}; others with --from STEP --to STEP"))
}

fn print_step(out: &mut impl Write, view: &FileView, step: &Step) -> io::Result<()> {
    let line = view.trace.line(step.line);
    let source = view.text(&line.file).get((line.line as usize).saturating_sub(1)).map_or("", |text| text.trim_start());
    let place = view.place(line);
    writeln!(out, "{}", one_line(&format!("  step {}, warp {}, {place}: {source}", step.number, step.warp)))?;
    writeln!(out, "      {}  {}", lane_mask(step.lanes()), active(view, step))?;
    for line in describe(view, step) {
        for line in wrapped(&format!("      {line}"), WIDTH) {
            writeln!(out, "{}", one_line(&line))?;
        }
    }
    step.findings().try_for_each(|found| print_finding(out, view, &view.finding(found), "      ", ""))
}

/// Prints a finding with the source lines that it names.
fn print_finding(
    out: &mut impl Write,
    view: &FileView,
    finding: &Finding,
    indent: &str,
    times: &str,
) -> io::Result<()> {
    let severity = if finding.severity == Severity::Error { "error" } else { "note" };
    let message = view.without_file(&finding.message);
    for line in wrapped(&format!("{indent}{severity}: {}: {message}{times}", finding.kind), WIDTH) {
        writeln!(out, "{}", one_line(&line))?;
    }
    for (place, text) in named_lines(view, finding) {
        writeln!(out, "{}", one_line(&format!("{indent}    {place} | {}", text.trim_start())))?;
    }
    Ok(())
}

/// The distinct source lines of a finding: position and text.
fn named_lines(view: &FileView, finding: &Finding) -> Vec<(String, String)> {
    let mut lines: Vec<(String, String)> = Vec::new();
    for (file, number) in finding.source.iter().filter_map(|place| place.rsplit_once(':')) {
        let number: u32 = number.parse().unwrap_or(0);
        let Some(text) = view.text(file).get((number as usize).wrapping_sub(1)) else { continue };
        let place = view.place(&SourceLine { file: file.into(), line: number, inlined_at: None });
        if !lines.contains(&(place.clone(), text.clone())) {
            lines.push((place, text.clone()));
        }
    }
    lines
}
