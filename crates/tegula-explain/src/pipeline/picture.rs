//! A timeline as a picture.

use super::{Kind, Row, State, Timeline};
use crate::svg::{Anchor, Svg};

/// A column, a row, and the room between rows of different kinds.
const COLUMN: f64 = 22.0;
const ROW: f64 = 24.0;
const GAP: f64 = 8.0;
const MARGIN: f64 = 12.0;
/// Of names and numbers.
const TEXT: f64 = 12.0;

/// Draws it from one column up to another.
pub(crate) fn picture(svg: &mut Svg, timeline: &Timeline, columns: [u32; 2]) {
    let [from, to] = [columns[0], columns[1].min(timeline.columns)];
    let longest = timeline.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0);
    let left = 2.0 * MARGIN + 0.62 * TEXT * longest as f64;
    let x = |column: u32| left + f64::from(column.clamp(from, to) - from) * COLUMN;
    for column in (from..to).filter(|column| column.is_multiple_of(5)) {
        svg.text([x(column) + COLUMN / 2.0, MARGIN + TEXT / 2.0], TEXT, Anchor::Middle, "faint", &column.to_string());
    }
    let mut y = MARGIN + 2.0 * TEXT;
    let mut before: Option<Kind> = None;
    for row in &timeline.rows {
        y += if before.is_some_and(|kind| kind != row.kind) { GAP } else { 0.0 };
        before = Some(row.kind);
        svg.text([MARGIN, y + ROW / 2.0], TEXT, Anchor::Start, "left", &row.name);
        // The room that a stage has, empty where nothing is drawn on it.
        if row.kind == Kind::Stage {
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
            State::Waiting => ("flat cell", span.state.mark().to_string()),
            state => (class(state), format!("{}{}", state.mark(), span.number)),
        };
        svg.rect([left, y + 2.0], [right - left, ROW - 4.0], class);
        let size = TEXT.min((right - left) / (0.62 * text.chars().count() as f64));
        svg.text([(left + right) / 2.0, y + ROW / 2.0], size, Anchor::Middle, "", &text);
    }
}

const fn class(state: State) -> &'static str {
    match state {
        State::Asking | State::Filling => "a",
        State::Full => "cell bold",
        State::Waiting => "cell",
        State::Multiplying => "c",
        State::Used => "s",
        State::Sending | State::Storing => "b",
    }
}

/// What somebody hears who does not see it.
pub(crate) fn told(timeline: &Timeline) -> String {
    let busy = timeline.who_waited().into_iter().flat_map(|told| [vec![told.busy], told.waits].concat());
    busy.collect::<Vec<_>>().join("; ")
}
