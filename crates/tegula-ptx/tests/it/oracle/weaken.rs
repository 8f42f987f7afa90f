//! Programs with one order removed or weakened.

use super::program::{Op, Order, Program, Scope, Strength, Threads};

/// Returns all programs that lack one order of this one.
pub fn weakened(program: &Program) -> Vec<Program> {
    let mut all = Vec::new();
    let steps: Vec<_> = program.steps().copied().collect();
    let mut add = |change: &dyn Fn(&mut Program)| {
        let mut weaker = program.clone();
        change(&mut weaker);
        all.push(weaker);
    };
    for (at, step) in steps.iter().enumerate() {
        let mut set = |op: Op| add(&|weaker| weaker.step_mut(at).into_iter().for_each(|step| step.op = op));
        match step.op {
            Op::Load { at: place, width, vector, strength } => {
                weaker_accesses(strength)
                    .into_iter()
                    .for_each(|s| set(Op::Load { at: place, width, vector, strength: s }));
            }
            Op::Store { at: place, width, vector, strength, value } => {
                let changed = weaker_accesses(strength).into_iter();
                changed.for_each(|s| set(Op::Store { at: place, width, vector, strength: s, value }));
            }
            Op::Atomic { at: place, width, kind, strength, value, returns } => {
                for s in weaker_atomics(strength) {
                    set(Op::Atomic { at: place, width, kind, strength: s, value, returns });
                }
            }
            Op::Wait { flag, value, strength } => {
                weaker_atomics(strength).into_iter().for_each(|s| set(Op::Wait { flag, value, strength: s }));
                add(&|weaker| weaker.remove_step(at));
            }
            Op::Lock { flag, strength } => {
                weaker_atomics(strength).into_iter().for_each(|s| set(Op::Lock { flag, strength: s }));
            }
            Op::Ticket { flag, count, strength } => {
                weaker_atomics(strength).into_iter().for_each(|s| set(Op::Ticket { flag, count, strength: s }));
            }
            Op::Fence { kind, scope } => {
                if scope != Scope::Block {
                    set(Op::Fence { kind, scope: Scope::Block });
                }
                add(&|weaker| weaker.remove_step(at));
            }
            Op::WaitCopies(pending) => {
                set(Op::WaitCopies(Some(pending.map_or(1, |pending| pending + 1))));
                add(&|weaker| weaker.remove_step(at));
            }
            Op::Commit | Op::Barrier { .. } | Op::WaitMbarrier { .. } => add(&|weaker| weaker.remove_step(at)),
            Op::Named { id, warps, .. } => {
                // Each warp arrives at most once; without the others, the barrier has one warp.
                add(&|weaker| {
                    let of_barrier =
                        |step: &super::program::Step| matches!(step.op, Op::Named { id: of, .. } if of == id);
                    let all: Vec<usize> =
                        (0..).zip(weaker.steps()).filter(|(_, step)| of_barrier(step)).map(|(at, _)| at).collect();
                    all.into_iter().rev().for_each(|at| weaker.remove_step(at));
                });
                if warps.count_ones() > 1 && step.threads.warps.count_ones() > 1 {
                    let fewer = warps & (warps - 1);
                    add(&|weaker| {
                        for step in weaker.nodes.iter_mut().flat_map(super::program::Node::steps_mut) {
                            if let Op::Named { id: of, warps, .. } = &mut step.op
                                && *of == id
                            {
                                *warps = fewer;
                                step.threads.warps &= fewer;
                            }
                        }
                    });
                }
            }
            Op::WarpSync { mask } => {
                add(&|weaker| weaker.remove_step(at));
                for lane in [mask & mask.wrapping_neg(), 1 << (31 - mask.leading_zeros())] {
                    let fewer = mask & !lane;
                    if fewer != 0 {
                        add(&|weaker| {
                            if let Some(step) = weaker.step_mut(at) {
                                step.threads = Threads { lanes: fewer, ..step.threads };
                                step.op = Op::WarpSync { mask: fewer };
                            }
                        });
                    }
                }
            }
            // Without an arrival, threads may wait for ever.
            Op::Arrive { .. } | Op::CopyArrive { .. } => add(&|weaker| weaker.remove_step(at)),
            Op::Shuffle | Op::Vote | Op::Copy { .. } | Op::Exit => {}
        }
    }
    all
}

/// Strengths of an atomic operation or a wait with less order or a narrower scope.
fn weaker_atomics(strength: Strength) -> Vec<Strength> {
    let mut all = Vec::new();
    if strength.order.acquires() || strength.order.releases() {
        all.push(Strength { order: Order::Relaxed, ..strength });
    }
    if strength.scope != Scope::Block && strength.order != Order::Volatile {
        all.push(Strength { scope: Scope::Block, ..strength });
    }
    all
}

/// The same for loads and stores, which can also become weak.
fn weaker_accesses(strength: Strength) -> Vec<Strength> {
    let mut all = weaker_atomics(strength);
    if strength.order != Order::Weak {
        all.push(Strength::WEAK);
    }
    all.retain(|weaker| *weaker != strength);
    if strength.order == Order::Weak { Vec::new() } else { all }
}
