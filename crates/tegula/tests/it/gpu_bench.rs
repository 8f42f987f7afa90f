//! Benchmarks on a GPU: the peer's candidates compute the same product as Tegula, and graphs repeat
//! the queued calls.
//!
//! Without a GPU the tests are skipped; `TEGULA_REQUIRE_GPU=1` makes that a failure, and
//! `TEGULA_REQUIRE_CUBLASLT=1` does so for a missing library.
#![cfg(feature = "cuda")]

use tegula::cuda::Gpu;
use tegula::element::{Arith, Element, Scalar, bf16, f16};
use tegula::epilogue::{Activation, Epilogue};
use tegula::tune::graph_timer::GraphTimer;
use tegula::tune::interleave::Timed;
use tegula::tune::operand_sets::OperandSets;
use tegula::{Accuracy, Device, Error, Gemm, Matrix, Shape};
use tegula_bench::cublaslt::CublasLt;
use tegula_bench::{Case, Peer, Settings, measure, oracle};

use crate::gpu::gpu;
use crate::product::{Random, Sample};

/// cublasLt on a GPU, or `None` if it is not found and not required.
fn cublaslt(gpu: &Gpu) -> Option<CublasLt> {
    match CublasLt::open(gpu) {
        Ok(lt) => Some(lt),
        Err(Error::PeerUnavailable { why, .. })
            if std::env::var_os("TEGULA_REQUIRE_CUBLASLT").is_none_or(|v| v != "1") =>
        {
            println!("skipped: no cublasLt: {why}");
            None
        }
        Err(why) => panic!("{why}"),
    }
}

const LAYOUTS: [[bool; 2]; 4] = [[false, false], [false, true], [true, false], [true, true]];

/// A is m×k and B is k×n; transposed operands are stored as k×m and n×k.
struct Product<T: Element> {
    a: Matrix<T>,
    b: Matrix<T>,
    c: Matrix<T::Out>,
    transposed: [bool; 2],
}

impl<T: Sample> Product<T> {
    fn new(batches: usize, [m, n, k]: [usize; 3], transposed: [bool; 2]) -> Self {
        let mut random = Random((m * 31 + n * 7 + k) as u64);
        let shape = |rows, cols, transposed| match transposed {
            true => Shape { batches, rows: cols, cols: rows },
            false => Shape { batches, rows, cols },
        };
        let a = Matrix::from_shape_fn(shape(m, k, transposed[0]), |_, _, _| T::element(&mut random)).unwrap();
        let b = Matrix::from_shape_fn(shape(k, n, transposed[1]), |_, _, _| T::element(&mut random)).unwrap();
        let c = Matrix::from_shape_fn(shape(m, n, false), |_, _, _| T::result(&mut random)).unwrap();
        Product { a, b, c, transposed }
    }

    fn operands(&self, gpu: &Gpu, sets: usize) -> OperandSets<T> {
        OperandSets::upload(gpu, [self.a.view(), self.b.view()], self.transposed, self.c.view(), sets).unwrap()
    }

    fn assert_agrees(&self, [alpha, beta]: [T::Acc; 2], result: &Matrix<T::Out>, context: &str) {
        let oriented = |view: tegula::View<'_, T>, transposed| {
            if transposed { Matrix::from_view(view.t()) } else { Matrix::from_view(view) }
        };
        let (a, b) = (
            oriented(self.a.view(), self.transposed[0]).unwrap(),
            oriented(self.b.view(), self.transposed[1]).unwrap(),
        );
        let c0 = (beta != T::Acc::ZERO).then(|| self.c.view());
        let report = oracle::check::<T>(alpha, a.view(), b.view(), beta, c0, result.view()).unwrap();
        assert!(report.within(oracle::bound::<T>(a.shape().cols)), "{context}: {report:?}");
    }
}

/// Checks every candidate for a product, with and without an initial C. Returns their number.
fn candidates_agree<T: Sample>(
    lt: &CublasLt,
    gpu: &Gpu,
    batches: usize,
    sizes: [usize; 3],
    transposed: [bool; 2],
) -> usize {
    let product = Product::<T>::new(batches, sizes, transposed);
    let operands = product.operands(gpu, 1);
    let products = lt.candidates(&operands, Accuracy::Full, Activation::None).unwrap();
    for index in 0..products.len() {
        // For scaled or large integers the results of cublasLt are unspecified.
        for scalars in [[1.0, 0.0], [1.0, 1.0], [2.0, 0.5]]
            .into_iter()
            .filter(|[alpha, beta]| T::TYPE.is_float() || *beta == 0.0 && *alpha == 1.0)
        {
            let [alpha, beta] = scalars.map(|x| T::Acc::from_f64(x).unwrap());
            operands.set_c(product.c.view()).unwrap();
            GraphTimer::new(&operands, |a, b, c| products.queue(index, alpha, [a, b], beta, c)).run_once().unwrap();
            let context =
                format!("{} {sizes:?} ×{batches} {transposed:?} {scalars:?} {}", T::TYPE, products.name(index));
            product.assert_agrees([alpha, beta], &operands.c().unwrap(), &context);
        }
    }
    products.len()
}

#[test]
fn cublaslt_candidates_agree_with_the_oracle() {
    let Some(gpu) = gpu() else { return };
    let Some(lt) = cublaslt(&gpu) else { return };
    for transposed in LAYOUTS {
        for (batches, sizes) in
            [(1, [64, 96, 128]), (3, [48, 32, 80]), (1, [33, 17, 41]), (1, [1, 64, 32]), (2, [64, 1, 16])]
        {
            let found = [
                candidates_agree::<f64>(&lt, &gpu, batches, sizes, transposed),
                candidates_agree::<f32>(&lt, &gpu, batches, sizes, transposed),
                candidates_agree::<f16>(&lt, &gpu, batches, sizes, transposed),
                candidates_agree::<bf16>(&lt, &gpu, batches, sizes, transposed),
            ];
            assert!(found.iter().all(|&count| count > 0), "{sizes:?} {transposed:?}: {found:?}");
            let integers = candidates_agree::<i8>(&lt, &gpu, batches, sizes, transposed);
            // cublasLt supports integers with a column-major B, so a candidate must exist there.
            let is_supported = transposed == [false, true] && sizes == [64, 96, 128];
            assert!(integers > 0 || !is_supported, "no product of i8");
            assert_eq!(candidates_agree::<i32>(&lt, &gpu, batches, sizes, transposed), 0, "32-bit integers");
        }
    }
}

#[test]
fn candidate_with_other_operands_is_an_error() {
    let Some(gpu) = gpu() else { return };
    let Some(lt) = cublaslt(&gpu) else { return };
    let (one, other) = (Product::<f32>::new(1, [8, 8, 8], [false; 2]), Product::<f32>::new(1, [8, 8, 16], [false; 2]));
    let (operands, others) = (one.operands(&gpu, 1), other.operands(&gpu, 1));
    let products = lt.candidates(&operands, Accuracy::Full, Activation::None).unwrap();
    let mut other_operands = GraphTimer::new(&others, |a, b, c| products.queue(0, 1.0, [a, b], 0.0, c));
    assert!(matches!(other_operands.run_once(), Err(Error::Layout(_))));
    let mut none = GraphTimer::new(&operands, |a, b, c| products.queue(999, 1.0, [a, b], 0.0, c));
    assert!(matches!(none.run_once(), Err(Error::Layout(_))));
}

#[test]
fn graph_timer_runs_each_call_and_cycles_through_operand_sets() {
    let Some(gpu) = gpu() else { return };
    let product = Product::<i32>::new(1, [40, 24, 16], [true, false]);
    let device = Device::from(gpu.clone());
    for sets in [1, 3] {
        let operands = product.operands(&gpu, sets);
        operands.set_c(Matrix::<i32>::zeros(40, 24).unwrap().view()).unwrap();
        let mut queued = 0;
        let mut repeat = GraphTimer::new(&operands, |a, b, c| {
            queued += 1;
            Gemm::new(a, b, c).beta(1).on(&device).run().map(drop)
        });
        let times = repeat.time(2, 6).unwrap();
        assert!(times.len() == 2 && times.iter().all(|&call| call > 0.0), "{times:?}");
        drop(repeat);
        // One call before the capture, then a warm-up sample and two timed ones; beta = 1 counts
        // the calls.
        let calls = 1 + 3 * 6 / sets as i32;
        assert_eq!(queued, 1 + 6, "a graph is captured once");
        product.assert_agrees([calls, 0], &operands.c().unwrap(), &format!("{sets} sets"));
    }
}

#[test]
fn measured_row_has_tegula_and_the_peer() {
    let Some(gpu) = gpu() else { return };
    let device = Device::from(gpu);
    let peer = match Peer::cublaslt(&device) {
        Ok(peer) => peer,
        Err(why) if std::env::var_os("TEGULA_REQUIRE_CUBLASLT").is_none_or(|v| v != "1") => {
            return println!("skipped: {why}");
        }
        Err(why) => panic!("{why}"),
    };
    let settings = Settings { seed: 1, seconds: 0.0, plan: None, batch_invariant: false };
    for (alpha, beta, accuracy) in [
        (1.0, 0.0, Accuracy::Full),
        (0.5, 0.25, Accuracy::Full),
        (1.0, 0.0, Accuracy::Tf32),
        (0.5, 0.25, Accuracy::Tf32),
    ] {
        let (transposed, epilogue) = ([false, true], Epilogue::NONE);
        let case = Case::<f32> { m: 256, n: 128, k: 64, batch: 2, transposed, alpha, beta, accuracy, epilogue };
        let row = measure(&device, &case, &settings, &peer).unwrap();
        let peer = row.peer.as_ref().expect("cublasLt multiplies f32");
        assert!(row.speedup().is_some_and(|ratio| ratio > 0.0) && peer.candidates > 0, "{row:?}");
        // The peer may truncate to tf32 instead of rounding, which doubles the error bound.
        let tolerance = if accuracy == Accuracy::Full { 1.0 } else { 2.0 };
        assert!(row.ours.r <= case.bound() && peer.measurement.r <= tolerance * case.bound(), "{row:?}");
        assert!(
            row.input_sets > 1 && row.rows_checked == 512 && row.sampling.calls_per_sample % row.input_sets == 0,
            "{row:?}"
        );
    }
    let (transposed, accuracy, epilogue) = ([false; 2], Accuracy::Full, Epilogue::NONE);
    let case = Case::<i32> { m: 64, n: 64, k: 64, batch: 1, transposed, alpha: 1, beta: 0, accuracy, epilogue };
    let row = measure(&device, &case, &settings, &peer).unwrap();
    assert!(row.peer.is_none() && row.speedup().is_none() && row.ours.r == 0.0, "{row:?}");
}
