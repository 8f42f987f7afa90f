//! Speed of the interpreter: lane instructions per second, with and without checks.
//!
//! It runs on one core, with and without race checks and counters.
//!
//!     cargo run --release --example interp_speed

use std::time::Instant;

use tegula::element::Type;
use tegula::{Layout, Shape};
use tegula_interp::{Arg, Buffer, Config, run};
use tegula_ir::check;
use tegula_kernels::{Plain, PlainKind};

fn main() -> tegula::Result<()> {
    let size = std::env::args().nth(1).map_or(256, |s| s.parse().unwrap_or(256));
    println!("{size}³, one core, median of 5: million lane-instructions a second");
    for (family, tile) in [(PlainKind::Naive, 16), (PlainKind::Tiled, 16), (PlainKind::Tiled, 32)] {
        let kernel = check(Plain::new(family, Type::F32, tile).build()?)?;
        let layout = Layout::row_major(Shape::new(size, size))?;
        let input = |seed: usize| Buffer::from_fn(layout, |_, r, c| ((r * 31 + c * 17 + seed) % 13) as f32 - 6.0);
        let (a, b) = (input(1)?, input(2)?);
        let mut line = format!("{:16}", kernel.name());
        for (races, counters) in [(true, true), (false, false)] {
            let mut rates: Vec<f64> = Vec::new();
            for _ in 0..5 {
                let c = Buffer::output(Type::F32, layout)?;
                let args = [Arg::from(&a), Arg::from(&b), Arg::from(&c), Arg::scalar(1f32), Arg::scalar(0f32)];
                let counted =
                    run(&kernel, &args, &Config { races: false, blocks: Some(vec![[0; 3]]), ..Config::default() })?;
                let blocks = counted.grid.iter().map(|&n| u64::from(n)).product::<u64>();
                let instructions = counted.counters.lane_instructions * blocks;
                let config = Config { races, counters, parallel: false, ..Config::default() };
                let start = Instant::now();
                let outcome = run(&kernel, &args, &config)?;
                rates.push(instructions as f64 / start.elapsed().as_secs_f64() / 1e6);
                if let Some(error) = outcome.error() {
                    eprintln!("{error}");
                }
            }
            rates.sort_by(f64::total_cmp);
            line += &format!("  {} {:7.0}", if races { "checked" } else { "plain" }, rates[2]);
        }
        println!("{line}");
    }
    Ok(())
}
