//! Traces: the recorded operations of one launch, by instruction and thread.
//!
//! | file | |
//! |---|---|
//! | `record` | the observer that records a trace |
//! | `order` | ticks in program order, grouped into phases |
//! | `pipeline_event` | pipeline operations of warps |
//! | `file` | the serialized form |
//!
//! Warps run in some order; a trace is in program order. A [`Tick`] is one instruction of the
//! program: an operation in one iteration of its loops, for all warps of all blocks. A [`Phase`] is
//! a run of ticks with one purpose: load, wait, multiply, wait, slide, and at the end store. An
//! [`Event`] is one warp's part in a tick.

mod file;
mod order;
mod pipeline_event;
mod record;

pub use pipeline_event::{PipelineEvent, PipelineOp, SharedSlot};
pub use record::{MAX_VALUES, TraceFilter, record};
use serde::{Deserialize, Serialize};
use tegula_core::element::Type;
use tegula_interp::Counters;

/// The format version: written to every file, and the only one that is read.
pub const VERSION: u32 = 1;

/// The recorded operations of one launch.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Everything but the events.
    pub header: Header,
    /// Events by tick, then block, then warp.
    pub events: Vec<Event>,
}

/// The launch, its program and its costs: everything but the events.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`].
    pub version: u32,
    /// The kernel's name.
    pub kernel: String,
    /// The kernel's own notes.
    pub notes: Vec<String>,
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// The matrix parameters, in order; scalars are in [`Header::scalars`].
    pub matrices: Vec<MatrixInfo>,
    /// The scalar parameters: name, type, value.
    pub scalars: Vec<(String, Type, String)>,
    /// The shared arrays of a block.
    pub shared: Vec<SharedArray>,
    /// The recorded part of the launch.
    #[serde(rename = "sample")]
    pub filter: TraceFilter,
    /// Lines of the kernel's source.
    pub sites: Vec<SourceLine>,
    /// The static operations that ticks refer to.
    pub operations: Vec<Operation>,
    /// Operations by loop iteration, in program order.
    #[serde(rename = "moments")]
    pub ticks: Vec<Tick>,
    /// Runs of ticks with one purpose.
    #[serde(rename = "acts")]
    pub phases: Vec<Phase>,
    /// Blocks of a cluster.
    #[serde(default = "single_block", skip_serializing_if = "is_single_block")]
    pub cluster: u32,
    /// Pipeline operations of warps; empty for kernels without mbarriers.
    #[serde(rename = "deeds", default, skip_serializing_if = "Vec::is_empty")]
    pub pipeline: Vec<PipelineEvent>,
    /// Counters over the blocks that ran.
    pub counters: Counters,
    /// Counters by source line: position in [`Header::sites`], counters.
    pub lines: Vec<(u32, Counters)>,
    /// Errors, then notes.
    pub findings: Vec<Finding>,
}

impl Header {
    /// The operation of a tick.
    pub fn operation(&self, tick: u32) -> &Operation {
        &self.operations[self.ticks[tick as usize].operation as usize]
    }
}

/// The cluster size where a trace has none: such traces leave the key out.
const fn single_block() -> u32 {
    1
}

fn is_single_block(cluster: &u32) -> bool {
    *cluster == single_block()
}

/// A matrix in global memory, aligned to 256 bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatrixInfo {
    /// The parameter.
    pub name: String,
    /// The element type.
    pub ty: Type,
    /// Batches, rows, columns.
    pub shape: [u64; 3],
    /// Strides of batch, row and column, in elements.
    pub strides: [i64; 3],
    /// Whether the kernel writes the matrix.
    pub written: bool,
    /// The provenance number of the first element.
    ///
    /// Elements are numbered from here in row-major order; [`Event::origins`] uses these numbers.
    /// 0 stands for no element.
    #[serde(rename = "first")]
    pub first_origin: u64,
    /// Values before the launch as bits, in row-major order.
    ///
    /// Empty for an uninitialized matrix, and for one with more elements than a trace keeps.
    #[serde(skip)]
    pub initial: Vec<u64>,
}

/// An array in shared memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SharedArray {
    /// The name.
    pub name: String,
    /// The element type.
    pub ty: Type,
    /// Extents, outermost first.
    pub dims: Vec<u32>,
    /// The byte offset in shared memory.
    pub start: u32,
}

/// A line of source, and the copy of it where a loop was unrolled.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SourceLine {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
    /// The unrolled copy, from 0.
    pub copy: u32,
}

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OperationKind {
    /// Reads global memory.
    GlobalLoad,
    /// Writes global memory.
    GlobalStore,
    /// Reads shared memory.
    SharedLoad,
    /// Writes shared memory.
    SharedStore,
    /// Synchronizes the block, or the threads of a named barrier.
    Barrier,
    /// Waits for asynchronous copies.
    Wait,
    /// Adds a product to an accumulator.
    MulAdd,
    /// Adds matrix products to accumulators.
    Matrix,
    /// Other arithmetic on elements.
    Arithmetic,
}

impl OperationKind {
    /// Whether the operation reads or writes memory.
    pub const fn is_access(self) -> bool {
        matches!(
            self,
            OperationKind::GlobalLoad
                | OperationKind::GlobalStore
                | OperationKind::SharedLoad
                | OperationKind::SharedStore
        )
    }
}

/// A static operation of the kernel; a vector access is one operation per element.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Operation {
    /// The kind.
    #[serde(rename = "does")]
    pub kind: OperationKind,
    /// The source line: position in [`Header::sites`].
    pub site: u32,
    /// The accessed matrix or shared array, by position in its list; for a barrier its number.
    pub memory: u32,
    /// The type of the value that is read, written or computed.
    pub ty: Option<Type>,
    /// The name of an arithmetic operation.
    pub name: String,
}

/// One operation in one iteration of its loops, for all warps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tick {
    /// Position in [`Header::operations`].
    pub operation: u32,
    /// The k-step, from 0; `None` before and after the loop over k.
    pub step: Option<u32>,
}

/// The purpose of a phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PhaseKind {
    /// Elements move from global memory into registers or shared memory.
    Load,
    /// Threads wait at a barrier, or for copies.
    Wait,
    /// Products are added to accumulators.
    Multiply,
    /// The tiles move on along k and the next k-step begins; no operation runs.
    Slide,
    /// After the last k-step: accumulators are written to C.
    Store,
}

/// Consecutive ticks with one purpose.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phase {
    /// The purpose.
    #[serde(rename = "does")]
    pub kind: PhaseKind,
    /// The k-step; for a slide the one that begins.
    pub step: Option<u32>,
    /// The first tick, and the one after the last; a slide has none.
    #[serde(rename = "moments")]
    pub ticks: [u32; 2],
}

/// One warp's part in one tick; lists have one entry per active lane, in lane order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Position in [`Header::ticks`].
    pub tick: u32,
    /// The block, along x, y, z.
    pub block: [u32; 3],
    /// The warp of the block.
    pub warp: u32,
    /// The active lanes, one bit each.
    pub lanes: u32,
    /// Sectors of a global request, or wavefronts of a shared one.
    ///
    /// A vector access counts them at its first element.
    pub transactions: u32,
    /// The wavefronts among them that are due to bank conflicts.
    pub conflicts: u32,
    /// Accessed elements: row-major position in the matrix or array.
    pub elements: Vec<u64>,
    /// Provenance of the value: the matrix element that it is a copy of, or 0.
    ///
    /// Numbers count from [`MatrixInfo::first_origin`]. Accesses to shared memory have it; a
    /// multiply-add has that of its first operand.
    pub origins: Vec<u64>,
    /// Provenance of the second operand of a multiply-add.
    pub origins_b: Vec<u64>,
    /// The value that is read, written or computed, as bits.
    pub bits: Vec<u64>,
}

/// An error or a note of the checker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// `race`, `out-of-bounds` and so on.
    pub kind: String,
    /// Whether the kernel is wrong; otherwise the finding is a note about avoidable work.
    pub error: bool,
    /// The message.
    pub message: String,
    /// The block.
    pub block: [u32; 3],
    /// Threads along x, y, z: the reporting one, then the one it conflicts with.
    pub threads: Vec<[u32; 3]>,
    /// `global` or `shared`, for a finding about memory.
    pub space: Option<String>,
    /// The matrix or array.
    pub name: String,
    /// Coordinates of the element.
    pub index: Vec<u64>,
    /// Source lines: of the access, then of the conflicting access.
    pub lines: Vec<(String, u32)>,
    /// Number of occurrences.
    pub times: u64,
    /// The tick of the first occurrence, where it was recorded.
    #[serde(rename = "moment")]
    pub tick: Option<u32>,
}
