//! Bulk copies in flight, and pending bulk stores.

use super::agent::AsyncGroups;
use super::barrier::MbarrierId;
use super::race::Access;

/// A bulk tensor load: tile of a matrix, destination, mbarrier.
#[derive(Clone, Copy, Debug)]
pub(super) struct TmaLoad {
    pub matrix: usize,
    /// Batch, row and column.
    pub at: [u32; 3],
    pub array: usize,
    pub first: usize,
    pub barrier: MbarrierId,
}

/// A store to the shared memory of another block: values, destination, mbarrier.
#[derive(Clone, Copy, Debug)]
pub(super) struct StoreAsync {
    pub array: usize,
    pub first: usize,
    pub bits: [u32; 4],
    pub count: usize,
    pub barrier: MbarrierId,
}

/// A copy to shared memory.
#[derive(Clone, Copy, Debug)]
pub(super) enum BulkCopy {
    Tile(TmaLoad),
    Words(StoreAsync),
}

impl BulkCopy {
    /// The destination array and element, and the mbarrier.
    pub fn destination(&self) -> (usize, usize, MbarrierId) {
        match *self {
            BulkCopy::Tile(TmaLoad { array, first, barrier, .. })
            | BulkCopy::Words(StoreAsync { array, first, barrier, .. }) => (array, first, barrier),
        }
    }
}

/// A copy in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct InFlightCopy {
    pub copy: BulkCopy,
    /// The epoch of the copy's writes.
    pub access: Access,
    /// Phase of the mbarrier when the copy started.
    pub phase: u32,
    /// The block that issued the copy, for a diagnostic if it completes in another phase.
    pub from: u32,
    pub sender: Access,
}

/// Bulk stores of a thread.
#[derive(Debug, Default)]
pub(super) struct ThreadStores {
    pub groups: AsyncGroups,
    /// Stores not performed yet, with their groups.
    pub pending: Vec<(u32, TmaStore)>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct TmaStore {
    pub matrix: usize,
    pub at: [u32; 3],
    pub array: usize,
    pub first: usize,
}
