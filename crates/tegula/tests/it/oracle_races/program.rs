//! Small kernels as plain data: a list of steps, each executed by a subset of the threads.

use std::fmt;

use tegula_ir::{AtomicOp, Compare, MemoryOrder, Scope};

/// Elements of each data array.
pub const CELLS: u32 = 8;
/// Elements of each array of flags.
pub const FLAGS: u32 = 3;
/// Number of mbarriers.
pub const MBARRIERS: u32 = 4;
/// Elements of a tile. Shared memory holds two tiles, and so does the matrix that they are stored
/// to.
pub const TILE: u32 = 4;
/// Rows of the tile that `wgmma` reads, and those of them that are B.
pub const OPERAND_ROWS: u32 = 64;
pub const B_ROWS: u32 = 8;
/// Threads of a warpgroup.
pub const WARPGROUP: u32 = 128;
/// Rows of the array for matrix loads and stores, 16 bytes each.
pub const ROWS: u32 = 8;

/// A kernel and its launch configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub blocks: u32,
    /// Blocks of a cluster.
    pub cluster: u32,
    /// Threads of a block.
    pub threads: u32,
    pub nodes: Vec<Node>,
}

/// A step, or a loop of steps.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    Step(Step),
    Loop(u32, Vec<Step>),
}

/// An operation, and the threads that execute it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub threads: Threads,
    pub op: Op,
}

/// A set of threads: one bit per block, warp of the block and lane of the warp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threads {
    pub blocks: u32,
    pub warps: u32,
    pub lanes: u32,
}

impl Threads {
    pub const ALL: Self = Threads { blocks: u32::MAX, warps: u32::MAX, lanes: u32::MAX };

    pub fn contains(self, block: u32, thread: u32) -> bool {
        self.blocks >> block & 1 == 1 && self.warps >> (thread / 32) & 1 == 1 && self.lanes >> (thread % 32) & 1 == 1
    }
}

/// One of the arrays of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Array {
    SharedData,
    SharedFlags,
    GlobalData,
    /// The memory of `GlobalData`, through another parameter.
    Alias,
    GlobalFlags,
    /// Tiles in shared memory, destination of TMA loads and source of TMA stores.
    Tiles,
    /// The matrix that tiles are stored to.
    Stored,
    /// Shared memory that other blocks of the cluster write (DSMEM).
    Dsmem,
    /// Rows of 16 bytes in shared memory, for matrix loads and stores.
    Rows,
    /// Tile that `wgmma` reads; an element here is a row.
    Operands,
}

impl Array {
    pub const ALL: [Self; 10] = [
        Array::SharedData,
        Array::SharedFlags,
        Array::GlobalData,
        Array::Alias,
        Array::GlobalFlags,
        Array::Tiles,
        Array::Stored,
        Array::Dsmem,
        Array::Rows,
        Array::Operands,
    ];

    /// The array whose memory this one uses.
    pub fn storage(self) -> Self {
        if self == Array::Alias { Array::GlobalData } else { self }
    }

    pub fn is_shared(self) -> bool {
        !matches!(self, Array::GlobalData | Array::Alias | Array::GlobalFlags | Array::Stored)
    }

    /// The element at the coordinates of a finding.
    pub fn element(self, index: &[u64]) -> u32 {
        match (self, index) {
            (Array::Operands, [_, row, _]) => *row as u32,
            (Array::Tiles | Array::Stored | Array::Dsmem | Array::Rows, [tile, .., col]) => {
                *tile as u32 * TILE + *col as u32
            }
            (_, [.., last]) => *last as u32,
            _ => 0,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Array::SharedData => "s_data",
            Array::SharedFlags => "s_flags",
            Array::GlobalData => "g_data",
            Array::Alias => "g_alias",
            Array::GlobalFlags => "g_flags",
            Array::Tiles => "tiles",
            Array::Stored => "stored",
            Array::Dsmem => "dsmem",
            Array::Rows => "rows",
            Array::Operands => "operands",
        }
    }

    pub fn len(self) -> u32 {
        match self {
            Array::SharedData | Array::GlobalData | Array::Alias => CELLS,
            Array::SharedFlags | Array::GlobalFlags => FLAGS,
            Array::Tiles | Array::Stored | Array::Dsmem => 2 * TILE,
            Array::Rows => ROWS * TILE,
            Array::Operands => OPERAND_ROWS,
        }
    }
}

/// Elements of an array that a lane accesses: `width` of them, starting at (first + stride · lane)
/// · width, wrapped at the end of the array. The guard excludes some.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ElementRange {
    pub array: Array,
    pub first: u32,
    pub stride: u32,
    pub width: u32,
    pub guard: AccessGuard,
}

/// The guard of a weak access or a copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum AccessGuard {
    All,
    /// All elements in these lanes, one bit each.
    If(u32),
    /// The first (n + lane) mod (width + 1) elements.
    First(u32),
}

impl ElementRange {
    pub fn cell(array: Array, first: u32) -> Self {
        ElementRange { array, first, stride: 0, width: 1, guard: AccessGuard::All }
    }

    /// The first element, whether guarded or not.
    pub fn start(self, lane: u32) -> u32 {
        (self.first + self.stride * lane) % (self.array.len() / self.width) * self.width
    }

    pub fn elements(self, lane: u32) -> std::ops::Range<u32> {
        let count = match self.guard {
            AccessGuard::All => self.width,
            AccessGuard::If(lanes) => (lanes >> lane & 1) * self.width,
            AccessGuard::First(n) => (n + lane) % (self.width + 1),
        };
        self.start(lane)..self.start(lane) + count
    }

    pub fn unguarded(self) -> Self {
        ElementRange { guard: AccessGuard::All, ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// Writes all shared arrays of the block and initializes its mbarriers.
    Init,
    Read {
        at: ElementRange,
        order: MemoryOrder,
        scope: Scope,
    },
    Write {
        at: ElementRange,
        value: u32,
        order: MemoryOrder,
        scope: Scope,
    },
    Atomic {
        at: ElementRange,
        op: AtomicOp,
        value: u32,
        order: MemoryOrder,
        scope: Scope,
    },
    /// Waits until the comparison of a flag with its value holds, then acquires.
    WaitFlag {
        at: ElementRange,
        compare: Compare,
        values: [u32; FLAGS as usize],
        scope: Scope,
    },
    Fence(Scope),
    /// Starts an asynchronous copy from global to shared data.
    CopyAsync {
        to: ElementRange,
        from: ElementRange,
    },
    CommitCopies,
    WaitCopies(u32),
    Barrier,
    /// Arrives at a named barrier of these warps, and waits there if `waits`.
    NamedBarrier {
        id: u32,
        warps: u32,
        waits: bool,
    },
    SyncWarp,
    /// Exchanges values between lanes; orders no memory.
    Vote,
    Shuffle,
    /// Arrives at an mbarrier of this block, or of the block with this rank in the cluster.
    Arrive {
        mbarrier: u32,
        rank: Option<u32>,
    },
    /// Arrives and expects the bytes of a tile.
    ArriveExpectTx {
        mbarrier: u32,
    },
    WaitMbarrier {
        mbarrier: u32,
        parity: u32,
    },
    /// Starts a TMA load of a tile to this block, or to all blocks of the cluster.
    TmaLoad {
        tile: u32,
        mbarrier: u32,
        multicast: bool,
    },
    /// Starts a TMA store of a tile to a row of the matrix.
    TmaStore {
        tile: u32,
        row: u32,
    },
    CommitStores,
    /// Stores words to the block with this rank, whose mbarrier counts their bytes.
    StoreAsync {
        to: ElementRange,
        mbarrier: u32,
        rank: u32,
    },
    /// Starts `wgmma`: A from shared memory or registers, the first rows as B.
    Wgmma {
        shared: bool,
    },
    CommitWgmma,
    WaitWgmma(u32),
    /// Loads or stores `count` 8×8 matrices, whose rows the lanes address.
    Matrix {
        at: ElementRange,
        count: u32,
        store: bool,
    },
    WaitStores {
        pending: u32,
        read: bool,
    },
    FenceProxy,
    ClusterArrive,
    ClusterWait,
}

impl Program {
    pub fn warps(&self) -> u32 {
        self.threads.div_ceil(32)
    }

    /// Mask of the lanes of a warp.
    pub fn lanes(&self, warp: u32) -> u32 {
        match self.threads - 32 * warp {
            32.. => u32::MAX,
            lanes => (1 << lanes) - 1,
        }
    }

    /// Whether the program has `wgmma`, or accesses its operands.
    pub fn uses_wgmma(&self) -> bool {
        self.steps().any(|step| match step.op {
            Op::Wgmma { .. } => true,
            Op::Read { at, .. } | Op::Write { at, .. } => at.array == Array::Operands,
            _ => false,
        })
    }

    /// All steps, once each, in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.nodes.iter().flat_map(|node| match node {
            Node::Step(step) => std::slice::from_ref(step),
            Node::Loop(_, body) => body,
        })
    }

    /// The operations of a thread, in order, each with its position in [`Program::steps`].
    pub fn thread_ops(&self, block: u32, thread: u32) -> Vec<(usize, Op)> {
        let (mut all, mut first) = (Vec::new(), 0);
        for node in &self.nodes {
            let (times, body) = match node {
                Node::Step(step) => (1, std::slice::from_ref(step)),
                Node::Loop(times, body) => (*times, &body[..]),
            };
            for _ in 0..times {
                let own = (first..).zip(body).filter(|(_, step)| step.threads.contains(block, thread));
                all.extend(own.map(|(at, step)| (at, step.op)));
            }
            first += body.len();
        }
        all
    }

    /// Arrivals per phase of an mbarrier: one per arriving thread. Remote arrivals count the
    /// threads of all blocks of the cluster.
    pub fn arrivals(&self, mbarrier: u32) -> u32 {
        let arrives = |step: &&Step| match step.op {
            Op::Arrive { mbarrier: at, .. } | Op::ArriveExpectTx { mbarrier: at } => at == mbarrier,
            _ => false,
        };
        let Some(step) = self.steps().find(arrives) else { return 1 };
        let (blocks, block_mask) = match step.op {
            Op::Arrive { rank: Some(_), .. } => (self.cluster, step.threads.blocks),
            _ => (1, u32::MAX),
        };
        let all = (0..blocks).flat_map(|block| (0..self.threads).map(move |thread| (block, thread)));
        all.filter(|&(block, thread)| Threads { blocks: block_mask, ..step.threads }.contains(block, thread)).count()
            as u32
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} blocks of {} threads, clusters of {}", self.blocks, self.threads, self.cluster)?;
        let mut number = 0;
        for node in &self.nodes {
            let (body, indent) = match node {
                Node::Step(step) => (std::slice::from_ref(step), ""),
                Node::Loop(times, body) => {
                    writeln!(f, "     {times} times:")?;
                    (&body[..], "  ")
                }
            };
            for Step { threads, op } in body {
                writeln!(f, "{number:>3}: {indent}{threads}: {op:?}")?;
                number += 1;
            }
        }
        write!(f, "replay: {self:?}")
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [("blocks", self.blocks), ("warps", self.warps), ("lanes", self.lanes)];
        let mut written = false;
        for (name, set) in parts.into_iter().filter(|&(_, set)| set != u32::MAX) {
            let members: Vec<_> = (0..32).filter(|bit| set >> bit & 1 == 1).collect();
            write!(f, "{}{name} {members:?}", if written { " " } else { "" })?;
            written = true;
        }
        if written { Ok(()) } else { write!(f, "all") }
    }
}
