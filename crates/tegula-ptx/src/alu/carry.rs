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
    pub fn eval(&self, sources: &[&Lanes], carry_in: u32, out: &mut [u64]) -> u32 {
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

#[cfg(test)]
mod tests {
    use super::super::testing::{Random, eval_full};

    /// Runs an instruction, and passes the carry on.
    fn step(spelling: &str, sources: &[u64], carry: &mut bool) -> u64 {
        let ([value, _], results) = eval_full(spelling, sources, *carry);
        assert!(results.carry == 0 || results.carry == u32::MAX);
        *carry = results.carry != 0;
        value
    }

    fn numbers() -> impl Iterator<Item = [u128; 2]> {
        let mut random = Random(5);
        let mut number = move || {
            let number = u128::from(random.next()) << 64 | u128::from(random.next());
            // Runs of ones and zeros, so that carries travel far.
            if random.next().is_multiple_of(2) { number } else { (number as i128 >> (random.next() % 120)) as u128 }
        };
        (0..100).map(move |_| [number(), number()])
    }

    #[test]
    fn chains_equal_arithmetic_of_128_bits() {
        for [a, b] in numbers() {
            for (width, unsigned, signed) in [(32, "u32", "s32"), (64, "u64", "s64")] {
                let words = 128 / width;
                let word = |value: u128, n: u32| (value >> (n * width)) as u64 & u64::MAX >> (64 - width);
                for (first, next, exact) in
                    [("add.cc", "addc.cc", a.wrapping_add(b)), ("sub.cc", "subc.cc", a.wrapping_sub(b))]
                {
                    let (mut carry, mut result) = (true, 0);
                    for n in 0..words {
                        let ty = if n % 2 == 0 { unsigned } else { signed };
                        let spelling = format!("{}.{ty}", if n == 0 { first } else { next });
                        let value = step(&spelling, &[word(a, n), word(b, n)], &mut carry);
                        result |= u128::from(value) << (n * width);
                    }
                    assert_eq!(result, exact, "{first} {width} of {a:#x} and {b:#x}");
                    let overflows = if first == "add.cc" { a.checked_add(b) } else { a.checked_sub(b) }.is_none();
                    assert_eq!(carry, overflows);
                }
            }
        }
    }

    #[test]
    fn product_of_64_bits_is_made_of_words() {
        // The example of the PTX ISA for `madc`.
        for [a, b] in numbers() {
            let word = |value: u128, n: u32| (value >> (32 * n)) as u64 & 0xffff_ffff;
            let (a0, a1, b0, b1) = (word(a, 0), word(a, 1), word(b, 0), word(b, 1));
            let mut carry = false;
            let low = super::super::testing::eval("mul.lo.u32", &[a0, b0]);
            let mut r1 = super::super::testing::eval("mul.hi.u32", &[a0, b0]);
            r1 = step("mad.lo.cc.u32", &[a1, b0, r1], &mut carry);
            let mut r2 = step("madc.hi.u32", &[a1, b0, 0], &mut carry);
            r1 = step("mad.lo.cc.u32", &[a0, b1, r1], &mut carry);
            r2 = step("madc.hi.cc.u32", &[a0, b1, r2], &mut carry);
            let mut r3 = step("addc.u32", &[0, 0], &mut carry);
            r2 = step("mad.lo.cc.u32", &[a1, b1, r2], &mut carry);
            r3 = step("madc.hi.u32", &[a1, b1, r3], &mut carry);
            let result = [low, r1, r2, r3].iter().rev().fold(0u128, |sum, &w| sum << 32 | u128::from(w));
            assert_eq!(result, u128::from(a as u64) * u128::from(b as u64));
        }
    }

    #[test]
    fn flags_stay_without_cc() {
        let (_, results) = eval_full("addc.u32", &[0xffff_ffff, 1], false);
        assert_eq!(results.carry, 0);
        let (values, results) = eval_full("subc.u32", &[0, 0], true);
        assert_eq!((values[0], results.carry), (0xffff_ffff, u32::MAX));
        let instruction = super::super::testing::decode("add.cc.u32", 2).unwrap().unwrap();
        let results = instruction.eval(&[&[u64::MAX; 32]; 2], 0xf0, 0x3, &mut [[0; 32]; 2]);
        assert_eq!(results.carry, 0xf3, "flags of inactive lanes stay");
        let ([value, _], _) = eval_full("madc.hi.s64", &[u64::MAX, u64::MAX, 3], true);
        assert_eq!(value, 4, "(-1)(-1) has a high half of 0");
        let ([value, _], _) = eval_full("mad.hi.cc.s32", &[0xffff_ffff, 2, 0], true);
        assert_eq!(value, 0xffff_ffff, "mad.cc does not read the flag");
    }
}
