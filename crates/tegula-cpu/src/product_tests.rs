//! Products by every instruction set of this CPU, compared with the oracle.
//!
//! Instruction sets that the CPU lacks are listed as skipped. `TEGULA_REQUIRE_CPU`, names separated
//! by commas, makes their absence a failure.

/// Runs a function for every element type that has micro-kernels.
macro_rules! for_every_type {
    ($function:ident $(, $argument:expr)*) => {
        for ty in Type::OPERANDS {
            with_operand_type!(ty, T => $function::<T>($($argument),*), _ => {});
        }
    };
}

mod along_k;
#[cfg(target_os = "linux")]
mod fence;
mod first_rows;
mod paths;
mod random;
mod rounding;
mod small;
mod threads;
mod whole_columns;
mod whole_rows;

use half::{bf16, f16};
use tegula_bench::oracle;
use tegula_core::epilogue::Activation;

use super::*;

/// Whether the full run is asked for.
fn full() -> bool {
    std::env::var("TEGULA_FULL").is_ok_and(|full| full == "1")
}

/// The instruction sets to test on this CPU.
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

    /// Any integer, or a float in [-1, 1] of few enough digits for 16 bits.
    fn scalar<S: Scalar>(&mut self) -> S {
        let bits = self.bits();
        let float = (bits % 2001) as f64 / 1000.0 - 1.0;
        S::from_bits(if S::TYPE.is_float() { S::TYPE.round(float) } else { bits })
    }

    fn vec<S: Scalar>(&mut self, len: usize) -> Vec<S> {
        (0..len).map(|_| self.scalar()).collect()
    }
}

/// The layout of a test matrix.
#[derive(Clone, Copy, Debug, Default)]
struct Style {
    transposed: bool,
    /// Whether rows and columns have negative strides.
    reversed: [bool; 2],
    /// Element stride, at least 1.
    spacing: usize,
    /// Elements before the first.
    shift: usize,
    /// Whether the row stride is 0 (inputs only).
    broadcast: bool,
    /// Whether the batch stride is 0 (inputs only).
    repeated: bool,
}

impl Style {
    /// A layout of this style, and the elements of memory that it needs.
    fn layout(self, shape: Shape) -> (Layout, usize) {
        let spacing = self.spacing.max(1) as isize;
        let (rows, cols) = (shape.rows as isize, shape.cols as isize);
        let gap = self.spacing as isize;
        let mut strides =
            if self.transposed { [0, spacing, spacing * rows + gap] } else { [0, spacing * cols + gap, spacing] };
        strides[0] = if self.transposed { strides[2] * cols } else { strides[1] * rows };
        strides[0] *= isize::from(!self.repeated);
        strides[1] *= isize::from(!self.broadcast);
        let mut offset = (self.spacing + self.shift) as isize;
        for (axis, extent) in [(1, rows), (2, cols)] {
            if self.reversed[axis - 1] {
                offset += strides[axis] * (extent - 1).max(0);
                strides[axis] = -strides[axis];
            }
        }
        let layout = Layout { shape, offset: offset as usize, strides };
        (layout, layout.span().unwrap().map_or(0, |(_, last)| last + 1) + self.spacing)
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn operands_with_a_scalar_of_zero_are_not_read() {
    fn all<T: Element>(nan: T, nan_out: T::Out) {
        let (bad, good) = (vec![nan; 35 * 35], vec![T::ONE; 35 * 35]);
        let (bad, good) = (View::new(&bad, 35, 35).unwrap(), View::new(&good, 35, 35).unwrap());
        for isa in instruction_sets() {
            let mut data = vec![nan_out; 35 * 35];
            let mut c = ViewMut::new(&mut data, 35, 35).unwrap();
            gemm_with_options::<T>(
                isa,
                T::Acc::ONE,
                good,
                good,
                T::Acc::ZERO,
                c.reborrow(),
                EpilogueOperands::default(),
                None,
                None,
                false,
            )
            .unwrap();
            let want = oracle::reference::<T>(T::Acc::ONE, good, good, T::Acc::ZERO, None).unwrap();
            assert_eq!(c.as_mut_slice().unwrap(), want.as_slice(), "{isa}: C was read");
            gemm_with_options::<T>(
                isa,
                T::Acc::ZERO,
                bad,
                bad,
                T::Acc::ONE,
                c,
                EpilogueOperands::default(),
                None,
                None,
                false,
            )
            .unwrap();
            assert_eq!(data, want.as_slice(), "{isa}: A or B was read");
        }
    }
    all(f64::NAN, f64::NAN);
    all(f32::NAN, f32::NAN);
    all(f16::NAN, f16::NAN);
    all(bf16::NAN, bf16::NAN);
}

#[test]
fn nan_and_infinity_stay_in_their_row_and_column() {
    for isa in instruction_sets() {
        for special in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            let (mut a, mut b) = (vec![1f32; 13 * 17], vec![2f32; 17 * 19]);
            (a[5 * 17 + 3], b[4 * 19 + 7]) = (special, special);
            b[3 * 19 + 9] = 0.0;
            let (a, b) = (View::new(&a, 13, 17).unwrap(), View::new(&b, 17, 19).unwrap());
            let mut data = vec![0f32; 13 * 19];
            let mut c = ViewMut::new(&mut data, 13, 19).unwrap();
            gemm_with_options::<f32>(isa, 1.0, a, b, 0.0, c.reborrow(), EpilogueOperands::default(), None, None, false)
                .unwrap();
            assert!(
                oracle::check::<f32>(1.0, a, b, 0.0, None, c.as_view()).unwrap().within(oracle::bound::<f32>(17)),
                "{isa}"
            );
            assert!(c.as_view().get(0, 5, 9).unwrap().is_nan(), "{isa}: {special}·0");
            assert_eq!(data.iter().filter(|x| !x.is_finite()).count(), 13 + 19 - 1, "{isa}");
        }
    }
}

/// Padding of an odd k is no operand: zero times infinity would be NaN.
#[test]
fn infinity_in_the_last_step_stays_in_its_column() {
    for isa in instruction_sets() {
        // Few columns, a partial and a whole unit; packed with more rows.
        for [m, n, k] in [[3, 17, 5], [3, 40, 5], [2, 9, 1], [70, 80, 67]] {
            let (a, mut b) = (vec![bf16::ONE; m * k], vec![bf16::ONE; k * n]);
            b[(k - 1) * n + n / 2] = bf16::INFINITY;
            let (a, b) = (View::new(&a, m, k).unwrap(), View::new(&b, k, n).unwrap());
            let mut data = vec![bf16::ZERO; m * n];
            let c = ViewMut::new(&mut data, m, n).unwrap();
            gemm_with_options::<bf16>(isa, 1.0, a, b, 0.0, c, EpilogueOperands::default(), None, None, false).unwrap();
            for (at, &x) in data.iter().enumerate() {
                let want = if at % n == n / 2 { bf16::INFINITY } else { bf16::from_f64(k as f64) };
                assert_eq!(x, want, "{isa} {m}×{n}×{k} at {at}");
            }
        }
    }
}

/// The bf16 instructions read subnormal numbers as zeros, as the documentation says.
#[test]
fn subnormal_bf16_are_zeros_for_the_bf16_instructions() {
    let (tiny, large) = (bf16::from_bits(0x0040), bf16::from_f64(2f64.powi(100)));
    for isa in instruction_sets() {
        let (a, b, mut c) = ([tiny], [large], [bf16::ONE]);
        let (a, b) = (View::new(&a, 1, 1).unwrap(), View::new(&b, 1, 1).unwrap());
        let view = ViewMut::new(&mut c, 1, 1).unwrap();
        gemm_with_options::<bf16>(isa, 1.0, a, b, 0.0, view, EpilogueOperands::default(), None, None, false).unwrap();
        let exact = bf16::from_f64(2f64.powi(-127 + 100));
        let want = if isa >= Isa::Avx512Bf16 { bf16::ZERO } else { exact };
        assert_eq!(c, [want], "{isa}");
    }
}

/// A sum of positive numbers rounded once is at most 1 ulp off. Rounded after each KC step, its
/// error is larger.
#[test]
#[cfg_attr(miri, ignore = "takes minutes")]
fn sixteen_bit_results_are_rounded_once() {
    let (a, b) = (vec![f16::from_f64(0.3); 20_000], vec![f16::ONE; 20_000]);
    let (a, b) = (View::new(&a, 1, 20_000).unwrap(), View::new(&b, 20_000, 1).unwrap());
    for isa in instruction_sets() {
        let mut c = [f16::ZERO];
        let mut c = ViewMut::new(&mut c, 1, 1).unwrap();
        gemm_with_options::<f16>(isa, 1.0, a, b, 0.0, c.reborrow(), EpilogueOperands::default(), None, None, false)
            .unwrap();
        let report = oracle::check::<f16>(1.0, a, b, 0.0, None, c.as_view()).unwrap();
        assert!(report.within(1.05), "{isa}: {report:?}");
    }
}

#[test]
fn i8_extremes_do_not_overflow() {
    let extremes = [i8::MIN, i8::MAX].map(|value| vec![value; 1001 * 17]);
    // Unpacked, and packed, which takes Miri minutes.
    let packed = if cfg!(miri) { [1, 1] } else { [9, 17] };
    for (isa, [m, n]) in instruction_sets().into_iter().flat_map(|isa| [(isa, [1, 1]), (isa, packed)]) {
        for (a, b) in [(0, 0), (0, 1), (1, 0), (1, 1)].map(|(a, b)| (&extremes[a], &extremes[b])) {
            let each = 1001 * i32::from(a[0]) * i32::from(b[0]);
            let (a, b) = (View::new(&a[..m * 1001], m, 1001).unwrap(), View::new(&b[..1001 * n], 1001, n).unwrap());
            let mut c = vec![0i32; m * n];
            let view = ViewMut::new(&mut c, m, n).unwrap();
            gemm_with_options::<i8>(isa, 1, a, b, 0, view, EpilogueOperands::default(), None, None, false).unwrap();
            assert!(c.iter().all(|&sum| sum == each), "{isa} {m}×{n}: {c:?}");
        }
    }
}

#[test]
fn wrong_shapes_are_refused_with_the_shapes() {
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
fn micro_kernels_meet_the_constraints_of_blocking() {
    fn one<T: CpuElement>() {
        for isa in instruction_sets() {
            let kernel = T::micro_kernel(isa);
            let &micro_kernel::MicroKernel { vector_len, max_rows, tile: [mr, nr], kc, k_pack, k_unit, .. } = kernel;
            let widths = max_rows.iter().take_while(|&&rows| rows > 0).count();
            assert!(max_rows[widths..].iter().all(|&rows| rows == 0), "{isa} {}", T::TYPE);
            assert!(nr % vector_len == 0, "{isa} {}", T::TYPE);
            // One function serves packed and unpacked operands, unless packing groups steps of k.
            assert!(
                !kernel.direct_a || k_pack > 1 || widths == 0 || max_rows[nr / vector_len - 1] >= mr,
                "{isa} {}",
                T::TYPE
            );
            assert!(kc % (k_pack * k_unit) == 0, "{isa} {}", T::TYPE);
            // Micro-kernels that round exist for all micro-tiles, whole and partial.
            let rounds = [kernel.select_rounded.is_some(), kernel.select_unpacked_rounded.is_some()];
            let rounding_isas: &[Isa] = match T::TYPE {
                Type::F16 => &[Isa::Avx512, Isa::Vnni, Isa::Avx512Bf16, Isa::Amx],
                Type::BF16 => &[Isa::Avx512Bf16],
                _ => &[],
            };
            assert_eq!(rounds, [rounding_isas.contains(&isa); 2], "{isa} {}", T::TYPE);
            let of_tiles = |select: micro_kernel::SelectFn<T::Acc>, vectors: usize, most_rows: usize| {
                for rows in 1..=most_rows {
                    let _ = [0, 1].map(|less| select([rows, vectors * vector_len - less]));
                }
            };
            if let Some(select) = kernel.select_rounded {
                (1..=nr / vector_len).for_each(|vectors| of_tiles(select, vectors, mr));
            }
            if let Some(select) = kernel.select_unpacked_rounded {
                (1..=widths).for_each(|vectors| of_tiles(select, vectors, max_rows[vectors - 1]));
            }
            assert!(kernel.compensation.is_none() || mr <= micro_kernel::COMPENSATED_ROWS, "{isa} {}", T::TYPE);
            if let Some(micro_kernel::FirstRows { tile: [rows, vectors], .. }) = kernel.first_rows {
                assert!(vectors <= micro_kernel::PACKING_VECTORS && rows <= max_rows[vectors - 1], "{isa} {}", T::TYPE);
            }
            if let Some(along_k) = kernel.along_k {
                assert!(along_k.full_rows <= along_k.tile_rows, "{isa} {}", T::TYPE);
                let compensated = kernel.compensation.is_some();
                assert!(!compensated || along_k.tile_rows <= micro_kernel::COMPENSATED_ROWS, "{isa} {}", T::TYPE);
                // Micro-tiles of this height exist for packed operands as well.
                let _ = (kernel.select_packed)([along_k.tile_rows, vector_len]);
            }
        }
    }
    for_every_type!(one);
}

/// The stride of an axis of extent 1 is never used, and may have any value.
#[test]
fn strides_of_extent_one_may_have_any_value() {
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
            gemm_with_options::<f32>(isa, 1.0, a, b, 0.0, view, EpilogueOperands::default(), None, None, false)
                .unwrap();
            assert_eq!(c, [9.0, 12.0, 15.0], "{isa} {most}");
            let (a, b) = (far(2, 1, [most, 1, most]), far(1, 2, [most, most, 1]));
            let mut c = [0f32; 4];
            let view = ViewMut::new(&mut c, 2, 2).unwrap();
            gemm_with_options::<f32>(isa, 1.0, a, b, 0.0, view, EpilogueOperands::default(), None, None, false)
                .unwrap();
            assert_eq!(c, [1.0, 2.0, 2.0, 4.0], "{isa} {most}");
        }
    }
}
