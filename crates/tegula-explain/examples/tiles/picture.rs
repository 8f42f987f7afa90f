//! The kernel `tiled` without its second barrier, recorded in the interpreter, as an animated SVG.
//!
//! Every number, step, and source line, and the race itself, is read from the trace. The animation
//! is CSS, so that browsers play it in an image and honor `prefers-reduced-motion` and dark mode.
//! Without animation the picture shows the race.

use std::fmt::Write;
use std::path::{Path, PathBuf};

use tegula_core::element::Type;
use tegula_explain::sample_launch::SampleLaunch;
use tegula_explain::trace::{Event, Finding, MAX_VALUES, OperationKind, PhaseKind, Trace, TraceFilter};
use tegula_kernels::{Plain, PlainKind};

/// Extents of the product (m, n, k), and of a tile.
const SIZES: [usize; 3] = [4, 4, 6];
const TILE: usize = 2;

/// The side of a matrix element in the picture.
const CELL: f64 = 32.0;
const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 550.0;
/// Top left corners of A, B, C, and of the two shared arrays.
const MATRICES: [[f64; 2]; 3] = [[84.0, 274.0], [320.0, 58.0], [320.0, 274.0]];
const SHARED: [[f64; 2]; 2] = [[556.0, 98.0], [728.0, 98.0]];

/// Colors by class, distinguishable for color-blind readers (Okabe and Ito, 2008).
const STYLE: &str = "\
.ground{fill:#fff}.grid{fill:none;stroke:#c3c8d0}.a{fill:#cfe6f7;stroke:#0072b2}.b{fill:#fbe3c4;stroke:#a34a00}\
.c{fill:#cdeee2;stroke:#00684a}.frame{fill:none;stroke-width:3}.bold{fill:none;stroke:#1a1d23;stroke-width:2.5}\
.row{fill:#e8ebf0}.error{fill:#fdecea;stroke:#b3261e;stroke-width:2}.hit{fill:none;stroke:#b3261e;stroke-width:4}\
text{fill:#1a1d23;font:13px ui-monospace,'DejaVu Sans Mono',Menlo,monospace}.title{font-size:17px;font-weight:bold}\
.faint{fill:#5a6270}.red{fill:#b3261e;font-weight:bold}.mid{text-anchor:middle}.strike{text-decoration:line-through}\
.bar{fill:#c3c8d0}.cursor{fill:#1a1d23}\
@media(prefers-color-scheme:dark){.ground{fill:#14161a}.grid{stroke:#444b57}.a{fill:#12354d;stroke:#6ec1ff}\
.b{fill:#4a2e0b;stroke:#ffb35c}.c{fill:#0d3d2f;stroke:#4fdcaf}.frame{fill:none}.bold{stroke:#eceff4}.row{fill:#262b33}\
.error{fill:#3b1512;stroke:#ff8a80}.hit{stroke:#ff8a80}text{fill:#eceff4}.faint{fill:#aab2bf}.red{fill:#ff8a80}\
.bar{fill:#444b57}.cursor{fill:#eceff4}}\
@media(prefers-reduced-motion:reduce){*{animation:none!important}}";

/// The root of the repository.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Records the product and draws it.
pub fn draw() -> String {
    let kernel = Plain::new(PlainKind::Tiled, Type::F32, TILE as u32).with_bug("missing-second-barrier");
    let launch = SampleLaunch::new(kernel.expect("a kernel of the catalog"), SIZES).expect("a small product");
    let trace = launch.trace(&TraceFilter::default(), MAX_VALUES).expect("a short trace");
    Film::new(&trace, launch.result_error().is_none()).finish()
}

/// What a scene shows.
#[derive(Clone, Copy, Debug, PartialEq)]
enum SceneKind {
    Load,
    Race,
    Barrier,
    /// The multiply-add with this index along k.
    Multiply(usize),
    Slide,
    Store,
    End,
}

/// A part of the film, in seconds.
#[derive(Clone, Copy, Debug)]
struct Scene {
    kind: SceneKind,
    step: usize,
    start: f64,
    end: f64,
    /// The ticks of the trace that it shows.
    ticks: [u32; 2],
}

/// The scenes of a trace, in the order of the program.
fn scenes(trace: &Trace, race: u32) -> Vec<Scene> {
    let mut scenes: Vec<Scene> = Vec::new();
    let mut add = |kind, step: Option<u32>, seconds, ticks| {
        let start = scenes.last().map_or(0.0, |last| last.end);
        let step = step.map_or(SIZES[2].div_ceil(TILE) - 1, |step| step as usize);
        scenes.push(Scene { kind, step, start, end: start + seconds, ticks });
    };
    for phase in &trace.header.phases {
        let [from, to] = phase.ticks;
        match phase.kind {
            PhaseKind::Load => {
                add(SceneKind::Load, phase.step, 1.2, phase.ticks);
                if (from..to).contains(&race) {
                    add(SceneKind::Race, phase.step, 4.5, phase.ticks);
                }
            }
            PhaseKind::Wait => add(SceneKind::Barrier, phase.step, 0.8, phase.ticks),
            PhaseKind::Multiply => {
                let adds = (from..to).filter(|&tick| trace.header.operation(tick).kind == OperationKind::MulAdd);
                adds.enumerate().for_each(|(p, at)| add(SceneKind::Multiply(p), phase.step, 0.6, [at, at + 1]));
            }
            PhaseKind::Slide => add(SceneKind::Slide, phase.step, 0.8, phase.ticks),
            PhaseKind::Store => add(SceneKind::Store, phase.step, 1.2, phase.ticks),
        }
    }
    add(SceneKind::End, None, 2.5, [0, 0]);
    scenes
}

/// The picture while it is drawn.
struct Film<'a> {
    trace: &'a Trace,
    scenes: Vec<Scene>,
    races: Vec<&'a Finding>,
    /// Whether C came out right although the kernel has a race.
    right: bool,
    body: String,
    keyframes: String,
    animations: usize,
}

impl<'a> Film<'a> {
    fn new(trace: &'a Trace, right: bool) -> Self {
        let races: Vec<_> = trace.header.findings.iter().filter(|finding| finding.kind == "race").collect();
        let first = races.iter().filter_map(|race| race.tick).min().expect("the interpreter finds the race");
        let scenes = scenes(trace, first);
        Film { trace, scenes, races, right, body: String::new(), keyframes: String::new(), animations: 0 }
    }

    fn finish(mut self) -> String {
        self.matrices();
        self.shared();
        self.accumulators();
        self.program();
        self.verdict();
        self.progress();
        let title = "Tiled matrix multiplication without its second barrier";
        let alt = "Tiles of A and B are copied to shared memory, multiplied, and slide along k. \
                   The second load overwrites tiles that other threads still read: a data race, found with both \
                   threads and both source lines.";
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" aria-labelledby=\"title desc\">\n\
             <title id=\"title\">{title}</title>\n<desc id=\"desc\">{alt}</desc>\n<style>{STYLE}\n{}</style>\n\
             <rect class=\"ground\" width=\"{WIDTH}\" height=\"{HEIGHT}\"/>\n{}</svg>\n",
            self.keyframes, self.body
        )
    }

    fn total(&self) -> f64 {
        self.scenes.last().map_or(0.0, |last| last.end)
    }

    /// The time that is shown without animation: late in the scene of the race.
    fn still(&self) -> f64 {
        self.scenes.iter().find(|scene| scene.kind == SceneKind::Race).map_or(0.0, |scene| scene.end - 0.1)
    }

    fn start_of(&self, kind: SceneKind, step: usize) -> f64 {
        self.scenes.iter().find(|scene| (scene.kind, scene.step) == (kind, step)).map_or(self.total(), |s| s.start)
    }

    /// Draws a group that is visible from and to these times.
    fn group(&mut self, spans: &[[f64; 2]], draw: impl FnOnce(&mut Self)) {
        let (name, total) = (self.animate(), self.total());
        let at = |time: f64| 100.0 * time / total;
        let visible = |time: f64| u8::from(spans.iter().any(|[from, to]| (*from..*to).contains(&time)));
        let mut frames = format!("0%{{opacity:{}}}", visible(0.0));
        for time in spans.iter().flatten().copied().filter(|&time| time > 0.0 && time < total) {
            let _ = write!(frames, "{:.2}%{{opacity:{}}}", at(time), visible(time));
        }
        let _ = writeln!(
            self.keyframes,
            "@keyframes {name}{{{frames}}}.{name}{{animation:{name} {total:.1}s step-end infinite}}"
        );
        let _ = writeln!(self.body, "<g class=\"{name}\" opacity=\"{}\">", visible(self.still()));
        draw(self);
        self.body.push_str("</g>\n");
    }

    /// Draws a group that moves through offsets, each reached at its time and kept until the next
    /// one starts.
    fn moving(&mut self, stops: &[(f64, f64, [f64; 2])], draw: impl FnOnce(&mut Self)) {
        let (name, total) = (self.animate(), self.total());
        let mut frames = String::new();
        for (from, to, [x, y]) in stops {
            let (from, to) = (100.0 * from / total, 100.0 * to / total);
            let _ = write!(frames, "{from:.2}%,{to:.2}%{{transform:translate({x}px,{y}px)}}");
        }
        let still = self.still();
        let stop = stops.iter().rev().find(|(from, ..)| *from <= still).or(stops.first());
        let [x, y] = stop.map_or([0.0; 2], |stop| stop.2);
        let _ = writeln!(
            self.keyframes,
            "@keyframes {name}{{{frames}}}.{name}{{animation:{name} {total:.1}s ease-in-out infinite}}"
        );
        let _ = writeln!(self.body, "<g class=\"{name}\" transform=\"translate({x},{y})\">");
        draw(self);
        self.body.push_str("</g>\n");
    }

    fn animate(&mut self) -> String {
        self.animations += 1;
        format!("k{}", self.animations)
    }

    fn rect(&mut self, [x, y]: [f64; 2], [width, height]: [f64; 2], class: &str) {
        let _ = writeln!(self.body, r#"<rect class="{class}" x="{x}" y="{y}" width="{width}" height="{height}"/>"#);
    }

    fn text(&mut self, [x, y]: [f64; 2], class: &str, text: &str) {
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        let _ = writeln!(self.body, r#"<text class="{class}" x="{x}" y="{y}">{text}</text>"#);
    }

    /// A grid of rows×cols cells.
    fn grid(&mut self, [x, y]: [f64; 2], [rows, cols]: [usize; 2]) {
        let (width, height) = (cols as f64 * CELL, rows as f64 * CELL);
        let mut path = String::new();
        (0..=rows).for_each(|row| _ = write!(path, "M{x} {}h{width}", y + row as f64 * CELL));
        (0..=cols).for_each(|col| _ = write!(path, "M{} {y}v{height}", x + col as f64 * CELL));
        let _ = writeln!(self.body, r#"<path class="grid" d="{path}"/>"#);
    }

    /// A number in a cell of a grid.
    fn number(&mut self, origin: [f64; 2], [row, col]: [usize; 2], bits: u64) {
        let [x, y] = cell(origin, [row, col]);
        self.text([x + CELL / 2.0, y + CELL / 2.0 + 4.5], "mid", &f32::from_bits(bits as u32).to_string());
    }

    /// A, B, and C with their numbers, and the frames that slide over A and B.
    fn matrices(&mut self) {
        self.text([24.0, 34.0], "title", "C = A · B in tiles of shared memory, one barrier short");
        let (trace, [m, n, k]) = (self.trace, SIZES);
        for (index, (name, extents)) in [("A", [m, k]), ("B", [k, n]), ("C", [m, n])].into_iter().enumerate() {
            let origin = MATRICES[index];
            self.text([origin[0] - 20.0, origin[1] + 18.0], "title", name);
            for (at, &bits) in trace.header.matrices[index].initial.iter().enumerate().filter(|_| index < 2) {
                self.number(origin, [at / extents[1], at % extents[1]], bits);
            }
            self.grid(origin, extents);
        }
        let side = TILE as f64 * CELL;
        for (index, class, axis) in [(0, "a frame", 0), (1, "b frame", 1)] {
            let mut stops = vec![(0.0, 0.0, [0.0; 2])];
            for scene in self.scenes.iter().filter(|scene| scene.kind == SceneKind::Slide) {
                let mut by = [0.0; 2];
                by[axis] = (scene.step - 1) as f64 * side;
                stops.push((scene.start, scene.start, by));
                by[axis] = scene.step as f64 * side;
                stops.push((scene.end, scene.end, by));
            }
            stops.push((self.total(), self.total(), stops.last().map_or([0.0; 2], |stop| stop.2)));
            self.moving(&stops, |film| film.rect(MATRICES[index], [side; 2], class));
        }
    }

    /// The tiles in shared memory: each flies there from its matrix and stays until the next one
    /// lands on it.
    fn shared(&mut self) {
        let (trace, side, total) = (self.trace, TILE as f64 * CELL, self.total());
        let loads: Vec<Scene> = self.scenes.iter().copied().filter(|scene| scene.kind == SceneKind::Load).collect();
        self.text([SHARED[0][0], 72.0], "faint", "shared memory of block (0, 0)");
        for (array, origin) in SHARED.into_iter().enumerate() {
            self.text([origin[0], origin[1] + side + 18.0], "", &trace.header.shared[array].name);
            for (at, load) in loads.iter().enumerate() {
                let gone = loads.get(at + 1).map_or(total, |next| next.end);
                let mut from = MATRICES[array];
                from[array] += load.step as f64 * side;
                let offset = [from[0] - origin[0], from[1] - origin[1]];
                let stops = [(0.0, load.start, offset), (load.end, total, [0.0; 2])];
                self.group(&[[load.start, gone]], |film| {
                    film.moving(&stops, |film| {
                        film.rect(origin, [side; 2], ["a", "b"][array]);
                        for event in events(trace, load.ticks, OperationKind::SharedStore) {
                            if trace.header.operation(event.tick).memory as usize == array {
                                for (&element, &bits) in event.elements.iter().zip(&event.bits) {
                                    let element = element as usize;
                                    film.number(origin, [element / TILE, element % TILE], bits);
                                }
                            }
                        }
                        film.grid(origin, [TILE; 2]);
                    });
                });
            }
            self.grid(origin, [TILE; 2]);
        }
        for scene in self.scenes.clone() {
            if let SceneKind::Multiply(p) = scene.kind {
                self.group(&[[scene.start, scene.end]], |film| {
                    film.rect(cell(SHARED[0], [0, p]), [CELL, side], "bold");
                    film.rect(cell(SHARED[1], [p, 0]), [side, CELL], "bold");
                });
            }
        }
        let found = self.start_of(SceneKind::Race, 1);
        for race in self.races.clone() {
            let Some(array) = trace.header.shared.iter().position(|array| array.name == race.name) else { continue };
            let at = [race.index[0] as usize, race.index[1] as usize];
            self.group(&[[found, total]], |film| {
                film.rect(cell(SHARED[array], at), [CELL; 2], "hit");
                let [x, y] = cell(SHARED[array], at);
                film.text([x, y - 6.0], "red", "race");
            });
        }
    }

    /// The accumulators of the block in the place of their elements of C, then all of C as it was
    /// stored.
    fn accumulators(&mut self) {
        let (trace, total, side) = (self.trace, self.total(), TILE as f64 * CELL);
        let origin = MATRICES[2];
        let stored = self.start_of(SceneKind::Store, SIZES[2].div_ceil(TILE) - 1);
        let adds: Vec<Scene> =
            self.scenes.iter().copied().filter(|scene| matches!(scene.kind, SceneKind::Multiply(_))).collect();
        for (at, add) in adds.iter().enumerate() {
            let until = adds.get(at + 1).map_or(stored, |next| next.start);
            self.group(&[[add.start, until]], |film| {
                for event in events(trace, add.ticks, OperationKind::MulAdd) {
                    for (thread, &bits) in event.threads().zip(&event.bits) {
                        film.number(origin, [thread as usize / TILE, thread as usize % TILE], bits);
                    }
                }
            });
        }
        let under = origin[1] + SIZES[0] as f64 * CELL + 18.0;
        self.group(&[[0.0, stored]], |film| {
            film.rect(origin, [side; 2], "bold");
            film.text([origin[0], under], "faint", "accumulators");
        });
        let store = self.scenes.iter().copied().find(|scene| scene.kind == SceneKind::Store);
        self.group(&[[stored, total]], |film| {
            film.rect(origin, [SIZES[1] as f64 * CELL, SIZES[0] as f64 * CELL], "c");
            film.text([origin[0], under], "faint", "stored");
            for event in trace.events.iter().filter(|event| store.is_some_and(|s| is_in(event, s.ticks))) {
                if trace.header.operation(event.tick).kind == OperationKind::GlobalStore {
                    for (&element, &bits) in event.elements.iter().zip(&event.bits) {
                        film.number(origin, [element as usize / SIZES[1], element as usize % SIZES[1]], bits);
                    }
                }
            }
            film.grid(origin, [SIZES[0], SIZES[1]]);
        });
    }

    /// The steps of the kernel, with a bar behind the one that runs.
    fn program(&mut self) {
        let (x, y) = (SHARED[0][0], 242.0);
        type IsIn = fn(SceneKind) -> bool;
        let lines: [(&str, &str, IsIn); 6] = [
            ("load", "A, B → tile_a, tile_b", |kind| matches!(kind, SceneKind::Load | SceneKind::Race)),
            ("barrier", "until both tiles are there", |kind| kind == SceneKind::Barrier),
            ("multiply", "acc += tile_a · tile_b", |kind| matches!(kind, SceneKind::Multiply(_))),
            ("barrier", "left out: the injected bug", |_| false),
            ("slide", "right in A, down in B", |kind| kind == SceneKind::Slide),
            ("store", "acc → C", |kind| kind == SceneKind::Store),
        ];
        for (line, (name, what, runs)) in lines.into_iter().enumerate() {
            let top = y + 26.0 * line as f64 + if line == 5 { 8.0 } else { 0.0 };
            let spans: Vec<_> = self.scenes.iter().filter(|s| runs(s.kind)).map(|s| [s.start, s.end]).collect();
            if !spans.is_empty() {
                self.group(&spans, |film| film.rect([x - 8.0, top - 17.0], [336.0, 24.0], "row"));
            }
            let left_out = line == 3;
            self.text([x, top], if left_out { "red strike" } else { "" }, name);
            self.text([x + 88.0, top], if left_out { "red" } else { "faint" }, what);
        }
        for step in 0..SIZES[2].div_ceil(TILE) {
            let spans: Vec<_> = self.scenes.iter().filter(|s| s.step == step).map(|s| [s.start, s.end]).collect();
            self.group(&spans, |film| film.text([x, y - 30.0], "title", &format!("step {step}")));
        }
    }

    /// The race with both threads, both lines, and their source.
    fn verdict(&mut self) {
        let (found, total, y) = (self.start_of(SceneKind::Race, 1), self.total(), 438.0);
        let race = self.races[0];
        let index: Vec<String> = race.index.iter().map(u64::to_string).collect();
        let head = format!("data race on {}[{}], {} pairs of accesses", race.name, index.join(", "), race.times);
        let accesses = race.threads.iter().zip(&race.lines).zip(["writes", "reads"]);
        let accesses: Vec<[String; 3]> =
            accesses.map(|((thread, (file, line)), does)| access(*thread, file, *line, does)).collect();
        let right = self.right;
        self.group(&[[found, total]], |film| {
            film.rect([24.0, y], [WIDTH - 48.0, 78.0], "error");
            film.text([38.0, y + 22.0], "red", &head);
            if right {
                film.text([500.0, y + 22.0], "faint", "C is right in this run: its test passes");
            }
            for (at, columns) in accesses.iter().enumerate() {
                for (text, (x, class)) in columns.iter().zip([(38.0, ""), (214.0, "faint"), (312.0, "")]) {
                    film.text([x, y + 44.0 + 21.0 * at as f64], class, text);
                }
            }
        });
    }

    /// The scenes in proportion, and a cursor.
    fn progress(&mut self) {
        let (total, y) = (self.total(), HEIGHT - 16.0);
        let scale = (WIDTH - 48.0) / total;
        for scene in self.scenes.clone() {
            let class = if scene.kind == SceneKind::Race { "error" } else { "bar" };
            let (left, width) = (24.0 + scene.start * scale, (scene.end - scene.start) * scale - 2.0);
            self.rect([tenths(left), y], [tenths(width), 4.0], class);
        }
        let name = self.animate();
        let _ = writeln!(
            self.keyframes,
            "@keyframes {name}{{0%{{transform:none}}to{{transform:translate({}px)}}}}\
             .{name}{{animation:{name} {total:.1}s linear infinite}}",
            WIDTH - 48.0
        );
        let still = tenths(self.still() * scale);
        let _ = writeln!(self.body, "<g class=\"{name}\" transform=\"translate({still})\">");
        self.rect([22.0, y - 4.0], [4.0, 12.0], "cursor");
        self.body.push_str("</g>\n");
    }
}

/// The top left corner of a cell.
fn cell([x, y]: [f64; 2], [row, col]: [usize; 2]) -> [f64; 2] {
    [x + col as f64 * CELL, y + row as f64 * CELL]
}

fn tenths(length: f64) -> f64 {
    (10.0 * length).round() / 10.0
}

fn is_in(event: &Event, [from, to]: [u32; 2]) -> bool {
    (from..to).contains(&event.tick)
}

/// The events of block (0, 0) within some ticks, of one kind.
fn events(trace: &Trace, ticks: [u32; 2], kind: OperationKind) -> impl Iterator<Item = &Event> {
    let of_block = trace.events.iter().filter(move |event| event.block == [0; 3] && is_in(event, ticks));
    of_block.filter(move |event| trace.header.operation(event.tick).kind == kind)
}

/// One access of a race: the thread, the line, and the line's text.
fn access([x, y, _]: [u32; 3], file: &str, line: u32, does: &str) -> [String; 3] {
    let source = std::fs::read_to_string(root().join(file)).unwrap_or_default();
    let text = source.lines().nth(line as usize - 1).unwrap_or_default().trim();
    let cut = text.char_indices().nth(68).map_or(text.to_string(), |(at, _)| format!("{}…", &text[..at]));
    let name = Path::new(file).file_name().unwrap_or_default().to_string_lossy();
    [format!("thread ({x}, {y}) {does}"), format!("{name}:{line}"), cut]
}
