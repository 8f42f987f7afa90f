//! Fitted costs of the blocked kernels. Tiles of f32 and f64 have costs of their own; the other
//! costs are shared with `mma.sync` and limbs, to which they were not fitted.

use super::fitted::fitted;

fitted! {
    /// Costs of the blocked kernels, fitted by `benchmarks/cost/fit_plan.py`.
    BlockedCosts {
        /// For each register tile of 4-byte types, in the order of `REGISTER`: the fraction of the
        /// instruction rate at full occupancy, and with one block per SM; the multiplier of the
        /// copy time; and the fixed microseconds of each wave.
        register: [[f64; 4]; 14] = [
            [0.774, 0.732, 1.04, 6.0],
            [0.881, 0.856, 0.827, 15.1],
            [0.882, 0.794, 2.53, 4.16],
            [0.753, 0.686, 1.15, 3.53],
            [0.671, 0.585, 0.574, 0.423],
            [0.554, 0.434, 0.581, 1.02],
            [0.536, 0.514, 0.164, 0.523],
            [0.85, 0.776, 1.46, 0.935],
            [0.806, 0.786, 1.49, 1.68],
            [0.79, 0.667, 0.844, 1.44],
            [0.726, 0.7, 1.32, 6.95],
            [0.701, 0.565, 1.03, 0.865],
            [0.792, 0.732, 0.703, 1.77],
            [0.669, 0.483, 0.147, 0.677],
        ],
        /// The same for each f64 tile on Tensor Cores, in the order of `DMMA`.
        dmma: [[f64; 4]; 20] = [
            [0.948, 0.957, 0.86, 5.68],
            [0.915, 0.882, 0.486, 4.79],
            [0.915, 0.948, 0.02, 3.7],
            [0.919, 0.899, 2.52, 2.97],
            [0.86, 0.678, 1.03, 1.88],
            [0.919, 0.909, 0.239, 3.13],
            [0.919, 0.794, 0.88, 2.57],
            [0.899, 0.872, 0.611, 3.05],
            [0.93, 0.793, 0.53, 1.04],
            [0.828, 0.694, 0.542, 1.89],
            [0.84, 0.693, 0.619, 1.08],
            [0.849, 0.674, 2.03, 3.12],
            [0.752, 0.55, 1.07, 1.4],
            [0.502, 0.423, 0.524, 1.69],
            [0.699, 0.595, 0.684, 2.08],
            [0.674, 0.469, 1.92, 1.91],
            [0.541, 0.483, 2.09, 1.11],
            [0.629, 0.42, 1.3, 0.904],
            [0.419, 0.276, 0.869, 1.09],
            [0.429, 0.356, 2.64, 1.73],
        ],
        /// The multiplier of the step time of f64 tiles if A and B are contiguous along k: of small
        /// tiles, and of those that interleave A.
        along_k: [f64; 2] = [0.967, 1.03],
        /// The fraction of the memory bandwidth that tiled kernels reach.
        memory: f64 = 0.927,
        /// The same of f64 tiles on Tensor Cores.
        dmma_memory: f64 = 0.86,
        /// The exponent of the norm of the times of memory and of the kernel.
        overlap: f64 = 8.0,
        /// The fraction of the memory time that is not hidden.
        unhidden: f64 = 0.298,
        /// The microseconds of it to which this applies.
        max_unhidden: f64 = 5.38,
        /// The fraction of the memory time that the first copies of the only block of an SM add.
        exposed: f64 = 0.25,
        /// Microseconds of latency of busy device memory.
        latency: f64 = 1.15,
        /// Nanoseconds per SM of a warp's copy of an element, and of 16 bytes, for 4-byte types.
        copy: [f64; 2] = [2.0, 0.522],
        /// The same for f64.
        dmma_copy: [f64; 2] = [0.904, 0.0665],
        /// Nanoseconds per SM of a warp's copy of an element that is transposed, of A and of B. The
        /// multipliers of the tiles apply to A.
        transposed_copy: [f64; 2] = [0.813, 2.54],
        /// The multiplier of the step time with element copies, for kernels without measured
        /// copies.
        element_copies: f64 = 1.15,
        /// Nanoseconds per SM of a thread's store, of an element and of 16 bytes.
        store: [f64; 2] = [0.128, 0.0907],
        /// The multiplier of the time of the last of several waves.
        last_wave: f64 = 1.02,
        /// The multiplier of the step time under stream-K.
        stream_k_step: f64 = 1.06,
        /// Bytes per microsecond of partial sums, written and read, mostly in the L2 cache.
        partial_sums: f64 = 3.32e6,
        /// Microseconds of each further round of loads of the reduction.
        reduction_round: f64 = 0.222,
        /// Microseconds of each contributor to a tile in the stream-K fix-up. Some times are of a
        /// fix-up that added contributors one after the other.
        contributor: f64 = 0.107,
        /// Bytes per microsecond of packing, read and written.
        pack: f64 = 2.51e6,
        /// Microseconds of the packing launch.
        pack_launch: f64 = 2.81,
        /// Microseconds of the first launch.
        first_launch: f64 = 0.808,
        /// Microseconds of the launch of the reduction.
        reduction_launch: f64 = 1.35,
    }
}
