//! Every injected bug is found on every seed, and kernels without bugs have no errors.

use tegula::element::{Scalar, Type};
use tegula::interpret;
use tegula_interp::{Config, Finding, FindingKind, Outcome, Severity, Space};
use tegula_kernels::{Mapping, Plain, PlainKind};

use crate::effort::seeds;
use crate::product::{Product, Sample, checked};

const TILES: [u32; 5] = [2, 4, 8, 16, 32];
const SEEDS: u64 = 64;

/// Variants of each tile and mapping for one type.
fn variants(family: PlainKind, ty: Type) -> Vec<Plain> {
    let mappings = [Mapping::XCol, Mapping::XRow];
    let all = TILES.iter().flat_map(|&tile| mappings.map(|m| Plain { mapping: m, ..Plain::new(family, ty, tile) }));
    all.collect()
}

fn config(seed: u64) -> Config {
    Config { seed, counters: false, ..Config::default() }
}

/// Runs a kernel with an injected bug for each tile and mapping on every seed. `sizes` returns the
/// product sizes of a tile.
fn for_each_schedule<T: Sample>(
    bug: Option<&str>,
    sizes: impl Fn(usize) -> [usize; 3],
    check: impl Fn(&Plain, &Outcome),
) {
    for variant in variants(PlainKind::Tiled, T::TYPE) {
        let variant = bug.map_or(variant, |bug| variant.with_bug(bug).expect("the variant supports the bug"));
        let [m, n, k] = sizes(variant.tile as usize);
        let (product, kernel) = (Product::<T>::plain(m, n, k), checked(&variant));
        for seed in 0..seeds(2, SEEDS) {
            check(&variant, &product.run(&kernel, &config(seed)).0);
        }
    }
}

/// Instantiates a test for f32, f64 and i32.
macro_rules! every_type {
    ($($name:ident: $bug:expr, $sizes:expr, $check:expr;)*) => {$(
        mod $name {
            use super::*;
            #[test]
            fn f32() { for_each_schedule::<f32>($bug, $sizes, $check); }
            #[test]
            fn f64() { for_each_schedule::<f64>($bug, $sizes, $check); }
            #[test]
            fn i32() { for_each_schedule::<i32>($bug, $sizes, $check); }
        }
    )*};
}

every_type! {
    missing_first_barrier: Some("missing-first-barrier"), |t| [t, t, t + 1], races;
    missing_second_barrier: Some("missing-second-barrier"), |t| [t, t, t + 1], races;
    missing_second_barrier_of_one_step: Some("missing-second-barrier"), |t| [t, t, t], no_error;
    no_guards: Some("no-guards"), |t| [t - 1, t - 1, t - 1], out_of_bounds;
    extra_barrier: Some("extra-barrier"), |t| [t, t, t + 1], only_notes;
    no_bug: None, |t| [t, t, t + 1], no_error;
}

fn races(variant: &Plain, outcome: &Outcome) {
    let is_race = |f: &&Finding| f.kind == FindingKind::Race;
    let race = outcome.findings.iter().find(is_race).unwrap_or_else(|| panic!("{variant}: no race"));
    for finding in outcome.findings.iter().filter(|f| f.severity() == Severity::Error) {
        assert!(matches!(finding.kind, FindingKind::Race | FindingKind::Uninitialized), "{variant}: {finding}");
    }
    // The message names block, threads, element and both lines.
    let message = &race.message;
    let [one, other] = race.source[..] else { panic!("{message}") };
    assert!(one.file().ends_with("src/tiled.rs") && other.file() == one.file() && one.line() != other.line());
    for location in [one, other] {
        assert!(message.contains(&format!("{}:{}", location.file(), location.line())), "{message}");
    }
    assert!(message.contains(&format!("block {:?}", race.block)), "{message}");
    assert_eq!(race.threads.len(), 2);
    assert_ne!(race.threads[0], race.threads[1]);
    for thread in &race.threads {
        assert!(message.contains(&format!("thread {thread:?}")), "{message}");
    }
    assert_eq!(race.space, Some(Space::Shared));
    assert!(message.contains(&format!("{}{:?}", race.name, race.index)) && race.name.starts_with("tile_"), "{message}");
}

fn no_error(variant: &Plain, outcome: &Outcome) {
    assert_eq!(outcome.error(), None, "{variant}");
}

fn out_of_bounds(variant: &Plain, outcome: &Outcome) {
    let errors = || outcome.findings.iter().filter(|f| f.severity() == Severity::Error);
    for name in ["a", "b", "c"] {
        assert!(errors().any(|f| f.kind == FindingKind::OutOfBounds && f.name == name), "{variant}: {name}");
    }
    assert!(errors().all(|f| f.kind == FindingKind::OutOfBounds && f.message.contains("tiled.rs:") || f.name == "c"));
}

/// Each redundant barrier within a step is one note.
fn only_notes(variant: &Plain, outcome: &Outcome) {
    assert!(
        outcome.findings.iter().all(|f| f.kind == FindingKind::RedundantBarrier),
        "{variant}: {:?}",
        outcome.findings
    );
    assert_eq!(outcome.findings.len(), variant.tile as usize - 1, "{variant}: {:?}", outcome.findings);
}

#[test]
fn naive_kernels_have_no_error() {
    fn assert_none<T: Sample>() {
        for variant in variants(PlainKind::Naive, T::TYPE) {
            let side = variant.tile as usize + 1;
            let (product, kernel) = (Product::<T>::plain(side, side, 3), checked(&variant));
            (0..seeds(2, SEEDS)).for_each(|seed| no_error(&variant, &product.run(&kernel, &config(seed)).0));
        }
    }
    assert_none::<f32>();
    assert_none::<f64>();
    assert_none::<i32>();
}

#[test]
fn floor_launch_leaves_the_last_row_and_column_unwritten() {
    fn floor<T: Sample>(mapping: Mapping, family: PlainKind) {
        let variant = Plain { mapping, ..Plain::new(family, T::TYPE, 16) }.with_bug("floor-launch").unwrap();
        let product = Product::<T>::plain(33, 33, 33);
        let (outcome, c) = product.run(&checked(&variant), &Config::default());
        assert_eq!(outcome.error(), None);
        for (row, col) in (0..33).flat_map(|row| (0..33).map(move |col| (row, col))) {
            assert_eq!(c.written(0, row, col), row < 32 && col < 32, "{variant}: ({row}, {col})");
        }
        if family == PlainKind::Tiled {
            // Written elements lack only the last product.
            let result = interpret::to_matrix::<T::Out>(&c).unwrap();
            let (a, b) = (product.a(), product.b());
            let differing = (0..32).flat_map(|r| (0..32).map(move |c| (r, c))).filter(|&(row, col)| {
                let sum = |k| {
                    let products =
                        (0..k).map(|p| (a.get(0, row, p).unwrap().widen(), b.get(0, p, col).unwrap().widen()));
                    products.fold(T::Acc::ZERO, |sum, (a, b)| T::fused(a, b, sum))
                };
                let element = result[[row, col]];
                assert_eq!(element, T::narrow(sum(32)), "{variant}: ({row}, {col})");
                element != T::narrow(sum(33))
            });
            assert!(differing.count() > 1000);
        }
    }
    for mapping in [Mapping::XCol, Mapping::XRow] {
        for family in [PlainKind::Tiled, PlainKind::Naive] {
            floor::<f32>(mapping, family);
            floor::<f64>(mapping, family);
            floor::<i32>(mapping, family);
        }
    }
}

#[test]
fn findings_do_not_depend_on_parallelism() {
    for bug in ["missing-first-barrier", "missing-second-barrier", "no-guards", "extra-barrier", "floor-launch"] {
        let variant = Plain::new(PlainKind::Tiled, Type::F32, 8).with_bug(bug).unwrap();
        let (product, kernel) = (Product::<f32>::plain(29, 31, 17), checked(&variant));
        for seed in 0..8 {
            let findings = |parallel| {
                let outcome = product.run(&kernel, &Config { seed, parallel, ..Config::default() }).0;
                (outcome.findings, outcome.counters, outcome.lines)
            };
            let alone = findings(false);
            for parallel in [false, true, true, true] {
                assert_eq!(findings(parallel), alone, "{variant}");
            }
        }
    }
}
