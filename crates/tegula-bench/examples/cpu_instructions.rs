//! A repeated CPU product on one thread, for counting instructions.
//!
//! `valgrind --tool=callgrind cpu_instructions ours|gemm f32|f64 SIZE TIMES`: the difference
//! between two values of TIMES excludes the start-up. Valgrind does not support AVX-512, so both
//! libraries use AVX2.

use std::error::Error;

use gemm::Parallelism;
use tegula::Matrix;
use tegula::element::{Element, Scalar};
use tegula_cpu as cpu;

const USAGE: &str = "usage: cpu_instructions ours|gemm f32|f64 SIZE TIMES";

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let [library, ty, size, times] = words.try_into().map_err(|_| USAGE)?;
    let (size, times) = (size.parse()?, times.parse()?);
    match (library.as_str(), ty.as_str()) {
        ("ours", "f32") => ours::<f32>(size, times)?,
        ("ours", "f64") => ours::<f64>(size, times)?,
        ("gemm", "f32") => peer::<f32>(size, times)?,
        ("gemm", "f64") => peer::<f64>(size, times)?,
        _ => return Err(USAGE.into()),
    }
    Ok(())
}

fn ours<T: Element<Acc = T, Out = T>>(n: usize, times: usize) -> Result<(), tegula::Error> {
    let (a, mut c) = (ones::<T>(n)?, ones::<T>(n)?);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().expect("a pool of one thread");
    pool.install(|| (0..times).try_for_each(|_| cpu::gemm::<T>(T::ONE, a.view(), a.view(), T::ZERO, c.view_mut())))
}

fn peer<T: Element>(n: usize, times: usize) -> Result<(), tegula::Error> {
    let (a, mut c) = (ones::<T>(n)?, ones::<T>(n)?);
    let (row, a, c) = (n as isize, a.as_slice().as_ptr(), c.as_mut_slice().as_mut_ptr());
    let (beta, alpha, serial) = (T::ZERO, T::ONE, Parallelism::None);
    for _ in 0..times {
        // SAFETY: both matrices are n×n, row-major, and C is not read.
        unsafe { gemm::gemm(n, n, n, c, 1, row, false, a, 1, row, a, 1, row, beta, alpha, false, false, false, serial) }
    }
    Ok(())
}

fn ones<T: Scalar>(n: usize) -> Result<Matrix<T>, tegula::Error> {
    Matrix::from_fn(n, n, |_, _| T::ONE)
}
