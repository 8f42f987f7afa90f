//! Hopper operations: TMA, mbarriers, `wgmma`, clusters, `setmaxnreg` and dependent launches.
//!
//! * **Tiles.** TMA copies a matrix parameter declared with [`Tiles`] one tile at a time
//!   ([`Tensor`]). Elements out of bounds are zero-filled in loads and omitted in stores. In shared
//!   memory a tile consists of rows of at most 128 bytes, whose 16-byte chunks are permuted. The
//!   permutation, the [`Swizzle`], is part of the array's type. No kernel computes it, and a kernel
//!   that reads with another swizzle than it writes is rejected. A TMA box can be a part of the
//!   array's tile, in which the swizzle pattern repeats.
//! * **Mbarriers** ([`Mbarriers`]) advance in phases. A phase completes after the expected number
//!   of arrivals and the transfer of all expected bytes. A wait names the phase by its parity, and
//!   observes everything before the phase's completion.
//! * **Proxies.** TMA and `wgmma` access memory through the *asynchronous proxy*, not through the
//!   caches of ordinary accesses. It observes a thread's writes only after a
//!   [`Builder::fence_proxy_async`] of that thread; for a matrix, a
//!   [`Builder::fence_proxy_async_global`]. A write by the proxy over a thread's writes needs the
//!   fence as well.
//! * **Asynchronous accumulators.** [`Builder::wgmma`] starts a multiplication. Its accumulators
//!   and its operands are in use until [`Builder::wgmma_wait_group`]. [`Builder::wgmma_fence`]
//!   separates other uses of the accumulators from the first multiplication.
//!
//! The semantics are those of the PTX ISA 8.7, "wgmma", "cp.async.bulk.tensor", "mbarrier" and
//! "setmaxnreg".
//!
//! [`Mbarriers`]: crate::Mbarriers
//! [`Builder::fence_proxy_async`]: crate::Builder::fence_proxy_async
//! [`Builder::fence_proxy_async_global`]: crate::Builder::fence_proxy_async_global
//! [`Builder::wgmma`]: crate::Builder::wgmma
//! [`Builder::wgmma_fence`]: crate::Builder::wgmma_fence
//! [`Builder::wgmma_wait_group`]: crate::Builder::wgmma_wait_group
//! [`Tensor`]: crate::Tensor

pub(super) mod build;
pub(super) mod check;

use std::fmt;

use tegula_core::element::Type;

use super::layout::Order2d;
use super::operand::{MemoryRef, Operand, ParamId, VarId};

/// The permutation of 16-byte chunks in shared memory, which avoids bank conflicts between eight
/// rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Swizzle {
    /// No permutation.
    #[default]
    None,
    /// Within rows of 32 bytes.
    B32,
    /// Within rows of 64 bytes.
    B64,
    /// Within rows of 128 bytes.
    B128,
}

impl Swizzle {
    /// Bytes of a row.
    pub const fn row_bytes(self) -> u32 {
        match self {
            Swizzle::None => 16,
            Swizzle::B32 => 32,
            Swizzle::B64 => 64,
            Swizzle::B128 => 128,
        }
    }

    /// The swizzled offset of byte `offset`, from the array's start, which is a multiple of 1024.
    ///
    /// Bits 4 to 6 are XORed with the bits three higher; the number of bits is that of the chunks
    /// in a row.
    pub const fn permute(self, offset: u32) -> u32 {
        offset ^ (offset >> 3 & (self.row_bytes() - 16))
    }

    /// The required alignment of an array, in bytes.
    pub const fn alignment(self) -> u32 {
        match self {
            Swizzle::None => 128,
            _ => 1024,
        }
    }
}

/// The TMA tiles of a matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tiles {
    /// Rows of a tile.
    pub rows: u32,
    /// Columns of a tile.
    pub cols: u32,
    /// The swizzle in shared memory.
    pub swizzle: Swizzle,
    /// Whether a copy has at most the lines of the matrix, rounded up to [`PATTERN_LINES`]. The
    /// other lines of the tile in shared memory are left as they are, and do not count at the
    /// mbarrier: TMA takes longer for a line out of bounds than for another.
    ///
    /// [`PATTERN_LINES`]: Self::PATTERN_LINES
    pub clipped: bool,
}

impl Tiles {
    /// Lines of a swizzle pattern.
    pub const PATTERN_LINES: u32 = 8;

    /// Lines of a clipped copy: those of a matrix, rounded up to whole swizzle patterns, at most
    /// those of the tile.
    pub fn clipped_lines(tile: u32, matrix: usize) -> u32 {
        (matrix.min(tile as usize).max(1) as u32).next_multiple_of(Self::PATTERN_LINES).min(tile)
    }

    /// The tiles that TMA copies of a matrix of this shape.
    pub fn of_matrix(self, order: Order2d, [rows, cols]: [usize; 2]) -> Tiles {
        match (self.clipped, order) {
            (false, _) => self,
            (true, Order2d::ColMajor) => Tiles { cols: Self::clipped_lines(self.cols, cols), ..self },
            (true, _) => Tiles { rows: Self::clipped_lines(self.rows, rows), ..self },
        }
    }

    /// Elements of a tile.
    pub const fn elements(self) -> u32 {
        self.rows * self.cols
    }

    /// The number of contiguous lines of a tile, and the elements of each, in the given storage
    /// order.
    pub const fn lines(self, order: Order2d) -> [u32; 2] {
        match order {
            Order2d::ColMajor => [self.cols, self.rows],
            _ => [self.rows, self.cols],
        }
    }
}

/// The matrix instruction of a warpgroup: A of 64×16, B of 16×n, f32 accumulators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wgmma {
    /// The type of A and B: f16 or bf16.
    pub ty: Type,
    /// Columns of B: a multiple of 8, up to 256.
    pub n: u32,
}

impl Wgmma {
    /// Rows of A.
    pub const M: u32 = 64;
    /// Columns of A.
    pub const K: u32 = 16;
    /// Threads of a warpgroup.
    pub const THREADS: u32 = 128;

    /// The PTX name of a type of A and B; `None` where the instruction does not support the type.
    pub(crate) const fn ptx_type(ty: Type) -> Option<&'static str> {
        match ty {
            Type::F16 => Some("f16"),
            Type::BF16 => Some("bf16"),
            _ => None,
        }
    }

    /// Whether A and B can have the type.
    pub const fn supports(ty: Type) -> bool {
        Self::ptx_type(ty).is_some()
    }

    /// Accumulators of a thread.
    pub const fn accumulators(self) -> u32 {
        self.n / 2
    }

    /// Row and column of an accumulator of the warpgroup's thread number `thread`.
    pub const fn accumulator(self, thread: u32, register: u32) -> (u32, u32) {
        (
            thread / 32 * 16 + thread % 32 / 4 + 8 * (register % 4 / 2),
            register / 4 * 8 + 2 * (thread % 4) + register % 2,
        )
    }

    /// Row and column in A of one half of a register, where A is in registers.
    pub const fn a(thread: u32, register: u32, part: u32) -> (u32, u32) {
        (thread / 32 * 16 + thread % 32 / 4 + 8 * (register % 2), 2 * (thread % 4) + 8 * (register / 2) + part)
    }
}

impl fmt::Display for Wgmma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wgmma {} {}×{}×{}", self.ty, Wgmma::M, self.n, Wgmma::K)
    }
}

/// An operand of a [`Wgmma`] in shared memory: a swizzled array, from an element on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SharedOperand {
    /// Row (for B: column) 0 at k = 0.
    pub at: MemoryRef,
    /// Whether the operand is K-major: the rows of the array run along k.
    ///
    /// Otherwise it is MN-major: the array has one row for each k. The rows (columns) of the
    /// operand continue in the next tile of the array.
    pub k_major: bool,
}

/// The location of the operand A.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeftOperand {
    /// In shared memory.
    Shared(SharedOperand),
    /// In four `u32` registers of each thread with two numbers each; see [`Wgmma::a`].
    Registers(Vec<Operand>),
}

/// Hopper operations. None has a result; those of warpgroups exist on no other GPU.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum HopperOp {
    /// Initializes an mbarrier (`mbarrier.init`).
    MbarrierInit {
        /// The mbarrier.
        barrier: MemoryRef,
        /// The number of arrivals of a phase.
        arrivals: u32,
    },
    /// Publishes the thread's mbarrier initializations (`fence.mbarrier_init`).
    ///
    /// After a synchronization, they are visible to the cluster and to TMA.
    FenceMbarrierInit,
    /// Arrives at an mbarrier, and publishes the thread's accesses (`mbarrier.arrive`).
    MbarrierArrive {
        /// The mbarrier.
        barrier: MemoryRef,
        /// The rank of the block in the cluster; `None` for the own block.
        block: Option<Operand>,
        /// Additional bytes that the phase expects (`expect_tx`).
        expect: Option<Operand>,
    },
    /// Waits for the phase of the given parity, and acquires what was published before its end.
    MbarrierWait {
        /// The mbarrier.
        barrier: MemoryRef,
        /// 0 or 1; parity 1 does not wait at an mbarrier in its first phase.
        parity: Operand,
    },
    /// Starts a TMA load of a tile to shared memory.
    ///
    /// On completion, its bytes count at the mbarrier, including those out of bounds.
    TmaLoad {
        /// The matrix, which has [`Tiles`].
        matrix: ParamId,
        /// Batch, row and column of the tile's first element.
        at: [Operand; 3],
        /// The destination: a tile of the array or a part of one, at a multiple of the part's size.
        to: MemoryRef,
        /// The mbarrier.
        barrier: MemoryRef,
        /// For multicast: the blocks of the cluster, one bit each. The destination is the same in
        /// each.
        blocks: Option<Operand>,
    },
    /// Stores values to shared memory of a block of the cluster (`st.async`).
    ///
    /// On completion, the bytes count at an mbarrier of that block.
    StoreAsync {
        /// The first element, in a DSMEM buffer.
        to: MemoryRef,
        /// 1, 2 or 4 values of 32 bits.
        values: Vec<Operand>,
        /// The rank of the block.
        block: Operand,
        /// The mbarrier.
        barrier: MemoryRef,
    },
    /// Starts a TMA store of a tile from shared memory to a matrix; elements out of bounds are
    /// omitted.
    TmaStore {
        /// The matrix, which has [`Tiles`].
        matrix: ParamId,
        /// Batch, row and column of the tile's first element.
        at: [Operand; 3],
        /// The source: a tile of the array or a part of one, at a multiple of the part's size.
        from: MemoryRef,
    },
    /// Commits the thread's pending TMA stores as one group (`cp.async.bulk.commit_group`).
    BulkCommitGroup,
    /// Waits until at most `pending` of the thread's latest groups of TMA stores are incomplete.
    BulkWaitGroup {
        /// The number of groups that may be incomplete.
        pending: u32,
        /// Whether to wait only for the reads of shared memory (`.read`).
        read: bool,
    },
    /// Makes the thread's writes visible to the asynchronous proxy, after a synchronization.
    FenceProxyAsync {
        /// Whether the fence is for global memory instead of shared memory.
        global: bool,
    },
    /// Starts a matrix multiply-accumulate of the warpgroup (`wgmma.mma_async`).
    Wgmma {
        /// The instruction.
        wgmma: Wgmma,
        /// The operand A, 64×16.
        a: LeftOperand,
        /// The operand B, 16×n.
        b: SharedOperand,
        /// The first of the thread's accumulators, which are consecutive variables.
        accumulators: VarId,
        /// Whether the product is added to the accumulators (`scale-d`): a predicate.
        accumulate: Operand,
    },
    /// Orders earlier accesses to the accumulators before later multiplications (`wgmma.fence`).
    WgmmaFence,
    /// Commits the warpgroup's pending multiplications as one group (`wgmma.commit_group`).
    WgmmaCommitGroup,
    /// Waits until at most `pending` of the latest groups of multiplications are incomplete.
    WgmmaWaitGroup {
        /// The number of groups that may be incomplete.
        pending: u32,
    },
    /// Stores matrices of 8 rows of 16 bytes to shared memory (`stmatrix`).
    ///
    /// All lanes of the warp execute it. Lane 8·j + i gives the address of row i of matrix j. The
    /// counterpart of [`Op::LoadMatrix`](crate::Op::LoadMatrix).
    StoreMatrix {
        /// The first element of a row.
        to: MemoryRef,
        /// One `u32` for each matrix: 1, 2 or 4.
        values: Vec<Operand>,
        /// Whether each matrix of 16-bit elements is transposed.
        transposed: bool,
    },
    /// Sets the registers per thread of the warpgroup (`setmaxnreg`).
    ///
    /// An increase waits until enough registers have been released.
    SetMaxRegisters {
        /// A multiple of 8, from 24 to 256.
        count: u32,
        /// Whether the number increases.
        increase: bool,
    },
    /// Arrives at the cluster barrier, and publishes the thread's accesses.
    ClusterArrive,
    /// Waits until all threads of the cluster have arrived, and acquires their accesses.
    ClusterWait,
    /// Prefetches the tensor map of a matrix (`prefetch.tensormap`).
    PrefetchTensorMap {
        /// The matrix, which has [`Tiles`].
        matrix: ParamId,
    },
    /// Waits for the preceding launches, and acquires their accesses (`griddepcontrol.wait`).
    ///
    /// A kernel with this operation may start before they have completed. No thread may access a
    /// matrix before its wait.
    GriddepWait,
    /// Permits the next launch to start, for this block (`griddepcontrol.launch_dependents`).
    ///
    /// It takes effect if the next kernel has [`HopperOp::GriddepWait`].
    GriddepLaunchDependents,
}

impl HopperOp {
    /// Calls `f` with every memory reference of the operation.
    pub(super) fn for_each_memory_ref(&self, f: &mut dyn FnMut(&MemoryRef)) {
        match self {
            HopperOp::MbarrierInit { barrier, .. }
            | HopperOp::MbarrierArrive { barrier, .. }
            | HopperOp::MbarrierWait { barrier, .. } => {
                f(barrier);
            }
            HopperOp::TmaLoad { to, barrier, .. } | HopperOp::StoreAsync { to, barrier, .. } => {
                [to, barrier].into_iter().for_each(f)
            }
            HopperOp::TmaStore { from: at, .. } | HopperOp::StoreMatrix { to: at, .. } => f(at),
            HopperOp::Wgmma { a, b, .. } => {
                if let LeftOperand::Shared(a) = a {
                    f(&a.at);
                }
                f(&b.at);
            }
            _ => {}
        }
    }

    /// Calls `f` with every operand of the operation.
    pub(super) fn for_each_operand(&self, f: &mut dyn FnMut(Operand)) {
        let shared = |operand: &SharedOperand, f: &mut dyn FnMut(Operand)| operand.at.operands().for_each(f);
        match self {
            HopperOp::FenceMbarrierInit
            | HopperOp::BulkCommitGroup
            | HopperOp::BulkWaitGroup { .. }
            | HopperOp::FenceProxyAsync { .. }
            | HopperOp::WgmmaFence
            | HopperOp::WgmmaCommitGroup
            | HopperOp::WgmmaWaitGroup { .. }
            | HopperOp::SetMaxRegisters { .. }
            | HopperOp::ClusterArrive
            | HopperOp::ClusterWait
            | HopperOp::PrefetchTensorMap { .. }
            | HopperOp::GriddepWait
            | HopperOp::GriddepLaunchDependents => {}
            HopperOp::MbarrierInit { barrier, .. } => barrier.operands().for_each(f),
            HopperOp::MbarrierArrive { barrier, block, expect } => {
                barrier.operands().chain(*block).chain(*expect).for_each(f);
            }
            HopperOp::MbarrierWait { barrier, parity } => barrier.operands().chain([*parity]).for_each(f),
            HopperOp::TmaLoad { at, to, barrier, blocks, .. } => {
                at.iter().copied().chain(to.operands()).chain(barrier.operands()).chain(*blocks).for_each(f);
            }
            HopperOp::StoreAsync { to, values, block, barrier } => {
                let references = to.operands().chain(barrier.operands());
                references.chain(values.iter().copied()).chain([*block]).for_each(f);
            }
            HopperOp::TmaStore { at, from, .. } => at.iter().copied().chain(from.operands()).for_each(f),
            HopperOp::Wgmma { a, b, accumulate, .. } => {
                match a {
                    LeftOperand::Shared(a) => shared(a, f),
                    LeftOperand::Registers(a) => a.iter().copied().for_each(&mut *f),
                }
                shared(b, f);
                f(*accumulate);
            }
            HopperOp::StoreMatrix { to, values, .. } => to.operands().chain(values.iter().copied()).for_each(f),
        }
    }
}

impl From<SharedOperand> for LeftOperand {
    fn from(operand: SharedOperand) -> Self {
        LeftOperand::Shared(operand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swizzle_permutes_chunks_and_spreads_eight_rows() {
        for swizzle in [Swizzle::B32, Swizzle::B64, Swizzle::B128] {
            let row = swizzle.row_bytes();
            let mut seen = vec![false; 1024];
            for offset in (0..1024).step_by(16) {
                let permuted = swizzle.permute(offset);
                assert_eq!(permuted / row, offset / row);
                assert!(!std::mem::replace(&mut seen[permuted as usize], true));
            }
        }
        // The first chunks of eight rows of 128 bytes map to eight different chunks of a row.
        let chunks: Vec<_> = (0..8).map(|row| Swizzle::B128.permute(row * 128) % 128 / 16).collect();
        assert_eq!(chunks, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(Swizzle::B64.permute(128), 128 + 16);
        assert_eq!(Swizzle::None.permute(0x70), 0x70);
    }

    #[test]
    fn accumulators_cover_each_element_once() {
        let wgmma = Wgmma { ty: Type::BF16, n: 24 };
        let mut seen = vec![0; 64 * 24];
        for thread in 0..128 {
            for register in 0..wgmma.accumulators() {
                let (row, col) = wgmma.accumulator(thread, register);
                seen[(row * 24 + col) as usize] += 1;
            }
        }
        assert!(seen.iter().all(|&count| count == 1));
        // From the figures of the PTX ISA.
        assert_eq!(wgmma.accumulator(37, 3), (16 + 1 + 8, 3));
        assert_eq!(Wgmma::a(37, 3, 1), (16 + 1 + 8, 2 + 8 + 1));
    }
}
