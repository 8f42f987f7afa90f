//! Memory that somebody else owns, as views: cudarc's, or any address that the caller vouches for.

use std::marker::PhantomData;

use cudarc::driver::{CudaView, CudaViewMut, DeviceSlice, SyncOnDrop};

use super::gpu::Gpu;
use super::stored::Stored;
use crate::error::{Error, Result};
use crate::matrix::{DeviceMemory, Layout, View, ViewMut};

/// Memory of cudarc's, borrowed to read. Work queued through its view starts after what cudarc has queued on the memory, and
/// when this is dropped, cudarc learns of that work. So it is to be kept until the work that uses the view is queued.
#[derive(Debug)]
pub struct Borrowed<'a, T> {
    view: View<'a, T>,
    _told_on_drop: SyncOnDrop<'a>,
}

impl<T: Stored> Borrowed<'_, T> {
    /// The matrix, to read.
    pub fn view(&self) -> View<'_, T> {
        self.view
    }
}

/// Memory of cudarc's, borrowed to write; otherwise as [`Borrowed`].
#[derive(Debug)]
pub struct BorrowedMut<'a, T> {
    view: ViewMut<'a, T>,
    _told_on_drop: SyncOnDrop<'a>,
}

impl<T: Stored> BorrowedMut<'_, T> {
    /// The matrix, to write.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        self.view.reborrow()
    }
}

impl Gpu {
    /// Borrows memory of cudarc's to read: `gpu.borrow(slice.as_view(), layout)`.
    ///
    /// On a GPU since compute capability 9.0, kernels of a product let the launch after them begin before they have ended, if that was launched with
    /// programmatic stream serialization: such a kernel has to call `griddepcontrol.wait` (`cudaGridDependencySynchronize`), as ordinary ones need not.
    ///
    /// # Errors
    /// [`Error::Layout`] where the layout reaches outside the memory, [`Error::Elsewhere`] where it is of another context,
    /// [`Error::Misaligned`] where a slice of another type was made one of `T` and begins between elements.
    pub fn borrow<'a, T: Stored>(&'a self, from: CudaView<'a, T>, layout: Layout) -> Result<Borrowed<'a, T>> {
        self.same_context(from.stream().context(), "the slice")?;
        layout.check(from.len())?;
        let len = from.len();
        let (address, told) = from.view_ptr(self.stream());
        check_aligned::<T>(address)?;
        let view = View::on_gpu(self.memory_at(address, len), layout);
        Ok(Borrowed { view, _told_on_drop: told })
    }

    /// Borrows memory of cudarc's to write: `gpu.borrow_mut(slice.as_view_mut(), layout)`.
    ///
    /// # Errors
    /// As [`borrow`](Self::borrow); [`Error::Layout`] also where two elements share memory.
    pub fn borrow_mut<'a, T: Stored>(&'a self, from: CudaViewMut<'a, T>, layout: Layout) -> Result<BorrowedMut<'a, T>> {
        self.same_context(from.stream().context(), "the slice")?;
        layout.check(from.len())?;
        layout.check_distinct()?;
        let len = from.len();
        let (address, told) = from.view_ptr_mut(self.stream());
        check_aligned::<T>(address)?;
        let view = ViewMut::on_gpu(self.memory_at(address, len), layout);
        Ok(BorrowedMut { view, _told_on_drop: told })
    }

    /// A view of any memory, to read. Its home is this handle's stream.
    ///
    /// # Errors
    /// [`Error::Layout`] where the layout reaches outside `len` elements, or they outside the address space; [`Error::Misaligned`].
    ///
    /// # Safety
    /// For as long as the view lives, `len` elements at `address` have to be memory that this GPU can read, and whatever
    /// else writes to it has to be ordered with this handle's stream.
    pub unsafe fn view_from_raw<T: Stored>(&self, address: u64, len: usize, layout: Layout) -> Result<View<'_, T>> {
        check_raw::<T>(address, len, &layout)?;
        Ok(View::on_gpu(self.memory_at(address, len), layout))
    }

    /// A view of any memory, to write. Its home is this handle's stream.
    ///
    /// # Errors
    /// As [`view_from_raw`](Self::view_from_raw); [`Error::Layout`] also where two elements share memory.
    ///
    /// # Safety
    /// For as long as the view lives, `len` elements at `address` have to be memory that this GPU can read and write, and
    /// whatever else uses it has to be ordered with this handle's stream.
    pub unsafe fn view_mut_from_raw<T: Stored>(
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

fn check_aligned<T: Stored>(address: u64) -> Result<()> {
    if address.is_multiple_of(size_of::<T>() as u64) {
        return Ok(());
    }
    Err(Error::Misaligned { address, ty: T::TYPE })
}

fn check_raw<T: Stored>(address: u64, len: usize, layout: &Layout) -> Result<()> {
    layout.check(len)?;
    check_aligned::<T>(address)?;
    let size = size_of::<T>() as u64;
    let end = (len as u64).checked_mul(size).and_then(|bytes| address.checked_add(bytes));
    if end.is_none() || (address == 0 && len > 0) {
        return Err(Error::Layout(format!("{len} elements of {size} bytes do not lie at address {address:#x}")));
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
