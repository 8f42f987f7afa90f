//! Fitted costs of the `wgmma` pipelines.

use super::fitted::fitted;

/// The columns of tiles whose step times are fitted, by the rows of a tile and the blocks of its
/// multicast group.
pub(super) const STEP_KNOTS: [(u32, u32, &[u32]); 9] = [
    (64, 1, &[16, 32, 64, 128, 192]),
    (64, 2, &[24, 64, 128, 192]),
    (64, 4, &[24, 64, 128, 192]),
    (128, 1, &[24, 64, 128, 192, 256]),
    (128, 2, &[64, 128, 192, 256]),
    (128, 4, &[64, 128, 192, 256]),
    (192, 1, &[64, 128, 160]),
    (192, 2, &[64, 128, 160]),
    (192, 4, &[64, 128, 160]),
];
/// The number of fitted step times.
const STEP_TIMES: usize = 35;

fitted! {
    /// Costs of the `wgmma` pipelines, fitted by `benchmarks/cost/fit_plan.py`.
    HopperCosts {
        /// Microseconds of `wgmma` for one k-step of a tile, in the order of [`STEP_KNOTS`].
        step_times: [f64; STEP_TIMES] = [0.111, 0.114, 0.127, 0.171, 0.244, 0.12, 0.135, 0.186, 0.259, 0.132, 0.133, 0.175, 0.244, 0.164, 0.202, 0.28, 0.402, 0.559, 0.192, 0.291, 0.444, 0.6, 0.189, 0.303, 0.495, 0.659, 0.286, 0.42, 0.516, 0.26, 0.435, 0.567, 0.302, 0.491, 0.633],
        /// Clocks of TMA per row of 128 bytes while both SMs of the TPC request rows: of rows
        /// aligned to 128, 64, 32 and 16 bytes.
        tma_row: [f64; 4] = [1.39, 1.87, 2.48, 3.97],
        /// The fraction of these clocks while the other SM of the TPC is idle.
        tma_unshared: f64 = 0.585,
        /// Clocks of TMA per out-of-bounds row while all SMs request them: zero fill is not free.
        tma_zero_fill: f64 = 5.8,
        /// The divisor of the bytes that an SM reads from the L2 cache. The quotient is the
        /// microseconds by which these reads slow down `wgmma` while all SMs read.
        l2_contention: f64 = 2.74e5,
        /// Microseconds from a TMA request to its arrival, under load.
        load_latency: f64 = 0.9,
        /// Microseconds to zero the rest of a stage of clipped copies.
        clear_stage: f64 = 0.06,
        /// Microseconds until the first TMA request.
        launch_start: f64 = 1.02,
        /// Microseconds per tile until its first k-step.
        tile_start: f64 = 0.252,
        /// Duration of the pipeline's prologue, in k-steps.
        prologue: f64 = 3.87,
        /// Microseconds that multicast clusters add at the start.
        multicast_start: f64 = 0.613,
        /// Microseconds that multicast clusters add per tile.
        multicast_tile: f64 = 0.0563,
        /// Microseconds added where both operands are multicast.
        multicast_both: f64 = 0.16,
        /// Microseconds of the store of 128 accumulators per thread.
        store: f64 = 0.785,
        /// The multiplier of this time where TMA cannot store C: for a row-major and a column-major
        /// C.
        element_store: [f64; 2] = [2.66, 2.92],
        /// Microseconds added per epilogue subtile beyond one for 64 columns.
        store_subtile: f64 = 0.531,
        /// Microseconds of the DSMEM reduction of any tile.
        dsmem_reduction: f64 = 0.311,
        /// Microseconds that the DSMEM reduction adds for a tile of 128×256, in proportion to the
        /// area.
        dsmem_reduction_area: f64 = 3.43,
        /// Microseconds that the DSMEM reduction adds per doubling of the blocks beyond two.
        dsmem_reduction_doubling: f64 = 0.228,
        /// Microseconds of the stream-K fix-up of any tile.
        fix_up: f64 = 3.77,
        /// Microseconds that the fix-up adds for a tile of 128×256, in proportion to the area.
        fix_up_area: f64 = 1.17,
        /// The same for each further contributor to a tile.
        fix_up_contributor: f64 = 2.38,
        /// The fraction of the memory bandwidth at which bytes take the part of the memory time
        /// that is not hidden.
        unhidden_memory: f64 = 2.86,
        /// The fraction of the memory bandwidth that bounds the time.
        memory: f64 = 1.03,
        /// Bytes per microsecond that the SMs of a TPC read from memory.
        tpc_memory: f64 = 9.0e4,
        /// The multiplier by which k-steps take longer under stream-K.
        stream_k_step: f64 = 1.03,
        /// Floating-point operations per microsecond at the power limit.
        power_limited_flops: f64 = 9.17e8,
        /// Weight of shared memory reads beyond those of 256 columns in the power bound.
        shared_read: f64 = 1.19,
        /// The multiplier of the step time where B is contiguous along k.
        k_contiguous_b: f64 = 0.973,
        /// Bytes per microsecond of packing, read and written: of row-major and of column-major
        /// operands.
        pack: [f64; 2] = [3.56e6, 3.11e6],
        /// Microseconds of the packing launch.
        pack_launch: f64 = 1.57,
        /// Microseconds of the launch of the split-K reduction.
        reduction_launch: f64 = 1.7,
        /// Bytes per microsecond of partial sums, written and read.
        partial_sums: f64 = 4.19e6,
    }
}
