//! 16-bit numbers on Hopper's matrix units: some warps have tiles copied, others multiply them, and blocks go on from tile to tile of C.
//!
//! * **Producer and consumers.** One thread asks the copy engine for tiles of A and B, a stage at a time, as soon as a stage is free; one to three
//!   warpgroups multiply what has come. After the start the block does not meet any more: stages are handed over by two barriers each, *full* and
//!   *empty*. The producer's warps give their registers to the consumers.
//! * **Tiles as they lie.** What lies along k is read by rows, what lies along rows or columns by lines of 128 bytes that the instruction transposes:
//!   no factor is packed for its order.
//! * **Cooperative or ping-pong.** Consumers have a part of a tile's rows each, or a tile each, in turns: then one multiplies while another stores.
//! * **The next tile comes while this one is stored.** Sums go through shared memory, 64 rows and up to 64 columns at a time, from where the copy engine stores them.
//! * **Clusters**: blocks whose tiles are below each other share B, those beside each other A. Each copies its part of what it shares, to all that do,
//!   or all of it in its turn: what takes the copy engine's time are the rows that a block asks for. Or blocks share the steps along k of one tile, whose
//!   sums meet in shared memory: each block finishes a part of them. Or both.
//! * **Tiles left over** may be shared evenly, step by step: who has a tile's first step waits for the sums of the others, in the same launch (`balance`).
//! * **Groups** of rows may have matrices B of their own, all in one launch: `groups` says which tiles fall to a block.
//!
//! After the kernels of CUTLASS and of DeepGEMM for this GPU, and Osama et al. for how work is shared; see [`tegula_ir::Hopper`] for the terms.

mod balance;
mod exchange;
mod groups;
mod pipeline;
mod sharing;
mod side;
mod store;
mod turns;

use std::fmt;

use tegula_core::element::Type;
use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Error, Result};
use tegula_ir::MAX_SHARED_BYTES;
use tegula_ir::prelude::*;

use self::balance::{Balance, Portion};
use self::exchange::Exchange;
use self::groups::{Group, Groups};
pub use self::pipeline::Pipeline;
use self::sharing::Cluster;
use self::side::Side;
use self::store::Store;
use self::turns::Turns;
use super::blocked::{Schedule, grouped};
use super::orders::order_letters;
use super::product::Product;

/// Threads of a warpgroup, and its warps.
const GROUP: u32 = Wgmma::THREADS;
const WARPS: u32 = GROUP / 32;
/// Bytes of a row in shared memory.
const ROW: u32 = 128;
/// Sums of a thread at most.
const MOST_SUMS: u32 = 128;
/// So many leave hardly a register, to two consumers and to three.
const LARGE_SUMS: [u32; 2] = [120, 64];
/// Columns of C that three consumers store at a time, at most, where much happens to sums on their way: for more they have no registers.
const COLS_OF_THREE: u32 = 40;
/// The first named barrier of consumers; each has its own.
const MEETING: u32 = 1;

/// A kernel on Hopper's matrix units, and everything that shapes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hopper {
    /// Element type: f16 or bf16.
    pub ty: Type,
    /// What a block does.
    pub pipeline: Pipeline,
    /// Along what A, B and C lie: rows or columns.
    pub orders: [Order2d; 3],
    /// Whether the copy engine can store C: its address and strides are multiples of 16 bytes.
    pub stores_tiles: bool,
    /// How the work is shared out to blocks.
    pub schedule: Schedule,
    /// What happens to sums on their way to C; nothing to parts of them.
    pub epilogue: Epilogue,
}

impl Hopper {
    /// With row-major factors, and a C that the copy engine stores.
    pub const fn new(ty: Type, pipeline: Pipeline) -> Self {
        let (orders, schedule) = ([Order2d::RowMajor; 3], Schedule::Tiles);
        Hopper { ty, pipeline, orders, stores_tiles: true, schedule, epilogue: Epilogue::NONE }
    }

    /// The kernel of a name without type and layouts: `hopper_128x256x64_2_4_1`.
    ///
    /// # Errors
    /// [`Error::KernelOption`] that says what a name looks like.
    pub fn named(name: &str, ty: Type) -> Result<Self> {
        Ok(Hopper::new(ty, name.strip_prefix("hopper_").unwrap_or_default().parse()?))
    }

    /// The name without type and layouts, as [`named`](Self::named) takes it.
    pub fn short_name(&self) -> String {
        format!("hopper_{}", self.pipeline)
    }

    /// Whether blocks may [share tiles evenly](Schedule::Balanced): they do not share k already, consumers do not take turns, and registers are left. The largest tiles have none beside
    /// an epilogue, nor where they are stored in rounds of an odd number, so that which of two tiles in shared memory is next has to be kept.
    pub fn shares_tiles(&self) -> bool {
        let (sums, large) = (self.pipeline.sums(), LARGE_SUMS[usize::from(self.pipeline.consumers == 3)]);
        let in_turns = || self.store_cols().is_some_and(|cols| (sums / (cols / 2)).is_multiple_of(2));
        self.pipeline.split == 1 && !self.pipeline.ping_pong && (sums < large || self.epilogue.is_none() && in_turns())
    }

    /// Columns of C that are stored at a time.
    fn store_cols(&self) -> Option<u32> {
        let is_tight = self.pipeline.consumers == 3 && !self.epilogue.is_none();
        self.pipeline.store_cols(if is_tight { COLS_OF_THREE } else { ROW / 2 })
    }

    /// Whether such kernels take a factor that lies so, or only a packed one.
    pub fn takes(order: Order2d, tiles: bool) -> bool {
        tiles && order != Order2d::Strided
    }

    /// Checks the parameters against each other, without building the kernel; only the exact size of shared memory is left
    /// to [`build`](Self::build).
    ///
    /// # Errors
    /// [`Error::KernelOption`] for a type without such kernels, or tiles that do not divide or do not fit.
    pub fn validate(&self) -> Result<()> {
        self.epilogue.check(self.ty)?;
        match self.lacks() {
            Some(needed) => Err(Error::KernelOption(format!("{self} cannot be: a pipeline has {needed}"))),
            None => Ok(()),
        }
    }

    /// Builds the kernel.
    ///
    /// # Errors
    /// As [`validate`](Self::validate) says, and where shared memory does not suffice.
    pub fn build(&self) -> Result<Kernel> {
        self.validate()?;
        let kernel = match self.ty {
            Type::F16 => self.kernel::<f16>(),
            Type::BF16 => self.kernel::<bf16>(),
            ty => return Err(Error::KernelOption(format!("hopper multiplies f16 and bf16, not {ty}"))),
        };
        if kernel.shared_bytes() > MAX_SHARED_BYTES {
            return Err(Error::KernelOption(format!("{self} takes {} bytes of shared memory", kernel.shared_bytes())));
        }
        Ok(kernel)
    }

    /// What a pipeline has and this one would not.
    fn lacks(&self) -> Option<&'static str> {
        let Pipeline { tile: [rows, cols, depth], consumers, ping_pong, stages, cluster, split, group } = self.pipeline;
        let along_k = self.orders[1] == Order2d::ColMajor;
        let bytes = || {
            u64::from(stages) * u64::from((rows + self.pipeline.staged_cols(along_k)) * depth) * self.ty.size() as u64
        };
        let is_whole = |order: &Order2d| *order != Order2d::Strided;
        // Names may come from outside: the first of these keep those behind them from overflow, and from taking forever.
        let needed: [(&dyn Fn() -> bool, &str); 16] = [
            (&|| Wgmma::multiplies(self.ty), "factors of f16 or bf16"),
            (&|| (1..=3).contains(&consumers), "one to three consumers"),
            (
                &|| !ping_pong || consumers > 1 && split == 1,
                "two or three consumers if they take turns, and no blocks that share k",
            ),
            (&|| matches!(cluster, [1 | 2 | 4, 1 | 2 | 4]), "one, two or four blocks that share a factor"),
            (&|| matches!(self.pipeline.blocks(), 1 | 2 | 4 | 8), "clusters of one, two, four or eight blocks"),
            (
                &|| (64..=256).contains(&rows) && rows.is_multiple_of(64 * self.pipeline.together()),
                "64 rows for each consumer, or a multiple, up to 256",
            ),
            (&|| (16..=256).contains(&cols) && cols.is_multiple_of(8), "16 to 256 columns in multiples of 8"),
            (&|| depth == 64, "steps of 64"),
            (&|| stages >= 2 && bytes() <= MAX_SHARED_BYTES, "two stages or more, which fit in shared memory"),
            (&|| (1..=1024).contains(&group), "1 to 1024 rows of tiles that are made together"),
            (&|| self.pipeline.sums() <= MOST_SUMS, "no more sums than a thread has registers for"),
            (&|| self.store_cols().is_some(), "as many columns, in multiples of 8, for each block that shares k"),
            (&|| self.orders[..2].iter().all(is_whole), "factors that lie along rows or columns"),
            (
                &|| self.schedule != Schedule::Balanced || self.shares_tiles(),
                "fewer sums a thread, no blocks that share k and no consumers that take turns, if tiles are to be shared evenly",
            ),
            (
                &|| self.schedule != Schedule::Groups || self.pipeline.blocks() == 1,
                "no cluster if rows of A come in groups",
            ),
            (
                &|| !self.stores_tiles || is_whole(&self.orders[2]) && self.schedule != Schedule::Parts,
                "a whole C that lies along rows or columns if it is stored by tiles",
            ),
        ];
        needed.into_iter().find(|(holds, _)| !holds()).map(|(_, needed)| needed)
    }

    fn kernel<T: Element<Acc = f32>>(&self) -> Kernel {
        let threads = GROUP * (1 + self.pipeline.consumers);
        kernel(&self.to_string(), Block::d1(threads), |k| body::<T>(k, self))
    }
}

/// The kernel: who meets, what there is to do, and the two jobs.
fn body<T: Element<Acc = f32>>(k: &Builder, variant: &Hopper) {
    let pipeline = variant.pipeline;
    let Pipeline { tile: [rows, cols, depth], consumers, stages, .. } = pipeline;
    let blocks = pipeline.blocks();
    k.min_blocks(1);
    k.cluster(blocks);
    let sharing = Cluster::of(k, &pipeline);
    let a = Side::<T>::declare(k, variant.orders[0], true, [rows, depth], stages, sharing.sharers(true));
    let b = Side::<T>::declare(k, variant.orders[1], false, [cols, depth], stages, sharing.sharers(false));
    let neighbours = sharing.neighbours(b.in_turns);
    let ends =
        (variant.schedule == Schedule::Groups).then(|| k.matrix::<u32>("ends", Access::Read, Order2d::RowMajor, 1));
    let store = Store::declare(k, variant, [a.tensor.elements(), b.tensor.elements()]);
    let (full, empty) = (k.barriers("full", stages), k.barriers("empty", stages));
    let exchange = (pipeline.split > 1).then(|| Exchange::declare(k, &pipeline));
    let turns = pipeline.ping_pong.then(|| Turns::declare(k, &pipeline));
    k.allow_next();
    // A thread for each barrier.
    let thread = k.thread_x();
    k.when(thread.lt(stages), || {
        full.init(thread, 1);
        let arrive = |blocks: u32| empty.init(thread, pipeline.together() * WARPS * blocks);
        let always = neighbours.len() as u32;
        match b.in_turns {
            true => k.if_else(
                sharing.in_turn(thread).eq(sharing.own()),
                || arrive(always + pipeline.cluster[0] - 1),
                || arrive(always),
            ),
            false => arrive(always),
        }
        k.fence_init();
    });
    if let Some(exchange) = &exchange {
        k.when(thread.lt(consumers), || {
            exchange.init(thread);
            k.fence_init();
        });
    }
    if let Some(turns) = turns {
        k.when(thread.lt(consumers), || {
            turns.init(thread);
            k.fence_init();
        });
    }
    k.when(thread.eq(32), || {
        a.tensor.prefetch();
        b.tensor.prefetch();
        if let Some(c) = store.tensor {
            c.prefetch();
        }
    });
    let jobs = Jobs::declare(k, pipeline, &store, ends);
    if blocks > 1 {
        k.cluster_arrive();
    }
    match pipeline.sharing() {
        1 => k.barrier(),
        // Blocks that share a factor write to each other from the start.
        _ => k.cluster_wait(),
    }
    if jobs.groups.is_some() {
        // A launch before this one may write where groups end.
        k.await_launches();
    }
    let in_turn = b.in_turns.then_some(sharing);
    let work = Work { k, pipeline, a, b, full, empty, neighbours, in_turn, jobs, exchange, turns, store };
    let registers = work.registers();
    k.if_else(
        k.warpgroup().eq(0),
        || {
            if let Some([few, _]) = registers {
                k.give_registers(few);
            }
            k.when(k.thread_x().eq(0), || work.produce());
            k.sync_warp(FULL_WARP);
            work.meet_those_that_share_k();
        },
        || {
            if let Some([_, many]) = registers {
                k.take_registers(many);
            }
            // Their barriers are there before the first sums are sent.
            work.meet_those_that_share_k();
            work.consume();
        },
    );
    // Blocks without work end after the launches before as well: whoever waits for this launch counts on that.
    k.await_launches();
    if pipeline.sharing() > 1 {
        // Another block may still write to this one's memory.
        k.cluster_arrive();
        k.cluster_wait();
    }
}

/// The tiles of C, and which of them fall to a block.
struct Jobs<'k> {
    k: &'k Builder,
    pipeline: Pipeline,
    /// Tiles (of a cluster) along m and along n.
    tiles: [Val<'k, u32>; 2],
    count: Val<'k, u32>,
    /// The first of this block, and how far on the next is.
    first: Val<'k, u32>,
    workers: Val<'k, u32>,
    /// Steps along k.
    steps: Val<'k, u32>,
    /// Where tiles are shared evenly.
    balance: Option<Balance<'k>>,
    /// Where rows of A come in groups: then these say what there is to do.
    groups: Option<Groups<'k>>,
}

impl<'k> Jobs<'k> {
    /// Says how many blocks there are: one on each multiprocessor, if there are so many tiles, or as many as share them.
    fn declare<T: Element>(
        k: &'k Builder,
        pipeline: Pipeline,
        store: &Store<'k, T>,
        ends: Option<Global<'k, u32>>,
    ) -> Self {
        let product = &store.product;
        let Pipeline { tile: [rows, cols, depth], .. } = pipeline;
        let (blocks, [down, across]) = (pipeline.blocks(), pipeline.cluster);
        let (m, n, _) = product.extents();
        let tiles = [m.div_ceil(rows * down), n.div_ceil(cols * across)];
        let count = tiles[0] * tiles[1] * product.batches();
        let [clusters, of] = pipeline.at_a_time();
        let most = (k.multiprocessors() * clusters / of).max(1);
        let groups = ends.map(|ends| Groups::declare(k, pipeline, product, ends));
        if groups.is_none() {
            let clusters = store.parts.map_or(count.min(most), |parts| parts.blocks() / blocks);
            k.grid([clusters * blocks, k.constant(1), k.constant(1)]);
        }
        let (first, workers) =
            if blocks > 1 { (k.cluster_x(), k.grid_x() / blocks) } else { (k.block_x(), k.grid_x()) };
        let steps = product.depth().div_ceil(depth);
        let balance = store.parts.map(|parts| Balance::new(k, pipeline, parts, [first, workers], [count, steps]));
        Jobs { k, pipeline, tiles, count, first, workers, steps, balance, groups }
    }

    /// The body for each job.
    fn each(&self, body: impl FnOnce(Job<'k>)) {
        match (&self.balance, &self.groups) {
            (Some(balance), _) => balance.each(|number, portion| body(self.job(number, Some(portion)))),
            (None, Some(groups)) => groups.each(body),
            _ => self.k.for_step(self.first, self.count, self.workers, |number| body(self.job(number, None))),
        }
    }

    fn job(&self, number: Val<'k, u32>, portion: Option<Portion<'k>>) -> Job<'k> {
        let Pipeline { tile: [rows, cols, _], .. } = self.pipeline;
        let tiles = self.tiles[0] * self.tiles[1];
        // Never more than there are, so that the rows of a group times the columns fit.
        let group = self.tiles[0].min(self.pipeline.group);
        let (tile_m, tile_n) = grouped(number % tiles, self.tiles, group);
        let [tile_m, tile_n] = Cluster::of(self.k, &self.pipeline).tile([tile_m, tile_n]);
        let is_last = (self.count - number).le(self.workers);
        Job { matrix: number / tiles, at: [tile_m * rows, tile_n * cols], is_last, portion, group: None }
    }

    /// The block's part of the steps of a tile: the first, and how many.
    fn part(&self, steps: [Val<'k, u32>; 2], portion: Option<Portion<'k>>) -> [Val<'k, u32>; 2] {
        portion.map_or_else(|| Cluster::of(self.k, &self.pipeline).steps(steps), |portion| portion.steps)
    }
}

/// A tile of C.
struct Job<'k> {
    /// Of the batch, or of its parts.
    matrix: Val<'k, u32>,
    /// The row and column where it begins.
    at: [Val<'k, u32>; 2],
    /// Whether it is the block's last.
    is_last: Pred<'k>,
    /// What the block makes of it, where tiles are shared evenly.
    portion: Option<Portion<'k>>,
    /// The group of rows that it belongs to, if there are groups.
    group: Option<Group<'k>>,
}

/// What producer and consumers share.
struct Work<'k, T: Element> {
    k: &'k Builder,
    pipeline: Pipeline,
    a: Side<'k, T>,
    b: Side<'k, T>,
    /// Of each stage: whether it has come, and whether it has been multiplied.
    full: Barriers<'k>,
    empty: Barriers<'k>,
    /// The blocks of the cluster that copy to this one at each stage.
    neighbours: Vec<Val<'k, u32>>,
    /// Where blocks copy B in turns.
    in_turn: Option<Cluster<'k>>,
    jobs: Jobs<'k>,
    /// Where blocks share the steps of a tile.
    exchange: Option<Exchange<'k>>,
    /// Where consumers take turns.
    turns: Option<Turns<'k>>,
    store: Store<'k, T>,
}

impl<'k, T: Element<Acc = f32>> Work<'k, T> {
    /// Registers of a thread that has tiles copied, and of one that multiplies; one warpgroup that multiplies has as many as there are from the start.
    fn registers(&self) -> Option<[u32; 2]> {
        match self.pipeline.consumers {
            1 => None,
            2 => Some([40, 232]),
            // Three: there are no more.
            _ => Some([32, 160]),
        }
    }

    /// The parameters for a job, and its steps along k: the first, and how many.
    fn share(&self, matrix: Val<'k, u32>, group: Option<Group<'k>>) -> (Product<'k, T>, [Val<'k, u32>; 2]) {
        match group {
            Some(Group { number, end }) => {
                (self.store.product.group(number, end), [self.k.constant(0), self.jobs.steps])
            }
            None => self.store.product.share(matrix, self.jobs.steps),
        }
    }

    /// The end of what [`body`] begins with a cluster whose blocks share k, if they have not met before.
    fn meet_those_that_share_k(&self) {
        if self.exchange.is_some() && self.pipeline.sharing() == 1 {
            self.k.cluster_wait();
        }
    }

    /// One thread's job: has stage after stage copied, as they become free.
    fn produce(&self) {
        let Pipeline { tile: [_, _, depth], stages, .. } = self.pipeline;
        let bytes = self.a.bytes() + self.b.bytes();
        let at = Ring::new(self.k, stages);
        self.jobs.each(|Job { matrix, at: [row, col], portion, group, .. }| {
            let (product, steps) = self.share(matrix, group);
            let [begin, count] = self.jobs.part(steps, portion);
            let (a, b) = (self.a.batch_of(product.a), self.b.batch_of(product.b));
            self.k.for_each(begin, begin + count, |step| {
                let (stage, parity) = at.get();
                // Of the first phase nobody waits for the end.
                self.empty.wait(stage, parity ^ 1);
                // Not before: where the first tile lies is worked out while the launches before this one end. (Before the wait for the stage, the
                // assembler would move it up again. For later tiles it is no wait.)
                self.k.when(step.eq(begin), || self.k.await_launches());
                self.full.expect(stage, bytes);
                a.copy(stage, row, step * depth, (self.full, stage));
                b.copy(stage, col, step * depth, (self.full, stage));
                at.advance();
            });
        });
    }

    /// A warpgroup's job: multiplies its rows of each tile, or all of them if it is its turn, and stores them.
    fn consume(&self) {
        let k = self.k;
        let Pipeline { tile: [rows, cols, _], stages, .. } = self.pipeline;
        let (consumer, rows) = (k.warpgroup() - 1, rows / self.pipeline.together());
        let own = if self.turns.is_some() { k.constant(0) } else { consumer * rows };
        let wgmma = Wgmma { ty: T::TYPE, n: cols };
        let sums = k.array::<f32>(rows / Wgmma::M * wgmma.sums());
        let at = Ring::new(k, stages);
        self.jobs.each(|Job { matrix, at: [row, col], is_last, portion, group }| {
            let (product, steps) = self.share(matrix, group);
            let [_, count] = self.jobs.part(steps, portion);
            let first = row + own;
            let store = |sums, of| self.store.store(&product, matrix, consumer, [first, col], (sums, of));
            let make = || {
                self.sum(&at, count, wgmma, (consumer, own), sums);
                // Launches before this one may still use C, the bias, or parts.
                k.await_launches();
                match (&self.exchange, &self.jobs.balance, portion) {
                    (Some(exchange), ..) => exchange.add((consumer, is_last), sums, store),
                    (None, Some(balance), Some(portion)) => balance.meet(consumer, portion, sums, || store(sums, 0)),
                    _ => store(sums, 0),
                }
            };
            match (self.turns, group) {
                (Some(turns), _) => {
                    k.if_else(turns.is_next(consumer), make, || at.skip(count));
                    turns.advance();
                }
                // The others have the matrix units for themselves in a tile of which the group has no more than their rows.
                (None, Some(Group { end, .. })) => k.if_else(first.lt(end), make, || self.pass(&at, count)),
                (None, None) => make(),
            }
        });
        self.store.finish();
    }

    /// The sums of so many steps, of the rows from `first` on.
    fn sum(
        &self,
        at: &Ring<'k>,
        count: Val<'k, u32>,
        wgmma: Wgmma,
        (consumer, first): (Val<'k, u32>, Val<'k, u32>),
        sums: Array<'k, f32>,
    ) {
        let k = self.k;
        (0..sums.len()).for_each(|i| sums.at(i).set(0.0));
        let before = k.var(0u32);
        if let Some(turns) = self.turns {
            turns.begin(consumer);
        }
        k.for_each(0, count, |step| {
            let (stage, parity) = at.get();
            self.full.wait(stage, parity);
            self.multiply(wgmma, stage, first, sums);
            // One step is multiplied while the next is started.
            k.wgmma_wait(1);
            k.when(step.gt(0), || self.release(before.get()));
            before.set(stage);
            at.advance();
        });
        if let Some(turns) = self.turns {
            turns.end(consumer);
        }
        k.wgmma_wait(0);
        k.when(count.gt(0), || self.release(before.get()));
    }

    /// Lets so many steps pass.
    fn pass(&self, at: &Ring<'k>, count: Val<'k, u32>) {
        self.k.for_each(0, count, |_| {
            let (stage, parity) = at.get();
            self.full.wait(stage, parity);
            // Nothing else keeps the lanes together: one that fell behind would miss a phase.
            self.k.sync_warp(FULL_WARP);
            self.release(stage);
            at.advance();
        });
    }

    /// Starts a step, of the rows from `first` on.
    fn multiply(&self, wgmma: Wgmma, stage: Val<'k, u32>, first: Val<'k, u32>, sums: Array<'k, f32>) {
        let [.., depth] = self.pipeline.tile;
        self.k.wgmma_fence();
        for p in (0..depth).step_by(Wgmma::K as usize) {
            for i in 0..sums.len() / wgmma.sums() {
                let a = self.a.factor(stage, first + i * Wgmma::M, p);
                let sums = sums.part(i * wgmma.sums(), wgmma.sums());
                self.k.wgmma(wgmma, a, self.b.factor(stage, self.k.constant(0), p), sums, true);
            }
        }
        self.k.wgmma_commit();
    }

    /// The warp has multiplied a stage. In a cluster all producers wait for that which write to the block there, and no others: a block that were told
    /// and does not write might be told twice by one before it is told by another.
    fn release(&self, stage: Val<'k, u32>) {
        self.k.when(self.k.is_first_lane(), || {
            match self.neighbours[..] {
                [_] => self.empty.arrive(stage),
                ref blocks => blocks.iter().for_each(|block| self.empty.arrive_at(stage, *block)),
            }
            if let Some(cluster) = &self.in_turn {
                let copies = cluster.in_turn(stage);
                self.k.when(copies.ne(cluster.own()), || self.empty.arrive_at(stage, copies));
            }
        });
    }
}

/// A stage, and the parity of its phase: both go round.
struct Ring<'k> {
    stages: u32,
    stage: Var<'k, u32>,
    parity: Var<'k, u32>,
}

impl<'k> Ring<'k> {
    fn new(k: &'k Builder, stages: u32) -> Self {
        Ring { stages, stage: k.var(0u32), parity: k.var(0u32) }
    }

    fn get(&self) -> (Val<'k, u32>, Val<'k, u32>) {
        (self.stage.get(), self.parity.get())
    }

    /// Goes on by so many stages.
    fn skip(&self, count: Val<'k, u32>) {
        let next = self.stage.get() + count;
        self.stage.set(next % self.stages);
        self.parity.set(self.parity.get() ^ (next / self.stages % 2));
    }

    fn advance(&self) {
        let next = self.stage.get() + 1;
        let around = next.eq(self.stages);
        self.stage.set(around.select(0u32, next));
        self.parity.set(self.parity.get() ^ around.select(1u32, 0u32));
    }
}

impl fmt::Display for Hopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "hopper_{}_{}", self.ty, self.pipeline)?;
        f.write_str(&order_letters(self.orders))?;
        f.write_str(if self.stores_tiles { "" } else { "_e" })?;
        f.write_str(match self.schedule {
            Schedule::Tiles => "",
            Schedule::Parts => "_parts",
            Schedule::Groups => "_groups",
            Schedule::Balanced => "_balanced",
        })?;
        f.write_str(&self.epilogue.suffix())
    }
}
