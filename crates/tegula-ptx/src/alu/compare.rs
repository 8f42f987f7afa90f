//! Comparisons: `setp`, `set`, and `testp`.
//!
//! A comparison is a set of relations: `le` is {less, equal}, `neu` is {less, greater, unordered}.
//! It is true if the relation of the two values is in the set.

use super::half::flush_f16;
use super::lanes::{map, map_calls};
use super::narrow::{bf16_value, f16_value};
use super::syntax::{Form, Words};
use super::{Arithmetic, Lanes, Operation, single};
use crate::ast::ScalarType::{
    self, B16, B32, B64, Bf16, Bf16x2, F16, F16x2, F32, F64, Pred, S16, S32, S64, U16, U32, U64,
};

pub(super) const FORMS: &[Form] = &[
    Form::new("setp", "compare boolean? any", build),
    Form::new("setp", "compare boolean? ftz? f32|f16|f16x2", build),
    Form::new("setp", "compare boolean? bf16|bf16x2", build),
    Form::new("set", "compare boolean? u32|s32|f32 any", build),
    Form::new("set", "compare boolean? ftz u32|s32|f32 f32", build),
    Form::new("set", "compare boolean? f16 any", build),
    Form::new("set", "compare boolean? ftz? f16 f16|f32", build),
    Form::new("set", "compare boolean? bf16 any", build),
    Form::new("set", "compare boolean? bf16 f16|bf16", build),
    Form::new("set", "compare boolean? ftz? u16|s16|u32|s32 f16", build),
    Form::new("set", "compare boolean? u16|s16|u32|s32 bf16", build),
    Form::new("set", "compare boolean? ftz? f16x2|u32|s32 f16x2", build),
    Form::new("set", "compare boolean? bf16x2|u32|s32 bf16x2", build),
    Form::new("testp", "finite|infinite|number|notanumber|normal|subnormal f32|f64", build_test),
];

/// A comparison, or a test of a number.
#[derive(Clone, Copy, Debug)]
pub(super) struct Compare {
    /// The set of relations for which it is true, as a bit mask.
    relations: u64,
    ty: ScalarType,
    ftz: bool,
    boolean: Option<Boolean>,
    result: Target,
}

/// The form of the result.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Target {
    /// `setp`: a predicate and its complement; for a pair, one predicate for each half.
    Predicates,
    /// `set`: this value for true, 0 for false.
    Value(u64),
    /// `testp`: a predicate.
    Property,
}

/// How the comparison is combined with a predicate.
#[derive(Clone, Copy, Debug)]
enum Boolean {
    And,
    Or,
    Xor,
}

const LESS: u64 = 1;
const EQUAL: u64 = 2;
const GREATER: u64 = 4;
const UNORDERED: u64 = 8;

const COMPARISONS: [(&str, u64); 18] = [
    ("eq", EQUAL),
    ("ne", LESS | GREATER),
    ("lt", LESS),
    ("le", LESS | EQUAL),
    ("gt", GREATER),
    ("ge", GREATER | EQUAL),
    ("lo", LESS),
    ("ls", LESS | EQUAL),
    ("hi", GREATER),
    ("hs", GREATER | EQUAL),
    ("equ", EQUAL | UNORDERED),
    ("neu", LESS | GREATER | UNORDERED),
    ("ltu", LESS | UNORDERED),
    ("leu", LESS | EQUAL | UNORDERED),
    ("gtu", GREATER | UNORDERED),
    ("geu", GREATER | EQUAL | UNORDERED),
    ("num", LESS | EQUAL | GREATER),
    ("nan", UNORDERED),
];

const FINITE: u64 = 1;
const INFINITE: u64 = 2;
const NOT_A_NUMBER: u64 = 4;
const SUBNORMAL: u64 = 8;

/// Tests of `testp` as sets of classes: finite other than subnormal, infinite, NaN, subnormal.
const TESTS: [(&str, u64); 6] = [
    ("finite", FINITE | SUBNORMAL),
    ("infinite", INFINITE),
    ("number", FINITE | SUBNORMAL | INFINITE),
    ("notanumber", NOT_A_NUMBER),
    ("normal", FINITE),
    ("subnormal", SUBNORMAL),
];

const BOOLEANS: [(&str, Boolean); 3] = [("and", Boolean::And), ("or", Boolean::Or), ("xor", Boolean::Xor)];

fn build(words: &Words) -> Result<Arithmetic, String> {
    let relations = words.pick(&COMPARISONS).ok_or_else(|| words.unsupported())?;
    let named = ScalarType::ALL.map(|(ty, name)| (name, ty));
    let mut types = words.pick_all(&named);
    let first = types.next().ok_or_else(|| words.unsupported())?;
    let ty = types.next().unwrap_or(first);
    let unsigned = words.has("lo") || words.has("ls") || words.has("hi") || words.has("hs");
    let bits_only = matches!(ty, B16 | B32 | B64) && !words.has("eq") && !words.has("ne");
    let unordered = relations & UNORDERED != 0 || words.has("num");
    if unsigned && !matches!(ty, U16 | U32 | U64) || bits_only || unordered && !ty.is_float() {
        return Err(format!("the comparison does not support type \".{}\"", ty.name()));
    }
    let (result, destinations) = match (words.opcode, first, ty) {
        ("setp", _, F16 | Bf16) => (Target::Predicates, vec![Pred]),
        ("setp", ..) => (Target::Predicates, vec![Pred; 2]),
        (_, F32, _) => (Target::Value(0x3f80_0000), vec![F32]),
        (_, F16, _) => (Target::Value(0x3c00), vec![F16]),
        (_, Bf16, _) => (Target::Value(0x3f80), vec![Bf16]),
        (_, F16x2, _) => (Target::Value(0x3c00), vec![F16x2]),
        (_, Bf16x2, _) => (Target::Value(0x3f80), vec![Bf16x2]),
        (_, U16 | S16, _) | (_, _, F16x2 | Bf16x2) => (Target::Value(0xffff), vec![first]),
        _ => (Target::Value(0xffff_ffff), vec![first]),
    };
    let boolean = words.pick(&BOOLEANS);
    let mut sources = vec![ty; 2];
    sources.extend(boolean.map(|_| Pred));
    let compare = Compare { relations, ty, ftz: words.has("ftz"), boolean, result };
    let mut arithmetic = Arithmetic::new(Operation::Compare(compare), Pred, sources);
    arithmetic.signature.destinations = destinations;
    Ok(arithmetic)
}

fn build_test(words: &Words) -> Result<Arithmetic, String> {
    let ty = if words.has("f64") { F64 } else { F32 };
    let relations = words.pick(&TESTS).ok_or_else(|| words.unsupported())?;
    let compare = Compare { relations, ty, ftz: false, boolean: None, result: Target::Property };
    Ok(Arithmetic::new(Operation::Compare(compare), Pred, [ty]))
}

impl Compare {
    pub fn eval(&self, sources: &[&Lanes], out: &mut [u64], second: &mut [u64]) {
        if self.result == Target::Property {
            return self.eval_test(sources, out);
        }
        let pair = matches!(self.ty, F16x2 | Bf16x2);
        self.compare(sources, out, 0);
        if pair {
            self.compare(sources, second, 16);
        } else if self.result == Target::Predicates {
            second.iter_mut().zip(&*out).for_each(|(second, truth)| *second = truth ^ 1);
        }
        let predicates = if pair || self.result == Target::Predicates { 2 } else { 1 };
        if let (Some(boolean), Some(with)) = (self.boolean, sources.get(2)) {
            for truths in [&mut *out, &mut *second].into_iter().take(predicates) {
                for (truth, with) in truths.iter_mut().zip(*with) {
                    *truth = match boolean {
                        Boolean::And => *truth & with,
                        Boolean::Or => *truth | with & 1,
                        Boolean::Xor => *truth ^ with & 1,
                    };
                }
            }
        }
        if let Target::Value(value) = self.result {
            let high: &[u64] = if pair { second } else { &[0; 32] };
            for (low, high) in out.iter_mut().zip(high) {
                *low = (*low * value) | ((*high * value) << 16);
            }
        }
    }

    /// Compares in each lane, after a right shift by `shift` bits that selects the half of a pair.
    fn compare(&self, sources: &[&Lanes], out: &mut [u64], shift: u32) {
        let f16 = |bits: u64| {
            let bits = (bits >> shift) as u16;
            f16_value(if self.ftz { flush_f16(bits) } else { bits })
        };
        let bf16 = |bits: u64| bf16_value((bits >> shift) as u16);
        let f32 = |bits: u64| f32::from_bits(bits as u32);
        match self.ty {
            U16 | B16 => self.relate_calls(sources, out, |bits| bits as u16),
            U32 | B32 => self.relate(sources, out, |bits| bits as u32),
            U64 | B64 => self.relate(sources, out, |bits| bits),
            S16 => self.relate_calls(sources, out, |bits| bits as i16),
            S32 => self.relate(sources, out, |bits| bits as i32),
            S64 => self.relate(sources, out, |bits| bits as i64),
            F32 if self.ftz => self.relate_calls(sources, out, |bits| single::flush(f32(bits))),
            F32 => self.relate(sources, out, f32),
            F64 => self.relate(sources, out, f64::from_bits),
            F16 | F16x2 => self.relate_calls(sources, out, f16),
            _ => self.relate_calls(sources, out, bf16),
        }
    }

    #[inline(always)]
    fn relate<T: PartialOrd>(&self, sources: &[&Lanes], out: &mut [u64], value: impl Fn(u64) -> T) {
        let relations = self.relations;
        map(sources, out, |[a, b]| are_related(value(a), value(b), relations));
    }

    /// As [`Compare::relate`], for less frequent types.
    fn relate_calls<T: PartialOrd>(&self, sources: &[&Lanes], out: &mut [u64], value: impl Fn(u64) -> T) {
        map_calls(sources, out, &|[a, b]| are_related(value(a), value(b), self.relations));
    }

    fn eval_test(&self, sources: &[&Lanes], out: &mut [u64]) {
        let class = |number: std::num::FpCategory| match number {
            std::num::FpCategory::Nan => NOT_A_NUMBER,
            std::num::FpCategory::Infinite => INFINITE,
            std::num::FpCategory::Subnormal => SUBNORMAL,
            // Zero counts as normal.
            std::num::FpCategory::Zero | std::num::FpCategory::Normal => FINITE,
        };
        let classify = |bits: u64| match self.ty {
            F64 => class(f64::from_bits(bits).classify()),
            _ => class(f32::from_bits(bits as u32).classify()),
        };
        map(sources, out, |[a]| u64::from(classify(a) & self.relations != 0));
    }
}

/// 1 if the relation of two values is one of the set `relations`, else 0.
#[inline(always)]
fn are_related<T: PartialOrd>(a: T, b: T, relations: u64) -> u64 {
    let ordered = (u64::from(a < b) * LESS) | (u64::from(a == b) * EQUAL) | (u64::from(a > b) * GREATER);
    let relation = ordered | (u64::from(ordered == 0) * UNORDERED);
    u64::from(relation & relations != 0)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, decode, eval, eval_full, floats, integers};

    /// The result of a comparison by the PTX ISA: for ordered operands, and for NaN.
    fn float_comparison(name: &str, a: f64, b: f64) -> bool {
        let nan = a.is_nan() || b.is_nan();
        match name {
            "num" => return !nan,
            "nan" => return nan,
            _ => {}
        }
        let unordered = name.len() == 3;
        let ordered = match &name[..2] {
            "eq" => a == b,
            "ne" => a != b && !nan,
            "lt" => a < b,
            "le" => a <= b,
            "gt" => a > b,
            _ => a >= b,
        };
        ordered || unordered && nan
    }

    const FLOAT_COMPARISONS: [&str; 14] =
        ["eq", "ne", "lt", "le", "gt", "ge", "equ", "neu", "ltu", "leu", "gtu", "geu", "num", "nan"];

    #[test]
    fn float_comparisons_follow_the_isa() {
        for name in FLOAT_COMPARISONS {
            let truth = |a, b| u64::from(float_comparison(name, a, b));
            check(&format!("setp.{name}.f64"), &floats(64, 11, 500), |[a, b]| {
                truth(f64::from_bits(a), f64::from_bits(b))
            });
            let single = |bits: u64| f64::from(f32::from_bits(bits as u32));
            check(&format!("setp.{name}.f32"), &floats(32, 8, 500), |[a, b]| truth(single(a), single(b)));
            let f16 = |bits: u64| super::super::narrow::Format::F16.value(bits as u32);
            check(&format!("setp.{name}.f16"), &floats(16, 5, 500), |[a, b]| truth(f16(a), f16(b)));
            let bf16 = |bits: u64| single(bits << 16);
            check(&format!("setp.{name}.bf16"), &floats(16, 8, 500), |[a, b]| truth(bf16(a), bf16(b)));
            assert_eq!(eval(&format!("setp.{name}.f32"), &[0, 1 << 31]), truth(0.0, -0.0));
        }
    }

    #[test]
    fn integer_comparisons_follow_the_type() {
        type Comparison = fn(i128, i128) -> bool;
        let comparisons: [(&str, &str, Comparison); 6] = [
            ("eq", "", |a, b| a == b),
            ("ne", "", |a, b| a != b),
            ("lt", "lo", |a, b| a < b),
            ("le", "ls", |a, b| a <= b),
            ("gt", "hi", |a, b| a > b),
            ("ge", "hs", |a, b| a >= b),
        ];
        for (ty, width) in [("16", 16), ("32", 32), ("64", 64)] {
            let signed = |bits: u64| i128::from(bits) << (128 - width) >> (128 - width);
            let unsigned = |bits: u64| i128::from(bits & u64::MAX >> (64 - width));
            for (name, other, truth) in comparisons {
                let operands = integers(400);
                check(&format!("setp.{name}.s{ty}"), &operands, |[a, b]| truth(signed(a), signed(b)).into());
                check(&format!("setp.{name}.u{ty}"), &operands, |[a, b]| truth(unsigned(a), unsigned(b)).into());
                let alias = if other.is_empty() { format!("setp.{name}.b{ty}") } else { format!("setp.{other}.u{ty}") };
                check(&alias, &operands, |[a, b]| truth(unsigned(a), unsigned(b)).into());
            }
        }
    }

    #[test]
    fn setp_writes_the_complement_and_combines_both() {
        for (a, b) in [(1, 2), (2, 1)] {
            for c in [0, 1] {
                let truth = u64::from(a < b);
                let both = |spelling: &str| eval_full(spelling, &[a, b, c], false).0;
                assert_eq!(both("setp.lt.and.s32"), [truth & c, (1 - truth) & c]);
                assert_eq!(both("setp.lt.or.s32"), [truth | c, (1 - truth) | c]);
                assert_eq!(both("setp.lt.xor.s32"), [truth ^ c, (1 - truth) ^ c]);
            }
            assert_eq!(eval_full("setp.lt.s32", &[a, b], false).0, [u64::from(a < b), u64::from(a >= b)]);
        }
        // Of pairs, the second destination is that of the upper half.
        assert_eq!(eval_full("setp.lt.f16x2", &[0x4000_3c00, 0x3c00_4000], false).0, [1, 0]);
        assert_eq!(eval_full("setp.gtu.or.bf16x2", &[0x7fff_0000, 0x0000_0001, 0], false).0, [0, 1]);
    }

    #[test]
    fn set_writes_ones_or_one() {
        assert_eq!(eval("set.lt.u32.s32", &[0xffff_ffff, 0]), 0xffff_ffff);
        assert_eq!(eval("set.lt.f32.u32", &[0xffff_ffff, 0]), 0);
        assert_eq!(eval("set.gt.f32.u32", &[0xffff_ffff, 0]), 0x3f80_0000);
        assert_eq!(eval("set.eq.and.s32.f64", &[0, 1 << 63, 1]), 0xffff_ffff);
        assert_eq!(eval("set.eq.and.s32.f64", &[0, 1 << 63, 0]), 0);
        assert_eq!(eval("set.ltu.u16.f16", &[0x7e00, 0]), 0xffff);
        assert_eq!(eval("set.ge.u32.f16", &[0x3c00, 0]), 0xffff_ffff);
        assert_eq!(eval("set.ge.f16.f16", &[0x3c00, 0]), 0x3c00);
        assert_eq!(eval("set.ge.bf16.bf16", &[0x3f80, 0]), 0x3f80);
        assert_eq!(eval("set.lt.f16x2.f16x2", &[0x4000_3c00, 0x3c00_4000]), 0x0000_3c00);
        assert_eq!(eval("set.gt.bf16x2.bf16x2", &[0x4000_3c00, 0x3c00_4000]), 0x3f80_0000);
        assert_eq!(eval("set.lt.u32.f16x2", &[0x3c00_3c00, 0x4000_4000]), 0xffff_ffff);
        assert_eq!(eval("set.lt.xor.s32.bf16x2", &[0x3c00_4000, 0x4000_3c00, 1]), 0x0000_ffff);
    }

    #[test]
    fn ftz_flushes_before_comparing() {
        assert_eq!(eval("setp.eq.f32", &[1, 0]), 0);
        assert_eq!(eval("setp.eq.ftz.f32", &[1, 0]), 1);
        assert_eq!(eval("setp.lt.ftz.f16", &[0x8001, 0x0001]), 0);
        assert_eq!(eval("set.ne.ftz.f16x2.f16x2", &[0x0001_0400, 0]), 0x0000_3c00);
    }

    #[test]
    fn testp_classifies() {
        let tests = ["finite", "infinite", "number", "notanumber", "normal", "subnormal"];
        let numbers: [(f64, [u64; 6]); 5] = [
            (0.0, [1, 0, 1, 0, 1, 0]),
            (1.5, [1, 0, 1, 0, 1, 0]),
            (f64::INFINITY, [0, 1, 1, 0, 0, 0]),
            (f64::NAN, [0, 0, 0, 1, 0, 0]),
            (5e-324, [1, 0, 1, 0, 0, 1]),
        ];
        for (number, expected) in numbers {
            for (test, expected) in tests.iter().zip(expected) {
                assert_eq!(eval(&format!("testp.{test}.f64"), &[(-number).to_bits()]), expected, "{test} {number}");
                let single = if number == 5e-324 { 1e-40f32 } else { number as f32 };
                assert_eq!(eval(&format!("testp.{test}.f32"), &[single.to_bits().into()]), expected, "{test} {number}");
            }
        }
    }

    #[test]
    fn comparisons_that_do_not_go_with_the_type_are_rejected() {
        for spelling in ["setp.lo.s32", "setp.lt.b32", "setp.ltu.u32", "setp.num.s64", "setp.hs.f32"] {
            let reason = decode(spelling, 2).unwrap().unwrap_err();
            assert!(reason.contains("does not support type"), "{spelling}: {reason}");
        }
        assert_eq!(decode("setp.eq.f16", 2).unwrap().unwrap().signature().destinations.len(), 1);
        assert_eq!(decode("setp.eq.f16x2", 2).unwrap().unwrap().signature().destinations.len(), 2);
    }
}
