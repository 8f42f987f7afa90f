use half::{bf16, f16};
use tegula::matrix::Matrix;

use super::prepared::{PeerCall, rounded};
use super::*;
use crate::oracle;

const ALL: [Blas; 6] = [Blas::Mkl, Blas::OpenBlas, Blas::Blis, Blas::OneDnn, Blas::Gemm, Blas::Matrixmultiply];

/// Small integers, so that all accumulation is exact.
fn small_integers<T: Element>(shape: Shape, of: impl Fn(i8) -> T) -> Matrix<T> {
    Matrix::from_shape_fn(shape, |batch, row, col| of(((batch * 5 + row * 7 + col * 3) % 11) as i8 - 5)).unwrap()
}

/// Checks all functions of one type in all layouts against the reference; returns their number.
fn compare<T: Element>(peer: &PeerLibrary, of: impl Fn(i8) -> T, scalars: [T::Acc; 2]) -> usize {
    let [alpha, beta] = scalars;
    let mut count = 0;
    for ([m, n, k], batches) in [([5, 9, 7], 1), ([16, 32, 64], 1), ([3, 1, 2], 3), ([1, 6, 1], 2)] {
        let shape = |rows, cols| Shape { batches, rows, cols };
        for transposed in [[false, false], [false, true], [true, false], [true, true]] {
            let stored =
                |rows, cols, t: bool| small_integers(if t { shape(cols, rows) } else { shape(rows, cols) }, &of);
            let (a, b) = (stored(m, k, transposed[0]), stored(k, n, transposed[1]));
            let (a, b) = (a.view(), b.view());
            let (a, b) = (if transposed[0] { a.t() } else { a }, if transposed[1] { b.t() } else { b });
            let before = Matrix::from_shape_fn(shape(m, n), |_, _, _| T::Out::from_bits(0)).unwrap();
            for mut product in peer.prepare(alpha, a, b, beta).unwrap() {
                product.set_c(&before);
                product.run().unwrap();
                let c = product.c().unwrap();
                let report = oracle::check::<T>(alpha, a, b, beta, Some(before.view()), c.view()).unwrap();
                assert!(report.r <= 1.0, "{} {} {m}×{n}×{k} {transposed:?}: {}", product.name(), T::TYPE, report.r);
                count += 1;
            }
        }
    }
    count
}

#[test]
fn peer_available_libraries_agree_with_the_reference() {
    for peer in ALL.into_iter().filter_map(|which| PeerLibrary::open(which).ok()) {
        peer.set_threads(1);
        let one = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
        let count = one.install(|| {
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
        println!("{}: {count:?} functions", peer.name());
        assert!(count[0] > 0 && count[7..] == [0, 0], "{}: {count:?}", peer.name());
    }
}

#[test]
fn peer_missing_crate_error_names_the_feature() {
    for which in [Blas::Gemm, Blas::Matrixmultiply] {
        let opened = PeerLibrary::open(which).map_err(|error| error.to_string());
        assert_eq!(opened.is_ok(), cfg!(feature = "peers"), "{opened:?}");
        if let Err(why) = opened {
            assert!(why.ends_with("build with '--features peers'"), "{why}");
        }
    }
}

#[test]
fn peer_f32_results_are_rounded_once() {
    let shape = Shape::new(1, 2);
    let call = PeerCall { name: "function", f32_c: true, function: Box::new(|_| Ok(())) };
    let mut product = PreparedProduct::<bf16>::new("library", call, shape).unwrap();
    assert_eq!(product.name(), "library function");
    let c = Matrix::from_shape_vec(shape, vec![bf16::from_f32(1.5), bf16::NAN]).unwrap();
    product.set_c(&c);
    assert_eq!(
        (product.c().unwrap().as_slice()[0], product.c().unwrap().as_slice()[1].is_nan()),
        (c.as_slice()[0], true)
    );
    assert_eq!(rounded::<f16>(1.0 + 1.0 / 4096.0).to_f32(), 1.0);
}

/// Two libraries have a function `answer`, and one of them is global, as MKL is. The other calls
/// its own.
#[test]
#[cfg(all(target_os = "linux", target_env = "gnu"))]
fn opened_library_calls_its_own_functions() {
    let folder = tempfile::tempdir().unwrap();
    let library = |name: &str, source: &str| {
        let path = folder.path().join(name);
        let file = path.with_extension("c");
        std::fs::write(&file, source).unwrap();
        let compiler = env::var_os("CXX").unwrap_or_else(|| "c++".into());
        let mut command = std::process::Command::new(compiler);
        match command.args(["-x", "c", "-shared", "-fPIC", "-o"]).arg(&path).arg(&file).status() {
            Ok(status) => assert!(status.success(), "{command:?}: {status}"),
            Err(why) => {
                let required = env::var("TEGULA_REQUIRE_CXX").is_ok_and(|required| required == "1");
                assert!(!required, "{command:?}: {why}");
                return None;
            }
        }
        Some(path.to_str().unwrap().to_owned())
    };
    let first = library("first.so", "int answer(void) { return 1; }\n");
    let second = library("second.so", "int answer(void) { return 2; }\nint asked(void) { return answer(); }\n");
    let (Some(first), Some(second)) = (first, second) else {
        eprintln!("skipped: no C compiler");
        return;
    };
    // SAFETY: the libraries have no initializers, and `asked` is of this type.
    unsafe {
        let flags = libc::RTLD_NOW | libc::RTLD_GLOBAL;
        let _global = libloading::os::unix::Library::open(Some(&first), flags).unwrap();
        let library = open_with_own_symbols(&second).unwrap();
        let asked = library.get::<unsafe extern "C" fn() -> c_int>(b"asked").unwrap();
        assert_eq!(asked(), 2);
    }
}
