//! `cvt` between scalar types.
//!
//! All sources are converted to `f64` first. This is exact, except for an integer of more than 53
//! bits: it is rounded to [odd], so that the second rounding has the right result.

use super::lanes::{map, map_calls};
use super::narrow::{Format, Rounding, bf16_value, f16_value, odd};
use super::syntax::{Form, Words};
use super::{Arithmetic, Lanes, Operation, double, single};
use crate::ast::ScalarType::{self, Bf16, F16, F32, F64, Tf32};

pub(super) const FORMS: &[Form] = &[
    Form::new("cvt", "rnd? ftz? sat? scalar scalar", build),
    Form::new("cvt", "irnd ftz? sat? scalar scalar", build),
    Form::new("cvt", "rn|rz relu? satfinite? f16|bf16 f32", build),
    Form::new("cvt", "rna satfinite? tf32 f32", build),
    Form::new("cvt", "rn|rz satfinite? relu? tf32 f32", build),
];

/// A conversion of a scalar.
#[derive(Clone, Copy, Debug)]
pub(super) struct Convert {
    from: ScalarType,
    to: ScalarType,
    rounding: Rounding,
    /// Rounding to an integer.
    integral: Option<Integral>,
    ftz: bool,
    saturates: bool,
    relu: bool,
    /// `satfinite`: whether results that are too large become the largest finite number.
    finite: bool,
    /// Width in bits to which a signed integer result is extended.
    width: u32,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Integral {
    Nearest,
    TowardZero,
    Down,
    Up,
}

const INTEGRAL: [(&str, Integral); 4] =
    [("rni", Integral::Nearest), ("rzi", Integral::TowardZero), ("rmi", Integral::Down), ("rpi", Integral::Up)];

fn build(words: &Words) -> Result<Arithmetic, String> {
    let named = ScalarType::ALL.map(|(ty, name)| (name, ty));
    let mut types = words.pick_all(&named);
    let (Some(to), Some(from)) = (types.next(), types.next()) else { return Err(words.unsupported()) };
    let (rounding, integral) = (words.pick(&Rounding::MODIFIERS), words.pick(&INTEGRAL));
    if let Some(objection) = objection(words, to, from, rounding.is_some(), integral.is_some()) {
        return Err(objection.into());
    }
    let convert = Convert {
        from,
        to,
        rounding: rounding.unwrap_or(Rounding::Nearest),
        integral,
        ftz: words.has("ftz"),
        saturates: words.has("sat"),
        relu: words.has("relu"),
        finite: words.has("satfinite"),
        width: 8 * to.size(),
    };
    Ok(Arithmetic::new(Operation::Convert(convert), to, [from]))
}

/// The reason why a combination of types and roundings is invalid; `None` if it is valid.
fn objection(words: &Words, to: ScalarType, from: ScalarType, rounded: bool, integral: bool) -> Option<&'static str> {
    let precision = |ty| match ty {
        F64 => 53,
        F32 => 24,
        F16 | Tf32 => 11,
        _ => 8,
    };
    let narrows = precision(to) < precision(from) || (to, from) == (F16, Bf16);
    match (from.is_float(), to.is_float()) {
        (false, false) if rounded || integral => Some("a conversion between integers takes no rounding"),
        (true, false) if !integral => Some("a rounding such as \".rzi\" is needed"),
        (false, true) if !rounded => Some("a rounding such as \".rn\" is needed"),
        (true, true) if integral && to != from => Some("rounding to an integer needs two equal types"),
        (true, true) if narrows && !rounded => Some("a rounding such as \".rn\" is needed"),
        // The assembler accepts a rounding for `bf16`, which has no effect.
        (true, true) if !narrows && rounded && from != Bf16 => Some("an exact conversion takes no rounding"),
        _ if words.has("ftz") && to != F32 && from != F32 => Some("\".ftz\" needs type \".f32\""),
        _ if words.has("sat") && (to == Bf16 || from == Bf16) => Some("\".sat\" is not supported for type \".bf16\""),
        _ => None,
    }
}

impl Convert {
    pub fn widen(&mut self, bits: u32) {
        if self.to.is_signed() {
            self.width = bits.clamp(8 * self.to.size(), 64);
        }
    }

    pub fn eval(&self, sources: &[&Lanes], out: &mut [u64]) {
        match (self.from.is_float(), self.to.is_float()) {
            (false, false) => self.between_integers(sources, out),
            (true, false) => self.floats_to_integers(sources, out),
            (false, true) if self.to == F64 => self.integer_to_f64(sources, out),
            (false, true) => {
                let mut numbers = [0; 32];
                match self.from {
                    ScalarType::S32 => map(sources, &mut numbers, |[a]| f64::from(a as i32).to_bits()),
                    ScalarType::U32 => map(sources, &mut numbers, |[a]| f64::from(a as u32).to_bits()),
                    _ => map_calls(sources, &mut numbers, &|[a]| odd_of_integer(self.integer(a)).to_bits()),
                }
                self.round_to_float(&numbers, out);
            }
            (true, true) => self.between_floats(sources, out),
        }
    }

    /// The value of an integer source.
    #[inline(always)]
    fn integer(&self, bits: u64) -> i128 {
        let unused = 64 - 8 * self.from.size();
        if self.from.is_signed() {
            i128::from((bits << unused) as i64 >> unused)
        } else {
            i128::from(bits << unused >> unused)
        }
    }

    /// The bits of an integer result; a signed result is truncated to `width` bits.
    #[inline(always)]
    fn result(&self, value: u64) -> u64 {
        value & u64::MAX >> (64 - self.width)
    }

    /// The smallest and the largest integer of the destination type.
    fn range(&self) -> (i128, i128) {
        let bits = 8 * self.to.size();
        if self.to.is_signed() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
    }

    fn between_integers(&self, sources: &[&Lanes], out: &mut [u64]) {
        let (from, to) = (64 - 8 * self.from.size(), 64 - 8 * self.to.size());
        if self.saturates {
            let (least, largest) = self.range();
            return map_calls(sources, out, &|[a]| self.result(self.integer(a).clamp(least, largest) as u64));
        }
        let extended =
            |a: u64| if self.from.is_signed() { ((a << from) as i64 >> from) as u64 } else { a << from >> from };
        if self.to.is_signed() {
            map(sources, out, |[a]| self.result(((extended(a) << to) as i64 >> to) as u64));
        } else {
            map(sources, out, |[a]| extended(a) << to >> to);
        }
    }

    fn floats_to_integers(&self, sources: &[&Lanes], out: &mut [u64]) {
        let numbers = self.numbers(sources);
        let bits = 8 * self.to.size();
        let nan: u64 = if self.from == F64 || bits == 64 { 1 << (bits - 1) } else { 0 };
        let (least, largest) = self.range();
        let (least, largest) = (least as i64, largest.min(i64::MAX.into()) as i64);
        map(&[&numbers], out, |[a]| {
            let number = f64::from_bits(a);
            let integral = match self.integral {
                // Casts truncate, and saturate.
                Some(Integral::TowardZero) => number,
                _ => self.integral(number),
            };
            let integer = match self.to {
                ScalarType::U64 => integral as u64,
                _ => (integral as i64).clamp(least, largest) as u64,
            };
            let extended_nan = (nan << (64 - bits)) as i64 >> (64 - bits);
            self.result(if number.is_nan() { extended_nan as u64 } else { integer })
        });
    }

    fn integer_to_f64(&self, sources: &[&Lanes], out: &mut [u64]) {
        let rounded = |value: i128| match self.rounding {
            // Integers of 64 bits are converted natively, which is fast.
            Rounding::Nearest => i64::try_from(value).map_or_else(|_| value as u64 as f64, |value| value as f64),
            rounding => double::from_integer(value, rounding),
        };
        map_calls(sources, out, &|[a]| self.limited(rounded(self.integer(a))).to_bits());
    }

    fn between_floats(&self, sources: &[&Lanes], out: &mut [u64]) {
        match (self.from, self.to) {
            (Bf16, F32) if !self.ftz && !self.saturates => map(sources, out, |[a]| (a & 0xffff) << 16),
            // A copy, as measured on an H100.
            (F32 | F64, _) if self.copies() => map(sources, out, |[a]| self.result(a)),
            (F64, F64) => map_calls(sources, out, &|[a]| {
                let value = f64::from_bits(a);
                double::bits(self.limited(self.integral(value)), [value])
            }),
            (_, F64) => {
                let numbers = self.numbers(sources);
                let sources = sources.first().map_or([&numbers; 2], |&source| [source, &numbers]);
                map_calls(&sources, out, &|[bits, number]| {
                    let limited = self.limited(f64::from_bits(number));
                    match limited.is_nan() {
                        true if self.ftz => widened_nan(single::NAN.into(), self.from),
                        true => widened_nan(bits, self.from),
                        false => limited.to_bits(),
                    }
                });
            }
            (F64, _) => {
                let numbers = self.numbers(sources);
                self.round_to_float(&numbers, out);
                for (out, bits) in out.iter_mut().zip(numbers) {
                    if f64::from_bits(bits).is_nan() && !self.saturates {
                        *out = narrowed_nan(bits, self.to);
                    }
                }
            }
            (F32, Tf32) if self.rounding == Rounding::NearestAway => {
                map_calls(sources, out, &|[a]| tf32_away(a as u32, self.finite).into());
            }
            _ => {
                let mut numbers = self.numbers(sources);
                if self.integral.is_some() {
                    numbers = numbers.map(|bits| self.integral(f64::from_bits(bits)).to_bits());
                }
                self.round_to_float(&numbers, out);
            }
        }
    }

    /// Whether the conversion only copies its bits.
    fn copies(&self) -> bool {
        self.from == self.to && self.integral.is_none() && !self.ftz && !self.saturates
    }

    /// The values of floating-point sources, as bits of `f64`.
    ///
    /// From `f32` to `f16`, `ftz` has no effect, as measured on an H100.
    fn numbers(&self, sources: &[&Lanes]) -> Lanes {
        let mut out = [0; 32];
        match self.from {
            F64 => map(sources, &mut out, |[a]| a),
            F32 if self.ftz && self.to != F16 => {
                map(sources, &mut out, |[a]| f64::from(single::flush(f32::from_bits(a as u32))).to_bits())
            }
            F32 => map(sources, &mut out, |[a]| f64::from(f32::from_bits(a as u32)).to_bits()),
            F16 => map(sources, &mut out, |[a]| f64::from(f16_value(a as u16)).to_bits()),
            _ => map(sources, &mut out, |[a]| f64::from(bf16_value(a as u16)).to_bits()),
        }
        out
    }

    /// Rounds numbers to the destination's type.
    fn round_to_float(&self, numbers: &Lanes, out: &mut [u64]) {
        let (rounding, sources) = (self.rounding, &[numbers]);
        let number = f64::from_bits;
        match (self.to, rounding) {
            (F32, Rounding::Nearest) if !self.ftz && !self.saturates => {
                map(sources, out, |[a]| single::bits(number(a) as f32).into());
            }
            (F32, _) => map_calls(sources, out, &|[a]| {
                single::bits(single::round(self.limited(number(a)), rounding, self.ftz)).into()
            }),
            (F16, Rounding::Nearest) if !self.finite => {
                map(sources, out, |[a]| Format::F16.round(self.limited(number(a)), Rounding::Nearest, false).into())
            }
            (F16, _) => {
                map_calls(sources, out, &|[a]| Format::F16.round(self.limited(number(a)), rounding, self.finite).into())
            }
            (Tf32, _) => map_calls(sources, out, &|[a]| {
                u64::from(Format::TF32.round(self.limited(number(a)), rounding, self.finite)) << 13
            }),
            _ => map(sources, out, |[a]| Format::BF16.round(self.limited(number(a)), rounding, self.finite).into()),
        }
    }

    /// Rounds to an integer, if the instruction has such a modifier.
    #[inline(always)]
    fn integral(&self, value: f64) -> f64 {
        match self.integral {
            None => value,
            Some(Integral::Nearest) => value.round_ties_even(),
            Some(Integral::TowardZero) => value.trunc(),
            Some(Integral::Down) => value.floor(),
            Some(Integral::Up) => value.ceil(),
        }
    }

    /// Applies `sat` and `relu`.
    #[inline(always)]
    fn limited(&self, value: f64) -> f64 {
        if self.saturates {
            if value > 0.0 { value.min(1.0) } else { 0.0 }
        } else if self.relu && value <= 0.0 {
            0.0
        } else {
            value
        }
    }
}

/// Converts an integer to `f64`, rounded to odd.
#[inline(always)]
fn odd_of_integer(value: i128) -> f64 {
    let nearest = i64::try_from(value).map_or_else(|_| value as u64 as f64, |value| value as f64);
    let error = value - nearest as i128;
    odd(nearest, error as f64)
}

/// Converts a NaN to a narrower type: quiet, with its sign and the high bits of its payload, as
/// measured on an H100.
fn narrowed_nan(bits: u64, to: ScalarType) -> u64 {
    let fraction = match to {
        F32 => 23,
        F16 => Format::F16.fraction,
        _ => Format::BF16.fraction,
    };
    let sign = 1u64 << (8 * to.size() - 1);
    let quiet = (sign - 1) & u64::MAX << (fraction - 1);
    let payload = bits >> (52 - fraction) & ((1 << fraction) - 1);
    if bits >> 63 == 1 { sign | quiet | payload } else { quiet | payload }
}

/// `cvt.rna.tf32`.
///
/// It adds to the bits and masks them, so it does not make NaN canonical, as measured on an H100.
fn tf32_away(bits: u32, finite: bool) -> u32 {
    const UNIT: u32 = 1 << 13;
    let special = |bits: u32| bits & 0x7fff_ffff >= 0x7f80_0000;
    let rounded = if special(bits) { bits } else { bits + UNIT / 2 } & !(UNIT - 1);
    if finite && special(rounded) { rounded - UNIT } else { rounded }
}

/// Converts a NaN to `f64`, with its sign and its payload.
fn widened_nan(bits: u64, from: ScalarType) -> u64 {
    let single = match from {
        F32 => bits as u32,
        F16 => f16_value(bits as u16).to_bits(),
        _ => (bits as u32) << 16,
    };
    let sign = u64::from(single >> 31) << 63;
    sign | 0x7ff8 << 48 | u64::from(single & 0x7f_ffff) << 29
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, decode, eval, floats, integers};
    use rustc_apfloat::ieee::{BFloat, Double, Half, Single};
    use rustc_apfloat::{Float, FloatConvert, Round};

    const INTEGERS: [(&str, u32, bool); 8] = [
        ("u8", 8, false),
        ("u16", 16, false),
        ("u32", 32, false),
        ("u64", 64, false),
        ("s8", 8, true),
        ("s16", 16, true),
        ("s32", 32, true),
        ("s64", 64, true),
    ];

    const ROUNDINGS: [(&str, Round); 4] = [
        ("rn", Round::NearestTiesToEven),
        ("rz", Round::TowardZero),
        ("rm", Round::TowardNegative),
        ("rp", Round::TowardPositive),
    ];

    fn value(bits: u64, width: u32, signed: bool) -> i128 {
        let bits = i128::from(bits) << (128 - width);
        if signed { bits >> (128 - width) } else { (bits as u128 >> (128 - width)) as i128 }
    }

    fn limits(width: u32, signed: bool) -> (i128, i128) {
        if signed { (-(1 << (width - 1)), (1 << (width - 1)) - 1) } else { (0, (1 << width) - 1) }
    }

    #[test]
    fn integers_are_truncated_extended_or_saturated() {
        for (from, from_width, from_signed) in INTEGERS {
            for (to, to_width, to_signed) in INTEGERS {
                let (least, largest) = limits(to_width, to_signed);
                let mask = u64::MAX >> (64 - to_width);
                let of = |bits| value(bits, from_width, from_signed);
                check(&format!("cvt.{to}.{from}"), &integers(200), |[a]| of(a) as u64 & mask);
                check(&format!("cvt.sat.{to}.{from}"), &integers(200), |[a]| of(a).clamp(least, largest) as u64 & mask);
            }
        }
    }

    #[test]
    fn signed_results_extend_to_the_register() {
        let eval = |spelling, bits, a| {
            let mut instruction = decode(spelling, 1).unwrap().unwrap();
            instruction.widen_destination(bits);
            let mut values = [[0; 32]; 2];
            instruction.eval(&[&[a; 32]], 0, u32::MAX, &mut values);
            values[0][31]
        };
        assert_eq!(eval("cvt.s8.s32", 32, 0x1ff), 0xffff_ffff);
        assert_eq!(eval("cvt.s8.s32", 16, 0x1ff), 0xffff);
        assert_eq!(eval("cvt.s8.u32", 64, 0x80), 0xffff_ffff_ffff_ff80);
        assert_eq!(eval("cvt.sat.s8.s32", 32, 0xffff_0000), 0xffff_ff80);
        assert_eq!(eval("cvt.u8.s32", 32, 0x1ff), 0xff);
        assert_eq!(eval("cvt.rzi.s16.f32", 32, (-5f32).to_bits().into()), 0xffff_fffb);
        assert_eq!(eval("cvt.rzi.s8.f64", 32, f64::NAN.to_bits()), 0xffff_ff80);
    }

    fn from_integers<F: Float>(to: &str) {
        for (from, width, signed) in INTEGERS {
            for (name, round) in ROUNDINGS {
                check(&format!("cvt.{name}.{to}.{from}"), &integers(300), |[a]| {
                    F::from_i128_r(value(a, width, signed), round).value.to_bits() as u64
                });
            }
        }
    }

    #[test]
    fn integers_are_rounded_once() {
        from_integers::<Half>("f16");
        from_integers::<BFloat>("bf16");
        from_integers::<Single>("f32");
        from_integers::<Double>("f64");
    }

    /// Results that are NaN are `nan`, except from `f64`, whose sign and payload are kept.
    fn between<F: Float + FloatConvert<T>, T: Float>(to: &str, from: &str, width: u32, exponent: u32, nan: u64) {
        for (name, round) in ROUNDINGS {
            check(&format!("cvt.{name}.{to}.{from}"), &floats(width, exponent, 2000), |[a]| {
                let converted: T = F::from_bits(a.into()).convert_r(round, &mut false).value;
                if converted.is_nan() && width < 64 { nan } else { converted.to_bits() as u64 }
            });
        }
    }

    #[test]
    fn floats_are_rounded_once() {
        between::<Double, Single>("f32", "f64", 64, 11, 0x7fff_ffff);
        between::<Double, Half>("f16", "f64", 64, 11, 0x7fff);
        between::<Double, BFloat>("bf16", "f64", 64, 11, 0x7fff);
        between::<Single, Half>("f16", "f32", 32, 8, 0x7fff);
        between::<Single, BFloat>("bf16", "f32", 32, 8, 0x7fff);
        between::<BFloat, Half>("f16", "bf16", 16, 8, 0x7fff);
        between::<Half, BFloat>("bf16", "f16", 16, 5, 0x7fff);
    }

    #[test]
    fn nan_is_converted_as_measured_on_an_h100() {
        let (signaling, payload) = (0xfff0_0000_0000_0001, 0xfffc_0000_0000_0005);
        for (to, quiet, kept) in [("f32", 0xffc0_0000, 0xffe0_0000), ("f16", 0xfe00, 0xff00), ("bf16", 0xffc0, 0xffe0)]
        {
            assert_eq!(eval(&format!("cvt.rm.{to}.f64"), &[signaling]), quiet);
            assert_eq!(eval(&format!("cvt.rn.{to}.f64"), &[payload]), kept);
        }
        assert_eq!(eval("cvt.rn.sat.f32.f64", &[payload]), 0);
        assert_eq!(eval("cvt.f32.f32", &[0xffd7_d973]), 0xffd7_d973);
        assert_eq!(eval("cvt.ftz.f32.f32", &[0xffd7_d973]), 0x7fff_ffff);
        assert_eq!(eval("cvt.f64.f64", &[signaling]), signaling);
        assert_eq!(eval("cvt.rzi.f64.f64", &[signaling]), signaling | 0x8 << 48);
        assert_eq!(eval("cvt.ftz.f64.f32", &[0xffc0_0001]), 0x7fff_ffff_e000_0000);
        for (nan, result, finite) in [
            (0xffff_ffff, 0xffff_e000, 0xffff_c000),
            (0xffd7_d973, 0xffd7_c000, 0xffd7_a000),
            (0x7f80_0001, 0x7f80_0000, 0x7f7f_e000),
        ] {
            assert_eq!(eval("cvt.rna.tf32.f32", &[nan]), result);
            assert_eq!(eval("cvt.rna.satfinite.tf32.f32", &[nan]), finite);
        }
    }

    #[test]
    fn widening_is_exact() {
        let all: Vec<[u64; 1]> = (0..=0xffff).map(|bits| [bits]).collect();
        check("cvt.f32.f16", &all, |[bits]| {
            let single: Single = Half::from_bits(bits.into()).convert(&mut false).value;
            if single.is_nan() { 0x7fff_ffff } else { single.to_bits() as u64 }
        });
        check("cvt.f32.bf16", &all, |[bits]| bits << 16);
        assert_eq!(eval("cvt.f64.f32", &[0x3fc0_0000]), 1.5f64.to_bits());
        assert_eq!(eval("cvt.f64.f32", &[0xff80_0001]), 0xfff8_0000_2000_0000);
        assert_eq!(eval("cvt.ftz.f64.f32", &[0x8000_0001]), (-0f64).to_bits());
    }

    #[test]
    fn floats_to_integers_round_and_saturate() {
        for (to, width, signed) in INTEGERS {
            let (least, largest) = limits(width, signed);
            let mask = u64::MAX >> (64 - width);
            for (name, round) in [
                ("rni", f64::round_ties_even as fn(f64) -> f64),
                ("rzi", f64::trunc),
                ("rmi", f64::floor),
                ("rpi", f64::ceil),
            ] {
                let integer = |value: f64, from_f64: bool| match value {
                    _ if value.is_nan() && !from_f64 && width < 64 => 0,
                    _ if value.is_nan() => 1 << (width - 1),
                    _ => (round(value) as i128).clamp(least, largest) as u64 & mask,
                };
                check(&format!("cvt.{name}.{to}.f64"), &floats(64, 11, 500), |[a]| integer(f64::from_bits(a), true));
                check(&format!("cvt.{name}.{to}.f32"), &floats(32, 8, 500), |[a]| {
                    integer(f32::from_bits(a as u32).into(), false)
                });
                check(&format!("cvt.{name}.{to}.bf16"), &floats(16, 8, 500), |[a]| {
                    integer(f32::from_bits((a as u32) << 16).into(), false)
                });
                check(&format!("cvt.{name}.{to}.f16"), &floats(16, 5, 500), |[a]| {
                    integer(super::Format::F16.value(a as u32), false)
                });
            }
        }
        let single = |value: f32| u64::from(value.to_bits());
        assert_eq!(eval("cvt.rzi.s32.f32", &[single(3e9)]), 0x7fff_ffff);
        assert_eq!(eval("cvt.rzi.u32.f32", &[single(-1.0)]), 0);
        assert_eq!(eval("cvt.rni.s32.f32", &[single(2.5)]), 2);
        assert_eq!(eval("cvt.rpi.ftz.s32.f32", &[single(1e-40)]), 0);
        assert_eq!(eval("cvt.rpi.s32.f32", &[single(1e-40)]), 1);
        assert_eq!(eval("cvt.rzi.u64.f32", &[single(f32::NAN)]), 1 << 63);
        assert_eq!(eval("cvt.rzi.s32.f64", &[f64::NAN.to_bits()]), 0x8000_0000);
    }

    #[test]
    fn floats_round_to_integral_floats() {
        let single = |value: f32| u64::from(value.to_bits());
        assert_eq!(eval("cvt.rni.f32.f32", &[single(-0.5)]), single(-0.0));
        assert_eq!(eval("cvt.rmi.f32.f32", &[single(-0.5)]), single(-1.0));
        assert_eq!(eval("cvt.rpi.sat.f32.f32", &[single(0.5)]), single(1.0));
        assert_eq!(eval("cvt.rzi.f16.f16", &[0x3e00]), 0x3c00);
        assert_eq!(eval("cvt.rpi.bf16.bf16", &[0x3f81]), 0x4000);
        assert_eq!(eval("cvt.rni.f64.f64", &[2.5f64.to_bits()]), 2f64.to_bits());
    }

    #[test]
    fn modifiers_limit_results() {
        let single = |value: f32| u64::from(value.to_bits());
        assert_eq!(eval("cvt.sat.f32.f32", &[single(-2.0)]), 0);
        assert_eq!(eval("cvt.sat.f32.f32", &[single(f32::NAN)]), 0);
        assert_eq!(eval("cvt.rn.sat.f32.s32", &[7]), single(1.0));
        assert_eq!(eval("cvt.rn.relu.f16.f32", &[single(-3.0)]), 0);
        assert_eq!(eval("cvt.rn.relu.bf16.f32", &[single(f32::NAN)]), 0x7fff);
        assert_eq!(eval("cvt.rn.satfinite.f16.f32", &[single(-1e30)]), 0xfbff);
        assert_eq!(eval("cvt.rn.satfinite.f16.f32", &[single(f32::INFINITY)]), 0x7bff);
        assert_eq!(eval("cvt.rn.ftz.f32.f64", &[1e-40f64.to_bits()]), 0);
        // As measured on an H100.
        assert_eq!(eval("cvt.rn.ftz.f32.f64", &[0x380f_ffff_e000_0000]), 0);
        assert_eq!(eval("cvt.rp.ftz.f32.f64", &[0x380f_ffff_ffff_ffff]), 0x80_0000);
        assert_eq!(eval("cvt.rm.ftz.f16.f32", &[0x807f_ffff]), 0x8001);
        assert_eq!(eval("cvt.rp.ftz.sat.f16.f32", &[1]), 1);
        assert_eq!(eval("cvt.rn.ftz.f16.f32", &[0x8000_0001]), 0x8000);
        assert_eq!(eval("cvt.rna.tf32.f32", &[0x3f80_1000]), 0x3f80_2000);
        assert_eq!(eval("cvt.rn.tf32.f32", &[0x3f80_1000]), 0x3f80_0000);
        assert_eq!(eval("cvt.rz.relu.tf32.f32", &[0xbf80_1000]), 0);
        assert_eq!(eval("cvt.rna.satfinite.tf32.f32", &[0x7f7f_ffff]), 0x7f7f_e000);
        assert_eq!(eval("cvt.rna.tf32.f32", &[0x7f7f_ffff]), 0x7f80_0000);
    }

    #[test]
    fn conversions_without_a_rounding_are_rejected() {
        for (spelling, reason) in [
            ("cvt.s32.f32", "a rounding such as \".rzi\" is needed"),
            ("cvt.f32.s32", "a rounding such as \".rn\" is needed"),
            ("cvt.f16.f32", "a rounding such as \".rn\" is needed"),
            ("cvt.rn.f64.f32", "an exact conversion"),
            ("cvt.rn.s32.s64", "between integers takes no rounding"),
            ("cvt.rzi.f32.f64", "two equal types"),
            ("cvt.ftz.u32.u16", "\".ftz\" needs type"),
            ("cvt.rzi.sat.u32.bf16", "\".sat\" is not supported"),
        ] {
            let error = decode(spelling, 1).unwrap().unwrap_err();
            assert!(error.contains(reason), "{spelling}: {error}");
        }
    }
}
