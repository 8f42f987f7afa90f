//! Recipes of Hopper's matrix units for 16-bit numbers, and how long they take there.
//!
//! Blocks stay and go from tile to tile, in waves, of which the last may leave multiprocessors without work. A step of a tile takes the longer of two
//! times, or a little more where they are alike. One is what multiplying takes, and more of it where many multiprocessors read the L2 cache at a time.
//! The other is what the copy engine takes, by the rows of 128 bytes that it is asked for, which are many clocks where they do not begin at such
//! multiples; two multiprocessors share an engine's rate, and blocks of a cluster ask for their part only. Besides come the end of each tile, the
//! first steps, for which nothing is at hand, and what of the memory's time is not hidden.
//!
//! Where workers share tiles evenly, their sums meet once more, and they read again what the L2 cache does not hold. All of it takes no less than what
//! device memory has to bring, and what the card has power for.
//!
//! The numbers are fitted to measurements of 162 and 128 shapes on an H200 by `benchmarks/cost/hopper.py`. There the choice is within 3 % of the best on
//! 73 %, within 5 % on 85 %, and 2.3 % are lost in the mean; 71 %, 84 % and 2.4 % if a fifth of the shapes at a time is left out of the fit.

use super::Problem;
use super::recipe::{Recipe, Split};
use crate::element::Type;
use crate::ir::Order2d;
use crate::kernels::{Hopper, Pipeline, Variant};

/// Tiles, consumers, stages and clusters, and the microseconds that multiplying a step of the tile takes.
const PIPELINES: [(Pipeline, f64); 28] = [
    (Pipeline { group: 16, ..of([128, 256], 2, 4) }, 0.516),
    (Pipeline { cluster: [2, 1], ..of([128, 256], 2, 4) }, 0.575),
    (Pipeline { cluster: [2, 1], ..of([256, 128], 2, 4) }, 0.562),
    (Pipeline { cluster: [2, 2], ..of([128, 256], 2, 4) }, 0.651),
    (of([128, 192], 2, 4), 0.381),
    (Pipeline { cluster: [2, 1], ..of([128, 192], 2, 4) }, 0.418),
    (Pipeline { cluster: [2, 2], ..of([128, 192], 2, 4) }, 0.470),
    (of([128, 128], 2, 6), 0.266),
    (Pipeline { cluster: [2, 1], ..of([128, 128], 2, 6) }, 0.278),
    (Pipeline { cluster: [2, 2], ..of([128, 128], 2, 6) }, 0.305),
    (of([128, 64], 2, 8), 0.180),
    (Pipeline { cluster: [2, 1], ..of([128, 64], 2, 8) }, 0.193),
    (of([64, 256], 1, 5), 0.286),
    (of([64, 192], 1, 6), 0.217),
    (Pipeline { cluster: [2, 1], ..of([64, 192], 1, 6) }, 0.253),
    (of([64, 128], 1, 8), 0.162),
    (Pipeline { cluster: [2, 1], ..of([64, 128], 1, 8) }, 0.181),
    (Pipeline { cluster: [2, 2], ..of([64, 128], 1, 8) }, 0.188),
    (of([64, 64], 1, 8), 0.126),
    (Pipeline { cluster: [2, 1], ..of([64, 64], 1, 8) }, 0.125),
    (of([64, 32], 1, 12), 0.108),
    (of([64, 16], 1, 12), 0.112),
    (Pipeline { split: 2, ..of([128, 128], 2, 5) }, 0.266),
    (Pipeline { split: 2, ..of([64, 64], 1, 8) }, 0.126),
    (Pipeline { split: 4, ..of([64, 128], 1, 6) }, 0.162),
    (Pipeline { split: 4, ..of([64, 64], 1, 8) }, 0.126),
    (Pipeline { split: 8, ..of([64, 64], 1, 8) }, 0.126),
    (Pipeline { split: 2, ..of([64, 16], 1, 12) }, 0.112),
];

/// Bytes of shared memory for stages.
const STAGED: u32 = 192 << 10;
/// Clocks a microsecond.
const CLOCK: f64 = 1755.0;
/// Clocks that the copy engine takes for a row, where both its multiprocessors ask: where rows begin at multiples of 128 bytes, of 64, of 32, of 16.
const ROWS: [f64; 4] = [1.38, 2.16, 2.79, 4.99];
/// Of that, what one takes if it has the engine for itself.
const ALONE: f64 = 0.554;
/// Clocks that a row outside of the matrix takes if all multiprocessors ask for such rows: they are not fetched, but not free.
const OUTSIDE: f64 = 4.9;
/// Bytes a microsecond to a multiprocessor, as they slow down multiplying, if all multiprocessors get as many.
const L2: f64 = 2.78e5;
/// How sharply the longer of two times decides.
const SHARP: i32 = 6;
/// How sharply the longest of multiplying, what the memory takes, and what power there is.
const SHARPEST: i32 = 8;
/// Microseconds until the first steps are asked for, and until a tile is begun; steps that the first of all is worth.
const START: [f64; 2] = [1.17, 0.248];
const FIRST: f64 = 3.139;
/// What clusters of blocks that share factors cost at the start, and at each tile.
const TOGETHER: [f64; 2] = [0.45, 0.0247];
/// Microseconds that storing a tile of 128×256 takes, and how much longer it takes where the copy engine cannot: C as it lies, and transposed.
const STORE: f64 = 0.89;
const SINGLE: [f64; 2] = [2.88, 3.22];
/// Microseconds that it takes longer for each piece more in which 64 columns of such a tile are stored.
const PIECES: f64 = 0.65;
/// Microseconds that adding takes what blocks of a cluster have summed: any tile, a tile of 128×256, and more than two blocks.
const EXCHANGE: [f64; 3] = [0.343, 1.69, 0.393];
/// Microseconds that it takes where workers share tiles evenly, until their sums meet: of any, of tiles of 128×256 what comes on top, and for each more
/// that has steps of a tile.
const MEETING: [f64; 3] = [2.97, 0.953, 2.52];
/// Bytes a microsecond of device memory, as far as that time is not hidden, and of what it has at least to bring.
const MEMORY: [f64; 2] = [1.28e7, 5.09e6];
/// How much longer steps of shared tiles take.
const UNEVEN: f64 = 1.06;
/// Workers that share tiles are at different steps, and do not find in the L2 cache what others have just read, if factors do not fit there: the part of
/// them that is read again for another tile, as far as `LARGE` bytes are exceeded.
const AGAIN: f64 = 0.218;
const LARGE: f64 = 5e7;
/// Multiplications and additions a microsecond that the card has power for.
const POWER: f64 = 7.56e8;
/// Steps take so much of their time if the right factor lies along k.
const TURNED: f64 = 0.982;
/// Bytes a microsecond of packing, read and written, as they lie and transposed, and the microseconds of its launch.
const PACKING: [f64; 2] = [4.18e6, 3.43e6];
const PACKED: f64 = 1.48;
/// Microseconds that the second kernel takes which adds parts, besides the bytes a microsecond that are written and read for it, as above.
const ADDING: f64 = 2.31;
const PARTS: [f64; 2] = [5.93e6, 2.18e6];
/// In how many parts sums are split at most, and the steps that one has at least.
const MOST_PARTS: usize = 132;
const LEAST_STEPS: usize = 8;

const fn of([rows, cols]: [u32; 2], consumers: u32, stages: u32) -> Pipeline {
    Pipeline { tile: [rows, cols, 64], consumers, stages, cluster: [1, 1], split: 1, group: 8 }
}

/// The recipes for a product on a GPU with such units, with the microseconds that each should take.
pub(super) fn measured(problem: &Problem, multiprocessors: u32) -> Vec<(Recipe, f64)> {
    if !matches!(problem.ty, Type::F16 | Type::BF16) || problem.m.min(problem.n) == 0 {
        return Vec::new();
    }
    let mut all = Vec::new();
    for swapped in [false, true] {
        let fitted = |pipeline| Recipe { swapped, ..Hopper::new(problem.ty, pipeline).into() }.fit(problem.lies);
        let along_k = match fitted(PIPELINES[0].0).kernel {
            Variant::Hopper(hopper) => hopper.orders[1] == Order2d::ColMajor,
            _ => continue,
        };
        let others = if along_k { of_other_widths() } else { Vec::new() };
        for (pipeline, step) in PIPELINES.into_iter().chain(others) {
            // Kernels count tiles in 32 bits.
            let [below, beside] = tiles(problem, pipeline, swapped);
            let count = below.saturating_mul(beside).saturating_mul(problem.batches);
            if pipeline.tile[1] < 64 && !along_k || count > u32::MAX as usize / 2 {
                continue;
            }
            for split in splits(problem.k, pipeline, count, multiprocessors) {
                let recipe = Recipe { split, ..fitted(pipeline) }.fit(problem.lies);
                all.push((recipe, time(problem, &recipe, step, multiprocessors)));
            }
        }
    }
    all
}

/// Widths of tiles besides those of [`PIPELINES`], where the right factor lies along k: so that waves may be full, and the last tile nearly.
const WIDTHS: [u32; 9] = [80, 96, 112, 144, 160, 176, 208, 224, 240];

/// Tiles of those widths, with times between those of their neighbours: none without a narrower one.
fn of_other_widths() -> Vec<(Pipeline, f64)> {
    let mut all = Vec::new();
    for (rows, cluster) in [(64, [1, 1]), (128, [1, 1]), (128, [2, 1]), (128, [2, 2])] {
        let alike = |(pipeline, _): &&(Pipeline, f64)| {
            pipeline.tile[0] == rows && pipeline.cluster == cluster && pipeline.split == 1
        };
        let mut known: Vec<_> = PIPELINES.iter().filter(alike).collect();
        known.sort_by_key(|(pipeline, _)| pipeline.tile[1]);
        let narrowest = known.first().map_or(0, |(pipeline, _)| pipeline.tile[1]);
        for cols in WIDTHS.into_iter().filter(|cols| *cols > narrowest) {
            let i = known.partition_point(|(pipeline, _)| pipeline.tile[1] < cols).clamp(1, known.len() - 1);
            let [(narrow, less), (wide, more)] = [known[i - 1], known[i]];
            let [narrow, wide, at] = [narrow.tile[1], wide.tile[1], cols].map(f64::from);
            let stages = (STAGED / ((rows + cols) * LINE as u32 * 2)).min(8);
            let pipeline = Pipeline { cluster, ..of([rows, cols], rows / 64, stages) };
            all.push((pipeline, less + (more - less) * (at - narrow) / (wide - narrow)));
        }
    }
    all
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
fn splits(k: usize, pipeline: Pipeline, tiles: usize, multiprocessors: u32) -> impl Iterator<Item = Split> {
    let steps = k.div_ceil(pipeline.tile[2] as usize);
    let workers = workers(multiprocessors, pipeline) as usize;
    let most = (workers / tiles.max(1)).min(steps / LEAST_STEPS).min(MOST_PARTS) as u32;
    // Where the last wave is not full, blocks may share what is left.
    let uneven =
        !tiles.is_multiple_of(workers) && tiles.saturating_mul(steps) >= LEAST_STEPS * workers && tiles < 8 * workers;
    let shared = uneven.then_some(Split::Workers(workers as u32));
    let parts = [most, most / 2, most / 4].into_iter().filter(|parts| *parts > 1).map(Split::Parts);
    // Parts of blocks that share steps took longer than either wherever they were measured.
    let others = (pipeline.split == 1).then(|| parts.chain(shared));
    std::iter::once(Split::Whole).chain(others.into_iter().flatten())
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
    fn of(problem: &Problem, recipe: &Recipe, kernel: &Hopper) -> Self {
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
            let inside = ((extent / line).ceil() * line / many).min(tile);
            let share = 1.0 / f64::from([across, down][i]);
            let row = ROWS[if recipe.packed[i] { 0 } else { rows[i] }];
            all.asking += share * inside * row / CLOCK;
            all.bytes += share * extent / many * (LINE * problem.ty.size()) as f64;
            all.outside += share * (tile - inside) * OUTSIDE / CLOCK;
        }
        all
    }
}

/// Microseconds that a product takes.
fn time(problem: &Problem, recipe: &Recipe, step: f64, multiprocessors: u32) -> f64 {
    let Variant::Hopper(kernel) = recipe.kernel else { return f64::INFINITY };
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
        _ => EXCHANGE[0] + EXCHANGE[1] * area + if split > 2 { EXCHANGE[2] } else { 0.0 },
    };
    let pieces =
        if kernel.stores_tiles { 64 / [64, 32, 16].into_iter().find(|of| cols % of == 0).unwrap_or(16) } else { 1 };
    let store = STORE * single + PIECES * f64::from(pieces - 1);
    let together = if kernel.pipeline.sharing() > 1 { TOGETHER } else { [0.0; 2] };
    let tile = START[1] + together[1] + area / f64::from(split) * store + exchange;
    let steps = ((k / f64::from(depth)).ceil() / f64::from(parts * split)).ceil().max(1.0);
    let copies = Copies::of(problem, recipe, &kernel);
    let step = if kernel.orders[1] == Order2d::ColMajor { TURNED * step } else { step };
    // So many tiles at a time, and what the first step of all takes longer.
    let wave = |tiles: f64| {
        let busy = tiles * f64::from(split) / f64::from(multiprocessors);
        let asking = copies.asking * if busy > 0.5 { 1.0 } else { ALONE };
        let multiplying = step + copies.bytes / L2 * busy * busy + copies.outside * busy;
        let both = (multiplying.powi(SHARP) + asking.powi(SHARP)).powf(1.0 / f64::from(SHARP));
        (steps * both + tile, FIRST * step.min(asking))
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
    let factors = extents.map(|extent| extent * k * batches * size);
    let bytes = factors[0] + factors[1] + extents[0] * extents[1] * batches * size;
    let again = if shared {
        let apart = (1.0 - (waves - 1.0).max(0.0) * workers / jobs) * (bytes / LARGE - 0.5).clamp(0.0, 1.0);
        AGAIN * apart * (factors[0] * (beside.min(6.0) - 1.0) + factors[1] * (below.min(6.0) - 1.0))
    } else {
        0.0
    };
    let most = [making, (bytes + again) / MEMORY[1], 2.0 * extents[0] * k * extents[1] * batches / POWER];
    let making = most.map(|time| time.powi(SHARPEST)).iter().sum::<f64>().powf(1.0 / f64::from(SHARPEST));
    let written = extents[0] * extents[1] * f64::from(parts) * batches * 2.0 * 4.0;
    let second = if parts > 1 { ADDING + written / PARTS[turned(2)] } else { 0.0 };
    let packing = |i: usize| match recipe.packed[i] {
        true => 2.0 * size * batches * k * extents[i] / PACKING[turned(i)],
        false => 0.0,
    };
    // One launch, of both if they are to be.
    let packed = if recipe.packed == [false; 2] { 0.0 } else { PACKED };
    START[0] + together[0] + first + making + bytes / MEMORY[0] + second + packed + packing(0) + packing(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::element::Accuracy;
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
            ([1024, 1024, 1024], "hopper_bf16_64x128x64_1_8_1"),
            ([64, 4096, 4096], "hopper_bf16_64x64x64_1_8_1_k2"),
            ([16, 4096, 4096], "hopper_bf16_64x16x64_1_12_1"),
        ] {
            let name = chosen(Type::BF16, sizes, true, (9, 0));
            assert!(name.starts_with(fast), "{sizes:?}: {name}");
        }
        // At the limit of power six tiles are alike; this is one of them.
        assert!(chosen(Type::F16, [8192; 3], true, (9, 0)).contains("_128x192x64_2_4_2"));
        assert!(chosen(Type::F16, [4095; 3], false, (9, 0)).ends_with("_pab"));
    }

    #[test]
    fn times_are_those_of_the_fit() {
        for (sizes, name, time) in [
            ([1024, 1024, 1024], "hopper_bf16_64x128x64_1_8_1", 6.58),
            ([4096, 4096, 4096], "hopper_bf16_128x256x64_2_4_2", 207.58),
            ([1, 4096, 4096], "hopper_bf16_64x16x64_1_12_1_k2_ccc_swapped", 11.05),
            ([128, 128, 65536], "hopper_bf16_64x64x64_1_8_1_ccr_e_parts_33_swapped", 15.42),
            ([8032, 104, 776], "hopper_bf16_128x128x64_2_6_2", 8.70),
            ([11336, 712, 8048], "hopper_bf16_128x192x64_2_4_1_ccc_swapped", 281.27),
            ([328, 240, 1656], "hopper_bf16_64x64x64_1_8_1_k4", 4.77),
            ([3656, 312, 14680], "hopper_bf16_128x192x64_2_4_4_balanced_w120", 89.18),
            ([464, 8624, 12960], "hopper_bf16_128x256x64_2_4_2_ccc_balanced_w132_swapped", 190.67),
            ([2624, 4944, 9256], "hopper_bf16_128x208x64_2_4_2_ccc_swapped", 388.65),
            ([128, 7088, 15768], "hopper_bf16_64x128x64_1_8_4", 79.61),
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
        for sizes in [[1, 1, 0], [1, 1, 1], [usize::MAX, usize::MAX, usize::MAX], [64, 1 << 40, 7]] {
            for multiprocessors in [1, 3, 8, 132] {
                let [m, n, k] = sizes;
                let lies = [Lie::new(Order2d::RowMajor, true); 3];
                let problem = Problem { ty: Type::BF16, accuracy: Accuracy::Full, m, n, k, batches: 1, lies };
                let times = measured(&problem, multiprocessors);
                assert!(times.iter().all(|(_, time)| !time.is_nan()), "{sizes:?} on {multiprocessors}");
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
