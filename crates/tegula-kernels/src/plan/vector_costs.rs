//! Fitted costs of GEMV and skinny GEMM kernels of 16-bit and 8-bit types.

use super::fitted::fitted;

/// Element sizes of two bytes and of one; B contiguous along n and along k; single elements and 16
/// bytes per load. The last varies fastest.
const CLASSES: usize = 8;

fitted! {
    /// Costs of vector kernels of 16-bit and 8-bit types.
    VectorCosts {
        /// Lane clocks per element of B.
        element: [f64; CLASSES] = [8.0, 4.0, 8.0, 4.0, 8.0, 4.0, 8.0, 4.0],
        /// Lane clocks per multiply-add.
        multiply_add: [f64; CLASSES] = [2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0],
        /// Lane clocks per element of A that a block copies to shared memory.
        stage: f64 = 8.0,
        /// Microseconds of a load under load.
        latency: [f64; CLASSES] = [1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5],
        /// The fraction of the memory bandwidth that kernels reach.
        memory: f64 = 0.9,
        /// Microseconds of the launch.
        start: f64 = 2.0,
        /// Microseconds of the prologue and the reduction of a block.
        wave: f64 = 1.0,
        /// Lane clocks of the reduction of a block, per accumulator and doubling of its threads along k.
        fold: f64 = 2.0,
    }
}
