//! Diagnostics: why a kernel is refused before it runs ([`Fault`]), and what the interpreter finds
//! when it runs ([`Finding`]).
//!
//! Plain data, below the crates that report it, so that [`Error`](crate::Error) can carry it.

use std::fmt;
use std::panic::Location;

/// Why a kernel is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// Types, sizes or coordinates that do not fit.
    Type,
    /// An access that is wider than its memory's alignment, or of a width the hardware lacks.
    Width,
    /// A barrier in control flow on which the threads that should meet there do not agree.
    DivergentBarrier,
    /// A warp-wide operation in control flow on which the lanes of the warp do not agree.
    DivergentWarp,
    /// A variable that may be read before it is set.
    Uninitialised,
    /// A value used outside the loop or branch that computes it.
    Scope,
    /// More shared memory than a block can have.
    SharedMemory,
    /// A block, grid or parameter list that cannot be launched.
    Launch,
}

impl FaultKind {
    /// The name in reports: `divergent-barrier`, …
    pub const fn name(self) -> &'static str {
        match self {
            FaultKind::Type => "type",
            FaultKind::Width => "width",
            FaultKind::DivergentBarrier => "divergent-barrier",
            FaultKind::DivergentWarp => "divergent-warp",
            FaultKind::Uninitialised => "uninitialised",
            FaultKind::Scope => "scope",
            FaultKind::SharedMemory => "shared-memory",
            FaultKind::Launch => "launch",
        }
    }
}

/// Something in a kernel's description that is wrong whatever the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// What kind.
    pub kind: FaultKind,
    /// What it is, and what to do.
    pub message: String,
    /// Where it was written, if it was written anywhere.
    pub source: Option<&'static Location<'static>>,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.message)?;
        match self.source {
            Some(at) => write!(f, " ({}:{})", at.file(), at.line()),
            None => Ok(()),
        }
    }
}

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
#[non_exhaustive]
pub enum Kind {
    /// Two accesses to one element, one of them a write, that nothing orders.
    Race,
    /// An access outside its matrix or array.
    OutOfBounds,
    /// A read of what nobody wrote.
    Uninitialised,
    /// A use of memory that an asynchronous copy is still on its way to, or of sums of a
    /// multiplication that was not waited for.
    InFlight,
    /// A vector access at an element that is no multiple of its width, or a copy of a tile from or
    /// to where none may begin.
    Misaligned,
    /// Threads that wait for what never comes.
    Deadlock,
    /// A barrier that was called with different numbers of threads, by threads that had parted, or
    /// more often than it takes.
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

    /// What the interpreter counts of the kind, in the plural. Lanes of a warp that fail together
    /// are counted once.
    pub const fn counted(self) -> &'static str {
        match self {
            Kind::Race => "pairs of accesses",
            Kind::Uninitialised | Kind::InFlight | Kind::EarlyAccess | Kind::StaleRead => "accesses",
            Kind::OutOfBounds | Kind::Misaligned => "accesses by warps",
            Kind::DivergentWarp | Kind::DivisionByZero | Kind::InactiveLane => "operations of warps",
            Kind::EqualStores => "stores by warps",
            Kind::NotUniform => "assertions",
            Kind::ZeroStep => "loops of warps",
            Kind::ArrivalMismatch => "arrivals of warps",
            Kind::Deadlock | Kind::RegisterBudget | Kind::NoProgress => "blocks",
            Kind::UnreadyBarrier => "uses of barriers",
            Kind::TransactionCount | Kind::EndedBlock => "copies and arrivals",
            Kind::MissingProxyFence | Kind::MissingFence => "operations of warps",
            Kind::RedundantBarrier => "unrolled copies",
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
