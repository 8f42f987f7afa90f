//! Candidates of the blocked kernels for a product, with their predicted times.

use tegula_core::element::{Accuracy, Type};
use tegula_ir::{Mma, Order2d};

use super::blocked_costs::BlockedCosts;
use super::cost::{Measured, time};
use super::device::GpuDescription;
use super::mma_costs::MmaCosts;
use super::problem::{OperandLayout, Problem};
use super::recipe::{RecipeOf, Split};
use crate::blocked::{Blocked, Blocking, MathInstruction};

/// The maximum number of split-K ranges.
const MAX_SPLITS: usize = 132;
/// The minimum number of k-steps of a split-K range.
const MIN_STEPS: usize = 4;
/// The minimum number of k-steps of a tile for stream-K.
const MIN_STREAM_K_STEPS: usize = 32;

/// Register kernels of 4-byte types: block, warp, thread, `[stages, slices, blocks]`. `blocks` is
/// the occupancy by registers or shared memory, whichever is less.
const REGISTER: [Blocking; 14] = [
    of([128, 128, 8], [64, 64], [8, 16], [4, 1, 2]),
    of([128, 256, 8], [64, 64], [8, 16], [4, 1, 1]),
    of([128, 64, 16], [64, 32], [8, 8], [3, 1, 3]),
    of([128, 64, 8], [64, 32], [8, 8], [4, 1, 3]),
    of([32, 128, 16], [32, 64], [8, 8], [3, 2, 3]),
    of([32, 32, 32], [32, 32], [8, 4], [3, 4, 4]),
    of([32, 64, 32], [32, 32], [8, 4], [3, 4, 2]),
    of([64, 128, 16], [32, 64], [8, 8], [3, 1, 3]),
    of([64, 128, 16], [32, 64], [8, 8], [3, 2, 1]),
    of([64, 128, 8], [32, 64], [8, 8], [4, 1, 3]),
    of([64, 256, 8], [64, 64], [8, 16], [4, 1, 2]),
    of([64, 64, 16], [32, 32], [8, 4], [4, 1, 4]),
    of([64, 64, 32], [32, 64], [8, 8], [3, 4, 1]),
    of([64, 64, 8], [32, 32], [8, 4], [4, 1, 4]),
];

/// f64 kernels on Tensor Cores: as above, with the instruction.
const DMMA: [(Mma, Blocking); 20] = [
    (Mma::F64K16, of([128, 128, 32], [32, 64], [16, 16], [3, 1, 1])),
    (Mma::F64K8, of([128, 128, 16], [32, 64], [16, 16], [4, 1, 1])),
    (Mma::F64K8, of([128, 128, 16], [32, 64], [16, 16], [6, 1, 1])),
    (Mma::F64K8, of([64, 128, 32], [32, 64], [16, 16], [3, 2, 1])),
    (Mma::F64K8, of([64, 128, 16], [32, 64], [16, 16], [4, 1, 2])),
    (Mma::F64K8, of([64, 96, 32], [32, 48], [16, 16], [4, 2, 1])),
    (Mma::F64K8, of([96, 48, 64], [48, 48], [16, 16], [3, 4, 1])),
    (Mma::F64K8, of([64, 64, 64], [32, 64], [16, 16], [3, 4, 1])),
    (Mma::F64K16, of([64, 64, 32], [32, 16], [16, 16], [3, 1, 1])),
    (Mma::F64K8, of([64, 64, 32], [32, 64], [16, 16], [3, 2, 2])),
    (Mma::F64K8, of([64, 64, 16], [32, 32], [16, 16], [4, 1, 3])),
    (Mma::F64K8, of([96, 32, 64], [48, 32], [16, 16], [3, 4, 1])),
    (Mma::F64K8, of([32, 64, 32], [32, 32], [16, 16], [3, 2, 3])),
    (Mma::F64K16, of([64, 16, 32], [32, 16], [16, 16], [5, 2, 2])),
    (Mma::F64K8, of([32, 32, 128], [32, 32], [16, 16], [3, 8, 1])),
    (Mma::F64K8, of([32, 32, 64], [32, 32], [16, 16], [3, 4, 2])),
    (Mma::F64K16, of([32, 32, 32], [16, 16], [16, 16], [7, 1, 2])),
    (Mma::F64K16, of([32, 32, 32], [16, 16], [16, 16], [4, 1, 3])),
    (Mma::F64K16, of([32, 16, 32], [16, 16], [16, 16], [8, 1, 2])),
    (Mma::F64K16, of([16, 32, 32], [16, 16], [16, 16], [8, 1, 2])),
];

/// 16-bit kernels on Tensor Cores; for bytes the k-step is twice as deep, for TF32 half. Measured
/// at 8192³ only: the numbers of the smaller tiles are estimates, and so is the last of each.
const MMA: [Measured; 7] = [
    measured(of([128, 256, 64], [64, 64], [16, 8], [3, 1, 1]), [0.71, 0.71, 1.0, 5.0]),
    measured(of([128, 256, 32], [64, 64], [16, 8], [4, 1, 1]), [0.67, 0.67, 1.0, 4.0]),
    measured(of([128, 128, 32], [64, 32], [16, 8], [4, 1, 1]), [0.55, 0.55, 1.0, 3.0]),
    measured(of([128, 128, 32], [64, 64], [16, 8], [3, 1, 2]), [0.61, 0.47, 1.0, 3.0]),
    measured(of([128, 64, 32], [64, 32], [16, 8], [4, 1, 2]), [0.53, 0.39, 1.0, 2.0]),
    measured(of([64, 128, 32], [32, 64], [16, 8], [4, 1, 2]), [0.53, 0.39, 1.0, 2.0]),
    measured(of([64, 64, 64], [32, 32], [16, 8], [4, 1, 3]), [0.52, 0.33, 1.0, 1.5]),
];

/// i32 kernels on Tensor Cores, by limbs.
const LIMBS: [Measured; 2] = [
    measured(of([128, 64, 32], [32, 32], [16, 8], [4, 1, 1]), [0.80, 0.80, 1.0, 4.0]),
    measured(of([64, 128, 32], [32, 32], [16, 8], [4, 1, 1]), [0.81, 0.81, 1.0, 4.0]),
];

const fn of(block: [u32; 3], warp: [u32; 2], thread: [u32; 2], [stages, slices, blocks]: [u32; 3]) -> Blocking {
    Blocking { block, warp, thread, stages, slices, blocks }
}

/// A tile with `[full, alone, copies, fixed]`, see [`Measured`].
const fn measured(blocking: Blocking, [full, alone, copies, fixed]: [f64; 4]) -> Measured {
    Measured { instruction: MathInstruction::Fma, blocking, full, alone, copies, fixed, edge: 0.0 }
}

/// The register tiles.
fn register_tiles(costs: &BlockedCosts) -> Vec<Measured> {
    REGISTER.into_iter().zip(costs.register).map(|(blocking, costs)| measured(blocking, costs)).collect()
}

/// The tiles of `dmma`.
fn dmma_tiles(costs: &BlockedCosts) -> Vec<Measured> {
    let tiles = DMMA.into_iter().zip(costs.dmma);
    tiles
        .map(|((mma, blocking), costs)| Measured {
            instruction: MathInstruction::Dmma(mma),
            ..measured(blocking, costs)
        })
        .collect()
}

/// The tiles of `mma.sync`.
fn mma_tiles(mma: Mma, costs: &MmaCosts) -> Vec<Measured> {
    let instruction = MathInstruction::Mma(mma);
    MMA.map(|measured| Measured { instruction, edge: costs.edge, ..measured }).to_vec()
}

/// The candidates of blocked kernels for a product, with predicted microseconds.
pub fn candidates(problem: &Problem, gpu: &GpuDescription) -> Vec<(RecipeOf<Blocked>, f64)> {
    candidates_of(problem, gpu, |problem, tile, operands| splits(problem, tile, operands, gpu.multiprocessors))
}

/// The candidates that divide k into this number of ranges.
pub fn candidates_in_ranges(problem: &Problem, gpu: &GpuDescription, ranges: u32) -> Vec<(RecipeOf<Blocked>, f64)> {
    candidates_of(problem, gpu, |_, tile, operands| {
        (ranges == 1 || can_split_k(tile, operands)).then_some(Split::split_k(ranges))
    })
}

/// The candidates with splits by problem, with a row-major C, tile and layouts of operands.
fn candidates_of<S: IntoIterator<Item = Split>>(
    problem: &Problem,
    gpu: &GpuDescription,
    splits: impl Fn(&Problem, &Measured, [OperandLayout; 2]) -> S,
) -> Vec<(RecipeOf<Blocked>, f64)> {
    let with = |instruction, measured: &[Measured]| -> Vec<Measured> {
        measured.iter().map(|&measured| Measured { instruction, ..measured }).collect()
    };
    let (mma, costs) = (|mma| mma_tiles(mma, &MmaCosts::FITTED), &BlockedCosts::FITTED);
    let tiles = match (problem.ty, problem.accuracy) {
        (Type::F32, Accuracy::Full) => register_tiles(costs),
        (Type::F32, Accuracy::Tf32) => [register_tiles(costs), mma(Mma::TF32)].concat(),
        (Type::I32, _) => [register_tiles(costs), with(MathInstruction::Limbs, &LIMBS)].concat(),
        (Type::F64, _) if problem.m.min(problem.n) <= 2 => {
            // Those that were measured beside vector kernels.
            let is_known = |tile: &Measured| tile.blocking.slices == 1 && tile.blocking.block != [32, 16, 32];
            dmma_tiles(costs).into_iter().filter(is_known).collect()
        }
        (Type::F64, _) => dmma_tiles(costs),
        (Type::F16, _) => mma(Mma::F16),
        (Type::BF16, _) => mma(Mma::BF16),
        (Type::I8, _) => mma(Mma::I8),
        (Type::U8 | Type::U32 | Type::I64 | Type::U64 | Type::Pred, _) => return Vec::new(),
    };
    let (original, problem) = (problem.layouts, &row_major_problem(problem));
    let mut all = Vec::new();
    for tile in &tiles {
        let kernel = Blocked::new(tile.instruction, problem.ty, tile.blocking);
        for packed in packings(&kernel, problem.layouts) {
            let [a, b, _] = problem.layouts;
            let (operands, _) = packed_operands(&kernel, [a, b], packed);
            let Some(tile) = legalized(*tile, operands) else { continue };
            let kernel = Blocked { blocking: tile.blocking, ..kernel };
            for split in splits(problem, &tile, operands) {
                let recipe = RecipeOf { split, packed, ..RecipeOf::new(kernel) }.legalize(original);
                all.push((recipe, time(problem, &recipe, &tile, costs, gpu)));
            }
        }
    }
    all
}

/// The predicted microseconds of a recipe with other costs than the fitted ones, for a fit. `None`
/// for limbs.
pub(super) fn time_with(
    problem: &Problem,
    recipe: &RecipeOf<Blocked>,
    (costs, mma_costs): (&BlockedCosts, &MmaCosts),
    gpu: &GpuDescription,
) -> Option<f64> {
    let tiles = match recipe.kernel.instruction {
        MathInstruction::Fma => register_tiles(costs),
        MathInstruction::Dmma(_) => dmma_tiles(costs),
        MathInstruction::Mma(mma) => mma_tiles(mma, mma_costs),
        MathInstruction::Limbs => return None,
    };
    let problem = row_major_problem(problem);
    let [a, b, _] = problem.layouts;
    let (operands, _) = packed_operands(&recipe.kernel, [a, b], recipe.packed);
    let tiles = tiles.into_iter().filter(|tile| tile.instruction == recipe.kernel.instruction);
    let tile =
        tiles.filter_map(|tile| legalized(tile, operands)).find(|tile| tile.blocking == recipe.kernel.blocking)?;
    Some(time(&problem, recipe, &tile, costs, gpu))
}

/// The layouts of the operands as passed to the kernel, and which of them are packed: those
/// requested, and those that the kernel does not accept.
pub(crate) fn packed_operands(
    kernel: &Blocked,
    layouts: [OperandLayout; 2],
    packed: [bool; 2],
) -> ([OperandLayout; 2], [bool; 2]) {
    let packed = [0, 1].map(|i| packed[i] || !kernel.accepts(i, layouts[i].order, layouts[i].aligned_16()));
    let layout = |i: usize| if packed[i] { OperandLayout::new(kernel.preferred_orders()[i], true) } else { layouts[i] };
    ([layout(0), layout(1)], packed)
}

/// The packings to try: none beyond the required ones, operands that are slower for lack of 16-byte
/// copies, and also operands in an order that is not preferred, of one or both.
fn packings(kernel: &Blocked, [a, b, _]: [OperandLayout; 3]) -> Vec<[bool; 2]> {
    let (layouts, preferred) = ([a, b], kernel.preferred_orders());
    if packed_operands(kernel, layouts, [false; 2]).1 != [false; 2] {
        // Kernels that require packing read the other operand in place.
        return vec![[false; 2]];
    }
    let required = [0, 1]
        .map(|operand| kernel.needs_element_copies(operand, layouts[operand].order, layouts[operand].aligned_16()));
    let [a, b] = [0, 1].map(|operand| !layouts[operand].aligned_16() || layouts[operand].order != preferred[operand]);
    let mut all = vec![[false; 2]];
    for packed in [required, [required[0], b], [a, required[1]], [a, b]] {
        if !all.contains(&packed) {
            all.push(packed);
        }
    }
    all
}

/// The problem, transposed if C is column-major, for a kernel that stores rows.
fn row_major_problem(problem: &Problem) -> Problem {
    let (Problem { m, n, .. }, [a, b, c]) = (*problem, problem.layouts);
    if c.order == Order2d::ColMajor {
        Problem { m: n, n: m, layouts: [b.transposed(), a.transposed(), c.transposed()], ..*problem }
    } else {
        *problem
    }
}

/// Whether both A and B are contiguous along k, as far as is known.
fn along_k([a, b]: [OperandLayout; 2]) -> bool {
    a.order != Order2d::ColMajor && b.order == Order2d::ColMajor
}

/// The tile adapted to the layouts of the operands; `None` if ptxas would spill.
fn legalized(tile: Measured, operands: [OperandLayout; 2]) -> Option<Measured> {
    let aligned_16 = operands.iter().all(|layout| layout.aligned_16());
    let Measured { instruction, mut blocking, .. } = tile;
    match instruction {
        MathInstruction::Fma => {
            // Element copies take more registers, most of all if both operands are contiguous along
            // rows.
            if !aligned_16 && matches!(blocking.block, [64, 128, 16] | [32, 128, 16]) {
                blocking.blocks = blocking.blocks.min(2);
            }
            (aligned_16 || blocking.slices == 1 || blocking.thread != [8, 16]).then_some(Measured { blocking, ..tile })
        }
        MathInstruction::Limbs => Some(tile),
        MathInstruction::Dmma(mma) => dmma(mma, tile, operands),
        MathInstruction::Mma(mma) => {
            // The depth in bytes is the same for every type. Loads of operands contiguous along k
            // take more registers.
            let is_deep = blocking.block[2] > 32 && blocking.warp == [64, 64];
            blocking.block[2] = blocking.block[2] * mma.elements_per_register() / 2;
            (!is_deep || !along_k(operands)).then_some(Measured { blocking, ..tile })
        }
    }
}

/// The f64 tile adapted to the layouts: a warp's tile is longer along the left operand. The large
/// tile has registers for one of the features that take the most.
fn dmma(mma: Mma, mut measured: Measured, [a, b]: [OperandLayout; 2]) -> Option<Measured> {
    // Both operands are loaded in pairs along k, for two rows or columns at once.
    let both_along_k = along_k([a, b]);
    // Lines across k of a side that is no power of two are no whole rounds of copies.
    if !both_along_k && !measured.blocking.block[..2].iter().all(|side| side.is_power_of_two()) {
        return None;
    }
    let features = [mma == Mma::F64K16, both_along_k, !(a.aligned_16() && b.aligned_16())];
    if measured.blocking.warp == [32, 64] && features.iter().filter(|is_used| **is_used).count() > 1 {
        return None;
    }
    // Copies of single elements take more registers.
    match measured.blocking.block {
        [64, 128, 16] if both_along_k => return None,
        [32, 64, 32] if both_along_k && !(a.aligned_16() && b.aligned_16()) => measured.blocking.blocks = 2,
        _ => {}
    }
    if a.order == Order2d::ColMajor || b.order == Order2d::ColMajor {
        let Blocking { block: [bm, bn, _], warp, .. } = &mut measured.blocking;
        (*bm, *bn) = (*bn, *bm);
        warp.reverse();
    }
    Some(measured)
}

/// Whether ptxas would not spill with split-K, which takes registers: one tile has none left with
/// element copies.
fn can_split_k(measured: &Measured, operands: [OperandLayout; 2]) -> bool {
    let [rows, cols, _] = measured.blocking.block;
    [rows, cols] != [64, 256] || operands.iter().any(|layout| layout.aligned_16())
}

/// The splits to try: split-K whose blocks fill the SMs at most twice; and stream-K over the
/// resident blocks if there is more than one wave and the last is not full.
fn splits(
    problem: &Problem,
    measured: &Measured,
    operands: [OperandLayout; 2],
    multiprocessors: u32,
) -> impl Iterator<Item = Split> + use<> {
    let Blocking { block: [bm, bn, bk], warp, thread: [tm, tn], blocks, .. } = measured.blocking;
    let tiles = problem.m.div_ceil(bm as usize) * problem.n.div_ceil(bn as usize);
    let (tile_blocks, resident) = (tiles.saturating_mul(problem.batches), (multiprocessors * blocks) as usize);
    let k_steps = problem.k.div_ceil(bk as usize);
    let limit = if can_split_k(measured, operands) { MAX_SPLITS } else { 1 };
    let max_splits = (2 * resident / tile_blocks.max(1)).min(k_steps / MIN_STEPS).min(limit);
    let counts = (2..=max_splits as u32).filter(|splits| *splits <= 8 || splits.is_multiple_of(splits.ilog2()));
    let split_k = counts.map(Split::SplitK);
    let is_partial =
        tile_blocks > resident && !tile_blocks.is_multiple_of(resident) && tile_blocks <= u32::MAX as usize / 2;
    // Stream-K takes registers: the largest tiles have none left.
    let aligned_16 = operands.iter().chain(&problem.layouts[2..]).all(|layout| layout.aligned_16());
    let can_stream_k = match measured.instruction {
        MathInstruction::Fma => tm * tn <= 64,
        MathInstruction::Dmma(_) => aligned_16 && (measured.blocking.block != [64; 3] || along_k(operands)),
        MathInstruction::Limbs => aligned_16,
        MathInstruction::Mma(_) => aligned_16 && warp != [64, 64],
    };
    let stream_k =
        (is_partial && can_stream_k && k_steps >= MIN_STREAM_K_STEPS).then_some(Split::StreamK(resident as u32));
    std::iter::once(Split::Whole).chain(split_k).chain(stream_k)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of shared memory of an SM of sm_90, and those of each block that the driver reserves.
    const SM_BYTES: u64 = 233_472;
    const RESERVED: u64 = 1024;

    #[test]
    fn blocking_occupancy_fits_in_shared_memory() {
        let tiles = register_tiles(&BlockedCosts::FITTED).into_iter().map(|tile| (Type::F32, tile));
        let tiles = tiles.chain(dmma_tiles(&BlockedCosts::FITTED).into_iter().map(|tile| (Type::F64, tile)));
        let mma = mma_tiles(Mma::F16, &MmaCosts::FITTED).into_iter().map(|tile| (Type::F16, tile));
        let [row, col] = [Order2d::RowMajor, Order2d::ColMajor].map(|order| OperandLayout::new(order, true));
        for ((ty, tile), b) in tiles.chain(mma).flat_map(|tile| [(tile, row), (tile, col)]) {
            let Some(tile) = legalized(tile, [row, b]) else { continue };
            let kernel = Blocked::new(tile.instruction, ty, tile.blocking);
            let kernel = Blocked { orders: [row.order, b.order, row.order], aligned_16: [true; 3], ..kernel };
            let bytes = kernel.build().unwrap().shared_bytes() + RESERVED;
            assert!(u64::from(tile.blocking.blocks) * bytes <= SM_BYTES, "{kernel}: {bytes} bytes each");
        }
    }

    #[test]
    fn candidates_of_a_product_and_its_transpose_cost_the_same() {
        let row = OperandLayout::new(Order2d::RowMajor, true);
        for (ty, a_vectors) in [(Type::F32, true), (Type::F32, false), (Type::F64, true), (Type::F16, true)] {
            let a = OperandLayout::new(Order2d::RowMajor, a_vectors);
            let (m, n, k) = (3000, 200, 1500);
            let problem = Problem { ty, accuracy: Accuracy::Full, m, n, k, batches: 1, layouts: [a, row, row] };
            let layouts = [row.transposed(), a.transposed(), row.transposed()];
            let transposed = Problem { m: n, n: m, layouts, ..problem };
            let [one, other] = [&problem, &transposed].map(|problem| {
                let all = candidates(problem, &GpuDescription::H200).into_iter();
                all.map(|(recipe, time)| (recipe.split, recipe.packed, time)).collect::<Vec<_>>()
            });
            assert_eq!(one, other, "{ty}");
        }
    }
}
