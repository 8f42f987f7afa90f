//! The GPU counterpart of each loop of each nest.

use super::Nest;

/// A loop of a nest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Loop {
    /// The loop variable: `i`, `k0`.
    pub name: &'static str,
    /// The range, as in the source.
    pub range: &'static str,
    /// The counterpart on a GPU, with x as the column; K is the depth of the product, T the tile
    /// size.
    pub becomes: &'static str,
}

impl Nest {
    /// The loops, outermost first.
    pub const fn loops(self) -> &'static [Loop] {
        match self {
            Nest::Ijk => &IJK,
            Nest::Kij => &KIJ,
            Nest::Split => &SPLIT,
            Nest::Tiled => &TILED,
        }
    }
}

const fn of(name: &'static str, range: &'static str, becomes: &'static str) -> Loop {
    Loop { name, range, becomes }
}

const IJK: [Loop; 3] = [
    of(
        "i",
        "0..m",
        "The grid and the block: a thread's row of C, block_y·T + thread_y. Elements of C are \
         independent, so all can be computed in parallel.",
    ),
    of("j", "0..n", "The grid and the block: a thread's column of C, block_x·T + thread_x."),
    of(
        "k",
        "0..depth",
        "The loop of each thread. It reads its row of A and its column of B from global memory, \
         2K elements, and has its accumulator in a register: the kernel naive.",
    ),
];

const KIJ: [Loop; 3] = [
    of(
        "k",
        "0..depth",
        "A launch for each k, in sequence, since each adds to the elements that the previous one \
         stored. Registers do not outlive a launch, so all of C is read from and written to \
         global memory K times. If each thread kept its element, no launch would depend on \
         another: k could move inside, and this would be nest 1.",
    ),
    of("i", "0..m", "The grid and the block of one launch: a thread's row of C. It adds one product to its element."),
    of("j", "0..n", "The grid and the block of one launch: a thread's column of C."),
];

const SPLIT: [Loop; 6] = [
    of("i", "(0..m).step_by(tile)", "Possibly the block's row in the grid, block_y."),
    of(
        "i0",
        "0..tile.min(m - i)",
        "Possibly the thread's row in its block, thread_y. Directly inside i it only continues \
         the count: i and i0 together are the loop over rows of nest 1.",
    ),
    of("j", "(0..n).step_by(tile)", "Possibly the block's column in the grid, block_x."),
    of("j0", "0..tile.min(n - j)", "Possibly the thread's column in its block, thread_x."),
    of(
        "k",
        "(0..depth).step_by(tile)",
        "Still the loop of each thread, now in ⌈K/T⌉ parts. It is inside i0 and j0, so each \
         thread loops over all of k by itself, and the threads of a block do not work on the \
         same tiles at the same time: still the kernel naive.",
    ),
    of(
        "k0",
        "0..tile.min(depth - k)",
        "A part of that loop. Elements are read and written in the order of nest 1, so splitting \
         alone saves nothing.",
    ),
];

const TILED: [Loop; 6] = [
    of("i", "(0..m).step_by(tile)", "The grid: block_y, a row of tiles of C."),
    of("j", "(0..n).step_by(tile)", "The grid: block_x, a column of tiles of C. Every block owns one tile of C."),
    of(
        "k",
        "(0..depth).step_by(tile)",
        "The slide: ⌈K/T⌉ steps of each block in sequence, along its row of tiles of A and down \
         its column of tiles of B. In each step the threads copy one tile of each into shared \
         memory, which this nest leaves to the cache. A barrier follows the copy, another the \
         products. The accumulator, which this nest writes back to C between steps, stays in a \
         register.",
    ),
    of("i0", "0..tile.min(m - i)", "The block: thread_y, a row of its tile."),
    of("j0", "0..tile.min(n - j)", "The block: thread_x, a column of its tile. Every thread owns one element of C."),
    of(
        "k0",
        "0..tile.min(depth - k)",
        "A loop of each thread over the T products of a tile, along a row of the tile of A and \
         down a column of the tile of B, both in shared memory.",
    ),
];
