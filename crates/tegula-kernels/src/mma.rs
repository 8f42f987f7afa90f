//! Short numbers on matrix units: tiles in shared memory, filled asynchronously a few steps ahead, multiplied by whole warps.
//!
//! * **Sixteen bytes are the unit.** An instruction takes 32 bytes along k, whatever the type, and a load for the whole warp gathers
//!   rows of 16 bytes: so tiles are rows of such pieces, and types differ by how many elements fit in one.
//! * **Rows or columns.** What lies along k is loaded as it lies. 16-bit numbers that lie along rows or columns are transposed by the load.
//!   Other types, and operands that cannot be taken 16 bytes at once, are packed along k first; f32 is rounded to tf32 then.
//! * **No two of eight pieces want one bank.** Pieces change places within 128 bytes, depending on their row.
//! * **A warp always has something to multiply.** Fragments are loaded one slab of k ahead, also across the one barrier of a step.

use std::ops::{Div, Rem};

use tegula_core::error::{Error, Result};
use tegula_ir::prelude::*;

use super::blocked::{Blocked, Blocking};
use super::epilogue::in_rounds;
use super::product::Product;
use super::stage::around;

/// Bytes that rows are made of, and that an instruction takes along k.
const PIECE: u32 = 16;
const SLAB: u32 = 32;
/// Pieces in which all banks of shared memory take part.
const LINE: u32 = 8;
/// Rows (columns) that one load gathers.
pub(super) const ROWS: u32 = 16;

/// Builds the kernel, with the instruction of the type.
pub(super) fn build<T: Element>(variant: &Blocked, mma: Mma) -> Result<Kernel> {
    let Blocking { block: [bm, bn, bk], warp: [wm, wn], slices, .. } = variant.blocking;
    let threads = variant.blocking.threads();
    let binary = [bm, bn, bk, wm, wn, threads].iter().all(|size| size.is_power_of_two());
    let enough = wm >= ROWS && wn >= ROWS && threads >= 128 && bk * bytes::<T>() >= 2 * SLAB && slices == 1;
    if !binary || !enough || bm.min(bn) * bk * bytes::<T>() < threads * PIECE {
        return Err(Error::KernelOption(format!("the tiles of {variant} are not shared out evenly")));
    }
    if !(0..2).all(|which| variant.loads(which)) {
        return Err(Error::KernelOption(format!(
            "{variant} takes pieces of 16 bytes along k, or transposes 16-bit numbers"
        )));
    }
    Ok(kernel(&variant.to_string(), Block::d1(threads), |k| {
        body::<T>(k, variant, |a, b, share| multiply(k, variant.blocking, mma, a, b, share));
    }))
}

/// Bytes of an element.
fn bytes<T>() -> u32 {
    size_of::<T>() as u32
}

/// The kernel, given what makes a warp's sums of the steps along k that fall to a block.
pub(super) fn body<'k, T: Element>(
    k: &'k Builder,
    variant: &Blocked,
    multiply: impl FnOnce(&Side<'k, T>, &Side<'k, T>, [Val<'k, u32>; 2]) -> Array<'k, T::Acc>,
) {
    let Blocking { block: [bm, bn, bk], warp: [wm, wn], stages, blocks, .. } = variant.blocking;
    let (turned, orders) = (variant.turned(), variant.orders);
    let product = Product::<T>::of_blocks(k, variant);
    k.min_blocks(blocks);
    let depth = product.depth();
    let tile = |order: Order2d, along_k: Order2d, outer: u32| {
        let along_k = order == along_k;
        Tile {
            along_k,
            rows: if along_k { outer } else { bk },
            row: if along_k { bk } else { outer },
            size: bytes::<T>(),
        }
    };
    let a_tile = tile(orders[0], Order2d::RowMajor, bm);
    let b_tile = tile(orders[1], Order2d::ColMajor, bn);
    let a_room = k.shared::<T>("tile_a", [stages * bk * bm]);
    let b_room = k.shared::<T>("tile_b", [stages * bk * bn]);
    let warps = bn / wn;
    let (warp_row, warp_col) = (k.warp() / warps * wm, k.warp() % warps * wn);
    product.for_tiles([bm, bn], depth.div_ceil(bk), |product, [tile_row, tile_col], share| {
        let (row, col) = (tile_row * bm, tile_col * bn);
        let [(rows, _), (cols, _)] = product.sides();
        let side = |is_a: bool, global, tile, room, span, [first, extent, part]: [Val<'k, u32>; 3]| Side {
            k,
            tile,
            threads: variant.blocking.threads(),
            global,
            room,
            span,
            extent,
            first,
            depth,
            part,
            is_a,
            turned: turned[usize::from(!is_a)],
        };
        let a = side(true, product.a, a_tile, a_room, wm, [row, rows, warp_row]);
        let b = side(false, product.b, b_tile, b_room, wn, [col, cols, warp_col]);
        let sums = multiply(&a, &b, share);
        store(product, variant.vectors[2], [wm, wn], sums, [row + warp_row, col + warp_col]);
    });
}

/// How a tile of A or B lies in shared memory.
#[derive(Clone, Copy)]
struct Tile {
    /// Whether its rows run along k; else there is a row for each k.
    along_k: bool,
    rows: u32,
    /// Elements of a row.
    row: u32,
    /// Bytes of an element.
    size: u32,
}

impl Tile {
    /// Elements of all of it.
    fn len(&self) -> u32 {
        self.rows * self.row
    }

    /// Elements of a piece.
    fn piece(&self) -> u32 {
        PIECE / self.size
    }

    /// What a row's pieces change places by: this field of the bits of its number. A load gathers eight rows in a row.
    fn swizzle<N>(&self, row: N) -> N
    where
        N: Div<u32, Output = N> + Rem<u32, Output = N>,
    {
        let pieces = self.row / self.piece();
        row / (LINE / pieces).max(1) % pieces.min(LINE)
    }
}

/// One operand: where it comes from, where it is staged, and which part of it a warp multiplies.
pub(super) struct Side<'k, T: Element> {
    k: &'k Builder,
    tile: Tile,
    threads: u32,
    global: Global<'k, T>,
    room: Shared<'k, T>,
    /// Rows of A (columns of B) of a warp's part.
    pub span: u32,
    /// Those of the whole operand.
    extent: Val<'k, u32>,
    /// Where the tile begins in the operand.
    first: Val<'k, u32>,
    depth: Val<'k, u32>,
    /// Where the warp's part begins in the tile.
    part: Val<'k, u32>,
    is_a: bool,
    /// Whether it was passed transposed.
    turned: bool,
}

impl<'k, T: Element> Side<'k, T> {
    /// How many copies a thread makes of a tile.
    pub fn copies(&self) -> u32 {
        self.tile.len() / (self.threads * self.tile.piece())
    }

    /// Starts the thread's copy number `which` of the tile that begins at `start` along k, to a stage. Beyond the edge, the rows of A
    /// (columns of B) begin again: sums of them are never stored. Beyond the last k there are zeros.
    pub fn copy(&self, start: Val<'k, u32>, stage: Val<'k, u32>, which: u32) {
        let (Tile { row, along_k, .. }, piece) = (self.tile, self.tile.piece());
        // Which row, which piece of it: each as what the thread knows and what the round adds. All are powers of 2, so that bits of
        // the two never meet.
        let (thread, round) = (self.k.thread_x() * piece, which * self.threads * piece);
        let (line, element, more, aside) = (thread / row, thread % row, round / row, round % row);
        let moved = (element / piece) ^ self.tile.swizzle(line) ^ self.tile.swizzle(more);
        let to = stage * self.tile.len() + (line * row + moved * piece) + (more * row + aside);
        let (line, element) = (line + more, element + aside);
        let (outer, p) = if along_k { (line, element) } else { (element, line) };
        let (outer, p) = (around(self.first + outer, self.extent, if along_k { 1 } else { piece }), start + p);
        let at = if self.is_a != self.turned { (outer, p) } else { (p, outer) };
        self.room.copy_async((to,), self.global, at, piece, Builder::guard(p.lt(self.depth)));
    }

    /// What the lane needs of 16 rows of A (columns of B) and a slab of k: four registers of A, or two for each 8 columns of B.
    pub fn load(&self, stage: Val<'k, u32>, fragment: u32, slab: u32) -> [Val<'k, u32>; 4] {
        let (Tile { row, size, along_k, .. }, piece) = (self.tile, self.tile.piece());
        let (i, j, base) = (self.k.lane() % 8, self.k.lane() / 8, stage * self.tile.len());
        // Registers of A go down the rows first, those of B along k.
        let (outer, deep) = if self.is_a { (j % 2, j / 2) } else { (j / 2, j % 2) };
        // The lane's row, its piece, and what the slab and the fragment add to both.
        let (line, first, more, aside) = if along_k {
            (self.part + (i + outer * 8), deep, fragment * ROWS, slab * (SLAB / PIECE))
        } else {
            (i + deep * 8, self.part / piece + outer, slab * (SLAB / size), fragment * (ROWS / piece))
        };
        let moved = first ^ self.tile.swizzle(line) ^ (aside % LINE);
        let at = base + (line * row + moved * piece) + (more * row + aside / LINE * LINE * piece);
        self.room.load_matrix::<4>((at,), !along_k)
    }
}

/// Variables that hold what the lane multiplies next.
#[derive(Clone, Copy)]
pub(super) struct Fragment<'k>(Array<'k, u32>);

impl<'k> Fragment<'k> {
    pub fn set(self, values: [Val<'k, u32>; 4]) {
        (0..).zip(values).for_each(|(i, value)| self.0.at(i).set(value));
    }

    pub fn get(self) -> [Val<'k, u32>; 4] {
        [0, 1, 2, 3].map(|i| self.0.at(i).get())
    }
}

/// So many fragments.
pub(super) fn fragments<'k>(k: &'k Builder, count: u32) -> Vec<Fragment<'k>> {
    (0..count).map(|_| Fragment(k.array(4))).collect()
}

/// The warp's sums, 16 rows by 8 columns after each other, all of 16 rows first. `first` and `steps` say which steps along k.
fn multiply<'k, T: Element>(
    k: &'k Builder,
    blocking: Blocking,
    mma: Mma,
    a: &Side<'k, T>,
    b: &Side<'k, T>,
    [first, steps]: [Val<'k, u32>; 2],
) -> Array<'k, T::Acc> {
    let Blocking { block: [.., bk], stages, .. } = blocking;
    let (slabs, high, wide) = (bk * bytes::<T>() / SLAB, a.span / ROWS, b.span / ROWS);
    let sums = k.array::<T::Acc>(high * wide * 8);
    (0..sums.len()).for_each(|i| sums.at(i).set(T::Acc::ZERO));
    let copies = a.copies() + b.copies();
    // Steps beyond the last are copied as well, where there is more of k, and not multiplied.
    let copy = |step: Val<'k, u32>, stage, which: u32| match which.checked_sub(a.copies()) {
        None => a.copy((first + step) * bk, stage, which),
        Some(which) => b.copy((first + step) * bk, stage, which),
    };
    for stage in 0..stages - 1 {
        let stage = k.constant(stage);
        (0..copies).for_each(|which| copy(stage, stage, which));
        k.copy_async_commit();
    }
    k.copy_async_wait(stages - 2);
    k.barrier();
    let (next_a, next_b) = (fragments(k, high), fragments(k, wide));
    let load = |stage: Val<'k, u32>, slab: u32| {
        (0..).zip(&next_a).for_each(|(i, next)| next.set(a.load(stage, i, slab)));
        (0..).zip(&next_b).for_each(|(j, next)| next.set(b.load(stage, j, slab)));
    };
    load(k.constant(0), 0);
    let (full, free) = (k.var(0u32), k.var(stages - 1));
    k.for_each(0, steps, |step| {
        let (now, empty) = (full.get(), free.get());
        let after = (now + 1).lt(stages).select(now + 1, 0u32);
        for slab in 0..slabs {
            let of_a: Vec<_> = next_a.iter().map(|next| next.get()).collect();
            let of_b: Vec<_> = next_b.iter().map(|next| next.get()).collect();
            if slab + 1 < slabs {
                load(now, slab + 1);
            } else {
                // Everyone has loaded the last of this stage, and the next has come.
                k.copy_async_commit();
                k.copy_async_wait(stages - 2);
                k.barrier();
                load(after, 0);
            }
            for i in 0..high {
                if slab == 0 {
                    let part = |i: u32| i * copies / high;
                    (part(i)..part(i + 1)).for_each(|which| copy(step + (stages - 1), empty, which));
                }
                for j in 0..2 * wide {
                    // Back and forth: of two products in a row one factor is the same.
                    let j = if i % 2 == 1 { 2 * wide - 1 - j } else { j };
                    let half = (j % 2 * 2) as usize;
                    let b = &of_b[j as usize / 2][half..half + 2];
                    k.mma(mma, &of_a[i as usize], b, sums.part((i * 2 * wide + j) * 4, 4));
                }
            }
        }
        full.set(after);
        free.set(now);
    });
    sums
}

/// Stores what the lane has: in each 16×16 of the warp's part, four pairs of neighbours in rows of C. `spans` are the rows and columns of
/// that part.
fn store<'k, T: Element>(
    product: &Product<'k, T>,
    aligned: bool,
    spans: [u32; 2],
    sums: Array<'k, T::Acc>,
    [row, col]: [Val<'k, u32>; 2],
) {
    let [high, wide] = spans.map(|span| span / ROWS);
    if !product.ends_long() {
        return store_rows(product, aligned, [high, wide], sums, [row, col]);
    }
    in_rounds(product.k, sums, high, |i, sums| {
        store_rows(product, aligned, [1, wide], sums, [row + i * ROWS, col]);
    });
}

/// Of so many times 16 rows and columns.
fn store_rows<'k, T: Element>(
    product: &Product<'k, T>,
    aligned: bool,
    [high, wide]: [u32; 2],
    sums: Array<'k, T::Acc>,
    [row, col]: [Val<'k, u32>; 2],
) {
    let lane = product.k.lane();
    let (row, col) = (row + lane / 4, col + lane % 4 * 2);
    product.store_runs(aligned, |store| {
        for (i, j, pair) in (0..high).flat_map(|i| (0..wide).flat_map(move |j| (0..4).map(move |pair| (i, j, pair)))) {
            // Of the upper or lower eight rows, of the first or second eight columns.
            let (lower, other) = (pair / 2, pair % 2);
            let sum = |column: u32| sums.at(((i * wide + j) * 2 + other) * 4 + lower * 2 + column).get();
            store(row + (i * ROWS + lower * 8), col + (j * ROWS + other * 8), [0, 1].map(sum));
        }
    });
}
