//! Prints operations: one arm for each.

use std::fmt::Display;

use tegula_core::error::Result;

use super::printer::{Printer, Reg, RegisterClass, Requirements, scope_name};
use super::syntax::{arithmetic_type, bit_type, comparison};
use crate::launch::Field;
use crate::{Inst, Op, Operand, Shuffle, SpecialRegister, ValId, Vote};

/// Operations.
impl Printer<'_> {
    pub fn region(&mut self, insts: &[Inst]) -> Result<()> {
        insts.iter().try_for_each(|inst| self.inst(inst))
    }

    fn inst(&mut self, inst: &Inst) -> Result<()> {
        let outer_site = self.site.replace(inst.site);
        let printed = self.operation(inst);
        self.site = outer_site;
        printed
    }

    fn operation(&mut self, inst: &Inst) -> Result<()> {
        match &inst.op {
            Op::SpecialRegister(register) => self.special_register(*register, inst.results[0]),
            Op::Extent(param, axis) => {
                let reg = self.param(Field::Extent(*param, *axis));
                self.bind(inst.results[0], reg, 0);
            }
            Op::Scalar(param) => {
                let reg = self.param(Field::Scalar(*param, self.kernel.value_type(inst.results[0])));
                self.bind(inst.results[0], reg, 0);
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
                    let (reg, depth) = self.value_register(value);
                    self.bind(inst.results[0], reg, depth);
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
                self.line(format_args!("mov.{} {d}, {var}", bit_type(ty)));
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
                let (at, ty) = (self.address(at), self.kernel.element_type(at));
                let (now, met, value) =
                    (self.fresh(RegisterClass::of(ty)), self.fresh(RegisterClass::Pred), self.operand(*value));
                let (scope, space, ty) = (scope_name(*scope), at.space, arithmetic_type(ty)?);
                self.place_label(&again);
                self.line(format_args!("ld.acquire.{scope}.{space}.{ty} {now}, {at}"));
                self.line(format_args!("setp.{}.{ty} {met}, {now}, {value}", comparison(*compare)));
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
            Op::Mma { mma, a, b, accumulators } => self.mma(*mma, [a, b], *accumulators),
            Op::LoadMatrix { from, count, transposed } => self.load_matrix(inst, from, *count, *transposed),
            Op::Hopper(op) => self.hopper(op),
            Op::For { start, end, step, unroll, body } => self.for_loop(inst, [*start, *end, *step], *unroll, body)?,
            Op::If { condition, then, otherwise } => self.if_else(*condition, then, otherwise)?,
            Op::While { condition, test, body } => self.while_loop(condition, *test, body)?,
        }
        Ok(())
    }

    fn special_register(&mut self, register: SpecialRegister, value: ValId) {
        let d = self.result(value);
        let name = match register {
            SpecialRegister::ThreadX => "%tid.x",
            SpecialRegister::ThreadY => "%tid.y",
            SpecialRegister::ThreadZ => "%tid.z",
            SpecialRegister::BlockX => "%ctaid.x",
            SpecialRegister::BlockY => "%ctaid.y",
            SpecialRegister::BlockZ => "%ctaid.z",
            SpecialRegister::GridX => "%nctaid.x",
            SpecialRegister::GridY => "%nctaid.y",
            SpecialRegister::GridZ => "%nctaid.z",
            SpecialRegister::Lane => "%laneid",
            SpecialRegister::Warp => return self.warp(d),
            SpecialRegister::Warpgroup => {
                self.warp(d);
                return self.line(format_args!("shr.u32 {d}, {d}, 2"));
            }
            SpecialRegister::Cluster => "%clusterid.x",
            SpecialRegister::ClusterRank => "%cluster_ctarank",
            SpecialRegister::Multiprocessors => unreachable!("checked: only the grid uses it"),
        };
        if matches!(register, SpecialRegister::Cluster | SpecialRegister::ClusterRank) {
            self.require(Requirements::SM_90);
        }
        self.line(format_args!("mov.u32 {d}, {name}"));
    }

    /// The warp's index in its block, from the thread index.
    ///
    /// `%warpid` is the hardware slot of the warp, not its index.
    fn warp(&mut self, d: Reg) {
        let [x, y, _] = self.kernel.block();
        let [thread_x, thread_y, thread_z] = [(); 3].map(|()| self.fresh(RegisterClass::Word));
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
        // The hardware takes the distance modulo 32; a distance of 32 or more has no source lane.
        if matches!(mode, Shuffle::Up | Shuffle::Down) && !matches!(lane, Operand::Const(_, 0..32)) {
            let in_range = self.fresh(RegisterClass::Pred);
            self.line(format_args!("setp.lt.u32 {in_range}, {from}, 32"));
            self.line(format_args!("selp.b32 {d}, {d}, {own}, {in_range}"));
        }
    }

    fn for_loop(&mut self, inst: &Inst, bounds: [Operand; 3], unroll: u32, body: &[Inst]) -> Result<()> {
        let [start, end, step] = bounds;
        let bra = self.branch(&bounds);
        let (top, out) = (self.label(), self.label());
        let (counter, more) = (self.fresh(RegisterClass::Word), self.fresh(RegisterClass::Pred));
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
            p.bind(inst.results[0], counter, p.innermost());
            p.region(body)?;
            if by_one {
                p.line(format_args!("add.u32 {counter}, {counter}, 1"));
                p.line(format_args!("setp.lt.u32 {more}, {counter}, {end}"));
            } else {
                // The counter is less than the end, so the difference cannot wrap; the sum could.
                let left = p.fresh(RegisterClass::Word);
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

    /// Prints an unrolled loop, executed while `factor` iterations remain.
    ///
    /// The loop at `top` handles the rest.
    fn unrolled(
        &mut self,
        value: ValId,
        [counter, more]: [Reg; 2],
        end: &impl Display,
        factor: u32,
        [bra, top, out]: [&str; 3],
        body: &[Inst],
    ) -> Result<()> {
        let (unrolled, left) = (self.label(), self.fresh(RegisterClass::Word));
        self.line(format_args!("sub.u32 {left}, {end}, {counter}"));
        self.line(format_args!("setp.lt.u32 {more}, {left}, {factor}"));
        self.line(format_args!("@{more} {bra} {top}"));
        self.place_label(&unrolled);
        for _ in 0..factor {
            // Each iteration has its own scope, since its values depend on its counter.
            let iteration = self.scope(|p| {
                p.bind(value, counter, p.innermost());
                p.region(body)
            })?;
            self.append(&iteration);
            self.line(format_args!("add.u32 {counter}, {counter}, 1"));
        }
        self.line(format_args!("sub.u32 {left}, {end}, {counter}"));
        self.line(format_args!("setp.ge.u32 {more}, {left}, {factor}"));
        self.line(format_args!("@{more} {bra} {unrolled}"));
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
}
