//! Roofline limits of a device: memory bandwidth and peak instruction throughput.

use tegula::Device;
#[cfg(feature = "cuda")]
use tegula::cuda::{Buffer, Gpu};
use tegula::element::Type;
use tegula::error::Result;
use tegula::matrix::Matrix;
#[cfg(feature = "cuda")]
use tegula::matrix::Shape;
use tegula_core::threads;

/// Sustained throughput of an instruction without memory accesses.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceiling {
    /// Element type of A and B.
    pub ty: Type,
    /// Name of the instruction.
    pub instruction: &'static str,
    /// Operations per second; a multiply-add counts as two.
    pub flops: f64,
}

/// Roofline limits of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Measured bandwidth of a copy: bytes read and written per second.
    pub copy: f64,
    /// Throughput limits of known devices, measured once on random data; empty for others.
    pub ceilings: Vec<Ceiling>,
}

/// Throughput limits of an H200 at 700 W, driver 580.
const H200: [Ceiling; 7] = [
    Ceiling { ty: Type::F32, instruction: "FFMA", flops: 64.5e12 },
    Ceiling { ty: Type::F64, instruction: "DMMA", flops: 66.2e12 },
    Ceiling { ty: Type::F64, instruction: "DFMA", flops: 30.6e12 },
    Ceiling { ty: Type::I32, instruction: "IMAD", flops: 33.1e12 },
    Ceiling { ty: Type::F16, instruction: "wgmma f16", flops: 887e12 },
    Ceiling { ty: Type::BF16, instruction: "wgmma bf16", flops: 926e12 },
    Ceiling { ty: Type::I8, instruction: "wgmma s8", flops: 1937e12 },
];

/// Measures the copy bandwidth and looks up the throughput limits of a device.
///
/// If `seconds` is 0, the time of a measurement, the host copies only a few MiB, which caches may
/// hold.
///
/// # Errors
/// Errors of the device.
pub fn limits(device: &Device, seconds: f64) -> Result<Limits> {
    #[cfg(feature = "cuda")]
    if let Some(gpu) = device.gpu() {
        let known = gpu.info().name.contains("H200");
        return Ok(Limits { copy: gpu_copy_bandwidth(gpu)?, ceilings: if known { H200.to_vec() } else { Vec::new() } });
    }
    let _ = (device, H200);
    Ok(Limits { copy: host_copy_bandwidth(if seconds > 0.0 { LEN } else { SHORT_LEN })?, ceilings: Vec::new() })
}

/// Elements of a copy: a quarter of a GiB, larger than caches.
const LEN: usize = 1 << 26;
/// Elements of a copy without time for it.
const SHORT_LEN: usize = 1 << 20;
const COPIES: usize = 7;
/// Elements per parallel chunk.
const CHUNK: usize = 1 << 20;

#[cfg(feature = "cuda")]
fn gpu_copy_bandwidth(gpu: &Gpu) -> Result<f64> {
    let host = tegula::tune::data::normal::<f32>(Shape::new(1, LEN), 0)?;
    let (mut source, mut copy) = (Buffer::uninit(gpu, LEN)?, Buffer::<f32>::uninit(gpu, LEN)?);
    source.upload(host.view())?;
    copy.copy_from(&source)?;
    // Several copies per sample hide the latency of the first.
    let mut copies = || gpu.time(|| (0..COPIES).try_for_each(|_| copy.copy_from(&source)));
    let times = (0..COPIES).map(|_| Ok(copies()? / COPIES as f64)).collect::<Result<Vec<_>>>()?;
    Ok(bandwidth(LEN, &times))
}

fn host_copy_bandwidth(len: usize) -> Result<f64> {
    let source = Matrix::from_fn(1, len, |_, i| i as f32)?;
    let mut copy = Matrix::<f32>::zeros_of_shape(source.shape())?;
    let times = (0..COPIES).map(|_| {
        let start = std::time::Instant::now();
        let copy_chunk = |index, to: &mut [f32]| {
            to.copy_from_slice(&source.as_slice()[index * CHUNK..][..to.len()]);
            Ok(())
        };
        threads::for_chunks(copy.as_mut_slice(), CHUNK, copy_chunk)?;
        std::hint::black_box(&copy);
        Ok(start.elapsed().as_secs_f64())
    });
    Ok(bandwidth(len, &times.collect::<Result<Vec<_>>>()?))
}

/// Bytes read and written per second, from seconds per copy.
fn bandwidth(len: usize, times: &[f64]) -> f64 {
    2.0 * (len * size_of::<f32>()) as f64 / tegula::tune::stats::median(times)
}
