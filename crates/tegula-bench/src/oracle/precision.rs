//! The arithmetic of the reference: double-double for f64, f64 for narrower floats, integers modulo
//! 2³². The sources of the algorithms are [above](super).

use tegula::epilogue::Activation;
use tegula_core::lanes::mul_add_f64;

use super::activation;
use super::element::{ReferenceElement, mantissa_exponent, scale_by_power, two_product, two_sum};

/// Arithmetic of the reference.
pub trait Precision {
    /// Type of elements of A and B.
    type Operand: Copy + Send + Sync;
    /// Columns per panel of B.
    const WIDTH: usize;
    fn operand(value: f64) -> Self::Operand;
    /// Multiplies a row of A by a panel of B and writes the first columns to `out`.
    fn dot(a: &[Self::Operand], panel: &[Self::Operand], out: &mut [ReferenceElement]);
    /// Computes alpha·accumulator + beta·C₀ + bias. `terms` are the accumulated pairs of operands.
    fn scaled(
        alpha: f64,
        accumulator: ReferenceElement,
        terms: impl Iterator<Item = (Self::Operand, Self::Operand)>,
        c_term: Option<(f64, f64)>,
        bias: Option<f64>,
    ) -> ReferenceElement;
    /// Applies an activation.
    fn activate(accumulator: ReferenceElement, activation: Activation) -> ReferenceElement;
}

/// Double-double arithmetic, for f64: an unevaluated sum of two f64.
pub struct DoubleDoubleReference;

impl Precision for DoubleDoubleReference {
    type Operand = f64;
    const WIDTH: usize = 32;

    fn operand(value: f64) -> f64 {
        value
    }

    fn dot(a: &[f64], panel: &[f64], out: &mut [ReferenceElement]) {
        let (mut high, mut low, mut magnitude) = ([0.0; 32], [0.0; 32], [0.0; 32]);
        for (&a, b) in a.iter().zip(panel.as_chunks::<32>().0) {
            let (product, mut error) = (b.map(|b| a * b), [0.0; 32]);
            mul_add_f64(&[a; 32], b, &product.map(|x| -x), &mut error);
            for i in 0..32 {
                let (sum, error_of_sum) = two_sum(high[i], product[i]);
                high[i] = sum;
                low[i] += error_of_sum + error[i];
                magnitude[i] += product[i].abs();
            }
        }
        for (i, out) in out.iter_mut().enumerate() {
            *out = ReferenceElement::new(high[i], low[i], magnitude[i]);
        }
    }

    fn scaled(
        alpha: f64,
        accumulator: ReferenceElement,
        terms: impl Iterator<Item = (f64, f64)>,
        c_term: Option<(f64, f64)>,
        bias: Option<f64>,
    ) -> ReferenceElement {
        let (mut high, mut low, mut magnitude) = (0.0, 0.0, 0.0);
        if alpha != 0.0 {
            let (product, error) = two_product(alpha, accumulator.high);
            (high, low, magnitude) =
                (product, alpha.mul_add(accumulator.low, error), alpha.abs() * accumulator.magnitude);
        }
        if let Some((beta, c0)) = c_term {
            let (other, error) = two_product(beta, c0);
            let (total, error_of_sum) = two_sum(high, other);
            (high, low, magnitude) = (total, low + error + error_of_sum, magnitude + other.abs());
        }
        if let Some(bias) = bias {
            let (total, error_of_sum) = two_sum(high, bias);
            (high, low, magnitude) = (total, low + error_of_sum, magnitude + bias.abs());
        }
        // Finite magnitudes bound all intermediates. Otherwise repeat with an extended exponent;
        // infinite and NaN operands take that slower path as well, with the same result.
        if accumulator.magnitude.is_finite() && magnitude.is_finite() {
            return ReferenceElement::new(high, low, magnitude);
        }
        extended_range_dot(alpha, terms, c_term, bias)
    }

    fn activate(accumulator: ReferenceElement, activation: Activation) -> ReferenceElement {
        let accumulator =
            ReferenceElement { magnitude: activation::slope(activation) * accumulator.magnitude, ..accumulator };
        match activation {
            // For values this large, gated activations are 0 or the identity.
            Activation::Gelu | Activation::Silu | Activation::Relu if accumulator.exponent != 0 => {
                if accumulator.high < 0.0 {
                    ReferenceElement { high: 0.0, low: 0.0, ..accumulator }
                } else {
                    accumulator
                }
            }
            _ => activation::doubled(activation, accumulator),
        }
    }
}

/// Computes alpha·Σ a·b + beta·C₀ + bias in double-double arithmetic with an extended exponent.
///
/// Operands are scaled by 2⁻⁵⁵⁰, so that no sum of products overflows. Operands that become
/// subnormal lose less than 2⁵⁰⁰, negligible compared with the unit roundoff of a sum above 2¹⁰²³.
fn extended_range_dot(
    alpha: f64,
    terms: impl Iterator<Item = (f64, f64)>,
    c_term: Option<(f64, f64)>,
    bias: Option<f64>,
) -> ReferenceElement {
    const DOWN: i32 = 550;
    let down = scale_by_power(1.0, -DOWN);
    let (mut high, mut low, mut magnitude) = (0.0, 0.0, 0.0);
    for (a, b) in terms {
        let (product, error) = two_product(a * down, b * down);
        let (sum, error_of_sum) = two_sum(high, product);
        (high, low, magnitude) = (sum, low + (error_of_sum + error), magnitude + product.abs());
    }
    let of = |x: f64, y: f64| {
        let ((x, of_x), (y, of_y)) = (mantissa_exponent(x), mantissa_exponent(y));
        let (high, low) = two_product(x, y);
        ReferenceElement { exponent: of_x + of_y, ..ReferenceElement::new(high, low, high.abs()) }
    };
    let mut total = ReferenceElement::default();
    if alpha != 0.0 {
        let (factor, exponent) = mantissa_exponent(alpha);
        let accumulator =
            ReferenceElement { exponent: 2 * DOWN, ..ReferenceElement::new(high, low, magnitude) }.normalized();
        let (high, error) = two_product(factor, accumulator.high);
        let (low, magnitude) = (factor.mul_add(accumulator.low, error), factor.abs() * accumulator.magnitude);
        total = ReferenceElement {
            exponent: exponent + accumulator.exponent,
            ..ReferenceElement::new(high, low, magnitude)
        };
    }
    total = c_term.map_or(total, |(beta, c0)| total.plus(of(beta, c0)));
    total = bias.map_or(total, |bias| total.plus(of(bias, 1.0)));
    let [high, low, magnitude] = [total.high, total.low, total.magnitude].map(|x| scale_by_power(x, total.exponent));
    let fits = high.is_finite() && magnitude.is_finite() || !total.high.is_finite();
    let total = if fits { ReferenceElement::new(high, low, magnitude) } else { total };
    ReferenceElement { may_overflow: true, ..total }
}

/// f64 arithmetic, for narrower floats, whose products it represents exactly.
pub struct F64Reference;

impl Precision for F64Reference {
    type Operand = f64;
    const WIDTH: usize = 8;

    fn operand(value: f64) -> f64 {
        value
    }

    fn dot(a: &[f64], panel: &[f64], out: &mut [ReferenceElement]) {
        let (mut high, mut magnitude) = ([0.0; 8], [0.0; 8]);
        for (a, b) in a.iter().zip(panel.as_chunks::<8>().0) {
            for i in 0..8 {
                let product = a * b[i];
                high[i] += product;
                magnitude[i] += product.abs();
            }
        }
        for (i, out) in out.iter_mut().enumerate() {
            *out = ReferenceElement::new(high[i], 0.0, magnitude[i]);
        }
    }

    fn scaled(
        alpha: f64,
        accumulator: ReferenceElement,
        _: impl Iterator<Item = (f64, f64)>,
        c_term: Option<(f64, f64)>,
        bias: Option<f64>,
    ) -> ReferenceElement {
        let (other, bias) = (c_term.map_or(0.0, |(beta, c0)| beta * c0), bias.unwrap_or(0.0));
        let magnitude = (alpha * accumulator.magnitude).abs() + other.abs() + bias.abs();
        let may_overflow = accumulator.magnitude.max(magnitude) > f32::MAX.into();
        ReferenceElement {
            may_overflow,
            ..ReferenceElement::new(alpha * accumulator.high + other + bias, 0.0, magnitude)
        }
    }

    fn activate(accumulator: ReferenceElement, activation: Activation) -> ReferenceElement {
        let (high, magnitude) =
            (activation::plain(activation, accumulator.high), activation::slope(activation) * accumulator.magnitude);
        ReferenceElement { high, magnitude, ..accumulator }
    }
}

/// Integer arithmetic modulo 2³², with values stored as f64.
pub struct WrappingReference;

impl Precision for WrappingReference {
    type Operand = i32;
    const WIDTH: usize = 8;

    fn operand(value: f64) -> i32 {
        value as i32
    }

    fn dot(a: &[i32], panel: &[i32], out: &mut [ReferenceElement]) {
        let mut accumulators = [0i32; 8];
        for (a, b) in a.iter().zip(panel.as_chunks::<8>().0) {
            for i in 0..8 {
                accumulators[i] = accumulators[i].wrapping_add(a.wrapping_mul(b[i]));
            }
        }
        for (out, accumulator) in out.iter_mut().zip(accumulators) {
            *out = ReferenceElement::new(accumulator.into(), 0.0, 1.0);
        }
    }

    fn scaled(
        alpha: f64,
        accumulator: ReferenceElement,
        _: impl Iterator<Item = (i32, i32)>,
        c_term: Option<(f64, f64)>,
        bias: Option<f64>,
    ) -> ReferenceElement {
        let times = |x: f64, y: f64| (x as i32).wrapping_mul(y as i32);
        let other = c_term.map_or(0, |(beta, c0)| times(beta, c0));
        let total = times(alpha, accumulator.high).wrapping_add(other).wrapping_add(bias.map_or(0, |bias| bias as i32));
        ReferenceElement::new(total.into(), 0.0, 1.0)
    }

    fn activate(accumulator: ReferenceElement, activation: Activation) -> ReferenceElement {
        ReferenceElement { high: activation::plain(activation, accumulator.high), ..accumulator }
    }
}
