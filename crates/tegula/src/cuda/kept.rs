//! The workspaces that a context keeps.

use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys;

/// The workspaces of a context, each for one stream, on which products take turns. None is given back while the context is used, since
/// recorded products remember addresses; sizes at least double, so that those outgrown are no more than those in use.
#[derive(Default)]
pub(super) struct Workspaces(pub Mutex<Vec<Kept>>);

/// What is in a workspace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Anything.
    Any,
    /// Zeros, which whoever uses it leaves there.
    Zeros,
}

impl Kind {
    /// How many bytes are allocated at least.
    pub fn least(self) -> u128 {
        match self {
            Kind::Any => 16 << 20,
            Kind::Zeros => 64 << 10,
        }
    }
}

/// One of the workspaces.
pub(super) struct Kept {
    pub kind: Kind,
    /// The stream's address, which another may get later, and its number, which no other gets.
    pub stream: usize,
    pub number: u64,
    pub address: u64,
    pub bytes: u128,
}

impl Workspaces {
    /// Frees all, with the context current and nothing queued that uses them but on their streams.
    pub fn free(&mut self) {
        for kept in self.0.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // SAFETY: the memory is ours and released once; this waits for the work that uses it. A failure means that the context
            // is lost, and with it the memory.
            let _ = unsafe { sys::cuMemFree_v2(kept.address) };
        }
    }
}
