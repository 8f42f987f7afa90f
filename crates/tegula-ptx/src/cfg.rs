//! Control flow of a function: where the paths of a divergent branch reconverge.

use petgraph::algo::dominators::simple_fast;
use petgraph::graph::{DiGraph, NodeIndex};

use crate::program::NO_JOIN;

/// The control-flow successors of an instruction.
#[derive(Clone, Debug)]
pub(crate) enum Exits {
    /// The next instruction.
    Next,
    /// The targets of a branch; and the next instruction, if the flag (a guard) is set.
    Branch(Vec<u32>, bool),
    /// None, because the function returns or the thread exits; the next instruction if guarded.
    Leave { guarded: bool },
}

/// Returns, for each branch instruction, the position where its paths reconverge.
///
/// That is the start of the immediate post-dominator of its basic block, where compilers for NVIDIA
/// GPUs place the reconvergence. It is `NO_JOIN` if the paths meet only at the end of the function,
/// and for all other instructions. Post-dominators are the dominators of the reversed graph:
/// Cooper, Harvey and Kennedy, "A simple, fast dominance algorithm", 2001.
pub(crate) fn reconvergence(exits: &[Exits]) -> Vec<u32> {
    let n = exits.len();
    let mut joins = vec![NO_JOIN; n];
    if !exits
        .iter()
        .any(|exit| matches!(exit, Exits::Branch(_, true)) || matches!(exit, Exits::Branch(to, _) if to.len() > 1))
    {
        return joins;
    }
    let (starts, block_of) = blocks(exits);
    let mut graph: DiGraph<(), ()> = DiGraph::with_capacity(starts.len() + 1, 2 * starts.len());
    let nodes: Vec<NodeIndex> = starts.iter().map(|_| graph.add_node(())).collect();
    let end = graph.add_node(());
    for (block, &node) in nodes.iter().enumerate() {
        let last = starts.get(block + 1).map_or(n, |&next| next as usize) - 1;
        // Edges are reversed.
        let mut edge = |to: u32| {
            let to = block_of.get(to as usize).map_or(end, |&block| nodes[block as usize]);
            graph.add_edge(to, node, ());
        };
        let next = last as u32 + 1;
        match &exits[last] {
            Exits::Next => edge(next),
            Exits::Branch(targets, falls_through) => {
                targets.iter().for_each(|&to| edge(to));
                if *falls_through {
                    edge(next);
                }
            }
            Exits::Leave { guarded } => {
                edge(n as u32);
                if *guarded {
                    edge(next);
                }
            }
        }
    }
    let dominators = simple_fast(&graph, end);
    for (at, exit) in exits.iter().enumerate() {
        if let Exits::Branch(..) = exit {
            let node = nodes[block_of[at] as usize];
            if let Some(join) = dominators.immediate_dominator(node).filter(|&join| join != end) {
                joins[at] = starts[join.index()];
            }
        }
    }
    joins
}

/// The first instruction of each basic block, and the block of each instruction.
fn blocks(exits: &[Exits]) -> (Vec<u32>, Vec<u32>) {
    let n = exits.len();
    let mut leads = vec![false; n + 1];
    leads[0] = true;
    for (at, exit) in exits.iter().enumerate() {
        match exit {
            Exits::Next => {}
            Exits::Branch(targets, _) => {
                targets.iter().filter(|&&to| (to as usize) < n).for_each(|&to| leads[to as usize] = true);
                leads[at + 1] = true;
            }
            Exits::Leave { .. } => leads[at + 1] = true,
        }
    }
    let starts: Vec<u32> = (0..n as u32).filter(|&at| leads[at as usize]).collect();
    let mut block = 0;
    let block_of = (0..n).map(|at| {
        block += u32::from(at > 0 && leads[at]);
        block
    });
    let block_of = block_of.collect();
    (starts, block_of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reconvergence_of_a_branch_is_its_end() {
        // 0: if → 3; 1, 2: bra 4; 3; 4: return.
        let exits = [
            Exits::Branch(vec![3], true),
            Exits::Next,
            Exits::Branch(vec![4], false),
            Exits::Next,
            Exits::Leave { guarded: false },
        ];
        assert_eq!(reconvergence(&exits)[0], 4);
    }

    #[test]
    fn reconvergence_of_a_loop_is_its_exit() {
        let exits =
            [Exits::Next, Exits::Next, Exits::Branch(vec![1], true), Exits::Next, Exits::Leave { guarded: false }];
        assert_eq!(reconvergence(&exits)[2], 3);
    }

    #[test]
    fn reconvergence_of_paths_that_return_apart_is_none() {
        let exits = [Exits::Branch(vec![2], true), Exits::Leave { guarded: false }, Exits::Leave { guarded: false }];
        assert_eq!(reconvergence(&exits)[0], NO_JOIN);
        // A loop without an exit.
        let exits = [Exits::Branch(vec![0], true), Exits::Branch(vec![0], false)];
        assert_eq!(reconvergence(&exits), [NO_JOIN, NO_JOIN]);
    }
}
