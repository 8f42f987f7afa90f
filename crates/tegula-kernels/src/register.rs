//! Register tiles: each thread owns a patch of C in its registers, so that a number read from shared memory serves many products.
//!
//! A block copies tiles of A and B asynchronously, `stages − 1` ahead of the one it multiplies. Warps take parts of the tile, lanes parts of a
//! warp's; each thread adds, for one k after another, the outer product of a column of A and a row of B, which it loads one k ahead. Sums
//! are made in the order of k, as the plain kernels make them.
//!
//! Volkov and Demmel, "Benchmarking GPUs to tune dense linear algebra" (2008), is where register tiles come from.

use tegula_core::error::{Error, Result};
use tegula_ir::prelude::*;

use super::blocked::{Blocked, Blocking};
use super::epilogue::in_rounds;
use super::product::Product;
use super::stage::{Ring, Room, Span, Stage};

/// Builds the kernel.
pub(super) fn build<T: Element<Acc = T, Out = T> + Arith>(variant: &Blocked) -> Result<Kernel> {
    let Blocking { block: [bm, bn, bk], warp: [wm, wn], thread: [tm, tn], stages, slices, .. } = variant.blocking;
    let (vector, threads) = (vector::<T>(), variant.blocking.threads());
    let sound = [tm, tn].iter().all(|t| t.is_multiple_of(vector))
        && wm.is_multiple_of(tm)
        && wn.is_multiple_of(tn)
        && (wm / tm) * (wn / tn) == 32
        && bk.is_multiple_of(4 * slices)
        && [bm, bn].iter().all(|&outer| Span { outer, depth: bk, stages, threads }.even(vector));
    if !sound {
        return Err(Error::KernelOption(format!("the tiles of {variant} do not make warps of 32 threads")));
    }
    Ok(kernel(&variant.to_string(), Block::d1(threads), |k| body::<T>(k, variant)))
}

/// Elements in 16 bytes.
fn vector<T: Scalar>() -> u32 {
    16 / size_of::<T>() as u32
}

/// As many elements as 16 bytes hold.
fn load_vector<'k, T: Scalar>(from: Shared<'k, T>, at: impl Coord<'k>) -> Vec<Val<'k, T>> {
    match vector::<T>() {
        4 => from.load_vec::<4>(at).to_vec(),
        _ => from.load_vec::<2>(at).to_vec(),
    }
}

fn body<T: Element<Acc = T, Out = T> + Arith>(k: &Builder, variant: &Blocked) {
    let Blocking { block: [bm, bn, bk], stages, blocks, slices, .. } = variant.blocking;
    k.min_blocks(blocks);
    let product = Product::<T>::of_blocks(k, variant);
    let (m, n, depth) = product.extents();
    let threads = variant.blocking.threads();
    let thread = k.thread_x();
    let [a_turned, b_turned] = variant.turned();
    let span = |outer| Span { outer, depth: bk, stages, threads };
    let rooms = [Room::<T>::new(k, "tile_a", span(bm), !a_turned), Room::new(k, "tile_b", span(bn), b_turned)];
    // Padded so that the rows of neighbouring lanes meet different banks.
    let exchange = (slices > 1).then(|| k.shared::<T>("sums", [(slices - 1) * bm, bn + vector::<T>()]));
    let patch = Patch::new(k, &variant.blocking, rooms);
    product.for_tiles([bm, bn], depth.div_ceil(bk), |product, [tile_m, tile_n], [first, steps]| {
        let (row, col) = (tile_m * bm, tile_n * bn);
        let [a_width, b_width, _] = variant.widths();
        let [(a_rows, _), (b_cols, _)] = product.sides();
        let a = Stage::new(product.a, rooms[0], a_width, thread, [row, a_rows]);
        let b = Stage::new(product.b, rooms[1], b_width, thread, [col, b_cols]);
        let slide = Slide { depth, bk, first, steps };
        patch.slide(&slide, [&a, &b]);
        if let Some(exchange) = exchange {
            patch.add_slices(exchange);
        }
        let store = || patch.store(product, variant, [row, col], [m, n]);
        if slices > 1 { k.when(patch.slice.eq(0u32), store) } else { store() }
    });
}

/// Which steps along k a block makes.
struct Slide<'k> {
    depth: Val<'k, u32>,
    bk: u32,
    /// The first step, of all those along k.
    first: Val<'k, u32>,
    steps: Val<'k, u32>,
}

impl<'k> Slide<'k> {
    /// Where the block's second step begins.
    fn second(&self) -> Val<'k, u32> {
        let missing = self.depth.div_ceil(self.bk) * self.bk - self.depth;
        (self.first + 1) * self.bk - missing
    }

    /// Starts copying the tile of the block's first step. What is left over when k is no multiple of the depth is the very first of all, so that
    /// the others are whole.
    fn copy_first<T: Element>(&self, stage: &Stage<'k, T>) {
        let missing = self.depth.div_ceil(self.bk) * self.bk - self.depth;
        // A shared tile has a step even where k is 0.
        let there = self.steps.gt(0u32) & self.depth.gt(0u32);
        let start = self.first.eq(0u32);
        let (from, short) = (start.select(0u32, self.first * self.bk - missing), start.select(missing, 0u32));
        stage.copy_first(from, |k| (k + short).lt(self.bk) & there);
    }
}

/// What a thread owns, and where it finds its factors.
struct Patch<'k, T: Element> {
    k: &'k Builder,
    blocking: Blocking,
    rooms: [Room<'k, T>; 2],
    /// Which slice of the depth.
    slice: Val<'k, u32>,
    /// The first row and column within the tile. Others follow in pieces of a vector, a warp's width of them apart.
    row: Val<'k, u32>,
    col: Val<'k, u32>,
    sums: Array<'k, T>,
    a_parts: Array<'k, T>,
    b_parts: Array<'k, T>,
}

impl<'k, T: Element<Acc = T, Out = T> + Arith> Patch<'k, T> {
    fn new(k: &'k Builder, blocking: &Blocking, rooms: [Room<'k, T>; 2]) -> Self {
        let Blocking { block: [bm, bn, _], warp: [wm, wn], thread: [tm, tn], .. } = *blocking;
        let (thread, vector) = (k.thread_x(), vector::<T>());
        let (warp, lane) = (thread / 32, thread % 32);
        let (warps_m, warps_n) = (bm / wm, bn / wn);
        let within = warp % (warps_m * warps_n);
        // Lanes 2 × (lanes along n) × …: pairs of lanes that share what they read of B sit side by side, so that loads of 16 bytes merge.
        let lanes_n = wn / tn;
        let (lane_m, lane_n) = (lane / (2 * lanes_n) * 2 + lane % 2, lane / 2 % lanes_n);
        Patch {
            k,
            blocking: *blocking,
            rooms,
            slice: warp / (warps_m * warps_n),
            row: within / warps_n * wm + lane_m * vector,
            col: within % warps_n * wn + lane_n * vector,
            sums: k.array(tm * tn),
            a_parts: k.array(2 * tm),
            b_parts: k.array(2 * tn),
        }
    }

    /// The thread's rows or columns, relative to its first: pieces of a vector, apart by what the warp's lanes take.
    fn places(&self, axis: usize) -> Vec<u32> {
        let (warp, thread, vector) = (self.blocking.warp[axis], self.blocking.thread[axis], vector::<T>());
        (0..thread).map(|i| i / vector * (warp / thread * vector) + i % vector).collect()
    }

    /// Adds the products of all steps.
    ///
    /// Copies are `stages − 1` ahead, those of A behind the first products of a step and those of B behind the fourth, or the third: of all places
    /// that were tried on an H200 these cost the products least, whatever the assembler makes of what happens to the sums in the end.
    fn slide(&self, slide: &Slide<'k>, [a, b]: [&Stage<'k, T>; 2]) {
        let k = self.k;
        let Blocking { block: [.., bk], stages, slices, .. } = self.blocking;
        let depth = bk / slices;
        // Of integers, tiles with slices have a register less to spare behind it.
        let behind = if T::TYPE.is_int() && slices > 1 { 2 } else { 3 };
        let behind = behind.min(depth - 2);
        (0..self.sums.len()).for_each(|i| self.sums.at(i).set(T::ZERO));
        slide.copy_first(a);
        slide.copy_first(b);
        k.copy_async_commit();
        let walks = [a.walk(slide.second()), b.walk(slide.second())];
        let copy_a = |step: Val<'k, u32>| a.copy(&walks[0], step.lt(slide.steps));
        let copy_b = |step: Val<'k, u32>| b.copy(&walks[1], step.lt(slide.steps));
        let advance = || [a, b].into_iter().zip(&walks).for_each(|(stage, walk)| stage.advance(walk));
        for step in (1..stages - 1).map(|step| k.constant(step)) {
            copy_a(step);
            copy_b(step);
            advance();
            k.copy_async_commit();
        }
        let full: [_; 2] = std::array::from_fn(|i| {
            let within = self.slice * depth * self.rooms[i].pitch() + [self.row, self.col][i];
            self.rooms[i].ring(0, within)
        });
        k.copy_async_wait(stages - 2);
        k.barrier();
        self.fetch(&full, 0, 0);
        k.for_each(0, slide.steps, |step| {
            for p in 0..depth {
                let last = p + 1 == depth;
                if last {
                    advance();
                    full.iter().for_each(Ring::advance);
                    k.copy_async_commit();
                    k.copy_async_wait(stages - 2);
                    k.barrier();
                }
                self.fetch(&full, (p + 1) % depth, (p + 1) % 2);
                if p == 0 {
                    copy_a(step + (stages - 1));
                }
                if p == behind {
                    copy_b(step + (stages - 1));
                }
                self.multiply(p % 2);
            }
        });
    }

    /// Loads the factors for one k of a stage.
    fn fetch(&self, full: &[Ring<'k>; 2], p: u32, half: u32) {
        for (axis, parts) in [(1, self.b_parts), (0, self.a_parts)] {
            let (count, room, places) = (self.blocking.thread[axis], self.rooms[axis], self.places(axis));
            for i in (0..count).step_by(vector::<T>() as usize) {
                let values = room.load_vector(full[axis].at() + (p * room.pitch() + places[i as usize]));
                (i..).zip(values).for_each(|(i, value)| parts.at(half * count + i).set(value));
            }
        }
    }

    /// Adds the outer product. Columns outside, rows back and forth: of two products in a row one factor is the same, and the register
    /// file delivers only two numbers from different banks in a cycle.
    fn multiply(&self, half: u32) {
        let [tm, tn] = self.blocking.thread;
        for j in 0..tn {
            for i in 0..tm {
                let i = if j % 2 == 1 { tm - 1 - i } else { i };
                let (a, b) = (self.a_parts.at(half * tm + i), self.b_parts.at(half * tn + j));
                let sum = self.sums.at(i * tn + j);
                sum.set(a.get().mul_add(b.get(), sum.get()));
            }
        }
    }

    /// Adds the sums of the slices, in their order, to those of the first.
    fn add_slices(&self, exchange: Shared<'k, T>) {
        let k = self.k;
        let (rows, cols) = (self.places(0), self.places(1));
        let Blocking { block: [bm, ..], thread: [_, tn], .. } = self.blocking;
        let vector = vector::<T>();
        // The first sum of each piece of a row, and where it lies.
        let pieces = || {
            let cols = (0..).zip(&cols).step_by(vector as usize);
            (0..).zip(&rows).flat_map(move |(i, &row)| cols.clone().map(move |(j, &col)| (i * tn + j, row, col)))
        };
        k.when(self.slice.gt(0u32), || {
            let first = (self.slice - 1) * bm + self.row;
            for (i, row, col) in pieces() {
                let at = (first + row, self.col + col);
                let sum = |x: usize| self.sums.at(i + x as u32).get();
                match vector {
                    4 => exchange.store_vec::<4>(at, std::array::from_fn(sum)),
                    _ => exchange.store_vec::<2>(at, std::array::from_fn(sum)),
                }
            }
        });
        k.barrier();
        k.when(self.slice.eq(0u32), || {
            for other in 0..self.blocking.slices - 1 {
                for (i, row, col) in pieces() {
                    let sums = load_vector(exchange, (self.row + (row + other * bm), self.col + col));
                    (i..).zip(sums).for_each(|(i, sum)| self.sums.at(i).set(self.sums.at(i).get() + sum));
                }
            }
        });
    }

    /// C from the sums, of what lies inside.
    fn store(&self, product: &Product<'k, T>, variant: &Blocked, tile: [Val<'k, u32>; 2], [m, n]: [Val<'k, u32>; 2]) {
        let (rows, cols) = (self.places(0), self.places(1));
        let width = variant.widths()[2];
        let (row, col) = (tile[0] + self.row, tile[1] + self.col);
        if product.ends_long() {
            let ([tm, _], vector) = (self.blocking.thread, vector::<T>());
            return in_rounds(self.k, self.sums, tm, |i, sums| {
                let row = row + (i / vector * (self.blocking.warp[0] / tm * vector) + i % vector);
                let piece = |number: u32| {
                    let col = col + cols[(number * width) as usize];
                    ((row, col), row.lt(m) & col.lt(n), number * width)
                };
                product.store_pieces(cols.len() as u32 / width, piece, sums, width);
            });
        }
        let each = cols.len() as u32 / width;
        // Made where they are stored: the places of all pieces at once would not fit into registers.
        let piece = |number: u32| {
            let (i, j) = (number / each, number % each * width);
            let (row, col) = (row + rows[i as usize], col + cols[j as usize]);
            ((row, col), row.lt(m) & col.lt(n), i * cols.len() as u32 + j)
        };
        product.store_pieces(rows.len() as u32 * each, piece, self.sums, width);
    }
}
