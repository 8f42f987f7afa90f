//! One CPU product, over and over on one thread, for a tool that counts instructions.
//!
//! `valgrind --tool=callgrind cpu_instructions ours|gemm f32|f64 SIZE TIMES`: twice as many TIMES cost what those products take, without what
//! it takes to start. Valgrind knows no AVX-512, so there both sides use AVX2.

use std::error::Error;

use gemm::Parallelism;
use tegula::Matrix;
use tegula::element::{Element, Scalar};
use tegula_cpu as cpu;

const USAGE: &str = "usage: cpu_instructions ours|gemm f32|f64 SIZE TIMES";

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let [side, ty, size, times] = words.try_into().map_err(|_| USAGE)?;
    let (size, times) = (size.parse()?, times.parse()?);
    match (side.as_str(), ty.as_str()) {
        ("ours", "f32") => ours::<f32>(size, times)?,
        ("ours", "f64") => ours::<f64>(size, times)?,
        ("gemm", "f32") => theirs::<f32>(size, times)?,
        ("gemm", "f64") => theirs::<f64>(size, times)?,
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

fn ours<T: Element<Acc = T, Out = T>>(n: usize, times: usize) -> Result<(), tegula::Error> {
    let (a, mut c) = (ones::<T>(n)?, ones::<T>(n)?);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool of one thread");
    pool.install(|| (0..times).try_for_each(|_| cpu::gemm::<T>(T::ONE, a.view(), a.view(), T::ZERO, c.view_mut())))
}

fn theirs<T: Element>(n: usize, times: usize) -> Result<(), tegula::Error> {
    let (a, mut c) = (ones::<T>(n)?, ones::<T>(n)?);
    let (row, a, c) = (n as isize, a.as_slice().as_ptr(), c.as_mut_slice().as_mut_ptr());
    let (keep, scale, alone) = (T::ZERO, T::ONE, Parallelism::None);
    for _ in 0..times {
        // SAFETY: both matrices are n×n, row-major, and C is not read.
        unsafe { gemm::gemm(n, n, n, c, 1, row, false, a, 1, row, a, 1, row, keep, scale, false, false, false, alone) }
    }
    Ok(())
}

fn ones<T: Scalar>(n: usize) -> Result<Matrix<T>, tegula::Error> {
    Matrix::from_fn(n, n, |_, _| T::ONE)
}
