//! Arithmetic on `f64` scalars, with every rounding direction.
//!
//! Rounding to nearest uses the host's arithmetic. Directed rounding is rare, and emulated.

use super::narrow::Rounding;
use rustc_apfloat::{Float, Round, ieee::Double};

/// The NaN of an invalid operation.
const NAN: u64 = 0xfff8_0000_0000_0000;
const QUIET: u64 = 0x0008_0000_0000_0000;

/// The bits of a result. If it is NaN, the first NaN of the operands is kept, and made quiet.
#[inline(always)]
pub(super) fn bits<const N: usize>(result: f64, operands: [f64; N]) -> u64 {
    if !result.is_nan() {
        return result.to_bits();
    }
    operands.iter().find(|operand| operand.is_nan()).map_or(NAN, |nan| nan.to_bits() | QUIET)
}

fn double(value: f64) -> Double {
    Double::from_bits(value.to_bits().into())
}

fn native(value: Double) -> f64 {
    f64::from_bits(value.to_bits() as u64)
}

fn round(rounding: Rounding) -> Round {
    match rounding {
        Rounding::Nearest => Round::NearestTiesToEven,
        Rounding::NearestAway => Round::NearestTiesToAway,
        Rounding::TowardZero => Round::TowardZero,
        Rounding::Down => Round::TowardNegative,
        Rounding::Up => Round::TowardPositive,
    }
}

pub(super) fn add(a: f64, b: f64, rounding: Rounding) -> f64 {
    native(double(a).add_r(double(b), round(rounding)).value)
}

pub(super) fn mul(a: f64, b: f64, rounding: Rounding) -> f64 {
    native(double(a).mul_r(double(b), round(rounding)).value)
}

pub(super) fn fma(a: f64, b: f64, c: f64, rounding: Rounding) -> f64 {
    native(double(a).mul_add_r(double(b), double(c), round(rounding)).value)
}

pub(super) fn div(a: f64, b: f64, rounding: Rounding) -> f64 {
    native(double(a).div_r(double(b), round(rounding)).value)
}

pub(super) fn sqrt(a: f64, rounding: Rounding) -> f64 {
    // Small numbers are scaled by a power of four, so that the remainder is exact.
    let scale = f64::from_bits((1023 + 200) << 52);
    let small = a < 1.0;
    let scaled = if small { a * scale } else { a };
    let root = scaled.sqrt();
    let remainder = (-root).mul_add(root, scaled);
    let rounded = match rounding {
        Rounding::TowardZero | Rounding::Down if remainder < 0.0 => root.next_down(),
        Rounding::Up if remainder > 0.0 => root.next_up(),
        _ => root,
    };
    if small { rounded * f64::from_bits((1023 - 100) << 52) } else { rounded }
}

/// Converts an integer, with rounding.
pub(super) fn from_integer(value: i128, rounding: Rounding) -> f64 {
    native(Double::from_i128_r(value, round(rounding)).value)
}
