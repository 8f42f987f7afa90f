//! The second pass of a pipeline's product whose sums along k were split: adds the parts, always in the same order. They lie as warpgroups had them
//! ([`Fragments`](super::Fragments)), so that both passes find whole lines of them, however C lies.
//!
//! The kernel begins before the one that multiplies has ended, and waits for it. A block takes so much shared memory that a multiprocessor has one:
//! several would gather where there is room first, and leave the others idle.

use std::fmt;

use tegula_core::element::Type;
use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Error, Result};
use tegula_ir::MAX_SHARED_BYTES;
use tegula_ir::prelude::*;

use super::epilogue::Ending;
use super::orders::order_letters;
use super::product::finish;
use super::sum::Adding;

/// Threads of a warpgroup, and the warpgroups of a block.
const GROUP: u32 = Wgmma::THREADS;
const GROUPS: u32 = 8;
/// Columns of C in a piece, of which each thread has four sums.
const COLUMNS: u32 = 8;
/// Sums of a piece.
const PIECE: u32 = Wgmma::M * COLUMNS;
/// Parts that a thread loads before it adds the first.
const AHEAD: u32 = 6;

/// Where a piece begins in C, of a row of pieces that lie so: as [`Fragments`](super::Fragments), but known when the kernel runs. So one kernel adds for all tiles.
fn corner<'k>([rows, cols]: [Val<'k, u32>; 2], row: Val<'k, u32>, piece: Val<'k, u32>) -> [Val<'k, u32>; 2] {
    let (each, across) = (rows / Wgmma::M * (cols / COLUMNS), cols / COLUMNS);
    let (tile, piece) = (piece / each, piece % each);
    [row * rows + piece / across * Wgmma::M, tile * cols + piece % across * COLUMNS]
}

/// C = alpha·(sum of parts) + beta·C, and everything that shapes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Reduce {
    /// Element type of A and B: f16 or bf16. Sums are f32.
    pub ty: Type,
    /// What is known of C's strides.
    pub order: Order2d,
    /// Whether the warpgroups of a block share the parts of a piece.
    pub shared: bool,
    /// What happens to whole sums on their way to C.
    pub epilogue: Epilogue,
}

impl Reduce {
    /// Rows and columns of C that a warpgroup makes.
    pub(super) const TILE: [u32; 2] = [Wgmma::M, COLUMNS];

    /// Whether it is faster if warpgroups share so many parts of so many elements.
    pub(crate) fn shares(parts: u32, elements: usize) -> bool {
        Adding::of(parts, elements) == Adding::Shared
    }

    /// Builds the kernel: parameters `parts` (for each part of each product of the batch a matrix of [`Fragments`](super::Fragments)), `c`, `bias` if there is one,
    /// `alpha`, `beta`, and what [`Fragments`](super::Fragments) says: `rows`, `cols`.
    ///
    /// # Errors
    /// [`Error::KernelOption`] for a type without pipelines.
    pub fn build(&self) -> Result<Kernel> {
        self.epilogue.check(self.ty)?;
        match self.ty {
            Type::F16 => Ok(reduce::<f16>(self)),
            Type::BF16 => Ok(reduce::<bf16>(self)),
            ty => Err(Error::KernelOption(format!("{self}: pipelines multiply f16 and bf16, not {ty}"))),
        }
    }
}

fn reduce<T: Element<Acc = f32>>(variant: &Reduce) -> Kernel {
    kernel(&variant.to_string(), Block::d1(GROUP * GROUPS), |k| {
        k.note(format!("C = alpha sum of parts + beta C, {} elements, {variant}", variant.ty));
        let parts = k.matrix::<f32>("parts", Access::Read, Order2d::RowMajor, 4);
        let c = k.matrix::<T::Out>("c", Access::ReadWrite, variant.order, 1);
        let ending = Ending::<T>::declare(k, variant.epilogue);
        let (alpha, beta) = (k.scalar::<f32>("alpha"), k.scalar::<f32>("beta"));
        let fragment = [k.scalar::<u32>("rows"), k.scalar::<u32>("cols")];
        // What warpgroups exchange, and more than half of what a multiprocessor has.
        let room = MAX_SHARED_BYTES as u32 / 2 / (4 * PIECE) + 1;
        let exchange = k.shared::<f32>("sums", [room.max(GROUPS), PIECE]);
        k.allow_next();
        let (group, thread, each) = (k.warpgroup(), k.thread_x() % GROUP, parts.batches() / c.batches());
        let across = parts.cols() / PIECE;
        let of_matrix = parts.rows() * across;
        let pieces = of_matrix * c.batches();
        k.grid([pieces.min(k.multiprocessors()), k.constant(1), k.constant(1)]);
        // The blocks take a piece each before any takes a second.
        let (first, workers) = match variant.shared {
            true => (k.block_x(), k.grid_x()),
            false => (group * k.grid_x() + k.block_x(), k.grid_x() * GROUPS),
        };
        k.await_launches();
        k.for_step(first, pieces, workers, |piece| {
            let (batch, piece) = (piece / of_matrix, piece % of_matrix);
            let (row, piece) = (piece / across, piece % across);
            let totals = k.array::<f32>(4);
            (0..4).for_each(|i| totals.at(i).set(0.0));
            let (first, sharing) = if variant.shared { (group, GROUPS) } else { (k.constant(0), 1) };
            k.for_step(first, each, sharing * AHEAD, |first| {
                // All loads are on their way before the first is waited for.
                let loaded: Vec<_> = (0..AHEAD)
                    .map(|i| {
                        let part = first + i * sharing;
                        let at = (batch * each + part, row, piece * PIECE + thread * 4);
                        parts.load_vec_if::<4>(at, part.lt(each), 0.0)
                    })
                    .collect();
                for four in loaded {
                    (0..4).zip(four).for_each(|(i, sum)| totals.at(i).set(totals.at(i).get() + sum));
                }
            });
            if variant.shared {
                // The block may have made another piece before.
                k.barrier();
                exchange.store_vec((group, thread * 4), std::array::from_fn::<_, 4, _>(|i| totals.at(i as u32).get()));
                k.barrier();
                k.when(group.eq(0), || {
                    (0..4).for_each(|i| totals.at(i).set(0.0));
                    for of in 0..GROUPS {
                        let four = exchange.load_vec::<4>((of, thread * 4));
                        (0..4).zip(four).for_each(|(i, sum)| totals.at(i).set(totals.at(i).get() + sum));
                    }
                });
            }
            let [down, right] = corner(fragment, row, piece);
            let (lane, warp) = (k.lane(), k.warp() % (GROUP / 32));
            let (row, col) = (down + warp * 16 + lane / 4, right + lane % 4 * 2);
            let (c, ending) = (c.batch(batch), ending.batch(batch));
            let makes = if variant.shared { group.eq(0) } else { k.constant(true) };
            for i in 0..4 {
                let (row, col) = (row + i / 2 * 8, col + i % 2);
                k.when(makes & row.lt(c.rows()) & col.lt(c.cols()), || {
                    finish::<T>(k, c, beta, (row, col), alpha * totals.at(i).get(), &ending);
                });
            }
        });
    })
}

impl fmt::Display for Reduce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = order_letters([Order2d::RowMajor, Order2d::RowMajor, self.order]);
        let shared = if self.shared { "_shared" } else { "" };
        write!(f, "reduce_{}{shared}{letters}{}", self.ty, self.epilogue.suffix())
    }
}
