//! How a host matrix is copied to a GPU.

use crate::error::Result;
use crate::matrix::{Layout, Shape};

/// A copy of a host matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// What is read, row after row and matrix after matrix: all elements, but where one matrix stands for a whole batch, that one.
    pub from: Layout,
    /// Where each element of the matrix lies in the copy.
    pub to: Layout,
}

impl Copied {
    /// Elements of the copy.
    ///
    /// # Errors
    /// [`Error::Shape`](crate::Error::Shape) where they cannot be addressed.
    pub fn elements(&self) -> Result<usize> {
        self.from.shape.len()
    }
}

/// The copy that is made of a matrix on the host: row-major, without gaps.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) where it cannot be addressed.
pub fn copied(host: &Layout) -> Result<Copied> {
    if host.strides[0] != 0 || host.shape.batches <= 1 {
        return Ok(Copied { from: *host, to: Layout::row_major(host.shape)? });
    }
    let from = Layout { shape: Shape { batches: 1, ..host.shape }, ..*host };
    let one = Layout::row_major(from.shape)?;
    Ok(Copied { from, to: Layout { shape: host.shape, strides: [0, one.strides[1], 1], ..one } })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_matrix_is_copied_once() {
        let shape = Shape { batches: 5, rows: 2, cols: 3 };
        let layout = |strides| Layout { shape, offset: 7, strides };
        let dense = copied(&layout([-100, 1, 40])).unwrap();
        assert_eq!((dense.to, dense.elements().unwrap()), (Layout { offset: 0, ..layout([6, 3, 1]) }, 30));
        let once = copied(&layout([0, 1, 40])).unwrap();
        assert_eq!((once.to, once.elements().unwrap()), (Layout { offset: 0, ..layout([0, 3, 1]) }, 6));
        // Repeated rows are written out.
        assert_eq!(copied(&layout([6, 0, 1])).unwrap().elements().unwrap(), 30);
    }
}
