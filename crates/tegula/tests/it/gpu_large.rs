//! Sizes past the limits that hardware and 32-bit indices set, on a GPU against the CPU: more than 2³² elements, more than 65,535
//! tiles, more than 65,535 matrices.
//!
//! The first takes 30 GiB of host memory and some seconds, so all run with `TEGULA_LARGE=1` only. Both engines add the few products of
//! an element in order of k with one rounding each, so nothing may differ.
#![cfg(feature = "cuda")]

use tegula::element::f16;
use tegula::{Device, Gemm, Matrix, Shape};
use tegula_kernels::plan::Plan;
use tegula_kernels::{Family, Plain};

use crate::gpu::gpu;
use crate::product::{Random, Sample};

/// Whether there is a GPU, and leave to use it and the host for long.
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

/// Multiplies random matrices on both, on the GPU by a kernel of this tile, and compares every bit.
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
    let here = product(&Device::cpu(), &Plan::Cpu);
    let there = product(gpu, &Plan::Gpu(Plain::new(Family::Tiled, T::TYPE, tile).into()));
    let (here, there): (&[u8], &[u8]) = (bytemuck::cast_slice(here.as_slice()), bytemuck::cast_slice(there.as_slice()));
    if let Some(byte) = here.chunks(1 << 20).zip(there.chunks(1 << 20)).position(|(x, y)| x != y) {
        panic!("{m}×{n}×{k}, {batches} batches: MiB {byte} of C differs");
    }
    assert_eq!(here.len(), there.len());
    assert!(here.iter().rev().take(1000).any(|&x| x != 0), "the last elements are not written");
}

#[test]
fn more_elements_than_32_bits_count() {
    let Some(gpu) = device() else { return };
    agree::<f16>(&gpu, 32, 1, [70_000, 70_000, 64]);
}

#[test]
fn more_tiles_than_a_grid_has_rows() {
    let Some(gpu) = device() else { return };
    for [m, n, k] in [[3_000_000, 16, 16], [3_000_000, 1, 33], [16, 3_000_000, 16]] {
        agree::<f32>(&gpu, 16, 1, [m, n, k]);
    }
}

#[test]
fn more_matrices_than_a_grid_has_layers() {
    let Some(gpu) = device() else { return };
    agree::<f32>(&gpu, 8, 100_000, [8, 8, 8]);
    agree::<i32>(&gpu, 8, 100_000, [3, 5, 9]);
}
