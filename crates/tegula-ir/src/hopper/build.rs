//! Builder methods for Hopper operations: TMA, mbarriers, warpgroups and clusters.

use std::marker::PhantomData;

use tegula_core::diagnostic::FaultKind;
use tegula_core::element::Scalar;

use super::{HopperOp, LeftOperand, SharedOperand, Swizzle, Tiles, Wgmma};
use crate::ops::*;
use crate::recorder::Builder;
use crate::types::{Array, Brand, Coord, Elements, Global, IntoVal, Pred, Shared, Val, constant};

impl Kernel {
    /// Whether the kernel may start before the preceding launches complete, and waits for them
    /// itself.
    pub fn uses_griddep_wait(&self) -> bool {
        self.griddep_wait
    }

    /// The same kernel with `griddepcontrol.launch_dependents` as its first operation.
    #[must_use]
    pub fn with_griddep_launch_dependents(mut self) -> Self {
        if let Some(first) = self.body.first() {
            let first =
                Inst { op: Op::Hopper(HopperOp::GriddepLaunchDependents), results: Vec::new(), site: first.site };
            self.body.insert(0, first);
        }
        self
    }
}

/// A matrix that TMA copies in tiles.
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

    /// The matrix of the batch that another handle refers to.
    #[must_use]
    pub fn batch_of<U>(self, other: Global<'k, U>) -> Self {
        Tensor { batch: other.batch, ..self }
    }

    /// The same matrix for ordinary accesses.
    pub fn elements(self) -> Global<'k, T> {
        Global { k: self.k, param: self.param, batch: self.batch, brand: PhantomData }
    }

    /// One matrix of the batch, to which the coordinates (row, col) refer.
    #[must_use]
    pub fn batch(self, batch: impl IntoVal<'k, u32>) -> Self {
        Tensor { batch: batch.operand(), ..self }
    }

    /// Prefetches the tensor map; see [`HopperOp::PrefetchTensorMap`].
    #[track_caller]
    pub fn prefetch(self) {
        self.k.hopper(HopperOp::PrefetchTensorMap { matrix: self.param });
    }

    #[track_caller]
    fn at(self, at: impl Coord<'k>) -> [Operand; 3] {
        match at.operands()[..] {
            [row, col] => [self.batch, row, col],
            [batch, row, col] => [batch, row, col],
            _ => {
                self.k.fault(FaultKind::Type, "a matrix takes the coordinates (row, col) or (batch, row, col)".into());
                [constant(0u32); 3]
            }
        }
    }
}

/// An array of mbarriers in shared memory.
#[derive(Clone, Copy)]
pub struct Mbarriers<'k>(Shared<'k, u64>);

impl<'k> Mbarriers<'k> {
    #[track_caller]
    fn at(self, index: impl IntoVal<'k, u32>) -> MemoryRef {
        self.0.k.shared_memory_ref(self.0.id, &[index.operand()])
    }

    #[track_caller]
    fn op(self, op: HopperOp) {
        self.0.k.hopper(op);
    }

    /// Initializes an mbarrier that expects `arrivals` arrivals in each phase.
    ///
    /// One thread calls it. [`Builder::fence_mbarrier_init`] and a barrier of the block (in a
    /// cluster, of the cluster) must precede any other use.
    #[track_caller]
    pub fn init(self, index: impl IntoVal<'k, u32>, arrivals: u32) {
        self.op(HopperOp::MbarrierInit { barrier: self.at(index), arrivals });
    }

    /// Arrives.
    #[track_caller]
    pub fn arrive(self, index: impl IntoVal<'k, u32>) {
        self.op(HopperOp::MbarrierArrive { barrier: self.at(index), block: None, expect: None });
    }

    /// Arrives at the mbarrier of another block of the cluster.
    #[track_caller]
    pub fn arrive_remote(self, index: impl IntoVal<'k, u32>, block: impl IntoVal<'k, u32>) {
        self.op(HopperOp::MbarrierArrive { barrier: self.at(index), block: Some(block.operand()), expect: None });
    }

    /// Arrives, and adds `bytes` to the bytes that the phase expects.
    #[track_caller]
    pub fn arrive_expect_tx(self, index: impl IntoVal<'k, u32>, bytes: impl IntoVal<'k, u32>) {
        self.op(HopperOp::MbarrierArrive { barrier: self.at(index), block: None, expect: Some(bytes.operand()) });
    }

    /// Waits for the end of the phase of the given parity.
    #[track_caller]
    pub fn wait(self, index: impl IntoVal<'k, u32>, parity: impl IntoVal<'k, u32>) {
        self.op(HopperOp::MbarrierWait { barrier: self.at(index), parity: parity.operand() });
    }
}

impl<'k, T: Scalar> Shared<'k, T> {
    /// Starts a TMA load of the matrix tile at `at` into tile `index` of this array.
    ///
    /// On completion, its bytes count at the mbarrier.
    #[track_caller]
    pub fn tma_load(
        self,
        index: impl IntoVal<'k, u32>,
        from: Tensor<'k, T>,
        at: impl Coord<'k>,
        (barriers, barrier): (Mbarriers<'k>, Val<'k, u32>),
    ) {
        self.tma_load_multicast((index, 0u32), from, at, (barriers, barrier), None);
    }

    /// [`Self::tma_load`] into tile `index` from `row` on, in all blocks of the mask `blocks`.
    #[track_caller]
    pub fn tma_load_multicast(
        self,
        (index, row): (impl IntoVal<'k, u32>, impl IntoVal<'k, u32>),
        from: Tensor<'k, T>,
        at: impl Coord<'k>,
        (barriers, barrier): (Mbarriers<'k>, Val<'k, u32>),
        blocks: Option<Val<'k, u32>>,
    ) {
        let (to, barrier, blocks) = (self.tile(index, row), barriers.at(barrier), blocks.map(|blocks| blocks.operand));
        self.k.hopper(HopperOp::TmaLoad { matrix: from.param, at: from.at(at), to, barrier, blocks });
    }

    /// Stores 1, 2 or 4 contiguous values to this array of a block of the cluster.
    ///
    /// On completion, the bytes count at its mbarrier. See [`HopperOp::StoreAsync`].
    #[track_caller]
    pub fn store_async<const N: usize>(
        self,
        at: impl Coord<'k>,
        values: [Val<'k, T>; N],
        block: impl IntoVal<'k, u32>,
        (barriers, barrier): (Mbarriers<'k>, Val<'k, u32>),
    ) {
        let values = values.map(|value| value.operand).to_vec();
        let (to, barrier) = (self.memory_ref(at), barriers.at(barrier));
        self.k.hopper(HopperOp::StoreAsync { to, values, block: block.operand(), barrier });
    }

    /// Starts a TMA store of tile `index` of this array to the matrix tile at `at`.
    ///
    /// Along the contiguous lines of the matrix, the tile must start at a multiple of 16 bytes. PTX
    /// does not document this; an H200 raises an illegal instruction. (Loads can start anywhere.)
    #[track_caller]
    pub fn tma_store(self, index: impl IntoVal<'k, u32>, to: Tensor<'k, T>, at: impl Coord<'k>) {
        self.k.hopper(HopperOp::TmaStore { matrix: to.param, at: to.at(at), from: self.tile(index, 0u32) });
    }

    /// An operand of [`Builder::wgmma`] that starts at this element, K-major or MN-major.
    #[track_caller]
    pub fn wgmma_operand(self, at: impl Coord<'k>, k_major: bool) -> SharedOperand {
        SharedOperand { at: self.memory_ref(at), k_major }
    }

    /// Stores `N` matrices (1, 2 or 4) of 8 rows of 16 bytes.
    ///
    /// The values have the layout of [`Mma`](crate::Mma) accumulators; `at` is the start of the
    /// lane's row. See [`HopperOp::StoreMatrix`].
    #[track_caller]
    pub fn store_matrix<const N: usize>(self, at: impl Coord<'k>, values: [Val<'k, u32>; N], transposed: bool) {
        let values = values.map(|value| value.operand).to_vec();
        self.k.hopper(HopperOp::StoreMatrix { to: self.memory_ref(at), values, transposed });
    }

    #[track_caller]
    fn tile(self, index: impl IntoVal<'k, u32>, row: impl IntoVal<'k, u32>) -> MemoryRef {
        self.k.shared_memory_ref(self.id, &[index.operand(), row.operand(), constant(0u32)])
    }
}

impl<'k> From<[Val<'k, u32>; 4]> for LeftOperand {
    fn from(registers: [Val<'k, u32>; 4]) -> Self {
        LeftOperand::Registers(registers.map(|value| value.operand).to_vec())
    }
}

/// Hopper operations.
impl Builder {
    #[track_caller]
    fn hopper(&self, op: HopperOp) {
        self.effect(Op::Hopper(op));
    }

    /// A matrix that TMA copies in tiles. Its base and strides are multiples of 16 bytes.
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

    /// An array of `count` tiles in shared memory, each of `rows` rows of `row` elements: three
    /// axes.
    #[track_caller]
    pub fn tiles<T: Scalar>(&self, name: &str, count: u32, [rows, row]: [u32; 2], swizzle: Swizzle) -> Shared<'_, T> {
        self.shared_array(name, &[count, rows, row], swizzle.alignment(), ArrayContents::Tiles(swizzle))
    }

    /// An array in shared memory for stores of other blocks of the cluster: two or three axes.
    ///
    /// See [`Shared::store_async`].
    #[track_caller]
    pub fn dsmem_buffer<T: Scalar>(&self, name: &str, dims: impl AsRef<[u32]>) -> Shared<'_, T> {
        self.shared_array(name, dims.as_ref(), 16, ArrayContents::DsmemBuffer)
    }

    /// An array of `count` mbarriers in shared memory.
    #[track_caller]
    pub fn mbarriers(&self, name: &str, count: u32) -> Mbarriers<'_> {
        Mbarriers(self.shared_array(name, &[count], 8, ArrayContents::Mbarriers))
    }

    /// Sets the cluster size along x. The grid's x must be a multiple of it.
    pub fn cluster(&self, blocks: u32) {
        self.set_cluster(blocks);
    }

    /// See [`HopperOp::FenceMbarrierInit`].
    #[track_caller]
    pub fn fence_mbarrier_init(&self) {
        self.hopper(HopperOp::FenceMbarrierInit);
    }

    /// A proxy fence for the thread's accesses to shared memory; see [`HopperOp::FenceProxyAsync`].
    #[track_caller]
    pub fn fence_proxy_async(&self) {
        self.hopper(HopperOp::FenceProxyAsync { global: false });
    }

    /// A proxy fence for the thread's accesses to matrices; see [`HopperOp::FenceProxyAsync`].
    #[track_caller]
    pub fn fence_proxy_async_global(&self) {
        self.hopper(HopperOp::FenceProxyAsync { global: true });
    }

    /// Commits the thread's pending TMA stores as one group.
    #[track_caller]
    pub fn bulk_commit_group(&self) {
        self.hopper(HopperOp::BulkCommitGroup);
    }

    /// Waits until at most `pending` of the thread's latest store groups still read shared memory.
    #[track_caller]
    pub fn bulk_wait_group_read(&self, pending: u32) {
        self.hopper(HopperOp::BulkWaitGroup { pending, read: true });
    }

    /// Waits until at most `pending` of the thread's latest store groups are incomplete.
    #[track_caller]
    pub fn bulk_wait_group(&self, pending: u32) {
        self.hopper(HopperOp::BulkWaitGroup { pending, read: false });
    }

    /// Starts accumulators = A·B, or accumulators += A·B where `accumulate` is true, by the
    /// warpgroup.
    ///
    /// [`Self::wgmma_commit_group`] forms groups.
    #[track_caller]
    pub fn wgmma<'k>(
        &'k self,
        wgmma: Wgmma,
        a: impl Into<LeftOperand>,
        b: SharedOperand,
        accumulators: Array<'k, f32>,
        accumulate: impl IntoVal<'k, bool>,
    ) {
        if accumulators.len() != wgmma.accumulators() {
            self.fault(
                FaultKind::Type,
                format!("{wgmma} needs {} accumulators, not {}", wgmma.accumulators(), accumulators.len()),
            );
            return;
        }
        self.hopper(HopperOp::Wgmma {
            wgmma,
            a: a.into(),
            b,
            accumulators: accumulators.first,
            accumulate: accumulate.operand(),
        });
    }

    /// See [`HopperOp::WgmmaFence`].
    #[track_caller]
    pub fn wgmma_fence(&self) {
        self.hopper(HopperOp::WgmmaFence);
    }

    /// Commits the warpgroup's pending multiplications as one group.
    #[track_caller]
    pub fn wgmma_commit_group(&self) {
        self.hopper(HopperOp::WgmmaCommitGroup);
    }

    /// Waits until at most `pending` of the latest groups of multiplications are incomplete.
    #[track_caller]
    pub fn wgmma_wait_group(&self, pending: u32) {
        self.hopper(HopperOp::WgmmaWaitGroup { pending });
    }

    /// Decreases the warpgroup's registers to `count` per thread (`setmaxnreg.dec`).
    ///
    /// The kernel must also set [`Builder::min_blocks`]; otherwise it has no effect.
    #[track_caller]
    pub fn setmaxnreg_dec(&self, count: u32) {
        self.hopper(HopperOp::SetMaxRegisters { count, increase: false });
    }

    /// Increases the warpgroup's registers to `count` per thread (`setmaxnreg.inc`).
    #[track_caller]
    pub fn setmaxnreg_inc(&self, count: u32) {
        self.hopper(HopperOp::SetMaxRegisters { count, increase: true });
    }

    /// Arrives at the cluster barrier without waiting.
    #[track_caller]
    pub fn cluster_arrive(&self) {
        self.hopper(HopperOp::ClusterArrive);
    }

    /// Waits at the cluster barrier, at which the thread has arrived.
    #[track_caller]
    pub fn cluster_wait(&self) {
        self.hopper(HopperOp::ClusterWait);
    }

    /// See [`HopperOp::GriddepWait`].
    #[track_caller]
    pub fn griddep_wait(&self) {
        self.set_griddep_wait();
        self.hopper(HopperOp::GriddepWait);
    }

    /// See [`HopperOp::GriddepLaunchDependents`].
    #[track_caller]
    pub fn griddep_launch_dependents(&self) {
        self.hopper(HopperOp::GriddepLaunchDependents);
    }

    /// Whether the lane is lane 0, for operations that one thread executes for its warp.
    #[track_caller]
    pub fn is_first_lane(&self) -> Pred<'_> {
        self.lane().eq(0)
    }
}
