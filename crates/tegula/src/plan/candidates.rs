//! The recipes there are for a product, and the one that should be fastest.

use super::Problem;
use super::cost::{Machine, Measured, time};
use super::recipe::Recipe;
use crate::element::Type;
use crate::kernels::{Blocked, Blocking, Core};

/// In how many parts sums are split at most.
const MOST_PARTS: usize = 132;
/// Steps along k that a part has at least.
const LEAST_STEPS: usize = 4;

/// Register tiles of 4-byte types: block, warp, thread, stages, slices, blocks; and what was measured.
const REGISTER: [Measured; 17] = [
    of([128, 128, 16], [64, 32], [8, 8], [3, 1, 1], [0.765, 0.741, 3.05]),
    of([128, 128, 8], [64, 64], [8, 16], [4, 1, 2], [0.777, 0.747, 5.96]),
    of([128, 256, 8], [64, 64], [8, 16], [4, 1, 1], [0.854, 0.840, 5.65]),
    of([128, 32, 16], [64, 32], [8, 8], [3, 2, 2], [0.487, 0.457, 1.28]),
    of([128, 64, 16], [64, 32], [8, 8], [3, 1, 2], [0.682, 0.588, 2.38]),
    of([128, 64, 16], [64, 32], [8, 8], [3, 2, 1], [0.602, 0.603, 2.56]),
    of([32, 128, 16], [32, 64], [8, 8], [3, 2, 2], [0.669, 0.597, 1.03]),
    of([32, 32, 32], [32, 32], [8, 4], [3, 4, 4], [0.440, 0.345, 0.92]),
    of([32, 64, 32], [32, 32], [8, 4], [3, 4, 2], [0.559, 0.529, 1.45]),
    of([64, 128, 16], [32, 64], [8, 8], [3, 1, 2], [0.769, 0.674, 1.34]),
    of([64, 128, 16], [32, 64], [8, 8], [3, 2, 1], [0.700, 0.704, 2.15]),
    of([64, 128, 32], [64, 64], [8, 16], [3, 4, 1], [0.692, 0.647, 3.74]),
    of([64, 256, 16], [64, 64], [8, 16], [3, 2, 1], [0.770, 0.759, 4.16]),
    of([64, 256, 8], [64, 64], [8, 16], [4, 1, 2], [0.783, 0.779, 4.11]),
    of([64, 64, 16], [32, 32], [8, 4], [4, 1, 4], [0.595, 0.524, 0.96]),
    of([64, 64, 16], [32, 32], [8, 4], [4, 2, 2], [0.545, 0.571, 1.19]),
    of([64, 64, 32], [32, 64], [8, 8], [3, 4, 1], [0.601, 0.618, 1.89]),
];

const fn of(block: [u32; 3], warp: [u32; 2], thread: [u32; 2], counts: [u32; 3], measured: [f64; 3]) -> Measured {
    let [stages, slices, blocks] = counts;
    let [full, alone, fixed] = measured;
    Measured { blocking: Blocking { block, warp, thread, stages, slices, blocks }, full, alone, fixed }
}

/// The recipes with blocks for a product, with the microseconds that each should take.
pub fn candidates(problem: &Problem, multiprocessors: u32) -> Vec<(Recipe, f64)> {
    let (core, measured): (_, &[Measured]) = match problem.ty {
        Type::F32 | Type::I32 => (Core::Register, &REGISTER),
        _ => return Vec::new(),
    };
    let machine = Machine { multiprocessors };
    let mut all = Vec::new();
    for measured in measured {
        let kernel = Blocked::new(core, problem.ty, measured.blocking).into();
        for parts in parts(problem, &measured.blocking, multiprocessors) {
            let recipe = Recipe { kernel, swapped: false, parts }.fit(problem.lies);
            all.push((recipe, time(problem, &recipe, measured, machine)));
        }
    }
    all
}

/// The candidate that should be fastest.
pub(super) fn best(problem: &Problem, multiprocessors: u32) -> Option<Recipe> {
    let all = candidates(problem, multiprocessors);
    all.into_iter().min_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(recipe, _)| recipe)
}

/// In how many parts sums may be split: so that blocks fill the multiprocessors, twice at most.
fn parts(problem: &Problem, blocking: &Blocking, multiprocessors: u32) -> impl Iterator<Item = u32> {
    let Blocking { block: [bm, bn, bk], blocks, .. } = *blocking;
    let tiles = problem.m.div_ceil(bm as usize) * problem.n.div_ceil(bn as usize);
    let (blocks_there, room) = (tiles.saturating_mul(problem.batches), (multiprocessors * blocks) as usize);
    let most = (2 * room / blocks_there.max(1)).min(problem.k.div_ceil(bk as usize) / LEAST_STEPS).min(MOST_PARTS);
    (1..=most.max(1) as u32).filter(|parts| *parts <= 8 || parts.is_multiple_of(parts.ilog2()))
}
