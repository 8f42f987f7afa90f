//! Arithmetic on `f16` and `bf16`, and on pairs of them.

use super::lanes::map_halves;
use super::narrow::{Format, Rounding, bf16_value, exact_sum, f16_value};
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
    /// Whether an operand that marks an element out of bounds makes the result zero.
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

/// What limits a result.
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
    /// Whether it is `bf16`, not `f16`.
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

/// The pattern with which out-of-bounds elements of a tensor are filled on request.
const OUT_OF_BOUNDS: u16 = 0x7fff;

/// The NaN of both types.
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

impl Half {
    pub fn eval(&self, sources: &[&Lanes], out: &mut Lanes) {
        if self.ty.bf16 {
            self.eval_as(sources, out, bf16_value, Format::BF16);
        } else {
            self.eval_as(sources, out, f16_value, Format::F16);
        }
    }

    #[inline(always)]
    fn eval_as(&self, sources: &[&Lanes], out: &mut Lanes, value: fn(u16) -> f32, format: Format) {
        let value = |bits| f64::from(value(bits));
        match self.op {
            Op::Add => self.apply(sources, out, format, |[a, b]| exact_sum(value(a), value(b))),
            Op::Sub => self.apply(sources, out, format, |[a, b]| exact_sum(value(a), -value(b))),
            // Products of two 11-bit fractions are exact.
            Op::Mul => self.apply(sources, out, format, |[a, b]| value(a) * value(b)),
            Op::Fma => self.apply(sources, out, format, |[a, b, c]| exact_sum(value(a) * value(b), value(c))),
            Op::Abs => self.apply(sources, out, format, |[a]| value(a).abs()),
            Op::Neg => self.apply(sources, out, format, |[a]| -value(a)),
        }
    }

    /// Applies a function of numbers, with the flushes and the limits of the modifiers.
    #[inline(always)]
    fn apply<const N: usize>(
        &self,
        sources: &[&Lanes],
        out: &mut Lanes,
        format: Format,
        function: impl Fn([u16; N]) -> f64,
    ) {
        let rounded = |values| format.round(function(values), Rounding::Nearest, false) as u16;
        if !self.ftz && self.limit == Limit::None && !self.oob {
            return map_halves(sources, out, self.ty.pair, rounded);
        }
        let one = if self.ty.bf16 { 0x3f80 } else { 0x3c00 };
        map_halves(sources, out, self.ty.pair, |values: [u16; N]| {
            if self.oob && values.iter().take(2).any(|&operand| operand == OUT_OF_BOUNDS) {
                return 0;
            }
            let result = if self.ftz { flush_f16(rounded(values.map(flush_f16))) } else { rounded(values) };
            let nan = result == NAN;
            let negative = result & 0x8000 != 0;
            match self.limit {
                Limit::Saturate if negative || nan => 0,
                Limit::Saturate => result.min(one),
                Limit::Relu if negative => 0,
                _ => result,
            }
        });
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
    }

    #[test]
    fn elements_out_of_bounds_make_products_zero() {
        assert_eq!(eval("fma.rn.oob.f16", &[0x7fff, 0x3c00, 0x3c00]), 0);
        assert_eq!(eval("fma.rn.oob.f16", &[0x7e00, 0x3c00, 0x3c00]), 0x7fff);
        assert_eq!(eval("fma.rn.oob.relu.bf16x2", &[0x3f80_7fff, 0x3f80_3f80, 0x3f80_3f80]), 0x4000_0000);
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
