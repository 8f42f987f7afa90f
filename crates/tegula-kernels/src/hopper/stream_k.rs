//! The stream-K scheduler: the assignment of k-steps to workers, and the fix-up of tiles with
//! several contributors.
//!
//! After Osama et al., "Stream-K: Work-centric Parallel Decomposition for Dense Matrix-Matrix
//! Multiplication on the GPU" (2023).

use tegula_ir::prelude::*;

use super::{CONSUMER_BARRIER, Pipeline, WARPGROUP};

/// The workspace for partial sums, and their ready flags.
#[derive(Clone, Copy)]
pub(super) struct StreamKWorkspace<'k> {
    /// For each block and consumer, the partial sums of a tile that another block completes: four
    /// of each thread in turn.
    partial_sums: Global<'k, f32>,
    /// For each block and consumer whether they are stored, 0 or 1. Zeros before and after a
    /// launch.
    ready: Global<'k, u32>,
}

impl<'k> StreamKWorkspace<'k> {
    pub fn declare(k: &'k Builder) -> Self {
        let matrix = (Access::ReadWrite, Order2d::RowMajor);
        StreamKWorkspace {
            partial_sums: k.matrix("parts", matrix.0, matrix.1, 4),
            ready: k.matrix("ready", matrix.0, matrix.1, 1),
        }
    }

    /// Blocks of the launch, each of which has a matrix of partial sums.
    pub fn blocks(&self) -> Val<'k, u32> {
        self.partial_sums.batches()
    }
}

/// A schedule of whole tiles for each worker, and a range of the k-steps of the remaining tiles.
///
/// A worker is a block, or a cluster whose blocks run in parallel. The range of a worker precedes
/// those of workers with lower numbers. The worker with a tile's first step completes the tile. It
/// waits for the partial sums of workers with lower numbers, whose ranges begin with them: these
/// workers have started earlier, however few are resident, and most likely have stored them.
pub(super) struct StreamKScheduler<'k> {
    k: &'k Builder,
    pipeline: Pipeline,
    workspace: StreamKWorkspace<'k>,
    worker: Val<'k, u32>,
    workers: Val<'k, u32>,
    /// k-steps of a tile.
    steps: Val<'k, u32>,
    /// Whole tiles of each worker.
    waves: Val<'k, u32>,
    /// k-steps of each range, and the number of ranges with one more.
    each: Val<'k, u32>,
    remainder: Val<'k, u32>,
}

/// A worker's part of a tile.
#[derive(Clone, Copy)]
pub(super) struct StreamKWork<'k> {
    /// The first k-step, and their number.
    pub steps: [Val<'k, u32>; 2],
    /// The tile's index among the remaining ones.
    split_tile: Val<'k, u32>,
}

impl<'k> StreamKScheduler<'k> {
    /// Schedules `tiles` tiles of `steps` k-steps.
    ///
    /// The remaining tiles are split together with one wave of whole tiles. So no range is shorter
    /// than a tile, and few workers contribute to a tile.
    ///
    /// k-steps are counted in 32 bits: with the workers of a recipe, operands of more k-steps
    /// exceed a GPU's memory.
    pub fn new(
        k: &'k Builder,
        pipeline: Pipeline,
        workspace: StreamKWorkspace<'k>,
        [worker, workers]: [Val<'k, u32>; 2],
        [tiles, steps]: [Val<'k, u32>; 2],
    ) -> Self {
        let whole = tiles / workers;
        let waves = (whole * workers).eq(tiles).select(whole, whole.max(1) - 1);
        // For k = 0 each tile has an empty step.
        let units = (tiles - waves * workers) * steps.max(1);
        let each = units / workers;
        StreamKScheduler {
            k,
            pipeline,
            workspace,
            worker,
            workers,
            waves,
            steps,
            each,
            remainder: units - each * workers,
        }
    }

    /// Runs the body for each tile to which this worker contributes, with the tile's number.
    pub fn each(&self, body: impl FnOnce(Val<'k, u32>, StreamKWork<'k>)) {
        let (waves, steps, range) = (self.waves, self.steps.max(1), self.range());
        let (begin, end) = (self.start(range), self.start(range + 1));
        let first = begin / steps;
        let touched = begin.lt(end).select((end + steps - 1) / steps - first, 0u32);
        let (begin, end) = (begin - first * steps, end - first * steps);
        self.k.for_each(0, waves + touched, |index| {
            let (is_whole, offset) = (index.lt(waves), index - waves);
            let (split_tile, begin) = (first + offset, (is_whole | offset.gt(0)).select(0u32, begin));
            // A range that extends past the tile has all of its remaining steps.
            let end = is_whole.select(steps, (end - offset * steps).min(steps));
            let tile = is_whole.select(index * self.workers + self.worker, waves * self.workers + split_tile);
            body(tile, StreamKWork { steps: [begin, end.min(self.steps) - begin], split_tile });
        });
    }

    /// Adds the partial sums of all contributors in the order of k and calls `store_tile`, if this
    /// worker has the tile's first step. Otherwise stores the consumer's partial sums for the
    /// worker that has.
    pub fn fix_up(
        &self,
        consumer: Val<'k, u32>,
        StreamKWork { steps: [first, count], split_tile }: StreamKWork<'k>,
        accumulators: Array<'k, f32>,
        store_tile: impl FnOnce(),
    ) {
        self.k.if_else(
            first.eq(0),
            || {
                self.k.when(count.lt(self.steps), || self.add_partial_sums(consumer, split_tile, accumulators));
                store_tile();
            },
            || self.store_partial_sums(consumer, accumulators),
        );
    }

    /// The first k-step of a range.
    fn start(&self, range: Val<'k, u32>) -> Val<'k, u32> {
        range * self.each + range.min(self.remainder)
    }

    /// The index of this worker's range: ranges are in descending order of workers.
    fn range(&self) -> Val<'k, u32> {
        self.workers - 1 - self.worker
    }

    fn store_partial_sums(&self, consumer: Val<'k, u32>, accumulators: Array<'k, f32>) {
        let (k, block) = (self.k, self.block(self.worker));
        let to = self.workspace.partial_sums.batch(block);
        for (at, i) in self.vectors(consumer, accumulators) {
            to.store_vec(at, std::array::from_fn::<_, 4, _>(|j| accumulators.at(i + j as u32).get()));
        }
        k.named_barrier(consumer + CONSUMER_BARRIER, WARPGROUP);
        k.when((k.thread_x() % WARPGROUP).eq(0), || {
            self.workspace.ready.store_ordered(self.flag(block, consumer), 1, MemoryOrder::Release, Scope::Device);
        });
    }

    fn add_partial_sums(&self, consumer: Val<'k, u32>, split_tile: Val<'k, u32>, accumulators: Array<'k, f32>) {
        let (k, end, range) = (self.k, (split_tile + 1) * self.steps, self.k.var(self.range() + 1));
        let contributes = || self.start(range.get()).lt(end);
        k.while_loop(contributes, || {
            let next = range.get();
            range.set(next + 1);
            // With more workers than k-steps, some ranges are empty.
            k.when(self.start(next).lt(self.start(next + 1)), || {
                let block = self.block(self.workers - 1 - next);
                k.when((k.thread_x() % WARPGROUP).eq(0), || {
                    let flag = self.flag(block, consumer);
                    self.workspace.ready.wait_until(flag, Compare::Eq, 1, Scope::Device);
                    self.workspace.ready.store(flag, 0);
                });
                k.named_barrier(consumer + CONSUMER_BARRIER, WARPGROUP);
                let from = self.workspace.partial_sums.batch(block);
                for (at, i) in self.vectors(consumer, accumulators) {
                    let four = from.load_vec::<4>(at);
                    (i..).zip(four).for_each(|(i, sum)| accumulators.at(i).set(accumulators.at(i).get() + sum));
                }
            });
        });
    }

    /// The block of a worker with the same position in the cluster as this one.
    fn block(&self, worker: Val<'k, u32>) -> Val<'k, u32> {
        match self.pipeline.multicast_blocks() {
            1 => worker,
            cluster => worker * cluster + self.k.cluster_rank(),
        }
    }

    fn flag(&self, block: Val<'k, u32>, consumer: Val<'k, u32>) -> (Val<'k, u32>, Val<'k, u32>) {
        (self.k.constant(0), block * self.pipeline.consumers + consumer)
    }

    /// The workspace coordinates of a thread's accumulators, four at a time, with the index of the
    /// first.
    fn vectors(
        &self,
        consumer: Val<'k, u32>,
        accumulators: Array<'k, f32>,
    ) -> impl Iterator<Item = ((Val<'k, u32>, Val<'k, u32>), u32)> {
        let first = self.k.thread_x() % WARPGROUP * 4;
        (0..accumulators.len()).step_by(4).map(move |i| ((consumer, first + i * WARPGROUP), i))
    }
}
