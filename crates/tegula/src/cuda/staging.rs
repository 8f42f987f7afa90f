//! Double-buffered copies between host matrices and GPU memory.
//!
//! The host fills or empties one page-locked staging buffer while the GPU copies the other.
//!
//! The driver accepts pageable host memory as well. But it may still read that memory after the
//! call, if the caller has page-locked it, and it does not support strides.

use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream};
use tegula_core::progress::ProgressMeter;

use super::device_element::DeviceElement;
use super::driver::Named;
use crate::error::{Error, Result};
use crate::matrix::{View, ViewMut};

/// Bytes of a staging buffer: large enough to hide latency, small enough to allocate in a
/// millisecond.
const PINNED_BYTES: usize = 4 << 20;

/// Bytes of host memory of a context's staging buffers. Its first copy allocates them.
pub(crate) const STAGING_BYTES: usize = 2 * PINNED_BYTES;

/// The two staging buffers of a context.
pub(super) struct StagingBuffers {
    buffers: [PinnedBuffer; 2],
    /// Chunks copied so far, by all calls. Buffers alternate across calls too, so a short copy uses
    /// the buffer that has been idle for longer.
    chunks_copied: usize,
}

impl StagingBuffers {
    /// Allocates both buffers.
    pub fn new(context: &Arc<CudaContext>) -> Result<Self> {
        Ok(StagingBuffers { buffers: [PinnedBuffer::new(context)?, PinnedBuffer::new(context)?], chunks_copied: 0 })
    }

    /// Queues a copy of a host matrix to `address`, in row-major order.
    ///
    /// Returns once the matrix has been read, which may be before the copy is complete. It waits
    /// only for a buffer to become free.
    pub fn upload<T: DeviceElement>(
        &mut self,
        stream: &CudaStream,
        from: View<'_, T>,
        address: u64,
        meter: Option<&ProgressMeter<'_>>,
    ) -> Result<()> {
        for chunk in chunks::<T>(from.shape().len()?) {
            let buffer = self.next();
            from.copy_to_slice(chunk.start, buffer.elements(chunk.len())?)?;
            buffer.copy_to_device(
                stream,
                address + (chunk.start * size_of::<T>()) as u64,
                size_of::<T>() * chunk.len(),
            )?;
            count::<T>(meter, &chunk);
        }
        Ok(())
    }

    /// Copies the memory at `address`, in row-major order, into a host matrix, and waits.
    pub fn download<T: DeviceElement>(
        &mut self,
        stream: &CudaStream,
        address: u64,
        mut to: ViewMut<'_, T>,
        meter: Option<&ProgressMeter<'_>>,
    ) -> Result<()> {
        let mut in_flight: Option<Range<usize>> = None;
        for chunk in chunks::<T>(to.shape().len()?) {
            let buffer = self.next();
            buffer.copy_from_device(
                stream,
                address + (chunk.start * size_of::<T>()) as u64,
                size_of::<T>() * chunk.len(),
            )?;
            if let Some(previous) = in_flight.replace(chunk) {
                to.copy_from_slice(previous.start, self.previous().elements(previous.len())?)?;
                count::<T>(meter, &previous);
            }
        }
        if let Some(last) = in_flight {
            to.copy_from_slice(last.start, self.current().elements(last.len())?)?;
            count::<T>(meter, &last);
        }
        Ok(())
    }

    fn next(&mut self) -> &mut PinnedBuffer {
        self.chunks_copied += 1;
        self.current()
    }

    fn current(&mut self) -> &mut PinnedBuffer {
        &mut self.buffers[self.chunks_copied % 2]
    }

    fn previous(&mut self) -> &mut PinnedBuffer {
        &mut self.buffers[(self.chunks_copied + 1) % 2]
    }
}

/// Page-locked memory, with the event after its last queued copy.
struct PinnedBuffer {
    memory: NonNull<u8>,
    copied: CudaEvent,
}

// SAFETY: the memory is owned and not shared; any thread may free page-locked memory.
unsafe impl Send for PinnedBuffer {}

impl PinnedBuffer {
    fn new(context: &Arc<CudaContext>) -> Result<Self> {
        let copied = context.new_event(None).named("cuEventCreate")?;
        let mut memory = null_mut();
        // SAFETY: `new_event` made the context current; the driver writes the address.
        match unsafe { sys::cuMemHostAlloc(&mut memory, PINNED_BYTES, 0) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(out_of_pinned()),
            code => code.named("cuMemHostAlloc"),
        }?;
        let memory = NonNull::new(memory.cast::<u8>()).ok_or_else(out_of_pinned)?;
        // SAFETY: the memory has this length. Once written, a slice of it is valid.
        unsafe { memory.write_bytes(0, PINNED_BYTES) };
        Ok(PinnedBuffer { memory, copied })
    }

    /// Waits for the last copy, and returns the first `len` elements.
    fn elements<T: DeviceElement>(&mut self, len: usize) -> Result<&mut [T]> {
        self.copied.synchronize().named("cuEventSynchronize")?;
        // SAFETY: the memory is initialized, owned and page-aligned. No copy is in flight, and none
        // can be queued while the slice is borrowed.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), PINNED_BYTES) };
        Ok(&mut bytemuck::cast_slice_mut(bytes)[..len])
    }

    /// Queues a copy to the GPU.
    fn copy_to_device(&mut self, stream: &CudaStream, to: u64, bytes: usize) -> Result<()> {
        // SAFETY: this memory stays alive until the copy is complete, see `drop`; the caller
        // allocated `bytes` at `to`.
        let code = unsafe { sys::cuMemcpyHtoDAsync_v2(to, self.memory.as_ptr().cast(), bytes, stream.cu_stream()) };
        code.named("cuMemcpyHtoDAsync")?;
        self.copied.record(stream).named("cuEventRecord")
    }

    /// Queues a copy from the GPU.
    fn copy_from_device(&mut self, stream: &CudaStream, from: u64, bytes: usize) -> Result<()> {
        self.copied.synchronize().named("cuEventSynchronize")?;
        // SAFETY: this memory stays alive until the copy is complete, see `drop`; the caller
        // allocated `bytes` at `from`.
        let code = unsafe { sys::cuMemcpyDtoHAsync_v2(self.memory.as_ptr().cast(), from, bytes, stream.cu_stream()) };
        code.named("cuMemcpyDtoHAsync")?;
        self.copied.record(stream).named("cuEventRecord")
    }
}

impl Drop for PinnedBuffer {
    fn drop(&mut self) {
        // Waiting fails only where the context is lost, and with it every copy.
        let _ = self.copied.synchronize();
        // SAFETY: the memory is owned and freed once, with its context current and no copy in
        // flight.
        let _ = unsafe { sys::cuMemFreeHost(self.memory.as_ptr().cast()) };
    }
}

fn out_of_pinned() -> Error {
    Error::out_of_memory("a staging buffer".into(), PINNED_BYTES as u128, "the host".into(), None)
}

/// Adds the bytes of a chunk to the progress.
fn count<T>(meter: Option<&ProgressMeter<'_>>, chunk: &Range<usize>) {
    meter.iter().for_each(|meter| meter.add((size_of::<T>() * chunk.len()) as u64));
}

/// Elements 0 to `len` in chunks that fit a staging buffer.
fn chunks<T>(len: usize) -> impl Iterator<Item = Range<usize>> {
    let step = PINNED_BYTES / size_of::<T>();
    (0..len).step_by(step).map(move |start| start..len.min(start + step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_cover_all_elements_once() {
        let step = PINNED_BYTES / 8;
        assert_eq!(chunks::<f64>(0).count(), 0);
        assert_eq!(chunks::<f64>(2 * step + 1).collect::<Vec<_>>(), [0..step, step..2 * step, 2 * step..2 * step + 1]);
    }
}
