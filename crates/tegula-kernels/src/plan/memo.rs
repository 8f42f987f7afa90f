//! Choices made before: a program multiplies few shapes many times, and a choice may weigh many kernels.

use std::cell::RefCell;

use rustc_hash::FxHashMap;
use tegula_core::error::Result;

use super::choose::Plan;
use super::device::Caps;
use super::problem::Problem;
use super::tuned::Tuned;

/// Choices that a thread keeps. Beyond, it forgets them all, which costs a program of so many shapes some microseconds each.
const MOST: usize = 1024;

/// By what was to be chosen, where, and from which table.
type Choices = FxHashMap<(Problem, Caps, u64), Plan>;

thread_local! {
    /// Each thread its own, so that none waits for another.
    static CHOSEN: RefCell<Choices> = RefCell::default();
}

/// [`Tuned::choose`], remembered. Refusals are not.
///
/// # Errors
/// As [`Tuned::choose`].
pub fn chosen(problem: &Problem, caps: &Caps, tuned: &Tuned) -> Result<Plan> {
    CHOSEN.with_borrow_mut(|chosen| remember(chosen, problem, caps, tuned))
}

fn remember(chosen: &mut Choices, problem: &Problem, caps: &Caps, tuned: &Tuned) -> Result<Plan> {
    let key = (*problem, *caps, tuned.id());
    if let Some(plan) = chosen.get(&key) {
        return Ok(*plan);
    }
    let plan = tuned.choose(problem, caps)?;
    if chosen.len() == MOST {
        chosen.clear();
    }
    chosen.insert(key, plan);
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use tegula_core::element::Type;

    use super::*;
    use crate::plan::{UNTUNED, choose};

    fn problem(m: usize, ty: Type) -> Problem {
        Problem { ty, accuracy: Default::default(), m, n: 64, k: 64, batches: 1, lies: Default::default() }
    }

    #[test]
    fn what_is_remembered_is_what_would_be_chosen() {
        let mut memo = Choices::default();
        for _ in 0..2 {
            for (m, ty) in [(64, Type::F32), (9, Type::F32), (1, Type::F32), (64, Type::F64)] {
                for caps in [Caps::Cpu, Caps::Interp, Caps::Gpu { compute: (9, 0), multiprocessors: 132 }] {
                    let problem = problem(m, ty);
                    assert_eq!(
                        remember(&mut memo, &problem, &caps, &UNTUNED).unwrap(),
                        choose(&problem, &caps).unwrap()
                    );
                }
            }
        }
        assert_eq!(memo.len(), 12);
    }

    #[test]
    fn it_remembers_no_refusal_and_no_more_than_it_may() {
        let mut memo = Choices::default();
        let old = Caps::Gpu { compute: (6, 0), multiprocessors: 132 };
        assert!(remember(&mut memo, &problem(8, Type::F32), &old, &UNTUNED).is_err());
        assert!(memo.is_empty());
        for m in 0..3 * MOST {
            remember(&mut memo, &problem(m, Type::F32), &Caps::Interp, &UNTUNED).unwrap();
            assert!(memo.len() <= MOST);
        }
    }
}
