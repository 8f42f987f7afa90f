//! Recipes of Hopper's matrix units for 16-bit numbers, and how long they take there.
//!
//! Blocks stay and go from tile to tile. A tile takes its steps along k, what storing it takes, and what adding takes where blocks share its steps.
//! A step takes what the matrix units need, and what reaches the multiprocessor from the L2 cache, which all that are busy share: rows of a tile
//! that begin within a line of the cache take two, and those that begin within a sector many more. The numbers are fitted to measurements of
//! 162 shapes on an H200 by `benchmarks/cost/hopper.py`; on them the choice is within 3 % of the best on 69 %.

use super::Problem;
use super::recipe::{Recipe, Split};
use crate::element::Type;
use crate::ir::Order2d;
use crate::kernels::{Hopper, Pipeline, Variant};

/// Tiles, consumers, stages and clusters, and the microseconds that a step of the tile takes besides its copies.
const PIPELINES: [(Pipeline, f64); 20] = [
    (Pipeline { group: 16, ..of([128, 256], 2, 4) }, 0.488),
    (Pipeline { cluster: 2, ..of([128, 256], 2, 4) }, 0.575),
    (of([256, 128], 2, 4), 0.495),
    (Pipeline { cluster: 2, ..of([256, 128], 2, 4) }, 0.554),
    (of([128, 192], 2, 4), 0.360),
    (of([128, 128], 2, 6), 0.265),
    (Pipeline { cluster: 2, ..of([128, 128], 2, 6) }, 0.291),
    (of([128, 64], 2, 8), 0.187),
    (of([64, 256], 1, 5), 0.296),
    (of([64, 192], 1, 6), 0.233),
    (of([64, 128], 1, 8), 0.178),
    (of([64, 64], 1, 8), 0.137),
    (of([64, 32], 1, 12), 0.111),
    (of([64, 16], 1, 12), 0.112),
    (Pipeline { split: 2, ..of([128, 128], 2, 5) }, 0.265),
    (Pipeline { split: 2, ..of([64, 64], 1, 8) }, 0.137),
    (Pipeline { split: 4, ..of([64, 128], 1, 6) }, 0.178),
    (Pipeline { split: 4, ..of([64, 64], 1, 8) }, 0.137),
    (Pipeline { split: 8, ..of([64, 64], 1, 8) }, 0.137),
    (Pipeline { split: 2, ..of([64, 16], 1, 12) }, 0.112),
];

/// Microseconds until the first tile has come, and until a tile is begun.
const START: [f64; 2] = [1.63, 0.126];
/// Bytes a microsecond from the L2 cache to a multiprocessor when all are busy.
const L2: f64 = 219e3;
/// How much more rows are for the cache that begin within a line, and within a sector of 32 bytes.
const WITHIN: [f64; 2] = [0.659, 1.639];
/// What a factor is for the cache where two blocks share it, and what such clusters cost at the start.
const SHARED: f64 = 0.142;
const TOGETHER: f64 = 0.52;
/// Microseconds that storing a tile of 128×256 takes, and how much longer it takes where the copy engine cannot.
const STORE: f64 = 1.81;
const SINGLE: f64 = 2.04;
/// Microseconds that adding takes what blocks of a cluster have summed: any tile, a tile of 128×256, and more than two blocks.
const EXCHANGE: [f64; 3] = [0.251, 2.325, 0.548];
/// Bytes a microsecond of device memory.
const MEMORY: f64 = 3.52e6;
/// Bytes a microsecond of packing, read and written, and the microseconds of its launch.
const PACKING: f64 = 3.37e6;
const PACKED: f64 = 1.3;
/// Microseconds that the second kernel takes which adds parts, besides the bytes a microsecond that are written and read for it.
const ADDING: f64 = 2.53;
const PARTS: f64 = 2.85e6;
/// In how many parts sums are split at most, and the steps that one has at least.
const MOST_PARTS: usize = 132;
const LEAST_STEPS: usize = 8;

const fn of([rows, cols]: [u32; 2], consumers: u32, stages: u32) -> Pipeline {
    Pipeline { tile: [rows, cols, 64], consumers, stages, cluster: 1, split: 1, group: 8 }
}

/// The recipes for a product on a GPU with such units, with the microseconds that each should take.
pub(super) fn measured(problem: &Problem, multiprocessors: u32) -> Vec<(Recipe, f64)> {
    if !matches!(problem.ty, Type::F16 | Type::BF16) || problem.m.min(problem.n) == 0 {
        return Vec::new();
    }
    let mut all = Vec::new();
    for ((pipeline, step), swapped) in PIPELINES.into_iter().flat_map(|pipeline| [(pipeline, false), (pipeline, true)])
    {
        let kernel = Hopper::new(problem.ty, pipeline);
        let odd = rows_of(problem, swapped).map(|row| row % SECTOR != 0);
        for packed in [[false; 2], odd] {
            let whole = Recipe { swapped, packed, ..kernel.into() }.fit(problem.lies);
            let Variant::Hopper(fitted) = whole.kernel else { continue };
            // Narrow tiles take a right factor that lies along k; kernels count tiles in 32 bits.
            let along_k = fitted.orders[1] == Order2d::ColMajor;
            if pipeline.tile[1] < 64 && !along_k || tiles(problem, pipeline, swapped) > u32::MAX as usize / 2 {
                continue;
            }
            for split in splits(problem, pipeline, swapped, multiprocessors) {
                let recipe = Recipe { split, ..whole }.fit(problem.lies);
                if all.iter().all(|(other, _)| *other != recipe) {
                    all.push((recipe, time(problem, &recipe, step, multiprocessors)));
                }
            }
        }
    }
    all
}

/// Elements of a sector of the L2 cache, and of a line.
const SECTOR: usize = 16;
const LINE: usize = 64;

/// How long rows of the left and of the right factor are in memory, as the kernel takes them, if they lie without gaps.
fn rows_of(problem: &Problem, swapped: bool) -> [usize; 2] {
    let Problem { m, n, k, lies, .. } = *problem;
    let a = if lies[0].order == Order2d::ColMajor { m } else { k };
    let b = if lies[1].order == Order2d::ColMajor { k } else { n };
    if swapped { [b, a] } else { [a, b] }
}

/// What rows of such a length are for the L2 cache, by those that begin where its lines do.
fn spread(row: usize) -> f64 {
    // Of rows that begin anywhere in lines, by how the beginnings fall.
    let within = match row {
        row if row.is_multiple_of(LINE) => 0.0,
        row if row.is_multiple_of(LINE / 2) => 0.5,
        row if row.is_multiple_of(LINE / 4) => 0.75,
        _ => 0.875,
    };
    1.0 + WITHIN[0] * within + if row.is_multiple_of(SECTOR) { 0.0 } else { WITHIN[1] }
}

/// Tiles that cover all of C.
fn tiles(problem: &Problem, pipeline: Pipeline, swapped: bool) -> usize {
    let [m, n] = if swapped { [problem.n, problem.m] } else { [problem.m, problem.n] };
    let [rows, cols, _] = pipeline.tile.map(|extent| extent as usize);
    // Clusters are made as a whole.
    let [down, across] = pipeline.sharing().map(|blocks| blocks as usize);
    let (below, beside) = (m.div_ceil(rows * down) * down, n.div_ceil(cols * across) * across);
    below.saturating_mul(beside).saturating_mul(problem.batches)
}

/// Sums in so many parts that blocks fill the multiprocessors once, or nearly.
fn splits(
    problem: &Problem,
    pipeline: Pipeline,
    swapped: bool,
    multiprocessors: u32,
) -> impl Iterator<Item = Split> + use<> {
    let tiles = tiles(problem, pipeline, swapped);
    let steps = problem.k.div_ceil(pipeline.tile[2] as usize);
    let workers = workers(multiprocessors, pipeline) as usize;
    let most = (workers / tiles.max(1)).min(steps / LEAST_STEPS / pipeline.split as usize).min(MOST_PARTS) as u32;
    let some = [most, most / 2, most / 4];
    std::iter::once(Split::Whole).chain(some.into_iter().filter(|parts| *parts > 1).map(Split::Parts))
}

/// Tiles that are made at a time: one by a block, or by the blocks that share its steps.
fn workers(multiprocessors: u32, pipeline: Pipeline) -> u32 {
    let [clusters, of] = pipeline.at_a_time();
    multiprocessors * clusters / of * pipeline.cluster
}

/// Microseconds that a product takes.
fn time(problem: &Problem, recipe: &Recipe, step: f64, multiprocessors: u32) -> f64 {
    let Variant::Hopper(kernel) = recipe.kernel else { return f64::INFINITY };
    let Pipeline { tile, cluster, split, .. } = kernel.pipeline;
    let [rows, cols, depth] = tile.map(f64::from);
    let area = rows * cols / (128.0 * 256.0);
    let parts = if let Split::Parts(parts) = recipe.split { parts } else { 1 };
    let extents =
        if recipe.swapped { [problem.n, problem.m] } else { [problem.m, problem.n] }.map(|extent| extent as f64);
    let (k, batches, size) = (problem.k as f64, problem.batches as f64, problem.ty.size() as f64);
    let jobs = tiles(problem, kernel.pipeline, recipe.swapped) as f64 * f64::from(parts);
    let workers = f64::from(workers(multiprocessors, kernel.pipeline));
    let waves = (jobs / workers).ceil();
    let busy = jobs / waves * f64::from(split) / f64::from(multiprocessors);
    // What lies outside of the factors is not copied.
    let inside = |extent: f64, tile: f64| extent / (extent / tile).ceil();
    let lies = rows_of(problem, recipe.swapped);
    let spread = [0, 1].map(|i| if recipe.packed[i] { 1.0 } else { spread(lies[i]) });
    let [right, left] = kernel.pipeline.sharing().map(|blocks| if blocks > 1 { SHARED } else { 1.0 });
    let copied = inside(extents[0], rows) * spread[0] * left + inside(extents[1], cols) * spread[1] * right;
    let steps = ((k / depth).ceil() / f64::from(parts * split)).ceil().max(1.0);
    let single = if kernel.stores_tiles || parts > 1 { 1.0 } else { SINGLE };
    let store = STORE * area / f64::from(split) * single;
    let exchange = match split {
        1 => 0.0,
        _ => EXCHANGE[0] + EXCHANGE[1] * area + if split > 2 { EXCHANGE[2] } else { 0.0 },
    };
    let making = waves * (steps * (step + copied * depth * size / L2 * busy) + store + exchange + START[1]);
    let memory = (extents[0] * k + k * extents[1] + extents[0] * extents[1]) * batches * size / MEMORY;
    let together = if cluster > 1 { TOGETHER } else { 0.0 };
    let written = extents[0] * extents[1] * f64::from(parts) * batches * 2.0 * 4.0;
    let second = if parts > 1 { ADDING + written / PARTS } else { 0.0 };
    let packing = |which: usize| match recipe.packed[which] {
        true => PACKED + 2.0 * size * batches * k * extents[which] / PACKING,
        false => 0.0,
    };
    START[0] + together + making.max(memory) + second + packing(0) + packing(1)
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
    fn sizes_take_the_tiles_that_were_measured_fastest() {
        for (sizes, fastest) in [
            ([1024, 1024, 1024], "hopper_bf16_64x128x64_1_8_1"),
            ([64, 4096, 4096], "hopper_bf16_64x64x64_1_8_1_k2"),
            ([16, 4096, 4096], "hopper_bf16_64x32x64_1_12_1_ccc_swapped"),
        ] {
            let name = chosen(Type::BF16, sizes, true, (9, 0));
            assert!(name.starts_with(fastest), "{sizes:?}: {name}");
        }
        assert!(chosen(Type::F16, [8192; 3], true, (9, 0)).contains("x256x64_2_4_"));
        assert!(chosen(Type::F16, [4095; 3], false, (9, 0)).ends_with("_pab"));
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
