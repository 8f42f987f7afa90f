//! The stream-K fix-up: adds the partial sums of split tiles, already scaled by alpha, in the order
//! of k.

use std::fmt;

use tegula_core::element::Type;
use tegula_core::epilogue::Epilogue;
use tegula_core::error::{Error, Result};
use tegula_ir::GRID_YZ_LIMIT;
use tegula_ir::prelude::*;

use super::blocked::{GROUP_M, raster_order};
use super::epilogue::KernelEpilogue;
use super::orders::order_letters;
use super::product::{StreamKRanges, store_scaled};

/// Threads of a block.
const THREADS: u32 = 256;
/// Elements of a tile per thread. The 64-bit divisions that find their contributors are shared by
/// all.
const ELEMENTS_PER_THREAD: u32 = 4;
/// Elements of a tile per block.
pub(super) const ELEMENTS: u32 = THREADS * ELEMENTS_PER_THREAD;
/// Partial sums that a thread loads before it adds the first.
const PREFETCH: u32 = 4;

/// The kernel C = act(sum of partial sums + beta·C + bias) for the split tiles, and its
/// configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FixUp {
    /// Element type of A and B; partial sums have its accumulator type.
    pub ty: Type,
    /// Storage order of C.
    pub order: Order2d,
    /// The epilogue.
    pub epilogue: Epilogue,
}

impl FixUp {
    /// Builds the kernel: parameters `parts` (row-major, two tiles for each worker), `c`, `bias` if
    /// any, `beta`, and the k-steps `steps`.
    ///
    /// # Errors
    /// [`Error::KernelOption`] for an unsupported type.
    pub fn build(&self) -> Result<Kernel> {
        self.epilogue.check(self.ty)?;
        of_type!(self.ty, fix_up(self))
    }
}

fn fix_up<T: Element>(variant: &FixUp) -> Kernel {
    kernel(&variant.to_string(), Block::d1(THREADS), |k| {
        k.note(format!("C = sum of parts + beta C where tiles were shared, {} elements, {variant}", variant.ty));
        let workspace = k.matrix::<T::Acc>("parts", Access::Read, Order2d::RowMajor, 1);
        let c = k.matrix::<T::Out>("c", Access::ReadWrite, variant.order, 1);
        let epilogue = KernelEpilogue::<T>::declare(k, variant.epilogue);
        let beta = k.scalar::<T::Acc>("beta");
        let steps = k.scalar::<u32>("steps").max(1);
        let (rows, cols, workers) = (workspace.rows(), workspace.cols(), workspace.batches() / 2);
        let (tiles_m, tiles_n) = ((c.rows() + rows - 1) / rows, (c.cols() + cols - 1) / cols);
        let tiles = tiles_m * tiles_n;
        let all = tiles * c.batches();
        let split_tiles = all - all / workers * workers;
        k.grid([(rows * cols).div_ceil(ELEMENTS), split_tiles.min(GRID_YZ_LIMIT), k.constant(1)]);
        let ranges = StreamKRanges::new(all, workers, steps);
        k.for_step(k.block_y(), split_tiles, k.grid_y(), |index| {
            let (tile, first) = (all - split_tiles + index, index.to::<u64>() * ranges.steps);
            let (first_worker, last_worker) = (ranges.worker(first), ranges.worker(first + ranges.steps - 1));
            let (tile_m, tile_n) = raster_order(tile % tiles, [tiles_m, tiles_n], k.constant(GROUP_M));
            let elements: Vec<_> = (0..ELEMENTS_PER_THREAD)
                .map(|i| {
                    let element = k.block_x() * ELEMENTS + i * THREADS + k.thread_x();
                    let (r, col) = (element / cols, element % cols);
                    let at = (tile_m * rows + r, tile_n * cols + col);
                    let in_bounds = r.lt(rows) & at.0.lt(c.rows()) & at.1.lt(c.cols());
                    ((r, col), at, in_bounds, k.var(T::Acc::ZERO))
                })
                .collect();
            let cursor = ranges.iterate(k, first_worker);
            k.for_step(first_worker, last_worker + 1, PREFETCH, |worker| {
                // A worker whose range begins in an earlier tile has this one in its second slot.
                // With more workers than k-steps, some ranges are empty.
                let slots: Vec<_> = (0..PREFETCH)
                    .map(|i| {
                        let (start, end) = cursor.next();
                        let slot = (worker + i) * 2 + start.lt(first).select(1u32, 0u32);
                        (slot, (worker + i).le(last_worker) & start.lt(end))
                    })
                    .collect();
                // All loads are issued before the first is used.
                let mut loaded = Vec::new();
                for ((r, col), _, in_bounds, total) in &elements {
                    let values = slots
                        .iter()
                        .map(|(slot, valid)| workspace.load_or((*slot, *r, *col), *valid & *in_bounds, T::Acc::ZERO));
                    loaded.push((total, values.collect::<Vec<_>>()));
                }
                for (total, values) in loaded {
                    values.into_iter().for_each(|value| total.set(total.get() + value));
                }
            });
            let batch = tile / tiles;
            for (_, at, in_bounds, total) in elements {
                k.when(in_bounds, || {
                    store_scaled::<T>(k, c.batch(batch), beta, at, total.get(), &epilogue.batch(batch))
                });
            }
        });
    })
}

impl fmt::Display for FixUp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letters = order_letters([Order2d::RowMajor, Order2d::RowMajor, self.order]);
        write!(f, "fixup_{}{letters}{}", self.ty, self.epilogue.suffix())
    }
}
