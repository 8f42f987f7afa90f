//! The second pass of a product whose sums along k were split: adds the parts, always in the same order. Where there are many, threads share
//! those of an element; what they have is added in the threads' order.

use std::fmt;

use super::epilogue::Ending;
use super::order_letters;
use super::product::finish;
use crate::element::Type;
use crate::epilogue::Epilogue;
use crate::error::{Error, Result};
use crate::ir::prelude::*;

/// Threads of a block.
const THREADS: u32 = 256;
/// Parts that a thread loads before it adds the first.
const AHEAD: u32 = 4;
/// Threads that share an element's parts, where there are many.
const SHARING: u32 = 8;

/// C = alpha·(sum of parts) + beta·C, and everything that shapes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sum {
    /// Element type of A and B; parts have the type of its sums.
    pub ty: Type,
    /// What is known of C's strides.
    pub order: Order2d,
    /// Whether threads share the parts of an element.
    pub shared: bool,
    /// What happens to whole sums on their way to C.
    pub epilogue: Epilogue,
}

impl Sum {
    /// Whether it is worth the while to share so many parts.
    pub const fn many(parts: u32) -> bool {
        parts > AHEAD
    }

    /// Columns of C that a block makes.
    pub(super) const fn columns(&self) -> u32 {
        if self.shared { THREADS / SHARING } else { THREADS }
    }

    /// Builds the kernel: parameters `parts` (row-major, a matrix for each part of each product of the batch), `c`, `bias` if there is
    /// one, `alpha`, `beta`.
    ///
    /// # Errors
    /// [`Error::KernelOption`] for a type without kernels.
    pub fn build(&self) -> Result<Kernel> {
        self.epilogue.check(self.ty)?;
        of_type!(self.ty, sum(self))
    }
}

fn sum<T: Element>(variant: &Sum) -> Kernel {
    kernel(&variant.to_string(), Block::d1(THREADS), |k| {
        k.note(format!("C = alpha sum of parts + beta C, {} elements, {variant}", variant.ty));
        let parts = k.matrix::<T::Acc>("parts", Access::Read, Order2d::RowMajor, 1);
        let c = k.matrix::<T::Out>("c", Access::ReadWrite, variant.order, 1);
        let ending = Ending::<T>::declare(k, variant.epilogue);
        let (alpha, beta) = (k.scalar::<T::Acc>("alpha"), k.scalar::<T::Acc>("beta"));
        let columns = variant.columns();
        let (across, down) = (k.thread_x() % columns, k.thread_x() / columns);
        let exchange = variant.shared.then(|| k.shared::<T::Acc>("sums", [SHARING, columns]));
        k.for_blocks([c.cols().div_ceil(columns), c.rows(), c.batches()], |[x, row, batch]| {
            let col = x * columns + across;
            let each = parts.batches() / c.batches();
            let total = k.var(T::Acc::ZERO);
            let step = THREADS / columns;
            k.for_step(down, each, step * AHEAD, |first| {
                // All loads are on their way before the first is waited for.
                let loaded: Vec<_> = (0..AHEAD)
                    .map(|i| {
                        let part = first + i * step;
                        let there = part.lt(each) & col.lt(c.cols());
                        parts.load_or((batch * each + part, row, col), there, T::Acc::ZERO)
                    })
                    .collect();
                loaded.into_iter().for_each(|part| total.set(total.get() + part));
            });
            if let Some(exchange) = exchange {
                // The block may have made other columns before.
                k.barrier();
                exchange.store((down, across), total.get());
                k.barrier();
                total.set(T::Acc::ZERO);
                (0..SHARING).for_each(|i| total.set(total.get() + exchange.load((i, across))));
            }
            k.when(col.lt(c.cols()) & down.eq(0u32), || {
                finish::<T>(k, c.batch(batch), beta, (row, col), alpha * total.get(), &ending.batch(batch));
            });
        });
    })
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = order_letters([Order2d::RowMajor, Order2d::RowMajor, self.order]);
        let shared = if self.shared { "_shared" } else { "" };
        write!(f, "sum_{}{shared}{letters}{}", self.ty, self.epilogue.suffix())
    }
}
