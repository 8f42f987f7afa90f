//! The proof that a kernel makes sense whatever its data: [`check`] turns a [`Kernel`] into a [`Checked`] one, which alone can be
//! printed or run.
//!
//! Two walks over the operations. The first infers how *uniform* each value is ([`super::infer`]): the widest group of threads in which all hold
//! the same. The second refuses what cannot work: values out of scope, variables read before they are set, accesses wider than
//! their memory allows, barriers where the threads that should meet may have parted.

use std::ops::Deref;

use tegula_core::diagnostic::{Fault, FaultKind};
use tegula_core::element::Type;
use tegula_core::error::{Error, Result};

use super::hopper::check::{check_tiles, faults};
use super::hopper::{Hopper, Wgmma};
use super::infer::{Infer, infer};
use super::mma::Mma;
use super::ops::*;
use super::uniform::Uniform;

/// Threads a block may have.
pub const MAX_THREADS: u32 = 1024;
/// Bytes of parameters a launch may pass.
pub const MAX_PARAMETER_BYTES: u64 = 4096;
/// Bytes of shared memory a block may have on the largest supported GPU; smaller ones refuse at launch.
pub const MAX_SHARED_BYTES: u64 = 232_448;

/// A kernel that passed [`check`]. It cannot be changed any more.
#[derive(Clone, Debug)]
pub struct Checked<K = Kernel> {
    kernel: K,
    uniform: Vec<Uniform>,
}

impl<K> Deref for Checked<K> {
    type Target = K;
    fn deref(&self) -> &K {
        &self.kernel
    }
}

impl Checked<Kernel> {
    /// The widest group of threads that surely agree on a value.
    pub fn uniform(&self, value: ValId) -> Uniform {
        self.uniform[value.index()]
    }
}

/// Checks a kernel.
///
/// # Errors
/// [`Error::Refused`] with every fault found.
pub fn check(kernel: Kernel) -> Result<Checked<Kernel>> {
    let facts = infer(&kernel);
    let mut faults = kernel.faults.clone();
    check_resources(&kernel, &mut faults);
    let mut walk = Walk {
        kernel: &kernel,
        facts: &facts,
        faults: &mut faults,
        defined: vec![false; kernel.values.len()],
        set: vec![false; kernel.vars.len()],
    };
    walk.region(kernel.body(), Uniform::Grid);
    let uniform = facts.values;
    if faults.is_empty() {
        return Ok(Checked { kernel, uniform });
    }
    Err(Error::Refused { kernel: kernel.name, faults })
}

fn check_resources(kernel: &Kernel, faults: &mut Vec<Fault>) {
    let mut refuse = |kind, message| faults.push(Fault { kind, message, source: None });
    let [x, y, z] = kernel.block;
    let threads = [x, y, z].iter().fold(1, |product: u64, &d| product.saturating_mul(d.into()));
    if threads == 0 || threads > u64::from(MAX_THREADS) || z > 64 {
        refuse(
            FaultKind::Launch,
            format!("a block of {x}×{y}×{z} is {threads} threads; it may have 1 to {MAX_THREADS} (z at most 64)"),
        );
    }
    if !matches!(kernel.cluster, 1 | 2 | 4 | 8) {
        refuse(FaultKind::Launch, format!("clusters of {} blocks; 1, 2, 4 and 8 go", kernel.cluster));
    }
    if kernel.grid.is_none() {
        refuse(FaultKind::Launch, "the kernel does not say what its grid is: call `grid` or `for_blocks`".into());
    }
    let bytes = kernel.shared_bytes();
    if bytes > MAX_SHARED_BYTES {
        refuse(
            FaultKind::SharedMemory,
            format!("a block needs {bytes} bytes of shared memory; there are at most {MAX_SHARED_BYTES}"),
        );
    }
    for param in kernel.params() {
        if matches!(param.kind, ParamKind::Matrix { ty: Type::Pred, .. }) {
            refuse(FaultKind::Type, format!("matrix {} is of truth values, which memory does not hold", param.name));
        }
    }
    let bytes = kernel.parameter_bytes();
    if bytes > MAX_PARAMETER_BYTES {
        let message = format!("the parameters take {bytes} bytes; a launch passes at most {MAX_PARAMETER_BYTES}");
        refuse(FaultKind::Launch, message);
    }
    check_tiles(kernel, faults);
    let mut refuse = |kind, message| faults.push(Fault { kind, message, source: None });
    for array in kernel.shared() {
        if array.dims.is_empty() || array.dims.len() > 3 || array.is_empty() || array.ty == Type::Pred {
            refuse(
                FaultKind::SharedMemory,
                format!("shared array {} needs one to three extents, none of them 0", array.name),
            );
        }
    }
}

struct Walk<'a> {
    kernel: &'a Kernel,
    facts: &'a Infer<'a>,
    faults: &'a mut Vec<Fault>,
    defined: Vec<bool>,
    set: Vec<bool>,
}

impl Walk<'_> {
    fn refuse(&mut self, inst: &Inst, kind: FaultKind, message: impl Into<String>) {
        let source = Some(self.kernel.site(inst.site).location);
        self.faults.push(Fault { kind, message: message.into(), source });
    }

    fn uniform(&self, operand: Operand) -> Uniform {
        self.facts.operand(operand)
    }

    /// Checks a list of operations; what it defines is out of scope afterwards.
    fn region(&mut self, insts: &[Inst], path: Uniform) {
        for inst in insts {
            self.inst(inst, path);
        }
        for inst in insts {
            for value in &inst.results {
                self.defined[value.index()] = false;
            }
        }
    }

    /// A region that may not run, or run again: what it sets is not surely set afterwards. Gives what it would have set.
    fn branch(&mut self, insts: &[Inst], path: Uniform) -> Vec<bool> {
        let before = self.set.clone();
        self.region(insts, path);
        std::mem::replace(&mut self.set, before)
    }

    fn inst(&mut self, inst: &Inst, path: Uniform) {
        if !matches!(inst.op, Op::While { .. }) {
            self.operands(inst);
        }
        self.access(inst);
        self.meeting(inst, path);
        for value in &inst.results {
            self.defined[value.index()] = true;
        }
        match &inst.op {
            Op::Get(var) if !self.set[var.index()] => {
                self.refuse(inst, FaultKind::Uninitialised, "a variable may be read here before it is set");
            }
            Op::Set(var, _) => self.set[var.index()] = true,
            Op::SetCursor(cursor, at) => {
                self.set[cursor.index()] = true;
                if !matches!(at, Place::Global { .. }) {
                    self.refuse(inst, FaultKind::Type, "a cursor stands in a matrix");
                }
            }
            Op::MoveCursor { cursor, .. } if !self.set[cursor.index()] => {
                self.refuse(inst, FaultKind::Uninitialised, "a cursor may move here before it is set");
            }
            Op::Mma { mma, sums, .. } if !vars_of(*mma, *sums).all(|var| self.set[var]) => {
                self.refuse(inst, FaultKind::Uninitialised, "a sum may be added to here before it is set");
            }
            Op::Special(Special::Multiprocessors) => {
                self.refuse(inst, FaultKind::Type, "the number of multiprocessors is known to the grid alone");
            }
            Op::Hopper(Hopper::Wgmma { wgmma, sums, add, .. }) => {
                let all = sums_of(*wgmma, *sums);
                if *add != Operand::Const(Type::Pred, 0) && !all.clone().all(|var| self.set[var]) {
                    self.refuse(inst, FaultKind::Uninitialised, "a sum may be added to here before it is set");
                }
                all.for_each(|var| self.set[var] = true);
            }
            Op::For { start, end, step, body, .. } => {
                if matches!(step, Operand::Const(_, 0)) {
                    self.refuse(inst, FaultKind::Type, "a loop needs a step other than 0");
                }
                let path = path.max(self.facts.rounds([*start, *end, *step]));
                self.branch(body, path);
                self.defined[inst.results[0].index()] = false;
            }
            Op::If { condition, then, otherwise } => {
                let path = path.max(self.uniform(*condition));
                let (then, otherwise) = (self.branch(then, path), self.branch(otherwise, path));
                for (set, (a, b)) in self.set.iter_mut().zip(then.into_iter().zip(otherwise)) {
                    *set |= a && b;
                }
            }
            Op::While { condition, test, body } => self.while_loop(inst, condition, *test, body, path),
            _ => {}
        }
    }

    fn while_loop(&mut self, inst: &Inst, condition: &[Inst], test: Operand, body: &[Inst], path: Uniform) {
        let path = path.max(self.uniform(test));
        // The condition runs at least once, and its values are in scope for the test alone.
        for inst in condition {
            self.inst(inst, path);
        }
        self.in_scope(inst, test);
        for inst in condition {
            for value in &inst.results {
                self.defined[value.index()] = false;
            }
        }
        self.branch(body, path);
    }

    fn operands(&mut self, inst: &Inst) {
        let mut operands = Vec::new();
        inst.op.for_each_operand(|o| operands.push(o));
        for operand in operands {
            self.in_scope(inst, operand);
        }
    }

    fn in_scope(&mut self, inst: &Inst, operand: Operand) {
        if let Operand::Val(value) = operand
            && !self.defined[value.index()]
        {
            self.refuse(inst, FaultKind::Scope, "a value is used outside the loop or branch that computes it");
        }
    }

    /// A place relative to a cursor needs one that stands somewhere.
    fn cursor(&mut self, inst: &Inst, place: &Place) {
        if let Place::Cursor { cursor, .. } = place
            && !self.set[cursor.index()]
        {
            self.refuse(inst, FaultKind::Uninitialised, "a cursor may be read through here before it is set");
        }
    }

    /// Widths, alignments and types of memory operations.
    fn access(&mut self, inst: &Inst) {
        self.reach(inst);
        match &inst.op {
            Op::Load { from: at, .. } | Op::Store { to: at, .. } | Op::CopyAsync { from: at, .. } => {
                self.cursor(inst, at)
            }
            Op::Atomic { at, .. } | Op::WaitUntil { at, .. } => self.cursor(inst, at),
            _ => {}
        }
        match &inst.op {
            Op::Load { from, width, order, .. } => {
                self.width(inst, from, *width, &[1, 2, 4, 8, 16]);
                self.order(inst, *order, &[Order::Weak, Order::Relaxed, Order::Acquire], *width);
            }
            Op::Store { to, values, order, .. } => {
                self.width(inst, to, values.len() as u32, &[1, 2, 4]);
                self.order(inst, *order, &[Order::Weak, Order::Relaxed, Order::Release], values.len() as u32);
                self.writable(inst, to);
            }
            Op::Atomic { op, at, .. } => {
                self.writable(inst, at);
                let ty = self.kernel.place_type(at);
                if !atomic_exists(*op, ty) {
                    self.refuse(inst, FaultKind::Type, format!("there is no such atomic operation for {ty}"));
                }
            }
            Op::WaitUntil { at, .. } => {
                let ty = self.kernel.place_type(at);
                if !ty.is_int() || ty.size() < 4 {
                    self.refuse(inst, FaultKind::Type, format!("waiting needs a 4- or 8-byte integer, not {ty}"));
                }
            }
            Op::CopyAsync { to, from, width, .. } => self.copy_async(inst, to, from, *width),
            Op::Mma { mma, a, b, sums } => self.mma(inst, *mma, [a, b], *sums),
            Op::LoadMatrix { from, count, .. } => self.load_matrix(inst, from, *count),
            Op::Shuffle { value, .. } if self.kernel.operand_type(*value).size() != 4 => {
                self.refuse(inst, FaultKind::Type, "a shuffle moves 4-byte values");
            }
            _ => {}
        }
    }

    /// Barriers are for who meets there.
    fn reach(&mut self, inst: &Inst) {
        if let Op::Hopper(op) = &inst.op {
            faults(self.kernel, op).into_iter().for_each(|(kind, message)| self.refuse(inst, kind, message));
            return;
        }
        inst.op.for_each_place(|place| {
            if let Place::Shared { array, .. } = *place
                && let SharedArray { name, holds: Holds::Barriers, .. } = &self.kernel.shared[array.index()]
            {
                self.refuse(inst, FaultKind::Type, format!("{name} holds barriers, which are not read or written"));
            }
        });
    }

    fn copy_async(&mut self, inst: &Inst, to: &Place, from: &Place, width: u32) {
        let bytes = width as usize * self.kernel.place_type(from).size();
        if self.kernel.place_type(from) != self.kernel.place_type(to) {
            self.refuse(inst, FaultKind::Type, "an asynchronous copy does not convert");
        }
        if from.is_shared() {
            self.refuse(inst, FaultKind::Type, "an asynchronous copy reads a matrix in global memory");
        }
        if !matches!(bytes, 4 | 8 | 16) {
            self.refuse(inst, FaultKind::Width, format!("an asynchronous copy moves 4, 8 or 16 bytes, not {bytes}"));
        }
        self.aligned(inst, from, width);
        self.aligned(inst, to, width);
    }

    /// As many registers as the fragments have, each of its type.
    fn mma(&mut self, inst: &Inst, mma: Mma, operands: [&[Operand]; 2], sums: VarId) {
        for ((name, operands), count) in ["A", "B"].into_iter().zip(operands).zip(mma.registers()) {
            if operands.len() != count as usize {
                let message = format!("{mma} takes {count} registers of {name}, not {}", operands.len());
                self.refuse(inst, FaultKind::Type, message);
            }
            if let Some(ty) = operands.iter().map(|&o| self.kernel.operand_type(o)).find(|&ty| ty != mma.register()) {
                self.refuse(inst, FaultKind::Type, format!("{mma} takes {name} as {}, not {ty}", mma.register()));
            }
        }
        if let Some(ty) = vars_of(mma, sums).map(|var| self.kernel.vars[var]).find(|&ty| ty != mma.sums()) {
            self.refuse(inst, FaultKind::Type, format!("{mma} sums in {}, not {ty}", mma.sums()));
        }
    }

    fn load_matrix(&mut self, inst: &Inst, from: &Place, count: u32) {
        if !from.is_shared() || !matches!(count, 1 | 2 | 4) {
            let message = format!("{count} matrices at once; 1, 2 or 4 go, from shared memory");
            self.refuse(inst, FaultKind::Width, message);
        }
        self.aligned(inst, from, (16 / self.kernel.place_type(from).size()) as u32);
    }

    fn order(&mut self, inst: &Inst, order: Order, allowed: &[Order], width: u32) {
        if !allowed.contains(&order) {
            self.refuse(inst, FaultKind::Type, format!("{order:?} order does not belong to this access"));
        }
        if order != Order::Weak && width != 1 {
            self.refuse(inst, FaultKind::Width, "an ordered access is of one element");
        }
    }

    fn writable(&mut self, inst: &Inst, place: &Place) {
        if let Place::Global { param, .. } | Place::Cursor { param, .. } = place {
            let param = &self.kernel.params[param.index()];
            if let ParamKind::Matrix { access: Access::Read, .. } = param.kind {
                let message = format!("{} is an input; declare it writable to write it", param.name);
                self.refuse(inst, FaultKind::Type, message);
            }
        }
    }

    fn width(&mut self, inst: &Inst, place: &Place, width: u32, widths: &[u32]) {
        let bytes = width as usize * self.kernel.place_type(place).size();
        if !widths.contains(&width) || bytes > 16 {
            let most = widths.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let message = format!("an access of {width} elements, {bytes} bytes; {most} elements and 16 bytes go");
            self.refuse(inst, FaultKind::Width, message);
            return;
        }
        self.aligned(inst, place, width);
    }

    fn aligned(&mut self, inst: &Inst, place: &Place, width: u32) {
        if width == 1 {
            return;
        }
        let col = match *place {
            Place::Global { col: Operand::Const(_, col), .. } => col,
            Place::Cursor { col, .. } => u64::from(col),
            _ => 0,
        };
        match *place {
            Place::Global { param, .. } | Place::Cursor { param, .. } => {
                let Param { name, kind } = &self.kernel.params[param.index()];
                if let ParamKind::Matrix { order, aligned, .. } = *kind
                    && (order != Order2d::RowMajor || !aligned.is_multiple_of(width) || aligned == 0)
                {
                    let message =
                        format!("{width} elements at once need {name} declared row-major and aligned to {width}");
                    self.refuse(inst, FaultKind::Width, message);
                }
                if col % u64::from(width) != 0 {
                    self.refuse(inst, FaultKind::Width, format!("column {col} is no multiple of {width}"));
                }
            }
            Place::Shared { index: Operand::Const(_, index), offset, .. }
                if !(index as u32).wrapping_add(offset).is_multiple_of(width) =>
            {
                self.refuse(inst, FaultKind::Width, format!("{width} elements at once from no multiple of {width}"));
            }
            Place::Shared { .. } => {}
        }
    }

    /// Operations at which threads meet: all that should come must be sure to come.
    fn meeting(&mut self, inst: &Inst, path: Uniform) {
        match inst.op {
            Op::Barrier if path > Uniform::Block => {
                self.refuse(
                    inst,
                    FaultKind::DivergentBarrier,
                    "a barrier where not all threads of the block are sure to come; if all agree on the conditions around it, assert that with `uniform`",
                );
            }
            Op::NamedBarrier { id, threads, .. } => {
                if matches!(id, Operand::Const(_, id) if !(1..=15).contains(&id))
                    || threads == 0
                    || !threads.is_multiple_of(32)
                {
                    self.refuse(
                        inst,
                        FaultKind::Launch,
                        "a named barrier has an id from 1 to 15 and a multiple of 32 threads",
                    );
                }
                if threads > self.kernel.threads().div_ceil(32).saturating_mul(32) {
                    let message = format!("a named barrier of {threads} threads in a smaller block");
                    self.refuse(inst, FaultKind::Launch, message);
                }
                if path.max(self.uniform(id)) > Uniform::Warp {
                    self.refuse(
                        inst,
                        FaultKind::DivergentBarrier,
                        "a named barrier where not all lanes of the warp are sure to come",
                    );
                }
            }
            Op::Hopper(
                Hopper::Wgmma { .. }
                | Hopper::WgmmaFence
                | Hopper::WgmmaCommit
                | Hopper::WgmmaWait { .. }
                | Hopper::SetRegisters { .. },
            ) => {
                if path > Uniform::Warpgroup {
                    self.refuse(
                        inst,
                        FaultKind::DivergentWarp,
                        "an operation of a warpgroup where not all of its threads are sure to come",
                    );
                }
                if !self.kernel.threads().is_multiple_of(Wgmma::THREADS) {
                    let message =
                        format!("a block of {} threads is no whole number of warpgroups", self.kernel.threads());
                    self.refuse(inst, FaultKind::Launch, message);
                }
            }
            Op::Hopper(Hopper::ClusterArrive) if path > Uniform::Cluster => {
                self.refuse(
                    inst,
                    FaultKind::DivergentBarrier,
                    "the cluster's barrier where not all of its threads are sure to come",
                );
            }
            // Whoever has come may wait where it likes.
            Op::Hopper(Hopper::ClusterWait) if path > Uniform::Warp => {
                self.refuse(
                    inst,
                    FaultKind::DivergentWarp,
                    "waits at the cluster's barrier where not all lanes of the warp are sure to come",
                );
            }
            Op::Mma { .. } | Op::LoadMatrix { .. } | Op::Hopper(Hopper::StoreMatrix { .. }) => {
                if path > Uniform::Warp {
                    self.refuse(
                        inst,
                        FaultKind::DivergentWarp,
                        "a matrix instruction where not all lanes of the warp are sure to come",
                    );
                }
                if !self.kernel.threads().is_multiple_of(32) {
                    let message = format!("a matrix instruction in a block of {} threads", self.kernel.threads());
                    self.refuse(inst, FaultKind::Launch, message + ", which is no whole number of warps");
                }
            }
            Op::SyncWarp { mask } | Op::Shuffle { mask, .. } | Op::Vote { mask, .. }
                if mask == u32::MAX && path > Uniform::Warp =>
            {
                self.refuse(
                    inst,
                    FaultKind::DivergentWarp,
                    "a warp-wide operation where not all lanes of the warp are sure to come; if all agree on the conditions around it, assert that with `uniform_in_warp`, else name the lanes that come in its mask",
                );
            }
            Op::Uniform(scope, _) if path > scope => {
                self.refuse(
                    inst,
                    FaultKind::DivergentBarrier,
                    "an assertion that threads agree, where not all of them are sure to come",
                );
            }
            Op::SyncWarp { mask: 0 } | Op::Shuffle { mask: 0, .. } | Op::Vote { mask: 0, .. } => {
                self.refuse(inst, FaultKind::Type, "a warp-wide operation without lanes");
            }
            _ => {}
        }
    }
}

fn atomic_exists(op: AtomicOp, ty: Type) -> bool {
    use Type::*;
    match op {
        AtomicOp::Add => matches!(ty, U32 | I32 | U64 | F32 | F64),
        AtomicOp::Exchange => ty.size() >= 4,
        _ => matches!(ty, U32 | I32 | U64 | I64),
    }
}
