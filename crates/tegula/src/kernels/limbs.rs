//! i32 on matrix units, exactly mod 2³²: each number is four bytes, its limbs, and bytes are what the units multiply.
//!
//! With a = Σ aᵢ·2⁸ⁱ and b likewise, a·b mod 2³² is the sum of the aᵢ·bⱼ·2⁸⁽ⁱ⁺ʲ⁾ with i + j ≤ 3: ten products. Those with the same i + j
//! have their own sum, which wraps mod 2³² as the result does; the four sums are shifted and added at the end.
//!
//! Numbers are split on their way to shared memory: a thread loads four that follow each other along k, exchanges rows and columns of
//! these 4×4 bytes, and stores a word to each limb's tile. So any layout will do. They are loaded when a step begins and stored when
//! it ends, into the other of two stages.

use super::blocked::{Blocked, Blocking};
use super::mma::{store, unzip};
use super::product::Product;
use crate::error::{Error, Result};
use crate::ir::prelude::*;

/// Limbs of a number, and numbers of a word of limbs.
const LIMBS: u32 = 4;
/// How far along k an instruction goes, and a step.
const DEPTH: u32 = 32;
/// Words of a limb's row of a tile.
const WORDS: u32 = DEPTH / LIMBS;
/// Rows of A (columns of B) that one load gathers.
const ROWS: u32 = 16;

/// Builds the kernel.
pub(super) fn build(variant: &Blocked) -> Result<Kernel> {
    let Blocking { block: [bm, bn, bk], warp: [wm, wn], stages, slices, .. } = variant.blocking;
    let threads = variant.blocking.threads();
    let shared_out = |outer: u32| outer.is_power_of_two() && (outer * WORDS).is_multiple_of(threads);
    let sound = bk == DEPTH && stages == 2 && slices == 1 && wm.is_multiple_of(ROWS) && wn.is_multiple_of(ROWS);
    if !sound || !shared_out(bm) || !shared_out(bn) {
        return Err(Error::KernelOption(format!("the tiles of {variant} are not shared out evenly")));
    }
    Ok(kernel(&variant.to_string(), Block::d1(threads), |k| body(k, variant)))
}

fn body(k: &Builder, variant: &Blocked) {
    let Blocking { block: [bm, bn, bk], warp: [wm, wn], blocks, .. } = variant.blocking;
    let (turned, vectors, orders) = (variant.turned(), variant.vectors, variant.orders);
    let product = Product::<i32>::of_blocks(k, variant);
    k.min_blocks(blocks);
    let (m, n, depth) = product.extents();
    let room = |name: &str, outer: u32| k.shared::<u32>(name, [2 * LIMBS * outer * WORDS]);
    let (a_room, b_room) = (room("tile_a", bm), room("tile_b", bn));
    let warps = bn / wn;
    let (warp_row, warp_col) = (k.warp() / warps * wm, k.warp() % warps * wn);
    product.for_tiles([bm, bn], depth.div_ceil(bk), |product, [tile_row, tile_col], share| {
        let (row, col) = (tile_row * bm, tile_col * bn);
        let warps = variant.blocking.threads() / 32;
        let along = |which: usize, order| orders[which] == order || orders[which] == Order2d::Strided;
        let a = Side {
            k,
            along_k: along(0, Order2d::RowMajor),
            vector: vectors[0] && orders[0] == Order2d::RowMajor,
            global: product.a,
            room: a_room,
            outer: bm,
            span: wm,
            warps,
            extent: m,
            first: row,
            depth,
            part: warp_row,
            rows: !turned[0],
            is_a: true,
        };
        let b = Side {
            along_k: along(1, Order2d::ColMajor),
            vector: vectors[1] && orders[1] == Order2d::ColMajor,
            global: product.b,
            room: b_room,
            outer: bn,
            span: wn,
            extent: n,
            first: col,
            part: warp_col,
            rows: turned[1],
            is_a: false,
            ..a
        };
        let sums = multiply(k, &a, &b, share);
        store(product, vectors[2], [wm, wn], [false; 2], sums, [row + warp_row, col + warp_col]);
    });
}

/// One operand: where it comes from, where it is staged, and which part of it a warp multiplies.
#[derive(Clone, Copy)]
struct Side<'k> {
    k: &'k Builder,
    /// Whether numbers that follow each other along k lie side by side, or those of neighbouring rows of A (columns of B) do.
    along_k: bool,
    /// Whether four along k can be loaded at once.
    vector: bool,
    global: Global<'k, i32>,
    room: Shared<'k, u32>,
    /// Rows of A (columns of B) of a tile.
    outer: u32,
    /// Those of a warp's part.
    span: u32,
    warps: u32,
    /// Those of the whole operand.
    extent: Val<'k, u32>,
    /// Where the tile begins in the operand.
    first: Val<'k, u32>,
    depth: Val<'k, u32>,
    /// Where the warp's part begins in the tile.
    part: Val<'k, u32>,
    /// Whether rows of the matrix as it was passed are rows of A (columns of B).
    rows: bool,
    is_a: bool,
}

impl<'k> Side<'k> {
    /// Where in a tile the thread's word number `which` lies: row of A (column of B) and word along k. A warp reads whole sectors, and
    /// its words meet different banks.
    fn spot(&self, which: u32) -> [Val<'k, u32>; 2] {
        let (lane, patch) = (self.k.lane(), self.k.warp() + which * self.warps);
        if self.along_k {
            return [patch * 4 + lane / WORDS, lane % WORDS];
        }
        let across = self.outer / 8;
        [patch % across * 8 + lane % 8, patch / across * 4 + lane / 8]
    }

    /// The thread's numbers of the tile that begins at `start` along k, four for each of its words. Beyond the edge those at the edge again:
    /// sums of them are never stored. Beyond the last k zeros.
    fn fetch(&self, start: Val<'k, u32>) -> Vec<[Val<'k, i32>; 4]> {
        let words = self.outer * WORDS / (self.warps * 32);
        let place = |outer, p| if self.rows { (outer, p) } else { (p, outer) };
        let fetch = |which| {
            let [outer, word] = self.spot(which);
            let (outer, p) = ((self.first + outer).min(self.extent - 1), start + word * LIMBS);
            if self.vector {
                return self.global.load_vec_if::<4>(place(outer, p), p.lt(self.depth), 0);
            }
            [0, 1, 2, 3].map(|i| self.global.load_or(place(outer, p + i), (p + i).lt(self.depth), 0))
        };
        (0..words).map(fetch).collect()
    }

    /// Stores the limbs of what was fetched.
    fn split(&self, stage: Val<'k, u32>, fetched: Vec<[Val<'k, i32>; 4]>) {
        for (which, numbers) in (0..).zip(fetched) {
            let [outer, word] = self.spot(which);
            let at = self.at(stage, outer, word / 4) + word % 4;
            let [x, y, z, w] = numbers.map(|number| number.bitcast::<u32>());
            let ([x_even, x_odd], [z_even, z_odd]) = (unzip(x, y), unzip(z, w));
            let low = |x: Val<'k, u32>, z: Val<'k, u32>| x & 0xffff | z << 16;
            let high = |x: Val<'k, u32>, z: Val<'k, u32>| x >> 16 | (z & 0xffff_0000);
            let limbs = [low(x_even, z_even), low(x_odd, z_odd), high(x_even, z_even), high(x_odd, z_odd)];
            (0..).zip(limbs).for_each(|(limb, value)| self.room.store((at + self.limb(limb),), value));
        }
    }

    /// Where a limb's tile begins.
    fn limb(&self, limb: u32) -> u32 {
        limb * self.outer * WORDS
    }

    /// Where half a row of the first limb lies: the halves of every other four rows change places, so that eight meet all banks.
    fn at(&self, stage: Val<'k, u32>, outer: Val<'k, u32>, half: Val<'k, u32>) -> Val<'k, u32> {
        stage * (LIMBS * self.outer * WORDS) + (outer * WORDS + (half ^ (outer / 4 % 2)) * 4)
    }

    /// The fragments of a limb of the warp's part: 16 rows of A (columns of B) each.
    fn load(&self, stage: Val<'k, u32>, limb: u32) -> Vec<[Val<'k, u32>; 4]> {
        let (i, j) = (self.k.lane() % 8, self.k.lane() / 8);
        // Registers of A go down the rows first, those of B along k.
        let (lower, half) = if self.is_a { (j % 2, j / 2) } else { (j / 2, j % 2) };
        let at = self.at(stage, self.part + (i + lower * 8), half);
        let fragment = |number: u32| (at + (self.limb(limb) + number * ROWS * WORDS),);
        (0..self.span / ROWS).map(|number| self.room.load_matrix::<4>(fragment(number), false)).collect()
    }
}

/// The warp's sums, 16 rows by 8 columns after each other, all of 16 rows first. `first` and `steps` say which steps along k.
fn multiply<'k>(k: &'k Builder, a: &Side<'k>, b: &Side<'k>, [first, steps]: [Val<'k, u32>; 2]) -> Array<'k, i32> {
    let (high, wide) = (a.span / ROWS, b.span / ROWS * 2);
    let count = high * wide * 4;
    // Of each shift, the lowest first.
    let sums = k.array::<i32>(LIMBS * count);
    (0..sums.len()).for_each(|i| sums.at(i).set(0));
    let fetch = |step: Val<'k, u32>| [a, b].map(|side| side.fetch((first + step) * DEPTH));
    let split = |stage: Val<'k, u32>, [of_a, of_b]: [Vec<_>; 2]| {
        a.split(stage, of_a);
        b.split(stage, of_b);
        k.barrier();
    };
    split(k.constant(0), fetch(k.constant(0)));
    k.for_each(0, steps, |step| {
        let next = fetch(step + 1);
        let now = step % 2;
        let of_b: Vec<_> = (0..LIMBS).map(|limb| b.load(now, limb)).collect();
        for limb in 0..LIMBS {
            for (i, of_a) in (0..).zip(a.load(now, limb)) {
                for (other, j) in (0..LIMBS - limb).flat_map(|other| (0..wide).map(move |j| (other, j))) {
                    let of_b = &of_b[other as usize][j as usize / 2][(j % 2 * 2) as usize..][..2];
                    let sums = sums.part((limb + other) * count + (i * wide + j) * 4, 4);
                    k.mma(Mma::U8, &of_a, of_b, sums);
                }
            }
        }
        split(now ^ 1, next);
    });
    for i in 0..count {
        let sum = |shift: u32| sums.at(shift * count + i).get();
        let walk = (0..LIMBS - 1).rev().fold(sum(LIMBS - 1), |total, shift| (total << 8) + sum(shift));
        sums.at(i).set(walk);
    }
    sums.part(0, count)
}
