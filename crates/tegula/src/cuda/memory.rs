//! GPU memory: buffers, and matrices in them.

use std::marker::PhantomData;
use std::time::Instant;

use cudarc::driver::sys::{self, CUresult};
use tegula_core::progress::ProgressMeter;

use super::device_element::DeviceElement;
use super::driver::{Named, bind_to_release};
use super::gpu::Gpu;
use crate::error::{Error, Result};
use crate::matrix::{DeviceMemory, Layout, Matrix, Memory, Shape, View, ViewMut};

/// An allocation of `len` elements on a GPU, freed when dropped.
///
/// Its home stream is that of the handle which allocated it. Allocation and release are ordered
/// with that stream, so a buffer may be dropped while work on it is queued. (A GPU without memory
/// pools waits for all its work at each release.)
#[derive(Debug)]
pub struct Buffer<T> {
    gpu: Gpu,
    address: u64,
    len: usize,
    element: PhantomData<T>,
}

impl<T: DeviceElement> Buffer<T> {
    /// Allocates uninitialized memory. An empty buffer allocates nothing.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn uninit(gpu: &Gpu, len: usize) -> Result<Self> {
        let bytes = len as u128 * size_of::<T>() as u128;
        let address = allocate(gpu, bytes)?;
        Ok(Buffer { gpu: gpu.clone(), address, len, element: PhantomData })
    }

    /// Allocates memory filled with zeros.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn zeroed(gpu: &Gpu, len: usize) -> Result<Self> {
        let mut buffer = Self::uninit(gpu, len)?;
        buffer.fill(T::ZERO)?;
        Ok(buffer)
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the buffer has no elements.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// GPU address of the first element; 0 for an empty buffer.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The handle that allocated it, whose stream is its home stream.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The memory, for views.
    pub fn memory(&self) -> DeviceMemory<'_> {
        let Buffer { gpu, address, len, .. } = self;
        DeviceMemory { address: *address, len: *len, ordinal: gpu.ordinal(), home: gpu.home(), owner: PhantomData }
    }

    /// Queues a copy of a host matrix into this memory, in row-major order. The matrix may be
    /// changed or dropped after the call.
    ///
    /// # Errors
    /// [`Error::Layout`] where the matrix has another number of elements or is not in host memory.
    pub fn upload(&mut self, from: View<'_, T>) -> Result<()> {
        self.upload_with_progress(from, None)
    }

    /// [`Buffer::upload`], with a progress meter of bytes.
    pub(super) fn upload_with_progress(&mut self, from: View<'_, T>, meter: Option<&ProgressMeter<'_>>) -> Result<()> {
        check_copy(from.memory(), from.shape(), self.len)?;
        let start = Instant::now();
        self.gpu.with_staging(|staging| staging.upload(self.gpu.stream(), from, self.address, meter))?;
        self.log_copy("uploaded", start);
        Ok(())
    }

    /// Copies this memory into a host matrix, in row-major order, and waits.
    ///
    /// # Errors
    /// [`Error::Layout`] where the matrix has another number of elements or is not in host memory;
    /// errors of the driver, including the failure of a kernel that was queued earlier.
    pub fn download(&self, to: ViewMut<'_, T>) -> Result<()> {
        self.download_with_progress(to, None)
    }

    /// [`Buffer::download`], with a progress meter of bytes.
    pub(super) fn download_with_progress(&self, to: ViewMut<'_, T>, meter: Option<&ProgressMeter<'_>>) -> Result<()> {
        check_copy(to.memory(), to.shape(), self.len)?;
        let start = Instant::now();
        self.gpu.with_staging(|staging| staging.download(self.gpu.stream(), self.address, to, meter))?;
        self.log_copy("downloaded", start);
        Ok(())
    }

    /// Queues a copy of a host matrix to the elements from `first` on, in row-major order.
    ///
    /// # Errors
    /// [`Error::Layout`] where the buffer has fewer elements or the matrix is not in host memory.
    pub(crate) fn upload_at(&mut self, first: usize, from: View<'_, T>) -> Result<()> {
        let address = self.range(first, from.memory(), from.shape())?;
        self.gpu.with_staging(|staging| staging.upload(self.gpu.stream(), from, address, None))
    }

    /// Copies the elements from `first` on into a host matrix, in row-major order, and waits.
    ///
    /// # Errors
    /// [`Error::Layout`] where the buffer has fewer elements or the matrix is not in host memory;
    /// errors of the driver, including the failure of a kernel that was queued earlier.
    pub(crate) fn download_at(&self, first: usize, to: ViewMut<'_, T>) -> Result<()> {
        let address = self.range(first, to.memory(), to.shape())?;
        self.gpu.with_staging(|staging| staging.download(self.gpu.stream(), address, to, None))
    }

    /// The address of element `first`, where a copy of a host matrix fits behind it.
    fn range(&self, first: usize, memory: Memory<'_, T>, shape: Shape) -> Result<u64> {
        check_copy(memory, shape, shape.len()?.min(self.len.saturating_sub(first)))?;
        Ok(self.address + (first * size_of::<T>()) as u64)
    }

    /// Queues copies of the first `period` elements over all that follow.
    ///
    /// # Errors
    /// Errors of the driver.
    pub(crate) fn repeat(&mut self, period: usize) -> Result<()> {
        self.gpu.bind()?;
        let mut written = period.max(1);
        while written < self.len {
            // All that is written is copied at once, which doubles it: whole periods, but the last.
            let count = written.min(self.len - written);
            let bytes = |count: usize| count * size_of::<T>();
            let (to, from) = (self.address + bytes(written) as u64, self.address);
            // SAFETY: the context is current; both ranges are in the buffer and do not overlap,
            // and the copy follows the work on the home stream.
            let code = unsafe { sys::cuMemcpyDtoDAsync_v2(to, from, bytes(count), self.gpu.raw_stream()) };
            code.named("cuMemcpyDtoDAsync")?;
            written += count;
        }
        Ok(())
    }

    /// Logs a copy of the whole memory. The part of an upload that is still queued counts as
    /// copied: at most the two staging buffers.
    fn log_copy(&self, what: &str, start: Instant) {
        let (bytes, elapsed) = (self.len * size_of::<T>(), start.elapsed());
        let rate = bytes as f64 / elapsed.as_secs_f64() / 1e9;
        tracing::debug!(bytes, ?elapsed, gigabytes_per_second = rate, gpu = ?self.gpu, "{what}");
    }

    /// Queues a copy of another buffer of this GPU into this one.
    ///
    /// # Errors
    /// [`Error::Layout`] where it has another number of elements, [`Error::DeviceMismatch`] where
    /// it is of another context; errors of the driver.
    pub fn copy_from(&mut self, from: &Buffer<T>) -> Result<()> {
        if from.len != self.len {
            return Err(Error::Layout(format!("cannot copy {} elements into a buffer of {}", from.len, self.len)));
        }
        if self.is_empty() {
            return Ok(());
        }
        self.gpu.bind()?;
        self.gpu.submit_in_order(&[from.memory()], || {
            // SAFETY: both buffers have the same length and context, and the copy is ordered with
            // the work on their home streams.
            let code = unsafe {
                let bytes = self.len * size_of::<T>();
                sys::cuMemcpyDtoDAsync_v2(self.address, from.address, bytes, self.gpu.raw_stream())
            };
            code.named("cuMemcpyDtoDAsync")
        })
    }

    /// Queues a fill of every element with `value`.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn fill(&mut self, value: T) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        self.gpu.bind()?;
        let (at, len, stream, bits) = (self.address, self.len, self.gpu.raw_stream(), value.to_bits());
        let (low, high) = (bits as u32, (bits >> 32) as u32);
        // SAFETY: the context is current, and the buffer has `len` elements of this width at `at`.
        let code = unsafe {
            match size_of::<T>() {
                1 => sys::cuMemsetD8Async(at, low as u8, len, stream),
                2 => sys::cuMemsetD16Async(at, low as u16, len, stream),
                4 => sys::cuMemsetD32Async(at, low, len, stream),
                8 if low == high => sys::cuMemsetD32Async(at, low, 2 * len, stream),
                _ => return self.fill_by_copy(value),
            }
        };
        code.named("cuMemsetAsync")
    }

    /// Fills by a copy of one broadcast element, since the driver fills with at most 32 bits.
    fn fill_by_copy(&mut self, value: T) -> Result<()> {
        let len = self.len;
        self.upload(View::new(&[value], 1, 1)?.broadcast(Shape::new(1, len))?)
    }
}

impl<T> Drop for Buffer<T> {
    fn drop(&mut self) {
        if self.address == 0 {
            return;
        }
        bind_to_release(self.gpu.context());
        // SAFETY: the memory is owned and freed once, as it was allocated, after the work on its
        // home stream. A failure means that the context is lost, and with it the memory.
        let _ = unsafe {
            match self.gpu.info().memory_pools {
                true => sys::cuMemFreeAsync(self.address, self.gpu.raw_stream()),
                false => sys::cuMemFree_v2(self.address),
            }
        };
    }
}

pub(super) fn allocate(gpu: &Gpu, bytes: u128) -> Result<u64> {
    let size = usize::try_from(bytes).ok().filter(|&size| size as u64 <= gpu.info().memory_bytes);
    let size = size.ok_or_else(|| out_of_memory(gpu, bytes))?;
    if size == 0 {
        return Ok(0);
    }
    gpu.refuse_capture(|| "memory is allocated on the GPU".into())?;
    let mut address = 0;
    // SAFETY: the context is current, and the driver writes an address.
    let code = unsafe {
        match gpu.info().memory_pools {
            true => sys::cuMemAllocAsync(&mut address, size, gpu.raw_stream()),
            false => sys::cuMemAlloc_v2(&mut address, size),
        }
    };
    match code {
        CUresult::CUDA_ERROR_OUT_OF_MEMORY => Err(out_of_memory(gpu, bytes)),
        code => code.named("cuMemAlloc").map(|()| address),
    }
}

fn out_of_memory(gpu: &Gpu, bytes: u128) -> Error {
    gpu.out_of_memory("a buffer".into(), bytes)
}

impl Gpu {
    /// The error, with the free memory after the work queued so far has released its memory.
    pub(super) fn out_of_memory(&self, what: String, bytes: u128) -> Error {
        // Where the GPU no longer responds, the number is omitted.
        let free = self.synchronize().ok().and_then(|()| self.context().mem_get_info().ok());
        let available = free.map(|(free, _)| free as u128);
        Error::out_of_memory(what, bytes, format!("cuda:{}", self.ordinal()), available)
    }
}

/// Checks that a matrix can be copied to or from GPU memory of `len` elements.
fn check_copy<T>(memory: Memory<'_, T>, shape: Shape, len: usize) -> Result<()> {
    let Memory::Host(_) = memory else {
        let why = "a copy between host and GPU needs a host matrix; this one is in GPU memory";
        return Err(Error::Layout(why.into()));
    };
    if shape.len()? == len {
        return Ok(());
    }
    Err(Error::Layout(format!("a {shape} matrix has {} elements, the GPU memory has {len}", shape.len()?)))
}

/// An owned matrix, or a batch of matrices, in GPU memory, row-major.
#[derive(Debug)]
pub struct DeviceMatrix<T> {
    buffer: Buffer<T>,
    layout: Layout,
}

impl<T: DeviceElement> DeviceMatrix<T> {
    /// Allocates an uninitialized matrix.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::OutOfMemory`].
    pub fn uninit(gpu: &Gpu, shape: Shape) -> Result<Self> {
        let layout = Layout::row_major(shape)?;
        Ok(DeviceMatrix { buffer: Buffer::uninit(gpu, shape.len()?)?, layout })
    }

    /// Allocates a matrix of zeros.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::OutOfMemory`].
    pub fn zeros(gpu: &Gpu, shape: Shape) -> Result<Self> {
        let mut matrix = Self::uninit(gpu, shape)?;
        matrix.buffer.fill(T::ZERO)?;
        Ok(matrix)
    }

    /// Allocates a matrix and queues a copy of a host matrix into it. The host matrix may be
    /// changed or dropped after the call.
    ///
    /// # Errors
    /// [`Error::Layout`] where the matrix is not in host memory, and [`Error::OutOfMemory`].
    pub fn upload(gpu: &Gpu, from: View<'_, T>) -> Result<Self> {
        let mut matrix = Self::uninit(gpu, from.shape())?;
        matrix.buffer.upload(from)?;
        Ok(matrix)
    }

    /// Queues a copy of a host matrix into this one, in row-major order.
    ///
    /// # Errors
    /// [`Error::Layout`] where the matrix has another number of elements or is not in host memory.
    pub fn upload_from(&mut self, from: View<'_, T>) -> Result<()> {
        self.buffer.upload(from)
    }

    /// Copies the matrix to the host, after the work queued on it, and waits.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; errors of the driver, including the failure of a kernel that was
    /// queued earlier.
    pub fn download(&self) -> Result<Matrix<T>> {
        let mut matrix = Matrix::zeros_of_shape(self.shape())?;
        self.download_into(matrix.view_mut())?;
        Ok(matrix)
    }

    /// Copies into a host matrix of the same shape, and waits.
    ///
    /// # Errors
    /// As for [`download`](Self::download); [`Error::Layout`] for another shape or a matrix in GPU
    /// memory.
    pub fn download_into(&self, to: ViewMut<'_, T>) -> Result<()> {
        if to.shape() != self.shape() {
            return Err(Error::Layout(format!("cannot copy a {} matrix into a {} matrix", self.shape(), to.shape())));
        }
        self.buffer.download(to)
    }

    /// The shape: batch, rows and columns.
    pub fn shape(&self) -> Shape {
        self.layout.shape
    }

    /// The buffer that holds the elements.
    pub fn buffer(&self) -> &Buffer<T> {
        &self.buffer
    }

    /// Queues a fill of every element with `value`.
    ///
    /// # Errors
    /// Errors of the driver.
    pub fn fill(&mut self, value: T) -> Result<()> {
        self.buffer.fill(value)
    }

    /// The handle that allocated it, whose stream is its home stream.
    pub fn gpu(&self) -> &Gpu {
        self.buffer.gpu()
    }

    /// A read-only view.
    pub fn view(&self) -> View<'_, T> {
        View::on_gpu(self.buffer.memory(), self.layout)
    }

    /// A mutable view.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut::on_gpu(self.buffer.memory(), self.layout)
    }
}
