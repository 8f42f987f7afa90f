//! Integer arithmetic: `add`, `mul`, `mad`, `div`, `min`, …

use super::lanes::{map, map_calls, map_halves};
use super::syntax::{Form, Words};
use super::{Arithmetic, Lanes, Operation};
use crate::ast::ScalarType::{self, B32, S16, S32, S64, U16, U32, U64};

pub(super) const FORMS: &[Form] = &[
    Form::new("add sub div rem min max sad", "int", build),
    Form::new("add sub", "sat s32", build),
    Form::new("mul", "lo|hi int", build),
    Form::new("mul", "wide u16|u32|s16|s32", build),
    Form::new("mad", "lo|hi int", build),
    Form::new("mad", "wide u16|u32|s16|s32", build),
    Form::new("mad mad24", "hi sat s32", build),
    Form::new("mul24 mad24", "lo|hi u32|s32", build),
    Form::new("abs neg", "s16|s32|s64", build),
    Form::new("min max", "relu s32", build),
    Form::new("add min max", "u16x2|s16x2", build),
    Form::new("min max", "relu s16x2", build),
];

/// An integer instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Integer {
    op: Op,
    ty: Type,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Add,
    Sub,
    AddSaturating,
    SubSaturating,
    Mul(Part),
    Mad(Part),
    MadHighSaturating,
    Mul24(Part),
    Mad24(Part),
    Mad24HighSaturating,
    /// `sad`: |a − b| + c.
    AbsDifference,
    Div,
    Rem,
    Abs,
    Neg,
    Min,
    Max,
    /// `min.relu`: at least 0.
    MinRelu,
    MaxRelu,
}

/// The part of a product: its low or high half, or all of it.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Part {
    Low,
    High,
    Wide,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Type {
    Scalar(ScalarType),
    /// A pair of 16-bit integers.
    Pair {
        signed: bool,
    },
}

const TYPES: [(&str, Type); 8] = [
    ("u16", Type::Scalar(U16)),
    ("u32", Type::Scalar(U32)),
    ("u64", Type::Scalar(U64)),
    ("s16", Type::Scalar(S16)),
    ("s32", Type::Scalar(S32)),
    ("s64", Type::Scalar(S64)),
    ("u16x2", Type::Pair { signed: false }),
    ("s16x2", Type::Pair { signed: true }),
];

const PARTS: [(&str, Part); 3] = [("lo", Part::Low), ("hi", Part::High), ("wide", Part::Wide)];

fn build(words: &Words) -> Result<Arithmetic, String> {
    let ty = words.pick(&TYPES).ok_or_else(|| words.unsupported())?;
    let (saturating, relu) = (words.has("sat"), words.has("relu"));
    let part = words.pick(&PARTS).unwrap_or(Part::Low);
    let (op, sources) = match words.opcode {
        "add" if saturating => (Op::AddSaturating, 2),
        "add" => (Op::Add, 2),
        "sub" if saturating => (Op::SubSaturating, 2),
        "sub" => (Op::Sub, 2),
        "mul" => (Op::Mul(part), 2),
        "mad" if saturating => (Op::MadHighSaturating, 3),
        "mad" => (Op::Mad(part), 3),
        "mul24" => (Op::Mul24(part), 2),
        "mad24" if saturating => (Op::Mad24HighSaturating, 3),
        "mad24" => (Op::Mad24(part), 3),
        "sad" => (Op::AbsDifference, 3),
        "div" => (Op::Div, 2),
        "rem" => (Op::Rem, 2),
        "abs" => (Op::Abs, 1),
        "neg" => (Op::Neg, 1),
        "min" => (if relu { Op::MinRelu } else { Op::Min }, 2),
        "max" => (if relu { Op::MaxRelu } else { Op::Max }, 2),
        _ => return Err(words.unsupported()),
    };
    let register = match ty {
        Type::Scalar(scalar) => scalar,
        Type::Pair { .. } => B32,
    };
    let mut types = vec![register; sources];
    let mut destination = register;
    if part == Part::Wide {
        destination = match register {
            U16 => U32,
            S16 => S32,
            U32 => U64,
            _ => S64,
        };
        if let Some(addend) = types.get_mut(2) {
            *addend = destination;
        }
    }
    let multiply_adds = u32::from(matches!(words.opcode, "mad" | "mad24"));
    let operation = Operation::Integer(Integer { op, ty });
    Ok(Arithmetic::new(operation, destination, types).counting(0, multiply_adds))
}

impl Integer {
    /// Computes the lanes, and the mask of lanes that divide by zero.
    pub fn eval(&self, sources: &[&Lanes], out: &mut [u64]) -> u32 {
        let operands = [0, 1, 2].map(|n| sources.get(n).copied().unwrap_or(&[0; 32]));
        match self.ty {
            Type::Scalar(U16) => map_calls(&operands, out, &lane::<u16>(self.op)),
            Type::Scalar(U32) => eval_as::<u32>(self.op, &operands, out),
            Type::Scalar(U64) => eval_as::<u64>(self.op, &operands, out),
            Type::Scalar(S16) => map_calls(&operands, out, &lane::<i16>(self.op)),
            Type::Scalar(S32) => eval_as::<i32>(self.op, &operands, out),
            Type::Scalar(_) => eval_as::<i64>(self.op, &operands, out),
            Type::Pair { signed: false } => eval_pairs::<u16>(self.op, sources, out),
            Type::Pair { signed: true } => eval_pairs::<i16>(self.op, sources, out),
        }
        match (self.op, self.ty, sources) {
            (Op::Div | Op::Rem, Type::Scalar(ty), [_, divisor, ..]) => {
                let mask = u64::MAX >> (64 - 8 * ty.size());
                let zero = |lane: usize| u32::from(divisor[lane] & mask == 0) << lane;
                (0..32).fold(0, |lanes, lane| lanes | zero(lane))
            }
            _ => 0,
        }
    }
}

/// The operations of an integer type that the instructions use.
trait Int: Copy + Ord + Default {
    fn of(bits: u64) -> Self;
    /// The bits, zero-extended.
    fn bits(self) -> u64;
    fn add(self, other: Self) -> Self;
    fn sub(self, other: Self) -> Self;
    fn add_saturating(self, other: Self) -> Self;
    fn sub_saturating(self, other: Self) -> Self;
    fn mul_low(self, other: Self) -> Self;
    fn mul_high(self, other: Self) -> Self;
    /// The full product, in twice the bits; for types of up to 32 bits.
    fn mul_wide(self, other: Self) -> u64;
    fn mul_24(self, other: Self) -> u64;
    fn abs_difference(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    fn rem(self, other: Self) -> Self;
    fn abs(self) -> Self;
    /// Adds in twice the bits; for types of up to 32 bits.
    fn add_wide(product: u64, addend: u64) -> u64;
}

macro_rules! int {
    ($signed:tt: $($ty:ident, $unsigned:ident, $wide:ident, $wide_unsigned:ident;)+) => { $(
        impl Int for $ty {
            fn of(bits: u64) -> Self { bits as Self }
            fn bits(self) -> u64 { self as $unsigned as u64 }
            fn add(self, other: Self) -> Self { self.wrapping_add(other) }
            fn sub(self, other: Self) -> Self { self.wrapping_sub(other) }
            fn add_saturating(self, other: Self) -> Self { self.saturating_add(other) }
            fn sub_saturating(self, other: Self) -> Self { self.saturating_sub(other) }
            fn mul_low(self, other: Self) -> Self { self.wrapping_mul(other) }
            fn mul_high(self, other: Self) -> Self {
                ((self as $wide).wrapping_mul(other as $wide) >> Self::BITS) as Self
            }
            fn mul_wide(self, other: Self) -> u64 {
                (self as $wide).wrapping_mul(other as $wide) as $wide_unsigned as u64
            }
            fn mul_24(self, other: Self) -> u64 {
                let low_24 = |value: Self| int!(@extend $signed, value as u64);
                low_24(self).wrapping_mul(low_24(other)) as u64
            }
            fn abs_difference(self, other: Self) -> Self { self.abs_diff(other) as Self }
            // Division by zero gives all ones, as on the hardware.
            fn div(self, other: Self) -> Self {
                if other == 0 { !0 } else { self.wrapping_div(other) }
            }
            fn rem(self, other: Self) -> Self {
                if other == 0 { !0 } else { self.wrapping_rem(other) }
            }
            fn abs(self) -> Self { int!(@abs $signed, self) }
            fn add_wide(product: u64, addend: u64) -> u64 {
                product.wrapping_add(addend) as $wide_unsigned as u64
            }
        }
    )+ };
    (@extend signed, $value:expr) => { ($value << 40) as i64 >> 40 };
    (@extend unsigned, $value:expr) => { $value & 0xff_ffff };
    (@abs signed, $value:expr) => { $value.wrapping_abs() };
    (@abs unsigned, $value:expr) => { $value };
}
int!(unsigned: u16, u16, u32, u32; u32, u32, u64, u64; u64, u64, u128, u128;);
int!(signed: i16, u16, i32, u32; i32, u32, i64, u64; i64, u64, i128, u128;);

fn eval_as<T: Int>(op: Op, operands: &[&Lanes; 3], out: &mut [u64]) {
    match op {
        // The most frequent ones.
        Op::Add => map(operands, out, |[a, b]| T::of(a).add(T::of(b)).bits()),
        Op::Sub => map(operands, out, |[a, b]| T::of(a).sub(T::of(b)).bits()),
        Op::Mul(Part::Low) => map(operands, out, |[a, b]| T::of(a).mul_low(T::of(b)).bits()),
        Op::Mul(Part::Wide) => map(operands, out, |[a, b]| T::of(a).mul_wide(T::of(b))),
        Op::Mad(Part::Low) => map(operands, out, |[a, b, c]| T::of(a).mul_low(T::of(b)).add(T::of(c)).bits()),
        Op::Mad(Part::Wide) => map(operands, out, |[a, b, c]| T::add_wide(T::of(a).mul_wide(T::of(b)), c)),
        Op::Min => map(operands, out, |[a, b]| T::of(a).min(T::of(b)).bits()),
        Op::Max => map(operands, out, |[a, b]| T::of(a).max(T::of(b)).bits()),
        _ => map_calls(operands, out, &lane::<T>(op)),
    }
}

/// An operation on one lane. It ignores operands that the instruction does not have.
fn lane<T: Int>(op: Op) -> impl Fn([u64; 3]) -> u64 {
    move |[a, b, c]| {
        let wide = c;
        let (a, b, c) = (T::of(a), T::of(b), T::of(c));
        let result = match op {
            Op::Add => a.add(b),
            Op::Sub => a.sub(b),
            Op::AddSaturating => a.add_saturating(b),
            Op::SubSaturating => a.sub_saturating(b),
            Op::Mul(Part::Low) => a.mul_low(b),
            Op::Mul(Part::High) => a.mul_high(b),
            Op::Mul(Part::Wide) => return a.mul_wide(b),
            Op::Mad(Part::Low) => a.mul_low(b).add(c),
            Op::Mad(Part::High) => a.mul_high(b).add(c),
            Op::Mad(Part::Wide) => return T::add_wide(a.mul_wide(b), wide),
            Op::MadHighSaturating => a.mul_high(b).add_saturating(c),
            Op::Mul24(part) => mul_24(a, b, part),
            Op::Mad24(part) => mul_24(a, b, part).add(c),
            Op::Mad24HighSaturating => mul_24(a, b, Part::High).add_saturating(c),
            Op::AbsDifference => a.abs_difference(b).add(c),
            Op::Div => a.div(b),
            Op::Rem => a.rem(b),
            Op::Abs => a.abs(),
            Op::Neg => T::default().sub(a),
            Op::Min => a.min(b),
            Op::Max => a.max(b),
            Op::MinRelu => a.min(b).max(T::default()),
            Op::MaxRelu => a.max(b).max(T::default()),
        };
        result.bits()
    }
}

fn eval_pairs<T: Int>(op: Op, sources: &[&Lanes], out: &mut [u64]) {
    let function = match op {
        Op::Add => T::add,
        Op::Min => T::min,
        Op::Max => T::max,
        Op::MinRelu => |a: T, b| a.min(b).max(T::default()),
        _ => |a: T, b| a.max(b).max(T::default()),
    };
    map_halves(sources, out, true, &|[a, b]| function(T::of(a.into()), T::of(b.into())).bits() as u16);
}

/// The low or high 32 bits of the 48-bit product of two 24-bit integers.
fn mul_24<T: Int>(a: T, b: T, part: Part) -> T {
    let product = a.mul_24(b);
    T::of(if part == Part::High { product >> 16 } else { product })
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, eval, eval_full, integers};

    const TYPES: [(&str, u32, bool); 6] = [
        ("u16", 16, false),
        ("u32", 32, false),
        ("u64", 64, false),
        ("s16", 16, true),
        ("s32", 32, true),
        ("s64", 64, true),
    ];

    /// The integer of a type; all formulas below are exact in 256 bits or wrap in 128.
    fn value(bits: u64, width: u32, signed: bool) -> i128 {
        let unused = 128 - width;
        let bits = i128::from(bits) << unused;
        if signed { bits >> unused } else { (bits as u128 >> unused) as i128 }
    }

    fn wrapped(value: i128, width: u32) -> u64 {
        (value & ((1i128 << width) - 1)) as u64
    }

    #[test]
    fn integer_binary_operations_equal_exact_arithmetic() {
        type Formula = fn(i128, i128, u32) -> i128;
        let formulas: [(&str, Formula); 9] = [
            ("add", |a, b, _| a + b),
            ("sub", |a, b, _| a - b),
            ("mul.lo", |a, b, _| a.wrapping_mul(b)),
            ("mul.hi", |a, b, width| match a.checked_mul(b) {
                Some(product) => product >> width,
                None => ((a as u128 * b as u128) >> width) as i128,
            }),
            ("div", |a, b, _| if b == 0 { -1 } else { a / b }),
            ("rem", |a, b, _| if b == 0 { -1 } else { a - a / b * b }),
            ("min", |a, b, _| if a < b { a } else { b }),
            ("max", |a, b, _| if a > b { a } else { b }),
            ("sad", |a, b, _| if a > b { a - b } else { b - a }),
        ];
        for (name, width, signed) in TYPES {
            for (operation, formula) in formulas {
                let of = |bits| value(bits, width, signed);
                let spelling = format!("{operation}.{name}");
                if operation == "sad" {
                    check(&spelling, &integers(600), |[a, b, c]| wrapped(formula(of(a), of(b), width) + of(c), width));
                } else {
                    check(&spelling, &integers(600), |[a, b]| wrapped(formula(of(a), of(b), width), width));
                }
            }
            for (part, shift) in [("lo", 0), ("hi", width)] {
                check(&format!("mad.{part}.{name}"), &integers(600), |[a, b, c]| {
                    let (a, b) = (value(a, width, signed), value(b, width, signed));
                    let product =
                        a.checked_mul(b).map_or((a as u128).wrapping_mul(b as u128) >> shift, |p| (p >> shift) as u128);
                    wrapped((product as i128).wrapping_add(c.into()), width)
                });
            }
            if width < 64 {
                let wide = |a, b| value(a, width, signed) * value(b, width, signed);
                check(&format!("mul.wide.{name}"), &integers(600), |[a, b]| wrapped(wide(a, b), 2 * width));
                check(&format!("mad.wide.{name}"), &integers(600), |[a, b, c]| {
                    wrapped(wide(a, b) + i128::from(c), 2 * width)
                });
            }
            if signed {
                check(&format!("abs.{name}"), &integers(600), |[a]| wrapped(value(a, width, true).abs(), width));
                check(&format!("neg.{name}"), &integers(600), |[a]| wrapped(-value(a, width, true), width));
            }
        }
    }

    #[test]
    fn saturating_operations_stay_in_range() {
        let clamp = |value: i128| wrapped(value.clamp(-(1 << 31), (1 << 31) - 1), 32);
        let of = |bits| value(bits, 32, true);
        check("add.sat.s32", &integers(600), |[a, b]| clamp(of(a) + of(b)));
        check("sub.sat.s32", &integers(600), |[a, b]| clamp(of(a) - of(b)));
        check("mad.hi.sat.s32", &integers(600), |[a, b, c]| clamp(((of(a) * of(b)) >> 32) + of(c)));
        let low = |bits| value(bits, 24, true);
        check("mad24.hi.sat.s32", &integers(600), |[a, b, c]| clamp(((low(a) * low(b)) >> 16) + of(c)));
        assert_eq!(eval("add.sat.s32", &[0x7fff_ffff, 1]), 0x7fff_ffff);
        assert_eq!(eval("sub.sat.s32", &[0x8000_0000, 1]), 0x8000_0000);
    }

    #[test]
    fn products_of_24_bits_ignore_higher_bits() {
        for (name, signed) in [("u32", false), ("s32", true)] {
            for (part, shift) in [("lo", 0), ("hi", 16)] {
                let product = |a, b| (value(a, 24, signed) * value(b, 24, signed)) >> shift;
                check(&format!("mul24.{part}.{name}"), &integers(600), |[a, b]| wrapped(product(a, b), 32));
                check(&format!("mad24.{part}.{name}"), &integers(600), |[a, b, c]| {
                    wrapped(product(a, b) + i128::from(c), 32)
                });
            }
        }
    }

    #[test]
    fn packed_operations_equal_those_of_halves() {
        for (packed, single) in [
            ("add.u16x2", "add.u16"),
            ("add.s16x2", "add.s16"),
            ("min.u16x2", "min.u16"),
            ("max.s16x2", "max.s16"),
            ("min.s16x2", "min.s16"),
        ] {
            check(packed, &integers(100), |[a, b]| {
                eval(single, &[a, b]) | eval(single, &[a >> 16 & 0xffff, b >> 16 & 0xffff]) << 16
            });
        }
        assert_eq!(eval("max.relu.s16x2", &[0xfffe_0003, 0xffff_fffb]), 0x0000_0003);
        assert_eq!(eval("min.relu.s16x2", &[0x0007_0003, 0x0005_fffb]), 0x0005_0000);
        assert_eq!(eval("min.relu.s32", &[5, 0xffff_fff0]), 0);
        assert_eq!(eval("max.relu.s32", &[0xffff_fff1, 0xffff_fff0]), 0);
    }

    #[test]
    fn division_by_zero_is_reported_for_active_lanes() {
        let (_, results) = eval_full("div.u16", &[5, 0x1_0000], false);
        assert_eq!(results.divided_by_zero, u32::MAX, "bits above the type do not count");
        let (_, results) = eval_full("rem.s64", &[5, 1 << 40], false);
        assert_eq!(results.divided_by_zero, 0);
        assert_eq!(eval("div.s32", &[0x8000_0000, 0xffff_ffff]), 0x8000_0000, "the least integer by -1 wraps");
        assert_eq!(eval("rem.s32", &[0x8000_0000, 0xffff_ffff]), 0);
        let instruction = super::super::testing::decode("div.s32", 2).unwrap().unwrap();
        let divisor = std::array::from_fn(|lane| u64::from(lane % 2 == 0));
        let results = instruction.eval(&[&[1; 32], &divisor], 0, 0xf, &mut [[0; 32]; 2]);
        assert_eq!(results.divided_by_zero, 0b1010);
    }
}
