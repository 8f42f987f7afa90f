//! The four loop nests that explain tiling, in interleaved timings, with the misses of a cache
//! model.
//!
//! `cargo run --release -p tegula --example loop_nests > benchmarks/loop-nests.json` takes about
//! two minutes.

use std::error::Error;
use std::time::Duration;

use serde_json::{Value, json};
use tegula::Matrix;
use tegula::element::{Scalar, Type};
use tegula::tune::data::uniform;
use tegula_explain::nests;
use tegula_explain::nests::{Cache, Nest, Timing};

const SEED: u64 = 1;
/// n, and the seconds that its nests are timed.
const SIZES: [(usize, u64); 5] = [(64, 5), (128, 10), (256, 15), (512, 20), (1024, 30)];
/// Largest n for the cache model, which would take longer than the nests beyond.
const MAX_MODELED: usize = 256;
const TILES: [usize; 3] = [16, 32, 64];

fn main() -> Result<(), Box<dyn Error>> {
    let (caches, before) = (caches(), load());
    let mut rows = Vec::new();
    for (n, seconds) in SIZES {
        let [a, b] = [0, 1].map(|which| random(n, SEED + which));
        let (a, b) = (a?, b?);
        for timing in nests::time(&variants(), a.view(), b.view(), Duration::from_secs(seconds))? {
            let misses = (n <= MAX_MODELED).then(|| misses(timing, n, &caches)).transpose()?;
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

/// All nests, those with tiles for each tile size.
fn variants() -> Vec<(Nest, usize)> {
    let tiles = |nest: Nest| if nest.has_tiles() { &TILES[..] } else { &TILES[..1] };
    Nest::ALL.into_iter().flat_map(|nest| tiles(nest).iter().map(move |&tile| (nest, tile))).collect()
}

/// Random numbers in [-1, 1].
fn random(n: usize, seed: u64) -> tegula::Result<Matrix<f32>> {
    Matrix::from_fn(n, n, |row, col| (2.0 * uniform(seed, (row * n + col) as u64) - 1.0) as f32)
}

fn misses(timing: Timing, n: usize, caches: &[Cache]) -> tegula::Result<Vec<u64>> {
    Ok(nests::traffic(timing.nest, timing.tile, [n; 3], f32::TYPE, caches)?.misses)
}

/// A row of the report: times of one product; misses are null where not modeled.
fn row(n: usize, timing: Timing, misses: Option<Vec<u64>>) -> Value {
    let Timing { nest, tile, median, min, rounds, same_bits } = timing;
    let level = |level: usize| misses.as_ref().and_then(|misses| misses.get(level));
    json!({
        "nest": nest.name(),
        "tile": nest.has_tiles().then_some(tile),
        "n": n,
        "type": Type::F32.name(),
        "seconds": median.as_secs_f64(),
        "least_seconds": min.as_secs_f64(),
        "rounds": rounds,
        "gflops": 2.0 * (n as f64).powi(3) / median.as_secs_f64() / 1e9,
        "l1_misses": level(0),
        "l2_misses": level(1),
        "bits_equal": same_bits,
    })
}

/// L1 and L2 data cache of this CPU, where Linux exposes them; else those of the model.
fn caches() -> [Cache; 2] {
    let level = |index: usize| {
        let read = |name| {
            let path = format!("/sys/devices/system/cpu/cpu0/cache/index{index}/{name}");
            std::fs::read_to_string(path).ok()?.trim().trim_end_matches('K').parse::<usize>().ok()
        };
        Some(Cache {
            bytes: read("size")? << 10,
            ways: read("ways_of_associativity")?,
            line: read("coherency_line_size")?,
        })
    };
    // Index 1 is the instruction cache.
    [level(0).unwrap_or(Cache::L1), level(2).unwrap_or(Cache::L2)]
}

/// The load average of the last minute, where Linux exposes it. Timings are valid if it is below
/// the number of processors.
fn load() -> Option<f64> {
    std::fs::read_to_string("/proc/loadavg").ok()?.split(' ').next()?.parse().ok()
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown processor");
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {count} processors", name.trim_start_matches([' ', '\t', ':']))
}
