//! Exercise 2: over the edge.
//!
//! The kernel of exercise 1 again, with the right numbers. Blocks have 8×8 threads, and the grid is rounded up, so that there is a
//! thread for every element of C. Where 8 does not divide m or n there are more threads than elements.
//!
//! **What is wrong.** 8×8 and 16×24 are right. With 9 columns, threads read and write outside of the matrices. On a GPU this often
//! goes unnoticed: the address past the end of a row is the start of the next, or belongs to somebody else.
//!
//! **Where to look.** At the threads that the message names, and at what they are asked before they may work.
//!
//! **When it is right.** Nothing is touched outside of a matrix, and C is A·B at any size.

use tegula_ir::prelude::*;

/// Threads along each side of a block.
const SIDE: u32 = 8;

/// C = A·B, an element of C by each thread.
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
