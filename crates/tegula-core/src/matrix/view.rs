//! Views: layouts over memory, and the only code that touches host memory through them.
//!
//! What makes the unsafe code here sound: every element that the layout of a view on the host names lies in memory that was
//! borrowed for the view's lifetime, to read or, with no two coordinates sharing one, to write. That is checked where a view is
//! made. [`Layout::select`] and its like name parts of the same elements, and only they change a layout: the fields are private.
#![allow(unsafe_code)]

use std::marker::PhantomData;
use std::ptr::NonNull;

use super::runs::{flattened, runs};
use super::{DeviceMemory, Layout, Shape, exact_len};
use crate::element::Scalar;
use crate::error::{Error, Result};

/// Memory of the host, borrowed to read: of all that lies from its start on, the elements that the view's layout names.
#[derive(Clone, Copy, Debug)]
pub struct HostMemory<'a, T> {
    start: NonNull<T>,
    borrowed: PhantomData<&'a [T]>,
}

impl<T> HostMemory<'_, T> {
    /// Where position 0 of the layout lies.
    pub fn as_ptr(&self) -> *const T {
        self.start.as_ptr()
    }
}

/// Memory of the host, borrowed to write; otherwise as [`HostMemory`].
#[derive(Debug)]
pub struct HostMemoryMut<'a, T> {
    start: NonNull<T>,
    borrowed: PhantomData<&'a mut [T]>,
}

impl<T> HostMemoryMut<'_, T> {
    /// Where position 0 of the layout lies.
    pub fn as_mut_ptr(&mut self) -> *mut T {
        self.start.as_ptr()
    }
}

// SAFETY: it stands for `&[T]`.
unsafe impl<T: Sync> Send for HostMemory<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for HostMemory<'_, T> {}
// SAFETY: it stands for `&mut [T]`.
unsafe impl<T: Send> Send for HostMemoryMut<'_, T> {}
// SAFETY: as above.
unsafe impl<T: Sync> Sync for HostMemoryMut<'_, T> {}

/// Where an input lies.
#[derive(Clone, Copy, Debug)]
pub enum Memory<'a, T> {
    /// On the host.
    Host(HostMemory<'a, T>),
    /// On a GPU.
    Device(DeviceMemory<'a>),
}

/// Where an output lies.
#[derive(Debug)]
pub enum MemoryMut<'a, T> {
    /// On the host.
    Host(HostMemoryMut<'a, T>),
    /// On a GPU.
    Device(DeviceMemory<'a>),
}

/// A strided matrix, or a batch of them, to read.
#[derive(Clone, Copy, Debug)]
pub struct View<'a, T> {
    memory: Memory<'a, T>,
    layout: Layout,
}

impl<'a, T: Scalar> View<'a, T> {
    /// A row-major `rows`×`cols` matrix in a slice.
    ///
    /// # Errors
    /// [`Error::Layout`] where the slice has another length.
    pub fn new(slice: &'a [T], rows: usize, cols: usize) -> Result<Self> {
        let shape = Shape::new(rows, cols);
        exact_len(shape, slice.len())?;
        Self::strided(slice, Layout::row_major(shape)?)
    }

    /// Any layout over a slice.
    ///
    /// # Errors
    /// [`Error::Layout`] where the layout reaches outside the slice, [`Error::Shape`] where it names more elements than can be addressed.
    pub fn strided(slice: &'a [T], layout: Layout) -> Result<Self> {
        layout.check(slice.len())?;
        Ok(Self::over(slice, layout))
    }

    /// A layout that was checked against the slice.
    pub(super) fn over(slice: &'a [T], layout: Layout) -> Self {
        let start = NonNull::from(slice).cast();
        View { memory: Memory::Host(HostMemory { start, borrowed: PhantomData }), layout }
    }

    /// A view of elements anywhere on the host, element (0, 0, 0) at `start`. Strides are those between batches, rows and columns,
    /// in elements; they may be negative or 0.
    ///
    /// # Safety
    /// All elements so named lie in one allocation, aligned and initialised, and none of them is written during `'a`. `start` was
    /// derived from a pointer to all of it, not from a reference to its first element. Where there are none, it may be anything.
    pub unsafe fn from_raw_parts(start: *const T, shape: Shape, strides: [isize; 3]) -> Self {
        let (start, layout) = anchored(start.cast_mut(), shape, strides);
        View { memory: Memory::Host(HostMemory { start, borrowed: PhantomData }), layout }
    }

    /// A view of a GPU's memory, against which the layout was checked.
    pub fn on_gpu(memory: DeviceMemory<'a>, layout: Layout) -> Self {
        View { memory: Memory::Device(memory), layout }
    }

    /// Extents.
    pub fn shape(&self) -> Shape {
        self.layout.shape
    }

    /// Where each element lies.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The memory underneath.
    pub fn memory(&self) -> Memory<'a, T> {
        self.memory
    }

    /// The transposed matrices. Nothing is moved.
    #[must_use]
    pub fn t(self) -> Self {
        View { layout: self.layout.transposed(), ..self }
    }

    /// The matrices repeated to a larger shape: an axis of one batch, row or column becomes any number of the same. Nothing is
    /// copied; the stride along it is 0.
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
    /// [`Error::Shape`] where an axis has several places and another number of them is asked for, or there would be more than
    /// `isize::MAX` elements.
    pub fn broadcast(self, shape: Shape) -> Result<Self> {
        Ok(View { layout: self.layout.broadcast(shape)?, ..self })
    }

    pub(super) fn select(self, axis: usize, first: usize, step: isize, count: usize) -> Result<Self> {
        Ok(View { layout: self.layout.select(axis, first, step, count)?, ..self })
    }

    /// Another layout of elements that this one names; [`Layout`] makes them.
    pub fn part(self, layout: Layout) -> Self {
        View { layout, ..self }
    }

    pub(super) fn flipped(self, axis: usize) -> Self {
        View { layout: self.layout.flipped(axis), ..self }
    }

    /// One element of a matrix on the host; `None` outside the shape and for a matrix on a GPU.
    pub fn get(&self, batch: usize, row: usize, col: usize) -> Option<T> {
        let (Memory::Host(memory), true) = (self.memory, contains(self.layout.shape, batch, row, col)) else {
            return None;
        };
        // SAFETY: an element that the layout names.
        Some(unsafe { memory.start.add(self.layout.at(batch, row, col)).read() })
    }

    /// One row of a matrix on the host; `None` outside the shape, for a matrix on a GPU, and where the elements of a row are not
    /// neighbours.
    pub fn row(&self, batch: usize, row: usize) -> Option<&'a [T]> {
        let run = row_of(&self.layout, batch, row)?;
        self.neighbours(run)
    }

    /// All elements of matrices on the host that lie row-major without gaps; `None` for others.
    pub fn as_slice(&self) -> Option<&'a [T]> {
        self.neighbours(only_run(&self.layout)?)
    }

    /// Elements that are all the view's own, as a slice.
    fn neighbours(&self, (position, len): (usize, usize)) -> Option<&'a [T]> {
        match self.memory {
            Memory::Device(_) => None,
            // An empty matrix may have any offset.
            Memory::Host(_) if len == 0 => Some(&[]),
            Memory::Host(memory) => {
                // SAFETY: the layout names each of these elements.
                Some(unsafe { std::slice::from_raw_parts(memory.start.add(position).as_ptr(), len) })
            }
        }
    }

    /// Copies elements into a slice, from number `first` on, counted row after row and matrix after matrix.
    ///
    /// # Errors
    /// [`Error::Layout`] where the matrices end before the slice does, or lie on a GPU.
    pub fn copy_to_slice(&self, first: usize, to: &mut [T]) -> Result<()> {
        let Memory::Host(memory) = self.memory else { return Err(not_on_the_host()) };
        holds(self.layout.shape, first, to.len())?;
        let mut to = to;
        for run in runs(&self.layout, first, to.len()) {
            let (here, rest) = to.split_at_mut(run.len);
            to = rest;
            // SAFETY: runs are made of elements that the layout names; the slice is borrowed mutably, so it is apart from them.
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

/// A strided matrix, or a batch of them, to write. Its elements never share memory.
#[derive(Debug)]
pub struct ViewMut<'a, T> {
    memory: MemoryMut<'a, T>,
    layout: Layout,
}

impl<'a, T: Scalar> ViewMut<'a, T> {
    /// A row-major `rows`×`cols` matrix in a slice.
    ///
    /// # Errors
    /// [`Error::Layout`] where the slice has another length.
    pub fn new(slice: &'a mut [T], rows: usize, cols: usize) -> Result<Self> {
        let shape = Shape::new(rows, cols);
        exact_len(shape, slice.len())?;
        Self::strided(slice, Layout::row_major(shape)?)
    }

    /// Any layout over a slice whose elements do not share memory.
    ///
    /// # Errors
    /// [`Error::Layout`] where the layout reaches outside the slice or two elements share memory.
    pub fn strided(slice: &'a mut [T], layout: Layout) -> Result<Self> {
        layout.check(slice.len())?;
        layout.check_distinct()?;
        Ok(Self::over(slice, layout))
    }

    /// A layout that was checked against the slice, with no element shared.
    pub(super) fn over(slice: &'a mut [T], layout: Layout) -> Self {
        let start = NonNull::from(slice).cast();
        ViewMut { memory: MemoryMut::Host(HostMemoryMut { start, borrowed: PhantomData }), layout }
    }

    /// A view of elements anywhere on the host, to write; otherwise as [`View::from_raw_parts`].
    ///
    /// # Safety
    /// All elements so named lie in one allocation, aligned and initialised, no two coordinates name the same, and nobody else
    /// reads or writes one during `'a`. `start` was derived from a pointer to all of it, not from a reference to its first element.
    /// Where there are none, it may be anything.
    pub unsafe fn from_raw_parts(start: *mut T, shape: Shape, strides: [isize; 3]) -> Self {
        let (start, layout) = anchored(start, shape, strides);
        ViewMut { memory: MemoryMut::Host(HostMemoryMut { start, borrowed: PhantomData }), layout }
    }

    /// A view of a GPU's memory, against which the layout was checked, with no element shared.
    pub fn on_gpu(memory: DeviceMemory<'a>, layout: Layout) -> Self {
        ViewMut { memory: MemoryMut::Device(memory), layout }
    }

    /// Extents.
    pub fn shape(&self) -> Shape {
        self.layout.shape
    }

    /// Where each element lies.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The memory underneath.
    pub fn memory(&self) -> Memory<'_, T> {
        self.as_view().memory
    }

    /// The memory underneath, given away.
    pub fn into_memory(self) -> MemoryMut<'a, T> {
        self.memory
    }

    /// The transposed matrices. Nothing is moved.
    #[must_use]
    pub fn t(self) -> Self {
        ViewMut { layout: self.layout.transposed(), ..self }
    }

    /// The same matrices, to read.
    pub fn as_view(&self) -> View<'_, T> {
        let memory = match self.memory {
            MemoryMut::Host(HostMemoryMut { start, .. }) => Memory::Host(HostMemory { start, borrowed: PhantomData }),
            MemoryMut::Device(memory) => Memory::Device(memory),
        };
        View { memory, layout: self.layout }
    }

    /// The same matrices for a shorter time.
    pub fn reborrow(&mut self) -> ViewMut<'_, T> {
        let layout = self.layout;
        self.again(layout)
    }

    /// Other elements of the same memory. While both live, `layout` must name none of those that `self` is used for.
    fn again<'b>(&self, layout: Layout) -> ViewMut<'b, T>
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
        debug_assert_ne!(step, 0, "elements to write stay distinct");
        Ok(ViewMut { layout: self.layout.select(axis, first, step, count)?, ..self })
    }

    /// Another layout of elements that this one names, each at most once; [`Layout`] makes them.
    pub fn part(self, layout: Layout) -> Self {
        ViewMut { layout, ..self }
    }

    pub(super) fn flipped(self, axis: usize) -> Self {
        ViewMut { layout: self.layout.flipped(axis), ..self }
    }

    /// The places before `at` along an axis, and those from there on: two views with no element in common, since no two
    /// coordinates share one.
    pub(super) fn split(self, axis: usize, at: usize) -> Result<(Self, Self)> {
        let (first, rest) = (self.layout.select(axis, 0, 1, at)?, self.layout.extents()[axis] - at);
        let second = self.layout.select(axis, at, 1, rest)?;
        Ok((self.again(first), ViewMut { layout: second, ..self }))
    }

    /// One element of a matrix on the host, to change; `None` outside the shape and for a matrix on a GPU.
    pub fn get_mut(&mut self, batch: usize, row: usize, col: usize) -> Option<&mut T> {
        let inside = contains(self.layout.shape, batch, row, col);
        let (MemoryMut::Host(memory), true) = (&mut self.memory, inside) else { return None };
        // SAFETY: an element that the layout names.
        Some(unsafe { memory.start.add(self.layout.at(batch, row, col)).as_mut() })
    }

    /// One row of a matrix on the host, to change; `None` where [`View::row`] gives none.
    pub fn row_mut(&mut self, batch: usize, row: usize) -> Option<&mut [T]> {
        let run = row_of(&self.layout, batch, row)?;
        self.neighbours(run)
    }

    /// All elements of matrices on the host that lie row-major without gaps, to change; `None` for others.
    pub fn as_mut_slice(&mut self) -> Option<&mut [T]> {
        let run = only_run(&self.layout)?;
        self.neighbours(run)
    }

    /// Elements that are all the view's own, as a slice.
    fn neighbours(&mut self, (position, len): (usize, usize)) -> Option<&mut [T]> {
        match &mut self.memory {
            MemoryMut::Device(_) => None,
            // An empty matrix may have any offset.
            MemoryMut::Host(_) if len == 0 => Some(&mut []),
            MemoryMut::Host(memory) => {
                // SAFETY: the layout names each of these elements, and each once.
                Some(unsafe { std::slice::from_raw_parts_mut(memory.start.add(position).as_ptr(), len) })
            }
        }
    }

    /// Copies a slice to the elements from number `first` on, counted row after row and matrix after matrix.
    ///
    /// # Errors
    /// [`Error::Layout`] where the matrices end before the slice does, or lie on a GPU.
    pub fn copy_from_slice(&mut self, first: usize, from: &[T]) -> Result<()> {
        let MemoryMut::Host(memory) = &mut self.memory else { return Err(not_on_the_host()) };
        holds(self.layout.shape, first, from.len())?;
        let mut from = from;
        for run in runs(&self.layout, first, from.len()) {
            let (here, rest) = from.split_at(run.len);
            from = rest;
            // SAFETY: runs are made of elements that the layout names, which are borrowed mutably, so the slice is apart from
            // them.
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

/// Where the lowest element lies, and the layout from there on, for elements of one allocation.
fn anchored<T>(start: *mut T, shape: Shape, strides: [isize; 3]) -> (NonNull<T>, Layout) {
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

/// Position and length of a row whose elements are neighbours.
fn row_of(layout: &Layout, batch: usize, row: usize) -> Option<(usize, usize)> {
    let Shape { batches, rows, cols } = layout.shape;
    let neighbours = cols <= 1 || layout.strides[2] == 1;
    // An empty matrix may have any strides.
    let position = |row| if cols == 0 { 0 } else { layout.at(batch, row, 0) };
    (batch < batches && row < rows && neighbours).then(|| (position(row), cols))
}

/// Position and length of all elements where they are neighbours in row-major order.
fn only_run(layout: &Layout) -> Option<(usize, usize)> {
    let len = layout.shape.len().ok()?;
    let flat = flattened(layout);
    (len <= 1 || flat.shape.cols == len && flat.strides[2] == 1).then_some((layout.offset, len))
}

/// Checks that there are `len` elements from number `first` on.
fn holds(shape: Shape, first: usize, len: usize) -> Result<()> {
    if first.checked_add(len).is_some_and(|end| shape.len().is_ok_and(|all| end <= all)) {
        return Ok(());
    }
    Err(Error::Layout(format!("a {shape} matrix does not have {len} elements from number {first} on")))
}

fn not_on_the_host() -> Error {
    Error::Layout("only a matrix on the host can be copied so, and this one lies on a GPU; download it".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A row-major matrix whose element (r, c) is 10·r + c.
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

    #[test]
    fn layouts_are_checked_against_their_memory() {
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
    fn outputs_must_not_overlap_themselves() {
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
    fn transposing_twice_is_nothing() {
        let m = counting(2, 3);
        assert_eq!(m.view().t().get(0, 2, 1), Some(12));
        assert_eq!(m.view().t().t().layout(), m.view().layout());
        assert_eq!(m.view().t().get(0, 3, 0), None);
    }

    #[test]
    fn slices_are_made_of_neighbours_only() {
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
    fn copies_follow_the_layout() {
        let memory: Vec<i32> = (0..3 * 60).collect();
        for case in 0..64 {
            let bit = |i: usize| case >> i & 1;
            let shape = Shape { batches: 1 + 2 * bit(0), rows: 4, cols: 5 };
            let padded = Layout { shape, offset: 2, strides: [60, 7 + bit(1) as isize, 1] };
            let turned = |layout: Layout| if bit(2) == 1 { layout.transposed() } else { layout };
            let flipped = |layout: Layout, axis| if bit(3 + axis) == 1 { layout.flipped(axis) } else { layout };
            let layout = (0..3).fold(turned(padded), flipped);
            let Shape { batches, rows, cols } = layout.shape;
            let places = (0..batches).flat_map(|b| (0..rows).flat_map(move |r| (0..cols).map(move |c| (b, r, c))));
            let expected: Vec<i32> = places.map(|(b, r, c)| layout.at(b, r, c) as i32).collect();

            let view = View::strided(&memory, layout).unwrap();
            let (mut gathered, mut scattered) = (vec![-1; expected.len()], vec![-1; memory.len()]);
            let mut to = ViewMut::strided(&mut scattered, layout).unwrap();
            for (first, part) in (0..).step_by(7).zip(gathered.chunks_mut(7)) {
                view.copy_to_slice(first, part).unwrap();
                to.copy_from_slice(first, part).unwrap();
            }
            assert_eq!(gathered, expected);
            let mut left = vec![-1; memory.len()];
            expected.iter().for_each(|&place| left[place as usize] = place);
            assert_eq!(scattered, left);
            assert!(view.copy_to_slice(expected.len() - 6, &mut gathered[..7]).is_err());
        }
    }

    #[test]
    fn interleaved_parts_are_written_on_two_threads() {
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
    fn raw_parts_may_run_backwards() {
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
