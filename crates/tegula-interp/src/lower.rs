//! From the structured kernel to a flat list of instructions that a warp runs: control flow becomes jumps with a stack of lane
//! masks, values get registers that are used again once a value is dead.

use std::collections::HashMap;
use std::sync::Arc;

use tegula_core::element::Type;
use tegula_ir::bounds::Bounds;
use tegula_ir::{
    AtomicOp, CoordinatesId, Factor, Guard, Hopper, Inst, Kernel, LeftFactor, Op, Operand, Place, SharedArray,
    SharedId, SiteId, VarId,
};

use super::lanes::{Line, LineLanes, Reg};
use super::program::{self, Act, At, Code, Coordinate, Fragments, Left, Multiply, Only, Program, WIDEST};
use super::semantics::register_bits;

const ZERO: Line = Line([0; 32]);

/// Lowers a kernel.
pub(super) fn lower(kernel: &Kernel) -> Program {
    let lives = Lives::of(kernel);
    let mut lower = Lower {
        kernel,
        last_use: lives.last_use,
        position: 0,
        program: Program {
            code: Vec::new(),
            sites: Vec::new(),
            lines: Vec::new(),
            axes: Vec::new(),
            line_lanes: Arc::new([]),
            predicates: Vec::new(),
            slides: Vec::new(),
        },
        registers: vec![None; kernel.value_types().len()],
        vars: Vec::new(),
        sums: vec![false; kernel.var_types().len()],
        constants: HashMap::new(),
        free: Default::default(),
        line_lanes: Vec::new(),
        bounds: Bounds::of(kernel),
        known_axes: HashMap::new(),
        before: Vec::new(),
        temporaries: Vec::new(),
    };
    mark_sums(kernel.body(), &mut lower.sums);
    lower.vars = kernel.var_types().iter().map(|&ty| lower.allocate(ty)).collect();
    lower.region(kernel.body());
    lower.program.slides = slides(&lower.program.code);
    lower.program.line_lanes = lower.line_lanes.into();
    lower.program
}

/// Marks the variables that warpgroups add to.
fn mark_sums(insts: &[Inst], sums: &mut [bool]) {
    for inst in insts {
        if let Op::Hopper(Hopper::Wgmma { wgmma, sums: first, .. }) = &inst.op {
            sums[first.index()..][..wgmma.sums() as usize].fill(true);
        }
        inst.op.bodies().for_each(|body| mark_sums(body, sums));
    }
}

/// Which loops are slides: those whose body adds products, unless a loop within it does.
fn slides(code: &[Code]) -> Vec<bool> {
    let mut slides = vec![false; code.len()];
    // The loops around, each with whether it adds products itself and whether one within it does.
    let mut around: Vec<(usize, bool, bool)> = Vec::new();
    for (at, code) in code.iter().enumerate() {
        match code {
            Code::For { .. } | Code::While { .. } => around.push((at, false, false)),
            Code::Next { .. } | Code::Jump { .. } => {
                if let Some((at, adds, within)) = around.pop() {
                    slides[at] = adds && !within;
                    around.iter_mut().for_each(|outer| outer.2 |= adds || within);
                }
            }
            // Numbers of type u32 are indices.
            Code::MulAdd { ty: Type::U32, .. } => {}
            Code::Hopper(act) if !matches!(**act, Act::Wgmma(_)) => {}
            Code::MulAdd { .. } | Code::Mma { .. } | Code::Hopper(_) => {
                around.last_mut().into_iter().for_each(|inner| inner.1 = true)
            }
            _ => {}
        }
    }
    slides
}

/// Until which operation each value is needed, by position in a walk through the kernel.
struct Lives {
    last_use: Vec<u32>,
    depth: Vec<usize>,
    loops: Vec<Vec<usize>>,
    position: u32,
}

impl Lives {
    fn of(kernel: &Kernel) -> Self {
        let n = kernel.value_types().len();
        let mut lives = Lives { last_use: vec![0; n], depth: vec![0; n], loops: Vec::new(), position: 0 };
        lives.region(kernel, kernel.body());
        lives
    }

    fn read(&mut self, operand: Operand) {
        if let Operand::Val(value) = operand {
            let value = value.index();
            self.last_use[value] = self.last_use[value].max(self.position);
            // Made outside a loop and read inside: needed until the loop is over.
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
                each_read(kernel, &inst.op, |o| self.read(o));
            }
            self.position += 1;
            match &inst.op {
                Op::For { end, step, body, .. } => {
                    self.looped(|s| {
                        s.region(kernel, body);
                        s.read(*end);
                        s.read(*step);
                    });
                    self.last_use[inst.results[0].index()] = self.position;
                }
                Op::While { condition, test, body } => self.looped(|s| {
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

    fn looped(&mut self, walk: impl FnOnce(&mut Self)) {
        self.loops.push(Vec::new());
        walk(self);
        for value in self.loops.pop().unwrap_or_default() {
            self.last_use[value] = self.last_use[value].max(self.position);
        }
    }
}

/// Calls `f` with all that an operation reads here: its operands, and the coordinates of its places.
fn each_read(kernel: &Kernel, op: &Op, mut f: impl FnMut(Operand)) {
    op.for_each_operand(&mut f);
    op.for_each_place(|place| {
        if let Place::Shared { coordinates, .. } = *place {
            kernel.coordinates(coordinates).iter().for_each(|&(value, _)| f(value));
        }
    });
}

struct Lower<'a> {
    kernel: &'a Kernel,
    last_use: Vec<u32>,
    position: u32,
    program: Program,
    registers: Vec<Option<Reg>>,
    vars: Vec<Reg>,
    /// Variables that warpgroups add to.
    sums: Vec<bool>,
    constants: HashMap<(Type, u64), Reg>,
    /// Registers nobody needs any more: predicates, single lines, pairs of lines.
    free: [Vec<Reg>; 3],
    line_lanes: Vec<LineLanes>,
    bounds: Bounds,
    known_axes: HashMap<Vec<Coordinate>, u32>,
    /// What goes before the instruction at hand, and the registers that only it reads.
    before: Vec<Code>,
    temporaries: Vec<Reg>,
}

fn class(ty: Type) -> usize {
    match ty {
        Type::Pred => 0,
        ty if ty.size() == 8 => 2,
        _ => 1,
    }
}

impl Lower<'_> {
    fn allocate(&mut self, ty: Type) -> Reg {
        let class = class(ty);
        if let Some(reg) = self.free[class].pop() {
            return reg;
        }
        let reg = if class == 0 { self.program.predicates.len() } else { self.program.lines.len() };
        match class {
            0 => self.program.predicates.push(0),
            1 => self.lines(&[ZERO]),
            _ => self.lines(&[ZERO; 2]),
        }
        reg as Reg
    }

    /// A register of one line, or of two.
    fn lines(&mut self, lines: &[Line]) {
        self.program.lines.extend(lines);
        let lanes: &[_] = if lines.len() == 2 { &[LineLanes::Low, LineLanes::High] } else { &[LineLanes::All] };
        self.line_lanes.extend(lanes);
    }

    fn constant(&mut self, ty: Type, bits: u64) -> Reg {
        if let Some(&reg) = self.constants.get(&(ty, bits)) {
            return reg;
        }
        // A register of its own: constants are written once, before the kernel starts.
        let reg = if ty == Type::Pred { self.program.predicates.len() } else { self.program.lines.len() } as Reg;
        match class(ty) {
            0 => self.program.predicates.push(if bits & 1 == 1 { u32::MAX } else { 0 }),
            1 => self.lines(&[Line([register_bits(ty, bits); 32])]),
            _ => self.lines(&bytemuck::cast::<[u64; 32], [Line; 2]>([bits; 32])),
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

    fn at(&mut self, place: &Place) -> At {
        match *place {
            Place::Global { param, batch, row, col } => {
                At::Global { param, batch: self.operand(batch), row: self.operand(row), col: self.operand(col) }
            }
            Place::Cursor { param, batch, cursor, row, col } => {
                let [row, col] = [(0, row), (1, col)].map(|(which, further)| self.further(cursor, which, further));
                At::Global { param, batch: self.operand(batch), row, col }
            }
            Place::Shared { array, index, offset, coordinates } => {
                let axes = self.axes(array, coordinates);
                At::Shared { array, index: self.operand(index), offset, axes }
            }
        }
    }

    /// The coordinates of a place that are not known to be inside.
    fn axes(&mut self, array: SharedId, coordinates: CoordinatesId) -> u32 {
        let kernel = self.kernel;
        let SharedArray { dims, .. } = &kernel.shared()[array.index()];
        let mut axes = Vec::new();
        for (axis, (&(value, fixed), &extent)) in kernel.coordinates(coordinates).iter().zip(dims).enumerate() {
            let last = axis + 1 == dims.len();
            // A vector is at most as wide as it is aligned.
            let widest = if last { WIDEST as u64 - 1 } else { 0 };
            if self.bounds.most(value) + u64::from(fixed) + widest >= u64::from(extent) {
                axes.push(Coordinate { axis, last, value: self.operand(value), fixed, extent });
            }
        }
        let known = &mut self.program.axes;
        let next = known.len() as u32;
        *self.known_axes.entry(axes).or_insert_with_key(|axes| {
            known.push(axes.clone());
            next
        })
    }

    /// A coordinate of a cursor, so much further on.
    fn further(&mut self, cursor: VarId, which: usize, by: u32) -> Reg {
        let a = self.vars[cursor.index() + which];
        if by == 0 {
            return a;
        }
        let (dst, b) = (self.allocate(Type::U32), self.constant(Type::U32, u64::from(by)));
        self.before.push(Code::Advance { dst, a, b });
        self.temporaries.push(dst);
        dst
    }

    fn only(&mut self, guard: Guard) -> Only {
        match guard {
            Guard::Always => Only::Always,
            Guard::If(predicate) => Only::If(self.operand(predicate)),
            Guard::First(count) => Only::First(self.operand(count)),
        }
    }

    fn push(&mut self, code: Code, site: SiteId) -> usize {
        self.program.code.push(code);
        self.program.sites.push(site);
        self.program.code.len() - 1
    }

    fn here(&self) -> u32 {
        self.program.code.len() as u32
    }

    fn region(&mut self, insts: &[Inst]) {
        for inst in insts {
            let start = self.position;
            self.inst(inst);
            self.position += 1;
            // Whatever was last needed here is free from now on, what nobody needs at all included.
            let mut done = Vec::new();
            let mut visit = |operand: Operand| {
                if let Operand::Val(value) = operand {
                    done.push(value);
                }
            };
            each_read(self.kernel, &inst.op, &mut visit);
            done.extend(&inst.results);
            for value in done {
                self.release(value.index(), start);
            }
        }
        // Values that outlived their last reader because a loop held them.
        for value in insts.iter().flat_map(|i| &i.results) {
            self.release(value.index(), u32::MAX);
        }
    }

    /// Frees a value's register where nothing after `position` reads it.
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
        let enter = self.push(Code::For { counter, start, end, step, exit: 0 }, inst.site);
        self.position += 1;
        let first = self.here();
        self.region(body);
        self.push(Code::Next { counter, end, step, body: first }, inst.site);
        let after = self.here();
        if let Code::For { exit, .. } = &mut self.program.code[enter] {
            *exit = after;
        }
    }

    fn branch(&mut self, inst: &Inst, condition: Operand, then: &[Inst], otherwise: &[Inst]) {
        let condition = self.operand(condition);
        let enter = self.push(Code::If { condition, otherwise: 0 }, inst.site);
        self.position += 1;
        self.region(then);
        let middle = self.push(Code::Else { end: 0 }, inst.site);
        self.region(otherwise);
        let end = self.push(Code::End, inst.site) as u32;
        if let Code::If { otherwise, .. } = &mut self.program.code[enter] {
            *otherwise = middle as u32;
        }
        self.program.code[middle] = Code::Else { end };
    }

    fn while_loop(&mut self, inst: &Inst, condition: &[Inst], test: Operand, body: &[Inst]) {
        let enter = self.push(Code::While { exit: 0 }, inst.site);
        self.position += 1;
        let again = self.here();
        // The test is read after the condition's own scope ends, so its registers are freed only after the body.
        for inst in condition {
            self.inst(inst);
            self.position += 1;
        }
        let condition_register = self.operand(test);
        let leave = self.push(Code::Test { condition: condition_register, exit: 0 }, inst.site);
        self.position += 1;
        self.region(body);
        self.push(Code::Jump { to: again }, inst.site);
        let end = self.push(Code::End, inst.site) as u32;
        self.program.code[leave] = Code::Test { condition: condition_register, exit: end };
        self.program.code[enter] = Code::While { exit: end + 1 };
        for value in condition.iter().flat_map(|i| &i.results) {
            self.release(value.index(), u32::MAX);
        }
    }

    /// An operation without a body.
    fn simple(&mut self, op: &Op, ty: Type, inst: &Inst) -> Code {
        let kernel = self.kernel;
        if let (Op::Get(var) | Op::Set(var, _), true) = (op, self.is_sum(op)) {
            return match op {
                Op::Set(_, a) => Code::PutSum { a: self.operand(*a), dst: self.vars[var.index()] },
                _ => Code::TakeSum { a: self.vars[var.index()], dst: self.result(inst, 0) },
            };
        }
        let mut r = |o: &Operand| self.operand(*o);
        // Operands first: a result may take the register of an operand that ends here only if it is read before it is written,
        // which holds for whole registers but not lane by lane, so results get registers before operands give theirs back.
        match op {
            Op::Special(what) => Code::Special { dst: self.result(inst, 0), what: *what },
            Op::Extent(param, axis) => Code::Extent { dst: self.result(inst, 0), param: *param, axis: *axis },
            Op::Scalar(param) => Code::Scalar { dst: self.result(inst, 0), ty, param: *param },
            Op::Unary(op, a) => Code::Unary { op: *op, ty, a: r(a), dst: self.result(inst, 0) },
            Op::Binary(op, a, b) => Code::Binary { op: *op, ty, a: r(a), b: r(b), dst: self.result(inst, 0) },
            Op::MulAdd(a, b, c) => Code::MulAdd { ty, a: r(a), b: r(b), c: r(c), dst: self.result(inst, 0) },
            Op::Compare(how, a, b) => {
                Code::Compare { how: *how, ty: kernel.operand_type(*a), a: r(a), b: r(b), dst: self.result(inst, 0) }
            }
            Op::Select(condition, yes, no) => {
                Code::Select { ty, condition: r(condition), yes: r(yes), no: r(no), dst: self.result(inst, 0) }
            }
            Op::Convert(a) => {
                Code::Convert { from: kernel.operand_type(*a), to: ty, a: r(a), dst: self.result(inst, 0) }
            }
            // Registers extend 8-bit integers, each in its way: converting keeps their bits.
            // Floats are extended as unsigned integers.
            Op::Bitcast(a) if ty.size() == 1 => {
                let int = |ty: Type| if ty.is_float() { Type::U8 } else { ty };
                Code::Convert { from: int(kernel.operand_type(*a)), to: int(ty), a: r(a), dst: self.result(inst, 0) }
            }
            Op::Bitcast(a) => Code::Copy { ty, a: r(a), dst: self.result(inst, 0) },
            Op::Get(var) => Code::Copy { ty, a: self.vars[var.index()], dst: self.result(inst, 0) },
            Op::Set(var, a) => Code::Set { ty: kernel.var_type(*var), a: r(a), dst: self.vars[var.index()] },
            Op::Load { from, width, guard, fill, order, scope } => {
                let (at, only, fill) = (self.at(from), self.only(*guard), self.operand(*fill));
                let dst = (0..*width as usize).map(|i| self.result(inst, i)).collect();
                Code::Load { ty, dst, at, only, fill, order: *order, scope: *scope }
            }
            Op::Store { to, values, guard, order, scope } => {
                let (at, only) = (self.at(to), self.only(*guard));
                let mut registers = [0; 4];
                for (register, value) in registers.iter_mut().zip(values) {
                    *register = self.operand(*value);
                }
                let (ty, width) = (kernel.place_type(to), values.len() as u32);
                Code::Store { ty, values: registers, width, at, only, order: *order, scope: *scope }
            }
            Op::Atomic { op, at, value, order, scope } => {
                let (at, value) = (self.at(at), self.operand(*value));
                let expected = match op {
                    AtomicOp::CompareExchange { expected } => self.operand(*expected),
                    _ => value,
                };
                let dst = self.result(inst, 0);
                Code::Atomic { op: *op, ty, dst, at, value, expected, order: *order, scope: *scope }
            }
            Op::WaitUntil { at, compare, value, scope } => {
                let ty = kernel.place_type(at);
                Code::WaitUntil { ty, at: self.at(at), how: *compare, value: self.operand(*value), scope: *scope }
            }
            Op::Fence(scope) => Code::Fence { scope: *scope },
            Op::CopyAsync { to, from, width, guard } => {
                let ty = kernel.place_type(to);
                let (to, from, only) = (self.at(to), self.at(from), self.only(*guard));
                Code::CopyAsync { ty, to, from, width: *width, only }
            }
            Op::CopyAsyncCommit => Code::Commit,
            Op::CopyAsyncWait { pending } => Code::WaitGroups { pending: *pending },
            Op::Barrier => Code::Barrier,
            Op::NamedBarrier { id, threads, wait } => Code::NamedBarrier { id: r(id), threads: *threads, wait: *wait },
            Op::SyncWarp { mask } => Code::SyncWarp { mask: *mask },
            Op::Shuffle { mode, value, lane, mask } => {
                Code::Shuffle { mode: *mode, value: r(value), lane: r(lane), mask: *mask, dst: self.result(inst, 0) }
            }
            Op::Vote { mode, value, mask } => {
                Code::Vote { mode: *mode, value: r(value), mask: *mask, dst: self.result(inst, 0) }
            }
            Op::SetCursor(cursor, at) => {
                let Place::Global { row, col, .. } = at else { unreachable!("checked: a cursor stands in a matrix") };
                let [first, second] = [(row, 0), (col, 1)].map(|(a, which)| Code::Set {
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
                    Code::Advance { dst, a: dst, b: self.operand(*b) }
                });
                self.before.push(first);
                second
            }
            Op::Uniform(scope, a) => Code::Uniform { scope: *scope, ty, a: r(a), dst: self.result(inst, 0) },
            Op::RoundTf32(a) => Code::RoundTf32 { a: r(a), dst: self.result(inst, 0) },
            Op::Pack(a, b) => Code::Pack { a: r(a), b: r(b), dst: self.result(inst, 0) },
            Op::Mma { mma, a, b, sums } => {
                let mut fragments = Fragments::default();
                fragments.a.iter_mut().zip(a).for_each(|(reg, a)| *reg = r(a));
                fragments.b.iter_mut().zip(b).for_each(|(reg, b)| *reg = r(b));
                fragments.sums.iter_mut().zip(&self.vars[sums.index()..]).for_each(|(reg, &var)| *reg = var);
                Code::Mma { mma: *mma, fragments }
            }
            Op::LoadMatrix { from, count, transposed } => {
                let (ty, at) = (kernel.place_type(from), self.at(from));
                let mut dst = [0; 4];
                for (i, dst) in dst.iter_mut().enumerate().take(*count as usize) {
                    *dst = self.result(inst, i);
                }
                Code::LoadMatrix { ty, dst, count: *count, at, transposed: *transposed }
            }
            Op::Hopper(op) => Code::Hopper(Box::new(self.hopper(op))),
            Op::For { .. } | Op::If { .. } | Op::While { .. } => unreachable!("lowered with their bodies"),
        }
    }

    /// Whether a variable is read or written that a warpgroup adds to.
    fn is_sum(&self, op: &Op) -> bool {
        matches!(op, Op::Get(var) | Op::Set(var, _) if self.sums[var.index()])
    }

    fn hopper(&mut self, op: &Hopper) -> Act {
        match op {
            Hopper::InitBarrier { barrier, arrivals } => {
                Act::InitBarrier { barrier: self.at(barrier), arrivals: *arrivals }
            }
            Hopper::FenceInit => Act::FenceInit,
            Hopper::Arrive { barrier, block, expect } => {
                let [block, expect] = [block, expect].map(|o| o.map(|o| self.operand(o)));
                Act::Arrive { barrier: self.at(barrier), block, expect }
            }
            Hopper::Await { barrier, parity } => {
                Act::Await { barrier: self.at(barrier), parity: self.operand(*parity) }
            }
            Hopper::CopyTile { matrix, at, to, barrier, blocks } => Act::CopyTile {
                matrix: matrix.index(),
                at: at.map(|o| self.operand(o)),
                to: self.at(to),
                barrier: self.at(barrier),
                blocks: blocks.map(|o| self.operand(o)),
            },
            Hopper::Send { to, values, block, barrier } => {
                let values = values.iter().map(|&o| self.operand(o)).collect();
                Act::Send { to: self.at(to), values, block: self.operand(*block), barrier: self.at(barrier) }
            }
            Hopper::StoreTile { matrix, at, from } => {
                Act::StoreTile { matrix: matrix.index(), at: at.map(|o| self.operand(o)), from: self.at(from) }
            }
            Hopper::CommitStores => Act::CommitStores,
            Hopper::AwaitStores { pending, read } => Act::AwaitStores { pending: *pending, read: *read },
            Hopper::FenceProxy { global } => Act::FenceProxy { global: *global },
            Hopper::Wgmma { wgmma, a, b, sums, add } => {
                let a = match a {
                    LeftFactor::Shared(a) => Left::Shared(self.factor(a)),
                    LeftFactor::Registers(a) => {
                        let mut registers = [0; 4];
                        registers.iter_mut().zip(a).for_each(|(reg, &a)| *reg = self.operand(a));
                        Left::Registers(registers)
                    }
                };
                let sums = self.vars[sums.index()..][..wgmma.sums() as usize].into();
                Act::Wgmma(Multiply { wgmma: *wgmma, a, b: self.factor(b), sums, add: self.operand(*add) })
            }
            Hopper::WgmmaFence => Act::WgmmaFence,
            Hopper::WgmmaCommit => Act::WgmmaCommit,
            Hopper::WgmmaWait { pending } => Act::WgmmaWait { pending: *pending },
            Hopper::StoreMatrix { to, values, transposed } => {
                let ty = self.kernel.place_type(to);
                let (to, values) = (self.at(to), values.iter().map(|&o| self.operand(o)).collect());
                Act::StoreMatrix { ty, to, values, transposed: *transposed }
            }
            Hopper::SetRegisters { count, more } => Act::SetRegisters { count: *count, more: *more },
            Hopper::ClusterArrive => Act::ClusterArrive,
            Hopper::ClusterWait => Act::ClusterWait,
            Hopper::AwaitLaunches => Act::AwaitLaunches,
            Hopper::Prefetch { .. } | Hopper::AllowNext => Act::Nothing,
        }
    }

    fn factor(&mut self, factor: &Factor) -> program::Factor {
        program::Factor { at: self.at(&factor.at), along_k: factor.along_k }
    }

    fn result(&mut self, inst: &Inst, which: usize) -> Reg {
        let value = inst.results[which];
        let reg = self.allocate(self.kernel.value_type(value));
        self.registers[value.index()] = Some(reg);
        reg
    }
}
