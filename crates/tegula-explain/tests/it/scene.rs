//! What is in memory, against the 4×4 product with tiles of 2×2 as one works it out by hand.

use std::collections::HashSet;

use tegula_core::element::Type;
use tegula_explain::scene::{Now, Scene};
use tegula_explain::trace::{Act, Acts, Does, Trace};
use tegula_kernels::{Family, Plain};

use crate::launch::trace;

fn four() -> Trace {
    trace(Plain::new(Family::Tiled, Type::F32, 2), [4; 3])
}

/// The act of a step.
fn act(trace: &Trace, does: Acts, step: Option<u32>) -> &Act {
    trace.header.acts.iter().find(|act| (act.does, act.step) == (does, step)).unwrap()
}

fn numbers(scene: &Scene, array: usize) -> Vec<Option<f32>> {
    (0..4).map(|at| scene.shared[array].get(&at).map(|held| f32::from_bits(held.bits as u32))).collect()
}

fn sums(scene: &Scene) -> Vec<(f32, u32)> {
    (0..4)
        .filter_map(|thread| scene.sums.get(&thread))
        .map(|sum| (f32::from_bits(sum.bits as u32), sum.products))
        .collect()
}

#[test]
fn shared_memory_fills_and_is_overwritten() {
    let trace = four();
    let at = |done| Scene::at(&trace, [1, 0, 0], done);
    assert_eq!(
        at(0),
        Scene { shared: vec![Default::default(); 2], written: vec![Default::default(); 3], ..Scene::default() }
    );
    let [from, to] = act(&trace, Acts::Load, Some(0)).moments;
    // A is read, A is stored, B is read, B is stored: one moment each.
    assert_eq!(to - from, 4);
    let half = at(from + 2);
    assert_eq!((numbers(&half, 0), numbers(&half, 1)), ([1., 2., 5., 6.].map(Some).to_vec(), vec![None; 4]));
    let whole = at(to);
    assert_eq!(numbers(&whole, 1), [3., 4., 7., 8.].map(Some));
    let held = whole.shared[1][&3];
    assert_eq!(trace.header.position(held.from), Some((1, 7)), "b13");
    let next = at(act(&trace, Acts::Load, Some(1)).moments[1]);
    assert_eq!(
        (numbers(&next, 0), numbers(&next, 1)),
        ([3., 4., 7., 8.].map(Some).to_vec(), [11., 12., 15., 16.].map(Some).to_vec())
    );
}

#[test]
fn sums_grow_and_c_is_written_at_the_end() {
    let trace = four();
    let at = |does, step| Scene::at(&trace, [0; 3], act(&trace, does, step).moments[1]);
    assert_eq!(sums(&at(Acts::Load, Some(0))), []);
    assert_eq!(sums(&at(Acts::Multiply, Some(0))), [(11., 2), (14., 2), (35., 2), (46., 2)]);
    let last = at(Acts::Multiply, Some(1));
    assert_eq!(sums(&last), [(90., 4), (100., 4), (202., 4), (228., 4)]);
    assert!(last.written[2].is_empty());
    let all = at(Acts::Store, None);
    assert_eq!(all.written[2].len(), 16);
    assert_eq!([0, 1, 4, 5].map(|at| f32::from_bits(all.written[2][&at] as u32)), [90., 100., 202., 228.]);
}

#[test]
fn tiles_slide_along_a_row_and_down_a_column() {
    let trace = four();
    let read = |step| {
        let [from, to] = act(&trace, Acts::Load, Some(step)).moments;
        trace.touched([1, 1, 0], Does::GlobalLoad, from..to)
    };
    assert_eq!(read(0), [HashSet::from([8, 9, 12, 13]), HashSet::from([2, 3, 6, 7]), HashSet::new()]);
    assert_eq!(read(1), [HashSet::from([10, 11, 14, 15]), HashSet::from([10, 11, 14, 15]), HashSet::new()]);
    assert_eq!(trace.blocks(), [[0, 0, 0], [1, 0, 0], [0, 1, 0], [1, 1, 0]]);
    let [from, to] = act(&trace, Acts::Multiply, Some(0)).moments;
    let product = (from..to).find(|&moment| trace.header.operation(moment).does == Does::MulAdd).unwrap();
    let now = Now::of(&trace, [0; 3], product);
    assert_eq!(now.matrix, HashSet::from([(0, 0), (0, 4), (1, 0), (1, 1)]), "a00 a10 times b00 b01");
    assert_eq!(now.threads, HashSet::from([0, 1, 2, 3]));
}
