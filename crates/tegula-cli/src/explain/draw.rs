//! The picture of a moment: B above C, A left of C, shared memory and sums beside them, and what happens in words.

use std::collections::HashSet;

use tegula_explain::scene::{Now, Scene};
use tegula_explain::trace::{Does, Finding};

use super::canvas::{Canvas, Colour, Style};
use super::grid::{Grid, Look};
use super::plain::{briefly, title};
use super::player::Player;
use super::stage::Stage;
use super::sum::Formula;
use super::text::{at, wrapped};
use super::words::{tell, verb};

/// The least columns and rows on which a picture makes sense.
pub const LEAST: [usize; 2] = [60, 18];

const HELP: [&str; 17] = [
    "→ n space   what happens next",
    "← p         back",
    "]  [        to the end of the next act, or of the one before; also Shift with → ←",
    "g  G        to the beginning, to the end",
    "a           goes on by itself, until a key is pressed",
    "h j k l     the thread to the left, below, above, to the right; after t also the arrows",
    "b  B        the next block, the one before",
    "v           numbers, or names of elements",
    "q           ends",
    "",
    "[ ]  blue: A's tile of this step, and what is left of it in shared memory",
    "{ }  orange: B's tile",
    "( )  green: the elements of C that this block writes; sums until they are written",
    "< >  bold: what belongs to the chosen thread",
    "! !  vermilion: the element and the threads of what goes wrong now",
    "underlined: read, written, multiplied or waiting just now",
    "Any key goes back.",
];

/// Draws what the player sees on so many columns and rows.
pub fn draw(player: &Player, size: [usize; 2]) -> Canvas {
    let mut canvas = Canvas::new(size);
    let [wide, high] = size;
    if wide < LEAST[0] || high < LEAST[1] {
        let text = format!("This window has {wide}×{high} characters. It takes {}×{}. q ends.", LEAST[0], LEAST[1]);
        for (y, line) in wrapped(&text, wide).iter().take(high).enumerate() {
            canvas.put([0, y], wide, line.trim_start(), Style::PLAIN);
        }
        return canvas;
    }
    if player.help {
        canvas.put([0, 0], wide, "Keys", Style::BOLD);
        let lines = HELP.iter().flat_map(|line| wrapped(line, wide));
        lines.take(high - 1).enumerate().for_each(|(y, line)| canvas.put([0, y + 1], wide, &line, Style::PLAIN));
        return canvas;
    }
    let picture = Picture::new(player);
    picture.heading(&mut canvas, wide);
    picture.memory(&mut canvas, [0, 4], [wide, high - 4 - 4]);
    picture.formula(&mut canvas, high - 3, wide);
    canvas.put([0, high - 1], wide, footer(player, wide), Style::DIM);
    canvas
}

fn footer(player: &Player, wide: usize) -> &'static str {
    match player {
        Player { picking: true, .. } => "arrows pick a thread   t done   q quit",
        Player { auto: true, .. } => "any key stops   q quit",
        _ if wide >= 80 => "→ next ← back ] [ acts  a play  t thread  b block  v names  ? help  q quit",
        _ => "→ next ← back ] [ acts a play t thread b block ? help q quit",
    }
}

/// A moment, and all that is known of it.
struct Picture<'a> {
    player: &'a Player,
    stage: &'a Stage,
    scene: Scene,
    now: Now,
    /// For each matrix the elements that the block reads in this step, and those that it writes at all.
    tiles: Vec<HashSet<u64>>,
    written: Vec<HashSet<u64>>,
    formula: Formula,
    /// The row and the column of C, and how far along k.
    at: [u64; 3],
    /// What goes wrong at this moment, in this block first.
    wrong: Vec<&'a Finding>,
}

impl<'a> Picture<'a> {
    fn new(player: &'a Player) -> Picture<'a> {
        let stage = &player.stage;
        let (trace, stop, block) = (&stage.trace, player.stop(), player.block());
        let acts = &trace.header.acts;
        let act = stage.act(stop).cloned();
        let step = act.as_ref().and_then(|act| act.step);
        let moments = step.map(|step| {
            let of_step = || acts.iter().filter(|act| act.step == Some(step)).map(|act| act.moments);
            [of_step().map(|[from, _]| from).min().unwrap_or(0), of_step().map(|[_, to]| to).max().unwrap_or(0)]
        });
        let [from, to] = moments.unwrap_or([0, 0]);
        let formula = Formula::of(stage, block, player.thread);
        let (stored, terms) = stage.sum_of(block, player.thread);
        let tiles = trace.touched(block, Does::GlobalLoad, from..to);
        let first_read = stage.roles[0].and_then(|a| {
            let of_a = tiles.get(a)?.iter().map(|&element| trace.header.coordinates(a, element)[2]);
            of_a.min()
        });
        let next = terms.iter().find(|term| term.moment + 1 >= stop.done).or(terms.last());
        let along = next.and_then(|term| term.factors[0]).map(|a| a.at[2]);
        let element = stored.map(|stored| stored.element.at);
        let row_col =
            element.or_else(|| terms.iter().find_map(|t| Some([0, t.factors[0]?.at[1], t.factors[1]?.at[2]])));
        let [_, row, col] = row_col.unwrap_or([0; 3]);
        let findings = trace.header.findings.iter();
        let mut wrong: Vec<_> = findings.filter(|f| f.moment.is_some() && f.moment == stop.moment).collect();
        wrong.sort_by_key(|finding| finding.block != block);
        Picture {
            wrong,
            scene: Scene::at(trace, block, stop.done),
            now: stop.moment.map(|moment| Now::of(trace, block, moment)).unwrap_or_default(),
            written: trace.touched(block, Does::GlobalStore, 0..trace.header.moments.len() as u32),
            at: [row, col, along.or(first_read).unwrap_or(0)],
            player,
            stage,
            tiles,
            formula,
        }
    }

    fn heading(&self, canvas: &mut Canvas, wide: usize) {
        let (player, stage) = (self.player, self.stage);
        let header = &stage.trace.header;
        let stop = player.stop();
        let [gx, gy, _] = header.grid;
        let who = format!("block {} of {gx}×{gy}, thread {}", at(player.block()), at(player.thread));
        let whole = format!("{}   {who}", title(stage));
        let fits = whole.chars().count() <= wide;
        canvas.put([0, 0], wide, &if fits { whole } else { format!("{who}   {}", title(stage)) }, Style::BOLD);
        let place = match stage.act(stop) {
            None => "before the first act".to_owned(),
            Some(act) => {
                let step = match act.step {
                    Some(step) => format!("step {step} of {}", stage.steps()),
                    None => "no step".into(),
                };
                let [from, to] = act.moments;
                let moment = stop.moment.map(|moment| format!(", moment {} of {}", moment - from + 1, to - from));
                let number = stop.act.map_or(0, |act| act + 1);
                format!(
                    "{step}, act {number} of {}: {}{}",
                    header.acts.len(),
                    verb(act.does),
                    moment.unwrap_or_default()
                )
            }
        };
        canvas.put([0, 1], wide, &place, Style::PLAIN);
        let lines: Vec<String> = match (self.wrong.first(), stop.act) {
            (Some(finding), _) => wrapped(&briefly(finding), wide),
            (None, None) => vec!["Nothing has happened yet: A and B are in global memory.  → begins".into()],
            (None, Some(act)) => {
                let told = tell(stage, act, player.block());
                wrapped(format!("{}: {}  {}", told.verb, told.what, told.each).trim_end(), wide)
            }
        };
        let style = if self.wrong.is_empty() { Style::PLAIN } else { Style { bold: true, ..Style::of(Colour::Wrong) } };
        lines.iter().take(2).enumerate().for_each(|(y, line)| canvas.put([0, 2 + y], wide, line, style));
    }

    /// Whether what is wrong at this moment is about an element of a matrix or array, in this block.
    fn is_wrong(&self, space: &str, name: &str, index: &[u64]) -> bool {
        let about = |f: &&&Finding| f.space.as_deref() == Some(space) && f.name == name && f.index.ends_with(index);
        self.wrong.iter().find(about).is_some_and(|f| f.block == self.player.block())
    }

    /// The matrices and arrays.
    fn memory(&self, canvas: &mut Canvas, [x, y]: [usize; 2], [wide, high]: [usize; 2]) {
        let panel = self.panel();
        let panel_wide = panel.iter().map(|grid| grid.needs()[0]).max().map_or(0, |need| need.min(wide * 2 / 5));
        let main = if panel_wide > 0 { wide - panel_wide - 3 } else { wide };
        let grids = [0, 1, 2].map(|role| self.matrix(role));
        if let [Some(a), Some(b), Some(c)] = &grids {
            let [a_wide, c_wide] = share(main - 2, [a.needs()[0], b.needs()[0].max(c.needs()[0])]);
            let [b_high, c_high] = share(high - 1, [b.needs()[1], a.needs()[1].max(c.needs()[1])]);
            let (right, below) = (x + a_wide + 2, y + b_high + 1);
            b.draw(canvas, [right, y], [c_wide, b_high]);
            a.draw(canvas, [x, below], [a_wide, c_high]);
            c.draw(canvas, [right, below], [c_wide, c_high]);
        }
        let mut top = y;
        for (at, grid) in panel.iter().enumerate() {
            // What is left, shared by those that are left.
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

    fn matrix(&self, role: usize) -> Option<Grid<'_>> {
        let matrix = self.stage.roles[role]?;
        let of = &self.stage.trace.header.matrices[matrix];
        let [row, col, along] = self.at;
        let centre = [[row, along], [along, col], [row, col]][role];
        let batch = if of.shape[0] > 1 { " (the first)" } else { "" };
        Some(Grid {
            title: format!("{} {}×{}{batch}", self.stage.matrix_name(matrix), of.shape[1], of.shape[2]),
            rows: of.shape[1],
            cols: of.shape[2],
            width: self.stage.widths[usize::from(self.player.names)],
            centre,
            cell: Box::new(move |row, col| self.element(matrix, row, col)),
        })
    }

    /// Shared arrays, and the sums.
    fn panel(&self) -> Vec<Grid<'_>> {
        let header = &self.stage.trace.header;
        let width = self.stage.widths[usize::from(self.player.names)];
        let arrays = header.shared.iter().enumerate().map(|(array, of)| {
            let cols = u64::from(of.dims.last().copied().unwrap_or(1)).max(1);
            let rows = of.dims.iter().rev().skip(1).fold(1, |rows: u64, &dim| rows.saturating_mul(dim.into()));
            let centre = self.now.shared.iter().filter(|(at, _)| *at == array).map(|(_, at)| *at).min().unwrap_or(0);
            Grid {
                title: of.name.clone(),
                rows,
                cols,
                width,
                centre: [centre / cols, centre % cols],
                cell: Box::new(move |row, col| self.shared(array, row * cols + col)),
            }
        });
        let [x, y, z] = header.block;
        let [tx, ty, tz] = self.player.thread;
        let sums = Grid {
            title: "sums, by thread".into(),
            rows: u64::from(y * z),
            cols: x.into(),
            width: if self.player.names { 2 } else { width },
            centre: [u64::from(ty + y * tz), tx.into()],
            cell: Box::new(move |row, col| self.sum((row * u64::from(x) + col) as u32)),
        };
        arrays.take(3).chain([sums]).collect()
    }

    fn element(&self, matrix: usize, row: u64, col: u64) -> (String, Look) {
        let stage = self.stage;
        let role = stage.roles.iter().position(|&role| role == Some(matrix));
        let element = tegula_explain::formula::Element { matrix, at: [0, row, col] };
        let position = stage.position(element);
        let is_c = role == Some(2);
        let written = self.scene.written[matrix].get(&position);
        let text = match (self.player.names, is_c) {
            (true, _) => stage.name(element),
            (false, true) => written.map_or_else(
                || "·".into(),
                |&bits| tegula_explain::number::shown(stage.trace.header.matrices[matrix].ty, bits),
            ),
            (false, false) => stage.number(matrix, position).unwrap_or_else(|| "·".into()),
        };
        let mine = match role {
            Some(0) => row == self.at[0] && self.now.matrix.contains(&(matrix, position)),
            Some(1) => col == self.at[1] && self.now.matrix.contains(&(matrix, position)),
            _ => is_c && [row, col] == self.at[..2],
        };
        let in_tile = if is_c { &self.written[matrix] } else { &self.tiles[matrix] }.contains(&position);
        let (edges, colour) = match role {
            _ if !in_tile => ([' ', ' '], None),
            Some(0) => (['[', ']'], Some(Colour::A)),
            Some(1) => (['{', '}'], Some(Colour::B)),
            _ => (['(', ')'], Some(Colour::C)),
        };
        let edges = if mine { ['<', '>'] } else { edges };
        let underlined = self.now.matrix.contains(&(matrix, position));
        let style = Style { colour, bold: mine, underlined, dim: is_c && written.is_none() && !mine };
        let wrong = self.is_wrong("global", &stage.trace.header.matrices[matrix].name, &[row, col]);
        (text, Look { edges, style }.wrong_if(wrong))
    }

    fn shared(&self, array: usize, position: u64) -> (String, Look) {
        let header = &self.stage.trace.header;
        let of = &header.shared[array];
        let cols = u64::from(of.dims.last().copied().unwrap_or(1)).max(1);
        let wrong = self.is_wrong("shared", &of.name, &[position / cols, position % cols]);
        let Some(held) = self.scene.shared[array].get(&position) else {
            return ("·".into(), Look { style: Style::DIM, ..Look::PLAIN }.wrong_if(wrong));
        };
        let copied = header.position(held.from);
        let text = match copied {
            Some((matrix, position)) if self.player.names => {
                let at = header.coordinates(matrix, position);
                self.stage.name(tegula_explain::formula::Element { matrix, at })
            }
            _ => tegula_explain::number::shown(header.shared[array].ty, held.bits),
        };
        let role = copied.and_then(|(matrix, _)| self.stage.roles.iter().position(|&role| role == Some(matrix)));
        let (edges, colour) = match role {
            Some(0) => (['[', ']'], Some(Colour::A)),
            Some(1) => (['{', '}'], Some(Colour::B)),
            _ => ([' ', ' '], None),
        };
        let underlined = self.now.shared.contains(&(array, position));
        (text, Look { edges, style: Style { colour, underlined, ..Style::PLAIN } }.wrong_if(wrong))
    }

    fn sum(&self, thread: u32) -> (String, Look) {
        let stage = self.stage;
        let text = match self.scene.sums.get(&thread) {
            None => "0".into(),
            Some(sum) if self.player.names => format!("{}", sum.products),
            Some(sum) => {
                let moment = self.player.stop().done;
                let events = stage.trace.during(0..moment).iter().rev();
                let ty = events
                    .map(|event| stage.trace.header.operation(event.moment))
                    .find(|operation| operation.does == Does::MulAdd)
                    .and_then(|operation| operation.ty);
                ty.map_or_else(String::new, |ty| tegula_explain::number::shown(ty, sum.bits))
            }
        };
        let [x, y, _] = stage.trace.header.block;
        let [tx, ty, tz] = self.player.thread;
        let mine = thread == tx + x * (ty + y * tz);
        let edges = if mine { ['<', '>'] } else { ['(', ')'] };
        let underlined = self.now.threads.contains(&thread);
        let took_part = |f: &&Finding| f.threads.iter().any(|[fx, fy, fz]| thread == fx + x * (fy + y * fz));
        let wrong = self.wrong.iter().any(|f| f.block == self.player.block() && took_part(f));
        let look = Look { edges, style: Style { colour: Some(Colour::C), bold: mine, underlined, dim: false } };
        (text, look.wrong_if(wrong))
    }

    fn formula(&self, canvas: &mut Canvas, y: usize, wide: usize) {
        let (formula, done) = (&self.formula, self.player.stop().done);
        let Some(name) = &formula.name else {
            canvas.put([0, y], wide, "This thread writes nothing: its element lies beyond the edge.", Style::PLAIN);
            return;
        };
        let room = wide.saturating_sub(name.chars().count() + 3);
        let products = match formula.products.is_empty() {
            true => "matrix units make its products; they are not followed element by element".into(),
            false => formula.so_far(done, room),
        };
        canvas.put([0, y], wide, &format!("{name} = {products}"), Style::of(Colour::C));
        let stored = formula.stored.as_ref().filter(|(_, moment)| *moment < done);
        let sum = match (stored, formula.sum(done)) {
            (Some((number, _)), _) => format!("= {number}, written"),
            (None, Some(sum)) => format!("= {sum} so far"),
            (None, None) => "= 0 so far".into(),
        };
        let indent = name.chars().count() + 1;
        canvas.put([indent, y + 1], wide, &sum, Style { bold: true, ..Style::of(Colour::C) });
    }
}

/// Lengths for two that need so much, of `all`.
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
