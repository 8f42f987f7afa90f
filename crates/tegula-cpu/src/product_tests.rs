//! Every instruction set that the machine has, against the oracle.
//!
//! One that it lacks is listed, and is a failure where `TEGULA_REQUIRE_CPU` (names with commas) asks for it.

/// Runs a function for every type there are micro-kernels for.
macro_rules! for_every_type {
    ($function:ident $(, $argument:expr)*) => {
        for ty in Type::OPERANDS {
            with_operand_type!(ty, T => $function::<T>($($argument),*), _ => {});
        }
    };
}

#[cfg(target_os = "linux")]
mod fence;
mod paths;
mod random;

use half::{bf16, f16};
use tegula_bench::oracle;
use tegula_core::epilogue::Activation;

use super::*;

/// The instruction sets to test here.
fn instruction_sets() -> Vec<Isa> {
    let required = std::env::var("TEGULA_REQUIRE_CPU").unwrap_or_default();
    for name in required.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let found = Isa::ALL.into_iter().find(|isa| isa.name() == name);
        assert!(found.is_some_and(Isa::is_available), "TEGULA_REQUIRE_CPU asks for {name}, which this machine lacks");
    }
    let (here, missing): (Vec<_>, Vec<_>) = Isa::ALL.into_iter().partition(|isa| isa.is_available());
    missing.iter().for_each(|isa| println!("skipped: {isa} (not on this machine)"));
    here
}

/// A reproducible stream of values.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let x = (self.0 ^ self.0 >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        (x ^ x >> 27).wrapping_mul(0x94D0_49BB_1331_11EB) >> 13
    }

    /// Any integer; a float in ±1, as one of 16 bits holds it.
    fn scalar<S: Scalar>(&mut self) -> S {
        let bits = self.bits();
        let float = (bits % 2001) as f64 / 1000.0 - 1.0;
        S::from_bits(if S::TYPE.is_float() { S::TYPE.round(float) } else { bits })
    }

    fn vec<S: Scalar>(&mut self, len: usize) -> Vec<S> {
        (0..len).map(|_| self.scalar()).collect()
    }
}

/// How a test lays out a matrix.
#[derive(Clone, Copy, Debug, Default)]
struct Style {
    transposed: bool,
    /// Rows and columns backwards.
    reversed: [bool; 2],
    /// Elements from one to the next, at least 1.
    apart: usize,
    /// Elements before the first.
    shift: usize,
    /// Every row the same (inputs only).
    broadcast: bool,
    /// Every batch the same (inputs only).
    repeated: bool,
}

impl Style {
    /// A layout of this style, and how many elements of memory it needs.
    fn layout(self, shape: Shape) -> (Layout, usize) {
        let apart = self.apart.max(1) as isize;
        let (rows, cols) = (shape.rows as isize, shape.cols as isize);
        let gap = self.apart as isize;
        let mut strides = if self.transposed { [0, apart, apart * rows + gap] } else { [0, apart * cols + gap, apart] };
        strides[0] = if self.transposed { strides[2] * cols } else { strides[1] * rows };
        strides[0] *= isize::from(!self.repeated);
        strides[1] *= isize::from(!self.broadcast);
        let mut offset = (self.apart + self.shift) as isize;
        for (axis, extent) in [(1, rows), (2, cols)] {
            if self.reversed[axis - 1] {
                offset += strides[axis] * (extent - 1).max(0);
                strides[axis] = -strides[axis];
            }
        }
        let layout = Layout { shape, offset: offset as usize, strides };
        (layout, layout.span().unwrap().map_or(0, |(_, last)| last + 1) + self.apart)
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn what_a_factor_of_zero_hides_is_never_read() {
    fn all<T: Element>(nan: T, nan_out: T::Out) {
        let (bad, good) = (vec![nan; 35 * 35], vec![T::ONE; 35 * 35]);
        let (bad, good) = (View::new(&bad, 35, 35).unwrap(), View::new(&good, 35, 35).unwrap());
        for isa in instruction_sets() {
            let mut data = vec![nan_out; 35 * 35];
            let mut c = ViewMut::new(&mut data, 35, 35).unwrap();
            gemm_told::<T>(isa, T::Acc::ONE, good, good, T::Acc::ZERO, c.reborrow(), Finish::default(), None, None)
                .unwrap();
            let want = oracle::product::<T>(T::Acc::ONE, good, good, T::Acc::ZERO, None).unwrap();
            assert_eq!(c.as_mut_slice().unwrap(), want.as_slice(), "{isa}: C was read");
            gemm_told::<T>(isa, T::Acc::ZERO, bad, bad, T::Acc::ONE, c, Finish::default(), None, None).unwrap();
            assert_eq!(data, want.as_slice(), "{isa}: A or B was read");
        }
    }
    all(f64::NAN, f64::NAN);
    all(f32::NAN, f32::NAN);
    all(f16::NAN, f16::NAN);
    all(bf16::NAN, bf16::NAN);
}

#[test]
fn nan_and_infinity_reach_their_row_and_column_and_no_further() {
    for isa in instruction_sets() {
        for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let (mut a, mut b) = (vec![1f32; 13 * 17], vec![2f32; 17 * 19]);
            (a[5 * 17 + 3], b[4 * 19 + 7]) = (special, special);
            b[3 * 19 + 9] = 0.0;
            let (a, b) = (View::new(&a, 13, 17).unwrap(), View::new(&b, 17, 19).unwrap());
            let mut data = vec![0f32; 13 * 19];
            let mut c = ViewMut::new(&mut data, 13, 19).unwrap();
            gemm_told::<f32>(isa, 1.0, a, b, 0.0, c.reborrow(), Finish::default(), None, None).unwrap();
            assert!(
                oracle::check::<f32>(1.0, a, b, 0.0, None, c.as_view()).unwrap().within(oracle::bound::<f32>(17)),
                "{isa}"
            );
            assert!(c.as_view().get(0, 5, 9).unwrap().is_nan(), "{isa}: {special}·0");
            assert_eq!(data.iter().filter(|x| !x.is_finite()).count(), 13 + 19 - 1, "{isa}");
        }
    }
}

/// A sum of numbers above 0 that is rounded once is at most a unit off; one that is rounded after each run of k is further.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn sixteen_bit_sums_are_rounded_once() {
    let (a, b) = (vec![f16::from_f64(0.3); 20_000], vec![f16::ONE; 20_000]);
    let (a, b) = (View::new(&a, 1, 20_000).unwrap(), View::new(&b, 20_000, 1).unwrap());
    for isa in instruction_sets() {
        let mut c = [f16::ZERO];
        let mut c = ViewMut::new(&mut c, 1, 1).unwrap();
        gemm_told::<f16>(isa, 1.0, a, b, 0.0, c.reborrow(), Finish::default(), None, None).unwrap();
        let report = oracle::check::<f16>(1.0, a, b, 0.0, None, c.as_view()).unwrap();
        assert!(report.within(1.05), "{isa}: {report:?}");
    }
}

#[test]
fn the_extremes_of_i8_do_not_overflow() {
    let extremes = [i8::MIN, i8::MAX].map(|value| vec![value; 1001 * 17]);
    // As they lie, and packed, which takes Miri minutes.
    let packed = if cfg!(miri) { [1, 1] } else { [9, 17] };
    for (isa, [m, n]) in instruction_sets().into_iter().flat_map(|isa| [(isa, [1, 1]), (isa, packed)]) {
        for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(a, b)| (&extremes[a], &extremes[b])) {
            let each = 1001 * i32::from(a[0]) * i32::from(b[0]);
            let (a, b) = (View::new(&a[..m * 1001], m, 1001).unwrap(), View::new(&b[..1001 * n], 1001, n).unwrap());
            let mut c = vec![0i32; m * n];
            let view = ViewMut::new(&mut c, m, n).unwrap();
            gemm_told::<i8>(isa, 1, a, b, 0, view, Finish::default(), None, None).unwrap();
            assert!(c.iter().all(|&sum| sum == each), "{isa} {m}×{n}: {c:?}");
        }
    }
}

#[test]
fn wrong_shapes_are_named() {
    let data = [0f32; 12];
    let mut c = [0f32; 12];
    let mut try_sizes = |a: (usize, usize), b: (usize, usize), c_size: (usize, usize)| {
        let a = View::new(&data[..a.0 * a.1], a.0, a.1).unwrap();
        let b = View::new(&data[..b.0 * b.1], b.0, b.1).unwrap();
        let c = ViewMut::new(&mut c[..c_size.0 * c_size.1], c_size.0, c_size.1).unwrap();
        gemm::<f32>(1.0, a, b, 0.0, c).map_err(|error| error.to_string())
    };
    assert_eq!(try_sizes((2, 3), (3, 4), (2, 4)), Ok(()));
    assert!(try_sizes((2, 3), (4, 3), (2, 3)).unwrap_err().contains("A is 2×3, B is 4×3 and C is 2×3"));
    assert!(try_sizes((2, 3), (3, 4), (4, 2)).unwrap_err().contains("rows of A"));
}

/// The loops rely on these.
#[test]
fn every_kernel_keeps_the_rules_of_blocking() {
    fn one<T: Operand>() {
        for isa in instruction_sets() {
            let kernel::Tiles { lanes, rows, block: [mr, nr], kc, depth, unit, direct, starts, .. } = T::tiles(isa);
            let widths = rows.iter().take_while(|&&rows| rows > 0).count();
            assert!(rows[widths..].iter().all(|&rows| rows == 0), "{isa} {}", T::TYPE);
            assert!(nr % lanes == 0, "{isa} {}", T::TYPE);
            // One function is for packed factors and for those that lie.
            assert!(!direct || widths == 0 || rows[nr / lanes - 1] >= mr, "{isa} {}", T::TYPE);
            assert!(kc % (depth * unit) == 0, "{isa} {}", T::TYPE);
            assert!(starts.is_none() || mr <= kernel::STARTS, "{isa} {}", T::TYPE);
        }
    }
    for_every_type!(one);
}

/// The stride of an axis of one place is never used, and may be anything.
#[test]
fn a_single_row_or_step_may_be_any_distance_from_the_next() {
    let data = [1f32, 2.0, 3.0, 4.0, 5.0, 6.0];
    let far = |rows, cols, strides| {
        let layout = Layout { shape: Shape::new(rows, cols), strides, offset: 0 };
        View::strided(&data[..rows * cols], layout).unwrap()
    };
    for isa in instruction_sets() {
        for most in [isize::MAX, isize::MIN, isize::MAX / 8 + 1] {
            let (a, b) = (far(1, 2, [most, most, 1]), far(2, 3, [most, 3, 1]));
            let mut c = [0f32; 3];
            let layout = Layout { shape: Shape::new(1, 3), strides: [most, most, 1], offset: 0 };
            let view = ViewMut::strided(&mut c, layout).unwrap();
            gemm_told::<f32>(isa, 1.0, a, b, 0.0, view, Finish::default(), None, None).unwrap();
            assert_eq!(c, [9.0, 12.0, 15.0], "{isa} {most}");
            let (a, b) = (far(2, 1, [most, 1, most]), far(1, 2, [most, most, 1]));
            let mut c = [0f32; 4];
            let view = ViewMut::new(&mut c, 2, 2).unwrap();
            gemm_told::<f32>(isa, 1.0, a, b, 0.0, view, Finish::default(), None, None).unwrap();
            assert_eq!(c, [1.0, 2.0, 2.0, 4.0], "{isa} {most}");
        }
    }
}
