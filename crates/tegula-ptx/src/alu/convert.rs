//! `cvt` between scalar types.
//!
//! A floating-point source becomes `f64`, which is exact. An integer becomes `f64` too, rounded to
//! [odd](super::narrow::exact_sum) if it has more than 53 bits, so that the second rounding is right.

use super::lanes::map;
use super::narrow::{Format, Rounding, bf16_value, f16_value, odd, round_f32};
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
    /// Whether numbers that are too large become the largest finite one.
    finite: bool,
    /// Bits to which a signed integer is extended.
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
    let precision = |ty| match ty {
        F64 => 53,
        F32 => 24,
        F16 | Tf32 => 11,
        _ => 8,
    };
    let narrows = precision(to) < precision(from) || (to, from) == (F16, Bf16);
    match (from.is_float(), to.is_float()) {
        (true, false) if integral.is_none() => return Err("a rounding such as \".rzi\" is needed".into()),
        // The assembler accepts a rounding of `bf16`, which changes nothing.
        (true, true) if !narrows && rounding.is_some() && from != Bf16 => return Err("a conversion without loss is not rounded".into()),
        (false, true) if rounding.is_none() => return Err("a rounding such as \".rn\" is needed".into()),
        (true, true) if narrows && rounding.is_none() => return Err("a rounding such as \".rn\" is needed".into()),
        (false, false) if rounding.is_some() || integral.is_some() => return Err("integers are not rounded".into()),
        (false, true) if integral.is_some() => return Err("an integer is not rounded to an integer".into()),
        (true, true) if integral.is_some() && to != from => {
            return Err("rounding to an integer needs the same type twice".into());
        }
        _ => {}
    }
    if words.has("ftz") && to != F32 && from != F32 {
        return Err("\".ftz\" needs type \".f32\"".into());
    }
    if words.has("sat") && (to == Bf16 || from == Bf16) {
        return Err("\".sat\" does not go with type \".bf16\"".into());
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

impl Convert {
    pub fn widen(&mut self, bits: u32) {
        if self.to.is_signed() {
            self.width = bits.clamp(8 * self.to.size(), 64);
        }
    }

    pub fn eval(&self, sources: &[&Lanes], out: &mut Lanes) {
        match (self.from.is_float(), self.to.is_float()) {
            (false, false) => self.between_integers(sources, out),
            (true, false) => self.to_integer(sources, out),
            (false, true) if self.to == F64 => self.integer_to_f64(sources, out),
            (false, true) => {
                let number = |bits: u64| odd_of_integer(self.integer(bits));
                self.to_float(sources, out, number);
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

    /// The bits of an integer result: at the width of the destination if it is signed.
    #[inline(always)]
    fn result(&self, value: u64) -> u64 {
        value & u64::MAX >> (64 - self.width)
    }

    /// The least and the largest integer of the destination's type.
    fn range(&self) -> (i128, i128) {
        let bits = 8 * self.to.size();
        if self.to.is_signed() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) }
    }

    fn between_integers(&self, sources: &[&Lanes], out: &mut Lanes) {
        let (from, to) = (64 - 8 * self.from.size(), 64 - 8 * self.to.size());
        if self.saturates {
            let (least, largest) = self.range();
            return map(sources, out, |[a]| self.result(self.integer(a).clamp(least, largest) as u64));
        }
        let extended =
            |a: u64| if self.from.is_signed() { ((a << from) as i64 >> from) as u64 } else { a << from >> from };
        if self.to.is_signed() {
            map(sources, out, |[a]| self.result(((extended(a) << to) as i64 >> to) as u64));
        } else {
            map(sources, out, |[a]| extended(a) << to >> to);
        }
    }

    fn to_integer(&self, sources: &[&Lanes], out: &mut Lanes) {
        let numbers = self.numbers(sources);
        let numbers = [&numbers];
        let bits = 8 * self.to.size();
        let nan = if self.from == F64 || bits == 64 { 1 << (bits - 1) } else { 0 };
        let (least, largest) = self.range();
        // Casts to integers saturate.
        let narrow = |value: i64| value.clamp(least as i64, largest.min(i64::MAX.into()) as i64);
        map(&numbers, out, |[a]| {
            let value = f64::from_bits(a);
            let integral = self.integral(value);
            match self.to {
                _ if value.is_nan() => self.result(((nan << (64 - bits)) as i64 >> (64 - bits)) as u64),
                ScalarType::U64 => integral as u64,
                _ => self.result(narrow(integral as i64) as u64),
            }
        });
    }

    fn integer_to_f64(&self, sources: &[&Lanes], out: &mut Lanes) {
        let rounded = |value: i128| match self.rounding {
            // The same as a conversion from 64 bits, which is fast.
            Rounding::Nearest => i64::try_from(value).map_or_else(|_| value as u64 as f64, |value| value as f64),
            rounding => double::from_integer(value, rounding),
        };
        map(sources, out, |[a]| self.limited(rounded(self.integer(a))).to_bits());
    }

    fn between_floats(&self, sources: &[&Lanes], out: &mut Lanes) {
        match (self.from, self.to) {
            (Bf16, F32) if !self.ftz && !self.saturates => map(sources, out, |[a]| (a & 0xffff) << 16),
            (F64, F64) => map(sources, out, |[a]| {
                let value = f64::from_bits(a);
                double::bits(self.limited(self.integral(value)), [value])
            }),
            (_, F64) => {
                let numbers = self.numbers(sources);
                let sources = sources.first().map_or([&numbers; 2], |&source| [source, &numbers]);
                map(&sources, out, |[bits, number]| {
                    let limited = self.limited(f64::from_bits(number));
                    if limited.is_nan() { widened_nan(bits, self.from) } else { limited.to_bits() }
                });
            }
            _ => {
                let numbers = self.numbers(sources);
                self.to_float(&[&numbers], out, |bits| self.integral(f64::from_bits(bits)));
            }
        }
    }

    /// The values of floating-point sources, as bits of `f64`.
    fn numbers(&self, sources: &[&Lanes]) -> Lanes {
        let mut out = [0; 32];
        match self.from {
            F64 => map(sources, &mut out, |[a]| a),
            F32 if self.ftz => {
                map(sources, &mut out, |[a]| f64::from(single::flush(f32::from_bits(a as u32))).to_bits())
            }
            F32 => map(sources, &mut out, |[a]| f64::from(f32::from_bits(a as u32)).to_bits()),
            F16 => map(sources, &mut out, |[a]| f64::from(f16_value(a as u16)).to_bits()),
            _ => map(sources, &mut out, |[a]| f64::from(bf16_value(a as u16)).to_bits()),
        }
        out
    }

    /// Rounds numbers to the destination's type.
    #[inline(always)]
    fn to_float(&self, sources: &[&Lanes], out: &mut Lanes, number: impl Fn(u64) -> f64) {
        let rounding = self.rounding;
        match (self.to, rounding) {
            (F32, Rounding::Nearest) if !self.ftz && !self.saturates => {
                map(sources, out, |[a]| single::bits(number(a) as f32).into());
            }
            (F32, _) => map(sources, out, |[a]| {
                let value = round_f32(self.limited(number(a)), rounding);
                single::bits(if self.ftz { single::flush(value) } else { value }).into()
            }),
            (F16, Rounding::Nearest) if !self.finite => {
                map(sources, out, |[a]| Format::F16.round(self.limited(number(a)), Rounding::Nearest, false).into())
            }
            (F16, _) => {
                map(sources, out, |[a]| Format::F16.round(self.limited(number(a)), rounding, self.finite).into())
            }
            (Tf32, _) => map(sources, out, |[a]| {
                u64::from(Format::TF32.round(self.limited(number(a)), rounding, self.finite)) << 13
            }),
            _ => map(sources, out, |[a]| Format::BF16.round(self.limited(number(a)), rounding, self.finite).into()),
        }
    }

    /// Rounds to an integer, if that was asked for.
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

/// An integer as a number that is odd if it is not exact.
#[inline(always)]
fn odd_of_integer(value: i128) -> f64 {
    let nearest = i64::try_from(value).map_or_else(|_| value as u64 as f64, |value| value as f64);
    let error = value - nearest as i128;
    odd(nearest, error as f64)
}

/// A NaN with the sign and the payload of a smaller one.
fn widened_nan(bits: u64, from: ScalarType) -> u64 {
    let single = match from {
        F32 => bits as u32,
        F16 => f16_value(bits as u16).to_bits(),
        _ => (bits as u32) << 16,
    };
    let sign = u64::from(single >> 31) << 63;
    sign | 0x7ff8 << 48 | u64::from(single & 0x7f_ffff) << 29
}
