//! Solution of exercise 4: a barrier after the products, so that no thread overwrites a tile in
//! use.

use tegula_ir::prelude::*;

/// Extent of a tile, and threads along each axis of a block.
const T: u32 = 16;

/// C = A·B, one tile of C per block.
pub fn product() -> Kernel {
    kernel("exercise_4", Block::d2(T, T), |k| {
        let (a, b, c) = (k.input::<f32>("a"), k.input::<f32>("b"), k.output::<f32>("c"));
        let (m, n, depth) = (c.rows(), c.cols(), a.cols());
        let (tile_a, tile_b) = (k.shared::<f32>("tile_a", [T, T]), k.shared::<f32>("tile_b", [T, T]));
        k.grid([n.div_ceil(T), m.div_ceil(T), k.constant(1)]);
        let (x, y) = (k.thread_x(), k.thread_y());
        let (row, col) = (k.block_y() * T + y, k.block_x() * T + x);
        let sum = k.var(0.0);
        k.for_each(0, depth.div_ceil(T), |step| {
            let (i, j) = (step * T + x, step * T + y);
            tile_a.store((y, x), a.load_or((row, i), row.lt(m) & i.lt(depth), 0.0));
            tile_b.store((y, x), b.load_or((j, col), j.lt(depth) & col.lt(n), 0.0));
            k.barrier();
            for p in 0..T {
                sum.set(tile_a.load((y, p)).mul_add(tile_b.load((p, x)), sum.get()));
            }
            k.barrier();
        });
        k.when(row.lt(m) & col.lt(n), || c.store((row, col), sum.get()));
    })
}
