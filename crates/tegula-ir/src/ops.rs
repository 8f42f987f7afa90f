//! The operations and the kernel that holds them: plain data, no behaviour beyond looking things up.
//!
//! `tegula_interp` defines what each operation means; [`crate::ptx`] says how it is spelled for a GPU.

use std::panic::Location;

use tegula_core::diagnostic::Fault;
use tegula_core::element::Type;

use super::hopper::{Hopper, Swizzle, Tiles, Wgmma};
pub use super::layout::Order2d;
use super::mma::Mma;
pub use super::operand::*;
use super::uniform::Uniform;

/// Values that differ from thread to thread or block to block without any computation. All are `u32`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "CUDA's names")]
pub enum Special {
    ThreadX,
    ThreadY,
    ThreadZ,
    BlockX,
    BlockY,
    BlockZ,
    GridX,
    GridY,
    GridZ,
    /// Position in the warp, 0 to 31.
    Lane,
    /// The warp's position in the block.
    Warp,
    /// The warpgroup's position in the block: four warps each.
    Warpgroup,
    /// The cluster's position in the grid along x.
    Cluster,
    /// The block's position in its cluster.
    ClusterRank,
    /// Multiprocessors of the device: known to the grid alone.
    Multiprocessors,
}

/// The axes of a matrix parameter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "plain words")]
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
    /// Every bit flipped; `!` for predicates.
    Not,
    /// |x|; the least integer stays itself.
    Abs,
}

/// Operations on two numbers of one type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Binary {
    /// Rounded to nearest even for floats, wrapping for integers.
    Add,
    /// As `Add`.
    Sub,
    /// As `Add`; integers keep the low half.
    Mul,
    /// Floats: rounded to nearest even. Integers: towards zero; dividing by zero is an error.
    Div,
    /// Integers only; the sign of the dividend.
    Rem,
    /// The other operand where one is NaN; −0 is less than +0.
    Min,
    /// As `Min`.
    Max,
    /// Integers and predicates.
    And,
    /// Integers and predicates.
    Or,
    /// Integers and predicates.
    Xor,
    /// Integers; counts beyond the width give 0.
    Shl,
    /// Integers; arithmetic for signed types; counts beyond the width give 0 or the sign.
    Shr,
}

/// Comparisons. Every one but `Ne` is false where an operand is NaN; `Ne` is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "plain words")]
pub enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// Read-modify-write operations on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum AtomicOp {
    /// The sum: u32, i32, u64, f32, f64.
    Add,
    /// The lesser: u32, i32, u64, i64.
    Min,
    /// The greater: u32, i32, u64, i64.
    Max,
    /// Bitwise and: u32, i32, u64, i64.
    And,
    /// Bitwise or: u32, i32, u64, i64.
    Or,
    /// Bitwise exclusive or: u32, i32, u64, i64.
    Xor,
    /// The new value whatever was there: 4- and 8-byte types.
    Exchange,
    /// The new value where the old one equals `expected`: 4- and 8-byte integers.
    CompareExchange {
        /// What must be there for the new value to be stored.
        expected: Operand,
    },
}

/// What a memory operation orders around itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// Nothing; racing with another access is an error.
    Weak,
    /// Nothing, but it may race with other ordered accesses.
    Relaxed,
    /// What follows comes after what the matching release published.
    Acquire,
    /// What came before is published.
    Release,
    /// Both.
    AcqRel,
}

/// Which threads an ordered operation speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// The threads of the block.
    Block,
    /// The threads of the device.
    Device,
    /// Every thread of every device, and the host.
    System,
}

/// Where a shuffle's lane reads from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shuffle {
    /// Lane `operand`, modulo 32.
    Index,
    /// Own lane − `operand`; own value where there is none.
    Up,
    /// Own lane + `operand`; own value where there is none.
    Down,
    /// Own lane ^ `operand`, modulo 32.
    Xor,
}

/// What a vote answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Vote {
    /// True where every voter says true.
    All,
    /// True where one voter says true.
    Any,
    /// One bit a voter that says true, as u32.
    Ballot,
}

/// Which elements of a memory operation happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Guard {
    /// All of them.
    Always,
    /// All where the predicate holds, else none.
    If(Operand),
    /// The first n, where n is `u32`; all where n is greater than the width.
    First(Operand),
}

/// One operation. Operations that do not say otherwise have one result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// A built-in index.
    Special(Special),
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
    /// A predicate from two numbers of one type.
    Compare(Compare, Operand, Operand),
    /// The second operand where the first (a predicate) holds, else the third.
    Select(Operand, Operand, Operand),
    /// A number in the result's type. To a float: to nearest even. To an integer: from floats towards zero, clamped, NaN gives 0
    /// (2⁶³ to 64-bit integers, and from f64 to n bits 2ⁿ⁻¹, as the hardware has it); from integers truncated or extended.
    Convert(Operand),
    /// The same bits as another type of the same size.
    Bitcast(Operand),
    /// Two 16-bit numbers as a `u32`, the first in the lower half.
    Pack(Operand, Operand),
    /// The same value, which the kernel asserts to be the same for all threads of a group. The interpreter verifies that; a GPU trusts it.
    Uniform(Uniform, Operand),
    /// Only NVIDIA has it. An f32 rounded to tf32 (10 bits behind the point), to nearest, ties away from zero; the result is a
    /// `u32`, as [`Op::Mma`] takes it.
    RoundTf32(Operand),
    /// A variable's value now.
    Get(VarId),
    /// No result: a variable changes.
    Set(VarId, Operand),
    /// No result: a cursor stands at an element of a matrix, which is a [`Place::Global`].
    SetCursor(VarId, Place),
    /// No result: a cursor moves on by rows and columns, `u32`. It never comes back: beyond 2³² − 1, which is outside of every matrix, it
    /// stays.
    MoveCursor {
        /// Which cursor.
        cursor: VarId,
        /// Its matrix.
        param: ParamId,
        /// Rows.
        rows: Operand,
        /// Columns.
        cols: Operand,
    },
    /// As many results as elements. Elements that the guard leaves out are `fill`.
    Load {
        /// First element.
        from: Place,
        /// Elements: 1, 2, 4, 8 or 16, of at most 16 bytes.
        width: u32,
        /// Which of them.
        guard: Guard,
        /// What the others read as; a constant or a value of the element type.
        fill: Operand,
        /// `Weak`, `Relaxed` or `Acquire`.
        order: Order,
        /// For ordered loads.
        scope: Scope,
    },
    /// No result.
    Store {
        /// First element.
        to: Place,
        /// 1, 2 or 4 values.
        values: Vec<Operand>,
        /// Which of them are stored.
        guard: Guard,
        /// `Weak`, `Relaxed` or `Release`.
        order: Order,
        /// For ordered stores.
        scope: Scope,
    },
    /// Reads, computes and writes at once; the result is what was there.
    Atomic {
        /// What to compute.
        op: AtomicOp,
        /// Which element.
        at: Place,
        /// The operand, or the new value.
        value: Operand,
        /// What it orders.
        order: Order,
        /// Whom it speaks to.
        scope: Scope,
    },
    /// No result: orders this thread's accesses around it (acquire and release).
    Fence(Scope),
    /// No result: waits until the element compares so with the operand, then acquires.
    WaitUntil {
        /// Which element, of a 4- or 8-byte integer type.
        at: Place,
        /// Element `compare` value.
        compare: Compare,
        /// What to compare with.
        value: Operand,
        /// Whom it listens to.
        scope: Scope,
    },
    /// No result: starts copying elements from global to shared memory; elements that the guard leaves out become zero.
    CopyAsync {
        /// First element in shared memory.
        to: Place,
        /// First element in global memory.
        from: Place,
        /// Elements; together 4, 8 or 16 bytes.
        width: u32,
        /// Which of them.
        guard: Guard,
    },
    /// No result: the thread's copies since the last commit become one group.
    CopyAsyncCommit,
    /// No result: waits until at most `pending` of the thread's latest groups are on their way.
    CopyAsyncWait {
        /// Groups that may still be on their way.
        pending: u32,
    },
    /// No result: waits for all threads of the block.
    Barrier,
    /// No result: barrier `id` (1 to 15) among `threads` threads.
    NamedBarrier {
        /// Which of the block's barriers, `u32`; the same for all lanes of a warp.
        id: Operand,
        /// How many threads take part, a multiple of 32.
        threads: u32,
        /// Whether this thread waits, or only arrives.
        wait: bool,
    },
    /// No result: waits for the lanes of the mask, and orders their accesses.
    SyncWarp {
        /// One bit a lane.
        mask: u32,
    },
    /// A value of another lane. Synchronises the lanes of the mask, but orders no memory.
    Shuffle {
        /// How `lane` is meant.
        mode: Shuffle,
        /// The value each lane offers: a 4-byte type.
        value: Operand,
        /// `u32`.
        lane: Operand,
        /// One bit a lane that takes part.
        mask: u32,
    },
    /// What the lanes say together. Synchronises them, but orders no memory.
    Vote {
        /// The question.
        mode: Vote,
        /// Each lane's answer.
        value: Operand,
        /// One bit a lane that takes part.
        mask: u32,
    },
    /// No result. Only NVIDIA has it. All lanes of the warp add the product of two matrices to a third: sums += A·B. Orders no
    /// memory.
    Mma {
        /// What is multiplied, and which lane holds which element.
        mma: Mma,
        /// The lane's registers of A.
        a: Vec<Operand>,
        /// The lane's registers of B.
        b: Vec<Operand>,
        /// The first of the lane's sums: consecutive variables.
        sums: VarId,
    },
    /// One `u32` a matrix. Only NVIDIA has it. All lanes of the warp read matrices of 8 rows of 16 bytes from shared memory: lane
    /// 8·j + i says where row i of matrix j begins. Of each matrix a lane gets 4 bytes of row lane / 4, the (lane % 4)-th, or
    /// transposed, seen as 16-bit elements, those in column lane / 4 of rows 2·(lane % 4) and 2·(lane % 4) + 1.
    LoadMatrix {
        /// The first element of a row, of any type; places of lanes beyond the matrices' rows are not used.
        from: Place,
        /// Matrices: 1, 2 or 4.
        count: u32,
        /// Whether 16-bit elements change rows for columns.
        transposed: bool,
    },
    /// No result: what Hopper brought.
    Hopper(Hopper),
    /// The body once for each value of its result from `start` in steps of `step` while it is less than `end`; all are `u32`.
    For {
        /// First value.
        start: Operand,
        /// The first value that is too great.
        end: Operand,
        /// Not zero; a sum beyond `u32` ends the loop.
        step: Operand,
        /// How many rounds a printer may write one after the other, where the step is 1.
        unroll: u32,
        /// What is repeated.
        body: Vec<Inst>,
    },
    /// No result: one of two bodies.
    If {
        /// Which.
        condition: Operand,
        /// Where it holds.
        then: Vec<Inst>,
        /// Where it does not.
        otherwise: Vec<Inst>,
    },
    /// No result: `body` while `test`, which `condition` computes anew each time, holds.
    While {
        /// Computes the test.
        condition: Vec<Inst>,
        /// A predicate.
        test: Operand,
        /// What is repeated.
        body: Vec<Inst>,
    },
}

/// An operation in its place.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Inst {
    /// What it does.
    pub op: Op,
    /// Its results: consecutive values. A loop's result is its counter, defined within the body only.
    pub results: Vec<ValId>,
    /// Where it was written.
    pub site: SiteId,
}

/// A line of a kernel's source and, where the line was reached repeatedly while building, which time this was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Site {
    /// File, line and column of the builder's caller.
    pub location: &'static Location<'static>,
    /// 0 the first time the line was reached within its region.
    pub iteration: u32,
}

/// What a kernel does with a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Access {
    /// Reads.
    Read,
    /// Writes; reading back what the launch itself wrote is fine.
    Write,
    /// Reads what was there, and writes.
    ReadWrite,
}

/// A typed parameter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Param {
    /// The name in messages and in the PTX text.
    pub name: String,
    /// What is passed.
    pub kind: ParamKind,
}

/// What a parameter is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ParamKind {
    /// A matrix in global memory.
    Matrix {
        /// Of its elements.
        ty: Type,
        /// What the kernel does with it.
        access: Access,
        /// What is known of its strides.
        order: Order2d,
        /// The base, the row stride and the batch stride are multiples of so many elements: 1, 2 or 4 and more.
        aligned: u32,
        /// The tiles by which the copy engine reaches it, where it alone does.
        tiles: Option<Tiles>,
    },
    /// One number.
    Scalar(Type),
}

/// An array in shared memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedArray {
    /// The name in messages and in the PTX text.
    pub name: String,
    /// Of its elements.
    pub ty: Type,
    /// Extents, outermost first.
    pub dims: Vec<u32>,
    /// Of its first byte.
    pub align: u32,
    /// Where it starts in the arena, in bytes.
    pub start: u32,
    /// What is in it.
    pub holds: Holds,
}

/// What an array in shared memory holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// Elements, one after the other.
    Elements,
    /// Tiles whose pieces change places.
    Tiles(Swizzle),
    /// Barriers that count arrivals and bytes.
    Barriers,
    /// What other blocks of the cluster send; of each first index nobody uses anything before all of it has come.
    Inbox,
}

impl SharedArray {
    /// Number of elements.
    pub fn len(&self) -> u64 {
        self.dims.iter().fold(1, |product: u64, &d| product.saturating_mul(u64::from(d)))
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes it takes.
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

/// One axis of the grid, from the sizes of the problem and the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Size {
    /// A number.
    Const(u32),
    /// An extent of a matrix.
    Extent(ParamId, Axis),
    /// Multiprocessors of the device.
    Multiprocessors,
    /// Two sizes together: +, −, ×, ÷ (rounded down), min, max.
    Binary(Binary, Box<Size>, Box<Size>),
}

/// A kernel as it was built: unchecked. [`crate::check()`] makes it usable.
#[derive(Clone, Debug)]
pub struct Kernel {
    pub(crate) name: String,
    pub(crate) notes: Vec<String>,
    pub(crate) block: [u32; 3],
    pub(crate) grid: Option<[Size; 3]>,
    pub(crate) min_blocks: u32,
    pub(crate) cluster: u32,
    pub(crate) early: bool,
    pub(crate) params: Vec<Param>,
    pub(crate) shared: Vec<SharedArray>,
    /// Of each place in a shared array of several axes, its coordinates: a value and what to add to it.
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

    /// What the kernel was built with, a line each: they stand as comments in the PTX text.
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

    /// How many blocks a multiprocessor should be able to hold; 0 where the kernel does not say.
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

    /// The arrays of shared memory.
    pub fn shared(&self) -> &[SharedArray] {
        &self.shared
    }

    /// Bytes of shared memory a block takes.
    pub fn shared_bytes(&self) -> u64 {
        self.shared.iter().map(|a| u64::from(a.start).saturating_add(a.bytes())).max().unwrap_or(0)
    }

    /// The operations.
    pub fn body(&self) -> &[Inst] {
        &self.body
    }

    /// The coordinates of an element of a shared array, outermost first, each a value and what to add to it; none where the array has one axis.
    pub fn coordinates(&self, of: CoordinatesId) -> &[(Operand, u32)] {
        &self.coordinates[of.index()]
    }

    /// The types of all values, by number.
    pub fn value_types(&self) -> &[Type] {
        &self.values
    }

    /// The types of all variables, by number.
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

    /// The type of the element at a place.
    pub fn place_type(&self, place: &Place) -> Type {
        match *place {
            Place::Global { param, .. } | Place::Cursor { param, .. } => match self.params[param.index()].kind {
                ParamKind::Matrix { ty, .. } | ParamKind::Scalar(ty) => ty,
            },
            Place::Shared { array, .. } => self.shared[array.index()].ty,
        }
    }

    /// A line of the source.
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
    /// Whether it only computes: no memory, no variable, no other thread, no control flow.
    pub fn is_pure(&self) -> bool {
        matches!(
            self,
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
                | Op::Pack(..)
                | Op::RoundTf32(_)
        )
    }

    /// Calls `f` with every operand of this operation itself, in order; those of operations in its bodies are not its own.
    pub fn for_each_operand(&self, mut f: impl FnMut(Operand)) {
        let place = |p: &Place, f: &mut dyn FnMut(Operand)| p.operands().for_each(f);
        match self {
            Op::Special(_)
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
            Op::SetCursor(_, at) => place(at, &mut f),
            Op::MoveCursor { rows, cols, .. } => [*rows, *cols].into_iter().for_each(f),
            Op::Binary(_, a, b) | Op::Compare(_, a, b) | Op::Pack(a, b) => [*a, *b].into_iter().for_each(f),
            Op::MulAdd(a, b, c) | Op::Select(a, b, c) => [*a, *b, *c].into_iter().for_each(f),
            Op::Load { from, guard, fill, .. } => {
                place(from, &mut f);
                guard.operand().into_iter().for_each(&mut f);
                f(*fill);
            }
            Op::Store { to, values, guard, .. } => {
                place(to, &mut f);
                values.iter().copied().for_each(&mut f);
                guard.operand().into_iter().for_each(f);
            }
            Op::Atomic { op, at, value, .. } => {
                place(at, &mut f);
                f(*value);
                if let AtomicOp::CompareExchange { expected } = op {
                    f(*expected);
                }
            }
            Op::WaitUntil { at, value, .. } => {
                place(at, &mut f);
                f(*value);
            }
            Op::CopyAsync { to, from, guard, .. } => {
                place(to, &mut f);
                place(from, &mut f);
                guard.operand().into_iter().for_each(f);
            }
            Op::Shuffle { value, lane, .. } => [*value, *lane].into_iter().for_each(f),
            Op::Vote { value, .. } => f(*value),
            Op::Mma { a, b, .. } => a.iter().chain(b).copied().for_each(f),
            Op::LoadMatrix { from, .. } => place(from, &mut f),
            Op::Hopper(op) => op.for_each_operand(&mut f),
            Op::For { start, end, step, .. } => [*start, *end, *step].into_iter().for_each(f),
            Op::If { condition, .. } => f(*condition),
            Op::While { test, .. } => f(*test),
        }
    }

    /// Calls `f` with every place that this operation itself means.
    pub fn for_each_place(&self, mut f: impl FnMut(&Place)) {
        match self {
            Op::Load { from: at, .. } | Op::Store { to: at, .. } | Op::Atomic { at, .. } => f(at),
            Op::WaitUntil { at, .. } | Op::SetCursor(_, at) | Op::LoadMatrix { from: at, .. } => f(at),
            Op::CopyAsync { to, from, .. } => [to, from].into_iter().for_each(f),
            Op::Hopper(op) => op.for_each_place(&mut f),
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

/// The positions of a matrix instruction's sums.
pub(super) fn vars_of(mma: Mma, first: VarId) -> std::ops::Range<usize> {
    let [.., count] = mma.registers();
    first.index()..first.index() + count as usize
}

/// The positions of the sums of a warpgroup's instruction.
pub(super) fn sums_of(wgmma: Wgmma, first: VarId) -> std::ops::Range<usize> {
    first.index()..first.index() + wgmma.sums() as usize
}
