//! Memory states of the 4×4 product with tiles of 2×2, against a hand calculation.

use std::collections::HashSet;

use tegula_core::element::Type;
use tegula_explain::memory_state::{MemoryState, TickActivity};
use tegula_explain::trace::{OperationKind, Phase, PhaseKind, Trace};
use tegula_kernels::{Plain, PlainKind};

use crate::launch::trace;

fn four() -> Trace {
    trace(Plain::new(PlainKind::Tiled, Type::F32, 2), [4; 3])
}

/// The phase of a kind in a k-step.
fn phase(trace: &Trace, kind: PhaseKind, step: Option<u32>) -> &Phase {
    trace.header.phases.iter().find(|phase| (phase.kind, phase.step) == (kind, step)).unwrap()
}

fn values(state: &MemoryState, array: usize) -> Vec<Option<f32>> {
    (0..4).map(|at| state.shared[array].get(&at).map(|value| f32::from_bits(value.bits as u32))).collect()
}

fn accumulators(state: &MemoryState) -> Vec<(f32, u32)> {
    (0..4)
        .filter_map(|thread| state.accumulators.get(&thread))
        .map(|accumulator| (f32::from_bits(accumulator.bits as u32), accumulator.products))
        .collect()
}

#[test]
fn shared_memory_fills_and_is_overwritten() {
    let trace = four();
    let at = |done| MemoryState::at(&trace, [1, 0, 0], done);
    assert_eq!(
        at(0),
        MemoryState {
            shared: vec![Default::default(); 2],
            written: vec![Default::default(); 3],
            ..MemoryState::default()
        }
    );
    let [from, to] = phase(&trace, PhaseKind::Load, Some(0)).ticks;
    // Load of A, store of A, load of B, store of B: one tick each.
    assert_eq!(to - from, 4);
    let half = at(from + 2);
    assert_eq!((values(&half, 0), values(&half, 1)), ([1., 2., 5., 6.].map(Some).to_vec(), vec![None; 4]));
    let whole = at(to);
    assert_eq!(values(&whole, 1), [3., 4., 7., 8.].map(Some));
    let value = whole.shared[1][&3];
    assert_eq!(trace.header.position(value.origin), Some((1, 7)), "b13");
    let next = at(phase(&trace, PhaseKind::Load, Some(1)).ticks[1]);
    assert_eq!(
        (values(&next, 0), values(&next, 1)),
        ([3., 4., 7., 8.].map(Some).to_vec(), [11., 12., 15., 16.].map(Some).to_vec())
    );
}

#[test]
fn accumulators_grow_and_c_is_written_at_the_end() {
    let trace = four();
    let at = |kind, step| MemoryState::at(&trace, [0; 3], phase(&trace, kind, step).ticks[1]);
    assert_eq!(accumulators(&at(PhaseKind::Load, Some(0))), []);
    assert_eq!(accumulators(&at(PhaseKind::Multiply, Some(0))), [(11., 2), (14., 2), (35., 2), (46., 2)]);
    let last = at(PhaseKind::Multiply, Some(1));
    assert_eq!(accumulators(&last), [(90., 4), (100., 4), (202., 4), (228., 4)]);
    assert!(last.written[2].is_empty());
    let all = at(PhaseKind::Store, None);
    assert_eq!(all.written[2].len(), 16);
    assert_eq!([0, 1, 4, 5].map(|at| f32::from_bits(all.written[2][&at] as u32)), [90., 100., 202., 228.]);
}

#[test]
fn tiles_slide_along_a_row_and_down_a_column() {
    let trace = four();
    let read = |step| {
        let [from, to] = phase(&trace, PhaseKind::Load, Some(step)).ticks;
        trace.touched([1, 1, 0], OperationKind::GlobalLoad, from..to)
    };
    assert_eq!(read(0), [HashSet::from([8, 9, 12, 13]), HashSet::from([2, 3, 6, 7]), HashSet::new()]);
    assert_eq!(read(1), [HashSet::from([10, 11, 14, 15]), HashSet::from([10, 11, 14, 15]), HashSet::new()]);
    assert_eq!(trace.blocks(), [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]);
    let [from, to] = phase(&trace, PhaseKind::Multiply, Some(0)).ticks;
    let product = (from..to).find(|&tick| trace.header.operation(tick).kind == OperationKind::MulAdd).unwrap();
    let activity = TickActivity::of(&trace, [0; 3], product);
    assert_eq!(activity.matrix, HashSet::from([(0, 0), (0, 4), (1, 0), (1, 1)]), "a00 a10 times b00 b01");
    assert_eq!(activity.threads, HashSet::from([0, 1, 2, 3]));
}
