//! Recipes for a C of few rows or columns, which read the large operand once, at the speed of memory.
//!
//! Shapes that were measured on an H200 have a cost; of others the order is what is known.

use tegula_core::element::Type;
use tegula_ir::Order2d;

use super::problem::Problem;
use super::recipe::{RecipeOf, Split};
use crate::vector::Vector;

/// The shorter side of a C that counts as few rows or columns.
const FEW: usize = 16;
/// Of the blocks aimed at, so many are enough.
const ENOUGH: f64 = 0.9;
/// Threads of a multiprocessor that work at once, and the microseconds that their blocks take at least.
const THREADS: f64 = 1024.0;
const BLOCK: f64 = 1.5;
/// Microseconds of a launch, and of a second one, as they were when the shapes were measured; so are the next two.
const LAUNCH: [f64; 2] = [2.0, 2.0];
/// Microseconds that each part takes to be added, and its bytes a microsecond.
const PART: f64 = 0.04;
const PARTS: f64 = 2.7e6;

/// What was measured of a shape.
#[derive(Clone, Copy)]
struct Measured {
    /// Rows, columns of a thread, threads along n and k, depth.
    shape: [u32; 5],
    /// Blocks on each multiprocessor that make it fast.
    each: f64,
    /// Megabytes a microsecond that so many reach.
    rate: f64,
    /// Microseconds until bytes flow, and after.
    start: f64,
}

const fn of(shape: [u32; 5], each: f64, rate: f64, start: f64) -> Measured {
    Measured { shape, each, rate, start }
}

/// 4-byte types: B's rows side by side, 16 bytes at once.
const WORDS: [Measured; 10] = [
    of([1, 4, 8, 32, 8], 1.0, 4.69, 3.4),
    of([1, 4, 8, 64, 4], 1.0, 4.66, 3.3),
    of([2, 4, 8, 32, 8], 1.0, 4.69, 3.4),
    of([2, 4, 8, 64, 4], 1.0, 4.66, 3.3),
    of([4, 4, 8, 64, 4], 1.0, 4.07, 3.4),
    of([4, 4, 8, 32, 4], 2.0, 4.54, 3.4),
    of([8, 4, 16, 16, 4], 2.0, 4.37, 3.4),
    of([16, 4, 64, 4, 4], 1.0, 2.76, 3.4),
    of([16, 4, 64, 4, 8], 1.0, 3.21, 7.0),
    of([16, 4, 32, 8, 4], 1.0, 2.60, 3.4),
];

/// The same of f64. 1x2_16x16_16 is 1 to 2 % faster, and spills on older GPUs; 8x2_32x8_8 stands in where nothing is split, and was not measured.
const DOUBLES: [Measured; 8] = [
    of([1, 4, 8, 32, 4], 1.0, 4.41, 2.8),
    of([1, 2, 8, 32, 4], 2.0, 4.37, 2.6),
    of([2, 4, 8, 32, 4], 1.0, 4.41, 2.8),
    of([2, 2, 8, 32, 4], 2.0, 4.37, 2.6),
    of([4, 2, 32, 8, 4], 2.0, 4.48, 3.4),
    of([8, 2, 32, 8, 4], 2.0, 4.35, 3.4),
    of([8, 2, 32, 8, 8], 1.0, 4.00, 3.4),
    of([16, 2, 64, 4, 4], 1.0, 3.24, 3.4),
];

/// Shapes that spill where they do not split sums.
const IN_PARTS: [[u32; 5]; 1] = [[8, 2, 32, 8, 4]];

/// 4-byte types: B's columns side by side. Eight rows are between four and sixteen.
const WORDS_ALONG_K: [Measured; 6] = [
    of([1, 2, 8, 32, 16], 1.0, 4.60, 3.4),
    of([1, 1, 4, 64, 16], 1.0, 4.60, 3.5),
    of([2, 2, 8, 32, 16], 1.0, 4.60, 3.4),
    of([4, 4, 4, 64, 4], 2.0, 4.00, 3.4),
    of([8, 4, 8, 32, 4], 2.0, 3.00, 3.4),
    of([16, 4, 8, 32, 8], 1.0, 2.10, 3.4),
];

/// The same of f64.
const DOUBLES_ALONG_K: [Measured; 6] = [
    of([1, 1, 16, 16, 8], 2.0, 4.50, 3.4),
    of([1, 2, 8, 32, 4], 2.0, 4.45, 3.4),
    of([2, 2, 8, 32, 4], 2.0, 4.45, 3.4),
    of([4, 2, 8, 32, 4], 2.0, 4.00, 3.4),
    of([8, 2, 8, 32, 8], 1.0, 3.00, 3.4),
    of([16, 2, 16, 16, 4], 1.0, 2.16, 3.4),
];

/// Element by element: one or two rows alone were measured.
const WORDS_SINGLE: [Measured; 2] = [of([1, 4, 8, 32, 4], 1.0, 3.97, 3.4), of([2, 4, 8, 32, 4], 1.0, 3.97, 3.4)];
const DOUBLES_SINGLE: [Measured; 2] = [of([1, 2, 8, 32, 4], 2.0, 4.33, 3.4), of([2, 2, 8, 32, 4], 2.0, 4.33, 3.4)];
const WORDS_SINGLE_ALONG_K: [Measured; 2] =
    [of([1, 1, 8, 32, 16], 1.0, 3.90, 3.4), of([1, 2, 8, 32, 8], 1.0, 3.90, 3.5)];
const DOUBLES_SINGLE_ALONG_K: [Measured; 1] = [of([1, 2, 8, 32, 8], 1.0, 4.20, 3.4)];

/// Recipes of shapes that were measured for such a product, with the microseconds that each should take.
pub(crate) fn measured(problem: &Problem, multiprocessors: u32) -> Vec<(RecipeOf<Vector>, f64)> {
    let Some(Skinny { swapped, rows, along_k, vectors }) = Skinny::of(problem) else { return Vec::new() };
    let table: &[Measured] = match (problem.ty, vectors, along_k) {
        (Type::F32 | Type::I32, true, false) => &WORDS,
        (Type::F32 | Type::I32, true, true) => &WORDS_ALONG_K,
        (Type::F32 | Type::I32, false, false) => &WORDS_SINGLE,
        (Type::F32 | Type::I32, false, true) => &WORDS_SINGLE_ALONG_K,
        (Type::F64, true, false) => &DOUBLES,
        (Type::F64, true, true) => &DOUBLES_ALONG_K,
        (Type::F64, false, false) => &DOUBLES_SINGLE,
        (Type::F64, false, true) => &DOUBLES_SINGLE_ALONG_K,
        // None of these was measured.
        (Type::F16 | Type::BF16 | Type::I8, ..) => &[],
        (Type::U8 | Type::U32 | Type::I64 | Type::U64 | Type::Pred, ..) => &[],
    };
    let mut all = Vec::new();
    for measured in table.iter().filter(|measured| measured.shape[0] as usize == rows.next_power_of_two()) {
        let [few, cols, across, down, deep] = measured.shape;
        let vector = Vector { vectors, ..Vector::new(problem.ty, few, cols, [across, down], deep) };
        let blocks = blocks(problem, &vector);
        let aim = measured.each * f64::from(multiprocessors);
        let parts = if blocks >= ENOUGH * aim { 1 } else { (aim / blocks).round() as usize };
        let parts = parts.min(problem.k.div_ceil(vector.step() as usize)).max(1) as u32;
        let whole = (!IN_PARTS.contains(&measured.shape)).then_some(Split::Whole);
        let split = (parts > 1).then_some(Split::Parts(parts));
        for split in whole.into_iter().chain(split) {
            let recipe = RecipeOf { swapped, split, ..RecipeOf::new(vector) };
            all.push((recipe, time(problem, measured, blocks, split, multiprocessors)));
        }
    }
    all
}

/// Recipes of all shapes worth trying, the likeliest first: each kernel with sums split until there are two blocks for each multiprocessor,
/// one, and four.
pub(crate) fn likeliest(problem: &Problem, multiprocessors: u32) -> impl Iterator<Item = RecipeOf<Vector>> {
    let skinny = Skinny::of(problem).into_iter();
    skinny.flat_map(move |Skinny { swapped, rows, along_k, vectors }| {
        let vectors = Vector::shapes(problem.ty, rows, along_k, vectors).into_iter();
        vectors.flat_map(move |vector| {
            let steps = problem.k.div_ceil(vector.step() as usize).max(1);
            [2, 1, 4].map(|each| {
                let parts = (f64::from(each * multiprocessors) / blocks(problem, &vector)).ceil() as usize;
                RecipeOf { swapped, split: Split::parts(parts.min(steps) as u32), ..RecipeOf::new(vector) }
            })
        })
    })
}

/// A product of few rows or columns as the kernels see it: of few rows.
struct Skinny {
    swapped: bool,
    rows: usize,
    /// Whether B lies side by side along k.
    along_k: bool,
    /// Whether it may be read 16 bytes at once.
    vectors: bool,
}

impl Skinny {
    fn of(problem: &Problem) -> Option<Self> {
        let Problem { m, n, lies, .. } = *problem;
        let swapped = n < m;
        let (rows, b) = if swapped { (n, lies[0].transposed()) } else { (m, lies[1]) };
        let along_k = b.order == Order2d::ColMajor;
        (rows <= FEW).then_some(Skinny { swapped, rows: rows.max(1), along_k, vectors: b.vectors })
    }
}

/// Blocks of a kernel that does not split sums, one at least.
fn blocks(problem: &Problem, vector: &Vector) -> f64 {
    let across = problem.m.max(problem.n).div_ceil((vector.across * vector.cols) as usize);
    (across as f64 * problem.batches as f64).max(1.0)
}

/// Microseconds: memory's time at the rate that so many blocks reach, and that of what comes before and after.
fn time(problem: &Problem, measured: &Measured, blocks: f64, split: Split, multiprocessors: u32) -> f64 {
    let [m, n, k] = [problem.m, problem.n, problem.k].map(|extent| extent as f64);
    let (batches, size) = (problem.batches as f64, problem.ty.size() as f64);
    let parts = if let Split::Parts(parts) = split { f64::from(parts) } else { 1.0 };
    let multiprocessors = f64::from(multiprocessors);
    let there = (blocks * parts / (ENOUGH * measured.each * multiprocessors)).min(1.0);
    // The second block of a multiprocessor adds less than the first.
    let rate = 1e6 * measured.rate * there.powf(1.0 / measured.each);
    let memory = (m * k + k * n + m * n) * batches * size / rate;
    let [_, _, across, down, _] = measured.shape;
    let waves = blocks * parts * f64::from(across * down) / (THREADS * multiprocessors);
    let split = m * n * batches * parts * size;
    let added = if parts > 1.0 { LAUNCH[1] + PART * parts + 2.0 * split / PARTS } else { 0.0 };
    LAUNCH[0] + measured.start + memory.max(waves * BLOCK) + added
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::GemmKernel;
    use crate::plan::{Caps, Lie, Plan, Recipe, choose};

    const CAPS: Caps = Caps::Gpu { compute: (9, 0), multiprocessors: 132 };

    fn problem(ty: Type, [m, n, k]: [usize; 3], b: Order2d, vectors: bool) -> Problem {
        let row = Lie::new(Order2d::RowMajor, vectors);
        let lies = [row, Lie::new(b, vectors), row];
        Problem { ty, accuracy: Default::default(), m, n, k, batches: 1, lies }
    }

    /// The shape and the split of what is chosen.
    fn chosen(problem: &Problem) -> String {
        match choose(problem, &CAPS).unwrap() {
            Plan::Gpu(Recipe { kernel: GemmKernel::Vector(vector), split, .. }) => shown(&vector, split),
            Plan::Gpu(recipe) => recipe.name(),
            Plan::Cpu => panic!("a GPU runs kernels"),
        }
    }

    fn shown(vector: &Vector, split: Split) -> String {
        match split {
            Split::Parts(parts) => format!("{}:{parts}", &vector.short_name()["vector_".len()..]),
            _ => vector.short_name()["vector_".len()..].into(),
        }
    }

    #[test]
    fn what_was_measured_fastest_is_chosen() {
        use Type::{F32, F64};
        let (row, col) = (Order2d::RowMajor, Order2d::ColMajor);
        /// The type, m, n, k, the order of B, whether sixteen bytes can be moved at once, the fastest, and the
        /// microseconds of one of the vectors.
        type Case = (Type, [usize; 3], Order2d, bool, &'static [&'static str], Option<(&'static str, f64)>);
        let cases: [Case; 21] = [
            (F32, [1, 4096, 4096], row, true, &["1x4_8x32_8", "1x4_8x64_4"], Some(("1x4_8x32_8", 19.7))),
            (F32, [1, 8192, 8192], row, true, &["1x4_8x32_8"], Some(("1x4_8x32_8", 62.6))),
            (F32, [2, 4096, 4096], row, true, &["2x4_8x32_8", "2x4_8x64_4"], None),
            (F32, [4, 4096, 4096], row, true, &["4x4_8x64_4"], Some(("4x4_8x64_4", 21.9))),
            (F32, [8, 4096, 4096], row, true, &["8x4_16x16_4:4"], Some(("8x4_16x16_4:4", 23.9))),
            (F32, [16, 8192, 8192], row, true, &["16x4_64x4_8:4", "register"], Some(("16x4_64x4_8:4", 96.8))),
            (
                F32,
                [16, 4096, 4096],
                row,
                true,
                &["16x4_64x4_4:8", "register_f32_32x128x16_32x64_8x8_3_2_3"],
                Some(("16x4_64x4_4:8", 34.8)),
            ),
            (F32, [4, 1024, 65536], row, true, &["4x4_8x32_4:8"], None),
            (F64, [1, 4096, 4096], row, true, &["dmma"], Some(("1x4_8x32_4", 35.2))),
            (F64, [1, 8192, 8192], row, true, &["1x4_8x32_4"], Some(("1x4_8x32_4", 126.6))),
            (F64, [4, 4096, 4096], row, true, &["dmma"], Some(("4x2_32x8_4:4", 38.5))),
            (F64, [8, 4096, 4096], row, true, &["8x2_32x8_4:4", "dmma"], Some(("8x2_32x8_4:4", 40.1))),
            (F64, [16, 4096, 4096], row, true, &["dmma"], None),
            (F32, [1, 4096, 4096], col, true, &["1x2_8x32_16", "1x1_4x64_16"], None),
            (F32, [4, 4096, 4096], col, true, &["4x4_4x64_4"], None),
            (F32, [16, 4096, 4096], col, true, &["16x4_8x32_8", "register"], Some(("16x4_8x32_8", 37.3))),
            (F64, [1, 4096, 4096], col, true, &["1x1_16x16_8", "1x2_8x32_4"], None),
            (F64, [4, 4096, 4096], col, true, &["dmma"], None),
            (F32, [1, 4097, 4095], row, false, &["1x4_8x32_4"], Some(("1x4_8x32_4", 22.3))),
            (F64, [1, 4097, 4095], row, false, &["1x2_8x32_4"], Some(("1x2_8x32_4", 36.4))),
            (F32, [1, 4097, 4095], col, false, &["1x1_8x32_16", "1x2_8x32_8"], None),
        ];
        let mut wrong = Vec::new();
        for (ty, shape, b, vectors, fastest, timed) in cases {
            let problem = problem(ty, shape, b, vectors);
            let name = chosen(&problem);
            if !fastest.iter().any(|one| name.starts_with(one)) {
                wrong.push(format!("{ty} {shape:?} {b:?}: {name}, not {fastest:?}"));
            }
            let Some((one, known)) = timed else { continue };
            let all = measured(&problem, 132).into_iter();
            let times: Vec<_> =
                all.filter_map(|(recipe, time)| (shown(&recipe.kernel, recipe.split) == one).then_some(time)).collect();
            if times.iter().all(|time| (time / known - 1.0).abs() > 0.05) {
                wrong.push(format!("{ty} {shape:?} {b:?}: {one} {times:?} µs, not {known}"));
            }
        }
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    }

    #[test]
    fn measured_shapes_are_kernels_and_columns_are_rows_of_the_transposed() {
        for (ty, b, vectors) in [Type::F32, Type::F64].into_iter().flat_map(|ty| {
            let orders = [Order2d::RowMajor, Order2d::ColMajor];
            orders.into_iter().flat_map(move |b| [(ty, b, false), (ty, b, true)])
        }) {
            for rows in 1..=FEW {
                let wide = problem(ty, [rows, 3000, 500], b, vectors);
                let [x, y, z] = wide.lies.map(Lie::transposed);
                let tall = Problem { m: wide.n, n: wide.m, lies: [y, x, z], ..wide };
                let (wide, tall) = (measured(&wide, 132), measured(&tall, 132));
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
    fn what_was_not_measured_keeps_its_order() {
        for ty in [Type::F16, Type::BF16, Type::I8] {
            let problem = problem(ty, [3, 4096, 4096], Order2d::RowMajor, true);
            assert!(measured(&problem, 132).is_empty());
            let first = likeliest(&problem, 132).next().unwrap().fit(problem.lies);
            let caps = Caps::Gpu { compute: (8, 0), multiprocessors: 132 };
            assert_eq!(choose(&problem, &caps).unwrap(), Plan::Gpu(first.map(GemmKernel::Vector)));
        }
        assert!(likeliest(&problem(Type::F32, [17, 17, 17], Order2d::RowMajor, true), 132).next().is_none());
    }
}
