//! How a host matrix lies on a GPU once it was copied there.

use crate::error::Result;
use crate::matrix::{Layout, Shape};

/// A copy of a host matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Where each element of the matrix lies in the copy.
    pub layout: Layout,
    /// Elements of the copy: as many as the matrix has, but where one matrix stands for a whole batch, that one.
    pub len: usize,
}

/// The copy that is made of a matrix on the host: row-major, without gaps.
///
/// # Errors
/// [`Error::Shape`](crate::Error::Shape) where it cannot be addressed.
pub fn copied(host: &Layout) -> Result<Copied> {
    let repeated = host.strides[0] == 0 && host.shape.batches > 1;
    let shape = if repeated { Shape { batches: 1, ..host.shape } } else { host.shape };
    let mut layout = Layout::row_major(shape)?;
    if repeated {
        layout = Layout { shape: host.shape, strides: [0, layout.strides[1], 1], ..layout };
    }
    Ok(Copied { layout, len: shape.len()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_repeated_matrix_is_copied_once() {
        let shape = Shape { batches: 5, rows: 2, cols: 3 };
        let layout = |strides| Layout { shape, offset: 7, strides };
        let dense = Copied { layout: Layout { offset: 0, ..layout([6, 3, 1]) }, len: 30 };
        assert_eq!(copied(&layout([-100, 1, 40])).unwrap(), dense);
        let once = Copied { layout: Layout { offset: 0, ..layout([0, 3, 1]) }, len: 6 };
        assert_eq!(copied(&layout([0, 1, 40])).unwrap(), once);
        // Repeated rows are written out.
        assert_eq!(copied(&layout([6, 0, 1])).unwrap().len, 30);
    }
}
