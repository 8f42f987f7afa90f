//! Memory counters against an independent oracle: sectors of global memory, wavefronts and bank
//! conflicts of shared memory, from the bytes that lanes access. Random address patterns of 4, 8
//! and 16 bytes, with inactive lanes.

use std::collections::{BTreeMap, BTreeSet};

use tegula::Matrix;
use tegula::interpret;
use tegula_interp::{Config, Counters, run};
use tegula_ir::prelude::*;

use crate::product::Random;

/// Words of each memory.
const WORDS: usize = 1024;

/// An access by a warp: the first byte of each active lane.
#[derive(Clone, Debug)]
struct Request {
    /// Bytes of each lane.
    bytes: u32,
    starts: [Option<u32>; 32],
}

impl Request {
    fn random(random: &mut Random) -> Self {
        let bytes = [4, 8, 16][random.below(3)];
        let positions = WORDS as u32 * 4 / bytes;
        let (stride, first) = ([0, 1, 1, 2, 3, 4, 8, 16, 31, 32, 33][random.below(11)], random.below(64) as u32);
        let (scattered, distinct) = (random.below(4), 1 + random.below(40) as u32);
        // Lanes that differ only in these bits access one position.
        let same = [1, 2, 3, 4, 31, 0][random.below(6)];
        let lanes = match random.below(4) {
            0 | 1 => u32::MAX,
            2 => random.next() as u32 & random.next() as u32,
            _ => random.next() as u32,
        } | 1 << random.below(32);
        let starts = std::array::from_fn(|lane| {
            let position = match scattered {
                0 => first + stride * lane as u32,
                1 => first + random.next() as u32 % distinct,
                2 => first + stride * (lane as u32 & !same),
                _ => random.next() as u32,
            };
            (lanes >> lane & 1 == 1).then_some(position % positions * bytes)
        });
        Request { bytes, starts }
    }

    /// Bytes accessed by a range of lanes.
    fn touched(&self, lanes: std::ops::Range<usize>) -> impl Iterator<Item = u32> + '_ {
        self.starts[lanes].iter().flatten().flat_map(|&start| start..start + self.bytes)
    }

    /// Distinct 32-byte sectors of global memory.
    fn sectors(&self) -> u64 {
        self.touched(0..32).map(|byte| byte / 32).collect::<BTreeSet<_>>().len() as u64
    }

    /// Wavefronts of shared memory, and the number of them that are conflicts.
    ///
    /// Shared memory has 32 banks of 4 bytes. A wavefront serves one word per bank, to any number
    /// of lanes, and at most 32 words. So 8-byte accesses are served by half warps, 16-byte
    /// accesses by quarter warps. Two of these merge if [`Request::merges_parts`]. A conflict is a
    /// wavefront beyond the first of a part.
    fn wavefronts(&self, loads: bool) -> (u64, u64) {
        let lanes = 32 / (self.bytes as usize / 4);
        let mut parts = Vec::new();
        for first in (0..32).step_by((2 * lanes).min(32)) {
            let both = first..(first + 2 * lanes).min(32);
            match loads && self.merges_parts() {
                true => parts.push(self.max_words_per_bank(both)),
                false => parts.extend(both.step_by(lanes).map(|first| self.max_words_per_bank(first..first + lanes))),
            }
        }
        let wavefronts: u64 = parts.iter().sum();
        (wavefronts, wavefronts - parts.iter().filter(|&&max_words_per_bank| max_words_per_bank > 0).count() as u64)
    }

    /// Maximum number of words that lanes access in one bank.
    fn max_words_per_bank(&self, lanes: std::ops::Range<usize>) -> u64 {
        let mut words: BTreeMap<u32, BTreeSet<u32>> = BTreeMap::new();
        for byte in self.touched(lanes) {
            words.entry(byte / 4 % 32).or_default().insert(byte / 4);
        }
        words.values().map(BTreeSet::len).max().unwrap_or(0) as u64
    }

    /// Whether a load merges two half warps (8 bytes) or two quarter warps (16 bytes). This holds
    /// if each lane accesses the same address as lane i ^ 1, or each as lane i ^ 2. Lanes with an
    /// inactive partner are ignored. Measured on an H100, with inactive lanes as well
    /// (`benchmarks/counters/h100-patterns.md`).
    fn merges_parts(&self) -> bool {
        let same = |a: usize, b: usize| match (self.starts[a], self.starts[b]) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        };
        self.bytes > 4 && [1, 2].into_iter().any(|distance| (0..32).all(|lane| same(lane, lane ^ distance)))
    }

    /// A kernel with one load and one store by this request, in shared or global memory.
    fn build(&self, shared: bool) -> Kernel {
        kernel("costs", Block::d1(32), |k| {
            k.grid([k.constant(1), k.constant(1), k.constant(1)]);
            let positions = k.input::<u32>("positions");
            let x = k.matrix::<u32>("x", Access::ReadWrite, Order2d::RowMajor, 4);
            let s = k.shared::<u32>("s", [WORDS as u32]);
            k.for_each(0, WORDS as u32 / 32, |i| s.store((i * 32 + k.lane(),), 0));
            k.sync_warp(FULL_WARP);
            let (at, takes_part) = (positions.load((0, k.lane())), positions.load((1, k.lane())).ne(0));
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
        let positions = [words(&|start| start.unwrap_or(0) / 4), words(&|start| u32::from(start.is_some()))].concat();
        let positions = interpret::input(Matrix::from_vec(2, 32, positions).unwrap().view()).unwrap();
        let x = interpret::in_out(Matrix::from_vec(1, WORDS, vec![0u32; WORDS]).unwrap().view()).unwrap();
        let kernel = check(self.build(shared)).unwrap();
        let config = Config { races: false, parallel: false, ..Config::default() };
        let outcome = run(&kernel, &[(&positions).into(), (&x).into()], &config).unwrap();
        assert!(outcome.error().is_none(), "{:?}", outcome.findings);
        outcome.counters
    }
}

/// Number of requests to compare.
fn cases() -> u64 {
    std::env::var("TEGULA_CASES").map_or(2000, |cases| cases.parse().expect("TEGULA_CASES is not a number"))
}

#[test]
fn sectors_equal_those_of_the_touched_bytes() {
    for seed in 0..cases() {
        let request = Request::random(&mut Random(seed));
        let counters = request.run(false);
        // The positions are two rows of 128 bytes, which all lanes read.
        assert_eq!(counters.global_load_sectors - 8, request.sectors(), "seed {seed}: {request:?}");
        assert_eq!(counters.global_store_sectors, request.sectors(), "seed {seed}: {request:?}");
        assert_eq!([counters.global_load_requests - 2, counters.global_store_requests], [1; 2]);
    }
}

#[test]
fn wavefronts_equal_one_word_per_bank() {
    let mut differences = Vec::new();
    for seed in 0..cases() {
        let request = Request::random(&mut Random(seed));
        let counters = request.run(true);
        let [(loads, load_conflicts), (stores, store_conflicts)] = [true, false].map(|loads| request.wavefronts(loads));
        // Each store that fills the array takes one wavefront.
        let counted =
            [counters.shared_load_wavefronts, counters.shared_store_wavefronts - 32, counters.shared_bank_conflicts];
        let expected = [loads, stores, load_conflicts + store_conflicts];
        if counted != expected {
            differences.push(format!("seed {seed}: {counted:?}, not {expected:?}: {request:?}"));
        }
    }
    assert!(
        differences.is_empty(),
        "{} differ, such as {:#?}",
        differences.len(),
        &differences[..differences.len().min(6)]
    );
}
