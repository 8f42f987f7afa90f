//! Remote operations of threads on another block of their cluster.

use std::collections::BTreeMap;

use super::barrier::MbarrierId;
use super::bulk::BulkCopy;
use super::race::{Access, ClockView};

/// An operation of a thread on another block of its cluster.
pub(super) struct RemoteOp {
    pub to: u32,
    /// The sending block, and the epoch of the operation.
    pub from: u32,
    pub sender: Access,
    pub view: ClockView,
    pub effect: RemoteEffect,
}

pub(super) enum RemoteEffect {
    Arrival { barrier: MbarrierId, expect: Option<u32> },
    Copy(BulkCopy),
}

/// An access to a block that must happen before the block ends, and its issuer.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExitDependency {
    pub from: u32,
    pub sender: Access,
    pub block: u32,
    pub access: Access,
}

/// The latest such accesses by lane; a view that covers one covers the earlier ones.
pub(super) type ExitDependencies = BTreeMap<(u32, u16), ExitDependency>;
