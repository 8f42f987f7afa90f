//! Floating-point arithmetic on `f32` and `f64`: `add`, `sub`, `mul`, `fma`, `div`, `rcp`, `sqrt`,
//! `abs`, `neg`, `copysign`; on pairs of `f32`; and on `f32` with an operand of half precision.

use super::lanes::{map, map_words};
use super::narrow::{Rounding, bf16_value, f16_value};
use super::syntax::{Form, Words};
use super::{Arithmetic, Lanes, Operation, double, single};
use crate::ast::ScalarType::{self, B64, Bf16, F16, F32, F64};

pub(super) const FORMS: &[Form] = &[
    Form::new("add sub mul", "rnd? ftz? sat? f32", build),
    Form::new("add sub mul", "rnd? ftz? f32x2", build),
    Form::new("add sub mul", "rnd? f64", build),
    Form::new("fma mad", "rnd ftz? sat? f32", build),
    Form::new("mad", "ftz? sat? f32", build),
    Form::new("fma", "rnd ftz? f32x2", build),
    Form::new("fma mad", "rnd f64", build),
    Form::new("add sub", "rnd? sat? f32 f16|bf16", build),
    Form::new("fma", "rnd sat? f32 f16|bf16", build),
    Form::new("div rcp sqrt", "rnd ftz? f32", build),
    Form::new("div rcp sqrt", "rnd f64", build),
    Form::new("abs neg", "ftz? f32", build),
    Form::new("abs neg", "f64", build),
    Form::new("copysign", "f32|f64", build),
];

/// A floating-point instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Float {
    op: Op,
    ty: Type,
    rounding: Rounding,
    ftz: bool,
    saturates: bool,
    /// The type of the first operand, or first two of `fma`, if it is half precision.
    mixed: Option<ScalarType>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Op {
    Add,
    Sub,
    Mul,
    Fma,
    Div,
    Reciprocal,
    Sqrt,
    Abs,
    Neg,
    CopySign,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Type {
    F32,
    F32x2,
    F64,
}

fn build(words: &Words) -> Result<Arithmetic, String> {
    let types = [("f32", (Type::F32, F32)), ("f32x2", (Type::F32x2, B64)), ("f64", (Type::F64, F64))];
    let (ty, register) = words.pick(&types).ok_or_else(|| words.unsupported())?;
    let (op, sources, flops) = match words.opcode {
        "add" => (Op::Add, 2, 1),
        "sub" => (Op::Sub, 2, 1),
        "mul" => (Op::Mul, 2, 1),
        "fma" | "mad" => (Op::Fma, 3, 2),
        "div" => (Op::Div, 2, 1),
        "rcp" => (Op::Reciprocal, 1, 1),
        "sqrt" => (Op::Sqrt, 1, 1),
        "abs" => (Op::Abs, 1, 0),
        "neg" => (Op::Neg, 1, 0),
        "copysign" => (Op::CopySign, 2, 0),
        _ => return Err(words.unsupported()),
    };
    let mixed = words.pick(&[("f16", F16), ("bf16", Bf16)]);
    let mut types = vec![register; sources];
    if let Some(half) = mixed {
        types[..sources - 1].fill(half);
    }
    let float = Float {
        op,
        ty,
        rounding: words.pick(&Rounding::MODIFIERS).unwrap_or(Rounding::Nearest),
        ftz: words.has("ftz"),
        saturates: words.has("sat"),
        mixed,
    };
    let count = if ty == Type::F32x2 { 2 } else { 1 };
    let multiply_adds = if op == Op::Fma { count } else { 0 };
    Ok(Arithmetic::new(Operation::Float(float), register, types).counting(flops * count, multiply_adds))
}

impl Float {
    pub fn eval(&self, sources: &[&Lanes], out: &mut Lanes) {
        match (self.ty, self.mixed) {
            (Type::F64, _) => self.eval_f64(sources, out),
            (_, None) => self.eval_f32(sources, out),
            (_, Some(half)) => {
                let value = if half == Bf16 { bf16_value } else { f16_value };
                let widened = |source: &Lanes| source.map(|bits| u64::from(value(bits as u16).to_bits()));
                match (self.op, sources) {
                    (Op::Fma, [a, b, c]) => self.eval_f32(&[&widened(a), &widened(b), c], out),
                    (_, [a, c, ..]) => self.eval_f32(&[&widened(a), c], out),
                    _ => out.fill(0),
                }
            }
        }
    }

    fn eval_f32(&self, sources: &[&Lanes], out: &mut Lanes) {
        let rounding = self.rounding;
        match (self.op, rounding) {
            (Op::Add, Rounding::Nearest) => self.single(sources, out, |[a, b]| a + b),
            (Op::Add, _) => self.single(sources, out, |[a, b]| single::add(a, b, rounding)),
            (Op::Sub, Rounding::Nearest) => self.single(sources, out, |[a, b]| a - b),
            (Op::Sub, _) => self.single(sources, out, |[a, b]| single::add(a, -b, rounding)),
            (Op::Mul, Rounding::Nearest) => self.single(sources, out, |[a, b]| a * b),
            (Op::Mul, _) => self.single(sources, out, |[a, b]| single::mul(a, b, rounding)),
            (Op::Fma, Rounding::Nearest) => {
                self.single(sources, out, |[a, b, c]| single::fma(a, b, c, Rounding::Nearest));
            }
            (Op::Fma, _) => self.single(sources, out, |[a, b, c]| single::fma(a, b, c, rounding)),
            (Op::Div, Rounding::Nearest) => self.single(sources, out, |[a, b]| a / b),
            (Op::Div, _) => self.single(sources, out, |[a, b]| single::div(a, b, rounding)),
            (Op::Reciprocal, _) => self.single(sources, out, |[a]| single::div(1.0, a, rounding)),
            (Op::Sqrt, Rounding::Nearest) => self.single(sources, out, |[a]| a.sqrt()),
            (Op::Sqrt, _) => self.single(sources, out, |[a]| single::sqrt(a, rounding)),
            (Op::Abs, _) => self.single(sources, out, |[a]| a.abs()),
            (Op::Neg, _) => self.single(sources, out, |[a]| -a),
            (Op::CopySign, _) => map(sources, out, |[sign, a]| a & 0x7fff_ffff | sign & 0x8000_0000),
        }
    }

    /// Applies a function of numbers, with the flushes and the limits of the modifiers.
    #[inline(always)]
    fn single<const N: usize>(&self, sources: &[&Lanes], out: &mut Lanes, function: impl Fn([f32; N]) -> f32) {
        let pair = self.ty == Type::F32x2;
        let plain = |values: [u32; N]| function(values.map(f32::from_bits));
        let flushed = |values: [u32; N]| single::flush(function(values.map(|a| single::flush(f32::from_bits(a)))));
        match (self.ftz, self.saturates) {
            (false, false) => map_words(sources, out, pair, |values| single::bits(plain(values))),
            (true, false) => map_words(sources, out, pair, |values| single::bits(flushed(values))),
            (false, true) => map_words(sources, out, pair, |values| single::saturate(plain(values)).to_bits()),
            (true, true) => map_words(sources, out, pair, |values| single::saturate(flushed(values)).to_bits()),
        }
    }

    fn eval_f64(&self, sources: &[&Lanes], out: &mut Lanes) {
        let rounding = self.rounding;
        match (self.op, rounding) {
            (Op::Add, Rounding::Nearest) => doubles(sources, out, |[a, b]| a + b),
            (Op::Add, _) => doubles(sources, out, |[a, b]| double::add(a, b, rounding)),
            (Op::Sub, Rounding::Nearest) => doubles(sources, out, |[a, b]| a - b),
            (Op::Sub, _) => doubles(sources, out, |[a, b]| double::add(a, -b, rounding)),
            (Op::Mul, Rounding::Nearest) => doubles(sources, out, |[a, b]| a * b),
            (Op::Mul, _) => doubles(sources, out, |[a, b]| double::mul(a, b, rounding)),
            (Op::Fma, Rounding::Nearest) => doubles(sources, out, |[a, b, c]| a.mul_add(b, c)),
            (Op::Fma, _) => doubles(sources, out, |[a, b, c]| double::fma(a, b, c, rounding)),
            (Op::Div, Rounding::Nearest) => doubles(sources, out, |[a, b]| a / b),
            (Op::Div, _) => doubles(sources, out, |[a, b]| double::div(a, b, rounding)),
            (Op::Reciprocal, Rounding::Nearest) => doubles(sources, out, |[a]| 1.0 / a),
            (Op::Reciprocal, _) => doubles(sources, out, |[a]| double::div(1.0, a, rounding)),
            (Op::Sqrt, _) => doubles(sources, out, |[a]| double::sqrt(a, rounding)),
            (Op::Abs, _) => map(sources, out, |[a]| a & !SIGN),
            (Op::Neg, _) => map(sources, out, |[a]| a ^ SIGN),
            (Op::CopySign, _) => map(sources, out, |[sign, a]| a & !SIGN | sign & SIGN),
        }
    }
}

const SIGN: u64 = 1 << 63;

#[inline(always)]
fn doubles<const N: usize>(sources: &[&Lanes], out: &mut Lanes, function: impl Fn([f64; N]) -> f64) {
    map(sources, out, |values: [u64; N]| {
        let values = values.map(f64::from_bits);
        double::bits(function(values), values)
    });
}
