//! Which operations of the kernel language occur in random programs: all, or there is a reason.

use std::collections::BTreeMap;

use tegula_ir::{AtomicOp, Guard, Hopper, Inst, LeftFactor, Op, Order, Place};

use super::{build, generate};

/// Programs among which each operation occurs.
const PROGRAMS: u64 = 1000;

/// Names what an operation is, and lists all names; without a wildcard, so that a new operation has
/// to be named.
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
    Op::Special(_) => "special" never "a register";
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
    Op::Load { order, .. } if *order == Order::Weak => "load";
    Op::Load { .. } => "ordered load";
    Op::Store { order, .. } if *order == Order::Weak => "store";
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
    Op::Hopper(_) => "of Hopper";
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
    AtomicOp::Exchange => "atomic exchange";
    AtomicOp::CompareExchange { .. } => "atomic compare and exchange";
}

kinds! { hopper(op: Hopper), HOPPER;
    Hopper::InitBarrier { .. } => "init of an mbarrier";
    Hopper::FenceInit => "fence after init";
    Hopper::Arrive { block, .. } if block.is_some() => "remote arrival";
    Hopper::Arrive { expect, .. } if expect.is_some() => "arrival that expects bytes";
    Hopper::Arrive { .. } => "arrival at an mbarrier";
    Hopper::Await { .. } => "wait at an mbarrier";
    Hopper::CopyTile { blocks, .. } if blocks.is_some() => "multicast copy of a tile";
    Hopper::CopyTile { .. } => "copy of a tile";
    Hopper::Send { .. } => "send";
    Hopper::StoreTile { .. } => "store of a tile";
    Hopper::CommitStores => "commit of stores";
    Hopper::AwaitStores { read, .. } if *read => "wait for reads of stores";
    Hopper::AwaitStores { .. } => "wait for stores";
    Hopper::FenceProxy { global: true } => "global proxy fence" never "global memory is fenced by interp_proxies";
    Hopper::FenceProxy { .. } => "proxy fence";
    Hopper::Wgmma { a, .. } if matches!(a, LeftFactor::Shared(_)) => "wgmma";
    Hopper::Wgmma { .. } => "wgmma of registers";
    Hopper::WgmmaFence => "wgmma fence";
    Hopper::WgmmaCommit => "wgmma commit";
    Hopper::WgmmaWait { .. } => "wgmma wait";
    Hopper::StoreMatrix { .. } => "store matrix";
    Hopper::SetRegisters { .. } => "set registers" never "registers";
    Hopper::ClusterArrive => "arrival at the cluster's barrier";
    Hopper::ClusterWait => "wait at the cluster's barrier";
    Hopper::Prefetch { .. } => "prefetch" never "reads a descriptor, which nothing writes";
    Hopper::AwaitLaunches => "wait for launches" never "orders launches, and a program is one";
    Hopper::AllowNext => "start of the next launch" never "orders launches, and a program is one";
}

kinds! { guard(guard: Guard), GUARDS;
    Guard::Always => "no guard";
    Guard::If(_) => "guard";
    Guard::First(_) => "guard of the first elements";
}

kinds! { order(order: Order), ORDERS;
    Order::Weak => "weak";
    Order::Relaxed => "relaxed";
    Order::Acquire => "acquire";
    Order::Release => "release";
    Order::AcqRel => "acquire and release";
}

kinds! { place(place: Place), PLACES;
    Place::Global { .. } => "place in a matrix";
    Place::Cursor { .. } => "place by a cursor" never "the same memory, by an address in registers";
    Place::Shared { .. } => "place in shared memory";
}

/// Counts what the operations are, those of bodies as well.
fn count(insts: &[Inst], counts: &mut BTreeMap<&'static str, u64>) {
    let mut seen = |name| *counts.entry(name).or_default() += 1;
    for Inst { op, .. } in insts {
        seen(operation(op));
        match op {
            Op::Load { guard: only, order: how, .. } | Op::Store { guard: only, order: how, .. } => {
                seen(guard(only));
                seen(order(how));
            }
            Op::CopyAsync { guard: only, .. } => seen(guard(only)),
            Op::Atomic { op, order: how, .. } => {
                seen(atomic(op));
                seen(order(how));
            }
            Op::Hopper(op) => seen(hopper(op)),
            _ => {}
        }
        op.for_each_place(|at| seen(place(at)));
    }
    insts.iter().flat_map(|inst| inst.op.bodies()).for_each(|body| count(body, counts));
}

#[test]
fn every_operation_occurs_in_random_programs() {
    let mut counts = BTreeMap::new();
    for seed in 0..PROGRAMS {
        count(build::build(&generate::program(seed)).0.body(), &mut counts);
    }
    let all = [OPERATIONS, ATOMICS, HOPPER, GUARDS, ORDERS, PLACES].concat();
    let missing: Vec<_> = all
        .iter()
        .filter(|(name, never)| never.is_none() && !counts.contains_key(name))
        .map(|(name, _)| *name)
        .collect();
    assert!(missing.is_empty(), "{PROGRAMS} random programs lack {missing:?}: generate it, or say why not");
}
