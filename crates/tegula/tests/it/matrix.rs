//! Matrix instructions in the interpreter: products of small numbers, which are exact in every type, and what is refused or found.

use tegula::Matrix;
use tegula::interpret;
use tegula_interp::{self as interp, Arg, Config, Kind, Outcome};
use tegula_ir::prelude::*;

/// What may be wrong on purpose.
#[derive(Clone, Copy, PartialEq)]
enum Plant {
    Nothing,
    /// Lane 3 names the row of lane 4.
    WrongRow,
    /// Nobody waits for the tiles.
    NoSync,
    /// Rows begin in the middle of 16 bytes.
    Askew,
    /// One tile is never written.
    Empty,
}

/// C = A·Bᵀ + C by one instruction, its operands loaded as matrices from shared memory.
fn packed<T: Scalar, S: Scalar>(mma: Mma, plant: Plant) -> Kernel {
    kernel("packed", Block::d1(32), |k| {
        let (a, b) = (k.input::<T>("a"), k.input::<T>("b"));
        let c = k.matrix::<S>("c", Access::ReadWrite, Order2d::Strided, 1);
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        let ([m, n, depth], lane) = (mma.shape(), k.lane());
        let (tile_a, tile_b) = (k.shared::<T>("tile_a", [m, depth]), k.shared::<T>("tile_b", [n, depth]));
        fill(tile_a, a, m, depth);
        if plant != Plant::Empty {
            fill(tile_b, b, n, depth);
        }
        if plant != Plant::NoSync {
            k.sync_warp(FULL_WARP);
        }
        let unit = 16 / T::TYPE.size() as u32;
        let named = if plant == Plant::WrongRow { lane.eq(3).select(4, lane) } else { lane };
        let (row, matrix) = (named % 8, named / 8);
        let skew = if plant == Plant::Askew { lane.eq(0).select(1, 0) } else { k.constant(0) };
        let of_a = tile_a.load_matrix::<4>((row + matrix % 2 * 8, matrix / 2 * unit + skew), false);
        let of_b = tile_b.load_matrix::<2>((lane % 8, lane / 8 % 2 * unit), false);
        multiply(k, mma, &of_a, &of_b, c);
    })
}

/// The warp copies a matrix.
fn fill<'k, T: Scalar>(tile: Shared<'k, T>, from: Global<'k, T>, rows: u32, cols: u32) {
    for first in (0..rows * cols).step_by(32) {
        let at = tile.builder().lane() + first;
        tile.store((at / cols, at % cols), from.load((at / cols, at % cols)));
    }
}

/// The same with B as it lies, which 16-bit elements can have transposed on the way.
fn turned<T: Scalar>(mma: Mma) -> Kernel {
    kernel("turned", Block::d1(32), |k| {
        let (a, b) = (k.input::<T>("a"), k.input::<T>("b"));
        let c = k.matrix::<f32>("c", Access::ReadWrite, Order2d::Strided, 1);
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        let lane = k.lane();
        let (tile_a, tile_b) = (k.shared::<T>("tile_a", [16, 16]), k.shared::<T>("tile_b", [16, 8]));
        fill(tile_a, a, 16, 16);
        fill(tile_b, b, 16, 8);
        k.sync_warp(FULL_WARP);
        let of_a = tile_a.load_matrix::<4>((lane % 16, lane / 16 * 8), false);
        let of_b = tile_b.load_matrix::<2>((lane % 16, 0), true);
        multiply(k, mma, &of_a, &of_b, c);
    })
}

/// The same with operands from global memory, an f64 a register.
fn plain(mma: Mma) -> Kernel {
    kernel("plain", Block::d1(32), |k| {
        let (a, b) = (k.input::<f64>("a"), k.input::<f64>("b"));
        let c = k.matrix::<f64>("c", Access::ReadWrite, Order2d::Strided, 1);
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        let ([of_a, of_b, _], lane) = (mma.registers(), k.lane());
        let (row, col, halves) = (lane / 4, lane % 4, mma.shape()[0] / 8);
        let a: Vec<_> = (0..of_a).map(|i| a.load((row + i % halves * 8, col + i / halves * 4))).collect();
        let b: Vec<_> = (0..of_b).map(|i| b.load((row, col + i * 4))).collect();
        multiply(k, mma, &a, &b, c);
    })
}

fn multiply<'k, T: Scalar, S: Scalar>(k: &'k Builder, mma: Mma, a: &[Val<'k, T>], b: &[Val<'k, T>], c: Global<'k, S>) {
    let ([.., count], lane) = (mma.registers(), k.lane());
    let place = |i: u32| (lane / 4 + i / 2 * 8, lane % 4 * 2 + i % 2);
    let sums = k.array::<S>(count);
    (0..count).for_each(|i| sums.at(i).set(c.load(place(i))));
    k.mma(mma, a, b, sums);
    (0..count).for_each(|i| c.store(place(i), sums.at(i).get()));
}

/// A small whole number for each element, different from its neighbours in each direction.
fn number(row: usize, col: usize) -> i32 {
    ((row * 7 + col * 5 + row * col) % 13) as i32
}

/// Runs a kernel on A (m×k), B (n×k, or k×n where it is turned) and C (m×n); C and what happened.
fn run<T: Scalar + From8, S: Scalar + From8>(mma: Mma, kernel: Kernel, turned: bool) -> (Matrix<S>, Outcome) {
    let [m, n, k] = mma.shape().map(|extent| extent as usize);
    let kernel = check(kernel).unwrap();
    let a = Matrix::from_fn(m, k, |r, c| T::from8(number(r, c))).unwrap();
    let b = if turned {
        Matrix::from_fn(k, n, |r, c| T::from8(number(c, r))).unwrap()
    } else {
        Matrix::from_fn(n, k, |r, c| T::from8(number(r, c))).unwrap()
    };
    let c = Matrix::from_fn(m, n, |r, c| S::from8(number(c, r + 3))).unwrap();
    let (a, b) = (interpret::input(a.view()).unwrap(), interpret::input(b.view()).unwrap());
    let c = interpret::in_out(c.view()).unwrap();
    let outcome = interp::run(&kernel, &[Arg::from(&a), Arg::from(&b), Arg::from(&c)], &Config::default()).unwrap();
    (interpret::to_matrix(&c).unwrap(), outcome)
}

/// Types that hold small whole numbers.
trait From8 {
    fn from8(number: i32) -> Self;
}

macro_rules! from8 {
    ($($t:ty: $from:expr;)*) => {$(impl From8 for $t {
        fn from8(number: i32) -> Self { let from: fn(i32) -> $t = $from; from(number) }
    })*};
}
from8! {
    f64: f64::from;
    f32: |x| x as f32;
    f16: |x| f16::from_f32(x as f32);
    bf16: |x| bf16::from_f32(x as f32);
    i32: |x| x;
    i8: |x| x as i8;
    u8: |x| x as u8;
}

fn right<S: Scalar + From8>(mma: Mma, c: &Matrix<S>) -> bool {
    let [m, n, k] = mma.shape().map(|extent| extent as usize);
    (0..m).all(|i| {
        (0..n).all(|j| {
            let product: i32 = (0..k).map(|p| number(i, p) * number(j, p)).sum();
            c[[i, j]] == S::from8(product + number(j, i + 3))
        })
    })
}

/// The counters of one instruction with its loads.
fn costs(mma: Mma, outcome: &Outcome) {
    let counters = outcome.counters;
    assert_eq!(outcome.error(), None);
    assert_eq!(counters.fma, mma.products());
    assert_eq!(counters.flops, if mma.sums() == Type::I32 { 0 } else { 2 * mma.products() });
}

fn through_shared<T: Scalar + From8, S: Scalar + From8>(mma: Mma) {
    let (c, outcome) = run::<T, S>(mma, packed::<T, S>(mma, Plant::Nothing), false);
    costs(mma, &outcome);
    assert!(right(mma, &c), "{mma}: {c:?}");
    assert_eq!(outcome.counters.shared_load_requests, 2);
    let (c, outcome) = run::<T, S>(mma, packed::<T, S>(mma, Plant::WrongRow), false);
    assert_eq!(outcome.error(), None);
    assert!(!right(mma, &c), "{mma} does not see a wrong row");
}

#[test]
fn products_of_small_numbers_are_exact() {
    through_shared::<f16, f32>(Mma::F16);
    through_shared::<bf16, f32>(Mma::BF16);
    through_shared::<f32, f32>(Mma::TF32);
    through_shared::<i8, i32>(Mma::I8);
    through_shared::<u8, i32>(Mma::U8);
    for mma in [Mma::F64M8K4, Mma::F64K4, Mma::F64K8, Mma::F64K16] {
        let (c, outcome) = run::<f64, f64>(mma, plain(mma), false);
        costs(mma, &outcome);
        assert!(right(mma, &c), "{mma}: {c:?}");
    }
}

#[test]
fn matrices_of_16_bit_elements_turn_as_they_are_loaded() {
    let (c, outcome) = run::<f16, f32>(Mma::F16, turned::<f16>(Mma::F16), true);
    costs(Mma::F16, &outcome);
    assert!(right(Mma::F16, &c), "{c:?}");
    let (c, _) = run::<bf16, f32>(Mma::BF16, turned::<bf16>(Mma::BF16), true);
    assert!(right(Mma::BF16, &c), "{c:?}");
}

/// Rows of 16 elements of two bytes, 32 bytes apart: the 8 of a matrix take two passes, since a pass has banks for four of them.
#[test]
fn matrices_cost_what_their_rows_cost() {
    let (_, outcome) = run::<f16, f32>(Mma::F16, packed::<f16, f32>(Mma::F16, Plant::Nothing), false);
    assert_eq!((outcome.counters.shared_load_wavefronts, outcome.counters.shared_bank_conflicts), (12, 6));
    assert_eq!(outcome.counters.shared_load_elements, 32 * 8 + 16 * 8);
}

#[test]
fn matrix_loads_are_held_to_what_other_loads_are() {
    let found = |plant| {
        let (_, outcome) = run::<f16, f32>(Mma::F16, packed::<f16, f32>(Mma::F16, plant), false);
        outcome.error().map(|finding| finding.kind)
    };
    assert_eq!(found(Plant::NoSync), Some(Kind::Race));
    assert_eq!(found(Plant::Askew), Some(Kind::Misaligned));
    assert_eq!(found(Plant::Empty), Some(Kind::Uninitialised));
}

fn refusal(build: impl for<'k> FnOnce(&'k Builder), threads: u32) -> String {
    let kernel = kernel("refused", Block::d1(threads), |k| {
        k.grid([k.constant(1), k.constant(1), k.constant(1)]);
        build(k);
    });
    check(kernel).map(|_| ()).expect_err("planted").to_string()
}

fn zeros<'k, T: Scalar>(k: &'k Builder, count: u32) -> Array<'k, T> {
    let sums = k.array::<T>(count);
    (0..count).for_each(|i| sums.at(i).set(T::ZERO));
    sums
}

#[test]
fn what_cannot_be_multiplied_is_refused() {
    let parted = refusal(
        |k| {
            let sums = zeros::<f64>(k, 2);
            k.when(k.lane().lt(16), || k.mma(Mma::F64M8K4, &[k.constant(1.0)], &[k.constant(1.0)], sums));
        },
        32,
    );
    assert!(parted.contains("not all lanes of the warp"), "{parted}");
    let parted = refusal(
        |k| {
            let tile = k.shared::<f16>("tile", [32, 8]);
            k.when(k.lane().lt(16), || {
                let _ = tile.load_matrix::<1>((k.lane(), 0), false);
            });
        },
        32,
    );
    assert!(parted.contains("not all lanes of the warp"), "{parted}");
    let few = refusal(|k| k.mma(Mma::F64M8K4, &[k.constant(1.0)], &[k.constant(1.0)], zeros::<f64>(k, 2)), 48);
    assert!(few.contains("no whole number of warps"), "{few}");
    let unset = refusal(|k| k.mma(Mma::F64M8K4, &[k.constant(1.0)], &[k.constant(1.0)], k.array::<f64>(2)), 32);
    assert!(unset.contains("before it is set"), "{unset}");
    let count = refusal(|k| k.mma(Mma::F64K4, &[k.constant(1.0)], &[k.constant(1.0)], zeros::<f64>(k, 4)), 32);
    assert!(count.contains("takes 2 registers of A, not 1"), "{count}");
    let sums = refusal(|k| k.mma(Mma::F64M8K4, &[k.constant(1.0)], &[k.constant(1.0)], zeros::<f64>(k, 4)), 32);
    assert!(sums.contains("takes 2 sums, not 4"), "{sums}");
    let ty = refusal(|k| k.mma(Mma::F64M8K4, &[k.constant(1.0f32)], &[k.constant(1.0)], zeros::<f64>(k, 2)), 32);
    assert!(ty.contains("takes A as f64, not f32"), "{ty}");
    let ty = refusal(|k| k.mma(Mma::TF32, &[k.constant(1u32); 4], &[k.constant(1); 2], zeros::<i32>(k, 4)), 32);
    assert!(ty.contains("sums in f32, not i32"), "{ty}");
    let three = refusal(
        |k| {
            let _ = k.shared::<f16>("tile", [32, 8]).load_matrix::<3>((k.lane(), 0), false);
        },
        32,
    );
    assert!(three.contains("1, 2 or 4 go"), "{three}");
    let askew = refusal(
        |k| {
            let _ = k.shared::<f16>("tile", [32, 8]).load_matrix::<1>((1, 4), false);
        },
        32,
    );
    assert!(askew.contains("no multiple of 8"), "{askew}");
}

/// What an instruction adds to is no longer what all lanes agree on.
#[test]
fn sums_differ_from_lane_to_lane() {
    let parted = refusal(
        |k| {
            let sums = zeros::<f64>(k, 2);
            k.mma(Mma::F64M8K4, &[k.constant(1.0)], &[k.constant(1.0)], sums);
            k.when(sums.at(1).get().gt(0.0), || k.barrier());
        },
        32,
    );
    assert!(parted.contains("a barrier where not all"), "{parted}");
}
