//! How long a product takes by a recipe, as far as it is known without running it.
//!
//! A block's time is its steps along k by what a step takes, and a fixed part (the pipeline fills, sums are stored); blocks run in waves of as
//! many as fit on the multiprocessors. Few blocks wait for their own latencies, many for each other, and both go together as the sides of a right
//! triangle do. Nothing is faster than memory delivers its operands. The four numbers of each blocking were fitted to measurements on an H200
//! (`benchmarks/cost`); what packing, busy memory, heat and a layout cost was taken from single measurements (`benchmarks/NOTES.md`), after the
//! fit. On other GPUs the ranking is what counts.

use super::Problem;
use super::recipe::{Recipe, Split};
use crate::element::Type;
use crate::ir::Order2d;
use crate::kernels::{Blocked, Blocking, Core, Variant};

/// A GPU, as far as times depend on it.
#[derive(Clone, Copy, Debug)]
pub struct Machine {
    /// Multiprocessors.
    pub multiprocessors: u32,
}

/// Floating-point operations a microsecond of one multiprocessor, f32: 64.5 TFLOP/s on 132.
const RATE: f64 = 64.5e6 / 132.0;
/// Bytes a microsecond of device memory, as tiles reach it.
const MEMORY: f64 = 4.0e6;
/// Bytes a microsecond of the parts of sums, which the L2 cache mostly holds.
const PARTS: f64 = 2.7e6;
/// Bytes a microsecond of packing, read and written.
const PACKING: f64 = 3.0e6;
/// Microseconds that each part takes besides: a thread that adds them waits for some after others.
const PART: f64 = 0.04;
/// How much longer steps take of blocks that share tiles, on plain cores and on matrix units.
const SHARING: [f64; 2] = [1.08, 1.04];
/// Microseconds until busy memory answers, where the operands are more than these bytes: what the L2 cache does not hold.
const LATENCY: f64 = 1.2;
const CACHED: f64 = 40e6;
/// What operations and memory cost each other: of the lesser time, this part is added to the greater.
const BESIDE: f64 = 0.1;
/// Microseconds until a card that f64 heats has to slow down.
const COOL: f64 = 200.0;
/// Microseconds of a launch, and of a second one.
pub(super) const LAUNCH: [f64; 2] = [2.0, 2.0];

/// What was measured of a blocking.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub core: Core,
    pub blocking: Blocking,
    /// Share of the instruction rate that a multiprocessor full of such blocks reaches.
    pub full: f64,
    /// The same with one block alone.
    pub alone: f64,
    /// How much longer a step takes where elements are copied one by one.
    pub single: f64,
    /// Microseconds that each wave of blocks takes besides.
    pub fixed: f64,
}

/// Microseconds that a product takes.
pub(super) fn time(problem: &Problem, recipe: &Recipe, measured: &Measured, machine: Machine) -> f64 {
    let Variant::Blocked(kernel) = recipe.kernel else { return f64::INFINITY };
    let Blocking { block: [bm, bn, bk], blocks, .. } = kernel.blocking;
    let [m, n] = if recipe.swapped { [problem.n, problem.m] } else { [problem.m, problem.n] };
    let tiles = m.div_ceil(bm as usize) * n.div_ceil(bn as usize);
    let all = tiles as f64 * problem.batches as f64;
    let steps = problem.k.div_ceil(bk as usize) as f64;
    let single = (0..2).any(|which| kernel.single(which, kernel.orders[which], kernel.vectors[which]));
    let lying = lying(&kernel);
    let work = f64::from(bm) * f64::from(bn) * f64::from(bk) * 2.0;
    let step =
        lying * if single { measured.single } else { 1.0 } * work / (RATE * relative_rate(problem.ty, measured.core));
    let (at_once, multiprocessors) = (f64::from(blocks), f64::from(machine.multiprocessors));
    let [m, n, k] = [problem.m, problem.n, problem.k].map(|extent| extent as f64);
    let (batches, size) = (problem.batches as f64, problem.ty.size() as f64);
    // Copies are some steps ahead, and each takes as long as memory does to answer.
    let ahead = f64::from(kernel.blocking.stages - 1);
    let waiting = if (m * k + k * n) * batches * size > CACHED { LATENCY / ahead } else { 0.0 };
    // A step of so many blocks on each multiprocessor: its square is linear in that of their number, between one and as many as fit.
    let together = |blocks: f64| {
        let (one, every) = ((step / measured.alone).powi(2), (at_once * step / measured.full).powi(2));
        (one + (every - one).max(0.0) * (blocks.powi(2) - 1.0) / (at_once.powi(2) - 1.0).max(1.0)).sqrt().max(waiting)
    };
    // Waves of blocks that make so many steps each.
    let waves = |blocks: f64, steps: f64| {
        let full = (blocks / (at_once * multiprocessors)).floor();
        let rest = blocks - full * at_once * multiprocessors;
        let mut time = full * (together(at_once) * steps + measured.fixed);
        if rest > 0.0 {
            let each = (rest / multiprocessors).ceil();
            time += together(each) * steps + measured.fixed;
        }
        time
    };
    // What a second kernel adds: elements, and how many for each of C.
    let (multiply, split, parts) = match recipe.split {
        Split::Whole => (waves(all, steps), 0.0, 0.0),
        Split::Parts(parts) => {
            let parts = f64::from(parts);
            (waves(all * parts, (steps / parts).ceil()), m * n * parts * batches, parts)
        }
        Split::Workers(workers) => {
            let workers = f64::from(workers);
            let whole = (all / workers).floor();
            let left = all - whole * workers;
            let shared = (left * steps / workers).ceil();
            let sharing = SHARING[usize::from(measured.core != Core::Register)];
            let time = (whole * steps + shared) * together(at_once) * sharing + (whole + 2.0) * measured.fixed;
            (time, (workers + left) * f64::from(bm) * f64::from(bn), 1.0)
        }
    };
    let memory = ((m * k + k * n + m * n) * batches + split) * size / MEMORY;
    let second = if split > 0.0 { second(split * size, parts) } else { 0.0 };
    let packing = |which: usize| {
        if recipe.packed[which] { LAUNCH[1] + 2.0 * size * batches * k * [m, n][which] / PACKING } else { 0.0 }
    };
    let multiply =
        multiply + if let Core::Dmma(_) = measured.core { (multiply - COOL).max(0.0) * heat([bm, bn]) } else { 0.0 };
    multiply.max(memory) + BESIDE * multiply.min(memory) + LAUNCH[0] + second + packing(0) + packing(1)
}

/// Microseconds of the second launch, which adds so many bytes in so many parts.
pub(super) fn second(bytes: f64, parts: f64) -> f64 {
    LAUNCH[1] + PART * parts + 2.0 * bytes / PARTS
}

/// How much slower f64 gets under the power limit, by the tile: what it reads for each of its sums takes power. Measured at 4096³ and 8192³: 10 % of
/// 128×128, 15 % of 64×128, 22 % of 64×64.
fn heat([rows, cols]: [u32; 2]) -> f64 {
    7.7 * (1.0 / f64::from(rows) + 1.0 / f64::from(cols)) - 0.02
}

/// How much longer steps take of factors that do not lie as the tiles were measured: at 4096³, nn, nt, tn and tt.
fn lying(kernel: &Blocked) -> f64 {
    let [a, b] = [kernel.orders[0], kernel.orders[1]].map(|order| order == Order2d::ColMajor);
    match (kernel.core, a, b) {
        (Core::Register, false, true) => 1.035,
        (Core::Register, true, true) => 1.01,
        (Core::Dmma(_), true, false) | (Core::Dmma(_), false, true) => 1.05,
        _ => 1.0,
    }
}

/// Multiply-adds of a type, relative to f32; of those on matrix units by what large tiles of each reach, so that one table serves them all.
fn relative_rate(ty: Type, core: Core) -> f64 {
    match (ty, core) {
        (Type::F32, Core::Mma(_)) => 5.2,
        (Type::F32, _) | (Type::F64, Core::Dmma(_)) => 1.0,
        (Type::F16 | Type::BF16, Core::Mma(_)) => 9.7,
        (Type::I8, Core::Mma(_)) => 22.0,
        (Type::I32, Core::Limbs) => 1.96,
        _ => 0.5,
    }
}
