//! Strided views of matrices in host or GPU memory. Owned matrices are `tegula::Matrix`.
//!
//! A view is a [`Layout`] over a [`Memory`]. The layout is checked against the memory when the view
//! is created, so every coordinate within the shape is valid. Sizes and strides count elements, not
//! bytes.
//!
//! A view owns only the elements that its layout names: two mutable views can interleave, as the
//! halves of [`ViewMut::split_cols`] do. A slice is therefore created only over memory that the
//! view owns completely. Only the module `view` accesses the memory.

mod device;
mod layout;
mod packed;
mod runs;
mod slicing;
mod view;

use std::fmt;

pub use device::{DeviceMemory, HomeStream};
pub use layout::{Layout, distinct, span};
pub use packed::Packed;
pub use view::{HostMemory, HostMemoryMut, Memory, MemoryMut, View, ViewMut};

use crate::error::{Error, Result};
use crate::host;

/// The shape of a batch of matrices.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Shape {
    /// Matrices in the batch.
    pub batches: usize,
    /// Rows of each matrix.
    pub rows: usize,
    /// Columns of each matrix.
    pub cols: usize,
}

impl Shape {
    /// The shape of a single matrix.
    pub const fn new(rows: usize, cols: usize) -> Self {
        Shape { batches: 1, rows, cols }
    }

    /// The number of elements.
    ///
    /// # Errors
    /// [`Error::Shape`] where the number exceeds `isize::MAX`.
    #[inline]
    pub fn len(&self) -> Result<usize> {
        match host::count(&[self.batches, self.rows, self.cols]) {
            Some(len) => Ok(len),
            None => Err(self.too_long()),
        }
    }

    #[cold]
    fn too_long(&self) -> Error {
        Error::Shape(format!("a matrix of shape {self} has more elements than can be addressed (2⁶³ − 1)"))
    }

    /// Whether the shape has no elements.
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

/// Checks that A·B has the shape of C, for each matrix of the batch.
///
/// # Errors
/// [`Error::Shape`] with the mismatched sizes.
#[inline]
pub fn check_product(a: Shape, b: Shape, c: Shape) -> Result<()> {
    if a.batches != b.batches || a.batches != c.batches {
        wrong_product(a, b, c, "their batch sizes must be equal; a batch stride of 0 repeats a matrix of A or B")
    } else if a.cols != b.rows {
        wrong_product(a, b, c, "the columns of A must equal the rows of B")
    } else if a.rows != c.rows || b.cols != c.cols {
        wrong_product(a, b, c, "C must have the rows of A and the columns of B")
    } else {
        Ok(())
    }
}

#[cold]
fn wrong_product(a: Shape, b: Shape, c: Shape, why: &str) -> Result<()> {
    Err(Error::Shape(format!("A is {a}, B is {b} and C is {c}: {why}")))
}

/// Checks that the multiply-adds of a product do not exceed 2⁶⁰.
///
/// Only a k axis that is broadcast in both A and B can exceed the limit, since the elements of C
/// are distinct.
///
/// # Errors
/// [`Error::Shape`] with the number of multiply-adds.
#[inline]
pub fn check_work(c: Shape, k: usize) -> Result<()> {
    match host::count(&[c.batches, c.rows, c.cols, k]) {
        Some(work) if work as u128 <= MAX_WORK => Ok(()),
        _ => check_much_work(c, k),
    }
}

#[cold]
fn check_much_work(c: Shape, k: usize) -> Result<()> {
    let extents = [c.batches, c.rows, c.cols, k];
    let work = extents.into_iter().fold(1u128, |work, extent| work.saturating_mul(extent as u128));
    if c.is_empty() || work <= MAX_WORK {
        return Ok(());
    }
    Err(Error::Shape(format!(
        "a product with C of {c} and k = {k} needs {work} multiply-adds; the limit is {MAX_WORK}. Use a smaller k"
    )))
}

/// The limit of multiply-adds of a product: 2⁶⁰, years of work.
const MAX_WORK: u128 = 1 << 60;

#[inline]
fn exact_len(shape: Shape, len: usize) -> Result<()> {
    let elements = shape.len()?;
    if elements == len { Ok(()) } else { Err(wrong_len(shape, elements, len)) }
}

#[cold]
fn wrong_len(shape: Shape, elements: usize, len: usize) -> Error {
    Error::Layout(format!("a {shape} matrix has {elements} elements; the slice has {len}"))
}
