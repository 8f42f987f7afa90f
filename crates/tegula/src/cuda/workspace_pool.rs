//! The workspace pool of a context.

use std::sync::{Mutex, PoisonError};

use cudarc::driver::sys;

/// The workspaces of a context, each for one stream, whose products use it one after the other.
///
/// They stay allocated as long as the context, since captured products keep their addresses. Sizes
/// at least double, so that outgrown workspaces add up to at most the size of the current ones.
#[derive(Default)]
pub(super) struct WorkspacePool(pub Mutex<Vec<PooledWorkspace>>);

/// The contents of a workspace.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum WorkspaceContents {
    /// Uninitialized memory.
    Uninitialized,
    /// Zeros, which every kernel restores after use.
    Zeroed,
}

impl WorkspaceContents {
    /// Least size of an allocation in bytes.
    pub fn min_bytes(self) -> u128 {
        match self {
            WorkspaceContents::Uninitialized => 16 << 20,
            WorkspaceContents::Zeroed => 64 << 10,
        }
    }
}

/// A workspace of the pool.
pub(super) struct PooledWorkspace {
    pub contents: WorkspaceContents,
    /// The handle of the stream, which may be reused, and its unique id.
    pub stream: usize,
    pub stream_id: u64,
    pub address: u64,
    pub bytes: u128,
}

impl WorkspacePool {
    /// Frees all workspaces. The context must be current, and work that uses them only on their
    /// streams.
    pub fn free(&mut self) {
        for workspace in self.0.get_mut().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // SAFETY: the memory is owned and released once; the call waits for the work that uses
            // it. A failure means that the context is lost, and with it the memory.
            let _ = unsafe { sys::cuMemFree_v2(workspace.address) };
        }
    }
}
