//! Exercise 3: too early.
//!
//! The first tiled kernel. Each block owns a tile of C and slides along k. In each step its threads
//! copy a tile of A and a tile of B into shared memory, one element each. Then each thread reads a
//! row of the first and a column of the second. T threads use each copied element, so global reads
//! fall T times.
//!
//! **Symptom.** Threads read elements of the tiles unordered with the writes, or uninitialized. The
//! values that they get are a matter of chance.
//!
//! **Where to look.** At the two lines in the message of the race. Threads of a block run in any
//! order: when a thread reaches the second line, what ensures that all other threads have passed
//! the first?
//!
//! **Goal.** No race, no uninitialized read, and C is A·B.

use tegula_ir::prelude::*;

/// Extent of a tile, and threads along each axis of a block.
const T: u32 = 16;

/// C = A·B, one tile of C per block.
pub fn product() -> Kernel {
    kernel("exercise_3", Block::d2(T, T), |k| {
        let (a, b, c) = (k.input::<f32>("a"), k.input::<f32>("b"), k.output::<f32>("c"));
        let (m, n, depth) = (c.rows(), c.cols(), a.cols());
        let (tile_a, tile_b) = (k.shared::<f32>("tile_a", [T, T]), k.shared::<f32>("tile_b", [T, T]));
        k.grid([n.div_ceil(T), m.div_ceil(T), k.constant(1)]);
        let (x, y) = (k.thread_x(), k.thread_y());
        let (row, col) = (k.block_y() * T + y, k.block_x() * T + x);
        let sum = k.var(0.0);
        k.for_each(0, depth.div_ceil(T), |step| {
            // Out-of-bounds elements of a tile are zero and leave the accumulators unchanged.
            let (i, j) = (step * T + x, step * T + y);
            tile_a.store((y, x), a.load_or((row, i), row.lt(m) & i.lt(depth), 0.0));
            tile_b.store((y, x), b.load_or((j, col), j.lt(depth) & col.lt(n), 0.0));
            for p in 0..T {
                sum.set(tile_a.load((y, p)).mul_add(tile_b.load((p, x)), sum.get()));
            }
            k.barrier();
        });
        k.when(row.lt(m) & col.lt(n), || c.store((row, col), sum.get()));
    })
}
