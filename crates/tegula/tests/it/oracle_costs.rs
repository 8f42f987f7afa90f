//! What memory accesses cost, against an oracle of its own: sectors of global memory, wavefronts and conflicts of shared memory, counted
//! from the bytes that the lanes touch. Random patterns of addresses, of 4, 8 and 16 bytes, with some lanes left out.

use std::collections::{BTreeMap, BTreeSet};

use tegula::Matrix;
use tegula::interpret;
use tegula_interp::{Config, Counters, run};
use tegula_ir::prelude::*;

use crate::product::Random;

/// Words of each memory.
const WORDS: usize = 1024;

/// An access by a warp: for each lane that takes part, the first byte.
#[derive(Clone, Debug)]
struct Request {
    /// Bytes of each lane.
    bytes: u32,
    starts: [Option<u32>; 32],
}

impl Request {
    fn random(random: &mut Random) -> Self {
        let bytes = [4, 8, 16][random.below(3)];
        let places = WORDS as u32 * 4 / bytes;
        let (stride, first) = ([0, 1, 1, 2, 3, 4, 8, 16, 31, 32, 33][random.below(11)], random.below(64) as u32);
        let (scattered, few) = (random.below(4), 1 + random.below(40) as u32);
        // Lanes that differ in these bits alone want the same.
        let same = [1, 2, 3, 4, 31, 0][random.below(6)];
        let lanes = match random.below(4) {
            0 | 1 => u32::MAX,
            2 => random.next() as u32 & random.next() as u32,
            _ => random.next() as u32,
        } | 1 << random.below(32);
        let starts = std::array::from_fn(|lane| {
            let place = match scattered {
                0 => first + stride * lane as u32,
                1 => first + random.next() as u32 % few,
                2 => first + stride * (lane as u32 & !same),
                _ => random.next() as u32,
            };
            (lanes >> lane & 1 == 1).then_some(place % places * bytes)
        });
        Request { bytes, starts }
    }

    /// Bytes that are touched, by lanes of a range.
    fn touched(&self, lanes: std::ops::Range<usize>) -> impl Iterator<Item = u32> + '_ {
        self.starts[lanes].iter().flatten().flat_map(|&start| start..start + self.bytes)
    }

    /// Sectors of global memory: 32 bytes each, every one once.
    fn sectors(&self) -> u64 {
        self.touched(0..32).map(|byte| byte / 32).collect::<BTreeSet<_>>().len() as u64
    }

    /// Wavefronts of shared memory, and those of them that are conflicts.
    ///
    /// There are 32 banks of 4 bytes, and a wavefront serves each bank one word, which any number of lanes may want. It is of at most
    /// 32 words, so lanes that want 8 bytes are served by halves of the warp, of 16 bytes by quarters; two of these go together
    /// where [`Request::goes_together`] says so. A conflict is a wavefront beyond the first of what is served together.
    fn wavefronts(&self, loads: bool) -> (u64, u64) {
        let lanes = 32 / (self.bytes as usize / 4);
        let mut parts = Vec::new();
        for first in (0..32).step_by((2 * lanes).min(32)) {
            let both = first..(first + 2 * lanes).min(32);
            match loads && self.goes_together() {
                true => parts.push(self.ways(both)),
                false => parts.extend(both.step_by(lanes).map(|first| self.ways(first..first + lanes))),
            }
        }
        let wavefronts: u64 = parts.iter().sum();
        (wavefronts, wavefronts - parts.iter().filter(|&&ways| ways > 0).count() as u64)
    }

    /// The most words that lanes want of one bank.
    fn ways(&self, lanes: std::ops::Range<usize>) -> u64 {
        let mut words: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for byte in self.touched(lanes) {
            words.entry(byte / 4 % 32).or_default().insert(byte / 4);
        }
        words.values().map(BTreeSet::len).max().unwrap_or(0) as u64
    }

    /// Whether a load serves two halves of a warp (of 8 bytes), or two quarters (of 16), together: where each lane of the warp wants the same as
    /// the next (i ^ 1), or each as the next but one (i ^ 2). A lane without its partner does not matter. Measured on an H100, with lanes
    /// left out as well (`benchmarks/counters/h100-patterns.md`).
    fn goes_together(&self) -> bool {
        let same = |a: usize, b: usize| match (self.starts[a], self.starts[b]) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        self.bytes > 4 && [1, 2].into_iter().any(|apart| (0..32).all(|lane| same(lane, lane ^ apart)))
    }

    /// A kernel whose first warp loads so from both memories and stores so to both.
    fn build(&self, shared: bool) -> Kernel {
        kernel("costs", Block::d1(32), |k| {
            k.grid([k.constant(1), k.constant(1), k.constant(1)]);
            let places = k.input::<u32>("places");
            let x = k.matrix::<u32>("x", Access::ReadWrite, Order2d::RowMajor, 4);
            let s = k.shared::<u32>("s", [WORDS as u32]);
            k.for_each(0, WORDS as u32 / 32, |i| s.store((i * 32 + k.lane(),), 0));
            k.sync_warp(FULL_WARP);
            let (at, takes_part) = (places.load((0, k.lane())), places.load((1, k.lane())).ne(0));
            k.when(takes_part, || if shared { self.access(s, (at,)) } else { self.access(x, (0u32, at)) });
        })
    }

    fn access<'k>(&self, memory: impl Elements<'k, u32>, at: impl Coord<'k> + Copy) {
        match self.bytes {
            4 => memory.store(at, memory.load(at)),
            8 => memory.store_vec(at, memory.load_vec::<2>(at)),
            _ => memory.store_vec(at, memory.load_vec::<4>(at)),
        }
    }

    fn run(&self, shared: bool) -> Counters {
        let words = |f: &dyn Fn(Option<u32>) -> u32| self.starts.iter().map(|&start| f(start)).collect::<Vec<u32>>();
        let places = [words(&|start| start.unwrap_or(0) / 4), words(&|start| u32::from(start.is_some()))].concat();
        let places = interpret::input(Matrix::from_vec(2, 32, places).unwrap().view()).unwrap();
        let x = interpret::in_out(Matrix::from_vec(1, WORDS, vec![0u32; WORDS]).unwrap().view()).unwrap();
        let kernel = check(self.build(shared)).unwrap();
        let config = Config { races: false, parallel: false, ..Config::default() };
        let outcome = run(&kernel, &[(&places).into(), (&x).into()], &config).unwrap();
        assert!(outcome.error().is_none(), "{:?}", outcome.findings);
        outcome.counters
    }
}

/// Requests that are compared.
fn cases() -> u64 {
    std::env::var("TEGULA_CASES").map_or(2000, |cases| cases.parse().expect("TEGULA_CASES is a number"))
}

#[test]
fn sectors_are_those_that_bytes_lie_in() {
    for seed in 0..cases() {
        let request = Request::random(&mut Random(seed));
        let counters = request.run(false);
        // The places are two rows of 128 bytes, which each lane reads.
        assert_eq!(counters.global_load_sectors - 8, request.sectors(), "seed {seed}: {request:?}");
        assert_eq!(counters.global_store_sectors, request.sectors(), "seed {seed}: {request:?}");
        assert_eq!([counters.global_load_requests - 2, counters.global_store_requests], [1; 2]);
    }
}

#[test]
fn wavefronts_serve_each_bank_one_word() {
    let mut differ = Vec::new();
    for seed in 0..cases() {
        let request = Request::random(&mut Random(seed));
        let counters = request.run(true);
        let [(loads, of_loads), (stores, of_stores)] = [true, false].map(|loads| request.wavefronts(loads));
        // Of the stores that fill the array, each takes one.
        let counted =
            [counters.shared_load_wavefronts, counters.shared_store_wavefronts - 32, counters.shared_bank_conflicts];
        let expected = [loads, stores, of_loads + of_stores];
        if counted != expected {
            differ.push(format!("seed {seed}: {counted:?}, not {expected:?}: {request:?}"));
        }
    }
    assert!(differ.is_empty(), "{} differ, such as {:#?}", differ.len(), &differ[..differ.len().min(6)]);
}
