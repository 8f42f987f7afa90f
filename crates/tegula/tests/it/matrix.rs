//! `mma` in the interpreter: products of small integers, which are exact in every type, and its
//! errors.

use tegula::Matrix;
use tegula::interpret;
use tegula_interp::{self as interp, Arg, Config, FindingKind, Outcome};
use tegula_ir::prelude::*;

/// A bug to inject.
#[derive(Clone, Copy, PartialEq)]
enum Bug {
    None,
    /// Lane 3 passes the row address of lane 4.
    WrongRow,
    /// No synchronization after writing the tiles.
    NoSync,
    /// Rows are not aligned to 16 bytes.
    Misaligned,
    /// One tile is uninitialized.
    UninitializedTile,
}

/// C = A·Bᵀ + C by one instruction, its operands loaded as matrices from shared memory.
fn packed<T: Scalar, S: Scalar>(mma: Mma, bug: Bug) -> Kernel {
    kernel("packed", Block::d1(32), |k| {
        let (a, b) = (k.input::<T>("a"), k.input::<T>("b"));
        let c = k.matrix::<S>("c", Access::ReadWrite, Order2d::Strided, 1);
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        let ([m, n, depth], lane) = (mma.shape(), k.lane());
        let (tile_a, tile_b) = (k.shared::<T>("tile_a", [m, depth]), k.shared::<T>("tile_b", [n, depth]));
        fill(tile_a, a, m, depth);
        if bug != Bug::UninitializedTile {
            fill(tile_b, b, n, depth);
        }
        if bug != Bug::NoSync {
            k.sync_warp(FULL_WARP);
        }
        let unit = 16 / T::TYPE.size() as u32;
        let address_lane = if bug == Bug::WrongRow { lane.eq(3).select(4, lane) } else { lane };
        let (row, matrix) = (address_lane % 8, address_lane / 8);
        let misalignment = if bug == Bug::Misaligned { lane.eq(0).select(1, 0) } else { k.constant(0) };
        let a_registers = tile_a.load_matrix::<4>((row + matrix % 2 * 8, matrix / 2 * unit + misalignment), false);
        let b_registers = tile_b.load_matrix::<2>((lane % 8, lane / 8 % 2 * unit), false);
        multiply(k, mma, &a_registers, &b_registers, c);
    })
}

/// Copies a matrix to shared memory with one warp.
fn fill<'k, T: Scalar>(tile: Shared<'k, T>, from: Global<'k, T>, rows: u32, cols: u32) {
    for first in (0..rows * cols).step_by(32) {
        let at = tile.builder().lane() + first;
        tile.store((at / cols, at % cols), from.load((at / cols, at % cols)));
    }
}

/// C = A·B + C with a row-major B, which is transposed by the matrix load.
fn transposed_b<T: Scalar>(mma: Mma) -> Kernel {
    kernel("transposed_b", Block::d1(32), |k| {
        let (a, b) = (k.input::<T>("a"), k.input::<T>("b"));
        let c = k.matrix::<f32>("c", Access::ReadWrite, Order2d::Strided, 1);
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        let lane = k.lane();
        let (tile_a, tile_b) = (k.shared::<T>("tile_a", [16, 16]), k.shared::<T>("tile_b", [16, 8]));
        fill(tile_a, a, 16, 16);
        fill(tile_b, b, 16, 8);
        k.sync_warp(FULL_WARP);
        let a_registers = tile_a.load_matrix::<4>((lane % 16, lane / 16 * 8), false);
        let b_registers = tile_b.load_matrix::<2>((lane % 16, 0), true);
        multiply(k, mma, &a_registers, &b_registers, c);
    })
}

/// C = A·Bᵀ + C with f64 operands from global memory, one per register.
fn plain(mma: Mma) -> Kernel {
    kernel("plain", Block::d1(32), |k| {
        let (a, b) = (k.input::<f64>("a"), k.input::<f64>("b"));
        let c = k.matrix::<f64>("c", Access::ReadWrite, Order2d::Strided, 1);
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        let ([a_registers, b_registers, _], lane) = (mma.registers(), k.lane());
        let (row, col, halves) = (lane / 4, lane % 4, mma.shape()[0] / 8);
        let a: Vec<_> = (0..a_registers).map(|i| a.load((row + i % halves * 8, col + i / halves * 4))).collect();
        let b: Vec<_> = (0..b_registers).map(|i| b.load((row, col + i * 4))).collect();
        multiply(k, mma, &a, &b, c);
    })
}

fn multiply<'k, T: Scalar, S: Scalar>(k: &'k Builder, mma: Mma, a: &[Val<'k, T>], b: &[Val<'k, T>], c: Global<'k, S>) {
    let ([.., count], lane) = (mma.registers(), k.lane());
    let coord = |i: u32| (lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2);
    let accumulators = k.array::<S>(count);
    (0..count).for_each(|i| accumulators.at(i).set(c.load(coord(i))));
    k.mma(mma, a, b, accumulators);
    (0..count).for_each(|i| c.store(coord(i), accumulators.at(i).get()));
}

/// A small integer per element, different from its neighbors.
fn number(row: usize, col: usize) -> i32 {
    ((row * 7 + col * 5 + row * col) % 13) as i32
}

/// Runs a kernel on A (m×k), B (n×k, or k×n with `transposed_b`) and C (m×n). Returns C and the
/// outcome.
fn run<T: Scalar + FromSmallInt, S: Scalar + FromSmallInt>(
    mma: Mma,
    kernel: Kernel,
    transposed_b: bool,
) -> (Matrix<S>, Outcome) {
    let [m, n, k] = mma.shape().map(|extent| extent as usize);
    let kernel = check(kernel).unwrap();
    let a = Matrix::from_fn(m, k, |r, c| T::from_small_int(number(r, c))).unwrap();
    let b = if transposed_b {
        Matrix::from_fn(k, n, |r, c| T::from_small_int(number(c, r))).unwrap()
    } else {
        Matrix::from_fn(n, k, |r, c| T::from_small_int(number(r, c))).unwrap()
    };
    let c = Matrix::from_fn(m, n, |r, c| S::from_small_int(number(c, r + 3))).unwrap();
    let (a, b) = (interpret::input(a.view()).unwrap(), interpret::input(b.view()).unwrap());
    let c = interpret::in_out(c.view()).unwrap();
    let outcome = interp::run(&kernel, &[Arg::from(&a), Arg::from(&b), Arg::from(&c)], &Config::default()).unwrap();
    (interpret::to_matrix(&c).unwrap(), outcome)
}

/// Conversion from small integers.
trait FromSmallInt {
    fn from_small_int(number: i32) -> Self;
}

macro_rules! from_small_int {
    ($($t:ty: $from:expr;)*) => {$(impl FromSmallInt for $t {
        fn from_small_int(number: i32) -> Self { let from: fn(i32) -> $t = $from; from(number) }
    })*};
}
from_small_int! {
    f64: f64::from;
    f32: |x| x as f32;
    f16: |x| f16::from_f32(x as f32);
    bf16: |x| bf16::from_f32(x as f32);
    i32: |x| x;
    i8: |x| x as i8;
    u8: |x| x as u8;
}

fn is_correct<S: Scalar + FromSmallInt>(mma: Mma, c: &Matrix<S>) -> bool {
    let [m, n, k] = mma.shape().map(|extent| extent as usize);
    (0..m).all(|i| {
        (0..n).all(|j| {
            let product: i32 = (0..k).map(|p| number(i, p) * number(j, p)).sum();
            c[[i, j]] == S::from_small_int(product + number(j, i + 3))
        })
    })
}

/// Checks the counters of one instruction with its loads.
fn assert_counters(mma: Mma, outcome: &Outcome) {
    let counters = outcome.counters;
    assert_eq!(outcome.error(), None);
    assert_eq!(counters.fma, mma.multiply_adds());
    assert_eq!(counters.flops, if mma.accumulator_type() == Type::I32 { 0 } else { 2 * mma.multiply_adds() });
}

fn through_shared<T: Scalar + FromSmallInt, S: Scalar + FromSmallInt>(mma: Mma) {
    let (c, outcome) = run::<T, S>(mma, packed::<T, S>(mma, Bug::None), false);
    assert_counters(mma, &outcome);
    assert!(is_correct(mma, &c), "{mma}: {c:?}");
    assert_eq!(outcome.counters.shared_load_requests, 2);
    let (c, outcome) = run::<T, S>(mma, packed::<T, S>(mma, Bug::WrongRow), false);
    assert_eq!(outcome.error(), None);
    assert!(!is_correct(mma, &c), "{mma} gives the same result with a wrong row");
}

#[test]
fn mma_of_small_integers_is_exact() {
    through_shared::<f16, f32>(Mma::F16);
    through_shared::<bf16, f32>(Mma::BF16);
    through_shared::<f32, f32>(Mma::TF32);
    through_shared::<i8, i32>(Mma::I8);
    through_shared::<u8, i32>(Mma::U8);
    for mma in [Mma::F64M8K4, Mma::F64K4, Mma::F64K8, Mma::F64K16] {
        let (c, outcome) = run::<f64, f64>(mma, plain(mma), false);
        assert_counters(mma, &outcome);
        assert!(is_correct(mma, &c), "{mma}: {c:?}");
    }
}

#[test]
fn transposed_load_of_16_bit_matrices_is_correct() {
    let (c, outcome) = run::<f16, f32>(Mma::F16, transposed_b::<f16>(Mma::F16), true);
    assert_counters(Mma::F16, &outcome);
    assert!(is_correct(Mma::F16, &c), "{c:?}");
    let (c, _) = run::<bf16, f32>(Mma::BF16, transposed_b::<bf16>(Mma::BF16), true);
    assert!(is_correct(Mma::BF16, &c), "{c:?}");
}

/// The row stride is 32 bytes, so the 8 rows of a matrix need two wavefronts: the banks cover four
/// of them.
#[test]
fn matrix_load_wavefronts_depend_on_their_rows() {
    let (_, outcome) = run::<f16, f32>(Mma::F16, packed::<f16, f32>(Mma::F16, Bug::None), false);
    assert_eq!((outcome.counters.shared_load_wavefronts, outcome.counters.shared_bank_conflicts), (12, 6));
    assert_eq!(outcome.counters.shared_load_elements, 32 * 8 + 16 * 8);
}

#[test]
fn matrix_load_bugs_are_found() {
    let found = |bug| {
        let (_, outcome) = run::<f16, f32>(Mma::F16, packed::<f16, f32>(Mma::F16, bug), false);
        outcome.error().map(|finding| finding.kind)
    };
    assert_eq!(found(Bug::NoSync), Some(FindingKind::Race));
    assert_eq!(found(Bug::Misaligned), Some(FindingKind::Misaligned));
    assert_eq!(found(Bug::UninitializedTile), Some(FindingKind::Uninitialized));
}

fn check_error(build: impl for<'k> FnOnce(&'k Builder), threads: u32) -> String {
    let kernel = kernel("invalid", Block::d1(threads), |k| {
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        build(k);
    });
    check(kernel).map(|_| ()).expect_err("an invalid kernel").to_string()
}

fn zeros<'k, T: Scalar>(k: &'k Builder, count: u32) -> Array<'k, T> {
    let accumulators = k.array::<T>(count);
    (0..count).for_each(|i| accumulators.at(i).set(T::ZERO));
    accumulators
}

#[test]
fn invalid_mma_and_matrix_loads_are_errors() {
    let message = check_error(
        |k| {
            let accumulators = zeros::<f64>(k, 2);
            k.when(k.lane().lt(16), || k.mma(Mma::F64M8K4, &[k.constant(1.0)], &[k.constant(1.0)], accumulators));
        },
        32,
    );
    assert!(message.contains("may diverge within the warp"), "{message}");
    let message = check_error(
        |k| {
            let tile = k.shared::<f16>("tile", [32, 8]);
            k.when(k.lane().lt(16), || {
                let _ = tile.load_matrix::<1>((k.lane(), 0), false);
            });
        },
        32,
    );
    assert!(message.contains("may diverge within the warp"), "{message}");
    let message = check_error(|k| k.mma(Mma::F64M8K4, &[k.constant(1.0)], &[k.constant(1.0)], zeros::<f64>(k, 2)), 48);
    assert!(message.contains("not a whole number of warps"), "{message}");
    let message = check_error(|k| k.mma(Mma::F64M8K4, &[k.constant(1.0)], &[k.constant(1.0)], k.array::<f64>(2)), 32);
    assert!(message.contains("an accumulator may be uninitialized here"), "{message}");
    let message = check_error(|k| k.mma(Mma::F64K4, &[k.constant(1.0)], &[k.constant(1.0)], zeros::<f64>(k, 4)), 32);
    assert!(message.contains("needs 2 registers of A, not 1"), "{message}");
    let message = check_error(|k| k.mma(Mma::F64M8K4, &[k.constant(1.0)], &[k.constant(1.0)], zeros::<f64>(k, 4)), 32);
    assert!(message.contains("needs 2 accumulators, not 4"), "{message}");
    let message =
        check_error(|k| k.mma(Mma::F64M8K4, &[k.constant(1.0f32)], &[k.constant(1.0)], zeros::<f64>(k, 2)), 32);
    assert!(message.contains("needs A in registers of f64, not f32"), "{message}");
    let message =
        check_error(|k| k.mma(Mma::TF32, &[k.constant(1u32); 4], &[k.constant(1); 2], zeros::<i32>(k, 4)), 32);
    assert!(message.contains("needs accumulators of f32, not i32"), "{message}");
    let message = check_error(
        |k| {
            let _ = k.shared::<f16>("tile", [32, 8]).load_matrix::<3>((k.lane(), 0), false);
        },
        32,
    );
    assert!(message.contains("load 1, 2 or 4 from shared memory"), "{message}");
    let message = check_error(
        |k| {
            let _ = k.shared::<f16>("tile", [32, 8]).load_matrix::<1>((1, 4), false);
        },
        32,
    );
    assert!(message.contains("must start at a multiple of 8"), "{message}");
}

/// The accumulators of `mma` are not uniform.
#[test]
fn mma_accumulators_are_not_uniform() {
    let message = check_error(
        |k| {
            let accumulators = zeros::<f64>(k, 2);
            k.mma(Mma::F64M8K4, &[k.constant(1.0)], &[k.constant(1.0)], accumulators);
            k.when(accumulators.at(1).get().gt(0.0), || k.barrier());
        },
        32,
    );
    assert!(message.contains("a barrier in control flow that may diverge"), "{message}");
}
