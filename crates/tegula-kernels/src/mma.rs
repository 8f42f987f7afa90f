//! `mma.sync` kernels for 8-bit and 16-bit types and TF32, with a `cp.async` pipeline.
//!
//! * **16-byte chunks.** `mma.sync` consumes 32 bytes along k for every type, and `ldmatrix`
//!   gathers rows of 16 bytes. So tiles are rows of 16-byte chunks, and types differ only in the
//!   elements per chunk.
//! * **Storage orders.** An operand contiguous along k is loaded directly. 16-bit operands
//!   contiguous along m or n are transposed by `ldmatrix`. Other types, and operands without
//!   16-byte access, are packed along k first; packing rounds f32 to TF32.
//! * **No bank conflicts.** An XOR swizzle permutes chunks within 128 bytes by their row.
//! * **Software pipelining.** The fragments of the next slab of k are loaded before the current
//!   ones are multiplied, also across the barrier of a k-step.

use std::ops::{Div, Rem};

use tegula_core::error::{Error, Result};
use tegula_ir::prelude::*;

use super::blocked::{Blocked, Blocking};
use super::epilogue::for_each_subtile;
use super::product::{IS_A, Product};
use super::stage::wrap_around;

/// Bytes of a chunk, the unit of rows and copies.
const CHUNK: u32 = 16;
/// Bytes of a slab: what an instruction consumes along k.
const SLAB: u32 = 32;
/// Chunks of 128 bytes, which span all banks of shared memory.
const LINE: u32 = 8;
/// Rows (columns) of a fragment, loaded by one `ldmatrix`.
pub(super) const ROWS: u32 = 16;

/// Builds the kernel for an instruction.
pub(super) fn build<T: Element>(variant: &Blocked, mma: Mma) -> Result<Kernel> {
    let Blocking { block: [bm, bn, bk], warp: [wm, wn], slices, .. } = variant.blocking;
    let threads = variant.blocking.threads();
    let powers_of_two = [bm, bn, bk, wm, wn, threads].iter().all(|size| size.is_power_of_two());
    let large_enough = wm >= ROWS && wn >= ROWS && threads >= 128 && bk * bytes::<T>() >= 2 * SLAB && slices == 1;
    if !powers_of_two || !large_enough || bm.min(bn) * bk * bytes::<T>() < threads * CHUNK {
        return Err(Error::KernelOption(format!("the tiles of {variant} do not divide evenly among its threads")));
    }
    if !(0..2).all(|operand| variant.supports_ldmatrix(operand)) {
        return Err(Error::KernelOption(format!(
            "{variant} needs operands aligned to 16 bytes and contiguous along k, or of 16 bits"
        )));
    }
    Ok(kernel(&variant.to_string(), Block::d1(threads), |k| {
        body::<T>(k, variant, |a, b, range| multiply(k, variant.blocking, mma, a, b, range));
    }))
}

/// Bytes of an element.
fn bytes<T>() -> u32 {
    size_of::<T>() as u32
}

/// The kernel body. `multiply` computes a warp's accumulators over the block's range of k-steps.
pub(super) fn body<'k, T: Element>(
    k: &'k Builder,
    variant: &Blocked,
    multiply: impl FnOnce(&StagedOperand<'k, T>, &StagedOperand<'k, T>, [Val<'k, u32>; 2]) -> Array<'k, T::Acc>,
) {
    let Blocking { block: [bm, bn, bk], warp: [wm, wn], stages, blocks, .. } = variant.blocking;
    let (transposed, orders) = (variant.transposed(), variant.orders);
    let product = Product::<T>::for_blocked(k, variant);
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
    let a_stages = k.shared::<T>("tile_a", [stages * bk * bm]);
    let b_stages = k.shared::<T>("tile_b", [stages * bk * bn]);
    let warps = bn / wn;
    let (warp_row, warp_col) = (k.warp() / warps * wm, k.warp() % warps * wn);
    product.for_each_tile([bm, bn], depth.div_ceil(bk), |product, [tile_row, tile_col], range| {
        let (row, col) = (tile_row * bm, tile_col * bn);
        let [(rows, _), (cols, _)] = product.operand_extents();
        let operand =
            |is_a: bool, global, tile, buffer, span, [first, extent, origin]: [Val<'k, u32>; 3]| StagedOperand {
                k,
                tile,
                threads: variant.blocking.threads(),
                global,
                buffer,
                span,
                extent,
                first,
                depth,
                origin,
                is_a,
                transposed: transposed[usize::from(!is_a)],
            };
        let a = operand(IS_A, product.a, a_tile, a_stages, wm, [row, rows, warp_row]);
        let b = operand(!IS_A, product.b, b_tile, b_stages, wn, [col, cols, warp_col]);
        let accumulators = multiply(&a, &b, range);
        store(product, variant.aligned_16[2], [wm, wn], accumulators, [row + warp_row, col + warp_col]);
    });
}

/// The layout of a tile of A or B in shared memory.
#[derive(Clone, Copy)]
struct Tile {
    /// Whether its rows are contiguous along k; otherwise each k has a row.
    along_k: bool,
    rows: u32,
    /// Elements of a row.
    row: u32,
    /// Bytes of an element.
    size: u32,
}

impl Tile {
    /// Elements of the tile.
    fn len(&self) -> u32 {
        self.rows * self.row
    }

    /// Elements of a chunk.
    fn chunk(&self) -> u32 {
        CHUNK / self.size
    }

    /// The XOR mask of a row's chunks: a bit field of the row's index. Chunks of the eight
    /// consecutive rows that `ldmatrix` gathers are in different banks.
    fn swizzle<N>(&self, row: N) -> N
    where
        N: Div<u32, Output = N> + Rem<u32, Output = N>,
    {
        let chunks = self.row / self.chunk();
        row / (LINE / chunks).max(1) % chunks.min(LINE)
    }
}

/// An operand: its source, its stages in shared memory, and a warp's part of its tile.
pub(super) struct StagedOperand<'k, T: Element> {
    k: &'k Builder,
    tile: Tile,
    threads: u32,
    global: Global<'k, T>,
    buffer: Shared<'k, T>,
    /// Rows of A (columns of B) of the warp's part.
    pub span: u32,
    /// Rows of A (columns of B) of the operand.
    extent: Val<'k, u32>,
    /// The first row (column) of the tile in the operand.
    first: Val<'k, u32>,
    depth: Val<'k, u32>,
    /// The first row (column) of the warp's part in the tile.
    origin: Val<'k, u32>,
    is_a: bool,
    /// Whether the operand is passed transposed.
    transposed: bool,
}

impl<'k, T: Element> StagedOperand<'k, T> {
    /// Asynchronous copies of a thread per tile.
    pub fn copies(&self) -> u32 {
        self.tile.len() / (self.threads * self.tile.chunk())
    }

    /// Issues the thread's copy number `index` of the tile at `start` along k to a stage.
    ///
    /// Out-of-bounds rows of A (columns of B) wrap around: their accumulators are never stored.
    /// Past the last k the tile is zero-filled.
    pub fn copy(&self, start: Val<'k, u32>, stage: Val<'k, u32>, index: u32) {
        let (Tile { row, along_k, .. }, chunk) = (self.tile, self.tile.chunk());
        // Row and chunk, each as the offset of the thread plus the constant offset of the round,
        // one copy by each thread. All sizes are powers of 2, so their bits do not overlap.
        let (thread, round) = (self.k.thread_x() * chunk, index * self.threads * chunk);
        let (line, element, round_line, round_element) = (thread / row, thread % row, round / row, round % row);
        let swizzled = (element / chunk) ^ self.tile.swizzle(line) ^ self.tile.swizzle(round_line);
        let to = stage * self.tile.len() + (line * row + swizzled * chunk) + (round_line * row + round_element);
        let (line, element) = (line + round_line, element + round_element);
        let (outer, p) = if along_k { (line, element) } else { (element, line) };
        let (outer, p) = (wrap_around(self.first + outer, self.extent, if along_k { 1 } else { chunk }), start + p);
        let at = if self.is_a != self.transposed { (outer, p) } else { (p, outer) };
        self.buffer.copy_async((to,), self.global, at, chunk, Builder::guard(p.lt(self.depth)));
    }

    /// Loads the lane's registers of a fragment of 16 rows of A (columns of B) and a slab of k:
    /// four of A, or two for each 8 columns of B.
    pub fn load(&self, stage: Val<'k, u32>, fragment: u32, slab: u32) -> [Val<'k, u32>; 4] {
        let (Tile { row, size, along_k, .. }, chunk) = (self.tile, self.tile.chunk());
        let (i, j, base) = (self.k.lane() % 8, self.k.lane() / 8, stage * self.tile.len());
        // The registers of A are ordered by rows first, those of B by k first.
        let (outer, inner) = if self.is_a { (j % 2, j / 2) } else { (j / 2, j % 2) };
        // The lane's row and chunk, and the offsets of slab and fragment to both.
        let (line, first, line_offset, chunk_offset) = if along_k {
            (self.origin + (i + outer * 8), inner, fragment * ROWS, slab * (SLAB / CHUNK))
        } else {
            (i + inner * 8, self.origin / chunk + outer, slab * (SLAB / size), fragment * (ROWS / chunk))
        };
        let swizzled = first ^ self.tile.swizzle(line) ^ (chunk_offset % LINE);
        let offset = line_offset * row + chunk_offset / LINE * LINE * chunk;
        let at = base + (line * row + swizzled * chunk) + offset;
        self.buffer.load_matrix::<4>((at,), !along_k)
    }
}

/// The registers of a lane's fragment.
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

/// Declares `count` fragments.
pub(super) fn fragments<'k>(k: &'k Builder, count: u32) -> Vec<Fragment<'k>> {
    (0..count).map(|_| Fragment(k.array(4))).collect()
}

/// The main loop. Returns the warp's accumulators: fragments of 16 rows by 8 columns, row by row.
///
/// The range is the first k-step and their number.
fn multiply<'k, T: Element>(
    k: &'k Builder,
    blocking: Blocking,
    mma: Mma,
    a: &StagedOperand<'k, T>,
    b: &StagedOperand<'k, T>,
    [first, steps]: [Val<'k, u32>; 2],
) -> Array<'k, T::Acc> {
    let Blocking { block: [.., bk], stages, .. } = blocking;
    let (slabs, fragments_m, fragments_n) = (bk * bytes::<T>() / SLAB, a.span / ROWS, b.span / ROWS);
    let accumulators = k.array::<T::Acc>(fragments_m * fragments_n * 8);
    (0..accumulators.len()).for_each(|i| accumulators.at(i).set(T::Acc::ZERO));
    let copies = a.copies() + b.copies();
    // k-steps past the range are also copied, as far as k extends, but not multiplied.
    let copy = |step: Val<'k, u32>, stage, index: u32| match index.checked_sub(a.copies()) {
        None => a.copy((first + step) * bk, stage, index),
        Some(index) => b.copy((first + step) * bk, stage, index),
    };
    for stage in 0..stages - 1 {
        let stage = k.constant(stage);
        (0..copies).for_each(|index| copy(stage, stage, index));
        k.copy_async_commit();
    }
    k.copy_async_wait(stages - 2);
    k.barrier();
    let (next_a, next_b) = (fragments(k, fragments_m), fragments(k, fragments_n));
    let load = |stage: Val<'k, u32>, slab: u32| {
        (0..).zip(&next_a).for_each(|(i, next)| next.set(a.load(stage, i, slab)));
        (0..).zip(&next_b).for_each(|(j, next)| next.set(b.load(stage, j, slab)));
    };
    load(k.constant(0), 0);
    let (full, free) = (k.var(0u32), k.var(stages - 1));
    k.for_each(0, steps, |step| {
        let (current, empty) = (full.get(), free.get());
        let next = (current + 1).lt(stages).select(current + 1, 0u32);
        for slab in 0..slabs {
            let of_a: Vec<_> = next_a.iter().map(|next| next.get()).collect();
            let of_b: Vec<_> = next_b.iter().map(|next| next.get()).collect();
            if slab + 1 < slabs {
                load(current, slab + 1);
            } else {
                // All threads have loaded the last slab of this stage, and the next stage has
                // arrived.
                k.copy_async_commit();
                k.copy_async_wait(stages - 2);
                k.barrier();
                load(next, 0);
            }
            for i in 0..fragments_m {
                if slab == 0 {
                    let copies_before = |i: u32| i * copies / fragments_m;
                    (copies_before(i)..copies_before(i + 1)).for_each(|index| copy(step + (stages - 1), empty, index));
                }
                for j in 0..2 * fragments_n {
                    // Serpentine order: consecutive instructions share an operand.
                    let j = if i % 2 == 1 { 2 * fragments_n - 1 - j } else { j };
                    let half = (j % 2 * 2) as usize;
                    let b = &of_b[j as usize / 2][half..half + 2];
                    k.mma(mma, &of_a[i as usize], b, accumulators.slice((i * 2 * fragments_n + j) * 4, 4));
                }
            }
        }
        full.set(next);
        free.set(current);
    });
    accumulators
}

/// Stores the lane's accumulators: four pairs of adjacent columns in each 16×16 of the warp's part.
/// `spans` are its rows and columns.
fn store<'k, T: Element>(
    product: &Product<'k, T>,
    aligned: bool,
    spans: [u32; 2],
    accumulators: Array<'k, T::Acc>,
    [row, col]: [Val<'k, u32>; 2],
) {
    let [fragments_m, fragments_n] = spans.map(|span| span / ROWS);
    if !product.has_long_epilogue() {
        return store_fragments(product, aligned, [fragments_m, fragments_n], accumulators, [row, col]);
    }
    for_each_subtile(product.k, accumulators, fragments_m, |i, accumulators| {
        store_fragments(product, aligned, [1, fragments_n], accumulators, [row + i * ROWS, col]);
    });
}

/// Stores `fragments_m` times `fragments_n` blocks of 16×16.
fn store_fragments<'k, T: Element>(
    product: &Product<'k, T>,
    aligned: bool,
    [fragments_m, fragments_n]: [u32; 2],
    accumulators: Array<'k, T::Acc>,
    [row, col]: [Val<'k, u32>; 2],
) {
    let lane = product.k.lane();
    let (row, col) = (row + lane / 4, col + lane % 4 * 2);
    product.store_pairs(aligned, |store| {
        let blocks = (0..fragments_m).flat_map(|i| (0..fragments_n).map(move |j| (i, j)));
        for (i, j, pair) in blocks.flat_map(|(i, j)| (0..4).map(move |pair| (i, j, pair))) {
            // Upper or lower eight rows, first or second eight columns.
            let (lower, right) = (pair / 2, pair % 2);
            let fragment = ((i * fragments_n + j) * 2 + right) * 4;
            let value = |column: u32| accumulators.at(fragment + lower * 2 + column).get();
            store(row + (i * ROWS + lower * 8), col + (j * ROWS + right * 8), [0, 1].map(value));
        }
    });
}
