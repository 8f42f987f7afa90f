//! Copies between host matrices and GPU memory, through two page-locked halves: one is filled or emptied while the other is
//! under way.
//!
//! The driver would take ordinary host memory as well. But it may still be reading that memory when the call returns, if the
//! caller happens to have page-locked it, and it knows nothing of strides.

use std::ops::Range;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;

use cudarc::driver::sys::{self, CUresult};
use cudarc::driver::{CudaContext, CudaEvent};

use super::driver::Named;
use super::gpu::Gpu;
use super::memory::Stored;
use crate::error::{Error, Result};
use crate::matrix::{Layout, Shape};
use crate::progress::Meter;

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
        gpu: &Gpu,
        from: &[T],
        layout: &Layout,
        address: u64,
        meter: Option<&Meter<'_>>,
    ) -> Result<()> {
        for part in parts::<T>(layout.shape.len()?) {
            let half = self.next();
            gather(from, layout, part.start, half.elements(part.len())?);
            half.send(gpu, address + (part.start * size_of::<T>()) as u64, size_of::<T>() * part.len())?;
            count::<T>(meter, &part);
        }
        Ok(())
    }

    /// Copies what lies at `address`, row after row without gaps, into a host matrix. Returns when it is there.
    pub fn download<T: Stored>(
        &mut self,
        gpu: &Gpu,
        address: u64,
        to: &mut [T],
        layout: &Layout,
        meter: Option<&Meter<'_>>,
    ) -> Result<()> {
        let mut under_way: Option<Range<usize>> = None;
        for part in parts::<T>(layout.shape.len()?) {
            let half = self.next();
            half.receive(gpu, address + (part.start * size_of::<T>()) as u64, size_of::<T>() * part.len())?;
            if let Some(before) = under_way.replace(part) {
                scatter(self.other().elements(before.len())?, to, layout, before.start);
                count::<T>(meter, &before);
            }
        }
        if let Some(last) = under_way {
            scatter(self.current().elements(last.len())?, to, layout, last.start);
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
    fn send(&mut self, gpu: &Gpu, to: u64, bytes: usize) -> Result<()> {
        // SAFETY: this memory lives until the copy is done, see `drop`; the caller allocated `bytes` at `to`.
        let code = unsafe { sys::cuMemcpyHtoDAsync_v2(to, self.memory.as_ptr().cast(), bytes, gpu.raw_stream()) };
        code.named("cuMemcpyHtoDAsync")?;
        self.copied.record(gpu.stream()).named("cuEventRecord")
    }

    /// Queues a copy from the GPU.
    fn receive(&mut self, gpu: &Gpu, from: u64, bytes: usize) -> Result<()> {
        self.copied.synchronize().named("cuEventSynchronize")?;
        // SAFETY: this memory lives until the copy is done, see `drop`; the caller allocated `bytes` at `from`.
        let code = unsafe { sys::cuMemcpyDtoHAsync_v2(self.memory.as_ptr().cast(), from, bytes, gpu.raw_stream()) };
        code.named("cuMemcpyDtoHAsync")?;
        self.copied.record(gpu.stream()).named("cuEventRecord")
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

/// Fills `to` with the elements from number `start` on, in row-major order.
fn gather<T: Copy>(from: &[T], layout: &Layout, start: usize, to: &mut [T]) {
    let mut to = to;
    for run in runs(layout, start, to.len()) {
        let (here, rest) = to.split_at_mut(run.len);
        to = rest;
        match run.stride {
            1 => here.copy_from_slice(&from[run.position..run.position + run.len]),
            _ => here.iter_mut().enumerate().for_each(|(i, element)| *element = from[run.at(i)]),
        }
    }
}

/// Stores `from` as the elements from number `start` on, in row-major order.
fn scatter<T: Copy>(from: &[T], to: &mut [T], layout: &Layout, start: usize) {
    let mut from = from;
    for run in runs(layout, start, from.len()) {
        let (here, rest) = from.split_at(run.len);
        from = rest;
        match run.stride {
            1 => to[run.position..run.position + run.len].copy_from_slice(here),
            _ => here.iter().enumerate().for_each(|(i, element)| to[run.at(i)] = *element),
        }
    }
}

/// Elements that follow each other in a row.
#[derive(Debug, PartialEq)]
struct Run {
    position: usize,
    stride: isize,
    len: usize,
}

impl Run {
    fn at(&self, i: usize) -> usize {
        self.position.wrapping_add_signed(self.stride * i as isize)
    }
}

/// The runs that `len` elements from number `start` on fall into.
fn runs(layout: &Layout, start: usize, len: usize) -> impl Iterator<Item = Run> {
    let layout = flattened(layout);
    let Shape { rows, cols, .. } = layout.shape;
    let (mut next, end) = (start, start + len);
    std::iter::from_fn(move || {
        let remaining = end.checked_sub(next).filter(|&left| left > 0)?;
        let (row, col) = (next / cols, next % cols);
        let len = remaining.min(cols - col);
        next += len;
        Some(Run { position: layout.at(row / rows, row % rows, col), stride: layout.strides[2], len })
    })
}

/// The same elements in the same order with rows as long as can be: rows, or whole matrices, that follow each other at
/// the distance of their elements are one row.
fn flattened(layout: &Layout) -> Layout {
    let Shape { batches, rows, cols } = layout.shape;
    let [batch, row, col] = layout.strides;
    let follows =
        |stride: isize, len: usize| isize::try_from(len).is_ok_and(|len| len.checked_mul(col) == Some(stride));
    if rows != 1 && follows(row, cols) {
        let shape = Shape { batches, rows: 1, cols: rows * cols };
        return flattened(&Layout { shape, strides: [batch, 0, col], ..*layout });
    }
    if rows == 1 && batches != 1 && follows(batch, cols) {
        let shape = Shape { batches: 1, rows: 1, cols: batches * cols };
        return Layout { shape, strides: [0, 0, col], ..*layout };
    }
    *layout
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout(shape: Shape, offset: usize, strides: [isize; 3]) -> Layout {
        Layout { shape, offset, strides }
    }

    #[test]
    fn rows_without_gaps_are_one_run() {
        let shape = Shape { batches: 2, rows: 3, cols: 4 };
        let dense = Layout::row_major(shape).unwrap();
        assert_eq!(runs(&dense, 5, 17).collect::<Vec<_>>(), [Run { position: 5, stride: 1, len: 17 }]);
        let reversed = layout(shape, 23, [-12, -4, -1]);
        assert_eq!(runs(&reversed, 0, 24).collect::<Vec<_>>(), [Run { position: 23, stride: -1, len: 24 }]);
        let padded = layout(shape, 0, [20, 5, 1]);
        assert_eq!(runs(&padded, 0, 24).count(), 6);
        let broadcast = layout(Shape::new(1000, 1000), 0, [0, 0, 0]);
        assert_eq!(runs(&broadcast, 0, 1_000_000).count(), 1);
        assert_eq!(runs(&layout(Shape::new(0, 4), 0, [0, 4, 1]), 0, 0).count(), 0);
    }

    #[test]
    fn parts_cover_everything_once() {
        let step = HALF_BYTES / 8;
        assert_eq!(parts::<f64>(0).count(), 0);
        assert_eq!(parts::<f64>(2 * step + 1).collect::<Vec<_>>(), [0..step, step..2 * step, 2 * step..2 * step + 1]);
    }

    proptest! {
        /// In any layout, in any parts: gathering gives the elements in row-major order, scattering puts them back.
        #[test]
        fn gathering_and_scattering_follow_the_layout(
            (batches, rows, cols) in (1usize..4, 1usize..5, 1usize..6),
            pad in 0usize..3,
            flip in any::<[bool; 3]>(),
            transposed: bool,
            step in 1usize..30,
        ) {
            let extents = [batches, rows, cols];
            let gaps = [rows * (cols + pad) + pad, cols + pad, 1];
            let (mut offset, mut strides) = (0, [0; 3]);
            for axis in 0..3 {
                strides[axis] = if flip[axis] { -(gaps[axis] as isize) } else { gaps[axis] as isize };
                offset += if flip[axis] { (extents[axis] - 1) * gaps[axis] } else { 0 };
            }
            let straight = layout(Shape { batches, rows, cols }, offset, strides);
            let layout = if transposed { straight.transposed() } else { straight };
            let memory: Vec<u32> = (0..(batches * gaps[0]) as u32).collect();
            layout.check(memory.len()).unwrap();

            let Shape { batches, rows, cols } = layout.shape;
            let places = (0..batches).flat_map(|b| (0..rows).flat_map(move |r| (0..cols).map(move |c| (b, r, c))));
            let expected: Vec<u32> = places.map(|(b, r, c)| layout.at(b, r, c) as u32).collect();
            let mut gathered = vec![u32::MAX; expected.len()];
            let mut scattered = vec![u32::MAX; memory.len()];
            for start in (0..expected.len()).step_by(step) {
                let end = expected.len().min(start + step);
                gather(&memory, &layout, start, &mut gathered[start..end]);
                scatter(&gathered[start..end], &mut scattered, &layout, start);
            }
            prop_assert_eq!(&gathered, &expected);
            for (place, &value) in scattered.iter().enumerate() {
                let used = expected.contains(&(place as u32));
                prop_assert_eq!(value, if used { place as u32 } else { u32::MAX });
            }
        }
    }
}
