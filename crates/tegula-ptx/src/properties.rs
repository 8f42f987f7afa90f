//! Properties of a program that determine the shadow memory and the schedule of its launches.

use tegula_ir::MemoryOrder;

use crate::alu::Lanes;
use crate::ast::StateSpace;
use crate::program::{Instruction, MbarrierOp, Op, Reg};

/// Computes `granules`, `orders_finely` and `orders_blocks` of a `Program`.
///
/// A granule is the size in bytes of the smallest access to a memory, at most 4. Each shadow cell
/// covers one granule. Accesses are aligned to their size, so each begins at a granule.
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

/// Whether the program has `cp.async.mbarrier.arrive`.
pub(crate) fn copies_arrive(code: &[Instruction]) -> bool {
    code.iter().any(|instruction| matches!(instruction.op, Op::Mbarrier { op: MbarrierOp::CopyArrive { .. }, .. }))
}

/// Clears [`Transfer::lockstep`](crate::program::Transfer::lockstep) of loads that poll a location.
///
/// A load polls if it is in a loop that writes no memory, and the loop does not change its address.
pub(crate) fn mark_polls(code: &mut [Instruction]) {
    for end in 0..code.len() {
        let Op::Branch { target, .. } = code[end].op else { continue };
        let start = target as usize;
        if start > end || !code[start..=end].iter().all(|instruction| only_waits(&instruction.op)) {
            continue;
        }
        for at in start..=end {
            let Op::Load(transfer) = &code[at].op else { continue };
            let base = transfer.address.base;
            let polls = !code[start..=end].iter().any(|instruction| changes(&instruction.op, base));
            if let Op::Load(transfer) = &mut code[at].op {
                transfer.lockstep &= !polls;
            }
        }
    }
}

/// Whether an operation of a polling loop writes nothing but registers.
fn only_waits(op: &Op) -> bool {
    matches!(
        op,
        Op::Arithmetic { .. }
            | Op::Move { .. }
            | Op::Special { .. }
            | Op::Load(_)
            | Op::Fence { .. }
            | Op::Branch { .. }
            | Op::Nop
    )
}

/// Whether an operation of a polling loop changes a register.
fn changes(op: &Op, reg: Reg) -> bool {
    match op {
        Op::Arithmetic { dst, .. } => dst.contains(&reg),
        Op::Move { dst, .. } | Op::Special { dst, .. } => *dst == reg,
        Op::Load(transfer) => transfer.registers.contains(&reg),
        _ => false,
    }
}
