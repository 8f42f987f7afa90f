//! Copies between host matrices and GPU memory, through two page-locked halves: one is filled or emptied while the other is
//! under way.
//!
//! The driver would take ordinary host memory as well. But it may still be reading that memory when the call returns, if the
//! caller happens to have page-locked it, and it knows nothing of strides.

use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaContext, CudaEvent, CudaStream};
use tegula_core::progress::Meter;

use super::driver::Named;
use super::stored::Stored;
use crate::error::{Error, Result};
use crate::matrix::{View, ViewMut};

/// Bytes of a half: long enough that the start of a copy does not count, short enough to be made in a millisecond.
const HALF_BYTES: usize = 4 << 20;

/// Host memory that copies of a context take, once there was one.
pub(crate) const STAGING_BYTES: usize = 2 * HALF_BYTES;

/// The two halves.
pub(super) struct Staging {
    halves: [Half; 2],
    /// Turns so far. Going on where the last copy ended, a short copy finds the half that has been idle for longest.
    turn: usize,
}

impl Staging {
    /// Allocates both halves.
    pub fn new(context: &Arc<CudaContext>) -> Result<Self> {
        Ok(Staging { halves: [Half::new(context)?, Half::new(context)?], turn: 0 })
    }

    /// Queues a copy of a host matrix to `address`, row after row without gaps. Returns once the matrix has been read,
    /// which may be before the copy is done; waits only for a half to become free.
    pub fn upload<T: Stored>(
        &mut self,
        stream: &CudaStream,
        from: View<'_, T>,
        address: u64,
        meter: Option<&Meter<'_>>,
    ) -> Result<()> {
        for part in parts::<T>(from.shape().len()?) {
            let half = self.next();
            from.copy_to_slice(part.start, half.elements(part.len())?)?;
            half.send(stream, address + (part.start * size_of::<T>()) as u64, size_of::<T>() * part.len())?;
            count::<T>(meter, &part);
        }
        Ok(())
    }

    /// Copies what lies at `address`, row after row without gaps, into a host matrix. Returns when it is there.
    pub fn download<T: Stored>(
        &mut self,
        stream: &CudaStream,
        address: u64,
        mut to: ViewMut<'_, T>,
        meter: Option<&Meter<'_>>,
    ) -> Result<()> {
        let mut under_way: Option<Range<usize>> = None;
        for part in parts::<T>(to.shape().len()?) {
            let half = self.next();
            half.receive(stream, address + (part.start * size_of::<T>()) as u64, size_of::<T>() * part.len())?;
            if let Some(before) = under_way.replace(part) {
                to.copy_from_slice(before.start, self.other().elements(before.len())?)?;
                count::<T>(meter, &before);
            }
        }
        if let Some(last) = under_way {
            to.copy_from_slice(last.start, self.current().elements(last.len())?)?;
            count::<T>(meter, &last);
        }
        Ok(())
    }

    fn next(&mut self) -> &mut Half {
        self.turn += 1;
        self.current()
    }

    fn current(&mut self) -> &mut Half {
        &mut self.halves[self.turn % 2]
    }

    fn other(&mut self) -> &mut Half {
        &mut self.halves[(self.turn + 1) % 2]
    }
}

/// Page-locked memory, with the event after the last copy that was queued on it.
struct Half {
    memory: NonNull<u8>,
    copied: CudaEvent,
}

// SAFETY: the memory is owned and not shared; page-locked memory is freed from any thread.
unsafe impl Send for Half {}

impl Half {
    fn new(context: &Arc<CudaContext>) -> Result<Self> {
        let copied = context.new_event(None).named("cuEventCreate")?;
        let mut memory = null_mut();
        // SAFETY: `new_event` made the context current; the driver stores where the memory is.
        match unsafe { sys::cuMemHostAlloc(&mut memory, HALF_BYTES, 0) } {
            CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(out_of_pinned()),
            code => code.named("cuMemHostAlloc"),
        }?;
        let memory = NonNull::new(memory.cast::<u8>()).ok_or_else(out_of_pinned)?;
        // SAFETY: the memory is as long as was asked for. Written once, it may be looked at as a slice.
        unsafe { memory.write_bytes(0, HALF_BYTES) };
        Ok(Half { memory, copied })
    }

    /// Waits for the last copy and gives the first `len` elements.
    fn elements<T: Stored>(&mut self, len: usize) -> Result<&mut [T]> {
        self.copied.synchronize().named("cuEventSynchronize")?;
        // SAFETY: the memory is initialised, ours, and aligned to a page; no copy is under way, and while the slice is
        // borrowed none can be queued.
        let bytes = unsafe { std::slice::from_raw_parts_mut(self.memory.as_ptr(), HALF_BYTES) };
        Ok(&mut bytemuck::cast_slice_mut(bytes)[..len])
    }

    /// Queues a copy to the GPU.
    fn send(&mut self, stream: &CudaStream, to: u64, bytes: usize) -> Result<()> {
        // SAFETY: this memory lives until the copy is done, see `drop`; the caller allocated `bytes` at `to`.
        let code = unsafe { sys::cuMemcpyHtoDAsync_v2(to, self.memory.as_ptr().cast(), bytes, stream.cu_stream()) };
        code.named("cuMemcpyHtoDAsync")?;
        self.copied.record(stream).named("cuEventRecord")
    }

    /// Queues a copy from the GPU.
    fn receive(&mut self, stream: &CudaStream, from: u64, bytes: usize) -> Result<()> {
        self.copied.synchronize().named("cuEventSynchronize")?;
        // SAFETY: this memory lives until the copy is done, see `drop`; the caller allocated `bytes` at `from`.
        let code = unsafe { sys::cuMemcpyDtoHAsync_v2(self.memory.as_ptr().cast(), from, bytes, stream.cu_stream()) };
        code.named("cuMemcpyDtoHAsync")?;
        self.copied.record(stream).named("cuEventRecord")
    }
}

impl Drop for Half {
    fn drop(&mut self) {
        // Waiting fails only where the context is lost, and with it every copy.
        let _ = self.copied.synchronize();
        // SAFETY: the memory is ours and freed once, with its context current and no copy under way.
        let _ = unsafe { sys::cuMemFreeHost(self.memory.as_ptr().cast()) };
    }
}

fn out_of_pinned() -> Error {
    let (what, device) = ("a staging buffer".into(), "the host".into());
    Error::OutOfMemory { what, bytes: HALF_BYTES as u128, device, available: None }
}

/// Counts the bytes of a part.
fn count<T>(meter: Option<&Meter<'_>>, part: &Range<usize>) {
    meter.iter().for_each(|meter| meter.add((size_of::<T>() * part.len()) as u64));
}

/// Elements 0 to `len` in parts that fit a half.
fn parts<T>(len: usize) -> impl Iterator<Item = Range<usize>> {
    let step = HALF_BYTES / size_of::<T>();
    (0..len).step_by(step).map(move |start| start..len.min(start + step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_everything_once() {
        let step = HALF_BYTES / 8;
        assert_eq!(parts::<f64>(0).count(), 0);
        assert_eq!(parts::<f64>(2 * step + 1).collect::<Vec<_>>(), [0..step, step..2 * step, 2 * step..2 * step + 1]);
    }
}
