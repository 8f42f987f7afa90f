//! A trace: the memory accesses and synchronization of the warps of one block, in steps.
//!
//! A step is one execution of a source line by a warp. It has the instructions of the line that
//! access memory, synchronize, or have a diagnostic. A repeated instruction begins another step.

use tegula_interp::Counters;

use crate::ast::ScalarType;
use crate::launch::{Diagnostic, SourceLine};

/// The part of a launch that is recorded.
#[derive(Clone, Debug)]
pub struct TraceFilter {
    /// The block, along x, y and z.
    pub block: [u32; 3],
    /// The first step to record, and the one after the last.
    pub steps: [u64; 2],
    /// Maximum number of recorded accesses, counted per lane. It bounds the size of the trace.
    pub accesses: usize,
    /// The source file whose lines are steps. Code inlined from other files is attributed to the
    /// line of the call. Empty for the PTX text.
    pub file: String,
}

impl TraceFilter {
    /// Selects all steps of a block, up to the default limit of accesses.
    pub fn new(block: [u32; 3], file: impl Into<String>) -> Self {
        TraceFilter { block, steps: [0, 1 << 16], accesses: 1 << 21, file: file.into() }
    }
}

/// The steps of the warps of a block, in the order of execution.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    /// The block.
    pub block: [u32; 3],
    /// The recorded steps.
    pub steps: Vec<Step>,
    /// Total number of steps of the block, recorded or not.
    pub total: u64,
    /// Whether the limit of accesses ended the trace.
    pub full: bool,
    /// Buffers, variables and arrays in shared memory, by number.
    pub memories: Vec<Memory>,
    /// Source lines, by number.
    pub lines: Vec<SourceLine>,
    /// Initialized bytes of shared memory before the first recorded step: offset, value.
    pub shared: Vec<(u32, u8)>,
}

/// The kind of a memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Space {
    /// Global memory.
    Global,
    /// Constant memory.
    Constant,
    /// The shared memory of the block.
    Shared,
    /// The local memory of a thread.
    Local,
}

impl Space {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Space::Global => "global",
            Space::Constant => "constant",
            Space::Shared => "shared",
            Space::Local => "local",
        }
    }
}

/// A buffer, a variable, or an array in shared memory.
#[derive(Clone, Debug, PartialEq)]
pub struct Memory {
    /// Name in the PTX, or of the buffer.
    pub name: String,
    /// Its kind.
    pub space: Space,
    /// Type of an element; `B8` where the PTX declares bytes.
    pub ty: ScalarType,
    /// Extents, outermost first.
    pub shape: Vec<u64>,
    /// Offset in shared memory, in bytes; 0 for other memories.
    pub offset: u64,
    /// Size in bytes.
    pub bytes: u64,
}

/// A source line that a warp executes.
#[derive(Clone, Debug)]
pub struct Step {
    /// Position among the steps of the block, from 0.
    pub number: u64,
    /// The warp.
    pub warp: u32,
    /// The line, by number.
    pub line: u32,
    /// Its instructions, at least one.
    pub events: Vec<Event>,
}

impl Step {
    /// The lanes that execute one of its instructions.
    pub fn lanes(&self) -> u32 {
        self.events.iter().fold(0, |lanes, event| lanes | event.lanes)
    }

    /// The cost of its instructions.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        self.events.iter().for_each(|event| counters += event.counters);
        counters
    }

    /// The diagnostics of its instructions.
    pub fn findings(&self) -> impl Iterator<Item = &Diagnostic> {
        self.events.iter().flat_map(|event| &event.findings)
    }

    /// Its requests to memory.
    pub fn requests(&self) -> impl Iterator<Item = &Request> {
        self.events.iter().flat_map(|event| &event.requests)
    }
}

/// An instruction of a warp.
#[derive(Clone, Debug)]
pub struct Event {
    /// Line in the PTX text.
    pub ptx_line: u32,
    /// The number of the source line. It can be in another file than the line of the step.
    pub line: u32,
    /// The lanes that execute it.
    pub lanes: u32,
    /// The accesses to memory, one for each memory that lanes address.
    pub requests: Vec<Request>,
    /// The synchronization, if it is one.
    pub sync: Option<Sync>,
    /// Its diagnostics.
    pub findings: Vec<Diagnostic>,
    /// The cost.
    pub counters: Counters,
}

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestKind {
    /// Reads it.
    Load,
    /// Writes it.
    Store,
    /// Reads and writes it atomically.
    Atomic,
    /// Reads the source of an asynchronous copy.
    CopyFrom,
    /// The destination of an asynchronous copy, which is written later.
    CopyTo,
}

impl RequestKind {
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            RequestKind::Load => "load",
            RequestKind::Store => "store",
            RequestKind::Atomic => "atomic",
            RequestKind::CopyFrom => "copy-from",
            RequestKind::CopyTo => "copy-to",
        }
    }

    /// Its verb in descriptions.
    pub fn verb(self) -> &'static str {
        match self {
            RequestKind::Load => "loads",
            RequestKind::Store => "stores",
            RequestKind::Atomic => "updates",
            RequestKind::CopyFrom => "copies from",
            RequestKind::CopyTo => "copies to",
        }
    }

    /// Whether the request changes memory immediately.
    pub fn writes(self) -> bool {
        matches!(self, RequestKind::Store | RequestKind::Atomic | RequestKind::CopyTo)
    }
}

/// Accesses of the lanes of a warp to one memory in one instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Request {
    /// Its kind.
    pub kind: RequestKind,
    /// The memory, by number.
    pub memory: u32,
    /// The element type of the instruction.
    pub ty: ScalarType,
    /// Bytes of a lane: one or more elements.
    pub bytes: u32,
    /// The lanes.
    pub lanes: u32,
    /// For each of these lanes, the offset in the memory, in bytes.
    pub offsets: Vec<u64>,
    /// The bytes of each of these lanes after the instruction: what it loaded or stored.
    pub data: Vec<u8>,
}

/// Synchronization of threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sync {
    /// A barrier of the block.
    Barrier {
        /// Its number.
        id: u32,
        /// Number of threads that have arrived, and number that completes it.
        threads: [u32; 2],
        /// Whether it completed with this arrival.
        completes: bool,
    },
    /// A warp synchronization.
    Warp {
        /// The mask of the lanes that must arrive.
        mask: u32,
    },
    /// Waits for asynchronous copies.
    Copies,
    /// An arrival at an mbarrier, or its initialization.
    Mbarrier,
}

impl Trace {
    /// A line by number.
    pub fn line(&self, number: u32) -> &SourceLine {
        &self.lines[number as usize]
    }

    /// The sum of the costs of all steps.
    pub fn counters(&self) -> Counters {
        let mut counters = Counters::default();
        self.steps.iter().for_each(|step| counters += step.counters());
        counters
    }
}

impl Request {
    /// Each lane with its offset and its bytes.
    pub fn accesses(&self) -> impl Iterator<Item = (u32, u64, &[u8])> {
        let lanes = (0..32).filter(|lane| self.lanes >> lane & 1 == 1);
        let data = self.data.chunks_exact(self.bytes.max(1) as usize);
        lanes.zip(&self.offsets).zip(data).map(|((lane, &offset), data)| (lane, offset, data))
    }
}

/// The name of an element, such as `C[3][7]`. `size` and `offset` are in bytes.
pub(crate) fn element_text(name: &str, size: i64, shape: &[u64], offset: i64) -> String {
    let (index, rest) = (offset.div_euclid(size), offset.rem_euclid(size));
    let mut text = name.to_owned();
    let elements: u64 = shape.iter().product();
    if shape.len() > 1 && index >= 0 && (index as u64) < elements {
        let (mut rest, mut below) = (index as u64, elements);
        for extent in shape {
            below /= extent;
            text += &format!("[{}]", rest / below);
            rest %= below;
        }
    } else {
        text += &format!("[{index}]");
    }
    if rest != 0 {
        text += &format!(" + {rest} bytes");
    }
    text
}
