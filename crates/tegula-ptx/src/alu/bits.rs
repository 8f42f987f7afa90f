//! Counting, finding, extracting and inserting bits, and dot products of bytes.

use super::lanes::map;
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
    pub fn eval(&self, sources: &[&Lanes], out: &mut Lanes) {
        let width = self.width;
        let mask = low(width);
        match self.op {
            Op::Population => map(sources, out, |[a]| (a & mask).count_ones().into()),
            Op::LeadingZeros => map(sources, out, |[a]| ((a & mask).leading_zeros() + width - 64).into()),
            Op::Reverse => map(sources, out, |[a]| a.reverse_bits() >> (64 - width)),
            Op::Find { signed, shift_amount } => map(sources, out, |[a]| find(a, width, signed, shift_amount).into()),
            Op::FindNth => map(sources, out, |[a, base, offset]| find_nth(a as u32, base as u32, offset as i32).into()),
            Op::Extract { signed } => map(sources, out, |[a, at, count]| extract(a & mask, at, count, width, signed)),
            Op::Insert => map(sources, out, |[a, b, at, count]| insert(a, b, at as u8, count as u8) & mask),
            Op::Extend { signed, clamp } => map(sources, out, |[a, n]| extend(a as u32, n as u32, signed, clamp).into()),
            Op::Mask { clamp } => map(sources, out, |[at, count]| field_mask(at as u32, count as u32, clamp).into()),
            Op::Dot4 { signed } => map(sources, out, |[a, b, c]| dot(a, b, c, signed, 8, 4)),
            Op::Dot2 { signed, high } => {
                let shift = if high { 16 } else { 0 };
                map(sources, out, |[a, b, c]| dot(a, b >> shift, c, signed, 16, 2));
            }
        }
    }
}

/// The position of the most significant bit that differs from the sign, or all ones.
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

/// The position of the n-th set bit from a position on, upwards or downwards, or all ones.
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

/// `bfe`: a field of bits, filled up with its sign.
fn extract(a: u64, at: u64, count: u64, width: u32, signed: bool) -> u64 {
    let (at, count) = (u32::from(at as u8), u32::from(count as u8));
    let sign_at = (at + count).saturating_sub(1).min(width - 1);
    let sign = signed && count > 0 && a >> sign_at & 1 == 1;
    let field = low(count.min(width.saturating_sub(at)));
    let extracted = a.checked_shr(at).unwrap_or(0) & field;
    if sign { (extracted | !field) & low(width) } else { extracted }
}

/// `bfi`: `b` with its bits from a position on replaced by the lowest bits of `a`.
fn insert(a: u64, b: u64, at: u8, count: u8) -> u64 {
    let field = low(count.into()).checked_shl(at.into()).unwrap_or(0);
    b & !field | a.checked_shl(at.into()).unwrap_or(0) & field
}

/// `szext`: the lowest `n` bits, zero- or sign-extended.
fn extend(a: u32, n: u32, signed: bool, clamp: bool) -> u32 {
    match n {
        32.. if clamp => a,
        _ if n % 32 == 0 => 0,
        _ if signed => sign_extended(a.into(), n % 32) as u32,
        _ => a & low(n % 32) as u32,
    }
}

/// `bmsk`: `count` ones from a position on.
fn field_mask(at: u32, count: u32, clamp: bool) -> u32 {
    let (at, count) = if clamp { (at.min(32), count.min(32)) } else { (at % 32, count % 32) };
    (low(count) << at) as u32
}

/// A dot product of parts of `a`, of `bits` each, with bytes of `b`, plus `c`.
#[inline(always)]
fn dot(a: u64, b: u64, c: u64, signed: [bool; 2], bits: u32, count: u32) -> u64 {
    let part = |value: u64, n: u32, bits: u32, signed: bool| {
        let part = value >> (n * bits);
        if signed { sign_extended(part, bits) } else { (part & low(bits)) as i64 }
    };
    let products = (0..count).map(|n| part(a, n, bits, signed[0]) * part(b, n, 8, signed[1]));
    u64::from((c as i64).wrapping_add(products.sum()) as u32)
}
