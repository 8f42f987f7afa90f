//! Extended-precision integer arithmetic: `add.cc`, `addc`, `sub.cc`, `subc`, `mad.cc`, `madc`.

use super::syntax::{Form, Words};
use super::{Arithmetic, Lanes, Operation};
use crate::ast::ScalarType::{S32, S64, U32, U64};

pub(super) const FORMS: &[Form] = &[
    Form::new("add sub", "cc u32|s32|u64|s64", build),
    Form::new("addc subc", "cc? u32|s32|u64|s64", build),
    Form::new("mad", "lo|hi cc u32|s32|u64|s64", build),
    Form::new("madc", "lo|hi cc? u32|s32|u64|s64", build),
];

/// An instruction that reads or writes the carry flag.
#[derive(Clone, Copy, Debug)]
pub(super) struct Carry {
    op: Op,
    /// Whether its operands have 64 bits, not 32.
    long: bool,
    signed: bool,
    reads: bool,
    writes: bool,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Add,
    Sub,
    Mad { high: bool },
}

fn build(words: &Words) -> Result<Arithmetic, String> {
    let types = [("u32", U32), ("s32", S32), ("u64", U64), ("s64", S64)];
    let ty = words.pick(&types).ok_or_else(|| words.unsupported())?;
    let (op, sources) = match words.opcode {
        "add" | "addc" => (Op::Add, 2),
        "sub" | "subc" => (Op::Sub, 2),
        _ => (Op::Mad { high: words.has("hi") }, 3),
    };
    let carry = Carry {
        op,
        long: ty.size() == 8,
        signed: ty.is_signed(),
        reads: words.opcode.ends_with('c'),
        writes: words.has("cc"),
    };
    let mut arithmetic = Arithmetic::new(Operation::Carry(carry), ty, vec![ty; sources]);
    arithmetic.signature.reads_carry = carry.reads;
    arithmetic.signature.writes_carry = carry.writes;
    Ok(arithmetic.counting(0, u32::from(sources == 3)))
}

impl Carry {
    /// Computes the lanes, and the mask of their carry flags.
    pub fn eval(&self, sources: &[&Lanes], carry_in: u32, out: &mut Lanes) -> u32 {
        let mask = if self.long { u64::MAX } else { u64::from(u32::MAX) };
        let bits = if self.long { 64 } else { 32 };
        let mut carry_out = 0;
        for (lane, out) in out.iter_mut().enumerate() {
            let source = |n: usize| sources.get(n).map_or(0, |lanes| lanes[lane] & mask);
            let carry = u64::from(self.reads && carry_in >> lane & 1 == 1);
            // The result fits 66 bits; a borrow makes it negative.
            let result = match self.op {
                Op::Add => i128::from(source(0)) + i128::from(source(1)) + i128::from(carry),
                Op::Sub => i128::from(source(0)) - i128::from(source(1)) - i128::from(carry),
                Op::Mad { high } => {
                    let product = self.product(source(0), source(1), high) & mask;
                    i128::from(product) + i128::from(source(2)) + i128::from(carry)
                }
            };
            *out = result as u64 & mask;
            carry_out |= u32::from(result >> bits != 0) << lane;
        }
        if self.writes { carry_out } else { carry_in }
    }

    /// The low or high half of a product.
    fn product(&self, a: u64, b: u64, high: bool) -> u64 {
        let product = match (self.signed, self.long) {
            (false, _) => u128::from(a) * u128::from(b),
            (true, false) => (i128::from(a as i32) * i128::from(b as i32)) as u128,
            (true, true) => (i128::from(a as i64) * i128::from(b as i64)) as u128,
        };
        match (high, self.long) {
            (false, _) => product as u64,
            (true, false) => (product >> 32) as u64,
            (true, true) => (product >> 64) as u64,
        }
    }
}
