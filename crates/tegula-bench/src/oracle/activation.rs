//! Activations for the reference: by their definitions and the exponential function, nothing of which is what engines compute with.
//!
//! In twice the precision of f64 where C is f64: an unevaluated sum of two. The exponential function is its Taylor series for a small
//! argument, doubled nine times; its error is far below 2⁻⁹⁰.

use tegula::epilogue::Activation;

use super::{Exact, two_product, two_sum};

/// The greatest slope: how far an error of the sum may reach. 1.1290 for GELU, 1.0998 for SiLU.
pub fn slope(activation: Activation) -> f64 {
    match activation {
        Activation::None | Activation::Relu => 1.0,
        Activation::Gelu => 1.13,
        Activation::Silu => 1.1,
    }
}

/// Of a value to the precision of f64.
pub fn plain(activation: Activation, x: f64) -> f64 {
    let gated = |t: f64| if x == f64::NEG_INFINITY { -0.0 } else { x / (1.0 + (-t).exp()) };
    match activation {
        Activation::None => x,
        Activation::Relu => relu(x),
        Activation::Gelu => gated(C.high * x * (1.0 + KAPPA.high * x * x)),
        Activation::Silu => gated(x),
    }
}

/// Of a value in two parts.
pub fn doubled(activation: Activation, x: Exact) -> Exact {
    let whole = x.value();
    // Far out, in both directions, the rest is below all that counts.
    if !whole.is_finite() || whole.abs() > 1e4 || matches!(activation, Activation::None | Activation::Relu) {
        let kept = plain(activation, whole) == whole || whole.is_nan();
        return if kept { x } else { Exact { high: plain(activation, whole), low: 0.0, ..x } };
    }
    let argument = Double { high: x.high, low: x.low };
    let size = if whole < 0.0 { argument.times(-1.0) } else { argument };
    let t = match activation {
        Activation::Gelu => C.by(size).by(KAPPA.by(size).by(size).plus(ONE)),
        _ => size,
    };
    let z = t.times(-1.0).exp();
    let gate = if whole < 0.0 { z } else { ONE }.over(ONE.plus(z));
    let Double { high, low } = argument.by(gate);
    Exact { high, low, ..x }
}

/// NaN stays.
fn relu(x: f64) -> f64 {
    if x < 0.0 { 0.0 } else { x }
}

/// The sum of two numbers, the second below the last place of the first.
#[derive(Clone, Copy)]
struct Double {
    high: f64,
    low: f64,
}

const ONE: Double = Double { high: 1.0, low: 0.0 };
/// 2·√(2/π).
const C: Double = Double { high: 1.5957691216057308, low: -9.96930880911092e-17 };
/// 0.044715.
const KAPPA: Double = Double { high: 0.044715, low: 2.1960211427085595e-18 };
/// ln 2, in three parts.
const LN_2: Double = Double { high: std::f64::consts::LN_2, low: 2.3190468138462996e-17 };
const LN_2_REST: f64 = 5.707708438416212e-34;

/// How often the argument of the exponential function is halved.
const HALVINGS: i32 = 9;

impl Double {
    fn plus(self, other: Self) -> Self {
        let (high, rest) = two_sum(self.high, other.high);
        let (high, low) = two_sum(high, rest + (self.low + other.low));
        Double { high, low }
    }

    fn by(self, other: Self) -> Self {
        let (high, rest) = two_product(self.high, other.high);
        let (high, low) = two_sum(high, rest + self.high.mul_add(other.low, self.low * other.high));
        Double { high, low }
    }

    fn times(self, factor: f64) -> Self {
        self.by(Double { high: factor, low: 0.0 })
    }

    fn over(self, other: Self) -> Self {
        let quotient = |rest: Double| Double { high: rest.high / other.high, low: 0.0 };
        let first = quotient(self);
        let rest = self.plus(other.by(first).times(-1.0));
        let second = quotient(rest);
        first.plus(second).plus(quotient(rest.plus(other.by(second).times(-1.0))))
    }

    /// e to this, for an argument that is not above 0.
    fn exp(self) -> Self {
        // Below, it is 0 whatever is multiplied by it.
        if self.high < -1100.0 {
            return Double { high: 0.0, low: 0.0 };
        }
        let n = (self.high / LN_2.high).round();
        let rest = self.plus(LN_2.times(-n)).plus(Double { high: -n * LN_2_REST, low: 0.0 });
        let small = rest.times(2f64.powi(-HALVINGS));
        // e^x − 1, so that no digits are lost beside the 1.
        let term = |sum: Double, i: i32| sum.plus(ONE).by(small).over(Double { high: f64::from(i), low: 0.0 });
        let mut less_one = (1..=10).rev().fold(Double { high: 0.0, low: 0.0 }, term);
        for _ in 0..HALVINGS {
            less_one = less_one.by(less_one.plus(Double { high: 2.0, low: 0.0 }));
        }
        let (half, n) = ((n / 2.0).trunc() as i32, n as i32);
        less_one.plus(ONE).times(2f64.powi(half)).times(2f64.powi(n - half))
    }
}

#[cfg(test)]
mod tests {
    use tegula::epilogue::Gate;

    use super::*;

    fn exact(x: f64) -> Exact {
        Exact::new(x, 0.0, 1.0)
    }

    /// The digits are mpmath's.
    #[test]
    fn thirty_digits() {
        let known = [
            (Activation::Gelu, -3.7, (-0.00027180602139205363, -2.2761128230594398e-20)),
            (Activation::Silu, -3.7, (-0.08926997924537604, 4.686627829995357e-18)),
            (Activation::Gelu, 0.6, (0.43541519923081473, -5.27387229937019e-18)),
            (Activation::Silu, 0.6, (0.3873937837354773, -2.737675988717183e-17)),
        ];
        for (activation, x, (high, low)) in known {
            let got = doubled(activation, exact(x));
            let off = (got.high - high) + (got.low - low);
            assert!((off / high).abs() < 1e-30, "{activation} {x}: {off:e}");
        }
    }

    /// Two ways to compute the same are within what both are said to be.
    #[test]
    fn engines_are_within_two_units_of_it() {
        for activation in [Activation::Gelu, Activation::Silu] {
            let gate: Gate = activation.gate().unwrap();
            let mut worst = 0f64;
            for i in -140_000..140_000 {
                let x = f64::from(i) * f64::from(i).abs() * 3.7e-8;
                let (want, got) = (doubled(activation, exact(x)), gate.apply(x));
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
    fn the_ends_of_the_line() {
        for activation in Activation::ALL {
            let [low, high, none] =
                [f64::NEG_INFINITY, f64::INFINITY, f64::NAN].map(|x| doubled(activation, exact(x)).high);
            assert_eq!(low, if activation == Activation::None { f64::NEG_INFINITY } else { 0.0 });
            assert!(high == f64::INFINITY && none.is_nan());
            assert_eq!([1e300, 0.0].map(|x| doubled(activation, exact(x)).high), [1e300, 0.0]);
        }
        let just_below = Exact::new(-1e-300, 0.0, 1.0);
        assert_eq!(doubled(Activation::Relu, just_below).high, 0.0);
    }
}
