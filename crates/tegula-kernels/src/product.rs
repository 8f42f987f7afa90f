//! The parameters A, B, C, alpha and beta of GEMM kernels, and the store of their accumulators.

use tegula_core::epilogue::Epilogue;
use tegula_ir::prelude::*;

use super::blocked::{Blocked, GROUP_M, Schedule, raster_order};
use super::epilogue::KernelEpilogue;
use super::fragment_layout::FragmentLayout;
use super::plain::{Edges, Plain};

/// The argument `is_a` for operand A; its negation for B.
pub(super) const IS_A: bool = true;

/// The parameters of C = alpha·A·B + beta·C, for one matrix of the batch.
pub(super) struct Product<'k, T: Element> {
    pub k: &'k Builder,
    pub a: Global<'k, T>,
    pub b: Global<'k, T>,
    output: Output<'k, T>,
    epilogue: KernelEpilogue<'k, T>,
    /// Whether A and B are passed transposed.
    transposed: [bool; 2],
    edges: Edges,
    /// The workspace for the partial sums of stream-K.
    workspace: Option<Global<'k, T::Acc>>,
    /// Whether this tile is split under stream-K, and its first row and column in C.
    split_tile: Option<(Pred<'k>, [Val<'k, u32>; 2])>,
    /// The row of C after the last of a group, in a grouped GEMM.
    group_end: Option<Val<'k, u32>>,
    /// The layout of split-K partial sums, if not that of C.
    fragments: Option<FragmentLayout>,
}

/// The output of a kernel.
#[derive(Clone, Copy)]
enum Output<'k, T: Element> {
    /// C, with alpha and beta.
    Matrix(Global<'k, T::Out>, [Val<'k, T::Acc>; 2]),
    /// Partial sums.
    PartialSums(Global<'k, T::Acc>),
}

/// The declaration of a kernel's parameters.
pub(super) struct Parameters<'a> {
    /// The kernel's name, for the comment in the printed kernel.
    pub name: &'a str,
    /// Storage orders of A, B and C as passed to the kernel.
    pub orders: [Order2d; 3],
    /// Whether A and B are passed transposed.
    pub transposed: [bool; 2],
    /// Elements of A, B and C per vector access.
    pub widths: [u32; 3],
    /// How the work is distributed.
    pub schedule: Schedule,
    /// The epilogue; ignored for partial sums.
    pub epilogue: Epilogue,
}

/// A vector store to a row of C: its first row and column, whether it is in bounds, and the index
/// of its first accumulator.
pub(super) type VectorStore<'k> = ((Val<'k, u32>, Val<'k, u32>), Pred<'k>, u32);

impl<'k, T: Element> Product<'k, T> {
    /// Declares the parameters of a plain kernel.
    pub fn declare(k: &'k Builder, variant: &Plain) -> Self {
        let [a, b, c] = variant.orders;
        k.note(format!("C = alpha A B + beta C, {} elements, {variant}", variant.ty));
        let (a, b) = (k.matrix("a", Access::Read, a, 1), k.matrix("b", Access::Read, b, 1));
        let (c, epilogue) = (k.matrix("c", Access::ReadWrite, c, 1), KernelEpilogue::declare(k, variant.epilogue));
        Product {
            k,
            a,
            b,
            output: Output::Matrix(c, [k.scalar("alpha"), k.scalar("beta")]),
            epilogue,
            transposed: [false; 2],
            edges: variant.edges,
            workspace: None,
            split_tile: None,
            group_end: None,
            fragments: None,
        }
    }

    /// Declares the parameters of a blocked kernel.
    pub fn for_blocked(k: &'k Builder, variant: &Blocked) -> Self {
        let name = &variant.to_string();
        let (orders, transposed, widths) = (variant.kernel_orders(), variant.transposed(), variant.vector_widths());
        let (schedule, epilogue) = (variant.schedule, variant.epilogue);
        Product::with_parameters(k, &Parameters { name, orders, transposed, widths, schedule, epilogue })
    }

    /// Declares the parameters of a kernel with transposed operands, vector accesses, or partial
    /// sums.
    pub fn with_parameters(k: &'k Builder, parameters: &Parameters<'_>) -> Self {
        let Parameters { name, orders: [a, b, c], transposed, widths, schedule, epilogue } = *parameters;
        let [a_width, b_width, c_width] = widths;
        let split = schedule == Schedule::SplitK;
        let formula = if split { "C = a part of A B" } else { "C = alpha A B + beta C" };
        k.note(format!("{formula}, {} elements, {name}", T::TYPE));
        let (a, b) = (k.matrix("a", Access::Read, a, a_width), k.matrix("b", Access::Read, b, b_width));
        // Matrices come before scalars.
        let c_matrix = (!split).then(|| k.matrix("c", Access::ReadWrite, c, c_width));
        let workspace = (schedule == Schedule::StreamK)
            .then(|| k.matrix("parts", Access::Write, Order2d::RowMajor, 16 / size_of::<T::Acc>() as u32));
        let epilogue = if split { KernelEpilogue::none() } else { KernelEpilogue::declare(k, epilogue) };
        let output = match c_matrix {
            Some(c) => Output::Matrix(c, [k.scalar("alpha"), k.scalar("beta")]),
            None => Output::PartialSums(k.matrix("c", Access::Write, c, c_width)),
        };
        let edges = Edges::Guarded;
        let (split_tile, group_end, fragments) = (None, None, None);
        Product { k, a, b, output, epilogue, transposed, edges, workspace, split_tile, group_end, fragments }
    }

    /// Declares the parameters of a `wgmma` pipeline whose operands are declared. Without a C its
    /// output is partial sums in the given layout.
    pub fn for_pipeline(
        k: &'k Builder,
        name: &str,
        [a, b]: [Global<'k, T>; 2],
        c: Option<Global<'k, T::Out>>,
        fragments: FragmentLayout,
        epilogue: Epilogue,
    ) -> Self {
        let formula = if c.is_none() { "C = a part of A B" } else { "C = alpha A B + beta C" };
        k.note(format!("{formula}, {} elements, {name}", T::TYPE));
        let fragments = c.is_none().then_some(fragments);
        let (output, epilogue) = if let Some(c) = c {
            let epilogue = KernelEpilogue::declare(k, epilogue);
            (Output::Matrix(c, [k.scalar("alpha"), k.scalar("beta")]), epilogue)
        } else {
            (Output::PartialSums(k.matrix("c", Access::Write, Order2d::RowMajor, 4)), KernelEpilogue::none())
        };
        let (transposed, edges) = ([false; 2], Edges::Guarded);
        let (workspace, split_tile, group_end) = (None, None, None);
        Product { k, a, b, output, epilogue, transposed, edges, workspace, split_tile, group_end, fragments }
    }

    /// Whether C is read: beta is not 0.
    pub fn reads_c(&self) -> Pred<'k> {
        match self.output {
            Output::Matrix(_, [_, beta]) => beta.ne(T::Acc::ZERO),
            Output::PartialSums(_) => self.k.constant(false),
        }
    }

    /// Stores a converted value to C if `is_valid` and in bounds.
    pub fn store_converted(
        &self,
        (row, col): (Val<'k, u32>, Val<'k, u32>),
        value: Val<'k, T::Out>,
        is_valid: Pred<'k>,
    ) {
        let Output::Matrix(c, _) = self.output else { return };
        let (m, n, _) = self.extents();
        c.store_if((row, col), value, is_valid & row.lt(m) & col.lt(n));
    }

    /// alpha times two accumulators, plus their bias.
    pub fn scale_pair(
        &self,
        accumulators: [Val<'k, T::Acc>; 2],
        bias: Option<[Val<'k, T::Acc>; 2]>,
    ) -> [Val<'k, T::Acc>; 2] {
        let Output::Matrix(_, [alpha, _]) = self.output else { return accumulators };
        match bias {
            Some(bias) => [0, 1].map(|i| alpha.mul_add(accumulators[i], bias[i])),
            None => accumulators.map(|accumulator| alpha * accumulator),
        }
    }

    /// Adds beta times C to two values of adjacent columns, the first at `(row, col)`. `aligned`:
    /// whether both can be loaded as a vector.
    pub fn add_c(
        &self,
        (row, col): (Val<'k, u32>, Val<'k, u32>),
        values: [Val<'k, T::Acc>; 2],
        aligned: bool,
    ) -> [Val<'k, T::Acc>; 2] {
        let Output::Matrix(c, [_, beta]) = self.output else { return values };
        let (m, n, _) = self.extents();
        let loaded = load_pair(c, aligned, (row, col), row.lt(m).select(n - col.min(n), 0u32));
        [0, 1].map(|i| beta.mul_add(loaded[i].to::<T::Acc>(), values[i]))
    }

    /// The epilogue of complete sums.
    pub fn epilogue(&self) -> KernelEpilogue<'k, T> {
        self.epilogue
    }

    /// The same for a group of rows of A and C that ends before row `end`, with matrix `index` of
    /// B.
    pub fn group(&self, index: Val<'k, u32>, end: Val<'k, u32>) -> Self {
        Product { b: self.b.batch(index), epilogue: self.epilogue.batch(index), group_end: Some(end), ..*self }
    }

    /// The row of C after the last of the group, in a grouped GEMM.
    pub fn group_end(&self) -> Option<Val<'k, u32>> {
        self.group_end
    }

    /// m, n and k. Of an A packed along k, k is its padded extent.
    pub fn extents(&self) -> (Val<'k, u32>, Val<'k, u32>, Val<'k, u32>) {
        let (m, n) = match self.output {
            Output::Matrix(c, _) => (c.rows(), c.cols()),
            Output::PartialSums(c) => {
                self.fragments.map_or_else(|| (c.rows(), c.cols()), |fragments| fragments.extents(c))
            }
        };
        (self.group_end.unwrap_or(m), n, self.operand_extents()[0].1)
    }

    /// The common extent of A and B along k; one of them may be padded by packing.
    pub fn depth(&self) -> Val<'k, u32> {
        let [(_, k_of_a), (_, k_of_b)] = self.operand_extents();
        k_of_a.min(k_of_b)
    }

    /// Rows of A (columns of B) and extent along k of the matrix: greater than m, n and k where
    /// packing pads it.
    pub fn operand_extents(&self) -> [(Val<'k, u32>, Val<'k, u32>); 2] {
        let [a_transposed, b_transposed] = self.transposed;
        let extents = |matrix: Global<'k, T>, transposed| {
            if transposed { (matrix.cols(), matrix.rows()) } else { (matrix.rows(), matrix.cols()) }
        };
        [extents(self.a, a_transposed), extents(self.b, !b_transposed)]
    }

    /// Matrices of the output: those of the batch, or the partial sums of all of them.
    pub fn batches(&self) -> Val<'k, u32> {
        match self.output {
            Output::Matrix(c, _) => c.batches(),
            Output::PartialSums(c) => c.batches(),
        }
    }

    /// Tiles that cover an extent, or that fit in it with [`Edges::Floor`].
    pub fn tile_count(&self, extent: Val<'k, u32>, tile: u32) -> Val<'k, u32> {
        if self.edges == Edges::Floor { extent / tile } else { extent.div_ceil(tile) }
    }

    /// The bounds check, or true for a kernel without guards.
    pub fn guard(&self, in_bounds: Pred<'k>) -> Pred<'k> {
        if self.edges == Edges::Guarded { in_bounds } else { self.k.constant(true) }
    }

    /// The same parameters for one matrix of the batch.
    pub fn batch(&self, batch: Val<'k, u32>) -> Self {
        self.batch_and_output(batch, batch)
    }

    fn batch_and_output(&self, batch: Val<'k, u32>, index: Val<'k, u32>) -> Self {
        let output = match self.output {
            Output::Matrix(c, scalars) => Output::Matrix(c.batch(index), scalars),
            Output::PartialSums(c) => Output::PartialSums(c.batch(index)),
        };
        let epilogue = self.epilogue.batch(batch);
        Product { a: self.a.batch(batch), b: self.b.batch(batch), output, epilogue, ..*self }
    }

    /// Distributes the tiles of C, of `steps` k-steps each, over blocks and runs the body for each.
    ///
    /// The body takes the product of the batch matrix, the tile's row and column in tiles, and the
    /// first k-step and their number. Between two runs asynchronous copies are complete and the
    /// block has synchronized.
    pub fn for_each_tile(
        &self,
        [rows, cols]: [u32; 2],
        steps: Val<'k, u32>,
        body: impl FnOnce(&Self, [Val<'k, u32>; 2], [Val<'k, u32>; 2]),
    ) {
        let k = self.k;
        let (m, n, _) = self.extents();
        let (tiles_m, tiles_n) = (m.div_ceil(rows), n.div_ceil(cols));
        let tiles = tiles_m * tiles_n;
        let synchronize = || {
            // The last copies of the main loop may not be committed yet.
            k.copy_async_commit();
            k.copy_async_wait(0);
            k.barrier();
        };
        let Some(workspace) = self.workspace else {
            let compute = |tile, index| {
                let (product, range) = self.split_k_range(index, steps);
                let (tile_m, tile_n) = raster_order(tile, [tiles_m, tiles_n], k.constant(GROUP_M));
                body(&product, [tile_m, tile_n], range);
                k.when(k.grid_z().lt(self.batches()), synchronize);
            };
            // With an epilogue by subtiles, the largest tiles lack registers for a counter that is
            // always 0.
            return if self.has_long_epilogue() {
                k.for_blocks_xz([tiles, self.batches()], |[tile, index]| compute(tile, index))
            } else {
                k.for_blocks([tiles, k.constant(1), self.batches()], |[tile, _, index]| compute(tile, index))
            };
        };
        let workers = workspace.batches() / 2;
        k.grid([workers, k.constant(1), k.constant(1)]);
        let ranges = StreamKRanges::new(tiles * self.batches(), workers, steps.max(1));
        let (start, end) = (ranges.start(k.block_x()), ranges.start(k.block_x() + 1));
        let split_tile = start / ranges.steps;
        let boundary = ((split_tile + 1) * ranges.steps).min(end);
        let first = (start - split_tile * ranges.steps).to::<u32>();
        let counts = [boundary - start, end - boundary].map(|count| count.to::<u32>());
        let first_split = ranges.waves * workers + split_tile.to::<u32>();
        // Whole tiles, then the end of one split tile and the beginning of another, if any.
        k.for_each(0, ranges.waves + 2, |index| {
            let (whole, second) = (index.lt(ranges.waves), index.gt(ranges.waves));
            let first = (whole | second).select(0u32, first);
            let count = whole.select(steps, second.select(counts[1], counts[0]));
            let tile = whole.select(index * workers + k.block_x(), first_split + second.select(1u32, 0u32));
            k.when(whole | count.gt(0u32), || {
                let (tile_m, tile_n) = raster_order(tile % tiles, [tiles_m, tiles_n], k.constant(GROUP_M));
                let slot = k.block_x() * 2 + second.select(1u32, 0u32);
                let product = Product {
                    workspace: Some(workspace.batch(slot)),
                    split_tile: Some((!whole, [tile_m * rows, tile_n * cols])),
                    ..self.batch(tile / tiles)
                };
                body(&product, [tile_m, tile_n], [first, count]);
                synchronize();
            });
        });
    }

    /// The product of one output matrix, with its range of k-steps: the first, and their number.
    /// Under split-K the output has a matrix for each range of each product of the batch.
    pub fn split_k_range(&self, index: Val<'k, u32>, steps: Val<'k, u32>) -> (Self, [Val<'k, u32>; 2]) {
        let Output::PartialSums(c) = self.output else { return (self.batch(index), [self.k.constant(0), steps]) };
        let splits = c.batches() / self.a.batches();
        let (batch, split) = (index / splits, index % splits);
        let (each, remainder) = (steps / splits, steps % splits);
        let first = split * each + split.min(remainder);
        (self.batch_and_output(batch, index), [first, each + split.lt(remainder).select(1u32, 0u32)])
    }

    /// Whether the epilogue is so long that it should run by
    /// [subtiles](super::epilogue::for_each_subtile).
    pub fn has_long_epilogue(&self) -> bool {
        self.epilogue.is_long()
    }

    /// Stores C(row, col) = act(alpha·sum + beta·C(row, col) + bias). If beta is 0, C is not read
    /// and may be uninitialized.
    pub fn store(&self, row: Val<'k, u32>, col: Val<'k, u32>, sum: Val<'k, T::Acc>) {
        match self.output {
            Output::PartialSums(c) => c.store((row, col), sum),
            Output::Matrix(c, [alpha, beta]) => {
                store_scaled::<T>(self.k, c, beta, (row, col), alpha * sum, &self.epilogue);
            }
        }
    }

    /// Stores a warpgroup's partial sums of a tile whose first row and column is `corner`, from
    /// accumulator number `first` on.
    pub fn store_partial_fragment(&self, corner: [Val<'k, u32>; 2], (accumulators, first): (Array<'k, T::Acc>, u32)) {
        let (Output::PartialSums(c), Some(fragments)) = (self.output, self.fragments) else { return };
        for i in (0..accumulators.len()).step_by(4) {
            let four = std::array::from_fn::<_, 4, _>(|j| accumulators.at(i + j as u32).get());
            c.store_vec(fragments.coordinates(self.k.thread_x(), corner, first + i), four);
        }
    }

    /// As [`Product::store`], for `count` vectors of `width` elements.
    pub fn store_vectors(
        &self,
        count: u32,
        vector: impl Fn(u32) -> VectorStore<'k>,
        accumulators: Array<'k, T::Acc>,
        width: u32,
    ) {
        self.to_c_or_workspace(
            || self.store_vectors_to_c(count, &vector, accumulators, width),
            |workspace, alpha, [tile_row, tile_col]| {
                for ((row, col), _, first) in (0..count).map(&vector) {
                    for i in 0..width {
                        workspace.store((row - tile_row, col - tile_col + i), alpha * accumulators.at(first + i).get());
                    }
                }
            },
        );
    }

    /// Stores a tile to C, or for a split tile alpha times its accumulators to the workspace.
    /// Unscaled accumulators would be bound to the registers of the store, and conflict there with
    /// the register banks of the operands.
    fn to_c_or_workspace(
        &self,
        to_c: impl FnOnce(),
        to_workspace: impl FnOnce(Global<'k, T::Acc>, Val<'k, T::Acc>, [Val<'k, u32>; 2]),
    ) {
        match (self.workspace, self.split_tile, self.output) {
            (Some(workspace), Some((is_split, tile)), Output::Matrix(_, [alpha, _])) => {
                self.k.if_else(is_split, || to_workspace(workspace, alpha, tile), to_c)
            }
            _ => to_c(),
        }
    }

    fn store_vectors_to_c(
        &self,
        count: u32,
        vector: &impl Fn(u32) -> VectorStore<'k>,
        accumulators: Array<'k, T::Acc>,
        width: u32,
    ) {
        match width {
            8 => self.store_vectors_of::<8>(count, vector, accumulators),
            4 => self.store_vectors_of::<4>(count, vector, accumulators),
            2 => self.store_vectors_of::<2>(count, vector, accumulators),
            _ => self.store_vectors_of::<1>(count, vector, accumulators),
        }
    }

    fn store_vectors_of<const WIDTH: usize>(
        &self,
        count: u32,
        vector: &impl Fn(u32) -> VectorStore<'k>,
        accumulators: Array<'k, T::Acc>,
    ) {
        let values = |first: u32| -> [_; WIDTH] { std::array::from_fn(|i| accumulators.at(first + i as u32).get()) };
        let (c, [alpha, beta]) = match self.output {
            Output::PartialSums(c) => {
                return (0..count)
                    .map(vector)
                    .for_each(|(at, in_bounds, first)| c.store_vec_if(at, values(first), in_bounds));
            }
            Output::Matrix(c, scalars) => (c, scalars),
        };
        let put = |(at, in_bounds, _): VectorStore<'k>, values: [Val<'k, T::Acc>; WIDTH]| {
            c.store_vec_if(at, self.epilogue.apply(values, at, |_| in_bounds), in_bounds);
        };
        let with_c = |(at, in_bounds, first): VectorStore<'k>, reads_c: Pred<'k>| {
            let mut loaded = c.load_vec_if::<WIDTH>(at, in_bounds & reads_c, T::Out::ZERO).into_iter();
            values(first).map(|sum| match loaded.next() {
                Some(value) => beta.mul_add(value.to::<T::Acc>(), alpha * sum),
                None => sum,
            })
        };
        let store_with_c = |reads_c| (0..count).map(vector).for_each(|vector| put(vector, with_c(vector, reads_c)));
        if !self.epilogue.is_none() && !self.epilogue.is_long() {
            // Emitted once: two copies would change the order in which ptxas schedules the main
            // loop.
            return store_with_c(beta.ne(T::Acc::ZERO));
        }
        self.k.if_else(
            beta.eq(T::Acc::ZERO),
            || (0..count).map(vector).for_each(|vector| put(vector, values(vector.2).map(|sum| alpha * sum))),
            || store_with_c(self.k.constant(true)),
        );
    }

    /// As [`Product::store`], for pairs of adjacent columns of C, with bounds checks.
    ///
    /// `each` calls its argument for every pair, with the row, the first column and the two
    /// accumulators. With `aligned`, pairs are stored as vectors.
    pub fn store_pairs(&self, aligned: bool, each: impl Fn(&dyn Fn(Val<'k, u32>, Val<'k, u32>, [Val<'k, T::Acc>; 2]))) {
        self.to_c_or_workspace(
            || self.store_pairs_to_c(aligned, &each),
            |workspace, alpha, [tile_row, tile_col]| {
                each(&|row, col, pair| {
                    workspace.store_vec((row - tile_row, col - tile_col), pair.map(|sum| alpha * sum));
                });
            },
        );
    }

    fn store_pairs_to_c(
        &self,
        aligned: bool,
        each: &impl Fn(&dyn Fn(Val<'k, u32>, Val<'k, u32>, [Val<'k, T::Acc>; 2])),
    ) {
        let (m, n, _) = self.extents();
        let valid = |row: Val<'k, u32>, col: Val<'k, u32>| row.lt(m).select(n - col.min(n), 0);
        let (c, [alpha, beta]) = match self.output {
            Output::PartialSums(c) => {
                return each(&|row, col, pair| store_pair(c, aligned, (row, col), pair, valid(row, col)));
            }
            Output::Matrix(c, scalars) => (c, scalars),
        };
        let put = |at: (Val<'k, u32>, Val<'k, u32>), values: [Val<'k, T::Acc>; 2], valid: Val<'k, u32>| {
            store_pair(c, aligned, at, self.epilogue.apply(values, at, |i| valid.gt(i)), valid);
        };
        let store_without_c = || each(&|row, col, pair| put((row, col), pair.map(|sum| alpha * sum), valid(row, col)));
        let store_with_c = |reads_c: Pred<'k>| {
            each(&|row, col, pair| {
                let valid = valid(row, col);
                let loaded = load_pair(c, aligned, (row, col), reads_c.select(valid, 0u32));
                put((row, col), [0, 1].map(|i| beta.mul_add(loaded[i].to::<T::Acc>(), alpha * pair[i])), valid);
            });
        };
        // With an epilogue of 16-bit results, the loads of C are slow and worth a branch; wider
        // results lack registers for both forms.
        if !self.epilogue.is_none() && T::Out::TYPE.size() > 2 {
            return store_with_c(beta.ne(T::Acc::ZERO));
        }
        self.k.if_else(beta.eq(T::Acc::ZERO), store_without_c, || store_with_c(self.k.constant(true)));
    }
}

/// Loads the first `valid` of two adjacent columns; zeros for the rest.
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

/// Stores the first `valid` of two adjacent columns.
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

/// Stores C(row, col) = act(scaled + beta·C(row, col) + bias). If beta is 0, C is not read.
pub(super) fn store_scaled<'k, T: Element>(
    k: &'k Builder,
    c: Global<'k, T::Out>,
    beta: Val<'k, T::Acc>,
    at: (Val<'k, u32>, Val<'k, u32>),
    scaled: Val<'k, T::Acc>,
    epilogue: &KernelEpilogue<'k, T>,
) {
    if !epilogue.is_none() {
        let loaded = c.load_or(at, beta.ne(T::Acc::ZERO), T::Out::ZERO);
        let sum = beta.mul_add(loaded.to::<T::Acc>(), scaled);
        let [value] = epilogue.apply([sum], at, |_| k.constant(true));
        return c.store(at, value);
    }
    k.if_else(
        beta.eq(T::Acc::ZERO),
        || c.store(at, scaled.to::<T::Out>()),
        || {
            let loaded = c.load(at).to::<T::Acc>();
            c.store(at, beta.mul_add(loaded, scaled).to::<T::Out>());
        },
    );
}

/// The stream-K distribution: equal numbers of whole tiles for each worker, and an equal range of
/// the k-steps of the remaining tiles.
pub(super) struct StreamKRanges<'k> {
    workers: Val<'k, u64>,
    /// Whole tiles of each worker.
    pub waves: Val<'k, u32>,
    /// k-steps of a tile.
    pub steps: Val<'k, u64>,
    /// k-steps of all remaining tiles.
    units: Val<'k, u64>,
}

impl<'k> StreamKRanges<'k> {
    pub fn new(tiles: Val<'k, u32>, workers: Val<'k, u32>, steps: Val<'k, u32>) -> Self {
        let waves = tiles / workers;
        let (split_tiles, steps) = ((tiles - waves * workers).to::<u64>(), steps.to::<u64>());
        StreamKRanges { workers: workers.to(), waves, steps, units: split_tiles * steps }
    }

    /// The first k-step of a worker's range.
    pub fn start(&self, worker: Val<'k, u32>) -> Val<'k, u64> {
        worker.to::<u64>() * self.units / self.workers
    }

    /// Iterates over the ranges from a worker's on. All divisions precede the first.
    pub fn iterate(&self, k: &'k Builder, worker: Val<'k, u32>) -> StreamKCursor<'k> {
        let start = self.start(worker);
        let remainder = worker.to::<u64>() * self.units - start * self.workers;
        let each = self.units / self.workers;
        let each_remainder = self.units - each * self.workers;
        StreamKCursor { start: k.var(start), remainder: k.var(remainder), each, each_remainder, workers: self.workers }
    }

    /// The worker whose range contains a k-step.
    pub fn worker(&self, unit: Val<'k, u64>) -> Val<'k, u32> {
        (((unit + 1) * self.workers + (self.units - 1)) / self.units - 1).to()
    }
}

/// A worker's range. The start is a quotient, whose remainder is kept to advance without a
/// division.
pub(super) struct StreamKCursor<'k> {
    start: Var<'k, u64>,
    remainder: Var<'k, u64>,
    each: Val<'k, u64>,
    each_remainder: Val<'k, u64>,
    workers: Val<'k, u64>,
}

impl<'k> StreamKCursor<'k> {
    /// Returns the first k-step of the range and the one after its last, and advances to the next
    /// worker.
    pub fn next(&self) -> (Val<'k, u64>, Val<'k, u64>) {
        let (start, remainder) = (self.start.get(), self.remainder.get() + self.each_remainder);
        let carry = remainder.ge(self.workers);
        let end = start + self.each + carry.select(1u64, 0u64);
        self.start.set(end);
        self.remainder.set(remainder - carry.select(self.workers, 0u64));
        (start, end)
    }
}
