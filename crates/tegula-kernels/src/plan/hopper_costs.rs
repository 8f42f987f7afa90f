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
        step_times: [f64; STEP_TIMES] = [0.0817, 0.0845, 0.0938, 0.134, 0.217, 0.0976, 0.127, 0.168, 0.239, 0.104, 0.124, 0.172, 0.226, 0.12, 0.156, 0.271, 0.425, 0.611, 0.167, 0.289, 0.435, 0.585, 0.17, 0.292, 0.501, 0.653, 0.246, 0.433, 0.524, 0.277, 0.438, 0.583, 0.317, 0.511, 0.672],
        /// Clocks of TMA per row of 128 bytes while both SMs of the TPC request rows: of rows
        /// aligned to 128, 64, 32 and 16 bytes.
        tma_row: [f64; 4] = [1.6, 2.44, 2.93, 4.29],
        /// The fraction of these clocks while the other SM of the TPC is idle.
        tma_unshared: f64 = 0.615,
        /// Clocks of TMA per out-of-bounds row while all SMs request them: zero fill is not free.
        tma_zero_fill: f64 = 5.4,
        /// The divisor of the bytes that an SM reads from the L2 cache. The quotient is the
        /// microseconds by which these reads slow down `wgmma` while all SMs read.
        l2_contention: f64 = 1.98e5,
        /// Microseconds from a TMA request to its arrival, under load.
        load_latency: f64 = 0.851,
        /// Microseconds until the first TMA request.
        launch_start: f64 = 1.62,
        /// Microseconds per tile until its first k-step.
        tile_start: f64 = 0.312,
        /// Duration of the pipeline's prologue, in k-steps.
        prologue: f64 = 2.35,
        /// Microseconds that multicast clusters add at the start. Those that also split k start in
        /// any case, which is a part of the DSMEM reduction.
        multicast_start: [f64; 2] = [0.214, 0.0117],
        /// Microseconds that multicast clusters add per tile.
        multicast_tile: f64 = 0.00549,
        /// Microseconds added where both operands are multicast.
        multicast_both: f64 = 0.071,
        /// Microseconds of the store of 128 accumulators per thread.
        store: f64 = 0.366,
        /// The multiplier of this time where TMA cannot store C: for a row-major and a column-major
        /// C.
        element_store: [f64; 2] = [2.86, 3.2],
        /// Microseconds added per epilogue subtile beyond one for 64 columns.
        store_subtile: f64 = 0.198,
        /// Microseconds of the DSMEM reduction of any tile.
        dsmem_reduction: f64 = 0.173,
        /// Microseconds that the DSMEM reduction adds for a tile of 128×256, in proportion to the
        /// area.
        dsmem_reduction_area: f64 = 3.06,
        /// Microseconds that the DSMEM reduction adds per doubling of the blocks beyond two.
        dsmem_reduction_doubling: f64 = 0.218,
        /// Microseconds of the stream-K fix-up of any tile.
        fix_up: f64 = 1.76,
        /// Microseconds that the fix-up adds for a tile of 128×256, in proportion to the area.
        fix_up_area: f64 = 2.36,
        /// The same for each further contributor to a tile.
        fix_up_contributor: f64 = 4.3,
        /// The fraction of the memory bandwidth at which bytes take the part of the memory time
        /// that is not hidden.
        unhidden_memory: f64 = 4.29,
        /// The fraction of the memory bandwidth that bounds the time.
        memory: f64 = 1.05,
        /// Bytes per microsecond that an SM reads from memory.
        sm_memory: f64 = 1.55e5,
        /// Bytes per microsecond that the SMs of a CPC read from memory.
        cpc_memory: f64 = 2.56e5,
        /// The fraction by which the fullest CPC has more blocks than the others, while half of
        /// the SMs are idle.
        uneven: f64 = 0.34,
        /// The multiplier by which k-steps take longer under stream-K.
        stream_k_step: f64 = 1.09,
        /// The multiplier of the step time in the ping-pong schedule.
        ping_pong_step: f64 = 0.935,
        /// Microseconds per tile between two consumers in the ping-pong schedule.
        ping_pong_tile: f64 = 0.278,
        /// Weight of shared memory reads beyond those of 256 columns in the power bound.
        shared_read: f64 = 0.00581,
        /// Floating-point operations that take as much energy as a byte of memory, by a fit to the
        /// times of kernels at the power limit.
        memory_flops: f64 = 5.52,
        /// The same for a byte read from the L2 cache.
        l2_read_flops: f64 = 0.613,
        /// The fraction of the time at the power limit by which lower clocks prolong the
        /// multiplication.
        slowdown: f64 = 0.0834,
        /// The multiplier of the step time where B is contiguous along k.
        k_contiguous_b: f64 = 1.02,
        /// Bytes per microsecond of packing, read and written: of row-major and of column-major
        /// operands.
        pack: [f64; 2] = [3.73e6, 3.39e6],
        /// Microseconds of the packing launch.
        pack_launch: f64 = 1.3,
        /// Microseconds of the launch of the split-K reduction.
        reduction_launch: f64 = 1.36,
        /// Bytes per microsecond of partial sums, written and read.
        partial_sums: f64 = 4.36e6,
    }
}

impl HopperCosts {
    /// The costs at the power limit, where clocks are lower, and those of batches: of an earlier
    /// fit, to products that reach the limit and to batches as well.
    pub const SUSTAINED: HopperCosts = HopperCosts {
        step_times: [
            0.102, 0.108, 0.118, 0.215, 0.219, 0.146, 0.149, 0.213, 0.353, 0.11, 0.161, 0.199, 0.416, 0.31, 0.247,
            0.344, 0.54, 0.704, 0.242, 0.426, 0.643, 0.887, 0.25, 0.45, 0.677, 0.904, 0.329, 0.509, 0.775, 0.338,
            0.662, 0.788, 0.363, 0.683, 0.81,
        ],
        tma_row: [2.4, 2.76, 3.46, 4.94],
        tma_unshared: 0.6,
        tma_zero_fill: 9.5,
        l2_contention: 2.17e5,
        load_latency: 0.935,
        launch_start: 0.645,
        tile_start: 0.37,
        prologue: 3.139,
        multicast_start: [0.85, 0.47],
        multicast_tile: 0.0704,
        multicast_both: 0.162,
        store: 0.595,
        element_store: [2.0, 3.49],
        store_subtile: 0.453,
        dsmem_reduction: 0.438,
        dsmem_reduction_area: 3.75,
        dsmem_reduction_doubling: 0.174,
        fix_up: 2.46,
        fix_up_area: 1.66,
        fix_up_contributor: 3.63,
        unhidden_memory: 10.5,
        memory: 1.03,
        sm_memory: 1.05e5,
        cpc_memory: 2.1e5,
        uneven: 0.44,
        stream_k_step: 1.16,
        ping_pong_tile: 0.127,
        shared_read: 0.113,
        memory_flops: 47.6,
        l2_read_flops: 12.2,
        slowdown: 0.0,
        k_contiguous_b: 0.97,
        pack: [4.4e6, 3.5e6],
        pack_launch: 1.32,
        reduction_launch: 1.8,
        partial_sums: 2.87e6,
        ..HopperCosts::FITTED
    };
}
