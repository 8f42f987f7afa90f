//! Tuning on a GPU: tuned entries are measured, stored, read, and used by products.
//!
//! Without a GPU the tests are skipped; `TEGULA_REQUIRE_GPU=1` makes that a failure.
#![cfg(feature = "cuda")]

use tegula::cuda::{DeviceMatrix, Gpu};
use tegula::element::Scalar;
use tegula::{Device, Gemm, Matrix, Shape, cache};
use tegula_bench::{Case, TuneEffort, oracle, tune};
use tegula_kernels::plan::{Recipe, TunedEntry, TuningTable, legal};

use crate::gpu::gpu;
use crate::product::{Random, Sample};

/// Tuning effort for small products.
const EFFORT: TuneEffort = TuneEffort { seed: 1, seconds: 0.0, all: true };

/// Runs a product on the GPU and checks it against the oracle. Returns the kernel name.
fn product<T: Sample>(gpu: &Gpu, device: &Device, case: &Case<T>) -> String {
    let mut random = Random(7);
    let mut matrix = |rows, cols| {
        Matrix::from_shape_fn(Shape { batches: case.batch, rows, cols }, |_, _, _| T::element(&mut random)).unwrap()
    };
    let (a, b) = (matrix(case.m, case.k), matrix(case.k, case.n));
    let operands = [&a, &b].map(|matrix| DeviceMatrix::upload(gpu, matrix.view()).unwrap());
    let mut c = DeviceMatrix::uninit(gpu, Shape { batches: case.batch, rows: case.m, cols: case.n }).unwrap();
    let gemm = Gemm::new(operands[0].view(), operands[1].view(), c.view_mut()).on(device);
    let explained = gemm.explain().unwrap();
    let report = gemm.run().unwrap();
    assert!(explained.tuned && explained.kernel == report.kernel, "{explained} {report:?}");
    // The tuned entry is independent of the epilogue.
    let bias = Matrix::<T::Out>::zeros(1, case.n).unwrap();
    let biased =
        Gemm::new(operands[0].view(), operands[1].view(), c.view_mut()).bias(bias.view()).on(device).explain().unwrap();
    assert!(
        biased.tuned && biased.kernel.replace("_row_bias", "").replace("_column_bias", "") == report.kernel,
        "{biased}"
    );
    let accuracy = oracle::check::<T>(case.alpha, a.view(), b.view(), case.beta, None, c.download().unwrap().view());
    assert!(accuracy.unwrap().within(oracle::bound::<T>(case.k)), "{}", report.kernel);
    report.kernel.into()
}

/// Tunes a product, and runs it with the fastest recipe and 12 legal ones as tuned entries.
fn tuned_entries_are_used<T: Sample>([m, n, k]: [usize; 3], batch: usize) {
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
        !tuning.timed.is_empty() && tuning.timed.len() <= tuning.legal && tuning.fastest.seconds > 0.0,
        "{tuning:?}"
    );
    assert!(tuning.model_efficiency() > 0.0 && tuning.model_efficiency() <= 1.0, "{tuning:?}");
    let all = legal(&tuning.problem, &device.caps());
    assert_eq!(all.len(), tuning.legal);

    let (folder, key) = (tempfile::tempdir().unwrap(), cache::key(gpu.info()));
    let path = folder.path().join("tuned.json");
    let run_with_entry = |recipe: &Recipe| {
        let mut tuned = TuningTable::default();
        tuned.insert(tuning.problem, TunedEntry { recipe: recipe.name(), microseconds: 1.0 });
        std::fs::write(&path, tuned.text(&key)).unwrap();
        product(&gpu, &device.clone().with_tuning(cache::read(&path, &key).unwrap()), &case)
    };
    // All on one thread, so that a stale thread-local table would be detected.
    for recipe in std::iter::once(&tuning.fastest.recipe).chain(all.iter().map(|candidate| &candidate.recipe).take(12))
    {
        assert_eq!(run_with_entry(recipe), recipe.name());
    }
}

#[test]
fn tuned_entries_of_small_products_are_used() {
    tuned_entries_are_used::<f32>([100, 72, 260], 1);
    tuned_entries_are_used::<f64>([65, 130, 33], 2);
}

#[test]
fn tuned_entries_of_skinny_products_are_used() {
    tuned_entries_are_used::<f32>([3, 200, 100], 1);
    tuned_entries_are_used::<i32>([96, 1, 300], 1);
}
