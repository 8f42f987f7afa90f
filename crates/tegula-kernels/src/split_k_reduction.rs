//! The split-K reduction: adds the partial sums in a fixed order. For many partial sums of few
//! elements, several threads add those of an element, and their sums are added in the order of the
//! threads.

use std::fmt;

use tegula_core::element::Type;
use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Error, Result};
use tegula_ir::prelude::*;

use super::epilogue::KernelEpilogue;
use super::orders::order_letters;
use super::product::store_scaled;

/// Columns of C per block.
const COLUMNS: u32 = 32;
/// Rows of C per block, or threads per element.
const LINES: u32 = 8;
/// Partial sums that a thread loads before it adds the first, for few and for more of them.
const PREFETCH: [u32; 2] = [4, 8];
/// Elements of C up to which one thread per element does not occupy a GPU.
const FEW_ELEMENTS: usize = 1 << 16;

/// The kernel C = act(alpha·(sum of partial sums) + beta·C + bias), and its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SplitKReduction {
    /// Element type of A and B; partial sums have its accumulator type.
    pub ty: Type,
    /// Storage order of C.
    pub order: Order2d,
    /// How the partial sums of an element are added.
    pub schedule: ReductionSchedule,
    /// The epilogue.
    pub epilogue: Epilogue,
}

/// How the partial sums of an element are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReductionSchedule {
    /// By one thread, with four loads in flight.
    Prefetch4,
    /// By one thread, with eight loads in flight.
    Prefetch8,
    /// By several threads.
    MultiThread,
}

impl ReductionSchedule {
    /// The fastest schedule for `splits` partial sums of each of `elements` elements.
    pub const fn of(splits: u32, elements: usize) -> Self {
        let [short, long] = PREFETCH;
        if splits <= short {
            ReductionSchedule::Prefetch4
        } else if splits <= long || elements > FEW_ELEMENTS {
            ReductionSchedule::Prefetch8
        } else {
            ReductionSchedule::MultiThread
        }
    }

    /// Rounds of loads of a thread, for `splits` partial sums.
    pub const fn rounds(self, splits: u32) -> u32 {
        match self {
            ReductionSchedule::Prefetch4 | ReductionSchedule::Prefetch8 => splits.div_ceil(self.prefetch()),
            // One more for the exchange through shared memory.
            ReductionSchedule::MultiThread => splits.div_ceil(LINES * self.prefetch()) + 1,
        }
    }

    const fn prefetch(self) -> u32 {
        match self {
            ReductionSchedule::Prefetch4 | ReductionSchedule::MultiThread => PREFETCH[0],
            ReductionSchedule::Prefetch8 => PREFETCH[1],
        }
    }
}

impl SplitKReduction {
    /// Rows and columns of C per block.
    pub(super) const fn tile(&self) -> [u32; 2] {
        match self.schedule {
            ReductionSchedule::Prefetch4 | ReductionSchedule::Prefetch8 => [LINES, COLUMNS],
            ReductionSchedule::MultiThread => [1, COLUMNS],
        }
    }

    /// Builds the kernel: parameters `parts` (row-major, a matrix for each split of each product of
    /// the batch), `c`, `bias` if any, `alpha`, `beta`.
    ///
    /// # Errors
    /// [`Error::KernelOption`] for an unsupported type.
    pub fn build(&self) -> Result<Kernel> {
        self.epilogue.check(self.ty)?;
        of_type!(self.ty, reduce(self))
    }
}

fn reduce<T: Element>(variant: &SplitKReduction) -> Kernel {
    kernel(&variant.to_string(), Block::d1(COLUMNS * LINES), |k| {
        k.note(format!("C = alpha sum of parts + beta C, {} elements, {variant}", variant.ty));
        let workspace = k.matrix::<T::Acc>("parts", Access::Read, Order2d::RowMajor, 1);
        let c = k.matrix::<T::Out>("c", Access::ReadWrite, variant.order, 1);
        let epilogue = KernelEpilogue::<T>::declare(k, variant.epilogue);
        let (alpha, beta) = (k.scalar::<T::Acc>("alpha"), k.scalar::<T::Acc>("beta"));
        let (column, line) = (k.thread_x() % COLUMNS, k.thread_x() / COLUMNS);
        let is_shared = variant.schedule == ReductionSchedule::MultiThread;
        let partial_sums = is_shared.then(|| k.shared::<T::Acc>("sums", [LINES, COLUMNS]));
        // The threads of a column add partial sums of one element, or of one element each.
        let ([rows, _], threads) = (variant.tile(), if is_shared { LINES } else { 1 });
        k.for_blocks([c.cols().div_ceil(COLUMNS), c.rows().div_ceil(rows), c.batches()], |[x, y, batch]| {
            let col = x * COLUMNS + column;
            let (row, first) = if is_shared { (y, line) } else { (y * LINES + line, k.constant(0)) };
            let in_c = row.lt(c.rows()) & col.lt(c.cols());
            let splits = workspace.batches() / c.batches();
            let total = k.var(T::Acc::ZERO);
            k.for_step(first, splits, threads * variant.schedule.prefetch(), |first| {
                // All loads are issued before the first is used.
                let loaded: Vec<_> = (0..variant.schedule.prefetch())
                    .map(|i| {
                        let split = first + i * threads;
                        workspace.load_or((batch * splits + split, row, col), split.lt(splits) & in_c, T::Acc::ZERO)
                    })
                    .collect();
                loaded.into_iter().for_each(|value| total.set(total.get() + value));
            });
            let mut stores = in_c;
            if let Some(partial_sums) = partial_sums {
                // The previous columns of the block have been read.
                k.barrier();
                partial_sums.store((line, column), total.get());
                k.barrier();
                total.set(T::Acc::ZERO);
                (0..LINES).for_each(|i| total.set(total.get() + partial_sums.load((i, column))));
                stores = in_c & line.eq(0u32);
            }
            k.when(stores, || {
                store_scaled::<T>(k, c.batch(batch), beta, (row, col), alpha * total.get(), &epilogue.batch(batch));
            });
        });
    })
}

impl fmt::Display for SplitKReduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = order_letters([Order2d::RowMajor, Order2d::RowMajor, self.order]);
        let schedule = match self.schedule {
            ReductionSchedule::Prefetch4 => "",
            ReductionSchedule::Prefetch8 => "_more",
            ReductionSchedule::MultiThread => "_shared",
        };
        write!(f, "reduce_{}{schedule}{letters}{}", self.ty, self.epilogue.suffix())
    }
}
