//! Kernels that are invalid for any data: each has exactly the faults injected in it.

use std::cell::Cell;

use tegula::Error;
use tegula_ir::prelude::*;
use tegula_ir::{Fault, FaultKind};

fn faults(kernel: Kernel) -> Vec<Fault> {
    match check(kernel) {
        Ok(_) => Vec::new(),
        Err(Error::InvalidKernel { faults, .. }) => faults,
        Err(other) => panic!("{other}"),
    }
}

/// Fault kinds of a kernel with one block of 64 threads.
fn kinds(build: impl for<'k> FnOnce(&'k Builder)) -> Vec<FaultKind> {
    let kernel = kernel("invalid", Block::d1(64), |k| {
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        build(k);
    });
    faults(kernel).into_iter().map(|f| f.kind).collect()
}

#[test]
fn clipped_tiles_have_whole_swizzle_patterns() {
    let found = |rows, clipped| {
        let tiles = Tiles { rows, cols: 64, swizzle: Swizzle::B128, clipped };
        kinds(|k| {
            k.tensor::<f16>("a", Access::Read, Order2d::RowMajor, tiles);
        })
    };
    assert_eq!(found(12, true), [FaultKind::Type]);
    assert_eq!([found(12, false), found(16, true)], [[], []]);
}

#[test]
fn valid_kernel_passes() {
    assert_eq!(kinds(|k| k.barrier()), []);
}

#[test]
fn barrier_in_divergent_code_is_an_error() {
    assert_eq!(kinds(|k| k.when(k.thread_x().lt(7), || k.barrier())), [FaultKind::DivergentBarrier]);
    assert_eq!(kinds(|k| k.for_each(0, k.thread_x(), |_| k.barrier())), [FaultKind::DivergentBarrier]);
    assert_eq!(kinds(|k| k.when(k.warp().lt(1), || k.barrier())), [FaultKind::DivergentBarrier]);
    assert_eq!(kinds(|k| k.when(k.block_x().lt(7), || k.barrier())), []);
}

#[test]
fn barrier_dependent_on_a_divergent_variable_is_an_error() {
    // The variable is uniform until the loop's first iteration.
    let found = kinds(|k| {
        let sum = k.var(0u32);
        k.for_each(0, 4, |_| {
            k.when(sum.get().lt(9), || k.barrier());
            sum.set(sum.get() + k.thread_x());
        });
    });
    assert_eq!(found, [FaultKind::DivergentBarrier]);
}

#[test]
fn named_barrier_in_a_divergent_warp_is_an_error() {
    assert_eq!(kinds(|k| k.when(k.lane().lt(7), || k.named_barrier(1, 64))), [FaultKind::DivergentBarrier]);
    assert_eq!(kinds(|k| k.when(k.warp().lt(1), || k.named_barrier(1, 32))), []);
    assert_eq!(kinds(|k| k.named_barrier(16, 64)), [FaultKind::Launch]);
    assert_eq!(kinds(|k| k.named_barrier(1, 48)), [FaultKind::Launch]);
    assert_eq!(kinds(|k| k.named_barrier(1, 96)), [FaultKind::Launch]);
}

#[test]
fn full_warp_mask_in_a_divergent_warp_is_an_error() {
    assert_eq!(kinds(|k| k.when(k.lane().lt(7), || k.sync_warp(FULL_WARP))), [FaultKind::DivergentWarp]);
    assert_eq!(kinds(|k| k.when(k.lane().lt(7), || k.sync_warp(0x7f))), []);
    assert_eq!(kinds(|k| k.sync_warp(0)), [FaultKind::Type]);
}

#[test]
fn vector_access_of_invalid_width_is_an_error() {
    let load = |order, aligned, col: u32| {
        kinds(move |k| {
            let x = k.matrix::<f32>("x", Access::Read, order, aligned);
            let [a, ..] = x.load_vec::<4>((0, col));
            k.output::<f32>("y").store((0, 0), a);
        })
    };
    assert_eq!(load(Order2d::RowMajor, 4, 8), []);
    assert_eq!(load(Order2d::RowMajor, 2, 8), [FaultKind::Width]);
    assert_eq!(load(Order2d::Strided, 4, 8), [FaultKind::Width]);
    assert_eq!(load(Order2d::RowMajor, 4, 6), [FaultKind::Width]);
    let three = |k: &Builder| _ = k.shared::<f32>("tile", [64]).load_vec::<3>((0,));
    assert_eq!(kinds(three), [FaultKind::Width]);
    let misaligned = |k: &Builder| _ = k.shared::<f32>("tile", [64]).load_vec::<2>((1,));
    assert_eq!(kinds(misaligned), [FaultKind::Width]);
    let halves = |k: &Builder| _ = k.shared::<f16>("tile", [64]).load_vec::<8>((8,));
    assert_eq!(kinds(halves), []);
    let stored = |k: &Builder| k.shared::<f16>("tile", [64]).store_vec((8,), [k.constant(f16::ZERO); 8]);
    assert_eq!(kinds(stored), []);
    let bytes = |k: &Builder| k.shared::<i8>("tile", [64]).store_vec((8,), [k.constant(0i8); 8]);
    assert_eq!(kinds(bytes), [FaultKind::Width]);
    let long = |k: &Builder| _ = k.shared::<f64>("tile", [64]).load_vec::<4>((0,));
    assert_eq!(kinds(long), [FaultKind::Width]);
}

#[test]
fn uninitialized_cursor_is_an_error() {
    let found = kinds(|k| {
        let (x, y) = (k.input::<f32>("x"), k.output::<f32>("y"));
        let placed = std::cell::Cell::new(None);
        k.when(k.thread_x().lt(7), || placed.set(Some(x.cursor((0, 0)))));
        let cursor = placed.get().unwrap();
        cursor.advance(1, 0);
        y.store((0, k.thread_x()), cursor.load((0, 0)));
    });
    assert_eq!(found, [FaultKind::Uninitialized; 2]);
    let found = kinds(|k| {
        let (x, y) = (k.input::<f32>("x"), k.output::<f32>("y"));
        y.store((0, 0), x.cursor((0, 0)).load((k.thread_x(), 0)));
    });
    assert_eq!(found, [FaultKind::Type]);
}

#[test]
fn store_through_the_cursor_of_an_input_is_an_error() {
    assert_eq!(kinds(|k| k.input::<f32>("x").cursor((0, 0)).store((0, 0), 1.0)), [FaultKind::Type]);
}

#[test]
fn variable_read_before_it_is_set_is_an_error() {
    let never = |k: &Builder| k.output::<u32>("y").store((0, 0), k.array(1).at(0).get());
    assert_eq!(kinds(never), [FaultKind::Uninitialized]);
    let sometimes = |k: &Builder| {
        let vars = k.array::<u32>(1);
        k.when(k.thread_x().lt(7), || vars.at(0).set(1));
        k.output::<u32>("y").store((0, 0), vars.at(0).get());
    };
    assert_eq!(kinds(sometimes), [FaultKind::Uninitialized]);
    let either = |k: &Builder| {
        let vars = k.array::<u32>(1);
        k.if_else(k.thread_x().lt(7), || vars.at(0).set(1), || vars.at(0).set(2));
        k.output::<u32>("y").store((0, 0), vars.at(0).get());
    };
    assert_eq!(kinds(either), []);
    assert_eq!(kinds(|k| _ = k.array::<u32>(2).at(2)), [FaultKind::Type]);
}

#[test]
fn value_used_outside_its_loop_is_an_error() {
    let found = kinds(|k| {
        let kept = Cell::new(None);
        k.for_each(0, 4, |i| kept.set(Some(i + 1)));
        if let Some(value) = kept.get() {
            k.output::<u32>("y").store((0, 0), value);
        }
    });
    assert_eq!(found, [FaultKind::Scope]);
    let condition = kinds(|k| {
        let kept = Cell::new(None);
        let test = || {
            kept.set(Some(k.input::<u32>("x").load((0, 0))));
            k.thread_x().lt(7)
        };
        k.while_loop(test, || k.output::<u32>("y").store((0, 0), kept.get().expect("the condition is built first")));
    });
    assert_eq!(condition, [FaultKind::Scope]);
}

#[test]
fn shared_memory_over_the_limit_is_an_error() {
    let shared_array = |len| kinds(move |k| k.shared::<u8>("tile", [len]).store((0,), 1));
    assert_eq!(shared_array(232_448), []);
    assert_eq!(shared_array(232_449), [FaultKind::SharedMemory]);
    assert_eq!(shared_array(0), [FaultKind::SharedMemory]);
}

#[test]
fn block_of_invalid_size_is_an_error() {
    let block = |block| {
        let kernel = kernel("invalid", block, |k| k.grid([k.constant(1), k.constant(1), k.constant(1)]));
        faults(kernel).into_iter().map(|f| f.kind).collect::<Vec<_>>()
    };
    assert_eq!(block(Block::d2(32, 32)), []);
    assert_eq!(block(Block::d2(32, 33)), [FaultKind::Launch]);
    assert_eq!(block(Block::d1(0)), [FaultKind::Launch]);
    assert_eq!(block(Block::d3(1, 1, 65)), [FaultKind::Launch]);
}

#[test]
fn grid_missing_or_unknown_at_launch_is_an_error() {
    let kinds = |build: fn(&Builder)| {
        let kernel = kernel("invalid", Block::d1(32), build);
        faults(kernel).into_iter().map(|f| f.kind).collect::<Vec<_>>()
    };
    assert_eq!(kinds(|_| ()), [FaultKind::Launch]);
    let loaded = kinds(|k| {
        let blocks = k.input::<u32>("x").load((0, 0));
        k.grid([blocks, k.constant(1), k.constant(1)]);
    });
    assert!(!loaded.is_empty() && loaded.iter().all(|&kind| kind == FaultKind::Launch), "{loaded:?}");
}

#[test]
fn matrix_of_predicates_is_an_error() {
    assert_eq!(kinds(|k| _ = k.input::<bool>("x").load((0, 0))), [FaultKind::Type]);
}

#[test]
fn store_to_an_input_is_an_error() {
    assert_eq!(kinds(|k| k.input::<u32>("x").store((0, 0), 1)), [FaultKind::Type]);
}

#[test]
fn fault_names_its_source_line() {
    let line = line!() + 3;
    let kernel = kernel("invalid", Block::d1(64), |k| {
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        k.when(k.thread_x().lt(7), || k.barrier());
    });
    let source = faults(kernel)[0].source.expect("a location in this file");
    assert_eq!((source.file(), source.line()), (file!(), line));
}

#[test]
fn overflowing_sizes_are_errors_without_panics() {
    let nothing = kernel("nothing", Block::d2(0, 0), |k| {
        let y = k.output::<f32>("y");
        k.grid([y.cols().div_ceil(0), k.constant(1), k.constant(1)]);
    });
    assert!(check(nothing).is_err());
    let vast = kernel("vast", Block::d3(65_536, 65_536, 1), |k| {
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        k.shared::<f32>("first", [u32::MAX; 3]);
        k.shared::<f32>("second", [u32::MAX; 3]);
        k.named_barrier(1, 64);
    });
    assert!(check(vast).is_err());
}
