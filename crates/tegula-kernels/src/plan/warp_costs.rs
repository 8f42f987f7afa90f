//! Fitted costs of kernels whose warps compute tiles from registers.

use super::fitted::fitted;

fitted! {
    /// Costs of warp kernels, of 16-bit types and of f64, fitted by `benchmarks/cost/fit_plan.py`.
    WarpCosts {
        /// Clocks of an SM for a warp's prologue and epilogue.
        warp: [f64; 2] = [1.53, 1.55],
        /// Clocks of an SM for a request of a vector per lane, along and across k.
        request: [[f64; 2]; 2] = [[1.61, 2.79], [1.65, 2.58]],
        /// Clocks of an SM for the 256 bytes of a slab of eight rows or columns.
        group: [f64; 2] = [2.46, 2.51],
        /// Clocks of an SM for a request of an element per lane, by way of shared memory.
        staged: [f64; 2] = [4.16, 6.03],
        /// Clocks of an SM for an instruction of `mma.sync`.
        mma: [f64; 2] = [3.5, 17.1],
        /// Clocks of an SM for a request that stores vectors, and elements.
        store: [[f64; 2]; 2] = [[1.1, 7.88], [1.11, 12.0]],
        /// Clocks of an SM for the launch of a block.
        block: [f64; 2] = [12.3, 12.2],
        /// Microseconds of a wave of warps besides its steps.
        wave: [f64; 2] = [0.209, 0.228],
        /// The multiplier of a warp's clocks, if no other warp hid them.
        issue: [f64; 2] = [2.1, 4.81],
        /// Microseconds of a step along k: the latency of its loads.
        latency: [f64; 2] = [0.38, 0.41],
        /// The fraction of the memory bandwidth that kernels reach.
        memory: [f64; 2] = [0.906, 0.919],
        /// Microseconds of the launch.
        start: [f64; 2] = [1.72, 1.61],
    }
}
