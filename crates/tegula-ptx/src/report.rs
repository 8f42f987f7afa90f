//! Creation of diagnostics: their texts for threads, elements and lines.

use tegula_core::diagnostic::FindingKind;
use tegula_interp::rules::{CurrentAccess, FIRST_AGENT, Race, RacingAccess, threads_of};

use crate::address::{Location, allocation_address};
use crate::ast::ScalarType;
use crate::block::{Block, BlockBarrier};
use crate::launch::{Diagnostic, SourceLine};
use crate::machine::Machine;
use crate::partial::Partial;
use crate::path::State;
use crate::program::{Op, Program, SiteSource};
use crate::run::Run;
use crate::trace::element_text;

/// A diagnostic about the current instruction.
pub(crate) struct Report {
    kind: FindingKind,
    message: String,
    lanes: u32,
    element: Option<String>,
}

impl Report {
    pub fn new(kind: FindingKind, message: String) -> Self {
        Report { kind, message, lanes: 0, element: None }
    }

    pub fn lanes(self, lanes: u32) -> Self {
        Report { lanes, ..self }
    }

    pub fn element(self, element: String) -> Self {
        Report { element: Some(element), ..self }
    }
}

/// Maximum number of inlined calls of a source line.
const MAX_INLINED: usize = 64;

/// The source line of a site.
pub(crate) fn line(program: &Program, site: SiteSource) -> SourceLine {
    let file_name = |number: u32| {
        let found = program.files.iter().find(|(known, _)| *known == number);
        found.map_or_else(|| format!("file {number}"), |(_, name)| name.clone())
    };
    let mut calls = std::iter::successors(program.inlined.get(site.call.wrapping_sub(1) as usize), |(.., around)| {
        program.inlined.get(around.wrapping_sub(1) as usize)
    })
    .take(MAX_INLINED)
    .collect::<Vec<_>>();
    let mut inlined_at = None;
    while let Some(&(file, line, _)) = calls.pop() {
        inlined_at = Some(Box::new(SourceLine { file: file_name(file), line, inlined_at }));
    }
    match site.loc {
        Some(loc) => SourceLine { file: file_name(loc.file), line: loc.line, inlined_at },
        None => SourceLine { file: String::new(), line: site.ptx_line, inlined_at: None },
    }
}

fn thread_text([x, y, z]: [u32; 3], block: [u32; 3]) -> String {
    match block {
        [_, 1, 1] => format!("thread {x}"),
        [_, _, 1] => format!("thread ({x}, {y})"),
        _ => format!("thread ({x}, {y}, {z})"),
    }
}

fn block_text([x, y, z]: [u32; 3], grid: [u32; 3]) -> String {
    match grid {
        [_, 1, 1] => format!("block {x}"),
        [_, _, 1] => format!("block ({x}, {y})"),
        _ => format!("block ({x}, {y}, {z})"),
    }
}

impl Machine<'_> {
    /// A thread as text; numbers from `FIRST_AGENT` on are the `cp.async` copies of threads.
    pub fn describe_thread(&self, lane: u16) -> String {
        if lane >= FIRST_AGENT {
            let thread = thread_text(self.thread(u32::from(lane - FIRST_AGENT)), self.launch.block);
            return format!("an asynchronous copy of {thread}");
        }
        thread_text(self.thread(lane.into()), self.launch.block)
    }

    pub fn describe_block(&self, id: [u32; 3]) -> String {
        block_text(id, self.launch.grid)
    }

    /// An element of an allocation, such as `C[3][7]`.
    pub fn element(&self, allocation: usize, offset: i64) -> String {
        let allocation = &self.allocations[allocation];
        element_text(&allocation.name, i64::from(allocation.ty.size().max(1)), &allocation.shape, offset)
    }

    /// An element of shared memory as text, from its symbol and its offset in bytes.
    pub fn shared_element(&self, symbol: u32, offset: u32) -> String {
        match self.program.shared_symbol(symbol, offset) {
            Some(number) => {
                let symbol = &self.program.shared[number];
                let size = if symbol.ty == ScalarType::B8 { 1 } else { symbol.ty.size().max(1) };
                let relative = i64::from(offset) - i64::from(symbol.offset);
                // Compilers declare arrays as bytes, so the index of the 4-byte word is added.
                match size {
                    1 if relative % 4 == 0 => format!("{} at byte {relative} (word {})", symbol.name, relative / 4),
                    1 => format!("{} at byte {relative}", symbol.name),
                    size => format!("{}[{}]", symbol.name, relative / i64::from(size)),
                }
            }
            None => format!("shared memory at byte {offset}"),
        }
    }

    fn diagnostic(&self, kind: FindingKind, message: String, block: [u32; 3], sites: &[SiteSource]) -> Diagnostic {
        let lines = sites.iter().map(|&site| line(self.program, site)).collect();
        Diagnostic { kind, message, block, threads: Vec::new(), element: None, lines, times: 1 }
    }

    fn site_source(&self, pc: u32) -> SiteSource {
        self.program.sites[self.program.code[pc as usize].site as usize]
    }
}

impl Run<'_, '_> {
    /// Records a diagnostic about the current instruction.
    pub fn report(&mut self, report: Report) {
        self.report_with(report, None);
    }

    /// Records a diagnostic about the current instruction and another site.
    pub fn report_with(&mut self, report: Report, other: Option<u32>) {
        let machine = self.machine;
        let site = machine.site_source(self.pc);
        let sites: Vec<SiteSource> =
            [Some(site), other.map(|site| machine.program.sites[site as usize])].into_iter().flatten().collect();
        let (block, linear, warp) = (self.block.id, self.block.linear, self.warp.index);
        self.partial.findings.add(report.kind, &sites, linear, || {
            let threads: Vec<u16> = threads_of(warp, report.lanes).collect();
            let who = threads.first().map_or(String::new(), |&thread| {
                format!("{} of {} ", machine.describe_thread(thread), machine.describe_block(block))
            });
            let lines: Vec<SourceLine> = sites.iter().map(|&site| line(machine.program, site)).collect();
            let message = format!("{who}{} ({})", report.message, lines[0]);
            let threads = threads.into_iter().map(|thread| machine.thread(thread.into())).collect();
            let diagnostic = machine.diagnostic(report.kind, message, block, &sites);
            Diagnostic { threads, element: report.element.clone(), ..diagnostic }
        });
    }

    /// The element at a location, as text.
    pub fn describe(&self, location: Location) -> String {
        match location {
            Location::Global { allocation, offset } => self.machine.element(allocation as usize, offset),
            Location::Shared { symbol, offset } => self.machine.shared_element(symbol, offset),
            Location::Local { offset } => format!("local memory at byte {offset}"),
            Location::Param { offset } => format!("the parameters at byte {offset}"),
            Location::Nowhere(address) => format!("address {address:#x}"),
        }
    }

    pub fn report_race(&mut self, location: Location, now: CurrentAccess, writes: bool, race: Race) {
        let machine = self.machine;
        let Race { block, earlier, earlier_writes } = race;
        let sites = [now.site.0, earlier.site].map(|site| machine.program.sites[site as usize]);
        let (id, linear, element) = (self.block.id, self.block.linear, self.describe(location));
        let missed = self.block.clocks.missed_releases.contains_key(&block);
        self.partial.findings.add(FindingKind::Race, &sites, linear, || {
            let same_block = u64::from(block) == linear;
            let verb = |writes: bool| if writes { "writes" } else { "reads" };
            let lines = sites.map(|site| line(machine.program, site));
            let place = if same_block {
                String::new()
            } else {
                format!(" of {}", machine.describe_block(machine.block_id(block.into())))
            };
            let hint = hint((now.lane, earlier.lane), same_block, missed, machine.program.orders_finely);
            let message = format!(
                "{} of {} {} {element} ({}) while {}{place} {} it ({}); {hint}",
                machine.describe_thread(now.lane),
                machine.describe_block(id),
                verb(writes),
                lines[0],
                machine.describe_thread(earlier.lane),
                verb(earlier_writes),
                lines[1],
            );
            let threads = [now.lane, earlier.lane].map(|lane| machine.thread(u32::from(lane % FIRST_AGENT)));
            let diagnostic = machine.diagnostic(FindingKind::Race, message, id, &sites);
            Diagnostic { threads: threads.to_vec(), element: Some(element.clone()), ..diagnostic }
        });
    }
}

/// The advice on how to order the two accesses of a race.
fn hint((one, other): (u16, u16), same_block: bool, missed: bool, finely: bool) -> &'static str {
    match () {
        () if missed => "the release or acquire between them has too narrow a scope: use device scope",
        () if one >= FIRST_AGENT || other >= FIRST_AGENT => "wait for the copy, then synchronize the threads",
        () if !same_block && finely => "order them by a release and an acquire, or use an atomic operation",
        () if !same_block => "blocks are not ordered within a launch: use an atomic operation, or two launches",
        () if one / 32 == other / 32 => "lanes of a warp need `__syncwarp()` between them",
        () => "put `__syncthreads()` between them",
    }
}

/// Reports a barrier that only some lanes of a warp reached.
pub(crate) fn divergent_barrier(
    machine: &Machine<'_>,
    block: &Block,
    warp: usize,
    (pc, mask): (u32, u32),
    partial: &mut Partial,
) {
    let warp = &block.warps[warp];
    let elsewhere = warp.paths.iter().find(|path| path.pc != pc);
    let mut sites = vec![machine.site_source(pc)];
    sites.extend(elsewhere.map(|path| machine.site_source(path.pc)));
    partial.findings.add(FindingKind::ArrivalMismatch, &sites, block.linear, || {
        let threads: Vec<u16> = threads_of(warp.index, mask).collect();
        let others: Vec<u16> = threads_of(warp.index, warp.alive & !mask).collect();
        let other = others.first().map_or(String::new(), |&other| {
            let place = sites.get(1).map_or(String::new(), |&site| format!(" (at {})", line(machine.program, site)));
            format!(", but {} of the same warp does not{place}", machine.describe_thread(other))
        });
        let message = format!(
            "{} of {} reaches a barrier{other} ({}); all threads of a block must reach the same barrier",
            machine.describe_thread(threads.first().copied().unwrap_or(0)),
            machine.describe_block(block.id),
            line(machine.program, sites[0])
        );
        let threads = threads.into_iter().map(|thread| machine.thread(thread.into())).collect();
        Diagnostic { threads, ..machine.diagnostic(FindingKind::ArrivalMismatch, message, block.id, &sites) }
    });
}

/// Reports a barrier with more arrivals than expected.
pub(crate) fn arrivals(
    machine: &Machine<'_>,
    block: &Block,
    barrier: &BlockBarrier,
    (id, arrived, expected): (u32, u32, u32),
    partial: &mut Partial,
) {
    let site = machine.site_source(barrier.pc);
    partial.findings.add(FindingKind::ArrivalMismatch, &[site], block.linear, || {
        let message = format!(
            "{arrived} threads arrive at barrier {id}, which expects {expected} ({})",
            line(machine.program, site)
        );
        machine.diagnostic(FindingKind::ArrivalMismatch, message, block.id, &[site])
    });
}

/// Reports a deadlock: the events that the warps of a block wait for.
pub(crate) fn stuck(machine: &Machine<'_>, block: &Block, partial: &mut Partial) {
    let paths = block.warps.iter().flat_map(|warp| warp.paths.iter().map(move |path| (warp, path)));
    let mut waiting: Vec<_> = paths.collect();
    // Lanes that wait at a join are only a consequence, so the other waits are reported.
    if waiting.iter().any(|(_, path)| path.state != State::Joining) {
        waiting.retain(|(_, path)| path.state != State::Joining);
    }
    let is = |of: fn(State) -> bool| waiting.iter().any(|(_, path)| of(path.state));
    let kind = match () {
        () if is(|state| state == State::Converge) => FindingKind::DivergentWarp,
        () if is(|state| state == State::Spinning) => FindingKind::NoProgress,
        () => FindingKind::Deadlock,
    };
    let mut sites: Vec<SiteSource> = Vec::new();
    let mut reasons: Vec<(String, u32)> = Vec::new();
    for (_, path) in &waiting {
        let site = machine.site_source(path.pc);
        if !sites.contains(&site) {
            sites.push(site);
        }
        let what = match path.state {
            State::Barrier(id) => {
                let (arrived, expected) = block.arrivals(id);
                format!("at barrier {id}, where {arrived} of {expected} threads arrived")
            }
            State::Converge => "at a warp-wide instruction for lanes that do not reach it".into(),
            State::Spinning => "in a loop in which nothing changes".into(),
            _ => "for other lanes".into(),
        };
        let text = format!("{what} ({})", line(machine.program, site));
        match reasons.iter_mut().find(|(known, _)| *known == text) {
            Some((_, threads)) => *threads += path.mask.count_ones(),
            None => reasons.push((text, path.mask.count_ones())),
        }
    }
    let Some(&(warp, first)) = waiting.first() else { return };
    partial.findings.add(kind, &sites, block.linear, || {
        let reasons: Vec<String> =
            reasons.iter().map(|(reason, threads)| format!("{threads} threads wait {reason}")).collect();
        let message = format!("{}: {}", machine.describe_block(block.id), reasons.join("; "));
        let threads = threads_of(warp.index, first.mask).map(|thread| machine.thread(thread.into())).collect();
        Diagnostic { threads, ..machine.diagnostic(kind, message, block.id, &sites) }
    });
}

/// Reports the races between blocks that the access summaries show.
pub(crate) fn races_between_blocks(machine: &Machine<'_>, partial: &mut Partial) {
    let granule = i64::from(machine.program.granules[1]);
    for (number, allocation) in machine.allocations.iter().enumerate() {
        let Some(summary) = &allocation.summary else { continue };
        for (index, [one, other]) in summary.races(1) {
            let source = |access: &RacingAccess| machine.program.sites[access.site.index()];
            let sites = [source(&one), source(&other)];
            partial.findings.add(FindingKind::Race, &sites, one.block.into(), || {
                let element = machine.element(number, index as i64 * granule);
                let text = |access: &RacingAccess, site: SiteSource| {
                    format!(
                        "{} of {} {} {{}} ({})",
                        machine.describe_thread(access.lane),
                        machine.describe_block(machine.block_id(access.block.into())),
                        if access.writes { "writes" } else { "reads" },
                        line(machine.program, site)
                    )
                };
                let first = text(&one, sites[0]).replace("{}", &element);
                let second = text(&other, sites[1]).replace("{}", "it");
                let message = format!("{first} while {second}; {}", hint((one.lane, other.lane), false, false, false));
                let block = machine.block_id(one.block.into());
                let threads = vec![machine.thread(one.lane.into()), machine.thread(other.lane.into())];
                let diagnostic = machine.diagnostic(FindingKind::Race, message, block, &sites);
                Diagnostic { threads, element: Some(element.clone()), ..diagnostic }
            });
        }
    }
}

/// Adds notes about barriers that order no accesses.
pub(crate) fn redundant_barriers(machine: &Machine<'_>, partial: &mut Partial) {
    let knows = machine.config.checks && partial.completed && !machine.program.orders_finely;
    // One line can have several barrier instructions, for example in an unrolled loop.
    let mut by_line: std::collections::BTreeMap<SourceLine, (u32, bool)> = Default::default();
    for (pc, &(ran, needed)) in partial.barriers.iter().enumerate().filter(|(_, (ran, _))| *ran && knows) {
        let known = by_line.entry(line(machine.program, machine.site_source(pc as u32))).or_insert((pc as u32, false));
        known.1 |= needed || !ran;
    }
    for (pc, needed) in by_line.into_values() {
        if !needed && matches!(machine.program.code[pc as usize].op, Op::Barrier(_)) {
            let site = machine.site_source(pc);
            partial.findings.add(FindingKind::RedundantBarrier, &[site], 0, || {
                let message = format!(
                    "the barrier is redundant: without it, all accesses are still ordered ({})",
                    line(machine.program, site)
                );
                machine.diagnostic(FindingKind::RedundantBarrier, message, [0; 3], &[site])
            });
        }
    }
}

/// The allocation nearest to an address, and text such as `4 bytes past the end of A`.
pub(crate) fn nearest(machine: &Machine<'_>, address: u64) -> Option<(usize, String)> {
    let distance = |number: usize| {
        let start = allocation_address(number as u32);
        let end = start + machine.allocations[number].storage.len;
        if address < start {
            (start - address, "before the start of")
        } else {
            (address.saturating_sub(end), "past the end of")
        }
    };
    let number = (0..machine.allocations.len()).min_by_key(|&number| distance(number).0)?;
    let (bytes, side) = distance(number);
    Some((number, format!("{bytes} bytes {side} {}", machine.allocations[number].name)))
}
