//! The unit in which the error of an element is counted, and rounding to the types of C.

use tegula::element::{Element, FloatFormat, Scalar, Type};

use super::element::{ReferenceElement, scale_by_power};

/// Unit of the error of an element of C.
pub struct ErrorUnit {
    /// Unit roundoff of the type of C; 0 for integers, so that any error is infinite.
    roundoff: f64,
    /// Absolute error from underflow, η [above](super).
    underflow: f64,
    /// Largest finite value of the type of C.
    largest: f64,
    /// Distance from `largest` to the smallest value that rounds to infinity.
    overflow_margin: f64,
}

impl ErrorUnit {
    pub fn new<T: Element>(alpha: f64) -> Self {
        let ((roundoff, spacing, max_power), (_, accumulator_spacing, _)) =
            (format(<T::Out as Scalar>::TYPE), format(<T::Acc as Scalar>::TYPE));
        let underflow = spacing + accumulator_spacing * alpha.abs().max(1.0);
        ErrorUnit {
            roundoff,
            underflow,
            largest: max_power * (2.0 - 2.0 * roundoff),
            overflow_margin: max_power * roundoff,
        }
    }

    /// Error of an element in these units.
    pub fn error_in_units(&self, reference: ReferenceElement, actual: f64) -> f64 {
        // Scale all values by the exponent of the reference.
        let [actual, largest, overflow_margin, underflow] =
            [actual, self.largest, self.overflow_margin, self.underflow]
                .map(|x| scale_by_power(x, -reference.exponent));
        let value = reference.high;
        if value.is_nan() || actual.is_nan() {
            return if value.is_nan() && actual.is_nan() { 0.0 } else { f64::INFINITY };
        }
        if value.is_infinite() || actual.is_infinite() && actual.signum() != value.signum() {
            return if actual == value { 0.0 } else { f64::INFINITY };
        }
        let error = if actual.is_infinite() {
            ((largest - reference.high.abs()) + (overflow_margin - reference.low * actual.signum())).max(0.0)
        } else {
            ((reference.high - actual) + reference.low).abs()
        };
        match (error, reference.magnitude) {
            (0.0, _) => 0.0,
            (_, 0.0) => f64::INFINITY,
            (error, magnitude) => error / (self.roundoff * magnitude.min(f64::MAX) + underflow),
        }
    }
}

/// Unit roundoff, half the spacing of subnormals, and largest power of 2 of a type; 0 for integers.
pub fn format(ty: Type) -> (f64, f64, f64) {
    let Some(FloatFormat { precision, min_exponent, max_exponent }) = ty.float_format() else { return (0.0, 0.0, 0.0) };
    let power = |exponent| 2f64.powi(exponent);
    // Half the spacing of f64 subnormals is not representable.
    let underflow = power(min_exponent - precision).max(f64::from_bits(1));
    (power(-precision), underflow, power(max_exponent))
}

/// Rounds to nearest even, independently of [`Type::round`], which only encodes the result.
pub fn rounded<S: Scalar>(value: f64) -> S {
    let nearest = S::TYPE.float_format().map_or(value, |format| nearest(format, value));
    S::from_bits(S::TYPE.round(nearest))
}

/// Nearest value of a format, ties to even.
fn nearest(format: FloatFormat, value: f64) -> f64 {
    // f64 contains all values of the other formats, with twice their precision.
    if format.precision == f64::MANTISSA_DIGITS as i32 || value == 0.0 || !value.is_finite() {
        return value;
    }
    let exponent = ((value.to_bits() >> 52 & 0x7ff) as i32 - 1023).max(format.min_exponent);
    let spacing = 2f64.powi(exponent - (format.precision - 1));
    let nearest = (value / spacing).round_ties_even() * spacing;
    if nearest.abs() < 2f64.powi(format.max_exponent) * 2.0 { nearest } else { f64::INFINITY.copysign(value) }
}
