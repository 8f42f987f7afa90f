//! The four loop nests that explain tiling, timed in turns, with the misses that a model of this machine's caches counts.
//!
//! `cargo run --release -p tegula --example loop_nests > benchmarks/loop-nests.json` takes about two minutes.

use std::error::Error;
use std::time::Duration;

use serde_json::{Value, json};
use tegula::Matrix;
use tegula::element::{Scalar, Type};
use tegula_bench::uniform;
use tegula_explain::nests;
use tegula_explain::nests::{Cache, Nest, Timing};

const SEED: u64 = 1;
/// n, and how long its nests are timed.
const SIZES: [(usize, u64); 5] = [(64, 5), (128, 10), (256, 15), (512, 20), (1024, 30)];
/// Beyond this n the model would take longer than the nests.
const MODELLED: usize = 256;
const TILES: [usize; 3] = [16, 32, 64];

fn main() -> Result<(), Box<dyn Error>> {
    let (caches, before) = (caches(), load());
    let mut rows = Vec::new();
    for (n, seconds) in SIZES {
        let [a, b] = [0, 1].map(|which| random(n, SEED + which));
        let (a, b) = (a?, b?);
        for timing in nests::time(&variants(), a.view(), b.view(), Duration::from_secs(seconds))? {
            let misses = (n <= MODELLED).then(|| misses(timing, n, &caches)).transpose()?;
            rows.push(row(n, timing, misses));
            eprintln!("{}", rows[rows.len() - 1]);
        }
    }
    let report = json!({
        "machine": processor(),
        "caches": caches.map(|Cache { bytes, ways, line }| json!({ "bytes": bytes, "ways": ways, "line": line })),
        "load": [before, load()],
        "version": env!("CARGO_PKG_VERSION"),
        "seed": SEED,
        "command": "cargo run --release -p tegula --example loop_nests",
        "rows": rows,
    });
    println!("{report:#}");
    Ok(())
}

/// Each nest, with each tile size if it has tiles.
fn variants() -> Vec<(Nest, usize)> {
    let tiles = |nest: Nest| if nest.has_tiles() { &TILES[..] } else { &TILES[..1] };
    Nest::ALL.into_iter().flat_map(|nest| tiles(nest).iter().map(move |&tile| (nest, tile))).collect()
}

/// Numbers of ±1.
fn random(n: usize, seed: u64) -> tegula::Result<Matrix<f32>> {
    Matrix::from_fn(n, n, |row, col| (2.0 * uniform(seed, (row * n + col) as u64) - 1.0) as f32)
}

fn misses(timing: Timing, n: usize, caches: &[Cache]) -> tegula::Result<Vec<u64>> {
    Ok(nests::traffic(timing.nest, timing.tile, [n; 3], f32::TYPE, caches)?.misses)
}

/// Times are of one product; misses are null where they were not modelled.
fn row(n: usize, timing: Timing, misses: Option<Vec<u64>>) -> Value {
    let Timing { nest, tile, median, least, rounds, same_bits } = timing;
    let level = |level: usize| misses.as_ref().and_then(|misses| misses.get(level));
    json!({
        "nest": nest.name(),
        "tile": nest.has_tiles().then_some(tile),
        "n": n,
        "type": Type::F32.name(),
        "seconds": median.as_secs_f64(),
        "least_seconds": least.as_secs_f64(),
        "rounds": rounds,
        "gflops": 2.0 * (n as f64).powi(3) / median.as_secs_f64() / 1e9,
        "l1_misses": level(0),
        "l2_misses": level(1),
        "bits_equal": same_bits,
    })
}

/// The first two levels of this machine's data caches, where Linux tells; else those of the model.
fn caches() -> [Cache; 2] {
    let level = |index: usize| {
        let tell = |what| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{what}");
            std::fs::read_to_string(path).ok()?.trim().trim_end_matches('K').parse::<usize>().ok()
        };
        Some(Cache {
            bytes: tell("size")? << 10,
            ways: tell("ways_of_associativity")?,
            line: tell("coherency_line_size")?,
        })
    };
    // Between them lie the instructions.
    [level(0).unwrap_or(Cache::L1), level(2).unwrap_or(Cache::L2)]
}

/// How many programs wanted a processor in the last minute, where Linux tells: times are right if it is less than there are processors.
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown processor");
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {count} processors", name.trim_start_matches([' ', '\t', ':']))
}
