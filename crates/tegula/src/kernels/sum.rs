//! The second pass of a product whose sums along k were split: adds the parts, always in the same order.

use std::fmt;

use super::epilogue::Ending;
use super::order_letters;
use super::product::finish;
use crate::element::Type;
use crate::epilogue::Epilogue;
use crate::error::{Error, Result};
use crate::ir::prelude::*;

/// Threads of a block, each with an element of C.
pub(super) const THREADS: u32 = 256;

/// C = alpha·(sum of parts) + beta·C, and everything that shapes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sum {
    /// Element type of A and B; parts have the type of its sums.
    pub ty: Type,
    /// What is known of C's strides.
    pub order: Order2d,
    /// What happens to whole sums on their way to C.
    pub epilogue: Epilogue,
}

impl Sum {
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
        k.for_blocks([c.cols().div_ceil(THREADS), c.rows(), c.batches()], |[x, row, batch]| {
            let col = x * THREADS + k.thread_x();
            let each = parts.batches() / c.batches();
            k.when(col.lt(c.cols()), || {
                let total = k.var(T::Acc::ZERO);
                k.for_each(0, each, |part| {
                    total.set(total.get() + parts.load((batch * each + part, row, col)));
                });
                finish::<T>(k, c.batch(batch), beta, (row, col), alpha * total.get(), &ending.batch(batch));
            });
        });
    })
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = order_letters([Order2d::RowMajor, Order2d::RowMajor, self.order]);
        write!(f, "sum_{}{letters}{}", self.ty, self.epilogue.suffix())
    }
}
