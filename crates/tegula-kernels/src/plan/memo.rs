//! A cache of plans: a program multiplies few shapes many times, and a choice evaluates many
//! candidates.

use std::cell::RefCell;

use rustc_hash::FxHashMap;
use tegula_core::error::Result;

use super::choose::Plan;
use super::device::Caps;
use super::invariant::choose_invariant;
use super::problem::Problem;
use super::tuned::TuningTable;

/// The maximum number of plans cached per thread. Beyond it the cache is cleared, which costs a
/// program with more shapes some microseconds each.
const MAX_PLANS: usize = 1024;

/// Plans by problem, device and tuning table, and whether they are batch-invariant.
type PlanCache = FxHashMap<(Problem, Caps, u64, bool), Plan>;

thread_local! {
    /// Thread-local, to avoid a lock.
    static PLANS: RefCell<PlanCache> = RefCell::default();
}

/// [`TuningTable::choose`], or [`choose_invariant`] if `invariant`, with a cache of plans. Errors
/// are not cached.
///
/// # Errors
/// As these.
pub fn choose_cached(problem: &Problem, caps: &Caps, tuned: &TuningTable, invariant: bool) -> Result<Plan> {
    PLANS.with_borrow_mut(|plans| lookup(plans, problem, caps, tuned, invariant))
}

fn lookup(plans: &mut PlanCache, problem: &Problem, caps: &Caps, tuned: &TuningTable, invariant: bool) -> Result<Plan> {
    let key = (*problem, *caps, tuned.id(), invariant);
    if let Some(plan) = plans.get(&key) {
        return Ok(*plan);
    }
    let plan = if invariant { choose_invariant(problem, caps, tuned) } else { tuned.choose(problem, caps) }?;
    if plans.len() == MAX_PLANS {
        plans.clear();
    }
    plans.insert(key, plan);
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use tegula_core::element::Type;

    use super::*;
    use crate::plan::{GpuDescription, UNTUNED, choose};

    fn problem(m: usize, ty: Type) -> Problem {
        Problem { ty, accuracy: Default::default(), m, n: 64, k: 64, batches: 1, layouts: Default::default() }
    }

    #[test]
    fn choose_cached_agrees_with_choose() {
        let mut memo = PlanCache::default();
        for _ in 0..2 {
            for (m, ty) in [(64, Type::F32), (9, Type::F32), (1, Type::F32), (64, Type::F64)] {
                for caps in [Caps::Cpu, Caps::Interp, Caps::Gpu(GpuDescription::H200)] {
                    let problem = problem(m, ty);
                    assert_eq!(
                        lookup(&mut memo, &problem, &caps, &UNTUNED, false).unwrap(),
                        choose(&problem, &caps).unwrap()
                    );
                }
            }
        }
        assert_eq!(memo.len(), 12);
    }

    #[test]
    fn plan_cache_omits_errors_and_is_bounded() {
        let mut memo = PlanCache::default();
        let old = Caps::Gpu(GpuDescription { compute: (6, 0), ..GpuDescription::H200 });
        assert!(lookup(&mut memo, &problem(8, Type::F32), &old, &UNTUNED, false).is_err());
        assert!(memo.is_empty());
        for m in 0..3 * MAX_PLANS {
            lookup(&mut memo, &problem(m, Type::F32), &Caps::Interp, &UNTUNED, false).unwrap();
            assert!(memo.len() <= MAX_PLANS);
        }
    }
}
