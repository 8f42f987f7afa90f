//! Batch invariance: plans whose bits of a row of C depend on that row of A, on B, on the types, n,
//! k, the scalars and the epilogue, and on nothing else. Not on m, the place of the row, the batch,
//! layouts, or the card.
//!
//! A plan takes the [`Order`] first, from types, n and k alone, for one description of all GPUs of
//! an architecture. Then it takes the fastest candidate of that order for the problem at hand.

use std::cell::RefCell;

use rustc_hash::FxHashMap;
use tegula_core::element::{Accuracy, Type};
use tegula_core::error::{Error, Result};
use tegula_ir::Order2d;

use super::choose::{Plan, check};
use super::device::{Caps, GpuDescription};
use super::legalize::{Candidate, Recipe};
use super::order::{MAX_RANGES, Order};
use super::problem::{OperandLayout, Problem};
use super::tuned::TuningTable;
use crate::plain::{Plain, PlainKind};
use crate::registry::GemmKernel;

/// The rows for which an order is chosen.
const ROWS: [usize; 5] = [1, 16, 128, 1024, 4096];
/// The ranges of k of candidates. Others save little.
const RANGES: [u32; 6] = [1, 2, 3, 4, 6, MAX_RANGES];
/// The ratio of time to that of the default plan from which a loss counts this many times.
const GREAT_LOSS: f64 = 1.35;
const PENALTY: f64 = 4.0;
/// The tile of plain kernels, where no other family has candidates.
const PLAIN_TILE: u32 = 32;

/// Chooses a batch-invariant plan. A tuned entry is used if it has the order of the plan.
///
/// # Errors
/// As [`choose`](super::choose()); [`Error::Unsupported`] if no kernel has the order.
pub fn choose_invariant(problem: &Problem, caps: &Caps, tuned: &TuningTable) -> Result<Plan> {
    let is_empty = [problem.m, problem.n, problem.batches].contains(&0);
    if problem.ty.is_int() || is_empty || *caps == Caps::Cpu {
        // Integers wrap: every plan computes the same bits.
        return tuned.choose(problem, caps);
    }
    check(problem, caps)?;
    let Some((gpu, order)) = order(problem, caps) else {
        return Ok(Plan::Gpu(plain(problem).legalize(problem.layouts)));
    };
    let keeps_order = |recipe: &Recipe| recipe.order(problem.k).as_ref() == Some(&order);
    if let Some(recipe) = tuned.recipe(problem, caps).filter(keeps_order) {
        return Ok(Plan::Gpu(recipe));
    }
    let all = candidates(problem, &gpu, order.ranges())
        .map(|candidate| Candidate { recipe: candidate.recipe.legalize(problem.layouts), ..candidate });
    let fastest = all.filter(|candidate| keeps_order(&candidate.recipe)).min_by(|a, b| a.time().total_cmp(&b.time()));
    fastest.map(|candidate| Plan::Gpu(candidate.recipe)).ok_or_else(|| Error::Unsupported {
        what: "batch invariance of these layouts".into(),
        ty: problem.ty,
        device: "this GPU".into(),
    })
}

/// Whether a recipe computes the bits of the batch-invariant plan.
pub fn keeps_order(recipe: &Recipe, problem: &Problem, caps: &Caps) -> bool {
    let order = match order(problem, caps) {
        _ if problem.ty.is_int() => return true,
        Some((_, order)) => Some(order),
        None => plain(problem).order(problem.k),
    };
    order.is_some() && recipe.order(problem.k) == order
}

/// The recipe where no family has candidates, with the same tile for every m.
fn plain(problem: &Problem) -> Recipe {
    Plain::new(PlainKind::Tiled, problem.ty, PLAIN_TILE).into()
}

/// The candidates with a predicted time and this number of ranges.
fn candidates(problem: &Problem, gpu: &GpuDescription, ranges: u32) -> impl Iterator<Item = Candidate> {
    GemmKernel::candidates_in_ranges(problem, gpu, ranges).into_iter()
}

/// What an order is chosen for.
type OrderKey = (Type, Accuracy, [usize; 2], (u32, u32));

thread_local! {
    /// Chosen orders, as the choice weighs many candidates.
    static ORDERS: RefCell<FxHashMap<OrderKey, Option<Order>>> = RefCell::default();
}

/// The maximum number of orders cached per thread. Beyond it the cache is cleared.
const MAX_ORDERS: usize = 1024;

/// The order of products of these types, n and k, and the GPU; `None` if only plain kernels have
/// candidates.
fn order(problem: &Problem, caps: &Caps) -> Option<(GpuDescription, Order)> {
    let Caps::Gpu(gpu) = *caps else { return None };
    let Problem { ty, accuracy, n, k, .. } = *problem;
    let key = (ty, accuracy, [n, k], gpu.compute);
    let chosen = ORDERS.with_borrow_mut(|orders| {
        if orders.len() == MAX_ORDERS {
            orders.clear();
        }
        orders.entry(key).or_insert_with(|| choose_order(&key)).clone()
    });
    chosen.map(|order| (gpu, order))
}

/// Chooses the order with the least loss of predicted time against the default plans, over some
/// numbers of rows.
fn choose_order(&(ty, accuracy, [n, k], compute): &OrderKey) -> Option<Order> {
    let gpu = GpuDescription { compute, ..GpuDescription::H100 };
    let row = OperandLayout::new(Order2d::RowMajor, true);
    let layouts = [row, row.transposed(), row];
    let mut losses: FxHashMap<Order, [f64; ROWS.len()]> = FxHashMap::default();
    for (i, m) in ROWS.into_iter().enumerate() {
        let problem = Problem { ty, accuracy, m, n, k, batches: 1, layouts };
        let all = GemmKernel::candidates(&problem, &gpu);
        let default = all.iter().map(Candidate::time).fold(f64::INFINITY, f64::min);
        for candidate in RANGES.into_iter().flat_map(|ranges| candidates(&problem, &gpu, ranges)) {
            let Some(order) = candidate.recipe.order(k) else { continue };
            let loss = &mut losses.entry(order).or_insert([f64::INFINITY; ROWS.len()])[i];
            *loss = loss.min(candidate.time() / default);
        }
    }
    let score = |losses: &[f64; ROWS.len()]| {
        let excess = |loss: f64| (loss / GREAT_LOSS).ln().max(0.0);
        losses.iter().map(|&loss| loss.ln() + PENALTY * excess(loss)).sum::<f64>()
    };
    // Of equal scores the order with the fewest ranges, not that of a hash.
    let key = |order: &Order| (order.ranges(), format!("{order:?}"));
    let best = losses.iter().min_by(|(a, x), (b, y)| score(x).total_cmp(&score(y)).then_with(|| key(a).cmp(&key(b))));
    best.map(|(order, _)| order.clone())
}

#[cfg(test)]
mod tests {
    use super::super::legal::legal;
    use super::super::tuned::TunedEntry;
    use super::*;
    use crate::plan::UNTUNED;

    #[test]
    fn tuned_entry_is_used_if_it_keeps_the_order() {
        let row = OperandLayout::new(Order2d::RowMajor, true);
        for (ty, n, k) in [(Type::BF16, 4096, 4096), (Type::F32, 3584, 4096), (Type::F64, 128, 16384)] {
            let (accuracy, layouts, caps) = (Accuracy::Full, [row; 3], Caps::Gpu(GpuDescription::H200));
            let problem = Problem { ty, accuracy, m: 16, n, k, batches: 1, layouts };
            let plan = choose_invariant(&problem, &caps, &UNTUNED).unwrap();
            let recipes = || legal(&problem, &caps).into_iter().map(|candidate| candidate.recipe);
            let others = || recipes().filter(|recipe| Plan::Gpu(*recipe) != plan);
            let with_entry = |recipe: Recipe| {
                let mut tuned = TuningTable::default();
                tuned.insert(problem, TunedEntry { recipe: recipe.name(), microseconds: 1.0 });
                choose_invariant(&problem, &caps, &tuned).unwrap()
            };
            let keeps = others().find(|recipe| keeps_order(recipe, &problem, &caps));
            keeps.into_iter().for_each(|recipe| assert_eq!(with_entry(recipe), Plan::Gpu(recipe)));
            let differs = others().find(|recipe| !keeps_order(recipe, &problem, &caps)).unwrap();
            assert_eq!(with_entry(differs), plan, "{ty}: {}", differs.name());
        }
    }

    #[test]
    fn choose_invariant_accepts_an_empty_c() {
        let layouts = [OperandLayout::new(Order2d::RowMajor, true); 3];
        for [m, n, k] in [[0, 64, 64], [64, 0, 64], [64, 64, 0]] {
            let problem = Problem { ty: Type::BF16, accuracy: Accuracy::Full, m, n, k, batches: 1, layouts };
            choose_invariant(&problem, &Caps::Gpu(GpuDescription::H100), &UNTUNED).unwrap();
        }
    }
}
