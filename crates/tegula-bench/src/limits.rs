//! What a device can do at most: lines that a row is seen against.

use tegula::Device;
#[cfg(feature = "cuda")]
use tegula::cuda::{Buffer, Gpu};
use tegula::element::Type;
use tegula::error::Result;
use tegula::matrix::{Matrix, Shape};
use tegula_core::threads;

/// Operations a second that an instruction sustains where no memory is touched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ceiling {
    /// Element type of the products.
    pub ty: Type,
    /// The instruction.
    pub instruction: &'static str,
    /// Operations a second, a multiply-add being two.
    pub flops: f64,
}

/// The limits of a device.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Bytes that a copy reads and writes a second, measured now.
    pub copy: f64,
    /// Measured once, on random data, for devices that are known; empty for others.
    pub ceilings: Vec<Ceiling>,
}

/// Of an H200 at 700 W, driver 580.
const H200: [Ceiling; 7] = [
    Ceiling { ty: Type::F32, instruction: "FFMA", flops: 64.5e12 },
    Ceiling { ty: Type::F64, instruction: "DMMA", flops: 66.2e12 },
    Ceiling { ty: Type::F64, instruction: "DFMA", flops: 30.6e12 },
    Ceiling { ty: Type::I32, instruction: "IMAD", flops: 33.1e12 },
    Ceiling { ty: Type::F16, instruction: "wgmma f16", flops: 887e12 },
    Ceiling { ty: Type::BF16, instruction: "wgmma bf16", flops: 926e12 },
    Ceiling { ty: Type::I8, instruction: "wgmma s8", flops: 1937e12 },
];

/// Times a copy and looks up the rest.
///
/// # Errors
/// What the device says.
pub fn limits(device: &Device) -> Result<Limits> {
    #[cfg(feature = "cuda")]
    if let Some(gpu) = device.gpu() {
        let known = gpu.info().name.contains("H200");
        return Ok(Limits { copy: copy_on(gpu)?, ceilings: if known { H200.to_vec() } else { Vec::new() } });
    }
    let _ = (device, H200);
    Ok(Limits { copy: copy_here()?, ceilings: Vec::new() })
}

/// Elements of a copy: a quarter of a GiB, more than caches hold.
const LEN: usize = 1 << 26;
const COPIES: usize = 7;
/// Elements that a thread copies at a time.
const PART: usize = 1 << 20;

#[cfg(feature = "cuda")]
fn copy_on(gpu: &Gpu) -> Result<f64> {
    let from = super::data::normal::<f32>(Shape::new(1, LEN), 0)?;
    let (mut there, mut copy) = (Buffer::uninit(gpu, LEN)?, Buffer::<f32>::uninit(gpu, LEN)?);
    there.upload(from.view())?;
    copy.copy_from(&there)?;
    // Several at a time, so that the first is not waited for.
    let mut copies = || gpu.time(|| (0..COPIES).try_for_each(|_| copy.copy_from(&there)));
    let times = (0..COPIES).map(|_| Ok(copies()? / COPIES as f64)).collect::<Result<Vec<_>>>()?;
    Ok(rate(&times))
}

fn copy_here() -> Result<f64> {
    let from = Matrix::from_fn(1, LEN, |_, i| i as f32)?;
    let mut copy = Matrix::<f32>::zeros_of_shape(from.shape())?;
    let times = (0..COPIES).map(|_| {
        let start = std::time::Instant::now();
        let part = |number, to: &mut [f32]| {
            to.copy_from_slice(&from.as_slice()[number * PART..][..to.len()]);
            Ok(())
        };
        threads::for_chunks(copy.as_mut_slice(), PART, part)?;
        std::hint::black_box(&copy);
        Ok(start.elapsed().as_secs_f64())
    });
    Ok(rate(&times.collect::<Result<Vec<_>>>()?))
}

/// Bytes a second, read and written.
fn rate(times: &[f64]) -> f64 {
    2.0 * (LEN * size_of::<f32>()) as f64 / super::median(times)
}
