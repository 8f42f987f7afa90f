//! Tiling in shared memory: elements of A and B are loaded once per tile, not once per thread.

use tegula_ir::prelude::*;

use super::plain::{Barriers, Mapping, Plain, blocks_at_full_occupancy};
use super::product::Product;

/// Each block computes a TILE×TILE tile of C in steps along k; each thread computes one element.
///
/// In each step every thread loads one element of each tile, and the block synchronizes. Then every
/// thread adds TILE products, and the block synchronizes before the next step overwrites the tiles.
pub(super) fn tiled<T: Element>(variant: &Plain) -> Kernel {
    let tile = variant.tile;
    kernel(&variant.name(), Block::d2(tile, tile), |k| {
        let product = Product::<T>::declare(k, variant);
        // With an epilogue of f64, the registers at full occupancy do not suffice.
        if variant.epilogue.is_none() || variant.ty.accumulator().size() < 8 {
            k.min_blocks(blocks_at_full_occupancy(tile));
        }
        let (m, n, depth) = product.extents();
        let (tiles_m, tiles_n) = (product.tile_count(m, tile), product.tile_count(n, tile));
        let tile_a = k.shared::<T>("tile_a", [tile, tile]);
        let tile_b = k.shared::<T>("tile_b", [tile, tile]);
        let (x, y) = (k.thread_x(), k.thread_y());
        // The thread's row and column in a tile, and the matching axes of the grid.
        let (r, c, grid) = match variant.mapping {
            Mapping::XCol => (y, x, [tiles_n, tiles_m]),
            Mapping::XRow => (x, y, [tiles_m, tiles_n]),
        };
        k.for_blocks([grid[0], grid[1], product.batches()], |[block_x, block_y, batch]| {
            let (block_row, block_col) = match variant.mapping {
                Mapping::XCol => (block_y, block_x),
                Mapping::XRow => (block_x, block_y),
            };
            let (row, col) = (block_row * tile + r, block_col * tile + c);
            let product = product.batch(batch);
            let sum = k.var(T::Acc::ZERO);
            k.for_each(0, product.tile_count(depth, tile), |step| {
                let (i, j) = (step * tile + c, step * tile + r);
                let (in_a, in_b) = (row.lt(m) & i.lt(depth), j.lt(depth) & col.lt(n));
                tile_a.store((r, c), product.a.load_or((row, i), product.guard(in_a), T::ZERO));
                tile_b.store((r, c), product.b.load_or((j, col), product.guard(in_b), T::ZERO));
                if variant.barriers != Barriers::NoFirst {
                    k.barrier();
                }
                for p in 0..tile {
                    let (a, b) = (tile_a.load((r, p)), tile_b.load((p, c)));
                    sum.set(a.to::<T::Acc>().mul_add(b.to::<T::Acc>(), sum.get()));
                    if variant.barriers == Barriers::Extra {
                        k.barrier();
                    }
                }
                if matches!(variant.barriers, Barriers::Both | Barriers::NoFirst) {
                    k.barrier();
                }
            });
            k.when(product.guard(row.lt(m) & col.lt(n)), || product.store(row, col, sum.get()));
        });
    })
}
