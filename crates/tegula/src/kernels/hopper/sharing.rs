//! Which blocks of a cluster share a factor: those whose tiles of C are beside each other A, those below each other B. It knows neither how tiles
//! lie nor when they are copied.

use super::Pipeline;
use crate::ir::prelude::*;

/// A block among those of its cluster.
pub(super) struct Cluster<'k> {
    k: &'k Builder,
    /// Blocks below each other, and beside each other.
    shape: [u32; 2],
    /// The row and the column of the block.
    at: [Val<'k, u32>; 2],
}

/// The blocks that multiply a tile of a factor, each of which copies a part of it to all.
#[derive(Clone, Copy)]
pub(super) struct Sharers<'k> {
    /// How many.
    pub count: u32,
    /// Which of them the block is.
    pub own: Val<'k, u32>,
    /// Their positions in the cluster, a bit each, where there is more than one.
    pub blocks: Option<Val<'k, u32>>,
}

impl<'k> Cluster<'k> {
    pub fn of(k: &'k Builder, pipeline: &Pipeline) -> Self {
        let shape = pipeline.cluster;
        let rank = if pipeline.sharing() > 1 { k.cluster_rank() } else { k.constant(0) };
        Cluster { k, shape, at: [rank / shape[1], rank % shape[1]] }
    }

    /// The block's tile of C, of those of the cluster: row and column, in tiles.
    pub fn tile(&self, [row, col]: [Val<'k, u32>; 2]) -> [Val<'k, u32>; 2] {
        [row * self.shape[0] + self.at[0], col * self.shape[1] + self.at[1]]
    }

    /// Those that share the block's tiles of A, or of B.
    pub fn sharers(&self, is_a: bool) -> Sharers<'k> {
        let ([down, across], [row, col]) = (self.shape, self.at);
        let (count, own, first, apart) = if is_a { (across, col, row * across, 1) } else { (down, row, col, across) };
        let bits = (0..count).map(|block| 1 << (block * apart)).sum::<u32>();
        Sharers { count, own, blocks: (count > 1).then(|| self.k.constant(bits) << first) }
    }

    /// Those that share a tile with the block, itself among them: it copies to each, and each copies to it.
    pub fn neighbours(&self) -> Vec<Val<'k, u32>> {
        let ([down, across], [row, col]) = (self.shape, self.at);
        let below = (0..down).map(|block| col + block * across);
        below.chain((1..across).map(|further| row * across + (col + further) % across)).collect()
    }
}
