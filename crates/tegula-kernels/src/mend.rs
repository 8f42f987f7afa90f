//! The second pass of a product whose left-over tiles several blocks shared: adds the sums of each, which have alpha in them, in the order
//! of k.

use std::fmt;

use tegula_core::element::Type;
use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Error, Result};
use tegula_ir::GRID_YZ_LIMIT;
use tegula_ir::prelude::*;

use super::blocked::{GROUP, grouped};
use super::epilogue::Ending;
use super::orders::order_letters;
use super::product::{Shares, finish};

/// Threads of a block.
const THREADS: u32 = 256;
/// Elements of a tile that a thread adds. Finding whose shares they are takes divisions of 64 bits, so it does that once for all.
const EACH: u32 = 4;
/// Elements of a tile that a block makes.
pub(super) const ELEMENTS: u32 = THREADS * EACH;
/// Shares of a tile that a thread loads before it adds the first.
const AHEAD: u32 = 4;

/// C = sum of parts + beta·C for the tiles that were shared, and everything that shapes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Mend {
    /// Element type of A and B; parts have the type of its sums.
    pub ty: Type,
    /// What is known of C's strides.
    pub order: Order2d,
    /// What happens to whole sums on their way to C.
    pub epilogue: Epilogue,
}

impl Mend {
    /// Builds the kernel: parameters `parts` (row-major; two tiles for each worker), `c`, `bias` if there is one, `beta`, and
    /// `steps` along k.
    ///
    /// # Errors
    /// [`Error::KernelOption`] for a type without kernels.
    pub fn build(&self) -> Result<Kernel> {
        self.epilogue.check(self.ty)?;
        of_type!(self.ty, mend(self))
    }
}

fn mend<T: Element>(variant: &Mend) -> Kernel {
    kernel(&variant.to_string(), Block::d1(THREADS), |k| {
        k.note(format!("C = sum of parts + beta C where tiles were shared, {} elements, {variant}", variant.ty));
        let parts = k.matrix::<T::Acc>("parts", Access::Read, Order2d::RowMajor, 1);
        let c = k.matrix::<T::Out>("c", Access::ReadWrite, variant.order, 1);
        let ending = Ending::<T>::declare(k, variant.epilogue);
        let beta = k.scalar::<T::Acc>("beta");
        let steps = k.scalar::<u32>("steps").max(1);
        let (rows, cols, workers) = (parts.rows(), parts.cols(), parts.batches() / 2);
        let (tiles_m, tiles_n) = ((c.rows() + rows - 1) / rows, (c.cols() + cols - 1) / cols);
        let tiles = tiles_m * tiles_n;
        let all = tiles * c.batches();
        let left = all - all / workers * workers;
        k.grid([(rows * cols).div_ceil(ELEMENTS), left.min(GRID_YZ_LIMIT), k.constant(1)]);
        let shares = Shares::new(all, workers, steps);
        k.for_step(k.block_y(), left, k.grid_y(), |number| {
            let (tile, first) = (all - left + number, number.to::<u64>() * shares.steps);
            let (one, last) = (shares.worker(first), shares.worker(first + shares.steps - 1));
            let (tile_m, tile_n) = grouped(tile % tiles, [tiles_m, tiles_n], k.constant(GROUP));
            let elements: Vec<_> = (0..EACH)
                .map(|i| {
                    let element = k.block_x() * ELEMENTS + i * THREADS + k.thread_x();
                    let (r, col) = (element / cols, element % cols);
                    let at = (tile_m * rows + r, tile_n * cols + col);
                    let inside = r.lt(rows) & at.0.lt(c.rows()) & at.1.lt(c.cols());
                    ((r, col), at, inside, k.var(T::Acc::ZERO))
                })
                .collect();
            let share = shares.begin(k, one);
            k.for_step(one, last + 1, AHEAD, |worker| {
                // A worker whose share begins in an earlier tile has this one in its second slot. Where there are more workers than steps,
                // some have none.
                let slots: Vec<_> = (0..AHEAD)
                    .map(|i| {
                        let (start, end) = share.next();
                        let slot = (worker + i) * 2 + start.lt(first).select(1u32, 0u32);
                        (slot, (worker + i).le(last) & start.lt(end))
                    })
                    .collect();
                // All loads are on their way before the first is waited for.
                let mut loaded = Vec::new();
                for ((r, col), _, inside, total) in &elements {
                    let parts = slots
                        .iter()
                        .map(|(slot, there)| parts.load_or((*slot, *r, *col), *there & *inside, T::Acc::ZERO));
                    loaded.push((total, parts.collect::<Vec<_>>()));
                }
                for (total, parts) in loaded {
                    parts.into_iter().for_each(|part| total.set(total.get() + part));
                }
            });
            let batch = tile / tiles;
            for (_, at, inside, total) in elements {
                k.when(inside, || finish::<T>(k, c.batch(batch), beta, at, total.get(), &ending.batch(batch)));
            }
        });
    })
}

impl fmt::Display for Mend {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = order_letters([Order2d::RowMajor, Order2d::RowMajor, self.order]);
        write!(f, "mend_{}{letters}{}", self.ty, self.epilogue.suffix())
    }
}
