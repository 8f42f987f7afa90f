//! Exercise 2: over the edge.
//!
//! The kernel of exercise 1, with the right products. Blocks have 8×8 threads, and the grid is
//! rounded up so that every element of C has a thread. If 8 does not divide m or n, there are more
//! threads than elements.
//!
//! **Symptom.** 8×8 and 16×24 are right. With 9 columns, threads access elements out of bounds. On
//! a GPU this often goes undetected: the address past the end of a row is the start of the next
//! row, or part of another allocation.
//!
//! **Where to look.** At the threads in the message, and at the guard of their accesses.
//!
//! **Goal.** No access out of bounds, and C is A·B at any size.

use tegula_ir::prelude::*;

/// Threads along each axis of a block.
const SIDE: u32 = 8;

/// C = A·B, one element of C per thread.
pub fn product() -> Kernel {
    kernel("exercise_2", Block::d2(SIDE, SIDE), |k| {
        let (a, b, c) = (k.input::<f32>("a"), k.input::<f32>("b"), k.output::<f32>("c"));
        let (m, n, depth) = (c.rows(), c.cols(), a.cols());
        k.grid([n.div_ceil(SIDE), m.div_ceil(SIDE), k.constant(1)]);
        let row = k.block_y() * SIDE + k.thread_y();
        let col = k.block_x() * SIDE + k.thread_x();
        k.when(row.lt(m), || {
            let sum = k.var(0.0);
            k.for_each(0, depth, |p| {
                sum.set(a.load((row, p)).mul_add(b.load((p, col)), sum.get()));
            });
            c.store((row, col), sum.get());
        });
    })
}
