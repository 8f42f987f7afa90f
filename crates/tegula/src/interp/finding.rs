//! What the interpreter finds: errors that any schedule could show, and notes on what costs more than it must.

use std::collections::BTreeMap;
use std::fmt;
use std::panic::Location;

use crate::ir::Site;

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The kernel is wrong.
    Error,
    /// The kernel is right but does more than it must.
    Note,
}

/// What is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// Two accesses to one element, one of them a write, that nothing orders.
    Race,
    /// An access outside its matrix or array.
    OutOfBounds,
    /// A read of what nobody wrote.
    Uninitialised,
    /// A use of memory that an asynchronous copy is still on its way to, or of sums of a multiplication that was not waited for.
    InFlight,
    /// A vector access at an element that is no multiple of its width, or a copy of a tile from or to where none may begin.
    Misaligned,
    /// Threads that wait for what never comes.
    Deadlock,
    /// A barrier that was called with different numbers of threads, by threads that had parted, or more often than it takes.
    ArrivalMismatch,
    /// A warp-wide operation that not exactly the lanes of its mask came to.
    DivergentWarp,
    /// An integer divided by zero.
    DivisionByZero,
    /// A barrier in shared memory that is used before it was begun, or in no order with that.
    UnreadyBarrier,
    /// Bytes of a copy that count in another phase of a barrier than the one it was started in.
    TransactionCount,
    /// An access past the caches to what a thread wrote without a proxy fence after it.
    MissingProxyFence,
    /// A load through the read-only path of an element that the same launch has written.
    StaleRead,
    /// A multiplication into sums that were used otherwise without a fence after that.
    MissingFence,
    /// Registers that a block has not got.
    RegisterBudget,
    /// Shared memory of a block of the cluster that may have ended.
    EndedBlock,
    /// A use of a matrix before the launches that precede this one have ended.
    EarlyAccess,
    /// A shuffle that reads a lane which does not take part in it.
    InactiveLane,
    /// Threads that disagree on a value which the kernel asserts to be uniform.
    NotUniform,
    /// A loop whose step is 0.
    ZeroStep,
    /// A loop in which nothing changes any more, or more instructions than a warp may run.
    NoProgress,
    /// Several lanes that store the same value to one element in one instruction.
    EqualStores,
    /// A barrier without which every access would still be ordered.
    RedundantBarrier,
}

impl Kind {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Kind::Race => "race",
            Kind::OutOfBounds => "out-of-bounds",
            Kind::Uninitialised => "uninitialised",
            Kind::InFlight => "in-flight",
            Kind::Misaligned => "misaligned",
            Kind::Deadlock => "deadlock",
            Kind::ArrivalMismatch => "arrival-mismatch",
            Kind::DivergentWarp => "divergent-warp",
            Kind::DivisionByZero => "division-by-zero",
            Kind::UnreadyBarrier => "unready-barrier",
            Kind::TransactionCount => "transaction-count",
            Kind::MissingProxyFence => "missing-proxy-fence",
            Kind::StaleRead => "stale-read",
            Kind::MissingFence => "missing-wgmma-fence",
            Kind::RegisterBudget => "register-budget",
            Kind::EndedBlock => "ended-block",
            Kind::EarlyAccess => "early-access",
            Kind::InactiveLane => "inactive-lane",
            Kind::NotUniform => "not-uniform",
            Kind::ZeroStep => "zero-step",
            Kind::NoProgress => "no-progress",
            Kind::EqualStores => "equal-stores",
            Kind::RedundantBarrier => "redundant-barrier",
        }
    }

    /// How bad it is.
    pub const fn severity(self) -> Severity {
        match self {
            Kind::RedundantBarrier | Kind::EqualStores => Severity::Note,
            _ => Severity::Error,
        }
    }
}

/// Memory that a finding is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// A matrix.
    Global,
    /// A shared array.
    Shared,
}

impl Space {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            Space::Global => "global",
            Space::Shared => "shared",
        }
    }
}

/// One finding: where, who, and which lines of the source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What it is.
    pub kind: Kind,
    /// What happened, in words, with everything below.
    pub message: String,
    /// The block, along x, y and z.
    pub block: [u32; 3],
    /// The threads, each along x, y and z in its block: the one that looked, then the one it met.
    pub threads: Vec<[u32; 3]>,
    /// The memory, if it is about memory.
    pub space: Option<Space>,
    /// The name of the matrix or array.
    pub name: String,
    /// Coordinates of the element.
    pub index: Vec<u64>,
    /// The lines: of the access, then of the one it met.
    pub source: Vec<&'static Location<'static>>,
    /// How often it happened, over all blocks that ran.
    pub times: u64,
}

impl Finding {
    /// How bad it is.
    pub fn severity(&self) -> Severity {
        self.kind.severity()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.message)
    }
}

/// What was found, and where: file, line, column and unrolled copy of each site.
type Key = (Kind, Vec<(&'static str, u32, u32, u32)>);

/// Findings by what and where, the one of the first block each: the same on every run, however blocks are spread over cores.
#[derive(Clone, Debug, Default)]
pub(super) struct Findings {
    found: BTreeMap<Key, (u64, Finding)>,
}

/// Findings of different lines that are kept; more say nothing new.
const MOST: usize = 256;

impl Findings {
    /// Notes a finding, and gives it back where it is the first of its kind at these lines; only then, or for an earlier block, `make`
    /// is called.
    pub fn add(&mut self, kind: Kind, sites: &[Site], block: u64, make: impl FnOnce() -> Finding) -> Option<&Finding> {
        let lines = sites
            .iter()
            .map(|s| (s.location.file(), s.location.line(), s.location.column(), note_iteration(kind, s)))
            .collect();
        let full = self.found.len() >= MOST;
        match self.found.entry((kind, lines)) {
            std::collections::btree_map::Entry::Occupied(mut entry) => {
                let (first, finding) = entry.get_mut();
                finding.times += 1;
                if block < *first {
                    *first = block;
                    *finding = Finding { times: finding.times, ..make() };
                }
                None
            }
            std::collections::btree_map::Entry::Vacant(entry) if !full => Some(&entry.insert((block, make())).1),
            std::collections::btree_map::Entry::Vacant(_) => None,
        }
    }

    pub fn merge(mut self, other: Findings) -> Findings {
        for (key, (block, finding)) in other.found {
            match self.found.entry(key) {
                std::collections::btree_map::Entry::Occupied(mut entry) => {
                    let (first, mine) = entry.get_mut();
                    let times = mine.times + finding.times;
                    if block < *first {
                        (*first, *mine) = (block, finding);
                    }
                    mine.times = times;
                }
                std::collections::btree_map::Entry::Vacant(entry) => {
                    entry.insert((block, finding));
                }
            }
        }
        self
    }

    pub fn into_vec(self) -> Vec<Finding> {
        self.found.into_values().map(|(_, finding)| finding).collect()
    }
}

/// Errors in unrolled copies of one line are one finding; a barrier is redundant copy by copy.
fn note_iteration(kind: Kind, site: &Site) -> u32 {
    if kind == Kind::RedundantBarrier { site.iteration } else { 0 }
}
