//! Lowering from the structured kernel to the flat program of a warp.
//!
//! Control flow becomes jumps with a stack of lane masks. Values get registers, which are reused
//! after the last use of a value.

use std::collections::HashMap;
use std::sync::Arc;

use tegula_core::element::Type;
use tegula_ir::bounds::Bounds;
use tegula_ir::{
    AtomicOp, CoordinatesId, Guard, HopperOp, Inst, Kernel, LeftOperand, MemoryRef, Op, Operand, SharedArray, SharedId,
    SharedOperand, SiteId, VarId,
};

use super::lanes::{Reg, RegisterLanes, VectorRegister};
use super::program::{
    self, CheckedCoordinate, ElementAddress, Fragments, GuardRegister, Instruction, LoweredLeftOperand, LoweredOp,
    MAX_WIDTH, Program, WgmmaInstruction,
};
use super::semantics::register_bits;

const ZERO: VectorRegister = VectorRegister([0; 32]);

/// Lowers a kernel.
pub(super) fn lower(kernel: &Kernel) -> Program {
    let live_ranges = LiveRanges::of(kernel);
    let mut lower = Lowering {
        kernel,
        last_use: live_ranges.last_use,
        position: 0,
        program: Program {
            code: Vec::new(),
            sites: Vec::new(),
            vectors: Vec::new(),
            axes: Vec::new(),
            register_lanes: Arc::new([]),
            predicates: Vec::new(),
            main_loops: Vec::new(),
        },
        registers: vec![None; kernel.value_types().len()],
        vars: Vec::new(),
        accumulators: vec![false; kernel.var_types().len()],
        constants: HashMap::new(),
        free: Default::default(),
        register_lanes: Vec::new(),
        bounds: Bounds::of(kernel),
        known_axes: HashMap::new(),
        before: Vec::new(),
        temporaries: Vec::new(),
    };
    mark_accumulators(kernel.body(), &mut lower.accumulators);
    lower.vars = kernel.var_types().iter().map(|&ty| lower.allocate(ty)).collect();
    lower.region(kernel.body());
    lower.program.main_loops = main_loops(&lower.program.code);
    lower.program.register_lanes = lower.register_lanes.into();
    lower.program
}

/// Marks the variables that warpgroups accumulate into.
fn mark_accumulators(insts: &[Inst], accumulators: &mut [bool]) {
    for inst in insts {
        if let Op::Hopper(HopperOp::Wgmma { wgmma, accumulators: first, .. }) = &inst.op {
            accumulators[first.index()..][..wgmma.accumulators() as usize].fill(true);
        }
        inst.op.bodies().for_each(|body| mark_accumulators(body, accumulators));
    }
}

/// Finds the main loops: those that multiply and accumulate, without an inner loop that does.
fn main_loops(code: &[Instruction]) -> Vec<bool> {
    let mut main_loops = vec![false; code.len()];
    // The enclosing loops: whether each accumulates itself, and whether an inner loop does.
    let mut enclosing: Vec<(usize, bool, bool)> = Vec::new();
    for (at, code) in code.iter().enumerate() {
        match code {
            Instruction::For { .. } | Instruction::While { .. } => enclosing.push((at, false, false)),
            Instruction::Next { .. } | Instruction::Jump { .. } => {
                if let Some((at, adds, within)) = enclosing.pop() {
                    main_loops[at] = adds && !within;
                    enclosing.iter_mut().for_each(|outer| outer.2 |= adds || within);
                }
            }
            // Multiply-adds of u32 compute indices.
            Instruction::MulAdd { ty: Type::U32, .. } => {}
            Instruction::Hopper(op) if !matches!(**op, LoweredOp::Wgmma(_)) => {}
            Instruction::MulAdd { .. } | Instruction::Mma { .. } | Instruction::Hopper(_) => {
                enclosing.last_mut().into_iter().for_each(|inner| inner.1 = true)
            }
            _ => {}
        }
    }
    main_loops
}

/// Live ranges of values: the position of the last use, in program order.
struct LiveRanges {
    last_use: Vec<u32>,
    depth: Vec<usize>,
    loops: Vec<Vec<usize>>,
    position: u32,
}

impl LiveRanges {
    fn of(kernel: &Kernel) -> Self {
        let n = kernel.value_types().len();
        let mut live_ranges = LiveRanges { last_use: vec![0; n], depth: vec![0; n], loops: Vec::new(), position: 0 };
        live_ranges.region(kernel, kernel.body());
        live_ranges
    }

    fn read(&mut self, operand: Operand) {
        if let Operand::Val(value) = operand {
            let value = value.index();
            self.last_use[value] = self.last_use[value].max(self.position);
            // Defined outside a loop and read inside: live until the end of the loop.
            if let Some(outer) = self.loops.get_mut(self.depth[value]) {
                outer.push(value);
            }
        }
    }

    fn region(&mut self, kernel: &Kernel, insts: &[Inst]) {
        for inst in insts {
            let is_loop = matches!(inst.op, Op::For { .. } | Op::While { .. });
            for value in &inst.results {
                self.depth[value.index()] = self.loops.len() + usize::from(is_loop);
            }
            if !matches!(inst.op, Op::While { .. }) {
                for_each_read(kernel, &inst.op, |o| self.read(o));
            }
            self.position += 1;
            match &inst.op {
                Op::For { end, step, body, .. } => {
                    self.in_loop(|s| {
                        s.region(kernel, body);
                        s.read(*end);
                        s.read(*step);
                    });
                    self.last_use[inst.results[0].index()] = self.position;
                }
                Op::While { condition, test, body } => self.in_loop(|s| {
                    s.region(kernel, condition);
                    s.read(*test);
                    s.position += 1;
                    s.region(kernel, body);
                }),
                Op::If { then, otherwise, .. } => {
                    self.region(kernel, then);
                    self.region(kernel, otherwise);
                }
                _ => {}
            }
            self.position += 1;
        }
    }

    fn in_loop(&mut self, walk: impl FnOnce(&mut Self)) {
        self.loops.push(Vec::new());
        walk(self);
        for value in self.loops.pop().unwrap_or_default() {
            self.last_use[value] = self.last_use[value].max(self.position);
        }
    }
}

/// Calls `f` for each value that an operation reads: its operands and its coordinates.
fn for_each_read(kernel: &Kernel, op: &Op, mut f: impl FnMut(Operand)) {
    op.for_each_operand(&mut f);
    op.for_each_memory_ref(|memory_ref| {
        if let MemoryRef::Shared { coordinates, .. } = *memory_ref {
            kernel.coordinates(coordinates).iter().for_each(|&(value, _)| f(value));
        }
    });
}

struct Lowering<'a> {
    kernel: &'a Kernel,
    last_use: Vec<u32>,
    position: u32,
    program: Program,
    registers: Vec<Option<Reg>>,
    vars: Vec<Reg>,
    /// Whether each variable is an accumulator of a warpgroup.
    accumulators: Vec<bool>,
    constants: HashMap<(Type, u64), Reg>,
    /// Free registers: predicates, single vectors, pairs of vectors.
    free: [Vec<Reg>; 3],
    register_lanes: Vec<RegisterLanes>,
    bounds: Bounds,
    known_axes: HashMap<Vec<CheckedCoordinate>, u32>,
    /// Instructions to emit before the current one, and the temporaries that only it reads.
    before: Vec<Instruction>,
    temporaries: Vec<Reg>,
}

fn class(ty: Type) -> usize {
    match ty {
        Type::Pred => 0,
        ty if ty.size() == 8 => 2,
        _ => 1,
    }
}

impl Lowering<'_> {
    fn allocate(&mut self, ty: Type) -> Reg {
        let class = class(ty);
        if let Some(reg) = self.free[class].pop() {
            return reg;
        }
        let reg = if class == 0 { self.program.predicates.len() } else { self.program.vectors.len() };
        match class {
            0 => self.program.predicates.push(0),
            1 => self.push_vectors(&[ZERO]),
            _ => self.push_vectors(&[ZERO; 2]),
        }
        reg as Reg
    }

    /// Adds a register of one vector, or of two.
    fn push_vectors(&mut self, vectors: &[VectorRegister]) {
        self.program.vectors.extend(vectors);
        let lanes: &[_] =
            if vectors.len() == 2 { &[RegisterLanes::Low, RegisterLanes::High] } else { &[RegisterLanes::All] };
        self.register_lanes.extend(lanes);
    }

    fn constant(&mut self, ty: Type, bits: u64) -> Reg {
        if let Some(&reg) = self.constants.get(&(ty, bits)) {
            return reg;
        }
        // A register of its own: constants are initialized once, before the kernel starts.
        let reg = if ty == Type::Pred { self.program.predicates.len() } else { self.program.vectors.len() } as Reg;
        match class(ty) {
            0 => self.program.predicates.push(if bits & 1 == 1 { u32::MAX } else { 0 }),
            1 => self.push_vectors(&[VectorRegister([register_bits(ty, bits); 32])]),
            _ => self.push_vectors(&bytemuck::cast::<[u64; 32], [VectorRegister; 2]>([bits; 32])),
        }
        self.constants.insert((ty, bits), reg);
        reg
    }

    fn operand(&mut self, operand: Operand) -> Reg {
        match operand {
            Operand::Const(ty, bits) => self.constant(ty, bits),
            Operand::Val(value) => {
                self.registers[value.index()].expect("checked: a value is computed before it is read")
            }
        }
    }

    fn at(&mut self, memory_ref: &MemoryRef) -> ElementAddress {
        match *memory_ref {
            MemoryRef::Global { param, batch, row, col } => ElementAddress::Global {
                param,
                batch: self.operand(batch),
                row: self.operand(row),
                col: self.operand(col),
            },
            MemoryRef::Cursor { param, batch, cursor, row, col } => {
                let [row, col] =
                    [(0, row), (1, col)].map(|(which, offset)| self.offset_coordinate(cursor, which, offset));
                ElementAddress::Global { param, batch: self.operand(batch), row, col }
            }
            MemoryRef::Shared { array, index, offset, coordinates } => {
                let axes = self.axes(array, coordinates);
                ElementAddress::Shared { array, index: self.operand(index), offset, axes }
            }
        }
    }

    /// Selects the coordinates of a reference that are not provably in bounds.
    fn axes(&mut self, array: SharedId, coordinates: CoordinatesId) -> u32 {
        let kernel = self.kernel;
        let SharedArray { dims, .. } = &kernel.shared()[array.index()];
        let mut axes = Vec::new();
        for (axis, (&(value, fixed), &extent)) in kernel.coordinates(coordinates).iter().zip(dims).enumerate() {
            let last = axis + 1 == dims.len();
            // A vector is at most as wide as its alignment.
            let widest = if last { MAX_WIDTH as u64 - 1 } else { 0 };
            if self.bounds.max(value) + u64::from(fixed) + widest >= u64::from(extent) {
                axes.push(CheckedCoordinate { axis, last, value: self.operand(value), fixed, extent });
            }
        }
        let axes_lists = &mut self.program.axes;
        let next = axes_lists.len() as u32;
        *self.known_axes.entry(axes).or_insert_with_key(|axes| {
            axes_lists.push(axes.clone());
            next
        })
    }

    /// A coordinate of a cursor, plus an offset.
    fn offset_coordinate(&mut self, cursor: VarId, which: usize, by: u32) -> Reg {
        let a = self.vars[cursor.index() + which];
        if by == 0 {
            return a;
        }
        let (dst, b) = (self.allocate(Type::U32), self.constant(Type::U32, u64::from(by)));
        self.before.push(Instruction::AddSaturating { dst, a, b });
        self.temporaries.push(dst);
        dst
    }

    fn guard_register(&mut self, guard: Guard) -> GuardRegister {
        match guard {
            Guard::Always => GuardRegister::Always,
            Guard::If(predicate) => GuardRegister::If(self.operand(predicate)),
            Guard::First(count) => GuardRegister::First(self.operand(count)),
        }
    }

    fn push(&mut self, code: Instruction, site: SiteId) -> usize {
        self.program.code.push(code);
        self.program.sites.push(site);
        self.program.code.len() - 1
    }

    fn next_position(&self) -> u32 {
        self.program.code.len() as u32
    }

    fn region(&mut self, insts: &[Inst]) {
        for inst in insts {
            let start = self.position;
            self.inst(inst);
            self.position += 1;
            // Values with their last use here are dead from now on, and so are unused results.
            let mut done = Vec::new();
            let mut visit = |operand: Operand| {
                if let Operand::Val(value) = operand {
                    done.push(value);
                }
            };
            for_each_read(self.kernel, &inst.op, &mut visit);
            done.extend(&inst.results);
            for value in done {
                self.release(value.index(), start);
            }
        }
        // Values that outlived their last use because a loop kept them live.
        for value in insts.iter().flat_map(|i| &i.results) {
            self.release(value.index(), u32::MAX);
        }
    }

    /// Frees the register of a value without uses after `position`.
    fn release(&mut self, value: usize, position: u32) {
        if self.last_use[value] <= position
            && let Some(reg) = self.registers[value].take()
        {
            self.free[class(self.kernel.value_types()[value])].push(reg);
        }
    }

    fn inst(&mut self, inst: &Inst) {
        let ty = inst.results.first().map_or(Type::U32, |&v| self.kernel.value_type(v));
        match &inst.op {
            Op::For { start, end, step, body, .. } => self.for_loop(inst, [*start, *end, *step], body),
            Op::If { condition, then, otherwise } => self.branch(inst, *condition, then, otherwise),
            Op::While { condition, test, body } => self.while_loop(inst, condition, *test, body),
            op => {
                let code = self.simple(op, ty, inst);
                for before in std::mem::take(&mut self.before) {
                    self.push(before, inst.site);
                }
                self.push(code, inst.site);
                self.free[class(Type::U32)].append(&mut self.temporaries);
                self.position += 1;
            }
        }
    }

    fn for_loop(&mut self, inst: &Inst, [start, end, step]: [Operand; 3], body: &[Inst]) {
        let [start, end, step] = [start, end, step].map(|o| self.operand(o));
        let counter = self.allocate(Type::U32);
        self.registers[inst.results[0].index()] = Some(counter);
        let enter = self.push(Instruction::For { counter, start, end, step, exit: 0 }, inst.site);
        self.position += 1;
        let first = self.next_position();
        self.region(body);
        self.push(Instruction::Next { counter, end, step, body: first }, inst.site);
        let after = self.next_position();
        if let Instruction::For { exit, .. } = &mut self.program.code[enter] {
            *exit = after;
        }
    }

    fn branch(&mut self, inst: &Inst, condition: Operand, then: &[Inst], otherwise: &[Inst]) {
        let condition = self.operand(condition);
        let enter = self.push(Instruction::If { condition, else_target: 0 }, inst.site);
        self.position += 1;
        self.region(then);
        let middle = self.push(Instruction::Else { end: 0 }, inst.site);
        self.region(otherwise);
        let end = self.push(Instruction::End, inst.site) as u32;
        if let Instruction::If { else_target, .. } = &mut self.program.code[enter] {
            *else_target = middle as u32;
        }
        self.program.code[middle] = Instruction::Else { end };
    }

    fn while_loop(&mut self, inst: &Inst, condition: &[Inst], test: Operand, body: &[Inst]) {
        let enter = self.push(Instruction::While { exit: 0 }, inst.site);
        self.position += 1;
        let again = self.next_position();
        // The body follows the condition's scope and the test reads its result: free its registers
        // after the body.
        for inst in condition {
            self.inst(inst);
            self.position += 1;
        }
        let condition_register = self.operand(test);
        let leave = self.push(Instruction::Test { condition: condition_register, exit: 0 }, inst.site);
        self.position += 1;
        self.region(body);
        self.push(Instruction::Jump { to: again }, inst.site);
        let end = self.push(Instruction::End, inst.site) as u32;
        self.program.code[leave] = Instruction::Test { condition: condition_register, exit: end };
        self.program.code[enter] = Instruction::While { exit: end + 1 };
        for value in condition.iter().flat_map(|i| &i.results) {
            self.release(value.index(), u32::MAX);
        }
    }

    /// Lowers an operation without a body.
    fn simple(&mut self, op: &Op, ty: Type, inst: &Inst) -> Instruction {
        let kernel = self.kernel;
        if let (Op::Get(var) | Op::Set(var, _), true) = (op, self.is_accumulator(op)) {
            return match op {
                Op::Set(_, a) => Instruction::WriteAccumulator { a: self.operand(*a), dst: self.vars[var.index()] },
                _ => Instruction::ReadAccumulator { a: self.vars[var.index()], dst: self.result(inst, 0) },
            };
        }
        let mut r = |o: &Operand| self.operand(*o);
        // Operands come first. A result may reuse an operand's register only if the operand is read
        // before the result is written. That holds for whole registers, but not lane by lane. So
        // results get registers before operands free theirs.
        match op {
            Op::SpecialRegister(register) => {
                Instruction::SpecialRegister { dst: self.result(inst, 0), register: *register }
            }
            Op::Extent(param, axis) => Instruction::Extent { dst: self.result(inst, 0), param: *param, axis: *axis },
            Op::Scalar(param) => Instruction::Scalar { dst: self.result(inst, 0), ty, param: *param },
            Op::Unary(op, a) => Instruction::Unary { op: *op, ty, a: r(a), dst: self.result(inst, 0) },
            Op::Binary(op, a, b) => Instruction::Binary { op: *op, ty, a: r(a), b: r(b), dst: self.result(inst, 0) },
            Op::MulAdd(a, b, c) => Instruction::MulAdd { ty, a: r(a), b: r(b), c: r(c), dst: self.result(inst, 0) },
            Op::Compare(cmp, a, b) => Instruction::Compare {
                cmp: *cmp,
                ty: kernel.operand_type(*a),
                a: r(a),
                b: r(b),
                dst: self.result(inst, 0),
            },
            Op::Select(condition, if_true, if_false) => Instruction::Select {
                ty,
                condition: r(condition),
                if_true: r(if_true),
                if_false: r(if_false),
                dst: self.result(inst, 0),
            },
            Op::Convert(a) => {
                Instruction::Convert { from: kernel.operand_type(*a), to: ty, a: r(a), dst: self.result(inst, 0) }
            }
            // Registers extend 8-bit integers by sign or zero, so a conversion keeps their bits.
            // Floats are extended as unsigned integers.
            Op::Bitcast(a) if ty.size() == 1 => {
                let int = |ty: Type| if ty.is_float() { Type::U8 } else { ty };
                Instruction::Convert {
                    from: int(kernel.operand_type(*a)),
                    to: int(ty),
                    a: r(a),
                    dst: self.result(inst, 0),
                }
            }
            Op::Bitcast(a) => Instruction::Copy { ty, a: r(a), dst: self.result(inst, 0) },
            Op::Get(var) => Instruction::Copy { ty, a: self.vars[var.index()], dst: self.result(inst, 0) },
            Op::Set(var, a) => Instruction::Set { ty: kernel.var_type(*var), a: r(a), dst: self.vars[var.index()] },
            Op::Load { from, width, guard, fill, order, scope } => {
                let (at, guard, fill) = (self.at(from), self.guard_register(*guard), self.operand(*fill));
                let dst = (0..*width as usize).map(|i| self.result(inst, i)).collect();
                Instruction::Load { ty, dst, at, guard, fill, order: *order, scope: *scope }
            }
            Op::Store { to, values, guard, order, scope } => {
                let (at, guard) = (self.at(to), self.guard_register(*guard));
                let values = values.iter().map(|value| self.operand(*value)).collect();
                Instruction::Store { ty: kernel.element_type(to), values, at, guard, order: *order, scope: *scope }
            }
            Op::Atomic { op, at, value, order, scope } => {
                let (at, value) = (self.at(at), self.operand(*value));
                let expected = match op {
                    AtomicOp::CompareExchange { expected } => self.operand(*expected),
                    _ => value,
                };
                let dst = self.result(inst, 0);
                Instruction::Atomic { op: *op, ty, dst, at, value, expected, order: *order, scope: *scope }
            }
            Op::WaitUntil { at, compare, value, scope } => {
                let ty = kernel.element_type(at);
                Instruction::WaitUntil {
                    ty,
                    at: self.at(at),
                    cmp: *compare,
                    value: self.operand(*value),
                    scope: *scope,
                }
            }
            Op::Fence(scope) => Instruction::Fence { scope: *scope },
            Op::CopyAsync { to, from, width, guard } => {
                let ty = kernel.element_type(to);
                let (to, from, guard) = (self.at(to), self.at(from), self.guard_register(*guard));
                Instruction::CopyAsync { ty, to, from, width: *width, guard }
            }
            Op::CopyAsyncCommit => Instruction::CopyAsyncCommit,
            Op::CopyAsyncWait { pending } => Instruction::CopyAsyncWait { pending: *pending },
            Op::Barrier => Instruction::Barrier,
            Op::NamedBarrier { id, threads, wait } => {
                Instruction::NamedBarrier { id: r(id), threads: *threads, wait: *wait }
            }
            Op::SyncWarp { mask } => Instruction::SyncWarp { mask: *mask },
            Op::Shuffle { mode, value, lane, mask } => Instruction::Shuffle {
                mode: *mode,
                value: r(value),
                lane: r(lane),
                mask: *mask,
                dst: self.result(inst, 0),
            },
            Op::Vote { mode, value, mask } => {
                Instruction::Vote { mode: *mode, value: r(value), mask: *mask, dst: self.result(inst, 0) }
            }
            Op::SetCursor(cursor, at) => {
                let MemoryRef::Global { row, col, .. } = at else {
                    unreachable!("checked: a cursor points into a matrix")
                };
                let [first, second] = [(row, 0), (col, 1)].map(|(a, which)| Instruction::Set {
                    ty: Type::U32,
                    a: self.operand(*a),
                    dst: self.vars[cursor.index() + which],
                });
                self.before.push(first);
                second
            }
            Op::MoveCursor { cursor, rows, cols, .. } => {
                let [first, second] = [(rows, 0), (cols, 1)].map(|(b, which)| {
                    let dst = self.vars[cursor.index() + which];
                    Instruction::AddSaturating { dst, a: dst, b: self.operand(*b) }
                });
                self.before.push(first);
                second
            }
            Op::Uniform(scope, a) => Instruction::Uniform { scope: *scope, ty, a: r(a), dst: self.result(inst, 0) },
            Op::RoundTf32(a) => Instruction::RoundTf32 { a: r(a), dst: self.result(inst, 0) },
            Op::Pack(a, b) => Instruction::Pack { a: r(a), b: r(b), dst: self.result(inst, 0) },
            Op::Mma { mma, a, b, accumulators } => {
                let mut fragments = Fragments::default();
                fragments.a.iter_mut().zip(a).for_each(|(reg, a)| *reg = r(a));
                fragments.b.iter_mut().zip(b).for_each(|(reg, b)| *reg = r(b));
                fragments
                    .accumulators
                    .iter_mut()
                    .zip(&self.vars[accumulators.index()..])
                    .for_each(|(reg, &var)| *reg = var);
                Instruction::Mma { mma: *mma, fragments }
            }
            Op::LoadMatrix { from, count, transposed } => {
                let (ty, at) = (kernel.element_type(from), self.at(from));
                let mut dst = [0; 4];
                for (i, dst) in dst.iter_mut().enumerate().take(*count as usize) {
                    *dst = self.result(inst, i);
                }
                Instruction::LoadMatrix { ty, dst, count: *count, at, transposed: *transposed }
            }
            Op::Hopper(op) => Instruction::Hopper(Box::new(self.hopper(op))),
            Op::For { .. } | Op::If { .. } | Op::While { .. } => unreachable!("lowered with their bodies"),
        }
    }

    /// Whether an operation reads or writes an accumulator of a warpgroup.
    fn is_accumulator(&self, op: &Op) -> bool {
        matches!(op, Op::Get(var) | Op::Set(var, _) if self.accumulators[var.index()])
    }

    fn hopper(&mut self, op: &HopperOp) -> LoweredOp {
        match op {
            HopperOp::MbarrierInit { barrier, arrivals } => {
                LoweredOp::MbarrierInit { barrier: self.at(barrier), arrivals: *arrivals }
            }
            HopperOp::FenceMbarrierInit => LoweredOp::FenceMbarrierInit,
            HopperOp::MbarrierArrive { barrier, block, expect } => {
                let [block, expect] = [block, expect].map(|o| o.map(|o| self.operand(o)));
                LoweredOp::MbarrierArrive { barrier: self.at(barrier), block, expect }
            }
            HopperOp::MbarrierWait { barrier, parity } => {
                LoweredOp::MbarrierWait { barrier: self.at(barrier), parity: self.operand(*parity) }
            }
            HopperOp::TmaLoad { matrix, at, to, barrier, blocks } => LoweredOp::TmaLoad {
                matrix: matrix.index(),
                at: at.map(|o| self.operand(o)),
                to: self.at(to),
                barrier: self.at(barrier),
                blocks: blocks.map(|o| self.operand(o)),
            },
            HopperOp::StoreAsync { to, values, block, barrier } => {
                let values = values.iter().map(|&o| self.operand(o)).collect();
                LoweredOp::StoreAsync {
                    to: self.at(to),
                    values,
                    block: self.operand(*block),
                    barrier: self.at(barrier),
                }
            }
            HopperOp::TmaStore { matrix, at, from } => {
                LoweredOp::TmaStore { matrix: matrix.index(), at: at.map(|o| self.operand(o)), from: self.at(from) }
            }
            HopperOp::BulkCommitGroup => LoweredOp::BulkCommitGroup,
            HopperOp::BulkWaitGroup { pending, read } => LoweredOp::BulkWaitGroup { pending: *pending, read: *read },
            HopperOp::FenceProxyAsync { global } => LoweredOp::FenceProxyAsync { global: *global },
            HopperOp::Wgmma { wgmma, a, b, accumulators, accumulate } => {
                let a = match a {
                    LeftOperand::Shared(a) => LoweredLeftOperand::Shared(self.shared_operand(a)),
                    LeftOperand::Registers(a) => {
                        let mut registers = [0; 4];
                        registers.iter_mut().zip(a).for_each(|(reg, &a)| *reg = self.operand(a));
                        LoweredLeftOperand::Registers(registers)
                    }
                };
                let accumulators = self.vars[accumulators.index()..][..wgmma.accumulators() as usize].into();
                LoweredOp::Wgmma(WgmmaInstruction {
                    wgmma: *wgmma,
                    a,
                    b: self.shared_operand(b),
                    accumulators,
                    accumulate: self.operand(*accumulate),
                })
            }
            HopperOp::WgmmaFence => LoweredOp::WgmmaFence,
            HopperOp::WgmmaCommitGroup => LoweredOp::WgmmaCommitGroup,
            HopperOp::WgmmaWaitGroup { pending } => LoweredOp::WgmmaWaitGroup { pending: *pending },
            HopperOp::StoreMatrix { to, values, transposed } => {
                let ty = self.kernel.element_type(to);
                let (to, values) = (self.at(to), values.iter().map(|&o| self.operand(o)).collect());
                LoweredOp::StoreMatrix { ty, to, values, transposed: *transposed }
            }
            HopperOp::SetMaxRegisters { count, increase } => {
                LoweredOp::SetMaxRegisters { count: *count, increase: *increase }
            }
            HopperOp::ClusterArrive => LoweredOp::ClusterArrive,
            HopperOp::ClusterWait => LoweredOp::ClusterWait,
            HopperOp::GriddepWait => LoweredOp::GriddepWait,
            HopperOp::PrefetchTensorMap { .. } | HopperOp::GriddepLaunchDependents => LoweredOp::Nop,
        }
    }

    fn shared_operand(&mut self, operand: &SharedOperand) -> program::LoweredSharedOperand {
        program::LoweredSharedOperand { at: self.at(&operand.at), k_major: operand.k_major }
    }

    fn result(&mut self, inst: &Inst, which: usize) -> Reg {
        let value = inst.results[which];
        let reg = self.allocate(self.kernel.value_type(value));
        self.registers[value.index()] = Some(reg);
        reg
    }
}
