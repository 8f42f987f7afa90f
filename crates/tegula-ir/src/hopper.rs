//! What Hopper brought: a copy engine that moves whole tiles, barriers in shared memory that count its bytes, matrix instructions of a
//! warpgroup that read shared memory themselves, clusters of blocks, and registers that move from warps to warps.
//!
//! * **Tiles.** A matrix parameter with [`Tiles`] is reached by the copy engine, a tile at a time ([`Tensor`]); what lies outside of the
//!   matrix is zero when it is read and left out when it is written. In shared memory a tile is a stretch of rows of at most 128 bytes, whose
//!   pieces of 16 bytes change places: its [`Swizzle`] is part of the array's type, so no kernel computes with it, and one that reads
//!   differently than it wrote is refused. What is copied at once may be a part of the array's tile, of which swizzles repeat.
//! * **Barriers** ([`Barriers`]) go from phase to phase: each ends when so many threads have arrived and all bytes that were announced have
//!   come. Whoever waits names the phase by its parity, and sees what happened before it ended.
//! * **Two ways to memory.** The copy engine and the matrix instructions go past the caches of ordinary accesses (the *asynchronous proxy*).
//!   What threads wrote is seen there only after a [`Builder::fence_proxy`] of each of them, or, in a
//!   matrix, a [`Builder::fence_proxy_global`]. A write by the proxy over what threads wrote needs it too.
//! * **Sums on their way.** [`Builder::wgmma`] starts a multiplication; its sums and what it reads are in use until
//!   [`Builder::wgmma_wait`]. [`Builder::wgmma_fence`] comes between other uses of the sums and the first multiplication.
//!
//! The meaning is that of the PTX ISA 8.7, "wgmma", "cp.async.bulk.tensor", "mbarrier" and "setmaxnreg".
//!
//! [`Barriers`]: crate::Barriers
//! [`Builder::fence_proxy`]: crate::Builder::fence_proxy
//! [`Builder::wgmma`]: crate::Builder::wgmma
//! [`Builder::wgmma_fence`]: crate::Builder::wgmma_fence
//! [`Builder::wgmma_wait`]: crate::Builder::wgmma_wait
//! [`Tensor`]: crate::Tensor

pub(super) mod build;
pub(super) mod check;

use std::fmt;

use tegula_core::element::Type;

use super::layout::Order2d;
use super::operand::{Operand, ParamId, Place, VarId};

/// How the pieces of 16 bytes of a row in shared memory change places, so that eight rows at one position meet all banks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Swizzle {
    /// Not at all.
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

    /// Where byte `offset` of an array lies, from the array's start, which is a multiple of 1024: bits 4 to 6, as many as there are pieces in a row,
    /// are those of the offset and of the bits three further up.
    pub const fn place(self, offset: u32) -> u32 {
        offset ^ (offset >> 3 & (self.row_bytes() - 16))
    }

    /// To what the first byte of an array must be aligned.
    pub const fn alignment(self) -> u32 {
        match self {
            Swizzle::None => 128,
            _ => 1024,
        }
    }
}

/// The tiles by which a matrix is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tiles {
    /// Rows of a tile.
    pub rows: u32,
    /// Columns of a tile.
    pub cols: u32,
    /// How they lie in shared memory.
    pub swizzle: Swizzle,
}

impl Tiles {
    /// Elements of a tile.
    pub const fn elements(self) -> u32 {
        self.rows * self.cols
    }

    /// Rows of memory, and elements of each, of a matrix in that order.
    pub const fn lines(self, order: Order2d) -> [u32; 2] {
        match order {
            Order2d::ColMajor => [self.cols, self.rows],
            _ => [self.rows, self.cols],
        }
    }
}

/// The matrix instruction of a warpgroup: 64×16 numbers of A by 16×n of B, with sums in f32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Wgmma {
    /// f16 or bf16.
    pub ty: Type,
    /// Columns of B: a multiple of 8, up to 256.
    pub n: u32,
}

impl Wgmma {
    /// Rows of A.
    pub const M: u32 = 64;
    /// Columns of A.
    pub const K: u32 = 16;
    /// Threads that multiply together.
    pub const THREADS: u32 = 128;

    /// The name of a type of A and B in the instruction; `None` where it has no such type.
    pub(crate) const fn spelling(ty: Type) -> Option<&'static str> {
        match ty {
            Type::F16 => Some("f16"),
            Type::BF16 => Some("bf16"),
            _ => None,
        }
    }

    /// Whether A and B may have a type.
    pub const fn multiplies(ty: Type) -> bool {
        Self::spelling(ty).is_some()
    }

    /// Sums of a thread.
    pub const fn sums(self) -> u32 {
        self.n / 2
    }

    /// Row and column of a sum of the `thread`-th of the warpgroup.
    pub const fn sum(self, thread: u32, register: u32) -> (u32, u32) {
        (
            thread / 32 * 16 + thread % 32 / 4 + 8 * (register % 4 / 2),
            register / 4 * 8 + 2 * (thread % 4) + register % 2,
        )
    }

    /// Row and column in A of a half of a register, where A comes from registers.
    pub const fn a(thread: u32, register: u32, part: u32) -> (u32, u32) {
        (thread / 32 * 16 + thread % 32 / 4 + 8 * (register % 2), 2 * (thread % 4) + 8 * (register / 2) + part)
    }
}

impl fmt::Display for Wgmma {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "wgmma {} {}×{}×{}", self.ty, Wgmma::M, self.n, Wgmma::K)
    }
}

/// A factor of a [`Wgmma`] in shared memory: an array with a swizzle, from an element on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Factor {
    /// Row (column) 0 at k = 0.
    pub at: Place,
    /// Whether rows of the array run along k. Else there is one for each k, and they are cut: the rows (columns) of the factor go on in
    /// the next tile of the array.
    pub along_k: bool,
}

/// Where A comes from.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum LeftFactor {
    /// Shared memory.
    Shared(Factor),
    /// Four `u32` of each thread, with two numbers in each; [`Wgmma::a`] says which.
    Registers(Vec<Operand>),
}

/// Operations that Hopper brought; those of warpgroups are on no other GPU. None has a result.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Hopper {
    /// A barrier begins its first phase.
    InitBarrier {
        /// An element of an array of barriers.
        barrier: Place,
        /// Arrivals that end a phase.
        arrivals: u32,
    },
    /// Barriers that the thread began are seen by the cluster and by the copy engine, once they are synchronised with.
    FenceInit,
    /// The thread arrives at a barrier, and publishes what it did.
    Arrive {
        /// Which.
        barrier: Place,
        /// Of which block of the cluster; of this one where there is none.
        block: Option<Operand>,
        /// Bytes that must come before the phase ends, besides those announced before.
        expect: Option<Operand>,
    },
    /// Waits until the phase of that parity has ended, and sees what was published until then.
    Await {
        /// Which.
        barrier: Place,
        /// 0 or 1; 1 at a barrier in its first phase does not wait.
        parity: Operand,
    },
    /// Starts copying a tile of a matrix to shared memory. When it has come, its bytes count at the barrier, those outside of the matrix too.
    CopyTile {
        /// Which matrix; it has [`Tiles`].
        matrix: ParamId,
        /// Batch, row and column of the tile's first element.
        at: [Operand; 3],
        /// Where it goes: to a tile of the array or to a part of one, from a multiple of its own elements on.
        to: Place,
        /// The barrier that counts.
        barrier: Place,
        /// Where there is one: the blocks of the cluster to which it goes, one bit each; in each the same places are meant.
        blocks: Option<Operand>,
    },
    /// Sends numbers to shared memory of a block of the cluster. When they have come, their bytes count at a barrier there.
    Send {
        /// Where the first goes: an array that is an inbox.
        to: Place,
        /// 1, 2 or 4 of 32 bits.
        values: Vec<Operand>,
        /// To which block.
        block: Operand,
        /// The barrier that counts.
        barrier: Place,
    },
    /// Starts copying a tile from shared memory to a matrix, as far as it lies inside.
    StoreTile {
        /// Which matrix; it has [`Tiles`].
        matrix: ParamId,
        /// Batch, row and column of the tile's first element.
        at: [Operand; 3],
        /// Where it is: a tile of the array or a part of one, from a multiple of its own elements on.
        from: Place,
    },
    /// The thread's stores of tiles since the last commit become one group.
    CommitStores,
    /// Waits until at most `pending` of the thread's latest groups of stores are not done.
    AwaitStores {
        /// Groups that may still be on their way.
        pending: u32,
        /// Whether it is enough that shared memory has been read.
        read: bool,
    },
    /// What the thread wrote to memory is seen by the asynchronous proxy, once it is synchronised
    /// with.
    FenceProxy {
        /// Whether to fence matrices in global memory, not shared memory.
        global: bool,
    },
    /// All threads of the warpgroup start adding a product to their sums, or setting them to it.
    Wgmma {
        /// What is multiplied.
        wgmma: Wgmma,
        /// 64×16.
        a: LeftFactor,
        /// 16×n.
        b: Factor,
        /// The first of the thread's sums: consecutive variables.
        sums: VarId,
        /// Whether the product is added to what they are: a predicate.
        add: Operand,
    },
    /// What was done to the sums before is done before multiplications after.
    WgmmaFence,
    /// The warpgroup's multiplications since the last commit become one group.
    WgmmaCommit,
    /// Waits until at most `pending` of the latest groups of multiplications are not done.
    WgmmaWait {
        /// Groups that may still be on their way.
        pending: u32,
    },
    /// All lanes of the warp write matrices of 8 rows of 16 bytes to shared memory: lane 8·j + i says where row i of matrix j begins. The
    /// counterpart of [`Op::LoadMatrix`](crate::Op::LoadMatrix).
    StoreMatrix {
        /// The first element of a row.
        to: Place,
        /// One `u32` a matrix: 1, 2 or 4.
        values: Vec<Operand>,
        /// Whether 16-bit elements change rows for columns.
        transposed: bool,
    },
    /// The warps of a warpgroup have so many registers a thread from now on. To get more waits until others have given enough.
    SetRegisters {
        /// A multiple of 8, from 24 to 256.
        count: u32,
        /// Whether that is more than before.
        more: bool,
    },
    /// Comes to the cluster's barrier, and publishes what the thread did.
    ClusterArrive,
    /// Waits until all threads of the cluster have come, and sees what they did.
    ClusterWait,
    /// Where a matrix lies is looked up before its first tile is asked for.
    Prefetch {
        /// Which matrix; it has [`Tiles`].
        matrix: ParamId,
    },
    /// Waits until the launches before this one have ended, and sees what they did. A kernel with this operation may start before they have:
    /// no thread reads or writes a matrix until it has waited.
    AwaitLaunches,
    /// As far as this block is concerned, the launch after this one may start, if its kernel has [`Hopper::AwaitLaunches`].
    AllowNext,
}

impl Hopper {
    /// Calls `f` with every place that the operation means.
    pub(super) fn for_each_place(&self, f: &mut dyn FnMut(&Place)) {
        match self {
            Hopper::InitBarrier { barrier, .. } | Hopper::Arrive { barrier, .. } | Hopper::Await { barrier, .. } => {
                f(barrier);
            }
            Hopper::CopyTile { to, barrier, .. } | Hopper::Send { to, barrier, .. } => {
                [to, barrier].into_iter().for_each(f)
            }
            Hopper::StoreTile { from: at, .. } | Hopper::StoreMatrix { to: at, .. } => f(at),
            Hopper::Wgmma { a, b, .. } => {
                if let LeftFactor::Shared(a) = a {
                    f(&a.at);
                }
                f(&b.at);
            }
            _ => {}
        }
    }

    /// Calls `f` with every operand.
    pub(super) fn for_each_operand(&self, f: &mut dyn FnMut(Operand)) {
        let factor = |factor: &Factor, f: &mut dyn FnMut(Operand)| factor.at.operands().for_each(f);
        match self {
            Hopper::FenceInit
            | Hopper::CommitStores
            | Hopper::AwaitStores { .. }
            | Hopper::FenceProxy { .. }
            | Hopper::WgmmaFence
            | Hopper::WgmmaCommit
            | Hopper::WgmmaWait { .. }
            | Hopper::SetRegisters { .. }
            | Hopper::ClusterArrive
            | Hopper::ClusterWait
            | Hopper::Prefetch { .. }
            | Hopper::AwaitLaunches
            | Hopper::AllowNext => {}
            Hopper::InitBarrier { barrier, .. } => barrier.operands().for_each(f),
            Hopper::Arrive { barrier, block, expect } => {
                barrier.operands().chain(*block).chain(*expect).for_each(f);
            }
            Hopper::Await { barrier, parity } => barrier.operands().chain([*parity]).for_each(f),
            Hopper::CopyTile { at, to, barrier, blocks, .. } => {
                at.iter().copied().chain(to.operands()).chain(barrier.operands()).chain(*blocks).for_each(f);
            }
            Hopper::Send { to, values, block, barrier } => {
                let places = to.operands().chain(barrier.operands());
                places.chain(values.iter().copied()).chain([*block]).for_each(f);
            }
            Hopper::StoreTile { at, from, .. } => at.iter().copied().chain(from.operands()).for_each(f),
            Hopper::Wgmma { a, b, add, .. } => {
                match a {
                    LeftFactor::Shared(a) => factor(a, f),
                    LeftFactor::Registers(a) => a.iter().copied().for_each(&mut *f),
                }
                factor(b, f);
                f(*add);
            }
            Hopper::StoreMatrix { to, values, .. } => to.operands().chain(values.iter().copied()).for_each(f),
        }
    }
}

impl From<Factor> for LeftFactor {
    fn from(factor: Factor) -> Self {
        LeftFactor::Shared(factor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn swizzles_permute_pieces_within_rows_and_part_eight_rows() {
        for swizzle in [Swizzle::B32, Swizzle::B64, Swizzle::B128] {
            let row = swizzle.row_bytes();
            let mut seen = vec![false; 1024];
            for offset in (0..1024).step_by(16) {
                let place = swizzle.place(offset);
                assert_eq!(place / row, offset / row);
                assert!(!std::mem::replace(&mut seen[place as usize], true));
            }
        }
        // The first pieces of eight rows of 128 bytes lie in eight different pieces of a row.
        let pieces: Vec<_> = (0..8).map(|row| Swizzle::B128.place(row * 128) % 128 / 16).collect();
        assert_eq!(pieces, [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(Swizzle::B64.place(128), 128 + 16);
        assert_eq!(Swizzle::None.place(0x70), 0x70);
    }

    #[test]
    fn every_sum_lies_in_one_place() {
        let wgmma = Wgmma { ty: Type::BF16, n: 24 };
        let mut seen = vec![0; 64 * 24];
        for thread in 0..128 {
            for register in 0..wgmma.sums() {
                let (row, col) = wgmma.sum(thread, register);
                seen[(row * 24 + col) as usize] += 1;
            }
        }
        assert!(seen.iter().all(|&count| count == 1));
        // From the figures of the PTX ISA.
        assert_eq!(wgmma.sum(37, 3), (16 + 1 + 8, 3));
        assert_eq!(Wgmma::a(37, 3, 1), (16 + 1 + 8, 2 + 8 + 1));
    }
}
