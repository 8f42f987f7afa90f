//! Rounding to half precision.

use half::f16;

/// The NaN result.
const NAN: u16 = 0x7fff;

/// Exponent of the last bit of the smallest f16.
const LAST: i32 = -24;

/// Converts total · 2^exponent to f16, rounded to nearest even.
///
/// Zero is positive, also if it results from rounding.
pub(super) fn round_to_f16(total: i64, exponent: i32) -> u16 {
    const FRACTION: i32 = 10;
    if total == 0 {
        return 0;
    }
    let (sign, magnitude) = (if total < 0 { 0x8000 } else { 0 }, u128::from(total.unsigned_abs()));
    let highest = 127 - magnitude.leading_zeros() as i32 + exponent;
    if highest > 15 {
        return sign | f16::INFINITY.to_bits();
    }
    // Exponent of the last bit of the result.
    let last = (highest - FRACTION).max(LAST);
    let significand = match last - exponent {
        shift @ ..=0 => magnitude << -shift,
        shift @ 1..=64 => {
            let (kept, dropped) = (magnitude >> shift, magnitude & ((1 << shift) - 1));
            let half = 1u128 << (shift - 1);
            kept + u128::from(dropped > half || dropped == half && kept & 1 == 1)
        }
        _ => 0,
    } as u16;
    if significand == 0 {
        return 0;
    }
    // A carry out of the significand increments the exponent, up to infinity.
    let biased = (last - LAST) as u16;
    sign | (biased << FRACTION).wrapping_add(significand)
}

/// Converts an f32 to f16, rounded to nearest even.
pub(super) fn f32_to_f16(bits: u32) -> u16 {
    let value = f32::from_bits(bits);
    if value.is_nan() { NAN } else { f16::from_f32(value).to_bits() }
}

/// Converts an f16 to f32, exactly.
pub(super) fn f16_to_f32(bits: u16) -> u32 {
    let value = f16::from_bits(bits);
    if value.is_nan() { 0x7fff_ffff } else { value.to_f32().to_bits() }
}

/// The sum of two f16, rounded to nearest even.
pub(super) fn add_f16(a: u16, b: u16) -> u16 {
    let (x, y) = (f16::from_bits(a), f16::from_bits(b));
    if x.is_finite() && y.is_finite() {
        let units = |x: f16| (x.to_f64() * 2f64.powi(-LAST)) as i64;
        return match units(x) + units(y) {
            // Only two negative zeros have the sum −0.
            0 => a & b & 0x8000,
            sum => round_to_f16(sum, LAST),
        };
    }
    f32_to_f16((x.to_f32() + y.to_f32()).to_bits())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_rounds_to_itself() {
        for bits in 0..=u16::MAX {
            let value = f16::from_bits(bits);
            if value.is_finite() && value.to_f32() != 0.0 {
                for shift in [0, 5] {
                    let units = (value.to_f64() * 2f64.powi(24)) as i64;
                    assert_eq!(round_to_f16(units << shift, LAST - shift), bits);
                }
            }
        }
    }

    #[test]
    fn halfway_cases_round_to_even_and_large_values_to_infinity() {
        for (total, exponent, expected) in [
            (2049, 0, 2048.0),
            (2051, 0, 2052.0),
            (65519, 0, 65504.0),
            (65520, 0, f32::INFINITY),
            (-65520, 0, f32::NEG_INFINITY),
        ] {
            assert_eq!(f16::from_bits(round_to_f16(total, exponent)).to_f32(), expected);
        }
        // Half of the smallest subnormal, and a little more.
        assert_eq!([1, 3].map(|total| round_to_f16(total, -25)), [0, 2]);
        assert_eq!([1 << 40, (1 << 40) + 1].map(|total| round_to_f16(total, -65)), [0, 1]);
        assert_eq!(round_to_f16(1, -200), 0);
        assert_eq!(round_to_f16(-1, -200), 0);
    }

    #[test]
    fn sum_of_f16_is_rounded_once() {
        // 2048 + 1 + 2^-24 is above the tie, although f32 cannot hold it.
        let [large, one, tiny] = [2048.0, 1.0, 2f32.powi(-24)].map(|x| f16::from_f32(x).to_bits());
        assert_eq!(f16::from_bits(add_f16(large, one)).to_f32(), 2048.0);
        assert_eq!(add_f16(one, tiny), one);
        assert_eq!([add_f16(0x8000, 0x8000), add_f16(0x8000, 0)], [0x8000, 0]);
        assert_eq!(add_f16(f16::INFINITY.to_bits(), f16::NEG_INFINITY.to_bits()), NAN);
    }
}
