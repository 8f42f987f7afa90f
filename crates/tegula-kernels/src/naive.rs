//! The baseline: one thread per element of C, which reads its row of A and its column of B from
//! global memory.

use tegula_ir::prelude::*;

use super::plain::{Mapping, Plain, blocks_at_full_occupancy};
use super::product::Product;

/// Each thread computes one element of C in a loop over k: 2·k global loads per thread.
pub(super) fn naive<T: Element>(variant: &Plain) -> Kernel {
    let tile = variant.tile;
    kernel(&variant.name(), Block::d2(tile, tile), |k| {
        let product = Product::<T>::declare(k, variant);
        k.min_blocks(blocks_at_full_occupancy(tile));
        let (m, n, depth) = product.extents();
        let (tiles_m, tiles_n) = (product.tile_count(m, tile), product.tile_count(n, tile));
        let (x, y) = match variant.mapping {
            Mapping::XCol => (tiles_n, tiles_m),
            Mapping::XRow => (tiles_m, tiles_n),
        };
        k.for_blocks([x, y, product.batches()], |[x, y, batch]| {
            let (x, y) = (x * tile + k.thread_x(), y * tile + k.thread_y());
            let (row, col) = match variant.mapping {
                Mapping::XCol => (y, x),
                Mapping::XRow => (x, y),
            };
            let product = product.batch(batch);
            k.when(product.guard(row.lt(m) & col.lt(n)), || {
                let sum = k.var(T::Acc::ZERO);
                // An epilogue needs the registers that more unrolling would take.
                let rounds = if variant.epilogue.is_none() { 4 } else { 1 };
                k.for_each_unrolled(0, depth, rounds, |p| {
                    let (a, b) = (product.a.load((row, p)), product.b.load((p, col)));
                    sum.set(a.to::<T::Acc>().mul_add(b.to::<T::Acc>(), sum.get()));
                });
                product.store(row, col, sum.get());
            });
        });
    })
}
