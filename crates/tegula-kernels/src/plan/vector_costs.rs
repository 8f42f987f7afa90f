//! Fitted costs of GEMV and skinny GEMM kernels of 16-bit and 8-bit types.

use super::fitted::fitted;

/// Element sizes of two bytes and of one; B contiguous along n and along k; single elements and 16
/// bytes per load. The last varies fastest.
const CLASSES: usize = 8;

fitted! {
    /// Costs of vector kernels of 16-bit and 8-bit types.
    VectorCosts {
        /// Lane clocks per element of B.
        element: [f64; CLASSES] = [12.3, 3.29, 5.35, 5.74, 16.1, 4.92, 6.67, 4.32],
        /// Lane clocks per multiply-add.
        multiply_add: [f64; CLASSES] = [1.46, 1.74, 2.2, 2.79, 0.594, 1.73, 0.525, 6.15],
        /// Lane clocks per element of A that a block copies to shared memory.
        stage: f64 = 42.6,
        /// Microseconds of a load under load.
        latency: [f64; CLASSES] = [0.0499, 0.587, 0.02, 1.06, 0.121, 0.108, 0.146, 0.56],
        /// The fraction of the memory bandwidth that kernels reach.
        memory: f64 = 0.68,
        /// Microseconds of the launch.
        start: f64 = 2.16,
        /// Microseconds of the prologue and the reduction of a block.
        wave: f64 = 0.856,
        /// Lane clocks of the reduction of a block, per accumulator and doubling of its threads along k.
        fold: f64 = 1.06,
    }
}
