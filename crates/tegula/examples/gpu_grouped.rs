//! A layer of experts on a GPU: 64 groups of rows, ragged, each with a matrix of its own, in one launch; against a loop of products, of ours and,
//! where it is installed, of cublasLt with the best of its candidates for each group.
//!
//!     cargo run --release -p tegula --example gpu_grouped
//!
//! Each way is recorded once and launched from then on, in turns with the others, so that the host's time is in none of them.

use std::error::Error;

use tegula::cuda::{CublasLt, DeviceMatrix, Gpu, Graph, Operands, Repeat};
use tegula::element::bf16;
use tegula::epilogue::Activation;
use tegula::{Accuracy, Device, Gemm, Grouped, Matrix, Result, Shape};

type Fallible<T = ()> = std::result::Result<T, Box<dyn Error>>;

const EXPERTS: usize = 64;
/// Most rows of a group.
const MOST: usize = 2048;
const N: usize = 4096;
const K: usize = 2048;
/// Rounds that are counted, and launches in each.
const ROUNDS: usize = 21;
const LAUNCHES: usize = 3;

fn main() -> Fallible {
    let gpu = Gpu::open(0)?;
    let device = Device::from(gpu.clone());
    let mut random = Random(1);
    let sizes: Vec<usize> = (0..EXPERTS).map(|_| (random.next() >> 33) as usize % (MOST + 1)).collect();
    let rows: usize = sizes.iter().sum();
    let flops = 2.0 * (rows * N * K) as f64;
    println!("{}: {EXPERTS} groups of 0 to {MOST} rows, {rows} in all, n = {N}, k = {K}, bf16", gpu.info().name);

    let numbers = |shape, random: &mut Random| Matrix::<bf16>::from_fn(shape, |_, _, _| random.number());
    let host_a = numbers(Shape::new(rows, K), &mut random)?;
    let host_b = numbers(Shape { batches: EXPERTS, rows: K, cols: N }, &mut random)?;
    let (a, b) = (DeviceMatrix::upload(&gpu, host_a.view())?, DeviceMatrix::upload(&gpu, host_b.view())?);
    let mut c: [DeviceMatrix<bf16>; 2] =
        [DeviceMatrix::zeros(&gpu, Shape::new(rows, N))?, DeviceMatrix::zeros(&gpu, Shape::new(rows, N))?];
    let [at_once, one_by_one] = &mut c;

    let mut kernel = String::new();
    let mut grouped = || {
        let report = Grouped::new(a.view(), b.view(), at_once.view_mut(), &sizes).on(&device).run()?;
        kernel = report.kernel.into();
        Ok(())
    };
    let mut ways = vec![("one launch", recorded(&gpu, &mut grouped)?)];
    let mut looped = || {
        groups(&sizes).try_for_each(|(group, rows)| {
            let (a, b) = (a.view().rows(rows.clone())?, b.view().batches(group..=group)?);
            Gemm::new(a, b, one_by_one.view_mut().rows(rows)?).on(&device).run().map(drop)
        })
    };
    ways.push(("a loop of ours", recorded(&gpu, &mut looped)?));

    // Candidates live as long as the graph that was recorded from them.
    let library = CublasLt::open(&gpu);
    let operands = groups(&sizes).map(|(group, rows)| {
        let (a, b) = (host_a.view().rows(rows.clone())?, host_b.view().batches(group..=group)?);
        Operands::upload(&gpu, [a, b], [false; 2], Matrix::zeros(Shape::new(rows.len(), N))?.view(), 1)
    });
    let operands: Vec<Operands<bf16>> = if library.is_ok() { operands.collect::<Result<_>>()? } else { Vec::new() };
    let candidates = match &library {
        Ok(library) => {
            let products = |operands| library.products(operands, Accuracy::Full, Activation::None);
            operands.iter().map(products).collect::<Result<Vec<_>>>()?
        }
        Err(why) => {
            println!("{why}");
            Vec::new()
        }
    };
    let mut best: Vec<Repeat<'_, bf16>> = Vec::new();
    for (operands, candidates) in operands.iter().zip(&candidates) {
        let mut fastest = None;
        for which in 0..candidates.len() {
            let mut repeat = Repeat::new(operands, move |a, b, c| candidates.queue(which, 1.0, [a, b], 0.0, c));
            // A candidate that fails is none.
            let Ok(times) = repeat.once().and_then(|()| repeat.time(3, 3)) else { continue };
            let time = times.into_iter().fold(f64::INFINITY, f64::min);
            if fastest.as_ref().is_none_or(|(least, _)| time < *least) {
                fastest = Some((time, repeat));
            }
        }
        best.push(fastest.ok_or("cublasLt has no candidate")?.1);
    }
    if library.is_ok() {
        ways.push(("a loop of cublasLt", recorded(&gpu, &mut || best.iter_mut().try_for_each(Repeat::once))?));
    }

    let mut seconds = vec![Vec::new(); ways.len()];
    for round in 0..=ROUNDS {
        for ((_, graph), seconds) in ways.iter().zip(&mut seconds) {
            // SAFETY: all that was recorded is alive until the host has waited, which `time` does, and all work is on one stream.
            let spent = gpu.time(|| (0..LAUNCHES).try_for_each(|_| unsafe { graph.launch() }))? / LAUNCHES as f64;
            // The first round warms up.
            if round > 0 {
                seconds.push(spent);
            }
        }
    }
    println!("{kernel}\n{:20}      ms   TFLOP/s   one launch is faster by", "");
    let medians: Vec<f64> = seconds.iter_mut().map(|seconds| median(seconds)).collect();
    for ((name, _), median) in ways.iter().zip(&medians) {
        println!("{name:20} {:7.3}   {:7.1}   {:.3}", median * 1e3, flops / median / 1e12, median / medians[0]);
    }
    let [at_once, one_by_one] = [c[0].download()?, c[1].download()?];
    let pairs = at_once.as_slice().iter().zip(one_by_one.as_slice());
    let apart = pairs.map(|(x, y)| (x.to_f32() - y.to_f32()).abs()).fold(0.0, f32::max);
    println!("elements of C differ by {apart:e} at most");
    Ok(())
}

/// Each group that has rows, and these.
fn groups(sizes: &[usize]) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
    let ends = sizes.iter().scan(0, |end, size| {
        *end += size;
        Some(*end - size..*end)
    });
    ends.enumerate().filter(|(_, rows)| !rows.is_empty())
}

/// Runs something once, so that what it needs is there, and records it.
fn recorded(gpu: &Gpu, work: &mut dyn FnMut() -> Result<()>) -> Result<Graph> {
    work()?;
    gpu.synchronize()?;
    gpu.capture(work)
}

fn median(seconds: &mut [f64]) -> f64 {
    seconds.sort_by(f64::total_cmp);
    seconds[seconds.len() / 2]
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        self.0
    }

    /// Between −½ and ½.
    fn number(&mut self) -> bf16 {
        bf16::from_f32((self.next() >> 40) as f32 / (1u64 << 24) as f32 - 0.5)
    }
}
