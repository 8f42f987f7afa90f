//! Which tiles fall to a block where each group of rows of A has a matrix B of its own. It knows where tiles lie, not what becomes of them.

use tegula_ir::prelude::*;

use super::{Job, Pipeline};
use crate::blocked::grouped;
use crate::product::Product;

/// The groups, one after the other in A and C.
pub(super) struct Groups<'k> {
    k: &'k Builder,
    pipeline: Pipeline,
    /// A row: where each group ends, which is where the next begins.
    ends: Global<'k, u32>,
    /// As many as there are matrices B.
    count: Val<'k, u32>,
    /// Tiles along n.
    tiles_n: Val<'k, u32>,
}

/// The group that a tile belongs to.
#[derive(Clone, Copy)]
pub(super) struct Group<'k> {
    /// Which of the matrices B.
    pub number: Val<'k, u32>,
    /// The row of C where it ends.
    pub end: Val<'k, u32>,
}

impl<'k> Groups<'k> {
    /// Says how many blocks there are: one on each multiprocessor, if there may be so many tiles. (Where the groups end, the grid cannot know.)
    pub fn declare<T: Element>(
        k: &'k Builder,
        pipeline: Pipeline,
        product: &Product<'k, T>,
        ends: Global<'k, u32>,
    ) -> Self {
        let [rows, cols, _] = pipeline.tile;
        let (m, n, _) = product.extents();
        let (count, tiles_n) = (product.b.batches(), n.div_ceil(cols));
        let most = (m / rows + count) * tiles_n;
        k.grid([most.min(k.multiprocessors()), k.constant(1), k.constant(1)]);
        Groups { k, pipeline, ends, count, tiles_n }
    }

    /// The body for each tile of the block: the tiles of all groups are dealt out in turn. The next one's number counts from the first tile of
    /// the group, so that going on to the next group takes off what this one has.
    pub fn each(&self, body: impl FnOnce(Job<'k>)) {
        let (k, [rows, cols, _]) = (self.k, self.pipeline.tile);
        let (next, begin) = (k.var(k.block_x()), k.var(0u32));
        k.for_each(0, self.count, |number| {
            let end = self.ends.load((0u32, number));
            let tiles_m = (end - begin.get()).div_ceil(rows);
            let tiles = tiles_m * self.tiles_n;
            k.while_loop(
                || next.get().lt(tiles),
                || {
                    let tile = [tiles_m, self.tiles_n];
                    let (tile_m, tile_n) = grouped(next.get(), tile, tiles_m.min(self.pipeline.group));
                    let at = [begin.get() + tile_m * rows, tile_n * cols];
                    let (matrix, is_last) = (k.constant(0), k.constant(false));
                    body(Job { matrix, at, is_last, portion: None, group: Some(Group { number, end }) });
                    next.set(next.get() + k.grid_x());
                },
            );
            next.set(next.get() - tiles);
            begin.set(end);
        });
    }
}
