//! Workspaces for partial sums and flags, reused by later products.
//!
//! Such a product allocates nothing, and can be captured.

use std::marker::PhantomData;
use std::sync::PoisonError;

use cudarc::driver::sys;

use super::driver::Named;
use super::gpu::Gpu;
use super::memory::allocate;
use super::workspace_pool::{PooledWorkspace, WorkspaceContents};
use crate::error::{Error, Result};
use crate::matrix::DeviceMemory;

impl Gpu {
    /// A workspace of `elements` elements of `size` bytes, for the next work on this handle's
    /// stream.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`], and [`Error::Capture`] where an allocation is needed during a
    /// capture.
    pub(super) fn workspace(
        &self,
        elements: usize,
        size: usize,
        contents: WorkspaceContents,
    ) -> Result<DeviceMemory<'_>> {
        let bytes = elements as u128 * size as u128;
        let mut pool = self.workspaces().0.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = self.raw_stream() as usize;
        // The driver does not report the id during a capture, but then the stream exists since its
        // first product.
        let id = if self.is_capturing()? { None } else { Some(stream_id(self)?) };
        let own = pool.iter().filter(|workspace| {
            workspace.contents == contents
                && workspace.stream == stream
                && id.is_none_or(|id| id == workspace.stream_id)
        });
        let largest = own.clone().map(|workspace| workspace.bytes).max().unwrap_or(0);
        let fitting = own.filter(|workspace| workspace.bytes >= bytes).map(|workspace| workspace.address).next_back();
        let address = match fitting {
            Some(address) => address,
            None => {
                let preferred = bytes.max(2 * largest).max(contents.min_bytes());
                let (address, bytes) = match allocate(self, preferred) {
                    Ok(address) => (address, preferred),
                    Err(Error::OutOfMemory { .. }) => (allocate(self, bytes)?, bytes),
                    Err(error) => return Err(error),
                };
                let stream_id = id.map_or_else(|| stream_id(self), Ok)?;
                pool.push(PooledWorkspace { contents, stream, stream_id, address, bytes });
                if contents == WorkspaceContents::Zeroed {
                    // SAFETY: the context is current since the allocation, which has these bytes.
                    let code = unsafe { sys::cuMemsetD8Async(address, 0, bytes as usize, self.raw_stream()) };
                    if let Err(error) = code.named("cuMemsetAsync") {
                        // It is not zeroed, so no later product may use it as such; the pool frees
                        // it.
                        let failed = pool.last_mut().into_iter();
                        failed.for_each(|workspace| workspace.contents = WorkspaceContents::Uninitialized);
                        return Err(error);
                    }
                }
                address
            }
        };
        Ok(DeviceMemory { address, len: elements, ordinal: self.ordinal(), home: self.home(), owner: PhantomData })
    }
}

/// The unique id of a handle's stream.
fn stream_id(gpu: &Gpu) -> Result<u64> {
    let mut id = 0;
    // SAFETY: the stream is alive, and the driver stores a number.
    unsafe { sys::cuStreamGetId(gpu.raw_stream(), &mut id) }.named("cuStreamGetId")?;
    Ok(id)
}
