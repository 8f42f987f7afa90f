//! One launch in both engines, and the differences of what they report.

use std::collections::{BTreeMap, BTreeSet};

use tegula_core::diagnostic::FindingKind;
use tegula_interp::Counters;
use tegula_ir::ptx::print_lines;
use tegula_ir::{Checked, Kernel, Site, SiteId};
use tegula_ptx::{Config, Module, SourceLine};

use crate::memory::{Bound, Memory, ptx_arguments};

/// A source position of a kernel: file, line and column.
type Position = (String, u32, u32);

/// A finding: its kind, and the positions of the accesses.
pub type FoundAt = (FindingKind, Vec<Position>);

/// The outcomes of a launch in both engines.
pub struct Outcomes {
    pub interp: tegula_interp::Outcome,
    pub ptx: tegula_ptx::Outcome,
    /// The findings of each.
    pub found: [BTreeSet<FoundAt>; 2],
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
    let launch = tegula_ptx::Launch {
        grid: interp.grid,
        block: image.block,
        shared: image.shared_bytes,
        arguments: ptx_arguments(&kernel.fields(), arguments, memory),
        variables: Vec::new(),
    };
    let fail = |error: &dyn std::fmt::Display| -> ! { panic!("{}: {error}\n{}", kernel.name(), image.text) };
    let module = Module::parse(&image.text).unwrap_or_else(|error| fail(&error));
    let ptx_kernel = module.kernel(&image.entry).unwrap_or_else(|error| fail(&error));
    let config = Config { seed, ..Config::default() };
    let ptx = ptx_kernel.run(&launch, &mut memory.buffers, &config).unwrap_or_else(|error| fail(&error));
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
    let mut lines = [BTreeMap::<Position, Counters>::new(), BTreeMap::new()];
    for (site, counters) in &interp.lines {
        *lines[0].entry(position(*site)).or_default() += *counters;
    }
    for (line, counters) in &ptx.lines {
        *lines[1].entry(at(line)).or_default() += *counters;
    }
    Some(Outcomes { interp, ptx, found, lines })
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
        let mut differences = compare("total", &self.interp.counters, &self.ptx.counters);
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
