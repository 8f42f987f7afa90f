//! Comparisons: `setp`, `set`, and `testp`.
//!
//! A comparison is a set of relations: `le` is "less or equal", `neu` is "less, greater or
//! unordered". The relation of two values is computed once for all comparisons.

use super::half::flush_f16;
use super::lanes::map;
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
    /// The relations for which it is true.
    relations: u64,
    ty: ScalarType,
    ftz: bool,
    boolean: Option<Boolean>,
    result: Target,
}

/// What the result is written as.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Target {
    /// A predicate and its complement, or those of a pair.
    Predicates,
    /// The value for "true"; 0 for "false".
    Value(u64),
    /// A test of a property of one number.
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
        return Err(format!("the comparison does not go with type \".{}\"", ty.name()));
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
    pub fn eval(&self, sources: &[&Lanes], out: &mut Lanes, second: &mut Lanes) {
        if self.result == Target::Property {
            return self.eval_test(sources, out);
        }
        let pair = matches!(self.ty, F16x2 | Bf16x2);
        self.compare(sources, out, 0);
        if pair {
            self.compare(sources, second, 16);
        } else if self.result == Target::Predicates {
            *second = out.map(|truth| truth ^ 1);
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
            let high: &Lanes = if pair { second } else { &[0; 32] };
            for (low, high) in out.iter_mut().zip(high) {
                *low = *low * value | (*high * value) << 16;
            }
        }
    }

    /// Compares in each lane, halves of pairs after a shift.
    fn compare(&self, sources: &[&Lanes], out: &mut Lanes, shift: u32) {
        let f16 = |bits: u64| {
            let bits = (bits >> shift) as u16;
            f16_value(if self.ftz { flush_f16(bits) } else { bits })
        };
        let bf16 = |bits: u64| bf16_value((bits >> shift) as u16);
        let f32 = |bits: u64| f32::from_bits(bits as u32);
        match self.ty {
            U16 | B16 => self.relate(sources, out, |bits| bits as u16),
            U32 | B32 => self.relate(sources, out, |bits| bits as u32),
            U64 | B64 => self.relate(sources, out, |bits| bits),
            S16 => self.relate(sources, out, |bits| bits as i16),
            S32 => self.relate(sources, out, |bits| bits as i32),
            S64 => self.relate(sources, out, |bits| bits as i64),
            F32 if self.ftz => self.relate(sources, out, |bits| single::flush(f32(bits))),
            F32 => self.relate(sources, out, f32),
            F64 => self.relate(sources, out, f64::from_bits),
            F16 | F16x2 => self.relate(sources, out, f16),
            _ => self.relate(sources, out, bf16),
        }
    }

    #[inline(always)]
    fn relate<T: PartialOrd>(&self, sources: &[&Lanes], out: &mut Lanes, value: impl Fn(u64) -> T) {
        let relations = self.relations;
        map(sources, out, |[a, b]| {
            let (a, b) = (value(a), value(b));
            let ordered = u64::from(a < b) * LESS | u64::from(a == b) * EQUAL | u64::from(a > b) * GREATER;
            let relation = ordered | u64::from(ordered == 0) * UNORDERED;
            u64::from(relation & relations != 0)
        });
    }

    fn eval_test(&self, sources: &[&Lanes], out: &mut Lanes) {
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
