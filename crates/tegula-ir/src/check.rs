//! The checker: [`check`] converts a [`Kernel`] to a [`Checked`] kernel, which engines print or
//! run.
//!
//! A checked kernel is valid whatever its data. The first pass infers the *uniformity* of each
//! value ([`super::uniformity`]): the widest scope in which all threads hold the same value. The
//! second pass rejects values out of scope, uninitialized variables, accesses wider than their
//! memory allows, and barriers in divergent control flow.

use std::ops::Deref;

use tegula_core::diagnostic::{Fault, FaultKind};
use tegula_core::element::Type;
use tegula_core::error::{Error, Result};

use super::hopper::check::{check_tiles, faults};
use super::hopper::{HopperOp, Wgmma};
use super::mma::Mma;
use super::ops::*;
use super::uniform::Uniform;
use super::uniformity::{UniformityAnalysis, infer};

/// The maximum number of threads of a block.
pub const MAX_THREADS: u32 = 1024;
/// The maximum size of a launch's parameters, in bytes.
pub const MAX_PARAMETER_BYTES: u64 = 4096;
/// The maximum shared memory of a block on the largest supported GPU; smaller GPUs fail at launch.
pub const MAX_SHARED_BYTES: u64 = 232_448;

/// A kernel that passed [`check`]; immutable.
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
    /// The widest scope over which a value is known to be uniform.
    pub fn uniform(&self, value: ValId) -> Uniform {
        self.uniform[value.index()]
    }
}

/// Checks a kernel.
///
/// # Errors
/// [`Error::InvalidKernel`] with all faults.
pub fn check(kernel: Kernel) -> Result<Checked<Kernel>> {
    let uniformity = infer(&kernel);
    let mut faults = kernel.faults.clone();
    check_resources(&kernel, &mut faults);
    let mut checker = Checker {
        kernel: &kernel,
        uniformity: &uniformity,
        faults: &mut faults,
        defined: vec![false; kernel.values.len()],
        set: vec![false; kernel.vars.len()],
    };
    checker.region(kernel.body(), Uniform::Grid);
    let uniform = uniformity.values;
    if faults.is_empty() {
        return Ok(Checked { kernel, uniform });
    }
    Err(Error::InvalidKernel { kernel: kernel.name, faults })
}

fn check_resources(kernel: &Kernel, faults: &mut Vec<Fault>) {
    let mut fault = |kind, message| faults.push(Fault { kind, message, source: None });
    let [x, y, z] = kernel.block;
    let threads = [x, y, z].iter().fold(1, |product: u64, &d| product.saturating_mul(d.into()));
    if threads == 0 || threads > u64::from(MAX_THREADS) || z > 64 {
        fault(
            FaultKind::Launch,
            format!(
                "a block of {x}×{y}×{z} has {threads} threads; the limits are 1 to {MAX_THREADS} threads and 64 along z"
            ),
        );
    }
    if !matches!(kernel.cluster, 1 | 2 | 4 | 8) {
        fault(FaultKind::Launch, format!("a cluster of {} blocks is not supported; use 1, 2, 4 or 8", kernel.cluster));
    }
    if kernel.grid.is_none() {
        fault(FaultKind::Launch, "the kernel has no grid; call `grid` or `for_blocks`".into());
    }
    let bytes = kernel.shared_bytes();
    if bytes > MAX_SHARED_BYTES {
        fault(
            FaultKind::SharedMemory,
            format!("a block needs {bytes} bytes of shared memory; the limit is {MAX_SHARED_BYTES}"),
        );
    }
    for param in kernel.params() {
        if matches!(param.kind, ParamKind::Matrix { ty: Type::Pred, .. }) {
            fault(
                FaultKind::Type,
                format!("matrix {} has the element type pred, which cannot be stored in memory", param.name),
            );
        }
    }
    let bytes = kernel.parameter_bytes();
    if bytes > MAX_PARAMETER_BYTES {
        let message = format!("the parameters need {bytes} bytes; the limit of a launch is {MAX_PARAMETER_BYTES}");
        fault(FaultKind::Launch, message);
    }
    check_tiles(kernel, faults);
    let mut fault = |kind, message| faults.push(Fault { kind, message, source: None });
    for array in kernel.shared() {
        if array.dims.is_empty() || array.dims.len() > 3 || array.is_empty() || array.ty == Type::Pred {
            fault(
                FaultKind::SharedMemory,
                format!(
                    "shared array {} needs one to three extents other than 0, and a type other than pred",
                    array.name
                ),
            );
        }
    }
}

/// The second pass.
struct Checker<'a> {
    kernel: &'a Kernel,
    uniformity: &'a UniformityAnalysis<'a>,
    faults: &'a mut Vec<Fault>,
    defined: Vec<bool>,
    set: Vec<bool>,
}

impl Checker<'_> {
    fn fault(&mut self, inst: &Inst, kind: FaultKind, message: impl Into<String>) {
        let source = Some(self.kernel.site(inst.site).location);
        self.faults.push(Fault { kind, message: message.into(), source });
    }

    fn uniform(&self, operand: Operand) -> Uniform {
        self.uniformity.operand(operand)
    }

    /// Checks a list of operations; the values it defines go out of scope afterwards.
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

    /// Checks a conditional or repeated region, and returns the variables that it sets.
    ///
    /// None of them counts as set afterwards.
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
        self.convergence(inst, path);
        for value in &inst.results {
            self.defined[value.index()] = true;
        }
        match &inst.op {
            Op::Get(var) if !self.set[var.index()] => {
                self.fault(
                    inst,
                    FaultKind::Uninitialized,
                    "the variable may be uninitialized here; set it on every path",
                );
            }
            Op::Set(var, _) => self.set[var.index()] = true,
            Op::SetCursor(cursor, at) => {
                self.set[cursor.index()] = true;
                if !matches!(at, MemoryRef::Global { .. }) {
                    self.fault(inst, FaultKind::Type, "a cursor must refer to an element of a matrix");
                }
            }
            Op::MoveCursor { cursor, .. } if !self.set[cursor.index()] => {
                self.fault(
                    inst,
                    FaultKind::Uninitialized,
                    "the cursor may be uninitialized here; set it on every path",
                );
            }
            Op::Mma { mma, accumulators, .. } if !mma_accumulators(*mma, *accumulators).all(|var| self.set[var]) => {
                self.fault(
                    inst,
                    FaultKind::Uninitialized,
                    "an accumulator may be uninitialized here; set it on every path",
                );
            }
            Op::SpecialRegister(SpecialRegister::Multiprocessors) => {
                self.fault(inst, FaultKind::Type, "the number of SMs is available to the grid only");
            }
            Op::Hopper(HopperOp::Wgmma { wgmma, accumulators, accumulate, .. }) => {
                let all = wgmma_accumulators(*wgmma, *accumulators);
                if *accumulate != Operand::Const(Type::Pred, 0) && !all.clone().all(|var| self.set[var]) {
                    self.fault(
                        inst,
                        FaultKind::Uninitialized,
                        "an accumulator may be uninitialized here; set it on every path",
                    );
                }
                all.for_each(|var| self.set[var] = true);
            }
            Op::For { start, end, step, body, .. } => {
                if matches!(step, Operand::Const(_, 0)) {
                    self.fault(inst, FaultKind::Type, "the step of a loop is 0; it must be positive");
                }
                let path = path.max(self.uniformity.trip_count([*start, *end, *step]));
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
        // The condition runs at least once, and its values are in scope for the test only.
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
            self.fault(inst, FaultKind::Scope, "a value is used outside the loop or branch that defines it");
        }
    }

    /// A reference relative to a cursor requires a set cursor.
    fn cursor(&mut self, inst: &Inst, place: &MemoryRef) {
        if let MemoryRef::Cursor { cursor, .. } = place
            && !self.set[cursor.index()]
        {
            self.fault(inst, FaultKind::Uninitialized, "the cursor may be uninitialized here; set it on every path");
        }
    }

    /// Checks widths, alignments and types of memory operations.
    fn access(&mut self, inst: &Inst) {
        self.memory_contents(inst);
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
                self.order(inst, *order, &[MemoryOrder::Weak, MemoryOrder::Relaxed, MemoryOrder::Acquire], *width);
            }
            Op::Store { to, values, order, .. } => {
                let widths: &[u32] = if self.kernel.element_type(to).size() == 2 { &[1, 2, 4, 8] } else { &[1, 2, 4] };
                self.width(inst, to, values.len() as u32, widths);
                self.order(
                    inst,
                    *order,
                    &[MemoryOrder::Weak, MemoryOrder::Relaxed, MemoryOrder::Release],
                    values.len() as u32,
                );
                self.writable(inst, to);
            }
            Op::Atomic { op, at, .. } => {
                self.writable(inst, at);
                let ty = self.kernel.element_type(at);
                if !supports_atomic(*op, ty) {
                    self.fault(inst, FaultKind::Type, format!("this atomic operation is not supported for {ty}"));
                }
            }
            Op::WaitUntil { at, .. } => {
                let ty = self.kernel.element_type(at);
                if !ty.is_int() || ty.size() < 4 {
                    self.fault(inst, FaultKind::Type, format!("a wait needs a 4- or 8-byte integer, not {ty}"));
                }
            }
            Op::CopyAsync { to, from, width, .. } => self.copy_async(inst, to, from, *width),
            Op::Mma { mma, a, b, accumulators } => self.mma(inst, *mma, [a, b], *accumulators),
            Op::LoadMatrix { from, count, .. } => self.load_matrix(inst, from, *count),
            Op::Shuffle { value, .. } if self.kernel.operand_type(*value).size() != 4 => {
                self.fault(inst, FaultKind::Type, "a shuffle needs a value of 4 bytes");
            }
            _ => {}
        }
    }

    /// Checks Hopper operations, and that no other operation accesses an mbarrier.
    fn memory_contents(&mut self, inst: &Inst) {
        if let Op::Hopper(op) = &inst.op {
            faults(self.kernel, op).into_iter().for_each(|(kind, message)| self.fault(inst, kind, message));
            return;
        }
        inst.op.for_each_memory_ref(|place| {
            if let MemoryRef::Shared { array, .. } = *place
                && let SharedArray { name, contents: ArrayContents::Mbarriers, .. } = &self.kernel.shared[array.index()]
            {
                self.fault(
                    inst,
                    FaultKind::Type,
                    format!("{name} holds mbarriers, which cannot be accessed as elements"),
                );
            }
        });
    }

    fn copy_async(&mut self, inst: &Inst, to: &MemoryRef, from: &MemoryRef, width: u32) {
        let bytes = width as usize * self.kernel.element_type(from).size();
        if self.kernel.element_type(from) != self.kernel.element_type(to) {
            self.fault(inst, FaultKind::Type, "an asynchronous copy cannot convert between types");
        }
        if from.is_shared() {
            self.fault(inst, FaultKind::Type, "the source of an asynchronous copy must be in global memory");
        }
        if !matches!(bytes, 4 | 8 | 16) {
            self.fault(
                inst,
                FaultKind::Width,
                format!("an asynchronous copy of {bytes} bytes is not supported; use 4, 8 or 16 bytes"),
            );
        }
        self.aligned(inst, from, width);
        self.aligned(inst, to, width);
    }

    /// Checks the number and types of the fragments' registers.
    fn mma(&mut self, inst: &Inst, mma: Mma, operands: [&[Operand]; 2], accumulators: VarId) {
        for ((name, operands), count) in ["A", "B"].into_iter().zip(operands).zip(mma.registers()) {
            if operands.len() != count as usize {
                let message = format!("{mma} needs {count} registers of {name}, not {}", operands.len());
                self.fault(inst, FaultKind::Type, message);
            }
            if let Some(ty) = operands.iter().map(|&o| self.kernel.operand_type(o)).find(|&ty| ty != mma.operand_type())
            {
                self.fault(
                    inst,
                    FaultKind::Type,
                    format!("{mma} needs {name} in registers of {}, not {ty}", mma.operand_type()),
                );
            }
        }
        if let Some(ty) = mma_accumulators(mma, accumulators)
            .map(|var| self.kernel.vars[var])
            .find(|&ty| ty != mma.accumulator_type())
        {
            self.fault(
                inst,
                FaultKind::Type,
                format!("{mma} needs accumulators of {}, not {ty}", mma.accumulator_type()),
            );
        }
    }

    fn load_matrix(&mut self, inst: &Inst, from: &MemoryRef, count: u32) {
        if !from.is_shared() || !matches!(count, 1 | 2 | 4) {
            let message = format!("cannot load {count} matrices at once; load 1, 2 or 4 from shared memory");
            self.fault(inst, FaultKind::Width, message);
        }
        self.aligned(inst, from, (16 / self.kernel.element_type(from).size()) as u32);
    }

    fn order(&mut self, inst: &Inst, order: MemoryOrder, allowed: &[MemoryOrder], width: u32) {
        if !allowed.contains(&order) {
            self.fault(inst, FaultKind::Type, format!("{order:?} order is not valid for this access"));
        }
        if order != MemoryOrder::Weak && width != 1 {
            self.fault(inst, FaultKind::Width, "a strong access moves one element");
        }
    }

    fn writable(&mut self, inst: &Inst, place: &MemoryRef) {
        if let MemoryRef::Global { param, .. } | MemoryRef::Cursor { param, .. } = place {
            let param = &self.kernel.params[param.index()];
            if let ParamKind::Matrix { access: Access::Read, .. } = param.kind {
                let message = format!("{} is an input; declare it writable", param.name);
                self.fault(inst, FaultKind::Type, message);
            }
        }
    }

    fn width(&mut self, inst: &Inst, place: &MemoryRef, width: u32, widths: &[u32]) {
        let bytes = width as usize * self.kernel.element_type(place).size();
        if !widths.contains(&width) || bytes > 16 {
            let supported = widths.iter().map(u32::to_string).collect::<Vec<_>>().join(", ");
            let message = format!(
                "an access of {width} elements ({bytes} bytes) is not supported; use {supported} elements of at most 16 bytes"
            );
            self.fault(inst, FaultKind::Width, message);
            return;
        }
        self.aligned(inst, place, width);
    }

    fn aligned(&mut self, inst: &Inst, place: &MemoryRef, width: u32) {
        if width == 1 {
            return;
        }
        let col = match *place {
            MemoryRef::Global { col: Operand::Const(_, col), .. } => col,
            MemoryRef::Cursor { col, .. } => u64::from(col),
            _ => 0,
        };
        match *place {
            MemoryRef::Global { param, .. } | MemoryRef::Cursor { param, .. } => {
                let Param { name, kind } = &self.kernel.params[param.index()];
                if let ParamKind::Matrix { order, aligned, .. } = *kind
                    && (order != Order2d::RowMajor || !aligned.is_multiple_of(width) || aligned == 0)
                {
                    let message =
                        format!("an access of {width} elements needs {name} declared row-major and aligned to {width}");
                    self.fault(inst, FaultKind::Width, message);
                }
                if col % u64::from(width) != 0 {
                    self.fault(inst, FaultKind::Width, format!("column {col} is not a multiple of the width {width}"));
                }
            }
            MemoryRef::Shared { index: Operand::Const(_, index), offset, .. }
                if !(index as u32).wrapping_add(offset).is_multiple_of(width) =>
            {
                self.fault(
                    inst,
                    FaultKind::Width,
                    format!("an access of {width} elements must start at a multiple of {width}"),
                );
            }
            MemoryRef::Shared { .. } => {}
        }
    }

    /// Checks the control flow around operations that several threads execute together.
    fn convergence(&mut self, inst: &Inst, path: Uniform) {
        match inst.op {
            Op::Barrier if path > Uniform::Block => {
                self.fault(
                    inst,
                    FaultKind::DivergentBarrier,
                    "a barrier in control flow that may diverge within the block; if the conditions are uniform, assert it with `uniform`",
                );
            }
            Op::NamedBarrier { id, threads, .. } => {
                if matches!(id, Operand::Const(_, id) if !(1..=15).contains(&id))
                    || threads == 0
                    || !threads.is_multiple_of(32)
                {
                    self.fault(
                        inst,
                        FaultKind::Launch,
                        "a named barrier needs an id from 1 to 15 and a positive multiple of 32 threads",
                    );
                }
                if threads > self.kernel.threads().div_ceil(32).saturating_mul(32) {
                    let message = format!("a named barrier of {threads} threads exceeds the block");
                    self.fault(inst, FaultKind::Launch, message);
                }
                if path.max(self.uniform(id)) > Uniform::Warp {
                    self.fault(
                        inst,
                        FaultKind::DivergentBarrier,
                        "a named barrier in control flow that may diverge within the warp",
                    );
                }
            }
            Op::Hopper(
                HopperOp::Wgmma { .. }
                | HopperOp::WgmmaFence
                | HopperOp::WgmmaCommitGroup
                | HopperOp::WgmmaWaitGroup { .. }
                | HopperOp::SetMaxRegisters { .. },
            ) => {
                if path > Uniform::Warpgroup {
                    self.fault(
                        inst,
                        FaultKind::DivergentWarp,
                        "a warpgroup operation in control flow that may diverge within the warpgroup",
                    );
                }
                if !self.kernel.threads().is_multiple_of(Wgmma::THREADS) {
                    let message =
                        format!("a block of {} threads is not a whole number of warpgroups", self.kernel.threads());
                    self.fault(inst, FaultKind::Launch, message);
                }
            }
            Op::Hopper(HopperOp::ClusterArrive) if path > Uniform::Cluster => {
                self.fault(
                    inst,
                    FaultKind::DivergentBarrier,
                    "a cluster barrier in control flow that may diverge within the cluster",
                );
            }
            // After its arrival, a thread may wait in any control flow that is uniform in the warp.
            Op::Hopper(HopperOp::ClusterWait) if path > Uniform::Warp => {
                self.fault(
                    inst,
                    FaultKind::DivergentWarp,
                    "a wait at the cluster barrier in control flow that may diverge within the warp",
                );
            }
            Op::Mma { .. } | Op::LoadMatrix { .. } | Op::Hopper(HopperOp::StoreMatrix { .. }) => {
                if path > Uniform::Warp {
                    self.fault(
                        inst,
                        FaultKind::DivergentWarp,
                        "a matrix instruction in control flow that may diverge within the warp",
                    );
                }
                if !self.kernel.threads().is_multiple_of(32) {
                    let message = format!("a matrix instruction in a block of {} threads", self.kernel.threads());
                    self.fault(inst, FaultKind::Launch, message + ", which is not a whole number of warps");
                }
            }
            Op::SyncWarp { mask } | Op::Shuffle { mask, .. } | Op::Vote { mask, .. }
                if mask == u32::MAX && path > Uniform::Warp =>
            {
                self.fault(
                    inst,
                    FaultKind::DivergentWarp,
                    "a warp-wide operation in control flow that may diverge within the warp; if the conditions are uniform, assert it with `uniform_in_warp`, else list the participating lanes in the mask",
                );
            }
            Op::Uniform(scope, _) if path > scope => {
                self.fault(
                    inst,
                    FaultKind::DivergentBarrier,
                    "a uniformity assertion in control flow that may diverge within its scope",
                );
            }
            Op::SyncWarp { mask: 0 } | Op::Shuffle { mask: 0, .. } | Op::Vote { mask: 0, .. } => {
                self.fault(inst, FaultKind::Type, "a warp-wide operation with an empty mask");
            }
            _ => {}
        }
    }
}

fn supports_atomic(op: AtomicOp, ty: Type) -> bool {
    use Type::*;
    match op {
        AtomicOp::Add => matches!(ty, U32 | I32 | U64 | F32 | F64),
        AtomicOp::Swap => ty.size() >= 4,
        _ => matches!(ty, U32 | I32 | U64 | I64),
    }
}
