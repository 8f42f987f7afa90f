//! Uniformity scopes: the groups of threads over which a value can be uniform.

/// A uniformity scope: all threads of the group hold the same value.
///
/// Ordered widest first: a smaller variant is a stronger guarantee, and the join of two is their
/// maximum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Uniform {
    /// All threads of the launch.
    Grid,
    /// All threads of a cluster.
    Cluster,
    /// All threads of a block.
    Block,
    /// The threads of an aligned group of four warps.
    Warpgroup,
    /// The threads of a warp.
    Warp,
    /// No uniformity: values may differ between the lanes of a warp.
    Lane,
}
