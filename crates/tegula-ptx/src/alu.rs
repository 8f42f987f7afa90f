//! Arithmetic of one PTX instruction on the 32 lanes of a warp.
//!
//! The module has no state: it computes output lanes from input lanes. Each family of instructions
//! is a module with its syntax (`syntax::Form`) and its semantics. Results equal the hardware's bit
//! for bit, except those of approximate instructions. NaN payloads are those of an H100.
//! Source: PTX ISA 9.1, chapter "Instructions".

mod approx;
mod bits;
mod carry;
mod compare;
#[cfg(test)]
mod compiled;
mod convert;
mod double;
mod float;
mod half;
mod integer;
mod lanes;
mod logic;
mod minmax;
mod narrow;
mod pack;
mod single;
mod syntax;
#[cfg(test)]
mod testing;

use crate::ast::ScalarType;
use syntax::{Form, Words};

/// The values of a register in the 32 lanes of a warp.
///
/// A value occupies the low bits and is zero-extended to 64 bits, also if it is signed. A predicate
/// is 0 or 1.
pub type Lanes = [u64; 32];

/// An instruction that only computes: integer, floating-point, half-precision, logic, comparison,
/// selection, shift, and conversion instructions.
#[derive(Clone, Debug)]
pub struct Arithmetic {
    operation: Operation,
    signature: Signature,
    flops: u32,
    multiply_adds: u32,
    approximate: bool,
}

/// Types of the operands of an [`Arithmetic`] instruction, in the order in which they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Types of the destinations: one, or two (`setp p|q`, `lop3.or d|p`).
    ///
    /// A `setp` may be written with its first destination alone.
    pub destinations: Vec<ScalarType>,
    /// Types of the sources. A literal operand takes the type of its place.
    pub sources: Vec<ScalarType>,
    /// Whether it reads the carry flag.
    pub reads_carry: bool,
    /// Whether it writes the carry flag.
    pub writes_carry: bool,
}

/// The results of an instruction besides its values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Results {
    /// The carry flags as a mask of lanes. Those of inactive lanes stay, and all of them if the
    /// signature does not write them.
    pub carry: u32,
    /// Mask of the active lanes that divide an integer by zero.
    pub divided_by_zero: u32,
}

/// The operation of an instruction, by family.
#[derive(Clone, Copy, Debug)]
enum Operation {
    Integer(integer::Integer),
    Carry(carry::Carry),
    Bits(bits::Bits),
    Logic(logic::Logic),
    Float(float::Float),
    Half(half::Half),
    MinMax(minmax::MinMax),
    Approximate(approx::Approximate),
    Compare(compare::Compare),
    Convert(convert::Convert),
    Pack(pack::Pack),
}

/// The syntax of all families.
const FORMS: [&[Form]; 11] = [
    integer::FORMS,
    carry::FORMS,
    bits::FORMS,
    logic::FORMS,
    float::FORMS,
    half::FORMS,
    minmax::FORMS,
    approx::FORMS,
    compare::FORMS,
    convert::FORMS,
    pack::FORMS,
];

impl Arithmetic {
    /// Decodes an instruction.
    ///
    /// `sources` is the number of source operands as written. `None` if the opcode is not one of
    /// arithmetic, such as `ld` or `bra`, or for a `mov` other than of a scalar.
    ///
    /// # Errors
    /// The reason, for an unknown or unsupported combination of modifiers.
    pub fn decode(opcode: &str, modifiers: &[String], sources: usize) -> Option<Result<Self, String>> {
        let words = Words { opcode, modifiers, sources };
        let decoded = syntax::decode(&FORMS, &words)?;
        Some(decoded.and_then(|decoded| match decoded.signature.sources.len() {
            expected if expected == sources => Ok(decoded),
            expected => Err(format!("{expected} source operands are expected, not {sources}")),
        }))
    }

    /// The types of its operands.
    pub fn signature(&self) -> Signature {
        self.signature.clone()
    }

    /// Sets the width of the destination register in bits, if it is not that of the signature.
    ///
    /// A signed result of `cvt` is extended to it. It has no effect on other instructions.
    pub fn widen_destination(&mut self, bits: u32) {
        if let Operation::Convert(convert) = &mut self.operation {
            convert.widen(bits);
        }
    }

    /// Computes the results. Lanes outside of the mask `active` are undefined in the results.
    ///
    /// `sources` are those of the signature, in order; bits above a type's width are ignored.
    /// `carry` is the mask of lanes in which the carry flag is set. The destinations are written to
    /// `values`; the second only if the signature has two.
    pub fn eval(&self, sources: &[&Lanes], carry: u32, active: u32, values: &mut [Lanes; 2]) -> Results {
        let mut results = Results { carry, divided_by_zero: 0 };
        // Lanes above the last active one are not needed.
        let count = 32 - active.leading_zeros() as usize;
        let [first, second] = values.each_mut().map(|values| &mut values[..count]);
        match &self.operation {
            Operation::Integer(op) => results.divided_by_zero = op.eval(sources, first) & active,
            Operation::Carry(op) => results.carry = op.eval(sources, carry, first) & active | carry & !active,
            Operation::Bits(op) => op.eval(sources, first),
            Operation::Logic(op) => op.eval(sources, first, second),
            Operation::Float(op) => op.eval(sources, first),
            Operation::Half(op) => op.eval(sources, first),
            Operation::MinMax(op) => op.eval(sources, first),
            Operation::Approximate(op) => op.eval(sources, first),
            Operation::Compare(op) => op.eval(sources, first, second),
            Operation::Convert(op) => op.eval(sources, first),
            Operation::Pack(op) => op.eval(sources, first),
        }
        results
    }

    /// Floating-point operations of a lane: 1 for an addition, 2 for a multiply-add, 4 for the
    /// multiply-add of a pair.
    pub fn flops(&self) -> u32 {
        self.flops
    }

    /// Multiply-adds of a lane, of integers too.
    pub fn multiply_adds(&self) -> u32 {
        self.multiply_adds
    }

    /// Whether the result may differ from the hardware's in the last bits (`ex2.approx`, …).
    pub fn is_approximate(&self) -> bool {
        self.approximate
    }

    /// An instruction with one destination.
    fn new(operation: Operation, destination: ScalarType, sources: impl Into<Vec<ScalarType>>) -> Self {
        let signature = Signature {
            destinations: vec![destination],
            sources: sources.into(),
            reads_carry: false,
            writes_carry: false,
        };
        Self { operation, signature, flops: 0, multiply_adds: 0, approximate: false }
    }

    /// Adds what it costs.
    fn counting(self, flops: u32, multiply_adds: u32) -> Self {
        Self { flops, multiply_adds, ..self }
    }
}
