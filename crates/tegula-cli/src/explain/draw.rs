//! One frame of the player: B above C, A left of C, shared memory and accumulators beside them, and
//! a description.

use std::collections::{BTreeSet, HashSet};

use tegula_explain::memory_state::{MemoryState, TickActivity};
use tegula_explain::trace::{Finding, OperationKind};

use super::canvas::{Canvas, Color, Style};
use super::describe::{describe, verb};
use super::formula::Formula;
use super::grid::{CellStyle, Grid};
use super::plain::{briefly, title};
use super::player::{Flow, Key, Playable, Player};
use super::text::{at, wrapped};
use super::trace_view::TraceView;

/// The minimum columns and rows of a frame.
pub const MIN_SIZE: [usize; 2] = [60, 18];

const HELP: [&str; 17] = [
    "→ n space   next tick",
    "← p         previous tick",
    "]  [        end of the next phase, of the previous phase; also Shift with → ←",
    "g  G        beginning, end",
    "a           play until a key is pressed",
    "h j k l     select the thread to the left, below, above, right; after t also by arrows",
    "b  B        next block, previous block",
    "v           show values, or names of elements",
    "q           quit",
    "",
    "[ ]  blue: A's tile of this step, and its copies in shared memory",
    "{ }  orange: B's tile",
    "( )  green: elements of C that this block writes; accumulators",
    "< >  bold: elements and accumulator of the selected thread",
    "! !  vermilion: element and threads of an error at this tick",
    "underlined: read, written, multiplied or waiting at this tick",
    "Any key returns.",
];

impl Playable for Player {
    fn draw(&self, size: [usize; 2]) -> Canvas {
        notice(size, self.help.then_some(&HELP)).unwrap_or_else(|| draw(self, size))
    }

    fn key(&mut self, key: Key) -> Flow {
        self.press(key)
    }

    fn is_automatic(&self) -> bool {
        self.auto
    }

    fn tick(&mut self) {
        self.advance();
    }
}

/// The frame of a window that is too small, or of the help; `None` for neither.
pub fn notice(size: [usize; 2], help: Option<&[&str]>) -> Option<Canvas> {
    let mut canvas = Canvas::new(size);
    let [wide, high] = size;
    if wide < MIN_SIZE[0] || high < MIN_SIZE[1] {
        let text = format!(
            "The window has {wide}×{high} characters; the player needs {}×{}. q quits.",
            MIN_SIZE[0], MIN_SIZE[1]
        );
        for (y, line) in wrapped(&text, wide).iter().take(high).enumerate() {
            canvas.put([0, y], wide, line.trim_start(), Style::PLAIN);
        }
        return Some(canvas);
    }
    canvas.put([0, 0], wide, "Keys", Style::BOLD);
    let lines = help?.iter().flat_map(|line| wrapped(line, wide));
    lines.take(high - 1).enumerate().for_each(|(y, line)| canvas.put([0, y + 1], wide, &line, Style::PLAIN));
    Some(canvas)
}

fn draw(player: &Player, size: [usize; 2]) -> Canvas {
    let mut canvas = Canvas::new(size);
    let [wide, high] = size;
    let frame = Frame::new(player);
    frame.heading(&mut canvas, wide);
    frame.memory(&mut canvas, [0, 4], [wide, high - 4 - 4]);
    frame.formula(&mut canvas, high - 3, wide);
    canvas.put([0, high - 1], wide, footer(player, wide), Style::DIM);
    canvas
}

fn footer(player: &Player, wide: usize) -> &'static str {
    match player {
        Player { picking: true, .. } => "arrows select a thread   t done   q quit",
        Player { auto: true, .. } => "any key stops   q quit",
        _ if wide >= 80 => "→ next ← back ] [ phases  a play  t thread  b block  v names  ? help  q quit",
        _ => "→ next ← back ][ phase a play t thread b block ? help q quit",
    }
}

/// The state at a tick, ready to be drawn.
struct Frame<'a> {
    player: &'a Player,
    view: &'a TraceView,
    scene: MemoryState,
    now: TickActivity,
    /// For each matrix the elements that the block reads in this step.
    tiles: Vec<HashSet<u64>>,
    /// For each matrix the elements that the block writes at any tick.
    written: Vec<HashSet<u64>>,
    formula: Formula,
    /// Row and column of C, and the position along k.
    at: [u64; 3],
    /// The findings at this tick, those of this block first.
    wrong: Vec<&'a Finding>,
}

impl<'a> Frame<'a> {
    fn new(player: &'a Player) -> Frame<'a> {
        let view = &player.view;
        let (trace, point, block) = (&view.trace, player.point(), player.block());
        let phases = &trace.header.phases;
        let phase = view.phase(point).cloned();
        let step = phase.as_ref().and_then(|phase| phase.step);
        let ticks = step.map(|step| {
            let of_step = || phases.iter().filter(|phase| phase.step == Some(step)).map(|phase| phase.ticks);
            [of_step().map(|[from, _]| from).min().unwrap_or(0), of_step().map(|[_, to]| to).max().unwrap_or(0)]
        });
        let [from, to] = ticks.unwrap_or([0, 0]);
        let formula = Formula::of(view, block, player.thread);
        let (stored, terms) = view.sum_of(block, player.thread);
        let tiles = trace.touched(block, OperationKind::GlobalLoad, from..to);
        let first_read = view.roles[0].and_then(|a| {
            let of_a = tiles.get(a)?.iter().map(|&element| trace.header.coordinates(a, element)[2]);
            of_a.min()
        });
        let next = terms.iter().find(|term| term.tick + 1 >= point.done).or(terms.last());
        let along = next.and_then(|term| term.operands[0]).map(|a| a.at[2]);
        let element = stored.map(|stored| stored.element.at);
        let row_col =
            element.or_else(|| terms.iter().find_map(|t| Some([0, t.operands[0]?.at[1], t.operands[1]?.at[2]])));
        let [_, row, col] = row_col.unwrap_or([0; 3]);
        let findings = trace.header.findings.iter();
        let mut wrong: Vec<_> = findings.filter(|f| f.tick.is_some() && f.tick == point.tick).collect();
        wrong.sort_by_key(|finding| finding.block != block);
        Frame {
            wrong,
            scene: MemoryState::at(trace, block, point.done),
            now: point.tick.map(|tick| TickActivity::of(trace, block, tick)).unwrap_or_default(),
            written: trace.touched(block, OperationKind::GlobalStore, 0..trace.header.ticks.len() as u32),
            at: [row, col, along.or(first_read).unwrap_or(0)],
            player,
            view,
            tiles,
            formula,
        }
    }

    fn heading(&self, canvas: &mut Canvas, wide: usize) {
        let (player, view) = (self.player, self.view);
        let header = &view.trace.header;
        let point = player.point();
        let [gx, gy, _] = header.grid;
        let position = format!("block {} of {gx}×{gy}, thread {}", at(player.block()), at(player.thread));
        let whole = format!("{}   {position}", title(view));
        let fits = whole.chars().count() <= wide;
        canvas.put([0, 0], wide, &if fits { whole } else { format!("{position}   {}", title(view)) }, Style::BOLD);
        let place = match view.phase(point) {
            None => "before the first phase".to_owned(),
            Some(phase) => {
                let step = match phase.step {
                    Some(step) => format!("step {step} of {}", view.steps()),
                    None => "no step".into(),
                };
                let [from, to] = phase.ticks;
                let tick = point.tick.map(|tick| format!(", tick {} of {}", tick - from + 1, to - from));
                let number = point.phase.map_or(0, |phase| phase + 1);
                format!(
                    "{step}, phase {number} of {}: {}{}",
                    header.phases.len(),
                    verb(phase.kind),
                    tick.unwrap_or_default()
                )
            }
        };
        let (found, style) = self.found();
        let room = wide.saturating_sub(found.chars().count());
        canvas.put([0, 1], room.saturating_sub(2), &place, Style::PLAIN);
        canvas.put([room, 1], wide, &found, style);
        let lines: Vec<String> = match (self.wrong.first(), point.phase) {
            (Some(finding), _) => wrapped(&briefly(finding), wide),
            (None, Some(_)) if player.at_end() && self.has_race() => {
                let text = "The result cannot be trusted: a race leaves it to chance, however the numbers look here.";
                wrapped(text, wide)
            }
            (None, None) => vec!["Not started: A and B are in global memory.  → starts".into()],
            (None, Some(phase)) => {
                let description = describe(view, phase, player.block());
                wrapped(format!("{}: {}  {}", description.verb, description.what, description.each).trim_end(), wide)
            }
        };
        let style = if self.wrong.is_empty() { Style::PLAIN } else { Style { bold: true, ..Style::of(Color::Wrong) } };
        lines.iter().take(2).enumerate().for_each(|(y, line)| canvas.put([0, 2 + y], wide, line, style));
    }

    /// The findings of the whole run as a text, such as `1 error (race)`, and its style; empty
    /// without findings.
    fn found(&self) -> (String, Style) {
        let findings = &self.view.trace.header.findings;
        let count = |error: bool, one: &str| {
            let kinds: BTreeSet<&str> = findings.iter().filter(|f| f.error == error).map(|f| f.kind.as_str()).collect();
            let count = findings.iter().filter(|f| f.error == error).count();
            let plural = if count == 1 { "" } else { "s" };
            let kinds = kinds.into_iter().collect::<Vec<_>>().join(", ");
            (count > 0).then(|| format!("{count} {one}{plural} ({kinds})"))
        };
        let (errors, notes) = (count(true, "error"), count(false, "note"));
        let style = match errors {
            Some(_) => Style { bold: true, ..Style::of(Color::Wrong) },
            None => Style::PLAIN,
        };
        (errors.into_iter().chain(notes).collect::<Vec<_>>().join(", "), style)
    }

    fn has_race(&self) -> bool {
        self.view.trace.header.findings.iter().any(|finding| finding.error && finding.kind == "race")
    }

    /// Whether a finding at this tick names this element, in this block.
    fn is_wrong(&self, space: &str, name: &str, index: &[u64]) -> bool {
        let about = |f: &&&Finding| f.space.as_deref() == Some(space) && f.name == name && f.index.ends_with(index);
        self.wrong.iter().find(about).is_some_and(|f| f.block == self.player.block())
    }

    /// Draws the matrices and shared arrays.
    fn memory(&self, canvas: &mut Canvas, [x, y]: [usize; 2], [wide, high]: [usize; 2]) {
        let panel = self.panel();
        let panel_wide = panel.iter().map(|grid| grid.needs()[0]).max().map_or(0, |need| need.min(wide * 2 / 5));
        let main = if panel_wide > 0 { wide - panel_wide - 3 } else { wide };
        // B stands above C, so their columns have one width.
        let grids = |[a_width, width]: [usize; 2], compact| {
            Some([self.matrix(0, a_width, compact)?, self.matrix(1, width, compact)?, self.matrix(2, width, compact)?])
        };
        let usual = self.view.widths[usize::from(self.player.names)];
        let narrow = if self.player.names { usual } else { self.view.longest_of(0).min(usual) };
        let layouts = [([usual; 2], false), ([narrow, usual], false), ([narrow, usual], true)];
        let needs = |[a, b, c]: &[Grid<'_>; 3]| [a.needs()[0], b.needs()[0].max(c.needs()[0])];
        let fits = |grids: &[Grid<'_>; 3]| needs(grids).into_iter().fold(2, usize::saturating_add) <= main;
        let mut layouts = layouts.into_iter().filter_map(|(widths, compact)| grids(widths, compact)).peekable();
        let chosen =
            std::iter::from_fn(|| layouts.next().map(|grids| (fits(&grids) || layouts.peek().is_none(), grids)))
                .find_map(|(chosen, grids)| chosen.then_some(grids));
        if let Some(grids) = &chosen {
            let [a, b, c] = grids;
            let [a_wide, c_wide] = share(main - 2, needs(grids));
            let [b_high, c_high] = share(high - 1, [b.needs()[1], a.needs()[1].max(c.needs()[1])]);
            let (right, below) = (x + a_wide + 2, y + b_high + 1);
            b.draw(canvas, [right, y], [c_wide, b_high]);
            a.draw(canvas, [x, below], [a_wide, c_high]);
            c.draw(canvas, [right, below], [c_wide, c_high]);
        }
        let mut top = y;
        for (at, grid) in panel.iter().enumerate() {
            // The remaining rows, divided among the remaining grids.
            let rest = (y + high).saturating_sub(top);
            let later: usize = panel[at + 1..].iter().map(|grid| grid.needs()[1] + 1).sum();
            let fair = rest / (panel.len() - at);
            let room = rest.saturating_sub(later).max(fair.saturating_sub(1)).min(grid.needs()[1]);
            if room >= 2 {
                grid.draw(canvas, [x + wide - panel_wide, top], [panel_wide, room]);
                top += room + 1;
            }
        }
    }

    /// A matrix in cells of `width` characters.
    fn matrix(&self, role: usize, width: usize, compact: bool) -> Option<Grid<'_>> {
        let matrix = self.view.roles[role]?;
        let of = &self.view.trace.header.matrices[matrix];
        let [row, col, along] = self.at;
        let center = [[row, along], [along, col], [row, col]][role];
        let batch = if of.shape[0] > 1 { " (first of the batch)" } else { "" };
        Some(Grid {
            title: format!("{} {}×{}{batch}", self.view.matrix_name(matrix), of.shape[1], of.shape[2]),
            rows: of.shape[1],
            cols: of.shape[2],
            width,
            compact,
            center,
            cell: Box::new(move |row, col| self.element(matrix, row, col)),
        })
    }

    /// The shared arrays and the accumulators.
    fn panel(&self) -> Vec<Grid<'_>> {
        let header = &self.view.trace.header;
        let width = self.view.widths[usize::from(self.player.names)];
        let arrays = header.shared.iter().enumerate().map(|(array, of)| {
            let cols = u64::from(of.dims.last().copied().unwrap_or(1)).max(1);
            let rows = of.dims.iter().rev().skip(1).fold(1, |rows: u64, &dim| rows.saturating_mul(dim.into()));
            let center = self.now.shared.iter().filter(|(at, _)| *at == array).map(|(_, at)| *at).min().unwrap_or(0);
            Grid {
                title: of.name.clone(),
                rows,
                cols,
                width,
                compact: false,
                center: [center / cols, center % cols],
                cell: Box::new(move |row, col| self.shared(array, row * cols + col)),
            }
        });
        let [x, y, z] = header.block;
        let [tx, ty, tz] = self.player.thread;
        let accumulators = Grid {
            title: "accumulators".into(),
            rows: u64::from(y * z),
            cols: x.into(),
            width: if self.player.names { 2 } else { width },
            compact: false,
            center: [u64::from(ty + y * tz), tx.into()],
            cell: Box::new(move |row, col| self.accumulator((row * u64::from(x) + col) as u32)),
        };
        arrays.take(3).chain([accumulators]).collect()
    }

    fn element(&self, matrix: usize, row: u64, col: u64) -> (String, CellStyle) {
        let view = self.view;
        let role = view.roles.iter().position(|&role| role == Some(matrix));
        let element = tegula_explain::formula::Element { matrix, at: [0, row, col] };
        let position = view.position(element);
        let is_c = role == Some(2);
        let written = self.scene.written[matrix].get(&position);
        let text = match (self.player.names, is_c) {
            (true, _) => view.name(element),
            (false, true) => written.map_or_else(
                || "·".into(),
                |&bits| tegula_explain::number::format_value(view.trace.header.matrices[matrix].ty, bits),
            ),
            (false, false) => view.number(matrix, position).unwrap_or_else(|| "·".into()),
        };
        let mine = match role {
            Some(0) => row == self.at[0] && self.now.matrix.contains(&(matrix, position)),
            Some(1) => col == self.at[1] && self.now.matrix.contains(&(matrix, position)),
            _ => is_c && [row, col] == self.at[..2],
        };
        let in_tile = if is_c { &self.written[matrix] } else { &self.tiles[matrix] }.contains(&position);
        let (edges, color) = match role {
            _ if !in_tile => ([' ', ' '], None),
            Some(0) => (['[', ']'], Some(Color::A)),
            Some(1) => (['{', '}'], Some(Color::B)),
            _ => (['(', ')'], Some(Color::C)),
        };
        let edges = if mine { ['<', '>'] } else { edges };
        let underlined = self.now.matrix.contains(&(matrix, position));
        let style = Style { color, bold: mine, underlined, dim: is_c && written.is_none() && !mine };
        let wrong = self.is_wrong("global", &view.trace.header.matrices[matrix].name, &[row, col]);
        (text, CellStyle { edges, style }.wrong_if(wrong))
    }

    fn shared(&self, array: usize, position: u64) -> (String, CellStyle) {
        let header = &self.view.trace.header;
        let of = &header.shared[array];
        let cols = u64::from(of.dims.last().copied().unwrap_or(1)).max(1);
        let wrong = self.is_wrong("shared", &of.name, &[position / cols, position % cols]);
        let Some(held) = self.scene.shared[array].get(&position) else {
            return ("·".into(), CellStyle { style: Style::DIM, ..CellStyle::PLAIN }.wrong_if(wrong));
        };
        let copied = header.position(held.origin);
        let text = match copied {
            Some((matrix, position)) if self.player.names => {
                let at = header.coordinates(matrix, position);
                self.view.name(tegula_explain::formula::Element { matrix, at })
            }
            _ => tegula_explain::number::format_value(header.shared[array].ty, held.bits),
        };
        let role = copied.and_then(|(matrix, _)| self.view.roles.iter().position(|&role| role == Some(matrix)));
        let (edges, color) = match role {
            Some(0) => (['[', ']'], Some(Color::A)),
            Some(1) => (['{', '}'], Some(Color::B)),
            _ => ([' ', ' '], None),
        };
        let underlined = self.now.shared.contains(&(array, position));
        (text, CellStyle { edges, style: Style { color, underlined, ..Style::PLAIN } }.wrong_if(wrong))
    }

    fn accumulator(&self, thread: u32) -> (String, CellStyle) {
        let view = self.view;
        let text = match self.scene.accumulators.get(&thread) {
            None => "0".into(),
            Some(sum) if self.player.names => format!("{}", sum.products),
            Some(sum) => {
                let tick = self.player.point().done;
                let events = view.trace.during(0..tick).iter().rev();
                let ty = events
                    .map(|event| view.trace.header.operation(event.tick))
                    .find(|operation| operation.kind == OperationKind::MulAdd)
                    .and_then(|operation| operation.ty);
                ty.map_or_else(String::new, |ty| tegula_explain::number::format_value(ty, sum.bits))
            }
        };
        let [x, y, _] = view.trace.header.block;
        let [tx, ty, tz] = self.player.thread;
        let mine = thread == tx + x * (ty + y * tz);
        let edges = if mine { ['<', '>'] } else { ['(', ')'] };
        let underlined = self.now.threads.contains(&thread);
        let took_part = |f: &&Finding| f.threads.iter().any(|[fx, fy, fz]| thread == fx + x * (fy + y * fz));
        let wrong = self.wrong.iter().any(|f| f.block == self.player.block() && took_part(f));
        let look = CellStyle { edges, style: Style { color: Some(Color::C), bold: mine, underlined, dim: false } };
        (text, look.wrong_if(wrong))
    }

    fn formula(&self, canvas: &mut Canvas, y: usize, wide: usize) {
        let (formula, done) = (&self.formula, self.player.point().done);
        let Some(name) = &formula.name else {
            canvas.put([0, y], wide, "This thread writes nothing: its element is out of bounds.", Style::PLAIN);
            return;
        };
        let room = wide.saturating_sub(name.chars().count() + 3);
        let products = match formula.products.is_empty() {
            true => "Tensor Cores compute its products, which are not traced by element".into(),
            false => formula.so_far(done, room),
        };
        canvas.put([0, y], wide, &format!("{name} = {products}"), Style::of(Color::C));
        let stored = formula.stored.as_ref().filter(|(_, tick)| *tick < done);
        let sum = match (stored, formula.sum(done)) {
            (Some((number, _)), _) => format!("= {number}, written"),
            (None, Some(sum)) => format!("= {sum} so far"),
            (None, None) => "= 0 so far".into(),
        };
        let indent = name.chars().count() + 1;
        canvas.put([indent, y + 1], wide, &sum, Style { bold: true, ..Style::of(Color::C) });
    }
}

/// Divides `all` between two that need these lengths.
fn share(all: usize, [one, other]: [usize; 2]) -> [usize; 2] {
    let half = all / 2;
    if one.saturating_add(other) <= all {
        [one, other]
    } else if one <= half {
        [one, all - one]
    } else if other <= all - half {
        [all - other, other]
    } else {
        [half, all - half]
    }
}
