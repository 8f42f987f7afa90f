//! Diagnostics: faults of kernel descriptions ([`Fault`]), findings of the interpreter
//! ([`Finding`]).
//!
//! Plain data, below the crates that report it, so that [`Error`](crate::Error) can carry it.

use std::fmt;
use std::panic::Location;

/// The kind of a fault in a kernel's description.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FaultKind {
    /// Mismatched types, sizes or coordinates.
    Type,
    /// An access wider than the alignment of its memory, or of a width that the hardware does not
    /// have.
    Width,
    /// A barrier in divergent control flow: not all of its threads are sure to arrive.
    DivergentBarrier,
    /// A warp-wide operation in control flow that is divergent within the warp.
    DivergentWarp,
    /// A variable that may be read before it is set.
    Uninitialized,
    /// A value used outside the loop or branch that defines it.
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
            FaultKind::Uninitialized => "uninitialised",
            FaultKind::Scope => "scope",
            FaultKind::SharedMemory => "shared-memory",
            FaultKind::Launch => "launch",
        }
    }
}

/// An error in a kernel's description, whatever the data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// The kind.
    pub kind: FaultKind,
    /// The error, and how to fix it.
    pub message: String,
    /// The source location of the operation, if the fault has one.
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

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// The kernel is wrong.
    Error,
    /// The kernel is correct but does unnecessary work.
    Note,
}

/// The kind of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum FindingKind {
    /// A data race: two unordered accesses to one element, at least one of them a write.
    Race,
    /// An access outside its matrix or array.
    OutOfBounds,
    /// A read of an element that was never written.
    Uninitialized,
    /// A use of memory or accumulators before their asynchronous operation has been waited for.
    InFlight,
    /// A misaligned vector access, or a TMA copy at an unsupported address or coordinate.
    Misaligned,
    /// Threads that wait forever.
    Deadlock,
    /// A barrier with mismatched thread counts, divergent threads, or too many arrivals.
    ArrivalMismatch,
    /// A warp-wide operation whose active lanes are not exactly those of its mask.
    DivergentWarp,
    /// An integer division by zero.
    DivisionByZero,
    /// An mbarrier used before, or unordered with, its initialization.
    UnreadyBarrier,
    /// Bytes of a copy that complete in another phase of the mbarrier than the one the copy started
    /// in.
    TransactionCount,
    /// An access by the asynchronous proxy to memory that a thread wrote without a proxy fence.
    MissingProxyFence,
    /// A load through the read-only path of an element that the same launch has written.
    StaleRead,
    /// A `wgmma` on accumulators that were accessed otherwise without a `wgmma` fence after it.
    MissingFence,
    /// A request for more registers than the block has.
    RegisterBudget,
    /// An access to shared memory of a block of the cluster that may have exited.
    EndedBlock,
    /// An access to a matrix before the preceding launches have completed.
    EarlyAccess,
    /// A shuffle that reads a lane which does not participate.
    InactiveLane,
    /// A value asserted to be uniform that differs between threads.
    NotUniform,
    /// A loop whose step is 0.
    ZeroStep,
    /// A loop in which nothing changes any more, or more instructions than a warp may run.
    NoProgress,
    /// An instruction that ends the launch with an error.
    Trap,
    /// An assertion of the kernel that fails.
    Assertion,
    /// Calls that are nested deeper than a thread's stack.
    StackOverflow,
    /// Several lanes that store the same value to one element in one instruction.
    EqualStores,
    /// A barrier without which every access would still be ordered.
    RedundantBarrier,
}

impl FindingKind {
    /// The name in reports.
    pub const fn name(self) -> &'static str {
        match self {
            FindingKind::Race => "race",
            FindingKind::OutOfBounds => "out-of-bounds",
            FindingKind::Uninitialized => "uninitialised",
            FindingKind::InFlight => "in-flight",
            FindingKind::Misaligned => "misaligned",
            FindingKind::Deadlock => "deadlock",
            FindingKind::ArrivalMismatch => "arrival-mismatch",
            FindingKind::DivergentWarp => "divergent-warp",
            FindingKind::DivisionByZero => "division-by-zero",
            FindingKind::UnreadyBarrier => "unready-barrier",
            FindingKind::TransactionCount => "transaction-count",
            FindingKind::MissingProxyFence => "missing-proxy-fence",
            FindingKind::StaleRead => "stale-read",
            FindingKind::MissingFence => "missing-wgmma-fence",
            FindingKind::RegisterBudget => "register-budget",
            FindingKind::EndedBlock => "ended-block",
            FindingKind::EarlyAccess => "early-access",
            FindingKind::InactiveLane => "inactive-lane",
            FindingKind::NotUniform => "not-uniform",
            FindingKind::ZeroStep => "zero-step",
            FindingKind::NoProgress => "no-progress",
            FindingKind::Trap => "trap",
            FindingKind::Assertion => "assertion",
            FindingKind::StackOverflow => "stack-overflow",
            FindingKind::EqualStores => "equal-stores",
            FindingKind::RedundantBarrier => "redundant-barrier",
        }
    }

    /// The unit of [`Finding::times`], in the plural. Lanes of a warp that fail together count
    /// once.
    pub const fn count_unit(self) -> &'static str {
        match self {
            FindingKind::Race => "pairs of accesses",
            FindingKind::Uninitialized | FindingKind::InFlight | FindingKind::EarlyAccess | FindingKind::StaleRead => {
                "accesses"
            }
            FindingKind::OutOfBounds | FindingKind::Misaligned => "accesses by warps",
            FindingKind::DivergentWarp
            | FindingKind::DivisionByZero
            | FindingKind::InactiveLane
            | FindingKind::Trap
            | FindingKind::Assertion
            | FindingKind::StackOverflow => "operations of warps",
            FindingKind::EqualStores => "stores by warps",
            FindingKind::NotUniform => "assertions",
            FindingKind::ZeroStep => "loops of warps",
            FindingKind::ArrivalMismatch => "arrivals of warps",
            FindingKind::Deadlock | FindingKind::RegisterBudget | FindingKind::NoProgress => "blocks",
            FindingKind::UnreadyBarrier => "uses of barriers",
            FindingKind::TransactionCount | FindingKind::EndedBlock => "copies and arrivals",
            FindingKind::MissingProxyFence | FindingKind::MissingFence => "operations of warps",
            FindingKind::RedundantBarrier => "unrolled copies",
        }
    }

    /// The severity of the kind.
    pub const fn severity(self) -> Severity {
        match self {
            FindingKind::RedundantBarrier | FindingKind::EqualStores => Severity::Note,
            _ => Severity::Error,
        }
    }
}

/// The memory space of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Space {
    /// A matrix in global memory.
    Global,
    /// An array in shared memory.
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

/// A finding: kind, message, threads, element and source lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The kind.
    pub kind: FindingKind,
    /// The complete message, which includes the fields below.
    pub message: String,
    /// The index of the block, along x, y and z.
    pub block: [u32; 3],
    /// Indices in the block, along x, y and z: the thread of the access, then the conflicting
    /// thread.
    pub threads: Vec<[u32; 3]>,
    /// The memory space, if the finding concerns memory.
    pub space: Option<Space>,
    /// The name of the matrix or array.
    pub name: String,
    /// The coordinates of the element.
    pub index: Vec<u64>,
    /// Source locations: of the access, then of the conflicting access.
    pub source: Vec<&'static Location<'static>>,
    /// The number of occurrences, over all blocks that ran.
    pub times: u64,
}

impl Finding {
    /// The severity of the finding.
    pub fn severity(&self) -> Severity {
        self.kind.severity()
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kind.name(), self.message)
    }
}
