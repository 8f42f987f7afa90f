//! Counters of the interpreter for the tiled kernels, which the guide quotes.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use tegula::element::Scalar;
use tegula::interpret;
use tegula_interp::{Arg, Buffer, Config, Counters, Event, EventKind, Observer, Outcome, Space, observe};
use tegula_kernels::{Barriers, Mapping, Plain, PlainKind};

use crate::product::{Product, Sample, checked};

const TILES: [u32; 5] = [2, 4, 8, 16, 32];

fn counted<T: Sample>(variant: Plain, side: usize) -> Outcome {
    Product::<T>::plain(side, side, side).assert_correct(variant, &Config::default())
}

fn plain<T: Sample>(family: PlainKind, tile: u32) -> Plain {
    Plain::new(family, T::TYPE, tile)
}

#[test]
fn loads_per_thread_are_as_computed() {
    let threads = 16;
    let naive = counted::<f32>(plain::<f32>(PlainKind::Naive, 2), 4).counters;
    assert_eq!(naive.global_load_elements, 8 * threads);
    let tiled = counted::<f32>(plain::<f32>(PlainKind::Tiled, 2), 4).counters;
    assert_eq!(tiled.global_load_elements, 4 * threads);
    assert_eq!(tiled.shared_load_elements, 2 * 2 * 2 * threads);
    for tile in TILES {
        for k in [1, 5, 32, 33] {
            let side = tile as usize;
            let product = Product::<i32>::plain(side, side, k);
            let counters = product.assert_correct(plain::<i32>(PlainKind::Tiled, tile), &Config::default()).counters;
            let (threads, steps) = (u64::from(tile * tile), k.div_ceil(side) as u64);
            assert_eq!(counters.shared_load_elements, 2 * u64::from(tile) * steps * threads);
            assert_eq!(counters.shared_store_elements, 2 * steps * threads);
            assert_eq!(counters.fma, threads * u64::from(tile) * steps);
            assert_eq!(counters.global_load_elements, 2 * (side * k) as u64, "guards exclude elements out of bounds");
        }
    }
}

#[test]
fn barriers_per_block_are_as_computed() {
    for tile in TILES {
        for k in [1, 4, 33] {
            let side = tile as usize;
            let product = Product::<f32>::plain(2 * side, side, k);
            let barriers = |barriers| {
                let variant = Plain { barriers, ..plain::<f32>(PlainKind::Tiled, tile) };
                product.assert_correct(variant, &Config::default()).counters.barriers
            };
            let (steps, warps) = (k.div_ceil(side) as u64, 2 * u64::from((tile * tile).div_ceil(32)));
            assert_eq!(barriers(Barriers::Both), 2 * steps * warps);
            assert_eq!(barriers(Barriers::Extra), u64::from(tile + 1) * steps * warps);
        }
    }
}

#[test]
fn tiling_saves_the_computed_sectors() {
    fn saved<T: Sample>(tile: u32, side: usize) -> f64 {
        let sectors = |family| counted::<T>(plain::<T>(family, tile), side).counters.global_load_sectors as f64;
        sectors(PlainKind::Naive) / sectors(PlainKind::Tiled)
    }
    for (tile, ratio) in TILES.into_iter().zip([1.5, 2.5, 5.0, 8.0, 20.0]) {
        assert_eq!(saved::<f32>(tile, 64), ratio);
        assert_eq!(saved::<i32>(tile, 96), ratio);
    }
}

/// Counters of the source lines for which `select` is nonzero, in source order.
fn lines(outcome: &Outcome, select: impl Fn(&Counters) -> u64) -> Vec<Counters> {
    let mut all: BTreeMap<(u32, u32), Counters> = BTreeMap::new();
    for (site, counters) in outcome.lines.iter().filter(|(_, c)| select(c) != 0) {
        *all.entry((site.location.line(), site.location.column())).or_default() += *counters;
    }
    all.into_values().collect()
}

/// Sectors per request of the loads of A and B.
fn sectors_a_request(outcome: &Outcome) -> Vec<u64> {
    let loads = lines(outcome, |c| c.global_load_requests);
    assert!(loads.iter().all(|c| c.global_load_sectors % c.global_load_requests == 0));
    loads.iter().map(|c| c.global_load_sectors / c.global_load_requests).collect()
}

#[test]
fn sectors_per_request_are_as_computed() {
    assert_eq!(sectors_a_request(&counted::<f32>(plain::<f32>(PlainKind::Naive, 32), 64)), [1, 4]);
    assert_eq!(sectors_a_request(&counted::<f32>(plain::<f32>(PlainKind::Tiled, 32), 64)), [4, 4]);
    for (tile, sectors) in [(16, 16), (32, 32)] {
        let x_row = Plain { mapping: Mapping::XRow, ..plain::<i32>(PlainKind::Tiled, tile) };
        assert_eq!(sectors_a_request(&counted::<i32>(x_row, 64)), [sectors, sectors]);
    }
}

#[test]
fn bank_conflicts_of_shared_stores_are_as_computed() {
    for (tile, degree) in [(16, 8), (32, 32)] {
        for (mapping, degree) in [(Mapping::XRow, degree), (Mapping::XCol, 1)] {
            let variant = Plain { mapping, ..plain::<i32>(PlainKind::Tiled, tile) };
            let stores = lines(&counted::<i32>(variant, 64), |c| c.shared_store_requests);
            assert_eq!(stores.len(), 2);
            for c in stores {
                assert_eq!(c.shared_store_wavefronts, degree * c.shared_store_requests, "{variant}");
                assert_eq!(c.shared_bank_conflicts, (degree - 1) * c.shared_store_requests, "{variant}");
            }
        }
    }
}

#[test]
fn multiply_adds_cover_whole_tiles() {
    let outcome = counted::<f64>(plain::<f64>(PlainKind::Tiled, 8), 19);
    assert_eq!(outcome.counters.fma, 9 * 64 * 8 * 3, "blocks, threads, tile, steps");
    assert_eq!(counted::<f64>(plain::<f64>(PlainKind::Naive, 8), 19).counters.fma, 19 * 19 * 19);
}

#[test]
fn line_counters_add_up_to_the_totals() {
    for (family, mapping) in [(PlainKind::Naive, Mapping::XCol), (PlainKind::Tiled, Mapping::XRow)] {
        let outcome = counted::<f32>(Plain { mapping, ..plain::<f32>(family, 16) }, 37);
        let mut sum = Counters::default();
        outcome.lines.iter().for_each(|(_, counters)| sum += *counters);
        assert_eq!(sum, outcome.counters);
        assert!(sum.global_store_elements == 37 * 37 && sum.lane_instructions > sum.fma);
    }
}

type Loads = BTreeMap<([u32; 3], String), Vec<BTreeSet<u64>>>;

/// A block, a warp of the block and a lane of the warp.
type Thread = ([u32; 3], u32, usize);

/// Elements of A and B that each block loads, by request, and the threads that load them.
#[derive(Default)]
struct Loader {
    loads: Loads,
    threads: BTreeMap<(String, u64), Vec<Thread>>,
    shared_uses: BTreeMap<(String, u64), usize>,
}

impl Observer for Loader {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        let EventKind::Access { write: false, space, name, elements, bits, .. } = &event.kind else {
            return ControlFlow::Continue(());
        };
        let active = || elements.iter().enumerate().filter_map(|(lane, e)| e.map(|e| (lane, e)));
        match space {
            Space::Global => {
                let set = active().map(|(_, e)| e).collect();
                self.loads.entry((event.block, name.to_string())).or_default().push(set);
                for (lane, element) in active() {
                    assert_eq!(event.lanes >> lane & 1, 1);
                    assert_eq!(f32::from_bits(bits[lane] as u32), element as f32, "each element holds its position");
                    self.threads.entry((name.to_string(), element)).or_default().push((event.block, event.warp, lane));
                }
            }
            Space::Shared if event.block == [0; 3] => {
                active().for_each(|(_, e)| *self.shared_uses.entry((name.to_string(), e)).or_default() += 1);
            }
            Space::Shared => {}
        }
        ControlFlow::Continue(())
    }
}

/// Observes a 4×4 product with 2×2 tiles. Each element of A and B equals its position.
fn observe_loads(family: PlainKind) -> Loader {
    let matrix = tegula::Matrix::from_vec(4, 4, (0..16).map(|i| i as f32).collect()).unwrap();
    let (a, b) = (interpret::input(matrix.view()).unwrap(), interpret::input(matrix.view()).unwrap());
    let c = Buffer::output(f32::TYPE, a.layout()).unwrap();
    let args = [Arg::from(&a), Arg::from(&b), Arg::from(&c), Arg::scalar(1f32), Arg::scalar(0f32)];
    let mut loader = Loader::default();
    let outcome = observe(&checked(&plain::<f32>(family, 2)), &args, &Config::default(), &mut loader).unwrap();
    assert_eq!((outcome.blocks, outcome.grid, outcome.error()), (4, [2, 2, 1], None));
    loader
}

#[test]
fn tiles_advance_along_a_row_of_a_and_a_column_of_b() {
    let loader = observe_loads(PlainKind::Tiled);
    let tile = |row: u64, col: u64| {
        BTreeSet::from([(0, 0), (0, 1), (1, 0), (1, 1)].map(|(r, c)| 4 * (2 * row + r) + 2 * col + c))
    };
    for (x, y) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let loads_of = |name: &str| &loader.loads[&([x, y, 0], name.to_string())];
        let (x, y) = (u64::from(x), u64::from(y));
        assert_eq!(*loads_of("a"), [tile(y, 0), tile(y, 1)]);
        assert_eq!(*loads_of("b"), [tile(0, x), tile(1, x)]);
    }
    let a00 = &loader.threads[&("a".into(), 0)];
    assert_eq!(*a00, [([0, 0, 0], 0, 0), ([1, 0, 0], 0, 0)], "once by each block of its block row");
    // In each of the two steps, the two threads of a row read every element of its tile row.
    assert_eq!(loader.shared_uses[&("tile_a".into(), 0)], 2 * 2);
}

#[test]
fn naive_kernel_loads_each_element_in_four_threads() {
    let loader = observe_loads(PlainKind::Naive);
    assert_eq!(loader.threads[&("a".into(), 0)].len(), 4);
    assert_eq!(loader.threads[&("b".into(), 15)].len(), 4);
}
