//! Scalar semantics for every type: conversions, and the special cases of 16-bit arithmetic.

use tegula_core::element::{Scalar, Type, bf16, f16, round_to_odd};

/// Converts a value between types: the semantics of [`tegula_ir::Op::Convert`].
pub(super) fn convert(from: Type, to: Type, bits: u64) -> u64 {
    match (from.is_float(), to.is_float()) {
        (true, true) => to.round(from.to_f64(bits)),
        (true, false) => float_to_int(from, to, from.to_f64(bits)),
        (false, true) => int_to_float(to, int_value(from, bits)),
        (false, false) => truncate(to, int_value(from, bits)),
    }
}

/// Value of an integer of any type, from register bits.
fn int_value(ty: Type, bits: u64) -> i128 {
    let unused = 64 - 8 * ty.size();
    if ty.is_signed() { i128::from((bits << unused) as i64 >> unused) } else { i128::from(bits << unused >> unused) }
}

/// Truncates to an integer type, in register format.
fn truncate(ty: Type, value: i128) -> u64 {
    if ty.size() == 8 { value as u64 } else { u64::from(register_bits(ty, value as u64)) }
}

fn int_to_float(to: Type, value: i128) -> u64 {
    match to {
        Type::F64 => (value as f64).to_bits(),
        Type::F32 => u64::from((value as f32).to_bits()),
        // Rounded to odd first, so that the second rounding is correct.
        _ => to.round(round_sum_to_odd(value as f64, (value - value as f64 as i128) as f64)),
    }
}

fn float_to_int(from: Type, to: Type, value: f64) -> u64 {
    let bits = 8 * to.size();
    if value.is_nan() {
        // The hardware's result for NaN: if either type has 64 bits, only the highest bit is set.
        return if to.size().max(from.size()) == 8 { truncate(to, 1 << (bits - 1)) } else { 0 };
    }
    let (min, max) = if to.is_signed() { (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) } else { (0, (1 << bits) - 1) };
    truncate(to, (value as i128).clamp(min, max))
}

/// A 16-bit float, with the operations needed for rounding.
pub(super) trait Half: Copy {
    fn wide(self) -> f64;
    fn of_f32(value: f32) -> Self;
    fn bits(self) -> u16;
    fn from_u16(bits: u16) -> Self;
}

impl Half for f16 {
    fn wide(self) -> f64 {
        self.to_f64()
    }
    fn of_f32(value: f32) -> Self {
        f16::from_f32(value)
    }
    fn bits(self) -> u16 {
        self.to_bits()
    }
    fn from_u16(bits: u16) -> Self {
        f16::from_bits(bits)
    }
}

impl Half for bf16 {
    fn wide(self) -> f64 {
        self.to_f64()
    }
    fn of_f32(value: f32) -> Self {
        bf16::from_f32(value)
    }
    fn bits(self) -> u16 {
        self.to_bits()
    }
    fn from_u16(bits: u16) -> Self {
        bf16::from_bits(bits)
    }
}

/// Rounds to the nearest 16-bit float.
fn round16<H: Half>(value: f64) -> u16 {
    H::of_f32(round_to_odd(value)).bits()
}

/// Rounds value + rest to odd, in f64, for |rest| of at most half an ulp of value.
fn round_sum_to_odd(value: f64, rest: f64) -> f64 {
    if rest == 0.0 || !value.is_finite() || value.to_bits() & 1 == 1 {
        return value;
    }
    if value == 0.0 {
        return rest;
    }
    let away = (rest > 0.0) == (value > 0.0);
    f64::from_bits(if away { value.to_bits() + 1 } else { value.to_bits() - 1 })
}

/// Fused a·b + c of 16-bit floats, rounded once.
///
/// The product is exact in f64. The sum is rounded to odd before the last rounding.
pub(super) fn mul_add16<H: Half>(a: u32, b: u32, c: u32) -> u32 {
    let [a, b, c] = [a, b, c].map(|x| H::from_u16(x as u16).wide());
    let product = a * b;
    let sum = product + c;
    // Knuth's exact rounding error of the addition.
    let part = sum - product;
    let error = (product - (sum - part)) + (c - part);
    u32::from(round16::<H>(if sum.is_finite() { round_sum_to_odd(sum, error) } else { sum }))
}

/// +, −, ×, ÷ of 16-bit floats, computed in f32.
///
/// Double rounding is innocuous: 24 bits of precision are at least 2·11 + 2.
pub(super) fn arith16<H: Half>(a: u32, b: u32, f: impl Fn(f32, f32) -> f32) -> u32 {
    let [a, b] = [a, b].map(|x| H::from_u16(x as u16).wide() as f32);
    u32::from(H::of_f32(f(a, b)).bits())
}

macro_rules! min_max {
    ($min:ident $max:ident $t:ty) => {
        /// Minimum; if one operand is NaN, the other; −0 is less than +0.
        pub(super) fn $min(a: $t, b: $t) -> $t {
            if a.is_nan() || b < a || (a == b && b.is_sign_negative()) { b } else { a }
        }
        /// Maximum; if one operand is NaN, the other; +0 is greater than −0.
        pub(super) fn $max(a: $t, b: $t) -> $t {
            if a.is_nan() || b > a || (a == b && b.is_sign_positive()) { b } else { a }
        }
    };
}
min_max! { min_f32 max_f32 f32 }
min_max! { min_f64 max_f64 f64 }

/// The value that an atomic operation writes.
pub(super) fn atomic(op: tegula_ir::AtomicOp, ty: Type, old: u64, value: u64, expected: u64) -> u64 {
    use tegula_ir::AtomicOp as A;
    match op {
        A::Add if ty == Type::F32 => (f32::from_bits(old as u32) + f32::from_bits(value as u32)).to_bits().into(),
        A::Add if ty == Type::F64 => (f64::from_bits(old) + f64::from_bits(value)).to_bits(),
        // The validator rejects atomic additions of 16-bit floats.
        A::Add => truncate(ty, int_value(ty, old) + int_value(ty, value)),
        A::Min => truncate(ty, int_value(ty, old).min(int_value(ty, value))),
        A::Max => truncate(ty, int_value(ty, old).max(int_value(ty, value))),
        A::And => old & value,
        A::Or => old | value,
        A::Xor => old ^ value,
        A::Swap => value,
        A::CompareExchange { .. } => {
            if old == expected {
                value
            } else {
                old
            }
        }
    }
}

/// Compares two values of a type.
pub(super) fn compare(cmp: tegula_ir::Compare, ty: Type, a: u64, b: u64) -> bool {
    use tegula_ir::Compare as C;
    let order = if ty.is_float() {
        ty.to_f64(a).partial_cmp(&ty.to_f64(b))
    } else if ty == Type::Pred {
        Some(bool::from_bits(a).cmp(&bool::from_bits(b)))
    } else {
        Some(int_value(ty, a).cmp(&int_value(ty, b)))
    };
    match cmp {
        C::Eq => order.is_some_and(|o| o.is_eq()),
        C::Ne => !order.is_some_and(|o| o.is_eq()),
        C::Lt => order.is_some_and(|o| o.is_lt()),
        C::Le => order.is_some_and(|o| o.is_le()),
        C::Gt => order.is_some_and(|o| o.is_gt()),
        C::Ge => order.is_some_and(|o| o.is_ge()),
    }
}

/// Extends a value of at most 4 bytes to a 4-byte register, by sign or zero.
pub(super) fn register_bits(ty: Type, bits: u64) -> u32 {
    let (bits, unused) = (bits as u32, 32 - 8 * ty.size());
    if ty.is_signed() { ((bits << unused) as i32 >> unused) as u32 } else { bits << unused >> unused }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mul_add16_near_tie_rounds_once() {
        let bits = |x: f32| u32::from(bf16::from_f32(x).to_bits());
        // The product is a tie between two bf16 values. The tiny addend decides, although f64
        // cannot represent the sum.
        let (a, b) = (bits(1.0 + 1.0 / 128.0), bits(1.5));
        let tiny = bits(1e-30);
        let product = f64::from(1.0f32 + 1.0 / 128.0) * 1.5;
        let exact_up = mul_add16::<bf16>(a, b, tiny);
        let exact_down = mul_add16::<bf16>(a, b, tiny | 0x8000);
        assert!(exact_up > exact_down, "{product}");
        assert_eq!(mul_add16::<f16>(0x3c00, 0x3c00, 0x3c00), 0x4000);
    }

    #[test]
    fn convert_f64_to_f16_rounds_once() {
        // Just above a tie of f16, by less than an ulp of f32.
        let value = 1.0 + 1.0 / 2048.0 + 1e-12;
        assert_eq!(convert(Type::F64, Type::F16, value.to_bits()), 0x3c01);
        assert_eq!(convert(Type::F64, Type::F16, (1.0f64 + 1.0 / 2048.0).to_bits()), 0x3c00);
        assert_eq!(convert(Type::F64, Type::F16, (-value).to_bits()), 0xbc01);
        let below = 1.0 + 3.0 / 2048.0 - 1e-12;
        assert_eq!(convert(Type::F64, Type::F16, below.to_bits()), 0x3c01);
        for bits in 0..=u16::MAX {
            let back = convert(Type::F64, Type::F16, convert(Type::F16, Type::F64, bits.into()));
            assert!(back == u64::from(bits) || f16::from_bits(bits).is_nan());
        }
    }

    #[test]
    fn convert_float_to_int_saturates() {
        let f = |x: f32, to| convert(Type::F32, to, u64::from(x.to_bits()));
        assert_eq!(f(-1.5, Type::I32) as u32 as i32, -1);
        assert_eq!(f(1e20, Type::I32) as u32 as i32, i32::MAX);
        assert_eq!(f(-3.0, Type::U32), 0);
        assert_eq!(f(f32::NAN, Type::I32), 0);
        assert_eq!(convert(Type::I8, Type::I32, 0xff) as u32 as i32, -1);
        assert_eq!(convert(Type::I32, Type::I8, 0x180), u64::from(-128i32 as u32));
    }

    #[test]
    fn min_max_handle_nan_and_signed_zero() {
        assert_eq!(min_f32(f32::NAN, 1.0), 1.0);
        assert_eq!(max_f32(1.0, f32::NAN), 1.0);
        assert!(min_f32(0.0, -0.0).is_sign_negative() && min_f32(-0.0, 0.0).is_sign_negative());
        assert!(max_f64(0.0, -0.0).is_sign_positive() && max_f64(-0.0, 0.0).is_sign_positive());
    }
}
