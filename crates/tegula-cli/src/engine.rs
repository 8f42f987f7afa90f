//! The seam between the command line and the library: plain functions, one for each thing the library does.

use std::time::Instant;

use serde::Serialize;
use tegula::element::{Arith, Element, Scalar, Type};
use tegula::{Error, Matrix, Result, View};

use crate::args::DeviceChoice;
use crate::kernel::{Problem, Variant};
use crate::report::check::CheckReport;
use crate::report::devices::Device;

/// How a product was made.
#[derive(Clone, Debug, Serialize)]
pub struct Done {
    /// `cpu`, `cuda:0`, `interp`.
    pub device: String,
    /// The kernel that ran.
    pub kernel: String,
    /// The product alone, without reading and writing files.
    pub seconds: f64,
}

/// How far a product is from the exact one.
#[derive(Clone, Debug, Serialize)]
pub struct Verified {
    /// The largest error, in units of u·(|α||A||B| + |β||C₀|).
    pub r: f64,
    /// What r may be.
    pub bound: f64,
    /// Row and column of the worst element; `None` in an empty matrix.
    pub worst: Option<[usize; 2]>,
}

/// C = alpha·A·B + beta·C.
pub fn multiply<T: Element>(
    device: DeviceChoice,
    alpha: T::Acc,
    a: View<'_, T>,
    b: View<'_, T>,
    beta: T::Acc,
    c: &mut Matrix<T::Out>,
) -> Result<Done> {
    match device {
        DeviceChoice::Auto | DeviceChoice::Cpu => {}
        DeviceChoice::Cuda(_) => return Err(Error::NoDriver { why: "this build has no GPU engine".into() }),
        DeviceChoice::Interp => return Err(unconnected("the interpreter")),
    }
    let start = Instant::now();
    let n = c.shape().cols;
    for (position, out) in c.as_mut_slice().iter_mut().enumerate() {
        let (row, col) = (position / n, position % n);
        let mut sum = T::Acc::ZERO;
        for p in 0..a.shape().cols {
            let (Some(x), Some(y)) = (a.get(0, row, p), b.get(0, p, col)) else { continue };
            sum = mul_add(x.widen(), y.widen(), sum);
        }
        let scaled = if beta == T::Acc::ZERO { T::Acc::ZERO } else { mul_add(beta, T::widen_out(*out), T::Acc::ZERO) };
        *out = T::narrow(mul_add(alpha, sum, scaled));
    }
    Ok(Done { device: "cpu".into(), kernel: format!("loop {}", T::TYPE), seconds: start.elapsed().as_secs_f64() })
}

/// Compares a product with a more exact one. `before` is C as it was.
pub fn verify<T: Element>(
    alpha: T::Acc,
    a: View<'_, T>,
    b: View<'_, T>,
    beta: T::Acc,
    before: Option<View<'_, T::Out>>,
    c: View<'_, T::Out>,
) -> Result<Verified> {
    let (k, shape) = (a.shape().cols, c.shape());
    let mut found = Verified { r: 0.0, bound: k as f64 + 4.0, worst: None };
    for (row, col) in (0..shape.rows).flat_map(|row| (0..shape.cols).map(move |col| (row, col))) {
        let (mut exact, mut size) = (0.0, 0.0);
        for p in 0..k {
            let (Some(x), Some(y)) = (a.get(0, row, p), b.get(0, p, col)) else { continue };
            let term = float(alpha) * float(x.widen()) * float(y.widen());
            (exact, size) = (exact + term, size + term.abs());
        }
        if let Some(old) = before.and_then(|before| before.get(0, row, col)) {
            let term = float(beta) * float(T::widen_out(old));
            (exact, size) = (exact + term, size + term.abs());
        }
        let got = c.get(0, row, col).map_or(f64::NAN, |x| float(T::widen_out(x)));
        let r = error_of::<T>(got, exact, size);
        if found.worst.is_none() || r.is_nan() || r > found.r {
            (found.r, found.worst) = (r, Some([row, col]));
        }
    }
    Ok(found)
}

/// Runs a kernel in the interpreter, with every check.
pub fn check(problem: &Problem) -> Result<CheckReport> {
    block_fits(&problem.kernel)?;
    Err(unconnected("the interpreter"))
}

/// A kernel as PTX.
pub fn ptx(kernel: &Variant) -> Result<String> {
    block_fits(kernel)?;
    Err(unconnected("the PTX printer"))
}

/// What products can run on, best first.
pub fn devices() -> Vec<Device> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    vec![Device { name: "cpu".into(), description: format!("{threads} threads"), usable: true }]
}

fn unconnected(what: &str) -> Error {
    Error::KernelOption(format!("{what} is not part of this build"))
}

fn block_fits(kernel: &Variant) -> Result<()> {
    let threads = u64::from(kernel.tile) * u64::from(kernel.tile);
    if threads <= 1024 {
        return Ok(());
    }
    let tile = kernel.tile;
    Err(Error::KernelOption(format!(
        "tile {tile} makes blocks of {tile}×{tile} = {threads} threads; a block holds 1024: give --tile 32 or less"
    )))
}

fn mul_add<A: Arith>(a: A, b: A, c: A) -> A {
    let [x, y, z] = [a, b, c].map(Scalar::to_bits);
    A::from_bits(match A::TYPE {
        Type::F64 => (f64::from_bits(x) * f64::from_bits(y) + f64::from_bits(z)).to_bits(),
        Type::F32 => {
            let [x, y, z] = [x, y, z].map(|bits| f32::from_bits(bits as u32));
            u64::from((x * y + z).to_bits())
        }
        _ => x.wrapping_mul(y).wrapping_add(z),
    })
}

fn float<A: Arith>(value: A) -> f64 {
    match A::TYPE {
        Type::F64 => f64::from_bits(value.to_bits()),
        Type::F32 => f64::from(f32::from_bits(value.to_bits() as u32)),
        _ => f64::from(value.to_bits() as u32 as i32),
    }
}

fn error_of<T: Element>(got: f64, exact: f64, size: f64) -> f64 {
    let u = match T::Out::TYPE {
        Type::F64 => 2f64.powi(-53),
        Type::F32 => 2f64.powi(-24),
        Type::F16 => 2f64.powi(-11),
        Type::BF16 => 2f64.powi(-8),
        _ => return if got == exact { 0.0 } else { f64::INFINITY },
    };
    let agree = got == exact || (got.is_nan() && !exact.is_finite());
    if agree { 0.0 } else { (got - exact).abs() / (u * size) }
}
