//! How long a product takes by a recipe, as far as it is known without running it.
//!
//! A block's time is its steps along k by what a step takes, what storing its sums takes, and a fixed part (the pipeline fills); blocks run in
//! waves of as many as fit on the multiprocessors. A step multiplies and copies. Few blocks that multiply wait for their own latencies, many for
//! each other, and both go together as the sides of a right triangle do. Copies are counted in pieces: 16 bytes at once are one, and so is an
//! element that is copied alone. Nothing is faster than memory delivers its operands. What was fitted to measurements of random shapes on
//! an H200, and how, says `benchmarks/cost/fit.py`; memory's own numbers, heat, f64's layouts and what other tiles than those of full accuracy take are
//! from single measurements (`benchmarks/NOTES.md`). On other GPUs the ranking is what counts.

use tegula_core::element::Type;
use tegula_ir::Order2d;

use super::problem::Problem;
use super::recipe::{RecipeOf, Split};
use crate::blocked::{Blocked, Blocking, Core};
use crate::sum::Adding;

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
/// Operations wait for this part of memory's time, but not of more than so many microseconds of it.
const BESIDE: f64 = 0.765;
const OVERLAPPED: f64 = 7.02;
/// Microseconds until busy memory answers, where the operands are more than these bytes: what the L2 cache does not hold.
const LATENCY: f64 = 0.775;
const CACHED: f64 = 40e6;
/// Nanoseconds that a multiprocessor takes to copy a piece for each thread of a warp, an element or 16 bytes: 4-byte types, and f64; and an element
/// that is turned.
const COPY: [[f64; 2]; 2] = [[1.144, 0.8974], [0.8137, 0.07818]];
const TURN: f64 = 1.343;
/// How much longer steps take that copy element by element, in kernels whose copies were not measured.
const SINGLE: f64 = 1.15;
/// Nanoseconds that a multiprocessor takes to store one thread's piece.
const STORE: [f64; 2] = [0.193, 0.097];
/// How long a last wave takes that is not the only one: its blocks have fewer rivals.
const LAST_WAVE: f64 = 0.978;
/// How much longer steps take of blocks that share tiles.
const SHARING: f64 = 1.057;
/// Bytes a microsecond of what a second kernel adds, which the L2 cache mostly holds, written and read.
const PARTS: f64 = 7.025e6;
/// Microseconds that each of its rounds of loads but the first takes; and each worker's share of a tile, timed when one was waited for after the
/// other.
const ROUND: f64 = 0.327;
const SHARE: f64 = 0.897;
/// Bytes a microsecond of packing, read and written, and the microseconds of its launch.
const PACKING: f64 = 4.032e6;
const PACKED: f64 = 1.495;
/// By what part a recipe has to be better for each factor that it packs, since the numbers here are not that exact.
const BETTER: f64 = 0.01;
/// Microseconds until a card that f64 heats has to slow down.
const COOL: f64 = 200.0;
/// Microseconds of a launch, and of a second one.
const LAUNCH: [f64; 2] = [1.088, 1.065];

/// What was measured of a blocking.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub core: Core,
    pub blocking: Blocking,
    /// Share of the instruction rate that a multiprocessor full of such blocks reaches.
    pub full: f64,
    /// The same with one block alone.
    pub alone: f64,
    /// How long its copies take by those of others.
    pub copies: f64,
    /// Microseconds that each wave of blocks takes besides.
    pub fixed: f64,
}

/// Microseconds that a product takes by a recipe for it, where C has rows.
pub(super) fn time(problem: &Problem, recipe: &RecipeOf<Blocked>, measured: &Measured, machine: Machine) -> f64 {
    let kernel = recipe.kernel;
    let Blocking { block: [bm, bn, bk], blocks, .. } = kernel.blocking;
    let tiles = problem.m.div_ceil(bm as usize) * problem.n.div_ceil(bn as usize);
    let all = tiles as f64 * problem.batches as f64;
    let steps = problem.k.div_ceil(bk as usize) as f64;
    let work = f64::from(bm) * f64::from(bn) * f64::from(bk) * 2.0;
    let step = lying(&kernel) * work / (RATE * relative_rate(problem.ty, measured.core));
    let copies = measured.copies * copies(&kernel, problem.ty);
    let store = store(&kernel, problem.ty);
    let (at_once, multiprocessors) = (f64::from(blocks), f64::from(machine.multiprocessors));
    let [m, n, k] = [problem.m, problem.n, problem.k].map(|extent| extent as f64);
    let (batches, size) = (problem.batches as f64, problem.ty.size() as f64);
    // Copies are some steps ahead, and each takes as long as memory does to answer.
    let ahead = f64::from(kernel.blocking.stages - 1);
    let waiting = if (m * k + k * n) * batches * size > CACHED { LATENCY / ahead } else { 0.0 };
    // A step of so many blocks on each multiprocessor: its square is linear in that of their number, between one and as many as fit.
    let together = |blocks: f64| {
        let (one, every) = ((step / measured.alone).powi(2), (at_once * step / measured.full).powi(2));
        let multiplying = one + (every - one).max(0.0) * (blocks.powi(2) - 1.0) / (at_once.powi(2) - 1.0).max(1.0);
        (multiplying.sqrt() + blocks * copies).max(waiting)
    };
    // Waves of blocks that make so many steps each.
    let waves = |blocks: f64, steps: f64| {
        let wave = |each: f64| together(each) * steps + measured.fixed + each * store;
        let full = (blocks / (at_once * multiprocessors)).floor();
        let rest = blocks - full * at_once * multiprocessors;
        let last = if rest > 0.0 { wave((rest / multiprocessors).ceil()) } else { 0.0 };
        full * wave(at_once) + last * if full > 0.0 { LAST_WAVE } else { 1.0 }
    };
    // What a second kernel adds: elements, and what it waits for besides.
    let (multiply, split, waits) = match recipe.split {
        Split::Whole => (waves(all, steps), 0.0, 0.0),
        Split::Parts(parts) => {
            let elements = problem.m.saturating_mul(problem.n).saturating_mul(problem.batches);
            let rounds = Adding::of(parts, elements).rounds(parts);
            let parts = f64::from(parts);
            let time = waves(all * parts, (steps / parts).ceil());
            (time, m * n * parts * batches, ROUND * f64::from(rounds.saturating_sub(1)))
        }
        Split::Workers(workers) => {
            let workers = f64::from(workers);
            let each = (workers / multiprocessors).max(1.0);
            let whole = (all / workers).floor();
            let left = all - whole * workers;
            let shared = (left * steps / workers).ceil();
            let ends = (whole + 2.0) * (measured.fixed + each * store);
            let time = (whole * steps + shared) * together(each) * SHARING + ends;
            (time, (workers + left) * f64::from(bm) * f64::from(bn), SHARE * (workers / left.max(1.0) + 1.0))
        }
    };
    let memory = ((m * k + k * n + m * n) * batches + split) * size / MEMORY;
    let second = if split > 0.0 { LAUNCH[1] + waits + 2.0 * split * size / PARTS } else { 0.0 };
    let packing = |which: usize| {
        if recipe.packed[which] { 2.0 * size * batches * k * [m, n][which] / PACKING } else { 0.0 }
    };
    // One launch, of both if they are to be.
    let packed = if recipe.packed == [false; 2] { 0.0 } else { PACKED };
    let multiply =
        multiply + if let Core::Dmma(_) = measured.core { (multiply - COOL).max(0.0) * heat([bm, bn]) } else { 0.0 };
    let packs = recipe.packed.iter().filter(|packed| **packed).count() as f64;
    let multiply = multiply + waiting_for_memory(memory);
    (multiply.max(memory) + LAUNCH[0] + second + packed + packing(0) + packing(1)) * (1.0 + BETTER * packs)
}

/// Microseconds that operations wait for memory which is busy for so many.
fn waiting_for_memory(memory: f64) -> f64 {
    BESIDE * memory.min(OVERLAPPED)
}

/// Pieces that so many elements are.
fn pieces(elements: u32, ty: Type, wide: bool) -> f64 {
    f64::from(elements) / if wide { 16.0 / ty.size() as f64 } else { 1.0 }
}

/// Microseconds that a block's copies of a step take. Other kernels than those of full accuracy have them in their rates.
fn copies(kernel: &Blocked, ty: Type) -> f64 {
    let cost = match kernel.core {
        Core::Register => COPY[0],
        Core::Dmma(_) => COPY[1],
        Core::Mma(_) | Core::Limbs => return 0.0,
    };
    let [bm, bn, bk] = kernel.blocking.block;
    let side = |which: usize, outer: u32| {
        // Register tiles turn what does not lie as they want it, one element at a time.
        let turned = kernel.core == Core::Register && kernel.orders[which] != kernel.wanted()[which];
        let wide = kernel.vectors[which] && !turned;
        pieces(outer * bk, ty, wide) / 32.0 * if turned { TURN } else { cost[usize::from(wide)] } / 1e3
    };
    side(0, bm) + side(1, bn)
}

/// Microseconds that a block takes to store its sums. Other kernels than those of full accuracy have that in what is fixed.
fn store(kernel: &Blocked, ty: Type) -> f64 {
    let ([bm, bn, _], wide) = (kernel.blocking.block, kernel.vectors[2]);
    match kernel.core {
        Core::Register | Core::Dmma(_) => pieces(bm * bn, ty, wide) * STORE[usize::from(wide)] / 1e3,
        Core::Mma(_) | Core::Limbs => 0.0,
    }
}

/// How much slower f64 gets under the power limit, by the tile: what it reads for each of its sums takes power. Measured at 4096³ and 8192³: 10 % of
/// 128×128, 15 % of 64×128, 22 % of 64×64.
fn heat([rows, cols]: [u32; 2]) -> f64 {
    7.7 * (1.0 / f64::from(rows) + 1.0 / f64::from(cols)) - 0.02
}

/// How much longer steps take of factors that do not lie as the tiles were measured.
fn lying(kernel: &Blocked) -> f64 {
    let [a, b] = [kernel.orders[0], kernel.orders[1]].map(|order| order == Order2d::ColMajor);
    let single = (0..2).any(|which| kernel.single(which, kernel.orders[which], kernel.vectors[which]));
    match kernel.core {
        // At 4096³, nt and tn by nn.
        Core::Dmma(_) if a != b => 1.05,
        Core::Mma(_) | Core::Limbs if single => SINGLE,
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
        (Type::F64 | Type::I32, _) => 0.5,
        // No kernels have these cores.
        (Type::F16 | Type::BF16 | Type::I8, _) => 0.5,
        (Type::U8 | Type::U32 | Type::I64 | Type::U64 | Type::Pred, _) => 0.5,
    }
}
