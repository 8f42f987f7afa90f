//! The state of the printer: registers, scopes, labels and lines.

use std::fmt::{self, Display, Write};
use std::mem::take;
use std::ops::Range;

use rustc_hash::FxHashMap;
use tegula_core::element::Type;
use tegula_core::error::Result;

use super::syntax::{bit_type, immediate, memory_type};
use crate::launch::Field;
use crate::{Axis, Checked, Guard, Inst, Kernel, Operand, ParamId, Scope as Threads, SiteId, Uniform, ValId, VarId};

/// The register classes of PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum RegisterClass {
    Pred,
    Half,
    Word,
    Long,
    Float,
    Double,
}

impl RegisterClass {
    /// In the order of the discriminants: the prefix of the names, and the declared type.
    const ALL: [(&str, &str); 6] =
        [("p", "pred"), ("h", "b16"), ("r", "b32"), ("rd", "b64"), ("f", "f32"), ("fd", "f64")];

    /// The register class of a type. 8-bit integers occupy 32-bit registers, sign- or
    /// zero-extended.
    pub fn of(ty: Type) -> Self {
        match ty {
            Type::Pred => RegisterClass::Pred,
            Type::F16 | Type::BF16 => RegisterClass::Half,
            Type::I8 | Type::U8 | Type::I32 | Type::U32 => RegisterClass::Word,
            Type::I64 | Type::U64 => RegisterClass::Long,
            Type::F32 => RegisterClass::Float,
            Type::F64 => RegisterClass::Double,
        }
    }

    /// Whether instructions accept immediates of the class.
    const fn has_immediates(self) -> bool {
        match self {
            RegisterClass::Pred | RegisterClass::Half => false,
            RegisterClass::Word | RegisterClass::Long | RegisterClass::Float | RegisterClass::Double => true,
        }
    }
}

/// A register: class and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reg(RegisterClass, u32);

impl Reg {
    pub fn class(self) -> RegisterClass {
        self.0
    }
}

impl Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('%')?;
        f.write_str(RegisterClass::ALL[self.0 as usize].0)?;
        self.1.fmt(f)
    }
}

/// A part of an address that is computed once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum AddressPart {
    /// The start of the block's shared memory.
    Arena,
    /// The start of shared memory plus the given number of elements of the given size in bytes.
    Shared(Operand, usize),
    /// An element of a swizzled array: the dynamic index, the offset within an atom, and the
    /// element size.
    Swizzled(Operand, u32, u32),
    /// A `wgmma` descriptor: the dynamic index, the start of the array, and the high bits.
    Descriptor(Operand, u32, u64),
    /// A number of strides along an axis.
    Strides(ParamId, Axis, u32),
    /// An address in a register plus a number of strides along an axis.
    Step(Reg, ParamId, Axis, Operand),
}

/// The requirements of a text for the assembler and the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Requirements {
    pub version: (u32, u32),
    pub target: u32,
    /// Whether the requirements hold for this architecture only (`sm_90a`).
    pub arch_specific: bool,
}

impl Requirements {
    /// The requirements of every kernel.
    pub const PLAIN: Requirements = Requirements { version: (6, 4), target: 75, arch_specific: false };
    /// `ldmatrix`.
    pub const LDMATRIX: Requirements = Requirements { version: (6, 5), target: 75, arch_specific: false };
    /// `cp.async`, most matrix instructions, and most of bf16.
    pub const SM_80: Requirements = Requirements { version: (7, 0), target: 80, arch_specific: false };
    /// The rest of bf16, and the larger matrix instructions of f64.
    pub const SM_90: Requirements = Requirements { version: (7, 8), target: 90, arch_specific: false };
    /// `wgmma` and `setmaxnreg`.
    pub const SM_90A: Requirements = Requirements { version: (8, 0), target: 90, arch_specific: true };
}

/// Text, with the source location of the operation behind each line.
#[derive(Default)]
pub(super) struct Lines {
    pub text: String,
    pub sites: Vec<Option<SiteId>>,
}

impl Lines {
    /// Appends one line.
    fn push(&mut self, site: Option<SiteId>, line: fmt::Arguments<'_>) {
        self.text.write_fmt(line).expect("a string takes any text");
        self.text.push('\n');
        self.sites.push(site);
    }

    pub fn append(&mut self, other: &Lines) {
        self.text += &other.text;
        self.sites.extend(&other.sites);
    }
}

/// A body being printed, with the address ranges available to it and to nested bodies.
#[derive(Default)]
pub(super) struct Scope {
    lines: Lines,
    pub addresses: FxHashMap<AddressPart, Reg>,
}

/// The register of a value, and the depth of the scope that defines it.
type ValueRegister = (Reg, usize);

pub(super) struct Printer<'a> {
    pub kernel: &'a Checked<Kernel>,
    names: &'a [(Field, String)],
    counts: [u32; 6],
    labels: u32,
    requirements: Requirements,
    values: Vec<Option<ValueRegister>>,
    vars: Vec<Option<Reg>>,
    pub cursors: FxHashMap<VarId, Reg>,
    params: FxHashMap<Field, Reg>,
    prologue: Lines,
    scopes: Vec<Scope>,
    /// The source location of the current operation.
    pub site: Option<SiteId>,
}

/// Registers, lines and scopes.
impl<'a> Printer<'a> {
    pub fn new(kernel: &'a Checked<Kernel>, names: &'a [(Field, String)]) -> Self {
        Printer {
            kernel,
            names,
            counts: [0; 6],
            labels: 0,
            requirements: Requirements::PLAIN,
            values: Vec::new(),
            vars: Vec::new(),
            cursors: FxHashMap::default(),
            params: FxHashMap::default(),
            prologue: Lines::default(),
            scopes: vec![Scope::default()],
            site: None,
        }
    }

    /// The body with its register declarations, and its requirements.
    pub fn finish(mut self) -> (Lines, Requirements) {
        let mut body = Lines::default();
        for ((prefix, ty), count) in RegisterClass::ALL.iter().zip(self.counts).filter(|(_, count)| *count > 0) {
            body.push(None, format_args!("\t.reg .{ty} %{prefix}<{count}>;"));
        }
        body.append(&self.prologue);
        body.append(&take(&mut self.scopes[0].lines));
        (body, self.requirements)
    }

    pub fn require(&mut self, requirements: Requirements) {
        self.requirements.version = self.requirements.version.max(requirements.version);
        self.requirements.target = self.requirements.target.max(requirements.target);
        self.requirements.arch_specific |= requirements.arch_specific;
    }

    pub fn fresh(&mut self, class: RegisterClass) -> Reg {
        let count = &mut self.counts[class as usize];
        *count += 1;
        Reg(class, *count - 1)
    }

    /// Appends an instruction to the innermost scope.
    pub fn line(&mut self, text: impl Display) {
        self.line_at(self.scopes.len() - 1, text);
    }

    /// Appends an instruction to an outer scope: before the nested loop or branch being printed.
    pub fn line_at(&mut self, depth: usize, text: impl Display) {
        self.scopes[depth].lines.push(self.site, format_args!("\t{text};"));
    }

    /// The depth of the innermost scope.
    pub fn innermost(&self) -> usize {
        self.scopes.len() - 1
    }

    pub fn label(&mut self) -> String {
        self.labels += 1;
        format!("$L{}", self.labels)
    }

    pub fn place_label(&mut self, label: &str) {
        let site = self.site;
        self.scopes.last_mut().expect("the outermost scope stays").lines.push(site, format_args!("{label}:"));
    }

    /// Prints into a new scope and returns its text. Only address ranges may be added to outer
    /// scopes.
    pub fn scope(&mut self, print: impl FnOnce(&mut Self) -> Result<()>) -> Result<Lines> {
        self.scopes.push(Scope::default());
        let printed = print(self);
        let scope = self.scopes.pop().unwrap_or_default();
        printed.map(|()| scope.lines)
    }

    pub fn append(&mut self, lines: &Lines) {
        self.scopes.last_mut().expect("the outermost scope stays").lines.append(lines);
    }

    pub fn scope_mut(&mut self, depth: usize) -> &mut Scope {
        &mut self.scopes[depth]
    }

    pub fn bind(&mut self, value: ValId, reg: Reg, depth: usize) {
        let index = value.index();
        if self.values.len() <= index {
            self.values.resize(index + 1, None);
        }
        self.values[index] = Some((reg, depth));
    }

    /// Allocates a register for a result of the current operation.
    pub fn result(&mut self, value: ValId) -> Reg {
        let reg = self.fresh(RegisterClass::of(self.kernel.value_type(value)));
        self.bind(value, reg, self.scopes.len() - 1);
        reg
    }

    pub fn results(&mut self, inst: &Inst) -> Vec<Reg> {
        inst.results.iter().map(|&value| self.result(value)).collect()
    }

    pub fn value_register(&self, value: ValId) -> ValueRegister {
        self.values.get(value.index()).copied().flatten().expect("a checked kernel computes values before it uses them")
    }

    /// The depth of the scope that defines an operand.
    pub fn depth(&self, operand: Operand) -> usize {
        match operand {
            Operand::Val(value) => self.value_register(value).1,
            Operand::Const(..) => 0,
        }
    }

    /// An operand in instruction syntax. Constants without an immediate form are moved to a
    /// register.
    pub fn operand(&mut self, operand: Operand) -> String {
        match operand {
            Operand::Val(value) => self.value_register(value).0.to_string(),
            Operand::Const(ty, _) if !RegisterClass::of(ty).has_immediates() => {
                let reg = self.fresh(RegisterClass::of(ty));
                self.copy(reg, operand);
                reg.to_string()
            }
            Operand::Const(ty, value) => immediate(ty, value),
        }
    }

    pub fn copy(&mut self, to: Reg, from: Operand) {
        let ty = self.kernel.operand_type(from);
        let from = match from {
            Operand::Const(ty, value) => immediate(ty, value),
            Operand::Val(_) => self.operand(from),
        };
        self.line(format_args!("mov.{} {to}, {from}", bit_type(ty)));
    }

    pub fn var(&mut self, var: VarId) -> Reg {
        let index = var.index();
        if self.vars.len() <= index {
            self.vars.resize(index + 1, None);
        }
        if let Some(reg) = self.vars[index] {
            return reg;
        }
        let reg = self.fresh(RegisterClass::of(self.kernel.var_type(var)));
        self.vars[index] = Some(reg);
        reg
    }

    /// The register of a parameter, loaded once in the prologue.
    pub fn param(&mut self, field: Field) -> Reg {
        if let Some(&reg) = self.params.get(&field) {
            return reg;
        }
        let name = self.names.iter().find(|(f, _)| *f == field).map_or("", |(_, name)| name);
        let (reg, held, ty) = match field {
            Field::Address(_) => (self.fresh(RegisterClass::Long), None, "u64"),
            Field::Tensor(_) => {
                let reg = self.fresh(RegisterClass::Long);
                self.require(Requirements::SM_90);
                self.prologue.push(None, format_args!("\tmov.b64 {reg}, {name};"));
                self.prologue.push(None, format_args!("\tcvta.param.u64 {reg}, {reg};"));
                self.params.insert(field, reg);
                return reg;
            }
            Field::Extent(..) => (self.fresh(RegisterClass::Word), None, "u32"),
            Field::Stride(..) => (self.fresh(RegisterClass::Long), None, "s64"),
            Field::Scalar(_, Type::Pred) => {
                let byte = self.fresh(RegisterClass::Word);
                (self.fresh(RegisterClass::Pred), Some(byte), "u8")
            }
            Field::Scalar(_, ty) => (self.fresh(RegisterClass::of(ty)), None, memory_type(ty)),
        };
        self.prologue.push(None, format_args!("\tld.param.{ty} {}, [{name}];", held.unwrap_or(reg)));
        if matches!(field, Field::Address(_)) {
            self.prologue.push(None, format_args!("\tcvta.to.global.u64 {reg}, {reg};"));
        }
        if let Some(byte) = held {
            self.prologue.push(None, format_args!("\tsetp.ne.u32 {reg}, {byte}, 0;"));
        }
        self.params.insert(field, reg);
        reg
    }

    fn uniform(&self, operand: Operand) -> Uniform {
        match operand {
            Operand::Val(value) => self.kernel.uniform(value),
            Operand::Const(..) => Uniform::Grid,
        }
    }

    /// The branch instruction for a condition: `bra.uni` where it is uniform in the warp.
    pub fn branch(&self, conditions: &[Operand]) -> &'static str {
        if conditions.iter().all(|&c| self.uniform(c) <= Uniform::Warp) { "bra.uni" } else { "bra" }
    }

    /// The predicated accesses of a guard: the predicate prefix, and the range of elements.
    pub fn predicated_ranges(&mut self, guard: Guard, width: u32) -> Vec<(String, Range<usize>)> {
        let all = 0..width as usize;
        match guard {
            Guard::Always => vec![(String::new(), all)],
            Guard::If(holds) => vec![(format!("@{} ", self.operand(holds)), all)],
            Guard::First(valid) => {
                let (whole, valid) = (self.fresh(RegisterClass::Pred), self.register(valid));
                self.line(format_args!("setp.ge.u32 {whole}, {valid}, {width}"));
                let mut ranges = vec![(format!("@{whole} "), all)];
                for i in 0..width as usize - 1 {
                    let one = self.fresh(RegisterClass::Pred);
                    self.line(format_args!("setp.gt.and.u32 {one}, {valid}, {i}, !{whole}"));
                    ranges.push((format!("@{one} "), i..i + 1));
                }
                ranges
            }
        }
    }

    /// An operand in a register.
    pub fn register(&mut self, operand: Operand) -> Reg {
        match operand {
            Operand::Val(value) => self.value_register(value).0,
            Operand::Const(ty, _) => {
                let reg = self.fresh(RegisterClass::of(ty));
                self.copy(reg, operand);
                reg
            }
        }
    }
}

/// Registers in vector syntax; a single register without braces.
pub(super) fn vector_operand(registers: &[impl Display]) -> String {
    let list: Vec<String> = registers.iter().map(ToString::to_string).collect();
    if let [one] = &list[..] { one.clone() } else { format!("{{{}}}", list.join(", ")) }
}

pub(super) fn scope_name(scope: Threads) -> &'static str {
    match scope {
        Threads::Block => "cta",
        Threads::Device => "gpu",
        Threads::System => "sys",
    }
}
