//! The split-K reduction of `wgmma` pipelines: adds the partial sums in a fixed order.
//!
//! They are in the [`FragmentLayout`](super::FragmentLayout), so that both kernels access whole
//! cache lines for any order of C.
//!
//! The kernel starts before the GEMM kernel has ended, and waits for it. A block reserves enough
//! shared memory for one block per SM: several would gather on the first free SMs and leave the
//! others idle.

use std::fmt;

use tegula_core::element::Type;
use tegula_core::epilogue::{BiasShape, Epilogue};
use tegula_core::error::{Error, Result};
use tegula_ir::MAX_SHARED_BYTES;
use tegula_ir::prelude::*;

use super::epilogue::KernelEpilogue;
use super::orders::order_letters;
use super::product::store_scaled;
use super::split_k_reduction::ReductionSchedule;

/// Threads of a warpgroup, and the warpgroups of a block.
const WARPGROUP: u32 = Wgmma::THREADS;
const WARPGROUPS: u32 = 8;
/// Columns of C in a fragment, of which each thread has four accumulators.
const COLUMNS: u32 = 8;
/// Accumulators of a fragment.
const FRAGMENT: u32 = Wgmma::M * COLUMNS;
/// Partial sums that a thread loads before it adds the first.
const PREFETCH: u32 = 6;

/// The first row and column of C of a fragment in a row of the
/// [`FragmentLayout`](super::FragmentLayout) `[rows, cols]`, which is a kernel argument. So one
/// kernel serves all tiles.
fn corner<'k>([rows, cols]: [Val<'k, u32>; 2], row: Val<'k, u32>, fragment: Val<'k, u32>) -> [Val<'k, u32>; 2] {
    let (each, per_row) = (rows / Wgmma::M * (cols / COLUMNS), cols / COLUMNS);
    let (tile, fragment) = (fragment / each, fragment % each);
    [row * rows + fragment / per_row * Wgmma::M, tile * cols + fragment % per_row * COLUMNS]
}

/// The kernel C = act(alpha·(sum of partial sums) + beta·C + bias), and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FragmentReduction {
    /// Element type of A and B: f16 or bf16. Partial sums are f32.
    pub ty: Type,
    /// Storage order of C.
    pub order: Order2d,
    /// Whether the warpgroups of a block add the partial sums of one fragment together.
    pub cooperative: bool,
    /// The epilogue.
    pub epilogue: Epilogue,
}

impl FragmentReduction {
    /// Rows and columns of C of a warpgroup.
    pub(super) const TILE: [u32; 2] = [Wgmma::M, COLUMNS];

    /// Whether warpgroups should share the `splits` partial sums of `elements` elements.
    pub(crate) fn is_cooperative(splits: u32, elements: usize) -> bool {
        ReductionSchedule::of(splits, elements) == ReductionSchedule::MultiThread
    }

    /// Builds the kernel: parameters `parts` (for each split of each product of the batch a matrix
    /// in the [`FragmentLayout`](super::FragmentLayout)), `c`, `bias` if any, `alpha`, `beta`, and
    /// the `rows` and `cols` of the layout.
    ///
    /// # Errors
    /// [`Error::KernelOption`] for an unsupported type.
    pub fn build(&self) -> Result<Kernel> {
        self.epilogue.check(self.ty)?;
        match self.ty {
            Type::F16 => Ok(reduce::<f16>(self)),
            Type::BF16 => Ok(reduce::<bf16>(self)),
            ty => Err(Error::KernelOption(format!("{self}: hopper kernels support f16 and bf16, not {ty}"))),
        }
    }
}

fn reduce<T: Element<Acc = f32>>(variant: &FragmentReduction) -> Kernel {
    kernel(&variant.to_string(), Block::d1(WARPGROUP * WARPGROUPS), |k| {
        k.note(format!("C = alpha sum of parts + beta C, {} elements, {variant}", variant.ty));
        let workspace = k.matrix::<f32>("parts", Access::Read, Order2d::RowMajor, 4);
        let c = k.matrix::<T::Out>("c", Access::ReadWrite, variant.order, 1);
        let epilogue = KernelEpilogue::<T>::declare(k, variant.epilogue);
        let (alpha, beta) = (k.scalar::<f32>("alpha"), k.scalar::<f32>("beta"));
        let layout = [k.scalar::<u32>("rows"), k.scalar::<u32>("cols")];
        // The exchange between warpgroups, padded to more than half of an SM's shared memory.
        let fragments = MAX_SHARED_BYTES as u32 / 2 / (4 * FRAGMENT) + 1;
        let partial_sums = k.shared::<f32>("sums", [fragments.max(WARPGROUPS), FRAGMENT]);
        k.griddep_launch_dependents();
        let (group, thread, splits) = (k.warpgroup(), k.thread_x() % WARPGROUP, workspace.batches() / c.batches());
        let per_row = workspace.cols() / FRAGMENT;
        let per_matrix = workspace.rows() * per_row;
        let fragments = per_matrix * c.batches();
        k.grid([fragments.min(k.multiprocessors()), k.constant(1), k.constant(1)]);
        // Fragments are assigned to blocks round-robin.
        let (first, workers) = match variant.cooperative {
            true => (k.block_x(), k.grid_x()),
            false => (group * k.grid_x() + k.block_x(), k.grid_x() * WARPGROUPS),
        };
        k.griddep_wait();
        k.for_step(first, fragments, workers, |fragment| {
            let (batch, fragment) = (fragment / per_matrix, fragment % per_matrix);
            let (row, fragment) = (fragment / per_row, fragment % per_row);
            let totals = k.array::<f32>(4);
            (0..4).for_each(|i| totals.at(i).set(0.0));
            let (first, groups) = if variant.cooperative { (group, WARPGROUPS) } else { (k.constant(0), 1) };
            k.for_step(first, splits, groups * PREFETCH, |first| {
                // All loads are issued before the first is used.
                let loaded: Vec<_> = (0..PREFETCH)
                    .map(|i| {
                        let split = first + i * groups;
                        let at = (batch * splits + split, row, fragment * FRAGMENT + thread * 4);
                        workspace.load_vec_if::<4>(at, split.lt(splits), 0.0)
                    })
                    .collect();
                for four in loaded {
                    (0..4).zip(four).for_each(|(i, sum)| totals.at(i).set(totals.at(i).get() + sum));
                }
            });
            if variant.cooperative {
                // The previous fragment of the block has been read.
                k.barrier();
                partial_sums
                    .store_vec((group, thread * 4), std::array::from_fn::<_, 4, _>(|i| totals.at(i as u32).get()));
                k.barrier();
                k.when(group.eq(0), || {
                    (0..4).for_each(|i| totals.at(i).set(0.0));
                    for source in 0..WARPGROUPS {
                        let four = partial_sums.load_vec::<4>((source, thread * 4));
                        (0..4).zip(four).for_each(|(i, sum)| totals.at(i).set(totals.at(i).get() + sum));
                    }
                });
            }
            let [first_row, first_col] = corner(layout, row, fragment);
            let (lane, warp) = (k.lane(), k.warp() % (WARPGROUP / 32));
            let (row, col) = (first_row + warp * 16 + lane / 4, first_col + lane % 4 * 2);
            let (c, epilogue) = (c.batch(batch), epilogue.batch(batch));
            let stores = if variant.cooperative { group.eq(0) } else { k.constant(true) };
            for i in 0..4 {
                let (row, col) = (row + i / 2 * 8, col + i % 2);
                k.when(stores & row.lt(c.rows()) & col.lt(c.cols()), || {
                    store(k, c, [alpha, beta], (row, col), totals.at(i).get(), &epilogue);
                });
            }
        });
    })
}

/// Stores C(row, col) = act(alpha·sum + beta·C(row, col) + bias), bit for bit as a pipeline without
/// split-K: alpha·sum + bias is rounded once, then beta·C is added.
fn store<'k, T: Element<Acc = f32>>(
    k: &'k Builder,
    c: Global<'k, T::Out>,
    [alpha, beta]: [Val<'k, f32>; 2],
    at: (Val<'k, u32>, Val<'k, u32>),
    sum: Val<'k, f32>,
    epilogue: &KernelEpilogue<'k, T>,
) {
    if epilogue.is_none() {
        return store_scaled::<T>(k, c, beta, at, alpha * sum, epilogue);
    }
    let bias_index = if epilogue.bias_shape() == Some(BiasShape::Row) { at.1 } else { at.0 };
    let value = k.var(match epilogue.bias_at(bias_index) {
        Some(bias) => alpha.mul_add(sum, bias),
        None => alpha * sum,
    });
    k.when(beta.ne(0.0), || value.set(beta.mul_add(c.load(at).to::<f32>(), value.get())));
    c.store(at, epilogue.activate(value.get()));
}

impl fmt::Display for FragmentReduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = order_letters([Order2d::RowMajor, Order2d::RowMajor, self.order]);
        let shared = if self.cooperative { "_shared" } else { "" };
        write!(f, "reduce_fragments_{}{shared}{letters}{}", self.ty, self.epilogue.suffix())
    }
}
