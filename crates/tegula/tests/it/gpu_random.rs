//! Random products of matrices that lie on the GPU, by the kernels that plans choose, against the oracle: any shape, transposes, gaps between
//! rows, batches, factors and epilogues, and addresses off any alignment. Nothing around C may change.
//!
//! `TEGULA_RANDOM=N` sets the number of products (default 60), `TEGULA_RANDOM_FROM` the first of them, `TEGULA_RANDOM_AGAIN` how often each is
//! made again, to have the same bits (default 1), `TEGULA_RANDOM_RESULTS=FILE` keeps a line
//! a product, with a digest of the result.
#![cfg(feature = "cuda")]

use std::fmt::Write as _;

use sha2::{Digest, Sha256};
use tegula::cuda::{DeviceMatrix, Gpu};
use tegula::element::{Scalar, Type, bf16, f16};
use tegula::epilogue::{Activation, Along, Epilogue, Finish};
use tegula::{Accuracy, Gemm, Matrix, Shape};
use tegula_bench::oracle;

use crate::product::{Random, Sample, number_bits};

/// How a matrix is cut out of a wider one that lies row after row.
#[derive(Clone, Copy, Debug)]
struct Cut {
    /// Elements before each row, which shift it off any alignment, and behind.
    before: usize,
    behind: usize,
    transposed: bool,
}

impl Cut {
    fn random(random: &mut Random) -> Self {
        // A third lies as a matrix of its own.
        let whole = random.chance(3);
        let [before, behind] = if whole { [0; 2] } else { [random.below(16), random.below(9)] };
        Cut { before, behind, transposed: random.chance(2) }
    }

    /// The wider matrix, with numbers everywhere.
    fn matrix<T: Scalar>(self, shape: Shape, mut element: impl FnMut() -> T) -> Matrix<T> {
        let Shape { batches, rows, cols } = shape;
        let [rows, cols] = if self.transposed { [cols, rows] } else { [rows, cols] };
        let cols = self.before + cols + self.behind;
        Matrix::from_shape_fn(Shape { batches, rows, cols }, |_, _, _| element()).unwrap()
    }
}

/// The part of the wider matrix, on the host or on the GPU, to read or to write.
macro_rules! part {
    ($cut:expr, $view:expr) => {{
        let (cut, view) = ($cut, $view);
        let cols = view.shape().cols - cut.behind;
        let view = view.cols(cut.before..cols).unwrap();
        if cut.transposed { view.t() } else { view }
    }};
}

/// Sizes of all magnitudes alike.
fn size(random: &mut Random, most: f64) -> usize {
    let share = (random.next() >> 11) as f64 / (1u64 << 53) as f64;
    most.powf(share).round() as usize
}

/// Multiplies, compares, and gives the line that tells of it.
fn product<T: Sample>(gpu: &Gpu, seed: u64) -> String {
    let random = &mut Random(seed);
    let most = if random.chance(8) { 3000.0 } else { 400.0 };
    let [m, mut n, mut k] = std::array::from_fn(|_| size(random, most));
    // The oracle is exact and slow.
    while m * n * k > 30_000_000 {
        (n, k) = (n.div_ceil(2), k.div_ceil(2));
    }
    let batches = if random.chance(4) && m * n * k < 5_000_000 { 2 + random.below(3) } else { 1 };
    let cuts: [Cut; 3] = std::array::from_fn(|_| Cut::random(random));
    let shape = |rows, cols| Shape { batches, rows, cols };
    let a = cuts[0].matrix(shape(m, k), || T::element(random));
    let b = cuts[1].matrix(shape(k, n), || T::element(random));
    let before = cuts[2].matrix(shape(m, n), || T::result(random));
    let (alpha, beta) = (T::factor(random), T::factor(random));
    let floats = T::TYPE.is_float();
    let activations = [Activation::None, Activation::Relu, Activation::Gelu, Activation::Silu];
    let activation = if floats && random.chance(3) { activations[random.below(4)] } else { Activation::None };
    let along = random.chance(4).then(|| if random.chance(2) { Along::Rows } else { Along::Columns });
    let accuracy = if T::TYPE == Type::F32 && random.chance(5) { Accuracy::Tf32 } else { Accuracy::Full };
    let bias = along.map(|along| {
        let (rows, cols) = if along == Along::Rows { (1, n) } else { (m, 1) };
        Matrix::from_fn(rows, cols, |_, _| T::result(random)).unwrap()
    });

    let upload = |matrix: &Matrix<T>| DeviceMatrix::upload(gpu, matrix.view()).unwrap();
    let (on_a, on_b) = (upload(&a), upload(&b));
    let mut on_c = DeviceMatrix::upload(gpu, before.view()).unwrap();
    let on_bias = bias.as_ref().map(|bias| DeviceMatrix::upload(gpu, bias.view()).unwrap());
    let multiply = |on_c: &mut DeviceMatrix<T::Out>| {
        let product =
            Gemm::new(part!(cuts[0], on_a.view()), part!(cuts[1], on_b.view()), part!(cuts[2], on_c.view_mut()));
        let product = product.alpha(alpha).beta(beta).activation(activation).accuracy(accuracy);
        let product = if let Some(bias) = &on_bias { product.bias(bias.view()) } else { product };
        product.on(&gpu.clone().into()).run().unwrap().kernel
    };
    let kernel = multiply(&mut on_c);
    let found = on_c.download().unwrap();
    let case = format!(
        "{seed} {} {m}x{n}x{k} x{batches} offsets {:?} pitches+ {:?} transposed {:?} alpha {alpha:?} beta {beta:?} {} {}",
        T::TYPE,
        cuts.map(|cut| cut.before),
        cuts.map(|cut| cut.behind),
        cuts.map(|cut| u8::from(cut.transposed)),
        Epilogue { bias: along, activation },
        accuracy.name(),
    );

    // The same bits again.
    let bits = |matrix: &Matrix<T::Out>| matrix.as_slice().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
    for time in 0..number("TEGULA_RANDOM_AGAIN", 1) {
        let mut again = DeviceMatrix::upload(gpu, before.view()).unwrap();
        multiply(&mut again);
        assert!(bits(&found) == bits(&again.download().unwrap()), "{case} {kernel}: other bits, {time}");
    }
    // C's own elements aside, nothing has changed.
    let Shape { rows, cols, .. } = before.shape();
    let own = cuts[2].before..cols - cuts[2].behind;
    for (batch, row, col) in (0..batches).flat_map(|b| (0..rows).flat_map(move |r| (0..cols).map(move |c| (b, r, c)))) {
        let [was, is] = [&before, &found].map(|matrix| matrix.view().get(batch, row, col).map(|x| x.to_bits()));
        assert!(own.contains(&col) || was == is, "{case} {kernel}: wrote beside C");
    }

    let finish = Finish { bias: bias.as_ref().map(Matrix::view), activation };
    let (a, b) = (part!(cuts[0], a.view()), part!(cuts[1], b.view()));
    let (c0, c) = (part!(cuts[2], before.view()), part!(cuts[2], found.view()));
    let report = oracle::check_finished::<T>(alpha, a, b, beta, Some(c0), finish, c, &|_| {}).unwrap();
    let bound = oracle::bound_of::<T>(accuracy, k, finish.epilogue()) * oracle::coarser(accuracy);
    assert!(report.within(bound) && report.mismatches == 0, "{case} {kernel}: {report:?} beyond {bound}");
    let mut digest = Sha256::new();
    found.as_slice().iter().for_each(|&x| digest.update(number_bits(x).to_le_bytes()));
    let digest: String = digest.finalize().iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("{case} {kernel} r {:.3} {digest}", report.r)
}

/// A number from the environment.
fn number(name: &str, usual: u64) -> u64 {
    std::env::var(name).map_or(usual, |n| n.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

#[test]
fn any_product_on_the_gpu_is_right() {
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
