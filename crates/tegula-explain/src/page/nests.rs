//! The four loop nests for the page: source, GPU counterpart of each loop, memory traffic, run
//! time.

use std::time::Duration;

use serde_json::{Value, json};
use tegula_core::View;
use tegula_core::element::Type;

use crate::error::Result;
use crate::nests::{Cache, Nest, Traffic, time, traffic};

/// m, n and k of the counted and timed problem.
///
/// A matrix has 100 KiB and does not fit the first-level cache, while three tiles do. Rows of a
/// power of two would map to the same cache sets.
const SIDE: usize = 160;

/// The tile size: a row of 16 columns is a cache line.
const TILE: usize = 16;

/// The nests' source, traffic and times as JSON; counting and timing take half a second.
pub(super) fn nests() -> Result<Value> {
    let value = |index| (index / SIDE * 7 + index % SIDE * 3) % 17;
    let a: Vec<f32> = (0..SIDE * SIDE).map(|index| value(index) as f32).collect();
    let a = View::new(&a, SIDE, SIDE)?;
    let all = Nest::ALL.map(|nest| (nest, TILE));
    let timings = time(&all, a, a, Duration::from_millis(250))?;
    let nests = timings.iter().map(|timing| {
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
    let nests = nests.collect::<Result<Vec<Value>>>()?;
    Ok(json!({ "side": SIDE, "tile": TILE, "nests": nests }))
}
