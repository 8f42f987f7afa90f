//! The second pass of a product whose sums along k were split: adds the parts, always in the same order. Where there are many
//! parts of few elements, threads share those of an element; what they have is added in the threads' order.

use std::fmt;

use tegula_core::element::Type;
use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Error, Result};
use tegula_ir::prelude::*;

use super::epilogue::Ending;
use super::orders::order_letters;
use super::product::finish;

/// Columns of C that a block makes.
const COLUMNS: u32 = 32;
/// Rows of C that it makes, or threads that share an element's parts.
const LINES: u32 = 8;
/// Parts that a thread loads before it adds the first, where there are few and where there are more.
const AHEAD: [u32; 2] = [4, 8];
/// Elements of C that are too few to occupy a GPU with a thread for each.
const FEW_ELEMENTS: usize = 1 << 16;

/// C = alpha·(sum of parts) + beta·C, and everything that shapes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sum {
    /// Element type of A and B; parts have the type of its sums.
    pub ty: Type,
    /// What is known of C's strides.
    pub order: Order2d,
    /// How the parts of an element are added.
    pub adding: Adding,
    /// What happens to whole sums on their way to C.
    pub epilogue: Epilogue,
}

/// How parts are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Adding {
    /// By one thread, which loads a few of them at once.
    Few,
    /// By one thread, which loads more of them at once.
    More,
    /// By threads that share them.
    Shared,
}

impl Adding {
    /// What is fastest for so many parts of so many elements.
    pub const fn of(parts: u32, elements: usize) -> Self {
        let [few, more] = AHEAD;
        if parts <= few {
            Adding::Few
        } else if parts <= more || elements > FEW_ELEMENTS {
            Adding::More
        } else {
            Adding::Shared
        }
    }

    /// How often a thread waits for loads, of so many parts.
    pub const fn rounds(self, parts: u32) -> u32 {
        match self {
            Adding::Few | Adding::More => parts.div_ceil(self.ahead()),
            // Then they exchange what they have.
            Adding::Shared => parts.div_ceil(LINES * self.ahead()) + 1,
        }
    }

    const fn ahead(self) -> u32 {
        match self {
            Adding::Few | Adding::Shared => AHEAD[0],
            Adding::More => AHEAD[1],
        }
    }
}

impl Sum {
    /// Rows and columns of C that a block makes.
    pub(super) const fn tile(&self) -> [u32; 2] {
        match self.adding {
            Adding::Few | Adding::More => [LINES, COLUMNS],
            Adding::Shared => [1, COLUMNS],
        }
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
    kernel(&variant.to_string(), Block::d1(COLUMNS * LINES), |k| {
        k.note(format!("C = alpha sum of parts + beta C, {} elements, {variant}", variant.ty));
        let parts = k.matrix::<T::Acc>("parts", Access::Read, Order2d::RowMajor, 1);
        let c = k.matrix::<T::Out>("c", Access::ReadWrite, variant.order, 1);
        let ending = Ending::<T>::declare(k, variant.epilogue);
        let (alpha, beta) = (k.scalar::<T::Acc>("alpha"), k.scalar::<T::Acc>("beta"));
        let (across, line) = (k.thread_x() % COLUMNS, k.thread_x() / COLUMNS);
        let shared = variant.adding == Adding::Shared;
        let exchange = shared.then(|| k.shared::<T::Acc>("sums", [LINES, COLUMNS]));
        // What the threads of a column have: parts of one element, or elements.
        let ([rows, _], sharing) = (variant.tile(), if shared { LINES } else { 1 });
        k.for_blocks([c.cols().div_ceil(COLUMNS), c.rows().div_ceil(rows), c.batches()], |[x, y, batch]| {
            let col = x * COLUMNS + across;
            let (row, first) = if shared { (y, line) } else { (y * LINES + line, k.constant(0)) };
            let in_c = row.lt(c.rows()) & col.lt(c.cols());
            let each = parts.batches() / c.batches();
            let total = k.var(T::Acc::ZERO);
            k.for_step(first, each, sharing * variant.adding.ahead(), |first| {
                // All loads are on their way before the first is waited for.
                let loaded: Vec<_> = (0..variant.adding.ahead())
                    .map(|i| {
                        let part = first + i * sharing;
                        parts.load_or((batch * each + part, row, col), part.lt(each) & in_c, T::Acc::ZERO)
                    })
                    .collect();
                loaded.into_iter().for_each(|part| total.set(total.get() + part));
            });
            let mut stores = in_c;
            if let Some(exchange) = exchange {
                // The block may have made other columns before.
                k.barrier();
                exchange.store((line, across), total.get());
                k.barrier();
                total.set(T::Acc::ZERO);
                (0..LINES).for_each(|i| total.set(total.get() + exchange.load((i, across))));
                stores = in_c & line.eq(0u32);
            }
            k.when(stores, || {
                finish::<T>(k, c.batch(batch), beta, (row, col), alpha * total.get(), &ending.batch(batch));
            });
        });
    })
}

impl fmt::Display for Sum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = order_letters([Order2d::RowMajor, Order2d::RowMajor, self.order]);
        let adding = match self.adding {
            Adding::Few => "",
            Adding::More => "_more",
            Adding::Shared => "_shared",
        };
        write!(f, "sum_{}{adding}{letters}{}", self.ty, self.epilogue.suffix())
    }
}
