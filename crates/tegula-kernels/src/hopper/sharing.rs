//! Which blocks of a cluster share a factor: those whose tiles of C are beside each other A, those below each other B. And which share the steps of a
//! tile: they have the same place among those that share factors. It knows neither how tiles lie nor when they are copied.

use tegula_ir::prelude::*;

use super::Pipeline;

/// A block among those of its cluster.
pub(super) struct Cluster<'k> {
    k: &'k Builder,
    /// Blocks below each other, and beside each other.
    shape: [u32; 2],
    /// The row and the column of the block.
    at: [Val<'k, u32>; 2],
    /// So many share the steps of a tile, and which of them the block is. Those with the same steps follow each other in the cluster.
    split: u32,
    part: Val<'k, u32>,
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
        let (shape, sharing, split) = (pipeline.cluster, pipeline.sharing(), pipeline.split);
        let rank = || k.cluster_rank();
        let (own, part) = match (sharing, split) {
            (1, 1) => (k.constant(0), k.constant(0)),
            (1, _) => (k.constant(0), rank()),
            (_, 1) => (rank(), k.constant(0)),
            _ => (rank() % sharing, rank() / sharing),
        };
        Cluster { k, shape, at: [own / shape[1], own % shape[1]], split, part }
    }

    /// The first of the blocks that have the same steps.
    fn first(&self, part: Val<'k, u32>) -> Val<'k, u32> {
        part * (self.shape[0] * self.shape[1])
    }

    /// The block's tile of C, of those of the cluster: row and column, in tiles.
    pub fn tile(&self, [row, col]: [Val<'k, u32>; 2]) -> [Val<'k, u32>; 2] {
        [row * self.shape[0] + self.at[0], col * self.shape[1] + self.at[1]]
    }

    /// The block's part of so many steps: the first of them, and how many.
    pub fn steps(&self, [begin, count]: [Val<'k, u32>; 2]) -> [Val<'k, u32>; 2] {
        if self.split == 1 {
            return [begin, count];
        }
        let (part, each, more) = (self.part, count / self.split, count % self.split);
        [begin + part * each + part.min(more), each + part.lt(more).select(1u32, 0u32)]
    }

    /// Which of those that share the steps of a tile the block is.
    pub fn part(&self) -> Val<'k, u32> {
        self.part
    }

    /// Another of them in the cluster.
    pub fn with_part(&self, part: u32) -> Val<'k, u32> {
        self.first(self.k.constant(part)) + self.at[0] * self.shape[1] + self.at[1]
    }

    /// Those that share the block's tiles of A, or of B.
    pub fn sharers(&self, is_a: bool) -> Sharers<'k> {
        let ([down, across], [row, col]) = (self.shape, self.at);
        let (count, own, first, apart) = if is_a { (across, col, row * across, 1) } else { (down, row, col, across) };
        let bits = (0..count).map(|block| 1 << (block * apart)).sum::<u32>();
        Sharers { count, own, blocks: (count > 1).then(|| self.k.constant(bits) << (self.first(self.part) + first)) }
    }

    /// The block itself.
    pub fn own(&self) -> Val<'k, u32> {
        self.first(self.part) + self.at[0] * self.shape[1] + self.at[1]
    }

    /// Of those that share B with the block, the one that copies a stage if they do so in turns.
    pub fn in_turn(&self, stage: Val<'k, u32>) -> Val<'k, u32> {
        self.first(self.part) + stage % self.shape[0] * self.shape[1] + self.at[1]
    }

    /// Those that copy to the block at each stage, itself among them, and to which it copies.
    pub fn neighbours(&self, b_in_turns: bool) -> Vec<Val<'k, u32>> {
        let ([down, across], [row, col], first) = (self.shape, self.at, self.first(self.part));
        let below: Vec<_> = match b_in_turns {
            true => vec![self.own()],
            false => (0..down).map(|block| first + col + block * across).collect(),
        };
        below.into_iter().chain((1..across).map(|further| first + row * across + (col + further) % across)).collect()
    }
}
