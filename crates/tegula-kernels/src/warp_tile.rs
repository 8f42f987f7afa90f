//! GEMM for batches of small products of 16-bit types: each warp owns a tile of C, which it
//! computes by `mma.sync` from registers that it loads from global memory itself.
//!
//! A block of another kernel copies tiles to shared memory first, and a barrier separates each step
//! of a pipeline from the next. With a short k such a pipeline hardly begins. Here no warp waits
//! for another, and a block may hold several products of the batch:
//!
//! * **Slabs.** An instruction consumes 16 elements along k. Each lane loads four adjacent ones, 8
//!   bytes, of a row (column) instead of two pairs: `mma` adds all 16 at once, so their order is
//!   free if A and B have the same.
//! * **Interleaved rows and columns.** The row groups of a tile are interleaved, so that a lane has
//!   up to four adjacent rows, and eight adjacent columns of C, which it stores as 16 bytes.
//!   An operand contiguous along rows (columns) is loaded in such vectors, and transposed in
//!   registers.
//! * **Any alignment.** Vectors are as wide as the alignment admits. If it admits none, lanes load
//!   adjacent elements to shared memory of the warp, and vectors from there.

use std::fmt;

use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Error, Result};
use tegula_ir::MAX_THREADS;
use tegula_ir::prelude::*;

use super::blocked::Schedule;
use super::epilogue::for_each_subtile;
use super::name_fields::{NameFields, write_field};
use super::orders::order_letters;
use super::product::{Parameters, Product};
use super::vector::{
    MAX_RESIDENT_BLOCKS, MAX_RESIDENT_THREADS, REGISTERS, RESERVED_BYTES, SHARED_BYTES, WARP as LANES,
};

/// Elements along k of an instruction, and those of a lane.
pub(crate) const SLAB: u32 = 16;
const LANE_DEPTH: u32 = 4;
/// Rows of A (columns of B) in a group, each loaded by the four lanes of one row of a fragment.
const GROUP: u32 = 8;
/// Interleaved groups: the adjacent rows (columns) of a lane.
const INTERLEAVED: u32 = 4;
/// Bytes of the widest access.
const VECTOR_BYTES: usize = 16;
/// Elements between the lines of a staged operand beyond their width. Lanes that load lines four
/// apart, 8 bytes each, are in different banks.
const LINE_PADDING: u32 = 4;
/// The same for accumulators, which are stored in pairs.
const SUMS_PADDING: u32 = 4;
/// Unrolled stores of single elements.
const STORES_IN_FLIGHT: u32 = 4;
/// Rows and columns of the instruction's tile.
const FRAGMENT: [u32; 2] = [16, 8];
/// The most accumulators of a lane.
const MAX_ACCUMULATORS: u32 = 64;

/// A kernel in which each warp computes a tile from registers, and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WarpTile {
    /// Element type of A and B: f16, bf16 or f64.
    pub ty: Type,
    /// Rows and columns of a block's tile of each product.
    pub block: [u32; 2],
    /// Rows and columns of a warp's tile.
    pub warp: [u32; 2],
    /// Products of the batch per block.
    pub products: u32,
    /// Slabs of 16 elements along k in flight.
    pub load_depth: u32,
    /// Storage orders of A, B and C. C is never column-major: the recipe computes the transpose
    /// instead.
    pub orders: [Order2d; 3],
    /// Elements of the widest accesses to A, B and C: address, strides and contiguous extent are
    /// multiples of these.
    pub widths: [u32; 3],
    /// The epilogue.
    pub epilogue: Epilogue,
}

impl WarpTile {
    /// A kernel for row-major operands, without vector accesses.
    pub const fn new(ty: Type, block: [u32; 2], warp: [u32; 2], products: u32, load_depth: u32) -> Self {
        let (orders, widths) = ([Order2d::RowMajor; 3], [1; 3]);
        WarpTile { ty, block, warp, products, load_depth, orders, widths, epilogue: Epilogue::NONE }
    }

    /// The same kernel for matrices that can be accessed by vectors of up to so many elements.
    #[must_use]
    pub fn with_widths(self, [a, b, c]: [u32; 3]) -> Self {
        let run = self.run();
        WarpTile { widths: [a.min(LANE_DEPTH), b.min(LANE_DEPTH), c.min(run)], ..self }
    }

    /// Adjacent columns of C of a lane: two of each interleaved group.
    fn run(&self) -> u32 {
        2 * self.groups()[1].min(INTERLEAVED)
    }

    /// Whether an operand, A (0) or B (1), is loaded through shared memory.
    pub(crate) fn is_staged(&self, operand: usize) -> bool {
        self.widths[operand] == 1
    }

    /// Parses a name without type and layouts: `warp_64x64_tile32x32_load2`, or for a block of four
    /// products `warp_32x32_tile32x32_products4_load2`.
    ///
    /// # Errors
    /// [`Error::KernelOption`] with the syntax of names.
    pub fn named(name: &str, ty: Type) -> Result<Self> {
        let parse = || {
            let mut fields = NameFields::parse(name.strip_prefix("warp_")?)?;
            let (block, warp) = (fields.tile()?, fields.take("tile", None)?);
            let ([products], [load_depth]) = (fields.take("products", Some([1]))?, fields.take("load", None)?);
            fields.finish(WarpTile::new(ty, block, warp, products, load_depth))
        };
        parse().ok_or_else(|| {
            Error::KernelOption(format!(
                "unknown kernel {name:?}; expected the tiles of a block and of a warp, the products of a block unless \
                 one, and slabs in flight as in warp_32x32_tile32x32_products4_load2"
            ))
        })
    }

    /// The name without type and layouts, as [`named`](Self::named) parses it.
    pub fn short_name(&self) -> String {
        format!("warp_{}", Configuration(self))
    }

    /// Whether A and B are passed transposed, so that rows are contiguous.
    pub(crate) fn transposed(&self) -> [bool; 2] {
        [self.orders[0] == Order2d::ColMajor, self.orders[1] == Order2d::ColMajor]
    }

    /// Whether operand A (0) or B (1) is loaded in vectors along k.
    pub(crate) fn is_along_k(&self, operand: usize) -> bool {
        self.orders[operand] == [Order2d::RowMajor, Order2d::ColMajor][operand]
    }

    /// Warps along m and n of a product.
    fn warps(&self) -> [u32; 2] {
        [self.block[0] / self.warp[0], self.block[1] / self.warp[1]]
    }

    /// Warps of a block.
    pub(crate) fn block_warps(&self) -> u32 {
        let [warps_m, warps_n] = self.warps();
        warps_m * warps_n * self.products
    }

    fn threads(&self) -> u32 {
        LANES * self.block_warps()
    }

    /// Groups of rows of A and of columns of B of a warp.
    pub(crate) fn groups(&self) -> [u32; 2] {
        self.warp.map(|side| side / GROUP)
    }

    /// Registers of a thread: accumulators, loads in flight, addresses, an epilogue and the rest.
    pub(crate) fn registers(&self) -> u32 {
        let groups = self.groups();
        let size = self.ty.size() as u32;
        let accumulators = 2 * groups[0] * groups[1] * size.div_ceil(4);
        let of_operand = |operand: usize| {
            let (slab, vectors) = (LANE_DEPTH * groups[operand] * size / 4, self.vector_groups(operand));
            // Single elements take a register each, or two.
            let elements = self.load_depth * LANE_DEPTH * groups[operand] * size.div_ceil(4);
            match self.is_staged(operand) {
                true => elements + slab + 12,
                false => self.load_depth * slab + 2 * groups[operand] / vectors,
            }
        };
        let epilogue = if self.epilogue.is_none() { 0 } else { 16 };
        accumulators + of_operand(0) + of_operand(1) + epilogue + 34
    }

    /// Groups of operand A (0) or B (1) that are loaded by one vector from the matrix.
    fn vector_groups(&self, operand: usize) -> u32 {
        if self.is_along_k(operand) { 1 } else { self.groups()[operand].min(self.widths[operand]) }
    }

    /// Resident blocks per SM by registers, which bounds those that ptxas uses. A warp's registers
    /// are in one quarter of the SM.
    fn blocks(&self) -> u32 {
        let warps_of_quarter = REGISTERS / 4 / (LANES * self.registers().next_multiple_of(8));
        (4 * warps_of_quarter / self.block_warps()).clamp(1, MAX_RESIDENT_BLOCKS)
    }

    /// Resident blocks per SM, by registers, warps and shared memory.
    pub(crate) fn resident(&self) -> u32 {
        let by_shared = SHARED_BYTES / (self.shared_bytes() + RESERVED_BYTES);
        self.blocks().min(MAX_RESIDENT_THREADS / self.threads()).min(by_shared).max(1)
    }

    /// Bytes of shared memory of a block: of staged operands, and of accumulators that lanes
    /// exchange.
    fn shared_bytes(&self) -> u32 {
        let staged = [0, 1].map(|operand| match self.is_staged(operand) {
            true => self.staged_lines(operand).iter().product::<u32>() * self.ty.size() as u32,
            false => 0,
        });
        let [rows, cols] = self.warp;
        let sum_bytes = self.ty.accumulator().size() as u32;
        let sums = if self.widths[2] == 1 { rows * (cols + SUMS_PADDING) * sum_bytes } else { 0 };
        self.block_warps() * (staged[0] + staged[1] + sums)
    }

    /// Lines of a warp's chunk of an operand in shared memory, and their elements with padding.
    fn staged_lines(&self, operand: usize) -> [u32; 2] {
        let (chunk, side) = (self.load_depth * SLAB, self.warp[operand]);
        let [lines, width] = if self.is_along_k(operand) { [side, chunk] } else { [chunk, side] };
        [lines, width + LINE_PADDING]
    }

    fn check(&self) -> Result<()> {
        let WarpTile { block: [bm, bn], warp: [wm, wn], products, load_depth, .. } = *self;
        let powers = [bm, bn, wm, wn, products, load_depth].iter().all(|x| x.is_power_of_two());
        let [fragment_rows, fragment_cols] = FRAGMENT;
        let fits = powers
            && (fragment_rows..=bm).contains(&wm)
            && (fragment_cols..=bn).contains(&wn)
            && wm * wn <= LANES * MAX_ACCUMULATORS
            && load_depth <= 8
            && [bm, bn, products].iter().all(|&x| x <= MAX_THREADS)
            && bm / wm * (bn / wn) * products * LANES <= MAX_THREADS
            && self.orders[2] != Order2d::ColMajor;
        match fits {
            true => self.epilogue.check(self.ty),
            false => Err(Error::KernelOption(format!(
                "invalid kernel {self}: tiles, products and depth must be powers of 2; a warp's tile has at least \
                 16x8 elements, at most {}, and divides that of the block of at most {MAX_THREADS} threads",
                LANES * MAX_ACCUMULATORS
            ))),
        }
    }

    /// Builds the kernel.
    ///
    /// # Errors
    /// [`Error::KernelOption`] for an unsupported type, or an invalid configuration.
    pub fn build(&self) -> Result<Kernel> {
        self.check()?;
        match self.ty {
            Type::F16 => Ok(build::<f16>(self, Mma::F16)),
            Type::BF16 => Ok(build::<bf16>(self, Mma::BF16)),
            Type::F64 => Ok(build::<f64>(self, Mma::F64K16)),
            ty => Err(Error::KernelOption(format!("warp kernels support f16, bf16 and f64, not {ty}"))),
        }
    }
}

/// An element type of `mma.sync`, and how a lane holds four elements along k.
trait FragmentElement: Element {
    /// The type of a register of A or B.
    type Register: Scalar;
    /// Registers of the four elements.
    const REGISTERS: u32;

    /// Packs the four elements.
    fn registers<'k>(elements: [Val<'k, Self>; LANE_DEPTH as usize]) -> Vec<Val<'k, Self::Register>>;
}

/// Registers hold pairs.
macro_rules! pairs {
    ($($T:ty)*) => { $(impl FragmentElement for $T {
        type Register = u32;
        const REGISTERS: u32 = LANE_DEPTH / 2;

        fn registers<'k>([a, b, c, d]: [Val<'k, Self>; LANE_DEPTH as usize]) -> Vec<Val<'k, u32>> {
            vec![a.pack(b), c.pack(d)]
        }
    })* };
}

pairs!(f16 bf16);

impl FragmentElement for f64 {
    type Register = f64;
    const REGISTERS: u32 = LANE_DEPTH;

    fn registers<'k>(elements: [Val<'k, Self>; LANE_DEPTH as usize]) -> Vec<Val<'k, f64>> {
        elements.to_vec()
    }
}

fn build<T: FragmentElement>(variant: &WarpTile, mma: Mma) -> Kernel {
    kernel(&variant.to_string(), Block::d1(variant.threads()), |k| body::<T>(k, variant, mma))
}

fn body<T: FragmentElement>(k: &Builder, variant: &WarpTile, mma: Mma) {
    let WarpTile { block: [bm, bn], warp: [wm, wn], products, orders, widths, .. } = *variant;
    let product = Product::<T>::with_parameters(
        k,
        &Parameters {
            name: &variant.to_string(),
            orders: orders.map(|order| if order == Order2d::ColMajor { Order2d::RowMajor } else { order }),
            transposed: variant.transposed(),
            widths,
            schedule: Schedule::DataParallel,
            epilogue: variant.epilogue,
        },
    );
    let (m, n, depth) = product.extents();
    k.min_blocks(variant.blocks());
    let staging = [0, 1].map(|operand| Staging::declare(k, variant, operand));
    // Without vector access to C, lanes exchange accumulators to store adjacent elements.
    let sums = (widths[2] == 1).then(|| k.shared::<T::Acc>("sums", [variant.block_warps() * wm, wn + SUMS_PADDING]));
    let [warps_m, warps_n] = variant.warps();
    let (tile_warps, batches) = (warps_m * warps_n, product.batches());
    k.for_blocks([n.div_ceil(bn), m.div_ceil(bm), batches.div_ceil(products)], |[x, y, z]| {
        let (index, within) = (k.warp() / tile_warps, k.warp() % tile_warps);
        let batch = z * products + index;
        let (row, col) = (y * bm + within / warps_n * wm, x * bn + within % warps_n * wn);
        k.when(batch.lt(batches) & row.lt(m) & col.lt(n), || {
            let product = product.batch(batch);
            let operand = |index: usize, global, lines| Operand::new(k, variant, index, global, lines, staging[index]);
            let (a, b) = (operand(0, product.a, [row, m]), operand(1, product.b, [col, n]));
            let accumulators = multiply(mma, depth, &a, &b);
            match sums {
                None => store(&product, variant, accumulators, [row, col]),
                Some(sums) => store_staged(&product, variant, accumulators, [row, col], sums),
            }
        });
    });
}

/// The part of shared memory through which a warp loads an operand without vector access: a chunk
/// along k of the rows (columns) of its tile, in the storage order of the operand. Lanes load
/// adjacent elements.
#[derive(Clone, Copy)]
struct Staging<'k, T: Element> {
    buffer: Shared<'k, T>,
    /// Lines of the chunk, and their elements.
    lines: u32,
    width: u32,
    /// The lane's elements of the next chunk.
    next: Array<'k, T>,
}

impl<'k, T: Element> Staging<'k, T> {
    fn declare(k: &'k Builder, variant: &WarpTile, operand: usize) -> Option<Self> {
        let [lines, padded] = variant.staged_lines(operand);
        let width = padded - LINE_PADDING;
        variant.is_staged(operand).then(|| Staging {
            buffer: k.shared(["tile_a", "tile_b"][operand], [variant.block_warps() * lines, padded]),
            lines,
            width,
            next: k.array(lines * width / LANES),
        })
    }

    /// Lines of a copy, one element by each lane.
    fn lines_of_copy(&self) -> u32 {
        (LANES / self.width).max(1)
    }

    /// The lane's line and element of the first copy.
    fn lane(&self, k: &'k Builder) -> [Val<'k, u32>; 2] {
        if self.width < LANES { [k.lane() / self.width, k.lane() % self.width] } else { [k.constant(0), k.lane()] }
    }

    /// The lane's copies: their first line and element, beyond those of the first copy.
    fn copies(&self) -> impl Iterator<Item = (u32, u32)> + use<T> {
        let (width, step) = (self.width, self.lines_of_copy());
        let lines = (0..self.lines).step_by(step as usize);
        lines.flat_map(move |line| (0..width).step_by(LANES as usize).map(move |element| (line, element)))
    }

    /// The warp's first line in the buffer.
    fn origin(&self, k: &'k Builder) -> Val<'k, u32> {
        k.warp() * self.lines
    }
}

/// An operand of a warp's tile: its source, and its slabs in registers.
struct Operand<'k, T: FragmentElement> {
    k: &'k Builder,
    variant: WarpTile,
    /// 0 for A, 1 for B.
    index: usize,
    global: Global<'k, T>,
    /// The first row of A (column of B) of the tile, and the rows (columns) of the operand.
    first: Val<'k, u32>,
    extent: Val<'k, u32>,
    /// The shared memory of an operand that cannot be loaded by vectors.
    staging: Option<Staging<'k, T>>,
    /// The registers of each slab and group. A staged operand has one slab.
    slabs: Array<'k, T::Register>,
    /// The lane's next elements along k, for each vector of a slab: none of a staged operand.
    cursors: Vec<Cursor<'k, T>>,
}

impl<'k, T: FragmentElement> Operand<'k, T> {
    fn new(
        k: &'k Builder,
        variant: &WarpTile,
        index: usize,
        global: Global<'k, T>,
        [first, extent]: [Val<'k, u32>; 2],
        staging: Option<Staging<'k, T>>,
    ) -> Self {
        let (variant, cursors) = (*variant, Vec::new());
        let (groups, slabs) = (variant.groups()[index], if staging.is_some() { 1 } else { variant.load_depth });
        let slabs = k.array(slabs * T::REGISTERS * groups);
        let operand = Operand { k, variant, index, global, first, extent, staging, slabs, cursors };
        if staging.is_some() {
            return operand;
        }
        let width = operand.vector_groups();
        let cursor = |group: u32| {
            let line = first + interleaved_line(k.lane() / 4, group, groups);
            // Rows (columns) out of bounds are clamped: their accumulators are never stored.
            global.cursor(operand.at(line.min(extent - width), k.lane() % 4 * LANE_DEPTH))
        };
        let cursors = (0..groups).step_by(width as usize).map(cursor).collect();
        Operand { cursors, ..operand }
    }

    /// Groups of 8 rows (columns).
    fn groups(&self) -> u32 {
        self.variant.groups()[self.index]
    }

    /// Elements of a vector.
    fn width(&self) -> u32 {
        self.variant.widths[self.index]
    }

    fn vector_groups(&self) -> u32 {
        self.variant.vector_groups(self.index)
    }

    /// Whether it is contiguous along k.
    fn along_k(&self) -> bool {
        self.variant.is_along_k(self.index)
    }

    /// The registers of a slab.
    fn slab(&self, slab: u32) -> Array<'k, T::Register> {
        let slab = if self.staging.is_some() { 0 } else { slab };
        let registers = T::REGISTERS * self.groups();
        self.slabs.slice(slab * registers, registers)
    }

    /// Coordinates in the matrix of a row (column) and a k.
    fn at<N>(&self, line: N, p: N) -> (N, N) {
        if (self.index == 0) != self.variant.transposed()[self.index] { (line, p) } else { (p, line) }
    }

    /// Coordinates in the matrix of an element of a line of the staged operand.
    fn coordinates<N>(&self, line: N, element: N) -> (N, N) {
        if self.along_k() { self.at(line, element) } else { self.at(element, line) }
    }

    /// Loads the chunk that begins at `start` along k: to registers, or to those that `stage`
    /// stores. Zeros past the last k.
    fn fetch_chunk(&self, start: Val<'k, u32>, depth: Val<'k, u32>) {
        let Some(staging) = self.staging else {
            return (0..self.variant.load_depth).for_each(|slab| self.fetch(start + slab * SLAB, depth, slab));
        };
        let [line, element] = staging.lane(self.k);
        let (line, element, extents) = match self.along_k() {
            true => (self.first + line, start + element, [self.extent, depth]),
            false => (start + line, self.first + element, [depth, self.extent]),
        };
        let [lines, elements] = [(line, extents[0]), (element, extents[1])].map(|(at, end)| end - at.min(end));
        let cursor = self.global.cursor(self.coordinates(line, element));
        let mut current = 0;
        for (index, (line, element)) in (0..).zip(staging.copies()) {
            if line > current {
                let (rows, cols) = self.coordinates(line - current, 0);
                cursor.advance(rows, cols);
                current = line;
            }
            let in_bounds = lines.gt(line) & elements.gt(element);
            staging.next.at(index).set(cursor.load_or(self.coordinates(0u32, element), in_bounds, T::ZERO));
        }
    }

    /// Stores the loaded chunk of a staged operand to shared memory.
    fn stage(&self) {
        let Some(staging) = self.staging else { return };
        let [first_line, first_element] = staging.lane(self.k);
        let first_line = staging.origin(self.k) + first_line;
        for (index, (line, element)) in (0..).zip(staging.copies()) {
            staging.buffer.store((first_line + line, first_element + element), staging.next.at(index).get());
        }
    }

    /// Loads the lane's elements of a slab that begins at `start` along k to registers; zeros past
    /// the last k. Slabs are loaded one after the other.
    fn fetch(&self, start: Val<'k, u32>, depth: Val<'k, u32>, slab: u32) {
        let p = start + self.k.lane() % 4 * LANE_DEPTH;
        let vectors = self.vector_groups();
        self.load(slab, [self.width(), vectors], |group, i| {
            let cursor = self.cursors[(group / vectors) as usize];
            let in_bounds = (p + i).lt(depth);
            // To the next k, or to the lane's first k of the next slab.
            let (values, advance) = if self.along_k() {
                let values = load_vector(cursor, self.at(0u32, i), self.width(), in_bounds);
                (values, if i + self.width() == LANE_DEPTH { SLAB } else { 0 })
            } else {
                let values = load_vector(cursor, (0u32, 0u32), vectors, in_bounds);
                (values, if i + 1 < LANE_DEPTH { 1 } else { SLAB + 1 - LANE_DEPTH })
            };
            let (rows, cols) = self.at(0, advance);
            cursor.advance(rows, cols);
            values
        });
    }

    /// The same for a slab of the chunk in shared memory.
    fn fetch_staged(&self, slab: u32) {
        let Some(staging) = self.staging else { return };
        let (k, origin) = (self.k, staging.origin(self.k));
        let p = k.lane() % 4 * LANE_DEPTH + slab * SLAB;
        let widest = (VECTOR_BYTES / size_of::<T>()) as u32;
        let widths = [LANE_DEPTH, self.groups().min(INTERLEAVED)].map(|width| width.min(widest));
        self.load(0, widths, |group, i| {
            let (line, p) = (interleaved_line(k.lane() / 4, group, self.groups()), p + i);
            let (line, element) = if self.along_k() { (line, p) } else { (p, line) };
            let width = widths[usize::from(!self.along_k())];
            load_vector(staging.buffer, (origin + line, element), width, k.constant(true))
        });
    }

    /// Loads a slab to registers, by vectors of `widths` elements along k, or rows (columns) of
    /// adjacent groups. `vector` takes the first group and the first of the lane's k.
    fn load(&self, slab: u32, widths: [u32; 2], vector: impl Fn(u32, u32) -> Vec<Val<'k, T>>) {
        let to = self.slab(slab);
        let set = |group: u32, values: [Val<'k, T>; LANE_DEPTH as usize]| {
            let registers = T::registers(values).into_iter();
            (0..).zip(registers).for_each(|(i, register)| to.at(T::REGISTERS * group + i).set(register));
        };
        let [of_k, of_groups] = widths.map(|width| width as usize);
        if self.along_k() {
            for group in 0..self.groups() {
                let values: Vec<_> = (0..LANE_DEPTH).step_by(of_k).flat_map(|i| vector(group, i)).collect();
                set(group, std::array::from_fn(|i| values[i]));
            }
            return;
        }
        for first in (0..self.groups()).step_by(of_groups) {
            let rows: Vec<_> = (0..LANE_DEPTH).map(|i| vector(first, i)).collect();
            (0..of_groups).for_each(|j| set(first + j as u32, std::array::from_fn(|i| rows[i][j])));
        }
    }
}

/// Loads adjacent elements, or zeros if the guard is false.
fn load_vector<'k, T: Element, M: Elements<'k, T>>(
    from: M,
    at: impl Coord<'k>,
    width: u32,
    guard: Pred<'k>,
) -> Vec<Val<'k, T>> {
    match width {
        4 => from.load_vec_if::<4>(at, guard, T::ZERO).to_vec(),
        2 => from.load_vec_if::<2>(at, guard, T::ZERO).to_vec(),
        _ => from.load_vec_if::<1>(at, guard, T::ZERO).to_vec(),
    }
}

/// The position in a tile of line `index` (below 8) of a group. Groups are interleaved: lines of
/// the same index are adjacent.
fn interleaved_line<'k>(index: Val<'k, u32>, group: u32, groups: u32) -> Val<'k, u32> {
    let interleaved = groups.min(INTERLEAVED);
    index * interleaved + (group / interleaved * interleaved * GROUP + group % interleaved)
}

/// The main loop. Returns the accumulators of the lane: those of 16 rows by 8 columns, row by row.
fn multiply<'k, T: FragmentElement>(
    mma: Mma,
    depth: Val<'k, u32>,
    a: &Operand<'k, T>,
    b: &Operand<'k, T>,
) -> Array<'k, T::Acc> {
    let (k, load_depth, [groups_a, groups_b]) = (a.k, a.variant.load_depth, a.variant.groups());
    let step = load_depth * SLAB;
    let accumulators = k.array::<T::Acc>(2 * groups_a * groups_b);
    (0..accumulators.len()).for_each(|i| accumulators.at(i).set(T::Acc::ZERO));
    let operands = [a, b];
    let is_staged = operands.iter().any(|operand| operand.staging.is_some());
    operands.iter().for_each(|operand| operand.fetch_chunk(k.constant(0), depth));
    k.for_step(0, depth, step, |first| {
        let next = first + step;
        let has_next = next.lt(depth);
        if is_staged {
            // The warp has read the previous chunk.
            k.sync_warp(FULL_WARP);
            operands.iter().for_each(|operand| operand.stage());
            k.sync_warp(FULL_WARP);
            k.when(has_next, || {
                let staged = operands.iter().filter(|operand| operand.staging.is_some());
                staged.for_each(|operand| operand.fetch_chunk(next, depth));
            });
        }
        for slab in 0..load_depth {
            operands.iter().for_each(|operand| operand.fetch_staged(slab));
            let (of_a, of_b) = (a.slab(slab), b.slab(slab));
            let register = |of: Array<'k, T::Register>, group: u32, i: u32| of.at(T::REGISTERS * group + i).get();
            for i in 0..groups_a / 2 {
                // The upper and the lower rows alternate.
                let rows: Vec<_> =
                    (0..T::REGISTERS).flat_map(|k| [2 * i, 2 * i + 1].map(|group| register(of_a, group, k))).collect();
                for j in 0..groups_b {
                    let cols: Vec<_> = (0..T::REGISTERS).map(|k| register(of_b, j, k)).collect();
                    k.mma(mma, &rows, &cols, accumulators.slice((i * groups_b + j) * 4, 4));
                }
            }
        }
        let direct = || operands.iter().filter(|operand| operand.staging.is_none());
        if direct().next().is_some() {
            k.when(has_next, || direct().for_each(|operand| operand.fetch_chunk(next, depth)));
        }
    });
    accumulators
}

/// Stores the lane's accumulators. `row` and `col` are the first of the warp's tile.
fn store<'k, T: Element>(
    product: &Product<'k, T>,
    variant: &WarpTile,
    accumulators: Array<'k, T::Acc>,
    corner: [Val<'k, u32>; 2],
) {
    let k = product.k;
    let fragments_m = variant.groups()[0] / 2;
    if !product.has_long_epilogue() {
        return store_fragments(product, variant, accumulators, corner, k.constant(0u32));
    }
    for_each_subtile(k, accumulators, fragments_m, |first, accumulators| {
        store_fragments(product, variant, accumulators, corner, first);
    });
}

/// Stores the accumulators of fragments of 16 rows, from number `first` on, as vectors.
fn store_fragments<'k, T: Element>(
    product: &Product<'k, T>,
    variant: &WarpTile,
    accumulators: Array<'k, T::Acc>,
    [row, col]: [Val<'k, u32>; 2],
    first: Val<'k, u32>,
) {
    let (m, n, _) = product.extents();
    let (runs, ordered) = runs(product.k, variant, accumulators, first);
    let width = variant.widths[2];
    let vectors = variant.run() / width;
    let vector = |index: u32| {
        let ([line, column], at) = runs[(index / vectors) as usize];
        let (row, col, at) = (row + line, col + column + index % vectors * width, at + index % vectors * width);
        ((row, col), row.lt(m) & col.lt(n), at)
    };
    product.store_vectors(runs.len() as u32 * vectors, vector, ordered, width);
}

/// A lane's runs of adjacent columns in the warp's tile: row, first column and first accumulator.
type Runs<'k> = Vec<([Val<'k, u32>; 2], u32)>;

/// The runs of a lane in fragments of 16 rows, from number `first` on, and their accumulators in
/// order.
fn runs<'k, S: Scalar>(
    k: &'k Builder,
    variant: &WarpTile,
    accumulators: Array<'k, S>,
    first: Val<'k, u32>,
) -> (Runs<'k>, Array<'k, S>) {
    let [groups_a, groups_b] = variant.groups();
    let (fragments, lane_row, lane_col) = (accumulators.len() / (4 * groups_b), k.lane() / 4, k.lane() % 4);
    let [of_a, of_b] = [groups_a, groups_b].map(|groups| groups.min(INTERLEAVED));
    let length = variant.run();
    let (mut runs, ordered) = (Vec::new(), k.array::<S>(accumulators.len()));
    let halves = (0..fragments).flat_map(|i| [0, 1].map(|half| (i, half)));
    for (i, half, block) in halves.flat_map(|(i, half)| (0..groups_b / of_b).map(move |block| (i, half, block))) {
        let at = runs.len() as u32 * length;
        for element in 0..length {
            let (column, group) = (element / of_b, block * of_b + element % of_b);
            let from = (i * groups_b + group) * 4 + half * 2 + column;
            ordered.at(at + element).set(accumulators.at(from).get());
        }
        let group = (first + i) * 2 + half;
        let line = group / of_a * (of_a * GROUP) + lane_row * of_a + group % of_a;
        runs.push(([line, lane_col * length + block * of_b * GROUP], at));
    }
    (runs, ordered)
}

/// Stores the lane's accumulators through shared memory, adjacent elements by adjacent lanes.
fn store_staged<'k, T: Element>(
    product: &Product<'k, T>,
    variant: &WarpTile,
    accumulators: Array<'k, T::Acc>,
    [row, col]: [Val<'k, u32>; 2],
    sums: Shared<'k, T::Acc>,
) {
    let (k, [wm, wn]) = (product.k, variant.warp);
    let ((m, n, _), origin) = (product.extents(), k.warp() * wm);
    let (runs, ordered) = runs(k, variant, accumulators, k.constant(0));
    for ([line, column], first) in runs {
        for at in (0..variant.run()).step_by(2) {
            let pair = [0, 1].map(|i| ordered.at(first + at + i).get());
            sums.store_vec((origin + line, column + at), pair);
        }
    }
    k.sync_warp(FULL_WARP);
    k.for_each_unrolled(0, wm * wn / LANES, if product.has_long_epilogue() { 1 } else { STORES_IN_FLIGHT }, |copy| {
        let index = copy * LANES + k.lane();
        let (line, column) = (index / wn, index % wn);
        let (row, col) = (row + line, col + column);
        k.when(row.lt(m) & col.lt(n), || product.store(row, col, sums.load((origin + line, column))));
    });
    // Before the next product.
    k.sync_warp(FULL_WARP);
}

/// The configuration in names.
struct Configuration<'a>(&'a WarpTile);

impl fmt::Display for Configuration<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let WarpTile { block: [rows, cols], warp, products, load_depth, .. } = *self.0;
        write!(f, "{rows}x{cols}")?;
        write_field(f, "tile", warp, None)?;
        write_field(f, "products", [products], Some([1]))?;
        write_field(f, "load", [load_depth], None)
    }
}

impl fmt::Display for WarpTile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "warp_{}_{}{}", self.ty, Configuration(self), order_letters(self.orders))?;
        if self.widths != [1; 3] {
            let [a, b, c] = self.widths;
            write!(f, "_v{a}{b}{c}")?;
        }
        f.write_str(&self.epilogue.suffix())
    }
}
