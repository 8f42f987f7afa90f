//! Fitted costs of kernels whose warps compute tiles from registers.

use super::fitted::fitted;

fitted! {
    /// Costs of warp kernels, fitted by `benchmarks/cost/fit_plan.py`.
    WarpCosts {
        /// Clocks of an SM for a warp's prologue and epilogue.
        warp: f64 = 1.53,
        /// Clocks of an SM for a request of a vector per lane, along and across k.
        request: [f64; 2] = [1.61, 2.79],
        /// Clocks of an SM for the 256 bytes of a slab of eight rows or columns.
        group: f64 = 2.46,
        /// Clocks of an SM for a request of an element per lane, by way of shared memory.
        staged: f64 = 4.16,
        /// Clocks of an SM for an instruction of `mma.sync`.
        mma: f64 = 3.5,
        /// Clocks of an SM for a request that stores vectors, and elements.
        store: [f64; 2] = [1.1, 7.88],
        /// Clocks of an SM for the launch of a block.
        block: f64 = 12.3,
        /// Microseconds of a wave of warps besides its steps.
        wave: f64 = 0.209,
        /// The multiplier of a warp's clocks, if no other warp hid them.
        issue: f64 = 2.1,
        /// Microseconds of a step along k: the latency of its loads.
        latency: f64 = 0.38,
        /// The fraction of the memory bandwidth that kernels reach.
        memory: f64 = 0.906,
        /// Microseconds of the launch.
        start: f64 = 1.72,
    }
}
