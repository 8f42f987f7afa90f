//! Tuning on a GPU: tuned entries are measured, stored, read, and used by products.
//!
//! Without a GPU the tests are skipped; `TEGULA_REQUIRE_GPU=1` makes that a failure.
#![cfg(feature = "cuda")]

use std::process::Command;
use std::time::{Duration, Instant};

use tegula::cuda::{DeviceMatrix, Gpu};
use tegula::element::{Scalar, bf16, f16};
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
        let start = Instant::now();
        let tuning = tune::<f32>(&gpu, row_major([512, 384, 256, 1]), accuracy, &effort).unwrap();
        println!("{accuracy:?}: {} of {} timed in {:?}", tuning.timed.len(), tuning.legal, start.elapsed());
        assert!(tuning.problem.accuracy == accuracy && (1..=5).contains(&tuning.timed.len()), "{tuning:?}");
    }
}

/// Environment variable of a child process of [`with_empty_cache`].
const CHILD: &str = "TEGULA_TEST_AUTOTUNE";

/// Runs a test of this file in a child process with an empty tuning cache. `name` is the test's.
fn with_empty_cache(name: &str, body: impl FnOnce(&Gpu)) {
    let Some(gpu) = gpu() else { return };
    if std::env::var_os(CHILD).is_some() {
        return body(&gpu);
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap());
    child.args(["--exact", &format!("gpu_tune::{name}"), "--nocapture"]).env(CHILD, "1");
    assert!(child.env("TEGULA_CACHE_DIR", folder.path()).status().unwrap().success(), "{name}");
}

/// A device that measures for a second.
fn autotuned(gpu: &Gpu) -> Device {
    Device::from(gpu.clone()).autotune(Duration::from_secs(1))
}

/// The entries in the tuning cache.
fn entries(gpu: &Gpu) -> TuningTable {
    let key = cache::key(gpu.info());
    cache::read(&cache::file(&key).unwrap(), &key).unwrap()
}

/// Runs a product of which A and C are columns of wider matrices, twice: the first run measures,
/// both are right, and the other columns of C are unchanged.
fn autotuned_product<T: Sample>(gpu: &Gpu, extents: Extents, skipped: usize) {
    let (device, mut random) = (autotuned(gpu), Random(7));
    let [a, b, c] = shapes(extents);
    let wider = |shape: Shape| Shape { cols: shape.cols + 2 * skipped, ..shape };
    let [all_a, b] =
        [wider(a), b].map(|shape| Matrix::from_shape_fn(shape, |_, _, _| T::element(&mut random)).unwrap());
    let before = Matrix::from_shape_fn(wider(c), |_, _, _| T::result(&mut random)).unwrap();
    let [on_gpu_a, on_gpu_b] = [&all_a, &b].map(|matrix| DeviceMatrix::upload(gpu, matrix.view()).unwrap());
    let [used_a, used_c] = [a, c].map(|shape| skipped..skipped + shape.cols);
    let known = entries(gpu).len();
    let mut kernels = Vec::new();
    for run in ["first", "second"] {
        let mut all_c = DeviceMatrix::upload(gpu, before.view()).unwrap();
        let on_gpu_a = on_gpu_a.view().cols(used_a.clone()).unwrap();
        let product = Gemm::new(on_gpu_a, on_gpu_b.view(), all_c.view_mut().cols(used_c.clone()).unwrap()).on(&device);
        assert_eq!(product.explain().unwrap().tuned, run == "second");
        let start = Instant::now();
        let kernel = product.run().unwrap().kernel;
        println!("{} {extents:?}: {run} run {:?}, {kernel}", T::TYPE, start.elapsed());
        kernels.push(kernel);
        let result = all_c.download().unwrap();
        let used = result.view().cols(used_c.clone()).unwrap();
        let input = all_a.view().cols(used_a.clone()).unwrap();
        let accuracy = oracle::check::<T>(T::Acc::ONE, input, b.view(), T::Acc::ZERO, None, used).unwrap();
        assert!(accuracy.within(oracle::bound::<T>(a.cols)), "{run} run: {accuracy:?}");
        for columns in [0..skipped, used_c.end..wider(c).cols] {
            let [before, after] =
                [&before, &result].map(|c| Matrix::from_view(c.view().cols(columns.clone()).unwrap()));
            let bits = |matrix: Matrix<T::Out>| matrix.as_slice().iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(before.unwrap()), bits(after.unwrap()), "columns {columns:?}");
        }
    }
    assert_eq!(kernels[0], kernels[1]);
    assert_eq!(entries(gpu).len(), known + 1);
}

#[test]
fn gpu_autotune_measures_at_the_first_run_and_keeps_the_entry() {
    with_empty_cache("gpu_autotune_measures_at_the_first_run_and_keeps_the_entry", |gpu| {
        autotuned_product::<f32>(gpu, [500, 384, 1024, 1], 0);
        autotuned_product::<f32>(gpu, [500, 384, 1024, 1], 1);
        autotuned_product::<f32>(gpu, [1, 4096, 4096, 1], 0);
        autotuned_product::<f64>(gpu, [300, 200, 512, 2], 2);
        autotuned_product::<bf16>(gpu, [512, 768, 2048, 1], 8);
        autotuned_product::<f16>(gpu, [16, 1024, 4096, 1], 0);
        autotuned_product::<i32>(gpu, [256, 256, 300, 1], 0);
        autotuned_product::<i8>(gpu, [256, 512, 512, 3], 16);
    });
}

#[test]
fn gpu_autotune_of_a_large_product_keeps_its_entry() {
    with_empty_cache("gpu_autotune_of_a_large_product_keeps_its_entry", |gpu| {
        // A search of the second problem finds most kernels assembled.
        for size in [4096, 8192] {
            let [a, b, c] = shapes([size, size, size, 1]);
            let [a, b] = [a, b].map(|shape| DeviceMatrix::<f32>::zeros(gpu, shape).unwrap());
            let mut c = DeviceMatrix::uninit(gpu, c).unwrap();
            let start = Instant::now();
            let report = Gemm::new(a.view(), b.view(), c.view_mut()).on(&autotuned(gpu)).run().unwrap();
            println!("f32 {size}: first run {:?}, {}", start.elapsed(), report.kernel);
        }
        assert_eq!(entries(gpu).len(), 2);
    });
}

#[test]
fn gpu_autotune_under_capture_measures_nothing() {
    with_empty_cache("gpu_autotune_under_capture_measures_nothing", |gpu| {
        let device = autotuned(gpu);
        let ones = |shape| Matrix::<f32>::from_shape_fn(shape, |_, _, _| 1.0).unwrap();
        let [a, b, c] = shapes([128, 96, 64, 1]);
        let [a, b] = [a, b].map(|shape| DeviceMatrix::upload(gpu, ones(shape).view()).unwrap());
        let mut c = DeviceMatrix::<f32>::zeros(gpu, c).unwrap();
        Gemm::new(a.view(), b.view(), c.view_mut()).on(&Device::from(gpu.clone())).run().unwrap();
        c.fill(0.0).unwrap();
        let graph = gpu.capture(|| Gemm::new(a.view(), b.view(), c.view_mut()).on(&device).run().map(drop)).unwrap();
        assert!(c.download().unwrap().as_slice().iter().all(|element| *element == 0.0));
        // SAFETY: the operands are alive, and all work is on one stream.
        unsafe { graph.launch() }.unwrap();
        assert!(c.download().unwrap().as_slice().iter().all(|element| *element == 64.0));
        assert!(entries(gpu).is_empty());
        // Nor is a batch-invariant product measured.
        Gemm::new(a.view(), b.view(), c.view_mut()).batch_invariant().on(&device).run().unwrap();
        assert!(entries(gpu).is_empty());
    });
}

#[test]
fn gpu_autotune_in_threads_measures_each_problem_once() {
    with_empty_cache("gpu_autotune_in_threads_measures_each_problem_once", |gpu| {
        let run = |size: usize, runs: usize| {
            let device = Device::cuda(0).unwrap().autotune(Duration::from_millis(300));
            let ones = Matrix::<f32>::from_fn(size, size, |_, _| 1.0).unwrap();
            let mut c = Matrix::zeros(size, size).unwrap();
            for _ in 0..runs {
                Gemm::new(ones.view(), ones.view(), c.view_mut()).on(&device).run().unwrap();
                assert!(c.as_slice().iter().all(|element| *element == size as f32));
            }
        };
        std::thread::scope(|scope| {
            [128, 160, 128, 192].into_iter().for_each(|size| _ = scope.spawn(move || run(size, 20)));
        });
        assert!((1..=3).contains(&entries(gpu).len()));
        // Those that met the search of another thread are measured now. Rayon's threads as well.
        [128, 160, 192].into_iter().for_each(|size| run(size, 1));
        assert_eq!(entries(gpu).len(), 3);
        rayon::scope(|scope| (200..208).for_each(|size| scope.spawn(move |_| run(size, 2))));
        assert!((4..=11).contains(&entries(gpu).len()));
    });
}
