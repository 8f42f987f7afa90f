//! How blocks of a cluster that share the steps of a tile add what each has summed. It knows neither what was multiplied nor where sums go.

use tegula_ir::prelude::*;

use super::sharing::Cluster;
use super::{GROUP, Pipeline, WARPS};

/// Sums of a tile whose steps several blocks share: each block finishes as many of them, which the others send to it.
pub(super) struct Exchange<'k> {
    k: &'k Builder,
    cluster: Cluster<'k>,
    blocks: u32,
    /// For each consumer and each other block, what is sent by its threads, four sums of each at a time.
    inbox: Shared<'k, f32>,
    /// Of each consumer: whether all of that has come, and whether the other blocks have read what it sent before.
    came: Barriers<'k>,
    read: Barriers<'k>,
    parity: Var<'k, u32>,
}

impl<'k> Exchange<'k> {
    pub fn declare(k: &'k Builder, pipeline: &Pipeline) -> Self {
        let Pipeline { consumers, split: blocks, .. } = *pipeline;
        let fours = pipeline.sums() / blocks / 4;
        let inbox = k.inbox("inbox", [consumers * (blocks - 1), fours, GROUP * 4]);
        let (came, read) = (k.barriers("came", consumers), k.barriers("read", consumers));
        Exchange { k, cluster: Cluster::of(k, pipeline), blocks, inbox, came, read, parity: k.var(0u32) }
    }

    pub fn init(&self, consumer: Val<'k, u32>) {
        self.came.init(consumer, 1);
        self.read.init(consumer, (self.blocks - 1) * WARPS);
    }

    /// Sends to the other blocks what they finish, adds to the block's own part what these have, and calls `finish` with that and the number of its
    /// first sum.
    pub fn add(
        &self,
        (consumer, is_last): (Val<'k, u32>, Pred<'k>),
        sums: Array<'k, f32>,
        finish: impl Fn(Array<'k, f32>, u32),
    ) {
        let (k, others, each) = (self.k, self.blocks - 1, sums.len() / self.blocks);
        let (part, thread, parity) = (self.cluster.part(), k.thread_x() % GROUP, self.parity.get());
        k.when(thread.eq(0), || self.came.expect(consumer, others * each * GROUP * 4));
        // Before the first tile there was nothing to read.
        self.read.wait(consumer, parity ^ 1);
        for block in 0..self.blocks {
            k.when(part.ne(block), || {
                let slot = consumer * others + part - part.gt(block).select(1u32, 0u32);
                for i in (0..each).step_by(4) {
                    let four = std::array::from_fn::<_, 4, _>(|j| sums.at(block * each + i + j as u32).get());
                    self.inbox.send(
                        (slot, i / 4, thread * 4),
                        four,
                        self.cluster.with_part(block),
                        (self.came, consumer),
                    );
                }
            });
        }
        self.came.wait(consumer, parity);
        for block in 0..self.blocks {
            let own = sums.part(block * each, each);
            k.when(part.eq(block), || {
                // The order of blocks is always the same, and so are the bits.
                for slot in 0..others {
                    for i in (0..each).step_by(4) {
                        let four = self.inbox.load_vec::<4>((consumer * others + slot, i / 4, thread * 4));
                        (i..).zip(four).for_each(|(i, sum)| own.at(i).set(own.at(i).get() + sum));
                    }
                }
                k.sync_warp(FULL_WARP);
                // After the last tile there is nobody whom to tell; whoever is told may have ended.
                k.when(k.is_first_lane() & !is_last, || {
                    let others = (0..self.blocks).filter(|other| *other != block);
                    others.for_each(|other| self.read.arrive_at(consumer, self.cluster.with_part(other)));
                });
                finish(own, block * each);
            });
        }
        self.parity.set(parity ^ 1);
    }
}
