//! What an observer sees while a kernel runs.

use std::ops::ControlFlow;

use tegula_core::diagnostic::{Finding, Space};
use tegula_core::element::Type;
use tegula_ir::{Binary, Mma, Site, Unary, Wgmma};

/// Sees what happens while a kernel runs, one warp-wide operation at a time.
pub trait Observer {
    /// Called after each operation that computes, touches memory or synchronises, and for each new finding. Blocks run one after
    /// the other (those of a cluster in turns), and the warps of a block each as far as it can; `Break` ends the launch there.
    fn event(&mut self, event: &Event<'_>) -> ControlFlow<()>;
}

/// A warp-wide operation that just happened.
#[derive(Debug)]
pub struct Event<'a> {
    /// The block, along x, y and z.
    pub block: [u32; 3],
    /// The warp of the block.
    pub warp: u32,
    /// One bit a lane that took part.
    pub lanes: u32,
    /// Where it was written.
    pub site: Site,
    /// Which operation: its position in the kernel's flat program. What stands later in the kernel has a greater one.
    pub operation: u32,
    /// The loops around it, outermost first: each one's position in the program, and how often its body was begun before. Ordered by
    /// these and then by their operations, events stand as the program's text runs.
    pub loops: &'a [(u32, u32)],
    /// The step of the slide: how often the body of the loop that adds products, of several nested ones the innermost, was begun
    /// before. `None` outside of it.
    pub step: Option<u32>,
    /// What it did.
    pub what: What<'a>,
}

/// What a warp-wide operation did.
///
/// Registers have numbers, a warp's own; a number is used again once nobody needs the value. Predicates are numbered apart.
#[derive(Debug)]
pub enum What<'a> {
    /// Computed a number in each lane.
    Compute {
        /// How.
        how: Computation,
        /// Of the results.
        ty: Type,
        /// The register that the results are in.
        into: u32,
        /// Registers they were computed from, in order, as far as `how` tells what they are for.
        from: &'a [u32],
        /// The results, as bits of the type; meaningful in the lanes that took part.
        bits: &'a [u64; 32],
    },
    /// Read or wrote one element in each lane; a vector access is one event for each of its elements, an asynchronous copy one for
    /// what it reads and one for what it will write.
    Access {
        /// Whether it wrote.
        write: bool,
        /// Which memory.
        space: Space,
        /// The matrix or array.
        name: &'a str,
        /// Its position among the parameters, or among the shared arrays.
        memory: usize,
        /// The register read into or written from, where there is one.
        register: Option<u32>,
        /// Position of the element in its matrix or array, row after row; `None` where the lane took no part.
        elements: &'a [Option<u64>; 32],
        /// What was read or written, as bits.
        bits: &'a [u64; 32],
        /// What the request cost, with the first element of the access; `None` with further ones.
        request: Option<Request>,
    },
    /// Came to a barrier of the block.
    Barrier {
        /// 0, or the number of a named one.
        id: u32,
        /// Threads that meet there.
        threads: u32,
        /// Whether it waits for the others; who does not has only come.
        waits: bool,
    },
    /// Waited until at most so many groups of asynchronous copies were on their way.
    Wait(u32),
    /// Started a copy of a tile from a matrix to shared memory.
    CopyTile {
        /// The matrix.
        matrix: &'a str,
        /// Where to.
        to: Place<'a>,
        /// Its bytes.
        bytes: u32,
        /// The barrier that counts them.
        barrier: Place<'a>,
        /// To which blocks of the cluster, one bit each.
        blocks: u32,
    },
    /// Sent numbers to another block of the cluster.
    Send {
        /// Which block.
        block: u32,
        /// The barrier there that counts them.
        barrier: Place<'a>,
        /// Bytes, of all lanes.
        bytes: u32,
    },
    /// Started a copy of a tile from shared memory to a matrix.
    StoreTile {
        /// The matrix.
        matrix: &'a str,
        /// Where from.
        from: Place<'a>,
    },
    /// Closed a group of stores of tiles.
    CommitStores,
    /// Waited until the tiles of all but so many groups of stores had been read.
    AwaitStores(u32),
    /// Began a barrier in shared memory.
    Begin {
        /// Which.
        barrier: Place<'a>,
        /// Arrivals that a phase takes.
        arrivals: u32,
    },
    /// Arrived at a barrier in shared memory.
    Arrive {
        /// Which.
        barrier: Place<'a>,
        /// Of which block of the cluster.
        block: u32,
        /// Bytes that it announced.
        bytes: u32,
    },
    /// Went on when a phase of a barrier in shared memory had ended.
    Await {
        /// Which.
        barrier: Place<'a>,
        /// The parity of the phase: 0 of the first.
        parity: u32,
    },
    /// Started a matrix instruction of a warpgroup.
    Multiply {
        /// Which.
        wgmma: Wgmma,
        /// The tiles that it reads: of A, unless that is in registers, and of B.
        tiles: &'a [Place<'a>],
    },
    /// Closed a group of such instructions.
    CommitProducts,
    /// Waited until all but so many groups of them had added their products.
    AwaitProducts(u32),
    /// Something is wrong with the operation, and was not found before at these lines.
    Found(&'a Finding),
}

/// A tile or a barrier of an array in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place<'a> {
    /// The array.
    pub array: &'a str,
    /// Its position among the shared arrays.
    pub memory: usize,
    /// Which of its tiles or barriers.
    pub index: usize,
}

/// How numbers were computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Computation {
    /// From one register, as it was.
    Move,
    /// From one register of another type.
    Convert,
    /// From one register.
    Unary(Unary),
    /// From two registers.
    Binary(Binary),
    /// The product of two registers, and a third.
    MulAdd,
    /// By a matrix instruction: sums in one of its registers.
    Matrix(Mma),
    /// By a warpgroup's matrix instruction: sums in one of its registers.
    Warpgroup(Wgmma),
    /// Otherwise.
    Other,
}

/// What a warp-wide access cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Request {
    /// Elements each lane asked for.
    pub width: u32,
    /// 32-byte sectors of global memory, or passes over the banks of shared memory.
    pub passes: u64,
    /// Those of the passes that a request without conflicts would not have taken.
    pub conflicts: u64,
}
