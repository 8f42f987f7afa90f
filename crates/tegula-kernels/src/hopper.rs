//! Warp-specialized, persistent `wgmma` kernels for 16-bit types on Hopper's Tensor Cores.
//!
//! * **Producer and consumers.** One producer thread issues TMA copies of tiles of A and B into the
//!   stages of a pipeline; one to three consumer warpgroups multiply them. After setup the block
//!   has no block-wide barrier: each stage has a *full* and an *empty* mbarrier. The producer's
//!   warpgroup releases registers to the consumers.
//! * **Any storage order.** An operand contiguous along k is read by rows. One contiguous along m
//!   or n is read by lines of 128 bytes that `wgmma` transposes. Operands are never packed for
//!   their order.
//! * **Cooperative or ping-pong.** Each consumer has a part of a tile's rows, or consumers
//!   alternate between whole tiles, so that one multiplies while another stores.
//! * **Overlapped epilogue.** The next tile is copied while this one is stored. Accumulators go
//!   through shared memory in subtiles of 64 rows and up to 64 columns, or 104 where those were
//!   narrow, and TMA stores them.
//! * **Clusters.** Blocks along m share tiles of B by multicast, blocks along n tiles of A. Each
//!   block copies its part of a shared tile to all, or the blocks copy whole tiles, round-robin by
//!   stage: TMA's time is spent on the rows that a block requests. Blocks may also split the
//!   k-steps of one tile; a reduction in distributed shared memory adds their accumulators, and
//!   each block stores a part of the tile.
//! * **Stream-K.** The remaining tiles may be split by k-steps. The block with a tile's first step
//!   waits for the partial sums of the tile's other contributors, in the same launch (`stream_k`).
//! * **Grouped GEMM.** Groups of rows may have their own matrices B, all in one launch (`grouped`).
//!
//! After the kernels of CUTLASS and DeepGEMM for this GPU, and Osama et al. for stream-K; see
//! [`tegula_ir::HopperOp`] for the terms.

mod dsmem_reduction;
mod epilogue_store;
mod grouped;
mod multicast;
mod operand_tiles;
mod ping_pong;
mod pipeline;
mod stream_k;

use std::fmt;

use tegula_core::element::Type;
use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Error, Result};
use tegula_ir::MAX_SHARED_BYTES;
use tegula_ir::prelude::*;

use self::dsmem_reduction::DsmemReduction;
use self::epilogue_store::EpilogueStore;
use self::grouped::{Group, GroupedScheduler};
use self::multicast::Cluster;
use self::operand_tiles::OperandTiles;
use self::ping_pong::PingPongOrder;
pub use self::pipeline::Pipeline;
use self::stream_k::{StreamKScheduler, StreamKWork};
use super::blocked::{Schedule, raster_order};
use super::name_fields::upgrade_legacy_name;
use super::orders::order_letters;
use super::product::{IS_A, Product};

/// Threads of a warpgroup, and its warps.
const WARPGROUP: u32 = Wgmma::THREADS;
const WARPS: u32 = WARPGROUP / 32;
/// Bytes of a row in shared memory: the width of the 128-byte swizzle.
const ROW_BYTES: u32 = 128;
/// The maximum number of accumulators of a thread.
const MAX_ACCUMULATORS: u32 = 128;
/// The same with two ping-pong consumers; their threads then have 240 registers.
const MAX_PING_PONG_ACCUMULATORS: u32 = 176;
/// Accumulators of a thread from which stream-K lacks registers: with two consumers and with three.
const STREAM_K_ACCUMULATORS: [u32; 2] = [120, 64];
/// The maximum columns of an epilogue subtile of three consumers with an epilogue, for lack of
/// registers.
const NARROW_SUBTILE_COLS: u32 = 40;
/// The named barrier of the first consumer; each consumer has its own.
const CONSUMER_BARRIER: u32 = 1;
/// The named barrier of all consumers, after those of each consumer.
const CONSUMERS_BARRIER: u32 = 4;

/// A `wgmma` pipeline kernel and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hopper {
    /// Element type: f16 or bf16.
    pub ty: Type,
    /// Tile, warpgroups, stages and cluster.
    pub pipeline: Pipeline,
    /// Storage orders of A, B and C.
    pub orders: [Order2d; 3],
    /// Whether TMA can store C: its address and strides are multiples of 16 bytes.
    pub tma_store: bool,
    /// How the work is distributed over blocks.
    pub schedule: Schedule,
    /// The epilogue; none for partial sums.
    pub epilogue: Epilogue,
}

impl Hopper {
    /// A kernel for row-major operands whose C is stored by TMA.
    pub const fn new(ty: Type, pipeline: Pipeline) -> Self {
        let (orders, schedule) = ([Order2d::RowMajor; 3], Schedule::DataParallel);
        Hopper { ty, pipeline, orders, tma_store: true, schedule, epilogue: Epilogue::NONE }
    }

    /// Parses a name without type and layouts: `hopper_128x256x64_consumers2_stages4`.
    ///
    /// # Errors
    /// [`Error::KernelOption`] with the syntax of names.
    pub fn named(name: &str, ty: Type) -> Result<Self> {
        let name = upgrade_legacy_name(name).unwrap_or_else(|| name.into());
        Ok(Hopper::new(ty, name.strip_prefix("hopper_").unwrap_or_default().parse()?))
    }

    /// The name without type and layouts, as [`named`](Self::named) parses it.
    pub fn short_name(&self) -> String {
        format!("hopper_{}", self.pipeline)
    }

    /// Whether the pipeline supports [stream-K](Schedule::StreamK): without split-K in the cluster
    /// or ping-pong, and with registers left.
    ///
    /// The largest tiles lack registers with an epilogue, and with an odd number of subtiles, which
    /// requires a variable for the next of the two staging tiles.
    pub fn supports_stream_k(&self) -> bool {
        let accumulators = self.pipeline.accumulators();
        let limit = STREAM_K_ACCUMULATORS[usize::from(self.pipeline.consumers == 3)];
        let has_even_subtiles =
            || self.subtile_cols().is_some_and(|cols| (accumulators / (cols / 2)).is_multiple_of(2));
        self.pipeline.cluster_k == 1
            && !self.pipeline.ping_pong
            && (accumulators < limit || self.epilogue.is_none() && has_even_subtiles())
    }

    /// Columns of an epilogue subtile: the part of a consumer's tile, 64 rows high, that is staged
    /// and stored at once.
    fn subtile_cols(&self) -> Option<u32> {
        let is_register_limited = self.pipeline.consumers == 3 && !self.epilogue.is_none();
        self.pipeline.subtile_cols(if is_register_limited { NARROW_SUBTILE_COLS } else { ROW_BYTES / 2 })
    }

    /// Whether these kernels accept an operand of this order without packing; `is_tma_compatible`:
    /// whether TMA can copy it.
    pub fn accepts(order: Order2d, is_tma_compatible: bool) -> bool {
        is_tma_compatible && order != Order2d::Strided
    }

    /// Checks the configuration without building the kernel. Only the exact size of shared memory
    /// is left to [`build`](Self::build).
    ///
    /// # Errors
    /// [`Error::KernelOption`] for an unsupported type, and for tiles that do not divide or do not
    /// fit.
    pub fn validate(&self) -> Result<()> {
        self.epilogue.check(self.ty)?;
        match self.violated_constraint() {
            Some(constraint) => Err(Error::KernelOption(format!("invalid kernel {self}: {constraint}"))),
            None => Ok(()),
        }
    }

    /// Builds the kernel.
    ///
    /// # Errors
    /// As [`validate`](Self::validate), and where the stages exceed shared memory.
    pub fn build(&self) -> Result<Kernel> {
        self.validate()?;
        let kernel = match self.ty {
            Type::F16 => self.kernel::<f16>(),
            Type::BF16 => self.kernel::<bf16>(),
            ty => return Err(Error::KernelOption(format!("hopper kernels support f16 and bf16, not {ty}"))),
        };
        if kernel.shared_bytes() > MAX_SHARED_BYTES {
            let bytes = kernel.shared_bytes();
            return Err(Error::KernelOption(format!(
                "{self}: needs {bytes} bytes of shared memory; the limit is {MAX_SHARED_BYTES}. Use fewer stages"
            )));
        }
        Ok(kernel)
    }

    /// The first violated constraint on the configuration.
    fn violated_constraint(&self) -> Option<&'static str> {
        let Pipeline { tile: [rows, cols, depth], consumers, ping_pong, stages, cluster, cluster_k, clipped, group_m } =
            self.pipeline;
        let along_k = self.orders[1] == Order2d::ColMajor;
        let bytes = || {
            u64::from(stages) * u64::from((rows + self.pipeline.staged_cols(along_k)) * depth) * self.ty.size() as u64
        };
        let is_contiguous = |order: &Order2d| *order != Order2d::Strided;
        // Names are untrusted input: the first constraints keep the later ones from overflow and
        // from long loops.
        let constraints: [(&dyn Fn() -> bool, &str); 17] = [
            (&|| Wgmma::supports(self.ty), "operands must be f16 or bf16"),
            (&|| (1..=3).contains(&consumers), "consumers must be 1 to 3"),
            (
                &|| !ping_pong || consumers > 1 && cluster_k == 1,
                "ping-pong needs 2 or 3 consumers, and no split-K in the cluster",
            ),
            (&|| matches!(cluster, [1 | 2 | 4, 1 | 2 | 4]), "cluster dimensions must be 1, 2 or 4"),
            (&|| matches!(self.pipeline.cluster_blocks(), 1 | 2 | 4 | 8), "clusters must have 1, 2, 4 or 8 blocks"),
            (
                &|| (64..=256).contains(&rows) && rows.is_multiple_of(64 * self.pipeline.consumers_per_tile()),
                "tile rows must be a multiple of 64 for each consumer, at most 256",
            ),
            (
                &|| (16..=256).contains(&cols) && cols.is_multiple_of(8),
                "tile columns must be a multiple of 8 from 16 to 256",
            ),
            (&|| !clipped || self.pipeline.multicast_blocks() == 1, "clipped copies are not multicast"),
            (&|| depth == 64, "the depth of a k-step must be 64"),
            (&|| stages >= 2 && bytes() <= MAX_SHARED_BYTES, "stages must be at least 2 and fit in shared memory"),
            (&|| (1..=1024).contains(&group_m), "the raster group must have 1 to 1024 tile rows"),
            (
                &|| {
                    let is_wide = ping_pong && consumers == 2;
                    self.pipeline.accumulators() <= if is_wide { MAX_PING_PONG_ACCUMULATORS } else { MAX_ACCUMULATORS }
                },
                "a thread can have at most 128 accumulators, with two ping-pong consumers 176: use smaller tiles \
                 or more consumers",
            ),
            (
                &|| self.subtile_cols().is_some(),
                "split-K in the cluster must divide the tile columns into multiples of 8",
            ),
            (&|| self.orders[..2].iter().all(is_contiguous), "A and B must be row-major or column-major"),
            (
                &|| self.schedule != Schedule::StreamK || self.supports_stream_k(),
                "stream-K needs fewer accumulators per thread, no split-K in the cluster and no ping-pong",
            ),
            (
                &|| self.schedule != Schedule::Grouped || self.pipeline.cluster_blocks() == 1,
                "grouped products need clusters of 1 block",
            ),
            (
                &|| !self.tma_store || is_contiguous(&self.orders[2]) && self.schedule != Schedule::SplitK,
                "TMA stores need a row-major or column-major C without split-K",
            ),
        ];
        constraints.into_iter().find(|(holds, _)| !holds()).map(|(_, constraint)| constraint)
    }

    fn kernel<T: Element<Acc = f32>>(&self) -> Kernel {
        let threads = WARPGROUP * (1 + self.pipeline.consumers);
        kernel(&self.to_string(), Block::d1(threads), |k| body::<T>(k, self))
    }
}

/// The kernel body: barriers, tile scheduler, and the producer and consumer roles.
fn body<T: Element<Acc = f32>>(k: &Builder, variant: &Hopper) {
    let pipeline = variant.pipeline;
    let Pipeline { consumers, stages, .. } = pipeline;
    let blocks = pipeline.cluster_blocks();
    k.min_blocks(1);
    k.cluster(blocks);
    let cluster = Cluster::of(k, &pipeline);
    let a = OperandTiles::<T>::declare(k, variant.orders[0], IS_A, &pipeline, cluster.group(IS_A));
    let b = OperandTiles::<T>::declare(k, variant.orders[1], !IS_A, &pipeline, cluster.group(!IS_A));
    let source_ranks = cluster.source_ranks(b.rotates);
    let ends =
        (variant.schedule == Schedule::Grouped).then(|| k.matrix::<u32>("ends", Access::Read, Order2d::RowMajor, 1));
    let store = EpilogueStore::declare(k, variant, [a.tensor.elements(), b.tensor.elements()]);
    let (full, empty) = (k.mbarriers("full", stages), k.mbarriers("empty", stages));
    let reduction = (pipeline.cluster_k > 1).then(|| DsmemReduction::declare(k, &pipeline));
    let sequence = pipeline.ping_pong.then(|| PingPongOrder::declare(k, &pipeline));
    k.griddep_launch_dependents();
    // Thread i initializes both mbarriers of stage i. `full` expects one arrival, the producer's.
    // `empty` expects one arrival from each warp that multiplies the stage, in each block to which
    // this block copies. If B is copied round-robin by stage, these are the block itself and the
    // others along n; at its own stages of B also the others along m.
    let thread = k.thread_x();
    k.when(thread.lt(stages), || {
        full.init(thread, 1);
        let init_empty = |blocks: u32| empty.init(thread, pipeline.consumers_per_tile() * WARPS * blocks);
        let count = source_ranks.len() as u32;
        match b.rotates {
            true => k.if_else(
                cluster.rotating_producer(thread).eq(cluster.rank()),
                || init_empty(count + pipeline.cluster[0] - 1),
                || init_empty(count),
            ),
            false => init_empty(count),
        }
        k.fence_mbarrier_init();
    });
    if let Some(reduction) = &reduction {
        k.when(thread.lt(consumers), || {
            reduction.init(thread);
            k.fence_mbarrier_init();
        });
    }
    if let Some(sequence) = sequence {
        k.when(thread.lt(consumers), || {
            sequence.init(thread);
            k.fence_mbarrier_init();
        });
    }
    // The first lane of warp 1, while warp 0 initializes the mbarriers.
    k.when(thread.eq(32), || {
        a.tensor.prefetch();
        b.tensor.prefetch();
        if let Some(c) = store.tensor {
            c.prefetch();
        }
    });
    let scheduler = TileScheduler::declare(k, pipeline, &store, ends);
    if blocks > 1 {
        k.cluster_arrive();
    }
    match pipeline.multicast_blocks() {
        1 => k.barrier(),
        // Multicast writes to other blocks' shared memory from the start.
        _ => k.cluster_wait(),
    }
    if scheduler.grouped.is_some() {
        // An earlier launch may write the ends of the groups.
        k.griddep_wait();
    }
    let rotation = b.rotates.then_some(cluster);
    let context = PipelineContext {
        k,
        pipeline,
        a,
        b,
        full,
        empty,
        source_ranks,
        rotation,
        scheduler,
        reduction,
        sequence,
        store,
    };
    let registers = context.registers();
    k.if_else(
        k.warpgroup().eq(0),
        || {
            if let Some([producer, _]) = registers {
                k.setmaxnreg_dec(producer);
            }
            k.when(k.thread_x().eq(0), || context.produce());
            k.sync_warp(FULL_WARP);
            context.wait_for_cluster();
        },
        || {
            if let Some([_, consumer]) = registers {
                k.setmaxnreg_inc(consumer);
            }
            // The mbarriers of all blocks are initialized before the first DSMEM store.
            context.wait_for_cluster();
            context.consume();
        },
    );
    // Blocks without work also wait for earlier launches: a launch that waits for this one relies
    // on it.
    k.griddep_wait();
}

/// The tiles of C, and their assignment to blocks.
struct TileScheduler<'k> {
    k: &'k Builder,
    pipeline: Pipeline,
    /// Cluster tiles along m and along n.
    tiles: [Val<'k, u32>; 2],
    count: Val<'k, u32>,
    /// The first cluster tile of this block, and the distance to the next.
    first_tile: Val<'k, u32>,
    tile_stride: Val<'k, u32>,
    /// k-steps of a tile.
    steps: Val<'k, u32>,
    /// The stream-K scheduler, if any.
    stream_k: Option<StreamKScheduler<'k>>,
    /// The scheduler of a grouped GEMM, if any; it replaces the tiles above.
    grouped: Option<GroupedScheduler<'k>>,
}

impl<'k> TileScheduler<'k> {
    /// Declares the grid: one block per SM, at most one per tile, or the blocks of stream-K.
    fn declare<T: Element>(
        k: &'k Builder,
        pipeline: Pipeline,
        store: &EpilogueStore<'k, T>,
        ends: Option<Global<'k, u32>>,
    ) -> Self {
        let product = &store.product;
        let Pipeline { tile: [rows, cols, depth], .. } = pipeline;
        let (blocks, [cluster_m, cluster_n]) = (pipeline.cluster_blocks(), pipeline.cluster);
        let (m, n, _) = product.extents();
        let tiles = [m.div_ceil(rows * cluster_m), n.div_ceil(cols * cluster_n)];
        let count = tiles[0] * tiles[1] * product.batches();
        let [clusters, sms] = pipeline.resident_clusters();
        let resident = (k.multiprocessors() * clusters / sms).max(1);
        let grouped = ends.map(|ends| GroupedScheduler::declare(k, pipeline, product, ends));
        if grouped.is_none() {
            let clusters = store.workspace.map_or(count.min(resident), |workspace| workspace.blocks() / blocks);
            k.grid([clusters * blocks, k.constant(1), k.constant(1)]);
        }
        let (first_tile, tile_stride) =
            if blocks > 1 { (k.cluster_x(), k.grid_x() / blocks) } else { (k.block_x(), k.grid_x()) };
        let steps = product.depth().div_ceil(depth);
        let stream_k = store
            .workspace
            .map(|workspace| StreamKScheduler::new(k, pipeline, workspace, [first_tile, tile_stride], [count, steps]));
        TileScheduler { k, pipeline, tiles, count, first_tile, tile_stride, steps, stream_k, grouped }
    }

    /// Runs the body for each work tile of this block.
    fn each(&self, body: impl FnOnce(WorkTile<'k>)) {
        match (&self.stream_k, &self.grouped) {
            (Some(stream_k), _) => stream_k.each(|number, work| body(self.work_tile(number, Some(work)))),
            (None, Some(grouped)) => grouped.each(body),
            _ => self
                .k
                .for_step(self.first_tile, self.count, self.tile_stride, |number| body(self.work_tile(number, None))),
        }
    }

    fn work_tile(&self, number: Val<'k, u32>, stream_k: Option<StreamKWork<'k>>) -> WorkTile<'k> {
        let Pipeline { tile: [rows, cols, _], .. } = self.pipeline;
        let tiles = self.tiles[0] * self.tiles[1];
        // At most the tile rows of C, so that group times columns fits in 32 bits.
        let group_m = self.tiles[0].min(self.pipeline.group_m);
        let (tile_m, tile_n) = raster_order(number % tiles, self.tiles, group_m);
        let [tile_m, tile_n] = Cluster::of(self.k, &self.pipeline).tile([tile_m, tile_n]);
        let is_last = (self.count - number).le(self.tile_stride);
        WorkTile { matrix: number / tiles, at: [tile_m * rows, tile_n * cols], is_last, stream_k, group: None }
    }

    /// The block's range of a tile's k-steps: the first, and their number.
    fn block_steps(&self, steps: [Val<'k, u32>; 2], stream_k: Option<StreamKWork<'k>>) -> [Val<'k, u32>; 2] {
        stream_k.map_or_else(|| Cluster::of(self.k, &self.pipeline).steps(steps), |work| work.steps)
    }
}

/// A tile of C that a block computes.
struct WorkTile<'k> {
    /// The matrix of the batch, or of the split-K workspace.
    matrix: Val<'k, u32>,
    /// Its first row and column.
    at: [Val<'k, u32>; 2],
    /// Whether it is the block's last tile. Meaningful only without stream-K and groups: the DSMEM
    /// reduction, which reads it, excludes both.
    is_last: Pred<'k>,
    /// The block's part of the tile under stream-K.
    stream_k: Option<StreamKWork<'k>>,
    /// Its group in a grouped GEMM.
    group: Option<Group<'k>>,
}

/// The state shared by producer and consumers.
struct PipelineContext<'k, T: Element> {
    k: &'k Builder,
    pipeline: Pipeline,
    a: OperandTiles<'k, T>,
    b: OperandTiles<'k, T>,
    /// Mbarriers of each stage: its tiles have arrived, and its tiles have been multiplied.
    full: Mbarriers<'k>,
    empty: Mbarriers<'k>,
    /// The ranks of the blocks that copy to this block at each stage.
    source_ranks: Vec<Val<'k, u32>>,
    /// The cluster, if its blocks copy B round-robin by stage.
    rotation: Option<Cluster<'k>>,
    scheduler: TileScheduler<'k>,
    /// The reduction over blocks that split the k-steps of a tile.
    reduction: Option<DsmemReduction<'k>>,
    /// The sequence of consumers in the ping-pong schedule.
    sequence: Option<PingPongOrder<'k>>,
    store: EpilogueStore<'k, T>,
}

impl<'k, T: Element<Acc = f32>> PipelineContext<'k, T> {
    /// Registers per thread of producer and consumers (`setmaxnreg`), multiples of 8.
    ///
    /// At launch all threads have the same number: 168 (65,536 / 384, rounded down) with two
    /// consumers, 128 with three. Afterwards the sum over warpgroups is the same: 40 + 2·232 =
    /// 24 + 2·240 = 3·168, and 32 + 3·160 = 4·128. A single consumer has enough from the start.
    fn registers(&self) -> Option<[u32; 2]> {
        match self.pipeline.consumers {
            1 => None,
            2 if self.pipeline.accumulators() > MAX_ACCUMULATORS => Some([24, 240]),
            2 => Some([40, 232]),
            _ => Some([32, 160]),
        }
    }

    /// The operands of a work tile, and its range of k-steps: the first, and their number.
    fn tile_operands(&self, matrix: Val<'k, u32>, group: Option<Group<'k>>) -> (Product<'k, T>, [Val<'k, u32>; 2]) {
        match group {
            Some(Group { index, end }) => {
                (self.store.product.group(index, end), [self.k.constant(0), self.scheduler.steps])
            }
            None => self.store.product.split_k_range(matrix, self.scheduler.steps),
        }
    }

    /// Completes the cluster barrier that [`body`] starts, if the DSMEM reduction alone needs it.
    fn wait_for_cluster(&self) {
        if self.reduction.is_some() && self.pipeline.multicast_blocks() == 1 {
            self.k.cluster_wait();
        }
    }

    /// The producer thread: copies k-step after k-step into free stages.
    fn produce(&self) {
        let Pipeline { tile: [_, _, depth], stages, .. } = self.pipeline;
        let bytes = self.a.bytes() + self.b.bytes();
        let state = PipelineState::new(self.k, stages);
        self.scheduler.each(|WorkTile { matrix, at: [row, col], stream_k, group, .. }| {
            let (product, steps) = self.tile_operands(matrix, group);
            let [begin, count] = self.scheduler.block_steps(steps, stream_k);
            let (a, b) = (self.a.batch_of(product.a), self.b.batch_of(product.b));
            self.k.for_each(begin, begin + count, |step| {
                let (stage, parity) = state.get();
                // Stages are empty at first, so the first wait passes.
                self.empty.wait(stage, parity ^ 1);
                // Earlier launches are awaited as late as possible, so that the address of the
                // first tile is computed while they finish. If this wait preceded that for the
                // stage, ptxas would hoist it. For later tiles it does not block.
                self.k.when(step.eq(begin), || self.k.griddep_wait());
                self.full.arrive_expect_tx(stage, bytes);
                a.copy(stage, row, step * depth, (self.full, stage));
                b.copy(stage, col, step * depth, (self.full, stage));
                state.advance();
            });
        });
        if self.pipeline.multicast_blocks() > 1 {
            self.await_releases(&state);
        }
    }

    /// Waits until all blocks have released the last stages that this block copied: they arrive at
    /// its mbarriers, so it must not exit before.
    fn await_releases(&self, state: &PipelineState<'k>) {
        (0..self.pipeline.stages).for_each(|_| {
            let (stage, parity) = state.get();
            self.empty.wait(stage, parity ^ 1);
            state.advance();
        });
    }

    /// A consumer warpgroup: multiplies its rows of each tile (ping-pong: all rows of its own
    /// tiles) and stores them.
    fn consume(&self) {
        let k = self.k;
        let Pipeline { tile: [rows, cols, _], stages, .. } = self.pipeline;
        // The assembler takes a shuffled value for uniform in the warp. So operand descriptors take
        // uniform registers and few instructions, which saves energy.
        let consumer = k.shuffle(Shuffle::Index, k.warpgroup() - 1, 0, FULL_WARP);
        let rows = rows / self.pipeline.consumers_per_tile();
        let first_row = if self.sequence.is_some() { k.constant(0) } else { consumer * rows };
        let wgmma = Wgmma { ty: T::TYPE, n: cols };
        let accumulators = k.array::<f32>(rows / Wgmma::M * wgmma.accumulators());
        let state = PipelineState::new(k, stages);
        self.clear_rest();
        self.scheduler.each(|WorkTile { matrix, at: [row, col], is_last, stream_k, group }| {
            let (product, steps) = self.tile_operands(matrix, group);
            let [_, count] = self.scheduler.block_steps(steps, stream_k);
            let first = row + first_row;
            let store = |part, index| self.store.store(&product, matrix, consumer, [first, col], (part, index));
            let process_tile = || {
                self.accumulate(&state, count, wgmma, (consumer, first_row), accumulators);
                // Earlier launches may still use C, the bias, or the workspace.
                k.griddep_wait();
                match (&self.reduction, &self.scheduler.stream_k, stream_k) {
                    (Some(reduction), ..) => reduction.reduce((consumer, is_last), accumulators, store),
                    (None, Some(scheduler), Some(work)) => {
                        scheduler.fix_up(consumer, work, accumulators, || store(accumulators, 0));
                    }
                    _ => store(accumulators, 0),
                }
            };
            match (self.sequence, group) {
                (Some(sequence), _) => {
                    k.if_else(sequence.owns_tile(consumer), process_tile, || state.advance_by(count));
                    sequence.advance();
                }
                // A consumer whose rows are all past the group's end leaves the Tensor Cores to the
                // other consumers.
                (None, Some(Group { end, .. })) => {
                    k.if_else(first.lt(end), process_tile, || self.skip_stages(&state, count))
                }
                (None, None) => process_tile(),
            }
        });
        self.store.drain();
    }

    /// Zeroes the lines that clipped copies leave out, while the first copies are in flight.
    fn clear_rest(&self) {
        let Pipeline { consumers, stages, clipped, .. } = self.pipeline;
        if !clipped {
            return;
        }
        let (k, threads) = (self.k, consumers * WARPGROUP);
        let thread = k.thread_x() - WARPGROUP;
        self.a.clear_rest(stages, (thread, threads));
        self.b.clear_rest(stages, (thread, threads));
        k.fence_proxy_async();
        k.named_barrier(CONSUMERS_BARRIER, threads);
    }

    /// Accumulates `count` k-steps of the rows from `first` on: the main loop.
    fn accumulate(
        &self,
        state: &PipelineState<'k>,
        count: Val<'k, u32>,
        wgmma: Wgmma,
        (consumer, first): (Val<'k, u32>, Val<'k, u32>),
        accumulators: Array<'k, f32>,
    ) {
        let k = self.k;
        (0..accumulators.len()).for_each(|i| accumulators.at(i).set(0.0));
        let previous = k.var(0u32);
        if let Some(sequence) = self.sequence {
            sequence.begin(consumer);
        }
        k.for_each(0, count, |step| {
            let (stage, parity) = state.get();
            self.full.wait(stage, parity);
            self.multiply(wgmma, stage, first, accumulators);
            // One step is in flight while the next is issued.
            k.wgmma_wait_group(1);
            k.when(step.gt(0), || self.release(previous.get()));
            previous.set(stage);
            state.advance();
        });
        if let Some(sequence) = self.sequence {
            sequence.end(consumer);
        }
        k.wgmma_wait_group(0);
        k.when(count.gt(0), || self.release(previous.get()));
    }

    /// Releases `count` stages without multiplying them.
    fn skip_stages(&self, state: &PipelineState<'k>, count: Val<'k, u32>) {
        self.k.for_each(0, count, |_| {
            let (stage, parity) = state.get();
            self.full.wait(stage, parity);
            // Nothing else converges the lanes: a lane that falls behind would miss a phase.
            self.k.sync_warp(FULL_WARP);
            self.release(stage);
            state.advance();
        });
    }

    /// Issues the `wgmma` of a k-step, of the rows from `first` on.
    fn multiply(&self, wgmma: Wgmma, stage: Val<'k, u32>, first: Val<'k, u32>, accumulators: Array<'k, f32>) {
        let [.., depth] = self.pipeline.tile;
        self.k.wgmma_fence();
        let accumulate = true;
        for p in (0..depth).step_by(Wgmma::K as usize) {
            for i in 0..accumulators.len() / wgmma.accumulators() {
                let a = self.a.wgmma_operand(stage, first + i * Wgmma::M, p);
                let part = accumulators.slice(i * wgmma.accumulators(), wgmma.accumulators());
                self.k.wgmma(wgmma, a, self.b.wgmma_operand(stage, self.k.constant(0), p), part, accumulate);
            }
        }
        self.k.wgmma_commit_group();
    }

    /// Arrives at the empty mbarriers of a stage that the warp has multiplied.
    ///
    /// In a cluster, the warp arrives only at the mbarriers of blocks that copy to its own block at
    /// this stage. If blocks arrived at mbarriers of blocks that do not write to them, a fast
    /// block's next-phase arrival could stand in for a slow block's and complete the phase early.
    fn release(&self, stage: Val<'k, u32>) {
        self.k.when(self.k.is_first_lane(), || {
            match self.source_ranks[..] {
                [_] => self.empty.arrive(stage),
                ref ranks => ranks.iter().for_each(|rank| self.empty.arrive_remote(stage, *rank)),
            }
            if let Some(cluster) = &self.rotation {
                let producer = cluster.rotating_producer(stage);
                self.k.when(producer.ne(cluster.rank()), || self.empty.arrive_remote(stage, producer));
            }
        });
    }
}

/// The current stage of the pipeline, and the parity of its phase.
struct PipelineState<'k> {
    stages: u32,
    stage: Var<'k, u32>,
    parity: Var<'k, u32>,
}

impl<'k> PipelineState<'k> {
    fn new(k: &'k Builder, stages: u32) -> Self {
        PipelineState { stages, stage: k.var(0u32), parity: k.var(0u32) }
    }

    fn get(&self) -> (Val<'k, u32>, Val<'k, u32>) {
        (self.stage.get(), self.parity.get())
    }

    /// Advances by `count` stages.
    fn advance_by(&self, count: Val<'k, u32>) {
        let next = self.stage.get() + count;
        self.stage.set(next % self.stages);
        self.parity.set(self.parity.get() ^ (next / self.stages % 2));
    }

    fn advance(&self) {
        let next = self.stage.get() + 1;
        let wraps = next.eq(self.stages);
        self.stage.set(wraps.select(0u32, next));
        self.parity.set(self.parity.get() ^ wraps.select(1u32, 0u32));
    }
}

impl fmt::Display for Hopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hopper_{}_{}", self.ty, self.pipeline)?;
        f.write_str(&order_letters(self.orders))?;
        // `_e`: C is stored by elements, not by TMA.
        f.write_str(if self.tma_store { "" } else { "_e" })?;
        f.write_str(match self.schedule {
            Schedule::DataParallel => "",
            Schedule::SplitK => "_splitk",
            Schedule::Grouped => "_groups",
            Schedule::StreamK => "_streamk",
        })?;
        f.write_str(&self.epilogue.suffix())
    }
}
