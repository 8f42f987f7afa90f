//! Groups of threads over which a value can be uniform.

/// Groups of threads, widest first: a value is uniform over a group where all its threads hold the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Uniform {
    /// All threads of the launch.
    Grid,
    /// The blocks of a cluster.
    Cluster,
    /// The threads of a block.
    Block,
    /// Four consecutive warps, the first a multiple of four.
    Warpgroup,
    /// The lanes of a warp.
    Warp,
    /// Each thread for itself.
    Lane,
}
