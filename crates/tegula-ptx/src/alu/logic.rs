//! Logic, shifts, permutation of bytes, selection and moves.

use super::lanes::map;
use super::syntax::{Form, Words};
use super::{Arithmetic, Lanes, Operation};
use crate::ast::ScalarType::{self, B16, B32, B64, F32, Pred, S32, U32};

pub(super) const FORMS: &[Form] = &[
    Form::new("and or xor not", "pred|b16|b32|b64", build),
    Form::new("cnot shl", "b16|b32|b64", build),
    Form::new("shr", "b16|b32|b64|u16|u32|u64|s16|s32|s64", build),
    Form::new("shf", "l|r clamp|wrap b32", build),
    Form::new("lop3", "b32", build),
    Form::new("lop3", "or|and b32", build),
    Form::new("prmt", "b32 f4e|b4e|rc8|ecl|ecr|rc16?", build),
    Form::new("selp", "any", build),
    Form::new("slct", "any s32", build),
    Form::new("slct", "ftz? any f32", build),
    Form::new("mov", "any", build),
    Form::new("mov", "pred|b8|u8|s8|f16|f16x2|bf16|bf16x2", build),
];

/// A logic, shift, selection or move instruction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Logic {
    op: Op,
    ty: ScalarType,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    And,
    Or,
    Xor,
    Not,
    /// `cnot`: 1 for 0, otherwise 0.
    IsZero,
    ShiftLeft,
    ShiftRight,
    Funnel {
        left: bool,
        clamp: bool,
    },
    /// `lop3`, and the combination of its result with a predicate.
    Table(Option<Combine>),
    Permute(PermuteMode),
    Select,
    SelectSign {
        float: bool,
        ftz: bool,
    },
    Move,
}

#[derive(Clone, Copy, Debug)]
enum Combine {
    Or,
    And,
}

/// How `prmt` selects bytes.
#[derive(Clone, Copy, Debug)]
enum PermuteMode {
    /// By four selectors, with replication of signs.
    Generic,
    /// By a row of four bytes for each value of two bits.
    Rows([u16; 4]),
}

/// Modes of `prmt`: the source of each byte of the result as a digit, the highest first.
const PERMUTE_MODES: [(&str, PermuteMode); 6] = [
    ("f4e", PermuteMode::Rows([0x3210, 0x4321, 0x5432, 0x6543])),
    ("b4e", PermuteMode::Rows([0x5670, 0x6701, 0x7012, 0x0123])),
    ("rc8", PermuteMode::Rows([0x0000, 0x1111, 0x2222, 0x3333])),
    ("ecl", PermuteMode::Rows([0x3210, 0x3211, 0x3222, 0x3333])),
    ("ecr", PermuteMode::Rows([0x0000, 0x1110, 0x2210, 0x3210])),
    ("rc16", PermuteMode::Rows([0x1010, 0x3232, 0x1010, 0x3232])),
];

fn build(words: &Words) -> Result<Arithmetic, String> {
    let named = ScalarType::ALL.map(|(ty, name)| (name, ty));
    let mut types = words.pick_all(&named);
    let ty = types.next().ok_or_else(|| words.unsupported())?;
    let second = types.next();
    let clamp = words.has("clamp");
    let combine = words.pick(&[("or", Combine::Or), ("and", Combine::And)]);
    let (op, sources) = match words.opcode {
        "and" => (Op::And, vec![ty; 2]),
        "or" => (Op::Or, vec![ty; 2]),
        "xor" => (Op::Xor, vec![ty; 2]),
        "not" => (Op::Not, vec![ty]),
        "cnot" => (Op::IsZero, vec![ty]),
        "shl" => (Op::ShiftLeft, vec![ty, U32]),
        "shr" => (Op::ShiftRight, vec![ty, U32]),
        "shf" => (Op::Funnel { left: words.has("l"), clamp }, vec![B32, B32, U32]),
        "lop3" if combine.is_some() => (Op::Table(combine), vec![B32, B32, B32, U32, Pred]),
        "lop3" => (Op::Table(None), vec![B32, B32, B32, U32]),
        "prmt" => {
            let mode = words.pick(&PERMUTE_MODES).unwrap_or(PermuteMode::Generic);
            (Op::Permute(mode), vec![B32; 3])
        }
        "selp" => (Op::Select, vec![ty, ty, Pred]),
        "slct" => {
            let selector = if second == Some(F32) { F32 } else { S32 };
            (Op::SelectSign { float: selector == F32, ftz: words.has("ftz") }, vec![ty, ty, selector])
        }
        "mov" => (Op::Move, vec![ty]),
        _ => return Err(words.unsupported()),
    };
    let mut arithmetic = Arithmetic::new(Operation::Logic(Logic { op, ty }), ty, sources);
    if let Op::Table(Some(_)) = op {
        arithmetic.signature.destinations.push(Pred);
    }
    Ok(arithmetic)
}

impl Logic {
    pub fn eval(&self, sources: &[&Lanes], out: &mut Lanes, predicate: &mut Lanes) {
        let bits = 8 * self.ty.size();
        let mask = if self.ty == Pred { 1 } else { u64::MAX >> (64 - bits) };
        match self.op {
            Op::And => map(sources, out, |[a, b]| a & b & mask),
            Op::Or => map(sources, out, |[a, b]| (a | b) & mask),
            Op::Xor => map(sources, out, |[a, b]| (a ^ b) & mask),
            Op::Not => map(sources, out, |[a]| !a & mask),
            Op::IsZero => map(sources, out, |[a]| u64::from(a & mask == 0)),
            Op::ShiftLeft => match self.ty {
                B16 => map(sources, out, |[a, n]| shift(n, bits, |n| a << n) & mask),
                B32 => map(sources, out, |[a, n]| shift(n, bits, |n| (a as u32) << n).into()),
                _ => map(sources, out, |[a, n]| shift(n, bits, |n| a << n)),
            },
            Op::ShiftRight if self.ty.is_signed() => map(sources, out, |[a, n]| {
                let extended = (a << (64 - bits)) as i64 >> (64 - bits);
                (extended >> (n as u32).min(63)) as u64 & mask
            }),
            Op::ShiftRight => map(sources, out, |[a, n]| shift(n, bits, |n| (a & mask) >> n)),
            Op::Funnel { left, clamp } => map(sources, out, |[low, high, n]| {
                let both = high << 32 | low & u64::from(u32::MAX);
                let n = if clamp { (n as u32).min(32) } else { n as u32 % 32 };
                if left { both << n >> 32 } else { both >> n & u64::from(u32::MAX) }
            }),
            Op::Table(combine) => {
                map(sources, out, |[a, b, c, table]| u64::from(lookup(a as u32, b as u32, c as u32, table)));
                let Some(&with) = sources.get(4) else { return };
                let values: &Lanes = out;
                match combine {
                    Some(Combine::Or) => map(&[values, with], predicate, |[d, q]| u64::from(d != 0) | q & 1),
                    Some(Combine::And) => map(&[values, with], predicate, |[d, q]| u64::from(d != 0) & q),
                    None => {}
                }
            }
            Op::Permute(PermuteMode::Generic) => map(sources, out, |[a, b, selectors]| permute(a, b, selectors)),
            Op::Permute(PermuteMode::Rows(rows)) => {
                map(sources, out, |[a, b, row]| permute(a, b, rows[row as usize % 4].into()));
            }
            Op::Select => map(sources, out, |[a, b, p]| if p & 1 == 1 { a & mask } else { b & mask }),
            Op::SelectSign { float: false, .. } => {
                map(sources, out, |[a, b, c]| if c as i32 >= 0 { a & mask } else { b & mask });
            }
            Op::SelectSign { float: true, ftz } => map(sources, out, |[a, b, c]| {
                let c = f32::from_bits(c as u32);
                let selects_a = c >= 0.0 || ftz && c.is_subnormal();
                if selects_a { a & mask } else { b & mask }
            }),
            Op::Move => map(sources, out, |[a]| a & mask),
        }
    }
}

/// A shift by an amount that is clamped to the width: zero from the width on.
#[inline(always)]
fn shift<T: Default>(amount: u64, width: u32, shifted: impl Fn(u32) -> T) -> T {
    let amount = amount as u32;
    let value = shifted(amount % width.max(1));
    if amount < width { value } else { T::default() }
}

/// The function of three bits that a table defines, on all bits.
#[inline(always)]
fn lookup(a: u32, b: u32, c: u32, table: u64) -> u32 {
    let entry = |n: u32| (table as u32 >> n & 1).wrapping_neg();
    let select = |bit: u32, zero: u32, one: u32| zero ^ bit & (zero ^ one);
    let of_c = |n: u32| select(c, entry(n), entry(n + 1));
    let of_b = |n: u32| select(b, of_c(n), of_c(n + 2));
    select(a, of_b(0), of_b(4))
}

/// Four of the eight bytes of two words, by selectors of four bits. Their highest bit replicates
/// the sign of the byte.
#[inline(always)]
fn permute(a: u64, b: u64, selectors: u64) -> u64 {
    let bytes = b << 32 | a & u64::from(u32::MAX);
    (0..4).fold(0, |result, n| {
        let selector = selectors >> (4 * n);
        let byte = bytes >> (8 * (selector & 7)) & 0xff;
        let byte = if selector & 8 == 0 { byte } else { (byte >> 7) * 0xff };
        result | byte << (8 * n)
    })
}
