//! Views of GPU memory with another owner: slices of cudarc, or raw addresses.

use std::marker::PhantomData;

use cudarc::driver::{CudaView, CudaViewMut, DeviceSlice, SyncOnDrop};

use super::device_element::DeviceElement;
use super::gpu::Gpu;
use crate::error::{Error, Result};
use crate::matrix::{DeviceMemory, Layout, View, ViewMut};

/// A slice of cudarc, borrowed to read.
///
/// Work queued through its view starts after the work that cudarc has queued on the memory.
/// Dropping it records that work with cudarc, so keep it until the work that uses the view is
/// queued.
#[derive(Debug)]
pub struct Borrowed<'a, T> {
    view: View<'a, T>,
    _sync_on_drop: SyncOnDrop<'a>,
}

impl<T: DeviceElement> Borrowed<'_, T> {
    /// A read-only view.
    pub fn view(&self) -> View<'_, T> {
        self.view
    }
}

/// A slice of cudarc, borrowed to write; otherwise as [`Borrowed`].
#[derive(Debug)]
pub struct BorrowedMut<'a, T> {
    view: ViewMut<'a, T>,
    _sync_on_drop: SyncOnDrop<'a>,
}

impl<T: DeviceElement> BorrowedMut<'_, T> {
    /// A mutable view.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        self.view.reborrow()
    }
}

impl Gpu {
    /// Borrows a slice of cudarc to read: `gpu.borrow(slice.as_view(), layout)`.
    ///
    /// From compute capability 9.0 on, kernels of a product allow the next launch to begin before
    /// they have ended, if that launch uses programmatic stream serialization. Its kernel must then
    /// call `griddepcontrol.wait` (`cudaGridDependencySynchronize`). Ordinary launches need
    /// nothing.
    ///
    /// # Errors
    /// [`Error::Layout`] where the layout exceeds the memory, [`Error::DeviceMismatch`] where it
    /// belongs to another context, [`Error::Misaligned`] where a slice cast from another type is
    /// not aligned for `T`.
    pub fn borrow<'a, T: DeviceElement>(&'a self, from: CudaView<'a, T>, layout: Layout) -> Result<Borrowed<'a, T>> {
        self.same_context(from.stream().context(), "the slice")?;
        layout.check(from.len())?;
        let len = from.len();
        let (address, sync) = from.view_ptr(self.stream());
        check_aligned::<T>(address)?;
        let view = View::on_gpu(self.memory_at(address, len), layout);
        Ok(Borrowed { view, _sync_on_drop: sync })
    }

    /// Borrows a slice of cudarc to write: `gpu.borrow_mut(slice.as_view_mut(), layout)`.
    ///
    /// # Errors
    /// As for [`borrow`](Self::borrow); [`Error::Layout`] also where elements overlap.
    pub fn borrow_mut<'a, T: DeviceElement>(
        &'a self,
        from: CudaViewMut<'a, T>,
        layout: Layout,
    ) -> Result<BorrowedMut<'a, T>> {
        self.same_context(from.stream().context(), "the slice")?;
        layout.check(from.len())?;
        layout.check_distinct()?;
        let len = from.len();
        let (address, sync) = from.view_ptr_mut(self.stream());
        check_aligned::<T>(address)?;
        let view = ViewMut::on_gpu(self.memory_at(address, len), layout);
        Ok(BorrowedMut { view, _sync_on_drop: sync })
    }

    /// A read-only view of memory at a raw address. Its home stream is that of this handle.
    ///
    /// # Errors
    /// [`Error::Layout`] where the layout exceeds `len` elements, or the elements exceed the
    /// address space; [`Error::Misaligned`].
    ///
    /// # Safety
    /// While the view is alive, this GPU can read `len` elements at `address`, and other work that
    /// writes them must be ordered with this handle's stream.
    pub unsafe fn view_from_raw<T: DeviceElement>(
        &self,
        address: u64,
        len: usize,
        layout: Layout,
    ) -> Result<View<'_, T>> {
        check_raw::<T>(address, len, &layout)?;
        Ok(View::on_gpu(self.memory_at(address, len), layout))
    }

    /// A mutable view of memory at a raw address. Its home stream is that of this handle.
    ///
    /// # Errors
    /// As for [`view_from_raw`](Self::view_from_raw); [`Error::Layout`] also where elements
    /// overlap.
    ///
    /// # Safety
    /// While the view is alive, this GPU can read and write `len` elements at `address`. Other work
    /// that uses them must be ordered with this handle's stream.
    pub unsafe fn view_mut_from_raw<T: DeviceElement>(
        &self,
        address: u64,
        len: usize,
        layout: Layout,
    ) -> Result<ViewMut<'_, T>> {
        check_raw::<T>(address, len, &layout)?;
        layout.check_distinct()?;
        Ok(ViewMut::on_gpu(self.memory_at(address, len), layout))
    }

    fn memory_at(&self, address: u64, len: usize) -> DeviceMemory<'_> {
        DeviceMemory { address, len, ordinal: self.ordinal(), home: self.home(), owner: PhantomData }
    }
}

fn check_aligned<T: DeviceElement>(address: u64) -> Result<()> {
    if address.is_multiple_of(size_of::<T>() as u64) {
        return Ok(());
    }
    Err(Error::Misaligned { address, ty: T::TYPE })
}

fn check_raw<T: DeviceElement>(address: u64, len: usize, layout: &Layout) -> Result<()> {
    layout.check(len)?;
    check_aligned::<T>(address)?;
    let size = size_of::<T>() as u64;
    let end = (len as u64).checked_mul(size).and_then(|bytes| address.checked_add(bytes));
    if end.is_none() || (address == 0 && len > 0) {
        return Err(Error::Layout(format!("{len} elements of {size} bytes do not fit at address {address:#x}")));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::matrix::Shape;

    #[test]
    fn raw_addresses_are_checked() {
        let layout = Layout::row_major(Shape::new(2, 3)).unwrap();
        let empty = Layout::row_major(Shape::new(0, 3)).unwrap();
        assert!(check_raw::<f32>(0x7000, 6, &layout).is_ok());
        assert!(check_raw::<f32>(0x7000, 5, &layout).is_err(), "too short");
        let why = check_raw::<f32>(0x7002, 6, &layout).unwrap_err().to_string();
        assert!(why.contains("0x7002 is not a multiple of the 4 bytes of an element of f32"), "{why}");
        assert!(check_raw::<f32>(0, 6, &layout).is_err(), "null");
        assert!(check_raw::<f32>(u64::MAX - 3, 6, &layout).is_err(), "past the end");
        assert!(check_raw::<f32>(0, 0, &empty).is_ok());
    }
}
