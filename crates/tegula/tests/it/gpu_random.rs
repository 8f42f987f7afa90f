//! Random products in GPU memory, by planned kernels, against the oracle: any shape, transposes,
//! row gaps, batches, scalars and epilogues, and unaligned addresses. Memory around C must not
//! change.
//!
//! `TEGULA_RANDOM=N` sets the number of products (default 60), `TEGULA_RANDOM_FROM` the first of
//! them. `TEGULA_RANDOM_AGAIN` sets the repetitions of each, which must have equal bits (default
//! 1). `TEGULA_RANDOM_RESULTS=FILE` writes a line per product, with a digest of the result.
#![cfg(feature = "cuda")]

use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use tegula::cuda::{DeviceMatrix, Gpu};
use tegula::element::{Scalar, Type, bf16, f16};
use tegula::epilogue::{Activation, BiasShape, Epilogue, EpilogueOperands};
use tegula::{Accuracy, Gemm, Matrix, Shape};
use tegula_bench::oracle;

use crate::product::{Random, Sample, canonical_bits};

/// A submatrix of columns of a wider row-major matrix, optionally transposed.
#[derive(Clone, Copy, Debug)]
struct Submatrix {
    /// Elements before each row, which make it unaligned, and after it.
    before: usize,
    after: usize,
    transposed: bool,
}

impl Submatrix {
    fn random(random: &mut Random) -> Self {
        // A third are whole matrices.
        let whole = random.chance(3);
        let [before, after] = if whole { [0; 2] } else { [random.below(16), random.below(9)] };
        Submatrix { before, after, transposed: random.chance(2) }
    }

    /// The wider matrix, with all elements random.
    fn matrix<T: Scalar>(self, shape: Shape, mut element: impl FnMut() -> T) -> Matrix<T> {
        let Shape { batches, rows, cols } = shape;
        let [rows, cols] = if self.transposed { [cols, rows] } else { [rows, cols] };
        let cols = self.before + cols + self.after;
        Matrix::from_shape_fn(Shape { batches, rows, cols }, |_, _, _| element()).unwrap()
    }
}

/// The view of the submatrix in the wider matrix, on host or GPU, for reading or writing.
macro_rules! submatrix {
    ($submatrix:expr, $view:expr) => {{
        let (submatrix, view) = ($submatrix, $view);
        let cols = view.shape().cols - submatrix.after;
        let view = view.cols(submatrix.before..cols).unwrap();
        if submatrix.transposed { view.t() } else { view }
    }};
}

/// A random size, uniform in magnitude.
fn size(random: &mut Random, max_size: f64) -> usize {
    let exponent = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
    max_size.powf(exponent).round() as usize
}

/// Multiplies and compares. Returns the line of results.
fn product<T: Sample>(gpu: &Gpu, seed: u64) -> String {
    let random = &mut Random(seed);
    let max_size = if random.chance(8) { 3000.0 } else { 400.0 };
    let [m, mut n, mut k] = std::array::from_fn(|_| size(random, max_size));
    // Limit the size, since the oracle is exact and slow.
    while m * n * k > 30_000_000 {
        (n, k) = (n.div_ceil(2), k.div_ceil(2));
    }
    let batches = if random.chance(4) && m * n * k < 5_000_000 { 2 + random.below(3) } else { 1 };
    let submatrices: [Submatrix; 3] = std::array::from_fn(|_| Submatrix::random(random));
    let shape = |rows, cols| Shape { batches, rows, cols };
    let a = submatrices[0].matrix(shape(m, k), || T::element(random));
    let b = submatrices[1].matrix(shape(k, n), || T::element(random));
    let before = submatrices[2].matrix(shape(m, n), || T::result(random));
    let (alpha, beta) = (T::scalar(random), T::scalar(random));
    let floats = T::TYPE.is_float();
    let activations = [Activation::None, Activation::Relu, Activation::Gelu, Activation::Silu];
    let activation = if floats && random.chance(3) { activations[random.below(4)] } else { Activation::None };
    let bias_shape = random.chance(4).then(|| if random.chance(2) { BiasShape::Row } else { BiasShape::Column });
    let accuracy = if T::TYPE == Type::F32 && random.chance(5) { Accuracy::Tf32 } else { Accuracy::Full };
    let bias = bias_shape.map(|bias_shape| {
        let (rows, cols) = if bias_shape == BiasShape::Row { (1, n) } else { (m, 1) };
        Matrix::from_fn(rows, cols, |_, _| T::result(random)).unwrap()
    });

    let upload = |matrix: &Matrix<T>| DeviceMatrix::upload(gpu, matrix.view()).unwrap();
    let (on_a, on_b) = (upload(&a), upload(&b));
    let mut on_c = DeviceMatrix::upload(gpu, before.view()).unwrap();
    let on_bias = bias.as_ref().map(|bias| DeviceMatrix::upload(gpu, bias.view()).unwrap());
    let multiply = |on_c: &mut DeviceMatrix<T::Out>| {
        let product = Gemm::new(
            submatrix!(submatrices[0], on_a.view()),
            submatrix!(submatrices[1], on_b.view()),
            submatrix!(submatrices[2], on_c.view_mut()),
        );
        let product = product.alpha(alpha).beta(beta).activation(activation).accuracy(accuracy);
        let product = if let Some(bias) = &on_bias { product.bias(bias.view()) } else { product };
        product.on(&gpu.clone().into()).run().unwrap().kernel
    };
    let kernel = multiply(&mut on_c);
    let result = on_c.download().unwrap();
    let case = format!(
        "{seed} {} {m}x{n}x{k} x{batches} offsets {:?} pitches+ {:?} transposed {:?} alpha {alpha:?} beta {beta:?} {} {}",
        T::TYPE,
        submatrices.map(|submatrix| submatrix.before),
        submatrices.map(|submatrix| submatrix.after),
        submatrices.map(|submatrix| u8::from(submatrix.transposed)),
        Epilogue { bias: bias_shape, activation },
        accuracy.name(),
    );

    // Repetitions have equal bits.
    let bits = |matrix: &Matrix<T::Out>| matrix.as_slice().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for run in 0..number("TEGULA_RANDOM_AGAIN", 1) {
        let mut again = DeviceMatrix::upload(gpu, before.view()).unwrap();
        multiply(&mut again);
        assert!(bits(&result) == bits(&again.download().unwrap()), "{case} {kernel}: bits differ in repetition {run}");
    }
    // Elements around C are unchanged.
    let Shape { rows, cols, .. } = before.shape();
    let c_cols = submatrices[2].before..cols - submatrices[2].after;
    for (batch, row, col) in (0..batches).flat_map(|b| (0..rows).flat_map(move |r| (0..cols).map(move |c| (b, r, c)))) {
        let [old, is] = [&before, &result].map(|matrix| matrix.view().get(batch, row, col).map(|x| x.to_bits()));
        assert!(c_cols.contains(&col) || old == is, "{case} {kernel}: wrote outside C");
    }

    let epilogue = EpilogueOperands { bias: bias.as_ref().map(Matrix::view), activation };
    let (a, b) = (submatrix!(submatrices[0], a.view()), submatrix!(submatrices[1], b.view()));
    let (c0, c) = (submatrix!(submatrices[2], before.view()), submatrix!(submatrices[2], result.view()));
    let report = oracle::check_with_epilogue::<T>(alpha, a, b, beta, Some(c0), epilogue, c, &|_| {}).unwrap();
    let bound = oracle::bound_with_epilogue::<T>(accuracy, k, epilogue.epilogue()) * oracle::roundoff_ratio(accuracy);
    assert!(report.within(bound) && report.mismatches == 0, "{case} {kernel}: {report:?} beyond {bound}");
    let mut digest = Sha256::new();
    result.as_slice().iter().for_each(|&x| digest.update(canonical_bits(x).to_le_bytes()));
    let digest: String = digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{case} {kernel} r {:.3} {digest}", report.r)
}

/// A number from an environment variable.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).map_or(default, |n| n.parse().unwrap_or_else(|_| panic!("{name} is not a number")))
}

#[test]
fn random_products_on_the_gpu_are_correct() {
    let Some(gpu) = crate::gpu::gpu() else { return };
    let (first, count) = (number("TEGULA_RANDOM_FROM", 0), number("TEGULA_RANDOM", 60));
    let (name, (major, minor)) = (&gpu.info().name, gpu.info().driver);
    let mut results = format!("# {name} · CUDA {major}.{minor} · {count} products\n");
    for seed in first..first + count {
        let line = match seed % 6 {
            0 => product::<f64>(&gpu, seed),
            1 | 2 => product::<f32>(&gpu, seed),
            3 => product::<i32>(&gpu, seed),
            4 => product::<f16>(&gpu, seed),
            _ if seed % 12 == 5 => product::<bf16>(&gpu, seed),
            _ => product::<i8>(&gpu, seed),
        };
        writeln!(results, "{line}").unwrap();
    }
    if let Some(file) = std::env::var_os("TEGULA_RANDOM_RESULTS") {
        std::fs::write(file, results).unwrap();
    }
}
