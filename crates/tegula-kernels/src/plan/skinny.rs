//! Candidates for a C of few rows or columns, which read the large operand once, at memory
//! bandwidth, with their predicted times by a model of memory, loads and instructions.

use tegula_core::element::Type;
use tegula_ir::Order2d;

use super::device::GpuDescription;
use super::problem::Problem;
use super::recipe::{RecipeOf, Split};
use super::vector_costs::{SIZES, VectorCosts};
use crate::vector::Vector;

/// The maximum shorter side of a skinny C.
const MAX_ROWS: usize = 16;
/// Split-K is tried to these numbers of blocks per SM.
const BLOCKS_PER_SM: [u32; SPLITS] = [2, 1, 4];
const SPLITS: usize = 3;

/// The candidates for a product, with predicted microseconds.
pub(crate) fn candidates(problem: &Problem, gpu: &GpuDescription) -> Vec<(RecipeOf<Vector>, f64)> {
    let Some(Skinny { along_k, aligned_16, .. }) = Skinny::of(problem) else { return Vec::new() };
    let is_short = match problem.ty {
        Type::F16 | Type::BF16 | Type::I8 => true,
        Type::F32 | Type::F64 | Type::I32 => false,
        Type::U8 | Type::U32 | Type::I64 | Type::U64 | Type::Pred => return Vec::new(),
    };
    // Others spill: unpacking 16 bytes along k takes registers that `Vector` does not count.
    let unpacks_along_k = problem.ty.size() == 2 && along_k && aligned_16;
    let limit = if unpacks_along_k { 2 * SPLITS } else { usize::MAX };
    let all = heuristic_candidates(problem, gpu).take(limit).map(|recipe| recipe.legalize(problem.layouts));
    let fits = |kernel: &Vector| !is_short || unpacks_along_k || !aligned_16 || kernel.has_spare_registers();
    let all = all.filter(|recipe| fits(&recipe.kernel));
    all.map(|recipe| (recipe, time(problem, &recipe, &VectorCosts::FITTED, gpu))).collect()
}

/// All candidates, the most promising first: each kernel with split-K to two blocks per SM, one,
/// and four; and for types of four bytes or more without split-K.
pub(crate) fn heuristic_candidates(problem: &Problem, gpu: &GpuDescription) -> impl Iterator<Item = RecipeOf<Vector>> {
    let skinny = Skinny::of(problem).into_iter();
    skinny.flat_map(move |Skinny { swapped, rows, along_k, aligned_16 }| {
        let variants = Vector::shapes(problem.ty, rows, along_k, aligned_16).into_iter();
        variants.flat_map(move |vector| {
            let k_steps = problem.k.div_ceil(vector.step() as usize).max(1);
            let is_short = problem.ty.size() < 4;
            let splits = BLOCKS_PER_SM.map(|blocks_per_sm| {
                let splits = f64::from(blocks_per_sm * gpu.multiprocessors) / blocks(problem, &vector);
                // Shorter types were only measured with at least as many blocks.
                (if is_short { splits.ceil() } else { splits.round().max(1.0) }) as usize
            });
            let whole = (!is_short).then_some(1);
            splits.into_iter().chain(whole).map(move |splits| {
                let split = Split::split_k(splits.min(k_steps) as u32);
                RecipeOf { swapped, split, ..RecipeOf::new(vector) }
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
        (rows <= MAX_ROWS).then_some(Skinny { swapped, rows: rows.max(1), along_k, aligned_16: b.aligned_16() })
    }
}

/// Blocks of a kernel without split-K, at least one.
fn blocks(problem: &Problem, vector: &Vector) -> f64 {
    let blocks_n = problem.m.max(problem.n).div_ceil((vector.threads_n * vector.cols) as usize);
    (blocks_n as f64 * problem.batches as f64).max(1.0)
}

/// The predicted microseconds.
///
/// Of three times, which overlap in part, the square root of the sum of squares: of device memory,
/// of the instructions of an SM, and of the latency of the loads and instructions of the blocks
/// that follow each other. Instructions are counted per element of B, per multiply-add and per
/// element of A. Elements out of bounds count like others: blocks work in whole k-steps and on
/// whole columns.
pub(super) fn time(problem: &Problem, recipe: &RecipeOf<Vector>, costs: &VectorCosts, gpu: &GpuDescription) -> f64 {
    let (kernel, splits) = (&recipe.kernel, if let Split::SplitK(splits) = recipe.split { splits } else { 1 });
    let [m, n, k] = [problem.m, problem.n, problem.k].map(|extent| extent as f64);
    let (batches, splits, element_bytes) = (problem.batches as f64, f64::from(splits), problem.ty.size());
    let bytes = element_bytes as f64;
    let size = SIZES.iter().position(|&size| size == element_bytes).unwrap_or(SIZES.len() - 1);
    let class = 4 * size + 2 * usize::from(kernel.transposed()) + usize::from(kernel.aligned_16);
    let Vector { rows, cols, threads_n, threads_k, .. } = *kernel;
    let [rows, cols, threads] = [rows, cols, threads_n * threads_k].map(f64::from);
    // Blocks of the busiest SM, which run in waves of those resident at a time.
    let blocks = (blocks(problem, kernel) * splits / f64::from(gpu.multiprocessors)).ceil();
    let waves = (blocks / f64::from(kernel.resident())).ceil();
    let steps = (k / splits / f64::from(kernel.step())).ceil();
    let depth = steps * f64::from(kernel.step());
    let elements = f64::from(threads_n) * cols * depth;
    // Consecutive bytes that a block reads at a time.
    let consecutive = if kernel.transposed() { threads_k * kernel.width() } else { kernel.columns() };
    let consecutive = f64::from(consecutive) * bytes;
    let partial_lines = costs.partial_line * (LINE_BYTES / consecutive - 1.0).max(0.0);
    let memory = (m * k + k * n + m * n) * batches * bytes / gpu.memory(costs.memory[size]) * (1.0 + partial_lines);
    // A block copies chunks of its rows of A to shared memory, and adds its threads' partial sums.
    let chunk = f64::from(kernel.chunk());
    let staged = rows * (steps / chunk).ceil() * chunk * f64::from(kernel.step());
    let multiply = costs.element[class] + rows * (costs.multiply_add[class] + costs.read_a[size] / cols);
    let outputs = rows * f64::from(threads_n) * cols;
    let epilogue = outputs * (costs.output + costs.fold * f64::from(threads_k));
    let work = elements * multiply + costs.stage * staged + epilogue;
    let instructions = blocks * (work + costs.block) / (LANES * gpu.clocks());
    // Each half of a k-step waits for its loads.
    let clocks = costs.issue * work / threads + costs.sum * f64::from(kernel.sequential_sums());
    let latency = waves * (2.0 * steps * costs.latency[class] + clocks / gpu.clocks());
    let bounds = [memory, latency, instructions];
    let bounds = bounds.map(|time| time * time).iter().sum::<f64>().sqrt();
    let partial_bytes = 2.0 * m * n * batches * splits * problem.ty.accumulator().size() as f64;
    let [launch, per_sum] = costs.reduction;
    let reduction = if splits > 1.0 { launch + per_sum * splits + partial_bytes / costs.partial_sums } else { 0.0 };
    costs.start + costs.wave[size] * waves + bounds + reduction
}

/// Lanes of an SM.
const LANES: f64 = 128.0;
/// Bytes of a line of the cache.
const LINE_BYTES: f64 = 128.0;

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
    fn skinny_choice_is_near_the_fastest_measured() {
        use Type::{F32, F64};
        let (row, col) = (Order2d::RowMajor, Order2d::ColMajor);
        /// Type, m, n and k, order of B, whether B is aligned to 16 bytes, recipes that are within
        /// 5 % of the fastest measured one if not noted, and the measured microseconds of a recipe.
        type Case = (Type, [usize; 3], Order2d, bool, &'static [&'static str], Option<(&'static str, f64)>);
        let cases: [Case; 21] = [
            (F32, [1, 4096, 4096], row, true, &["1x4_threads8x32_load8"], Some(("1x4_threads8x32_load8", 18.1))),
            (F32, [1, 8192, 8192], row, true, &["1x4_threads8x32_load8"], Some(("1x4_threads8x32_load8", 61.8))),
            (F32, [2, 4096, 4096], row, true, &["2x4_threads8x32_load8"], None),
            (
                F32,
                [4, 4096, 4096],
                row,
                true,
                &["4x4_threads32x8_load4:8", "4x4_threads16x16_load4:4", "4x4_threads16x8_load4:8"],
                Some(("4x4_threads16x16_load4:4", 19.3)),
            ),
            (
                F32,
                [8, 4096, 4096],
                row,
                true,
                &["8x4_threads32x8_load4:8", "8x4_threads16x16_load4:4", "8x4_threads16x8_load4:8"],
                Some(("8x4_threads16x16_load4:4", 20.7)),
            ),
            // 8 % slower than 16x4_threads32x4_load8 in four parts of k.
            (
                F32,
                [16, 8192, 8192],
                row,
                true,
                &["16x4_threads64x4_load8:4", "register"],
                Some(("16x4_threads64x4_load8:4", 93.8)),
            ),
            (
                F32,
                [16, 4096, 4096],
                row,
                true,
                &["16x4_threads64x4_load8:8", "register_f32_32x128x16_warp32x64_thread8x8_stages3_slices2_blocks3"],
                Some(("16x4_threads64x4_load8:8", 31.4)),
            ),
            (F32, [4, 1024, 65536], row, true, &["4x4_threads32x8_load4:33", "4x4_threads8x32_load4:8"], None),
            (
                F64,
                [1, 4096, 4096],
                row,
                true,
                &["dmma", "1x2_threads8x32_load4"],
                Some(("1x2_threads8x32_load4", 33.7)),
            ),
            (
                F64,
                [1, 8192, 8192],
                row,
                true,
                &["1x2_threads16x16_load4", "1x4_threads16x16_load4", "dmma16x16_f64_16x32x32"],
                Some(("1x2_threads16x16_load4", 124.3)),
            ),
            (F64, [4, 4096, 4096], row, true, &["dmma"], Some(("4x2_threads32x8_load4:4", 35.0))),
            (F64, [8, 4096, 4096], row, true, &["dmma"], Some(("8x2_threads32x8_load4:4", 37.1))),
            (F64, [16, 4096, 4096], row, true, &["dmma"], None),
            // 6 % slower than 1x1_threads4x64_load16.
            (F32, [1, 4096, 4096], col, true, &["1x2_threads8x32_load8"], Some(("1x2_threads8x32_load8", 18.2))),
            (F32, [4, 4096, 4096], col, true, &["4x4_threads4x64_load4"], None),
            (
                F32,
                [16, 4096, 4096],
                col,
                true,
                &["16x2_threads16x16_load8:2", "register"],
                Some(("16x2_threads16x16_load8:2", 34.2)),
            ),
            (F64, [1, 4096, 4096], col, true, &["1x1_threads16x16_load8", "1x2_threads8x32_load4"], None),
            (F64, [4, 4096, 4096], col, true, &["dmma"], None),
            (F32, [1, 4097, 4095], row, false, &["1x4_threads8x32_load4"], Some(("1x4_threads8x32_load4", 20.9))),
            // 7 % slower than 1x2_threads8x32_load4.
            (F64, [1, 4097, 4095], row, false, &["1x2_threads16x16_load4"], Some(("1x2_threads16x16_load4", 37.0))),
            // 8 % slower than 1x2_threads8x32_load8.
            (F32, [1, 4097, 4095], col, false, &["1x2_threads8x32_load4"], None),
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
            if times.iter().all(|time| (time / known - 1.0).abs() > 0.1) {
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
