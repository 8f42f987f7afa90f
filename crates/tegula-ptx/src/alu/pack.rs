//! `cvt` to and from packed formats, such as `f16x2` and `e4m3x2`, and `cvt.pack` of integers.

use super::lanes::map;
use super::narrow::{Format, Rounding};
use super::syntax::{Form, Words};
use super::{Arithmetic, Lanes, Operation};
use crate::ast::ScalarType::{self, B8, B16, B32, Bf16x2, F16x2, F32, S32, U32};

pub(super) const FORMS: &[Form] = &[
    Form::new("cvt", "rn|rz relu? satfinite? f16x2|bf16x2 f32", build),
    Form::new("cvt", "rs relu? satfinite? f16x2|bf16x2 f32", build),
    Form::new("cvt", "rn satfinite relu? e4m3x2|e5m2x2|e2m1x2|e2m3x2|e3m2x2 f32|f16x2|bf16x2", build),
    Form::new("cvt", "rn relu? f16x2 e4m3x2|e5m2x2|e2m1x2|e2m3x2|e3m2x2", build),
    Form::new("cvt", "rn relu? satfinite? bf16x2 e4m3x2|e5m2x2|e2m1x2|e2m3x2|e3m2x2", build),
    Form::new("cvt", "rz|rp satfinite? ue8m0x2 f32|bf16x2", build),
    Form::new("cvt", "rn bf16x2 ue8m0x2", build),
    Form::new("cvt", "pack sat u16|s16 s32", build_integers),
    Form::new("cvt", "pack sat u2|s2|u4|s4|u8|s8 s32 b32", build_integers),
];

/// A conversion of two numbers.
#[derive(Clone, Copy, Debug)]
pub(super) enum Pack {
    /// Between floating-point formats.
    Floats {
        from: Pair,
        to: Pair,
        /// `None` for stochastic rounding.
        rounding: Option<Rounding>,
        relu: bool,
        finite: bool,
    },
    /// Two integers above the lower bits of a third.
    Integers { bits: u32, signed: bool },
}

/// How two numbers are held.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pair {
    /// In two registers of type `f32`.
    Singles,
    /// In a register, the first in the upper part.
    Packed { format: Format, bits: u32, register: ScalarType },
    /// Powers of two without sign, of 8 bits each.
    Exponents,
}

impl Pair {
    const fn packed(format: Format, bits: u32, register: ScalarType) -> Self {
        Pair::Packed { format, bits, register }
    }

    fn register(self) -> ScalarType {
        match self {
            Pair::Singles => F32,
            Pair::Packed { register, .. } => register,
            Pair::Exponents => B16,
        }
    }
}

const PAIRS: [(&str, Pair); 9] = [
    ("f32", Pair::Singles),
    ("f16x2", Pair::packed(Format::F16, 16, F16x2)),
    ("bf16x2", Pair::packed(Format::BF16, 16, Bf16x2)),
    ("e4m3x2", Pair::packed(Format::E4M3, 8, B16)),
    ("e5m2x2", Pair::packed(Format::E5M2, 8, B16)),
    ("e2m3x2", Pair::packed(Format::E2M3, 8, B16)),
    ("e3m2x2", Pair::packed(Format::E3M2, 8, B16)),
    ("e2m1x2", Pair::packed(Format::E2M1, 4, B8)),
    ("ue8m0x2", Pair::Exponents),
];

/// Powers of two from 2^-127 on; the format's subnormal zero stands for the first.
const EXPONENT: Format =
    Format { fraction: 0, min_exponent: -126, max_finite: 0xfe, infinity: 0xff, nan: 0xff, sign: 0 };

fn build(words: &Words) -> Result<Arithmetic, String> {
    let mut pairs = words.pick_all(&PAIRS);
    let (Some(to), Some(from)) = (pairs.next(), pairs.next()) else { return Err(words.unsupported()) };
    let rounding = words.pick(&Rounding::MODIFIERS);
    let pack = Pack::Floats { from, to, rounding, relu: words.has("relu"), finite: words.has("satfinite") };
    let mut sources = if from == Pair::Singles { vec![F32; 2] } else { vec![from.register()] };
    sources.extend(rounding.is_none().then_some(B32));
    Ok(Arithmetic::new(Operation::Pack(pack), to.register(), sources))
}

fn build_integers(words: &Words) -> Result<Arithmetic, String> {
    let types = [
        ("u2", (2, false)),
        ("s2", (2, true)),
        ("u4", (4, false)),
        ("s4", (4, true)),
        ("u8", (8, false)),
        ("s8", (8, true)),
        ("u16", (16, false)),
        ("s16", (16, true)),
    ];
    let (bits, signed) = words.pick(&types).ok_or_else(|| words.unsupported())?;
    let mut sources = vec![S32; 2];
    sources.extend((bits < 16).then_some(B32));
    Ok(Arithmetic::new(Operation::Pack(Pack::Integers { bits, signed }), U32, sources))
}

impl Pack {
    pub fn eval(&self, sources: &[&Lanes], out: &mut Lanes) {
        match *self {
            Pack::Floats { from: Pair::Singles, rounding: None, .. } => {
                map(sources, out, |[a, b, random]| {
                    let number = |bits: u64| f64::from(f32::from_bits(bits as u32));
                    self.join(number(a), number(b), random as u32)
                });
            }
            Pack::Floats { from: Pair::Singles, .. } => map(sources, out, |[a, b]| {
                self.join(f32::from_bits(a as u32).into(), f32::from_bits(b as u32).into(), 0)
            }),
            Pack::Floats { from: Pair::Packed { format, bits, .. }, .. } => map(sources, out, |[pair]| {
                let part = |bits_of: u64| format.value(bits_of as u32 & ((1 << bits) - 1));
                self.join(part(pair >> bits), part(pair), 0)
            }),
            Pack::Floats { from: Pair::Exponents, .. } => map(sources, out, |[pair]| {
                let power = |bits: u8| if bits == 0xff { f64::NAN } else { 2f64.powi(i32::from(bits) - 127) };
                self.join(power((pair >> 8) as u8), power(pair as u8), 0)
            }),
            Pack::Integers { bits: 16, signed } => map(sources, out, |[a, b]| integers(a, b, 0, 16, signed)),
            Pack::Integers { bits, signed } => map(sources, out, |[a, b, c]| integers(a, b, c, bits, signed)),
        }
    }

    /// Rounds two numbers, and puts the first above the second.
    fn join(&self, upper: f64, lower: f64, random: u32) -> u64 {
        let Pack::Floats { to, rounding, relu, finite, .. } = *self else { return 0 };
        let (format, bits) = match to {
            Pair::Packed { format, bits, .. } => (format, bits),
            _ => (EXPONENT, 8),
        };
        // Random bits of a number: as many as bits of `f32` that are dropped, at the top.
        let random_bits = |half: u32| u64::from(half) << (64 - (23 - format.fraction));
        let round = |value: f64, random: u32| {
            let value = if relu && value <= 0.0 { 0.0 } else { value };
            u64::from(match rounding {
                None => format.round_stochastic(value, random_bits(random), finite),
                Some(_) if format == EXPONENT && value.abs() <= f64::from_bits((1023 - 127) << 52) => 0,
                Some(rounding) if format == EXPONENT => format.round(value.abs(), rounding, finite),
                Some(rounding) => format.round(value, rounding, finite),
            })
        };
        round(upper, random >> 16) << bits | round(lower, random & 0xffff)
    }
}

/// `cvt.pack`: two saturated integers, and lower bits of a third above them.
fn integers(a: u64, b: u64, c: u64, bits: u32, signed: bool) -> u64 {
    let (least, largest) = if signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
    let part = |value: u64| u64::from((value as i32).clamp(least, largest) as u32 & ((1 << bits) - 1));
    let above = (c & u64::from(u32::MAX)) << (2 * bits);
    (above | part(a) << bits | part(b)) & u64::from(u32::MAX)
}
