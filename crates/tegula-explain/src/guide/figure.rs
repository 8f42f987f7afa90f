//! Figures of a guide.
//!
//! | kind | content |
//! |---|---|
//! | `tiles LAUNCH` | the elements that the first block loads in each k-step, and those that it stores |
//! | `requests LAUNCH.a_load ..` | requests to global memory: sectors, and the used elements of each |
//! | `banks LAUNCH.tile_a_store ..` | requests to shared memory: words per bank |
//! | `ownership LAUNCH` | the elements of C that each warp of the first block stores, and those of thread 0 |
//! | `pipeline LAUNCH` | the pipeline timeline of the first block, in logical time |
//! | `fragments MMA` | the lane of each element of an instruction's operands |
//! | `bars UNIT \| LABEL = EXPRESSION \| ..` | a bar chart |

use std::collections::{BTreeMap, BTreeSet, HashSet};

use tegula_interp::{BANKS, SECTOR_BYTES};
use tegula_ir::Mma;

use super::expression::{format_number, number};
use super::facts::{LaunchFacts, Request, Subject};
use super::{ErrorKind, Result, syntax};
use crate::pipeline::{self, Costs, Timeline};
use crate::svg::{Anchor, Svg};
use crate::trace::{OperationKind, PhaseKind, Trace};

/// A figure and its description.
pub(super) struct Drawing {
    /// The SVG text.
    pub svg: String,
    /// The text for screen readers.
    pub description: String,
}

type Subjects<'a> = dyn Fn(&str) -> Result<&'a Subject> + 'a;

/// The limit of cells along a side, and of bars.
const MAX_CELLS: u64 = 256;
const MARGIN: f64 = 12.0;

/// Draws the right side of `figure NAME =`.
pub(super) fn draw(spec: &str, subjects: &Subjects<'_>) -> Result<Drawing> {
    let (kind, rest) = spec.split_once(' ').unwrap_or((spec, ""));
    let rest = rest.trim();
    let mut svg = Svg::default();
    let (title, description) = match kind {
        "tiles" => ("The tiles of a block by k-step", tiles(&mut svg, rest, launch(rest, subjects)?)?),
        "requests" => ("Requests to global memory", panels(&mut svg, rest, subjects, sectors)?),
        "banks" => ("Requests to shared memory", panels(&mut svg, rest, subjects, banks)?),
        "ownership" => ("The elements of C that a block computes", ownership(&mut svg, rest, launch(rest, subjects)?)?),
        "pipeline" => ("Pipeline timeline", stages(&mut svg, rest, launch(rest, subjects)?)?),
        "fragments" => match subjects(rest)? {
            Subject::Mma(mma) => ("The fragments of a matrix instruction", fragments(&mut svg, *mma)),
            _ => return unsupported(rest, "not a matrix instruction"),
        },
        "bars" => ("Bar chart", bars(&mut svg, rest, subjects)?),
        _ => return syntax(kind, "take tiles, requests, banks, ownership, pipeline, fragments or bars"),
    };
    Ok(Drawing { svg: svg.finish(title, &description), description })
}

fn unsupported<T>(subject: &str, reason: &str) -> Result<T> {
    Err(ErrorKind::UnsupportedFigure { subject: subject.into(), reason: reason.into() })
}

fn launch<'a>(name: &str, subjects: &Subjects<'a>) -> Result<&'a LaunchFacts> {
    match subjects(name)? {
        Subject::Launch(launch) => Ok(launch),
        _ => unsupported(name, "not a launch"),
    }
}

fn plural(count: usize, of: &str) -> String {
    format!("{count} {of}{}", if count == 1 { "" } else { "s" })
}

/// A matrix as cells.
struct Grid<'a> {
    at: [f64; 2],
    cell: f64,
    extents: [u64; 2],
    /// Class and text of a cell.
    of: &'a dyn Fn(u64, u64) -> (&'static str, String),
}

impl Grid<'_> {
    fn draw(&self, svg: &mut Svg) {
        let Grid { at: [x, y], cell, extents: [rows, cols], of } = *self;
        for (row, col) in (0..rows).flat_map(|row| (0..cols).map(move |col| (row, col))) {
            let (class, text) = of(row, col);
            let at = [x + col as f64 * cell, y + row as f64 * cell];
            svg.rect(at, [cell, cell], class);
            if !text.is_empty() {
                svg.text([at[0] + cell / 2.0, at[1] + cell / 2.0], cell * 0.42, Anchor::Middle, "", &text);
            }
        }
    }
}

/// The pipeline timeline of the first block.
fn stages(svg: &mut Svg, name: &str, launch: &LaunchFacts) -> Result<String> {
    let Some(timeline) = Timeline::of(launch.trace()?, [0; 3], Costs::DEFAULT) else {
        return unsupported(name, "the kernel has no pipeline");
    };
    if u64::from(timeline.columns) > MAX_CELLS {
        return unsupported(name, &format!("{} columns; the limit is {MAX_CELLS}", timeline.columns));
    }
    pipeline::picture(svg, &timeline, [0, timeline.columns]);
    Ok(pipeline::description(&timeline))
}

/// A row for each k-step: the loaded tiles of A and B, and the block's tile of C.
fn tiles(svg: &mut Svg, name: &str, launch: &LaunchFacts) -> Result<String> {
    const CELL: f64 = 30.0;
    let trace = launch.trace()?;
    let matrices = &trace.header.matrices;
    if matrices.len() != 3 || matrices.iter().any(|of| of.shape[1].max(of.shape[2]) > 16) {
        return unsupported(name, "only A, B and C of at most 16 rows and columns");
    }
    let all = 0..trace.header.ticks.len() as u32;
    let stored = trace.touched([0; 3], OperationKind::GlobalStore, all).swap_remove(2);
    let mut steps = Vec::new();
    let mut y = MARGIN;
    for phase in trace.header.phases.iter().filter(|phase| phase.kind == PhaseKind::Load) {
        let [from, to] = phase.ticks;
        let read = trace.touched([0; 3], OperationKind::GlobalLoad, from..to);
        let step = phase.step.unwrap_or_default();
        svg.text([MARGIN, y + 8.0], 14.0, Anchor::Start, "", &format!("block (0, 0), step {step}"));
        let mut x = MARGIN;
        for (matrix, letter) in ["a", "b", "c"].into_iter().enumerate() {
            let lit: &HashSet<u64> = if matrix == 2 { &stored } else { &read[matrix] };
            let [_, rows, cols] = matrices[matrix].shape;
            let of = |row: u64, col: u64| {
                let class = if !lit.contains(&(row * cols + col)) { "cell" } else { ["a", "b", "c"][matrix] };
                (class, format!("{letter}{row}{col}"))
            };
            svg.text([x, y + 30.0], 13.0, Anchor::Start, "faint", ["A", "B", "C"][matrix]);
            Grid { at: [x, y + 42.0], cell: CELL, extents: [rows, cols], of: &of }.draw(svg);
            x += CELL * cols as f64 + 40.0;
        }
        steps.push(format!("step {step} loads {} and {}", listed(trace, 0, &read[0]), listed(trace, 1, &read[1])));
        y = svg.bottom() + 24.0;
    }
    Ok(format!("Block (0, 0): {}; it stores {}.", steps.join("; "), listed(trace, 2, &stored)))
}

/// Elements of a matrix by name, in order.
fn listed(trace: &Trace, matrix: usize, elements: &HashSet<u64>) -> String {
    let name = &trace.header.matrices[matrix].name;
    let sorted: BTreeSet<_> = elements.iter().copied().collect();
    let named = sorted.into_iter().map(|element| {
        let [_, row, col] = trace.header.coordinates(matrix, element);
        format!("{name}{row}{col}")
    });
    named.collect::<Vec<_>>().join(" ")
}

/// Requests in a column; `panel` draws one and returns its description.
fn panels<'a>(
    svg: &mut Svg,
    names: &str,
    subjects: &Subjects<'a>,
    panel: fn(&mut Svg, f64, &str, Request<'a>) -> Result<String>,
) -> Result<String> {
    let (mut descriptions, mut y) = (Vec::new(), MARGIN);
    for name in names.split_whitespace() {
        let (subject, request) = name.split_once('.').unwrap_or((name, ""));
        let requests = launch(subject, subjects)?.requests()?;
        let Some(&of) = requests.get(request) else {
            let known = requests.keys().cloned().collect::<Vec<_>>().join(", ");
            return Err(ErrorKind::UnknownFact { subject: subject.into(), fact: request.into(), known });
        };
        descriptions.push(panel(svg, y, name, of)?);
        y = svg.bottom() + 24.0;
    }
    if descriptions.is_empty() {
        return syntax(names, "take requests, as NAME.a_load");
    }
    Ok(descriptions.join("; ") + ".")
}

/// The title of a request: kernel, lanes, access, memory.
fn title(name: &str, request: Request<'_>) -> String {
    let access = if name.ends_with("_store") { "storing" } else { "loading" };
    let lanes = plural(request.event.lanes.count_ones() as usize, "lane");
    format!("{}: {lanes} {access} {}", request.header.kernel, request.memory)
}

/// The sectors of a request, with the number of lanes that access each element.
fn sectors(svg: &mut Svg, y: f64, name: &str, request: Request<'_>) -> Result<String> {
    const CELL: f64 = 17.0;
    const LABEL: f64 = 64.0;
    let size = request.ty.size() as u64;
    let per_sector = SECTOR_BYTES / size;
    let Some(matrix) =
        request.header.matrices.iter().position(|of| of.name == request.memory && request.start.is_none())
    else {
        return unsupported(name, "sectors are for global memory only");
    };
    let mut touched: BTreeMap<u64, BTreeMap<u64, u32>> = BTreeMap::new();
    for element in &request.event.elements {
        *touched.entry(element / per_sector).or_default().entry(element % per_sector).or_default() += 1;
    }
    let elements: usize = touched.values().map(BTreeMap::len).sum();
    let used = elements as u64 * size;
    let description = format!(
        "{}, {} of {SECTOR_BYTES} bytes, {used} bytes used",
        title(name, request),
        plural(touched.len(), "sector")
    );
    svg.text([MARGIN, y + 7.0], 13.0, Anchor::Start, "", &description);
    let width = LABEL + CELL * per_sector as f64 + 22.0;
    for (at, (sector, lanes)) in touched.iter().enumerate() {
        let x = MARGIN + width * (at % 4) as f64;
        let y = y + 24.0 + (CELL + 4.0) * (at / 4) as f64;
        let [_, row, col] = request.header.coordinates(matrix, sector * per_sector);
        let label = format!("{}[{row},{col}..]", request.memory);
        svg.text([x + LABEL - 4.0, y + CELL / 2.0], 10.0, Anchor::End, "faint", &label);
        let class = if request.memory == "b" { "b" } else { "a" };
        let of = |_, col: u64| match lanes.get(&col) {
            Some(1) => (class, "1".to_string()),
            Some(lanes) => (class, lanes.to_string()),
            None => ("cell", String::new()),
        };
        Grid { at: [x + LABEL, y], cell: CELL, extents: [1, per_sector], of: &of }.draw(svg);
    }
    Ok(description)
}

/// The distinct words of a request by bank; each takes a wavefront.
fn banks(svg: &mut Svg, y: f64, name: &str, request: Request<'_>) -> Result<String> {
    const CELL: f64 = 19.0;
    let Some(start) = request.start else { return unsupported(name, "banks are for shared memory only") };
    if request.ty.size() != 4 {
        return unsupported(name, "only elements of 4 bytes, the width of a bank");
    }
    let mut stacks = vec![BTreeSet::new(); BANKS as usize];
    for element in &request.event.elements {
        let word = u64::from(start) / 4 + element;
        stacks[(word % BANKS) as usize].insert(word);
    }
    let height = stacks.iter().map(BTreeSet::len).max().unwrap_or(0);
    let busy = stacks.iter().filter(|stack| !stack.is_empty()).count();
    let wavefronts = request.event.transactions;
    let description =
        format!("{}, {busy} of {BANKS} banks busy, {}", title(name, request), plural(wavefronts as usize, "wavefront"));
    svg.text([MARGIN, y + 7.0], 13.0, Anchor::Start, "", &description);
    let cell = if height > 8 { 7.0 } else { CELL };
    for (bank, stack) in stacks.iter().enumerate() {
        let x = MARGIN + bank as f64 * CELL;
        for at in 0..stack.len().max(1) {
            let class = if stack.is_empty() { "cell" } else { "s" };
            svg.rect([x, y + 24.0 + at as f64 * cell], [CELL - 2.0, cell], class);
        }
        let below = [x + CELL / 2.0 - 1.0, y + 34.0 + height as f64 * cell];
        svg.text(below, 9.0, Anchor::Middle, "faint", &bank.to_string());
    }
    Ok(description)
}

/// The tile of C that the first block stores, by warp.
fn ownership(svg: &mut Svg, name: &str, launch: &LaunchFacts) -> Result<String> {
    const CELL: f64 = 8.0;
    let trace = launch.trace()?;
    let header = &trace.header;
    let stores = trace.events.iter().filter(|event| header.operation(event.tick).kind == OperationKind::GlobalStore);
    let (mut warps, mut thread) = (BTreeMap::new(), BTreeSet::new());
    for event in stores {
        let matrix = header.operation(event.tick).memory as usize;
        for (lane, &element) in event.threads().zip(&event.elements) {
            let [_, row, col] = header.coordinates(matrix, element);
            warps.insert((row, col), event.warp);
            if lane == 0 {
                thread.insert((row, col));
            }
        }
    }
    let rows = warps.keys().map(|(row, _)| row + 1).max().unwrap_or(0);
    let cols = warps.keys().map(|(_, col)| col + 1).max().unwrap_or(0);
    if rows.max(cols) > MAX_CELLS || warps.is_empty() {
        return unsupported(name, "the block stores nothing, or more than fits");
    }
    let count = warps.values().collect::<BTreeSet<_>>().len();
    let description = format!(
        "{}: a block stores {rows}×{cols} elements of C, {} a part each; thread 0 stores {}",
        header.kernel,
        plural(count, "warp"),
        plural(thread.len(), "element")
    );
    svg.text(
        [MARGIN, MARGIN + 7.0],
        13.0,
        Anchor::Start,
        "",
        "C of a block: a color for each warp, edges for thread 0",
    );
    let at = |row: u64, col: u64| [MARGIN + col as f64 * CELL, MARGIN + 26.0 + row as f64 * CELL];
    let class = |row, col| match warps.get(&(row, col)) {
        Some(warp) => ["flat s", "flat c", "flat a", "flat b"][*warp as usize % 4],
        None => "cell",
    };
    for row in 0..rows {
        let mut first = 0;
        // Adjacent elements of one class are drawn as one rectangle.
        while first < cols {
            let run = (first..cols).take_while(|col| class(row, *col) == class(row, first)).count() as u64;
            svg.rect(at(row, first), [run as f64 * CELL, CELL], class(row, first));
            first += run;
        }
    }
    thread.iter().for_each(|&(row, col)| svg.rect(at(row, col), [CELL, CELL], "cell bold"));
    Ok(description + ".")
}

/// The lane of each element of A, B and the accumulators; lane 0 is highlighted.
fn fragments(svg: &mut Svg, mma: Mma) -> String {
    const CELL: f64 = 22.0;
    let ([m, n, k], [a, b, accumulators]) = (mma.shape(), mma.registers());
    type Holders = BTreeMap<(u32, u32), u32>;
    let (mut of_a, mut of_b, mut of_c) = (Holders::new(), Holders::new(), Holders::new());
    for lane in 0..32 {
        for part in 0..mma.elements_per_register() {
            of_a.extend((0..a).map(|register| (mma.a(lane, register, part), lane)));
            of_b.extend((0..b).map(|register| (mma.b(lane, register, part), lane)));
        }
        of_c.extend((0..accumulators).map(|register| (mma.accumulator(lane, register), lane)));
    }
    let mut x = MARGIN;
    let matrices = [("A", "a", [m, k], &of_a), ("B", "b", [k, n], &of_b), ("accumulators", "c", [m, n], &of_c)];
    for (name, class, [rows, cols], holders) in matrices {
        svg.text([x, MARGIN + 7.0], 13.0, Anchor::Start, "", &format!("{name}, {rows}×{cols}"));
        let of = |row: u64, col: u64| match holders.get(&(row as u32, col as u32)) {
            Some(0) => (class, "0".to_string()),
            Some(lane) => ("cell", lane.to_string()),
            None => ("cell", String::new()),
        };
        Grid { at: [x, MARGIN + 24.0], cell: CELL, extents: [rows.into(), cols.into()], of: &of }.draw(svg);
        x = svg.right() + 28.0;
    }
    format!(
        "{mma}: the lane of each element; each of the 32 lanes holds {} of A, {} of B and {}.",
        plural((a * mma.elements_per_register()) as usize, "element"),
        plural((b * mma.elements_per_register()) as usize, "element"),
        plural(accumulators as usize, "accumulator")
    )
}

/// A bar chart.
fn bars(svg: &mut Svg, text: &str, subjects: &Subjects<'_>) -> Result<String> {
    const LABEL: f64 = 290.0;
    const WIDTH: f64 = 330.0;
    const EXPECTED: &str = "take bars UNIT | LABEL = EXPRESSION | ..";
    let mut parts = text.split('|').map(str::trim);
    let unit = parts.next().unwrap_or_default();
    let mut all = Vec::new();
    for part in parts.take(MAX_CELLS as usize) {
        let Some((label, expression)) = part.rsplit_once('=') else { return syntax(part, EXPECTED) };
        all.push((label.trim(), number(expression, &|name, fact| subjects(name)?.fact(name, fact))?));
    }
    let max = all.iter().map(|(_, number)| *number).fold(0.0, f64::max);
    if all.is_empty() || max <= 0.0 || all.iter().any(|(_, number)| *number < 0.0) {
        return syntax(text, EXPECTED);
    }
    svg.text([MARGIN, MARGIN + 7.0], 13.0, Anchor::Start, "faint", unit);
    for (at, (label, number)) in all.iter().enumerate() {
        let y = MARGIN + 26.0 + 26.0 * at as f64;
        svg.text([MARGIN + LABEL - 8.0, y + 9.0], 12.0, Anchor::End, "", label);
        let width = (WIDTH * number / max).max(1.0);
        svg.rect([MARGIN + LABEL, y], [width, 18.0], "bar");
        svg.text([MARGIN + LABEL + width + 8.0, y + 9.0], 12.0, Anchor::Start, "", &format_number(*number, None));
    }
    let values: Vec<String> =
        all.iter().map(|(label, number)| format!("{label} {}", format_number(*number, None))).collect();
    Ok(format!("{unit}: {}.", values.join("; ")))
}
