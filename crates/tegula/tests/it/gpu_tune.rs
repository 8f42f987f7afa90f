//! Tuning on a GPU: tuned entries are measured, stored, read, and used by products.
//!
//! Without a GPU the tests are skipped; `TEGULA_REQUIRE_GPU=1` makes that a failure.
#![cfg(feature = "cuda")]

use tegula::cuda::{DeviceMatrix, Gpu};
use tegula::element::Scalar;
use tegula::tune::scratch::ScratchLayout;
use tegula::tune::search::TuneEffort;
use tegula::tune::tune;
use tegula::{Accuracy, Device, Gemm, Layout, Matrix, Shape, cache};
use tegula_bench::oracle;
use tegula_kernels::plan::{Recipe, TunedEntry, TuningTable, legal};

use crate::gpu::gpu;
use crate::product::{Random, Sample};

/// m, n, k and the batch.
type Extents = [usize; 4];

/// The shapes of A, B and C.
fn shapes([m, n, k, batches]: Extents) -> [Shape; 3] {
    [(m, k), (k, n), (m, n)].map(|(rows, cols)| Shape { batches, rows, cols })
}

/// Layouts of contiguous row-major operands.
fn row_major(extents: Extents) -> [ScratchLayout; 3] {
    shapes(extents).map(|shape| ScratchLayout::aligned(Layout::row_major(shape).unwrap()).unwrap())
}

/// Runs a product on the GPU and checks it against the oracle. Returns the kernel name.
fn product<T: Sample>(gpu: &Gpu, device: &Device, extents: Extents) -> String {
    let mut random = Random(7);
    let [a, b, c] = shapes(extents);
    let [a, b] = [a, b].map(|shape| Matrix::from_shape_fn(shape, |_, _, _| T::element(&mut random)).unwrap());
    let operands = [&a, &b].map(|matrix| DeviceMatrix::upload(gpu, matrix.view()).unwrap());
    let mut c = DeviceMatrix::uninit(gpu, c).unwrap();
    let gemm = Gemm::new(operands[0].view(), operands[1].view(), c.view_mut()).on(device);
    let explained = gemm.explain().unwrap();
    let report = gemm.run().unwrap();
    assert!(explained.tuned && explained.kernel == report.kernel, "{explained} {report:?}");
    // The tuned entry is independent of the epilogue.
    let bias = Matrix::<T::Out>::zeros(1, extents[1]).unwrap();
    let biased =
        Gemm::new(operands[0].view(), operands[1].view(), c.view_mut()).bias(bias.view()).on(device).explain().unwrap();
    assert!(
        biased.tuned && biased.kernel.replace("_row_bias", "").replace("_column_bias", "") == report.kernel,
        "{biased}"
    );
    let accuracy =
        oracle::check::<T>(T::Acc::ONE, a.view(), b.view(), T::Acc::ZERO, None, c.download().unwrap().view());
    assert!(accuracy.unwrap().within(oracle::bound::<T>(extents[2])), "{}", report.kernel);
    report.kernel.into()
}

/// Tunes a product, and runs it with the fastest recipe and 12 legal ones as tuned entries.
fn tuned_entries_are_used<T: Sample>([m, n, k]: [usize; 3], batch: usize) {
    let Some(gpu) = gpu() else { return };
    let (device, extents) = (Device::from(gpu.clone()), [m, n, k, batch]);
    let tuning = tune::<T>(&gpu, row_major(extents), Accuracy::Full, &TuneEffort::all(1)).unwrap();
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
        product::<T>(&gpu, &device.clone().with_tuning(cache::read(&path, &key).unwrap()), extents)
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

#[test]
fn gpu_tune_takes_the_accuracy_and_the_time_of_the_effort() {
    let Some(gpu) = gpu() else { return };
    let effort = TuneEffort { candidates: 5, ..TuneEffort::default() };
    for accuracy in [Accuracy::Full, Accuracy::Tf32] {
        let start = std::time::Instant::now();
        let tuning = tune::<f32>(&gpu, row_major([512, 384, 256, 1]), accuracy, &effort).unwrap();
        println!("{accuracy:?}: {} of {} timed in {:?}", tuning.timed.len(), tuning.legal, start.elapsed());
        assert!(tuning.problem.accuracy == accuracy && (1..=5).contains(&tuning.timed.len()), "{tuning:?}");
    }
}
