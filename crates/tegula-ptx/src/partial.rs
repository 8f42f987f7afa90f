//! Counts and findings of a part of the blocks: those that one core of the host ran.

use std::collections::BTreeMap;

use rustc_hash::FxHashMap;
use tegula_core::diagnostic::FindingKind;
use tegula_interp::Counters;
use tegula_interp::rules::{Access, RequestCache};

use crate::ast::{Loc, StateSpace};
use crate::atomic_sums::AtomicSums;
use crate::launch::Diagnostic;
use crate::program::{BarrierKind, Op, Program, SiteSource};
use crate::recorder::Recorder;
use crate::time_slice::TimeSlices;

/// Counts of one instruction, over all warps.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InstructionCounts {
    /// Executions by a path of a warp.
    pub warps: u64,
    /// Sum of the active lanes of these executions.
    pub lanes: u64,
    /// Memory requests.
    pub requests: u64,
    /// Sectors of global memory, or wavefronts of shared memory.
    pub transactions: u64,
    pub conflicts: u64,
    pub elements: u64,
    /// The same for shared memory, if the instruction also accesses global memory: through generic
    /// addresses, or as an asynchronous copy.
    pub shared_requests: u64,
    pub shared_transactions: u64,
    pub shared_elements: u64,
}

impl InstructionCounts {
    /// The difference of the counts from earlier ones.
    pub fn since(&self, before: &InstructionCounts) -> InstructionCounts {
        InstructionCounts {
            warps: self.warps - before.warps,
            lanes: self.lanes - before.lanes,
            requests: self.requests - before.requests,
            transactions: self.transactions - before.transactions,
            conflicts: self.conflicts - before.conflicts,
            elements: self.elements - before.elements,
            shared_requests: self.shared_requests - before.shared_requests,
            shared_transactions: self.shared_transactions - before.shared_transactions,
            shared_elements: self.shared_elements - before.shared_elements,
        }
    }
}

/// Findings by kind and source lines. Each is that of the block with the lowest number.
#[derive(Debug, Default)]
pub(crate) struct Findings {
    found: BTreeMap<(FindingKind, Vec<FindingSite>), (u64, Diagnostic)>,
    /// The block to trace, and its findings that are not yet in the trace.
    pub recorded: Option<(u64, Vec<Diagnostic>)>,
}

/// A source line as a key: file, line and call; or 0, the line of the PTX, and 0.
type FindingSite = (u32, u32, u32);

/// Maximum number of distinct findings.
const MAX_FINDINGS: usize = 256;

fn finding_site(site: SiteSource) -> FindingSite {
    match site.loc {
        Some(Loc { file, line, .. }) => (file, line, site.call),
        None => (0, site.ptx_line, 0),
    }
}

impl Findings {
    /// Adds a finding. `new` creates the diagnostic if it is the first, or from a lower block.
    pub fn add(&mut self, kind: FindingKind, sites: &[SiteSource], block: u64, new: impl Fn() -> Diagnostic) {
        if let Some((recorded, recent)) = &mut self.recorded
            && *recorded == block
        {
            let diagnostic = new();
            if recent.iter().all(|known| (known.kind, &known.lines) != (diagnostic.kind, &diagnostic.lines)) {
                recent.push(diagnostic);
            }
        }
        let full = self.found.len() >= MAX_FINDINGS;
        let key = (kind, sites.iter().map(|&site| finding_site(site)).collect());
        match self.found.entry(key) {
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                let (first, diagnostic) = entry.get_mut();
                diagnostic.times += 1;
                if block < *first {
                    (*first, *diagnostic) = (block, Diagnostic { times: diagnostic.times, ..new() });
                }
            }
            std::collections::btree_map::Entry::Vacant(entry) if !full => {
                entry.insert((block, new()));
            }
            std::collections::btree_map::Entry::Vacant(_) => {}
        }
    }

    fn merge(mut self, other: Findings) -> Findings {
        for (key, (block, diagnostic)) in other.found {
            match self.found.entry(key) {
                std::collections::btree_map::Entry::Occupied(mut entry) => {
                    let (first, known) = entry.get_mut();
                    let times = known.times + diagnostic.times;
                    if block < *first {
                        (*first, *known) = (block, diagnostic);
                    }
                    known.times = times;
                }
                std::collections::btree_map::Entry::Vacant(entry) => {
                    entry.insert((block, diagnostic));
                }
            }
        }
        self
    }

    pub fn into_vec(self) -> Vec<Diagnostic> {
        self.found.into_values().map(|(_, diagnostic)| diagnostic).collect()
    }
}

/// A granule: the block (`None` for global memory), the memory, and the index of the granule.
type Granule = (Option<u32>, u32, u64);

/// The key of an access: block, thread, first granule, size in bytes, and whether it writes.
type Shape = (u32, u16, u64, u32, bool);

/// The last strong access of each thread and size, by granule.
#[derive(Debug, Default)]
pub(crate) struct StrongAccesses(pub FxHashMap<Granule, BTreeMap<Shape, Access>>);

/// Counts and findings of a part of the blocks.
#[derive(Debug)]
pub(crate) struct Partial {
    pub counts: Vec<InstructionCounts>,
    /// For each instruction, the costs of its last request to shared and to global memory.
    pub caches: Vec<[RequestCache; 2]>,
    pub findings: Findings,
    /// For each barrier instruction, whether it was executed, and whether it ordered accesses.
    pub barriers: Vec<(bool, bool)>,
    /// Strong accesses, if the program has strong accesses of different sizes.
    pub strong: StrongAccesses,
    /// Sums of floating-point numbers by atomic operations, by the number of the allocation.
    pub atomic_sums: AtomicSums,
    /// The recorder, if a block is traced.
    pub recorder: Option<Box<Recorder>>,
    pub slices: TimeSlices,
    /// The `printf` output of each block.
    pub output: BTreeMap<u64, String>,
    pub completed: bool,
    /// Whether the launch must end: step limit, trap, or write to an untracked allocation.
    pub stopped: bool,
}

impl Partial {
    pub fn new(instructions: usize) -> Self {
        Partial {
            counts: vec![InstructionCounts::default(); instructions],
            caches: vec![[RequestCache::NONE; 2]; instructions],
            findings: Findings::default(),
            barriers: vec![(false, false); instructions],
            strong: StrongAccesses::default(),
            atomic_sums: AtomicSums::default(),
            recorder: None,
            slices: TimeSlices::default(),
            output: BTreeMap::new(),
            completed: true,
            stopped: false,
        }
    }

    pub fn merge(mut self, other: Partial) -> Partial {
        for (own, other) in self.counts.iter_mut().zip(other.counts) {
            own.warps += other.warps;
            own.lanes += other.lanes;
            own.requests += other.requests;
            own.transactions += other.transactions;
            own.conflicts += other.conflicts;
            own.elements += other.elements;
            own.shared_requests += other.shared_requests;
            own.shared_transactions += other.shared_transactions;
            own.shared_elements += other.shared_elements;
        }
        for (own, other) in self.barriers.iter_mut().zip(other.barriers) {
            *own = (own.0 | other.0, own.1 | other.1);
        }
        self.output.extend(other.output);
        self.findings = self.findings.merge(other.findings);
        self.atomic_sums.merge(other.atomic_sums);
        self.stopped |= other.stopped;
        self.completed &= other.completed;
        self
    }

    /// The cost of the launch, the cost of each site, and the number of thread instructions, moves
    /// and control flow included.
    pub fn summarize(&self, program: &Program) -> (Counters, Vec<(SiteSource, Counters)>, u64) {
        let (mut total, mut sites) = (Counters::default(), Vec::new());
        let mut executed = 0;
        for (instruction, counts) in program.code.iter().zip(&self.counts) {
            executed += counts.lanes;
            let counters = counters(&instruction.op, counts);
            if counters != Counters::default() {
                total += counters;
                sites.push((program.sites[instruction.site as usize], counters));
            }
        }
        (total, sites, executed)
    }
}

/// The cost of an instruction from its counts.
pub(crate) fn counters(op: &Op, counts: &InstructionCounts) -> Counters {
    let mut c = Counters::default();
    if op.counts() {
        c.lane_instructions = counts.lanes;
    }
    c.shared_bank_conflicts = counts.conflicts;
    let global_load = |c: &mut Counters| {
        c.global_load_requests = counts.requests;
        c.global_load_sectors = counts.transactions;
        c.global_load_elements = counts.elements;
    };
    let global_store = |c: &mut Counters| {
        c.global_store_requests = counts.requests;
        c.global_store_sectors = counts.transactions;
        c.global_store_elements = counts.elements;
    };
    let shared_load = |c: &mut Counters| {
        c.shared_load_requests = counts.shared_requests;
        c.shared_load_wavefronts = counts.shared_transactions;
        c.shared_load_elements = counts.shared_elements;
    };
    let shared_store = |c: &mut Counters| {
        c.shared_store_requests = counts.shared_requests;
        c.shared_store_wavefronts = counts.shared_transactions;
        c.shared_store_elements = counts.shared_elements;
    };
    match op {
        Op::Arithmetic { arithmetic, .. } => {
            c.fma = u64::from(arithmetic.multiply_adds()) * counts.lanes;
            c.flops = u64::from(arithmetic.flops()) * counts.lanes;
        }
        Op::Mma { mma, .. } => {
            c.fma = mma.multiply_adds() * counts.warps;
            c.flops = mma.flops() * counts.warps;
        }
        Op::Load(transfer) if transfer.address.space != Some(StateSpace::Const) => {
            global_load(&mut c);
            shared_load(&mut c);
        }
        Op::WmmaLoad { .. } | Op::LdMatrix { .. } => {
            global_load(&mut c);
            shared_load(&mut c);
        }
        Op::Store(_) | Op::WmmaStore { .. } | Op::StMatrix { .. } | Op::Atomic(_) => {
            global_store(&mut c);
            shared_store(&mut c);
        }
        Op::CopyAsync { .. } => {
            global_load(&mut c);
            // Lanes that read no bytes write zeros: they cost wavefronts, but copy no elements.
            c.shared_copy_requests = counts.requests;
            c.shared_copy_wavefronts = counts.shared_transactions;
            c.shared_copy_elements = counts.elements;
        }
        Op::Barrier(barrier) if barrier.kind != BarrierKind::Arrive => c.barriers = counts.warps,
        _ => {}
    }
    c
}
