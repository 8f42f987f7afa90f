//! Properties of a program that determine the shadow memory and the schedule of its launches.

use rustc_hash::{FxHashMap, FxHashSet};
use tegula_ir::MemoryOrder;

use crate::alu::Lanes;
use crate::ast::StateSpace;
use crate::program::{Instruction, MbarrierOp, Op, Reg, Special};

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
        let changed = changed_registers(&code[start..=end]);
        for instruction in &mut code[start..=end] {
            if let Op::Load(transfer) = &mut instruction.op {
                transfer.lockstep &= changed.contains(&transfer.address.base);
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

/// The registers that can differ between iterations of a loop that only waits.
///
/// A register does not if its one definition has the same operands in each iteration.
fn changed_registers(body: &[Instruction]) -> FxHashSet<Reg> {
    let mut definitions: FxHashMap<Reg, Vec<&Instruction>> = FxHashMap::default();
    for instruction in body {
        defined(&instruction.op).iter().for_each(|&reg| definitions.entry(reg).or_default().push(instruction));
    }
    let mut changed: FxHashSet<Reg> = definitions.keys().copied().collect();
    loop {
        let is_fixed = |reg: &Reg| match &definitions[reg][..] {
            [one] => {
                one.guard.is_none() && operands(&one.op).is_some_and(|all| all.iter().all(|r| !changed.contains(r)))
            }
            _ => false,
        };
        let fixed: Vec<Reg> = changed.iter().copied().filter(is_fixed).collect();
        if fixed.is_empty() {
            return changed;
        }
        fixed.iter().for_each(|reg| _ = changed.remove(reg));
    }
}

/// The registers that an operation of such a loop defines.
fn defined(op: &Op) -> &[Reg] {
    match op {
        Op::Arithmetic { dst, .. } => dst,
        Op::Move { dst, .. } | Op::Special { dst, .. } => std::slice::from_ref(dst),
        Op::Load(transfer) => &transfer.registers,
        _ => &[],
    }
}

/// The registers that the result of an operation depends on; `None` if it depends on more.
fn operands(op: &Op) -> Option<&[Reg]> {
    match op {
        Op::Arithmetic { sources, carries: false, .. } => Some(sources),
        Op::Move { src, .. } => Some(std::slice::from_ref(src)),
        Op::Special { register: Special::Clock | Special::GlobalTimer, .. } => None,
        Op::Special { .. } => Some(&[]),
        // The loop stores nothing, and other threads cannot.
        Op::Load(transfer) if matches!(transfer.address.space, Some(StateSpace::Local | StateSpace::Param)) => {
            Some(std::slice::from_ref(&transfer.address.base))
        }
        _ => None,
    }
}
