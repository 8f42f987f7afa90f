//! The builder: a kernel is a Rust function that calls it.
//!
//! Every call appends an operation to the innermost open region. Integer and predicate arithmetic
//! on constants is folded, and common subexpressions are eliminated. A kernel can therefore compute
//! an index wherever it needs it. Floating-point operations are kept as written, so a kernel's
//! counts are those of its source.
//!
//! Errors that Rust's types cannot catch are recorded as faults, and rejected by
//! [`super::check()`]. Nothing here panics.

use std::marker::PhantomData;
use std::panic::Location;

use tegula_core::diagnostic::FaultKind;
use tegula_core::element::{Scalar, Type};

use super::launch::GRID_YZ_LIMIT;
use super::mma::Mma;
use super::ops::*;
use super::recorder::{Builder, Region};
use super::types::{Array, Global, IntoVal, Pred, Shared, Val, Var, constant};
use super::uniform::Uniform;

/// Parameters and resources.
impl Builder {
    /// An input matrix with arbitrary strides.
    #[track_caller]
    pub fn input<T: Scalar>(&self, name: &str) -> Global<'_, T> {
        self.matrix(name, Access::Read, Order2d::Strided, 1)
    }

    /// An output matrix with arbitrary strides.
    #[track_caller]
    pub fn output<T: Scalar>(&self, name: &str) -> Global<'_, T> {
        self.matrix(name, Access::Write, Order2d::Strided, 1)
    }

    /// A matrix with its access, its storage order and its alignment.
    ///
    /// `aligned` is the number of elements of which the base, the row stride and the batch stride
    /// are multiples.
    #[track_caller]
    pub fn matrix<T: Scalar>(&self, name: &str, access: Access, order: Order2d, aligned: u32) -> Global<'_, T> {
        let param = self.param(name, ParamKind::Matrix { ty: T::TYPE, access, order, aligned, tiles: None });
        Global { k: self, param, batch: constant(0u32), brand: PhantomData }
    }

    /// A scalar kernel argument.
    #[track_caller]
    pub fn scalar<T: Scalar>(&self, name: &str) -> Val<'_, T> {
        let param = self.param(name, ParamKind::Scalar(T::TYPE));
        self.pure(Op::Scalar(param))
    }

    /// An array in shared memory of one to three axes, the last the fastest, aligned to 16 bytes.
    #[track_caller]
    pub fn shared<T: Scalar>(&self, name: &str, dims: impl AsRef<[u32]>) -> Shared<'_, T> {
        self.shared_array(name, dims.as_ref(), 16, ArrayContents::Elements)
    }

    pub(super) fn shared_array<T: Scalar>(
        &self,
        name: &str,
        dims: &[u32],
        align: u32,
        contents: ArrayContents,
    ) -> Shared<'_, T> {
        let mut state = self.state.borrow_mut();
        let id = SharedId(state.kernel.shared.len() as u32);
        let end = state.kernel.shared_bytes().checked_next_multiple_of(align.into()).unwrap_or(u64::MAX);
        let start = u32::try_from(end).unwrap_or(u32::MAX);
        let array = SharedArray { name: name.into(), ty: T::TYPE, dims: dims.to_vec(), align, start, contents };
        state.kernel.shared.push(array);
        Shared { k: self, id, brand: PhantomData }
    }

    /// A variable with an initial value.
    #[track_caller]
    pub fn var<'k, T: Scalar>(&'k self, first: impl IntoVal<'k, T>) -> Var<'k, T> {
        let var = self.array(1).at(0);
        self.effect(Op::Set(var.id, first.operand()));
        var
    }

    /// Adds a comment to the PTX text, which distinguishes variants of a kernel.
    pub fn note(&self, line: impl Into<String>) {
        self.state.borrow_mut().kernel.notes.push(line.into());
    }

    /// Requests that `blocks` blocks fit on an SM, which limits the registers per thread.
    pub fn min_blocks(&self, blocks: u32) {
        self.state.borrow_mut().kernel.min_blocks = blocks;
    }
}

macro_rules! special_registers {
    ($($(#[$doc:meta])* $method:ident $register:ident;)*) => {
        /// Built-in indices.
        impl Builder {
            $($(#[$doc])* #[track_caller] pub fn $method(&self) -> Val<'_, u32> { self.pure(Op::SpecialRegister(SpecialRegister::$register)) })*
        }
    };
}
special_registers! {
    /// The thread's index in the block along x.
    thread_x ThreadX;
    /// The thread's index in the block along y.
    thread_y ThreadY;
    /// The thread's index in the block along z.
    thread_z ThreadZ;
    /// The block's index in the grid along x.
    block_x BlockX;
    /// The block's index in the grid along y.
    block_y BlockY;
    /// The block's index in the grid along z.
    block_z BlockZ;
    /// Blocks of the grid along x.
    grid_x GridX;
    /// Blocks of the grid along y.
    grid_y GridY;
    /// Blocks of the grid along z.
    grid_z GridZ;
    /// The lane's index in its warp, 0 to 31.
    lane Lane;
    /// The warp's index in its block.
    warp Warp;
    /// The warpgroup's index in its block; four warps each.
    warpgroup Warpgroup;
    /// The cluster's index in the grid along x.
    cluster_x Cluster;
    /// The block's rank in its cluster.
    cluster_rank ClusterRank;
    /// The number of SMs of the device. Only the grid may be computed from it.
    multiprocessors Multiprocessors;
}

/// The grid and control flow.
impl Builder {
    /// Sets the grid, as an expression of problem sizes.
    ///
    /// The expression consists of constants, extents of matrices, and +, −, ×, ÷, min and max.
    #[track_caller]
    pub fn grid(&self, blocks: [Val<'_, u32>; 3]) {
        let mut state = self.state.borrow_mut();
        let sizes = blocks.map(|b| state.grid_extent(b.operand));
        match sizes {
            [Some(x), Some(y), Some(z)] if state.kernel.grid.is_none() => state.kernel.grid = Some([x, y, z]),
            [Some(_), Some(_), Some(_)] => {
                state.fault(FaultKind::Launch, "the grid is set twice".into(), Location::caller());
            }
            _ => state.fault(
                FaultKind::Launch,
                "the grid must be an expression of extents and constants".into(),
                Location::caller(),
            ),
        }
    }

    /// Runs the body for every (x, y, z) below `blocks`, each in one block of the grid.
    ///
    /// Where y or z exceed the limit of the grid, a block processes every 65,535th index. Batches
    /// and rows are therefore limited by memory only.
    #[track_caller]
    pub fn for_blocks<'k>(&'k self, blocks: [Val<'k, u32>; 3], body: impl FnOnce([Val<'k, u32>; 3])) {
        let [x, y, z] = blocks;
        self.grid([x, y.min(GRID_YZ_LIMIT), z.min(GRID_YZ_LIMIT)]);
        self.for_step(self.block_z(), z, self.grid_z(), |z| {
            self.for_step(self.block_y(), y, self.grid_y(), |y| body([self.block_x(), y, z]));
        });
    }

    /// [`for_blocks`](Self::for_blocks) for a single y, which occupies no register.
    #[track_caller]
    pub fn for_blocks_xz<'k>(&'k self, blocks: [Val<'k, u32>; 2], body: impl FnOnce([Val<'k, u32>; 2])) {
        let [x, z] = blocks;
        self.grid([x, self.constant(1), z.min(GRID_YZ_LIMIT)]);
        self.for_step(self.block_z(), z, self.grid_z(), |z| body([self.block_x(), z]));
    }

    /// Runs the body for each number from `start` to before `end`.
    #[track_caller]
    pub fn for_each<'k>(
        &'k self,
        start: impl IntoVal<'k, u32>,
        end: impl IntoVal<'k, u32>,
        body: impl FnOnce(Val<'k, u32>),
    ) {
        self.for_step(start, end, 1, body);
    }

    /// [`for_each`](Self::for_each) with an unroll factor.
    ///
    /// Loads of later iterations need not wait for the work of earlier ones. The factor affects the
    /// speed, not the result.
    #[track_caller]
    pub fn for_each_unrolled<'k>(
        &'k self,
        start: impl IntoVal<'k, u32>,
        end: impl IntoVal<'k, u32>,
        factor: u32,
        body: impl FnOnce(Val<'k, u32>),
    ) {
        self.for_loop([start.operand(), end.operand(), constant(1u32)], factor, body);
    }

    /// Runs the body for each number from `start` to before `end` in steps of `step`.
    #[track_caller]
    pub fn for_step<'k>(
        &'k self,
        start: impl IntoVal<'k, u32>,
        end: impl IntoVal<'k, u32>,
        step: impl IntoVal<'k, u32>,
        body: impl FnOnce(Val<'k, u32>),
    ) {
        self.for_loop([start.operand(), end.operand(), step.operand()], 1, body);
    }

    #[track_caller]
    fn for_loop<'k>(&'k self, bounds: [Operand; 3], unroll: u32, body: impl FnOnce(Val<'k, u32>)) {
        let location = Location::caller();
        let counter = self.open_loop();
        body(self.val(Operand::Val(counter)));
        self.close_loop(bounds, unroll, counter, location);
    }

    /// Runs the body where the predicate is true.
    #[track_caller]
    pub fn when<'k>(&'k self, condition: Pred<'k>, then: impl FnOnce()) {
        let location = Location::caller();
        self.open_region();
        then();
        self.close_if(condition.operand, self.close_region(), Vec::new(), location);
    }

    /// Runs one of two bodies.
    #[track_caller]
    pub fn if_else<'k>(&'k self, condition: Pred<'k>, then: impl FnOnce(), otherwise: impl FnOnce()) {
        let location = Location::caller();
        let (then, otherwise) = (self.region(then), self.region(otherwise));
        self.close_if(condition.operand, then, otherwise, location);
    }

    /// Runs the body while the condition, recomputed each time, is true.
    #[track_caller]
    pub fn while_loop<'k>(&'k self, condition: impl FnOnce() -> Pred<'k>, body: impl FnOnce()) {
        let location = Location::caller();
        let mut test = constant(false);
        let condition = self.region(|| test = condition().operand);
        let body = self.region(body);
        self.push(Op::While { condition, test, body }, Vec::new(), location);
    }

    fn region(&self, build: impl FnOnce()) -> Vec<Inst> {
        self.open_region();
        build();
        self.close_region()
    }
}

/// The parts that do not depend on a closure's type, compiled once instead of once for each
/// closure.
impl Builder {
    #[inline(never)]
    fn open_region(&self) {
        self.state.borrow_mut().regions.push(Region::default());
    }

    #[inline(never)]
    fn close_region(&self) -> Vec<Inst> {
        self.state.borrow_mut().regions.pop().map(|r| r.insts).unwrap_or_default()
    }

    /// Opens the body of a loop, and returns its counter.
    fn open_loop(&self) -> ValId {
        let counter = self.state.borrow_mut().value(Type::U32, None);
        self.open_region();
        counter
    }

    fn close_loop(
        &self,
        [start, end, step]: [Operand; 3],
        unroll: u32,
        counter: ValId,
        location: &'static Location<'static>,
    ) {
        let op = Op::For { start, end, step, unroll, body: self.close_region() };
        self.push(op, vec![counter], location);
    }

    fn close_if(
        &self,
        condition: Operand,
        then: Vec<Inst>,
        otherwise: Vec<Inst>,
        location: &'static Location<'static>,
    ) {
        self.push(Op::If { condition, then, otherwise }, Vec::new(), location);
    }

    fn push(&self, op: Op, results: Vec<ValId>, location: &'static Location<'static>) {
        self.state.borrow_mut().push(op, results, location);
    }
}

/// The mask of all lanes of a warp.
pub const FULL_WARP: u32 = u32::MAX;

/// Synchronization.
impl Builder {
    /// Waits for all threads of the block; orders their accesses.
    #[track_caller]
    pub fn barrier(&self) {
        self.effect(Op::Barrier);
    }

    /// Waits at barrier `id` (1 to 15) until `threads` threads have arrived.
    #[track_caller]
    pub fn named_barrier<'k>(&'k self, id: impl IntoVal<'k, u32>, threads: u32) {
        self.effect(Op::NamedBarrier { id: id.operand(), threads, wait: true });
    }

    /// Arrives at barrier `id` without waiting.
    #[track_caller]
    pub fn named_barrier_arrive<'k>(&'k self, id: impl IntoVal<'k, u32>, threads: u32) {
        self.effect(Op::NamedBarrier { id: id.operand(), threads, wait: false });
    }

    /// Waits for the lanes of the mask; orders their accesses.
    #[track_caller]
    pub fn sync_warp(&self, mask: u32) {
        self.effect(Op::SyncWarp { mask });
    }

    /// The same value, asserted to be uniform over the block.
    ///
    /// Control flow that depends on it may contain barriers. An example is a value that all threads
    /// read from one element of shared memory. The interpreter verifies the assertion; a GPU trusts
    /// it.
    #[track_caller]
    pub fn uniform<'k, T: Scalar>(&'k self, value: Val<'k, T>) -> Val<'k, T> {
        self.effect_value(Op::Uniform(Uniform::Block, value.operand))
    }

    /// [`uniform`](Self::uniform) for the lanes of a warp.
    #[track_caller]
    pub fn uniform_in_warp<'k, T: Scalar>(&'k self, value: Val<'k, T>) -> Val<'k, T> {
        self.effect_value(Op::Uniform(Uniform::Warp, value.operand))
    }

    /// Orders this thread's earlier and later accesses for threads within the scope.
    #[track_caller]
    pub fn fence(&self, scope: Scope) {
        self.effect(Op::Fence(scope));
    }

    /// Commits the thread's pending asynchronous copies as one group.
    #[track_caller]
    pub fn copy_async_commit(&self) {
        self.effect(Op::CopyAsyncCommit);
    }

    /// Waits until at most `pending` of the thread's latest copy groups are incomplete.
    #[track_caller]
    pub fn copy_async_wait(&self, pending: u32) {
        self.effect(Op::CopyAsyncWait { pending });
    }

    /// Reads the value of another lane of the mask; see [`Shuffle`].
    #[track_caller]
    pub fn shuffle<'k, T: Scalar>(
        &'k self,
        mode: Shuffle,
        value: Val<'k, T>,
        lane: impl IntoVal<'k, u32>,
        mask: u32,
    ) -> Val<'k, T> {
        self.effect_value(Op::Shuffle { mode, value: value.operand, lane: lane.operand(), mask })
    }

    /// Whether the predicate is true in all lanes of the mask.
    #[track_caller]
    pub fn all<'k>(&'k self, value: Pred<'k>, mask: u32) -> Pred<'k> {
        self.effect_value(Op::Vote { mode: Vote::All, value: value.operand, mask })
    }

    /// Whether the predicate is true in any lane of the mask.
    #[track_caller]
    pub fn any<'k>(&'k self, value: Pred<'k>, mask: u32) -> Pred<'k> {
        self.effect_value(Op::Vote { mode: Vote::Any, value: value.operand, mask })
    }

    /// One bit for each lane of the mask with a true predicate.
    #[track_caller]
    pub fn ballot<'k>(&'k self, value: Pred<'k>, mask: u32) -> Val<'k, u32> {
        self.effect_value(Op::Vote { mode: Vote::Ballot, value: value.operand, mask })
    }
}

/// Matrix instructions; NVIDIA only.
impl Builder {
    /// accumulators += A·B by all lanes of the warp, each with its registers of the three matrices.
    ///
    /// [`Mma`] defines the number, type and contents of the registers.
    #[track_caller]
    pub fn mma<'k, T: Scalar, S: Scalar>(
        &'k self,
        mma: Mma,
        a: &[Val<'k, T>],
        b: &[Val<'k, T>],
        accumulators: Array<'k, S>,
    ) {
        let [.., needed] = mma.registers();
        if accumulators.len() != needed {
            self.fault(FaultKind::Type, format!("{mma} needs {needed} accumulators, not {}", accumulators.len()));
            return;
        }
        let [a, b] = [a, b].map(|values| values.iter().map(|v| v.operand).collect());
        self.effect(Op::Mma { mma, a, b, accumulators: accumulators.first });
    }
}
