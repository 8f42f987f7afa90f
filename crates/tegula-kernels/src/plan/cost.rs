//! The cost model of blocked kernels: the predicted time of a recipe.
//!
//! A block's time is the time of its k-steps, of its store, and a fixed part (the pipeline's
//! prologue). Blocks run in waves of the resident blocks. A step multiplies and copies. Few
//! resident blocks are bound by latency, many by throughput; the two times are combined as the
//! sides of a right triangle. Copies are counted per access, of 16 bytes or of a single element.
//! The time of memory overlaps, but not perfectly where both take about as long, nor with the first
//! copies of the only block of an SM.
//!
//! The constants in [`BlockedCosts`] are fitted to f32 and f64 on an H200. Those here, and of tiles
//! of reduced accuracy, are from single measurements (`benchmarks/NOTES.md`). On other GPUs only
//! the ranking counts.

use tegula_core::element::Type;
use tegula_ir::{Mma, Order2d};

use super::blocked_costs::BlockedCosts;
use super::device::GpuDescription;
use super::problem::Problem;
use super::recipe::{RecipeOf, Split};
use crate::blocked::{Blocked, Blocking, MathInstruction};
use crate::dmma::is_interleaved;
use crate::split_k_reduction::ReductionSchedule;

/// Floating-point operations per microsecond and SM, f32: 64.5 TFLOP/s on 132 SMs.
const RATE: f64 = 64.5e6 / 132.0;
/// Bytes of operands that stay in the L2 cache.
const L2_BYTES: f64 = 40e6;
/// The penalty per packed operand: packing must be this fraction faster, as the model is not more
/// exact.
const PACK_PENALTY: f64 = 0.01;
/// Microseconds until f64 kernels reach the power limit.
const POWER_LIMITED_AFTER: f64 = 200.0;

/// The measured speed of a blocking.
#[derive(Clone, Copy, Debug)]
pub(super) struct Measured {
    pub instruction: MathInstruction,
    pub blocking: Blocking,
    /// The fraction of the instruction rate at full occupancy.
    pub full: f64,
    /// The same with one block per SM.
    pub alone: f64,
    /// The multiplier of the copy time.
    pub copies: f64,
    /// Fixed microseconds of each wave, at the fitted clock.
    pub fixed: f64,
    /// The fraction by which the step time grows for tiles that are mostly out of bounds.
    pub edge: f64,
}

/// The predicted microseconds of a product by a recipe, with a row-major C.
pub(super) fn time(
    problem: &Problem,
    recipe: &RecipeOf<Blocked>,
    measured: &Measured,
    costs: &BlockedCosts,
    gpu: &GpuDescription,
) -> f64 {
    let (kernel, clock_scale) = (recipe.kernel, gpu.clock_scale());
    let Blocking { block: [bm, bn, bk], blocks, .. } = kernel.blocking;
    let tiles = problem.m.div_ceil(bm as usize) * problem.n.div_ceil(bn as usize);
    let work_tiles = tiles as f64 * problem.batches as f64;
    let k_steps = problem.k.div_ceil(bk as usize) as f64;
    let work = f64::from(bm) * f64::from(bn) * f64::from(bk) * 2.0;
    // The fraction of a tile within bounds, on average.
    let filled = [(problem.m, bm), (problem.n, bn)]
        .map(|(extent, tile)| extent as f64 / (extent.div_ceil(tile as usize).max(1) as f64 * f64::from(tile)));
    let edge = 1.0 + measured.edge * (1.0 - 2.0 * filled[0].min(filled[1])).max(0.0).sqrt();
    let rate = RATE * relative_rate(problem.ty, measured.instruction) / clock_scale;
    let math_time = edge * layout_slowdown(&kernel, costs) * work / rate;
    let copies = clock_scale * copies(&kernel, problem.ty, measured.copies, costs);
    let store = clock_scale * store(&kernel, problem.ty, costs);
    let fixed = clock_scale * measured.fixed;
    let (resident, multiprocessors) = (f64::from(blocks), f64::from(gpu.multiprocessors));
    let [m, n, k] = [problem.m, problem.n, problem.k].map(|extent| extent as f64);
    let (batches, size) = (problem.batches as f64, problem.ty.size() as f64);
    // Copies are issued `stages − 1` steps ahead, which hides a part of the latency.
    let steps_ahead = f64::from(kernel.blocking.stages - 1);
    let latency = if (m * k + k * n) * batches * size > L2_BYTES { costs.latency / steps_ahead } else { 0.0 };
    // The step time of `blocks` blocks per SM. Its square is linear in the square of their number,
    // between one and the resident blocks.
    let step_time = |blocks: f64| {
        let (one, all) = ((math_time / measured.alone).powi(2), (resident * math_time / measured.full).powi(2));
        let multiplying = one + (all - one).max(0.0) * (blocks.powi(2) - 1.0) / (resident.powi(2) - 1.0).max(1.0);
        (multiplying.sqrt() + blocks * copies).max(latency)
    };
    // The time of all waves of `blocks` blocks with `k_steps` k-steps each.
    let waves = |blocks: f64, k_steps: f64| {
        let wave = |each: f64| step_time(each) * k_steps + fixed + each * store;
        let full = (blocks / (resident * multiprocessors)).floor();
        let remaining = blocks - full * resident * multiprocessors;
        let last = if remaining > 0.0 { wave((remaining / multiprocessors).ceil()) } else { 0.0 };
        full * wave(resident) + last * if full > 0.0 { costs.last_wave } else { 1.0 }
    };
    // The GEMM kernel's time, the elements of partial sums, and the latency of their reduction.
    let (gemm, partial_sums, reduction_latency) = match recipe.split {
        Split::Whole => (waves(work_tiles, k_steps), 0.0, 0.0),
        Split::SplitK(splits) => {
            let elements = problem.m.saturating_mul(problem.n).saturating_mul(problem.batches);
            let rounds = ReductionSchedule::of(splits, elements).rounds(splits);
            let splits = f64::from(splits);
            let time = waves(work_tiles * splits, (k_steps / splits).ceil());
            (time, m * n * splits * batches, costs.reduction_round * f64::from(rounds.saturating_sub(1)))
        }
        Split::StreamK(workers) => {
            let workers = f64::from(workers);
            let each = (workers / multiprocessors).max(1.0);
            let whole = (work_tiles / workers).floor();
            let split_tiles = work_tiles - whole * workers;
            let shared_steps = (split_tiles * k_steps / workers).ceil();
            let epilogues = (whole + 2.0) * (fixed + each * store);
            let time = (whole * k_steps + shared_steps) * step_time(each) * costs.stream_k_step + epilogues;
            (
                time,
                (workers + split_tiles) * f64::from(bm) * f64::from(bn),
                costs.contributor * (workers / split_tiles.max(1.0) + 1.0),
            )
        }
    };
    let bandwidth = gpu.memory(match measured.instruction {
        MathInstruction::Dmma(_) => costs.dmma_memory,
        _ => costs.memory,
    });
    let memory = ((m * k + k * n + m * n) * batches + partial_sums) * size / bandwidth;
    let reduction = if partial_sums > 0.0 {
        costs.reduction_launch + reduction_latency + 2.0 * partial_sums * size / costs.partial_sums
    } else {
        0.0
    };
    let packing = |operand: usize| {
        if recipe.packed[operand] { 2.0 * size * batches * k * [m, n][operand] / costs.pack } else { 0.0 }
    };
    // One launch packs both operands.
    let pack_launch = if recipe.packed == [false; 2] { 0.0 } else { costs.pack_launch };
    let gemm = gemm
        + if let MathInstruction::Dmma(mma) = measured.instruction {
            (gemm - POWER_LIMITED_AFTER).max(0.0) * power_slowdown(mma, [bm, bn])
        } else {
            0.0
        };
    let packs = recipe.packed.iter().filter(|packed| **packed).count() as f64;
    // The first copies of a block overlap with the work of the other resident blocks only.
    let waves = work_tiles / (resident * multiprocessors);
    let alone = (steps_ahead / k_steps.max(1.0)).min(1.0) / resident * (1.0 - 1.0 / waves).max(0.0);
    let gemm = gemm + costs.unhidden * memory.min(costs.max_unhidden) + costs.exposed * alone * memory;
    (overlapped([gemm, memory], costs.overlap) + costs.first_launch + reduction + pack_launch + packing(0) + packing(1))
        * (1.0 + PACK_PENALTY * packs)
}

/// The time of two kinds of work that overlap, but not perfectly where both take about as long: the
/// norm with this exponent, which approximates the maximum.
fn overlapped([one, other]: [f64; 2], exponent: f64) -> f64 {
    let (most, least) = (one.max(other), one.min(other));
    if most > 0.0 { most * (1.0 + (least / most).powf(exponent)).powf(1.0 / exponent) } else { 0.0 }
}

/// Accesses for `elements` elements, of 16 bytes if `is_vector`.
fn accesses(elements: u32, ty: Type, is_vector: bool) -> f64 {
    f64::from(elements) / if is_vector { 16.0 / ty.size() as f64 } else { 1.0 }
}

/// Microseconds of a block's copies per k-step, at the fitted clock, with the multiplier of the
/// tile. Kernels of reduced accuracy include them in their rates.
fn copies(kernel: &Blocked, ty: Type, multiplier: f64, costs: &BlockedCosts) -> f64 {
    let cost = match kernel.instruction {
        MathInstruction::Fma => costs.copy,
        MathInstruction::Dmma(_) => costs.dmma_copy,
        MathInstruction::Mma(_) | MathInstruction::Limbs => return 0.0,
    };
    let [bm, bn, bk] = kernel.blocking.block;
    let operand_time = |operand: usize, outer: u32| {
        // Register kernels transpose operands of another order element by element.
        let is_transposed =
            kernel.instruction == MathInstruction::Fma && kernel.orders[operand] != kernel.preferred_orders()[operand];
        let is_vector = kernel.aligned_16[operand] && !is_transposed;
        let access = match (is_transposed, operand) {
            (false, _) => multiplier * cost[usize::from(is_vector)],
            (true, 0) => multiplier * costs.transposed_copy[0],
            // The multipliers were fitted to products with a row-major B.
            (true, _) => costs.transposed_copy[1],
        };
        accesses(outer * bk, ty, is_vector) / 32.0 * access / 1e3
    };
    operand_time(0, bm) + operand_time(1, bn)
}

/// Microseconds of a block's store. Kernels of reduced accuracy include it in their fixed time.
fn store(kernel: &Blocked, ty: Type, costs: &BlockedCosts) -> f64 {
    let ([bm, bn, _], is_vector) = (kernel.blocking.block, kernel.aligned_16[2]);
    match kernel.instruction {
        MathInstruction::Fma | MathInstruction::Dmma(_) => {
            accesses(bm * bn, ty, is_vector) * costs.store[usize::from(is_vector)] / 1e3
        }
        MathInstruction::Mma(_) | MathInstruction::Limbs => 0.0,
    }
}

/// The slowdown of f64 at the power limit by the tile, whose reads per accumulator take power.
/// Measured at 4096³ and 8192³: 10 % for 128×128, 15 % for 64×128, 22 % for 64×64. The first is by
/// instructions of depth 16; those of depth 8 lose 5 % more, since they read and write accumulators
/// twice as often.
fn power_slowdown(mma: Mma, [rows, cols]: [u32; 2]) -> f64 {
    let accumulators = if [rows, cols] == [128; 2] && mma == Mma::F64K8 { 0.05 } else { 0.0 };
    7.7 * (1.0 / f64::from(rows) + 1.0 / f64::from(cols)) - 0.02 + accumulators
}

/// The multiplier of the step time for operands in other layouts than the measured ones.
fn layout_slowdown(kernel: &Blocked, costs: &BlockedCosts) -> f64 {
    let [a, b] = [kernel.orders[0], kernel.orders[1]].map(|order| order == Order2d::ColMajor);
    let copies_elements =
        (0..2).any(|operand| kernel.needs_element_copies(operand, kernel.orders[operand], kernel.aligned_16[operand]));
    match kernel.instruction {
        MathInstruction::Dmma(_) if !a && b => costs.along_k[usize::from(is_interleaved(&kernel.blocking))],
        // tn by nn: 1.05 at 4096³, more with fewer rows. Tiles with a side of at most 32 are as
        // fast as in nn.
        MathInstruction::Dmma(_) if a && !b && kernel.blocking.block[..2].iter().all(|&side| side > 32) => 1.1,
        MathInstruction::Mma(_) | MathInstruction::Limbs if copies_elements => costs.element_copies,
        _ => 1.0,
    }
}

/// The rate of multiply-adds relative to f32. On Tensor Cores it is what large tiles reach, so that
/// one table serves all types.
fn relative_rate(ty: Type, instruction: MathInstruction) -> f64 {
    match (ty, instruction) {
        (Type::F32, MathInstruction::Mma(_)) => 5.2,
        (Type::F32, _) | (Type::F64, MathInstruction::Dmma(_)) => 1.0,
        (Type::F16 | Type::BF16, MathInstruction::Mma(_)) => 9.7,
        (Type::I8, MathInstruction::Mma(_)) => 22.0,
        (Type::I32, MathInstruction::Limbs) => 1.96,
        (Type::F64 | Type::I32, _) => 0.5,
        // No kernels have these combinations.
        (Type::F16 | Type::BF16 | Type::I8, _) => 0.5,
        (Type::U8 | Type::U32 | Type::I64 | Type::U64 | Type::Pred, _) => 0.5,
    }
}
