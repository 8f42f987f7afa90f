//! Consumers that take turns, a tile each: who multiplies next. It knows neither what tiles are nor how they are stored.

use tegula_ir::prelude::*;

use super::{Pipeline, WARPS};

/// A consumer begins to multiply when the one before it has begun its last step, for two reasons. The matrix units have one tile at a time, so that it is
/// finished early and stored while they have the next. And a consumer lets the stages of others pass unseen: were it to wait for a stage before the one
/// before has seen the last of its own, it would take an earlier phase of the stage for the one that it waits for.
#[derive(Clone, Copy)]
pub(super) struct Turns<'k> {
    k: &'k Builder,
    consumers: u32,
    /// For each consumer, whether it may begin.
    order: Barriers<'k>,
    /// Whose turn the next tile is.
    next: Var<'k, u32>,
    /// Of the tiles of this consumer, whether there was an even number so far: 0 or 1.
    parity: Var<'k, u32>,
}

impl<'k> Turns<'k> {
    pub fn declare(k: &'k Builder, pipeline: &Pipeline) -> Self {
        let consumers = pipeline.consumers;
        let order = k.barriers("order", consumers);
        Turns { k, consumers, order, next: k.var(0u32), parity: k.var(0u32) }
    }

    pub fn init(&self, consumer: Val<'k, u32>) {
        self.order.init(consumer, WARPS);
    }

    /// Whether the next tile is this consumer's.
    pub fn is_next(&self, consumer: Val<'k, u32>) -> Pred<'k> {
        self.next.get().eq(consumer)
    }

    /// Waits until this consumer may multiply. The first need not wait for its first tile.
    pub fn begin(&self, consumer: Val<'k, u32>) {
        let parity = self.parity.get();
        self.order.wait(consumer, parity ^ consumer.eq(0).select(1u32, 0u32));
        self.parity.set(parity ^ 1);
    }

    /// Lets the next one begin.
    pub fn end(&self, consumer: Val<'k, u32>) {
        self.k.sync_warp(FULL_WARP);
        self.k.when(self.k.is_first_lane(), || self.order.arrive(self.behind(consumer)));
    }

    /// Goes on to the next tile.
    pub fn advance(&self) {
        self.next.set(self.behind(self.next.get()));
    }

    fn behind(&self, consumer: Val<'k, u32>) -> Val<'k, u32> {
        let next = consumer + 1;
        next.eq(self.consumers).select(0u32, next)
    }
}
