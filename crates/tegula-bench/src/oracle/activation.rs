//! Activations of the reference, by definition from the exponential function.
//!
//! The computation is independent of the engines'. For f64 it uses double-double arithmetic. The
//! exponential function is the Taylor series of a small argument, squared nine times. Its error is
//! far below 2⁻⁹⁰.

use tegula::epilogue::Activation;

use super::element::{ReferenceElement, two_product, two_sum};

/// Largest slope of an activation, which scales errors: 1.1290 for GELU, 1.0998 for SiLU.
pub fn slope(activation: Activation) -> f64 {
    match activation {
        Activation::None | Activation::Relu => 1.0,
        Activation::Gelu => 1.13,
        Activation::Silu => 1.1,
    }
}

/// Computes an activation in f64.
pub fn plain(activation: Activation, x: f64) -> f64 {
    let gated = |t: f64| if x == f64::NEG_INFINITY { -0.0 } else { x / (1.0 + (-t).exp()) };
    match activation {
        Activation::None => x,
        Activation::Relu => relu(x),
        Activation::Gelu => gated(C.high * x * (1.0 + KAPPA.high * x * x)),
        Activation::Silu => gated(x),
    }
}

/// Computes an activation in double-double arithmetic.
pub fn doubled(activation: Activation, x: ReferenceElement) -> ReferenceElement {
    let value = x.value();
    // For large arguments the low part is negligible.
    if !value.is_finite() || value.abs() > 1e4 || matches!(activation, Activation::None | Activation::Relu) {
        let unchanged = plain(activation, value) == value || value.is_nan();
        return if unchanged { x } else { ReferenceElement { high: plain(activation, value), low: 0.0, ..x } };
    }
    let argument = DoubleDouble { high: x.high, low: x.low };
    let magnitude = if value < 0.0 { argument.mul_f64(-1.0) } else { argument };
    let t = match activation {
        Activation::Gelu => C.mul(magnitude).mul(KAPPA.mul(magnitude).mul(magnitude).add(ONE)),
        _ => magnitude,
    };
    let z = t.mul_f64(-1.0).exp();
    let gate = if value < 0.0 { z } else { ONE }.div(ONE.add(z));
    let DoubleDouble { high, low } = argument.mul(gate);
    ReferenceElement { high, low, ..x }
}

/// ReLU that propagates NaN.
fn relu(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

/// Unevaluated sum high + low, with low below the last place of high.
#[derive(Clone, Copy)]
struct DoubleDouble {
    high: f64,
    low: f64,
}

const ONE: DoubleDouble = DoubleDouble { high: 1.0, low: 0.0 };
/// 2·√(2/π).
const C: DoubleDouble = DoubleDouble { high: 1.5957691216057308, low: -9.96930880911092e-17 };
/// 0.044715.
const KAPPA: DoubleDouble = DoubleDouble { high: 0.044715, low: 2.1960211427085595e-18 };
/// ln 2, in three parts.
const LN_2: DoubleDouble = DoubleDouble { high: std::f64::consts::LN_2, low: 2.3190468138462996e-17 };
const LN_2_REST: f64 = 5.707708438416212e-34;

/// Number of halvings of the argument of the exponential function.
const HALVINGS: i32 = 9;

impl DoubleDouble {
    fn add(self, other: Self) -> Self {
        let (high, rest) = two_sum(self.high, other.high);
        let (high, low) = two_sum(high, rest + (self.low + other.low));
        DoubleDouble { high, low }
    }

    fn mul(self, other: Self) -> Self {
        let (high, rest) = two_product(self.high, other.high);
        let (high, low) = two_sum(high, rest + self.high.mul_add(other.low, self.low * other.high));
        DoubleDouble { high, low }
    }

    fn mul_f64(self, factor: f64) -> Self {
        self.mul(DoubleDouble { high: factor, low: 0.0 })
    }

    fn div(self, other: Self) -> Self {
        let quotient = |rest: DoubleDouble| DoubleDouble { high: rest.high / other.high, low: 0.0 };
        let first = quotient(self);
        let rest = self.add(other.mul(first).mul_f64(-1.0));
        let second = quotient(rest);
        first.add(second).add(quotient(rest.add(other.mul(second).mul_f64(-1.0))))
    }

    /// Exponential function of an argument of at most 0.
    fn exp(self) -> Self {
        // Smaller arguments underflow to 0, whatever the other operand.
        if self.high < -1100.0 {
            return DoubleDouble { high: 0.0, low: 0.0 };
        }
        let n = (self.high / LN_2.high).round();
        let rest = self.add(LN_2.mul_f64(-n)).add(DoubleDouble { high: -n * LN_2_REST, low: 0.0 });
        let small = rest.mul_f64(2f64.powi(-HALVINGS));
        // e^x − 1 keeps the digits below those of 1.
        let term =
            |sum: DoubleDouble, i: i32| sum.add(ONE).mul(small).div(DoubleDouble { high: f64::from(i), low: 0.0 });
        let mut exp_minus_one = (1..=10).rev().fold(DoubleDouble { high: 0.0, low: 0.0 }, term);
        for _ in 0..HALVINGS {
            exp_minus_one = exp_minus_one.mul(exp_minus_one.add(DoubleDouble { high: 2.0, low: 0.0 }));
        }
        let (half, n) = ((n / 2.0).trunc() as i32, n as i32);
        exp_minus_one.add(ONE).mul_f64(2f64.powi(half)).mul_f64(2f64.powi(n - half))
    }
}

#[cfg(test)]
mod tests {
    use tegula::epilogue::Gate;

    use super::*;

    fn reference(x: f64) -> ReferenceElement {
        ReferenceElement::new(x, 0.0, 1.0)
    }

    /// Expected digits are from mpmath.
    #[test]
    fn doubled_agrees_to_thirty_digits() {
        let known = [
            (Activation::Gelu, -3.7, (-0.00027180602139205363, -2.2761128230594398e-20)),
            (Activation::Silu, -3.7, (-0.08926997924537604, 4.686627829995357e-18)),
            (Activation::Gelu, 0.6, (0.43541519923081473, -5.27387229937019e-18)),
            (Activation::Silu, 0.6, (0.3873937837354773, -2.737675988717183e-17)),
        ];
        for (activation, x, (high, low)) in known {
            let got = doubled(activation, reference(x));
            let off = (got.high - high) + (got.low - low);
            assert!((off / high).abs() < 1e-30, "{activation} {x}: {off:e}");
        }
    }

    /// Compares the engines' implementation with the reference.
    #[test]
    fn gate_is_within_two_ulp_of_doubled() {
        for activation in [Activation::Gelu, Activation::Silu] {
            let gate: Gate = activation.gate().unwrap();
            let mut worst = 0f64;
            for i in -140_000..140_000 {
                let x = f64::from(i) * f64::from(i).abs() * 3.7e-8;
                let (want, got) = (doubled(activation, reference(x)), gate.apply(x));
                let unit = f64::from_bits(want.high.to_bits() & (0x7FF << 52)) * f64::EPSILON;
                if want.high.abs() > 1e-304 {
                    worst = worst.max(((got - want.high) - want.low).abs() / unit);
                }
                assert!((plain(activation, x) - want.high).abs() <= 1e-15 * x.abs(), "{activation} {x}");
            }
            assert!(worst > 0.5 && worst < 2.0, "{activation}: {worst}");
        }
    }

    #[test]
    fn doubled_at_extremes_is_exact() {
        for activation in Activation::ALL {
            let [low, high, none] =
                [f64::NEG_INFINITY, f64::INFINITY, f64::NAN].map(|x| doubled(activation, reference(x)).high);
            assert_eq!(low, if activation == Activation::None { f64::NEG_INFINITY } else { 0.0 });
            assert!(high == f64::INFINITY && none.is_nan());
            assert_eq!([1e300, 0.0].map(|x| doubled(activation, reference(x)).high), [1e300, 0.0]);
        }
        let just_below = ReferenceElement::new(-1e-300, 0.0, 1.0);
        assert_eq!(doubled(Activation::Relu, just_below).high, 0.0);
    }
}
