//! What the instructions of a program need of shadow memory and of the schedule.

use tegula_ir::MemoryOrder;

use crate::alu::Lanes;
use crate::ast::StateSpace;
use crate::program::{Instruction, MbarrierOp, Op};

/// Granules of shared and global memory, and how finely the program orders accesses.
///
/// A granule is the smallest access to a memory, at most four bytes: a shadow cell stands for it.
/// Accesses are aligned to their size, so no access begins inside of a granule.
pub(crate) fn properties(code: &[Instruction], registers: &[Lanes]) -> ([u32; 2], bool, bool) {
    let (mut granules, mut finely, mut blocks) = ([4u32; 2], false, false);
    let mut access = |space: Option<StateSpace>, bytes: u32| {
        let [shared, global] = &mut granules;
        match space {
            Some(StateSpace::Shared) => *shared = (*shared).min(bytes),
            Some(StateSpace::Local | StateSpace::Param) => {}
            Some(StateSpace::Global | StateSpace::Const) => *global = (*global).min(bytes),
            _ => (*shared, *global) = ((*shared).min(bytes), (*global).min(bytes)),
        }
    };
    for instruction in code {
        let outside = |space: Option<StateSpace>| matches!(space, None | Some(StateSpace::Global));
        match &instruction.op {
            Op::Load(transfer) | Op::Store(transfer) => {
                access(transfer.address.space, transfer.ty.size());
                let strong = transfer.order != MemoryOrder::Weak;
                finely |= strong && transfer.address.space != Some(StateSpace::Local);
                blocks |= strong && outside(transfer.address.space);
            }
            Op::Atomic(atomic) => {
                access(atomic.address.space, atomic.ty.size());
                finely = true;
                blocks |= outside(atomic.address.space);
            }
            Op::WmmaLoad { transfer, address, .. } | Op::WmmaStore { transfer, address, .. } => {
                let words = transfer.accesses().iter().map(|access| access.word_bytes);
                access(address.space, words.min().unwrap_or(4));
            }
            Op::Fence { .. } | Op::Mbarrier { .. } => finely = true,
            Op::Barrier(barrier) => finely |= barrier.threads.is_some() || !barrier.aligned,
            Op::WarpSync { mask } => finely |= registers[*mask as usize] != [0xffff_ffff; 32],
            _ => {}
        }
    }
    (granules, finely, blocks)
}

/// Whether a program has strong accesses of different sizes.
pub(crate) fn are_mixed(code: &[Instruction]) -> bool {
    let mut sizes = code.iter().filter_map(|instruction| match &instruction.op {
        Op::Load(transfer) | Op::Store(transfer) if transfer.order != MemoryOrder::Weak => Some(transfer.ty.size()),
        Op::Atomic(atomic) => Some(atomic.ty.size()),
        _ => None,
    });
    sizes.next().is_some_and(|first| sizes.any(|size| size != first))
}

/// Whether completions of `cp.async` copies arrive at mbarriers.
pub(crate) fn copies_arrive(code: &[Instruction]) -> bool {
    code.iter().any(|instruction| matches!(instruction.op, Op::Mbarrier { op: MbarrierOp::CopyArrive { .. }, .. }))
}
