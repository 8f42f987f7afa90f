use half::{bf16, f16};
use tegula::matrix::Matrix;

use super::ready::{Call, rounded};
use super::*;
use crate::oracle;

const ALL: [Blas; 6] = [Blas::Mkl, Blas::OpenBlas, Blas::Blis, Blas::OneDnn, Blas::Gemm, Blas::Matrixmultiply];

/// Small whole numbers, so that every sum is exact.
fn whole<T: Element>(shape: Shape, of: impl Fn(i8) -> T) -> Matrix<T> {
    Matrix::from_shape_fn(shape, |batch, row, col| of(((batch * 5 + row * 7 + col * 3) % 11) as i8 - 5)).unwrap()
}

/// Holds all products of one type in every layout against the reference; gives how many ways there were.
fn compare<T: Element>(peer: &Peer, of: impl Fn(i8) -> T, factors: [T::Acc; 2]) -> usize {
    let [alpha, beta] = factors;
    let mut ways = 0;
    for ([m, n, k], batches) in [([5, 9, 7], 1), ([16, 32, 64], 1), ([3, 1, 2], 3), ([1, 6, 1], 2)] {
        let shape = |rows, cols| Shape { batches, rows, cols };
        for transposed in [[false, false], [false, true], [true, false], [true, true]] {
            let stored = |rows, cols, t: bool| whole(if t { shape(cols, rows) } else { shape(rows, cols) }, &of);
            let (a, b) = (stored(m, k, transposed[0]), stored(k, n, transposed[1]));
            let (a, b) = (a.view(), b.view());
            let (a, b) = (if transposed[0] { a.t() } else { a }, if transposed[1] { b.t() } else { b });
            let before = Matrix::from_shape_fn(shape(m, n), |_, _, _| T::Out::from_bits(0)).unwrap();
            for mut ready in peer.ready(alpha, a, b, beta).unwrap() {
                ready.set(&before);
                ready.run().unwrap();
                let c = ready.c().unwrap();
                let report = oracle::check::<T>(alpha, a, b, beta, Some(before.view()), c.view()).unwrap();
                assert!(report.r <= 1.0, "{} {} {m}×{n}×{k} {transposed:?}: {}", ready.name(), T::TYPE, report.r);
                ways += 1;
            }
        }
    }
    ways
}

#[test]
fn every_library_that_is_here_makes_its_products() {
    for peer in ALL.into_iter().filter_map(|which| Peer::open(which).ok()) {
        peer.set_threads(1);
        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let ways = one.install(|| {
            [
                compare::<f32>(&peer, f32::from, [1.0, 0.0]),
                compare::<f32>(&peer, f32::from, [2.0, 1.0]),
                compare::<f64>(&peer, f64::from, [1.0, 0.0]),
                compare::<f64>(&peer, f64::from, [0.5, 1.0]),
                compare::<bf16>(&peer, |x| bf16::from_f32(x.into()), [1.0, 0.0]),
                compare::<f16>(&peer, |x| f16::from_f32(x.into()), [2.0, 1.0]),
                compare::<i8>(&peer, |x| x, [1, 0]),
                compare::<i8>(&peer, |x| x, [2, 0]),
                compare::<i32>(&peer, i32::from, [1, 0]),
            ]
        });
        println!("{}: {ways:?} ways", peer.name());
        assert!(ways[0] > 0 && ways[7..] == [0, 0], "{}: {ways:?}", peer.name());
    }
}

#[test]
fn a_crate_that_was_left_out_says_what_to_do() {
    for which in [Blas::Gemm, Blas::Matrixmultiply] {
        let opened = Peer::open(which).map_err(|error| error.to_string());
        assert_eq!(opened.is_ok(), cfg!(feature = "peers"), "{opened:?}");
        if let Err(why) = opened {
            assert!(why.ends_with("build with '--features peers'"), "{why}");
        }
    }
}

#[test]
fn short_results_are_rounded_once() {
    let shape = Shape::new(1, 2);
    let call = Call { name: "way", single: true, work: Box::new(|_| Ok(())) };
    let mut ready = Ready::<bf16>::new("library", call, shape).unwrap();
    assert_eq!(ready.name(), "library way");
    let c = Matrix::from_shape_vec(shape, vec![bf16::from_f32(1.5), bf16::NAN]).unwrap();
    ready.set(&c);
    assert_eq!((ready.c().unwrap().as_slice()[0], ready.c().unwrap().as_slice()[1].is_nan()), (c.as_slice()[0], true));
    assert_eq!(rounded::<f16>(1.0 + 1.0 / 4096.0).to_f32(), 1.0);
}
