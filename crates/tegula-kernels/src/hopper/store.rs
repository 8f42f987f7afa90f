//! The end of a tile: sums go through shared memory to C, some columns at a time, by the copy engine or line by line. It knows neither where sums come from
//! nor what a block does next.

use tegula_core::epilogue::Along;
use tegula_ir::prelude::*;

use super::balance::Parts;
use super::{GROUP, Hopper, MEETING, WARPS};
use crate::blocked::Schedule;
use crate::epilogue::in_rounds;
use crate::product::Product;

/// The end of a tile.
pub(super) struct Store<'k, T: Element> {
    k: &'k Builder,
    pub product: Product<'k, T>,
    /// C, where the copy engine stores it.
    pub tensor: Option<Tensor<'k, T::Out>>,
    /// Through which sums go to C, but not those of a part of k: each consumer has two tiles, one of which is filled while the other is stored.
    tiles: Option<Shared<'k, T::Out>>,
    /// Through which blocks give each other sums, where they share tiles evenly.
    pub parts: Option<Parts<'k>>,
    /// Which of the two is next.
    next: Var<'k, u32>,
    /// Columns of such a tile.
    cols: u32,
    /// Sums of a thread in 64 rows.
    sums: u32,
    /// Whether C has columns: then so have the tiles.
    turned: bool,
}

impl<'k, T: Element<Acc = f32>> Store<'k, T> {
    pub fn declare(k: &'k Builder, variant: &Hopper, factors: [Global<'k, T>; 2]) -> Self {
        let (order, [_, all, _]) = (variant.orders[2], variant.pipeline.tile);
        let turned = order == Order2d::ColMajor;
        let cols = variant.store_cols().unwrap_or(16);
        let swizzle = match cols {
            64 => Swizzle::B128,
            _ if turned => Swizzle::B128,
            32 => Swizzle::B64,
            16 => Swizzle::B32,
            // Rows of an odd number of 16 bytes meet all banks as they are; of six, each twice.
            _ => Swizzle::None,
        };
        let tile = Tiles { rows: 64, cols, swizzle };
        let tensor = variant.stores_tiles.then(|| k.tensor::<T::Out>("c", Access::ReadWrite, order, tile));
        let whole = variant.schedule != Schedule::Parts;
        let single = || k.matrix("c", Access::ReadWrite, order, 1);
        let c = whole.then(|| tensor.map_or_else(single, Tensor::elements));
        let parts = (variant.schedule == Schedule::Balanced).then(|| Parts::declare(k));
        let product =
            Product::of_tiles(k, &variant.to_string(), factors, c, variant.pipeline.fragments(), variant.epilogue);
        let (room, lines) = (2 * variant.pipeline.consumers, tile.lines(order));
        let tiles = whole.then(|| k.tiles("tile_c", room, lines, swizzle));
        Store { k, product, tensor, tiles, parts, next: k.var(0u32), cols, sums: all / 2, turned }
    }

    /// Stores the rows of a consumer, 64 at a time: all sums or, where blocks share them, those from one on.
    pub fn store(
        &self,
        product: &Product<'k, T>,
        number: Val<'k, u32>,
        consumer: Val<'k, u32>,
        [row, col]: [Val<'k, u32>; 2],
        (sums, first): (Array<'k, f32>, u32),
    ) {
        let k = self.k;
        let Some(tiles) = self.tiles else {
            return product.store_fragment([row, col], (sums, first));
        };
        let (each, across) = (self.cols / 2, self.sums / (self.cols / 2));
        let rounds = sums.len() / each;
        let all = |tensor: Option<Tensor<'k, T::Out>>| {
            let round = |adds: Option<bool>| {
                move |round: Val<'k, u32>, sums: Array<'k, f32>| {
                    let turn = self.turn(round, rounds);
                    let round = round + first / each;
                    let at = [row + round / across * Wgmma::M, col + round % across * self.cols];
                    self.store_tile(product, (tiles, tensor), (number, consumer, turn), at, (sums, adds));
                }
            };
            // Of what is long there is the code of one round, since instruction caches are small; of what is rare, since assembling takes its time.
            if product.ends_long() || tensor.is_none() {
                in_rounds(k, sums, rounds, round(None));
            } else {
                k.if_else(
                    product.adds_to_c(),
                    || in_rounds(k, sums, rounds, round(Some(true))),
                    || (0..rounds).for_each(|i| round(Some(false))(k.constant(i), sums.part(i * each, each))),
                );
            }
        };
        match (self.tensor, product.end()) {
            // The copy engine would store the sums behind a group's end as well, where the next one's rows are; and where these lie along its lines,
            // it stores from multiples of 16 bytes on, and groups begin anywhere.
            (Some(tensor), Some(end)) => {
                let rows = sums.len() / self.sums * Wgmma::M;
                let unit = if self.turned { 16 / size_of::<T::Out>() as u32 } else { 1 };
                k.if_else((row + rows).le(end) & (row % unit).eq(0), || all(Some(tensor)), || all(None));
            }
            (tensor, _) => all(tensor),
        }
    }

    /// Which of its two tiles in shared memory a consumer fills in a round: they take turns, also from one tile of C to the next.
    fn turn(&self, round: Val<'k, u32>, rounds: u32) -> Val<'k, u32> {
        if rounds.is_multiple_of(2) {
            return round % 2;
        }
        let turn = self.next.get();
        self.next.set(turn ^ 1);
        turn
    }

    /// Stores what fits in a tile in shared memory, by the copy engine where it is given C, else line by line.
    fn store_tile(
        &self,
        product: &Product<'k, T>,
        (tiles, tensor): (Shared<'k, T::Out>, Option<Tensor<'k, T::Out>>),
        (number, consumer, turn): (Val<'k, u32>, Val<'k, u32>, Val<'k, u32>),
        [row, col]: [Val<'k, u32>; 2],
        (sums, adds): (Array<'k, f32>, Option<bool>),
    ) {
        let (k, first) = (self.k, self.k.thread_x() % GROUP);
        let slot = consumer * 2 + turn;
        if self.tensor.is_some() {
            // What was in this tile two turns ago has been read.
            k.when(first.eq(0), || k.await_reads(1));
            self.meet(consumer);
        }
        self.fill(product, tiles, slot, self.own(row, col), (sums, adds));
        if let Some(tensor) = tensor {
            k.fence_proxy();
            self.meet(consumer);
            k.when(first.eq(0), || {
                tiles.store_tile(slot, tensor, (number, row, col));
                k.commit_stores();
            });
        } else {
            // Whoever fills this tile again has met the others once more, after they read it.
            self.meet(consumer);
            self.copy(product, tiles, slot, [row, col]);
            if self.tensor.is_some() {
                // A turn without a store is one of those that are counted when others are awaited.
                k.when(first.eq(0), || k.commit_stores());
            }
        }
    }

    /// Where a thread's first sum is, of 64 rows that begin there.
    fn own(&self, row: Val<'k, u32>, col: Val<'k, u32>) -> [Val<'k, u32>; 2] {
        let lane = self.k.lane();
        [row + self.k.warp() % WARPS * 16 + lane / 4, col + lane % 4 * 2]
    }

    /// Writes the warp's part of a tile; `adds` says whether C is read, where that is known before.
    fn fill(
        &self,
        product: &Product<'k, T>,
        tiles: Shared<'k, T::Out>,
        slot: Val<'k, u32>,
        [row, col]: [Val<'k, u32>; 2],
        (sums, adds): (Array<'k, f32>, Option<bool>),
    ) {
        let (matrix, line) = (self.k.lane() / 8, self.k.lane() % 8);
        let ending = product.ending();
        // A thread has sums of two rows only, and of each column two.
        let bias = |at| ending.bias_at(at).unwrap_or_else(|| self.k.constant(0.0));
        let of_rows = (ending.biased() == Some(Along::Columns)).then(|| [0, 8].map(|down| bias(row + down)));
        for group in (0..self.cols / 2).step_by(8) {
            let pairs = (self.cols / 2 - group).min(8) / 4;
            let of_cols = (ending.biased() == Some(Along::Rows)).then(|| {
                let right = (0..pairs).map(|right| col + group * 2 + right * 8);
                right.map(|col| [bias(col), bias(col + 1)]).collect::<Vec<_>>()
            });
            // The pairs of a thread, in the order in which matrices of 8×8 have them.
            let place = |pair: u32| (row + pair % 2 * 8, col + group * 2 + pair / 2 * 8);
            let value = |pair: u32| {
                let sums = [0, 1].map(|i| sums.at(group + pair * 2 + i).get());
                let of_row = of_rows.map(|of| [of[(pair % 2) as usize]; 2]);
                product.scaled(sums, of_row.or_else(|| of_cols.as_ref().map(|of| of[(pair / 2) as usize])))
            };
            let aligned = self.tensor.is_some() && !self.turned;
            let plus_c = |pair: u32, values| product.plus_c(place(pair), values, aligned);
            let values: Vec<[Val<'k, f32>; 2]> = match adds {
                Some(false) => (0..pairs * 2).map(value).collect(),
                Some(true) => (0..pairs * 2).map(|pair| plus_c(pair, value(pair))).collect(),
                None => {
                    let kept: Vec<_> = (0..pairs * 2).map(|pair| value(pair).map(|value| self.k.var(value))).collect();
                    self.k.when(product.adds_to_c(), || {
                        for (pair, kept) in (0..).zip(&kept) {
                            let values = plus_c(pair, [0, 1].map(|i| kept[i].get()));
                            (0..2).for_each(|i| kept[i].set(values[i]));
                        }
                    });
                    kept.iter().map(|kept| [0, 1].map(|i| kept[i].get())).collect()
                }
            };
            let pair = |pair: usize| {
                let [x, y] = values[pair].map(|value| ending.activated(value));
                x.pack(y)
            };
            // Matrices of 8×8: the upper and the lower rows, of one column of matrices and, unless it is the last, of the next.
            let row = self.k.warp() % WARPS * 16 + matrix % 2 * 8;
            let tile_place =
                |col: Val<'k, u32>| if self.turned { (slot, col + line, row) } else { (slot, row + line, col) };
            if group + 4 == self.cols / 2 {
                tiles.store_matrix(tile_place(self.k.constant(group * 2)), [pair(0), pair(1)], self.turned);
            } else {
                let at = tile_place(matrix / 2 * 8 + group * 2);
                tiles.store_matrix(at, [pair(0), pair(1), pair(2), pair(3)], self.turned);
            }
        }
    }

    /// Copies a tile to C, a line of it after the other, as far as it lies inside.
    fn copy(
        &self,
        product: &Product<'k, T>,
        tiles: Shared<'k, T::Out>,
        slot: Val<'k, u32>,
        [row, col]: [Val<'k, u32>; 2],
    ) {
        let k = self.k;
        let [lines, line] = if self.turned { [self.cols, 64] } else { [64, self.cols] };
        for i in 0..lines / WARPS {
            let of_line = k.warp() % WARPS + i * WARPS;
            for first in (0..line).step_by(32) {
                let at = k.lane() + first;
                let (row, col) = if self.turned { (row + at, col + of_line) } else { (row + of_line, col + at) };
                product.put((row, col), tiles.load((slot, of_line, at.min(line - 1))), at.lt(line));
            }
        }
    }

    /// The threads of a consumer meet.
    fn meet(&self, consumer: Val<'k, u32>) {
        self.k.named_barrier(consumer + MEETING, GROUP);
    }

    /// Shared memory is not given up before it has been read.
    pub fn finish(&self) {
        if self.tensor.is_some() {
            self.k.when((self.k.thread_x() % GROUP).eq(0), || self.k.await_reads(0));
            self.k.sync_warp(FULL_WARP);
        }
    }
}
