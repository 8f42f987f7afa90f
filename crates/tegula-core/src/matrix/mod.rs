//! Strided views of matrices in memory of the host or of a GPU. Owned matrices are
//! `tegula::Matrix`.
//!
//! A view is a [`Layout`] over a [`Memory`]. The layout is checked against the memory when the view is made, so that whoever
//! holds a view may use every coordinate within its shape. Sizes and strides count elements, never bytes.
//!
//! A view owns the elements that its layout names and nothing between them: two views to write may interleave, as the halves of
//! [`ViewMut::split_cols`] do. So no slice is ever made of memory that is not all the view's own; `view` alone touches it.

mod device;
mod layout;
mod packed;
mod runs;
mod slicing;
mod view;

use std::fmt;

pub use device::{DeviceMemory, Home};
pub use layout::{Layout, distinct, span};
pub use packed::Packed;
pub use view::{HostMemory, HostMemoryMut, Memory, MemoryMut, View, ViewMut};

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
    /// [`Error::Shape`] where the number exceeds `isize::MAX`.
    pub fn len(&self) -> Result<usize> {
        host::count(&[self.batches, self.rows, self.cols])
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
pub fn check_product(a: Shape, b: Shape, c: Shape) -> Result<()> {
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

/// Refuses a product of more multiply-adds than any machine finishes. Only a sum over an axis that A and B both repeat has so many: elements of C have
/// memory of their own.
///
/// # Errors
/// [`Error::Shape`] with their number.
pub fn check_work(c: Shape, k: usize) -> Result<()> {
    let extents = [c.batches, c.rows, c.cols, k];
    let work = extents.into_iter().fold(1u128, |work, extent| work.saturating_mul(extent as u128));
    if c.is_empty() || work <= MAX_WORK {
        return Ok(());
    }
    Err(Error::Shape(format!(
        "a product of {c} with sums of {k} takes {work} multiply-adds; at most {MAX_WORK} are made: sum over a shorter axis"
    )))
}

/// Multiply-adds of a product at most: 2⁶⁰, years of work.
const MAX_WORK: u128 = 1 << 60;

fn exact_len(shape: Shape, len: usize) -> Result<()> {
    if shape.len()? == len {
        return Ok(());
    }
    Err(Error::Layout(format!("a {shape} matrix has {} elements, the slice has {len}", shape.len()?)))
}
