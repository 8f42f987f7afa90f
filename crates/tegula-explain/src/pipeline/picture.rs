//! A timeline as SVG.

use super::{Row, RowKind, State, Timeline};
use crate::svg::{Anchor, Svg};

/// Sizes of a column and a row, and the gap between rows of different kinds.
const COLUMN: f64 = 22.0;
const ROW: f64 = 24.0;
const GAP: f64 = 8.0;
const MARGIN: f64 = 12.0;
/// The font size.
const TEXT: f64 = 12.0;

/// Draws a half-open range of columns.
pub(crate) fn picture(svg: &mut Svg, timeline: &Timeline, columns: [u32; 2]) {
    let [from, to] = [columns[0], columns[1].min(timeline.columns)];
    let longest = timeline.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let left = 2.0 * MARGIN + 0.62 * TEXT * longest as f64;
    let x = |column: u32| left + f64::from(column.clamp(from, to) - from) * COLUMN;
    for column in (from..to).filter(|column| column.is_multiple_of(5)) {
        svg.text([x(column) + COLUMN / 2.0, MARGIN + TEXT / 2.0], TEXT, Anchor::Middle, "faint", &column.to_string());
    }
    let mut y = MARGIN + 2.0 * TEXT;
    let mut previous: Option<RowKind> = None;
    for row in &timeline.rows {
        y += if previous.is_some_and(|kind| kind != row.kind) { GAP } else { 0.0 };
        previous = Some(row.kind);
        svg.text([MARGIN, y + ROW / 2.0], TEXT, Anchor::Start, "left", &row.name);
        // The background of a stage, which shows where it is empty.
        if row.kind == RowKind::Stage {
            svg.rect([x(from), y + 2.0], [x(to) - x(from), ROW - 4.0], "cell");
        }
        draw(svg, row, &x, y);
        y += ROW;
    }
}

fn draw(svg: &mut Svg, row: &Row, x: &dyn Fn(u32) -> f64, y: f64) {
    for span in &row.spans {
        let [left, right] = span.columns.map(x);
        if left >= right {
            continue;
        }
        let (class, text) = match span.state {
            State::Waiting => ("flat cell", span.state.symbol().to_string()),
            state => (class(state), format!("{}{}", state.symbol(), span.number)),
        };
        svg.rect([left, y + 2.0], [right - left, ROW - 4.0], class);
        let size = TEXT.min((right - left) / (0.62 * text.chars().count() as f64));
        svg.text([(left + right) / 2.0, y + ROW / 2.0], size, Anchor::Middle, "", &text);
    }
}

const fn class(state: State) -> &'static str {
    match state {
        State::Issuing | State::Filling => "a",
        State::Full => "cell bold",
        State::Waiting => "cell",
        State::Multiplying => "c",
        State::Consumed => "s",
        State::Sending | State::Storing => "b",
    }
}

/// The picture's text for screen readers.
pub(crate) fn description(timeline: &Timeline) -> String {
    let reports = timeline.wait_reports().into_iter().flat_map(|report| [vec![report.activity], report.waits].concat());
    reports.collect::<Vec<_>>().join("; ")
}
