//! Fitted costs of kernels with `mma.sync`.

use super::fitted::fitted;

/// The number of tiles.
pub(super) const MMA_TILES: usize = 7;

fitted! {
    /// Costs of the tiles of `mma.sync`, in the order of their blockings.
    MmaCosts {
        /// The fraction of the instruction rate at full occupancy.
        full: [f64; MMA_TILES] = [0.71, 0.67, 0.55, 0.511, 0.361, 0.487, 0.415],
        /// The same with one block per SM.
        alone: [f64; MMA_TILES] = [1.15, 0.684, 0.414, 0.352, 0.389, 0.446, 0.387],
        /// Fixed microseconds of each wave.
        fixed: [f64; MMA_TILES] = [2.73, 9.33, 3.44, 2.88, 1.99, 2.44, 1.93],
        /// The fraction by which the step time grows for tiles that are mostly out of bounds.
        edge: f64 = 1.01,
    }
}
