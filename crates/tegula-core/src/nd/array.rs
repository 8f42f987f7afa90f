//! Owned N-dimensional arrays, and strided views of memory.
//!
//! A view's layout is checked against its memory when the view is created.

use super::layout::{NdLayout, display, len};
use crate::element::Scalar;
use crate::error::{Error, Result};
use crate::host;
use crate::matrix::{Layout, Memory, Shape, View, ViewMut};

/// An immutable strided view of an N-dimensional array.
#[derive(Clone, Debug)]
pub struct NdView<'a, T> {
    /// The memory; the layout of this view is not used.
    pub(super) memory: View<'a, T>,
    layout: NdLayout,
}

impl<'a, T: Scalar> NdView<'a, T> {
    /// Creates a view of a slice as a row-major array.
    ///
    /// # Errors
    /// [`Error::Layout`] where the slice has another length.
    pub fn new(slice: &'a [T], shape: &[usize]) -> Result<Self> {
        exact_len(shape, slice.len())?;
        Self::strided(slice, NdLayout::row_major(shape)?)
    }

    /// Creates a view of a slice with an arbitrary layout.
    ///
    /// # Errors
    /// [`Error::Layout`] where the layout exceeds the slice, [`Error::Shape`] where the number of
    /// elements cannot be addressed.
    pub fn strided(slice: &'a [T], layout: NdLayout) -> Result<Self> {
        layout.check(slice.len())?;
        Ok(NdView { memory: View::new(slice, 1, slice.len())?, layout })
    }

    /// Extents, outermost first.
    pub fn shape(&self) -> &[usize] {
        &self.layout.shape
    }

    /// The layout.
    pub fn layout(&self) -> &NdLayout {
        &self.layout
    }

    /// The memory underneath the layout.
    #[doc(hidden)]
    pub fn memory(&self) -> View<'a, T> {
        self.memory
    }

    /// The view with the last two axes swapped: each matrix transposed, a vector unchanged. No
    /// copy.
    #[must_use]
    pub fn t(self) -> Self {
        NdView { layout: self.layout.transposed(), ..self }
    }

    /// One element of an array on the host; `None` out of bounds, and for an array on a GPU.
    pub fn get(&self, index: &[usize]) -> Option<T> {
        let position = self.layout.at(index)?;
        let one = Layout { shape: Shape::new(1, 1), offset: position, strides: [0; 3] };
        self.memory.with_layout(one).get(0, 0, 0)
    }

    /// A row-major copy.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the host has not enough memory, [`Error::Layout`] for an array
    /// on a GPU.
    pub fn to_array(&self) -> Result<NdArray<T>> {
        if let Memory::Device(_) = self.memory.memory() {
            return Err(Error::Layout("cannot read an array on a GPU; download it first".into()));
        }
        let mut array = NdArray::zeros(self.shape())?;
        let mut index = vec![0; self.shape().len()];
        for element in &mut array.data {
            *element = self.get(&index).unwrap_or(T::ZERO);
            advance(&mut index, self.shape());
        }
        Ok(array)
    }

    /// A view of this memory with the layout of a matrix or of a batch.
    #[doc(hidden)]
    pub fn matrices(&self, layout: Layout) -> View<'a, T> {
        self.memory.with_layout(layout)
    }
}

/// A matrix becomes an array of two axes, a batch one of three.
impl<'a, T: Scalar> From<View<'a, T>> for NdView<'a, T> {
    fn from(view: View<'a, T>) -> Self {
        NdView { memory: view, layout: nd_layout(view.layout()) }
    }
}

/// A mutable strided view of an N-dimensional array. Its elements do not overlap.
#[derive(Debug)]
pub struct NdViewMut<'a, T> {
    /// The memory; the layout of this view is not used.
    pub(super) memory: ViewMut<'a, T>,
    layout: NdLayout,
}

impl<'a, T: Scalar> NdViewMut<'a, T> {
    /// Creates a mutable view of a slice as a row-major array.
    ///
    /// # Errors
    /// [`Error::Layout`] where the slice has another length.
    pub fn new(slice: &'a mut [T], shape: &[usize]) -> Result<Self> {
        exact_len(shape, slice.len())?;
        Self::strided(slice, NdLayout::row_major(shape)?)
    }

    /// Creates a mutable view of a slice with an arbitrary layout without overlaps.
    ///
    /// # Errors
    /// [`Error::Layout`] where the layout exceeds the slice or two elements overlap.
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

    /// The layout.
    pub fn layout(&self) -> &NdLayout {
        &self.layout
    }

    /// The view with the last two axes swapped: each matrix transposed, a vector unchanged. No
    /// copy.
    #[must_use]
    pub fn t(self) -> Self {
        NdViewMut { layout: self.layout.transposed(), ..self }
    }

    /// An immutable view of the same array.
    pub fn as_view(&self) -> NdView<'_, T> {
        NdView { memory: self.memory.as_view(), layout: self.layout.clone() }
    }

    /// A mutable view of this memory with the layout of a matrix or of a batch.
    pub fn matrices(&mut self, layout: Layout) -> ViewMut<'_, T> {
        self.memory.reborrow().with_layout(layout)
    }
}

/// A matrix becomes an array of two axes, a batch one of three.
impl<'a, T: Scalar> From<ViewMut<'a, T>> for NdViewMut<'a, T> {
    fn from(view: ViewMut<'a, T>) -> Self {
        let layout = nd_layout(view.layout());
        NdViewMut { memory: view, layout }
    }
}

/// Advances an index to the next element, the last axis fastest.
fn advance(index: &mut [usize], shape: &[usize]) {
    for (coordinate, &extent) in index.iter_mut().zip(shape).rev() {
        *coordinate += 1;
        if *coordinate < extent {
            return;
        }
        *coordinate = 0;
    }
}

fn nd_layout(Layout { shape, offset, strides: [batch, row, col] }: Layout) -> NdLayout {
    let Shape { batches, rows, cols } = shape;
    match batches {
        1 => NdLayout { shape: vec![rows, cols], offset, strides: vec![row, col] },
        _ => NdLayout { shape: vec![batches, rows, cols], offset, strides: vec![batch, row, col] },
    }
}

/// An owned, row-major N-dimensional array on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct NdArray<T> {
    shape: Vec<usize>,
    data: Vec<T>,
}

impl<T: Scalar> NdArray<T> {
    /// Creates an array of zeros.
    ///
    /// # Errors
    /// [`Error::Shape`] where the elements cannot be addressed, [`Error::OutOfMemory`] where the
    /// host has not enough memory.
    pub fn zeros(shape: &[usize]) -> Result<Self> {
        let len = len(shape)?;
        let mut data = host::try_vec(&[len], || format!("an array of {} {}", display(shape), T::TYPE))?;
        data.resize(len, T::ZERO);
        Ok(NdArray { shape: shape.to_vec(), data })
    }

    /// Creates an array from its elements in row-major order.
    ///
    /// # Errors
    /// [`Error::Layout`] where their number does not match the shape.
    pub fn from_vec(shape: &[usize], data: Vec<T>) -> Result<Self> {
        exact_len(shape, data.len())?;
        Ok(NdArray { shape: shape.to_vec(), data })
    }

    /// Extents, outermost first; empty for a scalar.
    pub fn shape(&self) -> &[usize] {
        &self.shape
    }

    /// The elements in row-major order.
    pub fn as_slice(&self) -> &[T] {
        &self.data
    }

    /// The elements in row-major order, mutable.
    pub fn as_mut_slice(&mut self) -> &mut [T] {
        &mut self.data
    }

    /// Converts the array into its elements.
    pub fn into_vec(self) -> Vec<T> {
        self.data
    }

    /// An immutable view of the array.
    pub fn view(&self) -> NdView<'_, T> {
        NdView::new(&self.data, &self.shape).expect("the shape was checked when the array was created")
    }

    /// A mutable view of the array.
    pub fn view_mut(&mut self) -> NdViewMut<'_, T> {
        NdViewMut::new(&mut self.data, &self.shape).expect("the shape was checked when the array was created")
    }
}

/// Lets `&array` be passed as a view.
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
    Err(Error::Layout(format!("an array of shape {} has {needed} elements, but {found} were given", display(shape))))
}
