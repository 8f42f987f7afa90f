//! Arithmetic on `f16` and `bf16`, and on pairs of them.

use super::narrow::{Format, Rounding, bf16_value, exact_sum, f16_value, flush_tiny};
use super::syntax::{Form, Words};
use super::{Arithmetic, Lanes, Operation};
use crate::ast::ScalarType;

pub(super) const FORMS: &[Form] = &[
    Form::new("add sub mul", "rn? ftz? sat? f16|f16x2", build),
    Form::new("add sub mul", "rn? bf16|bf16x2", build),
    Form::new("fma", "rn ftz? sat? f16|f16x2", build),
    Form::new("fma", "rn ftz? relu f16|f16x2", build),
    Form::new("fma", "rn relu? bf16|bf16x2", build),
    Form::new("fma", "rn oob relu? half", build),
    Form::new("abs neg", "ftz? f16|f16x2", build),
    Form::new("abs neg", "bf16|bf16x2", build),
];

/// A half-precision instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Half {
    op: Op,
    ty: HalfType,
    ftz: bool,
    limit: Limit,
    /// `oob`: whether an operand that marks an out-of-bounds element makes the result zero.
    oob: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Add,
    Sub,
    Mul,
    Fma,
    Abs,
    Neg,
}

/// The limit of a result.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Limit {
    None,
    /// `sat`: 0 to 1; NaN becomes 0.
    Saturate,
    /// `relu`: at least 0.
    Relu,
}

/// A half-precision type, alone or in pairs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct HalfType {
    /// Whether it is `bf16`; otherwise `f16`.
    pub bf16: bool,
    pub pair: bool,
}

impl HalfType {
    /// The modifiers of half-precision types.
    pub const MODIFIERS: [(&'static str, HalfType); 4] = [
        ("f16", HalfType { bf16: false, pair: false }),
        ("f16x2", HalfType { bf16: false, pair: true }),
        ("bf16", HalfType { bf16: true, pair: false }),
        ("bf16x2", HalfType { bf16: true, pair: true }),
    ];

    /// The type of a register.
    pub fn register(self) -> ScalarType {
        match (self.bf16, self.pair) {
            (false, false) => ScalarType::F16,
            (false, true) => ScalarType::F16x2,
            (true, false) => ScalarType::Bf16,
            (true, true) => ScalarType::Bf16x2,
        }
    }

    /// Elements in a register.
    pub fn count(self) -> u32 {
        1 + u32::from(self.pair)
    }
}

/// The NaN with which TMA can fill out-of-bounds elements, without its sign. No other NaN makes
/// `oob` return zero, as measured on an H100.
const OUT_OF_BOUNDS: u16 = 0x7ff7;

/// The NaN result of both types.
const NAN: u16 = 0x7fff;

fn build(words: &Words) -> Result<Arithmetic, String> {
    let ty = words.pick(&HalfType::MODIFIERS).ok_or_else(|| words.unsupported())?;
    let (op, sources, flops) = match words.opcode {
        "add" => (Op::Add, 2, 1),
        "sub" => (Op::Sub, 2, 1),
        "mul" => (Op::Mul, 2, 1),
        "fma" => (Op::Fma, 3, 2),
        "abs" => (Op::Abs, 1, 0),
        "neg" => (Op::Neg, 1, 0),
        _ => return Err(words.unsupported()),
    };
    let limit = words.pick(&[("sat", Limit::Saturate), ("relu", Limit::Relu)]).unwrap_or(Limit::None);
    let half = Half { op, ty, ftz: words.has("ftz"), limit, oob: words.has("oob") };
    let multiply_adds = if op == Op::Fma { ty.count() } else { 0 };
    let arithmetic = Arithmetic::new(Operation::Half(half), ty.register(), vec![ty.register(); sources]);
    Ok(arithmetic.counting(flops * ty.count(), multiply_adds))
}

/// 16-bit values of all lanes; for pairs, the 32 lower halves, then the 32 upper halves.
type Halves<T> = [T; 64];

impl Half {
    /// Computes in steps: split pairs, widen, compute, round, limit, join. Each step is a loop that
    /// the compiler vectorizes.
    pub fn eval(&self, sources: &[&Lanes], out: &mut [u64]) {
        let count = if self.ty.pair { 64 } else { 32 };
        let [mut a, mut b, mut c] = [[0u16; 64]; 3];
        for (operand, source) in [&mut a, &mut b, &mut c].into_iter().zip(sources) {
            split(source, operand);
            if self.ftz {
                operand.iter_mut().for_each(|bits| *bits = flush_f16(*bits));
            }
        }
        let mut result = [0u16; 64];
        let mut exact =
            self.compute(&self.numbers(&a, count), &self.numbers(&b, count), &self.numbers(&c, count), count);
        if self.ftz {
            let Format { fraction, min_exponent, .. } = Format::F16;
            exact.iter_mut().for_each(|value| *value = flush_tiny(*value, fraction, min_exponent, Rounding::Nearest));
        }
        if self.ty.bf16 {
            round(&exact[..count], &mut result[..count], Format::BF16);
        } else {
            round(&exact[..count], &mut result[..count], Format::F16);
        }
        if self.limit != Limit::None {
            result.iter_mut().for_each(|bits| *bits = self.limited(*bits));
        }
        if self.oob {
            for ((result, a), b) in result.iter_mut().zip(&a).zip(&b) {
                if a & 0x7fff == OUT_OF_BOUNDS || b & 0x7fff == OUT_OF_BOUNDS {
                    *result = 0;
                }
            }
        }
        for (lane, out) in out.iter_mut().enumerate().take(32) {
            let high = if self.ty.pair { result[lane + 32] } else { 0 };
            *out = u64::from(result[lane]) | u64::from(high) << 16;
        }
    }

    /// The values of operands.
    fn numbers(&self, bits: &Halves<u16>, count: usize) -> Halves<f32> {
        let mut numbers = [0.0; 64];
        let operands = numbers[..count].iter_mut().zip(bits);
        if self.ty.bf16 {
            operands.for_each(|(number, bits)| *number = bf16_value(*bits));
        } else {
            operands.for_each(|(number, bits)| *number = f16_value(*bits));
        }
        numbers
    }

    /// The results, exact or rounded to odd, so that one more rounding is correct.
    fn compute(&self, a: &Halves<f32>, b: &Halves<f32>, c: &Halves<f32>, count: usize) -> Halves<f64> {
        match self.op {
            Op::Add => each_half(a, b, c, count, |a, b, _| exact_sum(a, b)),
            Op::Sub => each_half(a, b, c, count, |a, b, _| exact_sum(a, -b)),
            // Products of two 11-bit fractions are exact.
            Op::Mul => each_half(a, b, c, count, |a, b, _| a * b),
            Op::Fma => each_half(a, b, c, count, |a, b, c| exact_sum(a * b, c)),
            Op::Abs => each_half(a, b, c, count, |a, _, _| a.abs()),
            Op::Neg => each_half(a, b, c, count, |a, _, _| -a),
        }
    }

    fn limited(&self, bits: u16) -> u16 {
        let one = if self.ty.bf16 { 0x3f80 } else { 0x3c00 };
        let negative = bits & 0x8000 != 0;
        match self.limit {
            Limit::Saturate if negative || bits == NAN => 0,
            Limit::Saturate => bits.min(one),
            Limit::Relu if negative => 0,
            _ => bits,
        }
    }
}

/// Splits pairs into lower halves, then upper halves.
fn split(source: &Lanes, halves: &mut Halves<u16>) {
    let (low, high) = halves.split_at_mut(32);
    for ((low, high), value) in low.iter_mut().zip(high).zip(source) {
        *low = *value as u16;
        *high = (*value >> 16) as u16;
    }
}

#[inline(always)]
fn each_half(
    a: &Halves<f32>,
    b: &Halves<f32>,
    c: &Halves<f32>,
    count: usize,
    function: impl Fn(f64, f64, f64) -> f64,
) -> Halves<f64> {
    let mut results = [0.0; 64];
    for (((result, a), b), c) in results[..count].iter_mut().zip(a).zip(b).zip(c) {
        *result = function((*a).into(), (*b).into(), (*c).into());
    }
    results
}

#[inline(always)]
fn round(numbers: &[f64], results: &mut [u16], format: Format) {
    for (result, number) in results.iter_mut().zip(numbers) {
        *result = format.round(*number, Rounding::Nearest, false) as u16;
    }
}

/// Flushes a subnormal `f16` to zero of its sign.
#[inline(always)]
pub(super) fn flush_f16(bits: u16) -> u16 {
    if bits & 0x7c00 == 0 { bits & 0x8000 } else { bits }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, decode, eval, floats};
    use rustc_apfloat::Float;
    use rustc_apfloat::ieee::{BFloat, Half};

    fn check_against<F: Float>(suffix: &str, exponent: u32) {
        let float = |bits: u64| F::from_bits(bits.into());
        let result = |value: F| if value.is_nan() { 0x7fff } else { value.to_bits() as u64 };
        let two = floats(16, exponent, 20_000);
        check(&format!("add.{suffix}"), &two, |[a, b]| result((float(a) + float(b)).value));
        check(&format!("sub.{suffix}"), &two, |[a, b]| result((float(a) - float(b)).value));
        check(&format!("mul.rn.{suffix}"), &two, |[a, b]| result((float(a) * float(b)).value));
        let fma = |[a, b, c]: [u64; 3]| result(float(a).mul_add(float(b), float(c)).value);
        check(&format!("fma.rn.{suffix}"), &floats(16, exponent, 20_000), fma);
        let all: Vec<[u64; 1]> = (0..=0xffff).map(|bits| [bits]).collect();
        check(&format!("abs.{suffix}"), &all, |[a]| result(float(a).abs()));
        check(&format!("neg.{suffix}"), &all, |[a]| result(-float(a)));
    }

    #[test]
    fn half_precision_equals_a_software_implementation() {
        check_against::<Half>("f16", 5);
        check_against::<BFloat>("bf16", 8);
    }

    #[test]
    fn pairs_equal_single_ones() {
        for (pair, single) in [("fma.rn.f16x2", "fma.rn.f16"), ("fma.rn.relu.bf16x2", "fma.rn.relu.bf16")] {
            check(pair, &floats(32, 8, 500), |operands: [u64; 3]| {
                let of = |shift: u32| eval(single, &operands.map(|bits| bits >> shift & 0xffff));
                of(0) | of(16) << 16
            });
        }
    }

    #[test]
    fn limits_treat_nan_and_negative_numbers() {
        let (one, two, infinity, nan) = (0x3c00, 0x4000, 0x7c00, 0x7e01);
        assert_eq!(eval("add.sat.f16", &[two, one]), one);
        assert_eq!(eval("add.sat.f16", &[nan, one]), 0);
        assert_eq!(eval("sub.sat.f16", &[one, two]), 0);
        assert_eq!(eval("mul.f16", &[infinity, 0]), 0x7fff);
        assert_eq!(eval("fma.rn.relu.f16", &[one, one, 0xc000]), 0);
        assert_eq!(eval("fma.rn.relu.f16", &[one, nan, one]), 0x7fff);
        assert_eq!(eval("fma.rn.relu.bf16", &[0x3f80, 0xbf80, 0]), 0);
        assert_eq!(eval("fma.rn.sat.f16", &[two, two, one]), one);
    }

    #[test]
    fn ftz_flushes_subnormal_numbers_of_f16() {
        assert_eq!(eval("add.ftz.f16", &[0x0001, 0x0400]), 0x0400);
        assert_eq!(eval("add.f16", &[0x0001, 0x0400]), 0x0401);
        assert_eq!(eval("mul.ftz.f16", &[0x0400, 0xb800]), 0x8000);
        assert_eq!(eval("neg.ftz.f16x2", &[0x0001_3c00]), 0x8000_bc00);
        // As measured on an H100.
        assert_eq!(eval("mul.ftz.f16", &[0x0400, 0xbbff]), 0x8000);
        assert_eq!(eval("mul.ftz.f16", &[0x0401, 0x3bfe]), 0x0400);
        assert_eq!(eval("mul.ftz.sat.f16x2", &[0x0400_0400, 0xbc00_3bff]), 0);
        assert_eq!(eval("fma.rn.ftz.f16", &[0x0400, 0xbbff, 0x8001]), 0x8000);
    }

    #[test]
    fn elements_out_of_bounds_make_products_zero() {
        for (suffix, one) in [("f16", 0x3c00), ("bf16", 0x3f80)] {
            for modifiers in ["oob", "oob.relu"] {
                let spelling = format!("fma.rn.{modifiers}.{suffix}");
                for nan in 0x7f81..=0x7fff {
                    // As measured on an H100.
                    let result = if nan == 0x7ff7 { 0 } else { 0x7fff };
                    assert_eq!(eval(&spelling, &[nan, one, one]), result, "{spelling} {nan:#x}");
                    assert_eq!(eval(&spelling, &[one, nan | 0x8000, one]), result, "{spelling} {nan:#x}");
                }
            }
        }
        assert_eq!(eval("fma.rn.oob.relu.bf16x2", &[0x3f80_7ff7, 0x3f80_3f80, 0x3f80_3f80]), 0x4000_0000);
    }

    #[test]
    fn operations_of_pairs_are_counted_twice() {
        let count = |spelling, sources| {
            let instruction = decode(spelling, sources).unwrap().unwrap();
            (instruction.flops(), instruction.multiply_adds())
        };
        assert_eq!(count("fma.rn.f16x2", 3), (4, 2));
        assert_eq!(count("fma.rn.f32x2", 3), (4, 2));
        assert_eq!(count("fma.rn.f32", 3), (2, 1));
        assert_eq!(count("add.bf16x2", 2), (2, 0));
        assert_eq!(count("mul.f64", 2), (1, 0));
        assert_eq!(count("mad.lo.s32", 3), (0, 1));
        assert_eq!(count("dp4a.s32.s32", 3), (0, 4));
        assert_eq!(count("max.f32", 2), (0, 0));
    }
}
