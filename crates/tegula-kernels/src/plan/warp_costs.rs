//! Fitted costs of warp kernels.

use super::fitted::fitted;

fitted! {
    /// Costs of warp kernels, of 16-bit types and of f64, fitted by `benchmarks/cost/fit_plan.py`.
    WarpCosts {
        /// Clocks of an SM for a warp's prologue and epilogue.
        warp: [f64; 2] = [1.52, 1.47],
        /// Clocks of an SM for a request of a vector per lane, along and across k.
        request: [[f64; 2]; 2] = [[1.47, 2.39], [0.939, 5.17]],
        /// Clocks of an SM for the 256 bytes of a slab of eight rows or columns.
        group: [f64; 2] = [2.1, 1.77],
        /// Clocks of an SM for a request of an element per lane, by way of shared memory.
        staged: [f64; 2] = [4.49, 5.3],
        /// Clocks of an SM for an instruction of `mma.sync`.
        mma: [f64; 2] = [3.18, 19.6],
        /// Clocks of an SM for a request that stores vectors, and elements.
        store: [[f64; 2]; 2] = [[1.09, 6.92], [1.09, 13.3]],
        /// Clocks of an SM for the launch of a block.
        block: [f64; 2] = [19.7, 10.8],
        /// Microseconds of a wave of warps besides its steps.
        wave: [f64; 2] = [0.159, 0.151],
        /// The multiplier of a warp's clocks, if no other warp hid them.
        issue: [f64; 2] = [1.9, 4.57],
        /// Microseconds of a step along k: the latency of its loads.
        latency: [f64; 2] = [0.68, 0.512],
        /// The fraction of the memory bandwidth that kernels reach.
        memory: [f64; 2] = [0.906, 0.919],
        /// Microseconds of the launch.
        start: [f64; 2] = [1.27, 1.07],
    }
}
