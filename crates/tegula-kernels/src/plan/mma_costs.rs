//! Fitted costs of kernels with `mma.sync`.

use super::fitted::fitted;

/// The number of tiles.
pub(super) const MMA_TILES: usize = 7;

fitted! {
    /// Costs of the tiles of `mma.sync`, in the order of their blockings.
    MmaCosts {
        /// The fraction of the instruction rate at full occupancy.
        full: [f64; MMA_TILES] = [0.71, 0.67, 0.55, 0.61, 0.53, 0.53, 0.52],
        /// The same with one block per SM.
        alone: [f64; MMA_TILES] = [0.71, 0.67, 0.55, 0.47, 0.39, 0.39, 0.33],
        /// Fixed microseconds of each wave.
        fixed: [f64; MMA_TILES] = [5.0, 4.0, 3.0, 3.0, 2.0, 2.0, 1.5],
        /// The fraction by which the step time grows for tiles that are mostly out of bounds.
        edge: f64 = 1.2,
    }
}
