//! What Hopper brought: a copy engine that moves whole tiles, barriers in shared memory that count its bytes, matrix instructions of a
//! warpgroup that read shared memory themselves, clusters of blocks, and registers that move from warps to warps.
//!
//! * **Tiles.** A matrix parameter with [`Tiles`] is reached by the copy engine, a tile at a time ([`Tensor`]); what lies outside of the
//!   matrix is zero when it is read and left out when it is written. In shared memory a tile is a stretch of rows of at most 128 bytes, whose
//!   pieces of 16 bytes change places: its [`Swizzle`] is part of the array's type, so no kernel computes with it, and one that reads
//!   differently than it wrote is refused. What is copied at once may be a part of the array's tile, of which swizzles repeat.
//! * **Barriers** ([`Barriers`]) go from phase to phase: each ends when so many threads have arrived and all bytes that were announced have
//!   come. Whoever waits names the phase by its parity, and sees what happened before it ended.
//! * **Two ways to memory.** The copy engine and the matrix instructions go past the caches of ordinary accesses (the *asynchronous proxy*).
//!   What threads wrote is seen there only after a [`Builder::fence_proxy`] of each of them, or, in a
//!   matrix, a [`Builder::fence_proxy_global`]. A write by the proxy over what threads wrote needs it too.
//! * **Sums on their way.** [`Builder::wgmma`] starts a multiplication; its sums and what it reads are in use until
//!   [`Builder::wgmma_wait`]. [`Builder::wgmma_fence`] comes between other uses of the sums and the first multiplication.
//!
//! The meaning is that of the PTX ISA 8.7, "wgmma", "cp.async.bulk.tensor", "mbarrier" and "setmaxnreg".

use std::fmt;
use std::marker::PhantomData;

use tegula_core::element::{Scalar, Type};

use super::build::Builder;
use super::ops::*;
use super::types::{Array, Brand, Coord, Elements, Global, IntoVal, Pred, Shared, Val, constant};
use super::{Fault, FaultKind};

/// How the pieces of 16 bytes of a row in shared memory change places, so that eight rows at one position meet all banks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Swizzle {
    /// Not at all.
    #[default]
    None,
    /// Within rows of 32 bytes.
    B32,
    /// Within rows of 64 bytes.
    B64,
    /// Within rows of 128 bytes.
    B128,
}

impl Swizzle {
    /// Bytes of a row.
    pub const fn row_bytes(self) -> u32 {
        match self {
            Swizzle::None => 16,
            Swizzle::B32 => 32,
            Swizzle::B64 => 64,
            Swizzle::B128 => 128,
        }
    }

    /// Where byte `offset` of an array lies, from the array's start, which is a multiple of 1024: bits 4 to 6, as many as there are pieces in a row,
    /// are those of the offset and of the bits three further up.
    pub const fn place(self, offset: u32) -> u32 {
        offset ^ (offset >> 3 & (self.row_bytes() - 16))
    }

    /// To what the first byte of an array must be aligned.
    pub const fn alignment(self) -> u32 {
        match self {
            Swizzle::None => 128,
            _ => 1024,
        }
    }
}

/// The tiles by which a matrix is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tiles {
    /// Rows of a tile.
    pub rows: u32,
    /// Columns of a tile.
    pub cols: u32,
    /// How they lie in shared memory.
    pub swizzle: Swizzle,
}

impl Tiles {
    /// Elements of a tile.
    pub const fn elements(self) -> u32 {
        self.rows * self.cols
    }

    /// Rows of memory, and elements of each, of a matrix in that order.
    pub const fn lines(self, order: Order2d) -> [u32; 2] {
        match order {
            Order2d::ColMajor => [self.cols, self.rows],
            _ => [self.rows, self.cols],
        }
    }
}

/// The matrix instruction of a warpgroup: 64×16 numbers of A by 16×n of B, with sums in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wgmma {
    /// f16 or bf16.
    pub ty: Type,
    /// Columns of B: a multiple of 8, up to 256.
    pub n: u32,
}

impl Wgmma {
    /// Rows of A.
    pub const M: u32 = 64;
    /// Columns of A.
    pub const K: u32 = 16;
    /// Threads that multiply together.
    pub const THREADS: u32 = 128;

    /// Sums of a thread.
    pub const fn sums(self) -> u32 {
        self.n / 2
    }

    /// Row and column of a sum of the `thread`-th of the warpgroup.
    pub const fn sum(self, thread: u32, register: u32) -> (u32, u32) {
        (
            thread / 32 * 16 + thread % 32 / 4 + 8 * (register % 4 / 2),
            register / 4 * 8 + 2 * (thread % 4) + register % 2,
        )
    }

    /// Row and column in A of a half of a register, where A comes from registers.
    pub const fn a(thread: u32, register: u32, part: u32) -> (u32, u32) {
        (thread / 32 * 16 + thread % 32 / 4 + 8 * (register % 2), 2 * (thread % 4) + 8 * (register / 2) + part)
    }
}

impl fmt::Display for Wgmma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wgmma {} {}×{}×{}", self.ty, Wgmma::M, self.n, Wgmma::K)
    }
}

/// A factor of a [`Wgmma`] in shared memory: an array with a swizzle, from an element on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Factor {
    /// Row (column) 0 at k = 0.
    pub at: Place,
    /// Whether rows of the array run along k. Else there is one for each k, and they are cut: the rows (columns) of the factor go on in
    /// the next tile of the array.
    pub along_k: bool,
}

/// Where A comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeftFactor {
    /// Shared memory.
    Shared(Factor),
    /// Four `u32` of each thread, with two numbers in each; [`Wgmma::a`] says which.
    Registers(Vec<Operand>),
}

/// Operations that Hopper brought; those of warpgroups are on no other GPU. None has a result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Hopper {
    /// A barrier begins its first phase.
    InitBarrier {
        /// An element of an array of barriers.
        barrier: Place,
        /// Arrivals that end a phase.
        arrivals: u32,
    },
    /// Barriers that the thread began are seen by the cluster and by the copy engine, once they are synchronised with.
    FenceInit,
    /// The thread arrives at a barrier, and publishes what it did.
    Arrive {
        /// Which.
        barrier: Place,
        /// Of which block of the cluster; of this one where there is none.
        block: Option<Operand>,
        /// Bytes that must come before the phase ends, besides those announced before.
        expect: Option<Operand>,
    },
    /// Waits until the phase of that parity has ended, and sees what was published until then.
    Await {
        /// Which.
        barrier: Place,
        /// 0 or 1; 1 at a barrier in its first phase does not wait.
        parity: Operand,
    },
    /// Starts copying a tile of a matrix to shared memory. When it has come, its bytes count at the barrier, those outside of the matrix too.
    CopyTile {
        /// Which matrix; it has [`Tiles`].
        matrix: ParamId,
        /// Batch, row and column of the tile's first element.
        at: [Operand; 3],
        /// Where it goes: to a tile of the array or to a part of one, from a multiple of its own elements on.
        to: Place,
        /// The barrier that counts.
        barrier: Place,
        /// Where there is one: the blocks of the cluster to which it goes, one bit each; in each the same places are meant.
        blocks: Option<Operand>,
    },
    /// Sends numbers to shared memory of a block of the cluster. When they have come, their bytes count at a barrier there.
    Send {
        /// Where the first goes: an array that is an inbox.
        to: Place,
        /// 1, 2 or 4 of 32 bits.
        values: Vec<Operand>,
        /// To which block.
        block: Operand,
        /// The barrier that counts.
        barrier: Place,
    },
    /// Starts copying a tile from shared memory to a matrix, as far as it lies inside.
    StoreTile {
        /// Which matrix; it has [`Tiles`].
        matrix: ParamId,
        /// Batch, row and column of the tile's first element.
        at: [Operand; 3],
        /// Where it is: a tile of the array or a part of one, from a multiple of its own elements on.
        from: Place,
    },
    /// The thread's stores of tiles since the last commit become one group.
    CommitStores,
    /// Waits until at most `pending` of the thread's latest groups of stores are not done.
    AwaitStores {
        /// Groups that may still be on their way.
        pending: u32,
        /// Whether it is enough that shared memory has been read.
        read: bool,
    },
    /// What the thread wrote to memory is seen by the asynchronous proxy, once it is synchronised
    /// with.
    FenceProxy {
        /// Whether to fence matrices in global memory, not shared memory.
        global: bool,
    },
    /// All threads of the warpgroup start adding a product to their sums, or setting them to it.
    Wgmma {
        /// What is multiplied.
        wgmma: Wgmma,
        /// 64×16.
        a: LeftFactor,
        /// 16×n.
        b: Factor,
        /// The first of the thread's sums: consecutive variables.
        sums: VarId,
        /// Whether the product is added to what they are: a predicate.
        add: Operand,
    },
    /// What was done to the sums before is done before multiplications after.
    WgmmaFence,
    /// The warpgroup's multiplications since the last commit become one group.
    WgmmaCommit,
    /// Waits until at most `pending` of the latest groups of multiplications are not done.
    WgmmaWait {
        /// Groups that may still be on their way.
        pending: u32,
    },
    /// All lanes of the warp write matrices of 8 rows of 16 bytes to shared memory: lane 8·j + i says where row i of matrix j begins. The
    /// counterpart of [`Op::LoadMatrix`].
    StoreMatrix {
        /// The first element of a row.
        to: Place,
        /// One `u32` a matrix: 1, 2 or 4.
        values: Vec<Operand>,
        /// Whether 16-bit elements change rows for columns.
        transposed: bool,
    },
    /// The warps of a warpgroup have so many registers a thread from now on. To get more waits until others have given enough.
    SetRegisters {
        /// A multiple of 8, from 24 to 256.
        count: u32,
        /// Whether that is more than before.
        more: bool,
    },
    /// Comes to the cluster's barrier, and publishes what the thread did.
    ClusterArrive,
    /// Waits until all threads of the cluster have come, and sees what they did.
    ClusterWait,
    /// Where a matrix lies is looked up before its first tile is asked for.
    Prefetch {
        /// Which matrix; it has [`Tiles`].
        matrix: ParamId,
    },
    /// Waits until the launches before this one have ended, and sees what they did. A kernel with this operation may start before they have:
    /// no thread reads or writes a matrix until it has waited.
    AwaitLaunches,
    /// As far as this block is concerned, the launch after this one may start, if its kernel has [`Hopper::AwaitLaunches`].
    AllowNext,
}

impl Hopper {
    /// Calls `f` with every place that the operation means.
    pub(super) fn for_each_place(&self, f: &mut dyn FnMut(&Place)) {
        match self {
            Hopper::InitBarrier { barrier, .. } | Hopper::Arrive { barrier, .. } | Hopper::Await { barrier, .. } => {
                f(barrier);
            }
            Hopper::CopyTile { to, barrier, .. } | Hopper::Send { to, barrier, .. } => {
                [to, barrier].into_iter().for_each(f)
            }
            Hopper::StoreTile { from: at, .. } | Hopper::StoreMatrix { to: at, .. } => f(at),
            Hopper::Wgmma { a, b, .. } => {
                if let LeftFactor::Shared(a) = a {
                    f(&a.at);
                }
                f(&b.at);
            }
            _ => {}
        }
    }

    /// Calls `f` with every operand.
    pub(super) fn for_each_operand(&self, f: &mut dyn FnMut(Operand)) {
        let factor = |factor: &Factor, f: &mut dyn FnMut(Operand)| factor.at.operands().for_each(f);
        match self {
            Hopper::FenceInit
            | Hopper::CommitStores
            | Hopper::AwaitStores { .. }
            | Hopper::FenceProxy { .. }
            | Hopper::WgmmaFence
            | Hopper::WgmmaCommit
            | Hopper::WgmmaWait { .. }
            | Hopper::SetRegisters { .. }
            | Hopper::ClusterArrive
            | Hopper::ClusterWait
            | Hopper::Prefetch { .. }
            | Hopper::AwaitLaunches
            | Hopper::AllowNext => {}
            Hopper::InitBarrier { barrier, .. } => barrier.operands().for_each(f),
            Hopper::Arrive { barrier, block, expect } => {
                barrier.operands().chain(*block).chain(*expect).for_each(f);
            }
            Hopper::Await { barrier, parity } => barrier.operands().chain([*parity]).for_each(f),
            Hopper::CopyTile { at, to, barrier, blocks, .. } => {
                at.iter().copied().chain(to.operands()).chain(barrier.operands()).chain(*blocks).for_each(f);
            }
            Hopper::Send { to, values, block, barrier } => {
                let places = to.operands().chain(barrier.operands());
                places.chain(values.iter().copied()).chain([*block]).for_each(f);
            }
            Hopper::StoreTile { at, from, .. } => at.iter().copied().chain(from.operands()).for_each(f),
            Hopper::Wgmma { a, b, add, .. } => {
                match a {
                    LeftFactor::Shared(a) => factor(a, f),
                    LeftFactor::Registers(a) => a.iter().copied().for_each(&mut *f),
                }
                factor(b, f);
                f(*add);
            }
            Hopper::StoreMatrix { to, values, .. } => to.operands().chain(values.iter().copied()).for_each(f),
        }
    }
}

impl Kernel {
    /// Whether it may start before the launches that precede it have ended, for which it waits itself.
    pub fn starts_early(&self) -> bool {
        self.early
    }

    /// The same kernel, whose blocks say first of all that the launch after it may start.
    #[must_use]
    pub fn allowing_next(mut self) -> Self {
        if let Some(first) = self.body.first() {
            let first = Inst { op: Op::Hopper(Hopper::AllowNext), results: Vec::new(), site: first.site };
            self.body.insert(0, first);
        }
        self
    }
}

/// A matrix that is copied by tiles.
pub struct Tensor<'k, T> {
    k: &'k Builder,
    param: ParamId,
    batch: Operand,
    brand: Brand<'k, T>,
}

impl<T> Clone for Tensor<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Tensor<'_, T> {}

impl<'k, T: Scalar> Tensor<'k, T> {
    /// Matrices in the batch.
    #[track_caller]
    pub fn batches(self) -> Val<'k, u32> {
        self.k.pure(Op::Extent(self.param, Axis::Batches))
    }

    /// Rows of each matrix.
    #[track_caller]
    pub fn rows(self) -> Val<'k, u32> {
        self.k.pure(Op::Extent(self.param, Axis::Rows))
    }

    /// Columns of each matrix.
    #[track_caller]
    pub fn cols(self) -> Val<'k, u32> {
        self.k.pure(Op::Extent(self.param, Axis::Cols))
    }

    /// The matrix of the batch that another handle means.
    #[must_use]
    pub fn batch_of<U>(self, other: Global<'k, U>) -> Self {
        Tensor { batch: other.batch, ..self }
    }

    /// The same matrix, reached by ordinary accesses.
    pub fn elements(self) -> Global<'k, T> {
        Global { k: self.k, param: self.param, batch: self.batch, brand: PhantomData }
    }

    /// One matrix of the batch: coordinates (row, col) mean that matrix.
    #[must_use]
    pub fn batch(self, batch: impl IntoVal<'k, u32>) -> Self {
        Tensor { batch: batch.operand(), ..self }
    }

    /// See [`Hopper::Prefetch`].
    #[track_caller]
    pub fn prefetch(self) {
        self.k.hopper(Hopper::Prefetch { matrix: self.param });
    }

    #[track_caller]
    fn at(self, at: impl Coord<'k>) -> [Operand; 3] {
        match at.operands()[..] {
            [row, col] => [self.batch, row, col],
            [batch, row, col] => [batch, row, col],
            _ => {
                self.k.fault(FaultKind::Type, "a matrix takes (row, col) or (batch, row, col)".into());
                [constant(0u32); 3]
            }
        }
    }
}

/// Barriers in shared memory.
#[derive(Clone, Copy)]
pub struct Barriers<'k>(Shared<'k, u64>);

impl<'k> Barriers<'k> {
    #[track_caller]
    fn at(self, which: impl IntoVal<'k, u32>) -> Place {
        self.0.k.shared_place(self.0.id, &[which.operand()])
    }

    #[track_caller]
    fn op(self, op: Hopper) {
        self.0.k.hopper(op);
    }

    /// Begins the first phase of a barrier, whose phases end after so many arrivals. One thread does it, and [`Builder::fence_init`] and a
    /// barrier of the block (of the cluster, where there is one) come before any other use.
    #[track_caller]
    pub fn init(self, which: impl IntoVal<'k, u32>, arrivals: u32) {
        self.op(Hopper::InitBarrier { barrier: self.at(which), arrivals });
    }

    /// Arrives.
    #[track_caller]
    pub fn arrive(self, which: impl IntoVal<'k, u32>) {
        self.op(Hopper::Arrive { barrier: self.at(which), block: None, expect: None });
    }

    /// Arrives at the barrier of another block of the cluster.
    #[track_caller]
    pub fn arrive_at(self, which: impl IntoVal<'k, u32>, block: impl IntoVal<'k, u32>) {
        self.op(Hopper::Arrive { barrier: self.at(which), block: Some(block.operand()), expect: None });
    }

    /// Arrives, and announces that so many bytes will come.
    #[track_caller]
    pub fn expect(self, which: impl IntoVal<'k, u32>, bytes: impl IntoVal<'k, u32>) {
        self.op(Hopper::Arrive { barrier: self.at(which), block: None, expect: Some(bytes.operand()) });
    }

    /// Waits for the end of the phase of that parity.
    #[track_caller]
    pub fn wait(self, which: impl IntoVal<'k, u32>, parity: impl IntoVal<'k, u32>) {
        self.op(Hopper::Await { barrier: self.at(which), parity: parity.operand() });
    }
}

impl<'k, T: Scalar> Shared<'k, T> {
    /// Starts copying the tile of a matrix that begins at `at` into tile `which` of this array; its bytes count at a barrier.
    #[track_caller]
    pub fn copy_tile(
        self,
        which: impl IntoVal<'k, u32>,
        from: Tensor<'k, T>,
        at: impl Coord<'k>,
        (barriers, barrier): (Barriers<'k>, Val<'k, u32>),
    ) {
        self.copy_tile_to((which, 0u32), from, at, (barriers, barrier), None);
    }

    /// As [`Self::copy_tile`], from a row of tile `which` on, to the blocks of the cluster that `blocks` has bits of.
    #[track_caller]
    pub fn copy_tile_to(
        self,
        (which, row): (impl IntoVal<'k, u32>, impl IntoVal<'k, u32>),
        from: Tensor<'k, T>,
        at: impl Coord<'k>,
        (barriers, barrier): (Barriers<'k>, Val<'k, u32>),
        blocks: Option<Val<'k, u32>>,
    ) {
        let (to, barrier, blocks) = (self.tile(which, row), barriers.at(barrier), blocks.map(|blocks| blocks.operand));
        self.k.hopper(Hopper::CopyTile { matrix: from.param, at: from.at(at), to, barrier, blocks });
    }

    /// Sends neighbours, 1, 2 or 4, from `at` on, to this array of a block of the cluster; their bytes count at its barrier. See [`Hopper::Send`].
    #[track_caller]
    pub fn send<const N: usize>(
        self,
        at: impl Coord<'k>,
        values: [Val<'k, T>; N],
        block: impl IntoVal<'k, u32>,
        (barriers, barrier): (Barriers<'k>, Val<'k, u32>),
    ) {
        let values = values.map(|value| value.operand).to_vec();
        let (to, barrier) = (self.place(at), barriers.at(barrier));
        self.k.hopper(Hopper::Send { to, values, block: block.operand(), barrier });
    }

    /// Starts copying tile `which` of this array to where a matrix has a tile that begins at `at`: along its lines at a multiple of 16 bytes, which
    /// PTX does not say and an H200 insists on with an illegal instruction. (Copies to shared memory may begin anywhere.)
    #[track_caller]
    pub fn store_tile(self, which: impl IntoVal<'k, u32>, to: Tensor<'k, T>, at: impl Coord<'k>) {
        self.k.hopper(Hopper::StoreTile { matrix: to.param, at: to.at(at), from: self.tile(which, 0u32) });
    }

    /// A factor of [`Builder::wgmma`] that begins at this element, with rows along k or one row for each k.
    #[track_caller]
    pub fn factor(self, at: impl Coord<'k>, along_k: bool) -> Factor {
        Factor { at: self.place(at), along_k }
    }

    /// Writes `N` matrices (1, 2 or 4) of 8 rows of 16 bytes, spread over the warp as [`super::Mma`] has its sums; `at` is where the lane's row
    /// begins. See [`Hopper::StoreMatrix`].
    #[track_caller]
    pub fn store_matrix<const N: usize>(self, at: impl Coord<'k>, values: [Val<'k, u32>; N], transposed: bool) {
        let values = values.map(|value| value.operand).to_vec();
        self.k.hopper(Hopper::StoreMatrix { to: self.place(at), values, transposed });
    }

    #[track_caller]
    fn tile(self, which: impl IntoVal<'k, u32>, row: impl IntoVal<'k, u32>) -> Place {
        self.k.shared_place(self.id, &[which.operand(), row.operand(), constant(0u32)])
    }
}

impl From<Factor> for LeftFactor {
    fn from(factor: Factor) -> Self {
        LeftFactor::Shared(factor)
    }
}

impl<'k> From<[Val<'k, u32>; 4]> for LeftFactor {
    fn from(registers: [Val<'k, u32>; 4]) -> Self {
        LeftFactor::Registers(registers.map(|value| value.operand).to_vec())
    }
}

/// Operations that Hopper brought.
impl Builder {
    #[track_caller]
    fn hopper(&self, op: Hopper) {
        self.effect(Op::Hopper(op));
    }

    /// A matrix that is copied by tiles. Its base and strides are multiples of 16 bytes.
    #[track_caller]
    pub fn tensor<T: Scalar>(&self, name: &str, access: Access, order: Order2d, tiles: Tiles) -> Tensor<'_, T> {
        let kind = ParamKind::Matrix {
            ty: T::TYPE,
            access,
            order,
            aligned: (16 / T::TYPE.size().max(1)) as u32,
            tiles: Some(tiles),
        };
        Tensor { k: self, param: self.param(name, kind), batch: constant(0u32), brand: PhantomData }
    }

    /// Room for so many tiles in shared memory, each with so many rows of so many elements; an array of three extents.
    #[track_caller]
    pub fn tiles<T: Scalar>(&self, name: &str, count: u32, [rows, row]: [u32; 2], swizzle: Swizzle) -> Shared<'_, T> {
        self.shared_array(name, &[count, rows, row], swizzle.alignment(), Holds::Tiles(swizzle))
    }

    /// An array in shared memory to which other blocks of the cluster send: two or three extents. See [`Shared::send`].
    #[track_caller]
    pub fn inbox<T: Scalar>(&self, name: &str, dims: impl AsRef<[u32]>) -> Shared<'_, T> {
        self.shared_array(name, dims.as_ref(), 16, Holds::Inbox)
    }

    /// So many barriers in shared memory.
    #[track_caller]
    pub fn barriers(&self, name: &str, count: u32) -> Barriers<'_> {
        Barriers(self.shared_array(name, &[count], 8, Holds::Barriers))
    }

    /// Makes clusters of so many blocks along x, of which the grid's x must be a multiple.
    pub fn cluster(&self, blocks: u32) {
        self.set_cluster(blocks);
    }

    /// See [`Hopper::FenceInit`].
    #[track_caller]
    pub fn fence_init(&self) {
        self.hopper(Hopper::FenceInit);
    }

    /// Fences the thread's accesses to shared memory. See [`Hopper::FenceProxy`].
    #[track_caller]
    pub fn fence_proxy(&self) {
        self.hopper(Hopper::FenceProxy { global: false });
    }

    /// Fences the thread's accesses to matrices. See [`Hopper::FenceProxy`].
    #[track_caller]
    pub fn fence_proxy_global(&self) {
        self.hopper(Hopper::FenceProxy { global: true });
    }

    /// Makes one group of the thread's stores of tiles since the last.
    #[track_caller]
    pub fn commit_stores(&self) {
        self.hopper(Hopper::CommitStores);
    }

    /// Waits until at most the latest `pending` groups of the thread's stores of tiles have shared memory still to read.
    #[track_caller]
    pub fn await_reads(&self, pending: u32) {
        self.hopper(Hopper::AwaitStores { pending, read: true });
    }

    /// Waits until at most the latest `pending` groups of the thread's stores of tiles are not done.
    #[track_caller]
    pub fn await_stores(&self, pending: u32) {
        self.hopper(Hopper::AwaitStores { pending, read: false });
    }

    /// Starts sums = A·B, or sums += A·B where `add` holds, by all threads of the warpgroup. Groups are made by [`Self::wgmma_commit`].
    #[track_caller]
    pub fn wgmma<'k>(
        &'k self,
        wgmma: Wgmma,
        a: impl Into<LeftFactor>,
        b: Factor,
        sums: Array<'k, f32>,
        add: impl IntoVal<'k, bool>,
    ) {
        if sums.len() != wgmma.sums() {
            self.fault(FaultKind::Type, format!("{wgmma} takes {} sums, not {}", wgmma.sums(), sums.len()));
            return;
        }
        self.hopper(Hopper::Wgmma { wgmma, a: a.into(), b, sums: sums.first, add: add.operand() });
    }

    /// See [`Hopper::WgmmaFence`].
    #[track_caller]
    pub fn wgmma_fence(&self) {
        self.hopper(Hopper::WgmmaFence);
    }

    /// Makes one group of the warpgroup's multiplications since the last.
    #[track_caller]
    pub fn wgmma_commit(&self) {
        self.hopper(Hopper::WgmmaCommit);
    }

    /// Waits until at most the latest `pending` groups of multiplications are not done.
    #[track_caller]
    pub fn wgmma_wait(&self, pending: u32) {
        self.hopper(Hopper::WgmmaWait { pending });
    }

    /// Gives registers of the warpgroup back, down to so many a thread. The kernel says [`Builder::min_blocks`] as well, else it has no effect.
    #[track_caller]
    pub fn give_registers(&self, count: u32) {
        self.hopper(Hopper::SetRegisters { count, more: false });
    }

    /// Takes registers for the warpgroup, up to so many a thread.
    #[track_caller]
    pub fn take_registers(&self, count: u32) {
        self.hopper(Hopper::SetRegisters { count, more: true });
    }

    /// Comes to the cluster's barrier without waiting.
    #[track_caller]
    pub fn cluster_arrive(&self) {
        self.hopper(Hopper::ClusterArrive);
    }

    /// Waits at the cluster's barrier, to which the thread has come.
    #[track_caller]
    pub fn cluster_wait(&self) {
        self.hopper(Hopper::ClusterWait);
    }

    /// See [`Hopper::AwaitLaunches`].
    #[track_caller]
    pub fn await_launches(&self) {
        self.set_early();
        self.hopper(Hopper::AwaitLaunches);
    }

    /// See [`Hopper::AllowNext`].
    #[track_caller]
    pub fn allow_next(&self) {
        self.hopper(Hopper::AllowNext);
    }

    /// Whether the lane is the first of its warp: of operations that one thread does for all.
    #[track_caller]
    pub fn is_first_lane(&self) -> Pred<'_> {
        self.lane().eq(0)
    }
}

/// What is wrong with an operation whatever the data, besides what [`super::check()`] asks of all.
pub(super) fn faults(kernel: &Kernel, op: &Hopper) -> Vec<(FaultKind, String)> {
    let mut faults = Vec::new();
    let mut refuse = |kind, message: String| faults.push((kind, message));
    let array = |place: &Place| match place {
        Place::Shared { array, .. } => Some(&kernel.shared[array.index()]),
        _ => None,
    };
    let is_barrier = |place: &Place| array(place).is_some_and(|array| array.holds == Holds::Barriers);
    match op {
        Hopper::InitBarrier { barrier, .. } | Hopper::Arrive { barrier, .. } | Hopper::Await { barrier, .. }
            if !is_barrier(barrier) =>
        {
            refuse(FaultKind::Type, "this takes an element of an array of barriers".into());
        }
        Hopper::InitBarrier { arrivals, .. } if !(1..1 << 20).contains(arrivals) => {
            refuse(FaultKind::Type, format!("a barrier takes 1 to 2²⁰ − 1 arrivals, not {arrivals}"));
        }
        Hopper::CopyTile { matrix, to: place, barrier, .. } => {
            if !is_barrier(barrier) {
                refuse(FaultKind::Type, "the bytes of a tile count at a barrier".into());
            }
            tile_faults(kernel, *matrix, array(place), false, &mut refuse);
        }
        Hopper::Send { to, values, barrier, .. } => {
            if !is_barrier(barrier) {
                refuse(FaultKind::Type, "what is sent counts at a barrier".into());
            }
            let ty = match array(to) {
                Some(SharedArray { ty, holds: Holds::Inbox, .. }) if ty.size() == 4 => Some(*ty),
                _ => None,
            };
            if ty.is_none() || values.iter().any(|&value| Some(kernel.operand_type(value)) != ty) {
                refuse(FaultKind::Type, "numbers of 32 bits are sent to an inbox of their type".into());
            }
            if !matches!(values.len(), 1 | 2 | 4) {
                refuse(FaultKind::Width, "1, 2 or 4 numbers are sent at once".into());
            }
        }
        Hopper::StoreTile { matrix, from: place, .. } => {
            tile_faults(kernel, *matrix, array(place), true, &mut refuse);
        }
        Hopper::Wgmma { wgmma, a, b, .. } => {
            if !matches!(wgmma.ty, Type::F16 | Type::BF16) || wgmma.n == 0 || wgmma.n > 256 || wgmma.n % 8 != 0 {
                refuse(FaultKind::Type, format!("there is no {wgmma}"));
            }
            let left = if let LeftFactor::Shared(a) = a { Some(a) } else { None };
            for factor in left.into_iter().chain([b]) {
                match array(&factor.at) {
                    Some(SharedArray { ty, holds: Holds::Tiles(swizzle), dims, .. })
                        if *ty == wgmma.ty && *swizzle != Swizzle::None && dims[2] * 2 == swizzle.row_bytes() => {}
                    _ => refuse(
                        FaultKind::Type,
                        format!("{wgmma} takes factors from swizzled tiles of {}, with whole rows", wgmma.ty),
                    ),
                }
            }
            if let LeftFactor::Registers(a) = a
                && (a.len() != 4 || a.iter().any(|&a| kernel.operand_type(a) != Type::U32))
            {
                refuse(FaultKind::Type, format!("{wgmma} takes four u32 as A"));
            }
        }
        Hopper::StoreMatrix { to, values, .. } if array(to).is_none() || !matches!(values.len(), 1 | 2 | 4) => {
            refuse(FaultKind::Width, "1, 2 or 4 matrices are stored at once, to shared memory".into());
        }
        Hopper::Prefetch { matrix } => {
            let Param { name, kind } = &kernel.params[matrix.index()];
            if !matches!(kind, ParamKind::Matrix { tiles: Some(_), .. }) {
                refuse(FaultKind::Type, format!("{name} is not copied by tiles"));
            }
        }
        Hopper::SetRegisters { count, .. } => {
            if !(24..=256).contains(count) || count % 8 != 0 {
                refuse(FaultKind::Launch, format!("{count} registers a thread; it is a multiple of 8 from 24 to 256"));
            }
            if kernel.min_blocks != 1 {
                refuse(FaultKind::Launch, "registers move only in a kernel with `min_blocks(1)`".into());
            }
        }
        _ => {}
    }
    faults
}

fn tile_faults(
    kernel: &Kernel,
    matrix: ParamId,
    array: Option<&SharedArray>,
    store: bool,
    refuse: &mut impl FnMut(FaultKind, String),
) {
    let Param { name, kind } = &kernel.params[matrix.index()];
    let (ParamKind::Matrix { ty, access, order, tiles: Some(tiles), .. }, Some(array)) = (kind, array) else {
        return refuse(FaultKind::Type, format!("{name} is not copied by tiles"));
    };
    let [rows, row] = tiles.lines(*order);
    // Parts of a tile begin where the swizzle does.
    let is_part = |of: u32| {
        let bytes = u64::from(rows) * u64::from(row) * ty.size() as u64;
        rows % 8 == 0 && of.is_multiple_of(rows) && bytes.is_multiple_of(tiles.swizzle.alignment().into())
    };
    let fits = matches!(array.dims[1..], [of, same] if same == row && (of == rows || is_part(of)));
    if array.ty != *ty || array.holds != Holds::Tiles(tiles.swizzle) || !fits {
        let message =
            format!("a tile of {name} is {rows} rows of {row} {ty} ({:?}), not as {}", tiles.swizzle, array.name);
        refuse(FaultKind::Type, message + " has them");
    }
    if store == (*access == Access::Read) {
        refuse(FaultKind::Type, format!("{name} is declared {access:?}"));
    }
}

/// What is wrong with a matrix's tiles.
pub(super) fn check_tiles(kernel: &Kernel, faults: &mut Vec<Fault>) {
    for Param { name, kind } in kernel.params() {
        let ParamKind::Matrix { ty, order, tiles: Some(tiles), .. } = kind else { continue };
        let [rows, row] = tiles.lines(*order);
        let bytes = row.saturating_mul(ty.size() as u32);
        let fits = match tiles.swizzle {
            Swizzle::None => bytes % 16 == 0 && row <= 256,
            swizzle => bytes % 16 == 0 && bytes <= swizzle.row_bytes(),
        };
        if !fits || !(1..=256).contains(&rows) || *order == Order2d::Strided {
            let message =
                format!("{name} cannot be copied by tiles of {}×{} ({:?})", tiles.rows, tiles.cols, tiles.swizzle);
            faults.push(Fault { kind: FaultKind::Type, message, source: None });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swizzles_permute_pieces_within_rows_and_part_eight_rows() {
        for swizzle in [Swizzle::B32, Swizzle::B64, Swizzle::B128] {
            let row = swizzle.row_bytes();
            let mut seen = vec![false; 1024];
            for offset in (0..1024).step_by(16) {
                let place = swizzle.place(offset);
                assert_eq!(place / row, offset / row);
                assert!(!std::mem::replace(&mut seen[place as usize], true));
            }
        }
        // The first pieces of eight rows of 128 bytes lie in eight different pieces of a row.
        let pieces: Vec<_> = (0..8).map(|row| Swizzle::B128.place(row * 128) % 128 / 16).collect();
        assert_eq!(pieces, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(Swizzle::B64.place(128), 128 + 16);
        assert_eq!(Swizzle::None.place(0x70), 0x70);
    }

    #[test]
    fn every_sum_lies_in_one_place() {
        let wgmma = Wgmma { ty: Type::BF16, n: 24 };
        let mut seen = vec![0; 64 * 24];
        for thread in 0..128 {
            for register in 0..wgmma.sums() {
                let (row, col) = wgmma.sum(thread, register);
                seen[(row * 24 + col) as usize] += 1;
            }
        }
        assert!(seen.iter().all(|&count| count == 1));
        // From the figures of the PTX ISA.
        assert_eq!(wgmma.sum(37, 3), (16 + 1 + 8, 3));
        assert_eq!(Wgmma::a(37, 3, 1), (16 + 1 + 8, 2 + 8 + 1));
    }
}
