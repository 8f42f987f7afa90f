//! Exercise 8: in flight.
//!
//! The tiles are filled by asynchronous copies here: a thread starts a copy from global to shared memory (1 is how many elements;
//! those whose guard does not hold become zero) and goes on at once, without holding the element in a register. All copies that it
//! started since the last `copy_async_commit` are a group.
//!
//! **What is wrong.** Both barriers are there, and yet threads read elements that are still on their way.
//!
//! **Where to look.** At what a barrier waits for: threads that have come to it. Who waits for the copies? The builder has a method
//! for that beside `copy_async_commit` (`cargo doc -p tegula --open`, `ir::Builder`), and it matters on which side of the barrier it is.
//!
//! **When it is right.** Nothing is read in flight, no race, and C is A·B.

use tegula_ir::prelude::*;

/// Side of a tile, and threads along each side of a block.
const T: u32 = 16;

/// C = A·B, a tile of C by each block.
pub fn product() -> Kernel {
    kernel("exercise_8", Block::d2(T, T), |k| {
        let (a, b, c) = (k.input::<f32>("a"), k.input::<f32>("b"), k.output::<f32>("c"));
        let (m, n, depth) = (c.rows(), c.cols(), a.cols());
        let (tile_a, tile_b) = (k.shared::<f32>("tile_a", [T, T]), k.shared::<f32>("tile_b", [T, T]));
        k.grid([n.div_ceil(T), m.div_ceil(T), k.constant(1)]);
        let (x, y) = (k.thread_x(), k.thread_y());
        let (row, col) = (k.block_y() * T + y, k.block_x() * T + x);
        let sum = k.var(0.0);
        k.for_each(0, depth.div_ceil(T), |step| {
            let (i, j) = (step * T + x, step * T + y);
            tile_a.copy_async((y, x), a, (row, i), 1, row.lt(m) & i.lt(depth));
            tile_b.copy_async((y, x), b, (j, col), 1, j.lt(depth) & col.lt(n));
            k.copy_async_commit();
            k.barrier();
            for p in 0..T {
                sum.set(tile_a.load((y, p)).mul_add(tile_b.load((p, x)), sum.get()));
            }
            k.barrier();
        });
        k.when(row.lt(m) & col.lt(n), || c.store((row, col), sum.get()));
    })
}
