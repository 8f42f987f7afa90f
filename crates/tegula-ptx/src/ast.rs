//! The syntax tree of a PTX module.
//!
//! Names are kept as written. Lowering resolves registers, labels and symbols.
//! Source: PTX ISA 9.0, "Syntax", "State Spaces, Types, and Variables", "Directives".

use std::fmt;

pub use tegula_cuda_source::ScalarType;

/// A PTX module.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Module {
    /// `.version` as (major, minor).
    pub version: (u32, u32),
    /// `.target`, such as `sm_80` or `sm_90a`. Further targets, such as `debug`, are dropped.
    pub target: String,
    /// Source files, from `.file`: number and path.
    pub files: Vec<(u32, String)>,
    /// Variables at module scope.
    pub variables: Vec<Variable>,
    /// Kernels (`.entry`) and functions (`.func`), in source order; prototypes have no body.
    pub functions: Vec<Function>,
    /// `.alias`: further names of functions, as (name, function).
    pub aliases: Vec<(String, String)>,
}

/// A state space of PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum StateSpace {
    /// `.reg`
    Register,
    /// `.param`, also `.param::entry` and `.param::func`
    Param,
    /// `.global`
    Global,
    /// `.shared`, also `.shared::cta` and `.shared::cluster`
    Shared,
    /// `.local`
    Local,
    /// `.const`
    Const,
}

/// A declared variable, parameter or register.
#[derive(Clone, Debug, PartialEq)]
pub struct Variable {
    /// Its name.
    pub name: String,
    /// n of a register declaration `%r<n>`; `name` is then the prefix `%r`.
    pub count: Option<u32>,
    /// Its state space.
    pub space: StateSpace,
    /// The type of an element.
    pub ty: ScalarType,
    /// Elements of a vector type: 1, 2 or 4 (`.v2`, `.v4`).
    pub vector: u32,
    /// `.align`, in bytes.
    pub align: Option<u32>,
    /// Extents of an array, outermost first; 0 for `[]`. Empty for a scalar.
    pub dims: Vec<u64>,
    /// Initial values of the elements, in row-major order; missing elements at the end are zero.
    pub init: Vec<Initializer>,
    /// `.extern`: defined elsewhere. In shared memory: the launch's dynamic shared memory.
    pub external: bool,
    /// For parameters of kernels: `.ptr`.
    pub pointer: Option<PointerAttribute>,
    /// Line in the PTX text, from 1.
    pub line: u32,
}

impl Variable {
    /// Number of elements: the product of the extents and of the vector.
    pub fn elements(&self) -> u64 {
        self.dims.iter().fold(u64::from(self.vector), |n, &d| n.saturating_mul(d))
    }

    /// Size in bytes.
    pub fn bytes(&self) -> u64 {
        self.elements().saturating_mul(u64::from(self.ty.size()))
    }

    /// Alignment in bytes: as declared, otherwise that of the (vector) element.
    pub fn alignment(&self) -> u64 {
        u64::from(self.align.unwrap_or(self.ty.size() * self.vector))
    }
}

/// The attribute `.ptr.space.align n` of a kernel parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PointerAttribute {
    /// State space of the memory that it points to; `None` for a generic address.
    pub space: Option<StateSpace>,
    /// Alignment of the memory that it points to, in bytes.
    pub align: u32,
}

/// One element of an initial value.
#[derive(Clone, Debug, PartialEq)]
pub enum Initializer {
    /// The bits of a number, converted to the type of the variable.
    Bits(u64),
    /// The address of a symbol plus an offset; `generic(symbol)` gives a generic address.
    Address {
        /// The variable or function.
        symbol: String,
        /// Bytes added.
        offset: i64,
        /// Whether it is written with `generic(…)`.
        generic: bool,
        /// For `mask(expression)`: the position of the selected byte, in bits.
        shift: Option<u32>,
    },
}

/// A kernel or a function.
#[derive(Clone, Debug, PartialEq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// Whether it is a kernel.
    pub entry: bool,
    /// Return parameters of a function (`.reg` or `.param`).
    pub returns: Vec<Variable>,
    /// Parameters (`.param`, or `.reg` of a function).
    pub params: Vec<Variable>,
    /// `.maxntid`: the largest block, in threads per axis; 1 for omitted axes.
    pub max_block: Option<[u32; 3]>,
    /// `.reqntid`: the required block, in threads per axis; 1 for omitted axes.
    pub required_block: Option<[u32; 3]>,
    /// The body; `None` for a prototype.
    pub body: Option<Vec<Statement>>,
    /// Line in the PTX text, from 1.
    pub line: u32,
}

/// A statement of a function's body.
#[derive(Clone, Debug, PartialEq)]
pub enum Statement {
    /// `name:`
    Label(String),
    /// A declaration, such as `.reg`, `.local`, `.shared` or `.param`.
    Variable(Variable),
    /// An instruction.
    Instruction(Instruction),
    /// `.loc`: the source line of the following instructions.
    Loc(Loc),
    /// `{ … }`, a scope of names.
    Block(Vec<Statement>),
    /// `name: .branchtargets a, b;` or `.calltargets`.
    Targets {
        /// Name of the list.
        name: String,
        /// Labels or functions.
        targets: Vec<String>,
    },
    /// `name: .callprototype …;`
    Prototype {
        /// Name of the prototype.
        name: String,
        /// Return parameters.
        returns: Vec<Variable>,
        /// Parameters.
        params: Vec<Variable>,
    },
}

/// `.loc file line column [, function_name label, inlined_at file line column]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Loc {
    /// Number of a `.file`.
    pub file: u32,
    /// Line, from 1.
    pub line: u32,
    /// Column, from 1; 0 if unknown.
    pub column: u32,
    /// Position of the inlined call: file, line and column.
    pub inlined_at: Option<(u32, u32, u32)>,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Instruction {
    /// `@p` or `@!p`.
    pub guard: Option<Guard>,
    /// The opcode up to the first dot: `add`, `ld`, `setp`.
    pub opcode: String,
    /// The modifiers, split at dots: `["rn", "f32"]`. `shared::cta` is one modifier.
    pub modifiers: Vec<String>,
    /// The operands, as written.
    pub operands: Vec<Operand>,
    /// Line in the PTX text, from 1.
    pub line: u32,
}

/// The guard predicate of an instruction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Guard {
    /// The predicate register.
    pub register: String,
    /// Whether the instruction executes where the predicate is false (`@!p`).
    pub negated: bool,
}

/// An operand of an instruction.
#[derive(Clone, Debug, PartialEq)]
pub enum Operand {
    /// A register, label, symbol or special register: `%r1`, `LBB0_2`, `%tid.x`, `a.x`, `_`.
    Name(String),
    /// `name+offset` outside of brackets (`mov` of an address).
    NameOffset(String, i64),
    /// `!p`.
    Negated(String),
    /// An integer literal: its bits, sign-extended to 64 bits.
    Integer(i64),
    /// An `f32` literal (`0f3F800000`).
    F32(u32),
    /// An `f64` literal (`0d…`, or decimal).
    F64(u64),
    /// `[base+offset]`; the base may be a register, a symbol, or an integer address.
    Address {
        /// A register or symbol; `None` for an immediate address.
        base: Option<String>,
        /// Bytes added, or the immediate address.
        offset: i64,
    },
    /// `[a, {b, c}]`: a tensor map, a texture or a surface, with coordinates.
    Tensor(Vec<Operand>),
    /// `{a, b, …}`.
    Vector(Vec<Operand>),
    /// `d|p`, two destinations.
    Pair(Box<Operand>, Box<Operand>),
    /// `(a, b, …)`: parameters of a call.
    List(Vec<Operand>),
}

/// Prints an instruction as PTX, for messages.
impl fmt::Display for Instruction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(Guard { register, negated }) = &self.guard {
            write!(f, "@{}{register} ", if *negated { "!" } else { "" })?;
        }
        f.write_str(&self.opcode)?;
        self.modifiers.iter().try_for_each(|modifier| write!(f, ".{modifier}"))?;
        if !self.operands.is_empty() {
            f.write_str(" ")?;
        }
        separated(f, &self.operands)
    }
}

impl fmt::Display for Operand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let enclosed = |f: &mut fmt::Formatter<'_>, open: &str, operands: &[Operand], close: &str| {
            f.write_str(open)?;
            separated(f, operands)?;
            f.write_str(close)
        };
        match self {
            Operand::Name(name) => f.write_str(name),
            Operand::NameOffset(name, offset) => write!(f, "{name}+{offset}"),
            Operand::Negated(name) => write!(f, "!{name}"),
            Operand::Integer(value) => write!(f, "{value}"),
            Operand::F32(bits) => write!(f, "0f{bits:08X}"),
            Operand::F64(bits) => write!(f, "0d{bits:016X}"),
            Operand::Address { base: Some(base), offset: 0 } => write!(f, "[{base}]"),
            Operand::Address { base: Some(base), offset } => write!(f, "[{base}+{offset}]"),
            Operand::Address { base: None, offset } => write!(f, "[{offset}]"),
            Operand::Tensor(parts) => enclosed(f, "[", parts, "]"),
            Operand::Vector(elements) => enclosed(f, "{", elements, "}"),
            Operand::Pair(first, second) => write!(f, "{first}|{second}"),
            Operand::List(items) => enclosed(f, "(", items, ")"),
        }
    }
}

/// Writes operands with commas between them.
fn separated(f: &mut fmt::Formatter<'_>, operands: &[Operand]) -> fmt::Result {
    for (at, operand) in operands.iter().enumerate() {
        write!(f, "{}{operand}", if at == 0 { "" } else { ", " })?;
    }
    Ok(())
}
