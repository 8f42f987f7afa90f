//! What warps do to a pipeline: they have tiles copied, count them at barriers, multiply them as warpgroups, send sums to other
//! blocks, have results stored.
//!
//! Deeds are few, and between warps their waits are all the order there is: so they stand in the header, each warp's as it did them,
//! of all warps and steps of the blocks that ran.

use serde::{Deserialize, Serialize};

/// A tile or a barrier in shared memory: the array, by its position among the shared arrays, and which of it.
pub type Spot = [u32; 2];

/// Something that one warp did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deed {
    /// The block, along x, y, z.
    pub block: [u32; 3],
    /// The warp of the block.
    pub warp: u32,
    /// How often the body of the innermost loop around it was begun before: of copies and products the step along k.
    pub turn: Option<u32>,
    /// What it did.
    pub does: Doing,
}

/// What a warp did.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Doing {
    /// Began a barrier.
    Begin {
        /// Which.
        barrier: Spot,
        /// Arrivals that a phase takes.
        arrivals: u32,
    },
    /// Arrived at a barrier.
    Arrive {
        /// Which.
        barrier: Spot,
        /// Of which block of the cluster.
        block: u32,
        /// Bytes that it announced.
        bytes: u32,
    },
    /// Went on when a phase had ended.
    Await {
        /// Of which barrier.
        barrier: Spot,
        /// The parity of the phase: 0 of the first.
        parity: u32,
    },
    /// Had a tile copied to shared memory.
    Copy {
        /// Where to.
        tile: Spot,
        /// Its bytes.
        bytes: u32,
        /// The barrier that counts them.
        barrier: Spot,
        /// To which blocks of the cluster, one bit each.
        blocks: u32,
    },
    /// Started a matrix instruction on tiles.
    Multiply {
        /// Which.
        tiles: Vec<Spot>,
    },
    /// Closed a group of these.
    CommitProducts,
    /// Waited for the products of all but so many groups.
    AwaitProducts(u32),
    /// Sent numbers to another block of the cluster.
    Send {
        /// Which.
        block: u32,
        /// The barrier there that counts them.
        barrier: Spot,
        /// Their bytes.
        bytes: u32,
    },
    /// Had a tile of shared memory stored.
    Store {
        /// Which.
        tile: Spot,
    },
    /// Closed a group of stores.
    CommitStores,
    /// Waited until the tiles of all but so many groups had been read.
    AwaitStores(u32),
    /// Came to a barrier of the block.
    Meet {
        /// 0, or the number of a named one.
        id: u32,
        /// Threads that meet there.
        threads: u32,
        /// Whether it waited for them.
        waits: bool,
    },
}

impl Doing {
    /// The tiles and barriers that it speaks of.
    pub fn spots(&self) -> Vec<Spot> {
        match self {
            Doing::Begin { barrier, .. }
            | Doing::Arrive { barrier, .. }
            | Doing::Await { barrier, .. }
            | Doing::Send { barrier, .. } => vec![*barrier],
            Doing::Copy { tile, barrier, .. } => vec![*tile, *barrier],
            Doing::Multiply { tiles } => tiles.clone(),
            Doing::Store { tile } => vec![*tile],
            _ => Vec::new(),
        }
    }
}
