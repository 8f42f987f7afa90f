//! Checks that random programs contain every operation of the kernel language, or documents the
//! reason.

use std::collections::BTreeMap;

use tegula_ir::{AtomicOp, Guard, HopperOp, Inst, LeftOperand, MemoryOrder, MemoryRef, Op};

use super::{build, generate};

/// Number of programs in which each operation must occur.
const PROGRAMS: u64 = 1000;

/// Defines a function that names an operation, and the list of all names. The match has no
/// wildcard, so that a new operation needs a name.
macro_rules! kinds {
    ($function:ident($op:ident: $of:ty), $all:ident;
     $($pattern:pat $(if $guard:expr)? => $name:literal $(never $why:literal)?;)*) => {
        fn $function($op: &$of) -> &'static str {
            match $op { $($pattern $(if $guard)? => $name,)* }
        }

        const $all: &[(&str, Option<&str>)] = &[$(($name, kinds!(@ $($why)?)),)*];
    };
    (@) => { None };
    (@ $why:literal) => { Some($why) };
}

kinds! { operation(op: Op), OPERATIONS;
    Op::SpecialRegister(_) => "special" never "a register";
    Op::Extent(..) => "extent" never "a parameter, which nothing writes";
    Op::Scalar(_) => "scalar" never "a parameter, which nothing writes";
    Op::Unary(..) => "unary" never "arithmetic";
    Op::Binary(..) => "binary" never "arithmetic";
    Op::MulAdd(..) => "multiply-add" never "arithmetic";
    Op::Compare(..) => "compare" never "arithmetic";
    Op::Select(..) => "select" never "arithmetic";
    Op::Convert(_) => "convert" never "arithmetic";
    Op::Bitcast(_) => "bitcast" never "arithmetic";
    Op::Pack(..) => "pack" never "arithmetic";
    Op::Uniform(..) => "uniform" never "an assertion about registers";
    Op::RoundTf32(_) => "round to tf32" never "arithmetic";
    Op::Get(_) => "get" never "a register";
    Op::Set(..) => "set" never "a register";
    Op::SetCursor(..) => "set cursor" never "a register";
    Op::MoveCursor { .. } => "move cursor" never "a register";
    Op::Load { order, .. } if *order == MemoryOrder::Weak => "load";
    Op::Load { .. } => "ordered load";
    Op::Store { order, .. } if *order == MemoryOrder::Weak => "store";
    Op::Store { .. } => "ordered store";
    Op::Atomic { .. } => "atomic";
    Op::Fence(_) => "fence";
    Op::WaitUntil { .. } => "wait until";
    Op::CopyAsync { .. } => "asynchronous copy";
    Op::CopyAsyncCommit => "commit of copies";
    Op::CopyAsyncWait { .. } => "wait for copies";
    Op::Barrier => "barrier";
    Op::NamedBarrier { wait, .. } if *wait => "named barrier";
    Op::NamedBarrier { .. } => "arrival at a named barrier";
    Op::SyncWarp { .. } => "sync warp";
    Op::Shuffle { .. } => "shuffle";
    Op::Vote { .. } => "vote";
    Op::Mma { .. } => "mma" never "registers of a warp alone";
    Op::LoadMatrix { .. } => "load matrix";
    Op::Hopper(_) => "Hopper operation";
    Op::For { .. } => "for";
    Op::If { .. } => "if";
    Op::While { .. } => "while";
}

kinds! { atomic(op: AtomicOp), ATOMICS;
    AtomicOp::Add => "atomic add";
    AtomicOp::Min => "atomic min";
    AtomicOp::Max => "atomic max";
    AtomicOp::And => "atomic and";
    AtomicOp::Or => "atomic or";
    AtomicOp::Xor => "atomic xor";
    AtomicOp::Swap => "atomic exchange";
    AtomicOp::CompareExchange { .. } => "atomic compare and exchange";
}

kinds! { hopper(op: HopperOp), HOPPER;
    HopperOp::MbarrierInit { .. } => "init of an mbarrier";
    HopperOp::FenceMbarrierInit => "fence after init";
    HopperOp::MbarrierArrive { block, .. } if block.is_some() => "remote arrival";
    HopperOp::MbarrierArrive { expect, .. } if expect.is_some() => "arrival that expects bytes";
    HopperOp::MbarrierArrive { .. } => "arrival at an mbarrier";
    HopperOp::MbarrierWait { .. } => "wait at an mbarrier";
    HopperOp::TmaLoad { blocks, .. } if blocks.is_some() => "multicast copy of a tile";
    HopperOp::TmaLoad { .. } => "copy of a tile";
    HopperOp::StoreAsync { .. } => "asynchronous store to shared memory";
    HopperOp::TmaStore { .. } => "store of a tile";
    HopperOp::BulkCommitGroup => "commit of stores";
    HopperOp::BulkWaitGroup { read, .. } if *read => "wait for reads of stores";
    HopperOp::BulkWaitGroup { .. } => "wait for stores";
    HopperOp::FenceProxyAsync { global: true } => "global proxy fence" never "global memory is fenced by interp_proxies";
    HopperOp::FenceProxyAsync { .. } => "proxy fence";
    HopperOp::Wgmma { a, .. } if matches!(a, LeftOperand::Shared(_)) => "wgmma";
    HopperOp::Wgmma { .. } => "wgmma of registers";
    HopperOp::WgmmaFence => "wgmma fence";
    HopperOp::WgmmaCommitGroup => "wgmma commit";
    HopperOp::WgmmaWaitGroup { .. } => "wgmma wait";
    HopperOp::StoreMatrix { .. } => "store matrix";
    HopperOp::SetMaxRegisters { .. } => "set registers" never "registers";
    HopperOp::ClusterArrive => "arrival at the cluster's barrier";
    HopperOp::ClusterWait => "wait at the cluster's barrier";
    HopperOp::PrefetchTensorMap { .. } => "prefetch" never "reads a descriptor, which nothing writes";
    HopperOp::GriddepWait => "wait for launches" never "orders launches, and a program is one";
    HopperOp::GriddepLaunchDependents => "start of the next launch" never "orders launches, and a program is one";
}

kinds! { access_guard(guard: Guard), GUARDS;
    Guard::Always => "no guard";
    Guard::If(_) => "guard";
    Guard::First(_) => "guard of the first elements";
}

kinds! { memory_order(order: MemoryOrder), ORDERS;
    MemoryOrder::Weak => "weak";
    MemoryOrder::Relaxed => "relaxed";
    MemoryOrder::Acquire => "acquire";
    MemoryOrder::Release => "release";
    MemoryOrder::AcqRel => "acquire and release";
}

kinds! { memory_ref(memory: MemoryRef), MEMORY_REFS;
    MemoryRef::Global { .. } => "matrix element";
    MemoryRef::Cursor { .. } => "cursor" never "the same memory, by an address in registers";
    MemoryRef::Shared { .. } => "shared memory element";
}

/// Counts operations by name, including those of bodies.
fn count(insts: &[Inst], counts: &mut BTreeMap<&'static str, u64>) {
    let mut seen = |name| *counts.entry(name).or_default() += 1;
    for Inst { op, .. } in insts {
        seen(operation(op));
        match op {
            Op::Load { guard, order, .. } | Op::Store { guard, order, .. } => {
                seen(access_guard(guard));
                seen(memory_order(order));
            }
            Op::CopyAsync { guard, .. } => seen(access_guard(guard)),
            Op::Atomic { op, order, .. } => {
                seen(atomic(op));
                seen(memory_order(order));
            }
            Op::Hopper(op) => seen(hopper(op)),
            _ => {}
        }
        op.for_each_memory_ref(|memory| seen(memory_ref(memory)));
    }
    insts.iter().flat_map(|inst| inst.op.bodies()).for_each(|body| count(body, counts));
}

#[test]
fn every_operation_occurs_in_random_programs() {
    let mut counts = BTreeMap::new();
    for seed in 0..PROGRAMS {
        count(build::build(&generate::program(seed)).0.body(), &mut counts);
    }
    let all = [OPERATIONS, ATOMICS, HOPPER, GUARDS, ORDERS, MEMORY_REFS].concat();
    let missing: Vec<_> = all
        .iter()
        .filter(|(name, never)| never.is_none() && !counts.contains_key(name))
        .map(|(name, _)| *name)
        .collect();
    assert!(
        missing.is_empty(),
        "{PROGRAMS} random programs lack {missing:?}; generate them, or give a reason with `never`"
    );
}
