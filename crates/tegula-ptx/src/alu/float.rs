//! Floating-point arithmetic on `f32` and `f64`: `add`, `sub`, `mul`, `fma`, `div`, `rcp`, `sqrt`,
//! `abs`, `neg`, `copysign`; on pairs of `f32`; and on `f32` with an operand of half precision.

use super::lanes::{each, map, map_calls, map_words};
use super::narrow::{Rounding, bf16_value, f16_value};
use super::syntax::{Form, Words};
use super::{Arithmetic, Lanes, Operation, double, single};
use crate::ast::ScalarType::{self, B64, Bf16, F16, F32, F64};

pub(super) const FORMS: &[Form] = &[
    Form::new("add sub mul", "rnd? ftz? sat? f32", build),
    Form::new("add sub mul", "rnd? ftz? f32x2", build),
    Form::new("add sub mul", "rnd? f64", build),
    Form::new("fma mad", "rnd ftz? sat? f32", build),
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
    pub fn eval(&self, sources: &[&Lanes], out: &mut [u64]) {
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

    fn eval_f32(&self, sources: &[&Lanes], out: &mut [u64]) {
        let (rounding, ftz) = (self.rounding, self.ftz);
        match (self.op, rounding) {
            (Op::Add, Rounding::Nearest) => self.single(sources, out, |[a, b]| a + b),
            (Op::Add, _) => self.single_calls(sources, out, &|[a, b]| single::add(a, b, rounding)),
            (Op::Sub, Rounding::Nearest) => self.single(sources, out, |[a, b]| a - b),
            (Op::Sub, _) => self.single_calls(sources, out, &|[a, b]| single::add(a, -b, rounding)),
            (Op::Mul, Rounding::Nearest) if ftz => {
                self.single(sources, out, |[a, b]| single::mul(a, b, Rounding::Nearest, true));
            }
            (Op::Mul, Rounding::Nearest) => self.single(sources, out, |[a, b]| a * b),
            (Op::Mul, _) => self.single_calls(sources, out, &|[a, b]| single::mul(a, b, rounding, ftz)),
            (Op::Fma, Rounding::Nearest) if ftz => {
                self.single(sources, out, |[a, b, c]| single::fma(a, b, c, Rounding::Nearest, true));
            }
            (Op::Fma, Rounding::Nearest) => {
                self.single(sources, out, |[a, b, c]| single::fma(a, b, c, Rounding::Nearest, false));
            }
            (Op::Fma, _) => self.single_calls(sources, out, &|[a, b, c]| single::fma(a, b, c, rounding, ftz)),
            (Op::Div, Rounding::Nearest) if !ftz => self.single_calls(sources, out, &|[a, b]| a / b),
            (Op::Div, _) => self.single_calls(sources, out, &|[a, b]| single::div(a, b, rounding, ftz)),
            (Op::Reciprocal, _) => self.single_calls(sources, out, &|[a]| single::div(1.0, a, rounding, ftz)),
            (Op::Sqrt, Rounding::Nearest) => self.single_calls(sources, out, &|[a]| a.sqrt()),
            (Op::Sqrt, _) => self.single_calls(sources, out, &|[a]| single::sqrt(a, rounding)),
            (Op::Abs, _) => self.single_calls(sources, out, &|[a]| a.abs()),
            (Op::Neg, _) => self.single_calls(sources, out, &|[a]| -a),
            (Op::CopySign, _) => map_calls(sources, out, &|[sign, a]| a & 0x7fff_ffff | sign & 0x8000_0000),
        }
    }

    /// Applies a function to `f32` operands, with the modifiers `ftz` and `sat`.
    #[inline(always)]
    fn single<const N: usize>(&self, sources: &[&Lanes], out: &mut [u64], function: impl Fn([f32; N]) -> f32) {
        let word = |value: u64| f32::from_bits(value as u32);
        match (self.ty, self.ftz, self.saturates) {
            (Type::F32, false, false) => {
                map(sources, out, |values| single::bits(function(each(values, word))).into());
            }
            (Type::F32, true, false) => map(sources, out, |values| {
                single::bits(single::flush(function(each(values, |value| single::flush(word(value)))))).into()
            }),
            _ => self.single_calls(sources, out, &function),
        }
    }

    /// As [`Float::single`], for less frequent functions and modifiers.
    fn single_calls<const N: usize>(&self, sources: &[&Lanes], out: &mut [u64], function: &dyn Fn([f32; N]) -> f32) {
        map_words(sources, out, self.ty == Type::F32x2, &|values: [u32; N]| {
            let operand = |bits: u32| if self.ftz { single::flush(f32::from_bits(bits)) } else { f32::from_bits(bits) };
            let result = function(each(values, operand));
            let result = if self.ftz { single::flush(result) } else { result };
            if self.saturates { single::saturate(result).to_bits() } else { single::bits(result) }
        });
    }

    fn eval_f64(&self, sources: &[&Lanes], out: &mut [u64]) {
        let rounding = self.rounding;
        match (self.op, rounding) {
            (Op::Add, Rounding::Nearest) => doubles(sources, out, |[a, b]| a + b),
            (Op::Add, _) => doubles_calls(sources, out, &|[a, b]| double::add(a, b, rounding)),
            (Op::Sub, Rounding::Nearest) => doubles(sources, out, |[a, b]| a - b),
            (Op::Sub, _) => doubles_calls(sources, out, &|[a, b]| double::add(a, -b, rounding)),
            (Op::Mul, Rounding::Nearest) => doubles(sources, out, |[a, b]| a * b),
            (Op::Mul, _) => doubles_calls(sources, out, &|[a, b]| double::mul(a, b, rounding)),
            (Op::Fma, Rounding::Nearest) => doubles(sources, out, |[a, b, c]| a.mul_add(b, c)),
            (Op::Fma, _) => doubles_calls(sources, out, &|[a, b, c]| double::fma(a, b, c, rounding)),
            (Op::Div, Rounding::Nearest) => quotients(sources, out, &|a, b| a / b),
            (Op::Div, _) => quotients(sources, out, &|a, b| double::div(a, b, rounding)),
            (Op::Reciprocal, Rounding::Nearest) => doubles_calls(sources, out, &|[a]| 1.0 / a),
            (Op::Reciprocal, _) => doubles_calls(sources, out, &|[a]| double::div(1.0, a, rounding)),
            (Op::Sqrt, _) => doubles_calls(sources, out, &|[a]| double::sqrt(a, rounding)),
            (Op::Abs, _) => doubles_calls(sources, out, &|[a]| a.abs()),
            (Op::Neg, _) => doubles_calls(sources, out, &|[a]| -a),
            (Op::CopySign, _) => map_calls(sources, out, &|[sign, a]| a & !SIGN | sign & SIGN),
        }
    }
}

const SIGN: u64 = 1 << 63;

/// Applies a function to `f64` operands. If several operands are NaN, the result is the second one,
/// else the third one, as measured on an H100.
///
/// `abs` and `neg` do not change the sign of a NaN, since the hardware executes them as additions.
#[inline(always)]
fn doubles<const N: usize>(sources: &[&Lanes], out: &mut [u64], function: impl Fn([f64; N]) -> f64) {
    map(sources, out, |values: [u64; N]| {
        let values = each(values, f64::from_bits);
        let mut precedence = values;
        for (n, operand) in precedence.iter_mut().enumerate() {
            *operand = values[(n + 1) % N];
        }
        double::bits(function(values), precedence)
    });
}

/// As [`doubles`], for less frequent functions.
#[inline(never)]
fn doubles_calls<const N: usize>(sources: &[&Lanes], out: &mut [u64], function: &dyn Fn([f64; N]) -> f64) {
    doubles(sources, out, function);
}

/// Applies `div` to `f64` operands. If both are NaN, the result is the first one, as measured on an
/// H100.
fn quotients(sources: &[&Lanes], out: &mut [u64], function: &dyn Fn(f64, f64) -> f64) {
    map(sources, out, |values: [u64; 2]| {
        let [a, b] = each(values, f64::from_bits);
        double::bits(function(a, b), [a, b])
    });
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, eval, floats};
    use rustc_apfloat::ieee::{Double, Single};
    use rustc_apfloat::{Float, Round};

    const ROUNDINGS: [(&str, Round); 4] = [
        ("rn", Round::NearestTiesToEven),
        ("rz", Round::TowardZero),
        ("rm", Round::TowardNegative),
        ("rp", Round::TowardPositive),
    ];

    fn single(value: f32) -> u64 {
        value.to_bits().into()
    }

    /// Checks arithmetic in all directions against a software implementation.
    ///
    /// `result` gets operands in the order in which NaN of theirs become the result.
    fn check_against<F: Float>(suffix: &str, width: u32, exponent: u32, result: impl Fn(F, &[u64]) -> u64 + Copy) {
        let float = |bits: u64| F::from_bits(bits.into());
        for (name, round) in ROUNDINGS {
            let spelled = |operation: &str| format!("{operation}.{name}.{suffix}");
            let two = floats(width, exponent, 3000);
            check(&spelled("add"), &two, |[a, b]| result(float(a).add_r(float(b), round).value, &[b, a]));
            check(&spelled("sub"), &two, |[a, b]| result(float(a).sub_r(float(b), round).value, &[b, a]));
            check(&spelled("mul"), &two, |[a, b]| result(float(a).mul_r(float(b), round).value, &[b, a]));
            check(&spelled("div"), &two, |[a, b]| result(float(a).div_r(float(b), round).value, &[a, b]));
            let one = F::from_u128(1).value;
            check(&spelled("rcp"), &two.iter().map(|[a, _]| [*a]).collect::<Vec<_>>(), |[a]| {
                result(one.div_r(float(a), round).value, &[a])
            });
            let fma = |[a, b, c]: [u64; 3]| result(float(a).mul_add_r(float(b), float(c), round).value, &[b, c, a]);
            check(&spelled("fma"), &floats(width, exponent, 3000), fma);
            check(&spelled("mad"), &floats(width, exponent, 300), fma);
        }
    }

    #[test]
    fn single_precision_equals_a_software_implementation() {
        let result = |value: Single, _: &[u64]| if value.is_nan() { 0x7fff_ffff } else { value.to_bits() as u64 };
        check_against::<Single>("f32", 32, 8, result);
    }

    #[test]
    fn double_precision_equals_a_software_implementation() {
        check_against::<Double>("f64", 64, 11, |value: Double, operands: &[u64]| {
            let nan = operands.iter().find(|&&bits| f64::from_bits(bits).is_nan());
            match nan {
                _ if !value.is_nan() => value.to_bits() as u64,
                Some(nan) => nan | 0x8 << 48,
                None => 0xfff8 << 48,
            }
        });
    }

    #[test]
    fn directed_roots_enclose_the_exact_root() {
        for [a] in floats::<1>(32, 8, 2000) {
            let a = a & 0x7fff_ffff;
            let root = |name| f32::from_bits(eval(&format!("sqrt.{name}.f32"), &[a]) as u32);
            let value = f64::from(f32::from_bits(a as u32));
            let square = |value: f32| f64::from(value) * f64::from(value);
            let (down, up) = (root("rm"), root("rp"));
            if value.is_finite() {
                assert!(square(down) <= value && value <= square(up), "{value:e}");
                assert!(up == down || up == down.next_up() && square(down) < value && value < square(up));
                assert_eq!(root("rz"), down);
                assert_eq!(root("rn"), (value as f32).sqrt());
            }
        }
        for [a] in floats::<1>(64, 11, 2000) {
            let root = |name| f64::from_bits(eval(&format!("sqrt.{name}.f64"), &[a & u64::MAX >> 1]));
            let (down, up, nearest) = (root("rm"), root("rp"), root("rn"));
            let value = f64::from_bits(a & u64::MAX >> 1);
            // Scaled, so that the residual is exact.
            let scale = if value < 1.0 { 2f64.powi(200) } else { 1.0 };
            let below = |root: f64| (-root * scale.sqrt()).mul_add(root * scale.sqrt(), value * scale);
            if value.is_finite() {
                assert!(below(down) >= 0.0 && below(up) <= 0.0, "{value:e}");
                assert!(up == down || up == down.next_up() && (nearest == up || nearest == down));
                assert_eq!(nearest, value.sqrt());
            }
        }
        assert_eq!(eval("sqrt.rn.f32", &[single(-1.0)]), 0x7fff_ffff);
        assert_eq!(eval("sqrt.rm.f32", &[single(-0.0)]), single(-0.0));
    }

    #[test]
    fn ftz_flushes_operands_and_results() {
        let (tiny, small) = (single(1e-40), single(f32::MIN_POSITIVE));
        assert_eq!(eval("add.ftz.f32", &[tiny, small]), small);
        assert_eq!(eval("add.f32", &[tiny, small]), single(1e-40 + f32::MIN_POSITIVE));
        assert_eq!(eval("mul.ftz.f32", &[small, single(-0.5)]), single(-0.0));
        assert_eq!(eval("mul.f32", &[small, single(-0.5)]), single(f32::MIN_POSITIVE * -0.5));
        assert_eq!(eval("div.rn.ftz.f32", &[single(1.0), single(-1e-40)]), single(-f32::INFINITY));
        assert_eq!(eval("abs.ftz.f32", &[single(-1e-40)]), 0);
        assert_eq!(eval("fma.rn.ftz.f32", &[small, single(-0.25), tiny]), single(-0.0));
    }

    #[test]
    fn ftz_flushes_what_is_tiny_before_rounding_to_a_subnormal() {
        // As measured on an H100: the first ones round to the smallest normal number without `ftz`.
        let (normal, below, above) = (0x80_0000, 0x3f7f_ffff, 0x3f80_0001);
        let negative = |bits: u64| bits | 0x8000_0000;
        assert_eq!(eval("mul.f32", &[below, normal]), normal);
        assert_eq!(eval("mul.ftz.f32", &[below, normal]), 0);
        assert_eq!(eval("mul.ftz.f32", &[below, negative(normal)]), 0x8000_0000);
        assert_eq!(eval("mul.rp.ftz.f32", &[0x3f7f_fffd, 0x80_0001]), 0);
        assert_eq!(eval("fma.rn.ftz.f32", &[below, negative(normal), 0x8000_0001]), 0x8000_0000);
        assert_eq!(eval("div.rp.ftz.f32", &[normal, above]), 0);
        assert_eq!(eval("div.rm.ftz.f32", &[negative(normal), above]), 0x8000_0000);
        // Values that are closer to it.
        assert_eq!(eval("mul.ftz.f32", &[0x3f7f_fffe, 0x80_0001]), normal);
        assert_eq!(eval("mul.rm.ftz.f32", &[0x3f7f_fffe, negative(0x80_0001)]), negative(normal));
        assert_eq!(eval("fma.rp.ftz.f32", &[0x3f7f_fffc, 0x80_0002, 1]), normal);
    }

    #[test]
    fn nan_of_double_precision_has_an_order_of_precedence() {
        // As measured on an H100.
        let [a, b, c] = [0xfff8_0000_0000_0000, 0x7ffc_0000_0000_0005, 0x7fff_ffff_ffff_ffff];
        assert_eq!(eval("add.f64", &[a, b]), b);
        assert_eq!(eval("sub.rz.f64", &[b, a]), a);
        assert_eq!(eval("mul.f64", &[0x7ff0_0000_0000_0001, 0xfff0_0000_0000_0001]), 0xfff8_0000_0000_0001);
        assert_eq!(eval("fma.rn.f64", &[a, b, c]), b);
        assert_eq!(eval("fma.rm.f64", &[a, 3, c]), c);
        assert_eq!(eval("div.rn.f64", &[a, b]), a);
    }

    #[test]
    fn saturation_limits_to_zero_and_one() {
        for (a, b, expected) in [
            (0.5, 0.25, 0.75),
            (0.5, 1.0, 1.0),
            (-2.0, 1.0, 0.0),
            (f32::INFINITY, -f32::INFINITY, 0.0),
            (f32::INFINITY, 1.0, 1.0),
            (-0.0, -0.0, 0.0),
        ] {
            assert_eq!(eval("add.sat.f32", &[single(a), single(b)]), single(expected), "{a} {b}");
        }
        assert_eq!(eval("fma.rp.ftz.sat.f32", &[single(3.0), single(3.0), single(1.0)]), single(1.0));
    }

    #[test]
    fn signs_change_without_arithmetic() {
        assert_eq!(eval("neg.f32", &[single(0.0)]), single(-0.0));
        assert_eq!(eval("abs.f32", &[0xffc0_0001]), 0x7fff_ffff, "NaN becomes the canonical one");
        assert_eq!(eval("abs.f64", &[(-2f64).to_bits()]), 2f64.to_bits());
        assert_eq!(eval("abs.f64", &[(-0f64).to_bits()]), 0);
        assert_eq!(eval("neg.f64", &[0]), (-0f64).to_bits());
        // As measured on an H100.
        assert_eq!(eval("abs.f64", &[0xfff0_0000_0000_0001]), 0xfff8_0000_0000_0001);
        assert_eq!(eval("neg.f64", &[0x7ff8_0000_0000_0000]), 0x7ff8_0000_0000_0000);
        assert_eq!(eval("copysign.f32", &[single(-2.0), single(3.0)]), single(-3.0));
        assert_eq!(eval("copysign.f64", &[1f64.to_bits(), (-3f64).to_bits()]), 3f64.to_bits());
    }

    #[test]
    fn pairs_and_mixed_operands_equal_single_ones() {
        let pair = |low: f32, high: f32| single(low) | single(high) << 32;
        assert_eq!(eval("fma.rn.f32x2", &[pair(2.0, 3.0), pair(5.0, 7.0), pair(1.0, -1.0)]), pair(11.0, 20.0));
        assert_eq!(eval("add.rz.ftz.f32x2", &[pair(1.0, 1e-40), pair(1e-20, 0.0)]), pair(1.0, 0.0));
        assert_eq!(eval("add.f32.f16", &[0x3c00, single(0.5)]), single(1.5));
        assert_eq!(eval("sub.rn.sat.f32.bf16", &[0x3f80, single(0.25)]), single(0.75));
        assert_eq!(eval("fma.rn.f32.bf16", &[0x4000, 0x4040, single(0.5)]), single(6.5));
        assert_eq!(eval("fma.rp.f32.f16", &[0x3c00, 0x3c00, single(1e-20)]), single(1f32.next_up()));
    }
}
