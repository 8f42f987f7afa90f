//! Small kernels as plain data: a list of steps, each executed by a subset of the threads.

use std::fmt;

/// Bytes of the data array of shared memory, and of the data and input buffers.
pub const DATA_BYTES: u32 = 64;
/// Words of each array of flags.
pub const FLAGS: u32 = 8;
/// Number of mbarriers.
pub const MBARRIERS: u32 = 4;

/// A kernel and its launch configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Program {
    pub blocks: u32,
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

impl Node {
    pub fn steps(&self) -> &[Step] {
        match self {
            Node::Step(step) => std::slice::from_ref(step),
            Node::Loop(_, body) => body,
        }
    }

    pub fn steps_mut(&mut self) -> &mut [Step] {
        match self {
            Node::Step(step) => std::slice::from_mut(step),
            Node::Loop(_, body) => body,
        }
    }
}

/// An operation, and the threads that execute it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    pub threads: Threads,
    /// Only threads whose ticket of this flag was the last execute the step.
    pub if_last: Option<u32>,
    pub guard: Guard,
    pub op: Op,
}

/// How a step is restricted to its threads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Guard {
    /// By a predicate of the instruction.
    Predicate,
    /// By a branch around the instruction.
    Branch,
    /// In the branch of the preceding step, if that has the same threads.
    Same,
    /// In the else branch of the preceding step, if that has other threads.
    Else,
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

    pub fn one(block: u32, thread: u32) -> Self {
        Threads { blocks: 1 << block, warps: 1 << (thread / 32), lanes: 1 << (thread % 32) }
    }

    pub fn contains(self, block: u32, thread: u32) -> bool {
        self.blocks >> block & 1 == 1 && self.warps >> (thread / 32) & 1 == 1 && self.lanes >> (thread % 32) & 1 == 1
    }
}

/// An array of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Array {
    SharedData,
    SharedFlags,
    GlobalData,
    GlobalFlags,
    /// Source of asynchronous copies.
    Input,
}

impl Array {
    pub fn is_shared(self) -> bool {
        matches!(self, Array::SharedData | Array::SharedFlags)
    }

    pub fn bytes(self) -> u32 {
        match self {
            Array::SharedFlags | Array::GlobalFlags => 4 * FLAGS,
            _ => DATA_BYTES,
        }
    }
}

/// The memory that each thread accesses, in units of the access.
///
/// The unit of a thread is `first + stride · x`, modulo the units of the array, where x is the lane
/// or the number of the thread in its block.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Target {
    pub array: Array,
    pub first: u32,
    pub stride: u32,
    pub by_thread: bool,
    /// By a generic address.
    pub generic: bool,
}

impl Target {
    pub fn unit(array: Array, first: u32) -> Self {
        Target { array, first, stride: 0, by_thread: false, generic: false }
    }

    /// Units of the array.
    pub fn units(self, bytes: u32) -> u32 {
        self.array.bytes() / bytes
    }

    pub fn offset(self, thread: u32, bytes: u32) -> u32 {
        let x = if self.by_thread { thread } else { thread % 32 };
        (self.first + self.stride * x) % self.units(bytes) * bytes
    }
}

/// Memory order of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Order {
    Weak,
    /// As relaxed, with the scope of the system.
    Volatile,
    Relaxed,
    Acquire,
    Release,
    AcqRel,
}

impl Order {
    pub fn acquires(self) -> bool {
        matches!(self, Order::Acquire | Order::AcqRel)
    }

    pub fn releases(self) -> bool {
        matches!(self, Order::Release | Order::AcqRel)
    }

    pub fn name(self) -> &'static str {
        match self {
            Order::Weak => "weak",
            Order::Volatile => "volatile",
            Order::Relaxed => "relaxed",
            Order::Acquire => "acquire",
            Order::Release => "release",
            Order::AcqRel => "acq_rel",
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    Block,
    Device,
    System,
}

impl Scope {
    pub fn name(self) -> &'static str {
        match self {
            Scope::Block => "cta",
            Scope::Device => "gpu",
            Scope::System => "sys",
        }
    }
}

/// Order and scope of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strength {
    pub order: Order,
    pub scope: Scope,
}

impl Strength {
    pub const WEAK: Self = Strength { order: Order::Weak, scope: Scope::Block };

    pub fn new(order: Order, scope: Scope) -> Self {
        Strength { order, scope }
    }

    /// Scope of a strong access.
    pub fn strong(self) -> Option<Scope> {
        match self.order {
            Order::Weak => None,
            Order::Volatile => Some(Scope::System),
            _ => Some(self.scope),
        }
    }
}

/// What a store writes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    Const(u32),
    /// One value for all threads.
    PerStep,
    /// A value for each thread.
    PerThread,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AtomicKind {
    Add,
    And,
    Or,
    Xor,
    Max,
    Min,
    Exch,
    /// Compares with a value that no element has.
    FailingCas,
}

impl AtomicKind {
    pub fn name(self) -> &'static str {
        match self {
            AtomicKind::Add => "add",
            AtomicKind::And => "and",
            AtomicKind::Or => "or",
            AtomicKind::Xor => "xor",
            AtomicKind::Max => "max",
            AtomicKind::Min => "min",
            AtomicKind::Exch => "exch",
            AtomicKind::FailingCas => "cas",
        }
    }
}

/// A fence, by its name in PTX.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FenceKind {
    AcqRel,
    Sc,
    Membar,
    Acquire,
    Release,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// Loads `vector` elements of `width` bytes.
    Load {
        at: Target,
        width: u32,
        vector: u32,
        strength: Strength,
    },
    Store {
        at: Target,
        width: u32,
        vector: u32,
        strength: Strength,
        value: Value,
    },
    /// An atomic operation; a reduction if it returns nothing.
    Atomic {
        at: Target,
        width: u32,
        kind: AtomicKind,
        strength: Strength,
        value: Value,
        returns: bool,
    },
    Fence {
        kind: FenceKind,
        scope: Scope,
    },
    /// The barrier of the block. If split, two halves of each warp execute two instructions.
    Barrier {
        split: bool,
    },
    /// Arrives at a named barrier of these warps, and waits there if `waits`.
    Named {
        id: u32,
        warps: u32,
        waits: bool,
    },
    WarpSync {
        mask: u32,
    },
    /// Exchanges values between lanes; orders no memory.
    Shuffle,
    /// A vote of the lanes; orders no memory.
    Vote,
    /// Starts an asynchronous copy of `read` bytes, filled to `bytes` with zeros.
    Copy {
        to: Target,
        from: Target,
        bytes: u32,
        read: u32,
    },
    Commit,
    /// Waits until at most this number of groups is pending; `None` for all copies.
    WaitCopies(Option<u32>),
    /// Loads a flag until it is at least a value.
    Wait {
        flag: Target,
        value: u32,
        strength: Strength,
    },
    /// Changes a flag from 0 to 1.
    Lock {
        flag: Target,
        strength: Strength,
    },
    /// Increments a flag. The thread that finds `count - 1` is the last.
    Ticket {
        flag: Target,
        count: u32,
        strength: Strength,
    },
    /// Arrives at an mbarrier, whose phases have this number of arrivals.
    Arrive {
        mbarrier: u32,
        count: u32,
    },
    /// Waits for a phase of an mbarrier.
    WaitMbarrier {
        mbarrier: u32,
        phase: u32,
    },
    /// Lets the completion of the thread's copies arrive at an mbarrier.
    CopyArrive {
        mbarrier: u32,
        count: u32,
    },
    Exit,
}

impl Step {
    pub fn new(threads: Threads, op: Op) -> Self {
        Step { threads, if_last: None, guard: Guard::Branch, op }
    }
}

impl Program {
    pub fn warps(&self) -> u32 {
        self.threads.div_ceil(32)
    }

    /// All steps, once each, in order.
    pub fn steps(&self) -> impl Iterator<Item = &Step> {
        self.nodes.iter().flat_map(Node::steps)
    }

    /// The step at a position of [`Program::steps`].
    pub fn step_mut(&mut self, at: usize) -> Option<&mut Step> {
        self.nodes.iter_mut().flat_map(Node::steps_mut).nth(at)
    }

    /// The node of a step, and the position in the body if that is a loop.
    pub fn position(&self, at: usize) -> (usize, Option<usize>) {
        let mut first = 0;
        for (number, node) in self.nodes.iter().enumerate() {
            let (len, is_loop) = match node {
                Node::Step(_) => (1, false),
                Node::Loop(_, body) => (body.len(), true),
            };
            if at < first + len {
                return (number, is_loop.then(|| at - first));
            }
            first += len;
        }
        (self.nodes.len(), None)
    }

    pub fn remove_step(&mut self, at: usize) {
        match self.position(at) {
            (node, None) => {
                self.nodes.remove(node);
            }
            (node, Some(inside)) => {
                if let Node::Loop(_, body) = &mut self.nodes[node] {
                    body.remove(inside);
                }
            }
        }
    }

    /// The operations of a thread, in order: the position of the step, and the iteration.
    pub fn thread_steps(&self, block: u32, thread: u32) -> Vec<(usize, u32)> {
        let (mut all, mut first) = (Vec::new(), 0);
        for node in &self.nodes {
            let (times, body) = match node {
                Node::Step(step) => (1, std::slice::from_ref(step)),
                Node::Loop(times, body) => (*times, &body[..]),
            };
            for iteration in 0..times {
                let own = (first..).zip(body).filter(|(_, step)| step.threads.contains(block, thread));
                all.extend(own.map(|(at, _)| (at, iteration)));
            }
            first += body.len();
        }
        all
    }

    /// The threads of a set, as (block, thread).
    pub fn members(&self, threads: Threads) -> Vec<(u32, u32)> {
        let all = (0..self.blocks).flat_map(|block| (0..self.threads).map(move |thread| (block, thread)));
        all.filter(|&(block, thread)| threads.contains(block, thread)).collect()
    }

    /// Arrivals that complete a phase of an mbarrier.
    pub fn arrivals(&self, mbarrier: u32) -> u32 {
        let count = |step: &Step| match step.op {
            Op::Arrive { mbarrier: at, count } | Op::CopyArrive { mbarrier: at, count } if at == mbarrier => {
                Some(count)
            }
            _ => None,
        };
        self.steps().find_map(count).unwrap_or(1)
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} blocks of {} threads", self.blocks, self.threads)?;
        let mut number = 0;
        for node in &self.nodes {
            let (body, indent) = match node {
                Node::Step(step) => (std::slice::from_ref(step), ""),
                Node::Loop(times, body) => {
                    writeln!(f, "     {times} times:")?;
                    (&body[..], "  ")
                }
            };
            for step in body {
                let last = step.if_last.map_or(String::new(), |flag| format!(" if last of {flag}"));
                writeln!(f, "{number:>3}: {indent}{}{last}, {:?}: {:?}", step.threads, step.guard, step.op)?;
                number += 1;
            }
        }
        Ok(())
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
