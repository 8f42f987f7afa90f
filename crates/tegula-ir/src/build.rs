//! The builder: a kernel is a Rust function that calls it.
//!
//! Every call appends an operation to the innermost open region. Integer and predicate arithmetic is folded where its operands
//! are known and shared where the same operation was built before, so kernels may compute an index wherever they need it.
//! Floating-point operations are kept as they are written: a kernel's counts are what its source says.
//!
//! Mistakes that Rust's types cannot catch are noted as faults and refused by [`super::check()`]; nothing here panics.

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
    /// A matrix to read.
    #[track_caller]
    pub fn input<T: Scalar>(&self, name: &str) -> Global<'_, T> {
        self.matrix(name, Access::Read, Order2d::Strided, 1)
    }

    /// A matrix to write.
    #[track_caller]
    pub fn output<T: Scalar>(&self, name: &str) -> Global<'_, T> {
        self.matrix(name, Access::Write, Order2d::Strided, 1)
    }

    /// A matrix with all that can be declared of it: what the kernel does with it, what its strides are, and of how many
    /// elements its base, row stride and batch stride are multiples.
    #[track_caller]
    pub fn matrix<T: Scalar>(&self, name: &str, access: Access, order: Order2d, aligned: u32) -> Global<'_, T> {
        let param = self.param(name, ParamKind::Matrix { ty: T::TYPE, access, order, aligned, tiles: None });
        Global { k: self, param, batch: constant(0u32), brand: PhantomData }
    }

    /// A number passed at launch.
    #[track_caller]
    pub fn scalar<T: Scalar>(&self, name: &str) -> Val<'_, T> {
        let param = self.param(name, ParamKind::Scalar(T::TYPE));
        self.pure(Op::Scalar(param))
    }

    /// An array in the block's shared memory: one to three extents, the last runs fastest. Its first byte is aligned to 16.
    #[track_caller]
    pub fn shared<T: Scalar>(&self, name: &str, dims: impl AsRef<[u32]>) -> Shared<'_, T> {
        self.shared_array(name, dims.as_ref(), 16, Holds::Elements)
    }

    pub(super) fn shared_array<T: Scalar>(&self, name: &str, dims: &[u32], align: u32, holds: Holds) -> Shared<'_, T> {
        let mut state = self.state.borrow_mut();
        let id = SharedId(state.kernel.shared.len() as u32);
        let end = state.kernel.shared_bytes().checked_next_multiple_of(align.into()).unwrap_or(u64::MAX);
        let start = u32::try_from(end).unwrap_or(u32::MAX);
        let array = SharedArray { name: name.into(), ty: T::TYPE, dims: dims.to_vec(), align, start, holds };
        state.kernel.shared.push(array);
        Shared { k: self, id, brand: PhantomData }
    }

    /// A variable with its first value.
    #[track_caller]
    pub fn var<'k, T: Scalar>(&'k self, first: impl IntoVal<'k, T>) -> Var<'k, T> {
        let var = self.array(1).at(0);
        self.effect(Op::Set(var.id, first.operand()));
        var
    }

    /// A line that stands as a comment in the PTX text, so that two variants can be told apart.
    pub fn note(&self, line: impl Into<String>) {
        self.state.borrow_mut().kernel.notes.push(line.into());
    }

    /// Asks that so many blocks fit on a multiprocessor, which bounds the registers a thread may take.
    pub fn min_blocks(&self, blocks: u32) {
        self.state.borrow_mut().kernel.min_blocks = blocks;
    }
}

macro_rules! specials {
    ($($(#[$doc:meta])* $method:ident $special:ident;)*) => {
        /// Built-in indices.
        impl Builder {
            $($(#[$doc])* #[track_caller] pub fn $method(&self) -> Val<'_, u32> { self.pure(Op::Special(Special::$special)) })*
        }
    };
}
specials! {
    /// The thread's position in the block along x.
    thread_x ThreadX;
    /// The thread's position in the block along y.
    thread_y ThreadY;
    /// The thread's position in the block along z.
    thread_z ThreadZ;
    /// The block's position in the grid along x.
    block_x BlockX;
    /// The block's position in the grid along y.
    block_y BlockY;
    /// The block's position in the grid along z.
    block_z BlockZ;
    /// Blocks of the grid along x.
    grid_x GridX;
    /// Blocks of the grid along y.
    grid_y GridY;
    /// Blocks of the grid along z.
    grid_z GridZ;
    /// The thread's position in its warp, 0 to 31.
    lane Lane;
    /// The warp's position in its block.
    warp Warp;
    /// The warpgroup's position in its block: four warps each.
    warpgroup Warpgroup;
    /// The cluster's position in the grid along x.
    cluster_x Cluster;
    /// The block's position in its cluster.
    cluster_rank ClusterRank;
    /// Multiprocessors of the device. The grid may be computed from it, and nothing else.
    multiprocessors Multiprocessors;
}

/// The grid and control flow.
impl Builder {
    /// Says how many blocks there are, in sizes of the problem: constants, extents of matrices, and +, −, ×, ÷, min and max of
    /// them.
    #[track_caller]
    pub fn grid(&self, blocks: [Val<'_, u32>; 3]) {
        let mut state = self.state.borrow_mut();
        let sizes = blocks.map(|b| state.size(b.operand));
        match sizes {
            [Some(x), Some(y), Some(z)] if state.kernel.grid.is_none() => state.kernel.grid = Some([x, y, z]),
            [Some(_), Some(_), Some(_)] => {
                state.fault(FaultKind::Launch, "the grid is given twice".into(), Location::caller());
            }
            _ => state.fault(
                FaultKind::Launch,
                "the grid must be computed from extents and constants alone".into(),
                Location::caller(),
            ),
        }
    }

    /// Runs the body for every (x, y, z) below `blocks`, each in one block of the grid. Where y or z exceed what a grid can
    /// have, each block takes every 65,535th: batches and rows have no limit but memory.
    #[track_caller]
    pub fn for_blocks<'k>(&'k self, blocks: [Val<'k, u32>; 3], body: impl FnOnce([Val<'k, u32>; 3])) {
        let [x, y, z] = blocks;
        self.grid([x, y.min(GRID_YZ_LIMIT), z.min(GRID_YZ_LIMIT)]);
        self.for_step(self.block_z(), z, self.grid_z(), |z| {
            self.for_step(self.block_y(), y, self.grid_y(), |y| body([self.block_x(), y, z]));
        });
    }

    /// As [`for_blocks`](Self::for_blocks) for a single y, which takes no register: every (x, z) below `blocks`.
    #[track_caller]
    pub fn for_rows_of_blocks<'k>(&'k self, blocks: [Val<'k, u32>; 2], body: impl FnOnce([Val<'k, u32>; 2])) {
        let [x, z] = blocks;
        self.grid([x, self.constant(1), z.min(GRID_YZ_LIMIT)]);
        self.for_step(self.block_z(), z, self.grid_z(), |z| body([self.block_x(), z]));
    }

    /// The body for each number from `start` up to, not including, `end`.
    #[track_caller]
    pub fn for_each<'k>(
        &'k self,
        start: impl IntoVal<'k, u32>,
        end: impl IntoVal<'k, u32>,
        body: impl FnOnce(Val<'k, u32>),
    ) {
        self.for_step(start, end, 1, body);
    }

    /// As [`for_each`](Self::for_each), with so many rounds written one after the other: loads of later ones need not wait for what earlier ones do with theirs.
    /// That changes how fast it is, not what it means.
    #[track_caller]
    pub fn for_each_unrolled<'k>(
        &'k self,
        start: impl IntoVal<'k, u32>,
        end: impl IntoVal<'k, u32>,
        rounds: u32,
        body: impl FnOnce(Val<'k, u32>),
    ) {
        self.for_loop([start.operand(), end.operand(), constant(1u32)], rounds, body);
    }

    /// The body for each number from `start` in steps of `step` that is less than `end`.
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
    fn for_loop<'k>(&'k self, [start, end, step]: [Operand; 3], unroll: u32, body: impl FnOnce(Val<'k, u32>)) {
        let location = Location::caller();
        let counter = self.open_loop();
        body(self.val(Operand::Val(counter)));
        let op = Op::For { start, end, step, unroll, body: self.close_region() };
        self.push(op, vec![counter], location);
    }

    /// The body where the predicate holds.
    #[track_caller]
    pub fn when<'k>(&'k self, condition: Pred<'k>, then: impl FnOnce()) {
        self.if_else(condition, then, || ());
    }

    /// One of two bodies.
    #[track_caller]
    pub fn if_else<'k>(&'k self, condition: Pred<'k>, then: impl FnOnce(), otherwise: impl FnOnce()) {
        let location = Location::caller();
        let (then, otherwise) = (self.region(then), self.region(otherwise));
        self.push(Op::If { condition: condition.operand, then, otherwise }, Vec::new(), location);
    }

    /// The body again and again while the condition, computed anew each time, holds.
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

/// What does not depend on a closure's type. It is compiled once, not once for each closure.
impl Builder {
    fn open_region(&self) {
        self.state.borrow_mut().regions.push(Region::default());
    }

    fn close_region(&self) -> Vec<Inst> {
        self.state.borrow_mut().regions.pop().map(|r| r.insts).unwrap_or_default()
    }

    /// Opens the body of a loop, and makes its counter.
    fn open_loop(&self) -> ValId {
        let counter = self.state.borrow_mut().value(Type::U32, None);
        self.open_region();
        counter
    }

    fn push(&self, op: Op, results: Vec<ValId>, location: &'static Location<'static>) {
        self.state.borrow_mut().push(op, results, location);
    }
}

/// Every lane of a warp.
pub const FULL_WARP: u32 = u32::MAX;

/// Synchronisation.
impl Builder {
    /// Waits for all threads of the block; what they did before is seen by all after.
    #[track_caller]
    pub fn barrier(&self) {
        self.effect(Op::Barrier);
    }

    /// Waits at barrier `id` (1 to 15) until `threads` threads have come to it.
    #[track_caller]
    pub fn named_barrier<'k>(&'k self, id: impl IntoVal<'k, u32>, threads: u32) {
        self.effect(Op::NamedBarrier { id: id.operand(), threads, wait: true });
    }

    /// Comes to barrier `id` without waiting.
    #[track_caller]
    pub fn named_arrive<'k>(&'k self, id: impl IntoVal<'k, u32>, threads: u32) {
        self.effect(Op::NamedBarrier { id: id.operand(), threads, wait: false });
    }

    /// Waits for the lanes of the mask; what they did before is seen by all of them after.
    #[track_caller]
    pub fn sync_warp(&self, mask: u32) {
        self.effect(Op::SyncWarp { mask });
    }

    /// The same value, asserted to be the same for all threads of the block, so that control flow that depends on it may hold barriers: what all
    /// threads read from one element of shared memory, for example. The interpreter verifies the assertion; a GPU trusts it.
    #[track_caller]
    pub fn uniform<'k, T: Scalar>(&'k self, value: Val<'k, T>) -> Val<'k, T> {
        self.effect_value(Op::Uniform(Uniform::Block, value.operand))
    }

    /// As [`uniform`](Self::uniform), for all lanes of a warp.
    #[track_caller]
    pub fn uniform_in_warp<'k, T: Scalar>(&'k self, value: Val<'k, T>) -> Val<'k, T> {
        self.effect_value(Op::Uniform(Uniform::Warp, value.operand))
    }

    /// Orders this thread's accesses before it and after it for threads within the scope.
    #[track_caller]
    pub fn fence(&self, scope: Scope) {
        self.effect(Op::Fence(scope));
    }

    /// Makes one group of the thread's asynchronous copies since the last.
    #[track_caller]
    pub fn copy_async_commit(&self) {
        self.effect(Op::CopyAsyncCommit);
    }

    /// Waits until at most the latest `pending` groups of the thread's copies are on their way.
    #[track_caller]
    pub fn copy_async_wait(&self, pending: u32) {
        self.effect(Op::CopyAsyncWait { pending });
    }

    /// A value of another lane of the mask; see [`Shuffle`].
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

    /// Whether all lanes of the mask say true.
    #[track_caller]
    pub fn all<'k>(&'k self, value: Pred<'k>, mask: u32) -> Pred<'k> {
        self.effect_value(Op::Vote { mode: Vote::All, value: value.operand, mask })
    }

    /// Whether one lane of the mask says true.
    #[track_caller]
    pub fn any<'k>(&'k self, value: Pred<'k>, mask: u32) -> Pred<'k> {
        self.effect_value(Op::Vote { mode: Vote::Any, value: value.operand, mask })
    }

    /// One bit for each lane of the mask that says true.
    #[track_caller]
    pub fn ballot<'k>(&'k self, value: Pred<'k>, mask: u32) -> Val<'k, u32> {
        self.effect_value(Op::Vote { mode: Vote::Ballot, value: value.operand, mask })
    }
}

/// Matrix instructions, which only NVIDIA has.
impl Builder {
    /// sums += A·B by all lanes of the warp, each with its registers of the three matrices. [`Mma`] says how many there are, of
    /// which type, and what they hold.
    #[track_caller]
    pub fn mma<'k, T: Scalar, S: Scalar>(&'k self, mma: Mma, a: &[Val<'k, T>], b: &[Val<'k, T>], sums: Array<'k, S>) {
        let [.., needed] = mma.registers();
        if sums.len() != needed {
            self.fault(FaultKind::Type, format!("{mma} takes {needed} sums, not {}", sums.len()));
            return;
        }
        let [a, b] = [a, b].map(|values| values.iter().map(|v| v.operand).collect());
        self.effect(Op::Mma { mma, a, b, sums: sums.first });
    }
}
