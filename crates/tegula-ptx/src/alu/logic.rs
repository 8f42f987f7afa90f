//! Logic, shifts, permutation of bytes, selection and moves.

use super::lanes::{map, map_calls};
use super::syntax::{Form, Words};
use super::{Arithmetic, Lanes, Operation};
use crate::ast::ScalarType::{self, B16, B32, F32, Pred, S32, U32};

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
    Form::new("mov", "pred", build),
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

/// The mode of `prmt`, which selects bytes.
#[derive(Clone, Copy, Debug)]
enum PermuteMode {
    /// By four selectors, with replication of signs.
    Generic,
    /// A row of four bytes for each value of the two low bits of the selector.
    Rows([u16; 4]),
}

/// Modes of `prmt`. Each digit is the source of a byte of the result, the highest byte first.
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
    pub fn eval(&self, sources: &[&Lanes], out: &mut [u64], predicate: &mut [u64]) {
        let bits = 8 * self.ty.size();
        let mask = if self.ty == Pred { 1 } else { u64::MAX >> (64 - bits) };
        match self.op {
            Op::And => map(sources, out, |[a, b]| a & b & mask),
            Op::Or => map(sources, out, |[a, b]| (a | b) & mask),
            Op::Xor => map(sources, out, |[a, b]| (a ^ b) & mask),
            Op::Not => map_calls(sources, out, &|[a]| !a & mask),
            Op::IsZero => map_calls(sources, out, &|[a]| u64::from(a & mask == 0)),
            Op::ShiftLeft => match self.ty {
                B16 => map_calls(sources, out, &|[a, n]| shift(n, bits, |n| a << n) & mask),
                B32 => map(sources, out, |[a, n]| shift(n, bits, |n| (a as u32) << n).into()),
                _ => map(sources, out, |[a, n]| shift(n, bits, |n| a << n)),
            },
            Op::ShiftRight if self.ty.is_signed() => map(sources, out, |[a, n]| {
                let extended = (a << (64 - bits)) as i64 >> (64 - bits);
                (extended >> (n as u32).min(63)) as u64 & mask
            }),
            Op::ShiftRight => map(sources, out, |[a, n]| shift(n, bits, |n| (a & mask) >> n)),
            Op::Funnel { left, clamp } => map_calls(sources, out, &|[low, high, n]| {
                let both = high << 32 | low & u64::from(u32::MAX);
                let n = if clamp { (n as u32).min(32) } else { n as u32 % 32 };
                if left { both << n >> 32 } else { both >> n & u64::from(u32::MAX) }
            }),
            Op::Table(combine) => {
                map(sources, out, |[a, b, c, table]| u64::from(lookup(a as u32, b as u32, c as u32, table)));
                let (Some(combine), Some(&with)) = (combine, sources.get(4)) else { return };
                for ((predicate, value), with) in predicate.iter_mut().zip(&*out).zip(with) {
                    let nonzero = u64::from(*value != 0);
                    *predicate = match combine {
                        Combine::Or => nonzero | with & 1,
                        Combine::And => nonzero & with,
                    };
                }
            }
            Op::Permute(PermuteMode::Generic) => map_calls(sources, out, &|[a, b, selectors]| permute(a, b, selectors)),
            Op::Permute(PermuteMode::Rows(rows)) => {
                map_calls(sources, out, &|[a, b, row]| permute(a, b, rows[row as usize % 4].into()));
            }
            Op::Select => map(sources, out, |[a, b, p]| if p & 1 == 1 { a & mask } else { b & mask }),
            Op::SelectSign { float: false, .. } => {
                map_calls(sources, out, &|[a, b, c]| if c as i32 >= 0 { a & mask } else { b & mask });
            }
            Op::SelectSign { float: true, ftz } => map_calls(sources, out, &|[a, b, c]| {
                let c = f32::from_bits(c as u32);
                let selects_a = c >= 0.0 || ftz && c.is_subnormal();
                if selects_a { a & mask } else { b & mask }
            }),
            Op::Move => map(sources, out, |[a]| a & mask),
        }
    }
}

/// A shift whose result is zero for amounts of at least the width.
#[inline(always)]
fn shift<T: Default>(amount: u64, width: u32, shifted: impl Fn(u32) -> T) -> T {
    let amount = amount as u32;
    let value = shifted(amount % width.max(1));
    if amount < width { value } else { T::default() }
}

/// `lop3`: applies the function of three bits that `table` defines to all bit positions.
#[inline(always)]
fn lookup(a: u32, b: u32, c: u32, table: u64) -> u32 {
    let entry = |n: u32| (table as u32 >> n & 1).wrapping_neg();
    let select = |bit: u32, zero: u32, one: u32| zero ^ bit & (zero ^ one);
    let of_c = |n: u32| select(c, entry(n), entry(n + 1));
    let of_b = |n: u32| select(b, of_c(n), of_c(n + 2));
    select(a, of_b(0), of_b(4))
}

/// Selects four of the eight bytes of two words, by four selectors of four bits. If the highest bit
/// of a selector is set, the sign of the byte is replicated.
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

#[cfg(test)]
mod tests {
    use super::super::testing::{check, eval, eval_full, integers};

    #[test]
    fn shifts_clamp_their_amount() {
        for (width, amounts) in [(16u32, [15, 16, 40]), (32, [31, 32, 40]), (64, [63, 64, 70])] {
            let (ones, top) = (u64::MAX >> (64 - width), 1 << (width - 1));
            let [last, all, more] = amounts;
            assert_eq!(eval(&format!("shl.b{width}"), &[1, last]), top);
            assert_eq!(eval(&format!("shr.u{width}"), &[top, last]), 1);
            assert_eq!(eval(&format!("shr.s{width}"), &[top, 1]), top | top >> 1);
            for amount in [all, more, 0xffff_ffff] {
                assert_eq!(eval(&format!("shl.b{width}"), &[ones, amount]), 0, "{width} {amount}");
                assert_eq!(eval(&format!("shr.b{width}"), &[ones, amount]), 0);
                assert_eq!(eval(&format!("shr.s{width}"), &[top, amount]), ones);
                assert_eq!(eval(&format!("shr.s{width}"), &[top - 1, amount]), 0);
            }
            check(&format!("shr.s{width}"), &integers(300), |[a, n]| {
                let value = i128::from(a) << (128 - width) >> (128 - width);
                (value >> (n as u32).min(100)) as u64 & ones
            });
        }
    }

    #[test]
    fn funnel_shifts_equal_the_definition() {
        for (mode, clamp) in [("clamp", true), ("wrap", false)] {
            let amount = |n: u64| if clamp { (n as u32).min(32) } else { n as u32 & 31 };
            let both = |a: u64, b: u64| u128::from(b & 0xffff_ffff) << 32 | u128::from(a & 0xffff_ffff);
            check(&format!("shf.l.{mode}.b32"), &integers(600), |[a, b, n]| {
                (both(a, b) << amount(n) >> 32) as u64 & 0xffff_ffff
            });
            check(&format!("shf.r.{mode}.b32"), &integers(600), |[a, b, n]| {
                (both(a, b) >> amount(n)) as u64 & 0xffff_ffff
            });
        }
    }

    #[test]
    fn lop3_follows_all_tables() {
        for table in 0..256 {
            for inputs in 0..8u64 {
                // One bit of each operand, at a place that depends on the table.
                let at = table % 32;
                let operand = |bit: u64| (inputs >> bit & 1) << at;
                let result = eval("lop3.b32", &[operand(2), operand(1), operand(0), table]);
                assert_eq!(result >> at & 1, table >> inputs & 1, "table {table} inputs {inputs:03b}");
            }
        }
        let [a, b, c] = [0xf0, 0xcc, 0xaa];
        assert_eq!(eval("lop3.b32", &[a, b, c, (a & b | c) ^ a]) & 0xff, 0x1a, "the example of the ISA");
    }

    #[test]
    fn lop3_combines_with_a_predicate() {
        for (a, q) in [(0, 0), (0, 1), (8, 0), (8, 1)] {
            let nonzero = u64::from(a != 0);
            assert_eq!(eval_full("lop3.or.b32", &[a, a, a, 0x80, q], false).0, [a, nonzero | q]);
            assert_eq!(eval_full("lop3.and.b32", &[a, a, a, 0x80, q], false).0, [a, nonzero & q]);
        }
    }

    #[test]
    fn prmt_selects_and_replicates() {
        let (a, b) = (0x8322_1100, 0x77e6_5544);
        assert_eq!(eval("prmt.b32", &[a, b, 0x3210]), a);
        assert_eq!(eval("prmt.b32", &[a, b, 0x7654]), b);
        assert_eq!(eval("prmt.b32", &[a, b, 0x0f63]), 0x0000_e683);
        assert_eq!(eval("prmt.b32", &[a, b, 0xbe6b]), 0xffff_e6ff, "the sign is replicated");
        let bytes: Vec<u64> = (0..8).map(|n| (b << 32 | a) >> (8 * n) & 0xff).collect();
        let row = |sources: [usize; 4]| sources.iter().fold(0, |word, &n| word << 8 | bytes[n]);
        for n in 0..4usize {
            let control = n as u64 | 0xffff_fff0;
            assert_eq!(eval("prmt.b32.f4e", &[a, b, control]), row([n + 3, n + 2, n + 1, n]));
            assert_eq!(eval("prmt.b32.b4e", &[a, b, control]), row([5, 6, 7, 8].map(|from| (from + n) % 8)));
            assert_eq!(eval("prmt.b32.rc8", &[a, b, control]), row([n; 4]));
            assert_eq!(eval("prmt.b32.ecl", &[a, b, control]), row([3, 2, 1, 0].map(|byte: usize| byte.max(n))));
            assert_eq!(eval("prmt.b32.ecr", &[a, b, control]), row([3, 2, 1, 0].map(|byte: usize| byte.min(n))));
            let half = 2 * (n % 2);
            assert_eq!(eval("prmt.b32.rc16", &[a, b, control]), row([half + 1, half, half + 1, half]));
        }
    }

    #[test]
    fn logic_keeps_to_the_width() {
        assert_eq!(eval("not.pred", &[0]), 1);
        assert_eq!(eval("not.pred", &[1]), 0);
        assert_eq!(eval("not.b16", &[0x00ff]), 0xff00);
        assert_eq!(eval("not.b64", &[0]), u64::MAX);
        assert_eq!(eval("xor.pred", &[1, 1]), 0);
        assert_eq!(eval("and.b16", &[0x1_ffff, 0x1_0ff0]), 0x0ff0);
        assert_eq!(eval("or.b32", &[0x8000_0000, 1]), 0x8000_0001);
        assert_eq!(eval("cnot.b16", &[0x1_0000]), 1);
        assert_eq!(eval("cnot.b32", &[7]), 0);
        assert_eq!(eval("mov.u16", &[0x1_2345]), 0x2345);
        assert_eq!(eval("mov.f64", &[u64::MAX]), u64::MAX);
    }

    #[test]
    fn selections_choose_by_predicate_or_sign() {
        assert_eq!(eval("selp.f32", &[1, 2, 1]), 1);
        assert_eq!(eval("selp.b64", &[1, 2, 0]), 2);
        let float = |value: f32| u64::from(value.to_bits());
        for (selector, expected) in [(0.0, 1), (-0.0, 1), (1.0, 1), (-1.0, 2), (f32::NAN, 2), (-1e-40, 2)] {
            assert_eq!(eval("slct.u64.f32", &[1, 2, float(selector)]), expected, "{selector}");
        }
        assert_eq!(eval("slct.ftz.u64.f32", &[1, 2, float(-1e-40)]), 1);
        assert_eq!(eval("slct.f64.s32", &[1, 2, 0]), 1);
        assert_eq!(eval("slct.b16.s32", &[1, 2, 0x8000_0000]), 2);
    }
}
