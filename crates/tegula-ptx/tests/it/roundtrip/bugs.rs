//! Kernels with injected bugs: both engines report the same kinds of findings at the same lines.

use std::collections::BTreeSet;

use tegula_core::diagnostic::FindingKind;
use tegula_core::element::Type;
use tegula_kernels::plan::Recipe;
use tegula_kernels::{INJECTED_BUGS, Mapping, Plain, PlainKind};

use super::engines::{Outcomes, RaceAt};
use super::full;
use super::products::{Case, outcomes};

/// Runs the tiled kernel with a bug, for types, tiles, mappings and seeds.
fn for_each(bug: &str, sizes: impl Fn(usize) -> [usize; 3], check: impl Fn(&Plain, &Outcomes)) {
    for ty in [Type::F32, Type::F64, Type::I32, Type::F16] {
        for tile in if full() { &[2, 4, 8, 16, 32][..] } else { &[4, 16] } {
            for mapping in [Mapping::XCol, Mapping::XRow] {
                let plain = Plain { mapping, ..Plain::new(PlainKind::Tiled, ty, *tile) }.with_bug(bug).unwrap();
                let [m, n, k] = sizes(*tile as usize);
                for seed in 0..if full() { 16 } else { 2 } {
                    let case = Case { seed, ..Case::new([1, m, n, k]) };
                    let (_, mut launches) = outcomes(Recipe::from(plain), &case);
                    let (_, outcomes) = launches.pop().expect("one launch");
                    check(&plain, &outcomes);
                }
            }
        }
    }
}

fn kinds(outcomes: &Outcomes) -> [BTreeSet<FindingKind>; 2] {
    outcomes.found.each_ref().map(|found| found.iter().map(|(kind, _)| *kind).collect())
}

/// Both find the same, and this kind among others.
fn found_by_both(plain: &Plain, outcomes: &Outcomes, kind: FindingKind) {
    let [interp, ptx] = kinds(outcomes);
    assert!(interp.contains(&kind) && ptx.contains(&kind), "{plain}: {interp:?} {ptx:?}");
    let differences = outcomes.differences();
    assert!(differences.is_empty(), "{plain}: {}", differences.join("\n"));
}

/// Both report the same races: as often, first in the same block, and of the same array.
///
/// Threads and elements depend on the order of the warps, which the engines choose differently.
fn same_races(plain: &Plain, outcomes: &Outcomes) {
    let [interp, ptx] = &outcomes.races;
    let place = |(block, _, element): &RaceAt| (*block, element.as_ref().map(|(array, _)| array.clone()));
    for (positions, (times, races)) in interp {
        let found = ptx.get(positions).map_or((0, Default::default()), Clone::clone);
        let places: BTreeSet<_> = found.1.iter().map(place).collect();
        let described = races.iter().map(place).all(|place| place.1.is_some() && places.contains(&place));
        assert!(*times == found.0 && described, "{plain} {positions:?}: {times} {races:?}, not {found:?}");
    }
}

#[test]
fn missing_barriers_are_races_at_the_same_lines() {
    for bug in ["missing-first-barrier", "missing-second-barrier"] {
        for_each(
            bug,
            |t| [t, t, t + 1],
            |plain, outcomes| {
                found_by_both(plain, outcomes, FindingKind::Race);
                same_races(plain, outcomes);
            },
        );
    }
}

#[test]
fn extra_barriers_are_redundant_at_the_same_lines() {
    let redundant = FindingKind::RedundantBarrier;
    for_each("extra-barrier", |t| [t, t, t + 1], |plain, outcomes| found_by_both(plain, outcomes, redundant));
}

/// A column past the end of a row is an element of the next row to PTX, but not to the interpreter.
#[test]
fn missing_guards_are_out_of_bounds() {
    for_each(
        "no-guards",
        |t| [t - 1, t - 1, t - 1],
        |plain, outcomes| {
            for found in kinds(outcomes) {
                assert!(found.contains(&FindingKind::OutOfBounds), "{plain}: {found:?}");
            }
        },
    );
}

#[test]
fn a_grid_rounded_down_has_no_finding() {
    for_each(
        "floor-launch",
        |t| [2 * t + 1, 2 * t + 1, 2 * t + 1],
        |plain, outcomes| {
            let differences = outcomes.differences();
            assert!(outcomes.ptx.error().is_none() && differences.is_empty(), "{plain}: {}", differences.join("\n"));
        },
    );
}

#[test]
fn all_bugs_are_covered() {
    let covered = ["floor-launch", "no-guards", "missing-first-barrier", "missing-second-barrier", "extra-barrier"];
    assert_eq!(INJECTED_BUGS, covered);
}
