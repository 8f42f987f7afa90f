//! Owned N-dimensional arrays, and strided views of memory. A view's layout is checked against its memory when the view is made.

use super::layout::{NdLayout, display, len};
use crate::element::Scalar;
use crate::error::{Error, Result};
use crate::host;
use crate::matrix::{Layout, Memory, Shape, View, ViewMut};

/// A strided array of any number of axes, to read.
#[derive(Clone, Debug)]
pub struct NdView<'a, T> {
    /// The memory; how this view lays it out does not matter.
    pub(super) memory: View<'a, T>,
    layout: NdLayout,
}

impl<'a, T: Scalar> NdView<'a, T> {
    /// A row-major array in a slice.
    ///
    /// # Errors
    /// [`Error::Layout`] where the slice has another length.
    pub fn new(slice: &'a [T], shape: &[usize]) -> Result<Self> {
        exact_len(shape, slice.len())?;
        Self::strided(slice, NdLayout::row_major(shape)?)
    }

    /// Any layout over a slice.
    ///
    /// # Errors
    /// [`Error::Layout`] where the layout reaches outside the slice, [`Error::Shape`] where it names more elements than can be addressed.
    pub fn strided(slice: &'a [T], layout: NdLayout) -> Result<Self> {
        layout.check(slice.len())?;
        Ok(NdView { memory: View::new(slice, 1, slice.len())?, layout })
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// Where each element lies.
    pub fn layout(&self) -> &NdLayout {
        &self.layout
    }

    /// The memory that the layout is over.
    #[doc(hidden)]
    pub fn memory(&self) -> View<'a, T> {
        self.memory
    }

    /// Each matrix transposed: the last two axes exchanged. A vector stays as it is. Nothing is moved.
    #[must_use]
    pub fn t(self) -> Self {
        NdView { layout: self.layout.transposed(), ..self }
    }

    /// One element of an array on the host; `None` outside the shape and for an array on a GPU.
    pub fn get(&self, index: &[usize]) -> Option<T> {
        let position = self.layout.at(index)?;
        let one = Layout { shape: Shape::new(1, 1), offset: position, strides: [0; 3] };
        self.memory.part(one).get(0, 0, 0)
    }

    /// A copy of its own, row-major.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the host has no room, [`Error::Layout`] where the array lies on a GPU.
    pub fn to_array(&self) -> Result<NdArray<T>> {
        if let Memory::Device(_) = self.memory.memory() {
            return Err(Error::Layout("an array on a GPU cannot be read here; download it first".into()));
        }
        let mut array = NdArray::zeros(self.shape())?;
        let mut index = vec![0; self.shape().len()];
        for element in &mut array.data {
            *element = self.get(&index).unwrap_or(T::ZERO);
            advance(&mut index, self.shape());
        }
        Ok(array)
    }

    /// The matrices, or the batch of them, that a layout finds in this memory.
    #[doc(hidden)]
    pub fn matrices(&self, layout: Layout) -> View<'a, T> {
        self.memory.part(layout)
    }
}

/// A matrix as an array of two axes, a batch as one of three.
impl<'a, T: Scalar> From<View<'a, T>> for NdView<'a, T> {
    fn from(view: View<'a, T>) -> Self {
        NdView { memory: view, layout: stack(view.layout()) }
    }
}

/// A strided array of any number of axes, to write. Its elements never share memory.
#[derive(Debug)]
pub struct NdViewMut<'a, T> {
    /// The memory; how this view lays it out does not matter.
    pub(super) memory: ViewMut<'a, T>,
    layout: NdLayout,
}

impl<'a, T: Scalar> NdViewMut<'a, T> {
    /// A row-major array in a slice.
    ///
    /// # Errors
    /// [`Error::Layout`] where the slice has another length.
    pub fn new(slice: &'a mut [T], shape: &[usize]) -> Result<Self> {
        exact_len(shape, slice.len())?;
        Self::strided(slice, NdLayout::row_major(shape)?)
    }

    /// Any layout over a slice whose elements do not share memory.
    ///
    /// # Errors
    /// [`Error::Layout`] where the layout reaches outside the slice or two elements share memory.
    pub fn strided(slice: &'a mut [T], layout: NdLayout) -> Result<Self> {
        layout.check(slice.len())?;
        layout.check_distinct()?;
        let len = slice.len();
        Ok(NdViewMut { memory: ViewMut::new(slice, 1, len)?, layout })
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// Where each element lies.
    pub fn layout(&self) -> &NdLayout {
        &self.layout
    }

    /// Each matrix transposed: the last two axes exchanged. A vector stays as it is. Nothing is moved.
    #[must_use]
    pub fn t(self) -> Self {
        NdViewMut { layout: self.layout.transposed(), ..self }
    }

    /// The same array, to read.
    pub fn as_view(&self) -> NdView<'_, T> {
        NdView { memory: self.memory.as_view(), layout: self.layout.clone() }
    }

    /// The matrices, or the batch of them, that a layout finds in this memory.
    pub fn matrices(&mut self, layout: Layout) -> ViewMut<'_, T> {
        self.memory.reborrow().part(layout)
    }
}

/// A matrix as an array of two axes, a batch as one of three.
impl<'a, T: Scalar> From<ViewMut<'a, T>> for NdViewMut<'a, T> {
    fn from(view: ViewMut<'a, T>) -> Self {
        let layout = stack(view.layout());
        NdViewMut { memory: view, layout }
    }
}

/// The next index, the last axis running fastest.
fn advance(index: &mut [usize], shape: &[usize]) {
    for (place, &extent) in index.iter_mut().zip(shape).rev() {
        *place += 1;
        if *place < extent {
            return;
        }
        *place = 0;
    }
}

fn stack(Layout { shape, offset, strides: [batch, row, col] }: Layout) -> NdLayout {
    let Shape { batches, rows, cols } = shape;
    match batches {
        1 => NdLayout { shape: vec![rows, cols], offset, strides: vec![row, col] },
        _ => NdLayout { shape: vec![batches, rows, cols], offset, strides: vec![batch, row, col] },
    }
}

/// An owned array of any number of axes, row-major on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct NdArray<T> {
    shape: Vec<usize>,
    data: Vec<T>,
}

impl<T: Scalar> NdArray<T> {
    /// An array of zeros.
    ///
    /// # Errors
    /// [`Error::Shape`] where the elements cannot be addressed, [`Error::OutOfMemory`] where the host has no room.
    pub fn zeros(shape: &[usize]) -> Result<Self> {
        let len = len(shape)?;
        let mut data = host::room(&[len], || format!("an array of {} {}", display(shape), T::TYPE))?;
        data.resize(len, T::ZERO);
        Ok(NdArray { shape: shape.to_vec(), data })
    }

    /// An array from its elements, the last axis running fastest.
    ///
    /// # Errors
    /// [`Error::Layout`] where their number does not fit the shape.
    pub fn from_vec(shape: &[usize], data: Vec<T>) -> Result<Self> {
        exact_len(shape, data.len())?;
        Ok(NdArray { shape: shape.to_vec(), data })
    }

    /// Extents, outermost first; none for a single number.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements, the last axis running fastest.
    pub fn as_slice(&self) -> &[T] {
        &self.data
    }

    /// The elements, to change.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.data
    }

    /// The elements, given away.
    pub fn into_vec(self) -> Vec<T> {
        self.data
    }

    /// The array, to read.
    pub fn view(&self) -> NdView<'_, T> {
        NdView::new(&self.data, &self.shape).expect("the shape was checked when the array was made")
    }

    /// The array, to write.
    pub fn view_mut(&mut self) -> NdViewMut<'_, T> {
        NdViewMut::new(&mut self.data, &self.shape).expect("the shape was checked when the array was made")
    }
}

/// `&array` can stand wherever a view is taken.
impl<'a, T: Scalar> From<&'a NdArray<T>> for NdView<'a, T> {
    fn from(array: &'a NdArray<T>) -> Self {
        array.view()
    }
}

fn exact_len(shape: &[usize], found: usize) -> Result<()> {
    let needed = len(shape)?;
    if needed == found {
        return Ok(());
    }
    Err(Error::Layout(format!("an array of {} has {needed} elements, there are {found}", display(shape))))
}
