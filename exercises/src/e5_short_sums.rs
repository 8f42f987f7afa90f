//! Exercise 5: short sums.
//!
//! Tiles with both barriers: no race, nothing out of bounds, every element of C written.
//!
//! **What is wrong.** With k = 16 and k = 32 the product is right, with k = 40 all of C is wrong. Nothing but the comparison with the
//! right product shows it: this is the kind of mistake that a test of powers of two never finds.
//!
//! **Where to look.** At how often a block slides. How many of the k products of an element are made where k is 40 and T is 16?
//!
//! **When it is right.** C is A·B for any k.

use tegula_ir::prelude::*;

/// Side of a tile, and threads along each side of a block.
const T: u32 = 16;

/// C = A·B, a tile of C by each block.
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
