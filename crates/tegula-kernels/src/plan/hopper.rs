//! Candidates of the `wgmma` pipelines for 16-bit types on Hopper: tiles, clusters, stages, raster
//! groups and splits. Their predicted times are those of `hopper_time`.

use std::sync::LazyLock;

use tegula_ir::{MAX_SHARED_BYTES, Order2d, Wgmma};

use super::device::GpuDescription;
use super::hopper_correction::{NEAR, least_corrected, trees};
use super::hopper_costs::{HopperCosts, STEP_KNOTS};
use super::hopper_time::{TMA_ROW_ELEMENTS, concurrent_tiles, tiles, time, time_within};
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
/// Bytes of A that stay in the L2 cache beside B and C.
const RASTER_BYTES: usize = 12 << 20;
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
    correct(problem, gpu, &mut all);
    all
}

/// The first candidate with the least predicted microseconds.
pub(crate) fn fastest(problem: &Problem, gpu: &GpuDescription) -> Option<(RecipeOf<Hopper>, f64)> {
    let near = near_fastest(problem, gpu);
    let (best, least) = first_of_least(near.iter().copied())?;
    // Only those that may become faster than the best are corrected.
    let trees = trees(problem, gpu, least);
    let bound = trees.corrected(problem, &best, gpu, least);
    let may_win = |time: f64| time <= least * NEAR && least_corrected(time) <= bound;
    let near = near.into_iter().filter(|(_, time)| may_win(*time));
    first_of_least(near.map(|(recipe, time)| (recipe, trees.corrected(problem, &recipe, gpu, time))))
}

/// The first candidate of the least time.
fn first_of_least(all: impl Iterator<Item = (RecipeOf<Hopper>, f64)>) -> Option<(RecipeOf<Hopper>, f64)> {
    all.reduce(|best, one| if one.1.total_cmp(&best.1).is_lt() { one } else { best })
}

/// The candidates near the least predicted time of those before. Times are not predicted for
/// candidates that take longer to multiply alone.
fn near_fastest(problem: &Problem, gpu: &GpuDescription) -> Vec<(RecipeOf<Hopper>, f64)> {
    let (mut near, mut least) = (Vec::new(), f64::INFINITY);
    let splits = |pipeline, tiles| splits(problem, pipeline, tiles, gpu.multiprocessors);
    each_candidate(problem, splits, |recipe| {
        let limit = least * NEAR;
        let time = time_within(problem, &recipe, &HopperCosts::FITTED, gpu, limit);
        if let Some(time) = time.filter(|time| *time <= limit) {
            least = least.min(time);
            near.push((recipe, time));
        }
    });
    near
}

/// Corrects the predicted times that are near the least.
fn correct(problem: &Problem, gpu: &GpuDescription, candidates: &mut [(RecipeOf<Hopper>, f64)]) {
    let least = candidates.iter().map(|(_, time)| *time).fold(f64::INFINITY, f64::min);
    let trees = trees(problem, gpu, least);
    for (recipe, time) in candidates.iter_mut().filter(|(_, time)| *time <= least * NEAR) {
        *time = trees.corrected(problem, recipe, gpu, *time);
    }
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
    correct(problem, gpu, &mut all);
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
            let pipeline = Pipeline { group_m: raster_group(problem, &pipeline, [tiles_m, tiles_n]), ..pipeline };
            for split in splits(pipeline, count) {
                let recipe = recipe(pipeline, split);
                if !matches!(split, Split::StreamK(_)) || recipe.kernel.supports_stream_k() {
                    visit(recipe);
                }
            }
        }
    }
}

/// The predicted microseconds with the fitted costs, without the correction.
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
    let subtile_cols = pipeline.subtile_cols(TMA_ROW_ELEMENTS as u32).unwrap_or(0);
    let store_bytes = bytes(consumers * pipeline.staging_tiles() * 64 * subtile_cols);
    let dsmem_bytes = rows * cols / cluster_k * (cluster_k - 1) * size_of::<f32>() as u32;
    let stages = (MAX_SHARED - store_bytes - dsmem_bytes) / bytes((rows + pipeline.staged_cols(along_k)) * 64);
    Pipeline { stages: stages.min(MAX_STAGES), ..pipeline }
}

/// The cluster tile rows of a raster group.
///
/// The blocks of a wave read the least if their tiles form about a square. If A, B and C together
/// exceed the L2 cache, C displaces B, and each group reads B from memory again. Groups are then
/// taller, as long as their rows of A stay in the cache.
fn raster_group(problem: &Problem, pipeline: &Pipeline, [tiles_m, tiles_n]: [usize; 2]) -> u32 {
    let Pipeline { tile: [rows, cols, _], cluster: [cluster_m, _], .. } = *pipeline;
    let square = if [rows, cols, pipeline.multicast_blocks()] == [128, 256, 1] { 16 } else { 8 };
    let (Problem { m, n, k, .. }, size) = (*problem, problem.ty.size());
    let operands = [[m, k], [k, n], [m, n]].map(|[rows, cols]| rows.saturating_mul(cols));
    let is_cached = operands.into_iter().fold(0, usize::saturating_add) <= L2_BYTES / size;
    let fits = |group: &u32| (group * rows * cluster_m) as usize <= RASTER_BYTES / size / k.max(1);
    let is_useful = |group: &u32| (group * cluster_m) as usize <= tiles_m.next_power_of_two();
    match is_cached || tiles_n == 1 {
        true => square,
        false => [64, 32, 16].into_iter().filter(is_useful).find(fits).map_or(square, |tall| tall.max(square)),
    }
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

    /// Each choice is within 2 % of the fastest measured candidate, but for 64×4096×4096: 11.2 µs,
    /// 128×64 in a cluster along k 10.6.
    #[test]
    fn hopper_choice_for_five_shapes_is_unchanged() {
        for (sizes, expected) in [
            ([1024, 1024, 1024], "hopper_bf16_64x128x64_consumers1_stages8"),
            ([2048, 2048, 2048], "hopper_bf16_128x256x64_consumers2_stages4_raster16"),
            ([8192, 8192, 8192], "hopper_bf16_128x168x64_consumers2_stages5_pingpong_ccc_swapped"),
            ([64, 4096, 4096], "hopper_bf16_64x64x64_consumers1_stages12_clusterk2"),
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

    /// B is read once for each raster group where C displaces it from the L2 cache.
    #[test]
    fn hopper_raster_groups_are_tall_for_large_products_with_short_k() {
        let layouts = [OperandLayout::new(Order2d::RowMajor, true); 3];
        let group = |tile_cols: u32, [m, n, k]: [usize; 3]| {
            let problem = Problem { ty: Type::BF16, accuracy: Accuracy::Full, m, n, k, batches: 1, layouts };
            let pipeline = pipeline([128, tile_cols], [2, 1], 1, [true, tile_cols < 256]);
            raster_group(&problem, &pipeline, tiles(&problem, pipeline, false))
        };
        let of = |sizes| [176, 256].map(|cols| group(cols, sizes));
        // 64 tile rows, of 128 KiB each.
        assert_eq!(of([8192, 32768, 512]), [32, 32]);
        assert_eq!(of([8192, 24576, 1536]), [16, 16]);
        // Rows of A do not stay in the cache, or everything does, or there are few rows.
        assert_eq!([of([8192, 8192, 3584]), of([2048, 3072, 768]), of([512, 1 << 20, 512])], [[8, 8]; 3]);
        assert_eq!(of([usize::MAX; 3]), [8, 8]);
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
