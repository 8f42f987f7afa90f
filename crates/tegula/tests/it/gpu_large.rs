//! Sizes beyond the limits of hardware and 32-bit indices, GPU against CPU: more than 2³² elements,
//! 65,535 tiles, or 65,535 matrices.
//!
//! The first test takes 30 GiB of host memory and some seconds, so all run only with
//! `TEGULA_LARGE=1`. Both engines accumulate in order of k with one rounding per product, so
//! results are equal.
#![cfg(feature = "cuda")]

use tegula::element::f16;
use tegula::{Device, Gemm, Matrix, Shape};
use tegula_kernels::plan::Plan;
use tegula_kernels::{Plain, PlainKind};

use crate::gpu::gpu;
use crate::product::{Random, Sample};

/// The first GPU, if large tests are enabled.
fn device() -> Option<Device> {
    if std::env::var_os("TEGULA_LARGE").is_none_or(|v| v != "1") {
        println!("skipped: TEGULA_LARGE is not 1");
        return None;
    }
    gpu().map(Device::from)
}

fn random<T: Sample>(seed: u64, shape: Shape) -> Matrix<T> {
    let mut random = Random(seed);
    Matrix::from_shape_fn(shape, |_, _, _| T::element(&mut random)).unwrap()
}

/// Multiplies random matrices on both devices, on the GPU with this tile, and compares every bit.
fn agree<T: Sample>(gpu: &Device, tile: u32, batches: usize, [m, n, k]: [usize; 3])
where
    T::Out: bytemuck::Pod,
{
    let (a, b) = (Shape { batches, rows: m, cols: k }, Shape { batches, rows: k, cols: n });
    let (a, b) = (random::<T>(1, a), random::<T>(2, b));
    let product = |device: &Device, plan: &Plan| {
        let mut c = Matrix::<T::Out>::zeros_of_shape(Shape { batches, rows: m, cols: n }).unwrap();
        device.run(plan, Gemm::new(a.view(), b.view(), c.view_mut())).unwrap();
        c
    };
    let cpu_bytes = product(&Device::cpu(), &Plan::Cpu);
    let gpu_bytes = product(gpu, &Plan::Gpu(Plain::new(PlainKind::Tiled, T::TYPE, tile).into()));
    let (cpu_bytes, gpu_bytes): (&[u8], &[u8]) =
        (bytemuck::cast_slice(cpu_bytes.as_slice()), bytemuck::cast_slice(gpu_bytes.as_slice()));
    if let Some(byte) = cpu_bytes.chunks(1 << 20).zip(gpu_bytes.chunks(1 << 20)).position(|(x, y)| x != y) {
        panic!("{m}×{n}×{k}, {batches} batches: MiB {byte} of C differs");
    }
    assert_eq!(cpu_bytes.len(), gpu_bytes.len());
    assert!(cpu_bytes.iter().rev().take(1000).any(|&x| x != 0), "the last elements are zero");
}

#[test]
fn matrix_of_more_than_2_pow_32_elements_is_correct() {
    let Some(gpu) = device() else { return };
    agree::<f16>(&gpu, 32, 1, [70_000, 70_000, 64]);
}

#[test]
fn grid_of_more_than_65535_tiles_is_correct() {
    let Some(gpu) = device() else { return };
    for [m, n, k] in [[3_000_000, 16, 16], [3_000_000, 1, 33], [16, 3_000_000, 16]] {
        agree::<f32>(&gpu, 16, 1, [m, n, k]);
    }
}

#[test]
fn batch_of_more_than_65535_matrices_is_correct() {
    let Some(gpu) = device() else { return };
    agree::<f32>(&gpu, 8, 100_000, [8, 8, 8]);
    agree::<i32>(&gpu, 8, 100_000, [3, 5, 9]);
}
