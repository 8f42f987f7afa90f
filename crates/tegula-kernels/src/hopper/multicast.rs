//! The roles of a cluster's blocks: multicast groups, and split-K in the cluster.
//!
//! Blocks along n share tiles of A, blocks along m tiles of B. Blocks that split the k-steps of a
//! tile have the same position in their multicast groups. Independent of the layout of tiles and of
//! the pipeline's schedule.

use tegula_ir::prelude::*;

use super::Pipeline;

/// The position of a block in its cluster.
pub(super) struct Cluster<'k> {
    k: &'k Builder,
    /// Blocks along m and along n.
    shape: [u32; 2],
    /// The block's row and column.
    position: [Val<'k, u32>; 2],
    /// Blocks that split the k-steps of a tile, and the block's index among them. Blocks with the
    /// same k-steps have consecutive ranks.
    cluster_k: u32,
    k_index: Val<'k, u32>,
}

/// The blocks of a cluster that share a tile of an operand; each copies a part of it to all.
#[derive(Clone, Copy)]
pub(super) struct MulticastGroup<'k> {
    /// Blocks of the group.
    pub count: u32,
    /// The block's index in the group.
    pub index: Val<'k, u32>,
    /// The multicast mask: a bit for the rank of each block, unless the group is a single block.
    pub mask: Option<Val<'k, u32>>,
}

impl<'k> Cluster<'k> {
    pub fn of(k: &'k Builder, pipeline: &Pipeline) -> Self {
        let (shape, multicast, cluster_k) = (pipeline.cluster, pipeline.multicast_blocks(), pipeline.cluster_k);
        let rank = || k.cluster_rank();
        let (index, k_index) = match (multicast, cluster_k) {
            (1, 1) => (k.constant(0), k.constant(0)),
            (1, _) => (k.constant(0), rank()),
            (_, 1) => (rank(), k.constant(0)),
            _ => (rank() % multicast, rank() / multicast),
        };
        Cluster { k, shape, position: [index / shape[1], index % shape[1]], cluster_k, k_index }
    }

    /// The first rank of the blocks with these k-steps.
    fn first_rank(&self, k_index: Val<'k, u32>) -> Val<'k, u32> {
        k_index * (self.shape[0] * self.shape[1])
    }

    /// The row and column of the block's tile, in tiles, given those of the cluster's tile.
    pub fn tile(&self, [row, col]: [Val<'k, u32>; 2]) -> [Val<'k, u32>; 2] {
        [row * self.shape[0] + self.position[0], col * self.shape[1] + self.position[1]]
    }

    /// The block's part of a range of k-steps, as the first and their number.
    pub fn steps(&self, [begin, count]: [Val<'k, u32>; 2]) -> [Val<'k, u32>; 2] {
        if self.cluster_k == 1 {
            return [begin, count];
        }
        let (index, each, remainder) = (self.k_index, count / self.cluster_k, count % self.cluster_k);
        [begin + index * each + index.min(remainder), each + index.lt(remainder).select(1u32, 0u32)]
    }

    /// The block's index among those that split the k-steps of a tile.
    pub fn k_index(&self) -> Val<'k, u32> {
        self.k_index
    }

    /// The rank of the block with the same tile and this index along k.
    pub fn rank_at_k(&self, k_index: u32) -> Val<'k, u32> {
        self.first_rank(self.k.constant(k_index)) + self.position[0] * self.shape[1] + self.position[1]
    }

    /// The multicast group of the block's tiles of A (`is_a`), or of B.
    pub fn group(&self, is_a: bool) -> MulticastGroup<'k> {
        let ([blocks_m, blocks_n], [row, col]) = (self.shape, self.position);
        let (count, index, first, stride) =
            if is_a { (blocks_n, col, row * blocks_n, 1) } else { (blocks_m, row, col, blocks_n) };
        let bits = (0..count).map(|block| 1 << (block * stride)).sum::<u32>();
        let mask = (count > 1).then(|| self.k.constant(bits) << (self.first_rank(self.k_index) + first));
        MulticastGroup { count, index, mask }
    }

    /// The block's rank in the cluster.
    pub fn rank(&self) -> Val<'k, u32> {
        self.first_rank(self.k_index) + self.position[0] * self.shape[1] + self.position[1]
    }

    /// The rank of the block that copies B at a stage, if its multicast group does so round-robin.
    pub fn rotating_producer(&self, stage: Val<'k, u32>) -> Val<'k, u32> {
        self.first_rank(self.k_index) + stage % self.shape[0] * self.shape[1] + self.position[1]
    }

    /// The ranks of the blocks that copy to this block at each stage, itself included. These are
    /// also the blocks to which it copies.
    ///
    /// `b_rotates`: whether B is copied round-robin by stage; see
    /// [`rotating_producer`](Self::rotating_producer).
    pub fn source_ranks(&self, b_rotates: bool) -> Vec<Val<'k, u32>> {
        let ([blocks_m, blocks_n], [row, col], first) = (self.shape, self.position, self.first_rank(self.k_index));
        let of_b: Vec<_> = match b_rotates {
            true => vec![self.rank()],
            false => (0..blocks_m).map(|block| first + col + block * blocks_n).collect(),
        };
        let of_a = (1..blocks_n).map(|offset| first + row * blocks_n + (col + offset) % blocks_n);
        of_b.into_iter().chain(of_a).collect()
    }
}
