//! Shrinks a failing program while it keeps failing.

use super::program::{Node, Op, Program, Threads};

/// Maximum number of programs to try.
const MAX_ATTEMPTS: u32 = 600;

/// Returns a minimal program that still fails: removing any part makes it pass.
pub fn shrink(mut program: Program, fails: impl Fn(&Program) -> bool) -> Program {
    let mut left = MAX_ATTEMPTS;
    loop {
        let found = smaller(&program).find(|smaller| {
            left = left.saturating_sub(1);
            left == 0 || fails(smaller)
        });
        match found {
            Some(smaller) if left > 0 => program = smaller,
            _ => return program,
        }
    }
}

/// Yields programs with one part removed.
fn smaller(program: &Program) -> impl Iterator<Item = Program> + '_ {
    let without = (0..program.nodes.len()).rev().map(|at| {
        let mut smaller = program.clone();
        smaller.nodes.remove(at);
        smaller
    });
    let inside = (0..program.nodes.len()).flat_map(move |at| {
        let body = if let Node::Loop(_, body) = &program.nodes[at] { &body[..] } else { &[] };
        let unrolled = (!body.is_empty()).then(|| {
            let mut smaller = program.clone();
            smaller.nodes.splice(at..=at, body.iter().map(|&step| Node::Step(step)));
            smaller
        });
        let less = (0..body.len()).map(move |i| {
            let mut smaller = program.clone();
            if let Node::Loop(_, body) = &mut smaller.nodes[at] {
                body.remove(i);
            }
            smaller
        });
        unrolled.into_iter().chain(less)
    });
    let fewer_blocks = (program.blocks > 1).then(|| Program { blocks: program.blocks - 1, ..program.clone() });
    let sizes = [1, 2, 32, 33, 64].into_iter().filter(|&threads| threads < program.threads);
    let fewer_threads = sizes.map(|threads| Program { threads, ..program.clone() });
    // One of the threads of a step.
    let single = program.steps().enumerate().filter_map(move |(at, step)| {
        let collective = matches!(step.op, Op::Barrier { .. } | Op::Named { .. } | Op::WarpSync { .. });
        let members = if collective { Vec::new() } else { program.members(step.threads) };
        let &(block, thread) = members.first().filter(|_| members.len() > 1)?;
        let mut smaller = program.clone();
        smaller.step_mut(at)?.threads = Threads::one(block, thread);
        Some(smaller)
    });
    fewer_blocks.into_iter().chain(fewer_threads).chain(without).chain(inside).chain(single)
}
