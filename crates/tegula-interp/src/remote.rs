//! Remote operations: what the threads of a block do to another block of its cluster.

use std::collections::BTreeMap;

use super::barrier::Which;
use super::bulk::Cargo;
use super::race::{Access, Knowledge};

/// Something that a thread does to another block of its cluster.
pub(super) struct Letter {
    pub to: u32,
    /// The sending block and the access by which it is known.
    pub from: u32,
    pub sender: Access,
    pub known: Knowledge,
    pub brings: Brings,
}

pub(super) enum Brings {
    Arrival { which: Which, expect: Option<u32> },
    Cargo(Cargo),
}

/// What a block does to another: who did it, and the access that the other must come to know before
/// it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Visit {
    pub from: u32,
    pub sender: Access,
    pub block: u32,
    pub access: Access,
}

/// The latest visits to a block by the lane that is to be known: who knows one knows those before.
pub(super) type Visits = BTreeMap<(u32, u16), Visit>;
