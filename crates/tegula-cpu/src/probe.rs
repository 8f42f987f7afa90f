//! A probe for throttling: whether the CPU runs at full speed.
//!
//! On shared hardware vector code can run at half its rate for seconds while the reported clocks
//! look normal. A short loop of multiply-adds, timed before and after a measurement, detects that.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tegula_core::element::Type;
use tegula_core::threads;

use super::isa::Isa;
use super::micro_kernel::{CpuElement, MicroOperands};
use super::thread_pool::{self, parallel_phases};

/// Steps of k of the micro-kernel; its panels stay in the L1 cache.
const STEPS: usize = 64;
/// Repetitions, about 20 µs in all.
const REPEATS: usize = 80;
/// A time up to this multiple of the best time counts as full speed.
const TOLERANCE: f64 = 1.25;

/// The best time so far in seconds, as the bits of an f64.
static BEST_SECONDS: AtomicU64 = AtomicU64::new(f64::INFINITY.to_bits());

/// Whether this thread and the other threads of the pool multiply at full speed now.
pub fn at_full_speed() -> bool {
    let (threads, slowest) = (threads::count(), AtomicU64::new(0));
    // The bits of nonnegative floats are in the order of their values.
    let slowest_of = |_, _, _| _ = slowest.fetch_max(seconds().to_bits(), Ordering::Relaxed);
    parallel_phases(threads, thread_pool::workers(), 1, |_| threads, slowest_of);
    let slowest = f64::from_bits(slowest.into_inner());
    let best = BEST_SECONDS.fetch_min(slowest.to_bits(), Ordering::Relaxed);
    slowest <= TOLERANCE * f64::from_bits(best)
}

/// Time of the loop on this thread in seconds.
fn seconds() -> f64 {
    let kernel = <f32 as CpuElement>::micro_kernel(Isa::chosen(Type::F32).unwrap_or(Isa::Portable));
    let [mr, nr] = kernel.tile;
    let (a, b, mut c) = (vec![1.0; STEPS * mr], vec![1.0; STEPS * nr], vec![0.0; mr * nr]);
    let a_row_stride = (STEPS * size_of::<f32>()) as isize;
    let operands = MicroOperands::new(a.as_ptr(), [a_row_stride, 1], b.as_ptr(), nr as isize);
    let start = Instant::now();
    for _ in 0..REPEATS {
        // SAFETY: the CPU has the instruction set, and the panels and the micro-tile are full.
        unsafe { (kernel.select_packed)([mr, nr])([mr, nr, STEPS], 1.0, &operands, 0.0, c.as_mut_ptr(), nr as isize) };
    }
    std::hint::black_box(c);
    start.elapsed().as_secs_f64()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn best_of_many_probes_is_at_full_speed() {
        let all: Vec<bool> = (0..50).map(|_| at_full_speed()).collect();
        assert!(all.contains(&true), "the fastest probe was at full speed");
        assert!(seconds() > 0.0);
    }
}
