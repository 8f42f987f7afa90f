//! Remote operations of threads on another block of their cluster.

use std::collections::BTreeMap;

use super::barrier::MbarrierId;
use super::bulk::AsyncWrite;
use super::race::{Access, ClockView};

/// An operation of a thread on another block of its cluster.
pub(super) struct RemoteOp {
    /// The rank of the destination block in the cluster.
    pub to: u32,
    /// The linear index of the block that issued the operation, and the operation's epoch there.
    pub issuing_block: u32,
    pub issue: Access,
    /// The issuing thread's view, which the operation releases.
    pub view: ClockView,
    pub effect: RemoteEffect,
}

pub(super) enum RemoteEffect {
    Arrival { barrier: MbarrierId, expect: Option<u32> },
    AsyncWrite(AsyncWrite),
}

/// An access to a block that must happen before the block ends, and its issuer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExitDependency {
    /// The linear index of the block that issued the access, and the epoch of the instruction.
    pub issuing_block: u32,
    pub issue: Access,
    /// The linear index of the block whose clocks number the access, and its epoch.
    pub block: u32,
    pub access: Access,
}

/// The latest such accesses by lane; a view that covers one covers the earlier ones.
pub(super) type ExitDependencies = BTreeMap<(u32, u16), ExitDependency>;
