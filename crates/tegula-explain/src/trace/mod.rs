//! A trace: what one launch did, operation by operation and thread by thread.
//!
//! | file | |
//! |---|---|
//! | `record` | the observer that makes a trace |
//! | `order` | operations in the order of the program, and the acts they make up |
//! | `deed` | what warps do to a pipeline |
//! | `file` | the trace as bytes, and back |
//!
//! Warps run in some order; a trace stands in that of the program. A [`Moment`] is one operation in one turn of the loops around it,
//! for all warps of all blocks at once; [`Act`]s are the runs of moments that one would tell as one thing: load, wait, multiply, wait,
//! slide, and in the end store. An [`Event`] is what one warp did in a moment.

mod deed;
mod file;
mod order;
mod record;

pub use deed::{Deed, Doing, Spot};
pub use record::{MOST, Sample, record};
use serde::{Deserialize, Serialize};
use tegula_core::element::Type;
use tegula_interp::Counters;

/// The version of the format that is written, and the only one that is read.
pub const VERSION: u32 = 1;

/// What one launch did.
#[derive(Clone, Debug, PartialEq)]
pub struct Trace {
    /// Everything but the events.
    pub header: Header,
    /// What warps did: in the order of moments; within one, of blocks and warps.
    pub events: Vec<Event>,
}

/// Everything about a launch but what happened, moment by moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Header {
    /// [`VERSION`].
    pub version: u32,
    /// The kernel's name.
    pub kernel: String,
    /// What it says of itself.
    pub notes: Vec<String>,
    /// Blocks along x, y, z.
    pub grid: [u32; 3],
    /// Threads of a block along x, y, z.
    pub block: [u32; 3],
    /// The matrices it takes, in order; numbers that it takes are among [`Header::scalars`].
    pub matrices: Vec<MatrixOf>,
    /// The numbers it takes: name, type, value.
    pub scalars: Vec<(String, Type, String)>,
    /// The arrays of a block's shared memory.
    pub shared: Vec<Array>,
    /// What was recorded, where not everything was.
    pub sample: Sample,
    /// Lines of the kernel's source.
    pub sites: Vec<Line>,
    /// The operations that moments are made of.
    pub operations: Vec<Operation>,
    /// Operations in turns of loops, in the order of the program.
    pub moments: Vec<Moment>,
    /// Moments that belong together.
    pub acts: Vec<Act>,
    /// Blocks of a cluster.
    #[serde(default = "alone", skip_serializing_if = "is_alone")]
    pub cluster: u32,
    /// What warps did to a pipeline; nothing in kernels whose barriers do not count.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub deeds: Vec<Deed>,
    /// What the blocks that ran cost.
    pub counters: Counters,
    /// What each line cost: position among the sites, and what.
    pub lines: Vec<(u32, Counters)>,
    /// What is wrong or could be better: errors first.
    pub findings: Vec<Finding>,
}

impl Header {
    /// The operation of a moment.
    pub fn operation(&self, moment: u32) -> &Operation {
        &self.operations[self.moments[moment as usize].operation as usize]
    }
}

/// Traces of kernels without clusters do not speak of them.
const fn alone() -> u32 {
    1
}

fn is_alone(cluster: &u32) -> bool {
    *cluster == alone()
}

/// A matrix in global memory. It begins at a multiple of 256 bytes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MatrixOf {
    /// The parameter.
    pub name: String,
    /// The type of its elements.
    pub ty: Type,
    /// Matrices of a batch, rows, columns.
    pub shape: [u64; 3],
    /// Elements from one matrix of a batch, one row and one column to the next.
    pub strides: [i64; 3],
    /// Whether the kernel writes it.
    pub written: bool,
    /// The number that stands for its first element where events say where a number came from; the next element has the next
    /// number, row after row. 0 stands for none.
    pub first: u64,
    /// What was in it before the launch, row after row, as bits; empty where nothing was, or more than a trace keeps.
    #[serde(skip)]
    pub before: Vec<u64>,
}

/// An array in shared memory.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Array {
    /// Its name.
    pub name: String,
    /// The type of its elements.
    pub ty: Type,
    /// Extents, outermost first.
    pub dims: Vec<u32>,
    /// Where it starts, in bytes.
    pub start: u32,
}

/// A line of source, and which of its unrolled copies.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Line {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
    /// 0 for the first copy.
    pub copy: u32,
}

/// What an operation does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Does {
    /// Reads global memory.
    GlobalLoad,
    /// Writes global memory.
    GlobalStore,
    /// Reads shared memory.
    SharedLoad,
    /// Writes shared memory.
    SharedStore,
    /// Waits for the block, or at a named barrier.
    Barrier,
    /// Waits for asynchronous copies.
    Wait,
    /// Adds a product to a sum.
    MulAdd,
    /// Adds products of matrices to sums.
    Matrix,
    /// Other arithmetic on elements.
    Arithmetic,
}

impl Does {
    /// Whether it reads or writes memory.
    pub const fn is_access(self) -> bool {
        matches!(self, Does::GlobalLoad | Does::GlobalStore | Does::SharedLoad | Does::SharedStore)
    }
}

/// An operation of the kernel; a vector access has one for each of its elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Operation {
    /// What it does.
    pub does: Does,
    /// Where it was written: position among the sites.
    pub site: u32,
    /// The matrix or array it reads or writes: position among the matrices or shared arrays. The barrier, where it waits.
    pub memory: u32,
    /// The type of what it reads, writes or computes.
    pub ty: Option<Type>,
    /// The name of the arithmetic.
    pub name: String,
}

/// One operation in one turn of the loops around it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moment {
    /// Position among the operations.
    pub operation: u32,
    /// The step of the slide, from 0; none before and after it.
    pub step: Option<u32>,
}

/// What an act is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Acts {
    /// Elements come from global memory, into registers or shared memory.
    Load,
    /// Threads wait for each other, or for copies.
    Wait,
    /// Products are added to sums.
    Multiply,
    /// The tiles move on along k: nothing happens, the next step begins.
    Slide,
    /// What comes after the last step: sums go to C.
    Store,
}

/// Consecutive moments that are told as one thing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Act {
    /// What it is.
    pub does: Acts,
    /// The step; of a slide the one that begins.
    pub step: Option<u32>,
    /// The first of its moments, and the one after its last: none for a slide.
    pub moments: [u32; 2],
}

/// What one warp did in one moment. Lists have an entry for each lane that took part, in the order of lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// Position among the moments.
    pub moment: u32,
    /// The block, along x, y, z.
    pub block: [u32; 3],
    /// The warp of the block.
    pub warp: u32,
    /// One bit a lane: those that took part.
    pub lanes: u32,
    /// With the first element of an access: sectors of global memory, or passes over the banks of shared memory.
    pub passes: u32,
    /// Those of the passes that are due to conflicts.
    pub conflicts: u32,
    /// Elements that are read or written: position in the matrix or array, row after row.
    pub elements: Vec<u64>,
    /// What the number is a copy of, as an element of a matrix ([`MatrixOf::first`]); 0 if nothing. Of accesses to shared memory, and
    /// of a multiply-add its first factor.
    pub from: Vec<u64>,
    /// The same of the second factor.
    pub other: Vec<u64>,
    /// The number, as bits: what is read, written, or computed.
    pub bits: Vec<u64>,
}

/// Something wrong with the kernel, or not as good as it could be.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// `race`, `out-of-bounds` and so on.
    pub kind: String,
    /// Whether the kernel is wrong; otherwise it does more than it must.
    pub error: bool,
    /// What happened, in words.
    pub message: String,
    /// The block.
    pub block: [u32; 3],
    /// Threads along x, y, z: the one that looked, then the one it met.
    pub threads: Vec<[u32; 3]>,
    /// `global` or `shared`, if it is about memory.
    pub space: Option<String>,
    /// The matrix or array.
    pub name: String,
    /// Coordinates of the element.
    pub index: Vec<u64>,
    /// Lines: of the access, then of the one it met.
    pub lines: Vec<(String, u32)>,
    /// How often it happened.
    pub times: u64,
    /// The moment at which it was first seen, where that was recorded.
    pub moment: Option<u32>,
}
