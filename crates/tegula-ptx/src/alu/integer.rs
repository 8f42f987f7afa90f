//! Integer arithmetic: `add`, `mul`, `mad`, `div`, `min`, …

use super::lanes::{map, map_halves};
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
    pub fn eval(&self, sources: &[&Lanes], out: &mut Lanes) -> u32 {
        match self.ty {
            Type::Scalar(U16) => eval_as::<u16>(self.op, sources, out),
            Type::Scalar(U32) => eval_as::<u32>(self.op, sources, out),
            Type::Scalar(U64) => eval_as::<u64>(self.op, sources, out),
            Type::Scalar(S16) => eval_as::<i16>(self.op, sources, out),
            Type::Scalar(S32) => eval_as::<i32>(self.op, sources, out),
            Type::Scalar(_) => eval_as::<i64>(self.op, sources, out),
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

/// What the instructions need of an integer type.
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
    /// The whole product, of types up to 32 bits, in twice the bits.
    fn mul_wide(self, other: Self) -> u64;
    fn mul_24(self, other: Self) -> u64;
    fn abs_difference(self, other: Self) -> Self;
    fn div(self, other: Self) -> Self;
    fn rem(self, other: Self) -> Self;
    fn abs(self) -> Self;
    /// Adds in the double width, of types up to 32 bits.
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

fn eval_as<T: Int>(op: Op, sources: &[&Lanes], out: &mut Lanes) {
    match op {
        Op::Add => binary(sources, out, T::add),
        Op::Sub => binary(sources, out, T::sub),
        Op::AddSaturating => binary(sources, out, T::add_saturating),
        Op::SubSaturating => binary(sources, out, T::sub_saturating),
        Op::Mul(Part::Low) => binary(sources, out, T::mul_low),
        Op::Mul(Part::High) => binary(sources, out, T::mul_high),
        Op::Mul(Part::Wide) => map(sources, out, |[a, b]| T::of(a).mul_wide(T::of(b))),
        Op::Mad(Part::Low) => ternary(sources, out, |a: T, b, c| a.mul_low(b).add(c)),
        Op::Mad(Part::High) => ternary(sources, out, |a: T, b, c| a.mul_high(b).add(c)),
        Op::Mad(Part::Wide) => map(sources, out, |[a, b, c]| T::add_wide(T::of(a).mul_wide(T::of(b)), c)),
        Op::MadHighSaturating => ternary(sources, out, |a: T, b, c| a.mul_high(b).add_saturating(c)),
        Op::Mul24(part) => binary(sources, out, |a: T, b| mul_24(a, b, part)),
        Op::Mad24(part) => ternary(sources, out, |a: T, b, c| mul_24(a, b, part).add(c)),
        Op::Mad24HighSaturating => ternary(sources, out, |a: T, b, c| mul_24(a, b, Part::High).add_saturating(c)),
        Op::AbsDifference => ternary(sources, out, |a: T, b, c| a.abs_difference(b).add(c)),
        Op::Div => binary(sources, out, T::div),
        Op::Rem => binary(sources, out, T::rem),
        Op::Abs => map(sources, out, |[a]| T::of(a).abs().bits()),
        Op::Neg => map(sources, out, |[a]| T::default().sub(T::of(a)).bits()),
        Op::Min => binary(sources, out, T::min),
        Op::Max => binary(sources, out, T::max),
        Op::MinRelu => binary(sources, out, |a: T, b| a.min(b).max(T::default())),
        Op::MaxRelu => binary(sources, out, |a: T, b| a.max(b).max(T::default())),
    }
}

fn eval_pairs<T: Int>(op: Op, sources: &[&Lanes], out: &mut Lanes) {
    let function = match op {
        Op::Add => T::add,
        Op::Min => T::min,
        Op::Max => T::max,
        Op::MinRelu => |a: T, b| a.min(b).max(T::default()),
        _ => |a: T, b| a.max(b).max(T::default()),
    };
    map_halves(sources, out, true, |[a, b]| function(T::of(a.into()), T::of(b.into())).bits() as u16);
}

/// The low or high 32 bits of the 48-bit product of two 24-bit integers.
fn mul_24<T: Int>(a: T, b: T, part: Part) -> T {
    let product = a.mul_24(b);
    T::of(if part == Part::High { product >> 16 } else { product })
}

#[inline(always)]
fn binary<T: Int>(sources: &[&Lanes], out: &mut Lanes, function: impl Fn(T, T) -> T) {
    map(sources, out, |[a, b]| function(T::of(a), T::of(b)).bits());
}

#[inline(always)]
fn ternary<T: Int>(sources: &[&Lanes], out: &mut Lanes, function: impl Fn(T, T, T) -> T) {
    map(sources, out, |[a, b, c]| function(T::of(a), T::of(b), T::of(c)).bits());
}
