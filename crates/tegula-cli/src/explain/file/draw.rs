//! One frame of the player: description and lanes of the step, the source around its line, and
//! arrays in shared memory.

use std::collections::BTreeMap;

use tegula_ptx::Diagnostic;
use tegula_ptx::trace::Step;

use super::super::canvas::{Canvas, Color, Style};
use super::super::draw::notice;
use super::super::grid::{CellStyle, Grid};
use super::super::player::{Flow, Key, Playable};
use super::super::text::wrapped;
use super::describe::{active, describe, lane_mask};
use super::plain::{at, recorded, title};
use super::player::FilePlayer;
use super::view::{FileView, SharedState};
use crate::check_file::element;
use crate::report::check::grouped;

/// Columns per row of an array with unknown extents: the number of banks.
const BANKS: u64 = 32;
/// Minimum width in columns for drawing arrays beside the source instead of below it.
const WIDE: usize = 120;
/// Maximum number of characters of an element.
const VALUE: usize = 7;

const HELP: [&str; 15] = [
    "→ n space   next step: a source line that a warp executes",
    "← p         previous step",
    "]  [        next, previous completed barrier; also Shift with → ←",
    "e  E        next, previous step with an error or note",
    "g  G        beginning, end",
    "a           play until a key is pressed",
    "w  W        steps of the next, previous warp only; of all warps after the last",
    "s           next array of shared memory",
    "v           show values, or the lanes that access elements",
    "q           quit",
    "",
    "[ ]  blue: elements that the step reads",
    "( )  green: elements that it writes",
    "! !  vermilion: the element of an error at this step, and the lines that it names",
    "Any key returns.",
];

impl Playable for FilePlayer {
    fn draw(&self, size: [usize; 2]) -> Canvas {
        notice(size, self.help.then_some(&HELP)).unwrap_or_else(|| Frame::new(self).draw(size))
    }

    fn key(&mut self, key: Key) -> Flow {
        self.press(key)
    }

    fn is_automatic(&self) -> bool {
        self.auto
    }

    fn tick(&mut self) {
        self.next();
        self.auto = !self.at_end();
    }
}

/// The accesses of a step to an element of shared memory.
#[derive(Clone, Copy, Debug, Default)]
struct Access {
    /// The first lane.
    lane: u32,
    writes: bool,
}

/// The state at a step, ready to be drawn.
struct Frame<'a> {
    player: &'a FilePlayer,
    view: &'a FileView,
    step: Option<&'a Step>,
    shared: SharedState,
    /// The accesses of the step, by memory and element.
    accesses: BTreeMap<(u32, u64), Access>,
    /// The elements of the findings of the step.
    wrong: Vec<(u32, u64)>,
}

impl<'a> Frame<'a> {
    fn new(player: &'a FilePlayer) -> Frame<'a> {
        let view = &player.view;
        let step = player.step().map(|at| &view.trace.steps[at]);
        let mut accesses: BTreeMap<(u32, u64), Access> = BTreeMap::new();
        for request in step.into_iter().flat_map(Step::requests) {
            for (lane, offset, _) in request.accesses() {
                for element in view.elements(request, offset) {
                    let of = accesses.entry((request.memory, element)).or_insert(Access { lane, writes: false });
                    of.writes |= request.kind.writes();
                }
            }
        }
        let findings = step.into_iter().flat_map(Step::findings);
        let wrong = findings.filter_map(|finding| view.named(finding)).collect();
        Frame { player, view, step, shared: view.shared(player.step()), accesses, wrong }
    }

    fn findings(&self) -> impl Iterator<Item = &'a Diagnostic> {
        self.step.into_iter().flat_map(Step::findings)
    }

    fn draw(&self, [wide, high]: [usize; 2]) -> Canvas {
        let mut canvas = Canvas::new([wide, high]);
        self.heading(&mut canvas, wide);
        let top = 5;
        let body = high - top - 1;
        let (left, arrays) = if wide >= WIDE {
            let left = wide / 2;
            ([left, body], [[left + 2, top], [wide - left - 2, body]])
        } else {
            let lines = if self.view.arrays.is_empty() { body } else { body / 2 };
            ([wide, lines], [[0, top + lines + 1], [wide, body - lines - 1]])
        };
        self.source(&mut canvas, [0, top], left);
        self.arrays(&mut canvas, arrays[0], arrays[1]);
        let footer = match self.player.auto {
            true => "any key stops   q quit",
            false if wide >= 80 => "→ next ← back ] [ barriers e errors w warp a play s array v lanes ? help q quit",
            false => "→ next ← back ][ barrier e error w warp ? help q quit",
        };
        canvas.put([0, high - 1], wide, footer, Style::DIM);
        canvas
    }

    fn heading(&self, canvas: &mut Canvas, wide: usize) {
        let (view, report) = (self.view, &self.view.report);
        let warp = match (self.step, view.warps.as_deref()) {
            (Some(step), None) => format!(", warp {}", step.warp),
            (Some(step), Some(_)) => format!(", only warp {}", step.warp),
            (None, _) => String::new(),
        };
        let position = format!("block {}{warp}", at(view.trace.block, report.grid));
        canvas.put([0, 0], wide, &format!("{}   {position}", title(view)), Style::BOLD);
        let place = match self.step {
            None => "before the first step".to_owned(),
            Some(step) => {
                let line = view.place(view.trace.line(step.line));
                format!("step {} of {}, {line}", grouped(step.number), grouped(view.trace.total))
            }
        };
        let found = if report.findings.is_empty() { String::new() } else { report.verdict() };
        let room = wide.saturating_sub(found.chars().count());
        let wrong = Style { bold: true, ..Style::of(Color::Wrong) };
        canvas.put([0, 1], room.saturating_sub(2), &place, Style::PLAIN);
        canvas.put([room, 1], wide, &found, if report.ok { Style::PLAIN } else { wrong });
        if let Some(step) = self.step {
            let lanes = format!("{}  {}", lane_mask(step.lanes()), active(view, step));
            canvas.put([0, 2], wide, &lanes, Style::PLAIN);
        }
        let (lines, style): (Vec<String>, Style) = match (self.findings().next(), self.step) {
            (Some(diagnostic), _) => {
                let finding = view.finding(diagnostic);
                (wrapped(&format!("{}: {}", finding.kind, finding.message), wide), wrong)
            }
            (None, Some(step)) => (describe(view, step), Style::PLAIN),
            (None, None) => {
                let note = recorded(view).map_or(String::new(), |recorded| format!("  {recorded}"));
                (wrapped(&format!("Not started.  → starts{note}"), wide), Style::PLAIN)
            }
        };
        let shown = if lines.len() > 2 { wrapped(&lines.join("; "), wide) } else { lines };
        shown.iter().take(2).enumerate().for_each(|(y, line)| canvas.put([0, 3 + y], wide, line, style));
    }

    /// The source around the line of the step, with the lines of findings marked.
    fn source(&self, canvas: &mut Canvas, [x, y]: [usize; 2], [wide, high]: [usize; 2]) {
        let trace = &self.view.trace;
        let line = match self.step.or(trace.steps.first()) {
            Some(step) => trace.line(step.line),
            None => return,
        };
        let text = self.view.text(&line.file);
        let current = line.line as usize;
        let first = current.saturating_sub(high / 2 + 1).min(text.len().saturating_sub(high));
        let named: Vec<u32> = self
            .findings()
            .flat_map(|finding| &finding.lines)
            .map(|line_of| line_of.in_file(&line.file))
            .filter(|line_of| line_of.file == line.file)
            .map(|line_of| line_of.line)
            .collect();
        for (row, (at, text)) in text.iter().enumerate().skip(first).take(high).enumerate() {
            let number = at + 1;
            let is_current = self.step.is_some() && number == current;
            let is_named = named.contains(&(number as u32));
            let mark = match (is_named, is_current) {
                (true, _) => '!',
                (false, true) => '>',
                (false, false) => ' ',
            };
            let style = Style { color: is_named.then_some(Color::Wrong), bold: is_current, ..Style::PLAIN };
            canvas.put([x, y + row], wide, &format!("{mark}{number:>5} | {text}"), style);
        }
    }

    /// Draws the arrays in shared memory, one below the other.
    fn arrays(&self, canvas: &mut Canvas, [x, y]: [usize; 2], [wide, high]: [usize; 2]) {
        let arrays = &self.view.arrays;
        let order = arrays.iter().cycle().skip(self.player.array).take(arrays.len());
        let grids: Vec<Grid<'_>> = order.map(|&array| self.grid(array)).collect();
        let mut top = y;
        for (at, grid) in grids.iter().enumerate() {
            let rest = (y + high).saturating_sub(top);
            let later: usize = grids[at + 1..].iter().map(|grid| grid.needs()[1] + 1).fold(0, usize::saturating_add);
            let fair = rest / (grids.len() - at);
            let room = rest.saturating_sub(later).max(fair.saturating_sub(1)).min(grid.needs()[1]);
            if room >= 2 {
                grid.draw(canvas, [x, top], [wide, room]);
                top += room + 1;
            }
        }
    }

    fn grid(&self, array: u32) -> Grid<'_> {
        let memory = &self.view.memories[array as usize];
        let elements: u64 = memory.shape.iter().product();
        let cols = match memory.shape.as_slice() {
            [.., last] if memory.shape.len() > 1 => *last,
            _ => elements.min(BANKS),
        };
        let cols = cols.max(1);
        let accessed = self.accesses.range((array, 0)..(array + 1, 0)).next().map_or(0, |(&(_, element), _)| element);
        let wrong = self.wrong.iter().find(|(of, _)| *of == array).map(|&(_, element)| element);
        let center = wrong.unwrap_or(accessed);
        let extents: Vec<String> = memory.shape.iter().map(u64::to_string).collect();
        Grid {
            title: format!("{} {} {}", memory.name, extents.join("×"), element::name(memory.ty)),
            rows: elements.div_ceil(cols),
            cols,
            width: self.width(array, elements),
            compact: false,
            center: [center / cols, center % cols],
            cell: Box::new(move |row, col| self.cell(array, row * cols + col, elements)),
        }
    }

    /// Characters of the longest value.
    fn width(&self, array: u32, elements: u64) -> usize {
        if self.player.lanes {
            return 2;
        }
        let values = (0..elements.min(1 << 12)).filter_map(|at| self.view.shared_value(&self.shared, array, at));
        values.map(|value| value.chars().count()).max().unwrap_or(1).clamp(1, VALUE + 2)
    }

    fn cell(&self, array: u32, element: u64, elements: u64) -> (String, CellStyle) {
        if element >= elements {
            return (String::new(), CellStyle::PLAIN);
        }
        let access = self.accesses.get(&(array, element));
        let value = || self.view.shared_value(&self.shared, array, element);
        let text = if self.player.lanes { access.map(|access| access.lane.to_string()) } else { value() };
        let (edges, color) = match access {
            None => ([' ', ' '], None),
            Some(Access { writes: false, .. }) => (['[', ']'], Some(Color::A)),
            Some(Access { writes: true, .. }) => (['(', ')'], Some(Color::C)),
        };
        let dim = text.is_none() && access.is_none();
        let style = Style { color, dim, underlined: access.is_some(), ..Style::PLAIN };
        let wrong = self.wrong.contains(&(array, element));
        (text.unwrap_or_else(|| "·".into()), CellStyle { edges, style }.wrong_if(wrong))
    }
}
