//! `min` and `max` of floating-point numbers.
//!
//! They compare bit patterns as integers, so one function implements all types. −0 is less than +0.

use super::half::HalfType;
use super::lanes::{map, map_calls, map_halves};
use super::syntax::{Form, Words};
use super::{Arithmetic, Lanes, Operation};
use crate::ast::ScalarType::{F32, F64};

pub(super) const FORMS: &[Form] = &[
    Form::new("min max", "ftz? NaN? f32", build),
    Form::new("min max", "ftz? NaN? abs f32", build),
    Form::new("min max", "ftz? NaN? xorsign abs f32", build),
    Form::new("min max", "f64", build),
    Form::new("min max", "ftz? NaN? f16|f16x2", build),
    Form::new("min max", "NaN? bf16|bf16x2", build),
    Form::new("min max", "ftz? NaN? xorsign abs f16|f16x2", build),
    Form::new("min max", "NaN? xorsign abs bf16|bf16x2", build),
];

/// A minimum or maximum.
#[derive(Clone, Copy, Debug)]
pub(super) struct MinMax {
    ty: Type,
    max: bool,
    ftz: bool,
    /// `NaN`: whether the result is NaN if an operand is.
    nan: bool,
    /// `abs`: whether the operands are replaced by their absolute values.
    abs: bool,
    /// `xorsign`: whether the sign of the result is the XOR of the signs of the operands.
    xor_sign: bool,
    sources: usize,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Type {
    Half(HalfType),
    F32,
    F64,
}

/// The bit patterns of a type.
#[derive(Clone, Copy)]
struct Patterns {
    sign: u64,
    infinity: u64,
    smallest_normal: u64,
    nan: u64,
}

const F16_PATTERNS: Patterns = Patterns { sign: 0x8000, infinity: 0x7c00, smallest_normal: 0x400, nan: 0x7fff };
const BF16_PATTERNS: Patterns = Patterns { sign: 0x8000, infinity: 0x7f80, smallest_normal: 0x80, nan: 0x7fff };
const F32_PATTERNS: Patterns =
    Patterns { sign: 1 << 31, infinity: 0x7f80_0000, smallest_normal: 0x80_0000, nan: 0x7fff_ffff };
const F64_PATTERNS: Patterns =
    Patterns { sign: 1 << 63, infinity: 0x7ff0 << 48, smallest_normal: 0x10 << 48, nan: 0x7ff8 << 48 };

fn build(words: &Words) -> Result<Arithmetic, String> {
    let half = words.pick(&HalfType::MODIFIERS).map(|half| (Type::Half(half), half.register()));
    let single = words.pick(&[("f32", (Type::F32, F32)), ("f64", (Type::F64, F64))]);
    let (ty, register) = half.or(single).ok_or_else(|| words.unsupported())?;
    let xor_sign = words.has("xorsign");
    // `abs` without `xorsign` exists only for three operands.
    let three = ty == Type::F32 && !xor_sign && (words.sources == 3 || words.has("abs"));
    let sources = if three { 3 } else { 2 };
    let op = MinMax {
        ty,
        max: words.opcode == "max",
        ftz: words.has("ftz"),
        nan: words.has("NaN"),
        abs: words.has("abs"),
        xor_sign,
        sources,
    };
    Ok(Arithmetic::new(Operation::MinMax(op), register, vec![register; sources]))
}

impl MinMax {
    pub fn eval(&self, sources: &[&Lanes], out: &mut [u64]) {
        match self.ty {
            Type::Half(HalfType { bf16, pair }) => {
                let patterns = if bf16 { BF16_PATTERNS } else { F16_PATTERNS };
                let function = |[a, b]: [u16; 2]| self.of_two(patterns, a.into(), b.into()) as u16;
                map_halves(sources, out, pair, &function);
            }
            Type::F32 => {
                let of_two = |a: u64, b: u64| self.of_two(F32_PATTERNS, a, b);
                let word = u64::from(u32::MAX);
                if self.sources == 3 {
                    map_calls(sources, out, &|[a, b, c]| of_two(of_two(a & word, b & word), c & word));
                } else {
                    map(sources, out, |[a, b]| of_two(a & word, b & word));
                }
            }
            // Of two NaN, the second is returned.
            Type::F64 => map_calls(sources, out, &|[a, b]| {
                let result = self.of_two(F64_PATTERNS, a, b);
                if result & !F64_PATTERNS.sign == F64_PATTERNS.nan { b | 0x8 << 48 } else { result }
            }),
        }
    }

    #[inline(always)]
    fn of_two(&self, patterns: Patterns, a: u64, b: u64) -> u64 {
        let Patterns { sign, infinity, smallest_normal, nan } = patterns;
        let prepare = |value: u64| {
            let flushed = if self.ftz && value & !sign < smallest_normal { value & sign } else { value };
            if self.abs { flushed & !sign } else { flushed }
        };
        let is_nan = |value: u64| value & !sign > infinity;
        // Negative numbers are ordered by their complement.
        let key = |value: u64| {
            let magnitude = (value & !sign) as i64;
            if value & sign != 0 { !magnitude } else { magnitude }
        };
        let (x, y) = (prepare(a), prepare(b));
        let takes_x = if self.max { key(x) > key(y) } else { key(x) < key(y) };
        let result = match (is_nan(x), is_nan(y)) {
            (true, true) => nan,
            (true, false) | (false, true) if self.nan => nan,
            (true, false) => y,
            (false, true) => x,
            _ if takes_x => x,
            _ => y,
        };
        if self.xor_sign && !is_nan(result) { result & !sign | (a ^ b) & sign } else { result }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, eval, floats};

    #[test]
    fn numbers_are_ordered_and_zeros_too() {
        let (zero, minus_zero) = (0, 0x8000_0000);
        assert_eq!(eval("min.f32", &[zero, minus_zero]), minus_zero);
        assert_eq!(eval("min.f32", &[minus_zero, zero]), minus_zero);
        assert_eq!(eval("max.f32", &[zero, minus_zero]), zero);
        assert_eq!(eval("max.f32", &[minus_zero, zero]), zero);
        for (min, max, width, exponent) in
            [("min.f32", "max.f32", 32, 8), ("min.f64", "max.f64", 64, 11), ("min.f16", "max.f16", 16, 5)]
        {
            let value = |bits: u64| match width {
                64 => f64::from_bits(bits),
                32 => f32::from_bits(bits as u32).into(),
                _ => super::super::narrow::Format::F16.value(bits as u32),
            };
            // The total order distinguishes the zeros; NaN is excluded.
            let numbers: Vec<[u64; 2]> = floats(width, exponent, 3000);
            let numbers: Vec<_> = numbers.into_iter().filter(|ab| !ab.iter().any(|&a| value(a).is_nan())).collect();
            check(min, &numbers, |[a, b]| if value(a).total_cmp(&value(b)).is_lt() { a } else { b });
            check(max, &numbers, |[a, b]| if value(a).total_cmp(&value(b)).is_gt() { a } else { b });
        }
    }

    #[test]
    fn nan_loses_unless_asked_for() {
        let (nan, one) = (0x7fc0_0001, 0x3f80_0000);
        for operation in ["min", "max"] {
            assert_eq!(eval(&format!("{operation}.f32"), &[nan, one]), one);
            assert_eq!(eval(&format!("{operation}.f32"), &[one, nan]), one);
            assert_eq!(eval(&format!("{operation}.f32"), &[nan, nan]), 0x7fff_ffff);
            assert_eq!(eval(&format!("{operation}.NaN.f32"), &[one, nan]), 0x7fff_ffff);
            assert_eq!(eval(&format!("{operation}.f64"), &[0x7ff8 << 48, 1]), 1);
            assert_eq!(eval(&format!("{operation}.f64"), &[0x7ff8 << 48 | 1, 0x7ff0 << 48 | 2]), 0x7ff8 << 48 | 2);
            assert_eq!(eval(&format!("{operation}.NaN.f16x2"), &[0x7e00_3c00, 0x3c00_3c00]), 0x7fff_3c00);
            assert_eq!(eval(&format!("{operation}.bf16"), &[0x7fc0, 0x3f80]), 0x3f80);
        }
    }

    #[test]
    fn modifiers_take_magnitudes_and_signs() {
        let single = |value: f32| u64::from(value.to_bits());
        assert_eq!(eval("min.xorsign.abs.f32", &[single(-3.0), single(2.0)]), single(-2.0));
        assert_eq!(eval("max.xorsign.abs.f32", &[single(-3.0), single(-2.0)]), single(3.0));
        assert_eq!(eval("max.xorsign.abs.f16x2", &[0xc000_3c00, 0x3c00_3c00]), 0xc000_3c00);
        assert_eq!(eval("min.NaN.xorsign.abs.f32", &[single(f32::NAN), single(-2.0)]), 0x7fff_ffff);
        assert_eq!(eval("min.abs.f32", &[single(-3.0), single(2.0), single(-1.0)]), single(1.0));
        assert_eq!(eval("max.f32", &[single(-3.0), single(2.0), single(f32::NAN)]), single(2.0));
        assert_eq!(eval("max.NaN.f32", &[single(f32::NAN), single(2.0), single(3.0)]), 0x7fff_ffff);
        assert_eq!(eval("max.ftz.f32", &[single(-1e-40), single(-1.0)]), single(-0.0));
        assert_eq!(eval("min.ftz.f16", &[0x0001, 0x3c00]), 0);
    }
}
