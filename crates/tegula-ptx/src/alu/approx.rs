//! Approximate functions: `rcp.approx`, `sin.approx`, `ex2.approx`, `div.full`, …
//!
//! They are computed in `f64` and rounded, which is within the documented error bounds. Quotients
//! are products with a rounded reciprocal, as on an H100. Results for special values (zero,
//! infinity, NaN) follow the tables of the PTX ISA.

use super::half::{HalfType, flush_f16};
use super::lanes::{map_calls, map_halves};
use super::narrow::{Format, Rounding, bf16_value, f16_value};
use super::syntax::{Form, Words};
use super::{Arithmetic, Lanes, Operation, double, single};
use crate::ast::ScalarType::{F32, F64};

pub(super) const FORMS: &[Form] = &[
    Form::new("rcp sqrt rsqrt sin cos lg2 ex2", "approx ftz? f32", build),
    Form::new("tanh", "approx f32", build),
    Form::new("div", "approx|full ftz? f32", build),
    Form::new("rcp rsqrt", "approx ftz f64", build),
    Form::new("rsqrt", "approx f64", build),
    Form::new("ex2", "approx f16|f16x2", build),
    Form::new("ex2", "approx ftz bf16|bf16x2", build),
    Form::new("tanh", "approx half", build),
];

/// An approximate instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Approximate {
    function: Function,
    ty: Type,
    ftz: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Function {
    Reciprocal,
    Sqrt,
    ReciprocalSqrt,
    Sin,
    Cos,
    Log2,
    Exp2,
    Tanh,
    Div { full: bool },
}

#[derive(Clone, Copy, Debug)]
enum Type {
    Half(HalfType),
    F32,
    F64,
}

fn build(words: &Words) -> Result<Arithmetic, String> {
    let half = words.pick(&HalfType::MODIFIERS).map(|half| (Type::Half(half), half.register(), half.count()));
    let single = words.pick(&[("f32", (Type::F32, F32, 1)), ("f64", (Type::F64, F64, 1))]);
    let (ty, register, count) = half.or(single).ok_or_else(|| words.unsupported())?;
    let function = match words.opcode {
        "rcp" => Function::Reciprocal,
        "sqrt" => Function::Sqrt,
        "rsqrt" => Function::ReciprocalSqrt,
        "sin" => Function::Sin,
        "cos" => Function::Cos,
        "lg2" => Function::Log2,
        "ex2" => Function::Exp2,
        "tanh" => Function::Tanh,
        "div" => Function::Div { full: words.has("full") },
        _ => return Err(words.unsupported()),
    };
    let sources = if matches!(function, Function::Div { .. }) { 2 } else { 1 };
    let operation = Operation::Approximate(Approximate { function, ty, ftz: words.has("ftz") });
    let arithmetic = Arithmetic::new(operation, register, vec![register; sources]).counting(count, 0);
    Ok(Arithmetic { approximate: true, ..arithmetic })
}

impl Approximate {
    pub fn eval(&self, sources: &[&Lanes], out: &mut [u64]) {
        match (self.ty, self.function) {
            (Type::F32, Function::Div { full }) => {
                map_calls(sources, out, &|[a, b]| self.f32(a, |a| divide(a, f32::from_bits(b as u32), full, self.ftz)));
            }
            (Type::F32, _) => map_calls(sources, out, &|[a]| self.f32(a, |a| self.value(a.into()) as f32)),
            (Type::F64, _) if self.ftz => map_calls(sources, out, &|[a]| self.high_word(a)),
            (Type::F64, _) => map_calls(sources, out, &|[a]| {
                let a = f64::from_bits(a);
                double::bits(self.value(a), [a])
            }),
            (Type::Half(HalfType { bf16: true, pair }), _) => map_halves(sources, out, pair, &|[a]| {
                let a = if self.ftz { flush_bf16(a) } else { a };
                let result = Format::BF16.round(self.value(bf16_value(a).into()), Rounding::Nearest, false) as u16;
                if self.ftz { flush_bf16(result) } else { result }
            }),
            (Type::Half(HalfType { pair, .. }), _) => map_halves(sources, out, pair, &|[a]| {
                let a = if self.ftz { flush_f16(a) } else { a };
                Format::F16.round(self.value(f16_value(a).into()), Rounding::Nearest, false) as u16
            }),
        }
    }

    /// Applies a function to an `f32`; with `ftz`, flushes subnormal operands and results.
    fn f32(&self, a: u64, function: impl Fn(f32) -> f32) -> u64 {
        let a = f32::from_bits(a as u32);
        let result = if self.ftz { single::flush(function(single::flush(a))) } else { function(a) };
        single::bits(result).into()
    }

    fn value(&self, a: f64) -> f64 {
        match self.function {
            Function::Reciprocal | Function::Div { .. } => 1.0 / a,
            Function::Sqrt => a.sqrt(),
            Function::ReciprocalSqrt => 1.0 / a.sqrt(),
            Function::Sin => libm::sin(a),
            Function::Cos => libm::cos(a),
            Function::Log2 => libm::log2(a),
            Function::Exp2 => libm::exp2(a),
            Function::Tanh => libm::tanh(a),
        }
    }

    /// `approx.ftz.f64`: reads and writes only the high 32 bits of each number.
    fn high_word(&self, a: u64) -> u64 {
        const SUBNORMAL: u64 = 0x7ff0 << 48;
        const NAN: u64 = 0x7fff_ffff << 32;
        let flush = |bits: u64| if bits & SUBNORMAL == 0 { bits & 1 << 63 } else { bits };
        let high = f64::from_bits(flush(a & !u64::from(u32::MAX)));
        let result = self.value(high);
        if result.is_nan() {
            return NAN;
        }
        // Rounds to nearest; a carry out of the fraction correctly increments the exponent.
        flush(result.to_bits() + (1 << 31)) & !u64::from(u32::MAX)
    }
}

/// `div.approx` and `div.full`: a product with the reciprocal, which is never subnormal.
fn divide(a: f32, b: f32, full: bool, ftz: bool) -> f32 {
    const LARGE: f32 = f32::from_bits((127 + 126) << 23);
    let b = if ftz { single::flush(b) } else { b };
    let scale = match b.abs() {
        magnitude if full && magnitude > LARGE => 0.25,
        magnitude if !ftz && magnitude < f32::MIN_POSITIVE => f32::from_bits((127 + 24) << 23),
        _ => 1.0,
    };
    let reciprocal = single::flush(1.0 / (b * scale));
    single::mul(a * scale, reciprocal, Rounding::Nearest, ftz)
}

fn flush_bf16(bits: u16) -> u16 {
    if bits & 0x7f80 == 0 { bits & 0x8000 } else { bits }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{decode, eval};

    fn single(spelling: &str, operands: &[f32]) -> f32 {
        let operands: Vec<u64> = operands.iter().map(|operand| operand.to_bits().into()).collect();
        f32::from_bits(eval(spelling, &operands) as u32)
    }

    /// Compares results by bits, so that zeros differ; any NaN equals the canonical one.
    fn assert_special(spelling: &str, expected: &[(f32, f32)]) {
        for &(operand, result) in expected {
            let value = single(spelling, &[operand]).to_bits();
            let result = if result.is_nan() { 0x7fff_ffff } else { result.to_bits() };
            assert_eq!(value, result, "{spelling} of {operand}");
        }
    }

    #[test]
    fn special_values_follow_the_tables() {
        let (infinity, nan, tiny) = (f32::INFINITY, f32::NAN, 1e-40);
        let common = [(nan, nan)];
        assert_special("rcp.approx.f32", &[(-infinity, -0.0), (-0.0, -infinity), (0.0, infinity), (infinity, 0.0)]);
        assert_special("rcp.approx.ftz.f32", &[(tiny, infinity), (-tiny, -infinity), (1.5e38 * 2.0, 0.0)]);
        assert_special("sqrt.approx.f32", &[(-infinity, nan), (-1.0, nan), (-0.0, -0.0), (infinity, infinity)]);
        assert_special("sqrt.approx.ftz.f32", &[(-tiny, -0.0), (tiny, 0.0)]);
        assert_special("rsqrt.approx.f32", &[(-infinity, nan), (-0.0, -infinity), (0.0, infinity), (infinity, 0.0)]);
        assert_special("sin.approx.f32", &[(-infinity, nan), (-0.0, -0.0), (0.0, 0.0), (infinity, nan)]);
        assert_special("cos.approx.f32", &[(-infinity, nan), (-0.0, 1.0), (infinity, nan)]);
        assert_special(
            "lg2.approx.f32",
            &[(-1.0, nan), (-0.0, -infinity), (0.0, -infinity), (infinity, infinity), (8.0, 3.0)],
        );
        assert_special("lg2.approx.ftz.f32", &[(tiny, -infinity)]);
        assert_special(
            "ex2.approx.f32",
            &[(-infinity, 0.0), (-0.0, 1.0), (infinity, infinity), (3.0, 8.0), (-149.0, 1e-45)],
        );
        assert_special("ex2.approx.ftz.f32", &[(-140.0, 0.0)]);
        assert_special("tanh.approx.f32", &[(-infinity, -1.0), (-0.0, -0.0), (infinity, 1.0), (tiny, tiny)]);
        for name in ["rcp", "sqrt", "rsqrt", "sin", "cos", "lg2", "ex2", "tanh"] {
            assert_special(&format!("{name}.approx.f32"), &common);
        }
    }

    #[test]
    fn quotients_flush_large_divisors_unless_full() {
        let large = f32::from_bits(0x7f00_0000) * 1.5;
        assert_eq!(single("div.approx.f32", &[large, large]), 0.0);
        assert_eq!(single("div.full.f32", &[large, large]), 1.0);
        assert!(single("div.approx.f32", &[f32::INFINITY, large]).is_nan());
        assert_eq!(single("div.approx.f32", &[-1.0, large]).to_bits(), 0x8000_0000);
        assert_eq!(single("div.approx.f32", &[6.0, 3.0]), 2.0);
        assert_eq!(single("div.full.ftz.f32", &[1.0, 1e-40]), f32::INFINITY);
        // As measured on an H100: the reciprocal is rounded up.
        for spelling in ["div.approx.f32", "div.approx.ftz.f32", "div.full.f32", "div.full.ftz.f32"] {
            assert_eq!(eval(spelling, &[0x7f7f_fffe, 0xbf7f_ffff]), 0xff80_0000);
            assert_eq!(eval(spelling, &[0xff7f_fffe, 0x3f7f_ffff]), 0xff80_0000);
        }
        assert_eq!(single("div.approx.f32", &[1.0, f32::INFINITY]), 0.0);
    }

    #[test]
    fn high_words_of_f64_are_approximated() {
        for (operand, result) in [
            (2.0f64, 0.5f64),
            (-0.0, f64::NEG_INFINITY),
            (5e-324, f64::INFINITY),
            (f64::INFINITY, 0.0),
            (f64::MAX, 0.0),
        ] {
            assert_eq!(eval("rcp.approx.ftz.f64", &[operand.to_bits()]), result.to_bits(), "{operand:e}");
        }
        assert_eq!(eval("rcp.approx.ftz.f64", &[f64::NAN.to_bits()]), 0x7fff_ffff_0000_0000);
        assert_eq!(eval("rsqrt.approx.ftz.f64", &[(-5e-324f64).to_bits()]), f64::NEG_INFINITY.to_bits());
        assert_eq!(eval("rcp.approx.ftz.f64", &[5f64.to_bits()]), 0x3fc9_999a << 32, "to nearest");
        let third = f64::from_bits(eval("rcp.approx.ftz.f64", &[3f64.to_bits()]));
        assert!((third * 3.0 - 1.0).abs() < 1e-6 && third.to_bits() as u32 == 0);
        assert_eq!(eval("rsqrt.approx.f64", &[4f64.to_bits()]), 0.5f64.to_bits());
    }

    #[test]
    fn half_precision_is_rounded_once() {
        assert_eq!(eval("ex2.approx.f16x2", &[0x4000_c000]), 0x4400_3400);
        assert_eq!(eval("ex2.approx.ftz.bf16", &[0x4000]), 0x4080);
        assert_eq!(eval("ex2.approx.ftz.bf16", &[0xc2fe]), 0, "2^-127 is flushed");
        assert_eq!(eval("tanh.approx.f16", &[0x7c00]), 0x3c00);
        assert_eq!(eval("tanh.approx.bf16x2", &[0x8000_7fc0]), 0x8000_7fff);
    }

    #[test]
    fn only_approximate_functions_say_so() {
        for (spelling, sources, approximate) in [
            ("ex2.approx.ftz.f32", 1, true),
            ("div.full.f32", 2, true),
            ("div.rn.f32", 2, false),
            ("add.f32", 2, false),
        ] {
            assert_eq!(decode(spelling, sources).unwrap().unwrap().is_approximate(), approximate, "{spelling}");
        }
    }
}
