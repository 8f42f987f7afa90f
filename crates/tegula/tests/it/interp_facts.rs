//! The figures that explanations of tiling rest on, as the interpreter counts them.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;

use tegula::element::Scalar;
use tegula::interpret;
use tegula_interp::{Arg, Buffer, Config, Counters, Event, Observer, Outcome, Space, What, observe};
use tegula_kernels::{Barriers, Family, Mapping, Plain};

use crate::product::{Product, Sample, checked};

const TILES: [u32; 5] = [2, 4, 8, 16, 32];

fn counted<T: Sample>(variant: Plain, side: usize) -> Outcome {
    Product::<T>::plain(side, side, side).must_be_right(variant, &Config::default())
}

fn of<T: Sample>(family: Family, tile: u32) -> Plain {
    Plain::new(family, T::TYPE, tile)
}

#[test]
fn reads_of_a_thread() {
    let threads = 16;
    let naive = counted::<f32>(of::<f32>(Family::Naive, 2), 4).counters;
    assert_eq!(naive.global_load_elements, 8 * threads);
    let tiled = counted::<f32>(of::<f32>(Family::Tiled, 2), 4).counters;
    assert_eq!(tiled.global_load_elements, 4 * threads);
    assert_eq!(tiled.shared_load_elements, 2 * 2 * 2 * threads);
    for tile in TILES {
        for k in [1, 5, 32, 33] {
            let side = tile as usize;
            let product = Product::<i32>::plain(side, side, k);
            let counters = product.must_be_right(of::<i32>(Family::Tiled, tile), &Config::default()).counters;
            let (threads, steps) = (u64::from(tile * tile), k.div_ceil(side) as u64);
            assert_eq!(counters.shared_load_elements, 2 * u64::from(tile) * steps * threads);
            assert_eq!(counters.shared_store_elements, 2 * steps * threads);
            assert_eq!(counters.fma, threads * u64::from(tile) * steps);
            assert_eq!(counters.global_load_elements, 2 * (side * k) as u64, "guards leave out what is not there");
        }
    }
}

#[test]
fn barriers_of_a_block() {
    for tile in TILES {
        for k in [1, 4, 33] {
            let side = tile as usize;
            let product = Product::<f32>::plain(2 * side, side, k);
            let barriers = |barriers| {
                let variant = Plain { barriers, ..of::<f32>(Family::Tiled, tile) };
                product.must_be_right(variant, &Config::default()).counters.barriers
            };
            let (steps, warps) = (k.div_ceil(side) as u64, 2 * u64::from((tile * tile).div_ceil(32)));
            assert_eq!(barriers(Barriers::Both), 2 * steps * warps);
            assert_eq!(barriers(Barriers::Extra), u64::from(tile + 1) * steps * warps);
        }
    }
}

#[test]
fn sectors_saved_by_tiling() {
    fn saved<T: Sample>(tile: u32, side: usize) -> f64 {
        let sectors = |family| counted::<T>(of::<T>(family, tile), side).counters.global_load_sectors as f64;
        sectors(Family::Naive) / sectors(Family::Tiled)
    }
    for (tile, ratio) in TILES.into_iter().zip([1.5, 2.5, 5.0, 8.0, 20.0]) {
        assert_eq!(saved::<f32>(tile, 64), ratio);
        assert_eq!(saved::<i32>(tile, 96), ratio);
    }
}

/// The counters of each line of a kernel that does what `picks` looks for, in the order of the source.
fn lines(outcome: &Outcome, picks: impl Fn(&Counters) -> u64) -> Vec<Counters> {
    let mut all: BTreeMap<(u32, u32), Counters> = BTreeMap::new();
    for (site, counters) in outcome.lines.iter().filter(|(_, c)| picks(c) != 0) {
        *all.entry((site.location.line(), site.location.column())).or_default() += *counters;
    }
    all.into_values().collect()
}

/// Sectors a request of the loads of A and of B.
fn sectors_a_request(outcome: &Outcome) -> Vec<u64> {
    let loads = lines(outcome, |c| c.global_load_requests);
    assert!(loads.iter().all(|c| c.global_load_sectors % c.global_load_requests == 0));
    loads.iter().map(|c| c.global_load_sectors / c.global_load_requests).collect()
}

#[test]
fn sectors_of_a_request() {
    assert_eq!(sectors_a_request(&counted::<f32>(of::<f32>(Family::Naive, 32), 64)), [1, 4]);
    assert_eq!(sectors_a_request(&counted::<f32>(of::<f32>(Family::Tiled, 32), 64)), [4, 4]);
    for (tile, sectors) in [(16, 16), (32, 32)] {
        let across = Plain { mapping: Mapping::XRow, ..of::<i32>(Family::Tiled, tile) };
        assert_eq!(sectors_a_request(&counted::<i32>(across, 64)), [sectors, sectors]);
    }
}

#[test]
fn conflicts_of_shared_stores() {
    for (tile, ways) in [(16, 8), (32, 32)] {
        for (mapping, ways) in [(Mapping::XRow, ways), (Mapping::XCol, 1)] {
            let variant = Plain { mapping, ..of::<i32>(Family::Tiled, tile) };
            let stores = lines(&counted::<i32>(variant, 64), |c| c.shared_store_requests);
            assert_eq!(stores.len(), 2);
            for c in stores {
                assert_eq!(c.shared_store_wavefronts, ways * c.shared_store_requests, "{variant}");
                assert_eq!(c.shared_bank_conflicts, (ways - 1) * c.shared_store_requests, "{variant}");
            }
        }
    }
}

#[test]
fn multiply_adds_cover_whole_tiles() {
    let outcome = counted::<f64>(of::<f64>(Family::Tiled, 8), 19);
    assert_eq!(outcome.counters.fma, 9 * 64 * 8 * 3, "blocks, threads, tile, steps");
    assert_eq!(counted::<f64>(of::<f64>(Family::Naive, 8), 19).counters.fma, 19 * 19 * 19);
}

#[test]
fn lines_add_up() {
    for (family, mapping) in [(Family::Naive, Mapping::XCol), (Family::Tiled, Mapping::XRow)] {
        let outcome = counted::<f32>(Plain { mapping, ..of::<f32>(family, 16) }, 37);
        let mut sum = Counters::default();
        outcome.lines.iter().for_each(|(_, counters)| sum += *counters);
        assert_eq!(sum, outcome.counters);
        assert!(sum.global_store_elements == 37 * 37 && sum.lane_instructions > sum.fma);
    }
}

type Loads = BTreeMap<([u32; 3], String), Vec<BTreeSet<u64>>>;

/// A block, a warp of it and a lane of that.
type Thread = ([u32; 3], u32, usize);

/// Which elements each block loads from A and from B, request by request of each line, and by which threads.
#[derive(Default)]
struct Loader {
    loads: Loads,
    threads: BTreeMap<(String, u64), Vec<Thread>>,
    shared_uses: BTreeMap<(String, u64), usize>,
}

impl Observer for Loader {
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()> {
        let What::Access { write: false, space, name, elements, bits, .. } = &event.what else {
            return ControlFlow::Continue(());
        };
        let present = || elements.iter().enumerate().filter_map(|(lane, e)| e.map(|e| (lane, e)));
        match space {
            Space::Global => {
                let set = present().map(|(_, e)| e).collect();
                self.loads.entry((event.block, name.to_string())).or_default().push(set);
                for (lane, element) in present() {
                    assert_eq!(event.lanes >> lane & 1, 1);
                    assert_eq!(f32::from_bits(bits[lane] as u32), element as f32, "each element holds its position");
                    self.threads.entry((name.to_string(), element)).or_default().push((event.block, event.warp, lane));
                }
            }
            Space::Shared if event.block == [0; 3] => {
                present().for_each(|(_, e)| *self.shared_uses.entry((name.to_string(), e)).or_default() += 1);
            }
            Space::Shared => {}
        }
        ControlFlow::Continue(())
    }
}

/// The 4×4 product with tiles of 2×2; every element of A and B holds its position.
fn watched(family: Family) -> Loader {
    let matrix = tegula::Matrix::from_vec(4, 4, (0..16).map(|i| i as f32).collect()).unwrap();
    let (a, b) = (interpret::input(matrix.view()).unwrap(), interpret::input(matrix.view()).unwrap());
    let c = Buffer::output(f32::TYPE, a.layout()).unwrap();
    let args = [Arg::from(&a), Arg::from(&b), Arg::from(&c), Arg::scalar(1f32), Arg::scalar(0f32)];
    let mut loader = Loader::default();
    let outcome = observe(&checked(&of::<f32>(family, 2)), &args, &Config::default(), &mut loader).unwrap();
    assert_eq!((outcome.blocks, outcome.grid, outcome.error()), (4, [2, 2, 1], None));
    loader
}

#[test]
fn tiles_slide_along_a_row_and_down_a_column() {
    let loader = watched(Family::Tiled);
    let tile = |row: u64, col: u64| {
        BTreeSet::from([(0, 0), (0, 1), (1, 0), (1, 1)].map(|(r, c)| 4 * (2 * row + r) + 2 * col + c))
    };
    for (x, y) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
        let of = |name: &str| &loader.loads[&([x, y, 0], name.to_string())];
        let (x, y) = (u64::from(x), u64::from(y));
        assert_eq!(*of("a"), [tile(y, 0), tile(y, 1)]);
        assert_eq!(*of("b"), [tile(0, x), tile(1, x)]);
    }
    let a00 = &loader.threads[&("a".into(), 0)];
    assert_eq!(*a00, [([0, 0, 0], 0, 0), ([1, 0, 0], 0, 0)], "once by each block of its block row");
    // Each of the two steps uses every element of the tile in the two threads of its row.
    assert_eq!(loader.shared_uses[&("tile_a".into(), 0)], 2 * 2);
}

#[test]
fn four_threads_of_the_naive_kernel_load_an_element() {
    let loader = watched(Family::Naive);
    assert_eq!(loader.threads[&("a".into(), 0)].len(), 4);
    assert_eq!(loader.threads[&("b".into(), 15)].len(), 4);
}
