//! The CPU product beside the `gemm` crate, in one process, turn about.
//!
//! `cargo run --release -p tegula --example cpu_vs_gemm [-- SIZE…]` prints for each size, type and number of threads the median rate of
//! both, the ratio of the medians, how far the same program strays from itself, and how exact each was.

use std::error::Error;
use std::time::{Duration, Instant};

use gemm::Parallelism;
use tegula::element::{Element, Scalar};
use tegula::{Matrix, Shape, cpu, oracle};

/// Each side is timed for about this long in each row.
const TIME: Duration = Duration::from_millis(1500);

fn main() -> Result<(), Box<dyn Error>> {
    let mut sizes = std::env::args().skip(1).map(|x| x.parse()).collect::<Result<Vec<usize>, _>>()?;
    if sizes.is_empty() {
        sizes = vec![64, 128, 256, 509, 512, 1024, 2048];
    }
    println!("{}; kernels: {}, {}", processor(), cpu::kernel_name::<f64>()?, cpu::kernel_name::<f32>()?);
    println!(
        "random values in ±1; medians; spread = the quarter-to-three-quarter range over the median; r in units of roundoff"
    );
    println!("type threads    n   tegula     gemm GFLOP/s  ratio  spread: tegula gemm    r: tegula    gemm");
    for threads in [1, 2] {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build()?;
        for &n in &sizes {
            println!("{}", pool.install(|| row::<f32>(n, threads))?);
            println!("{}", pool.install(|| row::<f64>(n, threads))?);
        }
    }
    Ok(())
}

/// A float type, with its random values.
trait Float: Element<Acc = Self, Out = Self> {
    fn random(bits: u64) -> Self;
}
impl Float for f32 {
    fn random(bits: u64) -> Self {
        (bits >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}
impl Float for f64 {
    fn random(bits: u64) -> Self {
        (bits >> 11) as f64 / (1u64 << 52) as f64 - 1.0
    }
}

fn row<T: Float>(n: usize, threads: usize) -> Result<String, tegula::Error> {
    let (shape, mut seed) = (Shape::new(n, n), 0x9E37_79B9_7F4A_7C15 ^ n as u64);
    let mut random = |_, _, _| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        T::random(seed)
    };
    let (a, b) = (Matrix::from_fn(shape, &mut random)?, Matrix::from_fn(shape, &mut random)?);
    let (mut ours, mut theirs) = (Matrix::zeros(shape)?, Matrix::zeros(shape)?);
    let (mut times, start) = ([Vec::new(), Vec::new()], Instant::now());
    while start.elapsed() < 2 * TIME || times[0].len() < 5 {
        let began = Instant::now();
        cpu::gemm::<T>(T::ONE, a.view(), b.view(), T::ZERO, ours.view_mut())?;
        let turn = Instant::now();
        peer(n, &a, &b, &mut theirs, threads);
        times[0].push(turn - began);
        times[1].push(turn.elapsed());
    }
    let exact = |c: &Matrix<T>| Ok(oracle::check::<T>(T::ONE, a.view(), b.view(), T::ZERO, None, c.view())?.r);
    let [(ours_at, ours_spread), (theirs_at, theirs_spread)] = times.map(summary);
    let rate = |seconds: f64| 2.0 * (n as f64).powi(3) / seconds / 1e9;
    Ok(format!(
        "{:4} {threads:7} {n:4} {:8.1} {:8.1} {:14.3} {:14.1}% {:4.1}% {:12.2} {:7.2}",
        T::TYPE,
        rate(ours_at),
        rate(theirs_at),
        theirs_at / ours_at,
        100.0 * ours_spread,
        100.0 * theirs_spread,
        exact(&ours)?,
        exact(&theirs)?
    ))
}

fn peer<T: Scalar>(n: usize, a: &Matrix<T>, b: &Matrix<T>, c: &mut Matrix<T>, threads: usize) {
    let (row, col) = (n as isize, 1);
    let (a, b, c) = (a.as_slice().as_ptr(), b.as_slice().as_ptr(), c.as_mut_slice().as_mut_ptr());
    let parallelism = if threads == 1 { Parallelism::None } else { Parallelism::Rayon(threads) };
    let (keep, scale) = (T::ZERO, T::ONE);
    // SAFETY: the three matrices are n×n, row-major.
    unsafe {
        gemm::gemm(n, n, n, c, col, row, false, a, col, row, b, col, row, keep, scale, false, false, false, parallelism)
    }
}

/// Median in seconds, and the range of the middle half as a part of it.
fn summary(mut times: Vec<Duration>) -> (f64, f64) {
    times.sort_unstable();
    let at = |part: usize| times[(times.len() - 1) * part / 4].as_secs_f64();
    (at(2), (at(3) - at(1)) / at(2))
}

fn processor() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let name = info.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or("unknown processor");
    let count = std::thread::available_parallelism().map_or(1, usize::from);
    format!("{}, {count} processors", name.trim_start_matches([' ', '\t', ':']))
}
