//! The tile scheduler of a grouped GEMM, in which each group of rows of A has its own matrix B.
//! Independent of the main loop and of the epilogue.

use tegula_ir::prelude::*;

use super::{Pipeline, WorkTile};
use crate::blocked::raster_order;
use crate::product::Product;

/// The scheduler over the tiles of all groups, which follow each other in A and C.
pub(super) struct GroupedScheduler<'k> {
    k: &'k Builder,
    pipeline: Pipeline,
    /// A row vector: the row where each group ends and the next begins.
    ends: Global<'k, u32>,
    /// Groups, which are matrices B.
    count: Val<'k, u32>,
    /// Tiles along n.
    tiles_n: Val<'k, u32>,
}

/// The group that a tile belongs to.
#[derive(Clone, Copy)]
pub(super) struct Group<'k> {
    /// The index of the matrix B.
    pub index: Val<'k, u32>,
    /// The row of C after its last.
    pub end: Val<'k, u32>,
}

impl<'k> GroupedScheduler<'k> {
    /// Declares the grid: one block per SM, at most one per tile. The ends of the groups are
    /// unknown at launch, so the number of tiles is an upper bound.
    pub fn declare<T: Element>(
        k: &'k Builder,
        pipeline: Pipeline,
        product: &Product<'k, T>,
        ends: Global<'k, u32>,
    ) -> Self {
        let [rows, cols, _] = pipeline.tile;
        let (m, n, _) = product.extents();
        let (count, tiles_n) = (product.b.batches(), n.div_ceil(cols));
        let max_tiles = (m / rows + count) * tiles_n;
        k.grid([max_tiles.min(k.multiprocessors()), k.constant(1), k.constant(1)]);
        GroupedScheduler { k, pipeline, ends, count, tiles_n }
    }

    /// Runs the body for each tile of the block. Tiles of all groups are assigned to blocks
    /// round-robin.
    ///
    /// The number of the next tile is relative to the group, so that the step to the next group
    /// subtracts this group's tiles.
    pub fn each(&self, body: impl FnOnce(WorkTile<'k>)) {
        let (k, [rows, cols, _]) = (self.k, self.pipeline.tile);
        let (next, begin) = (k.var(k.block_x()), k.var(0u32));
        k.for_each(0, self.count, |index| {
            let end = self.ends.load((0u32, index));
            let tiles_m = (end - begin.get()).div_ceil(rows);
            let tiles = tiles_m * self.tiles_n;
            k.while_loop(
                || next.get().lt(tiles),
                || {
                    let tile = [tiles_m, self.tiles_n];
                    let (tile_m, tile_n) = raster_order(next.get(), tile, tiles_m.min(self.pipeline.group_m));
                    let at = [begin.get() + tile_m * rows, tile_n * cols];
                    let (matrix, is_last) = (k.constant(0), k.constant(false));
                    body(WorkTile { matrix, at, is_last, stream_k: None, group: Some(Group { index, end }) });
                    next.set(next.get() + k.grid_x());
                },
            );
            next.set(next.get() - tiles);
            begin.set(end);
        });
    }
}
