//! One launch in both engines, and the differences of what they report.

use std::collections::{BTreeMap, BTreeSet};

use tegula_core::diagnostic::{FindingKind, Space};
use tegula_interp::Counters;
use tegula_ir::ptx::{Image, print_lines};
use tegula_ir::{Checked, Kernel, SharedArray, Site, SiteId};
use tegula_ptx::{Config, Module, SourceLine};

use super::memory::{Bound, Memory, ptx_arguments};

/// A source position of a kernel: file, line and column.
type Position = (String, u32, u32);

/// A finding: its kind, and the positions of the accesses.
pub type FoundAt = (FindingKind, Vec<Position>);

/// A race: its block, its threads, and its element of shared memory.
pub type RaceAt = ([u32; 3], Vec<[u32; 3]>, Option<(String, Vec<u64>)>);

/// The races at two positions: how often they occurred, and those that are described.
pub type Races = BTreeMap<Vec<Position>, (u64, BTreeSet<RaceAt>)>;

/// The outcomes of a launch in both engines.
pub struct Outcomes {
    pub interp: tegula_interp::Outcome,
    pub ptx: tegula_ptx::Outcome,
    /// The findings of each.
    pub found: [BTreeSet<FoundAt>; 2],
    /// The races of each.
    pub races: [Races; 2],
    /// The counters of each source position.
    pub lines: [BTreeMap<Position, Counters>; 2],
}

/// Runs a launch in both engines; `None` if its grid is empty.
pub fn run(kernel: &Checked<Kernel>, arguments: &[Bound], memory: &mut Memory, seed: u64) -> Option<Outcomes> {
    let (image, sites) = print_lines(kernel).expect("prints");
    let config = tegula_interp::Config { seed, ..tegula_interp::Config::default() };
    let args: Vec<_> = arguments.iter().map(|argument| argument.interp(memory)).collect();
    let interp = tegula_interp::run(kernel, &args, &config).unwrap_or_else(|error| panic!("{error}"));
    if interp.grid.contains(&0) {
        return None;
    }
    let ptx = run_ptx(kernel, &image, interp.grid, arguments, memory, seed);
    assert!(ptx.completed || ptx.error().is_some(), "{}", kernel.name());
    // What a launch wrote is initialized for the next one.
    for argument in arguments {
        if let Bound::Matrix(index) = argument {
            memory.buffers[*index].initialized = true;
        }
    }
    let at = |line: &SourceLine| position_of(kernel, &sites, line);
    let interp_found = interp.findings.iter().map(|finding| {
        let place = finding.source.iter().map(|at| (at.file().to_string(), at.line(), at.column())).collect();
        (finding.kind, place)
    });
    let ptx_found = ptx.diagnostics.iter().map(|found| (found.kind, found.lines.iter().map(at).collect()));
    let found = [interp_found.collect(), ptx_found.collect()];
    let mut races = [Races::new(), Races::new()];
    for finding in interp.findings.iter().filter(|finding| finding.kind == FindingKind::Race) {
        let place = finding.source.iter().map(|at| (at.file().to_string(), at.line(), at.column())).collect();
        let element = (finding.space == Some(Space::Shared)).then(|| (finding.name.clone(), finding.index.clone()));
        let (times, all) = races[0].entry(place).or_default();
        *times += finding.times;
        all.insert((finding.block, finding.threads.clone(), element));
    }
    for found in ptx.diagnostics.iter().filter(|found| found.kind == FindingKind::Race) {
        let element = found.element.as_deref().and_then(|text| shared_element(kernel, text));
        let (times, all) = races[1].entry(found.lines.iter().map(at).collect()).or_default();
        *times += found.times;
        all.insert((found.block, found.threads.clone(), element));
    }
    let mut lines = [BTreeMap::<Position, Counters>::new(), BTreeMap::new()];
    for (site, counters) in &interp.lines {
        *lines[0].entry(position(*site)).or_default() += *counters;
    }
    let text: Vec<&str> = image.text.lines().collect();
    for (line, counters) in &ptx.lines {
        let mut counters = *counters;
        if text[line.line as usize - 1].contains("ldmatrix") {
            counters.shared_load_elements = matrix_elements(kernel, counters.shared_load_elements);
        }
        *lines[1].entry(at(line)).or_default() += counters;
    }
    Some(Outcomes { interp, ptx, found, races, lines })
}

/// Runs the text of a kernel, with the arguments that the CUDA driver takes.
pub fn run_ptx(
    kernel: &Kernel,
    image: &Image,
    grid: [u32; 3],
    arguments: &[Bound],
    memory: &mut Memory,
    seed: u64,
) -> tegula_ptx::Outcome {
    let launch = tegula_ptx::Launch {
        grid,
        block: image.block,
        shared: image.shared_bytes,
        arguments: ptx_arguments(&kernel.fields(), arguments, memory),
        variables: Vec::new(),
    };
    let fail = |error: &dyn std::fmt::Display| -> ! { panic!("{}: {error}\n{}", kernel.name(), image.text) };
    let module = Module::parse(&image.text).unwrap_or_else(|error| fail(&error));
    let ptx_kernel = module.kernel(&image.entry).unwrap_or_else(|error| fail(&error));
    let config = Config { seed, ..Config::default() };
    ptx_kernel.run(&launch, &mut memory.buffers, &config).unwrap_or_else(|error| fail(&error))
}

/// The array and the coordinates of an element that PTX describes by its byte in shared memory.
fn shared_element(kernel: &Kernel, text: &str) -> Option<(String, Vec<u64>)> {
    let byte: u32 = text.strip_prefix("arena at byte ")?.split(' ').next()?.parse().ok()?;
    let bytes = |array: &SharedArray| array.len() as u32 * array.ty.size() as u32;
    let array = kernel.shared().iter().find(|a| (a.start..a.start + bytes(a)).contains(&byte))?;
    Some((array.name.clone(), array.coordinates(u64::from((byte - array.start) / array.ty.size() as u32))))
}

/// The elements that `ldmatrix` reads: in PTX they have 16 bits, whatever the type of the array.
fn matrix_elements(kernel: &Kernel, halves: u64) -> u64 {
    halves * 2 / kernel.shared()[0].ty.size() as u64
}

fn position(site: Site) -> Position {
    (site.location.file().into(), site.location.line(), site.location.column())
}

/// The source position behind a line of the PTX.
fn position_of(kernel: &Kernel, sites: &[Option<SiteId>], line: &SourceLine) -> Position {
    assert_eq!(line.file, "", "the printer writes no `.loc`");
    match sites.get(line.line as usize - 1).copied().flatten() {
        Some(site) => position(kernel.site(site)),
        None => ("the text".into(), line.line, 0),
    }
}

/// The counters that mean the same in both engines, by name.
///
/// `lane_instructions` differ: PTX computes addresses by instructions of their own.
#[allow(clippy::type_complexity)]
const COUNTERS: [(&str, fn(&Counters) -> u64); 18] = [
    ("global_load_requests", |c| c.global_load_requests),
    ("global_load_sectors", |c| c.global_load_sectors),
    ("global_load_elements", |c| c.global_load_elements),
    ("global_store_requests", |c| c.global_store_requests),
    ("global_store_sectors", |c| c.global_store_sectors),
    ("global_store_elements", |c| c.global_store_elements),
    ("shared_load_requests", |c| c.shared_load_requests),
    ("shared_load_wavefronts", |c| c.shared_load_wavefronts),
    ("shared_load_elements", |c| c.shared_load_elements),
    ("shared_store_requests", |c| c.shared_store_requests),
    ("shared_store_wavefronts", |c| c.shared_store_wavefronts),
    ("shared_store_elements", |c| c.shared_store_elements),
    ("shared_copy_requests", |c| c.shared_copy_requests),
    ("shared_copy_wavefronts", |c| c.shared_copy_wavefronts),
    ("shared_copy_elements", |c| c.shared_copy_elements),
    ("shared_bank_conflicts", |c| c.shared_bank_conflicts),
    ("flops", |c| c.flops),
    ("barriers", |c| c.barriers),
];

impl Outcomes {
    /// The differences of the counters, in total and by source position, and of the findings.
    pub fn differences(&self) -> Vec<String> {
        let total = |lines: &BTreeMap<Position, Counters>| {
            lines.values().fold(Counters::default(), |mut sum, &counters| {
                sum += counters;
                sum
            })
        };
        let [interp, ptx] = self.lines.each_ref().map(total);
        let mut differences = compare("total", &self.interp.counters, &ptx);
        differences.extend(compare("total of the lines", &self.interp.counters, &interp));
        let positions: BTreeSet<&Position> = self.lines.iter().flat_map(|lines| lines.keys()).collect();
        for position in positions {
            let [interp, ptx] = self.lines.each_ref().map(|lines| lines.get(position).copied().unwrap_or_default());
            differences.extend(compare(&format!("{position:?}"), &interp, &ptx));
            // Addresses are computed by multiply-adds of integers, at the positions of accesses.
            if interp.fma != 0 && interp.fma != ptx.fma {
                differences.push(format!("{position:?}: fma is {}, where the interpreter has {}", ptx.fma, interp.fma));
            }
        }
        for finding in self.found[0].symmetric_difference(&self.found[1]) {
            let by = if self.found[0].contains(finding) { "the interpreter" } else { "PTX" };
            differences.push(format!("only {by} finds {finding:?}"));
        }
        differences
    }
}

fn compare(what: &str, interp: &Counters, ptx: &Counters) -> Vec<String> {
    let differs = COUNTERS.iter().map(|(name, of)| (name, of(interp), of(ptx))).filter(|(_, one, other)| one != other);
    differs.map(|(name, interp, ptx)| format!("{what}: {name} is {ptx}, where the interpreter has {interp}")).collect()
}
