//! The operations of the IR, and the kernel that holds them: plain data with accessors.
//!
//! `tegula_interp` defines the semantics of each operation; [`crate::ptx`] defines its PTX.

use std::panic::Location;

use tegula_core::diagnostic::Fault;
use tegula_core::element::Type;

use super::hopper::{HopperOp, Swizzle, Tiles, Wgmma};
pub use super::layout::Order2d;
use super::mma::Mma;
pub use super::operand::*;
use super::uniform::Uniform;

/// Built-in indices, which differ between threads or blocks. All are `u32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are those of CUDA")]
pub enum SpecialRegister {
    ThreadX,
    ThreadY,
    ThreadZ,
    BlockX,
    BlockY,
    BlockZ,
    GridX,
    GridY,
    GridZ,
    /// The lane's index in its warp, 0 to 31.
    Lane,
    /// The warp's index in its block.
    Warp,
    /// The warpgroup's index in its block; four warps each.
    Warpgroup,
    /// The cluster's index in the grid along x.
    Cluster,
    /// The block's rank in its cluster.
    ClusterRank,
    /// The number of SMs of the device; available to the grid only.
    Multiprocessors,
}

/// The axes of a matrix parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum Axis {
    Batches,
    Rows,
    Cols,
}

/// Operations on one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Unary {
    /// −x; wraps for integers.
    Neg,
    /// Bitwise complement; logical negation for predicates.
    Not,
    /// |x|; the least integer is unchanged.
    Abs,
}

/// Operations on two numbers of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// Rounded to nearest even for floats, wrapping for integers.
    Add,
    /// Rounded and wrapping as `Add`.
    Sub,
    /// Rounded as `Add`; integers keep the low half.
    Mul,
    /// Rounded to nearest even for floats. Integers truncate; dividing by zero is an error.
    Div,
    /// Integers only; the result has the sign of the dividend.
    Rem,
    /// The minimum; the other operand where one is NaN. −0 is less than +0.
    Min,
    /// The maximum, with the rules of `Min`.
    Max,
    /// Integers and predicates.
    And,
    /// Integers and predicates.
    Or,
    /// Integers and predicates.
    Xor,
    /// Integers; counts beyond the width give 0.
    Shl,
    /// Integers; arithmetic for signed types. Counts beyond the width give 0 or the sign.
    Shr,
}

/// Comparisons. With a NaN operand, `Ne` is true and all others are false.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the documentation")]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// Atomic read-modify-write operations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicOp {
    /// Addition: u32, i32, u64, f32, f64.
    Add,
    /// Minimum: u32, i32, u64, i64.
    Min,
    /// Maximum: u32, i32, u64, i64.
    Max,
    /// Bitwise and: u32, i32, u64, i64.
    And,
    /// Bitwise or: u32, i32, u64, i64.
    Or,
    /// Bitwise exclusive or: u32, i32, u64, i64.
    Xor,
    /// Exchange with the new value: 4- and 8-byte types.
    Swap,
    /// Compare and exchange: 4- and 8-byte integers. Stores the new value if the old equals
    /// `expected`.
    CompareExchange {
        /// The expected old value.
        expected: Operand,
    },
}

/// The memory order of an access, as in PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MemoryOrder {
    /// No ordering; a conflict with an unordered access is a data race.
    Weak,
    /// No ordering, but no data race with other strong accesses.
    Relaxed,
    /// Orders later accesses after the accesses published by the matching release.
    Acquire,
    /// Publishes the earlier accesses.
    Release,
    /// Acquire and release.
    AcqRel,
}

/// The scope of a strong access: the threads with which it synchronizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// The threads of the block.
    Block,
    /// The threads of the device.
    Device,
    /// All threads of all devices, and the host.
    System,
}

/// The source lane of a shuffle.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shuffle {
    /// Lane `operand`, modulo 32.
    Index,
    /// Own lane − `operand`; the own value where that lane does not exist.
    Up,
    /// Own lane + `operand`; the own value where that lane does not exist.
    Down,
    /// Own lane ^ `operand`, modulo 32.
    Xor,
}

/// The result of a vote.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vote {
    /// Whether the predicate is true in all lanes.
    All,
    /// Whether the predicate is true in any lane.
    Any,
    /// One bit for each lane with a true predicate, as u32.
    Ballot,
}

/// The predication of a memory operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guard {
    /// Accesses all elements.
    Always,
    /// Accesses all elements if the predicate is true, else none.
    If(Operand),
    /// Accesses the first n elements, where n is `u32`; all where n exceeds the width.
    First(Operand),
}

/// An operation. It has one result unless stated otherwise.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A built-in index.
    SpecialRegister(SpecialRegister),
    /// An extent of a matrix, as `u32`.
    Extent(ParamId, Axis),
    /// The value of a scalar parameter.
    Scalar(ParamId),
    /// Arithmetic on one number.
    Unary(Unary, Operand),
    /// Arithmetic on two numbers.
    Binary(Binary, Operand, Operand),
    /// a·b + c: floats round once, integers wrap.
    MulAdd(Operand, Operand, Operand),
    /// Compares two numbers of one type; the result is a predicate.
    Compare(Compare, Operand, Operand),
    /// Selects the second operand if the first (a predicate) is true, else the third.
    Select(Operand, Operand, Operand),
    /// Converts a number to the type of the result.
    ///
    /// To a float: rounded to nearest even. Float to integer: truncated and clamped, NaN gives 0.
    /// Like the hardware, NaN gives 2⁶³ for 64-bit integers, and 2ⁿ⁻¹ from f64 to n bits. Integer
    /// to integer: truncated or extended.
    Convert(Operand),
    /// Reinterprets the bits as another type of the same size.
    Bitcast(Operand),
    /// Packs two 16-bit numbers into a `u32`, the first in the lower half.
    Pack(Operand, Operand),
    /// The same value, asserted to be uniform over a scope. The interpreter verifies it; a GPU
    /// trusts it.
    Uniform(Uniform, Operand),
    /// Rounds an f32 to tf32 (10 fraction bits), to nearest, ties away from zero.
    ///
    /// The result is a `u32`, as [`Op::Mma`] takes it. NVIDIA only.
    RoundTf32(Operand),
    /// Reads a variable.
    Get(VarId),
    /// Writes a variable. No result.
    Set(VarId, Operand),
    /// Sets a cursor to an element of a matrix, a [`MemoryRef::Global`]. No result.
    SetCursor(VarId, MemoryRef),
    /// Advances a cursor by rows and columns, `u32`. No result.
    ///
    /// The coordinates saturate at 2³² − 1, which is out of bounds for every matrix.
    MoveCursor {
        /// The cursor.
        cursor: VarId,
        /// The cursor's matrix.
        param: ParamId,
        /// The number of rows.
        rows: Operand,
        /// The number of columns.
        cols: Operand,
    },
    /// Loads elements, one result each. Elements that the guard excludes are `fill`.
    Load {
        /// The first element.
        from: MemoryRef,
        /// Elements: 1, 2, 4, 8 or 16, of at most 16 bytes.
        width: u32,
        /// The predication.
        guard: Guard,
        /// The value of excluded elements: a constant or a value of the element type.
        fill: Operand,
        /// `Weak`, `Relaxed` or `Acquire`.
        order: MemoryOrder,
        /// The scope, for strong loads.
        scope: Scope,
    },
    /// Stores elements. No result.
    Store {
        /// The first element.
        to: MemoryRef,
        /// 1, 2 or 4 values.
        values: Vec<Operand>,
        /// The predication.
        guard: Guard,
        /// `Weak`, `Relaxed` or `Release`.
        order: MemoryOrder,
        /// The scope, for strong stores.
        scope: Scope,
    },
    /// Atomically reads, computes and writes an element. The result is the old value.
    Atomic {
        /// The operation.
        op: AtomicOp,
        /// The element.
        at: MemoryRef,
        /// The operand, or the new value.
        value: Operand,
        /// The memory order.
        order: MemoryOrder,
        /// The scope.
        scope: Scope,
    },
    /// Fence (acquire and release) of the thread's accesses. No result.
    Fence(Scope),
    /// Spins until the element compares with the value as given, then acquires. No result.
    WaitUntil {
        /// The element, of a 4- or 8-byte integer type.
        at: MemoryRef,
        /// The comparison: element `compare` value.
        compare: Compare,
        /// The value.
        value: Operand,
        /// The scope.
        scope: Scope,
    },
    /// Starts an asynchronous copy (`cp.async`) from global to shared memory. No result.
    ///
    /// Elements that the guard excludes are zero-filled.
    CopyAsync {
        /// The first element in shared memory.
        to: MemoryRef,
        /// The first element in global memory.
        from: MemoryRef,
        /// Elements, of together 4, 8 or 16 bytes.
        width: u32,
        /// The predication.
        guard: Guard,
    },
    /// Commits the thread's pending copies as one group. No result.
    CopyAsyncCommit,
    /// Waits until at most `pending` of the thread's latest copy groups are incomplete. No result.
    CopyAsyncWait {
        /// The number of groups that may be incomplete.
        pending: u32,
    },
    /// Block barrier (`bar.sync 0`). No result.
    Barrier,
    /// Named barrier `id` (1 to 15) of `threads` threads. No result.
    NamedBarrier {
        /// The barrier, `u32`; uniform within a warp.
        id: Operand,
        /// The number of participating threads, a multiple of 32.
        threads: u32,
        /// Whether the thread waits (`sync`) or only arrives.
        wait: bool,
    },
    /// Warp barrier for the lanes of the mask, which orders their accesses. No result.
    SyncWarp {
        /// One bit for each lane.
        mask: u32,
    },
    /// Reads the value of another lane. Synchronizes the lanes of the mask, but orders no memory.
    Shuffle {
        /// The interpretation of `lane`.
        mode: Shuffle,
        /// The value of each lane: a 4-byte type.
        value: Operand,
        /// The source lane, `u32`.
        lane: Operand,
        /// One bit for each participating lane.
        mask: u32,
    },
    /// Votes among lanes. Synchronizes them, but orders no memory.
    Vote {
        /// The result.
        mode: Vote,
        /// The predicate of each lane.
        value: Operand,
        /// One bit for each participating lane.
        mask: u32,
    },
    /// Warp-level matrix multiply-accumulate: accumulators += A·B. No result.
    ///
    /// All lanes of the warp execute it. It orders no memory. NVIDIA only.
    Mma {
        /// The instruction: shape, types and fragment layouts.
        mma: Mma,
        /// The lane's registers of A.
        a: Vec<Operand>,
        /// The lane's registers of B.
        b: Vec<Operand>,
        /// The first of the lane's accumulators, which are consecutive variables.
        accumulators: VarId,
    },
    /// Loads matrices of 8 rows of 16 bytes from shared memory (`ldmatrix`), one `u32` result each.
    ///
    /// All lanes of the warp execute it. Lane 8·j + i gives the address of row i of matrix j. Each
    /// lane receives 4 bytes of row lane / 4 of each matrix, at index lane % 4. Transposed, with
    /// 16-bit elements, it receives column lane / 4 of rows 2·(lane % 4) and 2·(lane % 4) + 1.
    /// NVIDIA only.
    LoadMatrix {
        /// The first element of a row, of any type; addresses of lanes beyond the last row are not
        /// used.
        from: MemoryRef,
        /// Matrices: 1, 2 or 4.
        count: u32,
        /// Whether each matrix of 16-bit elements is transposed.
        transposed: bool,
    },
    /// A Hopper operation. No result.
    Hopper(HopperOp),
    /// Executes the body for each value of its result from `start` to before `end` in steps of
    /// `step`.
    ///
    /// All are `u32`.
    For {
        /// The first value.
        start: Operand,
        /// The exclusive end.
        end: Operand,
        /// The step, not zero. The loop ends where the sum exceeds `u32`.
        step: Operand,
        /// The unroll factor for printers, where the step is 1.
        unroll: u32,
        /// The body.
        body: Vec<Inst>,
    },
    /// Executes one of two bodies. No result.
    If {
        /// The condition.
        condition: Operand,
        /// The body for a true condition.
        then: Vec<Inst>,
        /// The body for a false condition.
        otherwise: Vec<Inst>,
    },
    /// Executes `body` while `test` is true; `condition` recomputes it each time. No result.
    While {
        /// The operations that compute the test.
        condition: Vec<Inst>,
        /// The predicate.
        test: Operand,
        /// The body.
        body: Vec<Inst>,
    },
}

/// An operation with its results and its source location.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inst {
    /// The operation.
    pub op: Op,
    /// Its results: consecutive values. The result of a loop is its counter, in scope in the body
    /// only.
    pub results: Vec<ValId>,
    /// The source location.
    pub site: SiteId,
}

/// A source location of a kernel, with the number of earlier visits while the kernel was built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// File, line and column of the builder's caller.
    pub location: &'static Location<'static>,
    /// 0 for the first visit within its region.
    pub iteration: u32,
}

/// The access of a kernel to a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads.
    Read,
    /// Writes; the kernel may read back elements that the launch wrote.
    Write,
    /// Reads the old elements, and writes.
    ReadWrite,
}

/// A typed parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// The name in messages and in the PTX text.
    pub name: String,
    /// The kind of the argument.
    pub kind: ParamKind,
}

/// The kind of a parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// A matrix in global memory.
    Matrix {
        /// The type of its elements.
        ty: Type,
        /// The kernel's access.
        access: Access,
        /// The declared storage order.
        order: Order2d,
        /// The declared alignment of the base, the row stride and the batch stride, in elements: 1,
        /// 2, 4, …
        aligned: u32,
        /// The TMA tiles, where the matrix is accessed by TMA only.
        tiles: Option<Tiles>,
    },
    /// A scalar.
    Scalar(Type),
}

/// An array in shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedArray {
    /// The name in messages and in the PTX text.
    pub name: String,
    /// The type of its elements.
    pub ty: Type,
    /// Extents, outermost first.
    pub dims: Vec<u32>,
    /// The alignment in bytes.
    pub align: u32,
    /// The offset in the arena, in bytes.
    pub start: u32,
    /// The contents.
    pub contents: ArrayContents,
}

/// The contents of a shared array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayContents {
    /// Elements in row-major order.
    Elements,
    /// Swizzled tiles.
    Tiles(Swizzle),
    /// Mbarriers.
    Mbarriers,
    /// A buffer for DSMEM stores of other blocks of the cluster.
    ///
    /// For each first index, nothing is read before all of the data has arrived.
    DsmemBuffer,
}

impl SharedArray {
    /// The number of elements.
    pub fn len(&self) -> u64 {
        self.dims.iter().fold(1, |product: u64, &d| product.saturating_mul(u64::from(d)))
    }

    /// Whether the array has no elements.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The size in bytes.
    pub fn bytes(&self) -> u64 {
        self.len().saturating_mul(self.ty.size() as u64)
    }

    /// The coordinates of element `index`, outermost first.
    pub fn coordinates(&self, mut index: u64) -> Vec<u64> {
        let mut coordinates: Vec<u64> = Vec::new();
        for &dim in self.dims.iter().rev() {
            coordinates.push(index % u64::from(dim.max(1)));
            index /= u64::from(dim.max(1));
        }
        coordinates.reverse();
        coordinates
    }
}

/// The extent of the grid along one axis, as an expression of problem and device sizes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GridExtent {
    /// A constant.
    Const(u32),
    /// An extent of a matrix.
    Extent(ParamId, Axis),
    /// The number of SMs of the device.
    Multiprocessors,
    /// +, −, ×, ÷ (rounded down), min or max of two expressions.
    Binary(Binary, Box<GridExtent>, Box<GridExtent>),
}

/// A kernel as it was built, unchecked. [`crate::check()`] makes it usable.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub(crate) name: String,
    pub(crate) notes: Vec<String>,
    pub(crate) block: [u32; 3],
    pub(crate) grid: Option<[GridExtent; 3]>,
    pub(crate) min_blocks: u32,
    pub(crate) cluster: u32,
    pub(crate) griddep_wait: bool,
    pub(crate) params: Vec<Param>,
    pub(crate) shared: Vec<SharedArray>,
    /// The coordinates of each reference to a shared array of several axes: a value and a constant
    /// each.
    pub(crate) coordinates: Vec<Box<[(Operand, u32)]>>,
    pub(crate) vars: Vec<Type>,
    pub(crate) values: Vec<Type>,
    pub(crate) sites: Vec<Site>,
    pub(crate) body: Vec<Inst>,
    pub(crate) faults: Vec<Fault>,
}

impl Kernel {
    /// The kernel's name: letters, digits and underscores.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The notes of the builder, one line each, which are comments in the PTX text.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Threads of a block along x, y and z.
    pub fn block(&self) -> [u32; 3] {
        self.block
    }

    /// Threads of a block.
    pub fn threads(&self) -> u32 {
        self.block.iter().fold(1, |product: u32, &d| product.saturating_mul(d))
    }

    /// The minimum number of resident blocks on an SM (`.minnctapersm`); 0 where unspecified.
    pub fn min_blocks(&self) -> u32 {
        self.min_blocks
    }

    /// Blocks of a cluster, along x.
    pub fn cluster(&self) -> u32 {
        self.cluster
    }

    /// The parameters, in order.
    pub fn params(&self) -> &[Param] {
        &self.params
    }

    /// The shared arrays.
    pub fn shared(&self) -> &[SharedArray] {
        &self.shared
    }

    /// Bytes of shared memory of a block.
    pub fn shared_bytes(&self) -> u64 {
        self.shared.iter().map(|a| u64::from(a.start).saturating_add(a.bytes())).max().unwrap_or(0)
    }

    /// The operations.
    pub fn body(&self) -> &[Inst] {
        &self.body
    }

    /// The coordinates of an element of a shared array, outermost first: a value and a constant
    /// each.
    ///
    /// Empty for an array of one axis.
    pub fn coordinates(&self, of: CoordinatesId) -> &[(Operand, u32)] {
        &self.coordinates[of.index()]
    }

    /// The types of all values, by id.
    pub fn value_types(&self) -> &[Type] {
        &self.values
    }

    /// The types of all variables, by id.
    pub fn var_types(&self) -> &[Type] {
        &self.vars
    }

    /// The type of a value.
    pub fn value_type(&self, value: ValId) -> Type {
        self.values[value.index()]
    }

    /// The type of a variable.
    pub fn var_type(&self, var: VarId) -> Type {
        self.vars[var.index()]
    }

    /// The type of an operand.
    pub fn operand_type(&self, operand: Operand) -> Type {
        match operand {
            Operand::Val(value) => self.value_type(value),
            Operand::Const(ty, _) => ty,
        }
    }

    /// The type of the referenced element.
    pub fn element_type(&self, memory_ref: &MemoryRef) -> Type {
        match *memory_ref {
            MemoryRef::Global { param, .. } | MemoryRef::Cursor { param, .. } => {
                match self.params[param.index()].kind {
                    ParamKind::Matrix { ty, .. } | ParamKind::Scalar(ty) => ty,
                }
            }
            MemoryRef::Shared { array, .. } => self.shared[array.index()].ty,
        }
    }

    /// The source location of an id.
    pub fn site(&self, site: SiteId) -> Site {
        self.sites[site.index()]
    }
}

impl Guard {
    /// The operand, if any.
    pub fn operand(self) -> Option<Operand> {
        match self {
            Guard::Always => None,
            Guard::If(operand) | Guard::First(operand) => Some(operand),
        }
    }
}

impl Op {
    /// Whether the operation only computes: no memory, variables, other threads or control flow.
    pub fn is_pure(&self) -> bool {
        matches!(
            self,
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
                | Op::Pack(..)
                | Op::RoundTf32(_)
        )
    }

    /// Calls `f` with every operand of this operation, in order, without those of nested bodies.
    pub fn for_each_operand(&self, mut f: impl FnMut(Operand)) {
        let memory_ref = |at: &MemoryRef, f: &mut dyn FnMut(Operand)| at.operands().for_each(f);
        match self {
            Op::SpecialRegister(_)
            | Op::Extent(..)
            | Op::Scalar(_)
            | Op::Get(_)
            | Op::Fence(_)
            | Op::CopyAsyncCommit
            | Op::CopyAsyncWait { .. }
            | Op::Barrier
            | Op::SyncWarp { .. } => {}
            Op::NamedBarrier { id, .. } => f(*id),
            Op::Unary(_, a)
            | Op::Convert(a)
            | Op::Bitcast(a)
            | Op::RoundTf32(a)
            | Op::Uniform(_, a)
            | Op::Set(_, a) => f(*a),
            Op::SetCursor(_, at) => memory_ref(at, &mut f),
            Op::MoveCursor { rows, cols, .. } => [*rows, *cols].into_iter().for_each(f),
            Op::Binary(_, a, b) | Op::Compare(_, a, b) | Op::Pack(a, b) => [*a, *b].into_iter().for_each(f),
            Op::MulAdd(a, b, c) | Op::Select(a, b, c) => [*a, *b, *c].into_iter().for_each(f),
            Op::Load { from, guard, fill, .. } => {
                memory_ref(from, &mut f);
                guard.operand().into_iter().for_each(&mut f);
                f(*fill);
            }
            Op::Store { to, values, guard, .. } => {
                memory_ref(to, &mut f);
                values.iter().copied().for_each(&mut f);
                guard.operand().into_iter().for_each(f);
            }
            Op::Atomic { op, at, value, .. } => {
                memory_ref(at, &mut f);
                f(*value);
                if let AtomicOp::CompareExchange { expected } = op {
                    f(*expected);
                }
            }
            Op::WaitUntil { at, value, .. } => {
                memory_ref(at, &mut f);
                f(*value);
            }
            Op::CopyAsync { to, from, guard, .. } => {
                memory_ref(to, &mut f);
                memory_ref(from, &mut f);
                guard.operand().into_iter().for_each(f);
            }
            Op::Shuffle { value, lane, .. } => [*value, *lane].into_iter().for_each(f),
            Op::Vote { value, .. } => f(*value),
            Op::Mma { a, b, .. } => a.iter().chain(b).copied().for_each(f),
            Op::LoadMatrix { from, .. } => memory_ref(from, &mut f),
            Op::Hopper(op) => op.for_each_operand(&mut f),
            Op::For { start, end, step, .. } => [*start, *end, *step].into_iter().for_each(f),
            Op::If { condition, .. } => f(*condition),
            Op::While { test, .. } => f(*test),
        }
    }

    /// Calls `f` with every memory reference of this operation.
    pub fn for_each_memory_ref(&self, mut f: impl FnMut(&MemoryRef)) {
        match self {
            Op::Load { from: at, .. } | Op::Store { to: at, .. } | Op::Atomic { at, .. } => f(at),
            Op::WaitUntil { at, .. } | Op::SetCursor(_, at) | Op::LoadMatrix { from: at, .. } => f(at),
            Op::CopyAsync { to, from, .. } => [to, from].into_iter().for_each(f),
            Op::Hopper(op) => op.for_each_memory_ref(&mut f),
            _ => {}
        }
    }

    /// The bodies nested in this operation, in order.
    pub fn bodies(&self) -> impl Iterator<Item = &[Inst]> {
        let bodies: [Option<&[Inst]>; 2] = match self {
            Op::For { body, .. } => [Some(body), None],
            Op::If { then, otherwise, .. } => [Some(then), Some(otherwise)],
            Op::While { condition, body, .. } => [Some(condition), Some(body)],
            _ => [None, None],
        };
        bodies.into_iter().flatten()
    }
}

/// The indices of the accumulator variables of a warp's matrix instruction.
pub(super) fn mma_accumulators(mma: Mma, first: VarId) -> std::ops::Range<usize> {
    let [.., count] = mma.registers();
    first.index()..first.index() + count as usize
}

/// The indices of the accumulator variables of a warpgroup's matrix instruction.
pub(super) fn wgmma_accumulators(wgmma: Wgmma, first: VarId) -> std::ops::Range<usize> {
    first.index()..first.index() + wgmma.accumulators() as usize
}
