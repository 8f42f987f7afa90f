//! The reduction in distributed shared memory over the blocks of a cluster that split the k-steps
//! of a tile. Independent of the main loop and of the epilogue.

use tegula_ir::prelude::*;

use super::multicast::Cluster;
use super::{Pipeline, WARPGROUP, WARPS};

/// A reduction of accumulators over the blocks of a cluster: each block receives and adds an equal
/// part of the tile.
pub(super) struct DsmemReduction<'k> {
    k: &'k Builder,
    cluster: Cluster<'k>,
    blocks: u32,
    /// Receive buffers for each consumer and each peer block: four accumulators of a thread at a
    /// time.
    inbox: Shared<'k, f32>,
    /// Mbarriers of each consumer: all its data has arrived, and the peers have read its previous
    /// data.
    arrived: Mbarriers<'k>,
    read: Mbarriers<'k>,
    parity: Var<'k, u32>,
}

impl<'k> DsmemReduction<'k> {
    pub fn declare(k: &'k Builder, pipeline: &Pipeline) -> Self {
        let Pipeline { consumers, cluster_k: blocks, .. } = *pipeline;
        let fours = pipeline.accumulators() / blocks / 4;
        let inbox = k.dsmem_buffer("inbox", [consumers * (blocks - 1), fours, WARPGROUP * 4]);
        let (arrived, read) = (k.mbarriers("came", consumers), k.mbarriers("read", consumers));
        DsmemReduction { k, cluster: Cluster::of(k, pipeline), blocks, inbox, arrived, read, parity: k.var(0u32) }
    }

    pub fn init(&self, consumer: Val<'k, u32>) {
        self.arrived.init(consumer, 1);
        self.read.init(consumer, (self.blocks - 1) * WARPS);
    }

    /// Sends each peer its part of the accumulators, adds the received parts to the block's own,
    /// and calls `store` with these accumulators and the index of the first.
    pub fn reduce(
        &self,
        (consumer, is_last): (Val<'k, u32>, Pred<'k>),
        accumulators: Array<'k, f32>,
        store: impl Fn(Array<'k, f32>, u32),
    ) {
        let (k, peers, each) = (self.k, self.blocks - 1, accumulators.len() / self.blocks);
        let (k_index, thread, parity) = (self.cluster.k_index(), k.thread_x() % WARPGROUP, self.parity.get());
        k.when(thread.eq(0), || self.arrived.arrive_expect_tx(consumer, peers * each * WARPGROUP * 4));
        // The first wait passes, as nothing has been sent.
        self.read.wait(consumer, parity ^ 1);
        for block in 0..self.blocks {
            k.when(k_index.ne(block), || {
                let slot = consumer * peers + k_index - k_index.gt(block).select(1u32, 0u32);
                for i in (0..each).step_by(4) {
                    let four = std::array::from_fn::<_, 4, _>(|j| accumulators.at(block * each + i + j as u32).get());
                    self.inbox.store_async(
                        (slot, i / 4, thread * 4),
                        four,
                        self.cluster.rank_at_k(block),
                        (self.arrived, consumer),
                    );
                }
            });
        }
        self.arrived.wait(consumer, parity);
        for block in 0..self.blocks {
            let own = accumulators.slice(block * each, each);
            k.when(k_index.eq(block), || {
                // In the order of k, as a split-K reduction adds: bit for bit the same.
                for i in (0..each).step_by(4) {
                    let received = |slot: u32| self.inbox.load_vec::<4>((consumer * peers + slot, i / 4, thread * 4));
                    let before = (0..block).map(received).reduce(add);
                    let sum = std::array::from_fn(|j| own.at(i + j as u32).get());
                    let sum = before.map_or(sum, |before| add(sum, before));
                    let sum = (block..peers).map(received).fold(sum, add);
                    (i..).zip(sum).for_each(|(i, value)| own.at(i).set(value));
                }
                k.sync_warp(FULL_WARP);
                // No arrival after the last tile: the peers may have exited.
                k.when(k.is_first_lane() & !is_last, || {
                    let peers = (0..self.blocks).filter(|peer| *peer != block);
                    peers.for_each(|peer| self.read.arrive_remote(consumer, self.cluster.rank_at_k(peer)));
                });
                store(own, block * each);
            });
        }
        self.parity.set(parity ^ 1);
    }
}

fn add<'k>(x: [Val<'k, f32>; 4], y: [Val<'k, f32>; 4]) -> [Val<'k, f32>; 4] {
    std::array::from_fn(|i| x[i] + y[i])
}
