//! x·σ(t), the gated form of GELU (tanh form) and SiLU, from multiplications and additions alone.
//!
//! The code is generic over [`Real`]: a number on the CPU, or a value of a kernel under
//! construction. It uses no approximate instruction, so all engines compute the same bits. It has
//! no branch, so the assembler can overlap the elements of a thread.
//!
//! ½·x·(1 + tanh u) is x·σ(2u). Both gates are x·σ(t) with t = a·(c + d·a²) for a = |x|; for SiLU d
//! is 0. The steps:
//!
//! 1. Compute 2^−t' with t' = t·log₂e, split into an integer and a fraction. For a large t', its
//!    last bits decide the result, so c + d·a² carries its rounding error. c has few enough digits
//!    that c − (c + d·a²) is exact.
//! 2. Compute 2^fraction by the minimax polynomial of the relative error (Remez). The integer is
//!    added to the exponent.
//! 3. Compute σ(±t) = (z or 1) / (1 + z) with z = 2^−t'. A polynomial approximates 1/(1 + z),
//!    refined until one multiplication with the remainder makes it exact to the type. The last
//!    addition is also the addition of the product with x, so both are rounded once.
//!
//! For a result of 16 bits, a shorter form suffices: `apply_short`.

use crate::real::{Precision, Real};

/// The argument t of σ in x·σ(t).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// t = 2·√(2/π)·(x + 0.044715·x³): GELU.
    Tanh,
    /// t = x: SiLU.
    Logistic,
}

impl Gate {
    /// x·σ(t). NaN for NaN, x for a large positive x or +∞, −0 for a large negative x or −∞.
    #[inline(always)]
    pub fn apply<R: Real>(self, x: R) -> R {
        let format = Format::of(R::PRECISION);
        let number = |value| x.number(value);
        let max = match self {
            Gate::Tanh => format.max_tanh,
            Gate::Logistic => format.max_logistic,
        };
        let a = x.abs_min(max);
        // t' = −a·(s + s_low).
        let (s, s_low) = match self {
            Gate::Tanh => slope(a, format),
            Gate::Logistic => (number(-format.log2_e.0), number(-format.log2_e.1)),
        };
        let shifted = a.fma(s, number(format.shift));
        let minus_n = number(format.shift) - shifted;
        let fraction = a.fma(s_low, a.fma(s, minus_n));
        let power = polynomial(fraction, format.power).fma(fraction, number(1.0));
        let z = power * shifted.exp2_bits(format.lift) * number(format.lower);

        let numerator = Real::select(x.is_less(0.0), z, number(1.0));
        let mut inverse = polynomial(z, &INVERSE);
        for _ in 0..format.refinements {
            let residual = z.fma(inverse, inverse - number(1.0));
            inverse = inverse.fma(residual * (residual - number(1.0)), inverse);
        }
        let sigma = numerator * inverse;
        let correction = (-z).fma(sigma, numerator - sigma) * inverse;
        let x = Real::select(x.is_less(-max), number(-max), x);
        x.fma(sigma, x * correction)
    }

    /// x·σ(t) in f32 for a result of 16 bits: relative error at most 2⁻¹², half the operations.
    ///
    /// It omits the steps that only correct the last bits. The multiplication by 1/(1 + z) may
    /// therefore come last.
    #[inline(always)]
    pub fn apply_short<R: Real>(self, x: R) -> R {
        let number = |value| x.number(value);
        let a = x.abs_min(match self {
            Gate::Tanh => 11.5,
            Gate::Logistic => 150.0,
        });
        let s = match self {
            Gate::Tanh => (a * a).fma(number(-SINGLE.d.0), number(-SINGLE.c.0)),
            Gate::Logistic => number(-SINGLE.log2_e.0),
        };
        // Adding this makes the integer n + lift.
        let shift = number(SINGLE.shift + SINGLE.lift as f64);
        let shifted = a.fma(s, shift);
        let fraction = a.fma(s, shift - shifted);
        let z = polynomial(fraction, &SHORT_POWER).scale_exp2(shifted) * number(SINGLE.lower);
        R::select(x.is_less(0.0), -(a * z), x) * polynomial(z, &INVERSE)
    }
}

/// −(c + d·a²) and its rounding error, for t' of GELU.
#[inline(always)]
fn slope<R: Real>(a: R, format: &Format) -> (R, R) {
    let (c, d) = ((a.number(-format.c.0), a.number(-format.c.1)), (a.number(-format.d.0), a.number(-format.d.1)));
    let square = a * a;
    let sum = square.fma(d.0, c.0);
    let error = square.fma(d.0, c.0 - sum);
    let square_error = a.fma(a, -square);
    (sum, error + square.fma(d.1, square_error.fma(d.0, c.1)))
}

/// A polynomial by Horner's rule; coefficients from the constant up.
#[inline(always)]
fn polynomial<R: Real>(x: R, coefficients: &[f64]) -> R {
    let (last, others) = (coefficients.len() - 1, 0..coefficients.len() - 1);
    others.rev().fold(x.number(coefficients[last]), |sum, i| sum.fma(x, x.number(coefficients[i])))
}

/// The constants of f32 or f64. A pair is a rounded number and its rounding error.
struct Format {
    /// The clamp of |x| for GELU: beyond it, 1 + z is 1 and x·z is 0.
    max_tanh: f64,
    /// The same clamp for SiLU.
    max_logistic: f64,
    /// 1.5 times the least number whose neighbors are 1 apart.
    ///
    /// Adding it rounds to an integer, held in the last bits.
    shift: f64,
    /// log₂e.
    log2_e: (f64, f64),
    /// 2·√(2/π)·log₂e, with few enough digits for step 1.
    c: (f64, f64),
    /// 0.044715 times c.
    d: (f64, f64),
    /// Coefficients of (2^f − 1)/f for |f| ≤ ½.
    power: &'static [f64],
    /// Added to the exponent n, so that n is the exponent of a normal number.
    lift: u64,
    /// 2^−lift, which compensates for `lift`.
    lower: f64,
    /// The number of Newton-like refinements of the inverse.
    refinements: u32,
}

impl Format {
    #[inline(always)]
    const fn of(precision: Precision) -> &'static Format {
        match precision {
            Precision::Double => &DOUBLE,
            Precision::Single => &SINGLE,
        }
    }
}

const SINGLE: Format = Format {
    max_tanh: 12.0,
    max_logistic: 120.0,
    shift: 12_582_912.0,
    log2_e: (1.4426950216293335, 1.925963033500011e-8),
    c: (2.3022079467773438, 2.513669699055754e-7),
    d: (0.10294324159622192, -2.016198541454628e-9),
    power: &[
        0.693_147_202_855_000_2,
        0.240_226_479_137_565_8,
        0.055_503_324_713_096_29,
        0.009_618_437_340_927_807,
        0.001_339_887_435_951_116_4,
        0.000_153_533_666_184_812_05,
    ],
    lift: 102,
    lower: exp2(-102),
    refinements: 0,
};

const DOUBLE: Format = Format {
    max_tanh: 22.0,
    max_logistic: 800.0,
    shift: 6_755_399_441_055_744.0,
    log2_e: (std::f64::consts::LOG2_E, 2.0355273740931033e-17),
    c: (2.302208198144328, short(-2.977296208542741e-15)),
    d: (0.1029432395800235, short(-5.978177400718744e-18)),
    power: &[
        std::f64::consts::LN_2,
        0.240_226_506_959_101_3,
        0.055_504_108_664_820_08,
        0.009_618_129_107_594_122,
        0.001_333_355_814_677_462_6,
        0.000_154_035_304_571_104_92,
        0.000_015_252_733_493_116_192,
        1.321_543_528_310_029_3e-6,
        short(1.017_819_957_840_359_3e-7),
        short(7.073_783_115_558_885e-9),
        short(4.434_770_108_833_277e-10),
    ],
    lift: 570,
    lower: exp2(-570),
    refinements: 1,
};

/// Coefficients of 2^f for |f| ≤ ½, with a relative error of 7.5·10⁻⁵.
const SHORT_POWER: [f64; 4] = [0.9999280571937561, 0.6932609677314758, 0.2426111251115799, 0.0551716685295105];

/// Coefficients of 1/(1 + z) for 0 ≤ z ≤ 1, with an error of 5·10⁻⁵.
///
/// The polynomial is nowhere exact: infinities rely on a remainder other than 0.
const INVERSE: [f64; 6] = [
    short(0.9999489827),
    short(-0.9962756897),
    short(0.9534206686),
    short(-0.7705727771),
    short(0.4179377423),
    short(-0.1044844356),
];

/// The nearest f64 whose lower 32 bits are 0, for constants of which few digits matter.
///
/// An instruction of a GPU holds the upper half as an immediate. Any other constant occupies
/// registers for the whole kernel.
const fn short(value: f64) -> f64 {
    f64::from_bits((value.to_bits() + (1 << 31)) >> 32 << 32)
}

/// 2 to the power of an integer.
const fn exp2(exponent: i64) -> f64 {
    f64::from_bits(((1023 + exponent) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATES: [Gate; 2] = [Gate::Tanh, Gate::Logistic];

    /// The greatest error in ulp over every `step`-th f32 with a normal result.
    ///
    /// The second value is the greatest absolute error of the remaining results.
    fn max_error(gate: Gate, step: usize) -> (f64, f64) {
        let (mut ulps, mut absolute) = (0f64, 0f64);
        for x in (0..=u32::MAX).step_by(step).map(f32::from_bits).filter(|x| x.is_finite()) {
            let (got, want) = (f64::from(gate.apply(x)), gate.apply(f64::from(x)));
            let error = (got - want).abs();
            if want.abs() < exp2(-118) {
                absolute = absolute.max(error);
            } else {
                let ulp = f64::from_bits(want.to_bits() & (0x7FF << 52)) * exp2(-23);
                ulps = ulps.max(error / ulp);
            }
        }
        (ulps, absolute)
    }

    #[test]
    fn gate_error_is_below_two_ulp() {
        for gate in GATES {
            let (ulps, absolute) = max_error(gate, 9973);
            assert!(ulps > 0.5 && ulps < 2.0 && absolute < exp2(-140), "{gate:?}: {ulps}, {absolute:e}");
        }
    }

    /// The bound holds for normal results of f16 or bf16; smaller results round to 0.
    #[test]
    fn short_gate_error_is_below_2_to_minus_12() {
        for gate in GATES {
            let mut max_error = 0f64;
            for x in (0..=u32::MAX).step_by(9973).map(f32::from_bits).filter(|x| x.is_finite()) {
                let (got, want) = (f64::from(gate.apply_short(x)), gate.apply(f64::from(x)));
                if want.abs() >= exp2(-126) {
                    max_error = max_error.max((got / want - 1.0).abs());
                } else {
                    assert!((got - want).abs() <= exp2(-126), "{gate:?} {x}: {got:e} for {want:e}");
                }
            }
            assert!(max_error > exp2(-14) && max_error < exp2(-12), "{gate:?}: {max_error:e}");
            let (low, high) = (gate.apply_short(f32::NEG_INFINITY), gate.apply_short(f32::INFINITY));
            assert!(
                low == 0.0 && low.is_sign_negative() && high == f32::INFINITY && gate.apply_short(f32::NAN).is_nan()
            );
            assert_eq!(
                [1e30, 0.0, -0.0, f32::MIN].map(|x| gate.apply_short(x)).map(|y| y == 0.0),
                [false, true, true, true]
            );
        }
    }

    #[test]
    fn gate_of_extreme_values_is_the_limit() {
        for gate in GATES {
            let (low, high) = (gate.apply(f32::NEG_INFINITY), gate.apply(f32::INFINITY));
            assert!(low == 0.0 && low.is_sign_negative() && high == f32::INFINITY && gate.apply(f32::NAN).is_nan());
            assert_eq!([f32::MAX, 1e30, 0.0, -0.0, -1e30].map(|x| gate.apply(x)), [f32::MAX, 1e30, 0.0, 0.0, 0.0]);
            let (low, high) = (gate.apply(f64::NEG_INFINITY), gate.apply(f64::INFINITY));
            assert!(low == 0.0 && low.is_sign_negative() && high == f64::INFINITY && gate.apply(f64::NAN).is_nan());
            assert_eq!([f64::MAX, 1e30, 0.0, -0.0, -1e30].map(|x| gate.apply(x)), [f64::MAX, 1e30, 0.0, 0.0, 0.0]);
        }
    }

    /// Digits computed with mpmath 1.4 to 60 places.
    #[test]
    fn gate_matches_reference_values() {
        let close = |got: f64, want: f64| (got / want - 1.0).abs() < 4e-16;
        let known = [
            (-21.0, -6.016648487631484e-301, -1.5923376886541006e-08),
            (-9.3, -3.954101914528499e-31, -0.0008501676268251014),
            (-4.75, -1.157800580935831e-06, -0.040743055715131926),
            (-2.0, -0.04540230591222498, -0.23840584404423512),
            (-0.75, -0.1700394448343797, -0.24061597561845527),
            (-1e-09, -4.999999996010577e-10, -4.9999999975e-10),
            (1e-300, 5e-301, 5e-301),
            (0.1, 0.053982751045435165, 0.052497918747894),
            (1.0, 0.8411919906082767, 0.7310585786300049),
            (2.5, 2.484915733910001, 2.310354549946891),
            (6.0, 5.9999999999156035, 5.985164261060191),
            (17.0, 17.0, 16.999999296210618),
        ];
        for (x, gelu, silu) in known {
            let (g, s) = (Gate::Tanh.apply(x), Gate::Logistic.apply(x));
            assert!(close(g, gelu) && close(s, silu), "{x}: {g:e} for {gelu:e}, {s:e} for {silu:e}");
        }
    }
}
