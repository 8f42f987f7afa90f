//! GEMV and skinny GEMM: C has few rows, and the large operand B is read once, at memory bandwidth.
//!
//! A block has `threads_n` threads along n and `threads_k` along k. Each thread computes `cols`
//! columns of all `rows` rows of C. It loads `load_depth` rows of B at a time in advance, as
//! 16-byte vectors if B is aligned. Adjacent threads are adjacent along the contiguous axis of B.
//! The block keeps its rows of A in shared memory, a chunk along k at a time. At the end the
//! partial sums of the threads along k are added in a fixed order.

use std::fmt;

use tegula_core::element::Type;
use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Error, Result};
use tegula_ir::prelude::*;
use tegula_ir::{Kernel, MAX_THREADS};

use super::blocked::Schedule;
use super::name_fields::{NameFields, upgrade_legacy_name};
use super::orders::order_letters;
use super::product::{Parameters, Product};

/// Partial sums in shared memory per round of the final reduction, unless one row of C has more.
const REDUCTION_ELEMENTS: u32 = 4096;

/// Registers of an SM.
pub(crate) const REGISTERS: u32 = 65_536;

/// Threads of a warp, and of a block with as many warps on each quarter of an SM.
pub(crate) const WARP: u32 = 32;
const LARGE_BLOCK: u32 = 256;
/// The most threads and blocks of an SM.
pub(crate) const MAX_RESIDENT_THREADS: u32 = 2048;
pub(crate) const MAX_RESIDENT_BLOCKS: u32 = 32;
/// Bytes of shared memory of an SM, and those of each block that the driver reserves.
pub(crate) const SHARED_BYTES: u32 = 233_472;
pub(crate) const RESERVED_BYTES: u32 = 1024;

/// Threads along n and k of the candidates of 4-byte and 8-byte types, the most promising first:
/// large blocks for a long k, and small ones for a short k, which leaves many threads along k
/// without work, and for batches.
const LARGE_BLOCKS: [[u32; 2]; 4] = [[32, 8], [16, 16], [8, 32], [64, 4]];
const SMALL_BLOCKS: [[u32; 2]; 8] = [[64, 2], [32, 4], [16, 8], [8, 16], [4, 8], [16, 2], [32, 1], [64, 1]];
/// The same for a B contiguous along k, which needs threads along k for coalesced access.
const LARGE_BLOCKS_ALONG_K: [[u32; 2]; 3] = [[4, 64], [8, 32], [16, 16]];
const SMALL_BLOCKS_ALONG_K: [[u32; 2]; 8] = [[16, 2], [32, 4], [8, 4], [16, 8], [32, 2], [8, 8], [8, 16], [4, 8]];

/// Elements of A per thread and chunk, unless a k-step has more.
const STAGED_ELEMENTS: u32 = 8;

/// A kernel for a C of few rows, and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vector {
    /// Element type of A and B.
    pub ty: Type,
    /// Rows of C per block: 1, 2, 4, 8 or 16.
    pub rows: u32,
    /// Columns of C per thread.
    pub cols: u32,
    /// Threads of a block along n.
    pub threads_n: u32,
    /// Threads of a block along k.
    pub threads_k: u32,
    /// Rows of B that a thread loads before it uses the first.
    pub load_depth: u32,
    /// Storage orders of A, B and C.
    pub orders: [Order2d; 3],
    /// Whether B can be read as 16-byte vectors: its address, strides and contiguous extent are
    /// multiples of 16 bytes.
    pub aligned_16: bool,
    /// Whether the kernel computes split-K partial sums. C is then a workspace of `batch` times
    /// `splits` matrices, and neither alpha, beta nor an epilogue is applied.
    pub split: bool,
    /// The epilogue.
    pub epilogue: Epilogue,
}

impl Vector {
    /// A kernel for row-major operands, without vector loads.
    pub const fn new(ty: Type, rows: u32, cols: u32, [threads_n, threads_k]: [u32; 2], load_depth: u32) -> Self {
        let orders = [Order2d::RowMajor; 3];
        Vector {
            ty,
            rows,
            cols,
            threads_n,
            threads_k,
            load_depth,
            orders,
            aligned_16: false,
            split: false,
            epilogue: Epilogue::NONE,
        }
    }

    /// Parses a name without type and layouts: `vector_16x4_threads32x8_load8`.
    ///
    /// # Errors
    /// [`Error::KernelOption`] with the syntax of names.
    pub fn named(name: &str, ty: Type) -> Result<Self> {
        let name = upgrade_legacy_name(name).unwrap_or_else(|| name.into());
        let parse = || {
            let mut fields = NameFields::parse(name.strip_prefix("vector_")?)?;
            let ([rows, cols], threads) = (fields.tile()?, fields.take("threads", None)?);
            let [load_depth] = fields.take("load", None)?;
            fields.finish(Vector::new(ty, rows, cols, threads, load_depth))
        };
        parse().ok_or_else(|| {
            Error::KernelOption(format!(
                "unknown kernel {name:?}; expected rows and columns, threads along n and k, and loads in flight \
                 as in vector_16x4_threads32x8_load8"
            ))
        })
    }

    /// The name without type and layouts, as [`named`](Self::named) parses it.
    pub fn short_name(&self) -> String {
        let Vector { rows, cols, threads_n, threads_k, load_depth, .. } = self;
        format!("vector_{rows}x{cols}_threads{threads_n}x{threads_k}_load{load_depth}")
    }

    /// The candidates for a C of `rows` rows, the most promising first. `along_k`: B is contiguous
    /// along k. `aligned_16`: B can be read as 16-byte vectors.
    ///
    /// The bytes in flight must hide the latency of memory: about 32 KB per SM, which is 256
    /// threads with 8 loads of 16 bytes. More rows of C need more registers, which leaves fewer
    /// loads in flight; so do the addresses of single elements.
    pub fn shapes(ty: Type, rows: usize, along_k: bool, aligned_16: bool) -> Vec<Self> {
        let rows = rows.clamp(1, 16).next_power_of_two() as u32;
        let unit = (16 / ty.size()) as u32;
        let width = if aligned_16 { unit } else { unit.min(4) };
        let mut candidates = Vec::new();
        let mut add = |cols, threads, load_depth| {
            let vector = Vector { aligned_16, ..Vector::new(ty, rows, cols, threads, load_depth) };
            if rows * cols <= 64 && vector.fits() && rows * vector.step() <= 8192 && vector.check().is_ok() {
                candidates.push(vector);
            }
        };
        let mut add_all = |configurations: &[(u32, u32)], blocks: &[[u32; 2]]| {
            for &(cols, load_depth) in configurations {
                blocks.iter().for_each(|&threads| add(cols, threads, load_depth));
            }
        };
        match (ty.size(), along_k) {
            (4.., true) => {
                // Large blocks with others of so many rows have no registers to spare.
                let large: &[_] = match (rows, ty.size()) {
                    (16, 4) | (8, 8) => &[(2, 8), (4, 4)],
                    (8.., _) => &[(2, 4), (2, 8), (4, 4)],
                    _ => &[(2, 4), (1, 4 * width), (2, 8), (4, 4)],
                };
                add_all(large, &LARGE_BLOCKS_ALONG_K);
                add_all(&[(2, 4), (1, 4)], &SMALL_BLOCKS_ALONG_K);
            }
            (4.., false) => {
                add_all(&[(width, 8), (width, 4)], &LARGE_BLOCKS);
                if width < 4 {
                    add_all(&[(4, 4)], &LARGE_BLOCKS);
                }
                add_all(&[(width, 8), (width, 4)], &SMALL_BLOCKS);
            }
            (_, true) => {
                let configurations = [(2, 4), (4, 2), (4, 1), (8, 1), (1, 4), (2, 2), (2, 1)];
                let configurations = configurations.map(|(cols, groups)| (cols, groups * width));
                add_all(&configurations, &[[4, 64], [8, 32], [2, 128], [1, 256], [16, 16]]);
            }
            (_, false) => {
                for cols in [width, width.min(4), 2 * width] {
                    add_all(
                        &[(cols, 8), (cols, 4), (cols, 16)],
                        &[[32, 8], [16, 16], [8, 32], [64, 4], [8, 64], [8, 128]],
                    );
                }
            }
        }
        candidates
    }

    /// Whether B is contiguous along k; it is then passed transposed.
    pub fn transposed(&self) -> bool {
        self.orders[1] == Order2d::ColMajor
    }

    /// Columns of C per block.
    pub(crate) const fn columns(&self) -> u32 {
        self.threads_n * self.cols
    }

    /// Consecutive rows of B of a thread along k: the elements of one load of B or of A.
    pub fn run(&self) -> u32 {
        match self.orders[1] {
            Order2d::ColMajor => self.width(),
            _ => (16 / self.ty.accumulator().size()) as u32,
        }
    }

    /// Rows of B of a k-step: `load_depth` for each thread along k, twice, for double buffering.
    pub const fn step(&self) -> u32 {
        2 * self.threads_k * self.load_depth
    }

    const fn threads(&self) -> u32 {
        self.threads_n * self.threads_k
    }

    /// Registers per element.
    fn words(&self) -> u32 {
        (self.ty.size() as u32).div_ceil(4)
    }

    /// Resident blocks per SM by their registers. With this bound, ptxas neither spills for a
    /// higher occupancy nor uses registers that would lower it.
    pub(crate) fn blocks(&self) -> u32 {
        let (threads, registers) = (self.threads(), self.needed_registers());
        if threads >= LARGE_BLOCK {
            return REGISTERS / (threads * registers);
        }
        let registers = registers + registers * self.uncounted_quarters() / 4;
        // A warp's registers are in one quarter of the SM. With small blocks the warps of a quarter
        // are not a whole part of those of the SM.
        let warps_of_quarter = REGISTERS / 4 / (WARP * registers.next_multiple_of(8));
        4 * warps_of_quarter / (threads / WARP)
    }

    /// Quarters of the registers that ptxas takes beyond those counted. Large blocks have them to
    /// spare.
    fn uncounted_quarters(&self) -> u32 {
        match (self.words(), self.rows >= 8) {
            (_, true) if self.transposed() && self.cols == 1 => 3,
            (2.., true) if self.transposed() => 2,
            (2.., _) => 1,
            (_, true) if self.transposed() || self.load_depth >= 8 => 1,
            _ => 0,
        }
    }

    /// Resident blocks per SM, by threads, registers and shared memory.
    pub(crate) fn resident(&self) -> u32 {
        let rows_of_a = self.rows * self.chunk() * self.step();
        let partial_sums = self.threads_k * (self.round() * self.columns() + 1);
        let shared = (rows_of_a + partial_sums) * self.ty.accumulator().size() as u32;
        let by_shared = SHARED_BYTES / (shared + RESERVED_BYTES);
        self.blocks().min(by_shared).min(MAX_RESIDENT_THREADS / self.threads()).clamp(1, MAX_RESIDENT_BLOCKS)
    }

    /// Whether a thread has registers beyond those counted. Without them ptxas spills 16-byte loads
    /// of 16-bit types, and of bytes along k.
    pub(crate) fn has_spare_registers(&self) -> bool {
        const SPARE: u32 = 8;
        if self.ty.size() == 1 && !self.transposed() {
            return true;
        }
        REGISTERS / (self.threads() * self.blocks().max(1)) >= self.needed_registers() + SPARE
    }

    /// Registers of a thread.
    fn needed_registers(&self) -> u32 {
        // Strided addresses cost more where each element needs its own.
        let addresses = 2 * self.load_depth * self.cols / self.width() * if self.aligned_16 { 2 } else { 4 };
        let indices = 24 + self.ty.size() as u32;
        // 16 bytes are loaded to four registers before they are unpacked to one each.
        let bytes = if self.ty.size() == 1 && self.transposed() { 16 } else { 0 };
        // Without other threads along k, the loop over the outputs of the reduction is unrolled.
        let outputs = if self.threads_k == 1 { self.rows * self.cols * self.words() / 2 } else { 0 };
        self.registers() + addresses + indices + bytes + outputs
    }

    /// Whether the loads in flight, their addresses and the accumulators fit in a thread's
    /// registers.
    fn fits(&self) -> bool {
        self.registers() <= 144
            && self.blocks() >= 1
            && (self.aligned_16 || self.load_depth * self.cols * self.words() <= 16)
    }

    /// Registers of a thread for elements of B, of which narrow ones take a register each, and for
    /// accumulators.
    fn registers(&self) -> u32 {
        (2 * self.load_depth * self.cols + self.rows * self.cols) * self.words()
    }

    /// k-steps of a chunk of A in shared memory.
    pub(crate) fn chunk(&self) -> u32 {
        (STAGED_ELEMENTS * self.threads() / (self.rows * self.step())).max(1)
    }

    /// Rows of C per round of the final reduction.
    fn round(&self) -> u32 {
        (REDUCTION_ELEMENTS / (self.threads() * self.cols)).clamp(1, self.rows)
    }

    /// Partial sums that a thread adds one after the other in the final reduction.
    pub(crate) fn sequential_sums(&self) -> u32 {
        let round = self.round();
        self.rows / round * (round * self.columns()).div_ceil(self.threads()) * self.threads_k
    }

    /// Elements in 16 bytes.
    fn unit(&self) -> u32 {
        (16 / self.ty.size()) as u32
    }

    /// Elements of B per load.
    pub(crate) fn width(&self) -> u32 {
        match (self.aligned_16, self.transposed()) {
            (false, _) => 1,
            (true, false) => self.unit().min(self.cols),
            (true, true) => self.unit().min(self.load_depth),
        }
    }

    fn check(&self) -> Result<()> {
        let powers =
            [self.rows, self.cols, self.threads_n, self.threads_k, self.load_depth].iter().all(|x| x.is_power_of_two());
        let fits = powers
            && self.rows <= 16
            && self.cols.max(self.load_depth) <= 64
            && [self.threads_n, self.threads_k].iter().all(|&x| x <= MAX_THREADS)
            && (32..=MAX_THREADS).contains(&self.threads())
            && self.load_depth >= 4;
        match fits {
            true => self.epilogue.check(self.ty),
            false => Err(Error::KernelOption(format!(
                "invalid kernel {self}: rows, columns, depth and threads must be powers of 2, with at most 16 rows, \
                 depth 4 to 64 and 32 to {MAX_THREADS} threads"
            ))),
        }
    }

    /// Builds the kernel.
    ///
    /// # Errors
    /// [`Error::KernelOption`] for an unsupported type, or an invalid configuration.
    pub fn build(&self) -> Result<Kernel> {
        self.check()?;
        of_type!(self.ty, build(self))
    }
}

fn build<T: Element>(variant: &Vector) -> Kernel {
    kernel(&variant.to_string(), Block::d1(variant.threads()), |k| body::<T>(k, variant))
}

fn body<T: Element>(k: &Builder, variant: &Vector) {
    let Vector { rows, orders, .. } = *variant;
    let product = Product::<T>::with_parameters(
        k,
        &Parameters {
            name: &variant.to_string(),
            orders: [orders[0], if variant.transposed() { Order2d::RowMajor } else { orders[1] }, orders[2]],
            transposed: [false, variant.transposed()],
            widths: [1, variant.width(), 1],
            schedule: if variant.split { Schedule::SplitK } else { Schedule::DataParallel },
            epilogue: variant.epilogue,
        },
    );
    let (m, n, depth) = product.extents();
    k.min_blocks(variant.blocks().clamp(1, MAX_RESIDENT_BLOCKS));
    let thread = ThreadState::new(k, variant);
    k.for_blocks([n.div_ceil(variant.columns()), m.div_ceil(rows), product.batches()], |[x, y, z]| {
        let (product, [first, steps]) = product.split_k_range(z, depth.div_ceil(variant.step()));
        let (row, col) = (y * rows, x * variant.columns());
        // If k is no multiple of a step, the very first step is short, so that all others are
        // whole. Its rows of A and B before the matrix wrap around to out-of-bounds indices.
        let missing = depth.div_ceil(variant.step()) * variant.step() - depth;
        let range =
            BlockRange { product: &product, m, n, depth, row, col, start: first * variant.step() - missing, steps };
        thread.accumulate(&range);
        thread.reduce(&range);
    });
}

/// A block's tile of C and its range of k-steps.
struct BlockRange<'w, 'k, T: Element> {
    product: &'w Product<'k, T>,
    m: Val<'k, u32>,
    n: Val<'k, u32>,
    depth: Val<'k, u32>,
    /// The block's first row and column of C.
    row: Val<'k, u32>,
    col: Val<'k, u32>,
    /// Its first k; wraps around before the matrix.
    start: Val<'k, u32>,
    steps: Val<'k, u32>,
}

/// A thread's position in the block, its accumulators and its loads in flight.
struct ThreadState<'k, T: Element> {
    k: &'k Builder,
    variant: Vector,
    /// The thread's index along n and along k.
    x: Val<'k, u32>,
    y: Val<'k, u32>,
    /// A chunk along k of the rows of A.
    a: Shared<'k, T::Acc>,
    /// The partial sums of the threads along k for some rows of C.
    partial_sums: Shared<'k, T::Acc>,
    accumulators: Array<'k, T::Acc>,
    /// Elements of B of each half of a k-step: one is multiplied while the other is loaded.
    halves: [Array<'k, T>; 2],
}

impl<'k, T: Element> ThreadState<'k, T> {
    fn new(k: &'k Builder, variant: &Vector) -> Self {
        let Vector { rows, cols, threads_n, threads_k, load_depth, .. } = *variant;
        let thread = k.thread_x();
        let (x, y) = if variant.transposed() {
            (thread / threads_k, thread % threads_k)
        } else {
            (thread % threads_n, thread / threads_n)
        };
        ThreadState {
            k,
            variant: *variant,
            x,
            y,
            a: k.shared("rows_a", [rows, variant.chunk() * variant.step()]),
            // Padded against bank conflicts between threads along k.
            partial_sums: k.shared("sums", [threads_k, variant.round() * variant.columns() + 1]),
            accumulators: k.array(rows * cols),
            halves: [k.array(load_depth * cols), k.array(load_depth * cols)],
        }
    }

    /// The thread's k number `i` in half a step.
    fn depth_at(&self, i: u32) -> Val<'k, u32> {
        let group = self.variant.run();
        self.y * group + (i / group * (group * self.variant.threads_k) + i % group)
    }

    /// The column in the block of column `j` of thread `x`. The vectors of a load are interleaved.
    fn column(&self, j: Val<'k, u32>, x: Val<'k, u32>) -> Val<'k, u32> {
        let width = if self.variant.transposed() { 1 } else { self.variant.width() };
        j / width * (self.variant.threads_n * width) + x * width + j % width
    }

    /// Loads the elements of B of half a step; zeros for a k out of bounds.
    fn fetch(
        &self,
        range: &BlockRange<'_, 'k, T>,
        start: Val<'k, u32>,
        in_bounds: impl Fn(Val<'k, u32>) -> Pred<'k>,
        to: Array<'k, T>,
    ) {
        let Vector { cols, load_depth, .. } = self.variant;
        let (transposed, width) = (self.variant.transposed(), self.variant.width());
        let [k_width, n_width] = if transposed { [width, 1] } else { [1, width] };
        for i in (0..load_depth).step_by(k_width as usize) {
            for j in (0..cols).step_by(n_width as usize) {
                let depth = start + self.depth_at(i);
                let col = range.col + self.column(self.k.constant(j), self.x);
                // Out-of-bounds columns are clamped: their accumulators are never stored.
                let col = col.min(range.n - n_width);
                let at = if transposed { (col, depth) } else { (depth, col) };
                let values = load(range.product.b, at, width, in_bounds(depth));
                (0..).zip(values).for_each(|(e, value)| {
                    let (i, j) = if transposed { (i + e, j) } else { (i, j + e) };
                    to.at(i * cols + j).set(value);
                });
            }
        }
    }

    /// Copies a chunk of A to shared memory, with zero fill.
    fn stage(&self, range: &BlockRange<'_, 'k, T>, start: Val<'k, u32>) {
        let chunk = self.variant.chunk() * self.variant.step();
        let (threads, elements) = (self.variant.threads(), self.variant.rows * chunk);
        let coordinates = (0..elements.div_ceil(threads)).map(|round| {
            let index = self.k.thread_x() + round * threads;
            (index / chunk, index % chunk, index.lt(elements))
        });
        let staged = coordinates.map(|(row, depth, valid)| {
            let (from_row, from_depth) = (range.row + row, start + depth);
            let in_bounds = from_row.lt(range.m) & from_depth.lt(range.depth);
            (row, depth, valid, range.product.a.load_or((from_row, from_depth), in_bounds & valid, T::ZERO))
        });
        // All loads are issued before the first is used.
        for (row, depth, valid, value) in staged.collect::<Vec<_>>() {
            self.a.store_if((row, depth), value.to::<T::Acc>(), valid);
        }
    }

    /// The main loop over the k-steps of the range.
    fn accumulate(&self, range: &BlockRange<'_, 'k, T>) {
        let (k, step, chunk) = (self.k, self.variant.step(), self.variant.chunk());
        (0..self.accumulators.len()).for_each(|i| self.accumulators.at(i).set(T::Acc::ZERO));
        let halves = || self.halves.into_iter().zip((0..step).step_by(step as usize / 2));
        halves().for_each(|(b, half)| self.fetch(range, range.start + half, |depth| depth.lt(range.depth), b));
        k.for_step(0, range.steps, chunk, |first| {
            let start = range.start + first * step;
            // All threads have read the previous chunk.
            k.barrier();
            self.stage(range, start);
            k.barrier();
            k.for_each(0, (range.steps - first).min(chunk), |within| {
                let next = within + 1;
                // Predicated, not branched: no use of one half may precede the loads of the other.
                let has_next = (first + next).lt(range.steps);
                for (b, half) in halves() {
                    self.multiply(within * step + half, b);
                    self.fetch(range, start + next * step + half, |_| has_next, b);
                }
            });
        });
    }

    /// Accumulates half a step, whose rows of A begin at `start` in the chunk.
    fn multiply(&self, start: Val<'k, u32>, b: Array<'k, T>) {
        let Vector { rows, cols, load_depth, .. } = self.variant;
        let group = self.variant.run();
        for first in (0..load_depth).step_by(group as usize) {
            let b: Vec<_> = (0..group * cols).map(|i| b.at(first * cols + i).get().to::<T::Acc>()).collect();
            for row in 0..rows {
                let a = self.load_a(row, start + self.depth_at(first), group);
                for (a, b) in a.into_iter().zip(b.chunks(cols as usize)) {
                    (0..).zip(b).for_each(|(j, &b)| {
                        let sum = self.accumulators.at(row * cols + j);
                        sum.set(a.mul_add(b, sum.get()));
                    });
                }
            }
        }
    }

    /// Loads consecutive elements of A along k.
    fn load_a(&self, row: u32, depth: Val<'k, u32>, count: u32) -> Vec<Val<'k, T::Acc>> {
        let width = count.min(shared_vector_len::<T>());
        (0..count)
            .step_by(width as usize)
            .flat_map(|i| load(self.a, (self.k.constant(row), depth + i), width, self.k.constant(true)))
            .collect()
    }

    /// Adds the partial sums of the threads along k and stores them, some rows of C at a time.
    fn reduce(&self, range: &BlockRange<'_, 'k, T>) {
        let Vector { rows, cols, threads_n, threads_k, .. } = self.variant;
        let (k, columns, threads) = (self.k, self.variant.columns(), self.variant.threads());
        let round = self.variant.round();
        for first in (0..rows).step_by(round as usize) {
            k.barrier();
            for row in 0..round {
                for j in 0..cols {
                    let sum = self.accumulators.at((first + row) * cols + j).get();
                    self.partial_sums.store((self.y, self.x + (row * columns + j * threads_n)), sum);
                }
            }
            k.barrier();
            k.for_step(k.thread_x(), round * columns, threads, |index| {
                let (row, col) = (index / columns, index % columns);
                let total = k.var(T::Acc::ZERO);
                let unrolled = threads_k.min(8);
                k.for_step(0, threads_k, unrolled, |y| {
                    for i in 0..unrolled {
                        total.set(total.get() + self.partial_sums.load((y + i, index)));
                    }
                });
                let at = (range.row + first + row, range.col + self.column(col / threads_n, col % threads_n));
                k.when(at.0.lt(range.m) & at.1.lt(range.n), || range.product.store(at.0, at.1, total.get()));
            });
        }
    }
}

/// Elements of A in a 16-byte load from shared memory.
fn shared_vector_len<T: Element>() -> u32 {
    16 / size_of::<T::Acc>() as u32
}

/// Loads a vector of elements, or zeros if the guard is false.
fn load<'k, U: Scalar, M: Elements<'k, U>>(
    from: M,
    at: (Val<'k, u32>, Val<'k, u32>),
    width: u32,
    guard: Pred<'k>,
) -> Vec<Val<'k, U>> {
    match width {
        16 => from.load_vec_if::<16>(at, guard, U::ZERO).to_vec(),
        8 => from.load_vec_if::<8>(at, guard, U::ZERO).to_vec(),
        4 => from.load_vec_if::<4>(at, guard, U::ZERO).to_vec(),
        2 => from.load_vec_if::<2>(at, guard, U::ZERO).to_vec(),
        _ => from.load_vec_if::<1>(at, guard, U::ZERO).to_vec(),
    }
}

impl fmt::Display for Vector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Vector { ty, rows, cols, threads_n, threads_k, load_depth, .. } = self;
        write!(
            f,
            "vector_{ty}_{rows}x{cols}_threads{threads_n}x{threads_k}_load{load_depth}{}",
            order_letters(self.orders)
        )?;
        f.write_str(if self.aligned_16 { "_v" } else { "" })?;
        f.write_str(if self.split { "_split" } else { "" })?;
        f.write_str(&self.epilogue.suffix())
    }
}
