//! The flat program: the instructions that a warp runs, with registers in place of values.

use std::sync::Arc;

use tegula_core::element::Type;
use tegula_ir::{
    AtomicOp, Axis, Binary, Compare, Mma, Order, ParamId, Scope, SharedId, Shuffle, SiteId, Special, Unary, Uniform,
    Vote, Wgmma,
};

use super::lanes::{Line, LineLanes, Reg};

/// An element of memory; coordinates in registers.
#[derive(Clone, Copy, Debug)]
pub(super) enum At {
    Global {
        param: ParamId,
        batch: Reg,
        row: Reg,
        col: Reg,
    },
    /// `axes` says which coordinates are to be held to their extents.
    Shared {
        array: SharedId,
        index: Reg,
        offset: u32,
        axes: u32,
    },
}

/// The most elements that one lane accesses at once: 16 bytes of a copy.
pub(super) const WIDEST: usize = 16;

/// A coordinate along an axis of a shared array that may be outside: a register and what to add to
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Coordinate {
    pub axis: usize,
    /// Whether elements of a vector lie along it.
    pub last: bool,
    pub value: Reg,
    pub fixed: u32,
    pub extent: u32,
}

/// A guard in a register.
#[derive(Clone, Copy, Debug)]
pub(super) enum Only {
    Always,
    If(Reg),
    First(Reg),
}

/// One instruction. `dst` is written, the rest is read.
#[derive(Clone, Debug)]
pub(super) enum Code {
    Special {
        dst: Reg,
        what: Special,
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
        how: Compare,
        ty: Type,
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    Select {
        ty: Type,
        dst: Reg,
        condition: Reg,
        yes: Reg,
        no: Reg,
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
    /// `Copy` and `Set` of a sum that a warpgroup's instruction adds to.
    TakeSum {
        dst: Reg,
        a: Reg,
    },
    PutSum {
        dst: Reg,
        a: Reg,
    },
    /// The sum of two `u32`, or the greatest where there is none.
    Advance {
        dst: Reg,
        a: Reg,
        b: Reg,
    },
    Load {
        ty: Type,
        dst: Box<[Reg]>,
        at: At,
        only: Only,
        fill: Reg,
        order: Order,
        scope: Scope,
    },
    Store {
        ty: Type,
        values: [Reg; 4],
        width: u32,
        at: At,
        only: Only,
        order: Order,
        scope: Scope,
    },
    Atomic {
        op: AtomicOp,
        ty: Type,
        dst: Reg,
        at: At,
        value: Reg,
        expected: Reg,
        order: Order,
        scope: Scope,
    },
    WaitUntil {
        ty: Type,
        at: At,
        how: Compare,
        value: Reg,
        scope: Scope,
    },
    Fence {
        scope: Scope,
    },
    CopyAsync {
        ty: Type,
        to: At,
        from: At,
        width: u32,
        only: Only,
    },
    Commit,
    WaitGroups {
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
    /// Two halves of a word.
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
        at: At,
        transposed: bool,
    },
    Hopper(Box<Act>),
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
        otherwise: u32,
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
    /// Takes back the mask that `If` or `While` put aside.
    End,
}

impl Code {
    /// Whether it counts as a lane-instruction: moves and the bookkeeping of control flow do not.
    pub fn counts(&self) -> bool {
        !matches!(
            self,
            Code::Copy { .. }
                | Code::Set { .. }
                | Code::TakeSum { .. }
                | Code::PutSum { .. }
                | Code::Advance { .. }
                | Code::Uniform { .. }
                | Code::Else { .. }
                | Code::While { .. }
                | Code::Jump { .. }
                | Code::End
        )
    }
}

/// The registers of a matrix instruction: those of A, of B, and the sums.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Fragments {
    pub a: [Reg; 8],
    pub b: [Reg; 4],
    pub sums: [Reg; 4],
}

/// An operation, lowered: registers in place of values.
#[derive(Clone, Debug)]
pub(super) enum Act {
    InitBarrier {
        barrier: At,
        arrivals: u32,
    },
    FenceInit,
    Arrive {
        barrier: At,
        block: Option<Reg>,
        expect: Option<Reg>,
    },
    Await {
        barrier: At,
        parity: Reg,
    },
    CopyTile {
        matrix: usize,
        at: [Reg; 3],
        to: At,
        barrier: At,
        blocks: Option<Reg>,
    },
    Send {
        to: At,
        values: Box<[Reg]>,
        block: Reg,
        barrier: At,
    },
    StoreTile {
        matrix: usize,
        at: [Reg; 3],
        from: At,
    },
    CommitStores,
    /// For what they read of shared memory, or also for what they write to a matrix.
    AwaitStores {
        pending: u32,
        read: bool,
    },
    FenceProxy {
        global: bool,
    },
    Wgmma(Multiply),
    WgmmaFence,
    WgmmaCommit,
    WgmmaWait {
        pending: u32,
    },
    StoreMatrix {
        ty: Type,
        to: At,
        values: Box<[Reg]>,
        transposed: bool,
    },
    SetRegisters {
        count: u32,
        more: bool,
    },
    ClusterArrive,
    ClusterWait,
    AwaitLaunches,
    /// For the launch after this one, or for nobody who can tell.
    Nothing,
}

impl Act {
    /// Whether all lanes of a warp run it together.
    pub fn is_of_whole_warps(&self) -> bool {
        matches!(
            self,
            Act::Wgmma(_)
                | Act::WgmmaFence
                | Act::WgmmaCommit
                | Act::WgmmaWait { .. }
                | Act::StoreMatrix { .. }
                | Act::SetRegisters { .. }
                | Act::ClusterArrive
                | Act::ClusterWait
        )
    }
}

/// A multiplication, lowered.
#[derive(Clone, Debug)]
pub(super) struct Multiply {
    pub wgmma: Wgmma,
    pub a: Left,
    pub b: Factor,
    pub sums: Box<[Reg]>,
    /// A predicate.
    pub add: Reg,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Left {
    Shared(Factor),
    Registers([Reg; 4]),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Factor {
    pub at: At,
    pub along_k: bool,
}

/// A kernel ready to run.
#[derive(Debug)]
pub(super) struct Program {
    pub code: Vec<Code>,
    /// Where each instruction was written.
    pub sites: Vec<SiteId>,
    /// Registers a warp starts with: constants in place.
    pub lines: Vec<Line>,
    /// Coordinates of places in shared arrays, as [`At::Shared`] names them.
    pub axes: Vec<Vec<Coordinate>>,
    /// Which lanes each of them holds.
    pub line_lanes: Arc<[LineLanes]>,
    /// Predicates a warp starts with.
    pub predicates: Vec<u32>,
    /// For each loop, by its position, whether it is the slide: its body adds products, and no loop
    /// within it does.
    pub slides: Vec<bool>,
}
