//! Solution of exercise 6: x selects the column, so that a warp accesses adjacent elements.

use tegula_ir::prelude::*;

/// Extent of a tile, and threads along each axis of a block.
const T: u32 = 16;

/// C = A·B, one tile of C per block.
pub fn product() -> Kernel {
    kernel("exercise_6", Block::d2(T, T), |k| {
        let (a, b, c) = (k.input::<f32>("a"), k.input::<f32>("b"), k.output::<f32>("c"));
        let (m, n, depth) = (c.rows(), c.cols(), a.cols());
        let (tile_a, tile_b) = (k.shared::<f32>("tile_a", [T, T]), k.shared::<f32>("tile_b", [T, T]));
        k.grid([m.div_ceil(T), n.div_ceil(T), k.constant(1)]);
        // The thread's row and column in its tile.
        let (r, s) = (k.thread_y(), k.thread_x());
        let (row, col) = (k.block_x() * T + r, k.block_y() * T + s);
        let sum = k.var(0.0);
        k.for_each(0, depth.div_ceil(T), |step| {
            let (i, j) = (step * T + s, step * T + r);
            tile_a.store((r, s), a.load_or((row, i), row.lt(m) & i.lt(depth), 0.0));
            tile_b.store((r, s), b.load_or((j, col), j.lt(depth) & col.lt(n), 0.0));
            k.barrier();
            for p in 0..T {
                sum.set(tile_a.load((r, p)).mul_add(tile_b.load((p, s)), sum.get()));
            }
            k.barrier();
        });
        k.when(row.lt(m) & col.lt(n), || c.store((row, col), sum.get()));
    })
}
