//! Candidates for a C of few rows or columns, which read the large operand once, at memory
//! bandwidth.
//!
//! For 4-byte and 8-byte types, configurations measured on an H200 have a predicted time; of the
//! others only the order is known. For shorter types all have one, by a model of loads and
//! instructions.

use tegula_core::element::Type;
use tegula_ir::Order2d;

use super::device::GpuDescription;
use super::problem::Problem;
use super::recipe::{RecipeOf, Split};
use super::vector_costs::VectorCosts;
use crate::vector::Vector;

/// The maximum shorter side of a skinny C.
const MAX_ROWS: usize = 16;
/// The sufficient fraction of the intended number of blocks.
const SUFFICIENT: f64 = 0.9;
/// Concurrent threads per SM, and the minimum microseconds of their blocks.
const THREADS: f64 = 1024.0;
const BLOCK: f64 = 1.5;
/// Microseconds of the launch of the reduction.
const REDUCTION_LAUNCH: f64 = 2.0;
/// Microseconds to add each partial sum, and bytes per microsecond of partial sums.
const SPLIT: f64 = 0.04;
const PARTIAL_SUMS: f64 = 2.7e6;

/// Split-K is tried to these numbers of blocks per SM.
const BLOCKS_PER_SM: [u32; SPLITS] = [2, 1, 4];
const SPLITS: usize = 3;

/// The measured speed of a configuration.
#[derive(Clone, Copy)]
struct Measured {
    /// Rows, columns per thread, threads along n and k, load depth.
    shape: [u32; 5],
    /// Blocks per SM that saturate memory.
    blocks_per_sm: f64,
    /// Megabytes per microsecond that these reach.
    rate: f64,
    /// Microseconds of launch, prologue and epilogue.
    start: f64,
}

const fn of(shape: [u32; 5], blocks_per_sm: f64, rate: f64, start: f64) -> Measured {
    Measured { shape, blocks_per_sm, rate, start }
}

/// 4-byte types with a row-major B and 16-byte loads.
const WORDS: [Measured; 10] = [
    of([1, 4, 8, 32, 8], 1.0, 4.45, 2.5),
    of([1, 4, 8, 64, 4], 1.0, 4.27, 2.7),
    of([2, 4, 8, 32, 8], 1.0, 4.25, 2.5),
    of([2, 4, 8, 64, 4], 1.0, 4.22, 2.9),
    of([4, 4, 8, 64, 4], 1.0, 3.90, 3.6),
    of([4, 4, 8, 32, 4], 2.0, 4.30, 2.5),
    of([8, 4, 16, 16, 4], 2.0, 4.20, 2.5),
    of([16, 4, 64, 4, 4], 1.0, 2.76, 2.5),
    of([16, 4, 64, 4, 8], 1.0, 3.21, 9.0),
    of([16, 4, 32, 8, 4], 1.0, 2.30, 2.5),
];

/// The same for f64. 1x2_16x16_16 is 1 to 2 % faster, but spills on older GPUs; 8x2_32x8_8 is the
/// substitute without split-K, and was not measured.
const DOUBLES: [Measured; 8] = [
    of([1, 4, 8, 32, 4], 1.0, 4.30, 2.8),
    of([1, 2, 8, 32, 4], 2.0, 4.20, 2.5),
    of([2, 4, 8, 32, 4], 1.0, 4.26, 2.5),
    of([2, 2, 8, 32, 4], 2.0, 4.37, 2.5),
    of([4, 2, 32, 8, 4], 2.0, 4.48, 2.5),
    of([8, 2, 32, 8, 4], 2.0, 4.25, 2.5),
    of([8, 2, 32, 8, 8], 1.0, 3.30, 2.5),
    of([16, 2, 64, 4, 4], 1.0, 3.24, 2.5),
];

/// Configurations that spill without split-K.
const SPLIT_K_ONLY: [[u32; 5]; 1] = [[8, 2, 32, 8, 4]];

/// 4-byte types with a column-major B. Eight rows are interpolated between four and sixteen.
const WORDS_ALONG_K: [Measured; 6] = [
    of([1, 2, 8, 32, 16], 1.0, 4.60, 2.5),
    of([1, 1, 4, 64, 16], 1.0, 4.60, 2.6),
    of([2, 2, 8, 32, 16], 1.0, 4.60, 2.5),
    of([4, 4, 4, 64, 4], 2.0, 3.85, 2.5),
    of([8, 4, 8, 32, 4], 2.0, 3.00, 2.5),
    of([16, 4, 8, 32, 8], 1.0, 2.10, 4.5),
];

/// The same for f64.
const DOUBLES_ALONG_K: [Measured; 6] = [
    of([1, 1, 16, 16, 8], 2.0, 4.50, 2.5),
    of([1, 2, 8, 32, 4], 2.0, 4.45, 2.5),
    of([2, 2, 8, 32, 4], 2.0, 4.45, 2.5),
    of([4, 2, 8, 32, 4], 1.0, 3.40, 2.5),
    of([8, 2, 8, 32, 8], 1.0, 1.90, 2.5),
    of([16, 2, 16, 16, 4], 1.0, 1.50, 2.5),
];

/// Element loads; only one or two rows were measured.
const WORDS_SINGLE: [Measured; 2] = [of([1, 4, 8, 32, 4], 1.0, 3.70, 2.5), of([2, 4, 8, 32, 4], 1.0, 3.20, 2.5)];
const DOUBLES_SINGLE: [Measured; 2] = [of([1, 2, 8, 32, 4], 2.0, 4.33, 2.5), of([2, 2, 8, 32, 4], 2.0, 3.30, 2.5)];
const WORDS_SINGLE_ALONG_K: [Measured; 2] =
    [of([1, 1, 8, 32, 16], 1.0, 3.90, 2.5), of([1, 2, 8, 32, 8], 1.0, 3.90, 2.6)];
const DOUBLES_SINGLE_ALONG_K: [Measured; 1] = [of([1, 2, 8, 32, 8], 1.0, 4.20, 2.5)];

/// The candidates of measured configurations for a product, with predicted microseconds.
pub(crate) fn candidates(problem: &Problem, gpu: &GpuDescription) -> Vec<(RecipeOf<Vector>, f64)> {
    let Some(Skinny { swapped, rows, along_k, aligned_16 }) = Skinny::of(problem) else { return Vec::new() };
    let table: &[Measured] = match (problem.ty, aligned_16, along_k) {
        (Type::F32 | Type::I32, true, false) => &WORDS,
        (Type::F32 | Type::I32, true, true) => &WORDS_ALONG_K,
        (Type::F32 | Type::I32, false, false) => &WORDS_SINGLE,
        (Type::F32 | Type::I32, false, true) => &WORDS_SINGLE_ALONG_K,
        (Type::F64, true, false) => &DOUBLES,
        (Type::F64, true, true) => &DOUBLES_ALONG_K,
        (Type::F64, false, false) => &DOUBLES_SINGLE,
        (Type::F64, false, true) => &DOUBLES_SINGLE_ALONG_K,
        (Type::F16 | Type::BF16 | Type::I8, ..) => {
            // Others spill: unpacking 16 bytes along k takes registers that `Vector` does not
            // count.
            let unpacks_along_k = problem.ty.size() == 2 && along_k && aligned_16;
            let limit = if unpacks_along_k { 2 * SPLITS } else { usize::MAX };
            let all = heuristic_candidates(problem, gpu).take(limit);
            let all = all.map(|recipe| recipe.legalize(problem.layouts));
            let fits = |kernel: &Vector| unpacks_along_k || !aligned_16 || kernel.has_spare_registers();
            let all = all.filter(|recipe| fits(&recipe.kernel));
            return all.map(|recipe| (recipe, vector_time(problem, &recipe, &VectorCosts::FITTED, gpu))).collect();
        }
        (Type::U8 | Type::U32 | Type::I64 | Type::U64 | Type::Pred, ..) => &[],
    };
    let mut all = Vec::new();
    for measured in table.iter().filter(|measured| measured.shape[0] as usize == rows.next_power_of_two()) {
        let [rows, cols, threads_n, threads_k, load_depth] = measured.shape;
        let vector = Vector { aligned_16, ..Vector::new(problem.ty, rows, cols, [threads_n, threads_k], load_depth) };
        let blocks = blocks(problem, &vector);
        let target = measured.blocks_per_sm * f64::from(gpu.multiprocessors);
        let splits = if blocks >= SUFFICIENT * target { 1 } else { (target / blocks).round() as usize };
        let splits = splits.min(problem.k.div_ceil(vector.step() as usize)).max(1) as u32;
        let whole = (!SPLIT_K_ONLY.contains(&measured.shape)).then_some(Split::Whole);
        let split = (splits > 1).then_some(Split::SplitK(splits));
        for split in whole.into_iter().chain(split) {
            let recipe = RecipeOf { swapped, split, ..RecipeOf::new(vector) };
            all.push((recipe, time(problem, measured, blocks, split, gpu)));
        }
    }
    all
}

/// All candidates, the most promising first: each kernel with split-K to two blocks per SM, one,
/// and four.
pub(crate) fn heuristic_candidates(problem: &Problem, gpu: &GpuDescription) -> impl Iterator<Item = RecipeOf<Vector>> {
    let skinny = Skinny::of(problem).into_iter();
    skinny.flat_map(move |Skinny { swapped, rows, along_k, aligned_16 }| {
        let variants = Vector::shapes(problem.ty, rows, along_k, aligned_16).into_iter();
        variants.flat_map(move |vector| {
            let k_steps = problem.k.div_ceil(vector.step() as usize).max(1);
            BLOCKS_PER_SM.map(|blocks_per_sm| {
                let splits =
                    (f64::from(blocks_per_sm * gpu.multiprocessors) / blocks(problem, &vector)).ceil() as usize;
                RecipeOf { swapped, split: Split::split_k(splits.min(k_steps) as u32), ..RecipeOf::new(vector) }
            })
        })
    })
}

/// A skinny problem, transposed if C has few columns instead of few rows.
struct Skinny {
    swapped: bool,
    rows: usize,
    /// Whether B is contiguous along k.
    along_k: bool,
    /// Whether B can be read as 16-byte vectors.
    aligned_16: bool,
}

impl Skinny {
    fn of(problem: &Problem) -> Option<Self> {
        let Problem { m, n, layouts, .. } = *problem;
        let swapped = n < m;
        let (rows, b) = if swapped { (n, layouts[0].transposed()) } else { (m, layouts[1]) };
        let along_k = b.order == Order2d::ColMajor;
        (rows <= MAX_ROWS).then_some(Skinny { swapped, rows: rows.max(1), along_k, aligned_16: b.aligned_16 })
    }
}

/// Blocks of a kernel without split-K, at least one.
fn blocks(problem: &Problem, vector: &Vector) -> f64 {
    let blocks_n = problem.m.max(problem.n).div_ceil((vector.threads_n * vector.cols) as usize);
    (blocks_n as f64 * problem.batches as f64).max(1.0)
}

/// The predicted microseconds for 16-bit and 8-bit types.
///
/// A smooth maximum of three times: of device memory, of the loads in flight of an SM (their bytes
/// per latency), and of the instructions of an SM, which are counted per element of B and per
/// multiply-add.
pub(super) fn vector_time(
    problem: &Problem,
    recipe: &RecipeOf<Vector>,
    costs: &VectorCosts,
    gpu: &GpuDescription,
) -> f64 {
    let (kernel, splits) = (&recipe.kernel, if let Split::SplitK(splits) = recipe.split { splits } else { 1 });
    let [m, n, k] = [problem.m, problem.n, problem.k].map(|extent| extent as f64);
    let (batches, size) = (problem.batches as f64, problem.ty.size() as f64);
    let class = usize::from(size < 2.0) * 4 + usize::from(kernel.transposed()) * 2 + usize::from(kernel.aligned_16);
    let multiprocessors = f64::from(gpu.multiprocessors);
    let threads = f64::from(kernel.threads_n * kernel.threads_k);
    // Blocks of the busiest SM, and those resident at a time.
    let blocks = (blocks(problem, kernel) * f64::from(splits) / multiprocessors).ceil();
    let resident = blocks.min((MAX_THREADS / threads).floor()).min(f64::from(kernel.blocks()));
    let step = f64::from(kernel.step());
    let steps_of_k = (k / f64::from(splits) / step).ceil() * step;
    let elements = f64::from(kernel.threads_n * kernel.cols) * steps_of_k;
    let in_flight = resident * threads * f64::from(kernel.load_depth * kernel.cols) * size;
    let memory = (m * k + k * n + m * n) * batches * size / gpu.memory(costs.memory);
    let loads = blocks * elements * size * costs.latency[class] / in_flight;
    let work = costs.element[class] + costs.multiply_add[class] * f64::from(kernel.rows);
    // Each block copies its rows of A to shared memory.
    let staged = costs.stage * f64::from(kernel.rows) * steps_of_k;
    let lane_clocks = LANES * gpu.clocks();
    let instructions = blocks * (elements * work + staged) / lane_clocks;
    let bounds = [memory, loads, instructions];
    let time = bounds.map(|time| time.powi(VECTOR_NORM)).iter().sum::<f64>().powf(1.0 / f64::from(VECTOR_NORM));
    let waves = (blocks / resident).ceil();
    let reduction = match splits {
        1 => 0.0,
        _ => {
            REDUCTION_LAUNCH
                + SPLIT * f64::from(splits)
                + 2.0 * m * n * batches * f64::from(splits) * 4.0 / PARTIAL_SUMS
        }
    };
    // Partial sums of a block's threads along k.
    let fold = costs.fold * f64::from(kernel.threads_k.ilog2() * kernel.rows * kernel.cols) * threads / lane_clocks;
    costs.start + costs.wave * waves + fold * blocks + time + reduction
}

/// Lanes of an SM.
const LANES: f64 = 128.0;
/// The most threads of an SM.
const MAX_THREADS: f64 = 2048.0;
/// The exponent of the norm that approximates the maximum.
const VECTOR_NORM: i32 = 4;

/// The predicted microseconds: the memory time at the rate that the blocks reach, plus launches,
/// prologue and reduction.
fn time(problem: &Problem, measured: &Measured, blocks: f64, split: Split, gpu: &GpuDescription) -> f64 {
    let [m, n, k] = [problem.m, problem.n, problem.k].map(|extent| extent as f64);
    let (batches, size) = (problem.batches as f64, problem.ty.size() as f64);
    let splits = if let Split::SplitK(splits) = split { f64::from(splits) } else { 1.0 };
    let multiprocessors = f64::from(gpu.multiprocessors);
    // With few blocks each is faster, at most twice as fast as where enough saturate memory.
    let saturation = blocks * splits / (SUFFICIENT * measured.blocks_per_sm * multiprocessors);
    let saturation = saturation.sqrt().min(2.0 * saturation).min(1.0);
    let rate = 1e6 * measured.rate * f64::from(gpu.memory_bandwidth) / f64::from(GpuDescription::H200.memory_bandwidth)
        * saturation;
    let memory = (m * k + k * n + m * n) * batches * size / rate;
    let [_, _, threads_n, threads_k, _] = measured.shape;
    let waves = blocks * splits * f64::from(threads_n * threads_k) / (THREADS * multiprocessors);
    let partial_sums = m * n * batches * splits * size;
    let reduction =
        if splits > 1.0 { REDUCTION_LAUNCH + SPLIT * splits + 2.0 * partial_sums / PARTIAL_SUMS } else { 0.0 };
    measured.start + memory.max(waves * BLOCK) + reduction
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GemmKernel;
    use crate::plan::{Caps, OperandLayout, Plan, Recipe, choose};

    const CAPS: Caps = Caps::Gpu(GpuDescription::H200);

    fn problem(ty: Type, [m, n, k]: [usize; 3], b: Order2d, aligned_16: bool) -> Problem {
        let row = OperandLayout::new(Order2d::RowMajor, aligned_16);
        let layouts = [row, OperandLayout::new(b, aligned_16), row];
        Problem { ty, accuracy: Default::default(), m, n, k, batches: 1, layouts }
    }

    /// The configuration and the split of the chosen recipe.
    fn chosen(problem: &Problem) -> String {
        match choose(problem, &CAPS).unwrap() {
            Plan::Gpu(Recipe { kernel: GemmKernel::Vector(vector), split, .. }) => shown(&vector, split),
            Plan::Gpu(recipe) => recipe.name(),
            Plan::Cpu => panic!("a GPU runs kernels"),
        }
    }

    fn shown(vector: &Vector, split: Split) -> String {
        match split {
            Split::SplitK(splits) => format!("{}:{splits}", &vector.short_name()["vector_".len()..]),
            _ => vector.short_name()["vector_".len()..].into(),
        }
    }

    #[test]
    fn skinny_choice_is_the_fastest_measured() {
        use Type::{F32, F64};
        let (row, col) = (Order2d::RowMajor, Order2d::ColMajor);
        /// Type, m, n and k, order of B, whether B is aligned to 16 bytes, the fastest recipes, and
        /// the measured microseconds of one of them.
        type Case = (Type, [usize; 3], Order2d, bool, &'static [&'static str], Option<(&'static str, f64)>);
        let cases: [Case; 21] = [
            (
                F32,
                [1, 4096, 4096],
                row,
                true,
                &["1x4_threads8x32_load8", "1x4_threads8x64_load4"],
                Some(("1x4_threads8x32_load8", 18.1)),
            ),
            (F32, [1, 8192, 8192], row, true, &["1x4_threads8x32_load8"], Some(("1x4_threads8x32_load8", 60.3))),
            (F32, [2, 4096, 4096], row, true, &["2x4_threads8x32_load8", "2x4_threads8x64_load4"], None),
            (F32, [4, 4096, 4096], row, true, &["4x4_threads8x32_load4"], Some(("4x4_threads8x32_load4:2", 19.6))),
            (F32, [8, 4096, 4096], row, true, &["8x4_threads16x16_load4:4"], Some(("8x4_threads16x16_load4:4", 20.7))),
            (
                F32,
                [16, 8192, 8192],
                row,
                true,
                &["16x4_threads64x4_load8:4", "register"],
                Some(("16x4_threads64x4_load8:4", 93.9)),
            ),
            (
                F32,
                [16, 4096, 4096],
                row,
                true,
                &["16x4_threads64x4_load4:8", "register_f32_32x128x16_warp32x64_thread8x8_stages3_slices2_blocks3"],
                Some(("16x4_threads64x4_load4:8", 31.2)),
            ),
            (F32, [4, 1024, 65536], row, true, &["4x4_threads8x32_load4:8"], None),
            (F64, [1, 4096, 4096], row, true, &["dmma"], Some(("1x4_threads8x32_load4", 33.7))),
            (
                F64,
                [1, 8192, 8192],
                row,
                true,
                &["1x4_threads8x32_load4", "dmma16x16_f64_16x32x32"],
                Some(("1x4_threads8x32_load4", 127.2)),
            ),
            (F64, [4, 4096, 4096], row, true, &["dmma"], Some(("4x2_threads32x8_load4:4", 35.0))),
            (
                F64,
                [8, 4096, 4096],
                row,
                true,
                &["8x2_threads32x8_load4:4", "dmma"],
                Some(("8x2_threads32x8_load4:4", 37.1)),
            ),
            (F64, [16, 4096, 4096], row, true, &["dmma"], None),
            (F32, [1, 4096, 4096], col, true, &["1x2_threads8x32_load16", "1x1_threads4x64_load16"], None),
            (F32, [4, 4096, 4096], col, true, &["4x4_threads4x64_load4"], None),
            (
                F32,
                [16, 4096, 4096],
                col,
                true,
                &["16x4_threads8x32_load8", "register"],
                Some(("16x4_threads8x32_load8", 36.6)),
            ),
            (F64, [1, 4096, 4096], col, true, &["1x1_threads16x16_load8", "1x2_threads8x32_load4"], None),
            (F64, [4, 4096, 4096], col, true, &["dmma"], None),
            (F32, [1, 4097, 4095], row, false, &["1x4_threads8x32_load4"], Some(("1x4_threads8x32_load4", 20.9))),
            (F64, [1, 4097, 4095], row, false, &["1x2_threads8x32_load4"], Some(("1x2_threads8x32_load4", 34.5))),
            (F32, [1, 4097, 4095], col, false, &["1x1_threads8x32_load16", "1x2_threads8x32_load8"], None),
        ];
        let mut wrong = Vec::new();
        for (ty, shape, b, aligned_16, fastest, timed) in cases {
            let problem = problem(ty, shape, b, aligned_16);
            let name = chosen(&problem);
            if !fastest.iter().any(|one| name.starts_with(one)) {
                wrong.push(format!("{ty} {shape:?} {b:?}: {name}, not {fastest:?}"));
            }
            let Some((one, known)) = timed else { continue };
            let all = candidates(&problem, &GpuDescription::H200).into_iter();
            let times: Vec<_> =
                all.filter_map(|(recipe, time)| (shown(&recipe.kernel, recipe.split) == one).then_some(time)).collect();
            if times.iter().all(|time| (time / known - 1.0).abs() > 0.05) {
                wrong.push(format!("{ty} {shape:?} {b:?}: {one} {times:?} µs, not {known}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn skinny_candidates_build_and_match_those_of_the_transpose() {
        for (ty, b, aligned_16) in [Type::F32, Type::F64].into_iter().flat_map(|ty| {
            let orders = [Order2d::RowMajor, Order2d::ColMajor];
            orders.into_iter().flat_map(move |b| [(ty, b, false), (ty, b, true)])
        }) {
            for rows in 1..=MAX_ROWS {
                let wide = problem(ty, [rows, 3000, 500], b, aligned_16);
                let [x, y, z] = wide.layouts.map(OperandLayout::transposed);
                let tall = Problem { m: wide.n, n: wide.m, layouts: [y, x, z], ..wide };
                let (wide, tall) = (candidates(&wide, &GpuDescription::H200), candidates(&tall, &GpuDescription::H200));
                assert_eq!(wide.len(), tall.len());
                for ((a, time), (b, same)) in wide.into_iter().zip(tall) {
                    assert_eq!((RecipeOf { swapped: true, ..a }, time), (b, same));
                    let vector = a.kernel;
                    vector.build().unwrap();
                }
            }
        }
    }

    #[test]
    fn skinny_candidates_need_few_rows() {
        let problem = |rows| problem(Type::F32, [rows, 17, 17], Order2d::RowMajor, true);
        assert!(heuristic_candidates(&problem(16), &GpuDescription::H200).next().is_some());
        assert!(heuristic_candidates(&problem(17), &GpuDescription::H200).next().is_none());
    }
}
