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
        step_times: [f64; STEP_TIMES] = [0.0752, 0.0777, 0.0863, 0.123, 0.2, 0.0898, 0.117, 0.155, 0.22, 0.0957, 0.114, 0.158, 0.208, 0.11, 0.144, 0.249, 0.391, 0.562, 0.154, 0.266, 0.4, 0.538, 0.156, 0.269, 0.461, 0.601, 0.226, 0.398, 0.482, 0.255, 0.403, 0.536, 0.292, 0.47, 0.618],
        /// Clocks of TMA per row of 128 bytes while both SMs of the TPC request rows: of rows
        /// aligned to 128, 64, 32 and 16 bytes.
        tma_row: [f64; 4] = [1.47, 2.24, 2.7, 3.95],
        /// The fraction of these clocks while the other SM of the TPC is idle.
        tma_unshared: f64 = 0.615,
        /// Clocks of TMA per out-of-bounds row while all SMs request them: zero fill is not free.
        tma_zero_fill: f64 = 4.97,
        /// The divisor of the bytes that an SM reads from the L2 cache. The quotient is the
        /// microseconds by which these reads slow down `wgmma` while all SMs read.
        l2_contention: f64 = 2.15e5,
        /// Microseconds from a TMA request to its arrival, under load.
        load_latency: f64 = 0.783,
        /// Microseconds until the first TMA request.
        launch_start: f64 = 1.49,
        /// Microseconds per tile until its first k-step.
        tile_start: f64 = 0.287,
        /// Duration of the pipeline's prologue, in k-steps.
        prologue: f64 = 2.35,
        /// Microseconds that multicast clusters add at the start. Those that also split k start in
        /// any case, which is a part of the DSMEM reduction.
        multicast_start: [f64; 2] = [0.197, 0.0108],
        /// Microseconds that multicast clusters add per tile.
        multicast_tile: f64 = 0.00505,
        /// Microseconds added where both operands are multicast.
        multicast_both: f64 = 0.0653,
        /// Microseconds of the store of 128 accumulators per thread.
        store: f64 = 0.337,
        /// The multiplier of this time where TMA cannot store C: for a row-major and a column-major
        /// C.
        element_store: [f64; 2] = [2.86, 3.2],
        /// Microseconds added per epilogue subtile beyond one for 64 columns.
        store_subtile: f64 = 0.182,
        /// Microseconds of the DSMEM reduction of any tile.
        dsmem_reduction: f64 = 0.159,
        /// Microseconds that the DSMEM reduction adds for a tile of 128×256, in proportion to the
        /// area.
        dsmem_reduction_area: f64 = 2.82,
        /// Microseconds that the DSMEM reduction adds per doubling of the blocks beyond two.
        dsmem_reduction_doubling: f64 = 0.201,
        /// Microseconds of the stream-K fix-up of any tile.
        fix_up: f64 = 1.62,
        /// Microseconds that the fix-up adds for a tile of 128×256, in proportion to the area.
        fix_up_area: f64 = 2.17,
        /// The same for each further contributor to a tile.
        fix_up_contributor: f64 = 3.96,
        /// The fraction of the memory bandwidth at which bytes take the part of the memory time
        /// that is not hidden.
        unhidden_memory: f64 = 4.66,
        /// The fraction of the memory bandwidth that bounds the time.
        memory: f64 = 1.14,
        /// Bytes per microsecond that an SM reads from memory.
        sm_memory: f64 = 1.68e5,
        /// Bytes per microsecond that the SMs of a CPC read from memory.
        cpc_memory: f64 = 2.78e5,
        /// The fraction by which the fullest CPC has more blocks than the others, while half of
        /// the SMs are idle.
        uneven: f64 = 0.34,
        /// The multiplier by which k-steps take longer under stream-K.
        stream_k_step: f64 = 1.09,
        /// The multiplier of the step time in the ping-pong schedule.
        ping_pong_step: f64 = 0.935,
        /// Microseconds per tile between two consumers in the ping-pong schedule.
        ping_pong_tile: f64 = 0.256,
        /// Weight of shared memory reads beyond those of 256 columns in the power bound, by long
        /// runs at the power limit.
        shared_read: f64 = 0.1,
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
        pack: [f64; 2] = [4.05e6, 3.68e6],
        /// Microseconds of the packing launch.
        pack_launch: f64 = 1.2,
        /// Microseconds of the launch of the split-K reduction.
        reduction_launch: f64 = 1.25,
        /// Bytes per microsecond of partial sums, written and read.
        partial_sums: f64 = 4.74e6,
    }
}
