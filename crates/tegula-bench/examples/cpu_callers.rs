//! Products of several callers at once, beside as many callers with one thread each: `cargo run
//! --release -p tegula-bench --example cpu_callers [CALLERS]`.
//!
//! The callers are threads of their own, then jobs of a rayon pool. A ratio above 1 means that
//! products that share threads are faster than products on one thread.

use std::sync::{Barrier, OnceLock};
use std::time::Instant;

use rayon::{ThreadPool, ThreadPoolBuilder};
use tegula_core::matrix::{View, ViewMut};
use tegula_core::threads;

/// Least seconds of a sample.
const SAMPLE: f64 = 0.05;
/// Samples of each way, one after the other in turn.
const SAMPLES: usize = 7;

/// n×n matrices of a caller.
struct Operands {
    n: usize,
    a: Vec<f32>,
    b: Vec<f32>,
    c: Vec<f32>,
}

impl Operands {
    /// Matrices for each caller. New ones for each sample would add page faults to its time.
    fn of_callers(callers: usize, n: usize) -> Vec<Operands> {
        let one = |_| Operands { n, a: vec![1.0; n * n], b: vec![2.0; n * n], c: vec![0.0; n * n] };
        (0..callers).map(one).collect()
    }

    /// Multiplies so many times after a first product, after which `ready` is called.
    fn multiply(&mut self, times: usize, ready: impl Fn()) {
        let Operands { n, a, b, c } = self;
        let [a, b] = [a, b].map(|operand| View::new(operand, *n, *n).unwrap());
        for i in 0..=times {
            tegula_cpu::gemm::<f32>(1.0, a, b, 0.0, ViewMut::new(c, *n, *n).unwrap()).unwrap();
            if i == 0 {
                ready();
            }
        }
    }
}

fn pool(threads: usize) -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(threads).build().unwrap()
}

/// Seconds of callers that are threads: outside of any pool, or alone, each in its own pool of one
/// thread.
fn from_threads(pools: &[ThreadPool], alone: bool, operands: &mut [Operands], times: usize) -> f64 {
    let (barrier, start) = (Barrier::new(pools.len()), OnceLock::new());
    let ready = || {
        if barrier.wait().is_leader() {
            _ = start.set(Instant::now());
        }
    };
    std::thread::scope(|scope| {
        for (pool, operands) in pools.iter().zip(operands) {
            let mut work = || operands.multiply(times, ready);
            scope.spawn(move || if alone { pool.install(work) } else { work() });
        }
    });
    start.get().expect("all callers were ready").elapsed().as_secs_f64()
}

/// Seconds of callers that are jobs of a pool; alone, each moves to its own pool of one thread.
fn from_jobs(jobs: &ThreadPool, pools: &[ThreadPool], alone: bool, operands: &mut [Operands], times: usize) -> f64 {
    let start = Instant::now();
    jobs.scope(|scope| {
        for (pool, operands) in pools.iter().zip(operands) {
            // The first product is timed as well.
            let mut work = || operands.multiply(times - 1, || ());
            scope.spawn(move |_| if alone { pool.install(work) } else { work() });
        }
    });
    start.elapsed().as_secs_f64()
}

fn median(mut seconds: Vec<f64>) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

fn main() {
    let callers = std::env::args().nth(1).map_or(16, |count| count.parse().expect("CALLERS is a number"));
    let pools: Vec<_> = (0..callers).map(|_| pool(1)).collect();
    let jobs = pool(threads::count());
    println!("{callers} callers, {} threads; µs a product", threads::count());
    println!("{:>12} {:>6} {:>10} {:>10} {:>6}", "callers", "size", "one thread", "shared", "ratio");
    for n in [64, 128, 256, 512, 1024] {
        let mut operands = Operands::of_callers(callers, n);
        let start = Instant::now();
        pools[0].install(|| operands[0].multiply(1, || ()));
        let times = (SAMPLE / (start.elapsed().as_secs_f64() / 2.0 * callers as f64)).ceil() as usize;
        for are_jobs in [false, true] {
            let mut sample = |alone| {
                let seconds = match are_jobs {
                    true => from_jobs(&jobs, &pools, alone, &mut operands, times),
                    false => from_threads(&pools, alone, &mut operands, times),
                };
                seconds / (times * callers) as f64 * 1e6
            };
            let samples: Vec<_> = (0..SAMPLES).map(|_| [sample(true), sample(false)]).collect();
            let [alone, shared] = [0, 1].map(|at| median(samples.iter().map(|both| both[at]).collect()));
            let name = if are_jobs { "rayon jobs" } else { "threads" };
            println!("{name:>12} {n:>6} {alone:>10.1} {shared:>10.1} {:>6.2}", alone / shared);
        }
    }
}
