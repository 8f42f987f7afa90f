//! What a listener is told: per phase never less than before, and the whole at the end.

use std::sync::Mutex;

use tegula::epilogue::Finish;
use tegula::nd::{NdArray, NdGemm};
use tegula::{Device, Gemm, Matrix, Phase, Progress, Shape};
use tegula_bench::oracle;

/// Collects what is told.
#[derive(Default)]
struct Heard(Mutex<Vec<Progress>>);

impl Heard {
    fn listen(&self, progress: Progress) {
        self.0.lock().unwrap().push(progress);
    }

    /// What one phase told, having checked that it rises to `total`.
    fn rises_to(self, phase: Phase, total: u64) -> Vec<u64> {
        let heard = self.0.into_inner().unwrap();
        assert!(heard.iter().all(|p| (p.phase, p.total) == (phase, total)), "{heard:?}");
        let done: Vec<_> = heard.iter().map(|p| p.done).collect();
        assert!(done.is_sorted_by(|a, b| a < b) && done.last() == Some(&total), "{done:?} of {total}");
        done
    }
}

fn ones(shape: Shape) -> Matrix<f32> {
    Matrix::from_shape_fn(shape, |_, _, _| 1.0).unwrap()
}

fn product(device: &Device, batches: usize, [m, n, k]: [usize; 3]) -> Vec<u64> {
    let [a, b, mut c] = [(m, k), (k, n), (m, n)].map(|(rows, cols)| ones(Shape { batches, rows, cols }));
    let heard = Heard::default();
    let listener = |progress| heard.listen(progress);
    Gemm::new(a.view(), b.view(), c.view_mut()).on(device).progress(&listener).run().unwrap();
    assert!(c.as_slice().iter().all(|&x| x == k as f32));
    heard.rises_to(Phase::Multiply, (batches * m * n * k) as u64)
}

#[test]
fn the_cpu_tells_of_each_block() {
    // Several runs of KC, the last not longer than the others. On one thread, since a listener that is being told by another misses a block, and hears of two at once.
    let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let told = alone.install(|| product(&Device::cpu(), 1, [70, 90, 3000]));
    assert!(told.len() > 3 && told.windows(2).all(|pair| pair[1] - pair[0] <= told[0]), "{told:?}");
    assert!(product(&Device::cpu(), 1, [70, 90, 3000]).len() > 1);
    // Many small products, each on the thread that takes it.
    assert!(product(&Device::cpu(), 600, [16, 16, 16]).len() > 3);
    assert_eq!(product(&Device::cpu(), 1, [3, 4, 5]), [60]);
    assert_eq!(product(&Device::cpu(), 1, [3, 4, 0]), [0]);
    assert_eq!(product(&Device::cpu(), 2, [3, 0, 5]), [0]);
}

#[test]
fn the_interpreter_tells_of_each_block_of_the_grid() {
    assert!(product(&Device::interp(), 2, [40, 70, 9]).len() > 1);
    assert_eq!(product(&Device::interp(), 2, [3, 0, 5]), [0]);
}

#[test]
fn several_products_are_one_whole() {
    let [a, b] = [[2, 1, 3, 4].as_slice(), &[7, 4, 5]].map(|shape| NdArray::<f32>::zeros(shape).unwrap());
    let mut c = NdArray::zeros(&[2, 7, 3, 5]).unwrap();
    for device in [Device::cpu(), Device::interp()] {
        let heard = Heard::default();
        let listener = |progress| heard.listen(progress);
        NdGemm::new(a.view(), b.view(), c.view_mut()).on(&device).progress(&listener).run().unwrap();
        assert!(heard.rises_to(Phase::Multiply, 2 * 7 * 3 * 4 * 5).len() > 1);
    }
}

#[test]
fn the_reference_tells_of_rows() {
    let (a, c) = (ones(Shape::new(100, 20)), Matrix::from_fn(100, 100, |_, _| 20.0).unwrap());
    let heard = Heard::default();
    let listener = |progress| heard.listen(progress);
    let report =
        oracle::check_finished::<f32>(1.0, a.view(), a.view().t(), 0.0, None, Finish::default(), c.view(), &listener)
            .unwrap();
    assert_eq!(report.r, 0.0);
    assert!(heard.rises_to(Phase::Check, 100).len() > 3);
}
