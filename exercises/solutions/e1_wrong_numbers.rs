//! Solution of exercise 1: product p takes row p of column col of B.

use tegula_ir::prelude::*;

/// Threads along each axis of a block.
const SIDE: u32 = 8;

/// C = A·B, one element of C per thread.
pub fn product() -> Kernel {
    kernel("exercise_1", Block::d2(SIDE, SIDE), |k| {
        let (a, b, c) = (k.input::<f32>("a"), k.input::<f32>("b"), k.output::<f32>("c"));
        let (m, n, depth) = (c.rows(), c.cols(), a.cols());
        // Rounded up: every element has a thread even if SIDE does not divide m or n.
        k.grid([n.div_ceil(SIDE), m.div_ceil(SIDE), k.constant(1)]);
        let row = k.block_y() * SIDE + k.thread_y();
        let col = k.block_x() * SIDE + k.thread_x();
        k.when(row.lt(m) & col.lt(n), || {
            let sum = k.var(0.0);
            k.for_each(0, depth, |p| {
                sum.set(a.load((row, p)).mul_add(b.load((p, col)), sum.get()));
            });
            c.store((row, col), sum.get());
        });
    })
}
