//! Batch invariance on a GPU, with large products; and the bits of the interpreter, where it can
//! run them.
//!
//! Prints a digest of each product, to be compared between two cards. Without a GPU the tests are
//! skipped; `TEGULA_REQUIRE_GPU=1` makes that a failure.
#![cfg(feature = "cuda")]

use sha2::{Digest, Sha256};
use tegula::cuda::{DeviceMatrix, Gpu};
use tegula::element::{Scalar, bf16, f16};
use tegula::{Device, Gemm, Grouped, Matrix, Shape, View};
use tegula_kernels::plan::{Caps, UNTUNED, choose_invariant};

use crate::batch_invariant::{Numbers, ROWS, Variant, compare, first_row, variants};
use crate::effort::full;
use crate::gpu::gpu;
use crate::product::Sample;

/// n and k: with a long k, with few columns, and unaligned.
const SIZES: [[usize; 2]; 6] = [[4096, 4096], [2880, 4096], [128, 16384], [576, 7168], [1001, 1003], [16, 14336]];

fn digest<S: Scalar>(c: View<'_, S>) -> String {
    let mut digest = Sha256::new();
    for (i, j) in (0..c.shape().rows).flat_map(|i| (0..c.shape().cols).map(move |j| (i, j))) {
        digest.update(c.get(0, i, j).unwrap().to_bits().to_le_bytes());
    }
    digest.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}

/// One bit pattern for every row, over m and all ways to store the operands.
fn check_rows<T: Sample>() {
    let Some(gpu) = gpu() else { return };
    let device = Device::from(gpu.clone());
    for (i, [n, k]) in SIZES.into_iter().enumerate() {
        // The tests are not optimized, and A is random.
        let rows: Vec<usize> = ROWS.into_iter().filter(|m| full() || m * k <= 1 << 24).collect();
        let numbers = Numbers::<T>::random([rows[rows.len() - 1], n, k]);
        let mut all: Option<Matrix<T::Out>> = None;
        let mut kernels = Vec::new();
        // Loading a kernel takes a second: the quick run has every way to store operands with two
        // sizes.
        let variants = variants(i % 2 == 1);
        let variants = if full() || i < 2 { &variants[..] } else { &variants[1..3] };
        for &variant in variants {
            let stored = numbers.stored(variant);
            let [a, b] = [&stored.a, &stored.b].map(|matrix| DeviceMatrix::upload(&gpu, matrix.view()).unwrap());
            let bias = DeviceMatrix::upload(&gpu, stored.bias.view()).unwrap();
            for &m in rows.iter().rev() {
                let first = first_row(numbers.m, m);
                let before = stored.c.view().rows(first..first + m).unwrap();
                let mut c = DeviceMatrix::upload(&gpu, before).unwrap();
                let product = numbers.product(variant, first, [a.view(), b.view()], c.view_mut(), bias.view());
                let report = product.batch_invariant().on(&device).run().unwrap();
                kernels.push(report.kernel.to_string());
                let c = c.download().unwrap();
                match &all {
                    None => all = Some(c),
                    Some(all) => compare(all.view(), c.view(), first, n).unwrap_or_else(|why| {
                        panic!("{} m={m} n={n} k={k} {variant:?} {}: {why}", T::TYPE, report.kernel)
                    }),
                }
            }
        }
        kernels.sort();
        kernels.dedup();
        let all = all.unwrap();
        let digest = digest(all.view().rows(..256).unwrap().cols(..n).unwrap());
        println!("digest {} n={n} k={k} {digest} ({} kernels)", T::TYPE, kernels.len());
    }
    equals_interpreter::<T>(&gpu);
    groups_equal_products::<T>(&gpu);
}

/// The GPU computes the bits of the interpreter.
fn equals_interpreter<T: Sample>(gpu: &Gpu) {
    let device = Device::from(gpu.clone());
    for ([n, k], epilogue) in [([40, 1100], false), ([136, 520], true), ([9, 2047], true)] {
        let m = 70;
        let numbers = Numbers::<T>::random([m, n, k]);
        let variant = Variant { transposed: true, aligned: true, epilogue };
        let stored = numbers.stored(variant);
        let views = [stored.a.view(), stored.b.view()];
        let [mut on_gpu, mut interpreted] =
            [0, 1].map(|_| Matrix::from_vec(m, n, stored.c.as_slice().to_vec()).unwrap());
        let product = numbers.product(variant, 0, views, on_gpu.view_mut(), stored.bias.view());
        let name = product.batch_invariant().on(&device).run().unwrap().kernel;
        let product = numbers.product(variant, 0, views, interpreted.view_mut(), stored.bias.view());
        let plan = choose_invariant(&product.problem(&Caps::Interp).unwrap(), &device.caps(), &UNTUNED).unwrap();
        Device::interp().run(&plan, product).unwrap();
        compare(interpreted.view(), on_gpu.view(), 0, n)
            .unwrap_or_else(|why| panic!("{} n={n} k={k} {name}, interpreter and GPU: {why}", T::TYPE));
        println!("interpreter equals {} n={n} k={k} {name}", T::TYPE);
    }
}

/// Groups have the bits of products.
fn groups_equal_products<T: Sample>(gpu: &Gpu) {
    let device = Device::from(gpu.clone());
    for [n, k] in [[4096, 1024], [256, 8192]] {
        let m = 300;
        let numbers = Numbers::<T>::random([m, n, k]);
        let stored = numbers.stored(Variant { transposed: false, aligned: true, epilogue: false });
        let (a, b) = (stored.a.view(), stored.b.view());
        let mut all = Matrix::zeros(m, n).unwrap();
        Gemm::new(a, b, all.view_mut()).batch_invariant().on(&device).run().unwrap();
        let mut groups = Matrix::zeros(m, n).unwrap();
        let experts = b.broadcast(Shape { batches: 3, rows: k, cols: n }).unwrap();
        let product = Grouped::new(a, experts, groups.view_mut(), &[1, 200, 99]);
        let name = product.batch_invariant().on(&device).run().unwrap().kernel;
        compare(all.view(), groups.view(), 0, n).unwrap_or_else(|why| panic!("{} groups {name}: {why}", T::TYPE));
        println!("groups equal {} n={n} k={k} {name}", T::TYPE);
    }
}

#[test]
fn gpu_rows_of_f64_have_the_same_bits_for_every_m() {
    check_rows::<f64>();
}

#[test]
fn gpu_rows_of_f32_have_the_same_bits_for_every_m() {
    check_rows::<f32>();
}

#[test]
fn gpu_rows_of_f16_have_the_same_bits_for_every_m() {
    check_rows::<f16>();
}

#[test]
fn gpu_rows_of_bf16_have_the_same_bits_for_every_m() {
    check_rows::<bf16>();
}

#[test]
fn gpu_rows_of_integers_have_the_same_bits_for_every_m() {
    check_rows::<i8>();
    check_rows::<i32>();
}
