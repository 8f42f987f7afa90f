//! One arm an operation; registers, scopes and labels.

use std::fmt::{self, Display, Write};
use std::mem::take;
use std::ops::Range;

use rustc_hash::FxHashMap;
use tegula_core::element::Type;
use tegula_core::error::Result;

use super::memory::Address;
use super::number::{bits, immediate, number};
use crate::launch::Field;
use crate::{
    Checked, Guard, Inst, Kernel, Op, Operand, Scope as Threads, Shuffle, SiteId, Special, Uniform, ValId, VarId, Vote,
};

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
    site: Option<SiteId>,
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
    fn scope(&mut self, print: impl FnOnce(&mut Self) -> Result<()>) -> Result<Lines> {
        self.scopes.push(Scope::default());
        let printed = print(self);
        let scope = self.scopes.pop().unwrap_or_default();
        printed.map(|()| scope.lines)
    }

    fn append(&mut self, lines: &Lines) {
        self.scopes.last_mut().expect("the outermost scope stays").lines.append(lines);
    }

    pub fn scope_mut(&mut self, depth: usize) -> &mut Scope {
        &mut self.scopes[depth]
    }

    fn keep(&mut self, value: ValId, reg: Reg, depth: usize) {
        let index = value.index();
        if self.values.len() <= index {
            self.values.resize(index + 1, None);
        }
        self.values[index] = Some((reg, depth));
    }

    /// A new register for a result of the operation at hand.
    fn result(&mut self, value: ValId) -> Reg {
        let reg = self.fresh(Class::of(self.kernel.value_type(value)));
        self.keep(value, reg, self.scopes.len() - 1);
        reg
    }

    pub fn results(&mut self, inst: &Inst) -> Vec<Reg> {
        inst.results.iter().map(|&value| self.result(value)).collect()
    }

    fn home(&self, value: ValId) -> Home {
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
            Operand::Const(ty @ (Type::F16 | Type::BF16 | Type::Pred), _) => {
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
            Field::Scalar(_, ty) => (self.fresh(Class::of(ty)), None, super::number::stored(ty)),
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
    fn branch(&self, conditions: &[Operand]) -> &'static str {
        if conditions.iter().all(|&c| self.uniform(c) <= Uniform::Warp) { "bra.uni" } else { "bra" }
    }
}

/// The operations.
impl Printer<'_> {
    pub fn region(&mut self, insts: &[Inst]) -> Result<()> {
        insts.iter().try_for_each(|inst| self.inst(inst))
    }

    fn inst(&mut self, inst: &Inst) -> Result<()> {
        let around = self.site.replace(inst.site);
        let printed = self.operation(inst);
        self.site = around;
        printed
    }

    fn operation(&mut self, inst: &Inst) -> Result<()> {
        match &inst.op {
            Op::Special(special) => self.special(*special, inst.results[0]),
            Op::Extent(param, axis) => {
                let reg = self.param(Field::Extent(*param, *axis));
                self.keep(inst.results[0], reg, 0);
            }
            Op::Scalar(param) => {
                let reg = self.param(Field::Scalar(*param, self.kernel.value_type(inst.results[0])));
                self.keep(inst.results[0], reg, 0);
            }
            Op::Unary(op, a) => self.unary(inst, *op, *a)?,
            Op::Binary(op, a, b) => self.binary(inst, *op, *a, *b)?,
            Op::MulAdd(a, b, c) => self.mul_add(inst, [*a, *b, *c])?,
            Op::Compare(how, a, b) => {
                let d = self.result(inst.results[0]);
                self.compare(d, *how, *a, *b)?;
            }
            Op::Select(condition, yes, no) => self.select(inst, *condition, *yes, *no),
            Op::Convert(a) => self.convert(inst, *a)?,
            Op::Bitcast(a) => self.bitcast(inst, *a),
            Op::Uniform(_, a) => match *a {
                Operand::Val(value) => {
                    let (reg, depth) = self.home(value);
                    self.keep(inst.results[0], reg, depth);
                }
                constant => {
                    let d = self.result(inst.results[0]);
                    self.copy(d, constant);
                }
            },
            Op::RoundTf32(a) => self.round_tf32(inst, *a),
            Op::Pack(low, high) => {
                let (d, low, high) = (self.result(inst.results[0]), self.register(*low), self.register(*high));
                self.line(format_args!("mov.b32 {d}, {{{low}, {high}}}"));
            }
            Op::Get(var) => {
                let (d, var, ty) = (self.result(inst.results[0]), self.var(*var), self.kernel.var_type(*var));
                self.line(format_args!("mov.{} {d}, {var}", bits(ty)));
            }
            Op::SetCursor(cursor, at) => self.set_cursor(*cursor, at),
            Op::MoveCursor { cursor, param, rows, cols } => self.move_cursor(*cursor, *param, [*rows, *cols]),
            Op::Set(var, value) => {
                let var = self.var(*var);
                self.copy(var, *value);
            }
            Op::Load { from, width, guard, fill, order, scope } => {
                self.load(inst, from, *width, *guard, *fill, *order, *scope);
            }
            Op::Store { to, values, guard, order, scope } => self.store(to, values, *guard, *order, *scope),
            Op::Atomic { op, at, value, order, scope } => self.atomic(inst, *op, at, *value, *order, *scope),
            Op::Fence(scope) => self.line(format_args!("fence.acq_rel.{}", scope_name(*scope))),
            Op::WaitUntil { at, compare, value, scope } => {
                let again = self.label();
                let (at, ty) = (self.locate(at), self.kernel.place_type(at));
                let (now, met, value) = (self.fresh(Class::of(ty)), self.fresh(Class::Pred), self.operand(*value));
                let (scope, space, ty) = (scope_name(*scope), at.space, number(ty)?);
                self.place_label(&again);
                self.line(format_args!("ld.acquire.{scope}.{space}.{ty} {now}, {at}"));
                self.line(format_args!("setp.{}.{ty} {met}, {now}, {value}", super::number::relation(*compare)));
                self.line(format_args!("@!{met} bra {again}"));
            }
            Op::CopyAsync { to, from, width, guard } => self.copy_async(to, from, *width, *guard),
            Op::CopyAsyncCommit => self.line("cp.async.commit_group"),
            Op::CopyAsyncWait { pending } => self.line(format_args!("cp.async.wait_group {pending}")),
            Op::Barrier => self.line("bar.sync 0"),
            Op::NamedBarrier { id, threads, wait } => {
                let (how, id) = (if *wait { "sync" } else { "arrive" }, self.operand(*id));
                self.line(format_args!("bar.{how} {id}, {threads}"));
            }
            Op::SyncWarp { mask } => self.line(format_args!("bar.warp.sync {mask:#010x}")),
            Op::Shuffle { mode, value, lane, mask } => self.shuffle(inst, *mode, *value, *lane, *mask),
            Op::Vote { mode, value, mask } => {
                let (d, value) = (self.result(inst.results[0]), self.operand(*value));
                let mode = match mode {
                    Vote::All => "all.pred",
                    Vote::Any => "any.pred",
                    Vote::Ballot => "ballot.b32",
                };
                self.line(format_args!("vote.sync.{mode} {d}, {value}, {mask:#010x}"));
            }
            Op::Mma { mma, a, b, sums } => self.mma(*mma, [a, b], *sums),
            Op::LoadMatrix { from, count, transposed } => self.load_matrix(inst, from, *count, *transposed),
            Op::Hopper(op) => self.hopper(op),
            Op::For { start, end, step, unroll, body } => self.for_loop(inst, [*start, *end, *step], *unroll, body)?,
            Op::If { condition, then, otherwise } => self.if_else(*condition, then, otherwise)?,
            Op::While { condition, test, body } => self.while_loop(condition, *test, body)?,
        }
        Ok(())
    }

    fn special(&mut self, special: Special, value: ValId) {
        let d = self.result(value);
        let name = match special {
            Special::ThreadX => "%tid.x",
            Special::ThreadY => "%tid.y",
            Special::ThreadZ => "%tid.z",
            Special::BlockX => "%ctaid.x",
            Special::BlockY => "%ctaid.y",
            Special::BlockZ => "%ctaid.z",
            Special::GridX => "%nctaid.x",
            Special::GridY => "%nctaid.y",
            Special::GridZ => "%nctaid.z",
            Special::Lane => "%laneid",
            Special::Warp => return self.warp(d),
            Special::Warpgroup => {
                self.warp(d);
                return self.line(format_args!("shr.u32 {d}, {d}, 2"));
            }
            Special::Cluster => "%clusterid.x",
            Special::ClusterRank => "%cluster_ctarank",
            Special::Multiprocessors => unreachable!("checked: the grid alone knows it"),
        };
        if matches!(special, Special::Cluster | Special::ClusterRank) {
            self.need(Needs::SM_90);
        }
        self.line(format_args!("mov.u32 {d}, {name}"));
    }

    /// The warp's position in its block. `%warpid` is where the warp runs, which is something else.
    fn warp(&mut self, d: Reg) {
        let [x, y, _] = self.kernel.block();
        let [thread_x, thread_y, thread_z] = [(); 3].map(|()| self.fresh(Class::Word));
        for (reg, axis) in [(thread_x, 'x'), (thread_y, 'y'), (thread_z, 'z')] {
            self.line(format_args!("mov.u32 {reg}, %tid.{axis}"));
        }
        self.line(format_args!("mad.lo.u32 {d}, {thread_z}, {y}, {thread_y}"));
        self.line(format_args!("mad.lo.u32 {d}, {d}, {x}, {thread_x}"));
        self.line(format_args!("shr.u32 {d}, {d}, 5"));
    }

    fn shuffle(&mut self, inst: &Inst, mode: Shuffle, value: Operand, lane: Operand, mask: u32) {
        let (d, own, from) = (self.result(inst.results[0]), self.operand(value), self.operand(lane));
        let (name, clamp) = match mode {
            Shuffle::Index => ("idx", 31),
            Shuffle::Up => ("up", 0),
            Shuffle::Down => ("down", 31),
            Shuffle::Xor => ("bfly", 31),
        };
        self.line(format_args!("shfl.sync.{name}.b32 {d}, {own}, {from}, {clamp}, {mask:#010x}"));
        // The hardware takes the distance modulo 32; no lane is that far away.
        if matches!(mode, Shuffle::Up | Shuffle::Down) && !matches!(lane, Operand::Const(_, 0..32)) {
            let near = self.fresh(Class::Pred);
            self.line(format_args!("setp.lt.u32 {near}, {from}, 32"));
            self.line(format_args!("selp.b32 {d}, {d}, {own}, {near}"));
        }
    }

    fn for_loop(&mut self, inst: &Inst, bounds: [Operand; 3], unroll: u32, body: &[Inst]) -> Result<()> {
        let [start, end, step] = bounds;
        let bra = self.branch(&bounds);
        let (top, out) = (self.label(), self.label());
        let (counter, more) = (self.fresh(Class::Word), self.fresh(Class::Pred));
        self.copy(counter, start);
        let (end, increment) = (self.operand(end), self.operand(step));
        let by_one = matches!(step, Operand::Const(_, 1));
        let text = self.scope(|p| {
            p.line(format_args!("setp.ge.u32 {more}, {counter}, {end}"));
            p.line(format_args!("@{more} {bra} {out}"));
            if by_one && unroll > 1 {
                p.unrolled(inst.results[0], [counter, more], &end, unroll, [bra, &top, &out], body)?;
            }
            p.place_label(&top);
            p.keep(inst.results[0], counter, p.scopes.len() - 1);
            p.region(body)?;
            if by_one {
                p.line(format_args!("add.u32 {counter}, {counter}, 1"));
                p.line(format_args!("setp.lt.u32 {more}, {counter}, {end}"));
            } else {
                // The counter is less than the end, so what is left cannot wrap, as the sum could.
                let left = p.fresh(Class::Word);
                p.line(format_args!("sub.u32 {left}, {end}, {counter}"));
                p.line(format_args!("setp.gt.u32 {more}, {left}, {increment}"));
                p.line(format_args!("add.u32 {counter}, {counter}, {increment}"));
            }
            p.line(format_args!("@{more} {bra} {top}"));
            p.place_label(&out);
            Ok(())
        })?;
        self.append(&text);
        Ok(())
    }

    /// The rounds of a loop, several at once while so many are left; the rest is left to the loop at `top`.
    fn unrolled(
        &mut self,
        value: ValId,
        [counter, more]: [Reg; 2],
        end: &impl Display,
        rounds: u32,
        [bra, top, out]: [&str; 3],
        body: &[Inst],
    ) -> Result<()> {
        let (several, left) = (self.label(), self.fresh(Class::Word));
        self.line(format_args!("sub.u32 {left}, {end}, {counter}"));
        self.line(format_args!("setp.lt.u32 {more}, {left}, {rounds}"));
        self.line(format_args!("@{more} {bra} {top}"));
        self.place_label(&several);
        for _ in 0..rounds {
            // A scope of its own, since what one round has computed is of its counter.
            let round = self.scope(|p| {
                p.keep(value, counter, p.scopes.len() - 1);
                p.region(body)
            })?;
            self.append(&round);
            self.line(format_args!("add.u32 {counter}, {counter}, 1"));
        }
        self.line(format_args!("sub.u32 {left}, {end}, {counter}"));
        self.line(format_args!("setp.ge.u32 {more}, {left}, {rounds}"));
        self.line(format_args!("@{more} {bra} {several}"));
        self.line(format_args!("setp.ge.u32 {more}, {counter}, {end}"));
        self.line(format_args!("@{more} {bra} {out}"));
        Ok(())
    }

    fn if_else(&mut self, condition: Operand, then: &[Inst], otherwise: &[Inst]) -> Result<()> {
        let bra = self.branch(&[condition]);
        let holds = self.operand(condition);
        let (other, out) = (self.label(), self.label());
        let text = self.scope(|p| {
            p.line(format_args!("@!{holds} {bra} {other}"));
            p.region(then)
        })?;
        if otherwise.is_empty() {
            self.append(&text);
            self.place_label(&other);
            return Ok(());
        }
        let rest = self.scope(|p| {
            p.line(format_args!("bra.uni {out}"));
            p.place_label(&other);
            p.region(otherwise)?;
            p.place_label(&out);
            Ok(())
        })?;
        self.append(&text);
        self.append(&rest);
        Ok(())
    }

    fn while_loop(&mut self, condition: &[Inst], test: Operand, body: &[Inst]) -> Result<()> {
        let (top, out) = (self.label(), self.label());
        let text = self.scope(|p| {
            p.place_label(&top);
            p.region(condition)?;
            let bra = p.branch(&[test]);
            let holds = p.operand(test);
            p.line(format_args!("@!{holds} {bra} {out}"));
            p.region(body)?;
            p.line(format_args!("bra.uni {top}"));
            p.place_label(&out);
            Ok(())
        })?;
        self.append(&text);
        Ok(())
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
