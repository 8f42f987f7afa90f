//! Progress events: increasing within a phase, up to the total.

use std::sync::Mutex;

use tegula::epilogue::EpilogueOperands;
use tegula::nd::{NdArray, NdGemm};
use tegula::{Device, Gemm, Matrix, Phase, Progress, Shape};
use tegula_bench::oracle;

/// Records progress events.
#[derive(Default)]
struct ProgressLog(Mutex<Vec<Progress>>);

impl ProgressLog {
    fn push(&self, progress: Progress) {
        self.0.lock().unwrap().push(progress);
    }

    /// Checks that one phase increases to `total`. Returns its values.
    fn assert_increases_to(self, phase: Phase, total: u64) -> Vec<u64> {
        let log = self.0.into_inner().unwrap();
        assert!(log.iter().all(|p| (p.phase, p.total) == (phase, total)), "{log:?}");
        let done: Vec<_> = log.iter().map(|p| p.done).collect();
        assert!(done.is_sorted_by(|a, b| a < b) && done.last() == Some(&total), "{done:?} of {total}");
        done
    }
}

fn ones(shape: Shape) -> Matrix<f32> {
    Matrix::from_shape_fn(shape, |_, _, _| 1.0).unwrap()
}

fn gemm_progress(device: &Device, batches: usize, [m, n, k]: [usize; 3]) -> Vec<u64> {
    let [a, b, mut c] = [(m, k), (k, n), (m, n)].map(|(rows, cols)| ones(Shape { batches, rows, cols }));
    let log = ProgressLog::default();
    let sink = |progress| log.push(progress);
    Gemm::new(a.view(), b.view(), c.view_mut()).on(device).progress(&sink).run().unwrap();
    assert!(c.as_slice().iter().all(|&x| x == k as f32));
    log.assert_increases_to(Phase::Multiply, (batches * m * n * k) as u64)
}

#[test]
fn cpu_progress_increases_per_block() {
    // Several KC blocks, the last not longer than the others. On one thread, since a sink that is
    // busy on another thread misses a block, and then receives two at once.
    let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let values = alone.install(|| gemm_progress(&Device::cpu(), 1, [70, 90, 3000]));
    assert!(values.len() > 3 && values.windows(2).all(|pair| pair[1] - pair[0] <= values[0]), "{values:?}");
    assert!(gemm_progress(&Device::cpu(), 1, [70, 90, 3000]).len() > 1);
    // Many small products, each on one thread.
    assert!(gemm_progress(&Device::cpu(), 600, [16, 16, 16]).len() > 3);
    assert_eq!(gemm_progress(&Device::cpu(), 1, [3, 4, 5]), [60]);
    assert_eq!(gemm_progress(&Device::cpu(), 1, [3, 4, 0]), [0]);
    assert_eq!(gemm_progress(&Device::cpu(), 2, [3, 0, 5]), [0]);
}

#[test]
fn interpreter_progress_increases_per_block() {
    assert!(gemm_progress(&Device::interp(), 2, [40, 70, 9]).len() > 1);
    assert_eq!(gemm_progress(&Device::interp(), 2, [3, 0, 5]), [0]);
}

#[test]
fn progress_of_several_products_has_one_total() {
    let [a, b] = [[2, 1, 3, 4].as_slice(), &[7, 4, 5]].map(|shape| NdArray::<f32>::zeros(shape).unwrap());
    let mut c = NdArray::zeros(&[2, 7, 3, 5]).unwrap();
    for device in [Device::cpu(), Device::interp()] {
        let log = ProgressLog::default();
        let sink = |progress| log.push(progress);
        NdGemm::new(a.view(), b.view(), c.view_mut()).on(&device).progress(&sink).run().unwrap();
        assert!(log.assert_increases_to(Phase::Multiply, 2 * 7 * 3 * 4 * 5).len() > 1);
    }
}

#[test]
fn reference_progress_increases_per_row() {
    let (a, c) = (ones(Shape::new(100, 20)), Matrix::from_fn(100, 100, |_, _| 20.0).unwrap());
    let log = ProgressLog::default();
    let sink = |progress| log.push(progress);
    let report = oracle::check_with_epilogue::<f32>(
        1.0,
        a.view(),
        a.view().t(),
        0.0,
        None,
        EpilogueOperands::default(),
        c.view(),
        &sink,
    )
    .unwrap();
    assert_eq!(report.r, 0.0);
    assert!(log.assert_increases_to(Phase::Check, 100).len() > 3);
}
