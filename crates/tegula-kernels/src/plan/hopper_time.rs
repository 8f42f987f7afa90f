//! The predicted time of the `wgmma` pipelines for 16-bit types on Hopper.
//!
//! Blocks are persistent and process tiles in waves; a partial last wave leaves SMs idle. The time
//! of a k-step is a smooth maximum of these:
//!
//! * the time of `wgmma`, which grows where many SMs read the L2 cache at a time;
//! * the time of TMA, per requested row of 128 bytes. A row takes more clocks where it is not
//!   aligned to 128 bytes. The two SMs of a TPC share TMA throughput (measured). Blocks of a
//!   cluster request only their part of a multicast tile;
//! * the time of memory, also that of an SM and of a CPC, and the latency of a load, divided by the
//!   stages. A tile that is contiguous along m or n is copied with elements of the next one, unless
//!   it is a multiple of 64 wide. Tiles of the first wave find these in the L2 cache. Later waves
//!   read them from memory again (measured).
//!
//! To this the model adds the epilogue of each tile, which overlaps with the copies of the next one
//! and which ping-pong consumers hide, the prologue of the pipeline, and the time of device memory
//! that is not hidden. Stream-K adds the fix-up. Power lowers the clocks, and its limit bounds the
//! total, to which traffic of memory and of the L2 cache contributes.
//!
//! The constants are in [`HopperCosts`]. `benchmarks/cost/fit_plan.py` fits them to measurements on
//! an H100 and an H200: first to the times, then to the losses of the choices. It prints how good
//! the choices are.

use tegula_ir::Order2d;

use super::device::GpuDescription;
use super::hopper_costs::{HopperCosts, STEP_KNOTS};
use super::problem::Problem;
use super::recipe::{RecipeOf, Split};
use crate::hopper::{Hopper, Pipeline};
use crate::pack;

/// Elements of a 128-byte row that TMA copies.
pub(super) const TMA_ROW_ELEMENTS: usize = 64;
/// Rows and columns of a tile that a block packs.
const PACK_TILE: f64 = pack::TILE as f64;
/// Elements of a 64-byte access to memory.
const MEMORY_ACCESS_ELEMENTS: u32 = 32;

/// SMs of a CPC, three TPCs.
const SMS_OF_CPC: f64 = 6.0;

/// The numbers of tiles along m and n, padded to whole clusters.
pub(super) fn tiles(problem: &Problem, pipeline: Pipeline, swapped: bool) -> [usize; 2] {
    let [m, n] = if swapped { [problem.n, problem.m] } else { [problem.m, problem.n] };
    let Pipeline { tile: [rows, cols, _], cluster: [cluster_m, cluster_n], .. } = pipeline;
    let count = |extent: usize, tile: u32, blocks: u32| extent.div_ceil((tile * blocks) as usize) * blocks as usize;
    [count(m, rows, cluster_m), count(n, cols, cluster_n)]
}

/// Tiles computed at a time: one for each resident block, or for each group of blocks that split k.
pub(super) fn concurrent_tiles(multiprocessors: u32, pipeline: Pipeline) -> u32 {
    let [clusters, sms] = pipeline.resident_clusters();
    (multiprocessors * clusters / sms).max(1) * pipeline.multicast_blocks()
}

/// The `wgmma` time of a k-step in microseconds. Times of widths between two knots are interpolated
/// linearly.
fn step_time(costs: &HopperCosts, pipeline: &Pipeline) -> f64 {
    let [rows, cols, _] = pipeline.tile;
    let group = pipeline.multicast_blocks();
    let mut first = 0;
    for (known_rows, known_group, knots) in STEP_KNOTS {
        if [known_rows, known_group] == [rows, group] {
            let i = knots.partition_point(|width| *width < cols).clamp(1, knots.len() - 1);
            let [narrow, wide] = [knots[i - 1], knots[i]].map(f64::from);
            let [lower, upper] = [costs.step_times[first + i - 1], costs.step_times[first + i]];
            return lower + (upper - lower) * (f64::from(cols) - narrow) / (wide - narrow);
        }
        first += knots.len();
    }
    f64::NAN
}

/// The lengths of contiguous rows of the kernel's left and right operands, if packed.
fn row_lengths(problem: &Problem, swapped: bool) -> [usize; 2] {
    let Problem { m, n, k, layouts, .. } = *problem;
    let a = if layouts[0].order == Order2d::ColMajor { m } else { k };
    let b = if layouts[1].order == Order2d::ColMajor { k } else { n };
    if swapped { [b, a] } else { [a, b] }
}

/// The index into [`HopperCosts::tma_row`] for rows of this length.
fn alignment(row: usize) -> usize {
    (0..3).find(|i| row.is_multiple_of(TMA_ROW_ELEMENTS >> i)).unwrap_or(3)
}

/// The traffic of a block's operands per k-step, on average.
struct OperandTraffic {
    /// Microseconds of TMA while both SMs of the TPC are busy.
    tma: f64,
    /// Bytes read from the L2 cache.
    bytes: f64,
    /// Microseconds of out-of-bounds rows while all SMs are busy.
    zero_fill: f64,
    /// Bytes per k-step that the copies of the next tile read as well.
    overlap: f64,
}

impl OperandTraffic {
    fn of(problem: &Problem, recipe: &RecipeOf<Hopper>, costs: &HopperCosts, gpu: &GpuDescription) -> Self {
        let kernel = &recipe.kernel;
        let (tile, [cluster_m, cluster_n]) = (kernel.pipeline.tile, kernel.pipeline.cluster);
        let extents = if recipe.swapped { [problem.n, problem.m] } else { [problem.m, problem.n] };
        let (counts, rows) = (tiles(problem, kernel.pipeline, recipe.swapped), row_lengths(problem, recipe.swapped));
        let mut all = OperandTraffic { tma: 0.0, bytes: 0.0, zero_fill: 0.0, overlap: 0.0 };
        for i in 0..2 {
            let (extent, count, width) = (extents[i] as f64, counts[i] as f64, tile[i]);
            let tile = f64::from(width);
            // An operand contiguous along m or n is copied in whole rows of 128 bytes.
            let along_k = kernel.orders[i] == [Order2d::RowMajor, Order2d::ColMajor][i];
            let line = if along_k { 1.0 } else { TMA_ROW_ELEMENTS as f64 };
            let in_bounds = ((extent / line).ceil() * line / count).min((tile / line).ceil() * line);
            let share = 1.0 / f64::from([cluster_n, cluster_m][i]);
            let row = costs.tma_row[if recipe.packed[i] { 0 } else { alignment(rows[i]) }];
            let copied = match kernel.pipeline.clipped && along_k {
                true => f64::from(kernel.pipeline.clipped_lines(i, extents[i])),
                false => (tile / line).ceil() * line,
            };
            all.tma += share * in_bounds * row / gpu.clocks();
            all.bytes += share * extent / count * (TMA_ROW_ELEMENTS * problem.ty.size()) as f64;
            all.zero_fill += share * (copied - in_bounds) * costs.tma_zero_fill / gpu.clocks();
            if !along_k && extents[i] > width as usize {
                let aligned = 1 << width.trailing_zeros().min(MEMORY_ACCESS_ELEMENTS.ilog2());
                let overlap = copied - tile + f64::from(MEMORY_ACCESS_ELEMENTS - aligned);
                all.overlap += share * overlap * (TMA_ROW_ELEMENTS * problem.ty.size()) as f64;
            }
        }
        all
    }
}

/// The norm with the exponent 6, which approximates the maximum of the times of a k-step.
fn step_maximum(times: [f64; 4]) -> f64 {
    let sum: f64 = times.iter().map(|time| (time * time) * (time * time) * (time * time)).sum();
    cube_root(sum.sqrt())
}

/// The cube root, in a fifth of the time of the standard library's, which rounds correctly.
///
/// A third of the exponent is within 6 % of the root; each of Halley's iterations cubes the error.
fn cube_root(x: f64) -> f64 {
    if !x.is_normal() || x < 0.0 {
        return x.cbrt();
    }
    // Two thirds of the bits of 1.0, less a constant that balances the error.
    const BIAS: u64 = 0x2A9F_7893_0000_0000;
    let mut root = f64::from_bits(x.to_bits() / 3 + BIAS);
    for _ in 0..2 {
        let cube = root * root * root;
        root *= (cube + 2.0 * x) / (2.0 * cube + x);
    }
    root
}

/// The norm with the exponent 8, which approximates the maximum of the compute and power bounds.
fn bound_maximum(times: [f64; 2]) -> f64 {
    let fourth = |time: f64| (time * time) * (time * time);
    let sum: f64 = times.iter().map(|&time| fourth(time) * fourth(time)).sum();
    sum.sqrt().sqrt().sqrt()
}

/// The predicted microseconds of a product.
pub(super) fn time(problem: &Problem, recipe: &RecipeOf<Hopper>, costs: &HopperCosts, gpu: &GpuDescription) -> f64 {
    time_within(problem, recipe, costs, gpu, f64::INFINITY).unwrap_or(f64::INFINITY)
}

/// The predicted microseconds of a product, or `None` if the start and `wgmma` alone take longer
/// than `limit`.
pub(super) fn time_within(
    problem: &Problem,
    recipe: &RecipeOf<Hopper>,
    costs: &HopperCosts,
    gpu: &GpuDescription,
    limit: f64,
) -> Option<f64> {
    let (multiprocessors, clock_scale) = (gpu.multiprocessors, gpu.clock_scale());
    let kernel = recipe.kernel;
    let Pipeline { tile: [rows, cols, depth], cluster_k, .. } = kernel.pipeline;
    let splits = if let Split::SplitK(splits) = recipe.split { splits } else { 1 };
    let is_stream_k = matches!(recipe.split, Split::StreamK(_));
    let k_steps = ((problem.k as f64 / f64::from(depth)).ceil() / f64::from(splits * cluster_k)).ceil().max(1.0);
    let wgmma_time = clock_scale * step_time(costs, &kernel.pipeline);
    let wgmma_time = if kernel.orders[1] == Order2d::ColMajor { costs.k_contiguous_b * wgmma_time } else { wgmma_time };
    let wgmma_time = if kernel.pipeline.ping_pong { costs.ping_pong_step * wgmma_time } else { wgmma_time };
    let [tiles_m, tiles_n] = tiles(problem, kernel.pipeline, recipe.swapped);
    let [tiles_m, tiles_n] = [tiles_m as f64, tiles_n as f64];
    let work_tiles = tiles_m * tiles_n * problem.batches as f64 * f64::from(splits);
    let concurrent_tiles = f64::from(concurrent_tiles(multiprocessors, kernel.pipeline));
    let waves = work_tiles / concurrent_tiles;
    let steps = k_steps * if is_stream_k { costs.stream_k_step * waves } else { waves.ceil() };
    if costs.launch_start + steps * wgmma_time > limit {
        return None;
    }
    let waves = waves.floor();
    let area = f64::from(rows * cols) / (128.0 * 256.0);
    let extents =
        if recipe.swapped { [problem.n as f64, problem.m as f64] } else { [problem.m as f64, problem.n as f64] };
    let (k, batches, size) = (problem.k as f64, problem.batches as f64, problem.ty.size() as f64);
    // The index of the order of the kernel's operand A (0), B (1) or C (2): 0 for row-major, 1 for
    // column-major.
    let order_index = |i: usize| {
        let operand = if recipe.swapped && i < 2 { 1 - i } else { i };
        usize::from((problem.layouts[operand].order == Order2d::ColMajor) != recipe.swapped)
    };
    let element_store = if kernel.tma_store || splits > 1 { 1.0 } else { costs.element_store[order_index(2)] };
    let dsmem_reduction = match cluster_k {
        1 => 0.0,
        _ => {
            let doublings = f64::from(cluster_k.ilog2() - 1);
            costs.dsmem_reduction + costs.dsmem_reduction_area * area + costs.dsmem_reduction_doubling * doublings
        }
    };
    let subtiles = match kernel.pipeline.subtile_cols(TMA_ROW_ELEMENTS as u32) {
        Some(cols) if kernel.tma_store => (64.0 / f64::from(cols)).max(1.0),
        _ => 1.0,
    };
    let store = costs.store * element_store + costs.store_subtile * (subtiles - 1.0);
    let [cluster_m, cluster_n] = kernel.pipeline.cluster;
    let [multicast_start, multicast_tile] = if cluster_m * cluster_n > 1 {
        [costs.multicast_start[usize::from(cluster_k > 1)], costs.multicast_tile]
    } else {
        [0.0; 2]
    };
    let multicast_both = if cluster_m.min(cluster_n) > 1 { costs.multicast_both } else { 0.0 };
    let accumulators = f64::from(kernel.pipeline.accumulators()) / 128.0;
    let tile_time = clock_scale
        * (costs.tile_start + multicast_tile + accumulators / f64::from(cluster_k) * store + dsmem_reduction);
    let traffic = OperandTraffic::of(problem, recipe, costs, gpu);
    let bytes = (extents[0] * k + k * extents[1] + extents[0] * extents[1]) * batches * size;
    // Each byte is read from memory by some block at some k-step.
    let later_waves = (1.0 - concurrent_tiles / work_tiles).max(0.0);
    let bytes_per_step = bytes / (work_tiles * f64::from(cluster_k) * k_steps) + later_waves * traffic.overlap;
    // A stage is copied again once it is multiplied, and arrives after the latency of a load.
    let latency = costs.load_latency / f64::from(kernel.pipeline.stages);
    // The times of a wave of this number of tiles, of such a wave after another, and of the
    // prologue.
    let wave = |tiles: f64| {
        let blocks = tiles * f64::from(cluster_k);
        let busy = blocks / f64::from(multiprocessors);
        // The SMs of a TPC share TMA, and the SMs of a CPC loads from memory. The scheduler fills
        // the TPCs evenly with their first block, and unevenly with their second. Clusters of four
        // have second blocks earlier, as they do not fill the GPCs.
        let shares_tpcs = tiles > 0.5 * concurrent_tiles;
        let tma = if shares_tpcs { traffic.tma } else { traffic.tma * costs.tma_unshared };
        let blocks_of_cpc = match shares_tpcs {
            false => (busy * SMS_OF_CPC).ceil(),
            true => SMS_OF_CPC * (1.0 - costs.uneven * (1.0 - busy)),
        };
        let contention = clock_scale * traffic.bytes / costs.l2_contention;
        let wgmma = wgmma_time + contention * busy * busy + traffic.zero_fill * busy;
        let block_memory = costs.sm_memory.min(costs.cpc_memory / blocks_of_cpc);
        let memory = bytes_per_step / (gpu.memory(costs.memory) / blocks).min(block_memory);
        let steps = k_steps * step_maximum([wgmma, tma, memory, latency]);
        let tile = match kernel.pipeline.ping_pong {
            false => steps + tile_time,
            // A consumer multiplies while the others store, unless storing takes longer.
            true => {
                let bounds = [steps + costs.ping_pong_tile, (steps + tile_time) / f64::from(kernel.pipeline.consumers)];
                bounds[0].max(bounds[1])
            }
        };
        // The copies of a tile overlap with the epilogue of the one before, if the stages suffice.
        let next_tile = if kernel.pipeline.ping_pong {
            tile
        } else {
            let copy = step_maximum([0.0, tma, memory, latency]);
            let exposed = (tile_time - f64::from(kernel.pipeline.stages) * copy).max(0.0);
            step_maximum([k_steps * wgmma + tile_time, k_steps * copy + exposed, 0.0, 0.0])
        };
        (tile, next_tile, costs.prologue * wgmma_time.min(tma))
    };
    let partial = work_tiles - waves * concurrent_tiles;
    let of_wave = |tiles: f64, exists: bool| if exists { wave(tiles) } else { (0.0, 0.0, 0.0) };
    let (full, last) = (of_wave(concurrent_tiles, waves > 0.0 || is_stream_k), of_wave(partial, partial > 0.0));
    let compute = if is_stream_k {
        let contributors = (concurrent_tiles / work_tiles - 1.0).max(0.0);
        costs.stream_k_step * work_tiles / concurrent_tiles * (full.0 - tile_time)
            + (waves + 1.0) * tile_time
            + costs.fix_up
            + area * (costs.fix_up_area + costs.fix_up_contributor * contributors)
    } else {
        let last_store = if kernel.pipeline.ping_pong { tile_time } else { 0.0 };
        // Of several consumers, one stores while another multiplies, from the first tile on.
        let first = if kernel.pipeline.consumers == 1 { full.0 } else { full.1 };
        let tiles = if waves > 0.0 { first + (waves - 1.0) * full.1 + last.1 } else { last.0 };
        tiles + last_store
    };
    let prologue = if waves > 0.0 { full.2 } else { last.2 };
    let read = |cols: f64| 1.0 / 64.0 + 1.0 / cols;
    let power = gpu.power_limited_flops() / (1.0 + costs.shared_read * (read(f64::from(cols)) / read(256.0) - 1.0));
    // The energy of traffic, in the floating-point operations that take as much.
    let read_flops = costs.l2_read_flops * traffic.bytes * work_tiles * f64::from(cluster_k) * k_steps;
    let flops = 2.0 * extents[0] * k * extents[1] * batches + read_flops + costs.memory_flops * bytes;
    // Clocks fall with the power that operations take, also below the limit. Padding and idle SMs
    // take hardly any.
    let time = bound_maximum([compute + costs.slowdown * flops / power, flops / power]);
    // Partial sums are padded to whole tiles.
    let padded = tiles_m * f64::from(rows) * tiles_n * f64::from(cols);
    let partial_bytes = padded * f64::from(splits) * batches * 2.0 * 4.0;
    let split_k_reduction = if splits > 1 { costs.reduction_launch + partial_bytes / costs.partial_sums } else { 0.0 };
    // A block packs a whole tile, however little of it is in bounds.
    let padded = |extent: f64| (extent / PACK_TILE).ceil() * PACK_TILE;
    let packing = |i: usize| match recipe.packed[i] {
        true => 2.0 * size * batches * padded(k) * padded(extents[i]) / costs.pack[order_index(i)],
        false => 0.0,
    };
    // One launch packs both operands.
    let pack_launch = if recipe.packed == [false; 2] { 0.0 } else { costs.pack_launch };
    let unhidden = bytes / gpu.memory(costs.unhidden_memory);
    let start = costs.launch_start + multicast_start + multicast_both;
    Some(start + prologue + time + unhidden + split_k_reduction + pack_launch + packing(0) + packing(1))
}

#[cfg(test)]
mod tests {
    use super::cube_root;

    #[test]
    fn cube_root_is_accurate() {
        for exponent in -300..300 {
            for fraction in [1.0, 1.3, 2.2, 3.9, 5.0, 7.7, 9.99] {
                let x = fraction * 10f64.powi(exponent);
                assert!((cube_root(x) / x.cbrt() - 1.0).abs() < 1e-9, "{x}");
            }
        }
        assert_eq!([0.0, f64::INFINITY].map(cube_root), [0.0, f64::INFINITY]);
        assert!(cube_root(f64::NAN).is_nan());
    }
}
