//! Small kernels as plain data: a list of steps that all threads go through, each of them done by some.

use std::fmt;

use tegula_ir::{AtomicOp, Compare, Order, Scope};

/// Elements of each data array.
pub const CELLS: u32 = 8;
/// Elements of each array of flags.
pub const FLAGS: u32 = 3;
/// Barriers in shared memory that count arrivals and bytes.
pub const MBARRIERS: u32 = 4;
/// Elements of a tile, of which there are two in shared memory and two in the matrix that they are stored to.
pub const TILE: u32 = 4;
/// Rows of the tile that warpgroups multiply, and those of them that are B.
pub const FACTOR_ROWS: u32 = 64;
pub const B_ROWS: u32 = 8;
/// Threads of a warpgroup.
pub const WARPGROUP: u32 = 128;
/// Rows of a matrix that a warp loads or stores at once.
pub const ROWS: u32 = 8;

/// A kernel, and how it is launched.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub blocks: u32,
    /// Blocks of a cluster.
    pub cluster: u32,
    /// Threads of a block.
    pub threads: u32,
    pub nodes: Vec<Node>,
}

/// A step, or steps that are repeated.
#[derive(Clone, Debug, PartialEq)]
pub enum Node {
    Step(Step),
    Loop(u32, Vec<Step>),
}

/// What some threads do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub by: Threads,
    pub does: Does,
}

/// Threads: one bit for each block, warp of the block and lane of the warp.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Threads {
    pub blocks: u32,
    pub warps: u32,
    pub lanes: u32,
}

impl Threads {
    pub const ALL: Self = Threads { blocks: u32::MAX, warps: u32::MAX, lanes: u32::MAX };

    pub fn has(self, block: u32, thread: u32) -> bool {
        self.blocks >> block & 1 == 1 && self.warps >> (thread / 32) & 1 == 1 && self.lanes >> (thread % 32) & 1 == 1
    }
}

/// One of the arrays of words.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Array {
    SharedData,
    SharedFlags,
    GlobalData,
    /// The same memory as `GlobalData`, by another parameter.
    Alias,
    GlobalFlags,
    /// Tiles in shared memory, which are copied to and stored from asynchronously.
    Tiles,
    /// The matrix that they are stored to.
    Stored,
    /// Shared memory that other blocks of the cluster send to.
    Inbox,
    /// Rows of 16 bytes in shared memory, of which matrices are loaded and stored.
    Rows,
    /// Tiles that warpgroups multiply, of which an element here is a row.
    Factors,
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
        Array::Inbox,
        Array::Rows,
        Array::Factors,
    ];

    /// The array that has the memory.
    pub fn memory(self) -> Self {
        if self == Array::Alias { Array::GlobalData } else { self }
    }

    pub fn is_shared(self) -> bool {
        !matches!(self, Array::GlobalData | Array::Alias | Array::GlobalFlags | Array::Stored)
    }

    /// The element at coordinates that a finding names.
    pub fn element(self, index: &[u64]) -> u32 {
        match (self, index) {
            (Array::Factors, [_, row, _]) => *row as u32,
            (Array::Tiles | Array::Stored | Array::Inbox | Array::Rows, [tile, .., col]) => {
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
            Array::Inbox => "inbox",
            Array::Rows => "rows",
            Array::Factors => "factors",
        }
    }

    pub fn len(self) -> u32 {
        match self {
            Array::SharedData | Array::GlobalData | Array::Alias => CELLS,
            Array::SharedFlags | Array::GlobalFlags => FLAGS,
            Array::Tiles | Array::Stored | Array::Inbox => 2 * TILE,
            Array::Rows => ROWS * TILE,
            Array::Factors => FACTOR_ROWS,
        }
    }
}

/// Elements of an array: `width` from (first + stride · lane) · width on, within the array, as far as the guard lets them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct At {
    pub array: Array,
    pub first: u32,
    pub stride: u32,
    pub width: u32,
    pub part: Part,
}

/// The guard of a weak access or a copy.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Part {
    All,
    /// All elements in these lanes, one bit each.
    If(u32),
    /// The first (n + lane) mod (width + 1) elements.
    First(u32),
}

impl At {
    pub fn cell(array: Array, first: u32) -> Self {
        At { array, first, stride: 0, width: 1, part: Part::All }
    }

    /// The first element, whether the guard lets it or not.
    pub fn start(self, lane: u32) -> u32 {
        (self.first + self.stride * lane) % (self.array.len() / self.width) * self.width
    }

    pub fn elements(self, lane: u32) -> std::ops::Range<u32> {
        let count = match self.part {
            Part::All => self.width,
            Part::If(lanes) => (lanes >> lane & 1) * self.width,
            Part::First(n) => (n + lane) % (self.width + 1),
        };
        self.start(lane)..self.start(lane) + count
    }

    pub fn unguarded(self) -> Self {
        At { part: Part::All, ..self }
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Does {
    /// Writes all of the block's arrays and begins its barriers.
    Init,
    Read {
        at: At,
        order: Order,
        scope: Scope,
    },
    Write {
        at: At,
        value: u32,
        order: Order,
        scope: Scope,
    },
    Atomic {
        at: At,
        op: AtomicOp,
        value: u32,
        order: Order,
        scope: Scope,
    },
    /// Waits until a flag compares so with the value that is given for it, then acquires.
    Wait {
        at: At,
        compare: Compare,
        values: [u32; FLAGS as usize],
        scope: Scope,
    },
    Fence(Scope),
    /// Starts an asynchronous copy from global to shared data.
    Copy {
        to: At,
        from: At,
    },
    Commit,
    AwaitCopies(u32),
    Barrier,
    /// Comes to a named barrier of so many warps, to wait there or not.
    Named {
        id: u32,
        warps: u32,
        waits: bool,
    },
    SyncWarp,
    /// Exchange values, and order nothing.
    Vote,
    Shuffle,
    /// Arrives at a barrier of this block, or of the one of that rank in the cluster.
    Arrive {
        mbarrier: u32,
        rank: Option<u32>,
    },
    /// Arrives and announces a tile.
    Expect {
        mbarrier: u32,
    },
    Await {
        mbarrier: u32,
        parity: u32,
    },
    /// Starts copying a tile to shared memory, of this block or of all of the cluster.
    CopyTile {
        tile: u32,
        mbarrier: u32,
        multicast: bool,
    },
    /// Starts copying a tile from shared memory to a row of the matrix.
    StoreTile {
        tile: u32,
        row: u32,
    },
    CommitStores,
    /// Sends words to the block of that rank, whose barrier counts them.
    Send {
        to: At,
        mbarrier: u32,
        rank: u32,
    },
    /// Warpgroups start multiplying: rows of A, in shared memory or in registers, and the first rows as B.
    Multiply {
        shared: bool,
    },
    CommitProducts,
    AwaitProducts(u32),
    /// Loads or stores so many matrices; the rows that lanes give.
    Matrix {
        at: At,
        count: u32,
        store: bool,
    },
    AwaitStores {
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

    /// Lanes that a warp of each block has.
    pub fn lanes(&self, warp: u32) -> u32 {
        match self.threads - 32 * warp {
            32.. => u32::MAX,
            lanes => (1 << lanes) - 1,
        }
    }

    /// Whether it multiplies, or uses what is multiplied.
    pub fn multiplies(&self) -> bool {
        self.steps().any(|step| match step.does {
            Does::Multiply { .. } => true,
            Does::Read { at, .. } | Does::Write { at, .. } => at.array == Array::Factors,
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

    /// What a thread does, in order: positions in [`Program::steps`], and the steps.
    pub fn of_thread(&self, block: u32, thread: u32) -> Vec<(usize, Does)> {
        let (mut all, mut first) = (Vec::new(), 0);
        for node in &self.nodes {
            let (times, body) = match node {
                Node::Step(step) => (1, std::slice::from_ref(step)),
                Node::Loop(times, body) => (*times, &body[..]),
            };
            for _ in 0..times {
                let mine = (first..).zip(body).filter(|(_, step)| step.by.has(block, thread));
                all.extend(mine.map(|(at, step)| (at, step.does)));
            }
            first += body.len();
        }
        all
    }

    /// Arrivals that end a phase of a barrier: all threads that arrive at it, once each; of all blocks where they arrive at one's.
    pub fn arrivals(&self, mbarrier: u32) -> u32 {
        let arrives = |step: &&Step| match step.does {
            Does::Arrive { mbarrier: at, .. } | Does::Expect { mbarrier: at } => at == mbarrier,
            _ => false,
        };
        let Some(step) = self.steps().find(arrives) else { return 1 };
        let (blocks, of_block) = match step.does {
            Does::Arrive { rank: Some(_), .. } => (self.cluster, step.by.blocks),
            _ => (1, u32::MAX),
        };
        let all = (0..blocks).flat_map(|block| (0..self.threads).map(move |thread| (block, thread)));
        all.filter(|&(block, thread)| Threads { blocks: of_block, ..step.by }.has(block, thread)).count() as u32
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
            for Step { by, does } in body {
                writeln!(f, "{number:>3}: {indent}{by}: {does:?}")?;
                number += 1;
            }
        }
        write!(f, "replay: {self:?}")
    }
}

impl fmt::Display for Threads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts = [("blocks", self.blocks), ("warps", self.warps), ("lanes", self.lanes)];
        let mut said = false;
        for (name, set) in parts.into_iter().filter(|&(_, set)| set != u32::MAX) {
            let members: Vec<_> = (0..32).filter(|bit| set >> bit & 1 == 1).collect();
            write!(f, "{}{name} {members:?}", if said { " " } else { "" })?;
            said = true;
        }
        if said { Ok(()) } else { write!(f, "all") }
    }
}
