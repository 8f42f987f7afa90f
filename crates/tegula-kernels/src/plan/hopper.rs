//! Recipes of Hopper's matrix units for 16-bit numbers, and how long they take there.
//!
//! Blocks stay and go from tile to tile, in waves, of which the last may leave multiprocessors without work. A step of a tile takes the longer of two
//! times, or a little more where they are alike. One is what multiplying takes, and more of it where many multiprocessors read the L2 cache at a time.
//! The other is what the copy engine takes, by the rows of 128 bytes that it is asked for, which are many clocks where they do not begin at such
//! multiples; two multiprocessors share an engine's rate, and blocks of a cluster ask for their part only. Besides come the end of each tile, the
//! first steps, for which nothing is at hand, and what of the memory's time is not hidden.
//!
//! Where workers share tiles evenly, their sums meet once more. All of it takes no less than what device memory has to bring, and what the card has power
//! for.
//!
//! The numbers are fitted to measurements of 557 shapes on an H200 by `benchmarks/cost/hopper.py`. There the choice is within 3 % of the best of some 60
//! that were looked at once on 61 %, within 5 % on 74 %, and 3.4 % are lost in the mean; 61 %, 73 % and 3.4 % if a fifth of the shapes at a time is left out
//! of the fit.

use tegula_ir::{MAX_SHARED_BYTES, Order2d, Wgmma};

use super::problem::Problem;
use super::recipe::{RecipeOf, Split};
use crate::hopper::{Hopper, Pipeline};

/// Columns, and microseconds that multiplying a step of such a tile takes.
type Steps = &'static [(u32, f64)];

/// By the rows of a tile and the blocks that share its factors. Other columns have times between those of their neighbours.
const STEPS: [(u32, u32, Steps); 9] = [
    (64, 1, &[(16, 0.113), (32, 0.129), (64, 0.135), (128, 0.18), (192, 0.246)]),
    (64, 2, &[(24, 0.134), (64, 0.13), (128, 0.193), (192, 0.263)]),
    (64, 4, &[(24, 0.155), (64, 0.132), (128, 0.187), (192, 0.273)]),
    (128, 1, &[(24, 0.193), (64, 0.215), (128, 0.3), (192, 0.433), (256, 0.581)]),
    (128, 2, &[(64, 0.205), (128, 0.299), (192, 0.459), (256, 0.62)]),
    (128, 4, &[(64, 0.202), (128, 0.324), (192, 0.52), (256, 0.693)]),
    (192, 1, &[(64, 0.296), (128, 0.439), (160, 0.536)]),
    (192, 2, &[(64, 0.278), (128, 0.454), (160, 0.586)]),
    (192, 4, &[(64, 0.332), (128, 0.513), (160, 0.647)]),
];
/// Tiles of blocks that share k, and how many do. They take the times of those that do not.
const SPLIT: [(u32, u32, u32); 16] = [
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
    (128, 64, 2),
    (128, 64, 4),
    (128, 128, 2),
    (128, 128, 4),
];

/// Bytes of shared memory for stages, what C is stored through and what blocks send each other; barriers need a few more.
const MAX_SHARED: u32 = MAX_SHARED_BYTES as u32 - 1024;
/// Clocks a microsecond.
const CLOCK: f64 = 1755.0;
/// Clocks that the copy engine takes for a row, where both its multiprocessors ask: where rows begin at multiples of 128 bytes, of 64, of 32, of 16.
const ROWS: [f64; 4] = [1.34, 1.87, 2.46, 4.06];
/// Of that, what one takes if it has the engine for itself.
const ALONE: f64 = 0.578;
/// Clocks that a row outside of the matrix takes if all multiprocessors ask for such rows: they are not fetched, but not free.
const OUTSIDE: f64 = 6.67;
/// Bytes a microsecond to a multiprocessor, as they slow down multiplying, if all multiprocessors get as many.
const L2: f64 = 2.59e5;
/// How sharply the longer of two times decides.
const SHARP: i32 = 6;
/// How sharply the longest of multiplying, what the memory takes, and what power there is.
const SHARPEST: i32 = 8;
/// Microseconds until the first steps are asked for, and until a tile is begun; steps that the first of all is worth.
const START: [f64; 2] = [0.993, 0.248];
const FIRST: f64 = 3.86;
/// What clusters of blocks that share factors cost at the start, and at each tile; and where they share both, besides.
const TOGETHER: [f64; 2] = [0.592, 0.0625];
const BOTH: f64 = 0.156;
/// Microseconds that storing takes where threads have 128 sums, whatever the tile, and how much longer it takes where the copy engine cannot: C as it
/// lies, and transposed.
const STORE: f64 = 0.783;
const SINGLE: [f64; 2] = [2.6, 2.84];
/// Microseconds that it takes longer for each piece more in which 64 columns are stored.
const PIECES: f64 = 0.519;
/// Microseconds that adding takes what blocks of a cluster have summed: any tile, a tile of 128×256, and for each time that there are twice as many.
const EXCHANGE: [f64; 3] = [0.299, 3.35, 0.255];
/// Microseconds that it takes where workers share tiles evenly, until their sums meet: of any, of tiles of 128×256 what comes on top, and for each more
/// that has steps of a tile.
const MEETING: [f64; 3] = [3.92, 1.27, 2.03];
/// Bytes a microsecond of device memory, as far as that time is not hidden, and of what it has at least to bring.
const MEMORY: [f64; 2] = [1.4e7, 4.91e6];
/// How much longer steps of shared tiles take.
const UNEVEN: f64 = 1.05;
/// Multiplications and additions a microsecond that the card has power for.
const POWER: f64 = 9.77e8;
/// How much of what the matrix units read more from shared memory than with 256 columns is felt there.
const READING: f64 = 1.29;
/// Steps take so much of their time if the right factor lies along k.
const TURNED: f64 = 0.97;
/// Bytes a microsecond of packing, read and written, as they lie and transposed, and the microseconds of its launch.
const PACKING: [f64; 2] = [4.65e6, 4.03e6];
const PACKED: f64 = 1.64;
/// Microseconds that the second kernel takes which adds parts, besides the bytes a microsecond that are written and read for it, however C lies.
const ADDING: f64 = 1.7;
const PARTS: f64 = 5.14e6;
/// Bytes of the L2 cache.
const CACHED: usize = 50 << 20;
/// In how many parts sums are split at most, and the steps that one has at least.
const MOST_PARTS: usize = 132;
const LEAST_STEPS: usize = 8;

/// The recipes for a product on a GPU with such units, with the microseconds that each should take.
pub(crate) fn measured(problem: &Problem, multiprocessors: u32) -> Vec<(RecipeOf<Hopper>, f64)> {
    if !Wgmma::multiplies(problem.ty) || problem.m.min(problem.n) == 0 {
        return Vec::new();
    }
    let mut all = Vec::new();
    for swapped in [false, true] {
        let fitted =
            |pipeline| RecipeOf { swapped, ..RecipeOf::new(Hopper::new(problem.ty, pipeline)) }.fit(problem.lies);
        let along_k = fitted(of([64, 64], [1, 1], 1, true)).kernel.orders[1] == Order2d::ColMajor;
        for (pipeline, step) in pipelines(along_k) {
            // Kernels count tiles in 32 bits.
            let [below, beside] = tiles(problem, pipeline, swapped);
            let count = below.saturating_mul(beside).saturating_mul(problem.batches);
            if count > u32::MAX as usize / 2 {
                continue;
            }
            for split in splits(problem, pipeline, count, multiprocessors) {
                let recipe = RecipeOf { split, ..fitted(pipeline) }.fit(problem.lies);
                all.push((recipe, time(problem, &recipe, step, multiprocessors)));
            }
        }
    }
    all
}

/// Pipelines with the microseconds that multiplying a step takes: so many widths that a last wave may be full, and the last tile nearly. A right factor
/// that does not lie along k is copied by 64 columns, so half as many will do.
fn pipelines(along_k: bool) -> impl Iterator<Item = (Pipeline, f64)> {
    let widths = (16..128).step_by(8).chain((128..=256).step_by(16)).filter(move |cols| along_k || cols % 16 == 0);
    let sharing = STEPS.into_iter().flat_map(move |(rows, blocks, steps)| {
        let clusters: &[[u32; 2]] = match (rows, blocks) {
            (_, 1) => &[[1, 1]],
            (64, 2) => &[[1, 2], [2, 1]],
            (_, 2) => &[[1, 2]],
            (192, _) => &[[1, 4]],
            _ => &[[1, 4], [2, 2], [4, 1]],
        };
        let within = steps[0].0..=steps[steps.len() - 1].0;
        let widths = widths.clone().filter(move |cols| within.contains(cols));
        widths.flat_map(move |cols| {
            clusters.iter().map(move |cluster| (of([rows, cols], *cluster, 1, along_k), step(steps, cols)))
        })
    });
    // Blocks that share both factors and copy the right one in turns were not measured.
    let sharing = sharing.filter(move |(of, _)| {
        let [down, across] = of.cluster;
        !along_k || across == 1 || of.tile[1].is_multiple_of(8 * down)
    });
    // Blocks that share k may share factors with others that do.
    let split = SPLIT.into_iter().flat_map(move |(rows, cols, split)| {
        let pairs = [[1, 1], [1, 2], [2, 1]].into_iter().filter(move |[down, across]| down * across * split <= 8);
        pairs.filter_map(move |cluster| {
            let (_, _, steps) = STEPS.into_iter().find(|(of, by, _)| [*of, *by] == [rows, cluster[0] * cluster[1]])?;
            Some((of([rows, cols], cluster, split, along_k), step(steps, cols)))
        })
    });
    sharing.chain(split)
}

/// A pipeline with as many stages as fit beside what C is stored through, and what blocks send each other.
fn of([rows, cols]: [u32; 2], cluster: [u32; 2], split: u32, along_k: bool) -> Pipeline {
    let consumers = rows / 64;
    let pipeline =
        Pipeline { tile: [rows, cols, 64], consumers, ping_pong: false, stages: 2, cluster, split, group: 8 };
    let bytes = |tile: u32| tile * 2;
    let stored = bytes(consumers * 2 * 64 * pipeline.store_cols(LINE as u32).unwrap_or(0));
    let sent = rows * cols / split * (split - 1) * size_of::<f32>() as u32;
    let stages = (MAX_SHARED - stored - sent) / bytes((rows + pipeline.staged_cols(along_k)) * 64);
    // The largest alone go further along columns before the next.
    let group = if [rows, cols, cluster[0] * cluster[1]] == [128, 256, 1] { 16 } else { 8 };
    Pipeline { stages: stages.min(if cols <= 32 { 12 } else { 8 }), group, ..pipeline }
}

/// Between the times of its neighbours.
fn step(steps: Steps, cols: u32) -> f64 {
    let i = steps.partition_point(|(of, _)| *of < cols).clamp(1, steps.len() - 1);
    let [(narrow, less), (wide, more)] = [steps[i - 1], steps[i]];
    less + (more - less) * (f64::from(cols) - f64::from(narrow)) / (f64::from(wide) - f64::from(narrow))
}

/// Elements of a row that the copy engine is asked for.
const LINE: usize = 64;

/// How long rows of the left and of the right factor are in memory, as the kernel takes them, if they lie without gaps.
fn rows_of(problem: &Problem, swapped: bool) -> [usize; 2] {
    let Problem { m, n, k, lies, .. } = *problem;
    let a = if lies[0].order == Order2d::ColMajor { m } else { k };
    let b = if lies[1].order == Order2d::ColMajor { k } else { n };
    if swapped { [b, a] } else { [a, b] }
}

/// Which of [`ROWS`] is for rows of such a length.
fn aligned(row: usize) -> usize {
    [LINE, LINE / 2, LINE / 4].into_iter().position(|of| row.is_multiple_of(of)).unwrap_or(3)
}

/// Tiles that cover a C, below each other and beside each other.
fn tiles(problem: &Problem, pipeline: Pipeline, swapped: bool) -> [usize; 2] {
    let [m, n] = if swapped { [problem.n, problem.m] } else { [problem.m, problem.n] };
    let [rows, cols, _] = pipeline.tile.map(|extent| extent as usize);
    // Clusters are made as a whole.
    let [down, across] = pipeline.cluster.map(|blocks| blocks as usize);
    [m.div_ceil(rows * down) * down, n.div_ceil(cols * across) * across]
}

/// Whole tiles; sums in so many parts that blocks fill the multiprocessors once, or nearly; tiles shared evenly.
fn splits(problem: &Problem, pipeline: Pipeline, tiles: usize, multiprocessors: u32) -> impl Iterator<Item = Split> {
    let Problem { m, n, k, .. } = *problem;
    let steps = k.div_ceil(pipeline.tile[2] as usize);
    let workers = workers(multiprocessors, pipeline) as usize;
    let most = (workers / tiles.max(1)).min(steps / LEAST_STEPS).min(MOST_PARTS) as u32;
    // Where the last wave is not full, blocks may share what is left. But they are at different steps then, and what others have just read has to be
    // in the L2 cache still.
    let cached = m.saturating_add(n).saturating_mul(k) <= CACHED / problem.ty.size();
    let uneven =
        !tiles.is_multiple_of(workers) && tiles.saturating_mul(steps) >= LEAST_STEPS * workers && tiles < 8 * workers;
    let shared =
        (uneven && cached && pipeline.split == 1 && pipeline.sharing() <= 2).then_some(Split::Workers(workers as u32));
    // Parts of blocks that share k, or of three consumers that share factors, are hardly ever the fastest.
    let parted = pipeline.split == 1 && (pipeline.sharing() == 1 || pipeline.consumers < 3);
    let parts = [most, most / 2, most / 4].into_iter().filter(move |parts| *parts > 1 && parted);
    std::iter::once(Split::Whole).chain(parts.map(Split::Parts)).chain(shared)
}

/// Tiles that are made at a time: one by a block, or by the blocks that share its steps.
fn workers(multiprocessors: u32, pipeline: Pipeline) -> u32 {
    let [clusters, of] = pipeline.at_a_time();
    (multiprocessors * clusters / of).max(1) * pipeline.sharing()
}

/// What a block has copied for a step, on average.
struct Copies {
    /// The copy engine's microseconds for it if both its multiprocessors are busy.
    asking: f64,
    /// Its bytes.
    bytes: f64,
    /// The microseconds that rows outside of the factors take if all multiprocessors are busy.
    outside: f64,
}

impl Copies {
    fn of(problem: &Problem, recipe: &RecipeOf<Hopper>) -> Self {
        let kernel = &recipe.kernel;
        let (tile, [down, across]) = (kernel.pipeline.tile, kernel.pipeline.cluster);
        let extents = if recipe.swapped { [problem.n, problem.m] } else { [problem.m, problem.n] };
        let (many, rows) =
            (tiles(problem, kernel.pipeline, recipe.swapped), rows_of(problem, recipe.swapped).map(aligned));
        let mut all = Copies { asking: 0.0, bytes: 0.0, outside: 0.0 };
        for i in 0..2 {
            let (extent, many, tile) = (extents[i] as f64, many[i] as f64, f64::from(tile[i]));
            // What lies along rows of C, or columns, is asked for by whole lines.
            let along_k = kernel.orders[i] == [Order2d::RowMajor, Order2d::ColMajor][i];
            let line = if along_k { 1.0 } else { LINE as f64 };
            let inside = ((extent / line).ceil() * line / many).min((tile / line).ceil() * line);
            let share = 1.0 / f64::from([across, down][i]);
            let row = ROWS[if recipe.packed[i] { 0 } else { rows[i] }];
            all.asking += share * inside * row / CLOCK;
            all.bytes += share * extent / many * (LINE * problem.ty.size()) as f64;
            all.outside += share * ((tile / line).ceil() * line - inside) * OUTSIDE / CLOCK;
        }
        all
    }
}

/// Microseconds that a product takes.
fn time(problem: &Problem, recipe: &RecipeOf<Hopper>, step: f64, multiprocessors: u32) -> f64 {
    let kernel = recipe.kernel;
    let Pipeline { tile: [rows, cols, depth], split, .. } = kernel.pipeline;
    let area = f64::from(rows * cols) / (128.0 * 256.0);
    let parts = if let Split::Parts(parts) = recipe.split { parts } else { 1 };
    let extents =
        if recipe.swapped { [problem.n, problem.m] } else { [problem.m, problem.n] }.map(|extent| extent as f64);
    let (k, batches, size) = (problem.k as f64, problem.batches as f64, problem.ty.size() as f64);
    // Whether a factor, or C, lies in columns, as the kernel takes it.
    let turned = |i: usize| {
        let of = if recipe.swapped && i < 2 { 1 - i } else { i };
        usize::from((problem.lies[of].order == Order2d::ColMajor) != recipe.swapped)
    };
    let single = if kernel.stores_tiles || parts > 1 { 1.0 } else { SINGLE[turned(2)] };
    let exchange = match split {
        1 => 0.0,
        _ => EXCHANGE[0] + EXCHANGE[1] * area + EXCHANGE[2] * f64::from(split.ilog2() - 1),
    };
    let pieces = match kernel.pipeline.store_cols(LINE as u32) {
        Some(cols) if kernel.stores_tiles => 64.0 / f64::from(cols),
        _ => 1.0,
    };
    let store = STORE * single + PIECES * (pieces - 1.0);
    let shares = kernel.pipeline.cluster.map(|blocks| blocks > 1);
    let together = if shares.contains(&true) { TOGETHER } else { [0.0; 2] };
    let both = if shares == [true; 2] { BOTH } else { 0.0 };
    let sums = f64::from(kernel.pipeline.sums()) / 128.0;
    let tile = START[1] + together[1] + sums / f64::from(split) * store + exchange;
    let steps = ((k / f64::from(depth)).ceil() / f64::from(parts * split)).ceil().max(1.0);
    let copies = Copies::of(problem, recipe);
    let step = if kernel.orders[1] == Order2d::ColMajor { TURNED * step } else { step };
    // So many tiles at a time, and what the first step of all takes longer.
    let wave = |tiles: f64| {
        let busy = tiles * f64::from(split) / f64::from(multiprocessors);
        let asking = copies.asking * if busy > 0.5 { 1.0 } else { ALONE };
        let multiplying = step + copies.bytes / L2 * busy * busy + copies.outside * busy;
        let longer = (multiplying.powi(SHARP) + asking.powi(SHARP)).powf(1.0 / f64::from(SHARP));
        (steps * longer + tile, FIRST * step.min(asking))
    };
    let [below, beside] = tiles(problem, kernel.pipeline, recipe.swapped).map(|tiles| tiles as f64);
    let (jobs, workers) =
        (below * beside * batches * f64::from(parts), f64::from(workers(multiprocessors, kernel.pipeline)));
    let waves = (jobs / workers).floor();
    let (full, last) = (wave(workers), wave(jobs - waves * workers));
    let shared = matches!(recipe.split, Split::Workers(_));
    let making = if shared {
        let more = (workers / jobs - 1.0).max(0.0);
        UNEVEN * jobs / workers * (full.0 - tile)
            + (waves + 1.0) * tile
            + MEETING[0]
            + area * (MEETING[1] + MEETING[2] * more)
    } else {
        waves * full.0 + if jobs > waves * workers { last.0 } else { 0.0 }
    };
    let first = if waves > 0.0 { full.1 } else { last.1 };
    let bytes = (extents[0] * k + k * extents[1] + extents[0] * extents[1]) * batches * size;
    let read = |cols: f64| 1.0 / 64.0 + 1.0 / cols;
    let power = POWER / (1.0 + READING * (read(f64::from(cols)) / read(256.0) - 1.0));
    let most = [making, bytes / MEMORY[1], 2.0 * extents[0] * k * extents[1] * batches / power];
    let making = most.map(|time| time.powi(SHARPEST)).iter().sum::<f64>().powf(1.0 / f64::from(SHARPEST));
    // Parts have room for whole tiles.
    let covered = below * f64::from(rows) * beside * f64::from(cols);
    let written = covered * f64::from(parts) * batches * 2.0 * 4.0;
    let second = if parts > 1 { ADDING + written / PARTS } else { 0.0 };
    let packing = |i: usize| match recipe.packed[i] {
        true => 2.0 * size * batches * k * extents[i] / PACKING[turned(i)],
        false => 0.0,
    };
    // One launch, of both if they are to be.
    let packed = if recipe.packed == [false; 2] { 0.0 } else { PACKED };
    START[0] + together[0] + both + first + making + bytes / MEMORY[0] + second + packed + packing(0) + packing(1)
}

#[cfg(test)]
mod tests {
    use tegula_core::element::{Accuracy, Type};

    use super::*;
    use crate::plan::{Caps, Lie, Plan, choose};

    fn chosen(ty: Type, [m, n, k]: [usize; 3], vectors: bool, compute: (u32, u32)) -> String {
        let lies = [Lie::new(Order2d::RowMajor, vectors); 3];
        let problem = Problem { ty, accuracy: Accuracy::Full, m, n, k, batches: 1, lies };
        match choose(&problem, &Caps::Gpu { compute, multiprocessors: 132 }).unwrap() {
            Plan::Gpu(recipe) => recipe.name(),
            Plan::Cpu => panic!("a GPU runs kernels"),
        }
    }

    #[test]
    fn sizes_take_tiles_that_were_measured_within_2_percent_of_the_fastest() {
        for (sizes, fast) in [
            ([1024, 1024, 1024], "hopper_bf16_64x128x64_1_8_1_ccc_swapped"),
            ([2048, 2048, 2048], "hopper_bf16_128x256x64_2_4_1_g16_ccc_swapped"),
            ([8192, 8192, 8192], "hopper_bf16_128x256x64_2_4_1_g16_ccc_swapped"),
            ([64, 4096, 4096], "hopper_bf16_64x64x64_1_8_1_k2_ccc_swapped"),
            ([16, 4096, 4096], "hopper_bf16_64x16x64_1_12_1_k2_ccc_swapped"),
        ] {
            assert_eq!(chosen(Type::BF16, sizes, true, (9, 0)), fast, "{sizes:?}");
        }
        assert!(chosen(Type::F16, [4095; 3], false, (9, 0)).ends_with("_pab"));
    }

    #[test]
    fn times_are_those_of_the_fit() {
        for (sizes, name, time) in [
            ([1024, 1024, 1024], "hopper_bf16_64x128x64_1_8_1", 6.98),
            ([4096, 4096, 4096], "hopper_bf16_128x256x64_2_4_1x2_ccc_swapped", 207.91),
            ([1, 4096, 4096], "hopper_bf16_64x16x64_1_12_1_k2_ccc_swapped", 11.15),
            ([88, 592, 10800], "hopper_bf16_64x88x64_1_8_1_ccr_e_parts_13_swapped", 9.21),
            ([352, 5400, 1032], "hopper_bf16_192x96x64_3_5_1x4_ccc_swapped", 13.05),
            ([3520, 184, 3672], "hopper_bf16_64x128x64_1_8_2x2", 20.99),
            ([2264, 7040, 592], "hopper_bf16_128x128x64_2_6_1x2_ccc_balanced_w132_swapped", 46.84),
            ([146, 271, 1113], "hopper_bf16_64x64x64_1_8_1_k8_rrc_e_swapped_pab", 5.69),
            ([5529, 8598, 883], "hopper_bf16_128x128x64_2_6_1x2_e_pab", 182.81),
            ([1319, 4412, 72], "hopper_bf16_128x176x64_2_5_1_rcc_e_swapped_pa", 13.90),
            ([214, 2427, 2037], "hopper_bf16_128x64x64_2_8_1_k4_e_pab", 21.82),
            ([72, 504, 696], "hopper_bf16_128x64x64_2_8_1_k4", 4.37),
        ] {
            let [m, n, k] = sizes;
            let lies = [k, n, n].map(|row| Lie::new(Order2d::RowMajor, row % 8 == 0));
            let problem = Problem { ty: Type::BF16, accuracy: Accuracy::Full, m, n, k, batches: 1, lies };
            let all = measured(&problem, 132);
            let (_, found) = all.iter().find(|(recipe, _)| recipe.name() == name).unwrap();
            assert!((found / time - 1.0).abs() < 2e-3, "{sizes:?} by {name}: {found} for {time}");
        }
    }

    #[test]
    fn times_of_any_problem_are_numbers() {
        let none = [[usize::MAX; 3], [64, 1 << 40, 7]];
        let large = [[64, 64, usize::MAX], [1 << 36, 1, usize::MAX / 2]];
        for sizes in [[1, 1, 0], [1, 1, 1]].into_iter().chain(large).chain(none) {
            for multiprocessors in [1, 3, 8, 132] {
                let [m, n, k] = sizes;
                let lies = [Lie::new(Order2d::RowMajor, true); 3];
                let problem = Problem { ty: Type::BF16, accuracy: Accuracy::Full, m, n, k, batches: 1, lies };
                let times = measured(&problem, multiprocessors);
                assert!(times.iter().all(|(_, time)| !time.is_nan()), "{sizes:?} on {multiprocessors}");
                // Kernels do not count so many tiles.
                assert_eq!(times.is_empty(), none.contains(&sizes), "{sizes:?} on {multiprocessors}");
            }
        }
    }

    #[test]
    fn other_gpus_and_types_have_none() {
        assert!(chosen(Type::BF16, [4096; 3], true, (8, 0)).starts_with("mma_"));
        assert!(chosen(Type::BF16, [4096; 3], true, (10, 0)).starts_with("mma_"));
        assert!(chosen(Type::F32, [4096; 3], true, (9, 0)).starts_with("register_"));
    }
}
