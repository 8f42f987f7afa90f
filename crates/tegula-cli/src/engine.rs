//! The seam between the command line and the library: plain functions, one for each thing the library does.

use std::time::Instant;

use serde::Serialize;
use tegula::element::{Element, bf16, f16};
use tegula::kernels::Variant;
#[cfg(feature = "cuda")]
use tegula::plan::Caps;
use tegula::{Device, Gemm, Matrix, Result, View, cpu, ir, oracle, ptx};

use crate::args::DeviceChoice;
use crate::report::devices::Device as Listed;
use crate::report::doctor::Gpu;

/// How a product was made.
#[derive(Clone, Debug, Serialize)]
pub struct Done {
    /// `cpu`, `cuda:0`, `interp`.
    pub device: String,
    /// The kernel that ran.
    pub kernel: String,
    /// The product alone, without reading and writing files. On a GPU this includes copying the matrices there and back, and where
    /// the kernel is not in the cache on disk, assembling it.
    pub seconds: f64,
}

/// How far a product is from the exact one.
#[derive(Clone, Debug, Serialize)]
pub struct Verified {
    /// Whether r is within the bound.
    pub ok: bool,
    /// The largest error, in the oracle's units; not finite (in JSON: null) where no number tells how wrong the product is.
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
    let device = match device {
        DeviceChoice::Auto => Device::best(),
        DeviceChoice::Cpu => Device::cpu(),
        DeviceChoice::Cuda(ordinal) => Device::cuda(ordinal)?,
        DeviceChoice::Interp => Device::interp(),
    };
    let product = Gemm::new(a, b, c.view_mut()).alpha(alpha).beta(beta).on(&device);
    let start = Instant::now();
    let report = product.run()?;
    Ok(Done { device: report.device, kernel: report.kernel, seconds: start.elapsed().as_secs_f64() })
}

/// Compares a product with a more exact one. `before` is C as it was, needed where `beta` is not 0.
pub fn verify<T: Element>(
    alpha: T::Acc,
    a: View<'_, T>,
    b: View<'_, T>,
    beta: T::Acc,
    before: Option<View<'_, T::Out>>,
    c: View<'_, T::Out>,
) -> Result<Verified> {
    let report = oracle::check(alpha, a, b, beta, before, c)?;
    let (_, row, col) = report.worst;
    let worst = (!c.shape().is_empty()).then_some([row, col]);
    let (r, bound) = (report.r, oracle::bound(a.shape().cols));
    // So that NaN is not within it.
    Ok(Verified { ok: r <= bound, r, bound, worst })
}

/// A kernel as PTX.
pub fn ptx(kernel: &Variant) -> Result<String> {
    Ok(ptx::print(&ir::check(kernel.build()?)?)?.text)
}

/// What products can run on; also what cannot be used, and why.
pub fn devices() -> Vec<Listed> {
    let interp = "runs GPU kernels on the processor, slowly, and checks them".into();
    let mut devices = vec![listed("cpu", processor()), listed("interp", Ok(interp))];
    match gpus() {
        Ok(gpus) => devices.extend(gpus.into_iter().map(|gpu| Listed {
            name: format!("cuda:{}", gpu.ordinal),
            description: gpu.to_string(),
            usable: gpu.usable,
        })),
        Err(error) => devices.push(listed("cuda", Err(error))),
    }
    devices
}

fn listed(name: &str, description: Result<String>) -> Listed {
    let usable = description.is_ok();
    Listed { name: name.into(), description: description.unwrap_or_else(|error| error.to_string()), usable }
}

/// `16 threads; avx2 fma; kernels avx2 f64 4x12, …`.
fn processor() -> Result<String> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let features: Vec<_> = cpu::features().into_iter().filter(|(_, has)| *has).map(|(name, _)| name).collect();
    let features = if features.is_empty() { "no vector features".into() } else { features.join(" ") };
    Ok(format!("{threads} threads; {features}; kernels {}", cpu_kernels()?.join(", ")))
}

/// The micro-kernel of each number type on the processor.
pub fn cpu_kernels() -> Result<Vec<String>> {
    Ok(vec![
        cpu::kernel_name::<f64>()?,
        cpu::kernel_name::<f32>()?,
        cpu::kernel_name::<f16>()?,
        cpu::kernel_name::<bf16>()?,
        cpu::kernel_name::<i32>()?,
        cpu::kernel_name::<i8>()?,
    ])
}

/// The GPUs that the driver shows.
#[cfg(feature = "cuda")]
pub fn gpus() -> Result<Vec<Gpu>> {
    let gpu = |gpu: tegula::cuda::DeviceInfo| Gpu {
        ordinal: gpu.ordinal,
        name: gpu.name,
        compute: gpu.compute,
        multiprocessors: gpu.multiprocessors,
        memory_bytes: gpu.memory_bytes,
        cuda: gpu.driver,
        usable: Caps::Gpu { compute: gpu.compute }.runs_kernels(),
    };
    Ok(tegula::cuda::devices()?.into_iter().map(gpu).collect())
}

#[cfg(not(feature = "cuda"))]
pub fn gpus() -> Result<Vec<Gpu>> {
    Err(tegula::Error::NoDriver { why: "this build is without its `cuda` feature".into() })
}
