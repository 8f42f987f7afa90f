//! Exercise 1: wrong numbers.
//!
//! The plain way to multiply on a GPU: every thread owns one element of C, (row, col), and adds up k products of numbers that it
//! reads from global memory. No thread waits for another, and no tile is kept.
//!
//! **What is wrong.** The kernel runs to its end and every element of C is written, but with other numbers than A·B has.
//!
//! **Where to look.** At the two elements that thread (row, col) multiplies in turn p. A matrix is indexed by (row, column). Write
//! down c(0, 1) of a product of 2×2 matrices by hand, and compare.
//!
//! **When it is right.** C is A·B, for matrices that are not square as well.

use tegula_ir::prelude::*;

/// Threads along each side of a block.
const SIDE: u32 = 8;

/// C = A·B, an element of C by each thread.
pub fn product() -> Kernel {
    kernel("exercise_1", Block::d2(SIDE, SIDE), |k| {
        let (a, b, c) = (k.input::<f32>("a"), k.input::<f32>("b"), k.output::<f32>("c"));
        let (m, n, depth) = (c.rows(), c.cols(), a.cols());
        // As many blocks as it takes to have a thread for every element, also where SIDE does not divide m or n.
        k.grid([n.div_ceil(SIDE), m.div_ceil(SIDE), k.constant(1)]);
        let row = k.block_y() * SIDE + k.thread_y();
        let col = k.block_x() * SIDE + k.thread_x();
        k.when(row.lt(m) & col.lt(n), || {
            let sum = k.var(0.0);
            k.for_each(0, depth, |p| {
                sum.set(a.load((row, p)).mul_add(b.load((col, p)), sum.get()));
            });
            c.store((row, col), sum.get());
        });
    })
}
