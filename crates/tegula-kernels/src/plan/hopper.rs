//! Candidates and cost model of the `wgmma` pipelines for 16-bit types on Hopper.
//!
//! Blocks are persistent and process tiles in waves; a partial last wave leaves SMs idle. The time
//! of a k-step is a smooth maximum of these:
//!
//! * the time of `wgmma`, which grows where many SMs read the L2 cache at a time;
//! * the time of TMA, per requested row of 128 bytes. A row takes more clocks where it is not
//!   aligned to 128 bytes. The two SMs of a TPC share TMA throughput (measured). Blocks of a
//!   cluster request only their part of a multicast tile;
//! * the time of memory, and the latency of a load, divided by the stages.
//!
//! To this the model adds the epilogue of each tile, which ping-pong consumers hide, the prologue
//! of the pipeline, and the time of device memory that is not hidden. Stream-K adds the fix-up. The
//! total is bounded below by the power limit, to which traffic of memory and of the L2 cache
//! contributes.
//!
//! The constants are in [`HopperCosts`]. `benchmarks/cost/fit_plan.py` fits them to measurements on
//! an H100 and an H200: first to the times, then to the losses of the choices. It prints how good
//! the choices are.

use std::sync::LazyLock;

use tegula_ir::{MAX_SHARED_BYTES, Order2d, Wgmma};

use super::device::GpuDescription;
use super::hopper_costs::{HopperCosts, STEP_KNOTS};
use super::problem::Problem;
use super::recipe::{RecipeOf, Split};
use crate::hopper::{Hopper, Pipeline};

/// Rows and columns of tiles with split-K in a cluster, and the blocks that split k. Their step
/// times are those of tiles without split-K.
const CLUSTER_K_TILES: [(u32, u32, u32); 20] = [
    (64, 16, 2),
    (64, 32, 2),
    (64, 32, 4),
    (64, 48, 2),
    (64, 64, 2),
    (64, 64, 4),
    (64, 64, 8),
    (64, 96, 2),
    (64, 96, 4),
    (64, 128, 2),
    (64, 128, 4),
    (64, 128, 8),
    (64, 192, 2),
    (128, 64, 2),
    (128, 64, 4),
    (128, 96, 2),
    (128, 96, 4),
    (128, 128, 2),
    (128, 128, 4),
    (128, 192, 2),
];
/// Columns of tiles of 128 rows that are computed by the ping-pong schedule. An epilogue subtile
/// has at least 40 columns.
const PING_PONG_COLS: [u32; 8] = [96, 112, 120, 128, 144, 160, 168, 176];

/// Bytes of shared memory for stages, the staged C tile and the DSMEM reduction; the rest is left
/// for mbarriers.
const MAX_SHARED: u32 = MAX_SHARED_BYTES as u32 - 1024;
/// The maximum number of stages, and that of clipped copies, which zero a part of each. Small tiles
/// are multiplied faster than their copies arrive; with more stages they were not faster.
const MAX_STAGES: u32 = 12;
const MAX_CLIPPED_STAGES: u32 = 10;
/// Bytes of the L2 cache.
const L2_BYTES: usize = 50 << 20;
/// The maximum number of accumulators of a thread with a column-major C.
const MAX_TRANSPOSED_ACCUMULATORS: u32 = 168;
/// The maximum number of split-K ranges.
const MAX_SPLITS: usize = 132;
/// The minimum number of k-steps of a split-K range.
const MIN_STEPS: usize = 8;

/// The candidates for a product on a Hopper GPU, with predicted microseconds.
pub(crate) fn candidates(problem: &Problem, gpu: &GpuDescription) -> Vec<(RecipeOf<Hopper>, f64)> {
    let mut all = Vec::new();
    let splits = |pipeline, tiles| splits(problem, pipeline, tiles, gpu.multiprocessors);
    each_candidate(problem, splits, |recipe| all.push((recipe, predicted(problem, &recipe, gpu))));
    all
}

/// The first candidate with the least predicted microseconds. It does not predict the time of one
/// that takes longer than another to multiply alone.
pub(crate) fn fastest(problem: &Problem, gpu: &GpuDescription) -> Option<(RecipeOf<Hopper>, f64)> {
    let mut best: Option<(RecipeOf<Hopper>, f64)> = None;
    let splits = |pipeline, tiles| splits(problem, pipeline, tiles, gpu.multiprocessors);
    each_candidate(problem, splits, |recipe| {
        let limit = best.map_or(f64::INFINITY, |(_, time)| time);
        if let Some(time) = time_within(problem, &recipe, &HopperCosts::FITTED, gpu, limit)
            && best.is_none_or(|(_, least)| time.total_cmp(&least).is_lt())
        {
            best = Some((recipe, time));
        }
    });
    best
}

/// The candidates that divide k into this number of ranges: in a cluster or by split-K.
pub(crate) fn candidates_in_ranges(
    problem: &Problem,
    gpu: &GpuDescription,
    ranges: u32,
) -> Vec<(RecipeOf<Hopper>, f64)> {
    let mut all = Vec::new();
    let splits = |pipeline: Pipeline, _| match pipeline.cluster_k {
        1 => Some(Split::split_k(ranges)),
        cluster_k => (cluster_k == ranges).then_some(Split::Whole),
    };
    each_candidate(problem, splits, |recipe| all.push((recipe, predicted(problem, &recipe, gpu))));
    all
}

/// Visits the candidates with splits by pipeline and number of tiles.
fn each_candidate<S: IntoIterator<Item = Split>>(
    problem: &Problem,
    splits: impl Fn(Pipeline, usize) -> S,
    mut visit: impl FnMut(RecipeOf<Hopper>),
) {
    if !Wgmma::supports(problem.ty) || problem.m.min(problem.n).min(problem.batches) == 0 {
        return;
    }
    for swapped in [false, true] {
        // The layouts decide alike for all pipelines, but for split-K, which stores partial sums.
        let template = |split| {
            let kernel = Hopper::new(problem.ty, PIPELINES[0][0]);
            RecipeOf { swapped, split, ..RecipeOf::new(kernel) }.legalize(problem.layouts)
        };
        let (whole, split_k) = (template(Split::Whole), template(Split::SplitK(2)));
        let recipe = |pipeline, split| {
            let template = if let Split::SplitK(_) = split { split_k } else { whole };
            let kernel = Hopper { pipeline, schedule: split.schedule(), ..template.kernel };
            RecipeOf { kernel, split, ..template }
        };
        let orders = whole.kernel.orders;
        let along_k = [orders[0] == Order2d::RowMajor, orders[1] == Order2d::ColMajor];
        // A few rows of A are copied without the rest of the smallest tile. Elsewhere clipped
        // copies were not faster.
        let rows = if swapped { problem.n } else { problem.m };
        let is_clipped = |pipeline: &Pipeline| {
            let [tile_rows, ..] = pipeline.tile;
            let has_few_rows = along_k[0] && tile_rows == 64 && pipeline.clipped_lines(0, rows) < tile_rows;
            has_few_rows && pipeline.multicast_blocks() == 1
        };
        for pipeline in &PIPELINES[usize::from(along_k[1])] {
            // These spill registers where they transpose C.
            if pipeline.accumulators() > MAX_TRANSPOSED_ACCUMULATORS && orders[2] == Order2d::ColMajor {
                continue;
            }
            let pipeline = match is_clipped(pipeline) {
                true => Pipeline { clipped: true, stages: pipeline.stages.min(MAX_CLIPPED_STAGES), ..*pipeline },
                false => *pipeline,
            };
            // Kernels count tiles in 32 bits.
            let [tiles_m, tiles_n] = tiles(problem, pipeline, swapped);
            let count = tiles_m.saturating_mul(tiles_n).saturating_mul(problem.batches);
            if count > u32::MAX as usize / 2 {
                continue;
            }
            for split in splits(pipeline, count) {
                let recipe = recipe(pipeline, split);
                if !matches!(split, Split::StreamK(_)) || recipe.kernel.supports_stream_k() {
                    visit(recipe);
                }
            }
        }
    }
}

/// The predicted microseconds with the fitted costs.
fn predicted(problem: &Problem, recipe: &RecipeOf<Hopper>, gpu: &GpuDescription) -> f64 {
    time(problem, recipe, &HopperCosts::FITTED, gpu)
}

/// The pipelines of candidates, by whether B is contiguous along k.
static PIPELINES: LazyLock<[Vec<Pipeline>; 2]> = LazyLock::new(|| [false, true].map(|k| pipelines(k).collect()));

/// The pipelines of candidates.
///
/// Widths are multiples of 8 columns below 128, and of 16 from there on. So some candidate nearly
/// fills its last wave and its last tile. TMA copies a right operand that is not contiguous along k
/// in slabs of 64 columns; then multiples of 16 suffice.
fn pipelines(along_k: bool) -> impl Iterator<Item = Pipeline> {
    let widths = (16..128).step_by(8).chain((128..=256).step_by(16)).filter(move |cols| along_k || cols % 16 == 0);
    let multicast = STEP_KNOTS.into_iter().flat_map(move |(rows, blocks, knots)| {
        let clusters: &[[u32; 2]] = match (rows, blocks) {
            (_, 1) => &[[1, 1]],
            (_, 2) => &[[1, 2], [2, 1]],
            (192, _) => &[[1, 4]],
            _ => &[[1, 4], [2, 2], [4, 1]],
        };
        let fitted = knots[0]..=knots[knots.len() - 1];
        let widths = widths.clone().filter(move |cols| fitted.contains(cols));
        let cooperative = [along_k, false];
        widths
            .flat_map(move |cols| clusters.iter().map(move |cluster| pipeline([rows, cols], *cluster, 1, cooperative)))
    });
    let ping_pong = PING_PONG_COLS.into_iter().filter(move |cols| along_k || cols % 16 == 0).flat_map(move |cols| {
        [[1, 1], [1, 2], [2, 1]].into_iter().map(move |cluster| pipeline([128, cols], cluster, 1, [along_k, true]))
    });
    // Clusters that multicast both operands and rotate the copies of B were not measured.
    let multicast = multicast.chain(ping_pong).filter(move |pipeline| {
        let [cluster_m, cluster_n] = pipeline.cluster;
        !along_k || cluster_n == 1 || pipeline.tile[1].is_multiple_of(8 * cluster_m)
    });
    // Clusters that split k may multicast as well.
    let split = CLUSTER_K_TILES.into_iter().flat_map(move |(rows, cols, cluster_k)| {
        let clusters = [[1, 1], [1, 2], [2, 1], [1, 4], [4, 1]].into_iter();
        let clusters = clusters.filter(move |[cluster_m, cluster_n]| cluster_m * cluster_n * cluster_k <= 8);
        clusters.map(move |cluster| pipeline([rows, cols], cluster, cluster_k, [along_k, false]))
    });
    multicast.chain(split)
}

/// A pipeline with the stages that fit in shared memory with the C tile and the DSMEM reduction.
fn pipeline([rows, cols]: [u32; 2], cluster: [u32; 2], cluster_k: u32, [along_k, ping_pong]: [bool; 2]) -> Pipeline {
    let consumers = rows / 64;
    let pipeline = Pipeline {
        tile: [rows, cols, 64],
        consumers,
        ping_pong,
        stages: 2,
        cluster,
        cluster_k,
        clipped: false,
        group_m: 8,
    };
    let bytes = |tile: u32| tile * 2;
    let store_bytes = bytes(consumers * 2 * 64 * pipeline.subtile_cols(TMA_ROW_ELEMENTS as u32).unwrap_or(0));
    let dsmem_bytes = rows * cols / cluster_k * (cluster_k - 1) * size_of::<f32>() as u32;
    let stages = (MAX_SHARED - store_bytes - dsmem_bytes) / bytes((rows + pipeline.staged_cols(along_k)) * 64);
    // The largest tiles without a cluster have a taller raster group.
    let group_m = if [rows, cols, cluster[0] * cluster[1]] == [128, 256, 1] { 16 } else { 8 };
    Pipeline { stages: stages.min(MAX_STAGES), group_m, ..pipeline }
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

/// Elements of a 128-byte row that TMA copies.
const TMA_ROW_ELEMENTS: usize = 64;

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

/// The numbers of tiles along m and n, padded to whole clusters.
fn tiles(problem: &Problem, pipeline: Pipeline, swapped: bool) -> [usize; 2] {
    let [m, n] = if swapped { [problem.n, problem.m] } else { [problem.m, problem.n] };
    let Pipeline { tile: [rows, cols, _], cluster: [cluster_m, cluster_n], .. } = pipeline;
    let count = |extent: usize, tile: u32, blocks: u32| extent.div_ceil((tile * blocks) as usize) * blocks as usize;
    [count(m, rows, cluster_m), count(n, cols, cluster_n)]
}

/// The splits to try: whole tiles, split-K that fills the SMs at most once, and stream-K.
fn splits(problem: &Problem, pipeline: Pipeline, tiles: usize, multiprocessors: u32) -> impl Iterator<Item = Split> {
    let Problem { m, n, k, .. } = *problem;
    let k_steps = k.div_ceil(pipeline.tile[2] as usize);
    let concurrent_tiles = concurrent_tiles(multiprocessors, pipeline) as usize;
    let max_splits = (concurrent_tiles / tiles.max(1)).min(k_steps / MIN_STEPS).min(MAX_SPLITS) as u32;
    // Stream-K fills a partial last wave. Its blocks are at different k-steps, so the operands have
    // to fit in the L2 cache.
    let is_cached = m.saturating_add(n).saturating_mul(k) <= L2_BYTES / problem.ty.size();
    let is_partial = !tiles.is_multiple_of(concurrent_tiles)
        && tiles.saturating_mul(k_steps) >= MIN_STEPS * concurrent_tiles
        && tiles < 8 * concurrent_tiles;
    let stream_k = (is_partial && is_cached && pipeline.cluster_k == 1 && pipeline.multicast_blocks() <= 2)
        .then_some(Split::StreamK(concurrent_tiles as u32));
    // Split-K is hardly ever the fastest with split-K in a cluster, or with three consumers and
    // multicast.
    let is_splittable = pipeline.cluster_k == 1 && (pipeline.multicast_blocks() == 1 || pipeline.consumers < 3);
    let counts = [max_splits, max_splits / 2, max_splits / 4].into_iter();
    let splits = counts.filter(move |splits| *splits > 1 && is_splittable);
    std::iter::once(Split::Whole).chain(splits.map(Split::SplitK)).chain(stream_k)
}

/// Tiles computed at a time: one for each resident block, or for each group of blocks that split k.
fn concurrent_tiles(multiprocessors: u32, pipeline: Pipeline) -> u32 {
    let [clusters, sms] = pipeline.resident_clusters();
    (multiprocessors * clusters / sms).max(1) * pipeline.multicast_blocks()
}

/// The traffic of a block's operands per k-step, on average.
struct OperandTraffic {
    /// Microseconds of TMA while both SMs of the TPC are busy.
    tma: f64,
    /// Bytes read from the L2 cache.
    bytes: f64,
    /// Microseconds of out-of-bounds rows while all SMs are busy.
    zero_fill: f64,
}

impl OperandTraffic {
    fn of(problem: &Problem, recipe: &RecipeOf<Hopper>, costs: &HopperCosts, gpu: &GpuDescription) -> Self {
        let kernel = &recipe.kernel;
        let (tile, [cluster_m, cluster_n]) = (kernel.pipeline.tile, kernel.pipeline.cluster);
        let extents = if recipe.swapped { [problem.n, problem.m] } else { [problem.m, problem.n] };
        let (counts, rows) = (tiles(problem, kernel.pipeline, recipe.swapped), row_lengths(problem, recipe.swapped));
        let mut all = OperandTraffic { tma: 0.0, bytes: 0.0, zero_fill: 0.0 };
        for i in 0..2 {
            let (extent, count, tile) = (extents[i] as f64, counts[i] as f64, f64::from(tile[i]));
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
        }
        all
    }
}

/// The norm with the exponent 6, which approximates the maximum of the times of a k-step.
fn step_maximum(times: [f64; 4]) -> f64 {
    let sum: f64 = times.iter().map(|time| (time * time) * (time * time) * (time * time)).sum();
    sum.sqrt().cbrt()
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

/// The predicted microseconds of a product, or `None` if `wgmma` alone takes longer than `limit`.
fn time_within(
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
    if k_steps * wgmma_time * if is_stream_k { costs.stream_k_step * waves } else { waves.ceil() } > limit {
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
    // Each byte is read from memory once, by some block at some k-step.
    let bytes_per_step = bytes / (work_tiles * f64::from(cluster_k) * k_steps);
    // A stage is copied again once it is multiplied, and arrives after the latency of a load.
    let latency = costs.load_latency / f64::from(kernel.pipeline.stages);
    // The times of a wave of this number of tiles, and of the prologue.
    let wave = |tiles: f64| {
        let blocks = tiles * f64::from(cluster_k);
        let busy = blocks / f64::from(multiprocessors);
        // The SMs of a TPC share TMA and loads from memory.
        let [tma, blocks_of_tpc] =
            if busy > 0.5 { [traffic.tma, 2.0] } else { [traffic.tma * costs.tma_unshared, 1.0] };
        let contention = clock_scale * traffic.bytes / costs.l2_contention;
        let wgmma = wgmma_time + contention * busy * busy + traffic.zero_fill * busy;
        let memory = bytes_per_step / (gpu.memory(costs.memory) / blocks).min(costs.tpc_memory / blocks_of_tpc);
        let steps = k_steps * step_maximum([wgmma, tma, memory, latency]);
        let tile = match kernel.pipeline.ping_pong {
            false => steps + tile_time,
            // A consumer multiplies while the others store, unless storing takes longer.
            true => {
                let bounds = [steps + costs.ping_pong_tile, (steps + tile_time) / f64::from(kernel.pipeline.consumers)];
                bounds[0].max(bounds[1])
            }
        };
        (tile, costs.prologue * wgmma_time.min(tma))
    };
    let partial = work_tiles - waves * concurrent_tiles;
    let of_wave = |tiles: f64, exists: bool| if exists { wave(tiles) } else { (0.0, 0.0) };
    let (full, last) = (of_wave(concurrent_tiles, waves > 0.0 || is_stream_k), of_wave(partial, partial > 0.0));
    let compute = if is_stream_k {
        let contributors = (concurrent_tiles / work_tiles - 1.0).max(0.0);
        costs.stream_k_step * work_tiles / concurrent_tiles * (full.0 - tile_time)
            + (waves + 1.0) * tile_time
            + costs.fix_up
            + area * (costs.fix_up_area + costs.fix_up_contributor * contributors)
    } else {
        let last_store = if kernel.pipeline.ping_pong { tile_time } else { 0.0 };
        waves * full.0 + last.0 + last_store
    };
    let prologue = if waves > 0.0 { full.1 } else { last.1 };
    let read = |cols: f64| 1.0 / 64.0 + 1.0 / cols;
    let power = gpu.power_limited_flops() / (1.0 + costs.shared_read * (read(f64::from(cols)) / read(256.0) - 1.0));
    // The energy of traffic, in the floating-point operations that take as much.
    let read_flops = costs.l2_read_flops * traffic.bytes * work_tiles * f64::from(cluster_k) * k_steps;
    let flops = 2.0 * extents[0] * k * extents[1] * batches + read_flops + costs.memory_flops * bytes;
    let time = bound_maximum([compute, flops / power]);
    // Partial sums are padded to whole tiles.
    let padded = tiles_m * f64::from(rows) * tiles_n * f64::from(cols);
    let partial_bytes = padded * f64::from(splits) * batches * 2.0 * 4.0;
    let split_k_reduction = if splits > 1 { costs.reduction_launch + partial_bytes / costs.partial_sums } else { 0.0 };
    let packing = |i: usize| match recipe.packed[i] {
        true => 2.0 * size * batches * k * extents[i] / costs.pack[order_index(i)],
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
    use tegula_core::element::{Accuracy, Type};

    use super::*;
    use crate::plan::{Caps, OperandLayout, Plan, choose};

    fn chosen(ty: Type, [m, n, k]: [usize; 3], aligned_16: bool, compute: (u32, u32)) -> String {
        let layouts = [OperandLayout::new(Order2d::RowMajor, aligned_16); 3];
        let problem = Problem { ty, accuracy: Accuracy::Full, m, n, k, batches: 1, layouts };
        match choose(&problem, &Caps::Gpu(GpuDescription { compute, ..GpuDescription::H200 })).unwrap() {
            Plan::Gpu(recipe) => recipe.name(),
            Plan::Cpu => panic!("a GPU runs kernels"),
        }
    }

    /// Each choice is within 2 % of the fastest measured candidate.
    #[test]
    fn hopper_choice_for_five_shapes_is_unchanged() {
        for (sizes, expected) in [
            ([1024, 1024, 1024], "hopper_bf16_64x128x64_consumers1_stages8_ccc_swapped"),
            ([2048, 2048, 2048], "hopper_bf16_128x256x64_consumers2_stages4_raster16_ccc_swapped"),
            ([8192, 8192, 8192], "hopper_bf16_128x256x64_consumers2_stages4_raster16_ccc_swapped"),
            ([64, 4096, 4096], "hopper_bf16_64x64x64_consumers1_stages12_clusterk2_ccc_swapped"),
            ([16, 4096, 4096], "hopper_bf16_64x16x64_consumers1_stages12_clusterk2_ccc_swapped"),
        ] {
            assert_eq!(chosen(Type::BF16, sizes, true, (9, 0)), expected, "{sizes:?}");
        }
        assert!(chosen(Type::F16, [4095; 3], false, (9, 0)).ends_with("_packab"));
    }

    #[test]
    fn hopper_fastest_is_the_first_of_the_least_predicted_times() {
        let (row, col) = (OperandLayout::new(Order2d::RowMajor, true), OperandLayout::new(Order2d::ColMajor, false));
        let sizes = [1, 3, 64, 127, 777, 4096, 1 << 20].into_iter().flat_map(|m| [[m, 96, 4096], [m, 5120, 2880]]);
        for [m, n, k] in sizes.chain([[2, 704, 8768], [8192, 8192, 64], [64, 64, 1 << 20]]) {
            for (a, b, batches) in [(row, row, 1), (row, col, 1), (col, row, 7)] {
                let (ty, accuracy, layouts) = (Type::BF16, Accuracy::Full, [a, b, row]);
                let problem = Problem { ty, accuracy, m, n, k, batches, layouts };
                for gpu in [GpuDescription::H200, GpuDescription { multiprocessors: 7, ..GpuDescription::H100 }] {
                    let all = candidates(&problem, &gpu);
                    let least = all.iter().min_by(|a, b| a.1.total_cmp(&b.1));
                    assert_eq!(fastest(&problem, &gpu).as_ref(), least, "{problem:?}");
                }
            }
        }
    }

    /// Measured on an H200: 95.9 and 88.1 µs. Clusters of four read slower on 62 SMs than on 77.
    #[test]
    fn hopper_clusters_of_four_are_predicted_as_measured() {
        let layouts = [Order2d::RowMajor, Order2d::ColMajor, Order2d::RowMajor];
        let layouts = layouts.map(|order| OperandLayout::new(order, true));
        let (ty, accuracy, [m, n, k]) = (Type::BF16, Accuracy::Full, [3, 9856, 13824]);
        let problem = Problem { ty, accuracy, m, n, k, batches: 1, layouts };
        let all = candidates(&problem, &GpuDescription::H200);
        for (cols, measured) in [(160, 95.9), (128, 88.1)] {
            let is_one = |recipe: &RecipeOf<Hopper>| {
                let Pipeline { tile, cluster, cluster_k, .. } = recipe.kernel.pipeline;
                let is_whole = !recipe.swapped && recipe.split == Split::Whole;
                is_whole && (tile, cluster, cluster_k) == ([64, cols, 64], [1, 4], 1)
            };
            let (_, predicted) = all.iter().find(|(recipe, _)| is_one(recipe)).unwrap();
            assert!((predicted / measured - 1.0).abs() < 0.1, "64×{cols}: {predicted} µs, measured {measured}");
        }
    }

    #[test]
    fn hopper_cost_of_any_problem_is_a_number() {
        let none = [[usize::MAX; 3], [64, 1 << 40, 7]];
        let large = [[64, 64, usize::MAX], [1 << 36, 1, usize::MAX / 2]];
        for sizes in [[1, 1, 0], [1, 1, 1]].into_iter().chain(large).chain(none) {
            for multiprocessors in [1, 3, 8, 132] {
                let gpu = GpuDescription { multiprocessors, ..GpuDescription::H200 };
                let [m, n, k] = sizes;
                let layouts = [OperandLayout::new(Order2d::RowMajor, true); 3];
                let problem = Problem { ty: Type::BF16, accuracy: Accuracy::Full, m, n, k, batches: 1, layouts };
                let all = candidates(&problem, &gpu);
                assert!(all.iter().all(|(_, time)| !time.is_nan()), "{sizes:?} on {multiprocessors}");
                // Kernels count tiles in 32 bits.
                assert_eq!(all.is_empty(), none.contains(&sizes), "{sizes:?} on {multiprocessors}");
            }
        }
    }

    #[test]
    fn hopper_candidates_need_compute_capability_9_0_and_16_bit_types() {
        assert!(chosen(Type::BF16, [4096; 3], true, (8, 0)).starts_with("mma_"));
        assert!(chosen(Type::BF16, [4096; 3], true, (10, 0)).starts_with("mma_"));
        assert!(chosen(Type::F32, [4096; 3], true, (9, 0)).starts_with("register_"));
    }
}
