//! The sequence of consumers in the ping-pong schedule. Independent of tiles and of the epilogue.

use tegula_ir::prelude::*;

use super::{Pipeline, WARPS};

/// The order in which consumers multiply.
///
/// A consumer begins when its predecessor has issued its last step, for two reasons. The Tensor
/// Cores work on one tile at a time, so that it completes early and is stored while the next one is
/// multiplied. And a consumer skips the stages of the other consumers without waiting: if it waited
/// for a stage before its predecessor has seen the last of its own stages, it would mistake an
/// earlier phase of the stage for the awaited one.
#[derive(Clone, Copy)]
pub(super) struct PingPongOrder<'k> {
    k: &'k Builder,
    consumers: u32,
    /// An mbarrier for each consumer: it may begin.
    order: Mbarriers<'k>,
    /// The consumer that owns the current tile.
    owner: Var<'k, u32>,
    /// The parity of this consumer's mbarrier phase: its tiles so far, modulo 2.
    parity: Var<'k, u32>,
}

impl<'k> PingPongOrder<'k> {
    pub fn declare(k: &'k Builder, pipeline: &Pipeline) -> Self {
        let consumers = pipeline.consumers;
        let order = k.mbarriers("order", consumers);
        PingPongOrder { k, consumers, order, owner: k.var(0u32), parity: k.var(0u32) }
    }

    pub fn init(&self, consumer: Val<'k, u32>) {
        self.order.init(consumer, WARPS);
    }

    /// Whether the current tile is this consumer's. By a vote, so that the assembler takes the
    /// branch for uniform and keeps operand descriptors in uniform registers.
    pub fn owns_tile(&self, consumer: Val<'k, u32>) -> Pred<'k> {
        self.k.all(self.owner.get().eq(consumer), FULL_WARP)
    }

    /// Waits until this consumer may multiply. The first consumer starts its first tile at once.
    pub fn begin(&self, consumer: Val<'k, u32>) {
        let parity = self.parity.get();
        self.order.wait(consumer, parity ^ consumer.eq(0).select(1u32, 0u32));
        self.parity.set(parity ^ 1);
    }

    /// Lets the next consumer begin.
    pub fn end(&self, consumer: Val<'k, u32>) {
        self.k.sync_warp(FULL_WARP);
        self.k.when(self.k.is_first_lane(), || self.order.arrive(self.successor(consumer)));
    }

    /// Advances to the next tile.
    pub fn advance(&self) {
        self.owner.set(self.successor(self.owner.get()));
    }

    fn successor(&self, consumer: Val<'k, u32>) -> Val<'k, u32> {
        let next = consumer + 1;
        next.eq(self.consumers).select(0u32, next)
    }
}
