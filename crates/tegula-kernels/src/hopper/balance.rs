//! Tiles that workers share evenly: who makes which steps, and how sums of a tile meet that several have made. After Osama et al., "Stream-K:
//! Work-centric Parallel Decomposition for Dense Matrix-Matrix Multiplication on the GPU" (2023).

use tegula_ir::prelude::*;

use super::{GROUP, MEETING, Pipeline};

/// Memory through which blocks give each other sums.
#[derive(Clone, Copy)]
pub(super) struct Parts<'k> {
    /// For each block and consumer, the sums of a tile that another block finishes: four of each thread after the other.
    sums: Global<'k, f32>,
    /// For each block and consumer whether they are there, 0 or 1. Zeros before and after a launch.
    ready: Global<'k, u32>,
}

impl<'k> Parts<'k> {
    pub fn declare(k: &'k Builder) -> Self {
        let matrix = (Access::ReadWrite, Order2d::RowMajor);
        Parts { sums: k.matrix("parts", matrix.0, matrix.1, 4), ready: k.matrix("ready", matrix.0, matrix.1, 1) }
    }

    /// Of how many blocks there is a part.
    pub fn blocks(&self) -> Val<'k, u32> {
        self.sums.batches()
    }
}

/// Whole tiles for each worker, and a share of the steps of those left over. A worker is a block, or a cluster whose blocks do the same side by side.
///
/// The share of a worker lies before those of workers with lower numbers. Who has a tile's first step finishes it, and waits for what is missing from
/// workers with lower numbers, whose shares begin with that: they have begun before, however few fit at a time, and are most likely done with it.
pub(super) struct Balance<'k> {
    k: &'k Builder,
    pipeline: Pipeline,
    parts: Parts<'k>,
    worker: Val<'k, u32>,
    workers: Val<'k, u32>,
    /// Steps of a tile.
    steps: Val<'k, u32>,
    /// Whole tiles of each worker.
    waves: Val<'k, u32>,
    /// Steps of each share, and how many shares have one more.
    each: Val<'k, u32>,
    more: Val<'k, u32>,
}

/// What a worker makes of a tile.
#[derive(Clone, Copy)]
pub(super) struct Portion<'k> {
    /// The first step, and how many.
    pub steps: [Val<'k, u32>; 2],
    /// The tile's number among those that are left over.
    left: Val<'k, u32>,
}

impl<'k> Balance<'k> {
    /// For so many tiles of so many steps. If tiles are left over, they are shared together with a wave of whole ones: then no share is shorter than a
    /// tile, and few workers have a tile in common.
    ///
    /// Shares are counted in 32 bits: of as many workers as recipes have, tiles with more steps than that do not fit into a GPU's memory.
    pub fn new(
        k: &'k Builder,
        pipeline: Pipeline,
        parts: Parts<'k>,
        [worker, workers]: [Val<'k, u32>; 2],
        [tiles, steps]: [Val<'k, u32>; 2],
    ) -> Self {
        let whole = tiles / workers;
        let waves = (whole * workers).eq(tiles).select(whole, whole.max(1) - 1);
        // Where there is no step, one that multiplies nothing.
        let units = (tiles - waves * workers) * steps.max(1);
        let each = units / workers;
        Balance { k, pipeline, parts, worker, workers, waves, steps, each, more: units - each * workers }
    }

    /// The body for each tile of which this worker makes something, with the tile's number.
    pub fn each(&self, body: impl FnOnce(Val<'k, u32>, Portion<'k>)) {
        let (waves, steps, place) = (self.waves, self.steps.max(1), self.place());
        let (begin, end) = (self.start(place), self.start(place + 1));
        let first = begin / steps;
        let touched = begin.lt(end).select((end + steps - 1) / steps - first, 0u32);
        let (begin, behind) = (begin - first * steps, end - first * steps);
        self.k.for_each(0, waves + touched, |job| {
            let (is_whole, which) = (job.lt(waves), job - waves);
            let (left, begin) = (first + which, (is_whole | which.gt(0)).select(0u32, begin));
            // Where the share goes beyond the tile, it has all of its steps.
            let end = is_whole.select(steps, (behind - which * steps).min(steps));
            let tile = is_whole.select(job * self.workers + self.worker, waves * self.workers + left);
            body(tile, Portion { steps: [begin, end.min(self.steps) - begin], left });
        });
    }

    /// Finishes a tile with the sums of all who have steps of it, in the order of k, or leaves the consumer's sums to who does.
    pub fn meet(
        &self,
        consumer: Val<'k, u32>,
        Portion { steps: [first, count], left }: Portion<'k>,
        sums: Array<'k, f32>,
        finish: impl FnOnce(),
    ) {
        self.k.if_else(
            first.eq(0),
            || {
                self.k.when(count.lt(self.steps), || self.take(consumer, left, sums));
                finish();
            },
            || self.leave(consumer, sums),
        );
    }

    /// Where the share in such a place begins.
    fn start(&self, place: Val<'k, u32>) -> Val<'k, u32> {
        place * self.each + place.min(self.more)
    }

    /// Workers' shares lie in this order.
    fn place(&self) -> Val<'k, u32> {
        self.workers - 1 - self.worker
    }

    fn leave(&self, consumer: Val<'k, u32>, sums: Array<'k, f32>) {
        let (k, block) = (self.k, self.block(self.worker));
        let to = self.parts.sums.batch(block);
        for (at, i) in self.fours(consumer, sums) {
            to.store_vec(at, std::array::from_fn::<_, 4, _>(|j| sums.at(i + j as u32).get()));
        }
        k.named_barrier(consumer + MEETING, GROUP);
        k.when((k.thread_x() % GROUP).eq(0), || {
            self.parts.ready.store_ordered(self.flag(block, consumer), 1, Order::Release, Scope::Device);
        });
    }

    fn take(&self, consumer: Val<'k, u32>, left: Val<'k, u32>, sums: Array<'k, f32>) {
        let (k, end, place) = (self.k, (left + 1) * self.steps, self.k.var(self.place() + 1));
        let goes_on = || self.start(place.get()).lt(end);
        k.while_loop(goes_on, || {
            let next = place.get();
            place.set(next + 1);
            // Where there are more workers than steps, some have none.
            k.when(self.start(next).lt(self.start(next + 1)), || {
                let block = self.block(self.workers - 1 - next);
                k.when((k.thread_x() % GROUP).eq(0), || {
                    let flag = self.flag(block, consumer);
                    self.parts.ready.wait_until(flag, Compare::Eq, 1, Scope::Device);
                    self.parts.ready.store(flag, 0);
                });
                k.named_barrier(consumer + MEETING, GROUP);
                let from = self.parts.sums.batch(block);
                for (at, i) in self.fours(consumer, sums) {
                    let four = from.load_vec::<4>(at);
                    (i..).zip(four).for_each(|(i, sum)| sums.at(i).set(sums.at(i).get() + sum));
                }
            });
        });
    }

    /// The block of a worker that makes the same tile of it as this one.
    fn block(&self, worker: Val<'k, u32>) -> Val<'k, u32> {
        match self.pipeline.sharing() {
            1 => worker,
            cluster => worker * cluster + self.k.cluster_rank(),
        }
    }

    fn flag(&self, block: Val<'k, u32>, consumer: Val<'k, u32>) -> (Val<'k, u32>, Val<'k, u32>) {
        (self.k.constant(0), block * self.pipeline.consumers + consumer)
    }

    /// Where a thread's sums go, four at a time, with the number of the first.
    fn fours(
        &self,
        consumer: Val<'k, u32>,
        sums: Array<'k, f32>,
    ) -> impl Iterator<Item = ((Val<'k, u32>, Val<'k, u32>), u32)> {
        let first = self.k.thread_x() % GROUP * 4;
        (0..sums.len()).step_by(4).map(move |i| ((consumer, first + i * GROUP), i))
    }
}
