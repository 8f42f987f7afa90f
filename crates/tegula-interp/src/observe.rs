//! Events of a running kernel, for an observer.

use std::ops::ControlFlow;

use tegula_core::diagnostic::{Finding, Space};
use tegula_core::element::Type;
use tegula_ir::{Binary, Mma, Site, Unary, Wgmma};

/// Receives the events of a running kernel, one warp-wide operation at a time.
pub trait Observer {
    /// Handles an event; `Break` ends the launch.
    ///
    /// Called after each operation that computes, accesses memory or synchronizes, and for each new
    /// finding. Blocks run one after the other, those of a cluster interleaved. Each warp of a
    /// block runs until it must wait.
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()>;
}

/// A completed warp-wide operation.
#[derive(Debug)]
pub struct Event<'a> {
    /// The block, along x, y and z.
    pub block: [u32; 3],
    /// Index of the warp in the block.
    pub warp: u32,
    /// Mask of the active lanes, one bit a lane.
    pub lanes: u32,
    /// Source location.
    pub site: Site,
    /// The instruction, by its position in the kernel's flat program, which is in source order.
    pub operation: u32,
    /// The enclosing loops, outermost first: the position of each, and its iteration.
    ///
    /// Sorted by these and then by `operation`, events are in the order of the program.
    pub loops: &'a [(u32, u32)],
    /// Step of the main loop: the iteration of the innermost loop that multiplies and accumulates.
    ///
    /// `None` outside that loop.
    pub step: Option<u32>,
    /// The operation, with its operands and results.
    pub kind: EventKind<'a>,
}

/// The kind of a warp-wide operation, with its operands and results.
///
/// Registers are numbered for each warp, predicates separately. A number is reused after the last
/// use of its value.
#[derive(Debug)]
pub enum EventKind<'a> {
    /// Computed a value in each lane.
    Compute {
        /// The computation.
        op: Computation,
        /// Type of the results.
        ty: Type,
        /// Destination register.
        dst: u32,
        /// Source registers, in order, as far as `op` defines their roles.
        src: &'a [u32],
        /// The results, as bits of the type; valid in the active lanes.
        bits: &'a [u64; 32],
    },
    /// Read or wrote one element in each lane.
    ///
    /// A vector access is one event for each element. An asynchronous copy is one event for its
    /// read and one for its write.
    Access {
        /// Whether it is a write.
        write: bool,
        /// Global or shared memory.
        space: Space,
        /// Name of the matrix or array.
        name: &'a str,
        /// Index of the parameter, or of the shared array.
        memory: usize,
        /// The destination or source register, if any.
        register: Option<u32>,
        /// Index of each lane's element in its matrix or array, in row-major order.
        ///
        /// `None` in lanes that do not take part.
        elements: &'a [Option<u64>; 32],
        /// The values, as bits.
        bits: &'a [u64; 32],
        /// Cost of the request, with the first element of the access; `None` with later elements.
        request: Option<Request>,
    },
    /// Arrived at a barrier of the block.
    Barrier {
        /// 0 for the barrier of the block, or the number of a named barrier.
        id: u32,
        /// Number of participating threads.
        threads: u32,
        /// Whether the warp waits; otherwise it only arrives.
        waits: bool,
    },
    /// Waited until at most this many groups of `cp.async` copies were pending.
    CopyAsyncWait(u32),
    /// Started a bulk copy of a tile from a matrix to shared memory.
    TmaLoad {
        /// Name of the matrix.
        matrix: &'a str,
        /// The destination tile.
        to: SharedRef<'a>,
        /// Bytes copied.
        bytes: u32,
        /// The mbarrier that counts the bytes.
        barrier: SharedRef<'a>,
        /// The destination blocks of the cluster, as a mask.
        blocks: u32,
    },
    /// Stored values to the shared memory of another block of the cluster.
    StoreAsync {
        /// Rank of the destination block.
        block: u32,
        /// The mbarrier of the destination block that counts the bytes.
        barrier: SharedRef<'a>,
        /// Bytes stored by all lanes.
        bytes: u32,
    },
    /// Started a bulk store of a tile from shared memory to a matrix.
    TmaStore {
        /// Name of the matrix.
        matrix: &'a str,
        /// The source tile.
        from: SharedRef<'a>,
    },
    /// Committed a group of bulk stores.
    BulkCommitGroup,
    /// Waited until at most this many groups of bulk stores were pending.
    BulkWaitGroup(u32),
    /// Initialized an mbarrier.
    MbarrierInit {
        /// The mbarrier.
        barrier: SharedRef<'a>,
        /// Arrivals that complete a phase.
        arrivals: u32,
    },
    /// Arrived at an mbarrier.
    MbarrierArrive {
        /// The mbarrier.
        barrier: SharedRef<'a>,
        /// Rank of the block that holds it.
        block: u32,
        /// Bytes that the arrival expects (`expect_tx`).
        bytes: u32,
    },
    /// Waited for the completion of a phase of an mbarrier.
    MbarrierWait {
        /// The mbarrier.
        barrier: SharedRef<'a>,
        /// Parity of the phase; the first phase has parity 0.
        parity: u32,
    },
    /// Issued a matrix instruction of a warpgroup.
    Wgmma {
        /// The instruction.
        wgmma: Wgmma,
        /// The tiles that it reads: of A, unless A is in registers, and of B.
        tiles: &'a [SharedRef<'a>],
    },
    /// Committed a group of warpgroup matrix instructions.
    WgmmaCommitGroup,
    /// Waited until at most this many groups of warpgroup matrix instructions were pending.
    WgmmaWaitGroup(u32),
    /// A bug in the operation, the first of its kind at these source lines.
    Finding(&'a Finding),
}

/// A tile or an mbarrier of a shared array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SharedRef<'a> {
    /// Name of the array.
    pub array: &'a str,
    /// Index of the shared array.
    pub memory: usize,
    /// Index of the tile or mbarrier in the array.
    pub index: usize,
}

/// A computation, with the roles of its source registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computation {
    /// Copy of one register.
    Move,
    /// Type conversion of one register.
    Convert,
    /// Operation on one register.
    Unary(Unary),
    /// Operation on two registers.
    Binary(Binary),
    /// Multiply-add: the product of two registers, plus a third.
    MulAdd,
    /// Matrix instruction of a warp: one register of accumulators.
    Matrix(Mma),
    /// Matrix instruction of a warpgroup: one register of accumulators.
    Warpgroup(Wgmma),
    /// Any other computation.
    Other,
}

/// Cost of a warp-wide memory request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Elements accessed by each lane.
    pub width: u32,
    /// 32-byte sectors of global memory, or wavefronts of shared memory.
    pub transactions: u64,
    /// Wavefronts caused by bank conflicts.
    pub conflicts: u64,
}
