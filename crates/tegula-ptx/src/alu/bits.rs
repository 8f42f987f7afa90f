//! Counting, finding, extracting and inserting bits, and dot products of bytes.

use super::lanes::map_calls;
use super::syntax::{Form, Words};
use super::{Arithmetic, Lanes, Operation};
use crate::ast::ScalarType::{B32, B64, S32, S64, U32, U64};

pub(super) const FORMS: &[Form] = &[
    Form::new("popc clz brev", "b32|b64", build),
    Form::new("bfind", "shiftamt? u32|u64|s32|s64", build),
    Form::new("fns", "b32", build),
    Form::new("bfe", "u32|u64|s32|s64", build),
    Form::new("bfi", "b32|b64", build),
    Form::new("szext", "clamp|wrap u32|s32", build),
    Form::new("bmsk", "clamp|wrap b32", build),
    Form::new("dp4a", "u32|s32 u32|s32", build),
    Form::new("dp2a", "lo|hi u32|s32 u32|s32", build),
];

/// An instruction on the bits of an integer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bits {
    op: Op,
    /// Width of the integer: 32 or 64.
    width: u32,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Population,
    LeadingZeros,
    Reverse,
    Find { signed: bool, shift_amount: bool },
    FindNth,
    Extract { signed: bool },
    Insert,
    Extend { signed: bool, clamp: bool },
    Mask { clamp: bool },
    Dot4 { signed: [bool; 2] },
    Dot2 { signed: [bool; 2], high: bool },
}

fn build(words: &Words) -> Result<Arithmetic, String> {
    let types = [("b32", B32), ("b64", B64), ("u32", U32), ("u64", U64), ("s32", S32), ("s64", S64)];
    let mut written = words.pick_all(&types);
    let ty = written.next().ok_or_else(|| words.unsupported())?;
    let second = written.next().unwrap_or(ty);
    let signed = [ty.is_signed(), second.is_signed()];
    let (clamp, high) = (words.has("clamp"), words.has("hi"));
    let accumulator = if signed == [false; 2] { U32 } else { S32 };
    let (op, destination, sources) = match words.opcode {
        "popc" => (Op::Population, U32, vec![ty]),
        "clz" => (Op::LeadingZeros, U32, vec![ty]),
        "brev" => (Op::Reverse, ty, vec![ty]),
        "bfind" => (Op::Find { signed: ty.is_signed(), shift_amount: words.has("shiftamt") }, U32, vec![ty]),
        "fns" => (Op::FindNth, B32, vec![B32, B32, S32]),
        "bfe" => (Op::Extract { signed: ty.is_signed() }, ty, vec![ty, U32, U32]),
        "bfi" => (Op::Insert, ty, vec![ty, ty, U32, U32]),
        "szext" => (Op::Extend { signed: ty.is_signed(), clamp }, ty, vec![ty, U32]),
        "bmsk" => (Op::Mask { clamp }, B32, vec![B32, B32]),
        "dp4a" => (Op::Dot4 { signed }, accumulator, vec![ty, second, accumulator]),
        "dp2a" => (Op::Dot2 { signed, high }, accumulator, vec![ty, second, accumulator]),
        _ => return Err(words.unsupported()),
    };
    let multiply_adds = match op {
        Op::Dot4 { .. } => 4,
        Op::Dot2 { .. } => 2,
        _ => 0,
    };
    let operation = Operation::Bits(Bits { op, width: 8 * ty.size() });
    Ok(Arithmetic::new(operation, destination, sources).counting(0, multiply_adds))
}

/// The lowest `count` bits, of 0 to 64.
fn low(count: u32) -> u64 {
    u64::MAX.checked_shr(64u32.saturating_sub(count)).unwrap_or(0)
}

/// The lowest `count` bits of a value, sign-extended.
fn sign_extended(value: u64, count: u32) -> i64 {
    (value << (64 - count)) as i64 >> (64 - count)
}

impl Bits {
    pub fn eval(&self, sources: &[&Lanes], out: &mut [u64]) {
        let width = self.width;
        let mask = low(width);
        match self.op {
            Op::Population => map_calls(sources, out, &|[a]| (a & mask).count_ones().into()),
            Op::LeadingZeros => map_calls(sources, out, &|[a]| ((a & mask).leading_zeros() + width - 64).into()),
            Op::Reverse => map_calls(sources, out, &|[a]| a.reverse_bits() >> (64 - width)),
            Op::Find { signed, shift_amount } => {
                map_calls(sources, out, &|[a]| find(a, width, signed, shift_amount).into())
            }
            Op::FindNth => {
                map_calls(sources, out, &|[a, base, offset]| find_nth(a as u32, base as u32, offset as i32).into())
            }
            Op::Extract { signed } => map_calls(sources, out, &|[a, at, count]| {
                extract(a & mask, position(at, width), position(count, width), width, signed)
            }),
            Op::Insert => {
                map_calls(sources, out, &|[a, b, at, count]| {
                    insert(a, b, position(at, width), position(count, width)) & mask
                });
            }
            Op::Extend { signed, clamp } => {
                map_calls(sources, out, &|[a, n]| extend(a as u32, n as u32, signed, clamp).into())
            }
            Op::Mask { clamp } => {
                map_calls(sources, out, &|[at, count]| field_mask(at as u32, count as u32, clamp).into())
            }
            Op::Dot4 { signed } => map_calls(sources, out, &|[a, b, c]| dot(a, b, c, signed, 8, 4)),
            Op::Dot2 { signed, high } => {
                let shift = if high { 16 } else { 0 };
                map_calls(sources, out, &|[a, b, c]| dot(a, b >> shift, c, signed, 16, 2));
            }
        }
    }
}

/// `bfind`: the position of the highest bit that differs from the sign bit; all ones if none.
fn find(a: u64, width: u32, signed: bool, shift_amount: bool) -> u32 {
    let mask = low(width);
    let negative = signed && a >> (width - 1) & 1 == 1;
    let found = if negative { !a & mask } else { a & mask };
    match found.checked_ilog2() {
        Some(position) if shift_amount => width - 1 - position,
        Some(position) => position,
        None => u32::MAX,
    }
}

/// `fns`: the position of the n-th set bit from `base`, downwards for a negative `offset`. All ones
/// if it does not exist.
fn find_nth(mask: u32, base: u32, offset: i32) -> u32 {
    let is_set = |position: &u32| mask >> position & 1 == 1;
    let n = offset.unsigned_abs() as usize;
    let found = match offset {
        _ if base > 31 => None,
        0 => Some(base).filter(is_set),
        1.. => (base..32).filter(is_set).nth(n - 1),
        _ => (0..=base).rev().filter(is_set).nth(n - 1),
    };
    found.unwrap_or(u32::MAX)
}

/// A position or a length of `bfe` and `bfi`.
///
/// The PTX ISA specifies the low 8 bits. The 64-bit instructions use all bits, as measured on an
/// H100.
fn position(operand: u64, width: u32) -> u32 {
    if width == 64 { (operand as u32).min(64) } else { u32::from(operand as u8) }
}

/// `bfe`: a bit field, zero- or sign-extended.
fn extract(a: u64, at: u32, count: u32, width: u32, signed: bool) -> u64 {
    let sign_at = (at + count).saturating_sub(1).min(width - 1);
    let sign = signed && count > 0 && a >> sign_at & 1 == 1;
    let field = low(count.min(width.saturating_sub(at)));
    let extracted = a.checked_shr(at).unwrap_or(0) & field;
    if sign { (extracted | !field) & low(width) } else { extracted }
}

/// `bfi`: `b`, with `count` bits from position `at` replaced by the lowest bits of `a`.
fn insert(a: u64, b: u64, at: u32, count: u32) -> u64 {
    let field = low(count).checked_shl(at).unwrap_or(0);
    b & !field | a.checked_shl(at).unwrap_or(0) & field
}

/// `szext`: the lowest `n` bits, zero- or sign-extended.
fn extend(a: u32, n: u32, signed: bool, clamp: bool) -> u32 {
    match n {
        32.. if clamp => a,
        _ if n.is_multiple_of(32) => 0,
        _ if signed => sign_extended(a.into(), n % 32) as u32,
        _ => a & low(n % 32) as u32,
    }
}

/// `bmsk`: a mask of `count` ones from position `at`.
fn field_mask(at: u32, count: u32, clamp: bool) -> u32 {
    let (at, count) = if clamp { (at.min(32), count.min(32)) } else { (at % 32, count % 32) };
    (low(count) << at) as u32
}

/// `dp2a`, `dp4a`: the dot product of `count` parts of `a`, `bits` bits each, with bytes of `b`,
/// plus `c`.
#[inline(always)]
fn dot(a: u64, b: u64, c: u64, signed: [bool; 2], bits: u32, count: u32) -> u64 {
    let part = |value: u64, n: u32, bits: u32, signed: bool| {
        let part = value >> (n * bits);
        if signed { sign_extended(part, bits) } else { (part & low(bits)) as i64 }
    };
    let products = (0..count).map(|n| part(a, n, bits, signed[0]) * part(b, n, 8, signed[1]));
    u64::from((c as i64).wrapping_add(products.sum()) as u32)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, eval, integers};

    fn bit(value: u64, n: u32) -> bool {
        value >> n & 1 == 1
    }

    /// A position as the instructions on 32 or on 64 bits read it.
    fn low_bits(operand: u64, width: u32) -> u32 {
        if width == 32 { operand as u32 & 0xff } else { (operand as u32).min(1 << 20) }
    }

    #[test]
    fn counting_equals_loops_over_bits() {
        for (suffix, width) in [("32", 32), ("64", 64)] {
            let ones = move |a| (0..width).filter(|&n| bit(a, n)).count() as u64;
            check(&format!("popc.b{suffix}"), &integers(300), |[a]| ones(a));
            check(&format!("clz.b{suffix}"), &integers(300), |[a]| {
                (0..width).rev().take_while(|&n| !bit(a, n)).count() as u64
            });
            check(&format!("brev.b{suffix}"), &integers(300), |[a]| {
                (0..width).fold(0, |result, n| result | u64::from(bit(a, n)) << (width - 1 - n))
            });
            for (sign, signed) in [("u", false), ("s", true)] {
                let position = move |a| {
                    let sign = signed && bit(a, width - 1);
                    (0..width).rev().find(|&n| bit(a, n) != sign)
                };
                check(&format!("bfind.{sign}{suffix}"), &integers(300), |[a]| position(a).unwrap_or(u32::MAX).into());
                check(&format!("bfind.shiftamt.{sign}{suffix}"), &integers(300), |[a]| {
                    position(a).map_or(u32::MAX, |n| width - 1 - n).into()
                });
            }
        }
    }

    #[test]
    fn bfe_equals_the_definition_also_past_the_end() {
        for (name, width, signed) in [("u32", 32, false), ("u64", 64, false), ("s32", 32, true), ("s64", 64, true)] {
            check(&format!("bfe.{name}"), &integers(3000), |[a, start, length]| {
                let (start, length) = (low_bits(start, width), low_bits(length, width));
                let msb = width - 1;
                let sign = signed && length != 0 && bit(a, (start + length - 1).min(msb));
                let of = |n: u32| if n < length && start + n <= msb { bit(a, start + n) } else { sign };
                (0..width).fold(0, |result, n| result | u64::from(of(n)) << n)
            });
        }
        assert_eq!(eval("bfe.s32", &[0x8000_0000, 31, 4]), 0xffff_ffff);
        assert_eq!(eval("bfe.u32", &[0xffff_ffff, 40, 4]), 0);
        assert_eq!(eval("bfe.s32", &[0xffff_ffff, 4, 0]), 0);
        // As measured on an H100.
        assert_eq!(eval("bfe.u32", &[0xffff_ffff, 0x101, 0x104]), 0xf);
        assert_eq!(eval("bfe.u64", &[0xffff_ffff_ffff_fe0f, 0x7fef_dc38, 6]), 0);
        assert_eq!(eval("bfe.u64", &[0xed2f_8c71_8628_524b, 0x16, 0x101]), 0x3b4_be31_c618);
        assert_eq!(eval("bfe.s64", &[0xf73b_c54a_799e_31a2, 0x129, 0x2d]), u64::MAX);
        assert_eq!(eval("bfe.s64", &[0xaf10_0da0_ca1c_eaa5, 0x1e, 0x069f_0a02]), 0xffff_fffe_bc40_3683);
    }

    #[test]
    fn bfi_equals_the_definition_also_past_the_end() {
        for (name, width) in [("b32", 32), ("b64", 64)] {
            check(&format!("bfi.{name}"), &integers(3000), |[a, b, start, length]| {
                let (start, length) = (low_bits(start, width), low_bits(length, width));
                let mut result = b & u64::MAX >> (64 - width);
                for n in 0..length.min(width) {
                    if start + n < width {
                        result = result & !(1 << (start + n)) | u64::from(bit(a, n)) << (start + n);
                    }
                }
                result
            });
        }
        // As measured on an H100.
        let (a, b) = (0xc2b5_10b9_09ea_a359, 0x374d_4048_5115_b34f);
        assert_eq!(eval("bfi.b64", &[a, b, 0x115, 0x2b]), b);
        assert_eq!(eval("bfi.b64", &[0xd1, 0xffff_ffff_ff7f_ffff, 9, 0x12a]), 0x1a3ff);
    }

    #[test]
    fn fns_finds_as_the_examples_of_the_isa() {
        let mask = 0xaaaa_aaaa;
        assert_eq!(eval("fns.b32", &[mask, 3, 1]), 3);
        assert_eq!(eval("fns.b32", &[mask, 3, 0xffff_ffff]), 3);
        assert_eq!(eval("fns.b32", &[mask, 2, 1]), 3);
        assert_eq!(eval("fns.b32", &[mask, 2, 0xffff_ffff]), 1);
        assert_eq!(eval("fns.b32", &[mask, 3, 0]), 3);
        assert_eq!(eval("fns.b32", &[mask, 2, 0]), 0xffff_ffff);
        assert_eq!(eval("fns.b32", &[mask, 0, 17]), 0xffff_ffff);
        assert_eq!(eval("fns.b32", &[mask, 0, 16]), 31);
        assert_eq!(eval("fns.b32", &[mask, 31, 0x8000_0000]), 0xffff_ffff);
    }

    #[test]
    fn szext_and_bmsk_equal_the_definitions() {
        for mode in ["clamp", "wrap"] {
            let clamp = mode == "clamp";
            for (name, signed) in [("u32", false), ("s32", true)] {
                check(&format!("szext.{mode}.{name}"), &integers(1000), |[a, n]| {
                    let (a, n) = (a as u32, n as u32);
                    let wrapped = n & 31;
                    let large = n >= 32 && clamp;
                    let mask = if large { 0 } else { !0u32 << wrapped };
                    let sign = wrapped != 0 && !large && signed && a >> (wrapped - 1) & 1 == 1;
                    u64::from(a & !mask | if sign { mask } else { 0 })
                });
            }
            check(&format!("bmsk.{mode}.b32"), &integers(1000), |[at, count]| {
                let limit = |n: u64| if clamp { (n as u32).min(32) } else { n as u32 % 32 };
                let (at, count) = (limit(at), limit(count));
                (0..32).fold(0, |mask, n| mask | u64::from(n >= at && n - at < count) << n)
            });
        }
        assert_eq!(eval("bmsk.wrap.b32", &[1, 2]), 6);
        assert_eq!(eval("bmsk.clamp.b32", &[0, 32]), 0xffff_ffff);
        assert_eq!(eval("szext.wrap.u32", &[0xffff_ffff, 0]), 0);
    }

    #[test]
    fn dot_products_equal_sums() {
        let byte = |value: u64, n: u32, signed: bool| {
            let byte = (value >> (8 * n)) as u8;
            if signed { i64::from(byte as i8) } else { i64::from(byte) }
        };
        let short = |value: u64, n: u32, signed: bool| {
            let short = (value >> (16 * n)) as u16;
            if signed { i64::from(short as i16) } else { i64::from(short) }
        };
        for (first, a_signed) in [("u32", false), ("s32", true)] {
            for (second, b_signed) in [("u32", false), ("s32", true)] {
                check(&format!("dp4a.{first}.{second}"), &integers(300), |[a, b, c]| {
                    let sum: i64 = (0..4).map(|n| byte(a, n, a_signed) * byte(b, n, b_signed)).sum();
                    u64::from(sum as u32).wrapping_add(c) & 0xffff_ffff
                });
                for (part, from) in [("lo", 0), ("hi", 2)] {
                    check(&format!("dp2a.{part}.{first}.{second}"), &integers(300), |[a, b, c]| {
                        let sum: i64 = (0..2).map(|n| short(a, n, a_signed) * byte(b, from + n, b_signed)).sum();
                        u64::from(sum as u32).wrapping_add(c) & 0xffff_ffff
                    });
                }
            }
        }
    }
}
