//! Memory on a GPU: allocations, and matrices in them.

use std::marker::PhantomData;
use std::time::Instant;

use cudarc::driver::sys::{self, CUresult};
use tegula_core::progress::Meter;

use super::driver::{Named, bind_to_release};
use super::gpu::Gpu;
use super::stored::Stored;
use crate::error::{Error, Result};
use crate::matrix::{DeviceMemory, Layout, Matrix, Memory, Shape, View, ViewMut};

/// An allocation of `len` elements on a GPU, released when dropped.
///
/// Its home is the stream of the handle it was made with. Allocating and releasing take their turn there, so a buffer may
/// be dropped while work on it is still queued. (A GPU without memory pools waits for all its work at each release.)
#[derive(Debug)]
pub struct Buffer<T> {
    gpu: Gpu,
    address: u64,
    len: usize,
    element: PhantomData<T>,
}

impl<T: Stored> Buffer<T> {
    /// Memory with whatever was in it before. No memory is needed for no elements.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`].
    pub fn uninit(gpu: &Gpu, len: usize) -> Result<Self> {
        let bytes = len as u128 * size_of::<T>() as u128;
        let address = allocate(gpu, bytes)?;
        Ok(Buffer { gpu: gpu.clone(), address, len, element: PhantomData })
    }

    /// Memory filled with zeros.
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

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first element on the GPU; 0 where there is none.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// The handle it was made with, whose stream is its home.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// The memory as views carry it.
    pub fn memory(&self) -> DeviceMemory<'_> {
        let Buffer { gpu, address, len, .. } = self;
        DeviceMemory { address: *address, len: *len, ordinal: gpu.ordinal(), home: gpu.home(), owner: PhantomData }
    }

    /// Queues a copy of a host matrix into this memory, row after row without gaps. The matrix may be changed or dropped as
    /// soon as this returns.
    ///
    /// # Errors
    /// [`Error::Layout`] where the matrix has another number of elements or does not lie on the host.
    pub fn upload(&mut self, from: View<'_, T>) -> Result<()> {
        self.upload_told(from, None)
    }

    /// [`Buffer::upload`], counting bytes.
    pub(super) fn upload_told(&mut self, from: View<'_, T>, meter: Option<&Meter<'_>>) -> Result<()> {
        fits(from.memory(), from.shape(), self.len)?;
        let start = Instant::now();
        self.gpu.staged(|staging| staging.upload(self.gpu.stream(), from, self.address, meter))?;
        self.say("uploaded", start);
        Ok(())
    }

    /// Copies this memory into a host matrix, row after row, and waits for it.
    ///
    /// # Errors
    /// [`Error::Layout`] where the matrix has another number of elements or does not lie on the host; what the driver
    /// says, which includes the failure of a kernel that was queued earlier.
    pub fn download(&self, to: ViewMut<'_, T>) -> Result<()> {
        self.download_told(to, None)
    }

    /// [`Buffer::download`], counting bytes.
    pub(super) fn download_told(&self, to: ViewMut<'_, T>, meter: Option<&Meter<'_>>) -> Result<()> {
        fits(to.memory(), to.shape(), self.len)?;
        let start = Instant::now();
        self.gpu.staged(|staging| staging.download(self.gpu.stream(), self.address, to, meter))?;
        self.say("downloaded", start);
        Ok(())
    }

    /// Notes a copy of the whole memory. What an upload still has under way counts as done: at most the two staged halves.
    fn say(&self, what: &str, start: Instant) {
        let (bytes, elapsed) = (self.len * size_of::<T>(), start.elapsed());
        let rate = bytes as f64 / elapsed.as_secs_f64() / 1e9;
        tracing::debug!(bytes, ?elapsed, gigabytes_per_second = rate, gpu = ?self.gpu, "{what}");
    }

    /// Queues a copy of other memory of this GPU into this.
    ///
    /// # Errors
    /// [`Error::Layout`] where it has another number of elements, [`Error::Elsewhere`] where it is of another context; what the driver
    /// says.
    pub fn copy_from(&mut self, from: &Buffer<T>) -> Result<()> {
        if from.len != self.len {
            return Err(Error::Layout(format!("{} elements do not fit into {}", from.len, self.len)));
        }
        if self.is_empty() {
            return Ok(());
        }
        self.gpu.bind()?;
        self.gpu.ordered(&[from.memory()], || {
            // SAFETY: both addresses are of as many elements, in one context, and work on them is in order with what is queued at
            // their homes.
            let code = unsafe {
                let bytes = self.len * size_of::<T>();
                sys::cuMemcpyDtoDAsync_v2(self.address, from.address, bytes, self.gpu.raw_stream())
            };
            code.named("cuMemcpyDtoDAsync")
        })
    }

    /// Queues setting every element to `value`.
    ///
    /// # Errors
    /// What the driver says.
    pub fn fill(&mut self, value: T) -> Result<()> {
        if self.is_empty() {
            return Ok(());
        }
        self.gpu.bind()?;
        let (at, len, stream, bits) = (self.address, self.len, self.gpu.raw_stream(), value.to_bits());
        let (low, high) = (bits as u32, (bits >> 32) as u32);
        // SAFETY: the context is current, and `len` elements of the width that is set lie at `at`.
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

    /// The driver sets up to 32 bits at a time; the rest is a copy of one element to everywhere.
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
        // SAFETY: the memory is ours and released once, the way it was allocated, after what is queued on its home. A
        // failure means that the context is lost, and with it the memory.
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
    // SAFETY: the context is current, and the driver stores an address.
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
    /// The error, with what is free once the work queued so far has released its memory.
    pub(super) fn out_of_memory(&self, what: String, bytes: u128) -> Error {
        // Where the GPU no longer answers, the number is left out.
        let free = self.synchronize().ok().and_then(|()| self.context().mem_get_info().ok());
        let available = free.map(|(free, _)| free as u128);
        Error::OutOfMemory { what, bytes, device: format!("cuda:{}", self.ordinal()), available }
    }
}

/// Checks that a matrix can be copied to or from GPU memory of `len` elements.
fn fits<T>(memory: Memory<'_, T>, shape: Shape, len: usize) -> Result<()> {
    let Memory::Host(_) = memory else {
        let why = "a copy between the host and a GPU takes a matrix on the host, this one lies on a GPU";
        return Err(Error::Layout(why.into()));
    };
    if shape.len()? == len {
        return Ok(());
    }
    Err(Error::Layout(format!("a {shape} matrix has {} elements, the GPU memory has {len}", shape.len()?)))
}

/// A matrix, or a batch of them, in memory of its own on a GPU, row-major.
#[derive(Debug)]
pub struct DeviceMatrix<T> {
    buffer: Buffer<T>,
    layout: Layout,
}

impl<T: Stored> DeviceMatrix<T> {
    /// A matrix with whatever was in its memory before.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::OutOfMemory`].
    pub fn uninit(gpu: &Gpu, shape: Shape) -> Result<Self> {
        let layout = Layout::row_major(shape)?;
        Ok(DeviceMatrix { buffer: Buffer::uninit(gpu, shape.len()?)?, layout })
    }

    /// A matrix of zeros.
    ///
    /// # Errors
    /// [`Error::Shape`] and [`Error::OutOfMemory`].
    pub fn zeros(gpu: &Gpu, shape: Shape) -> Result<Self> {
        let mut matrix = Self::uninit(gpu, shape)?;
        matrix.buffer.fill(T::ZERO)?;
        Ok(matrix)
    }

    /// A copy of a host matrix. The copy is queued; the host matrix may be changed or dropped as soon as this returns.
    ///
    /// # Errors
    /// [`Error::Layout`] where the matrix does not lie on the host, and [`Error::OutOfMemory`].
    pub fn upload(gpu: &Gpu, from: View<'_, T>) -> Result<Self> {
        let mut matrix = Self::uninit(gpu, from.shape())?;
        matrix.buffer.upload(from)?;
        Ok(matrix)
    }

    /// Queues a copy of a host matrix into this one, row after row.
    ///
    /// # Errors
    /// [`Error::Layout`] where the matrix has another number of elements or does not lie on the host.
    pub fn upload_from(&mut self, from: View<'_, T>) -> Result<()> {
        self.buffer.upload(from)
    }

    /// A copy on the host. Waits for what is queued on the matrix.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`]; what the driver says, which includes the failure of a kernel that was queued earlier.
    pub fn download(&self) -> Result<Matrix<T>> {
        let mut matrix = Matrix::zeros_of_shape(self.shape())?;
        self.download_into(matrix.view_mut())?;
        Ok(matrix)
    }

    /// Copies into a host matrix of the same shape, and waits for it.
    ///
    /// # Errors
    /// As [`download`](Self::download); [`Error::Layout`] for another shape or a matrix on a GPU.
    pub fn download_into(&self, to: ViewMut<'_, T>) -> Result<()> {
        if to.shape() != self.shape() {
            return Err(Error::Layout(format!("a {} matrix does not fit into a {} one", self.shape(), to.shape())));
        }
        self.buffer.download(to)
    }

    /// Extents.
    pub fn shape(&self) -> Shape {
        self.layout.shape
    }

    /// The memory underneath.
    pub fn buffer(&self) -> &Buffer<T> {
        &self.buffer
    }

    /// Sets every element.
    ///
    /// # Errors
    /// What the driver says.
    pub fn fill(&mut self, value: T) -> Result<()> {
        self.buffer.fill(value)
    }

    /// The handle it was made with, whose stream is its home.
    pub fn gpu(&self) -> &Gpu {
        self.buffer.gpu()
    }

    /// The matrix, to read.
    pub fn view(&self) -> View<'_, T> {
        View::on_gpu(self.buffer.memory(), self.layout)
    }

    /// The matrix, to write.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        ViewMut::on_gpu(self.buffer.memory(), self.layout)
    }
}
