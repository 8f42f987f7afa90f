//! Matrix times vector, or times a few of them: C has few rows, B is large and is read once, at the speed of memory.
//!
//! Of a block's threads `across` lie along n and `down` along k. Each owns `cols` columns of all `few` rows of C and takes `deep` rows of B at
//! a time, which it loads ahead, 16 bytes at once where B allows it. Neighbouring threads are neighbours along whichever side of B
//! lies side by side. The block keeps the few rows of A in shared memory, a chunk along k at a time. At the end the threads down k add what
//! they have, always in the same order.

use std::fmt;

use tegula_core::element::Type;
use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Error, Result};
use tegula_ir::prelude::*;
use tegula_ir::{Kernel, MAX_THREADS};

use super::blocked::Schedule;
use super::orders::order_letters;
use super::product::{Parameters, Product};

/// Sums that a block's threads bring to shared memory at once at the end, if a row of C has no more.
const EXCHANGED: u32 = 4096;

/// Elements of A that a thread brings to shared memory at once, if a step is no larger.
const STAGED: u32 = 8;

/// A kernel for a C of few rows, and everything that shapes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Vector {
    /// Element type of A and B.
    pub ty: Type,
    /// Rows of C that a block makes: 1, 2, 4, 8 or 16.
    pub few: u32,
    /// Columns of C that a thread owns.
    pub cols: u32,
    /// Threads of a block along n.
    pub across: u32,
    /// Threads of a block along k.
    pub down: u32,
    /// Rows of B that a thread loads before it needs the first of them.
    pub deep: u32,
    /// What is known of the strides of A, B and C.
    pub orders: [Order2d; 3],
    /// Whether B may be read 16 bytes at once: its address and strides are multiples, and so is the extent along which elements lie side by
    /// side.
    pub vectors: bool,
    /// Whether the sums along k are split: C is then a workspace with a matrix for each part, `batch` times `parts` of them, and
    /// neither alpha nor beta is applied, nor an epilogue.
    pub split: bool,
    /// What happens to sums on their way to C.
    pub epilogue: Epilogue,
}

impl Vector {
    /// Row-major, one element at a time.
    pub const fn new(ty: Type, few: u32, cols: u32, [across, down]: [u32; 2], deep: u32) -> Self {
        let orders = [Order2d::RowMajor; 3];
        Vector { ty, few, cols, across, down, deep, orders, vectors: false, split: false, epilogue: Epilogue::NONE }
    }

    /// The kernel of that name without type and layouts: `vector_16x4_32x8_8`.
    ///
    /// # Errors
    /// [`Error::KernelOption`] that says what a name looks like.
    pub fn named(name: &str, ty: Type) -> Result<Self> {
        let numbers = name.strip_prefix("vector_").into_iter().flat_map(|shape| shape.split(['x', '_']));
        let numbers: Option<Vec<u32>> = numbers.map(|number| number.parse().ok()).collect();
        match numbers.as_deref() {
            Some(&[few, cols, across, down, deep]) => Ok(Vector::new(ty, few, cols, [across, down], deep)),
            _ => Err(Error::KernelOption(format!(
                "there is no kernel {name:?}; one is vector_16x4_32x8_8: rows and columns, threads along n and k, depth"
            ))),
        }
    }

    /// The name without type and layouts, as [`named`](Self::named) takes it.
    pub fn short_name(&self) -> String {
        let Vector { few, cols, across, down, deep, .. } = self;
        format!("vector_{few}x{cols}_{across}x{down}_{deep}")
    }

    /// Shapes worth trying for a C of `rows` rows, the likeliest first. `along_k` says that B lies side by side along k, `vectors`
    /// that it may be read 16 bytes at once.
    ///
    /// Enough bytes must be on their way to cover the time that memory takes: about 32 KB on each multiprocessor, which 256 threads with 8
    /// loads of 16 bytes are. More rows of C take more registers, so that fewer loads fit; so do the addresses of many
    /// single elements.
    pub fn shapes(ty: Type, rows: usize, along_k: bool, vectors: bool) -> Vec<Self> {
        let few = rows.clamp(1, 16).next_power_of_two() as u32;
        let all = (16 / ty.size()) as u32;
        let wide = if vectors { all } else { all.min(4) };
        let mut candidates = Vec::new();
        let mut add = |cols, threads, deep| {
            let vector = Vector { vectors, ..Vector::new(ty, few, cols, threads, deep) };
            if few * cols <= 64 && vector.fits() && few * vector.step() <= 8192 && vector.check().is_ok() {
                candidates.push(vector);
            }
        };
        if along_k {
            for (cols, groups) in [(2, 4), (4, 2), (4, 1), (8, 1), (1, 4), (2, 2), (2, 1)] {
                [[4, 64], [8, 32], [2, 128], [1, 256], [16, 16]]
                    .into_iter()
                    .for_each(|threads| add(cols, threads, groups * wide));
            }
        } else {
            for cols in [wide, wide.min(4), 2 * wide] {
                for deep in [8, 4, 16] {
                    for threads in [[32, 8], [16, 16], [8, 32], [64, 4], [8, 64], [8, 128]] {
                        add(cols, threads, deep);
                    }
                }
            }
        }
        candidates
    }

    /// Whether B's elements lie side by side along k; the kernel then takes B transposed.
    pub fn turned(&self) -> bool {
        self.orders[1] == Order2d::ColMajor
    }

    /// Columns of C that a block makes.
    pub(super) const fn columns(&self) -> u32 {
        self.across * self.cols
    }

    /// Rows of B that a block takes in a step: `deep` for each thread, twice, since two loads follow each other.
    pub const fn step(&self) -> u32 {
        2 * self.down * self.deep
    }

    const fn threads(&self) -> u32 {
        self.across * self.down
    }

    /// Registers of an element.
    fn words(&self) -> u32 {
        (self.ty.size() as u32).div_ceil(4)
    }

    /// Blocks for whose registers a multiprocessor has room. Asked for so many, the assembler neither spills to make room for more nor
    /// spends registers that would keep one out.
    fn blocks(&self) -> u32 {
        const ALL: u32 = 65_536;
        // Addresses that are multiples of a stride apart cost more where each element needs one.
        let addresses = 2 * self.deep * self.cols / self.width() * if self.vectors { 2 } else { 4 };
        let indices = 24 + self.ty.size() as u32;
        // Sixteen bytes are in four registers before they are in one each.
        let bytes = if self.ty.size() == 1 && self.turned() { 16 } else { 0 };
        ALL / (self.threads() * (self.registers() + addresses + indices + bytes))
    }

    /// Whether its loads, each with its address, and its sums fit in a thread's registers.
    fn fits(&self) -> bool {
        self.registers() <= 144 && self.blocks() >= 1 && (self.vectors || self.deep * self.cols * self.words() <= 16)
    }

    /// Registers of a thread for elements of B, of which the narrow ones take a whole one each, and for sums.
    fn registers(&self) -> u32 {
        (2 * self.deep * self.cols + self.few * self.cols) * self.words()
    }

    /// Steps for which A is in shared memory.
    fn chunk(&self) -> u32 {
        (STAGED * self.threads() / (self.few * self.step())).max(1)
    }

    /// Rows of C whose sums are added at once.
    fn round(&self) -> u32 {
        (EXCHANGED / (self.threads() * self.cols)).clamp(1, self.few)
    }

    /// Elements of 16 bytes.
    fn unit(&self) -> u32 {
        (16 / self.ty.size()) as u32
    }

    /// Elements of B in one load.
    fn width(&self) -> u32 {
        match (self.vectors, self.turned()) {
            (false, _) => 1,
            (true, false) => self.unit().min(self.cols),
            (true, true) => self.unit().min(self.deep),
        }
    }

    fn check(&self) -> Result<()> {
        let powers = [self.few, self.cols, self.across, self.down, self.deep].iter().all(|x| x.is_power_of_two());
        let fits = powers
            && self.few <= 16
            && self.cols.max(self.deep) <= 64
            && [self.across, self.down].iter().all(|&x| x <= MAX_THREADS)
            && (32..=MAX_THREADS).contains(&self.threads())
            && self.deep >= 4;
        match fits {
            true => self.epilogue.check(self.ty),
            false => Err(Error::KernelOption(format!(
                "{self} is no kernel: rows, columns, depth and threads are powers of two, rows at most 16, the depth 4 to 64, threads 32 to {MAX_THREADS}"
            ))),
        }
    }

    /// Builds the kernel.
    ///
    /// # Errors
    /// [`Error::KernelOption`] for a type without kernels, or numbers that make none.
    pub fn build(&self) -> Result<Kernel> {
        self.check()?;
        of_type!(self.ty, build(self))
    }
}

fn build<T: Element>(variant: &Vector) -> Kernel {
    kernel(&variant.to_string(), Block::d1(variant.threads()), |k| body::<T>(k, variant))
}

fn body<T: Element>(k: &Builder, variant: &Vector) {
    let Vector { few, orders, .. } = *variant;
    let product = Product::<T>::with(
        k,
        &Parameters {
            name: &variant.to_string(),
            orders: [orders[0], if variant.turned() { Order2d::RowMajor } else { orders[1] }, orders[2]],
            turned: [false, variant.turned()],
            widths: [1, variant.width(), 1],
            schedule: if variant.split { Schedule::Parts } else { Schedule::Tiles },
            epilogue: variant.epilogue,
        },
    );
    let (m, n, depth) = product.extents();
    k.min_blocks(variant.blocks().max(1));
    let worker = Worker::new(k, variant);
    k.for_blocks([n.div_ceil(variant.columns()), m.div_ceil(few), product.batches()], |[x, y, z]| {
        let (product, [first, steps]) = product.share(z, depth.div_ceil(variant.step()));
        let (row, col) = (y * few, x * variant.columns());
        // What is left over when k is no multiple of a step is missing from the very first, so that all others are whole. Rows of A and B
        // before the matrix wrap around to beyond its end.
        let missing = depth.div_ceil(variant.step()) * variant.step() - depth;
        let walk = Walk { product: &product, m, n, depth, row, col, start: first * variant.step() - missing, steps };
        worker.walk(&walk);
        worker.finish(&walk);
    });
}

/// What a block works on.
struct Walk<'w, 'k, T: Element> {
    product: &'w Product<'k, T>,
    m: Val<'k, u32>,
    n: Val<'k, u32>,
    depth: Val<'k, u32>,
    /// The block's first row and column of C.
    row: Val<'k, u32>,
    col: Val<'k, u32>,
    /// Its first k; wraps where that is before the matrix.
    start: Val<'k, u32>,
    steps: Val<'k, u32>,
}

/// What a thread owns, and where it stands among the block's.
struct Worker<'k, T: Element> {
    k: &'k Builder,
    variant: Vector,
    /// Along n and along k.
    x: Val<'k, u32>,
    y: Val<'k, u32>,
    /// The rows of A, a chunk along k.
    a: Shared<'k, T::Acc>,
    /// What the threads down k have for some rows of C.
    exchange: Shared<'k, T::Acc>,
    sums: Array<'k, T::Acc>,
    /// Elements of B for each half of a step: while those of one are multiplied, those of the other are on their way.
    halves: [Array<'k, T>; 2],
}

impl<'k, T: Element> Worker<'k, T> {
    fn new(k: &'k Builder, variant: &Vector) -> Self {
        let Vector { few, cols, across, down, deep, .. } = *variant;
        let thread = k.thread_x();
        let (x, y) = if variant.turned() { (thread / down, thread % down) } else { (thread % across, thread / across) };
        Worker {
            k,
            variant: *variant,
            x,
            y,
            a: k.shared("rows_a", [few, variant.chunk() * variant.step()]),
            // One more, so that threads down k meet different banks.
            exchange: k.shared("sums", [down, variant.round() * variant.columns() + 1]),
            sums: k.array(few * cols),
            halves: [k.array(deep * cols), k.array(deep * cols)],
        }
    }

    /// Rows of B, side by side along k, that a thread takes at once: as many as one load of B or of A has.
    fn group(&self) -> u32 {
        match self.variant.turned() {
            true => self.variant.width(),
            false => factors::<T>(),
        }
    }

    /// The thread's k number `i` of half a step.
    fn depth_at(&self, i: u32) -> Val<'k, u32> {
        let group = self.group();
        self.y * group + (i / group * (group * self.variant.down) + i % group)
    }

    /// Column `j`, a constant or not, of thread `x` within the block's. Pieces as wide as a load lie side by side.
    fn column(&self, j: Val<'k, u32>, x: Val<'k, u32>) -> Val<'k, u32> {
        let width = if self.variant.turned() { 1 } else { self.variant.width() };
        j / width * (self.variant.across * width) + x * width + j % width
    }

    /// Loads the elements of B of half a step; zeros for a k that is not `inside`.
    fn fetch(
        &self,
        walk: &Walk<'_, 'k, T>,
        start: Val<'k, u32>,
        inside: impl Fn(Val<'k, u32>) -> Pred<'k>,
        to: Array<'k, T>,
    ) {
        let Vector { cols, deep, .. } = self.variant;
        let (turned, width) = (self.variant.turned(), self.variant.width());
        let [k_width, n_width] = if turned { [width, 1] } else { [1, width] };
        for i in (0..deep).step_by(k_width as usize) {
            for j in (0..cols).step_by(n_width as usize) {
                let depth = start + self.depth_at(i);
                let col = walk.col + self.column(self.k.constant(j), self.x);
                // Beyond the edge, columns at the edge are loaded again: sums of them are never stored.
                let col = col.min(walk.n - n_width);
                let at = if turned { (col, depth) } else { (depth, col) };
                let values = load(walk.product.b, at, width, inside(depth));
                (0..).zip(values).for_each(|(e, value)| {
                    let (i, j) = if turned { (i + e, j) } else { (i, j + e) };
                    to.at(i * cols + j).set(value);
                });
            }
        }
    }

    /// Brings a chunk of A to shared memory, zeros where it is outside.
    fn stage(&self, walk: &Walk<'_, 'k, T>, start: Val<'k, u32>) {
        let chunk = self.variant.chunk() * self.variant.step();
        let (threads, all) = (self.variant.threads(), self.variant.few * chunk);
        let places = (0..all.div_ceil(threads)).map(|turn| {
            let place = self.k.thread_x() + turn * threads;
            (place / chunk, place % chunk, place.lt(all))
        });
        let staged = places.map(|(row, depth, there)| {
            let (from_row, from_depth) = (walk.row + row, start + depth);
            let inside = from_row.lt(walk.m) & from_depth.lt(walk.depth);
            (row, depth, there, walk.product.a.load_or((from_row, from_depth), inside & there, T::ZERO))
        });
        // All loads are on their way before the first is waited for.
        for (row, depth, there, value) in staged.collect::<Vec<_>>() {
            self.a.store_if((row, depth), value.to::<T::Acc>(), there);
        }
    }

    /// Adds the products of all steps.
    fn walk(&self, walk: &Walk<'_, 'k, T>) {
        let (k, step, chunk) = (self.k, self.variant.step(), self.variant.chunk());
        (0..self.sums.len()).for_each(|i| self.sums.at(i).set(T::Acc::ZERO));
        let halves = || self.halves.into_iter().zip((0..step).step_by(step as usize / 2));
        halves().for_each(|(b, half)| self.fetch(walk, walk.start + half, |depth| depth.lt(walk.depth), b));
        k.for_step(0, walk.steps, chunk, |first| {
            let start = walk.start + first * step;
            // The chunk before must have been read by all.
            k.barrier();
            self.stage(walk, start);
            k.barrier();
            k.for_each(0, (walk.steps - first).min(chunk), |within| {
                let after = within + 1;
                // A guard and no branch: nothing that waits for one half may come before the loads of the other.
                let there = (first + after).lt(walk.steps);
                for (b, half) in halves() {
                    self.multiply(within * step + half, b);
                    self.fetch(walk, start + after * step + half, |_| there, b);
                }
            });
        });
    }

    /// Adds the products of half a step, whose rows of A begin at `start` of the chunk.
    fn multiply(&self, start: Val<'k, u32>, b: Array<'k, T>) {
        let Vector { few, cols, deep, .. } = self.variant;
        let group = self.group();
        for first in (0..deep).step_by(group as usize) {
            let b: Vec<_> = (0..group * cols).map(|i| b.at(first * cols + i).get().to::<T::Acc>()).collect();
            for row in 0..few {
                let a = self.factors(row, start + self.depth_at(first), group);
                for (a, b) in a.into_iter().zip(b.chunks(cols as usize)) {
                    (0..).zip(b).for_each(|(j, &b)| {
                        let sum = self.sums.at(row * cols + j);
                        sum.set(a.mul_add(b, sum.get()));
                    });
                }
            }
        }
    }

    /// Elements of A that lie side by side along k.
    fn factors(&self, row: u32, depth: Val<'k, u32>, count: u32) -> Vec<Val<'k, T::Acc>> {
        let width = count.min(factors::<T>());
        (0..count)
            .step_by(width as usize)
            .flat_map(|i| load(self.a, (self.k.constant(row), depth + i), width, self.k.constant(true)))
            .collect()
    }

    /// Adds what the threads down k have and stores it, some rows of C at a time.
    fn finish(&self, walk: &Walk<'_, 'k, T>) {
        let Vector { few, cols, across, down, .. } = self.variant;
        let (k, columns, threads) = (self.k, self.variant.columns(), self.variant.threads());
        let rows = self.variant.round();
        for first in (0..few).step_by(rows as usize) {
            k.barrier();
            for row in 0..rows {
                for j in 0..cols {
                    let sum = self.sums.at((first + row) * cols + j).get();
                    self.exchange.store((self.y, self.x + (row * columns + j * across)), sum);
                }
            }
            k.barrier();
            k.for_step(k.thread_x(), rows * columns, threads, |place| {
                let (row, col) = (place / columns, place % columns);
                let total = k.var(T::Acc::ZERO);
                let unrolled = down.min(8);
                k.for_step(0, down, unrolled, |y| {
                    for i in 0..unrolled {
                        total.set(total.get() + self.exchange.load((y + i, place)));
                    }
                });
                let at = (walk.row + first + row, walk.col + self.column(col / across, col % across));
                k.when(at.0.lt(walk.m) & at.1.lt(walk.n), || walk.product.store(at.0, at.1, total.get()));
            });
        }
    }
}

/// Elements of A in a load of 16 bytes of shared memory.
fn factors<T: Element>() -> u32 {
    16 / size_of::<T::Acc>() as u32
}

/// Elements side by side in one access, or zeros where the guard does not hold.
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
        let Vector { ty, few, cols, across, down, deep, .. } = self;
        write!(f, "vector_{ty}_{few}x{cols}_{across}x{down}_{deep}{}", order_letters(self.orders))?;
        f.write_str(if self.vectors { "_v" } else { "" })?;
        f.write_str(if self.split { "_split" } else { "" })?;
        f.write_str(&self.epilogue.suffix())
    }
}
