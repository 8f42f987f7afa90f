//! Rounding to small floating-point formats: `f16`, `bf16`, `tf32`, and those of 8, 6 and 4 bits.
//!
//! All arithmetic on them is done in `f64`. A result that `f64` does not represent exactly is
//! rounded to [odd], so that the second rounding, in any direction, has the right result.
//! Source: Boldo and Melquiond, "When double rounding is odd", 2005.

/// A rounding direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rounding {
    /// To nearest, ties to even.
    Nearest,
    /// To nearest, ties away from zero.
    NearestAway,
    TowardZero,
    Down,
    Up,
}

impl Rounding {
    /// The modifiers of floating-point rounding.
    pub const MODIFIERS: [(&'static str, Rounding); 5] = [
        ("rn", Rounding::Nearest),
        ("rna", Rounding::NearestAway),
        ("rz", Rounding::TowardZero),
        ("rm", Rounding::Down),
        ("rp", Rounding::Up),
    ];

    /// Whether it rounds a value of this sign toward zero.
    #[inline(always)]
    pub fn truncates(self, negative: bool) -> bool {
        match self {
            Rounding::Nearest | Rounding::NearestAway => false,
            Rounding::TowardZero => true,
            Rounding::Down => !negative,
            Rounding::Up => negative,
        }
    }

    /// Whether it rounds a value of this sign away from zero.
    #[inline(always)]
    fn expands(self, negative: bool) -> bool {
        matches!(self, Rounding::Down | Rounding::Up) && !self.truncates(negative)
    }
}

/// A binary floating-point format of at most 21 bits, without padding bits at its low end.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Format {
    /// Bits of the fraction.
    pub fraction: u32,
    /// The exponent of the smallest normal number.
    pub min_exponent: i32,
    /// The largest finite number, as bits without sign.
    pub max_finite: u32,
    /// Infinity; in formats without infinity, the result for values that are too large.
    pub infinity: u32,
    /// The NaN of results; in formats without NaN, the largest number.
    pub nan: u32,
    /// The sign bit; 0 for unsigned formats.
    pub sign: u32,
}

impl Format {
    pub const F16: Self =
        Self { fraction: 10, min_exponent: -14, max_finite: 0x7bff, infinity: 0x7c00, nan: 0x7fff, sign: 0x8000 };
    pub const BF16: Self =
        Self { fraction: 7, min_exponent: -126, max_finite: 0x7f7f, infinity: 0x7f80, nan: 0x7fff, sign: 0x8000 };
    /// `tf32`, without its 13 padding bits.
    pub const TF32: Self =
        Self { fraction: 10, min_exponent: -126, max_finite: 0x3fbff, infinity: 0x3fc00, nan: 0x3ffff, sign: 0x40000 };
    pub const E4M3: Self =
        Self { fraction: 3, min_exponent: -6, max_finite: 0x7e, infinity: 0x7f, nan: 0x7f, sign: 0x80 };
    pub const E5M2: Self =
        Self { fraction: 2, min_exponent: -14, max_finite: 0x7b, infinity: 0x7c, nan: 0x7f, sign: 0x80 };
    pub const E2M3: Self =
        Self { fraction: 3, min_exponent: 0, max_finite: 0x1f, infinity: 0x1f, nan: 0x1f, sign: 0x20 };
    pub const E3M2: Self =
        Self { fraction: 2, min_exponent: -2, max_finite: 0x1f, infinity: 0x1f, nan: 0x1f, sign: 0x20 };
    pub const E2M1: Self = Self { fraction: 1, min_exponent: 0, max_finite: 0x7, infinity: 0x7, nan: 0x7, sign: 0x8 };

    /// Rounds a value to the format, and returns its bits.
    ///
    /// Values that are too large become infinity; with `finite`, or if the rounding is toward zero,
    /// the largest finite number. The sign of a NaN is dropped.
    #[inline(always)]
    pub fn round(self, value: f64, rounding: Rounding, finite: bool) -> u32 {
        // Larger than every format, and small enough that nothing overflows below.
        const LARGE: f64 = f64::from_bits((1023 + 300) << 52);
        let negative = value.is_sign_negative();
        let magnitude = value.abs();
        let clamped = if magnitude > LARGE { LARGE } else { magnitude };
        // Adding and subtracting a number whose ulp is that of the result rounds to nearest even.
        let smallest_normal = f64::from_bits(((1023 + self.min_exponent) as u64) << 52);
        let scale = f64::from_bits(clamped.to_bits() & 0x7ff0_0000_0000_0000).max(smallest_normal);
        let unit = scale * f64::from_bits(u64::from(1023 - self.fraction) << 52);
        let magic = scale * f64::from_bits(u64::from(1023 + 52 - self.fraction) << 52) * 1.5;
        let nearest = (clamped + magic) - magic;
        // A subnormal result is made normal by an addition that keeps its fraction.
        let subnormal = nearest < smallest_normal;
        let normal = if subnormal { nearest + smallest_normal } else { nearest };
        let exponent = if subnormal { 1023 + self.min_exponent } else { 1022 + self.min_exponent };
        let encoded = (normal.to_bits() >> (52 - self.fraction)) as i32 - (exponent << self.fraction);
        let step = match rounding {
            Rounding::Nearest => 0,
            Rounding::NearestAway => i32::from(clamped - nearest == unit * 0.5),
            _ if rounding.truncates(negative) => -i32::from(nearest > clamped),
            _ => i32::from(nearest < clamped),
        };
        let stays_finite = finite || rounding.truncates(negative) && magnitude < f64::INFINITY;
        let limit = if stays_finite { self.max_finite } else { self.infinity };
        let encoded = (encoded + step).min(limit as i32) as u32;
        let signed = if negative { encoded | self.sign } else { encoded };
        if value.is_nan() { self.nan } else { signed }
    }

    /// Rounds stochastically: the carry of adding random bits to the dropped bits rounds up.
    ///
    /// The random bits are the highest bits of `random`. Source: PTX ISA, "cvt", modifier `.rs`.
    pub fn round_stochastic(self, value: f64, random: u64, finite: bool) -> u32 {
        let down = self.round(value, Rounding::TowardZero, finite);
        let magnitude = value.abs();
        let kept = self.value(down & !self.sign);
        if !magnitude.is_finite() || magnitude == kept {
            return self.round(value, Rounding::TowardZero, finite);
        }
        let away = if value.is_sign_negative() { Rounding::Down } else { Rounding::Up };
        let up = self.round(value, away, finite);
        let unit = f64::from_bits(magnitude.to_bits() & 0x7ff0_0000_0000_0000)
            .max(f64::from_bits(((1023 + self.min_exponent) as u64) << 52))
            * f64::from_bits(u64::from(1023 - self.fraction) << 52);
        let dropped = ((magnitude - kept) / unit * 2f64.powi(64)) as u64;
        if dropped.checked_add(random).is_none() { up } else { down }
    }

    /// The value of a bit pattern of the format.
    #[inline(always)]
    pub fn value(self, bits: u32) -> f64 {
        let magnitude = bits & self.sign.wrapping_sub(1);
        let fraction = f64::from(magnitude & ((1 << self.fraction) - 1));
        let unit = f64::from_bits(((1023 + self.min_exponent) as u64 - u64::from(self.fraction)) << 52);
        let exponent = magnitude >> self.fraction;
        let finite = if exponent == 0 {
            fraction * unit
        } else {
            // The implicit bit, scaled by the exponent.
            let scale = f64::from_bits(u64::from(1022 + exponent) << 52);
            (fraction + f64::from(1 << self.fraction)) * unit * scale
        };
        let value = match magnitude {
            _ if magnitude <= self.max_finite => finite,
            _ if magnitude == self.infinity && self.infinity != self.nan => f64::INFINITY,
            _ => f64::NAN,
        };
        if bits & self.sign != 0 { -value } else { value }
    }
}

/// A sum rounded to odd: truncated, with the last bit set to 1 if the sum is inexact.
///
/// Rounding it to a format with at least two bits less equals rounding the exact sum, in every
/// direction. Zero from cancellation is positive.
#[inline(always)]
pub(super) fn exact_sum(a: f64, b: f64) -> f64 {
    let sum = a + b;
    // The error of the sum is exact (Knuth's two-sum). It is NaN if the sum is infinite.
    let of_b = sum - a;
    odd(sum, (a - (sum - of_b)) + (b - of_b))
}

/// Rounds to odd. `nearest` is the value rounded to nearest, `error` the exact value minus it.
#[inline(always)]
pub(super) fn odd(nearest: f64, error: f64) -> f64 {
    let bits = nearest.to_bits();
    let toward_zero = (error.to_bits() ^ bits) >> 63;
    // False for an error of NaN.
    let inexact = u64::from(error.abs() > 0.0);
    f64::from_bits((bits - (toward_zero & inexact)) | inexact)
}

/// Sets the sign of a zero sum: negative for `Down`, unless both addends are positive zero.
#[inline(always)]
pub(super) fn signed_zero(sum: f64, a: f64, b: f64, rounding: Rounding) -> f64 {
    let negative = rounding == Rounding::Down && (a.is_sign_negative() || b.is_sign_negative());
    if sum == 0.0 && negative { -0.0 } else { sum }
}

/// `ftz`: flushes a result that is too small for a format with `fraction` fraction bits to zero of
/// its sign. The value is exact or [odd](exact_sum).
///
/// A result is too small if it is below the smallest normal number after rounding with an unlimited
/// exponent range, as measured on an H100. So a value that rounds up to the smallest normal number
/// in the format itself can become zero.
#[inline(always)]
pub(super) fn flush_tiny(value: f64, fraction: u32, min_exponent: i32, rounding: Rounding) -> f64 {
    let power = |exponent: i32| f64::from_bits(((1023 + exponent) as u64) << 52);
    let normal = power(min_exponent);
    // With an unlimited exponent range, the ulp halves below the smallest normal number.
    let unit = power(min_exponent - fraction as i32 - 1);
    let limit = match rounding {
        Rounding::Nearest | Rounding::NearestAway => normal - unit * 0.5,
        _ if rounding.truncates(value.is_sign_negative()) => normal,
        _ => (normal - unit).next_up(),
    };
    if value.abs() < limit { 0.0f64.copysign(value) } else { value }
}

/// The value of an `f16`.
#[inline(always)]
pub(super) fn f16_value(bits: u16) -> f32 {
    let magnitude = u32::from(bits & 0x7fff) << 13;
    // Moves the exponent's bias from 15 to 127; subnormals become normal.
    let scaled = f32::from_bits(magnitude) * f32::from_bits((127 + 112) << 23);
    let special = magnitude >= 0x7c00 << 13;
    let value = if special { f32::from_bits(magnitude | 0x7f80_0000) } else { scaled };
    f32::from_bits(value.to_bits() | u32::from(bits & 0x8000) << 16)
}

/// The value of a `bf16`.
#[inline(always)]
pub(super) fn bf16_value(bits: u16) -> f32 {
    f32::from_bits(u32::from(bits) << 16)
}

/// Rounds an [odd](exact_sum) value to `f32`.
#[inline(always)]
pub(super) fn round_f32(value: f64, rounding: Rounding) -> f32 {
    let nearest = value as f32;
    let (above, below) = (f64::from(nearest) > value, f64::from(nearest) < value);
    let negative = value.is_sign_negative();
    let beyond = if negative { below } else { above };
    let short = if negative { above } else { below };
    // The adjacent number is the adjacent integer bit pattern, also across powers of two.
    let bits = nearest.to_bits();
    let stepped = match rounding {
        Rounding::Nearest | Rounding::NearestAway => bits,
        _ if rounding.truncates(negative) => bits - u32::from(beyond),
        _ if rounding.expands(negative) => bits + u32::from(short),
        _ => bits,
    };
    f32::from_bits(stepped)
}

#[cfg(test)]
mod tests {
    use super::super::testing::Random;
    use super::*;
    use rustc_apfloat::ieee::{BFloat, Double, Float8E5M2, Half, Single};
    use rustc_apfloat::{Float, FloatConvert, Round};

    const ROUNDINGS: [(Rounding, Round); 5] = [
        (Rounding::Nearest, Round::NearestTiesToEven),
        (Rounding::NearestAway, Round::NearestTiesToAway),
        (Rounding::TowardZero, Round::TowardZero),
        (Rounding::Down, Round::TowardNegative),
        (Rounding::Up, Round::TowardPositive),
    ];

    /// Numbers on the grid of a format, half-way between, near both, and anywhere.
    fn numbers(format: Format, count: usize) -> Vec<f64> {
        let mut random = Random(17);
        let mut one = || {
            let code = random.next() as u32 % (format.max_finite + 1);
            let (low, high) = (format.value(code), format.value((code + 1).min(format.max_finite)));
            let magnitude = match random.next() % 7 {
                0 => low,
                1 => (low + high) * 0.5,
                2 => ((low + high) * 0.5).next_up(),
                3 => ((low + high) * 0.5).next_down(),
                4 => low.next_up(),
                5 => low + (high - low) * (random.next() % 1000) as f64 * 1e-3,
                _ => f64::from_bits(random.next() >> 1),
            };
            if random.next().is_multiple_of(2) { -magnitude } else { magnitude }
        };
        let edges = [0.0, -0.0, f64::INFINITY, -f64::INFINITY, f64::MAX, -f64::MAX, 5e-324, -5e-324];
        (0..count).map(|_| one()).chain(edges).filter(|number| !number.is_nan()).collect()
    }

    fn rounds_as<F: Float>(format: Format)
    where
        Double: FloatConvert<F>,
    {
        for number in numbers(format, 5000) {
            for (rounding, round) in ROUNDINGS {
                let value = Double::from_bits(number.to_bits().into());
                let expected: F = value.convert_r(round, &mut false).value;
                let rounded = format.round(number, rounding, false);
                assert_eq!(u128::from(rounded), expected.to_bits(), "{number:e} {rounding:?}");
            }
        }
    }

    #[test]
    fn rounding_equals_a_software_implementation() {
        rounds_as::<Half>(Format::F16);
        rounds_as::<BFloat>(Format::BF16);
        rounds_as::<Float8E5M2>(Format::E5M2);
    }

    #[test]
    fn single_rounding_equals_a_software_implementation() {
        let format = Format { fraction: 23, max_finite: 0x7f7f_ffff, ..Format::BF16 };
        for number in numbers(Format { sign: 1 << 31, infinity: 0x7f80_0000, ..format }, 5000) {
            for (rounding, round) in ROUNDINGS.into_iter().filter(|(r, _)| *r != Rounding::NearestAway) {
                let expected: Single = Double::from_bits(number.to_bits().into()).convert_r(round, &mut false).value;
                assert_eq!(
                    u128::from(round_f32(number, rounding).to_bits()),
                    expected.to_bits(),
                    "{number:e} {rounding:?}"
                );
            }
        }
    }

    #[test]
    fn tiny_values_are_found_by_rounding_without_a_limit_of_exponents() {
        let normal = f64::from(f32::MIN_POSITIVE);
        for ulps in -70..70 {
            // Near the numbers below and above the smallest normal one, and half-way between.
            for distance in [-2.0, -1.5, -1.0, -0.5, 0.0, 1.0] {
                let exact = normal * (1.0 + distance * 2f64.powi(-24)) * (1.0 + f64::from(ulps) * 2f64.powi(-52));
                for (value, (rounding, _)) in [exact, -exact].into_iter().zip(ROUNDINGS.repeat(2)) {
                    if rounding == Rounding::NearestAway {
                        continue;
                    }
                    // Scaled so that it is not subnormal.
                    let rounded = round_f32(value * 2f64.powi(100), rounding);
                    let tiny = f64::from(rounded.abs()) < normal * 2f64.powi(100);
                    let expected = if tiny { 0.0f64.copysign(value) } else { value };
                    let flushed = flush_tiny(value, 23, -126, rounding);
                    assert_eq!(flushed.to_bits(), expected.to_bits(), "{value:e} {rounding:?}");
                }
            }
        }
    }

    #[test]
    fn values_equal_a_software_implementation() {
        fn equal<F: Float + FloatConvert<Double>>(format: Format, bits: u32) {
            for code in 0..1u32 << bits {
                let expected: Double = F::from_bits(code.into()).convert(&mut false).value;
                let (value, expected) = (format.value(code), f64::from_bits(expected.to_bits() as u64));
                assert!(value.to_bits() == expected.to_bits() || value.is_nan() && expected.is_nan(), "{code:#x}");
                if !value.is_nan() {
                    assert_eq!(format.round(value, Rounding::Nearest, false), code);
                }
            }
        }
        equal::<Half>(Format::F16, 16);
        equal::<BFloat>(Format::BF16, 16);
        equal::<Float8E5M2>(Format::E5M2, 8);
        for code in 0..=u16::MAX {
            let same = |a: f32, b: f64| f64::from(a).to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
            assert!(same(f16_value(code), Format::F16.value(code.into())), "{code:#x}");
            assert!(same(bf16_value(code), Format::BF16.value(code.into())), "{code:#x}");
        }
    }

    #[test]
    fn small_formats_round_to_the_nearest_code() {
        for format in [Format::E4M3, Format::E2M3, Format::E3M2, Format::E2M1] {
            for number in numbers(format, 3000) {
                let magnitude = number.abs().min(1e6);
                let distance = |code: &u32| (format.value(*code) - magnitude).abs();
                let best = (0..=format.max_finite).min_by(|a, b| {
                    // The even one of two at the same distance.
                    distance(a).total_cmp(&distance(b)).then((a & 1).cmp(&(b & 1)))
                });
                let sign = if number.is_sign_negative() { format.sign } else { 0 };
                assert_eq!(
                    Some(format.round(number, Rounding::Nearest, true)),
                    best.map(|code| code | sign),
                    "{number:e}"
                );
            }
            assert_eq!(format.round(f64::NAN, Rounding::Nearest, true), format.nan);
        }
        assert_eq!(Format::E4M3.value(0x7e), 448.0);
        assert_eq!(Format::E2M3.value(0x1f), 7.5);
        assert_eq!(Format::E3M2.value(0x1f), 28.0);
        assert_eq!(Format::E2M1.value(0x7), 6.0);
    }

    #[test]
    fn stochastic_rounding_adds_random_bits() {
        // A quarter of the unit above 1: up if the random bits are at least three quarters.
        let number = 1.0 + 0.25 / 1024.0;
        let top = |random: u64| random << 62;
        for (random, expected) in [(0, 0x3c00), (1, 0x3c00), (2, 0x3c00), (3, 0x3c01)] {
            assert_eq!(Format::F16.round_stochastic(number, top(random), false), expected);
            assert_eq!(Format::F16.round_stochastic(-number, top(random), false), expected | 0x8000);
        }
        assert_eq!(Format::F16.round_stochastic(1.0, u64::MAX, false), 0x3c00);
    }

    #[test]
    fn sums_are_odd_where_inexact() {
        assert_eq!(exact_sum(1.0, 2f64.powi(-60)), 1f64.next_up());
        assert_eq!(exact_sum(1.0, -(2f64.powi(-60))), 1f64.next_down());
        assert_eq!(exact_sum(1f64.next_up(), 2f64.powi(-60)), 1f64.next_up());
        assert_eq!(exact_sum(-1.0, 2f64.powi(-60)), -(1f64.next_down()));
        assert_eq!(exact_sum(f64::INFINITY, -1.0), f64::INFINITY);
        assert!(exact_sum(f64::INFINITY, -f64::INFINITY).is_nan());
        assert!(signed_zero(0.0, 1.0, -1.0, Rounding::Down).is_sign_negative());
        assert!(signed_zero(0.0, 0.0, 0.0, Rounding::Down).is_sign_positive());
    }
}
