//! Pipeline operations of warps: TMA loads, mbarriers, warpgroup products, DSMEM stores, TMA
//! stores.
//!
//! Such operations are few, and the waits between them are the only order between warps. The header
//! therefore keeps all of them, in each warp's program order, whatever the filter leaves out of the
//! blocks that ran.

use serde::{Deserialize, Serialize};

/// A tile or an mbarrier in shared memory: `[array, index]`.
///
/// `array` is a position among the shared arrays, `index` the tile or barrier within that array.
pub type SharedSlot = [u32; 2];

/// One pipeline operation of one warp.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PipelineEvent {
    /// The block, along x, y, z.
    pub block: [u32; 3],
    /// The warp of the block.
    pub warp: u32,
    /// The iteration of the innermost loop, from 0: the k-step of copies and products.
    #[serde(rename = "turn")]
    pub iteration: Option<u32>,
    /// The operation.
    #[serde(rename = "does")]
    pub op: PipelineOp,
}

/// A pipeline operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PipelineOp {
    /// Initializes an mbarrier.
    #[serde(rename = "begin")]
    Init {
        /// The mbarrier.
        barrier: SharedSlot,
        /// Arrivals that complete a phase.
        arrivals: u32,
    },
    /// Arrives at an mbarrier.
    Arrive {
        /// The mbarrier.
        barrier: SharedSlot,
        /// The block of the cluster that holds the mbarrier.
        block: u32,
        /// The expected bytes (`expect_tx`).
        bytes: u32,
    },
    /// Completes a wait for an mbarrier phase.
    #[serde(rename = "await")]
    Wait {
        /// The mbarrier.
        barrier: SharedSlot,
        /// The parity of the phase: 0 for the first.
        parity: u32,
    },
    /// Issues a TMA load of a tile into shared memory.
    #[serde(rename = "copy")]
    TmaLoad {
        /// The destination.
        tile: SharedSlot,
        /// Bytes of the tile.
        bytes: u32,
        /// The mbarrier that counts the bytes.
        barrier: SharedSlot,
        /// The destination blocks of the cluster, one bit each.
        blocks: u32,
    },
    /// Issues a `wgmma` on tiles.
    #[serde(rename = "multiply")]
    Wgmma {
        /// The operand tiles.
        tiles: Vec<SharedSlot>,
    },
    /// Closes a group of `wgmma` instructions.
    #[serde(rename = "commit-products")]
    WgmmaCommit,
    /// Waits until at most this number of `wgmma` groups is pending.
    #[serde(rename = "await-products")]
    WgmmaWait(u32),
    /// Stores values into the distributed shared memory (DSMEM) of another block of the cluster.
    #[serde(rename = "send")]
    DsmemStore {
        /// The destination block.
        block: u32,
        /// The mbarrier of that block that counts the bytes.
        barrier: SharedSlot,
        /// Bytes of the values.
        bytes: u32,
    },
    /// Issues a TMA store of a tile of shared memory.
    #[serde(rename = "store")]
    TmaStore {
        /// The source.
        tile: SharedSlot,
    },
    /// Closes a group of TMA stores.
    #[serde(rename = "commit-stores")]
    TmaStoreCommit,
    /// Waits until at most this number of TMA store groups still reads its tiles.
    #[serde(rename = "await-stores")]
    TmaStoreWait(u32),
    /// Reaches a barrier of the block.
    #[serde(rename = "meet")]
    BlockBarrier {
        /// 0, or the number of a named barrier.
        id: u32,
        /// Threads that the barrier counts.
        threads: u32,
        /// Whether the warp waits (`bar.sync`) or only arrives (`bar.arrive`).
        waits: bool,
    },
}

impl PipelineOp {
    /// The tiles and mbarriers that the operation refers to.
    pub fn slots(&self) -> Vec<SharedSlot> {
        match self {
            PipelineOp::Init { barrier, .. }
            | PipelineOp::Arrive { barrier, .. }
            | PipelineOp::Wait { barrier, .. }
            | PipelineOp::DsmemStore { barrier, .. } => vec![*barrier],
            PipelineOp::TmaLoad { tile, barrier, .. } => vec![*tile, *barrier],
            PipelineOp::Wgmma { tiles } => tiles.clone(),
            PipelineOp::TmaStore { tile } => vec![*tile],
            _ => Vec::new(),
        }
    }
}
