//! Whether the processor is as fast as it can be.
//!
//! On shared hardware vector code can run at half its rate for seconds while the system's clocks look normal. A short loop of multiply-adds, timed before and after
//! what is measured, tells.

use std::ptr::null;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tegula_core::element::Type;
use tegula_core::threads;

use super::crew::share;
use super::isa::Isa;
use super::kernel::{Factors, Later, Operand};

/// Steps of a micro-kernel whose panels stay in the first-level cache.
const STEPS: usize = 64;
/// How often they are gone through: some 20 µs.
const TIMES: usize = 80;
/// A processor is at full speed within so much of the best there was.
const WITHIN: f64 = 1.25;

/// The least time there was, as the bits of an f64.
static BEST: AtomicU64 = AtomicU64::new(f64::INFINITY.to_bits());

/// Whether this thread, and those of the pool if there are several, multiply at full speed just now.
pub fn at_full_speed() -> bool {
    let (threads, most) = (threads::count(), AtomicU64::new(0));
    // Of numbers that are not negative the bits are in order.
    share(threads, threads, |_, _| _ = most.fetch_max(seconds().to_bits(), Ordering::Relaxed));
    let slowest = f64::from_bits(most.into_inner());
    let fastest = BEST.fetch_min(slowest.to_bits(), Ordering::Relaxed);
    slowest <= WITHIN * f64::from_bits(fastest)
}

/// Seconds of the loop on this thread.
fn seconds() -> f64 {
    let tiles = <f32 as Operand>::tiles(Isa::chosen(Type::F32).unwrap_or(Isa::Portable));
    let [mr, nr] = tiles.block;
    let (a, b, mut c) = (vec![1.0; STEPS * mr], vec![1.0; STEPS * nr], vec![0.0; mr * nr]);
    let a_row = (STEPS * size_of::<f32>()) as isize;
    let (a, b, b_step) = (a.as_ptr(), b.as_ptr(), nr as isize);
    let factors = Factors { a, a_row, a_step: 1, b, b_step, starts: null(), later: Later::NONE };
    let start = Instant::now();
    for _ in 0..TIMES {
        // SAFETY: the machine has the instruction set, and the panels and the tile are whole.
        unsafe { (tiles.run)([mr, nr])([mr, nr, STEPS], 1.0, factors, 0.0, c.as_mut_ptr(), nr as isize) };
    }
    std::hint::black_box(c);
    start.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_there_was_is_full_speed() {
        let all: Vec<bool> = (0..50).map(|_| at_full_speed()).collect();
        assert!(all.contains(&true), "the fastest of them was at full speed");
        assert!(seconds() > 0.0);
    }
}
