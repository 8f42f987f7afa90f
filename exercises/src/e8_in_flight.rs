//! Exercise 8: in flight.
//!
//! Asynchronous copies fill the tiles: a thread starts a copy from global to shared memory and
//! continues at once, without a register for the element. The argument 1 is the number of elements;
//! elements whose guard is false become zero. All copies that a thread has started since its last
//! `copy_async_commit` are a group.
//!
//! **Symptom.** Both barriers are in place, and yet threads read elements that are still in flight.
//!
//! **Where to look.** At the condition of a barrier: the arrival of threads. Which operation waits
//! for the copies? The builder has a method for it beside `copy_async_commit` (`cargo doc -p tegula
//! --open`, `ir::Builder`), and its position relative to the barrier matters.
//!
//! **Goal.** No read of data in flight, no race, and C is A·B.

use tegula_ir::prelude::*;

/// Extent of a tile, and threads along each axis of a block.
const T: u32 = 16;

/// C = A·B, one tile of C per block.
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
