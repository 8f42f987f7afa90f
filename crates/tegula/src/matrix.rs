//! Matrices: owned ones, and strided views of memory on the host or on a GPU.
//!
//! A view is a [`Layout`] over a [`Memory`]. The layout is checked against the memory when the view is made, so that whoever
//! holds a view may use every coordinate within its shape. Sizes and strides count elements, never bytes.

use std::fmt;
use std::marker::PhantomData;

use crate::element::Scalar;
use crate::error::{Error, Result};
use crate::host;

/// How many matrices there are, and of which size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Matrices in the batch.
    pub batches: usize,
    /// Rows of each.
    pub rows: usize,
    /// Columns of each.
    pub cols: usize,
}

impl Shape {
    /// The shape of one matrix.
    pub const fn new(rows: usize, cols: usize) -> Self {
        Shape { batches: 1, rows, cols }
    }

    /// Number of elements.
    ///
    /// # Errors
    /// [`Error::Shape`] where the number does not fit in a `usize`.
    pub fn len(&self) -> Result<usize> {
        let len = self.batches.checked_mul(self.rows).and_then(|x| x.checked_mul(self.cols));
        len.filter(|&x| isize::try_from(x).is_ok())
            .ok_or_else(|| Error::Shape(format!("a matrix of {self} has more elements than can be addressed")))
    }

    /// Whether there is no element.
    pub const fn is_empty(&self) -> bool {
        self.batches == 0 || self.rows == 0 || self.cols == 0
    }
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.batches != 1 {
            write!(f, "{}×", self.batches)?;
        }
        write!(f, "{}×{}", self.rows, self.cols)
    }
}

/// Checks that A·B has the shape of C, matrix for matrix.
///
/// # Errors
/// [`Error::Shape`] naming the sizes that differ.
pub(crate) fn check_product(a: Shape, b: Shape, c: Shape) -> Result<()> {
    let wrong = |why: &str| Err(Error::Shape(format!("A is {a}, B is {b} and C is {c}: {why}")));
    if a.batches != b.batches || a.batches != c.batches {
        wrong("they must be as many matrices each; a batch stride of 0 repeats one of A or B")
    } else if a.cols != b.rows {
        wrong("A must have as many columns as B has rows")
    } else if a.rows != c.rows || b.cols != c.cols {
        wrong("C must have the rows of A and the columns of B")
    } else {
        Ok(())
    }
}

/// Where each element of a matrix lies: element (b, r, c) is `offset + b·strides[0] + r·strides[1] + c·strides[2]` elements
/// from the start of its memory. Strides may be negative; in inputs they may be zero (broadcast).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    /// Extents.
    pub shape: Shape,
    /// Where element (0, 0, 0) lies, in elements.
    pub offset: usize,
    /// Distances between batches, rows and columns, in elements.
    pub strides: [isize; 3],
}

impl Layout {
    /// Row after row, batch after batch, with no gap.
    ///
    /// # Errors
    /// [`Error::Shape`] where the elements cannot be addressed.
    pub fn row_major(shape: Shape) -> Result<Self> {
        shape.len()?;
        // An empty matrix may have huge extents on its other axes; its strides are never used.
        let stride = |x: Option<usize>| x.and_then(|x| isize::try_from(x).ok()).unwrap_or(0);
        let batch = stride(shape.rows.checked_mul(shape.cols));
        Ok(Layout { shape, offset: 0, strides: [batch, stride(Some(shape.cols)), 1] })
    }

    /// The same elements with rows and columns exchanged.
    #[must_use]
    pub fn transposed(self) -> Self {
        let [batch, row, col] = self.strides;
        Layout {
            shape: Shape { rows: self.shape.cols, cols: self.shape.rows, ..self.shape },
            strides: [batch, col, row],
            ..self
        }
    }

    /// Position of an element, from the start of the memory. Only meaningful within the shape of a checked layout.
    pub fn at(&self, batch: usize, row: usize, col: usize) -> usize {
        let [b, r, c] = self.strides;
        (self.offset as isize + batch as isize * b + row as isize * r + col as isize * c) as usize
    }

    /// First and last position used, or `None` for an empty matrix.
    ///
    /// # Errors
    /// [`Error::Layout`] where a position overflows or lies before the start of the memory.
    pub fn span(&self) -> Result<Option<(usize, usize)>> {
        if self.shape.is_empty() {
            return Ok(None);
        }
        span(self.offset, self.axes()).map(Some).ok_or_else(|| {
            Error::Layout(format!(
                "a {} view at offset {} with strides {:?} reaches outside the address space of its memory",
                self.shape, self.offset, self.strides
            ))
        })
    }

    /// Checks that every element lies within `len` elements of memory.
    ///
    /// # Errors
    /// [`Error::Layout`] naming the first position that does not.
    pub fn check(&self, len: usize) -> Result<()> {
        match self.span()? {
            Some((_, last)) if last >= len => Err(Error::Layout(format!(
                "a {} view at offset {} with strides {:?} needs {} elements, the memory holds {len}",
                self.shape,
                self.offset,
                self.strides,
                last + 1
            ))),
            _ => Ok(()),
        }
    }

    /// Checks that no two coordinates share an element, as an output needs.
    ///
    /// The test is sufficient, not necessary: axes sorted by stride must each step over everything the smaller ones reach.
    /// It accepts every layout that arises from slicing, transposing and reversing a dense matrix.
    ///
    /// # Errors
    /// [`Error::Layout`] where two coordinates share an element or may do so.
    pub fn check_distinct(&self) -> Result<()> {
        if self.shape.is_empty() || distinct(self.axes()) {
            return Ok(());
        }
        Err(Error::Layout(format!(
            "an output of {} with strides {:?} has elements that share memory; give each its own",
            self.shape, self.strides
        )))
    }

    fn axes(&self) -> impl Iterator<Item = (usize, isize)> {
        [self.shape.batches, self.shape.rows, self.shape.cols].into_iter().zip(self.strides)
    }
}

/// First and last position of a layout that is not empty, from its extents and strides; `None` where one overflows or lies before the
/// start of the memory.
pub(crate) fn span(offset: usize, axes: impl Iterator<Item = (usize, isize)>) -> Option<(usize, usize)> {
    let (mut low, mut high) = (offset as i128, offset as i128);
    for (extent, stride) in axes {
        let reach = (extent as i128 - 1) * stride as i128;
        // Far beyond any address already, so that sums may as well stop at the end.
        if reach < 0 { low = low.saturating_add(reach) } else { high = high.saturating_add(reach) }
    }
    Some((usize::try_from(low).ok()?, isize::try_from(high).ok()? as usize))
}

/// Whether axes sorted by stride each step over everything that the smaller ones reach.
pub(crate) fn distinct(axes: impl Iterator<Item = (usize, isize)>) -> bool {
    let mut axes: Vec<_> = axes
        .filter(|&(extent, _)| extent > 1)
        .map(|(extent, stride)| (stride.unsigned_abs() as u128, extent as u128))
        .collect();
    axes.sort_unstable();
    let mut reach = 0u128;
    axes.into_iter().all(|(stride, extent)| {
        let steps_over = stride > reach;
        reach = reach.saturating_add(stride * (extent - 1));
        steps_over
    })
}

/// The queue of work that a piece of GPU memory belongs to: what was queued there on the memory is done before what is
/// queued there later, the release of the memory included. Work on another stream has to be ordered with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Home {
    /// The context's handle.
    pub(crate) context: u64,
    /// The stream's handle; it lives at least as long as the borrow of the memory.
    pub(crate) stream: u64,
}

/// Memory of a GPU: an address with a length, borrowed from whoever owns the allocation.
///
/// Made by the `cuda` module; the fields are plain data so that everything else can reason about them.
#[derive(Clone, Copy, Debug)]
pub struct DeviceMemory<'a> {
    /// Device address of the first element.
    pub(crate) address: u64,
    /// Elements from there on.
    pub(crate) len: usize,
    /// Which GPU.
    pub(crate) ordinal: usize,
    /// Where work on it is queued.
    pub(crate) home: Home,
    pub(crate) owner: PhantomData<&'a ()>,
}

impl DeviceMemory<'_> {
    /// Device address of the first element.
    pub fn address(&self) -> u64 {
        self.address
    }

    /// Number of elements from there on.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The GPU's ordinal.
    pub fn ordinal(&self) -> usize {
        self.ordinal
    }

    /// The queue of work it belongs to.
    pub fn home(&self) -> Home {
        self.home
    }
}

/// Where an input lies.
#[derive(Clone, Copy, Debug)]
pub enum Memory<'a, T> {
    /// In a slice.
    Host(&'a [T]),
    /// On a GPU.
    Device(DeviceMemory<'a>),
}

/// Where an output lies.
#[derive(Debug)]
pub enum MemoryMut<'a, T> {
    /// In a slice.
    Host(&'a mut [T]),
    /// On a GPU.
    Device(DeviceMemory<'a>),
}

/// A strided matrix, or a batch of them, to read.
#[derive(Clone, Copy, Debug)]
pub struct View<'a, T> {
    pub(crate) memory: Memory<'a, T>,
    pub(crate) layout: Layout,
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
    /// [`Error::Layout`] where the layout reaches outside the slice.
    pub fn strided(slice: &'a [T], layout: Layout) -> Result<Self> {
        layout.check(slice.len())?;
        Ok(View { memory: Memory::Host(slice), layout })
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

    /// The slice underneath, or `None` where the matrix lies on a GPU.
    pub fn host(&self) -> Option<&'a [T]> {
        match self.memory {
            Memory::Host(slice) => Some(slice),
            Memory::Device(_) => None,
        }
    }

    /// One element of a matrix on the host; `None` outside the shape and for a matrix on a GPU.
    pub fn get(&self, batch: usize, row: usize, col: usize) -> Option<T> {
        let Shape { batches, rows, cols } = self.layout.shape;
        if batch >= batches || row >= rows || col >= cols {
            return None;
        }
        self.host()?.get(self.layout.at(batch, row, col)).copied()
    }
}

/// A strided matrix, or a batch of them, to write. Its elements never share memory.
#[derive(Debug)]
pub struct ViewMut<'a, T> {
    pub(crate) memory: MemoryMut<'a, T>,
    pub(crate) layout: Layout,
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
        Ok(ViewMut { memory: MemoryMut::Host(slice), layout })
    }

    /// Extents.
    pub fn shape(&self) -> Shape {
        self.layout.shape
    }

    /// Where each element lies.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The transposed matrices. Nothing is moved.
    #[must_use]
    pub fn t(self) -> Self {
        ViewMut { layout: self.layout.transposed(), ..self }
    }

    /// The same matrices, to read.
    pub fn as_view(&self) -> View<'_, T> {
        let memory = match &self.memory {
            MemoryMut::Host(slice) => Memory::Host(slice),
            MemoryMut::Device(memory) => Memory::Device(*memory),
        };
        View { memory, layout: self.layout }
    }

    /// The same matrices for a shorter time.
    pub fn reborrow(&mut self) -> ViewMut<'_, T> {
        let memory = match &mut self.memory {
            MemoryMut::Host(slice) => MemoryMut::Host(slice),
            MemoryMut::Device(memory) => MemoryMut::Device(*memory),
        };
        ViewMut { memory, layout: self.layout }
    }

    /// The slice underneath, or `None` where the matrix lies on a GPU.
    pub fn host_mut(&mut self) -> Option<&mut [T]> {
        match &mut self.memory {
            MemoryMut::Host(slice) => Some(slice),
            MemoryMut::Device(_) => None,
        }
    }
}

fn exact_len(shape: Shape, len: usize) -> Result<()> {
    if shape.len()? == len {
        return Ok(());
    }
    Err(Error::Layout(format!("a {shape} matrix has {} elements, the slice has {len}", shape.len()?)))
}

/// An owned matrix, or a batch of them, row-major on the host.
#[derive(Clone, Debug, PartialEq)]
pub struct Matrix<T> {
    shape: Shape,
    data: Vec<T>,
}

impl<T: Scalar> Matrix<T> {
    /// A `rows`×`cols` matrix from its elements, row after row.
    ///
    /// # Errors
    /// [`Error::Layout`] where their number is not `rows`·`cols`.
    pub fn from_vec(rows: usize, cols: usize, data: Vec<T>) -> Result<Self> {
        Self::from_shape_vec(Shape::new(rows, cols), data)
    }

    /// A batch of matrices from their elements, matrix after matrix, row after row.
    ///
    /// # Errors
    /// [`Error::Layout`] where their number does not fit the shape.
    pub fn from_shape_vec(shape: Shape, data: Vec<T>) -> Result<Self> {
        exact_len(shape, data.len())?;
        Ok(Matrix { shape, data })
    }

    /// A matrix of zeros.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the host has no room.
    pub fn zeros(shape: Shape) -> Result<Self> {
        let len = shape.len()?;
        let mut data = host::room(len, || format!("a {shape} matrix of {}", T::TYPE))?;
        data.resize(len, T::ZERO);
        Ok(Matrix { shape, data })
    }

    /// A matrix whose element (batch, row, col) is `f(batch, row, col)`.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the host has no room.
    pub fn from_fn(shape: Shape, mut f: impl FnMut(usize, usize, usize) -> T) -> Result<Self> {
        let mut matrix = Self::zeros(shape)?;
        let mut next = matrix.data.iter_mut();
        // Without columns there may still be any number of rows, none of which is worth a visit.
        for batch in 0..if shape.is_empty() { 0 } else { shape.batches } {
            for row in 0..shape.rows {
                for (col, element) in next.by_ref().take(shape.cols).enumerate() {
                    *element = f(batch, row, col);
                }
            }
        }
        Ok(matrix)
    }

    /// A copy of the matrices of a view on the host.
    ///
    /// # Errors
    /// [`Error::OutOfMemory`] where the host has no room, [`Error::Layout`] where the view lies on a GPU.
    pub fn from_view(view: View<'_, T>) -> Result<Self> {
        if view.host().is_none() {
            return Err(Error::Layout("a matrix on a GPU cannot be read here; download it first".into()));
        }
        Self::from_fn(view.shape(), |batch, row, col| view.get(batch, row, col).unwrap_or(T::ZERO))
    }

    /// Extents.
    pub fn shape(&self) -> Shape {
        self.shape
    }

    /// The elements, matrix after matrix, row after row.
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

    /// The matrix, to read.
    pub fn view(&self) -> View<'_, T> {
        View { memory: Memory::Host(&self.data), layout: self.layout() }
    }

    /// The matrix, to write.
    pub fn view_mut(&mut self) -> ViewMut<'_, T> {
        let layout = self.layout();
        ViewMut { memory: MemoryMut::Host(&mut self.data), layout }
    }

    fn layout(&self) -> Layout {
        Layout::row_major(self.shape).expect("the shape was checked when the matrix was made")
    }
}

/// `&matrix` can stand wherever a view is taken.
impl<'a, T: Scalar> From<&'a Matrix<T>> for View<'a, T> {
    fn from(matrix: &'a Matrix<T>) -> Self {
        matrix.view()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        let m = Matrix::from_fn(Shape::new(2, 3), |_, r, c| (10 * r + c) as i32).unwrap();
        assert_eq!(m.view().t().get(0, 2, 1), Some(12));
        assert_eq!(m.view().t().t().layout(), m.view().layout());
        assert_eq!(m.view().t().get(0, 3, 0), None);
    }
}
