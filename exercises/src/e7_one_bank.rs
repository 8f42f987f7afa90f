//! Exercise 7: one bank.
//!
//! Another kernel that is right but slow. Shared memory has 32 banks; element e of an f32 array is
//! in bank e mod 32. In one wavefront each bank transfers one element. A request of 32 lanes to 32
//! banks takes one wavefront; if all lanes access different elements of one bank, it takes 32.
//!
//! **Symptom.** One line of this kernel takes many wavefronts per request. The tile of A is stored
//! transposed, as faster kernels need it; keep it transposed.
//!
//! **Where to look.** At the line in the message. Threads x = 0, 1, 2, … of a warp write one column
//! of the tile: how many elements are two consecutive ones apart, and what is that mod 32? An array
//! may be larger than its contents.
//!
//! **Goal.** C is A·B, and no line has a bank conflict.

use tegula_ir::prelude::*;

/// Extent of a tile, and threads along each axis of a block.
const T: u32 = 32;

/// C = A·B, one tile of C per block.
pub fn product() -> Kernel {
    kernel("exercise_7", Block::d2(T, T), |k| {
        let (a, b, c) = (k.input::<f32>("a"), k.input::<f32>("b"), k.output::<f32>("c"));
        let (m, n, depth) = (c.rows(), c.cols(), a.cols());
        let (tile_a, tile_b) = (k.shared::<f32>("tile_a", [T, T]), k.shared::<f32>("tile_b", [T, T]));
        k.grid([n.div_ceil(T), m.div_ceil(T), k.constant(1)]);
        let (x, y) = (k.thread_x(), k.thread_y());
        let (row, col) = (k.block_y() * T + y, k.block_x() * T + x);
        let sum = k.var(0.0);
        k.for_each(0, depth.div_ceil(T), |step| {
            let (i, j) = (step * T + x, step * T + y);
            // Transposed, so that kernels with several rows of C per thread read them contiguously.
            tile_a.store((x, y), a.load_or((row, i), row.lt(m) & i.lt(depth), 0.0));
            tile_b.store((y, x), b.load_or((j, col), j.lt(depth) & col.lt(n), 0.0));
            k.barrier();
            for p in 0..T {
                sum.set(tile_a.load((p, y)).mul_add(tile_b.load((p, x)), sum.get()));
            }
            k.barrier();
        });
        k.when(row.lt(m) & col.lt(n), || c.store((row, col), sum.get()));
    })
}
