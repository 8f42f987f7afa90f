//! Makes programs free of races: inserts orders until the oracle finds none.

use super::compare::{SCHEDULES, schedules};
use super::generate::Generator;
use super::program::{Array, Node, Op, Order, Program, Scope, Step, Strength, Threads, Value};
use super::races::{Pair, Witness, races};

/// Orders that are inserted before racing steps are removed.
const INSERTIONS: u32 = 14;
const ATTEMPTS: u32 = 60;

/// Returns the program with orders that leave no race; `None` if its threads wait for ever.
pub fn without_races(mut program: Program, generator: &mut Generator, seed: u64) -> Option<Program> {
    for attempt in 0..ATTEMPTS {
        let found = races(&program, schedules(seed, SCHEDULES))?.possible;
        if found.is_empty() {
            return Some(program);
        }
        let at = generator.random.below(found.len());
        let (&pair, &witness) = found.iter().nth(at)?;
        let fixed = if attempt < INSERTIONS { fix(&program, generator, pair, witness) } else { None };
        program = match fixed {
            Some(fixed) if races(&fixed, schedules(seed, 1)).is_some() => fixed,
            _ => {
                let mut smaller = program.clone();
                smaller.remove_step(if generator.random.chance(2) { pair.0 } else { pair.1 });
                smaller
            }
        };
    }
    None
}

/// Inserts an order between two racing steps, or makes them strong.
fn fix(program: &Program, generator: &mut Generator, (one, other): Pair, witness: Witness) -> Option<Program> {
    let steps: Vec<Step> = program.steps().copied().collect();
    let mut fixed = program.clone();
    let (first, second) = (program.position(one), program.position(other));
    let same_block = |(block, _): &(u32, u32)| *block;
    let threads = witness.threads.map(|thread| (thread as u32 / program.threads, thread as u32 % program.threads));
    let in_block = same_block(&threads[0]) == same_block(&threads[1]);
    if one == other {
        return alone(fixed, generator, one, &steps[one]);
    }
    if generator.random.chance(5)
        && let Some(strong) = made_strong(&fixed, &steps, (one, other))
    {
        return Some(strong);
    }
    if let (Some(inside), Some(_)) = (first.1, second.1)
        && first.0 == second.0
    {
        // Both are in one loop.
        let Node::Loop(_, body) = &mut fixed.nodes[first.0] else { return None };
        let len = body.len();
        let at = generator.random.choose(&[second.1.unwrap_or(inside), inside + 1, 0, len]);
        body.insert(at, generator.block_barrier());
        return in_block.then_some(fixed);
    }
    // New nodes come after the first step and before the second.
    let after = first.0 + 1;
    if witness.copies[0] {
        let pending = generator.random.choose(&[None, Some(0)]);
        let commit = pending.map(|_| Step { op: Op::Commit, ..generator.step(steps[one].threads, Op::Commit) });
        let wait = generator.step(steps[one].threads, Op::WaitCopies(pending));
        let at = after + generator.random.below(second.0 + 1 - first.0).min(second.0 - first.0);
        let at = at.clamp(after, second.0.max(after));
        fixed.nodes.splice(at..at, commit.into_iter().chain([wait]).map(Node::Step));
        return Some(fixed);
    }
    let between =
        |generator: &mut Generator| after + generator.random.below((second.0 + 1).saturating_sub(after).max(1));
    if in_block && !generator.random.chance(3) {
        let warps = threads.map(|(_, thread)| thread / 32);
        let step = match generator.random.below(3) {
            0 if warps[0] == warps[1] => {
                let lanes = steps[one].threads.lanes | steps[other].threads.lanes;
                let mask = if generator.random.chance(2) { lanes } else { u32::MAX };
                let set = Threads {
                    warps: steps[one].threads.warps | steps[other].threads.warps,
                    lanes: mask,
                    blocks: u32::MAX,
                };
                Some(generator.step(set, Op::WarpSync { mask }))
            }
            1 => {
                let warps = (steps[one].threads.warps | steps[other].threads.warps) & ((1 << program.warps()) - 1);
                generator.named(u32::MAX, warps)
            }
            _ => None,
        };
        let step = step.unwrap_or_else(|| generator.block_barrier());
        let at = between(generator);
        fixed.nodes.insert(at, Node::Step(step));
        return Some(fixed);
    }
    // A flag from all threads of the first step to those of the second.
    let (from, to) = (steps[one].threads, steps[other].threads);
    let one_block = Threads { blocks: 1 << threads[0].0, ..from };
    let shared = in_block && generator.random.chance(2);
    let from = if shared { one_block } else { from };
    let to = if shared { Threads { blocks: 1 << threads[1].0, ..to } } else { to };
    let count = program.members(from).len() as u32;
    if count > 40 {
        fixed.nodes.insert(after, Node::Step(generator.block_barrier()));
        return in_block.then_some(fixed);
    }
    let flag = generator.flag(shared)?;
    let value = (count == 1 && generator.random.chance(2)).then_some(1);
    let publish = generator.publish(from, flag, value);
    let wait = generator.await_flag(to, flag, count);
    let at = between(generator);
    fixed.nodes.splice(at..at, wait.into_iter().map(Node::Step));
    let at = after + generator.random.below(at + 1 - after);
    fixed.nodes.splice(at..at, publish.into_iter().map(Node::Step));
    Some(fixed)
}

/// Changes a step whose threads race with each other.
fn alone(mut fixed: Program, generator: &mut Generator, at: usize, step: &Step) -> Option<Program> {
    let members = fixed.members(step.threads);
    let choice = generator.random.below(5);
    if choice == 0
        && fixed.position(at).1.is_none()
        && members.len() <= 12
        && let Op::Store { at: place, .. } | Op::Load { at: place, .. } = step.op
        && place.array == Array::GlobalData
    {
        let flag = generator.flag(false)?;
        let steps = generator.locked(flag, step.threads, &[step.op]);
        let node = fixed.position(at).0;
        fixed.nodes.splice(node..=node, steps.into_iter().map(Node::Step));
        return Some(fixed);
    }
    let changed = fixed.step_mut(at)?;
    match &mut changed.op {
        Op::Store { value, .. } if choice == 1 => *value = Value::PerStep,
        Op::Store { strength, vector, .. } | Op::Load { strength, vector, .. } if choice == 2 => {
            (*strength, *vector) = (Strength::new(Order::Relaxed, Scope::Device), 1);
        }
        Op::Atomic { strength, .. } if choice == 2 => strength.scope = Scope::Device,
        _ => {
            let &(block, thread) = members.get(generator.random.below(members.len().max(1)))?;
            changed.threads = Threads::one(block, thread);
        }
    }
    Some(fixed)
}

/// Both steps with strong accesses, which do not race.
fn made_strong(program: &Program, steps: &[Step], (one, other): Pair) -> Option<Program> {
    let mut fixed = program.clone();
    let size = |at: usize| match steps[at].op {
        Op::Load { width, .. } | Op::Store { width, .. } | Op::Atomic { width, .. } => Some(width),
        _ => None,
    };
    if size(one)? != size(other)? {
        return None;
    }
    for at in [one, other] {
        match &mut fixed.step_mut(at)?.op {
            Op::Load { strength, .. } | Op::Store { strength, .. } => {
                *strength = Strength::new(Order::Relaxed, Scope::Device);
            }
            Op::Atomic { strength, .. } => strength.scope = Scope::Device,
            _ => {}
        }
    }
    Some(fixed)
}
