//! Asynchronous writes to shared memory in flight, and pending bulk stores.

use super::agent::AsyncGroups;
use super::barrier::MbarrierId;
use super::race::Access;

/// A bulk tensor load: tile of a matrix, destination, mbarrier.
#[derive(Clone, Copy, Debug)]
pub(super) struct TmaLoad {
    pub matrix: usize,
    /// Batch, row and column of the tile's first element.
    pub at: [u32; 3],
    /// The destination array, and its first element.
    pub array: usize,
    pub first: usize,
    pub barrier: MbarrierId,
}

/// A store to the shared memory of a block of the cluster (`st.async`): values, destination,
/// mbarrier.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreAsync {
    /// The destination array, and its first element.
    pub array: usize,
    pub first: usize,
    /// The values, of which the first `count` are stored.
    pub bits: [u32; 4],
    pub count: usize,
    pub barrier: MbarrierId,
}

/// A write to shared memory whose bytes an mbarrier of the same block counts.
#[derive(Clone, Copy, Debug)]
pub(super) enum AsyncWrite {
    TmaLoad(TmaLoad),
    StoreAsync(StoreAsync),
}

impl AsyncWrite {
    /// The destination array, its first element, and the mbarrier, all in the written block.
    pub fn destination(&self) -> (usize, usize, MbarrierId) {
        match *self {
            AsyncWrite::TmaLoad(TmaLoad { array, first, barrier, .. })
            | AsyncWrite::StoreAsync(StoreAsync { array, first, barrier, .. }) => (array, first, barrier),
        }
    }
}

/// A write in flight to the block that holds this record.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlightWrite {
    pub write: AsyncWrite,
    /// The epoch of the writes, on the agent of their destination.
    pub writes: Access,
    /// Phase of the mbarrier when the write started.
    pub phase: u32,
    /// The linear index of the block that issued the write, for a diagnostic if it completes in
    /// another phase.
    pub issuing_block: u32,
    /// The epoch of the instruction in the issuing block.
    pub issue: Access,
}

/// Bulk stores of a thread.
#[derive(Debug, Default)]
pub(super) struct ThreadStores {
    pub groups: AsyncGroups,
    /// Stores not performed yet, with their groups.
    pub pending: Vec<(u32, TmaStore)>,
}

/// A bulk tensor store: tile of a matrix, source in shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct TmaStore {
    pub matrix: usize,
    /// Batch, row and column of the tile's first element.
    pub at: [u32; 3],
    /// The source array, and its first element.
    pub src_array: usize,
    pub src_first: usize,
}
