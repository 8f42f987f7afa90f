//! Arithmetic on `f32` scalars, with every rounding direction.

use super::narrow::{Rounding, exact_sum, flush_tiny, round_f32, signed_zero};

/// The NaN that instructions on `f32` return.
pub(super) const NAN: u32 = 0x7fff_ffff;

/// The bits of a result.
#[inline(always)]
pub(super) fn bits(value: f32) -> u32 {
    if value.is_nan() { NAN } else { value.to_bits() }
}

/// Flushes a subnormal number to zero, and keeps its sign.
#[inline(always)]
pub(super) fn flush(value: f32) -> f32 {
    let bits = value.to_bits();
    f32::from_bits(if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits })
}

/// Clamps a number to the range from 0 to 1; NaN becomes 0.
#[inline(always)]
pub(super) fn saturate(value: f32) -> f32 {
    let positive = if value > 0.0 { value } else { 0.0 };
    if positive > 1.0 { 1.0 } else { positive }
}

/// Rounds an [odd](exact_sum) value; tiny results become zero with `ftz`.
#[inline(always)]
pub(super) fn round(value: f64, rounding: Rounding, ftz: bool) -> f32 {
    round_f32(if ftz { flush_tiny(value, 23, -126, rounding) } else { value }, rounding)
}

pub(super) fn add(a: f32, b: f32, rounding: Rounding) -> f32 {
    // A subnormal sum is exact, so it can be flushed after rounding.
    fma(a, 1.0, b, rounding, false)
}

#[inline(always)]
pub(super) fn mul(a: f32, b: f32, rounding: Rounding, ftz: bool) -> f32 {
    // The product of two 24-bit fractions is exact.
    round(f64::from(a) * f64::from(b), rounding, ftz)
}

#[inline(always)]
pub(super) fn fma(a: f32, b: f32, c: f32, rounding: Rounding, ftz: bool) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    round(signed_zero(exact_sum(product, c), product, c, rounding), rounding, ftz)
}

// Division and square root can be rounded twice, to `f64` and then to `f32`: an inexact result of
// 24-bit operands differs from each rounding boundary of `f32` by more than the rounding of `f64`.

#[inline(always)]
pub(super) fn div(a: f32, b: f32, rounding: Rounding, ftz: bool) -> f32 {
    round(f64::from(a) / f64::from(b), rounding, ftz)
}

pub(super) fn sqrt(a: f32, rounding: Rounding) -> f32 {
    round_f32(f64::from(a).sqrt(), rounding)
}
