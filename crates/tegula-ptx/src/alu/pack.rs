//! `cvt` to and from packed formats, such as `f16x2` and `e4m3x2`, and `cvt.pack` of integers.

use super::lanes::{map, map_calls};
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
    /// `cvt.pack`: two integers, and above them the low bits of a third operand.
    Integers { bits: u32, signed: bool },
}

/// The representation of two numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Pair {
    /// In two registers of type `f32`.
    Singles,
    /// In one register; the first number is in the high bits.
    Packed { format: Format, bits: u32, register: ScalarType },
    /// `ue8m0x2`: two unsigned powers of two, 8 bits each.
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

    /// Bits of one number.
    fn bits(self) -> u32 {
        match self {
            Pair::Singles => 32,
            Pair::Packed { bits, .. } => bits,
            Pair::Exponents => 8,
        }
    }

    /// The value of the lower number.
    fn value(self, pair: u64) -> f64 {
        match self {
            Pair::Packed { format, bits, .. } => format.value(pair as u32 & ((1 << bits) - 1)),
            _ if pair as u8 == 0xff => f64::NAN,
            _ => 2f64.powi(i32::from(pair as u8) - 127),
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

/// `ue8m0`: powers of two from 2^-127, which is encoded as 0.
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
    pub fn eval(&self, sources: &[&Lanes], out: &mut [u64]) {
        match *self {
            Pack::Floats { from: Pair::Singles, .. } => {
                let single = |bits: u64| f64::from(f32::from_bits(bits as u32)).to_bits();
                let [mut upper, mut lower] = [[0; 32]; 2];
                map_calls(sources, &mut upper, &|[a, _]| single(a));
                map_calls(sources, &mut lower, &|[_, b]| single(b));
                self.join(&upper, &lower, sources.get(2).copied(), out);
            }
            Pack::Floats { from, .. } => {
                let bits = from.bits();
                let [mut upper, mut lower] = [[0; 32]; 2];
                map_calls(sources, &mut upper, &|[pair]| from.value(pair >> bits).to_bits());
                map_calls(sources, &mut lower, &|[pair]| from.value(pair).to_bits());
                self.join(&upper, &lower, None, out);
            }
            Pack::Integers { bits: 16, signed } => map_calls(sources, out, &|[a, b]| integers(a, b, 0, 16, signed)),
            Pack::Integers { bits, signed } => map_calls(sources, out, &|[a, b, c]| integers(a, b, c, bits, signed)),
        }
    }

    /// Rounds pairs of numbers, and packs them with the first in the high bits.
    fn join(&self, upper: &Lanes, lower: &Lanes, random: Option<&Lanes>, out: &mut [u64]) {
        let Pack::Floats { to, rounding, relu, finite, .. } = *self else { return };
        let bits = to.bits();
        let sources = &[upper, lower, random.unwrap_or(&[0; 32])];
        let number = |bits: u64| {
            let number = f64::from_bits(bits);
            if relu && number <= 0.0 { 0.0 } else { number }
        };
        match (to, rounding) {
            // The most frequent case is separate, so that the compiler propagates its constants.
            (Pair::Packed { format: Format::F16, .. }, Some(Rounding::Nearest)) => map(sources, out, |[a, b]| {
                let round = |bits: u64| u64::from(Format::F16.round(number(bits), Rounding::Nearest, finite));
                round(a) << 16 | round(b)
            }),
            (Pair::Packed { format, .. }, Some(rounding)) => map_calls(sources, out, &|[a, b]| {
                let round = |bits: u64| u64::from(format.round(number(bits), rounding, finite));
                round(a) << bits | round(b)
            }),
            (Pair::Packed { format, .. }, None) => map_calls(sources, out, &|[a, b, random]| {
                // The number of random bits is that of the dropped fraction bits of `f32`.
                let round = |number: f64, random: u64| {
                    u64::from(format.round_stochastic(number, random << (64 - 23 + format.fraction), finite))
                };
                round(number(a), random >> 16 & 0xffff) << bits | round(number(b), random & 0xffff)
            }),
            _ => map_calls(sources, out, &|[a, b]| {
                let rounding = rounding.unwrap_or(Rounding::Nearest);
                exponent(number(a), rounding, finite) << 8 | exponent(number(b), rounding, finite)
            }),
        }
    }
}

/// The biased exponent of the power of two to which a magnitude is rounded.
fn exponent(number: f64, rounding: Rounding, finite: bool) -> u64 {
    let magnitude = number.abs();
    if magnitude <= f64::from_bits((1023 - 127) << 52) {
        return 0;
    }
    EXPONENT.round(magnitude, rounding, finite).into()
}

/// `cvt.pack`: two saturated integers, and above them the low bits of a third operand.
fn integers(a: u64, b: u64, c: u64, bits: u32, signed: bool) -> u64 {
    let (least, largest) = if signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
    let part = |value: u64| u64::from((value as i32).clamp(least, largest) as u32 & ((1 << bits) - 1));
    let above = (c & u64::from(u32::MAX)) << (2 * bits);
    (above | part(a) << bits | part(b)) & u64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, decode, eval, integers};

    fn single(value: f32) -> u64 {
        value.to_bits().into()
    }

    #[test]
    fn the_first_number_is_in_the_upper_part() {
        assert_eq!(eval("cvt.rn.f16x2.f32", &[single(1.0), single(-2.0)]), 0x3c00_c000);
        assert_eq!(eval("cvt.rz.bf16x2.f32", &[single(1.0), single(f32::NAN)]), 0x3f80_7fff);
        assert_eq!(eval("cvt.rn.relu.satfinite.f16x2.f32", &[single(1e9), single(-1e9)]), 0x7bff_0000);
        assert_eq!(eval("cvt.rn.satfinite.e4m3x2.f32", &[single(1.0), single(-1e9)]), 0x38fe);
        assert_eq!(eval("cvt.rn.satfinite.e5m2x2.f32", &[single(1.0), single(1e9)]), 0x3c7b);
        assert_eq!(eval("cvt.rn.satfinite.relu.e4m3x2.f16x2", &[0xbc00_3c00]), 0x0038);
        assert_eq!(eval("cvt.rn.satfinite.e4m3x2.f32", &[single(f32::NAN), single(f32::INFINITY)]), 0x7f7e);
        assert_eq!(eval("cvt.rn.satfinite.e2m1x2.f32", &[single(6.0), single(-0.5)]), 0x79);
        assert_eq!(eval("cvt.rn.satfinite.e2m3x2.f32", &[single(-7.5), single(0.125)]), 0x3f01);
        assert_eq!(eval("cvt.rn.satfinite.e3m2x2.bf16x2", &[0x41e0_7fff]), 0x1f1f);
    }

    #[test]
    fn small_formats_are_widened_exactly() {
        assert_eq!(eval("cvt.rn.f16x2.e4m3x2", &[0x387e]), 0x3c00_5f00);
        assert_eq!(eval("cvt.rn.f16x2.e4m3x2", &[0xff01]), 0x7fff_1800);
        assert_eq!(eval("cvt.rn.f16x2.e5m2x2", &[0xfc01]), 0xfc00_0100);
        assert_eq!(eval("cvt.rn.relu.f16x2.e5m2x2", &[0xbc3c]), 0x0000_3c00);
        assert_eq!(eval("cvt.rn.f16x2.e2m1x2", &[0xf1]), 0xc600_3800);
        assert_eq!(eval("cvt.rn.f16x2.e3m2x2", &[0x3f01]), 0xcf00_2c00);
    }

    #[test]
    fn exponents_are_powers_of_two() {
        assert_eq!(eval("cvt.rz.ue8m0x2.f32", &[single(1.5), single(-3.0)]), 0x7f80);
        assert_eq!(eval("cvt.rp.ue8m0x2.f32", &[single(1.5), single(1.0)]), 0x807f);
        assert_eq!(eval("cvt.rp.ue8m0x2.f32", &[single(1e-45), single(f32::NAN)]), 0x00ff);
        assert_eq!(eval("cvt.rz.ue8m0x2.f32", &[single(f32::INFINITY), single(f32::MAX)]), 0xfffe);
        assert_eq!(eval("cvt.rp.satfinite.ue8m0x2.bf16x2", &[0x7f7f_7f80]), 0xfefe);
        assert_eq!(eval("cvt.rn.bf16x2.ue8m0x2", &[0x7f80]), 0x3f80_4000);
        assert_eq!(eval("cvt.rn.bf16x2.ue8m0x2", &[0xff00]), 0x7fff_0040);
    }

    #[test]
    fn random_bits_decide_each_half() {
        // 1/4 of the unit of f16 above 1: 13 bits are dropped.
        let number = single(1.0 + 0.25 / 1024.0);
        assert_eq!(eval("cvt.rs.f16x2.f32", &[number, number, 0x1800_17ff]), 0x3c01_3c00);
        let number = single(1.0 + 0.5 / 128.0);
        assert_eq!(eval("cvt.rs.bf16x2.f32", &[number, number, 0x7fff_8000]), 0x3f80_3f81);
    }

    #[test]
    fn integers_saturate_and_keep_lower_bits() {
        let clamp = |value: u64, low: i32, high: i32| (value as i32).clamp(low, high) as u32;
        for (name, bits, signed) in [("2", 2, false), ("2", 2, true), ("4", 4, false), ("4", 4, true), ("8", 8, true)] {
            let (low, high) = if signed { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
            let sign = if signed { "s" } else { "u" };
            check(&format!("cvt.pack.sat.{sign}{name}.s32.b32"), &integers(300), |[a, b, c]| {
                let part = |value| clamp(value, low, high) & ((1 << bits) - 1);
                u64::from((c as u32) << (2 * bits) | part(a) << bits | part(b))
            });
        }
        assert_eq!(eval("cvt.pack.sat.s16.s32", &[0x7fff_ffff, 0x8000_0000]), 0x7fff_8000);
        assert_eq!(eval("cvt.pack.sat.u8.s32.b32", &[300, 0xffff_ffff, 0x1234]), 0x1234_ff00);
        assert!(decode("cvt.pack.sat.u16.s32.b32", 3).unwrap().is_err());
    }
}
