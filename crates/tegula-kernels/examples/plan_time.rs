//! The time to plan products, at first and again, and the number of candidates.
//!
//!     cargo run --release -p tegula-kernels --example plan_time -- "h200 bf16 nt 16 4096 4096"
//!
//! Each argument is a product and its GPU, as `parse_product` documents.

use std::hint::black_box;
use std::time::Instant;

use tegula_kernels::plan::fit::parse_product;
use tegula_kernels::plan::{Caps, UNTUNED, choose, choose_cached, legal};

/// Calls of which the fastest counts.
const CALLS: usize = 200;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    for text in std::env::args().skip(1) {
        let (problem, gpu) = parse_product(&text).ok_or_else(|| format!("{text:?}: no product of a GPU"))?;
        let caps = Caps::Gpu(gpu);
        let first = fastest(|| drop(black_box(choose(&problem, &caps))));
        let again = fastest(|| drop(black_box(choose_cached(&problem, &caps, &UNTUNED, false))));
        let candidates = legal(&problem, &caps).len();
        println!("{text}: {candidates} candidates, planned in {first:.0} µs, again in {again:.2} µs");
    }
    Ok(())
}

/// Microseconds of the fastest call.
fn fastest(call: impl Fn()) -> f64 {
    let time = |_| {
        let start = Instant::now();
        call();
        1e6 * start.elapsed().as_secs_f64()
    };
    (0..CALLS).map(time).fold(f64::INFINITY, f64::min)
}
