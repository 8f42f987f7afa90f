//! Pipeline timelines: the k-step that each stage holds in each column, and the reasons for waits.
//!
//! A *stage* is the shared memory of the tiles of one k-step. TMA loads fill it; consumers multiply
//! its tiles, then release it for the next fill. Two mbarriers per stage impose the order. *full*
//! counts the copies, *empty* the arrivals of the consumers.
//!
//! **Time is logical.** A column of the timeline is one unit, and [`Costs`] gives the length of
//! each operation: issuing the copies of a k-step, the copies, the products of a k-step, DSMEM
//! stores of partial sums, storing a tile. Everything else takes no time. The timeline therefore
//! shows the order that the kernel's waits enforce, not durations on a device.
//!
//! | file | |
//! |---|---|
//! | `replay` | pipeline operations, replayed on the logical clock |
//! | `rows` | rows for producers, stages, consumers and stores, and their waits |
//! | `words` | the legend, terms and wait reports as text |
//! | `picture` | the rows as SVG |

mod picture;
mod replay;
mod rows;
mod words;

pub(crate) use picture::{description, picture};
pub use words::{LEGEND, WaitReport};

use crate::trace::Trace;

/// Lengths of operations, in columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Issuing the copies of a k-step, for the issuing warp.
    pub issue: u32,
    /// A copy, from issue to arrival. Any number of copies overlap.
    pub copy: u32,
    /// A group of products of a warpgroup; groups run one after the other.
    pub multiply: u32,
    /// Storing a tile, overlapped with everything else.
    pub store: u32,
    /// Sending partial sums of a tile to the other blocks of the cluster, for the sending
    /// warpgroup; they arrive at the end.
    pub send: u32,
}

impl Costs {
    /// The default: a copy takes as long as the products of two k-steps.
    ///
    /// Hiding a copy thus takes two further k-steps in flight.
    pub const DEFAULT: Costs = Costs { issue: 1, copy: 4, multiply: 2, store: 2, send: 2 };
}

/// The timeline of a block's pipeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// Lengths of operations.
    pub costs: Costs,
    /// The number of columns.
    pub columns: u32,
    /// Producers, stages, consumers, stores.
    pub rows: Vec<Row>,
    /// Waits of producers and consumers.
    pub waits: Vec<Wait>,
    /// Names of the arrays that hold a stage's tiles.
    pub arrays: Vec<String>,
    /// Whether a warp waits forever.
    pub deadlocked: bool,
}

/// A row of the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// The kind.
    pub kind: RowKind,
    /// The name: `producer`, `stage 0`.
    pub name: String,
    /// The first and the last warp; `None` for a stage.
    pub warps: Option<[u32; 2]>,
    /// Spans in order. In the gaps a warp is idle and a stage empty.
    pub spans: Vec<Span>,
}

/// The kind of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RowKind {
    /// A warp that issues TMA loads.
    Producer,
    /// The tiles of a k-step.
    Stage,
    /// A warpgroup that multiplies.
    Consumer,
    /// The tiles that a warpgroup stores.
    Stores,
}

/// Consecutive columns of a row in one state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The state.
    pub state: State,
    /// The first column, and the one after the last.
    pub columns: [u32; 2],
    /// The k-step of the block; for stores and sends, their number from 0.
    pub number: u32,
}

/// The state of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A producer issues copies.
    Issuing,
    /// A producer or consumer waits, with nothing else in flight.
    Waiting,
    /// Copies fill a stage.
    Filling,
    /// A stage is full, and no consumer multiplies it.
    Full,
    /// A stage is being multiplied, or a consumer multiplies.
    Multiplying,
    /// A stage was multiplied and is not released yet.
    Consumed,
    /// A consumer sends partial sums to the other blocks that split the k-steps of a tile.
    Sending,
    /// A tile is being stored to C.
    Storing,
}

/// The waits of a row at one array of barriers, for the same reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The name of the waiting row.
    pub row: String,
    /// The array of mbarriers; `None` for a wait for stores.
    pub barrier: Option<String>,
    /// The reasons.
    pub reasons: Vec<WaitReason>,
    /// Waits that took time.
    pub count: u32,
    /// All waits at this array.
    pub total: u32,
    /// Columns in which the row was otherwise idle.
    pub columns: u32,
}

/// The reason for a wait.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum WaitReason {
    /// Copies that had not arrived.
    Copies,
    /// The row's own stores that had not completed.
    Stores,
    /// Partial sums of other blocks of the cluster that had not arrived.
    PartialSums,
    /// An arrival of another row, by name; that of another block includes the block.
    Row(String),
}

impl Timeline {
    /// The timeline of a block; `None` if no mbarrier counts copies.
    pub fn of(trace: &Trace, block: [u32; 3], costs: Costs) -> Option<Timeline> {
        let replay = replay::run(&trace.header, block, costs)?;
        Some(rows::timeline(&trace.header, &replay, costs))
    }
}
