//! The timeline of a pipeline as text: a row for each agent and stage, and the waits.

use tegula_explain::pipeline::{Costs, LEGEND, Row, State, Timeline};

use super::text::{WIDTH, at};
use super::trace_view::TraceView;

/// Columns shown at the end of a long timeline.
const LAST: u32 = 6;

/// The timeline of a block; empty for a kernel without a pipeline.
pub fn timeline(view: &TraceView, block: [u32; 3]) -> Vec<String> {
    let Some(timeline) = Timeline::of(&view.trace, block, Costs::DEFAULT) else { return Vec::new() };
    let mut lines = vec![format!("pipeline of block {}", at(block))];
    lines.extend(timeline.terms().into_iter().chain([format!("{LEGEND}.")]).map(|line| format!("  {line}")));
    lines.push(String::new());
    lines.extend(table(&timeline));
    lines.push(String::new());
    lines.push("waits".into());
    lines.extend(wait_lines(&timeline));
    lines.push(String::new());
    lines
}

/// The rows; columns that do not fit are left out before the last ones.
fn table(timeline: &Timeline) -> Vec<String> {
    let numbers = timeline.rows.iter().flat_map(|row| &row.spans).map(|span| span.number);
    let cell = 2 + numbers.max().unwrap_or(0).to_string().len();
    let label = timeline.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0) + 4;
    let room = (WIDTH.saturating_sub(label + 3) / cell) as u32;
    let all = timeline.columns;
    let (first, last) = if all <= room { (all, all) } else { (room.saturating_sub(LAST), all.saturating_sub(LAST)) };
    let line = |name: &str, of: &dyn Fn(u32) -> String| {
        let part = |columns: std::ops::Range<u32>| columns.map(|at| format!("{:<cell$}", of(at))).collect::<String>();
        let gap = if first < last { " … " } else { "" };
        format!("  {name:<width$}{}{gap}{}", part(0..first), part(last..all), width = label - 2).trim_end().to_owned()
    };
    let scale = line("column", &|at| if at % 5 == 0 || at == last { at.to_string() } else { String::new() });
    let mut lines = vec![scale];
    lines.extend(timeline.rows.iter().map(|row| line(&row.name, &|at| held(row, at))));
    lines
}

/// The content of a row in a column.
fn held(row: &Row, column: u32) -> String {
    let span = row.spans.iter().find(|span| (span.columns[0]..span.columns[1]).contains(&column));
    let Some(span) = span else { return String::new() };
    match span.state {
        State::Waiting => span.state.symbol().into(),
        state => format!("{}{}", state.symbol(), span.number),
    }
}

fn wait_lines(timeline: &Timeline) -> Vec<String> {
    let reports = timeline.wait_reports().into_iter();
    let lines = reports.flat_map(|report| {
        let waits = report.waits.into_iter().map(|wait| format!("    {wait}"));
        [format!("  {}", report.activity)].into_iter().chain(waits)
    });
    let stuck = timeline.deadlocked.then(|| "  deadlock: a wait at the end never finishes".into());
    lines.chain(stuck).collect()
}
