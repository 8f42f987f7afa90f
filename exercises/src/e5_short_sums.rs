//! Exercise 5: short sums.
//!
//! Tiles with both barriers: no race, no access out of bounds, every element of C written.
//!
//! **Symptom.** With k = 16 and k = 32 the product is right; with k = 40 all of C is wrong. Only a
//! comparison with the right product shows it: tests with powers of two never find this kind of
//! bug.
//!
//! **Where to look.** At the number of k-steps of a block. How many of the k products of an element
//! are computed for k = 40 and T = 16?
//!
//! **Goal.** C is A·B for any k.

use tegula_ir::prelude::*;

/// Extent of a tile, and threads along each axis of a block.
const T: u32 = 16;

/// C = A·B, one tile of C per block.
pub fn product() -> Kernel {
    kernel("exercise_5", Block::d2(T, T), |k| {
        let (a, b, c) = (k.input::<f32>("a"), k.input::<f32>("b"), k.output::<f32>("c"));
        let (m, n, depth) = (c.rows(), c.cols(), a.cols());
        let (tile_a, tile_b) = (k.shared::<f32>("tile_a", [T, T]), k.shared::<f32>("tile_b", [T, T]));
        k.grid([n.div_ceil(T), m.div_ceil(T), k.constant(1)]);
        let (x, y) = (k.thread_x(), k.thread_y());
        let (row, col) = (k.block_y() * T + y, k.block_x() * T + x);
        let sum = k.var(0.0);
        k.for_each(0, depth / T, |step| {
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
