//! The text in the making: registers, scopes, labels and lines.

use std::fmt::{self, Display, Write};
use std::mem::take;
use std::ops::Range;

use rustc_hash::FxHashMap;
use tegula_core::element::Type;
use tegula_core::error::Result;

use super::spelling::{bits, immediate, stored};
use crate::launch::Field;
use crate::{Axis, Checked, Guard, Inst, Kernel, Operand, ParamId, Scope as Threads, SiteId, Uniform, ValId, VarId};

/// The kinds of registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Class {
    Pred,
    Half,
    Word,
    Long,
    Float,
    Double,
}

impl Class {
    /// In the order of their discriminants: the prefix of the names, and the type to declare.
    const ALL: [(&str, &str); 6] =
        [("p", "pred"), ("h", "b16"), ("r", "b32"), ("rd", "b64"), ("f", "f32"), ("fd", "f64")];

    /// Where a value of a type lives. 8-bit integers live in 32-bit registers, extended by their sign.
    pub fn of(ty: Type) -> Self {
        match ty {
            Type::Pred => Class::Pred,
            Type::F16 | Type::BF16 => Class::Half,
            Type::I8 | Type::U8 | Type::I32 | Type::U32 => Class::Word,
            Type::I64 | Type::U64 => Class::Long,
            Type::F32 => Class::Float,
            Type::F64 => Class::Double,
        }
    }

    /// Whether instructions take constants of the class, which need no register then.
    const fn has_immediates(self) -> bool {
        match self {
            Class::Pred | Class::Half => false,
            Class::Word | Class::Long | Class::Float | Class::Double => true,
        }
    }
}

/// A register, by kind and number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Reg(Class, u32);

impl Reg {
    pub fn class(self) -> Class {
        self.0
    }
}

impl Display for Reg {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('%')?;
        f.write_str(Class::ALL[self.0 as usize].0)?;
        self.1.fmt(f)
    }
}

/// A part of an address that need not be computed twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Address {
    /// Where the block's shared memory starts.
    Arena,
    /// That, and so many elements of so many bytes.
    Shared(Operand, usize),
    /// An element of a swizzled array that starts so many bytes into it: the part known at run time, and the other.
    Swizzled(Operand, u32, u32),
    /// A factor of a matrix instruction: where it begins, the start of its array, and how it lies.
    Factor(Operand, u32, u64),
    /// So many strides along an axis.
    Strides(ParamId, Axis, u32),
    /// Where a register points, and so many steps along an axis.
    Step(Reg, ParamId, Axis, Operand),
}

/// What a text demands of the assembler and the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Needs {
    pub version: (u32, u32),
    pub target: u32,
    /// Whether what it needs is in no later GPU.
    pub only: bool,
}

impl Needs {
    /// What every kernel needs.
    pub const PLAIN: Needs = Needs { version: (6, 4), target: 75, only: false };
    /// Loads of matrices.
    pub const LDMATRIX: Needs = Needs { version: (6, 5), target: 75, only: false };
    /// Asynchronous copies, most matrix instructions, and most of bf16.
    pub const SM_80: Needs = Needs { version: (7, 0), target: 80, only: false };
    /// The rest of bf16, and the larger matrix instructions of f64.
    pub const SM_90: Needs = Needs { version: (7, 8), target: 90, only: false };
    /// Matrix instructions of warpgroups, and registers that move.
    pub const SM_90A: Needs = Needs { version: (8, 0), target: 90, only: true };
}

/// Text, and for each of its lines where the operation was written that it belongs to.
#[derive(Default)]
pub(super) struct Lines {
    pub text: String,
    pub sites: Vec<Option<SiteId>>,
}

impl Lines {
    /// One line.
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

/// A body being printed, with the addresses that it and the bodies in it may use.
#[derive(Default)]
pub(super) struct Scope {
    lines: Lines,
    pub addresses: FxHashMap<Address, Reg>,
}

/// A value's register and how many bodies deep it is computed.
type Home = (Reg, usize);

pub(super) struct Printer<'a> {
    pub kernel: &'a Checked<Kernel>,
    names: &'a [(Field, String)],
    counts: [u32; 6],
    labels: u32,
    needs: Needs,
    values: Vec<Option<Home>>,
    vars: Vec<Option<Reg>>,
    pub cursors: FxHashMap<VarId, Reg>,
    params: FxHashMap<Field, Reg>,
    prologue: Lines,
    scopes: Vec<Scope>,
    /// Where the operation at hand was written.
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
            needs: Needs::PLAIN,
            values: Vec::new(),
            vars: Vec::new(),
            cursors: FxHashMap::default(),
            params: FxHashMap::default(),
            prologue: Lines::default(),
            scopes: vec![Scope::default()],
            site: None,
        }
    }

    /// The body, its registers declared, and what it needs.
    pub fn finish(mut self) -> (Lines, Needs) {
        let mut body = Lines::default();
        for ((prefix, ty), count) in Class::ALL.iter().zip(self.counts).filter(|(_, count)| *count > 0) {
            body.push(None, format_args!("\t.reg .{ty} %{prefix}<{count}>;"));
        }
        body.append(&self.prologue);
        body.append(&take(&mut self.scopes[0].lines));
        (body, self.needs)
    }

    pub fn need(&mut self, needs: Needs) {
        self.needs.version = self.needs.version.max(needs.version);
        self.needs.target = self.needs.target.max(needs.target);
        self.needs.only |= needs.only;
    }

    pub fn fresh(&mut self, class: Class) -> Reg {
        let count = &mut self.counts[class as usize];
        *count += 1;
        Reg(class, *count - 1)
    }

    /// Writes an instruction at the end of the innermost scope.
    pub fn line(&mut self, text: impl Display) {
        self.line_at(self.scopes.len() - 1, text);
    }

    /// Writes an instruction at the end of a scope: before the loop or branch that is being printed in it, if one is.
    pub fn line_at(&mut self, depth: usize, text: impl Display) {
        self.scopes[depth].lines.push(self.site, format_args!("\t{text};"));
    }

    /// The innermost scope.
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

    /// Prints in a scope of its own and gives the text; only parts of addresses may have gone to the scopes around it.
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

    pub fn keep(&mut self, value: ValId, reg: Reg, depth: usize) {
        let index = value.index();
        if self.values.len() <= index {
            self.values.resize(index + 1, None);
        }
        self.values[index] = Some((reg, depth));
    }

    /// A new register for a result of the operation at hand.
    pub fn result(&mut self, value: ValId) -> Reg {
        let reg = self.fresh(Class::of(self.kernel.value_type(value)));
        self.keep(value, reg, self.scopes.len() - 1);
        reg
    }

    pub fn results(&mut self, inst: &Inst) -> Vec<Reg> {
        inst.results.iter().map(|&value| self.result(value)).collect()
    }

    pub fn home(&self, value: ValId) -> Home {
        self.values.get(value.index()).copied().flatten().expect("a checked kernel computes values before it uses them")
    }

    /// In how many loops and branches a value is known.
    pub fn depth(&self, operand: Operand) -> usize {
        match operand {
            Operand::Val(value) => self.home(value).1,
            Operand::Const(..) => 0,
        }
    }

    /// An operand as instructions take it. Constants without an immediate form get a register.
    pub fn operand(&mut self, operand: Operand) -> String {
        match operand {
            Operand::Val(value) => self.home(value).0.to_string(),
            Operand::Const(ty, _) if !Class::of(ty).has_immediates() => {
                let reg = self.fresh(Class::of(ty));
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
        self.line(format_args!("mov.{} {to}, {from}", bits(ty)));
    }

    pub fn var(&mut self, var: VarId) -> Reg {
        let index = var.index();
        if self.vars.len() <= index {
            self.vars.resize(index + 1, None);
        }
        if let Some(reg) = self.vars[index] {
            return reg;
        }
        let reg = self.fresh(Class::of(self.kernel.var_type(var)));
        self.vars[index] = Some(reg);
        reg
    }

    /// A parameter, loaded once, before everything else.
    pub fn param(&mut self, field: Field) -> Reg {
        if let Some(&reg) = self.params.get(&field) {
            return reg;
        }
        let name = self.names.iter().find(|(f, _)| *f == field).map_or("", |(_, name)| name);
        let (reg, held, ty) = match field {
            Field::Address(_) => (self.fresh(Class::Long), None, "u64"),
            Field::Tensor(_) => {
                let reg = self.fresh(Class::Long);
                self.need(Needs::SM_90);
                self.prologue.push(None, format_args!("\tmov.b64 {reg}, {name};"));
                self.prologue.push(None, format_args!("\tcvta.param.u64 {reg}, {reg};"));
                self.params.insert(field, reg);
                return reg;
            }
            Field::Extent(..) => (self.fresh(Class::Word), None, "u32"),
            Field::Stride(..) => (self.fresh(Class::Long), None, "s64"),
            Field::Scalar(_, Type::Pred) => {
                let byte = self.fresh(Class::Word);
                (self.fresh(Class::Pred), Some(byte), "u8")
            }
            Field::Scalar(_, ty) => (self.fresh(Class::of(ty)), None, stored(ty)),
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

    /// The branch for a condition: one that all lanes of a warp take together says so.
    pub fn branch(&self, conditions: &[Operand]) -> &'static str {
        if conditions.iter().all(|&c| self.uniform(c) <= Uniform::Warp) { "bra.uni" } else { "bra" }
    }

    /// A guard as the predicated parts of an access: what stands before the instruction, and which elements it moves.
    pub fn parts(&mut self, guard: Guard, width: u32) -> Vec<(String, Range<usize>)> {
        let all = 0..width as usize;
        match guard {
            Guard::Always => vec![(String::new(), all)],
            Guard::If(holds) => vec![(format!("@{} ", self.operand(holds)), all)],
            Guard::First(valid) => {
                let (whole, valid) = (self.fresh(Class::Pred), self.register(valid));
                self.line(format_args!("setp.ge.u32 {whole}, {valid}, {width}"));
                let mut parts = vec![(format!("@{whole} "), all)];
                for i in 0..width as usize - 1 {
                    let one = self.fresh(Class::Pred);
                    self.line(format_args!("setp.gt.and.u32 {one}, {valid}, {i}, !{whole}"));
                    parts.push((format!("@{one} "), i..i + 1));
                }
                parts
            }
        }
    }

    /// An operand in a register, whatever it is.
    pub fn register(&mut self, operand: Operand) -> Reg {
        match operand {
            Operand::Val(value) => self.home(value).0,
            Operand::Const(ty, _) => {
                let reg = self.fresh(Class::of(ty));
                self.copy(reg, operand);
                reg
            }
        }
    }
}

/// Registers as a vector; one register as itself.
pub(super) fn braced(registers: &[impl Display]) -> String {
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
