//! Fitted costs of GEMV and skinny GEMM kernels.

use super::fitted::fitted;

/// Element sizes of two, one, four and eight bytes.
pub(super) const SIZES: [usize; 4] = [2, 1, 4, 8];
/// For each size: B contiguous along n and along k; single elements and 16 bytes per load. The last
/// varies fastest.
const CLASSES: usize = 4 * SIZES.len();

fitted! {
    /// Costs of vector kernels, fitted by `benchmarks/cost/fit_plan.py`.
    VectorCosts {
        /// Lane clocks per element of B.
        element: [f64; CLASSES] = [5.65, 5.0, 0.835, 6.54, 4.55, 4.88, 1.19, 2.36, 5.11, 3.94, 2.78, 0.899, 3.89, 12.8, 4.85, 6.29],
        /// Lane clocks per multiply-add.
        multiply_add: [f64; CLASSES] = [0.111, 0.0571, 0.348, 0.266, 0.339, 0.783, 0.214, 3.31, 0.828, 0.54, 0.924, 0.694, 1.0, 0.589, 1.76, 1.89],
        /// Lane clocks per element of A that a thread reads from shared memory, for each size.
        read_a: [f64; SIZES.len()] = [3.3, 0.9, 1.44, 2.08],
        /// Lane clocks per element of A that a block copies to shared memory.
        stage: f64 = 28.1,
        /// Lane clocks per element of C that a block stores.
        output: f64 = 41.8,
        /// Lane clocks per partial sum that a block adds.
        fold: f64 = 5.84,
        /// Lane clocks of the launch of a block.
        block: f64 = 344.0,
        /// The multiplier of the clocks of a thread's instructions, if no other thread hid them.
        issue: f64 = 1.99,
        /// Clocks per partial sum that a thread adds in the reduction of a block.
        sum: f64 = 16.1,
        /// Microseconds of a load under load.
        latency: [f64; CLASSES] = [0.0517, 0.0465, 0.0207, 0.0234, 0.175, 0.0648, 0.0786, 0.127, 0.211, 0.179, 0.195, 0.284, 0.286, 0.0908, 0.0831, 0.144],
        /// The fraction of the memory bandwidth that kernels reach, for each size.
        memory: [f64; SIZES.len()] = [0.879, 0.842, 0.95, 0.95],
        /// The fraction by which the memory time grows where a block reads half a line of 128
        /// bytes at a time; three times that for a quarter.
        partial_line: f64 = 0.0662,
        /// Microseconds of the launch.
        start: f64 = 1.17,
        /// Microseconds of the prologue and the reduction of a block, for each size.
        wave: [f64; SIZES.len()] = [0.951, 0.765, 0.059, 0.651],
        /// Microseconds of the launch of the split-K reduction, and per partial sum that it adds.
        reduction: [f64; 2] = [1.84, 0.0115],
        /// Bytes per microsecond of partial sums, written and read.
        partial_sums: f64 = 1.1e7,
    }
}
