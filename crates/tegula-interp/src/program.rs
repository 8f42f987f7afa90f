//! The flat program: the instructions of a warp, with registers instead of values.

use std::sync::Arc;

use tegula_core::element::Type;
use tegula_ir::{
    AtomicOp, Axis, Binary, Compare, MemoryOrder, Mma, ParamId, Scope, SharedId, Shuffle, SiteId, SpecialRegister,
    Unary, Uniform, Vote, Wgmma,
};

use super::lanes::{Reg, RegisterLanes, VectorRegister};

/// The address of an element of memory, with coordinates in registers.
#[derive(Clone, Copy, Debug)]
pub(super) enum ElementAddress {
    Global {
        param: ParamId,
        batch: Reg,
        row: Reg,
        col: Reg,
    },
    /// `axes` selects the coordinates to check against their extents.
    Shared {
        array: SharedId,
        index: Reg,
        offset: u32,
        axes: u32,
    },
}

/// Maximum number of elements that one lane accesses: 16 bytes of a copy.
pub(super) const MAX_WIDTH: usize = 16;

/// A coordinate along an axis of a shared array that may be out of bounds: register plus offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CheckedCoordinate {
    pub axis: usize,
    /// Whether it is the last axis, along which the elements of a vector are contiguous.
    pub last: bool,
    pub value: Reg,
    pub fixed: u32,
    pub extent: u32,
}

/// A guard, with its value in a register.
#[derive(Clone, Copy, Debug)]
pub(super) enum GuardRegister {
    Always,
    If(Reg),
    First(Reg),
}

/// An instruction. `dst` is written, the other registers are read.
#[derive(Clone, Debug)]
pub(super) enum Instruction {
    SpecialRegister {
        dst: Reg,
        register: SpecialRegister,
    },
    Extent {
        dst: Reg,
        param: ParamId,
        axis: Axis,
    },
    Scalar {
        dst: Reg,
        ty: Type,
        param: ParamId,
    },
    Unary {
        op: Unary,
        ty: Type,
        dst: Reg,
        a: Reg,
    },
    Binary {
        op: Binary,
        ty: Type,
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    MulAdd {
        ty: Type,
        dst: Reg,
        a: Reg,
        b: Reg,
        c: Reg,
    },
    Compare {
        cmp: Compare,
        ty: Type,
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    Select {
        ty: Type,
        dst: Reg,
        condition: Reg,
        if_true: Reg,
        if_false: Reg,
    },
    Convert {
        from: Type,
        to: Type,
        dst: Reg,
        a: Reg,
    },
    Copy {
        ty: Type,
        dst: Reg,
        a: Reg,
    },
    Set {
        ty: Type,
        dst: Reg,
        a: Reg,
    },
    /// `Copy` and `Set` of an accumulator of a warpgroup.
    ReadAccumulator {
        dst: Reg,
        a: Reg,
    },
    WriteAccumulator {
        dst: Reg,
        a: Reg,
    },
    /// Saturating sum of two `u32`.
    AddSaturating {
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    Load {
        ty: Type,
        dst: Box<[Reg]>,
        at: ElementAddress,
        guard: GuardRegister,
        fill: Reg,
        order: MemoryOrder,
        scope: Scope,
    },
    Store {
        ty: Type,
        values: Box<[Reg]>,
        at: ElementAddress,
        guard: GuardRegister,
        order: MemoryOrder,
        scope: Scope,
    },
    Atomic {
        op: AtomicOp,
        ty: Type,
        dst: Reg,
        at: ElementAddress,
        value: Reg,
        expected: Reg,
        order: MemoryOrder,
        scope: Scope,
    },
    WaitUntil {
        ty: Type,
        at: ElementAddress,
        cmp: Compare,
        value: Reg,
        scope: Scope,
    },
    Fence {
        scope: Scope,
    },
    CopyAsync {
        ty: Type,
        to: ElementAddress,
        from: ElementAddress,
        width: u32,
        guard: GuardRegister,
    },
    CopyAsyncCommit,
    CopyAsyncWait {
        pending: u32,
    },
    Barrier,
    NamedBarrier {
        id: Reg,
        threads: u32,
        wait: bool,
    },
    SyncWarp {
        mask: u32,
    },
    Shuffle {
        mode: Shuffle,
        dst: Reg,
        value: Reg,
        lane: Reg,
        mask: u32,
    },
    Vote {
        mode: Vote,
        dst: Reg,
        value: Reg,
        mask: u32,
    },
    Uniform {
        scope: Uniform,
        ty: Type,
        dst: Reg,
        a: Reg,
    },
    RoundTf32 {
        dst: Reg,
        a: Reg,
    },
    /// Packs two 16-bit halves into a word.
    Pack {
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    Mma {
        mma: Mma,
        fragments: Fragments,
    },
    LoadMatrix {
        ty: Type,
        dst: [Reg; 4],
        count: u32,
        at: ElementAddress,
        transposed: bool,
    },
    Hopper(Box<LoweredOp>),
    For {
        counter: Reg,
        start: Reg,
        end: Reg,
        step: Reg,
        exit: u32,
    },
    Next {
        counter: Reg,
        end: Reg,
        step: Reg,
        body: u32,
    },
    If {
        condition: Reg,
        else_target: u32,
    },
    Else {
        end: u32,
    },
    While {
        exit: u32,
    },
    Test {
        condition: Reg,
        exit: u32,
    },
    Jump {
        to: u32,
    },
    /// Restores the mask that `If` or `While` saved.
    End,
}

impl Instruction {
    /// Whether it counts as a lane instruction; moves and control flow do not.
    pub fn counts(&self) -> bool {
        !matches!(
            self,
            Instruction::Copy { .. }
                | Instruction::Set { .. }
                | Instruction::ReadAccumulator { .. }
                | Instruction::WriteAccumulator { .. }
                | Instruction::AddSaturating { .. }
                | Instruction::Uniform { .. }
                | Instruction::Else { .. }
                | Instruction::While { .. }
                | Instruction::Jump { .. }
                | Instruction::End
        )
    }
}

/// Registers of a matrix instruction: A, B, accumulators.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fragments {
    pub a: [Reg; 8],
    pub b: [Reg; 4],
    pub accumulators: [Reg; 4],
}

/// A lowered operation of Hopper, with registers instead of values.
#[derive(Clone, Debug)]
pub(super) enum LoweredOp {
    MbarrierInit {
        barrier: ElementAddress,
        arrivals: u32,
    },
    FenceMbarrierInit,
    MbarrierArrive {
        barrier: ElementAddress,
        block: Option<Reg>,
        expect: Option<Reg>,
    },
    MbarrierWait {
        barrier: ElementAddress,
        parity: Reg,
    },
    TmaLoad {
        matrix: usize,
        at: [Reg; 3],
        to: ElementAddress,
        barrier: ElementAddress,
        blocks: Option<Reg>,
    },
    StoreAsync {
        to: ElementAddress,
        values: Box<[Reg]>,
        block: Reg,
        barrier: ElementAddress,
    },
    TmaStore {
        matrix: usize,
        at: [Reg; 3],
        from: ElementAddress,
    },
    BulkCommitGroup,
    /// `read` waits only for the reads of shared memory, not for the writes to a matrix.
    BulkWaitGroup {
        pending: u32,
        read: bool,
    },
    FenceProxyAsync {
        global: bool,
    },
    Wgmma(WgmmaInstruction),
    WgmmaFence,
    WgmmaCommitGroup,
    WgmmaWaitGroup {
        pending: u32,
    },
    StoreMatrix {
        ty: Type,
        to: ElementAddress,
        values: Box<[Reg]>,
        transposed: bool,
    },
    SetMaxRegisters {
        count: u32,
        increase: bool,
    },
    ClusterArrive,
    ClusterWait,
    GriddepWait,
    /// Affects only the next launch, or performance.
    Nop,
}

impl LoweredOp {
    /// Whether all lanes of a warp execute it together.
    pub fn is_warp_wide(&self) -> bool {
        matches!(
            self,
            LoweredOp::Wgmma(_)
                | LoweredOp::WgmmaFence
                | LoweredOp::WgmmaCommitGroup
                | LoweredOp::WgmmaWaitGroup { .. }
                | LoweredOp::StoreMatrix { .. }
                | LoweredOp::SetMaxRegisters { .. }
                | LoweredOp::ClusterArrive
                | LoweredOp::ClusterWait
        )
    }
}

/// A lowered matrix instruction of a warpgroup.
#[derive(Clone, Debug)]
pub(super) struct WgmmaInstruction {
    pub wgmma: Wgmma,
    pub a: LoweredLeftOperand,
    pub b: LoweredSharedOperand,
    pub accumulators: Box<[Reg]>,
    /// Predicate: add to the old accumulators, or overwrite them.
    pub accumulate: Reg,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum LoweredLeftOperand {
    Shared(LoweredSharedOperand),
    Registers([Reg; 4]),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct LoweredSharedOperand {
    pub at: ElementAddress,
    pub k_major: bool,
}

/// A lowered kernel.
#[derive(Debug)]
pub(super) struct Program {
    pub code: Vec<Instruction>,
    /// Source location of each instruction.
    pub sites: Vec<SiteId>,
    /// Initial vector registers, with constants in place.
    pub vectors: Vec<VectorRegister>,
    /// Coordinates to check, as selected by [`ElementAddress::Shared`].
    pub axes: Vec<Vec<CheckedCoordinate>>,
    /// The lanes in each vector register.
    pub register_lanes: Arc<[RegisterLanes]>,
    /// Initial predicates.
    pub predicates: Vec<u32>,
    /// For each loop, by position, whether it is a main loop.
    ///
    /// Its body multiplies and accumulates, and no inner loop does.
    pub main_loops: Vec<bool>,
}
