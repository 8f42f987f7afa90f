//! The epilogue of a tile: accumulators go through shared memory to C in subtiles of 64 rows and
//! some columns, by TMA or line by line. Independent of the main loop and of the tile scheduler.

use tegula_core::epilogue::BiasShape;
use tegula_ir::prelude::*;

use super::stream_k::StreamKWorkspace;
use super::{CONSUMER_BARRIER, Hopper, WARPGROUP, WARPS};
use crate::blocked::Schedule;
use crate::epilogue::for_each_subtile;
use crate::product::Product;

/// The store of a tile's accumulators to C.
pub(super) struct EpilogueStore<'k, T: Element> {
    k: &'k Builder,
    pub product: Product<'k, T>,
    /// The tensor map of C, if TMA stores it.
    pub tensor: Option<Tensor<'k, T::Out>>,
    /// The staging tiles; none for split-K partial sums.
    tiles: Option<Shared<'k, T::Out>>,
    /// The stream-K workspace, if any.
    pub workspace: Option<StreamKWorkspace<'k>>,
    /// The next of two staging tiles of a consumer.
    next: Var<'k, u32>,
    /// Staging tiles of a consumer.
    buffers: u32,
    /// Columns of a staging tile.
    cols: u32,
    /// Accumulators of a thread in 64 rows.
    accumulators: u32,
    /// Whether C and the staging tiles are column-major.
    column_major: bool,
}

impl<'k, T: Element<Acc = f32>> EpilogueStore<'k, T> {
    pub fn declare(k: &'k Builder, variant: &Hopper, operands: [Global<'k, T>; 2]) -> Self {
        let (order, [_, tile_cols, _]) = (variant.orders[2], variant.pipeline.tile);
        let column_major = order == Order2d::ColMajor;
        let cols = variant.subtile_cols().unwrap_or(16);
        let swizzle = match cols {
            64 => Swizzle::B128,
            _ if column_major => Swizzle::B128,
            32 => Swizzle::B64,
            16 => Swizzle::B32,
            // Rows of an odd number of 16-byte units reach all banks; rows of six have two-way
            // conflicts.
            _ => Swizzle::None,
        };
        let tile = Tiles { rows: 64, cols, swizzle, clipped: false };
        let tensor = variant.tma_store.then(|| k.tensor::<T::Out>("c", Access::ReadWrite, order, tile));
        let is_output = variant.schedule != Schedule::SplitK;
        let elements = || k.matrix("c", Access::ReadWrite, order, 1);
        let c = is_output.then(|| tensor.map_or_else(elements, Tensor::elements));
        let workspace = (variant.schedule == Schedule::StreamK).then(|| StreamKWorkspace::declare(k));
        let product = Product::for_pipeline(
            k,
            &variant.to_string(),
            operands,
            c,
            variant.pipeline.fragment_layout(),
            variant.epilogue,
        );
        let buffers = variant.pipeline.staging_tiles();
        let (slots, lines) = (buffers * variant.pipeline.consumers, tile.lines(order));
        let tiles = is_output.then(|| k.tiles("tile_c", slots, lines, swizzle));
        let next = k.var(0u32);
        let accumulators = tile_cols / 2;
        EpilogueStore { k, product, tensor, tiles, workspace, next, buffers, cols, accumulators, column_major }
    }

    /// Stores the rows of a consumer, 64 at a time, from the accumulators given and the index of
    /// the first.
    pub fn store(
        &self,
        product: &Product<'k, T>,
        matrix: Val<'k, u32>,
        consumer: Val<'k, u32>,
        [row, col]: [Val<'k, u32>; 2],
        (accumulators, first): (Array<'k, f32>, u32),
    ) {
        let k = self.k;
        let Some(tiles) = self.tiles else {
            return product.store_partial_fragment([row, col], (accumulators, first));
        };
        let (each, subtiles_n) = (self.cols / 2, self.accumulators / (self.cols / 2));
        let subtiles = accumulators.len() / each;
        let all = |tensor: Option<Tensor<'k, T::Out>>| {
            let store_subtile = |reads_c: Option<bool>| {
                move |subtile: Val<'k, u32>, accumulators: Array<'k, f32>| {
                    let buffer = self.buffer(subtile, subtiles);
                    let subtile = subtile + first / each;
                    let at = [row + subtile / subtiles_n * Wgmma::M, col + subtile % subtiles_n * self.cols];
                    self.store_subtile(
                        product,
                        (tiles, tensor),
                        (matrix, consumer, buffer),
                        at,
                        (accumulators, reads_c),
                    );
                }
            };
            // A long epilogue is emitted once, not per subtile, since instruction caches are small;
            // a rare one, since assembly takes time.
            if product.has_long_epilogue() || tensor.is_none() {
                for_each_subtile(k, accumulators, subtiles, store_subtile(None));
            } else {
                k.if_else(
                    product.reads_c(),
                    || for_each_subtile(k, accumulators, subtiles, store_subtile(Some(true))),
                    || {
                        (0..subtiles).for_each(|i| {
                            store_subtile(Some(false))(k.constant(i), accumulators.slice(i * each, each));
                        });
                    },
                );
            }
        };
        match (self.tensor, product.group_end()) {
            // TMA would also store the rows past the group's end, which belong to the next group.
            // And where rows are contiguous along the staging tile's lines, TMA addresses must be
            // multiples of 16 bytes, but groups begin anywhere.
            (Some(tensor), Some(end)) => {
                let rows = accumulators.len() / self.accumulators * Wgmma::M;
                let unit = if self.column_major { 16 / size_of::<T::Out>() as u32 } else { 1 };
                k.if_else((row + rows).le(end) & (row % unit).eq(0), || all(Some(tensor)), || all(None));
            }
            (tensor, _) => all(tensor),
        }
    }

    /// The staging tile of a consumer for a subtile: two alternate, also across tiles of C.
    fn buffer(&self, subtile: Val<'k, u32>, subtiles: u32) -> Val<'k, u32> {
        if self.buffers == 1 {
            return self.k.constant(0);
        }
        if subtiles.is_multiple_of(2) {
            return subtile % 2;
        }
        let buffer = self.next.get();
        self.next.set(buffer ^ 1);
        buffer
    }

    /// Stores a subtile through a staging tile: by TMA with a tensor map of C, else line by line.
    fn store_subtile(
        &self,
        product: &Product<'k, T>,
        (tiles, tensor): (Shared<'k, T::Out>, Option<Tensor<'k, T::Out>>),
        (matrix, consumer, buffer): (Val<'k, u32>, Val<'k, u32>, Val<'k, u32>),
        [row, col]: [Val<'k, u32>; 2],
        (accumulators, reads_c): (Array<'k, f32>, Option<bool>),
    ) {
        let (k, first) = (self.k, self.k.thread_x() % WARPGROUP);
        let slot = consumer * self.buffers + buffer;
        if self.tensor.is_some() {
            // TMA has read this staging tile.
            k.when(first.eq(0), || k.bulk_wait_group_read(self.buffers - 1));
        }
        // The other warps have copied the lines of a single staging tile.
        if self.tensor.is_some() || self.buffers == 1 {
            self.sync_consumer(consumer);
        }
        self.fill(product, tiles, slot, self.thread_origin(row, col), (accumulators, reads_c));
        if let Some(tensor) = tensor {
            k.fence_proxy_async();
            self.sync_consumer(consumer);
            k.when(first.eq(0), || {
                tiles.tma_store(slot, tensor, (matrix, row, col));
                k.bulk_commit_group();
            });
        } else {
            // The next fill of this staging tile is after another barrier, when it has been read:
            // the barrier of the other staging tile, or the one above.
            self.sync_consumer(consumer);
            self.copy_lines(product, tiles, slot, [row, col]);
            if self.tensor.is_some() {
                // A subtile without a TMA store commits an empty bulk group, which the waits count.
                k.when(first.eq(0), || k.bulk_commit_group());
            }
        }
    }

    /// The row and column of a thread's first accumulator, of 64 rows that begin at `row`.
    fn thread_origin(&self, row: Val<'k, u32>, col: Val<'k, u32>) -> [Val<'k, u32>; 2] {
        let lane = self.k.lane();
        [row + self.k.warp() % WARPS * 16 + lane / 4, col + lane % 4 * 2]
    }

    /// Writes the warp's part of a staging tile. `reads_c`: whether C is read, if known here.
    fn fill(
        &self,
        product: &Product<'k, T>,
        tiles: Shared<'k, T::Out>,
        slot: Val<'k, u32>,
        [row, col]: [Val<'k, u32>; 2],
        (accumulators, reads_c): (Array<'k, f32>, Option<bool>),
    ) {
        let (matrix, line) = (self.k.lane() / 8, self.k.lane() % 8);
        let epilogue = product.epilogue();
        // A thread has accumulators of two rows, and two of each column.
        let bias = |at| epilogue.bias_at(at).unwrap_or_else(|| self.k.constant(0.0));
        let of_rows =
            (epilogue.bias_shape() == Some(BiasShape::Column)).then(|| [0, 8].map(|offset| bias(row + offset)));
        for group in (0..self.cols / 2).step_by(8) {
            let pairs = (self.cols / 2 - group).min(8) / 4;
            let of_cols = (epilogue.bias_shape() == Some(BiasShape::Row)).then(|| {
                let cols = (0..pairs).map(|i| col + group * 2 + i * 8);
                cols.map(|col| [bias(col), bias(col + 1)]).collect::<Vec<_>>()
            });
            // A thread's pairs, in the order of the 8×8 matrices of `stmatrix`.
            let position = |pair: u32| (row + pair % 2 * 8, col + group * 2 + pair / 2 * 8);
            let value = |pair: u32| {
                let values = [0, 1].map(|i| accumulators.at(group + pair * 2 + i).get());
                let of_row = of_rows.map(|bias| [bias[(pair % 2) as usize]; 2]);
                product.scale_pair(values, of_row.or_else(|| of_cols.as_ref().map(|bias| bias[(pair / 2) as usize])))
            };
            let aligned = self.tensor.is_some() && !self.column_major;
            let add_c = |pair: u32, values| product.add_c(position(pair), values, aligned);
            let values: Vec<[Val<'k, f32>; 2]> = match reads_c {
                Some(false) => (0..pairs * 2).map(value).collect(),
                Some(true) => (0..pairs * 2).map(|pair| add_c(pair, value(pair))).collect(),
                None => {
                    let vars: Vec<_> = (0..pairs * 2).map(|pair| value(pair).map(|value| self.k.var(value))).collect();
                    self.k.when(product.reads_c(), || {
                        for (pair, var) in (0..).zip(&vars) {
                            let values = add_c(pair, [0, 1].map(|i| var[i].get()));
                            (0..2).for_each(|i| var[i].set(values[i]));
                        }
                    });
                    vars.iter().map(|var| [0, 1].map(|i| var[i].get())).collect()
                }
            };
            let pair = |pair: usize| {
                let [x, y] = values[pair].map(|value| epilogue.activate(value));
                x.pack(y)
            };
            // 8×8 matrices: the upper and the lower rows, of one column of matrices and, unless it
            // is the last, of the next.
            let row = self.k.warp() % WARPS * 16 + matrix % 2 * 8;
            let tile_coord =
                |col: Val<'k, u32>| if self.column_major { (slot, col + line, row) } else { (slot, row + line, col) };
            if group + 4 == self.cols / 2 {
                tiles.store_matrix(tile_coord(self.k.constant(group * 2)), [pair(0), pair(1)], self.column_major);
            } else {
                let at = tile_coord(matrix / 2 * 8 + group * 2);
                tiles.store_matrix(at, [pair(0), pair(1), pair(2), pair(3)], self.column_major);
            }
        }
    }

    /// Copies a staging tile to C line by line, with bounds checks.
    fn copy_lines(
        &self,
        product: &Product<'k, T>,
        tiles: Shared<'k, T::Out>,
        slot: Val<'k, u32>,
        [row, col]: [Val<'k, u32>; 2],
    ) {
        let k = self.k;
        let [lines, line] = if self.column_major { [self.cols, 64] } else { [64, self.cols] };
        for i in 0..lines / WARPS {
            let line_index = k.warp() % WARPS + i * WARPS;
            for first in (0..line).step_by(32) {
                let at = k.lane() + first;
                let (row, col) =
                    if self.column_major { (row + at, col + line_index) } else { (row + line_index, col + at) };
                product.store_converted((row, col), tiles.load((slot, line_index, at.min(line - 1))), at.lt(line));
            }
        }
    }

    /// A barrier of the threads of a consumer.
    fn sync_consumer(&self, consumer: Val<'k, u32>) {
        self.k.named_barrier(consumer + CONSUMER_BARRIER, WARPGROUP);
    }

    /// Waits until TMA has read the staging tiles, before the block exits.
    pub fn drain(&self) {
        if self.tensor.is_some() {
            self.k.when((self.k.thread_x() % WARPGROUP).eq(0), || self.k.bulk_wait_group_read(0));
            self.k.sync_warp(FULL_WARP);
        }
    }
}
