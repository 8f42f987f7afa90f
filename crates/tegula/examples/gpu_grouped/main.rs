//! A layer of experts on a GPU: 64 ragged groups of rows with their own matrices, in one launch.
//!
//! It is compared with a loop of products and, where installed, loops of cublasLt with the best
//! candidate for each group, on one stream and on several, and the grouped GEMM of cuBLAS.
//!
//!     cargo run --release -p tegula --example gpu_grouped
//!
//! Each variant is captured once, then launched interleaved with the others, so that no time
//! includes the host. The grouped GEMM of cuBLAS is called directly, ahead of the GPU.

mod cublas;

use std::error::Error;

use tegula::cuda::{DeviceMatrix, Gpu};
use tegula::element::bf16;
use tegula::epilogue::Activation;
use tegula::tune::graph_timer::GraphTimer;
use tegula::tune::interleave::Timed;
use tegula::tune::operand_sets::OperandSets;
use tegula::{Accuracy, Device, Gemm, Grouped, Matrix, Result, Shape};
use tegula_bench::cublaslt::CublasLt;

type Fallible<T = ()> = std::result::Result<T, Box<dyn Error>>;

const EXPERTS: usize = 64;
/// Most rows of a group.
const MOST: usize = 2048;
const N: usize = 4096;
const K: usize = 2048;
/// Timed rounds.
const ROUNDS: usize = 21;
/// Launches per round.
const LAUNCHES: usize = 3;
/// Streams of the multi-stream loop.
const STREAMS: usize = 4;

fn main() -> Fallible {
    let gpu = Gpu::open(0)?;
    let device = Device::from(gpu.clone());
    let mut random = Random(1);
    let sizes: Vec<usize> = (0..EXPERTS).map(|_| (random.next() >> 33) as usize % (MOST + 1)).collect();
    let rows: usize = sizes.iter().sum();
    let flops = 2.0 * (rows * N * K) as f64;
    println!("{}: {EXPERTS} groups of 0 to {MOST} rows, {rows} in all, n = {N}, k = {K}, bf16", gpu.info().name);

    let numbers = |shape, random: &mut Random| Matrix::<bf16>::from_shape_fn(shape, |_, _, _| random.number());
    let host_a = numbers(Shape::new(rows, K), &mut random)?;
    let host_b = numbers(Shape { batches: EXPERTS, rows: K, cols: N }, &mut random)?;
    let (a, b) = (DeviceMatrix::upload(&gpu, host_a.view())?, DeviceMatrix::upload(&gpu, host_b.view())?);
    let mut c = [(); 3].map(|()| DeviceMatrix::<bf16>::zeros(&gpu, Shape::new(rows, N)));
    let [Ok(at_once), Ok(one_by_one), Ok(theirs)] = &mut c else {
        return Err("C does not fit the GPU's memory".into());
    };

    let mut kernel = String::new();
    let grouped = || {
        let report = Grouped::new(a.view(), b.view(), at_once.view_mut(), &sizes).on(&device).run()?;
        kernel = report.kernel.into();
        Ok(())
    };
    let in_one_launch = captured(&gpu, grouped)?;
    let looped = || {
        groups(&sizes).try_for_each(|(group, rows)| {
            let (a, b) = (a.view().rows(rows.clone())?, b.view().batches(group..=group)?);
            Gemm::new(a, b, one_by_one.view_mut().rows(rows)?).on(&device).run().map(drop)
        })
    };
    let in_a_loop = captured(&gpu, looped)?;

    // The first stream is the timed one. Candidates live as long as the graph captured from them.
    let streams = (1..STREAMS).map(|_| Ok(gpu.with_stream(gpu.context().new_stream()?)?));
    let streams: Vec<Gpu> = std::iter::once(Ok(gpu.clone())).chain(streams).collect::<Fallible<_>>()?;
    let libraries: Result<Vec<CublasLt>> = streams.iter().map(CublasLt::open).collect();
    let libraries = libraries.unwrap_or_else(|why| {
        println!("{why}");
        Vec::new()
    });
    // All groups on one stream, then on several.
    let placements =
        [1, STREAMS].into_iter().flat_map(|count| groups(&sizes).enumerate().map(move |(i, group)| (i % count, group)));
    let placements: Vec<_> = placements.filter(|_| !libraries.is_empty()).collect();
    let operands = placements.iter().map(|(stream, (group, rows))| {
        let (a, b) = (host_a.view().rows(rows.clone())?, host_b.view().batches(*group..=*group)?);
        OperandSets::upload(&streams[*stream], [a, b], [false; 2], Matrix::zeros(rows.len(), N)?.view(), 1)
    });
    let operands: Vec<OperandSets<bf16>> = operands.collect::<Result<_>>()?;
    let candidates = placements.iter().zip(&operands);
    let candidates = candidates
        .map(|((stream, _), operands)| libraries[*stream].candidates(operands, Accuracy::Full, Activation::None));
    let candidates = candidates.collect::<Result<Vec<_>>>()?;
    let mut best: Vec<GraphTimer<'_, bf16>> = Vec::new();
    for (operands, candidates) in operands.iter().zip(&candidates) {
        let mut fastest = None;
        for which in 0..candidates.len() {
            let mut repeat = GraphTimer::new(operands, move |a, b, c| candidates.queue(which, 1.0, [a, b], 0.0, c));
            // Skip a candidate that fails.
            let Ok(times) = repeat.run_once().and_then(|()| repeat.time(3, 3)) else { continue };
            let time = times.into_iter().fold(f64::INFINITY, f64::min);
            if fastest.as_ref().is_none_or(|(least, _)| time < *least) {
                fastest = Some((time, repeat));
            }
        }
        best.push(fastest.ok_or("cublasLt has no candidate")?.1);
    }
    let library = cublas::Library::open(&gpu, &sizes, [&a, &b, theirs])?;
    let mut variants = vec![("one launch", in_one_launch), ("a loop of Gemm", in_a_loop)];
    if !libraries.is_empty() {
        let (one, several) = best.split_at_mut(placements.len() / 2);
        variants.push(("a loop of cublasLt", captured(&gpu, || one.iter_mut().try_for_each(GraphTimer::run_once))?));
        let others = &streams[1..];
        let on_streams = || {
            others.iter().try_for_each(|other| other.wait_for(&gpu))?;
            several.iter_mut().try_for_each(GraphTimer::run_once)?;
            others.iter().try_for_each(|other| gpu.wait_for(other))
        };
        variants.push(("the same, 4 streams", captured(&gpu, on_streams)?));
    }
    if let Some(library) = &library {
        // SAFETY: the matrices outlive this function, which waits for the GPU.
        let call = || unsafe { library.queue() };
        match call().and_then(|()| gpu.synchronize()) {
            Ok(()) => variants.push(("cuBLAS, grouped", Box::new(call))),
            Err(why) => println!("{why}"),
        }
    }

    let mut seconds = vec![Vec::new(); variants.len()];
    for round in 0..=ROUNDS {
        for ((_, variant), seconds) in variants.iter_mut().zip(&mut seconds) {
            let spent = gpu.time(|| (0..LAUNCHES).try_for_each(|_| variant()))? / LAUNCHES as f64;
            // The first round warms up.
            if round > 0 {
                seconds.push(spent);
            }
        }
    }
    let names: Vec<&str> = variants.into_iter().map(|(name, _)| name).collect();
    println!("{kernel}\n{:20}      ms   TFLOP/s   one launch is faster by", "");
    let medians: Vec<f64> = seconds.iter_mut().map(|seconds| median(seconds)).collect();
    for (name, median) in names.iter().zip(&medians) {
        println!("{name:20} {:7.3}   {:7.1}   {:.3}", median * 1e3, flops / median / 1e12, median / medians[0]);
    }
    let ours = at_once.download()?;
    for (name, other) in [("a loop of Gemm", &*one_by_one), ("cuBLAS's", &*theirs)] {
        let other = other.download()?;
        let pairs = ours.as_slice().iter().zip(other.as_slice());
        let apart = pairs.map(|(x, y)| (x.to_f32() - y.to_f32()).abs()).fold(0.0, f32::max);
        println!("elements of C differ from those of {name} by {apart:e} at most");
    }
    Ok(())
}

/// Queues all groups once.
type Variant<'a> = dyn FnMut() -> Result<()> + 'a;

/// The index and rows of each nonempty group.
fn groups(sizes: &[usize]) -> impl Iterator<Item = (usize, std::ops::Range<usize>)> {
    let ends = sizes.iter().scan(0, |end, size| {
        *end += size;
        Some(*end - size..*end)
    });
    ends.enumerate().filter(|(_, rows)| !rows.is_empty())
}

/// Runs work once, to load its kernels and allocate its workspaces, and captures it.
fn captured<'a>(gpu: &Gpu, mut work: impl FnMut() -> Result<()> + 'a) -> Result<Box<Variant<'a>>> {
    work()?;
    gpu.synchronize()?;
    let graph = gpu.capture(&mut work)?;
    // The closure borrows what the graph uses, so it lives as long as the graph.
    let launch = move || {
        let _ = &work;
        // SAFETY: everything captured is alive until `time` has waited, and all work starts and
        // ends on one stream.
        unsafe { graph.launch() }
    };
    Ok(Box::new(launch))
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

    /// Approximately normal: a sum of four uniform numbers, standard deviation 1.
    fn number(&mut self) -> bf16 {
        let bits = self.next() ^ self.next() >> 32;
        let sum: u64 = (0..4).map(|part| bits >> (16 * part) & 0xffff).sum();
        bf16::from_f32((sum as f32 / 65_536.0 - 2.0) * 3f32.sqrt())
    }
}
