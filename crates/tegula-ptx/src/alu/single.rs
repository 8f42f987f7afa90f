//! Arithmetic of single numbers of type `f32`, in every rounding direction.

use super::narrow::{Rounding, exact_sum, odd, round_f32, signed_zero};

/// The NaN that instructions on `f32` return.
pub(super) const NAN: u32 = 0x7fff_ffff;

/// The bits of a result.
#[inline(always)]
pub(super) fn bits(value: f32) -> u32 {
    if value.is_nan() { NAN } else { value.to_bits() }
}

/// Flushes a subnormal number to zero of its sign.
#[inline(always)]
pub(super) fn flush(value: f32) -> f32 {
    let bits = value.to_bits();
    f32::from_bits(if bits & 0x7f80_0000 == 0 { bits & 0x8000_0000 } else { bits })
}

/// Limits a number to 0 to 1; NaN becomes 0.
#[inline(always)]
pub(super) fn saturate(value: f32) -> f32 {
    let positive = if value > 0.0 { value } else { 0.0 };
    if positive > 1.0 { 1.0 } else { positive }
}

pub(super) fn add(a: f32, b: f32, rounding: Rounding) -> f32 {
    fma(a, 1.0, b, rounding)
}

pub(super) fn mul(a: f32, b: f32, rounding: Rounding) -> f32 {
    // The product of two 24-bit fractions is exact.
    round_f32(f64::from(a) * f64::from(b), rounding)
}

#[inline(always)]
pub(super) fn fma(a: f32, b: f32, c: f32, rounding: Rounding) -> f32 {
    let (product, c) = (f64::from(a) * f64::from(b), f64::from(c));
    round_f32(signed_zero(exact_sum(product, c), product, c, rounding), rounding)
}

pub(super) fn div(a: f32, b: f32, rounding: Rounding) -> f32 {
    let (a, b) = (f64::from(a), f64::from(b));
    let quotient = a / b;
    let remainder = (-quotient).mul_add(b, a);
    let error = if b < 0.0 { -remainder } else { remainder };
    round_f32(odd(quotient, error), rounding)
}

pub(super) fn sqrt(a: f32, rounding: Rounding) -> f32 {
    let a = f64::from(a);
    let root = a.sqrt();
    round_f32(odd(root, (-root).mul_add(root, a)), rounding)
}
