//! Register tiling: each thread computes a tile of C in registers, so that an element read from
//! shared memory is used in many multiply-adds.
//!
//! A block copies tiles of A and B asynchronously, `stages − 1` k-steps ahead. Warps have parts of
//! the block's tile, lanes parts of the warp's. For one k after another, each thread adds the outer
//! product of a column of A and a row of B, which it loads one k ahead. Accumulation is in the
//! order of k, as in the plain kernels.
//!
//! After Volkov and Demmel, "Benchmarking GPUs to tune dense linear algebra" (2008).

use tegula_core::error::{Error, Result};
use tegula_ir::prelude::*;

use super::blocked::{Blocked, Blocking};
use super::epilogue::for_each_subtile;
use super::product::Product;
use super::stage::{StageBuffers, StageOffset, TileCopy, TileShape};

/// Builds the kernel.
pub(super) fn build<T: Element<Acc = T, Out = T> + Arith>(variant: &Blocked) -> Result<Kernel> {
    let Blocking { block: [bm, bn, bk], warp: [wm, wn], thread: [tm, tn], stages, slices, .. } = variant.blocking;
    let (vector, threads) = (vector::<T>(), variant.blocking.threads());
    let is_valid = [tm, tn].iter().all(|t| t.is_multiple_of(vector))
        && wm.is_multiple_of(tm)
        && wn.is_multiple_of(tn)
        && (wm / tm) * (wn / tn) == 32
        && bk.is_multiple_of(4 * slices)
        && [bm, bn].iter().all(|&mn| TileShape { mn, depth: bk, stages, threads }.divides_evenly(vector));
    if !is_valid {
        return Err(Error::KernelOption(format!("the tiles of {variant} do not divide into warps of 32 threads")));
    }
    Ok(kernel(&variant.to_string(), Block::d1(threads), |k| body::<T>(k, variant)))
}

/// Elements in 16 bytes.
fn vector<T: Scalar>() -> u32 {
    16 / size_of::<T>() as u32
}

/// Loads 16 bytes of elements.
fn load_vector<'k, T: Scalar>(from: Shared<'k, T>, at: impl Coord<'k>) -> Vec<Val<'k, T>> {
    match vector::<T>() {
        4 => from.load_vec::<4>(at).to_vec(),
        _ => from.load_vec::<2>(at).to_vec(),
    }
}

fn body<T: Element<Acc = T, Out = T> + Arith>(k: &Builder, variant: &Blocked) {
    let Blocking { block: [bm, bn, bk], stages, blocks, slices, .. } = variant.blocking;
    k.min_blocks(blocks);
    let product = Product::<T>::for_blocked(k, variant);
    let (m, n, depth) = product.extents();
    let threads = variant.blocking.threads();
    let thread = k.thread_x();
    let [a_transposed, b_transposed] = variant.transposed();
    let shape = |mn| TileShape { mn, depth: bk, stages, threads };
    let a_buffers = StageBuffers::<T>::new(k, "tile_a", shape(bm), !a_transposed);
    let buffers = [a_buffers, StageBuffers::new(k, "tile_b", shape(bn), b_transposed)];
    // Padded against bank conflicts between rows of adjacent lanes.
    let partial_sums = (slices > 1).then(|| k.shared::<T>("sums", [(slices - 1) * bm, bn + vector::<T>()]));
    let tile = ThreadTile::new(k, &variant.blocking, buffers);
    product.for_each_tile([bm, bn], depth.div_ceil(bk), |product, [tile_m, tile_n], [first, steps]| {
        let (row, col) = (tile_m * bm, tile_n * bn);
        let [a_width, b_width, _] = variant.vector_widths();
        let [(a_rows, _), (b_cols, _)] = product.operand_extents();
        let a = TileCopy::new(product.a, buffers[0], a_width, thread, [row, a_rows]);
        let b = TileCopy::new(product.b, buffers[1], b_width, thread, [col, b_cols]);
        let range = KRange { depth, bk, first, steps };
        tile.accumulate(&range, [&a, &b]);
        if let Some(partial_sums) = partial_sums {
            tile.add_slices(partial_sums);
        }
        let store = || tile.store(product, variant, [row, col], [m, n]);
        if slices > 1 { k.when(tile.slice.eq(0u32), store) } else { store() }
    });
}

/// A block's range of k-steps.
struct KRange<'k> {
    depth: Val<'k, u32>,
    bk: u32,
    /// The first k-step, and their number.
    first: Val<'k, u32>,
    steps: Val<'k, u32>,
}

impl<'k> KRange<'k> {
    /// The first k of the block's second step.
    fn second(&self) -> Val<'k, u32> {
        let missing = self.depth.div_ceil(self.bk) * self.bk - self.depth;
        (self.first + 1) * self.bk - missing
    }

    /// Issues the copies of the block's first k-step. If k is no multiple of the depth, the very
    /// first step of all is short, so that the others are whole.
    fn copy_first<T: Element>(&self, copy: &TileCopy<'k, T>) {
        let missing = self.depth.div_ceil(self.bk) * self.bk - self.depth;
        // A split tile has a step even for k = 0.
        let has_step = self.steps.gt(0u32) & self.depth.gt(0u32);
        let start = self.first.eq(0u32);
        let (from, short) = (start.select(0u32, self.first * self.bk - missing), start.select(missing, 0u32));
        copy.copy_first(from, |k| (k + short).lt(self.bk) & has_step);
    }
}

/// A thread's tile of C, and its operands in shared memory.
struct ThreadTile<'k, T: Element> {
    k: &'k Builder,
    blocking: Blocking,
    buffers: [StageBuffers<'k, T>; 2],
    /// The slice of the k-step's depth.
    slice: Val<'k, u32>,
    /// The first row and column in the tile. The others follow in vectors, spaced by those of the
    /// warp's lanes.
    row: Val<'k, u32>,
    col: Val<'k, u32>,
    accumulators: Array<'k, T>,
    a_fragment: Array<'k, T>,
    b_fragment: Array<'k, T>,
}

impl<'k, T: Element<Acc = T, Out = T> + Arith> ThreadTile<'k, T> {
    fn new(k: &'k Builder, blocking: &Blocking, buffers: [StageBuffers<'k, T>; 2]) -> Self {
        let Blocking { block: [bm, bn, _], warp: [wm, wn], thread: [tm, tn], .. } = *blocking;
        let (thread, vector) = (k.thread_x(), vector::<T>());
        let (warp, lane) = (thread / 32, thread % 32);
        let (warps_m, warps_n) = (bm / wm, bn / wn);
        let within = warp % (warps_m * warps_n);
        // Lanes 2 × (lanes along n) × …: lanes that read the same elements of B are adjacent, so
        // that loads of 16 bytes are merged.
        let lanes_n = wn / tn;
        let (lane_m, lane_n) = (lane / (2 * lanes_n) * 2 + lane % 2, lane / 2 % lanes_n);
        ThreadTile {
            k,
            blocking: *blocking,
            buffers,
            slice: warp / (warps_m * warps_n),
            row: within / warps_n * wm + lane_m * vector,
            col: within % warps_n * wn + lane_n * vector,
            accumulators: k.array(tm * tn),
            a_fragment: k.array(2 * tm),
            b_fragment: k.array(2 * tn),
        }
    }

    /// The thread's rows (axis 0) or columns (axis 1), relative to its first: vectors, spaced by
    /// those of the warp's lanes.
    fn offsets(&self, axis: usize) -> Vec<u32> {
        let (warp, thread, vector) = (self.blocking.warp[axis], self.blocking.thread[axis], vector::<T>());
        (0..thread).map(|i| i / vector * (warp / thread * vector) + i % vector).collect()
    }

    /// The main loop over the k-steps of a range.
    ///
    /// Copies are `stages − 1` k-steps ahead: those of A are issued with the first outer product of
    /// a step, those of B with the fourth, or the third. Of all positions tried on an H200 these
    /// slow down the products least, with any epilogue.
    fn accumulate(&self, range: &KRange<'k>, [a, b]: [&TileCopy<'k, T>; 2]) {
        let k = self.k;
        let Blocking { block: [.., bk], stages, slices, .. } = self.blocking;
        let depth = bk / slices;
        // Integer tiles with slices have one register less to spare there.
        let copy_b_after = if T::TYPE.is_int() && slices > 1 { 2 } else { 3 };
        let copy_b_after = copy_b_after.min(depth - 2);
        (0..self.accumulators.len()).for_each(|i| self.accumulators.at(i).set(T::ZERO));
        range.copy_first(a);
        range.copy_first(b);
        k.copy_async_commit();
        let cursors = [a.cursor(range.second()), b.cursor(range.second())];
        let copy_a = |step: Val<'k, u32>| a.copy(&cursors[0], step.lt(range.steps));
        let copy_b = |step: Val<'k, u32>| b.copy(&cursors[1], step.lt(range.steps));
        let advance = || [a, b].into_iter().zip(&cursors).for_each(|(copy, cursor)| copy.advance(cursor));
        for step in (1..stages - 1).map(|step| k.constant(step)) {
            copy_a(step);
            copy_b(step);
            advance();
            k.copy_async_commit();
        }
        let stages_read: [_; 2] = std::array::from_fn(|i| {
            let within = self.slice * depth * self.buffers[i].pitch() + [self.row, self.col][i];
            self.buffers[i].offset(0, within)
        });
        k.copy_async_wait(stages - 2);
        k.barrier();
        self.fetch(&stages_read, 0, 0);
        k.for_each(0, range.steps, |step| {
            for p in 0..depth {
                let last = p + 1 == depth;
                if last {
                    advance();
                    stages_read.iter().for_each(StageOffset::advance);
                    k.copy_async_commit();
                    k.copy_async_wait(stages - 2);
                    k.barrier();
                }
                self.fetch(&stages_read, (p + 1) % depth, (p + 1) % 2);
                if p == 0 {
                    copy_a(step + (stages - 1));
                }
                if p == copy_b_after {
                    copy_b(step + (stages - 1));
                }
                self.multiply(p % 2);
            }
        });
    }

    /// Loads the operands of one k of a stage.
    fn fetch(&self, stages: &[StageOffset<'k>; 2], p: u32, half: u32) {
        for (axis, fragment) in [(1, self.b_fragment), (0, self.a_fragment)] {
            let (count, buffers, offsets) = (self.blocking.thread[axis], self.buffers[axis], self.offsets(axis));
            for i in (0..count).step_by(vector::<T>() as usize) {
                let values = buffers.load_vector(stages[axis].at() + (p * buffers.pitch() + offsets[i as usize]));
                (i..).zip(values).for_each(|(i, value)| fragment.at(half * count + i).set(value));
            }
        }
    }

    /// Adds the outer product in serpentine order over rows: consecutive multiply-adds share an
    /// operand, since the register file delivers only two operands from different banks per cycle.
    fn multiply(&self, half: u32) {
        let [tm, tn] = self.blocking.thread;
        for j in 0..tn {
            for i in 0..tm {
                let i = if j % 2 == 1 { tm - 1 - i } else { i };
                let (a, b) = (self.a_fragment.at(half * tm + i), self.b_fragment.at(half * tn + j));
                let sum = self.accumulators.at(i * tn + j);
                sum.set(a.get().mul_add(b.get(), sum.get()));
            }
        }
    }

    /// Adds the accumulators of the other slices, in order, to those of the first.
    fn add_slices(&self, partial_sums: Shared<'k, T>) {
        let k = self.k;
        let (rows, cols) = (self.offsets(0), self.offsets(1));
        let Blocking { block: [bm, ..], thread: [_, tn], .. } = self.blocking;
        let vector = vector::<T>();
        // The index of the first accumulator of each vector, its row and its column.
        let vectors = || {
            let cols = (0..).zip(&cols).step_by(vector as usize);
            (0..).zip(&rows).flat_map(move |(i, &row)| cols.clone().map(move |(j, &col)| (i * tn + j, row, col)))
        };
        k.when(self.slice.gt(0u32), || {
            let first = (self.slice - 1) * bm + self.row;
            for (i, row, col) in vectors() {
                let at = (first + row, self.col + col);
                let sum = |x: usize| self.accumulators.at(i + x as u32).get();
                match vector {
                    4 => partial_sums.store_vec::<4>(at, std::array::from_fn(sum)),
                    _ => partial_sums.store_vec::<2>(at, std::array::from_fn(sum)),
                }
            }
        });
        k.barrier();
        k.when(self.slice.eq(0u32), || {
            for slice in 0..self.blocking.slices - 1 {
                for (i, row, col) in vectors() {
                    let values = load_vector(partial_sums, (self.row + (row + slice * bm), self.col + col));
                    (i..)
                        .zip(values)
                        .for_each(|(i, value)| self.accumulators.at(i).set(self.accumulators.at(i).get() + value));
                }
            }
        });
    }

    /// Stores the accumulators to C, with bounds checks.
    fn store(&self, product: &Product<'k, T>, variant: &Blocked, tile: [Val<'k, u32>; 2], [m, n]: [Val<'k, u32>; 2]) {
        let (rows, cols) = (self.offsets(0), self.offsets(1));
        let width = variant.vector_widths()[2];
        let (row, col) = (tile[0] + self.row, tile[1] + self.col);
        if product.has_long_epilogue() {
            let ([tm, _], vector) = (self.blocking.thread, vector::<T>());
            return for_each_subtile(self.k, self.accumulators, tm, |i, accumulators| {
                let row = row + (i / vector * (self.blocking.warp[0] / tm * vector) + i % vector);
                let vector = |index: u32| {
                    let col = col + cols[(index * width) as usize];
                    ((row, col), row.lt(m) & col.lt(n), index * width)
                };
                product.store_vectors(cols.len() as u32 / width, vector, accumulators, width);
            });
        }
        let each = cols.len() as u32 / width;
        // Addresses are computed at each store: those of all vectors at once exceed the registers.
        let vector = |index: u32| {
            let (i, j) = (index / each, index % each * width);
            let (row, col) = (row + rows[i as usize], col + cols[j as usize]);
            ((row, col), row.lt(m) & col.lt(n), i * cols.len() as u32 + j)
        };
        product.store_vectors(rows.len() as u32 * each, vector, self.accumulators, width);
    }
}
