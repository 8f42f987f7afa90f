//! Lowering of operations to statements.
//!
//! A value with one use is inlined, unless memory or variables that it reads may have changed by
//! then.

use rustc_hash::FxHashMap;
use tegula_core::element::Type;
use tegula_core::error::{Error, Result};

use super::ast::{Expr, Line, Stmt, visit};
use super::index::{AffineSum, Indices};
use crate::{
    Binary, Checked, Guard, Inst, Kernel, MemoryOrder, MemoryRef, Op, Operand, Site, SpecialRegister, Unary, ValId,
    VarId,
};

/// The maximum size of an inlined expression, in nodes.
const MAX_INLINED_SIZE: usize = 24;
/// The limit of statically declared shared memory.
const STATIC_SHARED_BYTES: u64 = 48 * 1024;

/// Lowers the body of a kernel.
pub(super) fn lower(kernel: &Checked<Kernel>) -> Result<Vec<Line>> {
    let mut lowering = Lowering {
        kernel,
        indices: Indices::new(kernel),
        uses: FxHashMap::default(),
        inlined: FxHashMap::default(),
        pending: Vec::new(),
        lines: Vec::new(),
    };
    if kernel.shared_bytes() > STATIC_SHARED_BYTES {
        return lowering.unsupported("more than 48 KiB of shared memory");
    }
    lowering.count_uses(kernel.body());
    lowering.region(kernel.body())?;
    let mut lines = lowering.lines;
    declare_variables(&mut lines);
    Ok(lines)
}

struct Lowering<'a> {
    kernel: &'a Kernel,
    indices: Indices<'a>,
    /// The number of uses of each value in the text; values without uses are not computed.
    uses: FxHashMap<ValId, u32>,
    /// Values whose expression is repeated at each use.
    inlined: FxHashMap<ValId, Expr>,
    /// Values that await their only use, in the order of their operations.
    pending: Vec<(ValId, Site, Expr)>,
    lines: Vec<Line>,
}

/// Uses of values.
impl Lowering<'_> {
    /// Counts uses, from the last operation to the first: an unused operation uses nothing itself.
    fn count_uses(&mut self, insts: &[Inst]) {
        for inst in insts.iter().rev() {
            let removable = inst.op.is_pure() || matches!(inst.op, Op::Get(_) | Op::Load { .. });
            if removable && inst.results.iter().all(|result| !self.uses.contains_key(result)) {
                continue;
            }
            let mut bodies: Vec<&[Inst]> = inst.op.bodies().collect();
            bodies.reverse();
            bodies.into_iter().for_each(|body| self.count_uses(body));
            let mut operands = Vec::new();
            inst.op.for_each_operand(|operand| operands.push(operand));
            if let Op::Load { from: memory_ref, .. } | Op::Store { to: memory_ref, .. } = &inst.op
                && memory_ref.is_shared()
            {
                // The first operand is the flat index, which the coordinates replace.
                operands.remove(0);
                let terms = self.indices.coordinates(memory_ref).into_iter().flat_map(|sum| sum.terms);
                operands.extend(terms.map(|(value, _)| Operand::Val(value)));
            }
            for operand in operands {
                if let Operand::Val(value) = operand {
                    *self.uses.entry(value).or_default() += 1;
                }
            }
        }
    }
}

/// Statements.
impl Lowering<'_> {
    fn unsupported<T>(&self, what: impl Into<String>) -> Result<T> {
        Err(Error::NotPrintable { kernel: self.kernel.name().into(), what: what.into() })
    }

    fn push(&mut self, site: Site, stmt: Stmt) {
        self.lines.push(Line { site, stmt });
    }

    /// Materializes the pending values that satisfy the condition.
    fn materialize(&mut self, condition: impl Fn(ValId, &Expr) -> bool) {
        for (value, site, e) in std::mem::take(&mut self.pending) {
            if condition(value, &e) {
                self.push(site, Stmt::Let(value, e));
            } else {
                self.pending.push((value, site, e));
            }
        }
    }

    fn body(&mut self, insts: &[Inst]) -> Result<Vec<Line>> {
        let outer = std::mem::take(&mut self.lines);
        let lowered = self.region(insts);
        let lines = std::mem::replace(&mut self.lines, outer);
        lowered.map(|()| lines)
    }

    fn region(&mut self, insts: &[Inst]) -> Result<()> {
        insts.iter().try_for_each(|inst| self.inst(inst))
    }

    fn inst(&mut self, inst: &Inst) -> Result<()> {
        let site = self.kernel.site(inst.site);
        match &inst.op {
            Op::Set(var, value) => {
                let value = self.operand(*value);
                self.materialize(|_, e| e.reads(*var));
                self.push(site, Stmt::Set(*var, value));
            }
            Op::Store { to, values, guard, order, .. } => {
                let &[value] = &values[..] else { return self.unsupported("vector stores") };
                if *order != MemoryOrder::Weak {
                    return self.unsupported("strong stores");
                }
                let (to, value) = (self.memory_ref(to, site)?, self.operand(value));
                let guard = self.guard(*guard)?;
                self.materialize(|_, e| e.reads_memory());
                self.push(site, Stmt::Store { to, value, guard });
            }
            Op::Barrier => {
                self.materialize(|_, e| e.reads_memory());
                self.push(site, Stmt::Barrier);
            }
            Op::For { start, end, step, body, .. } => {
                let &[counter] = &inst.results[..] else { return self.unsupported("loops without a counter") };
                // The end is evaluated in each iteration, and so would be values inlined into the
                // body.
                let kernel = self.kernel;
                self.materialize(|value, e| e.changes() || kernel.value_type(value).is_float());
                let overflows =
                    *step != Operand::Const(Type::U32, 1) && self.indices.max(*end) + self.indices.max(*step) > 1 << 32;
                let [start, end, step] = [start, end, step].map(|&operand| self.operand(operand));
                let body = self.body(body)?;
                self.push(site, Stmt::For { counter, start, end, step, overflows, body });
            }
            Op::If { condition: Operand::Const(_, holds), then, otherwise } => {
                return self.region(if *holds == 1 { then } else { otherwise });
            }
            Op::If { condition, then, otherwise } => {
                let condition = self.operand(*condition);
                self.materialize(|_, e| e.changes());
                let (then, otherwise) = (self.body(then)?, self.body(otherwise)?);
                self.push(site, Stmt::If { condition, then, otherwise });
            }
            Op::SpecialRegister(_)
            | Op::Extent(..)
            | Op::Scalar(_)
            | Op::Unary(..)
            | Op::Binary(..)
            | Op::MulAdd(..)
            | Op::Compare(..)
            | Op::Select(..)
            | Op::Convert(_)
            | Op::Bitcast(_)
            | Op::RoundTf32(_)
            | Op::Pack(..)
            | Op::Get(_)
            | Op::Load { .. } => {
                let &[value] = &inst.results[..] else { return self.unsupported("vector loads") };
                let Some(&uses) = self.uses.get(&value) else { return Ok(()) };
                let e = self.value(inst, value)?;
                self.define(value, uses, site, e);
            }
            Op::SetCursor(..) | Op::MoveCursor { .. } => return self.unsupported("cursors"),
            Op::Atomic { .. } => return self.unsupported("atomic operations"),
            Op::Fence(_) => return self.unsupported("fences"),
            Op::WaitUntil { .. } => return self.unsupported("spin waits"),
            Op::CopyAsync { .. } | Op::CopyAsyncCommit | Op::CopyAsyncWait { .. } => {
                return self.unsupported("asynchronous copies");
            }
            Op::NamedBarrier { .. } => return self.unsupported("named barriers"),
            Op::SyncWarp { .. } => return self.unsupported("warp barriers"),
            Op::Shuffle { .. } => return self.unsupported("shuffles"),
            Op::Vote { .. } => return self.unsupported("votes"),
            Op::Uniform(..) => return self.unsupported("uniformity assertions"),
            Op::Mma { .. } => return self.unsupported("matrix instructions"),
            Op::Hopper(_) => return self.unsupported("Hopper operations"),
            Op::LoadMatrix { .. } => return self.unsupported("ldmatrix"),
            Op::While { .. } => return self.unsupported("while loops"),
        }
        Ok(())
    }

    /// Decides where a value is computed.
    fn define(&mut self, value: ValId, uses: u32, site: Site, e: Expr) {
        if is_trivial(&e, uses) {
            self.inlined.insert(value, e);
        } else if uses == 1 && e.size() <= MAX_INLINED_SIZE {
            self.pending.push((value, site, e));
        } else {
            self.push(site, Stmt::Let(value, e));
        }
    }
}

/// Whether an expression is as short as a name: a parameter, a built-in index, a multiple of a
/// value.
fn is_trivial(e: &Expr, uses: u32) -> bool {
    match e {
        Expr::SpecialRegister(SpecialRegister::ThreadX | SpecialRegister::ThreadY | SpecialRegister::ThreadZ) => {
            uses == 1
        }
        Expr::SpecialRegister(_) | Expr::Extent(..) | Expr::Scalar(_) => true,
        Expr::Binary(Binary::Mul, Type::U32, operands) => {
            matches!(&operands[..], [Expr::SpecialRegister(_) | Expr::Value(_), Expr::Number(..)])
        }
        _ => false,
    }
}

/// Expressions.
impl Lowering<'_> {
    fn operand(&mut self, operand: Operand) -> Expr {
        let value = match operand {
            Operand::Const(ty, bits) => return Expr::Number(ty, bits),
            Operand::Val(value) => value,
        };
        if let Some(e) = self.inlined.get(&value) {
            return e.clone();
        }
        match self.pending.iter().position(|(waiting, ..)| *waiting == value) {
            Some(at) => self.pending.remove(at).2,
            None => Expr::Value(value),
        }
    }

    fn boxed(&mut self, operand: Operand) -> Box<Expr> {
        Box::new(self.operand(operand))
    }

    fn value(&mut self, inst: &Inst, value: ValId) -> Result<Expr> {
        let ty = self.kernel.value_type(value);
        let of = |operand: Operand| self.kernel.operand_type(operand);
        Ok(match &inst.op {
            Op::SpecialRegister(
                special @ (SpecialRegister::Lane | SpecialRegister::Warp | SpecialRegister::Warpgroup),
            ) => {
                return self.unsupported(if *special == SpecialRegister::Lane {
                    "lane indices"
                } else {
                    "warp indices"
                });
            }
            Op::SpecialRegister(special) => Expr::SpecialRegister(*special),
            Op::Extent(param, axis) => Expr::Extent(*param, *axis),
            Op::Scalar(param) => Expr::Scalar(*param),
            Op::Unary(op, a) => {
                let simple = match op {
                    Unary::Neg => ty == Type::U32 || matches!(ty, Type::F32 | Type::F64),
                    Unary::Not => matches!(ty, Type::Pred | Type::U32 | Type::U64),
                    Unary::Abs => matches!(ty, Type::F32 | Type::F64),
                };
                if !simple {
                    return self.unsupported(format!("{op:?} of {ty}"));
                }
                Expr::Unary(*op, ty, self.boxed(*a))
            }
            Op::Binary(op, a, b) => self.binary(*op, *a, *b)?,
            Op::MulAdd(a, b, c) => {
                if !matches!(ty, Type::F32 | Type::F64 | Type::I32 | Type::U32) {
                    return self.unsupported(format!("MulAdd of {ty}"));
                }
                Expr::MulAdd(ty, Box::new([a, b, c].map(|&operand| self.operand(operand))))
            }
            Op::Compare(how, a, b) => {
                if of(*a).is_float() && !matches!(of(*a), Type::F32 | Type::F64) {
                    return self.unsupported(format!("comparisons of {}", of(*a)));
                }
                Expr::Compare(*how, Box::new([*a, *b].map(|operand| self.operand(operand))))
            }
            Op::Select(condition, yes, no) => {
                Expr::Select(Box::new([condition, yes, no].map(|&operand| self.operand(operand))))
            }
            Op::Convert(a) => match (of(*a), ty) {
                (Type::F16 | Type::BF16, Type::F32)
                | (Type::F32, Type::F16 | Type::BF16 | Type::F64)
                | (Type::I8 | Type::U8, Type::I32)
                | (Type::U32, Type::U64)
                | (Type::U64, Type::U32) => Expr::Convert(of(*a), ty, self.boxed(*a)),
                (from, to) => return self.unsupported(format!("conversions from {from} to {to}")),
            },
            Op::Bitcast(a) => match (of(*a), ty) {
                (Type::F32, Type::U32) | (Type::U32, Type::F32) | (Type::F64, Type::U64) | (Type::U64, Type::F64) => {
                    Expr::Bitcast(of(*a), ty, self.boxed(*a))
                }
                (from, to) => return self.unsupported(format!("bitcasts from {from} to {to}")),
            },
            Op::Get(var) => Expr::Variable(*var),
            Op::Load { from, guard, fill, order, .. } => {
                if *order != MemoryOrder::Weak {
                    return self.unsupported("strong loads");
                }
                let element = self.memory_ref(from, self.kernel.site(inst.site))?;
                match self.guard(*guard)? {
                    None => element,
                    Some(guard) => Expr::Select(Box::new([guard, element, self.operand(*fill)])),
                }
            }
            Op::RoundTf32(_) => return self.unsupported("rounding to tf32"),
            Op::Pack(..) => return self.unsupported("packed 16-bit numbers"),
            _ => return self.unsupported("operations without a value"),
        })
    }

    /// Lowers an operation on two numbers.
    ///
    /// Shifts by constants become the products and quotients that they were before folding.
    fn binary(&mut self, op: Binary, a: Operand, b: Operand) -> Result<Expr> {
        use Binary::*;
        let ty = self.kernel.operand_type(a);
        let unsigned = matches!(ty, Type::U32 | Type::U64);
        let float = matches!(ty, Type::F32 | Type::F64);
        let known = match op {
            Add | Sub | Mul => float || unsigned || ty == Type::I32,
            Div => float || unsigned,
            Rem => unsigned,
            Min | Max => float || ty == Type::U32,
            And | Or | Xor => unsigned || ty == Type::Pred,
            Shl | Shr => unsigned && matches!(b, Operand::Const(_, count) if count < 8 * ty.size() as u64),
        };
        if !known {
            return self.unsupported(format!("{op:?} of {ty}"));
        }
        let (op, b) = match (op, b) {
            (Shl, Operand::Const(of, count)) if ty == Type::U32 && count < 16 => (Mul, Operand::Const(of, 1 << count)),
            (Shr, Operand::Const(of, count)) if ty == Type::U32 && count < 16 => (Div, Operand::Const(of, 1 << count)),
            (And, Operand::Const(of, mask)) if ty == Type::U32 && (mask + 1).is_power_of_two() && mask < 1 << 16 => {
                (Rem, Operand::Const(of, mask + 1))
            }
            same => same,
        };
        Ok(Expr::Binary(op, ty, Box::new([self.operand(a), self.operand(b)])))
    }

    fn guard(&mut self, guard: Guard) -> Result<Option<Expr>> {
        match guard {
            Guard::Always => Ok(None),
            Guard::If(condition) => Ok(Some(self.operand(condition))),
            Guard::First(_) => self.unsupported("partially guarded vector accesses"),
        }
    }

    fn memory_ref(&mut self, memory_ref: &MemoryRef, site: Site) -> Result<Expr> {
        match *memory_ref {
            MemoryRef::Global { param, batch, row, col } => {
                let at = [batch, row, col].map(|operand| self.operand(operand));
                Ok(Expr::Global(param, Box::new(at), site.location))
            }
            MemoryRef::Shared { array, .. } => {
                let coordinates = self.indices.coordinates(memory_ref);
                Ok(Expr::Shared(array, coordinates.iter().map(|sum| self.affine_sum(sum)).collect(), site.location))
            }
            MemoryRef::Cursor { .. } => self.unsupported("cursors"),
        }
    }

    fn affine_sum(&mut self, sum: &AffineSum) -> Expr {
        let number = |n: u32| Expr::Number(Type::U32, n.into());
        let binary = |op, a, b| Expr::Binary(op, Type::U32, Box::new([a, b]));
        let terms: Vec<Expr> = sum
            .terms
            .iter()
            .map(|&(value, by)| match (self.operand(Operand::Val(value)), by) {
                (term, 1) => term,
                (term, by) => binary(Binary::Mul, term, number(by)),
            })
            .collect();
        let whole = terms.into_iter().reduce(|a, b| binary(Binary::Add, a, b));
        match (whole, sum.constant) {
            (None, constant) => number(constant),
            (Some(whole), 0) => whole,
            (Some(whole), constant) => binary(Binary::Add, whole, number(constant)),
        }
    }
}

/// Declares each variable at its first assignment.
///
/// Where no assignment precedes all uses, it is declared at the start.
fn declare_variables(lines: &mut Vec<Line>) {
    let mut variables: Vec<(VarId, Site)> = Vec::new();
    visit(lines, &mut |line| {
        if let Stmt::Set(var, _) = line.stmt
            && variables.iter().all(|(known, _)| *known != var)
        {
            variables.push((var, line.site));
        }
    });
    for (var, site) in variables {
        if !declare(lines, var) {
            lines.insert(0, Line { site, stmt: Stmt::Declare(var, None) });
        }
    }
}

/// Declares a variable in the innermost list that contains all its uses, if the first one assigns
/// it.
fn declare(lines: &mut [Line], var: VarId) -> bool {
    let mut naming = lines.iter_mut().filter(|line| names(line, var));
    let Some(first) = naming.next() else { return false };
    if naming.next().is_none() && first.stmt.exprs().iter().all(|e| !e.reads(var)) {
        let mut bodies: Vec<&mut Vec<Line>> =
            first.stmt.bodies_mut().into_iter().filter(|body| body.iter().any(|line| names(line, var))).collect();
        if let [body] = &mut bodies[..]
            && declare(body, var)
        {
            return true;
        }
    }
    match &first.stmt {
        Stmt::Set(set, value) if *set == var && !value.reads(var) => {
            first.stmt = Stmt::Declare(var, Some(value.clone()));
            true
        }
        _ => false,
    }
}

/// Whether a statement, or a nested one, reads or sets a variable.
fn names(line: &Line, var: VarId) -> bool {
    let mut named = false;
    visit(std::slice::from_ref(line), &mut |line| {
        named |= matches!(line.stmt, Stmt::Set(set, _) if set == var);
        named |= line.stmt.exprs().iter().any(|e| e.reads(var));
    });
    named
}
