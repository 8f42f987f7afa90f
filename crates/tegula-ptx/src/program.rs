//! The program of a warp: instructions with registers instead of names.

use tegula_ir::{MemoryOrder, Scope};

use crate::alu::{Arithmetic, Lanes};
use crate::ast::{Loc, ScalarType, StateSpace};
use crate::matrix::{LdMatrix, Mma, StMatrix, WmmaTransfer};

/// A register of a warp: an index into its register file.
pub(crate) type Reg = u32;

/// The register that always holds zero.
pub(crate) const ZERO: Reg = 0;
/// The register to which unused results are written.
pub(crate) const SINK: Reg = 1;

/// A kernel with the functions that it calls.
#[derive(Debug)]
pub(crate) struct Program {
    pub code: Vec<Instruction>,
    /// Source positions of the instructions, indexed by [`Instruction::site`].
    pub sites: Vec<SiteSource>,
    /// Initial values of the registers: the value of a constant, otherwise zero.
    pub registers: Vec<Lanes>,
    pub functions: Vec<Function>,
    pub kernel: KernelInfo,
    /// Symbols of shared memory; number 0 stands for all shared memory of the block.
    pub shared: Vec<SharedSymbol>,
    /// Bytes of static shared memory.
    pub static_shared: u32,
    /// Inlined calls: file, line, and the enclosing call, numbered as in [`SiteSource::call`].
    pub inlined: Vec<(u32, u32, u32)>,
    /// Source files, from `.file`: number and path.
    pub files: Vec<(u32, String)>,
    /// Bytes of the smallest access to shared memory and to global memory, each at most 4. They
    /// are the sizes of a shadow cell.
    pub granules: [u32; 2],
    /// Whether accesses can be ordered by more than barriers of the whole block and of whole warps.
    pub orders_finely: bool,
    /// Whether atomic operations or fences can order accesses of different blocks.
    pub orders_blocks: bool,
    /// The first instruction whose result can differ from the hardware's in its last bits.
    pub approximate: Option<String>,
}

impl Program {
    /// The number of the shared symbol that an address refers to.
    ///
    /// That is symbol `addressed`; if `addressed` is 0, the first symbol that contains `offset`.
    pub fn shared_symbol(&self, addressed: u32, offset: u32) -> Option<usize> {
        let holds = |symbol: &SharedSymbol| {
            offset >= symbol.offset && symbol.bytes.is_none_or(|bytes| offset < symbol.offset + bytes)
        };
        match addressed {
            0 => (1..self.shared.len()).find(|&number| holds(&self.shared[number])),
            known => (1..self.shared.len()).contains(&(known as usize)).then_some(known as usize),
        }
    }
}

/// The launch-related properties of the kernel.
#[derive(Clone, Debug, Default)]
pub(crate) struct KernelInfo {
    pub name: String,
    /// The parameters, in the order of the signature.
    pub params: Vec<Parameter>,
    pub max_block: Option<[u32; 3]>,
    pub required_block: Option<[u32; 3]>,
}

/// A parameter of the kernel; offset and size are in bytes.
#[derive(Clone, Debug)]
pub(crate) struct Parameter {
    pub name: String,
    pub offset: u32,
    pub bytes: u32,
    pub ty: ScalarType,
}

/// A symbol of shared memory; offset and size are in bytes.
#[derive(Clone, Debug)]
pub(crate) struct SharedSymbol {
    pub name: String,
    pub offset: u32,
    /// Bytes; `None` for the dynamic shared memory of the launch.
    pub bytes: Option<u32>,
    pub ty: ScalarType,
}

/// A function of the program; the kernel is the first.
#[derive(Clone, Debug)]
pub(crate) struct Function {
    pub name: String,
    pub entry: u32,
    /// The registers of its body.
    pub registers: std::ops::Range<Reg>,
    /// Bytes of local memory for one call.
    pub frame: u32,
    /// The slots of its parameters.
    pub params: Vec<Slot>,
    pub returns: Vec<Slot>,
    /// Whether it can call itself, directly or through other functions.
    pub recursive: bool,
}

/// A parameter or return value of a function.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Slot {
    Register(Reg),
    /// Offset in the frame of the function, and bytes.
    Frame(u32, u32),
}

/// The source position of an instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct SiteSource {
    pub loc: Option<Loc>,
    /// The inlined call that the instruction is part of: its index in [`Program::inlined`] plus
    /// one; 0 if none.
    pub call: u32,
    /// Line in the PTX text.
    pub ptx_line: u32,
}

/// An instruction.
#[derive(Debug)]
pub(crate) struct Instruction {
    /// The predicate register, and whether it is negated.
    pub guard: Option<(Reg, bool)>,
    pub op: Op,
    /// Index into [`Program::sites`].
    pub site: u32,
    /// Whether paths can reconverge before it.
    pub joins: bool,
}

/// An address: a register plus bytes, in a space (`None`: generic).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address {
    pub space: Option<StateSpace>,
    /// The base register; [`ZERO`] for an immediate address.
    pub base: Reg,
    pub offset: i64,
    /// Whether the base register has 32 bits, so that base plus offset wraps modulo 2³².
    pub narrow: bool,
    /// Whether the address is an offset in the frame of the function.
    pub frame: bool,
}

/// A special register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Special {
    Tid(usize),
    NTid(usize),
    CtaId(usize),
    NCtaId(usize),
    Lane,
    Warp,
    NWarp,
    SmId,
    NSmId,
    GridId,
    LaneMask(LaneMask),
    Clock,
    GlobalTimer,
    DynamicSharedBytes,
    TotalSharedBytes,
    Constant(u64),
}

/// The comparison of lane numbers in a mask register such as `%lanemask_lt`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum LaneMask {
    Eq,
    Lt,
    Le,
    Gt,
    Ge,
}

/// A load or a store.
#[derive(Clone, Debug)]
pub(crate) struct Transfer {
    pub address: Address,
    /// A register for each element; [`SINK`] for `_`.
    pub registers: Vec<Reg>,
    pub ty: ScalarType,
    /// Width of the registers in bits. Elements are extended to it, signed ones with their sign.
    pub register_bits: u32,
    pub order: MemoryOrder,
    pub scope: Scope,
    /// Whether the access may depend on lockstep execution of the warp: volatile, and not a poll.
    pub lockstep: bool,
    /// `ld.global.nc`: through the read-only path.
    pub read_only: bool,
}

/// An operation of an atomic instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub(crate) enum AtomicKind {
    And,
    Or,
    Xor,
    Cas,
    Exch,
    Add,
    Inc,
    Dec,
    Min,
    Max,
}

#[derive(Clone, Debug)]
pub(crate) struct Atomic {
    pub kind: AtomicKind,
    pub ty: ScalarType,
    pub address: Address,
    /// Registers for the old values, one per element; [`SINK`] for `red`.
    pub dst: Vec<Reg>,
    pub values: Vec<Reg>,
    /// The new value of `cas`.
    pub swap: Reg,
    pub order: MemoryOrder,
    pub scope: Scope,
}

/// The operation of a barrier instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BarrierKind {
    Sync,
    Arrive,
    /// A reduction of a predicate: population count, and, or.
    Popc,
    And,
    Or,
}

#[derive(Clone, Debug)]
pub(crate) struct Barrier {
    pub kind: BarrierKind,
    pub id: Reg,
    /// Number of participating threads; `None` for the whole block.
    pub threads: Option<Reg>,
    /// Whether all threads of a warp must execute the same instruction.
    pub aligned: bool,
    pub dst: Reg,
    pub predicate: (Reg, bool),
}

/// The operation of a warp-wide instruction, which exchanges or combines values of lanes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WarpOp {
    ShuffleUp,
    ShuffleDown,
    ShuffleXor,
    ShuffleIndex,
    Any,
    All,
    Uniform,
    Ballot,
    MatchAny,
    MatchAll,
    Add,
    Min,
    Max,
    And,
    Or,
    Xor,
    /// `elect.sync`: one lane of the mask.
    Elect,
}

#[derive(Clone, Debug)]
pub(crate) struct WarpWide {
    pub op: WarpOp,
    pub ty: ScalarType,
    pub dst: Reg,
    /// Second destination, a predicate.
    pub predicate: Reg,
    pub src: Reg,
    /// Whether a predicate source is negated.
    pub negated: bool,
    /// Operands b and c of a shuffle.
    pub b: Reg,
    pub c: Reg,
    /// Mask of the participating lanes; `None` (the active lanes) for the form without `.sync`.
    pub mask: Option<Reg>,
}

/// An operation on an mbarrier in shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MbarrierOp {
    Init,
    Invalidate,
    Arrive {
        drop: bool,
        complete: bool,
    },
    /// `test_wait` and `try_wait`, with a state or a parity.
    Test {
        parity: bool,
    },
    PendingCount,
    /// `cp.async.mbarrier.arrive`
    CopyArrive {
        no_increment: bool,
    },
}

#[derive(Clone, Debug)]
pub(crate) enum Callee {
    Function(u32),
    Indirect(Reg),
}

/// An operand of a call: in the frame of the caller, or a register.
pub(crate) type Operands = Vec<Slot>;

/// The operation of an instruction.
#[derive(Debug)]
pub(crate) enum Op {
    Arithmetic {
        arithmetic: Box<Arithmetic>,
        dst: [Reg; 2],
        sources: Vec<Reg>,
        carries: bool,
    },
    Move {
        dst: Reg,
        src: Reg,
    },
    Special {
        dst: Reg,
        register: Special,
    },
    /// Concatenates parts of `bits` bits each; the first part has the lowest bits.
    Pack {
        dst: Reg,
        parts: Vec<Reg>,
        bits: u32,
    },
    Unpack {
        parts: Vec<Reg>,
        src: Reg,
        bits: u32,
    },
    /// The address of a variable in the frame of the function.
    FrameAddress {
        dst: Reg,
        offset: u32,
        window: u64,
    },
    /// Adds or subtracts the base address of the window of a state space.
    ConvertAddress {
        dst: Reg,
        src: Reg,
        window: u64,
        to_generic: bool,
    },
    IsSpace {
        dst: Reg,
        src: Reg,
        space: StateSpace,
    },
    Load(Box<Transfer>),
    Store(Box<Transfer>),
    Atomic(Box<Atomic>),
    CopyAsync {
        to: Address,
        from: Address,
        /// Size of the destination: 4, 8 or 16.
        bytes: u32,
        /// Bytes to read; the rest of the destination is filled with zeros.
        source_bytes: Option<Reg>,
        /// Predicate, and whether it is negated: if true, nothing is read.
        ignore: Option<(Reg, bool)>,
        /// `.cg`: whether the copy bypasses the L1 cache.
        bypass: bool,
    },
    CopyAsyncCommit,
    /// Waits for all groups but the `pending` last ones. `None` waits for all copies, committed or
    /// not.
    CopyAsyncWait {
        pending: Option<u32>,
    },
    Barrier(Box<Barrier>),
    WarpSync {
        mask: Reg,
    },
    Fence {
        scope: Scope,
        acquires: bool,
        releases: bool,
    },
    WarpWide(Box<WarpWide>),
    ActiveMask {
        dst: Reg,
    },
    Mbarrier {
        op: MbarrierOp,
        dst: Reg,
        address: Address,
        state: Reg,
        count: Option<Reg>,
    },
    /// `mma.sync` or `wmma.mma`, with the registers of A, B, C and D.
    Mma {
        mma: Box<Mma>,
        operands: Box<[Vec<Reg>; 4]>,
    },
    WmmaLoad {
        transfer: Box<WmmaTransfer>,
        registers: Vec<Reg>,
        address: Address,
        stride: Option<Reg>,
    },
    WmmaStore {
        transfer: Box<WmmaTransfer>,
        registers: Vec<Reg>,
        address: Address,
        stride: Option<Reg>,
    },
    LdMatrix {
        ldmatrix: LdMatrix,
        dst: Vec<Reg>,
        address: Address,
    },
    StMatrix {
        stmatrix: StMatrix,
        src: Vec<Reg>,
        address: Address,
    },
    MovMatrix {
        dst: Reg,
        src: Reg,
    },
    Branch {
        target: u32,
        join: u32,
    },
    BranchIndexed {
        index: Reg,
        targets: Vec<u32>,
        join: u32,
    },
    Call {
        callee: Callee,
        arguments: Operands,
        returns: Operands,
    },
    Return,
    Exit,
    Trap,
    /// `vprintf`: addresses of the format and of the arguments.
    Print {
        format: Slot,
        arguments: Slot,
        dst: Option<Slot>,
    },
    /// `__assertfail`: addresses of the message, the file, the line, and the function.
    AssertFail {
        arguments: Operands,
    },
    Nop,
}

/// Stands for the end of a function, which has no position. Paths do not reconverge there.
pub(crate) const NO_JOIN: u32 = u32::MAX;

impl Op {
    /// Whether it counts as a thread instruction. Moves, address conversions and control flow do
    /// not.
    pub fn counts(&self) -> bool {
        !matches!(
            self,
            Op::Move { .. }
                | Op::Pack { .. }
                | Op::Unpack { .. }
                | Op::FrameAddress { .. }
                | Op::ConvertAddress { .. }
                | Op::Branch { .. }
                | Op::Call { .. }
                | Op::Return
                | Op::Exit
                | Op::Nop
        )
    }
}
