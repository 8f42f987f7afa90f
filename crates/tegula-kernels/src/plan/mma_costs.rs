//! Fitted cost of kernels with `mma.sync`.

use super::fitted::fitted;

fitted! {
    /// The cost that tiles of `mma.sync` have in common, fitted to products of few rows. The
    /// costs of each tile, for all types, are from large products.
    MmaCosts {
        /// The fraction by which the step time grows for tiles that are mostly out of bounds.
        edge: f64 = 1.5,
    }
}
