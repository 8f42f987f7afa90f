//! A pipeline as a timeline: which k-step each stage holds when, and who waits for whom.
//!
//! A *stage* is the shared memory of the tiles of one k-step. It is *filled* by copies, then *drained*: multiplied by all who need it, and
//! handed back to be filled again. Two barriers a stage make the order: at one the copies are counted, at the other those who have
//! multiplied arrive.
//!
//! **Time is logical.** A column of the timeline is a unit of it, and [`Costs`] says what takes how many: asking for the copies of a k-step,
//! the copies, the products of a k-step, sending sums, storing a tile. Everything else takes none. So it shows the order that the kernel's waits
//! enforce, not how long anything takes on a device.
//!
//! | file | |
//! |---|---|
//! | `replay` | what warps did is run again, each deed at its time |
//! | `rows` | that as rows, one for each who does something and each stage, and as waits |
//! | `words` | what one must know to read it, and who waited for whom |
//! | `picture` | the rows as a picture |

mod picture;
mod replay;
mod rows;
mod words;

pub(crate) use picture::{picture, told};
pub use words::{MARKS, Told};

use crate::trace::Trace;

/// What takes how many columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Costs {
    /// Asking for the copies of a k-step, of the warp that does.
    pub ask: u32,
    /// Copies, from when they are asked for until they have come. Any number are on their way at a time.
    pub copy: u32,
    /// A group of products of a warpgroup, one after the other.
    pub multiply: u32,
    /// Storing a tile, beside all else.
    pub store: u32,
    /// Sending sums of a tile to the other blocks of the cluster, of the warpgroup that does; then they have come.
    pub send: u32,
}

impl Costs {
    /// A copy takes as long as the products of two k-steps: to hide it, two further steps must be on their way.
    pub const USUAL: Costs = Costs { ask: 1, copy: 4, multiply: 2, store: 2, send: 2 };
}

/// What a block's pipeline does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Timeline {
    /// What takes how long.
    pub costs: Costs,
    /// How many columns there are.
    pub columns: u32,
    /// Who does something, and the stages: from the copies' side to the results'.
    pub rows: Vec<Row>,
    /// Who waited for whom.
    pub waits: Vec<Wait>,
    /// The names of the arrays that a stage has tiles of.
    pub arrays: Vec<String>,
    /// Whether somebody waits for ever.
    pub stuck: bool,
}

/// A row of the timeline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// What it is of.
    pub kind: Kind,
    /// Its name: `producer`, `stage 0`.
    pub name: String,
    /// The warps of which it is, from the first to the last; none of a stage.
    pub warps: Option<[u32; 2]>,
    /// What happens, in order. In between, who does something has nothing to do, and a stage is empty.
    pub spans: Vec<Span>,
}

/// What a row is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A warp that has tiles copied.
    Producer,
    /// The tiles of a k-step.
    Stage,
    /// A warpgroup that multiplies.
    Consumer,
    /// The tiles that a warpgroup has stored.
    Stores,
}

/// What a row does for some columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// What it is.
    pub state: State,
    /// The first column, and the one after the last.
    pub columns: [u32; 2],
    /// The k-step, of the block's own; of stores, and of sums that are sent, how many were before.
    pub number: u32,
}

/// What a row does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// A producer asks for copies.
    Asking,
    /// Somebody waits, and has nothing else under way.
    Waiting,
    /// A stage is being filled.
    Filling,
    /// A stage has come, and nobody multiplies it yet, or for the moment.
    Full,
    /// A stage is being multiplied, or a consumer multiplies.
    Multiplying,
    /// A stage was multiplied, and not handed back yet.
    Used,
    /// A consumer sends sums to the other blocks that share the k-steps of a tile.
    Sending,
    /// A tile is on its way to C.
    Storing,
}

/// How often, and how long, one waited for the same others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wait {
    /// The name of the row that waited.
    pub who: String,
    /// The array of barriers; none who waited for stores.
    pub at: Option<String>,
    /// For whom.
    pub of: Vec<Whom>,
    /// Waits that took time.
    pub times: u32,
    /// Of how many in all at this array.
    pub all: u32,
    /// Columns in which the row had nothing else to do.
    pub columns: u32,
}

/// For whom one waits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Whom {
    /// Copies that had not come.
    Copies,
    /// Stores of one's own that had not been made.
    Stores,
    /// Sums that other blocks of the cluster had not sent.
    Sums,
    /// A row's, by its name, or one of another block of the cluster.
    Row(String),
}

impl Timeline {
    /// Of a block; nothing where no copy was counted at a barrier.
    pub fn of(trace: &Trace, block: [u32; 3], costs: Costs) -> Option<Timeline> {
        let replay = replay::run(&trace.header, block, costs)?;
        Some(rows::timeline(&trace.header, &replay, costs))
    }
}
