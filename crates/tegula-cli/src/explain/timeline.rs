//! The timeline of a pipeline as text: a row for each who does something and each stage, and who waited for whom.

use tegula_explain::pipeline::{Costs, MARKS, Row, State, Timeline};

use super::stage::Stage;
use super::text::{WIDTH, at};

/// Columns at the end of a long timeline.
const LAST: u32 = 6;

/// The timeline of a block; nothing for a kernel without a pipeline.
pub fn timeline(stage: &Stage, block: [u32; 3]) -> Vec<String> {
    let Some(timeline) = Timeline::of(&stage.trace, block, Costs::USUAL) else { return Vec::new() };
    let mut lines = vec![format!("pipeline of block {}", at(block))];
    lines.extend(timeline.terms().into_iter().chain([format!("{MARKS}.")]).map(|line| format!("  {line}")));
    lines.push(String::new());
    lines.extend(table(&timeline));
    lines.push(String::new());
    lines.push("who waited for whom".into());
    lines.extend(who_waited(&timeline));
    lines.push(String::new());
    lines
}

/// The rows, with what does not fit left out before the last columns.
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

/// What a row does in a column.
fn held(row: &Row, column: u32) -> String {
    let span = row.spans.iter().find(|span| (span.columns[0]..span.columns[1]).contains(&column));
    let Some(span) = span else { return String::new() };
    match span.state {
        State::Waiting => span.state.mark().into(),
        state => format!("{}{}", state.mark(), span.number),
    }
}

fn who_waited(timeline: &Timeline) -> Vec<String> {
    let told = timeline.who_waited().into_iter();
    let lines = told.flat_map(|told| {
        let waits = told.waits.into_iter().map(|wait| format!("    {wait}"));
        [format!("  {}", told.busy)].into_iter().chain(waits)
    });
    let stuck = timeline.stuck.then(|| "  and in the end somebody waits for ever".into());
    lines.chain(stuck).collect()
}
