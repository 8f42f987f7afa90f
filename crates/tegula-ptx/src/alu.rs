//! Arithmetic of one PTX instruction on the 32 lanes of a warp.
//!
//! It knows neither registers nor memory: lanes in, lanes out.

/// The values of a register in the 32 lanes of a warp.
///
/// A value occupies the low bits and is zero-extended to 64 bits, also if it is signed. A predicate
/// is 0 or 1.
pub type Lanes = [u64; 32];

/// An instruction that only computes: integer, floating-point, half-precision, logic, comparison,
/// selection, shift, and conversion instructions.
#[derive(Clone, Debug)]
pub struct Arithmetic {}

/// Types of the operands of an [`Arithmetic`] instruction, in the order in which they are written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Signature {
    /// Types of the destinations: one, or two (`setp p|q`).
    pub destinations: Vec<crate::ast::ScalarType>,
    /// Types of the sources. A literal operand takes the type of its place.
    pub sources: Vec<crate::ast::ScalarType>,
    /// Whether it reads the carry flag.
    pub reads_carry: bool,
    /// Whether it writes the carry flag.
    pub writes_carry: bool,
}

/// The results of an instruction.
#[derive(Clone, Debug)]
pub struct Results {
    /// The destinations; the second is unused unless the signature has two.
    pub values: [Lanes; 2],
    /// The carry flag, 0 or 1.
    pub carry: Lanes,
    /// Mask of the lanes that divide an integer by zero.
    pub divided_by_zero: u32,
}

impl Arithmetic {
    /// Decodes an instruction.
    ///
    /// `None` if the opcode is not one of arithmetic, such as `ld` or `bra`.
    ///
    /// # Errors
    /// The reason, for an unknown or unsupported combination of modifiers.
    pub fn decode(opcode: &str, modifiers: &[String], sources: usize) -> Option<Result<Self, String>> {
        let _ = (opcode, modifiers, sources);
        None
    }

    /// The types of its operands.
    pub fn signature(&self) -> Signature {
        Signature { destinations: vec![], sources: vec![], reads_carry: false, writes_carry: false }
    }

    /// Computes the results. Lanes outside of the mask are undefined in the results.
    ///
    /// `sources` are those of the signature, in order.
    pub fn eval(&self, sources: &[&Lanes], carry: &Lanes, active: u32) -> Results {
        let _ = (sources, active);
        Results { values: [[0; 32]; 2], carry: *carry, divided_by_zero: 0 }
    }

    /// Floating-point operations of a lane: 1 for an addition, 2 for a multiply-add, 4 for the
    /// multiply-add of a pair.
    pub fn flops(&self) -> u32 {
        0
    }

    /// Multiply-adds of a lane, of integers too.
    pub fn multiply_adds(&self) -> u32 {
        0
    }

    /// Whether the result may differ from the hardware's in the last bits (`ex2.approx`, …).
    pub fn is_approximate(&self) -> bool {
        false
    }
}
