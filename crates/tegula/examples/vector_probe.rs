//! Times the kernels for few rows or columns in many shapes and holds their results against the tiled kernel's.
//!
//!     cargo run --release --example vector_probe [f32|f64|f16]
//!     cargo run --release --example vector_probe -- ptx FOLDER

use std::error::Error;

use tegula::cuda::{DeviceMatrix, Gpu};
use tegula::element::{Element, Type, f16};
use tegula::ir::{Order2d, check};
use tegula::kernels::{Family, Plain, Vector};
use tegula::plan::{Plan, Recipe};
use tegula::{Device, Executor, Gemm, Matrix, Shape, ptx};

type Fallible<T = ()> = Result<T, Box<dyn Error>>;

trait Sample: Element {
    fn of(x: f64) -> Self;
    fn to(out: Self::Out) -> f64;
}
impl Sample for f32 {
    fn of(x: f64) -> Self {
        x as f32
    }
    fn to(out: f32) -> f64 {
        out.into()
    }
}
impl Sample for f64 {
    fn of(x: f64) -> Self {
        x
    }
    fn to(out: f64) -> f64 {
        out
    }
}
impl Sample for f16 {
    fn of(x: f64) -> Self {
        f16::from_f64(x)
    }
    fn to(out: f16) -> f64 {
        out.into()
    }
}

/// A product: m, n, k, and whether B lies along k.
type Case = (usize, usize, usize, bool);

const CASES: [Case; 16] = [
    (1, 4096, 4096, false),
    (2, 4096, 4096, false),
    (4, 4096, 4096, false),
    (8, 4096, 4096, false),
    (16, 4096, 4096, false),
    (1, 4096, 4096, true),
    (4, 4096, 4096, true),
    (16, 4096, 4096, true),
    (1, 8192, 8192, false),
    (16, 8192, 8192, false),
    (1, 8192, 8192, true),
    (16, 8192, 8192, true),
    (1, 2048, 2048, false),
    (1, 4097, 4095, false),
    (1, 4097, 4095, true),
    (4, 1024, 65536, false),
];

fn main() -> Fallible {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    if let ["ptx", folder] = arguments[..] {
        return texts(folder);
    }
    let gpu = Gpu::open(0)?;
    println!("{}", gpu.info().name);
    let wants = |name: &str| arguments.is_empty() || arguments.contains(&name);
    if wants("f32") {
        all::<f32>(&gpu)?;
    }
    if wants("f64") {
        all::<f64>(&gpu)?;
    }
    if wants("f16") {
        all::<f16>(&gpu)?;
    }
    Ok(())
}

/// The PTX of candidates, for the assembler.
fn texts(folder: &str) -> Fallible {
    for ty in [Type::F32, Type::F64, Type::F16, Type::I8] {
        for rows in [1, 4, 16] {
            for along_k in [false, true] {
                for vector in Vector::candidates(ty, rows, along_k, true).into_iter().take(3) {
                    let b = if along_k { Order2d::ColMajor } else { Order2d::RowMajor };
                    let orders = [Order2d::RowMajor, b, Order2d::RowMajor];
                    let vector = Vector { orders, vectors: true, split: true, ..vector };
                    let text = ptx::print(&check(vector.build()?)?)?.text;
                    std::fs::write(format!("{folder}/{vector}.ptx"), text)?;
                }
            }
        }
    }
    Ok(())
}

fn all<T: Sample>(gpu: &Gpu) -> Fallible {
    CASES.into_iter().try_for_each(|case| time_case::<T>(gpu, case))
}

fn random<T: Sample>(rows: usize, cols: usize, seed: u64) -> Fallible<Matrix<T>> {
    let mut state = seed;
    Ok(Matrix::from_fn(Shape::new(rows, cols), |_, _, _| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        T::of((state >> 40) as f64 / (1u64 << 23) as f64 - 1.0)
    })?)
}

fn time_case<T: Sample>(gpu: &Gpu, (m, n, k, along_k): Case) -> Fallible {
    let device = Device::from(gpu.clone());
    let b_host = if along_k { random::<T>(n, k, 1)? } else { random::<T>(k, n, 1)? };
    let bytes = k * n * T::TYPE.size();
    // Together more than three times the L2 cache of 60 MB.
    let copies = (200usize << 20).div_ceil(bytes).max(2);
    let a = DeviceMatrix::upload(gpu, random::<T>(m, k, 2)?.view())?;
    let b: Vec<_> = (0..copies).map(|_| DeviceMatrix::upload(gpu, b_host.view())).collect::<Result<_, _>>()?;
    let b = |i: usize| if along_k { b[i % copies].view().t() } else { b[i % copies].view() };
    let mut c = DeviceMatrix::<T::Out>::zeros(gpu, Shape::new(m, n))?;
    let plain = Plan::Gpu(Plain::new(Family::Tiled, T::TYPE, 8).into());
    device.run(&plain, Gemm::new(a.view(), b(0), c.view_mut()))?;
    let expected = c.download()?;
    let (rounds, least) = (20 * copies.max(4), bytes as f64);
    let vectors = if along_k { k } else { n }.is_multiple_of(16 / T::TYPE.size());
    let mut results = Vec::new();
    for vector in Vector::candidates(T::TYPE, m, along_k, vectors) {
        let blocks = n.div_ceil((vector.across * vector.cols) as usize);
        for parts in [1, 2, 4, 8, 16, 32] {
            let steps = k.div_ceil(vector.step() as usize);
            // From half a block to eight blocks for each of 132 multiprocessors, and a step at least for each.
            if !(66..=132 * 8).contains(&(blocks * parts)) && parts > 1 || parts > steps {
                continue;
            }
            let recipe = Recipe { parts: parts as u32, ..vector.into() };
            let mut run = |recipe, i| device.run(&Plan::Gpu(recipe), Gemm::new(a.view(), b(i), c.view_mut()));
            // Not timed: loads the kernel.
            run(recipe, 0)?;
            let seconds = (0..3)
                .map(|_| gpu.time(|| (0..rounds).try_for_each(|i| run(recipe, i).map(drop))))
                .collect::<Result<Vec<_>, _>>()?;
            let seconds = seconds.into_iter().fold(f64::MAX, f64::min) / rounds as f64;
            let error = difference::<T>(&c.download()?, &expected, k);
            results.push((seconds, recipe.name(), blocks * parts, error));
        }
    }
    results.sort_by(|a, b| a.0.total_cmp(&b.0));
    println!("\n{} {m}x{n}x{k} {}: {copies} copies of {} MB", T::TYPE, if along_k { "nt" } else { "nn" }, bytes >> 20);
    let worst = results.iter().map(|r| r.3).fold(0.0, f64::max);
    println!("  {} variants, worst difference {worst:.2} {}", results.len(), if worst <= 1.0 { "ok" } else { "WRONG" });
    for (seconds, name, blocks, error) in results.iter().take(6).chain(results.last()) {
        let rate = least / seconds / 1e12;
        println!("  {:8.2} us {rate:6.3} TB/s {blocks:5} blocks  {error:.2}  {name}", seconds * 1e6);
    }
    Ok(())
}

/// The largest difference, as a part of what rounding allows for products of numbers from −1 to 1.
fn difference<T: Sample>(c: &Matrix<T::Out>, expected: &Matrix<T::Out>, k: usize) -> f64 {
    let unit = match T::TYPE {
        Type::F64 => 2f64.powi(-53),
        Type::F32 => 2f64.powi(-24),
        _ => 2f64.powi(-11),
    };
    let allowed = 8.0 * unit * k as f64;
    let pairs = c.as_slice().iter().zip(expected.as_slice());
    let parts = pairs.map(|(&a, &b)| (T::to(a) - T::to(b)).abs() / allowed);
    parts.map(|part| if part.is_nan() { f64::INFINITY } else { part }).fold(0.0, f64::max)
}
