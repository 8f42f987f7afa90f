//! The four loop nests for a page: their text, what each loop becomes, what they ask of memory, and how long they take here.

use std::time::Duration;

use serde_json::{Value, json};
use tegula_core::View;
use tegula_core::element::Type;

use crate::error::Result;
use crate::nests::{Cache, Nest, Traffic, time, traffic};

/// m, n and k of what is counted and timed: matrices of 100 KiB, none of which fits into a first-level cache, while three tiles do. Rows of
/// a power of two would fall into the same sets of it.
const SIDE: usize = 160;

/// The tile size. Of 16 columns each row is a cache line.
const TILE: usize = 16;

/// All that a page tells of nests. Counting and timing takes some seconds.
pub(super) fn nests() -> Result<Value> {
    let number = |place| (place / SIDE * 7 + place % SIDE * 3) % 17;
    let a: Vec<f32> = (0..SIDE * SIDE).map(|place| number(place) as f32).collect();
    let a = View::new(&a, SIDE, SIDE)?;
    let all = Nest::ALL.map(|nest| (nest, TILE));
    let timings = time(&all, a, a, Duration::from_secs(1))?;
    let told = timings.iter().map(|timing| {
        let caches = [Cache::L1, Cache::L2];
        let Traffic { reads, writes, misses } = traffic(timing.nest, TILE, [SIDE; 3], Type::F32, &caches)?;
        let loops: Vec<Value> = timing
            .nest
            .loops()
            .iter()
            .map(|of| json!({ "name": of.name, "range": of.range, "becomes": of.becomes }))
            .collect();
        Ok(json!({
            "name": timing.nest.name(),
            "source": timing.nest.source(),
            "loops": loops,
            "reads": reads.iter().sum::<u64>(),
            "writes": writes,
            "misses": misses,
            "milliseconds": timing.median.as_secs_f64() * 1e3,
        }))
    });
    let told = told.collect::<Result<Vec<Value>>>()?;
    Ok(json!({ "side": SIDE, "tile": TILE, "nests": told }))
}
