//! Tuning on a GPU: winners are measured, kept, read, and products use them.
//!
//! Without a GPU the tests say that they are skipped; `TEGULA_REQUIRE_GPU=1` makes that a failure.
#![cfg(feature = "cuda")]

use tegula::cuda::{DeviceMatrix, Gpu};
use tegula::element::Scalar;
use tegula::{Device, Gemm, Matrix, Shape, cache};
use tegula_bench::{Case, Effort, oracle, tune};
use tegula_kernels::plan::{Recipe, Tuned, Winner, legal};

use crate::gpu::gpu;
use crate::product::{Random, Sample};

/// How small products are tuned.
const EFFORT: Effort = Effort { seed: 1, seconds: 0.0, all: true };

/// A product on the GPU by a device: the kernel that made it. The result is held against the oracle.
fn product<T: Sample>(gpu: &Gpu, device: &Device, case: &Case<T>) -> String {
    let mut random = Random(7);
    let mut matrix = |rows, cols| {
        Matrix::from_shape_fn(Shape { batches: case.batch, rows, cols }, |_, _, _| T::element(&mut random)).unwrap()
    };
    let (a, b) = (matrix(case.m, case.k), matrix(case.k, case.n));
    let there = [&a, &b].map(|matrix| DeviceMatrix::upload(gpu, matrix.view()).unwrap());
    let mut c = DeviceMatrix::uninit(gpu, Shape { batches: case.batch, rows: case.m, cols: case.n }).unwrap();
    let gemm = Gemm::new(there[0].view(), there[1].view(), c.view_mut()).on(device);
    let explained = gemm.explain().unwrap();
    let report = gemm.run().unwrap();
    assert!(explained.tuned && explained.kernel == report.kernel, "{explained} {report:?}");
    // The same winner, whatever happens to its sums.
    let bias = Matrix::<T::Out>::zeros(1, case.n).unwrap();
    let biased =
        Gemm::new(there[0].view(), there[1].view(), c.view_mut()).bias(bias.view()).on(device).explain().unwrap();
    assert!(
        biased.tuned && biased.kernel.replace("_row_bias", "").replace("_column_bias", "") == report.kernel,
        "{biased}"
    );
    let found = oracle::check::<T>(case.alpha, a.view(), b.view(), case.beta, None, c.download().unwrap().view());
    assert!(found.unwrap().within(oracle::bound::<T>(case.k)), "{}", report.kernel);
    report.kernel.into()
}

/// Tunes a product, and has it made by the winner and then by every other recipe that is timed.
fn winner_is_used<T: Sample>([m, n, k]: [usize; 3], batch: usize) {
    let Some(gpu) = gpu() else { return };
    let device = Device::from(gpu.clone());
    let case = Case::<T> {
        m,
        n,
        k,
        batch,
        transposed: [false; 2],
        alpha: T::Acc::ONE,
        beta: T::Acc::ZERO,
        accuracy: tegula::Accuracy::Full,
        epilogue: tegula::epilogue::Epilogue::NONE,
    };
    let tuning = tune(&device, &case, &EFFORT).unwrap();
    assert!(
        !tuning.timed.is_empty() && tuning.timed.len() <= tuning.legal && tuning.winner.seconds > 0.0,
        "{tuning:?}"
    );
    assert!(tuning.ratio() > 0.0 && tuning.ratio() <= 1.0, "{tuning:?}");
    let all = legal(&tuning.problem, &device.caps());
    assert_eq!(all.len(), tuning.legal);

    let (place, key) = (tempfile::tempdir().unwrap(), cache::key(gpu.info()));
    let path = place.path().join("winners.json");
    let by = |recipe: &Recipe| {
        let mut tuned = Tuned::default();
        tuned.insert(tuning.problem, Winner { recipe: recipe.name(), microseconds: 1.0 });
        std::fs::write(&path, tuned.text(&key)).unwrap();
        product(&gpu, &device.clone().tuned_by(cache::read(&path, &key).unwrap()), &case)
    };
    // All on one thread, so that what it remembers of one table would be seen in the next.
    for recipe in std::iter::once(&tuning.winner.recipe).chain(all.iter().map(|candidate| &candidate.recipe).take(12)) {
        assert_eq!(by(recipe), recipe.name());
    }
}

#[test]
fn tiny_products_are_made_by_their_winners() {
    winner_is_used::<f32>([100, 72, 260], 1);
    winner_is_used::<f64>([65, 130, 33], 2);
}

#[test]
fn few_rows_and_columns_have_winners_too() {
    winner_is_used::<f32>([3, 200, 100], 1);
    winner_is_used::<i32>([96, 1, 300], 1);
}
