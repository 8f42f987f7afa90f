//! What every product kernel has: the parameters A, B, C, alpha and beta, and the store at the end.

use tegula_core::epilogue::Epilogue;
use tegula_ir::prelude::*;

use super::blocked::{Blocked, GROUP, Schedule, grouped};
use super::epilogue::Ending;
use super::fragments::Fragments;
use super::plain::{Edges, Plain};

/// The parameters of C = alpha·A·B + beta·C, for one matrix of the batch.
pub(super) struct Product<'k, T: Element> {
    pub k: &'k Builder,
    pub a: Global<'k, T>,
    pub b: Global<'k, T>,
    c: Target<'k, T>,
    /// What happens to sums on their way to C.
    ending: Ending<'k, T>,
    /// Whether A and B are passed transposed.
    turned: [bool; 2],
    edges: Edges,
    /// Where sums of tiles go that several blocks share.
    parts: Option<Global<'k, T::Acc>>,
    /// Whether this tile is shared, and where it begins in C.
    shared: Option<(Pred<'k>, [Val<'k, u32>; 2])>,
    /// Where rows of C end that are this product's, if not with C.
    end: Option<Val<'k, u32>>,
    /// How parts of sums lie, if not as C.
    fragments: Option<Fragments>,
}

/// What a kernel writes.
#[derive(Clone, Copy)]
enum Target<'k, T: Element> {
    /// C, with alpha and beta.
    Whole(Global<'k, T::Out>, [Val<'k, T::Acc>; 2]),
    /// Parts of sums.
    Part(Global<'k, T::Acc>),
}

/// What a kernel says of its parameters.
pub(super) struct Parameters<'a> {
    /// The kernel's name, to be told in its text.
    pub name: &'a str,
    /// What is known of the strides of A, B and C, as the kernel takes them.
    pub orders: [Order2d; 3],
    /// Whether A and B are passed transposed.
    pub turned: [bool; 2],
    /// Elements of A, B and C that one access may take.
    pub widths: [u32; 3],
    /// How the work is shared out.
    pub schedule: Schedule,
    /// What happens to sums on their way to C; nothing to parts of them.
    pub epilogue: Epilogue,
}

/// A piece of a row of C, of as many elements as one access takes: where, whether inside, and the first of the sums that go there.
pub(super) type Piece<'k> = ((Val<'k, u32>, Val<'k, u32>), Pred<'k>, u32);

impl<'k, T: Element> Product<'k, T> {
    pub fn declare(k: &'k Builder, variant: &Plain) -> Self {
        let [a, b, c] = variant.orders;
        k.note(format!("C = alpha A B + beta C, {} elements, {variant}", variant.ty));
        let (a, b) = (k.matrix("a", Access::Read, a, 1), k.matrix("b", Access::Read, b, 1));
        let (c, ending) = (k.matrix("c", Access::ReadWrite, c, 1), Ending::declare(k, variant.epilogue));
        Product {
            k,
            a,
            b,
            c: Target::Whole(c, [k.scalar("alpha"), k.scalar("beta")]),
            ending,
            turned: [false; 2],
            edges: variant.edges,
            parts: None,
            shared: None,
            end: None,
            fragments: None,
        }
    }

    /// The parameters of a kernel of blocks.
    pub fn of_blocks(k: &'k Builder, variant: &Blocked) -> Self {
        let name = &variant.to_string();
        let (orders, turned, widths) = (variant.passed(), variant.turned(), variant.widths());
        let (schedule, epilogue) = (variant.schedule, variant.epilogue);
        Product::with(k, &Parameters { name, orders, turned, widths, schedule, epilogue })
    }

    /// The parameters of a kernel that may take transposed matrices, wide accesses, or make parts of sums.
    pub fn with(k: &'k Builder, parameters: &Parameters<'_>) -> Self {
        let Parameters { name, orders: [a, b, c], turned, widths, schedule, epilogue } = *parameters;
        let [a_width, b_width, c_width] = widths;
        let split = schedule == Schedule::Parts;
        let what = if split { "C = a part of A B" } else { "C = alpha A B + beta C" };
        k.note(format!("{what}, {} elements, {name}", T::TYPE));
        let (a, b) = (k.matrix("a", Access::Read, a, a_width), k.matrix("b", Access::Read, b, b_width));
        // Matrices come before numbers.
        let whole = (!split).then(|| k.matrix("c", Access::ReadWrite, c, c_width));
        let parts = (schedule == Schedule::Balanced)
            .then(|| k.matrix("parts", Access::Write, Order2d::RowMajor, 16 / size_of::<T::Acc>() as u32));
        let ending = if split { Ending::none() } else { Ending::declare(k, epilogue) };
        let c = match whole {
            Some(c) => Target::Whole(c, [k.scalar("alpha"), k.scalar("beta")]),
            None => Target::Part(k.matrix("c", Access::Write, c, c_width)),
        };
        let edges = Edges::Guarded;
        Product { k, a, b, c, ending, turned, edges, parts, shared: None, end: None, fragments: None }
    }

    /// The parameters of a kernel whose factors are declared, and C as well, or whose C are parts of sums as warpgroups have them.
    pub fn of_tiles(
        k: &'k Builder,
        name: &str,
        [a, b]: [Global<'k, T>; 2],
        c: Option<Global<'k, T::Out>>,
        fragments: Fragments,
        epilogue: Epilogue,
    ) -> Self {
        let what = if c.is_none() { "C = a part of A B" } else { "C = alpha A B + beta C" };
        k.note(format!("{what}, {} elements, {name}", T::TYPE));
        let fragments = c.is_none().then_some(fragments);
        let (c, ending) = if let Some(c) = c {
            let ending = Ending::declare(k, epilogue);
            (Target::Whole(c, [k.scalar("alpha"), k.scalar("beta")]), ending)
        } else {
            (Target::Part(k.matrix("c", Access::Write, Order2d::RowMajor, 4)), Ending::none())
        };
        let (turned, edges) = ([false; 2], Edges::Guarded);
        Product { k, a, b, c, ending, turned, edges, parts: None, shared: None, end: None, fragments }
    }

    /// Whether C is read.
    pub fn adds_to_c(&self) -> Pred<'k> {
        match self.c {
            Target::Whole(_, [_, beta]) => beta.ne(T::Acc::ZERO),
            Target::Part(_) => self.k.constant(false),
        }
    }

    /// Stores a finished number, where it `is` one and lies in C.
    pub fn put(&self, (row, col): (Val<'k, u32>, Val<'k, u32>), value: Val<'k, T::Out>, is: Pred<'k>) {
        let Target::Whole(c, _) = self.c else { return };
        let (m, n, _) = self.extents();
        c.store_if((row, col), value, is & row.lt(m) & col.lt(n));
    }

    /// alpha times two sums, and their bias.
    pub fn scaled(&self, sums: [Val<'k, T::Acc>; 2], bias: Option<[Val<'k, T::Acc>; 2]>) -> [Val<'k, T::Acc>; 2] {
        let Target::Whole(_, [alpha, _]) = self.c else { return sums };
        match bias {
            Some(bias) => [0, 1].map(|i| alpha.mul_add(sums[i], bias[i])),
            None => sums.map(|sum| alpha * sum),
        }
    }

    /// The values and beta times what is in C there, in two neighbours in a row of which the first is at `at`; `aligned` where that may be read at once.
    pub fn plus_c(
        &self,
        (row, col): (Val<'k, u32>, Val<'k, u32>),
        values: [Val<'k, T::Acc>; 2],
        aligned: bool,
    ) -> [Val<'k, T::Acc>; 2] {
        let Target::Whole(c, [_, beta]) = self.c else { return values };
        let (m, n, _) = self.extents();
        let before = load_pair(c, aligned, (row, col), row.lt(m).select(n - col.min(n), 0u32));
        [0, 1].map(|i| beta.mul_add(before[i].to::<T::Acc>(), values[i]))
    }

    /// What happens to sums that are all there.
    pub fn ending(&self) -> Ending<'k, T> {
        self.ending
    }

    /// The same for a group of rows of A and C, up to, not including, `end`, with the matrix B of that number.
    pub fn group(&self, number: Val<'k, u32>, end: Val<'k, u32>) -> Self {
        Product { b: self.b.batch(number), ending: self.ending.batch(number), end: Some(end), ..*self }
    }

    /// Where the rows of a group end.
    pub fn end(&self) -> Option<Val<'k, u32>> {
        self.end
    }

    /// m, n and k; of an A that was packed along k, as much of k as it has.
    pub fn extents(&self) -> (Val<'k, u32>, Val<'k, u32>, Val<'k, u32>) {
        let (m, n) = match self.c {
            Target::Whole(c, _) => (c.rows(), c.cols()),
            Target::Part(c) => self.fragments.map_or_else(|| (c.rows(), c.cols()), |fragments| fragments.extents(c)),
        };
        (self.end.unwrap_or(m), n, self.sides()[0].1)
    }

    /// As much of k as A and B both have: one of them may have been packed along k.
    pub fn depth(&self) -> Val<'k, u32> {
        let [(_, of_a), (_, of_b)] = self.sides();
        of_a.min(of_b)
    }

    /// Rows of A (columns of B) and k, as many as the matrix has: more than m, n and k where it was packed.
    pub fn sides(&self) -> [(Val<'k, u32>, Val<'k, u32>); 2] {
        let [a_turned, b_turned] = self.turned;
        let sides = |matrix: Global<'k, T>, turned| {
            if turned { (matrix.cols(), matrix.rows()) } else { (matrix.rows(), matrix.cols()) }
        };
        [sides(self.a, a_turned), sides(self.b, !b_turned)]
    }

    /// Matrices of C: those of the batch, or the parts of all of them.
    pub fn batches(&self) -> Val<'k, u32> {
        match self.c {
            Target::Whole(c, _) => c.batches(),
            Target::Part(c) => c.batches(),
        }
    }

    /// How many tiles cover an extent, or fit in it where the edges are left out.
    pub fn tiles(&self, extent: Val<'k, u32>, tile: u32) -> Val<'k, u32> {
        if self.edges == Edges::Floor { extent / tile } else { extent.div_ceil(tile) }
    }

    /// The condition, or true where the kernel guards nothing.
    pub fn guard(&self, inside: Pred<'k>) -> Pred<'k> {
        if self.edges == Edges::Guarded { inside } else { self.k.constant(true) }
    }

    /// The same parameters for one matrix of the batch.
    pub fn batch(&self, batch: Val<'k, u32>) -> Self {
        self.batch_and_target(batch, batch)
    }

    fn batch_and_target(&self, batch: Val<'k, u32>, number: Val<'k, u32>) -> Self {
        let c = match self.c {
            Target::Whole(c, factors) => Target::Whole(c.batch(number), factors),
            Target::Part(c) => Target::Part(c.batch(number)),
        };
        let ending = self.ending.batch(batch);
        Product { a: self.a.batch(batch), b: self.b.batch(batch), c, ending, ..*self }
    }

    /// Shares out the tiles of C, `steps` along k each, and runs the body for what falls to a block: the parameters for the matrix of the
    /// batch, the tile's row and column among tiles, the first step and how many there are. Copies to shared memory have landed and all
    /// threads have met when the body runs again.
    pub fn for_tiles(
        &self,
        [rows, cols]: [u32; 2],
        steps: Val<'k, u32>,
        body: impl FnOnce(&Self, [Val<'k, u32>; 2], [Val<'k, u32>; 2]),
    ) {
        let k = self.k;
        let (m, n, _) = self.extents();
        let (tiles_m, tiles_n) = (m.div_ceil(rows), n.div_ceil(cols));
        let tiles = tiles_m * tiles_n;
        let meet = || {
            // What a loop began last and did not need belongs to no group yet.
            k.copy_async_commit();
            k.copy_async_wait(0);
            k.barrier();
        };
        let Some(parts) = self.parts else {
            let make = |tile, number| {
                let (product, share) = self.share(number, steps);
                let (tile_m, tile_n) = grouped(tile, [tiles_m, tiles_n], k.constant(GROUP));
                body(&product, [tile_m, tile_n], share);
                k.when(k.grid_z().lt(self.batches()), meet);
            };
            // Beside an ending in rounds, the largest tiles have no register for a counter that is always 0.
            return if self.ends_long() {
                k.for_rows_of_blocks([tiles, self.batches()], |[tile, number]| make(tile, number))
            } else {
                k.for_blocks([tiles, k.constant(1), self.batches()], |[tile, _, number]| make(tile, number))
            };
        };
        let workers = parts.batches() / 2;
        k.grid([workers, k.constant(1), k.constant(1)]);
        let shares = Shares::new(tiles * self.batches(), workers, steps.max(1));
        let (start, end) = (shares.start(k.block_x()), shares.start(k.block_x() + 1));
        let left = start / shares.steps;
        let boundary = ((left + 1) * shares.steps).min(end);
        let first = (start - left * shares.steps).to::<u32>();
        let counts = [boundary - start, end - boundary].map(|count| count.to::<u32>());
        let shared = shares.waves * workers + left.to::<u32>();
        // Whole tiles, then the end of one that is shared and the beginning of another, as far as there are such.
        k.for_each(0, shares.waves + 2, |job| {
            let (whole, second) = (job.lt(shares.waves), job.gt(shares.waves));
            let first = (whole | second).select(0u32, first);
            let count = whole.select(steps, second.select(counts[1], counts[0]));
            let tile = whole.select(job * workers + k.block_x(), shared + second.select(1u32, 0u32));
            k.when(whole | count.gt(0u32), || {
                let (tile_m, tile_n) = grouped(tile % tiles, [tiles_m, tiles_n], k.constant(GROUP));
                let slot = k.block_x() * 2 + second.select(1u32, 0u32);
                let product = Product {
                    parts: Some(parts.batch(slot)),
                    shared: Some((!whole, [tile_m * rows, tile_n * cols])),
                    ..self.batch(tile / tiles)
                };
                body(&product, [tile_m, tile_n], [first, count]);
                meet();
            });
        });
    }

    /// The parameters for one matrix of C, the first of the steps along k that go there, and how many there are. Where sums are made in parts, C
    /// has a matrix for each part of each product of the batch.
    pub fn share(&self, number: Val<'k, u32>, steps: Val<'k, u32>) -> (Self, [Val<'k, u32>; 2]) {
        let Target::Part(c) = self.c else { return (self.batch(number), [self.k.constant(0), steps]) };
        let parts = c.batches() / self.a.batches();
        let (batch, part) = (number / parts, number % parts);
        let (each, more) = (steps / parts, steps % parts);
        let first = part * each + part.min(more);
        (self.batch_and_target(batch, number), [first, each + part.lt(more).select(1u32, 0u32)])
    }

    /// Whether a sum takes so many instructions at its end that it is better [in rounds](super::epilogue::in_rounds).
    pub fn ends_long(&self) -> bool {
        self.ending.is_long()
    }

    /// C(row, col) = alpha·sum + beta·C(row, col), with what the epilogue adds. Where beta is 0, C is not read: it may hold anything.
    pub fn store(&self, row: Val<'k, u32>, col: Val<'k, u32>, sum: Val<'k, T::Acc>) {
        match self.c {
            Target::Part(c) => c.store((row, col), sum),
            Target::Whole(c, [alpha, beta]) => finish::<T>(self.k, c, beta, (row, col), alpha * sum, &self.ending),
        }
    }

    /// Stores a warpgroup's sums of a part, of a tile that begins there, from the sum of that number on.
    pub fn store_fragment(&self, corner: [Val<'k, u32>; 2], (sums, first): (Array<'k, T::Acc>, u32)) {
        let (Target::Part(c), Some(fragments)) = (self.c, self.fragments) else { return };
        for i in (0..sums.len()).step_by(4) {
            let four = std::array::from_fn::<_, 4, _>(|j| sums.at(i + j as u32).get());
            c.store_vec(fragments.place(self.k.thread_x(), corner, first + i), four);
        }
    }

    /// As [`Product::store`], for many elements.
    pub fn store_pieces(&self, count: u32, piece: impl Fn(u32) -> Piece<'k>, sums: Array<'k, T::Acc>, width: u32) {
        self.whole_or_shared(
            || self.store_to_c(count, &piece, sums, width),
            |parts, alpha, [tile_row, tile_col]| {
                for ((row, col), _, first) in (0..count).map(&piece) {
                    for i in 0..width {
                        parts.store((row - tile_row, col - tile_col + i), alpha * sums.at(first + i).get());
                    }
                }
            },
        );
    }

    /// Stores a tile in C, or where it is shared, alpha times its sums in the workspace. (Sums that were stored as they are would be bound
    /// to the registers of a store, where they meet the banks of their factors.)
    fn whole_or_shared(
        &self,
        whole: impl FnOnce(),
        shared: impl FnOnce(Global<'k, T::Acc>, Val<'k, T::Acc>, [Val<'k, u32>; 2]),
    ) {
        match (self.parts, self.shared, self.c) {
            (Some(parts), Some((is_shared, tile)), Target::Whole(_, [alpha, _])) => {
                self.k.if_else(is_shared, || shared(parts, alpha, tile), whole)
            }
            _ => whole(),
        }
    }

    fn store_to_c(&self, count: u32, piece: &impl Fn(u32) -> Piece<'k>, sums: Array<'k, T::Acc>, width: u32) {
        match width {
            4 => self.store_wide::<4>(count, piece, sums),
            2 => self.store_wide::<2>(count, piece, sums),
            _ => self.store_wide::<1>(count, piece, sums),
        }
    }

    fn store_wide<const WIDTH: usize>(&self, count: u32, piece: &impl Fn(u32) -> Piece<'k>, sums: Array<'k, T::Acc>) {
        let values = |first: u32| -> [_; WIDTH] { std::array::from_fn(|i| sums.at(first + i as u32).get()) };
        let (c, [alpha, beta]) = match self.c {
            Target::Part(c) => {
                return (0..count).map(piece).for_each(|(at, inside, first)| c.store_vec_if(at, values(first), inside));
            }
            Target::Whole(c, factors) => (c, factors),
        };
        let put = |(at, inside, _): Piece<'k>, values: [Val<'k, T::Acc>; WIDTH]| {
            c.store_vec_if(at, self.ending.finish(values, at, |_| inside), inside);
        };
        let added = |(at, inside, first): Piece<'k>, reads: Pred<'k>| {
            let mut before = c.load_vec_if::<WIDTH>(at, inside & reads, T::Out::ZERO).into_iter();
            values(first).map(|sum| match before.next() {
                Some(before) => beta.mul_add(before.to::<T::Acc>(), alpha * sum),
                None => sum,
            })
        };
        let with = |reads| (0..count).map(piece).for_each(|piece| put(piece, added(piece, reads)));
        if !self.ending.is_none() && !self.ending.is_long() {
            // Once and not twice: that leaves the assembler its order of the main loop.
            return with(beta.ne(T::Acc::ZERO));
        }
        self.k.if_else(
            beta.eq(T::Acc::ZERO),
            || (0..count).map(piece).for_each(|piece| put(piece, values(piece.2).map(|sum| alpha * sum))),
            || with(self.k.constant(true)),
        );
    }

    /// As [`Product::store`] for pairs of neighbours along rows of C, as far as they lie inside it: `each` calls the function it is
    /// given for every pair, with the row, the first column and the two sums. With `aligned`, pairs are stored at once.
    pub fn store_runs(&self, aligned: bool, each: impl Fn(&dyn Fn(Val<'k, u32>, Val<'k, u32>, [Val<'k, T::Acc>; 2]))) {
        self.whole_or_shared(
            || self.store_runs_to_c(aligned, &each),
            |parts, alpha, [tile_row, tile_col]| {
                each(&|row, col, sums| parts.store_vec((row - tile_row, col - tile_col), sums.map(|sum| alpha * sum)));
            },
        );
    }

    fn store_runs_to_c(
        &self,
        aligned: bool,
        each: &impl Fn(&dyn Fn(Val<'k, u32>, Val<'k, u32>, [Val<'k, T::Acc>; 2])),
    ) {
        let (m, n, _) = self.extents();
        let valid = |row: Val<'k, u32>, col: Val<'k, u32>| row.lt(m).select(n - col.min(n), 0);
        let (c, [alpha, beta]) = match self.c {
            Target::Part(c) => {
                return each(&|row, col, sums| store_pair(c, aligned, (row, col), sums, valid(row, col)));
            }
            Target::Whole(c, factors) => (c, factors),
        };
        let put = |at: (Val<'k, u32>, Val<'k, u32>), values: [Val<'k, T::Acc>; 2], valid: Val<'k, u32>| {
            store_pair(c, aligned, at, self.ending.finish(values, at, |i| valid.gt(i)), valid);
        };
        let without = || each(&|row, col, sums| put((row, col), sums.map(|sum| alpha * sum), valid(row, col)));
        let with = |reads: Pred<'k>| {
            each(&|row, col, sums| {
                let valid = valid(row, col);
                let before = load_pair(c, aligned, (row, col), reads.select(valid, 0u32));
                put((row, col), [0, 1].map(|i| beta.mul_add(before[i].to::<T::Acc>(), alpha * sums[i])), valid);
            });
        };
        // Beside the epilogue of 16-bit results, adding what C was takes long; others have no registers for both forms.
        if !self.ending.is_none() && T::Out::TYPE.size() > 2 {
            return with(beta.ne(T::Acc::ZERO));
        }
        self.k.if_else(beta.eq(T::Acc::ZERO), without, || with(self.k.constant(true)));
    }
}

/// The first `valid` of two neighbours in a row, zeros for the others.
fn load_pair<'k, U: Scalar>(
    c: Global<'k, U>,
    aligned: bool,
    (row, col): (Val<'k, u32>, Val<'k, u32>),
    valid: Val<'k, u32>,
) -> [Val<'k, U>; 2] {
    if aligned {
        return c.load_vec_or((row, col), valid, U::ZERO);
    }
    [(col, 0), (col + 1, 1)].map(|(col, i)| c.load_or((row, col), valid.gt(i), U::ZERO))
}

/// Stores the first `valid` of two neighbours in a row.
fn store_pair<'k, U: Scalar>(
    c: Global<'k, U>,
    aligned: bool,
    (row, col): (Val<'k, u32>, Val<'k, u32>),
    [x, y]: [Val<'k, U>; 2],
    valid: Val<'k, u32>,
) {
    if aligned {
        c.store_vec_first((row, col), [x, y], valid);
    } else {
        c.store_if((row, col), x, valid.gt(0));
        c.store_if((row, col + 1), y, valid.gt(1));
    }
}

/// C(row, col) = scaled + beta·C(row, col), C not read where beta is 0, with what the epilogue adds.
pub(super) fn finish<'k, T: Element>(
    k: &'k Builder,
    c: Global<'k, T::Out>,
    beta: Val<'k, T::Acc>,
    at: (Val<'k, u32>, Val<'k, u32>),
    scaled: Val<'k, T::Acc>,
    ending: &Ending<'k, T>,
) {
    if !ending.is_none() {
        let before = c.load_or(at, beta.ne(T::Acc::ZERO), T::Out::ZERO);
        let kept = beta.mul_add(before.to::<T::Acc>(), scaled);
        let [value] = ending.finish([kept], at, |_| k.constant(true));
        return c.store(at, value);
    }
    k.if_else(
        beta.eq(T::Acc::ZERO),
        || c.store(at, scaled.to::<T::Out>()),
        || {
            let before = c.load(at).to::<T::Acc>();
            c.store(at, beta.mul_add(before, scaled).to::<T::Out>());
        },
    );
}

/// How workers share tiles: each makes as many whole ones, and the same share of the steps of those left over.
pub(super) struct Shares<'k> {
    workers: Val<'k, u64>,
    /// Whole tiles of each worker.
    pub waves: Val<'k, u32>,
    /// Steps of a tile.
    pub steps: Val<'k, u64>,
    /// Steps of all tiles that are left over.
    units: Val<'k, u64>,
}

impl<'k> Shares<'k> {
    pub fn new(tiles: Val<'k, u32>, workers: Val<'k, u32>, steps: Val<'k, u32>) -> Self {
        let waves = tiles / workers;
        let (left, steps) = ((tiles - waves * workers).to::<u64>(), steps.to::<u64>());
        Shares { workers: workers.to(), waves, steps, units: left * steps }
    }

    /// The first unit of a worker's share.
    pub fn start(&self, worker: Val<'k, u32>) -> Val<'k, u64> {
        worker.to::<u64>() * self.units / self.workers
    }

    /// The shares from a worker's on, one after the other, all divisions before the first.
    pub fn begin(&self, k: &'k Builder, worker: Val<'k, u32>) -> Share<'k> {
        let start = self.start(worker);
        let rest = worker.to::<u64>() * self.units - start * self.workers;
        let each = self.units / self.workers;
        let more = self.units - each * self.workers;
        Share { start: k.var(start), rest: k.var(rest), each, more, workers: self.workers }
    }

    /// Whose share a unit is in.
    pub fn worker(&self, unit: Val<'k, u64>) -> Val<'k, u32> {
        (((unit + 1) * self.workers + (self.units - 1)) / self.units - 1).to()
    }
}

/// A worker's share, and what is needed to go on to the next one's: where it starts is a quotient, whose remainder is kept.
pub(super) struct Share<'k> {
    start: Var<'k, u64>,
    rest: Var<'k, u64>,
    each: Val<'k, u64>,
    more: Val<'k, u64>,
    workers: Val<'k, u64>,
}

impl<'k> Share<'k> {
    /// Where the share starts and ends. Goes on to the next worker's.
    pub fn next(&self) -> (Val<'k, u64>, Val<'k, u64>) {
        let (start, rest) = (self.start.get(), self.rest.get() + self.more);
        let over = rest.ge(self.workers);
        let end = start + self.each + over.select(1u64, 0u64);
        self.start.set(end);
        self.rest.set(rest - over.select(self.workers, 0u64));
        (start, end)
    }
}
