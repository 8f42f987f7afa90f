//! x·σ(t): GELU in its tanh form and SiLU, from multiplications and additions alone.
//!
//! Written once for whatever computes: on the processor a number, in a kernel that is being built a value. No instruction that is only nearly
//! exact has a part in it and there is no branch, so all engines give the same bits, and the assembler can let the elements of a thread overlap.
//!
//! ½·x·(1 + tanh u) is x·σ(2u), and both gates are x·σ(t) with t = a·(c + d·a²) for a = |x|, d being 0 for SiLU:
//!
//! 1. 2^−t' with t' = t·log₂e as an integer and a fraction. Where t' is large, its last places decide, so c + d·a² carries its rounding error;
//!    c has few enough digits that c − (c + d·a²) is exact.
//! 2. 2^fraction by the polynomial with the least greatest relative error (Remez); the integer goes to the exponent.
//! 3. σ(±t) = (z or 1) / (1 + z) with z = 2^−t' by a polynomial for 1/(1 + z), made better until one multiplication with the remainder makes it
//!    exact to the type; the last addition is also that of the product with x, so that there is one rounding for both.
//!
//! Results of 16 bits need less of all that: `apply_short`.

use crate::real::{Precision, Real};

/// Which t.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gate {
    /// t = 2·√(2/π)·(x + 0.044715·x³): GELU.
    Tanh,
    /// t = x: SiLU.
    Logistic,
}

impl Gate {
    /// x·σ(t). NaN for NaN; x for a large x, infinite or not, and −0 for one far below 0.
    #[inline(always)]
    pub fn apply<R: Real>(self, x: R) -> R {
        let format = Format::of(R::PRECISION);
        let number = |value| x.number(value);
        let most = match self {
            Gate::Tanh => format.most_tanh,
            Gate::Logistic => format.most_logistic,
        };
        let a = x.size_up_to(most);
        // t' = −a·(s + rest).
        let (s, rest) = match self {
            Gate::Tanh => slope(a, format),
            Gate::Logistic => (number(-format.log2_e.0), number(-format.log2_e.1)),
        };
        let shifted = a.fused(s, number(format.shift));
        let minus_n = number(format.shift) - shifted;
        let fraction = a.fused(rest, a.fused(s, minus_n));
        let power = polynomial(fraction, format.power).fused(fraction, number(1.0));
        let z = power * shifted.power(format.lift) * number(format.lower);

        let above = Real::select(x.is_less(0.0), z, number(1.0));
        let mut inverse = polynomial(z, &INVERSE);
        for _ in 0..format.refinements {
            let off = z.fused(inverse, inverse - number(1.0));
            inverse = inverse.fused(off * (off - number(1.0)), inverse);
        }
        let near = above * inverse;
        let more = (-z).fused(near, above - near) * inverse;
        let x = Real::select(x.is_less(-most), number(-most), x);
        x.fused(near, x * more)
    }

    /// The same for a result of 16 bits, in f32: to 2⁻¹² of it, in half as many operations. What the other form does for the last places is left
    /// out, so the place of 1/(1 + z) in the product may be the last.
    #[inline(always)]
    pub fn apply_short<R: Real>(self, x: R) -> R {
        let number = |value| x.number(value);
        let a = x.size_up_to(match self {
            Gate::Tanh => 11.5,
            Gate::Logistic => 150.0,
        });
        let s = match self {
            Gate::Tanh => (a * a).fused(number(-SINGLE.d.0), number(-SINGLE.c.0)),
            Gate::Logistic => number(-SINGLE.log2_e.0),
        };
        // So that the integer is n + lift.
        let shift = number(SINGLE.shift + SINGLE.lift as f64);
        let shifted = a.fused(s, shift);
        let fraction = a.fused(s, shift - shifted);
        let z = polynomial(fraction, &SHORT_POWER).times_power(shifted) * number(SINGLE.lower);
        R::select(x.is_less(0.0), -(a * z), x) * polynomial(z, &INVERSE)
    }
}

/// −(c + d·a²) and what it lacks, for t' of GELU.
#[inline(always)]
fn slope<R: Real>(a: R, format: &Format) -> (R, R) {
    let (c, d) = ((a.number(-format.c.0), a.number(-format.c.1)), (a.number(-format.d.0), a.number(-format.d.1)));
    let square = a * a;
    let sum = square.fused(d.0, c.0);
    let lost = square.fused(d.0, c.0 - sum);
    let of_square = a.fused(a, -square);
    (sum, lost + square.fused(d.1, of_square.fused(d.0, c.1)))
}

/// By Horner's rule, the constant first.
#[inline(always)]
fn polynomial<R: Real>(x: R, coefficients: &[f64]) -> R {
    let (last, others) = (coefficients.len() - 1, 0..coefficients.len() - 1);
    others.rev().fold(x.number(coefficients[last]), |sum, i| sum.fused(x, x.number(coefficients[i])))
}

/// What differs between f32 and f64. Pairs are a number and what it lacks.
struct Format {
    /// Beyond, nothing changes: 1 + z is 1, and x·z is 0.
    most_tanh: f64,
    most_logistic: f64,
    /// 1.5 times the least number whose neighbours are 1 apart: what is added to it becomes an integer in the last bits.
    shift: f64,
    log2_e: (f64, f64),
    /// 2·√(2/π)·log₂e, with few enough digits, and that times 0.044715.
    c: (f64, f64),
    d: (f64, f64),
    /// (2^f − 1)/f for |f| ≤ ½.
    power: &'static [f64],
    /// An exponent to add to n so that it is one of normal numbers, and the power of 2 that takes it back.
    lift: u64,
    lower: f64,
    /// How often the inverse is made better.
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
    most_tanh: 12.0,
    most_logistic: 120.0,
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
    lower: exponent(-102),
    refinements: 0,
};

const DOUBLE: Format = Format {
    most_tanh: 22.0,
    most_logistic: 800.0,
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
    lower: exponent(-570),
    refinements: 1,
};

/// 2^f for |f| ≤ ½, to 7.5·10⁻⁵ of it.
const SHORT_POWER: [f64; 4] = [0.9999280571937561, 0.6932609677314758, 0.2426111251115799, 0.0551716685295105];

/// 1/(1 + z) for 0 ≤ z ≤ 1, to 5·10⁻⁵ of it. Nowhere exact: the remainder is never 0, which infinities rely on.
const INVERSE: [f64; 6] = [
    short(0.9999489827),
    short(-0.9962756897),
    short(0.9534206686),
    short(-0.7705727771),
    short(0.4179377423),
    short(-0.1044844356),
];

/// The nearest f64 whose lower half is 0: a GPU's instruction has room for the upper one, and any other number stays in registers for the whole
/// kernel. For numbers of which few digits matter.
const fn short(value: f64) -> f64 {
    f64::from_bits((value.to_bits() + (1 << 31)) >> 32 << 32)
}

/// A power of 2.
const fn exponent(of: i64) -> f64 {
    f64::from_bits(((1023 + of) as u64) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GATES: [Gate; 2] = [Gate::Tanh, Gate::Logistic];

    /// The greatest error in units in the last place of the result, of every so manieth f32 whose result is large enough to have all its digits,
    /// and the greatest error of the others.
    fn worst(gate: Gate, step: usize) -> (f64, f64) {
        let (mut units, mut small) = (0f64, 0f64);
        for x in (0..=u32::MAX).step_by(step).map(f32::from_bits).filter(|x| x.is_finite()) {
            let (got, want) = (f64::from(gate.apply(x)), gate.apply(f64::from(x)));
            let error = (got - want).abs();
            if want.abs() < exponent(-118) {
                small = small.max(error);
            } else {
                let unit = f64::from_bits(want.to_bits() & (0x7FF << 52)) * exponent(-23);
                units = units.max(error / unit);
            }
        }
        (units, small)
    }

    #[test]
    fn two_units_in_the_last_place() {
        for gate in GATES {
            let (units, small) = worst(gate, 9973);
            assert!(units > 0.5 && units < 2.0 && small < exponent(-140), "{gate:?}: {units}, {small:e}");
        }
    }

    /// Of results that f16 or bf16 has all digits of; below, it is 0 in the end.
    #[test]
    fn twelve_bits_for_short_results() {
        for gate in GATES {
            let mut worst = 0f64;
            for x in (0..=u32::MAX).step_by(9973).map(f32::from_bits).filter(|x| x.is_finite()) {
                let (got, want) = (f64::from(gate.apply_short(x)), gate.apply(f64::from(x)));
                if want.abs() >= exponent(-126) {
                    worst = worst.max((got / want - 1.0).abs());
                } else {
                    assert!((got - want).abs() <= exponent(-126), "{gate:?} {x}: {got:e} for {want:e}");
                }
            }
            assert!(worst > exponent(-14) && worst < exponent(-12), "{gate:?}: {worst:e}");
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
    fn the_ends_of_the_line() {
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
    fn known_values() {
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
