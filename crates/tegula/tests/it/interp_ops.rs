//! Semantics of each group of operations, on small kernels: results against plain Rust, and errors
//! by their kind.

use tegula::element::Scalar;
use tegula::interpret;
use tegula::{Layout, Matrix, Shape, View};
use tegula_interp::{Arg, Buffer, Config, Finding, FindingKind, Outcome, Severity, run};
use tegula_ir::Float;
use tegula_ir::prelude::*;

pub fn row_of<T: Scalar>(data: &[T]) -> Buffer {
    interpret::in_out(View::new(data, 1, data.len()).unwrap()).unwrap()
}

pub fn empty<T: Scalar>(len: usize) -> Buffer {
    Buffer::output(T::TYPE, Layout::row_major(Shape::new(1, len)).unwrap()).unwrap()
}

pub fn values<T: Scalar>(buffer: &Buffer) -> Vec<T> {
    buffer.to_vec::<T>().unwrap()
}

/// A kernel with this number of blocks and threads.
pub fn blocks(blocks: u32, threads: u32, build: impl for<'k> FnOnce(&'k Builder)) -> Checked<Kernel> {
    let kernel = kernel("small", Block::d1(threads), |k| {
        k.grid([k.constant(blocks), k.constant(1), k.constant(1)]);
        build(k);
    });
    check(kernel).unwrap()
}

/// Runs on several seeds, with and without parallel blocks, and checks each outcome.
pub fn for_each_seed(
    kernel: &Checked<Kernel>,
    args: impl Fn() -> Vec<Buffer>,
    check_outcome: impl Fn(&Outcome, &[Buffer]),
) {
    for seed in 0..8 {
        let buffers = args();
        let config = Config { seed, parallel: seed % 2 == 0, ..Config::default() };
        let outcome = run(kernel, &buffers.iter().map(Arg::from).collect::<Vec<_>>(), &config).unwrap();
        check_outcome(&outcome, &buffers);
    }
}

pub fn errors(outcome: &Outcome) -> Vec<&Finding> {
    outcome.findings.iter().filter(|f| f.severity() == Severity::Error).collect()
}

/// Checks that every run ends without an error and with these values in the last buffer.
#[track_caller]
pub fn assert_result<T: Scalar>(kernel: &Checked<Kernel>, args: impl Fn() -> Vec<Buffer>, expected: &[T]) {
    for_each_seed(kernel, args, |outcome, buffers| {
        assert_eq!(outcome.error(), None);
        assert_eq!(values::<T>(&buffers[buffers.len() - 1]), expected);
    });
}

/// Checks that every run finds errors of this kind only.
#[track_caller]
pub fn assert_finds(kind: FindingKind, kernel: &Checked<Kernel>, args: impl Fn() -> Vec<Buffer>) {
    for_each_seed(kernel, args, |outcome, _| {
        let kinds: Vec<_> = errors(outcome).iter().map(|f| f.kind).collect();
        assert!(!kinds.is_empty() && kinds.iter().all(|&k| k == kind), "{:?}", outcome.findings);
    });
}

/// Compares the results of an operation in 32 lanes bit for bit; NaN equals NaN.
#[track_caller]
fn computes<T: Scalar, U: Scalar>(
    operands: &[(T, T)],
    build: impl for<'k> Fn(Val<'k, T>, Val<'k, T>) -> Val<'k, U>,
    expect: impl Fn(T, T) -> U,
) {
    let kernel = blocks(1, 32, |k| {
        let (x, y) = (k.input::<T>("x"), k.output::<U>("y"));
        let count = x.rows();
        k.for_step(k.thread_x(), count, 32, |i| y.store((0, i), build(x.load((i, 0)), x.load((i, 1)))));
    });
    let flat = operands.iter().flat_map(|&(a, b)| [a, b]).collect();
    let x = interpret::input(Matrix::from_vec(operands.len(), 2, flat).unwrap().view()).unwrap();
    let y = empty::<U>(operands.len());
    let outcome = run(&kernel, &[Arg::from(&x), Arg::from(&y)], &Config::default()).unwrap();
    assert_eq!(outcome.error(), None);
    for (&(a, b), y) in operands.iter().zip(values::<U>(&y)) {
        let expected = expect(a, b);
        #[allow(clippy::eq_op, reason = "NaN differs from itself")]
        let nan = expected != expected && y != y;
        assert!(nan || y.to_bits() == expected.to_bits(), "operands {a:?} and {b:?}: {y:?}, expected {expected:?}");
    }
}

fn pairs<T: Scalar>(interesting: &[T]) -> Vec<(T, T)> {
    interesting.iter().flat_map(|&a| interesting.iter().map(move |&b| (a, b))).collect()
}

macro_rules! integers {
    ($($name:ident $t:ty: $values:expr;)*) => {$(
        #[test]
        fn $name() {
            type T = $t;
            let all = pairs::<T>(&$values);
            let nonzero: Vec<_> = all.iter().copied().filter(|p| p.1 != 0).collect();
            computes(&all, |a, b| a + b, T::wrapping_add);
            computes(&all, |a, b| a - b, T::wrapping_sub);
            computes(&all, |a, b| a * b, T::wrapping_mul);
            computes(&nonzero, |a, b| a / b, T::wrapping_div);
            computes(&nonzero, |a, b| a % b, T::wrapping_rem);
            computes(&all, |a, b| a.min(b), |a, b| a.min(b));
            computes(&all, |a, b| a.max(b), |a, b| a.max(b));
            computes(&all, |a, b| a & b, |a, b| a & b);
            computes(&all, |a, b| a | b, |a, b| a | b);
            computes(&all, |a, b| a ^ b, |a, b| a ^ b);
            let count = |b: T| u32::try_from(b).ok().filter(|&b| b < T::BITS);
            computes(&all, |a, b| a << b, |a, b| count(b).map_or(0, |b| a << b));
            computes(&all, |a, b| a >> b, |a, b| count(b).map_or(a >> (T::BITS - 1) >> 1u32.min((a >= 0 as T) as u32), |b| a >> b));
            computes(&all, |a, _| -a, |a, _| a.wrapping_neg());
            computes(&all, |a, _| !a, |a, _| !a);
            computes(&all, |a, b| a.mul_add(b, a), |a, b| a.wrapping_mul(b).wrapping_add(a));
            // Constants fold to shifts and masks, which must be equivalent.
            computes(&all, |a, _| a * 8, |a, _| a.wrapping_mul(8));
            computes(&all, |a, _| a / 8, |a, _| a / 8);
            computes(&all, |a, _| a % 8, |a, _| a % 8);
            computes(&all, |a, _| a / 7, |a, _| a / 7);
            compared::<T>(&all);
        }
    )*};
}
integers! {
    i32_operations_equal_those_of_rust i32: [0, 1, -1, 2, -7, 31, 32, 33, -8, i32::MIN, i32::MAX, 0x1234_5678];
    u32_operations_equal_those_of_rust u32: [0, 1, 2, 7, 31, 32, 33, 1 << 31, u32::MAX, 0x1234_5678];
    i64_operations_equal_those_of_rust i64: [0, 1, -1, 2, -7, 32, 63, 64, -8, i64::MIN, i64::MAX, 0x1234_5678_9abc];
    u64_operations_equal_those_of_rust u64: [0, 1, 2, 7, 32, 63, 64, 1 << 63, u64::MAX, 1 << 32, 0x1234_5678_9abc];
}

fn compared<T: Arith + PartialOrd>(all: &[(T, T)]) {
    computes(all, |a, b| a.eq(b).select(1u32, 0u32), |a, b| u32::from(a == b));
    computes(all, |a, b| a.ne(b).select(1u32, 0u32), |a, b| u32::from(a != b));
    computes(all, |a, b| a.lt(b).select(1u32, 0u32), |a, b| u32::from(a < b));
    computes(all, |a, b| a.le(b).select(1u32, 0u32), |a, b| u32::from(a <= b));
    computes(all, |a, b| a.gt(b).select(1u32, 0u32), |a, b| u32::from(a > b));
    computes(all, |a, b| a.ge(b).select(1u32, 0u32), |a, b| u32::from(a >= b));
    computes(all, |a, b| a.lt(b).select(a, b), |a, b| if a < b { a } else { b });
}

/// Checks float operations. Narrow types compute in f64, which is wide enough to round once more.
fn floats<T: Float + PartialOrd>(
    all: &[(T, T)],
    arithmetic: impl Fn(char, T, T) -> T,
    mul_add: impl Fn(T, T, T) -> T,
    negative: impl Fn(T) -> T,
) {
    computes(all, |a, b| a + b, |a, b| arithmetic('+', a, b));
    computes(all, |a, b| a - b, |a, b| arithmetic('-', a, b));
    computes(all, |a, b| a * b, |a, b| arithmetic('*', a, b));
    computes(all, |a, b| a / b, |a, b| arithmetic('/', a, b));
    computes(all, |a, b| a.mul_add(b, a), |a, b| mul_add(a, b, a));
    computes(all, |a, _| -a, |a, _| negative(a));
    let sign = |a: T| a.to_bits() >> (8 * T::TYPE.size() - 1) & 1;
    computes(all, |a, _| a.abs(), |a, _| if sign(a) == 1 { negative(a) } else { a });
    #[allow(clippy::eq_op, reason = "NaN differs from itself")]
    let minimum = |a: T, b: T| match () {
        () if a != a => b,
        () if b != b => a,
        () if a == b => {
            if sign(a) == 1 {
                a
            } else {
                b
            }
        }
        () => {
            if a < b {
                a
            } else {
                b
            }
        }
    };
    computes(all, |a, b| a.min(b), minimum);
    computes(all, |a, b| a.max(b), |a, b| negative(minimum(negative(a), negative(b))));
    compared::<T>(all);
}

macro_rules! plain_arithmetic {
    ($t:ty) => {
        |op: char, a: $t, b: $t| match op {
            '+' => a + b,
            '-' => a - b,
            '*' => a * b,
            _ => a / b,
        }
    };
}

const NUMBERS: [f64; 14] = [
    0.0,
    -0.0,
    1.0,
    -1.5,
    3.0,
    0.1,
    1e-7,
    65504.0,
    -3e4,
    1e30,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    1.000_976_562_5,
];

#[test]
fn f64_operations_equal_those_of_rust() {
    floats::<f64>(&pairs(&NUMBERS), plain_arithmetic!(f64), f64::mul_add, |x| -x);
    floats::<f64>(&pairs(&[f64::MAX, f64::MIN_POSITIVE, 5e-324, 1.0]), plain_arithmetic!(f64), f64::mul_add, |x| -x);
}

#[test]
fn f32_operations_equal_those_of_rust() {
    let numbers = NUMBERS.map(|x| x as f32);
    floats::<f32>(&pairs(&numbers), plain_arithmetic!(f32), f32::mul_add, |x| -x);
    floats::<f32>(&pairs(&[f32::MAX, 1e-40, 1e-45, 1.0]), plain_arithmetic!(f32), f32::mul_add, |x| -x);
}

#[test]
fn f16_and_bf16_operations_equal_those_of_rust() {
    let half = NUMBERS.map(f16::from_f64);
    // f64 holds these products and sums exactly.
    let mul_add = |a: f16, b: f16, c: f16| f16::from_f64(f64::mul_add(a.into(), b.into(), c.into()));
    floats::<f16>(&pairs(&half), plain_arithmetic!(f16), mul_add, |x| -x);
    let brain = NUMBERS.map(bf16::from_f64);
    let arithmetic = |op, a: bf16, b: bf16| bf16::from_f64(plain_arithmetic!(f64)(op, a.into(), b.into()));
    let moderate: Vec<_> =
        pairs(&brain).into_iter().filter(|(a, b)| !(a.to_f64().abs() > 1e20 || b.to_f64().abs() > 1e20)).collect();
    let mul_add = |a: bf16, b: bf16, c: bf16| bf16::from_f64(f64::mul_add(a.into(), b.into(), c.into()));
    floats::<bf16>(&moderate, arithmetic, mul_add, |x| -x);
}

macro_rules! to_integers {
    ($from:ty, $values:expr => $($to:ty),*) => {$(
        computes(&pairs::<$from>(&$values), |a, _| a.to::<$to>(), |a, _| a as $to);
    )*};
}

#[test]
fn conversions_equal_those_of_rust() {
    let floats =
        [0.0, -0.0, 0.5, -0.9, 1.5, 127.9, 128.0, -129.0, 255.5, 256.0, 1e10, -1e10, 1e19, 1e30, f64::INFINITY];
    to_integers!(f64, floats => i8, u8, i32, u32, i64, u64, f32);
    let narrow = floats.map(|x| x as f32);
    to_integers!(f32, narrow => i8, u8, i32, u32, i64, u64, f64);
    to_integers!(i8, [0, 1, -1, 127, -128] => u8, i32, u32, i64, u64, f32, f64);
    to_integers!(u8, [0, 1, 127, 128, 255] => i8, i32, u32, i64, u64, f32, f64);
    to_integers!(i32, [0, 1, -1, 200, -200, i32::MAX, i32::MIN, 16_777_217] => i8, u8, u32, i64, u64, f32, f64);
    to_integers!(u32, [0, 1, 200, u32::MAX, 16_777_219] => i8, u8, i32, i64, u64, f32, f64);
    let long = [0, -1, 1 << 40, i64::MAX, i64::MIN, (1 << 53) + 1, (1 << 24) + 1, -((1 << 25) + 3)];
    to_integers!(i64, long => i8, u8, i32, u32, u64, f32, f64);
    to_integers!(u64, [0, 1, u64::MAX, (1 << 53) + 1, (1 << 63) + 1025] => i8, u8, i32, u32, i64, f32, f64);
    computes(&[(f64::NAN, 0.0)], |a, _| a.to::<i32>(), |_, _| i32::MIN);
    computes(&[(f32::NAN, 0.0)], |a, _| a.to::<u32>(), |_, _| 0);
    computes(&[(f32::NAN, 0.0)], |a, _| a.to::<i64>(), |_, _| i64::MIN);
    let halves: Vec<_> = (0..=u16::MAX).map(|b| (f16::from_bits(b), f16::ZERO)).collect();
    computes(&halves, |a, _| a.to::<f32>(), |a, _| a.to_f32());
    computes(&halves, |a, _| a.to::<f32>().to::<f16>(), |a, _| a);
    let brains: Vec<_> = (0..=u16::MAX).map(|b| (bf16::from_bits(b), bf16::ZERO)).collect();
    computes(&brains, |a, _| a.to::<f64>(), |a, _| a.to_f64());
    computes(&brains, |a, _| a.to::<f64>().to::<bf16>(), |a, _| a);
    computes(&pairs(&[1.0f32, -2.5]), |a, _| a.bitcast::<u32>(), |a, _| a.to_bits());
}

#[test]
fn division_by_zero_in_an_active_lane_is_found() {
    let divided = |guarded: bool| {
        blocks(1, 32, |k| {
            let (y, x) = (k.output::<i32>("y"), k.thread_x().to::<i32>());
            let divide = || y.store((0, k.thread_x()), (x + 100) / (x - 5));
            if guarded { k.when(x.ne(5), divide) } else { divide() }
        })
    };
    assert_finds(FindingKind::DivisionByZero, &divided(false), || vec![empty::<i32>(32)]);
    for_each_seed(&divided(true), || vec![empty::<i32>(32)], |outcome, _| assert_eq!(outcome.error(), None));
}

#[test]
fn divergent_lanes_reconverge() {
    let kernel = blocks(1, 64, |k| {
        let (y, t) = (k.output::<u32>("y"), k.thread_x());
        let (sum, wide) = (k.var(7u32), k.var(0u64));
        k.if_else(
            (t & 1).eq(1),
            || {
                // Nested loops, with a trip count that depends on the lane.
                k.for_each(0, t, |i| {
                    k.for_step(i, t, 2, |_| sum.set(sum.get() + 1));
                    k.when((i & 3).eq(2), || wide.set(wide.get() + (i.to::<u64>() << 33)));
                });
            },
            || k.when(t.gt(40), || sum.set(t * 2)),
        );
        let left = k.var(t);
        k.while_loop(
            || left.get().gt(1),
            || {
                k.if_else((left.get() & 1).eq(0), || left.set(left.get() / 2), || left.set(left.get() * 3 + 1));
                sum.set(sum.get() + 1000);
            },
        );
        y.store((0, t), sum.get() + (wide.get() >> 33).to::<u32>() * 1_000_000);
    });
    let expected: Vec<u32> = (0..64u32)
        .map(|t| {
            let (mut sum, mut wide) = (7, 0);
            if t % 2 == 1 {
                (0..t).for_each(|i| sum += (t - i).div_ceil(2));
                wide = (0..t).filter(|i| i % 4 == 2).sum();
            } else if t > 40 {
                sum = t * 2;
            }
            let mut left = t;
            while left > 1 {
                left = if left % 2 == 0 { left / 2 } else { left * 3 + 1 };
                sum += 1000;
            }
            sum + wide * 1_000_000
        })
        .collect();
    assert_result(&kernel, || vec![empty::<u32>(64)], &expected);
}

#[test]
fn loop_counter_overflow_ends_the_loop() {
    let kernel = blocks(1, 32, |k| {
        let (y, sum) = (k.output::<u32>("y"), k.var(0u32));
        k.for_step(k.thread_x() + (u32::MAX - 40), u32::MAX, 16, |_| sum.set(sum.get() + 1));
        y.store((0, k.thread_x()), sum.get());
    });
    let rounds =
        |t: u32| (0..).map(|i| u64::from(u32::MAX - 40 + t) + 16 * i).take_while(|&x| x < u32::MAX.into()).count();
    assert_result(&kernel, || vec![empty::<u32>(32)], &(0..32).map(|t| rounds(t) as u32).collect::<Vec<_>>());
}

#[test]
fn register_arrays_hold_values_per_lane() {
    let kernel = blocks(1, 32, |k| {
        let (y, t) = (k.output::<f64>("y"), k.thread_x());
        let registers = k.array::<f64>(4);
        (0..4).for_each(|i| registers.at(i).set((t * (i + 1)).to::<f64>()));
        k.when(t.lt(9), || registers.at(2).set(0.5));
        let sum = (1..4).fold(registers.at(0).get(), |sum, i| sum + registers.at(i).get());
        y.store((0, t), sum);
    });
    let expected: Vec<_> =
        (0..32).map(|t| if t < 9 { 7.0 * f64::from(t) + 0.5 } else { 10.0 * f64::from(t) }).collect();
    assert_result(&kernel, || vec![empty::<f64>(32)], &expected);
}

#[test]
fn whole_and_partial_vectors_are_moved() {
    let kernel = blocks(1, 32, |k| {
        let x = k.matrix::<f32>("x", Access::Read, Order2d::RowMajor, 4);
        let y = k.matrix::<f32>("y", Access::Write, Order2d::RowMajor, 4);
        let (tile, t) = (k.shared::<f32>("tile", [32, 4]), k.thread_x());
        let left = x.cols() - (t * 4).min(x.cols());
        tile.store_vec((t, 0), x.load_vec_or::<4>((0, t * 4), left, -1.0));
        k.sync_warp(FULL_WARP);
        let [a, b] = tile.load_vec::<2>((t ^ 1, 0));
        let [c, d] = tile.load_vec::<2>((t ^ 1, 2));
        y.store_vec_first((0, t * 4), [a, b, c, d], y.cols() - (t * 4).min(y.cols()));
    });
    let x: Vec<f32> = (0..110).map(|i| i as f32).collect();
    let expected: Vec<f32> = (0..115).map(|i| i ^ 4).map(|i| if i < 110 { i as f32 } else { -1.0 }).collect();
    // Both views have a row stride that is a multiple of 4.
    let layout = |cols| Layout { shape: Shape::new(1, cols), offset: 0, strides: [0, 128, 1] };
    let args = || {
        vec![
            interpret::input(View::strided(&x, layout(110)).unwrap()).unwrap(),
            Buffer::output(Type::F32, layout(115)).unwrap(),
        ]
    };
    assert_result(&kernel, args, &expected);
}

#[test]
fn misaligned_vectors_are_found() {
    let kernel = blocks(1, 32, |k| {
        let tile = k.shared::<f32>("tile", [256]);
        tile.store_vec((k.thread_x() * 4 + 2,), [k.constant(1.0); 4]);
    });
    assert_finds(FindingKind::Misaligned, &kernel, Vec::new);
    let kernel = blocks(1, 1, |k| {
        let y = k.matrix::<f32>("y", Access::Write, Order2d::RowMajor, 4);
        y.store_vec((0, k.block_x() + k.thread_x() + 1), [k.constant(1.0); 2]);
    });
    assert_finds(FindingKind::Misaligned, &kernel, || vec![empty::<f32>(8)]);
}

#[test]
fn shuffles_and_votes_exchange_values() {
    let kernel = blocks(1, 32, |k| {
        let (y, t) = (k.output::<u32>("y"), k.thread_x());
        let value = t * 3 + 1;
        let modes = [Shuffle::Index, Shuffle::Up, Shuffle::Down, Shuffle::Xor];
        for (i, mode) in (0..).zip(modes) {
            y.store((0, t + 32 * i), k.shuffle(mode, value, 5, FULL_WARP));
        }
        y.store((0, t + 128), k.shuffle(Shuffle::Index, value, t + 31, FULL_WARP));
        y.store((0, t + 160), k.ballot((t % 3).eq(0), FULL_WARP));
        let (all, any) = (k.all(t.lt(31), FULL_WARP), k.any(t.eq(31), FULL_WARP));
        y.store((0, t + 192), all.select(1u32, 0u32) + any.select(2u32, 0u32));
        let low = k.var(0u32);
        k.when(t.lt(8), || low.set(k.ballot((t & 1).eq(1), 0xff)));
        y.store((0, t + 224), low.get());
    });
    let of = |lane: u32| lane * 3 + 1;
    let mut expected: Vec<u32> = vec![of(5); 32];
    expected.extend((0..32).map(|t| of(if t < 5 { t } else { t - 5 })));
    expected.extend((0..32).map(|t| of(if t + 5 < 32 { t + 5 } else { t })));
    expected.extend((0..32).map(|t| of(t ^ 5)));
    expected.extend((0..32).map(|t| of((t + 31) % 32)));
    expected.extend([(0..32).filter(|t| t % 3 == 0).map(|t| 1 << t).sum::<u32>(); 32]);
    expected.extend([2; 32]);
    expected.extend((0..32).map(|t| if t < 8 { 0xaa } else { 0 }));
    assert_result(&kernel, || vec![empty::<u32>(256)], &expected);
}

#[test]
fn missing_sync_warp_is_a_race() {
    let kernel = |synchronized: bool| {
        blocks(1, 32, |k| {
            let (y, tile, t) = (k.output::<u32>("y"), k.shared::<u32>("tile", [32]), k.thread_x());
            tile.store((t,), t);
            if synchronized {
                k.sync_warp(FULL_WARP);
            }
            y.store((0, t), tile.load((t ^ 1,)));
        })
    };
    assert_result(&kernel(true), || vec![empty::<u32>(32)], &(0..32).map(|t| t ^ 1).collect::<Vec<u32>>());
    assert_finds(FindingKind::Race, &kernel(false), || vec![empty::<u32>(32)]);
}

#[test]
fn sync_warp_with_a_missing_lane_is_found() {
    let kernel = blocks(1, 32, |k| k.when(k.lane().lt(7), || k.sync_warp(0xff)));
    assert_finds(FindingKind::DivergentWarp, &kernel, Vec::new);
}

#[test]
fn read_of_uninitialized_memory_is_found() {
    let kernel = blocks(1, 32, |k| {
        let (y, tile) = (k.output::<u32>("y"), k.shared::<u32>("tile", [32]));
        y.store((0, k.thread_x()), tile.load((k.thread_x(),)));
    });
    assert_finds(FindingKind::Uninitialized, &kernel, || vec![empty::<u32>(32)]);
    let kernel = blocks(1, 32, |k| {
        let y = k.matrix::<u32>("y", Access::ReadWrite, Order2d::Strided, 1);
        y.store((0, k.thread_x()), y.load((0, k.thread_x())) + 1);
    });
    assert_finds(FindingKind::Uninitialized, &kernel, || vec![empty::<u32>(32)]);
    assert_result(&kernel, || vec![row_of(&[4u32; 32])], &[5u32; 32]);
}

#[test]
fn column_out_of_bounds_at_a_valid_address_is_found() {
    let data: Vec<f32> = (0..64).map(|i| i as f32).collect();
    let inner = Layout { shape: Shape::new(4, 5), offset: 9, strides: [0, 8, 1] };
    let kernel = blocks(1, 32, |k| {
        let (x, y) = (k.matrix::<f32>("x", Access::Read, Order2d::Strided, 1), k.output::<f32>("y"));
        k.when(k.thread_x().lt(6), || y.store((0, k.thread_x()), x.load((2, k.thread_x()))));
    });
    let args = || vec![interpret::input(View::strided(&data, inner).unwrap()).unwrap(), empty::<f32>(6)];
    for_each_seed(&kernel, args, |outcome, _| {
        let found = errors(outcome);
        assert_eq!(found.len(), 1);
        assert_eq!(
            (found[0].kind, &found[0].index[..], found[0].threads[0]),
            (FindingKind::OutOfBounds, &[2, 5][..], [5, 0, 0])
        );
    });
}

#[test]
fn cursor_out_of_bounds_is_found_without_wrapping() {
    let data: Vec<u32> = (0..64).collect();
    let kernel = |by: u32, again: u32| {
        blocks(1, 32, |k| {
            let (x, y) = (k.input::<u32>("x"), k.output::<u32>("y"));
            let cursor = x.cursor((0, k.thread_x()));
            k.when(k.thread_x().lt(16), || cursor.advance(0, by));
            cursor.advance(0, again);
            y.store((0, k.thread_x()), cursor.load((0, 1)));
        })
    };
    let args = || vec![row_of(&data), empty::<u32>(32)];
    let expected: Vec<u32> = (0..32).map(|t| if t < 16 { t + 34 } else { t + 3 }).collect();
    assert_result(&kernel(31, 2), args, &expected);
    assert_finds(FindingKind::OutOfBounds, &kernel(62, 2), args);
    // Wrapped coordinates would be in bounds again; addresses would not.
    assert_finds(FindingKind::OutOfBounds, &kernel(u32::MAX - 1, 2), args);
}

/// Two producer warps and two consumer warps.
fn producer_consumer(arrives: bool, threads: u32) -> Checked<Kernel> {
    blocks(1, 128, |k| {
        let (y, tile, t) = (k.output::<u32>("y"), k.shared::<u32>("tile", [64]), k.thread_x());
        k.for_each(0, 3, |round| {
            k.if_else(
                k.warp().lt(2),
                || {
                    k.named_barrier(2, 128);
                    tile.store((t,), t * 10 + round);
                    if arrives {
                        k.named_barrier_arrive(1, 128);
                    }
                },
                || {
                    k.named_barrier_arrive(2, 128);
                    k.named_barrier(1, threads);
                    y.store((round, t - 64), tile.load(((t ^ 63) - 64,)));
                },
            );
        });
    })
}

#[test]
fn named_barriers_order_producers_and_consumers() {
    let args = || vec![Buffer::output(Type::U32, Layout::row_major(Shape::new(3, 64)).unwrap()).unwrap()];
    let expected: Vec<u32> = (0..3).flat_map(|round| (0..64).map(move |t| (t ^ 63) * 10 + round)).collect();
    assert_result(&producer_consumer(true, 128), args, &expected);
    assert_finds(FindingKind::Deadlock, &producer_consumer(false, 128), args);
    for_each_seed(&producer_consumer(true, 96), args, |outcome, _| {
        assert!(errors(outcome).iter().any(|f| f.kind == FindingKind::ArrivalMismatch), "{:?}", outcome.findings);
    });
}

/// Bug of the double-buffered copy.
#[derive(Clone, Copy, PartialEq)]
enum CopyBug {
    None,
    NoWait,
    NoBarrier,
    WaitsForTooFew,
}

/// Starts an asynchronous copy of 64 elements, one per thread, into one half of the array.
fn start_copy<'k>(k: &'k Builder, step: Val<'k, u32>, x: Global<'k, f32>, tile: Shared<'k, f32>) {
    let (t, col) = (k.thread_x(), step * 64 + k.thread_x());
    tile.copy_async((step & 1, t), x, (0, col), 1, Guard::If(col.lt(x.cols()).id()));
    k.copy_async_commit();
}

fn double_buffered(bug: CopyBug) -> Checked<Kernel> {
    blocks(1, 64, |k| {
        let (x, y) = (k.input::<f32>("x"), k.output::<f32>("y"));
        let (tile, t) = (k.shared::<f32>("tile", [2, 64]), k.thread_x());
        start_copy(k, k.constant(0), x, tile);
        let sum = k.var(0f32);
        k.for_each(0, x.cols().div_ceil(64), |step| {
            start_copy(k, step + 1, x, tile);
            match bug {
                CopyBug::NoWait => {}
                CopyBug::WaitsForTooFew => k.copy_async_wait(2),
                _ => k.copy_async_wait(1),
            }
            if bug != CopyBug::NoBarrier {
                k.barrier();
            }
            sum.set(sum.get() + tile.load((step & 1, t ^ 33)));
            k.barrier();
        });
        k.copy_async_wait(0);
        y.store((0, t), sum.get());
    })
}

#[test]
fn asynchronous_copies_are_complete_after_the_wait() {
    let x: Vec<f32> = (0..300).map(|i| i as f32).collect();
    let args = || vec![row_of(&x), empty::<f32>(64)];
    let sum = |t: usize| (0..5).map(|step| x.get(64 * step + t).copied().unwrap_or(0.0)).sum::<f32>();
    assert_result(&double_buffered(CopyBug::None), args, &(0..64).map(|t| sum(t ^ 33)).collect::<Vec<_>>());
    let bugs = [
        (CopyBug::NoWait, FindingKind::InFlight),
        (CopyBug::WaitsForTooFew, FindingKind::InFlight),
        (CopyBug::NoBarrier, FindingKind::Race),
    ];
    for (bug, kind) in bugs {
        for_each_seed(&double_buffered(bug), args, |outcome, _| {
            assert!(errors(outcome).iter().any(|f| f.kind == kind), "{:?}", outcome.findings);
        });
    }
}

#[test]
fn atomic_operations_of_all_lanes_are_applied() {
    let kernel = blocks(16, 96, |k| {
        let y = k.matrix::<u32>("y", Access::ReadWrite, Order2d::Strided, 1);
        let (order, scope, t) = (MemoryOrder::Relaxed, Scope::Device, k.thread_x());
        y.atomic(AtomicOp::Add, (0, 0), t, order, scope);
        y.atomic(AtomicOp::Max, (0, 1), k.block_x() * 100 + t, order, scope);
        y.atomic(AtomicOp::Min, (0, 2), k.block_x() * 100 + t + 3, order, scope);
        y.atomic(AtomicOp::Or, (0, 3), k.constant(1) << (t & 31), order, scope);
        // The one that reads 0 stores 9.
        let old = y.atomic(AtomicOp::CompareExchange { expected: k.constant(0u32).id() }, (0, 4), 9, order, scope);
        k.when(old.eq(0), || {
            y.atomic(AtomicOp::Add, (0, 5), 1, order, scope);
        });
    });
    let expected = [16 * (95 * 96 / 2), 1595, 3, u32::MAX, 9, 1];
    assert_result(&kernel, || vec![row_of(&[0, 0, 1000, 0, 0, 0u32])], &expected);
    let narrow = blocks(2, 32, |k| {
        let y = k.matrix::<u32>("y", Access::ReadWrite, Order2d::Strided, 1);
        y.atomic(AtomicOp::Add, (0, 0), 1, MemoryOrder::Relaxed, Scope::Block);
    });
    assert_finds(FindingKind::Race, &narrow, || vec![row_of(&[0u32])]);
}

#[test]
fn atomic_counters_of_one_address_count_each_lane() {
    let kernel = blocks(1, 32, |k| {
        let y = k.matrix::<u32>("y", Access::ReadWrite, Order2d::Strided, 1);
        let s = k.shared::<u32>("s", [32]);
        let (order, t) = (MemoryOrder::Relaxed, k.thread_x());
        s.store((t,), 0);
        k.barrier();
        s.atomic(AtomicOp::Add, (0,), 1, order, Scope::Block);
        s.atomic(AtomicOp::Add, (t,), 1, order, Scope::Block);
        k.when(t.lt(5), || {
            y.atomic(AtomicOp::Add, (0, 9), 1, order, Scope::Device);
        });
        y.atomic(AtomicOp::Add, (0, t), 1, order, Scope::Device);
    });
    for_each_seed(
        &kernel,
        || vec![row_of(&[0u32; 32])],
        |outcome, _| {
            assert_eq!(outcome.error(), None);
            let counters = outcome.counters;
            assert_eq!((counters.shared_store_requests, counters.shared_store_wavefronts), (3, 1 + 32 + 1));
            assert_eq!(counters.shared_bank_conflicts, 31);
            assert_eq!((counters.global_store_requests, counters.global_store_sectors), (2, 5 + 4));
        },
    );
}

/// How one block publishes data to another.
#[derive(Clone, Copy, PartialEq)]
enum Publication {
    Release,
    Relaxed,
    Fence(Scope),
    None,
}

fn flag_kernel(how: Publication) -> Checked<Kernel> {
    blocks(2, 32, |k| {
        let flag = k.matrix::<u32>("flag", Access::ReadWrite, Order2d::Strided, 1);
        let (y, t) = (k.matrix::<u32>("y", Access::Write, Order2d::Strided, 1), k.thread_x());
        k.if_else(
            k.block_x().eq(0),
            || {
                y.store((0, t), t + 70);
                k.barrier();
                k.when(t.eq(0), || match how {
                    Publication::Release => flag.store_ordered((0, 0), 1, MemoryOrder::Release, Scope::Device),
                    Publication::Relaxed => flag.store_ordered((0, 0), 1, MemoryOrder::Relaxed, Scope::Device),
                    Publication::Fence(scope) => {
                        k.fence(scope);
                        flag.store_ordered((0, 0), 1, MemoryOrder::Relaxed, Scope::Device);
                    }
                    Publication::None => {}
                });
            },
            || {
                k.when(t.eq(0), || flag.wait_until((0, 0), Compare::Eq, 1, Scope::Device));
                k.barrier();
                y.store((0, t + 32), y.load((0, t ^ 31)));
            },
        );
    })
}

#[test]
fn released_flags_order_blocks() {
    let args = || vec![row_of(&[0u32]), empty::<u32>(64)];
    let expected: Vec<u32> = (0..32).chain((0..32).map(|t| t ^ 31)).map(|t| t + 70).collect();
    assert_result(&flag_kernel(Publication::Release), args, &expected);
    assert_result(&flag_kernel(Publication::Fence(Scope::Device)), args, &expected);
    assert_finds(FindingKind::Race, &flag_kernel(Publication::Fence(Scope::Block)), args);
    assert_finds(FindingKind::Race, &flag_kernel(Publication::Relaxed), args);
    assert_finds(FindingKind::Deadlock, &flag_kernel(Publication::None), args);
}

#[test]
fn blocks_without_synchronization_race() {
    let same = blocks(3, 32, |k| {
        let y = k.output::<u32>("y");
        y.store((0, k.thread_x()), k.block_x());
    });
    for_each_seed(
        &same,
        || vec![empty::<u32>(32)],
        |outcome, _| {
            let [race] = errors(outcome)[..] else { panic!("{:?}", outcome.findings) };
            assert_eq!(race.kind, FindingKind::Race);
            let named = (0..3).filter(|b| race.message.contains(&format!("block [{b}, 0, 0]"))).count();
            assert_eq!(named, 2, "{race}");
        },
    );
    // Each block reads what the next block writes.
    let other = blocks(3, 32, |k| {
        let (y, t) = (k.matrix::<u32>("y", Access::ReadWrite, Order2d::Strided, 1), k.thread_x());
        let seen = y.load((k.block_x() + 1, t));
        y.store((k.block_x(), t), seen);
    });
    assert_finds(FindingKind::Race, &other, || {
        vec![interpret::in_out(View::new(&[0u32; 128], 4, 32).unwrap()).unwrap()]
    });
}

#[test]
fn races_of_blocks_do_not_depend_on_parallelism() {
    let kernel = blocks(64, 32, |k| {
        let (y, t) = (k.matrix::<u32>("y", Access::ReadWrite, Order2d::Strided, 1), k.thread_x());
        y.store((0, t), y.load((0, t ^ 1)) + k.block_x());
    });
    let findings = |parallel| {
        let y = row_of(&[0u32; 32]);
        run(&kernel, &[Arg::from(&y)], &Config { parallel, ..Config::default() }).unwrap().findings
    };
    let alone = findings(false);
    (0..20).for_each(|_| assert_eq!(findings(true), alone));
}

#[test]
fn selected_blocks_alone_run() {
    let kernel = blocks(9, 32, |k| {
        let y = k.output::<u32>("y");
        y.store((0, k.block_x() * 32 + k.thread_x()), 1);
    });
    let y = empty::<u32>(9 * 32);
    let selected = Some(vec![[2, 0, 0], [7, 0, 0], [9, 0, 0], [0, 1, 0]]);
    let outcome = run(&kernel, &[Arg::from(&y)], &Config { blocks: selected, ..Config::default() }).unwrap();
    assert_eq!((outcome.blocks, outcome.grid), (2, [9, 1, 1]));
    (0..9 * 32).for_each(|i| assert_eq!(y.written(0, 0, i), i / 32 == 2 || i / 32 == 7));
}
