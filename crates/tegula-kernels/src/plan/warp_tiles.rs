//! Candidates of warp kernels, where each warp computes a tile from registers, for batches of small
//! products, with their predicted times.

use tegula_core::element::Type;

use super::device::{GpuDescription, HOPPER};
use super::problem::Problem;
use super::recipe::RecipeOf;
use super::warp_costs::WarpCosts;
use crate::warp_tile::{SLAB, WarpTile};

/// Rows and columns of a warp's tile.
const TILES: [[u32; 2]; 5] = [[16, 8], [16, 16], [16, 32], [32, 16], [32, 32]];
/// Warps of a block.
const BLOCK_WARPS: [u32; 2] = [2, 4];
/// The most registers of a thread: with more ptxas spills, or a warp has few others beside it.
const MAX_REGISTERS: u32 = 168;
/// Slabs in flight.
const LOAD_DEPTHS: [u32; 3] = [1, 2, 4];
/// The most tiles of a product along a side, and in all: each line of an operand is loaded again by
/// every tile along the other side.
const MAX_TILES: [usize; 2] = [16, 64];

/// The candidates for a product, with predicted microseconds.
pub(crate) fn candidates(problem: &Problem, gpu: &GpuDescription) -> Vec<(RecipeOf<WarpTile>, f64)> {
    let Problem { ty, m, n, k, .. } = *problem;
    let is_known = match ty {
        Type::F16 | Type::BF16 => gpu.compute >= (8, 0),
        // Kernels of f64 were compared for batches only.
        Type::F64 => gpu.compute >= HOPPER && problem.batches > 1,
        _ => false,
    };
    let swapped = problem.layouts[2].order == tegula_ir::Order2d::ColMajor;
    let [m, n] = if swapped { [n, m] } else { [m, n] };
    let slabs = k.div_ceil(SLAB as usize).max(1);
    let mut all = Vec::new();
    for warp in TILES {
        let tiles = [m.div_ceil(warp[0] as usize), n.div_ceil(warp[1] as usize)];
        let [most, most_in_all] = MAX_TILES;
        let fits = tiles.iter().all(|count| (1..=most).contains(count)) && tiles[0] * tiles[1] <= most_in_all;
        if !is_known || !fits {
            continue;
        }
        for warps in BLOCK_WARPS {
            let (block, products) = block_of(warp, tiles, warps);
            let products = products.min(problem.batches.max(1).next_power_of_two() as u32);
            for load_depth in LOAD_DEPTHS.into_iter().filter(|&depth| depth as usize <= slabs.next_power_of_two()) {
                let kernel = WarpTile::new(ty, block, warp, products, load_depth);
                let recipe = RecipeOf::new(kernel).legalize(problem.layouts);
                // Single elements take so many registers that one slab was faster in all of 17
                // measured products.
                let is_staged = (0..2).any(|operand| recipe.kernel.is_staged(operand));
                if recipe.kernel.registers() > MAX_REGISTERS || is_staged && load_depth > 1 {
                    continue;
                }
                all.push((recipe, time(problem, &recipe, &WarpCosts::FITTED, gpu)));
            }
        }
    }
    all
}

/// The tile of a block of this number of warps, and its products: as many tiles of a product as it
/// has, about as many along m as along n, and as many products as warps are left.
fn block_of(warp: [u32; 2], tiles: [usize; 2], warps: u32) -> ([u32; 2], u32) {
    let mut counts = [1u32; 2];
    while counts[0] * counts[1] < warps {
        let longer = |i: usize| (counts[i] as usize) < tiles[i];
        let sides = [counts[0] * warp[0], counts[1] * warp[1]];
        let next = match [longer(0), longer(1)] {
            [true, true] => usize::from(sides[1] < sides[0]),
            [true, false] => 0,
            [false, true] => 1,
            [false, false] => break,
        };
        counts[next] *= 2;
    }
    ([counts[0] * warp[0], counts[1] * warp[1]], warps / (counts[0] * counts[1]))
}

/// The predicted microseconds.
///
/// Of three times, which overlap in part, the square root of the sum of squares: of device memory,
/// of the instructions of an SM, and of the latency of loads in the warps that follow each other.
pub(super) fn time(problem: &Problem, recipe: &RecipeOf<WarpTile>, costs: &WarpCosts, gpu: &GpuDescription) -> f64 {
    let (kernel, class) = (&recipe.kernel, usize::from(problem.ty == Type::F64));
    let [m, n] = if recipe.swapped { [problem.n, problem.m] } else { [problem.m, problem.n] };
    let WarpTile { block: [bm, bn], warp: [wm, wn], products, load_depth, .. } = *kernel;
    let count = |extent: usize, tile: u32| extent.div_ceil(tile as usize) as f64;
    let batches = problem.batches as f64;
    let blocks = count(m, bm) * count(n, bn) * (batches / f64::from(products)).ceil();
    let warps = count(m, wm) * count(n, wn) * batches;
    let steps = count(problem.k, SLAB * load_depth);
    let slabs = steps * f64::from(load_depth);
    let groups = kernel.groups().map(f64::from);
    // Requests of a slab, by the elements of each lane.
    let requests = |operand: usize| {
        let (groups, width) = (groups[operand], kernel.widths[operand]);
        let along_k = kernel.is_along_k(operand);
        let bytes = groups * costs.group[class];
        match (kernel.is_staged(operand), along_k) {
            (true, _) => 4.0 * groups * costs.staged[class],
            (false, true) => bytes + groups * 4.0 / f64::from(width) * costs.request[class][0],
            (false, false) => bytes + 4.0 * (groups / f64::from(width)).ceil() * costs.request[class][1],
        }
    };
    let multiply = groups[0] * groups[1] / 2.0 * costs.mma[class];
    let outputs = 2.0 * groups[0] * groups[1];
    let store = match kernel.widths[2] {
        1 => outputs * costs.store[class][1],
        width => outputs / f64::from(width) * costs.store[class][0],
    };
    let clocks = costs.warp[class] + slabs * (requests(0) + requests(1) + multiply) + store;
    let multiprocessors = f64::from(gpu.multiprocessors);
    let instructions =
        (warps / multiprocessors).ceil() * clocks + (blocks / multiprocessors).ceil() * costs.block[class];
    let instructions = instructions / gpu.clocks();
    // Warps without a tile hold the place of others until their block ends.
    let waves = (blocks / multiprocessors / f64::from(kernel.resident())).max(1.0);
    let alone = costs.issue[class] * clocks / gpu.clocks();
    let latency = waves * (costs.wave[class] + costs.latency[class] * steps + alone);
    let [m, n, k] = [problem.m, problem.n, problem.k].map(|extent| extent as f64);
    let bytes = (m * k + k * n + m * n) * batches * problem.ty.size() as f64;
    let memory = bytes / gpu.memory(costs.memory[class]);
    costs.start[class] + [memory, latency, instructions].map(|time| time * time).iter().sum::<f64>().sqrt()
}
