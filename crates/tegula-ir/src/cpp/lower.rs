//! Operations as statements. A value that is used once stands where it is used, unless what it reads may have changed by then.

use rustc_hash::FxHashMap;
use tegula_core::element::Type;
use tegula_core::error::{Error, Result};

use super::index::{Indices, Sum};
use super::tree::{Expr, Line, Stmt, visit};
use crate::{Binary, Checked, Guard, Inst, Kernel, Op, Operand, Order, Place, Site, Special, Unary, ValId, VarId};

/// The largest expression that stands within another.
const READABLE: usize = 24;
/// The most shared memory that a declaration can claim.
const STATIC_SHARED_BYTES: u64 = 48 * 1024;

/// A kernel's body.
pub(super) fn lower(kernel: &Checked<Kernel>) -> Result<Vec<Line>> {
    let mut lowering = Lowering {
        kernel,
        indices: Indices::new(kernel),
        uses: FxHashMap::default(),
        always: FxHashMap::default(),
        pending: Vec::new(),
        lines: Vec::new(),
    };
    if kernel.shared_bytes() > STATIC_SHARED_BYTES {
        return lowering.refuse("more than 48 KiB of shared memory");
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
    /// How often the text names a value; those that it does not are not computed.
    uses: FxHashMap<ValId, u32>,
    /// Values that are spelled out wherever they are used.
    always: FxHashMap<ValId, Expr>,
    /// Values that wait for their one use, in the order of their operations.
    pending: Vec<(ValId, Site, Expr)>,
    lines: Vec<Line>,
}

/// What is used.
impl Lowering<'_> {
    /// Backwards, since what nothing uses does not use anything either.
    fn count_uses(&mut self, insts: &[Inst]) {
        for inst in insts.iter().rev() {
            let idle = inst.op.is_pure() || matches!(inst.op, Op::Get(_) | Op::Load { .. });
            if idle && inst.results.iter().all(|result| !self.uses.contains_key(result)) {
                continue;
            }
            let mut bodies: Vec<&[Inst]> = inst.op.bodies().collect();
            bodies.reverse();
            bodies.into_iter().for_each(|body| self.count_uses(body));
            let mut operands = Vec::new();
            inst.op.for_each_operand(|operand| operands.push(operand));
            if let Op::Load { from: place, .. } | Op::Store { to: place, .. } = &inst.op
                && place.is_shared()
            {
                // Its index is the first operand; coordinates stand for it.
                operands.remove(0);
                let terms = self.indices.coordinates(place).into_iter().flat_map(|sum| sum.terms);
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
    fn refuse<T>(&self, what: impl Into<String>) -> Result<T> {
        Err(Error::NotPrintable { kernel: self.kernel.name().into(), what: what.into() })
    }

    fn push(&mut self, site: Site, what: Stmt) {
        self.lines.push(Line { site, what });
    }

    /// Computes now those of the values that wait of which that is said.
    fn settle(&mut self, now: impl Fn(ValId, &Expr) -> bool) {
        for (value, site, e) in std::mem::take(&mut self.pending) {
            if now(value, &e) {
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
                self.settle(|_, e| e.reads(*var));
                self.push(site, Stmt::Set(*var, value));
            }
            Op::Store { to, values, guard, order, .. } => {
                let &[value] = &values[..] else { return self.refuse("stores of several elements at once") };
                if *order != Order::Weak {
                    return self.refuse("ordered stores");
                }
                let (to, value) = (self.place(to, site)?, self.operand(value));
                let guard = self.guard(*guard)?;
                self.settle(|_, e| e.reads_memory());
                self.push(site, Stmt::Store { to, value, guard });
            }
            Op::Barrier => {
                self.settle(|_, e| e.reads_memory());
                self.push(site, Stmt::Barrier);
            }
            Op::For { start, end, step, body, .. } => {
                let &[counter] = &inst.results[..] else { return self.refuse("a loop without a counter") };
                // The end is evaluated in every round, and so would be what waits for a use in the body.
                let kernel = self.kernel;
                self.settle(|value, e| e.changes() || kernel.value_type(value).is_float());
                let overflows = *step != Operand::Const(Type::U32, 1)
                    && self.indices.most(*end) + self.indices.most(*step) > 1 << 32;
                let [start, end, step] = [start, end, step].map(|&operand| self.operand(operand));
                let body = self.body(body)?;
                self.push(site, Stmt::For { counter, start, end, step, overflows, body });
            }
            Op::If { condition: Operand::Const(_, holds), then, otherwise } => {
                return self.region(if *holds == 1 { then } else { otherwise });
            }
            Op::If { condition, then, otherwise } => {
                let condition = self.operand(*condition);
                self.settle(|_, e| e.changes());
                let (then, otherwise) = (self.body(then)?, self.body(otherwise)?);
                self.push(site, Stmt::If { condition, then, otherwise });
            }
            Op::Special(_)
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
                let &[value] = &inst.results[..] else { return self.refuse("loads of several elements at once") };
                let Some(&uses) = self.uses.get(&value) else { return Ok(()) };
                let e = self.value(inst, value)?;
                self.define(value, uses, site, e);
            }
            Op::SetCursor(..) | Op::MoveCursor { .. } => return self.refuse("cursors"),
            Op::Atomic { .. } => return self.refuse("atomic operations"),
            Op::Fence(_) => return self.refuse("fences"),
            Op::WaitUntil { .. } => return self.refuse("waits for other threads"),
            Op::CopyAsync { .. } | Op::CopyAsyncCommit | Op::CopyAsyncWait { .. } => {
                return self.refuse("asynchronous copies");
            }
            Op::NamedBarrier { .. } => return self.refuse("named barriers"),
            Op::SyncWarp { .. } => return self.refuse("synchronisation of warps"),
            Op::Shuffle { .. } => return self.refuse("shuffles"),
            Op::Vote { .. } => return self.refuse("votes"),
            Op::Uniform(..) => return self.refuse("assertions that threads agree"),
            Op::Mma { .. } => return self.refuse("matrix instructions"),
            Op::Hopper(_) => return self.refuse("what only Hopper has"),
            Op::LoadMatrix { .. } => return self.refuse("loads of matrices"),
            Op::While { .. } => return self.refuse("while loops"),
        }
        Ok(())
    }

    /// Decides where a value is computed.
    fn define(&mut self, value: ValId, uses: u32, site: Site, e: Expr) {
        if is_plain(&e, uses) {
            self.always.insert(value, e);
        } else if uses == 1 && e.size() <= READABLE {
            self.pending.push((value, site, e));
        } else {
            self.push(site, Stmt::Let(value, e));
        }
    }
}

/// Whether it is as short as a name: what a parameter or a block says, and a multiple of it or of a counter.
fn is_plain(e: &Expr, uses: u32) -> bool {
    match e {
        Expr::Special(Special::ThreadX | Special::ThreadY | Special::ThreadZ) => uses == 1,
        Expr::Special(_) | Expr::Extent(..) | Expr::Scalar(_) => true,
        Expr::Binary(Binary::Mul, Type::U32, factors) => {
            matches!(&factors[..], [Expr::Special(_) | Expr::Value(_), Expr::Number(..)])
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
        if let Some(e) = self.always.get(&value) {
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
            Op::Special(special @ (Special::Lane | Special::Warp | Special::Warpgroup)) => {
                return self.refuse(if *special == Special::Lane { "numbers of lanes" } else { "numbers of warps" });
            }
            Op::Special(special) => Expr::Special(*special),
            Op::Extent(param, axis) => Expr::Extent(*param, *axis),
            Op::Scalar(param) => Expr::Scalar(*param),
            Op::Unary(op, a) => {
                let simple = match op {
                    Unary::Neg => ty == Type::U32 || matches!(ty, Type::F32 | Type::F64),
                    Unary::Not => matches!(ty, Type::Pred | Type::U32 | Type::U64),
                    Unary::Abs => matches!(ty, Type::F32 | Type::F64),
                };
                if !simple {
                    return self.refuse(format!("{op:?} of {ty}"));
                }
                Expr::Unary(*op, ty, self.boxed(*a))
            }
            Op::Binary(op, a, b) => self.binary(*op, *a, *b)?,
            Op::MulAdd(a, b, c) => {
                if !matches!(ty, Type::F32 | Type::F64 | Type::I32 | Type::U32) {
                    return self.refuse(format!("MulAdd of {ty}"));
                }
                Expr::MulAdd(ty, Box::new([a, b, c].map(|&operand| self.operand(operand))))
            }
            Op::Compare(how, a, b) => {
                if of(*a).is_float() && !matches!(of(*a), Type::F32 | Type::F64) {
                    return self.refuse(format!("comparisons of {}", of(*a)));
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
                (from, to) => return self.refuse(format!("conversions from {from} to {to}")),
            },
            Op::Bitcast(a) => match (of(*a), ty) {
                (Type::F32, Type::U32) | (Type::U32, Type::F32) | (Type::F64, Type::U64) | (Type::U64, Type::F64) => {
                    Expr::Bitcast(of(*a), ty, self.boxed(*a))
                }
                (from, to) => return self.refuse(format!("bits of {from} as {to}")),
            },
            Op::Get(var) => Expr::Variable(*var),
            Op::Load { from, guard, fill, order, .. } => {
                if *order != Order::Weak {
                    return self.refuse("ordered loads");
                }
                let element = self.place(from, self.kernel.site(inst.site))?;
                match self.guard(*guard)? {
                    None => element,
                    Some(guard) => Expr::Select(Box::new([guard, element, self.operand(*fill)])),
                }
            }
            Op::RoundTf32(_) => return self.refuse("rounding to tf32"),
            Op::Pack(..) => return self.refuse("numbers in halves of a word"),
            _ => return self.refuse("an operation without a value"),
        })
    }

    /// Shifts by a constant that the builder made of products and quotients become these again.
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
            return self.refuse(format!("{op:?} of {ty}"));
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
            Guard::First(_) => self.refuse("accesses of the first few elements"),
        }
    }

    fn place(&mut self, place: &Place, site: Site) -> Result<Expr> {
        match *place {
            Place::Global { param, batch, row, col } => {
                let at = [batch, row, col].map(|operand| self.operand(operand));
                Ok(Expr::Global(param, Box::new(at), site.location))
            }
            Place::Shared { array, .. } => {
                let coordinates = self.indices.coordinates(place);
                Ok(Expr::Shared(array, coordinates.iter().map(|sum| self.sum(sum)).collect(), site.location))
            }
            Place::Cursor { .. } => self.refuse("cursors"),
        }
    }

    fn sum(&mut self, sum: &Sum) -> Expr {
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

/// Variables are declared where they first get a value; those for which no such place is before all others, at the start.
fn declare_variables(lines: &mut Vec<Line>) {
    let mut variables: Vec<(VarId, Site)> = Vec::new();
    visit(lines, &mut |line| {
        if let Stmt::Set(var, _) = line.what
            && variables.iter().all(|(known, _)| *known != var)
        {
            variables.push((var, line.site));
        }
    });
    for (var, site) in variables {
        if !declare(lines, var) {
            lines.insert(0, Line { site, what: Stmt::Declare(var, None) });
        }
    }
}

/// Declares a variable in the innermost list of statements that has all that name it, if the first of them gives it a value.
fn declare(lines: &mut [Line], var: VarId) -> bool {
    let mut naming = lines.iter_mut().filter(|line| names(line, var));
    let Some(first) = naming.next() else { return false };
    if naming.next().is_none() && first.what.exprs().iter().all(|e| !e.reads(var)) {
        let mut bodies: Vec<&mut Vec<Line>> =
            first.what.bodies_mut().into_iter().filter(|body| body.iter().any(|line| names(line, var))).collect();
        if let [body] = &mut bodies[..]
            && declare(body, var)
        {
            return true;
        }
    }
    match &first.what {
        Stmt::Set(set, value) if *set == var && !value.reads(var) => {
            first.what = Stmt::Declare(var, Some(value.clone()));
            true
        }
        _ => false,
    }
}

/// Whether a statement, or one in it, reads or sets a variable.
fn names(line: &Line, var: VarId) -> bool {
    let mut named = false;
    visit(std::slice::from_ref(line), &mut |line| {
        named |= matches!(line.what, Stmt::Set(set, _) if set == var);
        named |= line.what.exprs().iter().any(|e| e.reads(var));
    });
    named
}
