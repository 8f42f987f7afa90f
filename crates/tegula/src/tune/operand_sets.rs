//! Sets of operands that stay in GPU memory, so that calls which rotate through them find nothing
//! in the cache.

use std::cell::RefCell;

use crate::cuda::{Buffer, DeviceElement, DeviceMatrix, Gpu};
use crate::element::Element;
use crate::error::Result;
use crate::matrix::{DeviceMemory, Layout, Matrix, View, ViewMut};

/// Bytes to which the addresses of all matrices of a set are aligned, as those of allocations are.
pub const ALIGNMENT: usize = 256;
/// Total size of the sets in units of the L2 cache.
const L2_MULTIPLE: u128 = 2;
/// Maximum number of sets. The smallest products are bound by launches, not by memory.
const MAX_SETS: u128 = 4096;

/// Number of sets of `bytes` each that exceed a cache of `cache` bytes together.
pub fn sets_beyond_cache(bytes: u128, cache: u32) -> usize {
    (L2_MULTIPLE * u128::from(cache)).div_ceil(bytes.max(1)).clamp(1, MAX_SETS) as usize
}

/// Sets of A, B and C in GPU memory, at fixed addresses: captured graphs refer to them.
#[derive(Debug)]
pub struct OperandSets<T: Element> {
    gpu: Gpu,
    a: OperandCopies<T>,
    b: OperandCopies<T>,
    c: RefCell<OperandCopies<T::Out>>,
    count: usize,
    /// Bias shared by all sets.
    bias: Option<DeviceMatrix<T::Out>>,
}

impl<T: Element> OperandSets<T> {
    /// Uploads `count` copies of A, B and C, at least one.
    ///
    /// If A or B is `transposed`, the given matrix is its transpose.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) and errors of the driver.
    pub fn upload(
        gpu: &Gpu,
        [a, b]: [View<'_, T>; 2],
        transposed: [bool; 2],
        c: View<'_, T::Out>,
        count: usize,
    ) -> Result<Self> {
        let [mut a, mut b] = [OperandCopies::upload(gpu, a, count)?, OperandCopies::upload(gpu, b, count)?];
        for (copies, transposed) in [&mut a, &mut b].into_iter().zip(transposed) {
            copies.layout = if transposed { copies.layout.transposed() } else { copies.layout };
        }
        Ok(OperandSets::new(gpu, [a, b], OperandCopies::upload(gpu, c, count)?, count))
    }

    /// Sets of these operands, `count` copies each, at least one.
    pub(super) fn new(gpu: &Gpu, [a, b]: [OperandCopies<T>; 2], c: OperandCopies<T::Out>, count: usize) -> Self {
        OperandSets { gpu: gpu.clone(), a, b, c: RefCell::new(c), count: count.max(1), bias: None }
    }

    /// Uploads a bias, or removes it.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) and errors of the driver.
    pub fn with_bias(self, bias: Option<View<'_, T::Out>>) -> Result<Self> {
        let bias = bias.map(|bias| DeviceMatrix::upload(&self.gpu, bias)).transpose()?;
        Ok(OperandSets { bias, ..self })
    }

    /// The bias.
    pub fn bias(&self) -> Option<View<'_, T::Out>> {
        self.bias.as_ref().map(DeviceMatrix::view)
    }

    /// Sets C of the first set.
    ///
    /// # Errors
    /// [`Error::Layout`](crate::Error::Layout) for more elements than C has; errors of the driver.
    pub fn set_c(&self, c: View<'_, T::Out>) -> Result<()> {
        self.c.borrow_mut().buffer.upload_at(0, c)
    }

    /// Downloads C of the first set, row-major, after all queued work.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`](crate::Error::OutOfMemory) and errors of the driver.
    pub fn c(&self) -> Result<Matrix<T::Out>> {
        let c = self.c.borrow();
        let mut matrix = Matrix::zeros_of_shape(c.layout.shape)?;
        c.buffer.download_at(0, matrix.view_mut())?;
        Ok(matrix)
    }

    /// The copies of C.
    pub(super) fn c_copies(&self) -> &RefCell<OperandCopies<T::Out>> {
        &self.c
    }

    /// Number of sets.
    pub fn count(&self) -> usize {
        self.count
    }

    /// The GPU.
    pub fn gpu(&self) -> &Gpu {
        &self.gpu
    }

    /// Layouts of A, B and C, identical in all sets.
    pub fn layouts(&self) -> [Layout; 3] {
        [self.a.layout, self.b.layout, self.c.borrow().layout]
    }

    /// Alignments of A, B and C in bytes, valid for all sets.
    pub fn alignments(&self) -> [u32; 3] {
        [self.a.alignment(), self.b.alignment(), self.c.borrow().alignment()]
    }

    /// Calls `work` with views of a set; numbers beyond the last start over.
    ///
    /// # Errors
    /// Errors of `work`.
    pub fn with_set<R>(
        &self,
        set: usize,
        work: impl FnOnce(View<'_, T>, View<'_, T>, ViewMut<'_, T::Out>) -> Result<R>,
    ) -> Result<R> {
        let set = set % self.count;
        work(self.a.view(set), self.b.view(set), self.c.borrow_mut().view_mut(set))
    }
}

/// The copies of an operand, one for each set, in one buffer.
#[derive(Debug)]
pub(super) struct OperandCopies<T> {
    /// The memory of all copies.
    pub buffer: Buffer<T>,
    /// Layout of the first copy.
    pub layout: Layout,
    /// Elements from a copy to the next.
    pitch: usize,
}

impl<T: DeviceElement> OperandCopies<T> {
    /// Allocates `count` matrices, at least one, of this layout within `len` elements each.
    pub fn uninit(gpu: &Gpu, layout: Layout, len: usize, count: usize) -> Result<Self> {
        let pitch = pitch::<T>(len);
        Ok(OperandCopies { buffer: Buffer::uninit(gpu, pitch.saturating_mul(count.max(1)))?, layout, pitch })
    }

    /// Uploads `count` copies of a matrix, row-major.
    fn upload(gpu: &Gpu, matrix: View<'_, T>, count: usize) -> Result<Self> {
        let layout = Layout::row_major(matrix.shape())?;
        let mut copies = Self::uninit(gpu, layout, layout.shape.len()?, count)?;
        copies.buffer.upload_at(0, matrix)?;
        copies.buffer.repeat(copies.pitch)?;
        Ok(copies)
    }

    /// The memory of the copy in a set.
    fn memory(&self, set: usize) -> DeviceMemory<'_> {
        let memory = self.buffer.memory();
        let bytes = set * self.pitch * size_of::<T>();
        DeviceMemory { address: memory.address + bytes as u64, len: self.pitch, ..memory }
    }

    fn view(&self, set: usize) -> View<'_, T> {
        View::on_gpu(self.memory(set), self.layout)
    }

    fn view_mut(&mut self, set: usize) -> ViewMut<'_, T> {
        ViewMut::on_gpu(self.memory(set), self.layout)
    }

    fn alignment(&self) -> u32 {
        alignment(self.layout.origin(T::TYPE, self.buffer.address()))
    }
}

/// Elements from a copy of `len` elements to the next, which is aligned alike.
pub(super) fn pitch<T>(len: usize) -> usize {
    len.checked_next_multiple_of(ALIGNMENT / size_of::<T>()).unwrap_or(len)
}

/// Alignment of an address: the largest power of two, at most [`ALIGNMENT`], that divides it.
pub fn alignment(address: u64) -> u32 {
    1 << address.trailing_zeros().min(ALIGNMENT.trailing_zeros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn alignment_is_a_power_of_two_up_to_256() {
        assert_eq!([0, 512, 256, 24, 7, 2].map(alignment), [256, 256, 256, 8, 1, 2]);
    }

    #[test]
    fn pitch_is_a_multiple_of_the_alignment() {
        assert_eq!([0, 1, 32, 33].map(pitch::<f64>), [0, 32, 32, 64]);
        assert_eq!(pitch::<i8>(257), 512);
    }

    #[test]
    fn sets_exceed_the_cache() {
        let l2 = 60 << 20;
        let sets = |bytes| sets_beyond_cache(bytes, l2);
        assert_eq!((sets(3 << 30), sets(120 << 20), sets(48 << 20)), (1, 1, 3));
        assert_eq!((sets(48 << 10), sets(12), sets(0)), (2560, 4096, 4096));
    }
}
