//! The tiled kernel against the same kernel in CUDA C++, in interleaved timings.
//!
//!     nvcc -arch=sm_90 -O3 -cubin benchmarks/plain/tiled.cu -o tiled.cubin
//!     cargo run --release --example plain_vs_cuda -- tiled.cubin [size]

use std::ffi::{CString, c_void};
use std::ptr::from_mut;

use tegula::cuda::cudarc::driver::{result, sys};
use tegula::cuda::{DeviceMatrix, Gpu};
use tegula::element::{Element, Scalar};
use tegula::{Device, Gemm, Matrix, Result, Shape};

const ROUNDS: usize = 21;

type Fallible = std::result::Result<(), Box<dyn std::error::Error>>;

fn main() -> Fallible {
    let mut args = std::env::args().skip(1);
    let cubin = std::fs::read(args.next().ok_or("give the cubin that nvcc compiled from benchmarks/plain/tiled.cu")?)?;
    let size = args.next().map_or(Ok(4096), |s| s.parse())?;
    let gpu = Gpu::open(0)?;
    println!("{}, driver {:?}, {size}³, tile 32, median of {ROUNDS} interleaved", gpu.info().name, gpu.info().driver);
    println!("type  ours TFLOP/s (p20 p80)    CUDA C++ TFLOP/s (p20 p80)   ratio  same bits");
    compare::<f32>(&gpu, &cubin, size)?;
    compare::<f64>(&gpu, &cubin, size)?;
    compare::<i32>(&gpu, &cubin, size)?;
    Ok(())
}

fn compare<T: Element<Out = T>>(gpu: &Gpu, cubin: &[u8], size: usize) -> Fallible {
    let (device, mut name) = (Device::from(gpu.clone()), String::new());
    gpu.context().bind_to_thread()?;
    // SAFETY: the context is current and the bytes are a complete cubin; the module stays loaded.
    let theirs = unsafe {
        let module = result::module::load_data(cubin.as_ptr().cast())?;
        result::module::get_function(module, CString::new(format!("tiled_{}", T::TYPE))?)?
    };
    let shape = Shape::new(size, size);
    let (a, b) = (
        DeviceMatrix::upload(gpu, random::<T>(shape, 1)?.view())?,
        DeviceMatrix::upload(gpu, random::<T>(shape, 2)?.view())?,
    );
    let (mut c, d) = (DeviceMatrix::<T>::zeros(gpu, shape)?, DeviceMatrix::<T>::zeros(gpu, shape)?);
    let (mut ours_s, mut theirs_s) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS + 3 {
        let ours = gpu.time(|| {
            let report = Gemm::new(a.view(), b.view(), c.view_mut()).on(&device).run()?;
            name = report.kernel.into();
            Ok(())
        })?;
        let cuda = gpu.time(|| launch(gpu, theirs, [&a, &b, &d], size))?;
        if round >= 3 {
            ours_s.push(ours);
            theirs_s.push(cuda);
        }
    }
    let same = c.download()?.as_slice().iter().zip(d.download()?.as_slice()).all(|(x, y)| x.to_bits() == y.to_bits());
    let rate = |seconds: &mut Vec<f64>, part: f64| {
        seconds.sort_by(f64::total_cmp);
        2.0 * (size as f64).powi(3) / seconds[(part * (ROUNDS - 1) as f64) as usize] / 1e12
    };
    let row = |s: &mut Vec<f64>| [0.5, 0.8, 0.2].map(|part| rate(s, part));
    let ([x, x20, x80], [y, y20, y80]) = (row(&mut ours_s), row(&mut theirs_s));
    println!(
        "{:4}  {x:8.3} ({x20:6.3} {x80:6.3})      {y:8.3} ({y20:6.3} {y80:6.3})      {:6.3}  {same}  {name}",
        T::TYPE.name(),
        x / y
    );
    Ok(())
}

/// Queues the CUDA C++ kernel.
fn launch<T: Element<Out = T>>(
    gpu: &Gpu,
    kernel: sys::CUfunction,
    matrices: [&DeviceMatrix<T>; 3],
    size: usize,
) -> Result<()> {
    let (mut n, tiles) = (size as u32, (size as u32).div_ceil(32));
    let mut addresses = matrices.map(|m| m.buffer().address());
    let (mut alpha, mut beta) = (T::Acc::ONE, T::Acc::ZERO);
    let [a, b, c] = addresses.each_mut().map(|address| from_mut(address).cast::<c_void>());
    let n = from_mut(&mut n).cast();
    let mut params = [a, b, c, n, n, n, from_mut(&mut alpha).cast(), from_mut(&mut beta).cast()];
    // SAFETY: the kernel's parameters in its order; the three size×size matrices outlive the
    // launch.
    let launched = unsafe {
        result::launch_kernel(kernel, (tiles, tiles, 1), (32, 32, 1), 0, gpu.stream().cu_stream(), &mut params)
    };
    launched.map_err(|e| tegula::Error::Launch { kernel: "tiled.cu".into(), why: e.to_string() })
}

fn random<T: Scalar>(shape: Shape, seed: u64) -> Result<Matrix<T>> {
    let mut state = seed;
    Matrix::from_shape_fn(shape, |_, _, _| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let value = (state >> 40) as f64 / (1u64 << 24) as f64 - 0.5;
        match T::TYPE.size() {
            8 => T::from_bits(value.to_bits()),
            _ if T::TYPE.is_float() => T::from_bits(u64::from((value as f32).to_bits())),
            _ => T::from_bits(state >> 32),
        }
    })
}
