//! The part of the builder that writes Hopper's operations: tiles, barriers, warpgroups and clusters.

use std::marker::PhantomData;

use tegula_core::diagnostic::FaultKind;
use tegula_core::element::Scalar;

use super::{Factor, Hopper, LeftFactor, Swizzle, Tiles, Wgmma};
use crate::ops::*;
use crate::recorder::Builder;
use crate::types::{Array, Brand, Coord, Elements, Global, IntoVal, Pred, Shared, Val, constant};

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

    /// Writes `N` matrices (1, 2 or 4) of 8 rows of 16 bytes, spread over the warp as [`Mma`](crate::Mma) has its sums; `at` is where the lane's row
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
