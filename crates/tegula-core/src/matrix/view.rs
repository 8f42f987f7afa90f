//! Views: layouts over memory, and the only code that accesses host memory through them.
//!
//! Soundness of the unsafe code: every element that the layout of a host view names is in memory
//! that is borrowed for the view's lifetime. It is borrowed for reading, or for writing with no two
//! coordinates on the same element. This is checked when a view is created. The fields are private,
//! and only [`Layout::select`] and similar functions change a layout, to subsets of the same
//! elements.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::NonNull;

use super::runs::{flattened, runs};
use super::{DeviceMemory, Layout, Shape, exact_len};
use crate::element::Scalar;
use crate::error::{Error, Result};

/// Host memory borrowed for reading: the elements that the view's layout names.
#[derive(Clone, Copy, Debug)]
pub struct HostMemory<'a, T> {
    start: NonNull<T>,
    borrowed: PhantomData<&'a [T]>,
}

impl<T> HostMemory<'_, T> {
    /// The address of position 0 of the layout.
    pub fn as_ptr(&self) -> *const T {
        self.start.as_ptr()
    }
}

/// Host memory borrowed for writing; otherwise as [`HostMemory`].
#[derive(Debug)]
pub struct HostMemoryMut<'a, T> {
    start: NonNull<T>,
    borrowed: PhantomData<&'a mut [T]>,
}

impl<T> HostMemoryMut<'_, T> {
    /// The address of position 0 of the layout.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.start.as_ptr()
    }
}

// SAFETY: it is equivalent to `&[T]`.
unsafe impl<T: Sync> Send for HostMemory<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for HostMemory<'_, T> {}
// SAFETY: it is equivalent to `&mut [T]`.
unsafe impl<T: Send> Send for HostMemoryMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for HostMemoryMut<'_, T> {}

/// The memory of an input.
#[derive(Clone, Copy, Debug)]
pub enum Memory<'a, T> {
    /// On the host.
    Host(HostMemory<'a, T>),
    /// On a GPU.
    Device(DeviceMemory<'a>),
}

/// The memory of an output.
#[derive(Debug)]
pub enum MemoryMut<'a, T> {
    /// On the host.
    Host(HostMemoryMut<'a, T>),
    /// On a GPU.
    Device(DeviceMemory<'a>),
}

/// An immutable strided view of a matrix or of a batch of matrices.
#[derive(Clone, Copy, Debug)]
pub struct View<'a, T> {
    memory: Memory<'a, T>,
    layout: Layout,
}

impl<'a, T: Scalar> View<'a, T> {
    /// Creates a view of a slice as a row-major `rows`×`cols` matrix.
    ///
    /// # Errors
    /// [`Error::Layout`] where the slice has another length.
    #[inline]
    pub fn new(slice: &'a [T], rows: usize, cols: usize) -> Result<Self> {
        Self::row_major(slice, Shape::new(rows, cols))
    }

    /// Creates a view of a slice as row-major matrices, one after the other.
    ///
    /// # Errors
    /// [`Error::Layout`] where the slice has another length, [`Error::Shape`] where the number of
    /// elements cannot be addressed.
    #[inline]
    pub fn row_major(slice: &'a [T], shape: Shape) -> Result<Self> {
        exact_len(shape, slice.len())?;
        // The layout names each element of the slice once, so it needs no other check.
        Ok(Self::over(slice, Layout::row_major_addressable(shape)))
    }

    /// Creates a view of a slice with an arbitrary layout.
    ///
    /// # Errors
    /// [`Error::Layout`] where the layout exceeds the slice, [`Error::Shape`] where the number of
    /// elements cannot be addressed.
    pub fn strided(slice: &'a [T], layout: Layout) -> Result<Self> {
        layout.check(slice.len())?;
        Ok(Self::over(slice, layout))
    }

    /// Creates a view with a layout that was checked against the slice.
    pub(super) fn over(slice: &'a [T], layout: Layout) -> Self {
        let start = NonNull::from(slice).cast();
        View { memory: Memory::Host(HostMemory { start, borrowed: PhantomData }), layout }
    }

    /// Creates a view of host memory, with element (0, 0, 0) at `start`.
    ///
    /// The strides are those of batches, rows and columns, in elements; they can be negative or 0.
    ///
    /// # Safety
    /// All elements are in one allocation, aligned and initialized, and none of them is written
    /// during `'a`. `start` was derived from a pointer to the whole range, not from a reference to
    /// its first element. For an empty shape, `start` can be arbitrary.
    pub unsafe fn from_raw_parts(start: *const T, shape: Shape, strides: [isize; 3]) -> Self {
        let (start, layout) = from_lowest(start.cast_mut(), shape, strides);
        View { memory: Memory::Host(HostMemory { start, borrowed: PhantomData }), layout }
    }

    /// Creates a view of GPU memory with a layout that was checked against it.
    pub fn on_gpu(memory: DeviceMemory<'a>, layout: Layout) -> Self {
        View { memory: Memory::Device(memory), layout }
    }

    /// Extents.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.layout.shape
    }

    /// The layout.
    #[inline]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The memory underneath.
    #[inline]
    pub fn memory(&self) -> Memory<'a, T> {
        self.memory
    }

    /// The transposed matrices, without a copy.
    #[must_use]
    pub fn t(self) -> Self {
        View { layout: self.layout.transposed(), ..self }
    }

    /// Broadcasts to a larger shape, without a copy: an axis of extent 1 is repeated, with stride
    /// 0.
    ///
    /// ```
    /// use tegula_core::{Shape, View};
    ///
    /// let bias = View::new(&[1f32, 2.0, 3.0], 1, 3)?.broadcast(Shape::new(100, 3))?;
    /// assert_eq!(bias.get(0, 99, 1), Some(2.0));
    /// # Ok::<(), tegula_core::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Shape`] where extents other than 1 differ, or the number of elements exceeds
    /// `isize::MAX`.
    pub fn broadcast(self, shape: Shape) -> Result<Self> {
        Ok(View { layout: self.layout.broadcast(shape)?, ..self })
    }

    pub(super) fn select(self, axis: usize, first: usize, step: isize, count: usize) -> Result<Self> {
        Ok(View { layout: self.layout.select(axis, first, step, count)?, ..self })
    }

    /// The view with another layout, which must name a subset of this view's elements.
    pub fn with_layout(self, layout: Layout) -> Self {
        View { layout, ..self }
    }

    pub(super) fn flipped(self, axis: usize) -> Self {
        View { layout: self.layout.flipped(axis), ..self }
    }

    /// One element of a matrix on the host; `None` out of bounds, and for a matrix on a GPU.
    pub fn get(&self, batch: usize, row: usize, col: usize) -> Option<T> {
        let (Memory::Host(memory), true) = (self.memory, contains(self.layout.shape, batch, row, col)) else {
            return None;
        };
        // SAFETY: the layout names the element.
        Some(unsafe { memory.start.add(self.layout.at(batch, row, col)).read() })
    }

    /// One row of a matrix on the host as a slice.
    ///
    /// `None` out of bounds, for a matrix on a GPU, and where the elements of a row are not
    /// contiguous.
    pub fn row(&self, batch: usize, row: usize) -> Option<&'a [T]> {
        let run = row_run(&self.layout, batch, row)?;
        self.contiguous(run)
    }

    /// All elements of contiguous row-major matrices on the host; `None` for others.
    pub fn as_slice(&self) -> Option<&'a [T]> {
        self.contiguous(single_run(&self.layout)?)
    }

    /// A range of contiguous elements, all owned by the view, as a slice.
    fn contiguous(&self, (position, len): (usize, usize)) -> Option<&'a [T]> {
        match self.memory {
            Memory::Device(_) => None,
            // The offset of an empty matrix can be arbitrary.
            Memory::Host(_) if len == 0 => Some(&[]),
            Memory::Host(memory) => {
                // SAFETY: the layout names each of these elements.
                Some(unsafe { std::slice::from_raw_parts(memory.start.add(position).as_ptr(), len) })
            }
        }
    }

    /// Copies elements from number `first` on into a slice, in row-major order, matrix after
    /// matrix.
    ///
    /// # Errors
    /// [`Error::Layout`] where the range exceeds the matrices, and for matrices on a GPU.
    pub fn copy_to_slice(&self, first: usize, to: &mut [T]) -> Result<()> {
        let Memory::Host(memory) = self.memory else { return Err(not_on_host()) };
        check_range(self.layout.shape, first, to.len())?;
        let mut to = to;
        for run in runs(&self.layout, first, to.len()) {
            let (here, rest) = to.split_at_mut(run.len);
            to = rest;
            // SAFETY: the layout names all elements of the run. The slice is mutably borrowed, so
            // it does not overlap them.
            unsafe {
                match run.stride {
                    1 => memory.start.add(run.position).copy_to_nonoverlapping(NonNull::from(here).cast(), run.len),
                    _ => (0..).zip(here).for_each(|(i, to)| *to = memory.start.add(run.at(i)).read()),
                }
            }
        }
        Ok(())
    }
}

/// A mutable strided view of a matrix or of a batch of matrices. Its elements do not overlap.
#[derive(Debug)]
pub struct ViewMut<'a, T> {
    memory: MemoryMut<'a, T>,
    layout: Layout,
}

impl<'a, T: Scalar> ViewMut<'a, T> {
    /// Creates a mutable view of a slice as a row-major `rows`×`cols` matrix.
    ///
    /// # Errors
    /// [`Error::Layout`] where the slice has another length.
    #[inline]
    pub fn new(slice: &'a mut [T], rows: usize, cols: usize) -> Result<Self> {
        Self::row_major(slice, Shape::new(rows, cols))
    }

    /// Creates a mutable view of a slice as row-major matrices, one after the other.
    ///
    /// # Errors
    /// [`Error::Layout`] where the slice has another length, [`Error::Shape`] where the number of
    /// elements cannot be addressed.
    #[inline]
    pub fn row_major(slice: &'a mut [T], shape: Shape) -> Result<Self> {
        exact_len(shape, slice.len())?;
        // The layout names each element of the slice once, so it needs no other check.
        Ok(Self::over(slice, Layout::row_major_addressable(shape)))
    }

    /// Creates a mutable view of a slice with an arbitrary layout without overlaps.
    ///
    /// # Errors
    /// [`Error::Layout`] where the layout exceeds the slice or two elements overlap.
    pub fn strided(slice: &'a mut [T], layout: Layout) -> Result<Self> {
        layout.check(slice.len())?;
        layout.check_distinct()?;
        Ok(Self::over(slice, layout))
    }

    /// Creates a view with a layout without overlaps that was checked against the slice.
    pub(super) fn over(slice: &'a mut [T], layout: Layout) -> Self {
        let start = NonNull::from(slice).cast();
        ViewMut { memory: MemoryMut::Host(HostMemoryMut { start, borrowed: PhantomData }), layout }
    }

    /// Creates a mutable view of host memory; otherwise as [`View::from_raw_parts`].
    ///
    /// # Safety
    /// All elements are in one allocation, aligned and initialized, and distinct. During `'a`, they
    /// are accessed through this view only. `start` was derived from a pointer to the whole range,
    /// not from a reference to its first element. For an empty shape, `start` can be arbitrary.
    pub unsafe fn from_raw_parts(start: *mut T, shape: Shape, strides: [isize; 3]) -> Self {
        let (start, layout) = from_lowest(start, shape, strides);
        ViewMut { memory: MemoryMut::Host(HostMemoryMut { start, borrowed: PhantomData }), layout }
    }

    /// Creates a view of GPU memory with a layout without overlaps that was checked against it.
    pub fn on_gpu(memory: DeviceMemory<'a>, layout: Layout) -> Self {
        ViewMut { memory: MemoryMut::Device(memory), layout }
    }

    /// Extents.
    #[inline]
    pub fn shape(&self) -> Shape {
        self.layout.shape
    }

    /// The layout.
    #[inline]
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The memory underneath.
    #[inline]
    pub fn memory(&self) -> Memory<'_, T> {
        self.as_view().memory
    }

    /// Converts the view into its memory.
    #[inline]
    pub fn into_memory(self) -> MemoryMut<'a, T> {
        self.memory
    }

    /// The transposed matrices, without a copy.
    #[must_use]
    pub fn t(self) -> Self {
        ViewMut { layout: self.layout.transposed(), ..self }
    }

    /// An immutable view of the same matrices.
    #[inline]
    pub fn as_view(&self) -> View<'_, T> {
        let memory = match self.memory {
            MemoryMut::Host(HostMemoryMut { start, .. }) => Memory::Host(HostMemory { start, borrowed: PhantomData }),
            MemoryMut::Device(memory) => Memory::Device(memory),
        };
        View { memory, layout: self.layout }
    }

    /// A mutable view of the same matrices with a shorter lifetime.
    pub fn reborrow(&mut self) -> ViewMut<'_, T> {
        let layout = self.layout;
        self.alias(layout)
    }

    /// A second view of the same memory.
    ///
    /// While both live, it must be disjoint from the elements used through `self`.
    fn alias<'b>(&self, layout: Layout) -> ViewMut<'b, T>
    where
        'a: 'b,
    {
        let memory = match self.memory {
            MemoryMut::Host(HostMemoryMut { start, .. }) => {
                MemoryMut::Host(HostMemoryMut { start, borrowed: PhantomData })
            }
            MemoryMut::Device(memory) => MemoryMut::Device(memory),
        };
        ViewMut { memory, layout }
    }

    pub(super) fn select(self, axis: usize, first: usize, step: isize, count: usize) -> Result<Self> {
        debug_assert_ne!(step, 0, "a step of 0 would alias elements of an output");
        Ok(ViewMut { layout: self.layout.select(axis, first, step, count)?, ..self })
    }

    /// The view with another layout, which must name a subset of this view's elements, each at most
    /// once.
    pub fn with_layout(self, layout: Layout) -> Self {
        ViewMut { layout, ..self }
    }

    pub(super) fn flipped(self, axis: usize) -> Self {
        ViewMut { layout: self.layout.flipped(axis), ..self }
    }

    /// Splits an axis at index `at` into two disjoint views.
    ///
    /// They are disjoint because no two coordinates share an element.
    pub(super) fn split(self, axis: usize, at: usize) -> Result<(Self, Self)> {
        let (first, rest) = (self.layout.select(axis, 0, 1, at)?, self.layout.extents()[axis] - at);
        let second = self.layout.select(axis, at, 1, rest)?;
        Ok((self.alias(first), ViewMut { layout: second, ..self }))
    }

    /// One mutable element of a matrix on the host; `None` out of bounds, and for a matrix on a
    /// GPU.
    pub fn get_mut(&mut self, batch: usize, row: usize, col: usize) -> Option<&mut T> {
        let in_bounds = contains(self.layout.shape, batch, row, col);
        let (MemoryMut::Host(memory), true) = (&mut self.memory, in_bounds) else { return None };
        // SAFETY: the layout names the element.
        Some(unsafe { memory.start.add(self.layout.at(batch, row, col)).as_mut() })
    }

    /// One mutable row of a matrix on the host; `None` where [`View::row`] returns `None`.
    pub fn row_mut(&mut self, batch: usize, row: usize) -> Option<&mut [T]> {
        let run = row_run(&self.layout, batch, row)?;
        self.contiguous(run)
    }

    /// All elements of contiguous row-major matrices on the host, mutable; `None` for others.
    pub fn as_mut_slice(&mut self) -> Option<&mut [T]> {
        let run = single_run(&self.layout)?;
        self.contiguous(run)
    }

    /// A range of contiguous elements, all owned by the view, as a mutable slice.
    fn contiguous(&mut self, (position, len): (usize, usize)) -> Option<&mut [T]> {
        match &mut self.memory {
            MemoryMut::Device(_) => None,
            // The offset of an empty matrix can be arbitrary.
            MemoryMut::Host(_) if len == 0 => Some(&mut []),
            MemoryMut::Host(memory) => {
                // SAFETY: the layout names each of these elements, and each once.
                Some(unsafe { std::slice::from_raw_parts_mut(memory.start.add(position).as_ptr(), len) })
            }
        }
    }

    /// Copies a slice to the elements from number `first` on, in row-major order, matrix after
    /// matrix.
    ///
    /// # Errors
    /// [`Error::Layout`] where the range exceeds the matrices, and for matrices on a GPU.
    pub fn copy_from_slice(&mut self, first: usize, from: &[T]) -> Result<()> {
        let MemoryMut::Host(memory) = &mut self.memory else { return Err(not_on_host()) };
        check_range(self.layout.shape, first, from.len())?;
        let mut from = from;
        for run in runs(&self.layout, first, from.len()) {
            let (here, rest) = from.split_at(run.len);
            from = rest;
            // SAFETY: the layout names all elements of the run. They are mutably borrowed, so the
            // slice does not overlap them.
            unsafe {
                match run.stride {
                    1 => memory.start.add(run.position).copy_from_nonoverlapping(NonNull::from(here).cast(), run.len),
                    _ => (0..).zip(here).for_each(|(i, from)| memory.start.add(run.at(i)).write(*from)),
                }
            }
        }
        Ok(())
    }
}

/// The address of the lowest element, and the layout relative to it, for elements of one
/// allocation.
fn from_lowest<T>(start: *mut T, shape: Shape, strides: [isize; 3]) -> (NonNull<T>, Layout) {
    let layout = Layout { shape, offset: 0, strides };
    if shape.is_empty() {
        return (NonNull::dangling(), layout);
    }
    let reach = layout.extents().into_iter().zip(strides).map(|(extent, stride)| (extent as isize - 1) * stride);
    let below = reach.filter(|&reach| reach < 0).sum::<isize>();
    (
        NonNull::new(start.wrapping_offset(below)).unwrap_or(NonNull::dangling()),
        Layout { offset: below.unsigned_abs(), ..layout },
    )
}

fn contains(shape: Shape, batch: usize, row: usize, col: usize) -> bool {
    batch < shape.batches && row < shape.rows && col < shape.cols
}

/// The position and length of a row whose elements are contiguous.
fn row_run(layout: &Layout, batch: usize, row: usize) -> Option<(usize, usize)> {
    let Shape { batches, rows, cols } = layout.shape;
    let contiguous = cols <= 1 || layout.strides[2] == 1;
    // The strides of an empty matrix can be arbitrary.
    let position = |row| if cols == 0 { 0 } else { layout.at(batch, row, 0) };
    (batch < batches && row < rows && contiguous).then(|| (position(row), cols))
}

/// The position and length of all elements where they are contiguous in row-major order.
fn single_run(layout: &Layout) -> Option<(usize, usize)> {
    let len = layout.shape.len().ok()?;
    let flat = flattened(layout);
    (len <= 1 || flat.shape.cols == len && flat.strides[2] == 1).then_some((layout.offset, len))
}

/// Checks that the matrices have `len` elements from number `first` on.
fn check_range(shape: Shape, first: usize, len: usize) -> Result<()> {
    if first.checked_add(len).is_some_and(|end| shape.len().is_ok_and(|all| end <= all)) {
        return Ok(());
    }
    Err(Error::Layout(format!("elements {first}..{} exceed a {shape} matrix", first.saturating_add(len))))
}

fn not_on_host() -> Error {
    Error::Layout("cannot access the elements of a matrix on a GPU; download it".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row-major matrix with element (r, c) equal to 10·r + c.
    struct Counting {
        shape: Shape,
        data: Vec<i32>,
    }

    impl Counting {
        fn view(&self) -> View<'_, i32> {
            View::new(&self.data, self.shape.rows, self.shape.cols).unwrap()
        }

        fn view_mut(&mut self) -> ViewMut<'_, i32> {
            ViewMut::new(&mut self.data, self.shape.rows, self.shape.cols).unwrap()
        }
    }

    fn counting(rows: usize, cols: usize) -> Counting {
        let data = (0..rows * cols).map(|i| (10 * (i / cols) + i % cols) as i32).collect();
        Counting { shape: Shape::new(rows, cols), data }
    }

    fn elements(view: View<'_, i32>) -> Vec<i32> {
        let mut all = vec![-1; view.shape().len().unwrap()];
        view.copy_to_slice(0, &mut all).unwrap();
        all
    }

    /// Row-major views skip the checks of arbitrary layouts, which must accept them.
    #[test]
    fn row_major_views_name_each_element_of_their_slice_once() {
        for [batches, rows, cols] in [[1, 3, 4], [2, 3, 2], [12, 1, 1], [1, 1, 12], [0, 5, 7], [1, 0, usize::MAX]] {
            let shape = Shape { batches, rows, cols };
            let len = shape.len().unwrap();
            let mut data = [0f32; 13];
            let layout = ViewMut::row_major(&mut data[..len], shape).unwrap().layout();
            assert_eq!(View::row_major(&data[..len], shape).unwrap().layout(), layout);
            layout.check(len).unwrap();
            layout.check_distinct().unwrap();
            for other in [len + 1, len.wrapping_sub(1)].into_iter().filter(|&other| other < 14) {
                assert!(View::row_major(&data[..other], shape).is_err(), "{shape} of {other} elements");
                assert!(ViewMut::row_major(&mut data[..other], shape).is_err(), "{shape} of {other} elements");
            }
        }
        let huge = Shape { batches: usize::MAX, rows: 2, cols: 2 };
        assert!(matches!(View::<f32>::row_major(&[], huge), Err(Error::Shape(_))));
    }

    #[test]
    fn layout_beyond_its_memory_is_rejected() {
        let data = [0f32; 12];
        assert!(View::new(&data, 3, 4).is_ok());
        assert!(View::new(&data, 3, 5).is_err());
        let shape = Shape::new(3, 4);
        assert!(View::strided(&data, Layout { shape, offset: 11, strides: [0, -4, -1] }).is_ok());
        assert!(View::strided(&data, Layout { shape, offset: 10, strides: [0, -4, -1] }).is_err());
        assert!(View::strided(&data, Layout { shape, offset: 1, strides: [0, 4, 1] }).is_err());
        assert!(View::strided(&data, Layout { shape, offset: 0, strides: [0, isize::MAX, 1] }).is_err());
    }

    #[test]
    fn output_with_overlapping_elements_is_rejected() {
        let mut data = [0f32; 12];
        let mut with = |rows, cols, strides| {
            ViewMut::strided(&mut data, Layout { shape: Shape::new(rows, cols), offset: 0, strides }).is_ok()
        };
        assert!(with(3, 4, [0, 4, 1]));
        assert!(with(4, 3, [0, 1, 4]));
        assert!(!with(3, 4, [0, 0, 1]));
        assert!(!with(3, 4, [0, 1, 1]));
        assert!(with(1, 4, [0, 0, 1]));
    }

    #[test]
    fn transposing_twice_is_the_identity() {
        let m = counting(2, 3);
        assert_eq!(m.view().t().get(0, 2, 1), Some(12));
        assert_eq!(m.view().t().t().layout(), m.view().layout());
        assert_eq!(m.view().t().get(0, 3, 0), None);
    }

    #[test]
    fn only_contiguous_elements_form_a_slice() {
        let m = counting(3, 4);
        let right = m.view().cols(1..3).unwrap();
        assert_eq!(right.row(0, 2), Some(&[21, 22][..]));
        assert_eq!((right.row(0, 3), right.row(1, 0), right.as_slice()), (None, None, None));
        assert_eq!(m.view().t().row(0, 0), None);
        assert_eq!(m.view().cols(2..3).unwrap().t().flip_rows().row(0, 0), None);
        assert_eq!(m.view().cols(2..3).unwrap().flip_cols().row(0, 1), Some(&[12][..]));
        assert_eq!(m.view().rows(1..3).unwrap().as_slice(), Some(&[10, 11, 12, 13, 20, 21, 22, 23][..]));
        assert_eq!(m.view().cols(1..2).unwrap().as_slice(), None);
        assert_eq!(m.view().cols(4..).unwrap().as_slice(), Some(&[][..]));
        assert_eq!(m.view().cols(4..).unwrap().row(0, 1), Some(&[][..]));
        let anywhere = Layout { shape: Shape::new(3, 0), offset: usize::MAX, strides: [0, isize::MAX, 1] };
        assert_eq!(View::<i32>::strided(&[], anywhere).unwrap().row(0, 2), Some(&[][..]));
        let shape = Shape { batches: 0, rows: 1 << 63, cols: 4 };
        let vast = Layout { shape, offset: 0, strides: [0, 4, 1] };
        assert_eq!(View::<i32>::strided(&[], vast).unwrap().as_slice(), Some(&[][..]));
    }

    #[test]
    fn copies_gather_and_scatter_by_the_layout() {
        let memory: Vec<i32> = (0..3 * 60).collect();
        for case in 0..64 {
            let bit = |i: usize| case >> i & 1;
            let shape = Shape { batches: 1 + 2 * bit(0), rows: 4, cols: 5 };
            let padded = Layout { shape, offset: 2, strides: [60, 7 + bit(1) as isize, 1] };
            let transposed = |layout: Layout| if bit(2) == 1 { layout.transposed() } else { layout };
            let flipped = |layout: Layout, axis| if bit(3 + axis) == 1 { layout.flipped(axis) } else { layout };
            let layout = (0..3).fold(transposed(padded), flipped);
            let Shape { batches, rows, cols } = layout.shape;
            let coordinates = (0..batches).flat_map(|b| (0..rows).flat_map(move |r| (0..cols).map(move |c| (b, r, c))));
            let expected: Vec<i32> = coordinates.map(|(b, r, c)| layout.at(b, r, c) as i32).collect();

            let view = View::strided(&memory, layout).unwrap();
            let (mut gathered, mut scattered) = (vec![-1; expected.len()], vec![-1; memory.len()]);
            let mut to = ViewMut::strided(&mut scattered, layout).unwrap();
            for (first, part) in (0..).step_by(7).zip(gathered.chunks_mut(7)) {
                view.copy_to_slice(first, part).unwrap();
                to.copy_from_slice(first, part).unwrap();
            }
            assert_eq!(gathered, expected);
            let mut scattered_expected = vec![-1; memory.len()];
            expected.iter().for_each(|&position| scattered_expected[position as usize] = position);
            assert_eq!(scattered, scattered_expected);
            assert!(view.copy_to_slice(expected.len() - 6, &mut gathered[..7]).is_err());
        }
    }

    #[test]
    fn interleaved_mutable_views_are_written_by_two_threads() {
        let mut m = counting(6, 8);
        let (mut left, mut right) = m.view_mut().split_cols(3).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for row in 0..6 {
                    left.row_mut(0, row).unwrap().fill(-1);
                }
            });
            scope.spawn(|| {
                let mut right = right.reborrow().flip_cols();
                for (row, col) in (0..6).flat_map(|row| (0..5).map(move |col| (row, col))) {
                    *right.get_mut(0, row, col).unwrap() += 100;
                }
                let (_, mut last) = right.t().split_rows(4).unwrap();
                last.copy_from_slice(0, &[7; 6]).unwrap();
            });
        });
        assert_eq!(left.as_view().row(0, 5), Some(&[-1; 3][..]));
        assert_eq!(right.as_view().row(0, 1), Some(&[7, 114, 115, 116, 117][..]));
        let (mut above, mut below) = m.view_mut().step_by(2, 3).unwrap().split_rows(1).unwrap();
        std::mem::swap(above.get_mut(0, 0, 2).unwrap(), below.get_mut(0, 1, 2).unwrap());
        assert_eq!((m.view().get(0, 0, 6), m.view().get(0, 4, 6)), (Some(146), Some(106)));
        assert!(m.view_mut().split_rows(7).is_err());
    }

    #[test]
    fn raw_parts_accept_negative_strides() {
        let mut data: Vec<i32> = (0..24).collect();
        let shape = Shape { batches: 2, rows: 3, cols: 2 };
        // SAFETY: elements 23 down to 12 − 2·4 − 3 = 1, all of them in `data`.
        let view = unsafe { View::from_raw_parts(data.as_ptr().add(23), shape, [-11, -4, -3]) };
        assert_eq!(elements(view), [23, 20, 19, 16, 15, 12, 12, 9, 8, 5, 4, 1]);
        // SAFETY: as above, with elements 20, 23, 16, … that are distinct.
        let mut view = unsafe { ViewMut::from_raw_parts(data.as_mut_ptr().add(20), Shape::new(3, 2), [0, -4, 3]) };
        view.copy_from_slice(0, &[0; 6]).unwrap();
        assert_eq!(data.iter().filter(|&&x| x == 0).count(), 7);
        // SAFETY: no elements.
        let none = unsafe { View::<i32>::from_raw_parts(std::ptr::null(), Shape::new(0, 3), [1, 2, 3]) };
        assert_eq!(none.as_slice(), Some(&[][..]));
    }
}
